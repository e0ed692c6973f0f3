"""Compute phases of every partition and superstep, and the slowest partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.plot.counters import check_supersteps
from goffish.plot.style import (
    ALARM,
    COLOURS,
    QUIET,
    SEQUENCE,
    count,
    integer_ticks,
    legend_beside,
    new_figure,
    shades,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from goffish.gopher.result import Result
    from goffish.gopher.stats import RunStats

#: #: Maximum number of supersteps with separate bars; more are grouped.
_MOST_SINGLE = 40
_MOST_GROUPS = 30
_MOST_ROWS = 48
_MOST_BARRIERS = 20
_FEW = 10
#: #: Outline of bars, so that short bars are visible.
_HAIR = 0.6
#: #: Pauses longer than the first share of all compute phases are shortened: each to at most the second share of these,
#: #: all together to the third.
_LONG_PAUSES, _SHARE_OF_PAUSE, _SHARE_OF_PAUSES = 0.5, 0.05, 0.3
#: #: Gap between groups of supersteps, as a share of a group.
_BETWEEN_GROUPS = 0.1
_PAUSE = "#ececec"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True)
class _Bars:
    """One row per partition and group of supersteps in which it computed; times in seconds.

    Groups of several supersteps are placed side by side, each as wide as its longest bar, without barriers.
    """

    partition: NDArray[np.int64]
    group: NDArray[np.int64]
    start: NDArray[np.float64]
    length: NDArray[np.float64]
    slowest: NDArray[np.bool_]
    barriers: NDArray[np.float64]
    supersteps_per_group: int
    groups: int
    pauses: tuple[tuple[float, float, float], ...] = ()
    """Shortened pauses: drawn start, drawn end, true seconds."""


@styled
def gantt(stats: RunStats | Result) -> Figure:
    """Draw when each partition computed: one row per partition, one bar per superstep.

    Parameters
    ----------
    stats : RunStats or Result
        Counters of a run on an engine, or its result.

    Returns
    -------
    matplotlib.figure.Figure
        Bars extend from the start to the end of a partition's compute phase and are colored by superstep. A red mark
        shows the slowest partition of each superstep (most compute time), for which the others wait at the barrier
        (dashed). The right panel adds up the compute time of each partition. Of more than 48 partitions only the
        slowest 48 are drawn. With more than 40 supersteps, a bar combines several: its length is the sum of theirs, and
        the time between groups is left out. With up to 40, long pauses between compute phases are shortened to gray
        strips, labeled with their true length if it fits. Supersteps before a resumed checkpoint directly precede the
        others.

    Raises
    ------
    InputError
        If there are no counters (no engine ran), the run had no superstep, or matplotlib is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> figure = plot.gantt(gf.run("components", gf.from_edges([1, 2], [2, 3]), parts=2))
    """
    stats = check_supersteps(stats)
    bars = _bars(stats)
    grouped = bars.supersteps_per_group > 1
    if not grouped:
        bars = _without_pauses(bars)
    busy = stats.busy_per_partition()
    shown = np.sort(np.argsort(-busy, kind="stable")[:_MOST_ROWS])
    first = float(bars.start.min(initial=np.inf))
    last = max(float((bars.start + bars.length).max(initial=-np.inf)), float(bars.barriers.max(initial=-np.inf)))
    if not np.isfinite(last - first):
        first = last = 0.0
    unit, unit_name = _unit(last - first if bars.pauses else last)
    if bars.pauses:
        first, last, bars = 0.0, last - first, _moved(bars, -first)

    figure = new_figure(11.0, float(np.clip(1.9 + 0.3 * shown.size, 3.0, 11.0)), fitted=True)
    axes, totals = figure.subplots(1, 2, sharey=True, width_ratios=(6, 1))
    colours = shades(bars.groups)
    for row, partition in enumerate(shown):
        mine = np.flatnonzero(bars.partition == partition)
        spans = list(zip(bars.start[mine] / unit, bars.length[mine] / unit, strict=True))
        axes.broken_barh(
            spans, (row - 0.36, 0.72), facecolors=[colours[g] for g in bars.group[mine]], edgecolors="face",
            linewidth=_HAIR, gid=f"partition-{partition}",
        )  # fmt: skip
        late = [span for span, marked in zip(spans, bars.slowest[mine], strict=True) if marked]
        if late:
            axes.broken_barh(
                late,
                (row + 0.22, 0.2),
                facecolors=ALARM,
                edgecolors="face",
                linewidth=_HAIR,
                gid=f"slowest-{partition}",
            )
    if bars.barriers.size and bars.groups <= _MOST_BARRIERS:
        axes.vlines(
            bars.barriers / unit, -0.5, shown.size - 0.5, color=QUIET, linewidth=0.7, linestyle=(0, (3, 2)),
            gid="barriers",
        )  # fmt: skip
    for left, right, seconds in bars.pauses:
        axes.axvspan(left / unit, right / unit, color=_PAUSE, linewidth=0, zorder=0, gid="pause")
        if len(bars.pauses) <= _FEW:
            size, name = _unit(seconds)
            axes.text(
                (left + right) / 2 / unit, shown.size / 2 - 0.5, f"{seconds / size:.3g} {name}", rotation=90,
                ha="center", va="center", fontsize=7.5, color=QUIET,
            )  # fmt: skip
    margin = max(last - first, 1e-9) * 0.01
    axes.set_xlim((first - margin) / unit, (last + margin) / unit)
    if grouped:
        label = f"compute time ({unit_name}); groups of {bars.supersteps_per_group} supersteps are separated"
        axes.set_xlabel(label)
    elif bars.pauses:
        label = f"time since the first compute phase began ({unit_name}); grey: pauses without compute, shortened"
        axes.set_xlabel(label)
    else:
        axes.set_xlabel(f"time since the run began ({unit_name})")
    axes.set_ylabel("partition")
    axes.set_yticks(np.arange(shown.size), [str(p) for p in shown], fontsize=8.0 if shown.size <= 36 else 7.0)
    axes.set_ylim(shown.size - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_title(_title(stats))
    axes.set_title(_note(stats, shown.size, bars), loc="right", fontsize=8.0, fontweight="normal", color=QUIET)

    unit, unit_name = _unit(float(busy.max(initial=0.0)))
    totals.barh(np.arange(shown.size), busy[shown] / unit, height=0.72, color=COLOURS[4], gid="busy")
    totals.axvline(float(busy.mean()) / unit, color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), label="mean")
    totals.set_xlabel(f"compute time ({unit_name})")
    totals.tick_params(axis="y", length=0, labelleft=False)
    totals.locator_params(axis="x", nbins=3)
    _keys(figure, totals, bars, colours, stats.supersteps)
    return figure


def _bars(stats: RunStats) -> _Bars:
    names = ("superstep", "partition", "start", "end", "busy", "active")
    step, part, start, end, busy, active = (stats.steps.column(n).to_numpy() for n in names)
    start, end = _one_clock(step, start, end, active > 0, stats.supersteps)
    size = 1 if stats.supersteps <= _MOST_SINGLE else -(-stats.supersteps // _MOST_GROUPS)
    groups = -(-stats.supersteps // size)
    ran = np.flatnonzero(active > 0)
    group, part, start, end, busy = (step[ran] - 1) // size, part[ran], start[ran], end[ran], busy[ran]
    cell = group * stats.partitions + part
    cells, at = np.unique(cell, return_inverse=True)
    length = np.bincount(at, end - start, cells.size).astype(np.float64)
    work = np.bincount(at, busy, cells.size)
    bar_group, bar_part = cells // stats.partitions, cells % stats.partitions
    if size == 1:
        bar_start, barriers = np.empty(cells.size), np.zeros(groups)
        bar_start[at] = start
        np.maximum.at(barriers, group, end)
    else:
        width, barriers = np.zeros(groups), np.empty(0)
        np.maximum.at(width, bar_group, length)
        ends = np.cumsum(width + _BETWEEN_GROUPS * float(width.mean()))
        bar_start = np.concatenate(([0.0], ends[:-1]))[bar_group]
    most = np.zeros(groups)
    np.maximum.at(most, bar_group, work)
    return _Bars(bar_part, bar_group, bar_start, length, work == most[bar_group], barriers, size, groups)


def _without_pauses(bars: _Bars) -> _Bars:
    """Shorten pauses in which no partition computed, if they would take more space than the bars."""
    order = np.argsort(bars.start, kind="stable")
    start, end = bars.start[order], np.maximum.accumulate((bars.start + bars.length)[order])
    if start.size < 2:
        return bars
    gap = np.maximum(start[1:] - end[:-1], 0.0)
    whole = float(end[-1] - start[0])
    busy = whole - float(gap.sum())
    if gap.sum() <= _LONG_PAUSES * busy:
        return bars
    shown = np.minimum(gap, min(_SHARE_OF_PAUSE * busy, _level(gap, _SHARE_OF_PAUSES * busy)))
    saved = np.concatenate(([0.0], np.cumsum(gap - shown)))
    pauses = tuple(
        (float(end[i] - saved[i]), float(start[i + 1] - saved[i + 1]), float(gap[i]))
        for i in np.flatnonzero(shown < gap).tolist()
    )
    moved = np.empty_like(bars.start)
    moved[order] = start - saved
    barriers = bars.barriers - saved[np.maximum(np.searchsorted(start, bars.barriers, side="left") - 1, 0)]
    return replace(bars, start=moved, barriers=barriers, pauses=pauses)


def _level(values: NDArray[np.float64], room: float) -> float:
    """The largest limit of the values with which their sum is at most `room`."""
    ascending = np.sort(values)
    left = (room - ascending.cumsum() + ascending) / np.arange(values.size, 0, -1)
    over = np.flatnonzero(ascending >= left)
    return float(left[over[0]]) if over.size else float("inf")


def _moved(bars: _Bars, by: float) -> _Bars:
    pauses = tuple((left + by, right + by, seconds) for left, right, seconds in bars.pauses)
    return replace(bars, start=bars.start + by, barriers=bars.barriers + by, pauses=pauses)


def _one_clock(
    step: NDArray[Any], start: NDArray[Any], end: NDArray[Any], ran: NDArray[np.bool_], supersteps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times on one clock: a resumed run restarts its clock at zero, so later supersteps would appear earlier."""
    first, last = np.full(supersteps + 1, np.inf), np.full(supersteps + 1, -np.inf)
    np.minimum.at(first, step[ran], start[ran])
    np.maximum.at(last, step[ran], end[ran])
    shift = np.zeros(supersteps + 1)
    now, reached = 0.0, 0.0
    for number in range(1, supersteps + 1):
        if not np.isfinite(first[number]):
            continue
        if first[number] + now < reached:
            now = reached - float(first[number])
        shift[number] = now
        reached = float(last[number]) + now
    return start + shift[step], end + shift[step]


def _unit(seconds: float) -> tuple[float, str]:
    return next(((size, name) for size, name in _UNITS if seconds >= size), _UNITS[-1])


def _title(stats: RunStats) -> str:
    return f"{stats.program}: imbalance {stats.imbalance:.2f}, idle {stats.idle_share:.0%}"


def _note(stats: RunStats, shown: int, bars: _Bars) -> str:
    parts = [count(stats.supersteps, "superstep"), count(stats.threads, "thread")]
    if shown < stats.partitions:
        parts.insert(1, f"the {shown} slowest of {stats.partitions:,} partitions")
    if bars.supersteps_per_group > 1:
        parts.append(f"{bars.supersteps_per_group} supersteps per bar")
    return ", ".join(parts)


def _keys(figure: Figure, totals: Any, bars: _Bars, colours: list[Any], supersteps: int) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    whole = "superstep" if bars.supersteps_per_group == 1 else "group"
    marks: list[Any] = [Patch(facecolor=ALARM, label=f"slowest of its {whole}")]
    if bars.barriers.size and bars.groups <= _MOST_BARRIERS:
        marks.append(Line2D([], [], color=QUIET, linewidth=0.9, linestyle=(0, (3, 2)), label="barrier"))
    marks.append(Line2D([], [], color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), label="mean compute time"))
    if bars.groups <= _FEW:
        steps = [Patch(facecolor=colour, label=f"superstep {g + 1}") for g, colour in enumerate(colours)]
        legend_beside(totals, [*steps, *marks], "")
        return
    scale = ScalarMappable(Normalize(1, supersteps), SEQUENCE)
    bar = figure.colorbar(scale, ax=totals, label="superstep", fraction=0.3, pad=0.06)
    integer_ticks(bar.ax.yaxis, 8)
    figure.legend(handles=marks, loc="outside lower right", ncols=len(marks), columnspacing=1.4)
