"""Calls of both clients; the build generates the synchronous module ``calls`` from ``async_calls``."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

import grpc

from goffish.client import requests
from goffish.client.channels import (
    AWAY,
    CALL_S,
    PAUSE_S,
    PAUSES_S,
    PLAN_S,
    Connection,
    ServiceError,
    check_whole,
    service_error,
)
from goffish.client.requests import DataflowOptions, GraphOptions
from goffish.v1 import catalog_pb2, dataflows_pb2, jobs_pb2, planning_pb2


class AsyncCalls(Connection):
    """Calls that neither read nor write files."""

    _transport = grpc.aio

    async def submit(self, spec: jobs_pb2.JobSpec, key: str = "") -> jobs_pb2.Job:
        """Submit a job given as a protocol message."""
        # The key prevents duplicate jobs when the call is retried.
        asked = requests.filled(jobs_pb2.SubmitRequest(), spec=spec, client_key=key or secrets.token_hex(16))
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
        """Return the current state of a job."""
        asked = requests.of_job(jobs_pb2.GetRequest(), job)
        found: jobs_pb2.Job = (await self._call(self.jobs.Get, asked)).job
        return found

    async def submit_graph(
        self, algorithm: str, input_uri: str, options: Mapping[str, Any] | None = None, *, key: str = "",
        runner: str = "local", **more: Unpack[GraphOptions],
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit a graph job.

        Parameters
        ----------
        algorithm : str
            Name as in ``goffish run ALGORITHM``.
        input_uri : str
            Path below the server's data folders, or a URI returned by `upload`.
        options : mapping, optional
            Options of the algorithm.
        key : str
            Idempotency key: submitting the same key again returns the same job.
        runner : {"local", "mpi", "spark", "cloud"}
        **more
            Limits and options; see `goffish.client.requests.GraphOptions`.

        Raises
        ------
        InputError
            An argument has the wrong type.
        ServiceError
        """
        return await self.submit(requests.graph_spec(algorithm, input_uri, options, runner, more), key)

    async def submit_dataflow(
        self, dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None = None, *, key: str = "",
        **more: Unpack[DataflowOptions],
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit a dataflow to run on the simulated cloud.

        Parameters
        ----------
        dataflow : str or Dataflow
            Name of a dataflow on the server, or a definition (`goffish.client.dataflow` reads a file).
        options : mapping, optional
            Options of the scheduler policy.
        key : str
            Idempotency key: submitting the same key again returns the same job.
        **more
            Limits and options; see `goffish.client.requests.DataflowOptions`.

        Raises
        ------
        InputError
            An argument has the wrong type.
        ServiceError
        """
        return await self.submit(requests.dataflow_spec(dataflow, options, more), key)

    async def list(
        self, *states: str, labels: Mapping[str, str] | None = None, algorithm: str = "", client: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[jobs_pb2.Job]:  # fmt: skip
        """Iterate over jobs, newest first; pages are fetched as needed.

        Parameters
        ----------
        *states : str
            States to include, such as ``"running"``; default: all.
        labels, algorithm, client
            Include only jobs with all of these labels, this algorithm and this client.
        page_size : int
            Jobs per request.
        """
        asked = requests.filled(
            jobs_pb2.ListRequest(states=requests.states(states)), labels=labels, algorithm=algorithm, client=client,
            page_size=page_size,
        )  # fmt: skip
        while True:
            page = await self._call(self.jobs.List, asked)
            for found in page.jobs:
                yield found
            if not page.next_page_token:
                return
            asked.page_token = page.next_page_token

    async def cancel(self, job: str) -> jobs_pb2.Job:
        """Request the cancellation of a job."""
        found: jobs_pb2.Job = (await self._call(self.jobs.Cancel, requests.of_job(jobs_pb2.CancelRequest(), job))).job
        return found

    async def watch(self, job: str, after: int = 0) -> AsyncIterator[jobs_pb2.Event]:
        """Iterate over the events of a job until it ends; resume after interruptions up to ``patience_s``."""
        asked = requests.of_job(jobs_pb2.WatchRequest(), job, after=after)
        async with contextlib.aclosing(self._resumed(self.jobs.Watch, asked)) as answers:
            async for answer in answers:
                asked.after = answer.event.number
                yield answer.event

    async def wait(self, job: str) -> jobs_pb2.Job:
        """Wait until a job ends and return it."""
        async for _ in self.watch(job):
            pass
        return await self._patiently(job)

    async def log(self, job: str, max_bytes: int = 0, *, most_bytes: int | None = None) -> str:
        """Return the end of a job's log, up to `max_bytes` bytes (0: the default of the server).

        `most_bytes` is a deprecated spelling of `max_bytes`.
        """
        if most_bytes is not None:
            warnings.warn("most_bytes is deprecated; use max_bytes", DeprecationWarning, stacklevel=2)
            max_bytes = most_bytes
        text: str = (await self._call(self.jobs.Log, requests.of_job(jobs_pb2.LogRequest(), job, bytes=max_bytes))).text
        return text

    async def plan(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
    ) -> dataflows_pb2.Plan:  # fmt: skip
        """Compute the initial deployment of a dataflow.

        Parameters
        ----------
        dataflow : str or Dataflow
            Name of a dataflow on the server, or a definition (`goffish.client.dataflow` reads a file).
        cloud : str or Catalogue, optional
            Name of a catalogue on the server, or a definition (`goffish.client.catalogue` reads a file).
        policy, options
            Scheduler policy and its options.
        rates : mapping, optional
            Messages per second by processing element, instead of the rates of the dataflow.
        """
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(planning_pb2.PlanRequest(setting=which), rates=rates)
        plan: dataflows_pb2.Plan = (await self._call(self.planning.Plan, asked, PLAN_S)).plan
        return plan

    async def adapt(
        self, dataflow: str | dataflows_pb2.Dataflow, observations: planning_pb2.Observations,
        cloud: str | dataflows_pb2.Catalogue | None = None, policy: str = "",
        options: Mapping[str, Any] | None = None, session: str = "",
    ) -> planning_pb2.AdaptResponse:  # fmt: skip
        """Compute the deployment of the next interval from observations.

        Parameters
        ----------
        observations : Observations
            Metrics of the previous intervals.
        session : str
            Name of the session that keeps the state of the policy between calls.
        dataflow, cloud, policy, options
            As in `plan`.
        """
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(planning_pb2.AdaptRequest(setting=which), observations=observations, session=session)
        answer: planning_pb2.AdaptResponse = await self._call(self.planning.Adapt, asked, PLAN_S)
        return answer

    async def plan_ahead(
        self, dataflow: str | dataflows_pb2.Dataflow, observations: planning_pb2.Observations,
        forecast: Iterable[planning_pb2.Interval], cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, session: str = "",
    ) -> planning_pb2.PlanAheadResponse:  # fmt: skip
        """Compute a deployment from observations and forecasts of the next intervals, in order."""
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(
            planning_pb2.PlanAheadRequest(setting=which), observations=observations, forecast=forecast, session=session
        )
        answer: planning_pb2.PlanAheadResponse = await self._call(self.planning.PlanAhead, asked, PLAN_S)
        return answer

    async def advise_spot(
        self, core_hours: float, hours: float, market: str, prices: Mapping[str, float] | None = None,
        running: planning_pb2.RunningJob | None = None,
    ) -> planning_pb2.AdviseSpotResponse:  # fmt: skip
        """Return the recommended action of a job on spot machines.

        Parameters
        ----------
        core_hours, hours : float
            Remaining work, and time until the deadline.
        market : str
            Name of a market; see `markets`.
        prices : mapping, optional
            Current spot price by machine type.
        running : RunningJob, optional
            Machine and checkpoint of a running job.
        """
        asked = requests.filled(
            planning_pb2.AdviseSpotRequest(), core_hours=core_hours, hours=hours, market=market, prices=prices,
            running=running,
        )  # fmt: skip
        answer: planning_pb2.AdviseSpotResponse = await self._call(self.planning.AdviseSpot, asked, PLAN_S)
        return answer

    async def explain(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
        policies: Iterable[str] = (),
    ) -> planning_pb2.ExplainResponse:  # fmt: skip
        """Compute a plan, explain its choices, and compare it with other policies."""
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(planning_pb2.ExplainRequest(setting=which), rates=rates, policies=policies)
        answer: planning_pb2.ExplainResponse = await self._call(self.planning.Explain, asked)
        return answer

    async def catalogues(self) -> dict[str, dataflows_pb2.Catalogue]:
        """Return the machine type catalogues of the server by name."""
        answer = await self._call(self.catalog.ListCatalogues, catalog_pb2.ListCataloguesRequest())
        return {one.name: one.catalogue for one in answer.catalogues}

    async def prices(
        self, trace: str, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[catalog_pb2.Price, ...]:
        """Return the spot prices of a trace (`MachineClass.prices`); times without a zone are UTC."""
        return tuple((await self._call(self.catalog.GetPrices, requests.prices(trace, since, until))).prices)

    async def markets(self) -> tuple[catalog_pb2.Market, ...]:
        """Return the spot markets of the server."""
        return tuple((await self._call(self.catalog.ListMarkets, catalog_pb2.ListMarketsRequest())).markets)

    async def dataflows(self) -> dict[str, dataflows_pb2.Dataflow]:
        """Return the dataflows of the server by name."""
        answer = await self._call(self.catalog.ListDataflows, catalog_pb2.ListDataflowsRequest())
        return dict(zip(answer.names, answer.dataflows, strict=True))

    async def policies(self) -> tuple[catalog_pb2.PolicyInfo, ...]:
        """Return the scheduler policies with JSON schemas of their options."""
        return tuple((await self._call(self.catalog.ListPolicies, catalog_pb2.ListPoliciesRequest())).policies)

    async def algorithms(self) -> tuple[catalog_pb2.AlgorithmInfo, ...]:
        """Return the algorithms of graph jobs with JSON schemas of their options."""
        return tuple((await self._call(self.catalog.ListAlgorithms, catalog_pb2.ListAlgorithmsRequest())).algorithms)

    async def _call(self, method: Callable[..., Any], request: Any, usual_s: float | None = CALL_S) -> Any:
        try:
            answer = await method(request, metadata=self.metadata, timeout=self._limit(usual_s))
        except grpc.RpcError as error:
            raise service_error(error) from None
        self._answered = True
        return answer

    async def _patiently(self, job: str) -> jobs_pb2.Job:
        """Return a job; retry while a server that has answered before is unavailable."""
        end = None
        while True:
            try:
                return await self.job(job)
            except ServiceError as error:
                end = self._until(error, end)
            await asyncio.sleep(PAUSE_S)

    async def _resumed(self, method: Callable[..., Any], asked: Any) -> AsyncGenerator[Any, None]:
        """Iterate over a stream; if it breaks off, request it again with the updated message `asked`."""
        while True:
            # The first answer of a stream may take long; this call checks that the server is available.
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
        """Iterate over the bytes of a result, and check that none are missing."""
        asked, total = requests.of_job(jobs_pb2.FetchResultRequest(), job), 0
        async with contextlib.aclosing(self._resumed(self.jobs.FetchResult, asked)) as answers:
            async for answer in answers:
                asked.offset += len(answer.data)
                total = answer.total_bytes
                yield answer.data
        check_whole(job, asked.offset, total)
