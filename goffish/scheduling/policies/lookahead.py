"""Plan changes for the next timesteps, where their predicted throughput leaves the permitted band.

See docs/specs/plasticc.md, section 3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from goffish.cloud.billing import rent
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import SLACK, Estimate, Floats, Flow
from goffish.scheduling.policies import window_kernels as kernels
from goffish.scheduling.policies.retirement import retire_machines
from goffish.scheduling.policies.windows import Outlook, ScheduledAction, Window

#: Why planning ended: the plan is sufficient to the end of the window, no action is possible, the next change would
#: undo the last one, or the limit of changes was reached.
Reason = Literal["holds", "no action possible", "direction flip", "guard"]
Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Aims:
    """Aims of a plan, and the rules for making it.

    Attributes
    ----------
    target, tolerance : float
        Target of the relative throughput of each window, and its tolerance.
    step, steps : int
        The next timestep, and the number of timesteps of the whole period.
    interval_s : float
        Length of a timestep.
    sigma : float
        Value of a unit of money.
    cadence : int
        Timesteps until the next plan.
    value_over : {"period", "so far"}
        Denominator of a gain of value in the window: the timesteps of the period, or those until the end of the window,
        as in the paper.
    least_step : float
        Least relative throughput of every single timestep; 0: no limit.
    most_actions : int
        Maximum number of changes, without retirements.
    repack : {"first", "last"}
        Whether machines at the end of their paid time are emptied before the other changes are planned, or afterwards,
        from the last change on (as printed in the paper).
    """

    target: float
    tolerance: float
    step: int
    steps: int
    interval_s: float
    sigma: float = 0.0
    cadence: int = 1
    value_over: Literal["period", "so far"] = "period"
    least_step: float = 0.0
    most_actions: int = 600
    repack: Literal["first", "last"] = "first"

    def share(self, first: int, last: int) -> float:
        """Value of one unit of value from timestep `first` to before `last` of the window."""
        return (last - first) / (self.steps if self.value_over == "period" else self.step + last)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Changes to a deployment, each with its first timestep.

    Attributes
    ----------
    live : Deployment
        The running deployment when the plan was made.
    actions : tuple of ScheduledAction
        In the order of the decisions: a machine is started before instances are placed on it.
    steps : int
        Number of covered timesteps.
    reason : str
    crossovers : tuple of int
        Timesteps at which the plan leaves the band, ascending.
    """

    live: Deployment
    actions: tuple[ScheduledAction, ...]
    steps: int
    reason: Reason
    crossovers: tuple[int, ...] = ()

    def deployment(self, step: int) -> Deployment:
        """The deployment of a timestep; planned machines have negative ids."""
        found = self.live.copy()
        for action in self.actions:
            if action.step <= step:
                _apply(found, action)
        found.settle()
        return found


def _apply(deployment: Deployment, action: ScheduledAction) -> None:
    match action.what:
        case "start":
            deployment.add_machine(Machine(action.machine, action.choice))
        case "add":
            deployment.put(action.element, action.machine)
        case "remove":
            deployment.take(action.element, action.machine)
        case "switch":
            deployment.active[action.element] = action.choice
        case "retire":
            deployment.drop_machine(action.machine)


def look_ahead(flow: Flow, live: Deployment, outlook: Outlook, aims: Aims, *, queue: Floats | None = None) -> Schedule:
    """Plan changes so that the throughput of the next timesteps stays in the band (Algorithm 1, as repaired).

    The plan is kept as long as its cumulative throughput is within ``target ± tolerance``. From there on, instances,
    machines and alternates are changed one by one, by the gain or loss of profit.

    Parameters
    ----------
    flow : Flow
    live : Deployment
        The running deployment.
    outlook : Outlook
        Predictions for the timesteps to plan.
    aims : Aims
    queue : float64, shape (elements,), optional
        Queued messages, if windows that begin now should include them.

    Returns
    -------
    Schedule
        Deterministic: the same for the same arguments.
    """
    window = Window(flow, live, outlook, aims.interval_s, queue=queue, room=aims.most_actions)
    if aims.repack == "first":
        retire_machines(window, aims.target, aims.cadence, aims.least_step)
    planner = _Planner(window, aims)
    reason = planner.run()
    if aims.repack == "last":
        retire_machines(window, aims.target, aims.cadence, aims.least_step, planner.at)
    return Schedule(live, tuple(window.actions), window.steps, reason, tuple(planner.crossovers))


@dataclass
class _Planner:
    window: Window
    aims: Aims
    at: int = 0
    crossovers: list[int] = field(default_factory=list)

    def run(self) -> Reason:
        window, aims, direction = self.window, self.aims, None
        low, high = aims.target - aims.tolerance, aims.target + aims.tolerance
        changes = 0
        while True:
            last = window.first_below(aims.least_step, self.at) if aims.least_step > 0 else window.steps
            end = window.end_within(self.at, last, low, high)
            if end == window.steps:
                return "holds"
            if end > self.at or not self.crossovers:
                self._move_to(end)
                direction = None
            if changes == aims.most_actions:
                return "guard"
            found = window.evaluate(self.at, window.steps)
            short = found.omega < aims.target - SLACK
            if aims.least_step > 0 and window.first_below(aims.least_step, self.at) == self.at:
                short, found = True, window.evaluate(self.at, self.at + 1)
            # The opposite direction would undo the last change. The better of the two states is kept: only scaling up
            # can overshoot, since scaling down never goes below the target.
            if direction is not None and direction != ("up" if short else "down"):
                return "direction flip"
            direction = "up" if short else "down"
            if not (self._up(found) if short else self._down()):
                return "no action possible"
            changes += 1

    def _forget(self) -> None:
        size = self.window.flow.size
        self.failed = kernels.Failed(np.zeros(size, np.bool_), np.full(size, np.inf))

    def _move_to(self, step: int) -> None:
        """Change the plan from a timestep on."""
        catalogue = self.window.catalogue
        self.at = step
        self.crossovers.append(step)
        self.rents = rent((self.window.steps - step) * self.aims.interval_s, catalogue.prices, catalogue.billing)
        self._forget()

    def _up(self, found: Estimate) -> bool:
        """Add an instance of the bottleneck, or switch to its next cheaper alternate, whichever loses less profit."""
        window, aims, at = self.window, self.aims, self.at
        local = np.where(window.counts > 0, found.local, 0.0)
        element = int(np.argmax(local <= local.min() + SLACK))
        if local[element] >= 1.0 - SLACK:
            return False
        machine = window.fastest_free([element], at)
        kind = self._new_class(found) if machine < 0 else -1
        cheaper = kernels.next_cheaper(window.flow.alternates, element, window.active[at, element])
        if kind < 0 and machine < 0 and cheaper < 0:
            return False
        loss = -np.inf if kind < 0 and machine < 0 else 0.0
        if kind >= 0:
            loss = -aims.sigma * float(self.rents[kind])
        if cheaper >= 0 and self._value(element, cheaper) > loss + SLACK:
            window.switch(element, cheaper, at)
            return True
        if machine < 0:
            early = math.ceil(window.catalogue.startup_s / aims.interval_s - SLACK)
            machine = window.start(kind, max(0, at - early))
        window.put(element, machine, at)
        return True

    def _new_class(self, found: Estimate) -> int:
        """The cheapest machine type with the missing speed, else the most powerful one; -1 if the limit is reached."""
        window = self.window
        catalogue = window.catalogue
        if catalogue.limit is not None and len(window.ids) >= catalogue.limit:
            return -1
        cost = window.flow.cost[window.flow.rows(window.active[self.at])]
        power = window.mean_power(self.at, window.steps)
        missing = float(np.maximum(self.aims.target * found.ideal_in * cost - power, 0.0).sum()) / window.typical
        enough = (catalogue.powers >= missing - SLACK) & catalogue.available
        return int(np.where(enough, catalogue.prices, np.inf).argmin()) if enough.any() else catalogue.largest

    def _value(self, element: int, alternate: int) -> float:
        """Gain of profit by a switch of the alternate, in value only."""
        flow, low = self.window.flow, self.window.flow.alternate_offsets[element]
        gain = flow.value[low + alternate] - flow.value[low + self.window.active[self.at, element]]
        return float(gain) * self._worth

    @property
    def _worth(self) -> float:
        return self.aims.share(self.at, self.window.steps) / self.window.flow.size

    def _down(self) -> bool:
        """Switch to a better alternate, or remove an instance, of the most over-provisioned PE that permits it."""
        window, aims, at, flow = self.window, self.aims, self.at, self.window.flow
        found = window.evaluate(at, window.steps)
        power, active = window.mean_power(at, window.steps), window.active[at]
        needed = found.inflow * flow.cost[flow.rows(active)]
        ratio = np.divide(power, needed, out=np.full(flow.size, np.inf), where=needed > 0)
        ranked = np.argsort(-np.round(ratio, 9), kind="stable")
        count = len(window.ids)
        single = window.catalogue.cores[window.kinds[:count]] - window.free[:count] == 1
        saved = np.where(single, aims.sigma * window.saved(at), 0.0)
        last = window.first_below(aims.least_step, at) if aims.least_step > 0 else window.steps
        element, alternate, machine = kernels.what_can_go(
            flow.graph, flow.alternates, active, window.load(at, window.steps), ranked, window.entries,
            kernels.Savings(window.weights(at), window.mean_speeds(at), saved), self._worth, aims.target, self.failed,
            window.timesteps(aims.least_step, at, last),
        )  # fmt: skip
        if element < 0:
            return False
        if alternate >= 0:
            before = int(window.active[at, element])
            window.switch(element, alternate, at)
            self._forget()
        else:
            window.take(element, machine, at)
        if window.links is not None and window.evaluate(at, window.steps).omega < aims.target - SLACK:
            # The choice considers cores only; the links are too slow for it.
            if alternate >= 0:
                window.active[at:, element] = before
                window.actions.pop()
            else:
                window.rollback(len(window.actions) - 1)
            return False
        return True
