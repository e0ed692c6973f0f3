"""Queries that begin in the past or in the future, and graphs of earlier times."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.times import span_after, span_of
from tests.streaming.graphs.test_durable import STEP, abandon, everything
from tests.streaming.graphs.test_queries import some_records

#: No checkpoint that was written is damaged.
pytestmark = pytest.mark.filterwarnings("error::goffish.errors.GoffishWarning")

QUERIES = """
DETECT Reach(source:{{has(x)}}, sink:{{has(y)}}) {0} AS paths;
DETECT Cluster(size >= 2, sum(node.x) > 2) {0} AS sums;
DETECT Neighbourhood(center:{{x = 3}}, hops: 2) {0} WINDOW 40s AS near;
DETECT Degree(degree >= 3, clear: 2, direction: out, distinct: true) {0} WINDOW 40s AS busy;
DETECT Component(members: true, grow: 4) {0} WHERE edge:{{type = b}} EMIT EVERY 7s AS parts;
DETECT Match(edge:{{type = a}}) {0} WHERE SUCCEEDS 2 OF busy WITHIN 90s AS later;
DETECT Match(vertex:{{has(tags)}}) {0} WHERE SUCCEEDS sums WITHIN 60s SHARING VERTICES AS shared
"""


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def records(seed: int, count: int = 250) -> list[dict[str, Any]]:
    found = list(some_records(random.Random(seed), count))
    for number, one in enumerate(found):
        for name in ("id", "src", "dst"):  # elements that come and go
            if isinstance(one.get(name), str) and number % 3 == 0:
                one[name] += f"-{number // 40}"
    return found


def topics(live: gf.stream.LiveGraph) -> dict[str, Any]:
    return {name: found for name, found in topics_of(live).items() if name != "another"}


@pytest.mark.parametrize("seed", [0, 1, 111])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.slow
def test_a_query_that_began_in_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, ends: bool
) -> None:
    """Breaks when its events differ from those of the same query that was submitted before its beginning."""
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 16)
    given = records(seed)
    middle = given[len(given) // 3]["t"] + 0.5
    text = QUERIES.format(f'FROM "{iso(middle)}" TO "{iso(middle + 150)}"' if ends else f'FROM "{iso(middle)}" TO')
    plain = gf.stream.LiveGraph(lateness=3)
    plain.submit(text)
    late = gf.stream.LiveGraph(lateness=3, state=tmp_path)
    late.submit("DETECT Reach(source:{has(x)}, sink:{}) AS another")
    submitted = len(given) * 2 // 3 // STEP
    for at in range(0, len(given), STEP):
        for live in (plain, late):
            live.feed(given[at : at + STEP])
        if at in (STEP, 5 * STEP, (submitted + 3) * STEP):
            late.checkpoint()
        if at == submitted * STEP:
            late.submit(text)
            assert topics(late) == topics(plain)
        if at in ((submitted + 2) * STEP, (submitted + 4) * STEP):
            abandon(late)
            late = gf.stream.LiveGraph(lateness=3, state=tmp_path)
    for live in (plain, late):
        live.end()
    assert topics(late) == topics(plain)
    assert sum(bool(events) for events, _ in topics(plain).values()) >= 4
    found = everything(late)
    late.close()
    assert everything(gf.stream.LiveGraph.reading(tmp_path)) == found


def test_since(tmp_path: Path) -> None:
    """Breaks when SINCE does not end at once, has other events than the time has, or is accepted without a log."""
    given = [{"t": float(t), "op": "+v", "id": t, "attrs": {"x": t % 2}} for t in range(1, 40)]
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path)
    live.submit("DETECT Match(vertex:{x = 0}) AS now")
    live.feed(given)
    live.submit("DETECT Match(vertex:{x = 1}) SINCE 10s AS before")
    events = live.events("before").to_pylist()
    assert [one["id"] for one in events if one["initial"]] == list(range(1, 29, 2))
    assert [one["id"] for one in events if not one["initial"]] == [29, 31, 33, 35, 37, None]
    assert (events[-1]["status"], events[-1]["reason"], events[-1]["time"].timestamp()) == ("CLOSED", "expired", 39)
    live.feed([{"t": 50, "op": "+v", "id": 51, "attrs": {"x": 1}}])
    assert live.events("before").num_rows == len(events)
    with pytest.raises(gf.stream.CgqlError, match=r"line 1, column 8: topic before: queries that begin in the past"):
        live.submit("DETECT Match(vertex:{}) WHERE SUCCEEDS before AS none; \n DETECT Match(vertex:{}) AS none2")
    live.close()
    plain = gf.stream.LiveGraph(lateness=0)
    with pytest.raises(gf.stream.CgqlError, match=r"line 1, column 25: SINCE 5s: there are no records yet"):
        plain.submit("DETECT Match(vertex:{}) SINCE 5s")
    plain.feed(given)
    with pytest.raises(gf.stream.CgqlError, match=r"line 1, column 25: SINCE 5s: is in the past; give the live graph"):
        plain.submit("DETECT Match(vertex:{}) SINCE 5s")
    assert plain.topics == []


@pytest.mark.slow
def test_what_is_not_kept(tmp_path: Path) -> None:
    """Breaks when a query goes back to where the log is gone, or the folder grows without end."""
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path, retention=100, limits=gf.stream.Limits(instances=0))
    monkey = live._folder._log  # type: ignore[union-attr]
    assert monkey is not None
    monkey.limit = 16 * 1000  # small files
    for t in range(1, 1000):
        live.feed([{"t": t, "op": "+v", "id": f"v{t}", "attrs": {"x": 1}}])
        if t % 20 == 0:
            live.checkpoint()
    assert len(list(tmp_path.glob("checkpoint-*.arrow"))) <= 8
    with pytest.raises(gf.stream.CgqlError, match=r"SINCE 15m: is in the past; the log does not go back that far"):
        live.submit("DETECT Match(vertex:{}) SINCE 15m")
    assert live.graph(at=990).num_vertices == 990
    with pytest.raises(InputError, match="at = 5: the log does not go back that far"):
        live.graph(at=5)
    live.submit("DETECT Match(vertex:{x = 1}) SINCE 1m WITH (initial = false) AS some")
    seen = live.events("some").slice(0, 59)
    assert seen["id"].to_pylist() == [f"v{t}" for t in range(939, 998)]
    live.close()


def test_graphs_of_earlier_times(tmp_path: Path) -> None:
    """Breaks when the graph of a time is not what the records until then make."""
    given = records(5)
    live = gf.stream.LiveGraph(lateness=3, state=tmp_path)
    for at in range(0, len(given), STEP):
        live.feed(given[at : at + STEP])
        if at % 70 == 0:
            live.checkpoint()
    first, last = given[0]["t"], given[-1]["t"]
    for time in (first, (first + last) / 2, last - 20):
        plain = gf.stream.LiveGraph(lateness=1)
        plain.feed(sorted((one for one in given if one["t"] <= time), key=lambda one: one["t"]))
        plain.end()
        old, wanted = live.graph(at=iso(time)), plain.graph()
        assert old.num_vertices == wanted.num_vertices and old.num_edges == wanted.num_edges
    with pytest.raises(InputError, match=r"records are applied until .* only"):
        live.graph(at=last + 100)
    with pytest.raises(InputError, match="at = 'soon': Invalid isoformat string"):
        live.graph(at="soon")
    with pytest.raises(InputError, match="keeps no earlier times; give it a folder as state"):
        plain.graph(at=last)
    live.close()


def test_a_query_that_begins_later() -> None:
    """Breaks when a query observes before its time, or after its end."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit(f'DETECT Match(vertex:{{x = 1}}) FROM "{iso(10)}" TO "{iso(20)}" AS some')
    for t in range(1, 40, 2):
        live.feed([{"t": t, "op": "+v", "id": t, "attrs": {"x": 1}}])
    rows = live.events("some").to_pylist()
    assert [(one["time"].timestamp(), one["id"], one["initial"]) for one in rows] == [
        *((10, id, True) for id in (1, 3, 5, 7, 9)), *((id, id, False) for id in (11, 13, 15, 17, 19)),
        (20, None, False),
    ]  # fmt: skip


def micros(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


CRON = 'DETECT Match(edge:{}) FROM "0 8 * * 1-5" TO "0 17 * * 1-5"'


@pytest.mark.parametrize(
    ("now", "more", "start", "end"),
    [
        ("2014-02-10 07:30", "", "2014-02-10 08:00", "2014-02-10 17:00"),
        ("2014-02-10 08:00", "", "2014-02-10 08:00", "2014-02-10 17:00"),
        ("2014-02-10 12:00", "", "2014-02-11 08:00", "2014-02-11 17:00"),
        ("2014-02-10 12:00", " REPEAT", "2014-02-10 12:00", "2014-02-10 17:00"),
        ("2014-02-10 17:00", " REPEAT", "2014-02-11 08:00", "2014-02-11 17:00"),
        ("2014-02-14 18:00", "", "2014-02-17 08:00", "2014-02-17 17:00"),
        ("2014-02-10 06:30", ' WITH (tz = "Europe/Berlin")', "2014-02-10 07:00", "2014-02-10 16:00"),
    ],
)
def test_cron_texts(now: str, more: str, start: str, end: str) -> None:
    pytest.importorskip("croniter")
    query = parse(CRON + more).queries[0]
    assert span_of(query, micros(now)) == (micros(start), micros(end))


def test_cron_texts_that_repeat() -> None:
    """Breaks when a query that repeats misses a span, or an instant of one year is found in another one."""
    pytest.importorskip("croniter")
    query = parse(f"{CRON} REPEAT").queries[0]
    assert span_after(query, micros("2014-02-14 17:00")) == (micros("2014-02-17 08:00"), micros("2014-02-17 17:00"))
    once = parse('DETECT Match(edge:{}) FROM "30 14 5 2 * 2014" TO').queries[0]
    assert span_of(once, micros("2014-01-01 00:00")) == (micros("2014-02-05 14:30"), None)
    for text, message in (
        ('FROM "30 14 5 2 * 2014" TO', "there is no such time after"), ('FROM "8 o clock" TO', "accepted are ISO 8601"),
        ('FROM "61 * * * *" TO', "accepted are"), ('FROM "2015-01-01" TO "2014-01-01"', "the end is not after"),
        ('FROM "2015-01-01" TO "0 8 * * *" REPEAT', "REPEAT needs cron texts"),
        ('FROM "2015-01-01" TO WITH (tz = "Mars")', "unknown time zone"),
    ):  # fmt: skip
        with pytest.raises(gf.stream.CgqlError, match=message):
            span_of(parse(f"DETECT Match(edge:{{}}) {text}").queries[0], micros("2014-06-01 00:00"))
    live = gf.stream.LiveGraph(lateness=0)
    live.submit('DETECT Match(vertex:{x = 1}) FROM "0 * * * *" TO "30 * * * *" REPEAT AS half')
    for minute in range(5, 300, 10):
        live.feed([{"t": minute * 60, "op": "+v", "id": minute, "attrs": {"x": 1}}])
    rows = live.events("half").to_pylist()
    assert [one["time"].timestamp() / 60 for one in rows if one["status"] == "CLOSED"] == [30, 90, 150, 210, 270]
    seen = [one["id"] for one in rows if one["status"] == "MATCHED" and not one["initial"]]
    assert seen == [5, 15, 25, 65, 75, 85, 125, 135, 145, 185, 195, 205, 245, 255, 265]
    assert [one["offset"] for one in rows] == list(range(len(rows)))


REPEATED = """
DETECT Reach(source:{has(x)}, sink:{has(y)}) FROM "*/4 * * * *" TO "2-58/4 * * * *" REPEAT AS paths;
DETECT Component(members: true) FROM "*/3 * * * *" TO "1-59/3 * * * *" REPEAT EMIT EVERY 7s AS parts;
DETECT Match(vertex:{has(tags)}) FROM "1970-01-01T00:03" TO AS later;
DETECT Match(edge:{}) WHERE SUCCEEDS paths WITHIN 60s AS after
"""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_a_query_that_repeats_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Breaks when a live graph that is opened again has lost a span, or the end of one."""
    pytest.importorskip("croniter")
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 16)
    rng, given = random.Random(seed), records(seed)
    plain, kept = gf.stream.LiveGraph(lateness=3), gf.stream.LiveGraph(lateness=3, state=tmp_path)
    for live in (plain, kept):
        live.submit(REPEATED)
    for at in range(0, len(given), STEP):
        for live in (plain, kept):
            live.feed(given[at : at + STEP])
        if rng.random() < 0.2:
            kept.checkpoint()
        if rng.random() < 0.2:
            abandon(kept)
            kept = gf.stream.LiveGraph(lateness=3, state=tmp_path)
            assert topics_of(kept) == topics_of(plain)
    assert topics_of(kept) == topics_of(plain)
    assert kept.events("paths")["status"].to_pylist().count("CLOSED") > 1
    kept.close()


def topics_of(live: gf.stream.LiveGraph) -> dict[str, Any]:
    return {name: (live.events(name).to_pylist(), live.answers(name).to_pylist()) for name in live.topics}
