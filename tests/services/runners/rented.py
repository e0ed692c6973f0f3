"""Jobs under a supervisor of the test's own process, and catalogues whose prices the test makes up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

import goffish as gf
from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.graph import Graph
from goffish.services.runners.attempt import Runner
from goffish.services.runners.cloud import CloudRunner
from goffish.services.runners.cloud_planning import Need, Planner
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import open_database
from goffish.services.store.records import Event, Job
from goffish.services.store.spec import GraphJob, JobSpec

#: Seconds of the cloud in one of ours.
PACE = 360.0
ON_DEMAND, CALM, HIGH = 0.20, 0.02, 0.9
#: Length of the part of the prices that planners know, in seconds.
KNOWN_S = 86_400.0
BEGIN = np.datetime64("2015-03-01T00:00:00")


def write_cloud(folder: Path, changes: Sequence[tuple[float, float]] = (), *, name: str = "own") -> Path:
    """A catalogue of one spot class that a job lives to see the changes of, as (seconds of the cloud, price).

    Before, for as long again, the price was calm but for an hour.
    """
    folder.mkdir(exist_ok=True)
    rows = [(0.0, CALM), (40_000.0, HIGH), (43_600.0, CALM), *((KNOWN_S + at, price) for at, price in changes)]
    rows.append((2 * KNOWN_S, rows[-1][1]))
    text = "".join(f"{BEGIN + np.timedelta64(int(at), 's')},{price}\n" for at, price in rows)
    (folder / f"{name}.csv").write_text("timestamp_utc,price_usd_per_hour\n" + text)
    made = {
        "startup_s": 0, "billing": {"quantum_s": 60},
        "machine_types": [
            {"name": "tiny", "cores": 2, "price_per_hour": ON_DEMAND, "market": "spot", "prices": f"{name}.csv"},
        ],
    }  # fmt: skip
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(made))
    return folder


def cloud_of(folder: Path, name: str = "own") -> Catalogue:
    """The catalogue that `write_cloud` wrote."""
    found = read_catalogue(folder / f"{name}.yaml")
    one = found.classes[0].model_copy(update={"prices": str(folder / f"{name}.csv")})
    return found.with_classes((one,))


def make_store(folder: Path, vertices: int = 20_000, edges: int = 100_000) -> Graph:
    """A random graph, as a store of two partitions called ``store``."""
    rng = np.random.default_rng(1)
    graph = gf.from_edges(rng.integers(0, vertices, edges), rng.integers(0, vertices, edges))
    gf.partition(graph, parts=2, method="hash").save(folder / "store")
    return graph


def cloud_spec(supersteps: int, **given: Any) -> JobSpec:
    """PageRank with so many supersteps on the cloud of `write_cloud`."""
    of_job = {name: given.pop(name) for name in ("deadline_s", "budget", "most_attempts") if name in given}
    graph = GraphJob(
        algorithm="pagerank", input_uri="store", options={"supersteps": str(supersteps)}, runner="cloud",
        cloud_name="own", **{"checkpoint_every": 50} | given,
    )  # fmt: skip
    return JobSpec(graph=graph, **of_job)


class Service:
    """Jobs and their supervisor."""

    def __init__(self, home: Path, runners: dict[str, Runner]) -> None:
        self.jobs = PatientJobs(open_database(f"sqlite:///{home / 'jobs.sqlite'}"), "one")
        self.supervisor = Supervisor(self.jobs, home / "jobs", runners, slots=2)

    def submit(self, spec: JobSpec) -> str:
        """Gives the job's id."""
        job, _ = self.jobs.submit(spec, "tester")
        self.supervisor.wake()
        return job.id

    def cancel(self, job: str) -> None:
        """As the service does."""
        self.supervisor.wake(self.jobs.cancel(job, "tester"))

    def settle(self, job: str, limit_s: float = 90.0) -> Job:
        """Wait until a job is over."""
        end = time.monotonic() + limit_s
        while not (found := self.jobs.get(job)).over:
            assert time.monotonic() < end, "\n".join(
                f"{e.time:.1f} {e.kind} {e.state} {e.text}" for e in self.events(job)
            )
            time.sleep(0.05)
        return found

    def events(self, job: str) -> list[Event]:
        """All of them."""
        return self.jobs.events(job)

    def wait_for(self, job: str, kind: str, limit_s: float = 60.0) -> Event:
        """The first event of a kind, or of a change to a state."""
        end = time.monotonic() + limit_s
        while True:
            for event in self.events(job):
                if kind in (event.kind, f"{event.state}" if event.kind == "state" else ""):
                    return event
            assert time.monotonic() < end, "\n".join(f"{e.time:.1f} {e.kind} {e.text}" for e in self.events(job))
            time.sleep(0.05)

    def result(self, job: str) -> pa.Table:
        """What it found."""
        with pa.ipc.open_stream(self.supervisor.folder(job).result) as reader:
            return reader.read_all()


@contextmanager
def serving(home: Path, runners: dict[str, Runner]) -> Iterator[Service]:
    """A service that stops with this."""
    home.mkdir(exist_ok=True)
    service = Service(home, runners)
    service.supervisor.start()
    try:
        yield service
    finally:
        service.supervisor.stop(0.0)


@contextmanager
def renting(tmp_path: Path, changes: Sequence[tuple[float, float]] = ()) -> Iterator[Service]:
    """A service with machines of the cloud that `write_cloud` writes, and inputs of `tmp_path`."""
    cloud = cloud_of(write_cloud(tmp_path / "clouds", changes))
    runner = CloudRunner(lambda uri: str(tmp_path / uri), lambda _: cloud, PACE)
    # Prices change while a job lives: its planning must not take as long as compiling what plans it.
    Planner().plan(cloud, "rtba", Need(2.0, 300.0, 10.0, 6 * 3600.0, 360.0))
    with serving(tmp_path / "home", {"cloud": runner}) as service:
        yield service


def by_hand(events: Sequence[Event]) -> float:
    """What the machines of a job cost by its events: every begun minute at the price that it began at.

    Only for prices of one level, as each machine has the price that it was started at.
    """
    begun = {e.details["machine"]: e.details for e in events if e.kind == "machine" and "price" in (e.details or {})}
    total = 0.0
    for event in events:
        told = event.details or {}
        if event.kind in ("machine", "lost") and told["cloud_ended_s"] is not None:
            lived = told["cloud_ended_s"] - told["cloud_begun_s"]
            total += -(-lived // 60) * 60 / 3600 * begun[told["machine"]]["price"]
    return total
