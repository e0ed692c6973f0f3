"""Bootstrap intervals of means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Number of resamples.
_DRAWS = 10_000


def bootstrap_interval(values: Sequence[float], share: float = 0.95, seed: int = 1) -> tuple[float, float]:
    """Return a percentile bootstrap interval of the mean.

    Parameters
    ----------
    values : sequence of float
        At least one independent value.
    share : float
        Coverage of the interval, between 0 and 1.
    seed : int

    Returns
    -------
    low, high : float

    Raises
    ------
    ValueError
        If there is no value, or the share is out of range.
    """
    given = np.asarray(values, np.float64)
    if not given.size or not 0 < share < 1:
        raise ValueError(f"{given.size} values, share = {share}: at least one value, and a share between 0 and 1")
    drawn = np.random.default_rng(seed).integers(0, given.size, (_DRAWS, given.size))
    low, high = np.quantile(given[drawn].mean(axis=1), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)
