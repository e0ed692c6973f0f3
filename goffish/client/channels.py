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
from goffish.v1 import (
    catalog_pb2_grpc,
    flows_pb2_grpc,
    graphs_pb2_grpc,
    jobs_pb2_grpc,
    planning_pb2_grpc,
    records_pb2_grpc,
)

#: Methods that gRPC retries: idempotent ones only. The clients retry submissions, which have an idempotency key, and
#: streams, which gRPC does not retry reliably. Adapt and PlanAhead change the state of a session and are not retried.
_REPEATABLE = {
    "JobService": ("Get", "List", "Cancel", "Log"),
    "FlowService": ("ListFlows", "GetFlowMetrics", "StopFlow", "ScaleFlow", "SwitchAlternate"),
    "LiveGraphService": ("ListTopics",),
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
#: Pauses between attempts of a submission, in seconds. gRPC's retry policy cannot depend on the request.
PAUSES_S = (0.2, 0.4, 0.8, 1.6)
#: Seconds between attempts to reach an unavailable server.
PAUSE_S = 1.0
#: Status codes of an unavailable server.
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
MESSAGE_BYTES = 16 << 20
#: Prefixes of Unix socket addresses.
_SOCKETS = ("unix:", "unix-abstract:")
#: Unencrypted channels stay on this machine and bypass proxies.
_NO_PROXY = (("grpc.enable_http_proxy", 0), ("grpc.address_http_proxy_enabled_addresses", ""))
#: Keepalive interval. GoFFish servers accept a ping every 20 s; others may close the connection after frequent pings.
_KEEPALIVE_MS = 60_000
#: Maximum time between connection attempts.
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
        """Whether the address is a loopback ``HOST:PORT`` or a Unix socket."""
        found = split_address(self.address)
        return self.address.startswith(_SOCKETS) or (found is not None and is_loopback(found[0]))

    @property
    def target(self) -> str:
        """Address for gRPC; without TLS, ``localhost`` is 127.0.0.1 regardless of name resolution."""
        return self.address if self.encrypted else in_digits(self.address)

    @property
    def credentials(self) -> Any:
        """Credentials of a TLS channel; ``None`` without TLS."""
        if not self.encrypted:
            return None
        files = (self.authority, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(None if path is None else _bytes(path) for path in files))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of every call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    @property
    def options(self) -> Iterable[tuple[str, Any]]:
        """Options of the channel."""
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
    """Convert a gRPC error to a `ServiceError`."""
    code = error.code()
    text = error.details() or code.name
    if code == grpc.StatusCode.UNAVAILABLE and "connect" in text.lower():
        text = f"cannot connect to the server ({text.splitlines()[0]})"
    return ServiceError(code, text)


#: Timeouts of calls and of planning calls, which the server ends after 300 s (`goffish serve --max-plan-time`).
CALL_S, PLAN_S = 30.0, 330.0
#: Of changes of running flows, which have to answer several requests within 20 s each.
CHANGE_S = 70.0


class Connection:
    """Channel and stubs of a client.

    Parameters
    ----------
    address, token, authority, tls, certificate, key
        See `goffish.client.channels.Access`.
    timeout_s, patience_s : float
        See `Client`.
    """

    #: Module that creates channels.
    _transport: Any

    def __init__(
        self, address: str, token: str | None = None, *, authority: str | Path | None = None, tls: bool = False,
        certificate: str | Path | None = None, key: str | Path | None = None, timeout_s: float | None = None,
        patience_s: float = 600.0,
    ) -> None:  # fmt: skip
        given = Access(address, token, authority, tls, certificate, key)
        self.metadata, self._timeout_s, self._patience_s = given.metadata, timeout_s, patience_s
        #: Whether the server has ever answered.
        self._answered = False
        credentials = given.credentials
        if credentials is None:
            self._channel = self._transport.insecure_channel(given.target, options=given.options)
        else:
            self._channel = self._transport.secure_channel(given.target, credentials, options=given.options)
        self.jobs: Any = jobs_pb2_grpc.JobServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.planning: Any = planning_pb2_grpc.PlanningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.flows: Any = flows_pb2_grpc.FlowServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.graphs: Any = graphs_pb2_grpc.LiveGraphServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.records: Any = records_pb2_grpc.RecordServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.catalog: Any = catalog_pb2_grpc.CatalogServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _limit(self, usual_s: float | None) -> float | None:
        """Return the timeout of a call, by default `usual_s`; ``None`` is unlimited."""
        return self._timeout_s if self._timeout_s is not None and usual_s is not None else usual_s

    def _until(self, error: ServiceError, end: float | None) -> float:
        """Return the time at which retries end, counted from the first error.

        Raises
        ------
        ServiceError
            `error`, if the time is over, the server has never answered, or the error is not transient.
        """
        now = time.monotonic()
        end = now + self._patience_s if end is None else end
        if error.code not in AWAY or not self._answered or now >= end:
            raise error
        return end


def check_whole(job: str, received: int, total: int) -> None:
    """Reject a truncated result; Arrow does not detect truncation between two batches.

    Raises
    ------
    ServiceError
    """
    if not total or received != total:
        text = f"result of job {job} is incomplete: {received:,} of {total:,} bytes received; download it again"
        raise ServiceError(grpc.StatusCode.DATA_LOSS, text)
