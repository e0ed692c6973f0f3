"""Tables of vertices: attributes, vertices without edges and values over time, against readers of one machine."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.gofs import verify_store
from goffish.gofs.files import open_folder
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, SparseColumn, write_series
from goffish.gofs.store import read_manifest
from goffish.spark.ingest import ingest, read_spec
from tests.spark.ingest.rows import files_of, quarantined

pytest.importorskip("pyspark")

DAY = 86_400
MESSY = [  # the row, and what becomes of it
    ("1,30,ann arbor,true", "kept"),
    ("2,,x,false", "kept"),
    ("2,,x,false", "merged"),
    ("2,3,x,false", "duplicate"),
    ("77,5,,", "kept"),  # no edge has this end
    (",5,,", "vertex_missing"),
    ("zz,5,,", "vertex_unreadable"),
    ("3,old,,", "attribute_unreadable.age"),
    ("3,4", "malformed"),
    ('3,12,"q, ""r""",TRUE', "kept"),
]


@pytest.mark.slow
def test_every_row_is_kept_merged_or_put_aside(spark: Any, tmp_path: Path) -> None:
    """Breaks when a row is lost, or an attribute is that of another vertex, or of the second row of a vertex."""
    (tmp_path / "e.csv").write_text("u,v\n1,2\n2,3\n5,9\n9,9\n")
    (tmp_path / "v.csv").write_text("id,age,a `b`.c,ok\n" + "".join(f"{row}\n" for row, _ in MESSY))
    files = [{"path": str(tmp_path / f"{name}.csv"), "options": {"header": True}} for name in "ev"]
    attributes = {"age": "integer", "a `b`.c": "text", "label": {"type": "boolean", "column": "ok"}}
    spec = {
        "inputs": files[:1], "source": "u", "target": "v", "partition": {"parts": 2},
        "vertices": {"inputs": files[1:], "vertex": "id", "attributes": attributes},
    }  # fmt: skip
    report = ingest(spec, tmp_path / "s", spark)
    ends = [end for _, end in MESSY]
    rules = sorted(set(ends) - {"kept", "merged"})
    assert report.vertex_rows == {
        "rows": len(MESSY), "kept": ends.count("kept"), "merged": 1, "quarantined": len(rules),
        "rules": dict.fromkeys(rules, 1),
    }  # fmt: skip
    assert (report.rows, report.kept, report.quarantined, report.rules) == (4, 3, 1, {"self_loop": 1})
    bad = quarantined(report.quarantine)
    assert bad["input"].tolist() == [0, 1, 1, 1, 1, 1] and set(bad["rule"][1:]) == set(rules)
    assert json.loads(bad["row"][bad["rule"] == "duplicate"].iloc[0])["age"] == "3"
    verify_store(tmp_path / "s")
    found = gf.vertices_to_arrow(gf.open(tmp_path / "s").to_graph())
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (1, 30, "ann arbor", True), (2, None, "x", False), (3, 12, 'q, "r"', True),
        (5, None, None, None), (9, None, None, None), (77, 5, None, None),
    ]  # fmt: skip
    assert found.column_names == ["vertex", *attributes]


def tables(seed: int, labels: list[Any]) -> tuple[list[Any], dict[Any, tuple[Any, ...]]]:
    """Edges between some of the labels, and attributes of others."""
    rng = random.Random(seed)
    edges = [(rng.choice(labels[:60]), rng.choice(labels[:60]), float(rng.randrange(9))) for _ in range(300)]
    known = {label: (rng.choice([None, rng.random()]), rng.choice([None, "", "é", "b" * 40])) for label in labels[30:]}
    return edges, known


@pytest.mark.slow
@pytest.mark.parametrize("text", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["metis", pytest.param("fennel", marks=pytest.mark.slow)])
def test_the_store_is_that_of_the_same_tables_in_memory(spark: Any, tmp_path: Path, text: bool, method: str) -> None:
    """Breaks when the store depends on the division of a table, or differs from that of `from_arrow`."""
    labels = [f"v{number}" if text else number * 3 - 40 for number in range(100)]
    edges, known = tables(1, labels)
    rows = [(label, *values) for label, values in known.items()]
    kind = "string" if text else "long"
    stores = []
    for tasks in (1, 3):
        random.Random(tasks).shuffle(edges)
        random.Random(tasks).shuffle(rows)
        store = gf.from_dataframe(
            spark.createDataFrame(edges, f"src {kind}, dst {kind}, w double").repartition(tasks),
            tmp_path / f"{tasks}", weight="w", partition={"parts": 3, "method": method},
            vertices=spark.createDataFrame(rows, f"id {kind}, x double, name string").repartition(tasks),
        )  # fmt: skip
        stores.append(files_of(tmp_path / f"{tasks}"))
    assert stores[0] == stores[1]
    every = sorted({label for u, v, _ in edges if u != v for label in (u, v)} | known.keys())
    values = [known.get(label, (None, None)) for label in every]
    columns = {"x": pa.array([x for x, _ in values], pa.float64()), "name": pa.array([n for _, n in values])}
    u, v, w = zip(*edges, strict=True)
    graph = gf.from_arrow(
        pa.table({"source": u, "target": v, "weight": w}), vertices=pa.table({"vertex": every, **columns})
    )
    if method == "metis":
        assert store.fingerprint() == gf.partition(graph, parts=3).fingerprint()
    found = store.to_graph()
    assert gf.vertices_to_arrow(found).equals(gf.vertices_to_arrow(graph)) and found.edges.equals(graph.edges)


def posts(seed: int) -> list[tuple[str, int, str, int | None]]:
    """Vertex, seconds, tag, plate."""
    rng = random.Random(seed)
    times = [1_704_067_200 + rng.randrange(9 * DAY) for _ in range(120)]
    return [(f"v{rng.randrange(25)}", t, rng.choice(["a", "b", "c"]), rng.choice([None, 3, 4])) for t in times]


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 4])
def test_values_over_time_are_those_of_one_machine(spark: Any, tmp_path: Path, tasks: int) -> None:
    """Breaks when a value is in another instance or of another vertex, or a list has another order."""
    rng, rows = random.Random(3), posts(2)
    edges = [(f"v{rng.randrange(20)}", f"v{rng.randrange(20)}", 1_704_067_200 + rng.randrange(7 * DAY)) for _ in rows]
    (tmp_path / "e.csv").write_text("".join(f"{u},{v},{t}\n" for u, v, t in edges))
    (tmp_path / "v.jsonl").write_text("".join(
        json.dumps({"who": who, "at": t, "tags": [tag, tag + "2"] if at % 3 else tag, "plate": plate, "one": who[1:]})
        + "\n" for at, (who, t, tag, plate) in enumerate(rows)
    ))  # fmt: skip
    spec: dict[str, Any] = {
        "inputs": [{"path": str(tmp_path / "e.csv")}], "source": 0, "target": 1, "labels": "text",
        "timestamp": {"column": 2, "format": "epoch_s"}, "instances": {"period": "1d", "pack": 4, "bins": 2},
        "partition": {"parts": 3},
        "vertices": [
            {
                "inputs": [{"path": str(tmp_path / "v.jsonl"), "format": "json"}], "vertex": "who",
                "timestamp": {"column": "at", "format": "epoch_s"},
                "attributes": {
                    "tags": "texts", "plates": {"type": "integers", "column": "plate"},
                    "one": {"type": "integer", "default": 7},
                },
            },
        ],
    }  # fmt: skip
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", str(tasks))
    other.conf.set("spark.sql.files.maxPartitionBytes", str(10_000 // tasks))
    report = ingest(spec, tmp_path / "s", other)
    start = 1_704_067_200
    lists: dict[tuple[int, str], tuple[list[str], list[int]]] = {}
    for at, (who, t, tag, plate) in enumerate(rows):
        tags, plates = lists.setdefault(((t - start) // DAY, who), ([], []))
        tags += [tag, tag + "2"] if at % 3 else [tag]
        plates += [] if plate is None else [plate]
    assert report.vertex_rows == {
        "rows": len(rows), "kept": len(lists), "merged": len(rows) - len(lists), "quarantined": 0, "rules": {},
    }  # fmt: skip
    days = max((t - start) // DAY for _, t, *_ in rows) + 1
    assert report.instances is not None and report.instances["count"] == days

    graph = gf.open(tmp_path / "s").to_graph()
    labels = {label: at for at, label in enumerate(graph.label_column().to_pylist())}
    names = graph.edges.select(["source", "target"]).to_pylist()
    number = {frozenset(row.values()): at for at, row in enumerate(names)}
    schema = SeriesSchema(
        (Attribute("tags", "list<string>", ()), Attribute("plates", "list<int64>", ()), Attribute("one", "int64", 7)),
        (Attribute("exists", "bool", False),),
    )
    data = []
    for day in range(days):
        there = sorted({number[frozenset((u, v))] for u, v, t in edges if u != v and (t - start) // DAY == day})
        values: dict[str, SparseColumn] = {"edge.exists": SparseColumn(there, [True] * len(there))}
        mine = [(who, found) for (d, who), found in lists.items() if d == day]
        vertices = [labels[who] for who, _ in mine]
        values["vertex.tags"] = SparseColumn(vertices, pa.array([t for _, (t, _) in mine], pa.list_(pa.string())))
        values["vertex.plates"] = SparseColumn(vertices, pa.array([p for _, (_, p) in mine], pa.list_(pa.int64())))
        values["vertex.one"] = SparseColumn(vertices, [int(who[1:]) for who, _ in mine])
        data.append(InstanceData((start + day * DAY) * 10**6, (start + (day + 1) * DAY) * 10**6, values))
    gf.open(tmp_path / "s").save(tmp_path / "t")
    write_series(gf.open(tmp_path / "t"), tmp_path / "t", schema, data, pack=4, bins=2)
    assert read_manifest(open_folder(tmp_path / "t")) == read_manifest(open_folder(tmp_path / "s"))
    counted = gf.run_series("hashtags", tmp_path / "s", hashtag="a", attribute="tags").table.to_pylist()
    expected = {day: sum(tags.count("a") for (d, _), (tags, _) in lists.items() if d == day) for day in range(days)}
    assert {row["timestep"]: row["count"] for row in counted} == expected


@pytest.mark.slow
def test_many_vertices_without_edges(spark: Any, tmp_path: Path) -> None:
    """A table of 300,000 vertices, nearly all of which have no edge."""
    vertices = spark.range(300_000).selectExpr("id * 2 AS id", "id % 7 AS kind")
    edges = spark.createDataFrame([(0, 2), (2, 4), (7, 0)], "src long, dst long")
    store = gf.from_dataframe(edges, tmp_path / "s", vertices=vertices, partition={"parts": 4})
    assert (store.num_vertices, store.num_edges) == (300_001, 3)
    found = gf.vertices_to_arrow(store.to_graph())
    label, kind = (found[name].to_numpy() for name in ("vertex", "kind"))
    assert np.array_equal(np.setdiff1d(label, [7]), np.arange(300_000) * 2)
    assert np.array_equal(kind[label % 2 == 0], label[label % 2 == 0] // 2 % 7)


LEAST: dict[str, Any] = {"inputs": [{"path": "a.csv"}], "source": "a", "target": "b"}
PART: dict[str, Any] = {"inputs": [{"table": "v"}], "vertex": "id"}


@pytest.mark.parametrize(
    ("vertices", "message"),
    [
        ({"inputs": [{"table": "v"}]}, "vertices.vertex: is missing"),
        ([{**PART, "colour": 1}], r"vertices\[0\].colour: unknown field; choose from inputs, vertex, timestamp"),
        ({**PART, "timestamp": "t", "attributes": {"x": "text"}}, r"vertices\[0\].timestamp requires the field instan"),
        ({**PART, "attributes": {"x": "texts"}}, "attributes.x: type texts requires the field timestamp"),
        ({**PART, "attributes": {"x": {"type": "real", "default": 1}}}, "attributes.x: default requires the field ti"),
        ({**PART, "timestamp": "t"}, "timestamp requires attributes"),
        ({**PART, "attributes": {"x": "date"}}, "should be 'integer', 'real', 'text', 'boolean', 'integers' or 'texts"),
        ({**PART, "attributes": {"": "text"}}, "attribute name ''"),
        ({**PART, "attributes": {"é" * 200: "text"}}, "must be a string of at most 120 characters"),
        (
            [{**PART, "attributes": {"x": "text"}}, {**PART, "attributes": {"x": "text"}}],
            r"vertices\[1\].attributes.x: vertices\[0\] has this attribute; use another name, or one table",
        ),
    ],
)
def test_mistakes(vertices: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_spec({**LEAST, "vertices": vertices})
    assert "\n" not in str(caught.value)


def test_mistakes_in_tables(spark: Any, tmp_path: Path) -> None:
    edges = spark.createDataFrame([(1, 2)], "src long, dst long")
    people = spark.createDataFrame([("x", 1)], "id string, age long")

    def made(**more: Any) -> Mapping[str, Any]:
        return {"edges": edges, "output": tmp_path / "s", "vertices": people, **more}

    for given, message in (
        (made(vertex="name"), r"vertices\[0\].vertex = 'name': no such column; available: id, age"),
        (made(labels="integer"), r"vertices\[0\]: all 1 rows were rejected: vertex_unreadable 1"),
        (made(vertices=people.selectExpr("id", "array(1) AS x")), "vertices: column 'x' has type array<int>; accepted"),
        (made(vertices=[1]), "vertices: list is not a DataFrame of Spark"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            gf.from_dataframe(**given)
        assert "\n" not in str(caught.value) and not (tmp_path / "s").exists()
    store = gf.from_dataframe(edges, tmp_path / "s", vertices=people.where("age > 5"))
    assert store.num_vertices == 2 and store.info.vertex_schema == {"age": "int64"}
