"""Windows of the next timesteps: predictions, deployments, and their throughput.

A plan starts from the running deployment and consists of changes from a timestep on, so only the power of the PEs is
kept per timestep. Messages and power are prefix sums: a window of any length costs one pass over the PEs.
See docs/specs/plasticc.md, sections 3.1 and 3.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import billed_quanta, paid_left_s
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Estimate, Floats, Flow, Hosts
from goffish.scheduling.policies import window_kernels as kernels


class Outlook(NamedTuple):
    """Predictions for the next timesteps; the first one is about to start.

    Attributes
    ----------
    rates : float64, shape (timesteps, elements)
        External input, messages per second.
    speeds : mapping from machine id to float64, shape (timesteps,)
        Coefficients: speed over rated speed.
    typical : float
        Coefficient of machines that `speeds` does not list, such as planned ones.
    bandwidths : mapping from machine id to float64, shape (timesteps,), optional
        Bandwidth over rated bandwidth, 1 for machines that are not listed; default: links are ignored.
    """

    rates: Floats
    speeds: Mapping[int, Floats]
    typical: float = 1.0
    bandwidths: Mapping[int, Floats] | None = None


class ScheduledAction(NamedTuple):
    """A planned change.

    Attributes
    ----------
    step : int
        The first timestep with the change, 0 for the next timestep.
    what : {"start", "add", "remove", "switch", "retire"}
        Request a machine; assign one of its cores to a PE, or release it; change the active alternate; stop a machine
        without instances.
    machine : int
        Its id; negative for a planned machine. 0 and meaningless for "switch".
    element : int
        -1 for "start" and "retire".
    choice : int
        The machine type for "start", the alternate for "switch", else -1.
    """

    step: int
    what: Literal["start", "add", "remove", "switch", "retire"]
    machine: int = 0
    element: int = -1
    choice: int = -1


class Window:
    """The next timesteps, with the changes planned so far.

    Machines are numbered by their positions: those of the live deployment by ascending id, then planned machines in the
    order of planning. Instances are those of the last timestep; the timesteps of successive changes never decrease.

    Parameters
    ----------
    flow : Flow
    live : Deployment
        The running deployment; not changed.
    outlook : Outlook
    interval_s : float
        Length of a timestep.
    queue : float64, shape (elements,), optional
        Queued messages, which count in windows that begin now; default: none.
    room : int
        Maximum number of added machines and instances.
    """

    def __init__(
        self,
        flow: Flow,
        live: Deployment,
        outlook: Outlook,
        interval_s: float,
        *,
        queue: Floats | None = None,
        room: int = 600,
    ) -> None:
        steps = len(outlook.rates)
        if not steps:
            raise InputError("a plan requires predictions for at least one timestep")
        self.flow, self.live, self.catalogue = flow, live, live.catalogue
        self.steps, self.interval_s, self.typical = steps, interval_s, outlook.typical
        self.actions: list[ScheduledAction] = []
        self.rates = np.ascontiguousarray(outlook.rates, np.float64)
        self.message_sums = _prefix_sums(self.rates)
        self.queue = np.zeros(flow.size) if queue is None else np.asarray(queue, np.float64)
        self.active = np.tile(live.active, (steps, 1))
        self.ids = sorted(live.machines)
        machines = [live.machines[number] for number in self.ids]
        most = len(machines) + room
        self.kinds = _padded([machine.kind for machine in machines], most, np.int64)
        self.elapsed_s = _padded([machine.elapsed_s for machine in machines], most, np.float64)
        self.free = _padded([live.free(number) for number in self.ids], most, np.int64)
        self.usable = _padded([True] * len(machines), most, np.bool_)
        self.speeds = np.zeros((most, steps))
        for at, (number, machine) in enumerate(zip(self.ids, machines, strict=True)):
            self.speeds[at] = outlook.speeds.get(number, outlook.typical)
            self.speeds[at] *= self.catalogue.speeds[machine.kind]
        self.links = None if outlook.bandwidths is None else np.ones((most, steps))
        for at, number in enumerate(self.ids):
            if self.links is not None and outlook.bandwidths is not None:
                self.links[at] = outlook.bandwidths.get(number, 1.0)
        self._mean_from, self._mean = -1, np.zeros(most)
        self._place(room)

    def _place(self, room: int) -> None:
        machines = [self.live.machines[number] for number in self.ids]
        placed = [(e, at, n) for at, machine in enumerate(machines) for e, n in sorted(machine.instances.items())]
        most = len(placed) + sum(n for _, _, n in placed) + room
        self.element = _padded([e for e, _, _ in placed], most, np.int64)
        self.placed, self.counts = len(placed), self.live.counts.copy()
        self.entries = kernels.Entries(
            np.full(self.flow.size, -1),
            np.full(most, -1),
            _padded([at for _, at, _ in placed], most, np.int64),
            _padded([n for _, _, n in placed], most, np.int64),
            self.counts,
        )
        head, following, host, held, _ = self.entries
        element = self.element[: self.placed]
        for at, e in enumerate(element.tolist()):
            following[at], head[e] = head[e], at
        given = held[: self.placed, None] * self.speeds[host[: self.placed]]
        self.powers = np.zeros((self.steps, self.flow.size))
        for step in range(self.steps):
            self.powers[step] = np.bincount(element, given[:, step], self.flow.size)
        self.power_sums = _prefix_sums(self.powers)

    # Throughput of windows

    def evaluate(self, first: int, last: int) -> Estimate:
        """Cumulative throughput of the timesteps from `first` to before `last` (CUM, §3.1).

        The window counts as one interval with all its messages and power: work may shift in time within it.
        """
        length = last - first
        return self.flow.estimate(
            self.active[first],
            self.mean_power(first, last),
            self.mean_rates(first, last),
            queue=self.queue if first == 0 else None,
            interval_s=length * self.interval_s,
            hosts=None if self.links is None else self._hosts(self.links[:, first:last].mean(axis=1), first, last),
        )

    def _hosts(self, links: Floats, first: int, last: int) -> Hosts:
        """Locations of instances, and the mean bandwidths of the links of their machines."""
        used = np.flatnonzero(self.entries.held[: self.placed] > 0)
        used = used[np.lexsort((self.entries.host[used], self.element[used]))]
        element, host, count = self.element[used], self.entries.host[used], len(self.ids)
        power = self.entries.held[used] * self.speeds[:count, first:last].mean(axis=1)[host]
        return Hosts(
            np.searchsorted(element, np.arange(self.flow.size + 1)),
            host,
            power,
            self.catalogue.bandwidths[self.kinds[:count]] * links[:count],
            self.catalogue.site_numbers[self.kinds[:count]],
            self.catalogue.network.bandwidth_mbit_s,
        ).shared()

    def mean_rates(self, first: int, last: int) -> Floats:
        """External input over the timesteps from `first` to before `last`, messages per second."""
        mean: Floats = (self.message_sums[last] - self.message_sums[first]) / (last - first)
        return mean

    def mean_power(self, first: int, last: int) -> Floats:
        """Total speed of the cores of each PE, averaged over the timesteps from `first` to before `last`."""
        mean: Floats = (self.power_sums[last] - self.power_sums[first]) / (last - first)
        return mean

    def load(self, first: int, last: int) -> kernels.Load:
        """Means over the timesteps from `first` to before `last`; queues count only if these begin now."""
        waiting = np.zeros(self.flow.size) if first else self.queue / ((last - first) * self.interval_s)
        return kernels.Load(self.mean_rates(first, last), self.mean_power(first, last), waiting)

    def timesteps(self, least: float, first: int, last: int) -> kernels.Timesteps:
        """The timesteps from `first` to before `last`, each of which must reach a throughput of `least`."""
        return kernels.Timesteps(self.rates, self.powers, self.speeds, least, first, last)

    def mean_speeds(self, first: int) -> Floats:
        """Speed of a core of each machine, averaged over the timesteps from `first` on."""
        if first != self._mean_from:
            self._mean_from, self._mean = first, self.speeds[:, first:].mean(axis=1)
        return self._mean[: len(self.ids)]

    def end_within(self, first: int, last: int, low: float, high: float) -> int:
        """The greatest end, at most `last`, with which a window from `first` has a throughput from `low` to `high`.

        `first` itself if there is none.
        """
        if self.links is not None:
            ends = (
                end for end in range(last, first, -1) if low - SLACK <= self.evaluate(first, end).omega <= high + SLACK
            )
            return next(ends, first)
        found: int = kernels.farthest_end(
            self.flow.activated(self.active[first]), self.message_sums, self.power_sums, self.queue, self.interval_s,
            low, high, first, last,
        )  # fmt: skip
        return found

    def first_below(self, least: float, first: int) -> int:
        """The first timestep from `first` with a throughput below `least`; `steps` if there is none."""
        if self.links is not None:
            steps = range(first, self.steps)
            return next((k for k in steps if self.evaluate(k, k + 1).omega < least - SLACK), self.steps)
        flow, ahead = self.flow.activated(self.active[first]), self.timesteps(least, first, self.steps)
        found: int = kernels.first_below(flow, ahead, 0, np.zeros(self.steps))
        return found

    # Properties of machines

    def paid_left_s(self, step: int) -> Floats:
        """Remaining paid time of each machine at the start of a timestep, in seconds."""
        return paid_left_s(self.elapsed_s[: len(self.ids)] + step * self.interval_s, self.catalogue.billing)

    def saved(self, step: int) -> Floats:
        """Cost of each machine that is avoided before the end of the window if it has no instances from `step` on."""
        billing, elapsed = self.catalogue.billing, self.elapsed_s[: len(self.ids)]
        kept = billed_quanta(elapsed + self.steps * self.interval_s, billing).clip(min=1.0)
        left = billed_quanta(elapsed + step * self.interval_s, billing).clip(min=1.0)
        price = self.catalogue.prices[self.kinds[: len(self.ids)]]
        cost: Floats = (kept - left) * billing.quantum_s / 3600.0 * price
        return cost

    def weights(self, first: int) -> Floats:
        """Weight of each machine (Eq. 10) at a timestep, without its share of a PE's instances."""
        count = len(self.ids)
        kinds = self.kinds[:count]
        cores, price = self.catalogue.cores[kinds], self.catalogue.prices[kinds]
        per_price = np.divide(
            cores * self.mean_speeds(first), price, out=np.full(count, np.inf), where=price > 0
        )  # fmt: skip
        hours_left = self.paid_left_s(first) / 3600.0
        used = 1.0 - self.free[:count] / cores
        weight: Floats = np.where(used > 0, hours_left * used, np.finfo(np.float64).tiny) * per_price
        return weight

    def fastest_free(self, preferred: list[int], first: int) -> int:
        """A machine with a free core: one that runs any PE in `preferred`, then the fastest, then the first.

        -1 if no machine has one.
        """
        found: int = kernels.fastest_free(
            self.entries, self.free, self.usable, self.mean_speeds(first), np.array(preferred)
        )  # fmt: skip
        return found

    def instances_on(self, machine: int) -> dict[int, int]:
        """PEs on a machine, ascending, and the number of instances of each."""
        used = slice(self.placed)
        at = np.flatnonzero((self.entries.host[used] == machine) & (self.entries.held[used] > 0))
        return dict(sorted(zip(self.element[at].tolist(), self.entries.held[at].tolist(), strict=True)))

    # Changes

    def start(self, kind: int, step: int) -> int:
        """Plan to request a machine at a timestep; return its position."""
        place = len(self.ids)
        number = -1 - (place - len(self.live.machines))
        self.ids.append(number)
        self.kinds[place], self.elapsed_s[place] = kind, -step * self.interval_s
        self.free[place], self.usable[place] = self.catalogue.cores[kind], True
        self.speeds[place] = self._mean[place] = self.catalogue.speeds[kind] * self.typical
        self.actions.append(ScheduledAction(step, "start", machine=number, choice=kind))
        return place

    def put(self, element: int, machine: int, step: int) -> None:
        """Assign a free core of a machine to a PE from a timestep on."""
        self.actions.append(ScheduledAction(step, "add", machine=self.ids[machine], element=element))
        self._count(element, machine, 1, step)

    def take(self, element: int, machine: int, step: int) -> None:
        """Release a core of a machine from a PE from a timestep on."""
        self.actions.append(ScheduledAction(step, "remove", machine=self.ids[machine], element=element))
        self._count(element, machine, -1, step)

    def switch(self, element: int, alternate: int, step: int) -> None:
        """Make an alternate the active one from a timestep on."""
        self.actions.append(ScheduledAction(step, "switch", element=element, choice=alternate))
        self.active[step:, element] = alternate

    def retire(self, machine: int, step: int) -> None:
        """Stop a machine without instances at a timestep; it accepts no instances from then on."""
        self.actions.append(ScheduledAction(step, "retire", machine=self.ids[machine]))
        self.usable[machine] = False

    def rollback(self, actions: int) -> None:
        """Undo all but the first `actions`; only added or removed instances can be undone."""
        place = {number: at for at, number in enumerate(self.ids)}
        while len(self.actions) > actions:
            done = self.actions.pop()
            self._count(done.element, place[done.machine], -1 if done.what == "add" else 1, done.step)

    def _count(self, element: int, machine: int, change: int, step: int) -> None:
        head, following, host, held, _ = self.entries
        at = kernels.entry_of(self.entries, element, machine)
        if at < 0:
            at = self.placed
            self.placed += 1
            self.element[at], host[at], held[at] = element, machine, 0
            following[at], head[element] = head[element], at
        held[at] += change
        self.free[machine] -= change
        self.counts[element] += change
        kernels.change_power(self.powers, self.power_sums, element, self.speeds[machine], change, step)


def _prefix_sums(rows: Floats) -> Floats:
    sums = np.zeros((len(rows) + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])
    return sums


def _padded(known: list[int] | list[float] | list[bool], size: int, kind: Any) -> NDArray[Any]:
    found: NDArray[Any] = np.zeros(size, kind)
    found[: len(known)] = known
    return found
