"""The reactive policies, interval by interval, and their references."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies.network import network_throughput
from goffish.scheduling.policies.reactive import (
    Hybrid,
    Reactive,
    Static,
    without_alternates,
)
from goffish.scheduling.policies.strict import own_target, strict_alternates, strict_resources
from tests.scheduling.policies.cases import M1, L, S, flows, ideal_by_hand, machines, observation, started

VARIANTS = ("central", "sharded", "strict")


def _placed(plan: Deployment) -> dict[int, dict[int, int]]:
    return {number: dict(machine.instances) for number, machine in plan.machines.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_stages_take_turns(variant: str) -> None:
    """§3.4: with m = 4 and n = 3 the alternates win at 12, and nothing happens in between."""
    policy = Reactive(variant)  # type: ignore[arg-type]
    live = started(policy.deploy(L, M1))
    rates, stages = L.rates * 1.6, []
    for step in range(1, 13):
        plan, told = policy.adapt(observation(L, live, rates, 0.5, step=step), None)
        stages.append(told.stage)
        assert told.stage == "resources" or _placed(plan) == _placed(live)
        assert told.stage == "alternates" or np.array_equal(plan.active, live.active)
    expected = {3: "resources", 6: "resources", 9: "resources", 4: "alternates", 8: "alternates", 12: "alternates"}
    assert stages == [expected.get(step, "none") for step in range(1, 13)]
    together = Reactive(variant, 1, 1, together=True)  # type: ignore[arg-type]
    assert together.adapt(observation(L, live, rates, 0.5, step=1), None)[1].stage == "both"


@given(flows(15), st.sampled_from(VARIANTS), st.floats(0.3, 2.5), st.integers(1, 12))
@settings(deadline=None)
def test_a_step_of_the_rate_is_answered(flow: Flow, variant: str, factor: float, step: int) -> None:
    """I4, I9: after a look at the resources the goal is expected to be reached, whatever the rate did."""
    policy = Reactive(variant)  # type: ignore[arg-type]
    live = started(policy.deploy(flow, M1))
    external = flow.rates * factor
    omega = ideal_by_hand(flow, live.active, live.power, external)[0]
    plan, told = policy.adapt(observation(flow, live, external, omega, step=step), None)
    plan.check()
    assert (plan.counts >= 1).all()
    assert told.omega == pytest.approx(ideal_by_hand(flow, plan.active, plan.power, external)[0])
    assert told.reached == (told.omega >= flow.goal.throughput - 1e-9)
    band = flow.goal.throughput - flow.goal.tolerance
    if told.stage == "resources":
        assert told.omega >= band - 1e-6 or variant == "strict"
        assert told.reached or omega >= band - 1e-6 or variant == "strict"
    if abs(omega - flow.goal.throughput) <= flow.goal.tolerance and variant != "strict":
        assert _placed(plan) == _placed(live)


def test_trigger_by_the_average() -> None:
    """§6.7: one bad interval after good ones must not count with the average, and must count with the last."""
    live = started(Reactive("sharded").deploy(L, M1))
    seen = observation(L, live, L.rates * 1.5, 1.0, step=9)
    seen.omegas[-1] = 0.5
    assert sum(Reactive("sharded", trigger="last").adapt(seen, None)[0].counts) > live.counts.sum()
    assert sum(Reactive("sharded", trigger="average").adapt(seen, None)[0].counts) <= live.counts.sum()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_failed_machine_is_replaced_at_once(variant: str) -> None:
    """§6.12: waiting for the next due interval would leave an element without a core."""
    policy = Reactive(variant)  # type: ignore[arg-type]
    live = started(policy.deploy(L, M1))
    for number in list(live.machines_of(2)):
        live.drop_machine(number)
    plan, told = policy.adapt(observation(L, live, L.rates, 1.0, step=1, failed=1), None)
    assert (plan.counts >= 1).all() and told.reached


def test_the_first_interval_is_left_alone() -> None:
    """Nothing was observed yet: the first deployment must run as planned."""
    policy = Reactive()
    live = started(policy.deploy(L, M1), 0.0)
    assert policy.adapt(observation(L, live, L.rates, 1.0, step=0), None)[0] is live


def test_strict_elements_look_only_at_themselves() -> None:
    """§3.5: a starved element behind a bottleneck must not grow; machines are never shared."""
    target = own_target(S)
    assert target == pytest.approx(0.7 ** (1 / 3))
    plan = Reactive("strict").deploy(S, M1)
    assert all(len(machine.instances) == 1 for machine in plan.machines.values())
    need = S.ideal(plan.active, S.rates)[0] * S.cost[S.rows(plan.active)]
    assert plan.counts.tolist() == [max(1, math.ceil(target * n / 2.0)) for n in need]
    rows = [("m1.small", {0: 1}, 1.0, 60.0), *(("m1.xlarge", {e: 4}, 1.0, 60.0) for e in (1, 2, 3))]
    live = machines(M1, [1, 1, 0, 0], rows)
    found = strict_resources(live, S, np.array([6.0, 0.0, 0.0, 0.0]))
    assert found.counts[0] > 1 and (found.counts[1:] <= live.counts[1:]).all()
    switched = strict_alternates(live, S, np.array([1.0 / 0.52 / 0.7, 0.0, 0.0, 0.0]))
    assert switched.active.tolist() == [0, 1, 0, 1]


@given(flows(20), st.floats(0.2, 3.0))
@settings(deadline=None)
def test_strict_targets_reach_the_goal_together(flow: Flow, factor: float) -> None:
    """The share of each element to the power of the path's length is the goal: all together must reach it."""
    plan = Reactive("strict").deploy(flow, M1)
    assert ideal_by_hand(flow, plan.active, plan.power, flow.rates)[0] >= flow.goal.throughput - 1e-9
    live, external = started(plan), flow.rates * factor
    for _ in range(flow.size + 1):
        live = started(strict_resources(live, flow, external))
    live.check()
    into = flow.estimate(live.active, live.power, external).inflow
    need = into * flow.cost[flow.rows(live.active)]
    assert (live.power >= (own_target(flow) - flow.goal.tolerance) * need - 1e-6).all()
    assert all(len(machine.instances) <= 1 for machine in live.machines.values())


def test_links_that_are_too_slow_are_told() -> None:
    """§6.10: cores do not help where the network is short; a policy that says all is well would hide it."""
    from dataclasses import replace

    slow = replace(L, message_bits=8e6)
    live = machines(M1, [0] * 8, [("m1.xlarge", {e: 4}, 1.0, 60.0) for e in range(8)])
    rates = L.rates * 0.1
    assert network_throughput(live, L, rates) == pytest.approx(1.0)
    by_hand = slow.estimate(live.active, live.power, rates, hosts=live.hosts()).omega
    assert by_hand < 1.0
    assert network_throughput(live, slow, rates) == pytest.approx(by_hand)
    plan, told = Reactive().adapt(observation(slow, live, rates, 1.0, step=3), None)
    assert told.reached or _placed(plan) == _placed(live)


def test_references() -> None:
    """§3.8: a static deployment never changes, a hybrid adapts as its second policy does."""
    static = Static(Reactive())
    live = started(static.deploy(S, M1))
    seen = observation(S, live, S.rates * 3, 0.2)
    assert static.adapt(seen, None)[0] is live
    hybrid = Hybrid(Reactive("sharded"), Reactive())
    assert _placed(hybrid.deploy(S, M1)) == _placed(Reactive("sharded").deploy(S, M1))
    assert _placed(hybrid.adapt(seen, None)[0]) == _placed(Reactive().adapt(seen, None)[0])


def test_without_alternates_money_is_worth_the_same() -> None:
    """Profits with and without alternates are compared: another worth of money would decide that instead."""
    fixed = without_alternates(S)
    assert fixed.alternate_counts.tolist() == [1] * 4 and fixed.sigma == S.sigma == pytest.approx(0.014625)
    active = np.zeros(4, np.int64)
    assert fixed.value_of(active) == 1.0
    assert fixed.cost.tolist() == [0.52, 0.35, 0.90, 0.80]
    released = without_alternates(S, np.array([1, 1, 1, 1]))
    assert released.value_of(active) == pytest.approx(0.95)
    power = np.full(4, 2.0)
    assert fixed.estimate(active, power).omega == pytest.approx(ideal_by_hand(S, S.best, power, S.rates)[0])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Reactive("globl"), "central, sharded, strict"),  # type: ignore[arg-type]
        (lambda: Reactive(trigger="mean"), "last, average"),  # type: ignore[arg-type]
        (
            lambda: Reactive(resource_every=-1),
            "alternate_every and resource_every: must be a number of intervals, or 0 for never",
        ),
    ],
)
def test_bad_options_are_refused(make: Callable[[], Reactive], told: str) -> None:
    """A misspelt variant must not silently run another one."""
    with pytest.raises(InputError, match=told):
        make()
