"""Plans against all plans of small systems, the genetic search, and the rules of a changing system."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.replication.dynamic import (
    Step,
    channels,
    due,
    host_lost,
    move_order,
    relieved,
    replanned,
    split_operator,
    transition,
    without_host,
)
from experiments.replication.generators import small_system
from experiments.replication.reference import AllPlans, genetic_plan
from goffish.errors import InputError
from goffish.scheduling.policies.replication.availability import query_availabilities
from goffish.scheduling.policies.replication.model import Network, check, host_loads, primaries, replica_load, system
from goffish.scheduling.policies.replication.optimiser import plan_replicas


@pytest.mark.slow
def test_against_all_plans() -> None:
    """Y7 and Y8 on 40 systems and three targets: near the optimum with blocks, stuck without them; all minimal."""
    for share, least_stuck in ((0.5, 1), (0.8, 5), (0.9, 5)):
        excess, stuck = [], 0
        for seed in range(40):
            made = small_system(np.random.default_rng(seed))
            bare = query_availabilities(made, primaries(made)).mean()
            target = bare + share * (1 - bare)
            optimum = AllPlans(made).cheapest(target)
            if np.isinf(optimum):
                continue
            plan = plan_replicas(made, target=target)
            check(made, plan.places)
            assert plan.feasible and plan.availability == query_availabilities(made, plan.places).mean()
            assert plan.cost == pytest.approx(replica_load(made, plan.places)) and plan.cost >= optimum - 1e-9
            for operator, host in np.argwhere(plan.places & ~primaries(made)).tolist():
                less = plan.places.copy()
                less[operator, host] = False
                assert query_availabilities(made, less).mean() < target
            excess.append(plan.cost / optimum - 1)
            stuck += not plan_replicas(made, target=target, blocks=False).feasible
        assert np.mean(np.array(excess) < 1e-9) >= 0.85 and np.mean(excess) <= 0.06 and stuck >= least_stuck


def test_all_plans_by_hand() -> None:
    """Rows 2, 3 and 6 of docs/specs/selective-replication.md, section 7.2, as plans."""
    made = system([0.1, 0.2], [0, 1], [[0, 1]], [0.02, 0.02], [1, 1])
    plans = AllPlans(made)
    assert plans.cheapest(0.9604) == 0 and plans.cheapest(0.98) == pytest.approx(0.1)
    assert plans.cheapest(0.9996) == pytest.approx(0.3) and plans.cheapest(0.9997) == np.inf
    assert plans.best(0.25) == pytest.approx(0.98)


def test_limits() -> None:
    """G1 stays within its limit, rises with it, and is never above the optimum."""
    for seed in range(5):
        made = small_system(np.random.default_rng(seed))
        plans, last = AllPlans(made), 0.0
        for limit in (0.0, 0.2, 0.5, 1.0, 3.0):
            plan = plan_replicas(made, limit=limit)
            assert plan.cost <= limit + 1e-9 and last - 1e-12 <= plan.availability <= plans.best(limit) + 1e-12
            last = plan.availability
        costs = [plan_replicas(made, target=t).cost for t in (0.9, 0.97, 0.99)]
        assert costs == sorted(costs)


def test_aggregates_and_levels() -> None:
    """Two queries on hosts of their own: the worst one rises first, and the weighted mean follows its weights."""
    made = system([0.1, 0.1], [0, 1], [[0], [1]], [0.1, 0.2, 0.01], [1, 1, 1], weights=[9, 1])
    worst = plan_replicas(made, limit=0.1, aggregate="min")
    assert worst.places.sum(axis=1).tolist() == [1, 2] and worst.availability == pytest.approx(0.9)
    assert plan_replicas(made, limit=0.1, aggregate="weighted").places.sum(axis=1).tolist() == [2, 1]
    assert plan_replicas(made, target=0.99, aggregate="min").lowest >= 0.99
    twice = plan_replicas(made, target=0.9998, aggregate="min", most=2)
    assert twice.feasible and twice.places.sum(axis=1).tolist() == [3, 3]
    with pytest.raises(InputError, match="give exactly one of target, limit and levels"):
        plan_replicas(made)
    for name in ("target", "limit"):
        with pytest.raises(InputError, match=name):
            plan_replicas(made, **{name: -1.0})


def test_genetic_search() -> None:
    made = small_system(np.random.default_rng(1))
    plans = AllPlans(made)
    found = genetic_plan(made, np.random.default_rng(0), limit=0.5, generations=40)
    assert plans.best(0.5) * 0.999 <= found.availability <= plans.best(0.5) + 1e-12 and found.cost <= 0.5 + 1e-9
    target = 0.5 + plans.best(0.5) / 2
    seed = plan_replicas(made, target=target).places
    cheap = genetic_plan(made, np.random.default_rng(0), target=target, seeds=[seed], generations=10)
    assert cheap.feasible and plans.cheapest(target) - 1e-9 <= cheap.cost <= replica_load(made, seed) + 1e-9


LINE = system(
    [0.4, 0.4, 0.2],
    [0, 1, 1],
    [[0, 1], [2]],
    [0.1, 0.1, 0.1],
    [1.0, 1.0, 1.0],
    network=Network({(0, 1): 4.0, (1, 2): 2.0}),
)


def with_copies(*copies: tuple[int, int]) -> np.ndarray:
    places = primaries(LINE)
    for copy in copies:
        places[copy] = True
    return places


def test_overload_and_moves() -> None:
    crowded = with_copies((0, 1), (1, 0), (2, 0))
    # Host 0 has 1.0 of 1.0: query 1 loses 0.09 without operator 2's copy (0.45 a core); operator 1's is worth less.
    eased = relieved(LINE, crowded)
    assert (host_loads(LINE, eased) <= 0.9 + 1e-9).all() and eased[2, 0] and not eased[1, 0]
    assert channels(LINE, crowded, 1) == 4 and move_order(LINE, crowded, 1) == [0, 2, 1]
    made, places = split_operator(LINE, crowded, 1, 2)
    assert made.loads.tolist() == [0.4, 0.2, 0.2, 0.2] and places[3].tolist() == places[1].tolist()
    assert [some.tolist() for some in made.queries] == [[0, 1, 3], [2]]
    assert sorted(map(tuple, made.edges.tolist())) == [(0, 1), (0, 3), (1, 2), (3, 2)] and made.traffic.sum() == 6.0
    assert (query_availabilities(made, places) == query_availabilities(LINE, crowded)).all()


def test_lost_and_released_hosts() -> None:
    smaller, places, broken = host_lost(LINE, with_copies((1, 2)), 1)
    assert broken == [2] and smaller.primary.tolist() == [0, 2, 0] and not places[:, 1].any()
    check(smaller, places)
    full = system([1.0, 1.0], [0, 1], [[0], [1]], [0.1, 0.1], [1, 1])
    assert without_host(full, primaries(full), 0) is None
    plan = without_host(LINE, with_copies(), 2)
    assert plan is not None and not plan.places[:, 2].any()
    kept = without_host(LINE, with_copies(), 2, target=0.95)
    assert kept is not None and kept.availability >= 0.95
    assert without_host(LINE, with_copies(), 2, target=0.999) is None


def test_transition() -> None:
    """A copy moves: it starts before the old one stops; where there is no room, a level forbids it."""
    steps, left = transition(LINE, with_copies((2, 0)), with_copies((2, 2)), np.array([0.0, 0.98]))
    assert steps == [Step("start", 2, 2), Step("stop", 2, 0)] and not left
    tight = system([0.5, 0.5], [0, 1], [[0], [1]], [0.1] * 3, [0.5, 0.5, 0.5])
    old, new = primaries(tight), primaries(tight)
    old[0, 2], new[1, 2] = True, True
    steps, left = transition(tight, old, new)
    assert steps == [Step("stop", 0, 2), Step("start", 1, 2)] and not left
    steps, left = transition(tight, old, new, np.array([0.99, 0.9]))
    assert not steps and len(left) == 2


def test_due() -> None:
    loads = np.array([1.0, 0.5])
    assert not due(59, loads, loads * 1.19) and due(60, loads, loads) and due(0, loads, loads * 1.21)
    assert due(0, loads, loads, event=True)


@pytest.mark.parametrize("steps", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_elastic(steps: int) -> None:
    """Y14: systems change, hosts fail; the target is met whenever a plan from nothing meets it, and nothing flaps."""
    rng = np.random.default_rng(2)
    for _ in range(steps):
        made = small_system(rng)
        goal = {"target": 0.99} if rng.random() < 0.7 else {"limit": 0.5}
        first = plan_replicas(made, **goal)
        again = replanned(made, first.places, **goal)
        assert (again.places == first.places).all()
        host = int(rng.integers(made.hosts))
        smaller, places, _ = host_lost(made, first.places, host)
        if places[:, host].any():
            continue
        after = replanned(smaller, places, **goal)
        check(smaller, after.places)
        assert not after.places[:, host].any()
        if "target" in goal:
            assert after.feasible == (after.availability >= goal["target"] - 1e-12)
            free = plan_replicas(smaller, target=goal["target"])
            assert after.feasible or not free.feasible
