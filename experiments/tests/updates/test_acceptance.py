"""Acceptance checks of updates over many random phases: docs/specs/updates.md, section 6.

Few phases of each are in `tests/streaming/updates/test_simulated.py`.
"""

from __future__ import annotations

from random import Random

import pytest

from experiments.figures.updates import REFERENCE, share_mixed, sweep
from experiments.updates.cases import RATES, golden, parallel
from goffish.streaming.updates.versions import Strategy


@pytest.mark.slow
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("strategy", list(Strategy))
def test_golden_dataflow(strategy: Strategy, place: int) -> None:
    """U1, C3, C8: breaks when any of 100 random phases leaves (bound - 1/I, bound], or does not fill most of it."""
    rate, tolerance = RATES[place], 1e-9
    found = sweep(strategy, rate, 100, Random(place))
    refresh, lag = REFERENCE[strategy]
    refreshes = [cost.refresh or 0.0 for cost in found.costs]
    lags = [cost.lag for cost in found.costs]
    assert found.bounds.refresh == pytest.approx(refresh[place] / 1000)
    assert found.bounds.lag == pytest.approx(lag / 1000)
    stopped = strategy in (Strategy.NCL, Strategy.NCH)
    width = 0.0 if stopped else 1 / rate
    assert max(refreshes) <= refresh[place] / 1000 + tolerance
    assert min(refreshes) >= refresh[place] / 1000 - width - tolerance
    assert max(refreshes) - min(refreshes) >= 0.9 * width
    assert max(lags) <= lag / 1000 + tolerance
    assert min(lags) >= max(0.0, lag / 1000 - 1 / rate) - tolerance
    assert not any(cost.mixed for cost in found.costs)
    if stopped:
        assert all(first > last for first, last in zip(refreshes, lags, strict=True))
    assert min(found.lost) >= 0
    assert max(found.lost) <= found.bounds.loss
    assert (max(found.lost) > 0) == (strategy == Strategy.NCL)


@pytest.mark.slow
def test_changes_in_series() -> None:
    """Breaks when HTI does not mix in about a fifth of the runs: a message is 10 of 50 ms between P and A or C."""
    case, rng = golden(20.0, "PAC"), Random(2)
    runs, most = share_mixed(case, Strategy.HTI, 300, rng)
    assert runs / 300 == pytest.approx(57 / 300, abs=0.05)
    assert most == 2
    for strategy in (Strategy.MVC, Strategy.PVC):
        assert share_mixed(case, strategy, 300, rng) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "share"), [(5.0, 0.15), (10.0, 0.31), (20.0, 0.60)])
def test_parallel_changes(rate: float, share: float) -> None:
    """U4: breaks when PVC without pins mixes more or less often than X takes of the time between two inputs."""
    case, rng = parallel(rate), Random(3)
    assert share_mixed(case, Strategy.PVC, 300, rng, plain=True)[0] / 300 == pytest.approx(share, abs=0.05)
    assert share_mixed(case, Strategy.PVC, 300, rng) == (0, 0)
    assert share_mixed(case, Strategy.MVC, 300, rng) == (0, 0)
