"""The optimization problem of EDRP, and the metrics of its deployments.

The input is a dataflow with its rates, hosts with their network, weights, bounds, and the current deployment.
See docs/specs/edrp.md, sections 2 and 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.dataflow.hosts import HostColumns
from goffish.scheduling.dataflow.needs import NO_LIMIT
from goffish.scheduling.policies.edrp import kernels

Ints = NDArray[np.int64]

#: Maximum number of entries of the table of latencies: 800 MB.
MOST_LATENCIES = 100_000_000


class Latency(Protocol):
    """Mean latency of one instance on the reference processor; increases with the rate (§2.4)."""

    def seconds(self, rates: Floats) -> Floats:
        """Latency at rates (messages per second); infinite if an instance cannot keep up."""
        ...


@dataclass(frozen=True)
class Queue:
    """A queue with Poisson arrivals and one server.

    Attributes
    ----------
    rate : float
        Service rate in messages per second (mu).
    variation : float
        Coefficient of variation of the service time: 1 is M/M/1, 0 M/D/1, others M/G/1.
    """

    rate: float
    variation: float = 1.0

    def __post_init__(self) -> None:
        if not self.rate > 0 or not self.variation >= 0:
            raise InputError(
                f"queue: rate = {self.rate:g}, variation = {self.variation:g}: must be greater than 0, and 0 or more"
            )

    def seconds(self, rates: Floats) -> Floats:
        """1/mu plus the mean wait of Pollaczek and Khinchine."""
        given = np.asarray(rates, np.float64)
        left = np.where(given < self.rate, self.rate - given, 1.0)
        spread = 0.5 * (1.0 + self.variation**2)
        return np.where(given < self.rate, 1.0 / self.rate + given * spread / (self.rate * left), np.inf)


@dataclass(frozen=True)
class Weights:
    """Weights of the metrics in the objective (Eq. 12); their sum is 1.

    Attributes
    ----------
    response, price, downtime : float
    availability : float
        Extension; requires a bound of the availability.
    """

    response: float = 0.5
    price: float = 0.5
    downtime: float = 0.0
    availability: float = 0.0

    def __post_init__(self) -> None:
        found = (self.response, self.price, self.downtime, self.availability)
        if min(found) < 0 or abs(sum(found) - 1.0) > 1e-9:
            raise InputError(f"weights {found}: must be 0 or more and sum to 1")

    def with_downtime(self, weight: float) -> Weights:
        """Return the weights with another weight of downtime, the others rescaled."""
        rest = 1.0 - self.downtime
        part = (1.0 - weight) / rest if rest > 0 else 0.0
        if rest <= 0:
            return Weights((1 - weight) / 2, (1 - weight) / 2, weight)
        return Weights(self.response * part, self.price * part, weight, self.availability * part)


@dataclass(frozen=True)
class Bounds:
    """Hard limits, which also normalize the metrics.

    Attributes
    ----------
    response_s, price, downtime_s : float
        Bounds; `price` is per hour.
    availability : float, optional
        Least probability that all hosts and links in use work.
    """

    response_s: float = 0.175
    price: float = 30.0
    downtime_s: float = 7.5
    availability: float | None = None

    def __post_init__(self) -> None:
        for name in ("response_s", "price", "downtime_s"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"bound {name} = {getattr(self, name):g}: must be finite and greater than 0")
        if self.availability is not None and not 0 < self.availability < 1:
            raise InputError(f"bound availability = {self.availability:g}: must be between 0 and 1")


@dataclass(frozen=True)
class Reconfiguration:
    """Costs of changing a deployment.

    Attributes
    ----------
    sync_s : float
        Fixed overhead.
    storm : bool
        Whether any change restarts the whole dataflow, and every replica saves and restores its state.
    literal : bool
        Use the formulas as printed, with their errors (§2.6).
    local_mbit_s : float
        Bandwidth of a host's own disk, in the Storm variant.
    """

    sync_s: float = 0.25
    storm: bool = False
    literal: bool = False
    local_mbit_s: float = 1000.0


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem.

    Attributes
    ----------
    flow : Flow
        PEs, edges, and the requirements of an instance of each PE.
    hosts : HostColumns
    input_rates : float64, shape (elements,)
        Input rate of each PE; for a source, its output rate (lambda).
    edge_rates : float64, shape (edges,)
        In the order of ``flow.pred``.
    latencies : tuple of Latency
        Latency of one instance of each PE on the reference processor.
    most : int64, shape (elements,)
        Maximum number of replicas of each PE (k).
    unit_price : float64, shape (elements,)
        Price of a core for an hour for each PE (C).
    weights, bounds, reconfiguration
    current : int64, shape (elements, hosts), optional
        Running replicas; default: a first deployment, without downtime.
    host_price : float64, shape (hosts,), optional
        Price of an hour of each used host; default: 0, as in the paper.
    skew : float
        Load of the busiest replica over the mean.
    scale_rates : bool
        Whether the speed of a host also raises its service rate, not only its latency (§6.7).
    link_availability : float64, shape (hosts, hosts), optional
        Default: 1.
    """

    flow: Flow
    hosts: HostColumns
    input_rates: Floats
    edge_rates: Floats
    latencies: tuple[Latency, ...]
    most: Ints
    unit_price: Floats
    weights: Weights = Weights()
    bounds: Bounds = Bounds()
    reconfiguration: Reconfiguration = Reconfiguration()
    current: Ints | None = None
    host_price: Floats | None = None
    skew: float = 1.0
    scale_rates: bool = False
    link_availability: Floats | None = None

    def __post_init__(self) -> None:
        if self.skew < 1:
            raise InputError(f"skew = {self.skew:g}: must be 1 or more")
        if self.weights.availability > 0 and self.bounds.availability is None:
            raise InputError("weights: availability requires a bound availability")
        shape = (self.flow.size, self.hosts.size)
        if self.current is not None and self.current.shape != shape:
            raise InputError(f"current: shape {self.current.shape}; expected {shape}")

    def change(self, **fields: Any) -> Problem:
        """Return the problem with other fields."""
        return replace(self, **fields)

    @property
    def size(self) -> int:
        """Number of PEs."""
        return self.flow.size

    @cached_property
    def targets(self) -> Ints:
        """PE at the end of each edge."""
        return np.repeat(np.arange(self.size), np.diff(self.flow.pred_offsets))

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Hosts that each PE may use, shape (elements, hosts)."""
        return self.hosts.allowed(self.flow.needs)

    @cached_property
    def table(self) -> Floats:
        """Latency of each PE by number of replicas and host, shape (elements, most + 1, hosts) (Eq. 1)."""
        speeds = self.hosts.speeds
        most = int(self.most.max())
        if self.size * (most + 1) * speeds.size > MOST_LATENCIES:
            raise InputError(
                f"{self.size} processing elements of up to {most:,} instances on {speeds.size} hosts: too many; "
                "set needs.most_instances, or remove machine types that are far too slow"
            )
        found = np.full((self.size, most + 1, speeds.size), np.inf)
        for i, latency in enumerate(self.latencies):
            load = self.skew * self.input_rates[i] / np.arange(1, most + 1)[:, None]
            found[i, 1:] = latency.seconds(load / speeds if self.scale_rates else load + 0 * speeds) / speeds
        return found

    @cached_property
    def log_floor(self) -> float:
        """Logarithm of the least availability; 0 without a bound."""
        return 0.0 if self.bounds.availability is None else float(np.log(self.bounds.availability))

    @cached_property
    def model(self) -> Any:
        """Return the arrays for the kernels."""
        flow, hosts, change = self.flow, self.hosts, self.reconfiguration
        count, needs = hosts.size, flow.needs
        none = np.zeros((self.size, count), np.int64)
        current = none if self.current is None else np.ascontiguousarray(self.current, np.int64)
        out = np.argsort(flow.pred, kind="stable").astype(np.int64)
        stable = np.isfinite(self.table)
        # Number of replicas from which on a PE keeps up on a host; the maximum plus one if it never does.
        missing = np.where(stable.any(axis=1), stable.argmax(axis=1), self.table.shape[1]).astype(np.float64)
        links = np.ones((count, count)) if self.link_availability is None else self.link_availability
        w, b = self.weights, self.bounds
        scale = [
            w.response / b.response_s,
            w.price / b.price,
            0.0 if self.current is None else w.downtime / b.downtime_s,
        ]
        host_price = np.zeros(count) if self.host_price is None else self.host_price
        trip_s, up_bps, down_bps = hosts.store_latency_ms / 1000.0, 1e6 * hosts.to_store, 1e6 * hosts.from_store
        elements = np.array(
            [
                self.unit_price * needs.cores, needs.cores, needs.memory_mb, needs.state_mb * 8e6, needs.code_mb * 8e6,
                np.zeros(self.size),
            ]
        )  # fmt: skip
        each = np.array(
            [
                host_price, np.log1p(-hosts.failures), hosts.cores, hosts.memory_mb, trip_s, trip_s, up_bps, down_bps,
                hosts.startup_s, current.any(axis=0),
            ]
        )  # fmt: skip
        model = kernels.Model(
            flow.order, flow.pred_offsets, flow.pred, self.targets,
            np.searchsorted(flow.pred[out], np.arange(self.size + 1)).astype(np.int64), out, self.most, self.edge_rates,
            self.table, missing, self.allowed, current, elements, each,
            np.array([hosts.latencies_s, hosts.traffic_prices, np.log(links)]),
            np.array([change.local_mbit_s * 1e6, change.sync_s, needs.code_mb.sum() * 8e6]),
            np.array([*scale, w.availability / self.log_floor if self.log_floor else 0.0]),
            np.array([b.response_s, b.price, b.downtime_s, self.log_floor]),
            change.literal, change.storm, self.current is not None,
        )  # fmt: skip
        if not (change.storm and self.current is not None):
            return model
        rows = [i for i in range(self.size) if current[i].any()]
        elements[kernels.RESTART, rows] = [kernels.restart_downtime(model, i, current[i]) for i in rows]
        return model


def problem_of(
    flow: Flow,
    hosts: HostColumns,
    *,
    external: Floats | None = None,
    active: Ints | None = None,
    latencies: Sequence[Latency] | None = None,
    most: int = 4,
    unit_price: float | Floats = 1.0,
    **fields: Any,
) -> Problem:
    """Build a problem from a dataflow, its external rates and hosts.

    Parameters
    ----------
    external : float64, shape (elements,), optional
        External input, messages per second; default: the expected rates.
    active : int64, shape (elements,), optional
        Alternate of each PE; default: the best.
    latencies : sequence of Latency, optional
        Latency of each PE; default: M/M/1 with the service rate that follows from its cost.
    most : int
        Maximum number of replicas of PEs without a limit.
    unit_price : float or float64, shape (elements,)
    **fields
        Other fields of `Problem`.

    Raises
    ------
    InputError
        If a field is invalid.
    """
    active = flow.best if active is None else active
    into, out = flow.ideal(active, flow.rates if external is None else np.asarray(external, np.float64))
    cost = flow.cost[flow.rows(active)]
    if most < 1:
        raise InputError(f"most = {most}: must be at least 1")
    given = tuple(Queue(1.0 / float(c)) for c in cost) if latencies is None else tuple(latencies)
    if len(given) != flow.size:
        raise InputError(f"latencies: expected {flow.size}, one for each processing element, found {len(given)}")
    limits = flow.needs.most_instances
    return Problem(
        flow, hosts, into, out[flow.pred], given, np.where(limits == NO_LIMIT, most, limits).astype(np.int64),
        np.broadcast_to(np.asarray(unit_price, np.float64), (flow.size,)).copy(), **fields,
    )  # fmt: skip


@dataclass(frozen=True)
class Metrics:
    """Metrics of a deployment (§2.4 to §2.7).

    Attributes
    ----------
    response_s : float
        Delay of the critical path; infinite if a PE cannot keep up.
    price : float
        Price of an hour.
    downtime_s : float
        Downtime of the change from the current deployment.
    availability : float
        Probability that all used hosts and links work.
    objective : float
        Eq. 12.
    feasible : bool
        Whether all bounds and limits are met.
    """

    response_s: float
    price: float
    downtime_s: float
    availability: float
    objective: float
    feasible: bool


def metrics(problem: Problem, counts: Ints) -> Metrics:
    """Compute the metrics of replicas on hosts.

    Parameters
    ----------
    counts : int64, shape (elements, hosts)
        At least one replica of each PE.
    """
    counts = np.ascontiguousarray(counts, np.int64)
    if counts.shape != (problem.size, problem.hosts.size) or (counts.sum(axis=1) < 1).any():
        raise InputError(
            f"counts: shape {counts.shape}; expected a row with at least one replica for each processing element"
        )
    model = problem.model
    (response, price, downtime, log, missing), _, _ = kernels.all_figures(model, counts)
    if missing > 0:
        response = math.inf
    value = math.inf if missing > 0 else kernels.objective(model.scale, response, price, downtime, log)
    over = missing > 0 or kernels.excess(model.bounds, response, price, downtime, log) > 1e-6
    return Metrics(response, price, downtime, math.exp(log), value, not over and fits(problem, counts))


def fits(problem: Problem, counts: Ints) -> bool:
    """Whether PEs run on permitted hosts, in permitted numbers, and within the capacities of hosts (Eq. 18)."""
    found, needs = problem.hosts, problem.flow.needs
    if (counts.sum(axis=1) > problem.most).any() or ((counts > 0) & ~problem.allowed).any():
        return False
    return all(
        bool((need @ counts <= room * (1 + SLACK) + SLACK).all())
        for need, room in ((needs.cores, found.cores), (needs.memory_mb, found.memory_mb))
    )
