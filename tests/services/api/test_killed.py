"""Servers and workers that are killed at any moment: no job is lost, none is done twice, all answers are right."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

import goffish as gf
from goffish.client import Client
from goffish.errors import GoffishError
from tests.services.api.serving import RealServer, settle
from tests.services.store.databases import postgres

JOBS = 4


def make_graph(folder: Path) -> tuple[str, dict[int, float]]:
    """A store, and PageRank by networkx."""
    import networkx as nx

    rng = np.random.default_rng(3)
    graph = nx.Graph()
    graph.add_edges_from(rng.integers(0, 2000, (12_000, 2)).tolist())
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    gf.partition(gf.from_networkx(graph), parts=2, method="hash").save(folder / "store")
    return "store", nx.pagerank(graph, tol=1e-12, max_iter=500)


def ask(client: Client, key: str, kind: str) -> str:
    """A job of one kind: a graph job by its runner, or a dataflow that takes some seconds."""
    if kind == "dataflow":
        return client.submit_dataflow(
            "sc13-diamond", key=key, hours=6, hours_per_second=2, seed=5, most_attempts=1000
        ).id
    # Seconds of work, whatever a superstep takes: a worker that is done at once is hardly ever hit.
    steps = {"tolerance": "1e-300", "max_iterations": "1000"}
    return client.submit_graph("pagerank", "store", steps, key=key, runner=kind, most_attempts=1000).id


def submit(server: RealServer, key: str, kind: str) -> str:
    """Submit until the server says that it has it, through its deaths."""
    end = time.monotonic() + 60
    while True:
        try:
            with Client(server.address, timeout_s=5) as client:
                return ask(client, key, kind)
        except GoffishError:
            assert time.monotonic() < end, "the server does not come back"
            if server.process is None or server.process.poll() is not None:
                server.start()


def check(client: Client, jobs: list[str], expected: dict[int, float]) -> None:
    for job in jobs:
        events = list(client.watch(job))
        kinds = Counter(event.text if event.kind == "state" else event.kind for event in events)
        states = [event.state for event in events if event.kind == "state"]
        assert states.count(6) == 1 and states[-1] == 6, events
        assert kinds["submitted"] == 1
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        table = client.result(job)
        if "rank" not in table.column_names:
            undisturbed = client.wait(ask(client, "undisturbed", "dataflow")).id
            assert table.equals(client.result(undisturbed))
            continue
        assert table.num_rows == len(expected)
        ranks = np.array([expected[vertex] for vertex in table["vertex"].to_pylist()])
        assert np.allclose(table["rank"].to_numpy(), ranks, rtol=1e-6, atol=0)


def workers_within(server: RealServer, seconds: float) -> list[psutil.Process]:
    """Those that there are as soon as there are any."""
    end = time.monotonic() + seconds
    while not (found := server.workers()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def kill_at_random(
    tmp_path: Path, kills: int, seed: int, *options: str, kinds: tuple[str, ...] = ("local",)
) -> Counter[str]:
    """Jobs of some kinds are submitted all the time while server and workers are killed at random moments."""
    rng = random.Random(seed)
    data = tmp_path / "data"
    data.mkdir()
    _, expected = make_graph(data)
    server = RealServer(tmp_path / "home", data, *options).start()
    killed: Counter[str] = Counter()
    jobs: dict[str, str] = {}
    try:
        while killed.total() < kills:
            for at in range(len(jobs), len(jobs) + JOBS):
                jobs[f"k{at}"] = submit(server, f"k{at}", kinds[at % len(kinds)])
            asked = rng.choice(list(jobs))
            again = submit(server, asked, kinds[int(asked[1:]) % len(kinds)])
            assert again == jobs[asked], "the same key made another job"
            for _ in range(min(10, kills - killed.total())):
                time.sleep(rng.uniform(0.0, 1.2))
                workers = workers_within(server, 2) if rng.random() < 0.5 else []
                if workers:
                    victim = rng.choice(workers)
                    killed["worker"] += 1
                    try:
                        victim.kill()
                    except psutil.NoSuchProcess:
                        killed["worker"] -= 1
                else:
                    server.kill()
                    killed["server"] += 1
                    time.sleep(rng.choice([0.0, 0.0, 0.5, 2.0]))
                    server.start()
            with server.client() as client:
                settle(client, list(jobs.values()), 300)
        with server.client() as client:
            check(client, list(jobs.values()), expected)
            attempts = [client.job(job).attempts for job in jobs.values()]
            assert max(attempts) > 1, "nothing was hit"
    finally:
        server.stop()
        end = time.monotonic() + 5
        while (left := server.workers()) and time.monotonic() < end:
            time.sleep(0.1)
        for process in left:
            process.kill()
    assert left == []
    return killed


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    """Breaks when a job is lost, done twice, or goes wrong after its worker or the server was killed."""
    kill_at_random(tmp_path, 3, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills(tmp_path: Path) -> None:
    """The same at 200 moments."""
    killed = kill_at_random(tmp_path, 200, 2)
    assert killed["server"] >= 50 and killed["worker"] >= 50, killed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_of_all_that_is_simulated(tmp_path: Path) -> None:
    """The same with machines of the simulated cloud, and with dataflows that are enacted on it."""
    kill_at_random(tmp_path, 40, 4, kinds=("cloud", "dataflow"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_on_postgresql(tmp_path: Path) -> None:
    """The same with the other database."""
    with postgres() as url:
        kill_at_random(tmp_path, 30, 3, "--database", url)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("runner", "supersteps", "options"), [("mpi", 4000, ()), ("spark", 80, ("--spark-master", "local[2]"))]
)
def test_killed_ranks_and_drivers(tmp_path: Path, runner: str, supersteps: int, options: tuple[str, ...]) -> None:
    """Breaks when a job on MPI or Spark does not go on after its processes were killed, or leaves some behind."""
    data = tmp_path / "data"
    data.mkdir()
    _, expected = make_graph(data)
    server = RealServer(tmp_path / "home", data, *options).start()
    try:
        with server.client() as client:
            given = {"supersteps": str(supersteps)}
            job = client.submit_graph("pagerank", "store", given, runner=runner, workers=2, checkpoint_every=10)
            hit = 0
            for event in client.watch(job.id):
                if event.kind == "checkpoint" and not hit:
                    hit += 1
                    for worker in server.workers():
                        worker.kill()
            check(client, [job.id], expected)
            assert hit and client.job(job.id).attempts == 2
    finally:
        server.stop()
