"""Dataflow jobs: as `simulate` would run them, through deaths of worker and server."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.errors import InputError
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import Dataflow, read_dataflow
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.simulate.run import simulate
from goffish.scheduling.simulate.scenario import make_rates
from goffish.services.runners import processes
from goffish.services.runners.attempt import Attempt
from goffish.services.runners.dataflows import DataflowRunner, EventWriter, Journal, intervals_of
from goffish.services.runners.folder import JobFolder
from goffish.services.store.records import Event, State
from goffish.services.store.spec import DataflowJob, JobSpec
from tests.services.api.serving import processes_with
from tests.services.runners.rented import CALM, HIGH, ON_DEMAND, Service, cloud_of, serving, write_cloud

HOURS = 4.0
JOB = DataflowJob(dataflow="sc13-diamond", rates="wave", hours=HOURS, seed=3)


def simulated(job: DataflowJob, cloud: Catalogue | None = None) -> Result:
    """The same without any service."""
    assert isinstance(job.dataflow, str) and job.hours is not None
    flow = compile_flow(read_dataflow(job.dataflow))
    steps = round(job.hours * 3600 / flow.goal.interval_s)
    rates = make_rates(job.rates, flow, steps, flow.goal.interval_s, int(job.seed))
    flow = replace(flow, goal=flow.goal.for_hours(job.hours))
    return simulate(flow, cloud or job.cloud_name, make_policy(job.policy), rates, seed=int(job.seed))


def runners() -> dict[str, DataflowRunner]:
    return {"dataflow": DataflowRunner(cloud=read_catalogue)}


def workers(folder: Path) -> list[psutil.Process]:
    return [one for one in processes_with(str(folder)) if "dataflow_worker" in " ".join(one.cmdline())]


def check(service: Service, job: str, expected: Result) -> list[Event]:
    """The result, and that every interval that changed something was told of once."""
    found, events = service.jobs.get(job), service.events(job)
    table = expected.intervals
    assert found.state == State.DONE, found.error
    assert service.result(job).equals(table)
    assert found.summary == asdict(expected.summary) | {"rows": table.num_rows}
    assert found.cost == expected.summary.cost and found.currency == "USD"
    assert found.progress == table.num_rows
    changes = sum(table[name].to_numpy() for name in ("switches", "instance_changes", "starts", "stops"))
    changed = [step for step, count in enumerate(changes) if count or step == 0]
    plans = [event.details or {} for event in events if event.kind == "plan"]
    assert [plan["interval"] for plan in plans] == changed and len(changed) > 2
    machines = {one["machine"]: one for one in expected.machines.to_pylist()}
    for plan in plans:
        at = plan["interval"]
        for one in plan["stopped"]:
            assert one["cost"] == machines[one["machine"]]["rent"]
        assert (plan["throughput"], plan["cost"]) == (table["omega"][at].as_py(), table["cost"][at].as_py())
        assert len(plan["started"]) == table["starts"][at].as_py() or at == 0
        assert len(plan["stopped"]) == table["stops"][at].as_py()
    return events


@pytest.mark.slow
def test_a_dataflow_is_run_as_simulated(tmp_path: Path) -> None:
    """Breaks when a job differs from `goffish simulate`, an interval is told of twice or not at all, or too late."""
    with serving(tmp_path, runners()) as service:
        job = service.submit(JobSpec(dataflow=JOB))
        service.settle(job)
        check(service, job, simulated(JOB))
        first = next(event for event in service.events(job) if event.kind == "plan")
        machines = (first.details or {})["started"]
        prices = {one.name: one.price_per_hour for one in read_catalogue(JOB.cloud_name).classes}
        assert all(one["price"] == prices[one["class"]] and one["market"] == "on-demand" for one in machines)
        assert machines[0]["bid"] is None
        expected = HOURS * sum(prices[one["class"]] for one in machines)
        assert service.jobs.get(job).expected_cost == pytest.approx(expected)


@pytest.mark.slow
def test_a_dataflow_at_sites(tmp_path: Path) -> None:
    """Breaks when sites, links or the needs of elements do not reach the worker: 30 ms of work and a link of 40 ms."""
    examples = Path(__file__).parents[3] / "examples"
    cloud, dataflow = read_catalogue(examples / "edge-cloud.yaml"), read_dataflow(examples / "factory.yaml")
    spec = DataflowJob(dataflow=dataflow, policy="latency-aware", rates="constant", hours=0.5)
    with serving(tmp_path, {"dataflow": DataflowRunner(cloud=lambda _: cloud)}) as service:
        job = service.submit(JobSpec(dataflow=spec))
        assert service.settle(job).state == State.DONE
        assert service.result(job)["latency_s"].to_pylist() == pytest.approx([0.07] * 6)


@pytest.mark.slow
def test_events_list_some_machines_only(tmp_path: Path) -> None:
    """Breaks when a plan of very many machines is an event that is too large for a client to receive."""
    element = {"id": "e", "cost": 1.0}
    dataflow = Dataflow.model_validate({"elements": [element], "inputs": {"e": 20_000.0}})
    with serving(tmp_path, runners()) as service:
        job = service.submit(JobSpec(dataflow=DataflowJob(dataflow=dataflow, hours=0.1)))
        assert service.settle(job).state == State.DONE
        first = next(event for event in service.events(job) if event.kind == "plan")
    assert first.details is not None
    count = first.details["counts"]["started"]
    assert count == first.details["machines"] > len(first.details["started"]) == 1000
    assert f"{count} machines started" in first.text


@pytest.mark.slow
def test_a_worker_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a run that was cut off is not finished, tells of intervals again, or ends otherwise."""
    monkeypatch.setattr(processes, "_REPORT_S", 0.1)
    paced = JOB.model_copy(update={"hours_per_second": 2.0})
    with serving(tmp_path, runners()) as service:
        job = service.submit(JobSpec(dataflow=paced))
        end = time.monotonic() + 60
        while service.jobs.get(job).progress < 10:
            assert time.monotonic() < end
            time.sleep(0.05)
        known = service.jobs.get(job).progress
        assert known < 48, "it does not keep its pace"
        for worker in workers(tmp_path):
            worker.kill()
        found = service.settle(job)
        events = check(service, job, simulated(JOB))
    assert found.attempts == 2 and found.losses == 1
    marks = [(e.details or {})["interval"] for e in events if e.kind == "plan"]
    assert marks == sorted(set(marks))


@pytest.mark.slow
def test_a_dataflow_that_is_stopped(tmp_path: Path) -> None:
    """Breaks when a worker goes on after its job was cancelled, or a budget or a deadline does not count."""
    slow = JOB.model_copy(update={"hours_per_second": 0.5})
    with serving(tmp_path, runners()) as service:
        job = service.submit(JobSpec(dataflow=slow))
        service.wait_for(job, "plan")
        service.cancel(job)
        assert service.settle(job).state == State.CANCELLED and workers(tmp_path) == []
        for spec, error in (
            (JobSpec(dataflow=JOB, budget=0.1), "0.1 allowed"),
            (JobSpec(dataflow=slow, deadline_s=3.0), "deadline exceeded: 3 s after submission"),
        ):
            found = service.settle(service.submit(spec))
            assert found.state == State.FAILED and found.error.endswith(error)
        assert workers(tmp_path) == []


@pytest.mark.slow
def test_machines_that_are_taken_away(tmp_path: Path) -> None:
    """Breaks when a machine that the provider took is not told of, or another one is."""
    cloud = cloud_of(write_cloud(tmp_path / "clouds"))
    spec = JOB.model_copy(update={"hours": 13.0, "rates": "constant"})
    with serving(tmp_path, {"dataflow": DataflowRunner(cloud=lambda _: cloud)}) as service:
        job = service.submit(JobSpec(dataflow=spec))
        assert service.settle(job).state == State.DONE
        plans = [event.details or {} for event in service.events(job) if event.kind == "plan"]
    machines = simulated(spec, cloud).machines
    taken = machines.filter(machines["taken"]).select(["machine", "stop_s", "rent"]).to_pylist()
    told = [one for plan in plans for one in plan["lost"]]
    assert [(one["machine"], one["end_s"], one["cost"]) for one in told] == [tuple(one.values()) for one in taken] != []
    assert all(one["price"] == HIGH for one in told)
    started = [one for plan in plans for one in plan["started"]]
    assert (started[0]["price"], started[0]["bid"], started[0]["market"]) == (CALM, ON_DEMAND, "spot")


@pytest.mark.slow
def test_the_supervisor_comes_back(tmp_path: Path) -> None:
    """Breaks when a job that a server put back is not gone on with by the next, or begins to tell anew."""
    paced = JOB.model_copy(update={"hours_per_second": 1.0})
    with serving(tmp_path, runners()) as service:
        job = service.submit(JobSpec(dataflow=paced))
        service.wait_for(job, "plan")
    with serving(tmp_path, runners()) as service:
        service.settle(job)
        check(service, job, simulated(JOB))


def test_what_a_worker_said_that_is_gone(tmp_path: Path) -> None:
    """Breaks when a worker's report counts for the next one, which has not told of these intervals yet."""
    folder = JobFolder(tmp_path)
    notes: list[int] = []
    job = SimpleNamespace(progress=5)
    attempt = SimpleNamespace(folder=folder, job=job, note=lambda *_, progress, **__: notes.append(progress))
    report = {"intervals": 40, "of": 48, "cost": 1.0}
    folder.prepare({}, 1)
    folder.report(report | {"turn": folder.turn})
    folder.prepare({}, 2)
    events = EventWriter(cast(Attempt, attempt), "USD")
    events.write()
    assert notes == []
    folder.report(report | {"turn": folder.turn, "intervals": 6})
    with Journal(folder, folder.turn).open() as journal:
        journal.write('{"interval": 4}\n{"interval": 5, "st')
    events.write()
    assert notes == [6]


def test_hours_that_are_too_many() -> None:
    goal = read_dataflow("sc13-diamond").goal
    assert intervals_of(JOB, goal) == HOURS * 3600 / goal.interval_s
    for hours in (1e-6, 1e9, 1e300):
        with pytest.raises(InputError, match=r"hours: .* 1 to 20,000 are accepted"):
            intervals_of(JOB.model_copy(update={"hours": hours}), goal)
