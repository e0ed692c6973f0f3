"""Maximum flows of a whole graph in one process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.flows import kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.assembly import transpose
from goffish.threads import interruptible


@dataclass(frozen=True, eq=False)
class MaximumFlow(Result):
    """A maximum flow and a minimum cut between two vertices.

    Returned by `maximum_flow`, with a table of the edges.

    Attributes
    ----------
    sides : pyarrow.Table
        Columns ``vertex`` and ``source_side`` (bool: whether the vertex is on the side of the source), in vertex order.

    Examples
    --------
    >>> import goffish as gf
    >>> found = gf.maximum_flow(gf.from_edges([1, 2, 2], [2, 3, 4]), 1, 3)
    >>> found.value, found.sides["source_side"].to_pylist()
    (1.0, [True, True, False, True])
    """

    sides: pa.Table = field(kw_only=True, repr=False)

    @property
    def value(self) -> float:
        """Value of the flow, which is the capacity of the cut."""
        return float(self.summary["value"])


def network_of(graph: Graph) -> kernels.Network:
    """The edges of a graph in the rows of both ends, without flow; without weights, each capacity is 1."""
    weights = np.ones(graph.num_arcs) if graph.weights is None else graph.weights
    if not graph.directed:
        flow, middle = np.zeros(graph.num_arcs), np.empty(0, np.int64)
        return kernels.Network(graph.offsets, middle, graph.targets, weights, weights, flow)
    n, size = graph.num_vertices, 2 * graph.num_arcs
    offsets, middle, targets = np.empty(n + 1, np.int64), np.empty(n, np.int64), np.empty(size, graph.targets.dtype)
    ahead, behind = np.empty((2, size))
    back = transpose(graph.offsets, graph.targets, np.arange(graph.num_arcs))
    kernels.directed_rows((graph.offsets, graph.targets), back, weights, offsets, middle, targets, ahead, behind)
    return kernels.Network(offsets, middle, targets, ahead, behind, np.zeros(size))


class Solution(NamedTuple):
    """A maximum flow.

    Attributes
    ----------
    ends : int32 or int64, shape (2, edges)
        The edges of the graph in their order.
    flow : float64, shape (edges,)
    cut : bool, shape (edges,)
        Whether an edge leads from the side of the source to that of the target.
    before : bool, shape (n,)
        Whether a vertex is on the side of the source of the minimum cut that is nearest to the target.
    value : float
    """

    ends: NDArray[np.integer[Any]]
    flow: NDArray[np.float64]
    cut: NDArray[np.bool_]
    before: NDArray[np.bool_]
    value: float


def flow_between(graph: Graph, source: int, target: int) -> Solution:
    """Find a maximum flow.

    Parameters
    ----------
    graph : Graph
        Without weights every capacity is 1.
    source, target : int
        Different vertex numbers.
    """
    n, kind = graph.num_vertices, graph.targets.dtype

    def find() -> Solution:
        network = network_of(graph)
        parent, cursor = np.empty((2, n), np.int64)
        link, queue = np.empty((2, n), kind)
        sizes, arcs = np.zeros((2, 4), np.int64)
        search = kernels.Search(
            np.zeros(n, kind), parent, cursor, link, queue, np.full((2, n + 2), -1, kind), np.empty((4, 2 * n), kind),
            np.zeros(n, np.int8), sizes, arcs, np.zeros(2, np.int64),
        )  # fmt: skip
        kernels.plant(network, search, source, target)
        while True:
            near, far = (2 * side + int(search.depth[side]) % 2 for side in (0, 1))
            if not search.sizes[near] or not search.sizes[far]:
                break
            step = 1 if search.arcs[near] <= search.arcs[far] else -1
            kernels.grow(network, search, (source, target), step)
        before = np.ones(n, np.bool_)
        kernels.nearest_cut(network, target, search.queue, before)
        m = graph.num_edges
        ends, flow, cut = np.empty((2, m), kind), np.empty(m), np.empty(m, np.bool_)
        kernels.list_edges(network, before, ends, flow, cut)
        value = float(network.flow[network.offsets[source] : network.offsets[source + 1]].sum())
        return Solution(ends, flow, cut, before, value)

    return interruptible(graph.num_arcs, find)


def maximum_flow(graph: Graph, source: Any, target: Any) -> MaximumFlow:
    """Find a maximum flow and a minimum cut between two vertices; see `goffish.maximum_flow`."""
    check_range(graph.weights)
    first, last = (int(graph.find([label])[0]) for label in (source, target))
    if first == last:
        raise InputError(f"source and target are the same vertex {source!r}: choose two different ones")
    found = flow_between(graph, first, last)
    src, dst = found.ends
    columns = {"source": graph.labels_of(src), "target": graph.labels_of(dst), "flow": found.flow, "cut": found.cut}
    sides = pa.table({"vertex": graph.label_column(), "source_side": found.before})
    edges, vertices = int(np.count_nonzero(found.cut)), int(np.count_nonzero(found.before))
    summary = {"value": found.value, "cut_edges": edges, "source_side": vertices}
    return MaximumFlow("maximum_flow", pa.table(columns), summary, sides=sides)
