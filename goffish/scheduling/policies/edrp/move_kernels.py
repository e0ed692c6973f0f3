"""Numba kernels of the local search: add, remove, move or exchange replicas, and gather PEs."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.policies.edrp.kernels import (
    CORES,
    DELAY,
    HOST_PRICE,
    MEMORY,
    PENALTY,
    ROOM_CORES,
    ROOM_MEMORY,
    TRAFFIC,
    excess,
    figures,
    objective,
    refresh,
    total,
    workspace,
)

_SLACK = 1e-9


@kernel
def _copy(source, target):
    for i in range(source.shape[0]):
        for v in range(source.shape[1]):
            target[i, v] = source[i, v]


@kernel
def _on(counts, v):
    """Number of replicas on a host."""
    found = 0
    for i in range(len(counts)):
        found += counts[i, v]
    return found


@kernel(inner=True)
def score(m, counts, nodes, edges):
    """The objective, plus a large penalty for violations."""
    response, price, downtime, log, missing = figures(m, counts, nodes, edges)
    over = excess(m.bounds, response, price, downtime, log) + 10.0 * missing
    return objective(m.scale, response, price, downtime, log) + PENALTY * over


@kernel
def _fits(elements, hosts, counts, v):
    cores, memory = 0.0, 0.0
    for i in range(len(counts)):
        cores += counts[i, v] * elements[CORES, i]
        if counts[i, v] > 0:
            memory += counts[i, v] * elements[MEMORY, i]
    return (
        cores <= hosts[ROOM_CORES, v] * (1 + _SLACK) + _SLACK
        and memory <= hosts[ROOM_MEMORY, v] * (1 + _SLACK) + _SLACK
    )


@kernel(inner=True)
def attempt(m, counts, wanted, nodes, edges, best, keep):
    """Score of a changed placement if it fits and is better than `best`, else infinite.

    `counts` is set to `wanted` if the change is kept; otherwise `wanted` is reset to `counts`. All moves call this
    function, as every further call of `refresh` takes seconds of compilation.
    """
    size, hosts = counts.shape
    changed = np.zeros(size, np.bool_)
    grown = np.zeros(hosts, np.bool_)
    for i in range(size):
        for v in range(hosts):
            if wanted[i, v] != counts[i, v]:
                changed[i] = True
                grown[v] = grown[v] or wanted[i, v] > counts[i, v]
    found = np.inf
    for v in range(hosts):
        if grown[v] and not _fits(m.elements, m.hosts, wanted, v):
            _copy(counts, wanted)
            return found
    for again in range(2):
        for i in range(size):
            if changed[i]:
                for v in range(hosts):
                    wanted[i, v], counts[i, v] = counts[i, v], wanted[i, v]
        for i in range(size):
            if changed[i]:
                refresh(m, counts, i, nodes, edges)
        if again == 0:
            found = score(m, counts, nodes, edges)
            if found >= best - 1e-12:
                found = np.inf
            elif keep:
                _copy(counts, wanted)
                return found
    _copy(counts, wanted)
    return found


@kernel
def _first_of_kind(counts, groups):
    """Whether no earlier host is empty and interchangeable with this host, if this host is empty."""
    found, seen = np.ones(groups.size, np.bool_), np.zeros(groups.size, np.bool_)
    for v in range(groups.size):
        if _on(counts, v) == 0:
            found[v] = not seen[groups[v]]
            seen[groups[v]] = True
    return found


@kernel
def _element_moves(allowed, most, current, counts, i, groups):
    """Other placements of PE i: one step away, all on one host, or the current one; one per row."""
    hosts, first, size = counts.shape[1], _first_of_kind(counts, groups), total(counts[i])
    rows, at = np.empty((hosts * hosts + 3 * hosts + 1, hosts), np.int64), 0
    for u in range(-1, hosts):
        if u >= 0 and counts[i, u] == 0:
            continue
        for v in range(-1, hosts):
            # -1: from no host, or to no host.
            if u == v or (v >= 0 and not (allowed[v] and first[v])):
                continue
            if (u < 0 and size >= most) or (v < 0 and size == 1):
                continue
            for w in range(hosts):
                rows[at, w] = counts[i, w]
            if u >= 0:
                rows[at, u] -= 1
            if v >= 0:
                rows[at, v] += 1
            at += 1
    for v in range(hosts):
        if size > 1 and allowed[v] and first[v] and counts[i, v] < size:
            for w in range(hosts):
                rows[at, w] = size if w == v else 0
            at += 1
    # Without a current placement it is empty.
    if 0 < total(current) <= most:
        for w in range(hosts):
            rows[at, w] = current[w]
        at += 1
    return rows[:at]


@kernel
def _pair_moves(pred, targets, allowed, counts, groups):
    """Exchanges of two replicas (i, j, u, v), and both ends of an edge on one host (i, j, v, -1)."""
    size, hosts = counts.shape
    held, end = 0, 0
    for i in range(size):
        for u in range(hosts):
            held += counts[i, u] > 0
    found = np.empty((held * held + pred.size * hosts, 4), np.int64)
    for i in range(size):
        for j in range(i + 1, size):
            for u in range(hosts):
                for v in range(hosts):
                    if u != v and counts[i, u] > 0 and counts[j, v] > 0 and allowed[i, v] and allowed[j, u]:
                        found[end, 0], found[end, 1], found[end, 2], found[end, 3] = i, j, u, v
                        end += 1
    first = _first_of_kind(counts, groups)
    for at in range(pred.size):
        for v in range(hosts):
            if first[v] and allowed[pred[at], v] and allowed[targets[at], v]:
                found[end, 0], found[end, 1], found[end, 2], found[end, 3] = pred[at], targets[at], v, -1
                end += 1
    return found[:end]


@kernel
def _vacate(m, counts, v):
    """Move all replicas of a host to other used hosts, each to the nearest; return whether they fit."""
    hosts = counts.shape[1]
    used = [_on(counts, w) for w in range(hosts)]
    for i in range(len(counts)):
        for _ in range(counts[i, v]):
            counts[i, v] -= 1
            least, chosen = np.inf, -1
            for w in range(hosts):
                if w == v or not m.allowed[i, w] or used[w] == 0:
                    continue
                counts[i, w] += 1
                if _fits(m.elements, m.hosts, counts, w):
                    found = _nearness(m, counts, i, w, total(counts[i]))
                    if found < least:
                        least, chosen = found, w
                counts[i, w] -= 1
            if chosen < 0:
                return False
            counts[i, chosen] += 1
    return True


@kernel
def _far_moves(m, counts, groups, nodes, edges, best):
    """Apply the first improving exchange, gathering of an edge, or evacuation of a host; return its score."""
    wanted = counts.copy()
    pairs = _pair_moves(m.pred, m.targets, m.allowed, counts, groups)
    for at in range(len(pairs) + counts.shape[1]):
        if at < len(pairs):
            i, j, u, v = pairs[at, 0], pairs[at, 1], pairs[at, 2], pairs[at, 3]
            if v < 0:
                size_i, size_j = total(counts[i]), total(counts[j])
                for w in range(counts.shape[1]):
                    wanted[i, w] = size_i if w == u else 0
                    wanted[j, w] = size_j if w == u else 0
            else:
                wanted[i, u] -= 1
                wanted[i, v] += 1
                wanted[j, v] -= 1
                wanted[j, u] += 1
        else:
            host = at - len(pairs)
            if m.hosts[HOST_PRICE, host] == 0.0 or _on(counts, host) == 0 or not _vacate(m, wanted, host):
                _copy(counts, wanted)
                continue
        found = attempt(m, counts, wanted, nodes, edges, best, True)
        if found < np.inf:
            return found
    return np.inf


@kernel
def descend(m, counts, groups, effort):
    """Change the placement while it improves; return the score.

    `groups`: equal numbers for interchangeable hosts; `effort`: maximum number of moves tried.
    """
    nodes, edges = workspace(m, counts)
    best, wanted = score(m, counts, nodes, edges), counts.copy()
    while True:
        better = False
        for i in range(len(counts)):
            if effort <= 0:
                return best
            rows = _element_moves(m.allowed[i], m.most[i], m.current[i], counts, i, groups)
            effort -= len(rows)
            least, chosen = best, -1
            for at in range(len(rows) + 1):
                # Keep the best of the others, which is the last one.
                last = at == len(rows)
                if last and chosen < 0:
                    break
                for v in range(counts.shape[1]):
                    wanted[i, v] = rows[chosen if last else at, v]
                found = attempt(m, counts, wanted, nodes, edges, best if last else least, last)
                if found < np.inf:
                    least, chosen = found, at
            if chosen >= 0:
                best, better = least, True
        if better:
            continue
        found = _far_moves(m, counts, groups, nodes, edges, best)
        if found == np.inf:
            return best
        best = found


@kernel
def place(m, order, grow, counts):
    """Greedy placement: each replica where delay, latency and price increase the least; return whether all fit.

    One replica of each PE; with `grow` as many as keep up.
    """
    hosts = counts.shape[1]
    for i in order:
        size, wanted = 0, 1
        while size < wanted:
            best, chosen = np.inf, -1
            for v in range(hosts):
                if not m.allowed[i, v]:
                    continue
                counts[i, v] += 1
                if _fits(m.elements, m.hosts, counts, v):
                    found = _nearness(m, counts, i, v, wanted)
                    if found < best:
                        best, chosen = found, v
                counts[i, v] -= 1
            if chosen < 0:
                return False
            counts[i, chosen] += 1
            size += 1
            if grow:
                wanted = max(wanted, int(min(m.missing[i, chosen], m.most[i])))
    return True


@kernel
def _nearness(m, counts, i, v, size):
    latency = m.table[i, min(size, m.table.shape[1] - 1), v]
    worth = m.scale[0] * latency if latency < np.inf else PENALTY * (1.0 + max(0.0, m.missing[i, v] - size))
    if m.hosts[HOST_PRICE, v] != 0.0 and _on(counts, v) == 1:
        worth += m.scale[1] * m.hosts[HOST_PRICE, v]
    for at in range(m.pred_offsets[i], m.pred_offsets[i + 1]):
        worth += _far(m.pairs, m.scale, counts[m.pred[at]], v, m.edge_rates[at], True)
    for k in range(m.out_offsets[i], m.out_offsets[i + 1]):
        at = m.out_edges[k]
        worth += _far(m.pairs, m.scale, counts[m.targets[at]], v, m.edge_rates[at], False)
    return worth


@kernel
def _far(between, scale, row, v, rate, into):
    delay, price, size = 0.0, 0.0, total(row)
    for u in range(row.size):
        if row[u] > 0:
            delay = max(delay, between[DELAY, u, v] if into else between[DELAY, v, u])
            price += row[u] / size * rate * (between[TRAFFIC, u, v] if into else between[TRAFFIC, v, u])
    return scale[0] * delay + scale[1] * price
