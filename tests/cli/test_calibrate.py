"""``goffish calibrate`` as a user meets it: interrupted, resumed, finished, shown and used."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from goffish.scheduling.estimate import estimate, read_calibration, shape_of
from tests.cli.conftest import Place
from tests.commands import ENVIRONMENT, Ended, assert_refused, call

#: No time at all: as many runs as a fit and a test need.
ASKED = ("calibrate", "--algorithms", "components,bfs", "--sizes", "tiny", "--minutes", "0.001", "-o", "c.json")
#: Three graphs to fit to and one to test on, for each algorithm.
RUNS = 8
FITTED = ("rmat-1000", "road-1000", "communities-1000")


@dataclass(frozen=True)
class Session:
    """A calibration that was interrupted and finished."""

    folder: Path
    interrupted: Ended
    measured: int
    left: set[str]
    journal: list[str]
    finished: Ended


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("calibrate")
    (folder / "tmp").mkdir()
    environment = ENVIRONMENT | {"TMPDIR": str(folder / "tmp")}
    command = [sys.executable, "-m", "goffish", *ASKED]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        journal = folder / "c.json.runs"
        for _ in range(1200):
            if (journal.exists() and journal.read_text().count("\n") >= 2) or process.poll() is not None:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    left = {path.name for path in (folder / "tmp").iterdir()}
    measured = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    done = {(run["graph"], run["shape"]["algorithm"]) for run in measured}
    with journal.open("a") as stream:
        # As if more had been measured, to save time; then a power cut in the middle of a line.
        for name in FITTED:
            for algorithm in ("components", "bfs"):
                if (name, algorithm) not in done:
                    run = {**measured[0], "graph": name, "shape": {**measured[0]["shape"], "algorithm": algorithm}}
                    stream.write(json.dumps(run) + "\n")
        stream.write('{"graph": "rmat-')
    kept = journal.read_text().splitlines()[:-1]
    finished = call(*ASKED, "--resume", "--json", cwd=folder, TMPDIR=str(folder / "tmp"))
    return Session(folder, Ended(process.returncode, out, err), len(measured), left, kept, finished)


@pytest.mark.slow
def test_an_interrupt_keeps_the_runs(session: Session) -> None:
    """Breaks when Ctrl-C loses measured runs, leaves stores behind, or pretends to have finished."""
    assert session.interrupted.code == 130, session.interrupted.err
    assert session.interrupted.out == "" and session.interrupted.err.startswith("interrupted")
    assert 1 <= session.measured < RUNS
    assert not session.left


@pytest.mark.slow
def test_resuming_measures_the_rest_only(session: Session) -> None:
    """Breaks when a run is measured twice, or an old one is lost."""
    body = session.finished.json
    assert (body["runs"], body["calibration"]) == (RUNS, "c.json")
    stored = json.loads((session.folder / "c.json").read_text())["runs"]
    assert stored[: len(session.journal) - 1] == [json.loads(line) for line in session.journal[1:]]
    assert len({(run["graph"], run["shape"]["algorithm"]) for run in stored}) == len(stored) == RUNS
    assert len(session.journal) - 1 == RUNS - 2
    for algorithm in ("components", "bfs"):
        graphs = {run["graph"]: run["fitted"] for run in stored if run["shape"]["algorithm"] == algorithm}
        assert sorted(graphs.values()) == [False, True, True, True]
    assert all(run["cpu"] > 0 and run["startup_cpu"] > 0.2 and run["checkpoint_bytes"] > 100 for run in stored)
    assert not list((session.folder / "tmp").iterdir())
    assert not (session.folder / "c.json.runs").exists()


@pytest.mark.slow
def test_the_errors_can_be_shown_again(session: Session, shared: Place) -> None:
    path = session.folder / "c.json"
    shown = shared("calibrate", "--show", "-o", path)
    assert shown.code == 0
    rows = {line.split()[0]: line.split()[1:4] for line in shown.out.splitlines()[2:]}
    assert rows == {"components": ["local", "3", "1"], "bfs": ["local", "3", "1"]}
    errors = shared("calibrate", "--show", "--json", "-o", path).json["errors"]
    for error in errors:
        assert 1.0 <= error["median"] <= error["worst"]
    assert {error["runs"] for error in errors} == {1}


@pytest.mark.slow
def test_an_estimate_is_in_core_hours(session: Session, tmp_path: Path) -> None:
    """Against the processor time of ``goffish run`` as the kernel counts it; breaks when units are mixed up."""
    edges = "".join(f"{v} {v + 1}\n{v} {(7 * v) % 500}\n" for v in range(500))
    (tmp_path / "g.txt").write_text(edges)
    assert call("partition", "g.txt", "-o", "g.gofs", "-k", "4", cwd=tmp_path).code == 0
    shape = shape_of(str(tmp_path / "g.gofs"), "components", workers=len(os.sched_getaffinity(0)))
    found = estimate(shape, read_calibration(session.folder / "c.json"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert call("run", "components", "g.gofs", "--engine", "local", cwd=tmp_path, real=True).code == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    hours = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 3600.0
    # The band, and twice as much on both sides: other tests run on the same cores.
    assert found.core_hours_low / 2 < hours < 2 * found.core_hours_high
    assert found.warnings == ()


def test_bad_input(shared: Place, tmp_path: Path) -> None:
    def refused(*args: Any) -> str:
        ended = shared("calibrate", "-o", tmp_path / "c.json", *args)
        assert_refused(ended)
        assert not list(tmp_path.glob("c.json*"))
        return ended.err

    assert "algorithm 'closeness': choose one" in refused("--algorithms", "components,closeness")
    assert "engine 'gpu': choose one of local, mpi, spark" in refused("--engine", "gpu")
    assert "sizes='huge': choose one of tiny, small, medium, large" in refused("--sizes", "huge")
    assert "minutes = 0: must be greater than 0" in refused("--minutes", "0")
    assert "cannot be read" in refused("--show")
    (tmp_path / "other.json").write_text("{}")
    ended = shared("calibrate", "--algorithms", "bfs", "-o", tmp_path / "other.json")
    assert_refused(ended)
    assert "is not a calibration" in ended.err
