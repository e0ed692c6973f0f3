"""Connected components of a whole graph in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.components import kernels
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.threads import interruptible

#: From this mean degree on, sampling and skipping the giant beats one pass over half of the arcs (measured: road
#: networks with 2.6 lose 40 %, grids with 4 are even, e-mail with 10 and R-MAT with 29 gain a factor of 2).
_SAMPLED_DEGREE = 6
_SAMPLES = 1024


def component_of(graph: Graph) -> NDArray[np.integer[Any]]:
    """Largest vertex number of each vertex's weakly connected component.

    Undirected graphs with enough arcs go through Afforest (Sutton, Ben-Nun and Barak, IPDPS 2018), all others through
    one pass of Rem's union-find. Directed graphs hold an arc in one row only, so none may be skipped there.

    Returns
    -------
    int32 or int64 as `graph.targets`, shape (n,)
    """
    parent = np.empty(graph.num_vertices, graph.targets.dtype)
    work = graph.num_arcs // 8  # joining takes 2 ns an arc, an eighth of what searches take
    if not graph.directed and graph.num_arcs >= _SAMPLED_DEGREE * graph.num_vertices > 0:
        seen = np.zeros(graph.num_vertices, np.int32)
        interruptible(work, kernels.join_sampled, graph.offsets, graph.targets, _SAMPLES, parent, seen)
    else:
        interruptible(work, kernels.join_all, graph.offsets, graph.targets, not graph.directed, parent)
    return parent


def strong_component_of(graph: Graph) -> NDArray[np.integer[Any]]:
    """A number from 1 to n for each vertex's strongly connected component; an arc between two leads to the larger one.

    Returns
    -------
    int32 or int64 as `graph.targets`, shape (n,)
    """
    n, kind = graph.num_vertices, graph.targets.dtype
    found = np.zeros(n, kind)
    scratch = np.empty(n, kind), np.empty(n, np.int64), np.empty(n, np.bool_)
    interruptible(graph.num_arcs, kernels.strong_components, graph.offsets, graph.targets, found, *scratch)
    return found


def connected_components(graph: Graph) -> Result:
    """Find the (weakly) connected components.

    Parameters
    ----------
    graph : Graph
        The directions of a directed graph's arcs are ignored.

    Returns
    -------
    Result
        Columns ``vertex`` and ``component``: the label of the component's largest vertex (labels ascend with the vertex
        numbers unless the graph was given its own vertex order). Summary: ``components``, ``largest`` (vertices in the
        largest one), ``isolated`` (components of one vertex).
    """
    return _named(graph, component_of(graph), "connected_components", "isolated")


def strongly_connected_components(graph: Graph) -> Result:
    """Find the strongly connected components.

    Parameters
    ----------
    graph : Graph
        Of an undirected graph, they are the connected components.

    Returns
    -------
    Result
        As of `connected_components`; the components of one vertex are ``trivial``.
    """
    if not graph.directed:
        found = component_of(graph)
    else:
        found = kernels.last_members(strong_component_of(graph), np.empty(graph.num_vertices + 1, graph.targets.dtype))
    return _named(graph, found, "strongly_connected_components", "trivial")


def strong_components_of_numbers(vertices: Any, number: NDArray[np.int64]) -> tuple[pa.Table, dict[str, Any]]:
    """Table and summary from a number that the vertices of each component have in common; `vertices` are all labels."""
    _, found = np.unique(number, return_inverse=True)
    largest = kernels.last_members(found, np.empty(number.size, np.int64))
    return pa.table({"vertex": vertices, "component": vertices.take(pa.array(largest))}), _census(largest, "trivial")


def _named(graph: Graph, largest: NDArray[np.integer[Any]], algorithm: str, single: str) -> Result:
    """The result for the largest vertex of each vertex's component."""
    if graph.labels is None:
        component = pa.array(largest.astype(np.int64, copy=False))
    else:
        component = graph.labels.take(pa.array(largest))
    table = pa.table({"vertex": graph.label_column(), "component": component})
    return Result(algorithm, table, _census(largest, single))


def _census(largest: NDArray[np.integer[Any]], single: str) -> dict[str, Any]:
    components, most, alone = kernels.census(largest, np.zeros(largest.size, np.int64))
    return {"components": int(components), "largest": int(most), single: int(alone)}
