"""What differs between a live graph at two times, where the log between them is not kept any more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.graphs.attributes import Bits, Kinds
from goffish.streaming.graphs.records import Encoder, Numbers, Records
from goffish.streaming.graphs.state import Attributes, Graph, State
from goffish.streaming.graphs.updates import (
    ADD_EDGE,
    ADD_VERTEX,
    LIST,
    NONE,
    REMOVE_EDGE,
    REMOVE_VERTEX,
    SET_EDGE,
    TEXT,
    UNSET_EDGE,
    UNSET_VERTEX,
)
from goffish.streaming.key_table import KeyTable

Flags = NDArray[np.bool_]


class _Updates(NamedTuple):
    """Updates with one operation, and which values of their elements they have."""

    op: int
    elements: Numbers
    chosen: Flags


class _Now(NamedTuple):
    """Elements of the other graph by number: which there are, and their values."""

    alive: Flags
    kinds: Kinds
    bits: Bits

    def changed(self, had: Attributes, gone: Flags) -> tuple[Flags, Flags]:
        """Return which values are set, and which ones of elements that stay are removed."""
        kinds = np.where(gone, NONE, had.kinds)
        is_set = (self.kinds != NONE) & ((self.kinds != kinds) | (self.bits != had.bits))
        return is_set, (kinds != NONE) & (self.kinds == NONE) & self.alive


def numbers_in(encoder: Encoder, other: Encoder) -> list[Numbers]:
    """Return the numbers that an encoder has for what another one has, and add what it lacks.

    Parameters
    ----------
    encoder, other : Encoder

    Returns
    -------
    list of array
        Of vertices, edges, texts, lists and names: by their number in the other encoder; -1 of what is not in use.
    """

    def of_table(table: KeyTable, given: KeyTable) -> Numbers:
        found, slots = np.full(given.count, -1), given.slots_in_use
        if len(slots):
            found[slots] = table.slots(given.keys(slots))
        return found

    vertices, edges = of_table(encoder.vertices, other.vertices), of_table(encoder.edges, other.edges)
    texts = of_table(encoder.values.texts, other.values.texts)
    sizes, kinds, bits = other.values.lists_from(0)
    bits = np.where(kinds == TEXT, texts[np.where(kinds == TEXT, bits, 0)], bits) if len(texts) else bits
    lists = encoder.values.add_lists(sizes, kinds, bits)
    names = np.array([encoder.name(name) for name in other.names], np.int64)
    for name in other.streams:
        encoder.stream(name)
    return [vertices, edges, texts, lists, names]


def difference(state: State, other: Graph, numbers: list[Numbers]) -> Records:
    """Return the updates that turn one graph into another one.

    Parameters
    ----------
    state : State
    other : Graph
    numbers : list of array
        As `numbers_in` returns.

    Returns
    -------
    Records
        One for each update; the times of edges are those when they were last seen.
    """
    state.fit()
    graph, edges = state.graph, state.graph.edges
    now = _now(other.vertices, other.of_vertices, numbers[0], numbers, graph.of_vertices)
    gone = graph.vertices & ~now.alive
    is_set, is_unset = now.changed(graph.of_vertices, gone)
    parts = [
        _Updates(REMOVE_VERTEX, np.flatnonzero(gone), np.zeros_like(is_set)),
        _Updates(UNSET_VERTEX, np.flatnonzero(is_unset.any(axis=0)), is_unset),
        _Updates(ADD_VERTEX, np.flatnonzero((now.alive & ~graph.vertices) | is_set.any(axis=0)), is_set),
    ]
    nothing = np.zeros(len(graph.vertices), np.int64)
    records = _records(parts, nothing, nothing - 1, nothing - 1, now)

    now = _now(other.edges.alive, other.of_edges, numbers[1], numbers, graph.of_edges)
    given = np.flatnonzero(other.edges.alive)
    seen, sources, targets = edges.seen.copy(), edges.sources.astype(np.int64), edges.targets.astype(np.int64)
    seen[numbers[1][given]] = other.edges.seen[given]
    sources[numbers[1][given]] = numbers[0][other.edges.sources[given]]
    targets[numbers[1][given]] = numbers[0][other.edges.targets[given]]
    differs = (edges.sources != sources) | (edges.targets != targets)
    gone = edges.alive & (~now.alive | differs)
    comes = now.alive & (~edges.alive | differs | (edges.seen != seen))
    is_set, is_unset = now.changed(graph.of_edges, gone)
    removed = [_Updates(REMOVE_EDGE, np.flatnonzero(gone), np.zeros_like(is_set))]
    parts = [
        _Updates(UNSET_EDGE, np.flatnonzero(is_unset.any(axis=0)), is_unset),
        _Updates(SET_EDGE, np.flatnonzero(is_set.any(axis=0) & ~comes), is_set),
        _Updates(ADD_EDGE, np.flatnonzero(comes), is_set),
    ]
    before, after = (_records(some, seen, sources, targets, now) for some in (removed, parts))
    return before + records + after


def _now(alive: Flags, attributes: Attributes, to: Numbers, numbers: list[Numbers], had: Attributes) -> _Now:
    """Return elements of the other graph, by the numbers of the first one."""
    texts, lists, names = numbers[2:]
    given = np.flatnonzero(alive)
    found = _Now(np.zeros(had.kinds.shape[1], np.bool_), np.zeros_like(had.kinds), np.zeros_like(had.bits))
    found.alive[to[given]] = True
    rows = len(attributes.kinds)
    kinds, bits = attributes.kinds[:, given], attributes.bits[:, given]
    for kind, known in ((TEXT, texts), (LIST, lists)):
        bits[kinds == kind] = known[bits[kinds == kind]]
    places = np.ix_(names[:rows], to[given])
    found.kinds[places], found.bits[places] = kinds, bits
    return found


def _records(parts: list[_Updates], times: Numbers, sources: Numbers, targets: Numbers, now: _Now) -> Records:
    """Return updates as records; times and ends are by element."""
    elements = np.concatenate([one.elements for one in parts])
    ops = np.repeat(np.array([one.op for one in parts], np.int8), [len(one.elements) for one in parts])
    at, names = np.nonzero(np.concatenate([one.chosen[:, one.elements] for one in parts], axis=1).T)
    count = len(ops)
    firsts = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=count))]).astype(np.int64)
    rows = elements[at]
    return Records(
        times[elements], np.zeros(count, np.int64), np.full(count, -1), np.arange(count + 1), ops, elements,
        sources[elements], targets[elements], firsts, names, now.kinds[names, rows], now.bits[names, rows],
    )  # fmt: skip
