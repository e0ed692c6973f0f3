"""Numba kernels of windows: relative throughput, and the search for superfluous instances and alternates.

Prefix sums have one row more than timesteps: messages per second, and speed, summed over the previous timesteps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.arrays import copy_values
from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK, ActiveFlow, empty_rates, throughput


class Entries(NamedTuple):
    """Locations of instances: for each PE a linked list of machines.

    Attributes
    ----------
    head : int64, shape (elements,)
        First entry of each PE, -1 for none.
    following : int64, shape (entries,)
        Next entry of the same PE, -1 after the last.
    host, held : int64, shape (entries,)
        Machine of each entry, and its number of instances, which may be 0.
    counts : int64, shape (elements,)
        Instances of each PE.
    """

    head: NDArray[np.int64]
    following: NDArray[np.int64]
    host: NDArray[np.int64]
    held: NDArray[np.int64]
    counts: NDArray[np.int64]


class Load(NamedTuple):
    """Mean input and power of a window; float64 arrays of shape (elements,).

    Attributes
    ----------
    external
        External input, messages per second.
    power
        Total speed of the cores of each PE.
    backlog
        Messages queued at the beginning, spread over the window, per second.
    """

    external: NDArray[np.float64]
    power: NDArray[np.float64]
    backlog: NDArray[np.float64]


class Timesteps(NamedTuple):
    """The timesteps of a window, each of which must reach a throughput separately.

    Attributes
    ----------
    rates, powers : float64, shape (timesteps, elements)
        External input, and total speed of the cores of each PE.
    speeds : float64, shape (machines, timesteps)
        Speed of a core.
    least : float
        Least throughput of a timestep; 0: timesteps are not checked.
    first, last : int
        The timesteps from `first` to before `last` count.
    """

    rates: NDArray[np.float64]
    powers: NDArray[np.float64]
    speeds: NDArray[np.float64]
    least: float
    first: int
    last: int


class Savings(NamedTuple):
    """Gain of removing a core from a machine; float64 arrays of shape (machines,).

    Attributes
    ----------
    weight
        Weight of the machine without its share of a PE's instances (Eq. 10); cores are removed from the least weight
        first.
    speed
        Mean speed of a core.
    saved
        Avoided cost.
    """

    weight: NDArray[np.float64]
    speed: NDArray[np.float64]
    saved: NDArray[np.float64]


class Failed(NamedTuple):
    """Changes of each PE that are known to be infeasible.

    Attributes
    ----------
    switch : bool, shape (elements,)
        A switch of its alternate.
    speed : float64, shape (elements,)
        Removal of a core of this speed or more.
    """

    switch: NDArray[np.bool_]
    speed: NDArray[np.float64]


@kernel
def farthest_end(flow, message_sums, power_sums, queue, interval, low, high, first, last):
    """The greatest end up to `last` with which the window from `first` is within the band; `first` if there is none."""
    n = queue.size
    external, power, backlog = np.empty(n), np.empty(n), np.zeros(n)
    rates = empty_rates(n)
    for end in range(last, first, -1):
        steps = end - first
        for i in range(n):
            external[i] = (message_sums[end, i] - message_sums[first, i]) / steps
            power[i] = (power_sums[end, i] - power_sums[first, i]) / steps
            if first == 0:
                backlog[i] = queue[i] / (steps * interval)
        omega = throughput(flow, external, power, backlog, rates)
        if low - SLACK <= omega <= high + SLACK:
            return end
    return first


@kernel
def first_below(flow, steps, element, lost):
    """The first timestep whose throughput is below the least, or ``steps.last``.

    `lost` is taken from the power of `element` in each timestep.
    """
    n = steps.rates.shape[1]
    power, none, rates = np.empty(n), np.zeros(n), empty_rates(n)
    for step in range(steps.first, steps.last):
        copy_values(power, steps.powers[step])
        power[element] -= lost[step]
        if throughput(flow, steps.rates[step], power, none, rates) < steps.least - SLACK:
            return step
    return steps.last


@kernel
def lighter(entries, base, element):
    """The machine of a PE with the least weight (Eq. 10), the first among equals; -1 if the PE has no instance.

    `base` is the weight of each machine without its share of the PE's instances.
    """
    chosen, least, at = -1, np.inf, entries.head[element]
    while at >= 0:
        if entries.held[at] > 0:
            machine = entries.host[at]
            # A share of 0 would hide the other factors.
            weight = base[machine] * max(1.0 - entries.held[at] / entries.counts[element], SLACK)
            closeness = SLACK * max(1.0, abs(least)) if np.isfinite(least) else 0.0
            if chosen < 0 or weight < least - closeness or (weight <= least + closeness and machine < chosen):
                chosen, least = machine, weight
        at = entries.following[at]
    return chosen


@kernel(inner=True)
def next_better(alternates, element, active):
    """The alternate with the least value above that of the active one, the first among equals; -1 if there is none."""
    value, low, chosen = alternates.value, alternates.offsets[element], -1
    for row in range(low, alternates.offsets[element + 1]):
        if value[row] > value[low + active] + SLACK and (chosen < 0 or value[row] < value[low + chosen] - SLACK):
            chosen = row - low
    return chosen


@kernel
def what_can_go(graph, alternates, active, load, ranked, entries, savings, worth, target, failed, steps):
    """The first change, in the order of `ranked`, that keeps the window's throughput at `target`.

    Each PE has two: its next better alternate (`worth` times the gain in value), and one instance less, on its machine
    with the least weight (its saving). The one with the higher gain is tried first. Returns the PE, the alternate and
    the machine; one of the last two is -1; the PE is -1 if no change is feasible.

    Infeasible changes are recorded in `failed`. They remain infeasible while power is only removed; callers reset
    `failed` after a switch.
    """
    cost, value, selectivity = alternates.cost, alternates.value, alternates.selectivity
    external, power, backlog = load
    n, trial, nothing = power.size, power.copy(), np.zeros(steps.rates.shape[0])
    rows = alternates.offsets[:-1] + active
    flow = ActiveFlow(graph, cost[rows], selectivity[rows])
    now, rates = empty_rates(n), empty_rates(n)
    omega = throughput(flow, external, power, backlog, now)
    for element in ranked:
        first, row = alternates.offsets[element], rows[element]
        better = -1 if failed.switch[element] else next_better(alternates, element, active[element])
        machine = -1
        if entries.counts[element] > 1:
            machine = lighter(entries, savings.weight, element)
            if savings.speed[machine] >= failed.speed[element] - SLACK:
                machine = -1
        gain = (value[first + better] - value[row]) * worth if better >= 0 else 0.0
        switch_first = better >= 0 and (machine < 0 or gain >= savings.saved[machine] - SLACK)
        for turn in range(2):
            switching = (turn == 0) == switch_first
            if (better if switching else machine) < 0:
                continue
            lost = nothing
            if switching:
                flow.cost[element], flow.selectivity[element] = cost[first + better], selectivity[first + better]
            else:
                trial[element] = power[element] - savings.speed[machine]
                lost = steps.speeds[machine]
            spare = not switching and trial[element] > 0.0
            if spare and trial[element] / flow.cost[element] >= now.processed[element]:
                reached = omega
            else:
                reached = throughput(flow, external, trial, backlog, rates)
            good = reached >= target - SLACK
            if good and steps.least > 0:
                good = first_below(flow, steps, element, lost) == steps.last
            trial[element] = power[element]
            flow.cost[element], flow.selectivity[element] = cost[row], selectivity[row]
            if good:
                return element, better if switching else -1, -1 if switching else machine
            if switching:
                failed.switch[element] = True
            else:
                failed.speed[element] = savings.speed[machine]
    return -1, -1, -1


@kernel
def next_cheaper(alternates, element, active):
    """The alternate with the highest cost below that of the active one, the first among equals; -1 if there is none."""
    cost, low, chosen = alternates.cost, alternates.offsets[element], -1
    for row in range(low, alternates.offsets[element + 1]):
        if cost[row] < cost[low + active] - SLACK and (chosen < 0 or cost[row] > cost[low + chosen] + SLACK):
            chosen = row - low
    return chosen


@kernel
def fastest_free(entries, free, usable, speed, near):
    """A machine with a free core: one that runs any of `near`, then the fastest, then the first; else -1."""
    preferred, chosen = np.zeros(speed.size, np.bool_), -1
    for element in near:
        at = entries.head[element]
        while at >= 0:
            preferred[entries.host[at]] |= entries.held[at] > 0
            at = entries.following[at]
    for machine in range(speed.size):
        if not usable[machine] or free[machine] <= 0:
            continue
        better = chosen < 0 or preferred[machine] > preferred[chosen]
        if better or (preferred[machine] == preferred[chosen] and speed[machine] > speed[chosen] + SLACK):
            chosen = machine
    return chosen


@kernel
def change_power(powers, power_sums, element, speeds, sign, first):
    """Add (sign 1) or remove (-1) a core with these speeds to or from a PE, from timestep `first` on."""
    for step in range(powers.shape[0]):
        if step >= first:
            powers[step, element] += sign * speeds[step]
        power_sums[step + 1, element] = power_sums[step, element] + powers[step, element]


@kernel
def entry_of(entries, element, machine):
    """The entry of a PE on a machine; -1 if there is none."""
    at = entries.head[element]
    while at >= 0 and entries.host[at] != machine:
        at = entries.following[at]
    return at
