"""The client that waits for answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

import pyarrow as pa

from goffish.client import requests
from goffish.client.calls import PLAN_S, Calls
from goffish.client.requests import DataflowOptions, GraphOptions
from goffish.client.results import read_batches, result_file
from goffish.v1 import catalog_pb2, dataflows_pb2, jobs_pb2, planning_pb2


class Client(Calls):
    """Calls a server and waits for its answers. A context manager.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` or ``unix:PATH``.
    token : str, optional
    authority, tls, certificate, key
        See `goffish.client.channels.Access`.
    timeout_s : float, optional
        Of each call that is no stream; without it 30 s, and 330 s for calls that plan.
    patience_s : float
        For how long `watch`, `wait` and the results of jobs go on without a server that has answered before, from the
        moment on when it was away until it answers again.

    Attributes
    ----------
    jobs, planning, catalog
        The stubs of the protocol; give them ``metadata=client.metadata``.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def submit_graph(
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
        return self.submit(requests.graph_spec(algorithm, input_uri, options, runner, more), key)

    def submit_dataflow(
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
        return self.submit(requests.dataflow_spec(dataflow, options, more), key)

    def list(
        self, *states: str, labels: Mapping[str, str] | None = None, algorithm: str = "", client: str = "",
        page_size: int = 100,
    ) -> Iterator[jobs_pb2.Job]:  # fmt: skip
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
            page = self._call(self.jobs.List, asked)
            yield from page.jobs
            if not page.next_page_token:
                return
            asked.page_token = page.next_page_token

    def cancel(self, job: str) -> jobs_pb2.Job:
        """Ask a job to stop."""
        found: jobs_pb2.Job = self._call(self.jobs.Cancel, requests.of_job(jobs_pb2.CancelRequest(), job)).job
        return found

    def watch(self, job: str, after: int = 0) -> Iterator[jobs_pb2.Event]:
        """Events of a job until it is over, each once, also while the server is away for a time (`patience_s`)."""
        asked = requests.of_job(jobs_pb2.WatchRequest(), job, after=after)
        for answer in self._resumed(self.jobs.Watch, asked):
            asked.after = answer.event.number
            yield answer.event

    def wait(self, job: str) -> jobs_pb2.Job:
        """The job when it is over."""
        for _ in self.watch(job):
            pass
        return self._patiently(job)

    def result(self, job: str) -> pa.Table:
        """The table of a job that is done."""
        return read_batches(self._pieces(job)).read_all()

    def result_batches(self, job: str) -> Iterator[pa.RecordBatch]:
        """The table of a job that is done, piece by piece, without all of it being held."""
        yield from read_batches(self._pieces(job))

    def save_result(self, job: str, path: str | Path) -> Path:
        """Write the table of a job that is done to a file, as an Arrow IPC stream, without holding it.

        The file appears whole or not at all; ``pyarrow.ipc.open_stream`` reads it.
        """
        with result_file(path) as file:
            for piece in self._pieces(job):
                file.write(piece)
        return Path(path)

    def log(self, job: str, most_bytes: int = 0) -> str:
        """The end of a job's log."""
        text: str = self._call(self.jobs.Log, requests.of_job(jobs_pb2.LogRequest(), job, bytes=most_bytes)).text
        return text

    def upload(self, path: str | Path) -> str:
        """Bring a file to the server; gives its URI."""
        uri: str = self._call(self.jobs.Upload, requests.upload(path), usual_s=None).uri
        return uri

    def plan(
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
        plan: dataflows_pb2.Plan = self._call(self.planning.Plan, asked, PLAN_S).plan
        return plan

    def adapt(
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
        answer: planning_pb2.AdaptResponse = self._call(self.planning.Adapt, asked, PLAN_S)
        return answer

    def plan_ahead(
        self, dataflow: str | dataflows_pb2.Dataflow, observations: planning_pb2.Observations,
        forecast: Iterable[planning_pb2.Interval], cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, session: str = "",
    ) -> planning_pb2.PlanAheadResponse:  # fmt: skip
        """The same with forecasts of the intervals that come, the next one first."""
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(
            planning_pb2.PlanAheadRequest(setting=which), observations=observations, forecast=forecast, session=session
        )
        answer: planning_pb2.PlanAheadResponse = self._call(self.planning.PlanAhead, asked, PLAN_S)
        return answer

    def advise_spot(
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
        answer: planning_pb2.AdviseSpotResponse = self._call(self.planning.AdviseSpot, asked, PLAN_S)
        return answer

    def explain(
        self, dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None = None,
        policy: str = "", options: Mapping[str, Any] | None = None, rates: Mapping[str, float] | None = None,
        policies: Iterable[str] = (),
    ) -> planning_pb2.ExplainResponse:  # fmt: skip
        """A plan, why it is so, and what others would cost."""
        which = requests.setting(dataflow, cloud, policy, options)
        asked = requests.filled(planning_pb2.ExplainRequest(setting=which), rates=rates, policies=policies)
        answer: planning_pb2.ExplainResponse = self._call(self.planning.Explain, asked)
        return answer

    def catalogues(self) -> dict[str, dataflows_pb2.Catalogue]:
        """Machine classes that the server knows, by the names of their catalogues."""
        answer = self._call(self.catalog.ListCatalogues, catalog_pb2.ListCataloguesRequest())
        return {one.name: one.catalogue for one in answer.catalogues}

    def prices(
        self, trace: str, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[catalog_pb2.Price, ...]:
        """Spot prices of a trace (`MachineClass.prices`) over time; a time without a zone is UTC."""
        return tuple(self._call(self.catalog.GetPrices, requests.prices(trace, since, until)).prices)

    def markets(self) -> tuple[catalog_pb2.Market, ...]:
        """Spot markets that the operator has fitted."""
        return tuple(self._call(self.catalog.ListMarkets, catalog_pb2.ListMarketsRequest()).markets)

    def dataflows(self) -> dict[str, dataflows_pb2.Dataflow]:
        """Dataflows that the server knows, by their names."""
        answer = self._call(self.catalog.ListDataflows, catalog_pb2.ListDataflowsRequest())
        return dict(zip(answer.names, answer.dataflows, strict=True))

    def policies(self) -> tuple[catalog_pb2.PolicyInfo, ...]:
        """Policies, with JSON schemas of their options."""
        return tuple(self._call(self.catalog.ListPolicies, catalog_pb2.ListPoliciesRequest()).policies)

    def algorithms(self) -> tuple[catalog_pb2.AlgorithmInfo, ...]:
        """Algorithms of graph jobs, with JSON schemas of their options."""
        return tuple(self._call(self.catalog.ListAlgorithms, catalog_pb2.ListAlgorithmsRequest()).algorithms)
