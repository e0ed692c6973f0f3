"""Records that clients push: the queue between a server and the flow.

A server puts the records of a request into an `Inbox`, which appends them to the journal, with one fsync for all
requests that wait, and then acknowledges them. The reader of the flow takes them in the same order. After a restart it
begins at the position in the checkpoint, and reads from the journal what was acknowledged since.
"""

from __future__ import annotations

import hashlib
import ssl
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from socket import AF_INET, AF_INET6, IPPROTO_TCP, TCP_NODELAY, create_server, socket
from typing import Any, Protocol

import pyarrow as pa

from goffish.addresses import in_digits, is_loopback, split_address
from goffish.errors import InputError, JobError
from goffish.gofs.times import Duration, microseconds
from goffish.partial import check_new_place, local_path
from goffish.streaming.journal import NO_DIGEST, NO_KEY, SEGMENTS, Entry, Journal, Keys, Refused
from goffish.streaming.sources import Position, Read, Reader, Source
from goffish.streaming.tokens import given_secret

_LEAST_TOKEN, _LEAST_BYTES, _LONGEST_KEY = 16, 1024, 255


def entry_of(form: int, records: int, payload: bytes, key: bytes, name: str) -> Entry:
    """Return the entry of a request with a key, or an empty one; `name` is that of the key.

    Raises
    ------
    Refused
        The key is too long.
    """
    if len(key) > _LONGEST_KEY:
        raise Refused(400, f"{name}: accepted are {_LONGEST_KEY} bytes at most")
    entry = Entry(form, records, payload)
    if not key:
        return entry
    digest = hashlib.blake2b(payload, digest_size=8).digest()
    return entry._replace(key=hashlib.blake2b(key, digest_size=16).digest(), digest=digest)


class Inbox:
    """Entries between a server and the flow, in the order in which they are acknowledged.

    Parameters
    ----------
    journal : Journal, optional
        Without one, entries are acknowledged when the flow has taken them.
    waiting : int
        Bytes that may wait in memory.

    Attributes
    ----------
    error : str, optional
        Why no records can be accepted any more.
    """

    def __init__(self, journal: Journal | None, waiting: int) -> None:
        self.journal = journal
        self.error: str | None = None
        self._waiting = waiting
        self._keys = Keys() if journal is None else journal.keys
        self._held = 0
        self._closed = False
        self._condition = threading.Condition()
        self._pending: list[tuple[Entry, Future[int]]] = []
        self._pending_bytes = 0
        self._by_key: dict[bytes, tuple[bytes, Future[int]]] = {}
        self._queue: deque[tuple[Entry, Future[int]]] = deque()
        self._taking: Future[int] = Future()
        self._thread = threading.Thread(target=self._commit, name="goffish journal", daemon=True)
        if journal is not None:
            self._thread.start()

    def hold(self, size: int) -> None:
        """Reserve memory for what a client sends.

        Raises
        ------
        Refused
        """
        with self._condition:
            if self._held + size > self._waiting:
                raise Refused(429, f"more than {self._waiting:,} bytes wait for the flow; retry later")
            self._held += size

    def release(self, size: int) -> None:
        """Free memory."""
        with self._condition:
            self._held -= size

    def put(self, entry: Entry) -> Future[int]:
        """Accept an entry, for whose payload memory is held; that is released by the inbox.

        Returns
        -------
        Future
            Of the number of records, when they are acknowledged.

        Raises
        ------
        Refused
        """
        size = len(entry.payload)
        accepted = False
        try:
            with self._condition:
                if self.error is not None or self._closed:
                    raise Refused(503, self.error or "the flow is stopping; retry later")
                known = self._repeated(entry)
                if known is not None:
                    return known
                journal = self.journal
                if journal is not None and journal.size + self._pending_bytes + size > journal.limit:
                    raise Refused(503, "the journal is full until the next checkpoint of the flow; retry later")
                future: Future[int] = Future()
                accepted = True
                if entry.key != NO_KEY:
                    self._by_key[entry.key] = (entry.digest, future)
                entry = entry._replace(time=time.time())
                if journal is None:
                    self._queue.append((entry, future))
                else:
                    self._pending.append((entry, future))
                    self._pending_bytes += size
                    self._condition.notify()
                return future
        finally:
            if not accepted:
                self.release(size)

    def _repeated(self, entry: Entry) -> Future[int] | None:
        """Return the future of a request with the same key."""
        if entry.key == NO_KEY:
            return None
        digest, future = self._by_key.get(entry.key, (NO_DIGEST, None))
        if future is None or future.cancelled():
            known = self._keys.find(entry.key)
            if known is None:
                return None
            digest, future = known.digest, Future()
            future.set_result(known.records)
        if digest != entry.digest:
            raise Refused(422, "the Idempotency-Key was used for other records; choose another key")
        return future

    def _commit(self) -> None:
        """Append what has been put, as long as the inbox is open."""
        assert self.journal is not None
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending or self._closed)
                pending = self._next_pending()
            if not pending:
                return
            problem: Exception | None = None
            try:
                self.journal.append([entry for entry, _ in pending])
            except Refused as error:
                problem = error
            except Exception as error:
                self.error, problem = str(error), Refused(503, str(error))
            with self._condition:
                self._pending_bytes -= sum(len(entry.payload) for entry, _ in pending)
                for entry, future in pending:
                    self._by_key.pop(entry.key, None)
                    if problem is None:
                        self._queue.append((entry, future))
                    else:
                        self._held -= len(entry.payload)
            for entry, future in pending:
                if problem is None:
                    future.set_result(entry.records)
                else:
                    future.set_exception(problem)

    def _next_pending(self) -> list[tuple[Entry, Future[int]]]:
        """Remove the first entries that wait, of the size of a segment."""
        assert self.journal is not None
        size = count = 0
        for entry, _ in self._pending:
            size += len(entry.payload)
            if count and size > self.journal.segment_bytes:
                break
            count += 1
        pending, self._pending = self._pending[:count], self._pending[count:]
        return pending

    def take(self) -> Entry | None:
        """Return the next entry; ``None`` if there is none now. `taken` is to be called afterwards."""
        if self.error is not None:
            raise JobError(self.error)
        while self._queue:
            entry, future = self._queue.popleft()
            if self.journal is not None:
                return entry
            if future.set_running_or_notify_cancel():
                self._taking = future
                return entry
            self._forget(entry, future)
        return None

    def taken(self, entry: Entry) -> None:
        """Free the memory of an entry that was taken and read."""
        if self.journal is None:
            with self._condition:
                self._keys.add(entry)
            self._taking.set_result(entry.records)
        self._forget(entry, self._taking)

    def _forget(self, entry: Entry, future: Future[int]) -> None:
        with self._condition:
            self._held -= len(entry.payload)
            if self._by_key.get(entry.key, (NO_DIGEST, None))[1] is future:
                del self._by_key[entry.key]

    def close(self) -> None:
        """Acknowledge what can be, and accept nothing more."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self.journal is not None:
            self._thread.join()
            self.journal.close()
            return
        stopping = Refused(503, "the flow is stopping; retry later")
        while self._queue:
            entry, future = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(stopping)
            self._forget(entry, future)
        if self._taking.running():
            self._taking.set_exception(stopping)


class Server(Protocol):
    """Server of an inbox."""

    def stop(self) -> None:
        """Refuse requests from now on."""

    def close(self) -> None:
        """Wait until the last answers are sent."""


class _ReceivedReader(Reader):
    """Reads an inbox; the position is the number of an entry and the row in it."""

    def __init__(self, inbox: Inbox, serve: Callable[[Inbox], Server], position: Position | None) -> None:
        journal = inbox.journal
        self._inbox = inbox
        if journal is None:  # records of entries that were begun are gone
            number, row = position or [0, 0]
            self.position = [number + (row > 0), 0]
            self._replayed: Iterator[Entry] = iter(())
        else:
            self.position = [journal.begin, 0] if position is None else list(position)
            journal.check(self.position)
            self._replayed = journal.replay(self.position[0])
        self._entry: Entry | None = None
        self._from_inbox = False
        self._values: pa.RecordBatch | list[Any] = []
        self._server = serve(inbox)

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        found: Any = []
        while len(found) < limit and self._next():
            number, row = self.position
            if not isinstance(self._values, list):
                if not found:
                    found = self._values.slice(row, limit)
                    self._advance(number, row + len(found))
                break
            part = self._values[row : row + limit - len(found)]
            found += part
            self._advance(number, row + len(part))
        return Read(found) if len(found) else None

    def _next(self) -> bool:
        """Take the next entry if the last one is read; return whether there is one."""
        if self._entry is None:
            entry = next(self._replayed, None)
            self._from_inbox = entry is None
            if entry is None:
                entry = self._inbox.take()
            if entry is None:
                return False
            self._entry, self._values = entry, entry.values()
        return True

    def _advance(self, number: int, row: int) -> None:
        assert self._entry is not None
        self.position = [number, row]
        if row >= self._entry.records:
            if self._from_inbox:
                self._inbox.taken(self._entry)
            self.position, self._entry, self._values = [number + 1, 0], None, []

    def saved(self, position: Position) -> None:
        """Remove the files of the journal that no checkpoint needs."""
        if self._inbox.journal is not None:
            # After a takeover, the position may be ahead of what this reader still reads again.
            self._inbox.journal.trim(min(position[0], self.position[0]))

    def close(self) -> None:
        """Stop the server; records that were acknowledged stay in the journal."""
        self._server.stop()
        self._inbox.close()
        self._server.close()


@dataclass(frozen=True)
class Received(Source):
    """Records that clients send to an address, in one partition.

    Attributes
    ----------
    bind : str
    journal : str, optional
    token : str, optional
        A token, or ``env:NAME``.
    tls : pair of str, optional
        Files of a certificate and its key.
    max_body, max_waiting, max_journal : int
        Bytes.
    timeout : float
        Seconds that a request may take to arrive.
    """

    bind: str
    journal: str | None = None
    token: str | None = field(default=None, repr=False)
    tls: tuple[str, str] | None = None
    max_body: int = 8 << 20
    max_waiting: int = 64 << 20
    max_journal: int = 1 << 30
    timeout: float = 30.0

    @property
    def here(self) -> bool:
        """Whether partitions can only be read on the machine where the run was started."""
        return True  # clients have its address, and its disk has the journal

    def partitions(self) -> list[str]:
        """Return the name of the only partition."""
        return ["received"]

    def check(self) -> None:
        """Raise an error if the address, the certificate or the journal cannot be used."""
        self.secret()
        self._check_tls()
        if self.journal is not None:
            check_new_place(self.journal, folder=True)
        self.listener().close()

    def secret(self) -> bytes | None:
        """Return the token that clients have to send.

        Raises
        ------
        InputError
            The environment variable is not set, or the token is too short.
        """
        token = given_secret(self.token, f"{self.bind}: token")
        if token is None:
            return None
        if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise InputError(f"{self.bind}: token: must have at least {_LEAST_TOKEN} ASCII characters without spaces")
        return token.encode()

    def _check_tls(self) -> None:
        if self.tls is None:
            return
        try:
            # With a password, an encrypted key is an error and no question on the terminal.
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*self.tls, password="")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{self.bind}: tls: {', '.join(self.tls)}: cannot be used ({reason})") from None

    def listener(self) -> socket:
        """Return a socket that listens at the address.

        Raises
        ------
        InputError
        """
        host, _, port = in_digits(self.bind).rpartition(":")
        family = AF_INET6 if host.startswith("[") else AF_INET
        try:
            listener = create_server((host.strip("[]"), int(port)), family=family, backlog=1024)
        except OSError as error:
            raise InputError(f"cannot bind {self.bind}: {(error.strerror or str(error)).lower()}") from None
        listener.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # asyncio does not set it for such sockets
        return listener

    def open(self, partition: str, position: Position | None) -> Reader:
        """Start the server, and return the reader of what it receives."""
        journal = None if self.journal is None else Journal(self.journal, self.max_journal)
        inbox = Inbox(journal, self.max_waiting)
        try:
            return _ReceivedReader(inbox, self.serve, position)
        except BaseException:
            inbox.close()
            raise

    @abstractmethod
    def serve(self, inbox: Inbox) -> Server:
        """Start the server."""


def checked_options(function: str, given: dict[str, Any], timeout: Duration) -> dict[str, Any]:
    """Return the options of a source that clients send to, in the types of `Received`.

    Raises
    ------
    InputError
        An option is not accepted; names the function and the option.
    """
    address = split_address(given["bind"])
    if address is None or not address[1]:
        raise InputError(f"{function}: bind = {given['bind']!r}: accepted is HOST:PORT with a port of 1 to 65535")
    if not is_loopback(address[0]) and (given["tls"] is None or given["token"] is None):
        raise InputError(
            f"{function}: bind = {given['bind']!r}: not a loopback address; requires tls=(CERTIFICATE, KEY) and token"
        )
    journal, tls, most = given["journal"], given["tls"], given["max_body"]
    if journal is not None:
        local_path(journal)
    if tls is not None and len(tls) != 2:
        raise InputError(f"{function}: tls = {tls!r}: accepted are the files of a certificate and its key")
    for name, least in (
        ("max_body", _LEAST_BYTES), ("max_waiting", most), ("max_journal", SEGMENTS * most)
    ):  # fmt: skip
        if isinstance(given[name], bool) or not isinstance(given[name], int) or given[name] < least:
            raise InputError(f"{function}: {name} = {given[name]!r}: must be at least {least:,} bytes")
    return given | {
        "journal": None if journal is None else str(journal),
        "tls": None if tls is None else (str(tls[0]), str(tls[1])),
        "timeout": microseconds(timeout, f"{function}: timeout") / 1e6,
    }
