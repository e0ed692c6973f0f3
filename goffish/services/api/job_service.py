"""gRPC service of jobs: `goffish.v1.JobService`."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any, BinaryIO

import grpc

from goffish.errors import InputError
from goffish.services.api import wire
from goffish.services.api.admission import check_spec
from goffish.services.api.calls import FairThreads, elsewhere
from goffish.services.api.clients import Role
from goffish.services.api.feeds import Feeds
from goffish.services.api.guard import Refused, caller, subject
from goffish.services.api.inputs import Inputs
from goffish.services.runners.flow_folder import FlowFolder
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.supervisor import Supervisor
from goffish.services.store.records import OVER, Job, State
from goffish.services.store.spec import MOST_BYTES, MOST_LABELS, JobSpec
from goffish.services.store.store import Jobs, UnknownJob
from goffish.v1 import jobs_pb2, jobs_pb2_grpc

#: Bytes of a result per message.
_PIECE = 1 << 20
_LOG_BYTES, _MOST_LOG_BYTES = 1 << 16, 1 << 20
_PAGE, _MOST_PAGE = 100, 1000
_KEY_LENGTH = 200
#: Maximum bytes of a page of jobs, below the message limit of clients.
_PAGE_BYTES = 2 << 20
#: Interval between counts of queued jobs, in seconds.
_COUNT_S = 1.0
#: Seconds without data after which an upload is aborted.
_IDLE_S = 60.0
#: Threads for database writes, separate from those for reads; and threads that parse and check large jobs.
_WRITERS, _READERS = 2, 1


class JobService(jobs_pb2_grpc.JobServiceServicer):  # type: ignore[misc, unused-ignore]
    """Submit, list, watch and cancel jobs.

    Parameters
    ----------
    jobs : Jobs
    supervisor : Supervisor
    inputs : Inputs
    feeds : Feeds
    runners : tuple of str
        Available runners.
    max_queued, max_queued_per_client : int
        Maximum number of queued jobs, in total and per client.
    limits : JobLimits, optional
    flows : FlowFolder, optional
        Flows that clients may run.
    """

    def __init__(
        self, jobs: Jobs, supervisor: Supervisor, inputs: Inputs, feeds: Feeds, runners: tuple[str, ...],
        max_queued: int, max_queued_per_client: int = 10_000, limits: JobLimits = UNLIMITED,
        flows: FlowFolder | None = None,
    ) -> None:  # fmt: skip
        self._flows = flows
        self._most_queued, self._limits = max_queued_per_client, limits
        self._jobs, self._supervisor, self._inputs, self._hub = jobs, supervisor, inputs, feeds
        self._runners, self._most_waiting = runners, max_queued
        self._counted, self._count_again = Counter[str](), 0.0
        self._writers = FairThreads(_WRITERS, _WRITERS, "write")
        self._readers = FairThreads(_READERS, _READERS, "read")

    async def Submit(self, request: jobs_pb2.SubmitRequest, context: Any) -> jobs_pb2.SubmitResponse:
        """Validate and queue a job."""
        if request.spec.ByteSize() > MOST_BYTES:
            raise InputError(f"spec: {request.spec.ByteSize():,} bytes; at most {MOST_BYTES:,} are accepted")
        if len(request.client_key) > _KEY_LENGTH:
            raise InputError(f"client_key: {len(request.client_key):,} characters; at most {_KEY_LENGTH} are accepted")
        name = caller.get().name
        spec = await elsewhere(wire.spec_of, request.spec, threads=self._readers)
        answer = await elsewhere(self._accept, spec, request.client_key, name, threads=self._writers)
        subject.set(answer.job.id)
        self._supervisor.wake()
        return answer

    def _accept(self, spec: JobSpec, client_key: str, client: str) -> jobs_pb2.SubmitResponse:
        # A repeated key returns its job, even if the job would no longer be accepted.
        known = self._jobs.known(spec, client, client_key) if client_key else None
        if known is not None:
            return jobs_pb2.SubmitResponse(job=wire.job_message(known), known=True)
        check_spec(spec, self._inputs, self._runners, self._limits, self._flows)
        if spec.flow is not None and spec.flow.resume_from is not None:
            self._check_savepoint(spec.flow.resume_from)
        waiting = self._waiting()
        if waiting.total() >= self._most_waiting:
            text = f"the queue is full ({self._most_waiting:,} jobs, --max-queued); retry later"
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        if waiting[client] >= self._most_queued:
            limit = f"{self._most_queued:,} jobs, --max-queued-per-client"
            text = f"client {client} has reached its limit of queued jobs ({limit}); retry later"
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        job, found = self._jobs.submit(spec, client, client_key or None)
        waiting[client] += 1
        return jobs_pb2.SubmitResponse(job=wire.job_message(job), known=found)

    def _check_savepoint(self, name: str) -> None:
        """Check that a flow can resume from a job.

        Raises
        ------
        InputError
        """
        field = "spec.flow.resume_from"
        try:
            job = self._jobs.get(name)
        except UnknownJob as error:
            raise InputError(f"{field}: {error}") from None
        if job.spec.flow is None or not job.over:
            problem = "is not a flow job" if job.spec.flow is None else f"is {job.state}; stop it first"
            raise InputError(f"{field}: job {job.id} {problem}")
        self._check_here(job)
        if not self._supervisor.folder(job.id).checkpoints.is_dir():
            raise InputError(f"{field}: job {job.id} has no checkpoint")

    def _waiting(self) -> Counter[str]:
        """Return the number of queued jobs by client: a periodic count plus jobs accepted since."""
        if time.monotonic() >= self._count_again:
            self._counted = Counter(self._jobs.waiting())
            self._count_again = time.monotonic() + _COUNT_S
        return self._counted

    async def Get(self, request: jobs_pb2.GetRequest, context: Any) -> jobs_pb2.GetResponse:
        """Return one job."""
        # Converting large jobs takes time.
        return await elsewhere(lambda: jobs_pb2.GetResponse(job=wire.job_message(self._jobs.get(request.id))))

    async def List(self, request: jobs_pb2.ListRequest, context: Any) -> jobs_pb2.ListResponse:
        """Return a page of jobs."""
        if not 0 <= request.page_size <= _MOST_PAGE:
            raise InputError(f"page_size: {request.page_size}; 1 to {_MOST_PAGE} are accepted")
        if request.page_token and not request.page_token.isdecimal():
            raise InputError("page_token: must be the next_page_token of the previous page")
        if len(request.labels) > MOST_LABELS:
            raise InputError(f"labels: {len(request.labels):,}; at most {MOST_LABELS} are accepted")
        size = request.page_size or _PAGE
        find = functools.partial(
            self._jobs.find, states=wire.states_of(request.states), labels=dict(request.labels),
            what=request.algorithm, client=request.client,
            before=int(request.page_token[:18]) if request.page_token else None, limit=size + 1,
        )  # fmt: skip

        def page() -> jobs_pb2.ListResponse:
            made, held, last = jobs_pb2.ListResponse(), 0, 0
            with closing(find()) as found:
                for job in found:
                    message = wire.job_message(job)
                    held += message.ByteSize()
                    if len(made.jobs) == size or (made.jobs and held > _PAGE_BYTES):
                        made.next_page_token = str(last)
                        break
                    made.jobs.append(message)
                    last = job.number
            return made

        return await elsewhere(page)

    async def Cancel(self, request: jobs_pb2.CancelRequest, context: Any) -> jobs_pb2.CancelResponse:
        """Request the cancellation of a job."""
        job = await own_job(self._jobs, request.id)
        job = await elsewhere(self._jobs.cancel, job.id, caller.get().name, threads=self._writers)
        self._supervisor.wake(job)
        return jobs_pb2.CancelResponse(job=await elsewhere(wire.job_message, job))

    async def Watch(self, request: jobs_pb2.WatchRequest, context: Any) -> AsyncIterator[jobs_pb2.WatchResponse]:
        """Stream the events of a job until it ends."""
        after = request.after
        with self._hub.watching(self._jobs, request.id) as feed:
            while True:
                events, over = await feed.after(after)
                for event in events:
                    after = event.number
                    yield jobs_pb2.WatchResponse(event=wire.event_message(event))
                if (events and events[-1].state in OVER) or (over and not events):
                    return
                if not events:
                    await feed.news(after)

    async def FetchResult(
        self, request: jobs_pb2.FetchResultRequest, context: Any
    ) -> AsyncIterator[jobs_pb2.FetchResultResponse]:
        """Stream the result of a job."""
        job = await elsewhere(self._jobs.get, request.id)
        if job.state != State.DONE:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"job {job.id} is {job.state} and has no result")
        self._check_here(job)
        path = self._supervisor.folder(job.id).result
        try:
            file: BinaryIO = await elsewhere(path.open, "rb")
        except FileNotFoundError:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"the result of job {job.id} was deleted") from None
        with file:
            total = path.stat().st_size
            if not 0 <= request.offset <= total:
                raise InputError(f"offset: {request.offset}; the result has {total:,} bytes")
            file.seek(request.offset)
            while data := await elsewhere(file.read, _PIECE):
                yield jobs_pb2.FetchResultResponse(data=data, total_bytes=total)

    async def Log(self, request: jobs_pb2.LogRequest, context: Any) -> jobs_pb2.LogResponse:
        """Return the end of a job's log."""
        if not 0 <= request.bytes <= _MOST_LOG_BYTES:
            raise InputError(f"bytes: {request.bytes}; at most {_MOST_LOG_BYTES:,} are accepted")
        job = await elsewhere(self._jobs.get, request.id)
        self._check_here(job)
        text = await elsewhere(self._supervisor.log, job.id, request.bytes or _LOG_BYTES)
        return jobs_pb2.LogResponse(text=text)

    async def Upload(self, requests: AsyncIterator[jobs_pb2.UploadRequest], context: Any) -> jobs_pb2.UploadResponse:
        """Receive an input file in chunks."""
        upload = None
        parts = aiter(requests)
        try:
            # Limit the idle time, because the announced size counts against the quota.
            while (request := await asyncio.wait_for(anext(parts, None), _IDLE_S)) is not None:
                if upload is None:
                    if request.WhichOneof("part") != "start":
                        raise InputError("start: must be the first message")
                    start = request.start
                    upload = self._inputs.upload(start.name, start.total_bytes, start.sha256)
                elif request.WhichOneof("part") != "data":
                    raise InputError("data: only data may follow the start message")
                else:
                    await elsewhere(upload.write, request.data)
            if upload is None:
                raise InputError("start: the stream is empty")
            uri = await elsewhere(upload.finish)
            subject.set(uri)
            return jobs_pb2.UploadResponse(uri=uri, bytes=upload.bytes)
        except TimeoutError:
            raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, f"no data received for {_IDLE_S:g} s") from None
        finally:
            if upload is not None:
                await asyncio.shield(elsewhere(upload.drop))

    def _check_here(self, job: Job) -> None:
        check_here(self._jobs, job)


async def own_job(jobs: Jobs, name: str) -> Job:
    """Return a job that the caller may change.

    Parameters
    ----------
    jobs : Jobs
    name : str

    Raises
    ------
    Refused, UnknownJob
    """
    client = caller.get()
    subject.set(name)
    job: Job = await elsewhere(jobs.get, name)
    if job.client != client.name and client.rank < Role.ADMIN:
        text = f"job {job.id} belongs to client {job.client}; the role admin is required"
        raise Refused(grpc.StatusCode.PERMISSION_DENIED, text)
    return job


def check_here(jobs: Jobs, job: Job) -> None:
    """Check that the files of a job are on this server.

    Parameters
    ----------
    jobs : Jobs
    job : Job

    Raises
    ------
    Refused
    """
    if job.server != jobs.server:
        text = f"the files of job {job.id} are on another server of this database: {job.server}"
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, text)
