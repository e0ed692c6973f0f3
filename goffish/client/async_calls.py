"""The calls of both clients: the build makes ``calls``, which waits for answers, from ``async_calls``."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
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
    """Every call but those that read or write files."""

    _room = grpc.aio

    async def submit(self, spec: jobs_pb2.JobSpec, key: str = "") -> jobs_pb2.Job:
        """Submit a job as the protocol has it."""
        # With a key a call that is tried again makes no second job.
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
        """A job as it stands."""
        asked = requests.of_job(jobs_pb2.GetRequest(), job)
        found: jobs_pb2.Job = (await self._call(self.jobs.Get, asked)).job
        return found

    async def submit_graph(
        self, algorithm: str, input_uri: str, options: Mapping[str, Any] | None = None, *, key: str = "",
        runner: str = "local", **more: Unpack[GraphOptions],
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit an algorithm on a graph.

        Parameters
        ----------
        algorithm : str
            As in ``goffish run ALGORITHM``.
        input_uri : str
            Below the server's data folders, or what `upload` gave.
        options : mapping, optional
            Of the algorithm.
        key : str
            The same key again gives the same job.
        runner : {"local", "mpi", "spark", "cloud"}
        **more
            See `goffish.client.requests.GraphOptions`.

        Raises
        ------
        InputError
            An argument is not of its type.
        ServiceError
        """
        return await self.submit(requests.graph_spec(algorithm, input_uri, options, runner, more), key)

    async def submit_dataflow(
        self, dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None = None, *, key: str = "",
        **more: Unpack[DataflowOptions],
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit a dataflow that is run on the simulated cloud.

        Parameters
        ----------
        dataflow : str or Dataflow
            One that the server knows by name, or a definition (`goffish.client.dataflow` reads a file).
        options : mapping, optional
            Of its policy.
        key : str
            The same key again gives the same job.
        **more
            See `goffish.client.requests.DataflowOptions`.

        Raises
        ------
        InputError
            An argument is not of its type.
        ServiceError
        """
        return await self.submit(requests.dataflow_spec(dataflow, options, more), key)

    async def list(
        self, *states: str, labels: Mapping[str, str] | None = None, algorithm: str = "", client: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[jobs_pb2.Job]:  # fmt: skip
        """Jobs, the newest first; pages are asked for as they are needed.

        Parameters
        ----------
        *states : str
            Any of these, such as ``"running"``; none: all.
        labels, algorithm, client
            All of these labels, this algorithm, this client.
        page_size : int
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
        """Ask a job to stop."""
        found: jobs_pb2.Job = (await self._call(self.jobs.Cancel, requests.of_job(jobs_pb2.CancelRequest(), job))).job
        return found

    async def watch(self, job: str, after: int = 0) -> AsyncIterator[jobs_pb2.Event]:
        """Events of a job until it is over, each once, also while the server is away for a time (`patience_s`)."""
        asked = requests.of_job(jobs_pb2.WatchRequest(), job, after=after)
        async with contextlib.aclosing(self._resumed(self.jobs.Watch, asked)) as answers:
            async for answer in answers:
                asked.after = answer.event.number
                yield answer.event

    async def wait(self, job: str) -> jobs_pb2.Job:
        """The job when it is over."""
        async for _ in self.watch(job):
            pass
        return await self._patiently(job)

    async def log(self, job: str, most_bytes: int = 0) -> str:
        """The end of a job's log."""
        text: str = (
            await self._call(self.jobs.Log, requests.of_job(jobs_pb2.LogRequest(), job, bytes=most_bytes))
        ).text
        return text

    async def plan(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
    ) -> dataflows_pb2.Plan:  # fmt: skip
        """The first deployment of a dataflow.

        Parameters
        ----------
        dataflow : str or Dataflow
            One that the server knows by name, or a definition (`goffish.client.dataflow` reads a file).
        cloud : str or Catalogue, optional
            The same of machine classes (`goffish.client.catalogue`).
        policy, options
            Who plans.
        rates : mapping, optional
            Element to messages per second, instead of those of the dataflow.
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
        """The deployment of the interval that begins, from what was observed.

        Parameters
        ----------
        observations : Observations
        session : str
            Names what the policy remembers from call to call.
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
        """The same with forecasts of the intervals that come, the next one first."""
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
        """What a job on spot machines should do now.

        Parameters
        ----------
        core_hours, hours : float
            That are left to compute, and until the deadline.
        market : str
            One of `markets`.
        prices : mapping, optional
            Class to its spot price now.
        running : RunningJob, optional
            What a job that runs has, and what it has saved.
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
        """A plan, why it is so, and what others would cost."""
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(planning_pb2.ExplainRequest(setting=which), rates=rates, policies=policies)
        answer: planning_pb2.ExplainResponse = await self._call(self.planning.Explain, asked)
        return answer

    async def catalogues(self) -> dict[str, dataflows_pb2.Catalogue]:
        """Machine classes that the server knows, by the names of their catalogues."""
        answer = await self._call(self.catalog.ListCatalogues, catalog_pb2.ListCataloguesRequest())
        return {one.name: one.catalogue for one in answer.catalogues}

    async def prices(
        self, trace: str, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[catalog_pb2.Price, ...]:
        """Spot prices of a trace (`MachineClass.prices`) over time; a time without a zone is UTC."""
        return tuple((await self._call(self.catalog.GetPrices, requests.prices(trace, since, until))).prices)

    async def markets(self) -> tuple[catalog_pb2.Market, ...]:
        """Spot markets that the operator has fitted."""
        return tuple((await self._call(self.catalog.ListMarkets, catalog_pb2.ListMarketsRequest())).markets)

    async def dataflows(self) -> dict[str, dataflows_pb2.Dataflow]:
        """Dataflows that the server knows, by their names."""
        answer = await self._call(self.catalog.ListDataflows, catalog_pb2.ListDataflowsRequest())
        return dict(zip(answer.names, answer.dataflows, strict=True))

    async def policies(self) -> tuple[catalog_pb2.PolicyInfo, ...]:
        """Policies, with JSON schemas of their options."""
        return tuple((await self._call(self.catalog.ListPolicies, catalog_pb2.ListPoliciesRequest())).policies)

    async def algorithms(self) -> tuple[catalog_pb2.AlgorithmInfo, ...]:
        """Algorithms of graph jobs, with JSON schemas of their options."""
        return tuple((await self._call(self.catalog.ListAlgorithms, catalog_pb2.ListAlgorithmsRequest())).algorithms)

    async def _call(self, method: Callable[..., Any], request: Any, usual_s: float | None = CALL_S) -> Any:
        try:
            answer = await method(request, metadata=self.metadata, timeout=self._limit(usual_s))
        except grpc.RpcError as error:
            raise service_error(error) from None
        self._answered = True
        return answer

    async def _patiently(self, job: str) -> jobs_pb2.Job:
        """The job; a server that has answered before is waited for."""
        end = None
        while True:
            try:
                return await self.job(job)
            except ServiceError as error:
                end = self._until(error, end)
            await asyncio.sleep(PAUSE_S)

    async def _resumed(self, method: Callable[..., Any], asked: Any) -> AsyncGenerator[Any, None]:
        """The answers of a stream; one that breaks off is asked for again, with `asked` as the caller left it."""
        while True:
            # A stream says nothing before its first answer, which may take long; this tells that the server is there.
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
        """The bytes of a result, all of them."""
        asked, total = requests.of_job(jobs_pb2.FetchResultRequest(), job), 0
        async with contextlib.aclosing(self._resumed(self.jobs.FetchResult, asked)) as answers:
            async for answer in answers:
                asked.offset += len(answer.data)
                total = answer.total_bytes
                yield answer.data
        check_whole(job, asked.offset, total)
