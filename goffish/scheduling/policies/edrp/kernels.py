"""Numba kernels of placement metrics: downtime of a change, delay and price of a stream, and response time."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from goffish.kernels.compile import kernel

#: The problem as arrays; bits, seconds, bits per second. Edge arrays are in the order of `pred`.
#: Arrays of a kind are stacked as rows, as every further array takes seconds of compilation.
Model = namedtuple(
    "Model",
    "order pred_offsets pred targets out_offsets out_edges most edge_rates table missing allowed current "
    "elements hosts pairs scalars scale bounds literal storm known",
)
UNIT_PRICE, CORES, MEMORY, STATE, CODE, RESTART = range(6)
HOST_PRICE, NODE_LOG, ROOM_CORES, ROOM_MEMORY, TO_S, FROM_S, UP_BPS, DOWN_BPS, START, OCCUPIED = range(10)
DELAY, TRAFFIC, LINK_LOG = range(3)
LOCAL_BPS, SYNC_S, ALL_CODE = range(3)
#: Metrics that `refresh` maintains: for each PE its latency (if it cannot keep up, the shortfall as a negative
#: number), the logarithm of its availability and its downtime; for each edge its delay, price and availability.
LATENCY, LOG, DOWN = range(3)
EDGE_DELAY, PAID, EDGE_LOG = range(3)
#: Weight of a violated bound relative to any objective.
PENALTY = 1000.0


@kernel(inner=True)
def total(row):
    """Sum in a plain loop: NumPy's sums compile for longer than they run here."""
    found = 0
    for u in range(row.size):
        found += row[u]
    return found


@kernel
def _transfer(hosts, bits, v, bandwidth, literal):
    """Seconds of a transfer to or from the store, by the bandwidth in that row."""
    return 0.0 if bits == 0.0 and not literal else hosts[TO_S, v] + bits / hosts[bandwidth, v] + hosts[FROM_S, v]


@kernel
def upload_share(before, after, old, new, literal):
    """Share of the state that leaves a host with these numbers of replicas before and after (Eq. 31)."""
    share = max(before - after, 0) / old
    if new > old:
        share += (before if literal else min(before, after)) * (new - old) / (old * new)
    return share


@kernel
def download_share(before, after, old, new):
    """Eq. 32."""
    share = max(after - before, 0) / new
    if new < old:
        share += min(before, after) * (old - new) / (old * new)
    return share


@kernel(inner=True)
def general_downtime(m, i, before, after):
    """Eq. 25 to 32, of PE i."""
    hosts, old, new, same = before.size, 0, 0, True
    for u in range(hosts):
        old += before[u]
        new += after[u]
        same = same and before[u] == after[u]
    if same:
        return 0.0
    state, worst = m.elements[STATE, i], 0.0
    for v in range(hosts):
        if after[v] == 0:
            continue
        share = download_share(before[v], after[v], old, new)
        down = _transfer(m.hosts, state * share, v, DOWN_BPS, m.literal)
        code = 0.0
        if before[v] == 0:
            code = _transfer(m.hosts, m.elements[CODE, i], v, DOWN_BPS, m.literal)
        begin = m.hosts[START, v] if after[v] > before[v] else 0.0
        if not m.literal:
            worst = max(worst, begin)
        if old == 0:
            # No replica remains: its code and the stored state are fetched.
            worst = max(worst, code + down + begin)
        for u in range(hosts):
            if before[u] == 0 or u == v:
                continue
            share = upload_share(before[u], after[u], old, new, m.literal)
            up = _transfer(m.hosts, state * share, u, UP_BPS, m.literal)
            worst = max(worst, max(code, up) + down + begin)
    return m.scalars[SYNC_S] + worst


@kernel(inner=True)
def storm_downtime(m, i, before, after):
    """Eq. 34 to 38, of PE i; without the restart in place."""
    hosts, old, new, same, pair = before.size, 0, 0, True, False
    for u in range(hosts):
        old += before[u]
        new += after[u]
        same = same and before[u] == after[u]
    if same:
        return 0.0
    state, every, worst = m.elements[STATE, i], m.scalars[ALL_CODE], 0.0
    for v in range(hosts):
        if after[v] == 0:
            continue
        down = _transfer(m.hosts, state * after[v] / new, v, DOWN_BPS, m.literal)
        code = 0.0 if m.hosts[OCCUPIED, v] > 0.0 else _transfer(m.hosts, every, v, DOWN_BPS, m.literal)
        begin = after[v] * m.hosts[START, v]
        if old == 0:
            worst = max(worst, code + down + begin)
        for u in range(hosts):
            if before[u] == 0 or u == v:
                continue
            pair = True
            up = _transfer(m.hosts, state * before[u] / old, u, UP_BPS, m.literal)
            worst = max(worst, code + up + down + begin)
    if not pair and old > 0 and not m.literal:
        for v in range(hosts):
            if after[v] > 0:
                local = state * (before[v] / old + after[v] / new) / m.scalars[LOCAL_BPS]
                worst = max(worst, local + after[v] * m.hosts[START, v])
    return m.scalars[SYNC_S] + worst


@kernel
def restart_downtime(m, i, before):
    """Eq. 39 and 40: PE i is saved, restarted and restored in place."""
    size, worst = total(before), 0.0
    for u in range(before.size):
        if before[u] > 0:
            worst = max(
                worst,
                2.0 * m.elements[STATE, i] * before[u] / size / m.scalars[LOCAL_BPS] + before[u] * m.hosts[START, u],
            )
    return m.scalars[SYNC_S] + worst


@kernel
def element_downtime(m, i, after):
    """Downtime of PE i from the current placement; 0 if there is none."""
    if not m.known:
        return 0.0
    if m.storm:
        return storm_downtime(m, i, m.current[i], after)
    return general_downtime(m, i, m.current[i], after)


@kernel
def element_downtimes(m, i, candidates):
    found = np.empty(len(candidates))
    for at in range(len(candidates)):
        found[at] = element_downtime(m, i, candidates[at])
    return found


@kernel(inner=True)
def stream_delay(delays, first, second):
    """Eq. 3."""
    worst = 0.0
    for u in range(first.size):
        if first[u] > 0:
            for v in range(second.size):
                if second[v] > 0 and delays[u, v] > worst:
                    worst = delays[u, v]
    return worst


@kernel
def stream_delays(delays, first, second):
    """Eq. 3 of all pairs of candidates, shape (first, second)."""
    found = np.empty((len(first), len(second)))
    reach = np.empty(delays.shape[0])
    for a in range(len(first)):
        for v in range(reach.size):
            reach[v] = 0.0
            for u in range(reach.size):
                if first[a, u] > 0 and delays[u, v] > reach[v]:
                    reach[v] = delays[u, v]
        for b in range(len(second)):
            worst = 0.0
            for v in range(reach.size):
                if second[b, v] > 0 and reach[v] > worst:
                    worst = reach[v]
            found[a, b] = worst
    return found


@kernel(inner=True)
def stream_price(traffic, rate, first, second):
    """Eq. 4, over pairs of replicas."""
    found = 0.0
    for u in range(first.size):
        if first[u] > 0:
            for v in range(second.size):
                if second[v] > 0:
                    found += first[u] * second[v] * traffic[u, v]
    return found * rate / (total(first) * total(second))


@kernel(inner=True)
def refresh(m, counts, i, nodes, edges):
    """Update the metrics that depend on the placement of PE i."""
    row = counts[i]
    size = total(row)
    latency, missing, log = 0.0, 0.0, 0.0
    for u in range(row.size):
        if row[u] > 0:
            latency = max(latency, m.table[i, min(size, m.table.shape[1] - 1), u])
            if latency == np.inf:
                missing = max(missing, 1.0, m.missing[i, u] - size)
            log += m.hosts[NODE_LOG, u]
    nodes[LATENCY, i] = -missing if missing > 0 else latency
    nodes[LOG, i] = log
    nodes[DOWN, i] = element_downtime(m, i, row)
    into, out = m.pred_offsets[i + 1] - m.pred_offsets[i], m.out_offsets[i + 1] - m.out_offsets[i]
    for k in range(into + out):
        at = m.pred_offsets[i] + k if k < into else m.out_edges[m.out_offsets[i] + k - into]
        _refresh_edge(m.pairs, m.edge_rates[at], counts[m.pred[at]], counts[m.targets[at]], edges[:, at])


@kernel
def _refresh_edge(between, rate, first, second, edge):
    edge[:] = 0.0
    if total(first) == 0 or total(second) == 0:
        return
    edge[EDGE_DELAY] = stream_delay(between[DELAY], first, second)
    edge[PAID] = stream_price(between[TRAFFIC], rate, first, second)
    for u in range(first.size):
        if first[u] > 0:
            for v in range(second.size):
                if second[v] > 0 and u != v:
                    edge[EDGE_LOG] += between[LINK_LOG, u, v]


@kernel(inner=True)
def figures(m, counts, nodes, edges):
    """Response time, price, downtime, logarithm of the availability, and the shortfall of PEs that cannot keep up."""
    size = len(counts)
    length = np.zeros(size)
    response, missing, price, downtime = 0.0, 0.0, 0.0, 0.0
    for i in m.order:
        before = 0.0
        for at in range(m.pred_offsets[i], m.pred_offsets[i + 1]):
            before = max(before, length[m.pred[at]] + edges[EDGE_DELAY, at])
        missing -= min(nodes[LATENCY, i], 0.0)
        length[i] = before + max(nodes[LATENCY, i], 0.0)
        response = max(response, length[i])
        price += total(counts[i]) * m.elements[UNIT_PRICE, i]
        downtime = max(downtime, nodes[DOWN, i])
    changed = False
    for i in range(size):
        for u in range(counts.shape[1]):
            changed = changed or counts[i, u] != m.current[i, u]
    if m.storm and m.known and changed:
        for i in range(size):
            downtime = max(downtime, m.elements[RESTART, i])
    for u in range(m.hosts[HOST_PRICE].size):
        if m.hosts[HOST_PRICE, u] != 0.0:
            for i in range(size):
                if counts[i, u] > 0:
                    price += m.hosts[HOST_PRICE, u]
                    break
    log = 0.0
    for i in range(size):
        log += nodes[LOG, i]
    for at in range(edges.shape[1]):
        price += edges[PAID, at]
        log += edges[EDGE_LOG, at]
    return response, price, downtime, log, missing


@kernel
def objective(scale, response, price, downtime, log):
    """Eq. 12; `scale`: each weight over its bound."""
    return scale[0] * response + scale[1] * price + scale[2] * downtime + scale[3] * log


@kernel
def excess(bounds, response, price, downtime, log):
    """Total violation of bounds, in units of the bounds."""
    b = bounds
    over = max(response / b[0] - 1.0, 0.0) + max(price / b[1] - 1.0, 0.0) + max(downtime / b[2] - 1.0, 0.0)
    if b[3] < 0.0:
        over += max(log / b[3] - 1.0, 0.0)
    return over if over > 1e-9 else 0.0


@kernel(inner=True)
def workspace(m, counts):
    """Compute the metrics that `refresh` maintains from a placement."""
    nodes, edges = np.zeros((3, len(counts))), np.zeros((3, m.pred.size))
    for i in range(len(counts)):
        refresh(m, counts, i, nodes, edges)
    return nodes, edges


@kernel
def all_figures(m, counts):
    """`figures` computed from the counts."""
    nodes, edges = workspace(m, counts)
    return figures(m, counts, nodes, edges), nodes, edges
