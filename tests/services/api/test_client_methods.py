"""Both clients have the same methods, with the same arguments, and every one of them reaches the server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goffish.client import AsyncClient, Client, ServiceError, catalogue, dataflow
from goffish.cloud.prices import bundled_trace, bundled_traces
from goffish.errors import InputError
from goffish.scheduling.dataflow.model import known_dataflows, read_dataflow
from goffish.scheduling.policies.policies import policy_names
from goffish.v1 import dataflows_pb2, jobs_pb2, planning_pb2
from tests.services.api.serving import RealServer

LIBRARY = Path(inspect.getfile(read_dataflow)).parent / "library"


def methods(kind: type) -> dict[str, Any]:
    return {
        name: getattr(kind, name) for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_both_clients_are_alike() -> None:
    """Breaks when one of them lacks a method, an argument or a type."""
    blocking, asynchronous = methods(Client), methods(AsyncClient)
    assert blocking.keys() == asynchronous.keys() and len(blocking) > 20
    for name, method in blocking.items():
        one, other = inspect.signature(method), inspect.signature(asynchronous[name])
        assert one.parameters == other.parameters, name
        assert one.return_annotation.replace("Iterator", "AsyncIterator") == other.return_annotation, name
        awaited = inspect.isasyncgenfunction(asynchronous[name]) or inspect.iscoroutinefunction(asynchronous[name])
        assert awaited, name
        for parameter in one.parameters.values():
            assert parameter.kind != inspect.Parameter.VAR_KEYWORD or "Unpack" in str(parameter.annotation), name
    assert inspect.signature(Client) == inspect.signature(AsyncClient)


def test_all_calls_have_a_method() -> None:
    """Breaks when a call of the protocol cannot be made without its stub."""
    from goffish.v1 import catalog_pb2

    called = {"Get": "job", "Plan": "plan", "FetchResult": "result", "GetPrices": "prices", "Submit": "submit"}
    for module in (jobs_pb2, planning_pb2, catalog_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for call in service.methods:
                plain = "".join(f"_{c.lower()}" if c.isupper() else c for c in call.name).strip("_")
                assert called.get(call.name, plain.removeprefix("list_") or "list") in methods(Client), call.name


class Both:
    """The methods of both clients, which have to give the same."""

    def __init__(self, server: RealServer) -> None:
        self._server = server

    def __call__(self, name: str, *given: Any, **named: Any) -> Any:
        async def ask() -> Any:
            async with AsyncClient(self._server.address) as client:
                answer = getattr(client, name)(*given, **named)
                return [one async for one in answer] if isinstance(answer, AsyncIterator) else await answer

        with self._server.client() as client:
            answer = getattr(client, name)(*given, **named)
            answer = list(answer) if inspect.isgenerator(answer) else answer
        assert _same(answer, asyncio.run(ask())), name
        return answer


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, jobs_pb2.Job):  # which goes on meanwhile
        return bool(one.id == other.id and one.spec == other.spec)
    return bool(one.equals(other) if hasattr(one, "equals") else one == other)


@pytest.fixture(scope="module")
def both(server: RealServer) -> Both:
    return Both(server)


def test_jobs(both: Both, data: Path, tmp_path: Path) -> None:
    """Breaks when a method for jobs does not do the same for event loops, or an argument does not arrive."""
    given: dict[str, Any] = {
        "workers": 2, "checkpoint_every": 3, "memory_mb": 4000, "cpu_seconds": 500.5, "policy": "h1",
        "cloud_name": "ec2-2015-spot",
    }  # fmt: skip
    limits: dict[str, Any] = {"budget": 7.5, "labels": {"of": "methods"}, "most_attempts": 3}
    made = both("submit_graph", "components", "store", key="methods", runner="local", deadline_s=600, **given, **limits)
    spec = made.spec
    assert {name: getattr(spec.graph, name) for name in given} == given and spec.deadline.seconds == 600
    assert (spec.budget, dict(spec.labels), spec.most_attempts) == (7.5, {"of": "methods"}, 3)
    job = both("wait", made.id)
    assert job.state == jobs_pb2.JOB_STATE_DONE and both("job", job.id) == job and both("cancel", job.id) == job
    assert [one.id for one in both("list", "done", labels={"of": "methods"}, page_size=1)] == [job.id]
    events = both("watch", job.id, after=2)
    assert [event.number for event in events] == list(range(3, 3 + len(events)))
    table = both("result", job.id)
    assert table.num_rows == 400 and sum(batch.num_rows for batch in both("result_batches", job.id)) == 400
    assert both("save_result", job.id, tmp_path / "x").stat().st_size > 1000
    assert both("log", job.id, max_bytes=100) == ""
    assert both("submit", job.spec, "methods") == job
    with pytest.raises(InputError, match="nowhere/x: cannot be written"):
        both("save_result", job.id, tmp_path / "nowhere" / "x")

    run: dict[str, Any] = {
        "cloud_name": "ec2-2013", "policy": "ds2", "rates": "walk", "hours": 0.5, "seed": 0, "hours_per_second": 100.0,
    }  # fmt: skip
    made = both("submit_dataflow", dataflow(LIBRARY / "sc13-diamond.yaml"), key="flow", **run, **limits)
    assert {name: getattr(made.spec.dataflow, name) for name in run} == run and made.spec.most_attempts == 3
    assert both("cancel", made.id).cancel_requested


def test_uploads(server: RealServer, data: Path) -> None:
    """Breaks when an upload from an event loop is not the file."""

    async def send() -> str:
        async with AsyncClient(server.address) as client:
            return await client.upload(data / "edges.txt")

    with server.client() as client:
        assert client.upload(data / "edges.txt").startswith("upload:")
    assert asyncio.run(send()).startswith("upload:")


def test_plans(both: Both) -> None:
    """Breaks when a method of plans does not do the same for event loops, or an argument does not arrive."""
    mine, cloud = dataflow(LIBRARY / "linear-road.yaml"), both("catalogues")["ec2-2013"]
    plan = both("plan", mine, cloud, "ds2", rates={"reports": 30})
    assert plan == both("plan", "linear-road", "ec2-2013", "ds2", rates={"reports": 30})
    assert plan.cost_per_hour < both("plan", "linear-road", "ec2-2013", "ds2").cost_per_hour
    assert [one.what for one in both("explain", mine, cloud, policies=["ds2"]).alternatives].count("policy ds2") == 1
    seen = planning_pb2.Observations(intervals=[{"rates": {"reports": 30}, "throughput": 1}])
    answer = both("adapt", "linear-road", seen, "ec2-2013", "ds2", session="")
    assert answer.changed and answer.plan.machines
    ahead = [planning_pb2.Interval(rates={"reports": rate}) for rate in (10, 20)]
    answer = both("plan_ahead", "linear-road", seen, ahead, "ec2-2013", "plasticc")
    assert len(answer.outlook) == 2
    with pytest.raises(ServiceError, match="market: unknown 'two'"):
        both("advise_spot", 1, 2, "two")


def test_sessions_are_told(server: RealServer) -> None:
    """Breaks when arguments of advice, or the name of a session, are lost on the way."""
    sent: list[Any] = []

    def record(request: Any, **_: Any) -> Any:
        sent.append(request)
        return SimpleNamespace()

    async def record_later(request: Any, **_: Any) -> Any:
        return record(request)

    async def ask() -> None:
        async with AsyncClient(server.address) as client:
            client.planning = SimpleNamespace(AdviseSpot=record_later, Adapt=record_later, PlanAhead=record_later)
            await client.advise_spot(1.5, 2, "m", {"a": 3}, running, {"b": False})
            await client.adapt("x", seen, session="s")
            await client.plan_ahead("x", seen, [], session="s")

    running = planning_pb2.RunningJob(saved_core_hours=1, used_s=2)
    seen = planning_pb2.Observations(steps=9)
    with server.client() as client:
        client.planning = SimpleNamespace(AdviseSpot=record, Adapt=record, PlanAhead=record)
        client.advise_spot(1.5, 2, "m", {"a": 3}, running, {"b": False})
        client.adapt("x", seen, session="s")
        client.plan_ahead("x", seen, [], session="s")
    asyncio.run(ask())
    expected = [
        planning_pb2.AdviseSpotRequest(
            core_hours=1.5, hours=2, market="m", prices={"a": 3}, running=running, available={"b": False}
        ),
        planning_pb2.AdaptRequest(setting={"dataflow_name": "x"}, observations=seen, session="s"),
        planning_pb2.PlanAheadRequest(setting={"dataflow_name": "x"}, observations=seen, session="s"),
    ]
    assert sent == expected * 2


def test_what_the_server_knows(both: Both) -> None:
    """Breaks when a list of the server is not what the library has, or prices are not those of the time."""
    assert list(both("dataflows")) == known_dataflows()
    assert [one.name for one in both("policies")] == policy_names()
    assert "pagerank" in [one.name for one in both("algorithms")] and both("markets") == ()
    trace = bundled_trace(bundled_traces()[0])
    at = datetime.fromtimestamp(float(trace.times[10]), UTC)
    told = both("prices", bundled_traces()[0], at, at + timedelta(seconds=1))
    assert told[0].time.ToMicroseconds() == round(float(trace.times[10]) * 1e6)
    assert told[0].per_hour == trace.prices[10]
    assert both("prices", bundled_traces()[0], at.replace(tzinfo=None), at + timedelta(seconds=1)) == told


def test_definitions_in_files(tmp_path: Path) -> None:
    """Breaks when a file is sent as another dataflow or catalogue, or one that is wrong is not refused here."""
    for name in known_dataflows():
        message = dataflow(LIBRARY / f"{name}.yaml")
        assert [(getattr(edge, "from"), edge.to) for edge in message.edges] == list(read_dataflow(name).edges)
        assert dict(message.inputs) == read_dataflow(name).inputs
        assert [one.id for one in message.elements] == [one.id for one in read_dataflow(name).elements]
    path = tmp_path / "cloud.yaml"
    path.write_text("machine_types: [{name: x, cores: 2, price_per_hour: 0.5}]\nstartup_s: 7\n")
    message = catalogue(path)
    assert (message.classes[0].name, message.classes[0].cores, message.startup_s) == ("x", 2, 7)
    path.write_text("machine_types: [{name: x, cores: 0, price_per_hour: 0.5}]\n")
    with pytest.raises(InputError, match=r"cloud\.yaml: machine_types\[0\]\.cores = 0"):
        catalogue(path)
    with pytest.raises(InputError, match="linear-road"):
        dataflow("linear-road")  # a file, not a name


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda c: c.submit_graph("pagerank", "store", workers="two"), "workers: 'two' is not a whole number"),
        (lambda c: c.submit_graph("pagerank", "store", workers=1.5), "workers: 1.5 is not a whole number"),
        (lambda c: c.submit_graph("pagerank", "store", workers=10**12), "workers: 1000000000000 is out of range"),
        (lambda c: c.submit_graph("pagerank", "store", cpu_seconds="x"), "cpu_seconds: 'x' is not a number"),
        (lambda c: c.submit_graph("pagerank", 7), "input_uri: 7 is not text"),
        (lambda c: c.submit_graph("pagerank", "store", labels={"a": 1}), "labels: {'a': 1} is not a mapping"),
        (lambda c: c.submit_graph("pagerank", "store", [1]), r"options: \[1\] is not a mapping"),
        (
            lambda c: c.submit_graph("pagerank", "store", deadline_s="soon"),
            "deadline_s: 'soon' is not a number of seconds",
        ),
        (
            lambda c: c.submit_graph("pagerank", "store", deadline_s=float("nan")),
            "deadline_s: nan is not a number of seconds",
        ),
        (lambda c: c.submit_graph("pagerank", "store", runner="boat"), "runner='boat': choose one of"),
        (lambda c: c.submit_dataflow("x", rates={"a": 1}), "rates: {'a': 1} is not text"),
        (lambda c: c.submit_dataflow(7), "dataflow_definition: 7 is not a message of type Dataflow"),
        (lambda c: c.submit("x"), "spec: 'x' is not a message of type JobSpec"),
        (lambda c: c.plan("x", rates={"a": "b"}), "rates: {'a': 'b'} is not a mapping"),
        (lambda c: c.plan("x", dataflows_pb2.Dataflow()), "cloud_definition: .* is not a message of type Catalogue"),
        (lambda c: c.explain("x", policies="ds2"), "policies: 'ds2' is not text"),
        (lambda c: c.adapt("x", 5), "observations: 5 is not a message of type Observations"),
        (lambda c: c.plan_ahead("x", None, [5]), r"forecast: \[5\] is not a message of type Interval"),
        (lambda c: c.advise_spot("a", 1, "m"), "core_hours: 'a' is not a number"),
        (lambda c: c.prices("x", 5), "since: 5 is not a datetime"),
        (lambda c: c.job(jobs_pb2.Job(id="x")), 'job: id: "x" is not a job ID'),
        (lambda c: list(c.watch("x", "y")), "after: 'y' is not a whole number"),
        (lambda c: list(c.list(page_size="x")), "page_size: 'x' is not a whole number"),
    ],
)
def test_arguments_of_the_wrong_type(ask: Callable[[Client], Any], told: str) -> None:
    """Breaks when a wrong argument is not named, or is sent."""
    with Client("127.0.0.1:1") as client, pytest.raises(InputError, match=told) as caught:
        ask(client)
    assert "\n" not in str(caught.value)


def test_names_that_there_are_not() -> None:
    """Breaks when an argument that is misspelt is swallowed."""
    for call in (
        lambda: Client("127.0.0.1:1", tolken="x"),  # type: ignore[call-arg]
        lambda: Client("127.0.0.1:1").submit_graph("a", "b", wrokers=2),  # type: ignore[call-arg]
        lambda: Client("127.0.0.1:1").submit_dataflow("a", cloud="b"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()
