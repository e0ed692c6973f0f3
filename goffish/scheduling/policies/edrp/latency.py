"""Mean latency of one instance on the reference processor, as a function of its input rate (EDRP, §2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from goffish.errors import InputError

Floats = NDArray[np.float64]
#: Points of a fitted curve between its lowest and its highest rate.
POINTS = 257


class Latency(Protocol):
    """Seconds of queueing and service at a rate; increasing."""

    def seconds(self, rates: Floats) -> Floats:
        """At rates (messages per second); infinite where an instance cannot keep up."""
        ...


@dataclass(frozen=True)
class Queue:
    """A queue with Poisson arrivals and one server.

    Attributes
    ----------
    rate : float
        Messages that are served in a second (mu).
    variation : float
        Coefficient of variation of the service time: 1 is M/M/1, 0 M/D/1, others M/G/1.
    """

    rate: float
    variation: float = 1.0

    def __post_init__(self) -> None:
        if not self.rate > 0 or not self.variation >= 0:
            raise InputError(f"queue of rate {self.rate:g}, variation {self.variation:g}: more than 0 and 0 or more")

    def seconds(self, rates: Floats) -> Floats:
        """1/mu and the mean wait of Pollaczek and Khinchine."""
        given = np.asarray(rates, np.float64)
        left = np.where(given < self.rate, self.rate - given, 1.0)
        spread = 0.5 * (1.0 + self.variation**2)
        return np.where(given < self.rate, 1.0 / self.rate + given * spread / (self.rate * left), np.inf)


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
