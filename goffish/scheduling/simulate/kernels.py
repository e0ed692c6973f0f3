"""Numba kernels of message transfer: in each tick, counts move in topological order as far as possible."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel


class Links(NamedTuple):
    """Capacities of the edges of a dataflow; arrays of shape (edges,), in the order of ``graph.pred``.

    Attributes
    ----------
    inside : float64
        Share of the messages that stays on the same machine.
    capacity : float64
        Total capacity of the links between machines, messages per second.
    ticks : int64
        Transfer time of the other messages, in ticks.
    """

    inside: NDArray[np.float64]
    capacity: NDArray[np.float64]
    ticks: NDArray[np.int64]


class Waiting(NamedTuple):
    """Queued and travelling messages.

    Attributes
    ----------
    queue : float64, shape (places,)
        Messages queued on each host of each PE.
    pending : float64, shape (elements,)
        Messages for PEs without a working host.
    buffer : float64, shape (edges,)
        Messages queued for a link.
    flying : float64, shape (edges, ring)
        Messages between machines, by the tick of their arrival: a ring buffer, one longer than the longest transfer.
    position : int64, shape (1,)
        Current position in the ring buffer.
    """

    queue: NDArray[np.float64]
    pending: NDArray[np.float64]
    buffer: NDArray[np.float64]
    flying: NDArray[np.float64]
    position: NDArray[np.int64]


class Sums(NamedTuple):
    """Sums of the PEs since the last reset; float64 arrays of shape (elements,).

    Attributes
    ----------
    inflow, processed, out
        Messages.
    area
        Messages queued at the end of ticks, times seconds.
    flying
        The part of `area` that is between machines.
    """

    inflow: NDArray[np.float64]
    processed: NDArray[np.float64]
    out: NDArray[np.float64]
    area: NDArray[np.float64]
    flying: NDArray[np.float64]


@kernel
def fill_links(graph, hosts, message_bits, links):
    """Fill the capacities of all edges; the shares of `hosts` are speeds."""
    inside, capacity = links.inside, links.capacity
    offsets, machine, speed, bandwidth = hosts.offsets, hosts.vm, hosts.share, hosts.bandwidth
    n = graph.order.size
    total = np.zeros(n)
    for i in range(n):
        for a in range(offsets[i], offsets[i + 1]):
            total[i] += speed[a]
    for j in range(n):
        for e in range(graph.pred_offsets[j], graph.pred_offsets[j + 1]):
            i = graph.pred[e]
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
                        route = hosts.between[hosts.site[machine[a]], hosts.site[machine[b]]]
                        capacity[e] += min(bandwidth[machine[a]], bandwidth[machine[b]], route)
            capacity[e] *= 1e6 / message_bits


@kernel
def spread(amount, low, high, speed, queue):
    """Distribute messages over the hosts of a PE so that all hosts finish at the same time, as far as possible.

    Return False, without changes, if no host works.
    """
    power, held, usable = 0.0, amount, 0
    for a in range(low, high):
        if speed[a] > 0:
            power += speed[a]
            held += queue[a]
            usable += 1
    if usable == 0:
        return False
    # Hosts above the common level receive nothing; without them the level falls.
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


@kernel
def run_ticks(ticks, dt, flow, rates, arrivals, offsets, speed, paused, links, waiting, sums):
    """Move messages for a number of ticks of `dt` seconds; changes `waiting`, and adds to `sums`.

    Parameters
    ----------
    flow : ActiveFlow
    rates : float64, shape (elements,)
        External messages per second.
    arrivals : float64, shape (ticks, elements) or (0, PEs)
        External messages of each tick; without rows, messages arrive evenly at `rates`.
    offsets : int64, shape (elements + 1,)
        Places of PE i are ``offsets[i]`` to ``offsets[i + 1]``.
    speed : float64, shape (places,)
    paused : bool, shape (elements,)
    links : Links
    waiting : Waiting
    sums : Sums
    """
    graph = flow.graph
    queue, pending, buffer, flying, position = waiting
    sent = np.zeros(graph.order.size)
    ring = flying.shape[1]
    for tick in range(ticks):
        now = position[0]
        for i in graph.order:
            came = arrivals[tick, i] if arrivals.shape[0] > 0 else rates[i] * dt
            sums.inflow[i] += came
            waiting, between = 0.0, 0.0
            for e in range(graph.pred_offsets[i], graph.pred_offsets[i + 1]):
                new = sent[graph.pred[e]]
                sums.inflow[i] += new
                near = new * links.inside[e]
                buffer[e] += new - near
                go = min(buffer[e], links.capacity[e] * dt)
                buffer[e] -= go
                flying[e, (now + links.ticks[e]) % ring] += go
                came += near + flying[e, now]
                flying[e, now] = 0.0
                waiting += buffer[e]
                for k in range(ring):
                    waiting += flying[e, k]
                    between += flying[e, k]
            came += pending[i]
            pending[i] = 0.0
            low, high = offsets[i], offsets[i + 1]
            if came > 0 and not spread(came, low, high, speed, queue):
                pending[i] = came
            done = 0.0
            for a in range(low, high):
                if not paused[i]:
                    work = min(queue[a], speed[a] / flow.cost[i] * dt)
                    queue[a] -= work
                    done += work
                waiting += queue[a]
            sums.processed[i] += done
            sent[i] = done * flow.selectivity[i]
            sums.out[i] += sent[i]
            sums.area[i] += (waiting + pending[i]) * dt
            sums.flying[i] += between * dt
        position[0] = (now + 1) % ring
