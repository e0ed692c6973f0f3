"""Events that depend on events of other topics before or after them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from goffish.errors import JobError
from goffish.streaming.batches import LAST
from goffish.streaming.graphs.cgql import syntax

#: How long an event waits for later ones if the query does not say it, in microseconds.
_HORIZON = 3600 * 10**6
#: Events of other topics that are remembered.
_MOST = 1_000_000
#: Events that wait for others; each of these looks at all of them.
_MOST_HELD = 10_000
Stamp = tuple[int, int, int]


class Occurrence(NamedTuple):
    """An event that is to be published.

    Attributes
    ----------
    stamp : (int, int, int)
        Time, phase, and number of the record.
    released : (int, int, int)
        The same of the tick at which it is published.
    status : str
    code : int
        Of the status.
    opens, closes : bool
    key : int
    value : object
    initial : bool
    vertices : frozenset of int
    """

    stamp: Stamp
    released: Stamp
    status: str
    code: int
    opens: bool
    closes: bool
    key: Any
    value: Any
    initial: bool
    vertices: frozenset[int]


#: Returns the clusters of a topic that a key is about, or None if it is about none.
Clusters = Callable[[str, int], tuple[int, ...] | None]


class _Earlier:
    """Events of another topic that an event must succeed."""

    def __init__(self, constraint: syntax.Temporal) -> None:
        self._constraint = constraint
        self.known: dict[int | None, deque[tuple[int, frozenset[int]]]] = {}
        self._count = 0

    def note(self, event: Occurrence, *, by_cluster: bool) -> None:
        """Remember an event if it can count."""
        constraint = self._constraint
        known = self.known.setdefault(event.key if by_cluster else None, deque())
        if constraint.within is None and not constraint.shares and len(known) == constraint.count:
            return  # only the first ones matter
        if constraint.within is not None:
            self._expire(known, event.stamp[0] - constraint.within.micros)
            if self._count == _MOST:
                for other in self.known.values():
                    self._expire(other, event.stamp[0] - constraint.within.micros)
                self.known = {key: other for key, other in self.known.items() if other or other is known}
        if self._count == _MOST:
            raise JobError(f"limit: {constraint} needs more than {_MOST:,} events of the topic; give WITHIN")
        known.append((event.stamp[0], event.vertices))
        self._count += 1

    def restore(self, known: list[tuple[int | None, list[tuple[int, frozenset[int]]]]]) -> None:
        """Take the place of another one of the same query."""
        self.known = {key: deque(events) for key, events in known}
        self._count = sum(map(len, self.known.values()))

    def _expire(self, known: deque[tuple[int, frozenset[int]]], before: int) -> None:
        while known and known[0][0] < before:
            known.popleft()
            self._count -= 1

    def allows(self, event: Occurrence, clusters: tuple[int, ...] | None) -> bool:
        """Whether enough events came before one, about the clusters that it is about."""
        constraint, time = self._constraint, event.stamp[0]
        begin = -LAST if constraint.within is None else time - constraint.within.micros
        keys: tuple[int | None, ...] = (None,) if clusters is None else clusters
        count = 0
        for other, vertices in (one for key in dict.fromkeys(keys) for one in self.known.get(key, ())):
            count += begin <= other < time and not (constraint.shares and vertices.isdisjoint(event.vertices))
            if count >= constraint.count:
                return True
        return False


class _Held:
    """An event that waits for later ones of other topics."""

    def __init__(
        self, event: Occurrence, constraints: Sequence[syntax.Temporal], clusters: list[tuple[int, ...] | None]
    ) -> None:
        self.event = event
        self.clusters = clusters
        self.missing = [one.count for one in constraints]
        spans = [_HORIZON if one.within is None else one.within.micros for one in constraints]
        self.until = [event.stamp[0] + span for span in spans]
        self._constraints = constraints

    @property
    def last(self) -> int:
        """Time at which it is dropped."""
        return min(until for until, missing in zip(self.until, self.missing, strict=True) if missing > 0)

    def takes(self, at: int, other: Occurrence) -> bool:
        """Whether it is published after another event."""
        constraint = self._constraints[at]
        shares = not constraint.shares or not other.vertices.isdisjoint(self.event.vertices)
        clusters = self.clusters[at]
        if (
            self.event.stamp[0] < other.stamp[0] <= self.until[at] and shares
            and (clusters is None or other.key in clusters)
        ):  # fmt: skip
            self.missing[at] -= 1
        return max(self.missing) <= 0


class Temporal:
    """The constraints ``SUCCEEDS``, ``PREDATES`` and ``ORDERED`` of a query.

    Parameters
    ----------
    query : Query
    statuses : mapping
        Of other topics: those that count unless the query names some.
    clusters : callable
        Returns the clusters of a topic that a key is about: events of that topic count if they are about one of them.
    """

    def __init__(self, query: syntax.Query, statuses: Mapping[str, Collection[str]], clusters: Clusters) -> None:
        self._clusters = clusters
        given = [one for one in query.where if isinstance(one, syntax.Temporal)]
        self._earlier = [(self._counted(one, statuses), _Earlier(one)) for one in given if one.relation == "SUCCEEDS"]
        self._later = [one for one in given if one.relation == "PREDATES"]
        self._of_later = [self._counted(one, statuses) for one in self._later]
        self._ordered = any(isinstance(one, syntax.Ordered) for one in query.where)
        self._held: list[_Held] = []
        self._ready: list[Occurrence] = []  # in the order of their times, behind one that is held
        self._shown = set[Any]()

    def saved(self) -> tuple[Any, ...]:
        """Return the state, for `install`."""
        held = [(one.event, tuple(one.missing), tuple(one.until)) for one in self._held]
        known = [[(key, list(events)) for key, events in one.known.items()] for _, one in self._earlier]
        return known, held, self._ready, self._shown

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of another one of the same query."""
        known, held, self._ready, self._shown = saved
        for (_, one), events in zip(self._earlier, known, strict=True):
            one.restore(events)
        for event, missing, until in held:
            self._held.append(_Held(event, self._later, self._about(event)))
            self._held[-1].missing, self._held[-1].until = list(missing), list(until)

    @property
    def subjects(self) -> tuple[list[Occurrence], set[int], set[int]]:
        """Events that are held back, vertices of events that are remembered, and keys of events that were published."""
        known = (some for _, one in self._earlier for events in one.known.values() for _, some in events)
        vertices = {vertex for some in known for vertex in some}
        return [*(one.event for one in self._held), *self._ready], vertices, self._shown

    @staticmethod
    def _counted(constraint: syntax.Temporal, statuses: Mapping[str, Collection[str]]) -> tuple[str, frozenset[str]]:
        assert isinstance(constraint.of, syntax.Topic)
        name = constraint.of.name
        return name, frozenset(constraint.of.statuses or statuses[name])

    def step(self, own: Sequence[Occurrence], others: Mapping[str, Sequence[Occurrence]]) -> list[Occurrence]:
        """Return the events that are published.

        Parameters
        ----------
        own : sequence of Occurrence
            Events of the query, in order.
        others : mapping
            Published events of the topics that it names.
        """
        rows: list[tuple[Stamp, int, int, str, Occurrence]] = []
        for topic, events in others.items():
            rows += [(one.released, 0, at, topic, one) for at, one in enumerate(events)]
        rows += [(one.released, 1, at, "", one) for at, one in enumerate(own)]
        found: list[Occurrence] = []
        before: list[tuple[str, Occurrence]] = []  # events of others that were published at the same time
        for released, mine, _, topic, event in sorted(rows, key=lambda row: row[:3]):
            if before and before[-1][1].released != released:
                before = []
            if mine:
                new = self._own(event, before)
            else:
                new = self._other(topic, event, released)
                before.append((topic, event))
            found += self._in_order(new, released) if self._ordered else new
        return found

    def expire(self, time: int) -> list[Occurrence]:
        """Drop what has waited in vain, and return what waited for that only."""
        self._held = [one for one in self._held if one.last >= time]
        return self._in_order([], (time, 0, 0)) if self._ordered else []

    def _about(self, event: Occurrence) -> list[tuple[int, ...] | None]:
        return [self._clusters(name, event.key) for name, _ in self._of_later]

    def _own(self, event: Occurrence, before: Sequence[tuple[str, Occurrence]]) -> list[Occurrence]:
        if not event.opens:
            waiting = [one for one in self._held if one.event.key == event.key]
            if waiting:
                self._held = [one for one in self._held if one.event.key != event.key]
            elif event.key in self._shown:
                if event.closes:
                    self._shown.discard(event.key)
                return [event]
            return []
        if not all(one.allows(event, self._clusters(name, event.key)) for (name, _), one in self._earlier):
            return []
        if self._later:
            if len(self._held) == _MOST_HELD:
                raise JobError(f"limit: {_MOST_HELD:,} events wait for later ones; give a shorter WITHIN")
            held = _Held(event, self._later, self._about(event))
            for name, other in before:  # which can have happened later, although they are published first
                for at, (topic, statuses) in enumerate(self._of_later):
                    if name == topic and other.status in statuses and held.takes(at, other):
                        self._shown.add(event.key)
                        return [event]
            self._held.append(held)
            return []
        self._shown.add(event.key)
        return [event]

    def _other(self, topic: str, event: Occurrence, released: Stamp) -> list[Occurrence]:
        for (name, statuses), one in self._earlier:
            if name == topic and event.status in statuses:
                one.note(event, by_cluster=self._clusters(topic, 0) is not None)
        self._held = [one for one in self._held if one.last >= event.stamp[0]]
        found = []
        for at, (name, statuses) in enumerate(self._of_later):
            if name != topic or event.status not in statuses:
                continue
            for held in list(self._held):
                if held.takes(at, event):
                    self._held.remove(held)
                    self._shown.add(held.event.key)
                    found.append(held.event._replace(released=released))
        return found

    def _in_order(self, found: list[Occurrence], released: Stamp) -> list[Occurrence]:
        """Keep events back that are later than one that is held."""
        self._ready = sorted([*self._ready, *found], key=lambda one: one.stamp)
        first: Any = min((one.event.stamp for one in self._held), default=(LAST, 0, 0))
        ready = [one for one in self._ready if one.stamp < first]
        self._ready = self._ready[len(ready) :]
        return [one._replace(released=max(one.released, released)) for one in ready]
