"""How much one client may ask for.

Own code, since the library `limits` has neither a token bucket with bursts nor calls at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Bytes of messages under way of a client, and of all: what is made of a message takes up to sixteen times as much.
_CLIENT_BYTES, _BYTES = 16 << 20, 64 << 20
#: Reads of a client that are computed or sent at a time, and bytes of its other answers that it has not read.
_READS, _UNREAD_BYTES = 8, 64 << 20
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
    unread: int = 0
    reads: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def idle(self) -> bool:
        """Whether nothing of the client is under way."""
        return not (self.calls or self.reads or self.unread)


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
            told = f"{client} has {self._streams:,} streams open, as many as this server accepts (--max-streams)"
            raise TooMuch(f"{told}; close one of them first")
        with self.call(client, size):
            account.streams += 1
            try:
                yield
            finally:
                account.streams -= 1

    async def read(self, client: str) -> Callable[[], None]:
        """Wait until a client has fewer than `_READS` reads under way.

        Parameters
        ----------
        client : str
            Of a call that is under way.

        Returns
        -------
        callable
            To be called once, when the client has the answer or has gone.
        """
        account = self._account(client)
        if account.reads >= _READS:
            turn = asyncio.get_running_loop().create_future()
            account.waiting.append(turn)
            try:
                await turn  # it is handed the place of a read that has ended
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
        """Count the bytes of an answer that is to be sent.

        Returns
        -------
        callable
            To be called once, when the client has it or has gone.

        Raises
        ------
        TooMuch
            The client does not read its answers. One answer is sent whatever its size.
        """
        account = self._account(client)
        if account.unread and account.unread + size > _UNREAD_BYTES:
            raise TooMuch(f"answers that {client} has not read: at most {_UNREAD_BYTES >> 20} MB; read them first")
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
