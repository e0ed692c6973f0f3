"""Sessions of the dashboard and protection against cross-site requests."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goffish.addresses import is_loopback
from goffish.services.api.clients import Client, Clients

#: Lifetime of a session, and maximum number of sessions; the oldest are dropped first.
SESSION_S, _MOST_SESSIONS = 12 * 3600.0, 1000
_HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}  # fmt: skip


@dataclass(frozen=True)
class _Session:
    client: Client
    until: float


class Sessions:
    """In-memory sessions with random IDs.

    Parameters
    ----------
    clients : Clients
        Registry of clients; without authentication, no login is required.
    now : callable
        Monotonic clock, in seconds.
    """

    def __init__(self, clients: Clients, now: Callable[[], float] = time.monotonic) -> None:
        self._clients, self._now = clients, now
        self._default = clients.find(None, None)
        self._secret = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    @property
    def open(self) -> bool:
        """Whether no login is required."""
        return self._default is not None

    def begin(self, token: str) -> tuple[str, Client] | None:
        """Start a session for a token; return ``None`` if the token is unknown."""
        client = self._clients.find(f"Bearer {token}", None)
        if client is None or self.open:
            return None
        made = secrets.token_urlsafe(32)
        self._sessions[made] = _Session(client, self._now() + SESSION_S)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return made, client

    def client(self, session: str) -> Client | None:
        """Return the client of a session, or ``None`` if the session is unknown or expired."""
        if self._default is not None:
            return self._default
        found = self._sessions.get(session)
        if found is not None and (found.until <= self._now() or not self._clients.has(found.client)):
            del self._sessions[session]
            return None
        return None if found is None else found.client

    def end(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(session, None)

    def proof(self, session: str) -> str:
        """Return the CSRF token of a session, which only pages of this server contain."""
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def proves(self, session: str, proof: str) -> bool:
        """Check the CSRF token of a form."""
        return bool(session) and hmac.compare_digest(self.proof(session).encode(), proof.encode())


class Shield:
    """Middleware that rejects foreign host names (DNS rebinding) and adds security headers.

    Parameters
    ----------
    app : ASGI application
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if not is_own_name(Headers(scope=scope).get("host", "")):
            refused = PlainTextResponse("Unknown host name: use localhost or 127.0.0.1.\n", 421)
            await refused(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def is_own_name(host: str) -> bool:
    """Return whether a Host header is a loopback name."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, ""
    if port and not port.isdecimal():
        return False
    return is_loopback(name[1:-1] if name.startswith("[") and name.endswith("]") else name)


def from_elsewhere(headers: Headers) -> bool:
    """Return whether a request was sent by a page of another site."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")
