"""Downloads of results, converted in chunks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from goffish.gopher.result import spreadsheet_safe
from goffish.services.api.calls import elsewhere

#: Media types by file extension.
KINDS = {"arrow": "application/vnd.apache.arrow.stream", "parquet": "application/vnd.apache.parquet", "csv": "text/csv"}
_PIECE = 1 << 20


async def pieces(path: Path, kind: str) -> AsyncIterator[bytes]:
    """Iterate over the chunks of a result in another format, without loading it into memory.

    Parameters
    ----------
    path : Path
        File in the Arrow stream format.
    kind : str
        Key of `KINDS`.
    """
    # Opened before the first chunk, so that a missing file raises an error.
    made = await elsewhere(_MAKERS[kind], path)
    try:
        while (piece := await elsewhere(next, made, None)) is not None:
            yield piece
    finally:
        # A cancelled request may leave its thread running, which then closes its files.
        with contextlib.suppress(ValueError):
            made.close()


def _arrow(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _converted(path: Path, writer: Callable[[Any, Any], Any]) -> Iterator[bytes]:
    import pyarrow as pa

    sink = _Sink()
    with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
        flat, made = reader.schema, _same
        if writer is _csv_writer:
            flat, made = _flat_schema(reader.schema), spreadsheet_safe
        with writer(sink, made(flat.empty_table()).schema) as out:
            for batch in reader:
                out.write_table(made(_flat(pa.Table.from_batches([batch]), flat)))
                if piece := sink.taken():
                    yield piece
        if piece := sink.taken():
            yield piece


def _same(table: Any) -> Any:
    return table


def _csv_writer(sink: Any, schema: Any) -> Any:
    import pyarrow.csv

    return pyarrow.csv.CSVWriter(sink, schema)


def _parquet_writer(sink: Any, schema: Any) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(sink, schema)


_MAKERS: dict[str, Callable[[Path], Any]] = {
    "arrow": _arrow, "parquet": lambda path: _converted(path, _parquet_writer),
    "csv": lambda path: _converted(path, _csv_writer),
}  # fmt: skip


class _Sink(io.RawIOBase):
    """Write-only file whose content is taken while it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._held, self._at = bytearray(), 0

    def writable(self) -> bool:
        """Return ``True``."""
        return True

    def write(self, data: Any) -> int:
        """Buffer data."""
        self._held += data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._at

    def taken(self) -> bytes:
        """Return and clear the buffer."""
        held, self._held = bytes(self._held), bytearray()
        return held


def _flat_schema(schema: Any) -> Any:
    """Return the schema for CSV, with nested columns as JSON texts."""
    import pyarrow as pa

    fields = [pa.field(one.name, pa.string()) if pa.types.is_nested(one.type) else one for one in schema]
    return pa.schema(fields)


def _flat(table: Any, schema: Any) -> Any:
    import json

    import pyarrow as pa

    for at, one in enumerate(schema):
        if table.schema.field(at).type != one.type:
            texts = [None if row is None else json.dumps(row, default=str) for row in table.column(at).to_pylist()]
            table = table.set_column(at, one, pa.array(texts, pa.string()))
    return table
