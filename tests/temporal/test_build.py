"""Builders of time series, against pandas and plain Python; bad input gives one clear line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.graph import from_edges
from goffish.temporal.build import (
    build_from_events,
    build_from_snapshots,
    build_from_spark,
    build_from_table,
    read_events,
)
from tests.cases import grid

HOUR = 3_600_000_000


def edges_of(store: PartitionedGraph) -> list[tuple[Any, Any]]:
    """Ends of every edge in the order in which an instance gives its values."""
    graph = store.to_graph()
    labels = graph.label_column().to_pylist()
    src, dst, _, _ = graph.edge_columns()
    return [(labels[u], labels[v]) for u, v in zip(src.tolist(), dst.tolist(), strict=True)]


@pytest.mark.slow
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 60), directed=st.booleans(), window=st.integers(1, 9),
    start=st.sampled_from((None, -5, 3)),
)  # fmt: skip
def test_aggregations_are_those_of_pandas(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, directed: bool, window: int, start: int | None
) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "source": rng.integers(0, 6, rows),
            "target": rng.integers(0, 6, rows),
            "timestamp": rng.integers(0, 30, rows),
            "size": rng.integers(-9, 9, rows),
            "rate": rng.random(rows),
            "text": [f"t{x}" for x in rng.integers(0, 5, rows)],
        }
    )
    rules = {
        "n": "count",
        "size": ("size", "sum"),
        "low": ("rate", "min"),
        "high": ("rate", "max"),
        "mean": ("rate", "mean"),
        "first": ("text", "first"),
        "last": ("text", "last"),
        "all": ("text", "list"),
    }
    built = build_from_events(
        frame, tmp_path_factory.mktemp("b") / "s", window=window, start=start, attributes=rules, time_unit="1",
        directed=directed, pack=2, bins=2, parts=2, method="hash",
    )  # fmt: skip
    frame = frame[frame.source != frame.target]
    if not directed:
        ends = np.sort(frame[["source", "target"]].to_numpy(), axis=1)
        frame = frame.assign(source=ends[:, 0], target=ends[:, 1])
    edges = edges_of(built.store)
    assert set(edges) == set(zip(frame.source.tolist(), frame.target.tolist(), strict=True))
    frame = frame.sort_values("timestamp", kind="stable")
    covered = 0
    for instance in built.store.instances():
        assert instance.end - instance.start == window
        inside = frame[(frame.timestamp >= instance.start) & (frame.timestamp < instance.end)]
        covered += len(inside)
        groups = dict(iter(inside.groupby(["source", "target"])))
        got = {name: instance.edge(name).to_pylist() for name in ("exists", *rules)}
        for at, edge in enumerate(edges):
            some = groups.get(edge)
            assert got["exists"][at] == (some is not None)
            assert got["n"][at] == (0 if some is None else len(some))
            assert got["size"][at] == (0 if some is None else some["size"].sum())
            assert got["all"][at] == ([] if some is None else some.text.tolist())
            if some is None:
                assert [got[name][at] for name in ("low", "high", "mean", "first", "last")] == [None] * 5
            else:
                assert (got["low"][at], got["high"][at]) == (some.rate.min(), some.rate.max())
                assert got["mean"][at] == pytest.approx(some.rate.mean())
                assert (got["first"][at], got["last"][at]) == (some.text.iloc[0], some.text.iloc[-1])
    assert covered == len(frame if start != 3 else frame[frame.timestamp >= 3])


def test_windows_with_a_calendar(tmp_path: Path) -> None:
    """Seconds, timestamps and ISO texts are the same axis; borders may leave events out, which is told."""
    times = [datetime(2024, 5, 1, 10, 59, tzinfo=UTC), datetime(2024, 5, 1, 9, 0, tzinfo=UTC),
             datetime(2024, 5, 1, 12, 0, tzinfo=UTC)]  # fmt: skip
    base = {"source": ["a", "b", "a"], "target": ["b", "c", "b"]}
    frames = [
        pd.DataFrame(base | {"timestamp": [int(t.timestamp()) for t in times]}),
        pd.DataFrame(base | {"timestamp": times}),
        pl.DataFrame(base | {"timestamp": times}),
        pa.table(base | {"timestamp": [t.isoformat() for t in times]}),
        pa.table(base | {"timestamp": [t.timestamp() + 0.25 for t in times]}),
    ]
    for i, frame in enumerate(frames):
        built = build_from_events(frame, tmp_path / f"{i}", window="1h")
        assert built.notes == ("the events were not in time order and were sorted",)
        found = built.store.instances()
        assert [n.edge("count").to_pylist() for n in found] == [[0, 1], [1, 0], [0, 0], [1, 0]]
        assert found[0].start == int(times[1].timestamp()) * 10**6
        assert [n.number for n in built.store.instances("2024-05-01T10:00", "2024-05-01T12:00")] == [1, 2]
    built = build_from_events(
        frames[0], tmp_path / "b", borders=["2024-05-01T10:00", times[2], times[2] + timedelta(1)]
    )
    assert [n.edge("count").to_pylist() for n in built.store.instances()] == [[1, 0], [1, 0]]
    assert built.notes[1] == "1 of 3 events are outside the windows (2024-05-01T10:00:00 to 2024-05-02T12:00:00)"
    assert (built.instances, len(edges_of(built.store))) == (2, 2)


def test_real_messages(tmp_path: Path) -> None:
    """A file in the form of the SNAP and KONECT collections: comments, blanks, seconds."""
    (tmp_path / "m.txt").write_text("# source target seconds\n1 2 100\n2 1 150\n3 1 90\n3 3 95\n1 2 7300\n")
    table = read_events(tmp_path / "m.txt")
    assert table.num_rows == 5 and set(table.column_names) == {"source", "target", "timestamp"}
    built = build_from_events(tmp_path / "m.txt", tmp_path / "s", window=3600)
    assert [n.edge("count").to_pylist() for n in built.store.instances()] == [[2, 1], [0, 0], [1, 0]]
    assert built.notes[-1] == "1 events from a vertex to itself were skipped"


EVENTS = {"source": [0, 1], "target": [1, 2], "timestamp": [5, 9], "x": ["a", None]}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "window and borders are mutually exclusive"),
        ({"window": 1, "borders": [0, 9]}, "window and borders are mutually exclusive"),
        ({"window": 0}, "window=0: must be a positive integer"),
        ({"window": "1 month"}, "window='1 month': must be a positive integer or a duration such as 15min"),
        ({"borders": [9, 5]}, "expected at least two ascending times; border 1 is not after the previous one"),
        ({"borders": [9]}, "expected at least two ascending times; got 1"),
        ({"borders": [0, 9], "start": 0}, "start requires window"),
        ({"window": 1, "time_unit": "h"}, "time_unit='h': choose one of s, ms, us, 1"),
        ({"window": 1, "time": "when"}, "no column 'when' in the events; the columns are source, target, timestamp, x"),
        ({"window": 1, "attributes": {"y": ("x", "median")}}, 'expected "count" or'),
        ({"window": 1, "attributes": {"y": ("z", "sum")}}, "'y': no column 'z' in the events"),
        ({"window": 1, "attributes": {"y": ("x", "last")}}, "row 1 of the events has no 'x'"),
        ({"window": 1, "attributes": {"exists": "count"}}, "choose another name"),
        (
            {"window": "1us", "time_unit": "s"},
            r"produces 4,000,001 windows, at most 1,000,000 are accepted; use a longer window",
        ),
    ],
)
def test_bad_events(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        build_from_events(pa.table(EVENTS), tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_bad_columns_of_events(tmp_path: Path) -> None:
    texts = pa.table(EVENTS).slice(0, 1)
    with pytest.raises(InputError, match="the sum of 'x' requires numbers; the column holds string"):
        build_from_events(texts, tmp_path / "s", window=1, attributes={"y": ("x", "sum")})
    with pytest.raises(
        InputError, match=r"x: not a column of times .*; expected numbers, timestamps or ISO 8601 strings"
    ):
        build_from_events(texts, tmp_path / "s", window=1, time="x")
    with pytest.raises(InputError, match=r"x: row 1 has no time"):
        build_from_events(pa.table(EVENTS), tmp_path / "s", window=1, time="x")
    empty = build_from_events(texts.slice(0, 0), tmp_path / "e", window=1)
    assert (empty.instances, empty.store.num_vertices) == (0, 0)


@pytest.mark.parametrize("directed", [False, True])
def test_snapshots(tmp_path: Path, directed: bool) -> None:
    """Five random graphs as edge lists; what each instance says is the graph of its file."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    graphs = []
    for day in range(5):
        made = nx.gnm_random_graph(12, 5 * day, seed=day, directed=directed)
        lines = [f"{u} {v} {(u * v) % 7 + 0.5}" for u, v in made.edges]
        (folder / f"net-2024-03-{day + 1:02d}.txt").write_text("# nothing more\n" + "\n".join(lines))
        graphs.append(made)
    built = build_from_snapshots(
        folder, tmp_path / "s", pattern=r"(\d+-\d+-\d+)", time_format="%Y-%m-%d", directed=directed, parts=2, pack=2,
    )  # fmt: skip
    edges = edges_of(built.store)
    key = (lambda e: e) if directed else (lambda e: tuple(sorted(e)))
    assert set(edges) == {key(e) for made in graphs for e in made.edges}
    for made, instance in zip(graphs, built.store.instances(), strict=True):
        exists, weight = instance.edge("exists").to_pylist(), instance.edge("weight").to_pylist()
        assert {e for e, there in zip(edges, exists, strict=True) if there} == {key(e) for e in made.edges}
        assert all(w == (u * v % 7 + 0.5 if x else None) for (u, v), w, x in zip(edges, weight, exists, strict=True))
        assert instance.end - instance.start == 24 * HOUR
    assert [i.number for i in built.store.instances("2024-03-02", "2024-03-04")] == [1, 2]

    in_order = build_from_snapshots(sorted(folder.iterdir()), tmp_path / "o", directed=directed)
    assert [(i.start, i.end) for i in in_order.store.instances()] == [(t, t + 1) for t in range(5)]
    numbered = build_from_snapshots(folder, tmp_path / "n", pattern=r"-(?P<time>\d+)\.txt", period=1, directed=directed)
    assert [(i.start, i.end) for i in numbered.store.instances()] == [(t, t + 1) for t in range(1, 6)]
    with pytest.raises(InputError, match=r"net-2024-03-01.txt and net-2024-03-02.txt have the same time, 2024"):
        build_from_snapshots(folder, tmp_path / "x", pattern=r"-(\d{4})")
    with pytest.raises(
        InputError, match=r"period: net-2024-03-01.txt ends at 3, after net-2024-03-02.txt begins \(2\)"
    ):
        build_from_snapshots(folder, tmp_path / "x", pattern=r"-(\d+)\.txt", period=2)
    with pytest.raises(InputError, match=r"does not match the file name"):
        build_from_snapshots(folder, tmp_path / "x", pattern=r"week(\d+)")
    with pytest.raises(InputError, match=r"expected a regular expression with a group"):
        build_from_snapshots(folder, tmp_path / "x", pattern=r"net")
    with pytest.raises(InputError, match=r"'2024' in the file name is not a time of the form %d/%m"):
        build_from_snapshots(folder, tmp_path / "x", pattern=r"(\d+)", time_format="%d/%m")
    with pytest.raises(InputError, match=r"not a folder"):
        build_from_snapshots(folder / "none", tmp_path / "x")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_tables(tmp_path: Path, kind: str) -> None:
    graph = from_edges(["a", "b", "c"], ["b", "c", "d"], vertex_attributes={"size": [1, 2, 3, 4]})
    vertices = {"instance": [2, 0, 0], "vertex": ["d", "a", "b"], "load": [1.5, 2.5, None], "size": [9, 8, None]}
    edges = {"instance": [0, 2], "source": ["c", "a"], "target": ["b", "b"], "name": ["x", "y"]}
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind]
    built = build_from_table(
        graph, tmp_path / "s", vertices=make(vertices), edges=make(edges), starts=[0, 10, 20], period=10,
        defaults={"vertex.load": 0.0, "vertex.size": {"column": "size"}, "edge.name": "-"}, pack=2,
    )  # fmt: skip
    assert built.notes == ("the rows of vertex values were not in time order and were sorted",)
    found = built.store.instances()
    assert [i.vertex("load").to_pylist() for i in found] == [[2.5, 0, 0, 0], [0] * 4, [0, 0, 0, 1.5]]
    assert [i.vertex("size").to_pylist() for i in found] == [[8, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 9]]
    assert [i.edge("name").to_pylist() for i in found] == [["-", "x", "-"], ["-"] * 3, ["y", "-", "-"]]
    assert [(i.start, i.end) for i in found] == [(0, 10), (10, 20), (20, 30)]


def test_tables_by_time(tmp_path: Path) -> None:
    """Without starts the column says when an instance begins; a graph that is partitioned already stays so."""
    layout = build_layout(grid(4, 1), np.array([0, 0, 1, 1], np.int32), 2)
    days = [datetime(2024, 1, d) for d in (1, 2, 5)]
    rows = [(day, v, 10 * i + v) for i, day in enumerate(days) for v in range(4)]
    frame = pd.DataFrame(rows, columns=["instance", "vertex", "x"])
    built = build_from_table(layout, tmp_path / "s", vertices=frame, time_unit="us", period="1d")
    assert built.store.num_partitions == 2
    assert [i.vertex("x").to_pylist() for i in built.store.instances()] == [
        [10 * i + v for v in range(4)] for i in range(3)
    ]
    assert [(i.end - i.start) // HOUR for i in built.store.instances()] == [24] * 3
    open_ended = build_from_table(layout, tmp_path / "t", vertices=frame, time_unit="us")
    assert [(i.end - i.start) // HOUR for i in open_ended.store.instances()] == [24, 72, 72]


TABLE = {"instance": [0, 1, 1], "vertex": [0, 1, 2], "x": [1, 2, 3]}


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [
        (
            {"vertex": [0, 1, 99]},
            {},
            r"row 2, instance 1 \(1\): unknown vertex 99: not among the 4 vertices",
        ),
        ({"vertex": [0, 1, 1]}, {}, r"row 2, instance 1 \(1\): a second row for vertex 1"),
        ({}, {"vertex": "node"}, "no column 'node' in the table of vertices; the columns are instance, vertex, x"),
        ({}, {"starts": [0]}, "row 1: instance 1 does not exist; got 1 starts"),
        ({}, {"starts": [5, 0]}, r"starts: instance 1 begins at 0, which is not after instance 0 \(5\); sort them"),
        ({}, {"starts": [0, 5], "ends": [6, 7]}, r"instance 1 begins at 5, before instance 0 ends \(6\)"),
        ({}, {"starts": [0, 5], "ends": [5]}, "ends: got 1 for 2 starts"),
        ({}, {"ends": [1]}, "ends requires starts"),
        ({}, {"defaults": {"vertex.y": 1}}, "defaults: no attribute 'vertex.y'; available: vertex.x"),
        ({"instance": ["a", "b", "c"]}, {}, "the column of instances: not a column of times"),
        ({"x": [datetime(2024, 1, 1)] * 3}, {}, r"attribute type timestamp.* choose one of bool"),
    ],
)
def test_bad_tables(tmp_path: Path, change: dict[str, Any], options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        build_from_table(grid(4, 1), tmp_path / "s", vertices=pa.table(TABLE | change), **options)
    with pytest.raises(InputError, match="expected a table of vertices or of edges"):
        build_from_table(grid(4, 1), tmp_path / "s")
    edges = pa.table({"instance": [0, 0], "source": [0, 0], "target": [1, 2], "x": [1, 1]})
    with pytest.raises(InputError, match=r"row 1, instance 0 \(0\): unknown edge 0 - 2: not in the templ"):
        build_from_table(grid(4, 1), tmp_path / "s", edges=edges)


def test_spark_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyspark", None)
        without.setitem(sys.modules, "pyspark.sql", None)
        with pytest.raises(InputError, match=r"pyspark is not installed: pip install 'goffish\[spark\]'"):
            build_from_spark(None, tmp_path / "s", {})
    pytest.importorskip("pyspark")
    with pytest.raises(InputError, match=r"frame is of type NoneType; expected a pyspark.sql.DataFrame"):
        build_from_spark(None, tmp_path / "s", {})


@pytest.mark.slow
def test_spark_frames(tmp_path: Path, spark: Any) -> None:
    """A data frame of Spark gives the series that the same rows give as a table."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"source": rng.integers(0, 9, 80), "target": rng.integers(0, 9, 80), "when": rng.integers(0, 30, 80)}
    )
    frame["size"] = rng.integers(1, 9, 80).astype(float)
    frame = frame[frame.source != frame.target]
    spec = {
        "source": "source", "target": "target", "weight": "size", "timestamp": {"column": "when", "format": "epoch_s"},
        "clean": {"duplicates": "sum"}, "instances": {"period": "7s", "start": 0, "pack": 2, "bins": 2},
        "partition": {"parts": 2},
    }  # fmt: skip
    built = build_from_spark(spark.createDataFrame(frame), tmp_path / "s", spec)
    plain = build_from_events(
        frame, tmp_path / "t", window=7, start=0, time="when", attributes={"weight": ("size", "sum")}
    )
    assert built.instances == plain.instances == 5
    assert edges_of(built.store) == edges_of(plain.store)
    for a, b in zip(built.store.instances(), plain.store.instances(), strict=True):
        assert (a.start, a.end) == (b.start, b.end)
        assert a.edge("exists").to_pylist() == b.edge("exists").to_pylist()
        there = np.array(a.edge("exists").to_pylist())
        assert (
            np.array(a.edge("weight").to_pylist())[there].tolist()
            == np.array(b.edge("weight").to_pylist())[there].tolist()
        )
