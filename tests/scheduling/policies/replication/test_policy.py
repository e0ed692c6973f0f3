"""Replicas in deployments and in both simulators: cores without throughput until a machine fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.errors import InputError
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.observation import Observation
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.policies.replication.availability import query_availabilities
from goffish.scheduling.policies.replication.model import primaries
from goffish.scheduling.policies.replication.policy import Replicate, deployed_system
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.policies.cases import SIX, S

CHAIN = compile_flow(
    read_dataflow(
        {
            "elements": [{"id": "a", "cost": 0.1}, {"id": "b", "cost": 0.1}],
            "edges": [["a", "b"]],
            "inputs": {"a": 10.0},
        }
    )
)
TWO = read_catalogue(
    {"classes": [{"name": "two", "cores": 2, "speed": 1.0, "price_per_hour": 0.1}], "billing": {"quantum_s": 60}}
)


@dataclass(frozen=True)
class Spread:
    """One instance of each element on a machine of its own; what fails is put back."""

    machines: int = 2

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        plan = Deployment(catalogue, flow.best)
        for at in range(self.machines):
            number = plan.plan_machine(0)
            if at < flow.size:
                plan.put(at, number)
        return plan

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        return observation.live.copy(), memory


def test_replicas_in_a_deployment() -> None:
    plan = Spread().deploy(CHAIN, TWO)
    plan.put_replica(0, -1, -2)
    plan.check()
    assert plan.free(-2) == 0 and plan.counts.tolist() == [1, 1] and plan.power.tolist() == [1.0, 1.0]
    assert plan.copy().machines[-2].replicas == {(0, -1): 1}
    assert plan.described(CHAIN)["machines"][1]["replicas"] == {"a": 1}
    with pytest.raises(InputError, match="replicas"):
        plan.put_replica(0, -1, -1)
    with pytest.raises(InputError, match="free cores"):
        Deployment.put_replica(_filled(), 0, -1, -2)
    gone = plan.machines[-1]
    plan.drop_machine(-1)
    plan.promote(gone)
    assert plan.machines[-2].instances == {0: 1, 1: 1} and plan.power.tolist() == [1.0, 1.0]
    assert not plan.machines[-2].replicas
    plan.check()


def _filled() -> Deployment:
    plan = Spread().deploy(CHAIN, TWO)
    plan.put(1, -2)
    return plan


@pytest.mark.parametrize("engine", ["fluid", "events"])
def test_take_over(engine: Any) -> None:
    """A machine fails in the middle: with replicas nothing is missed, without them the rest of the run."""
    rates = np.tile([10.0, 0.0], (4, 1))
    for policy, expected in ((Spread(), [1, 0.5, 0, 0]), (Replicate(Spread()), [1, 1, 1, 1])):
        failures = Failures(machines={0: 90.0}, lose_messages=True)
        run = simulate(CHAIN, TWO, policy, rates, engine=engine, interval_s=60.0, failures=failures)
        omegas = run.intervals["omega"].to_numpy()
        assert omegas == pytest.approx(expected, abs=0.05 if engine == "events" else 1e-9)
        assert run.summary.cost > 0 and (run.summary.lost == 0 or expected[2] == 0)


def test_spare_cores_only() -> None:
    """Without a target no machine more is rented than the other policy wants, and nobody loses a core."""
    inner = make_policy("reactive-global")
    plain, more = inner.deploy(CHAIN, TWO), Replicate(inner).deploy(CHAIN, TWO)
    assert len(plain.machines) == len(more.machines) and (plain.counts == more.counts).all()
    asked = Replicate(Spread(machines=2), target=0.999, failure=0.02)
    mirrored = asked.deploy(CHAIN, TWO)
    assert len(mirrored.machines) == 2 and sum(sum(m.replicas.values()) for m in mirrored.machines.values()) == 2
    packed = make_policy("reactive-global").deploy(CHAIN, TWO)
    found, _, _ = deployed_system(packed, CHAIN, 0.02)
    if query_availabilities(found, primaries(found)).mean() < 0.999:
        helped = Replicate(inner, target=0.999).deploy(CHAIN, TWO)
        assert len(helped.machines) > len(packed.machines)
        helped.check()


@pytest.mark.slow
def test_measured_availability() -> None:
    """Days in which each machine fails by itself: the share that runs to the end agrees with the prediction (Y13)."""
    failure, runs = 0.15, 300
    policy = Replicate(Spread(machines=3), failure=failure)
    found, operators, numbers = deployed_system(Spread(machines=3).deploy(CHAIN, TWO), CHAIN, failure)
    plan = policy.deploy(CHAIN, TWO)
    places = primaries(found)
    for host, number in enumerate(numbers):
        for (element, of), count in plan.machines[number].replicas.items():
            places[operators.index((element, of)), host] = count > 0
    predicted = float(query_availabilities(found, places).mean())
    rng = np.random.default_rng(4)
    rates, up = np.tile([10.0, 0.0], (2, 1)), 0
    for _ in range(runs):
        dead = {number: 30.0 for number in range(3) if rng.random() < failure}
        run = simulate(CHAIN, TWO, policy, rates, interval_s=60.0, failures=Failures(machines=dead))
        up += float(run.intervals["omega"].to_numpy()[-1]) > 0.5
    assert abs(up / runs - predicted) < 3 * np.sqrt(predicted * (1 - predicted) / runs)


@pytest.mark.parametrize("engine", ["fluid", "events"])
@pytest.mark.parametrize("mode", ["recommended", "paper"])
@pytest.mark.parametrize("target", [None, "0.97"])
def test_runs_through(engine: Any, mode: str, target: str | None) -> None:
    """Under failures and changing rates: without a target the machines are those of the other policy alone."""
    options = {"mode": mode} | ({} if target is None else {"target": target})
    policy = make_policy("goffish.scheduling.policies.replication.policy:Replicate", options, own=True)
    rates = np.zeros((12, S.size))
    rates[:, S.inputs] = np.array([5.0, 8, 10, 4, 6, 12, 3, 5, 9, 10, 2, 5])[:, None]
    for failures in (Failures(), Failures(mean_life_s=4000.0, lose_messages=True, seed=3)):
        runs = [
            simulate(S, SIX, one, rates, engine=engine, failures=failures, interval_s=300.0)
            for one in (policy, make_policy("reactive-global"))
        ]
        machines = [run.intervals["machines"].to_numpy() for run in runs]
        assert runs[0].summary.omega > 0
        if failures.mean_life_s is None:
            # Nothing fails, so replicas change nothing but, with a target, the bill.
            assert (runs[0].intervals["omega"].to_numpy() == runs[1].intervals["omega"].to_numpy()).all()
            assert (machines[0] >= machines[1]).all() and (target is not None or (machines[0] == machines[1]).all())


def test_wrong_options() -> None:
    for name, value in (("mode", "x"), ("failure", 1.0), ("target", 2.0), ("most_rented", -1)):
        with pytest.raises(InputError, match=name):
            Replicate(**{name: value})
