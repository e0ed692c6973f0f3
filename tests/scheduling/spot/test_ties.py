"""Options that cost nearly the same: costs of single actions, and jobs that start and continue rather than wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from goffish.cloud.prices import SlotPrices
from goffish.scheduling.spot.agent import Agent
from goffish.scheduling.spot.job import (
    CHECKPOINT,
    FINISHED,
    PROCESS,
    QUIESCED,
    RELEASE,
    RUNNING,
    START,
    WAIT,
    Status,
    advance,
    submitted,
)
from goffish.scheduling.spot.model import Market, SpotClass
from goffish.scheduling.spot.table import Table, build_table
from goffish.scheduling.spot.ties import NEAR, cost_of, prompt
from tests.scheduling.spot.spot_cases import (
    ages_of,
    exact_cost,
    joint_states,
    path_prices,
    prices_of,
    random_market,
    rich_market,
)


@dataclass
class Once:
    """A table whose first action is another one."""

    table: Table
    left: int
    begin: Status
    action: int

    def decide(self, left: int, status: Status, prices: Sequence[float], ages: Sequence[int] | None = None) -> int:
        if (left, status) == (self.left, self.begin):
            return self.action
        return self.table.decide(left, status, prices, ages)


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3, 6, 8, 9, 10, 11])
@pytest.mark.slow
def test_costs_of_single_actions(seed: int, rich: bool) -> None:
    """Equal to the expectation over all price paths by `job.advance`, for all requests, and for running machines."""
    market = rich_market(seed) if rich else random_market(seed)
    market = replace(market, late_penalty=None)
    work, slots = 3 - rich, 7 - rich
    table = build_table(market, work, slots)
    rng = np.random.default_rng(seed)
    compared = 0
    for at, p in enumerate(joint_states(market)):
        for left in (slots, slots - 1):
            begin = submitted(work)
            for choice in range(market.choices):
                if (
                    market.rules.spot[choice]
                    and prices_of(market, p)[market.rules.kind[choice]] > (market.rules.bid[choice])
                ):
                    continue
                action = START + choice
                expected = exact_cost(market, Once(table, left, begin, action), work, left, p)
                guarded = not market.rules.spot[choice] or left - market.startup_slots >= market.least_slots(work)
                expected = expected if guarded else np.inf
                assert cost_of(table, left, begin, at, action) == pytest.approx(expected, rel=1e-9), (p, left, choice)
                compared += np.isfinite(expected)
                # A machine some slots later, whose billed hour has begun.
                status, now = begin, prices_of(market, p)
                for _ in range(market.startup_slots + int(rng.integers(2))):
                    done = START + choice if status.state == QUIESCED else PROCESS if status.state == RUNNING else WAIT
                    status = advance(market, status, done, now, now, [0.0] * len(now)).status
                if status.state != RUNNING:
                    continue
                for action in (PROCESS, CHECKPOINT):
                    guarded = not market.rules.spot[choice] or left - 1 >= market.least_slots(work)
                    expected = (
                        exact_cost(market, Once(table, left, status, action), work, left, p, status)
                        if guarded
                        else np.inf
                    )
                    found = cost_of(table, left, status, at, action)
                    assert found == pytest.approx(expected, rel=1e-9), (p, left, status, action)
                    compared += np.isfinite(expected)
    assert compared > 10


def two_prices(high: float, *, startup_billed: bool = True) -> Market:
    """A machine type at 0.1 or a higher price, that returns to 0.1 with probability 0.3; never interrupted."""
    levels = np.array([0.1, high])
    chain = np.array([[0.95, 0.05], [0.3, 0.7]])
    one = SpotClass("m", 1, 1.0, np.array([(0.1 + high) / 2]), levels, chain, np.array([1]))
    return Market(
        (one,), 6, 1.0, spot_billing="per_second", on_demand_billing="per_second", startup_billed=startup_billed
    )


def test_a_job_does_not_wait_for_a_price_that_is_hardly_lower() -> None:
    """0.3 % are not worth hours of slack, 30 % are; without a free start-up a running machine is kept likewise."""
    for high, waits in ((0.1003, False), (0.13, True)):
        table = build_table(two_prices(high), 20, 80)
        assert table.decide(80, submitted(20), [high]) == WAIT
        action, more = prompt(table, 80, submitted(20), [high])
        assert (action == WAIT) is waits
        assert 0 <= more <= NEAR * table.expected_cost(20, 80, [high])
        assert more == 0 or not waits
    for high, releases in ((0.1003, False), (0.13, True)):
        table = build_table(two_prices(high, startup_billed=False), 20, 80)
        status = Status(RUNNING, 20, 20, 0)
        assert table.decide(80, status, [high]) == RELEASE
        assert (prompt(table, 80, status, [high])[0] == RELEASE) is releases
        # Once it would risk the deadline, the machine is released whatever it costs.
        least = table.market.least_slots(20)
        assert prompt(table, least, status, [0.1])[0] == table.decide(least, status, [0.1]) == RELEASE


@pytest.mark.parametrize("seed", range(6))
def test_jobs_cost_at_most_the_share_more(seed: int) -> None:
    """The expected cost of a job that is decided by an agent, by recursion over all paths: at most 1 % above the least.

    An agent has a memory of what it added, so it is run on every path of the prices.
    """
    rng = np.random.default_rng(seed)
    market = two_prices(0.1 + 0.03 * rng.random(), startup_billed=bool(seed % 2))
    work, slots = 3, 8
    table = build_table(market, work, slots)
    high = float(market.classes[0].levels[1])
    total = 0.0
    for path in range(2**slots):
        bins = [1, *(path >> at & 1 for at in range(slots))]
        chance = float(np.prod([market.classes[0].chain[a, b] for a, b in pairwise(bins)]))
        prices = path_prices(np.array([[0.1, high][b] for b in bins])[:, None])
        agent = Agent(table, SlotPrices(prices.prices[:2], prices.peaks[:1]), slots, alarm=np.inf)
        status, left, cost = submitted(work), slots, 0.0
        while status.state != FINISHED and left:
            now, then = (prices.prices[slots - left + more].tolist() for more in (0, 1))
            step = advance(market, status, agent.decide(left, status, now), now, then)
            status, cost, left = step.status, cost + step.money, left - (not step.timeless)
        assert status.state == FINISHED
        total += chance * cost
    least = table.expected_cost(work, slots, [high])
    assert least * (1 - 1e-12) <= total <= (1 + NEAR) * least


def test_ages_of_prices_are_respected() -> None:
    """A table whose chains depend on ages has other costs at other ages."""
    market = next(m for m in (rich_market(seed) for seed in range(40)) if m.aged and m.late_penalty is None)
    table = build_table(market, 2, 8)
    for p in joint_states(market):
        prices, ages = prices_of(market, p), ages_of(market, p)
        action, more = prompt(table, 8, submitted(2), prices, ages)
        if table.decide(8, submitted(2), prices, ages) != WAIT:
            assert (action, more) == (table.decide(8, submitted(2), prices, ages), 0.0)
