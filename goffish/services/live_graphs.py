"""Server of a live graph: records, queries and events over gRPC."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from goffish.errors import InputError, JobError
from goffish.services.api.clients import Clients, follow, read_clients
from goffish.services.api.guard import Code, Guard, Refused
from goffish.services.api.limits import Limits
from goffish.services.api.settings import Settings
from goffish.services.api.telemetry import Metrics
from goffish.services.app import Symbols, bind, server_options
from goffish.streaming import journal
from goffish.streaming.graphs.live import LiveGraph
from goffish.v1 import graphs_pb2, graphs_pb2_grpc, records_pb2, records_pb2_grpc

_SERVICES = (
    graphs_pb2.DESCRIPTOR.services_by_name["LiveGraphService"].full_name,
    records_pb2.DESCRIPTOR.services_by_name["RecordService"].full_name,
)
#: Events of a message, its bytes, and messages that are kept for subscribers who need the same.
_EVENTS, _BYTES, _MESSAGES = 1000, 256 << 10, 64
#: Bytes of a part of answers.
_PART = 1 << 20
_READERS = 4
#: Seconds between two looks at whether the live graph or a delivery has failed.
_LOOK_S = 0.5
_READ: dict[str, Callable[[bytes], Any]] = {"json_lines": journal.read_lines, "arrow_stream": journal.read_arrow}


@dataclass(frozen=True)
class Bounds:
    """What clients may do.

    Attributes
    ----------
    queries : int
        Queries that run at the same time.
    text : int
        Bytes of the text of queries.
    """

    queries: int = 1000
    text: int = 65_536


class LiveGraphServer:
    """Server of a live graph.

    Parameters
    ----------
    live : LiveGraph
        Used by the server alone until it has ended.
    settings : Settings
        Address, encryption, clients and limits of calls.
    bounds : Bounds
    """

    def __init__(self, live: LiveGraph, settings: Settings, bounds: Bounds) -> None:
        self._settings, self._service = settings, _Service(live, bounds)
        self._health = health.aio.HealthServicer()
        self.port = 0

    async def run(self, ready: Callable[[str], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT.

        Parameters
        ----------
        ready : callable, optional
            Called with the address once the server accepts calls.

        Raises
        ------
        InputError, JobError
            The address cannot be bound, a file cannot be read, or the live graph or a delivery has failed.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        clients = Clients(None if settings.clients is None else read_clients(settings.clients))
        limits = Limits(settings.rate, settings.burst, settings.max_calls, streams=settings.max_streams)
        server = grpc.aio.server(interceptors=[Guard(clients, limits, Metrics())], options=server_options(settings))
        graphs_pb2_grpc.add_LiveGraphServiceServicer_to_server(self._service, server)  # type: ignore[no-untyped-call]
        records_pb2_grpc.add_RecordServiceServicer_to_server(self._service, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        described = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(described, server, pool=Symbols())
        self.port = bind(server, settings)
        self._service.follow_deadlines(loop)
        stopped = asyncio.Event()
        for kind in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(kind, stopped.set)
        following = None if settings.clients is None else asyncio.create_task(follow(settings.clients, clients))
        await server.start()
        for name in ("", *_SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        if ready is not None:
            host = settings.listen.rpartition(":")[0]
            ready(settings.listen if settings.listen.startswith("unix:") else f"{host}:{self.port}")
        while not stopped.is_set() and not self._service.failure:
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), _LOOK_S)
        await self._health.enter_graceful_shutdown()
        self._service.stop()
        await server.stop(settings.grace_s)
        if following is not None:
            following.cancel()
        self._service.close()
        if self._service.failure:
            raise JobError(self._service.failure)


class _Service:
    """The two services of the protocol."""

    def __init__(self, live: LiveGraph, bounds: Bounds) -> None:
        self._live, self._bounds = live, bounds
        # Records are applied by one thread; it waits for deliveries that are behind, and others can read.
        self._writer = ThreadPoolExecutor(1, "goffish records")
        self._readers = ThreadPoolExecutor(_READERS, "goffish events")
        self._ends = live.ends
        self._changed = asyncio.Event()
        self._stopping = False
        self._messages: OrderedDict[tuple[str, int, int], asyncio.Future[graphs_pb2.SubscribeResponse]] = OrderedDict()

    @property
    def failure(self) -> str:
        """Why the server must end: the live graph, or a delivery, has failed."""
        return self._live.failure

    def stop(self) -> None:
        """End subscriptions."""
        self._stopping = True
        self._changed.set()

    def close(self) -> None:
        """Wait until the last records are applied."""
        self._writer.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)

    async def _write(self, work: Callable[..., Any], *given: Any) -> Any:
        """Change the live graph, also if the client does not wait any more, and wake subscribers."""
        return await asyncio.shield(asyncio.ensure_future(self._written(work, *given)))

    async def _written(self, work: Callable[..., Any], *given: Any) -> Any:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._writer, work, *given)
        finally:
            self._wake(self._live.ends)

    def follow_deadlines(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake subscribers also when queries end by the clock."""
        self._live.after_deadlines(lambda: loop.call_soon_threadsafe(self._wake, self._live.ends))

    def _wake(self, ends: dict[str, int]) -> None:
        self._ends = ends
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _check(self, topic: str) -> None:
        if topic not in self._ends:
            named = ", ".join(list(self._ends)[:20]) or "none"
            raise Refused(Code.NOT_FOUND, f"topic {topic[:100]}: unknown; choose from {named}")

    # Records.

    async def PushRecords(
        self, requests: AsyncIterator[records_pb2.PushRecordsRequest], context: Any
    ) -> AsyncIterator[records_pb2.PushRecordsResponse]:
        """Apply records, and answer requests in their order."""
        async for request in requests:
            kind = request.WhichOneof("records")
            if kind is None:
                raise InputError(f"records: missing; accepted are {', '.join(_READ)}")
            if request.idempotency_key:
                raise InputError("idempotency_key: not with a live graph; give records a stream and a seq instead")
            number = await self._write(self._feed, _READ[kind], getattr(request, kind))
            yield records_pb2.PushRecordsResponse(records=number)

    def _feed(self, read: Callable[[bytes], Any], payload: bytes) -> int:
        try:
            records = read(payload)
        except journal.Refused as error:
            raise InputError(f"records: {error}") from None
        self._live.feed(records)
        return len(records)

    # Queries.

    async def SubmitQueries(
        self, request: graphs_pb2.SubmitQueriesRequest, context: Any
    ) -> graphs_pb2.SubmitQueriesResponse:
        """Register queries."""
        for field in ("text", "parameters"):
            size = len(getattr(request, field).encode())
            if size > self._bounds.text:
                raise InputError(f"{field}: {size:,} bytes; accepted are {self._bounds.text:,} at most (--max-text)")
        try:
            parameters = json.loads(request.parameters or "{}")
        except (ValueError, RecursionError):
            parameters = None
        if not isinstance(parameters, dict):
            raise InputError("parameters: accepted is a JSON object")
        return graphs_pb2.SubmitQueriesResponse(topics=await self._write(self._submit, request.text, parameters))

    def _submit(self, text: str, parameters: dict[str, Any]) -> list[str]:
        most = self._bounds.queries
        if len(self._ends) + text.upper().count("DETECT") > most:
            raise Refused(Code.RESOURCE_EXHAUSTED, f"more than {most:,} queries (--max-queries)")
        return self._live.submit(text, parameters)

    async def CancelQuery(self, request: graphs_pb2.CancelQueryRequest, context: Any) -> graphs_pb2.CancelQueryResponse:
        """End a query."""
        self._check(request.topic)
        await self._write(self._live.cancel, request.topic)
        return graphs_pb2.CancelQueryResponse()

    async def ListTopics(self, request: graphs_pb2.ListTopicsRequest, context: Any) -> graphs_pb2.ListTopicsResponse:
        """Return all topics."""

        def found() -> graphs_pb2.ListTopicsResponse:
            live = self._live
            with live.lock:
                topics = [
                    graphs_pb2.Topic(name=name, query=live.query(name), first=live.first_event(name), next=end)
                    for name, end in live.ends.items()
                ]
                return graphs_pb2.ListTopicsResponse(topics=topics, records=live.counts)

        return await asyncio.get_running_loop().run_in_executor(self._readers, found)

    # Events and answers.

    async def Subscribe(
        self, request: graphs_pb2.SubscribeRequest, context: Any
    ) -> AsyncIterator[graphs_pb2.SubscribeResponse]:
        """Send events, each message when the one before was received."""
        topic, at = request.topic, request.after
        self._check(topic)
        if not 0 <= at <= self._ends[topic]:
            raise InputError(f"after = {at:,}: accepted are 0 to {self._ends[topic]:,}, the next event of {topic}")
        while not self._stopping:
            changed, end = self._changed, self._ends[topic]
            if at < end:
                message = await self._message(topic, at, min(end, at + _EVENTS))
                yield message  # which waits until there is space for it at the client
                at = message.next
            elif request.existing_only:
                return
            else:
                await changed.wait()
        raise Refused(Code.UNAVAILABLE, "the server is stopping; resume later")

    async def _message(self, topic: str, at: int, end: int) -> graphs_pb2.SubscribeResponse:
        """Return events, as one message for all subscribers."""
        key = topic, at, end
        found = self._messages.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._messages[key] = loop.run_in_executor(self._readers, self._events, topic, at, end - at)
            while len(self._messages) > _MESSAGES:
                self._messages.popitem(last=False)
        try:
            return await asyncio.shield(found)
        except InputError as error:
            raise Refused(Code.OUT_OF_RANGE, str(error)) from None

    def _events(self, topic: str, at: int, most: int) -> graphs_pb2.SubscribeResponse:
        events = self._live.events(topic, at, most)
        while events.nbytes > _BYTES and len(events) > 1:
            events = events.slice(0, len(events) // 2)
        return graphs_pb2.SubscribeResponse(events=_packed(events), next=at + len(events))

    async def GetAnswers(
        self, request: graphs_pb2.GetAnswersRequest, context: Any
    ) -> AsyncIterator[graphs_pb2.GetAnswersResponse]:
        """Send answers in parts."""
        self._check(request.topic)
        data = await asyncio.get_running_loop().run_in_executor(
            self._readers, lambda: _packed(self._live.answers(request.topic))
        )
        for begin in range(0, len(data), _PART):
            yield graphs_pb2.GetAnswersResponse(data=data[begin : begin + _PART])


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
