"""Series whose template grows: equal to those built of all events at once, whole or not at all, read while written.

See docs/specs/time-series.md, section 5.1.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

import goffish as gf
from goffish.errors import InputError, StoreError
from goffish.gofs import build_layout, verify_store
from goffish.gofs.encoding import encode_slice
from goffish.gofs.files import _RemoteFolder, open_folder
from goffish.gofs.series import (
    Attribute,
    InstanceData,
    Series,
    SeriesSchema,
    append_instances,
    compact_series,
    grown_template,
    open_series,
    write_series,
)
from goffish.gofs.series.growth import find_in_template
from goffish.gofs.series.slices import find_elements, numbered
from goffish.partition import partition_graph
from goffish.partition.streaming import place_new
from goffish.temporal.append import MANY_GROUPS, append_from_events, append_from_snapshots, append_from_table
from goffish.temporal.build import build_from_events, build_from_snapshots, build_from_table
from goffish.temporal.building import StoreOptions
from tests.disk import Disk

ATTRIBUTES = {"count": "count", "amount": ("amount", "sum"), "codes": ("code", "list"), "last": ("name", "last")}
HOW: dict[str, Any] = {"attributes": ATTRIBUTES, "time_unit": "1"}


def events(rng: np.random.Generator, size: int, vertices: tuple[int, int], times: tuple[int, int], text: bool) -> Any:
    """Random events; without vertices that have events with themselves alone, which a template has all the same."""
    ends = [rng.integers(*vertices, size) for _ in range(2)]
    labels = [pa.array([f"v{x:03d}" for x in end], pa.string()) if text else end for end in ends]
    return pa.table({
        "source": labels[0], "target": labels[1], "timestamp": rng.integers(*times, size),
        "amount": rng.choice((0.1, 0.25, 1e9, float("nan")), size), "code": rng.integers(0, 9, size),
        "name": pa.array([f"n{x}" for x in rng.integers(0, 9, size)], pa.string()),
    })  # fmt: skip


@contextmanager
def placed(owner: dict[Any, int]) -> Iterator[None]:
    """Builders put vertices into given partitions."""

    def write(self: StoreOptions, graph: gf.Graph, *rest: Any) -> Any:
        parts = [owner[label] for label in graph.label_column().to_pylist()]
        return real(self, partition_graph(graph, self.parts, "predefined", assignment=np.array(parts, int)), *rest)

    real = StoreOptions.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreOptions, "write", write)
        yield


def owners(series: Series) -> dict[Any, int]:
    return dict(zip(series.graph.labels_by_number().to_pylist(), series.graph.owner().tolist(), strict=True))


def check_equal(grown: Series, whole: Series) -> None:
    """Labels, times, values of all instances, and answers."""
    assert grown.graph.labels_by_number().equals(whole.graph.labels_by_number())
    assert (grown.starts.tolist(), grown.ends.tolist()) == (whole.starts.tolist(), whole.ends.tolist())
    for name in whole.schema:
        place, attribute = name.split(".")
        for one, other in zip(grown.instances(), whole.instances(), strict=True):
            assert str(getattr(one, place)(attribute).to_pylist()) == str(getattr(other, place)(attribute).to_pylist())
    for application, engine in itertools.product(("components", "pagerank"), ("auto", "local")):
        tables = [gf.run_series(application, one, engine=engine, threads=2).table for one in (grown, whole)]
        assert tables[0].equals(tables[1]), (application, engine)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10_000), directed=st.booleans(), text=st.booleans(), parts=st.integers(1, 5),
    pack=st.sampled_from((1, 2, 10)), appends=st.integers(1, 3),
)  # fmt: skip
def test_grown_series_equal_those_built_at_once(
    seed: int, directed: bool, text: bool, parts: int, pack: int, appends: int
) -> None:
    """To the digit on the engines, and to the file after compaction."""
    rng = np.random.default_rng(seed)
    stored = {"parts": parts, "pack": pack, "bins": 2, "directed": directed, "window": 10, "start": 0}
    low = int(rng.integers(0, 20))
    every = [events(rng, int(rng.integers(1, 60)), (low, low + 25), (0, 10 * int(rng.integers(1, 6))), text)]
    with tempfile.TemporaryDirectory() as folder:
        path, other = Path(folder) / "a", Path(folder) / "b"
        build_from_events(every[0], path, method="hash", **stored, **HOW)
        for _ in range(appends):
            end = int(open_series(path).ends[-1])
            times = (end, end + 10 * int(rng.integers(1, 4)))
            every.append(events(rng, int(rng.integers(0, 20)), (max(0, low - 3), low + 30), times, text))
            append_from_events(path, every[-1], **HOW)
        grown = open_series(path)
        with placed(owners(grown)):
            build_from_events(pa.concat_tables(every), other, **stored, **HOW)
        check_equal(grown, open_series(other))
        assert compact_series(path).packs == -(-len(grown) // pack)
        assert open_folder(path).list() == open_folder(other).list(), "the same content has the same names"


def small(path: Path | str, **more: Any) -> Any:
    rows = {"source": [1, 2, 7, 3], "target": [2, 3, 8, 1], "timestamp": [0, 1, 5, 12], "weight": [1.0, 2.0, 3.0, 4.0]}
    return build_from_events(pa.table(rows), path, window=10, time_unit="1", parts=2, method="hash", **more)


def later(start: int = 20, **columns: Any) -> pa.Table:
    """Old edges, new ones between old vertices, and new vertices."""
    rows = {"source": [1, 3, 5, 1556, 7], "target": [2, 8, 1, 1557, 9], "timestamp": start + np.arange(5) * 2}
    return pa.table(rows | columns)


def test_new_vertices_and_edges(tmp_path: Path) -> None:
    """Earlier instances do not have them; labels that were 1, 2, 3, 7, 8 stay in order; old files stay."""
    small(tmp_path / "s")
    before, old = open_folder(tmp_path / "s").list(), open_series(tmp_path / "s")
    made = append_from_events(tmp_path / "s", later(), time_unit="1")
    assert (made.instances, made.store.num_vertices, made.store.num_edges) == (1, 9, 8)
    assert made.notes == ("added to the template: 4 vertices, 4 edges",)
    series = open_series(tmp_path / "s")
    assert series.graph.labels_by_number().to_pylist() == [1, 2, 3, 5, 7, 8, 9, 1556, 1557]
    source, target, _, _ = series.graph.to_graph().edge_columns()
    labels = series.graph.labels_by_number().to_pylist()
    edges = [(labels[u], labels[v]) for u, v in zip(source, target, strict=True)]
    found = [
        {e for e, there in zip(edges, one.edge("exists").to_pylist(), strict=True) if there}
        for one in series.instances()
    ]
    assert found == [{(1, 2), (2, 3), (7, 8)}, {(1, 3)}, {(1, 2), (3, 8), (1, 5), (1556, 1557), (7, 9)}]
    assert (series.groups.starts.tolist(), series.groups.generations.tolist()) == ([0, 2], [0, 1])
    assert set(before) - {"manifest.json"} <= set(open_folder(tmp_path / "s").list())
    # who opened the series before reads on, though nothing had been read
    assert old.graph.num_edges == 4
    assert [sum(one.edge("exists").to_pylist()) for one in old.instances()] == [3, 1]
    assert verify_store(tmp_path / "s") > 0
    copied = gf.open(tmp_path / "s").save(tmp_path / "t")
    assert [sum(i.edge("exists").to_pylist()) for i in copied.instances()] == [3, 1, 5]


def test_appends_that_change_nothing_of_the_template_fill_packs(tmp_path: Path) -> None:
    """The template grows once; what follows goes to the pack that began then, and an empty append changes nothing."""
    small(tmp_path / "s")
    for start in (20, 30, 40):
        append_from_events(tmp_path / "s", later(start), time_unit="1")
    series = open_series(tmp_path / "s")
    assert (series.groups.starts.tolist(), series.groups.generations.tolist()) == ([0, 2], [0, 1])
    assert [sum(i.edge("exists").to_pylist()) for i in series.instances()] == [3, 1, 5, 5, 5]
    before = open_folder(tmp_path / "s").list()
    made = append_from_events(tmp_path / "s", later().slice(0, 0), time_unit="1")
    assert (made.instances, open_folder(tmp_path / "s").list()) == (0, before)
    assert append_from_events(tmp_path / "s", later(), time_unit="1").instances == 0, "all are before the end"


def test_bins_of_a_grown_series_hold_its_subgraphs(tmp_path: Path) -> None:
    """Values read by bins are those that all bins give, also where subgraphs of several bins have become one."""
    rng = np.random.default_rng(1)
    base, more = events(rng, 40, (0, 60), (0, 40), False), events(rng, 30, (0, 70), (40, 60), False)
    build_from_events(base, tmp_path / "s", window=10, parts=2, method="hash", bins=3, **HOW)
    append_from_events(tmp_path / "s", more, **HOW)
    series = open_series(tmp_path / "s")
    assert any(len(series.elements(p).bins_of([s])) > 1 for p in (0, 1) for s in range(series.graph.info.subgraphs[p]))
    for partition, instance in itertools.product((0, 1), range(len(series))):
        elements = series.elements(partition)
        whole = series.values(partition, instance, "edge.count")
        for subgraph, (low, high) in enumerate(itertools.pairwise(elements.edge_offsets.tolist())):
            some = series.values(partition, instance, "edge.count", bins=elements.bins_of([subgraph]))
            assert some[low:high].tolist() == whole[low:high].tolist()


@pytest.mark.parametrize(
    ("table", "named", "message"),
    [
        (later().set_column(0, "source", [["1", "3", "5", "a", "7"]]).set_column(1, "target", [["b"] * 5]), {},
         "the new instances do not fit the template: the vertex labels are string, and those of the graph int64"),
        (later().rename_columns(["from", "target", "timestamp"]), {}, "no column 'source' in the events"),
        (later(), {"attributes": {"other": "count"}}, "'count' is an attribute of the series"),
        (later().set_column(2, "timestamp", [[20.5, 21, 22, 23, None]]), {}, "row 4 has no time"),
        (later().set_column(0, "source", [[1, 2, 3, 4, None]]), {}, "source: row 4 has no vertex label"),
        (later(), {"time_unit": "s"}, "the series has no calendar"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, table: pa.Table, named: dict[str, Any], message: str
) -> None:
    small(tmp_path / "s")
    before = {name: open_folder(tmp_path / "s").read(name).to_pybytes() for name in open_folder(tmp_path / "s").list()}
    with pytest.raises(InputError, match=message):
        append_from_events(tmp_path / "s", table, **({"time_unit": "1"} | named))
    after = {name: open_folder(tmp_path / "s").read(name).to_pybytes() for name in open_folder(tmp_path / "s").list()}
    assert after == before


def test_values_that_earlier_instances_would_lack(tmp_path: Path) -> None:
    """Without ``edge.exists`` or a default, a new edge would be in earlier instances without a value."""
    schema = SeriesSchema(edge=(Attribute("count", "int64"),))
    graph = gf.from_edges([1, 2], [2, 3])
    write_series(graph, tmp_path / "s", schema, [InstanceData(0, 10, {"edge.count": [1, 2]})], unit="1")
    with pytest.raises(InputError, match=r"4 new edges have no edge.count in 1 earlier instances"):
        append_from_events(tmp_path / "s", later(), time_unit="1")
    weights = gf.partition(gf.from_edges([1, 2], [2, 3], [0.5, 1.5]), parts=1)
    write_series(weights, tmp_path / "w", SeriesSchema(edge=(Attribute("exists", "bool", False),)), [], unit="1")
    with pytest.raises(InputError, match="no column 'weight' in the events: the template has weights"):
        append_from_events(tmp_path / "w", later(), time_unit="1", window=10, attributes={})
    made = append_from_events(
        tmp_path / "w", later(weight=np.arange(5) / 4), time_unit="1", window=10, attributes={}
    )  # fmt: skip
    assert gf.open(tmp_path / "w").to_graph().edges.to_pylist()[:2] == [
        {"source": 1, "target": 2, "weight": 0.5}, {"source": 1, "target": 5, "weight": 0.5}
    ]  # fmt: skip
    assert made.instances == 1


@pytest.mark.parametrize("directed", [False, True])
def test_append_from_snapshots(tmp_path: Path, directed: bool) -> None:
    """As a series of all files; names state the times, or instances follow each other."""
    texts = ["1 2 0.5\n2 3 1.5\n", "7 2 1\n", "3 2 2\n9 1 4\n", "1 9 3\n"]
    files = [tmp_path / f"week{10 * (i + 1)}.txt" for i in range(4)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    how: dict[str, Any] = {"pattern": r"(\d+)", "period": 10}
    stored: dict[str, Any] = {"directed": directed, "parts": 2, "method": "hash"}
    build_from_snapshots(files[:2], tmp_path / "a", **how, **stored)
    made = append_from_snapshots(tmp_path / "a", files[2:], **how)
    assert made.instances == 2
    assert made.notes == (f"added to the template: 1 vertices, {3 if directed else 1} edges",)
    with placed(owners(open_series(tmp_path / "a"))):
        build_from_snapshots(files, tmp_path / "all", **how, **stored)
    check_equal(open_series(tmp_path / "a"), open_series(tmp_path / "all"))
    build_from_snapshots(files[:2], tmp_path / "b", start=10, period=10, **stored)
    append_from_snapshots(tmp_path / "b", files[2:])
    check_equal(open_series(tmp_path / "b"), open_series(tmp_path / "all"))
    (tmp_path / "plain.txt").write_text("1 2\n")
    with pytest.raises(InputError, match=r"the series has edge.weight, and a snapshot has edges without weights"):
        append_from_snapshots(tmp_path / "a", [tmp_path / "plain.txt"])
    with pytest.raises(InputError, match=r"instance 4 begins at 40, before instance 3 ends \(50\)"):
        append_from_snapshots(tmp_path / "a", files[3:], **how)
    (tmp_path / "names.txt").write_text("a b 1\n")
    with pytest.raises(InputError, match="the new instances do not fit the template: the vertex labels are string"):
        append_from_snapshots(tmp_path / "a", [tmp_path / "names.txt"])


def test_snapshots_follow_a_calendar(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2\n")
    build_from_snapshots([tmp_path / "a.txt"], tmp_path / "s", start="2024-02-01", period="1d", time_unit="s")
    append_from_snapshots(tmp_path / "s", [tmp_path / "a.txt"])
    series = open_series(tmp_path / "s")
    assert np.diff(series.starts).tolist() == (series.ends - series.starts)[:1].tolist() == [86_400_000_000]
    small(tmp_path / "counts")
    with pytest.raises(InputError, match="time_unit='s': the series has no calendar"):
        append_from_snapshots(tmp_path / "counts", [tmp_path / "a.txt"], time_unit="s")
    append_from_snapshots(tmp_path / "counts", [tmp_path / "a.txt"])
    assert [sum(i.edge("count").to_pylist()) for i in open_series(tmp_path / "counts").instances()] == [3, 1, 0]


def test_append_from_tables(tmp_path: Path) -> None:
    """Values of vertices and edges, new ones too, as if all rows had been in one table."""
    graph = gf.from_edges([1, 2], [2, 3])
    edges = pa.table({"instance": [0, 1], "source": [1, 3], "target": [2, 2], "exists": [True, True], "t": [0.5, 1]})
    vertices = pa.table({"instance": [0, 0, 1], "vertex": [3, 1, 1], "memes": ["x", "y", "z"]})
    how: dict[str, Any] = {"defaults": {"edge.exists": False, "edge.t": 0.0, "vertex.memes": ""}, "period": 1}
    build_from_table(graph, tmp_path / "s", vertices=vertices, edges=edges, parts=2, method="hash", **how)
    late = pa.table({"instance": [5, 4], "from": [9, 1], "target": [1, 2], "exists": [True, True], "t": [2, 3.5]})
    marks = pa.table({"instance": [4, 5], "vertex": [20, 9], "memes": ["n", "m"]})
    made = append_from_table(tmp_path / "s", vertices=marks, edges=late, period=1, source="from")
    assert made.instances == 2
    assert made.notes == (
        "the rows of edge values were not in time order and were sorted",
        "added to the template: 2 vertices, 1 edges",
    )
    every = pa.concat_tables([edges, late.rename_columns(edges.column_names)], promote_options="permissive")
    with placed(owners(open_series(tmp_path / "s"))):
        build_from_table(
            gf.from_edges([1, 2, 1], [2, 3, 9], isolated=[20]), tmp_path / "t", edges=every,
            vertices=pa.concat_tables([vertices, marks]), parts=2, method="hash", **how,
        )  # fmt: skip
    check_equal(open_series(tmp_path / "s"), open_series(tmp_path / "t"))
    again = append_from_table(tmp_path / "s", vertices=pa.table({"instance": [6], "vertex": [2], "memes": ["k"]}))
    assert (again.instances, again.notes) == (1, ())
    with pytest.raises(InputError, match=r"no attribute 'edge.u' in this series; available: vertex.memes"):
        append_from_table(tmp_path / "s", edges=late.append_column("u", [[1, 2]]), source="from")
    with pytest.raises(InputError, match="unknown option 'parts'; accepted: instance, vertex, source, target"):
        append_from_table(tmp_path / "s", edges=late, parts="2")
    with pytest.raises(InputError, match="expected a table of vertices or of edges"):
        append_from_table(tmp_path / "s")


def test_vertices_alone_join_a_template_with_weights(tmp_path: Path) -> None:
    """New edges in tables have no weights, and are refused; vertices need none."""
    schema = SeriesSchema(vertex=(Attribute("x", "int64", 0),), edge=(Attribute("exists", "bool", False),))
    write_series(gf.from_edges([1, 2], [2, 3], [0.5, 1.5]), tmp_path / "s", schema, [InstanceData(0, 1)], unit="1")
    rows = pa.table({"instance": [1, 1], "vertex": [0, 3], "x": [5, 6]})
    made = append_from_table(tmp_path / "s", vertices=rows)
    assert made.notes == ("added to the template: 1 vertices, 0 edges",)
    assert gf.open(tmp_path / "s").to_graph().edges["weight"].to_pylist() == [0.5, 1.5]
    assert open_series(tmp_path / "s").column(0, 1, "vertex.x").to_pylist() == [5, 0, 0, 6]
    late = pa.table({"instance": [2], "source": [3], "target": [1], "exists": [True]})
    with pytest.raises(InputError, match="1 new edges have no weight, and the template has weights"):
        append_from_table(tmp_path / "s", edges=late)
    assert len(open_series(tmp_path / "s")) == 2


def test_two_writers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is refused while the first one writes, and where it has numbered edges by an older template."""
    small(tmp_path / "s")
    with open_folder(tmp_path / "s").locked(), pytest.raises(StoreError, match="another process is writing this store"):
        append_from_events(tmp_path / "s", later(), time_unit="1")
    version = open_series(tmp_path / "s").fingerprint()
    append_from_events(tmp_path / "s", later(), time_unit="1")
    with pytest.raises(StoreError, match="another process changed the store meanwhile; append again"):
        append_instances(tmp_path / "s", [], version=version)
    uri = f"memory://{tmp_path.name}"
    small(uri)
    append_from_events(uri, later(), time_unit="1")
    assert [sum(i.edge("exists").to_pylist()) for i in open_series(uri).instances()] == [3, 1, 5]
    real = _RemoteFolder.write

    def write(self: _RemoteFolder, name: str, data: Any) -> None:
        real(self, name, data)
        if name.startswith("p00000/series-"):
            monkeypatch.undo()
            append_from_events(uri, later(30), time_unit="1")

    monkeypatch.setattr(_RemoteFolder, "write", write)
    monkeypatch.setattr(_RemoteFolder, "locked", lambda *_: nullcontext())  # as that of a writer that was halted
    with pytest.raises(StoreError, match=r"another process changed the store meanwhile|was replaced or damaged after"):
        append_from_events(uri, pa.table({"source": [1], "target": [99], "timestamp": [30]}), time_unit="1")
    assert [sum(i.edge("exists").to_pylist()) for i in open_series(uri).instances()] == [3, 1, 5, 5]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "times"), [("memory", 100), ("s3", 12)])
def test_many_small_appends(request: pytest.FixtureRequest, place: str, times: int) -> None:
    """New vertices with every append, old ones at times; then compacted, the files of a series built at once."""
    root = f"memory://{uuid.uuid4()}" if place == "memory" else request.getfixturevalue("s3").bucket()
    small(f"{root}/s")
    rng, parts = np.random.default_rng(4), []
    for step in range(times):
        rows = {
            "source": rng.integers(0, 40 + step, 3),
            "target": [1, 2, 60 + 2 * step],
            "timestamp": [20 + 10 * step] * 3,
        }
        parts.append(pa.table(rows))
        before = open_series(f"{root}/s")
        made = append_from_events(f"{root}/s", parts[-1], time_unit="1")
        assert (made.instances, len(before)) == (1, 2 + step)
        assert sum(next(before.instances()).edge("exists").to_pylist()) == 3, "a reader has the version before"
    grown = open_series(f"{root}/s")
    first = pa.table({"source": [1, 2, 7, 3], "target": [2, 3, 8, 1], "timestamp": [0, 1, 5, 12]})
    with placed(owners(grown)):
        build_from_events(pa.concat_tables([first, *parts]), f"{root}/t", window=10, time_unit="1", parts=2)
    check_equal(grown, open_series(f"{root}/t"))
    compact_series(f"{root}/s")
    assert open_folder(f"{root}/s").list() == open_folder(f"{root}/t").list()


def test_hint_at_compaction(tmp_path: Path) -> None:
    small(tmp_path / "s")
    for step in range(MANY_GROUPS + 1):
        rows = {"source": [1], "target": [100 + step], "timestamp": [20 + 10 * step]}
        made = append_from_events(tmp_path / "s", pa.table(rows), time_unit="1")
        assert any("goffish timeseries compact" in note for note in made.notes) == (step >= MANY_GROUPS - 1)
    before = [i.edge("exists").to_pylist() for i in open_series(tmp_path / "s").instances()]
    done = compact_series(tmp_path / "s")
    assert (done.packs_before, done.packs) == (MANY_GROUPS + 2, 2)
    assert done.bytes < done.bytes_before
    assert [i.edge("exists").to_pylist() for i in open_series(tmp_path / "s").instances()] == before


def random_graph(rng: np.random.Generator, labels: Any, size: int, directed: bool, **columns: Any) -> gf.Graph:
    """Edges between positions of labels; loops and parallel edges too."""
    ends = rng.integers(0, max(len(labels), 1), (2, size if len(labels) else 0))
    return gf.from_edges(
        *ends, directed=directed, labels=labels, self_loops="keep", parallel="keep",
        **{name: make(ends.shape[1]) for name, make in columns.items()},
    )  # fmt: skip


@pytest.mark.parametrize("finder", ["components", "single", "vertex", "split"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["implicit", "text", "unsorted"])
def test_a_grown_template_is_the_whole_graph_cut_at_once(finder: Any, directed: bool, kind: str) -> None:
    """All arrays and columns, to the bit, and the rows of the edges."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        size, parts = int(rng.integers(0, 40)), int(rng.integers(1, 5))
        labels = np.arange(size) if kind == "implicit" else 3 * np.arange(size)
        labels = rng.permutation(labels) if kind == "unsorted" else labels
        named = {"text": lambda x: [f"v{one:03d}" for one in x]}.get(kind, list)
        graph = random_graph(
            rng, pa.array(named(labels), pa.string() if kind == "text" else pa.int64()), 2 * size, directed,
            weight=rng.random, vertex_attributes=lambda _, size=size: {"x": np.arange(size)},
            edge_attributes=lambda count: {"y": np.arange(count) * 0.5},
        )  # fmt: skip
        ends = rng.integers(-5, 3 * size + 9, (2, int(rng.integers(0, 25))))
        ends = ends[:, ends[0] != ends[1]] if seed % 2 else ends
        more = gf.from_edges(
            *(pa.array(named(end), pa.string() if kind == "text" else pa.int64()) for end in ends),
            rng.random(ends.shape[1]), directed=directed, self_loops="keep", parallel="first",
        )  # fmt: skip
        owner = rng.integers(0, parts, size)
        cut: dict[str, Any] = {"finder": "components" if finder == "split" else finder}
        cells = rng.integers(0, 3, size) if finder == "split" else None
        about = {"method": "hash", "edge_cut": 0, "edge_cut_share": 0.0} | ({"split": 1} if finder == "split" else {})
        store = build_layout(graph, owner, parts, cells=cells, partitioner=about, **cut)
        before = list(find_elements(store, numbered(graph), 2))
        found = find_in_template(store, before, more)
        new = np.flatnonzero(found.vertices < 0)
        places = np.where(
            found.vertices < 0, -1, np.searchsorted(store.vertex_starts, found.vertices, side="right") - 1
        )
        places = place_new(more, places.astype(np.int32), np.array(store.info.vertices))
        growth = grown_template(store, before, more, found, places)
        whole, owners, edges = union_of(graph, more, owner, places, new, found)
        assert growth.edges.tolist() == edges
        split = None
        if finder == "split":  # vertices that were in one subgraph are in one cell
            split = np.empty(whole.num_vertices, np.int64)
            for part in growth.graph.slices():
                split[part.vertex_ids] = part.subgraph_start + np.repeat(
                    np.arange(part.num_subgraphs), np.diff(part.subgraph_offsets)
                )
        expected = build_layout(whole, owners, parts, cells=split, partitioner=about, **cut)
        for one, other in zip(growth.graph.slices(), expected.slices(), strict=True):
            files = [
                {name: entry.sha256 for name, _, entry in encode_slice(info, part)}
                for info, part in ((growth.graph.info, one), (expected.info, other))
            ]
            assert files[0] == files[1], (seed, [name for name in files[1] if files[0].get(name) != files[1][name]])
        total = np.count_nonzero(np.repeat(owners, np.diff(whole.offsets)) != owners[whole.targets])
        about |= {"edge_cut": total if directed else total // 2, "edge_cut_share": total / max(whole.num_arcs, 1)}
        assert growth.graph.info == replace(expected.info, partitioner=about)
        for one, other in zip(growth.elements, find_elements(expected, numbered(whole), 2), strict=True):
            for name in ("vertex_offsets", "edge_offsets", "edge_id", "edge_row", "in_edge_row"):
                assert getattr(one, name).tolist() == getattr(other, name).tolist(), (seed, name)
                assert getattr(one, name).dtype == getattr(other, name).dtype


def union_of(
    graph: gf.Graph, more: gf.Graph, owner: Any, places: Any, new: Any, found: Any
) -> tuple[gf.Graph, Any, list[int]]:
    """Both graphs as one, the owners of its vertices, and the number in it of each edge of the second."""
    old, added = graph.label_column(), more.label_column()
    every = [*old.to_pylist(), *added.take(pa.array(new)).to_pylist()]
    order = np.argsort(np.array(every)) if old.to_pylist() == sorted(old.to_pylist()) else np.arange(len(every))
    place = np.empty(len(every), np.int64)
    place[order] = np.arange(len(every))
    number = {label: int(place[at]) for at, label in enumerate(every)}
    fresh = np.flatnonzero(found.edges < 0)
    ends = [
        [number[label.as_py()] for label in [*old.take(pa.array(one)), *added.take(pa.array(other[fresh]))]]
        for one, other in zip(graph.edge_columns()[:2], more.edge_columns()[:2], strict=True)
    ]
    values = [*graph.edge_columns()[3]["y"].to_pylist(), *([None] * fresh.size)]
    about = np.array([*range(len(old)), *([-1] * new.size)])[order]
    whole = gf.from_edges(
        np.array(ends[0], int), np.array(ends[1], int),
        np.concatenate((graph.edge_columns()[2], more.edge_columns()[2][fresh])), directed=graph.directed,
        labels=pa.array([every[at] for at in order], (old if len(old) else added).type),
        self_loops="keep", parallel="keep",
        vertex_attributes=graph.vertex_attributes.take(pa.array(about, mask=about < 0)),
        edge_attributes={"y": pa.array(values, pa.float64())},
    )  # fmt: skip
    pairs = [(int(u), int(v)) for u, v in zip(*whole.edge_columns()[:2], strict=True)]
    wanted = [
        tuple((sorted if not graph.directed else list)([number[added[int(x)].as_py()] for x in pair]))
        for pair in zip(*more.edge_columns()[:2], strict=True)
    ]
    owners = np.concatenate((owner, places[new]))[order].astype(np.int32)
    return whole, owners, [pairs.index(pair) for pair in wanted]


def test_new_vertices_go_where_their_neighbors_are() -> None:
    graph = gf.from_edges([0, 0, 1, 2, 5, 6], [1, 4, 4, 3, 2, 5], labels=np.arange(8))
    owner = np.array([0, 0, 1, 1, -1, -1, -1, -1], np.int32)
    assert place_new(graph, owner, np.array([2, 2])).tolist() == [0, 0, 1, 1, 0, 1, 1, 0]
    crowded = np.array([0, 0, 0, 0, 0, 0, 0, -1], np.int32)
    assert place_new(graph, crowded, np.array([7, 0, 0])).tolist() == [0] * 7 + [1]


_KILLED = """
import itertools, os, shutil, signal, sys
from goffish.gofs import files
from goffish.gofs.series import compact_series
from goffish.temporal.append import append_from_events
from tests.temporal.test_growth import later

def work(path, how):
    if how == "append":
        append_from_events(path, later(), time_unit="1")
    else:
        compact_series(path)

def killed_at(step):
    moments = itertools.count(1)
    def reached():
        if next(moments) == step:
            os.kill(os.getpid(), signal.SIGKILL)
    sync, write, delete = os.fsync, files._LocalFolder.write, files._LocalFolder.delete
    os.fsync = lambda descriptor: (reached(), sync(descriptor))
    files._LocalFolder.write = lambda self, *given: (write(self, *given), reached())
    files._LocalFolder.delete = lambda self, *given: (reached(), delete(self, *given))

old, folder = sys.argv[1:]
shutil.copytree(old, f"{folder}/warm")
work(f"{folder}/warm", "append")  # loads what every child needs
for how in ("append", "compact"):
    for step in itertools.count(1):
        path = f"{folder}/{how}/{step:02d}"
        shutil.copytree(old if how == "append" else f"{folder}/warm", path)
        child = os.fork()
        if child == 0:
            killed_at(step)
            work(path, how)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            break
"""


@pytest.mark.slow
def test_killed_at_any_moment_the_series_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    """SIGKILL while files are written, published and removed: what is there is whole, and the next append works."""
    small(tmp_path / "old")
    command = [sys.executable, "-c", _KILLED, tmp_path / "old", tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for how, counts in (("append", {2, 3}), ("compact", {3})):
        found = set()
        for path in sorted((tmp_path / how).iterdir()):
            series = open_series(path)
            found.add(len(series))
            assert [sum(i.edge("exists").to_pylist()) for i in series.instances()] == [3, 1, 5][: len(series)]
            assert verify_store(path) > 0
            append_from_events(path, later(30), time_unit="1")
            assert [sum(i.edge("exists").to_pylist()) for i in open_series(path).instances()][-1] == 5
            compact_series(path)
            names = {entry.name for files in open_series(path)._manifest.files for entry in files.values()}
            assert set(open_folder(path).list()) == {*names, "manifest.json"}, "nothing of killed writers is left"
        assert found == counts


@pytest.mark.slow
def test_full_disk_leaves_the_old_series(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    disk = Disk(tmp_path / "small", 20_000)
    try:
        small(tmp_path / "s")
        rows = np.arange(30_000)
        late = {"source": rows, "target": rows * 7 % 30_011, "timestamp": 20 + rows % 10}
        csv.write_csv(pa.table(late), tmp_path / "late.csv")
        subprocess.run(["cp", "-r", tmp_path / "s", disk.inside], check=True)
        before = disk.files()
        disk.resize(sum((disk.inside / name).stat().st_size for name in before) // 1024 + 300)
        ended = disk("timeseries", "append", "small/s", tmp_path / "late.csv", "--time-unit", "1")
        assert ended.code == 2 and "No space left on device" in ended.err
        assert disk.files() == before
    finally:
        disk.close()
