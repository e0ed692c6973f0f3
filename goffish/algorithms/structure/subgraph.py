"""Greedy colorings, independent sets and label propagation against the engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.clustering.subgraph import find_remote, news_of, row_middles
from goffish.algorithms.structure import step_kernels as kernels
from goffish.algorithms.weights import check_range
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_partition, per_remote, per_vertex
from goffish.kernels.csr import NO_WEIGHTS


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
            self._end(step, values)
        vertex, target = news_of(batch, middle, sent)
        step.send_to_subgraph(
            target, vertex_number=batch.start + vertex, value=values[vertex], original=batch.vertex_ids[vertex]
        )

    def _end(self, step: BatchStep, values: NDArray[np.int64]) -> None:
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"color": sg["value"]} if self.coloring else {"member": sg["value"] == 1}


#: A turn is a round and a color: the round times this, plus the color.
_ROUND = 1 << 32
_NO_ARCS = np.empty(0, np.int64)


class LabelPropagation(GreedyChoice):
    """Communities by semi-synchronous label propagation in an undirected graph.

    Vertices are colored first. Then those of one color take their turns in a superstep, color after color, round after
    round; turns that no vertex waits for are left out.

    Parameters
    ----------
    weighted : bool
        Use edge weights if the graph has any.
    """

    state = {
        **GreedyChoice.state,
        "label": per_vertex(np.int64),
        "waiting": per_vertex(np.bool_, True),
        "remote_label": per_remote(np.int64),
        "by_color": per_partition(np.int64),
        "arcs": per_partition(np.int64),
    }
    aggregators = {"uncolored": "or", "turn": "min", "rounds": "max"}

    def __init__(self, weighted: bool = True) -> None:
        super().__init__(coloring=True)
        self.weighted = weighted

    def init(self, sg: SubgraphBatch) -> None:
        super().init(sg)
        if self.weighted:
            check_range(sg.weights)

    def _end(self, step: BatchStep, values: NDArray[np.int64]) -> None:
        step.aggregate("uncolored", bool((values < 0).any()))

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        uncolored, turn = step.aggregated("uncolored"), step.aggregated("turn")
        if step.number <= 2 or uncolored:
            super().compute_batch(batch, step)
            return
        if step.messages.size:
            rows = find_remote(batch, step.messages["subgraph"], step.messages["vertex_number"])
            if uncolored is None:
                batch["waiting"][step.messages["vertex"]] = True
            batch["remote_value" if uncolored is not None else "remote_label"][rows] = step.messages["value"]
        if uncolored is not None:
            self._begin(batch)
            turn = 0
        if turn is None:
            step.vote_to_halt()
        else:
            self._turn(batch, step, int(turn))

    def _begin(self, batch: SubgraphBatch) -> None:
        batch["label"], batch["remote_label"] = batch.vertex_ids, batch["remote_original"]
        batch["by_color"] = np.argsort(batch["value"], kind="stable")
        if self.weighted and batch.weights is not None:
            source = np.repeat(np.arange(batch.num_vertices), batch.degrees)
            unit = batch.subgraph_of_vertex()[source]
            near, at = batch.targets >= 0, batch.targets.astype(np.int64)
            number = np.empty(at.size, np.int64)
            number[near] = batch.vertex_ids[at[near] + batch.subgraph_offsets[unit[near]]]
            number[~near] = batch["remote_original"][~at[~near] + batch.remote_offsets[unit[~near]]]
            batch["arcs"] = np.lexsort((number, source))

    def _turn(self, batch: SubgraphBatch, step: BatchStep, turn: int) -> None:
        number, color = divmod(turn, _ROUND)
        colors, waiting, by_color = batch["value"], batch["waiting"], batch["by_color"]
        first, last = np.searchsorted(colors, [color, color + 1], sorter=by_color)
        turns = by_color[first:last]
        turns = turns[waiting[turns]]
        units = np.searchsorted(batch.subgraph_offsets, turns, side="right") - 1
        degrees = batch.offsets[turns + 1] - batch.offsets[turns]
        slots = 1 << (2 * int(degrees.max(initial=0)) + 1).bit_length()
        changed = np.empty(turns.size, np.bool_)
        weights = batch.weights if self.weighted and batch.weights is not None else NO_WEIGHTS
        kernels.vote(
            turns, units, batch.rows, batch["arcs"] if weights.size else _NO_ARCS, weights,
            kernels.Labels(batch["label"], batch["remote_label"]),
            kernels.Votes(np.full(slots, -1, np.int64), np.empty(slots, np.int64), np.empty(slots)), waiting, changed,
        )  # fmt: skip
        later = colors[waiting]
        if changed.any():
            step.aggregate("rounds", number + 1)
            later = np.concatenate((later, self._send(batch, step, turns[changed], units[changed])))
        if later.size:
            step.aggregate("turn", int(((number + (later <= color)) * _ROUND + later).min()))

    def _send(
        self, batch: SubgraphBatch, step: BatchStep, vertex: NDArray[np.int64], unit: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Send labels along the cut edges of some vertices; returns the colors of the vertices that receive them."""
        first, counts = batch.offsets[vertex], batch.offsets[vertex + 1] - batch.offsets[vertex]
        arcs = np.arange(int(counts.sum())) + np.repeat(first - np.cumsum(counts) + counts, counts)
        cut = batch.targets[arcs] < 0
        vertex = np.repeat(vertex, counts)[cut]
        rows = np.repeat(batch.remote_offsets[unit], counts)[cut] + ~batch.targets[arcs[cut]].astype(np.int64)
        step.send_to_vertex(
            batch.remote_subgraph[rows], batch.remote_vertex[rows], vertex_number=batch.start + vertex,
            value=batch["label"][vertex], original=0,
        )  # fmt: skip
        colors: NDArray[np.int64] = batch["remote_value"][rows]
        return colors

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"community": sg["label"]}
