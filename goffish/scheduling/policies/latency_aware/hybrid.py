"""Hill climbing by the best of all moves, swaps and evacuations, alone and from what the ant system found.

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

#: What falls before the score counts: what is used above the limits, or the number of limits that are exceeded.
Overload = Literal["amount", "count"]


class Climbed(NamedTuple):
    """Where hill climbing ended.

    Attributes
    ----------
    placement : int64, shape (operators,)
    score : Score
    sweeps : int
        Over all neighbours; the last one finds none that is better, unless there were not enough.
    tried : (int, int, int)
        Neighbours: operators moved, operators swapped, hosts evacuated.
    settled : bool
        Whether no neighbour is better.
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
        What is compared before the score. By the count, as the paper prints it, a move that only lessens an overload
        is refused.
    sweeps : int, optional
        The most sweeps over the neighbours; default: until none is better.
    seconds : float, optional
        No sweep begins later than so many seconds from now. The outcome then depends on the machine.
    """
    refuse_limits(sweeps=sweeps, seconds=seconds)
    if overload not in ("amount", "count"):
        raise InputError(f"overload = {overload!r}: one of amount, count is needed")
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
            raise InputError(f"{name} = {value}: at least 0 is needed")


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
