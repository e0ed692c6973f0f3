"""Dataflows as placement problems, plans on hosts, and the policy in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from experiments.latency_aware.exact import optimal_placement
from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.hosts import host_columns
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.latency_aware.ant_system import Ants
from goffish.scheduling.policies.latency_aware.flows import flow_problem, host_counts
from goffish.scheduling.policies.latency_aware.hybrid import hybrid
from goffish.scheduling.policies.latency_aware.policy import LatencyAware
from goffish.scheduling.policies.observation import Observation
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.policies.cases import M1, S

QUICK = Ants(ants=8, iterations=30, stall=15)


def flow_of(needs: dict[str, dict[str, Any]]) -> Flow:
    names = ("in", "work", "out")
    return compile_flow(
        read_dataflow(
            {
                "elements": [{"id": n, "cost": 0.1, "selectivity": 2.0, "needs": needs.get(n, {})} for n in names],
                "edges": [["in", "work"], ["work", "out"]],
                "inputs": {"in": 10.0},
            }
        )
    )


HOSTS = host_columns(["edge", "fog"], cores=[2.0, 8.0], memory_mb=[1000.0, 4000.0], latency_ms=5.0)


def test_flow_as_a_problem() -> None:
    """All figures by hand: rates 10, 20, 40."""
    flow = flow_of({"work": {"cores": 0.5, "memory_mb": 200, "hosts": ["fog"]}, "out": {"most_instances": 3}})
    problem = flow_problem(flow, HOSTS, np.array([1, 2, 1]))
    assert problem.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert problem.events.tolist() == [10.0, 10.0, 20.0, 20.0]
    assert problem.cpu.tolist() == [100.0, 50.0, 50.0, 100.0]
    assert problem.memory.tolist() == [0.0, 200.0, 200.0, 0.0]
    assert problem.cpu_capacity.tolist() == [200.0, 800.0]
    assert problem.memory_capacity.tolist() == [1000.0, 4000.0]
    assert problem.may.tolist() == [[True, True], [False, True], [False, True], [True, True]]
    assert problem.limit == 1.0


def test_places_are_optimal_and_kept() -> None:
    """Where an element is tied to a host, it is there; places that are the best already stay."""
    flow = flow_of({"in": {"hosts": ["edge"]}, "work": {"memory_mb": 600}, "out": {}})
    problem = flow_problem(flow, HOSTS, np.array([1, 2, 4]))
    found = hybrid(problem, np.random.default_rng(0))
    best = optimal_placement(problem).score
    assert best is not None and found.score.value == pytest.approx(best.value) and found.score.violations == 0
    assert found.placement[0] == 0
    again = hybrid(problem, np.random.default_rng(1), found.placement)
    assert again.placement.tolist() == found.placement.tolist()
    assert host_counts(found.placement, np.array([1, 2, 4]), 2).sum(axis=1).tolist() == [1, 2, 4]


def test_no_host_and_no_instance() -> None:
    with pytest.raises(InputError, match="processing element work: not permitted on any host"):
        flow_problem(flow_of({"work": {"hosts": ["cloud"]}}), HOSTS, np.ones(3, np.int64))
    with pytest.raises(InputError, match="instances: expected at least one for each of 3 processing elements"):
        flow_problem(flow_of({}), HOSTS, np.array([1, 0, 1]))


@dataclass(frozen=True)
class Scattered:
    """A chain of four on three machines of two cores, each instance away from its neighbours."""

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        plan = Deployment(catalogue, flow.best)
        machines = [plan.plan_machine(0) for _ in range(3)]
        for element, at in enumerate((0, 1, 0, 2)):
            plan.put(element, machines[at])
        return plan

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        return observation.live.copy(), memory


def chain_of_four() -> tuple[Flow, Catalogue]:
    flow = compile_flow(
        read_dataflow(
            {
                "elements": [{"id": n, "cost": 0.1} for n in "abcd"],
                "edges": [["a", "b"], ["b", "c"], ["c", "d"]],
                "inputs": {"a": 8.0},
            }
        )
    )
    small = {"name": "small", "cores": 2, "price_per_hour": 1.0}
    return flow, read_catalogue({"classes": [small], "latency_ms": 5.0, "startup_s": 0.0})


def test_neighbours_are_brought_together() -> None:
    """Two machines instead of three, one edge between them instead of three; the third is never asked for."""
    flow, catalogue = chain_of_four()
    plan = LatencyAware(start=Scattered(), search=QUICK).deploy(flow, catalogue)
    plan.check()
    used = [sorted(machine.instances) for machine in plan.machines.values() if machine.instances]
    assert sorted(used) == [[0, 1], [2, 3]]
    assert plan.counts.tolist() == [1] * 4
    result = simulate(flow, catalogue, LatencyAware(start=Scattered(), search=QUICK), np.tile(flow.rates, (4, 1)))
    plain = simulate(flow, catalogue, Scattered(), np.tile(flow.rates, (4, 1)))
    assert result.summary.cost < plain.summary.cost
    assert result.summary.omega == pytest.approx(1.0)


@dataclass(frozen=True)
class FastAndSlow:
    """The first element on a slow machine of two cores, the second on a fast one of one core."""

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        plan = Deployment(catalogue, flow.best)
        for element in range(2):
            plan.put(element, plan.plan_machine(element))
        return plan

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        return observation.live.copy(), memory


@pytest.mark.parametrize(("speed", "together"), [(0.1, False), (2.0, True)])
def test_moves_that_cost_throughput_are_not_made(speed: float, together: bool) -> None:
    """Both fit on the slow machine only, where the second element could not keep up."""
    flow = compile_flow(
        read_dataflow(
            {
                "elements": [{"id": "light", "cost": 0.001}, {"id": "heavy", "cost": 0.1}],
                "edges": [["light", "heavy"]],
                "inputs": {"light": 10.0},
            }
        )
    )
    classes = [
        {"name": "slow", "cores": 2, "speed": speed, "price_per_hour": 1.0},
        {"name": "fast", "cores": 1, "speed": 2.0, "price_per_hour": 1.0},
    ]
    plan = LatencyAware(start=FastAndSlow(), search=QUICK).deploy(flow, read_catalogue({"classes": classes}))
    assert (len(plan.machines) == 1) is together


def test_nothing_moves_without_a_change() -> None:
    """The same machines and inputs: the live deployment is kept, and other inputs alone are no gain."""
    flow, catalogue = chain_of_four()
    policy = LatencyAware(start=Scattered(), search=QUICK)
    live = policy.deploy(flow, catalogue)
    live.machines = {at: machine for at, machine in enumerate(live.machines.values()) if machine.instances}
    for rate in (8.0, 9.5):
        seen = Observation(
            flow=flow, catalogue=catalogue, step=1, steps=3, interval_s=300.0, live=_live(live),
            omegas=np.ones(1), rates=np.array([[rate, 0.0, 0.0, 0.0]]),
        )  # fmt: skip
        plan, memory = policy.adapt(seen, None)
        assert plan.described(flow) == live.described(flow)
        assert memory[1].tolist() == ([8.0, 0.0, 0.0, 0.0] if rate == 8.0 else [9.5, 0.0, 0.0, 0.0])


def _live(plan: Deployment) -> Deployment:
    """The same with its machines running."""
    found = Deployment(plan.catalogue, plan.active)
    for number, machine in plan.machines.items():
        running = machine.copy()
        running.id = number
        found.add_machine(running)
    return found


@pytest.mark.parametrize("relative", [False, True])
def test_throughput_is_kept(relative: bool) -> None:
    """With the reactive heuristic that chooses machines: the goal is reached, for no more money."""
    rates = np.outer(np.array([1.0, 1.2, 2.0, 1.5, 1.0, 1.0]), S.rates)
    policy = LatencyAware(search=QUICK, relative=relative)
    ours, again = (simulate(S, M1, policy, rates).summary for _ in range(2))
    plain = simulate(S, M1, policy.start, rates).summary
    assert ours.omega >= plain.omega - 0.05
    assert ours.cost <= plain.cost * 1.05
    assert ours.cost == again.cost
    assert ours.omega == again.omega


def test_refused() -> None:
    with pytest.raises(InputError, match="gain"):
        LatencyAware(gain=-0.1)
