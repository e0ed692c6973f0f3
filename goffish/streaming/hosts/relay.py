"""Messages between workers of different hosts: bytes of local connections, through one gRPC stream for each link.

A link loses nothing while both hosts are part of the flow: packets are kept until the other end has handed them on,
and sent again through the next stream when a stream fails.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from goffish.errors import JobError
from goffish.streaming.hosts.access import PACKET_BYTES, Access
from goffish.streaming.runtime.links import Incoming, Outgoing, listen
from goffish.v1 import hosts_pb2, hosts_pb2_grpc

#: Bytes of a link that its sender keeps, and that wait for a worker of this host, before the worker has to wait.
_WINDOW, _WAITING = 8 << 20, 4 << 20
#: Between two attempts to connect; between two signs of life of a link, at most, and as part of the silence that ends
#: it.
_RETRIES_S, _BEATS_S, _BEATS = 0.2, 1.0, 0.2


class Sending:
    """The end of a link at the host of its sender.

    Parameters
    ----------
    relay : Relay
    incoming : Incoming
        Connection of the worker that sends.
    receiver : int
        Worker of another host.
    host : int
    """

    def __init__(self, relay: Relay, incoming: Incoming, receiver: int, host: int) -> None:
        self._relay, self._incoming, self.receiver, self.host = relay, incoming, receiver, host
        self._messages: deque[memoryview] = deque()
        self._kept: deque[tuple[Any, int]] = deque()  # packets with their sizes, until the other end has handed them on
        self._unsent = 0  # the last so many of them
        self._bytes = self._number = 0
        self._ended = self._paused = self._closed = False
        self._changed = asyncio.Event()
        #: When the other end has last been heard of.
        self.heard = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(incoming.fileno(), self._read)
        self._task = self._loop.create_task(self._run())

    @property
    def sender(self) -> int | None:
        """Worker of this host."""
        return self._incoming.sender

    def _read(self) -> None:
        for message in self._incoming.packed():
            self._messages.append(memoryview(message))
            self._bytes += len(message)
        if self._incoming.closed or self._bytes > _WINDOW:
            self._loop.remove_reader(self._incoming.fileno())
            self._ended, self._paused = self._incoming.closed, True
        self._changed.set()

    def _next(self) -> Any:
        """Return the next packet that was not sent through this stream, or None."""
        if self._unsent:
            packet = self._kept[-self._unsent][0]
            self._unsent -= 1
            return packet
        if not self._messages and not self._ended:
            return None
        parts: list[bytes] = []
        size, more = 0, False
        while self._messages and size < PACKET_BYTES:
            message = self._messages.popleft()
            if more := size + len(message) > PACKET_BYTES:
                self._messages.appendleft(message[PACKET_BYTES - size :])
                message = message[: PACKET_BYTES - size]
            parts.append(bytes(message))
            size += len(message)
        end = self._ended and not self._messages
        if end and not parts and self._kept and self._kept[-1][0].end:
            return None
        self._number += 1
        packet = hosts_pb2.LinkRequest(number=self._number, parts=parts, more=more, end=end)
        self._kept.append((packet, size))
        return packet

    def _credit(self, number: int) -> None:
        """Forget what the other end has handed on."""
        while self._kept and self._kept[0][0].number <= number:
            packet, size = self._kept.popleft()
            self._bytes -= size
            if packet.end:
                self._close()
        self._unsent = min(self._unsent, len(self._kept))
        if self._paused and not self._ended and self._bytes < _WINDOW // 2:
            self._paused = False
            self._loop.add_reader(self._incoming.fileno(), self._read)

    async def _run(self) -> None:
        while self.sender is None and not self._ended:
            await self._changed.wait()
            self._changed.clear()
        if self.sender is None:
            self._close()
            return
        while True:
            with suppress(grpc.RpcError, asyncio.InvalidStateError):  # which also says that a stream has ended
                await self._stream()
            await asyncio.sleep(_RETRIES_S)

    async def _stream(self) -> None:
        """Send packets through one stream until it fails."""
        call = self._relay.stub(self.host).Link(metadata=self._relay.access.metadata)
        try:
            hello = hosts_pb2.LinkHello(
                sender=self.sender, receiver=self.receiver, data=self._incoming.data, shift=self._relay.shift
            )
            async with asyncio.timeout(self._relay.silent_s):
                await call.write(hosts_pb2.LinkRequest(link=hello))
                credit = await call.read()
            if credit is grpc.aio.EOF:
                return
            self._unsent = len(self._kept)
            self._take(credit)
            reading = self._loop.create_task(self._credits(call))
            writing = self._loop.create_task(self._write(call))
            try:
                await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (reading, writing):
                    task.cancel()
                    with suppress(asyncio.CancelledError, grpc.RpcError, asyncio.InvalidStateError, TimeoutError):
                        await task
        except TimeoutError:
            pass
        finally:
            call.cancel()

    def _take(self, credit: Any) -> None:
        self.heard = time.monotonic()
        if credit.closed:
            self._close()
        else:
            self._credit(credit.number)

    async def _credits(self, call: Any) -> None:
        while not self._closed:
            async with asyncio.timeout(self._relay.silent_s):
                credit = await call.read()
            if credit is grpc.aio.EOF:
                return
            self._take(credit)

    async def _write(self, call: Any) -> None:
        while True:
            while (packet := self._next()) is not None:
                await call.write(packet)
            await self._changed.wait()
            self._changed.clear()

    def _close(self) -> None:
        self._relay.forget(self)

    def close(self) -> None:
        """Close the connection of the worker that sends."""
        if self._closed:
            return
        self._closed = True
        if not self._paused:
            self._loop.remove_reader(self._incoming.fileno())
        self._incoming.close()
        self._task.cancel()


class Receiving:
    """The end of a link at the host of its receiver.

    Parameters
    ----------
    outgoing : Outgoing
        Connection of the worker that receives.
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._begun = bytearray()  # the first part of a message
        self._ending = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(outgoing.fileno(), self._flush)
        self._writing = False
        #: Number of the last packet.
        self.received = 0
        #: Number of streams, of which the last one counts.
        self.streams = 0
        self._drained = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the receiver has ended, or all that the sender has sent was handed on."""
        return self._outgoing.closed

    def add(self, packet: Any) -> None:
        """Hand the messages of a packet on."""
        self.received = packet.number
        last = len(packet.parts) - 1
        for at, part in enumerate(packet.parts):
            if at == last and packet.more:
                self._begun += part
            elif self._begun:
                self._begun += part
                self._outgoing.add([memoryview(bytes(self._begun))])
                self._begun = bytearray()
            else:
                self._outgoing.add([memoryview(part)])
        self._ending |= packet.end
        if not self.closed:
            self._flush()

    def _flush(self) -> None:
        outgoing = self._outgoing
        outgoing.flush()
        if outgoing.closed or (self._ending and not outgoing.unsent):
            self.close()
            return
        writes = bool(outgoing.events & selectors.EVENT_WRITE)
        if writes and not self._writing:
            self._loop.add_writer(outgoing.fileno(), self._flush)
        elif self._writing and not writes:
            self._loop.remove_writer(outgoing.fileno())
        self._writing = writes
        if outgoing.unsent_bytes < _WAITING:
            self._drained.set()

    async def drained(self) -> None:
        """Wait until less waits for the receiver; after the last packet, until nothing does."""
        while not self.closed and (self._ending or self._outgoing.unsent_bytes >= _WAITING):
            self._drained.clear()
            await self._drained.wait()

    def close(self) -> None:
        """Close the connection."""
        if self._outgoing.fileno() >= 0:
            self._loop.remove_reader(self._outgoing.fileno())
            self._loop.remove_writer(self._outgoing.fileno())
        self._outgoing.close()
        self._drained.set()


class Relay:
    """Carries messages between the workers of this host and those of others.

    Parameters
    ----------
    folder : Path
        With the sockets of the workers.
    host : int
        Number of this host.
    access : Access
    silent_s : float
        Silence of another host after which a stream to it is given up.
    reach : mapping, optional
        Addresses that replace those of the directory, by host.
    """

    def __init__(
        self, folder: Path, host: int, access: Access, silent_s: float, reach: Mapping[int, str] | None = None
    ) -> None:
        self.folder, self.host, self.access, self.silent_s = folder, host, access, silent_s
        #: What has to be added to the monotonic clock of this host for that of the controller.
        self.shift = 0.0
        self._reach = dict(reach or {})
        self._addresses: dict[int, str] = {}
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._places: dict[int, int] = {}  # hosts of workers
        self._gone: set[int] = set()
        self._listeners: dict[int, socket.socket] = {}
        self._sending: set[Sending] = set()
        self._receiving: dict[tuple[int, int, bool], Receiving] = {}
        self._loop = asyncio.get_running_loop()

    def stub(self, host: int) -> Any:
        """Return the stub of another host."""
        if host not in self._channels:
            address = self._reach.get(host, self._addresses[host])
            self._channels[host] = self.access.dial(address, self.silent_s)
        return hosts_pb2_grpc.HostServiceStub(self._channels[host])  # type: ignore[no-untyped-call]

    def follow(self, addresses: Mapping[int, str], places: Mapping[int, int]) -> None:
        """Take note of where all workers are; those that are missing have ended.

        Parameters
        ----------
        addresses : mapping
            Of hosts.
        places : mapping
            Hosts of workers.
        """
        self._addresses = dict(addresses)
        lost = self._places.keys() - places.keys()
        self._gone |= lost
        new = [one for one, host in places.items() if host != self.host and one not in self._places]
        self._places = dict(places)
        for one in sorted(new):
            self._listeners[one] = listener = listen(str(self.folder / f"{one}.socket"))
            self._loop.add_reader(listener.fileno(), self._accept, listener, one)
        self._drop(lost)
        for host in self._channels.keys() - addresses.keys():
            channel = self._channels.pop(host)
            self._loop.create_task(channel.close())

    def _drop(self, workers: Collection[int]) -> None:
        """Close all links of workers that are gone."""
        for one in workers & self._listeners.keys():
            self._close_listener(one)
        for link in [one for one in self._sending if one.receiver in workers]:
            self.forget(link)
        for key in [key for key in self._receiving if key[0] in workers or key[1] in workers]:
            self._receiving.pop(key).close()

    def _close_listener(self, worker: int) -> None:
        listener = self._listeners.pop(worker)
        self._loop.remove_reader(listener.fileno())
        listener.close()
        (self.folder / f"{worker}.socket").unlink(missing_ok=True)

    def _accept(self, listener: socket.socket, receiver: int) -> None:
        with suppress(BlockingIOError):
            connection = listener.accept()[0]
            self._sending.add(Sending(self, Incoming(connection), receiver, self._places[receiver]))

    def forget(self, link: Sending) -> None:
        """Close a link at its beginning."""
        self._sending.discard(link)
        link.close()

    @property
    def silent(self) -> Iterator[int]:
        """Hosts that have not answered for too long."""
        now = time.monotonic()
        return (link.host for link in self._sending if link.sender is not None and now > link.heard + self.silent_s)

    async def receive(self, packets: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Hand on what a stream of another host brings; yield credits."""
        hello = (await anext(packets)).link
        key = hello.sender, hello.receiver, hello.data
        state = self._receiving.get(key)
        here = self._places.get(hello.receiver) == self.host
        if state is None and here and hello.sender not in self._gone:
            path = str(self.folder / f"{hello.receiver}.socket")
            with suppress(JobError):
                state = Receiving(Outgoing(path, hello.sender, hello.data, shift=hello.shift - self.shift))
                self._receiving[key] = state
        if state is None:
            yield hosts_pb2.LinkResponse(closed=True)
            return
        state.streams += 1
        async for number in _beats(state, packets, min(_BEATS_S, _BEATS * self.silent_s)):
            yield hosts_pb2.LinkResponse(number=number)
        if state.closed:
            yield hosts_pb2.LinkResponse(number=state.received, closed=True)

    @property
    def sending(self) -> bool:
        """Whether other hosts may not have all that workers of this host have sent."""
        return bool(self._sending)

    async def close(self) -> None:
        """Close all links."""
        for link in list(self._sending):
            self.forget(link)
        for one in list(self._listeners):
            self._close_listener(one)
        for state in self._receiving.values():
            state.close()
        self._receiving = {}
        for channel in self._channels.values():
            await channel.close()


async def _beats(state: Receiving, packets: AsyncIterator[Any], every_s: float) -> AsyncIterator[int]:
    """Hand packets on, and yield the number of the last one, again and again while nothing changes."""
    stream, acknowledged = state.streams, state.received
    yield acknowledged

    async def take() -> bool:
        packet = await anext(packets, None)
        if packet is None or state.streams != stream:
            return False
        if packet.number == state.received + 1:  # otherwise it was sent again
            state.add(packet)
            await state.drained()
        return state.streams == stream and not state.closed

    waiting = asyncio.ensure_future(take())
    try:
        while True:
            await asyncio.wait([waiting], timeout=every_s)
            if waiting.done():
                if not waiting.result():
                    return
                acknowledged = state.received
                waiting = asyncio.ensure_future(take())
            elif state.closed:
                return
            yield acknowledged
    finally:
        waiting.cancel()
        with suppress(asyncio.CancelledError, grpc.RpcError):
            await waiting
