"""The interval model against a plain transcription of the equations, and its rules of starting, paying, switching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.dataflows.generators import layered_dataflow
from goffish.cloud.variability import Traces, Variability, like_ec2
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.peers import TrueRateScaling
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.simulate.policies import Fixed, assert_conserved, catalogue, chain, per_element


def transcribed(flow: Any, active: list[int], power: list[float], rates: Any, step_s: float) -> list[dict[str, Any]]:
    """Eq. 4 to 7 of docs/specs/provisioning.md, element by element, without links that are too slow."""
    n = flow.size
    succ = [flow.succ[flow.succ_offsets[i] : flow.succ_offsets[i + 1]].tolist() for i in range(n)]
    cost = [float(flow.cost[flow.alternate_offsets[i] + active[i]]) for i in range(n)]
    sel = [float(flow.selectivity[flow.alternate_offsets[i] + active[i]]) for i in range(n)]
    queue, found = [0.0] * n, []
    for external in rates:
        into, wanted_in = [float(x) for x in external], [float(x) for x in external]
        out, wanted, done = [0.0] * n, [0.0] * n, [0.0] * n
        for i in flow.order.tolist():
            done[i] = min(queue[i] + into[i] * step_s, power[i] * step_s / cost[i])
            out[i], wanted[i] = done[i] * sel[i] / step_s, wanted_in[i] * sel[i]
            for j in succ[i]:
                into[j] += out[i]
                wanted_in[j] += wanted[i]
        terms = [min(1.0, out[i] / wanted[i]) if wanted[i] > 0 else 1.0 for i in flow.outputs.tolist()]
        queue = [queue[i] + into[i] * step_s - done[i] for i in range(n)]
        found.append({"omega": sum(terms) / len(terms), "queue": queue, "out": out, "inflow": into})
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_intervals_follow_the_equations(seed: int, size: int) -> None:
    """Breaks when queues, rates or the throughput differ from Eq. 4 to 7, or messages get lost (I1, I3)."""
    rng = np.random.default_rng(seed)
    flow = compile_flow(layered_dataflow(size, rng))
    active = [int(rng.integers(count)) for count in flow.alternate_counts]
    counts = rng.integers(1, 4, size)
    rates = np.where(flow.rates > 0, rng.uniform(0, 30, (6, size)), 0.0)
    policy = Fixed([{i: 1} for i in range(size) for _ in range(counts[i])], active=active)
    result = simulate(flow, catalogue(), policy, rates, interval_s=60.0)
    expected = transcribed(flow, active, counts.astype(float).tolist(), rates, 60.0)
    assert result.intervals["omega"].to_numpy() == pytest.approx([row["omega"] for row in expected])
    for name in ("queue", "out", "inflow"):
        want = np.array([row[name] for row in expected])
        assert per_element(result.elements, name, size) == pytest.approx(want, abs=1e-6)
    assert_conserved(flow, result.elements, 60.0)
    assert (np.diff(result.intervals["cost"].to_numpy()) >= 0).all()


def test_variable_machines_deliver_their_share() -> None:
    """Breaks when a coefficient is not the mean of the trace over the interval."""
    flow = chain(1.0, rate=1.0)
    halves = Variability(Traces(np.array([[1.0, 0.5]]), 150.0))
    result = simulate(flow, catalogue(), Fixed([{0: 1}]), np.ones((4, 1)), halves, interval_s=300)
    assert result.intervals["omega"].to_numpy() == pytest.approx([0.75, 0.75, 0.75, 0.75])
    steady = simulate(flow, catalogue(), Fixed([{0: 1}]), np.ones((4, 1)), halves, interval_s=150)
    assert sorted(steady.intervals["omega"].to_numpy()[:2]) == pytest.approx([0.5, 1.0])


def test_backlog_settles_where_it_is_part_of_the_throughput() -> None:
    """6.4: at throughput w of rate and backlog, (1 - w) / w intervals of messages wait in the end."""
    flow = chain(1.0, rate=0.8)

    # 0.8 of what waits and comes is processed in each interval if the machine is that fast: here by its trace.
    queue, speeds = 0.0, []
    for _ in range(30):
        speeds.append(0.8 * (queue + 80.0) / 100.0)
        queue = 0.2 * (queue + 80.0)
    trace = Variability(Traces(np.array([speeds]), 100.0))
    first = trace.place(0)[1]
    trace = Variability(Traces(np.roll(np.array([speeds]), first, axis=1), 100.0))
    result = simulate(
        flow, catalogue(), Fixed([{0: 1}]), np.full((30, 1), 0.8), trace, interval_s=100.0, omega="backlog"
    )
    assert result.intervals["omega"].to_numpy() == pytest.approx(np.full(30, 0.8))
    assert result.summary.queue == pytest.approx((1 - 0.8) / 0.8 * 80.0)
    by_rate = simulate(flow, catalogue(), Fixed([{0: 1}]), np.full((30, 1), 0.8), trace, interval_s=100.0)
    assert by_rate.intervals["omega"].to_numpy()[-1] == pytest.approx(1.0)


def test_new_machines_start_late_and_are_paid_from_the_request() -> None:
    """Breaks when the start-up time is not taken off, or not paid: 60 of 300 s, at 1 instead of 2 machines."""

    def grow(plan: Deployment) -> None:
        plan.put(0, plan.plan_machine(0))

    flow = chain(1.0, rate=2.0)
    policy = Fixed([{0: 1}], changes={2: grow})
    result = simulate(flow, catalogue(startup_s=60), policy, np.full((5, 1), 2.0), interval_s=300)
    assert result.intervals["omega"].to_numpy() == pytest.approx([0.5, 0.5, 0.9, 1.0, 1.0])
    assert result.machines["ready_s"].to_pylist() == [0.0, 660.0]
    assert result.intervals["cost"].to_numpy() == pytest.approx([0.06, 0.06, 0.12, 0.12, 0.12])
    assert result.summary.starts == 1 and result.summary.instance_changes == 1 and result.summary.adaptations == 1
    # What the policy is told: the new machine has not been observed before it worked.
    assert [s.speeds[0].size for s in policy.seen] == [1, 2, 3, 4] and policy.seen[-1].speeds[1].size == 2
    assert policy.seen[2].live.machines[1].elapsed_s == pytest.approx(300)
    assert policy.seen[2].spent == pytest.approx(0.12) and policy.seen[2].omegas == pytest.approx([0.5, 0.5, 0.9])


@pytest.mark.parametrize(("stop", "paid"), [(60, 0.06), (61, 0.12), (65, 0.12)])
def test_machines_are_paid_by_started_hours(stop: int, paid: float) -> None:
    """G5: breaks when a machine that is stopped at the end of an hour is paid for another one."""

    def shrink(plan: Deployment) -> None:
        plan.drop_machine(1)

    policy = Fixed([{0: 1}, {0: 1}], changes={stop: shrink})
    result = simulate(chain(1.0), catalogue(), policy, np.ones((70, 1)), interval_s=60)
    assert result.machines["rent"].to_pylist() == pytest.approx([0.12, paid])
    assert result.summary.cost == pytest.approx(0.12 + paid) and result.summary.stops == 1
    assert result.machines["stop_s"].to_pylist() == [None, stop * 60.0]


def test_links_limit_what_arrives() -> None:
    """Eq. 5: 1 Mbit/s carries 125 messages of 1000 bytes a second between machines, and all of them inside of one."""
    flow, rates = chain(0.001, 0.001, rate=200.0), np.zeros((3, 2))
    rates[:, 0] = 200.0
    narrow = catalogue(cores=2, mbit_s=1.0)
    apart = simulate(flow, narrow, Fixed([{0: 1}, {1: 1}]), rates, interval_s=60)
    assert apart.summary.omega == pytest.approx(125 / 200)
    assert simulate(flow, narrow, Fixed([{0: 1, 1: 1}]), rates, interval_s=60).summary.omega == 1.0
    free = simulate(flow, narrow, Fixed([{0: 1}, {1: 1}]), rates, interval_s=60, network=False)
    assert free.summary.omega == 1.0
    half = Variability(Traces(np.ones((1, 1))), Traces(np.full((1, 1), 0.5)))
    slow = simulate(flow, narrow, Fixed([{0: 1}, {1: 1}]), rates, half, interval_s=60)
    assert slow.summary.omega == pytest.approx(62.5 / 200)


def test_a_switch_takes_its_time() -> None:
    """6.20: breaks when an element works while its alternate is switched, or the value is that of the wrong one."""
    flow = compile_flow(read_dataflow("text-classifier"))

    def cheaper(plan: Deployment) -> None:
        plan.active[1] = 0

    rates = np.tile(flow.rates, (3, 1))
    machines = [{0: 1}] + [{1: 1}] * 10
    policy = Fixed(machines, changes={1: cheaper})
    result = simulate(flow, catalogue(), policy, rates, interval_s=100, switch_pause_s=25)
    power = per_element(result.elements, "power", 2)
    assert power[:, 1].tolist() == pytest.approx([10.0, 7.5, 10.0]) and power[:, 0].tolist() == [1, 1, 1]
    assert result.intervals["value"].to_numpy() == pytest.approx([1.0, 0.825, 0.825])
    assert result.summary.switches == 1 and result.events["alternate"].to_pylist().count("bayes") == 1


@pytest.mark.slow
def test_variability_costs_a_fixed_deployment_its_share() -> None:
    """E2: breaks when traces do not lower the throughput by about their mean."""
    flow = compile_flow(read_dataflow("linear-road"))
    rates = np.tile(flow.rates, (144, 1))

    class Sized(TrueRateScaling):
        def adapt(self, observation: Any, memory: Any) -> Any:
            return observation.live, None

    even = simulate(flow, "ec2-2013-m1", Sized(), rates)
    uneven = [simulate(flow, "ec2-2013-m1", Sized(), rates, like_ec2(seed)) for seed in range(3)]
    assert even.summary.omega == pytest.approx(0.8, abs=0.05) and even.summary.throughput_met
    ratio = np.mean([r.summary.omega for r in uneven]) / even.summary.omega
    assert ratio == pytest.approx(0.85, abs=0.04)


def test_an_instance_that_moves_is_one_change() -> None:
    """Breaks when a move counts as two changes, or as none: stability would be compared wrongly."""

    def move(plan: Deployment) -> None:
        plan.take(0, 0)
        plan.put(0, 1)

    policy = Fixed([{0: 2, 1: 1}, {1: 1}], changes={1: move})
    flow = chain(1.0, 1.0)
    rates = np.tile(flow.rates, (3, 1))
    result = simulate(flow, catalogue(cores=4), policy, rates)
    assert result.intervals["instance_changes"].to_pylist() == [0, 1, 0] and result.summary.adaptations == 1
