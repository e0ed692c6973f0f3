"""The process of a worker: moves messages between the worker, its connections and the process that started it.

``python -m goffish.streaming.runtime.process FOLDER NUMBER [SHARE]``: the folder holds the flow, the sockets of all
workers, and the one of the process that started them, for JSON lines. On another host than the controller's, it also
holds a copy of the registry of the ring, the socket for changes of it, and a lease.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from goffish.errors import GoffishError, JobError
from goffish.streaming.operators import described
from goffish.streaming.ring.messages import Marker, Signal, Tuples
from goffish.streaming.ring.registry import FileRegistry
from goffish.streaming.runtime.launch import CONTROL
from goffish.streaming.runtime.lease import LEASE, Lease
from goffish.streaming.runtime.links import Incoming, Outgoing, listen
from goffish.streaming.runtime.packing import pack
from goffish.streaming.runtime.plan import Plan
from goffish.streaming.runtime.remote import REGISTRY, RemoteRegistry
from goffish.streaming.runtime.worker import Worker

#: Records that wait in a worker before it takes no more, and bytes that wait to be sent before it reads no more.
_QUEUED, _UNSENT = 1 << 18, 16 << 20
_LEAST, _MOST, _SHORT_S, _LONG_S = 1, 1 << 16, 0.005, 0.02
_TICK_S, _IDLE_S, _REPORT_S = 0.01, 0.001, 0.1
#: A worker without records for a while looks less often at what is due: there may be hundreds on a machine.
_QUIET_S, _REST_S = 0.25, 0.05


class _Control:
    """JSON lines to and from the process that started this one.

    Attributes
    ----------
    closed : bool
        Whether that process is gone.
    noticed : bool
        Whether this process was asked to end, so that others should have its positions.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(folder / CONTROL))
        self._socket.sendall(f"{number}\n".encode())
        self._socket.setblocking(False)
        self._input = b""
        self.closed = self.noticed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, **report: Any) -> None:
        self._socket.setblocking(True)
        try:
            self._socket.sendall(json.dumps(report).encode() + b"\n")
        except OSError:
            self.closed = True
        self._socket.setblocking(False)

    def receive(self) -> list[dict[str, Any]]:
        try:
            while data := self._socket.recv(1 << 16):
                self._input += data
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        *lines, self._input = self._input.split(b"\n")
        return [json.loads(line) for line in lines]


class Process:
    """A worker with its connections.

    Parameters
    ----------
    folder : Path
    number : int
    control : _Control
    share : float
        Part of a processor that it may use for records.
    """

    def __init__(self, folder: Path, number: int, control: _Control, share: float = 1.0) -> None:
        self._folder, self._number, self._control, self._share = folder, number, control, share
        self._owed = self._occupied = 0.0  # seconds that it has to wait, and for which it was busy
        topology, options, begin = pickle.loads((folder / "flow").read_bytes())
        self._listener = listen(str(folder / f"{number}.socket"))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(control, selectors.EVENT_READ)
        self._incoming: list[Incoming] = []
        self._ended: set[int] = set()  # workers of which not everything may have arrived
        self._outgoing: dict[tuple[int, bool], Outgoing | None] = {}
        control.send(ready=True, pid=os.getpid())
        commands = self._await_start()
        remote = (folder / REGISTRY).exists()
        registry = RemoteRegistry(folder) if remote else FileRegistry(folder / "ring")
        self._lease = Lease(folder / LEASE) if remote else None
        self._worker = Worker(Plan(topology), number, registry, options, time.monotonic(), begin)
        self._failed: dict[int, str] = {}  # versions that cannot be prepared, with the reason
        self._read_limit = self._work_limit = 64
        self._reported = 0.0
        self._held = False  # whether it had to stop reading since the last report
        self._sent_events = 0
        for command in commands:
            self._obey(command)

    def _await_start(self) -> list[dict[str, Any]]:
        """Wait until the sockets of all workers exist; return the other commands that have come."""
        commands: list[dict[str, Any]] = []
        while True:
            self._selector.select()
            commands += self._control.receive()
            others = [command for command in commands if command["command"] != "start"]
            if len(others) < len(commands):
                return others
            if self._control.closed:
                raise SystemExit(0)

    def run(self) -> None:
        """Work until the flow has ended, or the process that started this one is gone."""
        try:
            self._run()
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self._worker.close()
            raise
        self._worker.close()

    def _run(self) -> None:
        ticked, active, worked = 0.0, True, 0.0
        while not (self._control.closed or (self._lease is not None and self._lease.expired)):
            begun, used = time.monotonic(), 0.0
            waits = self._blocked
            if waits:
                self._worker.hold_back(begun)
            blocked = waits or self._worker.held_back(begun)
            self._held |= blocked and self._worker.reading
            resting = self._owed > 0
            busy = not resting and (self._worker.node.queued or (active and not blocked))
            worked = begun if busy or active else worked
            pause = _TICK_S if begun < worked + _QUIET_S else _REST_S
            timeout = 0.0 if busy else _IDLE_S if self._worker.reading else pause
            events = self._selector.select(timeout)
            served = time.monotonic()
            for key, _ in events:
                self._serve(key.fileobj)
            now = time.monotonic()
            if now > ticked + _TICK_S:
                ticked = now
                for worker in [one for one in self._ended if not self._is_connected(one)]:
                    self._ended.remove(worker)
                    self._worker.lose(worker, now)
                self._worker.tick(now)
                self._report(now)
                if self._worker.node.fenced:
                    break
            if not resting:
                cpu = time.process_time() if self._share < 1 else 0.0
                active = not blocked and bool(self._read())
                active |= self._work() > 0
                used = time.process_time() - cpu if self._share < 1 else 0.0
            self._post()
            ended = time.monotonic()
            self._rest(ended - begun, used)
            if active or resting:
                self._occupied += ended - (begun if resting else served)

    def _rest(self, elapsed: float, used: float) -> None:
        """Wait as long as a processor of which this worker has a share would take longer for its records."""
        if self._share < 1:
            self._owed = max(0.0, self._owed + used / self._share - elapsed)

    @property
    def _blocked(self) -> bool:
        """Whether too much waits in this worker."""
        waiting = max((link.waiting_bytes for link in self._outgoing.values() if link is not None), default=0)
        return waiting > _UNSENT or self._worker.node.queued > _QUEUED or self._worker.full

    def _serve(self, ready: Any) -> None:
        if ready is self._listener:
            self._accept()
        elif ready is self._control:
            for command in self._control.receive():
                self._obey(command)
        elif isinstance(ready, Outgoing):
            ready.flush()
            if ready.closed:
                self._selector.unregister(ready)
            elif ready.events != self._selector.get_key(ready).events:
                self._selector.modify(ready, ready.events)
        elif not (ready.data and self._worker.node.queued > _QUEUED):
            now = time.monotonic()
            for message in ready.receive():
                assert ready.sender is not None
                if ready.shift and isinstance(message, Tuples):
                    message.payload.read_at += ready.shift
                self._worker.receive(ready.sender, message, now)
            if ready.closed:
                self._selector.unregister(ready)
                self._incoming.remove(ready)
                ready.close()
                if ready.sender is not None and not any(link.sender == ready.sender for link in self._incoming):
                    self._worker.lose(ready.sender, now)

    def _accept(self) -> None:
        """Accept the connections that others have opened."""
        with suppress(BlockingIOError):
            while True:
                link = Incoming(self._listener.accept()[0])
                link.introduce()
                self._incoming.append(link)
                self._selector.register(link, selectors.EVENT_READ)

    def _is_connected(self, worker: int) -> bool:
        """Whether something that a worker has sent may still arrive."""
        self._accept()
        return any(link.sender in (worker, None) for link in self._incoming)

    def _obey(self, command: dict[str, Any]) -> None:
        now = time.monotonic()
        match command["command"]:
            case "stop":
                self._worker.stopping = True
            case "end loops":
                self._worker.end_loops(now)
            case "switch":
                self._worker.pipeline.switch(command["operator"], command["alternate"])
            case "lose":
                self._ended.add(command["worker"])
            case "give partitions":
                self._worker.give_partitions(command["source"], command["target"], command["count"], now)
            case "prepare":
                self._prepare(command["version"])
            case "activate":
                self._worker.activate_update(command["version"], now, paused=command["paused"])
            case "complete":
                self._worker.complete_update(command["version"])
            case "abort":
                self._worker.abort_update()
            case "give":
                part = command["part"]
                part = None if part is None else (part[0], part[1])
                self._worker.node.give(command["target"], now, leaves=command["leaves"], part=part)

    def _prepare(self, version: int) -> None:
        file = self._folder / f"update-{version}"
        if not file.exists():
            return  # the agent of this host has not made it yet; the command comes again
        try:
            self._worker.prepare_update(pickle.loads(file.read_bytes()))
        except Exception as error:  # of functions of the user: the flow goes on without the update
            self._failed[version] = f"worker {self._number}: {described(error)}"

    def _read(self) -> int:
        """Read sources; batches take a hundredth of a second."""
        lap = _Lap()
        count = self._worker.read(self._read_limit, lap.begun)
        self._read_limit = _adapted(self._read_limit, count, lap.seconds)
        return count

    def _work(self) -> int:
        """Process what has arrived, for a while, and return the number of records."""
        first = lap = _Lap()
        total = 0
        while lap.begun < first.begun + _LONG_S and (count := self._worker.work(lap.begun, self._work_limit)):
            self._work_limit = _adapted(self._work_limit, count, lap.seconds)
            self._post()
            lap = _Lap()
            total += count
        return total

    def _post(self) -> None:
        messages, self._worker.outbox = self._worker.outbox, []
        last, packed, changed = None, list[memoryview](), dict[tuple[int, bool], Outgoing]()
        for receiver, message in messages:
            key = (receiver, isinstance(message, Tuples | Marker | Signal))
            if key not in self._outgoing:
                self._outgoing[key] = self._connect(*key)
            link = self._outgoing[key]
            if link is not None:
                if message is not last:  # owner and secondaries receive the same messages
                    last, packed = message, pack(message)
                link.add(packed)
                changed[key] = link
        for link in changed.values():
            link.flush()
            if not link.closed and link.events != self._selector.get_key(link).events:
                self._selector.modify(link, link.events)

    def _connect(self, receiver: int, data: bool) -> Outgoing | None:
        try:
            link = Outgoing(str(self._folder / f"{receiver}.socket"), self._number, data)
        except JobError:
            return None  # it has failed, which the ring will notice
        self._selector.register(link, link.events)
        return link

    def _report(self, now: float) -> None:
        worker = self._worker
        sent = not any(link.unsent for link in self._outgoing.values() if link is not None)
        finished, quiet = sent and worker.finished, sent and worker.quiet
        if now < self._reported + _REPORT_S and not finished and not worker.node.fenced:
            return
        self._reported = now
        events = worker.node.events[self._sent_events :]
        self._sent_events = len(worker.node.events)
        self._control.send(
            finished=finished,
            quiet=quiet,
            time=now,
            epoch=worker.node.view.epoch,
            behind=worker.node.behind,
            queued=worker.node.queued,
            serial=worker.node.confirmed,
            events=[[event.kind, event.time, event.ranges.size] for event in events],
            counts={name: counts.to_dict() for name, counts in worker.counts.items()},
            unsent=sum(link.unsent_bytes for link in self._outgoing.values() if link is not None),
            blocked=self._held,
            occupied=self._occupied,
            update=[worker.newest, worker.version, worker.drained],
            failed=self._failed,
            writes={p.version: p.writes for p in worker.pipelines if p.writes is not None},
            lost=worker.lost,
            operators_s=worker.operators_s,
            saving_s=worker.saving_s,
            noticed=self._control.noticed,
            partitions=worker.partitions,
            handing_over=worker.handing_over,
        )
        self._held = False


class _Lap:
    """Measures how long a batch takes, but for the time in which other processes had the processor."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self._cpu, self._preempted = self._usage()

    @staticmethod
    def _usage() -> tuple[float, int]:
        """Return the processor time of this thread, and how often it was preempted; faster than `time.thread_time`."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return usage.ru_utime + usage.ru_stime, usage.ru_nivcsw

    @property
    def seconds(self) -> float:
        """Seconds until now."""
        cpu, preempted = self._usage()
        return cpu - self._cpu if preempted > self._preempted else time.monotonic() - self.begun


def _adapted(limit: int, count: int, seconds: float) -> int:
    """Return the next limit of a batch, so that one takes about a hundredth of a second."""
    if seconds > _LONG_S:
        return max(limit // 2, _LEAST)
    return min(2 * limit, _MOST) if count == limit and seconds < _SHORT_S else limit


def main() -> None:
    """Run a worker."""
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        control = _Control(folder, number)
    except OSError:  # that process has ended
        os._exit(1)
    # The machine is going to end. Not sent by the handler, as it may interrupt what is being sent.
    signal.signal(signal.SIGTERM, lambda *_: setattr(control, "noticed", True))
    sys.path[:], place = json.loads((folder / "path").read_text())
    os.chdir(place)  # machines of providers have other folders, and paths of the flow are relative to this one
    try:
        Process(folder, number, control, share).run()
    except GoffishError as error:
        control.send(error=str(error))
        os._exit(1)
    except Exception as error:
        control.send(error=f"worker {number}: {described(error)}")
        raise


if __name__ == "__main__":
    main()
