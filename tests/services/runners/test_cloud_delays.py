"""Deadlines of jobs whose machines start later than planned: the control loop on simulated processes and time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goffish.cloud.providers import Task
from goffish.services.runners import cloud
from goffish.services.runners.attempt import Ended
from goffish.services.runners.cloud import Delays, _Rented
from goffish.services.runners.cloud_planning import Need, Plan, Planner
from goffish.services.store.records import State
from tests.services.runners.rented import CALM, HIGH, PACE, cloud_of, write_cloud

HOUR_S = 3600.0


@dataclass
class World:
    """A job folder, a clock, and a provider whose machines take a given time to start, in simulated seconds.

    The price of spot machines rises at some time; checkpoints are written after every whole hour of work.
    """

    plan: Plan
    path: Path
    start_s: float
    rise_s: float
    deadline_s: float
    now: float = 0.0
    done: dict[str, Any] | None = None
    done_h: float = 0.0
    machines: list[dict[str, Any]] = field(default_factory=list)
    session: int | None = None
    busy: bool = False
    turn: str = ""
    log: Path = Path("log")

    # The provider.

    def prices(self) -> list[float]:
        high = self.now >= self.rise_s
        spot = self.plan.market.rules.spot.tolist()
        return [(HIGH if high else CALM) if one else 0.2 for one in spot]

    def start(self, kind: int) -> int:
        self.machines.append({"kind": kind, "begun": self.now, "ended": None, "state": "starting", "runs": None})
        return len(self.machines) - 1

    def stop(self, machine: int) -> None:
        self.machines[machine] |= {"ended": self.now, "state": "stopped"}

    def states(self) -> list[str]:
        return [one["state"] for one in self.machines]

    def taken(self, machine: int) -> bool:
        return bool(self.plan.market.rules.spot[self.machines[machine]["kind"]])

    def life(self, machine: int) -> tuple[float, float]:
        one = self.machines[machine]
        return one["begun"], self.now if one["ended"] is None else one["ended"]

    def spent(self) -> float:
        return 0.0

    def submit(self, machine: int, command: list[str]) -> Task:
        self.machines[machine]["runs"] = self.machines[machine]["begun"] + self.start_s
        return Task(machine, 0)

    def exit_code(self, task: Task) -> int | None:
        return None if self.done is None else 0

    # The folder.

    @property
    def saved(self) -> int | None:
        return int(self.done_h) or None

    def prepare(self, *_: Any) -> str:
        return "1.1"

    # The time.

    def sleep(self, seconds: float) -> None:
        self.now += seconds * PACE
        for number, one in enumerate(self.machines):
            if one["ended"] is not None:
                continue
            if self.now >= self.rise_s and self.taken(number):
                one |= {"ended": self.now, "state": "failed"}
                # A checkpoint of all whole hours.
                self.done_h = float(int(self.done_h))
            elif one["state"] == "starting":
                one["state"] = "running"
            if one["ended"] is None and one["runs"] is not None and self.now >= one["runs"]:
                self.session = number
                self.done_h += seconds * PACE / HOUR_S
        if self.done_h >= self.plan.work * self.plan.slot_s / HOUR_S and self.done is None:
            self.done = {"rows": 1, "summary": {}}

    def monotonic(self) -> float:
        return self.now / PACE


class Timed:
    """The attempt of a job in that world."""

    def __init__(self, world: World) -> None:
        graph = SimpleNamespace(policy="rtba", cpu_seconds=None)
        self.folder = world
        self.job = SimpleNamespace(cost=0.0, attempts=1, state=State.PLANNED, spec=SimpleNamespace(graph=graph))

    @property
    def time_left_s(self) -> float:
        return (self.folder.deadline_s - self.folder.now) / PACE

    def move(self, state: State, *_: Any, **__: Any) -> None:
        self.job.state = state

    def note(self, *_: Any, **__: Any) -> None:
        pass

    def stops(self) -> str | None:
        return "deadline" if self.time_left_s <= 0 else None

    def ended(self, why: str) -> Ended:
        return Ended(State.FAILED, why)


def finish(world: World, need: Need, monkeypatch: pytest.MonkeyPatch) -> Ended:
    priced = SimpleNamespace(priced=lambda _: SimpleNamespace(classes=[SimpleNamespace(price_per_hour=HIGH)]))
    with monkeypatch.context() as patch:
        patch.setattr(cloud, "time", world)
        patch.setattr(cloud, "EventWriter", lambda _: SimpleNamespace(write=lambda: None))
        patch.setattr(cloud, "SpotMarket", lambda *_: priced)
        patch.setattr(cloud, "lost", lambda *_: None)
        order = {"limits": {"memory_mb": None}}
        return _Rented(Timed(world), world.plan, need, world, order, PACE, 0.0).run()  # type: ignore[arg-type]


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
        kinds = ["spot" if plan.market.rules.spot[one["kind"]] else "on demand" for one in world.machines]
        assert kinds[0] == "spot" and kinds[-1] == "on demand"
    assert ended[True].state == State.DONE
    # Otherwise the job waits for lower prices until the planned start-up is the only time left.
    assert (ended[False].state == State.DONE) is (start_s == need.startup_s)


def test_the_reserve() -> None:
    assert Delays(300.0).reserve_s(600.0) == 0.0
    assert Delays(1800.0, 60.0, 30.0).reserve_s(600.0) == 1290.0
