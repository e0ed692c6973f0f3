"""The discrete-event engine on SimPy: machines, links, queues and switches in continuous time.

Between two events only messages move. They are counted, not simulated one by one: `_advance` updates all counts before
an event changes the deployment.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from goffish.extras import needed_for
from goffish.scheduling.control.cluster import SLACK_S, Placement
from goffish.scheduling.control.loop import Control, Setting
from goffish.scheduling.control.records import Measured, Result
from goffish.scheduling.dataflow.flow import SLACK, Floats, Hosts
from goffish.scheduling.simulate import kernels

Process = Generator[Any, Any, None]


def run_events(setting: Setting) -> Result:
    """Run a policy on the discrete-event engine."""
    return EventEngine(setting).run()


class EventEngine:
    """A dataflow on machines, in continuous time."""

    def __init__(self, setting: Setting) -> None:
        with needed_for("the event engine"):
            import simpy
        self.setting = setting
        self.control = Control(setting)
        self.env = simpy.Environment()
        flow = setting.flow
        edges, network = flow.pred.size, setting.catalogue.network
        self._delay_s = network.delay_ms / 1000.0 if setting.network else np.zeros_like(network.delay_ms)
        longest = round(self._delay_s.max() / setting.tick_s)
        self._rng = np.random.default_rng([setting.seed, 21])
        self._step, self._moved_until = 0, 0.0
        self._placed: Placement = self.control.cluster.placement
        self._speed = np.zeros(0)
        self._waiting = kernels.Waiting(
            np.zeros(0), np.zeros(flow.size), np.zeros(edges), np.zeros((edges, longest + 1)), np.zeros(1, np.int64)
        )
        self._lost = np.zeros(flow.size)
        self._migrating, self._power_s = np.zeros(flow.size), np.zeros(flow.size)
        self._paused, self._pauses = np.zeros(flow.size, np.bool_), np.zeros(flow.size, np.int64)
        self._links = kernels.Links(np.zeros(edges), np.zeros(edges), np.full(edges, longest))
        self._delays_s, self._delay_sums = np.zeros(edges), np.zeros(edges)
        self._sums = kernels.Sums(*np.zeros((5, flow.size)))
        self._edge_target = np.repeat(np.arange(flow.size), np.diff(flow.pred_offsets))

    def run(self) -> Result:
        """Run until the last interval ends."""
        for slot_s in self.setting.variability.slots_s:
            self.env.process(self._vary(slot_s))
        self.env.run(until=self.env.process(self._intervals()))
        return self.control.result()

    def _intervals(self) -> Process:
        """Call the policy at the start of each interval, and record the interval at its end."""
        setting = self.setting
        for step in range(setting.steps):
            self._step = step
            changes = self.control.begin(step)
            self._rearrange()
            log, until = self.control.cluster.log, self.env.now + setting.interval_s
            for number in changes.started:
                if log[number].ready_s > self.env.now:
                    self.env.process(self._refresh_after(log[number].ready_s - self.env.now))
            for number in self.control.cluster.live.machines:
                if log[number].fail_s < until - SLACK_S:
                    self.env.process(self._fail(number, log[number].fail_s))
            if setting.switch_pause_s > 0:
                for element, _ in changes.switched:
                    self.env.process(self._pause(element))
            yield self.env.timeout((step + 1) * setting.interval_s - self.env.now)
            self._advance()
            self._account(step)

    def _vary(self, slot_s: float) -> Process:
        """Update the speeds of machines at slot boundaries."""
        while True:
            yield self.env.timeout(slot_s)
            self._advance()
            self._refresh()

    def _refresh_after(self, seconds: float) -> Process:
        yield self.env.timeout(seconds)
        self._advance()
        self._refresh()

    def _fail(self, number: int, moment: float) -> Process:
        yield self.env.timeout(max(0.0, moment - self.env.now))
        self._advance()
        self._refresh()
        placed, queue = self._placed, self._waiting.queue
        dead = np.flatnonzero(placed.ids[placed.machine] == number)
        for at in dead.tolist():
            # A promoted replica has the same queue as the failed instance.
            heirs = np.flatnonzero(
                (placed.element == placed.element[at]) & (placed.stands_for == number) & (self._speed > 0)
            )
            if heirs.size:
                queue[heirs[0]] += queue[at]
                queue[at] = 0.0
        self._abandon(self._placed.element[dead], queue[dead])
        queue[dead] = 0.0

    def _pause(self, element: int) -> Process:
        """Pause a PE while its alternate is switched."""
        self._pauses[element] += 1
        self._paused[element] = True
        yield self.env.timeout(self.setting.switch_pause_s)
        self._advance()
        self._pauses[element] -= 1
        self._paused[element] = self._pauses[element] > 0

    def _migrate(self, number: int, kind: int, elements: Any, messages: Floats) -> Process:
        """Transfer messages from a released machine, one by one, over its link."""
        setting = self.setting
        for element, count in zip(elements.tolist(), messages.tolist(), strict=True):
            self.control.recorder.event(self.env.now, "migrate", machine=number, element=element, messages=count)
        seconds = 0.0
        if setting.network:
            observed = setting.variability.bandwidths(np.array([number]), self.env.now, self.env.now)[0]
            bits_s = setting.catalogue.bandwidths[kind] * observed * 1e6
            seconds = setting.catalogue.latency_ms / 1000.0 + messages.sum() * setting.flow.message_bits / bits_s
        np.add.at(self._migrating, elements, messages)
        yield self.env.timeout(seconds)
        self._advance()
        np.subtract.at(self._migrating, elements, messages)
        np.add.at(self._waiting.pending, elements, messages)

    def _advance(self) -> None:
        """Move all messages up to the current time."""
        setting, tick = self.setting, self.setting.tick_s
        span = self.env.now - self._moved_until
        if span <= SLACK_S:
            return
        self._power_s += span * np.bincount(
            self._placed.element, self._speed * ~self._paused[self._placed.element], setting.flow.size
        )
        self._delay_sums += span * self._delays_s
        ticks = int((span + SLACK_S) / tick)
        rest = span - ticks * tick
        if ticks:
            self._run_ticks(ticks, tick)
        if rest > SLACK_S:
            self._run_ticks(1, rest)
        self._moved_until = self.env.now

    def _run_ticks(self, ticks: int, dt: float) -> None:
        setting, flow = self.setting, self.setting.flow
        rates = setting.rates[self._step]
        arrivals = np.zeros((0, flow.size))
        if setting.arrivals == "poisson":
            arrivals = self._rng.poisson(rates * dt, (ticks, flow.size)).astype(np.float64)
        kernels.run_ticks(
            ticks, dt, flow.activated(self.control.cluster.live.active), rates, arrivals, self._placed.offsets,
            self._speed, self._paused, self._links, self._waiting, self._sums,
        )  # fmt: skip

    def _rearrange(self) -> None:
        """Apply a new deployment: messages stay on remaining hosts; other messages move or are lost."""
        old, queue = self._placed, self._waiting.queue
        new = self.control.cluster.placement
        self._placed = new
        held: dict[tuple[int, int], float] = {}
        for key, count in zip(_keys(old), queue.tolist(), strict=True):
            held[key] = held.get(key, 0.0) + count
        self._waiting = self._waiting._replace(queue=np.array([held.pop(key, 0.0) for key in _keys(new)]))
        kinds = dict(zip(old.ids.tolist(), old.kinds.tolist(), strict=True))
        leaving: dict[int, list[tuple[int, float]]] = {}
        for (element, number), count in held.items():
            if count > 0:
                leaving.setdefault(number, []).append((element, count))
        for number, pairs in leaving.items():
            elements = np.array([element for element, _ in pairs], np.int64)
            messages = np.array([count for _, count in pairs])
            if np.isfinite(self.control.cluster.log[number].fail_s):
                self._abandon(elements, messages)
            else:
                self.env.process(self._migrate(number, kinds[number], elements, messages))
        self._refresh()

    def _abandon(self, elements: Any, messages: Floats) -> None:
        """Drop the messages on a failed machine, or resend them from their senders."""
        np.add.at(self._lost if self.setting.failures.lose_messages else self._waiting.pending, elements, messages)

    def _refresh(self) -> None:
        """Update the current speeds of hosts and capacities of links."""
        setting, placed, now = self.setting, self._placed, self.env.now
        log = self.control.cluster.log
        lives = [log[number] for number in placed.ids.tolist()]
        up = np.array([life.ready_s <= now + SLACK_S and life.fail_s > now + SLACK_S for life in lives], bool)
        observed = setting.variability.speeds(placed.ids, now, now)
        self._speed = placed.instances * (setting.catalogue.speeds[placed.kinds] * observed * up)[placed.machine]
        self._speed *= self.control.cluster.at_work(np.where(up, 0.0, 1.0), np.ones(up.size), now)
        if not setting.network:
            self._links.inside[:], self._links.capacity[:] = 1.0, np.inf
            return
        rated = setting.catalogue.bandwidths[placed.kinds]
        bandwidth = rated * setting.variability.bandwidths(placed.ids, now, now)
        hosts = Hosts(
            placed.offsets, placed.machine, self._speed, bandwidth, setting.catalogue.site_numbers[placed.kinds],
            setting.catalogue.network.bandwidth_mbit_s,
        )  # fmt: skip
        kernels.fill_links(setting.flow.graph, hosts, setting.flow.message_bits, self._links)
        if setting.catalogue.sites:
            self._delays_s = setting.flow.link_delays(hosts.shared(), self._delay_s)
            away = 1.0 - self._links.inside
            mean = np.divide(self._delays_s, away, out=np.zeros_like(away), where=away > SLACK)
            self._links.ticks[:] = np.round(mean / setting.tick_s).clip(max=self._waiting.flying.shape[1] - 1)

    def _account(self, step: int) -> None:
        """Return the sums of an interval, and reset them."""
        setting, flow, waiting = self.setting, self.setting.flow, self._waiting
        interval = setting.interval_s
        power = self._power_s / interval
        inflow, processed, out, area, flying = (sums / interval for sums in self._sums)
        rates = setting.rates[step]
        if setting.omega == "backlog":
            rates = rates + self.control.queue / interval
        _, wanted = flow.ideal(self.control.cluster.live.active, rates)
        sent, most = out[flow.outputs], wanted[flow.outputs]
        if (power <= 0).any():
            omega = 0.0
        elif setting.measure == "mean":
            omega = float(np.minimum(1.0, np.divide(sent, most, out=np.ones_like(sent), where=most > 0)).mean())
        else:
            omega = float(min(1.0, sent.sum() / most.sum())) if most.sum() > 0 else 1.0
        queue = waiting.pending + self._migrating + np.bincount(self._placed.element, waiting.queue, flow.size)
        np.add.at(queue, self._edge_target, waiting.buffer + waiting.flying.sum(axis=1))
        measured = Measured(omega, inflow, processed, out, queue, area, power, self._lost)
        if setting.catalogue.sites:
            # Transfers are rounded to ticks; latencies are not.
            measured.delays_s, measured.flying = self._delay_sums / interval, flying
        self.control.end(step, measured)
        self._delay_sums = np.zeros(flow.pred.size)
        self._lost = np.zeros(flow.size)
        self._power_s = np.zeros(flow.size)
        self._sums = kernels.Sums(*np.zeros((5, flow.size)))


def _keys(placed: Placement) -> list[tuple[int, int]]:
    return list(zip(placed.element.tolist(), placed.ids[placed.machine].tolist(), strict=True))
