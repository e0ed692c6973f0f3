"""Connections between processes of one host: large messages through shared memory, small ones through a socket.

The receiver of a large message finds its place in the shared memory in the socket, which therefore also orders memory
accesses and wakes the receiver up. Only processes of the same user can connect, as the folder of the sockets is
theirs; messages are pickled.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Iterator
from mmap import PROT_READ, mmap
from typing import Any

from goffish.errors import JobError
from goffish.streaming.runtime.packing import ALIGN, pack, unpack

#: Smaller messages go through the socket: a place in the shared memory costs a second message, when it is free again.
_INLINE = 16 << 10
_READ = 1 << 18

_HEADER = struct.Struct("<BQQ")  # kind, place, length
_SMALL, _SHARED = range(2)
_FREED = struct.Struct("<Q")
_HELLO = struct.Struct("<q?d")  # sender, whether the link is for data, difference of the clocks


def _length(packed: list[memoryview]) -> int:
    return sum(buffer.nbytes for buffer in packed)


class Outgoing:
    """The end of a connection that sends; nothing blocks.

    Parameters
    ----------
    path : str
        Unix socket on which the receiver listens.
    sender : int
        Id of this process.
    data : bool
        Whether the connection is for data; passed to the receiver.
    shared_bytes : int
        Shared memory: the bound of what the receiver has not read yet.
    shift : float
        What the receiver adds to times of the sender, whose monotonic clock differs if it runs on another host.

    Attributes
    ----------
    closed : bool
        Whether the receiver is gone.

    Raises
    ------
    JobError
        No process listens there.
    """

    def __init__(self, path: str, sender: int, data: bool, shared_bytes: int = 16 << 20, shift: float = 0.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
            descriptor = os.memfd_create("goffish")
            try:
                os.ftruncate(descriptor, shared_bytes)
                self._memory = mmap(descriptor, shared_bytes)
                socket.send_fds(self._socket, [_HELLO.pack(sender, data, shift)], [descriptor])
            finally:
                os.close(descriptor)
        except OSError as error:
            self._socket.close()
            raise JobError(f"cannot connect to {path}: {error.strerror}") from error
        self._socket.setblocking(False)
        self.closed = False
        self._written = self._freed = 0  # bytes of the shared memory, since the start
        self._waiting: deque[list[memoryview]] = deque()  # messages without a place
        #: Bytes of messages that wait for a place in the shared memory.
        self.waiting_bytes = 0
        self._unsent: deque[memoryview] = deque()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self._socket.close()
        self._memory.close()

    @property
    def unsent(self) -> int:
        """Number of messages that wait to be sent."""
        return len(self._waiting) + len(self._unsent)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of messages that wait to be sent."""
        return self.waiting_bytes + sum(part.nbytes for part in self._unsent)

    @property
    def events(self) -> int:
        """Events of the socket, as `selectors` names them, after which `flush` can go on."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def send(self, message: object) -> None:
        """Send a message, or keep it until `flush` can."""
        self.add(pack(message))
        self.flush()

    def add(self, packed: list[memoryview]) -> None:
        """Keep the buffers of a message until `flush` can send them."""
        if not self.closed:
            self._waiting.append(packed)
            self.waiting_bytes += _length(packed)

    def flush(self) -> None:
        """Send what can be sent now."""
        if self.closed:
            return
        try:
            while data := self._socket.recv(_READ):
                if len(data) % _FREED.size:
                    data += self._socket.recv(-len(data) % _FREED.size, socket.MSG_WAITALL)
                (self._freed,) = _FREED.unpack_from(data, len(data) - _FREED.size)
            self._lost()
        except BlockingIOError:
            pass
        except OSError:
            self._lost()
        while self._waiting and self._place(self._waiting[0]):
            self.waiting_bytes -= _length(self._waiting.popleft())
        try:
            while self._unsent:
                sent = self._socket.sendmsg([self._unsent[i] for i in range(min(16, len(self._unsent)))])
                while self._unsent and sent >= self._unsent[0].nbytes:
                    sent -= self._unsent.popleft().nbytes
                if sent:
                    self._unsent[0] = self._unsent[0][sent:]
        except BlockingIOError:
            return
        except OSError:
            self._lost()

    def _place(self, packed: list[memoryview]) -> bool:
        """Put a message into the socket's queue, and into the shared memory if it is large; False if that is full."""
        length = _length(packed)
        size = len(self._memory)
        if length < _INLINE or 2 * length > size:
            self._unsent.append(memoryview(_HEADER.pack(_SMALL, 0, length)))
            self._unsent.extend(buffer.cast("B") for buffer in packed if buffer.nbytes)
            return True
        start = self._written + -self._written % ALIGN
        if start % size + length > size:
            start += -start % size  # does not fit into the end
        if start + length - self._freed > size:
            return False
        place = start % size
        for buffer in packed:
            self._memory[place : place + buffer.nbytes] = buffer.cast("B")
            place += buffer.nbytes
        self._written = start + length
        self._unsent.append(memoryview(_HEADER.pack(_SHARED, start, length)))
        return True

    def _lost(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._unsent.clear()
        self.waiting_bytes = 0


class Incoming:
    """The end of a connection that receives.

    Parameters
    ----------
    connection : socket.socket
        Just accepted.

    Attributes
    ----------
    closed : bool
        Whether the sender is gone.
    sender : int or None
        Id of the sender, once it has introduced itself.
    data : bool
        Whether the connection is for data.
    shift : float
        What has to be added to times of the sender.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setblocking(False)
        self.closed = False
        self.sender: int | None = None
        self.data = False
        self.shift = 0.0
        self._memory: mmap | None = None
        self._input = bytearray()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self._socket.close()
        if self._memory is not None:
            self._memory.close()

    def receive(self) -> Iterator[Any]:
        """Return the messages that have arrived."""
        for message in self.packed():
            yield unpack(memoryview(message))

    def packed(self) -> Iterator[bytes]:
        """Return the messages that have arrived, as the bytes that `pack` has made of them."""
        if not self.introduce():
            return
        self._read()
        place, freed = 0, None
        memory = self._memory
        assert memory is not None
        try:
            while len(self._input) - place >= _HEADER.size:
                kind, start, length = _HEADER.unpack_from(self._input, place)
                begin = place + _HEADER.size
                if kind == _SHARED:
                    message = memory[start % len(memory) : start % len(memory) + length]
                    place, freed = begin, start + length
                elif len(self._input) < begin + length:
                    break
                else:
                    message = bytes(memoryview(self._input)[begin : begin + length])
                    place = begin + length
                yield message
        finally:
            del self._input[:place]
            if freed is not None and not self.closed:
                try:
                    self._socket.send(_FREED.pack(freed))
                except BlockingIOError:
                    pass  # the sender has many of these to read, which free enough to go on
                except OSError:
                    self.closed = True

    def introduce(self) -> bool:
        """Take what the sender sends first, and return whether it has arrived."""
        if self._memory is not None:
            return True
        try:
            hello, descriptors, _, _ = socket.recv_fds(self._socket, _HELLO.size, 1)
        except BlockingIOError:
            return False
        except OSError:
            hello, descriptors = b"", []
        if len(hello) < _HELLO.size or not descriptors:
            self.closed = True
            return False
        self.sender, self.data, self.shift = _HELLO.unpack(hello)
        self._memory = mmap(descriptors[0], os.fstat(descriptors[0]).st_size, prot=PROT_READ)
        os.close(descriptors[0])
        return True

    def _read(self) -> None:
        try:
            while data := self._socket.recv(_READ):
                self._input += data
                if len(self._input) > _READ:
                    return  # the rest in the next turn
            self.closed = True
        except BlockingIOError:
            return
        except OSError:
            self.closed = True


def listen(path: str) -> socket.socket:
    """Return a socket that listens for connections."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    listener.setblocking(False)
    return listener
