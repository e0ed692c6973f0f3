"""Updates of a running flow: what each strategy costs at half of the peak rate.

    python benchmarks/stream_updates.py [--workers 2] [--seconds 8]

A flow parses records, counts them by key and formats the counts. Both functions before and behind the count are
replaced while it runs.
"""

from __future__ import annotations

import argparse
import statistics
import time

import _harness

import goffish as gf
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.topology import Topology
from goffish.streaming.updates.rollout import UpdateReport
from goffish.streaming.updates.versions import Strategy

_KEYS, _REPEATS, _POLL_S, _WINDOW_S = 1000, 5, 0.1, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    print(_harness.machine_line())
    peak = statistics.median(run(None, given.workers, given.seconds / 2, None)[0] for _ in range(3))
    print(f"\npeak: {peak:,.0f} records/s; updates at {peak / 2:,.0f} records/s, medians of {_REPEATS} runs\n")
    print("| strategy | worst second | deploy, ms | complete, ms | refresh, ms | lag, ms | lost |")
    print("|---|---|---|---|---|---|---|")
    for strategy in Strategy:
        found = [run(peak / 2, given.workers, given.seconds, strategy) for _ in range(_REPEATS)]
        reports = [report for _, _, report in found if report is not None]
        assert all(report.state == "complete" for report in reports)
        times = [
            1000 * statistics.median(getattr(report, name) or 0.0 for report in reports)
            for name in ("deploy_s", "seconds", "refresh_s", "lag_s")
        ]
        lost = statistics.median(report.lost for report in reports)
        share = statistics.median(share for _, share, _ in found)
        print(f"| {strategy} | {share:.1%} | {' | '.join(f'{ms:,.0f}' for ms in times)} | {lost:,.0f} |", flush=True)


def flow(version: int, rate: float | None) -> Topology:
    """One version of the flow."""
    made = gf.stream.Flow("counts")
    read = made.source(gf.stream.generate(lambda n: {"text": f"{n % _KEYS}"}, rate=rate))
    parsed = read.map(lambda row: {"key": int(row["text"]), "version": version}, name="parse").key_by("key")
    counted = parsed.reduce(lambda total, row: total + 1, initial=0, name="count")
    counted.map(lambda row: f"{version}: {row['key']} {row['value']}", name="format").sink(gf.stream.call(len))
    return made.check()


def run(
    rate: float | None, workers: int, seconds: float, strategy: Strategy | None
) -> tuple[float, float, UpdateReport | None]:
    """Run the flow, and update it in the middle; return rate, worst second of the results, and the report."""
    cluster = Cluster(flow(1, rate), workers, checkpoint_s=0.2)
    times: list[float] = []
    counts: list[int] = []
    try:
        while not cluster.metrics()["format"].received:
            cluster.poll()
        begun, asked = time.monotonic(), None
        while (now := time.monotonic()) < begun + seconds:
            cluster.poll()
            if not times or now >= times[-1] + _POLL_S:
                times.append(now)
                counts.append(cluster.metrics()["parse"].received)
            if strategy is not None and asked is None and now > begun + seconds / 2:
                asked = now
                cluster.update(flow(2, rate), strategy)
        report = cluster.updates[0] if cluster.updates else None
    finally:
        cluster.close()
    first = next(at for at, now in enumerate(times) if now > begun + seconds / 4)
    last = len(times) - 1 if asked is None else max(at for at, now in enumerate(times) if now <= asked)
    before = (counts[last] - counts[first]) / (times[last] - times[first])
    worst = before
    for at in range(last, len(times)):
        end = next((other for other in range(at, len(times)) if times[other] >= times[at] + _WINDOW_S), None)
        if end is not None:
            worst = min(worst, (counts[end] - counts[at]) / (times[end] - times[at]))
    return before, worst / before, report


if __name__ == "__main__":
    main()
