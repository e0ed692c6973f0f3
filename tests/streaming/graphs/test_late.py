"""Records that arrive after their time was applied, with each policy for them."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.graphs.recovery import verify
from tests.streaming.graphs.notation import record, records
from tests.streaming.graphs.test_durable import abandon, everything
from tests.streaming.graphs.test_live_graph import Model, check

QUERIES = """
DETECT Reach(source:{x = 1}, sink:{x = 2}) AS paths;
DETECT Degree(degree >= 2, distinct: true) WINDOW 30s AS busy;
DETECT Motif((a)-[e]->(b)-[f]->(c), e.w < f.w) AS chains;
DETECT Match(edge:{w > 1, time > 9}) AS heavy;
DETECT Component(members: true) WHERE node:{has(x)} AS parts;
DETECT Cluster(sum(node.x) > 2) EMIT EVERY 5s AS sums
"""


def made(seed: int, count: int, labels: int = 6) -> list[dict[str, Any]]:
    """Records of three streams in order, many at the same time; updates of edges are of some that exist."""
    rng, model, found = random.Random(seed), Model(), []
    streams = ["s1", "s2", "s3"]
    seqs = dict.fromkeys(streams, 0)
    times = sorted(rng.randrange(count) for _ in range(count))
    heads = sorted((time, rng.choice(streams)) for time in times)
    for time, stream in heads:
        updates = []
        for _ in range(rng.choice([1, 1, 1, 3])):
            op = rng.choice(["+v", "-v", "+e", "+e", "+e", "-e", "+av", "-av", "+ae", "+ae", "-ae"])
            ends = {name: f"v{rng.randrange(labels)}" for name in ("src", "dst")}
            one: dict[str, Any] = {"op": op}
            if op[1:] in ("v", "av"):
                one |= {"id": f"v{rng.randrange(labels)}"}
            elif op in ("+ae", "-ae"):
                if not model.edges:
                    continue
                one |= {"id": rng.choice(sorted(model.edges))}
            else:
                one |= ends | {"id": f"{ends['src']}-{ends['dst']}-{rng.randrange(2)}"}
            if op in ("-av", "-ae"):
                one["names"] = [rng.choice("xw")]
            elif op in ("+v", "+e", "+av", "+ae") and rng.random() < 0.7:
                one["attrs"] = {rng.choice("xw"): rng.randrange(4)}
            updates.append(one)
            model.apply(time, one)
        head = {"t": time, "stream": stream, "seq": seqs[stream]}
        seqs[stream] += 1
        found.append(head | ({"op": "txn", "updates": updates} if updates else {"op": "heartbeat"}))
    return found


def model_of(given: list[dict[str, Any]]) -> Model:
    model = Model()
    for one in given:
        for update in one.get("updates", []):
            model.apply(one["t"], update)
    return model


def feed(live: gf.stream.LiveGraph, given: list[dict[str, Any]], rng: random.Random, most: int) -> None:
    given = list(given)
    while given:
        size = rng.randrange(1, most + 1)
        live.feed(given[:size])
        del given[:size]


@pytest.mark.parametrize("seed", range(12))
def test_any_order_gives_the_same_graph(seed: int) -> None:
    """Breaks when a late record overwrites something newer, or is overwritten by something older."""
    given, rng = made(seed, 120), random.Random(seed)
    arriving = rng.sample(given, len(given)) + rng.sample(given, 10)
    live = gf.stream.LiveGraph(lateness=rng.choice([0, 20]), late="apply")
    feed(live, arriving, rng, 40)
    counts = live.counts
    assert counts["applied_late"] > 60 and counts["stale"] > 20 and counts["duplicate"] == 10 and not live.errors
    live.end()
    check(live, model_of(given))
    counts = live.counts
    assert counts["accepted"] == 130 == sum(counts[name] for name in ("applied", "duplicate"))


@pytest.mark.slow
def test_every_order_of_a_few_records() -> None:
    """Breaks when an order of the updates of an edge and its ends gives another graph."""
    texts = ["1 +e e a b w=1", "2 +ae e x=2", "3 -v b", "4 +e e a b", "5 +ae e w=5", "6 -ae e x"]
    given = [record(one) for one in texts]
    model = Model()
    for one in given:
        model.apply(one["t"], one)
    orders = list(permutations(given))
    for order in random.Random(1).sample(orders, 150):
        live = gf.stream.LiveGraph(lateness=0, late="apply")
        live.feed(order)
        live.end()
        check(live, model)


@pytest.mark.parametrize("seed", range(2))
def test_answers_and_events_of_queries(seed: int) -> None:
    """Breaks when answers are not those of the sorted records, or events depend on the size of batches."""
    given, rng = made(seed, 150), random.Random(seed)
    last = {"t": 400, "op": "heartbeat", "stream": "s1", "seq": 10**6}
    arriving = [*rng.sample(given, len(given)), last]
    plain = gf.stream.LiveGraph(lateness=0, idle=0.001)
    plain.submit(QUERIES)
    plain.feed([*given, last])
    found = []
    for most in (1, 7, 1000):
        live = gf.stream.LiveGraph(lateness=0, late="apply")
        live.submit(QUERIES)
        feed(live, arriving, random.Random(most), most)
        live.end()
        found.append(everything(live))
    plain.end()
    assert found[0] == found[1] == found[2]
    late = 0
    for topic in plain.topics:
        if topic not in ("parts", "sums"):  # whose clusters have other numbers, by what they were before
            assert live.answers(topic).to_pylist() == plain.answers(topic).to_pylist()
        late += sum(one["late"] for one in live.events(topic).to_pylist())
        events = live.events(topic).to_pylist()
        assert [one["released"] for one in events] == sorted(one["released"] for one in events)
    assert late > 5 and "late" not in plain.events("paths").column_names
    sizes = [sorted(one["size"] for one in each.answers("parts").to_pylist()) for each in (live, plain)]
    assert sizes[0] == sizes[1]


def test_events_say_that_they_are_late() -> None:
    live = gf.stream.LiveGraph(lateness=5, late="apply")
    live.submit("DETECT Reach(source:{id = a}, sink:{id = c}) AS paths")
    live.feed(records("10 +e e1 a b\n20 +v z\n12 +e e2 b c\n14 -e e1"))
    rows = live.events("paths").select(["status", "late"]).to_pylist()
    assert rows == [{"status": "REACHABLE", "late": True}, {"status": "UNREACHABLE", "late": True}]
    assert {one.timestamp() for one in live.events("paths")["time"].to_pylist()} == {15}  # the time that was reached


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_are_given_up(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Elements come and go; what was removed is remembered for as long as late records are applied, and no longer."""
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 16)
    given, rng = made(seed, 600, labels=4), random.Random(seed)
    for at, one in enumerate(given):
        for update in one.get("updates", []):
            for name in ("id", "src", "dst"):
                if name in update:
                    update[name] += f".{at // 60}"
    late = 20
    arriving = sorted(given, key=lambda one: one["t"] + late * rng.random())
    live = gf.stream.LiveGraph(lateness=0, late="apply", tombstone_ttl=late)
    feed(live, arriving, rng, 10)
    counts = live.counts
    assert counts["applied_late"] > 50 and counts["late"] == 0
    live.end()
    check(live, model_of(given))


def test_the_memory_of_what_was_removed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when labels of unknown elements, which late removals name, are never given up."""
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 64)
    live = gf.stream.LiveGraph(lateness=0, late="apply", tombstone_ttl="10s")
    for second in range(100):
        head = {"t": second, "op": "heartbeat"}
        late = {"t": second - 1}
        live.feed([
            head, *(late | {"op": "-v", "id": f"{second}-{n}"} for n in range(20)),
            *(late | {"op": "+ae", "id": f"{second}-{n}", "attrs": {"x": f"text {second} {n}"}} for n in range(20)),
        ])  # fmt: skip
    encoder = live._engine.encoder
    assert live.counts["applied_late"] == 4000 and live.counts["unknown_element"] == 4000
    for table in (encoder.vertices, encoder.edges, encoder.values.texts):
        assert table.used < 1000 and table.capacity < 2048
    live.feed([{"t": 20, "op": "+v", "id": "old"}])
    assert live.counts["late"] == 1 and "tombstone_ttl" in live.errors[-1][1]
    live.end()
    live.feed([{"t": 98, "op": "+v", "id": "new"}])
    assert live.counts["late"] == 2 and not live.num_vertices


@pytest.mark.parametrize("late", ["side", "drop"])
def test_the_other_policies(late: Any) -> None:
    seen: list[Any] = []
    live = gf.stream.LiveGraph(lateness=0, late=late, on_error=lambda one, error: seen.append((one, error)))
    live.feed(records("10 +v a\n5 +v b\n11 +v c"))
    assert live.vertices["id"].to_pylist() == ["a", "c"] and live.counts["late"] == 1
    assert [one["id"] for one, _ in seen] == (["b"] if late == "side" else [])
    assert live._engine.state.written is None  # nothing is remembered for late records


def test_a_folder_keeps_the_policy(tmp_path: Path) -> None:
    """Breaks when a crash, a checkpoint or a replay changes what late records do."""
    given, rng = made(5, 150), random.Random(5)
    arriving = rng.sample(given, len(given))
    plain = gf.stream.LiveGraph(lateness=0, late="apply")
    kept = gf.stream.LiveGraph(lateness=0, late="apply", state=tmp_path)
    for live in (plain, kept):
        live.submit(QUERIES)
    for at in range(0, len(arriving), 10):
        for live in (plain, kept):
            live.feed(arriving[at : at + 10])
        if at in (50, 90):
            kept.checkpoint()
        if at in (40, 70, 100):
            abandon(kept)
            kept = gf.stream.LiveGraph(lateness=0, late="apply", state=tmp_path)
    assert everything(kept) == everything(plain) and kept.counts["applied_late"] > 60
    now = kept.time
    assert now is not None
    at = kept.graph(at=now)
    assert (at.num_vertices, at.num_edges) == (kept.graph().num_vertices, kept.graph().num_edges)
    kept.close()
    assert {one["result"] for one in verify(tmp_path)} == {"same"}
    for options, message in (
        ({}, "late = apply, and not side"),
        ({"late": "apply", "tombstone_ttl": "2h"}, "tombstone_ttl = 3600 s, and not 7200 s"),
    ):
        with pytest.raises(InputError, match=message):
            gf.stream.LiveGraph(lateness=0, state=tmp_path, **options)  # type: ignore[arg-type]


def test_a_query_that_began_in_the_past(tmp_path: Path) -> None:
    """Late records are replayed for it as they were applied."""
    given, rng = made(6, 120), random.Random(6)
    arriving = sorted(given, key=lambda one: one["t"] + 30 * rng.random())
    text = 'DETECT Match(edge:{w >= 0}) FROM "1970-01-01T00:00:40" TO AS heavy'
    plain = gf.stream.LiveGraph(lateness=0, late="apply")
    plain.submit(text)
    plain.feed(arriving)
    kept = gf.stream.LiveGraph(lateness=0, late="apply", state=tmp_path)
    kept.feed(arriving)
    kept.submit(text)
    events = plain.events("heavy").to_pylist()
    assert kept.events("heavy").to_pylist() == events and sum(one["late"] for one in events) > 5
    kept.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"late": "later"}, "late = 'later': choose from side, apply, drop"),
        ({"late": ["apply"]}, "late = \\['apply'\\]: choose from"),
        ({"tombstone_ttl": 0}, "tombstone_ttl"),
        ({"limits": gf.stream.Limits(streams=0)}, "streams = 0: must be at least 1"),
    ],
)
def test_options_that_are_not_accepted(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gf.stream.LiveGraph(**options)
