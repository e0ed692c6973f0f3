"""Models of one series: from the values so far to the next ones. Smoothing and ARIMA come from statsmodels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Floats

#: Takes the values so far (at least one) and how many are wanted.
SeriesModel = Callable[[Floats, int], Floats]


def last_value() -> SeriesModel:
    """What was seen last stays: the naive forecast."""
    return lambda seen, horizon: np.full(horizon, seen[-1])


def moving_mean(window: int = 6) -> SeriesModel:
    """The mean of the last values."""
    _refuse(window < 1, f"window = {window}: at least 1 is needed")
    return lambda seen, horizon: np.full(horizon, seen[-window:].mean())


def exponential_smoothing(*, trend: bool = False, least: int = 6, window: int = 96) -> SeriesModel:
    """Exponential smoothing, with a damped trend or without; its weights are fitted to the last `window` values.

    Of fewer than `least` values the last one stays.
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

    Of fewer than `least` values, and where no model can be fitted, the last one stays.
    """
    statsmodels = _statsmodels("statsmodels.tsa.arima.model")
    _refuse(min(order) < 0, f"order = {order}: p, d and q are 0 or more")

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


def _statsmodels(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            "this forecast needs statsmodels, which is not installed here: pip install statsmodels"
        ) from None


def _refuse(wrong: bool, text: str) -> None:
    if wrong:
        raise InputError(text)
