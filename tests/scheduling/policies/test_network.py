"""Links between machines that are too slow, and neighbours brought together on one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.initial import initial_deployment
from goffish.scheduling.policies.network import collocate, links_matter, network_throughput
from goffish.scheduling.policies.reactive import Reactive
from goffish.scheduling.policies.scaling import scale_out
from tests.scheduling.policies.cases import M1, L, flows, ideal_by_hand, machines, observation, started

RATE = 10.0


def chain(cost: float = 0.01, goal: float = 0.8) -> Flow:
    """Two elements; at `RATE` their edge has 10 messages of 1 Mbit a second."""
    return compile_flow(
        read_dataflow(
            {
                "elements": [{"id": "a", "cost": cost}, {"id": "b", "cost": cost}],
                "edges": [["a", "b"]],
                "inputs": {"a": RATE},
                "message_bytes": 125_000,
                "goal": {"throughput": goal},
            }
        )
    )


def classes(mbit_s: float, **cores: int) -> Catalogue:
    """Classes of equal links and of 0.1 for a core."""
    rows = [
        {"name": name, "cores": count, "price_per_hour": count / 10, "bandwidth_mbit_s": mbit_s}
        for name, count in cores.items()
    ]
    return read_catalogue({"classes": rows})


def live_on(cloud: Catalogue, *rows: tuple[str, dict[int, int]]) -> Deployment:
    return machines(cloud, [0, 0], [(kind, placed, 1.0, 60.0) for kind, placed in rows])


def placed(plan: Deployment) -> list[dict[int, int]]:
    return [dict(machine.instances) for machine in plan.machines.values()]


def netcap(plan: Deployment, flow: Flow, external: np.ndarray, coefficients: dict[int, float]) -> float:
    """§3.1 in plain Python, on dictionaries."""
    rows = flow.rows(plan.active)
    out, ideal = np.zeros(flow.size), np.zeros(flow.size)
    shares: list[dict[int, float]] = [
        {n: m.instances[i] * plan.speed(n) / plan.power[i] for n, m in plan.machines.items() if i in m.instances}
        for i in range(flow.size)
    ]
    rated = {
        n: plan.catalogue.classes[m.kind].bandwidth_mbit_s * coefficients.get(n, 1.0)  # type: ignore[operator]
        for n, m in plan.machines.items()
    }
    for j in flow.order.tolist():
        into, wanted = external[j], external[j]
        for i in flow.pred[flow.pred_offsets[j] : flow.pred_offsets[j + 1]].tolist():
            inside = sum(share * shares[j].get(n, 0.0) for n, share in shares[i].items())
            links = sum(min(rated[a], rated[b]) for a in shares[i] for b in shares[j] if a != b)
            into += out[i] * inside + min(out[i] * (1 - inside), links * 1e6 / flow.message_bits)
            wanted += ideal[i]
        out[j] = min(into, plan.power[j] / flow.cost[rows[j]]) * flow.selectivity[rows[j]]
        ideal[j] = wanted * flow.selectivity[rows[j]]
    return float(np.mean([min(1.0, out[o] / ideal[o]) if ideal[o] > 0 else 1.0 for o in flow.outputs]))


def test_a_slow_link_in_closed_form() -> None:
    """All over one link of 3 Mbit/s: 3 of 10 messages; with 1 of 3 receivers beside the sender 1/3 + 3/10."""
    flow, cloud = chain(), classes(3.0, quad=4)
    apart = live_on(cloud, ("quad", {0: 1}), ("quad", {1: 1}))
    assert network_throughput(apart, flow, flow.rates) == pytest.approx(0.3)
    assert network_throughput(apart, flow, flow.rates, {1: 0.5}) == pytest.approx(0.15)
    partly = live_on(cloud, ("quad", {0: 1, 1: 1}), ("quad", {1: 2}))
    assert network_throughput(partly, flow, flow.rates) == pytest.approx(1 / 3 + 0.3)
    assert links_matter(apart, 10e6) and not links_matter(apart, 3e6)
    assert links_matter(apart, 3e6, {0: 0.9})


@pytest.mark.parametrize("variant", ["central", "sharded"])
def test_an_adaptation_brings_neighbours_together(variant: Any) -> None:
    """§6.10: cores suffice and the link does not. Receivers beside the sender: 1/2 + 0.2, then 2/3 + 0.2."""
    flow, cloud = chain(), classes(2.0, quad=4)
    live = live_on(cloud, ("quad", {0: 1}), ("quad", {1: 1}))
    assert flow.estimate(live.active, live.power).omega == pytest.approx(1.0)
    plan, told = Reactive(variant).adapt(observation(flow, live, flow.rates, 0.2), None)
    assert placed(plan) == [{0: 1, 1: 2}, {1: 1}]
    assert told == ("resources", pytest.approx(2 / 3 + 0.2), True)


def test_links_slower_than_rated_are_seen() -> None:
    """A link of 10 Mbit/s that delivers a fifth: without the observation nothing would be done about the goal."""
    flow, cloud = chain(), classes(10.0, quad=4)
    live = live_on(cloud, ("quad", {0: 1}), ("quad", {1: 1}))
    seen = observation(flow, live, flow.rates, 0.2)
    plan, told = Reactive().adapt(seen, None)
    assert placed(plan) == placed(live) and told.reached
    plan, told = Reactive().adapt(replace(seen, bandwidths={0: 0.2}), None)
    assert placed(plan) == [{0: 1, 1: 2}, {1: 1}]
    assert told == ("resources", pytest.approx(2 / 3 + 0.2), True)


def test_the_receivers_machine_takes_senders_where_the_senders_is_full() -> None:
    """No core is free beside the sender: senders beside the receiver avoid the link just as well."""
    flow, cloud = chain(), classes(2.0, one=1, quad=4)
    plan, omega = collocate(live_on(cloud, ("one", {0: 1}), ("quad", {1: 1})), flow, flow.rates)
    assert placed(plan) == [{0: 1}, {0: 2, 1: 1}]
    assert omega == pytest.approx(2 / 3 + 0.2)


def test_a_machine_is_asked_for_although_cores_are_free() -> None:
    """§6.10: free cores that are alone gain nothing; a machine with room for both does: (1/2)(1/2), (1/2)(2/3)."""
    flow, cloud = chain(goal=0.3), classes(1e-6, one=1, quad=4)
    live = live_on(cloud, ("one", {0: 1}), ("one", {1: 1}), *[("one", {})] * 4)
    plan, omega = collocate(live, flow, flow.rates)
    assert placed(plan) == [{0: 1}, {1: 1}, {}, {}, {}, {}, {0: 1, 1: 2}]
    assert omega == pytest.approx(1 / 3, abs=1e-5)


@pytest.mark.parametrize("idle", [0, 2, 4])
def test_an_adaptation_gives_up(idle: int) -> None:
    """§6.10: machines of one core cannot run two neighbours: nothing is bought that does not help, and it is told."""
    flow, cloud = chain(), classes(1e-6, one=1)
    live = live_on(cloud, ("one", {0: 1}), ("one", {1: 1}), *[("one", {})] * idle)
    plan, told = Reactive().adapt(observation(flow, live, flow.rates, 0.0), None)
    assert placed(plan) == placed(live)
    assert told == ("resources", pytest.approx(0.0, abs=1e-5), False)


def test_what_gained_something_is_kept_when_it_gives_up() -> None:
    """Of a machine with room for both 3/8 is the most that gets there: what is tried after it has to be undone."""
    flow, cloud = chain(), classes(1e-6, one=1, quad=4)
    plan, omega = collocate(live_on(cloud, ("one", {0: 1}), ("one", {1: 1}), ("one", {})), flow, flow.rates)
    assert placed(plan) == [{0: 1}, {1: 1}, {}, {0: 1, 1: 3}]
    assert omega == pytest.approx(3 / 8, abs=1e-5)


def test_a_limit_of_machines_is_kept() -> None:
    """A plan with more machines than the catalogue allows would be refused."""
    flow = chain()
    cloud = classes(1e-6, one=1, quad=4).model_copy(update={"limit": 2})
    live = live_on(cloud, ("one", {0: 1}), ("one", {1: 1}))
    plan, omega = scale_out(live, flow, flow.rates)
    assert placed(plan) == placed(live) and omega < 0.8


def test_links_in_a_row_are_all_widened() -> None:
    """Nine edges of 0.4 in a row: the throughput rises only when the last is wider; three tries would be too few."""
    names = [f"e{at}" for at in range(10)]
    flow = compile_flow(
        read_dataflow(
            {
                "elements": [{"id": name, "cost": 0.01} for name in names],
                "edges": [[a, b] for a, b in pairwise(names)],
                "inputs": {"e0": RATE},
                "message_bytes": 125_000,
                "goal": {"throughput": 0.6},
            }
        )
    )
    cloud = classes(4.0, quad=4)
    live = machines(cloud, [0] * 10, [("quad", {at: 1}, 1.0, 60.0) for at in range(10)])
    assert network_throughput(live, flow, flow.rates) == pytest.approx(0.4)
    plan, omega = collocate(live, flow, flow.rates)
    assert omega >= 0.6 and netcap(plan, flow, flow.rates, {}) == pytest.approx(omega)
    assert len(plan.machines) == 10 and plan.counts.sum() <= 2 * 10


def test_smaller_machines_are_not_chosen_where_links_are_too_slow() -> None:
    """Collocation may be given up for cost only where the goal stays reached: two small machines are cheaper."""
    flow = chain(cost=0.09)
    rows = [
        {"name": name, "cores": cores, "price_per_hour": price, "bandwidth_mbit_s": 1.0}
        for name, cores, price in (("small", 1, 0.1), ("large", 4, 0.5))
    ]
    slow = read_catalogue({"classes": rows})
    fast = read_catalogue({"classes": [row | {"bandwidth_mbit_s": 100.0} for row in rows]})
    assert placed(initial_deployment(flow, fast)) == [{0: 1}, {1: 1}]
    plan = initial_deployment(flow, slow)
    assert placed(plan) == [{0: 1, 1: 1}]
    assert network_throughput(plan, flow, flow.rates) == pytest.approx(1.0)


def test_the_first_deployment_adds_machines_for_their_links() -> None:
    """Three cores for each need two machines: 5/9 + 0.2 get there. A receiver on a third makes it 6/15 + 0.4."""
    flow, cloud = chain(cost=0.3, goal=0.78), classes(1.0, quad=4)
    plan = initial_deployment(flow, cloud, "sharded")
    assert placed(plan) == [{0: 2, 1: 2}, {0: 1, 1: 2}, {1: 1}]
    assert network_throughput(plan, flow, flow.rates) == pytest.approx(0.8)


@given(flows(12), st.floats(-3, 1), st.integers(0, 100), st.sampled_from(["central", "sharded"]), st.booleans())
def test_invariants(flow: Flow, width: float, seed: int, variant: Any, limited: bool) -> None:
    """Whatever the links: cores are not shared, nothing is taken away, what is told is true, nothing gets worse."""
    _, sent = flow.ideal(flow.best, flow.rates)
    # The widest link carries all down to a thousandth of the greatest stream.
    bits = 100e6 / max(float(sent.max()), 1.0) / 10**width
    slow, rng = replace(flow, message_bits=bits), np.random.default_rng(seed)
    plan = initial_deployment(slow, M1, variant)
    plan.check()
    live = started(plan)
    if limited:
        live.catalogue = M1.model_copy(update={"limit": len(live.machines) + 2})
    bandwidths = {number: float(rng.uniform(0.3, 1.0)) for number in live.machines}
    before = netcap(live, slow, slow.rates, bandwidths)
    after, omega = scale_out(live, slow, slow.rates, variant, bandwidths)
    after.check()
    assert omega == pytest.approx(netcap(after, slow, slow.rates, bandwidths), abs=1e-9)
    assert omega >= before - 1e-9
    for number, machine in live.machines.items():
        assert all(after.machines[number].instances[e] >= count for e, count in machine.instances.items())
    assert len(after.machines) <= len(live.machines) + 2 or not limited
    if omega <= before + 1e-9:
        assert placed(after) == placed(live)


@pytest.fixture
def no_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise AssertionError("looked where the elements are")

    monkeypatch.setattr(Deployment, "hosts", refuse)
    yield


@pytest.mark.usefixtures("no_look")
def test_wide_links_cost_nothing() -> None:
    """Planning would take several times as long if it looked at every place although links cannot matter."""
    plan = Reactive().deploy(L, M1)
    live = started(plan)
    for factor, omega in ((1.5, 0.5), (0.5, 1.0)):
        found, told = Reactive().adapt(observation(L, live, L.rates * factor, omega), None)
        by_hand = ideal_by_hand(L, found.active, found.power, L.rates * factor)[0]
        assert told.omega == pytest.approx(by_hand) and told.reached
