"""Records in parts, of tables, files and other iterables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from goffish.errors import InputError

#: Records of iterables that are encoded at a time.
_CHUNK = 1 << 14


def parts_of(records: Any) -> Iterator[Any]:
    """Return records in parts, as tables or lists: what `LiveGraph.feed` takes at a time."""
    if isinstance(records, pa.RecordBatch):
        yield pa.Table.from_batches([records])
    elif hasattr(records, "__arrow_c_stream__"):
        yield pa.table(records)
    elif isinstance(records, str | Path) and Path(records).suffix == ".parquet":
        yield from _read_parquet(Path(records))
    else:
        if isinstance(records, str | Path):
            records = _read_lines(Path(records))
        if isinstance(records, Mapping) or not isinstance(records, Iterable):
            raise InputError(f"records: {type(records).__name__}; accepted are tables, paths and iterables of mappings")
        rest = iter(records)
        while part := list(islice(rest, _CHUNK)):
            yield part


def _read_parquet(path: Path) -> Iterator[pa.Table]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield pa.Table.from_batches([batch])
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {error}") from None


def _read_lines(path: Path) -> Iterator[Any]:
    if path.suffix != ".jsonl":
        raise InputError(f"{path}: accepted are files that end in .jsonl or .parquet")
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except (ValueError, RecursionError) as error:
                        raise InputError(f"{path}, line {number}: not a JSON value ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
