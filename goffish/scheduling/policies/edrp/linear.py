"""Mixed integer linear programs in columns and rows, solved by HiGHS.

Uses `highspy` instead of `scipy.optimize.milp`, which has no warm start: the previous deployment is the first solution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.extras import needed_for
from goffish.scheduling.dataflow.flow import Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Solver:
    """Options of the solver.

    Attributes
    ----------
    gap : float
        Relative gap between solution and bound at which a solution counts as optimal.
    nodes : int, optional
        Maximum number of nodes of the search tree; does not depend on the machine.
    time_limit_s : float, optional
        Maximum time; results depend on the speed of the machine.
    most_variables : int
        Maximum number of variables.
    reduce : bool
        Remove dominated and symmetric candidates.
    seed : int
    """

    gap: float = 1e-4
    nodes: int | None = None
    time_limit_s: float | None = None
    most_variables: int = 400_000
    reduce: bool = True
    seed: int = 0


class LinearSolution(NamedTuple):
    """Result of the solver: columns, if there is a solution; `optimal`: the search is complete."""

    values: Floats | None
    objective: float
    bound: float
    optimal: bool


class Linear:
    """A program that minimizes cost under rows ``lower <= sum <= upper``; all columns are 0 or more."""

    def __init__(self) -> None:
        self.count = 0
        self._cost: list[Floats] = []
        self._upper: list[Floats] = []
        self._whole: list[NDArray[np.bool_]] = []
        self._added: list[tuple[Ints, Floats]] = []
        self._index: list[Ints] = []
        self._value: list[Floats] = []
        self._lengths: list[Ints] = []
        self._low: list[Floats] = []
        self._high: list[Floats] = []

    def columns(self, count: int, *, upper: float, whole: bool = False, cost: float = 0.0) -> Ints:
        """Add columns and return their numbers."""
        self._cost.append(np.full(count, cost))
        self._upper.append(np.full(count, upper))
        self._whole.append(np.full(count, whole))
        self.count += count
        return np.arange(self.count - count, self.count)

    def add_cost(self, columns: Ints, cost: Floats) -> None:
        self._added.append((columns, cost))

    def clear_costs(self) -> None:
        self._cost, self._added = [np.zeros(self.count)], []

    def row(self, parts: list[tuple[Ints, Any]], *, lower: float = -math.inf, upper: float = math.inf) -> None:
        """Add a row; each part is columns with a factor, or with one factor per column."""
        index = np.concatenate([columns for columns, _ in parts])
        value = np.concatenate([np.broadcast_to(np.asarray(factor, np.float64), c.shape) for c, factor in parts])
        used = value != 0
        self._index.append(index[used])
        self._value.append(value[used])
        self._lengths.append(np.array([int(used.sum())]))
        self._low.append(np.array([lower]))
        self._high.append(np.array([upper]))

    def rows_of_sums(self, columns: Ints, sums: Ints) -> None:
        """Add rows that make the columns in each line sum up to the column next to it."""
        index = np.column_stack((columns, sums))
        value = np.ones(index.shape)
        value[:, -1] = -1.0
        self._index.append(index.ravel())
        self._value.append(value.ravel())
        self._lengths.append(np.full(len(index), index.shape[1]))
        self._low.append(np.zeros(len(index)))
        self._high.append(np.zeros(len(index)))

    @property
    def cost(self) -> Floats:
        """Number of columns."""
        found = np.concatenate(self._cost)
        for columns, cost in self._added:
            found[columns] += cost
        return found

    def copy(self) -> Linear:
        other = Linear()
        other.count = self.count
        for name in ("_cost", "_upper", "_whole", "_added", "_index", "_value", "_lengths", "_low", "_high"):
            setattr(other, name, list(getattr(self, name)))
        return other

    def lp(self, highspy: Any) -> Any:
        """Convert the program to the form that HiGHS takes."""
        found, starts = highspy.HighsLp(), np.concatenate([[0], np.cumsum(np.concatenate(self._lengths))])
        found.num_col_, found.num_row_ = self.count, len(starts) - 1
        found.col_cost_, found.col_lower_ = self.cost, np.zeros(self.count)
        found.col_upper_ = np.concatenate(self._upper)
        found.row_lower_, found.row_upper_ = np.concatenate(self._low), np.concatenate(self._high)
        found.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        found.a_matrix_.start_ = starts.astype(np.int32)
        found.a_matrix_.index_ = np.concatenate(self._index).astype(np.int32)
        found.a_matrix_.value_ = np.concatenate(self._value)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        found.integrality_ = [kinds[int(whole)] for whole in np.concatenate(self._whole).tolist()]
        return found


def run(linear: Linear, solver: Solver, hint: Floats | None = None) -> LinearSolution:
    """Solve a program; `hint`: the columns of an initial solution.

    Raises
    ------
    InputError
        If highspy is not installed.
    """
    with needed_for("exact EDRP plans"):
        highspy: Any = import_module("highspy")
    highs = highspy.Highs()
    options: dict[str, Any] = {
        "output_flag": False, "threads": 1, "random_seed": solver.seed, "mip_rel_gap": solver.gap,
        "mip_abs_gap": min(1e-9, solver.gap), "mip_feasibility_tolerance": 1e-7,
    }  # fmt: skip
    if solver.nodes is not None:
        options["mip_max_nodes"] = solver.nodes
    if solver.time_limit_s is not None:
        options["time_limit"] = solver.time_limit_s
    for name, value in options.items():
        highs.setOptionValue(name, value)
    highs.passModel(linear.lp(highspy))
    if hint is not None:
        given = highspy.HighsSolution()
        given.col_value = hint.tolist()
        given.value_valid = True
        highs.setSolution(given)
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    done = status == highspy.HighsModelStatus.kOptimal
    if status == highspy.HighsModelStatus.kInfeasible:
        return LinearSolution(None, math.inf, math.inf, True)
    if not done and info.primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible):
        return LinearSolution(None, math.inf, float(info.mip_dual_bound), False)
    values = np.array(highs.getSolution().col_value)
    return LinearSolution(values, float(info.objective_function_value), float(info.mip_dual_bound), done)
