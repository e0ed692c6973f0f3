"""Updates of a running flow: what each strategy costs, beside the bounds that were predicted.

    python benchmarks/stream_updates.py [--workers 2] [--seconds 14] [--share 0.5] [--repeats 5]

A flow parses records, counts them by key and formats the counts. Both functions before and behind the count are
replaced while it runs at a share of its peak rate. A bound holds if no run took longer than 1.15 times the bound and
20 ms (docs/specs/updates.md, section 7.1).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator

import _harness

import goffish as gf
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.topology import Topology
from goffish.streaming.updates.rollout import UpdateReport
from goffish.streaming.updates.versions import Strategy

_KEYS, _POLL_S, _WINDOW_S = 1000, 0.1, 1.0
#: A measured time may exceed its bound by this much.
_FACTOR, _SLACK_S = 1.15, 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=14.0)
    parser.add_argument("--share", type=float, default=0.5, help="of the peak rate")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--strategies", nargs="*", type=Strategy, default=list(Strategy))
    given = parser.parse_args()
    print(_harness.machine_line())
    peak = statistics.median(run(None, given.workers, given.seconds / 2, None)[0] for _ in range(3))
    rate = given.share * peak
    print(f"\npeak: {peak:,.0f} records/s; updates at {rate:,.0f} records/s, medians of {given.repeats} runs\n")
    print(
        "| strategy | worst second | deploy, ms | complete, ms | refresh, ms | bound | lag, ms | bound | lost | bound |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    # Workers report counts each tenth of a second, so that the worst of many seconds is low without an update too.
    shares = [run(rate, given.workers, given.seconds, None)[1] for _ in range(given.repeats)]
    print(f"| no update | {statistics.median(shares):.1%} |{' |' * 8}", flush=True)
    late: list[str] = []
    for strategy in given.strategies:
        found = [run(rate, given.workers, given.seconds, strategy) for _ in range(given.repeats)]
        reports = [report for _, _, report in found if report is not None]
        assert all(report.state == "complete" for report in reports)
        share = statistics.median(share for _, share, _ in found)
        cells = [
            f"{share:.1%}",
            *(_milliseconds(getattr(one, name) for one in reports) for name in ("deploy_s", "seconds")),
        ]
        for name in ("refresh_s", "lag_s"):
            cells += [_milliseconds(getattr(one, name) for one in reports), _bound(reports, name)]
            late += [f"{strategy} {name}: {text}" for text in exceeded(reports, name)]
        cells += [f"{statistics.median(one.lost for one in reports):,.0f}"]
        known = [one.predicted["lost"] for one in reports if one.predicted is not None]
        cells.append(f"{statistics.median(known):,.0f}" if known else "-")
        late += [f"{strategy} lost: {one.lost:,} of at most {one.predicted['lost']:,}" for one in reports
                 if one.predicted is not None and one.lost > one.predicted["lost"]]  # fmt: skip
        unknown = sum(one.predicted is None for one in reports)
        late += [f"{strategy}: no bounds in {unknown} runs"] * (unknown > 0)
        print(f"| {strategy} | {' | '.join(cells)} |", flush=True)
    print("\nall bounds held" if not late else "\nexceeded:\n" + "\n".join(late))


def _milliseconds(times: Iterable[float | None]) -> str:
    return f"{1000 * statistics.median(time or 0.0 for time in times):,.0f}"


def _bound(reports: list[UpdateReport], name: str) -> str:
    known = [one.predicted[name] for one in reports if one.predicted is not None]
    return _milliseconds(known) if known else "-"


def exceeded(reports: list[UpdateReport], name: str) -> Iterator[str]:
    """Iterate over runs that took longer than their bound."""
    for one in reports:
        bound = None if one.predicted is None else one.predicted[name]
        measured = getattr(one, name) or 0.0
        if bound is not None and measured > _FACTOR * bound + _SLACK_S:
            yield f"{1000 * measured:,.0f} ms, bound {1000 * bound:,.0f} ms"


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
            if asked is None and now > begun + seconds / 2:
                asked = now
                if strategy is not None:
                    cluster.update(flow(2, rate), strategy)
        report = cluster.updates[0] if cluster.updates else None
    finally:
        cluster.close()
    first = next(at for at, now in enumerate(times) if now > begun + seconds / 4)
    last = max(at for at, now in enumerate(times) if asked is None or now <= asked)
    before = (counts[last] - counts[first]) / (times[last] - times[first])
    worst = before
    for at in range(last, len(times)):
        end = next((other for other in range(at, len(times)) if times[other] >= times[at] + _WINDOW_S), None)
        if end is not None:
            worst = min(worst, (counts[end] - counts[at]) / (times[end] - times[at]))
    return before, worst / before, report


if __name__ == "__main__":
    main()
