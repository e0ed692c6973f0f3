"""Plans by gRPC: what the library plans when it is called itself, and nothing of the server's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from goffish.client import Client, ServiceError, requests
from goffish.cloud.catalogue import known_catalogues, read_catalogue
from goffish.scheduling.dataflow.flow import compile_flow, external_rates
from goffish.scheduling.dataflow.model import known_dataflows, read_dataflow
from goffish.scheduling.messages import dataflow_message
from goffish.scheduling.policies.feasible import feasible
from goffish.scheduling.policies.policies import POLICIES, make_policy, policy_names
from goffish.scheduling.policies.report import describe_plan
from goffish.scheduling.simulate.run import simulate
from goffish.v1 import catalog_pb2, dataflows_pb2, planning_pb2
from tests.services.api.serving import RealServer

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def client(server: RealServer) -> Iterator[Client]:
    with server.client() as found:
        yield found


def named(dataflow: str, policy: str, **options: str) -> planning_pb2.Setting:
    return planning_pb2.Setting(dataflow_name=dataflow, policy=policy, options=options)


@pytest.mark.parametrize(
    "policy",
    ["reactive-global", "ds2", pytest.param("edrp", marks=pytest.mark.slow), "btu", "hybrid", "static-reactive-local"],
)
def test_plans_are_those_of_the_library(client: Client, policy: str) -> None:
    """Breaks when a plan loses or changes anything on its way, or is another one than the library's."""
    flow = compile_flow(read_dataflow("sc13-diamond")).with_rates(np.array([3.0, 0, 0, 0]))
    given = {flow.names[0]: 3.0}
    expected = describe_plan(flow, make_policy(policy).deploy(flow, read_catalogue("ec2-2013")), flow.rates)
    found = client.plan("sc13-diamond", "ec2-2013", policy, rates=given)
    for name in ("throughput", "value", "cost_per_hour", "cost", "profit", "goal", "period_h"):
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-12), name
    assert [(e.element, e.alternate, e.instances) for e in found.elements] == [
        (e["processing_element"], e["alternate"], e["instances"]) for e in expected["processing_elements"]
    ]
    assert [(getattr(m, "class"), dict(m.instances)) for m in found.machines] == [
        (m["machine_type"], m["instances"]) for m in expected["machines"]
    ]
    assert len({m.id for m in found.machines}) == len(found.machines) and all(m.id < 0 for m in found.machines)


def test_a_definition_is_planned_like_the_file(client: Client) -> None:
    """Breaks when a dataflow or a catalogue that is sent is read as another one."""
    for name in known_dataflows():
        if name == "mixed-100":
            continue
        message = dataflow_message(read_dataflow(name))
        assert client.plan(message, "ec2-2013") == client.plan(name, "ec2-2013")
    answer = client.catalog.ListCatalogues(catalog_pb2.ListCataloguesRequest())
    assert [one.name for one in answer.catalogues] == known_catalogues()
    for one in answer.catalogues:
        if one.name != "ec2-2015-spot":
            assert client.plan("sc13-diamond", one.catalogue) == client.plan("sc13-diamond", one.name)


@pytest.mark.slow
def test_adapting_step_by_step_is_simulating(client: Client) -> None:
    """Breaks when what was observed reaches the policy changed: a run by hand has to be the simulator's."""
    flow = compile_flow(read_dataflow("sc13-diamond"))
    catalogue = read_catalogue("ec2-2013-m1")
    rates = np.zeros((10, flow.size))
    rates[:, 0] = [1, 1, 4, 6, 6, 2, 1, 5, 5, 1]
    expected = simulate(flow, catalogue, make_policy("reactive-global"), rates)
    lives = expected.machines.to_pylist()
    plan = client.plan("sc13-diamond", policy="reactive-global")
    ids: dict[int, int] = {machine.id: at for at, machine in enumerate(plan.machines)}
    running = [_running(machine, ids[machine.id], 0.0) for machine in plan.machines]
    alternates = {element.element: element.alternate for element in plan.elements}
    intervals: list[planning_pb2.Interval] = []
    for step in range(1, 10):
        omega = float(expected.intervals["omega"][step - 1].as_py())
        intervals.append(planning_pb2.Interval(rates={flow.names[0]: rates[step - 1, 0]}, throughput=omega))
        for machine in running:
            machine.elapsed_s += 300.0
        waiting = expected.elements.filter(_is(expected.elements, step - 1))["queue"].to_pylist()
        observed = planning_pb2.Observations(
            machines=running, alternates=alternates, intervals=intervals, steps=10,
            queue=dict(zip(flow.names, waiting, strict=True)),
        )  # fmt: skip
        asked = planning_pb2.AdaptRequest(
            setting=named("sc13-diamond", "reactive-global"), observations=observed, session="by hand"
        )
        answer = client.planning.Adapt(asked)
        taken = max([machine.id for machine in running], default=-1) if not lives else max(ids.values())
        after = []
        for machine in answer.plan.machines:
            if machine.id < 0:
                taken += 1
                ids[1000 * step - machine.id] = taken
                after.append(_running(machine, taken, 0.0))
            else:
                old = next(one for one in running if one.id == machine.id)
                after.append(_running(machine, machine.id, old.elapsed_s))
        assert set(answer.released) == {one.id for one in running} - {one.id for one in answer.plan.machines}
        running = after
        alternates = {element.element: element.alternate for element in answer.plan.elements}
        now = expected.elements.filter(_is(expected.elements, step))
        assert [e.instances for e in answer.plan.elements] == now["instances"].to_pylist(), step
        assert [e.alternate for e in answer.plan.elements] == now["alternate"].to_pylist(), step


def test_plans_at_sites_are_those_of_the_library(client: Client) -> None:
    """Breaks when sites, links or what elements need of them are lost on the way there, or places on the way back."""
    flow, cloud = compile_flow(read_dataflow(EXAMPLES / "factory.yaml")), read_catalogue(EXAMPLES / "edge-cloud.yaml")
    sent = requests.dataflow(EXAMPLES / "factory.yaml"), requests.catalogue(EXAMPLES / "edge-cloud.yaml")
    links = {}
    for policy in ("reactive-global", "latency-aware", "edrp"):
        expected = describe_plan(flow, feasible(make_policy(policy).deploy(flow, cloud), flow), flow.rates)
        found = client.plan(*sent, policy)
        assert [(m.site, getattr(m, "class"), dict(m.instances)) for m in found.machines] == [
            (m["site"], m["machine_type"], m["instances"]) for m in expected["machines"]
        ]
        links[policy] = found.links_s
    assert links == pytest.approx({"reactive-global": 0.08, "latency-aware": 0.04, "edrp": 0.04})
    assert not client.plan("sc13-diamond").HasField("links_s")
    astray = dataflows_pb2.Machine(id=0, instances=dict.fromkeys(flow.names, 1))
    setattr(astray, "class", "large")
    setting = planning_pb2.Setting(dataflow_definition=sent[0], cloud_definition=sent[1])
    observed = planning_pb2.Observations(machines=[astray], intervals=[{"rates": {"cameras": 100}, "throughput": 1}])
    plan = client.planning.Adapt(planning_pb2.AdaptRequest(setting=setting, observations=observed)).plan
    assert [m.site for m in plan.machines if {"cameras", "alarm"} & {*m.instances}] == ["factory"]
    measured = client.explain(*sent, policies=("ds2",))
    assert {machine.site for machine in measured.plan.machines} == {"factory", "cloud"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"links": [{"between": ["factory", "moon"], "latency_ms": 1}]},
            "links[0].between: unknown site 'moon'; sites: fac",
        ),
        ({"links": [{"between": ["factory", "cloud"]}]}, "links[0].latency_ms: is missing"),
        ({"links": [{"between": ["factory", "cloud"], "latency_ms": math.nan}]}, "links[0].latency_ms = nan"),
        ({"sites": ["factory", "cloud"] + [f"s{at}" for at in range(99)]}, "sites = "),
        ({"classes": [{"name": "m", "cores": 1}]}, "classes[0].site: is missing; sites: factory, cloud"),
        ({"links": []}, "links: no route between factory and cloud; add a link"),
    ],
)
def test_networks_that_are_refused(client: Client, change: dict[str, Any], told: str) -> None:
    """Breaks when a catalogue with a wrong network is planned on, or the answer does not say what is accepted."""
    cloud = requests.catalogue(EXAMPLES / "edge-cloud.yaml")
    for name in change:
        cloud.ClearField(name)
    cloud.MergeFrom(dataflows_pb2.Catalogue(**change))
    with pytest.raises(ServiceError) as caught:
        client.plan("sc13-diamond", cloud)
    assert "setting.cloud_definition" in str(caught.value) and told in str(caught.value), str(caught.value)


def test_sites_and_types_that_a_catalogue_lacks_are_refused(client: Client) -> None:
    """Breaks when a dataflow is planned, or accepted as a job, on machines where one of its elements may not run."""
    flow = requests.dataflow(EXAMPLES / "factory.yaml")
    told = "processing element cameras: needs.sites: unknown site 'factory'; the catalogue has no sites"
    with pytest.raises(ServiceError, match=f"setting.dataflow: {told}"):
        client.plan(flow, "ec2-2013")
    with pytest.raises(ServiceError, match=f"spec.dataflow.cloud_name: ec2-2013: {told}"):
        client.submit_dataflow(flow, cloud_name="ec2-2013")
    flow = requests.dataflow(EXAMPLES / "factory.yaml")
    flow.elements[2].needs.hosts.append("huge")
    told = "processing element track: needs.hosts: unknown machine type 'huge'; accepted: gateway, small, large"
    with pytest.raises(ServiceError, match=f"setting.dataflow: {told}"):
        client.plan(flow, requests.catalogue(EXAMPLES / "edge-cloud.yaml"))


def _is(table: Any, step: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(table["step"], step)


def _running(machine: dataflows_pb2.Machine, number: int, elapsed_s: float) -> dataflows_pb2.Machine:
    made = dataflows_pb2.Machine(id=number, instances=machine.instances, elapsed_s=elapsed_s)
    setattr(made, "class", getattr(machine, "class"))
    return made


@pytest.mark.parametrize("policy", ["plasticc", "auto", "wpa"])
def test_looking_ahead(client: Client, policy: str) -> None:
    """Breaks when a forecast does not reach the policy: of the same present, a rise that is foreseen costs more."""
    flow = compile_flow(read_dataflow("sc13-diamond"))
    plan = client.plan("sc13-diamond", policy=policy)
    observed = planning_pb2.Observations(
        machines=[_running(machine, at, 300.0) for at, machine in enumerate(plan.machines)],
        alternates={element.element: element.alternate for element in plan.elements},
        intervals=[planning_pb2.Interval(rates={flow.names[0]: flow.rates[0]}, throughput=0.9)], steps=100,
    )  # fmt: skip
    costs = []
    for factor in (1.0, 8.0):
        ahead = [planning_pb2.Interval(rates={flow.names[0]: flow.rates[0] * factor}) for _ in range(4)]
        asked = planning_pb2.PlanAheadRequest(
            setting=named("sc13-diamond", policy), observations=observed, forecast=ahead
        )
        answer = client.planning.PlanAhead(asked)
        assert len(answer.outlook) == 4 and all(0 <= one.throughput <= 1 for one in answer.outlook)
        costs.append(answer.plan.cost_per_hour)
    assert costs[1] > costs[0]
    asked.setting.policy = "ds2"
    with pytest.raises(grpc.RpcError, match="does not use forecasts"):
        client.planning.PlanAhead(asked)


def test_explaining(client: Client) -> None:
    """Breaks when the alternatives are not what those policies plan, or a reason speaks of another plan."""
    answer = client.explain("linear-road", rates={"reports": 20.0}, policies=("ds2", "reactive-local"))
    flow = compile_flow(read_dataflow("linear-road"))
    flow = flow.with_rates(external_rates(flow, {"reports": 20.0}))
    told = {one.what: one for one in answer.alternatives}
    for name in ("ds2", "reactive-local"):
        price = make_policy(name).deploy(flow, read_catalogue("ec2-2013-m1")).price_per_hour
        assert told[f"policy {name}"].cost_per_hour == pytest.approx(price)
    assert told["this plan"].cost_per_hour == pytest.approx(answer.plan.cost_per_hour)
    without = [one for one in answer.alternatives if one.what.startswith("without")]
    assert without and all(one.cost_per_hour < answer.plan.cost_per_hour for one in without)
    assert all(one.throughput <= told["this plan"].throughput + 1e-12 for one in without)
    assert f"{answer.plan.throughput:.3f}" in answer.reasons[0]
    behind = [one for one in answer.reasons if one.startswith("The backlog grows by ")]
    assert len(behind) == any(one.processed < one.input - 1e-9 for one in answer.plan.elements) == 1


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({}, "setting.dataflow"),
        ({"dataflow_name": "../../etc/passwd"}, "setting.dataflow_name"),
        ({"dataflow_name": "sc13-diamond", "policy": "file.py:X"}, "setting.policy"),
        ({"dataflow_name": "sc13-diamond", "policy": "replicate", "options": {"start": "x.py:X"}}, "setting.options"),
        ({"dataflow_name": "sc13-diamond", "options": {"nothing": "1"}}, "setting.options"),
        ({"dataflow_name": "sc13-diamond", "cloud_name": "/etc/passwd"}, "setting.cloud_name"),
        ({"dataflow_definition": dataflows_pb2.Dataflow()}, "setting.dataflow_definition"),
        (
            {"dataflow_definition": dataflows_pb2.Dataflow(
                elements=[dataflows_pb2.Element(id="a", cost=1)], inputs={"a": 1},
                edges=[{"from": "a", "to": "a"}],
            )},
            "setting.dataflow_definition",
        ),
        (
            {"dataflow_name": "sc13-diamond", "cloud_definition": dataflows_pb2.Catalogue(
                classes=[dataflows_pb2.MachineClass(name="x", cores=1, market="spot", prices="/etc/passwd")]
            )},
            "setting.cloud_definition.classes[0].prices",
        ),
    ],
)  # fmt: skip
def test_settings_that_are_refused(client: Client, setting: dict[str, Any], field: str) -> None:
    """Breaks when a request can name a file or code, or the answer does not name the field."""
    with pytest.raises(grpc.RpcError) as caught:
        client.planning.Plan(planning_pb2.PlanRequest(setting=planning_pb2.Setting(**setting)))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(field), caught.value.details()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"machines": [{"id": -1, "class": "m1.small"}]}, "observations.machines[0].id"),
        ({"machines": [{"id": 1, "class": "nothing"}]}, "observations.machines[0].class"),
        ({"machines": [{"id": 1, "class": "m1.small", "instances": {"x": 1}}]}, "observations.machines[0].instances"),
        ({"machines": [{"id": 1, "class": "m1.small", "coefficient": 2}]}, "observations.machines[0]"),
        ({"intervals": [{}, {"throughput": 3}]}, "observations.intervals[1].throughput: 3"),
        ({"intervals": [{}, {"throughput": float("nan")}]}, "observations.intervals[1].throughput: nan"),
        ({"intervals": [{}, {}, {}, {"rates": {"x": 1}}]}, "observations.intervals[3].rates"),
        ({"intervals": [{}, {}], "steps": 1}, "observations.steps"),
        ({"queue": {"x": 1}}, "observations.queue"),
        ({"alternates": {"x": "y"}}, "observations.alternates"),
    ],
)
def test_observations_that_are_refused(client: Client, change: dict[str, Any], field: str) -> None:
    """Breaks when impossible observations are planned with."""
    asked = planning_pb2.AdaptRequest(
        setting=named("sc13-diamond", "reactive-global"), observations=planning_pb2.Observations(**change)
    )
    with pytest.raises(grpc.RpcError) as caught:
        client.planning.Adapt(asked)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(field), caught.value.details()


def test_the_catalogue(client: Client) -> None:
    """Breaks when something that can be asked for is not told, or an option is told that there is not."""
    policies = client.catalog.ListPolicies(catalog_pb2.ListPoliciesRequest()).policies
    assert [one.name for one in policies] == policy_names()
    for one in policies:
        if one.name in POLICIES and one.name not in ("ga", "hybrid"):
            simple = {
                name: field["default"]
                for name, field in one.options["properties"].items()
                if "default" in field and field["default"] is not None
            }
            make_policy(one.name, {name: value for name, value in simple.items() if name != "start"})
    algorithms = client.catalog.ListAlgorithms(catalog_pb2.ListAlgorithmsRequest()).algorithms
    assert "damping" in next(one for one in algorithms if one.name == "pagerank").options["properties"]
    with pytest.raises(grpc.RpcError, match="trace"):
        client.catalog.GetPrices(catalog_pb2.GetPricesRequest(trace="../../../etc/passwd"))


def test_advice_without_markets(client: Client) -> None:
    with pytest.raises(grpc.RpcError, match="market: unknown"):
        client.planning.AdviseSpot(planning_pb2.AdviseSpotRequest(core_hours=1, hours=2, market="../x"))


def test_errors_of_the_client() -> None:
    """Breaks when a server that is not there is not told in one line."""
    with Client("127.0.0.1:1", timeout_s=1) as client, pytest.raises(ServiceError) as caught:
        client.job("x")
    assert caught.value.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
