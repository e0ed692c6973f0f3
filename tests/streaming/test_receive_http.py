"""Records that clients push over HTTP: what is acknowledged is processed once, and hostile clients do no harm."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

from goffish import stream
from goffish.errors import CheckpointError, InputError, JobError
from goffish.streaming import http_source, received
from goffish.streaming.flow import Flow
from goffish.streaming.topology import SourceOptions
from tests.streaming.pushing import ARROW, JSON, LINES, Answer, Receiving, arrow_stream, await_, free_port, post

TOKEN = "a-token-of-some-length"


class Running(Receiving):
    """A flow that receives requests."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(stream.receive_http, folder, **options)


@contextmanager
def receiving(folder: Path, **options: Any) -> Iterator[Running]:
    with closing(Running(folder, **options)) as running:
        yield running


def test_the_forms_of_records(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2], "s": ["a", None]})
    with receiving(tmp_path) as running:
        assert post(running.port, b'{"a": 1}\n\n"b"\r\n') == (200, post_headers(14), {"records": 2})
        assert post(running.port, b'[1, {"c": null}]', f"{JSON}; charset=utf-8").body == {"records": 2}
        assert post(running.port, b'{"d": 1.5}', JSON).body == {"records": 1}
        assert post(running.port, arrow_stream(table), ARROW).body == {"records": 2}
        assert post(running.port, iter([b'{"e"', b": 1}\n"])).body == {"records": 1}
        assert post(running.port, b"\n\n").body == {"records": 0}
        assert post(running.port, b"", path="/healthz", method="GET").body == {"status": "ok"}
        values = [{"a": 1}, "b", 1, {"c": None}, {"d": 1.5}, *table.to_pylist(), {"e": 1}]
        assert running.await_values(8) == values


def post_headers(length: int) -> dict[str, str]:
    return {"content-type": "application/json", "content-length": f"{length + 1}"}


@pytest.mark.parametrize(
    ("body", "kind", "status", "message"),
    [
        (b'{"a": 1}\n{"a": 2\n{"a": 3}\n', LINES, 400, "line 2: not a JSON value"),
        (b"[1, 2", JSON, 400, "line 1: not a JSON value"),
        (b"ARROW1 or so", ARROW, 400, "not an Arrow IPC stream"),
        (b"1\n", "text/plain", 415, "Content-Type: accepted are application/x-ndjson, application/json"),
        (b"1" * 1025, LINES, 413, "1,025 bytes; accepted are 1,024 at most"),
        (iter([b"1" * 1000, b"1" * 1000]), LINES, 413, "more than 1,024 bytes"),
    ],
)
def test_requests_that_are_not_accepted(tmp_path: Path, body: bytes, kind: str, status: int, message: str) -> None:
    """Breaks when a part of a malformed request is accepted, or the answer does not name the line."""
    with receiving(tmp_path, max_body=1024) as running:
        answer = post(running.port, body, kind)
        assert answer.status == status
        assert answer.body["error"].startswith(message)
        assert post(running.port, b'"next"').status == 200
        assert running.await_values(1) == ["next"]


def test_other_requests(tmp_path: Path) -> None:
    with receiving(tmp_path) as running:
        port = running.port
        assert post(port, b"1", Content_Encoding="gzip").status == 415
        assert post(port, b"1", path="/other").status == 404
        refused = post(port, b"1", method="PUT")
        assert (refused.status, refused.headers["allow"]) == (405, "POST")
        assert post(port, b"1", path="/healthz").headers["allow"] == "GET"
        assert post(port, b"1", Origin="http://localhost:1234").status == 403
        assert post(port, b"1", Idempotency_Key="x" * 256).status == 400
        assert post(port, b"2").status == 200
        assert running.await_values(1) == [2]


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_TOKEN", TOKEN)
    with receiving(tmp_path, token="env:INGEST_TOKEN") as running:
        port = running.port
        for header in ("", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer", "Bearer \u00ff"):
            refused = post(port, b"1", Authorization=header)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert post(port, b"2", Authorization=f"Bearer {TOKEN}").status == 200
        assert post(port, b"3", Authorization=f"bearer  {TOKEN} ", Origin="http://x.example").status == 200
        assert post(port, b"", path="/healthz", method="GET").status == 200
        assert running.await_values(2) == [2, 3]


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued = authority.issue_cert("localhost")
    certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    context = ssl.create_default_context()
    with receiving(tmp_path, tls=(certificate, key), token=TOKEN) as running:
        with pytest.raises(ssl.SSLCertVerificationError):
            post(running.port, b"1", tls=context)
        with pytest.raises(OSError):
            post(running.port, b"1")
        authority.configure_trust(context)
        assert post(running.port, b"2", tls=context).status == 401
        assert post(running.port, b"3", tls=context, Authorization=f"Bearer {TOKEN}").status == 200
        assert running.await_values(1) == [3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bind": "0.0.0.0:8080"}, "bind = '0.0.0.0:8080': not a loopback address; requires tls="),
        ({"bind": "0.0.0.0:8080", "token": TOKEN}, "not a loopback address"),
        ({"bind": "example.com:8080", "tls": ("a", "b")}, "not a loopback address"),
        ({"bind": "8080"}, "accepted is HOST:PORT"),
        ({"bind": "127.0.0.1:0"}, "a port of 1 to 65535"),
        ({"tls": ("a",)}, "accepted are the files of a certificate and its key"),
        ({"max_body": 10}, "max_body = 10: must be at least 1,024 bytes"),
        ({"max_waiting": 1 << 20}, "max_waiting = 1048576: must be at least 8,388,608 bytes"),
        ({"max_journal": 1 << 20}, "max_journal = 1048576: must be at least 134,217,728 bytes"),
        ({"timeout": 0}, "timeout = 0: must be a positive duration"),
        ({"journal": "s3://bucket/journal"}, "URIs are not supported here"),
    ],
)
def test_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        stream.receive_http(**options)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token": "env:NOT_SET_ANYWHERE"}, "the environment variable NOT_SET_ANYWHERE is not set"),
        ({"token": "short"}, "must have at least 16 ASCII characters"),
        ({"tls": ("no.pem", "no.key")}, "tls: no.pem, no.key: cannot be used (No such file or directory)"),
        ({"journal": __file__}, "is a file; name a folder"),
    ],
)
def test_what_is_checked_before_a_run(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    flow = Flow("receives")
    flow.source(stream.receive_http(f"127.0.0.1:{free_port()}", **options)).sink(stream.collect())
    assert TOKEN not in repr(stream.receive_http(token=TOKEN))
    with pytest.raises(InputError) as error:
        flow.run(checkpoint=tmp_path)
    assert message in str(error.value)


def test_an_address_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        flow = Flow("receives")
        port = other.getsockname()[1]
        flow.source(stream.receive_http(f"127.0.0.1:{port}")).sink(stream.collect())
        with pytest.raises(InputError, match=f"cannot bind 127.0.0.1:{port}: address already in use"):
            flow.run(checkpoint=tmp_path)


def test_requests_with_one_key(tmp_path: Path) -> None:
    """Breaks when the repetition of a request counts twice, at once, later or after a restart."""
    first = Running(tmp_path, blocked=True)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(first.port, b'"a"\n"a"', Idempotency_Key="k1"), range(16)))
    assert {(one.status, one.body["records"]) for one in answers} == {(200, 2)}
    first.blocked.set()
    first.await_values(2)
    assert post(first.port, b'"a"\n"a"', Idempotency_Key="k1").body == {"records": 2}
    assert post(first.port, b'"b"', Idempotency_Key="k1").status == 422
    first.run.stop()
    with receiving(tmp_path) as second:
        assert post(second.port, b'"a"\n"a"', Idempotency_Key="k1").status == 200
        assert post(second.port, b'"b"', Idempotency_Key="k2").status == 200
        assert second.await_values(1) == ["b"]
    assert first.seen.values == ["a", "a"]


def test_keys_without_a_journal(tmp_path: Path) -> None:
    with receiving(tmp_path, journal=False) as running:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(running.port, b'"a"', Idempotency_Key="k"), range(16)))
        assert {(one.status, one.body["records"]) for one in answers} <= {(202, 1)}
        assert post(running.port, b'"b"').status == 202
        running.await_values(2)
        assert running.seen.values == ["a", "b"]


def test_a_flow_that_is_slow(tmp_path: Path) -> None:
    """Breaks when the records that wait are not bounded, or are not accepted again afterwards."""
    with receiving(tmp_path, blocked=True, max_body=1024, max_waiting=4096) as running:
        body, accepted = json.dumps("x" * 900).encode(), 0
        while (answer := post(running.port, body)).status == 200:
            accepted += 1
            assert accepted < 20
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        running.blocked.set()
        running.await_values(accepted)
        await_(lambda: post(running.port, body).status == 200)


def test_a_journal_that_is_full(tmp_path: Path) -> None:
    """Breaks when the disk of the journal is not bounded, or its space is not used again after a checkpoint."""
    with receiving(tmp_path, max_body=1024, max_waiting=1 << 20, max_journal=16 * 1024, blocked=True) as running:
        body, accepted = json.dumps("x" * 900).encode(), 0
        while (answer := post(running.port, body)).status == 200:
            accepted += 1
            assert accepted < 30
        assert answer.body["error"].startswith("the journal is full until the next checkpoint")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        running.blocked.set()
        for _ in range(40):
            await_(lambda: post(running.port, body).status == 200)
        running.await_values(accepted + 40)
        files = list((tmp_path / "journal").glob("*.journal"))
        assert sum(one.stat().st_size for one in files) < 20 * 1024


def test_clients_that_send_nothing(tmp_path: Path) -> None:
    """Breaks when connections on which nothing happens stay open, or keep others from being served."""
    with receiving(tmp_path, timeout=0.3) as running:
        address = ("127.0.0.1", running.port)
        silent, head, body, again = (socket.create_connection(address, timeout=10) for _ in range(4))
        head.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: ")
        body.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 5\r\n\r\n12")
        again.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /health")
        assert post(running.port, b"1").status == 200
        assert b"408" in everything(body)
        assert everything(silent) == everything(head) == b""
        assert everything(again).startswith(b"HTTP/1.1 200")
        assert running.await_values(1) == [1]


def everything(connection: socket.socket) -> bytes:
    """What arrives until the server closes the connection."""
    found = b""
    with connection:
        try:
            while part := connection.recv(4096):
                found += part
        except ConnectionResetError:
            pass
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10,
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST / HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Type: text/plain\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 10\r\n\r\n1",
    ],
)
def test_what_is_not_http(tmp_path: Path, sent: bytes) -> None:
    with receiving(tmp_path, timeout=1.0) as running:
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as connection:
            try:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            assert everything(connection)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.1 415")
        assert post(running.port, b"1").status == 200
        assert running.await_values(1) == [1]


def test_too_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_source, "_CONNECTIONS", 5)
    with receiving(tmp_path) as running:
        open_ = [socket.create_connection(("127.0.0.1", running.port), timeout=10) for _ in range(6)]
        refused = everything(open_[-1])
        assert refused.startswith(b"HTTP/1.1 503")
        assert refused.endswith(b'{"error": "too many connections; retry later"}\n')
        for one in open_:
            one.close()
        await_(lambda: answered(running.port))


def answered(port: int) -> bool:
    try:
        return post(port, b"1").status == 200
    except (OSError, ValueError):
        return False


@pytest.mark.parametrize("journal", [True, False])
def test_stopping_answers_open_requests(tmp_path: Path, journal: bool) -> None:
    """Breaks when the end of a flow waits for clients, or leaves them without an answer."""
    running = Running(tmp_path, journal=journal)
    body = socket.create_connection(("127.0.0.1", running.port), timeout=10)
    body.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 5\r\n\r\n12")
    idle = socket.create_connection(("127.0.0.1", running.port), timeout=10)
    assert post(running.port, b"1").status in (200, 202)
    running.await_values(1)
    running.run.stop()
    assert everything(body).startswith(b"HTTP/1.1 503")
    assert everything(idle) == b""
    with pytest.raises(OSError):
        post(running.port, b"2")


def test_without_a_journal_records_are_acknowledged_when_taken(tmp_path: Path) -> None:
    with receiving(tmp_path, journal=False, blocked=True, timeout=1.0) as running:
        assert post(running.port, b"1").status == 202
        assert running.waits.wait(20)  # the reader takes nothing more
        refused = post(running.port, b"2")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        running.blocked.set()
        await_(lambda: post(running.port, b"3").status == 202)
        assert running.await_values(2)[:2] == [1, 3]
    assert 2 not in running.seen.values


def test_a_key_whose_request_was_not_taken_in_time(tmp_path: Path) -> None:
    """Breaks when a request that was refused stays refused, or counts twice."""
    with receiving(tmp_path, journal=False, blocked=True, timeout=1.0) as running:
        assert post(running.port, b"1").status == 202
        assert running.waits.wait(20)
        for _ in range(2):
            with ThreadPoolExecutor(2) as pool:
                answers = list(pool.map(lambda _: post(running.port, b"2", Idempotency_Key="k"), range(2)))
            assert [one.status for one in answers] == [503, 503]
        running.blocked.set()
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda _: post(running.port, b"2", Idempotency_Key="k"), range(2)))
        assert [one.status for one in answers] == [202, 202]
        assert post(running.port, b"3").status == 202
        assert running.await_values(3) == [1, 2, 3]


def test_what_is_acknowledged_is_read_after_a_restart(tmp_path: Path) -> None:
    """Breaks when records between the last checkpoint and the end are lost, or those before it are read again."""
    first = Running(tmp_path)
    for number in range(5):
        assert post(first.port, f"{number}".encode()).status == 200
    first.await_values(5)
    first.blocked.clear()
    assert post(first.port, b'[5, 6, 7, "long"]', JSON).status == 200
    assert post(first.port, arrow_stream(pa.table({"n": range(5000)})), ARROW).status == 200
    first.run._executor.stop()
    first.blocked.set()
    first.run.wait()
    got = len(first.seen.values)
    with receiving(tmp_path) as second:
        assert post(second.port, b'"new"').status == 200
        expected = [*range(5), 5, 6, 7, "long", *({"n": n} for n in range(5000)), "new"]
        second.await_values(len(expected) - got)
    assert first.seen.values + second.seen.values == expected


def test_a_journal_that_does_not_belong_to_the_checkpoint(tmp_path: Path) -> None:
    with receiving(tmp_path) as running:
        assert post(running.port, b"1").status == 200
        running.await_values(1)
    for file in (tmp_path / "journal").glob("*.journal"):
        file.unlink()
    before = set(threading.enumerate())
    with pytest.raises(CheckpointError, match="restore the journal, or begin with another checkpoint folder"):
        Running(tmp_path)
    assert set(threading.enumerate()) <= before


def test_a_failed_journal_ends_the_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path)

    def fails(journal: Any, entries: Any) -> None:
        raise JobError("the journal cannot be written")

    monkeypatch.setattr(received.Journal, "append", fails)
    assert post(running.port, b"1").status == 503
    with pytest.raises(JobError, match="the journal cannot be written"):
        running.run.wait()


def flow_of(folder: Path, port: int) -> Flow:
    flow = Flow("pushed")
    source = stream.receive_http(
        f"127.0.0.1:{port}", journal=folder / "journal", max_body=4096, max_waiting=1 << 20, max_journal=1 << 17
    )
    flow.source(source).sink(stream.write_json_lines(folder / "out"))
    return flow


def run_and_die(folder: Path, port: int, seconds: float) -> None:
    """Run the flow until the process is killed in the middle of whatever it does."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()
    flow_of(folder, port).run(checkpoint=folder / "ck", every=0.02)


def supervise(folder: Path, port: int, seed: int) -> None:
    rng = random.Random(seed)
    while True:
        child = multiprocessing.get_context("fork").Process(
            target=run_and_die, args=(folder, port, rng.uniform(0.05, 0.5))
        )
        child.start()
        child.join()
        (folder / "kills").open("a").write("x")
        assert child.exitcode == -signal.SIGKILL


def kills(folder: Path) -> int:
    file = folder / "kills"
    return len(file.read_text()) if file.exists() else 0


def send_until(folder: Path, most: int, port: int, client: int) -> list[str]:
    """Send requests of a few records until the flow was killed often; repeat each until it is acknowledged."""
    rng, sent, number = random.Random(client), [], 0
    while kills(folder) < most:
        number += 1
        values = [f"{client}-{number}-{part}" for part in range(rng.randint(1, 5))]
        body = "".join(f"{json.dumps(value)}\n" for value in values).encode()
        while True:
            try:
                answer: Answer | None = post(port, body, Idempotency_Key=f"{client}-{number}")
            except (OSError, ValueError):
                answer = None
            except Exception as error:  # of http.client, for an answer that was cut
                assert "http.client" in type(error).__module__
                answer = None
            if answer is not None and answer.status == 200:
                break
            assert answer is None or answer.status in (429, 503)
            time.sleep(0.01)
        sent += values
    return sent


@pytest.mark.parametrize(
    ("seed", "most"),
    [(1, 4), (2, 4), pytest.param(3, 30, marks=pytest.mark.slow), pytest.param(4, 30, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_kill_9_between_answer_and_checkpoint(tmp_path: Path, seed: int, most: int) -> None:
    """Breaks when a record that was acknowledged is lost, or one is written twice."""
    port = free_port()
    supervisor = multiprocessing.get_context("fork").Process(target=supervise, args=(tmp_path, port, seed))
    supervisor.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda client: send_until(tmp_path, most, port, client), range(4)))
    finally:
        supervisor.kill()
        supervisor.join()
    await_(lambda: not answered_at_all(port))
    flow_of(tmp_path, port).run(checkpoint=tmp_path / "ck", every=0.05, until=0.5)
    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert Counter(map(json.loads, lines)) == Counter(value for part in parts for value in part)
    assert len(lines) > 50


def answered_at_all(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except OSError:
        return False
    return True


def test_a_flow_file(tmp_path: Path) -> None:
    given = {"bind": "127.0.0.1:8080", "journal": "journal", "token": "env:TOKEN", "max_body": 2048, "timeout": "1min"}
    flow = stream.read_flow({
        "name": "received", "operators": [
            {"name": "in", "kind": "source", "read": {"http": given}},
            {"name": "out", "kind": "sink", "input": "in", "write": {"json_lines": "out"}},
        ],
    })  # fmt: skip
    (source, _) = flow.operators
    expected = stream.receive_http(journal="journal", token="env:TOKEN", max_body=2048, timeout=60)
    assert source.options == SourceOptions(expected)
