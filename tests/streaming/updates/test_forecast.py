"""Bounds of updates of running flows, against the formulas worked out by hand from measured quantities."""

from __future__ import annotations

import math
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.metrics import Histogram, Metrics, OperatorMetrics
from goffish.streaming.updates.bounds import Requirement
from goffish.streaming.updates.forecast import Setup, forecast
from goffish.streaming.updates.plan import plan_update
from goffish.streaming.updates.versions import PartialWindow, Strategy

SETUP = Setup(workers=2, checkpoint_s=0.5, saving_s=0.01, operators_s=0.03, report_s=0.1)
DEPLOY = 0.09 + 0.03 + 0.1 + 0.09
BATCH, GAP = 0.01, 0.1


def flow(version: int, *, window: bool = False) -> gf.stream.Flow:
    made = gf.stream.Flow("orders")
    read = made.source(gf.stream.generate(lambda n: {"k": n}), time=lambda row: row["k"], lateness="2s", name="read")
    keyed = read.map(lambda row: row | {"v": version}, name="tag").key_by("k")
    if window:
        keyed.window(gf.stream.tumbling("5s")).count(name="total").sink(gf.stream.call(len), name="out")
    else:
        total = keyed.reduce(lambda total, row: total + version, initial=0, name="total")
        total.sink(gf.stream.call(len), name="out")
    return made


def age(seconds: float) -> tuple[Histogram, float]:
    """Return a histogram with one time, and its upper bound."""
    found = Histogram()
    found.add(seconds)
    bound = found.quantile(1.0)
    assert bound is not None and seconds <= bound <= 1.25 * seconds
    return found, bound


TOTAL, TO_TOTAL = age(0.2)
OUT, TO_OUT = age(0.4)


def metrics(load: float = 0.05, batches: float = 10.0) -> Metrics:
    """Return what is measured at 10 batches a second, each 10 ms in every operator, on two workers."""
    ages = {"total": TOTAL, "out": OUT}
    kinds = {"read": "source", "tag": "map", "total": "reduce", "out": "sink"}
    rows = [
        OperatorMetrics(
            name, kind, None, 100, 100, 50.0, 1.0, 7 if name == "total" else 0, 0, 0, 50.0, load,
            recent_batches=batches, recent_age=ages.get(name),
        )
        for name, kind in kinds.items()
    ]  # fmt: skip
    return Metrics("orders", "running", 10.0, None, tuple(rows))


def predicted(
    setup: Setup = SETUP, *, window: bool = False, partial: PartialWindow = PartialWindow.EMIT, **given: Any
) -> Any:
    old, new = flow(1, window=window).check(), flow(2, window=window).check()
    plans = {one: plan_update(1, old, new, one, partial) for one in Strategy}
    return forecast(plans, metrics(**given), setup)


def test_bounds_of_workers() -> None:
    found = predicted()
    head = TO_OUT + BATCH  # from reading until the sink has written
    expected = {
        Strategy.NCL: (DEPLOY + GAP + head, DEPLOY),
        Strategy.NCH: (DEPLOY + head + (0.5 + 0.01 + 0.1 + 0.04 + 0.1 + 0.09) + head, DEPLOY + head),
        Strategy.MVC: (DEPLOY + GAP + head, DEPLOY + head),
        Strategy.PVC: (DEPLOY + GAP + head - BATCH, DEPLOY + head - BATCH),  # begins behind the source
    }
    for strategy, (refresh, lag) in expected.items():
        one = found.bounds[strategy]
        assert (one.refresh, one.lag) == (pytest.approx(refresh), pytest.approx(lag)), strategy
    hti = found.bounds[Strategy.HTI]
    # (7): `total` also gets batches of the old `tag`, and its batches are as far apart
    assert hti.refresh == pytest.approx(DEPLOY + GAP + head - TO_TOTAL)
    assert hti.lag == pytest.approx(DEPLOY + head - BATCH)
    assert found.bounds[Strategy.NCL].loss == math.ceil(50.0 * TO_TOTAL) + 7
    assert [one.strategy for one in found.bounds.values() if not one.consistent] == [Strategy.HTI]
    origins = {one.name: (one.value, one.origin) for one in found.quantities}
    assert origins["batch in tag"] == (pytest.approx(BATCH), "measured")
    assert origins["queue of total"] == (7, "measured")
    assert origins["time between checkpoints"] == (0.5, "set")
    assert origins["command to a worker"] == (0.09, "default")
    assert origins["longest time from reading to out"] == (TO_OUT, "measured")


def test_workers_that_wait_for_a_processor() -> None:
    """Reports that are late show by how much messages, signals, checkpoints and commands are."""
    late = predicted(SETUP._replace(report_s=0.4)).bounds
    soon = predicted().bounds
    assert late[Strategy.MVC].refresh - soon[Strategy.MVC].refresh == pytest.approx(3 * 0.3)
    assert late[Strategy.NCH].refresh - soon[Strategy.NCH].refresh == pytest.approx(7 * 0.3)


def test_bounds_of_windows() -> None:
    """Results wait for the end of a window and the lateness; those that are dropped are a loss."""
    found = predicted(window=True)
    plain = predicted()
    assert found.bounds[Strategy.MVC].refresh == pytest.approx(plain.bounds[Strategy.MVC].refresh + 7.0)
    # Those of the old version end when a checkpoint of all workers shows that nothing comes any more.
    assert found.bounds[Strategy.MVC].lag == pytest.approx(plain.bounds[Strategy.MVC].lag + 0.15)
    dropped = predicted(window=True, partial=PartialWindow.DROP)
    assert {one for one, bounds in dropped.bounds.items() if not bounds.loss} == {Strategy.HTI}  # its windows go on
    assert not any(one.loss for strategy, one in found.bounds.items() if strategy != Strategy.NCL)


def test_one_process() -> None:
    """All strategies are one: nothing is in flight between two batches."""
    found = predicted(Setup(0, 2.0, 0.02, 0.03, 0.0), load=0.1)
    deploy = 0.03 + 2 * 0.02 + 0.05
    costs = {(round(one.lag, 6), round(one.outage, 6), one.loss) for one in found.bounds.values()}
    assert costs == {(round(deploy, 6), round(deploy, 6), 0)}
    assert found.bounds[Strategy.NCL].refresh == found.bounds[Strategy.MVC].refresh


@pytest.mark.parametrize(
    ("requirements", "strategy", "meets"),
    [
        (["no-loss"], "mvc", {"ncl": [], "hti": ["no-loss"]}),
        (["no-loss", "no-mixing"], "mvc", {"ncl": ["no-mixing"], "pvc": ["no-loss", "no-mixing"]}),
        (["lowest-latency"], "hti", {"hti": []}),
        (["lowest-latency", "no-mixing"], "pvc", {"hti": []}),
    ],
)
def test_recommendations(requirements: list[str], strategy: str, meets: dict[str, list[str]]) -> None:
    found = predicted().to_dict([Requirement(one) for one in requirements])
    assert found["recommended"] == strategy and found["reason"].startswith(f"{strategy} ")
    rows = {one["strategy"]: one["meets"] for one in found["predictions"]}
    assert rows | meets == rows and len(rows) == 5


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"load": 0.24}, "workers are busy 96% of the time; bounds hold up to 80%"),
        ({"batches": 0.0}, "source read has sent nothing in the last 5 s"),
    ],
)
def test_no_bounds(given: dict[str, float], note: str) -> None:
    found = predicted(**given)
    assert not found.bounds and found.to_dict()["note"] == note
    with pytest.raises(InputError, match=f"no strategy can be recommended: {note}; choose one with --strategy"):
        found.to_dict([Requirement.NO_LOSS])
