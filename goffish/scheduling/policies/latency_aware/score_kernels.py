"""Numba kernels of the score, overload and violations of a placement; `p` is the `Columns` of a problem."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel

#: Relative tolerance of limits.
SLACK = 1e-9
#: Decimal digits to which overloads are compared.
DIGITS = 1e9


@kernel(inner=True)
def latency_of(p, place):
    """Network latency of the slowest path in milliseconds."""
    reached = np.zeros(place.size)
    longest = 0.0
    for i in p.order:
        for at in range(p.pred_offsets[i], p.pred_offsets[i + 1]):
            before = p.pred[at]
            reached[i] = max(reached[i], reached[before] + p.latency[place[before], place[i]])
        longest = max(longest, reached[i])
    return longest


@kernel(inline="always")
def excess(used, limit, by_count):
    """Overload of one resource of a host: 1 or 0 by count, else the usage above the limit as a share of the limit."""
    if used <= limit * (1.0 + SLACK):
        return 0.0
    return 1.0 if by_count else (used - limit) / limit


@kernel(inline="always")
def host_excess(p, host, cpu, memory, by_count):
    """Overload of both resources of a host."""
    return excess(cpu, p.cpu_limit[host], by_count) + excess(memory, p.memory_limit[host], by_count)


@kernel(inner=True)
def loads(p, place):
    """Used CPU and memory, and number of operators, on every host."""
    cpu, memory = np.zeros(p.cpu_limit.size), np.zeros(p.cpu_limit.size)
    count = np.zeros(p.cpu_limit.size, np.int64)
    for o in range(place.size):
        cpu[place[o]] += p.cpu[o]
        memory[place[o]] += p.memory[o]
        count[place[o]] += 1
    return cpu, memory, count


@kernel(inner=True)
def without_latency(p, place, count):
    """The score without its latency."""
    used = 0
    for number in count:
        if number:
            used += 1
    total = 0.0
    for e in range(p.source.size):
        if place[p.source[e]] != place[p.target[e]]:
            total += p.apart[e]
    return p.host_weight * used + total


@kernel
def evaluate(p, place):
    """Score, latency (ms), violations and overload."""
    cpu, memory, count = loads(p, place)
    latency = latency_of(p, place)
    violations, overload = 0, 0.0
    for j in range(count.size):
        violations += int(host_excess(p, j, cpu[j], memory[j], True))
        overload += host_excess(p, j, cpu[j], memory[j], False)
    for o in range(place.size):
        if not p.allowed[o, place[o]]:
            violations += 1
            overload += 1.0
    return p.latency_weight * latency + without_latency(p, place, count), latency, violations, overload


@kernel(inner=True)
def rounded(overload):
    """An overload, rounded for comparisons."""
    return np.floor(overload * DIGITS + 0.5) / DIGITS
