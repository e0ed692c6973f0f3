"""PLAStiCC: plan early on predictions, enact late. Kumbhare, Simmhan and Prasanna (CCGrid 2014).

See docs/specs/plasticc.md, sections 3.4 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies.averaging import Averaging, aims_of, effective_target, predicted
from goffish.scheduling.policies.lookahead import Schedule, look_ahead
from goffish.scheduling.policies.observation import Observation, Policy


@dataclass(frozen=True, eq=False)
class Enactment:
    """A plan, and how far it was carried out.

    Attributes
    ----------
    plan : Schedule
    since : int
        The interval in which it was made.
    bound : mapping from planned (negative) to real machine ids
    asked : tuple of int
        Planned ids of machines that the last deployment asked for.
    expected : frozenset of int
        Machines of the last deployment that ran already.
    """

    plan: Schedule
    since: int
    bound: dict[int, int]
    asked: tuple[int, ...] = ()
    expected: frozenset[int] = frozenset()

    def seen(self, live: Deployment) -> Enactment | None:
        """The same with machines that were asked for bound to those that came; ``None`` if others run than expected."""
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
        """What the plan has for an interval, in the ids of the machines that run, and as these were observed last."""
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
    """Looks ahead: plans machines, instances and alternates for the next timesteps, and enacts of it what is due.

    A new plan is made from what runs every `cadence` timesteps, and at once after a failure or if other machines run
    than were asked for. What was planned and not enacted is given up then, and costs nothing.

    Parameters
    ----------
    start : Policy
        Makes the first deployment.
    horizon : int
        Timesteps to look ahead (tau); the last ones of the period have a shorter one.
    cadence : int
        Timesteps from plan to plan; not more than `horizon`.
    carry_over : bool
        Make up for a shortfall of throughput so far: see `effective_target`.
    backlog : bool
        Let windows that begin now work on the messages that wait, too.
    least_step : float
        Least relative throughput of every single timestep; 0 for none: a window may make up for a bad one.
    value_over : {"period", "so far"}
    repack : {"first", "last"}
        See `Aims`.
    network : bool
        Count links between machines too, as predicted, or as rated where nothing is. Planning takes longer then.

    Notes
    -----
    If no prediction came in time, the last one stands in as its mean (WPA) while any of it lies ahead, then what was
    observed (CAF); see `Averaging`.
    """

    start: Policy
    horizon: int = 4
    cadence: int = 2
    carry_over: bool = True
    backlog: bool = False
    least_step: float = 0.0
    value_over: Literal["period", "so far"] = "period"
    repack: Literal["first", "last"] = "first"
    network: bool = False

    def __post_init__(self) -> None:
        if self.repack not in ("first", "last"):
            raise InputError(f"repack = {self.repack!r}: first or last is needed")
        if self.horizon < 1 or self.cadence < 1:
            raise InputError(f"horizon and cadence are timesteps, at least 1: {self.horizon}, {self.cadence}")
        if not 0 <= self.least_step <= 1:
            raise InputError(f"least_step is a relative throughput, 0 to 1, not {self.least_step}")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """That of `start`."""
        return self.start.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Enactment | None) -> tuple[Deployment, Enactment | None]:
        """See `Policy`; the plan is remembered, and which machine of it is which."""
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

    def plan(self, observation: Observation) -> Schedule | None:
        """The plan that is made now; ``None`` if the newest prediction is not of this cadence."""
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
