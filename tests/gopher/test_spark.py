"""The Spark engine gives the local engine's answers, superstep by superstep, and ends jobs that fail in one line."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from goffish.algorithms.catalogue import ALGORITHMS, make
from goffish.errors import InputError, JobError
from goffish.gofs import PartitionedGraph, build_layout, open_store, write_store
from goffish.gopher import SubgraphProgram, per_vertex, run_program
from goffish.gopher.checkpoint import CheckpointFolder
from goffish.gopher.local import run_local
from goffish.gopher.spark.package import write_package
from goffish.gopher.spark.rows import BLOCK, MESSAGE, STATE, join, pack, partition_keys
from tests.cases import grid, grid_blocks, make_case

pytest.importorskip("pyspark")

from goffish.gopher.spark import run_spark, session

COUNTS = ["superstep", "partition", "active", "messages", "combined", "remote", "remote_bytes"]
OPTIONS: dict[str, dict[str, Any]] = {
    "bfs": {"source": 0},
    "hops": {"source": 0},
    "sssp": {"source": 0},
    "pagerank": {"supersteps": 4},
    "blockrank": {"tolerance": 0.5},
    "betweenness": {"pivots": 1},
}
ENGINE = [name for name, kind in ALGORITHMS.items() if not kind.in_memory]
GRID = build_layout(grid(9, 6), grid_blocks(9, 6, 1, 3), 3)
SOCIAL = make_case("preferential", 40, 3, 7, grown=False, weights="real").layout()
#: Programs that take few supersteps there.
ON_GRID = ("components", "sssp", "cores", "blockrank", "betweenness")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    made = session(master="local[2]", memory="1g")
    yield made
    made.stop()
    with pytest.raises(KeyboardInterrupt):  # and not an error of the handler that PySpark leaves behind
        signal.raise_signal(signal.SIGINT)


def _same(columns: Any, others: Any) -> None:
    for one, other in zip(columns, others, strict=True):
        assert list(one) == list(other)
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert one[name].tobytes() == other[name].tobytes(), name


def _program(name: str, units: str) -> SubgraphProgram:
    return make(name, OPTIONS.get(name, {})).program(units)


@pytest.mark.parametrize(
    ("graph", "name"),
    [(SOCIAL, name) for name in ENGINE if name not in ON_GRID[3:]] + [(GRID, name) for name in ON_GRID],
    ids=lambda value: value if isinstance(value, str) else "grid" if value is GRID else "social",
)
def test_every_program_as_on_the_local_engine(spark: Any, graph: PartitionedGraph, name: str) -> None:
    """To the bit, in the same supersteps, with the same counters."""
    program = _program(name, graph.info.finder)
    columns, stats = run_local(program, graph, threads=1)
    found, counted = run_spark(program, graph, spark=spark, checkpoint_every=4)
    _same(columns, found)
    assert counted.supersteps == stats.supersteps
    assert counted.steps.select(COUNTS).equals(stats.steps.select(COUNTS))
    figures = [name for name in stats.aggregates if not name.endswith("seconds")]
    assert list(counted.aggregates) == list(stats.aggregates)
    assert [counted.aggregates[name] for name in figures] == [stats.aggregates[name] for name in figures]


def test_components_and_distances_as_networkx(spark: Any, tmp_path: Path) -> None:
    case = make_case("random", 40, 3, 3, grown=False, weights="integer")
    write_store(case.layout(), tmp_path / "store")
    columns, _ = run_spark(_program("components", "components"), open_store(tmp_path / "store"), spark=spark)
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
    with pytest.raises(JobError, match="Rounds: sub-graph 1, partition 1, superstep 2: ValueError: two"):
        run_spark(Rounds(3, fails=2), GRID, spark=spark)


def test_limit_of_supersteps(spark: Any) -> None:
    columns, stats = run_spark(Rounds(2), GRID, spark=spark, max_supersteps=2)
    assert stats.supersteps == 2
    assert all((c["rounds"] == 3).all() for c in columns)
    with pytest.raises(JobError, match=r"not finished after 1 supersteps \(3 sub-graphs still active\)"):
        run_spark(Rounds(2), GRID, spark=spark, max_supersteps=1)


def test_resume_across_engines(spark: Any, tmp_path: Path) -> None:
    """A checkpoint of Spark is taken up by the local engine, and one of the local engine by Spark."""
    whole = run_program(_program("sssp", "components"), SOCIAL)
    assert whole.stats is not None
    stop = whole.stats.supersteps - 1
    program = _program("sssp", "components")
    identity = {"program": "x"}
    one, two = (CheckpointFolder(tmp_path / name, 1, identity) for name in ("one", "two"))
    limit = {"checkpoint_every": 1, "max_supersteps": stop, "spark": spark}
    with pytest.raises(JobError, match="not finished"):
        run_spark(program, SOCIAL, checkpoints=one, **limit)
    columns, stats = run_local(program, SOCIAL, threads=1, checkpoints=one, resume=True)
    with pytest.raises(JobError, match="not finished"):
        run_local(program, SOCIAL, threads=1, checkpoints=two, max_supersteps=stop)
    found, counted = run_spark(program, SOCIAL, spark=spark, checkpoints=two, resume=True)
    _same(columns, found)
    assert counted.steps.select(COUNTS).equals(stats.steps.select(COUNTS))
    assert counted.supersteps == whole.stats.supersteps


def test_the_session_is_left_as_it_was(spark: Any) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    held = spark.sparkContext._jsc.getPersistentRDDs().size()
    run_spark(Rounds(2), GRID, spark=spark, checkpoint_every=1)
    assert spark.conf.get("spark.sql.adaptive.enabled") == before
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == held
    assert spark.sparkContext.getCheckpointDir() is None
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_stopped_jobs_are_cancelled(spark: Any) -> None:
    """What Ctrl-C raises leaves no job behind."""
    begun = threading.Event()

    def stop(*counts: int) -> None:
        begun.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_spark(Rounds(10**6), GRID, spark=spark, progress=stop)
    assert begun.is_set()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64])
def test_keys_are_where_spark_puts_them(spark: Any, partitions: int) -> None:
    keys = partition_keys(partitions)
    frame = spark.createDataFrame([(key,) for key in keys], "key int")
    placed = frame.selectExpr(f"pmod(hash(key), {partitions})").collect()
    assert [row[0] for row in placed] == list(range(partitions))


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_blocks_are_joined_in_order(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    batches = [*pack(5, MESSAGE, 2, data), *pack(5, STATE, 1, b"s"), *pack(5, MESSAGE, 0, b"m")]
    rows = [batch.slice(i, 1) for batch in reversed(batches) for i in reversed(range(batch.num_rows))]
    assert join(rows) == {(STATE, 1): b"s", (MESSAGE, 0): b"m", (MESSAGE, 2): data}
    assert list(join(rows)) == [(STATE, 1), (MESSAGE, 0), (MESSAGE, 2)]


def test_a_store_that_was_replaced_is_refused(spark: Any, tmp_path: Path) -> None:
    write_store(GRID, tmp_path / "store")
    graph = open_store(tmp_path / "store")
    write_store(SOCIAL, tmp_path / "store")
    with pytest.raises(InputError, match="was replaced while the job ran"):
        run_spark(Rounds(1), graph, spark=spark)


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
