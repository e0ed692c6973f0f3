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
from goffish.partial import is_uri, output_file


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
    """Return a reader of the batches of a result, which arrive in pieces."""
    return pa.ipc.open_stream(io.BufferedReader(_Pieces(pieces)))


class Client(Calls):
    """Synchronous client of a server. A context manager.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` or ``unix:PATH``.
    token : str, optional
        Bearer token; sent to other machines only with TLS.
    authority : str or path-like, optional
        CA certificate of the server, for TLS with your own CA [default: the CAs that the computer trusts].
    tls : bool
        Use TLS [default: True with `authority` or `certificate`].
    certificate, key : str or path-like, optional
        Client certificate and its key, for mutual TLS.
    timeout_s : float, optional
        Timeout of each call that is not a stream, in seconds [default: 30, and 330 for planning calls].
    patience_s : float
        Time in seconds for which `watch`, `wait` and results reconnect to an unreachable server that has answered
        before [default: 600].

    Attributes
    ----------
    jobs, flows, planning, catalog, graphs, records
        gRPC stubs of the protocol; call them with ``metadata=client.metadata``.

    Raises
    ------
    InputError
        If the token would be sent unencrypted to another machine.
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
        """Return the result table of a finished job.

        Parameters
        ----------
        job : str
            Job id.

        Returns
        -------
        pyarrow.Table
            The table.

        Raises
        ------
        ServiceError
            If the job has no result or the server stays unreachable.
        """
        return _read_batches(self._pieces(job)).read_all()

    def result_batches(self, job: str) -> Iterator[pa.RecordBatch]:
        """Iterate over the result of a finished job without holding all of it in memory.

        Parameters
        ----------
        job : str
            Job id.

        Yields
        ------
        pyarrow.RecordBatch
            One batch after the other.

        Raises
        ------
        ServiceError
            If the job has no result or the server stays unreachable.
        """
        yield from _read_batches(self._pieces(job))

    def save_result(self, job: str, path: str | Path) -> Path | str:
        """Write the result of a finished job to a file, as an Arrow IPC stream, without holding it in memory.

        Parameters
        ----------
        job : str
            Job id.
        path : str or path-like
            File or URI, published when it is complete.

        Returns
        -------
        pathlib.Path or str
            The file or URI; ``pyarrow.ipc.open_stream`` reads it.

        Raises
        ------
        InputError
            If the file cannot be written.
        ServiceError
            If the job has no result or the server stays unreachable.
        """
        with output_file(path) as temporary, temporary.open("wb") as file:
            for piece in self._pieces(job):
                file.write(piece)
        return path if is_uri(path) else Path(path)

    def upload(self, path: str | Path) -> str:
        """Upload a file to the server.

        Parameters
        ----------
        path : str or path-like
            Local file.

        Returns
        -------
        str
            URI of the file, for `submit_graph`.

        Raises
        ------
        InputError
            If the file cannot be read.
        ServiceError
            If the server rejects the file or cannot be reached.
        """
        uri: str = self._call(self.jobs.Upload, requests.upload(path), usual_s=None).uri
        return uri
