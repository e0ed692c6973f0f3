"""Elements that are tied to sites and types of few machines, under policies that know of them and under others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.edrp.policy import Edrp
from goffish.scheduling.policies.feasible import feasible
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.policies.report import describe_plan
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.simulate.policies import catalogue as one_place

EXAMPLES = Path(__file__).parents[3] / "examples"
FACTORY = compile_flow(read_dataflow(EXAMPLES / "factory.yaml"))
CLOUD = read_catalogue(EXAMPLES / "edge-cloud.yaml")
GATEWAY, SMALL, LARGE = range(3)
CAMERAS, DETECT, TRACK, ALARM, ARCHIVE = range(5)


def deployed(*machines: tuple[int, int, dict[int, int]]) -> Deployment:
    plan = Deployment(CLOUD, FACTORY.best)
    for number, kind, instances in machines:
        plan.add_machine(Machine(number, kind, instances=dict(instances)))
    return plan


def shape(plan: Deployment) -> dict[int, tuple[int, dict[int, int]]]:
    return {number: (machine.kind, machine.instances) for number, machine in plan.machines.items()}


def test_instances_move_to_their_sites() -> None:
    """By hand: two cameras and an alarm leave the cloud, for free cores first; the machine left empty is not rented."""
    plan = deployed((3, GATEWAY, {DETECT: 4}), (-1, LARGE, {ALARM: 1, CAMERAS: 2}), (-2, SMALL, {ARCHIVE: 1}))
    found = feasible(plan, FACTORY)
    found.check()
    assert shape(found) == {
        3: (GATEWAY, {DETECT: 4, CAMERAS: 2}), -2: (SMALL, {ARCHIVE: 1}), -3: (GATEWAY, {ALARM: 1}),
    }  # fmt: skip
    assert found.power.tolist() == [2, 4, 0, 1, 1]
    assert shape(feasible(found, FACTORY)) == shape(found)
    assert shape(plan)[-1] == (LARGE, {ALARM: 1, CAMERAS: 2})  # not changed in place


def limited(plan: Deployment, **limits: int) -> Deployment:
    """The same with so many machines of some types."""
    classes = tuple(c.model_copy(update={"limit": limits.get(c.name)}) for c in CLOUD.classes)
    found = Deployment(CLOUD.with_classes(classes), plan.active)
    for machine in plan.machines.values():
        found.add_machine(machine.copy())
    return found


def test_no_more_machines_than_exist() -> None:
    """By hand: of two gateways one exists, which the cameras need; detect has to make room and moves to the cloud."""
    plan = deployed((-1, GATEWAY, {DETECT: 6}), (-2, GATEWAY, {CAMERAS: 2, TRACK: 1}), (-3, SMALL, {ARCHIVE: 1}))
    found = feasible(limited(plan, gateway=1), FACTORY)
    found.check()
    assert found.power.tolist() == plan.power.tolist()
    assert shape(found) == {
        -1: (GATEWAY, {DETECT: 4, CAMERAS: 2}),
        -3: (SMALL, {ARCHIVE: 1, DETECT: 1}), -4: (SMALL, {DETECT: 1, TRACK: 1}),
    }  # fmt: skip
    assert shape(feasible(found, FACTORY)) == shape(found)
    assert shape(feasible(limited(plan, gateway=2), FACTORY)) == shape(plan)


def test_cores_that_run_out() -> None:
    """By hand: every element keeps an instance, one with several gives way; without a core for each it is refused."""
    full = deployed((0, GATEWAY, {ALARM: 6}), (-1, SMALL, {CAMERAS: 1, ARCHIVE: 1}), (-2, LARGE, {DETECT: 7, TRACK: 1}))
    found = feasible(limited(full, gateway=1, small=1, large=1), FACTORY)
    found.check()
    assert shape(found)[0] == (GATEWAY, {ALARM: 5, CAMERAS: 1})
    busy = deployed((0, GATEWAY, {DETECT: 6}), (-1, SMALL, {ALARM: 1, CAMERAS: 1}))
    assert shape(feasible(limited(busy, gateway=1), FACTORY)) == {
        0: (GATEWAY, {DETECT: 4, CAMERAS: 1, ALARM: 1}), -1: (SMALL, {DETECT: 2}),
    }  # fmt: skip
    classes = tuple(c.model_copy(update={"limit": 1, "cores": 1}) for c in CLOUD.classes)
    plan = Deployment(CLOUD.with_classes(classes), FACTORY.best)
    plan.add_machine(Machine(0, GATEWAY, instances={ALARM: 1}))
    plan.add_machine(Machine(1, LARGE, instances={CAMERAS: 1}))
    with pytest.raises(InputError, match="processing element cameras: no core is left; raise a limit of the catalogue"):
        feasible(plan, FACTORY)


@pytest.mark.parametrize("policy", ["reactive-global", "latency-aware", "edrp", "ga", "btu", "plasticc", "ds2"])
def test_every_policy_keeps_within_limits(policy: str) -> None:
    """Breaks when more machines of a type run than there are, though others could do their work."""
    flow = FACTORY.with_rates(5 * FACTORY.rates)
    given = [c.model_dump() | {"limit": 1 if c.name != "small" else None} for c in CLOUD.classes]
    cloud = read_catalogue(CLOUD.model_dump() | {"classes": given})
    result = simulate(flow, cloud, make_policy(policy), np.tile(flow.rates, (5, 1)))
    assert result.summary.throughput_met
    for start in result.machines["start_s"].to_pylist():
        running = Counter(
            row["machine_type"] for row in result.machines.to_pylist()
            if row["start_s"] <= start and (row["stop_s"] is None or row["stop_s"] > start)
        )  # fmt: skip
        assert running["gateway"] == 1 and running["large"] <= 1


def test_what_runs_at_a_site_stays() -> None:
    """Breaks when a machine that a policy would release is given back and another one like it rented instead."""
    live = deployed((0, GATEWAY, {CAMERAS: 1, ALARM: 1}), (1, SMALL, {ARCHIVE: 1}))
    moved = deployed((0, GATEWAY, {CAMERAS: 1, ALARM: 1, ARCHIVE: 1}))
    assert shape(feasible(moved, FACTORY, live)) == shape(live)
    assert shape(feasible(moved, FACTORY))[-1] == (SMALL, {ARCHIVE: 1})


def test_replicas_stay_at_their_sites_too() -> None:
    plan = deployed((0, GATEWAY, {CAMERAS: 1}), (1, LARGE, {DETECT: 1}), (2, GATEWAY, {}))
    plan.put_replica(CAMERAS, 0, 1)
    plan.put_replica(CAMERAS, 0, 2)
    plan.put_replica(DETECT, 1, 2)
    found = feasible(plan, FACTORY)
    found.check()
    assert [machine.replicas for machine in found.machines.values()] == [{}, {}, {(CAMERAS, 0): 1, (DETECT, 1): 1}]


def test_unknown_sites_and_types_are_refused() -> None:
    """Breaks when an element is tied to a site or type that the catalogue lacks, and is put somewhere else."""
    plan = Deployment(one_place(), FACTORY.best)
    with pytest.raises(InputError, match=r"cameras: needs\.sites: unknown site 'factory'; the catalogue has no sites"):
        feasible(plan, FACTORY)
    elsewhere = FACTORY.needs._replace(sites=((), ("moon",), (), (), ()))
    with pytest.raises(
        InputError, match=r"processing element detect: needs\.sites: unknown site 'moon'; machines are at:"
    ):
        feasible(Deployment(CLOUD, FACTORY.best), replace(FACTORY, needs=elsewhere))
    with pytest.raises(
        InputError, match=r"processing element track: needs\.hosts: unknown machine type 'huge'; accepted:"
    ):
        feasible(Deployment(CLOUD, FACTORY.best), tied(FACTORY, TRACK, "huge"))
    with pytest.raises(InputError, match="cameras: needs: none of its hosts is at one of its sites"):
        feasible(Deployment(CLOUD, FACTORY.best), tied(FACTORY, CAMERAS, "small"))


def tied(flow: Flow, element: int, *hosts: str) -> Flow:
    """The same with an element that needs machines of these types."""
    names = tuple(hosts if at == element else given for at, given in enumerate(flow.needs.hosts))
    return replace(flow, needs=flow.needs._replace(hosts=names))


@pytest.mark.parametrize("policy", ["reactive-global", "latency-aware", "edrp", "replicate", "btu", "plasticc", "ds2"])
def test_every_policy_keeps_elements_where_they_may_run(policy: str) -> None:
    """The example with an archive that needs a small machine, and an input that grows threefold: breaks when an element
    runs elsewhere, or misses the goal.
    """
    flow = tied(FACTORY, ARCHIVE, "small")
    allowed = flow.needs.allowed([c.name for c in CLOUD.classes], [c.site for c in CLOUD.classes])
    rates = np.outer(np.linspace(1, 3, 12), FACTORY.rates)
    planner = make_policy(policy)
    seen = []

    class Watched:
        deploy = planner.deploy

        def adapt(self, observation, memory):  # type: ignore[no-untyped-def]
            seen.append(observation.live)
            return planner.adapt(observation, memory)

    result = simulate(flow, CLOUD, Watched(), rates)
    assert len(seen) == 11 and result.summary.omega >= flow.goal.throughput - flow.goal.tolerance
    for live in seen:
        for machine in live.machines.values():
            for element in {*machine.instances, *(element for element, _ in machine.replicas)}:
                assert allowed[element, machine.kind]
    assert result.summary.starts <= 6


@pytest.mark.parametrize("policy", ["reactive-global", "latency-aware", "edrp", "replicate", "btu", "plasticc", "ds2"])
@pytest.mark.parametrize("rate", [100.0, 500.0])
def test_hosts_that_cost_nothing_come_first_but_are_not_enough(policy: str, rate: float) -> None:
    """One host of two cores costs nothing, three others do: breaks when a policy uses the first only, or never."""
    elements = [{"id": "a", "cost": 0.002, "needs": {"hosts": ["own"]}}, {"id": "b", "cost": 0.03}]
    flow = compile_flow(read_dataflow({"elements": elements, "edges": [["a", "b"]], "inputs": {"a": rate}}))
    own = {"name": "own", "cores": 2, "price_per_hour": 0, "limit": 1}
    hosts = read_catalogue({"classes": [own, {"name": "rack", "cores": 8, "price_per_hour": 0.1, "limit": 3}]})
    plan = feasible(make_policy(policy).deploy(flow, hosts), flow)
    counts = Counter(machine.kind for machine in plan.machines.values())
    assert counts[0] == 1 and 1 <= counts[1] <= 3
    assert flow.estimate(plan.active, plan.power).omega >= flow.goal.throughput


def test_edrp_behind_a_limited_type_is_bounded() -> None:
    """Breaks when a list is made of as many machines as a type of a billionth of the usual speed would need."""
    flow = compile_flow(read_dataflow({"elements": [{"id": "a", "cost": 0.03}], "edges": [], "inputs": {"a": 500.0}}))
    own = {"name": "own", "cores": 1, "price_per_hour": 0, "limit": 1}
    slow = {"name": "slow", "cores": 1, "speed": 1e-9, "price_per_hour": 1e-6}
    machines, _ = Edrp().problem(
        flow, Deployment(read_catalogue({"classes": [own, slow]}), flow.best), np.zeros(1), 60.0
    )
    assert 1 < len(machines) <= Edrp().most_hosts
    with pytest.raises(
        InputError, match="1 processing elements of up to 3,900,001 instances on 40 hosts: too many; set"
    ):
        make_policy("edrp").deploy(flow, read_catalogue({"classes": [own, slow | {"cores": 100_000}]}))


def test_policies_that_know_of_sites_avoid_the_link() -> None:
    """Work on the slowest path is 30 ms, a link 40 ms: there and back by reactive-global, once by the others."""
    rates = np.tile(FACTORY.rates, (6, 1))
    for policy, links_s in (("reactive-global", 0.08), ("latency-aware", 0.04), ("edrp", 0.04)):
        planner = make_policy(policy)
        for engine in ("fluid", "events"):
            result = simulate(FACTORY, CLOUD, planner, rates, engine=engine)  # type: ignore[arg-type]
            assert result.summary.latency_s == pytest.approx(0.03 + links_s, abs=1e-6), (policy, engine)
        told = describe_plan(FACTORY, feasible(planner.deploy(FACTORY, CLOUD), FACTORY), FACTORY.rates)
        assert told["links_s"] == pytest.approx(links_s)
        assert {machine["site"] for machine in told["machines"]} == {"factory", "cloud"}
    assert "links_s" not in describe_plan(FACTORY, Deployment(one_place(), FACTORY.best), FACTORY.rates)


def test_machines_without_number_are_refused() -> None:
    """Breaks when an element is moved to ever more machines of a type that is far too slow for it."""
    given = CLOUD.model_dump()
    given["classes"][0]["speed"] = 1e-6
    slow = type(CLOUD).model_validate(given)
    plan = Deployment(slow, FACTORY.best)
    for element in range(FACTORY.size):
        plan.put(element, plan.plan_machine(2), 1)
    with pytest.raises(
        InputError, match=r"processing element cameras: .* machines of type gateway are required; at most 2,000"
    ):
        feasible(plan, FACTORY)
