"""Greedy places and local search, for instances that are too large for the program.

Not of the paper. Every descent ends where no single replica, exchange of two, or gathering of an element or of both
ends of an edge is better; then a few elements are placed anew at random and it is tried again.
"""

from __future__ import annotations

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.edrp import move_kernels
from goffish.scheduling.policies.edrp.candidates import twins
from goffish.scheduling.policies.edrp.problem import Ints, Problem, fits


def greedy(problem: Problem) -> Ints | None:
    """Places one element after the other: those with few hosts first, then from sources to sinks.

    Each gets as few replicas as keep up, each of them where response time and price so far rise least.

    Returns
    -------
    int64, shape (elements, hosts), or None
        With one replica each if there is no room for more; ``None`` if not even those have room.
    """
    at = np.empty(problem.size, np.int64)
    at[problem.flow.order] = np.arange(problem.size)
    order = np.lexsort((at, problem.allowed.sum(axis=1))).astype(np.int64)
    for grow in (True, False):
        counts = np.zeros((problem.size, problem.hosts.size), np.int64)
        if move_kernels.place(problem.model, order, grow, counts):
            return counts
    return None


def local_search(
    problem: Problem,
    rng: np.random.Generator,
    *,
    start: Ints | None = None,
    rounds: int = 100,
    anew: bool = True,
    effort: int = 200_000,
) -> Ints | None:
    """Places by greed and local search.

    Parameters
    ----------
    rng : numpy.random.Generator
    start : int64, shape (elements, hosts), optional
        Places to begin with as well; default: the current ones.
    rounds : int
        Descents from a solution with some elements placed anew.
    anew : bool
        Begin with places by greed, too.
    effort : int
        Moves that a descent tries at most: a limit of time that does not depend on the machine.

    Returns
    -------
    int64, shape (elements, hosts), or None
        The best that was found, which violates bounds if nothing that keeps them was; ``None`` if there is no room.
    """
    if rounds < 0:
        raise InputError(f"rounds = {rounds}: 0 or more")
    model = problem.model
    starts = [problem.current if start is None else start, greedy(problem) if anew else None]
    groups = np.arange(problem.hosts.size)
    for group in twins(problem):
        groups[group] = group[0]
    found: Ints | None = None
    best = np.inf
    for given in starts:
        if given is None or not (given.sum(axis=1) > 0).all() or not fits(problem, given):
            continue
        counts = np.array(given, np.int64)
        value = float(move_kernels.descend(model, counts, groups, effort))
        if value < best:
            found, best = counts, value
    if found is None:
        return None
    for _ in range(rounds):
        counts = _shaken(problem, found, rng)
        value = float(move_kernels.descend(model, counts, groups, effort))
        # Equals are taken: plateaus are left, and the search stays deterministic.
        if value <= best:
            found, best = counts, value
    return found


def _shaken(problem: Problem, counts: Ints, rng: np.random.Generator) -> Ints:
    """Some elements at random other hosts with room, in random numbers; elements without room stay."""
    found, needs, hosts = counts.copy(), problem.flow.needs, problem.hosts
    for i in rng.choice(problem.size, min(problem.size, int(rng.integers(2, 5))), replace=False).tolist():
        before, size = found[i].copy(), int(rng.integers(1, problem.most[i] + 1))
        found[i] = 0
        for _ in range(min(size, int(before.sum()) + 1)):
            cores = hosts.cores - needs.cores @ found - needs.cores[i]
            memory = hosts.memory_mb - needs.memory_mb @ found - needs.memory_mb[i]
            free = np.flatnonzero(problem.allowed[i] & (cores >= -1e-9) & (memory >= -1e-9))
            if free.size:
                found[i, int(rng.choice(free))] += 1
        if not found[i].any():
            found[i] = before
    return found
