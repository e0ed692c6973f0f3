"""Policies that reduce observations or forecasts to one value each, and plan a single interval.

See docs/specs/plasticc.md, sections 3.5 and 3.6.

They use the planner of PLAStiCC for a single timestep, and differ from it only in their information.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies.lookahead import Aims, look_ahead
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.scaling import release_idle
from goffish.scheduling.policies.windows import Outlook

#: Current after the fact, windowed average after the fact; windowed predictive average, optimistic, pessimistic.
Kind = Literal["CAF", "WAAF", "WPA", "WPO", "WPP"]

#: Timesteps over which a shortfall of throughput is made up, and the maximum target during that time.
CARRY_OVER, MOST = 12, 0.95

Reduce = Callable[..., Any]
_REDUCED: dict[str, tuple[Reduce, Reduce]] = {
    "WPA": (np.mean, np.mean),
    "WPO": (np.min, np.max),
    "WPP": (np.max, np.min),
}


@dataclass(frozen=True)
class Averaging:
    """Plans one timestep on representative rates and speeds whenever the throughput has left the band.

    Parameters
    ----------
    kind : {"CAF", "WAAF", "WPA", "WPO", "WPP"}
        Source of the values: the last timestep; the mean of the last `window` timesteps; or, from the forecast, the
        mean, the lowest rate and highest speed, or the highest rate and lowest speed. Without a forecast these act as
        CAF.
    start : Policy
        Policy of the first deployment.
    horizon : int
        Number of predicted timesteps in use.
    window : int
        Number of past timesteps in use.
    carry_over : bool
        Make up for an earlier shortfall: see `effective_target`.
    value_over : {"period", "so far"}
        See `Aims`.

    Notes
    -----
    Idle machines are released when their paid time ends in the next interval, also within the band.
    """

    kind: Kind
    start: Policy
    horizon: int = 4
    window: int = 6
    carry_over: bool = True
    value_over: Literal["period", "so far"] = "period"

    def __post_init__(self) -> None:
        if self.kind not in {"CAF", "WAAF", *_REDUCED}:
            raise InputError(f"unknown averaging heuristic {self.kind!r}; accepted: CAF, WAAF, {', '.join(_REDUCED)}")
        if self.horizon < 1 or self.window < 1:
            raise InputError(f"horizon = {self.horizon}, window = {self.window}: must be at least 1 timestep")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the first deployment of `start`."""
        return self.start.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """See `Policy`; stateless. Failures are handled at once."""
        goal = observation.flow.goal
        target = effective_target(observation) if self.carry_over else goal.throughput
        deviation = abs(observation.omega - target)
        if not observation.failed and (not observation.step or deviation <= goal.tolerance + SLACK):
            kept = observation.live.copy()
            release_idle(kept, observation.interval_s)
            return kept, None
        aims = aims_of(observation, target, cadence=1, value_over=self.value_over)
        outlook = representative(self.kind, observation, self.horizon, self.window)
        return look_ahead(observation.flow, observation.live, outlook, aims).deployment(0), None


def representative(kind: Kind, observation: Observation, horizon: int, window: int) -> Outlook:
    """Return one timestep that represents the past or the forecast (table in §1)."""
    past = observed_speeds(observation)
    typical = typical_coefficient(past)
    ahead = predicted(observation, horizon) if kind in _REDUCED else None
    if ahead is not None:
        of_rates, of_speeds = _REDUCED[kind]
        speeds = {number: np.array([of_speeds(series)]) for number, series in ahead.speeds.items()}
        return Outlook(of_rates(ahead.rates, axis=0)[None, :], speeds, typical)
    count = window if kind == "WAAF" else 1
    rates = observation.rates[-count:].mean(axis=0) if len(observation.rates) else observation.observed
    return Outlook(rates[None, :], {number: np.array([s[-count:].mean()]) for number, s in past.items()}, typical)


def predicted(observation: Observation, horizon: int) -> Outlook | None:
    """The remaining part of the latest forecast, limited to the end of the period; ``None`` if nothing remains."""
    forecast = observation.forecast
    if forecast is None:
        return None
    age = observation.step - forecast.step
    last = min(horizon, len(forecast.rates), age + observation.steps - observation.step)
    if not 0 <= age < last:
        return None
    speeds = {
        number: np.asarray(series[age:last], np.float64)
        for number, series in forecast.speeds.items()
        if number in observation.live.machines
    }
    links = {number: np.asarray(series[age:last], np.float64) for number, series in forecast.bandwidths.items()}
    return Outlook(forecast.rates[age:last], speeds, typical_coefficient(observed_speeds(observation)), links)


def observed_speeds(observation: Observation) -> dict[int, Floats]:
    """Observed coefficients of the live machines; without a history, those of the deployment."""
    live = observation.live.machines
    if not observation.speeds:
        return {number: np.array([machine.coefficient]) for number, machine in live.items()}
    return {number: s for number, s in observation.speeds.items() if number in live and len(s)}


def typical_coefficient(past: dict[int, Floats]) -> float:
    """Mean of the last observations over machines, used for machines without observations; 1 if there are none."""
    last = [float(past[number][-1]) for number in sorted(past)]
    mean = sum(last) / len(last) if last else 1.0
    return mean if mean > 0 else 1.0


def effective_target(observation: Observation) -> float:
    """Target that makes up for an earlier shortfall, so that the mean throughput reaches the goal (§3.6)."""
    goal = observation.flow.goal.throughput
    short = goal * len(observation.omegas) - float(np.sum(observation.omegas))
    return max(goal, min(MOST, goal + short / CARRY_OVER))


def aims_of(
    observation: Observation,
    target: float,
    *,
    cadence: int,
    value_over: Literal["period", "so far"],
    least_step: float = 0.0,
) -> Aims:
    """Return the aims of a plan made now."""
    return Aims(
        target=target,
        tolerance=observation.flow.goal.tolerance,
        step=observation.step,
        steps=observation.steps,
        interval_s=observation.interval_s,
        sigma=observation.flow.sigma,
        cadence=cadence,
        value_over=value_over,
        least_step=least_step,
    )
