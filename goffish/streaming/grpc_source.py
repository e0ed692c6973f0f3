"""Records that clients push over gRPC."""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import JobError
from goffish.extras import needed_for
from goffish.gofs.times import Duration
from goffish.streaming.journal import ARROW, LINES, Entry, Refused, patiently, read_arrow, read_lines
from goffish.streaming.received import Inbox, Received, Server, checked_options, entry_of
from goffish.streaming.sources import Source

if TYPE_CHECKING:
    import grpc

    from goffish.v1.records_pb2 import PushRecordsRequest, PushRecordsResponse

_FORMS: dict[str, tuple[int, Callable[[bytes], Any]]] = {
    "json_lines": (LINES, read_lines), "arrow_stream": (ARROW, read_arrow)
}  # fmt: skip
#: Requests of a call that may wait for their answers, and calls at once.
_PIPELINED, _CALLS = 64, 64
#: Bytes of a message beside the records.
_FRAME = 1024
_START_S, _ENDS_S, _RETRY_S = 10.0, 0.2, 0.01


def receive_grpc(
    bind: str = "127.0.0.1:8090", *, journal: str | Path | None = None, token: str | None = None,
    tls: tuple[str | Path, str | Path] | None = None, max_body: int = 8 << 20, max_waiting: int = 64 << 20,
    max_journal: int = 1 << 30, timeout: Duration = 30.0,
) -> Source:  # fmt: skip
    """Receive records that clients send with the gRPC method ``goffish.v1.RecordService/PushRecords``.

    A call is a stream of requests, each with lines of JSON or an Arrow IPC stream, and of an answer for each. A request
    is accepted as a whole or not at all. Clients that send faster than the flow takes records have to wait.

    Parameters
    ----------
    bind : str
        ``HOST:PORT``. An address that other machines can reach requires `tls` and `token`.
    journal : str or Path, optional
        Local folder, of this source alone, in which requests are saved before they are answered. Without it they are
        answered once the flow has taken the records, and a crash can lose them.
    token : str, optional
        Clients send it as metadata ``authorization: Bearer TOKEN``; ``env:NAME`` reads it from an environment variable.
    tls : tuple of two paths, optional
        Certificate and private key, in PEM format.
    max_body : int
        Bytes of the records of a request; larger ones are refused with ``RESOURCE_EXHAUSTED``.
    max_waiting : int
        Bytes of requests that may wait for the flow.
    max_journal : int
        Bytes of the journal, at least 16 times `max_body`.
    timeout : str, float or timedelta
        How long a request may wait for memory, for space in the journal and for the flow before it is refused with
        ``UNAVAILABLE``.

    Returns
    -------
    Source

    Raises
    ------
    InputError
        An argument is not accepted.

    Notes
    -----
    With a journal and a checkpoint folder, a record of a request that was answered is processed exactly once, also
    after ``kill -9``. With a journal alone, it is processed at least once. Requests with an ``idempotency_key`` can be
    repeated when the answer was lost: keys are kept for a day, and at most 100,000 of them.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.receive_grpc("127.0.0.1:8090", journal="journal").partitions()
    ['received']
    """
    given = {
        "bind": bind, "journal": journal, "token": token, "tls": tls, "max_body": max_body, "max_waiting": max_waiting,
        "max_journal": max_journal,
    }  # fmt: skip
    return GrpcSource(**checked_options("receive_grpc", given, timeout))


@dataclass(frozen=True)
class GrpcSource(Received):
    """Records that clients send with gRPC calls."""

    def check(self) -> None:
        """Raise an error if the address, the certificate or the journal cannot be used."""
        with needed_for("receive_grpc"):
            import grpc  # noqa: F401
        super().check()

    def serve(self, inbox: Inbox) -> Server:
        """Start the server."""
        return _GrpcServer(self, inbox)


class _GrpcServer:
    """gRPC server on a thread."""

    def __init__(self, source: GrpcSource, inbox: Inbox) -> None:
        self._source, self._inbox = source, inbox
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        patiently(source.listener).close()  # a clear error if the address is in use
        self._thread = threading.Thread(target=self._run, name="goffish grpc", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_S) or self._failed is not None:
            reason = f" ({self._failed})" if self._failed else f" within {_START_S:g} s"
            raise JobError(f"{source.bind}: the gRPC server did not start{reason}")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failed = error
            self._inbox.error = f"the gRPC server failed ({type(error).__name__}: {error})"
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        import grpc
        from grpc import aio

        from goffish.v1.records_pb2_grpc import add_RecordServiceServicer_to_server

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        limit = self._source.max_body + _FRAME
        # Without the last one, a second server could use the same address.
        options = [("grpc.max_receive_message_length", limit), ("grpc.so_reuseport", 0)]
        server = aio.server(options=options, maximum_concurrent_rpcs=_CALLS)
        service = _Service(self._source, self._inbox)
        add_RecordServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        if self._source.tls is None:
            server.add_insecure_port(self._source.bind)
        else:
            certificate, key = (Path(file).read_bytes() for file in self._source.tls)
            server.add_secure_port(self._source.bind, grpc.ssl_server_credentials([(key, certificate)]))
        await server.start()
        self._ready.set()
        await self._stopping.wait()
        service.stopping = True
        await server.stop(_ENDS_S)

    def stop(self) -> None:
        """Refuse requests from now on."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)

    def close(self) -> None:
        """Wait until the last answers are sent."""
        self._thread.join(5 * _ENDS_S)


class _Service:
    """The service of the protocol."""

    def __init__(self, source: GrpcSource, inbox: Inbox) -> None:
        self._source, self._inbox = source, inbox
        self._token = source.secret()
        self.stopping = False

    async def PushRecords(
        self, requests: AsyncIterator[PushRecordsRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[PushRecordsResponse]:
        """Answer requests in their order, while later ones are read."""
        from goffish.v1.records_pb2 import PushRecordsResponse

        answers: asyncio.Queue[Future[int] | Refused | None] = asyncio.Queue(_PIPELINED)
        taking = asyncio.create_task(self._take(requests, context, answers))
        try:
            while (answer := await answers.get()) is not None:
                try:
                    if isinstance(answer, Refused):
                        raise answer
                    records = await self._acknowledged(answer)
                except Refused as error:
                    await context.abort(_code(error.status), str(error))
                yield PushRecordsResponse(records=records)
        finally:
            taking.cancel()

    async def _take(
        self, requests: AsyncIterator[PushRecordsRequest], context: grpc.aio.ServicerContext[Any, Any],
        answers: asyncio.Queue[Future[int] | Refused | None],
    ) -> None:  # fmt: skip
        """Put the records of requests into the inbox, until one is refused."""
        try:
            self._check_client(context)
            async for request in requests:
                await answers.put(await self._accepted(request))
        except Refused as error:
            await answers.put(error)
        await answers.put(None)

    def _check_client(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if self._token is None:
            return
        given = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        kind, _, token = given[0].partition(" ") if len(given) == 1 and isinstance(given[0], str) else ("", "", "")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
            raise Refused(401, "send the metadata authorization: Bearer TOKEN")

    async def _accepted(self, request: PushRecordsRequest) -> Future[int]:
        kind = request.WhichOneof("records")
        if kind is None:
            raise Refused(400, f"no records; accepted are {', '.join(_FORMS)}")
        form, read = _FORMS[kind]
        payload = bytes(getattr(request, kind))
        if len(payload) > self._source.max_body:
            raise Refused(413, f"{len(payload):,} bytes; accepted are {self._source.max_body:,} at most")
        entry = entry_of(form, len(read(payload)), payload, request.idempotency_key.encode(), "idempotency_key")
        if not entry.records:
            done: Future[int] = Future()
            done.set_result(0)
            return done
        return await self._put(entry)

    async def _put(self, entry: Entry) -> Future[int]:
        """Put an entry into the inbox, if need be when there is memory for it."""
        last = asyncio.get_running_loop().time() + self._source.timeout
        while True:
            try:
                self._inbox.hold(len(entry.payload))
                return self._inbox.put(entry)
            except Refused as error:
                ends = self.stopping or self._inbox.error is not None
                if error.status not in (429, 503) or ends or asyncio.get_running_loop().time() > last:
                    raise
            await asyncio.sleep(_RETRY_S)

    async def _acknowledged(self, future: Future[int]) -> int:
        """Wait until records are accepted; several requests with one key may share a future."""
        waited = asyncio.shield(asyncio.wrap_future(future))
        if self._inbox.journal is not None:
            return await waited
        try:
            async with asyncio.timeout(self._source.timeout):
                return await waited
        except TimeoutError:
            if not future.cancel():
                return await asyncio.wrap_future(future)
        raise Refused(503, "the flow has not taken the records in time; retry later")


def _code(status: int) -> grpc.StatusCode:
    """Return the status of gRPC for one of HTTP."""
    import grpc

    codes = grpc.StatusCode
    return {
        400: codes.INVALID_ARGUMENT, 401: codes.UNAUTHENTICATED, 413: codes.RESOURCE_EXHAUSTED,
        422: codes.ALREADY_EXISTS,
    }.get(status, codes.UNAVAILABLE)  # fmt: skip
