"""A policy that follows the better of a reactive and a look-ahead policy, by their regret on recent history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from goffish.cloud.billing import rent
from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.policies.feasible import feasible
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.plasticc import Plasticc
from goffish.scheduling.policies.reactive import Reactive

#: Least relative throughput that costs are compared at.
_LEAST = 0.05


@dataclass(frozen=True, eq=False)
class Shadow:
    """A run of a policy on the interval model, on the observed rates and the mean observed speed of the machines.

    Attributes
    ----------
    live : Deployment
        Its deployment in the last interval.
    memory : Any
        The memory of the policy.
    queue : float64, shape (elements,)
    omegas, values, costs : float64, shape (intervals,)
        Throughput, value and cost of each interval so far.
    """

    live: Deployment
    memory: Any
    queue: Floats
    omegas: Floats
    values: Floats
    costs: Floats

    def advance(self, policy: Policy, seen: Observation, coefficient: float) -> Shadow:
        """Run the last interval, and let the policy adapt."""
        flow, interval_s, catalogue = seen.flow, seen.interval_s, seen.catalogue
        live = Deployment(catalogue, self.live.active)
        power, cost = np.zeros(flow.size), 0.0
        for number, machine in self.live.machines.items():
            ended = machine.elapsed_s + interval_s
            price = float(catalogue.prices[machine.kind])
            bills = rent(np.array([ended, machine.elapsed_s]), price, catalogue.billing)
            cost += float(bills[0] - bills[1])
            live.add_machine(replace(machine.copy(), coefficient=coefficient, elapsed_s=ended))
            # Machines of the first deployment are ready at once.
            starting = catalogue.startup_s if machine.elapsed_s == 0 and len(self.omegas) else 0.0
            working = max(0.0, 1.0 - starting / interval_s) * live.speed(number)
            for element, count in machine.instances.items():
                power[element] += count * working
        live.settle()
        found = flow.estimate(live.active, power, seen.observed, queue=self.queue, interval_s=interval_s)
        queue = np.maximum(0.0, self.queue + (found.inflow - found.processed) * interval_s)
        omegas = np.append(self.omegas, found.omega)
        values = np.append(self.values, flow.value_of(live.active))
        costs = np.append(self.costs, cost)
        speeds = {number: np.array([coefficient]) for number in live.machines}
        forecast = seen.forecast
        if forecast is not None:
            mean = np.mean([*forecast.speeds.values()], axis=0) if forecast.speeds else np.ones(len(forecast.rates))
            forecast = forecast._replace(speeds=dict.fromkeys(live.machines, mean), bandwidths={})
        known = replace(
            seen, live=live.copy(), omegas=omegas, speeds=speeds, queue=queue, spent=float(costs.sum()), failed=0,
            forecast=forecast, bandwidths={},
        )  # fmt: skip
        plan, memory = policy.adapt(known, self.memory)
        return Shadow(_started(feasible(plan, flow, live), live), memory, queue, omegas, values, costs)

    def score(self, flow: Flow, window: int, steps: int) -> float:
        """Profit of a period like the last intervals, with the cost scaled to the goal's throughput."""
        omega = max(float(self.omegas[-window:].mean()), _LEAST)
        cost = float(self.costs[-window:].mean()) * steps * flow.goal.throughput / omega
        # Without a value of money, the cost decides between equal values.
        return float(self.values[-window:].mean()) - (flow.sigma or 1e-9) * cost


def _started(plan: Deployment, live: Deployment) -> Deployment:
    """Return a deployment with ids of real machines for planned ones."""
    found = Deployment(plan.catalogue, plan.active)
    following = max((*live.machines, *plan.machines, -1)) + 1
    for number, machine in plan.machines.items():
        found.add_machine(replace(machine.copy(), id=number if number >= 0 else following))
        following += number < 0
    return found


@dataclass(frozen=True, eq=False)
class Followed:
    """Memory of `Auto`: the followed policy, its memory, the interval of the last switch, and the runs of all."""

    name: str
    memory: Any
    since: int
    shadows: dict[str, Shadow] = field(default_factory=dict)


@dataclass(frozen=True)
class Auto:
    """Follows `plasticc` or `reactive-global`, whichever had less regret on recent history.

    Both run in shadow from the first deployment on: on the interval model, with the observed rates, the mean observed
    speed of the machines and the forecasts of the time. The regret of a policy is the difference between the best
    profit of the last `window_h` hours and its own, with the cost scaled to the goal's throughput.

    Parameters
    ----------
    start : Policy
        Policy of the first deployment.
    window_h : float
        Hours over which the profits are compared; several paid hours, as a machine is paid when an hour begins.
    margin : float
        Least regret of the followed policy that leads to a switch, times the share of the period that is left.
    patience_h : float
        Hours before the first switch, and between two switches.
    """

    start: Policy
    window_h: float = 6.0
    margin: float = 0.03
    patience_h: float = 3.0

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by name; the first one is followed until the other one has proved better."""
        return {"plasticc": Plasticc(self.start), "reactive-global": Reactive()}

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the first deployment of `start`."""
        return self.start.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Followed | None) -> tuple[Deployment, Followed]:
        """See `Policy`; the memory holds the shadow runs."""
        policies, flow, step = self.policies, observation.flow, observation.step
        name = next(iter(policies))
        if memory is None or step == 0:
            none, queue = np.zeros(0), np.zeros(flow.size)
            live = observation.live.copy()
            for machine in live.machines.values():
                machine.elapsed_s = max(0.0, machine.elapsed_s - (observation.interval_s if step else 0.0))
            begun = {each: Shadow(live, None, queue, none, none, none) for each in policies}
            memory = Followed(name, None, step, begun)
        shadows, name, since = memory.shadows, memory.name, memory.since
        own = memory.memory
        if step:
            seen = [machine.coefficient for machine in observation.live.machines.values()]
            coefficient = float(np.mean(seen)) if seen else 1.0
            shadows = {each: shadows[each].advance(policies[each], observation, coefficient) for each in policies}
            per_hour = 3600.0 / observation.interval_s
            window, patience = max(1, round(self.window_h * per_hour)), round(self.patience_h * per_hour)
            scores = {each: shadows[each].score(flow, window, observation.steps) for each in policies}
            best = max(scores, key=lambda each: (scores[each], each == name))
            gain = (scores[best] - scores[name]) * (observation.steps - step) / observation.steps
            if step - since >= patience and gain > self.margin:
                name, own, since = best, None, step
        plan, own = policies[name].adapt(observation, own)
        return plan, Followed(name, own, since, shadows)
