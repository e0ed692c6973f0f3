"""The client that waits for answers."""

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
    """A file of pieces that are asked for as it is read."""

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
    """What reads the batches of a result while its pieces come."""
    return pa.ipc.open_stream(io.BufferedReader(_Pieces(pieces)))


class Client(Calls):
    """Calls a server and waits for its answers. A context manager.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` or ``unix:PATH``.
    token : str, optional
    authority, tls, certificate, key
        See `goffish.client.channels.Access`.
    timeout_s : float, optional
        Of each call that is no stream; without it 30 s, and 330 s for calls that plan.
    patience_s : float
        For how long `watch`, `wait` and the results of jobs go on without a server that has answered before, from the
        moment on when it was away until it answers again.

    Attributes
    ----------
    jobs, planning, catalog
        The stubs of the protocol; give them ``metadata=client.metadata``.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def result(self, job: str) -> pa.Table:
        """The table of a job that is done."""
        return _read_batches(self._pieces(job)).read_all()

    def result_batches(self, job: str) -> Iterator[pa.RecordBatch]:
        """The table of a job that is done, piece by piece, without all of it being held."""
        yield from _read_batches(self._pieces(job))

    def save_result(self, job: str, path: str | Path) -> Path:
        """Write the table of a job that is done to a file, as an Arrow IPC stream, without holding it.

        The file appears whole or not at all; ``pyarrow.ipc.open_stream`` reads it.
        """
        with output_file(path) as temporary, temporary.open("wb") as file:
            for piece in self._pieces(job):
                file.write(piece)
        return Path(path)

    def upload(self, path: str | Path) -> str:
        """Bring a file to the server; gives its URI."""
        uri: str = self._call(self.jobs.Upload, requests.upload(path), usual_s=None).uri
        return uri
