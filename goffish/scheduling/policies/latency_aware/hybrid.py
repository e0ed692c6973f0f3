"""The ant system, and hill climbing from what it found.

Specification of latency-aware placement, §3.4.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from goffish.scheduling.policies.latency_aware.ant_system import Ants, Marched, one_colony, penalised
from goffish.scheduling.policies.latency_aware.hill_climbing import (
    Climbed,
    Overload,
    hill_climbing,
    refuse_limits,
)
from goffish.scheduling.policies.latency_aware.score import Ints, PlacementProblem, Score, evaluate


class Combined(NamedTuple):
    """The best of the start, the ants' placements and where hill climbing went from there.

    Attributes
    ----------
    placement : int64, shape (operators,)
    score : Score
    ants : Marched
        Of the best colony.
    climb : Climbed
        The best one.
    """

    placement: Ints
    score: Score
    ants: Marched
    climb: Climbed


def hybrid(
    problem: PlacementProblem,
    rng: np.random.Generator,
    start: ArrayLike | None = None,
    *,
    ants: Ants | None = None,
    overload: Overload = "amount",
    sweeps: int | None = None,
    seconds: float | None = None,
) -> Combined:
    """Place with ants, then climb; the same for each colony of ants.

    Parameters
    ----------
    rng, start, ants
        Of the ant system.
    overload, sweeps
        Of hill climbing.
    seconds : float, optional
        Half of what is left is for a colony; what that leaves is for hill climbing, and then for the next colony. The
        outcome then depends on the machine.
    """
    refuse_limits(seconds=seconds)
    ants = Ants() if ants is None else ants
    end = None if seconds is None else time.monotonic() + seconds
    marched: Marched | None = None
    climbed: Climbed | None = None
    done = 0
    for colony in range(ants.colonies):
        left = None if end is None else max(0.0, end - time.monotonic())
        if colony and left == 0.0:
            break
        walked = one_colony(problem, rng, start, ants=ants, seconds=None if left is None else left / 2)
        left = None if end is None else max(0.0, end - time.monotonic())
        risen = hill_climbing(problem, walked.placement, overload=overload, sweeps=sweeps, seconds=left)
        done += walked.iterations
        if marched is None or penalised(walked.score) < penalised(marched.score):
            marched = walked
        if climbed is None or risen.score.key < climbed.score.key:
            climbed = risen
    assert marched is not None
    assert climbed is not None
    marched = marched._replace(iterations=done)
    found: list[tuple[Score, Ints]] = [(climbed.score, climbed.placement), (marched.score, marched.placement)]
    if start is not None:
        found.insert(0, (evaluate(problem, start), problem.placement(start)))
    score, placement = min(found, key=lambda one: one[0].key)
    return Combined(placement, score, marched, climbed)
