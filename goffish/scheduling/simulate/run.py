"""Run a policy for a dataflow on a simulated cloud. Specification of reactive provisioning, §3.9 and §4."""

from __future__ import annotations

from typing import Literal

import numpy as np

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.variability import Variability, steady
from goffish.errors import InputError
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.control.forecasts import Forecaster
from goffish.scheduling.control.loop import Arrivals, Denominator, Setting
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.flow import Floats, Flow, Measure, compile_flow
from goffish.scheduling.dataflow.model import Dataflow
from goffish.scheduling.policies.observation import Policy

Engine = Literal["fluid", "events"]


def simulate(
    flow: Flow | Dataflow,
    catalogue: Catalogue | str,
    policy: Policy,
    rates: Floats,
    variability: Variability | None = None,
    forecaster: Forecaster | None = None,
    *,
    engine: Engine = "fluid",
    interval_s: float | None = None,
    failures: Failures | None = None,
    network: bool = True,
    omega: Denominator = "rate",
    measure: Measure = "mean",
    switch_pause_s: float = 0.0,
    tick_s: float = 1.0,
    arrivals: Arrivals = "even",
    seed: int = 0,
    spot_since: float | None = None,
) -> Result:
    """Deploy a dataflow, adapt it from interval to interval, and record what happens.

    Parameters
    ----------
    flow : Flow or Dataflow
    catalogue : Catalogue or str
        What can be rented, or the name of a known catalogue.
    policy : Policy
    rates : float64, shape (steps, elements)
        External input of each interval, messages per second (`goffish.scheduling.simulate.rates`). The run is as long
        as they are.
    variability : Variability, optional
        Default: machines always deliver what they are rated for.
    forecaster : Forecaster, optional
        For policies that look ahead.
    engine : {"fluid", "events"}
        One estimate for each interval, or continuous time with queues on every machine and links with a latency.
    interval_s : float, optional
        Default: that of the dataflow's goal.
    failures : Failures, optional
        Default: none.
    network : bool
        Links between machines carry no more than their bandwidth; without, messages arrive at once.
    omega : {"rate", "backlog"}
        What the throughput is relative to: the external rate, or that and everything that waits (6.4).
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

    Returns
    -------
    Result

    Raises
    ------
    InputError
        If rates do not fit the dataflow, a figure is out of its range, or the policy asks for what cannot be.
    """
    compiled = compile_flow(flow) if isinstance(flow, Dataflow) else flow
    table = np.ascontiguousarray(rates, np.float64)
    if table.ndim != 2 or table.shape[1] != compiled.size or not len(table):
        raise InputError(
            f"rates of shape {table.shape}: a row for each interval and {compiled.size} columns are needed"
        )
    if not np.isfinite(table).all() or (table < 0).any():
        raise InputError("rates hold numbers below 0, or infinite ones")
    step_s = compiled.goal.interval_s if interval_s is None else interval_s
    for name, value, least in (
        ("interval_s", step_s, 1e-3),
        ("tick_s", tick_s, 1e-4),
        ("switch_pause_s", switch_pause_s, 0),
    ):
        if not least <= value < np.inf:
            raise InputError(f"{name} = {value:g}: at least {least:g} is needed")
    _refuse_unknown(engine=(engine, ("fluid", "events")), omega=(omega, ("rate", "backlog")))
    _refuse_unknown(measure=(measure, ("mean", "ratio_of_sums")), arrivals=(arrivals, ("even", "poisson")))
    if engine == "fluid" and arrivals == "poisson":
        raise InputError("arrivals = poisson: the fluid engine knows only rates; choose engine = events")
    setting = Setting(
        flow=compiled,
        catalogue=read_catalogue(catalogue),
        policy=policy,
        rates=table,
        interval_s=float(step_s),
        variability=variability or steady(),
        forecaster=forecaster,
        failures=failures or Failures(),
        network=network,
        omega=omega,
        measure=measure,
        switch_pause_s=switch_pause_s,
        tick_s=tick_s,
        arrivals=arrivals,
        seed=seed,
        spot_since=spot_since,
    )
    if engine == "fluid":
        from goffish.scheduling.simulate.fluid import run_fluid

        return run_fluid(setting)
    from goffish.scheduling.simulate.events import run_events

    return run_events(setting)


def _refuse_unknown(**given: tuple[str, tuple[str, ...]]) -> None:
    for name, (value, known) in given.items():
        if value not in known:
            raise InputError(f"{name} = {value!r}: one of {', '.join(known)} is needed")
