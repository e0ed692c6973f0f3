"""Greedy colorings and independent sets against the engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from goffish.algorithms.clustering.subgraph import find_remote, news_of, row_middles
from goffish.algorithms.structure import step_kernels as kernels
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_remote, per_vertex


class GreedyChoice(SubgraphProgram):
    """A greedy coloring by descending degree, or an independent set by ascending degree, of an undirected graph.

    Superstep 1 sends neighboring subgraphs the degrees of border vertices. From then on, each vertex decides when all
    neighbors with an earlier turn have (M. T. Jones and P. E. Plassmann, "A parallel graph coloring heuristic", SIAM
    Journal on Scientific Computing 14(3), 1993): the result is that of one vertex after the other.

    Parameters
    ----------
    coloring : bool
    """

    message = {"vertex_number": np.int64, "value": np.int64, "original": np.int64}
    state = {
        "value": per_vertex(np.int64, -1),
        "key": per_vertex(np.int64),
        "order": per_vertex(np.int64),
        "remote_value": per_remote(np.int64, -1),
        "remote_key": per_remote(np.int64),
        "remote_original": per_remote(np.int64),
    }

    def __init__(self, coloring: bool) -> None:
        self.coloring = coloring

    def init(self, sg: SubgraphBatch) -> None:
        subgraph = sg.subgraph_of_vertex()
        source = np.repeat(np.arange(sg.num_vertices), sg.degrees)
        loops = sg.targets == source - sg.subgraph_offsets[subgraph[source]]
        degree = sg.degrees + np.bincount(source[loops], minlength=sg.num_vertices)
        sg["key"] = -degree if self.coloring else degree
        sg["order"] = np.lexsort((sg.vertex_ids, sg["key"], subgraph))

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        middle = row_middles(batch)
        if step.number == 1:
            sent, values = np.full(batch.num_vertices, True), batch["key"]
        else:
            rows = find_remote(batch, step.messages["subgraph"], step.messages["vertex_number"])
            batch["remote_key" if step.number == 2 else "remote_value"][rows] = step.messages["value"]
            batch["remote_original"][rows] = step.messages["original"]
            sent, values = np.zeros(batch.num_vertices, np.bool_), batch["value"]
            kernels.decide(
                step.active, batch.rows, batch["order"],
                kernels.Turns(
                    batch["key"], batch.vertex_ids.astype(np.int64), batch["remote_key"], batch["remote_original"]
                ),
                values, batch["remote_value"], self.coloring, sent,
            )  # fmt: skip
            step.vote_to_halt()
        vertex, target = news_of(batch, middle, sent)
        step.send_to_subgraph(
            target, vertex_number=batch.start + vertex, value=values[vertex], original=batch.vertex_ids[vertex]
        )

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"color": sg["value"]} if self.coloring else {"member": sg["value"] == 1}
