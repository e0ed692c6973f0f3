"""Queries on times of which instances of the graph are kept, but not the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goffish as gf
from goffish.errors import CheckpointError
from goffish.streaming.graphs import durable
from goffish.streaming.graphs.durable import checkpoints, first_entry
from goffish.streaming.graphs.recovery import verify
from tests.streaming.graphs.test_durable import STEP, abandon, everything
from tests.streaming.graphs.test_history import iso, records

QUERIES = """
DETECT Reach(source:{{has(x)}}, sink:{{has(y)}}) {0} AS paths;
DETECT Neighbourhood(center:{{x = 3}}, hops: 2) {0} WINDOW 60s AS near;
DETECT Degree(degree >= 2, direction: out, distinct: true) {0} WINDOW 60s AS busy;
DETECT Match(edge:{{x > 1}}) {0} AS edges;
DETECT Match(vertex:{{tags = a}}) {0} AS tagged;
DETECT Match(vertex:{{NOT (id = groups.*)}}) {0} AS alone;
DETECT Motif((a)-[e]->(b)-[f]->(c), a.x != c.x) {0} AS pairs;
DETECT Component() {0} WHERE edge:{{NOT (type = b)}} AS groups
"""
#: Statuses that begin an answer.
BEGIN = ("REACHABLE", "ENTERED", "RAISED", "MATCHED")


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_DAY", 30_000_000)
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 16)


def fed(folder: Path, given: list[dict[str, Any]], **options: Any) -> gf.stream.LiveGraph:
    live = gf.stream.LiveGraph(lateness=3, state=folder, **options)
    assert live._folder is not None and live._folder._log is not None
    live._folder._log.limit = 2000  # small files
    for at in range(0, len(given), STEP):
        live.feed(given[at : at + STEP])
        if at % (3 * STEP) == 0:
            live.checkpoint()
    return live


def folded(events: list[dict[str, Any]], until: float) -> set[Any]:
    """Keys of the answers at a time; members of groups, whose ids may be others."""
    held: dict[Any, Any] = {}
    beside = ("offset", "time", "status", "released", "initial", "resolution", "reason", "event_id", "hops", "degree")
    for event in events:
        if event["time"].timestamp() > until or event["status"] == "CLOSED":
            continue
        key = str([str(value) for name, value in event.items() if name not in beside])  # some tables have texts only
        if event["status"] in BEGIN:
            assert key not in held
            held[key] = None
        else:
            held.pop(key)
    return set(held)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_instances_are_compared(days: None, tmp_path: Path, seed: int) -> None:
    """Breaks when answers at an instance are not those of the whole log, or later events differ from those of it."""
    given = records(seed, 400)
    whole = fed(tmp_path / "whole", given, retention="30d")
    short = fed(tmp_path / "short", given, retention=60, limits=gf.stream.Limits(instances=99))
    begin, kept = first_entry(tmp_path / "short" / "."), checkpoints(tmp_path / "short")
    times = sorted(one.time / 1e6 for one in kept if one.entry < begin)
    after = min(one.time for one in kept if one.entry >= begin) / 1e6  # where the log goes on
    assert len(times) >= 4 and all(np.diff(times) >= 30)
    start = times[1] + 1
    text = QUERIES.format(f'FROM "{iso(start)}" TO')
    for live in (whole, short):
        live.submit(text)
    seen = 0
    for topic in whole.topics:
        if topic == "groups":
            continue
        expected, found = (live.events(topic).to_pylist() for live in (whole, short))
        late = [one for one in found if one["time"].timestamp() <= after]
        assert {one["resolution"] for one in late} <= {"instance"}
        assert {one["time"].timestamp() for one in late} <= {start, *times, after}
        for time in (*times[2:], after):
            assert folded(found, time) == folded(expected, time), (topic, time)
        names = [name for name in found[0] if name not in ("offset", "resolution")] if found else []
        assert [{name: one[name] for name in names} for one in found if one["time"].timestamp() > after] == [
            {name: one[name] for name in names} for one in expected if one["time"].timestamp() > after
        ]
        assert {one["resolution"] for one in found if one["time"].timestamp() > after} <= {"record"}
        assert whole.answers(topic) == short.answers(topic)
        seen += len(late)
    assert seen > 30
    groups = [
        sorted(str(row["members"]) for row in live.answers("groups").to_pylist()) for live in (whole, short)
    ]  # fmt: skip
    assert groups[0] == groups[1]
    before = everything(short)
    abandon(short)
    short = gf.stream.LiveGraph(lateness=3, state=tmp_path / "short", retention=60)
    assert everything(short) == before
    for live in (whole, short):
        added = {"op": "+e", "dst": "v1", "attrs": {"x": 2}}
        live.feed([{"t": given[-1]["t"] + n, "src": f"n{n % 3}"} | added for n in range(9)])
        live.end()
    counts = [{topic: len(live.answers(topic)) for topic in live.topics} for live in (whole, short)]
    assert counts[0] == counts[1]
    short.close()
    assert {one["result"] for one in verify(tmp_path / "short")} <= {"same", "first"}


def test_edges_that_are_seen_again(days: None, tmp_path: Path) -> None:
    """Breaks when an edge leaves a window although it was seen between two instances."""
    edge = {"op": "+e", "id": "e", "src": "a", "dst": "b"}
    given = [{"t": t} | (edge if t % 10 == 0 else {"op": "+v", "id": f"v{t % 50}"}) for t in range(1, 600)]
    live = fed(tmp_path, given, retention=60, limits=gf.stream.Limits(instances=99))
    old = sorted(one.time / 1e6 for one in checkpoints(tmp_path) if one.entry < first_entry(tmp_path))
    assert old[-1] - old[0] > 120
    live.submit(f'DETECT Match(edge:{{}}) FROM "{iso(old[0] + 1)}" TO WINDOW 60s AS m')
    assert live.events("m")["status"].to_pylist() == ["MATCHED"]


def test_graphs_of_instances(days: None, tmp_path: Path) -> None:
    """Breaks when a time before the log has not the graph of the last instance before it, or a damaged one is taken."""
    given = records(7, 400)
    live = fed(tmp_path, given, retention=60, limits=gf.stream.Limits(instances=4))
    begin = first_entry(tmp_path)
    old = sorted((one for one in checkpoints(tmp_path) if one.entry < begin), key=lambda one: one.entry)
    assert 1 <= len(old) <= 5

    def expected(until: float) -> int:
        plain = gf.stream.LiveGraph(lateness=3)
        plain.feed([one for one in given if one["t"] <= until])
        plain.end()
        return plain.graph(parallel="keep").num_edges

    graphs = [live.graph(at=old[0].time / 1e6 + more, parallel="keep") for more in (0, 5)]
    assert graphs[0].num_edges == graphs[1].num_edges == expected(old[0].time / 1e6)
    with pytest.raises(gf.errors.InputError, match="the log does not go back that far"):
        live.graph(at=old[0].time / 1e6 - 1)
    query = f'DETECT Match(vertex:{{}}) FROM "{iso(old[0].time / 1e6 + 1)}" TO AS m'
    for one in old[1:]:
        one.path.write_bytes(b"damaged")
    live.submit(query)
    times = {event["time"].timestamp() for event in live.events("m").to_pylist()}
    assert not times & {one.time / 1e6 for one in old[1:]}
    for one in checkpoints(tmp_path):
        if one.entry >= begin:
            one.path.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="no valid checkpoint from which the log goes on"):
        live.submit(query.replace("AS m", "AS n"))
    assert "n" not in live.topics


def test_late_records_need_the_log(days: None, tmp_path: Path) -> None:
    """Breaks when instances are compared although the order of changes within them is needed."""
    live = fed(tmp_path, records(3, 400), retention=60, late="apply")
    old = [one for one in checkpoints(tmp_path) if one.entry < first_entry(tmp_path)]
    assert old
    with pytest.raises(gf.stream.CgqlError, match="the log does not go back that far"):
        live.submit(f'DETECT Match(vertex:{{}}) FROM "{iso(old[-1].time / 1e6 + 1)}" TO AS m')
