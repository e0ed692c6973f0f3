"""Deadlines of jobs whose machines start later than planned: the control loop on simulated processes and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from goffish.cloud.providers import CapacityError, Machine, Offer, Request
from goffish.services.runners import rented
from goffish.services.runners.attempt import Ended
from goffish.services.runners.cloud_planning import Need, Plan, Planner
from goffish.services.runners.rented import Delays, Rented, RentedJob
from goffish.services.store.records import State, check_move
from goffish.services.store.spec import SpotPolicy
from tests.services.runners.rented import CALM, HIGH, PACE, cloud_of, write_cloud

HOUR_S = 3600.0


@dataclass
class World:
    """A job folder, a clock, and a provider whose machines take a given time to start, in simulated seconds.

    The price of spot machines rises at some time, and may fall again; checkpoints are written after every whole hour of
    work, and when one is asked for.
    """

    plan: Plan
    path: Path
    start_s: float
    rise_s: float
    deadline_s: float
    falls_s: float = float("inf")
    refuses_until_s: float = 0.0
    now: float = 0.0
    kept_h: float = 0.0
    asked: int = 0
    refusals: int = 0
    done: dict[str, Any] | None = None
    done_h: float = 0.0
    given: list[Machine] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    session: int | None = None
    busy: bool = False
    turn: str = ""
    log: Path = Path("log")

    # The provider.

    async def offers(self) -> list[Offer]:
        price = HIGH if self.high else CALM
        return [Offer("tiny", "on-demand", "", 0.2, True), Offer("tiny", "spot", "", price, True)]

    async def request(self, request: Request) -> Machine:
        if request.market == "spot" and self.now < self.refuses_until_s:
            self.refusals += 1
            raise CapacityError("no capacity is left")
        self.begun.append(self.now)
        made = Machine(
            id=str(len(self.given)), machine_type=request.machine_type, market=request.market, zone="",
            state="pending", reason="", tags=request.tags, requested_s=self.now,
        )  # fmt: skip
        self.given.append(made)
        return made

    async def release(self, ids: list[str]) -> None:
        for id in ids:
            self._end(int(id), "released")

    async def machines(self, tags: Any) -> list[Machine]:
        return list(self.given)

    async def costs(self, machines: list[Machine]) -> list[float]:
        return [0.0 for _ in machines]

    def _end(self, number: int, state: Any) -> None:
        if not self.given[number].ended:
            self.given[number] = replace(self.given[number], state=state, ended_s=self.now)

    # The folder.

    @property
    def saved(self) -> int | None:
        return int(self.kept_h * 1000) or None

    def wish(self, checkpoint: int) -> None:
        assert checkpoint == (self.saved or 0)
        self.asked += 1
        self.kept_h = self.done_h

    def prepare(self, *_: Any) -> str:
        return "1.1"

    # The time.

    @property
    def high(self) -> bool:
        return self.rise_s <= self.now < self.falls_s

    async def sleep(self, seconds: float) -> None:
        self.now += seconds * PACE
        for number, one in enumerate(self.given):
            if one.ended:
                continue
            if self.high and one.market == "spot":
                self._end(number, "interrupted")
                self.done_h = self.kept_h
                continue
            if one.state == "pending":
                self.given[number] = replace(one, state="running")
            if self.now >= self.begun[number] + self.start_s:
                self.session = number
                self.done_h += seconds * PACE / HOUR_S
                self.kept_h = max(self.kept_h, float(int(self.done_h)))
        if self.done_h >= self.plan.work * self.plan.slot_s / HOUR_S and self.done is None:
            self.done = {"rows": 1, "summary": {}}
            self._end(len(self.given) - 1, "finished")

    def monotonic(self) -> float:
        return self.now / PACE


class Timed:
    """The attempt of a job in that world."""

    def __init__(self, world: World) -> None:
        graph = SimpleNamespace(policy="rtba", cpu_seconds=None)
        self.folder = world
        self.job = SimpleNamespace(id=1, cost=0.0, attempts=1, state=State.PLANNED, spec=SimpleNamespace(graph=graph))

    @property
    def time_left_s(self) -> float:
        return (self.folder.deadline_s - self.folder.now) / PACE

    def move(self, state: State, *_: Any, **__: Any) -> None:
        check_move("1", self.job.state, state)
        self.job.state = state

    def note(self, *_: Any, **__: Any) -> None:
        pass

    def stops(self) -> str | None:
        return "deadline" if self.time_left_s <= 0 else None

    def ended(self, why: str) -> Ended:
        return Ended(State.FAILED, why)


def finish(world: World, need: Need, monkeypatch: pytest.MonkeyPatch) -> Ended:
    with monkeypatch.context() as patch:
        patch.setattr(rented, "time", world)
        patch.setattr(rented, "asyncio", world)
        patch.setattr(rented, "EventWriter", lambda _: SimpleNamespace(write=lambda: None))
        patch.setattr(rented, "lost", lambda *_: None)
        order = {"limits": {"memory_mb": None}}
        loop = Rented(RentedJob(Timed(world), world.plan, need, order), world, PACE)  # type: ignore[arg-type]
        return asyncio.run(loop.run())


@pytest.mark.parametrize("start_s", [300.0, 3600.0])
def test_deadlines_are_kept_when_machines_start_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_s: float
) -> None:
    """A first start takes an hour instead of five minutes; then prices rise, and the rest runs on demand."""
    catalogue = cloud_of(write_cloud(tmp_path))
    need = Need(core_hours=6.0, startup_s=300.0, checkpoint_s=10.0, left_s=10 * HOUR_S, least_slot_s=300.0)
    ended = {}
    for reserved in (True, False):
        plan = Planner().plan(catalogue, "h3", need)
        world = World(plan, tmp_path, start_s, rise_s=2.7 * HOUR_S, deadline_s=10 * HOUR_S)
        with monkeypatch.context() as patch:
            if not reserved:
                patch.setattr(Delays, "reserve_s", lambda *_: 0.0)
            ended[reserved] = finish(world, need, monkeypatch)
        assert (world.given[0].market, world.given[-1].market) == ("spot", "on-demand")
    assert ended[True].state == State.DONE
    # Otherwise the job waits for lower prices until the planned start-up is the only time left.
    assert (ended[False].state == State.DONE) is (start_s == need.startup_s)


@pytest.mark.parametrize("policy", get_args(SpotPolicy))
def test_policies_carry_a_job_through_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: SpotPolicy
) -> None:
    """Breaks when a policy misses a deadline that on-demand machines can keep, or never returns to the spot market."""
    catalogue = cloud_of(write_cloud(tmp_path))
    need = Need(core_hours=8.0, startup_s=300.0, checkpoint_s=10.0, left_s=10 * HOUR_S, least_slot_s=300.0)
    planner, worlds = Planner(), []
    for falls_h in (100.0, 3.2):
        plan = planner.plan(catalogue, policy, need)  # agents observe the prices of one job
        assert plan.name == policy and plan.promised
        world = World(plan, tmp_path, 300.0, 1.7 * HOUR_S, 10 * HOUR_S, falls_h * HOUR_S)
        assert finish(world, need, monkeypatch).state == State.DONE
        assert world.now <= world.deadline_s
        worlds.append(world)
    used = [[one.market for one in world.given] for world in worlds]
    if policy == "on-demand":
        assert used == [["on-demand"], ["on-demand"]]
        return
    assert all((markets[0], worlds[0].given[0].state) == ("spot", "interrupted") for markets in used)
    assert used[0][-1] == "on-demand"  # before the deadline
    if policy == "eager":
        assert used == [["spot", "on-demand"]] * 2
        assert worlds[0].given[1].requested_s <= 1.7 * HOUR_S + plan.slot_s
    elif policy == "uniform-progress":  # on demand in the meantime, with a checkpoint before it leaves
        assert used[1] == ["spot", "on-demand", "spot"] and worlds[1].asked > 0
    else:
        assert used[1][:2] == ["spot", "spot"]


def test_a_job_asks_again_after_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a job whose spot request is refused for lack of capacity ends, or never asks again."""
    need = Need(core_hours=6.0, startup_s=300.0, checkpoint_s=10.0, left_s=10 * HOUR_S, least_slot_s=300.0)
    plan = Planner().plan(cloud_of(write_cloud(tmp_path)), "h3", need)
    world = World(plan, tmp_path, 300.0, 100 * HOUR_S, 10 * HOUR_S, refuses_until_s=HOUR_S)
    assert finish(world, need, monkeypatch).state == State.DONE
    assert world.refusals > 1 and [one.market for one in world.given] == ["spot"] and world.begun[0] >= HOUR_S


def test_the_reserve() -> None:
    assert Delays(300.0).reserve_s(600.0) == 0.0
    assert Delays(1800.0, 60.0, 30.0).reserve_s(600.0) == 1290.0
