"""Times for people: what is left of long work, and limits that they set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from numbers import Real
from typing import Any

from goffish.algorithms.algorithm import Note
from goffish.errors import InputError


def reporter(note: Note | None, what: str = "") -> Callable[[float, float], None] | None:
    """Progress, as work done and work to do, in a line of text: the share that is done and the time that is left."""
    if note is None:
        return None
    remaining = Remaining()

    def report(done: float, todo: float) -> None:
        note(f"{what}{100.0 * done / todo if todo else 100.0:.1f} % of the searches{remaining(done, todo)}")

    return report


class Remaining:
    """Time left of work that has just begun, as text such as ``", 2 min 30 s left"``; empty without an estimate."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), math.nan

    def __call__(self, done: float, todo: float) -> str:
        if math.isnan(self._before):
            self._before = done  # a run that is resumed has something done already
        passed = time.monotonic() - self._begun
        if done <= self._before or passed < 1.0:
            return ""
        return f", {duration(passed * (todo - done) / (done - self._before))} left"


def checked_limit(time_limit: Any) -> float | None:
    """A time limit as given by the user, checked."""
    if time_limit is None:
        return None
    if isinstance(time_limit, bool) or not isinstance(time_limit, Real) or not float(time_limit) >= 0.0:
        raise InputError(f"time_limit={time_limit!r}: must be a number of seconds of at least 0")
    return float(time_limit)


def duration(seconds: float) -> str:
    """A length of time, rounded for reading."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
