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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

from goffish.cloud.catalogue import Catalogue
from goffish.environment import child_environment
from goffish.errors import InputError, JobError
from goffish.partial import local_path

_GRACE_S = 2.0
ProcessState = Literal["starting", "running", "stopped", "failed"]


class Task(NamedTuple):
    """A command on a machine.

    Attributes
    ----------
    machine, number : int
    """

    machine: int
    number: int


class LocalMachines:
    """Real processes on this computer as machines, of which each runs any number of commands.

    Parameters
    ----------
    catalogue : Catalogue
    reference_share : float
        Share of a processor of this computer per reference core: with 0.1, a machine with 4 cores of speed 2 may use
        0.8 processors.
    folder : path, optional
        Parent of the working folder of each machine; default: a temporary folder that is removed at the end.
    environment : mapping, optional
        Environment of the machines and their commands; default: `goffish.environment.child_environment`.

    Notes
    -----
    A context manager that stops all machines on exit.
    """

    def __init__(
        self, catalogue: Catalogue, *, reference_share: float = 1.0, folder: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        if not 0 < reference_share <= 1:
            raise InputError(f"reference_share = {reference_share}: must be greater than 0 and at most 1")
        place = None if folder is None else local_path(folder)
        self._catalogue, self._share = catalogue, reference_share
        self._environment = child_environment() if environment is None else environment
        self._agents: list[_Agent] = []
        self._temporary = tempfile.TemporaryDirectory(prefix="goffish-machines-") if place is None else None
        self._folder = place or Path(self._temporary.name)  # type: ignore[union-attr]

    def __enter__(self) -> LocalMachines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all machines."""
        for agent in self._agents:
            agent.ask_to_end()  # all of them, before the first one is waited for
        for agent in self._agents:
            agent.end(signal.SIGTERM)
        if self._temporary is not None:
            self._temporary.cleanup()

    def start(self, kind: int) -> int:
        """Start a machine of a type of the catalogue, and return its number; they count from 0."""
        if not 0 <= kind < len(self._catalogue.classes):
            raise InputError(f"unknown machine type {kind}: the catalogue has {len(self._catalogue.classes)}")
        running, most = sum(one.state() in ("starting", "running") for one in self._agents), self._catalogue.limit
        if most is not None and running >= most:
            raise InputError(f"the catalogue allows {most} machines at a time")
        home = self._folder / f"machine-{len(self._agents)}"
        home.mkdir(parents=True, exist_ok=True)
        self._agents.append(_Agent(home, float(self._catalogue.powers[kind]) * self._share, self._environment))
        return len(self._agents) - 1

    def stop(self, machine: int) -> None:
        """Stop a machine; its commands end."""
        self._agent(machine).end(signal.SIGTERM)

    def fail(self, machine: int) -> None:
        """Kill a machine at once, like a power failure."""
        self._agent(machine).end(signal.SIGKILL)

    def states(self) -> Mapping[int, ProcessState]:
        """State of every machine."""
        return {machine: agent.state() for machine, agent in enumerate(self._agents)}

    def submit(self, machine: int, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Task:
        """Run a command on a machine, as soon as it has started.

        Parameters
        ----------
        machine : int
        command : sequence of str
        environment : mapping, optional
            Variables beside those of the machine.

        Raises
        ------
        InputError
            The machine has ended, or the command is not accepted.
        JobError
            The machine ends now.
        """
        agent = self._agent(machine)
        if isinstance(command, str) or not command or not all(isinstance(part, str) for part in command):
            raise InputError("command: expected a non-empty list of strings, the program and its arguments")
        if (state := agent.state()) in ("stopped", "failed"):
            raise InputError(f"machine {machine} is {state}: cannot run commands")
        return Task(machine, agent.submit(list(command), dict(environment or {})))

    def warn(self, machine: int) -> None:
        """Send SIGTERM to the commands of a machine, which will be taken back."""
        self._agent(machine).warn()

    def exit_code(self, task: Task) -> int | None:
        """Exit code of a command; ``None`` while it runs, -9 if its machine is gone."""
        return self._agent(task.machine).exit_code(task.number)

    def cpu_seconds(self, machine: int) -> float:
        """Processor seconds of a machine's commands so far, as last reported by its agent."""
        return self._agent(machine).cpu_seconds

    def _agent(self, machine: int) -> _Agent:
        if not 0 <= machine < len(self._agents):
            raise InputError(f"unknown machine {machine}: {len(self._agents)} were started")
        return self._agents[machine]


class _Agent:
    """The process of one machine, and its reports."""

    def __init__(self, home: Path, limit: float, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "goffish.cloud.providers.agent", str(limit)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home, text=True, bufsize=1, start_new_session=True,
            env=environment,
        )  # fmt: skip
        self._notice_lock = threading.Lock()
        self._ready, self._asked_to_end = False, False
        self._submitted = 0
        self._codes: dict[int, int] = {}
        self.cpu_seconds = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            with self._notice_lock:
                self._ready = True
                self.cpu_seconds = said["cpu_seconds"]
                if "task" in said:
                    self._codes[said["task"]] = said["code"]
        self._process.wait()
        # A killed agent leaves its commands behind.
        self._signal(signal.SIGKILL)

    def state(self) -> ProcessState:
        if self._process.poll() is not None:
            return "stopped" if self._asked_to_end else "failed"
        return "running" if self._ready else "starting"

    def submit(self, command: list[str], environment: dict[str, str]) -> int:
        number, self._submitted = self._submitted, self._submitted + 1
        try:
            self._write(task=number, command=command, environment=environment)
        except OSError:
            raise JobError("the machine failed before it accepted the command") from None
        return number

    def warn(self) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            self._write(warn=True)

    def _write(self, **asked: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")

    def exit_code(self, number: int) -> int | None:
        if not 0 <= number < self._submitted:
            raise InputError(f"unknown task {number}: {self._submitted} were submitted to the machine")
        with self._notice_lock:
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
