"""A sink that posts records to an HTTP server, as lines of JSON."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import random
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from goffish.addresses import in_digits, is_loopback
from goffish.errors import GoffishWarning, InputError, JobError
from goffish.gofs.times import Duration, microseconds
from goffish.streaming.batches import Batch
from goffish.streaming.sinks import Sink, Writer, plain
from goffish.streaming.tokens import given_secret

#: Lines and bytes of a request; a longer line is sent alone.
_LINES, _BYTES = 500, 1 << 20
#: Seconds between attempts: the first time, and at most.
_FIRST_S, _LONGEST_S = 0.5, 60.0
#: Bytes of an answer that are read.
_ANSWER = 1 << 16
_LEAST_SECRET = 16
#: Statuses of a server that may accept the same request later.
_LATER = frozenset((408, 425, 429, 500, 502, 503, 504))


def post_json_lines(
    url: str, *, secret: str | None = None, timeout: Duration = 10.0, patience: Duration = 300.0
) -> Sink:  # fmt: skip
    """Post records to an HTTP server, as lines of JSON.

    Parameters
    ----------
    url : str
        ``https://HOST/PATH``; ``http`` only for loopback addresses.
    secret : str, optional
        For signatures of the requests, at least 16 characters; ``env:NAME`` reads it from an environment variable.
    timeout : str, float or timedelta
        Time in which the server must answer a request.
    patience : str, float or timedelta
        How long a request is repeated, after 0.5 s and then after twice as long each time, up to a minute, before the
        run fails.

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        An argument is not accepted.

    Notes
    -----
    Delivery is at-least-once: of events of live graphs, those that arrive twice have the same ``event_id``. A request
    has up to 500 lines (``application/x-ndjson``) and the headers of Standard Webhooks [1]_: ``webhook-id``, which is
    the same for a repeated request, ``webhook-timestamp`` and, with a secret, ``webhook-signature``: ``v1,`` and the
    Base64 text of the HMAC-SHA256 of ``ID.TIMESTAMP.BODY``. Any status from 200 to 299 accepts it; 408, 425, 429, 500,
    502, 503 and 504 have it repeated, not before the seconds of ``Retry-After``, and any other status is an error.
    Redirections are not followed.

    References
    ----------
    .. [1] Standard Webhooks, https://www.standardwebhooks.com

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.post_json_lines("https://alerts.example.org/graph").url
    'https://alerts.example.org/graph'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{url}: is not a URL ({error})") from None
    if parts.scheme not in ("http", "https") or not host or any(one.isspace() or not one.isprintable() for one in url):
        raise InputError(f"{url}: accepted are https://HOST/PATH, and http://HOST/PATH for loopback addresses")
    if parts.scheme == "http" and not is_loopback(host):
        raise InputError(f"{url}: http is only accepted for loopback addresses; use https")
    if parts.username is not None or parts.fragment:
        raise InputError(f"{host}: user names and fragments are not accepted in the URL; sign requests with secret")
    if port == 0:
        raise InputError(f"{url}: port 0 is not accepted")
    sink = Webhook(url, secret, *(microseconds(one, name) / 1e6 for one, name in (
        (timeout, "post_json_lines: timeout"), (patience, "post_json_lines: patience"),
    )))  # fmt: skip
    sink.key()
    return sink


@dataclass(frozen=True)
class Webhook(Sink):
    """An HTTP server to which records are posted.

    Attributes
    ----------
    url : str
    secret : str, optional
        A secret, or ``env:NAME``.
    timeout, patience : float
        Seconds.
    """

    url: str
    secret: str | None = field(default=None, repr=False)
    timeout: float = 10.0
    patience: float = 300.0

    def key(self) -> bytes | None:
        """Return the key of the signatures.

        Raises
        ------
        InputError
            The environment variable is not set, or the secret is too short.
        """
        secret = given_secret(self.secret, f"{self.url}: secret")
        if secret is not None and len(secret) < _LEAST_SECRET:
            raise InputError(f"{self.url}: secret: must have at least {_LEAST_SECRET} characters")
        return None if secret is None else secret.encode()

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _Poster(self, name)


class _Later(Exception):
    """The server does not accept the request now."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


class _Poster(Writer):
    """Posts records, and repeats requests until they are accepted."""

    def __init__(self, sink: Webhook, name: str) -> None:
        self._sink, self.name, self._key = sink, name, sink.key()
        parts = urlsplit(sink.url)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        address = in_digits(f"{host}:0").rpartition(":")[0] if ":" not in host else host
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            tls = ssl.create_default_context()
            self._connection = http.client.HTTPSConnection(host, parts.port, timeout=sink.timeout, context=tls)
        else:
            self._connection = http.client.HTTPConnection(address, parts.port, timeout=sink.timeout)
        self._interrupted = threading.Event()

    def write(self, batch: Batch) -> None:
        """Post records, and return when they are accepted."""
        for identity, body in _requests(batch.rows()):
            self._deliver(identity, body)

    def interrupt(self) -> None:
        """Let a request that is repeated fail."""
        self._interrupted.set()
        self._cut()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _deliver(self, identity: str, body: bytes) -> None:
        end, pause, warned = time.monotonic() + self._sink.patience, _FIRST_S, False
        while True:
            try:
                self._post(identity, body)
                return
            except _Later as later:
                wait = max(pause * random.uniform(0.8, 1.2), min(later.after, _LONGEST_S))
                if self._interrupted.is_set() or time.monotonic() + wait > end:
                    reason = f"no request was accepted within {self._sink.patience:g} s ({later})"
                    raise self._error(f"{reason}; run it again to resume") from None
                if not warned:
                    warnings.warn(f"{self._sink.url}: {later}; trying again", GoffishWarning, stacklevel=2)
                    warned = True
                self._interrupted.wait(wait)
                pause = min(2 * pause, _LONGEST_S)

    def _post(self, identity: str, body: bytes) -> None:
        moment = str(int(time.time()))
        headers = {"content-type": "application/x-ndjson", "webhook-id": identity, "webhook-timestamp": moment}
        headers |= {"user-agent": "goffish", "content-length": str(len(body))}
        if self._key is not None:
            signed = hmac.new(self._key, f"{identity}.{moment}.".encode() + body, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
        # A server that sends a byte now and then would never exceed the time limit of the connection.
        timer = threading.Timer(self._sink.timeout, self._cut)
        timer.daemon = True
        timer.start()
        try:
            self._connection.request("POST", self._path, body, headers)
            answer = self._connection.getresponse()
            if len(answer.read(_ANSWER)) == _ANSWER:
                self._connection.close()  # the rest is not read
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            reason = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
            raise _Later(reason) from None
        finally:
            timer.cancel()
        if 200 <= answer.status < 300:
            return
        status = f"status {answer.status} {answer.reason}".strip()[:100]
        if answer.status in _LATER:
            after = answer.headers.get("retry-after", "")
            raise _Later(status, float(after) if after.isascii() and after.isdigit() else 0.0)
        redirected = "; redirections are not followed" if 300 <= answer.status < 400 else ""
        raise self._error(f"{status}{redirected}")

    def _cut(self) -> None:
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):  # it was closed in the meantime
                connected.shutdown(socket.SHUT_RDWR)

    def _error(self, text: str) -> JobError:
        return JobError(f"operator {self.name}: {self._sink.url}: {text}")


def _requests(rows: list[Any]) -> Iterator[tuple[str, bytes]]:
    """Return the bodies of requests, each with an id that only the same body has."""
    lines: list[bytes] = []
    size = 0
    for at, row in enumerate(rows):
        line = json.dumps(row, default=plain).encode() + b"\n"
        lines.append(line)
        size += len(line)
        following = at + 1 == len(rows) or len(lines) == _LINES or size >= _BYTES
        if following:
            body = b"".join(lines)
            yield hashlib.blake2b(body, digest_size=16).hexdigest(), body
            lines, size = [], 0
