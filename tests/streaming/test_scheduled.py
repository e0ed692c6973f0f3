"""Policies that drive running flows: what is planned runs as worker processes, and does what the model says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.control.loop import Setting
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.reactive import Reactive
from goffish.scheduling.simulate.fluid import run_fluid
from goffish.streaming.modeled import elements_of
from goffish.streaming.runtime.stages import divided
from goffish.streaming.synthetic import Arrivals, Work, model_flow, run_live

CATALOGUE = read_catalogue("ec2-2013")


class Fixed:
    """A policy that changes its first deployment by given functions, one for each interval."""

    def __init__(self, first: dict[str, dict[int, int]], *changes: Callable[[Deployment], None]) -> None:
        self._first, self._changes = first, changes

    def deploy(self, flow: Flow, catalogue: Any) -> Deployment:
        deployment = Deployment(catalogue, np.zeros(flow.size, np.int64))
        for number, (kind, instances) in enumerate(self._first.items(), 1):
            deployment.add_machine(Machine(-number, catalogue.number(kind.split("#")[0])))
            for element, count in instances.items():
                deployment.put(element, -number, count)
        return deployment

    def adapt(self, observation: Any, memory: Any) -> tuple[Deployment, Any]:
        deployment = observation.live.copy()
        if observation.step <= len(self._changes):
            self._changes[observation.step - 1](deployment)
        return deployment, memory


def setting(policy: Any, rates: list[float], dataflow: Any, interval_s: float = 4.0, **more: Any) -> Setting:
    flow = compile_flow(read_dataflow(dataflow))
    table = np.zeros((len(rates), flow.size))
    table[:, flow.inputs] = np.array(rates)[:, None]
    return Setting(flow=flow, catalogue=CATALOGUE, policy=policy, rates=table, interval_s=interval_s, **more)


def column(result: Result, name: str, element: str) -> list[Any]:
    return [row[name] for row in result.elements.to_pylist() if row["processing_element"] == element]


PAIR = {
    "elements": [{"id": "A", "alternates": [{"id": "best", "cost": 0.2}, {"id": "fast", "cost": 0.1, "value": 0.5}]},
                 {"id": "B", "cost": 0.3, "selectivity": 0.5}],
    "edges": [["A", "B"]], "inputs": {"A": 5},
}  # fmt: skip


@pytest.mark.slow
def test_elements_do_what_the_estimate_says() -> None:
    """Breaks when messages are lost between elements, or cores are faster than rated."""
    policy = Fixed({"m3.xlarge": {0: 1, 1: 1, 2: 1, 3: 1}})
    given = setting(policy, [2.0] * 4, "sc13-diamond")
    result = run_live(given, reference_share=0.04)
    deployment = policy.deploy(given.flow, CATALOGUE)
    estimate = given.flow.estimate(deployment.active, deployment.power, given.rates[0])
    for number, name in enumerate(given.flow.names):
        found = float(np.mean(column(result, "processed", name)))
        # The machine may have other work, so they may be slower; never faster, and never out of balance.
        assert found <= estimate.processed[number] * 1.1 + 0.3
        assert found == pytest.approx(estimate.processed[number], rel=0.4)
    done, out = (sum(column(result, what, "P1")) for what in ("processed", "out"))
    assert out == pytest.approx(2 * done)


@pytest.mark.slow
def test_machines_come_and_go_without_loss() -> None:
    """Alternates are switched, workers join on new machines, and those of released ones hand over what they have."""

    def grow(deployment: Deployment) -> None:
        deployment.active[0] = 1
        deployment.add_machine(Machine(-1, CATALOGUE.number("m1.large")))
        deployment.put(0, -1)
        deployment.put(1, -1)

    def shrink(deployment: Deployment) -> None:
        deployment.drop_machine(min(deployment.machines))

    policy = Fixed({"m1.large": {0: 1, 1: 1}}, grow, lambda deployment: None, shrink)
    rates = [6.0, 6.0, 6.0, 4.0, 0.0, 0.0]
    result = run_live(setting(policy, rates, PAIR), reference_share=0.02)
    came = sum(rates) * 4
    done = sum(4 * rate for rate in column(result, "processed", "A"))
    assert done == pytest.approx(came, abs=2)
    assert sum(4 * rate for rate in column(result, "processed", "B")) == pytest.approx(came, abs=2)
    assert sum(4 * rate for rate in column(result, "out", "B")) == pytest.approx(came / 2, abs=3)
    assert column(result, "alternate", "A") == ["best"] + ["fast"] * 5
    assert column(result, "instances", "B") == [1, 2, 2, 1, 1, 1]
    assert [machine["stop_s"] for machine in result.machines.to_pylist()] == [12.0, None]


@pytest.mark.slow
def test_replicas_take_over_when_a_machine_fails() -> None:
    """A replica has started before, and gets the records of its original at once."""

    def with_replicas(deployment: Deployment) -> None:
        first, second = deployment.machines
        for element in (0, 1):
            deployment.put_replica(element, first, second)

    policy = Fixed({"m1.large": {0: 1, 1: 1}, "m1.large#2": {}}, with_replicas)
    failing = Failures(machines={0: 9.0})
    result = run_live(setting(policy, [3.0] * 5, PAIR, failures=failing), reference_share=0.02)
    machines = result.machines.to_pylist()
    assert [one["failed"] for one in machines] == [True, False]
    assert column(result, "processed", "B")[-1] == pytest.approx(3.0, rel=0.5)


@pytest.mark.slow
def test_a_policy_replaces_its_only_machine() -> None:
    """Breaks when a decision is not carried out, a killed machine is not noticed, or its successor does no work."""
    # A wide band: this computer may have other work, and only the lost machine shall make a difference.
    dataflow = read_dataflow("sc13-diamond")
    goal = dataflow.goal.model_copy(update={"throughput": 0.6, "tolerance": 0.3})
    given = setting(
        Reactive(alternate_every=0, resource_every=1), [1.0] * 5, dataflow.model_copy(update={"goal": goal}), 8.0,
        failures=Failures(machines={0: 10.0}),
    )  # fmt: skip
    seen: list[int] = []
    result = run_live(given, progress=seen.append)
    assert seen == [1, 2, 3, 4, 5]
    omega = result.intervals.column("omega").to_numpy()
    assert omega[0] > 0.15 and omega[1] < omega[0] and max(omega[2:]) > 0.15
    machines = result.machines.to_pylist()
    assert [m["failed"] for m in machines][:2] == [True, False] and machines[0]["stop_s"] == pytest.approx(10, abs=1)
    assert 16 <= machines[1]["ready_s"] < 24  # a process starts faster than the catalogue's minute
    simulated = run_fluid(given)
    for name in ("machines", "starts", "failures"):
        found, expected = (one.intervals.column(name).to_pylist()[:3] for one in (result, simulated))
        assert found == expected
    commands = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    assert not [one for one in commands if "goffish.cloud.providers.agent" in one]


def test_messages_too_short_to_be_measured() -> None:
    given = setting(Reactive(), [5.0], {"elements": [{"id": "A", "cost": 1e-6}], "inputs": {"A": 5}}, 1.0)
    with pytest.raises(InputError, match=r"takes? .* ms of a processor, which cannot be measured; simulate it"):
        run_live(given)


def test_model_flows() -> None:
    """Every element is an operator with its alternates; names that operators cannot have are changed."""
    model = compile_flow(read_dataflow("sc13-diamond"))
    model = replace(model, names=("P1", "two words", *model.names[2:]))
    topology, firsts = model_flow(model, np.ones((2, model.size)), 10.0, 0.1)
    elements = elements_of(divided(topology, firsts))
    assert [one.switched for one in elements] == ["P1", "two-words.1", "P3", "P4"]
    assert elements[3].first == "all:P4" and topology.operator("all:P4").kind == "union"
    assert {channel.target for channel in topology.channels if channel.source == "P1"} == {"two-words.1", "P3"}
    for number, one in enumerate(elements):
        count = model.alternate_offsets[number + 1] - model.alternate_offsets[number]
        assert len(one.alternates) == count
    assert "out:P4" in topology.names


def test_work_sends_what_the_selectivity_says() -> None:
    for selectivity in (0.0, 0.3, 1.0, 2.5):
        work = Work(0.0, selectivity)
        assert sum(len(list(work(number))) for number in range(1000)) == pytest.approx(1000 * selectivity, abs=1)
    begun = time.thread_time()
    list(Work(0.01, 1.0)(1))
    assert 0.01 <= time.thread_time() - begun < 0.1


def test_arrivals_follow_their_rates() -> None:
    """A reader that begins again continues where the one before was, on the same clock."""
    source = Arrivals((100.0, 0.0, 200.0), 0.1)
    reader = source.open("0", None)
    found: list[Any] = []
    while not reader.done:
        read = reader.read(7)
        found += [] if read is None else list(read.values)
        if len(found) == 14:
            reader = source.open("0", list(reader.position))
        time.sleep(0.005)
    assert found == list(range(30))
