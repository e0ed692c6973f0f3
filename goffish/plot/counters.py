"""Messages and active subgraphs of every superstep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.gopher.stats import RunStats
from goffish.graph.guards import expect
from goffish.plot.style import ALARM, COLOURS, QUIET, count, integer_ticks, legend_beside, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: #: Ratio of the largest to the smallest positive value from which a logarithmic axis is used.
_LOG_FROM = 100
_FEW = 60
_LINES = (
    # counter, label, color, width, dashes, marker: the widest first, so that equal lines are all visible
    ("messages", "sent by the program", COLOURS[4], 5.0, "solid", "o"),
    ("combined", "after combining", COLOURS[0], 2.2, "solid", "s"),
    ("remote", "to other partitions", ALARM, 1.2, (0, (3, 2)), "^"),
)


@styled
def supersteps(stats: RunStats | Result) -> Figure:
    """Draw messages and active subgraphs per superstep, in two panels.

    Parameters
    ----------
    stats : RunStats or Result
        Counters of a run on an engine, or its result.

    Returns
    -------
    matplotlib.figure.Figure
        Upper panel: messages sent, left after combining, and sent to other partitions. Lower panel: subgraphs whose
        `compute` was called. An axis is logarithmic if its values span more than a factor of 100.

    Raises
    ------
    InputError
        If there are no counters (no engine ran), the run had no superstep, or matplotlib is missing.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> figure = plot.supersteps(gf.run("components", gf.from_edges([1, 2], [2, 3]), parts=2))
    """
    stats = check_supersteps(stats)
    steps = np.arange(1, stats.supersteps + 1)
    figure = new_figure(9.0, 6.0, fitted=True)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    few = steps.size <= _FEW
    for name, label, colour, width, dashes, marker in _LINES:
        values = stats.per_superstep(name)
        upper.plot(
            steps, values, color=colour, linewidth=width if few else width * 0.6, linestyle=dashes,
            marker=marker if few else None, markersize=2.5 + width, label=label, gid=name, clip_on=False,
        )  # fmt: skip
    _value_axis(upper, np.concatenate([stats.per_superstep(name) for name, *_ in _LINES]))
    upper.set_ylabel("messages")
    upper.set_title(f"{stats.program}: {count(steps.size, 'superstep')}, {count(stats.messages, 'message')}")
    legend_beside(upper, upper.get_legend_handles_labels()[0], "messages")

    active = stats.per_superstep("active")
    lower.bar(steps, active, width=0.8 if few else 1.0, color=COLOURS[2], label="active", gid="active")
    line = lower.axhline(stats.subgraphs, color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), gid="subgraphs")
    _value_axis(lower, np.append(active, stats.subgraphs))
    lower.set_ylabel("active subgraphs")
    lower.set_xlabel("superstep")
    line.set_label(f"all {stats.subgraphs:,}")
    legend_beside(lower, lower.get_legend_handles_labels()[0], "subgraphs")
    lower.set_xlim(0.5, steps.size + 0.5)
    integer_ticks(lower.xaxis, 16)
    figure.align_ylabels()
    return figure


def check_supersteps(given: RunStats | Result) -> RunStats:
    """Return the counters of a run with at least one superstep."""
    stats = given.stats if isinstance(given, Result) else given
    if stats is None:
        raise InputError("no counters: no engine ran; run on an engine with engine='local'")
    expect(stats, RunStats, "stats", "expected the counters of a run (result.stats) or its result")
    if stats.supersteps < 1 or stats.steps.num_rows == 0:
        raise InputError(f"{stats.program}: the run had no supersteps")
    return stats


def _value_axis(axes: Any, values: NDArray[Any]) -> None:
    """Start at zero; logarithmic above 1 for values of a wide range."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    positive = values[values > 0]
    largest = float(values.max(initial=0.0))
    if positive.size and largest / positive.min() > _LOG_FROM:
        axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
        powers = np.arange(int(np.log10(largest)) + 1)
        powers = powers[:: 1 + powers.size // 8]
        axes.yaxis.set_major_locator(FixedLocator([0.0, *(10.0**powers)]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(0.0, largest * 1.6)
    else:
        integer_ticks(axes.yaxis, 7)
        axes.set_ylim(0.0, max(largest * 1.08, 1.0))
