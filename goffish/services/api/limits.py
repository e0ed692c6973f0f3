"""How much one client may ask for.

Own code, since the library `limits` has neither a token bucket with bursts nor calls at a time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: Bytes of messages under way of a client, and of all: what is made of a message takes up to sixteen times as much.
_CLIENT_BYTES, _BYTES = 16 << 20, 64 << 20
#: Clients that are remembered; those that have not called for the longest time are forgotten first.
_MOST = 10_000


class TooMuch(Exception):
    """A client asked for more than it may; the message says when to come again."""


@dataclass
class _Account:
    tokens: float
    filled: float
    calls: int = 0
    bytes: int = 0
    streams: int = 0


class Limits:
    """Calls per second and calls at a time of each client (token buckets).

    Parameters
    ----------
    rate : float
        Calls per second, on average.
    burst : float
        Calls at once after a while without any.
    at_a_time : int
    now : callable
        Seconds of a clock that never jumps.
    streams : int
        Streams at a time, among those calls.
    """

    def __init__(
        self, rate: float, burst: float, at_a_time: int, now: Callable[[], float] = time.monotonic, streams: int = 100
    ) -> None:
        self._rate, self._burst, self._at_a_time, self._now = rate, burst, at_a_time, now
        self._streams = streams
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._bytes = 0

    @contextmanager
    def call(self, client: str, size: int = 0) -> Iterator[None]:
        """One call of a client.

        Parameters
        ----------
        client : str
        size : int
            Bytes of its message. One message is accepted whatever its size.

        Raises
        ------
        TooMuch
        """
        account = self._account(client)
        if account.calls >= self._at_a_time:
            raise TooMuch(f"{client} has {self._at_a_time:,} calls under way; end one of them first")
        for who, held, most in ((client, account.bytes, _CLIENT_BYTES), ("all clients together", self._bytes, _BYTES)):
            if held and held + size > most:
                raise TooMuch(f"messages under way of {who}: at most {most >> 20} MB; wait for answers first")
        now = self._now()
        account.tokens = min(self._burst, account.tokens + (now - account.filled) * self._rate)
        account.filled = now
        if account.tokens < 1.0:
            wait = (1.0 - account.tokens) / self._rate
            raise TooMuch(f"{client} may call {self._rate:g} times a second; come again in {wait:.3f} s")
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
        """One call of a client whose answer is a stream; as `call`.

        Raises
        ------
        TooMuch
        """
        account = self._account(client)
        if account.streams >= self._streams:
            told = f"{client} has {self._streams:,} streams open, as many as this server accepts (--most-streams)"
            raise TooMuch(f"{told}; close one of them first")
        with self.call(client, size):
            account.streams += 1
            try:
                yield
            finally:
                account.streams -= 1

    def _account(self, client: str) -> _Account:
        account = self._accounts.get(client)
        if account is None:
            account = self._accounts[client] = _Account(self._burst, self._now())
            if len(self._accounts) > _MOST:
                idle = next((name for name, one in self._accounts.items() if not one.calls), None)
                if idle is not None:
                    del self._accounts[idle]
        self._accounts.move_to_end(client)
        return account
