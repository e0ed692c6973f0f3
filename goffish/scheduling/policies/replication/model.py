"""Operators, queries and hosts as arrays, and plans of replicas.

See docs/specs/selective-replication.md, section 2. A plan is a bool array of shape (operators, hosts) of
the hosts that run each operator, including primaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = NDArray[np.bool_]
#: Tolerance of comparisons of loads.
SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class System:
    """Operators to replicate, and hosts with free capacity.

    Attributes
    ----------
    loads : float64, shape (operators,)
        Cores of one replica of each operator.
    primary : int64, shape (operators,)
        Host of the primary of each operator.
    queries : tuple of int64 arrays
        Operators of each query, ascending.
    failures : float64, shape (hosts,)
        Probability of each host to fail within the period.
    capacity : float64, shape (hosts,)
        Cores.
    edges : int64, shape (edges, 2)
        Producer and consumer of each edge.
    traffic : float64, shape (edges,)
        Traffic between one replica of each, in units of `network` per second.
    network : float64, shape (hosts,)
        Limit of the outgoing, and of the incoming, traffic of each host.
    weights : float64, shape (queries,)
    pinned : bool, shape (operators,)
        Operators that are never replicated.
    draining : bool, shape (hosts,)
        Hosts that receive no replicas.
    racks : int64, shape (hosts,)
    rack_failures : float64, shape (racks,)
        Probability that a whole rack fails within the period.
    spread_by_rack : bool
        Whether replicas of an operator must be on distinct racks.
    """

    loads: Floats
    primary: Ints
    queries: tuple[Ints, ...]
    failures: Floats
    capacity: Floats
    edges: Ints
    traffic: Floats
    network: Floats
    weights: Floats
    pinned: Places
    draining: Places
    racks: Ints
    rack_failures: Floats
    spread_by_rack: bool = False

    @property
    def operators(self) -> int:
        """Number of operators."""
        return self.loads.size

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.failures.size

    @cached_property
    def degrees(self) -> Ints:
        """Number of queries of each operator."""
        return np.bincount(np.concatenate([*self.queries, np.zeros(0, np.int64)]), minlength=self.operators)

    @cached_property
    def queries_of(self) -> tuple[tuple[int, ...], ...]:
        """Queries of each operator, ascending."""
        found: list[list[int]] = [[] for _ in range(self.operators)]
        for query, operators in enumerate(self.queries):
            for operator in operators.tolist():
                found[operator].append(query)
        return tuple(tuple(some) for some in found)

    @cached_property
    def query_operators(self) -> Ints:
        return np.concatenate([*self.queries, np.zeros(0, np.int64)]).astype(np.int64)

    @cached_property
    def forward(self) -> tuple[Ints, Ints, Floats]:
        """Offsets, consumers and traffic, by producer."""
        return self._sorted(0)

    @cached_property
    def backward(self) -> tuple[Ints, Ints, Floats]:
        """Offsets, producers and traffic, by consumer."""
        return self._sorted(1)

    def _sorted(self, side: int) -> tuple[Ints, Ints, Floats]:
        order = np.lexsort((self.edges[:, 1 - side], self.edges[:, side]))
        offsets = np.searchsorted(self.edges[order, side], np.arange(self.operators + 1)).astype(np.int64)
        return offsets, self.edges[order, 1 - side].copy(), self.traffic[order]

    @property
    def limited(self) -> bool:
        """Whether the network of any host has a limit."""
        return bool(np.isfinite(self.network).any())

    @cached_property
    def full_load(self) -> float:
        """Of one copy of every operator."""
        return float(self.loads.sum())


class Network(NamedTuple):
    """Traffic between operators, and limits of hosts.

    Attributes
    ----------
    traffic : mapping from (producer, consumer) to float
        Its keys are the edges.
    limits : iterable of float, optional
        Limit of the outgoing, and of the incoming, traffic of each host; default: unlimited.
    """

    traffic: Mapping[tuple[int, int], float]
    limits: Iterable[float] | None = None


class Racks(NamedTuple):
    """Racks: hosts that fail together.

    Attributes
    ----------
    of_hosts : iterable of int
        The rack of each host.
    failures : iterable of float
        Probability that each whole rack fails within the period; default: 0.
    spread : bool
        Whether replicas of an operator must be on distinct racks.
    """

    of_hosts: Iterable[int]
    failures: Iterable[float] = ()
    spread: bool = False


def system(
    loads: Iterable[float],
    primary: Iterable[int],
    queries: Sequence[Iterable[int]],
    failures: Iterable[float],
    capacity: Iterable[float],
    *,
    network: Network | None = None,
    weights: Iterable[float] | None = None,
    pinned: Iterable[int] = (),
    draining: Iterable[int] = (),
    racks: Racks | None = None,
) -> System:
    """Build a system from plain numbers; see `System`.

    Parameters
    ----------
    network : Network, optional
        Default: no traffic between operators.
    pinned, draining : iterable of int
        Operators and hosts.
    racks : Racks, optional
        Default: all hosts are in one rack, which does not fail.

    Raises
    ------
    InputError
        If a number is out of range, or arrays have inconsistent lengths.
    """
    load, home = np.array(list(loads), np.float64), np.array(list(primary), np.int64)
    failure, room = np.array(list(failures), np.float64), np.array(list(capacity), np.float64)
    hosts = failure.size
    of_hosts, rack_failures, spread = racks or Racks([0] * hosts)
    rack, together = np.array(list(of_hosts), np.int64), np.array(list(rack_failures), np.float64)
    if not together.size:
        together = np.zeros(int(rack.max(initial=0)) + 1)
    links, limits = network or Network({})
    found = System(
        loads=load,
        primary=home,
        queries=tuple(np.unique(np.array(list(some), np.int64)) for some in queries),
        failures=failure,
        capacity=room,
        edges=np.array(list(links), np.int64).reshape(-1, 2),
        traffic=np.array(list(links.values()), np.float64),
        network=np.full(hosts, np.inf) if limits is None else np.array(list(limits), np.float64),
        weights=np.ones(len(queries)) if weights is None else np.array(list(weights), np.float64),
        pinned=np.isin(np.arange(load.size), list(pinned)),
        draining=np.isin(np.arange(hosts), list(draining)),
        racks=rack,
        rack_failures=together,
        spread_by_rack=spread,
    )
    _refuse(found)
    return found


def _refuse(found: System) -> None:
    for name, values, low, high in (
        ("loads", found.loads, 0.0, np.inf), ("primary", found.primary, 0, found.hosts - 1),
        ("failures", found.failures, 0.0, 1.0), ("capacity", found.capacity, 0.0, np.inf),
        ("queries", found.query_operators, 0, found.operators - 1), ("traffic", found.traffic, 0.0, np.inf),
        ("edges", found.edges, 0, found.operators - 1), ("weights", found.weights, 0.0, np.inf),
        ("racks", found.racks, 0, found.rack_failures.size - 1), ("rack_failures", found.rack_failures, 0.0, 1.0),
        ("network", found.network, 0.0, np.inf),
    ):  # fmt: skip
        wrong = values[~((values >= low) & (values <= high))]
        if wrong.size:
            raise InputError(f"{name}: {wrong[0]:g} must be between {low:g} and {high:g}")
    for name, values, size in (
        ("primary", found.primary, found.operators), ("capacity", found.capacity, found.hosts),
        ("network", found.network, found.hosts), ("racks", found.racks, found.hosts),
        ("weights", found.weights, len(found.queries)),
    ):  # fmt: skip
        if values.size != size:
            raise InputError(f"{name}: expected {size} numbers, found {values.size}")
    if any(not some.size for some in found.queries):
        raise InputError("queries: every query must have at least one operator")


def primaries(found: System) -> Places:
    """The plan without any replica, shape (operators, hosts)."""
    places = np.zeros((found.operators, found.hosts), np.bool_)
    places[np.arange(found.operators), found.primary] = True
    return places


def host_loads(found: System, places: Places) -> Floats:
    """Used cores of each host."""
    return np.asarray(found.loads @ places, np.float64)


def replica_load(found: System, places: Places) -> float:
    """Cores of all replicas: the cost of a plan."""
    return float(found.loads @ (places.sum(axis=1) - 1))


def remaining(found: System, places: Places) -> float:
    """Free cores of all hosts; negative if hosts are overloaded."""
    return float(found.capacity.sum() - host_loads(found, places).sum())


def network_use(found: System, places: Places) -> tuple[Floats, Floats]:
    """Incoming and outgoing traffic of each host: every replica of a consumer receives from every remote producer."""
    copies = places.sum(axis=1)
    producers, consumers = found.edges[:, 0], found.edges[:, 1]
    into = found.traffic @ (places[consumers] * (copies[producers][:, None] - places[producers]))
    out = found.traffic @ (places[producers] * (copies[consumers][:, None] - places[consumers]))
    return np.asarray(into, np.float64), np.asarray(out, np.float64)


def host_masks(places: Places) -> list[int]:
    """Hosts of each operator as the bits of a number."""
    packed = np.packbits(places, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def check(found: System, places: Places) -> None:
    """Raise `InputError` unless a plan respects primaries, capacities and pins."""
    if places.shape != (found.operators, found.hosts):
        raise InputError(f"plan: shape {places.shape}; expected {(found.operators, found.hosts)}")
    if not places[np.arange(found.operators), found.primary].all():
        raise InputError("plan: the primary of an operator is missing")
    wrong = np.flatnonzero(found.pinned & (places.sum(axis=1) > 1))
    if wrong.size:
        raise InputError(f"plan: operator {wrong[0]} is pinned, but replicated")
    if found.spread_by_rack:
        for operator in np.flatnonzero(places.sum(axis=1) > 1).tolist():
            racks = found.racks[places[operator]]
            if np.unique(racks).size < racks.size:
                raise InputError(f"plan: operator {operator} has two replicas in one rack")
    loads = [("cores", host_loads(found, places), found.capacity)]
    if found.limited:
        into, out = network_use(found, places)
        loads += [("incoming traffic", into, found.network), ("outgoing traffic", out, found.network)]
    for what, use, room in loads:
        over = np.flatnonzero(use > room + SLACK * np.maximum(1.0, room))
        if over.size:
            raise InputError(f"host {over[0]}: {use[over[0]]:g} {what} used, {room[over[0]]:g} available")
