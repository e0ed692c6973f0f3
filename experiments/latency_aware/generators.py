"""The paper's hosts, network and topologies, as far as they are published, and the test problems made of them.

See docs/specs/latency-aware.md, sections 2.2, 4.1 to 4.3 and 7.3.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from experiments.latency_aware.cycles import CyclicProblem
from goffish.errors import InputError
from goffish.scheduling.dataflow.hosts import HostColumns, host_columns
from goffish.scheduling.policies.latency_aware.score import (
    CORE,
    UNKNOWN_CPU,
    UNKNOWN_MEMORY,
    Floats,
    Ints,
    PlacementProblem,
)

#: Leading digits of pi: seed of the paper's topologies.
PAPER_SEED = 3141592653589793238
#: Topologies of the paper.
PAPER_TOPOLOGIES = ("M1", "M2", "M3", *(f"R{n}" for n in range(1, 10)))
#: Operations of T-R9: the generator gives 20, the paper's table 10 (§6.11).
R9_OPERATIONS = 10
#: Messages sent back for one that was processed, on the edge that closes a cycle.
BACK_SELECTIVITY = 0.1


class JavaRandom:
    """Java's ``java.util.Random``: a linear congruential generator of 48 bits."""

    _MULTIPLIER, _MASK = 0x5DEECE66D, (1 << 48) - 1

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ self._MULTIPLIER) & self._MASK

    def _next(self, bits: int) -> int:
        self._state = (self._state * self._MULTIPLIER + 0xB) & self._MASK
        found = self._state >> (48 - bits)
        return found - (1 << bits) if found >> (bits - 1) else found

    def next_int(self, bound: int | None = None) -> int:
        """Any 32-bit integer, or one from 0 to bound - 1."""
        if bound is None:
            return self._next(32)
        if bound < 1:
            raise InputError(f"bound = {bound}: at least 1 is needed")
        bits = self._positive(31)
        if bound & (bound - 1) == 0:
            return (bound * bits) >> 31
        while bits - bits % bound + bound - 1 >= 1 << 31:
            bits = self._positive(31)
        return bits % bound

    def next_double(self) -> float:
        """From 0 to below 1, in steps of 2**-53."""
        return ((self._positive(26) << 27) + self._positive(27)) / (1 << 53)

    def _positive(self, bits: int) -> int:
        return self._next(bits) & ((1 << bits) - 1)


@dataclass(frozen=True)
class Topology:
    """Operations, the edges between them, and how many instances (operators) each has.

    Attributes
    ----------
    name : str
    edges : tuple of (int, int)
    instances : tuple of int
        Of each operation; operators are numbered operation by operation.
    selectivity : tuple of float
        Events that an operation emits for one that it processes.
    back : tuple of int
        Edges (by their place) that close a cycle; `BACK_SELECTIVITY` of the emitted events go along them.
    """

    name: str
    edges: tuple[tuple[int, int], ...]
    instances: tuple[int, ...]
    selectivity: tuple[float, ...]
    back: tuple[int, ...] = ()

    @property
    def operations(self) -> int:
        """Number of operations."""
        return len(self.instances)

    @property
    def operators(self) -> int:
        """Number of instances of all operations."""
        return sum(self.instances)

    @property
    def operation(self) -> Ints:
        """Of every operator, shape (operators,)."""
        return np.repeat(np.arange(self.operations), self.instances)

    @property
    def edge_factors(self) -> Floats:
        """Share of the emitted events that go along each edge."""
        factors = np.ones(len(self.edges))
        factors[list(self.back)] = BACK_SELECTIVITY
        return factors

    def inputs(self, rate: float) -> Floats:
        """Events that each operation receives, if every source is given `rate`, shape (operations,).

        Raises
        ------
        InputError
            If events multiply in a cycle without end.
        """
        gain = np.zeros((self.operations, self.operations))
        for (a, b), factor in zip(self.edges, self.edge_factors.tolist(), strict=True):
            gain[b, a] += self.selectivity[a] * factor
        if np.abs(np.linalg.eigvals(gain)).max(initial=0.0) >= 1:
            raise InputError(f"topology {self.name}: events multiply in a cycle without end")
        fed = {b for _, b in self.edges}
        external = np.array([0.0 if operation in fed else rate for operation in range(self.operations)])
        return np.asarray(np.linalg.solve(np.eye(self.operations) - gain, external))

    def operator_edges(self) -> Ints:
        """Every instance of an operation with every instance of the next one, shape (edges, 2)."""
        return self._expanded()[0]

    def events(self, rate: float) -> Floats:
        """Events over each of `operator_edges`.

        All that an operation emits goes to every operation behind it, in equal parts to its instances.
        """
        edges, of_edge = self._expanded()
        operation, instances = self.operation[edges], np.array(self.instances)
        sent = (self.inputs(rate) * np.array(self.selectivity) / instances)[operation[:, 0]]
        return np.asarray(sent / instances[operation[:, 1]] * self.edge_factors[of_edge])

    def _expanded(self) -> tuple[Ints, Ints]:
        first = np.concatenate(([0], np.cumsum(self.instances)))
        edges = [
            (u, v, at)
            for at, (a, b) in enumerate(self.edges)
            for u in range(first[a], first[a + 1])
            for v in range(first[b], first[b + 1])
        ]
        found = np.array(edges, np.int64).reshape(-1, 3)
        return found[:, :2], found[:, 2]


def paper_hosts() -> HostColumns:
    """The eleven hosts of the paper (§4.1) on the substitute network (§4.2); sites are switches."""
    cores = dict.fromkeys((2, 6, 7), 1.0) | {1: 1.5}
    memory = dict.fromkeys((2, 6, 7), 1024.0) | {1: 2048.0}
    switch = {1: "core"} | dict.fromkeys((2, 3, 4, 5), "A") | dict.fromkeys((6, 8, 9), "B")
    uplink = {"core": 0.0, "A": 1.0, "B": 2.0, "C": 3.0}
    access = dict.fromkeys((2, 6, 7), 0.3) | {1: 0.2}
    hosts = range(1, 12)
    sites = {n: switch.get(n, "C") for n in hosts}

    def latency(a: int, b: int) -> float:
        if a == b:
            return 0.0
        apart = 0.0 if sites[a] == sites[b] else uplink[sites[a]] + uplink[sites[b]]
        return access.get(a, 0.5) + access.get(b, 0.5) + apart

    return host_columns(
        [f"w{n}" for n in hosts],
        cores=[cores.get(n, 0.3) for n in hosts],
        memory_mb=[memory.get(n, 768.0) for n in hosts],
        latency_ms=[[latency(a, b) for b in hosts] for a in hosts],
    )


def paper_topology(name: str, *, cycle: bool = True) -> Topology:
    """A topology of the paper by its name, one of `PAPER_TOPOLOGIES` (with or without ``T-`` in front).

    Parameters
    ----------
    cycle : bool
        Whether R8 and R9 have their cycle.
    """
    short = name.removeprefix("T-")
    if short not in PAPER_TOPOLOGIES:
        raise InputError(f"no topology {name!r}: choose one of {', '.join(PAPER_TOPOLOGIES)}")
    number = int(short[1:])
    if short[0] == "M":
        instances = {1: (1, 1, 1, 1, 1, 1), 2: (1, 1, 10), 3: (1, 1, 1)}[number]
        inner = range(2, len(instances))
        path = [0, *inner, 1]
        return _named(short, list(pairwise(path)), instances)
    draws = JavaRandom(PAPER_SEED)
    for _ in range((number - 1) * 1000):
        draws.next_int()
    count = 5 + draws.next_int(20)
    edges = random_operations(R9_OPERATIONS if number == 9 else count, draws)
    found = _named(short, edges, (1, 1, *[2] * (max(map(max, edges)) - 1)))
    return with_cycle(found, draws) if cycle and number >= 8 else found


def random_operations(count: int, draws: JavaRandom) -> list[tuple[int, int]]:
    """Edges of a random topology (§4.3): 0 is the source, 1 the sink, the others as they were made.

    An edge that is drawn is replaced by an operation, or by two side by side; new edges come last, those into the new
    operations first.
    """
    edges, made = [(0, 1)], 2
    while made < count:
        a, b = edges.pop(draws.next_int(len(edges)))
        more = 1 if draws.next_double() < 0.6 or made + 1 == count else 2
        between = range(made, made + more)
        edges += [(a, new) for new in between] + [(new, b) for new in between]
        made += more
    return edges


def with_cycle(topology: Topology, draws: JavaRandom) -> Topology:
    """The same with an edge from a random inner operation back to one of its ancestors that is not the source."""
    before: dict[int, set[int]] = {v: set() for v in range(topology.operations)}
    for _ in range(topology.operations):
        for a, b in topology.edges:
            before[b] |= before[a] | {a}
    choices = [(v, u) for v in range(2, topology.operations) for u in sorted(before[v] - {0})]
    if not choices:
        raise InputError(f"topology {topology.name}: no inner operation has an inner one before it")
    edge = choices[draws.next_int(len(choices))]
    return replace(topology, edges=(*topology.edges, edge), back=(*topology.back, len(topology.edges)))


def paper_problem(name: str, *, rate: float = 100.0, cycle: bool = False) -> tuple[PlacementProblem, Topology]:
    """The test problem of §7.3: a topology of the paper with drawn selectivities and demands, on the paper's hosts.

    M1 to M3 have selectivities of 1 and demands of which nothing is known.

    Parameters
    ----------
    name : str
    rate : float
        Input of the source; demands stay what they are.
    cycle : bool
        Whether R8 and R9 have their cycle.
    """
    shape = paper_topology(name, cycle=cycle)
    draw = random.Random(zlib.crc32(shape.name.encode()) % 1000)
    if shape.name[0] == "M":
        return topology_problem(shape, paper_hosts(), [UNKNOWN_CPU] * shape.operations, rate=rate), shape
    selectivity = tuple(draw.choice([0.5, 1.0, 1.0, 1.5]) for _ in shape.instances)
    demand = [draw.uniform(5, 18) for _ in shape.instances]
    topology = replace(shape, selectivity=selectivity)
    return topology_problem(topology, paper_hosts(), demand, rate=rate), topology


def topology_problem(
    topology: Topology,
    hosts: HostColumns,
    cpu: Sequence[float] | NDArray[np.float64],
    *,
    memory_mb: float = UNKNOWN_MEMORY,
    rate: float = 100.0,
) -> PlacementProblem:
    """A topology on hosts.

    Parameters
    ----------
    cpu : float, shape (operations,)
        Demand of an instance of each operation, CPU points.
    memory_mb : float
        Demand of every instance.
    rate : float
        Input of every source.
    """
    return (CyclicProblem if topology.back else PlacementProblem)(
        edges=topology.operator_edges(),
        events=topology.events(rate),
        cpu=np.asarray(cpu, np.float64)[topology.operation],
        memory=np.full(topology.operators, memory_mb),
        cpu_capacity=CORE * hosts.cores * hosts.speeds,
        memory_capacity=hosts.memory_mb,
        latency_ms=hosts.latency_ms,
        hosts=hosts.names,
    )


def _named(name: str, edges: list[tuple[int, int]], instances: tuple[int, ...]) -> Topology:
    return Topology(name, tuple(edges), instances, (1.0,) * len(instances))
