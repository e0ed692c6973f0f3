"""Numba kernels of hill climbing: one sweep over all neighbors of a placement; `p` is the `Columns` of a problem."""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import stable_order
from goffish.kernels.compile import kernel
from goffish.scheduling.policies.latency_aware.score_kernels import (
    evaluate,
    host_excess,
    loads,
    rounded,
    without_latency,
)

#: Minimum improvement of a score.
TOLERANCE = 1e-15
#: Error bound of differences that are added up; candidates within it are evaluated in full.
DOUBT, OVERLOAD_DOUBT = 1e-12, 1e-8


@kernel(inner=True)
def key_of(p, place, by_count):
    """The objective: violations (or the overload), then the score."""
    score, _, violations, overload = evaluate(p, place)
    return (float(violations) if by_count else rounded(overload)), score


@kernel(inner=True)
def pulls(p, place):
    """Weights of the edges from each operator (row) to the operators on each host (column)."""
    found = np.zeros((place.size, p.cpu_limit.size))
    for o in range(place.size):
        for at in range(p.near_offsets[o], p.near_offsets[o + 1]):
            found[o, place[p.near[at]]] += p.pull[at]
    return found


@kernel
def sweep(p, place, by_count, tried):
    """Replace a placement by its best improving neighbor; return whether there is one.

    Neighbors, in this order: one operator moved, two operators of different hosts swapped, all operators of one host
    moved to another. Ties are broken by the first. `tried` counts the neighbors of each kind.

    Differences in overload and in all parts of the score but latency are added up; only neighbors that may be better
    than the best so far (latency is never below 0) are evaluated in full.
    """
    operators, hosts = p.allowed.shape
    cpu, memory, count = loads(p, place)
    base = without_latency(p, place, count)
    pull = pulls(p, place)
    bad = np.empty(hosts)
    worst = 0.0
    for j in range(hosts):
        bad[j] = host_excess(p, j, cpu[j], memory[j], by_count)
        worst += bad[j]
    for o in range(operators):
        worst += 0.0 if p.allowed[o, place[o]] else 1.0
    trial = place.copy()
    best, least = key_of(p, place, by_count)
    found, first, second = -1, 0, 0

    for o in range(operators):
        j = place[o]
        left = host_excess(p, j, cpu[j] - p.cpu[o], memory[j] - p.memory[o], by_count) - bad[j]
        here = 0.0 if p.allowed[o, j] else 1.0
        empties = p.host_weight if count[j] == 1 else 0.0
        for k in range(hosts):
            if k == j:
                continue
            tried[0] += 1
            over = worst + left - here + (0.0 if p.allowed[o, k] else 1.0) - bad[k]
            over += host_excess(p, k, cpu[k] + p.cpu[o], memory[k] + p.memory[o], by_count)
            score = base + pull[o, j] - pull[o, k] - empties + (p.host_weight if count[k] == 0 else 0.0)
            if not hopeful(over, score, best, least):
                continue
            trial[o] = k
            key, value = key_of(p, trial, by_count)
            if better(key, value, best, least):
                best, least, found, first, second = key, value, 0, o, k
            trial[o] = j

    between = np.zeros(operators)
    for a in range(operators):
        j = place[a]
        for at in range(p.near_offsets[a], p.near_offsets[a + 1]):
            between[p.near[at]] += p.pull[at]
        for b in range(a + 1, operators):
            k = place[b]
            if k == j:
                continue
            tried[1] += 1
            more_cpu, more_memory = p.cpu[b] - p.cpu[a], p.memory[b] - p.memory[a]
            over = worst - bad[j] - bad[k]
            over += host_excess(p, j, cpu[j] + more_cpu, memory[j] + more_memory, by_count)
            over += host_excess(p, k, cpu[k] - more_cpu, memory[k] - more_memory, by_count)
            over += (0.0 if p.allowed[a, k] else 1.0) - (0.0 if p.allowed[a, j] else 1.0)
            over += (0.0 if p.allowed[b, j] else 1.0) - (0.0 if p.allowed[b, k] else 1.0)
            score = base + pull[a, j] - pull[a, k] + pull[b, k] - pull[b, j] + 2.0 * between[b]
            if not hopeful(over, score, best, least):
                continue
            trial[a], trial[b] = k, j
            key, value = key_of(p, trial, by_count)
            if better(key, value, best, least):
                best, least, found, first, second = key, value, 1, a, b
            trial[a], trial[b] = j, k
        for at in range(p.near_offsets[a], p.near_offsets[a + 1]):
            between[p.near[at]] = 0.0

    members = stable_order(place)
    begin = 0
    for j in range(hosts):
        end = begin + count[j]
        for k in range(hosts):
            if k == j or begin == end:
                continue
            tried[2] += 1
            over = worst - bad[j] - bad[k] + host_excess(p, k, cpu[k] + cpu[j], memory[k] + memory[j], by_count)
            score = base - (p.host_weight if count[k] else 0.0)
            for at in range(begin, end):
                o = members[at]
                score -= pull[o, k]
                over += (0.0 if p.allowed[o, k] else 1.0) - (0.0 if p.allowed[o, j] else 1.0)
            if not hopeful(over, score, best, least):
                continue
            trial[members[begin:end]] = k
            key, value = key_of(p, trial, by_count)
            if better(key, value, best, least):
                best, least, found, first, second = key, value, 2, j, k
            trial[members[begin:end]] = j
        begin = end

    if found == 0:
        place[first] = second
    elif found == 1:
        place[first], place[second] = place[second], place[first]
    elif found == 2:
        place[place == first] = second
    return found >= 0


@kernel(inner=True)
def hopeful(over, score, best, least):
    """Whether a neighbor may be better than the best so far."""
    if over > best + OVERLOAD_DOUBT:
        return False
    return over < best - OVERLOAD_DOUBT or score < least + DOUBT


@kernel(inner=True)
def better(key, score, best, least):
    """Whether a neighbor is better than the best so far."""
    return key < best or (key == best and score < least - TOLERANCE)
