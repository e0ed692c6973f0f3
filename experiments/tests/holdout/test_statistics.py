"""Bootstrap intervals against normal theory, whose intervals they approach."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.holdout.statistics import bootstrap_interval


def test_intervals_are_those_of_normal_theory() -> None:
    """Else intervals are too narrow or too wide: mean ± 1.96 standard errors, and ± 1.64 for 90 %."""
    values = np.random.default_rng(5).normal(3.0, 2.0, 400)
    error = values.std() / np.sqrt(values.size)
    for share, quantile in ((0.95, 1.960), (0.90, 1.645)):
        low, high = bootstrap_interval(values.tolist(), share)
        assert low == pytest.approx(values.mean() - quantile * error, abs=0.02)
        assert high == pytest.approx(values.mean() + quantile * error, abs=0.02)


def test_the_mean_is_covered_as_often_as_stated() -> None:
    """Else the share means nothing: 200 samples of 40 values each."""
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.normal(1.0, 1.0, 40).tolist(), 0.9)
        covered += low <= 1.0 <= high
    assert 166 <= covered <= 194


def test_intervals_are_reproducible_and_arguments_checked() -> None:
    assert bootstrap_interval([1.0, 2.0, 4.0]) == bootstrap_interval([1.0, 2.0, 4.0])
    assert bootstrap_interval([2.5]) == (2.5, 2.5)
    for values, share in (([], 0.95), ([1.0], 1.0)):
        with pytest.raises(ValueError, match="at least one value"):
            bootstrap_interval(values, share)
