"""The examples of a power grid and of a network: what they find is exactly what was planted, also at full size."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import goffish as gf
from tests.streaming.graphs.reference import Event, Reference
from tests.streaming.graphs.test_queries import Followed
from tests.streaming.graphs.test_reference import shown

ROOT = Path(__file__).parents[3]


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module(request.param)


network_security = pytest.mark.parametrize("example", ["network_security"], indirect=True)
smart_grid = pytest.mark.parametrize("example", ["smart_grid"], indirect=True)


def same_events(followed: Followed, reference: Reference) -> None:
    def texts(events: list[Event]) -> list[str]:
        return [shown(one) for one in events]

    for topic in {one.topic for one in reference.events}:
        found, wanted = (
            [one for one in events if one.topic == topic] for events in (followed.events, reference.events)
        )
        assert texts(found) == texts(wanted), topic
    assert len(followed.events) == len(reference.events) > 0


@pytest.mark.slow
@network_security
@pytest.mark.parametrize("together", [60, 1])
def test_events_of_a_network_are_those_of_the_reference(example: ModuleType, together: int) -> None:
    """Breaks when an event of a hundredth of the network differs in its time, status, key, values or order."""
    data = example.network(100, 7, 1)
    text = example.QUERIES.read_text(encoding="utf-8")
    live, reference = gf.stream.LiveGraph(lateness=0), Reference()
    followed = Followed(live)
    followed.submit(text, example.PARAMETERS)
    reference.submit(text, **example.PARAMETERS)
    for part in example.records(data):
        records = [one | {"t": in_seconds(one["t"])} for one in part]
        groups = [records[first : first + together] for first in range(0, len(records), together)]
        given = [
            {"t": group[-1]["t"], "op": "txn", "updates": [update for one in group for update in updates(one)]}
            for group in groups
        ]
        live.feed(given)
        reference.feed(given)
    assert live.counts["accepted"] == live.counts["applied"]
    same_events(followed, reference)
    assert {one.topic for one in followed.events} == {"scans", "bad", "good", "threat", "spread"}


@pytest.mark.slow
@smart_grid
def test_events_of_a_grid_are_those_of_the_reference(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when an event of ten small areas differs in its time, status, key, values or order."""
    for name, value in {
        "CUSTOMERS": 5, "PARAMETERS": {"low": 400, "high": 600}, "HIGH_FROM": 2, "HIGH_UNTIL": 5, "LOW_UNTIL": 7,
        "MESSAGES": (3,),
    }.items():  # fmt: skip
        monkeypatch.setattr(example, name, value)
    text = example.QUERIES.read_text(encoding="utf-8")
    live, reference = gf.stream.LiveGraph(lateness=0.001), Reference()
    followed = Followed(live)
    live.feed(example.base(10))
    reference.feed(one for one in example.base(10) if one["op"] == "txn")
    reference.advance(0.0)
    followed.submit(text, example.PARAMETERS)
    reference.submit(text, **example.PARAMETERS)
    for readings, messages in example.records(example.grid(10, 9, 2)):
        live.feed(readings)
        live.feed(messages)
        rows = [{"t": row["t"], "op": row["op"], "id": row["id"], "attrs": {"usage": row["usage"]}}
                for row in readings.to_pylist()]  # fmt: skip
        rows += [one | {"t": in_seconds(one["t"])} for one in messages if one["op"] != "heartbeat"]
        reference.feed(sorted(rows, key=lambda one: one["t"]))
    live.end()
    reference.advance(86_400.0)
    same_events(followed, reference)
    assert {one.topic for one in followed.events} == {"C1", "C2", "infl", "dropped", "influenced"}


def updates(record: dict[str, Any]) -> list[dict[str, Any]]:
    alone = {name: value for name, value in record.items() if name != "t"}
    return record["updates"] if record["op"] == "txn" else [alone]


def in_seconds(time: Any) -> float:
    return time if isinstance(time, int | float) else float(time.timestamp())


@network_security
@pytest.mark.slow
def test_each_infected_host_of_ten_thousand_is_found_within_a_window_and_no_other(example: ModuleType) -> None:
    """Breaks when a host is missed, found late, or found though it is not infected."""
    data = example.network(10_000, 7, 0)
    assert len(data.infected) == 100
    live = gf.stream.LiveGraph(lateness=0)
    live.submit(example.QUERIES.read_text(encoding="utf-8"), example.PARAMETERS)
    for part in example.records(data):
        live.feed(part)
    assert live.counts["accepted"] == live.counts["applied"] > 300_000
    raised = [one for one in live.events("scans").to_pylist() if one["status"] == "RAISED"]
    assert {one["vertex"]: True for one in raised}.keys() == data.infected.keys()
    assert len(raised) == len(data.infected)
    for one in raised:
        assert 0 < one["time"].timestamp() - data.infected[one["vertex"]] <= 60
    [bad] = live.answers("bad").to_pylist()
    assert set(bad["members"]) == data.infected.keys()
    first_busy: dict[str, int] = {}
    for minute, packets in enumerate(data.minutes, 1):
        for host, sent in Counter(sender for _, sender, _ in packets).items():
            if sent > example.PARAMETERS["busy"]:
                first_busy.setdefault(host, 60 * minute)
    assert first_busy.keys() == data.infected.keys()
    [threat] = live.events("threat").to_pylist()
    assert (threat["status"], threat["time"].timestamp()) == ("REACHABLE", 60 * example.ANNOUNCED)
    spread = [one for one in live.events("spread").to_pylist() if one["status"] == "MATCHED"]
    assert {one["id"] for one in spread} == {host for host, time in first_busy.items() if time > 60 * example.ANNOUNCED}


@smart_grid
@pytest.mark.slow
def test_areas_of_ten_thousand_customers_are_exactly_the_planted_ones(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Breaks when an area is missed, or found though it did not save."""
    page = tmp_path / "grid.html"
    monkeypatch.setattr(sys, "argv", ["smart_grid.py", "--areas", "200", "--page", str(page)])
    example.main()
    said = capsys.readouterr().out
    assert "10,000 customers in 200 areas" in said
    for line in ("60 of 60 areas (high)", "40 of 40 areas (low after that)", "20 of 20 areas (low after messages)"):
        assert f"{line}, 0 others" in said
    assert page.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("example", "lines"),
    [
        (
            "network_security",
            ["scans:  3 hosts, 0 of them", "bad:    clusters with 3 hosts, 0 of", "1 times", "spread: 1"],
        ),
        ("smart_grid", ["C2:         3 of 3", "dropped:    2 of 2", "influenced: 1 of 1"]),
    ],
    indirect=["example"],
)
@pytest.mark.slow
def test_examples_find_what_was_planted(
    example: ModuleType, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    page = tmp_path / "page.html"
    monkeypatch.setattr(sys, "argv", ["example.py", "--page", str(page)])
    example.main()
    said = capsys.readouterr().out
    for line in lines:
        assert line in said
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("example", ["network_security", "smart_grid"], indirect=True)
@pytest.mark.parametrize("wrong", [["--minutes", "1"], ["--page", "page.txt"], ["--seed", "-1"], ["--what"]])
def test_wrong_options_end_an_example(
    example: ModuleType, wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["example.py", *wrong])
    with pytest.raises(SystemExit) as ended:
        example.main()
    assert ended.value.code == 2
    assert "example.py: error: " in capsys.readouterr().err.splitlines()[-1]
