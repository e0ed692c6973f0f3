"""What a placement of operators on hosts is worth: co-location, hosts in use, events between hosts, latency.

See docs/specs/latency-aware.md, section 2. An *operator* is one instance of an operation; operators and hosts are
numbered from 0, a placement is the host of every operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware import score_kernels as kernels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: CPU points of one core.
CORE = 100.0
#: Share of a host's CPU and memory that may be used.
LIMIT = 0.95
#: Demand of an operator of which nothing is known yet (Storm's defaults): CPU points, MB.
UNKNOWN_CPU, UNKNOWN_MEMORY = 10.0, 128.0


class ScoreWeights(NamedTuple):
    """Of the parts of the score (§2.4).

    Attributes
    ----------
    latency, hosts, cuts, events : float
    relative : bool
        Latency counts as a share of what it could be at most (operators times the longest latency), not in
        milliseconds (§6.3).
    """

    latency: float = 1e-6
    hosts: float = 1.0
    cuts: float = 1.0
    events: float = 1.0
    relative: bool = False


#: Latency as a share, of the same weight as the rest.
RELATIVE = ScoreWeights(latency=1.0, relative=True)


class Columns(NamedTuple):
    """A problem as the kernels want it.

    `pred[pred_offsets[i]:pred_offsets[i + 1]]` are the predecessors of operator i, `near` and `pull` its neighbours
    either way and what it costs to be apart from them.
    """

    order: Ints
    pred_offsets: Ints
    pred: Ints
    source: Ints
    target: Ints
    apart: Floats
    near_offsets: Ints
    near: Ints
    pull: Floats
    cpu: Floats
    memory: Floats
    cpu_limit: Floats
    memory_limit: Floats
    latency: Floats
    allowed: NDArray[np.bool_]
    latency_weight: float
    host_weight: float


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacementProblem:
    """Operators that talk, and hosts to put them on.

    Attributes
    ----------
    edges : int64, shape (edges, 2)
        From operator, to operator; without cycles.
    events : float64, shape (edges,)
        Emitted over each edge; only the shares count.
    cpu : float64, shape (operators,)
        Demand, CPU points.
    memory : float64, shape (operators,)
        Demand, MB.
    cpu_capacity, memory_capacity : float64, shape (hosts,)
        Infinite is without a limit.
    latency_ms : float64, shape (hosts, hosts)
        One way; 0 inside of a host.
    allowed : bool, shape (operators, hosts)
        The slot rule, and hosts that operators are tied to; default: anywhere.
    hosts : tuple of str
        Names; default: numbers.
    weights : ScoreWeights
    limit : float
        Share of its CPU and memory that may be used on a host.

    Raises
    ------
    InputError
        If shapes do not fit, figures are out of their range, or an operator may run nowhere.
    """

    edges: Ints
    events: Floats
    cpu: Floats
    memory: Floats
    cpu_capacity: Floats
    memory_capacity: Floats
    latency_ms: Floats
    allowed: NDArray[np.bool_] | None = None
    hosts: tuple[str, ...] = ()
    weights: ScoreWeights = field(default_factory=ScoreWeights)
    limit: float = LIMIT

    def __post_init__(self) -> None:
        self._take("edges", np.asarray(self.edges, np.int64).reshape(-1, 2))
        for name in ("events", "cpu", "memory", "cpu_capacity", "memory_capacity", "latency_ms"):
            self._take(name, np.array(getattr(self, name), np.float64))
        operators, hosts = self.cpu.size, self.cpu_capacity.size
        if self.allowed is None:
            self._take("allowed", np.ones((operators, hosts), np.bool_))
        if not self.hosts:
            self._take("hosts", tuple(map(str, range(hosts))))
        for name, shape in (
            ("events", (len(self.edges),)), ("cpu", (operators,)), ("memory", (operators,)),
            ("cpu_capacity", (hosts,)), ("memory_capacity", (hosts,)), ("latency_ms", (hosts, hosts)),
            ("allowed", (operators, hosts)), ("hosts", (hosts,)),
        ):  # fmt: skip
            found = np.shape(getattr(self, name))
            if found != shape:
                raise InputError(f"{name} of shape {found}: {shape} is needed")
        if not operators or not hosts:
            raise InputError("a placement needs at least one operator and one host")
        for name in ("events", "cpu", "memory", "latency_ms"):
            found = getattr(self, name)
            if not np.isfinite(found).all() or (found < 0).any():
                raise InputError(f"{name} holds numbers below 0, or infinite ones")
        if not (self.cpu_capacity > 0).all() or not (self.memory_capacity > 0).all():
            raise InputError("cpu_capacity and memory_capacity of every host must be above 0")
        if self.edges.size and not 0 <= self.edges.min() <= self.edges.max() < operators:
            raise InputError(f"edges name operators that are not there; they are 0 to {operators - 1}")
        if np.diag(self.latency_ms).any():
            raise InputError("latency_ms: from a host to itself it must be 0")
        stuck = np.flatnonzero(~self.may.any(axis=1))
        if stuck.size:
            raise InputError(f"operator {stuck[0]} may run on no host")
        weights = self.weights
        if min(weights[:4]) < 0 or not weights.hosts > 0:
            raise InputError(f"weights are {weights[:4]}: none below 0, and that of hosts above 0, are needed")
        if not 0 < self.limit <= 1:
            raise InputError(f"limit = {self.limit:g}: above 0 and at most 1 is needed")

    def _take(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def operators(self) -> int:
        """Number of operators."""
        return int(self.cpu.size)

    @property
    def size(self) -> int:
        """Number of hosts."""
        return int(self.cpu_capacity.size)

    @property
    def may(self) -> NDArray[np.bool_]:
        """`allowed`, which is always set."""
        assert self.allowed is not None
        return self.allowed

    @cached_property
    def order(self) -> Ints:
        """Operators in the order in which events reach them: those of one depth together, from the sources on (§2.7).

        Raises
        ------
        InputError
            If the edges hold a cycle.
        """
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.operators))
        graph.add_edges_from(self.edges.tolist())
        try:
            return np.fromiter(nx.topological_sort(graph), np.int64, self.operators)
        except nx.NetworkXUnfeasible:
            raise InputError("edges hold a cycle; a dataflow has none") from None

    @cached_property
    def apart(self) -> Floats:
        """What it costs that the two ends of each edge are on different hosts."""
        count, total = len(self.edges), self.events.sum()
        shares = self.events / total if total > 0 else np.zeros(count)
        return np.asarray(self.weights.cuts / max(1, count) + self.weights.events * shares)

    @cached_property
    def latency_weight(self) -> float:
        """Cost of a millisecond."""
        most = self.operators * float(self.latency_ms.max())
        if not self.weights.relative:
            return self.weights.latency
        return self.weights.latency / most if most > 0 else 0.0

    @cached_property
    def columns(self) -> Columns:
        """The same for the kernels."""
        source, target = self.edges[:, 0], self.edges[:, 1]
        pred_offsets, by_target = grouped(target, self.operators)
        near_offsets, by_operator = grouped(np.concatenate((source, target)), self.operators)
        return Columns(
            order=self.order,
            pred_offsets=pred_offsets,
            pred=source[by_target],
            source=np.ascontiguousarray(source),
            target=np.ascontiguousarray(target),
            apart=self.apart,
            near_offsets=near_offsets,
            near=np.concatenate((target, source))[by_operator],
            pull=np.tile(self.apart, 2)[by_operator],
            cpu=self.cpu,
            memory=self.memory,
            cpu_limit=self.limit * self.cpu_capacity,
            memory_limit=self.limit * self.memory_capacity,
            latency=self.latency_ms,
            allowed=np.ascontiguousarray(self.may, np.bool_),
            latency_weight=self.latency_weight,
            host_weight=self.weights.hosts / self.size,
        )

    def placement(self, hosts: ArrayLike) -> Ints:
        """A placement as an array of its own; raises `InputError` unless every operator is on a host."""
        found = np.array(hosts, np.int64)
        if found.shape != (self.operators,) or not 0 <= found.min() <= found.max() < self.size:
            raise InputError(f"a placement has {self.operators} hosts, each 0 to {self.size - 1}")
        return found


class Score(NamedTuple):
    """Of a placement; less is better.

    Attributes
    ----------
    value : float
        All parts, weighted.
    latency_ms : float
        Of the slowest path through the network.
    hosts, cuts, events : float
        Shares of the hosts in use, of the edges between hosts, and of the events over them.
    violations : int
        Hosts without enough CPU, hosts without enough memory, and operators where they may not be.
    overload : float
        What is used above the limit, as a share of the limit, over all hosts; operators where they may not be are 1.
    """

    value: float
    latency_ms: float
    hosts: float
    cuts: float
    events: float
    violations: int
    overload: float

    @property
    def key(self) -> tuple[int, float]:
        """What the better one of two placements has less of: violations, then score."""
        return self.violations, self.value


def evaluate(problem: PlacementProblem, placement: ArrayLike) -> Score:
    """The score of a placement (§2.4, §2.5).

    Parameters
    ----------
    placement : int, shape (operators,)
        Host of every operator.
    """
    place = problem.placement(placement)
    value, latency, violations, overload = kernels.evaluate(problem.columns, place)
    source, target = problem.edges.T
    cut, total = place[source] != place[target], problem.events.sum()
    return Score(
        value=value,
        latency_ms=latency,
        hosts=np.unique(place).size / problem.size,
        cuts=float(cut.mean()) if cut.size else 0.0,
        events=float(problem.events[cut].sum() / total) if total > 0 else 0.0,
        violations=violations,
        overload=overload,
    )


def greedy_placement(problem: PlacementProblem, start: Ints | None = None) -> Ints:
    """Every operator, in topological order, on the host with the most free memory, the lowest of equal ones (§3.2).

    What is free counts up to the limit.

    Parameters
    ----------
    start : int64, shape (operators,), optional
        Operators that have a host already; -1 for the others.
    """
    place = np.full(problem.operators, -1, np.int64) if start is None else np.array(start, np.int64)
    free = problem.limit * problem.memory_capacity
    for operator in np.flatnonzero(place >= 0).tolist():
        free[place[operator]] -= problem.memory[operator]
    for operator in problem.order.tolist():
        if place[operator] < 0:
            place[operator] = int(np.argmax(np.where(problem.may[operator], free, -np.inf)))
            free[place[operator]] -= problem.memory[operator]
    return place


def grouped(keys: Ints, size: int) -> tuple[Ints, Ints]:
    """Offsets of the rows of each key, and the rows in that order."""
    offsets = np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=size)))).astype(np.int64)
    return offsets, np.argsort(keys, kind="stable")
