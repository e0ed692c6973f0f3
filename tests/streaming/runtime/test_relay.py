"""Links between two hosts: all messages arrive, in order, once, whenever connections between them break."""

from __future__ import annotations

import asyncio
import random
import selectors
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from goffish.streaming.hosts.access import Access
from goffish.streaming.hosts.relay import Relay
from goffish.streaming.runtime.links import Incoming, Outgoing, listen

TOKEN = "a-token-of-twenty-six-chars"
SENDER, RECEIVER = 1, 2


class Cable:
    """Carries bytes between two ports, and breaks off."""

    def __init__(self, port: int) -> None:
        self._port, self._pairs = port, list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]]()

    async def start(self) -> str:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._pairs.append((writer, far_writer))
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer), return_exceptions=True)

    @staticmethod
    async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        for pair in self._pairs:
            for one in pair:
                one.transport.abort()
        self._pairs.clear()


class Hosts:
    """Two hosts in one process: messages that a worker of the first one sends, for a worker of the second one."""

    def __init__(self, folder: Path) -> None:
        self.one, self.two = folder / "1", folder / "2"
        for each in (self.one, self.two):
            each.mkdir()
        self._loop = asyncio.new_event_loop()
        self._listener = listen(str(self.two / f"{RECEIVER}.socket"))
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.run(self._start())
        self.sender = Outgoing(str(self.one / f"{RECEIVER}.socket"), SENDER, True, 1 << 20)

    def run(self, asked: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(30)

    async def _start(self) -> None:
        access = Access("127.0.0.1:0", TOKEN)
        self.relays = [Relay(folder, number, access, 2.0) for number, folder in enumerate((self.one, self.two))]
        self.relays[0].shift = 100.0

        class Service:
            async def Join(self, requests: Any, context: Any) -> Any:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no controller")

            async def Link(service, requests: Any, context: Any) -> Any:
                async for response in self.relays[1].receive(requests):
                    yield response

        self._server, address = access.serve(Service())
        await self._server.start()
        self.cable = Cable(int(address.rpartition(":")[2]))
        address = await self.cable.start()
        self._addresses = {0: "127.0.0.1:1", 1: address}
        for relay in self.relays:
            relay.follow(self._addresses, {SENDER: 0, RECEIVER: 1})

    def accept(self) -> Incoming:
        self._listener.settimeout(20)
        return Incoming(self._listener.accept()[0])

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self.cable.cut)

    def lose(self, worker: int) -> None:
        """Let the second host take note that a worker is gone."""

        async def lose() -> None:
            self.relays[1].follow(self._addresses, {RECEIVER: 1})

        self.run(lose())

    def close(self) -> None:
        self.sender.close()
        self._listener.close()

        async def close() -> None:
            for relay in self.relays:
                await relay.close()
            await self._server.stop(0)

        self.run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with tempfile.TemporaryDirectory() as folder:
        made = Hosts(Path(folder))
        yield made
        made.close()


def exchange(hosts: Hosts, messages: list[Any], receiver: Incoming, breaks: tuple[int, ...] = ()) -> list[Any]:
    """Send messages, cut the cable when so many have arrived, and return those that arrive."""
    got: list[Any] = []
    for message in messages:
        hosts.sender.send(message)
    with selectors.DefaultSelector() as selector:
        selector.register(receiver, selectors.EVENT_READ)
        selector.register(hosts.sender, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while len(got) < len(messages):
            assert selector.select(20), f"{len(got)} of {len(messages)} messages"
            got += receiver.receive()
            hosts.sender.flush()
            selector.modify(hosts.sender, hosts.sender.events)
            if breaks and len(got) >= breaks[0]:
                breaks = breaks[1:]
                hosts.cut()
    return got


def messages_of(count: int) -> list[Any]:
    """Return messages smaller and larger than a packet, and larger than the shared memory."""
    rng = random.Random(5)
    sizes = [rng.choice([0, 10, 5000, 100_000, 400_000, 1 << 20, 3_000_000]) for _ in range(count)]
    return [np.arange(size, dtype=np.uint8) for size in sizes]


def same(got: list[Any], messages: list[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(got, messages, strict=True))


def test_messages_of_all_sizes(hosts: Hosts) -> None:
    """Breaks when messages are lost or cut wrongly, as those that do not fit into one packet."""
    messages = messages_of(60)
    with closing(hosts.accept()) as receiver:
        assert same(exchange(hosts, messages, receiver), messages)
        assert (receiver.sender, receiver.data, receiver.shift) == (SENDER, True, 100.0)


def test_connections_that_break(hosts: Hosts) -> None:
    """Breaks when something is lost, or arrives twice, as a connection between the hosts breaks."""
    messages = messages_of(150)
    with closing(hosts.accept()) as receiver:
        assert same(exchange(hosts, messages, receiver, (1, 20, 21, 70, 120)), messages)


def test_a_receiver_that_does_not_read(hosts: Hosts) -> None:
    """Breaks when hosts keep an unlimited number of messages for a worker that is busy."""
    message = np.zeros(100_000, np.uint8)
    with closing(hosts.accept()) as receiver:
        end = time.monotonic() + 3
        sent = 0
        while time.monotonic() < end:
            if hosts.sender.waiting_bytes < 1 << 20:
                hosts.sender.send(message)
                sent += len(message)
            hosts.sender.flush()
            time.sleep(0.001)
        assert sent < 60 << 20
        left = sent // len(message)
        assert len(exchange_rest(hosts, receiver, left)) == left


def exchange_rest(hosts: Hosts, receiver: Incoming, count: int) -> list[Any]:
    """Return messages that are in transit."""
    got: list[Any] = []
    end = time.monotonic() + 30
    while len(got) < count:
        assert time.monotonic() < end
        got += receiver.receive()
        hosts.sender.flush()
    return got


def test_a_sender_that_ends(hosts: Hosts) -> None:
    """Breaks when the end of a worker is not seen at other hosts, or before what it has sent."""
    messages = messages_of(20)
    with closing(hosts.accept()) as receiver:
        for message in messages:
            hosts.sender.send(message)
        got = exchange_rest(hosts, receiver, len(messages) - 1)
        while hosts.sender.unsent:
            got += receiver.receive()
            hosts.sender.flush()
        hosts.sender.close()
        end = time.monotonic() + 20
        while not receiver.closed:
            assert time.monotonic() < end
            got += receiver.receive()
        assert same(got, messages)


def test_a_sender_that_is_gone(hosts: Hosts) -> None:
    """Breaks when a lost host can still send to workers that have taken over from it."""
    with closing(hosts.accept()) as receiver:
        exchange(hosts, messages_of(3), receiver)
        hosts.lose(SENDER)
        hosts.sender.send("late")
        end = time.monotonic() + 20
        got: list[Any] = []
        while not (receiver.closed and hosts.sender.closed):
            assert time.monotonic() < end
            got += receiver.receive()
            hosts.sender.flush()
        assert got == []
