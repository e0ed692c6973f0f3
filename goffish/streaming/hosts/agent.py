"""The agent of a host: runs workers of a flow whose controller is on another host."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from goffish.errors import GoffishError, InputError, JobError
from goffish.streaming.checkpoints import SINKS
from goffish.streaming.hosts.access import Access, stop_server
from goffish.streaming.hosts.relay import Relay
from goffish.streaming.hosts.terms import WorkerTerms, shared_folders, software
from goffish.streaming.hosts.versions import load_file, plan_from_json
from goffish.streaming.operators import described
from goffish.streaming.ring.registry import FileRegistry, view_from_json
from goffish.streaming.runtime.cluster import pickled
from goffish.streaming.runtime.launch import CONTROL, Handle, command_of, start_here
from goffish.streaming.runtime.lease import LEASE, Lease, lease_clock
from goffish.streaming.runtime.remote import REGISTRY
from goffish.streaming.runtime.stages import divided
from goffish.streaming.topology import Topology
from goffish.v1 import hosts_pb2, hosts_pb2_grpc

#: How long an agent waits for a controller that does not answer when it joins.
_JOINS_S, _RETRIES_S = 30.0, 0.5
#: After which it reports that it waits.
_SAYS_S = 2.0
_PINGS, _MOST_S, _LOOKS_S, _CHILD_S = 10, 1.0, 0.05, 0.01
_LINE_BYTES = 1 << 24
_ENDS_S = 5.0
_Take = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class _Worker:
    """A worker process of this host."""

    def __init__(self, process: Handle) -> None:
        self.process = process
        self.control: asyncio.StreamWriter | None = None
        self.reports = asyncio.Event()  # set when there are no more
        self.connected = self.ready = self.noticed = False

    def stop(self) -> None:
        """Close the connection, upon which the worker ends."""
        if self.control is not None:
            self.control.close()

    def notice(self) -> None:
        """Ask the worker once to hand its state over and end."""
        if not self.noticed and self.process.pid and self.process.poll() is None:
            self.noticed = True
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)


class Agent:
    """Runs workers of a flow on this host until the flow ends.

    Parameters
    ----------
    topology : Topology
        The flow, from the same file as that of the controller.
    access : Access
    join : str
        ``HOST:PORT`` of the controller.
    slots : int
        Workers that this host takes.
    report : callable, optional
        Called with what happens.
    versions : Path, optional
        Folder with the files of versions to which the flow is updated [default: the current folder].
    notice : Path, optional
        File that appears when this host will be taken back; upon it, the host leaves as after SIGTERM.
    machine : str
        Name that the controller has given this host, if it has rented it.
    fetch : callable, optional
        Writes a file of a version into its folder, by name, if the controller has one.

    Raises
    ------
    InputError
        The address of the controller needs TLS.
    """

    def __init__(
        self, topology: Topology, access: Access, join: str, slots: int,
        report: Callable[[str], object] | None = None, versions: Path | None = None, notice: Path | None = None,
        machine: str = "", fetch: Callable[[str], object] | None = None,
    ) -> None:  # fmt: skip
        access.check(join, "--join")
        self._topology, self._access, self._join, self._slots = topology, access, join, slots
        self._report = report or (lambda text: None)
        self._versions = (versions or Path()).absolute()
        self._notice, self._machine = notice, machine
        self._fetch = fetch or (lambda name: None)
        self._new: tuple[int, Topology] | None = None  # the version to which the flow is updated
        self._workers: dict[int, _Worker] = {}
        self._queue: asyncio.Queue[Any]
        self._inbox: asyncio.Queue[Any]
        self._directory: Any = None
        self._calls: dict[int, asyncio.Future[str]] = {}
        self._call = 0
        self._registry: FileRegistry | None = None
        self._relay: Relay | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lease_s = self._shift = 0.0
        self._host = 0
        self._until = 0.0
        self._terms: WorkerTerms
        self._probe = ""
        self._confirmed: float | None = None  # when the terms were accepted, until the controller has noticed
        self._answered = 0.0  # when the last ping was sent that the controller has answered
        self._leaves: asyncio.Event
        self._connected = False

    def run(self) -> bool:
        """Run workers until the flow ends, or until SIGTERM.

        After SIGTERM, a notice, or where the controller asks for it, workers hand their state over to those of other
        hosts before they end; a second SIGTERM ends them at once, as if the host was lost.

        Returns
        -------
        bool
            Whether the flow ended, or the workers have handed their state over.

        Raises
        ------
        InputError
            The controller does not take this host in.
        JobError
            The controller does not answer, or goes on without this host.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="goffish-"))
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            return False
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return True

    async def _run(self) -> None:
        self._queue, self._inbox, self._leaves = asyncio.Queue(), asyncio.Queue(), asyncio.Event()
        main = asyncio.current_task()
        assert main is not None
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            with suppress(RuntimeError):  # not in the main thread, which receives signals
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminate, main)
        paths = [*sys.path, *({f"{self._versions}"} - {*sys.path})]  # workers import functions of new versions
        (self._folder / "path").write_text(json.dumps([paths, str(Path.cwd())]))
        self._lease = Lease(self._folder / LEASE)
        for take, name in ((self._take_control, CONTROL), (self._take_calls, REGISTRY)):
            await asyncio.start_unix_server(_quiet(take), self._folder / name, limit=_LINE_BYTES)
        server, address = self._access.serve(self)
        await server.start()
        self._report(f"listening on {address}")
        channel = self._access.dial(self._join)
        try:
            await self._serve(channel, address)
        finally:
            await self._end_workers()
            for task in self._tasks:
                task.cancel()
            if self._relay is not None:
                await self._relay.close()
            await channel.close()
            await stop_server(server)
            if self._registry is not None:
                self._registry.close()

    async def _serve(self, channel: grpc.aio.Channel, address: str) -> None:
        """Do what the controller asks for."""
        hello = hosts_pb2.Hello(
            version=software(), flow=self._topology.name, fingerprint=self._topology.fingerprint, slots=self._slots,
            address=address, machine=self._machine,
        )  # fmt: skip
        call = await self._joined(channel, hello)
        self._connected = True
        self._report(f"connected to {self._join}")
        writing = asyncio.create_task(self._write(call))
        reading = asyncio.create_task(self._read(call))
        watching = asyncio.create_task(self._watch())
        acting = asyncio.create_task(self._act())
        leaving = asyncio.create_task(self._leave())
        tasks = writing, reading, watching, acting, leaving
        reason = ""
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except InputError as error:
            reason = str(error)
            raise
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise JobError(f"--join {self._join}: the connection to the controller is lost") from None
        finally:
            watching.cancel()
            acting.cancel()
            leaving.cancel()
            await self._end_workers()
            self._send(left=hosts_pb2.Left(reason=reason))
            self._queue.put_nowait(None)
            await asyncio.wait([writing], timeout=_ENDS_S / 5)
            reading.cancel()
            writing.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            call.cancel()

    def _terminate(self, main: asyncio.Task[Any]) -> None:
        """Leave the flow; before the host has joined, and the second time, at once."""
        if self._leaves.is_set() or not self._connected:
            main.cancel()
        self._leaves.set()

    async def _leave(self) -> None:
        """After SIGTERM, wait until workers have handed their state over, and others have all that they have sent."""
        await self._leaves.wait()
        asked = lease_clock()
        self._send(hello=hosts_pb2.Hello(slots=0, machine=self._machine))
        self._queue.put_nowait(self._ping())
        self._report(f"leaving: {len(self._workers)} workers hand their state over")
        while self._answered < asked or self._busy:
            for worker in list(self._workers.values()):
                if worker.ready:
                    worker.notice()
            await asyncio.sleep(_LOOKS_S)
        self._report(f"left {self._join}")

    @property
    def _busy(self) -> bool:
        """Whether workers run or are about to, or links bring what they have sent."""
        links = self._relay is not None and self._relay.sending
        return bool(self._workers or self._tasks) or not self._inbox.empty() or links

    async def _joined(self, channel: grpc.aio.Channel, hello: Any) -> Any:
        """Return the stream to the controller."""
        stub = hosts_pb2_grpc.HostServiceStub(channel)  # type: ignore[no-untyped-call]
        end = time.monotonic() + _JOINS_S
        loop = asyncio.get_running_loop()
        saying = loop.call_later(_SAYS_S, self._report, f"waiting for the controller at {self._join}")
        while True:
            call = stub.Join(metadata=self._access.metadata)
            try:
                await call.write(hosts_pb2.JoinRequest(hello=hello))
                await call.write(self._ping())
                first = await call.read()
            except (grpc.RpcError, asyncio.InvalidStateError):
                first = grpc.aio.EOF
            if first is not grpc.aio.EOF:
                saying.cancel()
                self._obey(first)
                return call
            code, details = await call.code(), await call.details()
            if code == grpc.StatusCode.OK:
                raise JobError(f"--join {self._join}: the controller has ended")
            if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION):
                raise InputError(f"--join {self._join}: {_subject(code)}{details}")
            # Where the controller refuses a stream while this end still writes, gRPC may report an internal error.
            if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL) or time.monotonic() > end:
                text = (details or code.name).splitlines()[0]
                raise JobError(f"--join {self._join}: cannot connect to the controller ({text})")
            await asyncio.sleep(_RETRIES_S)

    async def _write(self, call: Any) -> None:
        while (message := await self._queue.get()) is not None:
            await call.write(message)
        await call.done_writing()

    async def _read(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            if self._obey(message):
                return
        raise JobError(f"--join {self._join}: the controller has ended")

    def _send(self, **message: Any) -> None:
        self._queue.put_nowait(hosts_pb2.JoinRequest(**message))

    def _ping(self) -> Any:
        return hosts_pb2.JoinRequest(ping=hosts_pb2.Ping(sent=lease_clock(), shift=self._shift))

    async def _watch(self) -> None:
        """Keep the lease, and report hosts that do not answer.

        Raises
        ------
        JobError
            The lease has ended.
        """
        due = 0.0
        while True:
            await asyncio.sleep(_LOOKS_S)
            now = lease_clock()
            if self._lease_s and now > self._until:
                raise JobError(
                    f"--join {self._join}: no answer of the controller for {self._lease_s:g} s; the workers were ended"
                )
            if self._notice is not None and not self._leaves.is_set() and self._notice.exists():
                self._leaves.set()
            if now > due:
                due = now + min(_MOST_S, (self._lease_s or _MOST_S) / _PINGS)
                self._queue.put_nowait(self._ping())
                for host in set(self._relay.silent) if self._relay is not None else ():
                    self._send(unreachable=hosts_pb2.Unreachable(host=host))

    # Messages of the controller.

    def _obey(self, message: Any) -> bool:
        """Do what a message asks for; return whether it is the last one."""
        kind = message.WhichOneof("kind")
        content = getattr(message, kind)
        match kind:
            case "terms" | "update" | "start" | "stop":
                self._inbox.put_nowait((kind, content))
            case "pong":
                self._renew(content)
            case "line":
                worker = self._workers.get(content.worker)
                if worker is not None and worker.control is not None:
                    worker.control.write(content.line)
            case "directory":
                self._directory = content
                self._follow()
            case "views":
                self._install(content.views)
            case "answer":
                self._calls.pop(content.id).set_result(content.result)
            case "leave":
                self._leaves.set()
            case "end":
                if content.reason:
                    raise JobError(f"--join {self._join}: the flow goes on without this host: {content.reason}")
                return True
        return False

    async def _act(self) -> None:
        """Do in order what concerns versions and workers, while pings and lines of workers go on."""
        while True:
            kind, content = await self._inbox.get()
            match kind:
                case "terms":
                    await self._begin(content)
                case "update":
                    await self._prepare(content)
                case "start":
                    self._spawn(self._start(content.worker))
                case "stop" if content.worker in self._workers:
                    worker = self._workers[content.worker]
                    (worker.process.kill if content.kill else worker.stop)()

    async def _begin(self, terms: Any) -> None:
        """Prepare the folder of the workers, first, and when the flow was updated."""
        if not terms.host:  # the flow has not begun
            self._check_folders(self._topology, None, terms.probe)
            self._send(prepared=hosts_pb2.Prepared(number=-1))
            return
        given = WorkerTerms.from_json(terms.begin, self._folder / SINKS)
        version = given.begin.version
        if self._relay is None:
            self._host, self._lease_s = terms.host, terms.lease_s
            self._until = lease_clock() + self._lease_s
            self._lease.renew(self._until)
            if terms.HasField("file"):
                self._topology = await asyncio.to_thread(self._load, terms.file, given.firsts)
            else:
                self._topology = divided(self._topology, given.firsts)
            self._check_folders(self._topology, given.begin.folder, terms.probe)
        elif self._new is not None and self._new[0] == version:
            self._topology, self._new = self._new[1], None
        else:
            raise InputError(f"{terms.file.name}: version {version} of the flow was not prepared")
        self._terms, self._probe = given, terms.probe
        flow = pickled(self._topology, (self._topology, given.options, given.begin))
        partial = self._folder / "flow.partial"
        partial.write_bytes(flow)
        partial.replace(self._folder / "flow")
        if self._relay is None:
            self._relay = Relay(self._folder, self._host, self._access, self._lease_s, {0: self._join})
            self._relay.shift = self._shift
            self._follow()
            self._confirmed = lease_clock()
        self._send(prepared=hosts_pb2.Prepared(number=version))
        self._queue.put_nowait(self._ping())

    async def _prepare(self, update: Any) -> None:
        """Make a new version of the flow from the file of this host, for its workers."""
        try:
            content = await asyncio.to_thread(self._make, update)
        except Exception as error:  # also of the user's file: the flow goes on without the update
            reason = str(error) if isinstance(error, GoffishError) else described(error)
            self._send(prepared=hosts_pb2.Prepared(number=update.number, reason=" ".join(reason.split())))
            return
        partial = self._folder / "update.partial"
        partial.write_bytes(content)
        partial.replace(self._folder / f"update-{update.number}")  # workers look for it again and again
        self._report(f"prepared {update.file.name} as version {update.number}")
        self._send(prepared=hosts_pb2.Prepared(number=update.number))

    def _make(self, update: Any) -> bytes:
        """Return the pickled plan of an update."""
        new = self._load(update.file, self._terms.firsts)
        self._check_folders(new, self._terms.begin.folder, self._probe)
        plan = plan_from_json(update.plan, self._topology, new, self._versions / update.file.name)
        self._new = plan.number, new
        return pickled(new, plan)

    def _load(self, file: Any, firsts: Sequence[str]) -> Topology:
        self._fetch(file.name)
        return load_file(file, self._versions, firsts)

    @staticmethod
    def _check_folders(topology: Topology, checkpoint: Path | None, probe: str) -> None:
        for folder in shared_folders(topology, checkpoint):
            if not (folder / probe).exists():
                raise InputError(f"{folder}: is not the same folder as on the controller; all machines must share it")

    def _renew(self, pong: Any) -> None:
        known, self._shift = self._shift, pong.clock - time.monotonic()
        if not known:
            self._queue.put_nowait(self._ping())
        self._answered = pong.sent
        self._until = pong.sent + self._lease_s
        self._lease.renew(self._until)
        if self._confirmed is not None and pong.sent >= self._confirmed:  # the answer to a ping after `prepared`
            self._confirmed = None
            self._report(f"joined {self._join} as host {self._host}")
        if self._relay is not None:
            self._relay.shift = self._shift

    def _follow(self) -> None:
        if self._relay is not None and self._directory is not None:
            hosts = self._directory.hosts
            self._relay.follow(
                {one.host: one.address for one in hosts}, {worker: one.host for one in hosts for worker in one.workers}
            )

    def _install(self, views: list[str]) -> None:
        """Add views to the copy of the registry."""
        for text in views:
            view = view_from_json(text)
            if self._registry is None:
                self._registry = FileRegistry(self._folder / "ring", view)
            else:
                self._registry.replace(view)

    # Workers.

    def _spawn(self, task: Any) -> None:
        made = asyncio.ensure_future(task)
        self._tasks.add(made)
        made.add_done_callback(self._tasks.discard)

    async def _start(self, number: int) -> None:
        process = start_here(number, command_of(self._folder, number))
        self._workers[number] = worker = _Worker(process)
        while process.poll() is None and not process.pid:
            await asyncio.sleep(_CHILD_S)
        self._send(begun=hosts_pb2.WorkerBegun(worker=number, pid=process.pid))
        while (code := process.poll()) is None:
            await asyncio.sleep(_CHILD_S)
        if worker.connected:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDS_S):
                    await worker.reports.wait()
        del self._workers[number]
        self._send(end=hosts_pb2.WorkerEnd(worker=number, code=code))

    async def _take_control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry lines of a worker to the controller."""
        number = int(await reader.readline() or -1)
        while number >= 0 and number not in self._workers:
            await asyncio.sleep(0.01)  # the process is faster than the task that has started it
        if number < 0:
            writer.close()
            return
        worker = self._workers[number]
        worker.control, worker.connected = writer, True
        with suppress(OSError):
            while line := await reader.readline():
                worker.ready = True
                self._send(line=hosts_pb2.WorkerLine(worker=number, line=line))
        worker.reports.set()

    async def _take_calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry calls of the registry to the controller."""
        with suppress(OSError):
            while line := await reader.readline():
                self._call += 1
                self._calls[self._call] = answer = asyncio.get_running_loop().create_future()
                self._send(call=hosts_pb2.RegistryCall(id=self._call, call=line.decode()))
                writer.write((await answer).encode() + b"\n")

    async def _end_workers(self) -> None:
        """Kill all workers, and wait for their end."""
        for worker in list(self._workers.values()):
            worker.process.kill()
        for worker in list(self._workers.values()):
            while worker.process.poll() is None:
                await asyncio.sleep(_CHILD_S)

    # Other hosts.

    async def Link(self, packets: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Take the messages of a worker of another host."""
        if self._relay is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the host has not joined yet")
        else:
            async for credit in self._relay.receive(packets):
                yield credit

    async def Join(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Refuse an agent that takes this one for a controller."""
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "is an agent; join the controller of the flow")
        yield


def _quiet(take: _Take) -> _Take:
    """Return a function for connections that are open when the agent ends: asyncio reports each that is cancelled."""

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):
            await take(reader, writer)

    return taken


def _subject(code: grpc.StatusCode) -> str:
    return "this host " if code == grpc.StatusCode.FAILED_PRECONDITION else ""
