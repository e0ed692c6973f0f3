"""First level: in every cycle, start instances for operators that need them, on hosts that are already paid for.

See docs/specs/btu.md, sections 3.0, 3.1, 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from goffish.scheduling.policies.btu.ending import empty_host, prolong
from goffish.scheduling.policies.btu.model import Action, ClusterState, LeasedMachine, Settings
from goffish.scheduling.policies.btu.ranking import best_donor, best_host, donor_host


class Autoscaler(Protocol):
    """Interface of a controller to a simulation or policy; decisions are applied to the state before they are returned.

    Attributes
    ----------
    by_units : bool
        Whether hosts are examined shortly before the end of each unit, and released only then. Otherwise hosts are
        released when they are empty.
    settings : Settings
    """

    @property
    def by_units(self) -> bool: ...

    @property
    def settings(self) -> Settings: ...

    def cycle(self, state: ClusterState, rng: np.random.Generator) -> list[Action]:
        """Run a provisioning cycle."""
        ...

    def host_end(self, state: ClusterState, host: int, unit_s: float) -> list[Action]:
        """Handle a host shortly before the end of its unit."""
        ...

    def unit_end(self, state: ClusterState, host: int, unit_s: float, empty: bool) -> list[Action]:
        """Handle the end of the unit of a host that is being emptied."""
        ...


@dataclass(frozen=True)
class BtuController:
    """The controller of the paper.

    Attributes
    ----------
    settings : Settings
    """

    settings: Settings = field(default_factory=Settings)
    by_units: bool = True

    def cycle(self, state: ClusterState, rng: np.random.Generator) -> list[Action]:
        """Scale up overloaded operators in random order; an operator without instances gets one in any case."""
        done: list[Action] = []
        for operator in rng.permutation(state.operators.size).tolist():
            times, queue = 0, state.queues[operator]
            objective = state.operators.objective_s[operator]
            if needs_instance(state.durations[operator], objective, queue, self.settings):
                double = self.settings.double_above
                times = 2 if double is not None and queue > double else 1
            elif not state.counts[operator]:
                times = 1
            for _ in range(times):
                done += scale_up(state, operator, self.settings)
        return done

    def host_end(self, state: ClusterState, host: int, unit_s: float) -> list[Action]:
        """Start to empty the host, or pay for one more unit."""
        return empty_host(state, host, unit_s, self.settings)

    def unit_end(self, state: ClusterState, host: int, unit_s: float, empty: bool) -> list[Action]:
        """Release the host if it is empty; otherwise keep it for one more unit."""
        if empty:
            del state.hosts[host]
            return [Action("release", host)]
        state.hosts[host].closing = False
        return [Action("reopen", host), prolong(state, host, unit_s)]


def scale_up(state: ClusterState, operator: int, settings: Settings) -> list[Action]:
    """Start an instance: on a host with free capacity, else after removing surplus instances, else on a new host."""
    done: list[Action] = []
    host: LeasedMachine | None = best_host(state, operator, settings)
    if host is None:
        room = make_room(state, operator, settings)
        if room is not None:
            for donor, place in room.donors:
                done.append(state.drain(donor, place))
                state.scalings[donor] += 1
            host = state.hosts[room.target]
    if host is None:
        host = state.lease()
        if host is None:
            return done
        done.append(Action("lease", host.number))
    done.append(state.start(operator, host.number))
    state.raised(operator)
    return done


@dataclass(frozen=True)
class Room:
    """Instances to remove, as (operator, host), and the host with free capacity afterwards."""

    donors: tuple[tuple[int, int], ...]
    target: int


def make_room(state: ClusterState, operator: int, settings: Settings) -> Room | None:
    """Find instances of other operators to remove until one of the operator fits, without changes. None if impossible.

    Parameters
    ----------
    state : ClusterState
    operator : int
        The operator to place; it is never its own donor.
    settings : Settings
    """
    if settings.donors == 0:
        return None
    trial = state.copy()
    tried = [0] * state.operators.size
    removed: list[tuple[int, int]] = []
    while True:
        among = [k for k, times in enumerate(tried) if k != operator and times < settings.donors]
        donor = best_donor(trial, settings, among)
        if donor is None:
            return None
        tried[donor] += 1
        place = donor_host(trial, donor, operator)
        if place is None:
            continue
        place.placed[donor] -= 1
        removed.append((donor, place.number))
        target = best_host(trial, operator, settings)
        if target is not None:
            return Room(tuple(removed), target.number)


def predicted_duration(durations: Sequence[float]) -> float:
    """Predict the next duration by least squares over the index of the last durations, oldest first.

    The published index runs from the newest to the oldest, and therefore predicts the past.

    Parameters
    ----------
    durations : sequence of float
        At least two.
    """
    n = len(durations)
    middle, mean = (n + 1) / 2, sum(durations) / n
    along = sum((i - middle) * (x - mean) for i, x in enumerate(durations, 1))
    slope = along / sum((i - middle) ** 2 for i in range(1, n + 1))
    return mean - slope * middle + slope * (n + 1)


def needs_instance(durations: Sequence[float], objective: float, queue: float, settings: Settings) -> bool:
    """Whether an operator misses its objective, or will, and enough messages are queued (Algorithm 1, E1, E2).

    Parameters
    ----------
    durations : sequence of float
        Last measured durations, oldest first, in the unit of `objective`.
    objective, queue : float
    settings : Settings
    """
    if not durations:
        # A stuck single instance measures nothing.
        return queue > 5 * settings.threshold
    late = durations[-1] > objective
    if not late and len(durations) > 1:
        late = predicted_duration(durations[-settings.window :]) > objective
    return late and queue > settings.threshold
