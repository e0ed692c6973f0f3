"""Workers that are added to running programs, and removed."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goffish.errors import InputError, JobError
from goffish.streaming.graphs.live import LiveGraph
from goffish.streaming.graphs.programs import placement, ranks
from goffish.streaming.graphs.programs import run as runs
from goffish.streaming.graphs.programs.bundled import Components
from goffish.streaming.graphs.programs.placement import Directory, Greedy, Hash
from goffish.streaming.graphs.programs.program import LiveProgram
from goffish.streaming.graphs.programs.run import Load, ProgramRun
from goffish.streaming.runtime.launch import start_here
from tests.streaming.graphs import test_programs
from tests.streaming.graphs.test_program_moves import groups
from tests.streaming.graphs.test_programs import SINKS, SOURCES, Largest, Oracle, begin, edges, stream

PROGRAMS: list[tuple[str, dict[str, Any]]] = [
    ("components", {}), ("distances", {"source": 0}), ("reachability", {"sources": SOURCES, "sinks": SINKS}),
    ("triangles", {}), ("degrees", {}), ("pagerank", {"tolerance": 1e-8}),
]  # fmt: skip


def agrees(run: ProgramRun, live: LiveGraph) -> None:
    """Compare what the directory has with the pairs that workers have."""
    directory = run._directory
    owner = dict(zip(run._labels(np.arange(directory.size)).to_pylist(), directory.owner.tolist(), strict=False))
    loads = np.bincount(list(owner.values()), minlength=len(directory.loads))
    assert directory.loads.tolist() == loads.tolist()
    assert {*owner.values()} <= set(run._workers)
    oracle = Oracle(live)
    pairs = (oracle.directed if run._program.directed else oracle.graph).edges
    crossing = sum(owner[str(a)] != owner[str(b)] for a, b in pairs)
    assert (run.statistics["edges"], run.statistics["cut"]) == (len(pairs), crossing / max(len(pairs), 1))


def compare(run: ProgramRun, plain: ProgramRun) -> None:
    """Compare results, to the bit."""
    assert run.result().table.equals(plain.result().table)
    assert run.value == plain.value


def check(seed: int, size: int, batch: int, partitioner: str, programs: list[tuple[str, dict[str, Any]]]) -> int:
    """Compare programs that are scaled at random with those of one worker, to the bit; return how many moved."""
    moves = 0
    for name, options in programs:
        chance = random.Random(seed)
        live, other = LiveGraph(lateness=0), LiveGraph(lateness=0)
        records = list(stream(seed, size, removals=seed % 3 > 0))
        run, plain = begin(live, name, 1 + seed % 3, partitioner, **options), begin(other, name, 1, **options)
        found: list[int] = []
        for at in range(0, size, batch):
            live.feed(records[at : at + batch])
            other.feed(records[at : at + batch])
            if chance.random() < 0.5:
                run.scale(chance.randint(1, 4))  # the epoch has not ended
            compare(run, plain)
            if chance.random() < 0.3:
                run.scale(chance.randint(1, 4))
                compare(run, plain)
                if not len(run._moves.numbers):  # those that workers have not made yet
                    agrees(run, live)
            found.append(run.statistics["workers"])
        assert len({*found}) > 1
        assert run.events().to_pylist() == plain.events().to_pylist()
        expected = plain.statistics
        for one in ("epochs", "changes", "edges", "lag"):
            assert run.statistics[one] == expected[one]
        moves += run.statistics["moves"]
        run.close()
        plain.close()
    return moves


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Balance parts of few vertices, and let PageRank begin anew with more of them."""
    monkeypatch.setattr(placement, "LEAST_CAPACITY", 4)
    monkeypatch.setattr(ranks, "_FIRST_BITS", 2)


@pytest.mark.parametrize("name", range(len(PROGRAMS)))
@pytest.mark.slow
def test_results(name: int, small: None) -> None:
    assert check(5 + name, 60, 6, ("ldg", "hash")[name % 2], [PROGRAMS[name]]) > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(300, 360, 10))
def test_many_streams(first: int, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MOVED", 1.0)
    for seed in range(first, first + 10):
        monkeypatch.setattr(runs, "_SNAPSHOT_CHANGES", (1, 30, 10_000)[seed % 3])
        check(seed, 90, (1, 5, 13)[seed % 3], ("ldg", "fennel", "hash")[seed % 3 - seed % 2], PROGRAMS)


@pytest.mark.parametrize("scaled", [True, False])
def test_epochs_go_on(scaled: bool) -> None:
    """Scaling ends no epoch: they are those of a run whose workers stay."""
    live = LiveGraph(lateness=0)
    run, found = begin(live, "components", 2, every=7_000_000, changes=5), []
    for at, record in enumerate(stream(5, 60, removals=True)):
        live.feed([record])
        if scaled and at % 9 == 5:
            run.scale(1 + at % 4)
        found.append(run.statistics["epochs"] + run.statistics["lag"])
    run.result()
    events = run.events().to_pylist()
    run.close()
    assert {one["status"] for one in events} == {"MERGED", "SPLIT"}
    other = LiveGraph(lateness=0)
    with begin(other, "components", 1, every=7_000_000, changes=5) as plain:
        for at, record in enumerate(stream(5, 60, removals=True)):
            other.feed([record])
            assert plain.statistics["epochs"] + plain.statistics["lag"] == found[at]
        plain.result()
        assert plain.events().to_pylist() == events


def test_fewer_edges_between_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are divided along few edges, and evenly; numbers of workers that were removed are used again."""
    monkeypatch.setattr(placement, "LEAST_CAPACITY", 10)
    live = LiveGraph(lateness=0)
    epochs = groups(1, 20, 20)
    live.feed([one for epoch in epochs for one in epoch])
    with begin(live, "components", 1) as run:
        run.result()
        for workers in (2, 4, 3, 5, 2, 1, 3):
            run.scale(workers)
            assert run.statistics["workers"] == workers == len(run.statistics["seconds"])
            assert run.statistics["balance"] <= 1.1
            agrees(run, live)
            assert run.statistics["cut"] < 0.75 * (1 - 1 / workers) or workers == 1  # of those placed by chance
            assert max(run._workers) < 5
            live.feed([{"t": 100 + workers, "op": "+v", "id": 1000 + workers}])
            run.result()
        assert run.value == len(Oracle(live).components())


def test_which_workers_are_removed() -> None:
    """The one with the fewest vertices; each of these goes where its neighbors are."""
    directory = Directory(3, Hash())
    nothing = np.zeros(0, np.int64)
    directory.place(np.arange(12), np.array([0, 1, 2, 0, 2, 0, 2, 0, 2, 1, 0, 0], np.uint64), nothing, nothing)
    assert directory.loads.tolist() == [6, 2, 4]
    moves = directory.scale(2, np.array([1, 9]), np.array([2, 0]))
    assert (moves.numbers.tolist(), moves.owners.tolist()) == ([1, 9], [2, 0])
    assert (directory.workers.tolist(), directory.loads.tolist()) == ([0, 2], [7, 0, 5])
    directory.place(np.arange(2), np.array([0, 1], np.uint64), nothing, nothing)
    assert directory.owner[12:14].tolist() == [0, 2]
    moves = directory.scale(3, nothing, nothing)
    assert directory.workers.tolist() == [0, 1, 2]
    assert (moves.owners == 1).all()
    assert directory.loads.tolist() == [6, 3, 5]


def test_a_graph_without_vertices() -> None:
    live = LiveGraph(lateness=0)
    with begin(live, "pagerank", 1) as run:
        run.scale(3)
        assert run.result().table.num_rows == 0
        run.scale(2)
        live.feed(edges((1, 2), (2, 1)))
        assert run.result().to_dict() == pytest.approx({1: 0.5, 2: 0.5}, abs=1e-6)


def test_vertices_that_do_not_exist_yet() -> None:
    """Those that options name have workers before they are added."""
    live = LiveGraph(lateness=0)
    with begin(live, "reachability", 4, "hash", sources=range(20), sinks=[30]) as run:
        run.scale(1)
        live.feed(edges(*((one, 30) for one in range(20))))
        run.result()
        assert run.value == 20


class Fixed(Largest):
    """Its vertices stay where they are."""


class Broken(Components):
    """Names an attribute that does not exist."""

    totals = ("_none",)


@pytest.mark.parametrize(("workers", "message"), [
    (0, "workers = 0: accepted are 1 to 256"), (257, "workers = 257"), (True, "workers = True"),
    (2.0, "workers = 2.0"), (1, "capacity = 3: 1 workers cannot have 4 vertices"),
])  # fmt: skip
def test_numbers_that_are_not_accepted(workers: Any, message: str) -> None:
    live = LiveGraph(lateness=0)
    with begin(live, "components", 2, Greedy(capacity=3)) as run:
        live.feed(edges((1, 2), (3, 4)))
        run.result()
        with pytest.raises(InputError, match=message):
            run.scale(workers)
        live.feed(edges((2, 3), t=2))  # the run goes on
        run.result()
        assert run.value == 1


def test_programs_that_are_not_scaled() -> None:
    live = LiveGraph(lateness=0)
    with begin(live, Fixed(), 2) as run:
        live.feed(edges((1, 2)))
        run.scale(2)
        with pytest.raises(InputError, match="program Fixed: has 2 workers until it ends, as it is not movable"):
            run.scale(3)
        assert len(run.result().to_dict()) == 2
    with pytest.raises(InputError, match="the run is closed"):
        run.scale(1)
    broken = begin(live, Broken(), 2)
    with pytest.raises(JobError, match=r"program Broken, worker \d, .*AttributeError.*_none"):
        broken.scale(1)


class Counter(LiveProgram):
    """Counts edges that were added, where one end is; movable without any vertex in its attributes."""

    movable = True
    totals = ("counted",)
    common = ("epochs",)
    directed = False

    def start(self, ctx: Any) -> None:
        self.counted, self.epochs = np.zeros(2, np.int64), 0

    def changes(self, ctx: Any, change: Any) -> None:
        self.epochs += 1
        here = ctx.owned[np.where(ctx.numbers[change.sources] < ctx.numbers[change.targets], *self._ends(change))]
        self.counted += [np.count_nonzero(here), len(change.new)]

    @staticmethod
    def _ends(change: Any) -> tuple[Any, Any]:
        return change.sources, change.targets

    def finish(self, ctx: Any) -> Any:
        return self.epochs, self.counted

    def aggregate(self, partials: Any) -> Any:
        assert len({epochs for epochs, _ in partials}) == 1
        return partials[0][0], sum(counted for _, counted in partials).tolist()


def test_attributes_of_programs() -> None:
    live = LiveGraph(lateness=0)
    with begin(live, Counter(), 2, "hash") as run:
        for epoch, workers in enumerate((1, 3, 2, 4, 1, 2), 1):
            live.feed(edges((epoch, epoch + 1), (epoch, -epoch), t=epoch))
            run.result()
            assert run.value == (epoch, [2 * epoch, 2 * epoch + 1])
            run.scale(workers)


# Workers by load.


def begin_by_load(live: LiveGraph, least: int, most: int, program: Any) -> ProgramRun:
    run = begin(live, program, least, changes=5)
    run._settings = run._settings._replace(most=most)
    return run


def test_when_workers_are_added_and_removed() -> None:
    load = Load()
    assert [load.check(3, 1.0) for _ in range(7)] == [0, 0, 1, 0, 0, 1, 0]
    assert [load.check(lag, 1.0) for lag in (2, 3, 3, 1, 3, 3)] == [0] * 6
    assert [load.check(1, 0.29) for _ in range(20)] == ([0] * 9 + [-1]) * 2
    assert [load.check(1, busy) for busy in (*[0.1] * 9, 0.31, *[0.1] * 9)] == [0] * 19
    load = Load()
    assert [load.check(3, 0.1) for _ in range(12)] == [0, 0, 1] * 4  # slow, but not by the processor


def test_results_do_not_depend_on_load(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, found = random.Random(4), []
    monkeypatch.setattr(Load, "check", lambda self, lag, busy: chance.choice([-1, 0, 1]))
    for name, seed in (("components", 1), ("pagerank", 2)):
        live, other = LiveGraph(lateness=0), LiveGraph(lateness=0)
        run, plain = begin_by_load(live, 1, 4, name), begin(other, name, 1, changes=5)
        records = list(stream(seed, 120, removals=True))
        for at in range(0, 120, 40):
            live.feed(records[at : at + 40])
            other.feed(records[at : at + 40])
            compare(run, plain)
            found.append(run.statistics["workers"])
        assert run.events().to_pylist() == plain.events().to_pylist()
        assert run.statistics["epochs"] == plain.statistics["epochs"]
        run.close()
        plain.close()
    assert len({*found}) > 1
    assert {*found} <= {1, 2, 3, 4}


class Slow(Components):
    """Components that take their time."""

    def changes(self, ctx: Any, change: Any) -> None:
        time.sleep(0.01)
        super().changes(ctx, change)


def test_workers_by_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is behind gets workers, and loses them once they have nothing to do; within the bounds."""
    live = LiveGraph(lateness=0)
    with begin_by_load(live, 1, 3, Slow()) as run:
        live.feed(stream(1, 150, removals=False))
        assert run.statistics["workers"] == 3
        monkeypatch.setattr(runs, "_LEAST_BUSY", 1e9)
        for at, record in enumerate(stream(2, 150, removals=False)):
            live.feed([record | {"t": 1000 + at, "id": 1000 + at}])
            run.wait()
        run.result()
        assert run.statistics["workers"] == 1
        assert run.value == len(Oracle(live).components())


@pytest.mark.slow
def test_processes_by_load() -> None:
    live = LiveGraph(lateness=0)
    with live.run(Slow(), workers=(1, 2), every=None, changes=5) as run:
        assert len(run._processes) == 1
        live.feed(stream(1, 60, removals=False))
        assert len(run._processes) == run.statistics["workers"] == 2
        run.result()
        assert run.value == len(Oracle(live).components())


@pytest.mark.parametrize(("workers", "message"), [
    ((3, 2), "the first number must not exceed"), ((1, 2, 3), "accepted are a number, or the smallest and the largest"),
    ((0, 2), "workers = 0"), ((1, 257), "workers = 257"), ([1, 2], r"workers = \[1, 2\]"),
])  # fmt: skip
def test_ranges_that_are_not_accepted(workers: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LiveGraph(lateness=0).run("components", workers=workers)
    with pytest.raises(InputError, match="program Fixed: workers must be one number, as it is not movable"):
        LiveGraph(lateness=0).run(Fixed(), workers=(1, 2))


class Killed(Components):
    """Components; a worker is killed when vertices are moved, once for each file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def moved(self, ctx: Any, came: Any, went: Any) -> None:
        super().moved(ctx, came, went)
        place = self._folder / str(ctx.part._worker)
        if place.exists():
            place.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_workers_that_are_killed(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while workers are added or removed, nothing is lost, and nothing is there twice."""
    monkeypatch.setattr(runs, "_SNAPSHOT_CHANGES", (40, 10_000, 1)[seed])
    live, other = LiveGraph(lateness=0), LiveGraph(lateness=0)
    records = list(stream(seed, 120, removals=True))
    recoveries = 0
    with live.run(Killed(tmp_path), workers=2, every=None, changes=9) as run:
        plain = begin(other, "components", 1, changes=9)
        for at, workers, killed in ((0, 3, (2,)), (30, 4, (0, 1)), (60, 2, (3,)), (90, 1, (0, 1))):
            live.feed(records[at : at + 30])
            other.feed(records[at : at + 30])
            for one in killed:
                (tmp_path / str(one)).touch()
            run.scale(workers)
            for left in tmp_path.iterdir():  # of those that were already ended
                left.unlink()
            assert run.statistics["recoveries"] > recoveries
            recoveries = run.statistics["recoveries"]
            assert len(run._processes) == workers
            if at == 60:  # one that was not killed before
                os.kill(run._processes[run._workers[0]].pid, signal.SIGKILL)
            compare(run, plain)
        assert run.events().to_pylist() == plain.events().to_pylist()
        assert run.statistics["edges"] == plain.statistics["edges"]
        plain.close()


@pytest.mark.slow
@pytest.mark.parametrize("ends", [False, True])
def test_workers_that_fail_while_others_start(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_MOST_FAILURES", 1)
    live = LiveGraph(lateness=0)
    started: list[int] = []
    with live.run("triangles", workers=2, every=None, changes=9) as run:
        live.feed(edges((1, 2), (2, 3), (3, 1)))

        def start(number: int, command: Any) -> Any:
            started.append(number)
            if started == [2]:
                os.kill(run._processes[0].pid, signal.SIGKILL)
            return start_here(number, ["false"] if ends and number == 2 else command)

        run._settings = run._settings._replace(launcher=start)
        if ends:
            with pytest.raises(JobError, match="worker processes failed 2 times while they were added or removed"):
                run.scale(3)
            assert not run._processes
            assert not run._folder.exists()
            return
        run.scale(3)
        assert started == [2, 0, 1, 2]
        live.feed(edges((3, 4), (4, 1), t=2))
        run.result()
        assert (run.value, run.statistics["recoveries"], run.statistics["workers"]) == (2, 1, 3)


@pytest.mark.slow
def test_processes(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes begin and end; a recovery after them begins with those that there are."""
    live = LiveGraph(lateness=0)
    records = list(stream(3, 90, removals=True))
    with live.run("triangles", workers=1, every=None, changes=9) as run:
        for at, workers in ((0, 3), (30, 2), (60, 3)):
            live.feed(records[at : at + 30])
            before = [one.pid for one in run._processes.values()]
            run.scale(workers)
            after = [one.pid for one in run._processes.values()]
            assert len(after) == workers
            assert not [one for one in {*before} - {*after} if test_programs._runs(one)]
            run.result()
            assert run.value == Oracle(live).triangles()
            assert len(list(run._folder.glob("snapshot-*-scaled-*"))) == workers
        assert run.statistics["recoveries"] == 0
        os.kill(run._processes[0].pid, signal.SIGKILL)
        live.feed(edges((100, 101), (101, 102), (102, 100), t=200))
        run.result()
        assert run.value == Oracle(live).triangles()
        assert run.statistics["recoveries"] == 1
