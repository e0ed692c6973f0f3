"""What the service answers where a whole server would take too long to bring about: large pages, silent uploads, …"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from goffish.services.api import job_service, wire
from goffish.services.api.clients import LOCAL_CLIENT, Clients
from goffish.services.api.feeds import Feeds
from goffish.services.api.guard import Guard, Refused, caller
from goffish.services.api.inputs import Inputs
from goffish.services.api.job_service import JobService
from goffish.services.api.limits import Limits
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import open_database
from goffish.services.store.records import State
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs
from goffish.v1 import jobs_pb2

Code = grpc.StatusCode


class Room:
    """A service without a server around it."""

    def __init__(self, folder: Path, max_queued: int = 1000, max_queued_per_client: int = 1000) -> None:
        self.engine = open_database(f"sqlite:///{folder / 'jobs.sqlite'}")
        self.jobs = PatientJobs(self.engine, "here")
        self.uploads = folder / "uploads"
        supervisor = Supervisor(self.jobs, folder / "jobs", {})
        (folder / "g.txt").write_text("1 2\n")
        inputs = Inputs([folder], self.uploads, 1000, 1500)
        self.service = JobService(self.jobs, supervisor, inputs, Feeds(), ("local",), max_queued, max_queued_per_client)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.engine.dispose()


def answer(call: Coroutine[Any, Any, Any]) -> Any:
    """Of a call by somebody who may do everything."""

    async def ask() -> Any:
        caller.set(LOCAL_CLIENT)
        return await call

    return asyncio.run(ask())


def refusal(call: Coroutine[Any, Any, Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        answer(call)
    return caught.value


def spec(**more: Any) -> JobSpec:
    return JobSpec.model_validate({"graph": {"algorithm": "bfs", "input_uri": "g.txt"}, **more})


@pytest.mark.parametrize(
    "body",
    [
        {"graph": {"algorithm": "bfs", "input_uri": "g"}},
        {"graph": {"algorithm": "bfs", "input_uri": "g", "options": {"source": "1"}, "runner": "cloud", "workers": 7,
                   "memory_mb": 5, "cpu_seconds": 1.5, "policy": "h1", "cloud_name": "mine", "checkpoint_every": 3},
         "deadline_s": 0.25, "budget": 0.0, "labels": {"a": "b"}, "most_attempts": 1},
        {"dataflow": {"dataflow": "paper", "hours": 2.5, "seed": 2**64 - 1, "rates": "walk", "policy": "ga",
                      "options": {"seed": "1"}, "hours_per_second": 1e-4, "cloud_name": "mine"}},
        {"dataflow": {"dataflow": {"elements": [{"id": "a", "cost": 1.0}, {"id": "b", "cost": 2.0}],
                                   "edges": [["a", "b"]], "inputs": {"a": 3.0}}}, "budget": 2.0},
    ],
)  # fmt: skip
def test_a_list_has_jobs_as_they_were_submitted(body: dict[str, Any]) -> None:
    """Breaks when what is made a message without being read as a job loses a field, or a default."""
    given = JobSpec.model_validate(body)
    message = wire.spec_message(given.as_json())
    assert wire.spec_of(message) == given
    full = jobs_pb2.JobSpec()
    full.CopyFrom(message)
    assert full == wire.spec_message(given.model_dump(mode="json", exclude_none=True))


def test_pages_of_large_jobs(room: Room) -> None:
    """Breaks when a few large jobs make a page that clients do not take, or a page leaves one of them out."""
    large = {"algorithm": "bfs", "input_uri": "g.txt", "options": {f"n{at}": "x" * 4000 for at in range(225)}}
    made = [room.jobs.submit(JobSpec.model_validate({"graph": large}), "ann")[0].id for _ in range(5)]
    made += [room.jobs.submit(spec(), "ann")[0].id for _ in range(3)]
    found, token, pages = [], "", 0
    while True:
        page = answer(room.service.List(jobs_pb2.ListRequest(page_token=token), None))
        assert page.ByteSize() < 3 << 20
        found += [job.id for job in page.jobs]
        token, pages = page.next_page_token, pages + 1
        if not token:
            break
    assert found == made[::-1] and pages == 3


def test_a_job_of_another_server(room: Room) -> None:
    """Breaks when a server says that the files of a job are gone, which another server has."""
    elsewhere = Jobs(room.engine, "there")
    job = elsewhere.submit(spec(), "ann")[0]
    [job] = elsewhere.claim()
    for state in (State.PROVISIONING, State.RUNNING, State.DONE):
        job = elsewhere.move(job, state)
    assert answer(room.service.Get(jobs_pb2.GetRequest(id=job.id), None)).job.server == "there"
    log = refusal(room.service.Log(jobs_pb2.LogRequest(id=job.id), None))

    async def fetch() -> list[Any]:
        return [one async for one in room.service.FetchResult(jobs_pb2.FetchResultRequest(id=job.id), None)]

    for refused in (log, refusal(fetch())):
        assert refused.code == Code.FAILED_PRECONDITION and "are on another server of this database: there" in str(
            refused
        )


def test_the_length_of_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when more jobs may wait than the operator said, or room that there is again is not seen."""
    room = Room(tmp_path, max_queued=3)
    request = jobs_pb2.SubmitRequest(
        spec=jobs_pb2.JobSpec(graph=jobs_pb2.GraphJob(algorithm="components", input_uri="g.txt"))
    )
    ids = [answer(room.service.Submit(request, None)).job.id for _ in range(3)]
    refused = refusal(room.service.Submit(request, None))
    assert refused.code == Code.RESOURCE_EXHAUSTED and "the queue is full (3 jobs, --max-queued)" in str(refused)
    answer(room.service.Cancel(jobs_pb2.CancelRequest(id=ids[0]), None))
    monkeypatch.setattr(room.service, "_count_again", 0.0)
    answer(room.service.Submit(request, None))
    room.engine.dispose()


def test_jobs_of_one_client_in_the_queue(tmp_path: Path) -> None:
    """Breaks when one client can fill the queue of all, or the refusal does not name the limit."""
    room = Room(tmp_path, max_queued_per_client=2)
    for _ in range(3):
        room.jobs.submit(spec(), "another")
    graph = jobs_pb2.GraphJob(algorithm="components", input_uri="g.txt")
    request = jobs_pb2.SubmitRequest(spec=jobs_pb2.JobSpec(graph=graph))
    for _ in range(2):
        answer(room.service.Submit(request, None))
    refused = refusal(room.service.Submit(request, None))
    assert refused.code == Code.RESOURCE_EXHAUSTED and "limit of queued jobs (2 jobs" in str(refused)
    assert "--max-queued-per-client" in str(refused)
    room.engine.dispose()


def test_uploads_that_stop(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a client that sends nothing more keeps the room of others, or one that hangs up leaves a file."""
    monkeypatch.setattr(job_service, "_IDLE_S", 0.1)
    start = jobs_pb2.UploadRequest(start=jobs_pb2.UploadStart(name="x.txt", total_bytes=1000, sha256="0" * 64))

    async def silent() -> AsyncIterator[jobs_pb2.UploadRequest]:
        yield start
        yield jobs_pb2.UploadRequest(data=b"abc")
        await asyncio.sleep(60)

    async def hang_up() -> None:
        call = asyncio.create_task(room.service.Upload(silent(), None))
        await asyncio.sleep(0.05)
        call.cancel()
        await call

    for _ in range(3):
        assert refusal(room.service.Upload(silent(), None)).code == Code.DEADLINE_EXCEEDED
        with pytest.raises(asyncio.CancelledError):
            answer(hang_up())
    assert list(room.uploads.iterdir()) == []


class Counted:
    """Metrics as a test reads them."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def called(self, method: str, code: str, seconds: float) -> None:
        self.codes.append(code)


def test_calls_that_are_not_waited_for() -> None:
    """Breaks when a call that ran out of its time, or whose client hung up, is counted as one that went well."""
    counted = Counted()

    async def slow(request: bytes, context: Any) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.sleep(60)

    async def run() -> None:
        guard = Guard(Clients(), Limits(100, 100, 100), counted)  # type: ignore[arg-type]
        server = grpc.aio.server(interceptors=[guard])
        handlers = {"Slow": grpc.unary_unary_rpc_method_handler(slow),
                    "Stream": grpc.unary_stream_rpc_method_handler(stream)}  # fmt: skip
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.S", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.RpcError):
                await channel.unary_unary("/test.S/Slow")(b"", timeout=0.2)
            call = channel.unary_unary("/test.S/Slow")(b"")
            await asyncio.sleep(0.2)
            call.cancel()
            watched = channel.unary_stream("/test.S/Stream")(b"")
            assert await watched.read() == b"first"
            watched.cancel()
            end = asyncio.get_running_loop().time() + 10
            while len(counted.codes) < 3 and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.02)
        await server.stop(0)

    asyncio.run(run())
    # A client that runs out of time also hangs up, and the server may notice that first.
    assert len(counted.codes) == 3 and set(counted.codes) <= {"CANCELLED", "DEADLINE_EXCEEDED"}
