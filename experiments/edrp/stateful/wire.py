"""Authenticated connections of this computer that carry JSON."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

_LOCAL = "127.0.0.1"
_LONGEST = 1 << 26
_WAITING = 128


def send(connection: Connection, said: Any) -> None:
    """Send one message."""
    connection.send_bytes(json.dumps(said, separators=(",", ":")).encode())


def receive(connection: Connection) -> Any:
    """Wait for one message.

    Raises
    ------
    EOFError, OSError
        The other end is gone.
    """
    return json.loads(connection.recv_bytes(_LONGEST))


def connect(port: int, key: bytes) -> Connection:
    """Connect to a process of this computer."""
    return _at_once(Client((_LOCAL, port), authkey=key))


def _at_once(connection: Connection) -> Connection:
    """Have small messages sent without delay."""
    with socket.socket(fileno=connection.fileno()) as own:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.detach()
    return connection


class Door:
    """Accepts connections and reads each in a thread of its own.

    Parameters
    ----------
    key : bytes
    hear : callable
        Called with every message and its connection, and with ``None`` when one is gone; from several threads.
    """

    def __init__(self, key: bytes, hear: Callable[[Any, Connection], None]) -> None:
        self._listener = Listener((_LOCAL, 0), backlog=_WAITING, authkey=key)
        self._hear, self._closed = hear, False
        self._open: list[Connection] = []
        self.port = int(self._listener.address[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = _at_once(self._listener.accept())
            except (OSError, EOFError, AuthenticationError):
                continue  # somebody else, or one that is gone already
            self._open.append(connection)
            self.listen(connection)

    def listen(self, connection: Connection) -> None:
        """Read a connection that was made by this end."""
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            while True:
                self._hear(receive(connection), connection)
        connection.close()
        self._hear(None, connection)

    def close(self) -> None:
        """Accept no more, and drop what was accepted."""
        self._closed = True
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            # Whoever waits in accept is not woken by closing alone.
            socket.create_connection((_LOCAL, self.port), timeout=1).close()
        self._listener.close()
        for connection in self._open:
            drop(connection)


def drop(connection: Connection) -> None:
    """End a connection; the thread that reads it closes it."""
    with contextlib.suppress(OSError), socket.socket(fileno=connection.fileno()) as own:
        try:
            own.shutdown(socket.SHUT_RDWR)
        finally:
            own.detach()
