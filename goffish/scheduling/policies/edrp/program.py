"""The integer linear program (Eq. 13 to 24) on HiGHS.

Only the choice of a candidate (x) is binary, which makes the products (y) binary, too. The critical path is written
with a potential for each PE instead of a row for each path (docs/specs/edrp.md, section 3.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.edrp import kernels
from goffish.scheduling.policies.edrp.candidates import (
    Candidates,
    all_candidates,
    canonical,
    latencies_of,
    pair_delays,
    pair_prices,
    program_size,
    twins,
    usable,
    without_dominated,
    without_symmetric,
)
from goffish.scheduling.policies.edrp.linear import Linear, LinearSolution, Solver, run
from goffish.scheduling.policies.edrp.problem import Ints, Metrics, Problem, fits, metrics

#: Cost of exceeding a bound by its own size, if bounds may be exceeded (§3.7).
SLACK_COST = 10.0
Status = Literal["optimal", "limit", "infeasible", "kept"]


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of the program.

    Attributes
    ----------
    counts : int64, shape (elements, hosts), or None
    metrics : Metrics, or None
        Metrics of the counts.
    status : {"optimal", "limit", "infeasible", "kept"}
        "limit": the best solution within the limits; "kept": no solution is better than the current deployment.
    gap : float
        Relative gap between the objective and `bound`; infinite without a solution.
    bound : float
        Lower bound of the objective.
    variables : int
        Number of variables before candidates were removed.
    solved : int
        Number of variables of the solved program.
    """

    counts: Ints | None
    metrics: Metrics | None
    status: Status
    gap: float
    bound: float
    variables: int
    solved: int


def solve(
    problem: Problem,
    candidates: Candidates | None = None,
    *,
    start: Ints | None = None,
    solver: Solver | None = None,
    relaxed: bool = False,
    calm: bool = False,
) -> Solution:
    """Find the best deployment.

    Parameters
    ----------
    candidates : list of int64, shape (candidates, hosts) each, optional
        Candidates of each PE; default: all.
    start : int64, shape (elements, hosts), optional
        Initial solution; default: the current deployment. Ignored if it is infeasible.
    solver : Solver, optional
    relaxed : bool
        Whether bounds may be exceeded, at `SLACK_COST` for each unit of a bound; capacities of hosts may not.
    calm : bool
        Choose the optimum with the least downtime, by a second program.

    Raises
    ------
    InputError
        If highspy is not installed, or the program would be too large.
    """
    solver = solver or Solver()
    given = all_candidates(problem) if candidates is None else candidates
    kept = usable(problem, given, relaxed=relaxed)
    sources, targets = problem.flow.pred, problem.targets
    variables = program_size(kept, sources, targets)
    if not all(len(rows) for rows in kept):
        return Solution(None, None, "infeasible", math.inf, math.inf, variables, 0)
    groups: list[list[int]] = []
    chosen = -1
    if solver.reduce:
        groups = twins(problem)
        kept, chosen = without_symmetric(without_dominated(problem, kept), groups)
    solved = program_size(kept, sources, targets)
    if solved > solver.most_variables:
        raise InputError(
            f"{solved} variables; at most {solver.most_variables} are solved: plan from a current deployment, or with "
            "the heuristic"
        )
    program = Program(problem, kept, relaxed)
    begin = problem.current if start is None else start
    if begin is not None and chosen >= 0:
        begin = canonical(begin, groups, chosen)
    hint = None if begin is None else program.columns_of(begin)
    found = run(program.linear, solver, hint)
    if calm and found.values is not None and problem.current is not None:
        again = run(program.least_downtime(found.objective + 1e-6), solver, found.values)
        if again.values is not None:
            found = LinearSolution(again.values, found.objective, found.bound, found.optimal)
    return _solution(problem, program, found, variables, solved, relaxed)


def _solution(
    problem: Problem, program: Program, found: LinearSolution, variables: int, solved: int, relaxed: bool
) -> Solution:
    counts = None if found.values is None else program.counts_of(found.values)
    if counts is None:
        status: Status = "infeasible" if found.optimal else "limit"
        return Solution(None, None, status, math.inf, found.bound, variables, solved)
    reached = metrics(problem, counts)
    if not found.optimal and problem.current is not None and (problem.current.sum(axis=1) > 0).all():
        staying = metrics(problem, problem.current)
        if staying.objective <= reached.objective and (
            staying.feasible or (relaxed and fits(problem, problem.current))
        ):
            gap = _gap(staying.objective, found.bound)
            return Solution(problem.current, staying, "kept", gap, found.bound, variables, solved)
    gap = _gap(found.objective, found.bound)
    return Solution(counts, reached, "optimal" if found.optimal else "limit", gap, found.bound, variables, solved)


def _gap(value: float, bound: float) -> float:
    return max(0.0, value - bound) / max(abs(value), 1e-12)


class Program:
    """Build the program of a problem: its columns are x, y, the potentials, r, t, z, used hosts, and slacks."""

    def __init__(self, problem: Problem, candidates: Candidates, relaxed: bool) -> None:
        self.problem, self.candidates = problem, candidates
        self.edges = list(zip(problem.flow.pred.tolist(), problem.targets.tolist(), strict=True))
        model, bounds = problem.model, problem.bounds
        sizes = [len(rows) for rows in candidates]
        self.linear = linear = Linear()
        self.x = [linear.columns(n, upper=1.0, whole=True) for n in sizes]
        self.y = [linear.columns(sizes[u] * sizes[v], upper=1.0) for u, v in self.edges]
        # Seconds and prices are in units of their bounds.
        self.known = problem.current is not None
        self.storm = self.known and problem.reconfiguration.storm
        open_end = math.inf if relaxed else 1.0
        self.potential = linear.columns(problem.size, upper=open_end)
        self.r = linear.columns(1, upper=open_end, cost=problem.weights.response)
        self.t = linear.columns(1, upper=open_end, cost=problem.weights.downtime if self.known else 0.0)
        self.z = linear.columns(1, upper=1.0, whole=True) if self.storm else None
        self.open = (
            linear.columns(problem.hosts.size, upper=1.0, whole=True) if model.hosts[kernels.HOST_PRICE].any() else None
        )
        self.latency = [latencies_of(problem, i, rows) / bounds.response_s for i, rows in enumerate(candidates)]
        self.downtime = [
            kernels.element_downtimes(model, i, rows) / bounds.downtime_s for i, rows in enumerate(candidates)
        ]
        self._choices()
        self._paths()
        self._prices(relaxed)
        self._availability()
        self._room()
        if self.known:
            self._downtime()
        if relaxed:
            # The objective already includes the full use; the slack is the excess over the bound.
            for column in (self.r, self.t):
                slack = linear.columns(1, upper=math.inf, cost=SLACK_COST)
                linear.row([(column, 1.0), (slack, -1.0)], upper=1.0)

    def _choices(self) -> None:
        """Eq. 19 to 21."""
        linear = self.linear
        for x in self.x:
            linear.row([(x, 1.0)], lower=1.0, upper=1.0)
        for (u, v), y in zip(self.edges, self.y, strict=True):
            pairs = y.reshape(self.x[u].size, self.x[v].size)
            linear.rows_of_sums(pairs, self.x[u])
            linear.rows_of_sums(pairs.T, self.x[v])

    def _paths(self) -> None:
        """Eq. 13 by potentials."""
        linear, problem = self.linear, self.problem
        delays = problem.hosts.latencies_s / problem.bounds.response_s
        fed = {v for _, v in self.edges}
        for i in range(problem.size):
            if i not in fed:
                linear.row([(self.potential[[i]], 1.0), (self.x[i], -self.latency[i])], lower=0.0)
        for (u, v), y in zip(self.edges, self.y, strict=True):
            between = pair_delays(self.candidates[u], self.candidates[v], delays).ravel()
            parts = [(self.potential[[v]], 1.0), (self.potential[[u]], -1.0), (y, -between)]
            linear.row([*parts, (self.x[v], -self.latency[v])], lower=0.0)
        sending = {u for u, _ in self.edges}
        for i in range(problem.size):
            if i not in sending:
                linear.row([(self.r, 1.0), (self.potential[[i]], -1.0)], lower=0.0)

    def _prices(self, relaxed: bool) -> None:
        """Eq. 16, and the price in the objective."""
        problem, linear, model = self.problem, self.linear, self.problem.model
        limit, weight = problem.bounds.price, problem.weights.price
        parts = [
            (x, rows.sum(axis=1) * model.elements[kernels.UNIT_PRICE, i] / limit)
            for i, (x, rows) in enumerate(zip(self.x, self.candidates, strict=True))
        ]
        for (u, v), y, rate in zip(self.edges, self.y, problem.edge_rates.tolist(), strict=True):
            paid = pair_prices(self.candidates[u], self.candidates[v], model.pairs[kernels.TRAFFIC], rate)
            parts.append((y, paid.ravel() / limit))
        if self.open is not None:
            parts.append((self.open, model.hosts[kernels.HOST_PRICE] / limit))
        for columns, price in parts:
            linear.add_cost(columns, weight * price)
        if relaxed:
            parts.append((linear.columns(1, upper=math.inf, cost=SLACK_COST), np.array([-1.0])))
        linear.row(parts, upper=1.0)

    def _availability(self) -> None:
        """Logarithms of availabilities, in units of the bound's: 0 is always available, 1 the least allowed."""
        problem, model, floor = self.problem, self.problem.model, self.problem.log_floor
        if not floor:
            return
        parts = [
            (x, (rows > 0) @ model.hosts[kernels.NODE_LOG] / floor)
            for x, rows in zip(self.x, self.candidates, strict=True)
        ]
        links = model.pairs[kernels.LINK_LOG].copy()
        np.fill_diagonal(links, 0.0)
        for (u, v), y in zip(self.edges, self.y, strict=True):
            first, second = (self.candidates[end] > 0 for end in (u, v))
            parts.append((y, (first @ links @ second.T / floor).ravel()))
        for columns, log in parts:
            self.linear.add_cost(columns, problem.weights.availability * log)
        self.linear.row(parts, upper=1.0)

    def _room(self) -> None:
        """Eq. 18 for cores and memory, and used hosts."""
        problem, linear = self.problem, self.linear
        needs, found = problem.flow.needs, problem.hosts
        for need, room in ((needs.cores, found.cores), (needs.memory_mb, found.memory_mb)):
            for host in np.flatnonzero(np.isfinite(room)).tolist():
                parts = [
                    (x, rows[:, host] * need[i])
                    for i, (x, rows) in enumerate(zip(self.x, self.candidates, strict=True))
                ]
                if sum(float(load.max()) for _, load in parts) > room[host]:
                    linear.row(parts, upper=float(room[host]) * (1 + 1e-9))
        if self.open is not None:
            for x, rows in zip(self.x, self.candidates, strict=True):
                for host in range(found.size):
                    if rows[:, host].any():
                        linear.row([(x, (rows[:, host] > 0) * 1.0), (self.open[[host]], -1.0)], upper=0.0)

    def _downtime(self) -> None:
        """Eq. 14; in the Storm variant also Eq. 33."""
        problem, linear = self.problem, self.linear
        for x, seconds in zip(self.x, self.downtime, strict=True):
            linear.row([(self.t, 1.0), (x, -seconds)], lower=0.0)
        if self.z is None:
            return
        assert problem.current is not None
        for x, rows, now in zip(self.x, self.candidates, problem.current, strict=True):
            staying = x[(rows == now).all(axis=1)]
            linear.row([(self.z, 1.0), (staying, 1.0)], lower=1.0)
        restart = float(problem.model.elements[kernels.RESTART].max()) / problem.bounds.downtime_s
        linear.row([(self.t, 1.0), (self.z, -restart)], lower=0.0)

    def counts_of(self, values: Any) -> Ints:
        """Placement of a solution."""
        return np.array([rows[int(np.argmax(values[x]))] for x, rows in zip(self.x, self.candidates, strict=True)])

    def columns_of(self, counts: Ints) -> Any:
        """All columns of a solution; ``None`` if one of its rows is not a candidate."""
        chosen = []
        for rows, row in zip(self.candidates, counts, strict=True):
            at = np.flatnonzero((rows == row).all(axis=1))
            if not at.size:
                return None
            chosen.append(int(at[0]))
        problem, model = self.problem, self.problem.model
        values = np.zeros(self.linear.count)
        for x, number in zip(self.x, chosen, strict=True):
            values[x[number]] = 1.0
        for (u, v), y in zip(self.edges, self.y, strict=True):
            values[y[chosen[u] * self.x[v].size + chosen[v]]] = 1.0
        (response, price, downtime, log, _), nodes, edges = kernels.all_figures(model, np.ascontiguousarray(counts))
        if kernels.excess(model.bounds, response, price, downtime, log) > 0:
            return None
        for i in problem.flow.order.tolist():
            low, high = problem.flow.pred_offsets[i : i + 2].tolist()
            begun, delays = values[self.potential[problem.flow.pred[low:high]]], edges[kernels.EDGE_DELAY, low:high]
            values[self.potential[i]] = (begun + delays).max(initial=0.0) + nodes[kernels.LATENCY, i]
        values[self.potential] /= problem.bounds.response_s
        values[self.r], values[self.t] = response / problem.bounds.response_s, downtime / problem.bounds.downtime_s
        if self.z is not None:
            assert problem.current is not None
            values[self.z] = float(not np.array_equal(counts, problem.current))
        if self.open is not None:
            values[self.open] = counts.any(axis=0)
        return values

    def least_downtime(self, objective: float) -> Linear:
        """The program of the least downtime with an objective that is not worse."""
        other = self.linear.copy()
        cost = other.cost
        used = np.flatnonzero(cost)
        other.row([(used, cost[used])], upper=objective)
        other.clear_costs()
        other.add_cost(self.t, np.ones(1))
        return other
