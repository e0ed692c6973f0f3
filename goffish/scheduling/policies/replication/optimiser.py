"""The plan with the best availability for a limit, or the cheapest plan for a target.

See docs/specs/selective-replication.md, section 3.7: blocks of operators are placed as a whole where they gain most per
unit of load; superfluous replicas are dropped afterwards. `target` is problem G2 of that page, `limit` is G1;
`levels` are service levels, one for each query (§2.4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.availability import (
    Aggregate,
    aggregated,
)
from goffish.scheduling.policies.replication.blocks import blocks_of, spof_plan
from goffish.scheduling.policies.replication.model import (
    SLACK,
    Floats,
    Places,
    System,
    check,
    primaries,
    replica_load,
)
from goffish.scheduling.policies.replication.placement import Strategy, place_copies
from goffish.scheduling.policies.replication.state import AvailabilityState, Moves

#: Number of operators from which on blocks are ordered by first-order gains, as exact gains take too long.
LARGE = 500
#: Maximum number of rounds of moving, adding and dropping replicas.
ROUNDS = 10
#: Strategies of placing replicas of everything if nothing else reaches a goal.
STRATEGIES: tuple[Strategy, ...] = ("mirror", "simple", "coloured")
#: Minimum gain of availability.
LEAST = 1e-13


class Planned(NamedTuple):
    """A plan.

    Attributes
    ----------
    places : bool, shape (operators, hosts)
    availability : float
        Aggregate over all queries.
    lowest : float
        Availability of the worst query.
    cost : float
        Load of the replicas.
    feasible : bool
        Whether the target, or every level, is reached; always true with a limit.
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
    levels: Floats | None = None,
    aggregate: Aggregate = "mean",
    start: Places | None = None,
    most: int = 1,
    blocks: bool = True,
    polish: bool = True,
) -> Planned:
    """Replicate with the least load for a target availability, or for the best availability within a limit of load.

    Parameters
    ----------
    target, limit : float, optional
    levels : float64, shape (queries,), optional
        Required availability of each query. Give exactly one of target, limit and levels.
    aggregate : {"mean", "min", "weighted"}
        Aggregate of the availabilities of the queries.
    start : bool, shape (operators, hosts), optional
        Running replicas; default: primaries. If they exceed the limit, the least useful ones are stopped.
    most : int
        Maximum number of replicas of one operator.
    blocks : bool
        Whether several operators are replicated at once; otherwise the search gets stuck (§2.4, fact 3).
    polish : bool
        Whether replicas are moved and swapped at the end.

    Raises
    ------
    InputError
        If not exactly one of target, limit and levels is given, one is out of range, or the start violates a
        constraint.
    """
    if sum(goal is not None for goal in (target, limit, levels)) != 1:
        raise InputError("give exactly one of target, limit and levels")
    if levels is not None:
        levels = np.array(levels, np.float64)
        if levels.shape != (len(found.queries),) or not ((levels >= 0) & (levels <= 1)).all():
            raise InputError(f"levels: shape {levels.shape}; expected {len(found.queries)} numbers from 0 to 1")
    if target is not None and not 0 <= target <= 1:
        raise InputError(f"target = {target:g}: must be 0 to 1")
    if limit is not None and not limit >= 0:
        raise InputError(f"limit = {limit:g}: must be at least 0")
    begun = primaries(found) if start is None else start
    check(found, begun)
    state = AvailabilityState(found, begun, aggregate, target, levels=levels)
    if limit is not None:
        _shed(state, limit)
    if found.operators > LARGE:
        _large(state, limit)
    else:
        _greedy(state, limit, most, blocks)
        if state.target is not None and blocks and not state.reached:
            # The result filled the hosts badly: start again from a dense packing, and reduce it.
            other = AvailabilityState(
                found, spof_plan(found, found.full_load, places=begun).places, aggregate, target, levels=levels
            )
            _greedy(other, limit, most, blocks)
            state = other if other.value > state.value else state
    _finish(state, limit, most, blocks, polish)
    if found.operators <= LARGE and state.target is not None and blocks and not state.reached:
        state = _filled(state, begun, most, polish)
    value = aggregated(found, state.values, aggregate)
    lowest = aggregated(found, state.values, "min")
    return Planned(state.places, value, lowest, replica_load(found, state.places), limit is not None or state.reached)


def _finish(state: AvailabilityState, limit: float | None, most: int, blocks: bool, polish: bool) -> None:
    """Drop replicas that the goal does not require, and move replicas as long as that helps."""
    _prune(state)
    for _ in range(ROUNDS if polish and state.found.operators <= LARGE else 0):
        # Moves can free capacity for further replicas.
        before = state.places.copy()
        _polish(state)
        _greedy(state, limit, most, blocks)
        _prune(state)
        if (state.places == before).all():
            break


def _filled(state: AvailabilityState, begun: Places, most: int, polish: bool) -> AvailabilityState:
    """Replicate everything if that reaches the goal, else return the given plan."""
    found = state.found
    bare = np.flatnonzero((begun.sum(axis=1) == 1) & ~found.pinned)
    order = bare[np.lexsort((bare, -found.loads[bare]))]
    for strategy in STRATEGIES:
        full = place_copies(found, begun, order, strategy).places
        other = AvailabilityState(found, full, state.aggregate, state.target, state.exact, state.levels)
        _greedy(other, None, most, True)
        if other.reached:
            _finish(other, None, most, True, polish)
            return other
    return state


def _shed(state: AvailabilityState, limit: float) -> None:
    """Stop replicas that exceed the limit of load: those with the lowest value per load first (R12)."""
    found = state.found

    def over() -> bool:
        return replica_load(found, state.places) > limit + SLACK

    while over():
        copies = [copy for copy in _copies(state) if found.loads[copy[0]] > 0]
        copies.sort(key=lambda copy: (-state.gain((copy,)) / found.loads[copy[0]], copy))
        # The values change with every stopped replica; computing them again each time is for small systems.
        for copy in copies if found.operators > LARGE else copies[:1]:
            if over():
                state.apply((copy,))


def _greedy(state: AvailabilityState, limit: float | None, most: int, blocks: bool) -> None:
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


def _groups(state: AvailabilityState, most: int, blocks: bool) -> list[tuple[int, ...]]:
    """Operators that may be replicated together."""
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


def _maps(state: AvailabilityState, group: tuple[int, ...]) -> list[Moves]:
    """Place a whole group on each host that can take it, and one distributed placement."""
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


def _copies(state: AvailabilityState) -> list[tuple[int, int]]:
    """Replicas, the largest loads first."""
    found = state.found
    rows, hosts = np.nonzero(state.places)
    some = [(o, h) for o, h in zip(rows.tolist(), hosts.tolist(), strict=True) if h != found.primary[o]]
    return sorted(some, key=lambda at: (-found.loads[at[0]], at))


def _prune(state: AvailabilityState) -> None:
    """Drop replicas until no further one is superfluous: for the target or, without a target, without a loss."""
    again = True
    while again:
        again = False
        for copy in _copies(state):
            least = state.value if state.target is None or not state.reached else state.target
            before = state.values.copy()
            state.apply((copy,))
            holds = state.value >= least - (1e-15 if state.target is None or not state.reached else 0.0)
            if state.target is None:
                # Not only the aggregate counts: the availability of no query may decrease.
                holds = bool((state.values >= before - 1e-15).all())
            if holds:
                again = True
            else:
                state.apply((copy,))


def _polish(state: AvailabilityState) -> None:
    """Move replicas, or swap two, as long as that helps; at most two passes."""
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


def _tried(state: AvailabilityState, moves: Moves) -> bool:
    """Apply a change of equal cost if it is permitted and raises the availability."""
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
    if state.goal(new) <= before + LEAST:
        return False
    state.apply(moves)
    return True


def _large(state: AvailabilityState, limit: float | None) -> None:
    """Select by first-order gains: up to the limit, or with the least budget that reaches the target."""
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
