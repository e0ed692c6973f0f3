"""Run a policy for a dataflow on a simulated cloud. See docs/specs/provisioning.md, sections 3.9 and 4."""

from __future__ import annotations

from typing import Any, Literal, get_args

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
    **fields: Any,
) -> Result:
    """Deploy a dataflow on a simulated cloud, adapt it in every interval, and record the run.

    Parameters
    ----------
    flow : Flow or Dataflow
    catalogue : Catalogue or str
        The machine types to rent, or the name of a bundled catalogue.
    policy : Policy
    rates : float64, shape (steps, elements)
        External input of each interval, messages per second (`goffish.scheduling.simulate.rates`); also sets the length
        of the run.
    variability : Variability, optional
        Default: machines always run at their rated speed.
    forecaster : Forecaster, optional
        Required by policies that use forecasts.
    engine : {"fluid", "events"}
        One estimate per interval, or continuous time with queues on every machine and links with latency.
    interval_s : float, optional
        Default: the interval of the dataflow's goal.
    failures : Failures, optional
        Default: none.
    **fields
        Other fields of `goffish.scheduling.control.loop.Setting`: `network`, `omega`, `measure`, `switch_pause_s`,
        `tick_s`, `arrivals`, `seed`, `spot_since`.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        If rates do not fit the dataflow, a parameter is out of range, or the policy returns an invalid deployment.
    """
    compiled = compile_flow(flow) if isinstance(flow, Dataflow) else flow
    setting = Setting(
        flow=compiled,
        catalogue=read_catalogue(catalogue),
        policy=policy,
        rates=np.ascontiguousarray(rates, np.float64),
        interval_s=float(compiled.goal.interval_s if interval_s is None else interval_s),
        variability=variability or steady(),
        forecaster=forecaster,
        failures=failures or Failures(),
        **fields,
    )
    _check(setting, engine)
    if engine == "fluid":
        from goffish.scheduling.simulate.fluid import run_fluid

        return run_fluid(setting)
    from goffish.scheduling.simulate.events import run_events

    return run_events(setting)


def _check(setting: Setting, engine: Engine) -> None:
    """Refuse rates that do not fit the dataflow, parameters out of range, and unknown choices."""
    rates, size = setting.rates, setting.flow.size
    if rates.ndim != 2 or rates.shape[1] != size or not len(rates):
        raise InputError(f"rates: shape {rates.shape}; expected one row per interval and {size} columns")
    if not np.isfinite(rates).all() or (rates < 0).any():
        raise InputError("rates: numbers must be finite and 0 or more")
    for name, least in (("interval_s", 1e-3), ("tick_s", 1e-4), ("switch_pause_s", 0)):
        value = getattr(setting, name)
        if not least <= value < np.inf:
            raise InputError(f"{name} = {value:g}: must be at least {least:g}")
    for name, value, known in (
        ("engine", engine, Engine),
        ("omega", setting.omega, Denominator),
        ("measure", setting.measure, Measure),
        ("arrivals", setting.arrivals, Arrivals),
    ):
        if value not in get_args(known):
            raise InputError(f"{name} = {value!r}: must be one of {', '.join(get_args(known))}")
    if engine == "fluid" and setting.arrivals == "poisson":
        raise InputError("arrivals = poisson: not available with engine = fluid; use engine = events")
