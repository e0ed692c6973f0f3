"""The graph that follows a stream of changes, compared with dictionaries of plain Python."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.graphs.live import LiveGraph
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.state import State
from goffish.streaming.graphs.updates import OPS
from tests.streaming.graphs.notation import record, records

#: The last time of the year 9999, in a zone in which the year 10000 has begun by UTC.
MIDNIGHT_IN_THE_WEST = datetime.max.replace(tzinfo=timezone(-timedelta(hours=9)))
NOT_UTF8 = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe"))


def deep(levels: int) -> list[Any]:
    """Return a list in lists."""
    found: list[Any] = [1]
    for _ in range(levels):
        found = [found]
    return found


PRIMITIVES = [
    ("1 +e e1 a b type=follow", "+v a; +v b; +e e1; +ae e1.type=follow"),
    ("2 +v a name=Ann age=30", "+av a.age=30; +av a.name=Ann"),
    ("3 +av a age=30", ""),
    ("4 +av a age=31", "+av a.age=31"),
    ("5 +e e1 a b type=like", "+ae e1.type=like"),
    ("6 +ae e9 x=1", ""),
    ("7 -av a age zip", "-av a.age"),
    ("8 +e e2 b b", "+e e2"),
    ("9 +e e3 c b w=1.5", "+v c; +e e3; +ae e3.w=1.5"),
    ("10 -v b", "-e e1; -e e2; -e e3; -v b"),
    ("11 -e e1", ""),
    ("12 -v zz", ""),
    ("13 +av m usage=4", "+v m; +av m.usage=4"),
]


def changes_of(encoder: Encoder, state: State, given: list[dict[str, Any]]) -> str:
    """Return the changes of records in the notation of the specification."""
    found, _ = state.apply(encoder.rows(given).records)
    texts = []
    for at, (op, element, name) in enumerate(zip(found.ops, found.elements, found.names, strict=True)):
        edge = OPS[op][1:] in ("e", "ae")
        text = f"{OPS[op]} {(encoder.edges if edge else encoder.vertices).keys(np.array([element]))[0]}"
        if name >= 0:
            text += f".{list(encoder.names)[name]}"
        if OPS[op] in ("+av", "+ae"):
            text += f"={encoder.values.decode(found.kinds[at : at + 1], found.bits[at : at + 1])[0]}"
        texts.append(text)
    return "; ".join(texts)


def test_changes_of_records() -> None:
    encoder = Encoder()
    state = State(encoder)
    for line, expected in PRIMITIVES:
        assert changes_of(encoder, state, [record(line)]) == expected, line
    assert state.unknown == 3
    assert state.table(edges=False).to_pylist() == [
        {"id": "a", "name": "Ann", "usage": None}, {"id": "c", "name": None, "usage": None},
        {"id": "m", "name": None, "usage": 4},
    ]  # fmt: skip
    assert state.table(edges=True).num_rows == 0


def test_the_order_of_records() -> None:
    """Records are applied by event time, once, and not after the watermark has passed them."""
    live = LiveGraph(lateness=5)
    sequence = records("""
        #1 10 +e e1 a b
        #2 14 -e e1
        #3 12 +e e2 b c
        #2 14 -e e1
        #4 17 +e e1 a b
        #5 11 +e e9 a c
        #6 30 +v z
    """)
    reached, applied = [], []
    for one in sequence:
        live.feed([one])
        reached.append(0 if live.time is None else live.time.timestamp())
        applied.append(live.counts["applied"])
    assert reached == [5, 9, 9, 9, 12, 12, 25]
    assert applied == [0, 0, 0, 0, 2, 2, 4]
    assert live.counts["duplicate"] == live.counts["late"] == 1
    assert [(one["seq"], error) for one, error in live.errors] == [
        (5, "late: records of this time have been applied")
    ]  # fmt: skip
    assert live.edges["id"].to_pylist() == ["e1", "e2"]
    live.end()
    assert live.counts["applied"] == 5 and "z" in live.vertices["id"].to_pylist()


class Model:
    """The graph as dictionaries."""

    def __init__(self) -> None:
        self.vertices: dict[Any, dict[str, Any]] = {}
        self.edges: dict[Any, tuple[Any, Any, float, dict[str, Any]]] = {}

    def apply(self, time: float, update: dict[str, Any]) -> None:
        op, id, attributes = update["op"], update.get("id"), update.get("attrs", {})
        if id is None and "e" in op:
            id = f"{update['src']}>{update['dst']}:{attributes.get('type', '')}"
        match op:
            case "+v" | "+av":
                self.vertices.setdefault(id, {}).update(attributes)
            case "-v":
                if id in self.vertices:
                    self.edges = {n: e for n, e in self.edges.items() if id not in e[:2]}
                    del self.vertices[id]
            case "+e":
                ends = update["src"], update["dst"]
                known = self.edges.get(id)
                if known is None or known[:2] == ends:
                    for end in ends:
                        self.vertices.setdefault(end, {})
                    self.edges[id] = *ends, time, (known[3] if known else {}) | attributes
            case "-e":
                self.edges.pop(id, None)
            case "-av":
                for name in update["names"]:
                    self.vertices.get(id, {}).pop(name, None)
            case "+ae" | "-ae":
                if id in self.edges:
                    for name in update.get("names", ()):
                        self.edges[id][3].pop(name, None)
                    self.edges[id][3].update(attributes)


def check(live: LiveGraph, model: Model) -> None:
    def plain(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if value is not None}

    vertices = {row.pop("id"): plain(row) for row in live.vertices.to_pylist()}
    assert vertices == model.vertices
    edges = {
        row.pop("id"): (row.pop("source"), row.pop("target"), row.pop("last_seen").timestamp(), plain(row))
        for row in live.edges.to_pylist()
    }
    assert edges == model.edges
    assert (live.num_vertices, live.num_edges) == (len(vertices), len(edges))
    graph = live._engine.state.graph
    for adjacency, ends in ((graph.outgoing, graph.edges.sources), (graph.incoming, graph.edges.targets)):
        for vertex in range(len(graph.vertices)):
            start = adjacency.starts[vertex]
            mine = adjacency.pool[start : start + adjacency.sizes[vertex]]
            assert sorted(mine) == np.flatnonzero(graph.edges.alive & (ends == vertex)).tolist()
            assert all(adjacency.places[edge] == place for place, edge in enumerate(mine))


labels = st.sampled_from(["a", "b", "c", "d", 1, 2])
values = st.one_of(st.integers(-3, 3), st.sampled_from(["x", "y"]), st.lists(st.integers(0, 2), min_size=1, max_size=2))
names = st.sampled_from(["type", "w", "z"])
attributes = st.dictionaries(names, st.just("t") | values, max_size=2)


@st.composite
def updates(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(st.sampled_from(["+v", "-v", "+e", "+e", "+e", "-e", "+av", "-av", "+ae", "-ae"]))
    found: dict[str, Any] = {"op": op}
    if op[1:] in ("v", "av"):
        found["id"] = draw(labels)
    else:
        found |= {"src": draw(labels), "dst": draw(labels)}
        if draw(st.booleans()):
            found["id"] = draw(st.sampled_from(["e1", "e2", 7]))
    if op in ("-av", "-ae"):
        found["names"] = draw(st.lists(names, unique=True))
    elif op not in ("-v", "-e") or "src" in found:
        found["attrs"] = draw(attributes)
    return found


@given(st.lists(st.one_of(updates(), st.lists(updates(), min_size=1, max_size=4)), max_size=60), st.integers(1, 60))
def test_random_updates(groups: list[Any], size: int) -> None:
    """Breaks when an update or a transaction does not do what it does to dictionaries, in batches of any size."""
    live, model = LiveGraph(lateness=0), Model()
    made = [
        {"t": at, "op": "txn", "updates": one} if isinstance(one, list) else {"t": at} | one
        for at, one in enumerate(groups)
    ]
    for begin in range(0, len(made), size):
        live.feed(made[begin : begin + size])
    live.end()
    for at, one in enumerate(groups):
        for update in one if isinstance(one, list) else [one]:
            model.apply(at, update)
    compare(live, model)


def compare(live: LiveGraph, model: Model) -> None:
    """As `check`, where attributes with values of several kinds are texts in tables."""
    for table, known in ((live.vertices, model.vertices), (live.edges, {n: e[3] for n, e in model.edges.items()})):
        kinds: dict[str, set[type]] = {}
        for attributes in known.values():
            for name, value in attributes.items():
                kinds.setdefault(name, set()).add(type(value))
        mixed_ids = len({type(id) for id in known}) > 1
        for row in table.to_pylist():
            id = next(one for one in known if (str(one) if mixed_ids else one) == row["id"])
            for name, found in kinds.items():
                value = known[id].get(name)
                assert row[name] == (str(value) if len(found) > 1 and value is not None else value)
        assert table.num_rows == len(known)


def generated(seed: int, count: int) -> list[dict[str, Any]]:
    """Records of three streams, with numbers."""
    rng, made = random.Random(seed), []
    for at in range(count):
        op = rng.choices(["+e", "-e", "-v", "+av"], [6, 3, 1, 2])[0]
        one: dict[str, Any] = {"t": at / 10, "op": op, "stream": f"s{at % 3}", "seq": at // 3}
        if op in ("+e", "-e"):
            one |= {"src": f"v{rng.randrange(30)}", "dst": f"v{rng.randrange(30)}", "attrs": {"type": "a"}}
            if op == "+e":
                one["attrs"]["w"] = rng.randrange(5)
        else:
            one |= {"id": f"v{rng.randrange(30)}"} | ({"attrs": {"x": rng.random()}} if op == "+av" else {})
        made.append(one)
    return made


@pytest.mark.parametrize("seed", range(3))
def test_arrival_does_not_matter(seed: int) -> None:
    """Records arrive up to 5 s late, a tenth of them twice, in parts of any size."""
    made, rng, model = generated(seed, 3000), random.Random(seed), Model()
    for one in made:
        model.apply(one["t"], one)
    live = LiveGraph(lateness=6)
    arriving = sorted(made + rng.sample(made, 300), key=lambda one: one["t"] + 5 * rng.random())
    while arriving:
        size = rng.randrange(1, 200)
        live.feed(arriving[:size])
        del arriving[:size]
    assert live.counts["duplicate"] == 300 and live.counts["late"] == 0 and live.counts["waiting"] > 0
    live.end()
    check(live, model)
    assert live.counts["accepted"] == 3300 and live.counts["applied"] == 3000


def as_table(made: list[dict[str, Any]]) -> pa.Table:
    flat = [{k: v for k, v in one.items() if k != "attrs"} | one.get("attrs", {}) for one in made]
    names = ("t", "op", "stream", "seq", "id", "src", "dst", "type", "w", "x")
    return pa.table({name: [row.get(name) for row in flat] for name in names})


def test_tables_and_files_are_mappings(tmp_path: Path) -> None:
    made = generated(9, 500)
    pq.write_table(as_table(made), tmp_path / "made.parquet", row_group_size=100)
    (tmp_path / "made.jsonl").write_text("".join(json.dumps(one) + "\n" for one in made))
    model = Model()
    for one in made:
        model.apply(one["t"], one)
    for source in (made, as_table(made), as_table(made).to_batches()[0], *map(str, sorted(tmp_path.iterdir()))):
        live = LiveGraph(lateness=1)
        live.feed(source)
        live.end()
        check(live, model)
        assert live.counts["applied"] == 500


def test_attributes_of_tables_are_removed_by_name() -> None:
    live = LiveGraph(lateness=0)
    live.feed(pa.table({"t": [1, 2], "op": ["+v", "+v"], "id": [1, 2], "x": [1, 2], "at": pa.array([0, 1]).cast(
        pa.timestamp("s"))}))  # fmt: skip
    live.feed(pa.table({"t": [3], "op": ["-av"], "id": [1], "names": [["x", "at", "none"]]}))
    rows = live.vertices.to_pylist()
    assert [(row["id"], row["x"]) for row in rows] == [(1, None), (2, 2)] and rows[1]["at"].timestamp() == 1


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ({"op": "+v", "id": "a"}, "field t: missing"),
        ({"t": 1}, "field op = None: accepted are +v, -v"),
        ({"t": 1, "op": "+x"}, "field op = '+x': accepted are"),
        ({"t": "soon", "op": "+v", "id": 1}, "isoformat"),
        ({"t": math.nan, "op": "+v", "id": 1}, "event time nan: accepted are"),
        ({"t": 1, "op": "+v"}, "field id: missing for op +v"),
        ({"t": 1, "op": "+v", "id": 1.5}, "field id = 1.5: accepted are texts and integers"),
        ({"t": 1, "op": "+v", "id": 1 << 63}, "accepted are texts and integers up to 64 bits"),
        ({"t": 1, "op": "+e", "id": "e", "src": "a"}, "fields src and dst: missing for op +e"),
        ({"t": 1, "op": "-e"}, "fields src and dst: missing for op -e, or give id"),
        ({"t": 1, "op": "+v", "id": 1, "x": 1}, "field 'x': unknown; choose from attrs"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": {}}}, "value {}: accepted are integers"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": None}}, "field attrs: x: null"),
        (
            {"t": 1, "op": "+v", "id": 1, "attrs": {"x": math.inf}},
            "value inf: accepted are integers up to 64 bits, finite",
        ),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": [1, "a"]}}, "value [1, 'a']: accepted"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": [[1]]}}, "a list in a list; accepted"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": []}}, "value []: accepted"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": [1]}, "field attrs = [1]: must be a mapping"),
        ({"t": 1, "op": "+v", "id": 1, "names": ["x"]}, "field names: accepted is attrs for op +v"),
        ({"t": 1, "op": "-av", "id": 1, "names": "x"}, "field names = 'x': must be a list"),
        ({"t": 1, "op": "+v", "id": 1, "seq": -1}, "field seq = -1: accepted are integers from 0"),
        ({"t": 1, "op": "+v", "id": 1, "seq": 1 << 62}, "accepted are integers from 0"),
        ({"t": 1, "op": "+v", "id": 1, "stream": 3}, "stream 3: must be a text"),
        ({"t": 1, "op": "txn"}, "field updates: a transaction needs a list"),
        ({"t": 1, "op": "txn", "updates": [{"op": "+v", "id": 1, "t": 2}]}, "field 't': unknown"),
        ({"t": 1, "op": "+v", "id": 1, "updates": []}, "field updates: only transactions"),
        ([1], "record [1]: must be a mapping"),
        ({"t": 10**12, "op": "+v", "id": 1}, "event time 1000000000000: accepted are"),
        ({"t": MIDNIGHT_IN_THE_WEST, "op": "+v", "id": 1}, "of the years 1 to 9999"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": [[1]]}}, "a list in a list; accepted are"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": deep(5000)}}, "a list in a list; accepted are"),
        ({"t": 1, "op": "+v", "id": 1, "stream": "\ud800"}, "surrogates not allowed"),
        ({"t": 1, "op": "+v", "id": "\ud800"}, "surrogates not allowed"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"x": "\ud800"}}, "surrogates not allowed"),
        ({"t": 1, "op": "+v", "id": 1, "attrs": {"\ud800": 1}}, "surrogates not allowed"),
    ],
)
def test_records_that_are_not_accepted(one: Any, message: str) -> None:
    """The others are applied, and the record is counted and reported."""
    live = LiveGraph(lateness=0)
    live.feed([record("1 +v a"), one, record("2 +v b")])
    assert live.vertices["id"].to_pylist() == ["a", "b"]
    [(found, error)] = live.errors
    assert found is one and message in error
    assert live.counts["rejected"] == 1 and live.counts["accepted"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns("op"), "column op: missing"),
        (lambda table: table.set_column(0, "t", pa.array([True])), "column t: the event time is bool; accepted"),
        (lambda table: table.set_column(1, "op", pa.array([["+v"]])), "column op: is list<item: string>; accepted"),
        (lambda table: table.append_column("t", pa.array([1])), "column t: occurs more than once"),
        (lambda table: table.append_column("stream", pa.array([["s"]])), "column stream: is list<item: string>"),
        (lambda table: table.append_column("src", pa.array([1.5])), "column src: is double"),
        (lambda table: table.append_column("seq", pa.array(["x"])), "column seq: is string"),
        (lambda table: table.append_column("names", pa.array(["x"])), "column names: is string"),
        (lambda table: table.append_column("names", pa.array([[["x"]]])), "column names: is list<item: string>"),
        (lambda table: table.append_column("w", pa.array([{"a": 1}])), "column w: is struct<a: int64>; accepted"),
        (lambda table: table.append_column("w", pa.array([[[1]]])), "column w: is list<item: list<item: int64>>"),
        (lambda table: table.append_column("w", pa.array([Decimal(1)])), "column w: is decimal128(1, 0); accepted"),
        (lambda table: table.append_column("w", NOT_UTF8), "column w: is damaged (Invalid UTF8"),
        (lambda table: table.set_column(2, "id", NOT_UTF8), "column id: is damaged (Invalid UTF8"),
    ],
)
def test_tables_that_are_not_accepted(change: Callable[[pa.Table], pa.Table], message: str) -> None:
    live = LiveGraph(lateness=0)
    with pytest.raises(InputError) as error:
        live.feed(change(pa.table({"t": [1], "op": ["+v"], "id": ["a"]})))
    assert message in str(error.value)
    assert live.num_vertices == 0 and live.counts["accepted"] == 0


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("t", pa.array([1, None, 3]), "column t: missing"),
        ("t", pa.array([1, math.nan, 3]), "column t: "),
        ("t", pa.array([1, -math.inf, 3]), "column t: "),
        ("t", pa.array([1, 10**12, 3]), "of the years 1 to 9999"),
        ("t", pa.array([1, (1 << 64) - 1, 3], pa.uint64()), "column t: "),
        ("t", pa.array(["1970-01-01T00:00:01", "soon", "1970-01-01T00:00:03"]), "column t: "),
        ("t", pa.array([1, (1 << 63) - 1, 3], pa.timestamp("s", "Europe/Berlin")), "column t: "),
        ("t", pa.array([1, -(1 << 63) + 1, 3], pa.timestamp("us")), "column t: "),
        ("op", pa.array(["+v", None, "+v"]), "column op: missing"),
        ("op", pa.array(["+v", "+e", "+v"]), "columns src and dst: missing"),
        ("id", pa.array(["a", None, "c"]), "column id: missing"),
        ("id", pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", None, "c"])), "column id: missing"),
        ("id", pa.array([1, (1 << 64) - 1, 3], pa.uint64()), "column id: accepted are texts"),
        ("seq", pa.array([1, (1 << 63) + 1, 3], pa.uint64()), "column seq: accepted are integers"),
        ("seq", pa.array([1, -1, 3]), "column seq: accepted are integers"),
        ("x", pa.array([1, math.nan, None]), "column x: accepted are"),
        ("x", pa.array([1, 1 << 63, 3], pa.uint64()), "column x: accepted are"),
        ("x", pa.array([[1], [], [3]]), "column x: accepted are"),
        ("x", pa.array([1, (1 << 63) - 1, 3], pa.timestamp("us")), "column x: accepted are"),
        ("names", pa.array([None, ["x"], []]), "column names: accepted are texts, and only for -av"),
    ],
)  # fmt: skip
def test_rows_that_are_rejected(name: str, values: pa.Array, message: str) -> None:
    """The others are applied, and the same record as a mapping is rejected as well."""
    columns = {"t": [1, 2, 3], "op": ["+v"] * 3, "id": pa.array(["a", "b", "c"]), name: values}
    live, of_mapping = LiveGraph(lateness=0), LiveGraph(lateness=0)
    live.feed(pa.table(columns))
    kept = pa.array(columns["id"]).take(pa.array([0, 2])).to_pylist()
    assert live.vertices["id"].to_pylist() == kept
    [(row, error)] = live.errors
    assert message in error and (name == "t" or row["t"] == 2)
    assert live.counts["rejected"] == 1 and live.counts["accepted"] == 3
    if pa.types.is_timestamp(values.type):
        return  # Python has no such value
    one = {key: value for key, value in row.items() if value is not None}
    attributes = {"attrs": {"x": one.pop("x")}} if "x" in one else {}
    of_mapping.feed([one | attributes])
    assert of_mapping.counts["rejected"] == 1


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array(["a", "b", "a"], pa.large_string()),
        pa.array(["a", "b", "a"], pa.string_view()),
        pa.array([1, 2, 1], pa.uint64()),
        pa.array([-(1 << 63), (1 << 63) - 1, -(1 << 63)]),
    ],
)
def test_columns_of_any_form(ids: pa.Array) -> None:
    """Breaks when texts as Polars passes them, or integers of another width, are not accepted as those of pyarrow."""
    live = LiveGraph(lateness=0)
    moments = pa.array([1_000_000_001, 2_000_000_999, 3_000_000_000], pa.timestamp("ns"))
    live.feed(pa.table({"t": moments, "op": ids.cast(pa.string()).cast(pa.string_view()), "id": ids}).slice(0, 0))
    live.feed(pa.table({"t": moments, "op": pa.array(["+v"] * 3, pa.string_view()), "id": ids, "kind": ids}))
    assert live.vertices["id"].to_pylist() == live.vertices["kind"].to_pylist() == ids[:2].to_pylist()
    assert live.time == datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)
    live.feed([{"t": 4, "op": "-v", "id": np.array([ids[0].as_py()])[0]}])  # a scalar of NumPy
    assert live.vertices["id"].to_pylist() == [ids[1].as_py()]


def test_tables_that_are_rejected_leave_space() -> None:
    """Breaks when streams and names of attributes of records that are not accepted count for their limits."""
    live = LiveGraph(lateness=0, limits=gf.stream.Limits(streams=2, attributes=2))
    rows = {"t": [None] * 3, "op": ["+v"] * 3, "id": ["a"] * 3, "stream": ["p", "q", "r"], "u": [1] * 3, "v": [1] * 3}
    live.feed(pa.table(rows))
    with pytest.raises(InputError):
        live.feed(pa.table(rows | {"w": [{"a": 1}] * 3, "t": [1] * 3}))
    live.feed(
        pa.table({"t": [1, 2, 3], "op": ["+v"] * 3, "id": ["a", "b", "c"], "stream": ["x", "y", "z"], "k": [1] * 3})
    )
    live.end()
    assert live.vertices.to_pylist() == [{"id": "a", "k": 1}, {"id": "b", "k": 1}]
    assert [error for _, error in live.errors][-1] == "stream 'z': accepted are at most 2 streams"


def test_lists_of_timestamps(tmp_path: Path) -> None:
    moments = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    with LiveGraph(lateness=0, state=tmp_path / "state") as live:
        live.feed([{"t": 1, "op": "+v", "id": "a", "attrs": {"x": moments}}])
        live.feed(pa.table({"t": [2], "op": ["+v"], "id": ["b"], "x": [[one.replace(tzinfo=None) for one in moments]]}))
        assert live.vertices["x"].to_pylist() == [moments, moments]
    with LiveGraph(lateness=0, state=tmp_path / "state") as again:
        assert again.vertices["x"].to_pylist() == [moments, moments]


@pytest.mark.parametrize("as_table", [False, True])
def test_removal_before_the_attribute_is_first_set(as_table: bool) -> None:
    """Breaks when a removal is forgotten that arrives before the first record, of an earlier time, with the name."""
    live = LiveGraph(lateness=10)
    removal: Any = [{"t": 5, "op": "-av", "id": "a", "names": ["x"]}]
    setting: Any = [{"t": 3, "op": "+av", "id": "a", "attrs": {"x": 1}}]
    if as_table:
        removal = pa.table({"t": [5], "op": ["-av"], "id": ["a"], "names": [["x"]]})
        setting = pa.table({"t": [3], "op": ["+av"], "id": ["a"], "x": [1]})
    live.feed(removal)
    live.feed(setting)
    live.end()
    assert live.vertices.to_pylist() == [{"id": "a"}]


def test_rows_that_are_not_accepted() -> None:
    live = LiveGraph(lateness=0)
    table = pa.table({
        "t": [1, 2, 3, 4, 5], "op": ["+v", "?", "+e", None, "+v"], "id": ["a", "b", None, "c", "d"],
        "src": [None, None, "x", None, None], "seq": [0, 1, 2, 3, -5],
    })  # fmt: skip
    live.feed(table)
    assert live.vertices["id"].to_pylist() == ["a"]
    assert [one["op"] for one, _ in live.errors] == ["?", "+e", None, "+v"]


def test_files_that_are_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"t": 1, "op": "+v", "id": 1}\n{"t": 2\n')
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    (tmp_path / "bad.parquet").write_text("no")
    for name, message in (
        ("bad.jsonl", "bad.jsonl, line 2: not a JSON value"),
        ("deep.jsonl", "deep.jsonl, line 1: not a JSON value"),
        ("bad.parquet", "bad.parquet: "),
        ("none.jsonl", "none.jsonl: cannot be read (No such file"),
        ("a.csv", "accepted are files that end in .jsonl"),
    ):
        with pytest.raises(InputError, match=name) as error:
            LiveGraph().feed(tmp_path / name)
        assert message in str(error.value)
    for bad in ({"t": 1}, 5):
        with pytest.raises(InputError, match="accepted are tables, paths and iterables of mappings"):
            LiveGraph().feed(bad)


@pytest.mark.parametrize("options", [{"limits": gf.stream.Limits(window=0)}, {"lateness": "-1s"}, {"idle": 0}])
def test_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        LiveGraph(**options)


def test_streams_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is not waited for after it was silent for a while, and a heartbeat says that it has no records."""
    now = [100.0]
    monkeypatch.setattr("goffish.streaming.graphs.live.time.monotonic", lambda: now[0])
    live = LiveGraph(lateness=1, idle=60)
    assert live.feed([record("1 +v a") | {"stream": "one"}, record("1 +v b") | {"stream": "two"}]) == 2
    assert live.feed([record("9 +v c") | {"stream": "one"}]) == 3
    assert live.feed([{"t": 5, "op": "heartbeat", "stream": "two"}]) == 2
    assert live.vertices["id"].to_pylist() == ["a", "b"]
    live.feed([record("20 +v d") | {"stream": "one"}])
    assert live.num_vertices == 2
    now[0] += 61
    assert live.feed([record("30 +v e") | {"stream": "one"}]) == 1
    assert live.vertices["id"].to_pylist() == ["a", "b", "c", "d"]
    # A stream that is heard again is waited for again.
    assert live.feed([record("31 +v f") | {"stream": "two"}]) == 2
    assert live.feed([record("50 +v g") | {"stream": "one"}]) == 2
    assert live.vertices["id"].to_pylist() == ["a", "b", "c", "d", "e"]


def test_numbers_far_ahead() -> None:
    """What is more than the window behind the last number counts as seen; memory does not grow."""
    live = LiveGraph(lateness=1000, limits=gf.stream.Limits(window=64))
    for seq in (0, 1, 500, 499, 430, 500, 501, 1 << 60):
        live.feed([record("1 +v a") | {"seq": seq}])
    assert live.counts["duplicate"] == 2  # 430, and 500 again


def test_too_many_streams() -> None:
    live = LiveGraph(limits=gf.stream.Limits(streams=2))
    live.feed([record("1 +v a") | {"stream": f"{n}"} for n in range(4)])
    assert [error for _, error in live.errors] == [
        f"stream '{n}': accepted are at most 2 streams" for n in (2, 3)
    ]  # fmt: skip


def test_records_that_wait_show_nothing() -> None:
    live = LiveGraph()
    live.feed([record("1 +e e1 a b w=1"), record("2 +v c x=1")])
    assert live.vertices.num_rows == live.edges.num_rows == live.graph().num_vertices == 0
    with pytest.raises(InputError, match="weight = 'w': no edge has such an attribute"):
        live.graph(weight="w")


def test_too_many_attributes() -> None:
    """Breaks when the memory for names has no bound, or removals of others are not accepted."""
    live = LiveGraph(lateness=0, limits=gf.stream.Limits(attributes=2))
    live.feed([{"t": n, "op": "-av", "id": "a", "names": [f"n{n}"]} for n in range(9)])
    live.feed([{"t": 10 + n, "op": "+v", "id": n, "attrs": {f"n{n}": n}} for n in range(4)])
    assert [error for _, error in live.errors] == [
        f"attribute 'n{n}': accepted are at most 2 names" for n in (2, 3)
    ]  # fmt: skip
    live.feed(pa.table({"t": [20], "op": ["+v"], "id": [9], "x": [1]}))
    assert live.errors[-1][1] == "attribute 'x': accepted are at most 2 names"
    assert live.num_vertices == 2


def test_a_snapshot_is_a_graph() -> None:
    made, model = generated(4, 2000), nx.MultiDiGraph()
    live = LiveGraph(lateness=0)
    live.feed(made)
    live.end()
    for row in live.edges.to_pylist():
        model.add_edge(row["source"], row["target"], weight=row["w"])
    model.add_nodes_from(live.vertices["id"].to_pylist())
    graph = live.graph(directed=False)
    assert gf.connected_components(graph).summary["components"] == nx.number_weakly_connected_components(model)
    weighted = live.graph(weight="w", parallel="sum")
    assert weighted.num_vertices == len(model)
    found = {(a, b): w for a, b, w in zip(*(column.to_pylist() for column in gf_edges(weighted)), strict=True)}
    expected: dict[tuple[str, str], float] = {}
    for a, b, w in model.edges(data="weight"):
        if a != b:
            expected[a, b] = expected.get((a, b), 0.0) + w
    assert found == expected
    with pytest.raises(InputError, match="weight = 'none': no edge has such an attribute"):
        live.graph(weight="none")
    before = graph.num_arcs
    live.feed([record("1e6 +e new1 new2")])
    assert graph.num_arcs == before  # later changes are not seen


def gf_edges(graph: gf.Graph) -> tuple[pa.Array, pa.Array, pa.Array]:
    labels = graph.label_column()
    return (
        labels.take(pa.array(graph.arc_sources())), labels.take(pa.array(graph.targets)), pa.array(graph.weights)
    )  # fmt: skip


@pytest.mark.slow
def test_a_hub_with_many_edges() -> None:
    """Blocks of edges grow and are used again; edges leave in the order of their ids."""
    encoder = Encoder()
    state = State(encoder)
    for _ in range(3):
        state.apply(encoder.rows([record(f"{n} +e e{n} hub v{n}") for n in range(5000)]).records)
        text = changes_of(encoder, state, [record("1 -v hub")])
        assert text.split("; ") == [*(f"-e {name}" for name in sorted(f"e{n}" for n in range(5000))), "-v hub"]
    assert state.graph.outgoing.used[0] < 20_000


def test_a_graph_that_applies_records_has_not_failed() -> None:
    """Breaks when a server takes a live graph at work for one that was interrupted, and ends."""
    live, seen = LiveGraph(lateness=0), set[str]()
    live.submit("DETECT Match(vertex:{}) AS all", on_events=lambda topic, events: seen.add(live.failure))
    applying = live._engine.take
    live._engine.take = lambda arrival: (seen.add(live.failure), applying(arrival))[1]  # type: ignore[method-assign]
    live.feed([{"t": 1, "op": "+v", "id": "a"}])
    assert seen == {""}
