"""Markets of availability: their classes, slots, tables and advice."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE, SlotPrices, Trace, in_slots, seconds_of
from goffish.errors import InputError
from goffish.scheduling.spot._build import Choice
from goffish.scheduling.spot.advice import advise, running, text_of
from goffish.scheduling.spot.availability import availability_class, slots_for
from goffish.scheduling.spot.fitting import (
    Fitted,
    FitTimes,
    fit_market,
    prices_of,
    read_fitted,
    with_availability,
    write_fitted,
)
from goffish.scheduling.spot.job import START, submitted
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.peers import peer
from goffish.scheduling.spot.presets import Times, market_from
from goffish.scheduling.spot.replay import replay
from goffish.scheduling.spot.sizes import MOST_VALUES, values_of_jobs, values_of_slot
from goffish.scheduling.spot.table import build_table
from tests.cloud.test_availability import every
from tests.scheduling.spot.spot_cases import assert_equals_recursion, random_market

MINUTE, HOUR = 60.0, 3600.0
DAY = seconds_of("2024-05-01")


def market_of(*traces: Trace, slot_s: float = 120.0, dependent: bool = False, **times: float) -> Market:
    """Machines of one core at 0.30 $/h, on demand 1 $/h."""
    classes = [availability_class(t, 1, 1.0, slot_s, 0.3, name=f"z{at}") for at, t in enumerate(traces)]
    spans = Times(slot_s, times.get("startup_s", 120.0), times.get("checkpoint_s", 120.0))
    return market_from("ec2", classes, [1] * len(classes), [1.0] * len(classes), times=spans)


def slots_of(market: Market, *traces: Trace) -> SlotPrices:
    return in_slots(traces, HOUR / market.slots_per_hour, traces[0].start, traces[0].end)


def test_chain_of_a_known_process() -> None:
    """Rates of a long two-state path within 3 standard errors."""
    rng = np.random.default_rng(7)
    leave = (0.05, 0.2)
    values, state = [], 1
    for draw in rng.random(60_000):
        values.append(state)
        state = 1 - state if draw < leave[1 - state] else state
    trace = every(600.0, values).trace(0.9)
    for estimator in ("slot", "level"):
        one = availability_class(trace, 2, 3.0, 600.0, 0.9, estimator=estimator)  # type: ignore[arg-type]
        for bin_, rate in enumerate(leave):
            error = np.sqrt(rate * (1 - rate) / max(1, values.count(1 - bin_)))
            assert abs(one.chain[bin_, 1 - bin_] - rate) < 3 * error + 1e-4
        assert one.hazard == 0 and one.bids.tolist() == [ANY_PRICE] and one.levels.tolist() == [0.9, UNAVAILABLE]


@pytest.mark.parametrize("estimator", ["slot", "semi"])
def test_times_without_machines_inside_slots(estimator: str) -> None:
    """Three observations in a slot, of which the chain has the first: half of the slots are interrupted."""
    dips = every(200.0, [1, 1, 1, 1, 0, 1] * 50).trace(0.9)
    one = availability_class(dips, 1, 3.0, 600.0, 0.9, estimator=estimator)  # type: ignore[arg-type]
    assert one.hazard == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("estimator", ["paper", "level", "slot", "semi"])
@pytest.mark.parametrize("value", [0, 1])
def test_a_history_without_changes(estimator: str, value: int) -> None:
    """The price is kept, and the long run is the history."""
    trace: Trace = every(600.0, [value] * 999).trace(0.9)
    one = availability_class(trace, 1, 3.0, 600.0, 0.9, estimator=estimator)  # type: ignore[arg-type]
    assert one.levels.tolist() == [0.9, UNAVAILABLE] and one.hazard == 0
    assert one.stationary.reshape(2, -1).sum(axis=1).tolist() == pytest.approx([value, 1 - value], abs=0.01)


def test_always_available_costs_startup_and_work() -> None:
    """Billed by the second: four hours of work and two minutes of start-up at the spot price, without on demand.

    The deadline leaves the time for starting again on demand, so no checkpoint is needed.
    """
    trace = every(HOUR, [1] * 48).trace(0.3)
    market = market_of(trace)
    table, slots = build_table(market, market.units(4), 300), slots_of(market, trace)
    ran = replay(table, table.work, 300, slots)
    assert ran.costs == pytest.approx((4 + 2 / 60) * 0.3) and not ran.on_demand.any() and not ran.losses.any()
    assert (ran.finished >= 121).all()
    # The estimate from a history without interruptions leaves a small chance of one.
    assert table.expected_cost(table.work, 300, [0.3]) == pytest.approx((4 + 2 / 60) * 0.3, rel=0.05)


def test_never_available_is_on_demand() -> None:
    trace = every(HOUR, [0] * 48).trace(0.3)
    market = market_of(trace)
    table, slots = build_table(market, market.units(4), 180), slots_of(market, trace)
    for policy in (table, peer(market, "greedy", table.work, 180)):
        ran = replay(policy, table.work, 180, slots)
        assert ran.costs == pytest.approx((4 + 2 / 60) * 1.0) and not ran.missed


@pytest.mark.slow
def test_zones_in_turn_replace_on_demand() -> None:
    """Each zone is available when the other is not: a job moves between them, and one zone alone needs on demand."""
    one = every(HOUR, [1, 1, 0, 0] * 12).trace(0.3)
    other = every(HOUR, [0, 0, 1, 1] * 12).trace(0.3)
    both, alone = market_of(one, other), market_of(one)
    work, slots = both.units(8), 10 * 30
    ran = replay(build_table(both, work, slots), work, slots, slots_of(both, one, other))
    single = replay(build_table(alone, work, slots), work, slots, slots_of(alone, one))
    assert not ran.missed and not ran.on_demand.any()
    assert ran.costs.max() < 8 * 0.3 + 10 * 0.3 * 8 / 60 and ran.losses.max() >= 3
    assert not single.missed and single.on_demand.all() and ran.mean_cost < 0.7 * single.mean_cost


def test_notice_saves_the_work_before_the_slot() -> None:
    """A machine every other hour and no checkpoint: with notice, an interrupted job loses a slot; without, an hour."""
    trace = every(HOUR, [1, 0] * 24).trace(0.3)
    market = market_of(trace)
    slow = market_of(trace, checkpoint_s=180.0)
    assert market.notice and not slow.notice and slow.checkpoint_slots == 2
    rule = peer(market, "greedy", market.units(3), 10 * 30)
    ran = replay(rule, rule.work, 10 * 30, slots_of(market, trace), np.zeros(1, np.int64))
    # Each hour: 2 min of start-up, 56 min of work, and 2 min that are lost; 3 h of work end in the fourth machine.
    assert ran.losses.tolist() == [3] and ran.finished.tolist() == [30 * 6 + 1 + (90 - 3 * 28)]


def test_equals_direct_recursion() -> None:
    """Bellman equations with two zones, billed start-up and notice."""
    rng = np.random.default_rng(5)
    traces = [every(600.0, rng.integers(0, 2, 400).tolist()).trace(0.3) for _ in range(2)]
    market = market_of(*traces, slot_s=1200.0, startup_s=1200.0, checkpoint_s=60.0)
    assert market.notice and market.startup_billed and max(c.hazard for c in market.classes) > 0.1
    assert_equals_recursion(market, 3, 7)


@pytest.mark.parametrize(
    ("startup", "checkpoint", "minutes"),
    [
        (120, 120, 2), (600, 600, 10), (60, 120, 1), (300, 300, 5), (240, 600, 5), (240, 480, 4), (300, 600, 5),
        (10, 5, 1), (0, 0, 1), (3600, 3600, 10), (118, 119, 2), (121, 121, 1), (900, 120, 3),
    ],
)  # fmt: skip
def test_default_slots(startup: float, checkpoint: float, minutes: float) -> None:
    """By hand: the longest slot with at most a tenth of waste."""
    found = list(slots_for(startup, checkpoint))
    assert found[0] == minutes * 60 and found == [60.0 * m for m in (1, 2, 3, 4, 5, 6, 10) if m >= minutes]


@pytest.mark.parametrize("seed", range(12))
def test_number_of_values(seed: int) -> None:
    """As many as the arrays of a build hold for running and checkpointing machines."""
    market = random_market(seed)
    parts = [Choice(market, at, 5, None) for at in range(market.choices)]
    assert values_of_slot(market, 5) == sum(p.running.size * market.longest_checkpoint for p in parts)


CLOUD: dict[str, Any] = {
    "startup_s": 120,
    "machine_types": [
        {"name": "owned", "cores": 2, "price_per_hour": 1.0},
        {"name": "spot", "cores": 2, "price_per_hour": 1.0, "market": "spot", "prices": "prices.csv"},
    ],
}


def file_of(path: Path, values: list[int], *, day: int = 1) -> str:
    """A CSV file of hours."""
    begin = np.datetime64(f"2024-05-{day:02}T00:00")
    rows = [f"{begin + np.timedelta64(at, 'h')},{value}" for at, value in enumerate([*values, 0])]
    path.write_text("timestamp_utc,available\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    monkeypatch.chdir(tmp_path)
    prices = ["2024-05-01,0.2", "2024-05-03,0.4", "2024-05-09,0.6"]
    (tmp_path / "prices.csv").write_text("timestamp_utc,price_usd_per_hour\n" + "\n".join(prices) + "\n")
    file_of(tmp_path / "a.csv", [1, 1, 1, 0] * 24)
    file_of(tmp_path / "b.csv", [0, 1, 1, 1] * 24)
    return read_catalogue(CLOUD)


def test_availability_from_files(cloud: Catalogue, tmp_path: Path) -> None:
    """A class for each zone, at the mean price of the period, without bids; what is written is read."""
    zoned = with_availability(cloud, [("spot/east-a", "a.csv"), ("spot/east-b", "b.csv")])
    assert [c.name for c in zoned.classes] == ["owned", "spot/east-a", "spot/east-b"]
    fitted = fit_market(zoned)
    market = fitted.market
    assert [c.name for c in market.classes] == ["spot/east-a", "spot/east-b"] and market.choices == 4
    assert all(c.by_availability and c.levels[0] == pytest.approx((2 * 0.2 + 2 * 0.4) / 4) for c in market.classes)
    assert (fitted.first, fitted.last) == (DAY, DAY + 4 * 24 * HOUR) and fitted.slot_s == 120
    assert (market.spot_billing, market.on_demand_billing, market.startup_slots) == ("per_second", "per_second", 1)
    assert market.notice and market.startup_billed and market.checkpoint_slots == 1
    assert text_of(market, START) == "start spot/east-a on the spot market"
    assert running(market, 1, 1, "spot/east-b", float("inf"), 0.0).choice == 1
    write_fitted(tmp_path / "m.json", fitted)
    again = read_fitted(tmp_path / "m.json")
    assert again.market.fingerprint() == market.fingerprint()
    held = again.traces()[0]
    assert held.prices[:2].tolist() == pytest.approx([0.3, UNAVAILABLE]) and held.times[1] == DAY + 3 * HOUR
    # One zone, a part of the time, and what follows it.
    east = with_availability(zoned, [], ["east-b"])
    half = fit_market(east, period=(None, DAY + 48 * HOUR), preset="ec2-linux", estimator="slot")
    assert [c.name for c in half.market.classes] == ["spot/east-b"] and half.market.spot_billing == "first_hour_free"
    assert half.market.classes[0].levels[0] == pytest.approx(0.2) and half.market.classes[0].bids.tolist() == [
        ANY_PRICE
    ]
    assert half.traces(half.last)[0].end == DAY + 96 * HOUR and half.traces()[0].end == DAY + 48 * HOUR
    assert fit_market(with_availability(cloud, [(None, "a.csv")])).market.classes[0].name == "spot"
    assert fit_market(cloud, estimator="semi").market.classes[0].bids.size > 1


def test_prices_and_availability_in_one_market(cloud: Catalogue) -> None:
    """Types with availability count alone, unless others are named; those keep their bids."""
    both = with_availability(cloud, [("spot/a", "a.csv")])
    priced = both.with_classes((*both.classes, cloud.classes[1]))
    assert [c.name for c in fit_market(priced).market.classes] == ["spot/a"]
    mixed = fit_market(priced, ["spot/a", "spot"], preset="ec2-linux", estimator="level")
    assert [c.by_availability for c in mixed.market.classes] == [True, False]
    assert [t.prices[0] for t in mixed.traces()] == pytest.approx([0.3, 0.2])
    found, _ = prices_of(mixed, {"spot": 0.5}, {"spot/a": True})
    assert found == pytest.approx([0.3, 0.5])
    assert prices_of(mixed, {}, {"spot": False})[0] == [UNAVAILABLE, UNAVAILABLE]


def test_a_month_of_losses_adds_to_those_of_the_trace(cloud: Catalogue) -> None:
    zoned = with_availability(cloud, [(None, "a.csv")])
    alone = fit_market(zoned, estimator="slot").market.classes[0].hazard
    month = 365.25 / 12 * 86400
    expected = 1 - (1 - alone) * (1 - 0.5) ** (120 / month)
    assert fit_market(zoned, estimator="slot", monthly_loss=0.5).market.classes[0].hazard == pytest.approx(expected)


def test_slots_grow_with_the_longest_job(cloud: Catalogue) -> None:
    """Short slots where tables stay small: breaks when a table for a day takes an hour to build."""
    zoned = with_availability(cloud, [("spot/a", "a.csv"), ("spot/b", "b.csv")])
    found = {hours: fit_market(zoned, times=FitTimes(job_hours=hours)) for hours in (2, 24, 60)}
    assert found[2].slot_s == 120 <= found[24].slot_s < found[60].slot_s
    for hours, fitted in found.items():
        assert values_of_jobs(fitted.market, hours) <= MOST_VALUES
    assert fit_market(zoned, times=FitTimes(slot_s=60.0, job_hours=60)).slot_s == 60
    assert fit_market(zoned, times=FitTimes(job_hours=1e4)).slot_s == 600
    assert fit_market(zoned, times=FitTimes(checkpoint_s=240.0)).market.notice is False
    assert fit_market(cloud, times=FitTimes(job_hours=1e4)).slot_s == 600


def test_what_is_available_now(cloud: Catalogue) -> None:
    """Advice follows what is available now: the other zone, or waiting."""
    fitted = fit_market(with_availability(cloud, [("spot/a", "a.csv"), ("spot/b", "b.csv")]), estimator="slot")
    units, slots = fitted.market.units(2), 60
    table = build_table(fitted.market, units, slots)

    def advised(**available: bool) -> str:
        prices, ages = prices_of(fitted, {}, {f"spot/{name}": there for name, there in available.items()})
        return advise(table, submitted(units), slots, prices, ages).text

    assert advised(a=True, b=False) == "start spot/a on the spot market"
    assert advised(a=False, b=True) == "start spot/b on the spot market"
    assert advised(a=False, b=False) == "wait"
    # At the end of the history, a is not available, and b is.
    assert advised() == "start spot/b on the spot market"
    with pytest.raises(InputError, match="available: unknown machine type 'spot/x'; accepted: spot/a, spot/b"):
        advised(x=False)


@pytest.mark.parametrize(
    ("files", "given", "told"),
    [
        ([("x", "a.csv")], {}, "unknown spot machine type 'x'; the catalogue has: spot"),
        ([("owned", "a.csv")], {}, "unknown spot machine type 'owned'"),
        ([("spot", "a.csv"), ("spot", "b.csv")], {}, "the machine type has a file already"),
        ([("spot/a", "a.csv"), ("spot/a", "b.csv")], {}, "the machine type has a file already"),
        ([("spot", "nowhere.csv")], {}, "nowhere.csv: cannot read availability"),
        ([("spot", "prices.csv")], {}, "prices.csv:1: expected a SkyPilot spot trace"),
        (
            [("spot/a", "a.csv"), ("spot/l", "late.csv")],
            {},
            "no common period: late starts at 2024-05-20 00:00, a ends",
        ),
        ([("spot/a", "a.csv")], {"classes": ["spot"]}, "unknown spot machine type 'spot'"),
        ([("spot", "a.csv")], {"period": (0.0, DAY)}, "is wanted, it reaches from 2024-05-01"),
        ([("spot", "a.csv")], {"period": (DAY, DAY)}, "is wanted, it reaches from 2024-05-01"),
        ([("spot", "a.csv")], {"period": (DAY, DAY + 100)}, "shorter than two slots"),
        ([("spot", "a.csv")], {"times": FitTimes(job_hours=0.0)}, "slot_s and job_hours must be greater than 0"),
        ([("spot", "a.csv")], {"times": FitTimes(slot_s=0.0)}, "slot_s and job_hours must be greater than 0"),
        ([("spot", "a.csv")], {"times": FitTimes(slot_s=-60.0)}, "slot_s = -60: must be 0 or more, and finite"),
        ([("spot", "a.csv")], {"times": FitTimes(checkpoint_s=math.inf)}, "checkpoint_s = inf: must be 0 or more"),
        ([("spot", "a.csv")], {"times": FitTimes(startup_s=math.nan)}, "startup_s = nan: must be 0 or more"),
        ([("spot/", "a.csv")], {}, "unknown spot machine type 'spot/'"),
        ([("spot/a@1", "a.csv")], {}, "unknown spot machine type 'spot/a@1'"),
        ([("spot", "a.csv")], {"times": FitTimes(slot_s=7.0)}, "an hour must be a whole number of slots"),
    ],
)
def test_what_is_refused(
    cloud: Catalogue, tmp_path: Path, files: list[tuple[str, str]], given: dict[str, Any], told: str
) -> None:
    file_of(tmp_path / "late.csv", [1, 0], day=20)
    with pytest.raises(InputError, match=told):
        fit_market(with_availability(cloud, files), **given)


def test_files_without_a_type(cloud: Catalogue, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown zone 'b'; the catalogue has: a"):
        with_availability(cloud, [("spot/a", "a.csv")], ["b"])
    with pytest.raises(InputError, match="unknown zone 'b'; the catalogue has: none"):
        with_availability(cloud, [], ["b"])
    two = cloud.with_classes((*cloud.classes, cloud.classes[1].model_copy(update={"name": "other"})))
    with pytest.raises(InputError, match=r"give TYPE=a\.csv with a spot machine type; the catalogue has: spot, other"):
        with_availability(two, [(None, "a.csv")])
    fitted = fit_market(with_availability(cloud, [(None, "a.csv")]))
    (tmp_path / "a.csv").unlink()
    with pytest.raises(InputError, match="cannot read availability"):
        fitted.traces()
    assert isinstance(fitted, Fitted)
