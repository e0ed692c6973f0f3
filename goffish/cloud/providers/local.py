"""Machines as process groups on this computer, each limited to the processor share of its machine type.

A machine is an agent process (`agent.py`) in a separate session. Commands run as its children; the agent pauses and
resumes them so that together they use at most ``cores * speed * reference_share`` of a processor. The agent and all its
commands end when this process ends for any reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.providers.ledger import Ledger
from goffish.cloud.providers.protocol import State, Task
from goffish.environment import child_environment
from goffish.errors import InputError, JobError
from goffish.partial import local_path

_GRACE_S = 2.0


class LocalProvider:
    """Provider of real processes on this computer.

    Parameters
    ----------
    catalogue : Catalogue
    reference_share : float
        Share of a processor of this computer per reference core: with 0.1, a machine with 4 cores of speed 2 may use
        0.8 processors.
    folder : path, optional
        Parent of the working folder of each machine; default: a temporary folder that is removed with the provider.
    pace : float
        Simulated seconds per real second, for prices and bills.
    since : float, optional
        Start of the spot prices in seconds since 1970 (UTC); default: the start of the traces.
    environment : mapping, optional
        Environment of the machines and their commands; default: `goffish.environment.child_environment`.

    Notes
    -----
    A context manager that stops all machines on exit.
    """

    def __init__(
        self, catalogue: Catalogue, *, reference_share: float = 1.0, folder: str | Path | None = None,
        pace: float = 1.0, since: float | None = None, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        if not 0 < reference_share <= 1:
            raise InputError(f"reference_share = {reference_share}: must be greater than 0 and at most 1")
        if not 0 < pace < float("inf"):
            raise InputError(f"pace = {pace}: must be greater than 0 (simulated seconds per real second)")
        place = None if folder is None else local_path(folder)
        self._catalogue, self._share = catalogue, reference_share
        self._environment = child_environment() if environment is None else environment
        self._pace, self._began = pace, time.monotonic()
        self._ledger = Ledger(catalogue, since=since)
        self._agents: list[_Agent] = []
        self._temporary = tempfile.TemporaryDirectory(prefix="goffish-machines-") if place is None else None
        self._folder = place or Path(self._temporary.name)  # type: ignore[union-attr]

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    @property
    def now(self) -> float:
        """Simulated seconds since the start of the provider."""
        return (time.monotonic() - self._began) * self._pace

    def prices(self) -> list[float]:
        """Current price of an hour of each machine type."""
        return [one.price_per_hour for one in self._ledger.market.priced(self.now).classes]

    def life(self, machine: int) -> tuple[float, float]:
        """Time of the request and of the end (or now) of a machine, on the clock of `now`."""
        self._ledger.check(machine)
        return self._ledger.started[machine], self._ledger.end(machine, self.now)

    def taken(self, machine: int) -> bool:
        """Whether a spot machine was interrupted because its price exceeded its bid."""
        self._ledger.check(machine)
        return self._ledger.taken(machine, self.now)

    def __enter__(self) -> LocalProvider:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all machines."""
        for agent in self._agents:
            agent.ask_to_end()  # all of them, before the first one is waited for
        for machine in range(len(self._agents)):
            self.stop(machine)
        if self._temporary is not None:
            self._temporary.cleanup()

    def start(self, kind: int) -> int:
        machine = self._ledger.start(kind, self.now)
        home = self._folder / f"machine-{machine}"
        home.mkdir(parents=True, exist_ok=True)
        limit = float(self._catalogue.powers[kind]) * self._share
        self._agents.append(_Agent(home, limit, self._environment))
        return machine

    def stop(self, machine: int) -> None:
        self._ledger.check(machine)
        self._agents[machine].end(signal.SIGTERM)
        self._ledger.stop(machine, self.now)

    def fail(self, machine: int) -> None:
        """Kill a machine at once, like a power failure."""
        self._ledger.check(machine)
        self._agents[machine].end(signal.SIGKILL)

    def states(self) -> Mapping[int, State]:
        found, now = {}, self.now
        for machine, agent in enumerate(self._agents):
            if self._ledger.taken(machine, now):
                agent.end(signal.SIGKILL)
            found[machine] = agent.state()
            if found[machine] == "failed":
                self._ledger.stop(machine, now)
        return found

    def spent(self) -> float:
        self.states()
        return self._ledger.spent(self.now)

    def submit(self, machine: int, command: Sequence[str]) -> Task:
        self._ledger.check(machine)
        if not command or not all(isinstance(part, str) for part in command):
            raise InputError("command: expected a non-empty list of strings, the program and its arguments")
        state = self._agents[machine].state()
        if state != "running":
            raise InputError(f"machine {machine} is {state}: cannot run commands")
        return Task(machine, self._agents[machine].submit(list(command)))

    def exit_code(self, task: Task) -> int | None:
        self._ledger.check(task.machine)
        return self._agents[task.machine].exit_code(task.number)

    def cpu_seconds(self, machine: int) -> float:
        """Processor seconds of a machine's commands so far, as last reported by its agent."""
        self._ledger.check(machine)
        return self._agents[machine].cpu_seconds


class _Agent:
    """The process of one machine, and its reports."""

    def __init__(self, home: Path, limit: float, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "goffish.cloud.providers.agent", str(limit)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home, text=True, bufsize=1, start_new_session=True,
            env=environment,
        )  # fmt: skip
        self._told = threading.Lock()
        self._ready, self._asked_to_end = False, False
        self._submitted = 0
        self._codes: dict[int, int] = {}
        self.cpu_seconds = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            with self._told:
                self._ready = True
                self.cpu_seconds = said["cpu_seconds"]
                if "task" in said:
                    self._codes[said["task"]] = said["code"]
        self._process.wait()
        # A killed agent leaves its commands behind.
        self._signal(signal.SIGKILL)

    def state(self) -> State:
        if self._process.poll() is not None:
            return "stopped" if self._asked_to_end else "failed"
        return "running" if self._ready else "starting"

    def submit(self, command: list[str]) -> int:
        assert self._process.stdin is not None
        number, self._submitted = self._submitted, self._submitted + 1
        try:
            self._process.stdin.write(json.dumps({"task": number, "command": command}) + "\n")
        except OSError:
            raise JobError("the machine failed before it accepted the command") from None
        return number

    def exit_code(self, number: int) -> int | None:
        if not 0 <= number < self._submitted:
            raise InputError(f"unknown task {number}: {self._submitted} were submitted to the machine")
        with self._told:
            code = self._codes.get(number)
        return -9 if code is None and self._process.poll() is not None else code

    def ask_to_end(self) -> None:
        if not self._asked_to_end and self._process.poll() is None:
            self._signal(signal.SIGTERM)
        self._asked_to_end = True

    def end(self, how: signal.Signals) -> None:
        if how is signal.SIGTERM:
            self.ask_to_end()
        if self._process.poll() is not None:
            return
        if how is signal.SIGTERM:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
        # Kill the remaining processes of the group, paused ones included.
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, which)
