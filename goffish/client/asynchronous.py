"""The client for event loops: the methods of the other one, to be awaited."""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import pyarrow as pa

from goffish.client import requests
from goffish.client.blocking import Client
from goffish.client.channels import Access, service_error
from goffish.v1 import (
    catalog_pb2_grpc,
    dataflows_pb2,
    jobs_pb2,
    jobs_pb2_grpc,
    planning_pb2,
    planning_pb2_grpc,
)

#: Seconds between two attempts to go on with a stream that broke off.
_PAUSE_S = 1.0
#: After so long without an event from a server that is away, whoever watches gives up.
_PATIENCE_S = 600.0


class AsyncClient:
    """Calls a server from an event loop. An asynchronous context manager; parameters as of `Client`."""

    def __init__(self, address: str, token: str | None = None, *, timeout_s: float = 30.0, **access: Any) -> None:
        given = Access(address, token, **access)
        self._blocking = functools.partial(Client, address, token, timeout_s=timeout_s, **access)
        self.metadata, self._timeout_s = given.metadata, timeout_s
        credentials = given.credentials
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=given.options)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=given.options)
        self.jobs: Any = jobs_pb2_grpc.JobServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.planning: Any = planning_pb2_grpc.PlanningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.catalog: Any = catalog_pb2_grpc.CatalogServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def submit_graph(
        self, algorithm: str, input_uri: str, options: Mapping[str, Any] | None = None, *, key: str = "",
        runner: str = "local", deadline_s: float | None = None, budget: float | None = None,
        labels: Mapping[str, str] | None = None, most_attempts: int | None = None, **graph: Any,
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit an algorithm on a graph."""
        limits = {"deadline_s": deadline_s, "budget": budget, "labels": labels, "most_attempts": most_attempts}
        return await self.submit(requests.graph_spec(algorithm, input_uri, options, runner, limits, graph), key)

    async def submit_dataflow(
        self, dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None = None, *, key: str = "",
        deadline_s: float | None = None, budget: float | None = None, labels: Mapping[str, str] | None = None,
        **run: Any,
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit a dataflow that is run on the simulated cloud."""
        limits = {"deadline_s": deadline_s, "budget": budget, "labels": labels}
        return await self.submit(requests.dataflow_spec(dataflow, options, limits, run), key)

    async def submit(self, spec: jobs_pb2.JobSpec, key: str = "") -> jobs_pb2.Job:
        """Submit a job as the protocol has it."""
        # A call that is tried again must not make a second job.
        asked = jobs_pb2.SubmitRequest(spec=spec, client_key=key or secrets.token_hex(16))
        made: jobs_pb2.Job = (await self._call(self.jobs.Submit, asked)).job
        return made

    async def job(self, job: str) -> jobs_pb2.Job:
        """A job as it stands."""
        found: jobs_pb2.Job = (await self._call(self.jobs.Get, jobs_pb2.GetRequest(id=job))).job
        return found

    async def list(
        self, *states: str, labels: Mapping[str, str] | None = None, algorithm: str = "", client: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[jobs_pb2.Job]:  # fmt: skip
        """Jobs, the newest first; pages are asked for as they are needed."""
        asked = jobs_pb2.ListRequest(
            states=requests.states(states), labels=labels, algorithm=algorithm, client=client, page_size=page_size
        )
        while True:
            page = await self._call(self.jobs.List, asked)
            for found in page.jobs:
                yield found
            if not page.next_page_token:
                return
            asked.page_token = page.next_page_token

    async def cancel(self, job: str) -> jobs_pb2.Job:
        """Ask a job to stop."""
        found: jobs_pb2.Job = (await self._call(self.jobs.Cancel, jobs_pb2.CancelRequest(id=job))).job
        return found

    async def watch(self, job: str, after: int = 0) -> AsyncIterator[jobs_pb2.Event]:
        """Events of a job until it is over, each once, also while the server is away for a time."""
        heard = None
        while True:
            stream = self.jobs.Watch(jobs_pb2.WatchRequest(id=job, after=after), metadata=self.metadata)
            try:
                async for answer in stream:
                    after, heard = answer.event.number, time.monotonic()
                    yield answer.event
                return
            except grpc.RpcError as error:
                away = error.code() == grpc.StatusCode.UNAVAILABLE
                if not away or heard is None or time.monotonic() - heard > _PATIENCE_S:
                    raise service_error(error) from None
                await asyncio.sleep(_PAUSE_S)
            finally:
                stream.cancel()

    async def wait(self, job: str) -> jobs_pb2.Job:
        """The job when it is over."""
        async for _ in self.watch(job):
            pass
        return await self.job(job)

    async def result(self, job: str) -> pa.Table:
        """The table of a job that is done."""
        pieces: list[bytes] = []
        asked = jobs_pb2.FetchResultRequest(id=job)
        try:
            pieces += [answer.data async for answer in self.jobs.FetchResult(asked, metadata=self.metadata)]
        except grpc.RpcError as error:
            raise service_error(error) from None
        return pa.ipc.open_stream(b"".join(pieces)).read_all()

    async def log(self, job: str, most_bytes: int = 0) -> str:
        """The end of a job's log."""
        text: str = (await self._call(self.jobs.Log, jobs_pb2.LogRequest(id=job, bytes=most_bytes))).text
        return text

    async def upload(self, path: str | Path) -> str:
        """Bring a file to the server; gives its URI."""
        # In a thread: it reads a file, and gRPC for event loops loses the answer to a stream that is refused early.
        client = self._blocking()
        try:
            return await asyncio.to_thread(client.upload, path)
        finally:
            client.close()

    async def plan(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
    ) -> dataflows_pb2.Plan:  # fmt: skip
        """The first deployment of a dataflow."""
        asked = planning_pb2.PlanRequest(setting=requests.setting(dataflow, cloud, policy, options), rates=rates)
        plan: dataflows_pb2.Plan = (await self._call(self.planning.Plan, asked)).plan
        return plan

    async def explain(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
        policies: tuple[str, ...] = (),
    ) -> planning_pb2.ExplainResponse:  # fmt: skip
        """A plan, why it is so, and what others would cost."""
        which = requests.setting(dataflow, cloud, policy, options)
        asked = planning_pb2.ExplainRequest(setting=which, rates=rates, policies=policies)
        answer: planning_pb2.ExplainResponse = await self._call(self.planning.Explain, asked)
        return answer

    async def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return await method(request, metadata=self.metadata, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise service_error(error) from None
