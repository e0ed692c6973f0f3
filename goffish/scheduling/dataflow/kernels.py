"""Rates through a dataflow, in numba: one pass over the elements in topological order."""

from __future__ import annotations

import numba
import numpy as np

SLACK = 1e-9


@numba.njit(cache=True, nogil=True)
def ideal_rates(order, pred_offsets, pred, selectivity, external, ideal_in, ideal_out):
    """Input and output of every element under unlimited resources."""
    for i in order:
        rate = external[i]
        for e in range(pred_offsets[i], pred_offsets[i + 1]):
            rate += ideal_out[pred[e]]
        ideal_in[i] = rate
        ideal_out[i] = rate * selectivity[i]


@numba.njit(cache=True, nogil=True)
def _serve(i, rate, cost, selectivity, power, backlog, inflow, processed, out, local):
    """What element i does with what comes in and what waits."""
    total = rate + backlog[i]
    done = min(total, power[i] / cost[i])
    inflow[i] = rate
    processed[i] = done
    out[i] = done * selectivity[i]
    local[i] = done / total if total > 0 else 1.0


@numba.njit(cache=True, nogil=True)
def _relative(outputs, out, ideal_out):
    """Mean over outputs of their shares of the ideal, each at most 1, and the share of all of them together."""
    mean, sent, wanted = 0.0, 0.0, 0.0
    for i in outputs:
        sent += out[i]
        wanted += ideal_out[i]
        mean += min(1.0, out[i] / ideal_out[i]) if ideal_out[i] > 0 else 1.0
    return mean / outputs.size, min(1.0, sent / wanted) if wanted > 0 else 1.0


@numba.njit(cache=True, nogil=True)
def estimate(
    order, pred_offsets, pred, outputs, cost, selectivity, external, power, backlog, ideal_out,
    inflow, processed, out, local,
):  # fmt: skip
    """Fills the last four (messages per second, and the share of its input that each element keeps up with).

    `backlog` is that of each element, spread over the interval. Returns the relative throughput: the mean over outputs,
    each at most 1, and the sum of outputs over the sum of ideal ones.
    """
    for i in order:
        rate = external[i]
        for e in range(pred_offsets[i], pred_offsets[i + 1]):
            rate += out[pred[e]]
        _serve(i, rate, cost, selectivity, power, backlog, inflow, processed, out, local)
    return _relative(outputs, out, ideal_out)


@numba.njit(cache=True, nogil=True)
def estimate_on_network(
    order, pred_offsets, pred, outputs, cost, selectivity, external, power, backlog, ideal_out,
    host_offsets, host_vm, host_share, bandwidth, message_bits, inflow, processed, out, local,
):  # fmt: skip
    """The same where edges between machines carry no more than their bandwidth (Mbit/s of each machine).

    Hosts of an element: ``host_vm[host_offsets[i]:host_offsets[i + 1]]``, ascending, with their shares of its speed.
    """
    for i in order:
        rate = external[i]
        for e in range(pred_offsets[i], pred_offsets[i + 1]):
            rate += carried(pred[e], i, out[pred[e]], host_offsets, host_vm, host_share, bandwidth, message_bits)
        _serve(i, rate, cost, selectivity, power, backlog, inflow, processed, out, local)
    return _relative(outputs, out, ideal_out)


@numba.njit(cache=True, nogil=True)
def carried(i, j, rate, host_offsets, host_vm, host_share, bandwidth, message_bits):
    """Messages per second that get from element i to element j: all inside a machine, else what the links carry."""
    inside, a, b = 0.0, host_offsets[i], host_offsets[j]
    while a < host_offsets[i + 1] and b < host_offsets[j + 1]:
        if host_vm[a] == host_vm[b]:
            inside += host_share[a] * host_share[b]
            a += 1
            b += 1
        elif host_vm[a] < host_vm[b]:
            a += 1
        else:
            b += 1
    away = rate * max(0.0, 1.0 - inside)
    if away <= 0:
        return rate
    needed, links = away * message_bits / 1e6, 0.0
    for a in range(host_offsets[i], host_offsets[i + 1]):
        if host_share[a] <= 0:
            continue
        for b in range(host_offsets[j], host_offsets[j + 1]):
            if host_vm[a] != host_vm[b] and host_share[b] > 0:
                links += min(bandwidth[host_vm[a]], bandwidth[host_vm[b]])
                if links >= needed:
                    return rate
    return rate - away + links * 1e6 / message_bits


@numba.njit(cache=True, nogil=True)
def add_bottlenecks(
    order, pred_offsets, pred, outputs, cost, selectivity, external, ideal_out, speed, target, most,
    power, counts, chosen,
):  # fmt: skip
    """Give cores of `speed` to the worst element, one after the other, until the relative throughput is `target`.

    Every element has one to begin with. Adds to `power` and `counts`, fills `chosen`; returns how many were given, and
    the throughput; less than `target` if `most` were given or no element is short of power.
    """
    n = order.size
    inflow, processed, out, local = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    none = np.zeros(n)
    given = 0
    while True:
        omega, _ = estimate(
            order, pred_offsets, pred, outputs, cost, selectivity, external, power, none, ideal_out,
            inflow, processed, out, local,
        )  # fmt: skip
        if omega >= target - SLACK or given == most:
            return given, omega
        worst = 0
        for i in range(1, n):
            if local[i] < local[worst] - SLACK:
                worst = i
        if local[worst] >= 1.0 - SLACK:
            return given, omega
        power[worst] += speed
        counts[worst] += 1
        chosen[given] = worst
        given += 1


@numba.njit(cache=True, nogil=True)
def longest_path(order, pred_offsets, pred, node, edge):
    """The longest path; `node`: length of each element, `edge`: of each edge, in the order of `pred`."""
    length = np.zeros(node.size)
    longest = 0.0
    for i in order:
        before = 0.0
        for at in range(pred_offsets[i], pred_offsets[i + 1]):
            before = max(before, length[pred[at]] + edge[at])
        length[i] = before + node[i]
        longest = max(longest, length[i])
    return longest
