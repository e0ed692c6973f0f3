"""Machines of a flow on a simulated cloud: which are requested, replaced, adopted and released, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from goffish.cloud.catalogue import MachineType, read_catalogue
from goffish.cloud.providers import Request, SimulatedProvider
from goffish.errors import InputError, JobError
from goffish.streaming.flow_file import load_flow
from goffish.streaming.rented.fleet import FLOW, MACHINE, RUN, Demand, Fleet, FlowMachine, Hooks, RentalLimits
from goffish.streaming.rented.machines import Renting
from goffish.streaming.rented.planned import PlannedMachines
from tests.streaming.runtime.test_cluster import make_events
from tests.streaming.runtime.test_hosts import write_flow

CATALOGUE = read_catalogue({
    "machine_types": [
        {"name": "small", "cores": 1, "price_per_hour": 1.0}, {"name": "large", "cores": 4, "price_per_hour": 3.0},
    ],
    "startup_s": 0, "limit": 4, "billing": {"quantum_s": 1},
})  # fmt: skip


class Flow:
    """A flow that needs a number of machines, and what was asked and reported about them."""

    def __init__(self, size: int, types: Sequence[str] = ("small",)) -> None:
        self.size, self.types = size, types
        self.commands, self.left, self.lines, self.failures = list[str](), list[str](), list[str](), dict[str, str]()

    @property
    def hooks(self) -> Hooks:
        return Hooks(
            self.command, self.demand, self.spare, self.left.append, lambda name: self.failures.get(name, ""),
            self.lines.append,
        )  # fmt: skip

    def command(self, name: str, kind: MachineType) -> list[str]:
        self.commands.append(f"{name} {kind.name}")
        return []

    def demand(self, machines: Sequence[FlowMachine]) -> Demand | None:
        return Demand(self.types) if len(machines) < self.size else None

    def spare(self, machines: Sequence[FlowMachine]) -> FlowMachine | None:
        return machines[0] if len(machines) > self.size else None


def until(what: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@contextmanager
def fleet_of(flow: Flow, cloud: SimulatedProvider, **limits: Any) -> Iterator[Fleet]:
    given = {"machine_types": flow.types} | limits
    fleet = Fleet(cloud, RentalLimits(**given), {RUN: "r"}, flow.hooks, look_s=0.005)
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.close()


def running(cloud: SimulatedProvider) -> list[str]:
    return [one.machine_type for one in asyncio.run(cloud.machines({RUN: "r"})) if not one.ended]


def test_as_many_as_needed_and_the_bill() -> None:
    """Breaks when too few or too many machines run, one stays, or the bill is not hours times price."""
    flow, cloud = Flow(2), SimulatedProvider(CATALOGUE)
    with fleet_of(flow, cloud) as fleet:
        until(lambda: len(fleet.machines) == 2)
        assert all(fleet.note_joined(one.name) for one in fleet.machines)
        assert not fleet.note_joined("another")
        cloud.advance(1800)
        flow.size = 1
        until(lambda: flow.left)
        assert running(cloud) == ["small", "small"]  # its agent has not left yet
        fleet.note_leaving(flow.left[0], gone=True)
        until(lambda: running(cloud) == ["small"])
        cloud.advance(1800)
    assert running(cloud) == []
    bill = fleet.summary()
    assert sorted(one["hours"] for one in bill["rented"]) == pytest.approx([0.5, 1.0])
    assert bill["cost"] == pytest.approx(1.5) and bill["hours"] == pytest.approx(1.5)
    assert fleet.total == "2 machines: 1.5 h, 1.5 USD"


def test_a_machine_that_fails_is_replaced() -> None:
    """Breaks when nothing replaces a machine that has joined and then failed."""
    flow, cloud = Flow(1), SimulatedProvider(CATALOGUE)
    with fleet_of(flow, cloud) as fleet:
        until(lambda: fleet.machines)
        first = fleet.machines[0]
        assert fleet.note_joined(first.name)
        cloud.fail(first.machine.id)
        until(lambda: len(fleet.machines) == 2)
        assert running(cloud) == ["small"] and fleet.error is None
        assert "machine 0 has ended: failed, simulated" in flow.lines
        assert not fleet.note_joined(first.name)


def test_machines_that_never_join() -> None:
    """Breaks when machines are rented again and again although none joins, or the reason is lost."""
    flow, cloud = Flow(1), SimulatedProvider(CATALOGUE)
    with fleet_of(flow, cloud) as fleet:
        for at in range(3):
            until(lambda at=at: len(fleet.machines) == at + 1)
            flow.failures[fleet.machines[at].name] = "no module named goffish"
            cloud.fail(str(at))
        until(lambda: fleet.error)
        assert isinstance(fleet.error, JobError)
        assert str(fleet.error) == "machine 2 did not join: no module named goffish; 3 in a row did not"
        time.sleep(0.05)
    assert len(fleet.machines) <= 4  # one may have been requested before the third was seen to fail


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"hourly_budget": 1.5}, "small would exceed --hourly-budget 1.5"),
        ({"max_machines": 1}, "1 run, --max-machines 1"),
    ],
)
def test_limits(limits: dict[str, Any], line: str) -> None:
    """Breaks when a machine beyond the limits is rented, or the user does not see why there are fewer."""
    flow, cloud = Flow(2), SimulatedProvider(CATALOGUE)
    with fleet_of(flow, cloud, **limits):
        until(lambda: any(line in text for text in flow.lines))
        assert running(cloud) == ["small"]


def test_another_type_where_the_preferred_one_is_too_expensive() -> None:
    """Breaks when the order of machine types, or the budget, does not count."""
    flow, cloud = Flow(2, ("large", "small")), SimulatedProvider(CATALOGUE)
    with fleet_of(flow, cloud, hourly_budget=4.0) as fleet:
        until(lambda: len(fleet.machines) == 2)
        assert [one.machine.machine_type for one in fleet.machines] == ["large", "small"]


def test_an_unknown_type() -> None:
    """Breaks when a flow waits for a machine that its provider does not have."""
    flow = Flow(1, ("huge",))
    with fleet_of(flow, SimulatedProvider(CATALOGUE)) as fleet:
        until(lambda: fleet.error)
        assert isinstance(fleet.error, InputError) and "huge: the provider does not offer" in str(fleet.error)


def test_machines_of_an_earlier_run() -> None:
    """Breaks when machines that a killed command has left run beside new ones, or get no ticket."""
    request = Request(machine_type="small", command=["x"], token="a", tags={RUN: "r", MACHINE: "m1"})
    cloud = SimulatedProvider(CATALOGUE, lambda command: 1e9)
    asyncio.run(cloud.request(request))
    flow = Flow(1)
    with fleet_of(flow, cloud) as fleet:
        until(lambda: fleet.machines)
        assert fleet.note_joined("m1") and flow.commands == ["m1 small"]
        time.sleep(0.05)
        assert running(cloud) == ["small"]
    assert running(cloud) == []


def test_a_policy_uses_machines_of_an_earlier_run(tmp_path: Path) -> None:
    """Breaks when a machine of a killed run is idle beside the one that a plan has ordered in its place."""
    make_events(tmp_path / "in", 10)
    flow, saved = write_flow(tmp_path), tmp_path / "saved"
    topology = load_flow(str(flow)).check()
    saved.mkdir()
    (saved / "rented.json").write_text('{"run": "r"}')
    cloud = SimulatedProvider(CATALOGUE, lambda command: 1e9)
    tags = {RUN: "r", FLOW: topology.name, MACHINE: "m1"}
    asyncio.run(cloud.request(Request(machine_type="small", command=["x"], token="a", tags=tags)))
    limits = RentalLimits(machine_types=("small",))
    renting = Renting(provider=cloud, limits=limits, listen="127.0.0.1:0", look_s=0.005)
    with PlannedMachines(topology, str(flow), renting, checkpoint=saved) as machines:
        first = machines.start(0)
        until(lambda: [one.key for one in machines.fleet.machines] == [first])
        time.sleep(0.05)
        assert running(cloud) == ["small"]
        second = machines.start(0)
        until(lambda: [one.key for one in machines.fleet.machines] == [first, second])
    assert running(cloud) == []
