"""The process of a local machine: runs commands, and limits their processor time to the machine's share.

``python -m goffish.cloud.providers.agent LIMIT`` reads one JSON object per line and command from standard input and
writes one per event to standard output. The machine stops at the end of standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

#: Seconds between two measurements of the commands' processor time.
_TICK_S = 0.05
_REPORT_EVERY_S = 0.25
_KNOWN_S = 0.5
#: Processor seconds that may be saved up for a burst.
_BURST_S = 0.1


class _Machine:
    """Commands and their processor time; `limit` processors at most."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._taken: dict[int, float] = {}
        self._ended = 0.0
        self._known: list[psutil.Process] = []
        self._known_until = 0.0

    def run(self, number: int, command: list[str], environment: dict[str, str]) -> None:
        """Start a command."""
        try:
            with Path(f"task-{number}.out").open("wb") as out, Path(f"task-{number}.err").open("wb") as err:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=os.environ | environment
                )
        except OSError as error:
            sys.stderr.write(f"{command[0]}: {error.strerror}\n")
            self._say(task=number, code=127)
            return
        with self._lock:
            self._running[number] = child
        self._known_until = 0.0

    def warn(self) -> None:
        """Send SIGTERM to all commands."""
        with self._lock:
            for child in self._running.values():
                child.terminate()

    def govern(self) -> None:
        """Pause and resume the commands indefinitely, so that they do not exceed their share."""
        budget, before, reported, stopped = _BURST_S, time.monotonic(), 0.0, False
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            taken = self._cpu_seconds()
            earned = (now - before) * self._limit
            budget = min(budget + earned, _BURST_S) - (taken - self._ended)
            self._ended, before = taken, now
            if (budget <= 0) != stopped:
                stopped = not stopped
                for process in self._processes():
                    _send(process, signal.SIGSTOP if stopped else signal.SIGCONT)
            self._reap()
            if now - reported > _REPORT_EVERY_S:
                reported = now
                self._say()

    def _processes(self) -> list[psutil.Process]:
        """List the commands and their descendants; refreshed at intervals, as it reads the whole process table."""
        if time.monotonic() > self._known_until:
            self._known = psutil.Process().children(recursive=True)
            self._known_until = time.monotonic() + _KNOWN_S
        return self._known

    def _cpu_seconds(self) -> float:
        """Processor time of all commands so far, including those that ended."""
        for process in self._processes():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._taken[process.pid] = max(self._taken.get(process.pid, 0.0), times.user + times.system)
        return sum(self._taken.values())

    def _reap(self) -> None:
        with self._lock:
            ended = {number: child.returncode for number, child in self._running.items() if child.poll() is not None}
            for number in ended:
                del self._running[number]
        for number, code in ended.items():
            self._say(task=number, code=code)

    def _say(self, **what: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(what | {"cpu_seconds": self._ended}) + "\n")
            sys.stdout.flush()


def _send(process: psutil.Process, which: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(which)


def main() -> None:
    """Run a machine until the end of standard input."""
    machine = _Machine(float(sys.argv[1]))
    threading.Thread(target=machine.govern, daemon=True).start()
    for line in sys.stdin:
        asked = json.loads(line)
        if "warn" in asked:
            machine.warn()
        else:
            machine.run(asked["task"], asked["command"], asked["environment"])
    # The parent is gone: this process leads its group, and all processes in the group end.
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
