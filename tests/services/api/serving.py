"""Real servers for tests: processes of their own, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from goffish.client import Client


class RealServer:
    """A ``goffish serve`` on a folder; the address stays the same when it is started again.

    `within` is a command that runs it, such as ``prlimit``.
    """

    def __init__(
        self, home: Path, data: Path, *options: str, listen: str | None = None, within: Sequence[str] = ()
    ) -> None:
        self.home, self.data, self._within = home, data, within
        self.address = listen or f"unix:{home}/socket"
        self._options = options
        self.process: subprocess.Popen[str] | None = None
        self.log = home.with_name(f"{home.name}.log")

    def start(self) -> RealServer:
        """Start it and wait until it answers."""
        self.home.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "goffish", "serve", "--home", str(self.home), "--listen", self.address]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*self._within, *command, "--data", str(self.data), *self._options],
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("serving on "), self.log.read_text()[-3000:]
        if self.address.endswith(":0"):
            self.address = line.split()[-1]
        return self

    def kill(self) -> None:
        """As a power cut would, except that its workers stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to stop; gives its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def workers(self) -> list[psutil.Process]:
        """The workers of its jobs that are there."""
        found = []
        for process in processes_with(str(self.home)):
            with suppress(psutil.NoSuchProcess):  # it has ended since
                if re.search(r"runners[./](flow_)?worker", " ".join(process.cmdline())):
                    found.append(process)
        return found

    def client(self, token: str | None = None) -> Client:
        """A client of it."""
        return Client(self.address, token)


def processes_with(text: str) -> list[psutil.Process]:
    """Processes whose command line holds a text."""
    found = []
    for process in psutil.process_iter():
        try:
            if text in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


@contextmanager
def serving(
    home: Path, data: Path, *options: str, listen: str | None = None, within: Sequence[str] = ()
) -> Iterator[RealServer]:
    """A server that ends with this, and everything that it started."""
    server = RealServer(home, data, *options, listen=listen, within=within).start()
    try:
        yield server
    finally:
        server.stop()
        for process in server.workers():
            process.kill()


def settle(client: Client, jobs: list[str], limit_s: float = 120.0) -> None:
    """Wait until jobs are over."""
    end = time.monotonic() + limit_s
    for job in jobs:
        while client.job(job).state < 6:
            assert time.monotonic() < end, client.job(job)
            time.sleep(0.1)


@dataclass
class Known:
    """A server that asks who calls, and the tokens of its clients."""

    server: RealServer
    tokens: dict[str, str]

    def client(self, name: str) -> Client:
        """One of its clients."""
        return self.server.client(self.tokens[name])
