"""Asynchronous client, with the same methods as the synchronous one."""

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
    """Asynchronous client; an async context manager with the parameters and methods of `Client`."""

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
        """Return the result table of a completed job."""
        pieces = [piece async for piece in self._pieces(job)]
        return pa.ipc.open_stream(b"".join(pieces)).read_all()

    async def result_batches(self, job: str) -> AsyncIterator[pa.RecordBatch]:
        """Iterate over the result of a completed job in batches, without loading all of it into memory."""
        with self._blocking() as client:
            batches = client.result_batches(job)
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch

    async def save_result(self, job: str, path: str | Path) -> Path:
        """Write the result of a completed job to a file, as an Arrow IPC stream, without loading it into memory."""
        with self._blocking() as client:
            return await asyncio.to_thread(client.save_result, job, path)

    async def upload(self, path: str | Path) -> str:
        """Upload a file to the server and return its URI."""
        # In a thread, because it reads a file, and because grpc.aio loses the answer to a stream rejected early.
        with self._blocking() as client:
            return await asyncio.to_thread(client.upload, path)

    def _blocking(self) -> Client:
        """Return a synchronous client for threads that do file I/O."""
        client = self._make_blocking()
        client._answered = self._answered
        return client
