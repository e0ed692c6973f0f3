"""Tables as bytes: Arrow's stream format, whose columns are typed buffers that are read without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def pack_tables(tables: Sequence[pa.Table]) -> memoryview:
    """Several tables, each with its own columns, as one block of bytes."""
    sink = pa.BufferOutputStream()
    ends: list[int] = []
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        ends.append(sink.tell())
    sink.write(np.array([*ends, len(ends)], np.int64).tobytes())
    return memoryview(sink.getvalue())


def unpack_tables(data: Any) -> list[pa.Table]:
    """The inverse of `pack_tables`; the tables hold on to `data`."""
    buffer = pa.py_buffer(data)
    count = int(np.frombuffer(buffer[buffer.size - 8 :], np.int64)[0])
    ends = np.frombuffer(buffer[buffer.size - 8 * (count + 1) : buffer.size - 8], np.int64).tolist()
    begins = [0, *ends][:count]
    return [pa.ipc.open_stream(buffer[begin:end]).read_all() for begin, end in zip(begins, ends, strict=True)]
