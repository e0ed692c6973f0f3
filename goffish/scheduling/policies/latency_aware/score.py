"""The score of a placement of operators on hosts: co-location, used hosts, events between hosts, and latency.

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
#: Usable share of a host's CPU and memory.
LIMIT = 0.95
#: Default demand of an operator (Storm's defaults): CPU points, MB.
UNKNOWN_CPU, UNKNOWN_MEMORY = 10.0, 128.0


class ScoreWeights(NamedTuple):
    """Weights of the parts of the score (§2.4).

    Attributes
    ----------
    latency, hosts, cuts, events : float
    relative : bool
        Whether latency counts as a share of its maximum (operators times the longest latency) instead of milliseconds
        (§6.3).
    """

    latency: float = 1e-6
    hosts: float = 1.0
    cuts: float = 1.0
    events: float = 1.0
    relative: bool = False


#: Weights with latency as a share, of the same weight as the rest.
RELATIVE = ScoreWeights(latency=1.0, relative=True)


class Columns(NamedTuple):
    """A problem in the form that kernels take.

    `pred[pred_offsets[i]:pred_offsets[i + 1]]` are the predecessors of operator i, `near` and `pull` its neighbors in
    both directions and the cost of being apart from them.
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
    """Communicating operators, and hosts to place them on.

    Attributes
    ----------
    edges : int64, shape (edges, 2)
        Source and target operators; acyclic.
    events : float64, shape (edges,)
        Events emitted over each edge; only the shares count.
    cpu : float64, shape (operators,)
        Demand in CPU points.
    memory : float64, shape (operators,)
        Demand in MB.
    cpu_capacity, memory_capacity : float64, shape (hosts,)
        Capacities; infinite: unlimited.
    latency_ms : float64, shape (hosts, hosts)
        One way; 0 on the same host.
    allowed : bool, shape (operators, hosts)
        Permitted hosts of each operator; default: all.
    hosts : tuple of str
        Names of the hosts; default: numbers.
    weights : ScoreWeights
    limit : float
        Usable share of the CPU and memory of a host.

    Raises
    ------
    InputError
        If shapes do not fit, numbers are out of range, or an operator is not permitted on any host.
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
                raise InputError(f"{name}: shape {found}; expected {shape}")
        if not operators or not hosts:
            raise InputError("a placement requires at least one operator and one host")
        for name in ("events", "cpu", "memory", "latency_ms"):
            found = getattr(self, name)
            if not np.isfinite(found).all() or (found < 0).any():
                raise InputError(f"{name}: numbers must be finite and 0 or more")
        if not (self.cpu_capacity > 0).all() or not (self.memory_capacity > 0).all():
            raise InputError("cpu_capacity and memory_capacity must be greater than 0 for every host")
        if self.edges.size and not 0 <= self.edges.min() <= self.edges.max() < operators:
            raise InputError(f"edges: operators must be 0 to {operators - 1}")
        if np.diag(self.latency_ms).any():
            raise InputError("latency_ms: must be 0 from a host to itself")
        stuck = np.flatnonzero(~self.may.any(axis=1))
        if stuck.size:
            raise InputError(f"allowed: operator {stuck[0]} is not permitted on any host")
        weights = self.weights
        if min(weights[:4]) < 0 or not weights.hosts > 0:
            raise InputError(f"weights = {weights[:4]}: must be 0 or more, and that of hosts greater than 0")
        if not 0 < self.limit <= 1:
            raise InputError(f"limit = {self.limit:g}: must be greater than 0 and at most 1")

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
        """`allowed`; always set."""
        assert self.allowed is not None
        return self.allowed

    @cached_property
    def order(self) -> Ints:
        """Operators in the order in which events reach them: by depth, from the sources on (§2.7).

        Raises
        ------
        InputError
            If the edges contain a cycle.
        """
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.operators))
        graph.add_edges_from(self.edges.tolist())
        try:
            return np.fromiter(nx.topological_sort(graph), np.int64, self.operators)
        except nx.NetworkXUnfeasible:
            raise InputError("edges: contain a cycle; dataflows must be acyclic") from None

    @cached_property
    def apart(self) -> Floats:
        """Cost of each edge if its two ends are on different hosts."""
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
        """Convert the problem to the form that kernels take."""
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
        """Convert a placement to an array; raise `InputError` unless every operator is on a host."""
        found = np.array(hosts, np.int64)
        if found.shape != (self.operators,) or not 0 <= found.min() <= found.max() < self.size:
            raise InputError(f"placement: expected {self.operators} hosts, each 0 to {self.size - 1}")
        return found


class Score(NamedTuple):
    """Score of a placement; lower is better.

    Attributes
    ----------
    value : float
        Weighted sum of all parts.
    latency_ms : float
        Latency of the slowest path through the network.
    hosts, cuts, events : float
        Shares of used hosts, of edges between hosts, and of events over these edges.
    violations : int
        Number of hosts without enough CPU, hosts without enough memory, and operators on hosts that are not permitted.
    overload : float
        Usage above the limit, as a share of the limit, summed over hosts; plus 1 for each operator on a host that is
        not permitted.
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
        """The objective: violations, then score."""
        return self.violations, self.value


def evaluate(problem: PlacementProblem, placement: ArrayLike) -> Score:
    """Compute the score of a placement (§2.4, §2.5).

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
    """Place every operator, in topological order, on the host with the most free memory, the first among equals (§3.2).

    Free memory counts up to the limit.

    Parameters
    ----------
    start : int64, shape (operators,), optional
        Hosts of operators that are placed already; -1 for the others.
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
