"""From raw files to a store on Spark, against a cleaning and numbering in plain Python."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.gofs import verify_store
from goffish.gofs.instances import open_instances
from goffish.graph import to_arrow
from goffish.streaming.ingest import ingest, read_spec

pytest.importorskip("pyspark")

from goffish.gopher.spark import session
from goffish.streaming.ingest import labels as labels_module
from goffish.streaming.ingest import run as run_module
from goffish.streaming.ingest.clean import parsed_rows
from goffish.streaming.ingest.sources import open_inputs

DAY = 86_400 * 10**6
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    made = session(master="local[2]", memory="1g", config={"spark.sql.shuffle.partitions": "2"})
    yield made
    made.stop()


def _files(folder: str | Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def _quarantined(folder: str | Path) -> pd.DataFrame:
    return pq.read_table(folder).to_pandas()


# --- text labels, two inputs, every rule, weights added up -------------------------------------------------------


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

    bad = _quarantined(report.quarantine)
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


# --- whole numbers, time, instances -------------------------------------------------------------------------------


def _stamped_rows(seed: int, count: int) -> list[tuple[int, int, float, int]]:
    rng = np.random.default_rng(seed)
    ends = rng.integers(-4, 26, (count, 2))
    stamps = 1_704_067_200 + rng.integers(0, 12 * 86_400, count)
    return [(int(u), int(v), float(w), int(t)) for (u, v), w, t in zip(ends, rng.random(count), stamps, strict=True)]


def _stamped_spec(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "inputs": [{"path": str(path), "options": {"sep": " "}}],
        "source": 0, "target": 1, "weight": 2, "timestamp": {"column": 3, "format": "epoch_s"}, "directed": True,
        "clean": {"self_loops": "keep", "window": {"end": "2024-01-11"}},
        "instances": {"period": "1d", "pack": 3, "bins": 2},
        "partition": {"parts": 3},
        **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def stamped(spark: Any, tmp_path_factory: Any) -> Any:
    """Rows, specification, and the store that is made of them."""
    folder = tmp_path_factory.mktemp("stamped")
    rows = _stamped_rows(5, 400)
    for number in range(3):  # several files, so that Spark has something to divide
        part = rows[number * 150 : (number + 1) * 150]
        (folder / f"rows-{number}.txt").write_text("".join(f"{u} {v} {w!r} {t}\n" for u, v, w, t in part))
    spec = _stamped_spec(folder / "rows-*.txt")
    return folder, rows, spec, ingest(spec, folder / "s", spark)


def test_instances_hold_what_happened_in_each_day(stamped: Any) -> None:
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
    instances = open_instances(folder / "s")
    assert len(instances) == 10 and instances.attributes == {"weight": "double"}
    assert (instances.ends - instances.starts == DAY).all()
    start = int(instances.starts[0])
    assert instances.between(start + 1, start + 3 * DAY) == range(1, 3)
    found = {}
    names = list(zip(*(table.column(c).to_pylist() for c in ("source", "target")), strict=True))
    for part in store.slices():
        index = instances.index(part.partition)
        assert np.array_equal(index.bin_of_subgraph < 2, np.ones(part.num_subgraphs, bool))
        # The row of an arc leads to the edge that the template's numbering calls so.
        labels = store.labels().to_pylist()
        for vertex, at in zip(*_arcs(part), strict=True):
            assert names[index.edge_id[index.edge_row[at]]][0] == labels[part.vertex_start + vertex]
        for day in range(10):
            rows_of_day = instances.read(part.partition, day)
            for edge, weight in zip(*(rows_of_day.column(c).to_pylist() for c in ("edge", "weight")), strict=True):
                key = (day, *names[index.edge_id[edge]])
                assert found.setdefault(key, weight) == weight  # a cut edge is in two partitions
            assert instances.read(part.partition, day, [], bins=[0, 1]).column_names == ["edge"]
    assert found == days
    with pytest.raises(InputError, match="instance 10 does not exist"):
        instances.read(0, 10)
    with pytest.raises(InputError, match="no attribute 'speed'; there are: weight"):
        instances.read(0, 0, ["speed"])


def _arcs(part: Any) -> tuple[list[int], range]:
    degrees = np.diff(part.out_arcs.offsets)
    return np.repeat(np.arange(part.num_vertices), degrees).tolist(), range(int(degrees.sum()))


def test_the_same_store_from_other_tasks(spark: Any, stamped: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Breaks when a number, a sum or a byte depends on how Spark divides the work, or on how the rows lie in files."""
    folder, _, _, report = stamped
    monkeypatch.setattr(labels_module, "_ROWS_PER_TASK", 150)
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "5")
    parts = sorted(folder.glob("rows-*.txt"))
    (tmp_path / "rows.txt").write_text("".join(part.read_text() for part in parts))
    again = ingest(_stamped_spec(tmp_path / "rows.txt"), tmp_path / "s", other)
    assert _files(tmp_path / "s") == _files(folder / "s")
    assert again.fingerprint == report.fingerprint == gf.open(folder / "s").fingerprint()
    assert other.conf.get("spark.sql.shuffle.partitions") == "5", "the caller's session was changed"


def test_the_store_is_that_of_partition_and_goes_on_after_a_fault(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Breaks when a store on Spark is another one than on one machine, or a rerun begins anew or mixes two jobs."""
    rows = _stamped_rows(8, 300)
    text = "a,b,w\n" + "".join(f"{u},{v},{w!r}\n" for u, v, w, _ in rows)
    (tmp_path / "rows.csv").write_text(text)
    spec = {
        "inputs": [{"path": str(tmp_path / "rows.csv"), "options": {"header": True}}],
        "source": "a", "target": "b", "weight": "w", "clean": {"duplicates": "first"}, "partition": {"parts": 5},
    }  # fmt: skip
    place = tmp_path / "s"

    def fail(*_: Any) -> None:
        raise InputError("the disk is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "owners", fail)
        with pytest.raises(InputError, match="on fire"):
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
        patch.setattr(run_module, "owners", fail)
        with pytest.raises(InputError):
            ingest({**spec, "clean": {"duplicates": "keep"}}, place, spark)
    assert gf.open(place).fingerprint() == report.fingerprint, "a job that failed has touched the old store"
    other = ingest(
        {**spec, "clean": {"duplicates": "drop"}, "partition": {"parts": 5, "method": "fennel"}}, place, spark
    )
    assert not other.continued and other.fingerprint != report.fingerprint
    assert other.edges == report.edges and other.merged == 0
    assert other.rules["duplicate"] == report.merged == (_quarantined(other.quarantine)["rule"] == "duplicate").sum()
    assert other.partition["metis_edge_cut"] == report.partition["edge_cut"]
    owner = gf.open(place).owner()
    assert np.bincount(owner, minlength=5).max() <= -(-1.1 * owner.size // 5)
    numbers = {int(label): at for at, label in enumerate(graph.labels.to_pylist())}
    pairs = {frozenset((numbers[u], numbers[v])) for u, v, _, _ in kept}
    assert other.partition["edge_cut"] == sum(len({owner[v] for v in pair}) > 1 for pair in pairs)
    verify_store(place)
    current = {entry for entry in _files(place) if entry != "manifest.json"}
    named = json.loads((place / "manifest.json").read_text())["partitions"]
    assert current == {entry["name"] for part in named for entry in part.values()}, "files of the old store were left"


# --- reading -------------------------------------------------------------------------------------------------------


def _parsed(spark: Any, spec: dict[str, Any]) -> list[Any]:
    checked = read_spec(spec)
    inner = run_module._inner(spark)
    return parsed_rows(open_inputs(inner, checked), checked).orderBy("input", "file", "block", "at").collect()


def test_typed_columns_and_kinds_of_time(spark: Any, tmp_path: Path) -> None:
    moments = [datetime(2024, 3, 1, 12, 30, 1, 5, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC), None]
    table = pa.table({
        "a.b": pa.array([2**62, -1, None], pa.int64()),
        "to": pa.array([1, 2, 3], pa.uint8()),
        "w": pa.array([0.1, 2.5, 3.0], pa.float32()),
        "at": pa.array(moments, pa.timestamp("us", "UTC")),
        "yes": [True, None, False],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    spec = {
        "inputs": [{"path": str(tmp_path / "rows.parquet"), "format": "parquet"}], "source": "a.b", "target": "to",
        "weight": "w", "timestamp": "at", "attributes": {"yes": "boolean"},
    }  # fmt: skip
    found = _parsed(spark, spec)
    assert [row["source"] for row in found] == [2**62, -1, None]
    assert [row["time"] for row in found] == [1709296201000005, -DAY, None]
    assert [row["a0"] for row in found] == [True, None, False]
    assert [row["rule"] for row in found] == [None, None, "source_missing"]
    assert found[1]["weight"] == 2.5

    texts = ["2024-03-01", "2024-03-01T12:30:01Z", "2024-03-01 12:30:01.5+02:00", "12:30", "2024", "2024-13-01", ""]
    (tmp_path / "iso.csv").write_text("".join(f"1,2,{text}\n" for text in texts))
    stamps = {"inputs": [{"path": str(tmp_path / "iso.csv")}], "source": 0, "target": 1, "timestamp": 2}
    found = _parsed(spark, stamps)
    expected = [datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 1, 12, 30, 1, tzinfo=UTC)]
    expected.append(datetime(2024, 3, 1, 10, 30, 1, 500_000, tzinfo=UTC))
    assert [row["time"] for row in found[:3]] == [round(moment.timestamp() * 10**6) for moment in expected]
    assert [row["rule"] for row in found[3:]] == ["timestamp_unreadable"] * 3 + ["timestamp_missing"]
    (tmp_path / "iso.csv").write_text("1,2,1.5e9\n1,2,17.000001\n1,2,x\n1,2,31/12/2023 08:05\n")
    form = {**stamps, "timestamp": {"column": 2, "format": "epoch_s"}}
    assert [row["time"] for row in _parsed(spark, form)] == [1_500_000_000_000_000, 17_000_001, None, None]
    form = {**stamps, "timestamp": {"column": 2, "format": "dd/MM/yyyy HH:mm"}}
    assert [row["time"] for row in _parsed(spark, form)][3] == 1_704_009_900_000_000


def test_random_numbers_are_read_as_python_reads_them(spark: Any, tmp_path: Path) -> None:
    """Breaks when a text is taken for a number that Python would refuse, or the other way round."""
    rng = np.random.default_rng(3)
    pieces = [*"0123456789.eE+-fdx ", "inf", "nan", "1", "2", "3", "12", "1."]
    texts = ["".join(rng.choice(pieces, rng.integers(1, 5))) for _ in range(3000)]
    (tmp_path / "rows.csv").write_text("".join(f"1,2,{text}\n" for text in texts))
    found = _parsed(spark, {"inputs": [{"path": str(tmp_path / "rows.csv")}], "source": 0, "target": 1, "weight": 2})
    seen = Counter()
    for text, row in zip(texts, found, strict=True):
        try:
            value = float(text) + 0.0 if text.strip() else None
        except ValueError:
            value = None
        rule = "weight_unreadable" if value is None else None
        if value is not None and not np.isfinite(value):
            rule = "weight_not_finite"
        elif value is not None and value < 0:
            rule = "weight_negative"
        seen[rule] += 1
        assert row["rule"] == rule, (text, row)
        assert value is None or row["weight"] == value or np.isnan(value)
    assert len(seen) == 4


def test_inputs_that_cannot_be_used(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\nx,y\nz,\n")
    base: dict[str, Any] = {
        "inputs": [{"path": str(tmp_path / "rows.csv"), "options": {"header": True}}], "source": "a", "target": "b"
    }  # fmt: skip
    for change, told in (
        ({"source": "from"}, "source = 'from': no such column; there are a, b"),
        ({"target": 2}, "target = 2: there are 2 columns, numbered from 0"),
        ({"attributes": {"c": "real"}}, "attributes.c = 'c': no such column"),
        ({"inputs": [{"path": str(tmp_path / "none.csv")}]}, r"inputs\[0\]: .*none.csv"),
        ({"inputs": [{"path": "x", "format": "json"}], "source": 0}, "fields of JSON have names"),
        ({}, "no row is left of 2: source_unreadable 2 .*quarantine.; vertices .* need labels: text"),
    ):
        with pytest.raises(InputError, match=told) as caught:
            ingest({**base, **change}, tmp_path / "s", spark)
        assert "\n" not in str(caught.value) and not (tmp_path / "s").exists()
    assert len(_quarantined(tmp_path / "s.quarantine")) == 2
    if "spark-avro" not in (spark.conf.get("spark.jars.packages", "") or ""):
        with pytest.raises(InputError, match=r"--packages org.apache.spark:spark-avro_2.13:4\."):
            ingest({**base, "inputs": [{"path": str(tmp_path), "format": "avro"}]}, tmp_path / "s", spark)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"thesis\.tex, so it is no quarantine"):
        ingest(base, tmp_path / "s", spark, quarantine=tmp_path / "q")


# --- killed, interrupted (each starts a JVM of its own) -----------------------------------------------------------


def _started(spec: Path, store: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "goffish", "ingest", str(spec), "-o", str(store), "--master", "local[2]", "--json"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _wait_for(folder: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 240
    while not list(folder.glob(pattern)):
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["done.rows.*", "done.owned.*", "done.places.*"])
def test_killed_in_the_middle_goes_on_to_the_same_store(stamped: Any, tmp_path: Path, step: str) -> None:
    folder, _, spec, _ = stamped
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    process = _started(tmp_path / "spec.yaml", tmp_path / "s")
    _wait_for(tmp_path, f"s.work/{step}", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "s" / "manifest.json").exists()
    again = _started(tmp_path / "spec.yaml", tmp_path / "s")
    report = json.loads(again.communicate()[0])
    assert again.returncode == 0 and report["continued"]
    assert _files(tmp_path / "s") == _files(folder / "s")
    assert not (tmp_path / "s.work").exists()


@pytest.mark.slow
def test_interrupted_ends_at_once(stamped: Any, tmp_path: Path) -> None:
    _, _, spec, _ = stamped
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    process = _started(tmp_path / "spec.yaml", tmp_path / "s")
    _wait_for(tmp_path, "s.work/done.rows.*", process)
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - begun < 10
    assert errors.splitlines()[-1].startswith("interrupted")
    assert not (tmp_path / "s" / "manifest.json").exists()
