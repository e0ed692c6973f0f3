"""Ctrl-C, SIGTERM and kill -9 in every phase of a command.

Each test waits for something that only happens inside the phase (an open file, a child process, a temporary file), so
that the signal falls there on fast and on slow machines. What it guards: a user who presses Ctrl-C gets the prompt back
at once, finds no broken file, and the machine does not go on working behind his back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goffish.graph import from_edges
from goffish.graph.io import write
from tests.cli.conftest import Place, grid_edges
from tests.commands import ENVIRONMENT, call

LIMIT = 1.5


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A grid of 1,000,000 vertices, as text (names as labels) and as Arrow; a 150 x 150 grid as a store."""
    folder = tmp_path_factory.mktemp("big")
    edges = grid_edges(1000, 1000)
    graph = from_edges(edges[:, 0], edges[:, 1])
    write(graph, folder / "big.arrow")
    write(graph, folder / "ids.txt")
    text = (folder / "ids.txt").read_bytes().partition(b"target\n")[2]
    (folder / "names.txt").write_bytes(b"v" + text.replace(b"\n", b"\nv").replace(b"\t", b"\tv") + b"0\tv1\n")
    np.savetxt(folder / "grid.txt", grid_edges(150, 150), fmt="%d")
    made = call("partition", "grid.txt", "-o", "grid.gofs", "-k", "2", "--units", "vertex", cwd=folder)
    assert made.code == 0, made.err
    return Place(folder)


def start(*args: Any, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "goffish", *map(str, args)], cwd=cwd, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], reached: Callable[[int], Any]) -> Any:
    until = time.monotonic() + 100
    while time.monotonic() < until:
        found = reached(process.pid)
        if found:
            return found
        if process.poll() is not None:
            pytest.fail(f"ended before the phase was seen: {process.communicate()}")
        time.sleep(0.001)
    process.kill()
    pytest.fail("the phase was never reached")


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> float:
    """Send the signal, check how the process ends, and return the seconds that it took."""
    begun = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    seconds = time.monotonic() - begun
    assert process.returncode == 128 + number, err
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert err == f"{word}; no partial output files were left\n"
    assert out == ""
    print(f"ended after {seconds:.2f} s")
    assert seconds < LIMIT
    return seconds


def has_open(path: Path) -> Callable[[int], bool]:
    def reached(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return any(Path(fd).readlink() == path for fd in Path(f"/proc/{pid}/fd").iterdir())
        return False

    return reached


def child_of(pid: int) -> int | None:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                if b"_metis_child" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    return None


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def exists(folder: Path, pattern: str) -> Callable[[int], bool]:
    return lambda pid: any(folder.glob(pattern))


def test_while_the_interpreter_starts(big: Place) -> None:
    process = start("info", "names.txt", cwd=big.path)
    wait_for(process, lambda pid: len(list(Path(f"/proc/{pid}/task").iterdir())) > 1)
    interrupt(process)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_reading(big: Place, number: int) -> None:
    before = big.files()
    process = start("import", "names.txt", "-o", "out.parquet", cwd=big.path)
    wait_for(process, has_open(big / "names.txt"))
    interrupt(process, number)
    assert big.files() == before


@pytest.mark.slow
def test_while_metis_partitions(big: Place) -> None:
    before = big.files()
    process = start("partition", "big.arrow", "-o", "out.gofs", "-k", "64", cwd=big.path)
    child = wait_for(process, child_of)
    time.sleep(0.3)  # METIS is past its start now
    assert alive(child)
    interrupt(process)
    until = time.monotonic() + 1  # a large process takes a moment to be taken down
    while alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(child), "METIS goes on without anybody to take its answer"
    assert big.files() == before


@pytest.mark.slow
def test_while_writing_a_store(big: Place) -> None:
    args = ("partition", "big.arrow", "-o", "out.gofs", "-k", "96", "--method", "range")
    process = start(*args, cwd=big.path)
    wait_for(process, exists(big.path, "out.gofs/p00003"))
    interrupt(process)
    assert not (big / "out.gofs").exists()
    assert call(*args, "--json", cwd=big.path).json["store"] == "out.gofs"
    assert call("verify", "out.gofs", cwd=big.path).code == 0


def test_while_running_supersteps(big: Place) -> None:
    args = ("run", "sssp", "grid.gofs", "--source", "0", "-o", "out.csv")
    process = start(*args, "--checkpoint-dir", "steps", "--checkpoint-every", "2", cwd=big.path)
    wait_for(process, exists(big.path, "steps/step-*4"))
    interrupt(process)
    assert not (big / "out.csv").exists()
    assert not list(big.path.glob(".*.partial"))
    second = call(*args, "--json", cwd=big.path)
    assert second.json["summary"]["farthest"] == 298
    assert len((big / "out.csv").read_text().splitlines()) == 150 * 150 + 1


@pytest.mark.parametrize("suffix", ["json", pytest.param("csv", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_while_writing_a_result(big: Place, suffix: str) -> None:
    (big / f"kept.{suffix}").write_text("as it was\n")
    process = start("run", "components", "big.arrow", "-o", f"kept.{suffix}", cwd=big.path)
    wait_for(process, exists(big.path, f".kept.{suffix}.*.partial"))
    interrupt(process)
    assert (big / f"kept.{suffix}").read_text() == "as it was\n"
    assert not list(big.path.glob(".*.partial"))
    assert call("run", "components", "grid.gofs", "-o", f"kept.{suffix}", cwd=big.path).code == 0
    assert (big / f"kept.{suffix}").stat().st_size > 100_000


@pytest.mark.slow
def test_killed_and_resumed(big: Place) -> None:
    args = ("run", "sssp", "grid.gofs", "--source", "77")
    whole = call(*args, "-o", "whole.csv", "--json", cwd=big.path)
    safe = ("--checkpoint-dir", "safe", "--checkpoint-every", "3")
    process = start(*args, *safe, "-o", "resumed.csv", cwd=big.path)
    wait_for(process, exists(big.path, "safe/step-*12"))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (big / "resumed.csv").exists()
    resumed = call(*args, *safe, "--resume", "-o", "resumed.csv", "--json", cwd=big.path)
    assert resumed.json["summary"] == whole.json["summary"]
    assert (big / "resumed.csv").read_bytes() == (big / "whole.csv").read_bytes()
    counters = [{k: v for k, v in r.json["stats"].items() if k in ("supersteps", "messages")} for r in (whole, resumed)]
    assert counters[0] == counters[1], "the counters of the time before the kill are lost"
