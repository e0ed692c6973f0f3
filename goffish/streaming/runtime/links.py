"""Connections between processes of one host: large messages through shared memory, small ones through a socket.

The receiver of a large message finds its place in the shared memory in the socket, which therefore also orders memory
accesses and wakes the receiver up. Only processes that are given the socket can connect: its folder belongs to the
user, and messages are pickled.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from mmap import mmap
from typing import Any

import pyarrow as pa

from goffish.errors import JobError

#: Smaller messages go through the socket: a place in the shared memory costs a second message, when it is free again.
_INLINE = 16 << 10
_ALIGN = 64
_READ = 1 << 18

_HEADER = struct.Struct("<BQQ")  # kind, place, length
_SMALL, _SHARED, _FREED = range(3)


def pack(message: object) -> list[memoryview]:
    """Return a message as buffers; arrays and Arrow columns are not copied."""
    outside: list[pickle.PickleBuffer] = []
    data = pickle.dumps(message, protocol=5, buffer_callback=outside.append)
    buffers = [memoryview(data), *(buffer.raw() for buffer in outside)]
    lengths = struct.pack(f"<{len(buffers) + 1}Q", len(buffers), *(buffer.nbytes for buffer in buffers))
    packed = [memoryview(lengths)]
    for buffer in buffers:
        # Aligned for the same reason as Arrow aligns its columns.
        packed.append(memoryview(bytes(-sum(part.nbytes for part in packed) % _ALIGN)))
        packed.append(buffer)
    return packed


def unpack(data: memoryview) -> Any:
    """Return a message from the bytes of its buffers, which its arrays go on using."""
    (count,) = struct.unpack_from("<Q", data)
    lengths = struct.unpack_from(f"<{count}Q", data, 8)
    place = 8 * (count + 1)
    buffers = []
    for length in lengths:
        place += -place % _ALIGN
        buffers.append(data[place : place + length])
        place += length
    return pickle.loads(buffers[0], buffers=(pa.py_buffer(buffer) for buffer in buffers[1:]))


class Link:
    """One end of a connection to another process of this host, which never blocks.

    Parameters
    ----------
    connection : socket.socket
        A connected Unix socket.
    shared_bytes : int
        Shared memory for what this end sends: the bound of what the other end has not read yet.

    Attributes
    ----------
    closed : bool
        Whether the other end is gone.
    """

    def __init__(self, connection: socket.socket, shared_bytes: int = 16 << 20) -> None:
        self._socket = connection
        connection.setblocking(True)
        descriptor = os.memfd_create("goffish")
        os.ftruncate(descriptor, shared_bytes)
        self._own = mmap(descriptor, shared_bytes)
        socket.send_fds(connection, [b"m"], [descriptor])
        os.close(descriptor)
        _, (theirs, *_), _, _ = socket.recv_fds(connection, 1, 1)
        self._theirs = mmap(theirs, os.fstat(theirs).st_size)
        os.close(theirs)
        connection.setblocking(False)
        self.closed = False
        self._written = self._freed = 0  # bytes of the shared memory, since the start
        self._waiting: deque[list[memoryview]] = deque()  # messages without a place
        self._unsent: deque[memoryview] = deque()
        self._input = bytearray()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self._socket.close()
        with suppress(BufferError):  # messages that still use the memory keep it
            self._own.close()

    @property
    def unsent(self) -> int:
        """Number of messages that wait to be sent."""
        return len(self._waiting) + len(self._unsent)

    def send(self, message: object) -> None:
        """Send a message, or keep it until `flush` can."""
        if not self.closed:
            self._waiting.append(pack(message))
            self.flush()

    def flush(self) -> None:
        """Send what can be sent now."""
        while self._waiting and self._place(self._waiting[0]):
            self._waiting.popleft()
        try:
            while self._unsent:
                sent = self._socket.sendmsg([self._unsent[i] for i in range(min(16, len(self._unsent)))])
                while sent and sent >= self._unsent[0].nbytes:
                    sent -= self._unsent.popleft().nbytes
                if sent:
                    self._unsent[0] = self._unsent[0][sent:]
        except BlockingIOError:
            return
        except OSError:
            self._lost()

    def _place(self, packed: list[memoryview]) -> bool:
        """Put a message into the socket's queue, and into the shared memory if it is large; False if that is full."""
        length = sum(buffer.nbytes for buffer in packed)
        size = len(self._own)
        if length < _INLINE or 2 * length > size:
            self._unsent.append(memoryview(_HEADER.pack(_SMALL, 0, length)))
            self._unsent.extend(buffer.cast("B") for buffer in packed if buffer.nbytes)
            return True
        start = self._written + -self._written % _ALIGN
        if start % size + length > size:
            start += -start % size  # does not fit into the end
        if start + length - self._freed > size:
            return False
        place = start % size
        for buffer in packed:
            self._own[place : place + buffer.nbytes] = buffer.cast("B")
            place += buffer.nbytes
        self._written = start + length
        self._unsent.append(memoryview(_HEADER.pack(_SHARED, start, length)))
        return True

    def receive(self) -> Iterator[Any]:
        """Return the messages that have arrived."""
        self._read()
        place = 0
        while len(self._input) - place >= _HEADER.size:
            kind, start, length = _HEADER.unpack_from(self._input, place)
            if kind == _FREED:
                self._freed = start
            elif kind == _SHARED:
                begin = start % len(self._theirs)
                message = self._theirs[begin : begin + length]
                self._unsent.append(memoryview(_HEADER.pack(_FREED, start + length, 0)))
                yield unpack(memoryview(message))
            elif len(self._input) - place < _HEADER.size + length:
                break
            else:
                begin = place + _HEADER.size
                place += length
                yield unpack(memoryview(bytes(self._input[begin : begin + length])))
            place += _HEADER.size
        del self._input[:place]
        self.flush()

    def _read(self) -> None:
        try:
            while data := self._socket.recv(_READ):
                self._input += data
                if len(self._input) > _READ:
                    return  # the rest in the next turn
            self._lost()
        except BlockingIOError:
            return
        except OSError:
            self._lost()

    def _lost(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._unsent.clear()


def connect(path: str) -> Link:
    """Connect to a process that listens on a Unix socket.

    Raises
    ------
    JobError
        No process listens there.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        return Link(connection)
    except OSError as error:
        connection.close()
        raise JobError(f"cannot connect to {path}: {error.strerror}") from error
