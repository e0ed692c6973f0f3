"""Barrier tasks of Spark as a team: a TCP connection between any two of them, authenticated by a secret of the run."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from goffish.gopher.team.team import Bytes, Space, Stopped, Team

#: Seconds in which all connections of a run must be made, and in which a connection must authenticate itself.
_CONNECT_S, _GREET_S = 60.0, 10.0
#: Buffers of one system call.
_BUFFERS = 64
_NONCE = 32
_NAMES = struct.Struct("<ii")  # who connects, and to whom


class Lost(ConnectionError):
    """Another task cannot be reached; not an error of the job, which is run again."""


class Refused(ConnectionError):
    """The other end of a connection does not have the secret of the run."""


def listen_at(host: str) -> socket.socket:
    """A listening socket at an address of this machine, or at all of them if others see it under another address."""
    try:
        return socket.create_server(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4], family=_family(host))
    except OSError:
        return socket.create_server(("", 0))


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]


def call(address: tuple[str, int], key: bytes, me: int, other: int, seconds: float = _CONNECT_S) -> socket.socket:
    """Connect to a member, or to the driver (-1), and authenticate each other.

    Raises
    ------
    OSError
        It cannot be reached, or does not have the key.
    """
    link = socket.create_connection(address, timeout=seconds)
    try:
        link.settimeout(_GREET_S)
        said = _NAMES.pack(me, other) + secrets.token_bytes(_NONCE)
        link.sendall(said)
        answer = _receive(link, _NONCE + hashlib.sha256().digest_size)
        said += answer[:_NONCE]
        if not hmac.compare_digest(answer[_NONCE:], _proof(key, b"listens", said)):
            raise Refused("wrong secret")
        link.sendall(_proof(key, b"connects", said))
        return _made(link)
    except BaseException:
        link.close()
        raise


def answer_call(link: socket.socket, key: bytes, me: int) -> int:
    """Authenticate a connection that was accepted; gives the number of the member that made it.

    Raises
    ------
    OSError
        It is not of this run.
    """
    link.settimeout(_GREET_S)
    said = _receive(link, _NAMES.size + _NONCE)
    caller, called = _NAMES.unpack(said[: _NAMES.size])
    nonce = secrets.token_bytes(_NONCE)
    said += nonce
    link.sendall(nonce + _proof(key, b"listens", said))
    if not hmac.compare_digest(_receive(link, hashlib.sha256().digest_size), _proof(key, b"connects", said)):
        raise Refused("wrong secret")
    if called != me:
        raise Refused("for another task")
    _made(link)
    return int(caller)


def _proof(key: bytes, side: bytes, said: bytes) -> bytes:
    return hmac.digest(key, side + said, "sha256")


def _made(link: socket.socket) -> socket.socket:
    link.settimeout(None)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def _receive(link: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = link.recv(size - len(found))
        if not more:
            raise Refused("closed")
        found += more
    return found


@contextmanager
def joined(
    rank: int, size: int, host: str, secret: bytes, gather: Callable[[str], Sequence[str]], threads: int
) -> Iterator[LinkTeam]:
    """The team of a barrier stage.

    Parameters
    ----------
    rank, size : int
        Number of this task, and how many there are.
    host : str
        Under which the others reach it.
    secret : bytes
        Of this run.
    gather : callable
        Gives the texts of all tasks, in their order: `pyspark.BarrierTaskContext.allGather`.
    threads : int
        Of this task.

    Raises
    ------
    Lost
        A task cannot be reached.
    """
    if size == 1:
        yield LinkTeam(rank, size, {}, threads, 1)
        return
    with ExitStack() as stack:
        listener = stack.enter_context(listen_at(host))
        # Fresh in every attempt of the stage: what is left of an earlier one does not have the key of this one.
        answers = gather(f"{host} {listener.getsockname()[1]} {secrets.token_hex(_NONCE)}")
        key = hmac.digest(secret, "\n".join(answers).encode(), "sha256")
        places = [(name, int(port)) for name, port, _ in (text.split() for text in answers)]
        links: dict[int, socket.socket] = {}
        stack.callback(_close_all, links)
        _connect(links, rank, listener, places, key)
        listener.close()
        yield LinkTeam(rank, size, links, threads, sum(name == host for name, _ in places))


def _close_all(links: Mapping[int, socket.socket]) -> None:
    for link in links.values():
        link.close()


def _connect(
    links: dict[int, socket.socket], rank: int, listener: socket.socket, places: Sequence[tuple[str, int]], key: bytes
) -> None:
    """Add connections to all others: this task connects to those before it and accepts those behind it."""
    deadline = time.monotonic() + _CONNECT_S

    def reach(other: int) -> None:
        try:
            links[other] = call(places[other], key, rank, other)
        except OSError as error:
            where = f"task {other} at {places[other][0]}:{places[other][1]}"
            advice = "executors must accept TCP connections from one another"
            raise Lost(f"task {rank} cannot connect to {where} ({error.strerror or error}); {advice}") from error

    def accept(link: socket.socket) -> None:
        try:
            links[answer_call(link, key, rank)] = link
        except OSError:
            link.close()  # not of this run

    listener.settimeout(0.1)
    with ThreadPoolExecutor(32) as pool:
        calls = [pool.submit(reach, other) for other in range(rank)]
        while len(links) < len(places) - 1 and not any(one.done() and one.exception() for one in calls):
            try:
                pool.submit(accept, listener.accept()[0])
            except TimeoutError:
                if time.monotonic() > deadline:
                    missing = ", ".join(str(other) for other in range(rank + 1, len(places)) if other not in links)
                    raise Lost(f"task {rank} was not called by task {missing} in {_CONNECT_S:.0f} s") from None
        for one in calls:
            one.result()


class _Flow:
    """What one connection still has to send and to receive in a transfer."""

    __slots__ = ("inward", "link", "other", "outward")

    def __init__(self, other: int, link: socket.socket, pieces: Sequence[Bytes], into: Bytes) -> None:
        self.other, self.link = other, link
        self.outward = deque(piece.data for piece in pieces if piece.size)
        self.inward = into.data

    def advance(self) -> int:
        """Send and receive as much as is possible at once; gives the events to wait for, 0 at the end."""
        try:
            if self.outward:
                self._send()
            if self.inward:
                self._receive()
        except OSError as error:
            raise Lost(f"the connection to task {self.other} is lost ({error.strerror or error})") from error
        return (selectors.EVENT_WRITE if self.outward else 0) | (selectors.EVENT_READ if self.inward else 0)

    def _send(self) -> None:
        try:
            while self.outward:
                sent = self.link.sendmsg(list(islice(self.outward, _BUFFERS)))
                while self.outward and sent >= self.outward[0].nbytes:
                    sent -= self.outward.popleft().nbytes
                if sent:
                    self.outward[0] = self.outward[0][sent:]
        except BlockingIOError:
            return

    def _receive(self) -> None:
        try:
            while self.inward:
                count = self.link.recv_into(self.inward)
                if not count:
                    raise Lost(f"task {self.other} is lost")
                self.inward = self.inward[count:]
        except BlockingIOError:
            return


class LinkTeam(Team):
    """Tasks that hold connections to one another.

    Parameters
    ----------
    links : mapping of int to socket
        Connections to all other members.
    threads : int
        Of this task.
    neighbors : int
        Tasks on this one's machine.
    """

    engine = "spark"
    all_called = "all executors"

    def __init__(self, rank: int, size: int, links: Mapping[int, socket.socket], threads: int, neighbors: int) -> None:
        super().__init__()
        self.rank, self.size = rank, size
        self._links, self._threads, self._neighbors = dict(sorted(links.items())), threads, neighbors
        for link in links.values():
            link.setblocking(False)

    def _transfer(self, outgoing: Sequence[Sequence[Bytes]], incoming: Sequence[Bytes]) -> None:
        """Send pieces to every member and fill an array from each, all at the same time."""
        at = 0
        for piece in outgoing[self.rank]:
            incoming[self.rank][at : at + piece.size] = piece
            at += piece.size
        with selectors.DefaultSelector() as selector:
            for other, link in self._links.items():
                flow = _Flow(other, link, outgoing[other], incoming[other])
                if events := flow.advance():
                    selector.register(link, events, flow)
            while selector.get_map():
                for key, _ in selector.select():
                    events = key.data.advance()
                    if not events:
                        selector.unregister(key.fileobj)
                    elif events != key.events:
                        selector.modify(key.fileobj, events, key.data)

    def swap(self, blocks: Sequence[Bytes], sizes: Sequence[int]) -> list[Bytes]:
        arrived = [np.empty(size, np.uint8) for size in sizes]
        self._transfer([[block] for block in blocks], arrived)
        return arrived

    def move(
        self,
        outgoing: Sequence[Sequence[Bytes]],
        rows: NDArray[np.int64],
        incoming: NDArray[np.int64],
        largest: int,
        unit: int,
        space: Space | None = None,
    ) -> list[Bytes]:
        ends = np.cumsum(incoming * unit)
        arrived = np.split((space or Space()).arriving(int(ends[-1])), ends[:-1])
        if largest:
            self._transfer(outgoing, arrived)
        return arrived

    def alarm(self) -> None:
        """Nothing: the others find it in `listen`, as the first number that a member sends after its work."""

    def listen(self) -> None:
        for other, link in self._links.items():
            try:
                head = link.recv(8, socket.MSG_PEEK)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Lost(f"the connection to task {other} is lost ({error.strerror or error})") from error
            if not head:
                raise Lost(f"task {other} is lost")
            if any(head):
                raise Stopped

    def local_threads(self) -> int:
        return self._threads

    def threads_here(self, threads: int) -> int:
        return threads * self._neighbors
