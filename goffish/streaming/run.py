"""Carry out a policy's plans for real: machines of a provider, instances as processes, decisions every interval."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.providers import LocalProvider
from goffish.cloud.variability import Variability, steady
from goffish.errors import InputError, JobError
from goffish.scheduling.control.cluster import Changes
from goffish.scheduling.control.loop import Control, Setting
from goffish.scheduling.control.records import Measured, Result
from goffish.scheduling.dataflow.flow import Floats
from goffish.streaming.broker import Broker

#: Between two looks at machines that start.
_LOOK_S = 0.25
_STARTS_S = 120.0
#: Messages that take less of a processor than this cannot be distinguished from the cost of passing them on.
_SHORTEST_S = 2e-4


def run_live(
    setting: Setting, *, reference_share: float | None = None, progress: Callable[[int], None] | None = None
) -> Result:
    """Run a policy with real processes of this computer, in real time.

    Parameters
    ----------
    setting : Setting
        Its variability does not count: machines are as fast as they are found to be. Its failures kill machines.
    reference_share : float, optional
        Part of a processor that a reference core is; default: so that all cores of the first deployment together take
        half of the processors there are.
    progress
        Called with the number of intervals that are over.

    Raises
    ------
    InputError
        The dataflow needs so many cores that a reference core would be too small a part of a processor to be measured.
    """
    control = _Live(setting, reference_share)
    with control.machines():
        for step in range(setting.steps):
            changes = control.begin(step)
            control.end(step, control.interval(step, changes))
            if progress is not None:
                progress(step + 1)
    return control.result()


@dataclass(frozen=True)
class _Found(Variability):
    """Coefficients as they were measured; 1 where a machine had nothing to do."""

    measured: dict[int, float] = field(default_factory=dict)

    def speeds(self, machines: NDArray[np.int64], since_s: Floats | float, until_s: Floats | float) -> Floats:
        return np.array([self.measured.get(int(number), 1.0) for number in machines])


class _Live(Control):
    """The control of a run whose machines and instances are real."""

    def __init__(self, setting: Setting, reference_share: float | None) -> None:
        self._found = _Found(steady().speed)
        super().__init__(replace(setting, variability=self._found))
        self._share = reference_share
        self._provider: LocalProvider
        self._broker: Broker
        self._began = 0.0

    @contextmanager
    def machines(self) -> Iterator[None]:
        """All machines and instances end when this does."""
        setting = self.setting
        share = self._share or _default_share(setting)
        with tempfile.TemporaryDirectory(prefix="goffish-") as folder:
            home = Path(folder)
            with LocalProvider(setting.catalogue, reference_share=share, folder=home) as self._provider:
                self._broker = Broker(setting.flow, self._provider, share, home)
                try:
                    yield
                finally:
                    self._broker.close()

    def begin(self, step: int) -> Changes:
        if step == 0:
            self._began = time.monotonic()
        self._note(self._provider.states())
        changes = super().begin(step)
        for number in changes.stopped:
            self._provider.stop(number)
        for number in changes.started:
            given = self._provider.start(self.cluster.live.machines[number].kind)
            if given != number:
                raise JobError(f"the provider calls machine {number} {given}")
        if step == 0:
            self._wait_for_machines()
        self._broker.apply(self.cluster.live)
        if step == 0:
            self._broker.wait_for_instances()
            self._began = time.monotonic()
        return changes

    def interval(self, step: int, changes: Changes) -> Measured:
        """Let the dataflow work until the interval is over."""
        setting, flow = self.setting, self.setting.flow
        end = self._began + (step + 1) * setting.interval_s
        shares, parts = [], []
        while (left := end - time.monotonic()) > 0:
            self._kill_until(time.monotonic() - self._began)
            self._note(self._provider.states())
            self._broker.apply(self.cluster.live)
            begun = time.monotonic()
            parts.append(self._broker.run(min(left, _LOOK_S), setting.rates[step]))
            shares.append(time.monotonic() - begun)
        weights = np.array(shares) / sum(shares)
        inflow, processed, out, queue_mean = (
            sum((w * getattr(part, name) for w, part in zip(weights, parts, strict=True)), np.zeros(flow.size))
            for name in ("inflow", "processed", "out", "queue")
        )
        self._found.measured.clear()
        for part in parts:
            self._found.measured.update(part.coefficients)
        active = self.cluster.live.active
        _, ideal = flow.ideal(active, setting.rates[step])
        sent, wanted = out[flow.outputs], ideal[flow.outputs]
        omega = np.minimum(1.0, np.divide(sent, wanted, out=np.ones_like(sent), where=wanted > 0)).mean()
        power = self.cluster.live.power
        return Measured(
            float(omega), inflow, processed, out, parts[-1].queue, queue_mean, power.copy(), np.zeros(flow.size)
        )

    def _wait_for_machines(self) -> None:
        end = time.monotonic() + _STARTS_S
        while "starting" in self._provider.states().values():
            if time.monotonic() > end:
                raise JobError(f"machines did not start within {_STARTS_S:g} s")
            time.sleep(0.05)

    def _kill_until(self, now: float) -> None:
        """Kill the machines that are to fail now."""
        for number in self.cluster.live.machines:
            if self.cluster.log[number].fail_s <= now:
                self._provider.fail(number)

    def _note(self, states: Mapping[int, str]) -> None:
        """Take note of machines that are gone, or have come."""
        now = time.monotonic() - self._began
        for number in self.cluster.live.machines:
            life = self.cluster.log[number]
            if states.get(number) == "failed":
                life.fail_s = min(life.fail_s, now)
            elif states.get(number) == "running":
                life.ready_s = min(life.ready_s, max(now, life.start_s))


def _default_share(setting: Setting) -> float:
    power = float(setting.policy.deploy(setting.flow, setting.catalogue).power.sum())
    share = min(1.0, 0.5 * len(os.sched_getaffinity(0)) / power)
    cheapest = float(setting.flow.cost.min()) * share
    if cheapest < _SHORTEST_S:
        text = f"a message would take {cheapest * 1e3:.3f} ms of a processor"
        advice = "which cannot be measured; simulate it"
        raise InputError(f"the dataflow needs cores of speed {power:,.0f}: {text}, {advice}")
    return share
