"""Calls of both clients. The build generates ``calls``, the synchronous version, from ``async_calls``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

import grpc
import pyarrow as pa

from goffish.client import requests
from goffish.client.channels import (
    AWAY,
    CALL_S,
    CHANGE_S,
    PAUSE_S,
    PAUSES_S,
    PLAN_S,
    Connection,
    ServiceError,
    check_whole,
    service_error,
)
from goffish.client.requests import DataflowOptions, FlowOptions, GraphOptions
from goffish.v1 import catalog_pb2, dataflows_pb2, flows_pb2, graphs_pb2, jobs_pb2, planning_pb2


class AsyncCalls(Connection):
    """All calls except those that read or write files."""

    _transport = grpc.aio

    async def submit(self, spec: jobs_pb2.JobSpec, key: str = "") -> jobs_pb2.Job:
        """Submit a job from its protocol message.

        Parameters
        ----------
        spec : JobSpec
            The job (``goffish.v1.jobs_pb2``).
        key : str
            Idempotency key: submitting with the same key returns the same job [default: a random key].

        Returns
        -------
        Job
            The submitted job.

        Raises
        ------
        ServiceError
            If the server rejects the job or cannot be reached.
        """
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
        """Return the current state of a job.

        Parameters
        ----------
        job : str
            Job id.

        Returns
        -------
        Job
            State, progress and specification.

        Raises
        ------
        ServiceError
            If there is no such job or the server cannot be reached.
        """
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
            Name of the algorithm, as in ``goffish run ALGORITHM``.
        input_uri : str
            Graph or store in the data folders of the server, or the URI that `upload` returned.
        options : mapping of str to value, optional
            Options of the algorithm.
        key : str
            Idempotency key: submitting with the same key returns the same job [default: a random key].
        runner : {"local", "mpi", "spark", "cloud"}
            Where the job runs [default: "local"].
        **more
            ``workers`` (threads, or MPI ranks), ``checkpoint_every`` (supersteps), ``memory_mb`` and ``cpu_seconds``
            (limits of all processes together), ``deadline_s`` (seconds from submission), ``budget`` (in the currency of
            the cloud), ``labels`` (mapping), ``most_attempts`` (number of worker losses after which the job fails),
            and, with ``runner="cloud"``, ``policy`` (scheduler policy), ``cloud_name`` (catalogue of machine types) and
            ``machines`` (number of rented machines, with one MPI rank on each if there are several).

        Returns
        -------
        Job
            The submitted job.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        TypeError
            If a keyword argument is unknown.
        ServiceError
            If the server rejects the job or cannot be reached.
        """
        return await self.submit(requests.graph_spec(algorithm, input_uri, options, runner, more), key)

    async def submit_dataflow(
        self, dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None = None, *, key: str = "",
        **more: Unpack[DataflowOptions],
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit a dataflow that runs on the simulated cloud.

        Parameters
        ----------
        dataflow : str or Dataflow
            Name of a dataflow on the server, or a definition (`goffish.client.dataflow` reads one from a file).
        options : mapping of str to value, optional
            Options of the policy.
        key : str
            Idempotency key: submitting with the same key returns the same job [default: a random key].
        **more
            ``cloud_name`` (catalogue of machine types), ``policy`` (scheduler policy), ``rates`` (message rates over
            time), ``hours`` (simulated hours), ``seed`` (random seed), ``hours_per_second`` (simulated hours per second
            [default: unlimited]), and ``deadline_s``, ``budget``, ``labels`` and ``most_attempts`` as in
            `submit_graph`.

        Returns
        -------
        Job
            The submitted job.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        TypeError
            If a keyword argument is unknown.
        ServiceError
            If the server rejects the job or cannot be reached.
        """
        return await self.submit(requests.dataflow_spec(dataflow, options, more), key)

    async def submit_flow(
        self, flow: str | Mapping[str, Any], *, key: str = "", **more: Unpack[FlowOptions]
    ) -> jobs_pb2.Job:  # fmt: skip
        """Submit a flow, which runs until its sources end or `stop_flow` stops it.

        Parameters
        ----------
        flow : str or mapping
            Name of a flow of the server (`list_flows`), or a description: the content of a flow file, with names of
            functions, sources and sinks of the server, and inputs as in `submit_graph`.
        key : str
            Idempotency key: submitting with the same key returns the same job [default: a random key].
        **more
            ``workers`` (processes, or a mapping with numbers for operators), ``delivery`` ("exactly-once" or
            "at-least-once"), ``replication`` (workers that may fail at once), ``checkpoint_s`` (seconds between
            checkpoints), ``memory_mb`` (limit of all processes together), ``resume_from`` (ID of an ended flow job),
            and ``deadline_s``, ``budget``, ``labels`` and ``max_attempts`` as in `submit_graph`.

        Returns
        -------
        Job
            The submitted job.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        TypeError
            If a keyword argument is unknown.
        ServiceError
            If the server rejects the job or cannot be reached.
        """
        return await self.submit(requests.flow_spec(flow, more), key)

    async def list_flows(self) -> dict[str, tuple[str, ...]]:
        """Return the flow files of the server by name, with what each exports for descriptions.

        Returns
        -------
        dict of str to tuple of str
            Exports as ``name:export``.

        Raises
        ------
        ServiceError
            If the server cannot be reached.
        """
        found = await self._call(self.flows.ListFlows, flows_pb2.ListFlowsRequest())
        return {one.name: tuple(one.exports) for one in found.flows}

    async def flow_metrics(self, job: str) -> dict[str, Any]:
        """Return the last metrics of a flow job.

        Parameters
        ----------
        job : str
            Job id.

        Returns
        -------
        dict
            ``metrics`` (as ``goffish stream top --json`` prints them; ``None`` before the flow has started),
            ``version`` of the flow, ``updating`` (whether an update is in progress), and ``updates`` (reports).

        Raises
        ------
        ServiceError
            If there is no such job, it is not a flow job, or the server cannot be reached.
        """
        found = await self._call(self.flows.GetFlowMetrics, requests.of_job(flows_pb2.GetFlowMetricsRequest(), job))
        metrics = json.loads(found.metrics) if found.metrics else None
        updates = json.loads(found.updates)
        return {"metrics": metrics, "version": found.version, "updating": found.updating, "updates": updates}

    async def stop_flow(self, job: str) -> None:
        """Stop a flow after a last checkpoint, from which another job can resume; `wait` waits for its end.

        Parameters
        ----------
        job : str
            Job id.

        Raises
        ------
        ServiceError
            If the flow does not run, belongs to another client, or the server cannot be reached.
        """
        await self._call(self.flows.StopFlow, requests.of_job(flows_pb2.StopFlowRequest(), job), usual_s=CHANGE_S)

    async def update_flow(
        self, job: str, flow: str | Mapping[str, Any], *, strategy: str | None = None, partial_windows: str = "emit",
        dry_run: bool = False, require: Iterable[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Begin to replace a flow by another version of it; `watch` returns an event when the update has ended.

        Parameters
        ----------
        job : str
            Job id.
        flow : str or mapping
            The new version, as in `submit_flow`.
        strategy : {"mvc", "pvc", "hti", "nch", "ncl"}, optional
            What happens to records in flight [default: "mvc", or what `require` recommends].
        partial_windows : {"emit", "drop", "merge"}
            What becomes of open windows that depend on the change [default: "emit"].
        dry_run : bool
            Return the plan only [default: False].
        require : iterable of {"no-loss", "no-mixing", "lowest-latency"}
            What the update must keep or have [default: nothing].

        Returns
        -------
        dict
            What changes, as ``goffish stream update --dry-run --json`` prints it.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the flow cannot be updated in this way, belongs to another client, or the server cannot be reached.
        """
        given = requests.flow_fields(flow)
        asked = requests.of_job(
            flows_pb2.UpdateFlowRequest(), job, **given, strategy=strategy, partial_windows=partial_windows,
            dry_run=dry_run, require=require,
        )  # fmt: skip
        plan: dict[str, Any] = json.loads((await self._call(self.flows.UpdateFlow, asked, usual_s=CHANGE_S)).plan)
        return plan

    async def scale_flow(self, job: str, workers: int | Mapping[str, int]) -> None:
        """Begin to run a flow on another number of workers; `watch` returns an event when they have joined or left.

        Parameters
        ----------
        job : str
            Job id.
        workers : int or mapping of str to int
            Of the flow, or of operators with separate workers.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the number is not accepted, the flow belongs to another client, or the server cannot be reached.
        """
        asked = requests.of_job(flows_pb2.ScaleFlowRequest(), job, **requests.worker_fields(workers))
        await self._call(self.flows.ScaleFlow, asked, usual_s=CHANGE_S)

    async def switch_alternate(self, job: str, operator: str, alternate: str) -> None:
        """Switch an operator of a flow to an alternate before its next batch.

        Parameters
        ----------
        job : str
            Job id.
        operator, alternate : str
            ``"main"`` is the function itself.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If there is no such alternate, the flow belongs to another client, or the server cannot be reached.
        """
        asked = requests.of_job(flows_pb2.SwitchAlternateRequest(), job, operator=operator, alternate=alternate)
        await self._call(self.flows.SwitchAlternate, asked, usual_s=CHANGE_S)

    async def list(
        self, *states: str, labels: Mapping[str, str] | None = None, algorithm: str = "", client: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[jobs_pb2.Job]:  # fmt: skip
        """Iterate over jobs, the newest first; pages are requested as needed.

        Parameters
        ----------
        *states : str
            Return only jobs in one of these states, such as ``"running"`` [default: all].
        labels : mapping of str to str, optional
            Return only jobs with all these labels.
        algorithm : str
            Return only jobs of this algorithm [default: all].
        client : str
            Return only jobs of this client [default: all].
        page_size : int
            Jobs per request [default: 100].

        Yields
        ------
        Job
            One job after the other.

        Raises
        ------
        InputError
            If a state is unknown or an argument has the wrong type.
        ServiceError
            If the server rejects the call or cannot be reached.
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
        """Request the cancellation of a job.

        Parameters
        ----------
        job : str
            Job id.

        Returns
        -------
        Job
            The job; it may still be running.

        Raises
        ------
        ServiceError
            If there is no such job or the server cannot be reached.
        """
        found: jobs_pb2.Job = (await self._call(self.jobs.Cancel, requests.of_job(jobs_pb2.CancelRequest(), job))).job
        return found

    async def watch(self, job: str, after: int = 0) -> AsyncIterator[jobs_pb2.Event]:
        """Iterate over the events of a job until it ends, each once.

        If the server becomes unreachable, the client reconnects for up to `patience_s` seconds.

        Parameters
        ----------
        job : str
            Job id.
        after : int
            Number of the last event to skip [default: 0, from the first].

        Yields
        ------
        Event
            One event after the other.

        Raises
        ------
        ServiceError
            If there is no such job or the server stays unreachable.
        """
        asked = requests.of_job(jobs_pb2.WatchRequest(), job, after=after)
        async with contextlib.aclosing(self._resumed(self.jobs.Watch, asked)) as answers:
            async for answer in answers:
                asked.after = answer.event.number
                yield answer.event

    async def wait(self, job: str) -> jobs_pb2.Job:
        """Wait until a job ends.

        Parameters
        ----------
        job : str
            Job id.

        Returns
        -------
        Job
            The job in its final state.

        Raises
        ------
        ServiceError
            If there is no such job or the server stays unreachable.
        """
        async for _ in self.watch(job):
            pass
        return await self._patiently(job)

    async def log(self, job: str, max_bytes: int = 0, *, most_bytes: int | None = None) -> str:
        """Return the end of the log of a job.

        Parameters
        ----------
        job : str
            Job id.
        max_bytes : int
            Maximum number of bytes [default: the limit of the server].
        most_bytes : int, optional
            Deprecated spelling of `max_bytes`.

        Returns
        -------
        str
            The last lines.

        Raises
        ------
        ServiceError
            If there is no such job or the server cannot be reached.
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
            Name of a dataflow on the server, or a definition (`goffish.client.dataflow` reads one from a file).
        cloud : str or Catalogue, optional
            Name of a catalogue of machine types on the server, or a definition (`goffish.client.catalogue`) [default:
            the catalogue of the server].
        policy : str
            Scheduler policy [default: the policy of the server].
        options : mapping of str to value, optional
            Options of the policy.
        rates : mapping of str to float, optional
            Messages per second of each processing element [default: those of the dataflow].

        Returns
        -------
        Plan
            Machines, instances and expected metrics.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the server rejects the call or cannot be reached.
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
        dataflow : str or Dataflow
            As in `plan`.
        observations : Observations
            Observed rates and metrics, and the current deployment.
        cloud : str or Catalogue, optional
            As in `plan`.
        policy : str
            As in `plan`.
        options : mapping of str to value, optional
            As in `plan`.
        session : str
            Key of the state that the policy keeps between calls [default: no state].

        Returns
        -------
        AdaptResponse
            The new deployment.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the server rejects the call or cannot be reached.
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
        """Compute the deployment of the next interval from observations and forecasts.

        Parameters
        ----------
        dataflow : str or Dataflow
            As in `plan`.
        observations : Observations
            As in `adapt`.
        forecast : iterable of Interval
            Forecasts of the coming intervals, the next one first.
        cloud : str or Catalogue, optional
            As in `plan`.
        policy : str
            As in `plan`.
        options : mapping of str to value, optional
            As in `plan`.
        session : str
            As in `adapt`.

        Returns
        -------
        PlanAheadResponse
            The new deployment.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the server rejects the call or cannot be reached.
        """
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(
            planning_pb2.PlanAheadRequest(setting=which), observations=observations, forecast=forecast, session=session
        )
        answer: planning_pb2.PlanAheadResponse = await self._call(self.planning.PlanAhead, asked, PLAN_S)
        return answer

    async def advise_spot(
        self, core_hours: float, hours: float, market: str, prices: Mapping[str, float] | None = None,
        running: planning_pb2.RunningJob | None = None, available: Mapping[str, bool] | None = None,
    ) -> planning_pb2.AdviseSpotResponse:  # fmt: skip
        """Recommend the next action of a job on spot machines.

        Parameters
        ----------
        core_hours : float
            Remaining work in core hours.
        hours : float
            Hours until the deadline.
        market : str
            Name of a spot market; see `markets`.
        prices : mapping of str to float, optional
            Current spot price of each machine type.
        running : RunningJob, optional
            Machines and checkpoints of the job, if it is running.
        available : mapping of str to bool, optional
            Whether each machine type is available now.

        Returns
        -------
        AdviseSpotResponse
            The recommended action.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the server rejects the call or cannot be reached.
        """
        asked = requests.filled(
            planning_pb2.AdviseSpotRequest(), core_hours=core_hours, hours=hours, market=market, prices=prices,
            running=running, available=available,
        )  # fmt: skip
        answer: planning_pb2.AdviseSpotResponse = await self._call(self.planning.AdviseSpot, asked, PLAN_S)
        return answer

    async def explain(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
        policies: Iterable[str] = (),
    ) -> planning_pb2.ExplainResponse:  # fmt: skip
        """Explain a deployment and compare its cost with those of other policies.

        Parameters
        ----------
        dataflow : str or Dataflow
            As in `plan`.
        cloud : str or Catalogue, optional
            As in `plan`.
        policy : str
            As in `plan`.
        options : mapping of str to value, optional
            As in `plan`.
        rates : mapping of str to float, optional
            As in `plan`.
        policies : iterable of str
            Policies to compare with [default: those that the server chooses].

        Returns
        -------
        ExplainResponse
            The deployment, its reasons and the alternatives.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the server rejects the call or cannot be reached.
        """
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(planning_pb2.ExplainRequest(setting=which), rates=rates, policies=policies)
        answer: planning_pb2.ExplainResponse = await self._call(self.planning.Explain, asked)
        return answer

    async def catalogues(self) -> dict[str, dataflows_pb2.Catalogue]:
        """Return the catalogues of machine types on the server.

        Returns
        -------
        dict of str to Catalogue
            Catalogues by name.

        Raises
        ------
        ServiceError
            If the server cannot be reached.
        """
        answer = await self._call(self.catalog.ListCatalogues, catalog_pb2.ListCataloguesRequest())
        return {one.name: one.catalogue for one in answer.catalogues}

    async def prices(
        self, trace: str, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[catalog_pb2.Price, ...]:
        """Return the spot prices of a trace over time.

        Parameters
        ----------
        trace : str
            Name of the trace (`prices` of a machine type).
        since, until : datetime, optional
            Time range; times without a zone are UTC [default: the whole trace].

        Returns
        -------
        tuple of Price
            Prices in the order of time.

        Raises
        ------
        InputError
            If an argument has the wrong type.
        ServiceError
            If the trace is unknown or the server cannot be reached.
        """
        return tuple((await self._call(self.catalog.GetPrices, requests.prices(trace, since, until))).prices)

    async def markets(self) -> tuple[catalog_pb2.Market, ...]:
        """Return the spot markets that the operator has fitted.

        Returns
        -------
        tuple of Market
            The markets.

        Raises
        ------
        ServiceError
            If the server cannot be reached.
        """
        return tuple((await self._call(self.catalog.ListMarkets, catalog_pb2.ListMarketsRequest())).markets)

    async def dataflows(self) -> dict[str, dataflows_pb2.Dataflow]:
        """Return the dataflows on the server.

        Returns
        -------
        dict of str to Dataflow
            Dataflows by name.

        Raises
        ------
        ServiceError
            If the server cannot be reached.
        """
        answer = await self._call(self.catalog.ListDataflows, catalog_pb2.ListDataflowsRequest())
        return dict(zip(answer.names, answer.dataflows, strict=True))

    async def policies(self) -> tuple[catalog_pb2.PolicyInfo, ...]:
        """Return the scheduler policies, with JSON schemas of their options.

        Returns
        -------
        tuple of PolicyInfo
            The policies.

        Raises
        ------
        ServiceError
            If the server cannot be reached.
        """
        return tuple((await self._call(self.catalog.ListPolicies, catalog_pb2.ListPoliciesRequest())).policies)

    async def algorithms(self) -> tuple[catalog_pb2.AlgorithmInfo, ...]:
        """Return the algorithms of graph jobs, with JSON schemas of their options.

        Returns
        -------
        tuple of AlgorithmInfo
            The algorithms.

        Raises
        ------
        ServiceError
            If the server cannot be reached.
        """
        return tuple((await self._call(self.catalog.ListAlgorithms, catalog_pb2.ListAlgorithmsRequest())).algorithms)

    async def push_records(self, records: Any) -> int:
        """Push records of changes to a live graph, in requests that are applied one after the other.

        Parameters
        ----------
        records : table or iterable of mappings
            As of `goffish.stream.LiveGraph.feed`. Give them a ``stream`` and a ``seq`` if they may be sent again.

        Returns
        -------
        int
            Number of records that the server took; they are in its log if it has one.

        Raises
        ------
        ServiceError
            If a request is not accepted or the server cannot be reached. Earlier requests stay applied.
        """
        count = 0
        call = self.records.PushRecords(requests.of_records(records), metadata=self.metadata)
        try:
            async for answer in call:
                count += answer.records
        except grpc.RpcError as error:
            raise service_error(error) from None
        self._answered = True
        return count

    async def submit_queries(self, text: str, parameters: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Register continuous queries on a live graph, all of them or none.

        Parameters
        ----------
        text : str
            In CGQL, or a pattern of openCypher.
        parameters : mapping, optional
            Values of parameters: numbers, texts, true and false.

        Returns
        -------
        tuple of str
            The topics.

        Raises
        ------
        ServiceError
            If the text is not accepted or the server cannot be reached.
        """
        asked = graphs_pb2.SubmitQueriesRequest(text=text, parameters=json.dumps(dict(parameters or {})))
        return tuple((await self._call(self.graphs.SubmitQueries, asked)).topics)

    async def cancel_query(self, topic: str) -> None:
        """End a query of a live graph; its events remain.

        Parameters
        ----------
        topic : str

        Raises
        ------
        ServiceError
            If no such query runs or the server cannot be reached.
        """
        await self._call(self.graphs.CancelQuery, graphs_pb2.CancelQueryRequest(topic=topic))

    async def topics(self) -> graphs_pb2.ListTopicsResponse:
        """Return the topics of a live graph, with their queries and events, and numbers of records.

        Returns
        -------
        ListTopicsResponse
            ``topics`` and ``records``.

        Raises
        ------
        ServiceError
            If the server cannot be reached.
        """
        found: graphs_pb2.ListTopicsResponse = await self._call(self.graphs.ListTopics, graphs_pb2.ListTopicsRequest())
        return found

    async def answers(self, topic: str) -> pa.Table:
        """Return the current answers of a query of a live graph.

        Parameters
        ----------
        topic : str

        Returns
        -------
        pyarrow.Table
            The columns of the key and of the value.

        Raises
        ------
        ServiceError
            If there is no such topic or the server cannot be reached.
        """
        call = self.graphs.GetAnswers(graphs_pb2.GetAnswersRequest(topic=topic), metadata=self.metadata)
        try:
            parts = [answer.data async for answer in call]
        except grpc.RpcError as error:
            raise service_error(error) from None
        return requests.table_of(b"".join(parts))

    async def subscribe(self, topic: str, after: int = 0, *, existing_only: bool = False) -> AsyncIterator[pa.Table]:
        """Iterate over the events of a topic of a live graph, and reconnect while its server is unreachable.

        Parameters
        ----------
        topic : str
        after : int
            Number of the first event: 0, or one more than the last ``offset`` that was received.
        existing_only : bool
            End after the events that there are, instead of waiting for others.

        Yields
        ------
        pyarrow.Table
            Events, as of `goffish.stream.LiveGraph.events`, each of them once.

        Raises
        ------
        ServiceError
            If there is no such topic, its events are not kept any more, or the server stays unreachable.
        """
        asked = graphs_pb2.SubscribeRequest(topic=topic, after=after, existing_only=existing_only)
        end = None
        while True:
            stream = self.graphs.Subscribe(asked, metadata=self.metadata)
            try:
                async for answer in stream:
                    self._answered, end = True, None
                    asked.after = answer.next
                    yield requests.table_of(answer.events)
                return
            except grpc.RpcError as error:
                end = self._until(service_error(error), end)
            finally:
                stream.cancel()
            await asyncio.sleep(PAUSE_S)

    async def _call(self, method: Callable[..., Any], request: Any, usual_s: float | None = CALL_S) -> Any:
        try:
            answer = await method(request, metadata=self.metadata, timeout=self._limit(usual_s))
        except grpc.RpcError as error:
            raise service_error(error) from None
        self._answered = True
        return answer

    async def _patiently(self, job: str) -> jobs_pb2.Job:
        """Return the job; retry while a server that has answered before is unreachable."""
        end = None
        while True:
            try:
                return await self.job(job)
            except ServiceError as error:
                end = self._until(error, end)
            await asyncio.sleep(PAUSE_S)

    async def _resumed(self, method: Callable[..., Any], asked: Any) -> AsyncGenerator[Any, None]:
        """Yield the responses of a stream; reconnect with `asked`, as the caller updated it, when the stream breaks."""
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
        """Yield the bytes of a result, all of them."""
        asked, total = requests.of_job(jobs_pb2.FetchResultRequest(), job), 0
        async with contextlib.aclosing(self._resumed(self.jobs.FetchResult, asked)) as answers:
            async for answer in answers:
                asked.offset += len(answer.data)
                total = answer.total_bytes
                yield answer.data
        check_whole(job, asked.offset, total)
