"""What jobs under mpirun print and write, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import goffish as gf
from goffish.gofs import open_store
from goffish.gopher import run_program
from goffish.gopher.result import read_table
from tests.cases import grid
from tests.gopher.mpi_jobs import ROOT, error_line, goffish, mpirun
from tests.gopher.test_mpi_programs import JOBS, Silent

pytest.importorskip("mpi4py")

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


@pytest.mark.slow
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
    with pytest.raises(StoreError, match="not a complete result folder"):
        read_table(tmp_path / "r")
    with pytest.raises(gf.errors.InputError, match="is neither empty nor a result folder"):
        check_folder(tmp_path / "r")


@pytest.mark.slow
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
        (("sssp", "--source", "9999"), "error: unknown vertex 9999: not among the"),
        pytest.param(
            ("components", "-o", "/nowhere/out/"),
            "error: /nowhere/out/: the folder /nowhere does not exist",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_input_is_told_once(store: Path, command: tuple[str, ...], expected: str) -> None:
    code, out, told = goffish(2, "run", command[0], str(store), *command[1:])
    assert (code, out) == (2, "")
    assert error_line(told).startswith(expected)


def alone(*command: str, code: str = "from goffish.cli import main; main()") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.slow
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
    assert done.stderr == "error: engine='mpi' requires mpi4py and an MPI library: pip install \"goffish[mpi]\"\n"


def test_folders_and_communicators_are_for_mpi(store: Path) -> None:
    done = alone("run", "pagerank", str(store), "-o", "out/")
    assert done.returncode == 2
    assert done.stderr.startswith("error: out/: is a directory; name a file in it, or use --engine mpi")
    for wrong in ({"comm": 1}, {"output": "x"}):
        with pytest.raises(gf.errors.InputError, match=f"{next(iter(wrong))} requires engine='mpi'"):
            run_program(Silent(), open_store(store), **wrong)
    with pytest.raises(gf.errors.InputError, match="expected an mpi4py communicator"):
        run_program(Silent(), open_store(store), engine="mpi", comm=1)
