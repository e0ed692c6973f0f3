"""Kernels of repacking: instances on machines as flat arrays, rewritten by plain loops."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK

#: Instances on the next smaller type that are tried: a type so slow is no saving.
MOST_INSTANCES = 1_000_000


@kernel
def _filled(machine, machines):
    """Used cores of each machine."""
    filled = np.zeros(machines, np.int64)
    for at in machine:
        filled[at] += 1
    return filled


@kernel
def move_last(packing, need, types, available, ascending):
    """Move, or drop, the last instance of every element with more power than it needs (REPACK_PE_INSTANCE).

    Parameters
    ----------
    packing : tuple of kinds, machine and element; see `repacking.Packing`
    need : float64, shape (elements,)
    types : TypeColumns
    available : bool, shape (types,)
    ascending : int64
        Types from the least powerful on, cheaper ones first among equals.

    Returns
    -------
    tuple of int64 arrays
        A packing.
    """
    kinds, machine, element = packing
    size, known = need.size, kinds.size
    power, count, last = np.zeros(size), np.zeros(size, np.int64), np.zeros(size, np.int64)
    for i in range(element.size):
        power[element[i]] += types.speeds[kinds[machine[i]]]
        count[element[i]] += 1
        last[element[i]] = i
    target = np.full(size, -1, np.int64)
    keep = np.ones(element.size, np.bool_)
    for e in range(size):
        if count[e] == 0 or power[e] - need[e] <= SLACK:
            continue
        speed = types.speeds[kinds[machine[last[e]]]]
        rest = need[e] - (power[e] - speed)
        if rest <= SLACK and count[e] > 1:
            keep[last[e]] = False
            continue
        for kind in ascending:
            if available[kind] and rest - SLACK <= types.speeds[kind] < speed - SLACK:
                target[e] = kind
                break
    # At most one new machine for each element.
    all_kinds, place = np.empty(known + size, np.int64), machine.copy()
    all_kinds[:known] = kinds
    filled = _filled(machine, known + size)
    machines = known
    for kind in range(types.cores.size):
        at = 0
        for e in range(size):
            if target[e] != kind:
                continue
            while at < machines and (all_kinds[at] != kind or filled[at] >= types.cores[kind]):
                at += 1
            if at == machines:
                all_kinds[at] = kind
                machines += 1
            filled[place[last[e]]] -= 1
            filled[at] += 1
            place[last[e]] = at
    return _compact(all_kinds[:machines], place, element, keep)


@kernel
def _compact(kinds, machine, element, keep):
    """The instances to keep, on the machines that run any of them."""
    renamed, instances = np.zeros(kinds.size, np.int64), 0
    for i in range(machine.size):
        if keep[i]:
            renamed[machine[i]] = 1
            instances += 1
    machines = 0
    for m in range(kinds.size):
        used = renamed[m]
        renamed[m] = machines
        machines += used
    left, place, what = np.empty(machines, np.int64), np.empty(instances, np.int64), np.empty(instances, np.int64)
    at = 0
    for i in range(machine.size):
        if keep[i]:
            place[at], what[at] = renamed[machine[i]], element[i]
            left[place[at]] = kinds[machine[i]]
            at += 1
    return left, place, what


@kernel
def repack(packing, types, by_power, forward, last):
    """Pack poorly filled machines of each type anew, and the rest on smaller ones (REPACK_FREE_VMS, §3.3).

    Two candidates a type: all of its instances on such machines again; only as many as fill them, and the rest on the
    next smaller type. Each candidate starts from the one before, so the packing of any of them is that of a shorter
    call.

    Parameters
    ----------
    packing : tuple of kinds, machine and element; see `repacking.Packing`
    types : TypeColumns
    by_power : int64
        Types from the most powerful on.
    forward : int64, shape (elements,)
        Instances are packed in this order.
    last : int
        Number of the last candidate.

    Returns
    -------
    packing : tuple of int64 arrays
        Of the last candidate.
    prices : float64, shape (candidates,)
        Of all machines, an hour.
    powers : float64, shape (candidates, elements)
        Speed of all cores of each element together.
    """
    size, tried = forward.size, 0
    prices, powers = np.zeros(2 * by_power.size), np.zeros((2 * by_power.size, size))
    for turn in range(by_power.size):
        kind, smaller = by_power[turn], by_power[min(turn + 1, by_power.size - 1)]
        renamed, left, again = _emptied(packing, kind, types.cores[kind], size)
        if left == packing[0].size:
            continue
        rest, total = again.sum() % types.cores[kind], 0.0
        full, less = again.copy(), np.zeros(size, np.int64)
        for e in forward[::-1]:
            moved = min(rest, again[e])
            rest -= moved
            full[e] -= moved
            wanted = np.ceil(moved * types.speeds[kind] / types.speeds[smaller] - SLACK)
            total += wanted
            if total > MOST_INSTANCES:
                return packing, prices[:tried], powers[:tried]
            less[e] = np.int64(wanted)
        before, none = packing, np.zeros(size, np.int64)
        for groups in (((kind, again), (smaller, none)), ((kind, full), (smaller, less))):
            if tried > last or (tried % 2 and kind == smaller):
                break
            packing = _refilled(before, renamed, left, groups, forward, types.cores)
            for m in packing[0]:
                prices[tried] += types.prices[m]
            for i in range(packing[1].size):
                powers[tried, packing[2][i]] += types.speeds[packing[0][packing[1][i]]]
            tried += 1
    return packing, prices[:tried], powers[:tried]


@kernel
def _emptied(packing, kind, cores, size):
    """Number the machines again without those of a type that have free cores (-1); count what these run by element."""
    kinds, machine, element = packing
    filled, renamed, left = _filled(machine, kinds.size), np.full(kinds.size, -1, np.int64), 0
    for m in range(kinds.size):
        if kinds[m] != kind or filled[m] >= cores:
            renamed[m] = left
            left += 1
    again = np.zeros(size, np.int64)
    for i in range(machine.size):
        if renamed[machine[i]] < 0:
            again[element[i]] += 1
    return renamed, left, again


@kernel
def _refilled(packing, renamed, left, groups, forward, cores):
    """A packing without the machines that are emptied, and groups of instances on new machines of their types."""
    kinds, machine, element = packing
    machines, first = left, left
    instances = (renamed[machine] >= 0).sum()
    for kind, counts in groups:
        machines += -(-counts.sum() // cores[kind])
        instances += counts.sum()
    new, place, what = np.empty(machines, np.int64), np.empty(instances, np.int64), np.empty(instances, np.int64)
    at = 0
    for m in range(kinds.size):
        if renamed[m] >= 0:
            new[renamed[m]] = kinds[m]
    for i in range(machine.size):
        if renamed[machine[i]] >= 0:
            place[at], what[at] = renamed[machine[i]], element[i]
            at += 1
    for kind, counts in groups:
        begin = at
        for e in forward:
            for _ in range(counts[e]):
                place[at], what[at] = first + (at - begin) // cores[kind], e
                at += 1
        machines = -(-(at - begin) // cores[kind])
        new[first : first + machines] = kind
        first += machines
    return new, place, what
