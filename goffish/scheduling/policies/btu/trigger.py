"""When an operator needs one more instance: Algorithm 1, as corrected (§3.1, E1, E2)."""

from __future__ import annotations

from collections.abc import Sequence

from goffish.scheduling.policies.btu.model import Settings


def predicted_duration(durations: Sequence[float]) -> float:
    """The next duration by least squares over the index of the last ones, oldest first.

    The published index runs from the newest to the oldest, and so predicts the past.

    Parameters
    ----------
    durations : sequence of float
        At least two.
    """
    n = len(durations)
    middle, mean = (n + 1) / 2, sum(durations) / n
    along = sum((i - middle) * (x - mean) for i, x in enumerate(durations, 1))
    slope = along / sum((i - middle) ** 2 for i in range(1, n + 1))
    return mean - slope * middle + slope * (n + 1)


def needs_instance(durations: Sequence[float], objective: float, queue: float, settings: Settings) -> bool:
    """Whether an operator breaks its objective, or will, and enough messages wait to matter.

    Parameters
    ----------
    durations : sequence of float
        Last measured ones, oldest first; in the unit of `objective`.
    objective, queue : float
    settings : Settings
    """
    if not durations:
        # An operator whose only instance is stuck measures nothing.
        return queue > 5 * settings.threshold
    late = durations[-1] > objective
    if not late and len(durations) > 1:
        late = predicted_duration(durations[-settings.window :]) > objective
    return late and queue > settings.threshold
