"""Files of input rates: CSV and Parquet with a row per interval or timestamp, event logs, and web-server logs."""

from __future__ import annotations

import csv
import io
import re
import warnings
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from goffish.cloud.prices import seconds_of
from goffish.errors import FormatError, GoffishWarning, InputError
from goffish.graph.io.streams import Source
from goffish.scheduling.dataflow.flow import Floats

#: Rates must be less than this, messages per second.
MOST = 1e12
#: A row that lasts this many times as long as usual follows a gap.
_GAP = 3.0
#: Columns of times; others are recognized by dates in ISO 8601.
_TIME = re.compile(r"(unix_?)?(time(_?stamp)?|date(_?time)?|ts|epoch|unix)(_?(utc|s|sec|seconds))?", re.IGNORECASE)
#: A line of the Common Log Format, also with the fields of the combined one.
_LOG_LINE = re.compile(rb"\S+ .*?\[(\d\d/[A-Za-z]{3}/\d{4}:\d\d:\d\d):(\d\d) ([+-]\d{4})\]")
#: Later Unix times are milliseconds.
_MOST_SECONDS = 1e11


@dataclass(frozen=True, eq=False)
class RateFile:
    """Rates over time as steps, or the times of single events.

    Attributes
    ----------
    path : str
    edges : float64, shape (rows + 1,)
        Start of each row and end of the last one, in seconds from the first; without rates, the sorted times of events.
    rates : dict of str to float64, shape (rows,), or None
        Messages per second by column.
    """

    path: str
    edges: Floats
    rates: dict[str, Floats] | None

    @property
    def length_s(self) -> float:
        """Seconds from the first to the end of the last row; for events, one mean distance after the last event."""
        if self.rates is not None or self.edges.size < 2:
            return float(self.edges[-1])
        return float(self.edges[-1]) * self.edges.size / (self.edges.size - 1)

    def means(self, steps: int | None, interval_s: float, offset_s: float) -> dict[str, Floats]:
        """Return the mean rates of intervals, by column; events have one series with an empty name.

        Raises
        ------
        InputError
            If the file ends before the last interval.
        """
        slack, rest = 1e-9 * self.length_s, self.length_s - offset_s
        count = int((rest + slack) // interval_s) if steps is None else steps
        if count < 1 or count * interval_s > rest + slack:
            wanted = f"{max(count, 1):,} intervals of {interval_s:g} s"
            text = f"covers {self.length_s:g} s" + (f", {max(rest, 0):g} s from offset {offset_s:g} s" * (offset_s > 0))
            raise InputError(
                f"{self.path}: {text}; expected at least {max(count, 1) * interval_s:g} s, {wanted} (--hours)"
            )
        grid = np.minimum(offset_s + interval_s * np.arange(count + 1), self.length_s)
        if self.rates is None:
            return {"": np.diff(np.searchsorted(self.edges, grid - slack, "left")) / interval_s}
        lengths = np.diff(self.edges)
        totals = {name: np.append(0.0, np.cumsum(series * lengths)) for name, series in self.rates.items()}
        return {name: np.diff(np.interp(grid, self.edges, total)) / interval_s for name, total in totals.items()}


def read_rate_file(
    path: str | Path, inputs: Sequence[str], column: str | None, every_s: float | None, interval_s: float
) -> RateFile:
    """Read a file of rates or events.

    Parameters
    ----------
    path : path
        CSV with a header or Parquet; a text with one timestamp per line; or a log in the Common Log Format. Compression
        is detected from the content, and URLs are accepted.
    inputs : sequence of str
        Names of columns to read if `column` is not given.
    column : str, optional
        Name of the column of rates, or of the timestamps of events.
    every_s : float, optional
        Seconds between rows.
    interval_s : float
        Seconds between rows of a file without timestamps, by default.

    Raises
    ------
    InputError
        If a column is missing, or the file cannot be read; `FormatError`, with the line, if a value is invalid.
    """
    path = str(path)
    source = Source(path)
    if source.head(4) == b"PAR1":
        columns, lines = _parquet(path), None
    else:
        data = source.read_all()
        if _LOG_LINE.match(data.lstrip()[:4096]):
            if column is not None:
                raise InputError(f"{path}: is a web-server log, whose lines are counted; it has no column {column!r}")
            return _events(path, _log_times(path, data), every_s)
        columns, lines = _csv(path, data)
    table = _Columns(path, columns, lines)
    time = next((name for name in columns if name not in inputs and table.is_time(name)), None)
    chosen = [name for name in columns if name in inputs] if column is None else [column]
    if not set(chosen) <= set(columns):
        raise InputError(f"{path}: no column {column!r}; the file has: {', '.join(map(repr, columns))}")
    if chosen == [time] or (not chosen and [time] == list(columns)):
        return _events(path, table.times(str(time)), every_s)
    if not chosen:
        counted = "" if time is None else f"; to count the rows, choose {time!r}"
        known = f"name the column of the rates: {', '.join(repr(name) for name in columns if name != time)}"
        raise InputError(f"{path}: no column has the name of an input ({', '.join(inputs)}); {known}{counted}")
    if column is None:
        # Other columns are refused by name, as they may be a misspelled input.
        chosen = [name for name in columns if name != time]
    rates = {name: table.numbers(name) for name in chosen}
    if time is None:
        step = interval_s if every_s is None else every_s
        return RateFile(path, step * np.arange(len(columns[chosen[0]]) + 1.0), rates)
    return _steps(table, time, rates, every_s)


def _events(path: str, times: Iterable[float], every_s: float | None) -> RateFile:
    found = np.sort(np.asarray(times, np.float64))
    if every_s is not None:
        raise InputError(f"{path}: holds single events, which are counted; a duration of rows (every) does not apply")
    if not found.size:
        raise InputError(f"{path}: no events")
    return RateFile(path, found - found[0], None)


def _steps(table: _Columns, time: str, rates: dict[str, Floats], every_s: float | None) -> RateFile:
    times = np.asarray(table.times(time), np.float64)
    order = np.argsort(times, kind="stable")
    steps = np.diff(times[order])
    if (steps == 0).any():
        row = int(order[int(np.argmax(steps == 0)) + 1])
        raise table.error(
            row, f"{time}: the timestamp is repeated; expected one row for each", str(table.columns[time][row])
        )
    if every_s is None and not steps.size:
        raise InputError(f"{table.path}: has one row; give the duration of a row (every)")
    usual = float(np.median(steps)) if every_s is None else every_s
    gaps = np.flatnonzero(steps > _GAP * usual)
    if gaps.size:
        row = int(order[gaps[0] + 1])
        problem = f"gap of {steps[gaps[0]]:g} s" + f", the first of {gaps.size}" * (gaps.size > 1)
        warnings.warn(f"{table.place(row)}: {problem}; the rate before it is kept", GoffishWarning, stacklevel=4)
    edges = np.append(times[order], times[order[-1]] + usual) - times[order[0]]
    return RateFile(table.path, edges, {name: series[order] for name, series in rates.items()})


@dataclass(frozen=True, eq=False)
class _Columns:
    """Columns of texts (CSV) or values (Parquet), and the line of each row."""

    path: str
    columns: dict[str, list[Any]]
    lines: array[int] | None

    def place(self, row: int) -> str:
        return f"{self.path}, row {row + 1}" if self.lines is None else f"{self.path}:{self.lines[row]}"

    def error(self, row: int, problem: str, text: str) -> FormatError:
        if self.lines is None:
            return FormatError(self.path, None, f"row {row + 1}: {problem}", text)
        return FormatError(self.path, self.lines[row], problem, text)

    def is_time(self, name: str) -> bool:
        """Whether a column has the name of a time, or begins with a date."""
        first = self.columns[name][0]
        if _TIME.fullmatch(name) or isinstance(first, datetime):
            return True
        try:
            float(first)
        except (TypeError, ValueError):
            return isinstance(first, str) and _time(first) is not None
        return False

    def numbers(self, name: str) -> Floats:
        found = array("d")
        for row, given in enumerate(self.columns[name]):
            try:
                value = float(given)
            except (TypeError, ValueError):
                value = -1.0
            if not 0 <= value < MOST:
                raise self.error(row, f"{name}: expected a number of at least 0 and less than {MOST:g}", _shown(given))
            found.append(value)
        return np.asarray(found, np.float64)

    def times(self, name: str) -> array[float]:
        found = array("d")
        for row, given in enumerate(self.columns[name]):
            value = _time(given)
            if value is None:
                raise self.error(row, f"{name}: expected a timestamp in ISO 8601 or Unix seconds", _shown(given))
            found.append(value)
        return found


def _shown(given: Any) -> str:
    return "" if given is None else str(given)


def _time(given: Any) -> float | None:
    """Seconds since 1970 of a number, a date and time, or a text of either."""
    try:
        value = seconds_of(given.isoformat()) if hasattr(given, "isoformat") else float(given)
    except (TypeError, ValueError):
        try:
            value = seconds_of(str(given).strip())
        except ValueError:
            return None
    return value if abs(value) < _MOST_SECONDS else None


def _csv(path: str, data: bytes) -> tuple[dict[str, list[Any]], array[int]]:
    try:
        rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        header: list[str] | None = None
        cells: list[list[str]] = []
        lines = array("q")
        for row in rows:
            if not any(row):
                continue
            if header is None:
                header = [name.strip() for name in row]
                cells = [[] for _ in header]
                if len(header) == 1 and _time(header[0]) is not None:
                    header = ["timestamp"]  # a list of events without a header
                elif len(set(header)) < len(header) or any(_number(name) for name in header):
                    raise FormatError(
                        path, rows.line_num, "expected the names of the columns, each once", ",".join(row)
                    )
                else:
                    continue
            if len(row) != len(header):
                raise FormatError(
                    path, rows.line_num, f"expected {len(header)} columns, found {len(row)}", ",".join(row)
                )
            lines.append(rows.line_num)
            for at, cell in enumerate(row):
                cells[at].append(cell)
    except UnicodeDecodeError:
        raise InputError(f"{path}: is neither UTF-8 text nor Parquet") from None
    except csv.Error as error:
        raise FormatError(path, rows.line_num, f"is not CSV ({error})") from None
    if header is None or not lines:
        raise InputError(
            f"{path}: no rows; expected a line with the names of the columns, and a row per interval or event"
        )
    return dict(zip(header, cells, strict=True)), lines


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(path: str) -> dict[str, list[Any]]:
    try:
        with Source(path).raw() as raw:
            table = pq.read_table(pa.PythonFile(raw, "r"))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None
    if not table.num_rows:
        raise InputError(f"{path}: no rows; expected a row per interval or event")
    return {name: table[name].to_pylist() for name in table.column_names}


def _log_times(path: str, data: bytes) -> array[float]:
    found = array("d")
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        match = _LOG_LINE.match(line)
        if match is not None:
            try:
                found.append(_minute(match[1], match[3]) + int(match[2]))
                continue
            except ValueError:
                pass
        # The server may still be writing the last line.
        if line.strip() and number < len(lines):
            raise FormatError(path, number, "is not a line of the Common Log Format", line.decode("latin-1"))
    return found


@lru_cache(maxsize=64)
def _minute(text: bytes, zone: bytes) -> float:
    return datetime.strptime(f"{text.decode()} {zone.decode()}", "%d/%b/%Y:%H:%M %z").timestamp()
