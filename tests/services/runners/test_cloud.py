"""Graph jobs on machines of the simulated cloud that are really taken away."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import goffish as gf
from goffish.algorithms.run import run
from goffish.graph import Graph
from goffish.services.runners import rented
from goffish.services.runners.cloud import CloudRunner
from goffish.services.store.records import EVENT_KINDS, Event, State
from tests.services.api.serving import RealServer, processes_with, settle
from tests.services.runners.rented import (
    CALM,
    HIGH,
    ON_DEMAND,
    PACE,
    Service,
    by_hand,
    cloud_of,
    cloud_spec,
    make_store,
    renting,
    write_cloud,
)

SUPERSTEPS = 500


def check_answer(service: Service, job: str, graph: Graph) -> None:
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    found = service.result(job).sort_by("vertex")
    assert found["vertex"].equals(expected["vertex"])
    assert np.allclose(found["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)


def check_details(events: list[Event]) -> None:
    """Every key is documented."""
    for event in events:
        if event.kind != "state":
            assert set(event.details or {}) <= set(re.findall(r"`(\w+)`", EVENT_KINDS[event.kind][1])), event


def workers(folder: Path) -> list[psutil.Process]:
    return [one for one in processes_with(str(folder)) if "goffish.services.runners.worker" in " ".join(one.cmdline())]


def test_a_job_says_that_it_waits_for_a_price(tmp_path: Path) -> None:
    """Breaks when a job stays planned for minutes, and no event says why."""
    make_store(tmp_path, 200, 800)
    with renting(tmp_path, [(0, HIGH), (20_000, CALM)]) as service:
        job = service.submit(cloud_spec(10, deadline_s=1800.0))
        event = service.wait_for(job, "wait")
        service.cancel(job)
        service.settle(job)
        events = service.events(job)
    assert event.state == State.PLANNED
    assert event.text.startswith(f"rtba is waiting for a lower price: tiny costs {HIGH:g} per hour; ")
    assert [one.kind for one in events].count("wait") == 1
    check_details(events)


@pytest.mark.slow
def test_a_machine_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a machine outlives its price, the job does not go on from its checkpoint on another one, the answer
    is wrong, or the bill is not what the machines cost.
    """
    monkeypatch.setattr(rented, "_REPORT_S", 0.2)
    graph = make_store(tmp_path, 60_000, 400_000)
    with renting(tmp_path, [(1260, HIGH), (1440, CALM)]) as service:
        job = service.submit(cloud_spec(SUPERSTEPS, checkpoint_every=10))
        found = service.settle(job)
        events = service.events(job)
        assert found.state == State.DONE, found.error
        check_answer(service, job, graph)
        left = workers(tmp_path)
    states = [str(event.state) for event in events if event.kind == "state"]
    at = next(at for at, event in enumerate(events) if event.kind == "lost")
    saved = [int(event.text.split()[-1]) for event in events[:at] if event.kind == "checkpoint"]
    # A slow computer may not get as far as running on the first machine, or as a checkpoint there.
    first = ["running"] if "running" in states[:3] else []
    rests = ["checkpointed"] if saved else []
    assert states == ["planned", "provisioning", *first, "migrating", *rests, "provisioning", "running", "done"]
    told = [e.text for e in events if (e.kind, e.state) == ("state", "checkpointed")]
    assert told == [f"checkpoint of superstep {number}; rtba is waiting to rent a machine" for number in saved[-1:]]
    lost = [event for event in events if event.kind == "lost"]
    started = [event for event in events if event.kind == "machine" and "started" in event.text]
    assert len(lost) == 1 and len(started) == 2
    details = lost[0].details or {}
    # It is taken at the moment at which the price is above the bid, on the clock that began with the job.
    assert 1260 - 4 * PACE <= details["cloud_ended_s"] <= 1260
    assert all((event.details or {})["price"] == CALM for event in started)
    # What took it away: more than its bid.
    assert details["price"] == HIGH > details["bid"] > 0 and details["market"] == "spot"
    check_details(events)
    went_on = [int(e.text.split()[1]) for e in events[events.index(started[1]) + 1 :] if e.kind == "progress"]
    if saved:
        assert went_on[0] > saved[-1]
    assert found.cost == pytest.approx(by_hand(events)) and found.cost > 0
    plan = next(event for event in events if event.kind == "plan")
    assert 0 < found.expected_cost == (plan.details or {})["expected_cost"] < ON_DEMAND and found.currency == "USD"
    assert re.match(r"rtba: about 0\.\d+ USD expected, 0\.\d+ on demand", plan.text)
    assert left == []


@pytest.mark.slow
def test_another_price_is_told_of_once(tmp_path: Path) -> None:
    """Breaks when prices between the start and the end of a machine are not told of, or again and again."""
    make_store(tmp_path, 60_000, 400_000)
    with renting(tmp_path, [(500, CALM / 2)]) as service:
        job = service.submit(cloud_spec(2 * SUPERSTEPS))
        service.wait_for(job, "price")
        time.sleep(2.5)
        service.cancel(job)
        service.settle(job)
        events = service.events(job)
    [told] = [event.details or {} for event in events if event.kind == "price"]
    machines = [event.details or {} for event in events if event.kind == "machine"]
    facts = {name: machines[0][name] for name in ("machine", "class", "market", "bid")}
    assert told == facts | {"price": CALM / 2} and told["class"] == "tiny"
    assert [one["price"] for one in machines] == [CALM, CALM / 2]
    assert machines[0]["cost"] == 0 < machines[1]["cost"] == service.jobs.get(job).cost
    check_details(events)


def test_a_job_that_is_cancelled_gives_its_machine_back(tmp_path: Path) -> None:
    """Breaks when machines or workers go on after their job was cancelled, or what they cost is forgotten."""
    make_store(tmp_path)
    with renting(tmp_path) as service:
        job = service.submit(cloud_spec(100_000, policy="on-demand"))
        service.wait_for(job, "running")
        until = time.monotonic() + 30
        while not workers(tmp_path):
            assert time.monotonic() < until
            time.sleep(0.05)
        service.cancel(job)
        asked = service.wait_for(job, "cancel")
        found = service.settle(job)
        assert found.state == State.CANCELLED and workers(tmp_path) == []
        assert found.ended is not None and found.ended - asked.time < 6
        assert found.cost == pytest.approx(by_hand(service.events(job))) and found.cost > 0


@pytest.mark.slow
def test_policies_on_calm_prices(tmp_path: Path) -> None:
    """Breaks when a policy does not run on the cloud, or on demand is not dearer than the spot market at low prices."""
    graph = make_store(tmp_path, 5000, 30_000)
    costs, hours = {}, {}
    with renting(tmp_path) as service:
        for policy in ("rtba", "h1", "h2", "h3", "on-demand"):
            job = service.submit(cloud_spec(300, policy=policy))
            found = service.settle(job)
            assert found.state == State.DONE, found.error
            check_answer(service, job, graph)
            events = service.events(job)
            costs[policy] = found.cost
            facts = [event.details or {} for event in events if event.kind == "machine"]
            assert {one["market"] for one in facts} == {"on-demand" if policy == "on-demand" else "spot"}
            hours[policy] = facts[-1]["cloud_ended_s"] / 3600
            price = ON_DEMAND if policy == "on-demand" else CALM
            assert found.cost == pytest.approx(price * hours[policy], rel=0.2)
    assert costs["on-demand"] > 3 * max(cost for policy, cost in costs.items() if policy != "on-demand")


@pytest.mark.slow
def test_louvain_and_an_algorithm_that_was_never_measured(tmp_path: Path) -> None:
    """Breaks when only PageRank can be planned, or a job in memory cannot run without checkpoints."""
    make_store(tmp_path, 5000, 30_000)
    with renting(tmp_path, [(900, HIGH), (1500, CALM)]) as service:
        for algorithm, remark in (("louvain", ""), ("triangles", "estimated as pagerank"), ("closeness", "pagerank")):
            options = {"top": "10"} if algorithm == "closeness" else {}
            spec = cloud_spec(1)
            assert spec.graph is not None
            changed = spec.graph.model_copy(update={"algorithm": algorithm, "options": options})
            job = service.submit(spec.model_copy(update={"graph": changed}))
            found = service.settle(job)
            assert found.state == State.DONE, found.error
            plan = next(event for event in service.events(job) if event.kind == "plan")
            assert remark in (plan.details or {})["remark"]


@pytest.mark.slow
def test_a_louvain_job_loses_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when RTBA's decisions are not carried out on a real job whose machine is taken away, or a job that went on
    on another one finds other communities than one that was left in peace."""
    monkeypatch.setattr(rented, "_REPORT_S", 0.1)
    rng = np.random.default_rng(1)
    count = 1_000_000
    ends = rng.integers(0, count, 6 * count)
    friends = np.minimum(ends // 50 * 50 + rng.integers(0, 50, ends.size), count - 1)
    graph = gf.from_edges(
        np.concatenate([ends, rng.integers(0, count, count)]), np.concatenate([friends, rng.integers(0, count, count)])
    )
    gf.partition(graph, parts=2, method="hash").save(tmp_path / "store")
    expected = run("louvain", gf.open(tmp_path / "store"), engine="local").table
    # Whenever it is looked at, high prices are near, and end again.
    rises = [(at, price) for at in range(1440, 20_000, 3600) for price, at in ((HIGH, at), (CALM, at + 180))]
    with renting(tmp_path, rises) as service:
        spec = cloud_spec(1, checkpoint_every=1)
        assert spec.graph is not None
        changed = spec.graph.model_copy(update={"algorithm": "louvain", "options": {}})
        job = service.submit(spec.model_copy(update={"graph": changed}))
        found = service.settle(job)
        assert found.state == State.DONE, found.error
        events = service.events(job)
        table = service.result(job)
    lost = [event.details or {} for event in events if event.kind == "lost"]
    assert lost and all(one["price"] == HIGH > one["bid"] for one in lost)
    assert found.cost == pytest.approx(by_hand(events)) and found.losses == 0
    decided = next(event for event in events if event.kind == "plan")
    assert decided.text.startswith("rtba: about ")
    assert table.equals(expected)


@pytest.mark.slow
def test_a_deadline_is_kept_on_demand(tmp_path: Path) -> None:
    """Breaks when a job waits for low prices until its deadline has passed."""
    graph = make_store(tmp_path)
    with renting(tmp_path, [(1, HIGH)]) as service:
        job = service.submit(cloud_spec(1000, deadline_s=45.0))
        found = service.settle(job)
        events = service.events(job)
        assert found.state == State.DONE, found.error
        check_answer(service, job, graph)
    assert found.ended is not None and found.ended - found.submitted <= 45
    used = [(event.details or {})["market"] for event in events if event.kind == "machine"]
    assert used[-1] == "on-demand"


@pytest.mark.slow
def test_a_deadline_or_a_budget_that_is_too_small(tmp_path: Path) -> None:
    """Breaks when a job goes on beyond either of them, or hides that it cannot be promised."""
    make_store(tmp_path)
    with renting(tmp_path) as service:
        late = service.submit(cloud_spec(100_000, deadline_s=6.0))
        dear = service.submit(cloud_spec(100_000, budget=0.01, policy="on-demand"))
        found = service.settle(late)
        assert found.state == State.FAILED and found.error == "deadline exceeded: 6 s after submission"
        assert "cannot be guaranteed" in next(event.text for event in service.events(late) if event.kind == "plan")
        found = service.settle(dear)
        assert found.state == State.FAILED and found.error.endswith("0.01 allowed")
        # It is looked at every two seconds, which are 12 minutes of the cloud.
        assert 0.01 < found.cost < 0.01 + ON_DEMAND / 3
        assert workers(tmp_path) == []


@pytest.mark.slow
def test_a_worker_of_a_dead_server_that_is_still_there(tmp_path: Path) -> None:
    """Breaks when a job is begun beside a worker that has not ended yet, or its attempt cannot be gone on with."""
    graph = make_store(tmp_path, 5000, 30_000)
    cloud = cloud_of(write_cloud(tmp_path / "clouds"))
    service = Service(tmp_path, {"cloud": CloudRunner(lambda uri: str(tmp_path / uri), lambda _: cloud, PACE)})
    job = service.jobs.submit(cloud_spec(300), "tester")[0].id
    left = service.jobs.claim()[0]
    left = service.jobs.move(service.jobs.move(left, State.PROVISIONING), State.RUNNING, cost=0.5)
    folder = service.supervisor.folder(job)
    assert folder.prepare({}, left.attempts, 1) == "1.1"
    with folder.taken():
        service.supervisor.start()
        time.sleep(1.0)
        assert service.jobs.get(job).state == State.RUNNING
    try:
        found = service.settle(job)
        assert found.state == State.DONE and found.attempts == 1 and folder.turn == "1.2"
        assert found.cost == pytest.approx(0.5 + by_hand(service.events(job))) and found.cost > 0.5
        check_answer(service, job, graph)
    finally:
        service.supervisor.stop(0.0)


@pytest.mark.slow
def test_a_machine_or_a_worker_that_fails(tmp_path: Path) -> None:
    """Breaks when a job is not tried again after its machine or its worker died by itself, or is for ever."""
    make_store(tmp_path)
    with renting(tmp_path) as service:
        job = service.submit(cloud_spec(100_000, most_attempts=2))
        for victim, text in (("agent", "machine failed"), ("worker", "worker lost")):
            seen = len(service.events(job))
            until = time.monotonic() + 60
            while not (there := workers(tmp_path)) or "running" not in {e.state for e in service.events(job)[seen:]}:
                assert time.monotonic() < until, service.events(job)
                time.sleep(0.05)
            (there[0].parent() if victim == "agent" else there[0]).kill()  # type: ignore[union-attr]
            while not any(text in event.text for event in service.events(job)):
                assert time.monotonic() < until, service.events(job)
                time.sleep(0.05)
        found = service.settle(job)
        assert found.state == State.FAILED and found.error.endswith("aborted after 2 lost workers")
        assert workers(tmp_path) == [] and found.cost > 0


@pytest.mark.slow
def test_the_server_is_killed(tmp_path: Path) -> None:
    """Breaks when machines outlive their server, the job is not taken up again, or what was spent is forgotten."""
    data = tmp_path / "data"
    data.mkdir()
    graph = make_store(data)
    clouds = write_cloud(tmp_path / "clouds")
    server = RealServer(tmp_path / "home", data, "--clouds", str(clouds), "--cloud-speed", f"{PACE:g}").start()
    try:
        with server.client() as client:
            job = client.submit_graph(
                "pagerank", "store", {"supersteps": "4000"}, runner="cloud", cloud_name="own", checkpoint_every=50
            ).id
            until = time.monotonic() + 60
            while client.job(job).progress < 200 or not client.job(job).cost:
                assert time.monotonic() < until, client.job(job)
                time.sleep(0.1)
            spent = client.job(job).cost
        server.kill()
        until = time.monotonic() + 10
        while server.workers():
            assert time.monotonic() < until, "a machine outlives its server"
            time.sleep(0.1)
        server.start()
        with server.client() as client:
            settle(client, [job])
            found, events = client.job(job), list(client.watch(job))
            assert found.state == 6, found
            result = client.result(job).sort_by("vertex")
    finally:
        server.stop()
    assert found.cost > spent > 0
    costs = [float(event.text.split()[0]) for event in events if event.kind == "cost"]
    assert costs == sorted(costs)
    steps = [int(event.text.split()[1]) for event in events if event.kind == "progress"]
    assert min(steps[1:]) >= 50, "it began anew"
    assert sum(event.kind == "machine" and "started" in event.text for event in events) == 2
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    assert np.allclose(result["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)
