"""Network addresses: which ones only this machine can reach, and whether they can be bound."""

from __future__ import annotations

import ipaddress
import re
import socket

from goffish.errors import InputError

_NAMED = re.compile(r"(?P<host>[^\s:\[\]]+|\[[^\s\[\]]+\]):(?P<port>[0-9]{1,5})", re.ASCII)


def split_address(address: str) -> tuple[str, int] | None:
    """The host, without brackets, and the port of ``HOST:PORT``; ``None`` for anything else."""
    found = _NAMED.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        return None
    return found["host"].strip("[]"), int(found["port"])


def in_digits(address: str) -> str:
    """``HOST:PORT`` with 127.0.0.1 for ``localhost``, whatever a name server or a hosts file answers."""
    found = split_address(address)
    return f"127.0.0.1:{found[1]}" if found is not None and found[0].lower() == "localhost" else address


def check_free(address: str, option: str) -> None:
    """Raise an error if an address cannot be bound, which gRPC would also print in a line that says less.

    Raises
    ------
    InputError
        Names the option that has the address.
    """
    host, _, port = in_digits(address).rpartition(":")
    errors = []
    try:
        for family, kind, protocol, _, found in socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        ):
            try:
                with socket.socket(family, kind, protocol) as tried:
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
                    tried.bind(found)
                    return
            except OSError as error:
                errors.append(error)
    except OSError as error:
        errors.append(error)
    reason = (errors[0].strerror or str(errors[0])).lower()
    raise InputError(f"{option} {address}: cannot bind the address ({reason})")


def is_loopback(host: str) -> bool:
    """Whether a host is ``localhost`` or a loopback address. Other names are not looked up: answers can change.

    What is accepted without TLS is opened by `in_digits`.
    """
    if host.lower() == "localhost":
        return True
    try:
        # An IPv6 zone ("::1%eth0") names another interface.
        return "%" not in host and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
