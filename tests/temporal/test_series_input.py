"""What may be written: schemas, bad instances, missing values and defaults.

See docs/specs/time-series.md, sections 2, 6.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import goffish
from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.gofs.files import open_folder
from goffish.gofs.series import (
    Attribute,
    InstanceData,
    SeriesSchema,
    SparseColumn,
    append_instances,
    open_series,
    write_series,
)
from goffish.graph import from_edges

BAD = {
    "overlap": (
        [(0, 2), (1, 3)],
        {},
        r"instance 1 begins at 1, before instance 0 ends \(2\): instances must ascend in time without overlap",
    ),
    "unsorted": ([(5, 6), (1, 2)], {}, r"instance 1 begins at 1, before instance 0 ends \(6\): instances must asc"),
    "empty period": ([(4, 4)], {}, "instance 0 ends at 4, which is not after its start"),
    "too late": ([(0, 2**70)], {}, "end of instance 0=1180591620717411303424: expected an integer"),
    "no time": ([("now", 4)], {}, "start of instance 0='now': expected an integer"),
    "unknown attribute": ([(0, 1)], {"edge.x": [1]}, "instance 0: no attribute 'edge.x' in this series; available"),
    "too short": ([(0, 1)], {"edge.w": [1]}, "instance 0, edge.w has 1 rows, expected 2: one for each edge"),
    "wrong type": ([(0, 1)], {"edge.w": ["x", "y"]}, "instance 0, edge.w: not a column of type int64"),
    "text as number": ([(0, 1)], {"edge.w": pa.array(["1", "2"])}, "instance 0, edge.w: not a column of type int64"),
    "fraction": ([(0, 1)], {"edge.w": np.array([1.5, 2])}, "instance 0, edge.w: not a column of type int64"),
    "unknown element": ([(0, 1)], {"vertex.a": SparseColumn([3], ["x"])}, "element 3 does not exist; accepted: 0 to 2"),
    "element twice": ([(0, 1)], {"vertex.a": SparseColumn([1, 1], ["x", "y"])}, "element 1 occurs twice"),
    "ragged": ([(0, 1)], {"vertex.a": SparseColumn([1], ["x", "y"])}, "expected one integer element per value"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_instances_are_refused_and_nothing_is_written(tmp_path: Path, what: str) -> None:
    times, values, match = BAD[what]
    schema = SeriesSchema(vertex=(Attribute("a", "string", "-"),), edge=(Attribute("w", "int64", 0),))
    data = [InstanceData(*pair, values) for pair in times]
    with pytest.raises(InputError, match=match):
        write_series(from_edges([0, 1], [1, 2]), tmp_path / "s", schema, data, unit="1")
    assert open_folder(tmp_path / "s").list() == []
    store = write_series(from_edges([0, 1], [1, 2]), tmp_path / "s", schema, [InstanceData(-9, -8)], unit="1")
    before = open_folder(tmp_path / "s").list()
    with pytest.raises(InputError, match=match.replace("nstance 1", "nstance 2").replace("nstance 0", "nstance 1")):
        append_instances(tmp_path / "s", data)
    assert open_folder(tmp_path / "s").list() == before
    with pytest.raises(InputError, match=r"instance 1 begins at -9, before instance 0 ends \(-8\)"):
        append_instances(tmp_path / "s", [InstanceData(-9, -8)])
    assert store.instances()[0].edge("w").to_pylist() == [0, 0], "an instance without values is fine"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Attribute("x", "complex"), "attribute type complex: choose one of bool, int8"),
        (lambda: Attribute("x", "int8", 300), "default=300 is not of type int8"),
        (lambda: Attribute("x", "int64", True), "default=True is not of type int64"),
        (lambda: Attribute("x", "list<string>", ["a"]), "a list attribute accepts only the default"),
        (lambda: Attribute("", "int8"), "must be a string"),
        (lambda: Attribute("x", "int8", 1, "y"), "default and default_column are mutually exclusive"),
        (lambda: SeriesSchema(edge=(Attribute("x", "int8"), Attribute("x", "bool"))), "two edge attributes are named"),
        (lambda: SeriesSchema(edge=(Attribute("exists", "int8"),)), "edge.exists has type int8"),
    ],
)
def test_bad_schema(make: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        make()


def test_missing_values(tmp_path: Path) -> None:
    """Neither value nor default: an error that names the element, but not for elements that are not there."""
    graph = from_edges(["a", "b", "c"], ["b", "c", "d"], directed=True)
    layout = build_layout(graph, np.array([0, 0, 1, 1], np.int32), 2)
    schema = SeriesSchema(
        vertex=(Attribute("load", "float64"),), edge=(Attribute("w", "int64"), Attribute("exists", "bool", False))
    )
    whole = {"edge.w": pa.array([5, 6, 7]), "edge.exists": [True, True, True], "vertex.load": [1.0, 2.0, 3.0, 4.0]}
    data = [
        InstanceData(0, 1, whole),
        InstanceData(1, 2, whole | {"edge.w": pa.array([5, None, 7])}),
        InstanceData(2, 3, {"edge.w": pa.array([5, None, 7]), "edge.exists": [True, False, True]}),
    ]
    write_series(layout, tmp_path / "s", schema, data, unit="1")
    series = open_series(tmp_path / "s")
    assert series.values(0, 0, "vertex.load").tolist() == [1.0, 2.0]
    for p in (0, 1):
        with pytest.raises(InputError, match=r"instance 1: edge 'b' - 'c' has no edge.w, and the attribute has no"):
            series.values(p, 1, "edge.w")
    with pytest.raises(InputError, match=r"instance 2: vertex 'c' \(and 1 more\) has no vertex.load"):
        series.values(1, 2, "vertex.load")
    assert series.values(0, 2, "edge.w").tolist() == [5, 0], "the edge does not exist in this instance"
    assert series.instances(2).__next__().edge("w").to_pylist() == [5, None, 7]


@pytest.mark.parametrize("directed", [False, True])
def test_parallel_edges_loops_and_static_defaults(tmp_path: Path, directed: bool) -> None:
    """Edge numbers are those of the edge attributes, also with parallel edges; defaults come from a static column."""
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, 12, 60), rng.integers(0, 12, 60)
    graph = from_edges(
        src, dst, directed=directed, self_loops="keep", parallel="keep",
        edge_attributes={"length": rng.integers(1, 99, 60)}, vertex_attributes={"zone": [f"z{i}" for i in range(12)]},
    )  # fmt: skip
    length = np.asarray(graph.edge_attributes.column("length"))
    m = graph.num_edges
    schema = SeriesSchema(
        vertex=(Attribute("zone", "string", default_column="zone"),),
        edge=(Attribute("length", "float64", default_column="length"), Attribute("number", "int64")),
    )
    chosen = rng.permutation(m)[:7]
    data = [
        InstanceData(0, 1, {"edge.number": np.arange(m), "edge.length": SparseColumn(chosen, length[chosen] + 0.5)}),
        InstanceData(1, 2, {"edge.number": np.arange(m), "vertex.zone": SparseColumn([3], ["elsewhere"])}),
    ]
    layout = build_layout(graph, (np.arange(12) % 3).astype(np.int32), 3)
    write_series(layout, tmp_path / "s", schema, data, unit="1", bins=2)
    first, second = goffish.open(tmp_path / "s").instances()
    want = length.astype(float)
    want[chosen] += 0.5
    assert first.edge("length").to_pylist() == want.tolist()
    assert second.edge("length").to_pylist() == length.tolist()
    assert first.edge("number").to_pylist() == list(range(m))
    assert second.vertex("zone").to_pylist() == [f"z{i}" if i != 3 else "elsewhere" for i in range(12)]
    series = open_series(tmp_path / "s")
    for p, part in enumerate(layout.slices()):
        assert np.array_equal(
            series.values(p, 0, "edge.number")[series.elements(p).edge_row],
            part.column("edge_id")[part.column("edge_row")],
        )
    # the static columns are appended to as well
    append_instances(tmp_path / "s", [InstanceData(2, 3, {"edge.number": np.zeros(m), "edge.length": length})])
    third = goffish.open(tmp_path / "s").instances(2)[0]
    assert third.edge("length").to_pylist() == length.tolist()
    with pytest.raises(InputError, match=r"default_column: no edge attribute 'width' in the template; .* length"):
        wrong = SeriesSchema(edge=(Attribute("x", "int64", default_column="width"),))
        write_series(layout, tmp_path / "t", wrong, [])


@pytest.mark.parametrize("directed", [False, True])
def test_missing_values_of_edges_without_an_end(tmp_path: Path, directed: bool) -> None:
    """An edge exists if its flag says so and both its ends exist (§2), wherever they are; what does not needs no value.

    Against the rule in plain Python for random flags, one edge without a value at a time.
    """
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 9, 30), rng.integers(0, 9, 30)
    graph = from_edges(src, dst, directed=directed, self_loops="keep")
    u, v, _, _ = graph.edge_columns()
    n, m = graph.num_vertices, graph.num_edges
    layout = build_layout(graph, (np.arange(n) % 3).astype(np.int32), 3)
    schema = SeriesSchema(
        vertex=(Attribute("exists", "bool", True),),
        edge=(Attribute("exists", "bool", True), Attribute("w", "int64"), Attribute("x.exists", "bool")),
    )
    data, there = [], []
    for i in range(m):
        vertices, edges = rng.random(n) < 0.7, rng.random(m) < 0.8
        there.append(bool(edges[i] and vertices[u[i]] and vertices[v[i]]))
        without = pa.array(np.arange(m), mask=np.arange(m) == i)
        flags = pa.array(np.ones(m, np.bool_), mask=np.arange(m) == i)
        values = {"vertex.exists": vertices, "edge.exists": edges, "edge.w": without, "edge.x.exists": flags}
        data.append(InstanceData(i, i + 1, values))
    write_series(layout, tmp_path / "s", schema, data, unit="1", bins=2)
    assert {True, False} == set(there)
    labels = graph.label_column().to_pylist()
    for i, instance in enumerate(open_series(tmp_path / "s").instances()):
        for name in ("w", "x.exists"):
            if there[i]:
                edge = re.escape(f"instance {i}: edge {labels[u[i]]!r} - {labels[v[i]]!r} has no edge.{name}")
                turned = re.escape(f"instance {i}: edge {labels[v[i]]!r} - {labels[u[i]]!r} has no edge.{name}")
                with pytest.raises(InputError, match=edge if directed else f"{edge}|{turned}"):
                    instance.edge(name)
            else:
                assert instance.edge(name).is_null().to_pylist() == [e == i for e in range(m)]


def test_missing_flags_are_missing_values(tmp_path: Path) -> None:
    """Whether an element exists is not guessed."""
    schema = SeriesSchema(edge=(Attribute("exists", "bool"), Attribute("w", "int64")))
    data = [InstanceData(0, 1, {"edge.exists": pa.array([True, None]), "edge.w": pa.array([1, None])})]
    write_series(from_edges([0, 1], [1, 2]), tmp_path / "s", schema, data, unit="1")
    (instance,) = open_series(tmp_path / "s").instances()
    for name in ("exists", "w"):
        with pytest.raises(InputError, match=r"edge 1 - 2 has no edge\.exists, and the attribute has no default"):
            instance.edge(name)


def test_not_instances(tmp_path: Path) -> None:
    graph, schema = from_edges([0], [1]), SeriesSchema()
    with pytest.raises(InputError, match="instances is of type int: expected an iterable of InstanceData"):
        write_series(graph, tmp_path / "s", schema, 5, unit="1")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="instance 0 is of type int: expected InstanceData"):
        write_series(graph, tmp_path / "s", schema, [5], unit="1")  # type: ignore[list-item]
    with pytest.raises(InputError, match="values of instance 0 is of type list: expected a mapping"):
        write_series(graph, tmp_path / "s", schema, [InstanceData(0, 1, [3])], unit="1")  # type: ignore[arg-type]
