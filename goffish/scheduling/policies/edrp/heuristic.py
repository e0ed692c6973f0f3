"""Greedy placement and local search, for problems that are too large for the integer program.

Not part of the paper. A descent ends when no move of a replica, exchange of two replicas, or gathering of a PE or of
both ends of an edge is an improvement. Then a few PEs are placed again at random for the next descent.
"""

from __future__ import annotations

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.edrp import move_kernels
from goffish.scheduling.policies.edrp.candidates import twins
from goffish.scheduling.policies.edrp.problem import Ints, Problem, fits


def greedy(problem: Problem) -> Ints | None:
    """Place one PE after the other: those with few hosts first, then from sources to sinks.

    Each PE gets the fewest replicas that keep up, each where response time and price increase the least.

    Returns
    -------
    int64, shape (elements, hosts), or None
        One replica each if the capacity does not suffice for more; ``None`` if it does not suffice for one each.
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
    """Place PEs by a greedy start and local search.

    Parameters
    ----------
    rng : numpy.random.Generator
    start : int64, shape (elements, hosts), optional
        An additional initial placement; default: the current one.
    rounds : int
        Number of descents from a solution with some PEs placed again.
    anew : bool
        Whether to start from a greedy placement, too.
    effort : int
        Maximum number of moves per descent: a limit of time that does not depend on the machine.

    Returns
    -------
    int64, shape (elements, hosts), or None
        The best placement, which violates bounds if no feasible one was found; ``None`` if the capacity does not
        suffice.
    """
    if rounds < 0:
        raise InputError(f"rounds = {rounds}: must be 0 or more")
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
        # Equal solutions are accepted, to leave plateaus; the search stays deterministic.
        if value <= best:
            found, best = counts, value
    return found


def _shaken(problem: Problem, counts: Ints, rng: np.random.Generator) -> Ints:
    """Move some PEs at random to other hosts with free capacity, in random numbers; others stay."""
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
