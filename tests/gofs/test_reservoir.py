"""The event reservoir against plain rows: appends, queries, compaction, retention and relations."""

from __future__ import annotations

import json
import random
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError, StoreError
from goffish.gofs.manifest import seal
from goffish.gofs.reservoir.index import Index, decode_index

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = ("logins", "../x", "größe/ä b")


def at(second: float) -> datetime:
    return EPOCH + timedelta(seconds=second)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows without the columns that they lack."""
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


class Rows:
    """What a reservoir must hold, in plain lists."""

    def __init__(self) -> None:
        self.pools: dict[str, dict[Any, dict[str, Any]]] = {}

    def append(self, pool: str, rows: list[dict[str, Any]]) -> int:
        held = self.pools.setdefault(pool, {})
        before = len(held)
        for row in rows:
            held.setdefault((row["t"], row["id"]), row)
        return len(held) - before

    def query(self, pools: list[str], start: float | None, end: float | None, where: dict[str, Any]) -> list[Any]:
        found = []
        for pool in pools:
            for row in self.pools[pool].values():
                in_time = (start is None or row["t"] >= start) and (end is None or row["t"] < end)
                if in_time and all(row.get(n) in (v if isinstance(v, list) else [v]) for n, v in where.items()):
                    shown = {name: value for name, value in row.items() if value is not None}
                    found.append({"pool": pool} | shown | {"t": at(row["t"])})
        return sorted(found, key=lambda row: (row["t"], row["pool"], row["id"]))


def random_rows(rng: random.Random) -> list[dict[str, Any]]:
    shape = rng.choice([("user",), ("user", "n"), ("n", "failed"), ()])
    rows = []
    for _ in range(rng.randint(1, 40)):
        row: dict[str, Any] = {"t": rng.randint(-50, 200), "id": f"e{rng.randint(0, 60)}"}
        for name in shape:
            values = {"user": ["ann", "bob", "", None, "x'%"], "n": [1, 2, 2**53 + 1, None], "failed": [True, False]}
            row[name] = rng.choice(values[name])
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(one, marks=pytest.mark.slow) for one in (2, 3))])
@pytest.mark.slow
def test_random_histories(tmp_path: Path, seed: int) -> None:
    """After every step, queries return what a list of the rows has."""
    rng, rows, path = random.Random(seed), Rows(), str(tmp_path / "r")
    if seed == 1:
        path = f"memory://reservoirs/{uuid.uuid4()}"
    replicas = [tmp_path / "b"] if seed == 2 else []
    res = gf.Reservoir.create(path, bucket=rng.choice([10, 1000]), rows=rng.choice([7, 1000]), replicas=replicas)
    group = ["user"] if seed == 3 else None
    for _ in range(20):
        match rng.choice(["append"] * 6 + ["compact", "drop", "open"]):
            case "append":
                pool, events = rng.choice(NAMES), random_rows(rng)
                assert res.pool(pool, group=group).append(events) == rows.append(pool, events)
            case "compact":
                res.compact()
            case "drop" if rows.pools:
                before = rng.randint(-60, 60)
                res.drop(before)
                for held in rows.pools.values():
                    for key in [key for key in held if key[0] < before]:
                        del held[key]
            case "open":
                res = gf.Reservoir(path)
        for _ in range(2):
            start = rng.choice([None, rng.randint(-60, 100)])
            end = rng.choice([None, (start or 0) + rng.randint(1, 100)])
            where = rng.choice(
                [{}, {"user": "ann"}, {"user": ["bob", None]}, {"id": "e7"}, {"n": 2.0}, {"failed": True}]
            )
            if not all(
                name in {c for pool in res.describe()["pools"].values() for c in pool["columns"]} for name in where
            ):
                continue
            pools = [pool for pool in rows.pools if rng.random() < 0.7] if not where else list(rows.pools)
            assert plain(res.query(pools, start=start, end=end, where=where)) == rows.query(pools, start, end, where)
    assert set(res.verify().column("state").to_pylist()) <= {"ok"}
    assert sum(one["events"] for one in res.describe()["pools"].values()) == sum(map(len, rows.pools.values()))


def test_tables_of_all_kinds(tmp_path: Path) -> None:
    """Each kind of table is appended once; the same events in another kind have no effect."""
    res = gf.Reservoir.create(tmp_path / "r")
    frame = pd.DataFrame({"t": pd.date_range("2026-01-01", periods=5, freq="h", tz="UTC"), "id": range(5), "v": 0.5})
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    assert res.pool("a").append(frame) == 5
    for same in (frame, arrow, arrow.to_batches()[0], pl.from_pandas(frame), arrow.to_reader(), arrow.to_pylist()):
        assert res.pool("a").append(same) == 0
    res.pool("types").append(pa.table({
        "t": pa.array([1, 2], pa.timestamp("s")), "id": pa.array(["x", "y"]).dictionary_encode(),
        "small": pa.array([1, None], pa.int8()), "half": pa.array([0.5, 1.5], pa.float32()),
        "seconds": pa.array([5, 6], pa.timestamp("s")), "list": [[1], []], "struct": [{"a": 1}, None],
        "text": pa.array(["a", "b"], pa.large_string()), "bytes": [b"\0", b""],
        "big": pa.array([2**63, 1], pa.uint64()),
        "dotted.name": [1, 2], "dotted": [3, 4],
    }))  # fmt: skip
    found = res.query("types")
    assert found.schema.field("small").type == pa.int64()
    assert found.schema.field("half").type == pa.float64()
    assert found.column("big").to_pylist() == [2**63, 1]
    assert found.column("list").to_pylist() == [[1], []]
    assert [value.replace(tzinfo=None) for value in found.column("seconds").to_pylist()] == [
        datetime(1970, 1, 1, 0, 0, s) for s in (5, 6)
    ]
    assert res.query("types", columns=["dotted"]).column_names == ["pool", "t", "id", "dotted"]
    assert res.query("types", where={"seconds": "1970-01-01T00:00:05"}).num_rows == 1
    assert res.query("types", where={"big": 2**63}).column("id").to_pylist() == ["x"]


def test_queries_open_only_buckets_that_can_hold_rows(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r", bucket="1h", rows=100)
    n = 2400
    rng = np.random.default_rng(1)
    users = np.array([f"u{i}" for i in rng.integers(0, 20, n)])
    table = pa.table({"t": np.arange(n) * 36, "id": np.arange(n), "user": users})  # 100 in each of 24 hours
    res.pool("a", group=["user"]).append(table)

    def opened(**options: Any) -> int:
        before = res._places.opened
        res.query("a", **options)
        return res._places.opened - before

    assert opened() == 24
    assert opened(start=3600 * 5, end=3600 * 7) == 2
    assert opened(start=3600 * 5 + 36, end=3600 * 5 + 37) == 1
    assert opened(where={"id": 150}) == 1
    assert opened(where={"id": "150"}) == 24  # a text: the index has numbers only
    res = gf.Reservoir.create(tmp_path / "g", bucket="1d", rows=100)
    res.pool("a", group=["user"]).append(table)
    assert opened(where={"user": "u3"}) == 24
    expected = res.query("a", where={"user": "u3"})
    res.compact()
    assert opened(where={"user": "u3"}) <= 3
    assert res.query("a", where={"user": "u3"}) == expected
    assert expected.num_rows == (users == "u3").sum() > 0


def test_types_are_never_mixed_silently(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r")
    pool = res.pool("a")
    pool.append([{"t": 1, "id": 1, "v": 5}])
    pool.append([{"t": 2, "id": 2, "v": "5"}])
    pool.append([{"t": 3, "id": 3, "v": True}])
    with pytest.raises(InputError, match="column 'v' has values of several types: "):
        pool.query()
    assert pool.query(types={"v": "string"}).column("v").to_pylist() == ["5", "5", "true"]
    assert pool.query(columns=[]).column_names == ["pool", "t", "id"]
    assert pool.query(where={"v": 5}).column("id").to_pylist() == [1]
    assert pool.query(where={"v": "5"}).column("id").to_pylist() == [2]
    assert pool.query(where={"v": True}).column("id").to_pylist() == [3]
    assert pool.query(where={"v": [5.0, "5"]}, columns=["id"]).column("id").to_pylist() == [1, 2]
    res.compact()
    assert pool.query(types={"v": "string"}).num_rows == 3
    with pytest.raises(InputError, match="types: column 'v' cannot be converted to timestamp"):
        pool.query(types={"v": pa.timestamp("us")}, start=2.5)
    with pytest.raises(InputError, match="types: v = 'nothing'"):
        pool.query(types={"v": "nothing"})


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([{"id": 1}], "no column 't'"),
        ([{"t": 1}], "no column 'id'"),
        ([{"t": 1, "id": 1}, {"t": None, "id": 2}], "row 1: t is null"),
        ([{"t": 1, "id": None}], "row 0: id is null"),
        ([{"t": float("nan"), "id": 1}], "accepted are timestamps"),
        ([{"t": 1e300, "id": 1}], "accepted are timestamps"),
        ([{"t": 10**12, "id": 1}], "row 0: t is 1000000000000; accepted are"),
        ([{"t": "tomorrow", "id": 1}], "accepted are timestamps"),
        ([{"t": True, "id": 1}], "accepted are timestamps"),
        ([{"t": 1, "id": 1.5}], "ids must be texts or integers"),
        ([{"t": 1, "id": 10**30}], "column 'id'"),
        ([{"t": 1, "id": "\ud800"}], "column 'id'"),
        ([{"t": 1, "id": 1, "a": 1}, {"t": 1, "id": 2, "a": "x"}], "column 'a': values of several types"),
        ([{"t": 1, "id": 1, "pool": 1}], "column 'pool' is reserved"),
        ([{"t": 1, "id": 1, "": 1}], "must be a text that is not empty"),
        ([{"t": 1, "id": 1, 5: 1}], "must be a text|expected|str"),
        ([{"t": 1, "id": 1, "a": object()}], "column 'a'"),
        ("events.csv", "not a text"),
        ([1, 2], "row 0 is 1; expected"),
        (5, "expected a table"),
        (pa.table({"t": pa.array([1500], pa.timestamp("ns")), "id": [1]}), "row 0: t is .*1500.*to the micro"),
        (pa.table({"t": [1], "id": pa.array([2**63], pa.uint64())}), "exceeds 2\\^63"),
        (pa.table([[1], [1], [1]], names=["t", "id", "id"]), "two columns are named 'id'"),
    ],
)
def test_events_that_are_refused(tmp_path: Path, events: Any, problem: str) -> None:
    """Nothing is stored, and the message has one line."""
    res = gf.Reservoir.create(tmp_path / "r")
    with pytest.raises(InputError, match=problem) as caught:
        res.pool("a").append(events)
    assert "\n" not in str(caught.value)
    assert res.pools == []
    assert [one.name for one in (tmp_path / "r").iterdir()] == ["reservoir.json"]


def test_other_arguments_that_are_refused(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r")
    res.pool("a").append({"t": 1, "id": "x", "v": 1})
    refused: list[tuple[Any, str]] = [
        (lambda: res.pool(""), "1 to 200 printable"),
        (lambda: res.pool("a\n"), "1 to 200 printable"),
        (lambda: res.pool("a", group=["t"]), "other than t and id"),
        (lambda: res.pool("a").append({"t": 1, "id": 5}), "ids are int64, but those of earlier events are string"),
        (lambda: res.query("b"), "no pool 'b'; choose from a"),
        (lambda: res.query(columns=["w"]), "no column 'w'; choose from id, t, v"),
        (lambda: res.query(columns="v"), "expected a list"),
        (lambda: res.query(where={"t": 1}), "use start and end"),
        (lambda: res.query(where={"v": float("nan")}), "equals no value"),
        (lambda: res.query(where={"v": {">": 1}}), "accepted are plain values"),
        (lambda: res.query(start="x"), "start = 'x'"),
        (lambda: res.query(start=2, end=2), "must be after"),
        (lambda: res.query(related="no"), "no relation 'no'; choose from none"),
        (lambda: res.query(hops=0), "hops=0"),
        (lambda: res.query(direction="up"), "choose one of out, in, both"),
        (lambda: res.relation("no"), "no relation"),
        (lambda: res.relate("r", source="a", target="a", within=5), "within needs on"),
        (lambda: res.relate("r", source="a", target="a", on=[]), "expected names of columns"),
        (lambda: res.drop(None), "give a time"),
        (lambda: gf.Reservoir.create(tmp_path / "n", bucket=0), "bucket"),
        (lambda: gf.Reservoir.create(tmp_path / "n", rows=0), "rows=0"),
        (lambda: gf.Reservoir.create(tmp_path / "n", copies=2), "there are 1 locations"),
        (lambda: gf.Reservoir.create(tmp_path / "n", allow_missing=1), "must be less"),
        (lambda: gf.Reservoir.create(tmp_path / "n", replicas=[tmp_path / "n"]), "named twice"),
        (lambda: gf.Reservoir.create(tmp_path / "r"), "is an event reservoir"),
        (lambda: gf.Reservoir.create(tmp_path), "is not empty"),
        (lambda: gf.Reservoir(tmp_path), "not an event reservoir"),
    ]
    for call, problem in refused:
        with pytest.raises(InputError, match=problem):
            call()
    assert not (tmp_path / "n").exists()
    assert res.query().num_rows == 1


def test_too_many_buckets_are_refused(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r", bucket="1s")
    with pytest.raises(InputError, match="the events span 10,001 buckets, more than 10,000"):
        res.pool("a").append(pa.table({"t": np.arange(10_001), "id": np.arange(10_001)}))
    assert res.pools == []


def test_small_buckets_are_merged_by_appends(tmp_path: Path) -> None:
    """A live source appends often; the number of files does not grow with it."""
    res = gf.Reservoir.create(tmp_path / "r")
    for number in range(60):
        res.pool("a").append({"t": number, "id": number})
    assert res.describe()["pools"]["a"]["buckets"] < 20
    assert len(list((tmp_path / "r" / "p00000").iterdir())) == res.describe()["pools"]["a"]["buckets"]
    assert res.query().column("id").to_pylist() == list(range(60))
    res.compact()
    assert res.describe()["pools"]["a"]["buckets"] == 1
    assert res.compact()["buckets"] == 1


def test_scan(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r", bucket=10)
    res.pool("a").append(pa.table({"t": np.arange(100), "id": np.arange(100), "v": np.arange(100) % 3}))
    batches = list(res.scan("a", start=20, end=55, where={"v": 1}, columns=[]))
    assert len(batches) == 4
    assert [i for batch in batches for i in batch.column("id").to_pylist()] == [i for i in range(20, 55) if i % 3 == 1]


# Relations.


def relations_by_brute_force(pairs: list[Any], start: list[Any], hops: int, direction: str) -> dict[Any, int]:
    graph = nx.DiGraph(pairs)
    graph.add_nodes_from(start)
    seen = graph.reverse() if direction == "in" else graph.to_undirected() if direction == "both" else graph
    levels = nx.multi_source_dijkstra_path_length(seen, set(start), weight=None)
    return {node: level for node, level in levels.items() if level <= hops}


@pytest.mark.parametrize("group_related", [False, True])
@pytest.mark.parametrize("ids", [str, int])
@pytest.mark.slow
def test_pairs(tmp_path: Path, ids: Any, group_related: bool) -> None:
    """Two pools and two relations between them, before and after compaction."""
    rng = random.Random(7)
    res = gf.Reservoir.create(tmp_path / "r", bucket=50, rows=20, group_related=group_related)
    times = {pool: {ids(i): rng.randint(0, 200) for i in range(60)} for pool in "ab"}
    for pool, events in times.items():
        res.pool(pool).append([{"t": t, "id": i, "v": 1} for i, t in events.items()])
    pairs = []
    for name, source, target in (("p", "a", "b"), ("q", "b", "b")):
        relation = res.relate(name, source=source, target=target)
        some = [(ids(rng.randrange(60)), ids(rng.randrange(60))) for _ in range(40)]
        pairs += [((source, s), (target, t)) for s, t in some]
        assert relation.append([{"source": s, "target": t} for s, t in some]) == len(set(some))
        assert relation.append([{"source": s, "target": t, "source_t": times[source][s]} for s, t in some]) == 0
    for _ in range(2):
        for direction in ("out", "in", "both"):
            for hops in (1, 2, 5):
                first = rng.sample(sorted(times["a"]), 3)
                found = res.query("a", where={"id": first}, related=["p", "q"], hops=hops, direction=direction)
                reached = {(row["pool"], row["id"]): row["hops"] for row in found.to_pylist()}
                assert reached == relations_by_brute_force(pairs, [("a", i) for i in first], hops, direction)
                assert len(reached) == found.num_rows
                assert [row["t"] for row in found.to_pylist()] == [
                    at(times[row["pool"]][row["id"]]) for row in found.to_pylist()
                ]
        res.compact()


def test_pairs_that_are_refused(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r")
    relation = res.relate("p", source="a", target="b")
    with pytest.raises(InputError, match="pool a has no events yet"):
        relation.append({"source": 1, "target": 2})
    res.pool("a").append({"t": 1, "id": 1})
    res.pool("b").append({"t": 1, "id": "x"})
    for pair, problem in (
        ({"source": 1}, "no column 'target'"),
        ({"source": 1, "target": 2}, "target has the type int64; ids of b are string"),
        ({"source": 2, "target": "x"}, "source: pool a has no event 2"),
        ({"source": None, "target": "x"}, "row 0: source is null"),
        ({"source": 1, "target": "x", "source_t": "no"}, "row 0: source_t is 'no'; accepted are timestamps"),
    ):
        with pytest.raises(InputError, match=problem):
            relation.append(pair)
    assert relation.append([]) == 0
    assert relation.append({"source": 1, "target": "x"}) == 1
    assert res.relate("p", source="a", target="b").append({"source": 1, "target": "x"}) == 0
    with pytest.raises(InputError, match="exists with other pools"):
        res.relate("p", source="b", target="b")
    with pytest.raises(InputError, match="it takes no pairs"):
        res.relate("v", source="a", target="b", on="host").append({"source": 1, "target": "x"})


@pytest.mark.parametrize("within", [None, 4, 15])
def test_relations_by_values(tmp_path: Path, within: float | None) -> None:
    rng = random.Random(3)
    res = gf.Reservoir.create(tmp_path / "r", bucket=20)
    rows = {
        pool: [
            {"t": rng.randint(0, 100), "id": i, column: rng.choice(values), "n": rng.choice([1, 2, None])}
            for i in range(40)
        ]
        for pool, column, values in (("a", "user", "abcd"), ("b", "who", "abcde"))
    }
    for pool, events in rows.items():
        res.pool(pool).append(events[:20])
        res.pool(pool).append(events[20:])
    res.relate("p", source="a", target="b", on={"user": "who", "n": "n"}, within=within)
    pairs = [
        (("a", a["id"]), ("b", b["id"]))
        for a in rows["a"]
        for b in rows["b"]
        if a["user"] == b["who"] and a["n"] == b["n"] is not None and (within is None or 0 <= b["t"] - a["t"] <= within)
    ]
    assert pairs
    for direction in ("out", "in", "both"):
        for hops in (1, 3):
            for pool in "ab":
                found = res.query(pool, where={"id": [3, 4, 5]}, related="p", hops=hops, direction=direction)
                reached = {(row["pool"], row["id"]): row["hops"] for row in found.to_pylist()}
                assert reached == relations_by_brute_force(pairs, [(pool, i) for i in (3, 4, 5)], hops, direction)


def test_related_events_are_put_together(tmp_path: Path) -> None:
    """Chains of ten events each, whose ids are in no order: following one opens few of the buckets."""
    rng = random.Random(5)
    res = gf.Reservoir.create(tmp_path / "r", bucket="1h", rows=50, group_related=True)
    ids = [f"{rng.getrandbits(60):x}" for _ in range(500)]
    chains = [ids[i::50] for i in range(50)]
    times = {i: rng.randint(0, 3599) for i in ids}
    res.pool("a").append([{"t": times[i], "id": i} for i in ids])
    relation = res.relate("next", source="a", target="a")
    relation.append([{"source": s, "target": t} for chain in chains for s, t in pairwise(chain)])

    def opened() -> int:
        """Buckets that are opened to follow a chain, beside those in which its first event is searched for."""
        chain, before = rng.choice(chains), res._places.opened
        chosen = {"start": times[chain[0]], "end": times[chain[0]] + 1, "where": {"id": chain[0]}}
        assert res.query("a", **chosen).num_rows == 1
        alone = res._places.opened - before
        found = res.query("a", **chosen, related="next", hops=9)
        assert set(found.column("id").to_pylist()) == set(chain)
        assert sorted(found.column("hops").to_pylist()) == list(range(10))
        return res._places.opened - before - 2 * alone

    scattered = min(opened() for _ in range(3))
    res.compact()
    assert res.describe()["pools"]["a"]["buckets"] == 10
    assert max(opened() for _ in range(3)) == 2 < scattered  # the pairs by source, and by target


# The manifest and the index.


def test_a_manifest_that_was_edited_by_hand(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r")
    res.pool("a").append({"t": 1, "id": 1})
    path = tmp_path / "r" / "reservoir.json"
    good = path.read_bytes()
    body = json.loads(good)
    body.pop("checksum")
    for change, problem in (
        ({"version": 99}, "format 99 is not supported"),
        ({"format": "x"}, "not a GoFFish event reservoir"),
        ({"reservoir": None}, "damaged"),
        ({"reservoir": body["reservoir"] | {"rows": "many"}}, "damaged \\(rows"),
        ({"reservoir": body["reservoir"] | {"extra": 1}}, "damaged \\(extra"),
        ({"reservoir": body["reservoir"] | {"index": {"name": "../../x", "size": 1, "sha256": ""}}}, "index.name"),
    ):
        path.write_bytes(seal(body | change))
        with pytest.raises(StoreError, match=problem):
            gf.Reservoir(tmp_path / "r")
    path.write_bytes(good.replace(b"250000", b"250001"))
    with pytest.raises(StoreError, match="does not match its checksum"):
        gf.Reservoir(tmp_path / "r")
    for text in (b"", b"{", b"[]", b"[" * 100_000):
        path.write_bytes(text)
        with pytest.raises(StoreError, match="not a GoFFish event reservoir"):
            res.query()
    path.write_bytes(good)
    assert res.query().num_rows == 1
    index = next((tmp_path / "r").glob("index-*"))
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(StoreError, match="damaged"):
        gf.Reservoir(tmp_path / "r")


def test_buckets_that_an_index_must_not_name(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r")
    res.pool("a").append({"t": 1, "id": 1})
    bucket = res._load()[1].buckets[0]
    assert decode_index(Index([bucket]).encode(), "x", 1).buckets == (bucket,)
    for bad in (bucket._replace(name="../x.parquet"), bucket._replace(places=(1,)), bucket._replace(places=(-1,))):
        with pytest.raises(StoreError, match="x: damaged"):
            decode_index(Index([bad]).encode(), "x", 1)
