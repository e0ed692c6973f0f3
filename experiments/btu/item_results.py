"""What a run of single messages did and cost: compliance, penalties, bills. See docs/specs/btu.md, sections 2.3, 4."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Seconds by which the end of a life may miss the end of a unit.
_SLACK_S = 1e-6
#: Levels of compliance, and the multiple of the objective that a message may take.
LEVELS = {"real-time": 1.0, "near-real-time": 2.0, "relaxed": 5.0}


class Life(NamedTuple):
    """Of a host, in seconds since the beginning; one that never worked has `end_s` before `ready_s`."""

    leased_s: float
    ready_s: float
    end_s: float


class Minute(NamedTuple):
    """What runs at a provisioning cycle; `objective` is the source's J, a diagnostic."""

    machines: int
    instances: int
    hosts: int
    waiting: int
    objective: float


def units_of(life: Life, unit_s: float) -> int:
    """Billing time units of a host: every started one, and at least one."""
    return max(1, math.ceil((life.end_s - life.ready_s - _SLACK_S) / unit_s))


def cost_of(lives: Iterable[Life], unit_s: float, price_per_minute: float = 0.1) -> float:
    """Price of hosts that are billed by units."""
    return sum(units_of(life, unit_s) for life in lives) * unit_s / 60.0 * price_per_minute


@dataclass(frozen=True, eq=False)
class ItemResult:
    """A run.

    Attributes
    ----------
    seen : int64, shape (minutes, operators, 4)
        By the minute of arrival at the operator: messages that were completed, then those that missed each level;
        what is unfinished at the end is counted as missed where it is too old already.
    unfinished : int
        Messages that waited, or were being served, at the end.
    lives : tuple of Life
    unit_s, penalty, price_per_minute : float
    leases, prolongings, early_releases, failed_plans : int
        Early is before the end of a paid unit. Plans to empty a host fail when they are infeasible, or when the host is
        not empty by the end of its unit; the last host, for which none is made, does not count.
    ups, downs, migrations : int
        Of instances.
    adapting_s : float
        Mean time until a delayed operator was in time again; NaN where none was.
    minutes : tuple of Minute
    """

    seen: NDArray[np.int64]
    unfinished: int
    lives: tuple[Life, ...]
    unit_s: float
    penalty: float
    price_per_minute: float
    leases: int
    prolongings: int
    early_releases: int
    failed_plans: int
    ups: int
    downs: int
    migrations: int
    adapting_s: float
    minutes: tuple[Minute, ...]

    @property
    def messages(self) -> int:
        """Messages that operators have completed."""
        return int(self.seen[:, :, 0].sum())

    @property
    def misses(self) -> NDArray[np.int64]:
        """Messages that missed each level."""
        return np.asarray(self.seen[:, :, 1:].sum(axis=(0, 1)), np.int64)

    def compliance(self, since_minute: int = 0) -> NDArray[np.float64]:
        """Share of the messages that arrived since a minute and met each level."""
        part = self.seen[since_minute:].sum(axis=(0, 1))
        return np.asarray(1.0 - part[1:] / max(1, part[0]), np.float64)

    @property
    def paid(self) -> float:
        """Price of what was paid for: units that were leased, and those they were prolonged by."""
        return (self.leases + self.prolongings) * self.unit_s / 60.0 * self.price_per_minute

    def resource_cost(self, unit_s: float | None = None) -> float:
        """Price of the hosts, if they are billed by such units; default: those of the run."""
        return cost_of(self.lives, self.unit_s if unit_s is None else unit_s, self.price_per_minute)

    def total_costs(self, unit_s: float | None = None, penalty: float | None = None) -> NDArray[np.float64]:
        """Price of the hosts and of delayed messages, for each level."""
        each = self.penalty if penalty is None else penalty
        return np.asarray(self.resource_cost(unit_s) + each * self.misses, np.float64)

    @property
    def changes(self) -> int:
        """Instances added, removed and moved."""
        return self.ups + self.downs + self.migrations

    def mean(self, column: str) -> float:
        """Of a column of `minutes`."""
        return float(np.mean([getattr(minute, column) for minute in self.minutes]))

    def most(self, column: str) -> float:
        """The greatest value of a column of `minutes`."""
        return float(max(getattr(minute, column) for minute in self.minutes))
