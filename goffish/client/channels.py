"""Connection of a client to a server: address, TLS, token, channel, stubs and retries."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from goffish.addresses import in_digits, is_loopback, split_address
from goffish.errors import GoffishError, InputError
from goffish.v1 import catalog_pb2_grpc, jobs_pb2_grpc, planning_pb2_grpc

#: What gRPC tries again by itself: only methods of which a second call changes nothing. A submission may be tried again
#: if it has a key, which only the clients know to be there; Adapt and PlanAhead change what a session remembers.
#: No streams: of those without an answer gRPC loses sight when their server ends; the clients ask for them again.
_REPEATABLE = {
    "JobService": ("Get", "List", "Cancel", "Log"),
    "PlanningService": ("Plan", "AdviseSpot", "Explain"),
    "CatalogService": (
        "ListCatalogues", "GetPrices", "ListMarkets", "ListDataflows", "ListPolicies", "ListAlgorithms",
    ),
}  # fmt: skip
_RETRIED = {
    "methodConfig": [
        {
            "name": [
                {"service": f"goffish.v1.{service}", "method": method}
                for service, methods in _REPEATABLE.items()
                for method in methods
            ],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.2s",
                "maxBackoff": "5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
#: Seconds between the attempts of a submission, whose key makes it safe to repeat; gRPC's own policy has no
#: condition on a request, and `tenacity` would add a dependency to every client for one loop.
PAUSES_S = (0.2, 0.4, 0.8, 1.6)
#: Seconds between two attempts to reach a server that is away.
PAUSE_S = 1.0
#: How a server looks that is away.
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
MESSAGE_BYTES = 16 << 20
#: Addresses of Unix sockets.
_SOCKETS = ("unix:", "unix-abstract:")
#: A channel that is not encrypted goes to this machine, not through the proxies of the environment.
_NO_PROXY = (("grpc.enable_http_proxy", 0), ("grpc.address_http_proxy_enabled_addresses", ""))
#: Our servers allow a ping of a quiet connection every 20 seconds; others may hang up on more than one in 5 minutes.
_KEEPALIVE_MS = 60_000
#: Longest time between two attempts to connect: a server that is back is found soon.
_RECONNECT_MS = 5_000


class ServiceError(GoffishError):
    """The server rejected or failed a call.

    Attributes
    ----------
    code : grpc.StatusCode
        Status of the call.
    exit_code : int
        Exit code of the command line: 2 for ``INVALID_ARGUMENT`` and ``NOT_FOUND``, otherwise 1.
    """

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.exit_code = 2 if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND) else 1


@dataclass(frozen=True)
class Access:
    """Address and credentials of a server.

    Attributes
    ----------
    address : str
        ``HOST:PORT`` or ``unix:PATH``.
    token : str, optional
        Bearer token.
    authority : path, optional
        CA certificate of the server, for TLS with your own CA [default: the CAs that the computer trusts].
    tls : bool
        Use TLS [default: True with `authority` or `certificate`].
    certificate, key : path, optional
        Client certificate and its key, for mutual TLS.

    Raises
    ------
    InputError
        If the token would be sent unencrypted to another machine.
    """

    address: str
    token: str | None = field(default=None, repr=False)
    authority: str | Path | None = None
    tls: bool = False
    certificate: str | Path | None = None
    key: str | Path | None = None

    def __post_init__(self) -> None:
        if self.token is not None and not self.encrypted and not self.stays_here:
            raise InputError(
                f"server {self.address}: the token would be sent unencrypted; use TLS (--tls or --authority FILE; "
                "tls=True or authority=FILE in Python), a loopback address such as 127.0.0.1:7077, or unix:PATH"
            )

    @property
    def encrypted(self) -> bool:
        """Whether the channel uses TLS."""
        return bool(self.tls or self.authority or self.certificate)

    @property
    def stays_here(self) -> bool:
        """Whether the address is ``HOST:PORT`` with a loopback host, or a Unix socket."""
        found = split_address(self.address)
        return self.address.startswith(_SOCKETS) or (found is not None and is_loopback(found[0]))

    @property
    def target(self) -> str:
        """The address for gRPC; without TLS, ``localhost`` is 127.0.0.1, whatever a name server answers."""
        return self.address if self.encrypted else in_digits(self.address)

    @property
    def credentials(self) -> Any:
        """Of a secure channel; ``None`` for an open one."""
        if not self.encrypted:
            return None
        files = (self.authority, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(None if path is None else _bytes(path) for path in files))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Sent with every call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    @property
    def options(self) -> Iterable[tuple[str, Any]]:
        """Of the channel."""
        return (
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.service_config", json.dumps(_RETRIED)),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
            *(_NO_PROXY if self.stays_here and not self.encrypted else ()),
        )


def _bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def service_error(error: grpc.RpcError) -> ServiceError:
    """The error of a call, as a user reads it."""
    code = error.code()
    text = error.details() or code.name
    if code == grpc.StatusCode.UNAVAILABLE and "connect" in text.lower():
        text = f"the server does not answer ({text.splitlines()[0]})"
    return ServiceError(code, text)


#: Seconds that a call may take, and one that plans: the server ends those after 300 s (`goffish serve --most-plan`).
CALL_S, PLAN_S = 30.0, 330.0


class Connection:
    """A channel and its stubs.

    Parameters
    ----------
    address, token, authority, tls, certificate, key
        See `goffish.client.channels.Access`.
    timeout_s, patience_s : float
        See `Client`.
    """

    #: Where channels are made.
    _room: Any

    def __init__(
        self, address: str, token: str | None = None, *, authority: str | Path | None = None, tls: bool = False,
        certificate: str | Path | None = None, key: str | Path | None = None, timeout_s: float | None = None,
        patience_s: float = 600.0,
    ) -> None:  # fmt: skip
        given = Access(address, token, authority, tls, certificate, key)
        self.metadata, self._timeout_s, self._patience_s = given.metadata, timeout_s, patience_s
        #: Whether the server was ever there.
        self._answered = False
        credentials = given.credentials
        if credentials is None:
            self._channel = self._room.insecure_channel(given.target, options=given.options)
        else:
            self._channel = self._room.secure_channel(given.target, credentials, options=given.options)
        self.jobs: Any = jobs_pb2_grpc.JobServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.planning: Any = planning_pb2_grpc.PlanningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.catalog: Any = catalog_pb2_grpc.CatalogServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _limit(self, usual_s: float | None) -> float | None:
        """Seconds of a call, of which `usual_s` is the default; None has no limit."""
        return self._timeout_s if self._timeout_s is not None and usual_s is not None else usual_s

    def _until(self, error: ServiceError, end: float | None) -> float:
        """When patience ends with a server that is away; it begins with the first error.

        Raises
        ------
        ServiceError
            The same: it has ended, the server was never there, or it is there and refuses.
        """
        now = time.monotonic()
        end = now + self._patience_s if end is None else end
        if error.code not in AWAY or not self._answered or now >= end:
            raise error
        return end


def check_whole(job: str, received: int, total: int) -> None:
    """Refuse a result of which a part is missing: Arrow takes one that ends between two batches for a smaller one.

    Raises
    ------
    ServiceError
    """
    if not total or received != total:
        told = f"the result of job {job} did not come whole: {received:,} of {total:,} bytes; fetch it again"
        raise ServiceError(grpc.StatusCode.DATA_LOSS, told)
