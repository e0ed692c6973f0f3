"""Checkpoints: a resumed job gives the same answer and the same counts as one that was never interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goffish as gf
from goffish.algorithms.catalogue import make
from goffish.algorithms.components.subgraph import ConnectedComponents
from goffish.errors import CheckpointError, InputError, JobError, StoreError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gofs.files import open_folder
from goffish.gopher import run_program
from goffish.graph import from_edges
from tests.cases import grid, grid_blocks

LAYOUT = build_layout(grid(24, 20), grid_blocks(24, 20), 12)
JOBS = {
    "components": {}, "sssp": {"source": 0}, "bfs": {"source": 5}, "pagerank": {"supersteps": 30},
    "blockrank": {"tolerance": 1e-4}, "cores": {}, "max-value": {}, "label-propagation": {}, "hits": {"tolerance": 0.1},
    "walks": {"length": 12, "walks": 1, "q": 0.2}, "spanning-forest": {}, "strong-components": {},
}  # fmt: skip
COUNTS = ["superstep", "partition", "active", "messages", "combined", "remote", "remote_bytes"]


@pytest.mark.parametrize(
    "name",
    # Hundreds of supersteps, with a checkpoint after each.
    [pytest.param(name, marks=pytest.mark.slow) if name == "label-propagation" else name for name in JOBS],
)
@pytest.mark.parametrize("units", ["components", pytest.param("vertex", marks=pytest.mark.slow)])
def test_resumed_equals_uninterrupted(tmp_path: Path, name: str, units: str) -> None:
    layout = LAYOUT if units == "components" else build_layout(grid(24, 20), grid_blocks(24, 20), 12, finder="vertex")
    job = make(name, JOBS[name])
    whole = run_program(job.program(layout), layout)
    assert whole.stats is not None
    stop = max(1, whole.stats.supersteps // 2)
    with pytest.raises(JobError, match="not finished"):
        run_program(job.program(layout), layout, max_supersteps=stop, checkpoint_dir=tmp_path, checkpoint_every=1)
    resumed = run_program(job.program(layout), layout, checkpoint_dir=tmp_path, checkpoint_every=1, resume=True)
    assert resumed.stats is not None
    assert resumed.table.equals(whole.table)
    assert resumed.stats.steps.select(COUNTS).equals(whole.stats.steps.select(COUNTS))
    assert [p.name for p in tmp_path.glob("step-*")] == [f"step-{whole.stats.supersteps:08d}"]


class Reports(ConnectedComponents):
    """Reports a figure in superstep 2 only."""

    aggregators = {"early": "sum"}

    def compute_batch(self, batch: Any, step: Any) -> None:
        if step.number == 2:
            step.aggregate("early", step.graph.num_partitions)
        assert step.aggregated("early") == (144 if step.number == 3 else None)
        super().compute_batch(batch, step)


def test_figures_reported_before_the_checkpoint_are_kept(tmp_path: Path) -> None:
    """In the run's counters; the program itself still sees those of the superstep before only."""
    for stop in (2, 4):
        with pytest.raises(JobError, match="not finished"):
            run_program(Reports(), LAYOUT, max_supersteps=stop, checkpoint_dir=tmp_path, checkpoint_every=1)
        resumed = run_program(Reports(), LAYOUT, checkpoint_dir=tmp_path, resume=True)
        assert resumed.stats is not None
        assert resumed.stats.aggregates == {"early": 144}


def test_resume_without_a_checkpoint_starts_anew(tmp_path: Path) -> None:
    result = run_program(make("components", {}).program(LAYOUT), LAYOUT, checkpoint_dir=tmp_path / "new", resume=True)
    assert result.stats is not None
    assert result.stats.supersteps == 7


def _interrupted(path: Path, **options: Any) -> None:
    with pytest.raises(JobError):
        run_program(
            make("sssp", {"source": 0, **options}).program(LAYOUT), LAYOUT, max_supersteps=3, checkpoint_dir=path,
            checkpoint_every=2,
        )  # fmt: skip


def test_checkpoint_of_another_job_is_refused(tmp_path: Path) -> None:
    _interrupted(tmp_path)
    for job, layout in (
        (make("sssp", {"source": 1}), LAYOUT),
        (make("bfs", {"source": 0}), LAYOUT),
        (make("sssp", {"source": 0}), build_layout(grid(24, 20), grid_blocks(24, 20, 1, 1), 1)),
    ):
        with pytest.raises(InputError, match="the checkpoint belongs to another job"):
            run_program(job.program(layout), layout, checkpoint_dir=tmp_path, resume=True)


def test_checkpoint_of_other_weights_or_options_is_refused(tmp_path: Path) -> None:
    def path_graph(weight: float) -> PartitionedGraph:
        graph = from_edges(np.arange(39), np.arange(1, 40), np.full(39, weight))
        return build_layout(graph, np.arange(40, dtype=np.int32) // 10, 4)

    class Shifted(ConnectedComponents):
        def __init__(self, shift: Any) -> None:
            self.shift = shift

    def stop(program: Any, layout: PartitionedGraph, folder: str) -> None:
        with pytest.raises(JobError, match="not finished"):
            run_program(program, layout, max_supersteps=2, checkpoint_dir=tmp_path / folder, checkpoint_every=1)

    def resume(program: Any, layout: PartitionedGraph, folder: str) -> Any:
        return run_program(program, layout, checkpoint_dir=tmp_path / folder, resume=True)

    sssp = make("sssp", {"source": 0})
    stop(sssp.program(LAYOUT), path_graph(1.0), "weights")
    with pytest.raises(InputError, match="belongs to another job"):
        resume(sssp.program(LAYOUT), path_graph(5.0), "weights")
    assert resume(sssp.program(LAYOUT), path_graph(1.0), "weights").to_dict()[39] == 39.0

    zeros, other = np.zeros(5000), np.zeros(5000)
    other[1000] = 100
    stop(Shifted(zeros), LAYOUT, "options")
    with pytest.raises(InputError, match="belongs to another job"):
        resume(Shifted(other), LAYOUT, "options")
    assert resume(Shifted(zeros.copy()), LAYOUT, "options").table.num_rows == 480
    with pytest.raises(InputError, match="option 'shift' is a object"):
        stop(Shifted(object()), LAYOUT, "objects")


@pytest.mark.parametrize("how", ["flip", "cut", "delete", "manifest", "rows cut", "rows gone"])
def test_damaged_checkpoint_is_an_error(tmp_path: Path, how: str) -> None:
    _interrupted(tmp_path)
    victim = tmp_path / "step-00000002" / "part-00003.npz"
    content = bytearray(victim.read_bytes())
    if how == "flip":
        at = content.index(b"\x93NUMPY") + 140
        content[at] ^= 4
        victim.write_bytes(content)
    elif how == "cut":
        victim.write_bytes(content[: len(content) // 2])
    elif how == "delete":
        victim.unlink()
    elif how == "manifest":
        (tmp_path / "checkpoint.json").write_text("{")
    else:
        rows = next(tmp_path.glob("rows-*.jsonl"))
        kept = rows.read_bytes().splitlines(keepends=True)[:-1]
        rows.unlink() if how == "rows gone" else rows.write_bytes(b"".join(kept))
    with pytest.raises(CheckpointError, match="damaged checkpoint"):
        run_program(make("sssp", {"source": 0}).program(LAYOUT), LAYOUT, checkpoint_dir=tmp_path, resume=True)


@pytest.mark.parametrize("place", ["memory", pytest.param("s3", marks=pytest.mark.slow)])
def test_checkpoints_in_object_storage(request: pytest.FixtureRequest, place: str) -> None:
    """Breaks when a run does not continue from a checkpoint at a URI, or files of earlier ones stay there."""
    folder = f"{request.getfixturevalue('s3').bucket()}/ck" if place == "s3" else f"memory://{uuid.uuid4()}"
    job = make("pagerank", {"supersteps": 30})
    whole = run_program(job.program(LAYOUT), LAYOUT)
    for stop in (7, 20):
        with pytest.raises(JobError, match="not finished"):
            run_program(
                job.program(LAYOUT), LAYOUT, max_supersteps=stop, checkpoint_dir=folder, checkpoint_every=3, resume=True
            )
    names = open_folder(folder).list()
    assert {name.partition("/")[0] for name in names if name.startswith("step-")} == {"step-00000018"}
    resumed = run_program(job.program(LAYOUT), LAYOUT, checkpoint_dir=folder, resume=True)
    assert whole.stats is not None and resumed.stats is not None
    assert resumed.table.equals(whole.table)
    assert resumed.stats.steps.select(COUNTS).equals(whole.stats.steps.select(COUNTS))


@pytest.mark.slow
def test_exact_betweenness_in_object_storage() -> None:
    """Breaks when the sums of a graph in memory are not kept at a URI."""
    folder, graph = f"memory://{uuid.uuid4()}", grid(12, 9)
    whole = gf.run("betweenness", graph)
    gf.run("betweenness", graph, checkpoint_dir=folder)
    assert open_folder(folder).list() == ["searches.npz"]
    assert gf.run("betweenness", graph, checkpoint_dir=folder, resume=True).table.equals(whole.table)
    with pytest.raises(InputError, match=f"{folder}: the checkpoint belongs to another job"):
        gf.run("betweenness", grid(9, 9), checkpoint_dir=folder, resume=True)


def test_places_that_cannot_be_used() -> None:
    """Breaks when a place is only found unusable after hours of work."""
    with pytest.raises(InputError, match="nosuch"):
        run_program(make("components", {}).program(LAYOUT), LAYOUT, checkpoint_dir="nosuch://x/y")
    with pytest.raises(InputError, match="a URI needs two slashes"):
        run_program(make("components", {}).program(LAYOUT), LAYOUT, checkpoint_dir="s3:/x/y")


def test_counters_are_written_once(tmp_path: Path) -> None:
    """Breaks when every checkpoint writes all counters since the beginning, or those of a run before are taken."""
    job = make("pagerank", {"supersteps": 40})
    whole = run_program(job.program(LAYOUT), LAYOUT)
    assert whole.stats is not None
    for stop, resume in ((9, False), (4, False), (8, True), (39, True)):
        with pytest.raises(JobError, match="not finished"):
            run_program(job.program(LAYOUT), LAYOUT, max_supersteps=stop, checkpoint_dir=tmp_path, checkpoint_every=1,
                        resume=resume)  # fmt: skip
        held = json.loads((tmp_path / "checkpoint.json").read_text())["rows"]
        assert sorted(name for name, _ in held) == sorted(one.name for one in tmp_path.glob("rows-*.jsonl"))
        # One file for each superstep, until there are 32 of them: then one for all, and again one for each.
        assert [count for _, count in held] == ([12] * stop if stop < 33 else [33 * 12] + [12] * (stop - 33))
        (tmp_path / "rows-left.jsonl").write_text('{"superstep": ')
    resumed = run_program(job.program(LAYOUT), LAYOUT, checkpoint_dir=tmp_path, checkpoint_every=1, resume=True)
    assert resumed.stats is not None
    assert resumed.stats.steps.select(COUNTS).equals(whole.stats.steps.select(COUNTS))


def test_full_disk_while_checkpointing_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupted(tmp_path)
    before = json.loads((tmp_path / "checkpoint.json").read_text())["superstep"]

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("goffish.gofs.files.os.fsync", full)
    with pytest.raises(StoreError, match=r"^checkpoint: .*cannot be written \(No space left on device\)$"):
        run_program(
            make("sssp", {"source": 0}).program(LAYOUT),
            LAYOUT,
            checkpoint_dir=tmp_path,
            resume=True,
            checkpoint_every=1,
        )
    monkeypatch.undo()
    assert json.loads((tmp_path / "checkpoint.json").read_text())["superstep"] == before
    resumed = run_program(make("sssp", {"source": 0}).program(LAYOUT), LAYOUT, checkpoint_dir=tmp_path, resume=True)
    assert resumed.table.equals(run_program(make("sssp", {"source": 0}).program(LAYOUT), LAYOUT).table)


_SLOW = """
import sys, time
from goffish.algorithms.pagerank.subgraph import PageRank
from goffish.gopher import run_program
from tests.gopher.test_checkpoint import LAYOUT

class Slow(PageRank):
    def compute_batch(self, batch, step):
        if sys.argv[2] == "slow":
            time.sleep(0.005)
        super().compute_batch(batch, step)

print("ready", flush=True)
result = run_program(Slow(), LAYOUT, threads=2, checkpoint_dir=sys.argv[1], checkpoint_every=1, resume=True)
result.write(sys.argv[3])
"""


@pytest.mark.slow
def test_kill_9_in_mid_job_and_resume(tmp_path: Path) -> None:
    def start(pace: str, out: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _SLOW, str(tmp_path / "ckpt"), pace, str(tmp_path / out)]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    for _ in range(3):
        victim = start("slow", "killed.parquet")
        assert victim.stdout is not None
        victim.stdout.readline()
        time.sleep(0.35)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    assert not (tmp_path / "killed.parquet").exists()
    reached = json.loads((tmp_path / "ckpt" / "checkpoint.json").read_text())["superstep"]
    assert 0 < reached < 30
    last = start("fast", "done.parquet")
    assert last.stdout is not None
    last.communicate(timeout=60)
    assert last.returncode == 0
    import pyarrow.parquet as pq

    from goffish.algorithms.pagerank.subgraph import PageRank

    assert pq.read_table(tmp_path / "done.parquet").equals(run_program(PageRank(), LAYOUT).table)
