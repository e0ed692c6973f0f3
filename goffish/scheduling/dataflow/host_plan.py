"""Which instances of a dataflow run on which hosts of an infrastructure, and what follows from their places alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.infrastructure import Infrastructure
from goffish.errors import InputError
from goffish.scheduling.dataflow import kernels
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HostPlan:
    """Instances on hosts.

    Attributes
    ----------
    infrastructure : Infrastructure
    counts : int64, shape (elements, hosts)
        Instances of each element on each host.
    """

    infrastructure: Infrastructure
    counts: Ints

    @property
    def instances(self) -> Ints:
        """Of each element."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def used(self) -> NDArray[np.bool_]:
        """Hosts on which something runs."""
        return np.asarray(self.counts.any(axis=0))

    def hosts_of(self, element: int) -> list[int]:
        """Hosts of an element's instances, ascending, each as often as it runs there."""
        return np.repeat(np.arange(self.infrastructure.size), self.counts[element]).tolist()

    def moved(self, other: HostPlan) -> int:
        """Instances that have to start or stop to get to another plan; one that moves counts once."""
        change = other.counts - self.counts
        return int(np.maximum(change.clip(min=0).sum(axis=1), (-change).clip(min=0).sum(axis=1)).sum())

    def check(self, flow: Flow) -> None:
        """Raise `InputError` unless every element runs where it may, and no host is given more than it has."""
        found, needs = self.infrastructure, flow.needs
        if self.counts.shape != (flow.size, found.size) or (self.counts < 0).any():
            raise InputError(f"a plan of {flow.size} elements on {found.size} hosts has other places")
        names = [host.name for host in found.hosts]
        for element, count in enumerate(self.instances.tolist()):
            most = int(needs.most_instances[element])
            if not 1 <= count <= most:
                raise InputError(f"element {flow.names[element]}: {count} instances; 1 to {most} are allowed")
        wrong = np.argwhere((self.counts > 0) & ~found.allowed(needs.hosts, needs.sites))
        if len(wrong):
            raise InputError(f"element {flow.names[wrong[0][0]]} may not run on host {names[wrong[0][1]]}")
        for what, need, room in (("cores", needs.cores, found.cores), ("memory_mb", needs.memory_mb, found.memory_mb)):
            load = need @ self.counts
            over = np.flatnonzero(load > room * (1 + SLACK) + SLACK)
            if over.size:
                raise InputError(f"host {names[over[0]]}: {load[over[0]]:g} {what} are given, it has {room[over[0]]:g}")

    def described(self, flow: Flow) -> dict[str, Any]:
        """The plan in names, as the command line and the service tell it."""
        return {
            "hosts": [
                {
                    "host": host.name,
                    "instances": {flow.names[e]: int(n) for e, n in enumerate(self.counts[:, at].tolist()) if n},
                }
                for at, host in enumerate(self.infrastructure.hosts)
                if self.counts[:, at].any()
            ]
        }


def critical_path(flow: Flow, node: Floats, edge: Floats) -> float:
    """The longest path from an input to an element without successors.

    Parameters
    ----------
    node : float64, shape (elements,)
        Length of each element.
    edge : float64, shape (edges,)
        Length of each edge, in the order of ``flow.pred``.
    """
    return float(kernels.longest_path(flow.graph, node, edge))
