"""Instances of operators, compared with plain Python over all records."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import JobError
from goffish.gofs.times import event_times
from goffish.streaming.batches import LAST, Batch
from goffish.streaming.operators import Instance, make_instance
from goffish.streaming.state import ALL, Delta
from goffish.streaming.topology import Topology

S = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def flow_of(build: Any, *, timed: bool = True) -> Topology:
    """A flow of one operator between a source and a sink."""
    flow = gf.stream.Flow("test")
    source = flow.source(gf.stream.from_iterable([]), time="t" if timed else None)
    build(source).sink(gf.stream.collect())
    return flow.check()


def instance_of(build: Any, *, timed: bool = True) -> Instance:
    return make_instance(flow_of(build, timed=timed).operators[1])


def batch_of(records: list[dict[str, Any]], arrow: bool = False) -> Batch:
    times = np.array([record["t"] for record in records], np.int64) * S
    return Batch(pa.RecordBatch.from_pylist(records) if arrow else records, times)


def rows(sent: list[Batch], output: str = "") -> list[Any]:
    return [row for batch in sent if batch.output == output for row in batch.rows()]


def second(moment: datetime) -> float:
    return (moment - EPOCH).total_seconds()


def cuts(records: list[Any], rng: random.Random) -> Iterator[list[Any]]:
    while records:
        size = rng.randint(1, 5)
        yield records[:size]
        records = records[size:]


def add_value(total: int, record: dict[str, Any]) -> int:
    return total + int(record["v"])


RECORDS = st.lists(
    st.fixed_dictionaries({"k": st.sampled_from(["a", "b", "c"]), "t": st.integers(0, 60), "v": st.integers(-9, 9)}),
    min_size=1,
    max_size=40,
)


def drive(
    instance: Instance, records: list[dict[str, Any]], *, arrow: bool, lateness: int, seed: int
) -> tuple[list[Any], list[Any]]:
    """Results and late records; in between, state moves to a new instance as after a failure."""
    rng, found, late, latest = random.Random(seed), [], [], 0
    saved: list[Delta] = []
    for part in cuts(records, rng):
        sent = instance.process(0, batch_of(part, arrow))
        latest = max([latest, *(record["t"] for record in part)])
        found += rows(sent)
        late += rows(sent, "late")
        found += rows(instance.advance((latest - lateness) * S))
        assert instance.state is not None
        saved.append(Delta.from_arrow(instance.state.collect().to_arrow()))
        if rng.random() < 0.3:
            successor = make_instance(instance.operator)
            assert successor.state is not None
            for delta in saved:
                successor.state.install(delta)
            successor.resume(instance.progress())
            instance = successor
    found += rows(instance.advance(LAST))
    assert instance.state is not None and len(instance.state.extract(ALL)) == 0
    return found, late


def on_time(records: list[dict[str, Any]], lateness: int, seed: int, ends: Any) -> tuple[list[Any], list[Any]]:
    """The pairs of a record and a window that count, and the records that are late, by the definition."""
    rng, watermark, latest = random.Random(seed), -(10**9), 0
    counted, late = [], []
    for part in cuts(records, rng):
        for record in part:
            windows = [(start, end) for start, end in ends(record["t"]) if end > watermark]
            counted += [(record, start, end) for start, end in windows]
            if not windows:
                late.append(record)
        latest = max([latest, *(record["t"] for record in part)])
        watermark = max(watermark, latest - lateness)
        rng.random()
    return counted, late


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.booleans(), st.sampled_from([(10, 10), (10, 5), (9, 4)]), st.integers(0, 20), st.integers(0, 99))
def test_windows(records: list[dict[str, Any]], arrow: bool, shape: tuple[int, int], lateness: int, seed: int) -> None:
    """Breaks when a window of an aggregate or a reduction differs from the sum over its records."""
    size, slide = shape
    window = gf.stream.sliding(size, slide)
    starts = range(-(size // slide + 1) * slide, 61, slide)
    counted, late = on_time(records, lateness, seed, lambda t: [(s, s + size) for s in starts if s <= t < s + size])
    expected: dict[Any, int] = defaultdict(int)
    for record, start, end in counted:
        expected[record["k"], start, end] += record["v"]
    instance = instance_of(lambda source: source.key_by("k").window(window).sum("v"))
    found, dropped = drive(instance, records, arrow=arrow, lateness=lateness, seed=seed)
    assert {(r["k"], second(r["window_start"]), second(r["window_end"])): r["v"] for r in found} == expected
    assert len(found) == len(expected)
    assert dropped == late
    instance = instance_of(lambda s: s.key_by("k").window(window).reduce(lambda total, r: [*total, r["v"]], initial=[]))
    found, dropped = drive(instance, records, arrow=arrow, lateness=lateness, seed=seed)
    sums = {(r["k"], second(r["window_start"]), second(r["window_end"])): sum(r["value"]) for r in found}
    assert sums == expected
    assert dropped == late


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.integers(1, 8), st.integers(0, 99))
def test_sessions(records: list[dict[str, Any]], gap: int, seed: int) -> None:
    """Breaks when sessions differ from the sorted times of each key cut at gaps."""
    expected = {}
    for key in {record["k"] for record in records}:
        times = sorted((record["t"], record["v"]) for record in records if record["k"] == key)
        groups = [[times[0]]]
        for before, one in itertools.pairwise(times):
            if one[0] - before[0] < gap:
                groups[-1].append(one)
            else:
                groups.append([one])
        for group in groups:
            expected[key, group[0][0], group[-1][0] + gap] = sum(value for _, value in group)
    window = gf.stream.session(gap)
    for build in (
        lambda source: source.key_by("k").window(window).sum("v"),
        lambda source: source.key_by("k").window(window).reduce(add_value, initial=0),
    ):
        found, late = drive(instance_of(build), records, arrow=False, lateness=60, seed=seed)
        assert {
            (r["k"], second(r["window_start"]), second(r["window_end"])): r.get("v", r.get("value")) for r in found
        } == expected
        assert late == []


@settings(max_examples=60, deadline=None)
@given(RECORDS, RECORDS, st.booleans(), st.integers(0, 10), st.integers(0, 99))
def test_joins(left: list[dict[str, Any]], right: list[dict[str, Any]], windowed: bool, width: int, seed: int) -> None:
    """Breaks when a join differs from all pairs of records with one key that are close, or in one window."""

    def build(source: Any) -> Any:
        if windowed:
            return source.key_by("k").window(gf.stream.tumbling(width + 1)).join(source.key_by("k"))
        return source.key_by("k").join(source.key_by("k"), within=width)

    def close(a: int, b: int) -> bool:
        return a // (width + 1) == b // (width + 1) if windowed else abs(a - b) <= width

    left, right = (sorted(one, key=lambda record: record["t"]) for one in (left, right))
    expected = sorted(
        (a["t"], b["t"], a["k"], a["v"], b["v"])
        for a in left
        for b in right
        if a["k"] == b["k"] and close(a["t"], b["t"])
    )
    instance, rng, found = instance_of(build), random.Random(seed), []
    ahead = [list(left), list(right)]
    saved: list[Delta] = []
    while any(ahead):
        port = rng.choice([side for side in (0, 1) if ahead[side]])
        size = rng.randint(1, 4)
        part, ahead[port] = ahead[port][:size], ahead[port][size:]
        found += rows(instance.process(port, batch_of(part, arrow=rng.random() < 0.5)))
        instance.advance(min((side[0]["t"] for side in ahead if side), default=60) * S)
        assert instance.state is not None
        saved.append(Delta.from_arrow(instance.state.collect().to_arrow()))
        if rng.random() < 0.3:
            successor = make_instance(instance.operator)
            assert successor.state is not None
            for delta in saved:
                successor.state.install(delta)
            successor.resume(instance.progress())
            instance = successor
    assert sorted((a["t"], b["t"], a["k"], a["v"], b["v"]) for a, b in found) == expected
    assert instance.late == 0
    instance.advance(LAST)
    assert instance.state is not None and len(instance.state.extract(ALL)) == 0


def test_late_records_of_a_join() -> None:
    instance = instance_of(lambda source: source.key_by("k").join(source.key_by("k"), within=5))
    instance.advance(100 * S)
    sent = instance.process(0, batch_of([{"k": "a", "t": 99, "v": 1}, {"k": "a", "t": 100, "v": 2}]))
    assert rows(sent, "late") == [{"k": "a", "t": 99, "v": 1}]
    assert instance.late == 1


class Totals:
    """Emits a total when 10 seconds have passed since the first record of a key."""

    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Any) -> None:
        if "total" not in state:
            state["total"], state["values"] = 0, []
            timers.set(value["t"] + 10)
            timers.set(1000.0)
            timers.cancel(1000.0)
        state["total"] += value["v"]
        state["values"].append(value["v"])

    def on_timer(self, key: Any, time: float, state: Any, timers: Any, emit: Any) -> None:
        assert sum(state["values"]) == state["total"]
        emit((key, time, state["total"]))
        for subkey in list(state):
            del state[subkey]


@settings(max_examples=40, deadline=None)
@given(RECORDS, st.integers(0, 99))
def test_timers_and_state(records: list[dict[str, Any]], seed: int) -> None:
    records = sorted(records, key=lambda record: record["t"])
    expected, first, totals = [], dict[str, int](), defaultdict[str, int](int)
    for record in records:
        due = [key for key, begun in first.items() if begun + 10 <= record["t"]]
        expected += [(key, first.pop(key) + 10, totals.pop(key)) for key in due]
        first.setdefault(record["k"], record["t"])
        totals[record["k"]] += record["v"]
    expected += [(key, begun + 10, totals[key]) for key, begun in first.items()]
    instance, found = instance_of(lambda source: source.key_by("k").process(Totals)), []
    saved: list[Delta] = []
    rng = random.Random(seed)
    for record in records:
        found += rows(instance.advance(record["t"] * S))
        assert not instance.process(0, batch_of([record]))
        assert instance.state is not None
        saved.append(Delta.from_arrow(instance.state.collect().to_arrow()))
        if rng.random() < 0.3:
            successor = make_instance(instance.operator)
            assert successor.state is not None
            for delta in saved:
                successor.state.install(delta)
            successor.resume(instance.progress())
            instance = successor
    found += rows(instance.advance(LAST))
    assert sorted(found) == sorted(expected)
    assert [time for _, time, _ in found] == sorted(time for _, time, _ in found)
    assert instance.failures == []


def test_functions_that_fail_lose_only_their_record() -> None:
    """Breaks when a poison record takes others with it, or is called twice."""
    called = []

    def inverse(n: int) -> float:
        called.append(n)
        return 1 / n

    instance = instance_of(lambda source: source.map(inverse, name="inverse"), timed=False)
    sent = instance.process(0, Batch([1, 0, 2, 0, 4], np.arange(5)))
    assert rows(sent) == [1.0, 0.5, 0.25]
    assert sent[0].times is not None and sent[0].times.tolist() == [0, 2, 4]
    assert called == [1, 0, 2, 0, 4]
    assert [str(one) for one in instance.failures] == [
        "operator inverse: ZeroDivisionError: division by zero (record 0)"
    ] * 2


@pytest.mark.parametrize(
    ("build", "expected", "message"),
    [
        (lambda s: s.filter(lambda n: n if n == 7 else n > 2), [3, 4], "returned 7: return True or False"),
        (lambda s: s.flat_map(lambda n: "ab" if n == 7 else [n] * (n > 2)), [3, 4], "returned 'ab'"),
        (
            lambda s: s.key_by(lambda n: [n] if n == 7 else n % 2).reduce(lambda t, n: t + n, initial=0),
            [{"key": 1, "value": 4}, {"key": 0, "value": 6}], "of type list",
        ),
        (
            lambda s: s.key_by(lambda n: n % 2).reduce(lambda t, n: t + n + 0 / (n - 7), initial=0),
            [{"key": 1, "value": 4.0}, {"key": 0, "value": 6.0}], "ZeroDivisionError",
        ),
    ],
)  # fmt: skip
def test_wrong_results_are_failures(build: Any, expected: list[Any], message: str) -> None:
    instance = instance_of(build, timed=False)
    assert rows(instance.process(0, Batch([1, 2, 3, 7, 4]))) == expected
    assert [one.record for one in instance.failures] == [7]
    assert message in instance.failures[0].error


def test_records_without_numbers_are_failures() -> None:
    instance = instance_of(lambda source: source.key_by("k").sum("v"), timed=False)
    sent = instance.process(0, Batch([{"k": 1, "v": 2}, {"k": 1}, {"v": 2}, {"k": 1, "v": "x"}, {"k": 1, "v": 0.5}]))
    assert rows(sent) == [{"k": 1, "v": 2.5}]
    assert [one.record for one in instance.failures] == [{"v": 2}, {"k": 1}, {"k": 1, "v": "x"}]


def test_columns_that_have_no_numbers() -> None:
    instance = instance_of(lambda source: source.key_by("k").sum("v"), timed=False)
    with pytest.raises(JobError, match="operator sum: sum of column 'v' of type string"):
        instance.process(0, Batch(pa.record_batch({"k": [1], "v": ["x"]})))
    with pytest.raises(JobError, match="operator sum: no column 'v'; the columns are k, w"):
        instance.process(0, Batch(pa.record_batch({"k": [1], "w": [1]})))


def test_aggregates_of_python_and_arrow_agree() -> None:
    records = [{"k": key, "t": 0, "v": value} for key, value in [("x", 1), ("y", None), ("x", 4), ("é", 2)]]
    build = lambda source: source.key_by("k").aggregate(  # noqa: E731
        s=("sum", "v"), n="count", c=("count", "v"), low=("min", "v"), high=("max", "v"), m=("mean", "v")
    )
    results = []
    for arrow in (False, True):
        sent = instance_of(build).process(0, batch_of(records, arrow))
        assert isinstance(sent[0].values, pa.RecordBatch) is arrow
        results.append(rows(sent))
    assert results[0] == results[1]
    assert results[0][0] == {"k": "x", "s": 5, "n": 2, "c": 2, "low": 1, "high": 4, "m": 2.5}
    assert results[0][1] == {"k": "y", "s": 0, "n": 1, "c": 0, "low": None, "high": None, "m": None}


def test_dictionary_columns_are_texts() -> None:
    instance = instance_of(lambda source: source.key_by("k").count(), timed=False)
    column = pa.array(["a", "b", "a"]).dictionary_encode()
    assert rows(instance.process(0, Batch(pa.record_batch({"k": column})))) == [
        {"k": "a", "count": 2},
        {"k": "b", "count": 1},
    ]


def test_batches_of_arrow() -> None:
    instance = instance_of(lambda source: source.map_batches(lambda batch: pa.compute.add(batch["v"], 1), name="m"))
    sent = instance.process(0, batch_of([{"t": 1, "v": 1}, {"t": 2, "v": 2}]))
    assert rows(sent) == [{"value": 2}, {"value": 3}]
    assert sent[0].times is not None and sent[0].times.tolist() == [S, 2 * S]
    shorter = instance_of(lambda source: source.map_batches(lambda batch: batch.slice(1), name="m"))
    with pytest.raises(JobError, match="operator m: 1 records returned for 2 records with event times"):
        shorter.process(0, batch_of([{"t": 1, "v": 1}, {"t": 2, "v": 2}]))


@pytest.mark.parametrize("mask", [lambda v: v.to_numpy() > 1, lambda v: pa.array([None, True, True])])
def test_masks_of_arrow(mask: Any) -> None:
    instance = instance_of(lambda source: source.filter_batches(lambda batch: mask(batch["v"]), name="f"))
    sent = instance.process(0, batch_of([{"t": 1, "v": 1}, {"t": 2, "v": 2}, {"t": 3, "v": 3}]))
    assert rows(sent) == [{"t": 2, "v": 2}, {"t": 3, "v": 3}]
    assert sent[0].times is not None and sent[0].times.tolist() == [2 * S, 3 * S]


@pytest.mark.parametrize("mask", [lambda batch: batch["v"], lambda batch: np.array([True]), lambda batch: True])
def test_masks_that_are_none(mask: Any) -> None:
    instance = instance_of(lambda source: source.filter_batches(mask, name="f"))
    assert not instance.process(0, batch_of([{"t": 1, "v": 1}, {"t": 2, "v": 2}]))
    assert [one.record for one in instance.failures] == [{"t": 1, "v": 1}, {"t": 2, "v": 2}]


def test_results_do_not_change_later() -> None:
    """Breaks when a result is the object that the state goes on changing."""

    def append(total: list[int], value: int) -> list[int]:
        total.append(value)
        return total

    instance = instance_of(lambda source: source.key_by(lambda n: 0).reduce(append, initial=[]), timed=False)
    first = rows(instance.process(0, Batch([1])))
    second_ = rows(instance.process(0, Batch([2])))
    assert (first[0]["value"], second_[0]["value"]) == ([1], [1, 2])


@pytest.mark.parametrize(
    "values",
    [
        [1, 2], [1.0, 2.0], ["1970-01-01T00:00:01", "1970-01-01T01:00:02+01:00"],
        [EPOCH + timedelta(seconds=1), datetime(1970, 1, 1, 0, 0, 2)], pa.array([1, 2]), pa.array([1.0, 2.0]),
        pa.array([1000, 2000], pa.timestamp("ms")), pa.array([1, 2], pa.timestamp("s", "UTC")),
        pa.array(["1970-01-01T00:00:01Z", "1970-01-01 00:00:02"]),
    ],
)  # fmt: skip
def test_event_times(values: Any) -> None:
    assert event_times(values).tolist() == [S, 2 * S]
