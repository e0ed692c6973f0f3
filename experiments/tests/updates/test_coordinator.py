"""The state machine of updates: commands for every event, aborts, the queue, and restarts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from experiments.updates.coordinator import Action, Command, Coordinator, Limits, Request, State
from experiments.updates.routing import Tally
from goffish.errors import InputError
from goffish.streaming.updates.versions import Channel, Element, Part, PartialWindow, Strategy, Version

WAYS = [("s", "a"), ("a", "w"), ("w", "t")]
OLD = Version.of(1, {"s": 1, "a": 1, "w": 1, "t": 1}, WAYS, "w")
NEW = Version.of(2, {"s": 1, "a": 2, "w": 1, "t": 1, "x": 1}, [*WAYS, ("a", "x")], "w")
NEXT = Version.of(3, {"s": 1, "a": 2, "w": 3, "t": 1}, WAYS, "w")


def actions(commands: list[Command]) -> list[str]:
    return [command.action.value for command in commands]


def started(strategy: Strategy, **options: Any) -> tuple[Coordinator, list[Command]]:
    coordinator = Coordinator(OLD, Limits(ready=10.0, retry=1.0, drain=30.0))
    return coordinator, coordinator.request(Request(strategy, NEW, **options), 0.0)


def number(coordinator: Coordinator) -> int:
    """The version that reports name."""
    update = coordinator.update
    return 0 if update is None else (update.old if coordinator._restoring else update.new).number


def ready(coordinator: Coordinator, part: Part, now: float) -> list[Command]:
    return coordinator.ready(part, number(coordinator), now)


def failed(coordinator: Coordinator, part: Part, reason: str, now: float) -> list[Command]:
    return coordinator.failed(part, reason, number(coordinator), now)


def acknowledged(coordinator: Coordinator, id: str, now: float) -> list[Command]:
    return coordinator.acknowledged(id, number(coordinator), now)


def counted(coordinator: Coordinator, tally: Tally, partial: dict[str, int], now: float) -> list[Command]:
    return coordinator.counted(tally, partial, number(coordinator), now)


def all_ready(coordinator: Coordinator, parts: tuple[Part, ...], now: float = 1.0) -> list[Command]:
    found: list[Command] = []
    assert coordinator.update is not None
    prepared = [part for part in coordinator.update.old.elements if part not in parts]
    for part in [*prepared, *parts]:
        assert not found, "acts before all parts are ready"
        found = ready(coordinator, part, now)
    return found


def drained(coordinator: Coordinator, now: float = 3.0) -> list[Command]:
    assert counted(coordinator, Tally(7, 7, 7, 7), {}, now) == []
    return counted(coordinator, Tally(7, 7, 7, 7), {}, now)


def test_mvc() -> None:
    """Breaks when a source is notified before all elements are ready, or elements retire before the drain."""
    coordinator, commands = started(Strategy.MVC)
    assert actions(commands) == ["prepare", "deploy"]
    assert set(commands[1].parts) == {Element("a", 2), Element("x", 1), Channel("a", "x")}
    commands = all_ready(coordinator, commands[1].parts)
    assert commands == [Command(Action.NOTIFY, (Element("s", 1),), version=2)]
    assert coordinator.state == State.ACTIVE
    assert actions(acknowledged(coordinator, "s", 2.0)) == ["count"]
    commands = drained(coordinator)
    assert actions(commands) == ["retire", "complete"]
    assert commands[0].parts == (Element("a", 1),)
    assert coordinator.version == NEW
    assert not coordinator.busy


@pytest.mark.parametrize("strategy", [Strategy.HTI, Strategy.PVC])
def test_strategies_that_activate_routers(strategy: Strategy) -> None:
    coordinator, commands = started(strategy)
    commands = all_ready(coordinator, commands[1].parts)
    assert actions(commands) == ["activate"]
    ids = [part.id for part in commands[0].parts if isinstance(part, Element)]
    assert sorted(ids) == ["a", "s", "t", "w", "x"]
    for id in ids[:-1]:
        assert acknowledged(coordinator, id, 2.0) == []
    assert actions(acknowledged(coordinator, ids[-1], 2.0)) == ["count"]
    assert actions(drained(coordinator)) == ["retire", "complete"]


def test_ncl() -> None:
    coordinator, commands = started(Strategy.NCL)
    assert actions(commands) == ["pause", "kill", "deploy"]
    assert set(commands[1].parts) == set(OLD.elements)
    assert set(commands[2].parts) == NEW.parts
    assert actions(all_ready(coordinator, commands[2].parts)) == ["resume", "complete"]


def test_nch_drains_first() -> None:
    coordinator, commands = started(Strategy.NCH)
    assert actions(commands) == ["pause", "prepare", "count"]
    commands = drained(coordinator)
    assert actions(commands) == ["kill", "deploy"]
    assert actions(all_ready(coordinator, commands[1].parts)) == ["resume", "complete"]


def test_readings_at_different_times() -> None:
    """Breaks when sums that agree by chance end the drain: 4 sent here, but one of 4 finished was sent meanwhile."""
    coordinator, commands = started(Strategy.NCH)
    assert counted(coordinator, Tally(4, 4, 4, 4), {}, 1.0) == []
    assert counted(coordinator, Tally(5, 5, 5, 5), {}, 1.0) == []
    assert counted(coordinator, Tally(5, 5, 5, 5), {}, 1.0) != []
    assert coordinator.state == State.DEPLOYING
    assert actions(commands)[-1] == "count"


def test_incomplete_windows_are_flushed_from_the_sources_on() -> None:
    coordinator, commands = started(Strategy.MVC, partial_window=PartialWindow.DROP)
    all_ready(coordinator, commands[1].parts)
    acknowledged(coordinator, "s", 2.0)
    counted(coordinator, Tally(7, 7, 7, 7), {"t": 1, "w": 2}, 3.0)
    assert counted(coordinator, Tally(7, 7, 7, 7), {"t": 1, "w": 2}, 3.0) == [
        Command(Action.FLUSH, (Element("w", 1),), version=2)
    ]
    assert counted(coordinator, Tally(9, 9, 9, 9), {"t": 1}, 3.1) == []  # a flush sends messages: read twice again
    assert counted(coordinator, Tally(9, 9, 9, 9), {"t": 1}, 3.2) == [
        Command(Action.FLUSH, (Element("t", 1),), version=2)
    ]
    counted(coordinator, Tally(9, 9, 9, 9), {}, 3.3)
    assert actions(counted(coordinator, Tally(9, 9, 9, 9), {}, 3.4)) == ["retire", "complete"]


def test_flush_waits_for_batches_that_may_complete_a_window() -> None:
    """Breaks when a join of an old message is cut off from one that entered before the update and is common to both."""
    coordinator, commands = started(Strategy.PVC)
    for part in all_ready(coordinator, commands[1].parts)[0].parts:
        acknowledged(coordinator, str(part[0]), 2.0)
    for _ in range(3):
        assert counted(coordinator, Tally(7, 7, 9, 8), {"w": 1}, 3.0) == []
    assert counted(coordinator, Tally(7, 7, 9, 9), {"w": 1}, 3.1) == []
    assert actions(counted(coordinator, Tally(7, 7, 9, 9), {"w": 1}, 3.1)) == ["flush"]


@pytest.mark.parametrize(
    ("strategy", "before"), [(Strategy.HTI, "activate"), (Strategy.MVC, "retire"), (Strategy.NCH, "kill")]
)
def test_state_is_handed_over_when_the_old_instance_ends(strategy: Strategy, before: str) -> None:
    coordinator, commands = started(strategy, migrated=frozenset("a"))
    seen = list(commands)
    for command in seen:
        if command.action == Action.COUNT:
            seen += drained(coordinator)
        for part in command.parts:
            if command.action in (Action.PREPARE, Action.DEPLOY):
                seen += ready(coordinator, part, 1.0)
            elif command.action in (Action.NOTIFY, Action.ACTIVATE):
                seen += acknowledged(coordinator, part[0], 2.0)
    assert coordinator.version == NEW
    assert ("hand-over", before) in pairwise(actions(seen))
    assert seen.count(Command(Action.HAND_OVER, (Element("a", 2),), version=2)) == 1


def test_ncl_keeps_no_state() -> None:
    with pytest.raises(InputError, match="ncl discards state; migration needs another strategy"):
        started(Strategy.NCL, migrated=frozenset("a"))


def test_ordered_output_closes_the_gate_until_the_drain() -> None:
    coordinator, commands = started(Strategy.MVC, ordered=True)
    assert actions(all_ready(coordinator, commands[1].parts)) == ["close-gate", "notify"]
    acknowledged(coordinator, "s", 2.0)
    assert actions(drained(coordinator)) == ["open-gate", "retire", "complete"]
    with pytest.raises(InputError, match="ordered output needs mvc or pvc"):
        started(Strategy.HTI, ordered=True)


@pytest.mark.parametrize("strategy", [Strategy.HTI, Strategy.MVC, Strategy.PVC])
def test_abort_leaves_the_old_version(strategy: Strategy) -> None:
    """U10: breaks when anything but the new elements is touched."""
    coordinator, commands = started(strategy)
    ready(coordinator, Element("x", 1), 1.0)
    commands = failed(coordinator, Element("a", 2), "no memory", 2.0)
    assert actions(commands) == ["alarm", "retire", "abort"]
    assert (
        commands[0].text == "update to dataflow version 2 aborted: processing element a (version 2) failed: no memory"
    )
    assert set(commands[1].parts) == {Element("a", 2), Element("x", 1), Channel("a", "x")}
    assert (coordinator.state, coordinator.version) == (State.ABORTED, OLD)


def test_elements_that_never_become_ready() -> None:
    coordinator, _ = started(Strategy.PVC)
    ready(coordinator, Element("a", 2), 1.0)
    assert coordinator.tick(9.9) == []
    commands = coordinator.tick(10.0)
    assert actions(commands) == ["alarm", "retire", "abort"]
    assert commands[0].text.endswith("processing element x (version 1) not ready within 10 s")
    assert ready(coordinator, Element("x", 1), 11.0) == []  # too late


@pytest.mark.parametrize("strategy", [Strategy.NCL, Strategy.NCH])
def test_stopped_dataflows_return_to_the_old_version(strategy: Strategy) -> None:
    """Breaks when a failed deployment leaves nothing running."""
    coordinator, _ = started(strategy)
    if strategy == Strategy.NCH:
        drained(coordinator)
    commands = failed(coordinator, Element("a", 2), "no memory", 2.0)
    assert actions(commands) == ["alarm", "kill", "deploy"]
    assert set(commands[2].parts) == OLD.parts
    commands = failed(coordinator, Element("a", 1), "no memory", 2.5)
    assert commands[0].text.startswith("dataflow version 1 does not restart")
    assert actions(all_ready(coordinator, commands[2].parts, 3.0)) == ["resume", "abort"]
    assert (coordinator.state, coordinator.version) == (State.ABORTED, OLD)


def test_notices_are_repeated() -> None:
    coordinator, commands = started(Strategy.MVC)
    all_ready(coordinator, commands[1].parts)
    assert coordinator.tick(1.5) == []
    assert actions(coordinator.tick(2.0)) == ["notify"]
    assert counted(coordinator, Tally(0, 0, 0, 0), {}, 2.1) == []  # the time to deploy is not over
    assert acknowledged(coordinator, "s", 2.2)


def test_late_drain_raises_one_alarm() -> None:
    coordinator, commands = started(Strategy.MVC)
    all_ready(coordinator, commands[1].parts)
    acknowledged(coordinator, "s", 2.0)
    assert actions(coordinator.tick(3.0)) == ["count"]
    commands = coordinator.tick(32.0)
    assert actions(commands) == ["alarm", "count"]
    assert commands[0].text == "dataflow version 1 has not drained within 30 s"
    assert actions(coordinator.tick(33.0)) == ["count"]


def test_next_update_waits() -> None:
    """U9: breaks when three versions run at once."""
    coordinator, commands = started(Strategy.MVC)
    assert coordinator.request(Request(Strategy.PVC, NEXT), 0.5) == []
    with pytest.raises(InputError, match="no element or channel differs from 3"):
        coordinator.request(Request(Strategy.MVC, Version.of(4, NEXT.logic, WAYS, "w")), 0.6)
    all_ready(coordinator, commands[1].parts)
    acknowledged(coordinator, "s", 2.0)
    commands = drained(coordinator)
    assert actions(commands) == ["retire", "complete", "prepare", "deploy"]
    assert coordinator.update is not None
    assert (coordinator.update.old, coordinator.update.new) == (NEW, NEXT)


def test_next_update_after_an_abort() -> None:
    """Breaks when the difference of a queued update is not that to the version that runs."""
    coordinator, _ = started(Strategy.MVC)
    coordinator.request(Request(Strategy.PVC, NEXT), 0.5)
    coordinator.request(Request(Strategy.PVC, Version.of(4, OLD.logic, WAYS, "w")), 0.5)
    commands = failed(coordinator, Element("a", 2), "no memory", 2.0)
    assert actions(commands) == ["alarm", "retire", "abort", "prepare", "deploy"]
    assert set(commands[-1].parts) == {Element("a", 2), Element("w", 3)}
    commands = failed(coordinator, Element("a", 2), "no memory", 2.0)
    assert actions(commands) == ["alarm", "retire", "abort", "alarm"]  # version 4 is what runs
    assert "no element or channel differs from 1" in commands[-1].text


def test_late_reports_of_an_earlier_update() -> None:
    """Breaks when an element of an aborted update counts as ready in the next one, which has the same element."""
    coordinator, _ = started(Strategy.MVC)
    failed(coordinator, Element("x", 1), "no memory", 1.0)
    with pytest.raises(InputError, match="the number must be above 2"):
        coordinator.request(Request(Strategy.MVC, replace(NEXT, number=2)), 2.0)
    coordinator.request(Request(Strategy.MVC, NEXT), 2.0)
    for part in (*OLD.elements, Element("w", 3)):
        assert ready(coordinator, part, 3.0) == []
    assert coordinator.ready(Element("a", 2), 2, 3.0) == []
    assert coordinator.state == State.DEPLOYING
    assert actions(coordinator.ready(Element("a", 2), 3, 3.0)) == ["notify"]
    assert coordinator.acknowledged("s", 2, 3.5) == []
    assert coordinator.state == State.ACTIVE


def test_removals_need_no_deployment() -> None:
    coordinator = Coordinator(NEW)
    smaller = Version.of(3, {"s": 1, "a": 2, "w": 1, "t": 1}, WAYS, "w")
    commands = coordinator.request(Request(Strategy.MVC, smaller), 0.0)
    assert actions(commands) == ["prepare"]
    assert actions(all_ready(coordinator, commands[0].parts)) == ["notify"]
    acknowledged(coordinator, "s", 0.1)
    commands = drained(coordinator)
    assert commands[0] == Command(Action.RETIRE, (Channel("a", "x"), Element("x", 1)), version=3)


def test_requests_are_checked_at_once() -> None:
    with pytest.raises(InputError, match="migrated element 's' does not change"):
        started(Strategy.MVC, migrated=frozenset("s"))


def restored(coordinator: Coordinator) -> Coordinator:
    return Coordinator.from_dict(json.loads(json.dumps(coordinator.to_dict())))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_restarts_between_all_events(strategy: Strategy) -> None:
    """Breaks when a coordinator that is restored from its record behaves in another way than one that lives on."""
    kept, commands = started(strategy)
    stored = restored(kept)
    for _ in range(40):
        if not kept.busy:
            break
        waiting = commands[-1]
        if kept.state in (State.REQUESTED, State.DRAINING):
            commands = drained(kept)
            counted(stored, Tally(7, 7, 7, 7), {}, 3.0)  # the readings are taken again after a restart
            assert counted(stored, Tally(7, 7, 7, 7), {}, 3.0) == commands
        elif kept.state == State.DEPLOYING:
            part = min(kept._waiting, key=str)
            commands = ready(kept, part, 1.0)
            assert ready(stored, part, 1.0) == commands
        else:
            part = next(part for part in waiting.parts if part in kept._waiting)
            assert isinstance(part, Element)
            commands = acknowledged(kept, part.id, 2.0)
            assert acknowledged(stored, part.id, 2.0) == commands
        commands = commands or [waiting]
        stored = restored(stored)
        assert stored.to_dict() == kept.to_dict()
    assert kept.state == State.COMPLETE


def test_restart_before_and_after_the_activation() -> None:
    """§3.7: breaks when a dead coordinator stops the old version, or its successor does not retire it."""
    coordinator, commands = started(Strategy.MVC)
    assert actions(restored(coordinator).restart(5.0)) == ["alarm", "retire", "abort"]
    all_ready(coordinator, commands[1].parts)
    assert actions(restored(coordinator).restart(5.0)) == ["notify"]
    acknowledged(coordinator, "s", 2.0)
    again = restored(coordinator)
    assert actions(again.restart(5.0)) == ["count"]
    assert actions(drained(again)) == ["retire", "complete"]
    assert again.restart(6.0) == []
    lossy, _ = started(Strategy.NCL)
    assert actions(restored(lossy).restart(5.0)) == ["deploy"]
    slow, _ = started(Strategy.NCH)
    assert actions(restored(slow).restart(5.0)) == ["pause", "count"]
