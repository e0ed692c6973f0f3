"""Variable-sized bin packing: fewer, smaller machines for the same instances, by repacking poorly filled machines.

See docs/specs/provisioning.md, section 3.3 (OVERPROVISIONED, REPACK_PE_INSTANCE, REPACK_FREE_VMS), after Kang and
Park (2003).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies import repack_kernels as kernels

Ints = NDArray[np.int64]


class Packing(NamedTuple):
    """Planned machines, and one row for each of their instances.

    Attributes
    ----------
    kinds : int64, shape (machines,)
        Machine type of each machine.
    machine, element : int64, shape (instances,)
        In the order of placement.
    """

    kinds: Ints
    machine: Ints
    element: Ints

    def price_per_hour(self, catalogue: Catalogue) -> float:
        """Price of an hour of all machines."""
        return float(catalogue.prices[self.kinds].sum())

    def power(self, catalogue: Catalogue, elements: int) -> Floats:
        """Total speed of the cores of each PE, at rated speed."""
        return np.bincount(self.element, catalogue.speeds[self.kinds[self.machine]], elements).astype(np.float64)


def place(deployment: Deployment, packing: Packing) -> None:
    """Add the machines of a packing to a deployment, as planned machines."""
    lowest = min(0, min(deployment.machines, default=0))
    cut = np.argsort(packing.machine, kind="stable")
    elements = packing.element[cut].tolist()
    ends = np.cumsum(np.bincount(packing.machine, minlength=packing.kinds.size)).tolist()
    start, planned = 0, []
    for at, (kind, end) in enumerate(zip(packing.kinds.tolist(), ends, strict=True)):
        instances: dict[int, int] = {}
        for element in elements[start:end]:
            instances[element] = instances.get(element, 0) + 1
        planned.append(Machine(lowest - 1 - at, kind, instances=instances))
        start = end
    deployment.add_machine(*planned)


def repack_instances(packing: Packing, catalogue: Catalogue, need: Floats) -> Packing:
    """Move the last instance of every PE with surplus power to the smallest sufficient machine type.

    REPACK_PE_INSTANCE of §3.3: an instance without work is dropped unless it is the only one; an instance that requires
    a slower core moves to a machine of that type, together with others.

    Parameters
    ----------
    need : float64, shape (elements,)
        Power in use: messages processed times the cost of one.
    """
    size, known = need.size, packing.kinds.size
    kinds, place = np.append(packing.kinds, np.zeros(size, np.int64)), packing.machine.copy()
    counts = np.zeros((3, size), np.int64)
    machines = kernels.move_last(
        (packing.kinds, place, packing.element), need, catalogue.columns, catalogue.available,
        np.lexsort((catalogue.prices, catalogue.powers)),
        (np.zeros(size), *counts, np.zeros(known + size, np.int64)), kinds,
    )  # fmt: skip
    kept = place >= 0
    used = np.bincount(place[kept], minlength=machines) > 0
    return Packing(kinds[:machines][used], (np.cumsum(used) - 1)[place[kept]], packing.element[kept])


def repack_machines(
    packing: Packing, flow: Flow, catalogue: Catalogue, active: Ints, external: Floats, forward: Ints, base: Floats
) -> Packing:
    """Repack poorly filled machines of each type, the rest on smaller ones, and keep the cheapest
    (REPACK_FREE_VMS, §3.3).

    Parameters
    ----------
    forward : int64, shape (elements,)
        Instances are packed in this order, so that neighbors share a machine.
    base : float64, shape (elements,)
        Power of the PEs on other machines.

    Returns
    -------
    Packing
        Never more expensive than the given packing; the goal's throughput is still reached if it was before.
    """
    by_power = np.array(catalogue.by_power)
    prices, powers = np.zeros(2 * by_power.size), np.zeros((2 * by_power.size, flow.size))
    given = tuple(packing), catalogue.columns, by_power, forward
    _, tried = kernels.repack(*given, prices.size, prices, powers)
    best, lowest = -1, packing.price_per_hour(catalogue)
    for candidate, price in enumerate(prices[:tried].tolist()):
        if price < lowest - SLACK:
            omega = flow.estimate(active, base + powers[candidate], external).omega
            if omega >= flow.goal.throughput - SLACK:
                best, lowest = candidate, price
    return packing if best < 0 else Packing(*kernels.repack(*given, best, prices, powers)[0])
