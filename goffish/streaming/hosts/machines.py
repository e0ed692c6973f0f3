"""The controller's side of several hosts: takes agents in, places workers on them, and notices when one is lost."""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import subprocess
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from goffish.errors import GoffishWarning, InputError, JobError
from goffish.streaming.hosts.access import Access, stop_server
from goffish.streaming.hosts.placement import (
    Load,
    alternated,
    best_host,
    best_insertion,
    best_removal,
    lost_with_host,
)
from goffish.streaming.hosts.relay import Relay
from goffish.streaming.hosts.terms import WorkerTerms, check_hosts, shared_folders, software
from goffish.streaming.hosts.versions import file_of, plan_to_json
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.registry import FileRegistry, view_to_json
from goffish.streaming.runtime.folder import has_workers
from goffish.streaming.runtime.launch import CONTROL, Handle, start_here
from goffish.streaming.runtime.lease import lease_clock
from goffish.streaming.runtime.remote import answer_call
from goffish.streaming.runtime.worker import Begin
from goffish.streaming.topology import Topology
from goffish.streaming.updates.plan import UpdatePlan
from goffish.streaming.updates.rollout import Progress
from goffish.v1 import hosts_pb2

LEASE_S = 10.0
#: Part of the lease that is added to it before the controller takes workers for lost.
_MARGIN = 0.2
_LOOKS_S, _WAITS_S, _ANSWERS_S = 0.01, 0.2, 10.0
#: Links of a worker that has ended bring the rest of what it has sent.
_RESTS_S = 60.0
_LINE_BYTES = 1 << 24
_HERE = 0
_Value = TypeVar("_Value")


class _RemoteWorker:
    """A worker of another host, as a process handle."""

    def __init__(self, number: int, host: _Host, machines: Machines) -> None:
        self.number, self.host, self._machines = number, host, machines
        self.pid = 0
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.pump: asyncio.Task[None] | None = None
        self._code: int | None = None
        self._ended = threading.Event()

    def finish(self, code: int) -> None:
        self._code = code
        self._ended.set()

    def poll(self) -> int | None:
        return self._code

    def kill(self) -> None:
        self._machines.stop_worker(self, kill=True)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; without a time limit, only as long as its host can be expected to answer."""
        if not self._ended.wait(_ANSWERS_S if timeout is None else timeout) and timeout is not None:
            raise subprocess.TimeoutExpired(f"worker {self.number}", timeout)
        return -9 if self._code is None else self._code


@dataclass(eq=False)
class _Host:
    """Another host with its agent."""

    number: int
    address: str
    slots: int
    heard: float
    machine: str  # its name, if it was rented for the flow
    queue: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    workers: dict[int, _RemoteWorker] = field(default_factory=dict)
    epoch: int = 0  # of the last view that was sent
    shift: float = 0.0
    accepted: bool = False  # whether it shares the folders of sinks
    leaving: bool = False
    prepared: int = -1  # the newest version that it can start workers of, once it has accepted the terms
    failed: tuple[int, str] = -1, ""  # the last version that it cannot, and why

    def send(self, **message: Any) -> None:
        self.queue.put_nowait(hosts_pb2.JoinResponse(**message))


class Machines:
    """Hosts that run the workers of a flow; those of other hosts have an agent that has joined.

    Parameters
    ----------
    topology : Topology
    access : Access
    here : int
        Workers that this host takes.
    lease_s : float
        Silence of the controller after which an agent ends its workers, so that others can take over.
    checkpoint : str or Path, optional
        Folder of checkpoints of the flow.

    Raises
    ------
    InputError
        The flow cannot run on several hosts, or the address cannot be bound.
    """

    def __init__(
        self, topology: Topology, access: Access, *, here: int = 0, lease_s: float = LEASE_S,
        checkpoint: str | Path | None = None,
    ) -> None:  # fmt: skip
        check_hosts(topology, checkpoint)
        if checkpoint is None or not has_workers(checkpoint):
            for sink in topology.sinks.values():
                sink.check_unused()  # before agents join
        if not 1 <= lease_s <= 3600:
            raise InputError(f"--lease: {lease_s:g} s; must be 1 s to 1 h")
        self._topology, self._access, self._here, self._lease_s = topology, access, here, lease_s
        self._flow = (topology.name, topology.fingerprint)  # which the number of stages does not change
        self._hosts: dict[int, _Host] = {}
        self._next = 1
        self._local: dict[int, Handle] = {}
        self._places: dict[int, int] = {}
        self._ended: dict[int, float] = {}  # workers whose links still bring something, and until when
        self._folder: Path | None = None
        self._terms: WorkerTerms | None = None
        self._file: Any = None  # of the version that runs, once the flow was updated
        self._update: Any = None  # that is in progress
        self._chosen: int | None = None  # host of the next worker
        self._refused = ""  # why a host cannot run the flow
        self._needed = self._least = 0  # workers with which the flow begins, and how many of them must be on this host
        self._report: Callable[[str], None] = lambda text: None
        self._stopped: Callable[[], bool] = lambda: False
        self._addresses: dict[int, str] = {}  # of the hosts of workers, also of those that have ended
        self._registry: FileRegistry | None = None
        self._relay: Relay | None = None
        self._finishing: set[asyncio.Task[None]] = set()
        self._probe = f".goffish-{secrets.token_hex(8)}"
        self._probes: list[Path] = []
        self._stopping: asyncio.Event
        self._joined = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._serve, name="goffish-hosts", daemon=True)
        #: Address at which agents join.
        self.address = ""
        #: Hosts that were lost, or have left.
        self.lost = 0
        self._thread.start()
        self._ask(self._await_start())
        try:
            self._mark(topology, None)
        except InputError:
            self.close()
            raise

    # The thread of the event loop.

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _await_start(self) -> None:
        await self._started

    async def _run(self) -> None:
        self._stopping = asyncio.Event()
        try:
            server, self.address = self._access.serve(self)
            await server.start()
        except Exception as error:
            self._started.set_exception(error)
            await asyncio.sleep(_WAITS_S)
            return
        self._started.set_result(None)
        watch = self._loop.create_task(self._watch())
        await self._stopping.wait()
        watch.cancel()
        for host in list(self._hosts.values()):
            host.send(end=hosts_pb2.EndOfFlow())
        end = time.monotonic() + 2.0
        while self._hosts and time.monotonic() < end:
            await asyncio.sleep(_LOOKS_S)
        if self._relay is not None:
            await self._relay.close()
        await stop_server(server, 0.2)
        if self._registry is not None:
            self._registry.close()
        others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _ask(self, asked: Coroutine[Any, Any, _Value]) -> _Value:
        """Run something in the thread of the event loop."""
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    async def _watch(self) -> None:
        """Hand new views on, and notice hosts that are silent and workers of this host that have ended."""
        while True:
            await asyncio.sleep(_LOOKS_S)
            now = lease_clock()
            for host in list(self._hosts.values()):
                self._push(host)
                if now > host.heard + (1 + _MARGIN) * self._lease_s:
                    self._lose(host)
            for number, process in list(self._local.items()):
                if process.poll() is not None:
                    del self._local[number]
                    self._ended[number] = now + _RESTS_S
            if rested := [number for number, until in self._ended.items() if now > until]:
                for number in rested:
                    del self._ended[number]
                    self._places.pop(number, None)
                self._publish()
            if self._relay is not None:
                for silent in set(self._relay.silent):
                    self._part(_HERE, silent)

    # What agents call.

    async def Join(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Take an agent in."""
        hello = (await anext(requests)).hello
        reason = self._refusal(hello)
        if reason is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
        host = _Host(self._next, hello.address, hello.slots, lease_clock(), hello.machine)
        self._next += 1
        self._hosts[host.number] = host
        self._send_terms(host)
        if self._update is not None:
            host.send(update=self._update)
        self._publish()
        reading = self._loop.create_task(self._read(host, requests))
        try:
            while (message := await host.queue.get()) is not None:
                yield message
        finally:
            reading.cancel()
            if not host.workers:  # otherwise they may still run until the lease ends
                self._lose(host)

    def _refusal(self, hello: Any) -> str | None:
        """Return why an agent is not taken in."""
        name, fingerprint = self._flow
        if hello.version != software():
            return f"runs {hello.version or 'an unknown version'}; the controller runs {software()}"
        if hello.flow != name:
            return f"has flow {hello.flow}; the controller runs flow {name}"
        if self._file is None and hello.fingerprint != fingerprint:  # otherwise it loads the file of the update
            return f"has another version of flow {name} than the controller; copy the file of the controller"
        if hello.slots < 1:
            return f"--slots {hello.slots}: must be at least 1"
        return None

    async def _read(self, host: _Host, requests: AsyncIterator[Any]) -> None:
        """Take what an agent sends; its end is noticed by its silence, as it can still have workers."""
        with suppress(grpc.RpcError):
            async for message in requests:
                kind = message.WhichOneof("kind")
                getattr(self, f"_take_{kind}")(host, getattr(message, kind))

    def _take_hello(self, host: _Host, hello: Any) -> None:
        host.slots = hello.slots  # none, as it is going to leave

    def _take_ping(self, host: _Host, ping: Any) -> None:
        if host.leaving:
            return  # its lease is not renewed
        host.heard, host.shift = lease_clock(), ping.shift
        host.send(pong=hosts_pb2.Pong(sent=ping.sent, clock=time.monotonic()))

    def _take_line(self, host: _Host, line: Any) -> None:
        worker = host.workers.get(line.worker)
        if worker is not None:
            if worker.pump is None:
                worker.pump = self._loop.create_task(self._pump(worker))
            worker.lines.put_nowait(_shifted(line.line, host.shift))

    def _take_begun(self, host: _Host, begun: Any) -> None:
        if begun.worker in host.workers:
            host.workers[begun.worker].pid = begun.pid

    def _take_end(self, host: _Host, end: Any) -> None:
        worker = host.workers.pop(end.worker, None)
        if worker is not None:
            self._ended[end.worker] = lease_clock() + _RESTS_S
            self._finish(worker, end.code)

    def _take_call(self, host: _Host, call: Any) -> None:
        assert self._registry is not None
        result = answer_call(self._registry, call.call)
        self._push(host)
        host.send(answer=hosts_pb2.RegistryAnswer(id=call.id, result=json.dumps(result)))

    def _take_prepared(self, host: _Host, prepared: Any) -> None:
        if prepared.reason:
            host.failed = prepared.number, f"{host.address}: {prepared.reason}"
        else:
            host.prepared = max(prepared.number, host.prepared)
            host.accepted = True
            with self._joined:
                self._joined.notify_all()

    def _take_unreachable(self, host: _Host, other: Any) -> None:
        self._part(host.number, other.host)

    def _take_left(self, host: _Host, left: Any) -> None:
        if left.reason:
            if self._terms is not None:  # otherwise the run waits for others
                self._refused = self._refused or f"{host.address}: {left.reason}"
            text = json.dumps({"error": f"{host.address}: {left.reason}"}).encode() + b"\n"
            for worker in host.workers.values():
                self._take_line(host, hosts_pb2.WorkerLine(worker=worker.number, line=text))
        self._lose(host)
        host.queue.put_nowait(None)

    async def Link(self, packets: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Take the messages of a worker of another host."""
        if self._relay is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the flow has not begun")
        else:
            async for credit in self._relay.receive(packets):
                yield credit

    # Hosts.

    def _send_terms(self, host: _Host) -> None:
        if self._terms is None:
            host.send(terms=hosts_pb2.Terms(probe=self._probe))
        else:
            begin = self._terms.to_json()
            terms = hosts_pb2.Terms(
                host=host.number, lease_s=self._lease_s, begin=begin, probe=self._probe, file=self._file
            )
            host.send(terms=terms)

    def _publish(self) -> None:
        """Hand on where all workers are."""
        addresses = {_HERE: self.address} | {number: host.address for number, host in self._hosts.items()}
        directory = hosts_pb2.Directory()
        for number, address in addresses.items():
            workers = [worker for worker, place in self._places.items() if place == number]
            directory.hosts.add(host=number, address=address, workers=workers)
        if self._relay is not None:
            self._relay.follow(addresses, self._places)
            for host in self._hosts.values():
                host.send(directory=directory)

    def _push(self, host: _Host) -> None:
        """Hand new views on; the first time, only the newest."""
        if self._registry is None:
            return
        try:
            views = self._registry.since(host.epoch) if host.epoch else [self._registry.read()]
        except sqlite3.OperationalError:  # another process writes, or the flow has ended
            return
        if views:
            host.epoch = views[-1].epoch
            host.send(views=hosts_pb2.Views(views=[view_to_json(view) for view in views]))

    def _part(self, one: int, other: int) -> None:
        """Go on without one of two hosts that cannot reach each other: the one that has joined later."""
        both = [self._hosts.get(number) for number in (one, other) if number != _HERE]
        recently = lease_clock() - self._lease_s / 2
        if any(host is None or host.heard < recently for host in both):
            return  # this host cannot reach one of them either
        host = self._hosts[max(one, other)]
        if not host.leaving:
            host.leaving = True
            reason = f"no connection between {self._name(min(one, other))} and {self._name(max(one, other))}"
            host.send(end=hosts_pb2.EndOfFlow(reason=reason))

    def _name(self, number: int) -> str:
        return self.address if number == _HERE else self._hosts[number].address if number in self._hosts else "?"

    def _lose(self, host: _Host) -> None:
        """Go on without a host, whose workers have ended by now."""
        if self._hosts.pop(host.number, None) is None:
            return
        self.lost += 1
        workers, host.workers = host.workers, {}
        for number, place in list(self._places.items()):
            if place == host.number:
                del self._places[number]
                self._ended.pop(number, None)
        self._publish()
        for worker in workers.values():
            self._finish(worker, -9)

    # Workers of other hosts.

    async def _pump(self, worker: _RemoteWorker) -> None:
        """Carry lines between the agent of a worker and the controller."""
        assert self._folder is not None
        reader, writer = await asyncio.open_unix_connection(str(self._folder / CONTROL), limit=_LINE_BYTES)
        writer.write(f"{worker.number}\n".encode())
        back = self._loop.create_task(self._pump_back(worker, reader))
        with suppress(OSError):
            while (line := await worker.lines.get()) is not None:
                writer.write(line)
                await writer.drain()
        back.cancel()
        writer.close()

    async def _pump_back(self, worker: _RemoteWorker, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                worker.host.send(line=hosts_pb2.WorkerLine(worker=worker.number, line=line))
        worker.host.send(stop=hosts_pb2.StopWorker(worker=worker.number))

    def _finish(self, worker: _RemoteWorker, code: int) -> None:
        """Report the end of a worker after its last lines."""

        async def finish() -> None:
            worker.lines.put_nowait(None)
            if worker.pump is not None:
                await asyncio.wait([worker.pump], timeout=_WAITS_S)
                await asyncio.sleep(_WAITS_S)
            worker.finish(code)

        task = self._loop.create_task(finish())
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def stop_worker(self, worker: _RemoteWorker, *, kill: bool) -> None:
        """End a worker of another host."""
        message = hosts_pb2.StopWorker(worker=worker.number, kill=kill)
        self._loop.call_soon_threadsafe(lambda: worker.host.send(stop=message))

    # What the controller calls.

    def wait(
        self,
        workers: int,
        report: Callable[[str], None] | None = None,
        stopped: Callable[[], bool] | None = None,
        here: int = 0,
    ) -> None:
        """Wait until so many workers have a place, or until the run is stopped; some at least must be on this host."""
        # This host takes them also if it was to take fewer: no other one can, and asking for an option would only
        # delay the run.
        self._least, self._here = here, max(here, self._here)
        self._needed, self._report = workers, report or self._report
        self._stopped = stopped or self._stopped
        self._await_places()

    @property
    def _slots(self) -> int:
        hosts = [one for one in list(self._hosts.values()) if one.accepted and not one.leaving]
        return self._here + sum(one.slots for one in hosts)

    def _await_places(self) -> None:
        while (slots := self._slots) < self._needed and not self._stopped():
            if self._refused:
                raise InputError(self._refused)
            self._check()
            self._report(f": waiting for agents at {self.address}, {slots} of {self._needed} workers have a place")
            with self._joined:
                self._joined.wait(_WAITS_S)

    def _check(self) -> None:
        """Raise an error if no more agents will join."""

    @property
    def bill(self) -> dict[str, Any] | None:
        """What the hosts have cost, if they were rented."""
        return None

    def check_workers(self, workers: int) -> None:
        """Raise an error if there cannot be places for so many workers; on hosts of the user, there always are."""

    def reserve(self, workers: int) -> bool:
        """Ask for places for so many workers, and return whether they are there, as they are on hosts of the user."""
        return True

    def begin(self, folder: Path, options: Options, begin: Begin, firsts: Sequence[str]) -> None:
        """Note where the folder of the workers is, and how they run, before the first one starts."""
        if begin.update is not None:
            raise InputError(
                f"flow {self._topology.name}: an update was in progress; resume it on one machine until it is complete"
            )
        self._ask(self._begin(folder, WorkerTerms(options, begin, firsts)))
        self._ask(self._await_prepared())
        while self._slots < self._needed:  # a host was lost meanwhile
            self._await_places()
            if self._stopped():
                raise JobError(f"flow {self._topology.name}: stopped before it began")
            self._ask(self._await_prepared())

    def _mark(self, topology: Topology, checkpoint: Path | None) -> None:
        """Make the files by which agents see that folders are the same."""
        for shared in shared_folders(topology, checkpoint):
            if shared / self._probe in self._probes:
                continue
            try:
                shared.mkdir(parents=True, exist_ok=True)
                (shared / self._probe).touch()
            except OSError as error:
                raise InputError(f"{shared}: cannot be written ({error.strerror or error})") from None
            self._probes.append(shared / self._probe)

    async def _begin(self, folder: Path, terms: WorkerTerms) -> None:
        self._mark(self._topology, terms.begin.folder)
        self._folder, self._terms = folder, terms
        self._relay = Relay(folder, _HERE, self._access, self._lease_s)
        for host in self._hosts.values():
            self._send_terms(host)
        self._publish()

    async def _await_prepared(self) -> None:
        while any(host.prepared < 0 for host in self._hosts.values()):  # those that are silent are lost in the end
            await asyncio.sleep(_LOOKS_S)
        if self._refused:
            raise InputError(self._refused)

    def follow(self) -> None:
        """Hand the ring on, which now exists."""
        self._ask(self._follow())

    async def _follow(self) -> None:
        assert self._folder is not None
        self._registry = FileRegistry(self._folder / "ring")
        for host in self._hosts.values():
            self._push(host)

    # Updates.

    def check(self, new: Topology) -> None:
        """Raise an error if a new version cannot run on several hosts, or is not from a file."""
        check_hosts(new, None if self._terms is None else self._terms.begin.folder)
        file_of(new)

    def deploy(self, plan: UpdatePlan) -> None:
        """Begin to prepare a new version on all hosts."""
        self._ask(self._deploy(plan))

    async def _deploy(self, plan: UpdatePlan) -> None:
        assert self._terms is not None
        self._mark(plan.new, self._terms.begin.folder)
        self._update = hosts_pb2.Update(number=plan.number, file=file_of(plan.new), plan=plan_to_json(plan))
        for host in self._hosts.values():
            host.send(update=self._update)

    @property
    def progress(self) -> list[Progress]:
        """How far all hosts are with versions."""
        hosts = [one for one in list(self._hosts.values()) if not one.leaving]
        number = 0 if self._update is None else self._update.number
        return [Progress(one.prepared, failed=one.failed[1] if one.failed[0] == number else None) for one in hosts]

    def complete(self, begin: Begin | None) -> None:
        """End an update.

        Parameters
        ----------
        begin : Begin, optional
            Where workers of the new version begin; None if the update was aborted.
        """
        self._ask(self._complete(begin))

    async def _complete(self, begin: Begin | None) -> None:
        update, self._update = self._update, None
        if begin is None or self._terms is None:
            return
        self._terms, self._file = self._terms._replace(begin=begin), update.file
        for host in self._hosts.values():
            if host.prepared >= update.number:
                self._send_terms(host)
            elif not host.leaving:  # it has joined after the other hosts had prepared the version
                host.leaving = True
                number, reason = host.failed
                reason = reason if number == update.number else "the new version was not prepared in time"
                host.send(end=hosts_pb2.EndOfFlow(reason=reason))

    # Places of workers.

    def _loads(self) -> dict[int, Load]:
        hosts = {
            one: host for one, host in self._hosts.items() if host.slots and host.prepared >= 0 and not host.leaving
        }
        loads = {one: Load(len(host.workers), host.slots) for one, host in hosts.items()}
        if self._here or not loads:
            loads[_HERE] = Load(len(self._local), max(self._here, 1))
        return loads

    def alternate(self, workers: Sequence[int], replication: int) -> list[int]:
        """Return workers in an order of the ring in which copies are on other hosts, as far as possible."""
        places = self._ask(self._hosts_of(workers))
        order = alternated({one: place for one, place in zip(workers, places, strict=True) if place is not None})
        if len(order) < len(workers):
            return list(workers)  # some have already ended
        ring = [self._places.get(one) for one in order]
        if replication and len(set(ring)) > 1 and (lost := lost_with_host(ring, replication)):
            text = (
                f"flow {self._topology.name}: {lost} of {len(order)} workers have all copies of their state on their "
                "own machine, whose loss ends the flow; give machines equal slots, use more of them, or raise "
                "--replication"
            )
            warnings.warn(text, GoffishWarning, stacklevel=2)
        return order

    def choose(self, ring: Sequence[int], among: range, at: int, replication: int, *, here: bool = False) -> int:
        """Choose the host of the next worker, or this one, and return where on the ring it should be."""
        place, self._chosen = self._ask(self._choose(ring, among, at, replication, here))
        return place

    async def _choose(
        self, ring: Sequence[int], among: range, at: int, replication: int, here: bool
    ) -> tuple[int, int]:
        loads = self._loads()
        loads = {_HERE: loads[_HERE]} if here else loads
        return best_insertion(await self._hosts_of(ring), among, at, loads, replication)

    def dismiss(self, ring: Sequence[int], among: Sequence[int], replication: int) -> int:
        """Return the place on the ring of the worker that should leave."""
        return best_removal(self._ask(self._hosts_of(ring)), among, replication)

    def crowded(self, ring: Sequence[int], replication: int) -> int | None:
        """Return a worker that should move to a host with a free slot: copies are to be on other hosts, if possible."""
        return self._ask(self._crowded(ring, replication))

    async def _crowded(self, ring: Sequence[int], replication: int) -> int | None:
        places = await self._hosts_of(ring)
        counts = Counter(places)  # not those that are about to end
        loads = {host: Load(counts[host], one.slots) for host, one in self._loads().items()}
        free = [one.workers for one in loads.values() if not one.full]
        loads.setdefault(_HERE, Load(counts[_HERE], 0))
        if not free or any(host not in loads for host in places):
            return None
        lost = lost_with_host(places, replication) if replication else 0
        for worker, host in zip(reversed(ring), reversed(places), strict=True):
            load = loads[host]  # type: ignore[index]
            if load.workers > load.slots or (lost and load.workers - min(free) >= 2):
                return worker
        return None

    async def _hosts_of(self, workers: Sequence[int]) -> list[int | None]:
        """Return the hosts of workers; None for those that have ended."""
        return [None if one in self._ended else self._places.get(one) for one in workers]

    def where(self, worker: int) -> str:
        """Return the address of the host of a worker, also if it has ended."""
        return self._addresses.get(worker, "?")

    def is_here(self, worker: int) -> bool:
        """Return whether a worker is on this host."""
        return self._places.get(worker) == _HERE

    def __call__(self, number: int, command: Sequence[str]) -> Handle:
        """Start a worker on the host that was chosen, or on the best one."""
        chosen, self._chosen = self._chosen, None
        return self._ask(self._start(number, command, chosen))

    async def _start(self, number: int, command: Sequence[str], place: int | None) -> Handle:
        loads = self._loads()
        if place is None or place not in loads:
            place = _HERE if len(self._local) < self._least else best_host(loads)
        self._places[number] = place
        self._addresses[number] = self._name(place)
        self._publish()
        if place == _HERE:
            self._local[number] = process = start_here(number, command)
            return process
        host = self._hosts[place]
        host.workers[number] = worker = _RemoteWorker(number, host, self)
        host.send(start=hosts_pb2.StartWorker(worker=number))
        return worker

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all agents."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        for probe in self._probes:
            probe.unlink(missing_ok=True)


def _shifted(line: bytes, shift: float) -> bytes:
    """Return a report with times of the controller's clock, which are never later than they were."""
    report = json.loads(line)
    if "time" not in report:
        return line
    report["time"] += shift
    report["events"] = [[kind, at + shift, size] for kind, at, size in report["events"]]
    report["writes"] = {version: [at + shift for at in times] for version, times in report["writes"].items()}
    return json.dumps(report).encode() + b"\n"
