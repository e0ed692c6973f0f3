"""Numba kernels of the ant system: construction of placements, and pheromone; `p` is the `Columns` of a problem."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.policies.latency_aware.score_kernels import SLACK, evaluate

#: Added to the score for every violation.
PENALTY = 10_000.0


@kernel
def attraction(p, o, j, neighbour, used, cpu, memory):
    """Exponent of 2 of the a-priori value of a host for an operator: from 2 (it runs a neighbor) to -2.

    `neighbour`: the host runs a neighbor; `used`: it runs any operator; `cpu`, `memory`: used so far.
    """
    found = 0
    if neighbour:
        found += 1
    if used:
        found += 1
    if cpu + p.cpu[o] > p.cpu_limit[j] * (1.0 + SLACK):
        found -= 1
    if memory + p.memory[o] > p.memory_limit[j] * (1.0 + SLACK):
        found -= 1
    return found


@kernel
def build(p, trail, beta, orders, draws, places, sums):
    """Build one placement for every row of `orders`.

    Parameters
    ----------
    trail : float64, shape (operators, hosts)
        Pheromone raised to alpha.
    orders : int64, shape (ants, operators)
    draws : float64, shape (ants, operators)
        Uniform random numbers, for the choice of each operator in turn.
    places : int64, shape (ants, operators)
        Output: the placements.
    sums : float64, shape (ants,)
        Output: score plus `PENALTY` for every violation.
    """
    operators, hosts = p.allowed.shape
    powers = np.array([2.0 ** (beta * k) for k in range(-2, 3)])
    wheel = np.empty(hosts)
    for ant in range(orders.shape[0]):
        place = places[ant]
        place[:] = -1
        cpu, memory = np.zeros(hosts), np.zeros(hosts)
        used = np.zeros(hosts, np.bool_)
        mark = np.full(hosts, -1, np.int64)
        for turn in range(operators):
            o = orders[ant, turn]
            for at in range(p.near_offsets[o], p.near_offsets[o + 1]):
                if place[p.near[at]] >= 0:
                    mark[place[p.near[at]]] = turn
            total, last = 0.0, -1
            for j in range(hosts):
                if p.allowed[o, j]:
                    power = attraction(p, o, j, mark[j] == turn, used[j], cpu[j], memory[j])
                    total += trail[o, j] * powers[power + 2]
                    last = j
                wheel[j] = total
            aim = draws[ant, turn] * total
            chosen = last
            for j in range(last):
                if p.allowed[o, j] and aim < wheel[j]:
                    chosen = j
                    break
            place[o] = chosen
            used[chosen] = True
            cpu[chosen] += p.cpu[o]
            memory[chosen] += p.memory[o]
        score, _, violations, _ = evaluate(p, place)
        sums[ant] = score + PENALTY * violations


@kernel
def lay(pheromone, places, sums, kept, deposit, least):
    """Update the pheromone after an iteration: evaporation, and the deposits of all ants."""
    pheromone *= kept
    for ant in range(places.shape[0]):
        for o in range(places.shape[1]):
            pheromone[o, places[ant, o]] += deposit / sums[ant]
    for o in range(pheromone.shape[0]):
        for j in range(pheromone.shape[1]):
            pheromone[o, j] = max(pheromone[o, j], least)
