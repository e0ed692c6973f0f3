"""Seeded price traces for when there is no history. See docs/specs/spot.md, section 7.4 (e).

Prices are piecewise constant: calm ones around a level, each for a log-normal time, and now and then a short spike of
1 to 60 times the price on demand (log-uniform). Level, times and frequency of spikes may drift from month to month.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goffish.cloud.prices import Trace, trace_of
from goffish.errors import InputError

MONTH_S = 30.0 * 86_400.0
#: Prices are multiples of this, as those of EC2 were.
TICK = 1e-4


@dataclass(frozen=True)
class PriceProcess:
    """What a synthetic price does.

    Attributes
    ----------
    on_demand : float
        Price of an hour on demand.
    calm : float
        Median of the calm prices, as a share of the price on demand.
    spread : float
        Standard deviation of the logarithm of calm prices.
    sojourn_s, sojourn_spread : float
        Median of the times for which a calm price holds, and standard deviation of their logarithm.
    spikes : float
        Probability that a calm price is followed by a spike. Spikes are followed by calm prices.
    spike_s : float
        Median of the times for which spikes hold; their spread is that of all times.
    highest : float
        Greatest spike, as a multiple of the price on demand.
    drift : float
        Standard deviation of the steps from month to month of the logarithms of `calm`, `sojourn_s` and `spikes`.
    """

    on_demand: float
    calm: float = 0.12
    spread: float = 0.15
    sojourn_s: float = 5400.0
    sojourn_spread: float = 1.0
    spikes: float = 0.05
    spike_s: float = 900.0
    highest: float = 60.0
    drift: float = 0.1

    def __post_init__(self) -> None:
        for name in ("on_demand", "calm", "sojourn_s", "spike_s"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name} = {getattr(self, name):g}: must be more than 0")
        for name in ("spread", "sojourn_spread", "drift"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"{name} = {getattr(self, name):g}: must be 0 or more")
        if not 0 <= self.spikes <= 1 or not 1 < self.highest < np.inf:
            raise InputError(f"spikes = {self.spikes:g}, highest = {self.highest:g}: a probability, and more than 1")


def synthetic_trace(
    process: PriceProcess, duration_s: float, rng: np.random.Generator, *, start: float = 0.0, name: str = "synthetic"
) -> Trace:
    """A price trace from one moment on.

    Parameters
    ----------
    process : PriceProcess
    duration_s : float
    rng : numpy.random.Generator
        The trace depends on its state and the parameters only.
    start : float
        Seconds since 1970.
    name : str

    Raises
    ------
    InputError
        If it lasts no time.
    """
    if not 0 < duration_s < np.inf:
        raise InputError(f"duration_s = {duration_s:g}: must be more than 0")
    months = int(duration_s // MONTH_S) + 1
    steps = process.drift * rng.standard_normal((months, 3))
    steps[0] = 0.0
    calm, sojourn, spikes = np.exp(np.cumsum(steps, axis=0)).T
    times: list[float] = []
    prices: list[float] = []
    now, spiking = 0.0, False
    while now < duration_s:
        month = int(now // MONTH_S)
        spiking = not spiking and bool(times) and rng.random() < min(1.0, process.spikes * spikes[month])
        if spiking:
            price = process.on_demand * float(np.exp(rng.uniform(0.0, np.log(process.highest))))
        else:
            price = (
                process.on_demand * process.calm * calm[month] * float(np.exp(process.spread * rng.standard_normal()))
            )
        median = process.spike_s if spiking else process.sojourn_s * sojourn[month]
        times.append(start + now)
        prices.append(max(TICK, round(price / TICK) * TICK))
        now += median * float(np.exp(process.sojourn_spread * rng.standard_normal()))
    times.append(start + duration_s)
    prices.append(prices[-1])
    return trace_of(times, prices, name)
