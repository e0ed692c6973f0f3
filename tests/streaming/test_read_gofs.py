"""Instances of a store as records: against the columns that were written."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish import stream
from goffish.errors import CheckpointError, InputError, StoreError
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, append_instances, write_series
from goffish.streaming import gofs_source
from goffish.streaming.sources import Source
from tests.streaming.pushing import await_
from tests.temporal.fixtures import SeriesCase, expected_column, random_series

Row = tuple[Any, ...]


def read_all(source: Source, limit: int = 1 << 20) -> list[dict[str, Any]]:
    """The records of all partitions; some are read again from their position, as after a restart."""
    found, rng = [], random.Random(1)
    for partition in source.partitions():
        reader, parts = source.open(partition, None), []
        while not reader.done:
            before = list(reader.position)
            read = reader.read(limit)
            if read is not None and len(read.values):
                if rng.random() < 0.1:
                    again = source.open(partition, before)
                    assert again.read(limit).values.equals(read.values)  # type: ignore[union-attr]
                    again.close()
                parts += read.values.to_pylist()  # type: ignore[union-attr]
        reader.close()
        found += parts
    return found


def rows(records: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True, default=lambda number: number.item()) for one in records)


def expected_edges(case: SeriesCase) -> list[dict[str, Any]]:
    src, dst, _, _ = case.graph.edge_columns()
    found = []
    for number, instance in enumerate(case.instances):
        columns = {name: expected_column(case, number, f"edge.{name}") for name in ("latency", "codes", "exists")}
        for edge, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            if columns["exists"][edge]:
                ends = (u, v) if case.graph.directed else (min(u, v), max(u, v))
                found.append({
                    "source": ends[0], "target": ends[1], "time": instance.start,
                    "latency": columns["latency"][edge], "codes": columns["codes"][edge],
                })  # fmt: skip
    return found


@given(random_series(longest=4), st.sampled_from([1, 3, 1000]), st.sampled_from([1, 10]))
@pytest.mark.slow
def test_records_are_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, case: SeriesCase, limit: int, pack: int
) -> None:
    """Breaks when an edge that is cut is read twice or not at all, or a column is in another order."""
    path = tmp_path_factory.mktemp("series")
    case.write(path, pack=pack)
    assert rows(read_all(stream.read_gofs(path), limit)) == rows(expected_edges(case))
    vertices = [
        {"vertex": vertex, "time": instance.start, "load": load, "name": name}
        for number, instance in enumerate(case.instances)
        for vertex, (load, name) in enumerate(
            zip(expected_column(case, number, "vertex.load"), expected_column(case, number, "vertex.name"), strict=True)
        )
    ]  # fmt: skip
    assert rows(read_all(stream.read_gofs(path, "vertices", attributes=["load", "name"]), limit)) == rows(vertices)


def path_store(folder: Path, days: int = 3, first: int = 0) -> None:
    """a - b - c in three partitions, with edges and vertices that exist on some days."""
    graph = gf.from_edges(["a", "b"], ["b", "c"])
    schema = SeriesSchema(vertex=(Attribute("exists", "bool", True),), edge=(Attribute("weight", "float64"),))
    layout = gf.gofs.build_layout(graph, np.array([0, 1, 2], np.int32), 3)
    write_series(layout, folder, schema, [day(number) for number in range(first, first + days)], pack=2)


def day(number: int) -> InstanceData:
    alive = [number != 1, True, number != 2]
    moment = f"2026-01-{number + 1:02d}"
    weights = [float(number), number / 2]
    return InstanceData(moment, f"{moment}T12:00:00", {"vertex.exists": alive, "edge.weight": weights})


DAYS = [[("a", "b"), ("b", "c")], [("b", "c")], [("a", "b")]]


def test_existence_and_time(tmp_path: Path) -> None:
    path_store(tmp_path / "s")
    found = read_all(stream.read_gofs(tmp_path / "s"))
    by_day = [sorted((r["source"], r["target"]) for r in found if r["time"].day == n) for n in (1, 2, 3)]
    assert by_day == DAYS
    assert {r["weight"] for r in found} == {0.0, 0.5, 2.0}
    vertices = read_all(stream.read_gofs(tmp_path / "s", "vertices", start="2026-01-02", end="2026-01-03"))
    assert sorted(r["vertex"] for r in vertices) == ["b", "c"]
    assert vertices[0]["time"].isoformat() == "2026-01-02T00:00:00+00:00"


def test_a_flow_resumes(tmp_path: Path) -> None:
    path_store(tmp_path / "s")
    flow = stream.Flow("edges")
    source = flow.source(stream.read_gofs(tmp_path / "s", rate=20), time="time")
    source.key_by("source").window(stream.tumbling("1d")).sum("weight").sink(stream.write_parquet(tmp_path / "out"))
    runs = 0
    while flow.run(checkpoint=tmp_path / "ck", every=0.01, until=0.06).stopped != "finished":
        runs += 1
    assert runs
    found = [one for file in (tmp_path / "out").glob("part-*") for one in pa.parquet.read_table(file).to_pylist()]
    assert sorted((one["source"], one["weight"]) for one in found) == [("a", 0.0), ("a", 2.0), ("b", 0.0), ("b", 0.5)]


def test_a_store_that_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gofs_source, "_LOOK_S", 0.02)
    path_store(tmp_path / "s", days=1)
    flow, seen = stream.Flow("edges"), stream.collect()
    flow.source(stream.read_gofs(tmp_path / "s", follow=True)).sink(seen)
    run = flow.start(checkpoint=tmp_path / "ck", every=0.05)
    await_(lambda: len(seen.values) == 2 or run.wait(0) is None)
    append_instances(tmp_path / "s", [day(1), day(2)])
    await_(lambda: len(seen.values) == 4 or run.wait(0) is None)
    time.sleep(0.05)
    run.stop()
    assert [(r["source"], r["target"]) for r in seen.values[2:]] in ([*DAYS[1], *DAYS[2]], [*DAYS[2], *DAYS[1]])
    append_instances(tmp_path / "s", [day(3)])
    flow.run(checkpoint=tmp_path / "ck", until=0.2)
    assert len(seen.values) == 6


def test_a_store_that_was_replaced(tmp_path: Path) -> None:
    """Breaks when a position is used with another store."""
    path_store(tmp_path / "s")
    source = stream.read_gofs(tmp_path / "s")
    reader = source.open("0", None)
    reader.read(1000)
    position = reader.position
    source.open("0", position).close()
    path_store(tmp_path / "s", first=3)
    with pytest.raises(CheckpointError, match="s: the store was replaced after the checkpoint; restore it"):
        source.open("0", position)


def test_wrong_arguments(tmp_path: Path) -> None:
    path_store(tmp_path / "s")
    with pytest.raises(InputError, match="what = 'arcs': accepted are edges and vertices"):
        stream.read_gofs(tmp_path / "s", "arcs")
    with pytest.raises(InputError, match="rate = 0: must be a positive number"):
        stream.read_gofs(tmp_path / "s", rate=0)
    for options, message in (
        ({"attributes": ["speed"]}, "no attribute 'edge.speed' in this series; available: vertex.exists, edge.weight"),
        ({"start": "2027-01-01"}, "is outside the series"),
        ({"start": "soon"}, "start='soon': expected integer microseconds"),
    ):
        with pytest.raises(InputError, match=message):
            stream.read_gofs(tmp_path / "s", **options).check()  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="not a GoFFish store"):
        stream.read_gofs(tmp_path / "other").check()
    graph = gf.from_edges([1], [2])
    schema = SeriesSchema(edge=(Attribute("time", "int64", 0),))
    write_series(graph, tmp_path / "t", schema, [InstanceData(0, 1)], unit="1")
    with pytest.raises(InputError, match="attribute 'time' has the name of a column; leave it out of attributes"):
        stream.read_gofs(tmp_path / "t").check()
    assert read_all(stream.read_gofs(tmp_path / "t", attributes=[])) == [{"source": 1, "target": 2, "time": 0}]


def test_a_flow_file(tmp_path: Path) -> None:
    flow = stream.read_flow({
        "name": "cars", "operators": [
            {"name": "in", "kind": "source", "read": {"gofs": {"store": "s", "what": "vertices", "start": 3}}},
            {"name": "out", "kind": "sink", "input": "in", "write": {"json_lines": "out"}},
        ],
    })  # fmt: skip
    assert flow.operators[0].options.source == stream.read_gofs("s", "vertices", start=3)  # type: ignore[union-attr]
