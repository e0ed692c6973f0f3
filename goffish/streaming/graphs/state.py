"""The current graph in flat arrays, and the changes that updates make to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming.graphs import kernels
from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.late import Written
from goffish.streaming.graphs.late_kernels import apply_late_updates, most_late_changes
from goffish.streaming.graphs.predicate_kernels import COMPARE, ID
from goffish.streaming.graphs.predicates import NO_FLIPS, Flips, Predicates, Tables, Watches
from goffish.streaming.graphs.records import Encoder, Records
from goffish.streaming.graphs.sequencer import ranks_of
from goffish.streaming.graphs.trees import alike
from goffish.streaming.graphs.updates import ADD_EDGE, FLOAT, INTEGER, NONE, TEXT
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
    pool : int32 or int64 array
    free : int64 array, shape (32,)
        By the logarithm of their size, the first blocks that are not in use; each begins with the next one, or -1.
    used : int64 array, shape (1,)
        Part of `pool` that has been in use.
    """

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    spaces: NDArray[np.int32]
    places: NDArray[np.int32]
    pool: NDArray[Any]
    free: NDArray[np.int64]
    used: NDArray[np.int64]


class Attributes(NamedTuple):
    """Values by name and element; `floats` are the bits as numbers."""

    kinds: Kinds
    bits: Bits
    floats: NDArray[np.float64]

    @classmethod
    def empty(cls, names: int, elements: int) -> Attributes:
        """Return space for values."""
        bits = np.zeros((names, elements), np.int64)
        return cls(np.zeros((names, elements), np.int8), bits, bits.view(np.float64))


#: Flips that are evaluated at a time when predicates are new.
_SPACE = 1 << 16
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
        columns: list[Any] = [np.empty(size, np.int8 if name in _BYTES else np.int64) for name in cls._fields]
        return cls(*columns)

    def cut(self, size: int) -> Changes:
        """Return the first changes."""
        return Changes._make(column[:size] for column in self)


NO_CHANGES = Changes.empty(0)


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

    Parameters
    ----------
    encoder : Encoder
    takes_late : bool
        Whether late records are applied, for which stamps are needed.

    Attributes
    ----------
    graph : Graph
    written : Written or None
        Stamps.
    vertices, edges : Predicates
        Those that are followed.
    unknown, conflicts : int
        Updates without effect: of elements that do not exist, and of ids of edges that have other ends.
    """

    def __init__(self, encoder: Encoder, *, takes_late: bool = False) -> None:
        self._encoder = encoder
        self.written = Written.empty(Attributes.empty(0, 0)) if takes_late else None
        nothing = np.zeros(0, np.int64)
        edges = Edges(nothing.astype(np.int32), nothing.astype(np.int32), nothing, nothing.astype(np.bool_))
        attributes = Attributes.empty(0, 0)
        self.graph = Graph(
            nothing.astype(np.bool_), edges, no_adjacency(), no_adjacency(), attributes, attributes
        )  # fmt: skip
        self._counts = np.zeros(2, np.int64)
        self.vertices, self.edges = Predicates(encoder, edges=False), Predicates(encoder, edges=True)
        self._watched = self.vertices.watch(0), self.edges.watch(0)
        self._space: tuple[int, int, int] | None = None  # for vertices, edges and names

    @property
    def unknown(self) -> int:
        """Updates of elements that do not exist."""
        return int(self._counts[kernels.UNKNOWN])

    @property
    def conflicts(self) -> int:
        """Updates of edges that have other ends."""
        return int(self._counts[kernels.CONFLICT])

    @property
    def stale(self) -> int:
        """Updates of late records that are older than what they would overwrite."""
        return 0 if self.written is None else self.written.stale

    def apply(self, records: Records, moments: NDArray[np.int64] | None = None) -> tuple[Changes, Flips]:
        """Apply records, and return what has changed.

        Parameters
        ----------
        records : Records
        moments : array, optional
            Their event times, which are those of the records if none of them is late.
        """
        self.fit()
        of_updates = np.arange(len(records))
        if len(records.ops) != len(records):  # there are transactions
            of_updates = np.repeat(of_updates, np.diff(records.firsts))
        keys, watches = self._encoder.edges.columns, self._watches
        most = 2 * len(of_updates) + len(records.names) + 16
        of_edge = 2 * len(self.vertices) + 3 * len(self.edges)  # what one that is added needs at most
        changes, flips = Changes.empty(most), Flips.empty(most + of_edge) if of_edge else NO_FLIPS
        done, used = 0, np.zeros(2, np.int64)
        if self.written is not None:
            given = of_updates, records.times if moments is None else moments, ranks_of(list(self._encoder.streams))
        while True:
            if self.written is None:
                done = kernels.apply_updates(
                    self.graph, records, of_updates, keys, watches, done, (changes, flips), used, self._counts
                )
            else:
                done = apply_late_updates(
                    self.graph, self.written, records, given, keys, watches, done, (changes, flips), used, self._counts
                )
            if done == len(of_updates):
                return changes.cut(used[0]), flips.take(slice(used[1])) if of_edge else flips
            changes, flips = self._more_space(records, done, changes, flips, used)

    def _more_space(
        self, records: Records, update: int, changes: Changes, flips: Flips, used: NDArray[np.int64]
    ) -> tuple[Changes, Flips]:
        """Make space for an update."""
        graph = self.graph
        if records.ops[update] == ADD_EDGE:
            self.graph = graph._replace(
                outgoing=pooled(graph.outgoing, int(records.sources[update])),
                incoming=pooled(graph.incoming, int(records.targets[update])),
            )
        most_of = kernels.most_changes if self.written is None else most_late_changes
        most, most_flips = most_of(graph, self._watches, records, update)
        if used[0] + most > len(changes.ops):
            changes = Changes._make(longer(column, used[0], 2 * len(column) + most) for column in changes)
        if used[1] + most_flips > len(flips.states):
            flips = Flips._make(longer(column, used[1], 2 * len(column) + most_flips) for column in flips)
        return changes, flips

    @property
    def _watches(self) -> Watches:
        encoder, longest = self._encoder, max(self.vertices.longest, self.edges.longest)
        tables = Tables(
            encoder.values.texts.columns, encoder.vertices.columns, encoder.edges.columns, encoder.values.lists
        )
        return Watches(*self._watched, tables, np.zeros(longest + 1, np.bool_))

    def watch(self, vertices: Predicates, edges: Predicates, wanted: Collection[int]) -> Flips:
        """Follow predicates in place of those before, and return for which elements some of them hold now.

        Parameters
        ----------
        vertices, edges : Predicates
        wanted : collection of int
            Numbers of the predicates that are returned, those of edges after those of vertices.
        """
        self.vertices, self.edges = vertices, edges
        self._watched = self.vertices.watch(0), self.edges.watch(0)
        self._space = None
        self.fit()
        found, done, space = [NO_FLIPS], 0, _SPACE
        while done < len(self.graph.vertices) + len(self.graph.edges.alive):
            flips, begin = Flips.empty(space), done
            done, used = kernels.follow_all(self.graph, self._watches, flips, begin)
            found.append(flips.take(np.flatnonzero(np.isin(flips.programs[:used], list(wanted)))))
            space = 2 * space if done == begin else _SPACE
        return Flips._make(np.concatenate(columns) for columns in zip(*found, strict=True))

    def fit(self) -> None:
        """Make space for all labels and names."""
        space = self._encoder.vertices.capacity, self._encoder.edges.capacity, len(self._encoder.names)
        if space == self._space:
            return
        (vertices, edges, names), graph = space, self.graph
        if vertices > len(graph.vertices) or edges > len(graph.edges.alive):
            count = len(graph.vertices)
            self.graph = graph = graph._replace(
                vertices=longer(graph.vertices, count, vertices),
                edges=Edges._make(longer(column, len(column), edges) for column in graph.edges),
                outgoing=fitted(graph.outgoing, vertices, edges),
                incoming=fitted(graph.incoming, vertices, edges),
            )
        self.graph = graph._replace(
            of_vertices=widened(graph.of_vertices, names, vertices), of_edges=widened(graph.of_edges, names, edges)
        )
        if self.written is not None:
            of_vertices, of_edges = self.graph.of_vertices.kinds.shape, self.graph.of_edges.kinds.shape
            self.written = self.written.fit(of_vertices, of_edges, widened(self.written.hidden, *of_edges))
        sizes = len(self.graph.vertices), len(self.graph.edges.alive)
        self._watched = tuple(  # type: ignore[assignment]
            one if one.truth.shape[1] >= size
            else one._replace(truth=_wide(one.truth, size), counts=longer(one.counts, len(one.counts), size))
            for one, size in zip(self._watched, sizes, strict=True)
        )  # fmt: skip
        self._space = space

    def saved(self) -> tuple[Any, ...]:
        """Return the state without predicates, for `install`."""
        return (self.graph, self._counts) if self.written is None else (self.graph, self._counts, self.written)

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of another graph.

        Raises
        ------
        ValueError
            The state is of something else.
        """
        if not alike(saved, self.saved()):
            raise ValueError("the graph has another form")
        self.graph, self._counts, *written = saved
        self._space = None
        if written:
            self.written = written[0]

    def used(self, since: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which vertices, edges and texts the graph, its changes since a time, and the predicates refer to."""
        graph, encoder = self.graph, self._encoder
        vertices, edges, texts = (
            np.zeros(one.capacity, np.bool_) for one in (encoder.vertices, encoder.edges, encoder.values.texts)
        )
        vertices[: len(graph.vertices)], edges[: len(graph.edges.alive)] = graph.vertices, graph.edges.alive
        lists, attributes = encoder.values.lists, [graph.of_vertices, graph.of_edges]
        if self.written is not None:
            for ids, is_edge in ((vertices, False), (edges, True)):
                recent = self.written.recent(since, edges=is_edge)
                ids[: len(recent)] |= recent
            attributes.append(self.written.hidden)
        parts = [(lists.kinds, lists.bits), *((one.kinds, one.bits) for one in attributes)]
        for watch, ids in zip(self._watched, (vertices, edges), strict=True):
            programs = watch.programs
            compared = (programs.codes == COMPARE) & (programs.kinds != NONE)
            ids[programs.bits[compared & (programs.names == ID)]] = True
            others = compared & (programs.names != ID)
            parts.append((programs.kinds[others], programs.bits[others]))
        for kinds, bits in parts:
            texts[bits[kinds == TEXT]] = True
        return vertices, edges, texts

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
        return pa.table({name: arrow_column(values) for name, values in columns.items()})

    def numbers_of(self, name: str) -> NDArray[np.float64] | None:
        """Return a numeric attribute of all edges by slot, NaN where it is missing; None if no edge has it."""
        row = self._encoder.names.get(name)
        if row is None or row >= len(self.graph.of_edges.kinds):
            return None
        kinds, bits = self.graph.of_edges.kinds[row], self.graph.of_edges.bits[row]
        found = np.full(len(kinds), np.nan)
        found[kinds == INTEGER] = bits[kinds == INTEGER]
        found[kinds == FLOAT] = bits[kinds == FLOAT].view(np.float64)
        return found


def arrow_column(values: Any) -> pa.Array:
    """Return values as a column: as texts if they are of several kinds."""
    if isinstance(values, pa.Array):
        return values.cast(pa.string()) if pa.types.is_large_string(values.type) and values.nbytes < 1 << 31 else values
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several kinds
        return pa.array([None if one is None else str(one) for one in values])


def no_adjacency(dtype: Any = np.int32) -> Adjacency:
    nothing = np.zeros(0, np.int32)
    return Adjacency(
        nothing.astype(np.int64), nothing, nothing, nothing, np.zeros(1 << 10, dtype),
        np.full(32, -1, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


def fitted(adjacency: Adjacency, vertices: int, edges: int) -> Adjacency:
    by_vertex = {n: longer(one, len(one), vertices) for n, one in adjacency._asdict().items() if n in _BY_VERTEX}
    return adjacency._replace(**by_vertex, places=longer(adjacency.places, len(adjacency.places), edges))


_BY_VERTEX = ("starts", "sizes", "spaces")


def pooled(adjacency: Adjacency, vertex: int) -> Adjacency:
    """Return an adjacency with space for a larger block of a vertex."""
    if adjacency.used[0] + max(kernels.LEAST_SPACE, 2 * adjacency.spaces[vertex]) <= len(adjacency.pool):
        return adjacency
    size = 2 * len(adjacency.pool) + 2 * int(adjacency.spaces[vertex])
    return adjacency._replace(pool=longer(adjacency.pool, int(adjacency.used[0]), size))


def widened(attributes: Attributes, names: int, elements: int) -> Attributes:
    """Return space for more names and elements."""
    had = attributes.kinds.shape
    if had[0] >= names and had[1] >= elements:
        return attributes
    shape = max(names, had[0]), max(elements, had[1])
    found = Attributes.empty(*shape)
    found.kinds[: had[0], : had[1]], found.bits[: had[0], : had[1]] = attributes.kinds, attributes.bits
    return found


def _wide(truth: NDArray[np.bool_], elements: int) -> NDArray[np.bool_]:
    """Return space for more elements."""
    if truth.shape[1] >= elements:
        return truth
    found = np.zeros((len(truth), elements), np.bool_)
    found[:, : truth.shape[1]] = truth
    return found
