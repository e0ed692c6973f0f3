"""Values of time series in the store: round trips, bins, forms, ranges.

See docs/specs/time-series.md, sections 2, 5, 7.
"""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish
from goffish.errors import InputError
from goffish.gofs import build_layout, verify_store
from goffish.gofs.files import open_folder
from goffish.gofs.series import (
    Attribute,
    InstanceData,
    SeriesSchema,
    SparseColumn,
    append_instances,
    moment,
    open_series,
    write_series,
)
from goffish.gofs.series.slices import assign_bins
from goffish.graph import from_edges
from tests.cases import grid
from tests.temporal.fixtures import SeriesCase, check_all_values, random_series, tiny


@pytest.mark.slow
@settings(max_examples=25)
@given(
    case=random_series(largest=16, longest=11),
    pack=st.sampled_from((1, 3, 10, "all")),
    bins=st.sampled_from((1, 2, 5, 1000)),
)
def test_round_trip_and_number_of_slices(case: SeriesCase, pack: int | str, bins: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        store = case.write(path, pack=pack, bins=bins)
        series = open_series(path)
        n = len(case.instances)
        assert series.starts.tolist() == [d.start for d in case.instances]
        assert series.ends.tolist() == [d.end for d in case.instances]
        check_all_values(case, series)
        groups = -(-n // (n if pack == "all" else pack)) if n else 0
        for p, subgraphs in enumerate(store.info.subgraphs):
            files = [f for f in open_folder(path).list() if re.match(rf"p{p:05d}/series\.(vertex|edge)\.", f)]
            assert len(files) == groups * min(bins, subgraphs) * len(case.schema)
        assert verify_store(path) > 0
        series.close()


@given(st.lists(st.integers(1, 1000), max_size=60), st.integers(1, 20))
def test_bins_are_balanced(sizes: list[int], bins: int) -> None:
    """Graham's bound for the greedy rule, every bin used."""
    chosen = assign_bins(np.array(sizes, np.int64), bins)
    used = min(bins, len(sizes))
    assert sorted(set(chosen.tolist())) == list(range(used))
    if sizes:
        loads = np.bincount(chosen, sizes, used)
        assert loads.max() <= sum(sizes) / used + (1 - 1 / used) * max(sizes) + 1e-9


def test_split_subgraphs_share_an_edge(tmp_path: Path) -> None:
    """Two subgraphs of one partition on both ends of an edge: each has a row for it, in its own bin."""
    graph = grid(6, 1)
    layout = build_layout(graph, np.zeros(6, np.int32), 1, cells=np.array([0, 0, 0, 1, 1, 1]))
    schema = SeriesSchema(edge=(Attribute("w", "int64"),))
    data = [InstanceData(0, 1, {"edge.w": np.arange(5) + 10})]
    write_series(layout, tmp_path / "s", schema, data, bins=2, unit="1")
    series = open_series(tmp_path / "s")
    elements = series.elements(0)
    for subgraph, wanted in enumerate(([10, 11, 12], [12, 13, 14])):
        rows = slice(*elements.offsets("edge")[subgraph : subgraph + 2])
        found = series.values(0, 0, "edge.w", bins=elements.bins_of([subgraph]))
        assert found[rows].tolist() == wanted
    assert series.counters().slices_read == 2


def test_bins_that_are_not_asked_for(tmp_path: Path) -> None:
    """They are not read, and hold the default, or NaN."""
    graph = from_edges(np.arange(0, 20, 2), np.arange(1, 20, 2))
    schema = SeriesSchema(vertex=(Attribute("x", "float64"), Attribute("y", "int64", 9), Attribute("t", "string")))
    data = [InstanceData(0, 1, {"vertex.x": np.arange(20.0), "vertex.y": np.arange(20), "vertex.t": ["t"] * 20})]
    write_series(graph, tmp_path / "s", schema, data, bins=4, unit="1")
    series = open_series(tmp_path / "s")
    wanted = series.elements(0).bins_of([0, 5])
    rows = np.concatenate([series.elements(0).stored("vertex", b) for b in wanted])
    x = series.values(0, 0, "vertex.x", bins=wanted)
    inside = np.isin(np.arange(20), rows)
    assert np.array_equal(x[inside], np.flatnonzero(inside)) and np.isnan(x[~inside]).all()
    assert series.counters().slices_read == len(wanted)
    assert (series.values(0, 0, "vertex.y", bins=wanted)[~inside] == 9).all()
    assert series.values(0, 0, "vertex.t", bins=[]).null_count == 20
    with pytest.raises(InputError, match=r"partition 0 has bins 0 to 3"):
        series.values(0, 0, "vertex.x", bins=[4])


def test_files_are_readable_and_the_smaller_form_is_chosen(tmp_path: Path) -> None:
    graph = grid(50, 20)
    schema = SeriesSchema(vertex=(Attribute("few", "int64", 0), Attribute("all", "int64", 0)))
    rng = np.random.default_rng(0)
    data = [
        InstanceData(i, i + 1, {"vertex.all": rng.integers(1, 9, 1000), "vertex.few": SparseColumn([7 + i], [3])})
        for i in range(3)
    ]
    write_series(graph, tmp_path / "s", schema, data, bins=1, unit="1")
    tables = {p.name.split("-")[0]: pq.read_table(p) for p in (tmp_path / "s").glob("p*/series.vertex*.parquet")}
    few, full = tables["series.vertex.few.g00000.b00000"], tables["series.vertex.all.g00000.b00000"]
    assert few.schema.metadata[b"goffish.form"] == b"sparse"
    assert few.to_pydict() == {"instance": [0, 1, 2], "element": [7, 8, 9], "value": [3, 3, 3]}
    assert full.schema.metadata[b"goffish.form"] == b"dense"
    assert full.column("value").to_pylist() == [x for d in data for x in d.values["vertex.all"]]


def test_ranges_and_reverse(tmp_path: Path) -> None:
    """Half-open at both ends, on the beginnings of the instances; gaps are fine."""
    graph = from_edges([0], [1])
    day = [datetime(2024, 3, d, tzinfo=UTC) for d in (1, 2, 3, 7, 8)]
    schema = SeriesSchema(edge=(Attribute("w", "int64"),))
    data = [InstanceData(d, d.replace(hour=23), {"edge.w": [i]}) for i, d in enumerate(day)]
    store = write_series(graph, tmp_path / "s", schema, data, pack=2)

    def numbers(*args: Any, **options: Any) -> list[int]:
        return [i.edge("w")[0].as_py() for i in store.instances(*args, **options)]

    assert numbers() == [0, 1, 2, 3, 4]
    assert numbers(reverse=True) == [4, 3, 2, 1, 0]
    assert numbers("2024-03-02", "2024-03-07") == [1, 2]
    assert numbers(day[1], day[3]) == [1, 2]
    assert numbers(moment("2024-03-02", "us") + 1, moment("2024-03-07", "us") + 1) == [2, 3]
    assert numbers("2024-03-04", "2024-03-07") == [], "a gap"
    assert numbers(None, day[1]) == [0]
    with pytest.raises(InputError, match=r"2025-01-01T00:00:00 to … is outside the series \(2024-03-01T"):
        store.instances("2025-01-01")
    with pytest.raises(InputError, match="is outside the series"):
        store.instances(None, "2024-02-01")
    with pytest.raises(InputError, match="is before start="):
        store.instances("2024-03-02", "2024-03-01")
    with pytest.raises(InputError, match="start='soon': expected integer microseconds since 1970, a date"):
        store.instances("soon")
    with pytest.raises(InputError, match=r"no attribute .edge\.v. in this series; available: edge\.w"):
        store.instances(attributes=["edge.v"])
    with pytest.raises(InputError, match=r"edge\.w was not selected"):
        store.instances(attributes=[])[0].edge("w")


def test_every_type_round_trips(tmp_path: Path) -> None:
    graph = from_edges([0, 1], [1, 2])
    values: dict[str, list[Any]] = {"bool": [True, False, True], "string": ["", "é", "b"], "float32": [0.5, 1.5, -2.0]}
    values |= {
        "float64": [1.1, float("inf"), 3.0],
        "list<string>": [["a", "a"], [], ["b"]],
        "list<int32>": [[1], [], []],
    }
    values |= {f"{u}int{b}": [1, 2, 3] for u in ("", "u") for b in (8, 16, 32, 64)} | {"int64": [2**62, -1, 0]}
    schema = SeriesSchema(vertex=tuple(Attribute(kind, kind) for kind in values))
    data = {f"vertex.{kind}": pa.array(column, schema[f"vertex.{kind}"].arrow_type) for kind, column in values.items()}
    store = write_series(graph, tmp_path / "s", schema, [InstanceData(0, 1, data)], unit="1")
    for kind, column in values.items():
        got = store.instances()[0].vertex(kind)
        assert got.type == schema[f"vertex.{kind}"].arrow_type and got.to_pylist() == column


def test_fingerprint_is_of_the_data(tmp_path: Path) -> None:
    """Equal series have equal ones; another value, instance or packing, or another template, makes another."""
    graph = grid(4, 3)
    schema = SeriesSchema(edge=(Attribute("w", "int64"),))

    def written(name: str, values: Any = 0, count: int = 3, pack: int = 2, owner: int = 0) -> str:
        layout = build_layout(graph, np.arange(12) % 2 * owner, 2)
        data = [InstanceData(i, i + 1, {"edge.w": np.arange(17) + i + values}) for i in range(count)]
        write_series(layout, tmp_path / name, schema, data, pack=pack, unit="1")
        return open_series(tmp_path / name).fingerprint()

    one = written("a")
    assert one == written("b") == goffish.open(tmp_path / "a").fingerprint()
    late = np.arange(17) == 16
    others = [written("c", values=late), written("d", count=4), written("e", pack=3), written("f", owner=1)]
    assert len({one, *others}) == 5
    append_instances(tmp_path / "a", [InstanceData(3, 4, {"edge.w": np.arange(17) + 3})])
    assert open_series(tmp_path / "a").fingerprint() == others[1], "however the instances came there"


def test_template_and_instances_are_of_one_version(tmp_path: Path) -> None:
    """A store that is written to between the opening of the series and that of its graph does not mix the two."""
    case = tiny()
    case.write(tmp_path / "s")
    series = open_series(tmp_path / "s")
    append_instances(tmp_path / "s", [InstanceData(15, 16, {"edge.latency": np.array([1, 1, 1, 1])})])
    assert series.graph.fingerprint() == series.fingerprint() != open_series(tmp_path / "s").fingerprint()
    assert open_series(tmp_path / "s").graph.num_vertices == 4
