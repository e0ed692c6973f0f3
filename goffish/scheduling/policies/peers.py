"""Autoscalers of other systems as baseline policies.

They do not use alternates (every PE keeps its best one) or mixtures of machine types: instances are placed first-fit on
machines of the type with the lowest price per speed. Empty machines are released when their paid time ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import paid_left_s
from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies.observation import Observation

Counts = NDArray[np.int64]


def cheapest_class(catalogue: Catalogue, *, large: bool = False) -> int:
    """The machine type with the lowest price per speed; ties are broken by the first, or by the most cores."""
    worth = np.round(catalogue.prices / catalogue.powers, 12)
    return int(np.lexsort((-catalogue.cores if large else np.arange(worth.size), worth))[0])


def first_deployment(flow: Flow, catalogue: Catalogue, share: float, *, large: bool = False) -> Deployment:
    """Instances for a share of the expected input of every PE, at rated speeds."""
    plan = Deployment(catalogue, flow.best)
    kind = cheapest_class(catalogue, large=large)
    speed = float(catalogue.speeds[kind])
    resize(plan, instances_for(share * needs(flow, flow.rates), np.full(flow.size, speed)), kind)
    return plan


def needs(flow: Flow, rates: Floats) -> Floats:
    """Speed that every PE requires to keep up with an external input, on its best alternate."""
    into, _ = flow.ideal(flow.best, rates)
    return np.asarray(into * flow.cost[flow.rows(flow.best)], np.float64)


def instances_for(power: Floats, speed: Floats) -> Counts:
    """Number of instances of a speed with this total power; at least one."""
    return np.maximum(1, np.ceil(power / speed - SLACK)).clip(max=1e12).astype(np.int64)


def instance_speeds(observation: Observation) -> Floats:
    """Mean observed speed of the instances of each PE; without instances, that of a new machine."""
    live = observation.live
    rated = float(observation.catalogue.speeds[cheapest_class(observation.catalogue)])
    some = (live.counts > 0) & (live.power > 0)
    speeds = np.divide(live.power, live.counts, out=np.full(live.counts.size, rated), where=some)
    return np.asarray(speeds, np.float64)


def resize(plan: Deployment, wanted: Counts, kind: int | None = None) -> None:
    """Change a plan to these numbers of instances of each PE, in place.

    Instances are removed from the newest machines first, and added on the oldest machines with a free core. If the
    catalogue's limit is reached, instances are left out; PEs without instances have priority. New machines have type
    `kind`, by default the cheapest.
    """
    for element in np.flatnonzero(plan.counts > wanted).tolist():
        for number in sorted(plan.machines_of(element), key=_age, reverse=True):
            surplus = int(plan.counts[element] - wanted[element])
            if surplus <= 0:
                break
            plan.take(element, number, min(surplus, plan.machines[number].instances[element]))
    kind = cheapest_class(plan.catalogue) if kind is None else kind
    short = sorted(np.flatnonzero(plan.counts < wanted).tolist(), key=lambda i: (plan.counts[i] > 0, i))
    free = iter([number for number in sorted(plan.machines, key=_age) if plan.free(number)])
    target = next(free, None)
    # Every PE gets its first instance before any PE gets its second.
    for first in (True, False):
        for element in short:
            while plan.counts[element] < (1 if first else wanted[element]):
                if target is not None and not plan.free(target):
                    target = next(free, None)
                if target is None:
                    if plan.catalogue.limit is not None and len(plan.machines) >= plan.catalogue.limit:
                        return
                    target = plan.plan_machine(kind)
                missing = 1 if first else int(wanted[element] - plan.counts[element])
                plan.put(element, target, min(missing, plan.free(target)))


def _age(number: int) -> tuple[bool, int]:
    """Order of machines by age: running machines by id, then planned ones as planned."""
    return (number < 0, abs(number))


def release_idle(plan: Deployment, interval_s: float) -> None:
    """Release the empty machines whose paid time ends before the next decision."""
    billing = plan.catalogue.billing
    for number in [n for n in plan.machines if n >= 0 and not plan.used(n)]:
        if paid_left_s(plan.machines[number].elapsed_s, billing) <= interval_s + SLACK:
            plan.drop_machine(number)


@dataclass(frozen=True)
class TrueRateScaling:
    """Scale by true processing rates: from the capacity of an instance directly to the required number.

    After Kalavri et al., "Three steps is all you need" (DS2, OSDI 2018): true rates are the rates of an instance that
    never waits, and the requirements of all PEs follow from the external rates in one pass over the graph.

    Attributes
    ----------
    target : float, optional
        Share of the input to provide for; default: the dataflow's throughput goal. DS2 itself uses 1.
    warmup : int
        Intervals without decisions after a change.
    """

    target: float | None = None
    warmup: int = 1

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        return first_deployment(flow, catalogue, self._target(flow))

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """`memory` is the interval of the last change."""
        plan, changed = observation.live.copy(), -1 if memory is None else int(memory)
        if observation.failed or changed < 0 or observation.step - changed > self.warmup:
            power = self._target(observation.flow) * needs(observation.flow, observation.observed)
            wanted = instances_for(power, instance_speeds(observation))
            if not np.array_equal(wanted, plan.counts):
                resize(plan, wanted)
                changed = observation.step
        release_idle(plan, observation.interval_s)
        return plan, changed

    def _target(self, flow: Flow) -> float:
        return flow.goal.throughput if self.target is None else self.target


@dataclass(frozen=True)
class UtilisationScaling:
    """Scale to a target utilisation with a boundary, like the autoscaler of Flink (FLIP-271).

    A PE is not changed while its utilisation is within the boundary around the target. Defaults are those of Flink's
    operator.

    Attributes
    ----------
    utilisation, boundary : float
    window_s : float
        Window over which rates are averaged.
    stabilisation_s : float
        Time without decisions after a change.
    scale_down_s : float
        Parallelism never falls below the maximum recommendation within this time.
    catch_up_s : float
        Time in which queued messages are processed.
    most_down : float
        Maximum share of its instances that a PE loses in one step.
    """

    utilisation: float = 0.7
    boundary: float = 0.3
    window_s: float = 900.0
    stabilisation_s: float = 300.0
    scale_down_s: float = 3600.0
    catch_up_s: float = 1800.0
    most_down: float = 0.6

    @dataclass
    class Memory:
        """The interval of the last change, and the recent recommendations."""

        changed: int = -(10**9)
        wanted: deque[tuple[int, Counts]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        for name in ("utilisation", "catch_up_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} = {getattr(self, name)}: must be greater than 0")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        return first_deployment(flow, catalogue, 1.0 / self.utilisation)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        past: UtilisationScaling.Memory = self.Memory() if memory is None else memory
        step, interval = observation.step, observation.interval_s
        plan = observation.live.copy()
        flow, speed = observation.flow, instance_speeds(observation)
        seen = observation.rates[-max(1, round(self.window_s / interval)) :]
        power = needs(flow, seen.mean(axis=0) if len(seen) else flow.rates)
        costs = flow.cost[flow.rows(flow.best)]
        backlog = observation.queue / self.catch_up_s * costs if observation.queue.size else np.zeros(flow.size)
        wanted = instances_for((power + backlog) / self.utilisation, speed)
        recent = deque((at, counts) for at, counts in past.wanted if (step - at) * interval < self.scale_down_s)
        recent.append((step, wanted))
        changed = past.changed
        if observation.failed or (step - changed) * interval > self.stabilisation_s + SLACK:
            held = np.max([counts for _, counts in recent], axis=0)
            least = np.ceil((1.0 - self.most_down) * plan.counts - SLACK).astype(np.int64)
            smaller = np.minimum(plan.counts, np.maximum(held, least))
            target = np.where(wanted > plan.counts, wanted, smaller)
            capacity = plan.counts * speed
            load = power + backlog
            outside = (load > (self.utilisation + self.boundary) * capacity + SLACK) | (
                load < (self.utilisation - self.boundary) * capacity - SLACK
            )
            target = np.where(outside | (plan.counts == 0), target, plan.counts)
            if not np.array_equal(target, plan.counts):
                resize(plan, target)
                changed = step
        release_idle(plan, interval)
        return plan, self.Memory(changed, recent)


@dataclass(frozen=True)
class QueueScaling:
    """Scale by thresholds on queues, as rules on queue lengths do (KEDA, Heron's Dhalion).

    Attributes
    ----------
    high_s : float
        A PE that needs longer than this to process its queue gets `growth` times its instances.
    growth : float
    calm : int
        A PE loses one instance after this number of consecutive intervals with a queue below `low_s`.
    low_s : float
    """

    high_s: float = 60.0
    growth: float = 1.5
    calm: int = 6
    low_s: float = 1.0

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        return first_deployment(flow, catalogue, flow.goal.throughput)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """`memory` is the number of consecutive calm intervals of each PE."""
        flow, plan = observation.flow, observation.live.copy()
        calm = np.zeros(flow.size, np.int64) if memory is None else memory
        queue = observation.queue if observation.queue.size else np.zeros(flow.size)
        service = plan.counts * instance_speeds(observation) / flow.cost[flow.rows(flow.best)]
        waiting_s = np.divide(queue, service, out=np.where(queue > 0, np.inf, 0.0), where=service > 0)
        calm = np.where(waiting_s < self.low_s, calm + 1, 0)
        grown = np.ceil(self.growth * plan.counts - SLACK).astype(np.int64)
        wanted = np.where(waiting_s > self.high_s, np.maximum(grown, plan.counts + 1), np.maximum(plan.counts, 1))
        tired = (calm >= self.calm) & (plan.counts > 1)
        wanted = np.where(tired, plan.counts - 1, wanted)
        calm = np.where(tired, 0, calm)
        if not np.array_equal(wanted, plan.counts):
            resize(plan, wanted)
        release_idle(plan, observation.interval_s)
        return plan, calm
