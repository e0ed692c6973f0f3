"""Autoscalers of other systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud.catalogue import read_catalogue
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.observation import Observation
from goffish.scheduling.policies.peers import (
    QueueScaling,
    TrueRateScaling,
    UtilisationScaling,
    cheapest_class,
    release_idle,
    resize,
)

SIX = read_catalogue("ec2-2013")
ROAD = compile_flow(read_dataflow("linear-road"))
ONE = compile_flow(read_dataflow({"elements": [{"id": "A", "cost": 1}], "inputs": {"A": 10}}))
SMALL = read_catalogue("ec2-2013-m1").only(["m1.small"])


def observation(live: Deployment, flow: Flow = ONE, **fields: Any) -> Observation:
    known = {"step": 20, "steps": 100, "interval_s": 300.0, "omegas": np.ones(20), "queue": np.zeros(flow.size)}
    rates = fields.pop("rates", np.tile(flow.rates, (20, 1)))
    return Observation(flow=flow, catalogue=live.catalogue, live=live, rates=rates, **{**known, **fields})


def running(count: int, coefficient: float = 1.0, elapsed_s: float = 600.0) -> Deployment:
    """So many small machines, each with one instance of the one element."""
    live = Deployment(SMALL, ONE.best)
    for number in range(count):
        live.add_machine(Machine(number, 0, coefficient, elapsed_s, {0: 1}))
    return live


@given(st.lists(st.integers(1, 20), min_size=8, max_size=8), st.lists(st.integers(1, 20), min_size=8, max_size=8))
def test_plans_have_the_instances_that_are_wanted(first: list[int], then: list[int]) -> None:
    """Breaks when a core hosts two instances (I4), the class is not the cheapest, or machines are wasted."""
    plan = Deployment(SIX, ROAD.best)
    for wanted in (first, then):
        resize(plan, np.array(wanted))
        plan.check()
        assert plan.counts.tolist() == wanted
    assert {SIX.classes[m.kind].name for m in plan.machines.values()} == {"m3.xlarge"}
    # First fit: no more machines than the larger of both needs.
    assert len(plan.machines) <= -(-(max(sum(first), sum(np.maximum(first, then)))) // 4)
    assert cheapest_class(SIX) == SIX.number("m3.xlarge")


def test_limits_leave_something_for_everyone() -> None:
    """Breaks when a small catalogue gives all cores to the first element, or an error."""
    three = SIX.model_copy(update={"limit": 3})
    plan = Deployment(three, ROAD.best)
    resize(plan, np.full(8, 9))
    assert len(plan.machines) == 3 and plan.counts.sum() == 12 and plan.counts.min() == 1


def test_true_rates_give_the_number_that_is_needed() -> None:
    """DS2: input 10, target 0.8, cost 1, speeds 0.5: 16 instances at once; breaks when steps are taken."""
    policy = TrueRateScaling()
    assert policy.deploy(ONE, SMALL).counts.tolist() == [8] and TrueRateScaling(1.0).deploy(ONE, SMALL).counts[0] == 10
    plan, changed = policy.adapt(observation(running(8, 0.5)), None)
    assert plan.counts.tolist() == [16] and changed == 20
    again, _ = policy.adapt(observation(running(8, 0.5), step=21), changed)
    assert again.counts.tolist() == [8]
    failed, _ = policy.adapt(observation(running(8, 0.5), step=21, failed=1), changed)
    assert failed.counts.tolist() == [16]
    into, _ = ROAD.ideal(ROAD.best, ROAD.rates)
    needed = np.ceil(0.8 * into * ROAD.cost[ROAD.rows(ROAD.best)] / 3.25 - 1e-9)
    assert policy.deploy(ROAD, SIX).counts.tolist() == needed.clip(1).tolist()
    assert ROAD.estimate(ROAD.best, policy.deploy(ROAD, SIX).power).omega >= 0.8 - 1e-9


@pytest.mark.parametrize(("rate", "instances"), [(10.0, 10), (9.9, 10), (10.1, 15), (4.1, 10), (3.9, 6)])
def test_utilisation_within_its_boundary_is_left_alone(rate: float, instances: int) -> None:
    """Flink: between 0.4 and 1.0 of 10 instances nothing happens; beyond, rate / 0.7 are wanted."""
    policy, seen = UtilisationScaling(), np.full((20, 1), rate)
    plan, memory = policy.adapt(observation(running(10), rates=seen), None)
    assert plan.counts.tolist() == [instances]
    assert memory.changed == (20 if instances != 10 else -(10**9))


def test_utilisation_scaling_waits() -> None:
    """Breaks when it acts again at once, forgets the last hour's needs, shrinks too far, or ignores what waits."""
    policy = UtilisationScaling()
    low, high = np.full((20, 1), 1.0), np.full((20, 1), 14.0)
    plan, memory = policy.adapt(observation(running(10), rates=high), None)
    assert plan.counts.tolist() == [20]
    soon, memory = policy.adapt(observation(running(20), rates=high * 2, step=21), memory)
    assert soon.counts.tolist() == [20]
    held, memory = policy.adapt(observation(running(20), rates=low, step=25), memory)
    assert held.counts.tolist() == [20]
    # After an hour only the small need is left: 2, but at most 60 % go at once.
    shrunk, _ = policy.adapt(observation(running(20), rates=low, step=40), memory)
    assert shrunk.counts.tolist() == [8]
    calm = np.full((20, 1), 9.0)
    waiting, _ = policy.adapt(observation(running(10), rates=calm, queue=np.array([3600.0])), None)
    assert waiting.counts.tolist() == [int(np.ceil((9 + 2) / 0.7))]
    # A rate is averaged over 15 minutes: one of three intervals at 30 is 10 on average.
    peak = np.array([[0.0], [0.0], [30.0]])
    assert policy.adapt(observation(running(10), rates=peak), None)[0].counts.tolist() == [10]


def test_queue_scaling() -> None:
    """Breaks when a long queue adds nothing, a short one does, or calm elements do not give instances back."""
    policy = QueueScaling(calm=2)
    grown, calm = policy.adapt(observation(running(10), queue=np.array([601.0])), None)
    assert grown.counts.tolist() == [15] and calm.tolist() == [0]
    same, calm = policy.adapt(observation(running(10), queue=np.array([599.0])), None)
    assert same.counts.tolist() == [10] and calm.tolist() == [0]
    for count in (1, 0):
        plan, calm = policy.adapt(observation(running(10)), calm)
        assert plan.counts.tolist() == [10 if count else 9] and calm.tolist() == [count]
    single, _ = policy.adapt(observation(running(1)), np.array([5]))
    assert single.counts.tolist() == [1]
    assert policy.deploy(ONE, SMALL).counts.tolist() == [8]


def test_empty_machines_stay_until_their_paid_time_ends() -> None:
    """I10: breaks when an empty machine is given back early, or after another hour has begun."""
    for elapsed, stays in ((600.0, True), (3299.0, True), (3300.0, False), (3599.0, False), (3600.0, True)):
        live = running(1)
        live.add_machine(Machine(5, 0, 1.0, elapsed, {}))
        release_idle(live, 300.0)
        assert (5 in live.machines) is stays
