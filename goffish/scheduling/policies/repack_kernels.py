"""Numba kernels of repacking: instances on machines as flat arrays, rewritten by plain loops.

A packing is a tuple of the arrays of `repacking.Packing`, and types are a `TypeColumns`. Callers allocate memory where
possible, as every NumPy function takes longer to compile than ten loops.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK

#: Maximum number of instances tried on the next smaller type: a slower type saves nothing.
MOST_INSTANCES = 1_000_000


@kernel
def move_last(packing, need, types, available, ascending, memory, kinds):
    """Move, or drop, the last instance of every PE with more power than it requires (REPACK_PE_INSTANCE).

    Parameters
    ----------
    packing : tuple
        Its `place` is changed; a dropped instance is on machine -1.
    need : float64, shape (elements,)
    available : bool, shape (types,)
    ascending : int64
        Types from the least powerful on, cheaper ones first among equals.
    memory : zeros; power, float64, and count, last and target, int64, shape (elements,);
        used, int64, shape (machines + elements,)
    kinds : int64, shape (machines + elements,)
        Starts with those of the packing; receives the types of new machines.

    Returns
    -------
    int
        Number of machines, empty ones included.
    """
    known, place, element = packing
    power, count, last, target, used = memory
    for i in range(element.size):
        power[element[i]] += types.speeds[kinds[place[i]]]
        count[element[i]] += 1
        last[element[i]] = i
        used[place[i]] += 1
    for e in range(need.size):
        target[e] = -1
        if count[e] == 0 or power[e] - need[e] <= SLACK:
            continue
        speed = types.speeds[kinds[place[last[e]]]]
        rest = need[e] - (power[e] - speed)
        if rest <= SLACK and count[e] > 1:
            place[last[e]] = -1
            continue
        for kind in ascending:
            if available[kind] and rest - SLACK <= types.speeds[kind] < speed - SLACK:
                target[e] = kind
                break
    machines = known.size
    for kind in range(types.cores.size):
        at = 0
        for e in range(need.size):
            if target[e] != kind:
                continue
            while at < machines and (kinds[at] != kind or used[at] >= types.cores[kind]):
                at += 1
            if at == machines:
                kinds[at] = kind
                machines += 1
            used[place[last[e]]] -= 1
            used[at] += 1
            place[last[e]] = at
    return machines


@kernel
def repack(packing, types, by_power, forward, last, prices, powers):
    """Repack poorly filled machines of each type, and the rest on smaller ones (REPACK_FREE_VMS).

    See docs/specs/provisioning.md, section 3.3.

    Two candidates per type: all of its instances on such machines again; or only as many as fill them, and the rest on
    the next smaller type. Each type starts from the previous candidate.

    Parameters
    ----------
    by_power : int64
        Types from the most powerful on.
    forward : int64, shape (elements,)
        Instances are packed in this order.
    last : int
        Number of the last candidate.
    prices : float64, shape (candidates,)
        Receives the price of all machines of each candidate; 0 before.
    powers : float64, shape (candidates, elements)
        Receives the speed of all cores of each PE together; 0 before.

    Returns
    -------
    tuple of int64 arrays
        Packing of the last candidate.
    int
        Number of candidates.
    """
    tried = 0
    for turn in range(by_power.size):
        kind, smaller = by_power[turn], by_power[min(turn + 1, by_power.size - 1)]
        cores = types.cores[kind]
        renamed, left, again = _emptied(packing, kind, cores, forward.size)
        if left == packing[0].size:
            continue
        rest, total = 0, 0.0
        for count in again:
            rest += count
        rest %= cores
        counts = np.zeros((2, 2, forward.size), np.int64)
        for at in range(forward.size - 1, -1, -1):
            e = forward[at]
            moved = min(rest, again[e])
            rest -= moved
            wanted = np.ceil(moved * types.speeds[kind] / types.speeds[smaller] - SLACK)
            total += wanted
            if total > MOST_INSTANCES:
                return packing, tried
            counts[0, 0, e], counts[1, 0, e], counts[1, 1, e] = again[e], again[e] - moved, np.int64(wanted)
        before = packing
        for candidate in range(1 if kind == smaller else 2):
            if tried > last:
                return packing, tried
            packing = _refilled(before, renamed, left, (kind, smaller), counts[candidate], forward, types.cores)
            for m in packing[0]:
                prices[tried] += types.prices[m]
            for i in range(packing[1].size):
                powers[tried, packing[2][i]] += types.speeds[packing[0][packing[1][i]]]
            tried += 1
    return packing, tried


@kernel
def _emptied(packing, kind, cores, size):
    """Renumber the machines without those of a type that have free cores (-1); count their instances by PE."""
    kinds, machine, element = packing
    renamed, again, left = np.zeros(kinds.size, np.int64), np.zeros(size, np.int64), 0
    for at in machine:
        renamed[at] += 1
    for m in range(kinds.size):
        if kinds[m] != kind or renamed[m] >= cores:
            renamed[m] = left
            left += 1
        else:
            renamed[m] = -1
    for i in range(machine.size):
        if renamed[machine[i]] < 0:
            again[element[i]] += 1
    return renamed, left, again


@kernel
def _refilled(packing, renamed, left, new_kinds, counts, forward, cores):
    """Return a packing without the emptied machines, and with these instances of each PE on new machines."""
    kinds, machine, element = packing
    machines, instances = left, 0
    for i in range(machine.size):
        instances += renamed[machine[i]] >= 0
    for group in range(2):
        added = 0
        for count in counts[group]:
            added += count
        machines += -(-added // cores[new_kinds[group]])
        instances += added
    new_kind, place, what = (
        np.zeros(machines, np.int64), np.zeros(instances, np.int64), np.zeros(instances, np.int64),
    )  # fmt: skip
    for m in range(kinds.size):
        if renamed[m] >= 0:
            new_kind[renamed[m]] = kinds[m]
    at = 0
    for i in range(machine.size):
        if renamed[machine[i]] >= 0:
            place[at], what[at] = renamed[machine[i]], element[i]
            at += 1
    for group in range(2):
        kind, begin, first = new_kinds[group], at, left
        for e in forward:
            for _ in range(counts[group, e]):
                place[at], what[at] = first + (at - begin) // cores[kind], e
                new_kind[place[at]] = kind
                at += 1
        left += -(-(at - begin) // cores[kind])
    return new_kind, place, what
