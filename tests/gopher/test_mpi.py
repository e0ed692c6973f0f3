"""The MPI engine: the local engine's answers bit for bit on any number of ranks, and jobs that fail on all of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import goffish as gf
from goffish.gofs import build_layout, open_store
from goffish.gopher import run_program
from goffish.gopher.result import read_table
from goffish.gopher.shares import place
from goffish.graph import Graph, from_edges
from tests.cases import grid, grid_blocks, make_case
from tests.gopher.test_mpi_programs import JOBS, Silent

pytest.importorskip("mpi4py")

ROOT = Path(__file__).parents[2]


@cache
def launcher() -> tuple[str, ...]:
    """``mpirun`` of this environment, with the options that let it run as root and more ranks than processors."""
    beside = Path(sys.executable).parent / "mpirun"
    program = str(beside) if beside.exists() else shutil.which("mpirun") or pytest.skip("there is no mpirun")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" in told or "OpenRTE" in told or "PRRTE" in told:
        return (program, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
    return (program,)


def start(ranks: int, *command: str, patch: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(p) for p in (patch, ROOT) if p is not None)
    return subprocess.Popen(
        [*launcher(), "-n", str(ranks), sys.executable, *command], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, **environment}, start_new_session=True,
    )  # fmt: skip


def finish(job: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str, str]:
    """Exit code, output and errors; a job that hangs fails the test and is ended."""
    try:
        out, told = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        job.terminate()
        out, told = job.communicate(timeout=20)
        pytest.fail(f"the job hangs: {out[-500:]} {told[-500:]}")
    return job.returncode, out, told


def mpirun(ranks: int, *command: str, **options: Any) -> tuple[int, str, str]:
    return finish(start(ranks, *command, **options))


def goffish(ranks: int, *command: str, **options: Any) -> tuple[int, str, str]:
    return mpirun(ranks, "-m", "goffish", *command, "--engine", "mpi", **options)


# -- graphs


def string_graph() -> Graph:
    G = nx.barabasi_albert_graph(60, 2, seed=3)
    edges = np.array(G.edges)
    names = np.array([f"v{i:02d} ü" for i in range(60)])
    return from_edges(names[edges[:, 0]], names[edges[:, 1]])


def layouts() -> dict[str, Any]:
    """A grid in 12 and in 3 parts, a graph with texts for labels, one with an empty part, one whole, one by vertex."""
    named = string_graph()
    sparse = make_case("random", 40, 4, 7, grown=False, weights="real")
    return {
        "grid": build_layout(grid(24, 20), grid_blocks(24, 20), 12),
        "columns": build_layout(grid(24, 20), grid_blocks(24, 20, 1, 3), 3),
        "texts": build_layout(named, np.arange(60, dtype=np.int32) % 3, 3),
        "sparse": build_layout(sparse.graph, np.minimum(sparse.owner, 2), 4),
        "whole": build_layout(grid(4, 4), np.zeros(16, np.int32), 1),
        "vertices": build_layout(grid(6, 5), grid_blocks(6, 5, 1, 2), 2, finder="vertex"),
    }


_EQUALITY = """
import sys
import numpy as np
from goffish import run
from goffish.errors import GoffishError
from goffish.gofs import open_store
from goffish.gopher.mpi import team
from tests.gopher.test_mpi_programs import COUNTS, JOBS, Chatter, Silent
from mpi4py import MPI

comm = MPI.COMM_WORLD
if sys.argv[1] == "rounds":
    team._MOST_ROWS = 7
done = 0
for store in sys.argv[2:]:
    graph, place = open_store(store), store.rsplit("/")[-1]
    jobs = [(name, dict(options)) for name, options in JOBS.items()] + [(Chatter(), {}), (Silent(), {})]
    for job, options in jobs:
        if isinstance(job, str) and place == "texts" and "source" in options:
            options["source"] = "v07 ü"
        what = (place, job)
        there = None
        try:
            if comm.rank == 0:
                there = run(job, graph, engine="local", threads=1, **options)
        except GoffishError as error:
            there = str(error)
        try:
            here = run(job, graph, engine="mpi", threads=2, comm=comm, **options)
        except GoffishError as error:
            assert comm.rank or str(error) == there, (what, error, there)
            continue
        if comm.rank:
            assert here.table.num_rows == 0 and here.stats is None, what
            continue
        assert here.table.schema.equals(there.table.schema), (what, here.table.schema, there.table.schema)
        assert here.table.equals(there.table), what
        assert here.stats.steps.select(COUNTS).equals(there.stats.steps.select(COUNTS)), what
        assert here.stats.supersteps == there.stats.supersteps and here.stats.ranks == comm.size
        for mine, theirs in ((here.summary, there.summary), (here.stats.aggregates, there.stats.aggregates)):
            steady = {k: v for k, v in theirs.items() if not k.endswith("seconds")}
            assert {k: v for k, v in mine.items() if not k.endswith("seconds")} == steady, (what, mine, theirs)
        done += 1
if comm.rank == 0:
    print("equal:", done)
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mpi")
    for name, layout in layouts().items():
        layout.save(str(folder / name))
    return folder


@pytest.mark.parametrize(
    ("ranks", "how", "graphs"),
    [
        (1, "whole", "texts"),
        (2, "rounds", "sparse vertices"),
        (3, "whole", "grid texts"),
        (5, "whole", "sparse whole"),
    ],
)
def test_every_program_gives_what_the_local_engine_gives(stores: Path, ranks: int, how: str, graphs: str) -> None:
    """Tables, counters, aggregates and summaries, for all programs; with a tiny limit for the rounds of an exchange."""
    code, out, told = mpirun(
        ranks, "-m", "mpi4py", "-c", _EQUALITY, how, *(str(stores / name) for name in graphs.split())
    )
    assert code == 0, told[-2000:]
    # Some programs refuse units that are vertices, or graphs with directions: on both engines alike.
    assert int(out.split("equal:")[1]) >= len(graphs.split()) * len(JOBS), out


def test_partitions_go_to_the_rank_that_has_least() -> None:
    assert place([5, 9, 3, 7, 1], 2) == [[1, 2, 4], [0, 3]]  # 9 to the first, 7 and 5 to the other, 3, and 1 on a tie
    assert place([1, 1], 4) == [[0], [1], [], []]
    assert place([], 2) == [[], []]


# -- failing together

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
    assert lines[0].endswith("Fails: sub-graph 2, partition 2, init: ValueError: on purpose"), out
    assert lines[1].endswith("Fails: sub-graph 2, partition 2, superstep 3: ValueError: on purpose"), out
    assert lines[2].endswith(
        "superstep 3: ValueError: aggregator 'sum': a contribution is one number, not float64 (2,)"
    )
    assert lines[3].endswith("superstep 4: Fails: message to vertex 400 in sub-graph 0, which does not own it"), out
    assert all("partition" in line for line in lines), out
    assert lines[4].endswith("Fails: sub-graph 2, partition 2, result: ValueError: on purpose"), out


_PATCH = """
import os, resource, sys, time
# Only in the processes that do the work of a rank.
if "GOFFISH_RANK_PAGE" in os.environ and os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) is not None:
    from goffish.algorithms.ranks.program import PageRank

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


@pytest.fixture(scope="module")
def store(stores: Path) -> Path:
    return stores / "grid"


@pytest.fixture(scope="module")
def expected(store: Path) -> Any:
    return gf.run("pagerank", open_store(store), supersteps=30).table


def error_line(told: str) -> str:
    lines = [line for line in told.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, told
    return lines[0]


def test_killed_rank_is_named_and_the_job_resumes(tmp_path: Path, store: Path, expected: Any) -> None:
    """By kill -9 in superstep 17, after the checkpoint of superstep 16; then on three ranks, with the same result."""
    job = ("run", "pagerank", str(store), "--supersteps", "30", "--checkpoint-dir", str(tmp_path / "c"))
    begun = time.perf_counter()
    kill = patch(tmp_path / "kill", "os.kill(os.getpid(), 9)", 17)
    code, _, told = goffish(2, *job, "--checkpoint-every", "4", patch=kill)
    assert time.perf_counter() - begun < 30
    assert code != 0
    line = error_line(told)
    assert line.startswith("error: rank 1, partitions ") and "superstep 17: killed (SIGKILL)" in line, line
    assert json.loads((tmp_path / "c" / "checkpoint.json").read_text())["superstep"] == 16
    code, out, told = goffish(3, *job, "--resume", "-o", str(tmp_path / "r.parquet"), "--json")
    assert code == 0, told
    assert json.loads(out)["stats"]["supersteps"] == 30
    assert len(json.loads(out)["stats"]["steps"]) == 30 * 12
    assert read_table(tmp_path / "r.parquet").equals(expected)


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
    assert told.count("interrupted; files are written whole or not at all") <= 1, told
    assert "Traceback" not in told and "error:" not in told
    assert not list(tmp_path.glob("*never*")) and not list(tmp_path.glob(".*never*"))


_RESUMING = """
import sys
from goffish.algorithms.catalogue import make
from goffish.errors import JobError
from goffish.gofs import open_store
from goffish.gopher import run_program
from tests.gopher.test_mpi_programs import COUNTS
from mpi4py import MPI

comm, store, folder = MPI.COMM_WORLD, open_store(sys.argv[1]), sys.argv[2]
two = comm.Split(comm.rank // 2, comm.rank)
JOBS = (("pagerank", {"supersteps": 12}, 5), ("blockrank", {"tolerance": 1e-4}, 9), ("sssp", {"source": 3}, 4))
for name, options, stop in JOBS:
    program = make(name, options).program("components")

    def both(engine, where, **more):
        found = None
        try:
            if engine == "mpi" and (where is comm or comm.rank < 2):
                found = run_program(program, store, engine="mpi", comm=where, threads=1, **more)
            elif engine == "local" and comm.rank == 0:
                found = run_program(program, store, threads=1, **more)
        except JobError as error:
            assert "not finished" in str(error), error
        comm.Barrier()
        return found

    whole = run_program(program, store, threads=1)
    alone, pair, three = ("local", None), ("mpi", two), ("mpi", comm)
    for first, then in ((alone, three), (pair, alone), (pair, three)):
        place = f"{folder}/{name}-{first[0]}-{then[0]}"
        both(*first, max_supersteps=stop, checkpoint_dir=place, checkpoint_every=1)
        found = both(*then, checkpoint_dir=place, checkpoint_every=1, resume=True)
        if comm.rank == 0:
            assert found.table.equals(whole.table), place
            assert found.stats.steps.select(COUNTS).equals(whole.stats.steps.select(COUNTS)), place
            assert found.stats.aggregates == whole.stats.aggregates, place
            print("same", place)
"""


def test_checkpoints_go_from_engine_to_engine_and_to_other_numbers_of_ranks(tmp_path: Path, store: Path) -> None:
    code, out, told = mpirun(3, "-m", "mpi4py", "-c", _RESUMING, str(store), str(tmp_path))
    assert code == 0, told[-2000:]
    assert out.count("same") == 9


# -- what ranks read and write

_OWN_SLICES = """
import sys
from pathlib import Path
from goffish import run
from goffish.gofs import files, open_store
from goffish.gopher.shares import partitions_of
from mpi4py import MPI

comm, seen = MPI.COMM_WORLD, set()
read = files._LocalFolder.read
files._LocalFolder.read = lambda self, name: (seen.add(name.split("/")[0]), read(self, name))[1]
graph = open_store(sys.argv[1])
for name, options in (("components", {}), ("sssp", {"source": 3}), ("louvain", {"seed": 1})):
    run(name, graph, engine="mpi", **options)
    run(name, graph, engine="mpi", output=f"{sys.argv[2]}/{name}", **options)
mine = {f"p{p:05d}" for p in partitions_of(graph, comm.size)[comm.rank]}
assert seen - {"manifest.json"} == mine, (seen, mine)
"""


def test_a_rank_opens_the_files_of_its_own_partitions_only(tmp_path: Path, store: Path) -> None:
    code, _, told = mpirun(3, "-m", "mpi4py", "-c", _OWN_SLICES, str(store), str(tmp_path))
    assert code == 0, told[-2000:]


_OUTPUT = """
import sys
from goffish import run
from goffish.gofs import open_store
from tests.gopher.test_mpi_programs import JOBS, Silent
graph = open_store(sys.argv[1])
for job, options in [*JOBS.items(), (Silent(), {})]:
    given = {**options, **({"source": "v07 ü"} if "source" in options else {})}
    name = job if isinstance(job, str) else "silent"
    result = run(job, graph, engine="mpi", output=f"{sys.argv[2]}/{name}", **given)
    assert result.table.num_rows == 0 and result.summary["rows"] >= 0
"""


def test_result_folders_hold_the_rows_of_the_local_engine(tmp_path: Path, stores: Path) -> None:
    """On five ranks for three partitions: a part of each that has one; labels, also of far vertices, are texts."""
    from pyarrow import dataset

    code, _, told = mpirun(5, "-m", "mpi4py", "-c", _OUTPUT, str(stores / "texts"), str(tmp_path))
    assert code == 0, told[-2000:]
    graph = open_store(stores / "texts")
    for job in [*JOBS, "silent"]:
        options = {**JOBS.get(job, {}), **({"source": "v07 ü"} if "source" in JOBS.get(job, {}) else {})}
        there = gf.run(Silent() if job == "silent" else job, graph, engine="local", **options).table
        here = read_table(tmp_path / job)
        assert here.schema.equals(there.schema), (job, here.schema, there.schema)
        keys = [(name, "ascending") for name in there.column_names if name not in ("ratio",)]
        assert here.sort_by(keys).equals(there.sort_by(keys).combine_chunks()), job
        assert dataset.dataset(tmp_path / job, format="parquet").to_table().num_rows == there.num_rows
        manifest = json.loads((tmp_path / job / "_manifest.json").read_text())
        assert manifest["rows"] == there.num_rows
        assert len(manifest["parts"]) in (1, 3)
    assert len(json.loads((tmp_path / "bfs" / "_manifest.json").read_text())["parts"]) == 3
    assert not list(tmp_path.glob(".*"))


def test_damaged_result_folders_are_refused(tmp_path: Path) -> None:
    from goffish.errors import StoreError
    from goffish.gopher.folder import check_folder, write_folder

    table = gf.run("components", grid(3, 3)).table
    for _ in range(2):  # the second takes the place of the first
        write_folder(table, tmp_path / "r", "components")
    assert read_table(tmp_path / "r").equals(table)
    assert [p.name for p in tmp_path.iterdir()] == ["r"]
    (tmp_path / "r" / "part-00000.parquet").write_bytes(b"short")
    with pytest.raises(StoreError, match=r"part-00000\.parquet: missing or damaged"):
        read_table(tmp_path / "r")
    (tmp_path / "r" / "_manifest.json").unlink()
    with pytest.raises(StoreError, match="is a folder without"):
        read_table(tmp_path / "r")
    with pytest.raises(gf.errors.InputError, match="is not empty and not a result"):
        check_folder(tmp_path / "r")


# -- the command line


def test_raw_files_and_stores_answer_alike_and_only_rank_0_speaks(tmp_path: Path, store: Path) -> None:
    raw = tmp_path / "edges.txt"
    graph = nx.gnm_random_graph(50, 90, seed=4)
    raw.write_text("".join(f"{u} {v}\n" for u, v in graph.edges))
    (tmp_path / "temporary").mkdir()
    code, out, told = goffish(3, "run", "components", str(raw), "--json", TMPDIR=str(tmp_path / "temporary"))
    assert (code, told) == (0, "")
    assert not list((tmp_path / "temporary").glob("goffish-*"))
    body = json.loads(out)
    expected = {frozenset(c) for c in nx.connected_components(graph) if len(c) > 1 or c & {*map(max, graph.edges)}}
    found: dict[int, set[int]] = {}
    for row in body["rows"]:
        found.setdefault(row["component"], set()).add(row["vertex"])
    assert {frozenset(c) for c in found.values()} == expected
    assert body["stats"]["ranks"] == 3
    code, out, told = goffish(2, "run", "sssp", str(store), "--source", "3", "-o", f"{tmp_path}/d/")
    assert (code, told) == (0, "")
    assert out.count("480 rows written to") == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("sssp", "--source", "9999"), "error: unknown vertex 9999: it is not a vertex of this graph"),
        (("components", "-o", "/nowhere/out/"), "error: /nowhere/out/: the folder /nowhere does not exist"),
    ],
)
def test_bad_input_is_told_once(store: Path, command: tuple[str, ...], expected: str) -> None:
    code, out, told = goffish(2, "run", command[0], str(store), *command[1:])
    assert (code, out) == (2, "")
    assert error_line(told).startswith(expected)


def alone(*command: str, code: str = "from goffish.cli import main; main()") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False, cwd=ROOT)


def test_without_mpirun_there_is_one_rank(store: Path, expected: Any, tmp_path: Path) -> None:
    done = alone(
        "run", "pagerank", str(store), "--supersteps", "30", "--engine", "mpi", "-o", str(tmp_path / "r.parquet")
    )
    assert done.returncode == 0, done.stderr
    assert read_table(tmp_path / "r.parquet").equals(expected)


def test_without_mpi4py_it_says_what_to_install(store: Path) -> None:
    hidden = "import sys; sys.modules['mpi4py'] = None; from goffish.cli import main; main()"
    done = alone("run", "pagerank", str(store), "--engine", "mpi", code=hidden)
    assert done.returncode == 2
    assert done.stderr == "error: engine='mpi' needs mpi4py and an MPI: pip install \"goffish[mpi]\"\n"


def test_folders_and_communicators_are_for_mpi(store: Path) -> None:
    done = alone("run", "pagerank", str(store), "-o", "out/")
    assert done.returncode == 2
    assert done.stderr.startswith("error: out/: is a directory; name a file in it, or use --engine mpi")
    for wrong in ({"comm": 1}, {"output": "x"}):
        with pytest.raises(gf.errors.InputError, match=f"{next(iter(wrong))} is for engine='mpi'"):
            run_program(Silent(), open_store(store), **wrong)
    with pytest.raises(gf.errors.InputError, match="give an mpi4py communicator"):
        run_program(Silent(), open_store(store), engine="mpi", comm=1)
