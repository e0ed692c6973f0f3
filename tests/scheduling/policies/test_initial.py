"""The first deployment: golden costs of the papers' graphs, order of elements, invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.alternates import Variant
from goffish.scheduling.policies.initial import initial_deployment
from tests.scheduling.policies.cases import M1, SIX, L, S, flows, ideal_by_hand

DIAMOND = {1: (3.0, 4.8), 2: (4.2, 4.8), 3: (4.2, 4.8), 4: (6.6, 9.6), 5: (7.8, 9.6)}
PROFIT = {1: (0.8311, 0.7623), 2: (0.8136, 0.7623), 3: (0.8136, 0.7623), 4: (0.7785, 0.6921), 5: (0.7609, 0.6921)}


def _at(rate: float) -> Flow:
    return S.with_rates(np.array([rate, 0.0, 0.0, 0.0]))


@pytest.mark.parametrize("rate", DIAMOND)
def test_golden_costs_and_profits(rate: int) -> None:
    """G6: costs of ten hours and profits of CE and SH; they pin down order, ties and repacking."""
    flow = _at(rate)
    for at, variant in enumerate(("central", "sharded")):
        plan = initial_deployment(flow, M1, variant)
        cost = plan.price_per_hour * 10
        assert cost == pytest.approx(DIAMOND[rate][at])
        assert flow.profit(flow.value_of(plan.active), cost) == pytest.approx(PROFIT[rate][at], abs=5e-5)


@pytest.mark.parametrize(("rate", "central"), [(2, 5.0), (5, 5.0), (10, 10.0)])
def test_golden_costs_with_six_classes(rate: float, central: float) -> None:
    """G4: CE moves to one m3.xlarge at low rates, SH stays with the largest class."""
    assert initial_deployment(_at(rate), SIX, "sharded").price_per_hour * 10 == pytest.approx(10.0)
    assert initial_deployment(_at(rate), SIX, "central").price_per_hour * 10 == pytest.approx(central)


def test_golden_throughput_at_rated_cores() -> None:
    """G3: one core of speed 3.25 for each element, as SH and CE choose it at 2 and 5 messages a second."""
    for rate, omega in ((2, 0.9676), (5, 0.7394)):
        plan = initial_deployment(_at(rate), SIX, "central")
        assert plan.counts.tolist() == [1, 1, 1, 1]
        found = _at(rate).estimate(plan.active, plan.power).omega
        assert found == pytest.approx(omega, abs=5e-5)


def test_order_is_depth_first() -> None:
    """Neighbours would not meet on a machine if the order were another one."""
    assert S.forward.tolist() == [0, 1, 3, 2]
    assert L.forward.tolist() == [0, 2, 4, 5, 6, 7, 1, 3]
    plan = initial_deployment(L.with_rates(L.rates / 50), M1, "sharded")
    assert next(iter(plan.machines.values())).instances == {0: 1, 2: 1, 4: 1, 5: 1}


@given(flows(30), st.sampled_from(["central", "sharded"]), st.sampled_from([M1, SIX]))
@settings(deadline=None)
def test_invariants(flow: Flow, variant: Variant, catalogue: Catalogue) -> None:
    """I4, I5: cores are not shared, nobody is left without one, the goal is reached, repacking never costs more."""
    plan = initial_deployment(flow, catalogue, variant)
    plan.check()
    assert (plan.counts >= 1).all() and all(number < 0 for number in plan.machines)
    assert ideal_by_hand(flow, plan.active, plan.power, flow.rates)[0] >= flow.goal.throughput - 1e-9
    if variant == "central":
        cores = [catalogue.cores[m.kind] - m.used for m in plan.machines.values()]
        assert all(free < catalogue.cores.max() for free in cores)
        assert plan.price_per_hour <= _unpacked_price(flow, catalogue, plan.active) + 1e-9


def _unpacked_price(flow: Flow, catalogue: Catalogue, active: np.ndarray) -> float:
    """Stage 2 of §3.3 in plain Python, with cores of the largest class only."""
    kind = catalogue.largest
    power = np.full(flow.size, catalogue.speeds[kind])
    cost = flow.cost[flow.rows(active)]
    cores = flow.size
    while True:
        omega, done = ideal_by_hand(flow, active, power, flow.rates)
        if omega >= flow.goal.throughput - 1e-9:
            return float(-(-cores // catalogue.cores[kind]) * catalogue.prices[kind])
        full = flow.estimate(active, np.where(np.arange(flow.size) >= 0, power, 0)).local
        assert (done <= power / cost + 1e-9).all()
        power[int(np.argmin(np.round(full, 9)))] += catalogue.speeds[kind]
        cores += 1


def test_too_few_machines_are_refused() -> None:
    """A plan that the provider would not start must not be returned."""
    with pytest.raises(InputError, match=r"limit: the . machines of type m1\.xlarge that the catalogue allows reach a"):
        initial_deployment(_at(10), M1.model_copy(update={"limit": 2}))
    with pytest.raises(InputError, match=r"limit: the . machines of type m1\.xlarge that the catalogue allows reach a"):
        initial_deployment(L, M1.model_copy(update={"limit": 1}))


def test_streams_that_multiply_are_refused() -> None:
    """Thirty elements that double their messages: planning would give cores one by one for years."""
    flow = compile_flow(
        read_dataflow(
            {
                "elements": [{"id": f"e{at}", "cost": 1.0, "selectivity": 2.0} for at in range(30)],
                "edges": [[f"e{at}", f"e{at + 1}"] for at in range(29)],
                "inputs": {"e0": 1.0},
            }
        )
    )
    # 2^30 - 1 core-seconds a second, at a goal of 0.8 on machines of power 8.
    with pytest.raises(
        InputError, match=r"about 1.1e\+08 machines of type m1.xlarge.* processing element e29 receives 5.4e\+08"
    ):
        initial_deployment(flow, M1)


def test_elements_that_are_not_fed_have_a_core() -> None:
    """§6.11: without input every ideal output is 0, and still every element needs an instance."""
    plan = initial_deployment(S.with_rates(np.zeros(4)), M1)
    assert plan.counts.tolist() == [1, 1, 1, 1] and plan.price_per_hour == pytest.approx(0.24)
