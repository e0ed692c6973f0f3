"""What a client observed, as a policy needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from goffish.errors import InputError
from goffish.services.cloud.catalogue import Catalogue
from goffish.services.dataflows.deployment import Deployment, Machine
from goffish.services.dataflows.flow import Floats, Flow
from goffish.services.provisioning.situation import Forecast, Situation
from goffish.v1 import planning_pb2

_FIELD = "observations"


def situation_of(given: planning_pb2.Observations, flow: Flow, catalogue: Catalogue, forecast: Any = ()) -> Situation:
    """The situation that a message tells.

    Parameters
    ----------
    given : Observations
    flow, catalogue
    forecast : sequence of Interval
        Of the intervals that come.

    Raises
    ------
    InputError
        The field, what is wrong, and what is accepted.
    """
    live = _deployment(given, flow, catalogue)
    step = len(given.intervals)
    steps = given.steps or step + max(1, len(forecast))
    if steps <= step:
        raise InputError(f"{_FIELD}.steps: {steps}; {step} intervals are over already")
    rates = np.array([_by_element(one.rates, flow, f"{_FIELD}.intervals.rates") for one in given.intervals])
    rates = rates.reshape(step, flow.size)
    omegas = np.array([one.throughput for one in given.intervals])
    if ((omegas < 0) | (omegas > 1)).any():
        raise InputError(f"{_FIELD}.intervals.throughput: give 0 to 1")
    speeds = {number: np.full(max(1, step), machine.coefficient) for number, machine in live.machines.items()}
    ahead = None
    if len(forecast):
        expected = np.array([_by_element(one.rates, flow, "forecast.rates") for one in forecast])
        ahead = Forecast(
            step, expected, {n: np.full(len(forecast), m.coefficient) for n, m in live.machines.items()}, {}
        )  # fmt: skip
    return Situation(
        flow=flow, catalogue=catalogue, step=step, steps=int(steps), interval_s=flow.goal.interval_s, live=live,
        omegas=omegas, rates=rates, speeds=speeds, queue=_by_element(given.queue, flow, f"{_FIELD}.queue"),
        spent=given.spent, forecast=ahead, failed=int(given.failed),
    )  # fmt: skip


def _deployment(given: planning_pb2.Observations, flow: Flow, catalogue: Catalogue) -> Deployment:
    live = Deployment(catalogue, flow.best)
    for name, alternate in given.alternates.items():
        element = _element(name, flow, f"{_FIELD}.alternates")
        first = int(flow.rows(np.zeros(flow.size, np.int64))[element])
        known = flow.alternate_names[first : first + int(flow.alternate_counts[element])]
        if alternate not in known:
            told = f"{name} has no alternate {alternate!r}; there are: {', '.join(known)}"
            raise InputError(f"{_FIELD}.alternates: {told}")
        live.active[element] = known.index(alternate)
    kinds = {one.name: at for at, one in enumerate(catalogue.classes)}
    for at, told in enumerate(given.machines):
        field = f"{_FIELD}.machines[{at}]"
        name = getattr(told, "class")
        if name not in kinds:
            raise InputError(f"{field}.class: no class {name!r}; there are: {', '.join(kinds)}")
        if told.id < 0 or told.id in live.machines:
            raise InputError(f"{field}.id: {told.id}; give every machine a number of its own, 0 or more")
        coefficient = told.coefficient if told.HasField("coefficient") else 1.0
        if not (0 <= coefficient <= 1 and 0 <= told.elapsed_s < np.inf):
            raise InputError(f"{field}: coefficient is 0 to 1, elapsed_s 0 or more")
        instances = {}
        for element, count in told.instances.items():
            if count < 1:
                raise InputError(f"{field}.instances: {count} of {element}; give 1 or more")
            instances[_element(element, flow, f"{field}.instances")] = int(count)
        machine = Machine(int(told.id), kinds[name], coefficient, told.elapsed_s, instances)
        if machine.used > int(catalogue.cores[machine.kind]):
            cores = int(catalogue.cores[machine.kind])
            raise InputError(f"{field}.instances: {machine.used} on the {cores} cores of a {name}")
        live.add_machine(machine)
    return live


def _by_element(given: Mapping[str, float], flow: Flow, field: str) -> Floats:
    found = np.zeros(flow.size)
    for name, value in given.items():
        if not 0 <= value < np.inf:
            raise InputError(f"{field}: {value} of {name}; give 0 or more")
        found[_element(name, flow, field)] = value
    return found


def rates_of(given: Mapping[str, float], flow: Flow, field: str) -> Floats:
    """External input by the names of elements; the others keep what is expected of them.

    Raises
    ------
    InputError
    """
    found = flow.rates.copy()
    for name, value in given.items():
        if not 0 <= value < np.inf:
            raise InputError(f"{field}: {value} of {name}; give 0 or more messages per second")
        found[_element(name, flow, field)] = value
    return found


def _element(name: str, flow: Flow, field: str) -> int:
    try:
        return flow.names.index(name)
    except ValueError:
        raise InputError(f"{field}: no element {name[:80]!r}; there are: {', '.join(flow.names[:20])}") from None
