"""What machines need to join: only those that have it can join, and it is read once."""

from __future__ import annotations

import asyncio
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from goffish.errors import JobError
from goffish.gofs.files import open_folder
from goffish.streaming.hosts.access import Access, stop_server
from goffish.streaming.rented.tickets import NAME, Authority, RunFolder, Ticket, access_of
from goffish.v1 import hosts_pb2_grpc


def ticket_of(authority: Authority) -> Ticket:
    certificate, key = authority.pair()
    return Ticket(
        "127.0.0.1:7070", 2, "flow.py:one", "/here", 0.0, authority.token, certificate, key, authority.certificate
    )


class _Servicer:
    async def Join(self, requests: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "reached")
        yield

    async def Link(self, packets: Any, context: Any) -> Any:
        yield


def reached(server: Access, client: Access) -> str:
    """Return what a client gets from a server: details of the error, or its code."""

    async def ask() -> str:
        served, address = server.serve(_Servicer())
        await served.start()
        channel = client.dial(address)
        call = hosts_pb2_grpc.HostServiceStub(channel).Join(metadata=client.metadata)  # type: ignore[no-untyped-call]
        with suppress(grpc.RpcError):
            await call.read()
        code, details = await call.code(), await call.details()
        await channel.close()
        await stop_server(served)
        return details if code == grpc.StatusCode.FAILED_PRECONDITION else code.name

    return asyncio.run(ask())


def folder_of(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_machines_of_a_run_reach_each_other_and_no_others(tmp_path: Path) -> None:
    """Breaks when a certificate or a token of another run is accepted, or a name does not fit an address."""
    authority, other = Authority(), Authority()
    server = access_of(
        "127.0.0.1:0", authority.token, authority.pair(), authority.certificate, folder_of(tmp_path / "server")
    )
    ticket = ticket_of(authority)
    assert reached(server, ticket.access("127.0.0.1:0", folder_of(tmp_path / "one"))) == "reached"
    foreign = access_of("127.0.0.1:0", authority.token, other.pair(), other.certificate, folder_of(tmp_path / "two"))
    assert reached(server, foreign) == "UNAVAILABLE"
    guessed = access_of("127.0.0.1:0", other.token, other.pair(), authority.certificate, folder_of(tmp_path / "three"))
    assert reached(server, guessed) == "UNAUTHENTICATED"


def test_certificates(tmp_path: Path) -> None:
    """Breaks when a machine gets the right to sign, or keys are readable by others."""
    authority = Authority()
    made = x509.load_pem_x509_certificate(authority.pair()[0].encode())
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert not constraints.value.ca and names.get_values_for_type(x509.DNSName) == [NAME]
    assert authority.pair()[1] != authority.pair()[1]
    ticket_of(authority).access("127.0.0.1:0", tmp_path)
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in tmp_path.iterdir()} == {0}
    ticket = ticket_of(authority)
    assert authority.token not in repr(ticket) and "PRIVATE" not in repr(ticket)


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_a_ticket_is_used_once(tmp_path: Path, scheme: str) -> None:
    """Breaks when secrets stay in storage after a machine has begun."""
    place = f"{scheme}{tmp_path}/run" if not scheme else f"{scheme}{tmp_path.name}/run"
    server, machine = RunFolder(open_folder(place)), RunFolder(open_folder(place))
    ticket = ticket_of(Authority())
    assert machine.take_ticket("one") is None
    server.put_ticket("one", ticket)
    assert machine.take_ticket("one") == ticket
    assert machine.take_ticket("one") is None and open_folder(place).list() == []


def test_files_of_a_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a machine lacks a module of the flow, or a name leads out of its folder."""
    (tmp_path / "inner").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "helper_of_rented.py").write_text("ONE = 1\n")
    (tmp_path / "unused_of_rented.py").write_text("")
    (tmp_path / "flow_of_rented.py").write_text("import helper_of_rented\n")
    __import__("flow_of_rented")
    folder = RunFolder(open_folder(str(tmp_path / "storage")))
    assert folder.put_flow(f"{tmp_path}/flow_of_rented.py:one") == "flow_of_rented.py:one"
    folder.take_flow(tmp_path / "machine")
    assert sorted(one.name for one in (tmp_path / "machine").iterdir()) == ["flow_of_rented.py", "helper_of_rented.py"]
    folder.take_file("../storage", tmp_path / "machine")
    folder.take_file("missing.py", tmp_path / "machine")
    assert len(list((tmp_path / "machine").iterdir())) == 2


def test_names_that_leave_the_folder_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when an object in storage is written outside of the folder of the flow."""
    store = open_folder(str(tmp_path / "storage"))
    store.write("out.py", b"1")
    monkeypatch.setattr(store, "list", lambda: ["flow/../out.py"])
    with pytest.raises(JobError, match=r"flow/\.\./out\.py: leaves the folder of the run"):
        RunFolder(store).take_flow(tmp_path / "here")
    assert not (tmp_path / "out.py").exists()


def test_failures(tmp_path: Path) -> None:
    """Breaks when a machine's text is more than a line, or a file of another form is not refused."""
    store = open_folder(str(tmp_path))
    folder = RunFolder(store)
    assert folder.failure("one") == ""
    folder.put_failure("one", "first\nsecond")
    assert folder.failure("one") == "first second"
    store.write("failures/two.json", b"[]")
    assert folder.failure("two") == ""
