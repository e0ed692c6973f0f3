"""What both engines share: the setting of a run, and the loop of observing, asking, enacting and recording."""

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
#: Called at the end of every interval with its number, what was changed at its beginning, and what was measured.
Told = Callable[[int, Changes, Measured], object]


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """Everything that a run is given.

    Attributes
    ----------
    flow : Flow
    catalogue : Catalogue
        What can be rented.
    policy : Policy
    rates : float64, shape (steps, elements)
        External input of each interval, messages per second. The run is as long as they are.
    interval_s : float
        Seconds between two decisions.
    variability : Variability
        Default: machines always deliver what they are rated for.
    forecaster : Forecaster, optional
        For policies that look ahead.
    failures : Failures
        Default: none.
    network : bool
        Links between machines carry no more than their bandwidth and take their time; without, messages arrive at once.
    omega : {"rate", "backlog"}
        What the throughput is relative to: the external rate, or that and everything that waits
        (docs/specs/provisioning.md, section 6.4).
    measure : {"mean", "ratio_of_sums"}
        Over several outputs.
    switch_pause_s : float
        For which an element stands still when its alternate is switched.
    tick_s : float
        Of the event engine: messages move in steps of so many seconds, and latencies are rounded to them.
    arrivals : {"even", "poisson"}
        Of the event engine: messages come evenly, or as Poisson processes drawn from `seed`.
    seed : int
    spot_since : float, optional
        Seconds since 1970 (UTC) from which on prices of spot machines are taken; default: as early as there are any.
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
    """Begins and ends intervals; in between an engine moves the messages."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
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
        """Ask the policy, and enact what it wants."""
        setting, now = self.setting, step * self.setting.interval_s
        begun = time.perf_counter()
        if step == 0:
            plan = setting.policy.deploy(setting.flow, self.cluster.catalogue)
        else:
            # A machine that fails at the very beginning is known to be gone.
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

    def end(self, step: int, measured: Measured) -> None:
        """Record what was measured, and take note of how fast machines and their links were."""
        setting, since = self.setting, step * self.setting.interval_s
        until = since + setting.interval_s
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
        """The tables of the whole run."""
        return self.recorder.result(self.cluster)

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
        """Let machines fail, or be taken away, in a stretch."""
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
        """Bring machines and instances to what a plan says, at the beginning of an interval.

        Parameters
        ----------
        step : int
        plan : Deployment
            All that is to be there.
        changes : Changes
            By what it differs from before.
        """
        ...

    def observe(self) -> Measured:
        """Let the dataflow run until the interval ends, and tell what it did."""
        ...


def carry_out(control: Control, controller: Controller, told: Told | None = None) -> Result:
    """Deploy a dataflow and adapt it from interval to interval.

    Parameters
    ----------
    control : Control
        Asks the policy, and keeps the books.
    controller : Controller
    told : callable, optional
    """
    for step in range(control.setting.steps):
        changes = control.begin(step)
        controller.apply(step, control.cluster.live, changes)
        measured = controller.observe()
        control.end(step, measured)
        if told is not None:
            told(step, changes, measured)
    return control.result()
