"""Mean latency of one instance on the reference processor, as a function of its input rate (EDRP, §2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError

Floats = NDArray[np.float64]


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
