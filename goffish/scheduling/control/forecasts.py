"""Forecasts of the next intervals: oracles with or without errors, and models of past values.

See docs/specs/plasticc.md, sections 2.3 and 2.4. Smoothing and ARIMA of one series come from statsmodels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.variability import Variability
from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.policies.observation import Forecast
from goffish.scheduling.policies.period import quantile_path

ErrorMode = Literal["variance", "stddev"]
#: Limits of predicted values (§2.4).
LEAST_SPEED, MOST_SPEED, LEAST_RATE = 0.05, 1.0, 0.01


class Forecaster(Protocol):
    """Predicts rates and speeds of the next intervals.

    Attributes
    ----------
    every : int
        Intervals between two forecasts; in between, the latest one applies.
    """

    every: int

    def forecast(self, step: int, steps: int, rates: Floats, speeds: Mapping[int, Floats]) -> Forecast | None:
        """Return the forecast from interval `step` on, or ``None`` after the last of `steps`.

        Parameters
        ----------
        step, steps : int
        rates : float64, shape (step, elements)
            External input so far.
        speeds : mapping from machine id to float64
            Coefficients of the live machines so far; empty for a machine that has not worked yet.
        """
        ...


@dataclass(frozen=True)
class ForecastError:
    """A forecast error that grows over the horizon (§2.4).

    Attributes
    ----------
    mean : float
        Mean error as in the papers: the envelope grows from 0 to twice this value.
    mode : {"variance", "stddev"}
        Meaning of half of the envelope; the paper's text says variance.
    bias : float
        Speeds are multiplied by ``1 + bias``, rates by ``1 - bias``; a negative bias is pessimistic.
    same_sign : bool
        Multiply speeds and rates by ``1 + bias``.
    seed : int
    """

    mean: float = 0.0
    mode: ErrorMode = "variance"
    bias: float = 0.0
    same_sign: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.mean >= 0 or not -1 < self.bias < 1:
            raise InputError(
                f"forecast error = {self.mean:g}, bias = {self.bias:g}: must be 0 or more, and between -1 and 1"
            )

    def deviations(self, horizon: int) -> Floats:
        """Standard deviation of the relative error in each interval of a horizon."""
        if horizon == 1:
            return np.zeros(1)
        half = self.mean * np.arange(horizon) / (horizon - 1)
        return np.sqrt(half) if self.mode == "variance" else half

    def applied(self, forecast: Forecast, horizon: int, inputs: NDArray[np.bool_]) -> Forecast:
        """Add errors to a forecast, drawn separately for each forecast, series and interval.

        Parameters
        ----------
        forecast : Forecast
            At most `horizon` intervals.
        horizon : int
        inputs : bool, shape (elements,)
            PEs with an external stream; the others remain at 0.
        """
        if self.mean == 0 and self.bias == 0:
            return forecast
        count = len(forecast.rates)
        deviations = self.deviations(horizon)[:count]
        rng = np.random.default_rng([self.seed, 11, forecast.step])
        factor = 1.0 + self.bias if self.same_sign else 1.0 - self.bias
        rates = forecast.rates * (1.0 + rng.normal(0.0, 1.0, forecast.rates.shape) * deviations[:, None]) * factor
        speeds = {}
        for number in sorted(forecast.speeds):
            # Drawn per machine, so that an additional machine does not change the errors of the others.
            drawn = np.random.default_rng([self.seed, 12, forecast.step, number]).normal(0.0, 1.0, count)
            wrong = forecast.speeds[number] * (1.0 + drawn * deviations) * (1.0 + self.bias)
            speeds[number] = np.clip(wrong, LEAST_SPEED, MOST_SPEED)
        return forecast._replace(rates=np.where(inputs, np.maximum(rates, LEAST_RATE), 0.0), speeds=speeds)


@dataclass(eq=False)
class Oracle:
    """An oracle: predicts the actual rates, and the actual coefficients of the existing machines; links have no errors.

    Attributes
    ----------
    rates : float64, shape (steps, elements)
    variability : Variability
    interval_s : float
    horizon : int
    every : int
    error : ForecastError
        Default: none.
    """

    rates: Floats
    variability: Variability
    interval_s: float
    horizon: int = 4
    every: int = 2
    error: ForecastError = field(default_factory=ForecastError)

    def __post_init__(self) -> None:
        _refuse_none(self.horizon, self.every)

    def forecast(self, step: int, steps: int, rates: Floats, speeds: Mapping[int, Floats]) -> Forecast:
        count = min(self.horizon, steps - step)
        ids = np.array(sorted(speeds), np.int64)
        future = self.variability.future(ids, step * self.interval_s, self.interval_s, count)
        known = dict(zip(ids.tolist(), future, strict=True))
        links = {}
        if self.variability.network is not None and ids.size:
            starts = (step + np.arange(count)) * self.interval_s
            seen = [self.variability.bandwidths(ids, start, start + self.interval_s) for start in starts]
            links = dict(zip(ids.tolist(), np.array(seen).T, strict=True))
        exact = Forecast(step, self.rates[step : step + count].copy(), known, links)
        return self.error.applied(exact, self.horizon, np.asarray((self.rates > 0).any(axis=0), np.bool_))


#: Maps the values so far (at least one) and the number of values to predict to predictions.
SeriesModel = Callable[[Floats, int], Floats]


def last_value() -> SeriesModel:
    """Predict the last value: the naive forecast."""
    return lambda seen, horizon: np.full(horizon, seen[-1])


def moving_mean(window: int = 6) -> SeriesModel:
    """Predict the mean of the last values."""
    _refuse(window < 1, f"window = {window}: must be at least 1")
    return lambda seen, horizon: np.full(horizon, seen[-window:].mean())


def past_quantiles(window: int = 36) -> SeriesModel:
    """Predict equally likely values, quantiles of the last values (`quantile_path`), in place of the most likely ones.

    For plans on the mean of a horizon; the order of the values has no meaning.
    """
    _refuse(window < 1, f"window = {window}: must be at least 1")
    return lambda seen, horizon: quantile_path(seen[-window:], horizon)


def exponential_smoothing(*, trend: bool = False, least: int = 6, window: int = 96) -> SeriesModel:
    """Exponential smoothing, with or without a damped trend; its weights are fitted to the last `window` values.

    With fewer than `least` values, the last value is predicted.
    """
    statsmodels = _statsmodels("statsmodels.tsa.holtwinters")

    def model(seen: Floats, horizon: int) -> Floats:
        if seen.size < least or np.ptp(seen) == 0:
            return np.full(horizon, seen[-1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = (
                statsmodels.Holt(seen[-window:], damped_trend=True, initialization_method="estimated")
                if trend
                else statsmodels.SimpleExpSmoothing(seen[-window:], initialization_method="estimated")
            )
            return np.asarray(made.fit().forecast(horizon), np.float64)

    return model


def arima(order: tuple[int, int, int] = (1, 0, 1), *, least: int = 12, window: int = 96) -> SeriesModel:
    """ARIMA of an order (p, d, q), fitted to the last `window` values by maximum likelihood.

    With fewer than `least` values, or if no model can be fitted, the last value is predicted.
    """
    statsmodels = _statsmodels("statsmodels.tsa.arima.model")
    _refuse(min(order) < 0, f"order = {order}: p, d and q must be 0 or more")

    def model(seen: Floats, horizon: int) -> Floats:
        if seen.size < max(least, sum(order) + 3) or np.ptp(seen) == 0:
            return np.full(horizon, seen[-1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = statsmodels.ARIMA(
                    seen[-window:], order=order, enforce_stationarity=False, enforce_invertibility=False
                )
                found = np.asarray(made.fit().forecast(horizon), np.float64)
            except (np.linalg.LinAlgError, ValueError):
                return np.full(horizon, seen[-1])
        return found if np.isfinite(found).all() else np.full(horizon, seen[-1])

    return model


@dataclass(eq=False)
class FromPast:
    """A model of each series: of every stream, and of the coefficients of every machine.

    Attributes
    ----------
    flow : Flow
        Its expected rates apply until rates were observed.
    horizon : int
    every : int
    rates, speeds : SeriesModel
        Default: the naive forecast, and the moving mean.
    """

    flow: Flow
    horizon: int = 4
    every: int = 2
    rates: SeriesModel = field(default_factory=last_value)
    speeds: SeriesModel = field(default_factory=moving_mean)

    def __post_init__(self) -> None:
        _refuse_none(self.horizon, self.every)

    def forecast(self, step: int, steps: int, rates: Floats, speeds: Mapping[int, Floats]) -> Forecast:
        count = min(self.horizon, steps - step)
        expected = np.tile(self.flow.rates, (count, 1))
        if len(rates):
            for element in np.flatnonzero((rates > 0).any(axis=0)).tolist():
                expected[:, element] = np.maximum(self.rates(rates[:, element], count), LEAST_RATE)
            silent = ~(rates > 0).any(axis=0)
            expected[:, silent] = 0.0
        known = {
            number: np.clip(self.speeds(seen, count), LEAST_SPEED, MOST_SPEED)
            for number, seen in speeds.items()
            if seen.size
        }
        return Forecast(step, expected, known)


def _refuse_none(horizon: int, every: int) -> None:
    _refuse(horizon < 1 or every < 1, f"horizon = {horizon}, every = {every}: must be at least 1 interval")


def _statsmodels(module: str) -> Any:
    import importlib

    with needed_for("forecasts"):
        return importlib.import_module(module)


def _refuse(wrong: bool, text: str) -> None:
    if wrong:
        raise InputError(text)
