"""Constraints of plans: permitted sites and machine types of PEs, and limits of machine types.

Policies may ignore both: misplaced instances, and instances on surplus machines, are moved afterwards.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import SLACK, Flow
from goffish.scheduling.dataflow.needs import NeedColumns

#: Maximum number of machines added for a PE; the time grows quadratically, and 2,000 machines take seconds.
MOST_ADDED = 2_000


def check_places(names: Sequence[str], needs: NeedColumns, catalogue: Catalogue) -> None:
    """Refuse PEs whose sites or machine types are not part of a catalogue.

    Parameters
    ----------
    names : sequence of str
        Names of the PEs.
    needs : NeedColumns
    catalogue : Catalogue

    Raises
    ------
    InputError
        The message names the PE, its requirement and what is available.
    """
    types = dict.fromkeys(c.name for c in catalogue.classes)
    sites = dict.fromkeys(sorted({c.site for c in catalogue.classes if c.site is not None}))
    for name, hosts, places in zip(names, needs.hosts, needs.sites, strict=True):
        unknown = next((site for site in places if site not in sites), None)
        if unknown is not None:
            known = f"machines are at: {', '.join(sites)}" if sites else "the catalogue has no sites"
            raise InputError(f"processing element {name}: needs.sites: unknown site {unknown!r}; {known}")
        unknown = next((host for host in hosts if host not in types), None)
        if unknown is not None:
            known = ", ".join([*types][:20])
            raise InputError(
                f"processing element {name}: needs.hosts: unknown machine type {unknown!r}; accepted: {known}"
            )
    nowhere = np.flatnonzero(~_allowed(needs, catalogue).any(axis=1))
    if nowhere.size:
        raise InputError(f"processing element {names[nowhere[0]]}: needs: none of its hosts is at one of its sites")


def _allowed(needs: NeedColumns, catalogue: Catalogue) -> NDArray[np.bool_]:
    """Machine types that each PE may use, shape (elements, types)."""
    return needs.allowed([c.name for c in catalogue.classes], [c.site for c in catalogue.classes])


def feasible(plan: Deployment, flow: Flow, live: Deployment | None = None) -> Deployment:
    """Move instances to permitted machines, and from machines that exceed the limit of their type.

    A PE keeps its total speed. Its instances move to free cores of the oldest permitted machines, then to machines that
    the plan would release, then to new machines of the cheapest type for the missing speed. If none is left, restricted
    PEs take cores of unrestricted ones, which move in turn. Instances without a core are dropped, except for one
    instance of each PE. Empty planned machines are dropped, and replicas on other machines too.

    Parameters
    ----------
    plan : Deployment
    flow : Flow
    live : Deployment, optional
        The running deployment.

    Returns
    -------
    Deployment
        The given plan if nothing has to move.

    Raises
    ------
    InputError
        If the catalogue lacks a site or machine type, or has no core left for a PE.
    """
    catalogue = plan.catalogue
    if not flow.needs.tied and all(c.limit is None for c in catalogue.classes):
        return plan
    check_places(flow.names, flow.needs, catalogue)
    allowed = _allowed(flow.needs, catalogue)
    tied = np.asarray(~allowed.all(axis=1))
    plan = plan.copy()
    missing: dict[int, float] = {}
    for element in np.flatnonzero(tied).tolist():
        elsewhere = [n for n, m in plan.machines.items() if not allowed[element, m.kind]]
        plan.drop_replicas(element, elsewhere)
        for number in elsewhere:
            _leave(plan, element, number, plan.machines[number].instances.get(element, 0), missing)
    used: Counter[int] = Counter()
    for number in sorted(plan.machines, key=_age):
        machine = plan.machines[number]
        limit = catalogue.classes[machine.kind].limit
        used[machine.kind] += 1
        if limit is not None and used[machine.kind] > limit:
            for element, count in list(machine.instances.items()):
                _leave(plan, element, number, count, missing)
            plan.drop_machine(number)
    for number in [number for number in plan.machines if number < 0 and not plan.used(number)]:
        plan.drop_machine(number)
    released = [] if live is None else [m for n, m in sorted(live.machines.items()) if n not in plan.machines]
    while missing:
        element = min(missing, key=lambda e: (not tied[e], e))
        _put(plan, flow.names, element, allowed, missing, released)
    return plan


def _age(number: int) -> tuple[bool, int]:
    return (number < 0, abs(number))


def _leave(plan: Deployment, element: int, number: int, count: int, missing: dict[int, float]) -> None:
    """Remove instances from a machine, and record the missing speed of their PE."""
    if count:
        plan.take(element, number, count)
        missing[element] = missing.get(element, 0.0) + count * plan.speed(number)


def _put(
    plan: Deployment,
    names: Sequence[str],
    element: int,
    allowed: NDArray[np.bool_],
    missing: dict[int, float],
    released: list[Machine],
) -> None:
    """Add instances with the missing speed of a PE."""
    catalogue, may, power = plan.catalogue, allowed[element], missing.pop(element)
    while power > SLACK:
        count = Counter(machine.kind for machine in plan.machines.values())
        room = catalogue.limit is None or len(plan.machines) < catalogue.limit
        more = [room and may[k] and count[k] < (c.limit or math.inf) for k, c in enumerate(catalogue.classes)]
        usable = sorted((n for n, m in plan.machines.items() if may[m.kind] and plan.speed(n) > 0), key=_age)
        number = next((n for n in usable if plan.free(n)), None)
        kept = next((m for m in released if more[m.kind] and m.coefficient > 0), None)
        if number is None and kept is not None:
            released.remove(kept)
            plan.add_machine(replace(kept, instances={}, replicas={}))
            number = kept.id
        elif number is None and any(more):
            prices = np.ceil(power / catalogue.powers - SLACK) * catalogue.prices
            kind = int(np.argmin(np.where(more, prices, np.inf)))
            if power / catalogue.powers[kind] > MOST_ADDED:
                needed = f"{power / catalogue.powers[kind]:.2g} machines of type {catalogue.classes[kind].name}"
                raise InputError(f"processing element {names[element]}: {needed} are required; at most {MOST_ADDED:,}")
            number = plan.plan_machine(kind)
        elif number is None:
            place = _giving_way(plan, element, usable, np.asarray(~allowed.all(axis=1)))
            if place is None and plan.counts[element]:
                return
            if place is None:
                reason = "no core is left; raise a limit of the catalogue"
                raise InputError(f"processing element {names[element]}: {reason}")
            number = place[0]
            _leave(plan, place[1], number, 1, missing)
        cores = min(plan.free(number), max(1, math.ceil(power / plan.speed(number) - SLACK)))
        plan.put(element, number, cores)
        power -= cores * plan.speed(number)


def _giving_way(plan: Deployment, element: int, usable: list[int], tied: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Find the machine and PE of an instance that gives up its core for another PE.

    Its PE has further instances, and is unrestricted unless this is the first instance of the other PE. The last
    instance of an unrestricted PE is moved only for the first instance of a restricted PE.
    """
    first = plan.counts[element] == 0
    places = [(n, e) for n in usable for e in plan.machines[n].instances if e != element]
    several = [(n, e) for n, e in places if plan.counts[e] > 1 and (first or (tied[element] and not tied[e]))]
    last = [(n, e) for n, e in places if first and tied[element] and not tied[e]]
    return next(iter([*several, *last]), None)
