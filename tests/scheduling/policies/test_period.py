"""Plans for the mean throughput of the period, and the choice of alternates by profit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.alternates import profitable_alternates
from goffish.scheduling.policies.period import plan_period, quantile_path
from goffish.scheduling.policies.plasticc import Plasticc
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.policies.reactive import Reactive
from goffish.scheduling.policies.windows import Outlook
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.policies.cases import flows, ideal_by_hand, observation, started

M1 = read_catalogue("ec2-2013-m1")


def one_element(rate: float = 10.0) -> Flow:
    goal = {"throughput": 0.8, "cost_at_best_value": 10, "cost_at_worst_value": 5, "period_h": 1}
    return compile_flow(
        read_dataflow({
            "processing_elements": [{"id": "only", "alternates": [
                {"id": "good", "cost": 1.0, "value": 1.0}, {"id": "poor", "cost": 1.0, "value": 0.5},
            ]}],
            "edges": [], "inputs": {"only": rate}, "goal": goal,
        })
    )  # fmt: skip


def small_machines(speeds: list[float], elapsed_s: float = 600.0) -> Deployment:
    found = Deployment(M1, np.zeros(1, np.int64))
    for number, coefficient in enumerate(speeds):
        found.add_machine(Machine(number, 0, coefficient, elapsed_s, {0: 1}))
    return found


def rates(*series: float) -> Outlook:
    return Outlook(np.array(series)[:, None], {})


def test_a_burst_is_averaged_away() -> None:
    """By hand: 10, 10, 10 and 40 messages per second on 10 cores have a mean of (1 + 1 + 1 + 1/4) / 4 = 0.8125."""
    live, burst = small_machines([1.0] * 10), rates(10.0, 40.0, 10.0, 10.0)
    kept = plan_period(one_element(), live, burst, 0.8, 300.0)
    assert sorted(kept.machines) == list(range(10))
    # (1 + 1 + 1 + c / 40) / 4 = 0.9 requires c = 24 cores, which m1.xlarge offers most cheaply as 8 + 4 + 2.
    more = plan_period(one_element(), live, burst, 0.9, 300.0)
    assert more.power[0] == pytest.approx(24.0)
    assert sum(M1.prices[m.kind] for n, m in more.machines.items() if n < 0) == pytest.approx(14 * 0.06)


def test_machines_stop_at_the_end_of_paid_time_slowest_first() -> None:
    """Else machines run on although the others suffice, or the faster of two equally priced ones stops."""
    speeds = [1.0, 0.5, 0.9, 1.0, 0.6, 1.0, 1.0, 1.0, 1.0, 1.0]
    seen = {number: np.array([speed]) for number, speed in enumerate(speeds)}
    steady = Outlook(np.full((4, 1), 10.0), seen)
    in_hour = plan_period(one_element(), small_machines(speeds), steady, 0.8, 300.0)
    assert sorted(in_hour.machines) == list(range(10))
    at_end = plan_period(one_element(), small_machines(speeds, 3600.0), steady, 0.8, 300.0)
    # 9.0 cores: without 0.5 there are 8.5, without 0.6 7.9, which is too little.
    assert sorted(set(range(10)) - set(at_end.machines)) == [1]


def test_deviations_within_the_hysteresis_start_no_machine() -> None:
    """Else every fluctuation of the forecast starts a machine for an hour."""
    live = small_machines([1.0] * 8)
    assert len(plan_period(one_element(), live, rates(10.0), 0.819, 300.0).machines) == 8
    assert plan_period(one_element(), live, rates(10.0), 0.821, 300.0).power[0] >= 8.21 - 1e-9


def test_earlier_throughput_moves_the_target() -> None:
    """Else a surplus is never used, or a shortfall never made up for: by hand (0.8 * 100 - 50 * omega) / 50."""
    flow, policy = one_element(), Plasticc(Reactive())
    for omega, power in ((0.9, 7.0), (0.75, 8.5)):
        live = small_machines([1.0] * 7)
        found, _ = policy.adapt(observation(flow, live, np.array([10.0]), omega, step=50), None)
        assert found.power[0] == pytest.approx(power, abs=0.51)


def test_alternates_are_the_most_profitable_of_all_combinations() -> None:
    """Else money is spent on value that is worth less, or value is given up that costs less. Oracle: every combination,
    at the price of the power that the goal needs.
    """
    for name in ("linear-road", "text-classifier", "sc13-diamond"):
        flow = compile_flow(read_dataflow(name))
        for scale in (0.3, 1.0, 4.0):
            external = flow.rates * scale
            best = -np.inf
            for active in product(*(range(count) for count in flow.alternate_counts)):
                chosen = np.array(active)
                _, done = ideal_by_hand(flow, chosen, np.full(flow.size, 1e9), external)
                power = float(np.dot(done, flow.cost[flow.rows(chosen)])) * flow.goal.throughput
                best = max(best, flow.profit(flow.value_of(chosen), power * 0.06 * flow.goal.period_h))
            found = profitable_alternates(flow, M1, external)
            _, done = ideal_by_hand(flow, found, np.full(flow.size, 1e9), external)
            power = float(np.dot(done, flow.cost[flow.rows(found)])) * flow.goal.throughput
            reached = flow.profit(flow.value_of(found), power * 0.06 * flow.goal.period_h)
            assert reached == pytest.approx(best, abs=1e-9), (name, scale)


def test_a_tenth_of_the_budget_buys_the_best_alternate() -> None:
    """Else the first deployment saves money that is worth less than the value: the cheapest alternate has the better
    ratio of value and cost, and the best one costs a tenth of the budget.
    """
    flow = compile_flow(
        read_dataflow({
            "processing_elements": [
                {"id": "parse", "cost": 0.02},
                {"id": "score", "alternates": [
                    {"id": "rules", "cost": 0.03, "value": 0.9}, {"id": "model", "cost": 0.2, "value": 1.0},
                ]},
            ],
            "edges": [["parse", "score"]],
            "inputs": {"parse": 20},
            "goal": {"cost_at_best_value": 40, "cost_at_worst_value": 10, "period_h": 12},
        })
    )  # fmt: skip
    profits = {}
    for rule in ("ratio", "profit"):
        plan = make_policy("reactive-global", {"alternates": rule}).deploy(flow, M1)
        cost = plan.price_per_hour * 12
        profits[rule] = flow.profit(flow.value_of(plan.active), cost)
        assert flow.alternate_names[flow.rows(plan.active)[1]] == {"ratio": "rules", "profit": "model"}[rule]
    assert cost < 0.1 * 40
    assert profits["profit"] > profits["ratio"] + 0.02
    # At run time too: too little throughput is no reason for the worse alternate.
    run = simulate(flow, M1, make_policy("reactive-global"), np.tile(flow.rates * 1.6, (24, 1)))
    assert run.summary.value == 1.0
    assert run.summary.throughput_met


def test_quantiles_are_equally_likely_at_every_length() -> None:
    """Else a part of the path is no sample of the distribution, and its mean is biased."""
    path = quantile_path(np.arange(101.0), 12)
    assert sorted(path) == pytest.approx(100 * (np.arange(12) + 0.5) / 12)
    for length in (3, 4, 6, 12):
        assert path[:length].mean() == pytest.approx(50.0, abs=12.0)


@settings(max_examples=25, deadline=None)
@given(
    flow=flows(),
    factor=st.floats(0.0, 3.0),
    target=st.floats(0.0, 0.95),
    elapsed=st.sampled_from([600.0, 3450.0, 3600.0]),
)
def test_plans_are_sound(flow: Flow, factor: float, target: float, elapsed: float) -> None:
    """J6: every PE keeps an instance, no core is used twice, paid machines stay, and the target is reached."""
    live = started(Reactive().deploy(flow, M1), elapsed)
    outlook = Outlook(np.outer(np.linspace(0.5, 1.5, 4) * factor, flow.rates), {})
    plan = plan_period(flow, live, outlook, target, 300.0)
    plan.check()
    assert (plan.counts >= 1).all()
    if elapsed == 600.0:
        assert set(live.machines) <= set(plan.machines)
    each = [ideal_by_hand(flow, plan.active, plan.power, row)[0] for row in outlook.rates]
    assert np.mean(each) >= target - 0.02 - 1e-6
    again = plan_period(flow, live, outlook, target, 300.0)
    assert again.described(flow) == plan.described(flow)


@pytest.mark.parametrize("option", ["cadence", "least_step", "network", "backlog", "carry_over"])
def test_options_of_the_published_plan_are_refused(option: str) -> None:
    """Else an option is silently ignored."""
    value = {"cadence": 4, "least_step": 0.5, "network": True, "backlog": True, "carry_over": False}[option]
    with pytest.raises(InputError, match=f"{option} = .*requires constraint = interval"):
        make_policy("plasticc", {option: value})
    make_policy("plasticc", {option: value, "constraint": "interval"})
