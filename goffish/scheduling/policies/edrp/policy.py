"""EDRP as a policy: the hosts are the machines that run and some of the catalogue that could be rented.

Machines cost what they cost as soon as anything runs on them, not by the replica as in the paper. The program is used
for small instances and local search for the others; which one depends on the size alone, so runs can be repeated.
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
    """Replicas and places by response time, price and downtime.

    Attributes
    ----------
    response_weight, price_weight, downtime_weight : float
        Their sum is 1.
    response_s : float, optional
        Bound of the response time; default: five times that of the dataflow without any load.
    price : float, optional
        Bound of an hour; default: three times what the load needs of the cheapest class at 70 % of utilisation.
    downtime_s : float, optional
        Bound of a change's downtime; default: an interval, and twice the start of a machine at least.
    storm : bool
        Any change restarts the whole dataflow.
    spare : int
        Machines of each class that could be rented, and of the cheapest one besides what the load needs.
    most_hosts : int
        Machines that are planned on at most, besides those that run.
    window : int
        Intervals over which rates are averaged.
    drain_s : float, optional
        Seconds in which messages that wait are to be processed besides what arrives; default: they are not planned for.
    early : bool
        The rates that the dataflow expects are not trusted: the first interval has one replica of each element, and
        what is best for the rates seen in it follows, whatever that change costs.
    exact_variables : int
        Up to so many variables the program is solved, beyond by local search.
    nodes : int
        Of the program's search tree at most.
    rounds, seed : int
        Of the local search.
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
                raise InputError(f"{name} = {getattr(self, name)}: at least {least}")
        if self.drain_s is not None and not self.drain_s > 0:
            raise InputError(f"drain_s = {self.drain_s:g}: above 0 is needed")

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """The best places for the expected rates, downtime apart."""
        empty = Deployment(catalogue, flow.best)
        if self.early:
            machines, problem = self.problem(flow, empty, np.zeros(flow.size), flow.goal.interval_s)
            return _enacted(empty, machines, early_assignment(problem))
        return self._planned(flow, empty, flow.rates, flow.goal.interval_s)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """The best change; `memory` is whether there was one already, and matters for an early deployment only."""
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
        """The instance of a decision, and its hosts: the id of a machine that runs, or none, and its class."""
        into, _ = flow.ideal(live.active, rates)
        load = into * flow.cost[flow.rows(live.active)]
        machines = self._machines(live, load)
        hosts = self._hosts(live, machines)
        # Enough for 70 % of utilisation with all of the load on the slowest host; each takes a core.
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
        """Places by the program or by local search; of the latter also such as violate bounds: little is better than
        nothing.
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
        """What runs, then machines that could be rented: of the cheapest class first, as many as the load needs."""
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
            raise InputError("the catalogue allows no machine")
        speeds = [1.0 if number is None else live.machines[number].coefficient for number, _ in machines]
        start = [
            catalogue.startup_s if number is None else max(0.0, catalogue.startup_s - live.machines[number].elapsed_s)
            for number, _ in machines
        ]
        return machine_hosts(catalogue, [kind for _, kind in machines], speeds, start)


def _enough(catalogue: Catalogue, cores: float, held: Counter[int]) -> Counter[int]:
    """Machines of each class with so many cores as fast as the cheapest's, the cheapest first, as many as exist."""
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
    """The live deployment with these counts; machines that nothing is planned on are not asked for."""
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
