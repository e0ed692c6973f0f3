"""Times and durations of events, as users give them: microseconds since 1970 inside."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.definitions import duration_s
from goffish.errors import InputError

Times = NDArray[np.int64]
Duration = str | float | timedelta
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: What is accepted as the time of an event, for messages.
ACCEPTED = "accepted are timestamps, ISO 8601 texts and seconds since 1970, of the years 1 to 9999"
#: First and last time that is accepted: those that `datetime` has.
LEAST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
MOST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
#: Microseconds of the units of Arrow.
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def event_times(values: Sequence[Any] | pa.Array) -> Times:
    """Return event times of a column: timestamps, ISO 8601 texts, or numbers of seconds since 1970.

    Raises
    ------
    InputError, TypeError, ValueError
        A value is no time.
    """
    if not isinstance(values, pa.Array):
        return np.fromiter(map(event_time, values), np.int64, len(values))
    times, accepted = read_times(values)
    if not accepted.all():
        row = int(np.argmin(accepted))
        raise InputError(f"row {row}: the event time is {shown(values[row])}; {ACCEPTED}")
    return times


def read_times(column: pa.Array, *, exact: bool = False) -> tuple[Times, NDArray[np.bool_]]:
    """Return the event times of a column, and which of its values are accepted as such; others are 0.

    Nanoseconds are cut off, or not accepted if times are to be `exact`.

    Raises
    ------
    InputError
        The column has a type whose values are no times.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    size = len(column)
    if pa.types.is_null(kind):
        return np.zeros(size, np.int64), np.zeros(size, np.bool_)
    given = np.asarray(column.is_valid())
    if pa.types.is_floating(kind):
        micros = np.round(column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) * 1e6)
        given = given & (micros >= LEAST) & (micros <= MOST)  # not of NaN
        return np.where(given, micros, 0).astype(np.int64), given
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if pa.types.is_date(kind):
            column = column.cast(pa.timestamp("s"))
        numbers = column if pa.types.is_integer(kind) else column.cast(pa.int64())
        found = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        unit = getattr(column.type, "unit", "s")
        if unit == "ns":
            given = given & (found % 1000 == 0) if exact else given
            return np.where(given, found // 1000, 0), given
        factor = _UNITS[unit]
        given = given & (found >= -(-LEAST // factor)) & (found <= MOST // factor)
        return np.where(given, found, 0).astype(np.int64) * factor, given
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise InputError(f"the event time is {kind}; {ACCEPTED}")
    times = np.zeros(size, np.int64)
    for at, value in enumerate(column.to_pylist()):
        try:
            times[at] = event_time(value)
        except (InputError, ValueError):
            given[at] = False
    return times, given


def event_time(value: Any) -> int:
    """Return the event time of one value; see `event_times`."""
    micros: float | None = None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, np.integer | np.floating):
        value = int(value) if isinstance(value, np.integer) else float(value)
    if isinstance(value, datetime):
        micros = ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    elif isinstance(value, int) and not isinstance(value, bool):
        micros = value * 1_000_000
    elif isinstance(value, float):
        micros = value * 1e6
    if micros is None or not LEAST <= micros <= MOST:  # nor NaN, as of missing timestamps of pandas
        raise InputError(f"event time {value!r:.60}: {ACCEPTED}")
    return round(micros)


def shown(value: pa.Scalar) -> str:
    """Return a value for a message, also a timestamp that Python does not have."""
    try:
        return f"{value.as_py()!r:.60}"
    except (ValueError, OverflowError):
        return f"{value.cast(pa.int64()).as_py()} {value.type}"


def moments(times: Times) -> list[datetime]:
    """Return event times as timestamps in UTC."""
    return [_EPOCH + timedelta(microseconds=time) for time in times.tolist()]


def microseconds(value: Duration, what: str, *, zero: bool = False) -> int:
    """Return the microseconds of a duration such as ``"90s"``, a number of seconds or a timedelta.

    Raises
    ------
    InputError
        It is no duration, or not positive.
    """
    if isinstance(value, str):
        seconds = duration_s(value, "s")
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    else:
        seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if seconds is None or not (seconds > 0 or (zero and seconds == 0)) or not seconds < 1e12:
        limit = "non-negative" if zero else "positive"
        raise InputError(f"{what} = {value!r}: must be a {limit} duration such as '90s', '5min' or a number of seconds")
    micros = round(seconds * 1e6)
    if not micros and not zero:
        raise InputError(f"{what} = {value!r}: must be at least 1 microsecond")
    return micros
