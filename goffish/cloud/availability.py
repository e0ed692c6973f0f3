"""Availability of spot machines over time, from SkyPilot spot traces or CSV files.

SkyPilot's traces ("Can't Be Late", NSDI 2024) hold a number of machines every ``gap_seconds``. In *availability*
traces, a machine was requested at intervals and released at once; a machine that keeps running may survive where a new
one is refused (their section 2.1). In *preemption* traces, machines were kept running and requested again after each
interruption, so start-up times count as not available.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import (
    ANY_PRICE,
    LATEST_S,
    TIME_ACCEPTED,
    UNAVAILABLE,
    Trace,
    history_seconds,
    reason,
    trace_of,
)
from goffish.errors import FormatError, InputError

_DATE = re.compile(r"(\d\d)-(\d\d)-(\d{4})")
_COLUMNS = ["timestamp_utc", "available"]
_ACCEPTED = "expected a SkyPilot spot trace (JSON) or CSV with the columns timestamp_utc,available"


@dataclass(frozen=True, eq=False)
class Availability:
    """Whether spot machines of a type were available over time.

    Attributes
    ----------
    times : float64, shape (observations,)
        Start of each observation in seconds since 1970, ascending. Each holds until the next one.
    available : bool, shape (observations,)
    end : float
        End of the last observation.
    name : str
    """

    times: NDArray[np.float64]
    available: NDArray[np.bool_]
    end: float
    name: str = ""

    def __post_init__(self) -> None:
        if not self.times.size or self.times.shape != self.available.shape or self.times.ndim != 1:
            raise InputError(f"availability {self.name}: expected at least one observation, each with a time")
        if not np.isfinite(self.times).all() or (np.diff(self.times) <= 0).any():
            raise InputError(f"availability {self.name}: times must ascend")
        if not self.times[-1] < self.end < np.inf:
            raise InputError(f"availability {self.name}: must end after its last observation")

    @property
    def start(self) -> float:
        """Start of the first observation."""
        return float(self.times[0])

    @property
    def share(self) -> float:
        """Share of time in which machines were available."""
        return float(np.average(self.available, weights=np.diff(self.times, append=self.end)))

    def trace(self, spot_price: float) -> Trace:
        """Convert to a price trace: the spot price of an hour while available, `UNAVAILABLE` otherwise."""
        if not 0 <= spot_price < ANY_PRICE:
            raise InputError(f"availability {self.name}: spot price {spot_price:g}; must be 0 or more")
        prices = np.where(self.available, spot_price, UNAVAILABLE)
        return trace_of(np.append(self.times, self.end), np.append(prices, prices[-1]), self.name)


def read_availability(path: str | Path, machines: int = 1) -> Availability:
    """Read a SkyPilot spot trace (JSON), or a CSV file with the columns ``timestamp_utc`` and ``available``.

    Parameters
    ----------
    path : path
        JSON with ``metadata.gap_seconds`` and ``data``; the first observation is at the start of the day in the name of
        the file (``MM-DD-YYYY``), or at 1970-01-01. CSV: each row holds until the next, and the last one marks the end.
        Values are numbers of machines, or 0 and 1. Files that end with ``.gz`` are decompressed.
    machines : int
        Number of machines that are required at the same time.

    Raises
    ------
    InputError
        If the file cannot be read; `FormatError`, with the line, if its content is invalid.
    """
    path = Path(path)
    if machines < 1:
        raise InputError(f"machines = {machines}: must be at least 1")
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read availability ({reason(error)})") from None
    if text.lstrip()[:1] in ("{", "["):
        counts, times, end = _json_counts(path, text)
    else:
        counts, times, end = _csv_counts(path, text)
    return Availability(times, counts >= machines, end, re.split(r"\.(json|csv)", path.name)[0])


def _json_counts(path: Path, text: str) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """Numbers of machines, their times, and the end."""
    try:
        found = json.loads(text)
        gap, counts = float(found["metadata"]["gap_seconds"]), np.asarray(found["data"])
    except json.JSONDecodeError as error:
        raise FormatError(path, error.lineno, f"{_ACCEPTED} ({error.msg})") from None
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, None, f"{_ACCEPTED}: metadata.gap_seconds and data are required ({error!r})") from None
    if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "iu" or counts.min() < 0:
        raise FormatError(path, None, "data: expected numbers of machines, 0 or more, and at least one")
    if not 0 < gap < np.inf:
        raise FormatError(path, None, f"metadata.gap_seconds: {gap:g}; must be greater than 0")
    day, start = _DATE.search(path.name), 0.0
    if day is not None:
        month, date, year = (int(part) for part in day.groups())
        try:
            start = datetime(year, month, date, tzinfo=UTC).timestamp()
        except ValueError:
            raise InputError(f"{path}: {day[0]} in the name is not a date (MM-DD-YYYY)") from None
    if not 0 <= start + gap * counts.size < LATEST_S:
        raise FormatError(path, None, f"metadata.gap_seconds: {gap:g}; the times must be of the years 1970 to 2099")
    times = start + gap * np.arange(counts.size + 1.0)
    return counts.astype(np.int64), times[:-1], float(times[-1])


def _csv_counts(path: Path, text: str) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """As `_json_counts`; the last row only marks the end."""
    rows = csv.reader(text.splitlines())
    header = next(rows, [])
    if [name.strip() for name in header[:2]] != _COLUMNS:
        raise FormatError(path, 1, _ACCEPTED, ",".join(header))
    times: list[float] = []
    counts: list[int] = []
    for row in rows:
        if not row:
            continue
        try:
            time, count = history_seconds(row[0]), int(row[1])
        except (ValueError, IndexError):
            time, count = 0.0, -1
        if count < 0:
            problem = f"expected {TIME_ACCEPTED}, and 0, 1 or a number of machines"
            raise FormatError(path, rows.line_num, problem, ",".join(row))
        if times and time <= times[-1]:
            raise FormatError(path, rows.line_num, "times must ascend", ",".join(row))
        times.append(time)
        counts.append(min(count, 2**31))
    if len(times) < 2:
        raise FormatError(path, None, "expected at least two rows; the last one marks the end")
    return np.array(counts[:-1], np.int64), np.array(times[:-1]), times[-1]
