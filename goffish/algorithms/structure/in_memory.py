"""Spanning forests of a whole graph in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.structure import kernels
from goffish.algorithms.weights import check_range
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.kernels.csr import NO_WEIGHTS
from goffish.threads import interruptible

_Numbers = NDArray[np.integer[Any]]


def forest_of_rows(graph: Graph) -> NDArray[np.int64]:
    """Arcs of a minimum spanning forest of an undirected graph, ascending, in the rows of their lower ends.

    The first round of Boruvka's algorithm reads the rows, so that edges inside the first trees are never copied.
    """
    n, m, kind = graph.num_vertices, graph.num_edges, graph.targets.dtype
    other, number = np.empty(n, kind), np.empty(n, kind)
    edge, chosen = np.empty(n, np.int64), np.empty(n, np.int64)
    rows = graph.offsets, graph.targets, NO_WEIGHTS if graph.weights is None else graph.weights

    def find() -> NDArray[np.int64]:
        kernels.lightest_arcs(*rows, other, edge)
        trees, count = kernels.join(other, edge, number, chosen, 0)
        links = kernels.Links(np.empty(m, kind), np.empty(m, kind), np.empty(m), np.empty(m, np.int64))
        size = kernels.links_of_rows(*rows, number, links)
        return _joined(links, size, trees, chosen, count)

    return np.sort(interruptible(graph.num_arcs, find))


def forest_of_edges(src: _Numbers, dst: _Numbers, weight: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Numbers of the edges of a minimum spanning forest, ascending; of equal weights the first edges are taken."""
    between = np.flatnonzero(src != dst)
    links = kernels.Links(src[between], dst[between], weight[between], between)
    found = interruptible(2 * src.size, _joined, links, between.size, n, np.empty(n, np.int64), 0)
    return np.sort(found)


def _joined(links: kernels.Links, size: int, trees: int, chosen: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Join trees by the first `size` links until none is left between two; `chosen` holds `count` edges before."""
    kind = links.low.dtype
    least, at, edge = np.empty(trees), np.empty(trees, np.int64), np.empty(trees, np.int64)
    other, number = np.empty(trees, kind), np.empty(trees, kind)
    while size:
        kernels.lightest_links(links, size, least[:trees], at[:trees], other[:trees], edge[:trees])
        trees, count = kernels.join(other[:trees], edge[:trees], number[:trees], chosen, count)
        size = kernels.renumber_links(links, size, number)
    return chosen[:count]


def minimum_spanning_forest(graph: Graph) -> Result:
    """Find a spanning forest of least total weight.

    Parameters
    ----------
    graph : Graph
        Directions are ignored.

    Returns
    -------
    Result
        Columns ``source``, ``target`` and ``weight`` (1 without weights), in the order of the graph's edges. Summary:
        ``edges``, ``trees`` (one for each component) and ``weight`` (the sum).
    """
    graph = graph.to_undirected()
    check_range(graph.weights)
    arcs = forest_of_rows(graph)
    source = np.empty(arcs.size, graph.targets.dtype)
    kernels.sources_of(graph.offsets, arcs, source)
    weight = np.ones(arcs.size) if graph.weights is None else graph.weights[arcs]
    columns = {"source": graph.labels_of(source), "target": graph.labels_of(graph.targets[arcs]), "weight": weight}
    summary = {"edges": arcs.size, "trees": graph.num_vertices - arcs.size, "weight": float(weight.sum())}
    return Result("minimum_spanning_forest", pa.table(columns), summary)
