"""Network addresses that only this machine can reach."""

from __future__ import annotations

import ipaddress
import re

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
