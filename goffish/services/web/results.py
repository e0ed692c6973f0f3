"""Results as files to be downloaded, converted piece by piece."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from goffish.gopher.result import spreadsheet_safe
from goffish.services.api.calls import elsewhere

#: By the ends of file names: media types.
KINDS = {"arrow": "application/vnd.apache.arrow.stream", "parquet": "application/vnd.apache.parquet", "csv": "text/csv"}
_PIECE = 1 << 20


async def pieces(path: Path, kind: str) -> AsyncIterator[bytes]:
    """A result in another format, piece by piece; never all of it in memory.

    Parameters
    ----------
    path : Path
        Arrow's stream format.
    kind : str
        Of `KINDS`.
    """
    # Opened before the first piece is asked for, so that a file that is gone is told of.
    made = await elsewhere(_MAKERS[kind], path)
    try:
        while (piece := await elsewhere(next, made, None)) is not None:
            yield piece
    finally:
        # Whoever left in the middle of a piece leaves its thread at it; what that has open ends with it.
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
    """A file that is emptied while it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._held, self._at = bytearray(), 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Keep it until it is taken."""
        self._held += data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        """Bytes from the beginning on."""
        return self._at

    def taken(self) -> bytes:
        """What was written since the last time."""
        held, self._held = bytes(self._held), bytearray()
        return held


def _flat_schema(schema: Any) -> Any:
    """CSV has no lists and records: they become JSON."""
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
