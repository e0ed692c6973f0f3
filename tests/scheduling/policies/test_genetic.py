"""The genetic algorithm against the exact optimum, and its invariants."""

from __future__ import annotations

import numpy as np
import pytest

from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies import genetic_kernels as kernels
from goffish.scheduling.policies.evolution import Question, Search
from goffish.scheduling.policies.genetic import Genetic, genetic_adaptation, genetic_deployment
from goffish.scheduling.policies.initial import initial_deployment
from goffish.scheduling.policies.reactive import Reactive
from tests.scheduling.policies.cases import M1, L, S, ideal_by_hand, machines, observation, started

#: Rate: the greatest profit (G6 of docs/specs/provisioning.md, section 7, proved by exhaustive search in experiments/).
OPTIMUM = {1: 0.956125, 3: 0.894700, 5: 0.850825}
SHORT = Search(generations=30, population=60)


def _at(rate: float) -> Flow:
    return S.with_rates(np.array([rate, 0.0, 0.0, 0.0]))


def _profit(flow: Flow, plan: object) -> float:
    hours = flow.goal.period_h
    return flow.profit(flow.value_of(plan.active), plan.price_per_hour * hours)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "seeded"), [(1, True), (3, False), (5, True)])
def test_close_to_the_optimum(rate: int, seeded: bool) -> None:
    """E1, G6: the best of three seeds within 2 % of the optimum, and never above it."""
    flow, optimum = _at(rate), OPTIMUM[rate]
    found = []
    for seed in range(3):
        plan, history = genetic_deployment(flow, M1, np.random.default_rng(seed), Search(seeded=seeded))
        plan.check()
        assert ideal_by_hand(flow, plan.active, plan.power, flow.rates)[0] >= 0.7 - 1e-9
        assert (np.diff(history[history.count(-np.inf) :]) >= 0).all()
        assert history[-1] == pytest.approx(_profit(flow, plan))
        found.append(_profit(flow, plan))
    assert 0.98 * optimum <= max(found) <= optimum + 5e-7


def test_seeded_is_no_worse_than_the_heuristics() -> None:
    """E1: with CE and SH in the first population the answer cannot be below either."""
    flow = L.with_rates(L.rates / 5)
    plan, _ = genetic_deployment(flow, M1, np.random.default_rng(1), SHORT)
    best = max(_profit(flow, initial_deployment(flow, M1, v)) for v in ("central", "sharded"))  # type: ignore[arg-type]
    assert _profit(flow, plan) >= best - 1e-9


def test_nothing_found_is_the_heuristics_answer() -> None:
    """I12: two random generations on eight elements reach no goal; a deployment has to come out all the same."""
    short = Search(generations=1, population=4, seeded=False)
    plan, history = genetic_deployment(L, M1, np.random.default_rng(1), short)
    assert history == [-np.inf]
    assert plan.counts.tolist() == initial_deployment(L, M1).counts.tolist()


def test_same_seed_same_answer() -> None:
    """I13: a run could not be repeated otherwise."""
    policy = Genetic(seed=7, search=SHORT)
    one, two = policy.deploy(S, M1), policy.deploy(S, M1)
    assert one.described(S) == two.described(S)
    other = Genetic(seed=8, search=SHORT).deploy(S, M1)
    assert other.counts.sum() >= 4


def test_adaptation_is_no_worse_than_ce_and_keeps_machines() -> None:
    """E6: seeded with CE's answer, the rest of the period earns at least as much; machines keep class and speed."""
    live = started(initial_deployment(L, M1, "sharded"))
    live.machines[0].coefficient = 0.7
    live.settle()
    seen = observation(L, live, L.rates * 1.2, 0.6)
    central, _ = Reactive(alternate_every=0, resource_every=1).adapt(seen, None)
    plan, _ = genetic_adaptation(seen, np.random.default_rng(3), Search(generations=40, change_weight=0.0))
    plan.check()
    hours = (seen.steps - seen.step) * seen.interval_s / 3600

    def worth(found: object) -> float:
        busy = sum(M1.prices[m.kind] for m in found.machines.values() if m.used)  # type: ignore[attr-defined]
        return L.value_of(found.active) - L.sigma * busy * hours  # type: ignore[attr-defined]

    assert worth(plan) >= worth(central) - 1e-9
    assert ideal_by_hand(L, plan.active, plan.power, seen.observed)[0] >= 0.8 - 1e-9
    for number, machine in plan.machines.items():
        if number >= 0:
            old = live.machines[number]
            assert (machine.kind, machine.coefficient, machine.elapsed_s) == (old.kind, old.coefficient, old.elapsed_s)


def test_changes_cost_something() -> None:
    """With a penalty for changes and a deployment that is right already, as good as nothing may be touched."""
    flow = _at(3)
    optimum = [("m1.large", {0: 1, 1: 1}, 1.0, 600.0), ("m1.xlarge", {2: 1, 3: 3}, 1.0, 600.0)]
    live = machines(M1, [1, 1, 0, 1], optimum)  # type: ignore[arg-type]
    seen = observation(flow, live, flow.rates, 0.9)
    plan, _ = genetic_adaptation(seen, np.random.default_rng(3), Search(generations=30))
    assert plan.active.tolist() == live.active.tolist()
    assert plan.price_per_hour == pytest.approx(live.price_per_hour)


def test_policy_waits_inside_the_band_and_releases_idle_machines() -> None:
    """Searching in every interval would cost seconds for nothing; idle machines end with their paid hour."""
    live = machines(
        M1, [1, 1, 0, 1], [("m1.xlarge", {0: 1, 1: 1, 2: 1, 3: 1}, 1.0, 60.0), ("m1.small", {}, 1.0, 3500.0)]
    )
    plan, _ = Genetic().adapt(observation(_at(1), live, _at(1).rates, 0.7), None)
    assert list(plan.machines) == [0] and plan.machines[0].instances == live.machines[0].instances
    plan, _ = Genetic(search=SHORT).adapt(observation(_at(9), live, _at(9).rates, 0.3), None)
    assert plan.counts.sum() > 4


def test_fitness_of_random_rows_by_hand() -> None:
    """Profit, missing throughput and changes of every row; a wrong one leads the whole search astray."""
    rng, slots, width = np.random.default_rng(5), 4, 4
    rows = np.empty((60, 4 + slots * (1 + width)), np.int64)
    kind, coefficient = np.array([3, -1, -1, -1]), np.array([0.7, 1.0, 1.0, 1.0])
    draws = rng.random((60, 4 + slots * (3 + width)))
    kernels.sample(rows, S.alternate_counts, M1.cores, kind, width, draws)
    running, flow = rows[0], _at(3)
    question = Question(
        flow, flow.rates, M1.columns, kind, coefficient, running, 0.1, 0.05, 0.002
    )  # fmt: skip
    profit, violation, changes = question.evaluate(rows)

    def on(row: np.ndarray, slot: int) -> list[int]:
        return [e for e in row[8 + 4 * slot : 12 + 4 * slot].tolist() if e >= 0]

    for row, p, v, c in zip(rows, profit, violation, changes, strict=True):
        power, price, changed = np.zeros(4), 0.0, int((row[:4] != running[:4]).sum())
        for slot, k in enumerate(row[4:8].tolist()):
            assert k < 0 or len(on(row, slot)) <= M1.cores[k]
            assert k >= 0 or not on(row, slot)
            assert slot > 0 or k in (-1, 3)
            changed += (k >= 0) != (running[4 + slot] >= 0)
            changed += sum(abs(on(row, slot).count(e) - on(running, slot).count(e)) for e in range(4))
            if k >= 0:
                price += M1.prices[k]
                for e in on(row, slot):
                    power[e] += M1.speeds[k] * coefficient[slot]
        omega = ideal_by_hand(flow, row[:4], power, flow.rates)[0] if (power > 0).all() else 0.0
        assert (p, v, c) == pytest.approx((flow.value_of(row[:4]) - 0.05 - 0.1 * price, max(0.0, 0.7 - omega), changed))
