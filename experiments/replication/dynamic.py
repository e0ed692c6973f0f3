"""Replication while queries, loads and hosts come and go. See docs/specs/selective-replication.md, section 3.9."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.availability import (
    Aggregate,
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
    primaries,
    remaining,
    replica_load,
)
from goffish.scheduling.policies.replication.optimiser import Planned, plan_replicas
from goffish.scheduling.policies.replication.state import AvailabilityState, meets

#: A running plan is kept unless another is better by this, and at most this share of the copies changes at once.
BONUS, MOST_CHANGED = 0.1, 0.1
#: Without a target a host is released if primaries use less than this share of all cores for so many seconds.
CALM, CALM_S = 0.6, 600.0


class Step(NamedTuple):
    """A copy that starts or stops."""

    kind: Literal["start", "stop"]
    operator: int
    host: int


def due(since_s: float, planned: Floats, loads: Floats, *, event: bool = False, every_s: float = 60.0) -> bool:
    """Whether to plan again: after a time, an event, or a change of any load by more than a fifth."""
    return event or since_s >= every_s or bool((np.abs(loads - planned) > 0.2 * planned + SLACK).any())


def relieved(found: System, places: Places, share: float = 0.9) -> Places:
    """The plan without the replicas that overload hosts; those with the least gain for their load stop first.

    Parameters
    ----------
    share : float
        Of its cores that a host may use. Primaries stay, whatever they use.
    """
    state = AvailabilityState(found, places, "mean", None, availability_of(found))
    for host in range(found.hosts):
        while host_loads(found, state.places)[host] > share * found.capacity[host] + SLACK:
            here = [(o, host) for o in np.flatnonzero(state.places[:, host]).tolist() if found.primary[o] != host]
            if not here:
                break
            state.apply((min(here, key=lambda copy: (_worth(state, copy), copy)),))
    return state.places


def _worth(state: AvailabilityState, copy: tuple[int, int]) -> float:
    load = float(state.found.loads[copy[0]])
    return -state.gain((copy,)) / load if load > 0 else math.inf


def channels(found: System, places: Places, operator: int) -> int:
    """Channels that moving one copy of an operator re-lays: one to each copy of each neighbour."""
    copies = places.sum(axis=1)
    before, after = found.edges[found.edges[:, 1] == operator, 0], found.edges[found.edges[:, 0] == operator, 1]
    return int(copies[before].sum() + copies[after].sum())


def move_order(found: System, places: Places, host: int) -> list[int]:
    """Operators on a host in the order in which they should leave: replicas first, few channels first.

    Of an operator, its primary and a replica are on different hosts: moving what is on one never moves both.
    """
    here = np.flatnonzero(places[:, host]).tolist()
    return sorted(here, key=lambda o: (found.primary[o] == host, channels(found, places, o), o))


def split_operator(found: System, places: Places, operator: int, parts: int) -> tuple[System, Places]:
    """Run an operator as parallel parts: each replica is split with it, so every part has a copy where the whole had.

    The first part keeps the operator's number, the others come last.
    """
    if parts < 2:
        raise InputError(f"parts = {parts}: at least 2 are needed")
    new = np.arange(found.operators, found.operators + parts - 1)
    loads = np.concatenate((found.loads, np.full(parts - 1, found.loads[operator] / parts)))
    loads[operator] /= parts
    touching = (found.edges == operator).any(axis=1)
    traffic = found.traffic.copy()
    traffic[touching] /= parts
    more = [np.where(found.edges[touching] == operator, part, found.edges[touching]) for part in new.tolist()]
    made = replace(
        found,
        loads=loads,
        primary=np.concatenate((found.primary, np.repeat(found.primary[operator], parts - 1))),
        queries=tuple(np.concatenate((some, new)) if operator in some else some for some in found.queries),
        pinned=np.concatenate((found.pinned, np.repeat(found.pinned[operator], parts - 1))),
        edges=np.concatenate((found.edges, *more)),
        traffic=np.concatenate((traffic, *([traffic[touching]] * (parts - 1)))),
    )
    return made, np.concatenate((places, np.repeat(places[operator][None], parts - 1, axis=0)))


def host_lost(found: System, places: Places, host: int) -> tuple[System, Places, list[int]]:
    """Go on without a host: any live copy becomes the primary; what has none starts anew where there is most room.

    Returns
    -------
    System
        The host is draining, without capacity.
    bool array, shape (operators, hosts)
    list of int
        Operators that were broken. Those that still are, for want of room, keep the lost host as their primary.
    """
    capacity, draining, primary = found.capacity.copy(), found.draining.copy(), found.primary.copy()
    capacity[host], draining[host] = 0.0, True
    new = places.copy()
    new[:, host] = False
    broken = np.flatnonzero(~new.any(axis=1)).tolist()
    for operator in np.flatnonzero((primary == host) & new.any(axis=1)).tolist():
        primary[operator] = int(min(np.flatnonzero(new[operator]), key=lambda h: (found.failures[h], h)))
    left = capacity - found.loads @ new
    for operator in sorted(broken, key=lambda o: (-found.degrees[o], -found.loads[o], o)):
        open_hosts = np.where(draining, -np.inf, left)
        best = int(open_hosts.argmax())
        if open_hosts[best] < found.loads[operator] - SLACK:
            new[operator, host] = True
            continue
        new[operator, best], primary[operator] = True, best
        left[best] -= found.loads[operator]
    return replace(found, capacity=capacity, draining=draining, primary=primary), new, broken


def transition(found: System, old: Places, new: Places, levels: Floats | None = None) -> tuple[list[Step], list[Step]]:
    """Steps from one plan to another: copies start before others stop, and no query falls below its level.

    Parameters
    ----------
    levels : float64, shape (queries,), optional
        Availability that each query must keep, if it has it; default: none.

    Returns
    -------
    list of Step
        To be taken in this order; at each moment hosts have room.
    list of Step
        Steps that room or levels do not allow.
    """
    state = AvailabilityState(found, old, "mean", None)
    floor = np.zeros(len(found.queries)) if levels is None else levels
    starts = [Step("start", o, h) for o, h in np.argwhere(new & ~old).tolist()]
    stops = [Step("stop", o, h) for o, h in np.argwhere(old & ~new).tolist()]
    done: list[Step] = []

    def take(step: Step) -> bool:
        moves = ((step.operator, step.host),)
        if step.kind == "start" and not state.carries(moves):
            return False
        after = state.after(moves)
        if step.kind == "stop" and (
            state.places[step.operator].sum() == 1
            or any(v < min(floor[q], state.values[q]) - 1e-12 for q, v in after.items())
        ):
            return False
        state.apply(moves)
        done.append(step)
        return True

    moved = True
    while moved and (starts or stops):
        begun = [step for step in starts if take(step)]
        starts = [step for step in starts if step not in begun]
        if starts:
            # One copy makes room, then starts are tried again.
            ended = next((step for step in stops if take(step)), None)
            stops = [step for step in stops if step != ended]
            moved = bool(begun) or ended is not None
        else:
            ended_all = [step for step in stops if take(step)]
            stops = [step for step in stops if step not in ended_all]
            moved = bool(ended_all)
    return done, [*starts, *stops]


def replanned(
    found: System,
    running: Places,
    *,
    target: float | None = None,
    limit: float | None = None,
    levels: Floats | None = None,
    aggregate: Aggregate = "mean",
) -> Planned:
    """The next plan, as near to the running one as possible; its goals are those of `plan_replicas`.

    Unless the target is missed, the running copies stay, and are only added to or dropped where they are not needed,
    unless a plan from nothing is better by `BONUS`; and at most `MOST_CHANGED` of the copies change: that many start,
    and that many make room for them.
    """
    goal = {"target": target, "limit": limit, "levels": levels}
    kept = plan_replicas(found, **goal, aggregate=aggregate, start=running, polish=False)  # type: ignore[arg-type]
    fresh = plan_replicas(found, **goal, aggregate=aggregate)  # type: ignore[arg-type]
    bare = aggregated(found, query_availabilities(found, primaries(found)), aggregate)
    if limit is None:
        cheaper = fresh.feasible and fresh.cost * (1 + BONUS) < kept.cost - SLACK
        swap = cheaper if kept.feasible else fresh.feasible or fresh.availability > kept.availability + 1e-12
    else:
        swap = fresh.availability - bare > (1 + BONUS) * (kept.availability - bare) + 1e-12
    best = fresh if swap else kept
    now = query_availabilities(found, running)
    over = limit is not None and replica_load(found, running) > limit + SLACK
    if over or not meets(found, now, target, levels, aggregate):
        return best
    most = max(1, math.ceil(MOST_CHANGED * int(running.sum() - found.operators)))
    places = _part(found, running, best.places, most, limit, lambda v: meets(found, v, target, levels, aggregate))
    values, cost = query_availabilities(found, places), replica_load(found, places)
    mean = aggregated(found, values, aggregate)
    return Planned(places, mean, float(values.min(initial=1.0)), cost, True)


def _part(
    found: System, running: Places, wanted: Places, most: int, limit: float | None, good: Callable[[Floats], bool]
) -> Places:
    """A part of a change, of so many copies: they start as far as limit and hosts have room, else others stop first.

    What stops is worth least for its load, and the availabilities of the queries stay good. Started first, as in
    `transition`, none would ever be within the limit.
    """
    state = AvailabilityState(found, running, "mean", None)
    starts = [(o, h) for o, h in np.argwhere(wanted & ~running).tolist()]
    stops = [(o, h) for o, h in np.argwhere(running & ~wanted).tolist()]
    begun = ended = 0

    def startable(copy: tuple[int, int]) -> bool:
        left = math.inf if limit is None else limit - replica_load(found, state.places) + SLACK
        return bool(found.loads[copy[0]] <= left) and state.may(*copy) and state.carries((copy,))

    def stoppable(copy: tuple[int, int]) -> bool:
        values = state.values.copy()
        for query, value in state.after((copy,)).items():
            values[query] = value
        return good(values)

    while begun < most:
        copy = next(filter(startable, starts), None)
        if copy is not None:
            starts.remove(copy)
            begun += 1
        else:
            copy = min(filter(stoppable, stops), key=lambda c: (_worth(state, c), c), default=None)
            if copy is None or ended == most:
                break
            stops.remove(copy)
            ended += 1
        state.apply((copy,))
    return state.places


def without_host(
    found: System, places: Places, host: int, target: float | None = None, calm_s: float = CALM_S
) -> Planned | None:
    """The plan that releases a host, or ``None`` if it has to stay.

    Parameters
    ----------
    target : float, optional
        Mean availability that must still be reached, by planning again without the host.
    calm_s : float
        How long primaries have used less than `CALM` of all cores. Without a target it must be `CALM_S` at least, and
        they must do so now; replicas do not count, as they take what is left.

    Notes
    -----
    Primaries on the host move to a live copy, or to where there is most room; replicas make room for them.
    """
    if target is None and (calm_s < CALM_S or found.full_load >= CALM * found.capacity.sum()):
        return None
    for running in (places, primaries(found)):
        smaller, moved, _ = host_lost(found, running, host)
        if moved[:, host].any() or remaining(smaller, moved) < -SLACK:
            continue
        if target is not None:
            plan = plan_replicas(smaller, target=target, start=moved)
            if plan.feasible:
                return plan
            continue
        values = query_availabilities(smaller, moved)
        lowest = float(values.min(initial=1.0))
        return Planned(moved, aggregated(smaller, values), lowest, replica_load(smaller, moved), True)
    return None
