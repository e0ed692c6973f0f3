"""Shortest paths and breadth-first search, against the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.paths import step_kernels
from goffish.algorithms.weights import check_range
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_remote, per_vertex

_FAR = np.iinfo(np.int64).max
_UNIT = np.empty(0, np.float64)
_UNIT.setflags(write=False)


class SingleSourceShortestPath(SubgraphProgram):
    """Distances from one vertex along out-arcs (docs/specs/engine.md, section 4.3, Algorithm 3 corrected).

    In every superstep each reached subgraph runs Dijkstra from the vertices that messages improved and announces to
    each remote vertex the best distance found, if it beats all it announced before. Supersteps: at most c + 2, where
    c is
    the least number of remote edges on a shortest path, taken over the farthest vertex.

    Parameters
    ----------
    source : int or str
        Label of the source vertex.
    weighted : bool
        Use edge weights (an unweighted graph has weight 1 everywhere).
    """

    message = {"distance": np.float64, "parent": np.int64}
    combine = "min"
    state = {
        "distance": per_vertex(np.float64, np.inf),
        "parent": per_vertex(np.int64, -1),
        "announced": per_remote(np.float64, np.inf),
        "via": per_remote(np.int64, -1),
    }
    label_columns = ("parent",)

    def __init__(self, source: int | str, weighted: bool = True) -> None:
        self.source, self.weighted = source, weighted

    def init(self, sg: SubgraphBatch) -> None:
        if self.weighted:
            check_range(sg.weights)

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        weights = batch.weights if self.weighted else None
        source = batch.find(self.source) if step.number == 1 else -1
        _announce(batch, step, step_kernels.relax_weighted, _UNIT if weights is None else weights, source)
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"distance": sg["distance"], "parent": sg["parent"]}


class BreadthFirstSearch(SubgraphProgram):
    """Hops from one vertex along out-arcs (docs/specs/engine.md, section 4.4).

    Parameters
    ----------
    source : int or str
        Label of the source vertex.
    max_hops : int, optional
        Maximum number of hops [default: unlimited].
    """

    message = {"distance": np.int64, "parent": np.int64}
    combine = "min"
    state = {
        "distance": per_vertex(np.int64, _FAR),
        "parent": per_vertex(np.int64, -1),
        "announced": per_remote(np.int64, _FAR),
        "via": per_remote(np.int64, -1),
    }
    label_columns = ("parent",)
    nullable = ("distance",)

    def __init__(self, source: int | str, max_hops: int | None = None) -> None:
        self.source, self.max_hops = source, max_hops

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        limit = _FAR if self.max_hops is None else self.max_hops
        source = batch.find(self.source) if step.number == 1 else -1
        _announce(batch, step, step_kernels.relax_levels, limit, source)
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        distance = sg["distance"]
        return {"distance": np.where(distance == _FAR, -1, distance), "parent": sg["parent"]}


def _announce(batch: SubgraphBatch, step: BatchStep, relax: Any, cost: NDArray[Any] | int, source: int) -> None:
    """Relax locally, then notify the owners of improved remote vertices."""
    improved = np.empty(batch.remote_vertex.size, np.int64)
    vertex, distance, parents = (np.ascontiguousarray(step.messages[n]) for n in ("vertex", "distance", "parent"))
    tree = step_kernels.Tree(batch["distance"], batch["parent"], batch["announced"], batch["via"])
    entries = step_kernels.Entries(step.message_offsets, vertex, distance)
    count = relax(step.active, batch.rows, cost, entries, parents, source, batch.vertex_ids, tree, improved)
    rows = improved[:count]
    step.send_to_vertex(
        batch.remote_subgraph[rows], batch.remote_vertex[rows], distance=tree.announced[rows], parent=tree.via[rows]
    )
