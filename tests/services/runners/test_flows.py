"""Flow jobs: what a flow gives without any service, through deaths of workers and servers, updates and savepoints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from goffish.errors import InputError
from goffish.services.runners.flow_folder import FlowFolder, Versions
from goffish.services.runners.flows import FlowRunner
from goffish.services.runners.limits import JobLimits
from goffish.services.store.records import Job, State
from goffish.services.store.spec import FlowJob, JobSpec
from goffish.streaming.control import of_process
from tests.services.api.serving import processes_with
from tests.services.runners.rented import Service, serving

ORDERS = """
import goffish as gf

def order(number):
    return {{"user": f"u{{number % 20}}", "n": 1, "number": number}}

def price(row):
    if row["number"] == {bad}:
        raise ValueError("no price")
    return row

flow = gf.stream.Flow("orders")
source = flow.source(gf.stream.generate(order, count={count}, rate={rate}), name="orders")
priced = source.map(price, name="price", cost=1.0, alternates={{"rough": gf.stream.Alternate(price, 0.5)}})
totals = priced.key_by("user").sum("n", name="totals")
totals.sink(gf.stream.write_json_lines({out!r}), name="out")
"""
LOOP = """
import goffish as gf

flow = gf.stream.Flow("halves")
numbers = flow.source(gf.stream.generate(20))
again = flow.loop("again")
parts = numbers.union(again).map(lambda n: n // 2).branch({"more": lambda n: n > 0, "done": lambda n: n <= 0})
again.close(parts["more"])
parts["done"].sink(gf.stream.call(lambda n: None))
"""
PARTS = """
import goffish as gf
__all__ = ["double", "numbers"]

def double(row):
    return row | {"twice": 2 * row["n"]}

def hidden(row):
    return row

numbers = gf.stream.generate(lambda n: {"user": f"u{n % 3}", "n": n}, count=30)
"""


def description(**changes: Any) -> str:
    operators = [
        {"name": "rows", "kind": "source", "read": {"source": "parts:numbers"}},
        {"name": "doubled", "kind": "map", "input": "rows", "function": "parts:double"},
        {
            "name": "sums", "kind": "aggregate", "input": "doubled", "key": "user",
            "results": {"total": ["sum", "twice"]},
        },
        {"name": "out", "kind": "sink", "input": "sums", "write": {"result": True}},
    ]  # fmt: skip
    return json.dumps({"name": "described", "operators": operators} | changes)


class Place:
    """Flows of a test, and jobs that run them."""

    def __init__(self, path: Path) -> None:
        self.path, self.flows = path, path / "flows"
        self.flows.mkdir()

    def write(self, name: str = "orders", *, count: int = 2000, rate: int = 100_000, bad: int = -1) -> None:
        text = ORDERS.format(count=count, rate=rate, bad=bad, out=str(self.path / "out"))
        (self.flows / f"{name}.py").write_text(text)

    def runners(self, **limits: Any) -> dict[str, Any]:
        def resolve(uri: str) -> str:
            path = self.path / "data" / uri
            if "/" in uri or not path.is_file():
                raise InputError(f"{uri!r} not found")
            return str(path)

        return {"flow": FlowRunner(JobLimits(**limits), flows=FlowFolder(self.flows), resolve=resolve)}

    @contextmanager
    def serving(self, **limits: Any) -> Iterator[Service]:
        with serving(self.path / "home", self.runners(**limits)) as service:
            yield service

    def totals(self) -> dict[str, int]:
        """The last total of each key."""
        found: dict[str, int] = {}
        for file in (self.path / "out").glob("part-*"):
            for row in map(json.loads, file.read_text().splitlines()):
                found[row["user"]] = max(found.get(row["user"], 0), row["n"])
        return found

    def expected(self, count: int) -> dict[str, int]:
        return {f"u{key}": count // 20 for key in range(20)}

    def workers(self) -> list[psutil.Process]:
        return [one for one in processes_with(str(self.path)) if "flow_worker" in " ".join(one.cmdline())]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def flow_spec(flow: str | None = "orders", **given: Any) -> JobSpec:
    of_job = {name: given.pop(name) for name in ("deadline_s", "most_attempts") if name in given}
    return JobSpec(flow=FlowJob(flow=flow, **{"checkpoint_s": 0.2} | given), **of_job)


def until(reached: Callable[[], Any], limit_s: float = 90.0) -> Any:
    end = time.monotonic() + limit_s
    while not (found := reached()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


def progress(service: Service, job: str) -> dict[str, Any]:
    return service.supervisor.folder(job).progress.get("metrics", {"records": 0, "workers": []})


def ask(service: Service, job: str, request: str, **arguments: str) -> Any:
    """As the service does."""
    session = service.supervisor.folder(job).session
    assert session is not None
    flow = until(lambda: of_process(session))
    with closing(flow):
        return flow.ask(request, **arguments)


def done(service: Service, job: str) -> Job:
    found = service.settle(job)
    assert found.state == State.DONE, (found.error, service.supervisor.folder(job).log_end(5000))
    return found


@pytest.mark.slow
def test_a_flow_until_its_sources_end(place: Place) -> None:
    place.write()
    with place.serving() as service:
        job = service.submit(flow_spec())
        found = done(service, job)
        table = service.result(job)
        events = service.events(job)
    assert place.totals() == place.expected(2000)
    assert found.progress == 2000
    assert found.summary is not None
    assert {name: found.summary[name] for name in ("flow", "stopped", "records", "errors", "version", "rows")} == {
        "flow": "orders", "stopped": "finished", "records": 2000, "errors": 0, "version": 0, "rows": 4,
    }  # fmt: skip
    assert dict(zip(table["operator"].to_pylist(), table["received"].to_pylist(), strict=True))["totals"] == 2000
    assert [event.details["records"] for event in events if event.kind == "progress" and event.details][-1] == 2000


def test_a_description_and_its_result(place: Place) -> None:
    """Breaks when records of the sink of the result are not those of the job, or an input is not the client's."""
    (place.flows / "parts.py").write_text(PARTS)
    (place.path / "data").mkdir()
    (place.path / "data" / "rows.jsonl").write_text("".join(f'{{"user": "a", "n": {n}}}\n' for n in range(5)))
    given = json.loads(description())
    given["operators"][0]["read"] = {"json_lines": "rows.jsonl"}
    with place.serving() as service:
        first, second = (
            service.submit(flow_spec(None, definition=text)) for text in (description(), json.dumps(given))
        )
        done(service, first)
        done(service, second)
        rows, others = (service.result(job).to_pylist() for job in (first, second))
    totals = {row["user"]: row["total"] for row in sorted(rows, key=lambda row: row["total"])}
    assert totals == {f"u{key}": sum(2 * n for n in range(key, 30, 3)) for key in range(3)}
    assert others[-1] == {"user": "a", "total": 20}


@pytest.mark.slow
def test_flows_that_need_one_process(place: Place) -> None:
    (place.flows / "halves.py").write_text(LOOP)
    timed = """
totals = numbers.key_by(repr).reduce(max, initial=0).map(lambda row: float(row["value"]))
late = totals.event_time(float, name="late").key_by(repr).reduce(max, initial=0.0)
late.sink(gf.stream.call(lambda row: None))
"""
    (place.flows / "late.py").write_text(LOOP.replace("halves", "late") + timed)
    with place.serving() as service:
        for workers in (1, 2):
            assert done(service, service.submit(flow_spec("halves", workers=workers))).progress == 20
        assert done(service, service.submit(flow_spec("late"))).progress == 20
        failed = service.settle(service.submit(flow_spec("late", workers=2)))
    assert failed.error == "operator late: set the event time before key_by(), or run with --workers 1"


@pytest.mark.slow
def test_a_flow_that_raises(place: Place) -> None:
    """Breaks when a record that cannot be processed is tried again for ever, or the message lacks it."""
    place.write(bad=700)
    with place.serving() as service:
        found = service.settle(service.submit(flow_spec()))
    assert (found.state, found.attempts) == (State.FAILED, 1)
    assert "operator price: ValueError: no price (record {'user': 'u0', 'n': 1, 'number': 700" in found.error


@pytest.mark.slow
def test_a_flow_that_is_cancelled(place: Place) -> None:
    """Breaks when a process of a flow is left, or its job does not end."""
    place.write(count=100_000, rate=2000)
    with place.serving() as service:
        job = service.submit(flow_spec(workers=2, deadline_s=600))
        until(lambda: progress(service, job)["records"] > 0)
        pids = [one["pid"] for one in progress(service, job)["workers"]]
        service.cancel(job)
        assert service.settle(job).state == State.CANCELLED
        assert place.workers() == [] and not any(map(psutil.pid_exists, pids))


@pytest.mark.slow
def test_a_savepoint_and_a_job_that_resumes(place: Place) -> None:
    """Breaks when records between two jobs are lost or counted twice, with more workers and another version too."""
    place.write(count=6000, rate=1500)
    place.write("newer", count=6000, rate=3000)
    with place.serving() as service:
        first = service.submit(flow_spec())
        until(lambda: progress(service, first)["records"] > 1000)
        service.supervisor.folder(first).wish(stop=True)
        ask(service, first, "stop")
        stopped = done(service, first)
        assert stopped.summary is not None
        assert stopped.summary["stopped"] == "stopped" and stopped.summary["records"] < 6000
        last = service.events(first)[-1]
        assert last.text.startswith(f"stopped with savepoint {stopped.summary['savepoint']}; ")
        second = service.submit(flow_spec("newer", workers=2, resume_from=first))
        done(service, second)
    assert place.totals() == place.expected(6000)


@pytest.mark.slow
def test_a_stop_outlives_the_worker(place: Place) -> None:
    """Breaks when a flow that is to stop runs on because its worker was killed."""
    place.write(count=100_000, rate=1500)
    with place.serving() as service:
        job = service.submit(flow_spec())
        until(lambda: progress(service, job)["records"] > 500)
        service.supervisor.folder(job).wish(stop=True)
        for worker in place.workers():
            worker.kill()
        found = done(service, job)
        assert found.summary is not None and found.summary["stopped"] == "stopped"
        assert (found.attempts, found.losses) == (2, 1)


def test_files_of_versions(place: Place) -> None:
    """Breaks when a job that resumes lacks a module that its checkpoint names, or has it with other code."""
    jobs = [place.path / name for name in ("one", "other")]
    for job in jobs:
        job.mkdir()
    one, other = map(Versions, jobs)
    place.write()
    text = (place.flows / "orders.py").read_bytes()
    for number in (0, 1):
        one.add(number, text, ".py")
    one.add(2, text + b"# newer", ".py")
    one.remove(1)
    assert 0 in one and 1 not in one and 2 in one
    other.add(0, text + b"# newer", ".py")
    other.copy(jobs[0])
    files = [sorted(path.name for path in job.glob("flow_*")) for job in jobs]
    assert files[0] == files[1] and len(files[0]) == 2
    functions = [versions.load(0, FlowFolder(place.flows))[0].check().operator("price") for versions in (one, other)]
    assert [f"{function.function.__module__}.py" for function in functions if function.function] in (
        files[0], files[0][::-1],
    )  # fmt: skip
    one.remove(0)
    one.remove(2)
    assert not list(jobs[0].glob("flow_*"))


def test_a_server_that_offers_no_flows_any_more(place: Place) -> None:
    """Breaks when a job whose flow cannot be started again is tried for ever."""
    with serving(place.path / "home", {"flow": FlowRunner()}) as service:
        found = service.settle(service.submit(flow_spec()))
    assert (found.state, found.error) == (State.FAILED, "this server offers no flows; its operator must set --flows")


@pytest.mark.slow
def test_the_result_of_a_job_that_resumes(place: Place) -> None:
    """Breaks when the result lacks records of the job before, or has any twice."""
    (place.flows / "parts.py").write_text(PARTS.replace("count=30", "count=3000, rate=1000"))
    given = json.loads(description())
    given["operators"][2:] = [given["operators"][3] | {"input": "doubled"}]
    with place.serving() as service:
        first = service.submit(flow_spec(None, definition=json.dumps(given)))
        until(lambda: progress(service, first)["records"] > 500)
        service.supervisor.folder(first).wish(stop=True)
        ask(service, first, "stop")
        before = service.result(first) if done(service, first) else None
        second = service.submit(flow_spec(None, definition=json.dumps(given), resume_from=first))
        done(service, second)
        assert before is not None and 500 < before.num_rows < 3000
        assert sorted(service.result(second)["n"].to_pylist()) == list(range(3000))


@pytest.mark.slow
def test_the_worker_is_killed(place: Place) -> None:
    """Breaks when a flow does not go on from its checkpoint, with what clients asked for, or repeats records."""
    place.write(count=12_000, rate=1500)
    with place.serving() as service:
        job = service.submit(flow_spec(workers=2))
        until(lambda: progress(service, job)["records"] > 1500)
        ask(service, job, "scale", workers="3")
        ask(service, job, "switch", operator="price", alternate="rough")
        service.supervisor.folder(job).wish(workers=3, alternates={"price": "rough"})
        until(lambda: [one["joined"] for one in progress(service, job)["workers"]] == [True] * 3)
        for worker in place.workers():
            worker.kill()
        until(lambda: service.jobs.get(job).attempts == 2)
        until(lambda: progress(service, job)["records"] and len(progress(service, job)["workers"]) == 3)
        until(
            lambda: (
                {one["operator"]: one for one in progress(service, job)["operators"]}["price"]["alternate"] == "rough"
            )
        )
        found = done(service, job)
        events = [event.text for event in service.events(job) if event.kind == "scale"]
    assert found.losses == 1
    assert events[0] == "3 workers"
    assert place.totals() == place.expected(12_000)
