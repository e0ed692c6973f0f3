"""Sources that one machine alone can read, in flows on several: no other reads them, whatever fails."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.streaming.hosts.access import Access
from goffish.streaming.hosts.machines import Machines
from goffish.streaming.hosts.terms import WorkerTerms
from goffish.streaming.ring.options import Options
from goffish.streaming.runtime import cluster as clusters
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.runtime.layout import staffed
from goffish.streaming.runtime.worker import Begin
from goffish.streaming.topology import Topology
from goffish.v1 import hosts_pb2
from tests.commands import call
from tests.streaming.pushing import free_port
from tests.streaming.runtime.conftest import Start
from tests.streaming.runtime.hosts import TOKEN, Started, kill, wait_for
from tests.streaming.runtime.test_hosts import run_flow
from tests.streaming.runtime.test_hosts_joining import Client as Agent
from tests.streaming.runtime.test_receive_workers import Client, totals_of

pytestmark = pytest.mark.filterwarnings("ignore:flow several")  # the only agent has more than half of the workers

# Plans and claims, without processes.


@st.composite
def stages(draw: st.DrawFn) -> tuple[list[int], dict[int, int], set[int], set[int]]:
    """Draw workers, sizes of stages, the workers that can read, and the stages that need one of them."""
    sizes = dict(enumerate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))))
    workers = draw(st.permutations(range(10, 10 + sum(sizes.values()))))
    needing = draw(st.sets(st.sampled_from(sorted(sizes))))
    readers = draw(st.sets(st.sampled_from(workers), min_size=len(needing)))
    return workers, sizes, readers, needing


@given(stages())
def test_each_stage_has_a_reader(drawn: tuple[list[int], dict[int, int], set[int], set[int]]) -> None:
    """Breaks when a source has no worker that can read it though there are enough, or neighbors change needlessly."""
    workers, sizes, readers, needing = drawn
    staff = staffed(workers, sizes, readers, needing)
    assert {stage: len(found) for stage, found in staff.items()} == sizes
    assert all(readers & set(staff[stage]) for stage in needing)
    order = [one for stage in sorted(staff) for one in staff[stage]]
    assert sorted(order) == sorted(workers)
    if len(needing) <= 1:
        at = workers.index(order[0])
        assert order == workers[at:] + workers[:at]


def flow_of(*receiving: str) -> Topology:
    """Return a flow with sources that clients send to, one that they do not, and a key."""
    flow = gf.stream.Flow("several")
    every = flow.source(gf.stream.generate(count=1), name="generated")
    for port, name in enumerate(receiving, free_port()):
        every = every.union(flow.source(gf.stream.receive_http(f"127.0.0.1:{port}"), name=name), name=f"with_{name}")
    every.key_by(lambda n: n).count(name="count").sink(gf.stream.print_values(), name="out")
    return flow.check()


class _Local:
    """A process of this machine that does not exist."""

    pid = 1

    def __init__(self, *_: Any) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.code = -9

    def wait(self, timeout: float | None = None) -> int:
        return 0


class Planned:
    """A flow whose workers are placed, but are no processes."""

    def __init__(self, topology: Topology, workers: Any, *slots: int, here: int = 0) -> None:
        self.topology = topology
        self.machines = Machines(topology, Access("127.0.0.1:0", TOKEN), here=here)
        self.agents: list[Agent] = []
        for one in slots:
            self.join(one)
        total, least = clusters._needed(topology, workers)
        self.machines.wait(total, here=least)
        self.cluster = Cluster(topology, workers, machines=self.machines)

    def join(self, slots: int) -> None:
        """Let an agent join."""
        before = self.machines._slots
        self.agents.append(Agent(self.machines, self.topology, slots=slots))
        self.agents[-1].received("terms")
        for number in (-1, 0):
            self.agents[-1].send(prepared=hosts_pb2.Prepared(number=number))
        wait_for(lambda: self.machines._slots == before + slots)

    def readers(self, source: str) -> list[int]:
        """Workers that read a source."""
        found = [n for n in self.cluster.workers if self.cluster._registry.lanes(n)]
        return [n for n in found if any(lane.split("\n")[0] == source for lane in self.cluster._registry.lanes(n))]

    @property
    def here(self) -> set[int]:
        return {one for one in self.cluster.workers if self.machines.is_here(one)}

    def end(self, number: int) -> None:
        """Let a worker fail, and replace it."""
        self.cluster._started = self.cluster._processes[number].ready = True
        process: Any = self.cluster._processes[number].process
        process.kill()
        wait_for(lambda: number not in self.machines._local)
        self.cluster._lost(number, -9)
        self.cluster._replace(number)

    def close(self) -> None:
        for number in self.cluster.workers:
            for agent in self.agents:
                agent.send(end=hosts_pb2.WorkerEnd(worker=number))
        self.cluster.close()
        for agent in self.agents:
            agent.close()
        self.machines.close()


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("goffish.streaming.hosts.machines.start_here", _Local)
    monkeypatch.setattr("goffish.streaming.hosts.machines._ANSWERS_S", 0.1)
    monkeypatch.setattr(Cluster, "_await_ready", lambda cluster: None)
    made: list[Planned] = []

    def planned(*arguments: Any, **options: Any) -> Planned:
        made.append(Planned(*arguments, **options))
        return made[-1]

    yield planned
    for one in made:
        one.close()


def test_one_worker_is_here(plan: Any) -> None:
    """Breaks when such a flow runs on other machines alone, which cannot read its source."""
    planned = plan(flow_of("received"), 3, 3)
    assert len(planned.here) == 1 and planned.readers("received") == list(planned.here)
    assert plan(flow_of(), 3, 3).here == set()


@pytest.mark.parametrize("here", [1, 2])
def test_a_worker_that_fails_is_replaced_here(plan: Any, here: int) -> None:
    """Breaks when a worker that can read a source is replaced on a machine with more free slots."""
    planned = plan(flow_of("received"), 3 + here, 8, here=here)
    for _ in range(3):
        planned.join(8)
        assert len(planned.here) == here
        planned.end(min(planned.here))
        assert len(planned.here) == here and len(planned.cluster.workers) == 3 + here


def test_a_worker_that_is_going_to_end_is_replaced_here(plan: Any) -> None:
    """Breaks when the only worker that can read a source is replaced elsewhere, as its slot is not free yet."""
    planned = plan(flow_of("received"), 3, 8)
    (before,) = planned.here
    planned.cluster._replace(before)
    assert len(planned.here & {*planned.cluster.staff[0]} - {before}) == 1


def test_the_last_reader_stays(plan: Any) -> None:
    """Breaks when fewer workers are left of which none can read a source."""
    planned = plan(flow_of("received"), 6, 4, here=2)
    assert len(planned.here) == 2
    planned.cluster._staff[0].sort(key=planned.machines.is_here)  # the last ones leave first
    for size in (5, 4, 3, 2, 1):
        planned.cluster._obey({"command": "scale", "sizes": {0: size}})
        assert planned.here & {*planned.cluster.staff[0]}
    assert len(planned.cluster.staff[0]) == 1


@pytest.mark.parametrize("workers", [{"count": 4}, {"received": 1, "count": 2}, {"received": 1, "more": 2, "count": 4}])
def test_separate_workers(plan: Any, workers: dict[str, int]) -> None:
    """Breaks when the workers here are those of another stage than the one that reads."""
    topology = flow_of("received", "more")
    planned = plan(topology, workers, 2, 2, 2)
    stages = planned.cluster.topology.stages
    assert len(planned.here) == len({stages["received"], stages["more"]})
    names = {stages[name]: name for name in ("received", "more")}
    for stage, name in names.items():
        (reader,) = planned.readers(name)
        assert reader in planned.here and reader in planned.cluster.staff[stage]
        planned.end(reader)
        assert planned.here & {*planned.cluster.staff[stage]}


def test_workers_of_agents_are_not_here() -> None:
    """Breaks when a worker of another machine takes itself for one that can read."""
    terms = WorkerTerms(Options(), Begin(), ())
    assert terms.begin.here
    assert not WorkerTerms.from_json(terms.to_json(), Path()).begin.here


# Processes.

FLOW = """
import goffish as gf

def add(total, record):
    return total + record["n"]

flow = gf.stream.Flow("pushed")
source = gf.stream.receive_http(
    "127.0.0.1:{port}", journal={folder!r} + "/journal", max_body=4096, max_waiting=1 << 20, max_journal=1 << 17
)
totals = flow.source(source, name="received").key_by("k").reduce(add, initial=0, name="totals")
totals.sink(gf.stream.write_json_lines({folder!r} + "/out"))
"""


class Pushed:
    """A flow on a controller and agents, and a client that repeats each request until it is acknowledged."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.folder, self._start, self.port = folder, start, free_port()
        self.flow = folder / "flow.py"
        self.flow.write_text(FLOW.format(port=self.port, folder=str(folder)))
        self.agents: list[Started] = []
        self.client = Client(self.port)

    def run(self, workers: int | str, slots: Sequence[int], *more: str) -> None:
        """Run the flow, also after it has ended."""
        checkpoint = ("--checkpoint", str(self.folder / "ck"), "--lease", "2s")
        self.controller, address = run_flow(self._start, self.flow, workers, *checkpoint, *more)
        self.agents = [self._start("worker", str(self.flow), "--join", address, "--slots", f"{one}") for one in slots]

    def join_all(self, workers: int) -> None:
        """Wait until so many workers have positions, and no others run."""

        def joined() -> bool:
            assert self.controller.process.poll() is None, self.controller.output
            ended = call("stream", "top", str(self.controller.process.pid), "--json")
            found = json.loads(ended.out)["workers"] if ended.out.startswith("{") else []
            return [one["joined"] for one in found] == [True] * workers

        wait_for(joined)

    def receive(self, requests: int = 20) -> None:
        """Wait until more requests are acknowledged."""
        before = self.client.requests
        wait_for(lambda: self.client.requests > before + requests or self.controller.process.poll() is not None)
        assert self.controller.process.poll() is None, self.controller.output

    @property
    def reader(self) -> int:
        """Process that listens at the address of the source; 0 if none does."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        found = {f"socket:[{one[9]}]" for one in lines if one[1] == f"0100007F:{self.port:04X}" and one[3] == "0A"}
        for pid in [*self.controller.workers, *(pid for agent in self.agents for pid in agent.workers)]:
            links = set()
            with suppress(OSError):  # it has ended
                for one in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):  # it was closed meanwhile
                        links.add(str(one.readlink()))
            if links & found:
                return pid
        return 0

    def assert_next(self, reader: int) -> None:
        """Wait until another process reads, and check that it is on the machine of the controller."""
        found: list[int] = []

        def other() -> bool:
            found.append(self.reader)
            return found[-1] not in (0, reader)

        wait_for(other)
        assert found[-1] in self.controller.workers

    def finish(self) -> None:
        """Check that all records that were acknowledged count once."""
        self.client.stop()
        out, process = self.folder / "out", self.controller.process
        assert self.client.sent
        wait_for(lambda: totals_of(out) == self.client.sent or process.poll() is not None)
        assert process.poll() is None, self.controller.output
        end = time.monotonic() + 1.0
        wait_for(lambda: time.monotonic() > end)
        assert totals_of(out) == self.client.sent, self.controller.output
        os.kill(process.pid, signal.SIGINT)
        self.controller.wait()


@pytest.fixture
def pushed(start: Start, tmp_path: Path) -> Iterator[Pushed]:
    made = Pushed(start, tmp_path)
    yield made
    made.client._stopped.set()


@pytest.mark.slow
@pytest.mark.parametrize("here", ["0", "2"])
def test_the_worker_that_receives_is_killed(pushed: Pushed, here: str) -> None:
    """Breaks when another machine receives, or what was acknowledged is lost or doubled."""
    pushed.run(3 if here == "0" else 4, (1, 1), "--here", here)
    for _ in range(3):
        pushed.receive()
        reader = pushed.reader
        assert reader in pushed.controller.workers
        kill(reader)
        pushed.assert_next(reader)
    pushed.receive()
    pushed.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_several_fail(pushed: Pushed, seed: int) -> None:
    """Breaks when what the worker that took over keeps is lost with it, or a worker that leaves takes it along."""
    rng = random.Random(seed)
    pushed.run(4, (2, 2), "--replication", "2")
    for _ in range(2):
        pushed.receive()
        pushed.join_all(4)
        reader = pushed.reader
        assert reader in pushed.controller.workers
        os.kill(reader, rng.choice((signal.SIGKILL, signal.SIGTERM)))
        end = time.monotonic() + rng.uniform(0, 2)
        wait_for(lambda end=end: time.monotonic() > end)  # type: ignore[misc]
        kill(rng.choice([pid for agent in pushed.agents for pid in agent.workers]))
        pushed.assert_next(reader)
    pushed.receive()
    pushed.finish()


@pytest.mark.slow
def test_other_numbers_of_workers(pushed: Pushed) -> None:
    """Breaks when the source moves to another machine as workers join and leave, or no worker here is left."""
    pushed.run("totals=2", (4,))
    for size in (4, 1):
        pushed.receive()
        assert call("stream", "scale", str(pushed.controller.process.pid), f"totals={size}").code == 0
        pushed.receive()
        kill(pushed.reader)
        pushed.join_all(1 + size)
        pushed.receive()
        assert pushed.reader in pushed.controller.workers
    pushed.finish()


@pytest.mark.slow
def test_the_worker_that_receives_is_killed_before_an_update(pushed: Pushed) -> None:
    """Breaks when the update waits for records that no worker reads, and the worker that could for the update."""
    pushed.run(3, (1, 1))
    pushed.receive()
    pushed.join_all(3)
    new = pushed.folder / "new.py"
    new.write_text(pushed.flow.read_text().replace("add(total, record):\n", "add(total, record):\n    int(total)\n"))
    reader = pushed.reader
    kill(reader)
    ended = call("stream", "update", str(pushed.controller.process.pid), str(new), "--json")
    report = json.loads(ended.out)
    assert (report["state"], report["changes"], report["lost"]) == ("complete", "changed totals", 0)
    pushed.assert_next(reader)
    pushed.receive()
    pushed.finish()


@pytest.mark.slow
def test_another_machine_is_killed(pushed: Pushed) -> None:
    """Breaks when the loss of a machine moves the source, or what it had of the state is lost."""
    pushed.run(4, (1, 1, 1))
    pushed.receive()
    reader, agent = pushed.reader, pushed.agents[1]
    workers = agent.workers
    assert len(workers) == 1
    for pid in [agent.process.pid, *workers]:
        kill(pid)
    pushed.receive(200)
    assert pushed.reader == reader and reader in pushed.controller.workers
    pushed.finish()


@pytest.mark.slow
def test_everything_is_killed(pushed: Pushed) -> None:
    """Breaks when what was acknowledged is lost or doubled as the run is resumed, with other workers and machines."""
    for workers, slots in ((3, (1, 1)), (1, ()), (3, (2,))):
        pushed.run(workers, slots)
        pushed.receive(50)
        for pid in [pid for one in (pushed.controller, *pushed.agents) for pid in (one.process.pid, *one.workers)]:
            kill(pid)
    pushed.run(4, (2, 2))
    pushed.receive()
    pushed.finish()
