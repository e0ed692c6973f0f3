"""Pictures of time series: a value over time, the progress of a front, and its extent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.guards import expect, whole_number
from goffish.plot.series_data import (
    Floats,
    Ints,
    bands,
    dates_of,
    first_reached,
    keys_of,
    line,
    lines,
    newly_reached,
    numbers_of,
    steps_of,
    table_of,
    time_axis,
    value_name,
)
from goffish.plot.style import (
    ALARM,
    CATEGORIES,
    COLOURS,
    QUIET,
    count,
    integer_ticks,
    legend_beside,
    look,
    new_figure,
    shorten,
    styled,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from goffish.gopher.result import Result

#: #: Maximum number of timesteps with separate marks.
_FEW = 60
#: #: Ratio of the largest to the smallest positive value from which a logarithmic axis is used.
_LOG_FROM = 100
#: #: Share of the vertices below which the axis ends at the largest value.
_SMALL_SHARE = 0.2
#: #: Maximum number of dates on a time axis.
_DATES = 7
_GRID = "#e4e4e4"


@styled
def values_over_time(
    values: Result | pa.Table,
    column: str | None = None,
    *,
    vertices: Sequence[int | str] | None = None,
    time: str = "timestep",
    timesteps: Sequence[int] | pa.Table | None = None,
    unit: str | None = None,
) -> Figure:
    """Draw how a value changes over time: of selected vertices, or its distribution over all vertices.

    Parameters
    ----------
    values : Result or pyarrow.Table
        Table keyed by (``vertex``, `time`), or by `time` alone, which draws one line.
    column : str, optional
        Column of numbers [default: the first column that is not a key].
    vertices : sequence of int or str, optional
        Labels of at most 21 vertices to draw as lines [default: minimum, quartiles, median and maximum of all
        vertices].
    time : str
        Column of timesteps; rows without one are ignored [default: "timestep"].
    timesteps : sequence of int or pyarrow.Table, optional
        Timesteps that were run, if some have no row [default: those of `values`; a `SeriesResult` includes all]. A
        table with the columns ``timestep`` and ``start`` adds dates to the axis if there is a calendar.
    unit : str, optional
        Unit of the values, for the axis label.

    Returns
    -------
    matplotlib.figure.Figure
        Lines are interrupted at timesteps without a value; NaN and infinite values are left out and counted in the
        caption. The axis is logarithmic if all values are positive and span more than a factor of 100.

    Raises
    ------
    InputError
        If the table is empty or lacks a column, a vertex is unknown or has several rows in a timestep, a column cannot
        be drawn, or matplotlib is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> load = pa.table({"vertex": [1, 2, 1, 2], "timestep": [0, 0, 1, 1], "load": [1.0, 2.0, 3.0, 4.0]})
    >>> figure = plot.values_over_time(load, vertices=[1, 2])
    """
    table = table_of(values)
    name = value_name(table, column, time)
    steps, known = steps_of(table, time)
    numbers = numbers_of(table, name)
    axis = time_axis(steps[known], values, time, timesteps)
    keys = keys_of(table) if vertices is not None or "vertex" in table.column_names else None
    if vertices is not None:
        expect(vertices, (list, tuple, np.ndarray, range), "vertices", "expected a list of labels")
        if not 0 < len(vertices) <= CATEGORIES:
            raise InputError(f"vertices: expected 1 to {CATEGORIES} labels, found {len(vertices):,}")
    drawn = known & np.isfinite(numbers)
    left_out = int(known.sum() - drawn.sum())
    if not drawn.any():
        raise InputError(f"column {name!r} contains no finite number")
    figure = new_figure(9.0, 4.8, fitted=True)
    axes = figure.subplots()
    if vertices is not None:
        found = lines(keys, steps, np.where(drawn, numbers, np.nan), known, axis, list(vertices), time)
        if not np.isfinite(found).any():
            raise InputError(f"column {name!r} contains no finite number of these vertices")
        _draw_lines(axes, axis, found, [str(v) for v in vertices])
        about = f" of {count(len(vertices), 'vertex')}"
    elif keys is not None:
        found = bands(steps[drawn], numbers[drawn], axis)
        _draw_bands(axes, axis, found)
        about = f" of {count(len(keys.unique()), 'vertex')}"
    else:
        found = line(steps[known], np.where(drawn, numbers, np.nan)[known], axis, time)[None]
        _draw_lines(axes, axis, found, [name])
        about = ""
    axes.set_title(f"{shorten(name, 40)}{about} over time")
    axes.set_ylabel(shorten(name, 40) + (f" ({unit})" if unit else ""))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    _value_scale(axes, found[np.isfinite(found)])
    note = f"{count(left_out, 'row')} without a finite value left out" if left_out else ""
    _time_ticks(axes, axis, time, dates_of(values, time, timesteps), note)
    return figure


@styled
def wavefront(
    values: Result | pa.Table,
    *,
    time: str = "timestep",
    timesteps: Sequence[int] | pa.Table | None = None,
    vertices: int | None = None,
) -> Figure:
    """Draw how many vertices were newly reached in each timestep, and the share reached so far.

    Parameters
    ----------
    values : Result or pyarrow.Table
        Table with the columns ``vertex`` and `time`. A vertex is reached in its first timestep; a vertex without one
        was not reached.
    time : str
        Column of timesteps [default: "timestep"].
    timesteps : sequence of int or pyarrow.Table, optional
        Timesteps that were run; see `values_over_time`.
    vertices : int, optional
        Number of vertices of the graph, if the table leaves out unreached ones [default: the vertices in the table].

    Returns
    -------
    matplotlib.figure.Figure
        Upper panel: newly reached vertices. Lower panel: vertices reached so far, in percent.

    Raises
    ------
    InputError
        If the table is empty or lacks a column, no vertex was reached, `vertices` is smaller than the number of
        vertices in the table, or matplotlib is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> figure = plot.wavefront(pa.table({"vertex": [1, 2, 3], "timestep": [0, 0, 1]}))
    """
    axis, new, total = _front(values, time, timesteps, vertices)
    reached = int(new.sum())
    share = np.cumsum(new) / total
    few = axis.size <= _FEW
    figure = new_figure(9.0, 6.0, fitted=True)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    upper.bar(axis, new, width=0.8 if few else 1.0, color=COLOURS[0], gid="new")
    upper.set_ylabel("newly reached vertices")
    upper.set_title(f"{reached:,} of {count(total, 'vertex')} reached in {count(axis.size, 'timestep')}")
    _count_axis(upper, new)
    lower.plot(
        axis, share, color=ALARM, linewidth=1.8, marker="o" if few else None, markersize=3.5, gid="share",
        drawstyle="steps-post" if not few else "default", clip_on=False,
    )  # fmt: skip
    from matplotlib.ticker import PercentFormatter

    lower.yaxis.set_major_formatter(PercentFormatter(1.0))
    lower.set_ylim(0.0, 1.0 if share[-1] > _SMALL_SHARE else 1.15 * share[-1])
    lower.grid(axis="y", color=_GRID, linewidth=0.8)
    lower.set_ylabel("reached so far\n(share of all vertices)")
    _time_ticks(lower, axis, time, dates_of(values, time, timesteps))
    figure.align_ylabels()
    return figure


@styled
def spread_curve(
    values: Result | pa.Table,
    active: Result | pa.Table | None = None,
    *,
    active_column: str | None = None,
    time: str = "timestep",
    active_time: str = "timestep",
    timesteps: Sequence[int] | pa.Table | None = None,
    vertices: int | None = None,
) -> Figure:
    """Draw how many vertices were reached up to each timestep and, optionally, how many were active in it.

    Parameters
    ----------
    values : Result or pyarrow.Table
        Table with the columns ``vertex`` and `time`; see `wavefront`.
    active : Result or pyarrow.Table, optional
        One row per active vertex and timestep (with a column ``vertex``), or one number per timestep.
    active_column : str, optional
        Column of that number [default: the first column that is not a key].
    time : str
        Column of timesteps [default: "timestep"].
    active_time : str
        Column of timesteps in `active`, such as ``at`` in results of ``hashtags`` [default: "timestep"].
    timesteps : sequence of int or pyarrow.Table, optional
        Timesteps that were run; see `values_over_time`.
    vertices : int, optional
        Number of vertices of the graph; see `wavefront`.

    Returns
    -------
    matplotlib.figure.Figure
        A dashed line shows the number of vertices, unless it is far above the curves.

    Raises
    ------
    InputError
        As in `wavefront`, also about `active`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> figure = plot.spread_curve(pa.table({"vertex": [1, 2, 3], "timestep": [0, 0, 1]}))
    """
    more: Ints | None = None
    busy: Floats | None = None
    if active is not None:
        table = table_of(active, "active")
        active_steps, known = steps_of(table, active_time)
        more = active_steps[known]
    axis, new, total = _front(values, time, timesteps, vertices, more)
    if more is not None:
        if active_column is None and "vertex" in table.column_names:
            busy = newly_reached(more, axis).astype(np.float64)
        else:
            numbers = numbers_of(table, value_name(table, active_column, active_time))
            busy = line(more, np.where(np.isfinite(numbers), numbers, np.nan)[known], axis, active_time)
    reached = np.cumsum(new)
    few = axis.size <= _FEW
    figure = new_figure(9.0, 4.8, fitted=True)
    axes = figure.subplots()
    axes.plot(
        axis, reached, color=COLOURS[0], linewidth=2.2, marker="o" if few else None, markersize=4.5, gid="reached",
        label="reached so far", clip_on=False,
    )  # fmt: skip
    if busy is not None:
        axes.plot(
            axis, busy, color=ALARM, linewidth=1.6, linestyle=(0, (5, 2)), marker="s" if few else None, markersize=4.0,
            gid="active", label="active in the timestep", clip_on=False,
        )  # fmt: skip
    highest = np.append(reached, 0 if busy is None else busy[np.isfinite(busy)])
    if highest.max() >= _SMALL_SHARE * total:
        axes.axhline(total, color=QUIET, linewidth=1.0, linestyle=(0, (2, 2)), label=f"all {total:,}", gid="all")
        highest = np.append(highest, total)
    _count_axis(axes, highest)
    axes.set_ylabel("vertices")
    axes.set_title(f"Spread: {int(reached[-1]):,} of {count(total, 'vertex')} reached")
    legend_beside(axes, axes.get_legend_handles_labels()[0], "vertices")
    _time_ticks(axes, axis, time, dates_of(values, time, timesteps))
    return figure


def _front(
    values: Any, time: str, timesteps: Sequence[int] | pa.Table | None, vertices: int | None, more: Ints | None = None
) -> tuple[Ints, Ints, int]:
    """Timesteps (including those of `more`), newly reached vertices in each, and total number of vertices."""
    first, total = first_reached(table_of(values), time)
    steps = first if more is None else np.concatenate((first, more))
    axis = time_axis(steps, values, time, timesteps)
    if vertices is not None and whole_number(vertices, "vertices") < total:
        raise InputError(f"vertices = {vertices:,}: must be at least {total:,}, the number in the table")
    return axis, newly_reached(first, axis), total if vertices is None else vertices


def _draw_lines(axes: Any, axis: Ints, found: Floats, names: list[str]) -> None:
    few = axis.size <= _FEW
    for at, name in enumerate(names):
        colour, marker = look(at)
        # Beyond sixty timesteps, shapes distinguish lines of one color; a single value requires one to be visible.
        every = 1 if few else max(1, axis.size // 12)
        axes.plot(
            axis, found[at], color=colour, linewidth=1.8, marker=marker, markersize=4.5, markevery=every,
            label=shorten(name, 24), gid=f"line-{at}",
        )  # fmt: skip
    if len(names) > 1:
        legend_beside(axes, axes.get_legend_handles_labels()[0], "vertex")


def _draw_bands(axes: Any, axis: Ints, found: Floats) -> None:
    low, lower, median, upper, high = found
    outer = axes.fill_between(axis, low, high, color=COLOURS[4], alpha=0.3, linewidth=0, gid="range")
    inner = axes.fill_between(axis, lower, upper, color=COLOURS[0], alpha=0.45, linewidth=0, gid="quartiles")
    few = axis.size <= _FEW
    (middle,) = axes.plot(
        axis, median, color="#00304d", linewidth=1.8, marker="o" if few else None, markersize=3.5, gid="median"
    )
    axes.plot(axis, low, color=COLOURS[4], linewidth=0.8, gid="minimum")
    axes.plot(axis, high, color=COLOURS[4], linewidth=0.8, gid="maximum")
    alone = _alone(np.isfinite(median))
    # A band has no width at a timestep with empty neighbors.
    axes.vlines(axis[alone], low[alone], high[alone], color=COLOURS[4], alpha=0.6, linewidth=3.0)
    axes.vlines(axis[alone], lower[alone], upper[alone], color=COLOURS[0], alpha=0.6, linewidth=3.0)
    for handle, text in ((outer, "minimum to maximum"), (inner, "middle half"), (middle, "median")):
        handle.set_label(text)
    legend_beside(axes, [middle, inner, outer], "all vertices")


def _alone(known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    padded = np.pad(known, 1)
    return np.asarray(known & ~padded[:-2] & ~padded[2:])


def _value_scale(axes: Any, values: Floats) -> None:
    low, high = float(values.min()), float(values.max())
    if low > 0 and high / low > _LOG_FROM:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1000 else (1.0,), numticks=9))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    elif np.array_equal(values, np.round(values)):
        integer_ticks(axes.yaxis, 8)


def _count_axis(axes: Any, values: NDArray[Any]) -> None:
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    integer_ticks(axes.yaxis, 7)
    axes.set_ylim(0.0, max(float(values.max(initial=0.0)) * 1.08, 1.0))


def _time_ticks(axes: Any, axis: Ints, time: str, dates: Mapping[int, str], note: str = "") -> None:
    label = "timestep" if time == "timestep" else f"timestep ({shorten(time, 24)})"
    if dates:
        label += ", by its start (UTC)"
    axes.set_xlabel(label + (f"\n{note}" if note else ""))
    axes.set_xlim(axis[0] - 0.5, axis[-1] + 0.5)
    integer_ticks(axes.xaxis, _DATES if dates else 16)
    if dates:
        from matplotlib.ticker import FuncFormatter

        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: dates.get(round(value), "")))
