"""A real server for the benchmark of the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil


class Served:
    """A ``goffish serve`` that can be killed and started again on the same folder and address."""

    def __init__(self, home: Path, data: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.home, self.data, self._options = home, data, options
        self._environment = dict(environment or {})
        self.address = "127.0.0.1:0"
        self.log = home.with_suffix(".log")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "goffish", "serve", "--home", str(self.home), "--listen", self.address]
        command += ["--data", str(self.data), "--max-call-rate", "1000000", "--max-calls", "100000", "--grace", "1"]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, *self._options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | self._environment,
            )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[-1]

    def kill(self) -> None:
        """At once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """As an operator does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120)

    def memory_mb(self) -> float:
        """Resident, of the server itself."""
        assert self._process is not None
        return float(psutil.Process(self._process.pid).memory_info().rss) / 2**20


@contextmanager
def serve(home: Path, data: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A server that ends with this."""
    served = Served(home, data, *options, environment=environment)
    served.start()
    try:
        yield served
    finally:
        served.stop()
