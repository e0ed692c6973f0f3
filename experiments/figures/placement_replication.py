"""Selective replication, published figures and the optimum: ``python -m experiments.figures.placement_replication``.

The paper's queries are not given: they are drawn as docs/specs/selective-replication.md, section 4.1, says, and
"specified" is what its own throw-away simulation got. All availabilities are in per cent of running queries.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks import _harness
from experiments.replication.days import crash_days
from experiments.replication.generators import paper_system, small_system, with_budget
from experiments.replication.reference import AllPlans, genetic_plan
from experiments.replication.selection import select_queries
from goffish.scheduling.policies.replication.availability import query_availabilities
from goffish.scheduling.policies.replication.blocks import spof_plan
from goffish.scheduling.policies.replication.importance import importance
from goffish.scheduling.policies.replication.model import Places, System, primaries
from goffish.scheduling.policies.replication.optimiser import plan_replicas
from goffish.scheduling.policies.replication.placement import Strategy, replicated
from goffish.scheduling.policies.replication.selection import select

_SEEDS = range(5)
_METHODS = ("random", "degree", "utilisation", "combined", "ratio", "spof", "query mean", "query min")
#: Of a reference simulation, at p = 0.02.
_SPECIFIED = {
    10: (94.3, 96.9, 95.8, 97.0, 97.5, 97.7, 95.6, 96.8),
    25: (94.8, 97.5, 97.1, 97.8, 98.5, 98.7, 96.7, 98.3),
    50: (96.5, 98.2, 98.4, 99.2, 99.3, 99.4, 98.0, 99.2),
    75: (98.0, 99.2, 99.3, 99.7, 99.7, 99.7, 99.1, 99.6),
}
#: Paper, at budget 50 and p = 0.02; only QOD*LU is given as such, the others as differences to it.
_PUBLISHED = {"random": "97.1", "degree": "98.8", "utilisation": "98.8", "combined": "99.2"}
_OVER_BUDGET = {0.02: (93.8, 95.2, 97.0, 99.2, 99.8, 99.8), 0.03: (90.9, 92.8, 95.5, 98.7, 99.5, 99.6)}
_PLACEMENTS = {
    ("simple", 50): (98.74, 1.35, 94.4, 129), ("coloured", 50): (98.75, 1.18, 94.9, 35),
    ("mirror", 50): (98.78, 1.52, 93.6, 61), ("simple", 100): (99.59, 1.24, 95.2, 129),
    ("coloured", 100): (99.56, 0.98, 96.0, 19), ("mirror", 100): (99.67, 1.35, 94.6, 57),
}  # fmt: skip
_TARGETS = {
    96: (41.7, 3.7, 1.9), 97: (56.2, 10.4, 5.3), 98: (75.2, 26.2, 13.1), 99: (89.3, 41.6, 34.3),
    99.5: (95.2, 63.7, 59.3),
}  # fmt: skip


def planned(made: System, method: str, budget: float, seed: int, strategy: Strategy = "simple") -> Places:
    """A plan in paper mode, equal scores in the order of operators, as the reference simulation takes them."""
    if method == "spof":
        return spof_plan(made, budget, strategy).places
    heuristic = method if not method.startswith("query") else "combined"
    scores = importance(made, heuristic, np.random.default_rng(seed))  # type: ignore[arg-type]
    scores = scores - 1e-9 * np.arange(scores.size)
    if method.startswith("query"):
        counts = select_queries(made, scores, budget, aggregate=method.removeprefix("query "))  # type: ignore[arg-type]
    else:
        counts = select(made, scores, budget)
    return replicated(made, scores, counts, budget, strategy).places


def mean_of(bases: list[System], method: str, budget: float, failure: float = 0.02) -> float:
    found = []
    for seed, base in enumerate(bases):
        made = with_budget(base, budget, failure)
        found.append(float(query_availabilities(made, planned(made, method, budget, seed)).mean()))
    return 100 * statistics.mean(found)


def heuristics(bases: list[System]) -> None:
    rows = []
    for budget, specified in _SPECIFIED.items():
        for method, figure in zip(_METHODS, specified, strict=True):
            published = _PUBLISHED.get(method, "") if budget == 50 else ""
            rows.append([str(budget), method, f"{mean_of(bases, method, budget):.2f}", f"{figure:.1f}", published])
    _harness.print_table(["budget", "method", "ours", "specified", "published"], rows)


def budgets(bases: list[System]) -> None:
    rows = []
    for failure, specified in _OVER_BUDGET.items():
        for budget, figure in zip((0, 1, 10, 50, 90, 100), specified, strict=True):
            ours = mean_of(bases, "combined", budget, failure)
            rows.append([f"{failure:g}", str(budget), f"{ours:.2f}", f"{figure:.1f}"])
    _harness.print_table(["p", "budget", "QOD*LU", "specified"], rows)


def placements(bases: list[System]) -> None:
    rows = []
    for (strategy, budget), specified in _PLACEMENTS.items():
        figures = []
        for seed, base in enumerate(bases[:3]):
            made = with_budget(base, budget, 0.03)
            places = planned(made, "combined", budget, seed, strategy)  # type: ignore[arg-type]
            days = 100 * crash_days(made, places, 20_000, np.random.default_rng(seed)).days
            most = int((places & ~primaries(made)).sum(axis=0).max())
            mean = 100 * query_availabilities(made, places).mean()
            figures.append((mean, days.std(), np.percentile(days, 1), most))
        ours = np.mean(figures, axis=0)
        text = [", ".join(f"{x:.4g}" for x in some) for some in (ours, specified)]
        rows.append([strategy, str(budget), *text])
    _harness.print_table(["placement", "budget", "mean, sd, 1 % day, most copies", "specified"], rows)


def targets(bases: list[System]) -> None:
    rows = []
    for target, specified in _TARGETS.items():
        needed = []
        for method in ("random", "combined", "spof"):
            low, high = 0.0, 100.0
            while high - low > 0.5:
                middle = (low + high) / 2
                low, high = (low, middle) if mean_of(bases[:3], method, middle) >= target else (middle, high)
            needed.append(high)
        rows.append([f"{target:g}", *(f"{a:.1f} ({b:g})" for a, b in zip(needed, specified, strict=True))])
    _harness.print_table(["target", "random (specified)", "QOD*LU", "SPOF order"], rows)


def optima() -> None:
    rows = []
    for share in (0.5, 0.8, 0.9):
        plan_excess, genetic_excess, missed, stuck, seconds = [], [], 0, 0, [0.0, 0.0]
        for seed in range(40):
            made = small_system(np.random.default_rng(seed))
            bare = float(query_availabilities(made, primaries(made)).mean())
            target = bare + share * (1 - bare)
            best = AllPlans(made).cheapest(target)
            if not np.isfinite(best):
                continue
            begun = time.perf_counter()
            plan = plan_replicas(made, target=target)
            seconds[0] += time.perf_counter() - begun
            plan_excess.append(plan.cost / best - 1)
            stuck += not plan_replicas(made, target=target, blocks=False).feasible
            if seed < 10:
                begun = time.perf_counter()
                evolved = genetic_plan(made, np.random.default_rng(seed), target=target, generations=100)
                seconds[1] += time.perf_counter() - begun
                missed += not evolved.feasible
                if evolved.feasible:
                    genetic_excess.append(evolved.cost / best - 1)
        optimal = np.mean(np.array(plan_excess) < 1e-9)
        rows.append(
            [
                f"{share:.0%}", f"{optimal:.0%} (95)", f"{np.mean(plan_excess):.1%}", f"{max(plan_excess):.0%}",
                f"{stuck} of {len(plan_excess)}", f"{np.mean(genetic_excess):.1%}", f"{missed} of 10",
                f"{seconds[0] / len(plan_excess) * 1e3:.1f}", f"{seconds[1] / 10 * 1e3:.0f}",
            ]
        )  # fmt: skip
    _harness.print_table(
        [
            "target", "optimal (specified)", "mean excess", "worst", "single moves stuck", "genetic excess",
            "genetic misses", "ms", "ms genetic",
        ],
        rows,
    )  # fmt: skip


def scale() -> None:
    """Y15: one hundred and fifty hosts."""
    made = with_budget(paper_system(np.random.default_rng(0)), 48, 0.02)
    rows = []
    for method in ("combined", "spof"):
        begun = time.perf_counter()
        places = planned(made, method, 48, 0)
        middle = time.perf_counter()
        query_availabilities(made, places)
        rows.append([method, f"{middle - begun:.3f}", f"{time.perf_counter() - middle:.3f}"])
    print(f"{made.operators} operators, {len(made.queries)} queries, {made.hosts} hosts")
    _harness.print_table(["method", "plan, s", "exact availability, s"], rows)


def main() -> None:
    print(_harness.machine_line())
    bases = [paper_system(np.random.default_rng(seed)) for seed in _SEEDS]
    heuristics(bases)
    budgets(bases)
    placements(bases)
    targets(bases)
    optima()
    scale()


if __name__ == "__main__":
    main()
