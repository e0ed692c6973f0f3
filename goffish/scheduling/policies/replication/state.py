"""A plan of replicas with incremental gains of changes, for the optimizer and the dynamic rules."""

from __future__ import annotations

import numpy as np

from goffish.scheduling.policies.replication.availability import (
    Aggregate,
    Availability,
    aggregated,
    availability_of,
    query_availabilities,
)
from goffish.scheduling.policies.replication.model import (
    SLACK,
    Floats,
    Places,
    System,
    host_loads,
    host_masks,
    network_use,
)

#: Pairs of operator and host: replicas to add or, if they exist, to remove.
Moves = tuple[tuple[int, int], ...]
#: Tolerance of a reached goal.
_NEAR = 1e-12


def meets(
    found: System, values: Floats, target: float | None, levels: Floats | None, aggregate: Aggregate = "mean"
) -> bool:
    """Whether the availabilities reach the level of each query or, without levels, the target if there is one."""
    if levels is not None:
        return bool((values >= levels - _NEAR).all())
    return target is None or aggregated(found, values, aggregate) >= target - _NEAR


class AvailabilityState:
    """A plan with the availability of every query, updated incrementally.

    Parameters
    ----------
    target : float, optional
        Target availability; gains above it do not count.
    exact : Availability, optional
        Evaluator of the system, with its cache.
    levels : float64, shape (queries,), optional
        Required availability of each query, instead of a target; gains above the level do not count.
    """

    def __init__(
        self,
        found: System,
        places: Places,
        aggregate: Aggregate,
        target: float | None,
        exact: Availability | None = None,
        levels: Floats | None = None,
    ) -> None:
        self.found, self.aggregate, self.levels = found, aggregate, levels
        # All levels are reached if the mean of the availabilities, each up to its level, is the mean of the levels.
        self.target = target if levels is None else aggregated(found, levels, aggregate)
        self.caps = np.full(len(found.queries), np.inf) if levels is None else levels
        self.exact = exact or availability_of(found)
        weights = found.weights if aggregate == "weighted" else np.ones(len(found.queries))
        self.shares: Floats = weights / max(float(weights.sum()), 1e-300)
        self.operators = [some.tolist() for some in found.queries]
        self.put(places)

    def put(self, places: Places) -> None:
        """Set the plan."""
        self.places = places.copy()
        self.masks = host_masks(self.places)
        self.values = query_availabilities(self.found, self.places, self.exact)
        self.left = self.found.capacity - host_loads(self.found, self.places)
        self.versions = [0] * len(self.operators)
        self._gains: dict[Moves, tuple[int, float]] = {}

    @property
    def value(self) -> float:
        return self.goal(self.values)

    def goal(self, values: Floats) -> float:
        """The objective, from availabilities."""
        return aggregated(self.found, np.minimum(values, self.caps), self.aggregate)

    @property
    def reached(self) -> bool:
        return self.target is not None and meets(self.found, self.values, self.target, self.levels, self.aggregate)

    def touched(self, moves: Moves) -> list[int]:
        """Queries served by any of the moved operators."""
        return sorted({query for operator, _ in moves for query in self.found.queries_of[operator]})

    def after(self, moves: Moves) -> dict[int, float]:
        """Availability of the affected queries after replicas are added or, if they exist, removed."""
        changed: dict[int, int] = {}
        for operator, host in moves:
            changed[operator] = changed.get(operator, self.masks[operator]) ^ (1 << host)
        return {
            query: self.exact.of({changed.get(o, self.masks[o]) for o in self.operators[query]})
            for query in self.touched(moves)
        }

    def gain(self, moves: Moves) -> float:
        """Gain of replicas in the objective; gains above the target do not count."""
        stamp = sum(self.versions[query] for query in self.touched(moves))
        known = self._gains.get(moves)
        if known is not None and known[0] == stamp and self.aggregate != "min":
            return self._capped(known[1])
        new = self.after(moves)
        if self.aggregate == "min":
            # Several queries can be the worst: any increase is progress.
            low = float(self.values.min())
            top = 1.0 if self.target is None else self.target
            return sum(min(v, top) - low for q, v in new.items() if self.values[q] <= low + 1e-12)
        total = sum(
            float(self.shares[q]) * (min(v, self.caps[q]) - min(float(self.values[q]), self.caps[q]))
            for q, v in new.items()
        )
        self._gains[moves] = (stamp, total)
        return self._capped(total)

    def _capped(self, gain: float) -> float:
        return gain if self.target is None else min(gain, self.target - self.value)

    def apply(self, moves: Moves) -> None:
        """Add replicas, or remove existing ones."""
        for query, value in self.after(moves).items():
            self.values[query] = value
            self.versions[query] += 1
        for operator, host in moves:
            sign = -1.0 if self.places[operator, host] else 1.0
            self.places[operator, host] ^= True
            self.masks[operator] ^= 1 << host
            self.left[host] -= sign * self.found.loads[operator]

    def load(self, moves: Moves) -> float:
        return float(sum(self.found.loads[operator] for operator, _ in moves))

    def may(self, operator: int, host: int) -> bool:
        """Whether a replica is permitted on a host, without regard to its capacity."""
        found = self.found
        if found.pinned[operator] or found.draining[host] or self.places[operator, host]:
            return False
        return not (found.spread_by_rack and found.racks[host] in found.racks[self.places[operator]])

    def carries(self, moves: Moves) -> bool:
        """Whether hosts and their network have the capacity for a change."""
        new = self.places.copy()
        for operator, host in moves:
            new[operator, host] ^= True
        if (host_loads(self.found, new) > self.found.capacity + SLACK).any():
            return False
        if not self.found.limited:
            return True
        return all((use <= self.found.network + SLACK).all() for use in network_use(self.found, new))
