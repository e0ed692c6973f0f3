"""The controllers as policies of simulated and real runs: one decision at the start of each interval.

Measurements of the item simulation are derived here: the time at a PE is that of its queue at the speed of its
instances, plus one message. A core runs one instance, and the catalogue's billing quantum is the unit.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from goffish.cloud.billing import paid_left_s
from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Flow
from goffish.scheduling.policies.btu.controller import Autoscaler, BtuController
from goffish.scheduling.policies.btu.model import Action, ClusterState, LeasedMachine, OperatorNeeds, Settings, Size
from goffish.scheduling.policies.btu.threshold import ThresholdController
from goffish.scheduling.policies.observation import Observation
from goffish.scheduling.policies.peers import cheapest_class, first_deployment, instance_speeds


@dataclass
class _Memory:
    """State of the policy: measurements of PEs, and images and failed plans of machines."""

    durations: list[list[float]]
    scalings: list[int]
    raised_s: list[float]
    leased_s: float = -math.inf
    images: dict[int, set[int]] = field(default_factory=dict)
    idle_fails: dict[int, int] = field(default_factory=dict)
    #: Machines requested in the last interval, in their order; their ids are not available yet.
    coming: list[set[int]] = field(default_factory=list)


@dataclass(frozen=True)
class Btu:
    """Provisioning by billing time units.

    Machines have the type with the lowest price per speed; ties are broken by the most cores. A machine is emptied and
    released at the last decision before the end of its paid unit (or in its last `end_share`).

    Attributes
    ----------
    settings : Settings
    method : {"units", "threshold"}
        The controller of the paper, or its baseline, which releases machines as soon as they are empty.
    slowdown : float
        Objective of PEs without `needs.duration_s`, as a multiple of the processing time of a message.
    seed : int
        Seed of the order in which PEs are examined.
    """

    settings: Settings = field(default_factory=Settings)
    method: Literal["units", "threshold"] = "units"
    slowdown: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.slowdown > 0:
            raise InputError(f"slowdown = {self.slowdown}: must be greater than 0")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return instances for the expected input; the paper starts with one instance each."""
        return first_deployment(flow, catalogue, flow.goal.throughput, large=True)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """Convert the running deployment to the state of the controller."""
        n = observation.flow.size
        past = _Memory([[] for _ in range(n)], [0] * n, [-math.inf] * n) if memory is None else copy.deepcopy(memory)
        state = self._state(observation, past)
        plan = observation.live.copy()
        planned: dict[int, int] = {}
        controller: Autoscaler = (
            BtuController(self.settings) if self.method == "units" else ThresholdController(self.settings)
        )
        if controller.by_units:
            self._end_units(observation, state, controller, plan, past)
        rng = np.random.default_rng([self.seed, observation.step])
        _enact(plan, controller.cycle(state, rng), planned)
        if not controller.by_units:
            for number in [number for number in plan.machines if not plan.used(number)]:
                if len(plan.machines) > 1:
                    plan.drop_machine(number)
                    del state.hosts[number]
        past.scalings, past.raised_s, past.leased_s = state.scalings, state.raised_s, state.leased_s
        past.images = {number: host.images for number, host in state.hosts.items() if number in plan.machines}
        past.idle_fails = {number: host.idle_fails for number, host in state.hosts.items() if host.idle_fails}
        past.coming = [state.hosts[number].images for number in planned]
        return plan, past

    def operators(self, flow: Flow, catalogue: Catalogue) -> OperatorNeeds:
        """A core for each instance, its required memory, and its objective."""
        speed = float(catalogue.speeds[cheapest_class(catalogue, large=True)])
        alone = self.slowdown * flow.cost[flow.rows(flow.best)] / speed
        own = flow.needs.duration_s
        return OperatorNeeds(
            flow.names, (1.0,) * flow.size, tuple(flow.needs.memory_mb.tolist()),
            tuple(np.where(np.isinf(own), alone, own).tolist()),
        )  # fmt: skip

    def _state(self, observation: Observation, past: _Memory) -> ClusterState:
        """Convert an observation to measurements of the controller."""
        flow, live, catalogue = observation.flow, observation.live, observation.catalogue
        kind = cheapest_class(catalogue, large=True)
        state = ClusterState(
            self.operators(flow, catalogue), _size(catalogue, kind), scalings=past.scalings, raised_s=past.raised_s,
            now_s=observation.step * observation.interval_s, leased_s=past.leased_s, most_hosts=catalogue.limit,
            queues=(observation.queue if observation.queue.size else np.zeros(flow.size)).tolist(),
        )  # fmt: skip
        fresh = iter(past.coming)
        for number in sorted(live.machines):
            machine = live.machines[number]
            placed = [machine.instances.get(k, 0) for k in range(flow.size)]
            known = past.images[number] if number in past.images else next(fresh, set())
            left = float(paid_left_s(machine.elapsed_s, catalogue.billing))
            state.hosts[number] = LeasedMachine(
                number, _size(catalogue, machine.kind), placed, known | set(machine.instances), state.now_s + left,
                idle_fails=past.idle_fails.get(number, 0),
            )  # fmt: skip
        state.next_host = max(live.machines, default=-1) + 1
        speed = instance_speeds(observation)
        cost = flow.cost[flow.rows(live.active)]
        with np.errstate(divide="ignore", invalid="ignore"):
            durations = cost / speed + np.asarray(state.queues) * cost / (speed * live.counts)
        for k, duration in enumerate(durations.tolist()):
            if math.isfinite(duration):
                kept = [*past.durations[k], duration][-self.settings.window :]
                past.durations[k] = kept
                state.measure(k, kept, state.now_s)
        return state

    def _end_units(
        self, observation: Observation, state: ClusterState, controller: Autoscaler, plan: Deployment, past: _Memory
    ) -> None:
        """Empty and release machines whose unit ends before the next decision, fewest instances first."""
        unit = observation.catalogue.billing.quantum_s
        within = max(observation.interval_s, self.settings.end_share * unit) + SLACK
        booting = {n for n, m in observation.live.machines.items() if m.elapsed_s < observation.catalogue.startup_s}
        due = [host for host in state.hosts.values() if host.paid_until_s - state.now_s <= within]
        for host in sorted(due, key=lambda host: (host.instances, host.number)):
            trial = state.copy()
            done = controller.host_end(trial, host.number, unit)
            # Moved instances must work at once, as the old machine is gone when the unit ends.
            if done[0].kind == "close" and not any(a.kind == "migrate" and a.target in booting for a in done):
                _enact(plan, done, {})
                for action in done:
                    if action.kind == "migrate":
                        trial.hosts[host.number].placed[action.operator] -= 1
                controller.unit_end(trial, host.number, unit, True)
                plan.drop_machine(host.number)
                state.__dict__.update(trial.__dict__)
            elif done[0].kind == "prolong":
                state.__dict__.update(trial.__dict__)


def _size(catalogue: Catalogue, kind: int) -> Size:
    memory = catalogue.classes[kind].memory_mb
    return Size(float(catalogue.cores[kind]), math.inf if memory is None else memory)


def _enact(plan: Deployment, done: list[Action], planned: dict[int, int]) -> None:
    """Apply the decisions to a deployment; `planned` maps leased hosts of the state to ids in the plan."""
    for action in done:
        host = planned.get(action.host, action.host)
        if action.kind == "lease":
            planned[action.host] = plan.plan_machine(cheapest_class(plan.catalogue, large=True))
        elif action.kind == "start":
            plan.put(action.operator, host)
        elif action.kind == "drain":
            plan.take(action.operator, host)
        elif action.kind == "migrate":
            plan.put(action.operator, action.target)
            plan.take(action.operator, host)
