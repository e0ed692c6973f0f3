"""What every run returns: an Arrow table keyed by the user's labels, a summary and the counters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from goffish.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from goffish.gopher.stats import RunStats


@dataclass(frozen=True, eq=False)
class Result:
    """The answer of one algorithm.

    Attributes
    ----------
    algorithm : str
    table : pyarrow.Table
        One row per vertex (for graph-level answers: per item), first column the user's labels.
    summary : dict
        The few figures a person wants to see first; plain Python values.
    stats : RunStats or None
        Counters of the engine; ``None`` where no engine ran.
    """

    algorithm: str
    table: pa.Table
    summary: Mapping[str, Any] = field(default_factory=dict)
    stats: RunStats | None = None

    def to_pandas(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_dict(self, column: str | None = None) -> dict[Any, Any]:
        """Map each value of the first column to its value in `column` (default: the second column)."""
        name = column if column is not None else self.table.column_names[1]
        if name not in self.table.column_names:
            raise InputError(f"no column {name!r}; there are {', '.join(self.table.column_names)}")
        return dict(zip(self.table.column(0).to_pylist(), self.table.column(name).to_pylist(), strict=True))

    def write(self, path: str | Path) -> Path:
        """Write the table as Parquet, CSV, JSON (one object per line) or Arrow IPC, by the suffix of `path`.

        The file appears whole or not at all.
        """
        return write_table(self.table, path)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}={value}" for name, value in self.summary.items())
        return f"Result({self.algorithm}: {self.table.num_rows:,} rows of {self.table.column_names}; {figures})"


def check_suffix(path: str | Path) -> None:
    """Refuse a table file whose format cannot be told from its suffix, before any work is done for it."""
    if Path(path).suffix.lower() not in _WRITERS:
        raise InputError(f"{path}: the suffix must be one of {', '.join(_WRITERS)}")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {Path(path).parent} does not exist")


def write_table(table: pa.Table, path: str | Path) -> Path:
    """Write `table` in the format that the suffix of `path` names, through a temporary file beside it."""
    check_suffix(path)
    target = Path(path)
    temporary = target.with_name(f".{target.name}.partial")
    try:
        _WRITERS[target.suffix.lower()](table, temporary)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _write_csv(table: pa.Table, path: Path) -> None:
    from pyarrow import csv

    csv.write_csv(table, path)


def _write_json(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for batch in table.to_batches(max_chunksize=65536):
            stream.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())


def _write_arrow(table: pa.Table, path: Path) -> None:
    from pyarrow import feather

    feather.write_feather(table, path, compression="uncompressed")


_WRITERS = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".json": _write_json,
    ".jsonl": _write_json,
    ".arrow": _write_arrow,
    ".feather": _write_arrow,
}
