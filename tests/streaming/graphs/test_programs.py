"""Programs on several workers, compared with NetworkX after every epoch."""

from __future__ import annotations

import os
import random
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.streaming.graphs.live import LiveGraph
from goffish.streaming.graphs.programs import run as runs
from goffish.streaming.graphs.programs.bundled import Components, program_of
from goffish.streaming.graphs.programs.placement import Directory, Greedy
from goffish.streaming.graphs.programs.program import LiveProgram
from goffish.streaming.graphs.programs.run import ProgramRun, Settings
from goffish.streaming.graphs.programs.worker import Packet, Worker, _Lost
from goffish.streaming.runtime.links import listen

Records = list[dict[str, Any]]
_WORKERS = (1, 2, 4, 8)
_PARTITIONERS = ("hash", "ldg", "fennel")


class Threads:
    """Starts workers as threads of this process, with the sockets that processes have."""

    pid = 0

    def __call__(self, number: int, command: Sequence[str]) -> Threads:
        _, _, _, folder, worker, snapshot = command
        started = Threads()
        started.thread = threading.Thread(  # type: ignore[attr-defined]
            target=lambda: Worker(Path(folder), int(worker), snapshot).run(), daemon=True
        )
        started.thread.start()  # type: ignore[attr-defined]
        return started

    def poll(self) -> int | None:
        return None

    def kill(self) -> None:
        pass  # a worker ends when its connection is closed

    def wait(self, timeout: float | None = None) -> int:
        return 0


def begin(
    live: LiveGraph, program: str | LiveProgram, workers: int = 2, partitioner: Any = "ldg", every: int | None = None,
    changes: int = 1 << 30, **options: Any,
) -> ProgramRun:  # fmt: skip
    """Run a program on threads."""
    engine = live._engine
    settings = Settings(workers, partitioner, every, changes, None, 100_000, Threads())
    found = ProgramRun(engine.state, engine.encoder, program_of(program, options), settings, engine.now)
    found.attach(live._check, engine.followers.discard)
    engine.followers.add(found)
    return found


def edges(*pairs: tuple[Any, Any], t: float = 1, op: str = "+e") -> Records:
    return [{"t": t + at / 1000, "op": op, "src": a, "dst": b} for at, (a, b) in enumerate(pairs)]


def stream(seed: int, size: int, *, removals: bool) -> Iterator[dict[str, Any]]:
    """Yield random changes: parallel edges, loops, isolated vertices and, possibly, removals."""
    chance = random.Random(seed)
    vertices = chance.choice([6, 12, 25])
    living: list[int] = []
    for time_ in range(1, size + 1):
        x = chance.random()
        if x < 0.1:
            yield {"t": time_, "op": "+v", "id": chance.randrange(vertices)}
        elif x < 0.65 or not removals or not living:
            a, b = chance.randrange(vertices), chance.randrange(vertices)
            living.append(time_)
            yield {"t": time_, "op": "+e", "id": time_, "src": a, "dst": b}
        elif x < 0.93:
            yield {"t": time_, "op": "-e", "id": living.pop(chance.randrange(len(living)))}
        else:
            yield {"t": time_, "op": "-v", "id": chance.randrange(vertices)}


class Oracle:
    """The graph and the answers as NetworkX finds them."""

    def __init__(self, live: LiveGraph) -> None:
        self.directed = nx.DiGraph()
        self.directed.add_nodes_from(live.vertices["id"].to_pylist())
        table = live.edges
        ends = zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
        self.directed.add_edges_from((a, b) for a, b in ends if a != b)
        self.graph = self.directed.to_undirected()

    def components(self) -> set[frozenset[int]]:
        return {frozenset(one) for one in nx.connected_components(self.graph)}

    def distances(self, source: int, *, directed: bool) -> dict[int, int]:
        graph = self.directed if directed else self.graph
        found = nx.single_source_shortest_path_length(graph, source) if source in graph else {}
        return {vertex: found.get(vertex, -1) for vertex in graph}

    def pairs(self, sources: Sequence[int], sinks: Sequence[int], *, directed: bool) -> set[tuple[int, int]]:
        graph = self.directed if directed else self.graph
        reached = {one: nx.descendants(graph, one) for one in sources if one in graph}
        return {(one, sink) for one, sinks_of in reached.items() for sink in sinks if sink in sinks_of}

    def triangles(self) -> int:
        return int(sum(nx.triangles(self.graph).values())) // 3


def grouped(labels: dict[int, int]) -> set[frozenset[int]]:
    found: dict[int, set[int]] = {}
    for vertex, label in labels.items():
        found.setdefault(label, set()).add(vertex)
    return {frozenset(one) for one in found.values()}


def folded(events: pa.Table) -> set[tuple[int, int]]:
    """Return the pairs that are connected after events; each changes something."""
    pairs: set[tuple[int, int]] = set()
    for one in events.to_pylist():
        pair = (int(one["source"]), int(one["sink"]))
        assert (pair in pairs) == (one["status"] == "UNREACHABLE")
        pairs ^= {pair}
    return pairs


SOURCES, SINKS = [0, 2, 4], [1, 2, 3, 5]


def check(seed: int, size: int, workers: int, partitioner: str, batch: int, *, removals: bool) -> None:
    """Compare all programs with the oracle after each epoch."""
    directed = bool(seed % 2)
    live = LiveGraph(lateness=0)
    records = list(stream(seed, size, removals=removals))
    first = seed % 3 * 5
    live.feed(records[:first])  # the programs begin later
    some = [
        begin(live, name, workers, partitioner, **options)
        for name, options in (
            ("components", {}), ("distances", {"source": 0, "directed": directed}),
            ("reachability", {"sources": SOURCES, "sinks": SINKS, "directed": directed}), ("triangles", {}),
            ("degrees", {"directed": directed}),
        )
    ]  # fmt: skip
    components, distances, reachability, triangles, degrees = some
    before: Oracle | None = None
    for at in range(first, size, batch):
        live.feed(records[at : at + batch])
        oracle = Oracle(live)
        assert grouped(components.result().to_dict()) == oracle.components()
        assert components.value == len(oracle.components())
        found = distances.result().to_dict()
        assert found == oracle.distances(0, directed=directed)
        assert list(found) == live.vertices["id"].to_pylist()
        pairs = oracle.pairs(SOURCES, SINKS, directed=directed)
        reachability.result()
        assert reachability.value == len(pairs)
        assert folded(reachability.events()) == pairs
        triangles.result()
        assert triangles.value == oracle.triangles()
        graph = oracle.directed if directed else oracle.graph
        found = degrees.result().table
        assert dict(zip(*(found[name].to_pylist() for name in ("vertex", "degree")), strict=True)) == dict(
            graph.degree()
        )
        if before is not None and not removals:  # nothing is taken back
            assert before.pairs(SOURCES, SINKS, directed=directed) <= pairs
        before = oracle
    for one in some:
        assert one.statistics["lag"] == 0
        one.close()


@pytest.mark.parametrize(("workers", "partitioner", "batch"), [
    (1, "ldg", 7), (2, "hash", 1), (4, "fennel", 7),
    *(pytest.param(*one, marks=pytest.mark.slow) for one in ((2, "ldg", 7), (4, "hash", 1000), (8, "hash", 7))),
])  # fmt: skip
@pytest.mark.parametrize("removals", [False, True])
def test_programs(workers: int, partitioner: str, batch: int, removals: bool) -> None:
    for seed in range(2):
        check(seed, 40, workers, partitioner, batch, removals=removals)


@pytest.mark.slow
@pytest.mark.parametrize("removals", [False, True])
@pytest.mark.parametrize("partitioner", _PARTITIONERS)
@pytest.mark.parametrize("workers", _WORKERS)
@pytest.mark.parametrize("first", [0, 25, 50, 75])
def test_many_streams(first: int, workers: int, partitioner: str, removals: bool) -> None:
    for seed in range(first, first + 25):
        batch = (1, 7, 1000)[seed % 3]
        check(seed + 100 * workers, 40 if batch == 1 else 90, workers, partitioner, batch, removals=removals)


# The golden stream.

EPOCHS = [edges((1, 2), (3, 4), t=1), edges((2, 3), t=2), edges((4, 1), (5, 6), t=3), edges((1, 3), t=4)]


class Fixed:
    """Places vertices by their order of appearance."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def place(self, arrivals: Any) -> Any:
        return (np.arange(len(arrivals.order)) * 5 + 1) % self._workers


def golden(workers: int, partitioner: Any, shuffle: random.Random | None = None) -> dict[str, Any]:
    """Return what programs find after each epoch of the golden stream."""
    live = LiveGraph(lateness=0)
    runs_ = {
        "components": begin(live, "components", workers, partitioner),
        "distances": begin(live, "distances", workers, partitioner, source=1),
        "first": begin(live, "reachability", workers, partitioner, sources=[1], sinks=[4]),
        "second": begin(live, "reachability", workers, partitioner, sources=[4], sinks=[2]),
        "triangles": begin(live, "triangles", workers, partitioner),
    }
    found: dict[str, Any] = {name: [] for name in (*runs_, "counts")}
    for records in EPOCHS:
        pairs = [(one["src"], one["dst"]) for one in records]
        live.feed(edges(*(shuffle.sample(pairs, len(pairs)) if shuffle else pairs), t=records[0]["t"]))
        for name, one in runs_.items():
            found[name].append(
                dict(sorted(one.result().to_dict().items())) if name != "triangles" else one.result() and one.value
            )
    for name, one in runs_.items():
        found[f"{name} events"] = one.events().drop_columns("time").to_pylist()
        found[f"{name} cut"] = one.statistics["cut"]
        one.close()
    return found


def test_golden_stream() -> None:
    found = golden(2, Greedy(capacity=4))
    assert found["components"] == [
        {1: 1, 2: 1, 3: 3, 4: 3}, {1: 1, 2: 1, 3: 1, 4: 1}, *[{1: 1, 2: 1, 3: 1, 4: 1, 5: 5, 6: 5}] * 2
    ]  # fmt: skip
    assert found["components events"] == [{"epoch": 2, "status": "MERGED", "vertex": "3", "root": "1"}]
    distances = [{one: hops for one, hops in epoch.items() if hops > 0} for epoch in found["distances"]]
    assert distances == [{2: 1}, *[{2: 1, 3: 2, 4: 3}] * 2, {2: 1, 3: 1, 4: 2}]
    assert found["first events"] == [{"epoch": 2, "status": "REACHABLE", "source": "1", "sink": "4"}]
    assert found["second events"] == [{"epoch": 3, "status": "REACHABLE", "source": "4", "sink": "2"}]
    assert found["triangles"] == [0, 0, 0, 2]


def test_golden_placement() -> None:
    directory = Directory(2, Greedy(capacity=4))
    number = 0
    for records in EPOCHS:
        ends = np.array([(one["src"], one["dst"]) for one in records]).T - 1
        new = int(ends.max()) + 1 - number
        order = np.arange(max(new, 0))
        directory.place(order, np.zeros(len(order), np.uint64), *ends)
        number = max(number, int(ends.max()) + 1)
    assert directory.owner[:6].tolist() == [0, 0, 1, 1, 0, 0]
    found = golden(2, Greedy(capacity=4))
    assert found["triangles cut"] == 3 / 6


@pytest.mark.parametrize("workers", _WORKERS)
@pytest.mark.slow
def test_workers_and_order_do_not_matter(workers: int) -> None:
    first = golden(1, "ldg")
    for partitioner in ("hash", Fixed(workers)):
        found = golden(workers, partitioner, random.Random(workers))
        assert {name: one for name, one in found.items() if "cut" not in name} == {
            name: one for name, one in first.items() if "cut" not in name
        }


# Placement.


def test_balance_and_cut() -> None:
    """Greedy partitioners cut fewer edges than hashes do, and no worker has more than 1.1 times the mean."""
    chance = np.random.default_rng(3)
    groups = chance.integers(0, 300, 30_000)
    numbers = groups * 30 + chance.integers(0, 30, (2, 30_000))
    sources, targets = np.where(chance.random(30_000) < 0.1, chance.integers(0, 9000, (2, 30_000)), numbers)
    order = np.argsort(groups, kind="stable")
    table = pa.table({
        "t": np.arange(30_000), "op": ["+e"] * 30_000, "id": np.arange(30_000), "src": sources[order],
        "dst": targets[order],
    })  # fmt: skip
    cuts = {}
    for partitioner in _PARTITIONERS:
        live = LiveGraph(lateness=0)
        run = begin(live, "degrees", 4, partitioner, changes=2000)
        live.feed(table)
        run.result()
        cuts[partitioner] = run.statistics["cut"]
        assert run.statistics["balance"] <= 1.1
        assert run.statistics["epochs"] > 10
        owners, pairs = run._directory.owner, {(a, b) for a, b in zip(sources, targets, strict=True) if a != b}
        number = dict(zip(run._labels(np.arange(run._directory.size)).to_pylist(), owners, strict=False))
        crossing = sum(number[str(a)] != number[str(b)] for a, b in pairs)
        assert cuts[partitioner] == crossing / len(pairs)  # directory and workers agree
        run.close()
    assert cuts["ldg"] < 0.7 * cuts["hash"]
    assert cuts["fennel"] < 0.7 * cuts["hash"]


@pytest.mark.parametrize(("partitioner", "message"), [
    ("metis", "choose hash, ldg, fennel"), (3, "has no method place"), (Greedy(capacity=1), "cannot have 4 vertices"),
    (Fixed(9), "must return the worker"),
])  # fmt: skip
def test_partitioners_that_are_not_accepted(partitioner: Any, message: str) -> None:
    live = LiveGraph(lateness=0)
    live.feed(EPOCHS[0])
    with pytest.raises(InputError, match=message):
        begin(live, "degrees", 2, partitioner)


# Epochs.


def test_epochs_end_by_time_and_by_number() -> None:
    live = LiveGraph(lateness=0)
    run = begin(live, "degrees", 1, every=10_000_000, changes=6)
    live.feed([{"t": t, "op": "+v", "id": t} for t in (1, 2, 9, 11, 12)])
    run.wait()
    assert run.statistics["epochs"] == 1  # the second one goes on
    live.feed([{"t": 20, "op": "heartbeat"}])
    run.wait()
    assert run.statistics["epochs"] == 2
    live.feed([{"t": 30 + t / 10, "op": "+v", "id": 30 + t} for t in range(13)])
    run.wait()
    assert run.statistics["epochs"] == 4
    run.result()
    assert (run.statistics["epochs"], run.statistics["changes"]) == (5, 18)


def test_records_may_be_fed_in_any_pieces() -> None:
    records = list(stream(5, 120, removals=True))
    found = []
    for size in (1, 13, 120):
        live = LiveGraph(lateness=0)
        run = begin(live, "components", 2, every=7_000_000, changes=5)
        for at in range(0, 120, size):
            live.feed(records[at : at + size])
        run.result()
        found.append(run.events().to_pylist())
        run.close()
    assert found[0] == found[1] == found[2]
    assert {one["status"] for one in found[0]} == {"MERGED", "SPLIT"}


def test_transactions_are_in_one_epoch() -> None:
    live = LiveGraph(lateness=0)
    run = begin(live, "triangles", 1, changes=2)
    live.feed(
        [{"t": 1, "op": "txn", "updates": [{"op": "+e", "src": a, "dst": b} for a, b in ((1, 2), (2, 3), (3, 1))]}]
    )
    run.result()
    assert (run.value, run.statistics["epochs"]) == (1, 1)


# Programs of users.


class Largest(LiveProgram):
    """The largest number of a vertex that is connected with each vertex; written with arrays only."""

    directed = False
    combine = "max"
    state = {"largest": gf.stream.Column(np.int64, -1)}
    events = {"vertex": "vertex", "by": np.int64}

    def changes(self, ctx: Any, change: Any) -> None:
        largest = ctx.state["largest"]
        largest[change.new] = ctx.numbers[change.new]
        for here, there in ((change.sources, change.targets), (change.targets, change.sources)):
            mine = ctx.owned[here]
            ctx.send(there[mine], largest[here[mine]])

    def messages(self, ctx: Any, targets: Any, values: Any) -> None:
        assert len(np.unique(targets)) == len(targets)
        assert ctx.owned[targets].all()
        largest = ctx.state["largest"]
        more = values > largest[targets]
        targets, values = targets[more], values[more]
        largest[targets] = values
        places, others = ctx.neighbors(targets)
        ctx.send(others, values[places])
        ctx.emit("RAISED", vertex=ctx.numbers[targets], by=values)

    def finish(self, ctx: Any) -> int:
        return len(ctx.vertices)

    def aggregate(self, partials: Any) -> int:
        return sum(partials)

    def result(self, ctx: Any) -> Any:
        return {"largest": ctx.state["largest"][ctx.vertices]}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_program_of_a_user(workers: int) -> None:
    live = LiveGraph(lateness=0)
    run = begin(live, Largest(), workers, "hash")
    live.feed(edges((0, 1), (1, 2), (2, 3), (4, 5)))
    assert run.result().to_dict() == {0: 3, 1: 3, 2: 3, 3: 3, 4: 5, 5: 5}
    assert run.value == 6
    raised = run.events().to_pylist()
    assert {(one["vertex"], one["by"]) for one in raised} >= {("0", 3), ("4", 5)}
    assert raised == sorted(raised, key=lambda one: (int(one["vertex"]), one["by"]))


class Failing(LiveProgram):
    """Fails at an edge."""

    events = {"vertex": "vertex"}

    def __init__(self, how: str) -> None:
        self.how = how

    def changes(self, ctx: Any, change: Any) -> None:
        if not len(change.sources):
            return
        if self.how == "raise":
            raise ZeroDivisionError("no")
        if self.how == "send":
            ctx.send(change.sources, [1, 2, 3])
        elif self.how == "emit":
            ctx.emit("X", other=[1])
        elif self.how == "differ":
            ctx.send(change.sources, np.zeros(len(change.sources)))
            ctx.send(change.sources, np.zeros((len(change.sources), 2)))


@pytest.mark.parametrize(("how", "message"), [
    ("raise", "worker [01], epoch 2, superstep 0: ZeroDivisionError: no"), ("send", "one value for each target"),
    ("emit", "the program names"), ("differ", "differ in the number of columns"),
])  # fmt: skip
def test_programs_that_fail(how: str, message: str) -> None:
    live = LiveGraph(lateness=0)
    live.feed([{"t": 0, "op": "+v", "id": 1}])
    run = begin(live, Failing(how), 2, changes=2)
    with pytest.raises(JobError, match=f"program Failing, .*{message}"):
        for _ in range(3):
            live.feed(edges((1, 2), (2, 3), t=1))
            run.result()
    with pytest.raises(JobError, match=message):
        run.result()
    live.feed(edges((7, 8), t=2))  # the live graph goes on
    assert live.num_vertices == 5


def test_a_worker_that_sends_to_one_that_is_gone(tmp_path: Path) -> None:
    """Breaks when it reports an error of a connection instead of ending, as all begin again from a snapshot."""
    listener, worker, nothing = listen(str(tmp_path / "1.socket")), object.__new__(Worker), np.zeros(0, np.int64)
    worker._folder, worker._number, worker._outgoing, worker._lost = tmp_path, 0, {}, False
    worker._selector = selectors.DefaultSelector()
    packet = Packet(1, 0, nothing, nothing, nothing, 0)
    worker._send(1, packet)
    listener.accept()[0].close()
    worker._send(1, packet)
    assert worker._lost
    with pytest.raises(_Lost):
        worker._send(1, packet)
    worker._close()
    listener.close()


@pytest.mark.parametrize(("program", "options", "message"), [
    ("louvain", {}, "choose one of components"), (3, {}, "or derive from LiveProgram"),
    ("components", {"source": 1}, "takes no arguments"),
    ("distances", {"source": 1, "hops": 2}, "unexpected keyword argument 'hops'"),
    ("distances", {}, "missing 1 required positional argument: 'source'"),
    ("distances", {"source": 1.5}, "accepted are integers and texts"),
    ("reachability", {"sources": "ab", "sinks": [1]}, "pass a list"),
    ("reachability", {"sources": [], "sinks": [1]}, "accepted are 1 to 4,096"),
    ("reachability", {"sources": range(4097), "sinks": [1]}, "4,097 vertices"),
    ("degrees", {"workers": 0}, "workers = 0"), ("degrees", {"workers": True}, "workers = True"),
    ("degrees", {"changes": 0}, "changes = 0"),
    ("degrees", {"every": -1}, "every"), (Largest(), {"source": 1}, "only of bundled programs"),
])  # fmt: skip
def test_arguments_that_are_not_accepted(program: Any, options: dict[str, Any], message: str) -> None:
    live = LiveGraph(lateness=0)
    with pytest.raises(InputError, match=message):
        live.run(program, **options)


def test_labels_that_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """New vertices have the slots of others, in an epoch in which these were removed."""
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 12)
    live = LiveGraph(lateness=0)
    with begin(live, "components", 2, "hash", changes=23) as run:
        for round_ in range(30):
            first = 10 * round_
            live.feed(edges((first, first + 1), (first + 1, first + 2), (first + 3, first + 4), t=round_ + 0.1))
            if round_ % 2:
                oracle = Oracle(live)
                assert grouped(run.result().to_dict()) == oracle.components()
                assert run.value == len(oracle.components())
            live.feed([{"t": round_ + 0.5 + n / 10, "op": "-v", "id": first + n} for n in (1, 3)])
            live.feed([{"t": round_ + 0.8, "op": "-v", "id": first}])
        assert live._engine.encoder.vertices.count < 150  # numbers were used again
        assert {one["status"] for one in run.events().to_pylist()} >= {"SPLIT"}


def test_events_that_are_not_kept() -> None:
    live = LiveGraph(lateness=0, events=3)
    run = live.run("reachability", workers=1, sources=[0], sinks=range(9), changes=2, every=None)
    live.feed([{"t": n, "op": "+e", "src": 0, "dst": n} for n in range(1, 7)])
    run.result()
    assert [one["sink"] for one in run.events(3).to_pylist()] == ["4", "5", "6"]
    with pytest.raises(InputError, match="after = 2: events are kept from 3 on"):
        run.events(2)
    run.close()


def test_many_sources() -> None:
    live = LiveGraph(lateness=0)
    with begin(live, "reachability", 2, sources=range(100), sinks=[200]) as run:
        live.feed(edges(*((one, 200) for one in range(100))))
        run.result()
        assert run.value == run.events().num_rows == 100
        live.feed(edges((64, 200), t=2, op="-e"))
        run.result()
        assert run.events(100).drop_columns(["time", "epoch"]).to_pylist() == [
            {"status": "UNREACHABLE", "source": "64", "sink": "200"}
        ]


def test_labels_of_both_kinds() -> None:
    live = LiveGraph(lateness=0)
    with begin(live, "components", 2) as run:
        live.feed(edges((1, "b"), ("a", "ü"), (2, 3)))
        assert run.result().to_dict() == {"1": "1", "b": "1", "a": "a", "ü": "a", "2": "2", "3": "2"}
        live.feed(edges((1, "a"), t=2))
        assert run.result().to_dict()["ü"] == "1"
        assert run.events().to_pylist()[0]["vertex"] == "a"


def test_a_run_that_is_closed() -> None:
    live = LiveGraph(lateness=0)
    run = begin(live, "components", 1)
    live.feed(edges((1, 2)))
    run.result()
    run.close()
    run.close()
    live.feed(edges((2, 3), t=2))
    assert run.value == 1
    with pytest.raises(InputError, match="closed"):
        run.result()


# Faults; with processes.


class Killed(Components):
    """Components; a worker is killed at a superstep, once for each file."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._moments = {(chance.randrange(2), chance.randrange(1, 9), chance.randrange(3)) for _ in range(2)}
        for number in range(len(self._moments)):
            (folder / str(number)).touch()

    def _die(self, ctx: Any) -> None:
        worker = int(ctx.owned.any() and ctx.part._worker)
        for number, moment in enumerate(sorted(self._moments)):
            if moment == (worker, ctx.epoch, ctx.superstep) and (self._folder / str(number)).exists():
                (self._folder / str(number)).unlink()
                os.kill(os.getpid(), signal.SIGKILL)

    def changes(self, ctx: Any, change: Any) -> None:
        self._die(ctx)
        super().changes(ctx, change)

    def messages(self, ctx: Any, targets: Any, values: Any) -> None:
        self._die(ctx)
        super().messages(ctx, targets, values)


def check_killed(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill workers in the middle of epochs, and compare everything with a run without faults."""
    folder.mkdir()
    monkeypatch.setattr(runs, "_SNAPSHOT_CHANGES", (25, 60, 10_000)[seed % 3])
    chance = random.Random(seed)
    records = list(stream(seed, 120, removals=bool(seed % 2)))
    program, given = Killed(folder, chance), list[Any]()
    left = len(program._moments)
    live, other = LiveGraph(lateness=0), LiveGraph(lateness=0)
    plain = begin(other, "components", 2, "hash", changes=15)
    with live.run(
        program, partitioner="hash", every=None, changes=15, on_events=lambda table: given.extend(table.to_pylist())
    ) as run:  # fmt: skip
        for at in range(0, len(records), 20):
            live.feed(records[at : at + 20])
            other.feed(records[at : at + 20])
            if at == 60:  # between two calls
                os.kill(run._processes[chance.randrange(2)].pid, signal.SIGKILL)
        assert run.result().to_dict() == plain.result().to_dict()
        assert run.value == plain.value
        assert run.events().to_pylist() == given == plain.events().to_pylist()
        died = left - len(list(folder.iterdir()))
        assert 1 <= run.statistics["recoveries"] <= 1 + died
        assert {**run.statistics, "recoveries": 0, "seconds": 0} == {**plain.statistics, "recoveries": 0, "seconds": 0}
    plain.close()


def test_workers_that_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_killed(1, tmp_path / "killed", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 50, 10))
def test_workers_that_are_killed_often(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 10):
        check_killed(seed, tmp_path / str(seed), monkeypatch)


class Deadly(LiveProgram):
    """Ends its process at each edge."""

    def changes(self, ctx: Any, change: Any) -> None:
        if len(change.sources):
            os._exit(3)


@pytest.mark.slow
def test_a_worker_that_always_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_MOST_FAILURES", 1)
    live = LiveGraph(lateness=0)
    with live.run(Deadly(), workers=1) as run:
        live.feed(edges((1, 2)))
        with pytest.raises(JobError, match=r"worker processes failed 2 times in epoch 1"):
            run.result()


_SCRIPT = """
import itertools, sys
import numpy as np, pyarrow as pa
import goffish as gf
live = gf.stream.LiveGraph(lateness=0)
run = live.run("components", workers=2, changes=500)
print(*(one.pid for one in run._processes.values()), run._folder, flush=True)
for at in itertools.count():
    n = np.arange(5000)
    live.feed(pa.table({"t": at + n / 5000, "op": ["+e"] * 5000, "src": n * at % 997, "dst": n}))
    if sys.argv[1] == "result":
        run.result()
"""


@pytest.mark.parametrize(("number", "what"), [
    (signal.SIGINT, "feed"), pytest.param(signal.SIGINT, "result", marks=pytest.mark.slow),
    pytest.param(signal.SIGTERM, "feed", marks=pytest.mark.slow), (signal.SIGKILL, "result"),
])  # fmt: skip
@pytest.mark.slow
def test_nothing_stays_behind(number: int, what: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, what], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )  # fmt: skip
    assert process.stdout is not None
    *workers, folder = process.stdout.readline().split()
    time.sleep(0.3)
    process.send_signal(number)
    assert process.wait(30) != 0
    last = time.monotonic() + 30
    while any(_runs(int(one)) for one in workers):
        assert time.monotonic() < last
        time.sleep(0.01)
    process.stdout.close()
    if number == signal.SIGINT:
        assert not Path(folder).exists()


def _runs(process: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
