"""Graph jobs whose folder is in object storage, on machines that share no files with the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import psutil
import pytest

import goffish as gf
from goffish.cloud.providers import LocalProvider, Machine, Request
from goffish.cloud.providers.kubernetes import KubernetesOptions, KubernetesProvider
from goffish.errors import JobError, StoreError
from goffish.gofs import files
from goffish.services.runners import cloud, remote_worker, rented, worker
from goffish.services.runners.cloud import CloudRunner, Renting
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.held import JOB, TURN
from goffish.services.runners.mirror import BadFolder, Mirror
from goffish.services.runners.processes import lost
from goffish.services.runners.supervisor import PatientJobs
from goffish.services.store.database import open_database
from goffish.services.store.records import State
from tests.cloud.kubernetes_cluster import Cluster
from tests.services.api.serving import RealServer, settle
from tests.services.runners.rented import (
    CALM,
    HIGH,
    ON_DEMAND,
    PACE,
    cloud_of,
    cloud_spec,
    make_store,
    serving,
    write_cloud,
)


def files_of(place: str) -> list[str]:
    system, root = fsspec.url_to_fs(place)
    return sorted(name.removeprefix(f"{root}/") for name in system.find(root) if ".lease" not in name)


def noted(mirror: Mirror) -> list[str]:
    """The names of files that are written to storage from now on."""
    names: list[str] = []
    write, upload = mirror.store.write, mirror.store.upload
    mirror.store.write = lambda name, data: (write(name, data), names.append(name))  # type: ignore[method-assign]
    mirror.store.upload = lambda name, source: (upload(name, source), names.append(name))  # type: ignore[method-assign]
    return names


def save(folder: JobFolder, superstep: int) -> None:
    """A checkpoint as an engine writes it; the one before is removed afterwards."""
    old = {path for path in folder.checkpoints.rglob("*") if path.is_file() and path.name != "checkpoint.json"}
    part = folder.checkpoints / f"step-{superstep}" / "part"
    part.parent.mkdir(parents=True)
    part.write_text(f"state {superstep}")
    (folder.checkpoints / "checkpoint.json").write_text(json.dumps({"superstep": superstep}))
    for path in old:
        path.unlink()


def test_the_two_folders_of_a_job(tmp_path: Path) -> None:
    """Breaks when a checkpoint is without its files, an old one stays, or the next worker lacks something."""
    place = f"memory://{tmp_path.name}-mirror/job"
    server, first, second = (Mirror(JobFolder(tmp_path / name), place) for name in ("server", "first", "second"))
    turn = server.folder.prepare({"algorithm": "pagerank"}, 1, 1)
    server.publish()
    server.fetch_news()
    assert server.folder.saved is None and not server.has_begun(turn)
    first.fetch_all()
    assert json.loads(first.folder.order.read_text()) == {"algorithm": "pagerank"} and first.folder.turn == "1.1"
    first.say(turn)
    assert server.has_begun(turn) and server.worker(turn) == {}
    for superstep in (3, 6):
        save(first.folder, superstep)
        first.folder.report({"superstep": superstep})
        first.folder.log.write_text(f"line {superstep}\n")
        first.write_news()
        server.fetch_news()
        assert (server.folder.saved, server.folder.progress) == (superstep, {"superstep": superstep})
        assert server.folder.log_end(100) == f"line {superstep}\n"
        kept = [name for name in files_of(place) if name.startswith("checkpoints/")]
        assert kept == ["checkpoints/checkpoint.json", f"checkpoints/step-{superstep}/part"]
    first.say(turn, code=-9)
    assert server.worker(turn) == {"code": -9}
    second.fetch_all()
    assert (second.folder.checkpoints / "step-6" / "part").read_text() == "state 6"
    writes = noted(second)
    second.write_news()
    assert writes == []  # what it has read is there
    second.folder.result.write_bytes(b"result")
    second.folder.finish({"summary": {}, "rows": 1})
    second.write_result()
    assert writes == ["result.arrow", "done.json"]
    server.fetch_news()
    assert server.folder.done == {"summary": {}, "rows": 1} and server.folder.result.read_bytes() == b"result"


def test_checkpoints_that_change_while_they_are_written(tmp_path: Path) -> None:
    """Breaks when the manifest in storage names files that are not there."""
    mirror = Mirror(JobFolder(tmp_path), f"memory://{tmp_path.name}-changes/job")
    save(mirror.folder, 1)
    upload = mirror.store.upload

    def slowly(name: str, source: Path) -> None:
        if name.endswith("step-1/part"):
            save(mirror.folder, 2)
        upload(name, source)

    mirror.store.upload = slowly  # type: ignore[method-assign]
    mirror.write_news()
    assert files_of(mirror.place) == ["checkpoints/checkpoint.json", "checkpoints/step-2/part"]
    assert json.loads(mirror.store.read("checkpoints/checkpoint.json").to_pybytes()) == {"superstep": 2}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["pagerank", "betweenness"])
def test_a_worker_ends_with_a_checkpoint_after_a_notice(tmp_path: Path, algorithm: str) -> None:
    """Breaks when it goes on, or loses what it has done."""
    make_store(tmp_path, 20_000, 100_000)
    folder = JobFolder(tmp_path / "job")
    options = {"supersteps": "5000"} if algorithm == "pagerank" else {}
    order = {
        "algorithm": algorithm, "input": str(tmp_path / "store"), "options": options, "names": {}, "engine": "local",
        "threads": 2, "checkpoint_every": 1_000_000, "limits": {"memory_mb": None, "threads": None},
    }  # fmt: skip
    turn = folder.prepare(order, 1)
    process = subprocess.Popen([sys.executable, "-m", "goffish.services.runners.worker", str(folder.path), turn])
    end = time.monotonic() + 120
    if algorithm == "pagerank":
        while not folder.progress:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
    else:
        while folder.session is None:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        time.sleep(5)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == worker.NOTICED
    if algorithm == "pagerank":
        assert folder.saved == folder.progress["superstep"]
    else:
        assert any(folder.checkpoints.iterdir())


def ordered(tmp_path: Path) -> tuple[Mirror, str]:
    """The mirror of a small job, and its turn."""
    make_store(tmp_path, 200, 800)
    server = Mirror(JobFolder(tmp_path / "job"), str(tmp_path / "storage"))
    order = {
        "algorithm": "components", "input": str(tmp_path / "store"), "options": {}, "names": {}, "engine": "local",
        "threads": 1, "checkpoint_every": 10, "limits": {"memory_mb": None},
    }  # fmt: skip
    turn = server.folder.prepare(order, 1, 1)
    server.publish()
    return server, turn


def test_a_lease_that_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a job fails because another machine, or storage, keeps a worker from its folder for a while."""
    server, turn = ordered(tmp_path)
    monkeypatch.setattr(remote_worker, "_LEASE_S", 0.1)
    monkeypatch.setattr(sys, "argv", ["remote_worker", server.place, turn])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with server.store.locked(), pytest.raises(SystemExit) as ended:
        remote_worker.main()
    assert ended.value.code == worker.NO_STORAGE
    outcome = lost(server.folder, worker.NO_STORAGE)
    assert outcome.state == State.QUEUED and outcome.lost and "storage" in outcome.text


@pytest.mark.slow
@pytest.mark.parametrize("failures", [3, 10**6])
def test_storage_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """Breaks when a worker ends because storage was away for a moment, or does not end while it stays away."""
    server, turn = ordered(tmp_path)
    write, left = Mirror.write_news, [failures]

    def write_news(mirror: Mirror) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise StoreError("storage is away")
        write(mirror)

    monkeypatch.setattr(Mirror, "write_news", write_news)
    monkeypatch.setattr(remote_worker, "_PATIENCE_S", 10.0 if failures == 3 else 0.0)
    monkeypatch.setattr(remote_worker, "_LOOK_S", 0.01)
    if failures == 3:
        assert remote_worker._run(Mirror(JobFolder(tmp_path / "here"), server.place), turn, threading.Event()) == 0
        assert server.store.size("done.json") is not None
    else:
        with pytest.raises(StoreError, match="away"):
            remote_worker._run(Mirror(JobFolder(tmp_path / "here"), server.place), turn, threading.Event())


@pytest.mark.slow
def test_a_worker_elsewhere_writes_the_checkpoint_that_a_policy_asks_for(tmp_path: Path, s3: Any) -> None:
    """Breaks when CHECKPOINT is not carried out, ends the worker, or is carried out again after every superstep."""
    make_store(tmp_path, 2_000, 8_000)
    fsspec.filesystem("s3").makedirs("jobs", exist_ok=True)
    server = Mirror(JobFolder(tmp_path / "job"), "s3://jobs/one")
    order = {
        "algorithm": "pagerank", "input": str(tmp_path / "store"), "options": {"supersteps": "1000000"}, "names": {},
        "engine": "local", "threads": 1, "checkpoint_every": 1_000_000, "limits": {"memory_mb": None},
    }  # fmt: skip
    turn = server.folder.prepare(order, 1, 1)
    server.publish()
    command = [sys.executable, "-m", "goffish.services.runners.remote_worker", server.place, turn]
    process = subprocess.Popen(command)
    end, saved = time.monotonic() + 240, list[int]()
    try:
        while len(saved) < 2:
            assert process.poll() is None and time.monotonic() < end, saved
            time.sleep(0.5)
            server.fetch_news()
            if server.folder.progress and not saved and server.folder.saved is None:
                server.folder.wish(checkpoint=0)
                server.publish_wishes()
            if server.folder.saved is not None and server.folder.saved not in saved:
                saved.append(server.folder.saved)
                passed = server.folder.progress["superstep"]
                while len(saved) == 1 and server.folder.progress["superstep"] < passed + 50:  # one checkpoint only
                    assert process.poll() is None and time.monotonic() < end
                    time.sleep(0.5)
                    server.fetch_news()
                    assert server.folder.saved == saved[0]
                server.folder.wish(checkpoint=saved[0])
                server.publish_wishes()
        workers = psutil.Process(process.pid).children()
        process.kill()
        assert workers and not psutil.wait_procs(workers, 10)[1]  # none outlives its parent
    finally:
        process.kill()
        process.wait()
    assert 0 < saved[0] < saved[1]


@pytest.mark.slow
def test_a_job_moves_at_a_notice(tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the job does not end on another machine, from the checkpoint of the one that was taken back."""
    for name in ("_REMOTE_LOOK_S", "_REMOTE_REPORT_S"):
        monkeypatch.setattr(rented, name, 0.2)
    graph = make_store(tmp_path, 60_000, 400_000)
    prices = cloud_of(write_cloud(tmp_path / "clouds", [(9000, HIGH), (9360, CALM)]))
    fsspec.filesystem("s3").makedirs("jobs", exist_ok=True)

    def rent(renting: Renting) -> LocalProvider:
        return LocalProvider(
            renting.catalogue, reference_share=1.0, folder=renting.folder, pace=PACE, since=renting.since,
            notice_s=10 * PACE, environment=dict(os.environ),
        )  # fmt: skip

    runner = CloudRunner(lambda uri: str(tmp_path / uri), lambda _: prices, PACE, rent=rent, jobs_at="s3://jobs/all")
    with serving(tmp_path / "home", {"cloud": runner}) as service:
        job = service.submit(cloud_spec(3000, checkpoint_every=100_000))
        found = service.settle(job, 240.0)
        events = service.events(job)
        assert found.state == State.DONE, found.error
        result = service.result(job).sort_by("vertex")
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    assert np.allclose(result["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)
    texts = [event.text for event in events]
    assert "spot interruption announced; resuming from the checkpoint" in texts, texts
    total, bills = 0.0, []
    for details in (event.details or {} for event in events if event.kind in ("machine", "lost")):
        if details["cloud_ended_s"] is not None:
            minutes = np.arange(details["cloud_begun_s"], details["cloud_ended_s"], 60)
            spot = np.where((minutes >= 9000) & (minutes < 9360), HIGH, CALM)
            total += float(np.where(details["market"] == "spot", spot, ON_DEMAND).sum()) / 60
            bills.append(details["cost"])
    assert found.cost == bills[-1] > 0
    if found.attempts == 1:  # on a busy machine a worker may be lost; the clock of prices begins anew with each attempt
        assert found.cost == pytest.approx(total)
    assert "done.json" in files_of(f"s3://jobs/all/{job}")


@pytest.mark.slow
def test_a_job_on_kubernetes_outlives_the_server(
    tmp_path: Path, s3: Any, pods: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when pods of a server that has stopped are lost or left behind, or an eviction loses what was done."""
    for name in ("_REMOTE_LOOK_S", "_REMOTE_REPORT_S"):
        monkeypatch.setattr(rented, name, 0.2)
    graph = make_store(tmp_path, 60_000, 400_000)
    prices = cloud_of(write_cloud(tmp_path / "clouds"))
    fsspec.filesystem("s3").makedirs("jobs", exist_ok=True)
    options = KubernetesOptions(**pods.options)
    runner = CloudRunner(
        lambda uri: str(tmp_path / uri), lambda _: prices, 1.0,
        rent=lambda given: KubernetesProvider(given.catalogue, options), jobs_at="s3://jobs",
    )  # fmt: skip
    with serving(tmp_path / "home", {"cloud": runner}) as service:
        job = service.submit(cloud_spec(2_500, checkpoint_every=100_000))
        service.wait_for(job, "progress", 120.0)
        [first] = pods.pods
    assert list(pods.pods) == [first]  # the server has stopped
    with serving(tmp_path / "home", {"cloud": runner}) as service:
        end = time.monotonic() + 30
        while not any("found again" in event.text for event in service.events(job)):
            assert time.monotonic() < end, "\n".join(f"{e.state} {e.text}" for e in service.events(job))
            time.sleep(0.1)
        pods.evict(first, 100)
        found = service.settle(job, 240.0)
        events = service.events(job)
        assert found.state == State.DONE, found.error
        result = service.result(job).sort_by("vertex")
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    assert np.allclose(result["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)
    texts = "\n".join(f"{event.kind} {event.state} {event.text}" for event in events)
    assert [event.kind for event in events].count("checkpoint") == 1, texts
    assert found.cost > 0
    pods.wait_until_empty()


def test_files_of_the_server(tmp_path: Path) -> None:
    """Breaks when a worker elsewhere looks for a path of the server, or files are written to storage again."""
    place = f"memory://{tmp_path.name}-files/job"
    store, pairs = tmp_path / "data" / "store", tmp_path / "data" / "pairs.csv"
    (store / "part").mkdir(parents=True)
    (store / "manifest.json").write_text("{}")
    (store / "part" / "0").write_bytes(b"zero")
    pairs.write_text("a,b\n")
    server, worker_ = (Mirror(JobFolder(tmp_path / name), place) for name in ("server", "worker"))
    names = {str(store): "store", str(pairs): "pairs.csv", "s3://bucket/other": "other"}
    order = {"input": str(store), "options": {"pairs": str(pairs), "top": "3"}, "names": names}
    server.folder.prepare(order, 1, 1)
    server.publish()
    writes = noted(server)
    server.folder.prepare(order, 1, 2)
    server.publish()
    assert writes == ["order.json", "current"]
    worker_.fetch_all()
    found = json.loads(worker_.folder.order.read_text())
    here = tmp_path / "worker" / "files"
    assert found == {
        "input": str(here / "0" / "store"), "options": {"pairs": str(here / "1" / "pairs.csv"), "top": "3"},
        "names": {
            "s3://bucket/other": "other", str(here / "0" / "store"): "store", str(here / "1" / "pairs.csv"): "pairs.csv"
        },
    }  # fmt: skip
    assert (here / "0" / "store" / "part" / "0").read_bytes() == b"zero"
    assert (here / "1" / "pairs.csv").read_text() == "a,b\n"


@pytest.mark.slow
def test_a_server_is_killed_while_a_pod_works(tmp_path: Path, s3: Any, pods: Cluster) -> None:
    """Breaks when `goffish serve --rent` rents nothing, or a killed server loses the machine, the job or its costs."""
    fsspec.filesystem("s3").makedirs("rented", exist_ok=True)
    (tmp_path / "data").mkdir()
    graph = make_store(tmp_path / "data", 60_000, 400_000)
    rent = tmp_path / "rent.yaml"
    rent.write_text(json.dumps({"jobs": "s3://rented/jobs", "kubernetes": pods.options}))
    clouds = write_cloud(tmp_path / "clouds")
    options = ["--clouds", str(clouds), "--rent", str(rent)]
    server = RealServer(tmp_path / "home", tmp_path / "data", *options).start()
    try:
        with server.client() as client:
            job = client.submit_graph(
                "pagerank", "store", {"supersteps": "2500"}, runner="cloud", cloud_name="own", checkpoint_every=100_000
            ).id
            end = time.monotonic() + 180
            while client.job(job).progress == 0:
                assert time.monotonic() < end, client.job(job)
                time.sleep(0.1)
            [machine] = pods.pods
            server.kill()
            server.start()
        with server.client() as client:
            settle(client, [job], 240.0)
            found, events = client.job(job), list(client.watch(job))
            assert found.state == 6, found
            result = client.result(job).sort_by("vertex")
    finally:
        server.stop()
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    assert np.allclose(result["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)
    assert any(f"machine {machine}, tiny on demand found again" == event.text for event in events), events
    assert found.cost > 0
    pods.wait_until_empty()


def test_names_that_leave_the_folder_of_a_job(tmp_path: Path) -> None:
    """Breaks when write access to storage lets somebody write a file anywhere on the machine of a worker."""
    mirror = Mirror(JobFolder(tmp_path / "job"), f"memory://{tmp_path.name}-names/job")
    mirror.folder.prepare({}, 1, 1)
    mirror.publish()
    mirror.store.list = lambda: ["files/0/../../../outside"]  # type: ignore[method-assign]
    with pytest.raises(JobError, match="not the name of a file of a job"):
        mirror.fetch_all()
    assert not (tmp_path.parent / "outside").exists()


def test_files_of_a_worker_that_are_too_large(tmp_path: Path) -> None:
    """Breaks when a worker can fill the memory or the disk of the server."""
    place = f"memory://{tmp_path.name}-large/job"
    server = Mirror(JobFolder(tmp_path / "server"), place, most_result_mb=1)
    server.folder.prepare({}, 1, 1)
    store, here = server.store, server.folder.path
    store.write("progress.json", b'{"superstep": 3}')
    store.write("log.txt", b"x" * 3_000_000 + b"\nlast line\n")
    server.fetch_news()
    assert server.folder.log.stat().st_size == 1 << 18 and server.folder.log_end(1000) == "last line\n"
    store.write("progress.json", b" " * (5 << 20))
    with pytest.raises(BadFolder, match=r"progress\.json: larger than the accepted 4,194,304 bytes"):
        server.fetch_news()
    assert server.folder.progress == {"superstep": 3}
    store.write("progress.json", b'{"superstep": 4}')
    store.write("result.arrow", bytes((1 << 20) + 1))
    store.write("done.json", b'{"summary": {}, "rows": 1}')
    with pytest.raises(
        BadFolder, match=r"result of the job: .*result\.arrow: larger .* 1,048,576 bytes \(--max-storage\)"
    ):
        server.fetch_news()
    assert server.folder.done is None and not server.folder.result.exists()
    store.write("result.arrow", bytes(1 << 20))
    server.fetch_news()
    assert server.folder.done == {"summary": {}, "rows": 1} and server.folder.result.stat().st_size == 1 << 20
    assert [path.name for path in here.rglob("*") if path.suffix == ".partial"] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("progress.json", b"[]"), ("progress.json", b'{"superstep": "many"}'), ("progress.json", b'{"superstep": -1}'),
        ("progress.json", b"{"), ("progress.json", b"[" * 100_000), ("checkpoints/checkpoint.json", b"{}"),
        ("done.json", b'{"summary": []}'), ("done.json", b'{"summary": {}, "rows": 1e400}'), ("done.json", b"\xff"),
    ],
)  # fmt: skip
def test_files_that_no_worker_writes(tmp_path: Path, name: str, content: bytes) -> None:
    """Breaks when a worker can make the server raise errors that it retries for ever."""
    server = Mirror(JobFolder(tmp_path / "server"), f"memory://{tmp_path.name}-content/job")
    server.folder.prepare({}, 1, 1)
    server.store.write(name, content)
    with pytest.raises(BadFolder, match=name):
        server.fetch_news()
    assert server.folder.progress == {} and server.folder.done is None and server.folder.saved is None


def test_progress_that_changes_while_it_is_read(tmp_path: Path, s3: Any) -> None:
    """Breaks when a server reads the first part of one version and the rest of another."""
    fsspec.filesystem("s3").makedirs("jobs", exist_ok=True)
    server, there = Mirror(JobFolder(tmp_path / "server"), "s3://jobs/one"), files.open_folder("s3://jobs/one")
    server.folder.prepare({}, 1, 1)
    for superstep in (9, 10, 99_999, 7):
        there.write("progress.json", json.dumps({"superstep": superstep}).encode())
        size = server.store._fs.size  # type: ignore[attr-defined]

        def later(name: str, step: int = superstep) -> Any:
            found = size(name)  # noqa: B023 (called in this round)
            there.write("progress.json", json.dumps({"superstep": step * 1000}).encode())
            return found

        server.store._fs.size = later  # type: ignore[attr-defined]
        server.fetch_news()
        server.store._fs.size = size  # type: ignore[attr-defined]
        assert server.folder.progress == {"superstep": superstep * 1000}


def test_large_files_are_copied_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a file is read whole into memory on its way to or from storage."""
    monkeypatch.setattr(files, "_PIECE", 1000)
    source = tmp_path / "source"
    source.write_bytes(os.urandom(10_500))
    for place in (f"memory://{tmp_path.name}-pieces/job", str(tmp_path / "folder")):
        folder = files.open_folder(place)
        folder.upload("in/input", source)
        for most, end in ((None, False), (10_500, False), (20_000, True)):
            folder.download("in/input", tmp_path / "target", most, end=end)
            assert (tmp_path / "target").read_bytes() == source.read_bytes()
        folder.download("in/input", tmp_path / "target", 3500, end=True)
        assert (tmp_path / "target").read_bytes() == source.read_bytes()[-3500:]
        with pytest.raises(files.TooLargeError, match="input: larger than the accepted 10,499 bytes"):
            folder.download("in/input", tmp_path / "target", 10_499)
        assert (tmp_path / "target").stat().st_size == 3500
        with pytest.raises(files.NoSuchFileError):
            folder.download("in/none", tmp_path / "target")
        with pytest.raises(FileNotFoundError):
            folder.upload("in/none", tmp_path / "none")


class Unsteady(LocalProvider):
    """A provider that does not answer some requests for its machines."""

    fails = 0

    async def machines(self, tags: Mapping[str, str]) -> list[Machine]:
        if self.fails:
            self.fails -= 1
            raise JobError("the provider does not answer")
        return await super().machines(tags)

    async def close(self) -> None:
        """Keep the machines, which are those of a provider that outlives its clients."""


def test_machines_of_a_job_that_is_over_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a machine outlives its job, that of another job is released, or one refusal is the last word."""
    monkeypatch.setattr(cloud, "_PAUSES_S", (0.0, 0.0))
    catalogue = cloud_of(write_cloud(tmp_path / "clouds"))
    provider = Unsteady(catalogue, folder=tmp_path / "machines")
    runner = CloudRunner(str, lambda _: catalogue, PACE, rent=lambda _: provider, jobs_at="memory://jobs")
    jobs = PatientJobs(open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}"), "one")
    job, other = (jobs.submit(cloud_spec(10), "tester")[0] for _ in range(2))

    async def rent() -> None:
        for number, one in enumerate((job, job, other)):
            request = Request(
                machine_type="tiny", command=(), token=f"{number}", tags={JOB: one.id, TURN: f"1.{number}"}
            )
            await provider.request(request)

    asyncio.run(rent())
    provider.fails = 3
    with pytest.raises(JobError, match="its machines could not be released: the provider does not answer; goffish cl"):
        runner.forget(job)
    provider.fails = 2
    runner.forget(job)
    found = asyncio.run(provider.machines({}))
    assert [(one.tags[JOB] == job.id, one.ended) for one in found] == [(True, True), (True, True), (False, False)]
    replace(runner, jobs_at=None).forget(other)  # machines of the server end with it
    assert not asyncio.run(provider.machines({JOB: other.id}))[0].ended
    asyncio.run(LocalProvider.close(provider))
