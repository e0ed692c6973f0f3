"""Progress on its way from the first task of a run to the driver, where the driver's machine can be reached."""

from __future__ import annotations

import contextlib
import hmac
import math
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from goffish.gopher.engine import Progress
from goffish.gopher.spark.links import answer_call, call, listen_at

#: Superstep, subgraphs active, messages sent, and the share of the work done or NaN.
_RECORD = struct.Struct("<qqqd")
#: Seconds in which the first task must reach the driver, and in which the last records must arrive.
_REACH_S, _LAST_S = 5.0, 2.0
_DRIVER, _FIRST = -1, 0

Record = tuple[int, int, int, float | None]


def _key(secret: bytes) -> bytes:
    return hmac.digest(secret, b"progress", "sha256")


class Watch:
    """The driver's end: calls a function after every superstep, from the thread that calls `beat`.

    Parameters
    ----------
    progress : callable
    host : str
        Where executors reach the driver.
    secret : bytes
        Of this run.

    Attributes
    ----------
    address : tuple of str and int
        For `reporting`.
    """

    def __init__(self, progress: Progress, host: str, secret: bytes) -> None:
        self._progress, self._key = progress, _key(secret)
        self._listener = listen_at(host)
        self._listener.settimeout(0.2)
        self.address = (host, int(self._listener.getsockname()[1]))
        self._found: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._reported = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with self._listener:
            while not self._ended.is_set():
                # Nothing yet, not of this run, or lost: the next attempt calls again.
                with contextlib.suppress(OSError):
                    link = self._listener.accept()[0]
                    with link:
                        answer_call(link, self._key, _DRIVER)
                        self._read(link)

    def _read(self, link: socket.socket) -> None:
        with link.makefile("rb") as stream:
            while len(data := stream.read(_RECORD.size)) == _RECORD.size:
                number, active, sent, share = _RECORD.unpack(data)
                self._found.put((number, active, sent, None if math.isnan(share) else share))

    def beat(self) -> None:
        """Report what has arrived; supersteps that are run again are not reported again."""
        with contextlib.suppress(queue.Empty):
            while True:
                record = self._found.get_nowait()
                if record[0] > self._reported:
                    self._reported = record[0]
                    self._progress(*record)

    def close(self) -> None:
        """Report the last supersteps; the run has ended."""
        self._ended.set()
        self._thread.join(_LAST_S)
        self.beat()

    def stop(self) -> None:
        """Stop listening."""
        self._ended.set()


@contextmanager
def reporting(address: tuple[str, int] | None, secret: bytes) -> Iterator[Progress | None]:
    """The first task's end: a function to call after every superstep; ``None`` if the driver cannot be reached."""
    try:
        link = None if address is None else call(address, _key(secret), _FIRST, _DRIVER, _REACH_S)
    except OSError:
        link = None
    if link is None:
        yield None
        return

    def report(number: int, active: int, sent: int, share: float | None) -> None:
        with contextlib.suppress(OSError):  # the driver has ended, and so does this task soon
            link.sendall(_RECORD.pack(number, active, sent, math.nan if share is None else share))

    with link:
        yield report
