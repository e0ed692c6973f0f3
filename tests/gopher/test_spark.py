"""The Spark engine gives the local engine's answers, superstep by superstep, and ends jobs that fail in one line."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from goffish.algorithms.betweenness.subgraph.program import PartitionedBetweenness
from goffish.algorithms.catalogue import make
from goffish.errors import InputError, JobError
from goffish.gofs import build_layout, open_store, write_store
from goffish.gopher import SubgraphProgram, per_vertex, run_program
from goffish.gopher.checkpoint import CheckpointFolder
from goffish.gopher.engine import RunOptions
from goffish.gopher.folder import folder_writer
from goffish.gopher.local import run_local
from goffish.gopher.result import read_table
from goffish.gopher.spark.tasks import BLOCK, from_rows, to_rows
from goffish.graph import from_edges
from goffish.spark.package import write_package
from tests.cases import grid, grid_blocks, make_case
from tests.gopher.test_mpi_programs import Silent

pytest.importorskip("pyspark")

from goffish.gopher.spark import SparkEngine, run_spark, write_spark

COUNTS = ["superstep", "partition", "active", "messages", "combined", "remote", "remote_bytes"]
GRID = build_layout(grid(9, 6), grid_blocks(9, 6, 1, 3), 3)
SOCIAL = make_case("preferential", 40, 3, 7, grown=False, weights="real").layout()


def _same(columns: Any, others: Any) -> None:
    for one, other in zip(columns, others, strict=True):
        assert list(one) == list(other)
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert one[name].tobytes() == other[name].tobytes(), name


def _program(name: str, **options: Any) -> SubgraphProgram:
    return make(name, options).program(SOCIAL)


def test_components_and_distances_as_networkx(spark: Any, tmp_path: Path) -> None:
    case = make_case("random", 40, 3, 3, grown=False, weights="integer")
    write_store(case.layout(), tmp_path / "store")
    columns, _ = run_spark(_program("components"), open_store(tmp_path / "store"), spark=spark)
    ids = open_store(tmp_path / "store").vertex_ids()
    labels = dict(zip(ids.tolist(), np.concatenate([c["component"] for c in columns]).tolist(), strict=True))
    found: dict[int, set[int]] = {}
    for vertex, label in labels.items():
        found.setdefault(label, set()).add(vertex)
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, nx.connected_components(case.nx)))


class Rounds(SubgraphProgram):
    """Adds up its number of supersteps; fails in one of them where it is told to."""

    state = {"rounds": per_vertex(np.int64)}
    aggregators = {"seen": "sum"}

    def __init__(self, rounds: int, fails: int = -1) -> None:
        self.rounds, self.fails = rounds, fails

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == self.fails and sg.id == 1:
            raise ValueError("two\nlines")
        assert step.number == 1 or step.aggregated("seen") == step.graph.num_subgraphs
        step.aggregate("seen", 1)
        sg["rounds"] += step.number
        if step.number == self.rounds:
            step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"rounds": sg["rounds"]}


class Heavy(SubgraphProgram):
    """Sends messages of several blocks, in an order that the inbox must keep."""

    message = {"value": np.int64}
    state = {"ordered": per_vertex(np.bool_)}

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 1:
            step.send_to_partition(np.zeros(60_000, np.int64), value=np.arange(60_000) + 60_000 * sg.id)
        elif step.messages.size:
            sg["ordered"] = bool((np.diff(step.messages["value"]) == 1).all())
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"ordered": sg["ordered"]}


def test_messages_of_many_blocks_keep_their_order(spark: Any) -> None:
    columns, stats = run_spark(Heavy(), GRID, spark=spark)
    assert stats.supersteps == 2
    assert [bool(c["ordered"].all()) for c in columns] == [True, False, False]


def test_failure_of_a_program_is_one_line_with_its_place(spark: Any) -> None:
    with pytest.raises(JobError, match="Rounds: subgraph 1, partition 1, superstep 2: ValueError: two"):
        run_spark(Rounds(3, fails=2), GRID, spark=spark)


def test_limit_of_supersteps(spark: Any) -> None:
    columns, stats = run_spark(Rounds(2), GRID, spark=spark, max_supersteps=2)
    assert stats.supersteps == 2
    assert all((c["rounds"] == 3).all() for c in columns)
    with pytest.raises(JobError, match=r"not finished after 1 supersteps \(3 subgraphs still active\)"):
        run_spark(Rounds(2), GRID, spark=spark, max_supersteps=1)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_any_number_of_tasks(spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tasks: int) -> None:
    """The number of tasks follows the processors and the partitions, the answer does not."""
    program = _program("components")
    wanted, counted = run_local(program, SOCIAL, threads=1)
    monkeypatch.setattr("goffish.gopher.spark.engine.slots", lambda *_: min(tasks, 2))
    columns, stats = run_spark(program, SOCIAL, spark=spark)
    _same(columns, wanted)
    assert stats.steps.select(COUNTS).equals(counted.steps.select(COUNTS))
    assert stats.ranks == stats.threads == min(tasks, 2)
    parts, _ = write_spark(program, SOCIAL, tmp_path / "out", spark=spark)
    assert len(parts) == min(tasks, 2)
    assert read_table(tmp_path / "out").sort_by("vertex").equals(run_program(program, SOCIAL).table)


@pytest.mark.slow
def test_resume_across_engines(spark: Any, tmp_path: Path) -> None:
    """A checkpoint of Spark is taken up by the local engine, and one of the local engine by Spark."""
    whole = run_program(_program("sssp", source=0), SOCIAL)
    assert whole.stats is not None
    stop = whole.stats.supersteps - 1
    program = _program("sssp", source=0)
    identity = {"program": "x"}
    one, two = (CheckpointFolder(str(tmp_path / name), 1, identity) for name in ("one", "two"))
    limit = {"max_supersteps": stop, "spark": spark}
    with pytest.raises(JobError, match="not finished"):
        run_spark(program, SOCIAL, checkpoints=one, **limit)
    columns, stats = run_local(program, SOCIAL, threads=1, checkpoints=one, resume=True)
    with pytest.raises(JobError, match="not finished"):
        run_local(program, SOCIAL, threads=1, checkpoints=two, max_supersteps=stop)
    found, counted = run_spark(program, SOCIAL, spark=spark, checkpoints=two, resume=True)
    _same(columns, found)
    assert counted.steps.select(COUNTS).equals(stats.steps.select(COUNTS))
    assert counted.supersteps == whole.stats.supersteps


# -- answers that the executors write


class Words(SubgraphProgram):
    """Columns of all kinds: labels of far vertices, some of them null, numbers that may be null, texts, floats."""

    label_columns = ("next", "nobody")
    nullable = ("rare",)

    def compute(self, sg: Any, step: Any) -> None:
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        ids = sg.vertex_ids.astype(np.int64)
        return {
            "next": np.where(ids % 3 == 0, -1, (ids * 7 + 1) % 40), "nobody": np.full(ids.size, -1),
            "rare": np.where(ids % 2, ids, -1), "text": np.array([f"t{i}" for i in ids]), "half": ids / 2,
        }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["implicit", "numbers", "texts"])
def test_written_parts_hold_the_local_answer(spark: Any, tmp_path: Path, labels: str) -> None:
    """One file per task, with the columns and the rows of the local engine's table, each in the order read."""
    names = {"implicit": None, "numbers": np.arange(40) * 3 - 7, "texts": [f"n{i:02d} ü" for i in range(40)]}[labels]
    ends = np.array(nx.barabasi_albert_graph(40, 2, seed=7).edges)
    graph = from_edges(ends[:, 0], ends[:, 1], labels=names)
    build_layout(graph, (np.arange(40) % 3).astype(np.int32), 3).save(tmp_path / "store")
    store = open_store(tmp_path / "store")
    for program in (Words(), _program("counts") if labels == "texts" else _program("components"), Silent()):
        wanted = run_program(program, store).table
        parts, stats = write_spark(program, store, tmp_path / "out", spark=spark)
        assert [part.name for part in parts] == [f"part-{p:05d}.parquet" for p in range(2)]
        assert stats.supersteps >= 1
        files = [pq.read_table(tmp_path / "out" / part.name) for part in parts]
        assert [table.num_rows for table in files] == [part.rows for part in parts]
        found = read_table(tmp_path / "out")
        assert found.schema.equals(wanted.schema), (found.schema, wanted.schema)
        keys = ["vertex"] if "vertex" in wanted.column_names else []
        order = [(key, "ascending") for key in keys]
        assert (found.sort_by(order) if keys else found).equals(wanted.sort_by(order) if keys else wanted)
        for table in files if keys else ():
            assert table.equals(wanted.filter(pc.is_in(wanted["vertex"], table["vertex"])))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "store"]


def test_spark_and_arrow_read_a_written_folder(spark: Any, tmp_path: Path) -> None:
    write_spark(_program("components"), SOCIAL, tmp_path / "out", spark=spark)
    wanted = run_program(_program("components"), SOCIAL).to_dict()
    assert {row["vertex"]: row["component"] for row in spark.read.parquet(str(tmp_path / "out")).collect()} == wanted
    table = pq.read_table(tmp_path / "out")
    assert dict(zip(table["vertex"].to_pylist(), table["component"].to_pylist(), strict=True)) == wanted


class Uneven(Rounds):
    """Gives other columns in one partition, or the number of a vertex that is not there."""

    label_columns = ("where",)

    def result(self, sg: Any) -> Any:
        if self.fails == -2:
            return {"other" if sg.partition == 1 else "one": sg["rounds"]}
        return {"where": sg["rounds"] + 999}


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_leaves_the_old_one(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_spark(Rounds(1), SOCIAL, out, spark=spark)
    before = read_table(out)
    for program, told in (
        (Uneven(1, fails=-2), r"columns \['\w+'\] in one partition, \['\w+'\] in another"),
        (Uneven(1), "Uneven, result: vertex number 1000 does not exist"),
        (Rounds(2, fails=2), "Rounds: subgraph 1, partition"),
    ):
        with pytest.raises(JobError, match=told):
            write_spark(program, SOCIAL, out, spark=spark)
        assert read_table(out).equals(before)
        assert [file.name for file in tmp_path.iterdir()] == ["out"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    for place, told in (
        (tmp_path / "full", "is neither empty nor a result folder"),
        (tmp_path / "none" / "out", "the folder .* does not exist"),
        ("nosuch://bucket/out", "nosuch://bucket/out: Protocol not known"),
    ):
        with pytest.raises(InputError, match=told):
            write_spark(Rounds(1), SOCIAL, place, spark=spark)
    assert (tmp_path / "full" / "mine.txt").read_text() == "keep"


def test_a_part_that_is_written_again_is_the_same(tmp_path: Path) -> None:
    """Spark may run a task twice, at the same time or after the first was lost; readers see one file."""
    folder = folder_writer(tmp_path / "out")
    folder.begin()
    table = pa.table({"vertex": [1, 2], "value": [0.5, 1.5]})
    assert folder.write(4, table) == folder.write(4, table)
    folder.publish("x", [folder.write(4, table)])
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["_manifest.json", "part-00004.parquet"]
    assert read_table(tmp_path / "out").equals(table)
    with pytest.raises(InputError, match="is a different folder on this machine"):
        folder.write(4, table)


@pytest.mark.slow
def test_a_time_limit_ends_with_an_estimate(spark: Any) -> None:
    """The driver's clock stops the run; what comes out is the estimate from the pivots so far."""

    def search(**options: Any) -> SubgraphProgram:
        return PartitionedBetweenness(compression="none", max_concurrent=1, **options)

    found, stats = run_spark(search(time_limit=2.0), GRID, spark=spark)
    pivots = int(stats.aggregates["pivots"])
    assert 1 <= pivots < GRID.num_vertices
    expected, _ = run_local(search(pivots=pivots), GRID, threads=1)
    _same(found, expected)


def test_the_session_is_left_as_it_was(spark: Any) -> None:
    before = spark.sparkContext.getLocalProperty("spark.job.tags")
    run_spark(Rounds(2), GRID, spark=spark)
    assert spark.sparkContext.getLocalProperty("spark.job.tags") == before
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_stopped_jobs_are_cancelled(spark: Any) -> None:
    """What Ctrl-C raises leaves no job behind."""
    begun = threading.Event()

    def stop(*counts: object) -> None:
        begun.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_spark(Rounds(10**6), GRID, spark=spark, progress=stop)
    assert begun.is_set()
    deadline = time.monotonic() + 60
    while (active := spark.sparkContext.statusTracker().getActiveJobsIds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not active


@pytest.mark.parametrize("size", [0, 1, BLOCK, 3 * BLOCK])
def test_blocks_are_joined_in_order(size: int) -> None:
    data = pa.table({"x": np.random.default_rng(size).integers(0, 9, size, np.int8)})
    batches = [*to_rows(1, {"a": 0.1}, [data, data.slice(0, 1)]), *to_rows(0, {}, [])]
    rows = [tuple(column[0].as_py() for column in batch.columns) for batch in reversed(batches)]
    assert all(len(payload) <= BLOCK for *_, payload in rows)
    assert from_rows(rows) == {0: ({}, []), 1: ({"a": 0.1}, [data, data.slice(0, 1)])}


def test_labels_are_looked_up_by_the_executors(spark: Any, tmp_path: Path) -> None:
    """The driver opens no slice."""
    write_store(SOCIAL, tmp_path / "store")
    graph = open_store(tmp_path / "store")
    opened = []
    graph._load = opened.append  # type: ignore[assignment]
    engine = SparkEngine(RunOptions(engine="spark", spark=spark))
    engine.check_label(graph, 39)
    for label in (40, "39"):
        with pytest.raises(InputError, match=f"unknown vertex {label!r}: not among the 40 vertices"):
            engine.check_label(graph, label)
    assert not opened


def test_progress_of_each_superstep(spark: Any) -> None:
    seen: list[tuple[Any, ...]] = []
    run_spark(Rounds(5), GRID, spark=spark, progress=lambda *counts: seen.append(counts))
    assert seen == [(number, 3, 0, None) for number in range(1, 6)]


def test_a_store_that_was_replaced_is_refused(spark: Any, tmp_path: Path) -> None:
    write_store(GRID, tmp_path / "store")
    graph = open_store(tmp_path / "store")
    write_store(SOCIAL, tmp_path / "store")
    with pytest.raises(InputError, match="was replaced during the job"):
        run_spark(Rounds(1), graph, spark=spark)


@pytest.mark.slow
def test_package_holds_what_is_needed(tmp_path: Path) -> None:
    """The package is imported from the archive, kernels included, by a Python that does not know the installed one."""
    assert write_package(tmp_path / "g.zip") == len(zipfile.ZipFile(tmp_path / "g.zip").namelist())
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import goffish as gf; assert sys.argv[1] in gf.__file__;"
        "g = gf.from_edges([0, 1, 3], [1, 2, 4]);"
        "print(gf.run('components', g, engine='local', parts=2, method='hash').summary['components'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "g.zip")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "2", done.stderr
    with pytest.raises(InputError, match="the suffix must be"):
        write_package(tmp_path / "g.tar")
