"""Regime changes: evidence against a chain, and jobs that fit their market again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.spot.paths import simulate_prices
from goffish.cloud.prices import SlotPrices
from goffish.scheduling.spot.agent import ALARM, Agent, evidence
from goffish.scheduling.spot.estimate import recent_class
from goffish.scheduling.spot.job import run_job, submitted
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.presets import market_from
from goffish.scheduling.spot.table import build_table


def slots_of(free: np.ndarray) -> SlotPrices:
    prices = np.where(free, 0.1, 2.0)[:, None]
    return SlotPrices(prices, np.maximum(prices[:-1], prices[1:]))


def spells(rng: np.random.Generator, on: float, off: float, slots: int) -> np.ndarray:
    """Machines come and go with geometric spells of these mean lengths."""
    lengths = np.stack((rng.geometric(1 / on, slots), rng.geometric(1 / off, slots)), axis=1).ravel()
    return np.repeat(np.tile([True, False], slots), lengths)[:slots]


def market_of(prices: SlotPrices) -> Market:
    one = recent_class(prices, 0, 1, 1.0, 600.0, name="m")
    made = market_from("ec2", [one], [1], [1.0])
    return replace(made, spot_billing="per_second", on_demand_billing="per_second")


@pytest.mark.slow
def test_evidence_is_rare_if_prices_follow_the_chain() -> None:
    """At most one alarm in 10,000 slots on average, over 200,000 slots of the chain itself; by far fewer in fact."""
    rng = np.random.default_rng(4)
    market = market_of(slots_of(spells(rng, 30, 10, 4000)))
    paths, _ = simulate_prices(market, 10_000, 20, rng)
    alarms = sum(evidence(market.classes[0], path) > ALARM for path in paths.prices.reshape(20, -1))
    assert alarms <= 2


@pytest.mark.parametrize(("on", "off"), [(3, 30), (300, 2)])
def test_evidence_of_another_regime(on: float, off: float) -> None:
    rng = np.random.default_rng(4)
    one = market_of(slots_of(spells(rng, 30, 10, 4000))).classes[0]
    prices = slots_of(spells(rng, on, off, 1000)).prices[:, 0]
    assert evidence(one, prices) > ALARM


@pytest.mark.slow
def test_a_job_follows_another_regime() -> None:
    """Machines that seldom return after years of calm: jobs that fit again pay less than those that do not."""
    rng = np.random.default_rng(11)
    calm = slots_of(spells(rng, 200, 3, 4000))
    market = market_of(calm)
    work, slots = 60, 240
    table = build_table(market, work, slots)
    kept, again, fits = 0.0, 0.0, 0
    for seed in range(12):
        path = slots_of(spells(np.random.default_rng(100 + seed), 4, 40, slots + 1))
        agent = Agent(table, calm, slots)
        kept += run_job(market, table, work, slots, path).cost
        run = run_job(market, agent, work, slots, path)
        assert 0 < run.finished <= slots
        again += run.cost
        fits += agent.fits
    assert fits >= 12
    assert again < kept


def test_it_decides_like_its_table_until_an_alarm() -> None:
    rng = np.random.default_rng(2)
    calm = slots_of(spells(rng, 30, 10, 4000))
    market = market_of(calm)
    table = build_table(market, 20, 60)
    path = slots_of(spells(rng, 30, 10, 61))
    agent = Agent(table, SlotPrices(calm.prices[:2], calm.peaks[:1]), 60, alarm=np.inf)
    one, other = (run_job(market, policy, 20, 60, path) for policy in (table, agent))
    assert one.cost == other.cost and [e.action for e in one.log] == [e.action for e in other.log]
    again = Agent(table, calm, 60)
    first = again.decide(60, submitted(20), [0.1])
    assert again.decide(60, submitted(20), [0.1]) == first
    assert again.fits == 0
