"""Registries: one of several processes that replace the same view succeeds, and all read the same versions."""

from __future__ import annotations

import json
from multiprocessing import get_context
from pathlib import Path

import pytest

from goffish.streaming.ring.ranges import CIRCLE, Ranges
from goffish.streaming.ring.registry import FileRegistry
from goffish.streaming.ring.view import Member, MemoryRegistry, Move, Registry, View
from goffish.streaming.runtime.remote import answer_call

FIRST = View(1, (Member(1, 0, "a"), Member(2, CIRCLE - 1, "b")), 1, frozenset({7, 8}))
MOVE = Move(1, 3, CIRCLE // 2, CIRCLE - 1, ((3, Ranges(((4, 5), (CIRCLE - 3, CIRCLE)))),), True, "c")


@pytest.fixture(params=["memory", "file"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    return MemoryRegistry(FIRST) if request.param == "memory" else FileRegistry(tmp_path / "ring", FIRST)


def test_versions(registry: Registry) -> None:
    second = FIRST.changed(moves=(MOVE,))
    assert registry.read() == FIRST
    assert registry.replace(second)
    assert not registry.replace(second)
    assert not registry.replace(FIRST.changed(mappers=frozenset()))
    assert not registry.replace(second.changed().changed())
    third = second.taken_over(3, MOVE.start, (1,), MOVE.zone)
    assert registry.replace(third)
    assert registry.since(0) == [FIRST, second, third]
    assert registry.since(2) == [third]
    assert registry.since(3) == []
    assert registry.read().senders == {7, 8}
    assert registry.replace(third.changed(mappers=None))
    assert registry.read().senders == {2, 3}


def test_lanes(registry: Registry) -> None:
    registry.claim("a", 1)
    registry.claim("b", 2)
    registry.claim("a", 2)
    assert registry.lanes(1) == {"a": 0}
    registry.adopt([1, 9], 2)
    registry.claim("a", 1)
    assert registry.lanes(1) == {}
    assert registry.lanes(2) == {"a": 1, "b": 0}


def test_lanes_that_are_handed_over(registry: Registry) -> None:
    registry.claim("a", 1)
    assert registry.handed("a") is None
    assert not registry.hand("a", 1, 9, "not a member")
    assert not registry.hand("a", 2, 1, "of another")
    assert registry.hand("a", 1, 2, "here")
    assert (registry.lanes(1), registry.lanes(2), registry.handed("a")) == ({}, {"a": 1}, "here")
    assert not registry.hand("a", 1, 2, "again")
    registry.replace(FIRST.taken_over(1, 0, (2,)))
    registry.adopt([2], 1)
    assert (registry.lanes(1), registry.handed("a")) == ({"a": 2}, "here")


def test_calls_of_other_hosts(tmp_path: Path) -> None:
    """Breaks when the controller does not carry out what `RemoteRegistry` asks for."""
    registry = FileRegistry(tmp_path / "ring", FIRST)

    def call(*arguments: object) -> object:
        return answer_call(registry, json.dumps(arguments))

    call("claim", "a", 1)
    assert call("handed", "a") is None
    assert call("hand", "a", 1, 2, "here") is True and call("hand", "a", 1, 2, "again") is False
    assert (call("lanes", 2), call("lanes", None), call("handed", "a")) == ({"a": 1}, {"a": 1}, "here")
    call("adopt", [2], 1)
    assert call("lanes", 1) == {"a": 2}
    registry.close()


def test_file_survives(tmp_path: Path) -> None:
    registry = FileRegistry(tmp_path / "ring", FIRST)
    registry.replace(FIRST.changed(moves=(MOVE,)))
    registry.close()
    again = FileRegistry(tmp_path / "ring", FIRST)
    assert again.read().moves == (MOVE,)
    again.close()


def count_up(path: Path, times: int) -> None:
    registry = FileRegistry(path)
    for _ in range(times):
        while not registry.replace((view := registry.read()).changed(mappers=view.senders | {view.epoch})):
            pass


def test_processes_compete(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    registry = FileRegistry(path, FIRST)
    context = get_context("spawn")
    processes = [context.Process(target=count_up, args=(path, 20)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert registry.read().epoch == 61
    assert len(registry.since(0)) == 61
