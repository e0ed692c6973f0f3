"""Running a program over a stored time series, on any engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs.series import Series, SeriesCounters, open_series
from goffish.gofs.series.model import Unit
from goffish.gopher import Result, RunOptions, RunStats
from goffish.gopher.run import run_with
from goffish.graph.guards import options_of, whole_number
from goffish.temporal.program import TimeSeriesProgram, check_series_program
from goffish.temporal.side_by_side import check_side_by_side, run_side_by_side
from goffish.temporal.timeline import Timeline
from goffish.temporal.values import SeriesValues


@dataclass(frozen=True, eq=False)
class SeriesResult(Result):
    """Result of a program over a time series.

    Attributes
    ----------
    timesteps : pyarrow.Table
        One row per timestep that was run: ``timestep``, ``start``, ``end``, ``supersteps``, and the program's reports.
    reads : SeriesCounters or None
        What this process read from the store; ``None`` if other processes read it.
    notes : tuple of str
        Remarks about the run, such as data that could not be used.
    """

    timesteps: pa.Table = None
    reads: SeriesCounters | None = None
    notes: tuple[str, ...] = ()


def run_series(
    program: TimeSeriesProgram,
    series: Series | str | Path,
    *,
    start: Any = None,
    end: Any = None,
    given: Mapping[str, Any] | None = None,
    temporal_parallelism: int = 1,
    options: RunOptions | None = None,
    **running: Any,
) -> SeriesResult:
    """Run a program over the instances of a store.

    Parameters
    ----------
    series : Series or path
        Of the store.
    start, end
        Run the instances that begin in this half-open range (dates, or numbers as the series has them); default: all.
    given : mapping of str to value, optional
        The application's input: a message to every subgraph in superstep 1 of the first timestep, in the independent
        and eventually dependent patterns of every timestep.
    temporal_parallelism : int
        Timesteps that are run side by side, in those two patterns: by threads, by groups of ranks, or as jobs of one
        Spark session. The answer is the same.
    options, **running
        As one object, or one by one, see `goffish.gopher.RunOptions`: ``engine``, ``threads``, ``checkpoint_dir`` ...
        Supersteps are those of all timesteps, and one more for each of them.

    Raises
    ------
    InputError
        A declaration or an option that means nothing; a range outside the series; an attribute that the series does not
        have.
    JobError
        User code failed, or called what its pattern and phase do not allow: the message names subgraph, timestep and
        superstep.
    """
    check_series_program(program)
    opened = series if isinstance(series, Series) else open_series(series)
    for name in program.values:
        opened.schema[name]
    before = opened.counters()
    side_by_side = whole_number(temporal_parallelism, "temporal_parallelism", 1)
    values = SeriesValues(opened, tuple(program.values))
    numbers = list(opened.between(start, end))[:: -1 if program.descending else 1]
    asked = options_of(RunOptions, running) if options is None else options
    merges = program.pattern == "eventual"
    if side_by_side == 1 or len(numbers) < 2:
        found = run_with(Timeline(program, values, numbers, given=given, merges=merges), opened.graph, asked)
    else:
        check_side_by_side(program, asked)
        found = run_side_by_side(program, values, numbers, given, min(side_by_side, len(numbers)), asked)
    if found.stats is None:  # a rank that is not the first
        return SeriesResult(program.name(), found.table)
    stats = _without_clock(found.stats)
    timesteps = _timesteps(program, opened, found.stats)
    summary = {
        "timesteps": timesteps.num_rows,
        "supersteps": int(np.sum(timesteps["supersteps"])) if timesteps.num_rows else 0,
    }
    reads = opened.counters() - before if asked.engine == "local" else None
    table = found.table
    keys = [(name, "ascending") for name in ("timestep", "vertex") if program.emits and name in table.column_names]
    if keys:  # partitions wrote their rows one after the other
        table = table.sort_by(keys)
    notes = tuple(program.notes(timesteps))
    return SeriesResult(program.name(), program.finish(table), summary, stats, timesteps, reads, notes)


def _without_clock(stats: RunStats) -> RunStats:
    """The counters without those of single timesteps, which have a table of their own."""
    kept = {
        name: value for name, value in stats.aggregates.items() if "@" not in name and not name.startswith("tibsp.")
    }
    return replace(stats, aggregates=kept)


def _timesteps(program: TimeSeriesProgram, series: Series, stats: RunStats) -> pa.Table:
    totals = stats.aggregates
    run = sorted(int(name.split("@")[1]) for name in totals if name.startswith("supersteps@"))
    columns: dict[str, Any] = {
        "timestep": pa.array(run, pa.int64()),
        "start": moments(series.starts[run], series.unit),
        "end": moments(series.ends[run], series.unit),
    }
    for name in ("supersteps", *program.reports):
        columns[name] = pa.array([totals.get(f"{name}@{t}") for t in run])
    return pa.table(columns)


def moments(values: NDArray[np.int64], unit: Unit) -> pa.Array:
    """Times of a series as a column: with a calendar as timestamps."""
    column = pa.array(values, pa.int64())
    return column.cast(pa.timestamp("us", "UTC")) if unit == "us" else column
