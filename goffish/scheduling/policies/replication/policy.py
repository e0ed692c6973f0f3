"""Selective replication as a policy: another policy deploys, this one replicates instances on free cores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies.feasible import feasible
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.peers import cheapest_class
from goffish.scheduling.policies.reactive import Reactive
from goffish.scheduling.policies.replication.availability import aggregated, query_availabilities
from goffish.scheduling.policies.replication.blocks import spof_plan
from goffish.scheduling.policies.replication.importance import importance
from goffish.scheduling.policies.replication.model import Places, System, primaries, system
from goffish.scheduling.policies.replication.optimiser import plan_replicas
from goffish.scheduling.policies.replication.placement import replicated, spare
from goffish.scheduling.policies.replication.selection import select


@dataclass(frozen=True)
class Replicate:
    """Replicates instances on spare cores of the machines of another policy, so that outputs survive crashes.

    An operator is an instance, and a query is an output with everything upstream. Replicas never occupy a core that the
    other policy uses, as they are hidden from it. Machines are rented for replicas only with a target.

    Attributes
    ----------
    start : Policy
        Policy that deploys and adapts; default: ``reactive-global``.
    mode : {"recommended", "paper"}
        Single points of failure with mirrored placement; or out-degree and low utilisation with first fit.
    failure : float
        Probability of a machine to fail within the period of a plan.
    target : float, optional
        Mean availability of the outputs.
    most_rented : int
        Maximum number of machines rented for replicas only.
    """

    start: Policy = field(default_factory=Reactive)
    mode: Literal["recommended", "paper"] = "recommended"
    failure: float = 0.02
    target: float | None = None
    most_rented: int = 10

    def __post_init__(self) -> None:
        if self.mode not in ("recommended", "paper"):
            raise InputError(f"mode = {self.mode!r}: must be one of recommended, paper")
        if not 0 < self.failure < 1:
            raise InputError(f"failure = {self.failure:g}: must be between 0 and 1")
        if self.target is not None and not 0 <= self.target <= 1:
            raise InputError(f"target = {self.target:g}: must be 0 to 1")
        if self.most_rented < 0:
            raise InputError(f"most_rented = {self.most_rented}: must be at least 0")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the other policy's first deployment, with replicas."""
        return self._with_replicas(self.start.deploy(flow, catalogue), flow, None)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """Adapt by the other policy, without replicas and idle machines; `memory` is the memory of that policy."""
        seen = observation.live.copy()
        seen.drop_replicas()
        for number in [n for n, m in observation.live.machines.items() if m.replicas and not m.instances]:
            seen.drop_machine(number)
        plan, memory = self.start.adapt(replace(observation, live=seen), memory)
        return self._with_replicas(plan, observation.flow, observation.live), memory

    def _with_replicas(self, plan: Deployment, flow: Flow, live: Deployment | None) -> Deployment:
        plan = feasible(plan, flow, live).copy()
        plan.drop_replicas()
        limit = plan.catalogue.limit
        own: list[int] = []
        if self.target is not None and live is not None:
            # Machines rented for replicas remain as long as the target requires them.
            for number, machine in live.machines.items():
                if number in plan.machines or machine.instances or not machine.replicas:
                    continue
                if limit is None or len(plan.machines) < limit:
                    kept = machine.copy()
                    kept.replicas = {}
                    plan.add_machine(kept)
                    own.append(number)
        if not plan.machines or (plan.counts < 1).any():
            return plan
        while True:
            found, operators, numbers = deployed_system(plan, flow, self.failure)
            places = self._places(found)
            reached = self.target is None or aggregated(found, query_availabilities(found, places)) >= self.target
            full = limit is not None and len(plan.machines) >= limit
            if reached or full or len(own) >= self.most_rented:
                break
            own.append(plan.plan_machine(cheapest_class(plan.catalogue)))
        for operator, host in np.argwhere(places & ~primaries(found)).tolist():
            element, number = operators[operator]
            plan.put_replica(element, number, numbers[host])
        for number in own:
            if not plan.used(number):
                plan.drop_machine(number)
        return plan

    def _places(self, found: System) -> Places:
        budget = spare(found)
        if self.mode == "paper":
            scores = importance(found)
            return replicated(found, scores, select(found, scores, budget), budget, "simple").places
        if self.target is not None:
            return plan_replicas(found, target=self.target, polish=False).places
        return spof_plan(found, budget).places


def deployed_system(plan: Deployment, flow: Flow, failure: float) -> tuple[System, list[tuple[int, int]], list[int]]:
    """Convert a deployment to a system: each instance is an operator, each output a query of all instances upstream.

    Returns
    -------
    System
    list of (PE, machine id)
        PE and machine of each operator.
    list of int
        Machine id of each host.
    """
    numbers = list(plan.machines)
    operators = [
        (element, number)
        for number in numbers
        for element, count in sorted(plan.machines[number].instances.items())
        for _ in range(count)
    ]
    place = {number: at for at, number in enumerate(numbers)}
    queries = []
    for output in flow.outputs.tolist():
        behind, waiting = {output}, [output]
        while waiting:
            element = waiting.pop()
            before = flow.pred[flow.pred_offsets[element] : flow.pred_offsets[element + 1]].tolist()
            waiting += [u for u in before if u not in behind]
            behind.update(before)
        queries.append([at for at, (element, _) in enumerate(operators) if element in behind])
    made = system(
        np.ones(len(operators)),
        [place[number] for _, number in operators],
        queries,
        np.full(len(numbers), failure),
        [float(plan.catalogue.cores[plan.machines[number].kind]) for number in numbers],
    )
    return made, operators, numbers
