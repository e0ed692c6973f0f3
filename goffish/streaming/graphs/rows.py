"""The graph that an algorithm sees: pairs of adjacent vertices, and rows of their neighbors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.graph.graph import Graph, from_edges
from goffish.graph.labels import as_id_column
from goffish.streaming.graphs import row_kernels
from goffish.streaming.graphs.patterns import Numbers, with_space
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.row_kernels import ABSENT
from goffish.streaming.graphs.state import Adjacency, Changes, State, fitted, no_adjacency
from goffish.streaming.graphs.updates import ADD_EDGE, REMOVE_EDGE, SET_EDGE, UNSET_EDGE
from goffish.streaming.key_table import KeyTable, longer

Floats = NDArray[np.float64]


class Pairs(NamedTuple):
    """Pairs of vertices, each with a list of the edges between them; see `row_kernels`."""

    # By edge.
    of_edge: NDArray[np.int32]
    following: NDArray[np.int32]
    preceding: NDArray[np.int32]
    # By pair.
    first: NDArray[np.int32]
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    weights: Floats
    is_touched: NDArray[np.bool_]
    touched: NDArray[np.int32]
    #: Of `touched`.
    used: Numbers


class Rows(NamedTuple):
    """Neighbors of each vertex, and the weights of the edges to them unless all are 1.

    The rows are in `others` and `weights` where the edges are in `adjacency.pool`.
    """

    adjacency: Adjacency
    others: NDArray[np.int32]
    weights: Floats


class Net(NamedTuple):
    """Pairs, and the rows in which they are; without directions, `into` is `out`."""

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    out: Rows
    into: Rows
    directed: bool


class Difference(NamedTuple):
    """What has changed since an algorithm was brought up to date.

    Attributes
    ----------
    pairs : int32 array
        Pairs whose weights are different.
    before, weights : float64 arrays
        Weights of these pairs before, and of all pairs now: minus infinity without an edge.
    gone, come : arrays
        Vertices that have been removed, and added.
    """

    pairs: NDArray[np.int32]
    before: Floats
    weights: Floats
    gone: Numbers
    come: Numbers


class Seen:
    """The graph as algorithms of the library see it: without loops, and with one edge for all parallel ones.

    Parameters
    ----------
    state : State
    encoder : Encoder
    weight : str, optional
        Attribute of edges.
    directed : bool

    Attributes
    ----------
    net : Net
        Pairs and rows; an algorithm applies differences to it.
    vertices : bool array
        Vertices as of the last difference.
    edges : int
        Pairs as of the last difference.
    """

    def __init__(self, state: State, encoder: Encoder, weight: str | None, directed: bool) -> None:
        self._state, self._weight, self._directed = state, weight, directed
        self._row = -1 if weight is None else encoder.name(weight)
        nothing = np.zeros(0, np.int32)
        self._table = KeyTable()
        none = nothing.astype(np.bool_)
        self._pairs = Pairs._make([*[nothing] * 6, np.zeros(0), none, nothing, np.zeros(1, np.int64)])
        self.vertices = np.zeros(0, np.bool_)
        self.edges = 0
        rows = Rows(no_adjacency(), nothing, np.zeros(0))
        into = Rows(no_adjacency(), nothing, np.zeros(0)) if directed else rows
        self.net = Net(nothing, nothing, rows, into, directed)
        edges = np.flatnonzero(state.graph.edges.alive)
        ends = (one[edges].astype(np.int64) for one in (state.graph.edges.sources, state.graph.edges.targets))
        self._join(edges, np.ones(len(edges), np.int64), *ends)

    def follow(self, changes: Changes) -> None:
        """Take changes of the graph."""
        kinds = np.zeros(len(changes.ops), np.int64)
        kinds[changes.ops == ADD_EDGE], kinds[changes.ops == REMOVE_EDGE] = 1, -1
        chosen = kinds != 0
        if self._weight is not None:
            chosen |= ((changes.ops == SET_EDGE) | (changes.ops == UNSET_EDGE)) & (changes.names == self._row)
        self._join(changes.elements[chosen], kinds[chosen], changes.bits[chosen], changes.old_bits[chosen])

    def _join(self, edges: Numbers, kinds: Numbers, sources: Numbers, targets: Numbers) -> None:
        added = np.flatnonzero(kinds > 0)
        u, v = sources[added], targets[added]
        if not self._directed:
            u, v = np.minimum(u, v), np.maximum(u, v)
        keys, slots = np.zeros(len(edges), np.int64), np.full(len(edges), -1, np.int64)
        keys[added] = u << 32 | v
        proper = added[u != v]
        if len(proper):
            slots[proper] = self._table.slots(pa.array(keys[proper]))
        self._fit()
        row_kernels.join_edges(self._pairs, edges, kinds, keys, slots)

    def _fit(self) -> None:
        """Make space for all edges and pairs."""
        pairs, edges, size = self._pairs, len(self._state.graph.edges.alive), self._table.capacity
        if edges > len(pairs.of_edge):
            pairs = Pairs._make([*(longer(one, len(one), edges) for one in pairs[:3]), *pairs[3:]])
        if size > len(pairs.first):
            had = len(pairs.first)
            pairs = Pairs._make([*pairs[:3], *(longer(one, had, size) for one in pairs[3:-1]), pairs.used])
            pairs.weights[had:] = ABSENT
        self._pairs = pairs

    def graph(self) -> Graph:
        """Return the graph as of the last difference; its vertices are numbered in the order of their slots."""
        pairs, numbers = self._pairs, np.cumsum(self.vertices) - 1
        alive = np.flatnonzero(pairs.weights != ABSENT)
        return from_edges(
            numbers[pairs.sources[alive]], numbers[pairs.targets[alive]],
            None if self._weight is None else pairs.weights[alive], directed=self._directed,
            labels=np.arange(np.count_nonzero(self.vertices)), parallel="keep",
        )  # fmt: skip

    def everything(self) -> Difference:
        """Return the graph as of the last difference as what has come."""
        pairs = np.flatnonzero(self._pairs.weights != ABSENT).astype(np.int32)
        nothing = np.zeros(0, np.int64)
        before = np.full(len(pairs), ABSENT)
        return Difference(pairs, before, self._pairs.weights, nothing, np.flatnonzero(self.vertices))

    @property
    def pending(self) -> int:
        """How many pairs may have changed since the last difference."""
        return int(self._pairs.used[0])

    def difference(self) -> Difference:
        """Return what has changed since the last time, and make space for it in the rows.

        Raises
        ------
        InputError
            A weight is negative, or not in the range that algorithms accept.
        """
        pairs, attributes = self._pairs, self._state.graph.of_edges
        kinds, bits = _NO_KINDS, _NO_BITS
        if 0 <= self._row < len(attributes.kinds):
            kinds, bits = attributes.kinds[self._row], attributes.bits[self._row]
        count = self.pending
        new = np.empty(count)
        row_kernels.weigh_pairs(pairs, kinds, bits, bits.view(np.float64), new)
        if self._weight is not None:
            present = new[new != ABSENT]
            if present.min(initial=0.0) < 0:
                raise InputError(f"weight = {self._weight!r}: {present.min():g} is negative; accepted are 0 and more")
            check_range(present)
        numbers, before = np.empty(count, np.int32), np.empty(count)
        count = row_kernels.settle_pairs(pairs, new, numbers, before)
        alive, old = self._state.graph.vertices, self.vertices
        if len(alive) > len(old):
            old = longer(old, len(old), len(alive))
        self.vertices = alive.copy()
        self.edges += int(np.sum(before[:count] == ABSENT) - np.sum(pairs.weights[numbers[:count]] == ABSENT))
        found = Difference(
            numbers[:count], before[:count], pairs.weights, np.flatnonzero(old & ~alive), np.flatnonzero(alive & ~old)
        )
        self._make_space(found)
        return found

    def _make_space(self, difference: Difference) -> None:
        """Make space in the rows for new pairs."""
        pairs, net, weighted = self._pairs, self.net, self._weight is not None
        new = difference.pairs[difference.before == ABSENT]
        sources, targets = pairs.sources[new].astype(np.int64), pairs.targets[new].astype(np.int64)
        out, into = (sources, targets) if self._directed else (np.concatenate((sources, targets)), targets)
        halves = len(pairs.first) * (1 if self._directed else 2)
        rows = rows_with_space(net.out, len(self.vertices), halves, out, weighted)
        self.net = Net(
            pairs.sources, pairs.targets, rows,
            rows_with_space(net.into, len(self.vertices), halves, into, weighted) if self._directed else rows,
            self._directed,
        )  # fmt: skip


_NO_KINDS, _NO_BITS = np.zeros(0, np.int8), np.zeros(0, np.int64)


def rows_with_space(rows: Rows, vertices: int, halves: int, ends: Numbers, weighted: bool) -> Rows:
    """Return rows with space for vertices, halves of pairs, and one more neighbor of each of some vertices."""
    adjacency = rows.adjacency
    if vertices > len(adjacency.starts) or halves > len(adjacency.places):
        adjacency = fitted(
            adjacency, max(vertices, len(adjacency.starts)), max(halves, len(adjacency.places))
        )  # fmt: skip
    adjacency = with_space(adjacency, ends)
    size, used = len(adjacency.pool), int(adjacency.used[0])
    if size == len(rows.others):
        return Rows(adjacency, rows.others, rows.weights)
    return Rows(
        adjacency, longer(rows.others, used, size), longer(rows.weights, used, size) if weighted else rows.weights
    )


def labels_of(encoder: Encoder, vertices: Numbers) -> pa.Array:
    """Return the labels of vertices; integers and texts together are texts."""
    found = encoder.vertices.keys(vertices)
    if not isinstance(found, pa.Array):
        found = [str(label) for label in found]
    if len(found) == 0:
        return pa.array([], pa.int64())
    column = as_id_column(found, "labels")
    return column if isinstance(column, pa.Array) else pa.array(column.astype(np.int64, copy=False))
