"""What a run refuses, and machines that fail or cannot be had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from goffish.cloud.variability import like_ec2
from goffish.errors import InputError
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.peers import TrueRateScaling
from goffish.scheduling.simulate.rates import scaled
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.simulate.policies import Fixed, assert_conserved, catalogue, chain, per_element

RATES = np.ones((3, 1))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rates": np.ones(3)}, "expected one row per interval and 1 columns"),
        ({"rates": np.ones((3, 2))}, "expected one row per interval and 1 columns"),
        ({"rates": np.ones((0, 1))}, r"rates: shape \(0, 1\); expected one row per interval and 1 columns"),
        ({"rates": -RATES}, "rates: numbers must be finite and 0 or more"),
        ({"rates": RATES * np.nan}, "rates: numbers must be finite and 0 or more"),
        ({"interval_s": 0}, "interval_s = 0"),
        ({"tick_s": 0}, "tick_s = 0"),
        ({"switch_pause_s": -1}, "switch_pause_s = -1"),
        ({"engine": "other"}, "engine = 'other': must be one of fluid, events"),
        ({"omega": "other"}, "omega = 'other'"),
        ({"measure": "other"}, "measure = 'other'"),
        ({"arrivals": "other"}, "arrivals = 'other'"),
        ({"arrivals": "poisson"}, "arrivals = poisson: not available with engine = fluid; use engine = events"),
        ({"catalogue": "none"}, "catalogue 'none' not found"),
    ],
)
def test_what_is_refused(change: dict[str, Any], told: str) -> None:
    """Breaks when a wrong argument gives a stack trace, or a run that means nothing."""
    given = {"flow": chain(1.0), "catalogue": catalogue(), "policy": Fixed([{0: 1}]), "rates": RATES, **change}
    with pytest.raises(InputError, match=told):
        simulate(**given)


@pytest.mark.parametrize("engine", ["fluid", "events"])
def test_policies_that_ask_for_what_cannot_be(engine: Any) -> None:
    """Breaks when a plan with too many machines, or with ones that do not run, is enacted."""

    def ghost(plan: Deployment) -> None:
        plan.machines[7] = plan.machines[0].copy()
        plan._used[7] = 1
        plan.counts[0] += 1

    def three(plan: Deployment) -> None:
        plan.catalogue = catalogue()
        for _ in range(2):
            plan.put(0, plan.plan_machine(0))

    def full(plan: Deployment) -> None:
        plan.machines[0].instances[0] = 9

    for change, told in ((ghost, "machine 7, which does not run"), (three, "allows 2 at a time"), (full, "on 1 cores")):
        with pytest.raises(InputError, match=told):
            simulate(
                chain(1.0),
                catalogue(limit=2),
                Fixed([{0: 1}], changes={1: change}),
                RATES,
                engine=engine,
                interval_s=60,
            )


@pytest.mark.parametrize("engine", ["fluid", "events"])
def test_a_tenth_of_the_machines_fails(engine: Any) -> None:
    """PLAStiCC F10: breaks unless the policy is told at once and throughput is back within two intervals."""
    flow = compile_flow(read_dataflow("linear-road"))
    failures = Failures(shares=((3000.0, 0.1),))
    result = simulate(
        flow, "ec2-2013-m1", TrueRateScaling(), scaled(flow, np.ones(20)), failures=failures, engine=engine
    )
    rows = result.intervals.to_pylist()
    assert result.summary.failures == rows[10]["failures"] == np.ceil(0.1 * rows[9]["machines"])
    assert rows[10]["starts"] == rows[10]["failures"] and rows[10]["machines"] == rows[9]["machines"]
    assert rows[10]["omega"] < rows[9]["omega"] and rows[12]["omega"] == pytest.approx(rows[9]["omega"], abs=0.01)
    assert result.machines["stop_s"].to_pylist().count(3000.0) == result.summary.failures


def test_failures_in_the_middle_of_an_interval() -> None:
    """6.17: power until the failure counts; half of the queue is lost with half of the power, or stays."""
    rates = np.array([[4.0], [0.0], [0.0]])
    for lose in (False, True):
        failures = Failures({1: 150.0}, lose_messages=lose)
        policy = Fixed([{0: 1}, {0: 1}])
        result = simulate(chain(1.0), catalogue(), policy, rates, interval_s=100, failures=failures)
        assert per_element(result.elements, "power", 1)[:, 0] == pytest.approx([2, 1.5, 1])
        # 200 wait, 150 are processed; of the other 50 a third was on the machine that worked half of the time.
        lost = 50 / 3 if lose else 0
        assert per_element(result.elements, "lost", 1)[:, 0] == pytest.approx([0, lost, 0])
        assert_conserved(chain(1.0), result.elements, 100)
        assert [s.failed for s in policy.seen] == [0, 1]


def test_random_lives_do_not_depend_on_other_machines() -> None:
    """Breaks when a machine's failure changes with the number of machines: runs could not be compared."""
    failures = Failures(mean_life_s=2000, seed=3)
    few, many = (
        simulate(chain(1.0), catalogue(), Fixed([{0: 1}] * count), np.ones((40, 1)), interval_s=100, failures=failures)
        for count in (40, 400)
    )
    a, b = (run.machines["stop_s"].to_pylist() for run in (few, many))
    assert a == b[:40]
    dead = np.mean([stop is not None for stop in b])
    assert dead == pytest.approx(1 - np.exp(-4000 / 2000), abs=0.05)


def test_everything_has_failed() -> None:
    """Breaks when a run ends with an error although only its machines are gone: throughput is 0, and messages wait."""
    for engine in ("fluid", "events"):
        result = simulate(
            chain(1.0), catalogue(), Fixed([{0: 1}]), np.ones((4, 1)), like_ec2(1), interval_s=100, engine=engine,
            failures=Failures({0: 200.0}),
        )  # fmt: skip
        assert result.intervals["omega"].to_pylist()[2:] == [0, 0] and result.summary.cost == pytest.approx(0.06)
        assert result.summary.queue >= 200


def test_policies_see_how_fast_links_were() -> None:
    """Breaks when links that deliver less than they are rated for are planned with as if they did not."""
    variability, policy = like_ec2(3), Fixed([{0: 1}, {1: 1}])
    simulate(
        flow=chain(0.1, 0.1), catalogue=catalogue(mbit_s=100.0), policy=policy, rates=np.ones((4, 1)) * [[1.0, 0.0]],
        interval_s=700.0, variability=variability,
    )  # fmt: skip
    for seen in policy.seen:
        until = seen.step * 700.0
        expected = variability.bandwidths(np.array([0, 1]), until - 700.0, until)
        assert list(seen.bandwidths) == [0, 1] and list(seen.bandwidths.values()) == pytest.approx(expected.tolist())
    assert len({seen.bandwidths[0] for seen in policy.seen}) > 1
    policy = Fixed([{0: 1}])
    simulate(flow=chain(0.1), catalogue=catalogue(), policy=policy, rates=RATES)
    assert all(seen.bandwidths == {} for seen in policy.seen)
