"""Deployments: the active alternate of each PE, the rented machines, and the instances on each machine.

One core runs one instance. The throughput of a PE depends on the total speed of its cores only. See
docs/specs/provisioning.md, section 2.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.notebook import facts_html, rows_html
from goffish.scheduling.dataflow.flow import Floats, Flow, Hosts

#: Largest deployment that is planned. Streams that multiply in every layer, or a machine type of a millionth of the
#: usual speed, would need billions of machines.
MOST_MACHINES = 100_000


@dataclass(eq=False)
class Machine:
    """A machine of a deployment.

    Attributes
    ----------
    id : int
        0 or more for a running or requested machine, negative for a planned one.
    kind : int
        Index of its machine type in the catalogue.
    coefficient : float
        Observed speed over rated speed, 0 to 1; 1 before the first observation.
    elapsed_s : float
        Seconds since the machine was requested, which is when its paid time begins.
    instances : mapping from element to number
        Instances of each PE on the machine.
    replicas : mapping from (element, machine id) to number
        Hot replicas of instances on another machine. They use cores, but add no speed until that machine fails.
    """

    id: int
    kind: int
    coefficient: float = 1.0
    elapsed_s: float = 0.0
    instances: dict[int, int] = field(default_factory=dict)
    replicas: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Cores in use."""
        return sum(self.instances.values()) + sum(self.replicas.values())

    def copy(self) -> Machine:
        return Machine(self.id, self.kind, self.coefficient, self.elapsed_s, dict(self.instances), dict(self.replicas))


class Deployment:
    """A dataflow on machines; policies modify copies.

    Attributes
    ----------
    active : int64, shape (elements,)
        Alternate of each PE, from 0.
    machines : dict from id to Machine
        In the order of the requests.
    power : float64, shape (elements,)
        Total speed of the cores of each PE, coefficients included (phi).
    counts : int64, shape (elements,)
        Instances of each PE.
    """

    def __init__(self, catalogue: Catalogue, active: NDArray[np.int64]) -> None:
        self.catalogue = catalogue
        self.active = np.array(active, np.int64)
        self.machines: dict[int, Machine] = {}
        self.power: Floats = np.zeros(self.active.size)
        self.counts: NDArray[np.int64] = np.zeros(self.active.size, np.int64)
        self._used: dict[int, int] = {}
        #: The lowest id of a machine, or 0 if all ids are 0 or more.
        self._least = 0

    def _repr_html_(self) -> str:
        types, columns = self.catalogue.classes, ("machine", "machine type", "cores used", "cores", "instances per PE")
        rows = [
            (number, types[one.kind].name, one.used, int(self.catalogue.cores[one.kind]),
             ", ".join(f"{element}: {count}" for element, count in one.instances.items()))
            for number, one in self.machines.items()
        ]  # fmt: skip
        price = float(sum(self.catalogue.prices[one.kind] for one in self.machines.values()))
        facts = {"machines": len(rows), "instances": int(self.counts.sum()), "price per hour": price}
        return facts_html("Deployment", facts) + rows_html(columns, rows, len(rows))

    def copy(self) -> Deployment:
        """Return an independent copy."""
        other = Deployment(self.catalogue, self.active)
        other.machines = {number: machine.copy() for number, machine in self.machines.items()}
        other.power, other.counts = self.power.copy(), self.counts.copy()
        other._used, other._least = dict(self._used), self._least
        return other

    def speed(self, machine: int) -> float:
        """Observed speed of one core of a machine."""
        found = self.machines[machine]
        return float(self.catalogue.speeds[found.kind]) * found.coefficient

    def free(self, machine: int) -> int:
        """Number of free cores of a machine."""
        return int(self.catalogue.cores[self.machines[machine].kind]) - self._used[machine]

    def used(self, machine: int) -> int:
        """Number of used cores of a machine."""
        return self._used[machine]

    def plan_machine(self, kind: int) -> int:
        """Add a planned machine and return its (negative) id."""
        limit = self.catalogue.limit
        if limit is not None and len(self.machines) >= limit:
            raise InputError(f"the catalogue allows {limit} machines at a time")
        if len(self.machines) >= MOST_MACHINES:
            name = self.catalogue.classes[kind].name
            raise InputError(f"more than {MOST_MACHINES:,} machines of type {name} are required; check its speed")
        number = self._least - 1
        self.add_machine(Machine(number, kind))
        return number

    def add_machine(self, *machines: Machine) -> None:
        """Add machines together with their instances."""
        speeds = self.catalogue.speeds.tolist()
        elements, counts, powers = list[int](), list[int](), list[float]()
        for machine in machines:
            self.machines[machine.id] = machine
            self._used[machine.id] = machine.used
            self._least = min(self._least, machine.id)
            speed = speeds[machine.kind] * machine.coefficient
            elements += machine.instances
            counts += machine.instances.values()
            powers += [count * speed for count in machine.instances.values()]
        if elements:
            # One after the other, as a PE may be on several machines.
            np.add.at(self.counts, elements, counts)
            np.add.at(self.power, elements, powers)

    def drop_machine(self, machine: int) -> None:
        """Remove a machine and its instances."""
        speed = self.speed(machine)
        for element, count in self.machines[machine].instances.items():
            self.power[element] -= count * speed
            self.counts[element] -= count
        del self.machines[machine], self._used[machine]
        if machine == self._least < 0:
            self._least = min(0, min(self.machines, default=0))

    def put(self, element: int, machine: int, count: int = 1) -> None:
        """Assign free cores of a machine to a PE."""
        if self.free(machine) < count:
            raise InputError(f"machine {machine} has {self.free(machine)} free cores, not {count}")
        placed = self.machines[machine].instances
        placed[element] = placed.get(element, 0) + count
        self._used[machine] += count
        self.power[element] += count * self.speed(machine)
        self.counts[element] += count

    def take(self, element: int, machine: int, count: int = 1) -> None:
        """Release cores of a machine from a PE."""
        placed = self.machines[machine].instances
        left = placed.get(element, 0) - count
        if left < 0:
            raise InputError(
                f"machine {machine} runs {placed.get(element, 0)} instances of processing element {element}, "
                f"not {count}"
            )
        if left:
            placed[element] = left
        else:
            del placed[element]
        self._used[machine] -= count
        self.power[element] -= count * self.speed(machine)
        self.counts[element] -= count

    def put_replica(self, element: int, of: int, machine: int, count: int = 1) -> None:
        """Assign free cores of a machine to hot replicas of a PE's instances on another machine."""
        runs = self.machines[of].instances.get(element, 0) if of in self.machines else 0
        kept = self.machines[machine].replicas
        if of == machine or kept.get((element, of), 0) + count > runs:
            raise InputError(f"machine {machine}: {count} replicas of {runs} instances on machine {of}")
        if self.free(machine) < count:
            raise InputError(f"machine {machine} has {self.free(machine)} free cores, not {count}")
        kept[element, of] = kept.get((element, of), 0) + count
        self._used[machine] += count

    def drop_replicas(self, element: int | None = None, machines: Iterable[int] | None = None) -> None:
        """Release the cores of replicas: for one PE or for all, on some machines or on all."""
        for number in self.machines if machines is None else machines:
            machine = self.machines[number]
            machine.replicas = {key: n for key, n in machine.replicas.items() if element not in (None, key[0])}
            self._used[number] = machine.used

    def promote(self, gone: Machine) -> None:
        """Promote the replicas of a failed machine, which is then removed from the deployment.

        Surplus replicas become replicas of the promoted ones.
        """
        for element, lost in gone.instances.items():
            missing, heir = lost, -1
            for number in sorted(self.machines):
                machine, key = self.machines[number], (element, gone.id)
                count = machine.replicas.pop(key, 0)
                taken = min(count, missing)
                if taken:
                    missing, heir = missing - taken, number
                    machine.instances[element] = machine.instances.get(element, 0) + taken
                    self.counts[element] += taken
                    self.power[element] += taken * self.speed(number)
                elif count and heir >= 0:
                    machine.replicas[element, heir] = machine.replicas.get((element, heir), 0) + count
                self._used[number] = machine.used

    def settle(self) -> None:
        """Recompute the powers machine by machine, so that they do not depend on the order of earlier changes."""
        self.power[:] = 0.0
        for number in sorted(self.machines):
            speed = self.speed(number)
            for element, count in sorted(self.machines[number].instances.items()):
                self.power[element] += count * speed

    def machines_of(self, element: int) -> Iterator[int]:
        """Ids of the machines that run a PE."""
        return (number for number, machine in self.machines.items() if element in machine.instances)

    @property
    def price_per_hour(self) -> float:
        """Total price of an hour of all machines."""
        return math.fsum(self.catalogue.prices[machine.kind] for machine in self.machines.values())

    def hosts(self, coefficient: dict[int, float] | None = None) -> Hosts:
        """Return the locations of the PEs, for an estimate that includes the network.

        `coefficient`: observed over rated bandwidth of machines; 1 for machines that are not listed.
        """
        places = [(e, at, count * self.speed(number)) for at, number, e, count in self._placed()]
        places.sort()
        element = np.array([e for e, _, _ in places], np.int64)
        kinds = np.array([machine.kind for machine in self.machines.values()], np.int64)
        bandwidth = self.catalogue.bandwidths[kinds]
        if coefficient:
            bandwidth = bandwidth * np.array([coefficient.get(number, 1.0) for number in self.machines])
        return Hosts(
            np.searchsorted(element, np.arange(self.active.size + 1)),
            np.array([at for _, at, _ in places], np.int64),
            np.array([power for _, _, power in places], np.float64),
            bandwidth,
            self.catalogue.site_numbers[kinds],
            self.catalogue.network.bandwidth_mbit_s,
        ).shared()

    def _placed(self) -> Iterator[tuple[int, int, int, int]]:
        for at, (number, machine) in enumerate(self.machines.items()):
            for element, count in machine.instances.items():
                yield at, number, element, count

    def described(self, flow: Flow) -> dict[str, Any]:
        """Return the deployment by names, for the command line and the service."""
        names = [flow.alternate_names[row] for row in flow.rows(self.active).tolist()]
        return {
            "alternates": dict(zip(flow.names, names, strict=True)),
            "machines": [
                {
                    "id": number,
                    "machine_type": self.catalogue.classes[machine.kind].name,
                    "instances": {flow.names[e]: count for e, count in sorted(machine.instances.items())},
                    **_replicas_by_name(machine, flow),
                }
                for number, machine in self.machines.items()
            ],
        }

    def check(self) -> None:
        """Raise `InputError` if a machine runs more instances than it has cores, or if the sums are inconsistent."""
        counts = np.zeros_like(self.counts)
        for number, machine in self.machines.items():
            if machine.used > self.catalogue.cores[machine.kind] or machine.used != self._used[number]:
                raise InputError(
                    f"machine {number}: {machine.used} instances on {self.catalogue.cores[machine.kind]} cores"
                )
            for element, count in machine.instances.items():
                counts[element] += count
        if not np.array_equal(counts, self.counts):
            raise InputError("the instance counts of the deployment do not match its machines")


def _replicas_by_name(machine: Machine, flow: Flow) -> dict[str, dict[str, int]]:
    """Number of replicas of each PE; empty without replicas."""
    found: dict[str, int] = {}
    for (element, _), count in sorted(machine.replicas.items()):
        found[flow.names[element]] = found.get(flow.names[element], 0) + count
    return {"replicas": found} if found else {}
