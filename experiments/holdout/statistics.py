"""Bootstrap intervals of means."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def bootstrap_interval(values: ArrayLike, share: float = 0.95, seed: int = 1) -> tuple[float, float]:
    """Return the interval that covers a share of the means of 10,000 samples with replacement."""
    given = np.asarray(values, np.float64)
    rng = np.random.default_rng(seed)
    means = given[rng.integers(0, given.size, (10_000, given.size))].mean(axis=1)
    low, high = np.quantile(means, ((1.0 - share) / 2.0, (1.0 + share) / 2.0))
    return float(low), float(high)
