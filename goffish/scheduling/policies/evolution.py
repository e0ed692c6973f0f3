"""Operators and main loop of the genetic algorithm, on pymoo. See docs/specs/provisioning.md, section 3.6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.base.genetic import GeneticAlgorithm
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.problem import Problem
from pymoo.core.selection import Selection
from pymoo.core.survival import Survival
from pymoo.core.termination import NoTermination

from goffish.cloud.catalogue import TypeColumns
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies import genetic_kernels as kernels

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Search:
    """Parameters of the genetic algorithm; see docs/specs/provisioning.md, section 3.6.

    Attributes
    ----------
    population, generations, patience : int
        Population size, maximum number of generations, and generations without improvement before the search ends.
    elite : float
        Share of the population that is kept unchanged.
    switch, slot_change : float
        Probabilities of a mutation, for each PE and each machine slot.
    violation_weight, change_weight : float
        Penalties of a missed goal and of a change, times the generation (alpha and alpha').
    seeded : bool
        Whether the first population contains the plans of CE and SH (and the running deployment).
    """

    population: int = 200
    generations: int = 300
    patience: int = 60
    elite: float = 0.05
    switch: float = 0.05
    slot_change: float = 0.10
    violation_weight: float = 1.0
    change_weight: float = 0.002
    seeded: bool = True

    def __post_init__(self) -> None:
        if self.population < 1:
            raise InputError(f"population = {self.population}: must be at least 1")
        for name in ("elite", "switch", "slot_change"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} = {getattr(self, name)}: must be 0 to 1")


@dataclass(frozen=True)
class Question:
    """The problem: rows of the population (see `genetic_kernels`) are deployments of this dataflow.

    Attributes
    ----------
    external : float64, shape (elements,)
    types : TypeColumns
    slot_kind, coefficient : arrays, shape (slots,)
        Machine type (-1: any) and observed speed of each machine slot.
    running : int64, shape (elements + slots * (1 + width),)
        The running deployment as a row, to count changes.
    worth, fixed : float
        Loss of profit per hourly price of 1, and loss of profit by the cost so far.
    change_weight : float
        0 for a first deployment.
    """

    flow: Flow
    external: Floats
    types: TypeColumns
    slot_kind: Ints
    coefficient: Floats
    running: Ints
    worth: float
    fixed: float
    change_weight: float

    @property
    def width(self) -> int:
        """Cores of the largest machine type."""
        return int(self.types.cores.max())

    def evaluate(self, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """Profit, missing throughput and number of changes of each row."""
        flow = self.flow
        found: tuple[Floats, Floats, Floats] = kernels.evaluate(
            flow.graph, flow.alternates, self.external, self.types, rows, self.coefficient, self.running,
            flow.goal.throughput, self.worth, self.fixed,
        )  # fmt: skip
        return found


def _rows(given: Any) -> Ints:
    return np.ascontiguousarray(given, np.int64)


class _Deployments(Problem):  # type: ignore[misc]
    def __init__(self, question: Question) -> None:
        super().__init__(n_var=question.running.size, n_obj=1, vtype=int)
        self.question = question

    def _evaluate(self, x: Any, out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        profit, out["violation"], out["changes"] = self.question.evaluate(_rows(x))
        out["F"] = -profit


class _RankRoulette(Selection):  # type: ignore[misc]
    def _do(self, _: Any, pop: Any, n_select: int, n_parents: int, *args: Any, random_state: Any, **kwargs: Any) -> Any:
        weight = np.arange(len(pop), 0, -1, dtype=np.float64)
        return random_state.choice(len(pop), (n_select, n_parents), p=weight / weight.sum())


class _Uniform(Crossover):  # type: ignore[misc]
    def __init__(self, elements: int, slots: int, width: int) -> None:
        super().__init__(2, 1, prob=1.0)
        # The cores of a slot and its machine type are one gene.
        self.gene = np.concatenate(
            (np.arange(elements + slots), np.repeat(np.arange(elements, elements + slots), width))
        ).astype(np.int64)

    def _do(self, problem: Any, x: Any, *args: Any, random_state: Any, **kwargs: Any) -> Any:
        bits = random_state.random((x.shape[1], int(self.gene.max()) + 1)) < 0.5
        return np.where(bits[:, self.gene], x[0], x[1])[None]


class _Mutate(Mutation):  # type: ignore[misc]
    def __init__(self, question: Question, search: Search) -> None:
        super().__init__()
        self.question, self.search = question, search

    def _do(self, problem: Any, x: Any, *args: Any, random_state: Any, **kwargs: Any) -> Any:
        rows, question = _rows(x).copy(), self.question
        kernels.mutate(
            rows, question.flow.alternate_counts, question.types.cores, question.slot_kind, question.width,
            self.search.switch, self.search.slot_change,
            random_state.random((len(rows), question.flow.size, 2)),
            random_state.random((len(rows), question.slot_kind.size, 4)),
        )  # fmt: skip
        return rows


class _Generations(Survival):  # type: ignore[misc]
    """The best parents and children, the fittest first; the penalty grows with the generation."""

    def __init__(self, question: Question, search: Search) -> None:
        super().__init__(filter_infeasible=False)
        self.question, self.search = question, search

    def _do(self, problem: Any, pop: Any, *args: Any, n_survive: int, algorithm: Any, **kwargs: Any) -> Any:
        penalty = (
            self.search.violation_weight * pop.get("violation") + self.question.change_weight * pop.get("changes")
        ) * algorithm.n_iter
        fitness = -pop.get("F")[:, 0] - penalty
        children = np.arange(min(self.search.population, len(pop) - 1) if len(pop) > n_survive else 0, len(pop))
        parents = np.arange(len(pop) - children.size)
        best = parents[np.argsort(-fitness[parents], kind="stable")][: n_survive - children.size]
        kept = np.concatenate((best, children))
        return pop[kept[np.argsort(-fitness[kept], kind="stable")]]


def evolve(
    question: Question, seeds: list[Ints], search: Search, rng: np.random.Generator
) -> tuple[Ints | None, list[float]]:
    """Search for the row with the highest profit that reaches the goal.

    Returns
    -------
    int64, shape (elements + slots * (1 + width),), or None
        The best row; ``None`` if no row reached the goal.
    list of float
        Its profit after each generation; minus infinity before the first such row.
    """
    flow, slots, width = question.flow, question.slot_kind.size, question.width
    first = np.empty((search.population, question.running.size), np.int64)
    kernels.sample(
        first, flow.alternate_counts, question.types.cores, question.slot_kind, width,
        rng.random((search.population, flow.size + slots * (3 + width))),
    )  # fmt: skip
    for at, seed in enumerate(seeds[: search.population]):
        first[at] = seed
    elite = int(np.ceil(search.elite * search.population))
    algorithm = GeneticAlgorithm(
        pop_size=search.population, sampling=first, selection=_RankRoulette(),
        crossover=_Uniform(flow.size, slots, width), mutation=_Mutate(question, search),
        survival=_Generations(question, search), n_offsprings=search.population - elite, eliminate_duplicates=False,
        advance_after_initial_infill=True, termination=NoTermination(), seed=rng,
    )  # fmt: skip
    algorithm.setup(_Deployments(question))
    best, history, since = None, [-np.inf], 0
    for _ in range(search.generations):
        algorithm.next()
        profit = np.where(algorithm.pop.get("violation") <= SLACK, -algorithm.pop.get("F")[:, 0], -np.inf)
        top = int(np.argmax(profit))
        if profit[top] > history[-1] + SLACK:
            best, since = _rows(algorithm.pop[top].X).copy(), 0
            history.append(float(profit[top]))
        else:
            since += 1
            history.append(history[-1])
        if best is not None and since >= search.patience:
            break
    return best, history[1:]
