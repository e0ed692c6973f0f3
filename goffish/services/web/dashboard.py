"""HTTP server of the dashboard, run in the event loop of the service."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from goffish.addresses import in_digits
from goffish.errors import JobError

#: Maximum concurrent connections; others receive status 503.
_MOST_CONNECTIONS = 500
_START_S = 0.01


class Dashboard:
    """HTTP server of an application.

    Parameters
    ----------
    address : str
        Loopback ``HOST:PORT``; port 0: any free port.
    app : ASGI application
    grace_s : float
        Grace period for requests in progress on shutdown.

    Raises
    ------
    JobError
        The address cannot be bound.
    """

    def __init__(self, address: str, app: ASGIApp, grace_s: float = 10.0) -> None:
        host, _, port = in_digits(address).rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        try:
            self._socket = socket.create_server((host.strip("[]"), int(port)), family=family)
        except OSError as error:
            raise JobError(f"--web {address}: cannot bind the address ({error.strerror})") from None
        self.url = f"http://{host}:{self._socket.getsockname()[1]}/"
        self._server = _Quiet(uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            proxy_headers=False, limit_concurrency=_MOST_CONNECTIONS, timeout_graceful_shutdown=max(1, int(grace_s)),
        ))  # fmt: skip
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server."""
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(_START_S)

    async def stop(self) -> None:
        """Stop the server after the requests in progress."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class _Quiet(uvicorn.Server):
    """Uvicorn server that leaves signals to the service."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
