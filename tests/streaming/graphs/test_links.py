"""Edges that expire, against windows of queries and by their times."""

from __future__ import annotations

import random
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError


def edge(time: float, source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"t": time, "op": "+e", "src": source, "dst": target, "attrs": {"type": "call"}} | more


def test_a_graph_without_old_edges_has_the_answers_of_a_window() -> None:
    """Breaks when an edge goes too early or too late, or is removed twice."""
    rng, names = random.Random(3), "abcdefgh"
    records = [edge(time, *rng.sample(names, 2)) for time in range(0, 7000, 7)]
    events = []
    expiry = gf.stream.LinkExpiry("1min")
    for clause, fed in (("", expiry), ("WINDOW 60s", iter)):
        live = gf.stream.LiveGraph(lateness=0)
        live.submit(f"DETECT Degree(degree >= 3) {clause} AS busy")
        for first in range(0, len(records), 7):
            live.feed(fed(records[first : first + 7]))
        live.feed(fed([{"t": 7040, "op": "heartbeat"}]))
        live.end()
        events.append(live.events("busy").select(["time", "status", "vertex", "degree"]).to_pylist())
        assert live.counts["unknown_element"] == live.counts["late"] == 0
    assert events[0] == events[1]
    assert len(events[0]) > 100
    assert len(expiry) == len({(one["src"], one["dst"]) for one in records if one["t"] > 7040 - 60})


def test_no_removal_has_the_time_of_another_record() -> None:
    """Breaks when a removal makes a record late, where records of equal times are."""
    added = {"op": "+e", "dst": "b", "attrs": {"type": "call"}}
    live, expiry = gf.stream.LiveGraph(lateness=0), gf.stream.LinkExpiry(10)
    both = {"t": 0, "op": "txn", "updates": [added | {"src": "a"}, added | {"src": "c"}]}
    live.feed(expiry([both, edge(10, "a", "b"), edge(20, "c", "d", stream="", seq=7)]))
    assert live.edges["id"].to_pylist() == ["c>d:call"]
    live.feed(expiry([{"t": 30, "op": "heartbeat"}]))
    counts = live.counts
    assert (counts["applied"], counts["late"], counts["rejected"], live.num_edges, len(expiry)) == (4, 0, 0, 0, 0)


def test_edges_that_were_removed_do_not_expire() -> None:
    expiry = gf.stream.LinkExpiry(10)
    group = {"t": 3, "op": "txn", "updates": [{"op": "+e", "src": "c", "dst": "d"}, {"op": "-e", "id": "e"}]}
    given = [edge(1, "a", "b", stream="net", seq=1), edge(2, "a", "b", id="e"), group, {"t": 99, "op": "heartbeat"}]
    found = list(expiry(given))
    assert [one for one in found if one in given] == given
    removed = [(one["t"].timestamp(), one["id"], one.get("stream")) for one in found if one not in given]
    assert removed == [(11, "a>b:call", "net"), (13, "c>d:", None)]
    assert not len(expiry)


def test_records_that_are_not_accepted_reach_the_live_graph() -> None:
    live = gf.stream.LiveGraph(lateness=0)
    bad: list[Any] = [7, {"op": "+e"}, {"t": "noon", "op": "+e", "src": 1, "dst": 2}, {"t": 1, "op": "+e", "id": [1]}]
    live.feed(gf.stream.LinkExpiry("1h")([*bad, edge(5, "a", "b")]))
    assert (live.counts["rejected"], live.num_edges) == (4, 1)


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match=r"after = '-1s': must be a positive duration"):
        gf.stream.LinkExpiry("-1s")
    expiry = gf.stream.LinkExpiry("1s")
    with pytest.raises(InputError, match="record 1: t = 4 is earlier than the record before; sort records by time"):
        list(expiry([edge(5, "a", "b"), edge(4, "a", "b")]))
    for wrong in ({"t": 1}, "file.jsonl", gf.stream.LiveGraph(lateness=0).edges):
        with pytest.raises(InputError, match="accepted are iterables of mappings"):
            list(expiry(wrong))
