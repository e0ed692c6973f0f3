"""Structure of a whole graph in one process."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.betweenness import reduction_kernels
from goffish.algorithms.clustering.in_memory import cores_of
from goffish.algorithms.clustering.kernels import sort_by_degree
from goffish.algorithms.components.in_memory import component_of
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


class Blocks:
    """The biconnected components (blocks) of an undirected graph.

    Attributes
    ----------
    home : int64, shape (n,)
        The block of each vertex in which it is not the topmost one; -1 for the root of a component.
    top : int64, shape (blocks,)
        The topmost vertex of each block. All blocks that hang below a vertex precede the block it lies in.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, n = graph, graph.num_vertices
        self.home, top = np.full(n, -1), np.empty(n, np.int64)
        rows = graph.offsets, graph.targets, np.ones(n)
        self.top = top[: interruptible(graph.num_arcs, reduction_kernels.find_blocks, *rows, self.home, top)]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of vertices of each block without the topmost one."""
        return np.bincount(self.home[self.home >= 0], minlength=self.top.size)

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """The vertices of each block without the topmost one, block by block."""
        order, place = np.empty((2, self.home.size), np.int64)
        sort_by_degree(self.home + 1, np.zeros(self.top.size + 2, np.int64), order, place)
        return order[np.count_nonzero(self.home < 0) :]

    @cached_property
    def memberships(self) -> NDArray[np.int64]:
        """Number of blocks in which each vertex lies: the pieces into which its component falls without it."""
        return (self.home >= 0) + np.bincount(self.top, minlength=self.home.size)

    @cached_property
    def bridges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lower and the upper end of each bridge in the search tree."""
        low = np.flatnonzero((self.home >= 0) & (np.append(self.sizes, 0)[self.home] == 1))
        high = self.top[self.home[low]]
        single = np.empty(low.size, np.bool_)
        kernels.single_arcs(self.graph.offsets, self.graph.targets, low, high, single)
        return low[single], high[single]

    def below(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of vertices in and below the block of each of some vertices, without the topmost one."""
        n, blocks = self.home.size, self.top.size
        starts = np.concatenate(([0], np.cumsum(self.sizes)))
        out, into, inner, down, down_into = np.ones(n), np.ones(n), np.zeros(n), np.empty(blocks), np.empty(blocks)
        reduction_kernels.weigh_blocks(starts, self.members, self.top, out, into, inner, down, down_into)
        counts: NDArray[np.int64] = down[self.home[vertices]].astype(np.int64)
        return counts

    def summary(self) -> dict[str, int]:
        return {
            "blocks": self.top.size,
            "largest": int(self.sizes.max(initial=-1)) + 1,
            "articulation_points": int((self.memberships > 1).sum()),
            "bridges": self.bridges[0].size,
        }


def biconnected_components(graph: Graph) -> Result:
    """Find the biconnected component of each edge.

    Parameters
    ----------
    graph : Graph
        Directions are ignored; every arc is an edge.

    Returns
    -------
    Result
        Columns ``source``, ``target`` and ``block`` (from 0 in the order of the edges; null for loops). Summary:
        ``blocks``, ``largest`` (vertices in the largest one), ``articulation_points`` and ``bridges``.
    """
    graph = graph.to_undirected(parallel="keep")
    found = Blocks(graph)
    src, dst, _, _ = graph.edge_columns()
    block = np.empty(src.size, np.int64)
    numbers = np.full(found.top.size, -1)
    interruptible(src.size, kernels.blocks_of_edges, src, dst, found.home, found.top, numbers, block)
    columns = {"source": graph.labels_of(src), "target": graph.labels_of(dst)}
    columns["block"] = pa.array(block, mask=block < 0)
    return Result("biconnected_components", pa.table(columns), found.summary())


def articulation_points(graph: Graph) -> Result:
    """Find the vertices without which their component falls apart.

    Parameters
    ----------
    graph : Graph
        Directions are ignored.

    Returns
    -------
    Result
        A row for each: ``vertex`` and ``pieces``. Summary as of `biconnected_components`.
    """
    graph = graph.to_undirected(parallel="keep")
    found = Blocks(graph)
    cut = np.flatnonzero(found.memberships > 1)
    table = pa.table({"vertex": graph.labels_of(cut), "pieces": found.memberships[cut]})
    return Result("articulation_points", table, found.summary())


def bridges(graph: Graph) -> Result:
    """Find the edges without which their component falls apart.

    Parameters
    ----------
    graph : Graph
        Directions are ignored; every arc is an edge.

    Returns
    -------
    Result
        A row for each: ``source``, ``target`` and ``smaller_side`` (vertices). Summary as of `biconnected_components`.
    """
    graph = graph.to_undirected(parallel="keep")
    found = Blocks(graph)
    low, high = found.bridges
    below, component = found.below(low), component_of(graph)
    side = np.minimum(below, np.bincount(component)[component[low]] - below) if low.size else below
    src, dst = np.minimum(low, high), np.maximum(low, high)
    order = np.lexsort((dst, src))
    columns = {"source": graph.labels_of(src[order]), "target": graph.labels_of(dst[order])}
    return Result("bridges", pa.table(columns | {"smaller_side": side[order]}), found.summary())


def order_by_degree(graph: Graph, *, descending: bool = False) -> _Numbers:
    """Vertices by their degree, where loops count twice; of the same degree, by number."""
    degree = np.asarray(graph.degree)
    most = int(degree.max(initial=0))
    key = most - degree if descending else degree
    order, place = np.empty(key.size, graph.targets.dtype), np.empty(key.size, graph.targets.dtype)
    sort_by_degree(key, np.zeros(most + 2, np.int64), order, place)
    return order


def maximal_independent_set(graph: Graph) -> Result:
    """Choose vertices without edges between them, as many as fit, those of low degree first.

    Parameters
    ----------
    graph : Graph
        Directions and loops are ignored.

    Returns
    -------
    Result
        Columns ``vertex`` and ``member``. Summary: ``members``.
    """
    graph = graph.to_undirected()
    order, state = order_by_degree(graph), np.zeros(graph.num_vertices, np.int8)
    interruptible(graph.num_arcs, kernels.choose_independent, graph.offsets, graph.targets, order, state)
    table = pa.table({"vertex": graph.label_column(), "member": state == 1})
    return Result("maximal_independent_set", table, {"members": int((state == 1).sum())})


def maximal_matching(graph: Graph) -> Result:
    """Choose edges without common ends, as many as fit, in the order of the edges.

    Parameters
    ----------
    graph : Graph
        Directions and loops are ignored.

    Returns
    -------
    Result
        Columns ``vertex`` and ``partner`` (null without one). Summary: ``edges`` and ``unmatched`` (vertices).
    """
    graph = graph.to_undirected()
    partner = np.full(graph.num_vertices, -1, graph.targets.dtype)
    interruptible(graph.num_arcs, kernels.match, graph.offsets, graph.targets, partner)
    free = partner < 0
    numbers = pa.array(partner, mask=free)
    column = numbers.cast(pa.int64()) if graph.labels is None else graph.labels.take(numbers)
    unmatched = int(free.sum())
    summary = {"edges": (partner.size - unmatched) // 2, "unmatched": unmatched}
    return Result("maximal_matching", pa.table({"vertex": graph.label_column(), "partner": column}), summary)


def colors_of(graph: Graph, order: _Numbers) -> tuple[_Numbers, int]:
    """The color of each vertex of an undirected graph if vertices are colored in this order, and how many there are."""
    color = np.full(graph.num_vertices, -1, graph.targets.dtype)
    mark = np.full(int(graph.out_degrees.max(initial=0)) + 2, -1, graph.targets.dtype)
    rows = graph.offsets, graph.targets
    colors = interruptible(graph.num_arcs, kernels.color_greedily, *rows, order, color, mark)
    return color, int(colors)


def greedy_coloring(graph: Graph, order: str = "largest-first") -> Result:
    """Color vertices so that neighbors differ.

    Parameters
    ----------
    graph : Graph
        Directions and loops are ignored.
    order : {"largest-first", "smallest-last"}

    Returns
    -------
    Result
        Columns ``vertex`` and ``color`` (from 0). Summary: ``colors`` and ``largest`` (vertices of the same color).
    """
    graph = graph.to_undirected()
    turns = order_by_degree(graph, descending=True) if order == "largest-first" else cores_of(graph)[1][::-1].copy()
    color, colors = colors_of(graph, turns)
    table = pa.table({"vertex": graph.label_column(), "color": color.astype(np.int64, copy=False)})
    return Result("greedy_coloring", table, {"colors": colors, "largest": int(np.bincount(color).max(initial=0))})


def labels_of(graph: Graph) -> tuple[_Numbers, int]:
    """The label that each vertex of an undirected graph has in the end, and the number of rounds until none changed."""
    n = graph.num_vertices
    color, _ = colors_of(graph, order_by_degree(graph, descending=True))
    order = np.argsort(color, kind="stable")
    label, waiting, votes = np.arange(n, dtype=graph.targets.dtype), np.ones(n, np.bool_), np.zeros(n)
    rows = graph.offsets, graph.targets, NO_WEIGHTS if graph.weights is None else graph.weights
    rounds = 1
    while interruptible(graph.num_arcs, kernels.propagate, *rows, order, label, waiting, votes):
        rounds += 1
    return label, rounds


def label_propagation(graph: Graph) -> Result:
    """Find communities: each vertex takes the label that most of its neighbors have.

    Parameters
    ----------
    graph : Graph
        Directions are ignored; weights are added up.

    Returns
    -------
    Result
        Columns ``vertex`` and ``community`` (from 0, in the order of first vertices). Summary: ``communities``,
        ``largest`` (vertices in the largest one) and ``rounds``.
    """
    graph = graph.to_undirected(parallel="sum")
    check_range(graph.weights)
    label, rounds = labels_of(graph)
    return Result("label_propagation", *numbered(graph.label_column(), label, rounds))


def numbered(vertices: Any, label: _Numbers, rounds: int) -> tuple[pa.Table, dict[str, Any]]:
    """The table and the summary of label propagation from the label of each vertex."""
    label = label.copy()
    count = int(kernels.number_groups(label, np.full(label.size, -1, label.dtype)))
    table = pa.table({"vertex": vertices, "community": label.astype(np.int64, copy=False)})
    return table, {"communities": count, "largest": int(np.bincount(label).max(initial=0)), "rounds": rounds}
