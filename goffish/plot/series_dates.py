"""Timesteps by date, where a time series has a calendar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.temporal.run import SeriesResult

#: Shortest text that tells all starts apart from what is not said, as units of NumPy.
_PRECISION = (("D", 86_400_000_000), ("m", 60_000_000), ("s", 1_000_000), ("us", 1))


def dates_of(values: Any, time: str, timesteps: Any) -> dict[int, str]:
    """When each timestep begins (UTC), with time of day behind a line feed where one begins at another time than 0:00.

    Parameters
    ----------
    values : Result or pyarrow.Table
        A `SeriesResult` knows its timesteps.
    time : str
        The column of timesteps that is drawn.
    timesteps : pyarrow.Table or other
        Columns ``timestep`` and ``start``, as ``goffish timeseries run --timesteps`` writes them.

    Returns
    -------
    dict of timestep to text
        Empty where times are numbers without a calendar, or not known.
    """
    table = timesteps if isinstance(timesteps, pa.Table) else None
    if table is None and isinstance(values, SeriesResult) and time == "timestep":
        table = values.timesteps
    if table is None or not {"timestep", "start"} <= set(table.column_names):
        return {}
    start = _moments(table.column("start").combine_chunks())
    if start is None or not start.size or np.isnat(start).any():
        return {}
    ticks = start.view(np.int64)
    unit = next(name for name, length in _PRECISION if not (ticks % length).any())
    texts = start.astype(f"datetime64[{unit}]").astype(str)
    steps = table.column("timestep").to_pylist()
    return {
        int(step): str(text).replace("T", "\n") for step, text in zip(steps, texts, strict=True) if step is not None
    }


def _moments(column: pa.Array) -> NDArray[np.datetime64] | None:
    """Points in time as microseconds; ``None`` where the column holds something else."""
    kind = column.type
    if pa.types.is_string(kind):  # JSON has no dates
        try:
            column = column.cast(pa.timestamp("us", "UTC"))
        except pa.ArrowException:
            return None
    elif not pa.types.is_timestamp(kind):
        return None
    whole = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.timestamp("us"))
    return np.asarray(whole.to_numpy(zero_copy_only=False), "datetime64[us]")
