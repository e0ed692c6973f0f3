"""Follow the consumption of areas of a power grid: ``python examples/smart_grid.py``.

Each substation has 50 customers with a meter that is read every minute. Some areas have a high consumption for half an
hour; customers of an area with a low one send messages to every third of these. Two stream processors turn readings
into attributes, and messages into edges that are removed after an hour. The queries are in ``smart_grid.cgql``: which
areas save after a high consumption, and which of them after messages? What they find is compared with the truth, and a
page of the events is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import goffish as gf
from goffish import plot

QUERIES = Path(__file__).with_suffix(".cgql")
CUSTOMERS, SHOWN = 50, 10
#: Of the sum of an area, whose 50 customers consume 100 each as a rule.
PARAMETERS = {"low": 4000, "high": 6000}
LINES = "DETECT Motif((source:{area < shown})-[edge]->(target:{area < shown})) AS lines"
#: Of the areas, by the last digit of their number: low from the beginning; high, and then low, after messages or not;
#: high, and then as before. All others are as they are, and their customers send messages to each other.
LOW, INFLUENCED, SAVING, BUSY = range(4)
HIGH_FROM, HIGH_UNTIL, LOW_UNTIL, MESSAGES = 10, 40, 60, (20, 25, 30)
Message = tuple[float, str, str]


class Minute(NamedTuple):
    """Readings, in the order of their times, and messages."""

    times: Any
    meters: list[str]
    readings: Any
    messages: list[Message]


def customer(number: int) -> str:
    return f"c{number:06}"


def level(kind: int, minute: int) -> float:
    """Return by how much the consumption of an area differs from the usual one."""
    if kind == LOW:
        return 0.5
    if kind in (INFLUENCED, SAVING, BUSY) and HIGH_FROM <= minute < HIGH_UNTIL:
        return 1.5
    return 0.5 if kind in (INFLUENCED, SAVING) and HIGH_UNTIL <= minute < LOW_UNTIL else 1.0


def grid(areas: int, minutes: int, seed: int) -> Iterator[Minute]:
    """Return what happens in each minute: random walks of the meters, and messages to those who have received many."""
    rng = np.random.default_rng(seed)
    count = areas * CUSTOMERS
    kinds = np.arange(count) // CUSTOMERS % 10
    walks, order = rng.integers(90, 111, count), rng.permutation(count)
    names, talkative = [customer(number) for number in range(count)], np.flatnonzero(kinds > BUSY)
    receivers = talkative.tolist()
    for minute in range(minutes):
        walks = np.clip(walks + rng.integers(-3, 4, count), 90, 110)
        levels = np.array([level(kind, minute) for kind in range(10)])
        times = 60 * (minute + (np.arange(count) + 0.5) / count)
        messages: list[tuple[float, int, int]] = []
        for time, sender in zip(60 * (minute + np.sort(rng.random(areas))), rng.choice(talkative, areas), strict=True):
            receiver = receivers[rng.integers(len(receivers))]
            receivers.append(receiver)
            messages.append((float(time), int(sender), receiver))
        if minute in MESSAGES:
            for area in range(INFLUENCED, areas, 10):
                sender, receiver = rng.integers(CUSTOMERS, size=2) + CUSTOMERS * np.array([area - 1, area])
                messages.append((60 * minute + 30.0, int(sender), int(receiver)))
        named = [(time, names[sender], names[receiver]) for time, sender, receiver in sorted(messages)]
        readings = np.rint(walks * levels[kinds]).astype(np.int64)
        yield Minute(times, [names[number] for number in order], readings[order], named)


def lines(areas: int) -> Iterator[dict[str, Any]]:
    """Return the records of the fixed part: stations in a ring, and their customers."""
    for area in range(areas):
        yield {"op": "+v", "id": f"s{area}", "attrs": {"kind": "station", "area": area}}
        yield {"op": "+e", "src": f"s{area}", "dst": f"s{(area + 1) % areas}", "attrs": {"type": "trunk"}}
        for number in range(CUSTOMERS * area, CUSTOMERS * (area + 1)):
            yield {"op": "+v", "id": customer(number), "attrs": {"kind": "customer", "area": area, "usage": 100}}
            yield {"op": "+e", "src": f"s{area}", "dst": customer(number), "attrs": {"type": "power"}}


def usage(minute: Minute) -> pa.Table:
    """Stream processor: readings to attributes of vertices."""
    fixed = {name: pa.array([text]).dictionary_encode() for name, text in (("op", "+av"), ("stream", "meters"))}
    columns = {name: pa.DictionaryArray.from_arrays(np.zeros(len(minute.meters), np.int32), one.dictionary)
               for name, one in fixed.items()}  # fmt: skip
    return pa.table({"t": minute.times, "id": minute.meters, "usage": minute.readings, **columns})


def edges(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Stream processor: messages to edges."""
    for time, sender, receiver in messages:
        yield {
            "t": time, "stream": "social", "op": "+e", "src": sender, "dst": receiver, "attrs": {"type": "message"},
        }  # fmt: skip


def base(areas: int) -> list[dict[str, Any]]:
    """Return the records of the grid, and those with which both streams begin."""
    streams = [{"t": 0.001, "op": "heartbeat", "stream": name} for name in ("meters", "social")]
    return [{"t": -1.0, "op": "txn", "stream": "meters", "updates": list(lines(areas))}, *streams]


def records(minutes: Iterable[Minute]) -> Iterator[tuple[pa.Table, list[dict[str, Any]]]]:
    """Return the records of both stream processors, minute by minute; the live graph puts them in order."""
    expiry = gf.stream.LinkExpiry("1h")
    for number, minute in enumerate(minutes, 1):
        end = {"t": 60.0 * number, "op": "heartbeat", "stream": "social"}
        yield usage(minute), list(expiry([*edges(minute.messages), end]))


def areas_of(events: pa.Table) -> set[int]:
    """Return the numbers of the stations in the clusters of events."""
    members = {member for row in events.to_pylist() for member in row["members"]}
    return {int(member[1:]) for member in members if member.startswith("s")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--areas", type=int, default=10, help="number of substations, 10 or more [default: 10]")
    parser.add_argument("--minutes", type=int, default=90, help="minutes of readings, 60 to 1,000 [default: 90]")
    parser.add_argument("--seed", type=int, default=0, help="random seed [default: 0]")
    parser.add_argument("--page", default="smart_grid.html", help="page of events [default: %(default)s]")
    options = parser.parse_args()
    if not 10 <= options.areas <= 10_000 or not 60 <= options.minutes <= 1000 or options.seed < 0:
        parser.error("accepted are 10 to 10,000 areas, 60 to 1,000 minutes and a seed from 0 on")
    try:
        plot.check_graph_events(options.page)
    except gf.GoffishError as error:
        parser.error(str(error))
    live = gf.stream.LiveGraph(lateness=0.001)
    live.feed(base(options.areas))
    live.submit(QUERIES.read_text(encoding="utf-8"), PARAMETERS)
    live.submit(LINES, {"shown": SHOWN})
    for readings, messages in records(grid(options.areas, options.minutes, options.seed)):
        live.feed(readings)
        live.feed(messages)
    last = 60.0 * options.minutes + 1
    live.feed([{"t": last, "op": "heartbeat", "stream": name} for name in ("meters", "social")])
    print(f"{CUSTOMERS * options.areas:,} customers in {options.areas:,} areas, {live.counts['applied']:,} records")
    kinds = {kind: {*range(kind, options.areas, 10)} for kind in range(10)}
    truth = {
        "C2": kinds[INFLUENCED] | kinds[SAVING] | kinds[BUSY], "dropped": kinds[INFLUENCED] | kinds[SAVING],
        "influenced": kinds[INFLUENCED],
    }  # fmt: skip
    wrong = 0
    for topic, what in (("C2", "high"), ("dropped", "low after that"), ("influenced", "low after messages")):
        events = live.events(topic)
        found = areas_of(events.filter(pa.compute.is_in(events["status"], pa.array(["CREATED", "EVOLVED"]))))
        wrong += found != truth[topic]
        print(f"{topic + ':':11} {len(found):,} of {len(truth[topic]):,} areas ({what})", end="")
        print(f", {len(found - truth[topic]):,} others")
    shown = {topic: live.events(topic) for topic in ("C1", "C2", "infl", "dropped", "influenced")}
    print(plot.write_graph_events(live.events("lines"), shown, options.page, title="Smart grid"))
    if wrong:
        sys.exit("the areas that were found are not those of the truth")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
