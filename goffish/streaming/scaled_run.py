"""Scheduling policies that scale the flow of a user while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.variability import steady
from goffish.errors import InputError
from goffish.gofs.times import Duration, microseconds
from goffish.partial import local_path
from goffish.scheduling.control.loop import Control, Setting
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import Goal
from goffish.scheduling.policies.feasible import check_places
from goffish.scheduling.policies.policies import default_forecast, make_policy
from goffish.scheduling.simulate.scenario import make_forecaster
from goffish.streaming.embedded import Until
from goffish.streaming.live.watch import Watch
from goffish.streaming.metrics import Metrics
from goffish.streaming.modeled import costly, dataflow_of
from goffish.streaming.runtime.cluster import options_of
from goffish.streaming.runtime.plan import Delivery
from goffish.streaming.runtime.stages import divided
from goffish.streaming.scaling import Scaling, this_computer
from goffish.streaming.scheduled import MOST_STEPS, FlowController, PlannedMachines
from goffish.streaming.topology import SourceOptions, Topology

_LEAST_INTERVAL_S = 1.0
#: Time that forecasts cover.
_HORIZON_S = 3600.0


def run_scaled(
    topology: Topology,
    scaling: Scaling,
    replication: int,
    checkpoint: str | Path | None,
    every: Duration,
    until: Until | None,
    report: Callable[[str], None] | None = None,
    watch: Watch | None = None,
    delivery: Delivery | str = Delivery.EXACTLY_ONCE,
    rented: PlannedMachines | None = None,
) -> tuple[Metrics, Result]:
    """Run a flow on workers that a policy chooses; see `Flow.run`.

    Parameters
    ----------
    topology : Topology
    scaling : Scaling
    replication, checkpoint, every, until, delivery
        As in `Flow.run`.
    report : callable, optional
        Takes the text of a status line.
    watch : Watch, optional
    rented : PlannedMachines, optional
        Machines of a provider, in place of `Scaling.cloud`.

    Returns
    -------
    Metrics, Result

    Raises
    ------
    InputError
        The flow cannot run in this way, or an option is not accepted.
    """
    options, until_s = options_of(replication, checkpoint, every, until, delivery)
    interval_s = microseconds(scaling.interval, "interval") / 1e6
    if interval_s < _LEAST_INTERVAL_S:
        raise InputError(f"interval = {scaling.interval}: must be at least {_LEAST_INTERVAL_S:g} s")
    if not 0 < scaling.throughput <= 1:
        raise InputError(f"throughput = {scaling.throughput}: must be more than 0, and at most 1")
    output = None if scaling.output is None else local_path(scaling.output)
    firsts = _firsts(topology, scaling.elements)
    parted = divided(topology, firsts)
    goal = Goal(throughput=scaling.throughput, tolerance=min(0.05, 1.0 - scaling.throughput), interval_s=interval_s)
    flow = compile_flow(dataflow_of(parted, goal=goal))
    if rented is not None:
        catalogue = rented.catalogue
        if spot := [one.name for one in catalogue.classes if one.market == "spot"]:
            raise InputError(
                f"machine type {spot[0]}: has simulated interruptions (market: spot), which rented machines do not "
                "follow; give types of market: on-demand, and --market spot"
            )
    else:
        catalogue = this_computer(len(firsts)) if scaling.cloud is None else read_catalogue(scaling.cloud)
    check_places(flow.names, flow.needs, catalogue)
    policy = make_policy(scaling.policy, scaling.options, own=True)
    steps = MOST_STEPS if until_s is None else min(MOST_STEPS, math.ceil(until_s / interval_s) + 1)
    rates, forecaster = np.zeros((steps, flow.size)), None
    if (forecast := default_forecast(scaling.policy)) is not None:
        horizon = max(1, round(_HORIZON_S / interval_s))
        forecaster = make_forecaster(forecast, flow, rates, steady(), interval_s=interval_s, horizon=horizon)
    setting = Setting(
        flow=flow, catalogue=catalogue, policy=policy, rates=rates, interval_s=interval_s, forecaster=forecaster
    )
    control = Control(setting)
    with (
        watch or Watch() as held,
        FlowController(control, topology, firsts, rented=rented, watch=held, **options) as controller,
    ):
        metrics = controller.run(until_s, report)
    result = control.result()
    if output is not None:
        result.write(output)
    return metrics, result


def _firsts(topology: Topology, elements: Sequence[str]) -> list[str]:
    """Return the operators that elements begin with, in the order of the flow."""
    for name in elements:
        if isinstance(topology.operator(name).options, SourceOptions):
            raise InputError(f"operator {name}: is a source; a policy chooses workers of operators that follow one")
    names = [name for name in topology.names if name in elements] if elements else costly(topology)
    if not names:
        known = ", ".join(one.name for one in topology.operators if one.inputs)
        raise InputError(
            f"flow {topology.name}: no operator has a cost or alternates; name those that get separate workers: {known}"
        )
    return names
