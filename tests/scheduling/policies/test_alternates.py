"""Alternates: what they cost, and when they are changed at run time."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.scheduling.dataflow.flow import SLACK, Flow
from goffish.scheduling.policies.alternates import Variant, alternate_costs, redeploy_alternates
from goffish.scheduling.policies.initial import initial_deployment
from tests.scheduling.policies.cases import M1, L, S, flows, ideal_by_hand, machines, started


def _costs_by_hand(flow: Flow, central: bool) -> tuple[list[float], list[int]]:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(flow.size))
    for u in range(flow.size):
        graph.add_edges_from((u, int(v)) for v in flow.succ[flow.succ_offsets[u] : flow.succ_offsets[u + 1]])
    costs, active, own = [0.0] * flow.cost.size, [0] * flow.size, [0.0] * flow.size
    for i in reversed(list(nx.topological_sort(graph))):
        rows = range(int(flow.alternate_offsets[i]), int(flow.alternate_offsets[i + 1]))
        for a in rows:
            behind = sum(own[v] for v in graph.successors(i)) if central else 0.0
            costs[a] = flow.cost[a] + flow.selectivity[a] * behind
        best = max(flow.value[a] / costs[a] for a in rows)
        active[i] = next(k for k, a in enumerate(rows) if flow.value[a] / costs[a] >= best - SLACK)
        own[i] = costs[rows[0] + active[i]]
    return costs, active


def test_golden_choices_of_graph_s() -> None:
    """G1: another choice or cost here means that the heuristics are not the papers'."""
    costs, active = alternate_costs(S, "sharded")
    assert active.tolist() == [0, 1, 0, 0] and S.value_of(active) == pytest.approx(0.8325)
    assert costs[S.rows(active)] == pytest.approx([0.22, 0.35, 0.90, 0.10])
    costs, active = alternate_costs(S, "central")
    assert active.tolist() == [1, 1, 0, 0] and S.value_of(active) == pytest.approx(0.875)
    assert costs[S.rows(active)] == pytest.approx([3.32, 0.45, 0.95, 0.10])


def test_golden_choices_of_graph_l() -> None:
    """G1: the same for the Linear Road Benchmark."""
    _, active = alternate_costs(L, "sharded")
    assert active.tolist() == [0, 0, 1, 0, 0, 0, 0, 0] and L.value_of(active) == pytest.approx(0.975)
    costs, active = alternate_costs(L, "central")
    assert not active.any()
    assert costs[L.rows(active)] == pytest.approx([2.3, 3.7, 2.2, 1.4, 0.5, 0.1, 0.1, 0.5])


@given(flows(20), st.sampled_from(["central", "sharded"]))
@settings(deadline=None)
def test_costs_are_those_of_a_plain_recursion(flow: Flow, variant: Variant) -> None:
    """A wrong order of visits or a forgotten edge would choose other alternates than §3.2."""
    costs, active = alternate_costs(flow, variant)
    by_hand, chosen = _costs_by_hand(flow, variant == "central")
    assert costs == pytest.approx(by_hand)
    assert active.tolist() == chosen


@given(flows(12))
@settings(deadline=None)
def test_variants_agree_at_outputs(flow: Flow) -> None:
    """I6: behind an output nothing costs anything, so both variants must choose alike there."""
    central, sharded = alternate_costs(flow, "central")[1], alternate_costs(flow, "sharded")[1]
    assert np.array_equal(central[flow.outputs], sharded[flow.outputs])


@given(flows(12), st.sampled_from(["central", "sharded"]), st.floats(0.4, 2.5), st.floats(0, 1))
@settings(deadline=None)
def test_redeployment_keeps_machines_and_the_goal(flow: Flow, variant: Variant, factor: float, omega: float) -> None:
    """I7, I8: machines are untouched, nothing changes in the band, better alternates never cost the goal."""
    live = started(initial_deployment(flow, M1, variant))
    external = flow.rates * factor
    plan, expected = redeploy_alternates(live, flow, external, omega, variant)
    plan.check()
    assert {n: m.instances for n, m in plan.machines.items()} == {n: m.instances for n, m in live.machines.items()}
    assert expected == pytest.approx(ideal_by_hand(flow, plan.active, plan.power, external)[0])
    before = ideal_by_hand(flow, live.active, live.power, external)[0]
    goal = flow.goal
    if abs(omega - goal.throughput) <= goal.tolerance:
        assert np.array_equal(plan.active, live.active)
    elif omega > goal.throughput:
        assert (flow.value[flow.rows(plan.active)] >= flow.value[flow.rows(live.active)]).all()
        assert expected >= min(before, goal.throughput) - 1e-6
    elif variant == "sharded":
        assert (flow.cost[flow.rows(plan.active)] <= flow.cost[flow.rows(live.active)]).all()


def test_surplus_buys_the_better_alternate() -> None:
    """Fixed cores, less input than expected: the better travel-time model must come back, as the cores can do it."""
    live = machines(M1, [0, 0, 1, 0, 0, 0, 0, 1], [("m1.medium", {e: 1}, 1.0, 60.0) for e in range(8)])
    rates = L.rates * (1.0 / 50)
    for variant in ("central", "sharded"):
        plan, omega = redeploy_alternates(live, L, rates, 1.0, variant)
        assert plan.active.tolist() == [0] * 8 and omega == pytest.approx(1.0)


def test_fit_decides_what_the_cores_can_do() -> None:
    """§6.5: a need of 1.2 on a core of 1.0 fits at the goal's 0.8 but not in full."""
    rates = L.rates * 0.0
    rates[1], rates[0] = 1.0, 0.0
    rows = [("m1.medium", {e: 1}, 1.0, 60.0) for e in (0, 1, 3, 4, 5, 6, 7)] + [("m1.small", {2: 1}, 1.0, 60.0)]
    live = machines(M1, [0, 0, 1, 0, 0, 0, 0, 0], rows)
    assert redeploy_alternates(live, L, rates, 1.0, "sharded")[0].active[2] == 0
    assert redeploy_alternates(live, L, rates, 1.0, "sharded", fit=1.0)[0].active[2] == 1


def test_too_little_takes_the_cheaper_alternate_and_stops() -> None:
    """Half of the cores for congestion: the fast alternate is enough, so travel time has to keep its model."""
    rows = [("m1.medium", {e: 1}, 1.0, 60.0) for e in (0, 1, 3, 4, 5, 6, 7)] + [("m1.small", {2: 1}, 1.0, 60.0)]
    live = machines(M1, [0] * 8, rows)
    rates = L.rates * 0.0
    rates[1] = 1.3
    assert L.estimate(live.active, live.power, rates).omega < 0.85
    plan, omega = redeploy_alternates(live, L, rates * 1.2, 0.6, "sharded")
    assert plan.active.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert omega >= 0.8
