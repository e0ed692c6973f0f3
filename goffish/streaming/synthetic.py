"""Flows that do what a modeled dataflow does: messages are numbers, and operators keep a processor busy."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from goffish.cloud.variability import steady
from goffish.errors import InputError
from goffish.scheduling.control.loop import Control, Setting, carry_out
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.flow import Floats
from goffish.scheduling.dataflow.flow import Flow as Model
from goffish.streaming.flow import Flow, Stream
from goffish.streaming.runtime.plan import Delivery
from goffish.streaming.scheduled import FlowController, MeasuredSpeeds
from goffish.streaming.sinks import call
from goffish.streaming.sources import Position, Read, Reader, Source
from goffish.streaming.topology import Alternate, Topology

#: Messages that take less of a processor than this cannot be distinguished from the cost of passing them on.
_SHORTEST_S = 2e-4


def run_live(
    setting: Setting, *, reference_share: float | None = None, progress: Callable[[int], None] | None = None
) -> Result:
    """Run a policy on a running flow with real processes of this computer, in real time.

    Parameters
    ----------
    setting : Setting
        Its variability does not count: machines are as fast as they are found to be. Its failures kill machines.
    reference_share : float, optional
        Part of a processor that a reference core is; default: so that all cores of the first deployment together take
        half of the processors there are.
    progress
        Called with the number of intervals that are over.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        The dataflow needs so many cores that a reference core would be too small a part of a processor to be measured.
    """
    found = MeasuredSpeeds(steady().speed)
    control = Control(replace(setting, variability=found))
    share = reference_share or _default_share(setting)
    topology, firsts = model_flow(setting.flow, setting.rates, setting.interval_s, share)
    controller = FlowController(control, topology, firsts, share, found, delivery=Delivery.AT_LEAST_ONCE)
    with controller:
        return carry_out(control, controller, lambda step, *_: None if progress is None else progress(step + 1))


def _default_share(setting: Setting) -> float:
    power = float(setting.policy.deploy(setting.flow, setting.catalogue).power.sum())
    share = min(1.0, 0.5 * len(os.sched_getaffinity(0)) / power)
    cheapest = float(setting.flow.cost.min()) * share
    if cheapest < _SHORTEST_S:
        text = f"a message would take {cheapest * 1e3:.3f} ms of a processor"
        advice = "which cannot be measured; simulate it"
        raise InputError(f"the dataflow needs cores of speed {power:,.0f}: {text}, {advice}")
    return share


def model_flow(model: Model, rates: Floats, interval_s: float, share: float) -> tuple[Topology, list[str]]:
    """Return the flow of a modeled dataflow, and the operators that its elements begin with.

    Parameters
    ----------
    model : Flow
    rates : float64, shape (steps, elements)
        Messages per second that come to the inputs, by interval.
    interval_s : float
        Seconds.
    share : float
        Part of a processor that a reference core is.
    """
    flow, streams, firsts = Flow("dataflow"), dict[int, Stream](), dict[int, str]()
    names = [_operator_name(name, number) for number, name in enumerate(model.names)]
    sources = {
        element: flow.source(Arrivals(tuple(rates[:, element].tolist()), interval_s), name=f"in:{names[element]}")
        for element in model.inputs.tolist()
    }
    for element in model.order.tolist():
        before = model.pred[model.pred_offsets[element] : model.pred_offsets[element + 1]].tolist()
        inputs = [streams[one] for one in before] + ([sources[element]] if element in sources else [])
        name = first = names[element]
        stream = inputs[0]
        if len(inputs) > 1:
            first = f"all:{name}"
            stream = stream.union(*inputs[1:], name=first)
        works = [
            Work(float(model.cost[row]) * share, float(model.selectivity[row]))
            for row in range(*model.alternate_offsets[element : element + 2].tolist())
        ]
        rows = slice(*model.alternate_offsets[element : element + 2].tolist())
        costs, values = model.cost[rows].tolist(), model.value[rows].tolist()
        others = {
            f"alternate-{number}": Alternate(work, costs[number], values[number])
            for number, work in enumerate(works) if number
        }  # fmt: skip
        streams[element] = stream.flat_map(works[0], name=name, alternates=others, cost=costs[0], value=values[0])
        firsts[element] = first
    for element in model.outputs.tolist():
        streams[element].sink(call(drop), name=f"out:{names[element]}")
    return flow.check(), [firsts[element] for element in range(model.size)]


def _operator_name(name: str, number: int) -> str:
    """Return a name that operators can have."""
    accepted = re.sub(r"[^A-Za-z0-9_.:/-]", "-", name)[:60].lstrip("_.:/-")
    return name if accepted == name else f"{accepted}.{number}"


def drop(message: int) -> None:
    """Take a message that leaves the dataflow."""


class Work:
    """Keeps a processor busy for every message, and sends as many as the selectivity says.

    Parameters
    ----------
    cpu_s : float
        Processor time of a message, in seconds.
    selectivity : float
    """

    def __init__(self, cpu_s: float, selectivity: float) -> None:
        self._cpu_s, self._selectivity, self._part = cpu_s, selectivity, 0.0

    def __call__(self, message: int) -> Iterable[int]:
        until = time.thread_time() + self._cpu_s
        while time.thread_time() < until:
            pass
        self._part += self._selectivity
        whole = int(self._part + 1e-9)
        self._part -= whole
        return [message] * whole


@dataclass(frozen=True)
class Arrivals(Source):
    """Messages that come at a rate which changes from interval to interval.

    Parameters
    ----------
    rates : tuple of float
        Messages per second.
    interval_s : float
    """

    rates: tuple[float, ...]
    interval_s: float

    def partitions(self) -> list[str]:
        """Return the only partition."""
        return ["0"]

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader."""
        return _Arriving(self, position)


class _Arriving(Reader):
    """Position: messages until now, and when the first one came in microseconds of the machine's clock."""

    def __init__(self, source: Arrivals, position: Position | None) -> None:
        self.position = position or [0, round(time.monotonic() * 1e6)]
        counts = np.array(source.rates) * source.interval_s
        self._ends = np.arange(len(counts) + 1) * source.interval_s
        self._totals = np.concatenate(([0.0], np.cumsum(counts)))

    def read(self, limit: int) -> Read | None:
        first, began = self.position
        elapsed = time.monotonic() - began / 1e6
        due = int(np.interp(elapsed, self._ends, self._totals))
        count = min(limit, due - first)
        if count <= 0:
            self.done = elapsed > self._ends[-1]
            return None
        self.position = [first + count, began]
        return Read(list(range(first, first + count)))
