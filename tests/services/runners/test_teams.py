"""Graph jobs on several machines: real processes of the local provider, with an MPI rank on each."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import psutil
import pytest

import goffish as gf
from goffish.cloud.providers import CapacityError, LocalProvider, Machine, Request
from goffish.errors import JobError
from goffish.gofs.files import open_folder
from goffish.graph import Graph
from goffish.services.runners.cloud import CloudRunner, Renting
from goffish.services.runners.cloud_planning import Need, Planner
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.mirror import Mirror
from goffish.services.runners.team import Launch, Team
from goffish.services.store.records import State
from tests.cloud.kubernetes_cluster import Cluster
from tests.services.api.serving import RealServer, processes_with, settle
from tests.services.runners.rented import (
    CALM,
    ON_DEMAND,
    PACE,
    Service,
    cloud_of,
    cloud_spec,
    make_store,
    serving,
    write_cloud,
)

pytest.importorskip("mpi4py")
LIMIT_S = 400.0


def check_answer(service: Service, job: str, graph: Graph) -> None:
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    found = service.result(job).sort_by("vertex")
    assert found["vertex"].equals(expected["vertex"])
    assert np.allclose(found["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)


def members(folder: Path) -> list[psutil.Process]:
    """The workers of machines, in the order in which they began."""
    found = [one for one in processes_with(str(folder)) if "goffish.services.runners.member" in one.cmdline()]
    return sorted(found, key=lambda one: one.create_time())


def wait_until(service: Service, job: str, holds: Callable[[], Any], limit_s: float = 240.0) -> Any:
    end = time.monotonic() + limit_s
    while not (found := holds()):
        assert time.monotonic() < end and not service.jobs.get(job).over, "\n".join(
            f"{e.time:.1f} {e.kind} {e.state} {e.text}" for e in service.events(job)
        ) + service.supervisor.log(job, 4000)
        time.sleep(0.1)
    return found


def has_saved(service: Service, job: str) -> bool:
    return any(event.kind == "checkpoint" for event in service.events(job))


def texts_of(service: Service, job: str) -> str:
    return "\n".join(f"{e.kind} {e.state} {e.text}" for e in service.events(job))


class Scarce(LocalProvider):
    """A provider of which a test decides which requests are refused, by the number of machines granted so far."""

    refuses: Callable[[int], bool] = staticmethod(lambda _: False)
    granted = 0

    async def request(self, request: Request) -> Machine:
        if type(self).refuses(self.granted):
            raise CapacityError("no capacity is left")
        self.granted += 1
        return await super().request(request)


class Teams:
    """A service with machines of a calm market, in the folder of a test."""

    def __init__(self, path: Path, kind: type[LocalProvider] = LocalProvider, **more: Any) -> None:
        cloud = cloud_of(write_cloud(path / "clouds"))

        def rent(renting: Renting) -> LocalProvider:
            return kind(
                renting.catalogue, reference_share=renting.share, folder=renting.folder, pace=PACE,
                since=renting.since, environment=renting.environment,
            )  # fmt: skip

        self.home = path / "home"
        self.runner = CloudRunner(lambda uri: str(path / uri), lambda _: cloud, PACE, rent=rent, **more)
        Planner().plan(cloud, "rtba", Need(2.0, 300.0, 10.0, 6 * 3600.0, 360.0, machines=2))

    def serving(self) -> Any:
        return serving(self.home, {"cloud": self.runner})


@pytest.mark.slow
def test_two_machines_find_what_one_finds(tmp_path: Path) -> None:
    """Breaks when ranks do not find each other, rank and machine differ in number, or only one machine is paid."""
    graph = make_store(tmp_path, 5000, 30_000)
    with Teams(tmp_path).serving() as service:
        job = service.submit(cloud_spec(200, machines=2, policy="on-demand"))
        found = service.settle(job, LIMIT_S)
        texts = texts_of(service, job)
        assert found.state == State.DONE, texts + service.supervisor.log(job, 4000)
        check_answer(service, job, graph)
        events = service.events(job)
        assert members(tmp_path) == []
    assert "state running on 2 machines, tiny on demand" in texts
    lives = [e.details or {} for e in events if e.kind == "machine" and "released" in e.text]
    assert len(lives) == 2 and len({one["machine"] for one in lives}) == 2
    charged = sum(-(-(one["cloud_ended_s"] - one["cloud_begun_s"]) // 60) * 60 for one in lives) / 3600 * ON_DEMAND
    assert found.cost == pytest.approx(charged) and found.cost > 0


@pytest.mark.slow
def test_a_machine_is_killed(tmp_path: Path) -> None:
    """Breaks when the job begins anew or fails, the other machine is not kept, or the lost one is not replaced."""
    graph = make_store(tmp_path, 60_000, 400_000)
    with Teams(tmp_path).serving() as service:
        job = service.submit(cloud_spec(1500, machines=2, checkpoint_every=20))
        wait_until(service, job, lambda: has_saved(service, job))
        kept, lost = members(tmp_path)
        (lost.parent() or lost).kill()
        found = service.settle(job, LIMIT_S)
        texts = texts_of(service, job)
        assert found.state == State.DONE, texts + service.supervisor.log(job, 4000)
        check_answer(service, job, graph)
        assert members(tmp_path) == [] and kept.pid != lost.pid
    assert "machine failed; resuming from the last checkpoint" in texts and found.attempts == 1
    assert texts.count("started") == 3 and texts.count("state running on 2 machines") == 2
    steps = [int(line.split()[-1]) for line in texts.split("machine failed;")[1].splitlines() if "progress" in line]
    assert steps[0] >= 20, "it began anew"


@pytest.mark.slow
def test_a_machine_gets_a_notice(tmp_path: Path) -> None:
    """Breaks when the ranks do not end with a checkpoint, or the machine that leaves is in the next team."""
    graph = make_store(tmp_path, 60_000, 400_000)
    with Teams(tmp_path).serving() as service:
        job = service.submit(cloud_spec(1500, machines=2, checkpoint_every=1_000_000))
        wait_until(service, job, lambda: any(event.kind == "progress" for event in service.events(job)))
        members(tmp_path)[0].send_signal(signal.SIGTERM)  # the one that leads
        found = service.settle(job, LIMIT_S)
        texts = texts_of(service, job)
        assert found.state == State.DONE, texts + service.supervisor.log(job, 4000)
        check_answer(service, job, graph)
    assert "left after a notice" in texts and texts.count("started") == 3
    assert texts.count("checkpoint of superstep") == 1


@pytest.mark.slow
def test_capacity_is_refused(tmp_path: Path) -> None:
    """Breaks when machines that are not enough are kept, or a job that has lost one waits for ever for another."""
    graph = make_store(tmp_path, 60_000, 400_000)
    Scarce.refuses = staticmethod(lambda granted: granted == 1)
    with Teams(tmp_path, Scarce).serving() as service:
        job = service.submit(cloud_spec(1500, machines=2, checkpoint_every=20))
        wait_until(service, job, lambda: "released: 2 machines were not available" in texts_of(service, job))
        Scarce.refuses = staticmethod(lambda _: False)
        wait_until(service, job, lambda: has_saved(service, job))
        Scarce.refuses = staticmethod(lambda _: True)
        machine = members(tmp_path)[1].parent()
        assert machine is not None
        machine.kill()
        found = service.settle(job, LIMIT_S)
        texts = texts_of(service, job)
        assert found.state == State.DONE, texts + service.supervisor.log(job, 4000)
        check_answer(service, job, graph)
    assert "no capacity is left; continuing on 1 of 2 machines" in texts
    assert "state running on 1 machines" in texts and "1 of 2 machines: no capacity is left" in texts


@pytest.mark.slow
def test_a_job_on_two_machines_is_cancelled(tmp_path: Path) -> None:
    """Breaks when a machine or a rank goes on after its job was cancelled."""
    make_store(tmp_path, 5000, 30_000)
    with Teams(tmp_path).serving() as service:
        job = service.submit(cloud_spec(1_000_000, machines=2))
        wait_until(service, job, lambda: any(event.kind == "progress" for event in service.events(job)))
        folders = [one.cwd() for one in members(tmp_path)]
        service.cancel(job)
        found = service.settle(job, LIMIT_S)
        assert found.state == State.CANCELLED and found.cost > 0
        until = time.monotonic() + 10
        while left := [one for folder in folders for one in processes_with(folder)]:
            assert time.monotonic() < until, left
            time.sleep(0.1)
        ranks = [one for one in psutil.process_iter(["cmdline"]) if "goffish.services.runners.rank" in
                 " ".join(one.info["cmdline"] or ())]  # fmt: skip
        assert [one for one in ranks if one.cwd() in folders] == []


def test_files_of_teams_that_no_machine_of_ours_writes(tmp_path: Path) -> None:
    """Breaks when a machine starts what somebody wrote into storage, or connects to anything but an address."""
    folder = open_folder(str(tmp_path))
    assert Team.read(folder) is None and Launch.read(folder, "1.1") is None
    team = Team("1.2", ("1.1.0", "1.2.0"), "10.0.0.7")
    team.write(folder)
    assert Team.read(folder) == team
    for change in (
        {"address": "evil.example.com"}, {"address": "--launcher"}, {"machines": []}, {"machines": ["1.1.0", "1.1.0"]},
        {"machines": ["../x"]}, {"turn": 3}, {"machines": [f"1.{at}" for at in range(300)]}, {"turn": "1;reboot"},
    ):  # fmt: skip
        body = {"turn": "1.2", "machines": ["1.1.0", "1.2.0"], "address": "10.0.0.7"} | change
        folder.write("team.json", json.dumps(body).encode())
        with pytest.raises(JobError, match=r"team\.json: not a team of machines"):
            Team.read(folder)
    folder.write("team.json", b"[]")
    with pytest.raises(JobError, match="not a JSON object"):
        Team.read(folder)
    line = " /opt/bin/hydra_pmi_proxy --control-port h1:4001 --rmk user --usize -1 --demux poll --proxy-id 0 "
    launch = Launch.of(line)
    assert launch == Launch(4001, ("--rmk", "user", "--usize", "-1", "--demux", "poll"))
    launch.write(folder, "1.2")
    assert Launch.read(folder, "1.2") == launch
    command = launch.proxy("/usr/bin/hydra_pmi_proxy", "10.0.0.7", 1)
    assert command[:3] == ["/usr/bin/hydra_pmi_proxy", "--control-port", "10.0.0.7:4001"]
    assert command[-2:] == ["--proxy-id", "1"]
    assert "[fd00::1]:4001" in launch.proxy("proxy", "fd00::1", 0)
    for port, options in (
        (0, []), ("4001", []), (70000, []), (4001, ["--launcher-exec", "sh"]), (4001, ["$(reboot)"]),
        (4001, ["/bin/sh"]), (4001, ["--control-port", "x"]), (4001, [3]), (4001, ["x"] * 100),
        (4001, "--rmk; sh"), (4001, 7),
    ):  # fmt: skip
        folder.write("launch-1.2.json", json.dumps({"port": port, "options": options}).encode())
        with pytest.raises(JobError, match="not where a machine of the team listens"):
            Launch.read(folder, "1.2")
    with pytest.raises(JobError, match="not the command of a proxy"):
        Launch.of("mpiexec")


def test_plans_of_several_machines(tmp_path: Path) -> None:
    """Breaks when a policy plans with the price or the speed of one machine."""
    cloud = cloud_of(write_cloud(tmp_path / "clouds"))
    plans = {}
    for machines in (1, 3):
        need = Need(6.0, 300.0, 10.0, 10 * 3600.0, 360.0, machines=machines)
        plans[machines] = Planner().plan(cloud, "on-demand", need)
    one, three = plans[1], plans[3]
    speeds = [plan.market.classes[0].speed * plan.market.unit / plan.slot_s for plan in (one, three)]
    assert speeds[1] == pytest.approx(3 * speeds[0])
    hours = {n: 6.0 / (2 * n) for n in (1, 3)}
    assert one.expected_cost == pytest.approx(ON_DEMAND * hours[1], rel=0.1)
    assert three.expected_cost == pytest.approx(3 * ON_DEMAND * hours[3], rel=0.2)
    spot = Planner().plan(cloud, "rtba", Need(6.0, 300.0, 10.0, 10 * 3600.0, 360.0, machines=3))
    assert 0.9 * CALM * 3 < spot.expected_cost < 3 * 3 * CALM


def test_machines_say_why_they_end(tmp_path: Path) -> None:
    """Breaks when what a machine says is taken unchecked, or a local job copies its input."""
    server = Mirror(JobFolder(tmp_path / "job"), str(tmp_path / "storage"))
    (tmp_path / "edges.txt").write_text("1 2\n")
    server.folder.prepare({"names": {str(tmp_path / "edges.txt"): "edges.txt"}}, 1, 1)
    server.publish()
    assert sorted(server.store.list()) == ["current", "order.json"]
    server.say("1.1.0", code=2, error="no MPICH " + "x" * 5000)
    said = server.worker("1.1.0")
    assert said["code"] == 2 and said["error"].startswith("no MPICH") and len(said["error"]) == 1000
    server.say("1.1.0", code="2", error=[1])
    assert server.worker("1.1.0") == {}
    assert server.is_current("1.1") and not server.is_current("1.2") and not server.is_done()


@pytest.mark.slow
def test_a_server_of_two_machines_is_killed(tmp_path: Path) -> None:
    """Breaks when local machines outlive their server, or the job does not resume from its checkpoint."""
    data = tmp_path / "data"
    data.mkdir()
    graph = make_store(data, 60_000, 400_000)
    options = ["--clouds", str(write_cloud(tmp_path / "clouds")), "--cloud-speed", f"{PACE:g}"]
    server = RealServer(tmp_path / "home", data, *options).start()
    try:
        with server.client() as client:
            job = client.submit_graph(
                "pagerank", "store", {"supersteps": "2000"}, runner="cloud", cloud_name="own", checkpoint_every=20,
                machines=2,
            ).id  # fmt: skip
            until = time.monotonic() + 240
            while client.job(job).progress < 60 or not client.job(job).cost:
                assert time.monotonic() < until, client.job(job)
                time.sleep(0.1)
            spent = client.job(job).cost
        server.kill()
        until = time.monotonic() + 20
        while members(tmp_path):
            assert time.monotonic() < until, "a machine outlives its server"
            time.sleep(0.1)
        server.start()
        with server.client() as client:
            settle(client, [job], LIMIT_S)
            found, events = client.job(job), list(client.watch(job))
            assert found.state == 6, found
            result = client.result(job).sort_by("vertex")
    finally:
        server.stop()
    assert found.cost > spent > 0 and found.spec.graph.machines == 2
    steps = [int(event.text.split()[1]) for event in events if event.kind == "progress"]
    assert min(steps[1:]) >= 20, "it began anew"
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    assert np.allclose(result["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)


@pytest.mark.slow
def test_a_server_is_killed_while_two_pods_work(tmp_path: Path, s3: Any, pods: Cluster) -> None:
    """Breaks when a killed server loses the team, or an eviction of one pod loses the other or what was done."""
    fsspec.filesystem("s3").makedirs("rented", exist_ok=True)
    (tmp_path / "data").mkdir()
    graph = make_store(tmp_path / "data", 60_000, 400_000)
    rent = tmp_path / "rent.yaml"
    rent.write_text(json.dumps({"jobs": "s3://rented/jobs", "kubernetes": pods.options}))
    options = ["--clouds", str(write_cloud(tmp_path / "clouds")), "--rent", str(rent)]
    server = RealServer(tmp_path / "home", tmp_path / "data", *options).start()
    try:
        with server.client() as client:
            job = client.submit_graph(
                "pagerank", "store", {"supersteps": "4000"}, runner="cloud", cloud_name="own", machines=2,
                checkpoint_every=100_000,
            ).id  # fmt: skip
            end = time.monotonic() + 240
            while client.job(job).progress == 0:
                assert time.monotonic() < end, client.job(job)
                time.sleep(0.1)
            before = list(pods.pods)
            server.kill()
            server.start()
        with server.client() as client:
            again = 0
            for event in client.watch(job):
                again += event.kind == "machine" and "found again" in event.text
                if again == 2:
                    break
            assert again == 2
            pods.evict(before[1], 100)
            settle(client, [job], LIMIT_S)
            found, texts = client.job(job), "\n".join(event.text for event in client.watch(job))
            assert found.state == 6, f"{found}{texts}"
            result = client.result(job).sort_by("vertex")
    finally:
        server.stop()
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    assert np.allclose(result["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)
    assert len(before) == 2 and texts.count("started") == 3 and texts.count("was interrupted") == 1, texts
    assert texts.count("checkpoint of superstep") == 1, texts
    assert found.cost > 0 and set(before) <= set(pods.policies)
    pods.wait_until_empty()
