"""The ant system, and hill climbing from what it found.

Specification of latency-aware placement, §3.4.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from goffish.services.provisioning.latency_aware.ant_system import Ants, Marched, ant_system
from goffish.services.provisioning.latency_aware.hill_climbing import (
    Climbed,
    Overload,
    hill_climbing,
    refuse_limits,
)
from goffish.services.provisioning.latency_aware.score import Ints, PlacementProblem, Score, evaluate


class Combined(NamedTuple):
    """The best of the start, the ants' placement and where hill climbing went from there.

    Attributes
    ----------
    placement : int64, shape (operators,)
    score : Score
    ants : Marched
    climb : Climbed
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
    """Place with ants, then climb.

    Parameters
    ----------
    rng, start, ants
        Of the ant system.
    overload, sweeps
        Of hill climbing.
    seconds : float, optional
        Half of it is for the ants; what they leave is for hill climbing. The outcome then depends on the machine.
    """
    refuse_limits(seconds=seconds)
    begun = time.monotonic()
    marched = ant_system(problem, rng, start, ants=ants, seconds=None if seconds is None else seconds / 2)
    left = None if seconds is None else max(0.0, seconds - (time.monotonic() - begun))
    climbed = hill_climbing(problem, marched.placement, overload=overload, sweeps=sweeps, seconds=left)
    found: list[tuple[Score, Ints]] = [(climbed.score, climbed.placement), (marched.score, marched.placement)]
    if start is not None:
        found.insert(0, (evaluate(problem, start), problem.placement(start)))
    score, placement = min(found, key=lambda one: one[0].key)
    return Combined(placement, score, marched, climbed)
