"""From raw files to a store on Spark, against a cleaning and numbering in plain Python."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import goffish as gf
from goffish.errors import JobError, StoreError
from goffish.gofs import verify_store
from goffish.gofs.files import open_folder
from goffish.gofs.series import InstanceData, SparseColumn, append_instances, open_series, write_series
from goffish.gofs.store import read_manifest
from goffish.graph import to_arrow
from goffish.spark.ingest import ingest
from tests.spark.ingest.rows import files_of, quarantined, stamped_rows, stamped_spec

pytest.importorskip("pyspark")

from goffish.spark.ingest import labels as labels_module
from goffish.spark.ingest import run as run_module

DAY = 86_400 * 10**6


MESSY = [  # the row, and the rule that stops it
    (["ann", "bob", "1.5", "x", "7"], None),
    (["bob", "ann", "2", "y", ""], None),
    (["ann", "", "1", "x", "7"], "target_missing"),
    (["", "bob", "1", "x", "7"], "source_missing"),
    (["ann", "cid", "heavy", "x", "7"], "weight_unreadable"),
    (["ann", "cid", "", "x", "7"], "weight_missing"),
    (["ann", "cid", "NaN", "x", "7"], "weight_not_finite"),
    (["ann", "cid", "-inf", "x", "7"], "weight_not_finite"),
    (["ann", "cid", "1e999", "x", "7"], "weight_not_finite"),
    (["ann", "cid", "-3", "x", "7"], "weight_negative"),
    (["ann", "cid", "0", "x", "7"], "weight_zero"),
    (["ann", "cid", "1.0f", "x", "7"], "weight_unreadable"),
    (["ann", "ann", "1", "x", "7"], "self_loop"),
    (["ann", "cid", "1", "x", "seven"], "attribute_unreadable.stops"),
    (["ann", "cid", "1"], "malformed"),
    (["ann", "cid", "1", "x", "7", "8"], "malformed"),
    (['say "hi", all', "Zoë", " 4 ", "y", "-2"], None),
    (["Zoë", "ann", "0.1", "x", "1"], None),
    (["ann", "Zoë", "0.2", "y", "2"], None),
    (["Zoë", "ann", "0.3", "z", "3"], None),
]


def test_rules_numbers_and_sums_of_two_inputs(spark: Any, tmp_path: Path) -> None:
    """Breaks when a row is lost, stopped by another rule than it should be, or numbered otherwise than by `gf.read`."""
    with gzip.open(tmp_path / "rows.csv.gz", "wt", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["from", "to", "w", "line", "stops"], *(row for row, _ in MESSY)])
    objects = [
        '{"from": "bob", "to": "dan", "w": 1.25, "stops": 4}',
        '{"from": "dan", "to": 17, "w": "3"}',
        '{"from": "dan", "w": 3}',
        '{"from": "dan", "to"',
        "",
        '{"from": null, "to": "bob", "w": 1, "more": [1]}',
    ]
    (tmp_path / "rows.json").write_text("\n".join(objects))
    spec = {
        "inputs": [
            {"path": str(tmp_path / "rows.csv.gz"), "options": {"header": True}},
            {"path": str(tmp_path / "rows.json"), "format": "json"},
        ],
        "source": "from", "target": "to", "labels": "text", "weight": "w",
        "attributes": {"line": "text", "stops": "integer"},
        "clean": {"duplicates": "sum", "zero_weights": "drop"},
        "partition": {"parts": 3},
    }  # fmt: skip
    steps: list[str] = []
    report = ingest(spec, tmp_path / "s", spark, progress=steps.append)

    good = [row for row, rule in MESSY if rule is None]
    good += [["bob", "dan", "1.25", None, "4"], ["dan", "17", "3", None, None]]
    rules = Counter(rule for _, rule in MESSY if rule) + Counter(["target_missing", "malformed", "source_missing"])
    assert report.rules == dict(rules)
    edges = {frozenset(row[:2]) for row in good}
    assert (report.rows, report.quarantined) == (len(MESSY) + 5, sum(rules.values()))
    assert (report.edges, report.kept, report.merged) == (len(edges), len(edges), len(good) - len(edges))
    assert report.rows == report.kept + report.merged + report.quarantined
    assert steps[0] == "inputs" and steps[-1] == "publish" and not report.continued

    bad = quarantined(report.quarantine)
    told = bad["row"][bad["input"] == 0].tolist()
    assert bad["rule"][bad["input"] == 0].tolist() == [rule for _, rule in MESSY if rule]
    assert told[-2:] == ["ann,cid,1", "ann,cid,1,x,7,8"]  # a malformed line as it stands in the file
    assert json.loads(told[0]) == {"from": "ann", "to": None, "w": "1", "line": "x", "stops": "7"}
    assert bad["row"][bad["input"] == 1].tolist() == [objects[2], objects[3], objects[5]]
    assert {Path(name).name for name in bad["file"]} == {"rows.csv.gz", "rows.json"}

    store = gf.open(tmp_path / "s")
    graph = store.to_graph()
    assert graph.labels.to_pylist() == sorted({v for row in good for v in row[:2]}, key=lambda v: v.encode())
    expected: dict[frozenset[str], list[Any]] = {}
    for source, target, weight, line, stops in good:
        first = expected.setdefault(frozenset((source, target)), [0.0, line, int(stops) if stops else None])
        first[0] += float(weight)
    found = {
        frozenset((r["source"], r["target"])): [r["weight"], r["line"], r["stops"]] for r in to_arrow(graph).to_pylist()
    }
    assert found == expected
    G = nx.Graph(tuple(edge) for edge in edges)
    assert report.components["components"] == nx.number_connected_components(G)
    assert report.degrees["largest"] == max(d for _, d in G.degree)
    assert report.vertices == G.number_of_nodes()
    verify_store(tmp_path / "s")
    assert not (tmp_path / "s.work").exists()


@pytest.mark.slow
def test_instances_hold_what_happened_in_each_day(stamped: Any, tmp_path: Path) -> None:
    """Breaks when an edge is in the wrong instance, has the value of another day, or is missing in the template."""
    folder, rows, _, report = stamped
    end = int(datetime(2024, 1, 11, tzinfo=UTC).timestamp())
    kept = [row for row in rows if row[3] < end]
    days: dict[tuple[int, int, int], float] = {}
    edges: dict[tuple[int, int], float] = {}
    for u, v, w, t in kept:
        day = (t - 1_704_067_200) // 86_400
        days[day, u, v] = min(w, days.get((day, u, v), np.inf))
        edges[u, v] = min(w, edges.get((u, v), np.inf))
    assert report.rules == {"outside_window": len(rows) - len(kept)}
    assert (report.edges, report.kept, report.merged) == (len(edges), len(days), len(kept) - len(days))
    assert report.instances == {"start": 1_704_067_200 * 10**6, "period": DAY, "count": 10}

    store = gf.open(folder / "s")
    graph = store.to_graph()
    table = to_arrow(graph)
    assert {(r["source"], r["target"]): r["weight"] for r in table.to_pylist()} == edges
    series = open_series(folder / "s")
    assert len(series) == 10 and list(series.schema) == ["edge.exists", "edge.weight"]
    assert (series.ends - series.starts == DAY).all()
    start = int(series.starts[0])
    assert series.between(start + 1, start + 3 * DAY) == range(1, 3)
    names = list(zip(*(table.column(c).to_pylist() for c in ("source", "target")), strict=True))
    found = {}
    for day, instance in enumerate(store.instances()):
        there, weights = instance.edge("exists").to_pylist(), instance.edge("weight").to_pylist()
        found |= {(day, *names[at]): weights[at] for at in range(len(names)) if there[at]}
    assert found == days
    # What the executors wrote is what one machine writes of the same instances.
    number = {name: at for at, name in enumerate(names)}
    data = []
    for day in range(10):
        some = [(number[u, v], w) for (d, u, v), w in days.items() if d == day]
        edges_of_day = [edge for edge, _ in some]
        columns = {"edge.exists": SparseColumn(edges_of_day, [True] * len(some))}
        columns["edge.weight"] = SparseColumn(edges_of_day, [weight for _, weight in some])
        data.append(InstanceData(start + day * DAY, start + (day + 1) * DAY, columns))
    gf.open(folder / "s").save(tmp_path / "t")
    write_series(gf.open(tmp_path / "t"), tmp_path / "t", series.schema, data, pack=series.pack, bins=series.bins)
    assert read_manifest(open_folder(tmp_path / "t")) == read_manifest(open_folder(folder / "s"))


@pytest.mark.slow
def test_a_day_without_rows_and_a_series_on_its_way(spark: Any, tmp_path: Path) -> None:
    """Breaks when a whole group of instances without rows has no slices, or an ingested store cannot be appended to."""
    day = 1_704_067_200
    rows = [(1, 2, 0), (2, 3, 9), (1, 2, 9)]
    (tmp_path / "rows.txt").write_text("".join(f"{u} {v} {day + at * 86_400}\n" for u, v, at in rows))
    spec = {
        "inputs": [{"path": str(tmp_path / "rows.txt"), "format": "csv", "options": {"sep": " "}}],
        "source": 0, "target": 1, "timestamp": {"column": 2, "format": "epoch_s"},
        "instances": {"period": "1d", "pack": 2}, "partition": {"parts": 2},
    }  # fmt: skip
    ingest(spec, tmp_path / "s", spark)
    store = gf.open(tmp_path / "s")
    exists = [instance.edge("exists").to_pylist() for instance in store.instances()]
    assert exists == [[True, False], *[[False, False]] * 8, [True, True]]
    components = gf.run_series("components", tmp_path / "s").table.to_pylist()
    assert len({row["component"] for row in components if row["timestep"] == 9}) == 1
    last = int(open_series(tmp_path / "s").ends[-1])
    later = InstanceData(last, last + DAY, {"edge.exists": SparseColumn([1], [True])})
    assert append_instances(tmp_path / "s", [later]) == 11
    assert [i.edge("exists").to_pylist() for i in gf.open(tmp_path / "s").instances()][10] == [False, True]


@pytest.mark.slow
def test_saving_an_opened_store_takes_its_instances_along(stamped: Any, tmp_path: Path) -> None:
    """Breaks when the copy of a store holds only the template, or saving it where it lies loses something."""
    folder, _, _, report = stamped
    before = files_of(folder / "s")
    copy = gf.open(folder / "s").save(tmp_path / "copy")
    assert files_of(tmp_path / "copy") == before and copy.fingerprint() == report.fingerprint
    assert len(open_series(tmp_path / "copy")) == 10
    assert copy.save(tmp_path / "copy").fingerprint() == report.fingerprint
    assert files_of(tmp_path / "copy") == before
    # A slice that has gone since the store was opened is missed before anything is published.
    for slice_file in (tmp_path / "copy" / "p00001").glob("series.edge.exists.g*"):
        slice_file.unlink()
    with pytest.raises(StoreError, match=r"series\.edge.*: is missing; .* open it again"):
        copy.save(tmp_path / "third")
    assert not (tmp_path / "third").exists()


@pytest.mark.slow
def test_the_same_store_from_other_tasks(spark: Any, stamped: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Breaks when a number, a sum or a byte depends on how Spark divides the work, or on how the rows lie in files."""
    folder, _, _, report = stamped
    monkeypatch.setattr(labels_module, "_ROWS_PER_TASK", 150)
    monkeypatch.setattr(labels_module, "_SMALL", 0)
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "5")
    parts = sorted(folder.glob("rows-*.txt"))
    (tmp_path / "rows.txt").write_text("".join(part.read_text() for part in parts))
    again = ingest(stamped_spec(tmp_path / "rows.txt"), tmp_path / "s", other)
    assert files_of(tmp_path / "s") == files_of(folder / "s")
    assert again.fingerprint == report.fingerprint == gf.open(folder / "s").fingerprint()
    assert other.conf.get("spark.sql.shuffle.partitions") == "5", "the caller's session was changed"


@pytest.mark.slow
def test_the_store_is_that_of_partition_and_goes_on_after_a_fault(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Breaks when a store on Spark is another one than on one machine, or a rerun begins anew or mixes two jobs."""
    rows = stamped_rows(8, 300)
    text = "a,b,w\n" + "".join(f"{u},{v},{w!r}\n" for u, v, w, _ in rows)
    (tmp_path / "rows.csv").write_text(text)
    spec = {
        "inputs": [{"path": str(tmp_path / "rows.csv"), "options": {"header": True}}],
        "source": "a", "target": "b", "weight": "w", "clean": {"duplicates": "first"}, "partition": {"parts": 5},
    }  # fmt: skip
    place = tmp_path / "s"

    def fail(*_: Any) -> None:
        raise JobError("the disk is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "place_vertices", fail)
        with pytest.raises(JobError, match="on fire"):
            ingest(spec, place, spark)
    assert not place.exists() and (tmp_path / "s.work").is_dir()
    report = ingest(spec, place, spark)
    assert report.continued and not (tmp_path / "s.work").exists()

    kept = [row for row in rows if row[0] != row[1]]
    frame = pd.DataFrame(kept, columns=["source", "target", "weight", "t"]).drop(columns="t")
    graph = gf.from_pandas(frame, parallel="first")
    assert report.fingerprint == gf.partition(graph, parts=5).fingerprint()
    assert report.rules == {"self_loop": len(rows) - len(kept)}
    mine = gf.louvain(gf.open(place), seed=1).to_dict()
    assert mine == gf.louvain(gf.partition(graph, parts=5), seed=1).to_dict()

    # Steps of another specification are not used.
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "place_vertices", fail)
        with pytest.raises(JobError):
            ingest({**spec, "clean": {"duplicates": "keep"}}, place, spark)
    assert gf.open(place).fingerprint() == report.fingerprint, "a job that failed has touched the old store"
    other = ingest(
        {**spec, "clean": {"duplicates": "drop"}, "partition": {"parts": 5, "method": "fennel"}}, place, spark
    )
    assert not other.continued and other.fingerprint != report.fingerprint
    assert other.edges == report.edges and other.merged == 0
    assert other.rules["duplicate"] == report.merged == (quarantined(other.quarantine)["rule"] == "duplicate").sum()
    assert other.partition["metis_edge_cut"] == report.partition["edge_cut"]
    owner = gf.open(place).owner()
    assert np.bincount(owner, minlength=5).max() <= -(-1.1 * owner.size // 5)
    numbers = {int(label): at for at, label in enumerate(graph.labels.to_pylist())}
    pairs = {frozenset((numbers[u], numbers[v])) for u, v, _, _ in kept}
    assert other.partition["edge_cut"] == sum(len({owner[v] for v in pair}) > 1 for pair in pairs)
    verify_store(place)
    current = {entry for entry in files_of(place) if entry != "manifest.json"}
    named = json.loads((place / "manifest.json").read_text())["partitions"]
    assert current == {entry["name"] for part in named for entry in part.values()}, "files of the old store were left"
