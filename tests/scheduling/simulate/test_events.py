"""The discrete-event engine: against the interval model, and against closed forms of queues, links and pauses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.dataflows.generators import layered_dataflow
from goffish.cloud.variability import like_ec2
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.peers import TrueRateScaling, UtilisationScaling
from goffish.scheduling.simulate import kernels
from goffish.scheduling.simulate.rates import scaled, walk
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.simulate.policies import Fixed, assert_conserved, catalogue, chain, per_element


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 20))
def test_both_engines_agree_on_constant_input(seed: int, size: int) -> None:
    """Breaks when mean throughput differs by more than 1 %, short of power or not: it is the same dataflow."""
    rng = np.random.default_rng(seed)
    flow = compile_flow(layered_dataflow(size, rng))
    counts = rng.integers(1, 4, size)
    rates = np.tile(flow.rates * rng.uniform(0.5, 6), (6, 1))
    policy = Fixed([{i: 1} for i in range(size) for _ in range(counts[i])])
    fluid, events = (simulate(flow, catalogue(), policy, rates, interval_s=60, engine=e) for e in ("fluid", "events"))
    assert events.summary.omega == pytest.approx(fluid.summary.omega, rel=0.01)
    assert per_element(events.elements, "processed", size) == pytest.approx(
        per_element(fluid.elements, "processed", size), rel=0.01, abs=1e-6
    )
    assert_conserved(flow, events.elements, 60.0)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_a_single_queue_with_random_arrivals(rho: float) -> None:
    """M/D/1: on average rho^2 / (2 (1 - rho)) messages wait when one is done in each tick (Pollaczek and Khinchine)."""
    flow = chain(1.0, rate=rho)
    rates = np.full((40, 1), rho)
    result = simulate(
        flow, catalogue(), Fixed([{0: 1}]), rates, interval_s=10_000, engine="events", arrivals="poisson", seed=3
    )
    waiting = per_element(result.elements, "queue_mean", 1)[:, 0].mean()
    assert waiting == pytest.approx(rho**2 / (2 * (1 - rho)), rel=0.05)
    assert per_element(result.elements, "inflow", 1).mean() == pytest.approx(rho, rel=0.01)


def test_a_queue_with_even_arrivals() -> None:
    """D/D/1: nothing waits below the capacity; above it the queue grows by the difference, and is worked off at it."""
    rates = np.array([[0.5], [1.5], [0.5], [0.5]])
    result = simulate(chain(1.0), catalogue(), Fixed([{0: 1}]), rates, interval_s=100, engine="events")
    assert per_element(result.elements, "queue", 1)[:, 0] == pytest.approx([0, 50, 0, 0], abs=1e-9)
    # The mean of a triangle, at the ends of ticks.
    assert per_element(result.elements, "queue_mean", 1)[:, 0] == pytest.approx([0, 25.25, 24.75, 0], abs=1e-9)


@given(st.lists(st.tuples(st.floats(0.1, 5), st.floats(0, 50)), min_size=1, max_size=8), st.floats(0, 100))
def test_messages_go_where_they_are_done_first(hosts: list[tuple[float, float]], amount: float) -> None:
    """Assumption 3: hosts that get messages end level, those that get none had more to do; nothing is lost."""
    speed, before = np.array([h[0] for h in hosts]), np.array([h[1] for h in hosts])
    after = before.copy()
    assert kernels.spread(amount, 0, len(hosts), speed, after)
    assert after.sum() == pytest.approx(before.sum() + amount) and (after >= before - 1e-9).all()
    given_some = after > before + 1e-9
    if given_some.any():
        level = (after / speed)[given_some].max()
        assert (after / speed)[given_some] == pytest.approx(np.full(given_some.sum(), level))
        assert ((before / speed)[~given_some] >= level - 1e-6).all()
    idle = np.zeros(len(hosts))
    assert not kernels.spread(amount, 0, len(hosts), idle, after)


def test_new_machines_and_pauses_take_effect_in_between() -> None:
    """Breaks when a machine works before its start-up time is over, or an element while its alternate is switched."""

    def grow(plan: Deployment) -> None:
        plan.put(0, plan.plan_machine(0))

    policy = Fixed([{0: 1}], changes={1: grow})
    result = simulate(
        chain(1.0), catalogue(startup_s=60.5), policy, np.full((3, 1), 2.0), interval_s=300, engine="events"
    )
    power = per_element(result.elements, "power", 1)[:, 0]
    assert power == pytest.approx([1, 1 + 239.5 / 300, 2])
    assert per_element(result.elements, "processed", 1)[:, 0] == pytest.approx(power)
    assert result.events.to_pylist()[1]["event"] == "ready" and 360.5 in result.events["time_s"].to_pylist()

    flow = compile_flow(read_dataflow("text-classifier"))
    policy = Fixed([{0: 1}] + [{1: 1}] * 10, changes={1: lambda plan: plan.active.__setitem__(1, 1)})
    paused = simulate(
        flow, catalogue(), policy, np.tile(flow.rates, (3, 1)), interval_s=100, switch_pause_s=25, engine="events"
    )
    assert per_element(paused.elements, "power", 2)[:, 1] == pytest.approx([10, 7.5, 10])
    # 40 messages a second wait for 25 s, and are worked off at 10 / 0.08 a second.
    assert per_element(paused.elements, "queue_mean", 2)[1, 1] > 40 * 25 / 2 * 25 / 100
    assert_conserved(flow, paused.elements, 100)


def test_links_delay_and_limit() -> None:
    """Breaks when messages between machines come too early, or more of them than a link carries; none may vanish."""
    flow, rates = chain(0.001, 0.001, rate=200.0), np.zeros((3, 2))
    rates[:, 0] = 200.0
    late = catalogue(latency_ms=5000)
    result = simulate(flow, late, Fixed([{0: 1}, {1: 1}]), rates, interval_s=100, engine="events")
    # What was sent in the last 5 s is still on its way.
    assert per_element(result.elements, "queue", 2)[:, 1] == pytest.approx([1000, 1000, 1000])
    assert result.intervals["omega"].to_numpy() == pytest.approx([0.95, 1, 1])
    narrow = simulate(flow, catalogue(mbit_s=1.0), Fixed([{0: 1}, {1: 1}]), rates, interval_s=100, engine="events")
    assert narrow.intervals["omega"].to_numpy() == pytest.approx([0.625] * 3)
    assert narrow.summary.queue == pytest.approx(75 * 300)
    assert_conserved(flow, narrow.elements, 100)
    inside = simulate(flow, catalogue(2, mbit_s=1.0), Fixed([{0: 1, 1: 1}]), rates, interval_s=100, engine="events")
    assert inside.summary.omega == pytest.approx(1.0)


def test_messages_leave_a_released_machine_through_its_link() -> None:
    """Assumption 6: 50 messages of 1000 bytes need 80 s at 5 kbit/s; until then nobody can process them."""

    def release(plan: Deployment) -> None:
        plan.drop_machine(1)

    flow = chain(1.0)
    policy = Fixed([{0: 1}, {0: 1}], changes={1: release})
    rates = np.array([[3.0], [0.0]])
    result = simulate(flow, catalogue(mbit_s=0.005), policy, rates, interval_s=100, engine="events")
    moved = [event for event in result.events.to_pylist() if event["event"] == "migrate"]
    assert [(m["time_s"], m["machine"], m["messages"]) for m in moved] == [(100.0, 1, pytest.approx(50.0))]
    # The other machine works off its own 50, has nothing for 30 s, and then 20 of those that came.
    assert per_element(result.elements, "queue", 1)[:, 0] == pytest.approx([100, 30])
    assert_conserved(flow, result.elements, 100)


@pytest.mark.parametrize("lose", [False, True])
def test_failed_machines_lose_or_return_their_messages(lose: bool) -> None:
    """6.17: half of what waits is on the machine that fails; its paid hour stays paid, and the policy is told."""
    flow, policy = chain(1.0), Fixed([{0: 1}, {0: 1}])
    rates = np.array([[4.0], [0.0], [0.0]])
    result = simulate(
        flow, catalogue(), policy, rates, interval_s=100, engine="events",
        failures=Failures({1: 150.0}, lose_messages=lose),
    )  # fmt: skip
    assert per_element(result.elements, "lost", 1)[:, 0] == pytest.approx([0, 50 if lose else 0, 0])
    # 200 wait at first; two machines take 100 in 50 s, the rest takes another 50.
    assert per_element(result.elements, "queue", 1)[:, 0] == pytest.approx([200, 0 if lose else 50, 0])
    assert [s.failed for s in policy.seen] == [0, 1] and list(policy.seen[1].live.machines) == [0]
    assert result.machines["failed"].to_pylist() == [False, True] and result.machines["stop_s"].to_pylist()[1] == 150
    assert result.machines["rent"].to_pylist() == pytest.approx([0.06, 0.06])
    assert ("fail", 150.0) in {(e["event"], e["time_s"]) for e in result.events.to_pylist()}
    assert_conserved(flow, result.elements, 100)


@pytest.mark.parametrize("policy", [TrueRateScaling(), UtilisationScaling()])
@pytest.mark.slow
def test_a_whole_day_of_machines_and_failures(policy: Any) -> None:
    """Breaks when messages vanish among starts, stops, moves and failures, or the engines drift apart."""
    flow = compile_flow(read_dataflow("linear-road"))
    rates = scaled(flow, walk(1.0, 72, np.random.default_rng(2)))
    failures = Failures(mean_life_s=20_000, shares=((9000.0, 0.1),), seed=4)
    runs = [
        simulate(flow, "ec2-2013", policy, rates, like_ec2(3), engine=engine, failures=failures, tick_s=2.0)
        for engine in ("fluid", "events")
    ]
    for run in runs:
        assert_conserved(flow, run.elements, 300)
        assert run.summary.failures > 3
    assert runs[0].summary.omega == pytest.approx(runs[1].summary.omega, rel=0.01)
