"""A client for the tests of sources that receive records."""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from goffish import stream
from goffish.streaming.embedded import Run

LINES, JSON, ARROW = "application/x-ndjson", "application/json", "application/vnd.apache.arrow.stream"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: dict[str, Any]


def free_port() -> int:
    """A port below those of outgoing connections: a client that retries would otherwise connect to itself."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def post(
    port: int,
    body: bytes | Iterable[bytes],
    kind: str = LINES,
    tls: ssl.SSLContext | None = None,
    path: str = "/",
    method: str = "POST",
    **headers: str,
) -> Answer:
    """Send one request on a connection of its own; an iterable is sent in chunks, without its length."""
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    else:
        connection = http.client.HTTPSConnection("localhost", port, timeout=10, context=tls)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": kind} | named)  # type: ignore[arg-type]
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers), json.loads(response.read()))
    finally:
        connection.close()


def arrow_stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def await_(condition: Any, seconds: float = 20.0) -> None:
    """Wait until a condition holds, as it must in the end."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not hold"
        time.sleep(0.01)


class Receiving:
    """A flow that collects what it receives.

    Parameters
    ----------
    receive : callable
        Makes the source.
    folder : Path
    journal : bool
    blocked : bool
        Whether it processes nothing until `blocked` is set.
    **options
        Of the source.
    """

    def __init__(
        self, receive: Callable[..., Any], folder: Path, *, journal: bool = True, blocked: bool = False, **options: Any
    ) -> None:
        self.port, self.seen = free_port(), stream.collect()
        self.blocked, self.waits = threading.Event(), threading.Event()
        if not blocked:
            self.blocked.set()
        self.source = receive(f"127.0.0.1:{self.port}", journal=folder / "journal" if journal else None, **options)
        flow = stream.Flow("receives")
        flow.source(self.source).map(self.wait).sink(self.seen)
        self.run: Run = flow.start(checkpoint=folder / "ck", every=0.05)

    def wait(self, value: Any) -> Any:
        self.waits.set()
        assert self.blocked.wait(20)
        return value

    def await_values(self, count: int) -> list[Any]:
        await_(lambda: len(self.seen.values) >= count or self.run.wait(0) is None)
        return self.seen.values

    def close(self) -> None:
        self.blocked.set()
        self.run.stop()
