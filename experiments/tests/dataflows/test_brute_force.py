"""Exhaustive search against an integer programme solved by HiGHS."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from experiments.dataflows.brute_force import brute_force, power_bound
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Flow
from tests.scheduling.policies.cases import M1, SIX, L, S, ideal_by_hand, layered

#: Rate: dollars of ten hours, profit, throughput (table G6).
GOLDEN = {
    1: (3.0, 0.956125, 0.8333),
    2: (4.8, 0.929800, 0.7336),
    3: (7.2, 0.894700, 0.7584),
    4: (8.4, 0.877150, 0.7292),
    5: (10.2, 0.850825, 0.7037),
}


def _at(rate: float) -> Flow:
    return S.with_rates(np.array([rate, 0.0, 0.0, 0.0]))


def _least_power(flow: Flow, active: np.ndarray, whole: bool = True) -> float:
    """The least sum of whole powers with which the goal is reached (docs/specs/provisioning.md, section 3.7)."""
    n, rows = flow.size, flow.rows(active)
    cost, selectivity = flow.cost[rows], flow.selectivity[rows]
    _, ideal = flow.ideal(active, flow.rates)
    into, power, sent = np.zeros((n, 2 * n)), np.zeros((n, 2 * n)), np.zeros((1, 2 * n))
    for i in range(n):
        into[i, i] = 1.0
        for p in flow.pred[flow.pred_offsets[i] : flow.pred_offsets[i + 1]]:
            into[i, p] = -selectivity[p]
        power[i, i], power[i, n + i] = cost[i], -1.0
    missing = flow.goal.throughput * flow.outputs.size
    for o in flow.outputs:
        if ideal[o] > 0:
            sent[0, o] = selectivity[o] / ideal[o]
        else:
            missing -= 1.0
    found = milp(
        np.concatenate((np.zeros(n), np.ones(n))),
        constraints=[
            LinearConstraint(into, ub=flow.rates),
            LinearConstraint(power, ub=np.zeros(n)),
            LinearConstraint(sent, lb=missing),
        ],
        bounds=Bounds(np.concatenate((np.zeros(n), np.ones(n))), np.inf),
        integrality=np.concatenate((np.zeros(n), np.full(n, float(whole)))),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun)


def _best_profit(flow: Flow) -> float:
    """Of all alternates; a unit of power costs 0.06 an hour in every m1 class."""
    found = []
    for some in itertools.product(*(range(k) for k in flow.alternate_counts)):
        active = np.array(some)
        hourly = 0.06 * round(_least_power(flow, active))
        found.append(flow.value_of(active) - flow.sigma * flow.goal.period_h * hourly)
    return max(found)


@pytest.mark.parametrize("rate", GOLDEN)
def test_golden_optimum_and_integer_programme(rate: int) -> None:
    """G6 to the digit; anything else means that a bound cuts off the optimum, or that a plan misses the goal."""
    flow, (cost, profit, omega) = _at(rate), GOLDEN[rate]
    found = brute_force(flow, M1)
    assert found.proved and found.deployment is not None
    plan = found.deployment
    plan.check()
    assert plan.active.tolist() == [1, 1, 0, 1]
    assert plan.price_per_hour * 10 == pytest.approx(cost)
    assert found.profit == pytest.approx(profit, abs=5e-7)
    assert ideal_by_hand(flow, plan.active, plan.power, flow.rates)[0] == pytest.approx(omega, abs=5e-5)
    assert found.profit == pytest.approx(_best_profit(flow), abs=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_random_dataflows_against_the_integer_programme(seed: int) -> None:
    """The golden rows are one graph only; merges, several outputs and idle inputs have to be right as well."""
    flow = layered(2 + seed % 4, 1 + seed % 3, seed, rate=[0.0, 1.5, 4.0][seed % 3], alternates=2)
    assert brute_force(flow, M1).profit == pytest.approx(_best_profit(flow), abs=1e-9)


def test_the_bound_is_below_the_integer_programme() -> None:
    """A bound above the least power would cut off the optimum."""
    for flow in (_at(3), _at(11), L, L.with_rates(L.rates / 10)):
        active = flow.best
        bound = power_bound(flow, active, 1.0)
        assert bound <= _least_power(flow, active) + 1e-6
        assert bound == pytest.approx(_least_power(flow, active, whole=False))


def test_fewer_speeds_are_never_better() -> None:
    """Six classes hold the four: their optimum cannot be worse."""
    for rate in (2, 4):
        assert brute_force(_at(rate), SIX).profit >= brute_force(_at(rate), M1).profit - 1e-9


def test_time_runs_out_on_linear_road() -> None:
    """E7: a search that cannot end has to stop in time and say that nothing is proved."""
    found = brute_force(L, M1, limit_s=0.5)
    assert not found.proved and found.deployment is None


def test_large_dataflows_are_refused() -> None:
    """3 to the power of 40 combinations would fill the memory before the clock is looked at."""
    with pytest.raises(InputError, match="tiny dataflows"):
        brute_force(layered(60, 6, 1), M1)
