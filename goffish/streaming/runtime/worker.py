"""A worker of a flow: all operators, some partitions of the sources, and a node of the ring for the keyed state.

A worker sends nothing, and reads a clock for metrics only: its methods take the time and leave messages in `outbox`.
Records with a key cross from worker to worker, all others stay within one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from goffish.errors import JobError
from goffish.streaming.batches import FIRST, LAST, Batch, column_of
from goffish.streaming.checkpoints import CheckpointFolder
from goffish.streaming.hashing import original_keys, positions_of
from goffish.streaming.metrics import Counts
from goffish.streaming.operators import Clock, EventTime, Failure
from goffish.streaming.pipeline import Pipeline, least, named
from goffish.streaming.ring.messages import Message, Progress, Tuples
from goffish.streaming.ring.node import Node
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import Positions, Ranges
from goffish.streaming.ring.sender import Lane, Sender
from goffish.streaming.ring.view import Registry
from goffish.streaming.runtime.outputs import Output, OutputCopy
from goffish.streaming.runtime.packing import Records
from goffish.streaming.runtime.partition import Partition, PartitionCopy
from goffish.streaming.runtime.plan import (
    ALL,
    Acknowledged,
    Delivery,
    Full,
    Handed,
    Mark,
    Marks,
    Plan,
    SaveSoon,
    lane_id,
)
from goffish.streaming.runtime.saved import LANES, Given, beside_states, clipped, read_saved
from goffish.streaming.runtime.stages import Arc, any_worker, firsts_of, spread
from goffish.streaming.sinks import Writer
from goffish.streaming.sources import Pace, Position, Reader
from goffish.streaming.state import Delta
from goffish.streaming.topology import Channel, Operator, SourceOptions, Topology
from goffish.streaming.updates.migration import (
    HeldRecords,
    check_sample,
    forms_of,
    migrate_positions,
    take_over,
    to_migrate,
)
from goffish.streaming.updates.plan import UpdatePlan, channel_name
from goffish.streaming.updates.versions import Strategy

#: Between two signals of a worker; longer with more workers than `_MANY`, as each sends them to all others.
_SIGNAL_S, _MANY = 0.02, 8
_DISCOVER_S = 1.0
#: What operators with a key send waits for a checkpoint, which is therefore made early: after so many times the time
#: that the last one has taken.
_SAVINGS = 10
#: Messages that wait in a worker before no worker reads its sources, and for how long.
_UNACKNOWLEDGED, _FULL_S = 1 << 18, 0.1
#: Between two requests for checkpoints of all workers, while partitions are to be handed to others.
_SAVE_S = 0.2
#: Lane entry with the number of the checkpoint.
_SERIAL = ""


@dataclass
class _Version:
    """A version of the flow in this worker."""

    plan: Plan
    pipeline: Pipeline


@dataclass(frozen=True)
class Begin:
    """Where a worker begins.

    Attributes
    ----------
    folder : Path, optional
        Folder with a folder of each worker's checkpoints.
    old : sequence of int
        Workers of the run that is resumed.
    version : int
        Of the flow.
    origins : mapping
        Versions with which the states of operators began.
    update : UpdatePlan, optional
        That was in progress when the run that is resumed ended.
    spool : Path, optional
        Folder for what sinks of all workers have prepared.
    delivery : Delivery
    here : bool
        Whether the worker is on the machine where the run was started.
    """

    folder: Path | None = None
    old: Sequence[int] = ()
    version: int = 0
    origins: Mapping[str, int] = field(default_factory=dict)
    update: UpdatePlan | None = None
    spool: Path | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    here: bool = True


def recover(topology: Topology, worker: int, serial: int | None, spool: Path | None) -> None:
    """Publish the files that a worker which is gone has prepared for a checkpoint, and discard later ones."""
    for name, sink in topology.sinks.items():
        writer = sink.writer(name)
        writer.part, writer.spool = str(worker), spool
        writer.recover(serial)


class Worker:
    """One of the workers of a flow.

    While the flow is updated, a worker has the operators of two versions; those that do not differ are the same
    instances. Records name the version whose operators have sent them.

    Parameters
    ----------
    plan : Plan
    number : int
        Its id on the ring.
    registry : Registry
    options : Options
    now : float
        Time in seconds.
    begin : Begin, optional
        Where it begins, in a run that resumes another one.

    Attributes
    ----------
    outbox : list of (int, Message)
        Messages to send, with their receivers, in order. Messages to nodes are ordered among themselves, and so are
        those of the lanes.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        registry: Registry,
        options: Options,
        now: float,
        begin: Begin | None = None,
    ) -> None:
        begin = begin or Begin()
        folder, old, version, origins, spool = begin.folder, begin.old, begin.version, begin.origins, begin.spool
        self.number, self.registry = number, registry
        self.outbox: list[tuple[int, Any]] = []
        self.version = self._done = version
        self._spool, self._sends_at_once = spool, begin.delivery == Delivery.AT_LEAST_ONCE
        self._here = begin.here
        begun = time.monotonic()
        pipeline = Pipeline(plan.topology, partial(self._exchange, version), f"{number}", version, origins, spool)
        self.operators_s = time.monotonic() - begun  # in which the last operators were made
        self._versions = {version: _Version(plan, pipeline)}
        self._since = dict.fromkeys(plan.keyed, version)  # versions that channels came with
        self._update: UpdatePlan | None = None
        self._paused = False
        self._past_by: int | None = None  # checkpoint, with which nothing will be read that the old version processes
        self._activated_by = 0  # checkpoint that contains which records the active version is the first to process
        self._spread = 0  # records that were sent to any worker of a stage
        self._ended: set[str] = set()  # operators that have nothing of the old version left
        self._ended_at = 0  # the first checkpoint that contains the last of these
        self._migrated: set[str] = set()  # operators whose state here has the form of the new version
        self._held: dict[str, HeldRecords] = {}  # for operators whose state is still to be migrated
        self.lost = 0
        self.saving_s = 0.0  # the longest of the last checkpoints
        self._keyed = pipeline.states
        self._copies = Pipeline(plan.topology, origins=origins).states
        self._arcs = _arcs(plan, pipeline)
        self._lane_copies: dict[str, tuple[int, int, Any]] = {}  # of other workers: number, token and value
        self._copied_epoch = -1  # of the last checkpoint
        self._seal_due = now
        self._partitions: dict[str, Partition] = {}
        self._turn: deque[str] = deque()
        self._handed: dict[str, PartitionCopy] = {}  # that may not be in checkpoints of the workers that have them now
        self._unread: set[str] = set()  # of `_handed`: partitions that this worker cannot read, and must hand on
        self._hand_due = now
        self._paces = {name: Pace(one.options.source.rate) for name, one in plan.sources.items()}  # type: ignore[union-attr]
        fed = (channel for channel, names in plan.feeds.items() if names)
        unsent = Mark(0, 0, dict.fromkeys(fed, FIRST), newest=version)
        self._outputs = {number: Output(Lane(lane_id(f"@{number}")), unsent)}
        self._current: Partition | None = None
        self._signalled: dict[int, Mark] = {}
        self._signalled_epoch = -1
        unknown = Mark(-1, 0, {}, newest=-1)
        self._marks: dict[int, Mark] = {lane_id(name): unknown for name in registry.lanes()}
        self._reached: dict[int, int] = {}  # last messages of lanes
        self._acknowledged: dict[int, dict[int, int]] = {}
        self._answers: dict[int, Acknowledged] = {}  # the last ones
        self._passed: list[tuple[int, Acknowledged]] = []  # serial, and what it contains
        self._begins: list[tuple[int, list[tuple[Reader, Position]]]] = []  # serial, and where reading begins again
        self._prepared: list[int] = []  # serial numbers of checkpoints that are not confirmed
        self._clean = False  # whether nothing has changed, nor been sent to sinks, since a checkpoint was asked for
        self._last = 0  # that checkpoint
        self._signal_due = self._discover_due = now
        self._now = now
        self._given: list[Given] = []
        self._recoveries: list[tuple[int, int | None]] = []  # workers and checkpoints whose files are to be published
        self._full_until = self._full_due = now
        self.stopping = False  # whether to read no more
        self._loops_empty = False  # at all workers, after the sources have ended
        self._activated = False  # whether the state has entries that do not count as changed
        self._run = max(old, default=-1) + 1  # the numbers of workers increase from run to run
        self._folder = None
        if folder is not None:
            self._folder = CheckpointFolder(folder / str(number), plan.topology.name, plan.topology.fingerprint)
        if begin.update is not None:
            self.prepare_update(begin.update)
            self.version = begin.update.number
            self._paused = begin.update.strategy == Strategy.NCH
        restored = None if folder is None or not old else self._restore(folder, old)
        self._sources = {
            name: one.options.source.begin(resumed=bool(restored))  # type: ignore[union-attr]
            for name, one in plan.sources.items()
        }
        self.node = Node(number, registry, self, options, now, restored)
        self._sender = Sender(number, self.node.view)
        self._post(list(self._sender.start()))
        if number in self.node.view:
            registry.claim(f"@{number}", number)
        for writer in self._writers:
            writer.recover(None)
        self._adopt_outputs()
        self._open(now)
        self._after()

    @property
    def plan(self) -> Plan:
        """What follows from the newest version that is active."""
        return self._versions[self.version].plan

    @property
    def pipeline(self) -> Pipeline:
        """Operators of the newest version that is active."""
        return self._versions[self.version].pipeline

    @property
    def pipelines(self) -> list[Pipeline]:
        """Operators of all versions; those of the active one first."""
        numbers = sorted(self._versions, key=lambda number: number != self.version)
        return [self._versions[number].pipeline for number in numbers]

    def _before(self, pipeline: Pipeline) -> list[Writer]:
        """Return the writers of pipelines before one, as pipelines can share them."""
        pipelines = self.pipelines
        return [writer for one in pipelines[: pipelines.index(pipeline)] for writer in one.all_writers]

    @property
    def _writers(self) -> list[Writer]:
        found = {id(writer): writer for one in self.pipelines for writer in one.all_writers}
        return list(found.values())

    # Updates.

    @property
    def newest(self) -> int:
        """The newest version that is prepared."""
        return max(self._versions)

    def prepare_update(self, update: UpdatePlan) -> None:
        """Make the operators of a new version, beside those of the active one."""
        if update.number in self._versions or update.number <= self.version:
            return
        for name in self._leaving:
            self._read_on(name)
        plan = Plan(update.new)
        for name in update.migrated:
            check_sample(self.pipeline.instances[name], update.new.operator(name))
        begun = time.monotonic()
        pipeline = self.pipeline.updated(update, partial(self._exchange, update.number))
        self.operators_s = time.monotonic() - begun
        copies = Pipeline(update.new, origins=pipeline.origins).states
        known = {id(writer) for writer in self._writers}
        for writer in pipeline.all_writers:
            if id(writer) not in known:
                writer.recover(None)
        self._versions[update.number] = _Version(plan, pipeline)
        self._update = update
        for name in plan.keyed:
            self._since.setdefault(name, update.number)
        self._held = {name: HeldRecords() for name in update.migrated}
        self._keyed |= pipeline.states | {update.held_name(name): held for name, held in self._held.items()}
        self._copies = copies | {update.held_name(name): HeldRecords() for name in update.migrated} | self._copies
        self._arcs |= _arcs(plan, pipeline)
        self._arcs |= {update.held_name(name): plan.arcs[name] for name in update.migrated}
        output = self._outputs[self.number]
        fed: Marks = {name: FIRST for name, names in plan.feeds.items() if names}
        output.mark = output.mark._replace(marks=fed | output.mark.marks, newest=update.number)
        self._signal_due = self._now

    def activate_update(self, number: int, now: float, *, paused: bool = False) -> None:
        """Use a new version for what is read from now on, and for what its strategy says.

        Parameters
        ----------
        number : int
        now : float
        paused : bool, optional
            Read nothing until the old version has nothing left.
        """
        if self.version >= number:
            return
        self._now = now
        self.version, self._paused, self._signal_due, self._clean = number, paused, now, False
        self._past_by = None
        self._follow_version()
        self._propagate()
        self.node.checkpoint_soon(now)

    def _follow_version(self) -> None:
        """Let the active version process what is read from now on, from partitions of which no other worker has more.

        Nothing more is read from them before a checkpoint contains where it begins: a worker that reads them again
        must use the same versions, as these may send different numbers of messages.
        """
        found = [one for one in self._partitions.values() if one.versions[-1][1] < self.version]
        found = [one for one in found if self._has_caught_up(one)]
        for one in found:
            one.follow(self.version)
        if found:
            self._activated_by = self.node.serial + 1
            self.node.checkpoint_soon(self._now)

    def _has_caught_up(self, partition: Partition) -> bool:
        """Whether everything has been read again that a worker before may have sent."""
        if not partition.caught_up:
            base, nodes = lane_id(partition.name), self.node.view.nodes.tolist()
            known = [self._answers.get(node) for node in nodes]
            partition.caught_up = all(
                one is not None
                and one.lives.get(base, -1) >= partition.life
                and all(lane.number >= one.received.get(lane.lane, 0) for lane in partition.lanes.values())
                for one in known
            )
        return partition.caught_up

    def _is_saved(self, given: Given) -> bool:
        """Whether checkpoints of the new owners contain positions that this worker has given away."""
        view = self.node.view
        owners = [node for node in view.nodes.tolist() if view.interval(node) & given.ranges]
        answers = [self._answers.get(node) for node in owners if node != self.number]
        return all(one is not None and one.epoch >= view.epoch for one in answers)

    @property
    def drained(self) -> bool:
        """Whether this worker has nothing of the old version left, and checkpoints contain that.

        What it took over from another worker counts as well.
        """
        if self._update is None or self._outputs[self.number].mark.version(ALL) < self._update.number:
            return False
        old = self._versions[min(self._versions)].plan
        ended = self._ended >= old.receivers.keys() and self._migrated >= self._update.migrated
        past = self._past_by is not None and self.node.confirmed >= self._past_by and not self._handed
        return ended and past and not self.node.behind and self.node.confirmed >= self._ended_at

    def complete_update(self, number: int) -> None:
        """Remove the operators that only the version before one has."""
        update = self._update
        if update is None or update.number != number:
            return
        self._update = None
        kept = self._versions[update.number].pipeline
        writers = {id(writer) for writer in kept.all_writers}
        for writer in self._writers:
            if id(writer) not in writers:
                writer.close()
        self._versions = {update.number: self._versions[update.number]}
        self._ended.clear()
        self._migrated.clear()
        self._held = {}
        self._done, self._paused = update.number, False
        for states in (self._keyed, self._copies):
            for name in states.keys() - kept.states.keys():
                del states[name]
        if self._folder is not None:
            self._folder.fingerprint = update.new.fingerprint
        self._activated = True
        self._signal_due = self._now

    def abort_update(self) -> None:
        """Remove the operators of a version that was not activated."""
        if self._update is None or self.version == self._update.number:
            return
        added = self._versions.pop(self._update.number).pipeline.states.keys() - self.pipeline.states.keys()
        added |= {self._update.held_name(name) for name in self._held}
        self._held = {}
        for states in (self._keyed, self._copies):
            for name in added:
                states.pop(name, None)
        self._since = {channel: since for channel, since in self._since.items() if since < self._update.number}
        self._update = None

    def _migrate(self) -> None:
        """Migrate state to which the old version adds nothing any more, and process the records that wait for it."""
        update = self._update
        if update is None or self.version < update.number or self.node.behind:
            return
        old, new = (self._versions[number] for number in (min(self._versions), update.number))
        for name in update.migrated - self._migrated:
            if not all(
                update.strategy == Strategy.NCL or channel in update.moving or self._is_past(channel, update.number)
                for channel in old.plan.receivers[name]
            ):
                continue
            take_over(old.pipeline.instances[name], new.pipeline.instances[name])
            self._migrated.add(name)
            self._clean, self._ended_at = False, self.node.serial + 1
            if (released := self._held[name].release(name)) is not None:
                batch, new.pipeline.read_at = released
                new.pipeline.deliver(name, 0, batch)
            new.pipeline.advance(name, new.pipeline.instances[name].watermark)

    @property
    def _frozen(self) -> set[str]:
        """Operators that get no watermarks, as records for them wait until their state is migrated."""
        update = self._update
        return set() if update is None or self.version < update.number else {*update.migrated} - self._migrated

    def _end_old(self) -> None:
        """End the windows of old operators to which nothing is sent any more."""
        update = self._update
        if update is None or self.version < update.number or self.node.behind:
            return
        old = self._versions[min(self._versions)]
        for one in old.plan.topology.operators:
            name = one.name
            if name not in old.plan.receivers or name in self._ended:
                continue
            if not all(self._is_past(channel, update.number) for channel in self._channels_of(name)):
                continue
            self._ended.add(name)
            self._ended_at = self.node.serial + 1
            self.lost += old.pipeline.end_windows(update, [name])

    def _is_past(self, channel: str, number: int) -> bool:
        """Whether all lanes have sent everything to a channel that versions before one send."""
        return self._is_known and all(mark.version(channel) >= number for mark in self._marks.values())

    @property
    def _is_known(self) -> bool:
        """Whether all workers have processed what came with their positions in the newest view."""
        members = (lane_id(f"@{node}") for node in self.node.view.nodes.tolist())
        return all(lane in self._marks and self._marks[lane].epoch >= self.node.view.epoch for lane in members)

    def _past_versions(self) -> dict[str, int] | None:
        """Return the versions before which the operators of this worker with a key send nothing any more."""
        update = self._update
        if update is None or self.version < update.number:
            return None
        old = self._versions[min(self._versions)].plan
        waiting = old.receivers.keys() - self._ended
        feeds = [entry for version in self._versions.values() for entry in version.plan.feeds.items()]
        held = {channel for channel, names in feeds if names & waiting}
        past = {channel for channel, _ in feeds} - held | ({ALL} if not waiting else set())
        return dict.fromkeys(past, update.number)

    # Messages.

    def receive(self, sender: int, message: Message | Acknowledged | Full | SaveSoon | Handed, now: float) -> None:
        """Take a message of a worker."""
        self._now = now
        if isinstance(message, Full):
            self._full_until = now + _FULL_S
        elif isinstance(message, SaveSoon):
            self.node.checkpoint_soon(now)
        elif isinstance(message, Handed):
            self._open(now)
        elif isinstance(message, Acknowledged):
            known = self._acknowledged.setdefault(sender, {})
            known |= message.numbers
            self._answers[sender] = message
            self._forget()
            self._given = [one for one in self._given if not self._is_saved(one)]
            self._handed = {name: one for name, one in self._handed.items() if not self._is_read(name, one)}
        else:
            self.node.receive(sender, message, now)
        self._after()

    def lose(self, worker: int, now: float) -> None:
        """Note that another worker has ended."""
        self._now = now
        self.node.lose(worker, now)
        self._after()

    def close(self) -> None:
        """Close the partitions that this worker reads, and discard what writers have not prepared."""
        for one in self._partitions.values():
            if one.reader is not None:
                one.reader.close()
        for writer in self._writers:
            writer.close()

    def _post(self, messages: list[tuple[int, Any]]) -> None:
        self.outbox += messages

    def _after(self) -> None:
        """Send what has become possible, and take what this worker has sent to itself."""
        self._follow()
        confirmed = self.node.confirmed
        if self._prepared and self._prepared[0] <= confirmed:
            self._confirm(confirmed)
        self._post(self.node.outbox)
        self.node.outbox = []
        mine = [message for node, message in self.outbox if node == self.number]
        if mine:
            self.outbox = [entry for entry in self.outbox if entry[0] != self.number]
            for message in mine:
                self.receive(self.number, message, self._now)

    def _follow(self) -> None:
        if self._sender.view is not self.node.view:
            for view in self.registry.since(self._sender.view.epoch):
                if view.epoch <= self.node.view.epoch:
                    self._post(list(self._sender.follow(view)))

    def _confirm(self, serial: int) -> None:
        """Publish what checkpoints up to one contain, which all secondaries have now."""
        while self._prepared and self._prepared[0] <= serial:
            number = self._prepared.pop(0)
            for pipeline in self.pipelines:
                pipeline.commit(number, self._before(pipeline))
        if serial >= self._activated_by:
            self._activated_by = 0
        for output in self._outputs.values():
            self._release(output, serial)
        for number, begins in self._begins:
            for reader, position in begins if number <= serial else ():
                reader.saved(position)
        self._begins = [entry for entry in self._begins if entry[0] > serial]
        contained = [passed for number, passed in self._passed if number <= serial]
        self._passed = [entry for entry in self._passed if entry[0] > serial]
        if contained:
            self._post([(node, contained[-1]) for node in self.node.view.nodes.tolist()])

    def _release(self, output: Output, serial: int | None) -> None:
        """Send what operators with a key have sent until a checkpoint that is confirmed."""
        for positions, records in output.release(serial):
            self._multicast(output.lane, positions, records)
        self._signal_due = self._now

    def _forget(self) -> None:
        """Drop what the checkpoints of all receivers contain."""
        for output in self._outputs.values():
            output.forget(self._known(output.lane.lane))
        for one in self._partitions.values():
            one.forget(self._known)

    def _known(self, lane: int) -> int:
        """Return the number of the last message of a lane that the checkpoints of all workers contain."""
        return min(self._acknowledged.get(node, {}).get(lane, 0) for node in self.node.view.nodes.tolist())

    # Time.

    def work(self, now: float, limit: int | None = None) -> int:
        """Process the next batch that has arrived, at most `limit` records of it, and return their number."""
        self._now = now
        count = sum(self.node.work(thread, now, limit) for thread in range(self.node.options.threads))
        self._clean &= not count
        self._after()
        return count

    def tick(self, now: float) -> None:
        """Do what is due; to be called several times per heartbeat."""
        self._now = now
        waits = self._outputs[self.number].held and not any(pipeline.unpublished for pipeline in self.pipelines)
        if waits and not self._prepared and now >= self._seal_due:
            self.node.checkpoint_soon(now)
        self.node.tick(now)
        if self.node.fenced:
            return
        if now >= self._discover_due:
            self._discover(now)
        if now >= self._signal_due:
            self._signal(now)
        self._hand_over(now)
        self._after()

    @property
    def counts(self) -> dict[str, Counts]:
        """Counters of all operators."""
        targets = {name: channel.target for one in self._versions.values() for name, channel in one.plan.keyed.items()}
        waiting = dict.fromkeys(targets.values(), 0) | {name: len(held) for name, held in self._held.items()}
        for tuples, count in self.node.waiting:
            waiting[targets[tuples.payload.channel]] += count
        late: dict[str, int] = {}
        for instance in {id(one): one for p in self.pipelines for one in p.instances.values()}.values():
            late[instance.name] = late.get(instance.name, 0) + instance.late
        return {
            name: replace(one, queue=waiting.get(name, 0), late=late[name])
            for pipeline in reversed(self.pipelines) for name, one in pipeline.counts.items()
        }  # fmt: skip

    @property
    def reading(self) -> bool:
        """Whether there are partitions to read."""
        return bool(self._turn) and not self.stopping

    @property
    def full(self) -> bool:
        """Whether too much waits in this worker until checkpoints contain it."""
        return self._outputs[self.number].unacknowledged > _UNACKNOWLEDGED

    def hold_back(self, now: float) -> None:
        """Let no worker read its sources for a moment, as too much waits in this one."""
        if now >= self._full_due:
            self._full_due = now + _FULL_S / 2
            self._post([(node, Full()) for node in self.node.view.nodes.tolist()])

    def held_back(self, now: float) -> bool:
        """Whether this worker must not read its sources, as too much waits in another one."""
        return now < self._full_until

    @property
    def finished(self) -> bool:
        """Whether all sources have ended or are to stop, and everything is processed, confirmed and published here."""
        reached = (
            one.pipeline.instances[name].watermark
            for one in self._versions.values() for name, channels in one.plan.receivers.items() if channels
        )  # fmt: skip
        ended = self.stopping or (
            all(mark.newest >= 0 and set(mark.marks.values()) <= {LAST} for mark in self._marks.values())
            # Operators get the last watermark only when all workers have processed what came with a move.
            and all(watermark == LAST for watermark in reached)
        )
        return ended and self._settled

    @property
    def quiet(self) -> bool:
        """Whether all sources of this worker have ended, and nothing is left here but what loops may send back."""
        unread = any(one.reader is not None for one in self._partitions.values())
        return self.plan.loops and not self._loops_empty and not unread and not self._unread and self._settled

    def end_loops(self, now: float) -> None:
        """Note that all workers are quiet: windows may end."""
        self._loops_empty, self._signal_due = True, now

    @property
    def _settled(self) -> bool:
        """Whether everything that was read and received is processed, confirmed and published."""
        pending = [writer.pending for writer in self._writers]
        empty = (
            not self.reading and not self.node.queued and not any(o.held or o.closing for o in self._outputs.values())
        )
        if any(pending) or not empty or self.node.vulnerable or self.node.behind:
            return False
        lanes = [lane for one in self._partitions.values() for lane in one.lanes.values()]
        if (self.stopping or self.plan.loops) and any(self._known(lane.lane) < lane.number for lane in lanes):
            return False  # without the last mark of a lane, others do not know that records are on their way
        if not self._clean:
            self._clean = True
            self._last = self.node.serial + 1
            self.node.checkpoint_soon(self._now)
        if self.node.serial < self._last or any(serial <= self._last for serial in self._prepared):
            return False  # later checkpoints contain nothing new
        return all(output.empty for output in self._outputs.values())

    # Sources.

    def _open(self, now: float) -> None:
        """Open the partitions that this worker reads and has not opened yet."""
        for name, life in self.registry.lanes(self.number).items():
            if name in self._partitions or name.startswith("@"):
                continue
            source, partition = name.split("\n", 1)
            operator = self.plan.sources[source]
            if not self._can_read(source):
                if name not in self._unread:
                    # Its position is copied and saved with the lanes of this worker until another one has it.
                    self._handed[name] = PartitionCopy(life, self._newest_copy(name, life).history)
                    self._unread.add(name)
                continue
            history = list(self._newest_copy(name, life).history)
            saved = history[0] if history else {}  # later messages may not have arrived everywhere
            numbers = saved.get("numbers", {})
            lanes = {path: Lane(lane_id(name + path), life, number) for path, number in numbers.items()}
            versions = history[-1]["versions"] if history else ((0, self.version),)
            clocks = {}
            for one in self._timed(operator):
                clocks[one.name] = clock = Clock(one.options.time or "", one.options.lateness)  # type: ignore[union-attr]
                clock.watermark = saved.get("clocks", {}).get(one.name, FIRST)
            with named(source):
                opened = None if saved.get("done") else self._sources[source].open(partition, saved.get("position"))
            read, published = saved.get("records", 0), history[-1]["records"] if history else 0
            partition_ = Partition(
                name, operator, life, lanes, versions, clocks, opened, now, history,
                not life and not history, read, published,
            )  # fmt: skip
            if not history:
                partition_.history.append(partition_.now)
            self._partitions[name] = partition_
            self._handed.pop(name, None)
            self._signal_due = now
            self._past_by = None
            if opened is not None:
                if all(self._partitions[one].source.name != source for one in self._turn):
                    # No records are due of the time in which it had none to read.
                    self._paces[source] = Pace(operator.options.source.rate)  # type: ignore[union-attr]
                self._turn.append(name)

    def _can_read(self, source: str) -> bool:
        return self._here or source not in self.plan.here

    def _newest_copy(self, name: str, life: int) -> PartitionCopy:
        """Return from where a partition is to be read."""
        copy: PartitionCopy
        *_, copy = self._lane_copies.pop(name, (0, 0, PartitionCopy()))
        handed = self.registry.handed(name) if life else None
        if handed is None:
            return copy
        begin = PartitionCopy.from_json(handed)
        return copy if copy.life > begin.life else begin

    # Partitions that move to other workers.

    @property
    def _leaving(self) -> list[str]:
        return [name for name, one in self._partitions.items() if one.target is not None]

    @property
    def partitions(self) -> dict[str, int]:
        """Numbers of partitions of sources that this worker reads, or has to hand on as it cannot read them."""
        found = dict.fromkeys(self.plan.sources, 0)
        for name in (*self._turn, *self._unread):
            found[name.split("\n", 1)[0]] += 1
        return found

    @property
    def handing_over(self) -> bool:
        """Whether partitions are to be handed to other workers."""
        return bool(self._leaving)

    def give_partitions(self, source: str, target: int, count: int, now: float) -> None:
        """Begin to hand partitions that this worker reads to another one.

        Nothing more is read from them. When checkpoints of all workers contain what was read, the other worker reads
        on, and nothing is read twice. Those that this worker cannot read are handed over at once, as it has read
        nothing of them.

        Parameters
        ----------
        source : str
        target : int
        count : int
            How many; fewer if some are still being repeated.
        now : float
        """
        for name in [one for one in self._unread if one.split("\n", 1)[0] == source]:
            if self.registry.hand(name, self.number, target, self._handed[name].to_json()):
                self._unread.remove(name)
                self._post([(target, Handed())])
        if self._update is not None or target == self.number:
            return
        found = [(name, self._partitions[name]) for name in reversed(self._turn)]
        given = [name for name, one in found if one.source.name == source and not one.is_repeated][:count]
        for name in given:
            self._turn.remove(name)
            self._partitions[name].target = target
        self._hand_due = now

    def _read_on(self, name: str) -> None:
        """Keep a partition that was to be handed over."""
        self._partitions[name].target = None
        self._turn.append(name)

    def _hand_over(self, now: float) -> None:
        """Hand partitions to other workers where everything that was read is in checkpoints."""
        for name in self._leaving:
            one = self._partitions[name]
            target, copy = one.target, one.copy
            assert target is not None and one.reader is not None
            if target not in self.node.view or self.stopping:
                self._read_on(name)
                continue
            waits = self.node.confirmed < one.sealed or (self._prepared and self._prepared[0] <= one.sealed)
            if waits or one.history != [one.now]:
                continue
            if not self.registry.hand(name, self.number, target, copy.to_json()):
                self._read_on(name)  # the ring has changed
                continue
            reader = one.reader
            reader.close()
            self._begins = [(n, [begin for begin in begins if begin[0] is not reader]) for n, begins in self._begins]
            self._handed[name] = copy
            del self._partitions[name]
            self._post([(target, Handed())])
        if self._leaving and now >= self._hand_due:
            self._hand_due = now + _SAVE_S
            self._post([(node, SaveSoon()) for node in self.node.view.nodes.tolist()])

    def _is_read(self, name: str, handed: PartitionCopy) -> bool:
        """Whether checkpoints of the worker that a partition was handed to, or of a later one, contain it."""
        lane, view = lane_id(name), self.node.view
        answers = [self._answers.get(node) for node in view.nodes.tolist()]
        return all(
            one is not None and one.epoch >= view.epoch and one.lives.get(lane, -1) > handed.life for one in answers
        )

    def _timed(self, source: Operator) -> list[Operator]:
        times = [one for one in self.plan.topology.operators if one.kind == "event_time"]
        return [source, *times]

    def _discover(self, now: float) -> None:
        """Read partitions that are new."""
        self._discover_due = now + _DISCOVER_S
        if self.number not in self.node.view:
            return
        for name, source in self._sources.items():
            owns = self.node.view.interval(self.number) & self.plan.arcs[name].ranges
            if source.follows and self._can_read(name) and owns:
                for partition in source.partitions():
                    self.registry.claim(f"{name}\n{partition}", self.number)
        self._open(now)

    def read(self, limit: int, now: float) -> int:
        """Read a batch of the next partition that has records, and return their number."""
        self._now = now
        if self.version > self._done:
            self._follow_version()
        waits = self._paused or self.node.confirmed < self._activated_by
        for _ in range(len(self._turn) if self.reading else 0):
            partition = self._partitions[self._turn[0]]
            version, most = partition.version
            if waits and version == self.version:
                self._turn.rotate(-1)
                continue
            pipeline = self._versions.get(version, self._versions[self.version]).pipeline
            pace = self._paces[partition.source.name]
            allowed = pace.allowed(limit if most is None else min(limit, most))
            reader = partition.reader
            if not allowed or reader is None:
                self._turn.rotate(-1)
                continue
            begun = time.monotonic()
            with named(partition.source.name):
                found = reader.read(allowed)
            if reader.done:
                self._turn.popleft()
            else:
                self._turn.rotate(-1)
            count = 0
            if found is not None:
                count = len(found.values)
                pace.took(count)
                partition.seen = now
                pipeline.read_at = begun
                counts = pipeline.counts[partition.source.name]
                counts.busy, counts.batches = counts.busy + time.monotonic() - begun, counts.batches + 1
                again = min(max(0, partition.published - partition.records), count)
                partition.records += count
                failures = [Failure(partition.source.name, *bad) for bad in found.bad]
                if again:  # only what keys lead to has to be sent again
                    pipeline.muted = True
                    self._process(partition, pipeline, Batch(found.values[:again]), [])
                    pipeline.muted = False
                self._process(partition, pipeline, Batch(found.values[again:]), failures)
            if reader.done:
                reader.close()
                partition.reader = None
                self._signal_due = now
            if found is not None:
                self._after()
                return count
        return 0

    def _process(self, partition: Partition, pipeline: Pipeline, batch: Batch, failures: list[Failure]) -> None:
        name = partition.source.name
        options = partition.source.options
        assert isinstance(options, SourceOptions)
        if options.time is not None:
            batch, more = partition.clocks[name].timed(batch, name)
            failures += more
        pipeline.failed(failures)
        if not len(batch):
            return
        for one, clock in partition.clocks.items():
            instance = pipeline.instances[one]
            if isinstance(instance, EventTime):
                instance.clock = clock
        self._current = partition
        try:
            pipeline.counts[name].received += len(batch)
            pipeline.send(name, batch)
        finally:
            self._current = None

    def _exchange(self, version: int, channel: Channel, batch: Batch) -> None:
        """Send records to the workers that own their keys."""
        output = self._outputs[self.number]
        path = self._versions[version].pipeline.path
        lane = output.lane if self._current is None else self._current.lane(path)
        batch, positions = self._positions(version, channel, batch, lane)
        if not len(batch):
            return
        records = Records(channel_name(channel), batch, version, self._versions[version].pipeline.read_at)
        if self._current is None and not self._sends_at_once:
            output.hold(positions, records)
            return
        self._multicast(lane, positions, records)
        if self._current is None:
            output.number = lane.number

    def _multicast(self, lane: Lane, positions: Positions, records: Records) -> None:
        stamps = np.full(len(positions), round(self._now * 1e6))
        self._post(list(self._sender.send(lane, positions, records, stamps)))

    def _positions(self, version: int, channel: Channel, batch: Batch, lane: Lane) -> tuple[Batch, Positions]:
        key, arc = channel.key, self._versions[version].plan.arcs[channel.target]
        assert key is not None
        if key is any_worker:
            if self._current is None:
                self._spread += len(batch)
                first = self._spread - len(batch)
            else:
                first = lane.number  # a lane that begins again sends its records to the same workers
            return batch, arc.outer(spread(np.arange(first, first + len(batch))))
        if isinstance(key, str) and isinstance(batch.values, pa.RecordBatch):
            column = column_of(batch.values, key)
            if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
                return batch, arc.outer(positions_of(column))
        instance = self._versions[version].pipeline.instances[channel.target]
        batch, keys = instance.by_key(batch, key)
        failures, instance.failures = instance.failures, []
        self.pipeline.failed(failures)
        return batch, arc.outer(positions_of(original_keys(keys)))

    # Watermarks.

    def _own_marks(self, now: float) -> dict[int, Mark]:
        """Return the progress of the lanes of this worker."""
        marks = {}
        versions = None
        if self._update is not None and self.version == self._update.number:
            versions = dict.fromkeys((ALL, *self._since), self.version)
        for one in self._partitions.values():
            marks[lane_id(one.name)] = Mark(
                one.life, 0, self._lane_marks(one, now), newest=self.newest, done=self._done,
                versions=versions if one.version[0] == self.version else None,
                paths={lane.lane: lane.number for lane in one.lanes.values()},
            )  # fmt: skip
        if self._sends_at_once:
            self._outputs[self.number].mark = self._output_mark()
        if self.number in self.node.view:  # others need not wait for a worker that is still to join
            marks |= {output.lane.lane: output.mark for output in self._outputs.values()}
        return marks

    def _lane_marks(self, partition: Partition, now: float) -> Marks:
        idle = partition.source.options.idle  # type: ignore[union-attr]
        reached = {
            channel: [partition.clocks[name].watermark for name in names if name in partition.clocks]
            for version in self._versions.values() for channel, names in version.plan.clocks.items()
        }  # fmt: skip
        marks: Marks = {channel: min(found) for channel, found in reached.items() if found}
        if partition.reader is None:
            in_loop = self.plan.loops and not self._loops_empty  # as its records may be
            return dict.fromkeys(marks, None if in_loop else LAST)
        if idle is not None and now > partition.seen + idle / 1e6:
            return dict.fromkeys(marks, None)
        return marks

    def _watermark_of(self, operator: str, marks: Mapping[int, Mark]) -> int | None:
        """Return the watermark of an operator with a key that follows from the progress of lanes; None if all idle."""
        channels = self._channels_of(operator)
        since = max((self._since[channel] for channel in channels), default=0)
        if any(mark.newest < since for mark in marks.values()):
            return FIRST
        found = [mark.marks[channel] for mark in marks.values() for channel in channels & mark.marks.keys()]
        return least(found or [LAST] * len(channels))

    def _channels_of(self, operator: str) -> set[str]:
        """Return the channels that lead to an operator with a key, in any version."""
        return {channel for one in self._versions.values() for channel in one.plan.receivers.get(operator, ())}

    def _watermark(self, operator: str) -> int | None:
        """Return the watermark of an operator with a key, from the progress of all lanes.

        It stays until all workers have processed what came with their new positions: the old owners of these, whose
        progress is known already, do not wait for that.
        """
        channels = self._channels_of(operator)
        fed = any(one.plan.feeds.get(channel) for one in self._versions.values() for channel in channels)
        if fed and not self._is_known:
            return FIRST
        return self._watermark_of(operator, self._marks)

    def signal(self, mapper: int, content: dict[int, Mark]) -> None:
        """Take the progress of another worker's lanes."""
        for lane, mark in content.items():
            known = self._marks.get(lane)
            if mark != known and (known is None or mark.life >= known.life):
                self._note_mark(lane, mark)
                for path in mark.paths or ():
                    self.node.begin_life(path, mark.life)
                self._clean = False
        self._propagate()

    def _note_mark(self, lane: int, mark: Mark) -> None:
        self._marks[lane] = mark
        self._reached[lane] = mark.number
        self._reached |= mark.paths or {}

    def _propagate(self) -> None:
        """Send the watermarks that follow from the progress of all lanes through the operators.

        Not while messages are replayed or wait for the end of a move: windows would end without them, and those of
        positions that are handed over would end twice.
        """
        if self.node.behind:
            return
        self._migrate()
        frozen = self._frozen
        for one in self.pipelines:  # the first sends what follows from the watermarks of common instances
            plan = self._versions[one.version].plan
            given = {name: FIRST if name in frozen else self._watermark(name) for name in plan.receivers}
            self._clean &= not one.propagate(given | dict.fromkeys(plan.sources))
        self._end_old()

    def resume(self) -> None:
        """Make up for watermarks that were sent while records waited."""
        if self.node.behind:
            return
        self._clean = False
        for one in self.pipelines:
            for name in self._versions[one.version].plan.receivers.keys() - self._frozen:
                one.advance(name, one.instances[name].watermark)
        self._propagate()

    def _signal(self, now: float) -> None:
        """Send the progress of all lanes."""
        self._signal_due = now + _SIGNAL_S * max(1.0, len(self.node.view.members) / _MANY)
        marks = self._own_marks(now)
        if marks != self._signalled or self._sender.view.epoch != self._signalled_epoch:
            self._signalled, self._signalled_epoch = marks, self._sender.view.epoch
            self._post(list(self._sender.signal(marks)))

    # State, as the ring sees it.

    def apply(self, tuples: Tuples, context: Mapping[int, Mark] | None) -> None:
        """Process records; those that are replayed are late only if they were for the old owner."""
        records: Records = tuples.payload
        version = self._version_of(records)
        if version is None:
            self.lost += len(records)
            return
        pipeline, channel = version.pipeline, version.plan.keyed[records.channel]
        instance = pipeline.instances[channel.target]
        if channel.target in self._held.keys() - self._migrated and pipeline.version == self.newest:
            assert channel.key is not None
            batch, keys = instance.by_key(records.batch, channel.key)
            self._held[channel.target].hold(keys, batch, records.read_at)
            return
        before = instance.watermark
        if context is not None:
            reached = self._watermark_of(channel.target, context)
            instance.watermark = before if reached is None else min(before, reached)
        pipeline.read_at = records.read_at
        pipeline.deliver(channel.target, channel.port, records.batch)
        instance.watermark = before

    def _version_of(self, records: Records) -> _Version | None:
        """Return the version that processes some records; None if its strategy discards them."""
        number, update = records.version, self._update
        if update is not None and self.version == update.number > number:
            if update.strategy == Strategy.NCL:
                return None
            if records.channel in update.moving:
                number = self.version
        first = self._versions.get(number, self._versions[self.version])  # of versions before a flow was resumed
        for version in (first, *self._versions.values()):
            if records.channel in version.plan.keyed:
                return version
        raise JobError(f"flow {self.plan.topology.name}: no version has the channel {records.channel}")

    def reached(self, lane: int) -> int:
        """Return the number of a lane until which all messages have arrived."""
        return self._reached.get(lane, 0)

    def context(self) -> dict[int, Mark]:
        """Return the progress of all lanes."""
        return dict(self._marks)

    def collect(self) -> dict[str, Any]:
        """Return what changed since the last checkpoint, and begin the next one."""
        serial, begun = self.node.serial, time.monotonic()
        for pipeline in self.pipelines:
            pipeline.prepare(serial, self._before(pipeline))
        self._prepared.append(serial)
        if not self.node.behind:
            lives = {lane: mark.life for lane, mark in self._marks.items()}
            self._passed.append(
                (serial, Acknowledged(self.node.view.epoch, dict(self._reached), self.node.received, lives))
            )
        output = self._outputs[self.number]
        mark = self._output_mark()
        if output.held or (mark != output.sealed_mark and not self._sends_at_once):
            output.seal(serial, mark)
        for other in self._outputs.values():
            if other.closing and not self.node.behind:
                other.closing = False
                marks: Marks = dict.fromkeys(mark.marks, LAST)
                other.seal(serial, Mark(other.lane.life, other.number, marks, newest=self.newest, done=LAST))
        for one in self._partitions.values():
            one.seal(serial)
        last = [(min(one.records, one.history[0]["records"]), *one.versions[-1]) for one in self._partitions.values()]
        if not all(records >= first and version == self.version for records, first, version in last):
            self._past_by = None
        elif self._past_by is None:
            self._past_by = serial
        begins = [
            (one.reader, one.history[0]["position"]) for one in self._partitions.values() if one.reader is not None
        ]
        self._begins.append((serial, begins))
        changed = {name: state.collect() for name, state in self._keyed.items()}
        # After a change of the ring, other workers may hold copies of the lanes of this one.
        whole, self._copied_epoch = self._copied_epoch != self.node.view.epoch, self.node.view.epoch
        lanes = self._lanes_with({n: output.added(whole=whole) for n, output in self._outputs.items()})
        self._save(changed, lanes)
        # Only now, as a crash before would restore what the files contain from the old worker's checkpoint.
        for node, number in self._recoveries:
            for version in self._versions.values():
                recover(version.plan.topology, node, number, self._spool)
        self._recoveries.clear()
        self.saving_s = max(time.monotonic() - begun, 0.9 * self.saving_s)
        self._seal_due = self._now + _SAVINGS * self.saving_s
        return changed | {LANES: lanes}

    def _output_mark(self) -> Mark:
        """Return the progress of what operators with a key have sent."""
        output = self._outputs[self.number]
        epoch = self.node.view.epoch
        if self.node.behind:
            last = output.mark if self._sends_at_once else output.sealed_mark
            epoch = last.epoch if last else 0
        return Mark(
            output.lane.life, output.number, self._forwarded(), epoch, self.newest, self._done, self._past_versions()
        )

    def _save(self, changed: dict[str, Delta], lanes: dict[str, tuple[int, int, Any]]) -> None:
        """Make a checkpoint durable."""
        if self._folder is None:
            return
        whole = self._folder.whole_is_due or self._activated
        self._activated = False
        deltas = changed
        if whole:
            owned = self.node.owned
            deltas = {name: state.extract(self._arcs[name].inner(owned)) for name, state in self._keyed.items()}
            lanes = self._own_lanes()
        deltas = deltas | beside_states(self.node.serial, lanes, self.node.progress(), self._given)
        outputs = [name for name in lanes if name.startswith("@")]
        body = {
            "version": [self._run, self.node.view.epoch],
            "outputs": outputs,
            "counts": {n: [c.received, c.sent, c.errors] for n, c in self.pipeline.counts.items()},
            "flow": self._done,
            "stages": firsts_of(self.plan.topology.stages),
            "forms": forms_of(self._versions[min(self._versions)].plan.topology),
            "origins": self._versions[min(self._versions)].pipeline.origins,
        }
        self._folder.save(self.node.serial, deltas, body, whole=whole, operators=self.plan.topology.names)

    def _restore(self, folder: Path, old: Sequence[int]) -> list[Progress]:
        """Install what the checkpoints of an earlier run hold for the positions of this worker."""
        topology = self.plan.topology
        wanted = self.registry.read().interval(self.number)
        mine = self.registry.lanes(self.number)
        first = self._versions[min(self._versions)].plan.topology
        found = (
            CheckpointFolder(
                folder / str(one), topology.name, topology.fingerprint, locked=False, updated=first.fingerprint
            )
            for one in old
        )
        parts, lanes = read_saved(found, self._keyed)
        restored = []
        for part in parts:
            pieces = [piece._replace(ranges=piece.ranges & wanted) for piece in part.pieces]
            taken = Ranges.union(piece.ranges for piece in pieces)
            wanted -= taken
            restored += [piece for piece in pieces if piece.ranges]
            for name, delta in part.deltas:
                if name in self._keyed:  # and not one of a version that had nothing left, nor the lanes
                    self._keyed[name].install(clipped(delta, self._arcs[name].inner(taken)))
            for name in to_migrate(topology, part.forms) if self._update is None else ():
                migrate_positions(self.pipeline.instances[name], self.plan.arcs[name].inner(taken))
        self._lane_copies = {name: (self.number, 0, value) for name, value in lanes.items() if name in mine}
        # Positions without a context may lack anything: lanes that they have not been signalled begin as unknown.
        contexts: list[Mapping[int, Mark]] = [piece.context or {} for piece in restored]
        for lane in [lane for lane in self._marks if contexts and all(lane in context for context in contexts)]:
            marks = [context[lane] for context in contexts]
            oldest = min(marks, key=_least)
            paths = {path: min((m.paths or {}).get(path, 0) for m in marks) for path in oldest.paths or ()}
            number = min(mark.number for mark in marks)
            self._note_mark(lane, Mark(-1, number, oldest.marks, newest=oldest.newest, paths=paths))
        for name, instance in self.pipeline.instances.items():
            if name in self.plan.receivers and (reached := self._watermark_of(name, self._marks)) is not None:
                instance.watermark = reached
        return restored

    def _forwarded(self) -> Marks:
        """Return the watermarks of what operators with a key send to others."""
        found: Marks = {}
        for one in self._versions.values():
            for channel, names in one.plan.feeds.items():
                mark = one.pipeline.forwarded.get(one.plan.keyed[channel].source, FIRST)
                if names:
                    found[channel] = least([mark, found.get(channel, mark)])
        return found

    def _own_lanes(self) -> dict[str, tuple[int, int, Any]]:
        return self._lanes_with({node: output.copy() for node, output in self._outputs.items()})

    def _lanes_with(self, outputs: Mapping[int, OutputCopy]) -> dict[str, tuple[int, int, Any]]:
        """Return what copies of lanes of this worker hold."""
        lanes: dict[str, Any] = {**self._handed, **{name: one.copy for name, one in self._partitions.items()}}
        lanes |= {f"@{node}": copy for node, copy in outputs.items()}
        lanes[f"{_SERIAL}{self.number}"] = self.node.serial
        token = self.node.view.token(self.number)
        return {name: (self.number, token, value) for name, value in lanes.items()}

    def _lane_position(self, number: int, token: int) -> int:
        """Return the position of a worker's lanes: its token, the last one if it is gone."""
        return self.node.view.token(number) if number in self.node.view else token

    def extract(self, ranges: Ranges) -> dict[str, Any]:
        """Return all entries of some positions."""
        arcs = self._arcs
        found: dict[str, Any] = {name: one.extract(arcs[name].inner(ranges)) for name, one in self._keyed.items()}
        if self.number in self.node.view and self._within(self.node.view.token(self.number), ranges):
            found[LANES] = self._own_lanes()
        return found

    def install(self, delta: dict[str, Any], ranges: Ranges) -> None:
        """Keep copies of entries of some positions."""
        for name, part in delta.items():
            if name == LANES:
                lanes: dict[str, tuple[int, int, Any]] = part
                for one, (number, token, value) in lanes.items():
                    if not self._within(token, ranges):
                        continue
                    if isinstance(value, OutputCopy):
                        *_, earlier = self._lane_copies.get(one, (0, 0, OutputCopy()))
                        value = value.after(earlier)  # noqa: PLW2901
                    elif isinstance(value, PartitionCopy):
                        *_, known = self._lane_copies.get(one, (0, 0, value))
                        if known.life > value.life:
                            continue
                    self._lane_copies[one] = (number, token, value)
            elif len(part):
                self._copies[name].install(clipped(part, self._arcs[name].inner(ranges)))

    def activate(self, ranges: Ranges, lost: Collection[int]) -> None:
        """Make the copies of some positions part of the state, and read the lanes of workers that are gone."""
        self._activated = True
        self._clean = False  # what they have prepared is published with the next checkpoint
        self._ended.clear()  # the copies may have something of the old version
        self._migrated.clear()
        update = self._update
        if update is not None and self.version < update.number:
            names = {name: f"{name}@{update.number}" for name in update.migrated}
            migrated = [self._copies[state].extract(self._arcs[state].inner(ranges)) for state in names.values()]
            if any(map(len, migrated)):  # the worker that is gone had activated the new version, as all are going to
                self.version, self._signal_due = update.number, self._now
        self.registry.claim(f"@{self.number}", self.number)  # not before, as others adopt the lanes of members only
        for name, copies in self._copies.items():
            inner = self._arcs[name].inner(ranges)
            self._keyed[name].install(copies.extract(inner))
            copies.discard(inner)
        if lost:
            self.registry.adopt(lost, self.number)
            self._adopt(lost)

    def _adopt(self, lost: Collection[int]) -> None:
        """Continue what other workers were doing."""
        for node in lost:
            *_, serial = self._lane_copies.pop(f"{_SERIAL}{node}", (0, 0, None))
            self._recoveries.append((node, serial))
        self._adopt_outputs()
        self._open(self._now)

    def _adopt_outputs(self) -> None:
        """Send what workers that are gone had not sent."""
        lanes = self.registry.lanes(self.number)
        for name in lanes:
            if not name.startswith("@") or int(name[1:]) in self._outputs:
                continue
            *_, copy = self._lane_copies.pop(name, (0, 0, OutputCopy()))
            life = lanes[name]
            known = self._marks.get(lane_id(name), Mark(0, 0, {}, newest=-1))
            mark = known._replace(life=life, epoch=0)
            self._outputs[int(name[1:])] = output = Output(Lane(lane_id(name), life), mark, copy)
            self._release(output, None)

    def deactivate(self, ranges: Ranges) -> None:
        """Make the state of some positions copies, and keep it until checkpoints of the new owner contain it."""
        self._clean = False
        deltas = {}
        for name, state in self._keyed.items():
            inner = self._arcs[name].inner(ranges)
            deltas[name] = state.extract(inner)
            self._copies[name].install(deltas[name])
            state.discard(inner)
        if self._folder is not None:
            pieces = [one._replace(ranges=one.ranges & ranges) for one in self.node.progress()]
            pieces = [one for one in pieces if one.ranges]
            self._given.append(Given(self.node.view.epoch - 1, ranges, pieces, deltas))

    def discard(self, ranges: Ranges) -> None:
        """Remove all entries and copies of some positions."""
        for name, state in self._keyed.items():
            inner = self._arcs[name].inner(ranges)
            state.discard(inner)
            self._copies[name].discard(inner)
        self._lane_copies = {
            name: entry for name, entry in self._lane_copies.items()
            if not self._within(self._lane_position(*entry[:2]), ranges)
        }  # fmt: skip

    @staticmethod
    def _within(position: int, ranges: Ranges) -> bool:
        return any(start <= position < stop for start, stop in ranges)


def _least(mark: Mark) -> int:
    reached = [FIRST if one is None else one for one in mark.marks.values()]
    return min(reached, default=FIRST)


def _arcs(plan: Plan, pipeline: Pipeline) -> dict[str, Arc]:
    """Return the positions of all states."""
    return {pipeline.state_name(name): arc for name, arc in plan.arcs.items()}
