"""Fewer, smaller machines for the same instances: variable-sized bin packing by repacking poorly filled machines.

Specification of reactive provisioning, §3.3 (OVERPROVISIONED, REPACK_PE_INSTANCE, REPACK_FREE_VMS), after Kang and
Park (2003).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow

Ints = NDArray[np.int64]

#: Instances on the next smaller type that are tried: a type so slow is no saving.
MOST_INSTANCES = 1_000_000


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


def _with(packing: Packing, kind: int, elements: Ints, cores: int) -> Packing:
    """A packing with more instances, on new machines of one class."""
    if not elements.size:
        return packing
    known, at = packing.kinds.size, np.arange(elements.size) // cores
    return Packing(
        np.concatenate((packing.kinds, np.full(at[-1] + 1, kind, np.int64))),
        np.concatenate((packing.machine, known + at)),
        np.concatenate((packing.element, elements)),
    )


def _without(packing: Packing, dropped: NDArray[np.bool_]) -> Packing:
    """A packing without some machines, and what runs on them."""
    kept = ~dropped[packing.machine]
    renamed = np.cumsum(~dropped) - 1
    return Packing(packing.kinds[~dropped], renamed[packing.machine[kept]], packing.element[kept])


def _free(packing: Packing, catalogue: Catalogue) -> Ints:
    """Free cores of each machine."""
    free: Ints = catalogue.cores[packing.kinds] - np.bincount(packing.machine, minlength=packing.kinds.size)
    return free


def repack_instances(packing: Packing, catalogue: Catalogue, need: Floats) -> Packing:
    """Move the last instance of every element that has more power than it needs to the smallest class that is enough.

    REPACK_PE_INSTANCE of §3.3: an instance that has nothing to do is dropped unless it is the only one; one that needs
    a core of less speed goes to a machine of that class, with others that do.

    Parameters
    ----------
    need : float64, shape (elements,)
        Power in use: messages processed times the cost of one.
    """
    speeds, size = catalogue.speeds, need.size
    power, last = packing.power(catalogue, size), np.zeros(size, np.int64)
    last[packing.element] = np.arange(packing.element.size)
    count = np.bincount(packing.element, minlength=size)
    speed = speeds[packing.kinds[packing.machine[last]]]
    rest = need - (power - speed)
    ample = (count > 0) & (power - need > SLACK)
    dropped = ample & (rest <= SLACK) & (count > 1)
    ascending = np.lexsort((catalogue.prices, catalogue.powers))
    offered = speeds[ascending]
    fits = (rest[:, None] - SLACK <= offered) & (offered < speed[:, None] - SLACK) & catalogue.available[ascending]
    target = np.where(ample & ~dropped & fits.any(axis=1), ascending[fits.argmax(axis=1)], -1)
    kinds, machine = packing.kinds, packing.machine.copy()
    for kind, cores in enumerate(catalogue.cores.tolist()):
        movers = np.flatnonzero(target == kind)
        if not movers.size:
            continue
        free = np.where(kinds == kind, _free(Packing(kinds, machine, packing.element), catalogue), 0)
        new = max(0, -(-(movers.size - int(free.sum())) // cores))
        places = np.repeat(np.arange(kinds.size + new), np.append(free, np.full(new, cores)))
        kinds = np.append(kinds, np.full(new, kind, np.int64))
        machine[last[movers]] = places[: movers.size]
    kept = np.ones(machine.size, np.bool_)
    kept[last[dropped]] = False
    moved = Packing(kinds, machine[kept], packing.element[kept])
    return _without(moved, np.bincount(moved.machine, minlength=kinds.size) == 0)


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
    rank = np.argsort(forward)
    by_power, speeds = catalogue.by_power(), catalogue.speeds
    best, work, price = packing, packing, packing.price_per_hour(catalogue)
    for kind, less in zip(by_power, [*by_power[1:], None], strict=True):
        cores = int(catalogue.cores[kind])
        part = (work.kinds == kind) & (_free(work, catalogue) > 0)
        if not part.any():
            continue
        items = work.element[part[work.machine]]
        items = items[np.argsort(rank[items], kind="stable")]
        full = items.size - items.size % cores
        kept, rest = _with(_without(work, part), kind, items[:full], cores), items[full:]
        tried = [_with(kept, kind, rest, cores)]
        if less is not None:
            total = np.bincount(rest, np.full(rest.size, speeds[kind]), flow.size)
            instances = np.ceil(total / speeds[less] - SLACK)
            if instances.sum() > MOST_INSTANCES:
                return best
            items = np.repeat(forward, instances.astype(np.int64)[forward])
            tried.append(_with(kept, less, items, int(catalogue.cores[less])))
        # What is tried last, dearer or not, is what the next class starts from.
        for work in tried:
            found = work.price_per_hour(catalogue)
            if found < price - SLACK:
                omega = flow.estimate(active, base + work.power(catalogue, flow.size), external).omega
                if omega >= flow.goal.throughput - SLACK:
                    best, price = work, found
    return best
