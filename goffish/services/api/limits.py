"""Rate and concurrency limits per client.

The library `limits` supports neither token buckets with bursts nor concurrency limits.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Maximum bytes of request messages in progress, per client and in total; parsed messages take up to 16 times as much.
_CLIENT_BYTES, _BYTES = 16 << 20, 64 << 20
#: Maximum concurrent reads per client, and maximum bytes of responses that it has not received.
_READS, _UNREAD_BYTES = 8, 64 << 20
#: Maximum number of tracked clients; the least recently active are dropped first.
_MOST = 10_000


class TooMuch(Exception):
    """A limit is exceeded; the message names the limit and, if possible, when to retry."""


@dataclass
class _Account:
    tokens: float
    filled: float
    calls: int = 0
    bytes: int = 0
    streams: int = 0
    unread: int = 0
    reads: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def idle(self) -> bool:
        """Whether the client has no calls in progress."""
        return not (self.calls or self.reads or self.unread)


class Limits:
    """Call rates (token buckets) and concurrent calls of each client.

    Parameters
    ----------
    rate : float
        Average calls per second.
    burst : float
        Maximum burst of calls after an idle period.
    concurrent : int
        Maximum concurrent calls.
    now : callable
        Monotonic clock, in seconds.
    streams : int
        Maximum concurrent streams, included in the calls.
    """

    def __init__(
        self, rate: float, burst: float, concurrent: int, now: Callable[[], float] = time.monotonic, streams: int = 100
    ) -> None:
        self._rate, self._burst, self._concurrent, self._now = rate, burst, concurrent, now
        self._streams = streams
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._bytes = 0

    @contextmanager
    def call(self, client: str, size: int = 0) -> Iterator[None]:
        """Count one call of a client for the duration of the context.

        Parameters
        ----------
        client : str
        size : int
            Bytes of the request. A single request is accepted regardless of its size.

        Raises
        ------
        TooMuch
        """
        account = self._account(client)
        if account.calls >= self._concurrent:
            text = f"client {client} has {self._concurrent:,} concurrent calls, the limit (--max-calls)"
            raise TooMuch(f"{text}; retry later")
        totals = ((f"client {client}", account.bytes, _CLIENT_BYTES), ("all clients", self._bytes, _BYTES))
        for who, held, most in totals:
            if held and held + size > most:
                raise TooMuch(f"requests in progress of {who} exceed {most >> 20} MB; retry later")
        now = self._now()
        account.tokens = min(self._burst, account.tokens + (now - account.filled) * self._rate)
        account.filled = now
        if account.tokens < 1.0:
            wait = (1.0 - account.tokens) / self._rate
            limit = f"{self._rate:g} calls per second (--max-call-rate)"
            raise TooMuch(f"client {client} exceeds {limit}; retry in {wait:.3f} s")
        account.tokens -= 1.0
        account.calls += 1
        account.bytes += size
        self._bytes += size
        try:
            yield
        finally:
            account.calls -= 1
            account.bytes -= size
            self._bytes -= size

    @contextmanager
    def stream(self, client: str, size: int = 0) -> Iterator[None]:
        """Count one streaming call of a client, in addition to `call`.

        Raises
        ------
        TooMuch
        """
        account = self._account(client)
        if account.streams >= self._streams:
            text = f"client {client} has {self._streams:,} open streams, the limit (--max-streams)"
            raise TooMuch(f"{text}; close one first")
        with self.call(client, size):
            account.streams += 1
            try:
                yield
            finally:
                account.streams -= 1

    async def read(self, client: str) -> Callable[[], None]:
        """Wait until a client has fewer than `_READS` reads in progress.

        Parameters
        ----------
        client : str
            Client of a call in progress.

        Returns
        -------
        callable
            Call it once, when the client has received the response or disconnected.
        """
        account = self._account(client)
        if account.reads >= _READS:
            turn = asyncio.get_running_loop().create_future()
            account.waiting.append(turn)
            try:
                await turn  # receives the slot of a completed read
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._read_ended(account)
                raise
        else:
            account.reads += 1
        return lambda: self._read_ended(account)

    @staticmethod
    def _read_ended(account: _Account) -> None:
        while account.waiting:
            turn = account.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        account.reads -= 1

    def answer(self, client: str, size: int) -> Callable[[], None]:
        """Count the bytes of a response until it is sent.

        Returns
        -------
        callable
            Call it once, when the client has received the response or disconnected.

        Raises
        ------
        TooMuch
            The client does not receive its responses. A single response is sent regardless of its size.
        """
        account = self._account(client)
        if account.unread and account.unread + size > _UNREAD_BYTES:
            raise TooMuch(f"unread responses of client {client} exceed {_UNREAD_BYTES >> 20} MB; read them first")
        account.unread += size

        def sent() -> None:
            account.unread -= size

        return sent

    def _account(self, client: str) -> _Account:
        account = self._accounts.get(client)
        if account is None:
            account = self._accounts[client] = _Account(self._burst, self._now())
            if len(self._accounts) > _MOST:
                idle = next((name for name, one in self._accounts.items() if one.idle), None)
                if idle is not None:
                    del self._accounts[idle]
        self._accounts.move_to_end(client)
        return account
