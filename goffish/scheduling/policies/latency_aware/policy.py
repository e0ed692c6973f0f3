"""Latency-aware placement as a policy: another policy chooses instances and machines, this one places the instances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.dataflow.hosts import machine_hosts
from goffish.scheduling.policies.feasible import feasible
from goffish.scheduling.policies.latency_aware.ant_system import Ants
from goffish.scheduling.policies.latency_aware.flows import flow_problem, host_counts
from goffish.scheduling.policies.latency_aware.hybrid import hybrid
from goffish.scheduling.policies.latency_aware.score import Ints, Score, ScoreWeights, evaluate
from goffish.scheduling.policies.network import network_throughput
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.reactive import Reactive
from goffish.scheduling.policies.scaling import release_idle


@dataclass(frozen=True)
class LatencyAware:
    """Places the instances of another policy on its machines by the hybrid search.

    Instances are moved only if the score falls by `gain` and the throughput still reaches the goal. Machines without
    instances are released when their paid time ends; planned machines without instances are not requested.

    Attributes
    ----------
    start : Policy
        Policy that chooses alternates, instances and machines; default: ``reactive-global``.
    gain : float
        Minimum decrease of the score for instances to move.
    change : float
        Minimum relative change of an input for a new placement if nothing else has changed.
    relative : bool
        Whether latency counts as a share of its maximum, with the weight of the other parts; otherwise it only breaks
        ties.
    search : Ants
    seed : int
    """

    start: Policy = field(default_factory=Reactive)
    gain: float = 0.01
    change: float = 0.1
    relative: bool = False
    search: Ants = field(default_factory=Ants)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("gain", "change", "seed"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} = {getattr(self, name)}: must be at least 0")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the other policy's first deployment with a new placement."""
        plan = self._placed(feasible(self.start.deploy(flow, catalogue), flow), flow, flow.rates, {}, 0)
        release_idle(plan, flow.goal.interval_s)
        return plan

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """Adapt by the other policy, and place again; `memory` holds its memory and the input of the last placement."""
        inner, rates = (None, observation.flow.rates) if memory is None else memory
        plan, inner = self.start.adapt(observation, inner)
        plan = feasible(plan, observation.flow, observation.live)
        seen = observation.observed
        moved = bool((np.abs(seen - rates) > self.change * rates).any())
        if moved or not _same(plan, observation.live):
            plan = self._placed(plan, observation.flow, seen, dict(observation.bandwidths), observation.step)
            release_idle(plan, observation.interval_s)
            rates = seen
        return plan, (inner, rates)

    def _placed(
        self, plan: Deployment, flow: Flow, external: Floats, bandwidths: dict[int, float], step: int
    ) -> Deployment:
        """Return the same instances with less network traffic; the plan itself if the gain is too small."""
        if not plan.machines or (plan.counts < 1).any():
            return plan
        numbers = list(plan.machines)
        machines = [plan.machines[number] for number in numbers]
        places = machine_hosts(plan.catalogue, [m.kind for m in machines], [m.coefficient for m in machines])
        problem = flow_problem(
            flow,
            places,
            plan.counts,
            active=plan.active,
            external=external,
            cores=np.ones(flow.size),
            weights=ScoreWeights(latency=1.0, relative=True) if self.relative else None,
        )
        now = np.array(
            [
                at
                for element in range(flow.size)
                for at, machine in enumerate(machines)
                for _ in range(machine.instances.get(element, 0))
            ],
            np.int64,
        )
        found = hybrid(problem, np.random.default_rng([self.seed, step]), now, ants=self.search)
        if found.score.violations or not worth_it(evaluate(problem, now), found.score, self.gain):
            return plan
        placed = _moved(plan, host_counts(found.placement, plan.counts, len(numbers)))
        before, after = (network_throughput(one, flow, external, bandwidths) for one in (plan, placed))
        return placed if after >= min(before, flow.goal.throughput) - SLACK else plan


def _same(plan: Deployment, live: Deployment) -> bool:
    """Whether two deployments run the same instances on the same machines."""
    return plan.machines.keys() == live.machines.keys() and all(
        machine.instances == live.machines[number].instances for number, machine in plan.machines.items()
    )


def _moved(plan: Deployment, counts: Ints) -> Deployment:
    """Return a deployment with `counts` of each PE (row) on each machine (column)."""
    moved = Deployment(plan.catalogue, plan.active)
    for column, machine in enumerate(plan.machines.values()):
        new = machine.copy()
        new.instances = {element: count for element, count in enumerate(counts[:, column].tolist()) if count}
        moved.add_machine(new)
    return moved


def worth_it(before: Score, after: Score, gain: float) -> bool:
    """Whether a placement is better by enough: fewer violations, or as many and a score that is lower by `gain`."""
    if after.violations != before.violations:
        return after.violations < before.violations
    return after.value <= (1 - gain) * before.value and after.value < before.value
