"""A node of the ring: processes the messages of its positions and holds copies for its neighbors.

A node neither reads a clock nor sends anything: its methods take the time and leave messages in `outbox`. The same
object runs in a worker process and in a simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.ring.balance import Balance
from goffish.streaming.ring.messages import (
    BalanceReply,
    BalanceRequest,
    Checkpoint,
    Copied,
    Heartbeat,
    Longs,
    Marker,
    Message,
    Ping,
    Pong,
    Progress,
    Signal,
    SyncDone,
    SyncRequest,
    Tuples,
)
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import CIRCLE, EVERYTHING, NOTHING, Ranges
from goffish.streaming.ring.store import BackupStore, thread_of
from goffish.streaming.ring.view import Move, Registry, View, middle


class State(Protocol):
    """Entries of keys, each with a ring position."""

    def apply(self, tuples: Tuples, context: Any) -> None:
        """Process messages; those that are replayed after a takeover come with the context of the old owner."""

    def signal(self, mapper: int, content: Any) -> None:
        """Take a signal of a mapper, of which all earlier messages were processed."""

    def context(self) -> Any:
        """Return what was signalled until now."""

    def reached(self, lane: int) -> int:
        """Return the number of a lane until which all messages have arrived, as far as was signalled."""

    def resume(self) -> None:
        """Make up for signals, after a node is no longer behind."""

    def collect(self) -> Any:
        """Return the entries that changed since the last call, as they are now."""

    def extract(self, ranges: Ranges) -> Any:
        """Return all entries of some positions, as they are now."""

    def install(self, delta: Any, ranges: Ranges) -> None:
        """Set the entries of a delta that lie within some positions, as copies of another node's state."""

    def activate(self, ranges: Ranges, lost: Collection[int]) -> None:
        """Make the copies of some positions part of the state, after nodes that had them are gone."""

    def deactivate(self, ranges: Ranges) -> None:
        """Make the state of some positions a copy of another node's."""

    def discard(self, ranges: Ranges) -> None:
        """Remove all entries and copies of some positions; they do not count as changed."""


class Event(NamedTuple):
    """Something that is reported: "failure", "takeover", "replayed", "data loss", "in sync", "fenced",
    "left", "moved", "cancelled", "unsplittable" or "spare wanted"."""

    time: float
    kind: str
    ranges: Ranges = NOTHING


@dataclass
class _Piece:
    """Owned positions with the progress of their state."""

    ranges: Ranges
    marks: Longs
    vectors: dict[int, Longs]
    epoch: int = 0  # merged once every mapper's markers of this version were processed
    context: Any = None  # of the old owner
    replays: int = 0  # queued batches of messages from before the takeover

    def progress(self, ranges: Ranges, marks: Longs | None = None) -> Progress:
        vectors = {lane: last.copy() for lane, last in self.vectors.items()}
        return Progress(self.ranges & ranges, (self.marks if marks is None else marks).copy(), vectors, self.context)


class _Queued(NamedTuple):
    tuples: Tuples
    piece: _Piece | None = None  # of which it is a replay
    begin: int = 0  # messages before were processed

    def part(self, end: int) -> _Queued:
        """Return the messages until one, of those that are left."""
        if not self.begin and end == len(self.tuples.numbers):
            return self
        return _Queued(self.tuples.take(np.arange(self.begin, end)), self.piece)


@dataclass
class _Repair:
    """Positions of which another node needs a complete copy."""

    ranges: Ranges
    epoch: int
    sent: int = 0  # number of the checkpoint with the copy


@dataclass
class _Probe:
    until: float
    asked: set[int]
    answered: set[int] = field(default_factory=set)


class Node:
    """A node of the ring.

    Parameters
    ----------
    number : int
        Its id.
    registry : Registry
    state : State
    options : Options
    now : float
        Time in seconds.
    restored : sequence of Progress, optional
        What the state of its positions contains when the whole ring starts again.

    Attributes
    ----------
    outbox : list of (int, Message)
        Messages to send, with their receivers, in order.
    events : list of Event
    cpu : float
        CPU utilisation, set by the runtime.
    queued : int
        Number of messages that wait to be processed.
    """

    def __init__(
        self,
        number: int,
        registry: Registry,
        state: State,
        options: Options,
        now: float,
        restored: Sequence[Progress] | None = None,
    ) -> None:
        self.number, self.registry, self.state, self.options = number, registry, state, options
        self.view = registry.read()
        self.outbox: list[tuple[int, Message]] = []
        self.events: list[Event] = []
        self.cpu = 0.0
        self.fenced = False
        self.duplicates = 0
        self.store = BackupStore(self._contained)
        self._queues: list[deque[_Queued | Marker | Signal]] = [deque() for _ in range(options.threads)]
        self.queued = 0
        own = self.view.interval(number)
        self._pieces = [
            _Piece(progress.ranges & own, progress.marks.copy(), dict(progress.vectors), self.view.epoch)
            for progress in restored or ()
            if progress.ranges & own
        ]
        if rest := own - self.owned:
            self._pieces.append(self._piece(rest))
        self._known: list[Progress] = []  # of the copies
        self._in_sync = self._copied if number in self.view and restored is None else NOTHING
        self._stale = NOTHING
        self._passed: list[dict[int, int]] = [{} for _ in range(options.threads)]
        self._arrived: dict[int, int] = {}
        self._lives: dict[int, int] = {}
        self._signals: dict[int, list[Signal]] = {}  # that some threads have passed
        self._newest = np.iinfo(np.int64).min  # greatest time stamp received as owner
        self._held: dict[tuple[bool, int], list[Message]] = {}
        self._sent: dict[int, int] = {}
        self._copied_until: dict[int, int] = {}
        self.serial = 0
        self._received: dict[int, int] = {}
        self._repairs: dict[int, _Repair] = {}
        self._replaced = NOTHING
        self._parked: list[Tuples] | None = None
        self._parked_context: Any = None  # when the first messages were parked
        self._fences = 0
        self._heard: dict[int, float] = {}
        self._probe: _Probe | None = None
        self._lost: set[int] = set()
        self._heartbeat_due = self._checkpoint_due = now
        self._balance = Balance(self, now)
        self._move_until = now
        self._awaited: dict[int, Ranges] = {}  # copies that a move waits for
        self._watched(now)

    # Messages.

    def receive(self, sender: int, message: Message, now: float) -> None:
        """Take a message of another node or of a mapper."""
        if self.fenced:
            return
        if message.epoch > self.view.epoch:
            self.follow(now)
        source = (isinstance(message, Tuples | Marker | Signal), sender)
        if source in self._held or message.epoch > self.view.epoch:
            self._held.setdefault(source, []).append(message)
        elif not self.fenced:
            self._handle(sender, message, now)

    def _handle(self, sender: int, message: Message, now: float) -> None:
        match message:
            case Tuples():
                self._dispatch(message)
            case Marker() | Signal():
                for queue in self._queues:
                    queue.append(message)
                if isinstance(message, Marker):
                    self._arrived[message.mapper] = max(message.epoch, self._arrived.get(message.mapper, 0))
                    if any(not repair.sent and self._has_arrived(repair.epoch) for repair in self._repairs.values()):
                        self._checkpoint_due = now
            case Checkpoint():
                self._heard[sender] = now
                self._copy(sender, message, now)
            case Copied():
                self._copied_until[sender] = message.serial
            case Heartbeat():
                self._heard[sender] = now
            case Ping():
                self.send(sender, Pong(self.view.epoch))
            case Pong():
                self._heard[sender] = now
                if self._probe is not None:
                    self._probe.answered.add(sender)
            case SyncRequest():
                self._repair(sender, message.ranges, message.number)
            case SyncDone():
                self._synced(sender, message.ranges, now)
            case BalanceRequest():
                self._balance.asked(sender, message, now)
            case BalanceReply():
                self._balance.answered(message.answer, now)

    def begin_life(self, lane: int, life: int) -> None:
        """Process no more messages of a lane's earlier lives, which its successor sends again.

        Not before the first signal of this life is processed: a late signal of an earlier one would still count, and
        with it the messages before.
        """
        self._lives[lane] = max(life, self._lives.get(lane, 0))

    @property
    def received(self) -> dict[int, int]:
        """Numbers of the last messages of lanes that were processed."""
        found: dict[int, int] = {}
        for piece in self._pieces:
            for lane, last in piece.vectors.items():
                found[lane] = max(found.get(lane, 0), int(last.max()))
        return found

    def send(self, node: int, message: Message) -> None:
        """Leave a message in the outbox."""
        self.outbox.append((node, message))

    def _dispatch(self, tuples: Tuples) -> None:
        """Queue, park, keep or drop messages."""
        mine = self.owned.contains(tuples.positions)
        if mine.any():
            own = tuples.where(mine)
            self._newest = max(self._newest, int(own.stamps.max()))
            if self._parked is not None and (move := self._move):
                parked = move.ranges.contains(own.positions)
                self._parked.append(own.where(parked))
                own = own.where(~parked)
            self._enqueue(own, None)
        if mine.all():
            return
        rest = tuples.where(~mine)
        copied = self.view.covered(self.number).contains(rest.positions)
        self.store.add(rest.where(copied))
        # The owner has the rest: nodes get positions only when they have received their messages for a whole view.

    def _enqueue(self, tuples: Tuples, piece: _Piece | None) -> None:
        if not len(tuples.numbers):
            return
        threads = thread_of(tuples.positions, self.options.threads)
        for thread, queue in enumerate(self._queues):
            part = tuples if len(self._queues) == 1 else tuples.where(threads == thread)
            if len(part.numbers):
                queue.append(_Queued(part, piece))
                self.queued += len(part.numbers)
                if piece is not None:
                    piece.replays += 1

    # Processing.

    @property
    def waiting(self) -> Iterator[tuple[Tuples, int]]:
        """Messages that wait to be processed, at the end of those of which some were, and their number."""
        queued = (item for queue in self._queues for item in queue if isinstance(item, _Queued))
        return ((item.tuples, len(item.tuples.numbers) - item.begin) for item in queued)

    def work(self, thread: int, now: float, limit: int | None = None) -> int:
        """Process the next batch of a thread's queue, or the first part of it; return the number of its messages.

        Parameters
        ----------
        thread : int
        now : float
        limit : int, optional
            Greatest number of messages.

        Returns
        -------
        int
            0 if the queue is empty.
        """
        queue = self._queues[thread]
        while queue and not self.fenced:
            item = queue.popleft()
            if isinstance(item, Marker):
                self._pass(thread, item, now)
                continue
            if isinstance(item, Signal):
                self._signal(thread, item)
                continue
            end = len(item.tuples.numbers)
            count = end - item.begin
            if limit is not None and count > limit:
                count, end = limit, item.begin + limit
                queue.appendleft(item._replace(begin=end))  # the rest is not copied for each part
                if item.piece is not None:
                    item.piece.replays += 1
            self.queued -= count
            item = item.part(end)
            if item.piece is None and not item.begin and (limit is None or count < limit):
                item, more = self._joined(item, queue, limit)
                count += more
            self._process(thread, item, now)
            return count
        return 0

    def _joined(self, item: _Queued, queue: deque[_Queued | Marker | Signal], limit: int | None) -> tuple[_Queued, int]:
        """Join messages with those of the same lane that wait behind them; return them, and how many were added."""
        tuples = item.tuples
        parts, count = [tuples], 0
        while queue and isinstance(after := queue[0], _Queued) and after.piece is None and not after.begin:
            size = len(after.tuples.numbers)
            follows = after.tuples[:3] == tuples[:3] and after.tuples.numbers[0] > parts[-1].numbers[-1]
            fits = limit is None or len(tuples.numbers) + count + size <= limit
            if not follows or not fits or not tuples.payload.joins(after.tuples.payload):
                break
            queue.popleft()
            parts.append(after.tuples)
            count += size
        self.queued -= count
        return (item._replace(tuples=Tuples.join(parts)) if count else item), count

    def _pass(self, thread: int, marker: Marker, now: float) -> None:
        if marker.mapper == _FENCE:
            self._fences -= 1
            if not self._fences:
                self.state.resume()
        else:
            passed = self._passed[thread]
            passed[marker.mapper] = max(marker.epoch, passed.get(marker.mapper, 0))
        self._merge()

    def _signal(self, thread: int, signal: Signal) -> None:
        """Hand a signal on when all threads have processed the messages before it."""
        waiting = self._signals.setdefault(thread, [])
        waiting.append(signal)
        if len(self._signals) == len(self._queues):
            for others in list(self._signals.values()):
                others.pop(0)
            self._signals = {one: rest for one, rest in self._signals.items() if rest}
            self.state.signal(signal.mapper, signal.content)

    def _process(self, thread: int, item: _Queued, now: float) -> None:
        tuples = item.tuples
        if item.piece is None and tuples.life < self._lives.get(tuples.lane, 0):
            return
        for piece in self._pieces:
            part = tuples.where(piece.ranges.contains(tuples.positions))
            if not len(part.numbers):
                continue
            last = piece.vectors.setdefault(tuples.lane, np.zeros(self.options.threads, dtype=np.int64))
            if self.options.vectors:
                fresh = part.where(part.numbers > last[thread])
                self.duplicates += len(part.numbers) - len(fresh.numbers)
                part = fresh
            if not len(part.numbers):
                continue
            last[thread] = max(last[thread], part.numbers[-1])
            if not piece.replays:  # until then the mark of the old owner bounds what is still to be replayed
                piece.marks[thread] = max(piece.marks[thread], part.stamps.max())
            self.state.apply(part, None if item.piece is None else piece.context)
        if item.piece is not None:
            item.piece.replays -= 1
            if not item.piece.replays:
                self.log(now, "replayed", item.piece.ranges)
                self.state.resume()
                self._merge()
                self._advance_move(now)

    def _merge(self) -> None:
        """Join the pieces whose progress no longer differs for messages that are still to come."""
        ready = [piece for piece in self._pieces if not piece.replays and self._settled(piece.epoch)]
        if len(ready) < 2 or self._parked is not None:
            return
        # A lane that begins again at an earlier place sends messages that only some of the pieces contain.
        for lane in {lane for piece in ready for lane in piece.vectors}:
            numbers = [int(piece.vectors[lane].min()) if lane in piece.vectors else 0 for piece in ready]
            newest = max(int(piece.vectors[lane].max()) for piece in ready if lane in piece.vectors)
            if min(numbers) < newest and self.state.reached(lane) < newest:
                return
        first = ready[0]
        for piece in ready[1:]:
            first.ranges |= piece.ranges
            np.maximum(first.marks, piece.marks, out=first.marks)
            for lane, last in piece.vectors.items():
                first.vectors[lane] = np.maximum(last, first.vectors.get(lane, 0))
        self._pieces = [piece for piece in self._pieces if piece is first or piece not in ready]

    def _settled(self, epoch: int) -> bool:
        """Whether the state contains all messages that were sent under older views."""
        return not self._fences and all(
            passed.get(mapper, -1) >= epoch for passed in self._passed for mapper in self.view.senders
        )

    def _has_arrived(self, epoch: int) -> bool:
        """Whether all messages that were sent under older views have arrived, processed or not."""
        return not self._fences and all(self._arrived.get(mapper, -1) >= epoch for mapper in self.view.senders)

    def _piece(self, ranges: Ranges) -> _Piece:
        return _Piece(ranges, np.full(self.options.threads, np.iinfo(np.int64).min), {}, self.view.epoch)

    @property
    def owned(self) -> Ranges:
        """Positions whose messages this node processes."""
        return Ranges.union(piece.ranges for piece in self._pieces)

    @property
    def _copied(self) -> Ranges:
        """Positions of other nodes that this one holds copies of."""
        return self.view.covered(self.number) - self.view.interval(self.number)

    def _contained(self, tuples: Tuples, progress: Progress) -> NDArray[np.bool_]:
        """Return which messages a state of some progress contains."""
        threads = thread_of(tuples.positions, self.options.threads)
        if self.options.vectors:
            last = progress.vectors.get(tuples.lane)
            return np.zeros(len(threads), dtype=np.bool_) if last is None else tuples.numbers <= last[threads]
        # Stamps of messages that were processed later can be lower by the latency and by the difference of clocks.
        slack = round(2e6 * self.options.latency_s)
        lowest = np.iinfo(np.int64).min + slack
        return tuples.stamps < np.maximum(progress.marks, lowest)[threads] - slack

    # Checkpoints and copies.

    def checkpoint_soon(self, now: float) -> None:
        """Make a checkpoint at the next tick."""
        self._checkpoint_due = now

    def _checkpoint(self, now: float, handoff: Ranges = NOTHING) -> None:
        """Send what changed to all nodes with copies, and everything to those that lack it."""
        idle = np.array([not queue and self._parked is None for queue in self._queues])
        newest = np.where(idle, self._newest, np.iinfo(np.int64).min)  # so that idle threads do not hold back eviction
        context = self.state.context()
        pieces = tuple(
            piece.progress(EVERYTHING)
            if piece.replays
            else piece.progress(EVERYTHING, np.maximum(piece.marks, newest))._replace(context=context)
            for piece in self._pieces
        )
        self.serial += 1
        replaced, self._replaced = self._replaced, NOTHING
        changed = self.state.collect()
        deltas = (changed, self.state.extract(replaced)) if replaced else (changed,)
        for node in self._holders:
            repair = self._repairs.get(node)
            full = NOTHING
            if repair is not None and not repair.sent and self._has_arrived(repair.epoch) and self._parked is None:
                full = repair.ranges & self.owned
            extra = (self.state.extract(full),) if full else ()
            waiting = tuple(self._waiting_in(full)) if full else ()
            self._sent[node] = number = self._sent.get(node, 0) + 1
            if repair is not None and full:
                repair.sent = number
            message = Checkpoint(
                self.view.epoch, number, self.serial, pieces, deltas + extra, full, replaced - full, handoff, waiting
            )
            self.send(node, message)
        self._checkpoint_due = now + self.options.checkpoint_s

    def _waiting_in(self, ranges: Ranges) -> Iterator[Tuples]:
        """Iterate over the messages of some positions that wait to be processed."""
        for tuples, count in self.waiting:
            rest = tuples.take(np.arange(len(tuples.numbers) - count, len(tuples.numbers)))
            yield rest.where(ranges.contains(rest.positions))

    def progress(self) -> list[Progress]:
        """Return what the state of its positions contains."""
        context = self.state.context()
        found = ((piece, piece.progress(EVERYTHING)) for piece in self._pieces)
        # Signals may have passed what is still to be replayed: until then, the context of the old owner applies.
        return [one if piece.replays else one._replace(context=context) for piece, one in found]

    @property
    def behind(self) -> bool:
        """Whether messages that came before the latest signals are still to be processed, here or by another node.

        Those of positions that were taken over, or of which a move is in progress or was cancelled.
        """
        return self._parked is not None or self._fences > 0 or any(piece.replays for piece in self._pieces)

    @property
    def confirmed(self) -> int:
        """Serial number of the newest checkpoint that all secondaries have."""
        secondaries = self.view.secondaries(self.number) if self.number in self.view else []
        return min((self._copied_until.get(node, 0) for node in secondaries), default=self.serial)

    @property
    def _holders(self) -> list[int]:
        """Nodes that hold copies of this node's positions."""
        if self.number not in self.view:
            return []
        own = self.view.interval(self.number)
        shadows = [node for move in self.view.moves for node, ranges in move.shadows if ranges & own]
        return list(dict.fromkeys(self.view.secondaries(self.number) + shadows))

    def _copy(self, sender: int, checkpoint: Checkpoint, now: float) -> None:
        """Update the copy of another node's state."""
        theirs = self.view.interval(sender) & self._copied
        if checkpoint.number != self._received.get(sender, 0) + 1:
            self._stale |= (
                theirs  # one was lost: the copy and all messages since stay as they are until a full one arrives
            )
        self._received[sender] = checkpoint.number
        self.send(sender, Copied(self.view.epoch, checkpoint.serial))
        full = checkpoint.full & theirs
        self._in_sync |= full
        self._stale -= full
        usable = (self._in_sync - self._stale) & theirs
        if whole := (full | checkpoint.replaced) & usable:
            self.state.discard(whole)
        for delta in checkpoint.deltas:
            self.state.install(delta, usable)
        pieces = [piece._replace(ranges=piece.ranges & usable) for piece in checkpoint.pieces]
        self._known = [old._replace(ranges=old.ranges - usable) for old in self._known] + pieces
        self._known = [progress for progress in self._known if progress.ranges]
        self.store.evict(pieces)
        for tuples in checkpoint.waiting:
            self.store.add(tuples.where(full.contains(tuples.positions)))
        missing = (Ranges.union(piece.ranges for piece in checkpoint.pieces) & theirs) - usable
        if missing:
            self.send(sender, SyncRequest(self.view.epoch, missing, checkpoint.number))
        if full:
            owners = [move.owner for move in self.view.moves if self.number in dict(move.shadows)]
            for node in dict.fromkeys([sender, *owners]):
                self.send(node, SyncDone(self.view.epoch, full))
        if checkpoint.handoff:
            self._accept(sender, checkpoint.handoff, now)

    def _repair(self, node: int, ranges: Ranges, received: int | None = None) -> None:
        """Note that a node lacks a complete copy of some positions, after its last checkpoint if that is given."""
        repair = self._repairs.get(node)
        wanted = ranges & self.view.interval(self.number)
        if repair is not None and received is not None and (not repair.sent or received < repair.sent):
            wanted -= repair.ranges  # that copy is still to come
        if not wanted or node not in self._holders:
            return
        self._repairs[node] = _Repair(wanted | (repair.ranges if repair else NOTHING), self.view.epoch)

    def _synced(self, node: int, ranges: Ranges, now: float) -> None:
        if node in self._awaited:
            self._awaited[node] -= ranges
        if (repair := self._repairs.get(node)) is not None:
            repair.ranges -= ranges
            if not repair.ranges:
                del self._repairs[node]
                self.log(now, "in sync", ranges)
        self._advance_move(now)

    @property
    def vulnerable(self) -> Ranges:
        """Own positions of which not every secondary has a complete copy."""
        return Ranges.union(repair.ranges for repair in self._repairs.values())

    # The ring changes.

    def follow(self, now: float) -> None:
        """Use all newer views of the registry, one after the other."""
        for view in self.registry.since(self.view.epoch):
            if self.fenced:
                return
            self._adopt(view, now)
        if self.fenced:
            return
        for source, messages in list(self._held.items()):
            if messages[0].epoch <= self.view.epoch:
                del self._held[source]
                for message in messages:
                    self.receive(source[1], message, now)

    def _adopt(self, view: View, now: float) -> None:
        old, self.view = self.view, view
        me = self.number
        if me in old and me not in view:
            self._leave("left" if (move := _move_of(old, me)) and move.leaves else "fenced", now)
            return
        own, before = view.interval(me), old.interval(me)
        if own != before:
            self._balance.hold_off(now)
        handed, settled = NOTHING, False
        if self._parked is not None and (move := _move_of(old, me)) is not None:
            handed = self._settle_move(move, view, now)
            settled = self._parked is None
        for piece in self._pieces:
            piece.ranges &= own
        self._pieces = [piece for piece in self._pieces if piece.ranges]
        covered = view.covered(me)
        self.state.discard(EVERYTHING - covered)
        self.store.keep(covered)
        self._in_sync = (self._in_sync & self._copied) | (handed & covered)
        self._stale &= self._in_sync
        self._known = [known._replace(ranges=known.ranges & self._copied) for known in self._known]
        self._repairs = {node: repair for node, repair in self._repairs.items() if node in self._holders}
        for repair in self._repairs.values():
            repair.ranges &= own
        self._repairs = {node: repair for node, repair in self._repairs.items() if repair.ranges}
        for node in self._holders:
            missing = (own & view.covered(node)) - old.covered(node)
            if missing:
                self._repair(node, missing)
        self._watched(now)
        self._merge()
        if settled:
            self.state.resume()
        if _move_of(old, me) is not None and _move_of(view, me) is None:
            self._end_move(own == before, now)
        self._advance_move(now)

    def _leave(self, kind: str, now: float) -> None:
        """Stop: other nodes own the positions."""
        self.fenced = True
        for queue in self._queues:
            queue.clear()
        self.queued = 0
        self.state.discard(EVERYTHING)
        self._pieces, self._parked = [], None
        self.log(now, kind)

    def _take_over(self, ranges: Ranges, gone: Collection[int], now: float) -> None:
        """Own positions from now on: their copies are the state, and the messages that it lacks are replayed."""
        lost = ranges - self._in_sync
        if lost:
            self.log(now, "data loss", lost)
        self.state.activate(ranges, gone)
        empty = Progress(ranges, np.full(self.options.threads, np.iinfo(np.int64).min), {})
        known = [known._replace(ranges=known.ranges & ranges) for known in self._known]
        rest = ranges - Ranges.union(progress.ranges for progress in known)
        for progress in [*known, empty._replace(ranges=rest)]:
            if not progress.ranges:
                continue
            vectors = {lane: last.copy() for lane, last in progress.vectors.items()}
            piece = _Piece(
                progress.ranges, progress.marks.copy(), vectors, self.view.epoch + 1, context=progress.context
            )
            self._pieces.append(piece)
            for tuples in self.store.take(piece.ranges):
                self._enqueue(tuples.where(~self._contained(tuples, progress)), piece)
            if not piece.replays:
                self.log(now, "replayed", piece.ranges)
                self.state.resume()
        self._replaced |= ranges
        self._in_sync -= ranges
        self._stale -= ranges
        self._checkpoint_due = now
        self.log(now, "takeover", ranges)

    # Failures.

    def lose(self, node: int, now: float) -> None:
        """Note that a node has certainly failed, as its process or its connection has ended."""
        self._lost.add(node)
        if not self.fenced and self.number in self.view:
            self._monitor(now)
            if self._move is not None and self._has_lost(self._move.target, now):
                self._cancel(now)

    def _watched(self, now: float) -> None:
        """Start to watch the node counter-clockwise, if it is another one than before."""
        if self.number in self.view and (node := self.view.clockwise(self.number, -1)) not in self._heard:
            self._heard = {node: now}
            self._probe = None

    def _monitor(self, now: float) -> None:
        """Ask the node counter-clockwise for an answer when it has been silent, and replace it if there is none."""
        watched = self.view.clockwise(self.number, -1)
        if watched == self.number:
            return
        if watched in self._lost:
            self._recover(self._lost, now)
        elif now - self._heard.get(watched, now) <= self.options.detect_s:
            self._probe = None
        elif self._probe is None:
            self._probe = _Probe(now + self.options.ping_s, set(self.view.nodes.tolist()) - {self.number})
            for node in sorted(self._probe.asked):
                self.send(node, Ping(self.view.epoch))
        elif now >= self._probe.until:
            probe, self._probe = self._probe, None
            if watched in probe.asked - probe.answered:
                self._recover(probe.asked - probe.answered, now)

    def _recover(self, silent: set[int], now: float) -> None:
        """Take the positions of all silent nodes counter-clockwise over."""
        watched = self.view.clockwise(self.number, -1)
        while True:
            self.follow(now)
            if self.fenced or self.view.clockwise(self.number, -1) != watched:
                return
            failed = []
            node = watched
            while node in silent:
                failed.append(node)
                node = self.view.clockwise(node, -1)
            start = self.view.token(failed[-1])
            ranges = Ranges.arc(start, self.view.token(self.number))
            view = self.view.taken_over(self.number, start, failed)
            if self.registry.replace(view):
                self.log(now, "failure", ranges)
                self._take_over(ranges, failed, now)
                self.follow(now)
                return

    # Planned moves.

    @property
    def _move(self) -> Move | None:
        return _move_of(self.view, self.number)

    def give(
        self, target: int, now: float, *, zone: str = "", leaves: bool = False, part: tuple[int, int] | None = None
    ) -> bool:
        """Start to move positions to a node next to this one, or to a new one.

        Parameters
        ----------
        target : int
            A node that is not on the ring yet; the next node clockwise for the last positions; the one before for the
            first positions; either for all.
        zone : str, optional
            Fault zone of a new node.
        leaves : bool, optional
            Move everything and leave.
        part : (int, int), optional
            The first or the last positions of this node, as the first one and the one after the last [default: the
            last half, or all if the node leaves].

        Returns
        -------
        bool
            False if the interval cannot be split, or not in this way.
        """
        while True:
            self.follow(now)
            if self.fenced or self._move is not None:
                return False
            move = self._planned(target, part, leaves, zone)
            if move is None:
                self.log(now, "unsplittable", self.view.interval(self.number))
                return False
            after = self.view.moved(move)
            missing = {node: after.covered(node) - self.view.covered(node) for node in after.receivers}
            if not self.options.copies_first:
                missing = {target: missing[target] & move.ranges}
            shadows = tuple((node, lacks) for node, lacks in missing.items() if lacks)
            move = replace(move, shadows=shadows)
            if self.registry.replace(self.view.changed(moves=(*self.view.moves, move))):
                self._awaited = dict(shadows)
                self._move_until = now + self.options.move_s
                self._heard[target] = now
                self.follow(now)
                return True

    def _planned(self, target: int, part: tuple[int, int] | None, leaves: bool, zone: str) -> Move | None:
        """Return a move of some positions without its shadows, or None if the ring cannot be changed in this way."""
        view, me = self.view, self.number
        token, stop = view.token(me), view.token(view.clockwise(me))
        half = middle(token, stop)
        if leaves:
            start = token
        elif part is not None:
            start, stop = part[0], part[1] % CIRCLE
        elif half is not None:
            start = half
        else:
            return None
        move = Move(me, target, start, stop, (), leaves, zone)
        own, is_first = view.interval(me), start == token
        if target in view:
            beside = (view.clockwise(me, -1),) if is_first and not leaves else (view.clockwise(me),)
            if target not in beside and not (leaves and target == view.clockwise(me, -1)):
                return None
        if move.ranges - own or (not leaves and not own - move.ranges):
            return None
        return move if is_first or stop == view.token(view.clockwise(me)) else None

    def _advance_move(self, now: float) -> None:
        """Stop processing the positions of a move once all future holders have copies, and let the target go on."""
        move = self._move
        if move is None or self._parked is not None or self.fenced:
            return
        if any(self._awaited.values()) or any(repair.ranges & move.ranges for repair in self._repairs.values()):
            return
        if any(piece.replays and piece.ranges & move.ranges for piece in self._pieces):
            return
        self._parked, self._parked_context = [], self.state.context()
        whole, self._pieces = self._pieces, []
        for piece in whole:  # the progress of what is parked stays behind
            if moved := piece.ranges & move.ranges:
                copy = piece.progress(moved)
                self._pieces.append(replace(piece, ranges=moved, marks=copy.marks, vectors=copy.vectors))
                piece.ranges -= moved
            if piece.ranges:
                self._pieces.append(piece)
        for queue in self._queues:
            items = list(queue)
            queue.clear()
            for item in items:
                if not isinstance(item, _Queued):
                    queue.append(item)
                    continue
                item = item.part(len(item.tuples.numbers))  # noqa: PLW2901
                given = move.ranges.contains(item.tuples.positions)
                self.queued -= int(given.sum())
                if given.any():
                    self._parked.append(item.tuples.where(given))
                if not given.all():
                    queue.append(item._replace(tuples=item.tuples.where(~given)))
        self._move_until = now + self.options.handoff_s
        self._checkpoint(now, move.ranges)

    def _settle_move(self, move: Move, view: View, now: float) -> Ranges:
        """After a move ended: keep what was parked as copies, or process it after all."""
        if any(m == move for m in view.moves):
            return NOTHING
        parked, self._parked = self._parked or [], None
        if view.interval(self.number) & move.ranges:  # cancelled
            self._fences += len(self._queues)
            for tuples in parked:
                self._enqueue(tuples, None)
            for queue in self._queues:
                queue.append(Marker(_FENCE, 0))
            return NOTHING
        # With few nodes the old owner becomes a secondary, and its state is the one that it handed over.
        given = (piece.progress(move.ranges) for piece in self._pieces)
        progress = [one._replace(context=self._parked_context) for one in given if one.ranges]
        self._known += progress
        self.state.deactivate(move.ranges)
        for tuples in parked:
            self.store.add(tuples)
        return move.ranges

    def _has_lost(self, target: int, now: float) -> bool:
        """Whether a new node, which the ring does not watch yet, has failed or no longer answers."""
        if target in self.view:
            return False
        return target in self._lost or now - self._heard.get(target, now) > self.options.detect_s

    def _cancel(self, now: float) -> None:
        while not self.fenced and (move := self._move) is not None:
            moves = tuple(m for m in self.view.moves if m != move)
            self.registry.replace(self.view.changed(moves=moves))
            self.follow(now)

    def _end_move(self, cancelled: bool, now: float) -> None:
        self.log(now, "cancelled" if cancelled else "moved")
        self._balance.moved(cancelled, now)

    def _accept(self, owner: int, ranges: Ranges, now: float) -> None:
        """Take positions over that their owner has stopped processing."""
        while True:
            self.follow(now)
            move = _move_of(self.view, owner)
            if (
                self.fenced
                or move is None
                or move.target != self.number
                or move.ranges != ranges
                or ranges - self._in_sync
            ):
                return
            if self.registry.replace(self.view.moved(move)):
                self._balance.accepted(now)
                self._take_over(ranges, (owner,) if move.leaves else (), now)
                self.follow(now)
                return

    # Time.

    def tick(self, now: float) -> None:
        """Do what is due; to be called several times per heartbeat."""
        if self.fenced:
            return
        self.follow(now)
        if self.fenced or self.number not in self.view:
            return
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + self.options.heartbeat_s
            if (following := self.view.clockwise(self.number)) != self.number:
                self.send(following, Heartbeat(self.view.epoch))
            if (move := self._move) is not None and move.target not in self.view:
                self.send(move.target, Ping(self.view.epoch))
        if now >= self._checkpoint_due:
            self._checkpoint(now)
        self._monitor(now)
        if self._move is not None and (now >= self._move_until or self._has_lost(self._move.target, now)):
            self._cancel(now)
        self._balance.tick(now)

    def log(self, now: float, kind: str, ranges: Ranges = NOTHING) -> None:
        """Report an event."""
        self.events.append(Event(now, kind, ranges))


#: Mapper of markers that a node queues itself.
_FENCE = -1


def _move_of(view: View, owner: int) -> Move | None:
    return next((move for move in view.moves if move.owner == owner), None)
