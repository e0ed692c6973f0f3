"""Loads of the evaluation: how many machines report, minute by minute. See docs/specs/btu.md, section 4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError

Ints = NDArray[np.int64]
#: One simulated minute of a machine passes in so many seconds.
STEP_S = 0.48
#: Messages of a machine in a simulated minute, by the element that gets them (`visp-oee`).
MESSAGES = {"filter": 5, "parse": 1, "temperature": 10}
PATTERNS = ("stepwise", "two-level", "walk-1", "walk-2", "pyramid")
#: Mean machines in slices of ten minutes of the two published walks.
_SHAPES = {
    "walk-1": (4.8, 5.5, 5.8, 5.0, 5.1, 6.5, 4.7, 3.1, 2.3, 2.8, 2.5, 1.5),
    "walk-2": (1.8, 1.2, 1.5, 1.9, 5.1, 6.1, 7.7, 7.2, 6.7, 6.5, 5.7, 3.7),
}


def stepwise(minutes: int, levels: tuple[int, int, int] = (2, 5, 8)) -> Ints:
    """Low, middle, high, middle, and again: four minutes each."""
    low, middle, high = levels
    return np.array([(low, middle, high, middle)[minute // 4 % 4] for minute in range(minutes)], np.int64)


def two_level(minutes: int, levels: tuple[int, int] = (2, 8)) -> Ints:
    """Low and high, eight minutes each."""
    return np.array([levels[minute // 8 % 2] for minute in range(minutes)], np.int64)


def pyramid(minutes: int, highest: int = 8) -> Ints:
    """From one machine to the highest and back, eight minutes each level."""
    way = [*range(1, highest + 1), *range(highest - 1, 1, -1)]
    return np.array([way[minute // 8 % len(way)] for minute in range(minutes)], np.int64)


def walk(minutes: int, rng: np.random.Generator) -> Ints:
    """From four machines one less, none, or one more every minute, with 40, 20 and 40 %; between 1 and 8."""
    found = np.empty(minutes, np.int64)
    machines = 4
    for minute, draw in enumerate(rng.random(minutes).tolist()):
        found[minute] = machines
        machines = min(8, max(1, machines + (draw > 0.6) - (draw < 0.4)))
    return found


def walk_like(shape: str, minutes: int, seed: int, tries: int = 2000) -> Ints:
    """Of many walks the one whose ten-minute means are nearest to a published one's.

    Parameters
    ----------
    shape : {"walk-1", "walk-2"}
    minutes : int
    seed : int
        Of the walks that are tried.
    tries : int
    """
    wanted = np.array(_SHAPES[shape])[: max(1, minutes // 10)]
    rng = np.random.default_rng([seed, 17])
    best, least = walk(minutes, rng), np.inf
    for _ in range(tries):
        found = walk(minutes, rng)
        slices = found[: wanted.size * 10].reshape(wanted.size, -1).mean(axis=1) if minutes >= 10 else found[:1]
        miss = float(((slices - wanted) ** 2).sum())
        if miss < least:
            best, least = found, miss
    return best


def machines_of(pattern: str, minutes: int = 120, seed: int = 0) -> Ints:
    """Machines that report in each minute.

    Parameters
    ----------
    pattern : str
        One of `PATTERNS`; walks are chosen near the published ones, a different one for each seed.
    minutes : int
    seed : int

    Raises
    ------
    InputError
        No such pattern.
    """
    if pattern in _SHAPES:
        return walk_like(pattern, minutes, seed)
    known: dict[str, Callable[[int], Ints]] = {"stepwise": stepwise, "two-level": two_level, "pyramid": pyramid}
    made = known.get(pattern)
    if made is None:
        raise InputError(f"no pattern {pattern!r}: choose one of {', '.join(PATTERNS)}")
    return made(minutes)
