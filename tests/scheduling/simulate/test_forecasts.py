"""Forecasts: oracles, their errors, and models of the past."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.tsa.ar_model import AutoReg
from statsmodels.tsa.holtwinters import SimpleExpSmoothing

from goffish.cloud.variability import like_ec2, steady
from goffish.errors import InputError
from goffish.scheduling.control.forecasts import (
    ForecastError,
    FromPast,
    Oracle,
    arima,
    exponential_smoothing,
    last_value,
    moving_mean,
)
from goffish.scheduling.policies.observation import Forecast
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.simulate.policies import Fixed, catalogue, chain

FLOW = chain(1.0, 1.0, rate=5.0)


def test_errors_grow_over_the_horizon() -> None:
    """PLAStiCC G8, to the digit; breaks when variance and standard deviation are mixed up."""
    error = ForecastError(0.1)
    assert error.deviations(6) == pytest.approx([0, 0.1414, 0.2, 0.2449, 0.2828, 0.3162], abs=5e-5)
    assert 2 * error.deviations(6) ** 2 == pytest.approx([0, 0.04, 0.08, 0.12, 0.16, 0.20])
    half = ForecastError(0.1, "stddev").deviations(6)
    assert 2 * half == pytest.approx([0, 0.04, 0.08, 0.12, 0.16, 0.20]) and error.deviations(1).tolist() == [0]


@pytest.mark.parametrize(("mode", "expected"), [("variance", 0.1414), ("stddev", 0.02)])
def test_errors_are_drawn_as_they_are_defined(mode: str, expected: float) -> None:
    """G8: the sample's mean within 1 %, and its deviation; breaks when errors are not relative, or shared by series."""
    many = 100_000
    exact = Forecast(3, np.full((2, many), 10.0), {})
    wrong = ForecastError(0.1, mode).applied(exact, 6, np.ones(many, bool)).rates / 10.0  # type: ignore[arg-type]
    assert (wrong[0] == 1).all() and wrong[1].mean() == pytest.approx(1, rel=0.01)
    assert wrong[1].std() == pytest.approx(expected, rel=0.01)


def test_biases() -> None:
    """Below 0, resources look worse than they are; limits hold; the same forecast is wrong in the same way twice."""
    exact = Forecast(3, np.array([[10.0, 0.0]]), {4: np.array([0.8])})
    inputs = np.array([True, False])
    low, high = (ForecastError(0.0, bias=bias).applied(exact, 1, inputs) for bias in (-0.05, 0.05))
    assert low.rates.tolist() == [[10.5, 0]] and low.speeds[4] == pytest.approx([0.76])
    assert high.rates.tolist() == [[9.5, 0]] and high.speeds[4] == pytest.approx([0.84])
    same = ForecastError(0.0, bias=0.05, same_sign=True).applied(exact, 1, inputs)
    assert same.rates.tolist() == [[10.5, 0]] and same.speeds[4] == pytest.approx([0.84])
    wild = Forecast(3, np.full((12, 2), 10.0), {n: np.full(12, 0.9) for n in range(200)})
    error = ForecastError(0.9, seed=1)
    first, second = error.applied(wild, 12, inputs), error.applied(wild, 12, inputs)
    assert first.rates.min() == 0 and first.rates[:, 0].min() >= 0.01 and (first.rates[:, 1] == 0).all()
    speeds = np.array([first.speeds[n] for n in range(200)])
    assert speeds.min() == 0.05 and speeds.max() == 1.0 and len(set(speeds[:, 5])) > 50
    assert np.array_equal(first.rates, second.rates) and np.array_equal(first.speeds[9], second.speeds[9])
    fewer = error.applied(Forecast(3, wild.rates, {9: wild.speeds[9]}), 12, inputs)
    assert np.array_equal(fewer.speeds[9], first.speeds[9])
    later = error.applied(wild._replace(step=4), 12, inputs)
    assert not np.array_equal(later.rates, first.rates)
    with pytest.raises(InputError):
        ForecastError(-0.1)


def test_oracles_tell_what_will_be_observed() -> None:
    """Breaks when a forecast and the run do not speak of the same intervals or machines; J7 without an error."""
    rates = np.zeros((12, 2))
    rates[:, 0] = np.arange(12) + 1.0
    machines = like_ec2(2)
    policy = Fixed([{0: 1}, {1: 1}])
    oracle = Oracle(rates, machines, 300.0, horizon=4, every=2)
    simulate(FLOW, catalogue(), policy, rates, machines, oracle, interval_s=300)
    steps = [s.forecast.step for s in policy.seen if s.forecast]
    assert steps == [0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]
    last = policy.seen[-1]
    for observation in policy.seen:
        told = observation.forecast
        assert told is not None and len(told.rates) == min(4, 12 - told.step)
        assert np.array_equal(told.rates, rates[told.step : told.step + 4])
        for number in (0, 1):
            seen = last.speeds[number][told.step : told.step + 4]
            assert told.speeds[number][: seen.size] == pytest.approx(seen)
    none = Oracle(rates, machines, 300.0, error=ForecastError(0.0, seed=9)).forecast(2, 12, rates[:2], {0: np.ones(2)})
    exact = Oracle(rates, machines, 300.0).forecast(2, 12, rates[:2], {0: np.ones(2)})
    assert np.array_equal(none.rates, exact.rates) and np.array_equal(none.speeds[0], exact.speeds[0])


def test_models_of_the_past() -> None:
    """Breaks when a stream is forecast from another one, or from values that nobody has seen yet."""
    rates = np.array([[4.0, 0], [6.0, 0], [8.0, 0]])
    naive = FromPast(FLOW, horizon=3, rates=last_value(), speeds=moving_mean(2))
    told = naive.forecast(3, 100, rates, {0: np.array([0.9, 0.5, 0.7]), 1: np.zeros(0)})
    assert told.rates.tolist() == [[8, 0]] * 3 and told.speeds[0] == pytest.approx([0.6] * 3) and 1 not in told.speeds
    assert FromPast(FLOW, horizon=2, rates=moving_mean(2)).forecast(3, 4, rates, {}).rates.tolist() == [[7, 0]]
    assert naive.forecast(0, 100, rates[:0], {}).rates.tolist() == [[5, 0]] * 3
    for horizon, every in ((0, 1), (1, 0)):
        with pytest.raises(InputError):
            FromPast(FLOW, horizon, every)
        with pytest.raises(InputError):
            Oracle(rates, steady(), 300.0, horizon, every)


def test_smoothing_and_arima() -> None:
    """Against statsmodels' other estimators; breaks when the model sees other values than the newest ones."""
    rng = np.random.default_rng(0)
    seen = np.zeros(300)
    for at in range(1, 300):
        seen[at] = 0.8 * seen[at - 1] + rng.normal()
    seen += 20.0
    smooth = exponential_smoothing(window=100)(seen, 3)
    assert smooth == pytest.approx(SimpleExpSmoothing(seen[-100:], initialization_method="estimated").fit().forecast(3))
    fitted = arima((1, 0, 0), window=250)(seen, 3)
    ols = AutoReg(seen[-250:], 1).fit()
    assert fitted == pytest.approx(ols.forecast(3), abs=0.1)
    # A line goes on as a line; short and constant series stay as they are.
    line = np.arange(60.0)
    assert arima((1, 1, 0))(line, 2) == pytest.approx([60, 61], abs=0.2)
    assert exponential_smoothing(trend=True)(line, 2) == pytest.approx([60, 61], abs=0.5)
    for model in (exponential_smoothing(), arima()):
        assert model(np.array([1.0, 3.0]), 2).tolist() == [3, 3] and model(np.full(50, 2.0), 1).tolist() == [2]
    with pytest.raises(InputError):
        moving_mean(0)
    with pytest.raises(InputError):
        arima((1, -1, 0))


def test_a_run_with_a_model_of_the_past() -> None:
    """Breaks when a forecaster cannot be driven by the simulator, from the first interval on."""
    rates = np.zeros((30, 2))
    rates[:, 0] = 5 + np.sin(np.arange(30) / 3)
    policy = Fixed([{0: 1}, {1: 1}])
    forecaster = FromPast(FLOW, horizon=2, every=4, rates=arima(), speeds=exponential_smoothing())
    simulate(FLOW, catalogue(), policy, rates, like_ec2(1), forecaster, interval_s=300)
    told = policy.seen[-1].forecast
    assert told is not None and told.step == 28 and told.rates[0, 0] == pytest.approx(rates[28, 0], abs=0.3)
