"""Conversion of observations from messages to the input of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.policies.observation import Forecast, Observation
from goffish.v1 import planning_pb2

_FIELD = "observations"
#: Maximum machines of a plan, bounded by the message size.
MOST_MACHINES = 20_000
#: Maximum observed intervals, forecast intervals, and rates in total.
_MOST_INTERVALS, _MOST_AHEAD, _MOST_RATES = 50_000, 1000, 4_000_000


def observation_of(
    given: planning_pb2.Observations, flow: Flow, catalogue: Catalogue, forecast: Any = ()
) -> Observation:
    """Return the observation in a message.

    Parameters
    ----------
    given : Observations
    flow, catalogue
    forecast : sequence of Interval
        Forecasts of the next intervals.

    Raises
    ------
    InputError
        Names the field, the problem and the accepted values.
    """
    numbers = _numbers(flow)
    _check_count(len(given.intervals), _MOST_INTERVALS, flow, f"{_FIELD}.intervals")
    _check_count(len(forecast), _MOST_AHEAD, flow, "forecast")
    live = _deployment(given, flow, catalogue, numbers)
    step = len(given.intervals)
    steps = given.steps or step + max(1, len(forecast))
    if steps <= step:
        raise InputError(f"{_FIELD}.steps: {steps}; must exceed the {step} observed intervals")
    rates = _by_interval(given.intervals, numbers, f"{_FIELD}.intervals")
    omegas = np.array([one.throughput for one in given.intervals])
    wrong = np.flatnonzero(~((omegas >= 0) & (omegas <= 1)))
    if wrong.size:
        raise InputError(f"{_FIELD}.intervals[{wrong[0]}].throughput: {omegas[wrong[0]]:g}; must be 0 to 1")
    speeds = {number: np.full(max(1, step), machine.coefficient) for number, machine in live.machines.items()}
    ahead = None
    if len(forecast):
        expected = _by_interval(forecast, numbers, "forecast")
        ahead = Forecast(
            step, expected, {n: np.full(len(forecast), m.coefficient) for n, m in live.machines.items()}, {}
        )  # fmt: skip
    return Observation(
        flow=flow, catalogue=catalogue, step=step, steps=int(steps), interval_s=flow.goal.interval_s, live=live,
        omegas=omegas, rates=rates, speeds=speeds, queue=_by_element(given.queue, numbers, f"{_FIELD}.queue"),
        spent=given.spent, forecast=ahead, failed=int(given.failed),
    )  # fmt: skip


def _check_count(count: int, most: int, flow: Flow, field: str) -> None:
    most = min(most, max(1, _MOST_RATES // flow.size))
    if count > most:
        limit = f"at most {most:,} are accepted for {flow.size:,} processing elements"
        raise InputError(f"{field}: {count:,}; {limit}")


def _deployment(
    given: planning_pb2.Observations, flow: Flow, catalogue: Catalogue, numbers: dict[str, int]
) -> Deployment:
    if len(given.machines) > MOST_MACHINES:
        raise InputError(f"{_FIELD}.machines: {len(given.machines):,}; at most {MOST_MACHINES:,} are accepted")
    live = Deployment(catalogue, flow.best)
    for name, alternate in given.alternates.items():
        element = _element(name, numbers, f"{_FIELD}.alternates")
        first = int(flow.alternate_offsets[element])
        known = flow.alternate_names[first : first + int(flow.alternate_counts[element])]
        if alternate not in known:
            problem = f"{name} has no alternate {alternate!r}; choose one of {', '.join(known)}"
            raise InputError(f"{_FIELD}.alternates: {problem}")
        live.active[element] = known.index(alternate)
    kinds = {one.name: at for at, one in enumerate(catalogue.classes)}
    for at, one in enumerate(given.machines):
        field = f"{_FIELD}.machines[{at}]"
        name = getattr(one, "class")
        if name not in kinds:
            raise InputError(f"{field}.class: unknown machine type {name!r}; choose one of {', '.join(kinds)}")
        if one.id < 0 or one.id in live.machines:
            raise InputError(f"{field}.id: {one.id}; every machine must have a different number, 0 or more")
        coefficient = one.coefficient if one.HasField("coefficient") else 1.0
        if not (0 <= coefficient <= 1 and 0 <= one.elapsed_s < np.inf):
            raise InputError(f"{field}: coefficient must be 0 to 1, elapsed_s 0 or more")
        instances = {}
        for element, count in one.instances.items():
            if count < 1:
                raise InputError(f"{field}.instances: {count} of {element}; must be 1 or more")
            instances[_element(element, numbers, f"{field}.instances")] = int(count)
        machine = Machine(int(one.id), kinds[name], coefficient, one.elapsed_s, instances)
        if machine.used > int(catalogue.cores[machine.kind]):
            cores = int(catalogue.cores[machine.kind])
            raise InputError(f"{field}.instances: {machine.used} exceed the {cores} cores of a {name}")
        live.add_machine(machine)
    return live


def _by_interval(given: Any, numbers: dict[str, int], field: str) -> Floats:
    found = np.zeros((len(given), len(numbers)))
    for at, one in enumerate(given):
        if one.rates:
            found[at] = _by_element(one.rates, numbers, f"{field}[{at}].rates")
    return found


def _by_element(given: Mapping[str, float], numbers: dict[str, int], field: str) -> Floats:
    found = np.zeros(len(numbers))
    for name, value in given.items():
        if not 0 <= value < np.inf:
            raise InputError(f"{field}: {value} of {name}; must be 0 or more")
        found[_element(name, numbers, field)] = value
    return found


def rates_of(given: Mapping[str, float], flow: Flow, field: str) -> Floats:
    """Return the input rates by processing element; those not given keep their expected rate.

    Raises
    ------
    InputError
    """
    found, numbers = flow.rates.copy(), _numbers(flow)
    for name, value in given.items():
        if not 0 <= value < np.inf:
            raise InputError(f"{field}: {value} of {name}; must be 0 or more messages per second")
        found[_element(name, numbers, field)] = value
    return found


def _numbers(flow: Flow) -> dict[str, int]:
    return {name: at for at, name in enumerate(flow.names)}


def _element(name: str, numbers: dict[str, int], field: str) -> int:
    number = numbers.get(name)
    if number is None:
        known = ", ".join(list(numbers)[:20])
        raise InputError(f"{field}: unknown processing element {name[:80]!r}; choose one of {known}")
    return number
