"""Counts against the engine: sub-graph sizes, the quotient graph, triangles and core numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.counts import _step_kernels as kernels
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
    """Vertices, arcs and remote arcs of every sub-graph (engine specification §4.6)."""

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
    """The quotient graph: pairs of neighbouring sub-graphs and the remote edges between them (§4.6).

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

    Superstep 1 counts triangles with two corners in one sub-graph and asks about wedges over three; superstep 2 closes those;
    corners elsewhere are told the counts that are due to them.
    """

    message = {"count": np.int64, "far": np.int64, "origin": np.int64}
    state = {"triangles": per_vertex(np.int64)}

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        count, due = batch["triangles"], np.zeros(batch.remote_vertex.size, np.int64)
        middle = _row_middles(batch)
        rows = (batch.offsets, middle, batch.targets)
        if step.number == 1:
            kernels.local_triangles(batch.subgraph_offsets, batch.remote_offsets, *rows, count, due)
            self._ask(batch, step, middle)
        elif step.messages.size:
            vertex, told, far, origin, subgraph = (
                np.ascontiguousarray(step.messages[n])
                for n in ("vertex", "count", "far", "origin", "subgraph")
            )
            np.add.at(count, vertex, told)
            kernels.close_wedges(
                vertex, far, origin, subgraph, batch.remote_offsets, batch.remote_vertex, *rows, count, due
            )
        owed = np.flatnonzero(due)
        step.send_to_vertex(
            batch.remote_subgraph[owed], batch.remote_vertex[owed], count=due[owed], far=-1, origin=-1
        )
        step.vote_to_halt()

    def _ask(self, batch: SubgraphBatch, step: BatchStep, middle: NDArray[np.int64]) -> None:
        context = (
            batch.subgraph_offsets, batch.remote_offsets, batch.remote_vertex, batch.remote_subgraph,
            batch.offsets, middle, batch.targets, batch.start,
        )  # fmt: skip
        size = kernels.remote_wedges(*context, _EMPTY, _EMPTY, _EMPTY)
        asked, far, origin = (np.empty(size, np.int64) for _ in range(3))
        if size:
            kernels.remote_wedges(*context, asked, far, origin)
        step.send_to_vertex(
            batch.remote_subgraph[asked], batch.remote_vertex[asked], count=0, far=far, origin=origin
        )

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"triangles": sg["triangles"]}


class CoreNumbers(SubgraphProgram):
    """Core number of each vertex of an undirected graph; loops and parallel edges do not count.

    Every vertex starts from its degree; sub-graphs lower their estimates to a local fixed point and tell neighbouring
    sub-graphs the estimates that changed (Montresor, De Pellegrini and Miorandi, "Distributed k-Core Decomposition", 2013).
    """

    message = {"vertex_number": np.int64, "core": np.int64}
    state = {"core": per_vertex(np.int64), "remote_core": per_remote(np.int64, _UNKNOWN)}

    def init(self, sg: SubgraphBatch) -> None:
        kernels.distinct_degrees(sg.subgraph_offsets, sg.offsets, sg.targets, sg["core"])

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        touched, touched_offsets = self._hear(batch, step)
        changed = np.full(batch.num_vertices, step.number == 1)
        kernels.lower_cores(
            step.active, step.number == 1, batch.subgraph_offsets, batch.remote_offsets, batch.offsets,
            batch.targets, touched_offsets, touched, batch["core"], batch["remote_core"], changed,
        )  # fmt: skip
        context = (
            changed, batch.subgraph_offsets, batch.remote_offsets, batch.remote_subgraph,
            batch.offsets, _row_middles(batch), batch.targets,
        )  # fmt: skip
        size = kernels.core_news(*context, _EMPTY, _EMPTY)
        vertex, target = np.empty(size, np.int64), np.empty(size, np.int64)
        if size:
            kernels.core_news(*context, vertex, target)
        step.send_to_subgraph(target, vertex_number=batch.start + vertex, core=batch["core"][vertex])
        step.vote_to_halt()

    def _hear(self, batch: SubgraphBatch, step: BatchStep) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Take the neighbours' new estimates; returns their rows of the remote table, grouped by sub-graph."""
        messages = step.messages
        rows = _find_remote(batch, messages["subgraph"], messages["vertex_number"])
        np.minimum.at(batch["remote_core"], rows, messages["core"])
        return rows, step.message_offsets

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"core": sg["core"]}


def _find_remote(
    batch: SubgraphBatch, subgraph: NDArray[np.int64], vertex: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows of the remote table by (local sub-graph, partitioned vertex number)."""
    owner = np.repeat(np.arange(batch.num_subgraphs), np.diff(batch.remote_offsets))
    span = batch.num_subgraphs and int(batch.remote_vertex.max(initial=0)) + 1
    table = owner * span + batch.remote_vertex
    return np.searchsorted(table, subgraph * span + vertex)


def _row_middles(batch: SubgraphBatch) -> NDArray[np.int64]:
    middle = np.empty(batch.num_vertices, np.int64)
    kernels.split_rows(batch.offsets, batch.targets, middle)
    return middle
