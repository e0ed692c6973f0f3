"""Synchronous client."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from goffish.client import requests
from goffish.client.calls import Calls
from goffish.partial import output_file


class _Pieces(io.RawIOBase):
    """Read-only file of chunks that are fetched on demand."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _read_batches(pieces: Iterator[bytes]) -> pa.RecordBatchStreamReader:
    """Return a reader of record batches from the chunks of a result."""
    return pa.ipc.open_stream(io.BufferedReader(_Pieces(pieces)))


class Client(Calls):
    """Synchronous client; a context manager.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` or ``unix:PATH``.
    token : str, optional
        Client token, as printed by ``goffish clients add``.
    authority, tls, certificate, key
        See `goffish.client.channels.Access`.
    timeout_s : float, optional
        Timeout of each unary call; default: 30 s, and 330 s for planning calls.
    patience_s : float
        How long `watch`, `wait` and result downloads retry while a server that has answered before is unavailable.

    Attributes
    ----------
    jobs, planning, catalog
        gRPC stubs; pass ``metadata=client.metadata`` to their calls.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def result(self, job: str) -> pa.Table:
        """Return the result table of a completed job."""
        return _read_batches(self._pieces(job)).read_all()

    def result_batches(self, job: str) -> Iterator[pa.RecordBatch]:
        """Iterate over the result of a completed job in batches, without loading all of it into memory."""
        yield from _read_batches(self._pieces(job))

    def save_result(self, job: str, path: str | Path) -> Path:
        """Write the result of a completed job to a file, as an Arrow IPC stream, without loading it into memory.

        The file is written atomically; ``pyarrow.ipc.open_stream`` reads it.
        """
        with output_file(path) as temporary, temporary.open("wb") as file:
            for piece in self._pieces(job):
                file.write(piece)
        return Path(path)

    def upload(self, path: str | Path) -> str:
        """Upload a file to the server and return its URI."""
        uri: str = self._call(self.jobs.Upload, requests.upload(path), usual_s=None).uri
        return uri
