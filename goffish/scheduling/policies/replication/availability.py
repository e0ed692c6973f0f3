"""Availability of queries under crashes of hosts: exact, or sampled if exact computation takes too long.

See docs/specs/selective-replication.md, sections 2.4 and 3.1: every host fails within the period
independently with its own probability, and a query is broken if any of its operators has no replica on a live host.
Racks can fail as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.model import Floats, Ints, Places, System, host_masks

Aggregate = Literal["mean", "min", "weighted"]
#: Maximum number of recursive calls for a query before it is sampled, and the number of sampled days.
MOST_CALLS, SAMPLES = 1_000_000, 65_536


class _TooManyCalls(Exception):
    """The sets of a query are too entangled for the recursion."""


class Sampled(NamedTuple):
    """A probability and its standard error, 0 where it is exact."""

    value: float
    error: float


class Availability:
    """Computes the probability that all of some sets of hosts contain a live host; results are cached.

    Parameters
    ----------
    failures : sequence of float, shape (hosts,)
    racks : sequence of int, shape (hosts,), optional
    rack_failures : sequence of float, shape (racks,), optional
    most_calls : int
        Maximum number of recursive calls per family; beyond, days are sampled with a fixed seed.
    """

    def __init__(
        self,
        failures: Sequence[float] | Floats,
        racks: Sequence[int] | Ints | None = None,
        rack_failures: Sequence[float] | Floats | None = None,
        most_calls: int = MOST_CALLS,
    ) -> None:
        self.failures = [float(p) for p in failures]
        together = [] if rack_failures is None else [float(p) for p in rack_failures]
        self._rack_failures = together if any(together) else []
        rack = [0] * len(self.failures) if racks is None else [int(r) for r in racks]
        self._rack_masks = [
            sum(1 << host for host, at in enumerate(rack) if at == number) for number in range(len(together))
        ]
        self.most_calls = most_calls
        self._calls = 0
        self._known: dict[frozenset[int], Sampled] = {}
        self._inner: dict[tuple[int, ...], float] = {}

    def of(self, sets: Iterable[int]) -> float:
        """Availability of a family of host sets, each as the bits of a number."""
        return self.sampled(sets).value

    def sampled(self, sets: Iterable[int]) -> Sampled:
        """Availability with its standard error."""
        family = frozenset(sets)
        found = self._known.get(family)
        if found is None:
            self._calls = 0
            try:
                found = Sampled(self._over_racks(family), 0.0)
            except _TooManyCalls:
                found = self._drawn(family)
            self._known[family] = found
        return found

    def _over_racks(self, family: frozenset[int]) -> float:
        """Condition on the racks that the sets touch, which makes hosts independent."""
        union = 0
        for one in family:
            union |= one
        touched = [at for at, p in enumerate(self._rack_failures) if p and self._rack_masks[at] & union]
        total = 0.0
        for dead in product((False, True), repeat=len(touched)):
            weight, gone = 1.0, 0
            for at, fails in zip(touched, dead, strict=True):
                p = self._rack_failures[at]
                weight *= p if fails else 1.0 - p
                gone |= self._rack_masks[at] if fails else 0
            if weight:
                total += weight * self._exact(_minimal(one & ~gone for one in family))
        return total

    def _exact(self, sets: tuple[int, ...]) -> float:
        if not sets:
            return 1.0
        if sets[0] == 0:
            return 0.0
        if len(sets) == 1:
            return 1.0 - self._all_fail(sets[0])
        found = self._inner.get(sets)
        if found is None:
            self._calls += 1
            if self._calls > self.most_calls:
                raise _TooManyCalls
            found = self._inner[sets] = self._split(sets)
        return found

    def _split(self, sets: tuple[int, ...]) -> float:
        parts = _components(sets)
        if len(parts) > 1:
            return math.prod(self._exact(part) for part in parts)
        host = _most_common(sets)
        bit, p = 1 << host, self.failures[host]
        alive = self._exact(tuple(one for one in sets if not one & bit))
        dead = self._exact(_minimal(one & ~bit for one in sets)) if p else 0.0
        return (1.0 - p) * alive + p * dead

    def _all_fail(self, hosts: int) -> float:
        return math.prod(self.failures[host] for host in _bits(hosts))

    def _drawn(self, family: frozenset[int]) -> Sampled:
        rng = np.random.default_rng(0)
        alive = rng.random((len(self.failures), SAMPLES)) >= np.array(self.failures)[:, None]
        for mask, p in zip(self._rack_masks, self._rack_failures, strict=False):
            alive[_bits(mask)] &= rng.random(SAMPLES) >= p
        up = np.ones(SAMPLES, np.bool_)
        for one in sorted(family):
            up &= alive[_bits(one)].any(axis=0)
        value = float(up.mean())
        return Sampled(value, math.sqrt(max(value * (1.0 - value), 1.0 / SAMPLES) / SAMPLES))


def availability_of(found: System) -> Availability:
    """The evaluator for the hosts and racks of a system."""
    return Availability(found.failures, found.racks, found.rack_failures)


def query_availabilities(found: System, places: Places, exact: Availability | None = None) -> Floats:
    """Availability of every query under a plan, shape (queries,)."""
    exact = exact or availability_of(found)
    masks = host_masks(places)
    return np.array([exact.of({masks[o] for o in some.tolist()}) for some in found.queries])


def aggregated(found: System, values: Floats, aggregate: Aggregate = "mean") -> float:
    """Aggregate the availabilities of all queries; 1 without queries."""
    if aggregate not in ("mean", "min", "weighted"):
        raise InputError(f"aggregate = {aggregate!r}: must be one of mean, min, weighted")
    if not values.size:
        return 1.0
    if aggregate == "min":
        return float(values.min())
    weights = found.weights if aggregate == "weighted" else np.ones(values.size)
    return float(weights @ values / weights.sum())


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _minimal(sets: Iterable[int]) -> tuple[int, ...]:
    """Without duplicates and supersets, in a fixed order: small sets first."""
    kept: list[int] = []
    for one in sorted(set(sets), key=lambda s: (s.bit_count(), s)):
        if not any(small & one == small for small in kept):
            kept.append(one)
    return tuple(kept)


def _components(sets: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Families without common hosts; each keeps the order of its sets."""
    groups: list[tuple[int, list[int]]] = []
    for at, one in enumerate(sets):
        mask, members = one, [at]
        rest = []
        for other, some in groups:
            if other & mask:
                mask |= other
                members += some
            else:
                rest.append((other, some))
        groups = [*rest, (mask, members)]
    return [tuple(sets[at] for at in sorted(members)) for _, members in groups]


def _most_common(sets: tuple[int, ...]) -> int:
    counts: dict[int, int] = {}
    for one in sets:
        for host in _bits(one):
            counts[host] = counts.get(host, 0) + 1
    return min(counts, key=lambda host: (-counts[host], host))
