"""Relative throughput of windows, and the search for what a plan can do without, in numba.

Prefix sums hold one row more than there are timesteps: messages per second, and speed, added up over those before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.arrays import copy_values
from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK, ActiveFlow, empty_rates, throughput


class Entries(NamedTuple):
    """What runs where: for each element a linked list of machines.

    Attributes
    ----------
    head : int64, shape (elements,)
        First entry of each element, -1 for none.
    following : int64, shape (entries,)
        Next entry of the same element, -1 after the last.
    host, held : int64, shape (entries,)
        Machine of each entry, and number of instances there, which may be 0.
    counts : int64, shape (elements,)
        Instances of each element.
    """

    head: NDArray[np.int64]
    following: NDArray[np.int64]
    host: NDArray[np.int64]
    held: NDArray[np.int64]
    counts: NDArray[np.int64]


class Load(NamedTuple):
    """What a window has to do and to do it with, on average; float64 arrays of shape (elements,).

    Attributes
    ----------
    external
        External input, messages per second.
    power
        Speed of all cores of each element together.
    backlog
        Messages that wait at the beginning, spread over the window, per second.
    """

    external: NDArray[np.float64]
    power: NDArray[np.float64]
    backlog: NDArray[np.float64]


class Timesteps(NamedTuple):
    """The timesteps of a window, each of which has to reach a throughput by itself.

    Attributes
    ----------
    rates, powers : float64, shape (timesteps, elements)
        External input, and speed of all cores of each element together.
    speeds : float64, shape (machines, timesteps)
        Of a core.
    least : float
        The throughput; 0: timesteps are not looked at.
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
    """What a core that is taken from a machine gains; float64 arrays of shape (machines,).

    Attributes
    ----------
    weight
        Of the machine but for its share of an element's instances (Eq. 10); the least weight gives a core first.
    speed
        Mean speed of a core.
    saved
        Cost that is avoided.
    """

    weight: NDArray[np.float64]
    speed: NDArray[np.float64]
    saved: NDArray[np.float64]


class Failed(NamedTuple):
    """What an element is known not to be able to go without.

    Attributes
    ----------
    switch : bool, shape (elements,)
        Its alternate.
    speed : float64, shape (elements,)
        A core of this speed or more.
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
    """The machine of an element with the least weight (Eq. 10), of equal ones the first; -1 if it runs nowhere.

    `base` is the weight of each machine but for its share of the element's instances.
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


@kernel
def next_better(alternates, element, active):
    """The alternate of the least value above that of the active one, of equal ones the first; -1 if there is none."""
    value, low, chosen = alternates.value, alternates.offsets[element], -1
    for row in range(low, alternates.offsets[element + 1]):
        if value[row] > value[low + active] + SLACK and (chosen < 0 or value[row] < value[low + chosen] - SLACK):
            chosen = row - low
    return chosen


@kernel
def what_can_go(graph, alternates, active, load, ranked, entries, savings, worth, target, failed, steps):
    """The first change, in the order of `ranked`, that leaves the window's throughput at `target`.

    Each element has two: its next better alternate (`worth` times the gain in value), and one instance less, on its
    machine of least weight (what that machine saves). The one that gains more is tried first. Returns the element, the
    alternate and the machine; one of the last two is -1; the element is -1 if nothing can go.

    What failed is remembered in `failed`. It stays true while power is only taken away, and is the caller's to forget
    after a switch.
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
    """The alternate of the greatest cost below that of the active one, of equal ones the first; -1 if there is none."""
    cost, low, chosen = alternates.cost, alternates.offsets[element], -1
    for row in range(low, alternates.offsets[element + 1]):
        if cost[row] < cost[low + active] - SLACK and (chosen < 0 or cost[row] > cost[low + chosen] + SLACK):
            chosen = row - low
    return chosen


@kernel
def fastest_free(entries, free, usable, speed, near):
    """The machine with a free core: one where any of `near` runs, then the fastest, then the first; -1 if none has."""
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
    """Give (sign 1) or take (-1) an element a core with these speeds, from timestep `first` on."""
    for step in range(powers.shape[0]):
        if step >= first:
            powers[step, element] += sign * speeds[step]
        power_sums[step + 1, element] = power_sums[step, element] + powers[step, element]


@kernel
def entry_of(entries, element, machine):
    """The entry of an element on a machine; -1 if it has none."""
    at = entries.head[element]
    while at >= 0 and entries.host[at] != machine:
        at = entries.following[at]
    return at
