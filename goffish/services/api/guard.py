"""Interceptor of all calls: authentication, authorization, rate limits, errors and the audit log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from goffish.errors import InputError, JobError
from goffish.services.api.clients import Client, Clients, Role
from goffish.services.api.limits import Limits, TooMuch
from goffish.services.api.telemetry import Metrics
from goffish.services.runners.folder import is_disk_full
from goffish.services.store.database import AWAY, is_replaced
from goffish.services.store.records import without_folders
from goffish.services.store.store import UnknownJob
from goffish.v1 import catalog_pb2, flows_pb2, jobs_pb2

_log = logging.getLogger(__name__)
_audit = logging.getLogger("goffish.audit")
#: Client of the current call.
caller: ContextVar[Client] = ContextVar("caller")
#: Job or upload changed by the current call, for the audit log.
subject: ContextVar[str] = ContextVar("subject")
#: Methods without authentication.
_OPEN = "/grpc.health."
_ROLES = {
    "/goffish.v1.JobService/Submit": Role.SUBMIT, "/goffish.v1.JobService/Cancel": Role.SUBMIT,
    "/goffish.v1.JobService/Upload": Role.SUBMIT,
    "/goffish.v1.FlowService/StopFlow": Role.SUBMIT, "/goffish.v1.FlowService/UpdateFlow": Role.SUBMIT,
    "/goffish.v1.FlowService/ScaleFlow": Role.SUBMIT, "/goffish.v1.FlowService/SwitchAlternate": Role.SUBMIT,
    "/goffish.v1.RecordService/PushRecords": Role.SUBMIT, "/goffish.v1.LiveGraphService/SubmitQueries": Role.SUBMIT,
    "/goffish.v1.LiveGraphService/CancelQuery": Role.SUBMIT,
}  # fmt: skip
#: Cheap calls with large responses; few run concurrently per client.
_READS = frozenset(
    f"/{service.full_name}/{method.name}"
    for service in (
        jobs_pb2.DESCRIPTOR.services_by_name["JobService"], catalog_pb2.DESCRIPTOR.services_by_name["CatalogService"],
        flows_pb2.DESCRIPTOR.services_by_name["FlowService"],
    )
    for method in service.methods
    if f"/{service.full_name}/{method.name}" not in _ROLES and method.name not in ("Watch", "FetchResult")
)  # fmt: skip
_FIELD = re.compile(r"^((?:[A-Za-z_][\w.\[\]-]*: )*[A-Za-z_][\w.\[\]-]*)(?:: | = )")
_DETAILS = "grpc-status-details-bin"
_TEXT_BYTES = 1000
Code = grpc.StatusCode
Read = Callable[[bytes], Any]


class Refused(Exception):
    """Rejected call."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Interceptor that authenticates, limits, measures and audits calls.

    Parameters
    ----------
    clients : Clients
    limits : Limits
    metrics : Metrics
    """

    def __init__(self, clients: Clients, limits: Limits, metrics: Metrics) -> None:
        self._clients, self._limits, self._metrics = clients, limits, metrics

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Wrap the handler of a call."""
        handler = await continuation(details)
        method = details.method
        if handler is None or method.startswith(_OPEN):
            return handler
        given = dict(details.invocation_metadata or ())
        read = handler.request_deserializer or bytes
        if handler.response_streaming:
            behaviour: Any = self._streaming(method, given, handler.unary_stream or handler.stream_stream, read)
            make = grpc.unary_stream_rpc_method_handler
            if handler.request_streaming:
                make = grpc.stream_stream_rpc_method_handler
        else:
            behaviour = self._answering(method, given, handler.unary_unary or handler.stream_unary, read)
            make = grpc.unary_unary_rpc_method_handler
            if handler.request_streaming:
                make = grpc.stream_unary_rpc_method_handler
        # `behaviour` parses messages, because gRPC reports malformed ones as internal errors.
        return make(behaviour, None, handler.response_serializer)

    def _answering(self, method: str, given: dict[str, Any], call: Any, read: Read) -> Any:
        async def behaviour(request: Any, context: Any) -> Any:
            watched = _Watched(self._metrics, method, context)
            try:
                with self._admitted(method, given, request, context, watched, self._limits.call):
                    if method in _READS:
                        ended = await self._limits.read(watched.client)
                        context.add_done_callback(lambda _: ended())
                        return await call(_message(request, read), context)
                    answer = await call(_message(request, read), context)
                    sent = self._limits.answer(watched.client, answer.ByteSize())
                    context.add_done_callback(lambda _: sent())
                    return answer
            except asyncio.CancelledError:
                watched.cut()
                raise
            except Exception as error:
                await watched.fail(error)
            finally:
                watched.end()

        return behaviour

    def _streaming(self, method: str, given: dict[str, Any], call: Any, read: Read) -> Any:
        async def behaviour(request: Any, context: Any) -> AsyncIterator[Any]:
            watched = _Watched(self._metrics, method, context)
            try:
                with self._admitted(method, given, request, context, watched, self._limits.stream):
                    async for one in call(_message(request, read), context):
                        yield one
            except (asyncio.CancelledError, GeneratorExit):
                watched.cut()
                raise
            except Exception as error:
                await watched.fail(error)
            finally:
                watched.end()

        return behaviour

    @contextmanager
    def _admitted(
        self, method: str, given: dict[str, Any], request: Any, context: Any, watched: _Watched,
        limit: Callable[[str, int], AbstractContextManager[None]],
    ) -> Iterator[None]:  # fmt: skip
        client = self._find(given, context)
        watched.client = client.name
        _check_role(client, method)
        caller.set(client)
        with limit(client.name, len(request) if isinstance(request, bytes) else 0):
            yield

    def _find(self, given: dict[str, Any], context: Any) -> Client:
        certificate = None
        names = context.auth_context().get("x509_common_name")
        if names:
            certificate = names[0].decode(errors="replace")
        client = self._clients.find(given.get("authorization"), certificate)
        if client is None:
            raise Refused(Code.UNAUTHENTICATED, "authentication required: send metadata authorization: Bearer TOKEN")
        return client


def _check_role(client: Client, method: str) -> None:
    needed = _ROLES.get(method, Role.READ)
    if client.rank < needed:
        text = f"client {client.name} has the role {client.role}; {needed.name.lower()} is required"
        raise Refused(Code.PERMISSION_DENIED, text)


def _message(given: Any, read: Read) -> Any:
    """Parse a request message, or lazily the messages of a stream.

    Raises
    ------
    InputError
        The bytes are not a message of this method.
    """
    if not isinstance(given, bytes):
        return _messages(given, read)
    try:
        return read(given)
    except DecodeError:
        raise InputError("malformed request: the bytes are not a message of this method") from None


async def _messages(given: AsyncIterator[bytes], read: Read) -> AsyncIterator[Any]:
    async for one in given:
        yield _message(one, read)


class _Watched:
    """Measured call; written to the audit log if it changes something or is rejected."""

    def __init__(self, metrics: Metrics, method: str, context: Any) -> None:
        self._metrics, self._method, self._context = metrics, method, context
        self._begun = time.perf_counter()
        self._code: grpc.StatusCode | None = None
        self._text = ""
        self.client = ""

    async def fail(self, error: Exception) -> None:
        """Abort the call with an error status; always raises."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        self._code, text = status_of(error)
        # Messages are percent-encoded in headers, which clients limit to 8 KB.
        cut = text.encode(errors="replace")[:_TEXT_BYTES].decode(errors="ignore")
        self._text = text if len(cut) == len(text) else f"{cut} …"
        trailing = _violation(self._code, self._text)
        await self._context.abort(self._code, self._text, trailing)

    def cut(self) -> None:
        """Record that the client cancelled the call or that its deadline expired."""
        left = self._context.time_remaining()
        self._code = Code.DEADLINE_EXCEEDED if left is not None and left <= 0 else Code.CANCELLED

    def end(self) -> None:
        """Record metrics and the audit entry."""
        seconds = time.perf_counter() - self._begun
        code = Code.OK if self._code is None else self._code
        self._metrics.called(self._method, code.name, seconds)
        refused = code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.RESOURCE_EXHAUSTED)
        if self._method in _ROLES or refused:
            body = {
                "client": self.client, "peer": self._context.peer(), "method": self._method, "code": code.name,
                "subject": subject.get(""), "text": self._text, "ms": round(seconds * 1e3, 1),
            }  # fmt: skip
            _audit.info(json.dumps(body))


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Return the status of an exception; unexpected ones only refer to an entry of the server log."""
    if isinstance(error, Refused):
        return error.code, str(error)
    if isinstance(error, TooMuch):
        return Code.RESOURCE_EXHAUSTED, str(error)
    if isinstance(error, UnknownJob):
        return Code.NOT_FOUND, str(error)
    if isinstance(error, InputError):
        return Code.INVALID_ARGUMENT, without_folders(str(error))
    if isinstance(error, JobError):
        return Code.FAILED_PRECONDITION, without_folders(str(error))
    if isinstance(error, AWAY):
        problem = getattr(error, "orig", error)
        _log.warning("database error: %s", problem)
        if "full" in str(problem):
            return Code.RESOURCE_EXHAUSTED, "the server's disk is full"
        if is_replaced(error):
            return Code.UNAVAILABLE, "the server's database was removed or replaced; its operator must restore it"
        return Code.UNAVAILABLE, "the server's database is unavailable; retry later"
    if isinstance(error, OSError) and is_disk_full(error):
        return Code.RESOURCE_EXHAUSTED, "the server's disk is full"
    number = secrets.token_hex(4)
    _log.error("error %s", number, exc_info=error)
    return Code.INTERNAL, f"internal server error; see error {number} in the server log"


def _violation(code: grpc.StatusCode, text: str) -> tuple[tuple[str, bytes], ...]:
    """Return the invalid field as google.rpc.BadRequest, if the message names one."""
    found = _FIELD.match(text) if code == Code.INVALID_ARGUMENT else None
    if found is None:
        return ()
    field = found.group(1).replace(": ", ".")
    problem = error_details_pb2.BadRequest()
    problem.field_violations.add(field=field, description=text)
    packed = AnyMessage()
    packed.Pack(problem)
    status = status_pb2.Status(code=code.value[0], message=text, details=[packed])
    return ((_DETAILS, status.SerializeToString()),)
