"""Updates of a dataflow of FIFO servers in virtual time: the package's coordinator and routers, without processes.

See docs/specs/updates.md, section 6.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from experiments.updates.coordinator import Action, Command, Coordinator, Limits, Request, State
from experiments.updates.report import Cost, Emissions, measure
from experiments.updates.routing import (
    Buffers,
    Counts,
    Entry,
    Gate,
    Header,
    Router,
    Shell,
    Side,
    Tally,
    Update,
    converted,
)
from goffish.streaming.updates.bounds import DeployTimes, Model
from goffish.streaming.updates.versions import Channel, Element, Part, PartialWindow, Strategy, Version


@dataclass(frozen=True)
class Work:
    """What the elements of a simulated dataflow do.

    Attributes
    ----------
    latency : mapping
        Seconds of each element, for a message or a complete batch.
    rates : mapping
        Messages per second of each source, evenly spaced.
    batches : mapping
        Elements that consume several messages at once: how many, or 0 for one from each channel with the same origin.
    outputs : mapping
        Messages that an element sends on each channel [default: 1].
    iterations : mapping
        Feedback channels, and how often each message passes them before it takes the other channels.
    """

    latency: Mapping[str, float]
    rates: Mapping[str, float]
    batches: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    iterations: Mapping[Channel, int] = field(default_factory=dict)

    def model(self, version: Version, wait: Mapping[str, float] | None = None) -> Model:
        """Return what the bounds need to know."""
        rates = {id: self.rates[id] for id in version.sources}
        selectivity = {
            id: (self.batches.get(id, 1) or 1, self.outputs.get(id, 1))
            for id in version.logic
            if id in self.batches or id in self.outputs
        }
        loops = {channel: times for channel, times in self.iterations.items() if channel in version.channels}
        return Model(version, self.latency, rates, selectivity, wait=wait or {}, iterations=loops)


class Message(NamedTuple):
    """A message: the inputs that led to it, its iterations, and the element that sent it."""

    roots: tuple[int, ...]
    hops: int
    port: str
    number: int


class PlainRouter(Router):
    """PVC as published: joins do not keep the versions apart."""

    def group(self, header: Header) -> int:
        return 0


class Output(NamedTuple):
    """A message that a sink emitted."""

    time: float
    header: Header
    roots: tuple[int, ...]


class Simulation:
    """A running dataflow.

    Parameters
    ----------
    version : Version
    work : Work
    times : DeployTimes
    limits : Limits, optional
    plain : bool
        PVC without pinning and with one buffer for all versions.
    full_ttl : float
        NCH waits for this long in place of an exact drain.
    delay : callable, optional
        Seconds until a notice reaches the router of an element.
    fails : set
        Parts that cannot be deployed; `never` of them stay silent in place of reporting it.
    """

    def __init__(
        self,
        version: Version,
        work: Work,
        times: DeployTimes,
        *,
        limits: Limits | None = None,
        plain: bool = False,
        full_ttl: float = 0.0,
        delay: Callable[[str], float] = lambda id: 0.0,
        fails: frozenset[Part] = frozenset(),
        silent: bool = False,
    ) -> None:
        self.work, self.times, self.plain, self.full_ttl, self.delay = work, times, plain, full_ttl, delay
        self.fails, self.silent = fails, silent
        self.coordinator = Coordinator(version, limits or Limits())
        self.now = 0.0
        self.outputs: list[Output] = []
        self.updates: list[tuple[float, Update]] = []
        self.ends: list[tuple[float, State]] = []
        self.alarms: list[str] = []
        self.arrived = 0
        #: When each input left the buffer of its source.
        self.entered: dict[int, float] = {}
        self.lost = self.merged = self.flushed = 0
        self.handled: Counter[tuple[str, int]] = Counter()
        self.violations: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._paused = False
        self._generation = 0
        self._inputs: dict[str, deque[int]] = {id: deque() for id in work.rates}
        self._gates: dict[str, Gate[Output]] = {}
        self._build(version)
        for id in work.rates:
            self._arrive(id, 0)

    # Events

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Do something later."""
        self._number += 1
        heapq.heappush(self._events, (time, self._number, do))

    def run(self, until: float) -> None:
        """Go on to a point in time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = until

    def request(self, request: Request, time: float) -> None:
        """Request an update at a point in time."""
        self.at(time, lambda: self._carry_out(self.coordinator.request(request, self.now)))

    def settle(self, most: float = 120.0) -> None:
        """Go on until no update is under way."""
        end = self.now + most
        while (self.coordinator.busy or not self.updates) and self.now < end:
            self.run(self.now + 0.1)

    def emitted(self, since: float = 0.0) -> Emissions:
        """Return what the sinks emitted."""
        found = [one for one in self.outputs if one.time >= since]
        return Emissions.of([one.time for one in found], [one.header for one in found])

    def cost(self, window: float = 1.0) -> Cost:
        """Return what the last update did cost."""
        time, update = self.updates[-1]
        return measure(update, time, self.emitted(), lost=self.lost, merged=self.merged, window=window)

    def _arrive(self, id: str, number: int) -> None:
        def arrive() -> None:
            if id in self.shells:
                self._inputs[id].append(self.arrived)
                self.arrived += 1
                self._start(id)
            self._arrive(id, number + 1)

        self.at(number / self.work.rates[id], arrive)

    # Elements

    def _build(self, version: Version) -> None:
        """Start all elements of a version from scratch."""
        self._generation += 1
        self.routers: dict[str, Router] = {}
        self.shells: dict[str, Shell[Message]] = {}
        self.buffers: dict[Element, Buffers[Message]] = {}
        self._ready: dict[str, deque[tuple[int, Header, list[Message]]]] = {}
        self._busy: dict[str, int | None] = {}
        self._version = version
        for one in version.elements:
            self._add(one, version)

    def _add(self, element: Element, version: Version) -> None:
        id = element.id
        if id not in self.shells:
            if id not in self.routers:
                self.routers[id] = self._router(version)
            self.shells[id] = Shell(id, self.routers[id])
            self._ready[id], self._busy[id] = deque(), None
        self.shells[id].add(element.version, element)
        batch = self.work.batches.get(id, 1)
        if batch != 1:
            ports = () if batch else version.origins[id]
            self.buffers[element] = Buffers(self.routers[id], count=batch, ports=ports)

    def _router(self, version: Version) -> Router:
        return (PlainRouter if self.plain else Router)(version, self.coordinator.numbering)

    def _start(self, id: str) -> None:
        """Start the next piece of work of an element that is idle."""
        while id in self.shells and self._busy[id] is None:
            router = self.routers[id]
            if self._ready[id]:
                version, header, messages = self._ready[id].popleft()
            elif self._inputs.get(id) and not self._paused and router.accepts(id):
                stamped = router.stamp(self.now)
                version = router.route_in(id, stamped)
                root = self._inputs[id].popleft()
                self.entered[root] = self.now
                messages = [Message((root,), 0, "", -1)]
                header = self._begin(id, version, [stamped])
            else:
                taken = self.shells[id].take()
                if taken is None:
                    return
                version, message = taken.version, taken.item
                self.handled[id, message.number] += 1
                entries: list[Entry[Message]] | None = [Entry(message.port, taken.header, message)]
                buffers = self.buffers.get(Element(id, version))
                if buffers is not None:
                    key = None if self.work.batches[id] else message.roots
                    entries = buffers.add(key, Entry(message.port, taken.header, message))
                if entries is not None:
                    header, messages = (
                        self._begin(id, version, [one.header for one in entries]),
                        [one.item for one in entries],
                    )
                router.counts.finish(taken.header)
                if entries is None:
                    continue
            self._busy[id] = version
            ending = partial(self._end, id, header, messages, self._generation)
            self.at(self.now + self.work.latency[id], ending)

    def _begin(self, id: str, version: int, parents: list[Header]) -> Header:
        router = self.routers[id]
        header, update = router.begin(id, version, parents), router.update
        if update is not None:
            if update.strategy == Strategy.MVC and len({one.version for one in parents}) > 1:
                self.violations.append(f"C6 at {id}")
            before = [one.trace for one in parents]
            changed = Element(id, version) not in update.parts.unchanged
            stays = any(trace & update.old_mask for trace in before) and version != update.old.logic.get(id)
            if update.strategy == Strategy.PVC and changed and stays and not self.plain:
                self.violations.append(f"C7 at {id}")
        return header

    def _end(self, id: str, header: Header, messages: list[Message], generation: int) -> None:
        if generation != self._generation:  # killed
            return
        router = self.routers[id]
        roots = tuple(sorted({root for one in messages for root in one.roots}))
        hops = max(one.hops for one in messages)
        for _ in range(self.work.outputs.get(id, 1)):
            targets = router.route_out(id, header)
            if not targets:
                output = Output(self.now, header, roots)
                gate = self._gates.get(id)
                self.outputs += [output] if gate is None else gate.offer(header, output)
            again = [one for one in targets if hops < self.work.iterations.get(Channel(id, one[0]), 0)]
            forward = [one for one in targets if Channel(id, one[0]) not in self.work.iterations]
            chosen = again or forward
            for target, sent in chosen:
                router.counts.send(sent)
                self._number += 1
                self.shells[target].put(sent, Message(roots, hops + bool(again), id, self._number))
        router.end(header)
        self._busy[id] = None
        self._start(id)
        for target, _ in targets:
            self._start(target)

    # Commands

    def _carry_out(self, commands: list[Command]) -> None:
        current = self.coordinator.update
        if current is not None and (not self.updates or self.updates[-1][1] is not current):
            self.updates.append((self.now, current))
        for command in commands:
            self._command(command)

    def _command(self, command: Command) -> None:
        update = self.coordinator.update
        match command.action:
            case Action.PREPARE:
                assert update is not None
                if self.plain:
                    update.__dict__["pins"] = frozenset()
                for id in update.new.logic.keys() - self.routers.keys():
                    self.routers[id] = self._router(update.old)
                for router in self.routers.values():
                    router.prepare(update)
                for part in command.parts:
                    self.at(self.now, partial(self._prepared, part, command.version))
            case Action.PAUSE:
                self._paused = True
            case Action.RESUME:
                self._paused = False
                for id in self._inputs:
                    self._start(id)
            case Action.KILL:
                self._generation += 1
                self.shells = {}
            case Action.DEPLOY:
                self._deploy(command.parts, command.version)
            case Action.NOTIFY | Action.ACTIVATE:
                for part in command.parts:
                    assert isinstance(part, Element)
                    self.at(self.now + self.delay(part.id), partial(self._activate, part.id, command.version))
            case Action.COUNT:
                self.at(max(self.now, self.updates[-1][0] + self.full_ttl if self.updates else 0.0), self._count)
            case Action.FLUSH:
                (element,) = command.parts
                assert isinstance(element, Element)
                self._flush(element)
                self.at(self.now + 0.001, self._count)
            case Action.RETIRE:
                self._retire(command.parts)
            case Action.COMPLETE | Action.ABORT:
                self._complete(command.action == Action.COMPLETE)
            case Action.CLOSE_GATE:
                assert update is not None
                self._gates = {id: Gate(update) for id in {*update.old.sinks, *update.new.sinks}}
            case Action.OPEN_GATE:
                held = [one for gate in self._gates.values() for one in gate.open()]
                self.outputs += [one._replace(time=self.now) for one in sorted(held)]
                self._gates = {}
            case Action.ALARM:
                self.alarms.append(command.text)

    def _prepared(self, part: Part, version: int) -> None:
        self._carry_out(self.coordinator.ready(part, version, self.now))

    def _deploy(self, parts: tuple[Part, ...], number: int) -> None:
        update = self.coordinator.update
        assert update is not None
        whole = update.strategy in (Strategy.NCL, Strategy.NCH)
        version = update.old if number == update.old.number else update.new

        def ready(part: Part) -> None:
            if self.coordinator.update is not update:
                return
            if part in self.fails:
                if not self.silent:
                    self._carry_out(self.coordinator.failed(part, "no memory", number, self.now))
                return
            if isinstance(part, Element) and not whole:
                self._add(part, version)
            self._carry_out(self.coordinator.ready(part, number, self.now))

        if whole:
            self._build(version)
        for part in parts:
            self.at(self.now + (self.times.dataflow if whole else self.times.update), partial(ready, part))
        self.at(self.now + self.coordinator.limits.ready + 0.001, self._tick)

    def _tick(self) -> None:
        self._carry_out(self.coordinator.tick(self.now))

    def _activate(self, id: str, number: int) -> None:
        self.routers[id].activate()
        self._carry_out(self.coordinator.acknowledged(id, number, self.now))
        self._start(id)

    def _count(self) -> None:
        """Report twice: in virtual time, one reading is a snapshot."""
        update = self.coordinator.update
        if update is None or self.coordinator.state not in (State.DRAINING, State.REQUESTED):
            return
        for _ in range(2):
            tally = Tally.total(router.counts.old(update) for router in self.routers.values())
            waiting = {
                one.id: buffers.waiting(self._side(one, update))
                for one, buffers in self.buffers.items()
                if one not in update.parts.new_only
            }
            commands = self.coordinator.counted(tally, waiting, update.new.number, self.now)
            self._carry_out(commands)
            if commands:
                return
        self.at(self.now + 0.01, self._count)

    def _side(self, element: Element, update: Update) -> Side | None:
        """All that waits in an old instance is of the old version."""
        return None if element in update.parts.old_only else Side.OLD

    def _flush(self, element: Element) -> None:
        update = self.coordinator.update
        assert update is not None
        id = element.id
        for _, entries in self.buffers[element].close(self._side(element, update)):
            self.flushed += 1
            if update.partial_window == PartialWindow.DROP:
                self.lost += len(entries)
            elif update.partial_window == PartialWindow.EMIT:
                header = self._begin(id, element.version, [one.header for one in entries])
                self._ready[id].append((element.version, header, [one.item for one in entries]))
            else:
                self.merged += 1
                successor = Element(id, update.new.logic[id])
                for one in entries:
                    key = None if self.work.batches[id] else one.item.roots
                    complete = self.buffers[successor].add(key, converted(update, one))
                    if complete is not None:
                        header = self._begin(id, successor.version, [entry.header for entry in complete])
                        self._ready[id].append((successor.version, header, [entry.item for entry in complete]))
        self._start(id)

    def _retire(self, parts: tuple[Part, ...]) -> None:
        for part in parts:
            if isinstance(part, Element) and part.id in self.shells and part.version in self.shells[part.id].instances:
                shell = self.shells[part.id]
                if self._busy[part.id] == part.version or len(self.buffers.pop(part, ())):
                    self.violations.append(f"C4: {part} works")
                shell.retire(part.version)
                if not shell.instances:
                    if shell.queue:
                        self.violations.append(f"C4: {part} has a queue")
                    del self.shells[part.id]

    def _complete(self, complete: bool) -> None:
        for router in self.routers.values():
            if complete:
                router.complete()
            else:
                router.abort()
        for id in self.routers.keys() - self.shells.keys():
            del self.routers[id]
        self.ends.append((self.now, State.COMPLETE if complete else State.ABORTED))


def in_flight(simulation: Simulation) -> int:
    """Return the number of batches that were sent and not finished."""
    counts: list[Counts] = [router.counts for router in simulation.routers.values()]
    return sum(one.sent.total() - one.done.total() for one in counts)
