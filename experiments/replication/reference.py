"""The optimum of small systems, and a genetic search to compare with.

See docs/specs/selective-replication.md, section 3.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.availability import (
    aggregated,
    availability_of,
    query_availabilities,
)
from goffish.scheduling.policies.replication.model import (
    SLACK,
    Floats,
    Ints,
    Places,
    System,
    check,
    host_loads,
    primaries,
    replica_load,
)
from goffish.scheduling.policies.replication.optimiser import Planned

#: Plans that brute force looks at, at most.
MOST_PLANS = 2_000_000


class AllPlans:
    """Every plan with at most one replica of each operator: its cost, and the mean availability of the queries.

    Attributes
    ----------
    cost, availability : float64, shape (plans,)
        Infinite cost where a host is overloaded. Digit `i` of a plan's number, to the base `hosts`, is the host of
        operator i's copy; its primary's host means that there is none.
    """

    def __init__(self, found: System) -> None:
        if found.limited or found.spread_by_rack or found.pinned.any() or found.draining.any():
            raise InputError("brute force knows no limits but cores")
        self.found = found
        count = found.hosts**found.operators
        if count > MOST_PLANS:
            raise InputError(f"{count} plans: brute force takes at most {MOST_PLANS}")
        number = np.arange(count)
        digits = [(number // found.hosts**o) % found.hosts for o in range(found.operators)]
        load = np.tile(host_loads(found, primaries(found)), (count, 1))
        self.cost = np.zeros(count)
        for operator, digit in enumerate(digits):
            extra = np.where(digit == found.primary[operator], 0.0, found.loads[operator])
            self.cost += extra
            load[number, digit] += extra
        self.cost[(load > found.capacity + SLACK).any(axis=1)] = np.inf
        exact = availability_of(found)
        self.availability = np.zeros(count)
        for some in found.queries:
            table = np.zeros((found.hosts,) * some.size)
            for hosts in product(range(found.hosts), repeat=some.size):
                masks = {1 << int(found.primary[o]) | 1 << h for o, h in zip(some.tolist(), hosts, strict=True)}
                table[hosts] = exact.of(masks)
            self.availability += table[tuple(digits[o] for o in some.tolist())] / len(found.queries)

    def cheapest(self, target: float) -> float:
        """Least cost of a plan that reaches a target; infinite if none does."""
        return float(self.cost[self.availability >= target - 1e-12].min(initial=np.inf))

    def best(self, limit: float) -> float:
        """Greatest availability of a plan within a limit of load."""
        return float(self.availability[self.cost <= limit + SLACK].max())


def genetic_plan(
    found: System,
    rng: np.random.Generator,
    *,
    target: float | None = None,
    limit: float | None = None,
    seeds: Sequence[Places] = (),
    population: int = 60,
    generations: int = 200,
) -> Planned:
    """A plan with at most one replica of each operator, by a genetic search.

    Parameters
    ----------
    target, limit : float, optional
        One of them, as of `plan_replicas`.
    seeds : sequence of bool arrays, shape (operators, hosts)
        Plans that half of the population begins as.
    """
    if (target is None) == (limit is None):
        raise InputError("one of target and limit is needed")
    search = _Search(found, rng, target, limit)
    people = [search.genes_of(places) for places in seeds][: population // 2]
    people = [people[at % len(people)] for at in range(population // 2)] if people else []
    people += [search.random() for _ in range(population - len(people))]
    people = [search.repaired(one) for one in people]
    for _ in range(generations):
        fitness = np.array([search.fitness(one) for one in people])
        order = np.argsort(-fitness, kind="stable")
        nextone = [people[at] for at in order[:2].tolist()]
        while len(nextone) < population:
            mother, father = (people[search.chosen(fitness)] for _ in range(2))
            mixed = rng.random(mother.size) < 0.5 if rng.random() < 0.9 else np.ones(mother.size, np.bool_)
            nextone.append(search.repaired(search.mutated(np.where(mixed, mother, father))))
        people = nextone
    best = max(people, key=search.fitness)
    places = search.places(best)
    check(found, places)
    values = query_availabilities(found, places, search.exact)
    mean = aggregated(found, values)
    reached = limit is not None or (target is not None and mean >= target - 1e-12)
    return Planned(places, mean, aggregated(found, values, "min"), replica_load(found, places), reached)


class _Search:
    def __init__(self, found: System, rng: np.random.Generator, target: float | None, limit: float | None) -> None:
        self.found, self.rng, self.target, self.limit = found, rng, target, limit
        self.exact = availability_of(found)
        # Only operators that a query uses, only hosts with room.
        self.room: Floats = found.capacity - host_loads(found, primaries(found))
        self.choices = [
            [
                h
                for h in range(found.hosts)
                if h != home and self.room[h] >= load - SLACK and not found.draining[h] and degree and not pinned
            ]
            for home, load, degree, pinned in zip(
                found.primary.tolist(), found.loads.tolist(), found.degrees.tolist(), found.pinned.tolist(), strict=True
            )
        ]
        self._known: dict[bytes, float] = {}

    def places(self, genes: Ints) -> Places:
        made = primaries(self.found)
        rows = np.flatnonzero(genes >= 0)
        made[rows, genes[rows]] = True
        return made

    def genes_of(self, places: Places) -> Ints:
        extra = places & ~primaries(self.found)
        return np.where(extra.any(axis=1), extra.argmax(axis=1), -1).astype(np.int64)

    def random(self) -> Ints:
        genes = np.full(self.found.operators, -1, np.int64)
        for operator, hosts in enumerate(self.choices):
            if hosts and self.rng.random() < 0.5:
                genes[operator] = self.rng.choice(hosts)
        return genes

    def chosen(self, fitness: Floats) -> int:
        some = self.rng.integers(fitness.size, size=3)
        return int(some[fitness[some].argmax()])

    def mutated(self, genes: Ints) -> Ints:
        genes = genes.copy()
        for operator in np.flatnonzero(self.rng.random(genes.size) < 1.0 / genes.size).tolist():
            hosts = self.choices[operator]
            if hosts:
                genes[operator] = -1 if genes[operator] >= 0 and self.rng.random() < 0.5 else self.rng.choice(hosts)
        return genes

    def repaired(self, genes: Ints) -> Ints:
        """Without the copies of least queries for a unit of load, where a host is over-full."""
        found, genes = self.found, genes.copy()
        worth = found.degrees / np.maximum(found.loads, 1e-300)
        for host in range(found.hosts):
            some = np.flatnonzero(genes == host)
            load = float(found.loads[some].sum())
            for operator in some[np.lexsort((some, worth[some]))].tolist():
                if load <= self.room[host] + SLACK:
                    break
                genes[operator] = -1
                load -= float(found.loads[operator])
        return genes

    def fitness(self, genes: Ints) -> float:
        key = genes.tobytes()
        if key not in self._known:
            places = self.places(genes)
            value = aggregated(self.found, query_availabilities(self.found, places, self.exact))
            cost = replica_load(self.found, places)
            if self.limit is not None:
                self._known[key] = value - 10 * max(0.0, cost - self.limit) / max(self.limit, 1e-9)
            else:
                self._known[key] = -cost - 1000 * max(0.0, float(self.target or 0.0) - value)
        return self._known[key]
