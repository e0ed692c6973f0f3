"""Asynchronous client, for event loops."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from goffish.client.async_calls import AsyncCalls
from goffish.client.blocking import Client


class AsyncClient(AsyncCalls):
    """Asynchronous client of a server, with the parameters and methods of `Client`. An asynchronous context manager.

    Examples
    --------
    >>> async def total(address):
    ...     async with AsyncClient(address) as client:
    ...         job = await client.submit_graph("triangles", "web.store")
    ...         job = await client.wait(job.id)
    ...         return await client.result(job.id)
    """

    def __init__(
        self, address: str, token: str | None = None, *, authority: str | Path | None = None, tls: bool = False,
        certificate: str | Path | None = None, key: str | Path | None = None, timeout_s: float | None = None,
        patience_s: float = 600.0,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {
            "authority": authority, "tls": tls, "certificate": certificate, "key": key, "timeout_s": timeout_s,
            "patience_s": patience_s,
        }  # fmt: skip
        super().__init__(address, token, **given)
        self._make_blocking = functools.partial(Client, address, token, **given)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def result(self, job: str) -> pa.Table:
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
        pieces = [piece async for piece in self._pieces(job)]
        return pa.ipc.open_stream(b"".join(pieces)).read_all()

    async def result_batches(self, job: str) -> AsyncIterator[pa.RecordBatch]:
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
        with self._blocking() as client:
            batches = client.result_batches(job)
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch

    async def save_result(self, job: str, path: str | Path) -> Path | str:
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
        with self._blocking() as client:
            return await asyncio.to_thread(client.save_result, job, path)

    async def upload(self, path: str | Path) -> str:
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
        # Not only because it reads a file: gRPC for event loops loses the answer to a stream that is refused early.
        with self._blocking() as client:
            return await asyncio.to_thread(client.upload, path)

    def _blocking(self) -> Client:
        """Return a synchronous client for the threads that wait for files."""
        client = self._make_blocking()
        client._answered = self._answered
        return client
