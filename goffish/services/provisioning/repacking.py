"""Fewer, smaller machines for the same instances: variable-sized bin packing by repacking poorly filled machines.

Specification of reactive provisioning, §3.3 (OVERPROVISIONED, REPACK_PE_INSTANCE, REPACK_FREE_VMS), after Kang and
Park (2003).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.services.cloud.catalogue import Catalogue
from goffish.services.dataflows.deployment import Deployment, Machine
from goffish.services.dataflows.flow import SLACK, Floats, Flow

Ints = NDArray[np.int64]


class Packing(NamedTuple):
    """Planned machines, and one row for each instance on them.

    Attributes
    ----------
    kinds : int64, shape (machines,)
        Class of each.
    machine, element : int64, shape (instances,)
        In the order in which they were placed.
    """

    kinds: Ints
    machine: Ints
    element: Ints

    def price_per_hour(self, catalogue: Catalogue) -> float:
        """Of all machines."""
        return float(catalogue.prices[self.kinds].sum())

    def power(self, catalogue: Catalogue, elements: int) -> Floats:
        """Speed of all cores of each element together, at rated speed."""
        return np.bincount(self.element, catalogue.speeds[self.kinds[self.machine]], elements).astype(np.float64)

    def free(self, catalogue: Catalogue) -> Ints:
        """Free cores of each machine."""
        return _free(self.kinds, self.machine, catalogue)

    def without_empty(self) -> Packing:
        """The same without machines that run nothing."""
        kept = np.bincount(self.machine, minlength=self.kinds.size) > 0
        return Packing(self.kinds[kept], (np.cumsum(kept) - 1)[self.machine], self.element)


def place(deployment: Deployment, packing: Packing) -> None:
    """Add the machines of a packing to a deployment, as planned ones."""
    lowest = min(0, min(deployment.machines, default=0))
    cut = np.argsort(packing.machine, kind="stable")
    elements = packing.element[cut].tolist()
    ends = np.cumsum(np.bincount(packing.machine, minlength=packing.kinds.size)).tolist()
    start = 0
    for at, (kind, end) in enumerate(zip(packing.kinds.tolist(), ends, strict=True)):
        instances: dict[int, int] = {}
        for element in elements[start:end]:
            instances[element] = instances.get(element, 0) + 1
        deployment.add_machine(Machine(lowest - 1 - at, kind, instances=instances))
        start = end


def repack_instances(packing: Packing, catalogue: Catalogue, need: Floats) -> Packing:
    """Move the last instance of every element that has more power than it needs to the smallest class that is enough.

    REPACK_PE_INSTANCE of §3.3: an instance that has nothing to do is dropped unless it is the only one; one that needs
    a core of less speed goes to a machine of that class, with others that do.

    Parameters
    ----------
    need : float64, shape (elements,)
        Power in use: messages processed times the cost of one.
    """
    size = need.size
    power, count = packing.power(catalogue, size), np.bincount(packing.element, minlength=size)
    last = np.zeros(size, np.int64)
    last[packing.element] = np.arange(packing.element.size)
    speed = catalogue.speeds[packing.kinds[packing.machine]][last]
    rest = need - (power - speed)
    surplus = (power - need > SLACK) & (count > 0)
    dropped = surplus & (rest <= SLACK) & (count > 1)
    moving = surplus & ~dropped
    target = np.full(size, -1, np.int64)
    for kind in np.lexsort((catalogue.prices, catalogue.powers)):
        fits = (catalogue.speeds[kind] >= rest - SLACK) & (catalogue.speeds[kind] < speed - SLACK)
        fits &= catalogue.available[kind]
        target[moving & fits & (target < 0)] = kind
    kinds, machine = packing.kinds, packing.machine.copy()
    for kind in range(catalogue.cores.size):
        movers = np.flatnonzero(target == kind)
        slots = np.repeat(np.arange(kinds.size), np.where(kinds == kind, _free(kinds, machine, catalogue), 0))
        missing = max(0, movers.size - slots.size)
        new = -(-missing // int(catalogue.cores[kind]))
        fresh = np.repeat(np.arange(kinds.size, kinds.size + new), catalogue.cores[kind])
        kinds = np.concatenate((kinds, np.full(new, kind, np.int64)))
        machine[last[movers]] = np.concatenate((slots, fresh))[: movers.size]
    kept = np.ones(packing.element.size, np.bool_)
    kept[last[dropped]] = False
    return Packing(kinds, machine[kept], packing.element[kept]).without_empty()


def _free(kinds: Ints, machine: Ints, catalogue: Catalogue) -> Ints:
    """Free cores of machines of these classes with these instances."""
    used: Ints = np.bincount(machine, minlength=kinds.size)
    return catalogue.cores[kinds] - used


def repack_machines(
    packing: Packing, flow: Flow, catalogue: Catalogue, active: Ints, external: Floats, forward: Ints, base: Floats
) -> Packing:
    """Pack poorly filled machines of each class anew, the rest on smaller ones, and keep the cheapest
    (REPACK_FREE_VMS, §3.3).

    Parameters
    ----------
    forward : int64, shape (elements,)
        Instances are packed in this order, so that neighbours meet on a machine.
    base : float64, shape (elements,)
        Power that elements have elsewhere.

    Returns
    -------
    Packing
        Never dearer than the one given; the goal's throughput is reached unless it was not before.
    """
    rank = np.empty(flow.size, np.int64)
    rank[forward] = np.arange(flow.size)
    best, best_price = packing, packing.price_per_hour(catalogue)
    work = packing
    kinds = catalogue.by_power()
    for at, kind in enumerate(kinds):
        part = (work.kinds == kind) & (work.free(catalogue) > 0)
        on_part = part[work.machine]
        items = work.element[on_part]
        items = items[np.argsort(rank[items], kind="stable")]
        kept = Packing(work.kinds[~part], (np.cumsum(~part) - 1)[work.machine[~on_part]], work.element[~on_part])
        full = items.size - items.size % int(catalogue.cores[kind])
        kept = _with(kept, kind, items[:full], catalogue)
        rest = items[full:]
        candidates = [_with(kept, kind, rest, catalogue)]
        if at + 1 < len(kinds):
            smaller = kinds[at + 1]
            total = np.bincount(rest, minlength=flow.size) * catalogue.speeds[kind]
            instances = np.ceil(total / catalogue.speeds[smaller] - SLACK).astype(np.int64)
            candidates.append(_with(kept, smaller, np.repeat(forward, instances[forward]), catalogue))
        for candidate in candidates:
            price = candidate.price_per_hour(catalogue)
            if price < best_price - SLACK and (
                flow.estimate(active, base + candidate.power(catalogue, flow.size), external).omega
                >= flow.goal.throughput - SLACK
            ):
                best, best_price = candidate, price
        work = candidates[-1]
    return best


def _with(packing: Packing, kind: int, elements: Ints, catalogue: Catalogue) -> Packing:
    """A packing with more instances, on new machines of one class."""
    cores = int(catalogue.cores[kind])
    new = -(-elements.size // cores)
    return Packing(
        np.concatenate((packing.kinds, np.full(new, kind, np.int64))),
        np.concatenate((packing.machine, packing.kinds.size + np.arange(elements.size) // cores)),
        np.concatenate((packing.element, elements)),
    )
