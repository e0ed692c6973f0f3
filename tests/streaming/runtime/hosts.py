"""A controller and agents as processes of the command line, for tests of flows on several hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

TOKEN = "a-token-of-twenty-six-chars"


class Started:
    """A command that runs, with what it prints."""

    def __init__(self, arguments: Sequence[str], log: Path, before: Sequence[str] = ()) -> None:
        self._log = log
        self._file: IO[bytes] = log.open("wb")
        environment = {name: value for name, value in os.environ.items() if name != "GOFFISH_TOKEN"}
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "goffish", "stream", *arguments],
            stdin=subprocess.DEVNULL, stdout=self._file, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip

    @property
    def output(self) -> str:
        return self._log.read_text()

    def printed(self, text: str, seconds: float = 60.0) -> str:
        """Wait for a text, and return the rest of its line."""
        end = time.monotonic() + seconds
        while text not in self.output or "\n" not in self.output.split(text, 1)[1]:
            assert time.monotonic() < end, self.output
            assert self.process.poll() is None, self.output
            time.sleep(0.05)
        return self.output.split(text, 1)[1].splitlines()[0].strip()

    def wait(self, seconds: float = 120.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.output) from None

    @property
    def workers(self) -> list[int]:
        """Process ids of the workers that this process has started."""
        return workers_of(self.process.pid)

    def close(self) -> None:
        """Kill the process and its workers."""
        if self.process.poll() is None:
            for pid in [*self.workers, *children(self.process.pid), self.process.pid]:
                kill(pid)
        self.process.wait()
        self._file.close()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found: list[int] = []
    with suppress(FileNotFoundError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def workers_of(pid: int) -> list[int]:
    """Return the workers that a process has started: they are copies of its template."""
    return [worker for template in children(pid) for worker in children(template)]


def kill(pid: int) -> None:
    """Kill a process if it has not ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for(done: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.05)
