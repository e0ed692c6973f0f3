"""Packing machines anew, over arrays, in numba; what the steps mean stands in `repacking`."""

from __future__ import annotations

import numba
import numpy as np

from goffish.scheduling.dataflow.kernels import SLACK, estimate, ideal_rates


@numba.njit(cache=True, nogil=True)
def _free(kinds, machine, cores):
    """Free cores of machines of these classes with these instances."""
    free = cores[kinds]
    for at in machine:
        free[at] -= 1
    return free


@numba.njit(cache=True, nogil=True)
def power_of(kinds, machine, element, speeds, base):
    """Speed of all cores of each element together, and what it has elsewhere."""
    power = np.zeros(base.size)
    for at in range(machine.size):
        power[element[at]] += speeds[kinds[machine[at]]]
    return base + power


@numba.njit(cache=True, nogil=True)
def price_of(kinds, prices):
    """Of all machines."""
    total = 0.0
    for kind in kinds:
        total += prices[kind]
    return total


@numba.njit(cache=True, nogil=True)
def _with(kinds, machine, element, kind, more, cores):
    """A packing with more instances, on new machines of one class."""
    size = cores[kind]
    new = -(-more.size // size)
    return (
        np.concatenate((kinds, np.full(new, kind, np.int64))),
        np.concatenate((machine, kinds.size + np.arange(more.size) // size)),
        np.concatenate((element, more)),
    )


@numba.njit(cache=True, nogil=True)
def _without(kinds, machine, element, dropped):
    """A packing without some machines, and what runs on them."""
    renamed = np.cumsum(~dropped) - 1
    kept = ~dropped[machine]
    return kinds[~dropped], renamed[machine[kept]], element[kept]


@numba.njit(cache=True, nogil=True)
def repack_instances(kinds, machine, element, need, cores, speeds, available, ascending):
    """Move, or drop, the last instance of every element with more power than it needs (REPACK_PE_INSTANCE).

    `ascending`: classes from the least powerful on, cheaper ones first among equals.
    """
    size = need.size
    power = power_of(kinds, machine, element, speeds, np.zeros(size))
    count, last = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for at in range(element.size):
        count[element[at]] += 1
        last[element[at]] = at
    target = np.full(size, -1, np.int64)
    kept = np.ones(element.size, np.bool_)
    for i in range(size):
        if count[i] == 0 or power[i] - need[i] <= SLACK:
            continue
        speed = speeds[kinds[machine[last[i]]]]
        rest = need[i] - (power[i] - speed)
        if rest <= SLACK and count[i] > 1:
            kept[last[i]] = False
            continue
        for kind in ascending:
            if available[kind] and rest - SLACK <= speeds[kind] < speed - SLACK:
                target[i] = kind
                break
    machine = machine.copy()
    for kind in range(cores.size):
        movers = np.flatnonzero(target == kind)
        if movers.size == 0:
            continue
        free = _free(kinds, machine, cores)
        at, used = 0, 0
        for i in movers:
            while at < kinds.size and (kinds[at] != kind or used >= free[at]):
                at, used = at + 1, 0
            if at == kinds.size:
                kinds = np.append(kinds, kind)
                free = np.append(free, cores[kind])
            machine[last[i]] = at
            used += 1
    machine, element = machine[kept], element[kept]
    empty = np.ones(kinds.size, np.bool_)
    empty[machine] = False
    return _without(kinds, machine, element, empty)


@numba.njit(cache=True, nogil=True)
def repack_machines(
    kinds, machine, element, cores, speeds, prices, by_power, forward, base, goal,
    order, pred_offsets, pred, outputs, cost, selectivity, external,
):  # fmt: skip
    """Pack poorly filled machines of each class anew, the rest on smaller ones; the cheapest (REPACK_FREE_VMS)."""
    size = base.size
    rank = np.empty(size, np.int64)
    rank[forward] = np.arange(size)
    ideal_in, ideal_out = np.zeros(size), np.zeros(size)
    ideal_rates(order, pred_offsets, pred, selectivity, external, ideal_in, ideal_out)
    backlog, inflow, processed = np.zeros(size), np.empty(size), np.empty(size)
    out, local = np.empty(size), np.empty(size)
    best = (kinds, machine, element)
    best_price = price_of(kinds, prices)
    work = best
    for at in range(by_power.size):
        kind = by_power[at]
        part = (work[0] == kind) & (_free(work[0], work[1], cores) > 0)
        items = work[2][part[work[1]]]
        items = items[np.argsort(rank[items], kind="mergesort")]
        kept = _without(work[0], work[1], work[2], part)
        full = items.size - items.size % cores[kind]
        kept = _with(kept[0], kept[1], kept[2], kind, items[:full], cores)
        rest = items[full:]
        for smaller in range(2):
            if smaller == 0:
                work = _with(kept[0], kept[1], kept[2], kind, rest, cores)
            elif at + 1 < by_power.size:
                less = by_power[at + 1]
                total = np.zeros(size)
                for i in rest:
                    total[i] += speeds[kind]
                instances = np.ceil(total / speeds[less] - SLACK).astype(np.int64)
                work = _with(kept[0], kept[1], kept[2], less, np.repeat(forward, instances[forward]), cores)
            else:
                break
            price = price_of(work[0], prices)
            if price < best_price - SLACK:
                power = power_of(work[0], work[1], work[2], speeds, base)
                omega = 0.0
                if power.min() > 0:
                    omega = estimate(
                        order, pred_offsets, pred, outputs, cost, selectivity, external, power, backlog, ideal_out,
                        inflow, processed, out, local,
                    )[0]  # fmt: skip
                if omega >= goal - SLACK:
                    best, best_price = work, price
    return best
