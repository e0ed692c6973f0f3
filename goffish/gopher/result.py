"""What every run returns: an Arrow table keyed by the user's labels, a summary and the counters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import FormatError, InputError
from goffish.notebook import MOST_ROWS, facts_html, rows_html
from goffish.partial import check_place, output_file

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from goffish.gopher.stats import RunStats


#: Columns that name a row together.
_PAIRS = {("source", "target"), ("partition", "subgraph"), ("subgraph", "neighbor")}


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
        """Map what each row is about to its value in `column`.

        Parameters
        ----------
        column : str, optional
            Default: the first column behind the keys.

        Returns
        -------
        dict
            Keys are the values of the first column; pairs in tables of edges (``source``, ``target``) and of subgraphs
            (``partition``, ``subgraph``; ``subgraph``, ``neighbor``).

        Raises
        ------
        InputError
            There is no such column, or several rows have one key.
        """
        names = self.table.column_names
        width = 2 if tuple(names[:2]) in _PAIRS else 1
        name = column if column is not None else names[width]
        if name not in names:
            raise InputError(f"no column {name!r}; there are {', '.join(names)}")
        columns = [self.table.column(at).to_pylist() for at in range(width)]
        keys = columns[0] if width == 1 else zip(*columns, strict=True)
        found = dict(zip(keys, self.table.column(name).to_pylist(), strict=True))
        if len(found) < self.table.num_rows:
            raise InputError(f"several rows have the same {' and '.join(names[:width])}: use .table")
        return found

    def write(self, path: str | Path) -> Path:
        """Write the table as Parquet, CSV, JSON (one object per line) or Arrow IPC, by the suffix of `path`.

        The file appears whole or not at all. CSV has every text as it is: pass the table through `spreadsheet_safe` if
        a spreadsheet opens it and labels are not your own.
        """
        return write_table(self.table, path)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}={value}" for name, value in self.summary.items())
        return f"Result({self.algorithm}: {self.table.num_rows:,} rows of {self.table.column_names}; {figures})"

    def _repr_html_(self) -> str:
        first = self.table.slice(0, MOST_ROWS)
        rows = list(zip(*(column.to_pylist() for column in first.columns), strict=True))
        facts = facts_html(self.algorithm, self.summary)
        return facts + rows_html(self.table.column_names, rows, self.table.num_rows)


def check_suffix(path: str | Path) -> Path:
    """The local path of a table file to write; refuses an unknown suffix, before any work is done for it."""
    return check_place(path, _WRITERS)


def check_readable(path: str | Path) -> None:
    """Refuse a table file that `read_table` cannot read, by its suffix or because it does not exist."""
    if Path(path).suffix.lower() not in _READERS:
        raise InputError(f"must be a table file; its suffix one of {', '.join(_READERS)}")
    if not Path(path).is_file():
        raise InputError("must be an existing table file")


def write_table(table: pa.Table, path: str | Path) -> Path:
    """Write `table` in the format that the suffix of `path` names, through a temporary file beside it."""
    target = check_suffix(path)
    with output_file(target) as temporary:
        _WRITERS[target.suffix.lower()](table, temporary)
    return target


def spreadsheet_safe(table: pa.Table) -> pa.Table:
    """A table whose texts no spreadsheet takes for formulas.

    Text cells and column names that begin with ``=``, ``+``, ``-``, ``@``, a tab or a line break get an apostrophe in
    front (OWASP, CSV injection). Numbers stay as they are.
    """
    risky = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
    for at, one in enumerate(table.schema):
        column = table.column(at)
        if pa.types.is_dictionary(one.type):
            column = column.cast(one.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            marked = pc.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))
            column = pc.if_else(pc.match_substring_regex(column, risky), marked, column)
            table = table.set_column(at, pa.field(one.name, column.type), column)
    return table.rename_columns([f"'{name}" if re.match(risky, name) else name for name in table.column_names])


def read_table(path: str | Path) -> pa.Table:
    """Read a table that `write_table` wrote, in the format that the suffix of `path` names, or a result folder.

    Raises
    ------
    InputError
        The file is missing, its suffix names no format, or it does not hold a table of that format.
    """
    source = Path(path)
    if source.is_dir():
        from goffish.gopher.folder import read_folder

        return read_folder(source)
    read = _READERS.get(source.suffix.lower())
    if read is None:
        raise InputError(f"{path}: the suffix must be one of {', '.join(_READERS)}")
    if not source.is_file():
        raise InputError(f"{path}: no such file")
    try:
        return read(source)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a {source.suffix[1:]} table ({str(error).splitlines()[0]})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or str(error).splitlines()[0]})") from error


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _write_csv(table: pa.Table, path: Path) -> None:
    from pyarrow import csv

    csv.write_csv(table, path)


def _write_json(table: pa.Table, path: Path) -> None:
    # JSON has no infinity: an unreachable vertex has the distance null.
    finite = {
        name: pc.if_else(pc.is_finite(column), column, None) if pa.types.is_floating(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    with path.open("w", encoding="utf-8") as stream:
        for batch in pa.table(finite).to_batches(max_chunksize=65536):
            stream.writelines(json.dumps(row, allow_nan=False, default=_iso) + "\n" for row in batch.to_pylist())


def _iso(value: Any) -> str:
    """Dates and times as texts; JSON has none."""
    text: str = value.isoformat()
    return text


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


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read()


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    with path.open("rb") as stream:
        header, first = stream.readline(), stream.readline()
    # Quoted labels are text, also where every one of them looks like a number.
    name = header.split(b",")[0].strip().strip(b'"').decode()
    types = {name: pa.string()} if first.startswith(b'"') else {}
    return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=types))


def _read_json(path: Path) -> pa.Table:
    # Not Arrow's reader: it takes texts that look like dates for dates, and knows neither NaN nor Infinity.
    rows = []
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise FormatError(path, number, "expected one JSON object", line.rstrip("\n"))
            rows.append(row)
    return pa.Table.from_pylist(rows)


def _read_arrow(path: Path) -> pa.Table:
    from pyarrow import feather

    return feather.read_table(path, memory_map=False)


_READERS = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_json,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}
