"""How calls are made, and made again when the server is away for a time: for the two clients."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from goffish.client import requests
from goffish.client.channels import AWAY, PAUSE_S, PAUSES_S, Access, ServiceError, service_error
from goffish.client.results import check_whole
from goffish.v1 import catalog_pb2_grpc, jobs_pb2, jobs_pb2_grpc, planning_pb2_grpc

#: Seconds that a call may take, and one that plans: the server ends those after 300 s (`goffish serve --most-plan`).
CALL_S, PLAN_S = 30.0, 330.0


class _Connection:
    """A channel and its stubs.

    Parameters
    ----------
    address, token, authority, tls, certificate, key
        See `goffish.client.channels.Access`.
    timeout_s, patience_s : float
        See `Client`.
    """

    #: Where channels are made.
    _room: Any

    def __init__(
        self, address: str, token: str | None = None, *, authority: str | Path | None = None, tls: bool = False,
        certificate: str | Path | None = None, key: str | Path | None = None, timeout_s: float | None = None,
        patience_s: float = 600.0,
    ) -> None:  # fmt: skip
        given = Access(address, token, authority, tls, certificate, key)
        self.metadata, self._timeout_s, self._patience_s = given.metadata, timeout_s, patience_s
        #: Whether the server was ever there.
        self._answered = False
        credentials = given.credentials
        if credentials is None:
            self._channel = self._room.insecure_channel(given.target, options=given.options)
        else:
            self._channel = self._room.secure_channel(given.target, credentials, options=given.options)
        self.jobs: Any = jobs_pb2_grpc.JobServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.planning: Any = planning_pb2_grpc.PlanningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.catalog: Any = catalog_pb2_grpc.CatalogServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _limit(self, usual_s: float | None) -> float | None:
        """Seconds of a call, of which `usual_s` is the default; None has no limit."""
        return self._timeout_s if self._timeout_s is not None and usual_s is not None else usual_s

    def _until(self, error: ServiceError, end: float | None) -> float:
        """When patience ends with a server that is away; it begins with the first error.

        Raises
        ------
        ServiceError
            The same: it has ended, the server was never there, or it is there and refuses.
        """
        now = time.monotonic()
        end = now + self._patience_s if end is None else end
        if error.code not in AWAY or not self._answered or now >= end:
            raise error
        return end


def _submission(spec: jobs_pb2.JobSpec, key: str) -> jobs_pb2.SubmitRequest:
    # With a key a call that is tried again makes no second job.
    return requests.filled(jobs_pb2.SubmitRequest(), spec=spec, client_key=key or secrets.token_hex(16))


class Calls(_Connection):
    """Calls that are waited for."""

    _room = grpc

    def submit(self, spec: jobs_pb2.JobSpec, key: str = "") -> jobs_pb2.Job:
        """Submit a job as the protocol has it."""
        asked = _submission(spec, key)
        for pause in PAUSES_S:
            try:
                return self._submit(asked)
            except ServiceError as error:
                if error.code != grpc.StatusCode.UNAVAILABLE:
                    raise
            time.sleep(pause)
        return self._submit(asked)

    def _submit(self, asked: jobs_pb2.SubmitRequest) -> jobs_pb2.Job:
        made: jobs_pb2.Job = self._call(self.jobs.Submit, asked).job
        return made

    def job(self, job: str) -> jobs_pb2.Job:
        """A job as it stands."""
        found: jobs_pb2.Job = self._call(self.jobs.Get, requests.of_job(jobs_pb2.GetRequest(), job)).job
        return found

    def _call(self, method: Callable[..., Any], request: Any, usual_s: float | None = CALL_S) -> Any:
        try:
            answer = method(request, metadata=self.metadata, timeout=self._limit(usual_s))
        except grpc.RpcError as error:
            raise service_error(error) from None
        self._answered = True
        return answer

    def _patiently(self, job: str) -> jobs_pb2.Job:
        """The job; a server that has answered before is waited for."""
        end = None
        while True:
            try:
                return self.job(job)
            except ServiceError as error:
                end = self._until(error, end)
            time.sleep(PAUSE_S)

    def _resumed(self, method: Callable[..., Any], asked: Any) -> Iterator[Any]:
        """The answers of a stream; one that breaks off is asked for again, with `asked` as the caller left it."""
        while True:
            # A stream says nothing before its first answer, which may take long; this tells that the server is there.
            self._patiently(asked.id)
            stream = method(asked, metadata=self.metadata)
            try:
                yield from stream
                return
            except grpc.RpcError as error:
                if error.code() not in AWAY:
                    raise service_error(error) from None
            finally:
                stream.cancel()
            time.sleep(PAUSE_S)

    def _pieces(self, job: str) -> Iterator[bytes]:
        """The bytes of a result, all of them."""
        asked, total = requests.of_job(jobs_pb2.FetchResultRequest(), job), 0
        for answer in self._resumed(self.jobs.FetchResult, asked):
            asked.offset += len(answer.data)
            total = answer.total_bytes
            yield answer.data
        check_whole(job, asked.offset, total)


class AsyncCalls(_Connection):
    """The same for event loops."""

    _room = grpc.aio

    async def submit(self, spec: jobs_pb2.JobSpec, key: str = "") -> jobs_pb2.Job:
        """Submit a job as the protocol has it."""
        asked = _submission(spec, key)
        for pause in PAUSES_S:
            try:
                return await self._submit(asked)
            except ServiceError as error:
                if error.code != grpc.StatusCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(pause)
        return await self._submit(asked)

    async def _submit(self, asked: jobs_pb2.SubmitRequest) -> jobs_pb2.Job:
        made: jobs_pb2.Job = (await self._call(self.jobs.Submit, asked)).job
        return made

    async def job(self, job: str) -> jobs_pb2.Job:
        """A job as it stands."""
        asked = requests.of_job(jobs_pb2.GetRequest(), job)
        found: jobs_pb2.Job = (await self._call(self.jobs.Get, asked)).job
        return found

    async def _call(self, method: Callable[..., Any], request: Any, usual_s: float | None = CALL_S) -> Any:
        try:
            answer = await method(request, metadata=self.metadata, timeout=self._limit(usual_s))
        except grpc.RpcError as error:
            raise service_error(error) from None
        self._answered = True
        return answer

    async def _patiently(self, job: str) -> jobs_pb2.Job:
        end = None
        while True:
            try:
                return await self.job(job)
            except ServiceError as error:
                end = self._until(error, end)
            await asyncio.sleep(PAUSE_S)

    async def _resumed(self, method: Callable[..., Any], asked: Any) -> AsyncGenerator[Any, None]:
        while True:
            await self._patiently(asked.id)
            stream = method(asked, metadata=self.metadata)
            try:
                async for answer in stream:
                    yield answer
                return
            except grpc.RpcError as error:
                if error.code() not in AWAY:
                    raise service_error(error) from None
            finally:
                stream.cancel()
            await asyncio.sleep(PAUSE_S)

    async def _pieces(self, job: str) -> AsyncIterator[bytes]:
        asked, total = requests.of_job(jobs_pb2.FetchResultRequest(), job), 0
        async with contextlib.aclosing(self._resumed(self.jobs.FetchResult, asked)) as answers:
            async for answer in answers:
                asked.offset += len(answer.data)
                total = answer.total_bytes
                yield answer.data
        check_whole(job, asked.offset, total)
