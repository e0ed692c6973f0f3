"""Series of numbers that users bring along: a CSV or Parquet file, one series in each column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from goffish.errors import InputError


def read_columns(path: str | Path) -> dict[str, NDArray[np.float64]]:
    """The columns of a CSV (with a header) or Parquet file.

    Raises
    ------
    InputError
        If the file cannot be read, has no rows, or holds anything but finite numbers that are 0 or more.
    """
    path = Path(path)
    try:
        table = pa.parquet.read_table(path) if _is_parquet(path) else pa.csv.read_csv(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None
    if not table.num_rows or not table.num_columns:
        raise InputError(f"{path}: has no rows; one series in each column is needed")
    found = {}
    for name in table.column_names:
        column = table[name]
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) or column.null_count:
            raise InputError(f"{path}: column {name} does not hold a number in every row")
        values = column.to_numpy().astype(np.float64)
        if not np.isfinite(values).all() or (values < 0).any():
            raise InputError(f"{path}: column {name} holds numbers below 0, or infinite ones")
        found[name] = values
    return found


def _is_parquet(path: Path) -> bool:
    return path.suffix in (".parquet", ".pq")
