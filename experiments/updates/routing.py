"""Which instance processes a batch of messages, and which channels its products take, while an update is under way.

A process has one `Router`, and a `Shell` for each of its processing elements. For each batch it calls

1. `Shell.take`, and `Buffers.add` if the element fires on several batches;
2. `Router.begin` with the headers of all that is consumed, then `Counts.finish` with the header that was taken;
3. the instance; `Router.route_out`, and `Counts.send` for each target that the product is put on a channel to;
4. `Router.end`.

Sources begin with `Router.accepts` and `Router.stamp`, and choose their instance with `Router.route_in`.

See docs/specs/updates.md, sections 2.3, 3.4 to 3.8, and 4.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from goffish.errors import InputError, JobError
from goffish.streaming.updates.analysis import Change
from goffish.streaming.updates.versions import (
    Channel,
    Element,
    Numbering,
    PartialWindow,
    Strategy,
    UpdateType,
    Version,
)

Item = TypeVar("Item")


class Header(NamedTuple):
    """What every batch of messages carries; its messages took one path.

    Attributes
    ----------
    version : int
        Number of the dataflow version that the source stamped.
    trace : int
        Elements and channels that led to the batch, as bits of a `Numbering`; the channel that it is on included.
    pinned : int
        Number of the version that a pinning element decided for, or 0.
    entry_time : float
        When the oldest message that led to the batch entered the dataflow.
    """

    version: int
    trace: int
    pinned: int
    entry_time: float


class Side(IntEnum):
    """Version that a batch belongs to; a common one may go on in either."""

    COMMON = 0
    OLD = 1
    NEW = 2


def merged(headers: Iterable[Header]) -> Header:
    """Return the header of a product of several batches, without its producer: the unions of equation (1).

    Examples
    --------
    >>> merged([Header(1, 0b011, 0, 2.0), Header(1, 0b101, 0, 1.0)])
    Header(version=1, trace=7, pinned=0, entry_time=1.0)
    """
    versions, traces, pins, times = zip(*headers, strict=True)
    union = 0
    for trace in traces:
        union |= trace
    return Header(max(versions), union, max(pins), min(times))


@dataclass(frozen=True)
class Update(Change):
    """A change that is carried out by stamps and traces of messages.

    Attributes
    ----------
    strategy, old, new, ordered
        As of `Change`.
    numbering : Numbering
        Of the parts of both versions.
    partial_window : PartialWindow
    migrated : frozenset of str
        Changed elements whose state is handed over.

    Raises
    ------
    InputError
        Nothing differs, or a migrated element is not a changed one.
    """

    numbering: Numbering
    partial_window: PartialWindow = PartialWindow.EMIT
    migrated: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for id in sorted(self.migrated - {one.id for one in self.replaced}):
            raise InputError(f"update to dataflow version {self.new.number}: migrated element {id!r} does not change")

    @cached_property
    def replaced(self) -> tuple[Element, ...]:
        """New elements that replace one of the same id."""
        return tuple(one for one in self.new.elements if one in self.parts.new_only and one.id in self.old.logic)

    @cached_property
    def old_mask(self) -> int:
        """Trace bits that only the old version has."""
        return self.numbering.mask(self.parts.old_only)

    @cached_property
    def new_mask(self) -> int:
        """Trace bits that only the new version has."""
        return self.numbering.mask(self.parts.new_only)

    @cached_property
    def pin_mask(self) -> int:
        """Trace bits of the pinning elements."""
        return self.numbering.mask(Element(id, self.old.logic[id]) for id in self.pins)

    def side(self, header: Header) -> Side:
        """Return the version that a batch belongs to.

        That is the stamp under MVC and the trace under HTI and PVC; stopped dataflows have one version at a time. A
        batch that passed a pinning element without being pinned did so before the update: its siblings may be old.
        """
        if self.strategy == Strategy.MVC:
            return Side.NEW if header.version == self.new.number else Side.OLD
        if self.strategy in (Strategy.NCL, Strategy.NCH) or header.trace & self.old_mask:
            return Side.OLD
        if header.trace & self.new_mask or header.pinned == self.new.number:
            return Side.NEW
        return Side.OLD if header.trace & self.pin_mask else Side.COMMON

    def mixes(self, trace: int) -> bool:
        """Return whether a trace has parts of both versions that the other one lacks: a violation of C1."""
        return bool(trace & self.old_mask and trace & self.new_mask)


def _through(header: Header, bit: int) -> Header:
    """Return the header behind one more part; several times faster than `_replace`."""
    version, trace, pinned, entry_time = header
    return Header(version, trace | bit, pinned, entry_time)


# While the dataflow runs


class Tally(NamedTuple):
    """Batches that were sent and finished: those of the old version, and those that entered before the new one.

    Under PVC a batch that entered before may be common to both versions, and still meet an old one in a join.
    """

    sent: int
    done: int
    entered_sent: int
    entered_done: int

    @staticmethod
    def total(tallies: Iterable[Tally]) -> Tally:
        """Return the sums over all processes."""
        return Tally(*map(sum, zip(*tallies, strict=True)))


class Counts:
    """Batches that one process sent and finished, by what their headers say of their version.

    Sender and receiver count the same header, each in its own process, so that sums over all processes are exact.
    """

    def __init__(self) -> None:
        self.sent: Counter[tuple[int, int, int]] = Counter()
        self.done: Counter[tuple[int, int, int]] = Counter()

    def send(self, header: Header) -> None:
        """Count a batch that is put on a channel, or whose processing starts."""
        self.sent[header[:3]] += 1

    def finish(self, header: Header) -> None:
        """Count a batch that left its queue, or whose processing ended."""
        self.done[header[:3]] += 1

    def old(self, update: Update) -> Tally:
        """Return how many batches of the old version were sent and finished."""
        found = [0, 0, 0, 0]
        for place, counts in enumerate((self.sent, self.done)):
            for key, number in counts.items():
                header = Header(*key, 0.0)
                found[place] += number if update.side(header) == Side.OLD else 0
                found[2 + place] += number if header.version < update.new.number else 0
        return Tally(*found)

    def forget(self, update: Update) -> None:
        """Drop what was counted of the old version, once it has drained everywhere."""
        for counts in (self.sent, self.done):
            for key in [key for key in counts if update.side(Header(*key, 0.0)) == Side.OLD]:
                del counts[key]


class Router:
    """Routing decisions of one process.

    Parameters
    ----------
    version : Version
        The version that runs.
    numbering : Numbering
        Has all parts of it.
    """

    def __init__(self, version: Version, numbering: Numbering) -> None:
        self.version, self.numbering = version, numbering
        self.update: Update | None = None
        #: MVC: sources stamp the new version. PVC: batches with a common past take it. HTI: all batches do.
        self.active = False
        self.counts = Counts()

    def prepare(self, update: Update) -> None:
        """Accept batches of the new version. All processes prepare before the first one activates."""
        self.update, self.numbering, self.active = update, update.numbering, False

    def activate(self) -> None:
        """Start the new version: at sources under MVC, everywhere under HTI and PVC."""
        self.active = True

    def complete(self) -> None:
        """Drop the old version, which has drained."""
        if self.update is not None:
            self.counts.forget(self.update)
            self._settle(self.update.new)

    def abort(self) -> None:
        """Drop the new version, which nothing was routed to."""
        if self.update is not None:
            self._settle(self.update.old)

    def _settle(self, version: Version) -> None:
        self.version, self.numbering = version, self.numbering.restricted(version)
        self.update, self.active = None, False

    def accepts(self, id: str) -> bool:
        """Return whether an element accepts inputs from outside: it is a source of the version that is stamped."""
        version = self.update.new if self.update and self.active else self.version
        return id in version.sources

    def stamp(self, now: float) -> Header:
        """Return the header of a batch that enters the dataflow."""
        update = self.update
        return Header(update.new.number if update and self.active else self.version.number, 0, 0, now)

    def route_in(self, id: str, header: Header) -> int:
        """Return the version of the instance that processes a batch."""
        return self._version(id, header).logic[id]

    def begin(self, id: str, version: int, parents: Sequence[Header]) -> Header:
        """Start processing one batch, or several that meet, and return the header of the products.

        Parameters
        ----------
        id : str
        version : int
            Of the instance.
        parents : sequence of Header

        Returns
        -------
        Header
            Counted as in flight until `end`.
        """
        header, update = parents[0] if len(parents) == 1 else merged(parents), self.update
        if update is not None and id in update.pins and self.active and update.side(header) == Side.COMMON:
            header = header._replace(pinned=update.new.number)
        header = _through(header, self.numbering.bits[Element(id, version)])
        self.counts.send(header)
        return header

    def route_out(self, id: str, header: Header) -> list[tuple[str, Header]]:
        """Return targets of a product, with the header on the way to each.

        `header` is that of `begin`. Pass the headers of those that the product is sent to, which a branch chooses, to
        `Counts.send`.
        """
        channels = [Channel(id, target) for target in self._version(id, header).targets[id]]
        return [(one.target, _through(header, self.numbering.bits[one])) for one in channels]

    def end(self, header: Header) -> None:
        """End the processing that `begin` started, after its products were sent."""
        self.counts.finish(header)

    def group(self, header: Header) -> int:
        """Return the number of the version whose windows, joins and batches a batch belongs to; 0 for any (§3.5)."""
        update = self.update
        if update is None or update.strategy == Strategy.HTI:
            return 0
        return {Side.COMMON: 0, Side.OLD: update.old.number, Side.NEW: update.new.number}[update.side(header)]

    def _version(self, id: str, header: Header) -> Version:
        """Return the version of the dataflow that applies to a batch at an element."""
        update = self.update
        if update is None:
            return self.version
        side = update.side(header)
        new = side == Side.NEW or (side == Side.COMMON and self.active)
        if update.strategy == Strategy.HTI:
            # Messages inside the old part of a connected subgraph stay in it.
            new = self.active and not (side == Side.OLD and update.kind == UpdateType.CONNECTED_SUBGRAPH)
        chosen, other = (update.new, update.old) if new else (update.old, update.new)
        return chosen if id in chosen.logic else other


class Stateful(Protocol):
    """State of an instance that can be handed over."""

    def export(self) -> Any:
        """Return the state."""

    def install(self, state: Any) -> None:
        """Add this state to that of the instance."""


class Taken(NamedTuple, Generic[Item]):
    """A batch for one instance, and where it came from."""

    version: int
    header: Header
    item: Item


class Shell(Generic[Item]):
    """One logical processing element: at most two versioned instances behind one queue.

    Parameters
    ----------
    id : str
    router : Router
        Of the process.

    Examples
    --------
    >>> version = Version.of(1, ["a", "b"], [("a", "b")])
    >>> router = Router(version, Numbering({}).extended(version))
    >>> shell = Shell[str]("a", router)
    >>> shell.add(1, "the instance")
    >>> shell.put(router.stamp(0.0), "message")
    >>> shell.take()
    Taken(version=1, header=Header(version=1, trace=0, pinned=0, entry_time=0.0), item='message')
    """

    def __init__(self, id: str, router: Router) -> None:
        self.id, self.router = id, router
        self.instances: dict[int, Any] = {}
        self.queue: deque[tuple[Header, Item]] = deque()

    def add(self, version: int, instance: Any) -> None:
        """Add an instance that is ready.

        Raises
        ------
        JobError
            The element has this version, or two others.
        """
        if version in self.instances or len(self.instances) == 2:
            raise JobError(
                f"processing element {self.id}: runs versions {sorted(self.instances)}; cannot add {version}"
            )
        self.instances[version] = instance

    def retire(self, version: int) -> Any:
        """Remove an instance, and return it."""
        return self.instances.pop(version)

    def hand_over(self, old: int, new: int, migrate: Callable[[Any], Any]) -> None:
        """Give the state of the old instance to the new one, converted by `migrate`."""
        self.instances[new].install(migrate(self.instances[old].export()))

    def put(self, header: Header, item: Item) -> None:
        """Add a batch to the queue."""
        self.queue.append((header, item))

    def take(self) -> Taken[Item] | None:
        """Remove the first batch of the queue and choose its instance. Finish its header once it is dealt with.

        Raises
        ------
        JobError
            The batch belongs to a version that is retired.
        """
        if not self.queue:
            return None
        header, item = self.queue.popleft()
        version = self.router.route_in(self.id, header)
        if version not in self.instances:
            raise JobError(f"processing element {self.id}: version {version} is not running")
        return Taken(version, header, item)


class Entry(NamedTuple, Generic[Item]):
    """A batch that waits in a join, window or m:n batch."""

    port: str
    header: Header
    item: Item


class Partial(NamedTuple, Generic[Item]):
    """An incomplete batch of entries."""

    key: Any
    entries: list[Entry[Item]]


class Buffers(Generic[Item]):
    """Incomplete batches of one instance, kept apart by version (§3.5, §3.6).

    Parameters
    ----------
    router : Router
    count : int
        Number of entries that make a batch; 0 for a join.
    ports : collection of str
        Ports of which a join needs one entry each.

    Examples
    --------
    >>> version = Version.of(1, ["a", "b"], [("a", "b")])
    >>> buffers = Buffers[str](Router(version, Numbering({})), count=2)
    >>> buffers.add(None, Entry("a", Header(1, 0, 0, 0.0), "first"))
    >>> [entry.item for entry in buffers.add(None, Entry("a", Header(1, 0, 0, 0.0), "second"))]
    ['first', 'second']
    """

    def __init__(self, router: Router, *, count: int = 0, ports: Collection[str] = ()) -> None:
        self.router, self.count, self.ports = router, count, frozenset(ports)
        self._partial: dict[Any, list[tuple[Header, list[Entry[Item]]]]] = {}

    def add(self, key: Any, entry: Entry[Item]) -> list[Entry[Item]] | None:
        """Add an entry, and return the batch that it completes.

        Parameters
        ----------
        key : hashable
            Only entries of one key meet.
        entry : Entry

        Returns
        -------
        list of Entry or None
            In order of arrival.
        """
        waiting, group = self._partial.setdefault(key, []), self.router.group(entry.header)
        for place, (header, entries) in enumerate(waiting):
            other = self.router.group(header)
            if (not group or not other or group == other) and self._accepts(entries, entry):
                entries.append(entry)
                waiting[place] = (merged([header, entry.header]), entries)
                break
        else:
            place, entries = len(waiting), [entry]
            waiting.append((entry.header, entries))
        if len(entries) < (self.count or len(self.ports)):
            return None
        del waiting[place]
        if not waiting:
            del self._partial[key]
        return entries

    def _accepts(self, entries: list[Entry[Item]], entry: Entry[Item]) -> bool:
        return bool(self.count) or all(other.port != entry.port for other in entries)

    def __len__(self) -> int:
        return sum(map(len, self._partial.values()))

    def waiting(self, side: Side | None) -> int:
        """Return the number of incomplete batches of one version, or of all."""
        return sum(self._of(header, side) for waiting in self._partial.values() for header, _ in waiting)

    def close(self, side: Side | None) -> list[Partial[Item]]:
        """Remove and return the incomplete batches of one version, or all."""
        found: list[Partial[Item]] = []
        for key, waiting in list(self._partial.items()):
            found += [Partial(key, entries) for header, entries in waiting if self._of(header, side)]
            kept = [one for one in waiting if not self._of(one[0], side)]
            if kept:
                self._partial[key] = kept
            else:
                del self._partial[key]
        return found

    def _of(self, header: Header, side: Side | None) -> bool:
        return side is None or (self.router.update is not None and self.router.update.side(header) == side)


def converted(update: Update, entry: Entry[Item]) -> Entry[Item]:
    """Return an entry of the old version as one of the new version, for `PartialWindow.MERGE`.

    It loses the parts of its trace that end with the old version, so count it as inconsistent.
    """
    header = entry.header
    trace = header.trace & ~update.old_mask
    return entry._replace(header=header._replace(version=update.new.number, trace=trace, pinned=update.new.number))


class Gate(Generic[Item]):
    """Holds outputs of the new version at a sink until the old one has drained (§3.8)."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self._held: list[Item] = []
        self._closed = True

    def offer(self, header: Header, item: Item) -> list[Item]:
        """Return the outputs that may leave now: `item`, or none."""
        if self._closed and self.update.side(header) == Side.NEW:
            self._held.append(item)
            return []
        return [item]

    def open(self) -> list[Item]:
        """Return the held outputs in order, and hold no more."""
        held, self._held, self._closed = self._held, [], False
        return held
