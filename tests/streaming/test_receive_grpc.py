"""Records that clients push over gRPC: what is answered is accepted, exactly once, and nothing else is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
import trustme

from goffish import stream
from goffish.errors import InputError
from goffish.streaming.flow import Flow
from goffish.v1.records_pb2 import PushRecordsRequest
from goffish.v1.records_pb2_grpc import RecordServiceStub
from tests.streaming.pushing import Receiving, arrow_stream, await_

TOKEN = "a-token-of-some-length"
Codes = grpc.StatusCode


def lines(*values: Any, key: str = "") -> PushRecordsRequest:
    return PushRecordsRequest(json_lines="".join(json.dumps(v) + "\n" for v in values).encode(), idempotency_key=key)


class Running(Receiving):
    """A flow that receives calls."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(stream.receive_grpc, folder, **options)

    def push(self, requests: Iterable[PushRecordsRequest], **metadata: str) -> list[int]:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            call = RecordServiceStub(channel).PushRecords(iter(requests), metadata=tuple(metadata.items()), timeout=20)
            return [answer.records for answer in call]

    def refused(self, requests: Iterable[PushRecordsRequest], **metadata: str) -> tuple[Any, str]:
        with pytest.raises(grpc.RpcError) as error:
            self.push(requests, **metadata)
        return error.value.code(), error.value.details()


@contextmanager
def receiving(folder: Path, **options: Any) -> Iterator[Running]:
    with closing(Running(folder, **options)) as running:
        yield running


@pytest.mark.parametrize("journal", [True, False])
def test_what_is_pushed(tmp_path: Path, journal: bool) -> None:
    table = pa.table({"n": [1, 2], "s": ["a", None]})
    with receiving(tmp_path, journal=journal) as running:
        requests = [lines({"a": 1}, "b"), PushRecordsRequest(arrow_stream=arrow_stream(table)), lines(), lines(3)]
        assert running.push(requests) == [2, 2, 0, 1]
        assert running.await_values(5) == [{"a": 1}, "b", *table.to_pylist(), 3]


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (PushRecordsRequest(json_lines=b'1\n{"a"\n'), Codes.INVALID_ARGUMENT, "line 2: not a JSON value"),
        (PushRecordsRequest(arrow_stream=b"ARROW1"), Codes.INVALID_ARGUMENT, "not an Arrow IPC stream"),
        (PushRecordsRequest(), Codes.INVALID_ARGUMENT, "no records; accepted are json_lines, arrow_stream"),
        (lines(1, key="x" * 256), Codes.INVALID_ARGUMENT, "idempotency_key: accepted are 255 bytes at most"),
        (PushRecordsRequest(json_lines=b"1\n" * 600), Codes.RESOURCE_EXHAUSTED, "1,200 bytes; accepted are 1,024"),
        (PushRecordsRequest(json_lines=b"1\n" * 6000), Codes.RESOURCE_EXHAUSTED, "larger than max"),
        (lines(2, key="1"), Codes.ALREADY_EXISTS, "the Idempotency-Key was used for other records"),
    ],
)
def test_what_is_refused(tmp_path: Path, request_: PushRecordsRequest, code: Any, message: str) -> None:
    """What was answered before stays accepted, and a new call is accepted."""
    with receiving(tmp_path, max_body=1024) as running:
        assert running.push([lines(1, key="1")]) == [1]
        found, details = running.refused([request_, lines("after")])
        assert found == code and message in details
        assert running.push([lines(3)]) == [1]
        assert running.await_values(2) == [1, 3]


def test_tokens(tmp_path: Path) -> None:
    with receiving(tmp_path, token=TOKEN) as running:
        for metadata in ({}, {"authorization": TOKEN}, {"authorization": f"Bearer {TOKEN[:-1]}"}):
            assert running.refused([lines(1)], **metadata)[0] == Codes.UNAUTHENTICATED
        assert running.push([lines(2)], authorization=f"Bearer {TOKEN}") == [1]
        assert running.await_values(1) == [2]


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued = authority.issue_cert("localhost")
    certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    with receiving(tmp_path, tls=(certificate, key), token=TOKEN) as running:
        assert running.refused([lines(1)], authorization=f"Bearer {TOKEN}")[0] == Codes.UNAVAILABLE
        credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        with grpc.secure_channel(f"localhost:{running.port}", credentials) as channel:
            call = RecordServiceStub(channel).PushRecords(
                iter([lines(2)]), metadata=[("authorization", f"Bearer {TOKEN}")]
            )
            assert [one.records for one in call] == [1]
        assert running.await_values(1) == [2]


def test_requests_with_one_key(tmp_path: Path) -> None:
    with receiving(tmp_path) as running:
        assert running.push([lines(1, 2, key="a"), lines(1, 2, key="a"), lines(3)]) == [2, 2, 1]
        assert running.push([lines(1, 2, key="a")]) == [2]
        assert running.await_values(3) == [1, 2, 3]


def test_clients_wait_for_a_slow_flow(tmp_path: Path) -> None:
    """Requests that the flow has no memory for are accepted later, and none is lost."""
    with receiving(tmp_path, blocked=True, max_body=1024, max_waiting=4096) as running:
        body = PushRecordsRequest(json_lines=b"%s\n" % json.dumps("x" * 900).encode())
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.extend(running.push([body] * 40)))
        thread.start()
        time.sleep(0.5)
        assert thread.is_alive()
        running.blocked.set()
        thread.join(20)
        assert found == [1] * 40
        assert running.await_values(40) == ["x" * 900] * 40


def test_a_flow_that_takes_nothing(tmp_path: Path) -> None:
    with receiving(tmp_path, blocked=True, journal=False, timeout=1.0) as running:
        assert running.push([lines(1)]) == [1]
        assert running.waits.wait(20)  # the reader takes nothing more
        code, details = running.refused([lines(2)])
        assert code == Codes.UNAVAILABLE and "has not taken the records in time" in details


def test_the_next_run_goes_on(tmp_path: Path) -> None:
    with receiving(tmp_path, blocked=True) as running:
        assert running.push([lines(1), lines(2)]) == [1, 1]
    with receiving(tmp_path) as running:
        assert running.push([lines(3)]) == [1]
        await_(lambda: 3 in running.seen.values)
        assert running.seen.values in ([3], [2, 3], [1, 2, 3])  # a checkpoint may contain the first ones


def test_an_address_in_use(tmp_path: Path) -> None:
    with receiving(tmp_path) as running:
        flow = Flow("second")
        flow.source(stream.receive_grpc(f"127.0.0.1:{running.port}")).sink(stream.collect())
        with pytest.raises(InputError, match=f"cannot bind 127.0.0.1:{running.port}: address already in use"):
            flow.run()


@pytest.mark.parametrize("options", [{"bind": "0.0.0.0:8090"}, {"bind": "0.0.0.0:8090", "token": TOKEN}])
def test_other_machines_need_tls_and_a_token(options: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"receive_grpc: bind = .* not a loopback address; requires tls="):
        stream.receive_grpc(**options)
