"""Relative throughput of windows, and the search for what a plan can do without, in numba.

Prefix sums hold one row more than there are timesteps: messages per second, and speed, added up over those before.
"""

from __future__ import annotations

import numba
import numpy as np

from goffish.scheduling.dataflow.kernels import SLACK, estimate, ideal_rates


@numba.njit(cache=True, nogil=True)
def throughput(
    order, pred_offsets, pred, outputs, cost, selectivity, external, power, backlog,
    ideal_in, ideal_out, inflow, processed, out, local,
):  # fmt: skip
    """Mean relative throughput of the outputs; 0 where an element has no core. Fills the last six."""
    ideal_rates(order, pred_offsets, pred, selectivity, external, ideal_in, ideal_out)
    omega, _ = estimate(
        order, pred_offsets, pred, outputs, cost, selectivity, external, power, backlog, ideal_out,
        inflow, processed, out, local,
    )  # fmt: skip
    for i in range(power.size):
        if power[i] <= 0.0:
            return 0.0
    return omega


@numba.njit(cache=True, nogil=True)
def farthest_end(
    order, pred_offsets, pred, outputs, cost, selectivity, message_sums, power_sums, queue, interval, low, high,
    first, last,
):  # fmt: skip
    """The greatest end up to `last` with which the window from `first` is within the band; `first` if there is none."""
    n = order.size
    external, power, backlog = np.empty(n), np.empty(n), np.zeros(n)
    ideal_in, ideal_out, inflow, processed = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    out, local = np.empty(n), np.empty(n)
    for end in range(last, first, -1):
        steps = end - first
        for i in range(n):
            external[i] = (message_sums[end, i] - message_sums[first, i]) / steps
            power[i] = (power_sums[end, i] - power_sums[first, i]) / steps
            if first == 0:
                backlog[i] = queue[i] / (steps * interval)
        omega = throughput(
            order, pred_offsets, pred, outputs, cost, selectivity, external, power, backlog,
            ideal_in, ideal_out, inflow, processed, out, local,
        )  # fmt: skip
        if low - SLACK <= omega <= high + SLACK:
            return end
    return first


@numba.njit(cache=True, nogil=True)
def first_below(
    order, pred_offsets, pred, outputs, cost, selectivity, rates, powers, element, lost, least, first, last
):  # fmt: skip
    """The first timestep from `first` on whose throughput is below `least`, or `last`.

    `lost` is taken from the power of `element` in each timestep.
    """
    n = order.size
    power, none = np.empty(n), np.zeros(n)
    ideal_in, ideal_out, inflow, processed = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    out, local = np.empty(n), np.empty(n)
    for step in range(first, last):
        power[:] = powers[step]
        power[element] -= lost[step]
        omega = throughput(
            order, pred_offsets, pred, outputs, cost, selectivity, rates[step], power, none,
            ideal_in, ideal_out, inflow, processed, out, local,
        )  # fmt: skip
        if omega < least - SLACK:
            return step
    return last


@numba.njit(cache=True, nogil=True)
def lighter(head, following, host, held, total, base, element):
    """The machine of an element with the least weight (Eq. 10), of equal ones the first; -1 if it runs nowhere.

    `base` is the weight of each machine but for its share of the element's instances, `total` the number of these.
    """
    chosen, least, at = -1, np.inf, head[element]
    while at >= 0:
        if held[at] > 0:
            machine = host[at]
            # A share of 0 would hide the other factors.
            weight = base[machine] * max(1.0 - held[at] / total, SLACK)
            closeness = SLACK * max(1.0, abs(least)) if np.isfinite(least) else 0.0
            if chosen < 0 or weight < least - closeness or (weight <= least + closeness and machine < chosen):
                chosen, least = machine, weight
        at = following[at]
    return chosen


@numba.njit(cache=True, nogil=True)
def next_better(alternate_offsets, value, element, active):
    """The alternate of the least value above that of the active one, of equal ones the first; -1 if there is none."""
    low, chosen = alternate_offsets[element], -1
    for row in range(low, alternate_offsets[element + 1]):
        if value[row] > value[low + active] + SLACK and (chosen < 0 or value[row] < value[low + chosen] - SLACK):
            chosen = row - low
    return chosen


@numba.njit(cache=True, nogil=True)
def what_can_go(
    order, pred_offsets, pred, outputs, alternate_offsets, cost, value, selectivity, active, external, power, backlog,
    ranked, head, following, host, held, counts, base, speed, saved, worth, target, failed_switch, failed_speed,
    rates, powers, speeds, least, first, last,
):  # fmt: skip
    """The first change, in the order of `ranked`, that leaves the window's throughput at `target`.

    Each element has two: its next better alternate (`worth` times the gain in value), and one instance less, on its
    machine of least weight (`saved` of that machine). The one that gains more is tried first. Returns the element, the
    alternate and the machine; one of the last two is -1; the element is -1 if nothing can go.

    What failed is remembered in `failed_switch` and in `failed_speed`, the least speed that an element could not do
    without. It stays true while power is only taken away, and is the caller's to forget after a switch.
    """
    n = order.size
    rows_cost, rows_selectivity, trial = np.empty(n), np.empty(n), power.copy()
    nothing = np.zeros(rates.shape[0])
    for i in range(n):
        rows_cost[i] = cost[alternate_offsets[i] + active[i]]
        rows_selectivity[i] = selectivity[alternate_offsets[i] + active[i]]
    ideal_in, ideal_out, inflow, processed = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    out, local, now = np.empty(n), np.empty(n), np.empty(n)
    omega = throughput(
        order, pred_offsets, pred, outputs, rows_cost, rows_selectivity, external, power, backlog,
        ideal_in, ideal_out, inflow, now, out, local,
    )  # fmt: skip
    for element in ranked:
        row = alternate_offsets[element] + active[element]
        better = -1 if failed_switch[element] else next_better(alternate_offsets, value, element, active[element])
        machine = -1
        if counts[element] > 1:
            machine = lighter(head, following, host, held, counts[element], base, element)
            if speed[machine] >= failed_speed[element] - SLACK:
                machine = -1
        gain = (value[alternate_offsets[element] + better] - value[row]) * worth if better >= 0 else 0.0
        switch_first = better >= 0 and (machine < 0 or gain >= saved[machine] - SLACK)
        for turn in range(2):
            if (turn == 0) == switch_first:
                if better < 0:
                    continue
                rows_cost[element] = cost[alternate_offsets[element] + better]
                rows_selectivity[element] = selectivity[alternate_offsets[element] + better]
                lost = nothing
                reached = throughput(
                    order, pred_offsets, pred, outputs, rows_cost, rows_selectivity, external, power, backlog,
                    ideal_in, ideal_out, inflow, processed, out, local,
                )  # fmt: skip
            else:
                if machine < 0:
                    continue
                trial[element] = power[element] - speed[machine]
                lost = speeds[machine]
                if trial[element] > 0.0 and trial[element] / rows_cost[element] >= now[element]:
                    reached = omega
                else:
                    reached = throughput(
                        order, pred_offsets, pred, outputs, rows_cost, rows_selectivity, external, trial, backlog,
                        ideal_in, ideal_out, inflow, processed, out, local,
                    )  # fmt: skip
            good = reached >= target - SLACK
            if good and least > 0:
                good = last == first_below(
                    order, pred_offsets, pred, outputs, rows_cost, rows_selectivity, rates, powers, element, lost,
                    least, first, last,
                )  # fmt: skip
            trial[element] = power[element]
            rows_cost[element], rows_selectivity[element] = cost[row], selectivity[row]
            if (turn == 0) == switch_first:
                if good:
                    return element, better, -1
                failed_switch[element] = True
            else:
                if good:
                    return element, -1, machine
                failed_speed[element] = speed[machine]
    return -1, -1, -1


@numba.njit(cache=True, nogil=True)
def next_cheaper(alternate_offsets, cost, element, active):
    """The alternate of the greatest cost below that of the active one, of equal ones the first; -1 if there is none."""
    low, chosen = alternate_offsets[element], -1
    for row in range(low, alternate_offsets[element + 1]):
        if cost[row] < cost[low + active] - SLACK and (chosen < 0 or cost[row] > cost[low + chosen] + SLACK):
            chosen = row - low
    return chosen


@numba.njit(cache=True, nogil=True)
def fastest_free(head, following, host, held, free, usable, speed, machines, near):
    """The machine with a free core: one where any of `near` runs, then the fastest, then the first; -1 if none has."""
    preferred, chosen = np.zeros(machines, np.bool_), -1
    for element in near:
        at = head[element]
        while at >= 0:
            preferred[host[at]] |= held[at] > 0
            at = following[at]
    for machine in range(machines):
        if not usable[machine] or free[machine] <= 0:
            continue
        better = chosen < 0 or preferred[machine] > preferred[chosen]
        if better or (preferred[machine] == preferred[chosen] and speed[machine] > speed[chosen] + SLACK):
            chosen = machine
    return chosen


@numba.njit(cache=True, nogil=True)
def change_power(powers, power_sums, element, speeds, sign, first):
    """Give (sign 1) or take (-1) an element a core with these speeds, from timestep `first` on."""
    for step in range(powers.shape[0]):
        if step >= first:
            powers[step, element] += sign * speeds[step]
        power_sums[step + 1, element] = power_sums[step, element] + powers[step, element]


@numba.njit(cache=True, nogil=True)
def entry_of(head, following, host, element, machine):
    """The entry of an element on a machine; -1 if it has none."""
    at = head[element]
    while at >= 0 and host[at] != machine:
        at = following[at]
    return at
