"""Dataflows: what is refused, and how much of its input a deployment keeps up with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow, compile_flow, external_rates
from goffish.scheduling.dataflow.model import Dataflow, known_dataflows, read_dataflow

CHAIN: dict[str, Any] = {
    "elements": [{"id": "A", "cost": 1}, {"id": "B", "cost": 1}], "edges": [["A", "B"]], "inputs": {"A": 2},
}  # fmt: skip


def compiled(name: str) -> Flow:
    return compile_flow(read_dataflow(name))


def test_the_dataflows_of_the_papers() -> None:
    """G2, and the factors of section 4: breaks when a figure of a shipped file is wrong."""
    papers = {"sc13-diamond", "linear-road", "text-classifier", "plasticc-10x3", "mixed-100", "visp-oee"}
    assert set(known_dataflows()) == papers
    sizes = {name: compiled(name).size for name in known_dataflows()}
    assert (sizes["plasticc-10x3"], sizes["mixed-100"]) == (30, 100)
    small = compiled("sc13-diamond")
    assert small.value_of(small.worst) == pytest.approx(0.7075) and small.value_of(small.best) == 1
    assert small.sigma == pytest.approx(0.014625)
    into, out = small.ideal(np.array([1, 1, 0, 0]), np.array([10.0, 0, 0, 0]))
    assert into == pytest.approx([10, 20, 20, 30]) and out[3] == pytest.approx(30)
    into, _ = small.ideal(np.array([0, 1, 0, 0]), np.array([10.0, 0, 0, 0]))
    assert into == pytest.approx([10, 20, 20, 30])
    road = compiled("linear-road")
    into, out = road.ideal(road.best, road.rates)
    assert out[road.outputs] == pytest.approx([100.1] * 3) and into @ road.cost[road.rows(road.best)] == pytest.approx(
        185.23
    )
    cheap = road.best.copy()
    cheap[[2, 7]] = 2, 1
    into, out = road.ideal(cheap, road.rates)
    assert out[road.outputs] == pytest.approx([75.05] * 3) and into @ road.cost[road.rows(cheap)] == pytest.approx(
        125.13
    )
    assert road.sigma == pytest.approx(0.003125) and road.value_of(road.worst) == pytest.approx(0.8875)


def test_throughput_of_the_specification() -> None:
    """G3: breaks when the relative throughput is taken from the outputs' own share, which hides a bottleneck."""
    small = compiled("sc13-diamond")
    chosen, power = np.array([1, 1, 0, 0]), np.full(4, 3.25)
    for rate, omega in ((2.0, 0.9676), (5.0, 0.7394)):
        assert small.estimate(chosen, power, np.array([rate, 0, 0, 0])).omega == pytest.approx(omega, abs=5e-5)
    chain = compile_flow(read_dataflow(CHAIN))
    found = chain.estimate(np.zeros(2, np.int64), np.array([1.0, 10.0]))
    assert found.omega == 0.5 and found.local.tolist() == [0.5, 1.0]
    assert chain.estimate(np.zeros(2, np.int64), np.array([0.0, 10.0])).omega == 0


def test_two_forms_of_profit() -> None:
    """I11: they differ by a constant."""
    small = compiled("sc13-diamond")
    cases = [(1.0, 80.0), (0.7075, 60.0), (0.9, 12.0)]
    gaps = {round(small.profit_against_break_even(*case) - small.profit(*case), 12) for case in cases}
    assert len(gaps) == 1 and small.profit_against_break_even(1.0, 80.0) == pytest.approx(0)
    assert small.profit_against_break_even(0.7075, 60.0) == pytest.approx(0)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    n = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    elements = [
        {"id": f"e{i}", "alternates": [
            {"id": f"a{j}", "cost": float(rng.uniform(0.1, 2)), "value": float(rng.uniform(0.2, 1)),
             "selectivity": float(rng.choice([0.5, 1, 2]))} for j in range(rng.integers(1, 4))
        ]} for i in range(n)
    ]  # fmt: skip
    order = rng.permutation(n)
    edges = [(f"e{order[a]}", f"e{order[b]}") for a in range(n) for b in range(a + 1, n) if rng.random() < 0.3]
    fed = {v for _, v in edges}
    inputs = {f"e{i}": float(rng.uniform(0, 9)) for i in range(n) if f"e{i}" not in fed or rng.random() < 0.2}
    return compile_flow(Dataflow.model_validate({"elements": elements, "edges": edges, "inputs": inputs}))


def by_hand(flow: Flow, active: Any, power: Any, external: Any, queue: Any, interval: float) -> tuple[float, list[Any]]:
    """Equations 4 to 7, element by element."""
    out: dict[int, float] = {}
    ideal: dict[int, float] = {}
    done = []
    left = set(range(flow.size))
    while left:
        for i in sorted(left):
            preds = flow.pred[flow.pred_offsets[i] : flow.pred_offsets[i + 1]].tolist()
            if any(p in left for p in preds):
                continue
            row = flow.alternate_offsets[i] + active[i]
            wanted = external[i] + sum(out[p] for p in preds)
            processed = min(queue[i] + wanted * interval, power[i] * interval / flow.cost[row])
            out[i] = processed * flow.selectivity[row] / interval
            ideal[i] = (external[i] + sum(ideal[p] for p in preds)) * flow.selectivity[row]
            done.append((i, wanted, processed / interval))
            left.remove(i)
    terms = [min(1.0, out[i] / ideal[i]) if ideal[i] else 1.0 for i in flow.outputs.tolist()]
    return sum(terms) / len(terms), sorted(done)


@given(flow=flows(), seed=st.integers(0, 999))
def test_estimates_are_the_equations(flow: Flow, seed: int) -> None:
    """Breaks when an order of elements, a queue or a selectivity is wrong."""
    rng = np.random.default_rng(seed)
    active = rng.integers(0, flow.alternate_counts)
    power, queue = rng.uniform(0.1, 20, flow.size), rng.uniform(0, 50, flow.size)
    found = flow.estimate(active, power, queue=queue, interval_s=60.0)
    omega, done = by_hand(flow, active, power, flow.rates, queue, 60.0)
    assert found.omega == pytest.approx(omega)
    assert found.inflow == pytest.approx([rate for _, rate, _ in done])
    assert found.processed == pytest.approx([rate for _, _, rate in done])
    # I2: more power never hurts.
    more = power.copy()
    more[rng.integers(flow.size)] += 1
    assert flow.estimate(active, more, queue=queue, interval_s=60.0).omega >= found.omega - 1e-12
    assert flow.value_of(flow.worst) - 1e-12 <= flow.value_of(active) <= flow.value_of(flow.best) + 1e-12


def test_links_between_machines_carry_what_they_carry() -> None:
    """Breaks when messages inside of a machine wait for the network, or those between machines do not."""
    chain = compile_flow(read_dataflow(CHAIN | {"message_bytes": 1_000_000}))
    catalogue = read_catalogue({"classes": [{"name": "m", "cores": 4, "price_per_hour": 1, "bandwidth_mbit_s": 8}]})
    spread, together = (Deployment(catalogue, np.zeros(2, np.int64)) for _ in range(2))
    for deployment, machines in ((spread, 2), (together, 1)):
        ids = [deployment.plan_machine(0) for _ in range(machines)]
        deployment.put(0, ids[0], 2)
        deployment.put(1, ids[-1], 2)
    found = chain.estimate(spread.active, spread.power, hosts=spread.hosts())
    assert found.inflow.tolist() == [2.0, 1.0] and found.omega == 0.5
    assert chain.estimate(together.active, together.power, hosts=together.hosts()).omega == 1.0
    # Half of B beside A: half of the messages stay, the others find a link of one message a second.
    ids = list(spread.machines)
    spread.take(1, ids[1])
    spread.put(1, ids[0])
    assert chain.estimate(spread.active, spread.power, hosts=spread.hosts()).inflow[1] == 2.0
    slow = spread.hosts({ids[1]: 0.25})
    assert chain.estimate(spread.active, spread.power, hosts=slow).inflow[1] == 1.25


def test_deployments_count_what_is_on_them() -> None:
    catalogue = read_catalogue("ec2-2013-m1")
    one = Deployment(catalogue, np.zeros(3, np.int64))
    large, small = one.plan_machine(catalogue.number("m1.large")), one.plan_machine(0)
    one.put(0, large)
    one.put(2, large)
    one.put(2, small)
    assert (one.free(large), one.free(small), one.price_per_hour) == (0, 0, pytest.approx(0.30))
    other = one.copy()
    with pytest.raises(InputError, match="has 0 free cores"):
        one.put(1, small)
    with pytest.raises(InputError, match="machine -2 runs 1 instances of processing element 2, not 2"):
        one.take(2, small, 2)
    other.machines[large].coefficient = 0.5
    other.settle()
    assert one.power.tolist() == [2, 0, 3] and other.power.tolist() == [1, 0, 2]
    other.drop_machine(large)
    assert list(other.machines) == [small] and other.power.tolist() == pytest.approx([0, 0, 1])
    one.check()
    names = compile_flow(read_dataflow(CHAIN | {"elements": [*CHAIN["elements"], {"id": "C", "cost": 1}],
                                                "edges": [["A", "B"], ["B", "C"]]}))  # fmt: skip
    assert one.described(names)["machines"][0]["instances"] == {"A": 1, "C": 1}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"edges": [["A", "B"], ["B", "A"]]}, "dataflow: edges: cycle A -> B -> A; dataflows must be acyclic"),
        ({"edges": [["A", "C"]]}, "dataflow: edges: unknown processing element 'C'; accepted: A, B"),
        ({"edges": [["A", "B"], ["A", "B"]]}, "edge A -> B is given twice"),
        ({"elements": [*CHAIN["elements"], {"id": "A", "cost": 1}]}, "element A is given twice"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": {"B": 1}}, "no stream reaches 'A'"),
        ({"inputs": {"A": -1}}, r"inputs\.A = -1"),
        ({"outputs": ["Z"]}, "dataflow: outputs: unknown processing element 'Z'; accepted: A, B"),
        ({"elements": [{"id": "A"}], "edges": []}, "give alternates, or a cost"),
        ({"elements": [{"id": "A", "alternates": [{"id": "x", "cost": 1, "selectivity": 0}]}]}, "selectivity = 0"),
        (
            {"elements": [{"id": "A", "alternates": [{"id": "x", "cost": 1, "speed": 0}]}]},
            "speed: unknown field; choose",
        ),
        ({"goal": {"throughput": 1.2}}, r"goal\.throughput = 1.2"),
        ({"goal": {"cost_at_best_value": 1}}, "give both cost_at_best_value and cost_at_worst_value"),
        ({"goal": {"cost_at_best_value": 1, "cost_at_worst_value": 2}}, "must be more than"),
    ],
)
def test_what_is_no_dataflow(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_dataflow(CHAIN | change)


def test_rates_by_name() -> None:
    road = compiled("linear-road")
    assert external_rates(road, {"weather": 3.0})[:2].tolist() == [3.0, 50.0]
    with pytest.raises(InputError, match="rates: unknown processing element 'rain'; accepted: weather, reports,"):
        external_rates(road, {"rain": 1.0})
    with pytest.raises(InputError, match="dataflow 'nothing' not found; give a file, or one of linear-road"):
        read_dataflow("nothing")
