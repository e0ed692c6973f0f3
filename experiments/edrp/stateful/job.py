"""The coordinator of a job: starts executors, notifies them of reconfigurations, and holds the barriers."""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

from experiments.edrp.stateful.definition import OUTSIDE, Deployment, Executor, Stream, check
from experiments.edrp.stateful.outside import Arrival, Reader, Sinks, Sources
from experiments.edrp.stateful.storage import DataStore
from experiments.edrp.stateful.wire import Door, connect, drop, send
from goffish.cloud.providers import LocalMachines, Task
from goffish.errors import InputError, JobError

_LOOK_S = 0.05
_ENDS_S = 5.0


class Change(NamedTuple):
    """What came of a reconfiguration.

    Attributes
    ----------
    outcome : {"done", "rolled back", "called off"}
    reason : str
        Why it was not done.
    pause_s : float
        From the beginning to barrier A.
    down_s : float
        From the beginning until sources sent again.
    """

    outcome: Literal["done", "rolled back", "called off"]
    reason: str
    pause_s: float
    down_s: float


class _Failed(Exception):
    """A step failed or took too long."""


@dataclass(eq=False)
class _Worker:
    """An executor's process."""

    name: str
    executor: Executor
    task: Task
    connection: Connection | None = None
    port: int = 0
    pid: int = 0
    at: tuple[str, int] = ("", 0)
    problem: str = ""
    alive: bool = True


class Job:
    """A stream on a provider's machines.

    Parameters
    ----------
    stream : Stream
    provider : LocalMachines
        Its machines run here, and share the folder.
    folder : Path
        For the key and the data store.
    timeout_s : float
        Of every barrier.
    watch : callable, optional
        Called with every step of a reconfiguration: "paused", "barrier A", "started", "rolled back", "resumed".

    Attributes
    ----------
    timeout_s : float
        May be changed between reconfigurations.

    Notes
    -----
    A context manager: at its end no executor is left.
    """

    def __init__(
        self, stream: Stream, provider: LocalMachines, folder: Path, *, timeout_s: float = 30.0,
        watch: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        if not timeout_s > 0:
            raise InputError(f"timeout_s = {timeout_s:g}: more than 0 is needed")
        self.stream, self._provider, self.timeout_s = stream, provider, timeout_s
        self._watch = watch or (lambda step: None)
        self._name, self._key = secrets.token_hex(4), secrets.token_bytes(32)
        self._key_file = folder / f"job-{self._name}.key"
        self._key_file.touch(mode=0o600)
        self._key_file.write_bytes(self._key)
        self._store_file = folder / f"job-{self._name}.sqlite"
        self._store = DataStore(self._store_file)
        self._changed = threading.Condition()
        self._workers: dict[str, _Worker] = {}
        self._retired: list[_Worker] = []
        self._ended: set[tuple[int, str]] = set()
        self._named, self._epoch = 0, 0
        self._dropped = 0
        self.sources = Sources(stream)
        self.sinks = Sinks(stream, self.sources)
        self._door = Door(self._key, self._hear)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all executors, and wait until they have."""
        self.sources.close()
        self._end(self._workers.values())
        until = time.monotonic() + _ENDS_S
        for worker in self._retired:
            while self._provider.exit_code(worker.task) is None and time.monotonic() < until:
                time.sleep(_LOOK_S / 5)
        self._door.close()
        for path in (self._key_file, *self._store_file.parent.glob(f"{self._store_file.name}*")):
            path.unlink(missing_ok=True)

    # What users do.

    def start(self, deployment: Deployment) -> None:
        """Start executors with no state, and let sources send.

        Raises
        ------
        JobError
            They did not start.
        """
        self._check(deployment)
        try:
            self._launch(deployment)
        except _Failed as failed:
            self._end(self._workers.values())
            raise JobError(f"the job did not start: {failed}") from None

    def send(self, source: str, key: str, value: Any = None) -> None:
        """Offer an item to a source."""
        self.sources.offer(source, key, value)

    def arrivals(self, operator: str) -> list[Arrival]:
        """What came to a sink so far."""
        with self._changed:
            return list(self.sinks.arrivals[operator])

    def settle(self, operators: Iterable[str] | None = None, timeout_s: float = 30.0) -> bool:
        """Wait until everything that was offered has come to sinks (default: all); tells whether it has."""
        wanted, last = list(self.stream.sinks if operators is None else operators), self.sources.last
        with self._changed:
            return self._changed.wait_for(
                lambda: all(self.sinks.complete(name) >= last for name in wanted), timeout=timeout_s
            )

    @property
    def dropped(self) -> int:
        """Items that consumers had already, sinks included."""
        return self._dropped + self.sinks.dropped

    @property
    def deployment(self) -> Deployment:
        """Executors that are alive."""
        with self._changed:
            return tuple(worker.executor for worker in self._workers.values() if worker.alive)

    def lost(self) -> list[tuple[str, int]]:
        """Tasks that no executor has any more; their state is gone."""
        return self._without(self.deployment)

    def processes(self) -> dict[int, Executor]:
        """Executors that are alive by process id."""
        with self._changed:
            return {worker.pid: worker.executor for worker in self._workers.values() if worker.alive and worker.pid}

    def reconfigure(self, deployment: Deployment) -> Change:
        """Change to another deployment; state moves along.

        Raises
        ------
        InputError
            The deployment leaves a task out, or needs a machine that does not run.
        JobError
            A task's state is gone: a machine was lost that had its only copy, or what it had exported.
        """
        self._check(deployment)
        if missing := self.lost():
            raise JobError(f"task {missing[0][1]} of {missing[0][0]} has no executor any more: its state is lost")
        begun, before = time.monotonic(), self.deployment
        self._epoch += 1
        try:
            if not self.sources.pause(self._epoch, self.timeout_s):
                raise _Failed(f"executors took nothing from the sources for {self.timeout_s:g} s")
            self._pause(before, deployment)
            self._watch("paused")
            self._wait("at barrier A", ("A", self._epoch), copies=True)
        except _Failed as failed:
            if missing := self.lost():
                raise JobError(f"{failed}: the state of task {missing[0][1]} of {missing[0][0]} is lost") from None
            self._tell({"resume": self._epoch})
            self.sources.resume()
            return self._change("called off", str(failed), begun, time.monotonic())
        at_a = time.monotonic()
        self._end(self._workers.values())
        self._watch("barrier A")
        outcome: Literal["done", "rolled back"] = "done"
        reason = ""
        try:
            self._launch(deployment)
        except _Failed as failed:
            outcome, reason = "rolled back", str(failed)
            self._end(self._workers.values())
            self._watch("rolled back")
            self._roll_back(before)
        self._store.forget(self._epoch)
        return self._change(outcome, reason, begun, at_a)

    def _change(self, outcome: Any, reason: str, begun: float, at_a: float) -> Change:
        self._watch("resumed")
        return Change(outcome, reason, at_a - begun, time.monotonic() - begun)

    # Steps.

    def _check(self, deployment: Deployment) -> None:
        check(self.stream, deployment)
        states = self._provider.states()
        for executor in deployment:
            if (state := states.get(executor.machine, "not there")) != "running":
                raise InputError(f"machine {executor.machine} is {state}: executors need machines that run")

    def _pause(self, before: Deployment, after: Deployment) -> None:
        """Steps 1 to 6: say which tasks are to be exported where."""
        with self._changed:
            for worker in self._workers.values():
                name, here, _ = worker.executor
                store, swap = [], []
                for task in worker.executor.tasks:
                    old, new = (
                        {e.machine for e in some if e.operator == name and task in e.tasks} for some in (before, after)
                    )
                    if here in new:
                        swap.append(task)
                    # Copies: one of them may be lost before the others have imported.
                    if new != {here} or len(old) > 1:
                        store.append(task)
                self._say(worker, {"pause": self._epoch, "store": store, "swap": swap})

    def _roll_back(self, before: Deployment) -> None:
        """Start the old deployment, or what is left of it, with what it exported."""
        states = self._provider.states()
        left = tuple(executor for executor in before if states.get(executor.machine) == "running")
        if missing := self._without(left):
            raise JobError(f"no machine is left with the state of task {missing[0][1]} of {missing[0][0]}")
        try:
            self._launch(left)
        except _Failed as failed:
            self._end(self._workers.values())
            raise JobError(f"the old deployment did not start again: {failed}") from None

    def _launch(self, deployment: Deployment) -> None:
        """Steps 7 to 10: start executors, have them import, and let all work."""
        for executor in deployment:
            self._submit(executor)
        self._watch("started")
        self._wait("connected", None)
        workers, readers = list(self._workers.values()), []
        for worker in workers:
            operator, _, tasks = worker.executor
            reads = self.stream.of[operator].inputs
            producers = [other.name for other in workers if other.executor.operator in reads]
            consumers = [
                (other.executor.operator, other.executor.tasks, other.port)
                for other in workers if operator in self.stream.of[other.executor.operator].inputs
            ]  # fmt: skip
            if set(reads) & set(self.stream.sources):
                producers.append(OUTSIDE)
                with contextlib.suppress(OSError, EOFError):  # killed: found out at the barrier
                    readers.append(Reader(connect(worker.port, self._key), operator, frozenset(tasks)))
            if operator in self.stream.sinks:
                consumers.append((OUTSIDE, (), self._door.port))
            told = asdict(self.stream) | {
                "epoch": self._epoch, "operator": operator, "tasks": tasks, "producers": producers,
                "consumers": consumers, "store": str(self._store_file.resolve()), "swap": f"swap-{self._name}",
            }  # fmt: skip
            with self._changed:
                self._say(worker, {"begin": told})
        self._wait("at barrier B", ("B", self._epoch))
        self._tell({"go": self._epoch})
        self.sources.resume(readers)

    def _submit(self, executor: Executor) -> None:
        name, self._named = f"{executor.operator}.{self._named}", self._named + 1
        program = [sys.executable, "-m", "experiments.edrp.stateful.executor"]
        command = [*program, str(self._door.port), str(self._key_file.resolve()), name]
        with self._changed:
            try:
                task = self._provider.submit(executor.machine, command)
            except (InputError, JobError) as error:
                raise _Failed(str(error)) from None
            self._workers[name] = _Worker(name, executor, task)

    def _wait(self, step: str, at: tuple[str, int] | None, *, copies: bool = False) -> None:
        """Wait until all are at a barrier (none: are connected); with `copies`, those lost may have live copies."""
        until = time.monotonic() + self.timeout_s
        with self._changed:
            while True:
                self._find_ended()
                for worker in self._workers.values():
                    if worker.problem:
                        raise _Failed(f"{worker.name} on machine {worker.executor.machine}: {worker.problem}")
                    if not worker.alive and not (copies and (self._is_at(worker, at) or not self.lost())):
                        raise _Failed(f"{worker.name} on machine {worker.executor.machine} ended before it was {step}")
                late = [w.name for w in self._workers.values() if w.alive and not self._is_at(w, at)]
                if not late:
                    return
                if time.monotonic() > until:
                    raise _Failed(f"{late[0]} was not {step} within {self.timeout_s:g} s")
                self._changed.wait(_LOOK_S)

    def _is_at(self, worker: _Worker, at: tuple[str, int] | None) -> bool:
        if at is None:
            return worker.connection is not None
        # Sinks are downstream of some tasks and have to be at barrier A as well.
        waits = at[0] == "A" and worker.executor.operator in self.stream.sinks
        return worker.at == at and (not waits or (self._epoch, worker.name) in self._ended)

    def _find_ended(self) -> None:
        """Note those that ended before they connected."""
        for worker in self._workers.values():
            if worker.connection is None and self._provider.exit_code(worker.task) is not None:
                worker.alive = False

    def _end(self, workers: Iterable[_Worker]) -> None:
        with self._changed:
            for worker in list(workers):
                if worker.connection is not None:
                    drop(worker.connection)
                self._workers.pop(worker.name, None)
                self._retired.append(worker)

    def _without(self, deployment: Deployment) -> list[tuple[str, int]]:
        there = {(executor.operator, task) for executor in deployment for task in executor.tasks}
        return [
            (operator.name, task) for operator in self.stream.operators for task in range(operator.tasks)
            if (operator.name, task) not in there
        ]  # fmt: skip

    # Messages.

    def _hear(self, said: Any, connection: Connection) -> None:
        """Take a message of an executor; called by the threads that read."""
        with self._changed:
            if said is None:
                for worker in self._workers.values():
                    if worker.connection is connection:
                        worker.alive = False
                        self._tell({"gone": worker.name})
            elif "items" in said:
                self.sinks.receive(said)
            elif "end" in said:
                self._ended.add((said["end"], said["from"]))
            elif "hello" in said:
                if (found := self._workers.get(said["hello"])) is None:
                    drop(connection)  # of a deployment that was given up
                else:
                    found.connection, found.port, found.pid = connection, said["port"], said["pid"]
            elif "dropped" in said:
                self._dropped += said["dropped"]
            else:
                for worker in self._workers.values():
                    if worker.connection is connection:
                        worker.problem = said.get("failed", "")
                        worker.at = (said.get("at", ""), said.get("epoch", 0))
            self._changed.notify_all()

    def _tell(self, said: Any) -> None:
        with self._changed:
            for worker in self._workers.values():
                self._say(worker, said)

    def _say(self, worker: _Worker, said: Any) -> None:
        """Tell an executor; if it is gone, its connection's reader finds out."""
        if worker.alive and worker.connection is not None:
            with contextlib.suppress(OSError):
                send(worker.connection, said)
