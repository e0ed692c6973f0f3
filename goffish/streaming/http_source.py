"""Records that clients push over HTTP."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import JobError
from goffish.extras import needed_for
from goffish.gofs.times import Duration
from goffish.streaming.journal import ARRAY, ARROW, LINES, Refused, patiently, read_array, read_arrow, read_lines
from goffish.streaming.received import Inbox, Received, Server, checked_options, entry_of
from goffish.streaming.sources import Source

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger(__name__)
#: Forms of bodies by content type.
_FORMS = {"application/x-ndjson": LINES, "application/json": ARRAY, "application/vnd.apache.arrow.stream": ARROW}
_READ: dict[int, Callable[[bytes], Any]] = {LINES: read_lines, ARRAY: read_array, ARROW: read_arrow}
#: Connections at once; others are closed.
_CONNECTIONS = 500
#: Seconds until a client may retry, and until open requests are abandoned when the flow stops.
_RETRY_S, _ENDS_S = 1, 0.2
_START_S = 10.0
_TOO_MANY = b'{"error": "too many connections; retry later"}\n'
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TOO_MANY), _TOO_MANY)
)

Headers = dict[bytes, bytes]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def receive_http(
    bind: str = "127.0.0.1:8080", *, journal: str | Path | None = None, token: str | None = None,
    tls: tuple[str | Path, str | Path] | None = None, max_body: int = 8 << 20, max_waiting: int = 64 << 20,
    max_journal: int = 1 << 30, timeout: Duration = 30.0,
) -> Source:  # fmt: skip
    """Receive records that clients send with HTTP requests.

    ``POST /`` accepts lines of JSON (``application/x-ndjson``), a JSON array (``application/json``) and Arrow IPC
    streams (``application/vnd.apache.arrow.stream``). A request is accepted as a whole or not at all.
    ``GET /healthz`` answers 200 while records are accepted.

    Parameters
    ----------
    bind : str
        ``HOST:PORT``. An address that other machines can reach requires `tls` and `token`.
    journal : str or Path, optional
        Local folder, of this source alone, in which requests are saved before they are answered with status 200.
        Without it they are answered with 202 once the flow has taken the records, and a crash can lose them.
    token : str, optional
        Clients send it as ``Authorization: Bearer TOKEN``; ``env:NAME`` reads it from an environment variable.
    tls : tuple of two paths, optional
        Certificate and private key, in PEM format.
    max_body : int
        Bytes of a request; larger ones are refused with status 413.
    max_waiting : int
        Bytes of requests that may wait for the flow; others are refused with 429 and ``Retry-After``.
    max_journal : int
        Bytes of the journal, at least 16 times `max_body`; beyond, requests are refused with 503 and ``Retry-After``.
    timeout : str, float or timedelta
        Time in which a request must arrive.

    Returns
    -------
    Source

    Raises
    ------
    InputError
        An argument is not accepted.

    Notes
    -----
    With a journal and a checkpoint folder, a record of a request that was answered with 200 is processed exactly once,
    also after ``kill -9``. With a journal alone, it is processed at least once. Requests with an ``Idempotency-Key``
    can be repeated when the answer was lost: keys are kept for a day, and at most 100,000 of them.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.receive_http("127.0.0.1:8080", journal="journal").partitions()
    ['received']
    """
    given = {
        "bind": bind, "journal": journal, "token": token, "tls": tls, "max_body": max_body, "max_waiting": max_waiting,
        "max_journal": max_journal,
    }  # fmt: skip
    return HttpSource(**checked_options("receive_http", given, timeout))


@dataclass(frozen=True)
class HttpSource(Received):
    """Records that clients send with HTTP requests."""

    def check(self) -> None:
        """Raise an error if the address, the certificate or the journal cannot be used."""
        with needed_for("receive_http"):
            import uvicorn  # noqa: F401
        super().check()

    def serve(self, inbox: Inbox) -> Server:
        """Start the server."""
        return _HttpServer(self, inbox)


class _HttpServer:
    """HTTP server on a thread."""

    def __init__(self, source: HttpSource, inbox: Inbox) -> None:
        with needed_for("receive_http"):
            import uvicorn

        self._application = _Application(source, inbox)
        self._socket = patiently(source.listener)
        config = uvicorn.Config(
            self._application, http=_protocol(source.timeout), ws="none", lifespan="off", log_config=None,
            log_level="critical", access_log=False, server_header=False, date_header=False, proxy_headers=False,
            timeout_keep_alive=max(1, int(source.timeout)), timeout_graceful_shutdown=_ENDS_S,  # type: ignore[arg-type]
            ssl_certfile=source.tls and source.tls[0], ssl_keyfile=source.tls and source.tls[1],
        )  # fmt: skip
        self._inbox = inbox
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, args=(config,), name="goffish http", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_S) or inbox.error is not None:
            raise JobError(inbox.error or f"{source.bind}: the HTTP server did not start within {_START_S:g} s")

    def _run(self, config: uvicorn.Config) -> None:
        try:
            asyncio.run(self._serve(config))
        except BaseException as error:
            self._inbox.error = f"the HTTP server failed ({type(error).__name__}: {error})"
        finally:
            self._socket.close()
            self._ready.set()

    async def _serve(self, config: uvicorn.Config) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await _server(config, self._stopping, self._ready).serve([self._socket])

    def stop(self) -> None:
        """Refuse requests from now on."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._application.stop)
            self._loop.call_soon_threadsafe(self._stopping.set)

    def close(self) -> None:
        """Wait until the last answers are sent."""
        self._thread.join(2 * _ENDS_S)


def _server(config: uvicorn.Config, stopping: asyncio.Event, ready: threading.Event) -> uvicorn.Server:
    import uvicorn

    class StoppableServer(uvicorn.Server):
        """Server that leaves signals to the flow, and ends at once."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            ready.set()
            await stopping.wait()

    return StoppableServer(config)


def _protocol(timeout: float) -> type[asyncio.Protocol]:
    """Return a protocol that closes connections whose client sends no request."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class TimedProtocol(H11Protocol):
        """Connection on which a request must begin within a time."""

        _seen: Any = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > _CONNECTIONS:
                transport.write(_BUSY)
                transport.close()
            self.loop.call_later(timeout, self._look)

        def _look(self) -> None:
            if self.transport.is_closing():
                return
            waiting = self.cycle is None or self.cycle.response_complete
            if waiting and self.cycle is self._seen:
                self.transport.abort()
                return
            self._seen = self.cycle
            self.loop.call_later(timeout, self._look)

    return TimedProtocol


class _Application:
    """The ASGI application: ``POST /`` and ``GET /healthz``."""

    def __init__(self, source: HttpSource, inbox: Inbox) -> None:
        self._source, self._inbox = source, inbox
        self._token = source.secret()
        self._arriving: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def stop(self) -> None:
        """Refuse the requests that are still arriving."""
        self._stopping = True
        for task in self._arriving:
            task.cancel()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        body = _Body(receive, self._inbox)
        headers: list[tuple[bytes, bytes]] = []
        try:
            status, answer = await self._answer(scope, body)
        except Refused as error:
            status, answer = error.status, {"error": str(error)}
            if status in (429, 503):
                headers.append((b"retry-after", b"%d" % _RETRY_S))
            if status == 401:
                headers.append((b"www-authenticate", b"Bearer"))
            if status == 405:
                headers.append((b"allow", b"GET" if scope["path"] == "/healthz" else b"POST"))
        except _Disconnected:
            return
        except Exception:
            _log.exception("request failed")
            status, answer = 500, {"error": "internal error; see the log of the flow"}
        finally:
            body.drop()
        content = json.dumps(answer).encode() + b"\n"
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        if not body.complete:  # the rest is not read
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: dict[str, Any], body: _Body) -> tuple[int, dict[str, Any]]:
        headers: Headers = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"authorization", b"content-type", b"idempotency-key", b"origin"):
                raise Refused(400, f"header {name.decode()}: is given twice")
            headers[name] = value
        if scope["path"] == "/healthz":
            _check_method(scope, "GET")
            if self._inbox.error is not None:
                raise Refused(503, "the flow has failed")
            return 200, {"status": "ok"}
        if scope["path"] != "/":
            raise Refused(404, "no such path; send records to /")
        _check_method(scope, "POST")
        self._check_client(headers)
        form = _FORMS.get(headers.get(b"content-type", b"").decode("latin1").partition(";")[0].strip().lower())
        if form is None:
            raise Refused(415, f"Content-Type: accepted are {', '.join(_FORMS)}")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refused(415, "Content-Encoding: compressed bodies are not accepted")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._source.max_body:
            raise Refused(413, f"{int(length):,} bytes; accepted are {self._source.max_body:,} at most")
        payload = await self._read(body)
        key = headers.get(b"idempotency-key", b"")
        entry = entry_of(form, len(_READ[form](payload)), payload, key, "Idempotency-Key")
        if not entry.records:
            return 200, {"records": 0}
        body.held = 0  # the inbox releases it
        return await self._acknowledged(self._inbox.put(entry))

    def _check_client(self, headers: Headers) -> None:
        if self._token is None:
            if b"origin" in headers:  # a page of a browser, perhaps under a name that leads to this machine
                raise Refused(403, "requests of web pages are not accepted without a token")
            return
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            raise Refused(401, "send the header Authorization: Bearer TOKEN")

    async def _read(self, body: _Body) -> bytes:
        """Return the body of a request."""
        if self._stopping:
            raise Refused(503, "the flow is stopping; retry later")
        task = asyncio.current_task()
        assert task is not None
        self._arriving.add(task)
        try:
            async with asyncio.timeout(self._source.timeout):
                return await body.read(self._source.max_body)
        except TimeoutError:
            raise Refused(408, f"the request did not arrive within {self._source.timeout:g} s") from None
        except asyncio.CancelledError:
            raise Refused(503, "the flow is stopping; retry later") from None
        finally:
            self._arriving.discard(task)

    async def _acknowledged(self, future: Future[int]) -> tuple[int, dict[str, Any]]:
        """Wait until records are accepted."""
        waited = asyncio.wrap_future(future)  # which several requests with one key may share
        if self._inbox.journal is not None:
            return 200, {"records": await asyncio.shield(waited)}
        try:
            async with asyncio.timeout(self._source.timeout):
                return 202, {"records": await asyncio.shield(waited)}
        except TimeoutError:
            if not future.cancel():
                return 202, {"records": await asyncio.shield(waited)}
        except asyncio.CancelledError:
            if not future.cancelled():
                raise
        raise Refused(503, "the flow has not taken the records in time; retry later")


class _Disconnected(Exception):
    """The client has closed the connection."""


class _Body:
    """The body of a request, for which memory of the inbox is held."""

    def __init__(self, receive: Receive, inbox: Inbox) -> None:
        self._receive, self._inbox = receive, inbox
        self.held = 0
        self.complete = False

    async def read(self, most: int) -> bytes:
        """Return the whole body.

        Raises
        ------
        Refused
        """
        parts: list[bytes] = []
        while not self.complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            part = message.get("body", b"")
            if self.held + len(part) > most:
                raise Refused(413, f"more than {most:,} bytes")
            self._inbox.hold(len(part))
            self.held += len(part)
            parts.append(part)
            self.complete = not message.get("more_body", False)
        return b"".join(parts)

    def drop(self) -> None:
        """Free the memory."""
        self._inbox.release(self.held)
        self.held = 0


def _check_method(scope: dict[str, Any], accepted: str) -> None:
    if scope["method"] != accepted:
        raise Refused(405, f"method {scope['method']}; accepted is {accepted}")
