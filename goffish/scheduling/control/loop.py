"""The setting of a run, and the control loop: observe, decide, enact and record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.spot_market import SpotMarket
from goffish.cloud.variability import Variability, steady
from goffish.scheduling.control.cluster import SLACK_S, Changes, Cluster
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.control.forecasts import Forecaster
from goffish.scheduling.control.records import Measured, Recorder, Result
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats, Flow, Measure
from goffish.scheduling.policies.feasible import feasible
from goffish.scheduling.policies.observation import Forecast, Observation, Policy

Denominator = Literal["rate", "backlog"]
Arrivals = Literal["even", "poisson"]
#: Called at the end of every interval with its number, the changes at its start, and the measurements.
AtEnd = Callable[[int, Changes, Measured], object]


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """Inputs of a run.

    Attributes
    ----------
    flow : Flow
    catalogue : Catalogue
        The machine types to rent.
    policy : Policy
    rates : float64, shape (steps, elements)
        External input of each interval, messages per second; also sets the length of the run.
    interval_s : float
        Seconds between two decisions.
    variability : Variability
        Default: machines always run at their rated speed.
    forecaster : Forecaster, optional
        Required by policies that use forecasts.
    failures : Failures
        Default: none.
    network : bool
        Whether links between machines have a bandwidth and a latency; otherwise messages arrive at once.
    omega : {"rate", "backlog"}
        Denominator of the relative throughput: the external rate, or the external rate plus all queued messages
        (docs/specs/provisioning.md, section 6.4).
    measure : {"mean", "ratio_of_sums"}
        Over several outputs.
    switch_pause_s : float
        Pause of a PE when its alternate is switched.
    tick_s : float
        Event engine only: time step of message transfers, in seconds; latencies are rounded to it.
    arrivals : {"even", "poisson"}
        Event engine only: messages arrive evenly, or as Poisson processes drawn from `seed`.
    seed : int
    spot_since : float, optional
        Start of the spot prices in seconds since 1970 (UTC); default: the start of the traces.
    """

    flow: Flow
    catalogue: Catalogue
    policy: Policy
    rates: Floats
    interval_s: float
    variability: Variability = field(default_factory=steady)
    forecaster: Forecaster | None = None
    failures: Failures = field(default_factory=Failures)
    network: bool = True
    omega: Denominator = "rate"
    measure: Measure = "mean"
    switch_pause_s: float = 0.0
    tick_s: float = 1.0
    arrivals: Arrivals = "even"
    seed: int = 0
    spot_since: float | None = None

    @property
    def steps(self) -> int:
        """Number of intervals."""
        return len(self.rates)


class Control:
    """Starts and ends intervals; between them, an engine moves the messages."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        #: Number of intervals; less than planned if the dataflow ends earlier.
        self.steps = setting.steps
        market = SpotMarket(setting.catalogue, setting.spot_since, setting.steps * setting.interval_s)
        self.cluster = Cluster(market, setting.flow.size)
        self.recorder = Recorder(setting.flow, setting.catalogue, setting.steps, setting.interval_s)
        self.queue = np.zeros(setting.flow.size)
        self._memory: Any = None
        self._omegas = np.zeros(setting.steps)
        self._speeds: dict[int, Floats] = {}
        self._seen: dict[int, int] = {}
        self._bandwidths: dict[int, float] = {}
        self._forecast: Forecast | None = None
        self._failed: list[int] = []

    def begin(self, step: int) -> Changes:
        """Ask the policy for a deployment and enact it."""
        setting, now = self.setting, step * self.setting.interval_s
        begun = time.perf_counter()
        if step == 0:
            plan = setting.policy.deploy(setting.flow, self.cluster.catalogue)
        else:
            # Remove machines that fail at the very start of the interval.
            self._strike(now, now + 2 * SLACK_S)
            self._failed += self.cluster.fail_until(now)
            self.cluster.price(now)
            observation = self._observation(step)
            begun = time.perf_counter()
            plan, self._memory = setting.policy.adapt(observation, self._memory)
        taken = time.perf_counter() - begun
        changes = self.cluster.enact(feasible(plan, setting.flow, self.cluster.live), now, first=step == 0)
        if step == 0:
            self._foresee(0)
        self._strike(now + (2 * SLACK_S if step else 0.0), now + setting.interval_s)
        self.recorder.enacted(step, now, changes, self.cluster, len(self._failed), taken)
        self._failed = []
        return changes

    def end(self, step: int, measured: Measured, seconds: float | None = None) -> None:
        """Record the measurements of an interval, and update the speeds of machines and links.

        Parameters
        ----------
        step : int
        measured : Measured
        seconds : float, optional
            Length of the interval, if the dataflow has ended within it.
        """
        setting, since = self.setting, step * self.setting.interval_s
        until = since + (setting.interval_s if seconds is None else seconds)
        ids = self.cluster.placement.ids
        low, high = self.cluster.up_s(since, until)
        seen = np.flatnonzero(high > low + SLACK_S)
        means = setting.variability.speeds(ids[seen], low[seen], high[seen])
        coefficients = dict(zip(ids[seen].tolist(), means.tolist(), strict=True))
        if setting.variability.network is not None:
            links = setting.variability.bandwidths(ids[seen], low[seen], high[seen])
            self._bandwidths = dict(zip(ids[seen].tolist(), links.tolist(), strict=True))
        for number, coefficient in coefficients.items():
            if number not in self._speeds:
                self._speeds[number], self._seen[number] = np.empty(setting.steps - step), 0
            self._speeds[number][self._seen[number]] = coefficient
            self._seen[number] += 1
        self._omegas[step] = measured.omega
        self.queue = measured.queue
        self.recorder.measured(step, measured, self.cluster, setting.rates[step], until)
        self._failed = self.cluster.fail_until(until - 2 * SLACK_S)
        self.cluster.observe(coefficients, until)

    def result(self) -> Result:
        """Return the tables of the whole run."""
        return self.recorder.result(self.cluster, self.steps)

    def _observation(self, step: int) -> Observation:
        setting = self.setting
        self._foresee(step)
        return Observation(
            flow=setting.flow,
            catalogue=self.cluster.catalogue,
            step=step,
            steps=setting.steps,
            interval_s=setting.interval_s,
            live=self.cluster.live.copy(),
            omegas=self._omegas[:step].copy(),
            rates=setting.rates[:step],
            speeds=self._observed(),
            queue=self.queue.copy(),
            spent=self.cluster.cost(step * setting.interval_s),
            forecast=self._forecast,
            failed=len(self._failed),
            bandwidths={n: self._bandwidths[n] for n in self.cluster.live.machines if n in self._bandwidths},
        )

    def _strike(self, since: float, until: float) -> None:
        """Apply failures and spot interruptions within a period."""
        self.setting.failures.strike(self.cluster, since, until)
        self.cluster.take_until(until)

    def _foresee(self, step: int) -> None:
        forecaster = self.setting.forecaster
        if forecaster is not None and step % forecaster.every == 0:
            rates = self.setting.rates[:step]
            self._forecast = forecaster.forecast(step, self.setting.steps, rates, self._observed())

    def _observed(self) -> dict[int, Floats]:
        none = np.zeros(0)
        return {n: self._speeds.get(n, none)[: self._seen.get(n, 0)] for n in self.cluster.live.machines}


class Controller(Protocol):
    """Runs a dataflow: a simulated cloud, or a stream runtime."""

    def apply(self, step: int, plan: Deployment, changes: Changes) -> None:
        """Change machines and instances to those of a plan, at the start of an interval.

        Parameters
        ----------
        step : int
        plan : Deployment
            The complete new deployment.
        changes : Changes
            Its differences from the previous deployment.
        """
        ...

    def observe(self) -> Measured:
        """Run the dataflow until the interval ends, and return the measurements."""
        ...


def carry_out(control: Control, controller: Controller, at_end: AtEnd | None = None) -> Result:
    """Deploy a dataflow and adapt it from interval to interval.

    Parameters
    ----------
    control : Control
        Calls the policy and records the run.
    controller : Controller
    at_end : callable, optional
    """
    for step in range(control.steps):
        changes = control.begin(step)
        controller.apply(step, control.cluster.live, changes)
        measured = controller.observe()
        control.end(step, measured)
        if at_end is not None:
            at_end(step, changes, measured)
    return control.result()
