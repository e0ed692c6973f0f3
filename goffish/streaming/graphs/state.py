"""The current graph in flat arrays, and the changes that updates make to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming.graphs import kernels
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.records import Encoder, Records
from goffish.streaming.graphs.updates import ADD_EDGE, FLOAT, INTEGER, REMOVE_VERTEX
from goffish.streaming.key_table import longer


class Edges(NamedTuple):
    """Edges by slot: their ends, and the time when they were last added."""

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    seen: NDArray[np.int64]
    alive: NDArray[np.bool_]


class Adjacency(NamedTuple):
    """Edges of each vertex, one after the other in a block of `pool`.

    Attributes
    ----------
    starts, sizes, spaces : arrays by vertex
        Where its block begins, how many edges it has, and for how many it has space.
    places : array by edge
        Place in the block.
    pool : int32 array
    free : int64 array, shape (32,)
        By the logarithm of their size, the first blocks that are not in use; each begins with the next one, or -1.
    used : int64 array, shape (1,)
        Part of `pool` that has been in use.
    """

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    spaces: NDArray[np.int32]
    places: NDArray[np.int32]
    pool: NDArray[np.int32]
    free: NDArray[np.int64]
    used: NDArray[np.int64]


class Attributes(NamedTuple):
    """Values by name and element."""

    kinds: NDArray[np.int8]
    bits: NDArray[np.int64]


#: Columns of changes that have eight bits.
_BYTES = ("ops", "kinds", "old_kinds")


class Changes(NamedTuple):
    """What has changed, in order.

    Attributes
    ----------
    records : array
        Number of the record.
    ops : int8 array
        As of updates.
    elements : array
        Slots of vertices or edges.
    names : array
        Names of attributes, or -1.
    kinds, bits : arrays
        New value; the bits of an edge that is added or removed are its source.
    old_kinds, old_bits : arrays
        Value before; the bits of an edge that is added or removed are its target.
    """

    records: NDArray[np.int64]
    ops: NDArray[np.int8]
    elements: NDArray[np.int64]
    names: NDArray[np.int64]
    kinds: Kinds
    bits: Bits
    old_kinds: Kinds
    old_bits: Bits

    @classmethod
    def empty(cls, size: int) -> Changes:
        """Return space for changes."""
        columns: list[Any] = [np.zeros(size, np.int8 if name in _BYTES else np.int64) for name in cls._fields]
        return cls(*columns)

    def cut(self, size: int) -> Changes:
        """Return the first changes."""
        return Changes._make(column[:size] for column in self)


class Graph(NamedTuple):
    """All of the current graph that compiled code changes."""

    vertices: NDArray[np.bool_]
    edges: Edges
    outgoing: Adjacency
    incoming: Adjacency
    of_vertices: Attributes
    of_edges: Attributes


class State:
    """The current graph.

    Attributes
    ----------
    graph : Graph
    unknown, conflicts : int
        Updates without effect: of elements that do not exist, and of ids of edges that have other ends.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        nothing = np.zeros(0, np.int64)
        edges = Edges(nothing.astype(np.int32), nothing.astype(np.int32), nothing, nothing.astype(np.bool_))
        attributes = Attributes(np.zeros((0, 0), np.int8), np.zeros((0, 0), np.int64))
        self.graph = Graph(
            nothing.astype(np.bool_), edges, _no_adjacency(), _no_adjacency(), attributes, attributes
        )  # fmt: skip
        self._counts = np.zeros(2, np.int64)

    @property
    def unknown(self) -> int:
        """Updates of elements that do not exist."""
        return int(self._counts[kernels.UNKNOWN])

    @property
    def conflicts(self) -> int:
        """Updates of edges that have other ends."""
        return int(self._counts[kernels.CONFLICT])

    def apply(self, records: Records) -> Changes:
        """Apply records, and return what has changed."""
        self._fit()
        of_updates = np.repeat(np.arange(len(records)), np.diff(records.firsts))
        keys = self._encoder.edges.columns
        changes, done, at = Changes.empty(2 * len(of_updates) + len(records.names) + 16), 0, 0
        while done < len(of_updates):
            done, at = kernels.apply_updates(self.graph, records, of_updates, keys, done, changes, at, self._counts)
            if done < len(of_updates):
                changes = self._more_space(records, done, changes, at)
        return changes.cut(at)

    def _more_space(self, records: Records, update: int, changes: Changes, at: int) -> Changes:
        """Make space for an update."""
        graph, element = self.graph, records.elements[update]
        if records.ops[update] == ADD_EDGE:
            self.graph = graph = graph._replace(
                outgoing=_pooled(graph.outgoing, int(records.sources[update])),
                incoming=_pooled(graph.incoming, int(records.targets[update])),
            )
        most = 3 + int(np.diff(records.first_values[update : update + 2])[0])
        if records.ops[update] == REMOVE_VERTEX:
            most += int(graph.outgoing.sizes[element]) + int(graph.incoming.sizes[element])
        if at + most <= len(changes.ops):
            return changes
        return Changes._make(longer(column, at, 2 * len(column) + most) for column in changes)

    def _fit(self) -> None:
        """Make space for all labels and names."""
        vertices, edges = self._encoder.vertices.capacity, self._encoder.edges.capacity
        names = len(self._encoder.names)
        graph = self.graph
        if vertices > len(graph.vertices) or edges > len(graph.edges.alive):
            count = len(graph.vertices)
            self.graph = graph = graph._replace(
                vertices=longer(graph.vertices, count, vertices),
                edges=Edges._make(longer(column, len(column), edges) for column in graph.edges),
                outgoing=_fitted(graph.outgoing, vertices, edges),
                incoming=_fitted(graph.incoming, vertices, edges),
            )
        self.graph = graph._replace(
            of_vertices=_widened(graph.of_vertices, names, vertices), of_edges=_widened(graph.of_edges, names, edges)
        )

    def table(self, *, edges: bool) -> pa.Table:
        """Return the vertices or the edges, in the order of their first appearance, with their attributes."""
        graph, encoder = self.graph, self._encoder
        alive = np.flatnonzero(graph.edges.alive if edges else graph.vertices)
        columns = {"id": (encoder.edges if edges else encoder.vertices).keys(alive)}
        if edges:
            columns["source"] = encoder.vertices.keys(graph.edges.sources[alive].astype(np.int64))
            columns["target"] = encoder.vertices.keys(graph.edges.targets[alive].astype(np.int64))
            columns["last_seen"] = pa.array(graph.edges.seen[alive]).cast(pa.timestamp("us", "UTC"))
        attributes = graph.of_edges if edges else graph.of_vertices
        # Names of records that wait have no column yet.
        for name, kinds, bits in zip(encoder.names, attributes.kinds, attributes.bits, strict=False):
            if kinds[alive].any():
                columns[name if name not in columns else f"attribute {name}"] = encoder.values.decode(
                    kinds[alive], bits[alive]
                )
        return pa.table({name: _column(values) for name, values in columns.items()})

    def numbers_of(self, name: str) -> NDArray[np.float64] | None:
        """Return a numeric attribute of all edges by slot, NaN where it is missing; None if no edge has it."""
        row = self._encoder.names.get(name)
        if row is None or row >= len(self.graph.of_edges.kinds):
            return None
        kinds, bits = (column[row] for column in self.graph.of_edges)
        found = np.full(len(kinds), np.nan)
        found[kinds == INTEGER] = bits[kinds == INTEGER]
        found[kinds == FLOAT] = bits[kinds == FLOAT].view(np.float64)
        return found


def _column(values: Any) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(pa.string()) if pa.types.is_large_string(values.type) and values.nbytes < 1 << 31 else values
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several kinds
        return pa.array([None if one is None else str(one) for one in values])


def _no_adjacency() -> Adjacency:
    nothing = np.zeros(0, np.int32)
    return Adjacency(
        nothing.astype(np.int64), nothing, nothing, nothing, np.zeros(1 << 10, np.int32),
        np.full(32, -1, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


def _fitted(adjacency: Adjacency, vertices: int, edges: int) -> Adjacency:
    by_vertex = {n: longer(one, len(one), vertices) for n, one in adjacency._asdict().items() if n in _BY_VERTEX}
    return adjacency._replace(**by_vertex, places=longer(adjacency.places, len(adjacency.places), edges))


_BY_VERTEX = ("starts", "sizes", "spaces")


def _pooled(adjacency: Adjacency, vertex: int) -> Adjacency:
    """Return an adjacency with space for a larger block of a vertex."""
    if adjacency.used[0] + max(kernels.LEAST_SPACE, 2 * adjacency.spaces[vertex]) <= len(adjacency.pool):
        return adjacency
    size = 2 * len(adjacency.pool) + 2 * int(adjacency.spaces[vertex])
    return adjacency._replace(pool=longer(adjacency.pool, int(adjacency.used[0]), size))


def _widened(attributes: Attributes, names: int, elements: int) -> Attributes:
    had = attributes.kinds.shape
    if had[0] >= names and had[1] >= elements:
        return attributes
    shape = max(names, had[0]), max(elements, had[1])
    kinds, bits = np.zeros(shape, np.int8), np.zeros(shape, np.int64)
    kinds[: had[0], : had[1]], bits[: had[0], : had[1]] = attributes
    return Attributes(kinds, bits)
