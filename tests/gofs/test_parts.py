"""Parts and tables of stores: as those of the graph in memory, from the files that they need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import InputError, StoreError
from goffish.gofs import PartitionedGraph, build_layout, open_store
from goffish.gofs import store as store_module
from goffish.gofs.layout import Finder


class Both(NamedTuple):
    """A graph in memory, and a store of it."""

    graph: gf.Graph
    store: PartitionedGraph


def rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted(zip(*pa.table(table).to_pydict().values(), strict=True), key=repr)


def same(found: gf.Graph, expected: gf.Graph) -> None:
    """Compare everything that graphs have: order of vertices, rows, weights, labels and attributes."""
    assert np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.targets, expected.targets)
    assert found.targets.dtype == expected.targets.dtype
    assert (found.directed, found.num_edges) == (expected.directed, expected.num_edges)
    assert (found.labels is None) == (expected.labels is None)
    assert found.vertices.equals(expected.vertices)
    assert found.edges.equals(expected.edges)
    assert (found.weights is None) == (expected.weights is None)
    if expected.weights is not None:
        assert np.array_equal(found.weights, expected.weights)


@st.composite
def graphs(draw: st.DrawFn) -> Both:
    """A graph with labels, loops, parallel edges, weights and attributes, cut anyhow."""
    n, directed, parts = draw(st.integers(0, 9)), draw(st.booleans()), draw(st.integers(1, 5))
    labels = draw(st.sampled_from([None, "texts", "integers"]))
    names: list[Any] = [f"v{(5 * v) % 11}" if labels == "texts" else 7 * v - 9 if labels else v for v in range(n)]
    pairs = draw(st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=25)) if n else []
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    attributes = draw(st.booleans())
    graph = gf.from_edges(
        columns[0], columns[1], np.arange(1.0, len(pairs) + 1) if draw(st.booleans()) else None, directed=directed,
        labels=names, self_loops="keep", parallel=draw(st.sampled_from(["keep", "min"])),
        vertex_attributes={"age": [v % 4 for v in range(n)], "degree": [-v for v in range(n)]} if attributes else None,
        edge_attributes={"at": list(range(len(pairs))), "kind": ["ab"[i % 2] for i in range(len(pairs))]}
        if attributes else None,
    )  # fmt: skip
    owner = np.array(draw(st.lists(st.integers(0, parts - 1), min_size=n, max_size=n)), np.int32)
    finder: Finder = draw(st.sampled_from(["components", "single", "vertex"]))
    cut = build_layout(graph, owner, parts, finder=finder, threads=1)
    return Both(graph, cut.save("memory://parts/s") if draw(st.booleans()) else cut)


@given(graphs(), st.data())
def test_parts_are_those_of_the_graph(both: Both, data: st.DataObject) -> None:
    """Breaks when a part of a partitioned graph differs from that of the whole one in any vertex, row or column."""
    graph, store = both
    names = list(graph)
    assert rows(store.vertices) == rows(graph.vertices) and rows(store.edges) == rows(graph.edges)
    assert store.vertices.schema.equals(graph.vertices.schema) and store.edges.schema.equals(graph.edges.schema)
    assert store.degrees().equals(graph.degrees())
    same(store.largest_component(), graph.largest_component())
    chosen = data.draw(st.lists(st.sampled_from(names))) if names else []
    same(store.subgraph(chosen), graph.subgraph(chosen))
    for seed in range(2):
        same(gf.sample(store, vertices=3, seed=seed), gf.sample(graph, vertices=3, seed=seed))
        same(gf.sample(store, edges=4, seed=seed), gf.sample(graph, edges=4, seed=seed))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names))), np.bool_)
    same(store.subgraph(mask), graph.subgraph(mask))
    edges = np.arange(graph.num_edges) % 3 > 0
    same(store.filter(vertices=mask, edges=edges), graph.filter(vertices=mask, edges=edges))
    conditions: list[Any] = [None, pc.field("degree") > 1, pc.scalar(True), pc.field("vertex") > pc.field("vertex")]
    conditions += [pc.field("in_degree") < 2] if graph.directed else []
    conditions += [pc.field("strength") > 9] if graph.weights is not None else []
    conditions += [(pc.field("age") > 1) | (pc.field("degree") < 0)] if graph.vertex_attributes is not None else []
    of_edges: list[Any] = [None, pc.field("source") != pc.field("target"), pc.scalar(None).cast(pa.bool_())]
    of_edges += [pc.field("source") == names[0]] if names else []
    of_edges += [pc.field("weight") > 4] if graph.weights is not None else []
    of_edges += [(pc.field("kind") == "a") & (pc.field("at") < 9)] if graph.edge_attributes is not None else []
    first, second = data.draw(st.sampled_from(conditions)), data.draw(st.sampled_from(of_edges))
    same(store.filter(vertices=first, edges=second), graph.filter(vertices=first, edges=second))
    if second is not None:
        assert rows(store.edges.filter(second)) == rows(graph.edges.filter(second))
    if not names:
        return
    starts = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
    for direction in ("out", "in", "both"):
        radius = data.draw(st.integers(0, 3))
        same(
            store.ego(starts, radius=radius, direction=direction),  # type: ignore[arg-type]
            graph.ego(starts, radius=radius, direction=direction),  # type: ignore[arg-type]
        )
    same(store.ego(names[0], radius=2**70), graph.ego(names[0], radius=2**70))
    same(store.component(starts[0]), graph.component(starts[0]))
    near = store.neighbors(store.find(starts[0]))
    assert np.all(np.diff(near) >= 0) and near.dtype == np.int32
    expected = graph.labels_of(graph.neighbors(int(graph.find(starts[:1])[0])))
    assert sorted(store.labels_of(near).to_pylist()) == sorted(expected.to_pylist())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of the files that are read, with their partitions."""
    names: list[str] = []
    plain = store_module.read_checked

    def counted(folder: Any, entry: Any, mapped: Any = None) -> Any:
        partition, name = entry.name.split("/")
        names.append(f"{int(partition[1:])} {name.rpartition('-')[0]}")
        return plain(folder, entry, mapped)

    monkeypatch.setattr(store_module, "read_checked", counted)
    return names


@pytest.fixture(params=["numbers", "texts"])
def path_store(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    """A path of 40 vertices in four partitions of ten each, with columns."""
    labels = [f"v{v:02}" for v in range(40)] if request.param == "texts" else None
    graph = gf.from_edges(
        np.arange(39), np.arange(1, 40), np.arange(39.0), labels=labels or np.arange(40),
        vertex_attributes={"age": np.arange(40), "name": [f"n{v}" for v in range(40)]},
        edge_attributes={"since": np.arange(39), "kind": ["road"] * 39},
    )  # fmt: skip
    store = build_layout(graph, (np.arange(40) // 10).astype(np.int32), 4).save(tmp_path / "s")
    return Both(graph, store)


def test_only_needed_files_are_read(path_store: Both, opened: list[str]) -> None:
    """Breaks when a call reads a partition that it does not reach, or a column that it does not need."""
    graph, store = path_store
    v = list(graph)
    texts = graph.labels is not None

    def files(kinds: str, *partitions: int) -> set[str]:
        kept = [kind for kind in kinds.split() if texts or kind != "label"]
        return {f"{p} {kind}" for p in partitions for kind in kept}

    def check(expected: set[str]) -> None:
        assert set(opened) == expected and len(opened) == len(expected)
        opened.clear()

    whole = "topology label weight edge-index vertex.age vertex.name edge.since edge.kind"
    same(store.ego(v[12], radius=3), graph.ego(v[12], radius=3))
    expected = files(whole, 0, 1)
    # Labels are read until the vertex is found; those of parts once more, as columns of these.
    assert set(opened) == expected and all(opened.count(name) <= 1 + ("label" in name) for name in opened)
    opened.clear()
    store.ego(v[12], radius=3)
    assert store.neighbors(store.find(v[12])).size == 2
    check(set())
    store = open_store(str(store.path))
    assert pa.table(store.vertices.select(["age"]))["age"].to_pylist() == list(range(40))
    check(files("vertex.age", 0, 1, 2, 3))
    found = store.vertices.filter(pc.field("age") >= 35).select(["name"])
    assert pa.table(found)["name"].to_pylist() == [f"n{v}" for v in range(35, 40)]
    check(files("vertex.age", 0, 1, 2, 3) | files("vertex.name", 3))
    assert store.degrees().equals(graph.degrees())
    check(files("topology label weight", 0, 1, 2, 3))
    assert pa.table(store.edges.select(["since"]).filter(pc.field("since") > 100)).num_rows == 0
    check(files("topology edge-index edge.since", 0, 1, 2, 3))
    found = store.edges.filter(pc.field("since") > 30).select(["kind"])
    assert pa.table(found).num_rows == 8
    check(files("topology edge-index edge.since", 0, 1, 2, 3) | files("edge.kind", 3))
    same(store.filter(vertices=pc.field("age") < 5), graph.filter(vertices=pc.field("age") < 5))
    expected = files("vertex.age", 0, 1, 2, 3) | files(whole, 0)
    assert set(opened) == expected
    opened.clear()
    same(store.filter(vertices=pc.field("age") < 0), graph.filter(vertices=pc.field("age") < 0))
    check(files("vertex.age", 0, 1, 2, 3))


def test_tables_are_read_partition_by_partition(path_store: Both, opened: list[str]) -> None:
    """Breaks when a table reads ahead, keeps what it has read, or does not start again."""
    _, store = path_store
    for _ in range(2):
        reader = store.vertices.select(["age"]).to_reader()
        assert reader.read_next_batch().num_rows == 10 and len(opened) == 1
        assert reader.read_all().num_rows == 30 and len(opened) == 4
        opened.clear()
    assert repr(store.vertices.select(["age"])) == "LazyTable(age: int64)"
    assert store.edges.column_names == ["source", "target", "weight", "since", "kind"]


def test_other_libraries_read_tables(path_store: Both) -> None:
    """Breaks when polars or pandas cannot read a table of a store."""
    graph, store = path_store
    frame = pl.DataFrame(store.vertices.filter(pc.field("age") > 37))
    assert frame.to_dicts() == graph.vertices.filter(pc.field("age") > 37).to_pylist()
    assert pl.DataFrame(store).sort("since").to_dicts() == graph.edges.to_pylist()
    assert store.edges.to_reader().read_pandas()["weight"].sum() == sum(range(39))


def test_columns_of_all_types(tmp_path: Path) -> None:
    """Breaks when a column of times, lists or categories has another type, or other values, in a part of a store."""
    columns = {
        "at": pa.array([5, 6, 7, None], pa.timestamp("s")), "day": pa.array([1, 2, 3, 4], pa.date32()),
        "list": pa.array([[1], [], None, [2, 3]]), "kind": pa.array(["a", "b", "b", "c"]).dictionary_encode(),
        "pair": pa.array([{"x": 1}, {"x": 2}, None, {"x": 4}]), "none": pa.nulls(4),
        "small": pa.array([1, 2, 3, 4], pa.int8()),
    }  # fmt: skip
    graph = gf.from_edges([0, 1, 2, 3], [1, 2, 3, 0], vertex_attributes=columns, edge_attributes=columns)
    store = build_layout(graph, np.array([0, 1, 1, 0], np.int32), 2).save(tmp_path / "s")
    for table, expected in ((store.vertices, graph.vertices), (store.edges, graph.edges)):
        assert table.schema.equals(expected.schema) and rows(table) == rows(expected)
    part, expected_part = store.subgraph([0, 1, 2]), graph.subgraph([0, 1, 2])
    assert part.vertices.to_pylist() == expected_part.vertices.to_pylist()
    assert part.edges.to_pylist() == expected_part.edges.to_pylist()
    assert part.vertices.schema.equals(expected_part.vertices.schema)


def test_blocks_of_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when rows are lost or repeated where a partition is read in blocks, or a row is longer than a block."""
    rng = np.random.default_rng(1)
    graph = gf.from_edges(rng.integers(0, 50, 400), np.r_[rng.integers(0, 50, 300), np.zeros(100)].astype(int))
    store = build_layout(graph, (np.arange(graph.num_vertices) % 3).astype(np.int32), 3)
    monkeypatch.setattr("goffish.gofs.selection._BLOCK", 7)
    assert len(list(store.edges.to_reader())) > 40
    assert rows(store.edges) == rows(graph.edges)
    same(store.filter(edges=pc.field("source") < 20), graph.filter(edges=pc.field("source") < 20))
    chosen = rng.random(graph.num_edges) < 0.5
    same(store.filter(edges=chosen), graph.filter(edges=chosen))


CALLS: dict[str, Callable[[PartitionedGraph, Any], Any]] = {
    "vertices": lambda s, v: s.vertices.to_reader().read_all(),
    "edges": lambda s, v: s.edges.to_reader().read_all(),
    "degrees": lambda s, v: s.degrees(),
    "find": lambda s, v: [s.find(one) for one in v],
    "neighbors": lambda s, v: [s.neighbors(one) for one in range(len(v))],
    "ego": lambda s, v: s.ego(v[12], radius=40),
    "subgraph": lambda s, v: s.subgraph(v),
    "filter": lambda s, v: s.filter(vertices=pc.field("age") >= 0, edges=pc.field("since") >= 0),
    "component": lambda s, v: s.component(v[0]),
    "largest": lambda s, v: s.largest_component(),
    "sample": lambda s, v: (gf.sample(s, vertices=39), gf.sample(s, edges=38)),
}


@pytest.mark.parametrize("call", CALLS)
def test_damage_names_the_file(path_store: Both, call: str) -> None:
    """Breaks when a damaged or missing file is no error of one line that names it, or changes a result."""
    graph, store = path_store
    if graph.labels is None and call not in ("find", "ego", "edges"):
        return  # only these look for labels in the topology
    v = list(graph)
    expected, seen = repr(CALLS[call](store, v)), 0
    folder = Path(str(store.path)) / "p00002"
    for victim in sorted(folder.iterdir()):
        content = victim.read_bytes()
        middle = len(content) // 2
        for flipped in (None, middle, 3 * middle // 2) if victim.name.startswith("topology") else (middle,):
            damaged = open_store(str(store.path))
            victim.unlink()
            if flipped is not None:
                victim.write_bytes(content[:flipped] + bytes([content[flipped] ^ 4]) + content[flipped + 1 :])
            try:
                found = CALLS[call](damaged, v)
            except StoreError as error:
                seen += 1
                assert str(victim) in str(error) and "\n" not in str(error)
            else:  # the file was not needed
                assert repr(found) == expected
            victim.write_bytes(content)
    assert seen >= (1 if call == "find" else 2)


def test_errors_of_streams_name_the_file(path_store: Both) -> None:
    """Breaks when another library hides why a table cannot be read."""
    _, store = path_store
    victim = next(Path(str(store.path)).glob("p00002/vertex.age*"))
    victim.unlink()
    for read in (pa.table, pl.DataFrame):
        with pytest.raises(Exception, match=f"p00002/{victim.name}.*missing"):
            read(store.vertices)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.subgraph(["x"]), r"unknown vertex 'x': not among the 4 vertices"),
        (lambda s: s.subgraph([1]), r"unknown vertex 1: the vertex labels of this graph are strings"),
        (lambda s: s.subgraph([True]), r"vertices: bool values of shape \(1,\); accepted .* each of the 4 vertices"),
        (lambda s: s.filter(edges=[True]), r"edges: bool values of shape \(1,\).* 3 edges"),
        (lambda s: s.filter(edges=pc.field("cost") > 1), r"edges: No match.*cost.*; the columns are source, target$"),
        (lambda s: s.filter(vertices=pc.field("degree") + 1), r"vertices: the expression is int64; accepted are cond"),
        (lambda s: s.filter(vertices=lambda row: True), r"vertices: object values of shape \(\)"),
        (lambda s: s.ego("a", radius=-1), r"radius=-1: must be an integer of at least 0"),
        (lambda s: s.ego("a", direction="up"), r"direction='up': choose one of out, in, both"),
        (lambda s: s.component("z"), r"unknown vertex 'z'"),
        (lambda s: s.neighbors(4), r"vertex=4: accepted are 0 to 3"),
        (lambda s: s.neighbors(-1), r"vertex=-1: must be an integer of at least 0"),
        (lambda s: s.labels_of([9]), r"numbers: accepted are 0 to 3"),
        (lambda s: s.vertices.select(["age"]), r"vertices: no column 'age'; the columns are vertex$"),
        (lambda s: s.edges.filter(pc.field("age") > 1), r"edges: No match.*age.*; the columns are source, target$"),
        (lambda s: s.edges.filter([True]), r"edges is of type list: expected a condition"),
        (gf.sample, r"accepted is one of vertices and edges"),
        (lambda s: gf.sample(7, edges=1), r"graph is of type int: expected a goffish Graph or PartitionedGraph"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[PartitionedGraph], Any], message: str) -> None:
    graph = gf.from_edges(["a", "b", "c"], ["b", "c", "d"])
    with pytest.raises(InputError, match=message):
        call(build_layout(graph, np.array([0, 1, 1, 0], np.int32), 2))
