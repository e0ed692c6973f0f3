"""Agents that join, end and are refused, as the controller of a flow sees them."""

from __future__ import annotations

import asyncio
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from goffish.errors import InputError, JobError
from goffish.streaming.flow_file import load_flow
from goffish.streaming.hosts.access import Access
from goffish.streaming.hosts.agent import Agent
from goffish.streaming.hosts.machines import Machines
from goffish.streaming.hosts.terms import software
from goffish.streaming.ring.options import Options
from goffish.streaming.runtime.worker import Begin
from goffish.streaming.topology import Topology
from goffish.v1 import hosts_pb2, hosts_pb2_grpc
from tests.commands import assert_refused, call
from tests.streaming.runtime.hosts import TOKEN, wait_for
from tests.streaming.runtime.test_hosts import write_flow


class Client:
    """An agent without workers that sends what a test asks for."""

    def __init__(self, machines: Machines, topology: Topology, address: str = "127.0.0.1:1", slots: int = 1) -> None:
        self._channel = grpc.insecure_channel(machines.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._queue: queue.Queue[Any] = queue.Queue()
        stub = hosts_pb2_grpc.HostServiceStub(self._channel)  # type: ignore[no-untyped-call]
        hello = hosts_pb2.Hello(
            version=software(), flow=topology.name, fingerprint=topology.fingerprint, slots=slots, address=address
        )
        self.send(hello=hello)
        self.send(ping=hosts_pb2.Ping(sent=1.0))
        self._answers = stub.Join(iter(self._queue.get, None), metadata=[("authorization", f"Bearer {TOKEN}")])

    def send(self, **message: Any) -> None:
        self._queue.put(hosts_pb2.JoinRequest(**message))

    def received(self, kind: str) -> Any:
        """Wait for a message of a kind."""
        return next(getattr(one, kind) for one in self._answers if one.WhichOneof("kind") == kind)

    def accept(self) -> None:
        """Send that the folders are shared."""
        assert not self.received("terms").host
        self.send(prepared=hosts_pb2.Prepared(number=-1))

    def close(self) -> None:
        self._answers.cancel()
        self._channel.close()


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    return load_flow(str(write_flow(tmp_path))).check()


@pytest.fixture
def machines(topology: Topology) -> Iterator[Machines]:
    with Machines(topology, Access("127.0.0.1:0", TOKEN)) as made:
        yield made


def test_a_host_that_is_lost_before_the_first_worker_starts(
    machines: Machines, topology: Topology, tmp_path: Path
) -> None:
    """Breaks when workers are placed while a host that was counted has ended since."""
    waiting: list[str] = []
    first = Client(machines, topology)
    first.accept()
    machines.wait(1, waiting.append)
    first.close()
    wait_for(lambda: machines.lost == 1, 5)
    waiting.clear()
    begun = threading.Thread(target=machines.begin, args=(tmp_path, Options(), Begin(), ()), daemon=True)
    begun.start()
    wait_for(lambda: bool(waiting), 5)
    assert waiting[0].endswith("0 of 1 workers have a place")
    second = Client(machines, topology)
    assert second.received("terms").host == 2
    assert begun.is_alive()
    second.send(prepared=hosts_pb2.Prepared(number=0))
    begun.join(5)
    assert not begun.is_alive()
    second.close()


def test_a_host_that_cannot_run_the_flow(machines: Machines, topology: Topology, tmp_path: Path) -> None:
    """Breaks when a host that is refused before the run begins ends it, or later does not."""
    other = Client(machines, topology, "127.0.0.1:2")
    other.send(left=hosts_pb2.Left(reason="other folders"))
    wait_for(lambda: machines.lost == 1, 5)
    good = Client(machines, topology)
    good.accept()
    machines.wait(1)
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(machines.begin, tmp_path, Options(), Begin(), ())
        terms = good.received("terms")
        good.send(left=hosts_pb2.Left(reason="another checkpoint folder"))
        with pytest.raises(InputError, match=r"^127\.0\.0\.1:1: another checkpoint folder$"):
            begun.result(5)
    assert terms.host == 2
    other.close()
    good.close()


class Ended:
    """A stream that has ended before anything could be written."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    async def write(self, message: Any) -> None:
        raise asyncio.InvalidStateError

    async def code(self) -> grpc.StatusCode:
        return self._code

    async def details(self) -> str:
        return self._details


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let attempts to join end one after the other; the last one again and again."""

    def answer(*calls: Ended) -> None:
        rest = list(calls)

        class Stub:
            def __init__(self, channel: Any) -> None:
                pass

            def Join(self, metadata: Any) -> Ended:
                return rest.pop(0) if len(rest) > 1 else rest[0]

        monkeypatch.setattr(hosts_pb2_grpc, "HostServiceStub", Stub)
        monkeypatch.setattr("goffish.streaming.hosts.agent._RETRIES_S", 0.01)

    return answer


def test_a_refusal_that_arrives_while_the_agent_writes(topology: Topology, answers: Callable[..., None]) -> None:
    """Breaks when an agent that is refused reports an internal error of gRPC instead of the reason."""
    refused = Ended(grpc.StatusCode.FAILED_PRECONDITION, "has another version of the flow")
    answers(Ended(grpc.StatusCode.INTERNAL, "Internal error from Core"), refused)
    agent = Agent(topology, Access("127.0.0.1:0", TOKEN), "127.0.0.1:7070", 1)
    with pytest.raises(InputError, match=r"^--join 127\.0\.0\.1:7070: this host has another version of the flow$"):
        agent.run()


def test_a_controller_that_does_not_answer(
    topology: Topology, answers: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when an agent waits in silence, or forever."""
    answers(Ended(grpc.StatusCode.UNAVAILABLE, "Connection refused"))
    monkeypatch.setattr("goffish.streaming.hosts.agent._SAYS_S", 0.05)
    monkeypatch.setattr("goffish.streaming.hosts.agent._JOINS_S", 0.2)
    reports: list[str] = []
    agent = Agent(topology, Access("127.0.0.1:0", TOKEN), "127.0.0.1:7070", 1, reports.append)
    with pytest.raises(JobError, match=re.escape("cannot connect to the controller (Connection refused)")):
        agent.run()
    assert reports[1:] == ["waiting for the controller at 127.0.0.1:7070"]


@pytest.mark.parametrize("command", ["run {flow}", "worker {flow} --join 127.0.0.1:1"])
def test_an_address_that_is_in_use(tmp_path: Path, command: str) -> None:
    """Breaks when a line of gRPC is printed before the error, or the error does not say which option is wrong."""
    flow = write_flow(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        ended = call("stream", *command.format(flow=flow).split(), "--listen", listen, "--token", TOKEN)
    assert_refused(ended)
    assert ended.err == f"error: --listen {listen}: cannot bind the address (address already in use)\n"
