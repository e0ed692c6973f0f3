"""Every program of the catalogue on every engine: equal answers to the bit, equal supersteps, equal counters."""

from __future__ import annotations

import importlib.util
import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import goffish as gf
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout, open_store
from goffish.gopher.engine import ENGINES
from tests.cases import grid, grid_blocks, make_case
from tests.gopher.test_mpi_programs import COUNTS, JOBS

pytest.importorskip("pyspark")


#: Options with which a program takes few supersteps, or which it cannot do without.
OPTIONS: dict[str, dict[str, Any]] = {
    "bfs": {"source": 0}, "hops": {"source": 0}, "sssp": {"source": 0}, "pagerank": {"supersteps": 4},
    "blockrank": {"tolerance": 0.5}, "eigenvector": {"tolerance": 0.1}, "hits": {"tolerance": 0.1, "weighted": True},
    "katz": {"tolerance": 0.1}, "walks": {"length": 4, "weighted": True, "q": 4.0},
    "betweenness": {"pivots": 1, "seed": 1},
    "louvain": {"seed": 1, "initial": [v % 4 for v in range(20)], "fixed": [3, 6]},
}  # fmt: skip
#: Programs that take fewest supersteps on a grid; the others run on a graph of another kind.
ON_GRID = {"blockrank", "betweenness"}
PROGRAMS = [name for name, kind in ALGORITHMS.items() if not kind.in_memory]
IN_MEMORY = [name for name, kind in ALGORITHMS.items() if kind.in_memory]

_ON_RANKS = """
import json, pickle, sys
from mpi4py import MPI
from goffish import run
from goffish.gofs import open_store
from tests.gopher.test_spark_matrix import told

for name, (store, options) in json.loads(sys.argv[2]).items():
    result = run(name, open_store(store), engine="mpi", threads=1, **options)
    if MPI.COMM_WORLD.rank == 0:
        with open(f"{sys.argv[1]}/{name}.pickle", "wb") as file:
            pickle.dump(told(result), file)
"""


def layout(name: str) -> PartitionedGraph:
    if name in ON_GRID:
        return build_layout(grid(9, 6), grid_blocks(9, 6, 1, 3), 3)
    return make_case("preferential", 20, 3, 7, grown=False, weights="real").layout()


def told(result: Any) -> dict[str, Any]:
    """All of a result that may not depend on the engine; what is measured in seconds does."""
    assert result.stats is not None
    steady = {name: value for name, value in result.stats.aggregates.items() if not name.endswith("seconds")}
    return {
        "schema": str(result.table.schema),
        "rows": {field.name: _values(result.table[field.name]) for field in result.table.schema},
        "supersteps": result.stats.supersteps,
        "steps": result.stats.steps.select(COUNTS).to_pydict(),
        "aggregates": steady,
        "summary": {name: value for name, value in result.summary.items() if not name.endswith("seconds")},
    }


def _values(column: pa.ChunkedArray) -> Any:
    return column.to_numpy().tobytes() if pa.types.is_floating(column.type) else column.to_pylist()


@cache
def expected(name: str) -> dict[str, Any]:
    return told(gf.run(name, layout(name), engine="local", threads=1, **OPTIONS.get(name, {})))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("matrix")
    for kind, name in (("grid", "betweenness"), ("social", "components")):
        layout(name).save(folder / kind)
    return {name: str(folder / ("grid" if name in ON_GRID else "social")) for name in PROGRAMS}


@pytest.fixture(scope="module")
def on_ranks(stores: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks answer, one file per program."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    from tests.gopher.mpi_jobs import mpirun

    folder = tmp_path_factory.mktemp("ranks")
    jobs = {name: (stores[name], OPTIONS.get(name, {})) for name in PROGRAMS}
    code, _, error = mpirun(2, "-m", "mpi4py", "-c", _ON_RANKS, str(folder), json.dumps(jobs))
    assert code == 0, error[-2000:]
    return folder


def test_nothing_is_left_out_of_the_matrix() -> None:
    """A new engine, or a new program that the tests of the ranks do not know, fails here until it is added there."""
    assert set(ENGINES) == {"local", "mpi", "spark"}
    assert set(JOBS) == set(PROGRAMS)
    assert set(OPTIONS) <= set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_two_threads(name: str) -> None:
    assert told(gf.run(name, layout(name), engine="local", threads=2, **OPTIONS.get(name, {}))) == expected(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_two_ranks(on_ranks: Path, name: str) -> None:
    assert pickle.loads((on_ranks / f"{name}.pickle").read_bytes()) == expected(name)


@pytest.mark.parametrize(
    "name",
    [name if name in ("components", "louvain") else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS],
)
def test_on_spark(spark: Any, stores: dict[str, str], name: str) -> None:
    found = gf.run(name, open_store(stores[name]), engine="spark", spark=spark, **OPTIONS.get(name, {}))
    assert told(found) == expected(name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", IN_MEMORY)
def test_what_has_no_program_says_so(name: str, engine: str) -> None:
    with pytest.raises(InputError, match=f"{name} runs only in memory; omit engine"):
        fields = ALGORITHMS[name].model_fields
        needed = {option: at for at, option in enumerate(fields) if fields[option].is_required()}
        gf.run(name, layout(name), engine=engine, **needed)
