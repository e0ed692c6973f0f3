"""Times and durations of events, as users give them: microseconds since 1970 inside."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.definitions import duration_s
from goffish.errors import InputError

Times = NDArray[np.int64]
Duration = str | float | timedelta
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_FINITE = (
    "the event time is not finite, or too large; accepted are timestamps, ISO 8601 texts and seconds since 1970"
)
_MICROSECOND = timedelta(microseconds=1)
#: Seconds that microseconds of 63 bits can hold.
_MOST_S = (1 << 62) // 1_000_000


def event_times(values: Sequence[Any] | pa.Array) -> Times:
    """Return event times of a column: timestamps, ISO 8601 texts, or numbers of seconds since 1970.

    Raises
    ------
    InputError, TypeError, ValueError
        A value is no time.
    """
    if isinstance(values, pa.Array):
        if values.null_count:
            raise InputError("the event time is null; accepted are timestamps, ISO 8601 texts and seconds since 1970")
        if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
            times: Times = values.cast(pa.timestamp("us", getattr(values.type, "tz", None))).cast(pa.int64()).to_numpy()
            return times
        if pa.types.is_integer(values.type):
            if len(values) and not max(map(abs, pc.min_max(values).as_py().values())) < _MOST_S:
                raise InputError(_NOT_FINITE)
            return np.asarray(values.to_numpy(), np.int64) * 1_000_000
        if pa.types.is_floating(values.type):
            return _rounded(values.to_numpy())
        values = values.to_pylist()
    return np.fromiter(map(event_time, values), np.int64, len(values))


def event_time(value: Any) -> int:
    """Return the event time of one value; see `event_times`."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if isinstance(value, int) and not isinstance(value, bool):
        if not abs(value) < _MOST_S:
            raise InputError(_NOT_FINITE)
        return value * 1_000_000
    if isinstance(value, float | np.floating):
        if not abs(micros := float(value) * 1e6) < float(1 << 62):
            raise InputError(_NOT_FINITE)
        return round(micros)
    if isinstance(value, np.integer):
        return event_time(int(value))
    raise InputError(f"event time {value!r:.60}: accepted are timestamps, ISO 8601 texts and seconds since 1970")


def moments(times: Times) -> list[datetime]:
    """Return event times as timestamps in UTC."""
    return [_EPOCH + timedelta(microseconds=time) for time in times.tolist()]


def _rounded(seconds: NDArray[np.float64]) -> Times:
    micros = np.round(np.asarray(seconds, np.float64) * 1e6)
    if not np.all(np.abs(micros) < float(1 << 62)):
        raise InputError(_NOT_FINITE)
    return micros.astype(np.int64)


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
