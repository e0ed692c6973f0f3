"""Numba kernels of the rates through a dataflow: one pass over the PEs in topological order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel

SLACK = 1e-9


class FlowGraph(NamedTuple):
    """The edges of a dataflow.

    Attributes
    ----------
    order, position : int64, shape (elements,)
        The PEs in topological order, and the position of each PE in that order.
    pred_offsets, succ_offsets : int64, shape (elements + 1,)
    pred, succ : int64, shape (edges,)
        Predecessors of PE i are ``pred[pred_offsets[i]:pred_offsets[i + 1]]``, ascending; successors likewise.
    outputs : int64, shape (outputs,)
        PEs whose messages leave the dataflow.
    """

    order: NDArray[np.int64]
    position: NDArray[np.int64]
    pred_offsets: NDArray[np.int64]
    pred: NDArray[np.int64]
    succ_offsets: NDArray[np.int64]
    succ: NDArray[np.int64]
    outputs: NDArray[np.int64]


class Alternates(NamedTuple):
    """The alternates of all PEs.

    Attributes
    ----------
    offsets : int64, shape (elements + 1,)
        Alternates of PE i are rows ``offsets[i]`` to ``offsets[i + 1]``.
    cost, value, selectivity : float64, shape (alternates,)
    """

    offsets: NDArray[np.int64]
    cost: NDArray[np.float64]
    value: NDArray[np.float64]
    selectivity: NDArray[np.float64]


class ActiveFlow(NamedTuple):
    """A dataflow with its active alternates.

    Attributes
    ----------
    graph : FlowGraph
    cost, selectivity : float64, shape (elements,)
        Of the active alternate of each PE.
    """

    graph: FlowGraph
    cost: NDArray[np.float64]
    selectivity: NDArray[np.float64]


class Rates(NamedTuple):
    """Rates of the PEs of a dataflow; float64 arrays of shape (elements,).

    Attributes
    ----------
    local
        Share of its input and backlog that each PE processes.
    inflow, processed, out
        Messages per second.
    ideal_in, ideal_out
        Input and output with unlimited resources, messages per second.
    """

    local: NDArray[np.float64]
    inflow: NDArray[np.float64]
    processed: NDArray[np.float64]
    out: NDArray[np.float64]
    ideal_in: NDArray[np.float64]
    ideal_out: NDArray[np.float64]


@kernel(inner=True)
def empty_rates(n):
    """Allocate the rates of `n` PEs."""
    return Rates(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n))


@kernel
def ideal_rates(flow, external, ideal_in, ideal_out):
    """Fill the input and output of every PE with unlimited resources."""
    graph = flow.graph
    for i in graph.order:
        rate = external[i]
        for e in range(graph.pred_offsets[i], graph.pred_offsets[i + 1]):
            rate += ideal_out[graph.pred[e]]
        ideal_in[i] = rate
        ideal_out[i] = rate * flow.selectivity[i]


@kernel
def _serve(flow, i, rate, power, backlog, rates):
    """Fill the rates of PE i from its input and backlog."""
    total = rate + backlog[i]
    done = min(total, power[i] / flow.cost[i])
    rates.inflow[i] = rate
    rates.processed[i] = done
    rates.out[i] = done * flow.selectivity[i]
    rates.local[i] = done / total if total > 0 else 1.0


@kernel(inner=True)
def relative(graph, rates):
    """Return the mean over outputs of their shares of the ideal, each at most 1, and the overall share."""
    mean, sent, wanted = 0.0, 0.0, 0.0
    for i in graph.outputs:
        sent += rates.out[i]
        wanted += rates.ideal_out[i]
        mean += min(1.0, rates.out[i] / rates.ideal_out[i]) if rates.ideal_out[i] > 0 else 1.0
    return mean / graph.outputs.size, min(1.0, sent / wanted) if wanted > 0 else 1.0


@kernel(inner=True)
def estimate(flow, external, power, backlog, rates):
    """Fill all of `rates` except the ideal ones, which must be filled; return both relative throughputs (`relative`).

    `external` is the external input in messages per second, `power` the total speed of the cores of each PE, and
    `backlog` the queue of each PE, spread over the interval; all of shape (elements,).
    """
    graph = flow.graph
    for i in graph.order:
        rate = external[i]
        for e in range(graph.pred_offsets[i], graph.pred_offsets[i + 1]):
            rate += rates.out[graph.pred[e]]
        _serve(flow, i, rate, power, backlog, rates)
    return relative(graph, rates)


@kernel(inner=True)
def activated(graph, alternates, active):
    """The dataflow with these alternates, numbered from 0 within each PE."""
    flow = ActiveFlow(graph, np.empty(active.size), np.empty(active.size))
    for i in range(active.size):
        row = alternates.offsets[i] + active[i]
        flow.cost[i], flow.selectivity[i] = alternates.cost[row], alternates.selectivity[row]
    return flow


@kernel
def estimate_active(graph, alternates, active, external, power, backlog, table):
    """Fill all of `Rates`, as the rows of `table`, shape (6, elements); otherwise the same as `estimate`.

    Both throughputs are 0 if a PE has no core. One table halves the time of a call from Python: checking and passing an
    array costs more than the arithmetic on it.
    """
    flow = activated(graph, alternates, active)
    rates = Rates(table[0], table[1], table[2], table[3], table[4], table[5])
    ideal_rates(flow, external, rates.ideal_in, rates.ideal_out)
    mean, whole = estimate(flow, external, power, backlog, rates)
    for speed in power:
        if not speed > 0:
            return 0.0, 0.0
    return mean, whole


@kernel(inner=True)
def throughput(flow, external, power, backlog, rates):
    """Fill all of `rates`; return the mean relative throughput of the outputs, 0 if a PE has no core."""
    ideal_rates(flow, external, rates.ideal_in, rates.ideal_out)
    omega, _ = estimate(flow, external, power, backlog, rates)
    return omega if power.min() > 0.0 else 0.0


@kernel
def estimate_on_network(flow, external, power, backlog, hosts, message_bits, rates):
    """Estimate rates with edges between machines limited by their bandwidth (`flow.Hosts`)."""
    graph = flow.graph
    for i in graph.order:
        rate = external[i]
        for e in range(graph.pred_offsets[i], graph.pred_offsets[i + 1]):
            rate += carried(graph.pred[e], i, rates.out[graph.pred[e]], hosts, message_bits)
        _serve(flow, i, rate, power, backlog, rates)
    return relative(graph, rates)


@kernel
def carried(i, j, rate, hosts, message_bits):
    """Messages per second from PE i to PE j: unlimited on the same machine, else limited by the links."""
    inside, a, b = 0.0, hosts.offsets[i], hosts.offsets[j]
    while a < hosts.offsets[i + 1] and b < hosts.offsets[j + 1]:
        if hosts.vm[a] == hosts.vm[b]:
            inside += hosts.share[a] * hosts.share[b]
            a += 1
            b += 1
        elif hosts.vm[a] < hosts.vm[b]:
            a += 1
        else:
            b += 1
    away = rate * max(0.0, 1.0 - inside)
    if away <= 0:
        return rate
    needed, links = away * message_bits / 1e6, 0.0
    for a in range(hosts.offsets[i], hosts.offsets[i + 1]):
        if hosts.share[a] <= 0:
            continue
        for b in range(hosts.offsets[j], hosts.offsets[j + 1]):
            if hosts.vm[a] != hosts.vm[b] and hosts.share[b] > 0:
                here, there = hosts.vm[a], hosts.vm[b]
                route = hosts.between[hosts.site[here], hosts.site[there]]
                links += min(hosts.bandwidth[here], hosts.bandwidth[there], route)
                if links >= needed:
                    return rate
    return rate - away + links * 1e6 / message_bits


@kernel
def longest_path(graph, node, edge):
    """The longest path; `node`: length of each PE, `edge`: of each edge, in the order of ``graph.pred``."""
    length = np.zeros(node.size)
    longest = 0.0
    for i in graph.order:
        before = 0.0
        for at in range(graph.pred_offsets[i], graph.pred_offsets[i + 1]):
            before = max(before, length[graph.pred[at]] + edge[at])
        length[i] = before + node[i]
        longest = max(longest, length[i])
    return longest


@kernel
def narrow_edges(graph, sent, hosts, message_bits):
    """Find edges that carry less than the ideal output of their sender (`sent`).

    Edges that lead to no output do not count. Returns their number, and the sender and receiver of the edge that
    carries the least share of its messages; ties are broken by the lowest receiver, then the lowest sender.
    """
    leads = np.zeros(sent.size, np.bool_)
    for i in graph.outputs:
        leads[i] = True
    for at in range(sent.size - 1, -1, -1):
        j = graph.order[at]
        if leads[j]:
            for e in range(graph.pred_offsets[j], graph.pred_offsets[j + 1]):
                leads[graph.pred[e]] = True
    count, sender, receiver, least = 0, -1, -1, 1.0
    for j in range(sent.size):
        if not leads[j]:
            continue
        for e in range(graph.pred_offsets[j], graph.pred_offsets[j + 1]):
            i = graph.pred[e]
            if sent[i] <= 0:
                continue
            share = carried(i, j, sent[i], hosts, message_bits) / sent[i]
            if share < 1.0 - SLACK:
                count += 1
                if share < least - SLACK:
                    sender, receiver, least = i, j, share
    return count, sender, receiver
