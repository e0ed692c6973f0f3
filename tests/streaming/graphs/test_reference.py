"""The oracle of continuous queries against the worked examples, and against digests of random streams."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.streaming.graphs.examples import EXAMPLES, Example
from tests.streaming.graphs.notation import record
from tests.streaming.graphs.reference import Event, Reference

QUERIES = """
DETECT Reach(source:{x < 2}, sink:{x > 7}) WHERE edge:{type = a} AS G1;
DETECT Cluster(size >= 3, sum(node.x) > 12) WHERE edge:{type = a} AS G2;
DETECT Neighbourhood(center:{x = 5}, hops: 2) AS G3;
DETECT Motif((a)--(b)--(c)--(a)) AS G4;
DETECT Motif((p:{x > 4})-[m:{type = a}]->(q)-[n:{type = b}]->(s), p.x != s.x) AS G5;
DETECT Degree(degree >= 3, clear: 2, direction: out, distinct: true) WINDOW 40s AS G6;
DETECT Component(members: true, grow: 4) WHERE edge:{type = b} AS G7;
DETECT Reach(source:{x = 0}, sink:{x = 9}, hops: 3, direction: both) WINDOW 50s EMIT EVERY 10s AS G8;
DETECT Evolved(G2) WHERE sum(node.x) < 8 AND SUCCEEDS G2 AS G9
"""
COUNTS = {
    1: (535, "18f58c96409cb10b", {"G2 SPLIT": 2, "G4 MATCHED": 173, "G7 PARTED": 16, "G8 REACHABLE": 7}),
    2: (549, "e04fb4325848cce9", {"G2 SPLIT": 2, "G4 MATCHED": 82, "G7 PARTED": 32, "G8 REACHABLE": 0}),
    3: (607, "b9c477fc53abbf68", {"G2 MERGED": 4, "G4 MATCHED": 181, "G7 PARTED": 13, "G8 REACHABLE": 8}),
}


def shown(event: Event) -> str:
    """Return an event in the notation of the examples."""

    def text(value: Any) -> str:
        if isinstance(value, set):
            return "{" + ",".join(sorted(map(str, value))) + "}"
        # Halves are rounded up, though the last digit of a sum depends on its order.
        return f"{value + 1e-12:.6f}" if isinstance(value, float) else f"{value}"

    key = event.key
    if isinstance(key, tuple):
        key = ", ".join("[" + " ".join(part) + "]" if isinstance(part, tuple) else f"{part}" for part in key)
        key = f"({key})"
    values = " ".join(f"{name}={text(value)}" for name, value in event.values.items())
    return f"{event.t:g} {event.topic} {event.status} {key} {values}{' initial' * event.initial}".replace(
        "  ", " "
    ).strip()


def steps(lines: str) -> Iterator[tuple[str, str, list[str]]]:
    """Return what is done, if it is a command, and the events that follow."""
    for line in lines.strip().splitlines():
        done, _, events = line.partition(" -> ")
        expected = [one.strip() for one in events.split(" ; ")] if events else []
        time, _, rest = done.partition(" ")
        if rest.startswith("submit "):
            yield time, rest.removeprefix("submit "), expected
            continue
        *before, last = done.split(" ; ")
        for one in before:
            yield one, "", []
        yield last, "", expected


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    example: Example = EXAMPLES[name]
    engine = Reference()
    if example.queries:
        engine.submit(example.queries, **example.parameters)
    for done, command, expected in steps(example.lines):
        before = len(engine.events)
        if command:
            engine.advance(float(done))
            engine.submit(command, **example.parameters)
        else:
            engine.feed([record(done)])
        assert [shown(one) for one in engine.events[before:]] == expected, done


def stream(seed: int) -> Iterator[dict[str, Any]]:
    """A random stream; the same for everyone, as the generator of Python is."""
    rng, live, count = random.Random(seed), list[int](), 0
    for t in range(1, 301):
        x = rng.random()
        if x < 0.45 or not live:
            count += 1
            u, v, kind = rng.randrange(12), rng.randrange(12), rng.choice(["a", "b"])
            live.append(count)
            ends = {"src": f"v{u:02d}", "dst": f"v{v:02d}", "attrs": {"type": kind}}
            yield {"t": t, "op": "+e", "id": f"e{count}"} | ends
        elif x < 0.70:
            yield {"t": t, "op": "-e", "id": f"e{live.pop(rng.randrange(len(live)))}"}
        elif x < 0.90:
            v, y = rng.randrange(12), rng.randrange(10)
            yield {"t": t, "op": "+av", "id": f"v{v:02d}", "attrs": {"x": y}}
        elif x < 0.96:
            chosen, kind = rng.choice(live), rng.choice(["a", "b"])
            yield {"t": t, "op": "+ae", "id": f"e{chosen}", "attrs": {"type": kind}}
        else:
            yield {"t": t, "op": "-v", "id": f"v{rng.randrange(12):02d}"}


def digest(events: list[Event]) -> str:
    def plain(key: Any) -> Any:
        return [plain(one) for one in key] if isinstance(key, tuple) else key

    rows = [[int(one.t), one.topic, one.status, plain(one.key)] for one in events]
    lines = sorted(json.dumps(row, separators=(",", ":")) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 3])
def test_random_streams(seed: int) -> None:
    engine = Reference()
    engine.submit(QUERIES)
    engine.feed(stream(seed))
    engine.advance(400)
    count, expected, some = COUNTS[seed]
    found = Counter(f"{one.topic} {one.status}" for one in engine.events)
    assert len(engine.events) == count
    assert {name: found[name] for name in some} == some
    assert digest(engine.events) == expected
