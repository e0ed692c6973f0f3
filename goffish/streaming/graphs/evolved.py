"""Clusters that are followed by their ids, also when they are gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import JobError
from goffish.streaming.graphs import cluster_kernels, evolved_kernels
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.clusters import Change, Conditions, Measured
from goffish.streaming.graphs.pattern_kernels import EDGE_ON, MOVE
from goffish.streaming.graphs.patterns import Deltas, Found, Groups, Numbers, with_space
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import Adjacency, fitted, no_adjacency

#: How long clusters are followed that are gone, in microseconds.
_TRACK = 24 * 3600 * 10**6
#: Members of clusters that are followed.
_MOST_ENTRIES = 10_000_000
_OF_EDGES = (cluster_kernels.EDGES, cluster_kernels.DENSITY, cluster_kernels.DIAMETER)


class _State(NamedTuple):
    """Groups of vertices; see `evolved_kernels`."""

    # Edges.
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    outgoing: Adjacency
    incoming: Adjacency
    # Vertices: the last three are the first entry, hops in searches, and values of attributes.
    exists: NDArray[np.bool_]
    is_seen: NDArray[np.bool_]
    entries: Numbers
    hops: Numbers
    kinds: NDArray[np.int8]
    numbers: Numbers
    floats: NDArray[np.float64]
    # Entries: the vertex, the group, and the entries beside it of the same vertex and of the same group.
    members: Numbers
    groups: Numbers
    before: Numbers
    after: Numbers
    preceding: Numbers
    following: Numbers
    leaves: NDArray[np.bool_]
    is_doubtful: NDArray[np.bool_]
    doubtful: Numbers
    free: Numbers
    # Groups: the last ones are since when its cluster is gone, members that leave, and where they go.
    first: Numbers
    size: Numbers
    edges: Numbers
    sums: Numbers
    tallies: Numbers
    is_used: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    since: Numbers
    leaving: Numbers
    is_merged: NDArray[np.bool_]
    is_touched: NDArray[np.bool_]
    touched: Numbers
    ended: Numbers
    counts: Numbers


_BY_EDGE = ("sources", "targets")
_BY_VERTEX = ("exists", "is_seen", "entries", "hops", "kinds", "numbers")
_BY_ENTRY = (
    "members", "groups", "before", "after", "preceding", "following", "leaves", "is_doubtful", "doubtful", "free",
)  # fmt: skip
_BY_GROUP = (
    "first", "size", "edges", "sums", "tallies", "is_used", "holds", "since", "leaving", "is_merged", "is_touched",
    "touched", "ended",
)  # fmt: skip
_NEW = {"entries": -1, "hops": -2, "members": -1, "groups": -1, "first": -1}


class _Rules(NamedTuple):
    conditions: Conditions
    most_members: int
    track: int


class Evolved(Measured):
    """Clusters of a topic for whose members conditions begin to hold.

    Parameters
    ----------
    query : Query
    """

    operator = "sums over the members of each event, which follow their attributes"
    statuses = ("EVOLVED",)
    closing, opening, presence = 0, frozenset([0]), frozenset([0])
    roles = ("node", "")
    _begun = (0,)
    kept = ("_state",)

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        [topic] = [str(one.operand) for one in query.arguments if isinstance(one, syntax.Name)]
        self.groups = (topic,)
        self.sees_edges = bool(np.isin(self._conditions.codes, _OF_EDGES).any())
        self._groups = Groups()
        track = self._options.get("track")
        self._rules = _Rules(self._conditions, self._most_members, _TRACK if track is None else track.micros)
        self._state = _empty(len(self.measured))

    @property
    def pending(self) -> bool:
        return bool(self._state.counts[:2].any())

    def saved(self) -> dict[str, Any]:
        return super().saved() | {"groups": self._groups.saved()}

    def install(self, saved: Mapping[str, Any]) -> None:
        saved = dict(saved)
        self._groups.install(saved.pop("groups"))
        super().install(saved)

    @property
    def touched(self) -> tuple[Numbers, Numbers]:
        members = self._state.members
        return members[members >= 0], members[:0]

    def see(self, encoder: Encoder, deltas: Deltas) -> Deltas:
        deltas = super().see(encoder, deltas)
        moves = np.flatnonzero(deltas.kinds == MOVE)
        if not len(moves):
            return deltas
        columns = deltas.sources.copy(), deltas.targets.copy()
        for column in columns:
            column[moves] = self._groups.numbers(column[moves])
        return deltas._replace(sources=columns[0], targets=columns[1])

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        state = self._state
        more = int(np.count_nonzero((deltas.kinds == MOVE) & (deltas.targets >= 0)))
        if more > state.counts[2] and len(deltas.times):
            evolved_kernels.forget(state, deltas.times[0], self._rules.track)
            self._release()
        entries = len(state.free)
        if more > state.counts[2]:
            entries = max(2 * entries, entries + more)
        if entries > _MOST_ENTRIES:
            raise JobError(f"limit: more than {_MOST_ENTRIES:,} members of clusters are followed; give a shorter track")
        sizes = dict.fromkeys(_BY_EDGE, edges if self.sees_edges else 0) | dict.fromkeys(_BY_VERTEX, vertices)
        sizes |= dict.fromkeys(_BY_ENTRY, entries) | dict.fromkeys(_BY_GROUP, len(self._groups))
        made = dict[str, Any]()
        for name, size in sizes.items():
            column = getattr(state, name)
            if size > column.shape[-1]:
                new = np.full((*column.shape[:-1], size - column.shape[-1]), _NEW.get(name, 0), column.dtype)
                made[name] = np.ascontiguousarray(np.concatenate([column, new], axis=-1))
        had = len(state.free)
        if made:
            state = state._replace(**made)
            state = state._replace(floats=state.numbers.view(np.float64))
        if entries > had:
            count = int(state.counts[2])
            state.free[count : count + entries - had] = np.arange(had, entries)
            state.counts[2] += entries - had
        if self.sees_edges:
            new = deltas.kinds == EDGE_ON
            state = state._replace(
                outgoing=with_space(fitted(state.outgoing, vertices, edges), deltas.sources[new]),
                incoming=with_space(fitted(state.incoming, vertices, edges), deltas.targets[new]),
            )
        elif vertices > len(state.outgoing.starts):
            state = state._replace(
                outgoing=fitted(state.outgoing, vertices, 0), incoming=fitted(state.incoming, vertices, 0)
            )
        self._state = state

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        rules = self._rules._replace(most_members=1 << 62) if self.lists_all else self._rules
        found = self._found(evolved_kernels.evolved(deltas, self._state, rules, self._made(), 0, ends))
        found = found._replace(keys=self._groups.ids[found.keys])
        self._release()
        return found

    def _release(self) -> None:
        """Let numbers of groups go that are not followed any more."""
        counts = self._state.counts
        self._groups.release(self._state.ended[: counts[3]].tolist())
        counts[3] = 0

    def answers(self) -> tuple[Numbers, NDArray[Any]]:
        state = self._state
        groups = np.flatnonzero(state.is_used & state.holds)
        values = np.empty(len(groups), object)
        for at, group in enumerate(groups.tolist()):
            members = state.members[state.groups == group]
            values[at] = Change(-1, 0, len(members), members.astype(np.int32), ())
        return self._groups.ids[groups], values

    def clusters(self, topic: str, key: int) -> tuple[int, ...] | None:
        return (key,) if topic in self.groups else None


def _empty(measured: int) -> _State:
    none = np.zeros(0, np.int64)
    flags, ends = none.astype(np.bool_), none.astype(np.int32)
    numbers = np.zeros((measured, 0), np.int64)
    return _State(
        ends, ends, no_adjacency(), no_adjacency(), flags, flags, none, none, numbers.astype(np.int8), numbers,
        numbers.view(np.float64), none, none, none, none, none, none, flags, flags, none, none, none, none, none,
        numbers, np.zeros((measured, 4, 0), np.int64), flags, flags, none, none, flags, flags, none, none,
        np.zeros(5, np.int64),
    )  # fmt: skip
