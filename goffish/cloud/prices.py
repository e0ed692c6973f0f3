"""Spot prices over time: change points from price histories, and prices in equal slots.

See docs/specs/spot.md, section 6.6 (O-7). Times are seconds since 1970 (UTC), prices dollars per hour.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError

Floats = NDArray[np.float64]
#: Prices of an hour are less than this, the price in plans of a machine type that is not available.
PROHIBITIVE = 1e9
#: Price of a spot machine type in a trace while it is not available, and the bid in markets without bids, which is
#: greater than all other prices.
UNAVAILABLE, ANY_PRICE = PROHIBITIVE / 2, PROHIBITIVE / 4
#: End of the accepted times of histories, which begin in 1970, and what is expected of them.
LATEST_S, TIME_ACCEPTED = datetime(2100, 1, 1, tzinfo=UTC).timestamp(), "a time in ISO 8601, of the years 1970 to 2099"
#: Maximum slots of a period: 38 years of ten minutes.
MOST_SLOTS = 2_000_000


@dataclass(frozen=True, eq=False)
class Trace:
    """The price of one machine type over time.

    Attributes
    ----------
    times : float64, shape (changes,)
        Start of each price, ascending.
    prices : float64, shape (changes,)
        Consecutive prices differ.
    end : float
        End of the last price.
    name : str
    """

    times: Floats
    prices: Floats
    end: float
    name: str = ""

    def __post_init__(self) -> None:
        if not self.times.size or self.times.shape != self.prices.shape or self.times.ndim != 1:
            raise InputError(
                f"price trace {self.name}: expected one time and one price for each change, and at least one change"
            )
        if not ((self.prices >= 0) & (self.prices < PROHIBITIVE)).all():
            raise InputError(f"price trace {self.name}: prices must be at least 0 and less than {PROHIBITIVE:g}")
        if (np.diff(self.times) <= 0).any() or not self.end >= self.times[-1]:
            raise InputError(f"price trace {self.name}: times must ascend")

    @property
    def start(self) -> float:
        """Start of the first price."""
        return float(self.times[0])

    @property
    def mean(self) -> float:
        """Mean price over time."""
        return float(np.average(self.prices, weights=self.durations())) if self.end > self.start else self.prices[0]

    def at(self, times: Floats) -> Floats:
        """Return the prices in force at these times."""
        return np.asarray(self.prices[np.searchsorted(self.times, times, "right") - 1])

    def between(self, first: float, last: float) -> Trace:
        """Return the part between two times; it starts with the price in force at `first`.

        Raises
        ------
        InputError
            If the trace does not cover the period.
        """
        if not self.start <= first < last <= self.end:
            raise InputError(
                f"price trace {self.name}: {moment_text(first)} to {moment_text(last)} is wanted, "
                f"it reaches from {moment_text(self.start)} to {moment_text(self.end)}"
            )
        begin = int(np.searchsorted(self.times, first, "right")) - 1
        stop = int(np.searchsorted(self.times, last, "left"))
        times = self.times[begin:stop].copy()
        times[0] = first
        return Trace(times, self.prices[begin:stop], last, self.name)

    def durations(self) -> Floats:
        """Seconds for which each price was in force."""
        return np.diff(self.times, append=self.end)


def trace_of(times: Sequence[float] | Floats, prices: Sequence[float] | Floats, name: str = "") -> Trace:
    """Build a trace from observations in any order; repeated prices are merged, and the last one counts for each time.

    The last price is assumed to hold until the last observation.
    """
    at, price = np.asarray(times, np.float64), np.asarray(prices, np.float64)
    if not at.size or at.shape != price.shape:
        raise InputError(
            f"price trace {name}: expected one time and one price for each change, and at least one change"
        )
    order = np.argsort(at, kind="stable")
    at, price = at[order], price[order]
    last = np.append(at[1:] > at[:-1], True)
    end, at, price = float(at[-1]), at[last], price[last]
    changed = np.append(True, price[1:] != price[:-1])
    return Trace(at[changed], price[changed], end, name)


def read_csv(path: str | Path, name: str | None = None) -> Trace:
    """Read a trace from a CSV file with the columns ``timestamp_utc`` and ``price_usd_per_hour`` (or ``.gz``).

    Raises
    ------
    InputError
        If the file cannot be read or a line is invalid; the message names the line.
    """
    path = Path(path)
    times, prices, lines = [], [], dict[float, int]()
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            if header[:2] != ["timestamp_utc", "price_usd_per_hour"]:
                raise FormatError(path, 1, "expected the columns timestamp_utc,price_usd_per_hour", ",".join(header))
            for row in rows:
                try:
                    time, price = history_seconds(row[0]), float(row[1])
                except (ValueError, IndexError):
                    problem = f"expected {TIME_ACCEPTED}, and a price"
                    raise FormatError(path, rows.line_num, problem, ",".join(row)) from None
                if time in lines:
                    problem = f"the time is repeated, as in line {lines[time]}; expected one price for each"
                    raise FormatError(path, rows.line_num, problem, ",".join(row))
                lines[time] = rows.line_num
                if not 0 <= price < PROHIBITIVE:
                    problem = f"the price must be at least 0 and less than {PROHIBITIVE:g}"
                    raise FormatError(path, rows.line_num, problem, ",".join(row))
                times.append(time)
                prices.append(price)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read prices ({reason(error)})") from None
    return trace_of(times, prices, name or path.name.split(".csv")[0])


def bundled_trace(name: str) -> Trace:
    """Read a bundled price trace: EC2 spot prices in us-east-1, March to August 2015.

    Parameters
    ----------
    name : str
        One of `bundled_traces`, such as ``us-east-1a-Linux-c3.xlarge``.

    Returns
    -------
    Trace

    Raises
    ------
    InputError
        If no bundled trace has this name.
    """
    rows = _bundled()
    chosen = rows.filter(pc.equal(rows["trace"], name))
    if not chosen.num_rows:
        raise InputError(f"unknown price trace {name!r}; bundled traces: {', '.join(bundled_traces())}")
    times = chosen["time"].cast("int64").to_numpy() / 1000.0
    return trace_of(times, chosen["price_per_hour"].to_numpy(), name)


def bundled_traces() -> list[str]:
    """Return the names of the bundled price traces."""
    return sorted(pc.unique(_bundled()["trace"]).to_pylist())


@cache
def _bundled() -> pa.Table:
    with (files(__package__) / "spot-prices-2015.parquet").open("rb") as file:
        return pq.read_table(file)


def seconds_of(text: str) -> float:
    """Convert a time in ISO 8601 to seconds since 1970; without a zone it is UTC."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def reason(error: Exception) -> str:
    """Describe why a history cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return "is not a text in UTF-8"
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return "is damaged"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def history_seconds(text: str) -> float:
    """Convert a time of a history, as `seconds_of`.

    Raises
    ------
    ValueError
        If it is not `TIME_ACCEPTED`.
    """
    found = seconds_of(text)
    if not 0 <= found < LATEST_S:
        raise ValueError(text)
    return found


def moment_text(seconds: float) -> str:
    """Format a time for messages."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


@dataclass(frozen=True, eq=False)
class SlotPrices:
    """Prices of several machine types in equal slots.

    Attributes
    ----------
    prices : float64, shape (slots + 1, classes)
        At the start of each slot, and at the end of the last one.
    peaks : float64, shape (slots, classes)
        Maximum price in each slot: a machine is interrupted if the price exceeds its bid even for a moment (O-7), and
        at any bid if the maximum is infinite.
    """

    prices: Floats
    peaks: Floats

    def __post_init__(self) -> None:
        slots, classes = self.peaks.shape
        if self.prices.shape != (slots + 1, classes):
            raise InputError("slot prices: expected one price at the start of each slot and one at the end of the last")

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.peaks)


def in_slots(traces: Sequence[Trace], slot_s: float, first: float, last: float) -> SlotPrices:
    """Divide traces into slots between two times; a last partial slot is dropped.

    Raises
    ------
    InputError
        If a trace does not cover the period, or the period is shorter than a slot or has more than `MOST_SLOTS`.
    """
    count = int((last - first) // slot_s) if slot_s > 0 else 0
    if not 1 <= count <= MOST_SLOTS:
        found = f"{count:,} slots" if count else "no slot"
        accepted = "" if count < 1 else f"; at most {MOST_SLOTS:,} are supported: use a shorter period or longer slots"
        raise InputError(f"{found} of {slot_s:g} s from {moment_text(first)} to {moment_text(last)}{accepted}")
    edges = first + slot_s * np.arange(count + 1)
    prices, peaks = np.empty((count + 1, len(traces))), np.empty((count, len(traces)))
    for column, trace in enumerate(traces):
        if not trace.start <= first < edges[-1] <= trace.end:
            trace.between(first, float(edges[-1]))
        known = np.searchsorted(trace.times, edges, "right")
        prices[:, column] = trace.prices[known - 1]
        spans = np.stack((known[:-1] - 1, known[1:]), axis=1).ravel()
        peaks[:, column] = np.maximum.reduceat(np.append(trace.prices, -np.inf), spans)[::2]
    return SlotPrices(prices, peaks)
