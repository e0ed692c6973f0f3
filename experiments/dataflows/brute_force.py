"""The deployment of the greatest profit, by exhaustive search with bounds (BR): the reference for tiny dataflows.

See docs/specs/provisioning.md, section 3.7. Links between machines are left out.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array, eye_array, hstack, vstack

from experiments.dataflows import _search_kernels as kernels
from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Flow
from goffish.scheduling.dataflow.kernels import Rates

Ints = NDArray[np.int64]
_MOST = 1_000_000


class Optimum(NamedTuple):
    """What the search found.

    Attributes
    ----------
    deployment : Deployment, optional
        ``None`` if none was found in the time.
    profit : float
        Of a whole period; minus infinity without a deployment.
    nodes : int
        Splits of cores that were looked at.
    proved : bool
        Whether the search came to its end: there is nothing better.
    """

    deployment: Deployment | None
    profit: float
    nodes: int
    proved: bool


def brute_force(flow: Flow, catalogue: Catalogue, limit_s: float = 600.0) -> Optimum:
    """Search all alternates and all sets of machines for the greatest profit that reaches the goal.

    Alternates are tried by decreasing value, sets of machines by increasing price, until no better profit is possible.
    Between equal profits the first one found stays.

    Parameters
    ----------
    limit_s : float
        Seconds after which the best deployment so far is the answer.

    Raises
    ------
    InputError
        If there are more than a million combinations of alternates.
    """
    combinations = math.prod(flow.alternate_counts.tolist())
    if combinations > _MOST:
        raise InputError(f"brute force is for tiny dataflows, not for {combinations:.2g} combinations of alternates")
    search = _Search(flow, catalogue)
    timer = threading.Timer(limit_s, search.stop)
    timer.daemon = True
    timer.start()
    try:
        return search.run(time.monotonic() + limit_s)
    finally:
        timer.cancel()


def power_bound(flow: Flow, active: Ints, slowest: float) -> float:
    """Least power of all elements together with which the goal can be reached: a linear programme over the messages
    processed.

    Every element has at least one core, of speed `slowest` or more.
    """
    rows, size = flow.rows(active), flow.size
    cost, selectivity = flow.cost[rows], flow.selectivity[rows]
    _, ideal_out = flow.ideal(active, flow.rates)
    into = np.repeat(np.arange(size), np.diff(flow.pred_offsets))
    fed = coo_array((-selectivity[flow.pred], (into, flow.pred)), (size, size))
    one = eye_array(size)
    fed_by_edges = hstack([one + fed, coo_array((size, size))])
    powered = hstack([coo_array((cost, (np.arange(size), np.arange(size))), (size, size)), -one])
    wet = flow.outputs[ideal_out[flow.outputs] > 0]
    sent = coo_array((-selectivity[wet] / ideal_out[wet], (np.zeros(wet.size, np.int64), wet)), (1, 2 * size))
    missing = flow.goal.throughput * flow.outputs.size - (flow.outputs.size - wet.size)
    found = linprog(
        np.concatenate((np.zeros(size), np.ones(size))),
        vstack([fed_by_edges, powered, sent]).tocsr(),
        np.concatenate((flow.rates, np.zeros(size), [-missing])),
        bounds=[(0, None)] * size + [(slowest, None)] * size,
        method="highs",
    )
    return float(found.fun)


class _Search:
    def __init__(self, flow: Flow, catalogue: Catalogue) -> None:
        self.flow, self.catalogue = flow, catalogue
        self.speeds, self.speed_of = np.unique(catalogue.speeds, return_inverse=True)
        self.worth = flow.sigma * flow.goal.period_h
        self.nodes, self.stopped = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.deadline = np.inf

    def stop(self) -> None:
        self.stopped[0] = 1

    def run(self, deadline: float) -> Optimum:
        self.deadline = deadline
        best, profit = None, -np.inf
        cheapest = float((self.catalogue.prices / self.catalogue.powers).min())
        for value, active in self._alternates():
            if value <= profit + SLACK:
                break
            least = power_bound(self.flow, active, float(self.speeds[0]))
            if value - self.worth * cheapest * least <= profit + SLACK:
                continue
            found = self._cheapest(active, value, profit, least)
            if self._late():
                break
            if found is not None:
                best, profit = found, value - self.worth * found.price_per_hour
        return Optimum(best, profit, int(self.nodes[0]), not self._late())

    def _late(self) -> bool:
        return bool(self.stopped[0]) or time.monotonic() > self.deadline

    def _alternates(self) -> Iterator[tuple[float, Ints]]:
        """All alternates together, the greatest value first."""
        counts = self.flow.alternate_counts.tolist()
        every = [np.array(some, np.int64) for some in itertools.product(*map(range, counts))]
        values = [self.flow.value_of(active) for active in every]
        ranked = sorted(range(len(every)), key=lambda at: (-round(values[at] / SLACK), at))
        return ((values[at], every[at]) for at in ranked)

    def _cheapest(self, active: Ints, value: float, profit: float, least: float) -> Deployment | None:
        """The cheapest deployment of these alternates, if its profit is greater."""
        prices, powers = self.catalogue.prices, self.catalogue.powers
        limit = self.catalogue.limit or np.inf
        none = (0,) * prices.size
        queue, known, pools = [(0.0, none)], {none}, set()
        while queue and not self._late():
            price, counts = heapq.heappop(queue)
            if value - self.worth * price <= profit + SLACK:
                return None
            cores = np.array(counts) * self.catalogue.cores
            pool = np.bincount(self.speed_of, cores, self.speeds.size).astype(np.int64)
            if (
                np.dot(counts, powers) >= least - SLACK
                and pool.sum() >= self.flow.size
                and tuple(pool.tolist()) not in pools
            ):
                pools.add(tuple(pool.tolist()))
                split = self._split(active, pool.copy())
                if split is not None:
                    return self._deployment(active, counts, split)
            if sum(counts) >= limit:
                continue
            for kind in range(prices.size):
                more = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
                if more not in known:
                    known.add(more)
                    heapq.heappush(queue, (float(np.dot(more, prices)), more))
        return None

    def _split(self, active: Ints, pool: Ints) -> Ints | None:
        flow, power = self.flow, np.full(self.flow.size, np.inf)
        split = np.zeros((flow.size, pool.size), np.int64)
        ideal_in, ideal_out = flow.ideal(active, flow.rates)
        rates = Rates(*np.empty((6, flow.size)))._replace(ideal_in=ideal_in, ideal_out=ideal_out)
        reached = kernels.assign(
            0, flow.activated(active), flow.rates, flow.goal.throughput, self.speeds, pool, power, split, rates,
            self.nodes, self.stopped,
        )  # fmt: skip
        return split if reached else None

    def _deployment(self, active: Ints, counts: tuple[int, ...], split: Ints) -> Deployment:
        """Machines of the classes, and on the cores of each speed the elements in topological order."""
        plan = Deployment(self.catalogue, active)
        order = self.flow.order.tolist()
        left = {at: [e for e in order for _ in range(split[e, at])] for at in range(self.speeds.size)}
        for kind, count in enumerate(counts):
            for _ in range(count):
                machine, elements = plan.plan_machine(kind), left[int(self.speed_of[kind])]
                for _ in range(min(int(self.catalogue.cores[kind]), len(elements))):
                    plan.put(elements.pop(0), machine)
        return plan
