"""A live graph over gRPC: records, queries, subscriptions, and clients that mean no good."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pyarrow as pa
import pytest

from goffish.client import AsyncClient, Client, ServiceError
from goffish.v1 import graphs_pb2, records_pb2
from tests.commands import ENVIRONMENT, assert_refused, call
from tests.streaming.graphs.test_delivery import SECRET, Hook
from tests.streaming.graphs.test_delivery import hook as hook  # noqa: PLC0414 (a fixture)
from tests.streaming.pushing import await_

QUERIES = "DETECT Match(vertex:{kind = host}) AS hosts"
Code = grpc.StatusCode


def records(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"t": n, "stream": "s", "seq": n, "op": "+v", "id": f"v{n}", "attrs": {"kind": "host"}}
        for n in range(first, first + count)
    ]


class Served:
    """``goffish stream serve`` in a process."""

    def __init__(self, folder: Path, options: tuple[str, ...], variables: dict[str, str]) -> None:
        self._folder, self._options, self._port = folder, options, "0"
        self._variables = ENVIRONMENT | variables
        (folder / "q.cgql").write_text(QUERIES)
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "goffish", "stream", "serve", "q.cgql", "--state", "state", "--lateness", "0"]
        command += ["--listen", f"127.0.0.1:{self._port}", *self._options]
        self.process = subprocess.Popen(
            command, cwd=self._folder, env=self._variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line.startswith("serving on "), self.process.stderr.read()
        self.address = line.split()[-1]
        self._port = self.address.rpartition(":")[2]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, errors


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def begin(*options: str, **variables: str) -> Served:
        made.append(Served(tmp_path, options, variables))
        return made[-1]

    yield begin
    for one in made:
        one.kill()


@pytest.mark.slow
def test_records_queries_and_events(serve: Callable[..., Served]) -> None:
    """Breaks when what a client sends, or receives, is not that of the live graph."""
    server = serve()
    with Client(server.address) as client:
        assert client.push_records(records(0, 10)) == 10
        table = {name: [row.get(name) for row in records(10, 15)] for name in ("t", "op", "id", "stream", "seq")}
        assert client.push_records(pa.table(table | {"kind": ["host"] * 15})) == 15
        assert client.push_records(records(0, 25)) == 25  # all are known
        text = "DETECT Degree(degree >= least) AS busy"
        assert client.submit_queries(text, {"least": 1}) == ("busy",)
        client.push_records([{"t": 30, "stream": "s", "op": "+e", "src": "v1", "dst": "v2"}])
        found = client.topics()
        assert [(one.name, one.first, one.next) for one in found.topics] == [("hosts", 0, 25), ("busy", 0, 2)]
        assert "degree >= 1" in found.topics[1].query
        assert (found.records["applied"], found.records["duplicate"]) == (26, 25)
        events = pa.concat_tables(client.subscribe("hosts", existing_only=True))
        assert events["id"].to_pylist() == [f"v{n}" for n in range(25)]
        rest = pa.concat_tables(client.subscribe("hosts", 20, existing_only=True))
        assert rest["offset"].to_pylist() == list(range(20, 25))
        assert client.answers("busy").to_pylist() == [{"vertex": "v1", "degree": 1}, {"vertex": "v2", "degree": 1}]
        client.submit_queries("DETECT Match(vertex:{}) FOR 300ms WITH (clock = wall) AS brief")
        # It ends although nothing is pushed.
        reasons = (reason for part in client.subscribe("brief") for reason in part["reason"].to_pylist())
        assert next(filter(None, reasons)) == "expired"
        client.cancel_query("busy")
        [last] = client.subscribe("busy", 2, existing_only=True)
        assert last["reason"].to_pylist() == ["cancelled"]

    async def both() -> int:
        async with AsyncClient(server.address) as client:
            await client.push_records(records(100, 5))
            return sum([len(part) async for part in client.subscribe("hosts", existing_only=True)])

    assert asyncio.run(both()) == 30
    server.stop()


def push(server: Served, given: list[dict[str, Any]]) -> None:
    """Push records, also through a connection that has not found out yet that the server is back."""
    end = time.monotonic() + 30
    while True:
        try:
            with Client(server.address) as client:
                client.push_records(given)
                return
        except ServiceError as error:
            assert error.code == Code.UNAVAILABLE and time.monotonic() < end, error
            time.sleep(0.1)


@pytest.mark.slow
def test_a_subscriber_and_a_server_that_is_killed(serve: Callable[..., Served]) -> None:
    """Breaks when an event is lost or arrives twice as the server goes and comes back."""
    server, seen = serve(), []
    with Client(server.address, patience_s=120) as client:
        client.push_records(records(0, 10))

        def take() -> None:
            for events in client.subscribe("hosts"):
                seen.extend(events["offset"].to_pylist())
                if len(seen) >= 20:
                    return

        thread = threading.Thread(target=take)
        thread.start()
        server.kill()
        server.start()
        push(server, records(0, 20))
        thread.join(100)  # connections are tried again after as long as the server was away
        assert seen == list(range(20))


def refusal(call: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    return caught.value


@pytest.mark.slow
def test_hostile_clients(serve: Callable[..., Served]) -> None:
    """Breaks when one client can make the server fail for others."""
    server = serve("--max-queries", "2", "--max-streams", "50", "--max-message", "65536", "--max-text", "20000")
    with Client(server.address) as client:
        client.push_records(records(0, 10))

        def subscribed(**given: Any) -> Any:
            return client.graphs.Subscribe(graphs_pb2.SubscribeRequest(**given))

        for given, code, message in (
            ({"topic": "nope"}, Code.NOT_FOUND, "topic nope: unknown; choose from hosts"),
            ({"topic": "x" * 10_000}, Code.NOT_FOUND, f"topic {'x' * 100}: unknown"),
            ({"topic": "hosts", "after": -1}, Code.INVALID_ARGUMENT, "after = -1: accepted are 0 to 10"),
            ({"topic": "hosts", "after": 1 << 62}, Code.INVALID_ARGUMENT, "accepted are 0 to 10"),
        ):  # fmt: skip
            error = refusal(subscribed(**given))
            assert error.code() == code and message in error.details(), error.details()
        for text in ("DETECT " + "(" * 15_000, "DETECT Match(vertex:{" + "NOT (" * 3000, "x" * 19_999, "", "\0"):
            with pytest.raises(ServiceError) as caught:
                client.submit_queries(text)
            assert caught.value.code == Code.INVALID_ARGUMENT, text[:50]
        with pytest.raises(ServiceError, match="30,000 bytes; accepted are 20,000 at most"):
            client.submit_queries("x" * 30_000)
        with pytest.raises(ServiceError) as caught:
            client.submit_queries("x" * (1 << 20))
        assert caught.value.code == Code.RESOURCE_EXHAUSTED
        with pytest.raises(ServiceError, match="more than 2 queries"):
            client.submit_queries("DETECT Match(edge:{}) AS a; DETECT Match(edge:{}) AS b")
        pushed: dict[str, Any]
        for pushed in (
            {}, {"json_lines": b"{"}, {"arrow_stream": b"no"}, {"json_lines": b"1", "idempotency_key": "k"},
        ):  # fmt: skip
            error = refusal(client.records.PushRecords(iter([records_pb2.PushRecordsRequest(**pushed)])))
            assert error.code() == Code.INVALID_ARGUMENT, error.details()
        huge = records_pb2.PushRecordsRequest(json_lines=b" " * (1 << 20))
        assert refusal(client.records.PushRecords(iter([huge]))).code() == Code.RESOURCE_EXHAUSTED
        assert client.push_records([7, None, {"op": "nope"}, [1]]) == 4  # each is rejected by itself
        assert client.topics().records["rejected"] == 4
        # Subscriptions beyond the limit are refused, and the others go on.
        calls = [subscribed(topic="hosts", after=10) for _ in range(60)]
        while sum(one.done() for one in calls) < 10:  # otherwise, the test is ended by its time limit
            time.sleep(0.05)
        refused = [one for one in calls if one.done()]
        assert len(refused) == 10 and {one.code() for one in refused} == {Code.RESOURCE_EXHAUSTED}
        for one in calls:
            one.cancel()
        client.push_records(records(11, 1))
        while True:  # until the server has ended the others
            try:
                found = pa.concat_tables(client.subscribe("hosts", existing_only=True))
                break
            except ServiceError as error:
                assert error.code == Code.RESOURCE_EXHAUSTED
                time.sleep(0.05)
        assert len(found) == 11
    server.stop()


@pytest.mark.slow
def test_a_subscriber_that_never_reads(serve: Callable[..., Served]) -> None:
    """Breaks when the events for it are kept in memory beside the topic, or others wait for it."""
    server = serve()
    options = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(server.address, options=options) for _ in range(20)]
    stuck = [
        channel.unary_stream("/goffish.v1.LiveGraphService/Subscribe")(
            graphs_pb2.SubscribeRequest(topic="hosts").SerializeToString()
        )
        for channel in channels
    ]
    with Client(server.address) as client:
        client.push_records(records(0, 20_000))
        assert sum(map(len, client.subscribe("hosts", existing_only=True))) == 20_000
        before = psutil.Process(server.process.pid).memory_info().rss
        client.push_records(records(20_000, 60_000))
        assert sum(map(len, client.subscribe("hosts", existing_only=True))) == 80_000
        grown = psutil.Process(server.process.pid).memory_info().rss - before
        # 60,000 events are 9 MB as messages, for each of 20 subscribers.
        assert grown < 150e6, grown
    for one in stuck:
        one.cancel()
    for channel in channels:
        channel.close()


@pytest.mark.slow
def test_subscribers_that_come_at_once(serve: Callable[..., Served]) -> None:
    """Breaks when gRPC drops calls that the server has not taken yet, as those of all clients after a restart."""
    server, count = serve("--max-streams", "2000"), 2000
    with Client(server.address) as client:
        client.push_records(records(0, 10))

    async def numbers() -> list[int]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(server.address, options=options) for _ in range(20)]
        request = graphs_pb2.SubscribeRequest(topic="hosts").SerializeToString()
        calls = [
            channel.unary_stream(
                "/goffish.v1.LiveGraphService/Subscribe",
                response_deserializer=graphs_pb2.SubscribeResponse.FromString,
            )(request)
            for channel in channels
            for _ in range(count // len(channels))
        ]

        async def last(call: Any) -> int:
            async for message in call:
                if message.next >= 10:
                    break
            call.cancel()
            return int(message.next)

        found = await asyncio.gather(*map(last, calls))
        for channel in channels:
            await channel.close()
        return found

    assert asyncio.run(numbers()) == [10] * count


def test_what_is_refused(tmp_path: Path) -> None:
    """Breaks when a server that other machines can reach is not protected."""
    (tmp_path / "q.cgql").write_text(QUERIES)
    for options, message in (
        (["--listen", "0.0.0.0:7079"], "--listen 0.0.0.0:7079: not a loopback address; requires --certificate"),
        (["--listen", "nowhere"], "give HOST:PORT"),
        (["--events-page", "0.0.0.0:80"], "accepted is a loopback HOST:PORT"),
    ):  # fmt: skip
        ended = call("stream", "serve", "q.cgql", "--state", "state", *options, cwd=tmp_path)
        assert_refused(ended)
        assert message in ended.err


def test_roles(serve: Callable[..., Served], tmp_path: Path) -> None:
    """Breaks when a client without a token, or with a role that only reads, can change the graph."""
    tokens = {}
    for role in ("read", "submit"):
        made = call("clients", "add", role, "--role", role, "--file", "c.yaml", cwd=tmp_path)
        tokens[role] = made.out.strip()
    server = serve("--clients", "c.yaml")
    with Client(server.address) as client, pytest.raises(ServiceError) as caught:
        client.topics()
    assert caught.value.code == Code.UNAUTHENTICATED
    with Client(server.address, tokens["read"]) as client:
        assert len(client.topics().topics) == 1 and not list(client.subscribe("hosts", existing_only=True))
        for change in (
            lambda: client.push_records(records(0, 1)), lambda: client.submit_queries(QUERIES),
            lambda: client.cancel_query("hosts"),
        ):  # fmt: skip
            with pytest.raises(ServiceError) as caught:
                change()
            assert caught.value.code == Code.PERMISSION_DENIED
    with Client(server.address, tokens["submit"]) as client:
        assert client.push_records(records(0, 1)) == 1


@pytest.mark.slow
def test_deliveries(serve: Callable[..., Served], hook: Hook) -> None:
    """Breaks when a webhook that is down holds up the end of a server, or one that refuses all is not reported."""
    hook.down = True
    variables = {"GOFFISH_WEBHOOK_SECRET": SECRET}
    server = serve("--deliver", f"hosts={hook.url}", **variables)
    push(server, records(0, 10))
    server.stop()
    assert not hook.lines
    hook.down, hook.answers = False, [400]
    server.start()
    assert server.process.stderr is not None
    assert server.process.wait(20) == 1
    assert "error: delivery hosts-" in (errors := server.process.stderr.read()) and "status 400" in errors
    server.start()
    push(server, records(10, 10))
    await_(lambda: len(hook.lines) == 20)
    assert [line["offset"] for line in hook.lines] == list(range(20))
    server.stop()


@pytest.mark.slow
def test_another_file_of_queries(serve: Callable[..., Served], tmp_path: Path) -> None:
    """Breaks when a server goes on with other queries than its file has."""
    serve().stop()
    (tmp_path / "q.cgql").write_text("DETECT Match(vertex:{}) AS hosts")
    ended = call("stream", "serve", "q.cgql", "--state", "state", "--lateness", "0", cwd=tmp_path)
    assert_refused(ended)
    assert "--state state: has other queries than q.cgql, which has hosts = " in ended.err
