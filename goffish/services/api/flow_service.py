"""gRPC service of running flow jobs: `goffish.v1.FlowService`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import grpc

from goffish.errors import InputError
from goffish.services.api.admission import check_flow, check_workers
from goffish.services.api.calls import FairThreads, elsewhere
from goffish.services.api.guard import Refused, caller
from goffish.services.api.inputs import Inputs
from goffish.services.api.job_service import check_here, own_job
from goffish.services.runners.flow_folder import FlowFolder, Versions
from goffish.services.runners.flows import add_version
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import JobLimits
from goffish.services.runners.supervisor import Supervisor
from goffish.services.store.records import Job, State
from goffish.services.store.spec import FlowJob
from goffish.services.store.store import Jobs
from goffish.streaming.control import of_process
from goffish.streaming.updates.bounds import Requirement, requirement_of
from goffish.streaming.updates.versions import partial_window_of, strategy_of
from goffish.v1 import flows_pb2, flows_pb2_grpc

_log = logging.getLogger(__name__)
#: Threads that wait for flows, in total and per client.
_THREADS, _THREADS_EACH = 8, 2
#: Seconds that a flow has for an answer: it may run the file of a new version first.
_ANSWERS_S = 20.0
_LONGEST = 200
#: Characters that separate operators and numbers in a request to a flow are not part of names.
_OPERATOR = re.compile(r"[^=,]+")


class FlowService(flows_pb2_grpc.FlowServiceServicer):  # type: ignore[misc, unused-ignore]
    """Observe and change running flow jobs.

    Parameters
    ----------
    jobs : Jobs
    supervisor : Supervisor
    inputs : Inputs
    flows : FlowFolder or None
        Flows that clients may run.
    limits : JobLimits
    """

    def __init__(
        self, jobs: Jobs, supervisor: Supervisor, inputs: Inputs, flows: FlowFolder | None, limits: JobLimits
    ) -> None:
        self._jobs, self._supervisor, self._inputs = jobs, supervisor, inputs
        self._flows, self._limits = flows, limits
        self._threads = FairThreads(_THREADS, _THREADS_EACH, "flow")
        #: Jobs that a call is changing.
        self._changing: set[str] = set()

    async def ListFlows(self, request: Any, context: Any) -> flows_pb2.ListFlowsResponse:
        """Return the flows of the server."""
        return await elsewhere(self._list)

    def _list(self) -> flows_pb2.ListFlowsResponse:
        made = flows_pb2.ListFlowsResponse()
        if self._flows is not None:
            for name in self._flows.files:
                try:
                    exports = self._flows.exports(name)
                except InputError as error:  # one file must not hide the others
                    _log.warning("%s", error)
                    exports = []
                made.flows.add(name=name, exports=[f"{name}:{one}" for one in exports])
        return made

    async def GetFlowMetrics(
        self, request: flows_pb2.GetFlowMetricsRequest, context: Any
    ) -> flows_pb2.GetFlowMetricsResponse:
        """Return the last metrics of a flow job."""
        job = _flow_job(await elsewhere(self._jobs.get, request.id))
        check_here(self._jobs, job)
        report = await elsewhere(lambda: self._supervisor.folder(job.id).progress)
        return flows_pb2.GetFlowMetricsResponse(
            metrics=json.dumps(report["metrics"]) if report else "", version=report.get("version", 0),
            updating=report.get("updating", False), updates=json.dumps(report.get("updates", [])),
        )  # fmt: skip

    async def StopFlow(self, request: flows_pb2.StopFlowRequest, context: Any) -> flows_pb2.StopFlowResponse:
        """Stop a flow after a savepoint."""
        job, by = await self._own(request.id), caller.get().name

        def stop() -> None:
            folder = self._supervisor.folder(job.id)
            if not folder.wishes.get("stop"):
                folder.wish(stop=True)
                self._jobs.note(job, "stop", f"stop with a savepoint requested by {by}")
            try:
                self._ask(job, "stop")
            except Refused as error:
                _log.info("%s", error)  # a worker that starts now, or again, reads the wish

        await self._change(job, stop)
        return flows_pb2.StopFlowResponse()

    async def UpdateFlow(self, request: flows_pb2.UpdateFlowRequest, context: Any) -> flows_pb2.UpdateFlowResponse:
        """Begin to update a flow."""
        for field in ("strategy", "partial_windows", "flow_name"):
            if len(getattr(request, field)) > _LONGEST:
                raise InputError(f"{field}: at most {_LONGEST} characters are accepted")
        chosen = str(strategy_of(request.strategy)) if request.strategy else ""
        if len(request.require) > len(Requirement):
            raise InputError(f"require: at most {len(Requirement)} requirements are accepted")
        require = ",".join(requirement_of(one) for one in request.require)
        windows = str(partial_window_of(request.partial_windows or "emit"))
        job, by = await self._own(request.id), caller.get().name
        known = job.spec.flow
        assert known is not None
        names = {"flow_name": "flow", "flow_definition": "definition"}
        kind = request.WhichOneof("flow")
        if kind is None:
            raise InputError("flow_name: give the name or the description of the new version")
        text = getattr(request, kind)
        most = 64 << 10
        if not 0 < len(text) <= most:
            raise InputError(f"{kind}: {len(text):,} characters; 1 to {most:,} are accepted")
        flow = FlowJob.model_validate({names[kind]: text, "workers": known.workers})

        def update() -> str:
            flows = check_flow(flow, "", self._inputs, self._flows)
            folder = self._supervisor.folder(job.id)
            versions, before = Versions(folder.path), int(folder.wishes.get("version", 0))
            # Numbers of refused versions are not used again: the worker may have loaded them.
            number, begun = int(folder.wishes.get("last", 0)) + 1, False
            folder.wish(last=number)
            given = {"file": str(number), "partial_windows": windows}
            add_version(folder, number, flows, flow, self._inputs.resolve)
            try:
                if (self._ask(job, "updates") or {}).get("updating"):
                    raise InputError(f"job {job.id}: an update is in progress; wait until it is complete")
                bounds: dict[str, Any] = {}
                if request.dry_run or require:
                    bounds = self._ask(job, "predict", **given, require=require) or {}
                strategy = chosen or bounds.get("recommended") or "mvc"
                plan = self._ask(job, "plan", **given, strategy=strategy)
                if request.dry_run:
                    plan |= bounds
                else:
                    folder.wish(version=number)
                    self._ask(job, "update", **given, strategy=strategy)
                    begun = True
            finally:
                if not begun:
                    folder.wish(version=before)
                    versions.remove(number)
            if begun:
                what = flow.flow or "a description"
                details = {"version": number, "strategy": strategy, "partial_windows": windows}
                self._jobs.note(job, "update", f"update to version {number}, {what}, requested by {by}", details)
            return json.dumps(plan)

        return flows_pb2.UpdateFlowResponse(plan=await self._change(job, update))

    async def ScaleFlow(self, request: flows_pb2.ScaleFlowRequest, context: Any) -> flows_pb2.ScaleFlowResponse:
        """Begin to run a flow on another number of workers."""
        given = dict(request.operator_workers)
        if bool(given) == bool(request.workers):
            raise InputError("workers: give either workers or operator_workers, more than 0")
        check_workers(sum(given.values()) + 1 if given else request.workers, "workers", self._limits)
        if any(len(name) > _LONGEST or not _OPERATOR.fullmatch(name) for name in given):
            raise InputError("operator_workers: the names must be those of operators")
        job, by = await self._own(request.id), caller.get().name

        def scale() -> None:
            text = ",".join(f"{name}={number}" for name, number in given.items()) or str(request.workers)
            self._ask(job, "scale", workers=text)
            folder, known = self._supervisor.folder(job.id), job.spec.flow
            assert known is not None
            wished: Any = request.workers
            if given:
                wished = folder.wishes.get("workers", known.operator_workers) | given
            folder.wish(workers=wished)
            self._jobs.note(job, "scale", f"{text} workers requested by {by}", {"workers": wished})

        await self._change(job, scale)
        return flows_pb2.ScaleFlowResponse()

    async def SwitchAlternate(
        self, request: flows_pb2.SwitchAlternateRequest, context: Any
    ) -> flows_pb2.SwitchAlternateResponse:
        """Switch an operator to an alternate."""
        given = {"operator": request.operator, "alternate": request.alternate}
        for field, text in given.items():
            if not 0 < len(text) <= _LONGEST:
                raise InputError(f"{field}: 1 to {_LONGEST} characters are accepted")
        job, by = await self._own(request.id), caller.get().name

        def switch() -> None:
            self._ask(job, "switch", **given)
            folder = self._supervisor.folder(job.id)
            folder.wish(alternates=folder.wishes.get("alternates", {}) | {request.operator: request.alternate})
            self._jobs.note(job, "switch", f"{request.operator} uses {request.alternate}, requested by {by}", given)

        await self._change(job, switch)
        return flows_pb2.SwitchAlternateResponse()

    async def _own(self, name: str) -> Job:
        """Return a running flow job of this server that the caller may change."""
        job = _flow_job(await own_job(self._jobs, name))
        check_here(self._jobs, job)
        if job.state != State.RUNNING:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"job {job.id} is {job.state}; its flow is not running")
        return job

    async def _change(self, job: Job, change: Any) -> Any:
        with self._alone(job):
            return await elsewhere(change, threads=self._threads)

    @contextmanager
    def _alone(self, job: Job) -> Iterator[None]:
        """Let one call at a time change a job; others would wait for flows with all threads."""
        if job.id in self._changing:
            raise Refused(grpc.StatusCode.ABORTED, f"job {job.id}: another call is changing it; retry later")
        self._changing.add(job.id)
        try:
            yield
        finally:
            self._changing.discard(job.id)

    def _ask(self, job: Job, request: str, **arguments: str) -> Any:
        """Return the answer of a flow to a request."""
        folder: JobFolder = self._supervisor.folder(job.id)
        session = folder.session if folder.busy else None
        flow = None if session is None else of_process(session)
        if flow is None:
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"job {job.id}: its flow is starting or ending; retry later")
        with closing(flow):
            flow.answers_s = _ANSWERS_S
            answer = flow.ask(request, **arguments)
            if flow.ended is not None:
                raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"job {job.id}: its flow has ended")
        return answer


def _flow_job(job: Job) -> Job:
    if job.spec.flow is None:
        raise InputError(f"id: job {job.id} is not a flow job")
    return job
