"""The ant system: ants place one operator after the other, guided by the pheromone of good placements.

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
    """Parameters of the ant system; the paper does not list them (docs/specs/latency-aware.md, section 6.1).

    Attributes
    ----------
    ants : int
        Number of ants in an iteration.
    initial, least : float
        Initial and minimum pheromone.
    start_deposits : float
        Number of deposits of the initial placement.
    alpha, beta : float
        Exponents of the pheromone and of the a-priori value.
    kept : float
        Share of the pheromone that remains in the next iteration.
    deposit : float
        Deposit of an ant, divided by its score.
    iterations, stall : int
        Maximum iterations of a colony, in total and without an improvement.
    colonies : int
        Number of consecutive searches, each with new pheromone. The deposits of the first few iterations are many times
        the initial pheromone, so that a colony soon converges to its first result, and more iterations do not improve
        it. The paper uses one colony.
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
                raise InputError(f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("initial", "least", "deposit"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} = {getattr(self, name):g}: must be greater than 0")
        for name in ("alpha", "beta", "start_deposits"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} = {getattr(self, name):g}: must be at least 0")
        if not 0 <= self.kept <= 1:
            raise InputError(f"kept = {self.kept:g}: must be 0 to 1")


class Marched(NamedTuple):
    """Result of the ants.

    Attributes
    ----------
    placement : int64, shape (operators,)
        The best placement, including the start.
    score : Score
    iterations : int
        Number of iterations of all colonies.
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
    """Search with one colony, as in the paper; minimizes the sum of score and 10 000 for every violation.

    Parameters
    ----------
    rng : numpy.random.Generator
    start : int, shape (operators,), optional
        The current placement; default: none.
    ants : Ants, optional
    seconds : float, optional
        Time limit for the start of iterations after the first. The result then depends on the machine.
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
    """The objective of the ants: the score, plus 10 000 for every violation."""
    return score.value + kernels.PENALTY * score.violations
