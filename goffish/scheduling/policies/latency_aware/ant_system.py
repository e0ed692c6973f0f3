"""Ants that place one operator after the other, drawn to where good placements had it before.

See docs/specs/latency-aware.md, section 3.3.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware import ant_kernels as kernels
from goffish.scheduling.policies.latency_aware.score import Ints, PlacementProblem, Score, evaluate


@dataclass(frozen=True)
class Ants:
    """Parameters of the ant system; the paper prints none (docs/specs/latency-aware.md, section 6.1).

    Attributes
    ----------
    ants : int
        In an iteration.
    initial, least : float
        Pheromone at first, and what it never falls below.
    start_deposits : float
        Deposits of the placement that the search starts from.
    alpha, beta : float
        Exponents of the pheromone and of the a-priori value.
    kept : float
        Share of the pheromone that stays from one iteration to the next.
    deposit : float
        Left by an ant, divided by its score.
    iterations, stall : int
        Of a colony, at most, and without an improvement.
    colonies : int
        Searches, one after the other, each without the pheromone of those before. The deposits of the first few
        iterations are many times the initial pheromone, so that a colony soon stays with what it found first; that is
        a matter of luck, and more iterations do not mend it. Not of the paper, which lets one colony search.
    """

    ants: int = 20
    initial: float = 1.0
    least: float = 0.01
    start_deposits: float = 5.0
    alpha: float = 1.0
    beta: float = 2.0
    kept: float = 0.9
    deposit: float = 1.0
    iterations: int = 150
    stall: int = 60
    colonies: int = 5

    def __post_init__(self) -> None:
        for name in ("ants", "iterations", "stall", "colonies"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)}: at least 1 is needed")
        for name in ("initial", "least", "deposit"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} = {getattr(self, name):g}: above 0 is needed")
        for name in ("alpha", "beta", "start_deposits"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} = {getattr(self, name):g}: at least 0 is needed")
        if not 0 <= self.kept <= 1:
            raise InputError(f"kept = {self.kept:g}: 0 to 1 is needed")


class Marched(NamedTuple):
    """Where the ants ended.

    Attributes
    ----------
    placement : int64, shape (operators,)
        The best one, the start included.
    score : Score
    iterations : int
        Of all colonies.
    """

    placement: Ints
    score: Score
    iterations: int


def one_colony(
    problem: PlacementProblem,
    rng: np.random.Generator,
    start: ArrayLike | None = None,
    *,
    ants: Ants | None = None,
    seconds: float | None = None,
) -> Marched:
    """Search with one colony, as the paper does; the sum of score and 10 000 for every violation is what falls.

    Parameters
    ----------
    rng : numpy.random.Generator
    start : int, shape (operators,), optional
        The current placement; default: none.
    ants : Ants, optional
    seconds : float, optional
        No iteration but the first begins later than so many seconds from now. The outcome then depends on the machine.
    """
    ants = Ants() if ants is None else ants
    end = None if seconds is None else time.monotonic() + seconds
    columns, operators = problem.columns, problem.operators
    pheromone = np.full((operators, problem.size), ants.initial)
    best, least = np.zeros(operators, np.int64), np.inf
    if start is not None:
        best = problem.placement(start)
        least = penalised(evaluate(problem, best))
        pheromone[np.arange(operators), best] += ants.start_deposits * ants.deposit / least
    places, sums = np.empty((ants.ants, operators), np.int64), np.empty(ants.ants)
    unshuffled = np.tile(np.arange(operators), (ants.ants, 1))
    done = idle = 0
    while done < ants.iterations and idle < ants.stall and (not done or end is None or time.monotonic() < end):
        orders, draws = rng.permuted(unshuffled, axis=1), rng.random(places.shape)
        kernels.build(columns, pheromone**ants.alpha, ants.beta, orders, draws, places, sums)
        idle += 1
        winner = int(np.argmin(sums))
        if sums[winner] < least:
            best, least, idle = places[winner].copy(), float(sums[winner]), 0
        kernels.lay(pheromone, places, sums, ants.kept, ants.deposit, ants.least)
        done += 1
    return Marched(best, evaluate(problem, best), done)


def penalised(score: Score) -> float:
    """What the ants make less of: the score, and 10 000 for every violation."""
    return score.value + kernels.PENALTY * score.violations
