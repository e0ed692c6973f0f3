"""A latency curve through measurements (docs/specs/edrp.md, section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from goffish.errors import InputError

Floats = NDArray[np.float64]
#: Points of a fitted curve between its lowest and its highest rate.
POINTS = 257


@dataclass(frozen=True, eq=False)
class Curve:
    """A latency through points; constant below the lowest rate, infinite above the highest.

    Attributes
    ----------
    rates, latencies : float64, shape (points,)
        Both in ascending order.
    """

    rates: Floats
    latencies: Floats

    def seconds(self, rates: Floats) -> Floats:
        given = np.asarray(rates, np.float64)
        return np.where(given > self.rates[-1], np.inf, np.interp(given, self.rates, self.latencies))


def fit_latency(rates: Floats, latencies: Floats, degree: int | None = None) -> Curve:
    """The least-squares polynomial through measurements, made increasing.

    Parameters
    ----------
    rates, latencies : float64, shape (measurements,)
        Messages per second of one instance on the reference processor, and seconds.
    degree : int, optional
        Default: 2 or 3, whichever leaves the smaller error at the points that it has not seen, one by one.

    Raises
    ------
    InputError
        Too few measurements, or a latency that is not positive.
    """
    x, y = np.asarray(rates, np.float64), np.asarray(latencies, np.float64)
    least = 5 if degree is None else degree + 1
    if x.shape != y.shape or x.ndim != 1 or np.unique(x).size < least:
        raise InputError(f"{x.size} rates and {y.size} latencies: at least {least} different rates, as many of both")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (y > 0).all() and (x >= 0).all()):
        raise InputError("measured rates must be 0 or more, latencies more than 0")
    chosen = degree if degree is not None else min((2, 3), key=lambda d: _left_out(x, y, d))
    grid = np.linspace(x.min(), x.max(), POINTS)
    fitted = np.polynomial.Polynomial.fit(x, y, chosen)(grid)
    rising = IsotonicRegression(y_min=float(y.min()) * 1e-3).fit_transform(grid, fitted)
    return Curve(grid, np.asarray(rising, np.float64))


def _left_out(x: Floats, y: Floats, degree: int) -> float:
    """Sum of squared errors at each rate, of the polynomial through the others."""
    total = 0.0
    for rate in np.unique(x):
        out = x == rate
        fitted = np.polynomial.Polynomial.fit(x[~out], y[~out], degree)
        total += float(((fitted(x[out]) - y[out]) ** 2).sum())
    return total
