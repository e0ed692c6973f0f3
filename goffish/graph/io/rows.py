"""Columns to lines of text, a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import pyarrow as pa

_ROWS_PER_PIECE = 1 << 20


def write_rows(file: BinaryIO, columns: Sequence[Any], separator: str, *, quote: bool = False) -> None:
    """Write equally long columns (NumPy or Arrow) as lines; floats in their shortest exact form.

    `quote` puts every field in quotes, for strings that would otherwise be misread.
    """
    from pyarrow import csv

    style = csv.WriteOptions(
        include_header=False, delimiter=separator, quoting_style="all_valid" if quote else "needed"
    )
    arrays = [column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column) for column in columns]
    table = pa.table(arrays, names=[str(i) for i in range(len(arrays))])
    for start in range(0, table.num_rows, _ROWS_PER_PIECE):
        csv.write_csv(table.slice(start, _ROWS_PER_PIECE), file, style)
