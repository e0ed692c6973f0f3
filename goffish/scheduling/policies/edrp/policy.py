"""EDRP as a policy; its hosts are the running machines and some further machines of the catalogue.

Machines are charged as a whole, not per replica as in the paper. Small problems are solved by the integer program, the
others by local search; the choice depends on the size only, so runs are reproducible.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.dataflow.hosts import HostColumns, machine_hosts
from goffish.scheduling.dataflow.needs import NO_LIMIT
from goffish.scheduling.policies.edrp.candidates import all_candidates, near_candidates, program_size, usable
from goffish.scheduling.policies.edrp.heuristic import local_search
from goffish.scheduling.policies.edrp.linear import Solver
from goffish.scheduling.policies.edrp.monitoring import early_assignment, offered_rates
from goffish.scheduling.policies.edrp.problem import (
    Bounds,
    Ints,
    Problem,
    Reconfiguration,
    Weights,
    metrics,
    problem_of,
)
from goffish.scheduling.policies.edrp.program import solve
from goffish.scheduling.policies.observation import Observation
from goffish.scheduling.policies.peers import cheapest_class, release_idle


@dataclass(frozen=True)
class Edrp:
    """Choose replicas and machines by response time, price and downtime.

    Attributes
    ----------
    response_weight, price_weight, downtime_weight : float
        Their sum is 1.
    response_s : float, optional
        Bound of the response time; default: five times the response time without load.
    price : float, optional
        Bound of the price per hour; default: three times the price of the cheapest machine type for the load at 70 %
        utilisation.
    downtime_s : float, optional
        Bound of the downtime of a change; default: an interval, but at least twice the start-up time of a machine.
    storm : bool
        Whether any change restarts the whole dataflow.
    spare : int
        Number of further machines of each machine type that may be rented; for the cheapest type, in addition to the
        requirement of the load.
    most_hosts : int
        Maximum number of further machines in a plan.
    window : int
        Number of intervals over which rates are averaged.
    drain_s : float, optional
        Seconds in which queued messages are processed in addition to arrivals; default: queues are ignored.
    early : bool
        Ignore the expected rates: the first interval runs one replica of each PE, and the second deployment is the
        optimum for the observed rates, whatever the cost of the change.
    exact_variables : int
        Maximum number of variables of the integer program; larger problems use local search.
    nodes : int
        Maximum number of nodes of the search tree.
    rounds, seed : int
        Number of descents, and seed, of the local search.
    """

    response_weight: float = 0.3
    price_weight: float = 0.3
    downtime_weight: float = 0.4
    response_s: float | None = None
    price: float | None = None
    downtime_s: float | None = None
    storm: bool = False
    spare: int = 1
    most_hosts: int = 40
    window: int = 1
    drain_s: float | None = None
    early: bool = False
    exact_variables: int = 3000
    nodes: int = 500
    rounds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        Weights(self.response_weight, self.price_weight, self.downtime_weight)
        for name, least in (("spare", 0), ("most_hosts", 1), ("window", 1), ("nodes", 1), ("rounds", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} = {getattr(self, name)}: must be at least {least}")
        if self.drain_s is not None and not self.drain_s > 0:
            raise InputError(f"drain_s = {self.drain_s:g}: must be greater than 0")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the best deployment for the expected rates, without downtime."""
        empty = Deployment(catalogue, flow.best)
        if self.early:
            machines, problem = self.problem(flow, empty, np.zeros(flow.size), flow.goal.interval_s)
            return _enacted(empty, machines, early_assignment(problem))
        return self._planned(flow, empty, flow.rates, flow.goal.interval_s)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """Return the best change; `memory` is whether there was one already, and is used with `early` only."""
        flow, seen = observation.flow, observation.rates[-self.window :]
        queue = observation.queue if observation.queue.size else None
        rates = offered_rates(seen if len(seen) else flow.rates[None], queue, self.drain_s)
        free = self.early and memory is None
        plan = self._planned(flow, observation.live, rates, observation.interval_s, free=free)
        release_idle(plan, observation.interval_s)
        return plan, True if self.early else None

    def _planned(
        self, flow: Flow, live: Deployment, rates: Floats, interval_s: float, *, free: bool = False
    ) -> Deployment:
        machines, problem = self.problem(flow, live, rates, interval_s)
        if free:
            problem = problem.change(current=None, weights=problem.weights.with_downtime(0.0))
        found = self._counts(problem)
        return live.copy() if found is None else _enacted(live, machines, found)

    def problem(
        self, flow: Flow, live: Deployment, rates: Floats, interval_s: float
    ) -> tuple[list[tuple[int | None, int]], Problem]:
        """Return the problem of a decision and its hosts: id of a running machine or None, and machine type."""
        into, _ = flow.ideal(live.active, rates)
        load = into * flow.cost[flow.rows(live.active)]
        machines = self._machines(live, load)
        hosts = self._hosts(live, machines)
        # Enough for 70 % utilisation with the whole load on the slowest host; each replica takes a core.
        most = np.minimum(np.ceil(load / (0.7 * hosts.speeds.min())) + 1, hosts.cores.sum()).astype(np.int64)
        most = np.maximum(most, live.counts)
        limits = np.where(flow.needs.most_instances == NO_LIMIT, most, flow.needs.most_instances)
        weights = Weights(self.response_weight, self.price_weight, self.downtime_weight)
        current = None
        if live.counts.any():
            current = np.zeros((flow.size, len(machines)), np.int64)
            for at, (number, _) in enumerate(machines):
                for element, count in {} if number is None else live.machines[number].instances.items():
                    current[element, at] = count
        else:
            weights = weights.with_downtime(0.0)
        idle = flow.cost[flow.rows(live.active)] / hosts.speeds.max() + hosts.latencies_s.max()
        longest = flow.critical_path(np.asarray(idle), np.zeros(flow.pred.size))
        start_s = float(hosts.startup_s.max())
        single = flow.needs._replace(cores=np.ones(flow.size))
        problem = problem_of(
            replace(flow, needs=single), hosts, external=rates, active=live.active, unit_price=0.0, weights=weights,
            bounds=Bounds(
                response_s=self.response_s or 5.0 * longest, price=self.price or self._price(live, load),
                downtime_s=self.downtime_s or max(interval_s, 2.0 * start_s + 1.0),
            ),
            reconfiguration=Reconfiguration(storm=self.storm), current=current, host_price=hosts.prices,
            scale_rates=True,
        )  # fmt: skip
        return machines, problem.change(most=limits)

    def _counts(self, problem: Problem) -> Ints | None:
        """Place by the program or by local search. The search may return a placement that violates bounds, as a partial
        solution is better than none.
        """
        running = problem.current is not None and bool(problem.current.any(axis=1).all())
        searched = local_search(problem, np.random.default_rng(self.seed), rounds=self.rounds, anew=not running)
        if running and (searched is None or not metrics(problem, searched).feasible):
            searched = local_search(problem, np.random.default_rng(self.seed), start=searched, rounds=self.rounds)
        small = int(problem.most.max()) <= 3 and problem.hosts.size <= 12
        if problem.current is None and not small:
            return searched
        given = all_candidates(problem) if problem.current is None else near_candidates(problem)
        kept = usable(problem, given)
        if program_size(kept, problem.flow.pred, problem.targets) > self.exact_variables:
            return searched
        begin = None if searched is None or not metrics(problem, searched).feasible else searched
        solver = Solver(nodes=self.nodes, most_variables=self.exact_variables)
        exact = solve(problem, kept, start=begin if problem.current is None else None, solver=solver)
        if exact.counts is None or exact.metrics is None:
            return searched
        if begin is None or exact.metrics.objective <= metrics(problem, begin).objective:
            return exact.counts
        return begin

    def _machines(self, live: Deployment, load: Floats) -> list[tuple[int | None, int]]:
        """Running machines, then machines to rent: of the cheapest type as many as the load requires."""
        catalogue = live.catalogue
        found: list[tuple[int | None, int]] = [(n, live.machines[n].kind) for n in sorted(live.machines)]
        best = cheapest_class(catalogue, large=True)
        wanted = int(np.ceil(load / (0.7 * float(catalogue.speeds[best]))).clip(min=1).sum()) + 1
        held = sum(int(catalogue.cores[kind]) for _, kind in found)
        most = self.most_hosts if catalogue.limit is None else min(self.most_hosts, catalogue.limit - len(found))
        most = max(0, most)
        enough = _enough(catalogue, wanted - held, Counter(kind for _, kind in found))
        kinds = [best] * min(enough[best] + self.spare, most)
        for kind in catalogue.by_power:
            if kind != best:
                kinds += [kind] * min(enough[kind] + self.spare, max(most, self.spare))
        taken = Counter(kind for _, kind in found)
        kept = []
        for kind in kinds:
            taken[kind] += 1
            if taken[kind] <= (catalogue.classes[kind].limit or math.inf):
                kept.append(kind)
        return found + [(None, kind) for kind in kept[:most]]

    def _price(self, live: Deployment, load: Floats) -> float:
        catalogue, best = live.catalogue, cheapest_class(live.catalogue, large=True)
        seen = [machine.coefficient for machine in live.machines.values()]
        cores = np.ceil(load / (0.7 * float(catalogue.speeds[best]) * (float(np.mean(seen)) if seen else 1.0))).clip(
            min=1
        )
        enough = _enough(catalogue, int(cores.sum()), Counter())
        return max(3.0 * sum(count * float(catalogue.prices[kind]) for kind, count in enough.items()), 1e-6)

    def _hosts(self, live: Deployment, machines: list[tuple[int | None, int]]) -> HostColumns:
        catalogue = live.catalogue
        if not machines:
            raise InputError("limit: the catalogue allows no machine")
        speeds = [1.0 if number is None else live.machines[number].coefficient for number, _ in machines]
        start = [
            catalogue.startup_s if number is None else max(0.0, catalogue.startup_s - live.machines[number].elapsed_s)
            for number, _ in machines
        ]
        return machine_hosts(catalogue, [kind for _, kind in machines], speeds, start)


def _enough(catalogue: Catalogue, cores: float, held: Counter[int]) -> Counter[int]:
    """Machines of each type with this number of cores (of the cheapest type's speed), up to their limits."""
    best = cheapest_class(catalogue, large=True)
    others = sorted(
        (k for k in catalogue.by_power if k != best), key=lambda k: catalogue.prices[k] / catalogue.powers[k]
    )
    found: Counter[int] = Counter()
    for kind in [best, *others]:
        worth = float(catalogue.powers[kind] / catalogue.speeds[best])
        limit = catalogue.classes[kind].limit
        most = math.inf if limit is None else max(0, limit - held[kind])
        found[kind] = int(min(max(0, math.ceil(cores / worth - SLACK)), most))
        cores -= found[kind] * worth
    return found


def _enacted(live: Deployment, machines: list[tuple[int | None, int]], counts: Ints) -> Deployment:
    """Return the live deployment with these counts; planned machines without instances are not requested."""
    plan = live.copy()
    ids: list[int | None] = [number for number, _ in machines]
    for at, number in enumerate(ids):
        if number is not None:
            for element, held in list(plan.machines[number].instances.items()):
                surplus = held - int(counts[element, at])
                if surplus > 0:
                    plan.take(element, number, surplus)
    for at, (number, kind) in enumerate(machines):
        wanted = {int(e): int(counts[e, at]) for e in np.flatnonzero(counts[:, at])}
        if not wanted:
            continue
        target = plan.plan_machine(kind) if number is None else number
        for element, count in wanted.items():
            missing = count - plan.machines[target].instances.get(element, 0)
            if missing > 0:
                plan.put(element, target, missing)
    return plan
