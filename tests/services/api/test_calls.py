"""Calls as clients make them, to a real server: jobs, what is refused and why, and who may do what."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import networkx as nx
import pytest
from google.protobuf.json_format import MessageToJson
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from goffish.client import AsyncClient, Client, ServiceError
from goffish.client.channels import Access
from goffish.errors import InputError
from goffish.services.api.wire import add_clouds
from goffish.v1 import jobs_pb2
from tests.services.api.serving import Known, RealServer, settle

Code = grpc.StatusCode


@pytest.fixture(scope="module")
def ann(known: Known) -> Iterator[Client]:
    with known.client("ann") as client:
        yield client


def refused(call: Callable[[], Any]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


def field_of(call: Callable[[], Any]) -> str:
    """The field that an answer names as wrong."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() == Code.INVALID_ARGUMENT
    status = rpc_status.from_call(caught.value)
    problem = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(problem)
    return problem.field_violations[0].field


def test_a_job_from_its_submission_to_its_result(ann: Client, data: Path) -> None:
    """Breaks when a job does not run, its events leave something out, or its answer is not networkx's."""
    job = ann.submit_graph("bfs", "edges.txt", {"source": 7}, labels={"team": "a"}, workers=1)
    events = list(ann.watch(job.id))
    assert [event.text for event in events if event.kind == "state"][-1].endswith("rows")
    states = [jobs_pb2.JobState.Name(event.state)[10:] for event in events if event.kind in ("submitted", "state")]
    assert states == ["QUEUED", "PLANNED", "PROVISIONING", "RUNNING", "DONE"]
    found = ann.job(job.id)
    assert found.attempts == 1 and json.loads(found.summary)["rows"] > 1 and found.spec.labels["team"] == "a"
    table = ann.result(job.id)
    graph = nx.read_edgelist(data / "edges.txt", nodetype=int)
    expected = nx.single_source_shortest_path_length(graph, 7)
    told = {
        vertex: hops for vertex, hops in zip(*(table[name].to_pylist() for name in table.column_names[:2]), strict=True)
        if hops is not None
    }  # fmt: skip
    assert told == expected


def test_going_on_with_a_broken_transfer(ann: Client) -> None:
    """Breaks when a result that is fetched from an offset on is not the rest of it."""
    job = ann.wait(ann.submit_graph("components", "store").id)
    whole = b"".join(
        piece.data for piece in ann.jobs.FetchResult(jobs_pb2.FetchResultRequest(id=job.id), metadata=ann.metadata)
    )
    rest = b"".join(
        piece.data
        for piece in ann.jobs.FetchResult(jobs_pb2.FetchResultRequest(id=job.id, offset=100), metadata=ann.metadata)
    )
    assert whole[100:] == rest and len(whole) > 100
    assert field_of(
        lambda: list(ann.jobs.FetchResult(jobs_pb2.FetchResultRequest(id=job.id, offset=-1), metadata=ann.metadata))
    ) == "offset"  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"algorithm": "nothing"}, "spec.graph.algorithm"),
        ({"algorithm": ""}, "spec.graph.algorithm"),
        ({"input_uri": "../secret.txt"}, "spec.graph.input_uri"),
        ({"input_uri": "/etc/passwd"}, "spec.graph.input_uri"),
        ({"input_uri": "link.txt"}, "spec.graph.input_uri"),
        ({"input_uri": "file:///etc/passwd"}, "spec.graph.input_uri"),
        ({"input_uri": "upload:../../x/y"}, "spec.graph.input_uri"),
        ({"input_uri": "s3://bucket/x"}, "spec.graph.input_uri"),
        ({"input_uri": "empty"}, "spec.graph.input_uri"),
        ({"input_uri": "a\x00b"}, "spec.graph.input_uri"),
        ({"options": {"damping": "2"}}, "spec.graph.options"),
        ({"options": {"colour": "red"}}, "spec.graph.options"),
        ({"runner": jobs_pb2.RUNNER_SPARK}, "spec.graph.runner"),
        ({"runner": 77}, "spec.graph.runner"),
        ({"workers": -1}, "spec.graph.workers"),
        ({"checkpoint_every": 0}, "spec.graph.checkpoint_every"),
    ],
)
def test_jobs_that_are_not_accepted(ann: Client, change: dict[str, Any], field: str) -> None:
    """Breaks when a job that cannot be run, or reads what it may not, is accepted, or the answer names no field."""
    graph = {"algorithm": "pagerank", "input_uri": "edges.txt"} | change
    asked = jobs_pb2.SubmitRequest(spec=jobs_pb2.JobSpec(graph=jobs_pb2.GraphJob(**graph)))
    assert field_of(lambda: ann.jobs.Submit(asked, metadata=ann.metadata)).startswith(field)


def test_a_deadline_that_json_cannot_hold(ann: Client) -> None:
    """Breaks when one job makes lists of all jobs fail as JSON."""
    error = refused(lambda: ann.submit_graph("pagerank", "edges.txt", deadline_s=1e18))
    assert "spec.deadline" in str(error)
    asked = ann.submit_graph("pagerank", "edges.txt", deadline_s=3e11)
    assert MessageToJson(ann.cancel(asked.id))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"policy": "mine.py:Mine"}, "unknown policy"),
        ({"policy": "latency-aware", "options": {"start": "mine.py:Mine"}}, "unknown policy"),
        ({"policy": "os:system"}, "unknown policy"),
        ({"rates": "/etc/passwd"}, "choose one of"),
        ({"cloud_name": "../x.yaml"}, "unknown"),
        ({"dataflow_name": "/etc/passwd"}, "unknown"),
        ({"hours": -1.0}, "hours"),
        ({"hours": 1e9}, "hours"),
    ],
)
def test_dataflows_that_are_not_accepted(ann: Client, change: dict[str, Any], told: str) -> None:
    """Breaks when a request can name a file of the server, or code."""
    job = jobs_pb2.DataflowJob(**({"dataflow_name": "sc13-diamond"} | change))
    error = refused(lambda: ann.submit(jobs_pb2.JobSpec(dataflow=job)))
    assert error.code == Code.INVALID_ARGUMENT and told in str(error)


def test_prices_that_are_not_there(tmp_path: Path) -> None:
    """Breaks when a server starts with a catalogue whose prices it cannot read."""
    spot = {"name": "spot", "cores": 1, "price_per_hour": 1, "market": "spot", "prices": "nowhere.csv"}
    (tmp_path / "mine.yaml").write_text(json.dumps({"machine_types": [spot]}))
    with pytest.raises(InputError, match=r"no file 'nowhere\.csv', .* and no bundled trace of that name"):
        add_clouds(tmp_path)


def test_who_may_do_what(known: Known) -> None:
    """Breaks when somebody without a token, or with the wrong role, gets further than to be refused."""
    with (
        known.client("ann") as ann,
        known.client("bob") as bob,
        known.client("eve") as eve,
        known.client("root") as root,
    ):
        job = ann.submit_graph("pagerank", "store", {"tolerance": 1e-12, "max_iterations": 100000}, key="mine")
        assert eve.job(job.id).client == "ann"
        for call in (lambda: eve.submit_graph("components", "store"), lambda: eve.cancel(job.id)):
            assert refused(call).code == Code.PERMISSION_DENIED
        assert "belongs to client ann; the role admin is required" in str(refused(lambda: bob.cancel(job.id)))
        assert root.cancel(job.id).cancel_requested or ann.job(job.id).state == jobs_pb2.JOB_STATE_DONE
        assert bob.submit_graph("components", "store", key="mine").id != job.id
    for token in (None, "wrong", ""):
        with known.server.client(token) as nobody:
            for call in (lambda: nobody.job("x"), lambda: list(nobody.list()), lambda: nobody.plan("sc13-diamond")):
                assert refused(call).code == Code.UNAUTHENTICATED
    said = (known.server.home / "audit.log").read_text()
    lines = [json.loads(line) for line in said.splitlines()]
    said_of = {(line["client"], line["method"].rpartition("/")[2], line["code"], line["subject"]) for line in lines}
    assert {("ann", "Submit", "OK", job.id), ("root", "Cancel", "OK", job.id)} <= said_of
    assert {("eve", "Submit", "PERMISSION_DENIED", ""), ("bob", "Cancel", "PERMISSION_DENIED", job.id)} <= said_of
    assert any(line["code"] == "UNAUTHENTICATED" for line in lines)
    assert not any(token in said for token in known.tokens.values())


@pytest.mark.slow
def test_finding_jobs(known: Known) -> None:
    """Breaks when a page leaves a job out or has it twice, or a filter does not hold."""
    with known.client("bob") as bob:
        made = [bob.submit_graph("components", "store", labels={"at": str(at % 2)}, key=f"f{at}").id for at in range(7)]
        settle(bob, made)
        found = [job.id for job in bob.list(labels={"at": "1"}, client="bob", page_size=2)]
        assert found == [made[5], made[3], made[1]]
        assert {job.id for job in bob.list("done", algorithm="components", client="bob", page_size=3)} >= set(made)
        assert list(bob.list("running", client="nobody")) == []
        for asked in (jobs_pb2.ListRequest(page_size=-1), jobs_pb2.ListRequest(page_token="x"),
                      jobs_pb2.ListRequest(states=[99])):  # fmt: skip
            assert field_of(lambda asked=asked: bob.jobs.List(asked, metadata=bob.metadata))


def test_uploads(ann: Client, tmp_path: Path, known: Known) -> None:
    """Breaks when a file that was sent is not the one that jobs read, or a bad one leaves anything behind."""
    path = tmp_path / "mine.txt"
    path.write_text("1 2\n2 3\n7 8\n")
    uri = ann.upload(path)
    job = ann.wait(ann.submit_graph("components", uri).id)
    assert json.loads(job.summary)["components"] == 2

    def send(start: dict[str, Any], *parts: bytes) -> Callable[[], Any]:
        begun = {"name": "x.txt", "total_bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()} | start
        pieces = [jobs_pb2.UploadRequest(start=jobs_pb2.UploadStart(**begun))]
        pieces += [jobs_pb2.UploadRequest(data=part) for part in parts]
        return lambda: ann.jobs.Upload(iter(pieces), metadata=ann.metadata)

    assert send({}, b"a", b"bc")().bytes == 3
    for call, field in (
        (send({"name": "../x"}, b"abc"), "start.name"), (send({"name": ".hidden"}, b"abc"), "start.name"),
        (send({"total_bytes": 10**9}, b"abc"), "start.total_bytes"), (send({"sha256": "x"}, b"abc"), "start.sha256"),
        (send({}, b"abcd"), "data"), (send({}, b"ab"), "data"), (send({}, b"abd"), "data"),
        (lambda: ann.jobs.Upload(iter([jobs_pb2.UploadRequest(data=b"a")]), metadata=ann.metadata), "start"),
        (lambda: ann.jobs.Upload(iter([]), metadata=ann.metadata), "start"),
    ):  # fmt: skip
        assert field_of(call) == field
    assert not [path.name for path in (known.server.home / "uploads").iterdir() if path.name.startswith(".")]
    large = tmp_path / "large.txt"
    large.write_text("1 2\n" * 25_000)
    ann.upload(large)
    assert "limit 150,000 bytes" in str(refused(lambda: ann.upload(large)))


def test_asking_again_when_it_would_not_be_accepted_any_more(ann: Client, data: Path, tmp_path: Path) -> None:
    """Breaks when a client that has not heard the answer is refused a job that was accepted."""
    path = data / "passing.txt"
    path.write_text("1 2\n")
    first = ann.submit_graph("components", "passing.txt", key="passing")
    ann.wait(first.id)
    path.unlink()
    assert ann.submit_graph("components", "passing.txt", key="passing").id == first.id
    assert field_of(lambda: ann.jobs.Submit(jobs_pb2.SubmitRequest(spec=first.spec), metadata=ann.metadata)) == (
        "spec.graph.input_uri"
    )
    mine = tmp_path / "again.txt"
    mine.write_text("1 2\n")
    ids = {ann.submit_graph("components", ann.upload(mine), key="uploaded").id for _ in range(2)}
    assert len(ids) == 1


def test_failing_jobs_say_why(ann: Client) -> None:
    """Breaks when a job that cannot succeed is tried for ever, or its error is not the one line of its worker."""
    job = ann.wait(ann.submit_graph("bfs", "edges.txt", {"source": "123456"}).id)
    assert job.state == jobs_pb2.JOB_STATE_FAILED and "123456" in job.error and job.attempts == 1
    assert "123456" in ann.log(job.id)
    error = refused(lambda: ann.result(job.id))
    assert error.code == Code.FAILED_PRECONDITION and "failed" in str(error)
    assert refused(lambda: ann.job("nothing")).code == Code.NOT_FOUND


@pytest.mark.slow
def test_limits_of_a_job(ann: Client) -> None:
    """Breaks when a job goes on after its deadline, or takes more of the computer than it may."""
    endless = {"tolerance": "1e-300", "max_iterations": "10000000"}
    late = ann.submit_graph("pagerank", "store", endless, deadline_s=4)
    large = ann.submit_graph("pagerank", "store", endless, memory_mb=20)
    busy = ann.submit_graph("pagerank", "store", endless, cpu_seconds=2.5)
    began = time.monotonic()
    assert "deadline exceeded: 4 s" in ann.wait(late.id).error
    assert re.fullmatch(r"memory limit exceeded: (\d+ MB used, )?20 MB allowed", ann.wait(large.id).error)
    assert "2.5 s allowed" in ann.wait(busy.id).error
    assert time.monotonic() - began < 60


def test_cancelling_what_runs(ann: Client, known: Known) -> None:
    """Breaks when a cancelled job's worker goes on."""
    job = ann.submit_graph("pagerank", "store", {"tolerance": "1e-300", "max_iterations": "10000000"})
    for event in ann.watch(job.id):
        if event.kind == "progress":
            ann.cancel(job.id)
    assert ann.job(job.id).state == jobs_pb2.JOB_STATE_CANCELLED
    assert not [worker for worker in known.server.workers() if job.id in " ".join(worker.cmdline())]


def test_messages_that_are_too_large(ann: Client) -> None:
    """Breaks when a client can make the server hold a message of any size."""
    spec = jobs_pb2.JobSpec(graph=jobs_pb2.GraphJob(algorithm="x" * (5 << 20), input_uri="y"))
    assert refused(lambda: ann.submit(spec)).code == Code.RESOURCE_EXHAUSTED


def test_health_and_reflection(known: Known) -> None:
    """Breaks when a load balancer cannot ask for health without a token, or tools cannot see what there is."""
    with grpc.insecure_channel(known.server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "goffish.v1.JobService", "goffish.v1.PlanningService", "goffish.v1.CatalogService"):
            told = health.Check(health_pb2.HealthCheckRequest(service=name))
            assert told.status == health_pb2.HealthCheckResponse.SERVING
    access = Access(known.server.address, known.tokens["eve"])
    with grpc.insecure_channel(known.server.address) as channel:
        with_token = grpc.intercept_channel(channel, _Token(access.metadata))
        services = ProtoReflectionDescriptorDatabase(with_token).get_services()

        def file_of(symbol: str) -> str:
            # Anew for each: this client answers by itself for what is in files that it knows.
            return ProtoReflectionDescriptorDatabase(with_token).FindFileContainingSymbol(symbol).name

        for symbol in ("goffish.v1.JobService", "goffish.v1.JobService.Submit", "goffish.v1.Job.id"):
            assert file_of(symbol) == "goffish/v1/jobs.proto"
        for symbol in ("goffish.v1.JobService.Nothing", "goffish.v1.Nothing.x", "x", ""):
            with pytest.raises(KeyError):
                file_of(symbol)
    assert {"goffish.v1.JobService", "goffish.v1.PlanningService", "goffish.v1.CatalogService"} <= set(services)


class _Token(grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    def __init__(self, metadata: Any) -> None:
        self._metadata = metadata

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details._replace(metadata=self._metadata), requests)


def test_the_asynchronous_client(server: RealServer, data: Path) -> None:
    """Breaks when the two clients do not tell the same."""

    async def ask() -> tuple[Any, ...]:
        async with AsyncClient(server.address) as client:
            job = await client.submit_graph("components", "store", key="async")
            again, job = await asyncio.gather(
                client.submit_graph("components", "store", key="async"), client.wait(job.id)
            )
            listed = [one.id async for one in client.list("done")]
            uri = await client.upload(data / "edges.txt")
            assert (await client.submit_graph("components", uri)).spec.graph.input_uri == uri
            table, log = await asyncio.gather(client.result(job.id), client.log(job.id))
            plan = await client.plan("sc13-diamond")
            with pytest.raises(ServiceError):
                await client.job("nothing")
            return again.id, job.id, listed, table.num_rows, log, plan

    again, job, listed, rows, log, plan = asyncio.run(ask())
    assert again == job and job in listed and rows == 400 and log == ""
    with server.client() as client:
        assert client.plan("sc13-diamond") == plan and client.result(job).num_rows == rows
