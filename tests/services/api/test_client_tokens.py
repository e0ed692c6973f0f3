"""A token never leaves this machine unencrypted: addresses, names, proxies, every client and command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from goffish.client import AsyncClient, Client, ServiceError
from goffish.client.channels import Access
from goffish.errors import InputError
from tests.commands import assert_refused, call

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "service"
ELSEWHERE = [
    "127.0.0.1.evil.example:7077", "localhost.evil.example:7077", "0.0.0.0:7077", "[::]:7077", "10.0.0.1:7077",
    "server.example:7077", "server.example", "127.1:7077", "2130706433:7077", "0x7f000001:7077", "[::1%eth0]:7077",
    "dns:///127.0.0.1:7077", "dns:localhost:7077", "dns://10.0.0.1/localhost:7077", "ipv4:127.0.0.1:7077,10.0.0.1:7077",
    "ipv6:[::1]:7077,[2001:db8::1]:7077", "xds:///server", "passthrough:///10.0.0.1:7077", "me@10.0.0.1:7077",
    "http://127.0.0.1:7077", "//127.0.0.1:7077", "127.0.0.1:7077/x", "127.0.0.1:7077,10.0.0.1:7077", "127.0.0.1:99999",
    "127.0.0.1:7077\n", " 127.0.0.1:7077", "UNIX:/x", "vsock:2:7077", "localhost", "",
]  # fmt: skip
HERE = ["127.0.0.1:7077", "127.5.5.5:1", "[::1]:7077", "localhost:7077", "LOCALHOST:7077", "unix:/run/x", "unix:7077",
        "unix:///run/x", "unix-abstract:name"]  # fmt: skip


@pytest.mark.parametrize("address", ELSEWHERE)
def test_a_token_is_not_sent_unencrypted(address: str) -> None:
    """Breaks when some way to write an address gets a token out of this machine without TLS."""
    for make in (Client, AsyncClient):
        with pytest.raises(InputError, match="the token would be sent unencrypted; use TLS") as caught:
            make(address, "token")
        assert "token\n" not in str(caught.value)
    assert Access(address, "token", tls=True).credentials is not None
    assert Access(address).metadata == ()


@pytest.mark.parametrize("address", HERE)
def test_tokens_on_this_machine(address: str) -> None:
    """Breaks when a loopback address or a Unix socket needs TLS, or a name of this machine is looked up elsewhere."""
    access = Access(address, "token")
    assert access.credentials is None and "token" not in repr(access)
    assert access.target == address.lower().replace("localhost", "127.0.0.1") or not address.lower().startswith("local")

    async def asynchronous() -> None:
        await AsyncClient(address, "token").close()

    Client(address, "token").close()
    asyncio.run(asynchronous())


@pytest.mark.parametrize("command", [["jobs", "list"], ["jobs", "submit", "components", "x"], ["top", "--once"]])
def test_commands_refuse_in_one_line(command: list[str]) -> None:
    """Breaks when a command sends the token of its environment to an address that others can listen at."""
    found = call(*command, variables={"GOFFISH_TOKEN": "s3cr3t", "GOFFISH_SERVER": "server.example:7077"})
    assert_refused(found)
    assert found.err.startswith("error: server server.example:7077: the token would be sent unencrypted; use TLS")
    assert "s3cr3t" not in found.err


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, list[bytes]]]:
    """A port of this machine, and the beginnings of what was sent to it."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    heard.append(connection.recv(4096))
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1], heard


_CALL = """
import sys
from goffish.client import Client, ServiceError
with Client(sys.argv[1], "s3cr3t", timeout_s=1.5) as client:
    try:
        client.job("x")
    except ServiceError:
        print("refused")
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_proxies_are_not_used_for_this_machine(host: str) -> None:
    """Breaks when a proxy of the environment gets the token of a server on this machine."""
    with listening() as (proxy, heard), listening() as (server, called):
        names = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        environment = os.environ | dict.fromkeys(names, f"http://127.0.0.1:{proxy}")
        environment |= {"GRPC_ADDRESS_HTTP_PROXY": f"127.0.0.1:{proxy}", "no_proxy": "", "NO_PROXY": ""}
        environment |= {"GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES": "127.0.0.0/8,::1/128"}
        found = subprocess.run(
            [sys.executable, "-c", _CALL, f"{host}:{server}"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout == "refused\n"
        assert called and heard == []


@pytest.mark.parametrize("address", ["server.example:7077", "127.0.0.1.evil.example:7077", "dns:///x:1"])
def test_the_shell_example_refuses_too(address: str) -> None:
    """Breaks when the example for shells sends a token unencrypted."""
    environment = os.environ | {"GOFFISH_TOKEN": "s3cr3t", "GOFFISH_SERVER": address}
    command = ["sh", str(EXAMPLES / "grpcurl.sh"), "list"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 2 and "would be sent unencrypted" in found.stderr


def test_without_a_token_nothing_is_refused() -> None:
    """Breaks when an address is refused to a client that has nothing to hide."""
    with Client("192.0.2.1:7077", timeout_s=0.1) as client, pytest.raises(ServiceError):
        client.job("x")
