"""Input rates: shapes of the papers, real requests, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.simulate import rates

ROAD = compile_flow(read_dataflow("linear-road"))


def test_waves_are_averaged_over_intervals() -> None:
    """§4.3 against numerical integration: breaks when a value is that of a moment."""
    found = rates.wave(10.0, 24, 300.0)
    for at in (0, 5, 13):
        exact, _ = quad(lambda t: 10 * (1 + 0.5 * np.sin(2 * np.pi * t / 3600)), at * 300, (at + 1) * 300)
        assert found[at] == pytest.approx(exact / 300)
    assert found.mean() == pytest.approx(10.0)


@given(st.integers(0, 10_000), st.floats(0.5, 1000))
def test_walks(seed: int, mean: float) -> None:
    """§4.3: from the mean, within half of it, steps of at most a tenth; the mean scales, and changes nothing else."""
    found = rates.walk(mean, 100, np.random.default_rng(seed))
    assert found[0] == mean and (np.abs(found / mean - 1) <= 0.5 + 1e-12).all()
    assert np.abs(np.diff(found)).max() <= 0.1 * mean * (1 + 1e-9)
    assert found == pytest.approx(mean * rates.walk(1.0, 100, np.random.default_rng(seed)))
    free = rates.free_walk(mean, 200, np.random.default_rng(seed))
    assert free[0] == mean and (free > 0).all() and (free <= 2 * mean).all() and free.std() > 0.2 * mean


def test_sources_that_are_on_and_off() -> None:
    """Breaks when the active part of a period that an interval cuts is not counted."""
    assert rates.on_off(6.0, 3, 300.0) == pytest.approx([3, 3, 3])
    # Periods of 60 s, on for 30 s; intervals of 45 s: 30, 15 + 0, 30 - 15 + ... by hand.
    assert rates.on_off(1.0, 4, 45.0) * 45 == pytest.approx([30, 30, 15, 15])
    assert rates.constant(4.0, 2).tolist() == [4, 4]


def test_spikes() -> None:
    found = rates.spikes(2.0, 5000, np.random.default_rng(0), height=5, probability=0.01, length=3)
    assert set(found) == {2.0, 10.0} and (found == 10).mean() == pytest.approx(1 - 0.99**3, rel=0.25)
    rises = np.flatnonzero(np.diff(found) > 0)
    assert all((found[at + 1 : at + 4] == 10).all() for at in rises)


def test_daily_streams() -> None:
    """Three sines of a day between 2 and 75, and noise that averages out in an interval.

    See docs/specs/plasticc.md, section 4.3.
    """
    found = rates.daily_streams(288, 300.0, np.random.default_rng(7))
    assert found.shape == (288, 3) and found.mean(axis=0) == pytest.approx(np.full(3, 38.5), rel=0.02)
    assert found.min() > 2 * 0.8 and found.max() < 75 * 1.2
    # A sine of a day fits; what is left is the mean of five values of up to 20 %.
    day = 2 * np.pi * (np.arange(288) + 0.4) / 288
    basis = np.stack([np.ones(288), np.sin(day), np.cos(day)], axis=1)
    fit, *_ = np.linalg.lstsq(basis, found, rcond=None)
    assert np.hypot(fit[1], fit[2]) == pytest.approx(np.full(3, 36.5), rel=0.02)
    left = (found - basis @ fit) / (basis @ fit)
    assert left[(basis @ fit) > 20].std() == pytest.approx(0.2 / np.sqrt(3) / np.sqrt(5), rel=0.15)
    phases = np.arctan2(fit[2], fit[1])
    assert np.abs(np.diff(phases)).min() > 0.01


#: Requests in the first 20 minutes of the published log.
FIRST_MINUTES = [42, 62, 58, 69, 70, 55, 52, 68, 49, 43, 52, 70, 56, 44, 20, 5, 83, 51, 63, 80]


def test_real_requests() -> None:
    """Breaks when the log is binned wrongly: its first minutes as published, and the mean that was asked for."""
    minutes = np.array(FIRST_MINUTES, np.float64)
    found = rates.requests(50.0, 4, 300.0)
    by_hand = minutes.reshape(4, 5).sum(axis=1)
    assert found == pytest.approx(by_hand * 50.0 / by_hand.mean())
    late = rates.requests(50.0, 2, 300.0, first_s=600.0)
    assert late[0] / late[1] == pytest.approx(by_hand[2] / by_hand[3])
    with pytest.raises(InputError, match="exceed the log of 5,059,920 s"):
        rates.requests(1.0, 10, 3600.0, first_s=5_059_020)
    for interval, first in ((90.0, 0.0), (0.0, 0.0), (60.0, 30.0), (60.0, -60.0)):
        with pytest.raises(InputError, match="must be multiples of 60 s"):
            rates.requests(1.0, 2, interval, first_s=first)


def test_streams_of_a_dataflow(tmp_path: Path) -> None:
    """Breaks when a stream lands on another element, or one that is not named is lost."""
    weather, reports = ROAD.names.index("weather"), ROAD.names.index("reports")
    both = rates.scaled(ROAD, np.array([1.0, 2.0]))
    assert both[:, reports].tolist() == [50, 100] and both[:, weather] == pytest.approx([0.1, 0.2])
    one = rates.streams(ROAD, {"reports": np.array([5.0, 6.0])})
    assert one[:, reports].tolist() == [5, 6] and (one[:, weather] == 0.1).all()
    assert (np.delete(one, [weather, reports], axis=1) == 0).all()
    (tmp_path / "r.csv").write_text("reports\n5\n6\n7\n")
    assert np.array_equal(rates.read_rates(tmp_path / "r.csv", ROAD, 2), one)
    with pytest.raises(InputError, match="rates: unknown input 'tolls'; accepted: weather, reports"):
        rates.streams(ROAD, {"tolls": np.ones(3)})
    with pytest.raises(InputError, match=r"rates: expected 9 intervals in each series, found \[3\]"):
        rates.streams(ROAD, {"reports": np.ones(3)}, 9)
