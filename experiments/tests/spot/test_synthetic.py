"""Synthetic price traces: their statistics against those that were asked for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from experiments.spot.synthetic import MONTH_S, PriceProcess, synthetic_trace
from goffish.errors import InputError


def test_statistics() -> None:
    """Times are log-normal, spikes log-uniform and as many as wanted: Kolmogorov-Smirnov, at 0.1 %."""
    process = PriceProcess(100.0, sojourn_s=3600.0, sojourn_spread=0.5, spikes=0.2, spike_s=600.0, drift=0.0)
    trace = synthetic_trace(process, 20_000 * 3600.0, np.random.default_rng(1))
    length, spike = trace.durations()[:-1], trace.prices[:-1] >= 100.0
    assert stats.kstest(np.log(length[~spike] / 3600.0) / 0.5, "norm").pvalue > 1e-3
    assert stats.kstest(np.log(length[spike] / 600.0) / 0.5, "norm").pvalue > 1e-3
    assert stats.kstest(np.log(trace.prices[:-1][spike] / 100.0) / np.log(60.0), "uniform").pvalue > 1e-3
    assert stats.kstest(np.log(trace.prices[:-1][~spike] / 12.0) / 0.15, "norm").pvalue > 1e-3
    assert not (spike[:-1] & spike[1:]).any()
    calm = (~spike).sum()
    assert abs(spike.sum() / calm - 0.2) < 4 * np.sqrt(0.2 * 0.8 / calm)


def test_drift_is_by_month() -> None:
    """Within a month nothing drifts; from month to month the logarithms walk at random with the given step."""
    process = PriceProcess(100.0, spread=0.0, spikes=0.0, sojourn_s=43_200.0, sojourn_spread=0.0, drift=0.3)
    rng, steps, lengths = np.random.default_rng(2), [], []
    for _ in range(60):
        trace = synthetic_trace(process, 12 * MONTH_S, rng)
        month = (trace.times // MONTH_S).astype(int)
        level = [np.unique(trace.prices[month == at]) for at in range(12)]
        assert all(found.size == 1 for found in level) and level[0][0] == pytest.approx(12.0)
        steps.append(np.diff(np.log(np.concatenate(level))))
    flat = np.concatenate(steps)
    assert abs(flat.std() - 0.3) < 4 * 0.3 / np.sqrt(2 * flat.size) and abs(flat.mean()) < 4 * 0.3 / np.sqrt(flat.size)
    for _ in range(60):
        trace = synthetic_trace(PriceProcess(100.0, spikes=0.0, sojourn_spread=0.0, drift=0.3), 2 * MONTH_S, rng)
        lengths.append(np.log(trace.durations()[-3] / 5400.0))
    assert abs(np.std(lengths) - 0.3) < 4 * 0.3 / np.sqrt(2 * 60)


def test_a_seed_is_a_trace() -> None:
    """The same seed gives the same; whole, in ticks, from its start on to its end."""
    process = PriceProcess(0.2)
    found = [synthetic_trace(process, 90 * 86_400.0, np.random.default_rng(3), start=5.0, name="s") for _ in range(2)]
    assert np.array_equal(found[0].times, found[1].times) and np.array_equal(found[0].prices, found[1].prices)
    other = synthetic_trace(process, 90 * 86_400.0, np.random.default_rng(4))
    assert other.prices.size != found[0].prices.size or (other.prices != found[0].prices).any()
    trace = found[0]
    assert (trace.start, trace.end, trace.name) == (5.0, 5.0 + 90 * 86_400.0, "s")
    assert np.abs(trace.prices / 1e-4 - np.rint(trace.prices / 1e-4)).max() < 1e-6 and trace.prices.max() <= 12.0


@pytest.mark.parametrize("change", [{"on_demand": 0.0}, {"spikes": 1.5}, {"highest": 1.0}, {"drift": -1.0}])
def test_what_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        PriceProcess(**{"on_demand": 1.0, **change})
    with pytest.raises(InputError, match="duration_s"):
        synthetic_trace(PriceProcess(1.0), 0.0, np.random.default_rng(0))
