"""``goffish top``: which jobs it shows, and how the live table behaves on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from goffish.cli.app import app
from goffish.client import Client
from goffish.v1 import jobs_pb2
from tests.services.api.serving import RealServer, serving

#: Runs a command on a terminal of its own; what is typed comes in, what is shown goes out.
TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, "-m", "goffish", *sys.argv[1:]])))
"""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[RealServer]:
    """A server where one job was done, one runs, and 201 wait behind it."""
    with serving(tmp_path_factory.mktemp("busy") / "home", data, "--slots", "1", "--grace", "0") as found:
        with found.client() as client, ThreadPoolExecutor(8) as pool:
            client.wait(client.submit_graph("components", "store", labels={"is": "over"}).id)
            job = client.submit_dataflow("sc13-diamond", hours_per_second=1e-5, labels={"is": "running"}).id
            while client.job(job).state != jobs_pb2.JOB_STATE_RUNNING:
                time.sleep(0.05)
            list(pool.map(lambda _: client.submit_graph("components", "store"), range(201)))
        yield found


def only(client: Client, label: str) -> str:
    return next(job.id for job in client.list(labels={"is": label}))


@pytest.mark.slow
def test_those_that_run_come_first(busy: RealServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Breaks when a job that runs is not shown because many wait, or is not told how long it has been running."""
    app(["top", "--once", "--limit", "3", "--server", busy.address], standalone_mode=False)
    app(["top", "--limit", "203", "--server", busy.address], standalone_mode=False)
    lines = capfd.readouterr().out.splitlines()
    with busy.client() as client:
        running, over = only(client, "running"), only(client, "over")
    first, rest = lines[:5], lines[5:]
    assert [line.split()[2] for line in first[2:]] == ["running", "queued", "queued"]
    assert first[2].split()[0] == running and float(first[2].split()[6]) > 0
    assert [line.split()[2] for line in rest[2:]] == ["running", *["queued"] * 201, "done"]
    assert rest[-1].split()[0] == over and len({line.split()[0] for line in rest[2:]}) == 203


@pytest.mark.slow
def test_the_live_table(busy: RealServer) -> None:
    """Breaks when the table ends with its server, shows nothing new, or leaves the terminal as it should not be."""
    command = [sys.executable, "-c", TERMINAL, "top", "--interval", "1.5", "--server", busy.address]
    shown = ""
    with busy.client() as client:
        running = only(client, "running")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"TERM": "xterm", "COLUMNS": "160"}
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

        def until(shows: Callable[[str], bool]) -> None:
            nonlocal shown
            end = time.monotonic() + 25
            while len(frames := shown.split("\x1b[H")) < 3 or not shows(frames[-2]):
                assert time.monotonic() < end and process.poll() is None, shown[-3000:]
                shown += (process.stdout.read() or b"").decode(errors="replace")  # type: ignore[union-attr]
                time.sleep(0.02)

        until(lambda frame: f"{running} " in frame and " running " in frame)
        busy.kill()
        until(lambda frame: "cannot connect to the server" in frame and f"{running} " in frame)
        busy.start()
        until(lambda frame: "cannot connect to the server" not in frame and f"{running} " in frame)
        process.stdin.write(b"\x03")
        process.stdin.flush()
        assert process.wait(10) == 130
        shown += (process.stdout.read() or b"").decode()
    after = shown.split("\x1b[?1049l")
    assert len(after) == 2 and "\x1b[?1049h" in after[0] and "\x1b[?1049h" not in after[1]
    assert "\x1b[?25h" in after[1] and "\x1b[?25l" not in after[1]
    assert "interrupted" in after[1] and running not in after[1] and "Traceback" not in shown
