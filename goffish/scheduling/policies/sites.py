"""Elements that may run at some sites only: what a policy that ignores sites puts elsewhere moves there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import SLACK, Flow


def check_sites(names: Sequence[str], sites: Sequence[tuple[str, ...]], catalogue: Catalogue) -> None:
    """Refuse elements whose sites a catalogue does not have.

    Parameters
    ----------
    names : sequence of str
        Of the elements.
    sites : sequence of tuple of str
        Where each may run, as in `NeedColumns`.
    catalogue : Catalogue

    Raises
    ------
    InputError
        Names the element, the site and the sites that have machines.
    """
    known = sorted({c.site for c in catalogue.classes if c.site is not None})
    for name, needed in zip(names, sites, strict=True):
        unknown = next((site for site in needed if site not in known), None)
        if unknown is not None:
            told = f"machines are at: {', '.join(known)}" if known else "the catalogue has no sites"
            raise InputError(f"element {name}: needs.sites: no site {unknown!r}; {told}")


def at_sites(plan: Deployment, flow: Flow, live: Deployment | None = None) -> Deployment:
    """Move instances to the sites that their elements need.

    An element keeps the speed that it was given: its instances go to free cores of the oldest machines at its sites,
    then to machines that the plan would release, then to new ones of the type that is cheapest for what is missing.
    Planned machines that are left empty are dropped, and replicas at other sites too.

    Parameters
    ----------
    plan : Deployment
    flow : Flow
    live : Deployment, optional
        What runs.

    Returns
    -------
    Deployment
        The same where nothing is at another site.

    Raises
    ------
    InputError
        The catalogue lacks a site, or does not allow another machine.
    """
    if not any(flow.needs.sites):
        return plan
    catalogue = plan.catalogue
    check_sites(flow.names, flow.needs.sites, catalogue)
    plan = plan.copy()
    missing: dict[int, float] = {}
    for element, sites in enumerate(flow.needs.sites):
        elsewhere = [n for n, m in plan.machines.items() if sites and catalogue.classes[m.kind].site not in sites]
        plan.drop_replicas(element, elsewhere)
        for number in elsewhere:
            count = plan.machines[number].instances.get(element, 0)
            if count:
                missing[element] = missing.get(element, 0.0) + count * plan.speed(number)
                plan.take(element, number, count)
    for number in [number for number in plan.machines if number < 0 and not plan.used(number)]:
        plan.drop_machine(number)
    released = [] if live is None else [m for n, m in sorted(live.machines.items()) if n not in plan.machines]
    for element, power in missing.items():
        _put(plan, element, [c.site in flow.needs.sites[element] for c in catalogue.classes], power, released)
    return plan


def _put(plan: Deployment, element: int, allowed: list[bool], power: float, released: list[Machine]) -> None:
    """Give an element instances of so much speed together on machines of the types that are allowed."""
    catalogue = plan.catalogue
    while power > SLACK:
        kept = next((m for m in released if allowed[m.kind] and m.coefficient > 0), None)
        free = [n for n, m in plan.machines.items() if allowed[m.kind] and plan.free(n) and plan.speed(n) > 0]
        if free:
            number = min(free, key=lambda n: (n < 0, abs(n)))
        elif kept is not None:
            released.remove(kept)
            plan.add_machine(replace(kept, instances={}, replicas={}))
            number = kept.id
        else:
            prices = np.ceil(power / catalogue.powers - SLACK) * catalogue.prices
            number = plan.plan_machine(int(np.argmin(np.where(allowed, prices, np.inf))))
        count = min(plan.free(number), math.ceil(power / plan.speed(number) - SLACK))
        plan.put(element, number, count)
        power -= count * plan.speed(number)
