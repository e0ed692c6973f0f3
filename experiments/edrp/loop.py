"""The controller: period by period, the deployment that is best to change to (docs/specs/edrp.md, section 3.5).

What it is given has been monitored already: one problem for each period, with the rates and delays of that period.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from experiments.edrp.evaluation import overloaded, solve_near
from experiments.edrp.rules import threshold
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Floats
from goffish.scheduling.policies.edrp.heuristic import greedy, local_search
from goffish.scheduling.policies.edrp.linear import Solver
from goffish.scheduling.policies.edrp.monitoring import early_assignment
from goffish.scheduling.policies.edrp.problem import Ints, Metrics, Problem, Weights, metrics
from goffish.scheduling.policies.edrp.program import Solution, solve

Method = Literal["near", "full", "heuristic", "never", "threshold"]
METHODS: tuple[Method, ...] = ("near", "full", "heuristic", "never", "threshold")


@dataclass(frozen=True)
class Planner:
    """How a period is planned.

    Attributes
    ----------
    method : {"near", "full", "heuristic", "never", "threshold"}
        r-EDRP, EDRP, local search; never changed, or by thresholds of utilisation.
    solver : Solver
    calm : bool
        Of several optima the one with the least downtime.
    rounds : int
        Of the local search.
    seed : int
    """

    method: Method = "near"
    solver: Solver = field(default_factory=Solver)
    calm: bool = False
    rounds: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"method {self.method!r}: choose one of {', '.join(METHODS)}")

    def plan(self, problem: Problem) -> tuple[Ints, str]:
        """Places for a period, and how they were found: the current ones if nothing else is ("alert").

        Where r-EDRP has no solution, elements that cannot keep up are given two steps; then all deployments are tried,
        by the program or, if it would be too large, by local search; then bounds may be exceeded within one step (§3.4
        and §3.7). EDRP, where its program is too large, gives way to r-EDRP (§6.14).
        """
        if problem.current is None:
            raise InputError("the controller needs a current deployment: begin with start_deployment")
        if self.method == "never":
            return problem.current, "never"
        if self.method == "threshold":
            return threshold(problem), "threshold"
        if self.method == "heuristic":
            return self._searched(problem) or (problem.current, "alert")
        first = self._solved(problem, self.method == "full")
        if first is not None:
            return first, self.method
        late = tuple(overloaded(problem))
        if self.method == "near" and late:
            second = _counts(solve_near(problem, late, solver=self.solver, calm=self.calm))
            if second is not None:
                return second, "two steps"
        # The other one: everything where one step is not enough, one step where everything would be too large (§6.14).
        other: Method = "full" if self.method == "near" else "near"
        third = self._solved(problem, other == "full")
        if third is not None:
            return third, other
        found = self._searched(problem)
        if found is not None:
            return found
        relaxed = _counts(solve_near(problem, late, solver=self.solver, relaxed=True))
        return (problem.current, "alert") if relaxed is None else (relaxed, "relaxed")

    def _solved(self, problem: Problem, full: bool) -> Ints | None:
        try:
            return _counts((solve if full else solve_near)(problem, solver=self.solver, calm=self.calm))
        except InputError:
            # Too large for the program; highspy is asked for again, and missed, by what follows.
            return None

    def _searched(self, problem: Problem) -> tuple[Ints, str] | None:
        found = local_search(problem, np.random.default_rng(self.seed), rounds=self.rounds)
        return (found, "heuristic") if found is not None and metrics(problem, found).feasible else None


def _counts(solution: Solution) -> Ints | None:
    return solution.counts


def start_deployment(problem: Problem, solver: Solver | None = None) -> Ints:
    """The first deployment: the optimum without downtime; by greed if the program would be too large.

    Raises
    ------
    InputError
        The hosts have no room, or no deployment keeps within the bounds.
    """
    free = problem.change(current=None, weights=without_downtime(problem.weights))
    begun = greedy(free)
    try:
        found = solve(free, start=begun, solver=solver).counts
    except InputError:
        found = local_search(free, np.random.default_rng(0))
        if found is not None and not metrics(free, found).feasible:
            found = None
    if found is None:
        raise InputError("no deployment on these hosts keeps within the bounds: raise them, or add hosts")
    return found


def without_downtime(weights: Weights) -> Weights:
    """Weights of a first deployment: the others rescaled."""
    return weights.with_downtime(0.0)


@dataclass(frozen=True, eq=False)
class Period:
    """One period of the controller.

    Attributes
    ----------
    counts : int64, shape (elements, hosts)
    metrics : Metrics
        Of the period's problem; its downtime is that of the change.
    changed : bool
    how : str
        Which of the plans it was; "early" and "start" are those of the start-up, "alert": nothing could be done.
    """

    counts: Ints
    metrics: Metrics
    changed: bool
    how: str


@dataclass(frozen=True, eq=False)
class Record:
    """A whole run.

    Attributes
    ----------
    periods : list of Period
    """

    periods: list[Period]

    @property
    def response_s(self) -> float:
        """Mean over the periods."""
        return float(np.mean([period.metrics.response_s for period in self.periods]))

    @property
    def price(self) -> float:
        """Mean over the periods, of an hour."""
        return float(np.mean([period.metrics.price for period in self.periods]))

    @property
    def downtime_s(self) -> float:
        """Of all changes."""
        return float(sum(period.metrics.downtime_s for period in self.periods))

    @property
    def changes(self) -> list[int]:
        """Periods in which the deployment was changed."""
        return [at for at, period in enumerate(self.periods) if period.changed]


class Responses(NamedTuple):
    """Response times of the messages of a run, seconds.

    Attributes
    ----------
    unbuffered_s : float
        Mean over those that no change held up, as the paper measured on Storm.
    mean_s : float
        Over all messages.
    quantile_s : float
        That so large a share of all messages keeps to.
    """

    unbuffered_s: float
    mean_s: float
    quantile_s: float


def responses(record: Record, rates: Sequence[float] | Floats, period_s: float, share: float) -> Responses:
    """Response times with and without the messages that are buffered while the deployment is changed.

    See docs/specs/edrp.md, section 6.15.

    Messages come evenly. Those of the downtime at the beginning of a period wait for its end first, and then take as
    long as all others of the period; it does not show that they are processed as a burst.

    Parameters
    ----------
    record : Record
    rates : array_like, shape (periods,)
        Messages a second in each period.
    period_s : float
        Length of a period, more than any downtime.
    share : float
        Of the quantile, between 0 and 1.

    Raises
    ------
    InputError
        Rates that are no rates or all zero, a share out of range, or a downtime as long as a period.
    """
    per_s = np.asarray(rates, np.float64)
    measured = [period.metrics for period in record.periods]
    if per_s.shape != (len(measured),) or not (np.isfinite(per_s) & (per_s >= 0)).all() or not per_s.any():
        raise InputError(
            f"rates of shape {per_s.shape}: one, not negative, for each of {len(measured)} periods, not all 0"
        )
    if not 0.0 < share < 1.0:
        raise InputError(f"share = {share:g}: it must be between 0 and 1")
    longest = max(metric.downtime_s for metric in measured)
    if not longest < period_s < math.inf:
        raise InputError(f"period_s = {period_s:g}: it must be longer than the longest downtime, {longest:g} s")
    some = per_s > 0
    response, downtime = (np.array([getattr(m, name) for m in measured])[some] for name in ("response_s", "downtime_s"))
    held, others = per_s[some] * downtime, per_s[some] * (period_s - downtime)
    return Responses(
        float(response @ others / others.sum()),
        float((response @ (others + held) + held @ downtime / 2.0) / (others.sum() + held.sum())),
        _quantile(response, downtime, held, others, share),
    )


def _quantile(response: Floats, downtime: Floats, held: Floats, others: Floats, share: float) -> float:
    """Of a mixture: `others` at `response`, `held` evenly from there to `downtime` more."""
    wanted = share * float(others.sum() + held.sum())
    points = np.unique(np.concatenate((response, response + downtime)))
    reached, last = 0.0, float(points[0])
    for point in points[np.isfinite(points)].tolist():
        # Between two points the distribution rises evenly; at a point it jumps by those that did not wait.
        passed = np.clip((point - response) / np.where(downtime > 0, downtime, 1.0), 0.0, 1.0)
        before = float(others[response < point].sum() + held @ passed)
        if before >= wanted:
            return float(last + (wanted - reached) / (before - reached) * (point - last))
        reached, last = before + float(others[response == point].sum()), float(point)
        if reached >= wanted:
            return last
    return float(points[-1])


def control(problems: Iterable[Problem], start: Ints | None = None, planner: Planner | None = None) -> Record:
    """Run the controller over periods.

    Parameters
    ----------
    problems : iterable of Problem
        One for each period; what it says of a current deployment is replaced by what runs.
    start : int64, shape (elements, hosts), optional
        What runs before the first period. Default: nothing does and rates are unknown, so that the first period is one
        of `early_assignment`, and in the second one the best deployment is looked for whatever the change costs.
    planner : Planner, optional
    """
    planner, periods = planner or Planner(), list[Period]()
    counts = None if start is None else np.array(start, np.int64)
    for given in problems:
        if counts is None:
            problem = given.change(current=None, weights=without_downtime(given.weights))
            found, how = early_assignment(problem), "early"
        else:
            problem = given.change(current=counts)
            if start is None and len(periods) == 1:
                found, how = _started(problem, planner)
            else:
                found, how = planner.plan(problem)
        periods.append(Period(found, metrics(problem, found), counts is None or not np.array_equal(found, counts), how))
        counts = found
    return Record(periods)


def _started(problem: Problem, planner: Planner) -> tuple[Ints, str]:
    try:
        return start_deployment(problem, planner.solver), "start"
    except InputError:
        return planner.plan(problem)
