"""Single messages through operators with one queue each, in numba: services end in the order of their moments.

Operators have slots, one for each instance; a slot serves one message at a time. The heap holds the ends of services.
The fields of a run are records by operator (`ops`), by slot (`each`) and of one row (`run`): so many separate arrays
would take long to compile.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

#: What a slot may do: nothing (it is free to be given away), serve, or only finish its message.
UNUSED, READY, DRAINING = 0, 1, 2
#: Places in the table of noise between the first draws of two operators; prime, so that no two share a sequence.
STRIDE = 611_953
#: Seconds by which a duration may exceed a limit by rounding.
SLACK_S = 1e-9


@kernel
def _push(w, slot):
    """Put the end of a slot's service into the heap."""
    at = w.run["heap_size"][0]
    w.run["heap_size"][0] += 1
    moment = w.each["done"][slot]
    while at > 0:
        parent = (at - 1) // 2
        if w.each["done"][w.each["heap"][parent]] <= moment:
            break
        w.each["heap"][at] = w.each["heap"][parent]
        at = parent
    w.each["heap"][at] = slot


@kernel
def _pop(w):
    """Take the slot whose service ends first."""
    first = w.each["heap"][0]
    w.run["heap_size"][0] -= 1
    size = w.run["heap_size"][0]
    last = w.each["heap"][size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and w.each["done"][w.each["heap"][child + 1]] < w.each["done"][w.each["heap"][child]]:
            child += 1
        if w.each["done"][w.each["heap"][child]] >= w.each["done"][last]:
            break
        w.each["heap"][at] = w.each["heap"][child]
        at = child
    w.each["heap"][at] = last
    return first


@kernel
def _begin(w, slot, arrival, now):
    """Begin to serve a message; the nth of an operator draws the same noise in every run of a seed."""
    op = w.each["slot_op"][slot]
    last = w.noise.size - 1
    at = (2 * w.ops["begun"][op] + op * STRIDE) & last
    w.ops["begun"][op] += 1
    w.each["arrival"][slot] = arrival
    w.each["done"][slot] = now + w.ops["service"][op] * w.noise[at]
    w.each["messaging"][slot] = w.ops["other"][op] * w.noise[(at + 1) & last]
    w.each["busy"][slot] = 1
    w.ops["idle"][op] -= 1
    _push(w, slot)


@kernel
def _arrive(w, op, now):
    """Give a message to the instance that has been free for longest, or let it wait."""
    w.ops["entered"][op] += 1
    if w.ops["idle"][op] > 0:
        best = -1
        for a in range(w.ops["slots"][op]):
            slot = w.slot[op, a]
            if not w.each["busy"][slot] and (best < 0 or w.each["done"][slot] < w.each["done"][best]):
                best = slot
        _begin(w, best, now, now)
        return
    capacity = w.queue.shape[1]
    w.queue[op, (w.ops["head"][op] + w.ops["length"][op]) % capacity] = now
    w.ops["length"][op] += 1
    if w.ops["length"][op] == capacity:
        w.run["full"][0] = 1


@kernel
def _next(w, slot, now):
    """A slot that is free takes what waits longest."""
    op = w.each["slot_op"][slot]
    arrival = w.queue[op, w.ops["head"][op]]
    w.ops["head"][op] = (w.ops["head"][op] + 1) % w.queue.shape[1]
    w.ops["length"][op] -= 1
    _begin(w, slot, arrival, now)


@kernel
def _count(w, op, arrival, late, weight):
    """Count a message in its minute: how many there are, and how many missed each level."""
    minute = min(int(arrival / 60.0), w.seen.shape[0] - 1)
    w.seen[minute, op, 0] += weight
    for level in range(w.limits.size):
        if late > w.limits[level] * w.ops["objective"][op] + SLACK_S:
            w.seen[minute, op, 1 + level] += 1


@kernel
def _record(w, op, now, duration):
    """Take a sample, and note how long an operator took to be in time again."""
    window = w.recent.shape[1]
    for a in range(window - 1):
        w.recent[op, a] = w.recent[op, a + 1]
    w.recent[op, window - 1] = duration
    w.ops["sampled"][op] += 1
    w.ops["sampled_s"][op] = now
    if duration > w.limits[w.limits.size - 1] * w.ops["objective"][op]:
        w.ops["late_s"][op] = now
    elif duration <= w.ops["objective"][op] + SLACK_S and w.ops["late_s"][op] >= 0:
        w.run["adapting_s"][0] += now - w.ops["late_s"][op]
        w.run["adapted"][0] += 1
        w.ops["late_s"][op] = -1.0


@kernel
def advance(w, until):
    """Move messages until a moment (exclusive); False if a queue is full first, and must be enlarged."""
    while w.run["full"][0] == 0:
        at = w.run["cursor"][0]
        source = w.trace_s[at] if at < w.trace_s.size else np.inf
        served = w.each["done"][w.each["heap"][0]] if w.run["heap_size"][0] > 0 else np.inf
        if min(source, served) >= until:
            return True
        if source < served:
            w.run["cursor"][0] += 1
            _arrive(w, w.trace_op[at], source)
            continue
        slot = _pop(w)
        op = w.each["slot_op"][slot]
        w.each["busy"][slot] = 0
        w.ops["idle"][op] += 1
        w.ops["completed"][op] += 1
        duration = w.each["messaging"][slot] + served - w.each["arrival"][slot]
        _count(w, op, w.each["arrival"][slot], duration, 1)
        if w.ops["completed"][op] % w.sample_every == 0:
            _record(w, op, served, duration)
        if w.each["role"][slot] == DRAINING:
            w.each["role"][slot] = UNUSED
            w.ops["idle"][op] -= 1
        elif w.ops["length"][op] > 0:
            _next(w, slot, served)
        if w.ops["completed"][op] % w.ops["every"][op] == 0:
            for a in range(w.succ_offsets[op], w.succ_offsets[op + 1]):
                _arrive(w, w.succ[a], served)
    return False


@kernel
def add_slot(w, op, now):
    """An instance begins to serve; gives its slot, or -1 where there is none left."""
    for slot in range(w.each["role"].size):
        if w.each["role"][slot] == UNUSED:
            w.each["role"][slot] = READY
            w.each["slot_op"][slot] = op
            w.each["done"][slot] = now
            w.slot[op, w.ops["slots"][op]] = slot
            w.ops["slots"][op] += 1
            w.ops["idle"][op] += 1
            if w.ops["length"][op] > 0:
                _next(w, slot, now)
            return slot
    return -1


@kernel
def drain_slot(w, slot, now):
    """An instance takes no more messages; gives the moment at which it has finished its last."""
    op = w.each["slot_op"][slot]
    at = 0
    while w.slot[op, at] != slot:
        at += 1
    w.ops["slots"][op] -= 1
    for a in range(at, w.ops["slots"][op]):
        w.slot[op, a] = w.slot[op, a + 1]
    if w.each["busy"][slot]:
        w.each["role"][slot] = DRAINING
        return w.each["done"][slot]
    w.each["role"][slot] = UNUSED
    w.ops["idle"][op] -= 1
    return now


@kernel
def count_unfinished(w, now):
    """Count as delayed what is not finished, and older than a level allows; gives how many are not finished."""
    found = 0
    capacity = w.queue.shape[1]
    for op in range(w.ops["length"].size):
        for a in range(w.ops["length"][op]):
            arrival = w.queue[op, (w.ops["head"][op] + a) % capacity]
            _count(w, op, arrival, now - arrival, 0)
            found += 1
    for a in range(w.run["heap_size"][0]):
        slot = w.each["heap"][a]
        _count(w, w.each["slot_op"][slot], w.each["arrival"][slot], now - w.each["arrival"][slot], 0)
        found += 1
    return found
