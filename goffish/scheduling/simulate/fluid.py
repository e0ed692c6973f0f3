"""The interval model: messages as a fluid, with one estimate per interval.

See docs/specs/provisioning.md, section 3.9.
"""

from __future__ import annotations

import numpy as np

from goffish.scheduling.control.cluster import Changes
from goffish.scheduling.control.loop import Control, Setting, carry_out
from goffish.scheduling.control.records import Measured, Result
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Estimate, Floats, Hosts


def run_fluid(setting: Setting) -> Result:
    """Run a policy on the interval model."""
    control = Control(setting)
    return carry_out(control, FluidController(control))


class FluidController:
    """The interval model as a runtime of a dataflow."""

    def __init__(self, control: Control) -> None:
        self._control, self._step, self._changes = control, 0, Changes()

    def apply(self, step: int, plan: Deployment, changes: Changes) -> None:
        """Store the changes at the start of an interval; the plan is already in force."""
        self._step, self._changes = step, changes

    def observe(self) -> Measured:
        """Estimate the rates of the interval."""
        return _interval(self._control, self._step, self._changes)


def _interval(control: Control, step: int, changes: Changes) -> Measured:
    setting, cluster = control.setting, control.cluster
    flow, interval = setting.flow, setting.interval_s
    since, placed = step * interval, cluster.placement
    low, high = cluster.up_s(since, since + interval)
    # A machine counts for the part of the interval in which it works (§3.9).
    delivered = setting.variability.speeds(placed.ids, low, high) * (high - low) / interval
    power = placed.instances * (setting.catalogue.speeds[placed.kinds] * delivered)[placed.machine]
    power *= cluster.at_work(low, high)
    for element, _ in changes.switched:
        power[placed.element == element] *= max(0.0, 1.0 - setting.switch_pause_s / interval)
    total = np.asarray(np.bincount(placed.element, power, flow.size), np.float64)
    hosts = _hosts(control, power, since) if setting.network else None
    delays_s: Floats | float = 0.0
    if hosts is not None and setting.catalogue.sites:
        delays_s = flow.link_delays(hosts, setting.catalogue.network.delay_ms / 1000.0)
    found = flow.estimate(
        cluster.live.active,
        total,
        setting.rates[step],
        queue=control.queue,
        interval_s=interval,
        hosts=hosts if hosts is not None and hosts.limited else None,
        measure=setting.measure,
    )
    omega = found.omega if setting.omega == "rate" else _against_backlog(control, found, total, step)
    queue = np.maximum(0.0, control.queue + (found.inflow - found.processed) * interval)
    lost = (
        _lost(control, power, total, queue, since + interval) if setting.failures.lose_messages else np.zeros(flow.size)
    )
    queue_mean = (control.queue + queue) / 2
    return Measured(
        omega, found.inflow, found.processed, found.out, queue - lost, queue_mean, total, lost, delays_s
    )  # fmt: skip


def _hosts(control: Control, power: Floats, since: float) -> Hosts:
    setting, placed = control.setting, control.cluster.placement
    catalogue = setting.catalogue
    observed = setting.variability.bandwidths(placed.ids, since, since + setting.interval_s)
    return Hosts(
        placed.offsets, placed.machine, power, catalogue.bandwidths[placed.kinds] * observed,
        catalogue.site_numbers[placed.kinds], catalogue.network.bandwidth_mbit_s,
    ).shared()  # fmt: skip


def _against_backlog(control: Control, found: Estimate, power: Floats, step: int) -> float:
    """Relative throughput with queued messages in the denominator: Eq. 4 as printed (section 6.4)."""
    setting = control.setting
    flow, outputs = setting.flow, setting.flow.outputs
    if (power <= 0).any():
        return 0.0
    _, wanted = flow.ideal(control.cluster.live.active, setting.rates[step] + control.queue / setting.interval_s)
    sent, most = found.out[outputs], wanted[outputs]
    if setting.measure == "ratio_of_sums":
        return float(min(1.0, sent.sum() / most.sum())) if most.sum() > 0 else 1.0
    return float(np.minimum(1.0, np.divide(sent, most, out=np.ones_like(sent), where=most > 0)).mean())


def _lost(control: Control, power: Floats, total: Floats, queue: Floats, until: float) -> Floats:
    """Messages queued on machines that fail in the interval: their share of the PE's speed."""
    placed = control.cluster.placement
    failing = np.array([control.cluster.log[number].fail_s < until for number in placed.ids.tolist()], bool)
    # Messages that a replica also holds are not lost.
    held = {
        (int(placed.element[at]), int(placed.stands_for[at]))
        for at in np.flatnonzero((placed.stands_for >= 0) & ~failing[placed.machine]).tolist()
    }
    places = zip(placed.element.tolist(), placed.ids[placed.machine].tolist(), strict=True)
    failing = failing[placed.machine] & ~np.array([place in held for place in places], bool)
    gone = np.bincount(placed.element, power * failing, total.size)
    share = np.divide(gone, total, out=np.ones_like(total), where=total > 0)
    dead = np.bincount(placed.element, failing, total.size) > 0
    return np.asarray(queue * np.where(dead, share, 0.0), np.float64)
