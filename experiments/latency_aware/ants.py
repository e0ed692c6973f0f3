"""The search with ants alone; the package combines it with hill climbing (`hybrid`)."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike

from goffish.scheduling.policies.latency_aware.ant_system import Ants, Marched, one_colony, penalised
from goffish.scheduling.policies.latency_aware.hybrid import refuse_limits
from goffish.scheduling.policies.latency_aware.score import PlacementProblem


def ant_system(
    problem: PlacementProblem,
    rng: np.random.Generator,
    start: ArrayLike | None = None,
    *,
    ants: Ants | None = None,
    seconds: float | None = None,
) -> Marched:
    """The best of several colonies; parameters as in `one_colony`."""
    refuse_limits(seconds=seconds)
    ants = Ants() if ants is None else ants
    end = None if seconds is None else time.monotonic() + seconds
    best, done = None, 0
    for colony in range(ants.colonies):
        if colony and end is not None and time.monotonic() >= end:
            break
        left = None if end is None else max(0.0, end - time.monotonic())
        found = one_colony(problem, rng, start, ants=ants, seconds=left)
        done += found.iterations
        if best is None or penalised(found.score) < penalised(best.score):
            best = found
    assert best is not None
    return best._replace(iterations=done)
