"""Hill climbing by the best of all moves, swaps and evacuations, alone or after the ant system.

See docs/specs/latency-aware.md, sections 3.2 and 3.4.
"""

from __future__ import annotations

import time
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware import climb_kernels as kernels
from goffish.scheduling.policies.latency_aware.ant_system import Ants, Marched, one_colony, penalised
from goffish.scheduling.policies.latency_aware.score import (
    Ints,
    PlacementProblem,
    Score,
    evaluate,
    greedy_placement,
)

#: Quantity that is minimized before the score: usage above the limits, or the number of exceeded limits.
Overload = Literal["amount", "count"]


class Climbed(NamedTuple):
    """Result of hill climbing.

    Attributes
    ----------
    placement : int64, shape (operators,)
    score : Score
    sweeps : int
        Number of sweeps over all neighbors; the last one finds no improvement, unless the limit was reached.
    tried : (int, int, int)
        Number of neighbors tried: operators moved, operators swapped, hosts evacuated.
    settled : bool
        Whether no neighbor is better.
    """

    placement: Ints
    score: Score
    sweeps: int
    tried: tuple[int, int, int]
    settled: bool


def hill_climbing(
    problem: PlacementProblem,
    start: ArrayLike | None = None,
    *,
    overload: Overload = "amount",
    sweeps: int | None = None,
    seconds: float | None = None,
) -> Climbed:
    """Climb from a placement to a local optimum.

    Parameters
    ----------
    start : int, shape (operators,), optional
        Default: `greedy_placement`.
    overload : {"amount", "count"}
        Quantity that is compared before the score. With the count, as printed in the paper, a move that only reduces an
        overload is rejected.
    sweeps : int, optional
        Maximum number of sweeps over the neighbors; default: until there is no improvement.
    seconds : float, optional
        Time limit for the start of sweeps. The result then depends on the machine.
    """
    refuse_limits(sweeps=sweeps, seconds=seconds)
    if overload not in ("amount", "count"):
        raise InputError(f"overload = {overload!r}: must be one of amount, count")
    place = greedy_placement(problem) if start is None else problem.placement(start)
    end = None if seconds is None else time.monotonic() + seconds
    tried = np.zeros(3, np.int64)
    done, moved = 0, True
    while moved and (sweeps is None or done < sweeps) and (end is None or time.monotonic() < end):
        moved = kernels.sweep(problem.columns, place, overload == "count", tried)
        done += 1
    moves, swaps, evacuations = tried.tolist()
    return Climbed(place, evaluate(problem, place), done, (moves, swaps, evacuations), not moved)


def refuse_limits(*, seconds: float | None = None, **counts: int | None) -> None:
    """Raise `InputError` for a limit below 0."""
    for name, value in (*counts.items(), ("seconds", seconds)):
        if value is not None and not value >= 0:
            raise InputError(f"{name} = {value}: must be at least 0")


class Combined(NamedTuple):
    """The best of the start, the placements of the ants, and the results of hill climbing from there.

    Attributes
    ----------
    placement : int64, shape (operators,)
    score : Score
    ants : Marched
        Result of the best colony.
    climb : Climbed
        The best result of hill climbing.
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
    """Place with ants, then climb; repeat for each colony of ants.

    Parameters
    ----------
    rng, start, ants
        Parameters of the ant system.
    overload, sweeps
        Parameters of hill climbing.
    seconds : float, optional
        Time limit. A colony uses half of the remaining time; the rest is for hill climbing and the next colony. The
        result then depends on the machine.
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
