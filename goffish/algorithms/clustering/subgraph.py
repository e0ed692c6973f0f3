"""Counts against the engine: subgraph sizes, the quotient graph, triangles and core numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.clustering import step_kernels as kernels
from goffish.algorithms.clustering.in_memory import coefficients
from goffish.gopher import (
    BatchStep,
    SubgraphBatch,
    SubgraphProgram,
    per_remote,
    per_subgraph,
    per_vertex,
)

_EMPTY = np.empty(0, np.int64)
_UNKNOWN = np.iinfo(np.int64).max


class GraphCounts(SubgraphProgram):
    """Vertices, arcs and remote arcs of every subgraph (docs/specs/engine.md, section 4.6)."""

    state = {
        "vertices": per_subgraph(np.int64),
        "arcs": per_subgraph(np.int64),
        "remote_arcs": per_subgraph(np.int64),
    }
    rows = "subgraph"

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        bounds = batch.subgraph_offsets
        batch["vertices"] = np.diff(bounds)
        batch["arcs"] = np.diff(batch.offsets[bounds])
        remote_before = np.concatenate(([0], np.cumsum(batch.targets < 0)))
        batch["remote_arcs"] = np.diff(remote_before[batch.offsets[bounds]])
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {name: sg[name] for name in self.state}


class QuotientGraph(SubgraphProgram):
    """The quotient graph: pairs of neighboring subgraphs and the remote edges between them (§4.6).

    Each pair is reported from both sides.
    """

    rows = "free"

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        source = sg.first_id + np.repeat(np.arange(sg.num_subgraphs), np.diff(sg.neighbor_offsets))
        return {"subgraph": source, "neighbor": sg.neighbors, "links": sg.neighbor_links}


class TriangleCount(SubgraphProgram):
    """Triangles through each vertex of an undirected graph; loops and parallel edges do not count.

    Superstep 1 counts the triangles with two corners in one subgraph and sends neighboring subgraphs the degrees of
    border vertices. From then on each subgraph asks about its wedges over three subgraphs, at most `batch_size` a
    partition and superstep, so that memory stays bounded; corners elsewhere are sent their counts.

    Parameters
    ----------
    batch_size : int
        Questions per partition and superstep, 40 bytes each.
    """

    message = {"count": np.int64, "far": np.int64, "origin": np.int64}
    state = {
        "triangles": per_vertex(np.int64),
        "degree": per_vertex(np.int64),
        "remote_degree": per_remote(np.int64),
        "done": per_vertex(np.int64),
    }

    def __init__(self, batch_size: int = 500_000) -> None:
        self.batch_size = batch_size

    def init(self, sg: SubgraphBatch) -> None:
        kernels.distinct_degrees(sg.rows, sg["degree"])

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        count, due = batch["triangles"], np.zeros(batch.remote_vertex.size, np.int64)
        middle = row_middles(batch)
        if step.number == 1:
            kernels.local_triangles(batch.rows, middle, count, due)
            vertex, target = news_of(batch, middle, np.full(batch.num_vertices, True))
            step.send_to_subgraph(target, count=batch["degree"][vertex], far=batch.start + vertex, origin=-1)
        else:
            self._answer(batch, step, middle, due)
            self._ask(batch, step, middle)
        owed = np.flatnonzero(due)
        step.send_to_vertex(batch.remote_subgraph[owed], batch.remote_vertex[owed], count=due[owed], far=-1, origin=-1)

    def _answer(self, batch: SubgraphBatch, step: BatchStep, middle: NDArray[np.int64], due: NDArray[np.int64]) -> None:
        vertex, value, far, origin, subgraph = (
            np.ascontiguousarray(step.messages[n]) for n in ("vertex", "count", "far", "origin", "subgraph")
        )
        degrees = vertex < 0
        batch["remote_degree"][find_remote(batch, subgraph[degrees], far[degrees])] = value[degrees]
        counts = (vertex >= 0) & (far < 0)
        np.add.at(batch["triangles"], vertex[counts], value[counts])
        questions = (vertex >= 0) & (far >= 0)
        kernels.close_wedges(
            kernels.Questions(vertex[questions], far[questions], origin[questions]), subgraph[questions], batch.rows,
            middle, batch.remote_vertex, batch["triangles"], due,
        )  # fmt: skip

    def _ask(self, batch: SubgraphBatch, step: BatchStep, middle: NDArray[np.int64]) -> None:
        size = max(self.batch_size, kernels.widest_tail(batch.offsets, middle))
        questions = kernels.Questions(*np.empty((3, size), np.int64))
        unfinished = np.zeros(batch.num_subgraphs, np.bool_)
        found = kernels.remote_wedges(
            step.active, batch.rows, middle, batch.remote_vertex, batch.remote_subgraph, batch.start, batch["degree"],
            batch["remote_degree"], batch["done"], questions, unfinished,
        )  # fmt: skip
        rows, far, origin = (column[:found] for column in questions)
        step.send_to_vertex(batch.remote_subgraph[rows], batch.remote_vertex[rows], count=0, far=far, origin=origin)
        step.vote_to_halt(np.flatnonzero(~unfinished))

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"triangles": sg["triangles"]}


class ClusteringCoefficients(TriangleCount):
    """Local clustering coefficients, from the triangles through each vertex."""

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        local, _ = coefficients(sg["triangles"], sg["degree"])
        return {"clustering": local, "triangles": sg["triangles"], "neighbors": sg["degree"]}


class CoreNumbers(SubgraphProgram):
    """Core number of each vertex of an undirected graph; loops and parallel edges do not count.

    Every vertex starts from its degree; subgraphs lower their estimates to a local fixed point and notify neighboring
    subgraphs the estimates that changed (Montresor, De Pellegrini and Miorandi, "Distributed k-Core Decomposition",
    2013).
    """

    message = {"vertex_number": np.int64, "core": np.int64}
    state = {
        "core": per_vertex(np.int64),
        "support": per_vertex(np.int64),
        "remote_core": per_remote(np.int64, _UNKNOWN),
    }

    def init(self, sg: SubgraphBatch) -> None:
        kernels.distinct_degrees(sg.rows, sg["core"])

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        before = batch["remote_core"].copy()
        touched = find_remote(batch, step.messages["subgraph"], step.messages["vertex_number"])
        np.minimum.at(batch["remote_core"], touched, step.messages["core"])
        changed = np.full(batch.num_vertices, step.number == 1)
        middle = row_middles(batch)
        kernels.lower_cores(
            step.active, step.number == 1, batch.rows, middle, step.message_offsets, touched, before,
            batch["remote_core"], batch["core"], batch["support"], changed,
        )  # fmt: skip
        vertex, target = news_of(batch, middle, changed)
        step.send_to_subgraph(target, vertex_number=batch.start + vertex, core=batch["core"][vertex])
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"core": sg["core"]}


def find_remote(batch: SubgraphBatch, subgraph: NDArray[np.int64], vertex: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the remote table by (local subgraph, partitioned vertex number)."""
    owner = np.repeat(np.arange(batch.num_subgraphs), np.diff(batch.remote_offsets))
    span = batch.num_subgraphs and int(batch.remote_vertex.max(initial=0)) + 1
    table = owner * span + batch.remote_vertex
    return np.searchsorted(table, subgraph * span + vertex)


def order_arcs(batch: SubgraphBatch, remote_number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Arcs of each row in the order of the graph as read; `remote_number` has the numbers of remote vertices there."""
    source = np.repeat(np.arange(batch.num_vertices), batch.degrees)
    unit = batch.subgraph_of_vertex()[source]
    near, at = batch.targets >= 0, batch.targets.astype(np.int64)
    number = np.empty(at.size, np.int64)
    number[near] = batch.vertex_ids[at[near] + batch.subgraph_offsets[unit[near]]]
    number[~near] = remote_number[~at[~near] + batch.remote_offsets[unit[~near]]]
    return np.lexsort((number, source))


def row_middles(batch: SubgraphBatch) -> NDArray[np.int64]:
    middle = np.empty(batch.num_vertices, np.int64)
    kernels.split_rows(batch.offsets, batch.targets, middle)
    return middle


def news_of(
    batch: SubgraphBatch, middle: NDArray[np.int64], changed: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Changed border vertices and the neighboring subgraphs to notify about each."""
    context = changed, batch.rows, middle, batch.remote_subgraph
    size = kernels.news(*context, _EMPTY, _EMPTY)
    vertex, target = np.empty(size, np.int64), np.empty(size, np.int64)
    if size:
        kernels.news(*context, vertex, target)
    return vertex, target
