"""Metrics of flows: histograms against NumPy, counters against the results, latencies against clocks in the flow."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish import stream
from goffish.streaming.metrics import Counts, Histogram, Meter

#: The bounds that a histogram can tell apart.
DURATIONS = st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=50)


@given(durations=DURATIONS, share=st.floats(0, 1))
def test_quantiles(durations: list[float], share: float) -> None:
    found = Histogram()
    for one in durations:
        found.add(one)
    exact = float(np.quantile(durations, share, method="inverted_cdf"))
    quantile = found.quantile(share)
    assert quantile is not None
    assert exact <= quantile <= 1.25 * exact * (1 + 1e-12)
    assert found.to_dict()["mean"] == pytest.approx(np.mean(durations))


@given(first=DURATIONS, second=DURATIONS)
def test_sums_and_differences(first: list[float], second: list[float]) -> None:
    a, b, both = Histogram(), Histogram(), Histogram()
    for one in first:
        a.add(one)
        both.add(one)
    for one in second:
        b.add(one)
        both.add(one)
    assert (a + b).counts == both.counts
    assert (both - b).counts == a.counts
    assert (both - b).total == pytest.approx(a.total)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 1e12])
def test_durations_beyond_the_buckets(seconds: float) -> None:
    found = Histogram()
    found.add(seconds, 3)
    assert found.count == 3
    assert len(found.buckets) == 1


def test_recent_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are those of the last seconds, whatever came before."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    flow = stream.Flow("rates")
    flow.source(stream.generate(1), name="a").sink(stream.collect(), name="b")
    meter = Meter(flow.check())
    counts = {"a": Counts(), "b": Counts()}
    for second in range(60):
        now = 100.0 + second
        for one in counts.values():
            one.received += 1000 if second < 30 else 10
            one.busy += 0.25
        found = meter.metrics({name: one.copy() for name, one in counts.items()}, {}, [], "running", None)
    assert found["a"].recent_rate == pytest.approx(10)
    assert found["a"].load == pytest.approx(0.25)
    assert found["a"].rate == pytest.approx((30 * 1000 + 30 * 10) / 59)


def test_counts_are_those_of_the_results(tmp_path: Path) -> None:
    flow, small = stream.Flow("counts"), stream.collect()
    parts = flow.source(stream.generate(lambda n: {"n": n}, count=1000), name="numbers").branch(
        {"small": lambda row: row["n"] < 250, "large": lambda row: row["n"] < 900}, name="parts"
    )
    parts["small"].sink(small, name="kept")
    parts["large"].sink(stream.write_json_lines(tmp_path / "large"), name="files")
    metrics = flow.run()
    lines = [line for file in (tmp_path / "large").iterdir() for line in file.read_text().splitlines()]
    assert len(small.values) == metrics["kept"].received == 250
    assert len(lines) == metrics["files"].received == 650
    sent = {(one.source, one.output, one.target): one.sent for one in metrics.channels}
    assert sent == {
        ("numbers", "", "parts"): 1000, ("parts", "small", "kept"): 250, ("parts", "large", "files"): 650,
    }  # fmt: skip
    for name, count in (("kept", 250), ("files", 650)):
        latency = metrics[name].latency
        assert latency is not None
        assert latency.count == count
    assert metrics["parts"].latency is None
    assert json.loads(json.dumps(metrics.to_dict()))["operators"][2]["latency"]["count"] == 250
    assert metrics.table.column_names[-2:] == ["latency_p50", "latency_p99"]


def test_latency_until_a_record_is_written() -> None:
    """The flow measures the time between its own calls of the source and of the sink."""
    measured: list[float] = []
    flow = stream.Flow("latency")
    source = flow.source(stream.generate(lambda n: time.monotonic(), count=3000))
    source.map(lambda at: at).sink(stream.call(lambda at: measured.append(time.monotonic() - at)), name="out")
    metrics = flow.run()
    latency = metrics["out"].latency
    assert latency is not None
    assert latency.count == len(measured) == 3000
    assert sum(measured) <= latency.total <= 3000 * metrics.seconds
    assert max(measured) <= (latency.quantile(1.0) or 0)


def test_latency_until_a_record_is_published(tmp_path: Path) -> None:
    """Files are published at the end, after all records were read; many batches are merged until then."""
    read: list[float] = []
    flow = stream.Flow("published")

    def make(number: int) -> dict[str, Any]:
        read.append(time.monotonic())
        return {"n": number}

    source = flow.source(stream.generate(make, count=5000, rate=50_000))
    source.sink(stream.write_json_lines(tmp_path / "out"), name="out")
    latency = flow.run(every="1h")["out"].latency
    assert latency is not None
    assert latency.count == 5000
    assert latency.total >= sum(read[-1] - one for one in read)


def test_latency_in_loops() -> None:
    """A record that goes round counts from when it was read, not from its last round."""
    measured: list[float] = []
    flow = stream.Flow("loops")
    loop = flow.loop("again")
    start = flow.source(stream.generate(lambda n: (time.monotonic(), 0), count=100))
    rounds = start.union(loop).map(lambda row: (row[0], row[1] + 1)).branch(
        {"again": lambda row: row[1] < 20, "done": lambda row: True}
    )  # fmt: skip
    loop.close(rounds["again"])
    rounds["done"].sink(stream.call(lambda row: measured.append(time.monotonic() - row[0])), name="out")
    latency = flow.run()["out"].latency
    assert latency is not None
    assert latency.count == len(measured) == 100
    assert latency.total >= sum(measured)


def test_counters_go_on_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"n": 1}\n' * 30)

    def run() -> Any:
        flow = stream.Flow("resumed")
        source = flow.source(stream.read_json_lines(path, follow=True), name="in")
        source.sink(stream.write_json_lines(tmp_path / "out"), name="out")
        return flow.run(checkpoint=tmp_path / "ck", until=lambda metrics: metrics.records % 30 == 0 < metrics.records)

    assert run()["in"].received == 30
    with path.open("a") as file:
        file.write('{"n": 1}\n' * 30)
    assert run()["in"].received in (30, 60)  # the first look may come before the first read


@pytest.mark.parametrize("latency", [None, Histogram()])
def test_counters_as_json(latency: Histogram | None) -> None:
    counts = Counts(received=3, busy=0.5, outputs={"": 2}, latency=latency)
    if latency is not None:
        latency.add(0.1, 3)
    assert Counts.read(json.loads(json.dumps(counts.to_dict()))) == counts
