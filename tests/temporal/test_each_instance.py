"""Algorithms of the catalogue on every instance: as on the graph of the instance, on all engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.errors import InputError
from goffish.gofs.series import Series, open_series
from goffish.temporal.build import build_from_events
from goffish.temporal.instance_graph import graphs_of
from goffish.temporal.options import APPLICATIONS

#: What an algorithm needs on a small graph; 1 is a vertex of every instance.
NEEDED: dict[str, dict[str, Any]] = {
    "bfs": {"source": 1}, "sssp": {"source": 1}, "hops": {"source": 1}, "path": {"source": 1, "target": 2},
    "distances": {"sources": [1]}, "maximum-flow": {"source": 1, "target": 2}, "landscape": {"samples": 8},
    "walks": {"walks": 1, "length": 4}, "spectral-embedding": {"dimensions": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    """Four instances; the last but one is empty, and vertex 40 is in one of them only."""
    rng = np.random.default_rng(3)
    source, target = rng.integers(0, 30, 240), rng.integers(0, 30, 240)
    times = rng.choice((0, 10, 30), 240)
    every = {"source": [*source, 1, 1, 1, 1], "target": [*target, 2, 2, 2, 40], "timestamp": [*times, 0, 10, 30, 10]}
    path = tmp_path_factory.mktemp("series") / "s"
    build_from_events(pa.table(every), path, window=10, start=0, time_unit="1", parts=3, method="hash")
    return open_series(path)


def check(series: Series, name: str, engine: str, **options: Any) -> None:
    """The rows of each instance are those of the algorithm on its graph."""
    graphs = graphs_of(series)
    found = gf.run_series(name, series, engine=engine, **options)
    assert (found.algorithm, found.timesteps["timestep"].to_pylist()) == (name, [0, 1, 2, 3])
    for instance in series.instances():
        rows = found.table.filter(pa.compute.field("timestep") == instance.number).drop_columns("timestep")
        graph = graphs.graph(instance) if engine == "auto" else graphs.partitioned(instance)
        if not graph.num_vertices:
            assert not rows.num_rows
            continue
        alone = gf.run(name, graph, engine="auto" if engine == "auto" else "local", **options)
        assert rows.combine_chunks().equals(alone.table.combine_chunks()), instance.number


@pytest.mark.slow
def test_in_memory_and_on_the_engine(series: Series) -> None:
    check(series, "triangles", "auto")
    check(series, "triangles", "local")
    check(series, "sssp", "local", source=1)
    found = gf.run_series("triangles", series)
    one = found.timesteps.to_pylist()
    assert [row["start"] for row in one] == [0, 10, 20, 30]
    assert gf.run_series("triangles", series, temporal_parallelism=3).table.equals(found.table)
    part = gf.run_series("triangles", series, start=10, end=30)
    assert part.timesteps["timestep"].to_pylist() == [1, 2]
    assert part.table.equals(found.table.filter(pa.compute.field("timestep") == 1))


def test_vertices_that_an_instance_does_not_have(series: Series) -> None:
    found = gf.run_series("sssp", series, source=40)
    assert set(found.table["timestep"].to_pylist()) == {1}
    assert [note.partition(":")[0] for note in found.notes] == ["instance 0", "instance 3"]
    with pytest.raises(InputError, match="instance 0: unknown vertex 99"):
        gf.run_series("sssp", series, source=99)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nothing", {}, "unknown application 'nothing': choose one of tdsp, .*, or an algorithm of goffish run"),
        ("triangles", {"checkpoint_dir": "c"}, "checkpoint_dir does not apply to an algorithm that runs on each"),
        ("triangles", {"given": {"x": 1}}, "given does not apply"),
        ("triangles", {"weight": "cost"}, "no attribute 'edge.cost' in this series"),
        ("triangles", {"depth": 1}, "triangles: unknown option 'depth'"),
        ("motifs", {"engine": "local"}, "motifs runs only in memory; omit engine"),
        ("triangles", {"engine": "fast"}, "engine='fast': choose one of auto, local, mpi, spark"),
    ],
)
def test_bad_options(series: Series, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gf.run_series(name, series, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - APPLICATIONS.keys()))
def test_every_algorithm(series: Series, name: str) -> None:
    options = NEEDED.get(name, {})
    for engine in ("auto", "local"):
        try:
            gf.run(name, graphs_of(series).partitioned(next(iter(series.instances()))), engine=engine, **options)
        except InputError as error:
            with pytest.raises(InputError) as same:
                gf.run_series(name, series, engine=engine, **options)
            assert str(same.value) == str(error)
        else:
            check(series, name, engine, **options)


@pytest.mark.slow
def test_on_spark(series: Series, spark: Any) -> None:
    for name in ("louvain", "clustering"):
        tables = [gf.run_series(name, series, engine=engine, **more).table
                  for engine, more in (("local", {}), ("spark", {"spark": spark}))]  # fmt: skip
        assert tables[0].equals(tables[1])
