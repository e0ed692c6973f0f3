"""Jobs under mpirun that fail: on all ranks, soon, in one line, and to be resumed."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.gofs import open_store
from goffish.gopher.result import read_table
from tests.gopher.mpi_jobs import error_line, finish, goffish, mpirun, start

pytest.importorskip("mpi4py")

_FAILING = """
import os, sys, time
from goffish.errors import GoffishError
from goffish.gofs import open_store
from goffish.gopher import run_program
from tests.gopher.test_mpi_programs import Fails
from mpi4py import MPI

comm = MPI.COMM_WORLD
layout = open_store(sys.argv[1])
for phase in sys.argv[2:]:
    comm.Barrier()
    begun = time.perf_counter()
    try:
        run_program(Fails(phase), layout, engine="mpi", threads=2)
    except GoffishError as error:
        told = comm.gather((type(error).__name__, str(error), time.perf_counter() - begun))
        if comm.rank == 0:
            assert len(set(t[:2] for t in told)) == 1, told
            assert max(t[2] for t in told) < 8, told
            print(*told[0][:2], flush=True)
comm.Barrier()
os._exit(0)  # tasks that sleep for a minute are still there
"""


@pytest.mark.slow
def test_an_error_on_one_rank_reaches_all_at_once(stores: Path) -> None:
    """The same error on all three, which names rank, partition and superstep, also while another is deep in a task."""
    begun = time.perf_counter()
    _, out, told = mpirun(
        3, "-c", _FAILING, str(stores / "columns"), "init", "compute", "contribution", "address", "result"
    )
    assert time.perf_counter() - begun < 40
    lines = out.splitlines()
    assert len(lines) == 5, (out, told)
    assert all(line.startswith("JobError rank ") for line in lines), out
    assert lines[0].endswith("Fails: subgraph 2, partition 2, init: ValueError: on purpose"), out
    assert lines[1].endswith("Fails: subgraph 2, partition 2, superstep 3: ValueError: on purpose"), out
    assert lines[2].endswith(
        "superstep 3: ValueError: aggregator 'sum': a contribution is one number, not float64 (2,)"
    )
    assert lines[3].endswith("superstep 4: Fails: message to vertex 400 in subgraph 0, which does not own it"), out
    assert all("partition" in line for line in lines), out
    assert lines[4].endswith("Fails: subgraph 2, partition 2, result: ValueError: on purpose"), out


_PATCH = """
import os, resource, sys, time
# Only in the processes that do the work of a rank.
if "GOFFISH_RANK_PAGE" in os.environ and os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) is not None:
    from goffish.algorithms.pagerank.subgraph import PageRank

    rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))
    compute = PageRank.compute_batch

    def patched(self, batch, step):
        time.sleep({pause})
        if rank == 1 and step.number == {at}:
            {action}
        compute(self, batch, step)

    PageRank.compute_batch = patched
"""


def patch(folder: Path, action: str, at: int, pause: float = 0.0) -> Path:
    """A folder that makes PageRank do `action` on rank 1 in a superstep, in whichever process imports it."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_PATCH.format(action=action, at=at, pause=pause))
    return folder


@pytest.mark.slow
def test_killed_rank_is_named_and_the_job_resumes(tmp_path: Path, store: Path, expected: Any) -> None:
    """By kill -9 in superstep 17, after the checkpoint of superstep 16; then on three ranks, with the same result."""
    job = ("run", "pagerank", str(store), "--supersteps", "30", "--checkpoint-dir", str(tmp_path / "c"))
    begun = time.perf_counter()
    kill = patch(tmp_path / "kill", "os.kill(os.getpid(), 9)", 17)
    code, _, told = goffish(2, *job, "--checkpoint-every", "4", patch=kill)
    assert time.perf_counter() - begun < 30
    assert code != 0
    line = error_line(told)
    assert line.startswith("error: rank 1, partitions ") and "superstep 17: killed by SIGKILL" in line, line
    assert json.loads((tmp_path / "c" / "checkpoint.json").read_text())["superstep"] == 16
    code, out, told = goffish(3, *job, "--resume", "-o", str(tmp_path / "r.parquet"), "--json")
    assert code == 0, told
    assert json.loads(out)["stats"]["supersteps"] == 30
    assert len(json.loads(out)["stats"]["steps"]) == 30 * 12
    assert read_table(tmp_path / "r.parquet").equals(expected)


@pytest.mark.slow
def test_a_notice_to_one_rank_ends_all_with_a_checkpoint(tmp_path: Path, store: Path, expected: Any) -> None:
    """Breaks when ranks disagree on whether a superstep ends with a checkpoint, or the others work on."""
    job = ("run", "pagerank", str(store), "--supersteps", "30", "--checkpoint-dir", str(tmp_path / "c"))
    act = "from goffish.gopher.checkpoint import checkpoint_now; checkpoint_now()"
    code, _, told = goffish(2, *job, "--checkpoint-every", "100", patch=patch(tmp_path / "notice", act, 12))
    assert code == 1 and error_line(told) == "error: ended with a checkpoint of superstep 12", told
    assert json.loads((tmp_path / "c" / "checkpoint.json").read_text())["superstep"] == 12
    act = "from goffish.gopher.checkpoint import checkpoint_next; checkpoint_next()"
    next_ = patch(tmp_path / "next", act, 20)
    code, _, told = goffish(
        3, *job, "--resume", "--checkpoint-every", "100", "-o", str(tmp_path / "r.parquet"), patch=next_
    )
    assert code == 0, told
    assert json.loads((tmp_path / "c" / "checkpoint.json").read_text())["superstep"] == 20
    assert read_table(tmp_path / "r.parquet").equals(expected)


@pytest.mark.slow
def test_a_shared_folder_for_ranks_without_a_store(tmp_path: Path) -> None:
    """Breaks when ranks on several machines cannot share the graph that rank 0 has read, or it stays behind."""
    (tmp_path / "edges.txt").write_text("".join(f"{at} {at * 7 % 101}\n" for at in range(101)))
    (tmp_path / "shared").mkdir()
    job = ("run", "components", str(tmp_path / "edges.txt"), "-o", str(tmp_path / "r.parquet"))
    code, _, told = goffish(2, *job, GOFFISH_SHARED=str(tmp_path / "shared"))
    assert code == 0, told
    assert read_table(tmp_path / "r.parquet").num_rows == 101 and list((tmp_path / "shared").iterdir()) == []


@pytest.mark.slow
def test_full_disk_ends_the_job_and_leaves_the_checkpoint_before(tmp_path: Path, store: Path, expected: Any) -> None:
    """Rank 1 may write no file past 2 kB from superstep 10 on: the checkpoint of superstep 9 stays the newest."""
    job = ("run", "pagerank", str(store), "--supersteps", "30", "--checkpoint-dir", str(tmp_path / "c"))
    full = patch(tmp_path / "full", "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))", 10)
    code, _, told = goffish(2, *job, "--checkpoint-every", "3", patch=full)
    assert code == 2, told
    line = error_line(told)
    assert line.startswith("error: rank 1: partitions ") and "superstep 12, checkpoint" in line, line
    assert "cannot be written" in line and "Traceback" not in told
    assert json.loads((tmp_path / "c" / "checkpoint.json").read_text())["superstep"] == 9
    table = gf.run("pagerank", open_store(store), supersteps=30, checkpoint_dir=tmp_path / "c", resume=True).table
    assert table.equals(expected)


@pytest.mark.slow
def test_an_error_in_a_program_is_one_line_and_exit_code_1(tmp_path: Path, store: Path) -> None:
    wrong = patch(tmp_path / "wrong", "raise ValueError('on purpose')", 3)
    target = tmp_path / "out"
    code, out, told = goffish(3, "run", "pagerank", str(store), "-o", f"{target}/", patch=wrong)
    assert (code, out) == (1, ""), told
    line = error_line(told)
    assert line.startswith("error: rank 1: PageRank: partition ") and line.endswith(
        "superstep 3: ValueError: on purpose"
    )
    assert not target.exists() and not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_interrupt_ends_all_ranks_with_one_line(tmp_path: Path, store: Path) -> None:
    slow = patch(tmp_path / "slow", "print('there', flush=True)", 2, pause=0.05)
    job = start(
        2, "-m", "goffish", "run", "pagerank", str(store), "--engine", "mpi", "--threads", "1",
        "-o", str(tmp_path / "never.parquet"), patch=slow,
    )  # fmt: skip
    assert job.stdout is not None
    assert job.stdout.readline().strip() == "there"
    begun = time.perf_counter()
    job.send_signal(signal.SIGINT)
    code, _, told = finish(job)
    assert time.perf_counter() - begun < 10
    assert code != 0
    assert told.count("interrupted; no partial output files were left") <= 1, told
    assert "Traceback" not in told and "error:" not in told
    assert not list(tmp_path.glob("*never*")) and not list(tmp_path.glob(".*never*"))
