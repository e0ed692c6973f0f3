"""The best placement, proven: a mixed integer program for HiGHS.

See docs/specs/latency-aware.md, section 2.6. The paper gives no exact formulation.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.latency_aware.cycles import forward
from goffish.errors import GoffishError, InputError
from goffish.scheduling.policies.latency_aware.score import Floats, Ints, PlacementProblem, Score, evaluate

Form = Literal["compact", "tight"]
#: The objective is multiplied by this: latency would be below what HiGHS takes for equal (1e-6).
SCALE = 1e6


class Optimum(NamedTuple):
    """What the solver found.

    Attributes
    ----------
    placement : int64, shape (operators,), optional
        ``None``: there is none without a violation, or none was found in time.
    score : Score, optional
    bound : float
        No placement without a violation has a lower score; infinite if there is none.
    proven : bool
        Whether the search ended: the placement is the best one, or there is none.
    """

    placement: Ints | None
    score: Score | None
    bound: float
    proven: bool


def optimal_placement(problem: PlacementProblem, *, form: Form = "compact", seconds: float | None = None) -> Optimum:
    """The placement of the lowest score without any violation.

    Parameters
    ----------
    form : {"compact", "tight"}
        A variable for each edge, or for each edge and pair of hosts: larger, with a better bound.
    seconds : float, optional
        Limit for the solver.

    Raises
    ------
    InputError
        No such form.
    GoffishError
        The solver gave up for another reason than time.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    if form not in ("compact", "tight"):
        raise InputError(f"form = {form!r}: one of compact, tight is needed")
    model = _Model(problem, form)
    options: dict[str, float] = {"mip_rel_gap": 0.0}
    if seconds is not None:
        options["time_limit"] = seconds
    result = milp(
        SCALE * model.cost,
        integrality=model.integral,
        bounds=Bounds(np.zeros(model.cost.size), model.upper),
        constraints=LinearConstraint(model.matrix(), model.low, model.high),
        options=options,
    )
    if result.status == 2:
        return Optimum(None, None, np.inf, True)
    if result.status not in (0, 1):
        raise GoffishError(f"HiGHS: {result.message}")
    bound = -np.inf if result.mip_dual_bound is None else float(result.mip_dual_bound) / SCALE
    if result.x is None:
        return Optimum(None, None, bound, False)
    chosen = result.x[: problem.operators * problem.size].reshape(problem.operators, problem.size)
    placement = np.argmax(chosen, axis=1).astype(np.int64)
    return Optimum(placement, evaluate(problem, placement), bound, result.status == 0)


class _Model:
    """Rows and columns of the program.

    Columns: X (operators, hosts), U (hosts), L (operators), T, then of each edge c and D (compact) or Y (hosts, hosts).
    """

    def __init__(self, problem: PlacementProblem, form: Form) -> None:
        self.problem, self.forward = problem, forward(problem)
        operators, hosts, edges = problem.operators, problem.size, len(problem.edges)
        self.used = operators * hosts
        self.reached = self.used + hosts
        self.longest = self.reached + operators
        self.of_edges = self.longest + 1
        width = 2 if form == "compact" else hosts * hosts
        count = self.of_edges + edges * width
        self.cost = np.zeros(count)
        self.cost[self.used : self.reached] = problem.weights.hosts / hosts
        self.cost[self.longest] = problem.latency_weight
        self.upper = np.ones(count)
        self.upper[: self.used] = problem.may.ravel()
        self.upper[self.reached : self.of_edges] = np.inf
        self.integral = np.zeros(count)
        self.integral[: self.used] = 1
        self.low: list[float] = []
        self.high: list[float] = []
        self._rows: list[NDArray[np.int64]] = []
        self._columns: list[NDArray[np.int64]] = []
        self._values: list[Floats] = []
        self._places()
        for edge, (a, b) in enumerate(problem.edges.tolist()):
            first = self.of_edges + edge * width
            if a != b:
                self._compact(edge, a, b, first) if form == "compact" else self._tight(edge, a, b, first)
        for operator in range(operators):
            self._row([self.longest, self.reached + operator], [1.0, -1.0], 0.0, np.inf)

    def matrix(self) -> NDArray[np.float64]:
        """Coefficients, sparse."""
        from scipy.sparse import csr_array

        shape = (len(self.low), self.cost.size)
        found: NDArray[np.float64] = csr_array(
            (np.concatenate(self._values), (np.concatenate(self._rows), np.concatenate(self._columns))), shape=shape
        )
        return found

    def _row(self, columns: list[int] | Ints, values: list[float] | Floats, low: float, high: float) -> None:
        found = np.asarray(columns, np.int64)
        self._rows.append(np.full(found.size, len(self.low), np.int64))
        self._columns.append(found)
        self._values.append(np.asarray(values, np.float64))
        self.low.append(low)
        self.high.append(high)

    def _x(self, operator: int) -> Ints:
        hosts = self.problem.size
        return np.arange(operator * hosts, (operator + 1) * hosts)

    def _places(self) -> None:
        """Every operator on one host that is in use and has room for it."""
        problem, columns = self.problem, self.problem.columns
        hosts = problem.size
        for operator in range(problem.operators):
            self._row(self._x(operator), np.ones(hosts), 1.0, 1.0)
            for host in range(hosts):
                self._row([operator * hosts + host, self.used + host], [1.0, -1.0], -np.inf, 0.0)
        on_host = np.arange(problem.operators) * hosts
        for need, limits in ((problem.cpu, columns.cpu_limit), (problem.memory, columns.memory_limit)):
            for host in np.flatnonzero(np.isfinite(limits)).tolist():
                self._row(on_host + host, need, -np.inf, float(limits[host]))

    def _compact(self, edge: int, a: int, b: int, cut: int) -> None:
        """`cut` is 1 and `cut + 1` the latency if the ends are apart."""
        problem, hosts = self.problem, self.problem.size
        self.cost[cut] = problem.apart[edge]
        self.upper[cut + 1] = np.inf
        for host in range(hosts):
            self._row([cut, a * hosts + host, b * hosts + host], [1.0, -1.0, 1.0], 0.0, np.inf)
        if not self.forward[edge]:
            return
        for host in range(hosts):
            row = problem.latency_ms[host]
            most = float(row.max())
            self._row(
                np.concatenate(([cut + 1, a * hosts + host], self._x(b))),
                np.concatenate(([1.0, -most], -row)),
                -most,
                np.inf,
            )
        self._row([self.reached + b, self.reached + a, cut + 1], [1.0, -1.0, -1.0], 0.0, np.inf)

    def _tight(self, edge: int, a: int, b: int, first: int) -> None:
        """`first` and on: whether the ends are on every pair of hosts."""
        problem, hosts = self.problem, self.problem.size
        pair = first + np.arange(hosts * hosts).reshape(hosts, hosts)
        self.cost[pair[~np.eye(hosts, dtype=bool)]] = problem.apart[edge]
        ones = np.ones(hosts)
        for host in range(hosts):
            self._row(np.append(pair[host], a * hosts + host), np.append(ones, -1.0), 0.0, 0.0)
            self._row(np.append(pair[:, host], b * hosts + host), np.append(ones, -1.0), 0.0, 0.0)
        if self.forward[edge]:
            self._row(
                np.concatenate(([self.reached + b, self.reached + a], pair.ravel())),
                np.concatenate(([1.0, -1.0], -problem.latency_ms.ravel())),
                0.0,
                np.inf,
            )
