"""Checkpoints, time limits and interrupts of exact betweenness in memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from goffish.algorithms.betweenness import blocks
from goffish.algorithms.betweenness.in_memory import betweenness, edge_betweenness
from goffish.errors import InputError, StoreError
from tests.algorithms.betweenness.graphs import cut_small, make, to_graph

GRAPH = to_graph(make("preferential", 400, 3))
CALLS = pytest.mark.parametrize("call", [betweenness, edge_betweenness])


class Stopped(Exception):
    pass


def stop_at(share: float):
    def progress(done: float, total: float) -> None:
        if done >= share * total:
            raise Stopped

    return progress


@CALLS
@pytest.mark.parametrize("weighted", [False, True])
def test_a_resumed_run_ends_with_the_same_bits(call, weighted, tmp_path, monkeypatch):
    cut_small(monkeypatch, 1 << 13)
    expected = call(GRAPH, weighted=weighted, threads=1).scores
    with pytest.raises(Stopped):
        call(GRAPH, weighted=weighted, checkpoint_dir=tmp_path, threads=2, progress=stop_at(0.4))
    told: list[float] = []
    found = call(
        GRAPH, weighted=weighted, checkpoint_dir=tmp_path, resume=True, threads=2,
        progress=lambda done, total: told.append(done / total),
    )  # fmt: skip
    assert told[0] > 0.3
    np.testing.assert_array_equal(found.scores, expected)
    assert found.done == 1.0
    again = call(GRAPH, weighted=weighted, checkpoint_dir=tmp_path, resume=True)
    np.testing.assert_array_equal(again.scores, expected)


def test_a_folder_without_resume_is_written_over(tmp_path, monkeypatch):
    cut_small(monkeypatch, 1 << 13)
    with pytest.raises(Stopped):
        betweenness(GRAPH, weighted=True, checkpoint_dir=tmp_path, progress=stop_at(0.5))
    told: list[float] = []
    betweenness(
        GRAPH, weighted=False, checkpoint_dir=tmp_path, threads=1,
        progress=lambda done, total: told.append(done / total),
    )  # fmt: skip
    assert told[0] < 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weighted": False}, "another graph"),
        ({"reductions": ["leaves"]}, r"reductions was \['leaves', 'blocks', 'order', 'batches'\]"),
    ],
)
def test_a_checkpoint_of_another_job_is_refused(options, message, tmp_path):
    betweenness(GRAPH, checkpoint_dir=tmp_path)
    with pytest.raises(InputError, match=message):
        betweenness(GRAPH, checkpoint_dir=tmp_path, resume=True, **options)
    with pytest.raises(InputError, match="algorithm was 'betweenness'"):
        edge_betweenness(GRAPH, checkpoint_dir=tmp_path, resume=True)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    betweenness(GRAPH, checkpoint_dir=tmp_path)
    [file] = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)
    with pytest.raises(StoreError, match="damaged checkpoint"):
        betweenness(GRAPH, checkpoint_dir=tmp_path, resume=True)
    file.write_bytes(data[:100])
    with pytest.raises(StoreError, match="damaged checkpoint"):
        betweenness(GRAPH, checkpoint_dir=tmp_path, resume=True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        betweenness(GRAPH, checkpoint_dir=tmp_path / "file" / "folder")
    with pytest.raises(InputError, match="resume requires checkpoint_dir"):
        betweenness(GRAPH, resume=True)


@CALLS
def test_a_time_limit_gives_an_estimate_that_resuming_makes_exact(call, tmp_path, monkeypatch):
    cut_small(monkeypatch, 1 << 12)
    exact = call(GRAPH, weighted=False).scores
    part = call(GRAPH, weighted=False, time_limit=0.0, checkpoint_dir=tmp_path)
    assert 0.0 < part.done < 0.5
    end = call(GRAPH, weighted=False, checkpoint_dir=tmp_path, resume=True)
    assert end.done == 1.0
    np.testing.assert_array_equal(end.scores, exact)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), True, "1"])
def test_a_time_limit_is_a_number_of_seconds(bad):
    with pytest.raises(InputError, match="time_limit"):
        betweenness(GRAPH, time_limit=bad)


@CALLS
def test_estimates_are_right_on_average(call, monkeypatch):
    # Over all orders of the blocks the scaled sums average to the exact scores; forty of them come near.
    cut_small(monkeypatch, 1 << 11)
    graph = to_graph(make("small-world", 120, 5))
    exact = call(graph, weighted=False).scores
    parts = []
    for seed in range(40):
        monkeypatch.setattr(blocks, "_SEED", seed)
        limit = iter([0.0] * 12)
        monkeypatch.setattr(blocks, "time", FakeClock(limit))
        found = call(graph, weighted=False, time_limit=1.0, threads=1)
        assert found.done < 1.0
        parts.append(found.scores)
    mean = np.mean(parts, axis=0)
    assert np.abs(mean - exact).sum() < 0.1 * exact.sum()
    assert np.abs(parts[0] - exact).sum() > 2 * np.abs(mean - exact).sum()


class FakeClock:
    """A clock that stands still for some looks and is far ahead afterwards."""

    def __init__(self, looks):
        self._looks = looks

    def monotonic(self) -> float:
        return next(self._looks, 1e9)


SCRIPT = """
import sys
import numpy as np
from goffish.algorithms.betweenness import blocks
from goffish.algorithms.betweenness.in_memory import betweenness
from tests.algorithms.betweenness.graphs import make, to_graph
blocks._BETWEEN = 0.05
found = betweenness(to_graph(make("random", 4500, 3)), reductions=(), checkpoint_dir=sys.argv[1],
                    resume=True, progress=lambda done, total: print(done / total, flush=True))
np.save(sys.argv[2], found.scores)
"""


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_goes_on_from_its_checkpoint(signal_number, tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "kept"), str(tmp_path / "scores.npy")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if float(line) > 0.3 and (tmp_path / "kept" / "searches.npz").exists():
                break
        os.kill(process.pid, signal_number)
        begun = time.monotonic()
        process.wait(20)
        assert time.monotonic() - begun < 10
    assert not (tmp_path / "scores.npy").exists()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout.splitlines()[0]) > 0.02
    expected = betweenness(to_graph(make("random", 4500, 3)), reductions=()).scores
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), expected)


@pytest.mark.slow
def test_the_command_keeps_checkpoints_and_stops_at_a_time_limit(tmp_path):
    edges = tmp_path / "edges.txt"
    G = make("random", 400, 1)
    edges.write_text("".join(f"{u} {v}\n" for u, v in G.edges))
    command = [sys.executable, "-m", "goffish", "run", "betweenness", str(edges), "--undirected", "--json"]
    folder = ["--checkpoint-dir", str(tmp_path / "kept")]

    def body(*more: str) -> dict:
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    part = body(*folder, "--time-limit", "0", "--reductions", "order")
    assert 0.0 < part["summary"]["searches_done"] < 1.0
    whole = body(*folder, "--resume", "--reductions", "order")
    assert "searches_done" not in whole["summary"]
    assert whole["rows"] == body("--reductions", "order")["rows"]
    refused = subprocess.run([*command, *folder, "--resume"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "the checkpoint belongs to another job (reductions was ['order'], is" in refused.stderr
