"""The average degree of the neighbors of each vertex."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from goffish import Graph, Result
from goffish.algorithms import Algorithm


class NeighborDegree(Algorithm):
    """The options are the fields; their types and descriptions make the command line and the checks of the service.

    Fields of text are a `Literal`, or annotated with `Label` (a vertex) or `Name` (compared with names, never opened
    as a file): the service takes no other texts from clients.
    """

    name = "neighbor-degree"
    title = "Average degree of the neighbors of each vertex."
    undirected = True
    in_memory = True
    one_thread = True

    least: int = Field(default=0, ge=0, description="Leave out vertices of a lower degree.")

    def whole(self, graph: Graph, threads: int | None, note: Any = None) -> Result:
        mean, degree = neighbor_degrees(graph), np.asarray(graph.degree)
        kept = np.flatnonzero(degree >= self.least)
        columns = {"vertex": graph.labels_of(kept), "neighbor_degree": pa.array(mean[kept])}
        return Result(self.name, pa.table(columns), {"mean": float(mean[kept].mean()) if kept.size else 0.0})


def neighbor_degrees(graph: Graph) -> NDArray[np.float64]:
    """Return the average degree of the neighbors of each vertex; 0 without neighbors."""
    degree = np.asarray(graph.degree)
    sums = np.bincount(graph.arc_sources(), degree[graph.targets], minlength=len(graph))
    return sums / np.maximum(graph.out_degrees, 1)


def average_neighbor_degree(
    G: Any, source: str = "out", target: str = "out", nodes: Any = None, weight: Any = None
) -> dict[Any, float]:
    """Answer `networkx.average_neighbor_degree`; ``NotImplementedError`` leaves a call to NetworkX.

    ``G.plain`` is the graph without weights, ``G.weighted(name)`` the one with those of an edge attribute, and
    ``G.nodes`` has the nodes in the order of the vertices.
    """
    if G.is_directed() or G.is_multigraph() or nodes is not None or weight is not None:
        raise NotImplementedError("only undirected simple graphs, all nodes, without weights")
    return dict(zip(G.nodes, neighbor_degrees(G.plain).tolist(), strict=True))
