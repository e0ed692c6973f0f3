"""Checks of docs/specs/selective-replication.md, section 7, on more seeds, hosts, budgets and changes."""

from __future__ import annotations

import functools
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.replication.days import crash_days
from experiments.replication.dynamic import _part, replanned, transition
from experiments.replication.generators import paper_system, small_system, with_budget
from experiments.replication.queries import Operator, SharedQueries
from experiments.replication.reference import AllPlans, genetic_plan
from experiments.replication.selection import knapsack, select_queries
from goffish.scheduling.policies.replication.availability import Availability, aggregated, query_availabilities
from goffish.scheduling.policies.replication.blocks import spof_plan
from goffish.scheduling.policies.replication.importance import importance
from goffish.scheduling.policies.replication.model import (
    Places,
    System,
    check,
    host_loads,
    primaries,
    replica_load,
    system,
)
from goffish.scheduling.policies.replication.optimiser import plan_replicas
from goffish.scheduling.policies.replication.placement import colours_per_host, place_copies, replicated
from goffish.scheduling.policies.replication.selection import select


def all_states(sets: list[int], failures: np.ndarray) -> float:
    """Every state of up to 16 hosts at once."""
    states = np.arange(1 << failures.size)
    weight = np.ones(states.size)
    for host, p in enumerate(failures):
        weight *= np.where(states >> host & 1, 1 - p, p)
    up = np.ones(states.size, bool)
    for one in sets:
        up &= (states & one) != 0
    return float(weight[up].sum())


@pytest.mark.parametrize("hosts", [9, 12, 16])
def test_exact_on_many_hosts(hosts: int) -> None:
    """§7.1 (5), to 1e-12; and (4): only the family of sets matters, and hosts that are alike change places freely."""
    rng = np.random.default_rng(hosts)
    for at in range(6):
        failures = np.full(hosts, 0.07) if at % 2 else rng.uniform(0, 0.5, hosts)
        sets = [int(sum(1 << h for h in rng.choice(hosts, int(rng.integers(1, 4)), replace=False))) for _ in range(8)]
        exact = Availability(failures.tolist())
        value = exact.of(sets)
        assert value == pytest.approx(all_states(sets, failures), abs=1e-12)
        # One operator more on the same hosts, and one on more hosts than another.
        assert exact.of([*sets, sets[0], sets[1] | 1 << int(rng.integers(hosts))]) == pytest.approx(value, abs=1e-15)
        if at % 2:
            new = rng.permutation(hosts).tolist()
            moved = [sum(1 << new[h] for h in range(hosts) if one >> h & 1) for one in sets]
            assert exact.of(moved) == pytest.approx(value, abs=1e-12)


def test_a_smaller_limit_stops_copies() -> None:
    """§7.1 (2) and R12: what runs above the limit goes, down to nothing; primaries stay, and little is lost by it."""
    for seed in range(12):
        made = small_system(np.random.default_rng(seed))
        much = plan_replicas(made, limit=1.0)
        for limit in (0.6, 0.3, 0.0):
            for plan in (
                plan_replicas(made, limit=limit, start=much.places),
                replanned(made, much.places, limit=limit),
            ):
                check(made, plan.places)
                assert replica_load(made, plan.places) == pytest.approx(plan.cost) and plan.cost <= limit + 1e-9
                fresh = plan_replicas(made, limit=limit).availability
                bare = float(query_availabilities(made, primaries(made)).mean())
                assert plan.availability - bare >= 0.7 * (fresh - bare) - 1e-12


def test_a_smaller_limit_of_a_large_system() -> None:
    """The same where gains of the first order are used."""
    made = with_budget(paper_system(np.random.default_rng(0)), 20, 0.02)
    much = spof_plan(made, 20.0).places
    assert made.operators > 500 and replica_load(made, much) > 15
    for limit in (8.0, 0.0):
        plan = plan_replicas(made, limit=limit, start=much)
        check(made, plan.places)
        assert plan.cost <= limit + 1e-6 and plan.cost >= 0.9 * limit


def test_replanning_under_a_limit_gets_somewhere() -> None:
    """§3.9: queries and failures change under the same limit. A tenth of the copies starts in a turn, others make room;
    in the end no plan from nothing is better by a tenth, and then nothing changes any more.
    """
    moved = 0
    for seed in range(15):
        made, rng = small_system(np.random.default_rng(seed)), np.random.default_rng([seed, 1])
        places = plan_replicas(made, limit=0.5).places
        queries = tuple(np.sort(rng.choice(made.operators, some.size, replace=False)) for some in made.queries)
        now = replace(made, failures=made.failures[::-1].copy(), queries=queries)
        bare = query_availabilities(now, primaries(now)).mean()
        best = plan_replicas(now, limit=0.5).availability
        for _ in range(15):
            before, plan = places, replanned(now, places, limit=0.5)
            places = plan.places
            check(now, places)
            assert plan.cost <= 0.5 + 1e-9
            most = max(1, int(np.ceil(0.1 * (before.sum() - now.operators))))
            assert max((places & ~before).sum(), (before & ~places).sum()) <= most
            moved += not np.array_equal(before, places)
        assert np.array_equal(before, places)
        assert best - bare <= 1.1 * (plan.availability - bare) + 1e-12
    assert moved > 15


def test_replanning_for_a_target_never_falls_below_it() -> None:
    """§3.9: once it is met, every turn keeps it and changes a tenth of the copies, until nothing changes any more."""
    saved = 0.0
    for seed in range(15):
        made, rng = small_system(np.random.default_rng(seed)), np.random.default_rng([seed, 1])
        places = plan_replicas(made, target=0.985).places
        queries = tuple(np.sort(rng.choice(made.operators, some.size, replace=False)) for some in made.queries)
        now = replace(made, failures=made.failures[::-1].copy(), queries=queries)
        plan = replanned(now, places, target=0.985)
        first, met = plan.cost, plan.availability >= 0.985
        for _ in range(15):
            before, plan = plan.places, replanned(now, plan.places, target=0.985)
            check(now, plan.places)
            assert plan.availability == query_availabilities(now, plan.places).mean()
            assert plan.availability >= 0.985 or not met
            most = max(1, int(np.ceil(0.1 * (before.sum() - now.operators))))
            if met:
                assert max((plan.places & ~before).sum(), (before & ~plan.places).sum()) <= most
            met = plan.availability >= 0.985
        assert np.array_equal(before, plan.places)
        saved += first - plan.cost
    assert saved > 0.5


def test_a_copy_that_is_needed_does_not_make_room() -> None:
    """Host 2 has room for one copy: it changes hands only if the first query may fall."""
    made = system([0.5, 0.5], [0, 1], [[0], [1]], [0.1] * 3, [0.5] * 3)
    running, wanted = primaries(made), primaries(made)
    running[0, 2] = wanted[1, 2] = True
    assert np.array_equal(_part(made, running, wanted, 1, None, lambda v: True), wanted)
    assert np.array_equal(_part(made, running, wanted, 1, None, lambda v: v[0] >= 0.98), running)
    # Under a limit the load of the copies counts as well: nothing can start, and one copy is let go.
    assert np.array_equal(_part(made, running, wanted, 1, 0.4, lambda v: True), primaries(made))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_no_step_breaks_a_level(seed: int) -> None:
    """§7.1 (10): every moment of a change has room everywhere, and no query falls below its level if it had it."""
    rng = np.random.default_rng(seed)
    made = small_system(rng)

    def drawn() -> Places:
        places = primaries(made)
        for operator in rng.permutation(made.operators).tolist():
            host = int(rng.integers(made.hosts))
            fits = host_loads(made, places)[host] + made.loads[operator] <= made.capacity[host]
            if fits and rng.random() < 0.7:
                places[operator, host] = True
        return places

    old, new = drawn(), drawn()
    before = query_availabilities(made, old)
    levels = rng.choice([0.0, 0.9, 0.95, 0.99], len(made.queries))
    steps, left = transition(made, old, new, levels)
    places = old.copy()
    for step in steps:
        assert places[step.operator, step.host] == (step.kind == "stop")
        places[step.operator, step.host] ^= True
        check(made, places)
        assert (query_availabilities(made, places) >= np.minimum(levels, before) - 1e-12).all()
    assert int((places != new).sum()) == len(left)
    if not levels.any() and not left:
        assert (places == new).all()


def test_same_input_same_plan() -> None:
    """§7.1 (11), for everything that draws or searches."""
    made = small_system(np.random.default_rng(3))
    bases = [paper_system(np.random.default_rng(5)) for _ in range(2)]
    assert bases[0].loads.tobytes() == bases[1].loads.tobytes()
    assert [q.tolist() for q in bases[0].queries] == [q.tolist() for q in bases[1].queries]
    for call in (
        lambda: plan_replicas(made, target=0.99).places, lambda: plan_replicas(made, limit=0.5).places,
        lambda: genetic_plan(made, np.random.default_rng(1), limit=0.5, generations=5).places,
        lambda: spof_plan(with_budget(bases[0], 10, 0.02), 10).places,
        lambda: importance(made, "random", np.random.default_rng(2)),
        lambda: crash_days(made, primaries(made), 500, np.random.default_rng(2)).days,
    ):  # fmt: skip
        assert call().tobytes() == call().tobytes()


def test_greedy_knapsack_of_many() -> None:
    """Y11: 200 operators; the ratio is within one item of dynamic programming, which itself nearly fills the budget."""
    rng = np.random.default_rng(8)
    for _ in range(4):
        loads, values = rng.exponential(0.05, 200).clip(0.002, 0.9), rng.random(200)
        made = system(loads, [0] * 200, [range(200)], [0.1], [100.0])
        exact, ratio = (knapsack(made, values, 4.0, method) for method in ("exact", "ratio"))  # type: ignore[arg-type]
        assert loads @ exact <= 4.0 + 1e-9 and loads @ ratio <= 4.0 + 1e-9
        assert values @ ratio >= values @ exact - values.max()
        assert values @ exact >= 0.98 * (values @ ratio)


def test_colours() -> None:
    """R7: what is one colour is a setting. Operators 0 and 1 share host 0 and query 0, 2 and 3 host 1, 3 query 0."""
    made = system([0.1] * 4, [0, 0, 1, 1], [[0, 1, 3], [2]], [0.1] * 4, [1.0] * 4)
    order = np.arange(4)
    found = {
        colour: place_copies(made, primaries(made), order, "coloured", colour=colour)  # type: ignore[arg-type]
        for colour in ("operator", "query", "primary_host")
    }
    extra = {name: placed.places & ~primaries(made) for name, placed in found.items()}
    hosts = {name: [int(np.flatnonzero(row)[0]) for row in rows] for name, rows in extra.items()}
    assert hosts["operator"] == [1, 2, 0, 3]
    # Copies that share a colour add none to the host where it is already.
    for name, colours in (("query", [0, 0, 1, 0]), ("primary_host", [0, 0, 1, 1])):
        counted = [len({colours[o] for o in range(4) if hosts[name][o] == h}) for h in range(4)]
        assert colours_per_host(made, found[name].places, name) == counted  # type: ignore[arg-type]
        assert max(counted) == 1


def test_merged_traffic() -> None:
    """§2.3: rates of binary operators are those of both inputs; network of a channel is rate times tuple size."""
    shared = SharedQueries()
    shared.add(
        (
            Operator("source", "s", rate=10.0, selectivity=0.5, tuple_size=3.0),
            Operator("source", "t", rate=4.0),
            Operator("join", 1, (0, 1), cost=0.01, selectivity=0.25, tuple_size=7.0),
            Operator("destination", None, (2,), cost=0.1),
        )
    )
    # A source sends what it gets, whatever its selectivity is said to be.
    assert shared.input_rates() == pytest.approx([10.0, 4.0, 14.0, 3.5])
    assert shared.loads() == pytest.approx([0.0, 0.0, 0.14, 0.35])
    assert shared.traffic() == pytest.approx({(0, 2): 30.0, (1, 2): 4.0, (2, 3): 24.5})


@pytest.mark.slow
def test_never_infeasible_where_a_plan_exists() -> None:
    """Y7 on three times forty more systems."""
    for share in (0.5, 0.8, 0.9):
        optimal = []
        for seed in range(100, 140):
            made = small_system(np.random.default_rng(seed))
            bare = query_availabilities(made, primaries(made)).mean()
            target = bare + share * (1 - bare)
            optimum = AllPlans(made).cheapest(target)
            if np.isfinite(optimum):
                plan = plan_replicas(made, target=target)
                assert plan.feasible
                optimal.append(plan.cost / optimum - 1)
        assert np.mean(np.array(optimal) < 1e-9) >= 0.85 and np.mean(optimal) <= 0.06


@functools.cache
def paper(seed: int) -> System:
    return paper_system(np.random.default_rng(seed))


@functools.cache
def placed(seed: int, method: str, budget: float, strategy: str = "simple") -> tuple[Places, float]:
    """A plan in paper mode, and the share of operators that were selected; it does not depend on p."""
    made = with_budget(paper(seed), budget, 0.02)
    if method == "spof":
        places = spof_plan(made, budget, strategy).places  # type: ignore[arg-type]
        return places, float((places.sum(axis=1) > 1).mean())
    heuristic = "combined" if method in ("query min", "query mean") else method
    scores = importance(made, heuristic, np.random.default_rng(seed))  # type: ignore[arg-type]
    scores = scores - 1e-9 * np.arange(scores.size)
    if method.startswith("query "):
        counts = select_queries(made, scores, budget, aggregate=method.removeprefix("query "))  # type: ignore[arg-type]
    else:
        counts = select(made, scores, budget)
    return replicated(made, scores, counts, budget, strategy).places, float(counts.mean())  # type: ignore[arg-type]


def mean(method: str, budget: float, p: float = 0.02, strategy: str = "simple") -> float:
    """Running queries in per cent, five seeds."""
    found = []
    for seed in range(5):
        made = with_budget(paper(seed), budget, p)
        found.append(100 * query_availabilities(made, placed(seed, method, budget, strategy)[0]).mean())
    return float(np.mean(found))


@pytest.mark.slow
def test_experiments_of_five_seeds() -> None:
    """Y1 to Y4 and Y12."""
    assert 92 <= mean("combined", 0) <= 95 and 89 <= mean("combined", 0, 0.03) <= 93
    at = {m: mean(m, 50) for m in ("random", "degree", "utilisation", "combined", "query min", "query mean")}
    assert at["random"] < min(at["degree"], at["utilisation"])
    assert max(at["degree"], at["utilisation"]) < at["combined"] == pytest.approx(99.2, abs=0.3)
    assert at["combined"] - at["random"] >= 1.7
    assert abs(100 * np.mean([placed(s, "combined", 50)[1] for s in range(5)]) - 80) <= 6
    assert 0.6 <= mean("combined", 100, 0.03) - mean("combined", 50, 0.03) <= 1.3
    assert at["query min"] - at["query mean"] >= 0.5 and abs(at["query min"] - at["combined"]) <= 0.3


@pytest.mark.slow
def test_every_budget_and_failure() -> None:
    """Y5: strictly rising with the budget for every p, and apart the more the higher p is."""
    rows = {p: [mean("combined", b, p) for b in (0, 1, 10, 50, 90, 100)] for p in (0.0025, 0.005, 0.01, 0.02, 0.03)}
    for row in rows.values():
        assert (np.diff(row) > 0).all()
    assert (np.diff([row[-1] - row[0] for row in rows.values()]) > 0).all()
    assert all((np.diff(column) < 0).all() for column in zip(*rows.values(), strict=True))


@pytest.mark.slow
def test_single_points_first_at_every_budget() -> None:
    """Y6: never below QOD*LU, by 0.4 points at 10; 99 % for at most 0.9 of its budget."""
    for budget in (1, 5, 10, 25, 50, 75, 90, 100):
        assert mean("spof", budget) >= mean("combined", budget) - 1e-9, budget
    assert mean("spof", 10) - mean("combined", 10) >= 0.4

    def needed(method: str) -> float:
        low, high = 10.0, 60.0
        while high - low > 0.5:
            middle = (low + high) / 2
            low, high = (low, middle) if mean(method, middle) >= 99 else (middle, high)
        return high

    assert needed("spof") <= 0.9 * needed("combined")


@pytest.mark.slow
def test_placements_of_five_seeds() -> None:
    """Y9 and Y10, under full replication at p = 0.03."""
    found: dict[str, list[tuple[float, float, float]]] = {"simple": [], "coloured": [], "mirror": []}
    for seed in range(5):
        made = with_budget(paper(seed), 100, 0.03)
        for strategy, some in found.items():
            places = placed(seed, "combined", 100, strategy)[0]
            days = crash_days(made, places, 20_000, np.random.default_rng(seed))
            copies = (places & ~primaries(made)).sum(axis=0).max()
            some.append((100 * query_availabilities(made, places).mean(), 100 * days.days.std(), float(copies)))
    simple, coloured, mirror = (np.mean(found[name], axis=0) for name in found)
    assert abs(coloured[0] - simple[0]) <= 0.15 and coloured[1] <= 0.9 * simple[1] and coloured[2] <= simple[2] / 2
    assert mirror[0] - simple[0] >= 0.04


@pytest.mark.slow
def test_scale() -> None:
    """Y15: 2000 operators, 1000 queries, 150 hosts; a plan within a second, single points and exact figures in ten."""
    made = with_budget(paper_system(np.random.default_rng(1), load=106.0), 42, 0.02)
    assert made.operators >= 1900 and len(made.queries) >= 900 and made.hosts >= 145
    place_copies(small := small_system(np.random.default_rng(0)), primaries(small), np.zeros(1, np.int64), "simple")

    def heuristic() -> Places:
        scores = importance(made)
        return replicated(made, scores, select(made, scores, 42.0), 42.0).places

    def exact() -> float:
        return aggregated(made, query_availabilities(made, spof_plan(made, 42.0).places))

    for call, most in ((heuristic, 1.0), (exact, 10.0)):
        seconds = []
        for _ in range(3):
            begun = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begun)
        assert min(seconds) < most
