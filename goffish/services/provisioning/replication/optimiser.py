"""The plan with the best availability for a limit, or the cheapest one for a target.

Specification of selective replication, §3.7: blocks of operators go, all at once, where they gain most for a unit of
load; what the result can do without is dropped again. `target` is goal G2 of the specification, `limit` is G1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.services.provisioning.replication.availability import (
    Aggregate,
    Availability,
    aggregated,
    availability_of,
    query_availabilities,
)
from goffish.services.provisioning.replication.blocks import blocks_of, spof_plan
from goffish.services.provisioning.replication.model import (
    SLACK,
    Floats,
    Places,
    System,
    check,
    host_loads,
    host_masks,
    network_use,
    primaries,
    replica_load,
)

#: From so many operators on, blocks are ordered by their first-order gain, as exact gains take too long.
LARGE = 500
#: Times that copies are moved, added and dropped again, at most.
ROUNDS = 10
#: Gains of availability below this are none.
LEAST = 1e-13
Moves = tuple[tuple[int, int], ...]


class Planned(NamedTuple):
    """A plan.

    Attributes
    ----------
    places : bool, shape (operators, hosts)
    availability : float
        Over all queries.
    lowest : float
        Of the worst query.
    cost : float
        Load of its replicas.
    feasible : bool
        Whether the target is reached; always with a limit.
    """

    places: Places
    availability: float
    lowest: float
    cost: float
    feasible: bool


def plan_replicas(
    found: System,
    *,
    target: float | None = None,
    limit: float | None = None,
    aggregate: Aggregate = "mean",
    start: Places | None = None,
    most: int = 1,
    blocks: bool = True,
    polish: bool = True,
) -> Planned:
    """Replicate with as little load as a target availability needs, or as well as a limit of load allows.

    Parameters
    ----------
    target, limit : float, optional
        One of them.
    aggregate : {"mean", "min", "weighted"}
        Of the availabilities of the queries.
    start : bool, shape (operators, hosts), optional
        Copies that run already; default: primaries.
    most : int
        Replicas of one operator.
    blocks : bool
        Whether several operators are copied at once; without, plans get stuck (§2.4, fact 3).
    polish : bool
        Whether copies are moved and swapped in the end.

    Raises
    ------
    InputError
        Neither or both of target and limit are given, or are out of range; the start breaks a constraint.
    """
    if (target is None) == (limit is None):
        raise InputError("one of target and limit is needed")
    if target is not None and not 0 <= target <= 1:
        raise InputError(f"target = {target:g}: a number from 0 to 1 is needed")
    if limit is not None and not limit >= 0:
        raise InputError(f"limit = {limit:g}: at least 0 is needed")
    begun = primaries(found) if start is None else start
    check(found, begun)
    state = State(found, begun, aggregate, target)
    if found.operators > LARGE:
        _large(state, target, limit)
    else:
        _greedy(state, limit, most, blocks)
        if target is not None and blocks and not state.reached:
            # Whatever filled the hosts badly: the same from what packs well, then less of it.
            other = State(found, spof_plan(found, found.full_load, places=begun).places, aggregate, target)
            _greedy(other, limit, most, blocks)
            state = other if other.value > state.value else state
    _prune(state)
    for _ in range(ROUNDS if polish and found.operators <= LARGE else 0):
        # What was moved can make room for more.
        before = state.places.copy()
        _polish(state)
        _greedy(state, limit, most, blocks)
        _prune(state)
        if (state.places == before).all():
            break
    value = aggregated(found, state.values, aggregate)
    lowest = aggregated(found, state.values, "min")
    return Planned(state.places, value, lowest, replica_load(found, state.places), target is None or state.reached)


class State:
    """A plan with the availability of every query, kept up to date."""

    def __init__(
        self,
        found: System,
        places: Places,
        aggregate: Aggregate,
        target: float | None,
        exact: Availability | None = None,
    ) -> None:
        self.found, self.aggregate, self.target = found, aggregate, target
        self.exact = exact or availability_of(found)
        weights = found.weights if aggregate == "weighted" else np.ones(len(found.queries))
        self.shares: Floats = weights / max(float(weights.sum()), 1e-300)
        self.operators = [some.tolist() for some in found.queries]
        self.put(places)

    def put(self, places: Places) -> None:
        """Take a plan over."""
        self.places = places.copy()
        self.masks = host_masks(self.places)
        self.values = query_availabilities(self.found, self.places, self.exact)
        self.left = self.found.capacity - host_loads(self.found, self.places)
        self.versions = [0] * len(self.operators)
        self._gains: dict[Moves, tuple[int, float]] = {}

    @property
    def value(self) -> float:
        return aggregated(self.found, self.values, self.aggregate)

    @property
    def reached(self) -> bool:
        return self.target is not None and self.value >= self.target - 1e-12

    def touched(self, moves: Moves) -> list[int]:
        """Queries that any of the moved operators serves."""
        return sorted({query for operator, _ in moves for query in self.found.queries_of[operator]})

    def after(self, moves: Moves) -> dict[int, float]:
        """Availability of the touched queries after copies were added or, if they are there, removed."""
        changed: dict[int, int] = {}
        for operator, host in moves:
            changed[operator] = changed.get(operator, self.masks[operator]) ^ (1 << host)
        return {
            query: self.exact.of({changed.get(o, self.masks[o]) for o in self.operators[query]})
            for query in self.touched(moves)
        }

    def gain(self, moves: Moves) -> float:
        """What copies add to the goal; what the target does not ask for does not count."""
        stamp = sum(self.versions[query] for query in self.touched(moves))
        known = self._gains.get(moves)
        if known is not None and known[0] == stamp and self.aggregate != "min":
            return self._capped(known[1])
        new = self.after(moves)
        if self.aggregate == "min":
            # Several queries can be the worst: any that rises is progress.
            low = float(self.values.min())
            top = 1.0 if self.target is None else self.target
            return sum(min(v, top) - low for q, v in new.items() if self.values[q] <= low + 1e-12)
        total = sum(float(self.shares[q]) * (v - float(self.values[q])) for q, v in new.items())
        self._gains[moves] = (stamp, total)
        return self._capped(total)

    def _capped(self, gain: float) -> float:
        return gain if self.target is None else min(gain, self.target - self.value)

    def apply(self, moves: Moves) -> None:
        """Add copies, or remove those that are there."""
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
        """Whether a copy is allowed on a host, its capacity aside."""
        found = self.found
        if found.pinned[operator] or found.draining[host] or self.places[operator, host]:
            return False
        return not (found.spread_by_rack and found.racks[host] in found.racks[self.places[operator]])

    def carries(self, moves: Moves) -> bool:
        """Whether hosts and their network can take a change."""
        new = self.places.copy()
        for operator, host in moves:
            new[operator, host] ^= True
        if (host_loads(self.found, new) > self.found.capacity + SLACK).any():
            return False
        if not self.found.limited:
            return True
        return all((use <= self.found.network + SLACK).all() for use in network_use(self.found, new))


def _greedy(state: State, limit: float | None, most: int, blocks: bool) -> None:
    spent = replica_load(state.found, state.places)
    while not state.reached:
        best: tuple[float, float, Moves] | None = None
        for group in _groups(state, most, blocks):
            load = float(sum(state.found.loads[o] for o in group))
            if limit is not None and load > limit - spent + SLACK:
                continue
            for moves in _maps(state, group):
                gain = state.gain(moves)
                if gain <= LEAST:
                    continue
                score = gain / load if load > 0 else np.inf
                better = best is None or score > best[0] * (1 + 1e-12)
                if better and (not state.found.limited or state.carries(moves)):
                    best = (score, load, moves)
        if best is None:
            return
        state.apply(best[2])
        spent += best[1]


def _groups(state: State, most: int, blocks: bool) -> list[tuple[int, ...]]:
    """Operators that may be copied together."""
    found, counts = state.found, state.places.sum(axis=1)
    used = found.degrees > 0
    single: list[tuple[int, ...]] = [(o,) for o in np.flatnonzero((counts <= most) & ~found.pinned & used).tolist()]
    if not blocks:
        return single
    bare = (counts == 1) & ~found.pinned & used
    groups = {tuple(sorted(block.operators)) for block in blocks_of(found, state.places)}
    groups |= {tuple(some[bare[some]].tolist()) for some in found.queries}
    groups |= {tuple(np.flatnonzero(bare & (found.primary == host)).tolist()) for host in range(found.hosts)}
    return single + sorted(g for g in groups if len(g) > 1 and bare[list(g)].all())


def _maps(state: State, group: tuple[int, ...]) -> list[Moves]:
    """All of a group to each host that can take it, and one map that splits it."""
    found = state.found
    load = float(sum(found.loads[o] for o in group))
    maps: list[Moves] = [
        tuple((o, host) for o in group)
        for host in range(found.hosts)
        if state.left[host] >= load - SLACK and all(state.may(o, host) for o in group)
    ]
    if len(group) > 1:
        left, split = state.left.copy(), list[tuple[int, int]]()
        for operator in sorted(group, key=lambda o: (-found.loads[o], o)):
            hosts = [h for h in range(found.hosts) if left[h] >= found.loads[operator] - SLACK]
            hosts = [h for h in hosts if state.may(operator, h)]
            if not hosts:
                return maps
            host = min(hosts, key=lambda h: (found.failures[h], h))
            left[host] -= found.loads[operator]
            split.append((operator, host))
        maps.append(tuple(sorted(split)))
    return maps


def _copies(state: State) -> list[tuple[int, int]]:
    """Replicas, the largest loads first."""
    found = state.found
    rows, hosts = np.nonzero(state.places)
    some = [(o, h) for o, h in zip(rows.tolist(), hosts.tolist(), strict=True) if h != found.primary[o]]
    return sorted(some, key=lambda at: (-found.loads[at[0]], at))


def _prune(state: State) -> None:
    """Drop copies until none can go without missing the target, or, without one, without a loss."""
    again = True
    while again:
        again = False
        for copy in _copies(state):
            least = state.value if state.target is None or not state.reached else state.target
            before = state.values.copy()
            state.apply((copy,))
            holds = state.value >= least - (1e-15 if state.target is None or not state.reached else 0.0)
            if state.target is None:
                # Not only the figure that counts: no query may fall.
                holds = bool((state.values >= before - 1e-15).all())
            if holds:
                again = True
            else:
                state.apply((copy,))


def _polish(state: State) -> None:
    """Move copies, or swap two, as long as that helps; at most two passes."""
    for _ in range(2):
        better = False
        for operator, host in _copies(state):
            for other in range(state.found.hosts):
                better |= state.places[operator, host] and _tried(state, ((operator, host), (operator, other)))
        copies = _copies(state)
        for at, (one, here) in enumerate(copies):
            for two, there in copies[at + 1 :]:
                if here != there and one != two and state.places[one, here] and state.places[two, there]:
                    better |= _tried(state, ((one, here), (two, there), (one, there), (two, here)))
        if not better:
            break


def _tried(state: State, moves: Moves) -> bool:
    """Apply a change of equal cost if it is allowed and raises the availability."""
    gone = moves[: len(moves) // 2]
    if any(state.places[o, h] for o, h in moves[len(gone) :]):
        return False
    before, values = state.value, state.values.copy()
    if not state.carries(moves):
        return False
    for copy in gone:
        state.places[copy] = False
    allowed = all(state.may(o, h) for o, h in moves[len(gone) :])
    for copy in gone:
        state.places[copy] = True
    if not allowed:
        return False
    new = values.copy()
    for query, value in state.after(moves).items():
        new[query] = value
    if aggregated(state.found, new, state.aggregate) <= before + LEAST:
        return False
    state.apply(moves)
    return True


def _large(state: State, target: float | None, limit: float | None) -> None:
    """By first-order gains: up to the limit, or with the least budget that reaches the target."""
    found, begun = state.found, state.places
    spent = replica_load(found, begun)
    if limit is not None:
        state.put(spof_plan(found, limit - spent, places=begun).places)
        return
    low, high, best = 0.0, found.full_load, spof_plan(found, found.full_load, places=begun).places

    def enough(places: Places) -> bool:
        state.put(places)
        return state.reached

    if not enough(best):
        return
    while high - low > 0.005 * found.full_load:
        middle = (low + high) / 2
        places = spof_plan(found, middle, places=begun).places
        if enough(places):
            high, best = middle, places
        else:
            low = middle
    state.put(best)
