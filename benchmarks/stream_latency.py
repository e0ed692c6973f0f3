"""Latency of records through four operators in four processes: ``python benchmarks/stream_latency.py``.

Each operator runs on a worker of its own; records cross from process to process three times, the last time by key. The
peak is measured first, without a rate; then the latency from the moment a record is read until the sink has it, at
parts of the peak. With exactly-once delivery, results cross workers when a checkpoint contains them.
"""

from __future__ import annotations

import argparse
import statistics
import time

import _harness

import goffish as gf
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.runtime.plan import Delivery
from goffish.streaming.topology import Topology

_WORKERS = {"second": 1, "third": 1, "fourth": 1}
_WARM_S = 6.0


def step(number: int) -> int:
    """Do a little work for a record."""
    return number * 31 % 1_000_003


def keep(total: int, number: int) -> int:
    """Add a record to the state of its key."""
    return total + number


def flow(rate: float | None) -> Topology:
    """Return a flow of four operators."""
    made = gf.stream.Flow("latency")
    stream = made.source(gf.stream.generate(rate=rate), name="numbers").map(step, name="first")
    stream = stream.map(step, name="second").map(step, name="third")
    sums = stream.key_by(lambda number: number % 1000).reduce(keep, initial=0, name="fourth")
    sums.sink(gf.stream.call(lambda pair: None), name="out")
    return made.check()


def run(rate: float | None, delivery: Delivery, seconds: float, checkpoint_s: float) -> tuple[float, float, float]:
    """Return the rate of the last operator, and median and 99th percentile of the latency in milliseconds."""
    cluster = Cluster(flow(rate), _WORKERS, delivery=delivery, checkpoint_s=checkpoint_s)
    try:
        begun = time.monotonic()
        while time.monotonic() < begun + _WARM_S + seconds:
            cluster.poll()
        metrics = cluster.metrics()
        latency = metrics["out"].recent_latency
        median, worst = (None if latency is None else latency.quantile(part) for part in (0.5, 0.99))
        if median is None or worst is None:
            raise RuntimeError(f"no record reached the sink: {metrics}")
        return metrics["fourth"].recent_rate, 1e3 * median, 1e3 * worst
    finally:
        cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a run, after 6 s without measurement")
    parser.add_argument("--checkpoint", type=float, default=0.1, help="seconds between checkpoints")
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)))
    print()
    print("| delivery | part of the peak | records/s | median, ms | 99 %, ms |")
    print("|---|---|---|---|---|")
    for delivery in (Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE):
        peaks = [run(None, delivery, given.seconds, given.checkpoint)[0] for _ in range(min(3, given.repeats))]
        peak = statistics.median(peaks)
        print(f"| {delivery} | 1 | {peak:,.0f} | | |", flush=True)
        for part in (0.5, 0.1):
            runs = [run(part * peak, delivery, given.seconds, given.checkpoint) for _ in range(given.repeats)]
            rate, median, worst = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"| {delivery} | {part} | {rate:,.0f} | {median:.2f} | {worst:.1f} |", flush=True)


if __name__ == "__main__":
    main()
