"""The golden dataflow of updates on worker processes: ``python benchmarks/stream_golden.py``.

S (20 ms) sends to P (10), P to A (15), B (15) and C (30), which send to L (5); each has a worker process of its own
(docs/specs/updates.md, section 6). P, A and C are replaced again and again, at random times. For each strategy, the
output has refresh and lag latency beside the bounds that were predicted, messages that were lost, and messages whose
elements had different versions.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _harness
from stream_updates import exceeded

import goffish as gf
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.topology import Topology
from goffish.streaming.updates.rollout import UpdateReport
from goffish.streaming.updates.versions import Strategy

_WORKERS = {"P": 1, "A": 1, "B": 1, "C": 1, "L": 1}
_PAUSE_S = (0.3, 0.8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phases", type=int, default=100, help="updates of each strategy")
    parser.add_argument("--rate", type=float, default=20.0, help="messages per second")
    parser.add_argument("--strategies", nargs="*", type=Strategy, default=list(Strategy))
    given = parser.parse_args()
    print(_harness.machine_line())
    print(f"\n{given.phases} updates of P, A and C at {given.rate:g} messages/s; milliseconds, medians and maxima\n")
    print("| strategy | refresh | bound | lag | bound | longer than a bound | lost | bound | mixed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for strategy in given.strategies:
        reports, lost, mixed = run(strategy, given.phases, given.rate)
        late = [text for name in ("refresh_s", "lag_s") for text in exceeded(reports, name)]
        cells = []
        for name in ("refresh_s", "lag_s"):
            times = [1e3 * (getattr(one, name) or 0.0) for one in reports]
            bounds = [1e3 * (one.predicted[name] or 0.0) for one in reports if one.predicted is not None]
            cells += [f"{statistics.median(each):,.0f}, {max(each):,.0f}" for each in (times, bounds)]
        most = sum(one.predicted["lost"] or 0 for one in reports if one.predicted is not None)
        print(f"| {strategy} | {' | '.join(cells)} | {len(late)} | {lost} | {most:,.0f} | {mixed} |", flush=True)
        for text in late:
            print(f"<!-- {strategy}: {text} -->")


def element(name: str, milliseconds: int, version: int) -> Callable[[Any], Any]:
    """Return the function of an element, which adds its version to a message."""

    def function(message: dict[str, int]) -> dict[str, int]:
        time.sleep(milliseconds / 1e3)
        return message | {name: version}

    return function


def flow(version: int, rate: float, out: Path) -> Topology:
    """Return a version of the dataflow; P, A and C have new logic."""
    made = gf.stream.Flow("golden")
    source = made.source(gf.stream.generate(lambda n: {"n": n}, rate=rate))
    first = source.map(element("S", 20, 0), name="S").map(element("P", 10, version), name="P")
    ways = [
        first.map(element(name, milliseconds, number), name=name)
        for name, milliseconds, number in (("A", 15, version), ("B", 15, 0), ("C", 30, version))
    ]
    joined = ways[0].union(*ways[1:], name="L")
    joined.map(element("L", 5, 0), name="last").sink(gf.stream.write_json_lines(out))
    return made.check()


def run(strategy: Strategy, phases: int, rate: float) -> tuple[list[UpdateReport], int, int]:
    """Update the running dataflow again and again; return reports, and messages that were lost and mixed."""
    chance = random.Random(str(strategy))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        cluster = Cluster(flow(0, rate, out), _WORKERS, checkpoint_s=0.1)
        try:
            wait(cluster, lambda: cluster.metrics()["last"].received > 5 * rate)
            for version in range(1, phases + 1):
                cluster.update(flow(version, rate, out), strategy)
                wait(cluster, lambda: not cluster.updating)
                pause = time.monotonic() + chance.uniform(*_PAUSE_S)
                wait(cluster, lambda until=pause: time.monotonic() > until)  # type: ignore[misc]
            reports = cluster.updates
            cluster.stop()
            wait(cluster, lambda: cluster.finished)
        finally:
            cluster.close()
        rows = [json.loads(line) for part in out.glob("part-*") for line in part.read_text().splitlines()]
    counts = Counter(row["n"] for row in rows)
    lost = 3 * (max(counts) + 1) - sum(counts.values())
    mixed = sum(row["P"] != row[name] for row in rows for name in ("A", "C") if name in row)
    return reports, lost, mixed


def wait(cluster: Cluster, until: Callable[[], bool]) -> None:
    """Let a flow work until something holds."""
    while not until():
        cluster.poll()


if __name__ == "__main__":
    main()
