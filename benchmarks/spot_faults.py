"""Spot interruptions of graph jobs: ``python benchmarks/spot_faults.py [--jobs 50] [--supersteps 3000]``.

Each job is PageRank on rented machines, which are processes of this machine, one after another. Spikes of the spot
price at random times take machines back, before and during the job. Half of the jobs share the files of the server, as
with local machines, and get no notice; half have their folders in storage, as with cloud providers, and get notices.
Two jobs run concurrently. A recovery is the time from the last superstep of a machine to its end, and from the request
of the next machine to its first superstep, without the wait for a price; workers write progress to storage once per
second. Costs are compared with those that plans expected.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import _harness
import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray

import goffish as gf
from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.providers import LocalProvider
from goffish.services.runners.cloud import CloudRunner, Renting
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import open_database
from goffish.services.store.records import Event, Job, State
from goffish.services.store.spec import GraphJob, JobSpec

#: Simulated seconds in a real one, and the notice of an interruption, in simulated seconds.
PACE, NOTICE_S = 360.0, 1080.0
ON_DEMAND, CALM, HIGH = 0.20, 0.02, 0.9
#: Length of the price history before a job and during it, of spikes, and mean time between them, in simulated seconds.
HALF_S, SPIKE_S, BETWEEN_S = 10 * 86_400.0, 300.0, 3600.0
BEGIN = np.datetime64("2025-03-01T00:00:00")
#: Interval of looks at the progress of jobs, in seconds.
LOOK_S = 0.02


@dataclass
class Outcome:
    """A job that has ended; `again` and `recoveries_s` have an entry for each interruption
    between two supersteps."""

    job: Job
    right: bool
    expected: float
    interruptions: int = 0
    again: list[int] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--supersteps", type=int, default=3000)
    parser.add_argument("--deadline", type=float, default=200.0, help="of each job, in real seconds")
    given = parser.parse_args()
    print(_harness.machine_line(), flush=True)
    rows = []
    for name in ("without", "with"):
        with tempfile.TemporaryDirectory(prefix="spot-faults-") as folder:
            some = run(Path(folder), given, notice=name == "with")
        again = np.array([steps for one in some for steps in one.again]) / given.supersteps
        gaps = np.array([gap for one in some for gap in one.recoveries_s])
        costs = sum(one.job.cost for one in some), sum(one.expected for one in some)
        rows.append([
            name, str(len(some)), str(sum(one.job.state == State.DONE for one in some)),
            str(sum(one.right for one in some)),
            str(sum(one.interruptions for one in some)), *(f"{np.quantile(gaps, q):.1f}" for q in (0.5, 1.0)),
            *(f"{np.quantile(again, q):.1%}" for q in (0.5, 1.0)), f"{costs[0]:.3f}", f"{costs[0] / costs[1]:.2f}",
        ])  # fmt: skip
    header = [
        "notice", "jobs", "in time", "right ranks", "interruptions", "recovery, s, median", "most",
        "work lost, median", "most", "cost", "of expected",
    ]  # fmt: skip
    _harness.print_table(header, rows)


def run(place: Path, given: argparse.Namespace, *, notice: bool) -> list[Outcome]:
    """Run half of the jobs to their ends."""
    count = given.jobs // 2
    rng = np.random.default_rng(1)
    graph = gf.from_edges(rng.integers(0, 60_000, 400_000), rng.integers(0, 60_000, 400_000))
    gf.partition(graph, parts=2, method="hash").save(place / "store")
    right = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")["rank"].to_numpy()
    jobs = PatientJobs(open_database(f"sqlite:///{place / 'jobs.sqlite'}"), "benchmark")

    def rent(renting: Renting) -> LocalProvider:
        return LocalProvider(
            renting.catalogue, reference_share=renting.share, folder=renting.folder, pace=PACE,
            since=renting.since, environment=renting.environment, notice_s=NOTICE_S if notice else 0.0,
        )  # fmt: skip

    runner = CloudRunner(lambda uri: str(place / uri), lambda name: _catalogue(place, name), PACE, rent=rent)
    if notice:
        runner = replace(runner, jobs_at=str(place / "storage"))
    supervisor = Supervisor(jobs, place / "jobs", {"cloud": runner}, slots=2)
    supervisor.start()
    seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
    try:
        every: list[str] = []
        left: list[str] = []
        while left or len(every) < count:
            while len(left) < 2 and len(every) < count:
                options = {"supersteps": str(given.supersteps)}
                graph_job = GraphJob(
                    algorithm="pagerank", input_uri="store", options=options, runner="cloud", checkpoint_every=100,
                    cloud_name=f"spikes-{len(every)}",
                )  # fmt: skip
                left.append(jobs.submit(JobSpec(deadline_s=given.deadline, graph=graph_job), "benchmark")[0].id)
                every.append(left[-1])
                supervisor.wake()
            until = time.time() + 0.5
            while time.time() < until:
                for one in left:
                    folder = JobFolder(place / "storage" / one) if notice else supervisor.folder(one)
                    step = folder.progress.get("superstep", 0)
                    if step and (not seen[one] or seen[one][-1][1] != step):
                        seen[one].append((time.time(), step))
                time.sleep(LOOK_S)
            left = [one for one in left if not jobs.get(one).over]
        return [
            _outcome(jobs.get(one), jobs.events(one), seen[one], supervisor.folder(one).result, right) for one in every
        ]
    finally:
        supervisor.stop(0.0)


def _catalogue(place: Path, name: str) -> Catalogue:
    file, number = place / f"{name}.yaml", int(name.rpartition("-")[2])
    if not file.exists():
        rng = np.random.default_rng(number)
        rows, at = [(0.0, CALM)], 0.0
        while (at := at + SPIKE_S + rng.exponential(BETWEEN_S)) < 2 * HALF_S:
            rows += [(at, HIGH), (at + SPIKE_S, CALM)]
        text = "".join(f"{BEGIN + np.timedelta64(int(when), 's')},{price}\n" for when, price in rows)
        (place / f"{name}.csv").write_text("timestamp_utc,price_usd_per_hour\n" + text)
        one = {"name": f"m-{number}", "cores": 2, "price_per_hour": ON_DEMAND, "market": "spot"}
        made = {"billing": {"quantum_s": 1}, "machine_types": [one | {"prices": str(place / f"{name}.csv")}]}
        file.write_text(yaml.safe_dump(made))
    found = read_catalogue(file)
    return found.with_classes((found.classes[0].model_copy(update={"prices": str(place / f"{name}.csv")}),))


def _outcome(
    job: Job, events: Sequence[Event], seen: list[tuple[float, int]], result: Path, right: NDArray[np.float64]
) -> Outcome:
    plan = next(event for event in events if event.kind == "plan")
    found = Outcome(job, False, float((plan.details or {})["expected_cost"]))
    if job.state == State.DONE:
        with pa.ipc.open_stream(result) as reader:
            ranks = reader.read_all().sort_by("vertex")["rank"].to_numpy()
        found.right = bool(np.allclose(ranks, right, rtol=1e-8, atol=0))
    ends = [e.time for e in events if e.kind == "lost" or (e.kind == "machine" and e.text.endswith("released"))]
    starts = [e.time for e in events if e.kind == "machine" and e.text.endswith("started")]
    for end in ends:
        before = [one for one in seen if one[0] <= end]
        after = next((one for one in seen if one[0] > end), None)
        found.interruptions += after is not None or end != ends[-1]
        if not before or after is None or sum(before[-1][0] <= other <= after[0] for other in ends) > 1:
            continue  # the end of the job, or machines without a superstep
        start = max(one for one in starts if one <= after[0])
        found.again.append(max(0, before[-1][1] - after[1] + 1))
        found.recoveries_s.append(end - before[-1][0] + after[0] - start)
    return found


if __name__ == "__main__":
    main()
