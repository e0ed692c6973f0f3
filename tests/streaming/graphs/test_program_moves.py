"""Vertices of programs that get another worker while these run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goffish.streaming.graphs.live import LiveGraph
from goffish.streaming.graphs.programs import placement
from goffish.streaming.graphs.programs import run as runs
from goffish.streaming.graphs.programs.bundled import Components
from goffish.streaming.graphs.programs.part import Part
from goffish.streaming.graphs.programs.placement import Directory, Greedy
from tests.streaming.graphs import test_program_ranks, test_programs
from tests.streaming.graphs.test_programs import begin, edges, stream


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move vertices after each epoch."""
    monkeypatch.setattr(runs, "_SNAPSHOT_CHANGES", 1)
    monkeypatch.setattr(placement, "MOVED", 1.0)


@pytest.fixture
def moved(often: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Move vertices at random; return how many were moved each time."""
    found: list[int] = []
    chance = np.random.default_rng(5)
    move = Directory.move

    def proposals(self: Part, workers: int, most: int) -> Any:
        vertices = np.flatnonzero(self.present)
        vertices = chance.permutation(vertices)[: len(vertices) // 2]
        owners = (self.owners[vertices] + chance.integers(1, workers, len(vertices))) % workers
        return self.numbers[vertices], owners.astype(np.int32), np.ones(len(vertices), np.int64)

    def counted(self: Directory, *given: Any, **options: Any) -> Any:
        chosen = move(self, *given, **options)
        found.append(len(chosen.numbers))
        return chosen

    monkeypatch.setattr(Part, "proposals", proposals)
    monkeypatch.setattr(Directory, "move", counted)
    return found


@pytest.mark.parametrize("removals", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.slow
def test_results(removals: bool, moved: list[int]) -> None:
    for seed, workers, partitioner in ((0, 2, "ldg"), (1, 3, "fennel")):
        test_programs.check(seed, 45, workers, partitioner, 4, removals=removals)
    assert sum(moved) > 50


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.slow
def test_ranks(seed: int, moved: list[int]) -> None:
    """The bits do not depend on moves: one worker has none."""
    test_program_ranks.check(
        seed, 60, 6, [(1, "ldg"), (2, "ldg"), (3, "fennel")], **test_program_ranks.OPTIONS[seed]
    )  # fmt: skip
    assert sum(moved) > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", [200, 230])
def test_many_streams(first: int, moved: list[int]) -> None:
    for seed in range(first, first + 30):
        workers, partitioner = (2, 3, 4, 8)[seed % 4], ("ldg", "fennel")[seed % 2]
        test_programs.check(seed, 90, workers, partitioner, (1, 3, 7)[seed % 3], removals=seed % 5 > 0)
        options = test_program_ranks.OPTIONS[seed % len(test_program_ranks.OPTIONS)]
        test_program_ranks.check(seed, 90, 5, [(1, "ldg"), (workers, partitioner)], **options)
    assert sum(moved) > 1000


def groups(seed: int, count: int, size: int) -> list[list[dict[str, Any]]]:
    """Return vertices without edges, then edges between those of the same group, in six epochs."""
    chance = np.random.default_rng(seed)
    vertices = chance.permutation(count * size)
    found = [[{"t": at / 1e6, "op": "+v", "id": int(vertex)} for at, vertex in enumerate(vertices)]]
    for epoch in range(1, 7):
        group = chance.integers(0, count, count * size)
        ends = (group + count * chance.integers(0, size, (2, len(group)))).T.tolist()
        found.append([one | {"t": epoch + at / 1e6} for at, one in enumerate(edges(*map(tuple, ends)))])
    return found


def test_fewer_edges_between_workers(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory and the workers agree, no worker has too many vertices, and those of `hash` stay."""
    monkeypatch.setattr(placement, "LEAST_CAPACITY", 10)
    cuts = {}
    for partitioner in ("ldg", "hash"):
        live = LiveGraph(lateness=0)
        with begin(live, "degrees", 4, partitioner, directed=False) as run:
            for number, epoch in enumerate(groups(1, 20, 20)):
                # After the last one, vertices are where the directory has them.
                monkeypatch.setattr(runs, "_SNAPSHOT_CHANGES", 1 if number < 6 else 10_000)
                live.feed(epoch)
                run.result()
                assert partitioner == "hash" or run.statistics["balance"] <= 1.1
            statistics, directory = run.statistics, run._directory
            owner = dict(zip(run._labels(np.arange(directory.size)).to_pylist(), directory.owner, strict=False))
            assert directory.loads.tolist() == np.bincount(list(owner.values()), minlength=4).tolist()
            pairs = test_programs.Oracle(live).graph.edges
            assert statistics["edges"] == len(pairs)
            assert statistics["cut"] == sum(owner[str(a)] != owner[str(b)] for a, b in pairs) / len(pairs)
            assert (statistics["moves"] > 0) == (partitioner == "ldg")
            cuts[partitioner] = statistics["cut"]
    assert cuts["ldg"] < 0.7 * cuts["hash"]


def test_few_vertices_move_at_once() -> None:
    directory = Directory(2, Greedy())
    nothing = np.zeros(0, np.int64)
    directory.place(np.arange(1000), np.zeros(1000, np.uint64), nothing, nothing)
    owners = directory.owner[:1000].copy()
    gains = np.arange(1000) % 7 + 1
    found = directory.move(np.arange(1000), 1 - owners, gains, upward=True)
    assert len(found.numbers) == 10
    assert (owners[found.numbers] == 0).all()
    assert (found.owners == 1).all()
    assert (gains[found.numbers] == 7).all()
    assert directory.loads.tolist() == np.bincount(directory.owner[:1000]).tolist()


class Killed(Components):
    """Components; a worker is killed when it has got vertices, and another one before it gives some away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("0", "1"):
            (folder / name).touch()

    def moved(self, ctx: Any, came: Any, went: Any) -> None:
        super().moved(ctx, came, went)
        place = self._folder / str(ctx.part._worker)
        if place.exists():
            place.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_workers_that_are_killed(often: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the middle of moves, nothing is lost, and nothing is there twice."""
    monkeypatch.setattr(runs, "_SNAPSHOT_CHANGES", 60)
    live, other = LiveGraph(lateness=0), LiveGraph(lateness=0)
    records = [one for epoch in groups(2, 5, 10) for one in epoch]
    records += [one | {"t": 10 + at} for at, one in enumerate(stream(4, 100, removals=True))]
    with live.run(Killed(tmp_path), every=None, changes=50) as run, begin(other, "components", 1, changes=50) as plain:
        for at in range(0, len(records), 50):
            live.feed(records[at : at + 50])
            other.feed(records[at : at + 50])
        assert run.result().to_dict() == plain.result().to_dict()
        assert run.value == plain.value
        assert run.events().to_pylist() == plain.events().to_pylist()
        assert run.statistics["edges"] == plain.statistics["edges"]
        assert run.statistics["moves"] > 0
        assert 1 <= run.statistics["recoveries"] <= 2
    assert not list(tmp_path.iterdir())
