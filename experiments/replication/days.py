"""Days on which hosts crash, drawn at random: what exact availabilities are compared with.

See docs/specs/selective-replication.md, section 3.1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from experiments.replication import _day_kernels as kernels
from goffish.errors import InputError
from goffish.scheduling.policies.replication.model import Floats, Places, System


class Days(NamedTuple):
    """Drawn days of host crashes.

    Attributes
    ----------
    queries : float64, shape (queries,)
        Share of the days on which each query runs.
    days : float64, shape (runs,)
        Weighted share of the queries that run on each day.
    """

    queries: Floats
    days: Floats

    @property
    def mean(self) -> float:
        return float(self.days.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(self.days.std(ddof=1) / math.sqrt(self.days.size))


def crash_days(found: System, places: Places, runs: int, rng: np.random.Generator) -> Days:
    """Let hosts (and racks) crash independently on so many days.

    Parameters
    ----------
    places : bool, shape (operators, hosts)
    runs : int
        Days; rounded up to a multiple of 64.
    """
    if runs < 1:
        raise InputError(f"runs = {runs}: at least 1 is needed")
    days = -(-runs // 64) * 64
    alive = rng.random((found.hosts, days)) >= found.failures[:, None]
    if found.rack_failures.any():
        alive &= (rng.random((found.rack_failures.size, days)) >= found.rack_failures[:, None])[found.racks]
    up, total = np.zeros(len(found.queries), np.int64), np.zeros(days)
    kernels.run_days(
        np.packbits(alive, axis=1, bitorder="little").view(np.uint64),
        np.concatenate(([0], np.cumsum(places.sum(axis=1)))).astype(np.int64),
        np.nonzero(places)[1].astype(np.int64),
        np.concatenate(([0], np.cumsum([some.size for some in found.queries]))).astype(np.int64),
        found.query_operators, found.weights, up, total,
    )  # fmt: skip
    return Days(up / days, total / max(found.weights.sum(), 1e-300))
