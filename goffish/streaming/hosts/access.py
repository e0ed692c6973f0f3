"""Who may connect: TLS and a token between hosts, and a token on loopback addresses."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from goffish.addresses import check_free, in_digits, is_loopback, split_address
from goffish.errors import InputError
from goffish.v1 import hosts_pb2_grpc

#: Messages are cut into packets of about this size.
PACKET_BYTES = 1 << 20
_LARGEST = 64 << 20
_LEAST_TOKEN = 16
_ENDS_S = 0.5
_UNSPECIFIED = ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class Access:
    """How hosts of a flow reach each other; the same on all of them, but for the certificate and its key.

    Attributes
    ----------
    listen : str
        ``HOST:PORT`` at which other hosts reach this one.
    token : str
        Shared secret.
    certificate, key : Path, optional
        TLS certificate of this host, and its key, in PEM format.
    authority : Path, optional
        Certificate authority of all hosts, in PEM format.
    name : str, optional
        Name in the certificates of all hosts [default: the hosts of their addresses].

    Raises
    ------
    InputError
        Something is missing.
    """

    listen: str
    token: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        found = split_address(self.listen)
        if found is None:
            raise InputError(f"--listen {self.listen}: must be HOST:PORT")
        if found[0] in _UNSPECIFIED:
            raise InputError(f"--listen {self.listen}: must be an address at which other machines reach this one")
        if not self.token:
            raise InputError("--token: missing; all machines of the flow need the same, of at least 16 characters")
        if len(self.token) < _LEAST_TOKEN:
            raise InputError(f"--token: has {len(self.token)} characters; at least {_LEAST_TOKEN} are required")
        given = [self.certificate is not None, self.key is not None, self.authority is not None]
        if any(given) and not all(given):
            raise InputError("--certificate, --key and --authority: give all three, or none on a loopback address")
        if not self.encrypted:
            self.check(self.listen, "--listen")

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.certificate is not None

    def check(self, address: str, option: str) -> None:
        """Raise an error if an address of another machine is used without TLS."""
        found = split_address(address)
        if found is None:
            raise InputError(f"{option} {address}: must be HOST:PORT")
        if not self.encrypted and not is_loopback(found[0]):
            raise InputError(
                f"{option} {address}: other machines need TLS; give --certificate, --key and --authority, or use a "
                "loopback address such as 127.0.0.1:7070"
            )

    def serve(self, servicer: Any) -> tuple[grpc.aio.Server, str]:
        """Return a server that is to be started, and the address at which other hosts reach it.

        Raises
        ------
        InputError
            The address cannot be bound.
        """
        check_free(self.listen, "--listen")
        server = grpc.aio.server(
            interceptors=[_Guard(self.token or "")],
            options=(
                *_SIZES, ("grpc.so_reuseport", 0), ("grpc.http2.max_ping_strikes", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 500),
            ),
        )  # fmt: skip
        hosts_pb2_grpc.add_HostServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        try:
            if self.certificate is None or self.key is None or self.authority is None:
                port = server.add_insecure_port(in_digits(self.listen))
            else:
                pair = _bytes(self.key), _bytes(self.certificate)
                port = server.add_secure_port(self.listen, grpc.ssl_server_credentials([pair]))
        except RuntimeError:
            port = 0
        if not port:
            raise InputError(f"--listen {self.listen}: cannot bind the address; another program may be using it")
        return server, f"{self.listen.rpartition(':')[0]}:{port}"

    def dial(self, address: str, alive_s: float | None = None) -> grpc.aio.Channel:
        """Return a channel to another host.

        Parameters
        ----------
        address : str
        alive_s : float, optional
            Silence after which the connection is given up [default: when the system does].
        """
        options: tuple[tuple[str, Any], ...] = (
            *_SIZES, ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.min_reconnect_backoff_ms", 1000),
        )  # fmt: skip
        if alive_s is not None:
            half = max(500, int(500 * alive_s))
            options += (("grpc.keepalive_time_ms", half), ("grpc.keepalive_timeout_ms", half))
        if self.authority is None:
            return grpc.aio.insecure_channel(in_digits(address), options=options)
        if self.name is not None:
            options += (("grpc.ssl_target_name_override", self.name),)
        credentials = grpc.ssl_channel_credentials(_bytes(self.authority))
        return grpc.aio.secure_channel(address, credentials, options=options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of every call."""
        return (("authorization", f"Bearer {self.token}"),)


async def stop_server(server: grpc.aio.Server, grace_s: float = 0.0) -> None:
    """Stop a server, and wait for what it runs: gRPC prints a traceback for each call whose task is cancelled.

    Parameters
    ----------
    server : grpc.aio.Server
    grace_s : float
        Seconds that calls have to end.
    """
    await server.stop(grace_s)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_ENDS_S)


_SIZES = (("grpc.max_receive_message_length", _LARGEST), ("grpc.max_send_message_length", _LARGEST))


class _Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        given = dict(details.invocation_metadata).get("authorization", "")
        if hmac.compare_digest(str(given).encode(), self._expected):
            return await continuation(details)
        return grpc.stream_stream_rpc_method_handler(_refuse)


async def _refuse(requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not accepted")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
