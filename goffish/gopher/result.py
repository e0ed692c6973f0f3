"""Results of runs: an Arrow table keyed by vertex labels, a summary and the counters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError
from goffish.notebook import MOST_ROWS, facts_html, rows_html
from goffish.partial import check_output, output_file

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from goffish.gopher.stats import RunStats


#: Columns that name a row together.
_PAIRS = {
    ("source", "target"), ("path", "vertex"), ("partition", "subgraph"), ("subgraph", "neighbor"),
    ("timestep", "vertex"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Result:
    """Result of an algorithm: a table, a summary, and counters of the engine.

    Attributes
    ----------
    algorithm : str
        Name of the algorithm or program.
    table : pyarrow.Table
        One row per vertex with its label in the first column; other keys for algorithms whose results are not per
        vertex.
    summary : mapping of str to value
        Key figures, as plain Python values.
    stats : RunStats or None
        Counters of the engine; ``None`` if an in-memory kernel ran.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.bfs(gf.from_edges([1], [2]), 1)
    Result(bfs: 2 rows of ['vertex', 'distance', 'parent']; reached=2, farthest=1)
    """

    algorithm: str
    table: pa.Table
    summary: Mapping[str, Any] = field(default_factory=dict)
    stats: RunStats | None = None

    def to_pandas(self) -> pd.DataFrame:
        """Convert the table to a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            The rows and columns of `table`.
        """
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Convert the table to a Polars data frame.

        Returns
        -------
        polars.DataFrame
            The rows and columns of `table`.
        """
        import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_dict(self, column: str | None = None) -> dict[Any, Any]:
        """Map the key of each row to its value in a column.

        Parameters
        ----------
        column : str, optional
            Name of the value column [default: the first column after the keys].

        Returns
        -------
        dict
            Keys are the values of the first column, or pairs in tables of edges (``source``, ``target``), of paths
            (``path``, ``vertex``) and of subgraphs (``partition``, ``subgraph``; ``subgraph``, ``neighbor``).

        Raises
        ------
        InputError
            If the column does not exist, or several rows have the same key.
        """
        names, width = self.table.column_names, self._width
        name = column if column is not None else names[width]
        if name not in names:
            raise InputError(f"no column {name!r}; available: {', '.join(names)}")
        columns = [self.table.column(at).to_pylist() for at in range(width)]
        keys = columns[0] if width == 1 else zip(*columns, strict=True)
        found = dict(zip(keys, self.table.column(name).to_pylist(), strict=True))
        if len(found) < self.table.num_rows:
            raise InputError(f"several rows have the same {' and '.join(names[:width])}; use .table")
        return found

    @property
    def _width(self) -> int:
        """Number of columns that name a row."""
        return 2 if tuple(self.table.column_names[:2]) in _PAIRS else 1

    def __getitem__(self, key: Any) -> Any:
        """Return the value of a vertex in the first column after the keys, or the result with a slice of the rows.

        Parameters
        ----------
        key : int, str, pair of them, or slice
            Label of a vertex; the two keys of a row in tables that have two.

        Returns
        -------
        value or Result

        Raises
        ------
        InputError
            If no row, or more than one, has the key.

        Examples
        --------
        >>> import goffish as gf
        >>> distances = gf.bfs(gf.from_edges([1, 2], [2, 3]), 1)
        >>> distances[3], len(distances[:2])
        (2, 2)
        """
        if isinstance(key, slice):
            rows = range(*key.indices(len(self)))
            part = self.table.slice(rows.start, len(rows)) if rows.step == 1 else self.table.take(pa.array(rows))
            return Result(self.algorithm, part, self.summary, self.stats)
        keys = key if isinstance(key, tuple) else (key,)
        names, width = self.table.column_names, self._width
        if len(keys) != width:
            raise InputError(f"{key!r}: rows are named by {' and '.join(names[:width])}")
        found = self.table
        for name, value in zip(names[:width], keys, strict=True):
            try:
                if isinstance(value, bool) or value is None:
                    raise TypeError("not a label")
                wanted = pa.scalar(value, found.column(name).type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise InputError(f"{key!r}: is not a {name} of this result ({str(error).splitlines()[0]})") from None
            found = found.filter(pc.equal(found.column(name), wanted))
        if found.num_rows != 1:
            raise InputError(f"{key!r}: {found.num_rows:,} rows have this {' and '.join(names[:width])}")
        return found.column(width)[0].as_py()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows."""
        for batch in self.table.to_batches(max_chunksize=65536):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __bool__(self) -> bool:
        return True  # a result without rows is a result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the first column after the keys; NaN where it is null."""
        values = self.table.column(self._width).to_numpy()
        return np.array(values, dtype=dtype) if copy else np.asarray(values, dtype=dtype)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def write(self, path: str | Path) -> Path | str:
        """Write the table to a file or an object in storage, in the format of its suffix.

        The file is published when it is complete. CSV contains every string unchanged: pass the table through
        `spreadsheet_safe` if labels come from an untrusted source and the file is opened in a spreadsheet.

        Parameters
        ----------
        path : str or path-like
            File or URI (``s3://``, ``gs://``, ``abfs://``, ``hdfs://`` …) ending in ``.parquet``, ``.csv``, ``.json``
            or ``.jsonl`` (one object per line), ``.arrow`` or ``.feather`` (Arrow IPC).

        Returns
        -------
        pathlib.Path or str
            The file, or the URI.

        Raises
        ------
        InputError
            If the suffix is unknown, the file cannot be written, or storage does not answer or refuses.
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


def check_suffix(path: str | Path) -> Path | str:
    """Return the local path or the URI of a table file to write; reject what cannot be written before any work."""
    return check_output(path, _WRITERS)


def check_readable(path: str | Path) -> None:
    """Reject a table file with an unknown suffix, or one that does not exist."""
    if Path(path).suffix.lower() not in _READERS:
        raise InputError(f"must be a table file with one of the suffixes {', '.join(_READERS)}")
    if not Path(path).is_file():
        raise InputError("must be an existing table file")


def write_table(table: pa.Table, path: str | Path) -> Path | str:
    """Write `table` in the format of the suffix of `path`, whole or not at all."""
    target = check_suffix(path)
    with output_file(target) as temporary:
        _WRITERS[PurePosixPath(target).suffix.lower()](table, temporary)
    return target


def spreadsheet_safe(table: pa.Table) -> pa.Table:
    """Return a table in which no string is a spreadsheet formula.

    String cells and column names that start with ``=``, ``+``, ``-``, ``@``, a tab or a line break get a leading
    apostrophe (OWASP, CSV injection). Numbers are unchanged.
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
    """Read a table file in the format of its suffix, or a result folder.

    Raises
    ------
    InputError
        If the file is missing, its suffix is unknown, or its content does not match the suffix.
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
