"""Servers that others can reach: TLS, certificates of clients, what is refused; and starting, stopping, dying."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import trustme
import yaml
from typer.testing import CliRunner

from goffish.cli.app import app
from goffish.client import Client, ServiceError
from goffish.errors import GoffishError, InputError
from goffish.services.api.clients import add_client, digest, read_clients, remove_client, rotate_token
from goffish.services.api.settings import Settings
from goffish.services.app import Server, bind
from goffish.services.web.dashboard import Dashboard
from goffish.v1 import jobs_pb2, jobs_pb2_grpc
from tests.services.api.serving import RealServer, serving

Code = grpc.StatusCode
DAY = datetime.timedelta(days=1)


class Room:
    """A folder with certificates, a file of clients, and two servers: one with TLS, one that asks for certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.people, self.stranger = trustme.CA(), trustme.CA(), trustme.CA()
        for name, one in (("authority", self.authority), ("people", self.people), ("stranger", self.stranger)):
            one.cert_pem.write_to_path(folder / f"{name}.pem")
        self.write("server", self.authority.issue_cert("localhost", "127.0.0.1"))
        now = datetime.datetime.now(datetime.UTC)
        self.write("etl", self.people.issue_cert("etl.example", common_name="etl"))
        self.write("viewer", self.people.issue_cert("viewer.example", common_name="viewer"))
        self.write("unknown", self.people.issue_cert("x.example", common_name="nobody"))
        self.write("foreign", self.stranger.issue_cert("etl.example", common_name="etl"))
        self.write(
            "expired",
            self.people.issue_cert("etl.example", common_name="etl", not_before=now - 2 * DAY, not_after=now - DAY),
        )
        self.token = add_client(folder / "clients.yaml", "ann", "submit")
        add_client(folder / "clients.yaml", "pipeline", "submit", "etl")
        add_client(folder / "clients.yaml", "screen", "read", "viewer")

    def write(self, name: str, leaf: trustme.LeafCert) -> None:
        """A certificate and its key."""
        for at, part in enumerate(leaf.cert_chain_pems):
            part.write_to_path(self.folder / f"{name}.pem", append=at > 0)
        leaf.private_key_pem.write_to_path(self.folder / f"{name}.key")

    def path(self, name: str) -> str:
        """One of the files."""
        return str(self.folder / name)

    @property
    def options(self) -> list[str]:
        """Of a server with TLS."""
        named = {"--certificate": "server.pem", "--key": "server.key", "--clients": "clients.yaml"}
        return ["--grace", "1", *(part for name, file in named.items() for part in (name, self.path(file)))]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls(room: Room, data: Path) -> Iterator[RealServer]:
    """A server with TLS that others can reach, for clients with tokens."""
    with serving(room.folder / "home", data, *room.options, listen="0.0.0.0:0") as server:
        server.address = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        yield server


@pytest.fixture(scope="module")
def mutual(room: Room, data: Path) -> Iterator[RealServer]:
    """A server that asks for certificates of clients."""
    options = (*room.options, "--client-authority", room.path("people.pem"))
    with serving(room.folder / "mutual", data, *options, listen="127.0.0.1:0") as server:
        yield server


def code_of(call: Callable[[], Any]) -> grpc.StatusCode:
    """What a call is refused with; in seconds, whatever it is."""
    began = time.monotonic()
    with pytest.raises(ServiceError) as caught:
        call()
    assert time.monotonic() - began < 15 and "\n" not in str(caught.value)
    return caught.value.code


def unreachable(address: str, credentials: grpc.ChannelCredentials | None) -> None:
    """A call over a connection that does not come about ends with an error, and long before its deadline."""
    options = (("grpc.enable_retries", 0),)
    channel = (
        grpc.insecure_channel(address, options=options)
        if credentials is None
        else grpc.secure_channel(address, credentials, options=options)
    )
    with channel, pytest.raises(grpc.RpcError) as caught:
        jobs_pb2_grpc.JobServiceStub(channel).Get(jobs_pb2.GetRequest(id="x"), timeout=10)
    assert caught.value.code() == Code.UNAVAILABLE


def test_tokens_over_tls(tls: RealServer, room: Room) -> None:
    """Breaks when a client cannot reach a server by TLS, or one without a token can."""
    with Client(tls.address, room.token, authority=room.path("authority.pem")) as ann:
        job = ann.wait(ann.submit_graph("components", "store").id)
        assert job.state == jobs_pb2.JOB_STATE_DONE and job.client == "ann"
    for token in (None, "wrong"):
        with Client(tls.address, token, authority=room.path("authority.pem")) as nobody:
            assert code_of(lambda nobody=nobody: nobody.job("x")) == Code.UNAUTHENTICATED


def test_servers_that_are_not_trusted(tls: RealServer, room: Room) -> None:
    """Breaks when a token could go to somebody who only says that it is the server, or a wrong client would hang."""
    unreachable(tls.address, None)
    for authority in ((room.folder / "stranger.pem").read_bytes(), None):
        unreachable(tls.address, grpc.ssl_channel_credentials(authority))


def test_a_server_that_does_not_speak_tls(server_without_tls: str, room: Room) -> None:
    """Breaks when a client that wants TLS goes on without it."""
    unreachable(server_without_tls, grpc.ssl_channel_credentials((room.folder / "authority.pem").read_bytes()))


@pytest.fixture
def server_without_tls(room: Room) -> Iterator[str]:
    """Takes connections and says nothing that TLS would say."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def certified(server: RealServer, room: Room, name: str, token: str | None = None) -> Client:
    access = {"authority": room.path("authority.pem"), "certificate": room.path(f"{name}.pem")}
    return Client(server.address, token, **access, key=room.path(f"{name}.key"))


def test_certificates_of_clients(mutual: RealServer, room: Room) -> None:
    """Breaks when the common name of a certificate does not say who it is, and what that one may do."""
    with certified(mutual, room, "etl") as pipeline, certified(mutual, room, "viewer") as screen:
        job = pipeline.submit_graph("components", "store")
        assert job.client == "pipeline" and screen.job(job.id).client == "pipeline"
        for call in (lambda: screen.submit_graph("components", "store"), lambda: screen.cancel(job.id)):
            assert code_of(call) == Code.PERMISSION_DENIED
        assert pipeline.cancel(job.id).id == job.id
    with certified(mutual, room, "unknown") as nobody:
        assert code_of(lambda: nobody.job("x")) == Code.UNAUTHENTICATED
    with certified(mutual, room, "etl", token="wrong") as confused:
        assert code_of(lambda: confused.job("x")) == Code.UNAUTHENTICATED


@pytest.mark.parametrize("name", ["foreign", "expired", None])
def test_certificates_that_are_refused(mutual: RealServer, room: Room, name: str | None) -> None:
    """Breaks when a certificate of another authority, one that has expired, or none at all, is let in."""
    mine = (None, None)
    if name is not None:
        mine = ((room.folder / f"{name}.key").read_bytes(), (room.folder / f"{name}.pem").read_bytes())
    unreachable(mutual.address, grpc.ssl_channel_credentials((room.folder / "authority.pem").read_bytes(), *mine))


def start_refused(*options: str) -> tuple[int, str]:
    """Exit code and the line that a server says which does not start."""
    command = [sys.executable, "-m", "goffish", "serve", *options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == ""
    lines = found.stderr.splitlines()
    assert len(lines) == 1, found.stderr
    return found.returncode, lines[0]


@pytest.mark.slow
def test_the_command_refuses_in_one_line(room: Room, tmp_path: Path) -> None:
    """Breaks when a server that others can reach starts without TLS, or its refusal is no line and no exit code."""
    code, line = start_refused("--home", str(tmp_path / "home"), "--listen", "0.0.0.0:0")
    assert code == 2 and line.startswith("error: --listen 0.0.0.0:0: not a loopback address")
    assert not (tmp_path / "home").exists()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, line = start_refused("--home", str(tmp_path / "home"), "--listen", address)
    assert (code, line) == (2, f"error: --listen {address}: cannot bind the address (address already in use)")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"listen": "0.0.0.0:0"}, "--certificate"),
        ({"listen": "[::]:0"}, "--certificate"),
        ({"listen": "10.1.2.3:7077"}, "--certificate"),
        ({"listen": "server.example:7077"}, "--certificate"),
        ({"listen": "0.0.0.0:0", "clients": Path("c")}, "--certificate"),
        ({"listen": "0.0.0.0:0", "certificate": Path("c"), "key": Path("k")}, "--clients"),
        ({"certificate": Path("c")}, "--key"),
        ({"client_authority": Path("c")}, "--certificate"),
        ({"client_authority": Path("c"), "certificate": Path("c"), "key": Path("k")}, "--clients"),
        ({"web": "0.0.0.0:8080"}, "--web"),
        ({"listen": "127.0.0.1"}, "HOST:PORT"),
        ({"listen": "127.0.0.1:99999"}, "HOST:PORT"),
    ],
)
def test_what_a_server_refuses_to_be(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    """Breaks when some way to listen to others, or to half of TLS, gets around the checks."""
    with pytest.raises(InputError, match=told) as caught:
        Settings(home=tmp_path, **settings)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.5.5.5:0", "localhost:0", "[::1]:0", "unix:/x/y"])
def test_this_computer_needs_no_tls(tmp_path: Path, listen: str) -> None:
    assert Settings(home=tmp_path, listen=listen).clients is None


def test_clients_are_added(tmp_path: Path) -> None:
    """Breaks when a token can be read from the file, is not the one that was printed, or others can read the file."""
    file = tmp_path / "clients.yaml"

    def add(*given: str) -> Any:
        return CliRunner().invoke(app, ["clients", "add", *given, "--file", str(file)])

    token = add("ann", "--role", "admin").stdout.strip()
    assert len(token) >= 43 and token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert add("etl", "--common-name", "etl.example").exit_code == 0
    both = add("both", "--common-name", "both.example", "--with-token").stdout.strip()
    assert isinstance(add("ann").exception, InputError) and isinstance(
        add("x", "--role", "root").exception, GoffishError
    )
    assert yaml.safe_load(file.read_text())["clients"] == [
        {"name": "ann", "role": "admin", "token_sha256": digest(token)},
        {"name": "etl", "role": "submit", "certificate": "etl.example"},
        {"name": "both", "role": "submit", "token_sha256": digest(both), "certificate": "both.example"},
    ]
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(InputError, match="chmod 600"):
            read_clients(file)


@pytest.mark.parametrize(
    ("mode", "group", "accepted"),
    [(0o440, True, True), (0o640, True, True), (0o440, False, False), (0o460, True, False), (0o444, True, False)],
)
def test_secrets_of_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: bool, accepted: bool
) -> None:
    """Breaks when a server that reads root's file as a member of its group refuses it, or all can read it."""
    file = tmp_path / "clients.yaml"
    add_client(file, "ann", "submit")
    file.chmod(mode)
    owner = file.stat()
    monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid + 10001)
    monkeypatch.setattr(os, "getegid", lambda: owner.st_gid if group else owner.st_gid + 1)
    monkeypatch.setattr(os, "getgroups", list)
    if accepted:
        assert [client.name for client in read_clients(file).clients] == ["ann"]
    else:
        with pytest.raises(InputError, match="chmod 600"):
            read_clients(file)


@pytest.mark.slow
def test_clients_are_listed_rotated_and_removed(tmp_path: Path) -> None:
    """Breaks when a client cannot be locked out or get a new token by a command, or the file loses others."""
    file = tmp_path / "clients.yaml"

    def clients(*given: str) -> Any:
        found = CliRunner().invoke(app, ["clients", *given, "--file", str(file)])
        assert found.exception is None or isinstance(found.exception, InputError), found.exception
        return found

    for command in (("list",), ("remove", "ann"), ("rotate", "ann")):
        assert str(file) in str(clients(*command).exception) and not file.exists()
    tokens = {name: clients("add", name).stdout.strip() for name in ("ann", "bob")}
    clients("add", "etl", "--common-name", "etl.example", "--role", "read")
    new = clients("rotate", "ann").stdout.strip()
    assert len(new) >= 43 and new not in tokens.values()
    assert [c.token_sha256 for c in read_clients(file).clients] == [digest(new), digest(tokens["bob"]), None]
    assert "'etl' has a certificate but no token" in str(clients("rotate", "etl").exception)
    assert "unknown client 'eve'; clients: ann, bob, etl" in str(clients("remove", "eve").exception)
    assert clients("remove", "bob").stdout == f"bob removed from {file}\n"
    assert json.loads(clients("list", "--json").stdout) == {"clients": [
        {"name": "ann", "role": "submit", "token": True, "certificate": None},
        {"name": "etl", "role": "read", "token": False, "certificate": "etl.example"},
    ]}  # fmt: skip
    shown = clients("list").stdout
    assert "ann" in shown and "etl.example" in shown and new not in shown and digest(new) not in shown
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and [one.name for one in tmp_path.iterdir()] == ["clients.yaml"]


def test_clients_that_are_added_at_once(tmp_path: Path) -> None:
    """Breaks when two commands that change the file lose one of the clients."""
    file = tmp_path / "clients.yaml"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_client(file, f"c{number}", "read"), range(24)))
    assert len(read_clients(file).clients) == 24


@pytest.mark.slow
def test_clients_change_while_it_runs(tmp_path: Path, data: Path) -> None:
    """Breaks when a token that leaked is good until the next start, or a file with a mistake lets nobody in."""
    file = tmp_path / "clients.yaml"
    first = add_client(file, "first", "read")

    def is_let_in(token: str) -> bool:
        with server.client(token) as client:
            try:
                list(client.list())
            except ServiceError as error:
                assert error.code == Code.UNAUTHENTICATED
                return False
        return True

    def comes_to(expected: bool, token: str) -> bool:
        end = time.monotonic() + 15
        while is_let_in(token) != expected and time.monotonic() < end:
            time.sleep(0.1)
        return is_let_in(token) == expected

    with serving(tmp_path / "home", data, "--clients", str(file), "--grace", "1") as server:
        second = add_client(file, "second", "read")
        assert comes_to(True, second) and is_let_in(first)
        file.write_text("clients: [{name: first}]\n")
        time.sleep(2.5)
        assert is_let_in(first) and "client file not reloaded" in server.log.read_text()
        file.write_text(yaml.safe_dump({"clients": [{"name": "s", "role": "read", "token_sha256": digest(second)}]}))
        assert comes_to(False, first) and is_let_in(second)
        file.chmod(0o600)
        third = rotate_token(file, "s")
        assert comes_to(False, second) and comes_to(True, third)
        remove_client(file, "s")
        assert comes_to(False, third)


def test_a_file_of_clients_that_others_can_read(tmp_path: Path) -> None:
    """Breaks when a server starts with it."""
    file = tmp_path / "clients.yaml"
    add_client(file, "ann", "read")
    file.chmod(0o644)
    server = Server(Settings(home=tmp_path / "home", listen="127.0.0.1:0", clients=file))
    with pytest.raises(InputError, match=f"chmod 600 {file}"):
        asyncio.run(asyncio.wait_for(server.run(), 20))


@pytest.mark.slow
def test_stopping_and_starting_again(tmp_path: Path, data: Path) -> None:
    """Breaks when a server that is asked to stop loses a job, hangs, or tells its watchers nothing; or when two of them
    can work at one folder. (Servers that are killed: test_killed.)"""
    server = RealServer(tmp_path / "home", data, "--grace", "0.5").start()
    try:
        assert server.address.startswith("unix:")
        assert stat.S_IMODE(Path(server.address[5:]).stat().st_mode) & 0o002 == 0, "others can connect"
        code, line = start_refused("--home", str(server.home), "--listen", "127.0.0.1:0")
        assert code == 1 and "in use by another server" in line
        with server.client() as client:
            steps = {"tolerance": "1e-300", "max_iterations": "3000"}
            job = client.submit_graph("pagerank", "store", steps, checkpoint_every=5)
            stream = client.jobs.Watch(jobs_pb2.WatchRequest(id=job.id))
            progress = (one.event for one in stream if one.event.kind == "progress")
            seen = [next(progress), next(progress)]
            asked = time.monotonic()
            assert server.process is not None
            server.process.terminate()
            with pytest.raises(grpc.RpcError) as caught:
                seen += [one.event for one in stream]
            assert caught.value.code() == Code.UNAVAILABLE
            assert server.stop() == 0 and time.monotonic() - asked < 15
            assert server.workers() == []
            server.start()
            events = list(client.watch(job.id, seen[-1].number))
            queued = [event for event in events if event.state == jobs_pb2.JOB_STATE_QUEUED]
            assert len(queued) == 1 and "server shutting down" in queued[0].text
            assert [event.number for event in events] == list(range(seen[-1].number + 1, events[-1].number + 1))
            told = [event.text for event in seen + events if event.kind == "progress"]
            steps_told = [int(text.split()[-1]) for text in told]
            assert steps_told == sorted(steps_told), "it began again at the beginning"
            done = client.job(job.id)
            assert done.state == jobs_pb2.JOB_STATE_DONE and done.attempts == 2
            assert client.result(job.id).num_rows == 400
    finally:
        server.stop()


def test_localhost_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a server without TLS listens where a hosts file or a name server sends ``localhost``."""
    opened: list[Any] = []
    server = SimpleNamespace(add_insecure_port=lambda address: opened.append(address) or 7)
    assert bind(server, Settings(tmp_path, listen="LocalHost:0")) == 7
    monkeypatch.setattr(socket, "create_server", lambda address, family: opened.append(address))
    with contextlib.suppress(AttributeError):  # there is no socket whose port it could ask for
        Dashboard("localhost:7078", None)  # type: ignore[arg-type]
    assert opened == ["127.0.0.1:0", ("127.0.0.1", 7078)]
