"""Messages through a dataflow, in numba: in each tick counts move in topological order, as far as they get."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def links(pred_offsets, pred, offsets, machine, speed, bandwidth, inside, capacity):
    """Of every edge the share of messages that stays inside a machine, and what its links carry together (Mbit/s)."""
    n = pred_offsets.size - 1
    total = np.zeros(n)
    for i in range(n):
        for a in range(offsets[i], offsets[i + 1]):
            total[i] += speed[a]
    for j in range(n):
        for e in range(pred_offsets[j], pred_offsets[j + 1]):
            i = pred[e]
            inside[e], capacity[e] = 0.0, 0.0
            if total[i] <= 0 or total[j] <= 0:
                continue
            for a in range(offsets[i], offsets[i + 1]):
                if speed[a] <= 0:
                    continue
                for b in range(offsets[j], offsets[j + 1]):
                    if speed[b] <= 0:
                        continue
                    if machine[a] == machine[b]:
                        inside[e] += speed[a] / total[i] * (speed[b] / total[j])
                    else:
                        capacity[e] += min(bandwidth[machine[a]], bandwidth[machine[b]])


@numba.njit(cache=True, nogil=True)
def spread(amount, low, high, speed, queue):
    """Give messages to the hosts of an element so that all of them would be done at the same time, as far as possible.

    Returns False, and does nothing, if no host works.
    """
    power, held, usable = 0.0, amount, 0
    for a in range(low, high):
        if speed[a] > 0:
            power += speed[a]
            held += queue[a]
            usable += 1
    if usable == 0:
        return False
    # Hosts that have more than the common level already get none; without them the level falls.
    level = held / power
    while True:
        power, held, fewer = 0.0, amount, 0
        for a in range(low, high):
            if speed[a] > 0 and queue[a] < level * speed[a]:
                power += speed[a]
                held += queue[a]
                fewer += 1
        if fewer in (0, usable):
            break
        usable = fewer
        level = held / power
    for a in range(low, high):
        if speed[a] > 0 and queue[a] < level * speed[a]:
            queue[a] = level * speed[a]
    return True


@numba.njit(cache=True, nogil=True)
def run_ticks(
    ticks, dt, delay, order, pred_offsets, pred, rates, arrivals, cost, selectivity, offsets, speed, paused,
    inside, capacity, queue, pending, buffer, flying, position, inflow, processed, out, area,
):  # fmt: skip
    """Move messages for some ticks of `dt` seconds; changes everything from `queue` on.

    Parameters
    ----------
    delay : int
        Ticks that a message travels between machines.
    arrivals : float64, shape (ticks, elements) or (0, elements)
        External messages of each tick; without rows they come evenly, at `rates`.
    queue : float64, shape (places,)
        Messages that wait on each host of each element.
    pending : float64, shape (elements,)
        Messages of elements none of whose hosts works.
    buffer : float64, shape (edges,)
        Messages that wait for a link.
    flying : float64, shape (edges, delay + 1)
        Messages on their way, a ring; `position` (one int64) is its present place.
    inflow, processed, out, area : float64, shape (elements,)
        Sums of messages; of messages that wait at the end of ticks, times seconds.
    """
    n = order.size
    sent = np.zeros(n)
    ring = delay + 1
    for tick in range(ticks):
        now = position[0]
        for i in order:
            came = arrivals[tick, i] if arrivals.shape[0] > 0 else rates[i] * dt
            inflow[i] += came
            waiting = 0.0
            for e in range(pred_offsets[i], pred_offsets[i + 1]):
                new = sent[pred[e]]
                inflow[i] += new
                near = new * inside[e]
                buffer[e] += new - near
                go = min(buffer[e], capacity[e] * dt)
                buffer[e] -= go
                flying[e, (now + delay) % ring] += go
                came += near + flying[e, now]
                flying[e, now] = 0.0
                waiting += buffer[e]
                for k in range(ring):
                    waiting += flying[e, k]
            came += pending[i]
            pending[i] = 0.0
            low, high = offsets[i], offsets[i + 1]
            if came > 0 and not spread(came, low, high, speed, queue):
                pending[i] = came
            done = 0.0
            for a in range(low, high):
                if not paused[i]:
                    work = min(queue[a], speed[a] / cost[i] * dt)
                    queue[a] -= work
                    done += work
                waiting += queue[a]
            processed[i] += done
            sent[i] = done * selectivity[i]
            out[i] += sent[i]
            area[i] += (waiting + pending[i]) * dt
        position[0] = (now + 1) % ring
