"""Agents that join, end and are refused, as the controller of a flow sees them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from goffish.streaming.flow_file import load_flow
from goffish.streaming.hosts.access import Access
from goffish.streaming.hosts.machines import Machines
from goffish.streaming.hosts.terms import software
from goffish.streaming.ring.options import Options
from goffish.streaming.runtime.worker import Begin
from goffish.streaming.topology import Topology
from goffish.v1 import hosts_pb2, hosts_pb2_grpc
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
    machines.wait(1, waiting.append)
    first.close()
    wait_for(lambda: machines.lost == 1, 5)
    waiting.clear()
    begun = threading.Thread(target=machines.begin, args=(tmp_path, Options(), Begin(), ()), daemon=True)
    begun.start()
    wait_for(lambda: bool(waiting), 5)
    assert waiting[0].endswith("0 of 1 workers have a place")
    second = Client(machines, topology)
    second.received("terms")
    assert begun.is_alive()
    second.send(prepared=hosts_pb2.Prepared(number=0))
    begun.join(5)
    assert not begun.is_alive()
    second.close()
