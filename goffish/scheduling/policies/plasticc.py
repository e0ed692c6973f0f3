"""PLAStiCC: plan early on predictions, enact late. Kumbhare, Simmhan and Prasanna (CCGrid 2014).

See docs/specs/plasticc.md, sections 3.4, 3.8 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies.averaging import (
    MOST,
    Averaging,
    aims_of,
    effective_target,
    observed_speeds,
    predicted,
    typical_coefficient,
)
from goffish.scheduling.policies.lookahead import Schedule, look_ahead
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.period import plan_period, quantile_path
from goffish.scheduling.policies.windows import Outlook

#: Timesteps of observed rates, and of observed speeds, that represent the next ones.
PAST, _RECENT = 36, 6


@dataclass(frozen=True, eq=False)
class Enactment:
    """A plan, and the state of its execution.

    Attributes
    ----------
    plan : Schedule
    since : int
        The interval in which the plan was made.
    bound : mapping from planned (negative) to real machine ids
    asked : tuple of int
        Planned ids of the machines that the last deployment requested.
    expected : frozenset of int
        Machines of the last deployment that were running.
    """

    plan: Schedule
    since: int
    bound: dict[int, int]
    asked: tuple[int, ...] = ()
    expected: frozenset[int] = frozenset()

    def seen(self, live: Deployment) -> Enactment | None:
        """Bind requested machines to the started ones; ``None`` if other machines run than expected."""
        if not self.expected <= live.machines.keys():
            return None
        fresh = sorted(live.machines.keys() - self.expected)
        kinds = {action.machine: action.choice for action in self.plan.actions if action.what == "start"}
        bound = dict(self.bound)
        for planned in sorted(self.asked, reverse=True):
            found = next((number for number in fresh if live.machines[number].kind == kinds[planned]), None)
            if found is None:
                return None
            bound[planned] = found
            fresh.remove(found)
        return None if fresh else replace(self, bound=bound)

    def deployment(self, step: int, live: Deployment) -> Deployment:
        """The deployment of the plan for an interval, with the ids and latest observations of running machines."""
        planned = self.plan.deployment(step - self.since)
        found = Deployment(live.catalogue, planned.active)
        for number, machine in planned.machines.items():
            actual = self.bound.get(number, number)
            now = live.machines.get(actual, machine)
            found.add_machine(Machine(actual, machine.kind, now.coefficient, now.elapsed_s, dict(machine.instances)))
        found.settle()
        return found


@dataclass(frozen=True)
class Plasticc:
    """Look ahead: plan machines, instances and alternates for the next timesteps, and enact the changes that are due.

    Parameters
    ----------
    start : Policy
        Policy of the first deployment.
    constraint : {"period", "interval"}
        Where the throughput must reach the goal. "period": on average over the whole period. Machines, instances and
        alternates are planned together in every timestep, for the mean throughput of the horizon (`plan_period`).
        "interval": in every window of the horizon, as published. The other options except `horizon` require "interval".
    horizon : int
        Timesteps to look ahead (tau); shorter at the end of the period.
    cadence : int
        Timesteps between two plans; at most `horizon`. A new plan is made at once after a failure or if the running
        machines differ from the requested ones. Planned changes that were not enacted are dropped at no cost.
    carry_over : bool
        Make up for an earlier shortfall of throughput: see `effective_target`.
    backlog : bool
        Include queued messages in windows that begin now.
    least_step : float
        Least relative throughput of every single timestep; 0: no limit, as a window may make up for a bad timestep.
    value_over : {"period", "so far"}
    repack : {"first", "last"}
        See `Aims`.
    network : bool
        Include links between machines, as predicted or rated. Planning takes longer.

    Notes
    -----
    "period": the target is the mean throughput that the rest of the period requires for the goal, at most `MOST`.
    Without a forecast, the last `PAST` timesteps are taken as the distribution of the next ones. If PEs are restricted
    to machine types or sites, "interval" is used, which moves fewer instances.

    "interval": without a new forecast, the mean of the last one is used (WPA) while part of it lies ahead, then the
    observations (CAF); see `Averaging`.
    """

    start: Policy
    constraint: Literal["period", "interval"] = "period"
    horizon: int = 12
    cadence: int = 2
    carry_over: bool = True
    backlog: bool = False
    least_step: float = 0.0
    value_over: Literal["period", "so far"] = "period"
    repack: Literal["first", "last"] = "first"
    network: bool = False

    def __post_init__(self) -> None:
        if self.constraint not in ("period", "interval"):
            raise InputError(f"constraint = {self.constraint!r}: must be period or interval")
        if self.constraint == "period":
            for field in fields(self):
                if field.name not in ("start", "constraint", "horizon") and getattr(self, field.name) != field.default:
                    raise InputError(f"{field.name} = {getattr(self, field.name)}: requires constraint = interval")
        if self.repack not in ("first", "last"):
            raise InputError(f"repack = {self.repack!r}: must be first or last")
        if self.horizon < 1 or self.cadence < 1:
            raise InputError(f"horizon = {self.horizon}, cadence = {self.cadence}: must be at least 1 timestep")
        if not 0 <= self.least_step <= 1:
            raise InputError(f"least_step = {self.least_step}: must be 0 to 1")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the first deployment of `start`."""
        return self.start.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Enactment | None) -> tuple[Deployment, Enactment | None]:
        """See `Policy`; the memory holds the plan and the ids of its machines."""
        needs = observation.flow.needs
        if self.constraint == "period" and not any(needs.hosts) and not any(needs.sites):
            return self._adapt_period(observation), None
        step, cadence = observation.step, min(self.cadence, self.horizon)
        held = None if memory is None else memory.seen(observation.live)
        if held is None or step % cadence == 0 or step - held.since >= held.plan.steps:
            plan = self.plan(observation)
            if plan is None:
                return self._stand_in.adapt(observation, None)[0], None
            held = Enactment(plan, step, {})
        found = held.deployment(step, observation.live)
        asked = tuple(number for number in found.machines if number < 0)
        expected = frozenset(number for number in found.machines if number >= 0)
        return found, replace(held, asked=asked, expected=expected)

    def _adapt_period(self, observation: Observation) -> Deployment:
        goal, left = observation.flow.goal.throughput, observation.steps - observation.step
        required = (goal * observation.steps - float(observation.omegas.sum())) / left
        outlook = predicted(observation, self.horizon)
        if outlook is None:
            past = observed_speeds(observation)
            seen = observation.rates[-PAST:] if len(observation.rates) else observation.flow.rates[None]
            speeds = {number: series[-_RECENT:] for number, series in past.items()}
            outlook = Outlook(quantile_path(seen, self.horizon), speeds, typical_coefficient(past))
        target = min(MOST, max(0.0, required))
        return plan_period(observation.flow, observation.live, outlook, target, observation.interval_s)

    def plan(self, observation: Observation) -> Schedule | None:
        """Return the plan that is made now; ``None`` if the latest forecast is older than a cadence."""
        cadence = min(self.cadence, self.horizon)
        forecast = observation.forecast
        if forecast is None or observation.step - forecast.step >= cadence:
            return None
        outlook = predicted(observation, self.horizon)
        if outlook is None:
            return None
        target = effective_target(observation) if self.carry_over else observation.flow.goal.throughput
        aims = replace(
            aims_of(observation, target, cadence=cadence, value_over=self.value_over, least_step=self.least_step),
            repack=self.repack,
        )
        queue = observation.queue if self.backlog and observation.queue.size else None
        if not self.network:
            outlook = outlook._replace(bandwidths=None)
        return look_ahead(observation.flow, observation.live, outlook, aims, queue=queue)

    @property
    def _stand_in(self) -> Averaging:
        return Averaging("WPA", self.start, self.horizon, carry_over=self.carry_over, value_over=self.value_over)
