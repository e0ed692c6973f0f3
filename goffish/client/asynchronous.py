"""The client for event loops: the methods of the other one, to be awaited."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

import pyarrow as pa

from goffish.client import requests
from goffish.client.blocking import Client
from goffish.client.calls import PLAN_S, AsyncCalls
from goffish.client.requests import DataflowOptions, GraphOptions
from goffish.v1 import catalog_pb2, dataflows_pb2, jobs_pb2, planning_pb2


class AsyncClient(AsyncCalls):
    """Calls a server from an event loop. An asynchronous context manager; parameters and methods as of `Client`."""

    def __init__(
        self, address: str, token: str | None = None, *, authority: str | Path | None = None, tls: bool = False,
        certificate: str | Path | None = None, key: str | Path | None = None, timeout_s: float | None = None,
        patience_s: float = 600.0,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {
            "authority": authority, "tls": tls, "certificate": certificate, "key": key, "timeout_s": timeout_s,
            "patience_s": patience_s,
        }  # fmt: skip
        super().__init__(address, token, **given)
        self._make_blocking = functools.partial(Client, address, token, **given)

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
        runner: str = "local", **more: Unpack[GraphOptions],
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit an algorithm on a graph."""
        return await self.submit(requests.graph_spec(algorithm, input_uri, options, runner, more), key)

    async def submit_dataflow(
        self, dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None = None, *, key: str = "",
        **more: Unpack[DataflowOptions],
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit a dataflow that is run on the simulated cloud."""
        return await self.submit(requests.dataflow_spec(dataflow, options, more), key)

    async def list(
        self, *states: str, labels: Mapping[str, str] | None = None, algorithm: str = "", client: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[jobs_pb2.Job]:  # fmt: skip
        """Jobs, the newest first; pages are asked for as they are needed."""
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

    async def result(self, job: str) -> pa.Table:
        """The table of a job that is done."""
        pieces = [piece async for piece in self._pieces(job)]
        return pa.ipc.open_stream(b"".join(pieces)).read_all()

    async def result_batches(self, job: str) -> AsyncIterator[pa.RecordBatch]:
        """The table of a job that is done, piece by piece, without all of it being held."""
        with self._blocking() as client:
            batches = client.result_batches(job)
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch

    async def save_result(self, job: str, path: str | Path) -> Path:
        """Write the table of a job that is done to a file, as an Arrow IPC stream, without holding it."""
        with self._blocking() as client:
            return await asyncio.to_thread(client.save_result, job, path)

    async def log(self, job: str, most_bytes: int = 0) -> str:
        """The end of a job's log."""
        asked = requests.of_job(jobs_pb2.LogRequest(), job, bytes=most_bytes)
        text: str = (await self._call(self.jobs.Log, asked)).text
        return text

    async def upload(self, path: str | Path) -> str:
        """Bring a file to the server; gives its URI."""
        # Not only because it reads a file: gRPC for event loops loses the answer to a stream that is refused early.
        with self._blocking() as client:
            return await asyncio.to_thread(client.upload, path)

    def _blocking(self) -> Client:
        """Another client, for threads, which do what waits for files."""
        client = self._make_blocking()
        client._answered = self._answered
        return client

    async def plan(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
    ) -> dataflows_pb2.Plan:  # fmt: skip
        """The first deployment of a dataflow."""
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(planning_pb2.PlanRequest(setting=which), rates=rates)
        plan: dataflows_pb2.Plan = (await self._call(self.planning.Plan, asked, PLAN_S)).plan
        return plan

    async def adapt(
        self, dataflow: str | dataflows_pb2.Dataflow, observations: planning_pb2.Observations,
        cloud: str | dataflows_pb2.Catalogue | None = None, policy: str = "",
        options: Mapping[str, Any] | None = None, session: str = "",
    ) -> planning_pb2.AdaptResponse:  # fmt: skip
        """The deployment of the interval that begins, from what was observed."""
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
        """What a job on spot machines should do now."""
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
