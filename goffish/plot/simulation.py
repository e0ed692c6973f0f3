"""A simulated run of a dataflow over time: rate, throughput, cost and machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.graph.guards import expect
from goffish.partial import check_place, output_file
from goffish.plot.style import ALARM, COLOURS, QUIET, integer_ticks, legend_beside, new_figure, styled
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.model import Goal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HOUR_S = 3600.0
_GRID = "#e4e4e4"
_TITLE = "Rate, throughput, latency, cost, reconfigurations and machines over time"


@styled
def simulation(results: Result | dict[str, Result], goal: Goal, *, currency: str = "USD", title: str = "") -> Figure:
    """Draw one run, or several named runs, as panels over time.

    Parameters
    ----------
    results : Result or dict of str to Result
    goal : Goal
        Goal; its throughput and tolerance are drawn as a band.
    currency : str
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        From top to bottom: external messages per second, relative throughput, latency, cost so far, reconfigurations so
        far, and machines.

    Raises
    ------
    InputError
        If there is no run, runs have different lengths, there are more than seven, or matplotlib is missing.
    """
    runs = _runs(results)
    figure = new_figure(9.0, 10.5, fitted=True)
    axes = figure.subplots(6, 1, sharex=True, height_ratios=(2, 3, 2, 2, 2, 2))
    first = next(iter(runs.values()))
    hours = _hours(first)
    axes[0].stairs(_column(first, "rate"), hours, color=QUIET, linewidth=1.2, gid="rate")
    axes[0].set_ylabel("messages/s")
    axes[0].set_ylim(bottom=0)
    axes[0].set_title(title or _TITLE)
    low, high = goal.throughput - goal.tolerance, goal.throughput + goal.tolerance
    axes[1].axhspan(low, high, color="#e8f1e8", gid="band", zorder=0)
    axes[1].axhline(goal.throughput, color=COLOURS[2], linewidth=1.0, linestyle=(0, (4, 3)), gid="goal")
    for at, (name, run) in enumerate(runs.items()):
        look = {"color": COLOURS[at], "linewidth": 1.3}
        axes[1].stairs(_column(run, "omega"), hours, baseline=None, label=name, gid=f"omega-{at}", **look)
        axes[2].stairs(_column(run, "latency_s"), hours, baseline=None, gid=f"latency-{at}", **look)
        axes[3].plot(hours, np.concatenate(([0.0], _column(run, "cost"))), gid=f"cost-{at}", label=name, **look)
        axes[4].stairs(_changes(run), hours, baseline=None, gid=f"changes-{at}", **look)
        axes[5].stairs(_column(run, "machines"), hours, baseline=None, gid=f"machines-{at}", label=name, **look)
        failed = np.flatnonzero(_column(run, "failures"))
        if failed.size:
            axes[5].plot(
                hours[failed], _column(run, "machines")[failed], "x", color=ALARM, markersize=6, gid=f"failures-{at}",
                label="failed machines" if at == 0 else None, clip_on=False,
            )  # fmt: skip
    axes[1].set_ylabel("relative throughput")
    axes[1].set_ylim(0, 1.02)
    axes[2].set_ylabel("latency (s)")
    axes[2].set_yscale("symlog", linthresh=1.0)
    axes[2].set_ylim(bottom=0)
    axes[3].set_ylabel(f"cost ({currency})")
    axes[3].set_ylim(bottom=0)
    axes[4].set_ylabel("changes")
    axes[4].set_ylim(bottom=0)
    axes[5].set_ylabel("machines")
    axes[5].set_ylim(bottom=0)
    for panel in axes[4:]:
        integer_ticks(panel.yaxis, 6)
    axes[2].yaxis.set_major_formatter("{x:g}")
    axes[5].set_xlabel("hours")
    for axis in axes:
        axis.grid(axis="y", color=_GRID, linewidth=0.6)
        axis.set_xlim(hours[0], hours[-1])
    if len(runs) > 1 or any(run.summary.backlog_grows or _column(run, "failures").any() for run in runs.values()):
        legend_beside(axes[5], axes[5].get_legend_handles_labels()[0], "")
        legend_beside(axes[1], axes[1].get_legend_handles_labels()[0], "")
    figure.align_ylabels()
    return figure


def simulation_page(
    results: Result | dict[str, Result], goal: Goal, path: str | Path, *, currency: str = "USD", title: str = ""
) -> Path:
    """Write the panels as one self-contained interactive HTML page, with zoom and values on hover.

    Raises
    ------
    InputError
        As for `simulation`; also if plotly is missing, or the file cannot be written.
    """
    runs = _runs(results)
    target = check_page(path)
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    names = ("messages/s", "relative throughput", "latency (s)", f"cost ({currency})", "changes", "machines")
    heights = (0.14, 0.24, 0.15, 0.16, 0.15, 0.16)
    figure = make_subplots(rows=6, cols=1, shared_xaxes=True, vertical_spacing=0.03, row_heights=heights)
    first = next(iter(runs.values()))
    hours = _hours(first)
    figure.add_trace(_steps(go, hours, _column(first, "rate"), "external rate", QUIET, legend=False), 1, 1)
    figure.add_hrect(
        goal.throughput - goal.tolerance, goal.throughput + goal.tolerance, row=2, col=1, fillcolor=COLOURS[2],
        opacity=0.12, line_width=0,
    )  # fmt: skip
    for at, (name, run) in enumerate(runs.items()):
        colour = COLOURS[at]
        figure.add_trace(_steps(go, hours, _column(run, "omega"), name, colour, legend=True), 2, 1)
        cost = np.concatenate(([0.0], _column(run, "cost")))
        line = {"color": colour}
        figure.add_trace(go.Scatter(x=hours, y=cost, name=name, line=line, legendgroup=name, showlegend=False), 4, 1)
        for row, values in ((3, _column(run, "latency_s")), (5, _changes(run)), (6, _column(run, "machines"))):
            figure.add_trace(_steps(go, hours, values, name, colour, legend=False), row, 1)
    for row, label in enumerate(names, 1):
        figure.update_yaxes(title_text=label, rangemode="tozero", row=row, col=1)
    figure.update_yaxes(type="log", rangemode="normal", row=3, col=1)
    figure.update_xaxes(title_text="hours", row=6, col=1)
    figure.update_layout(
        title=title or _TITLE, template="plotly_white", hovermode="x unified", height=1200,
    )  # fmt: skip
    with output_file(target) as temporary:
        temporary.write_text(figure.to_html(include_plotlyjs=True, div_id="simulation"), encoding="utf-8")
    return target


def check_page(path: str | Path) -> Path:
    """Refuse a page that `simulation_page` could not write, before any computation."""
    with needed_for("interactive pages"):
        import plotly  # noqa: F401
    return check_place(path, (".html", ".htm"))


def _steps(go: Any, edges: Any, values: Any, name: str, colour: str, *, legend: bool) -> Any:
    held = np.append(values, values[-1:])
    return go.Scatter(
        x=edges, y=held, name=name, line={"color": colour, "shape": "hv"}, legendgroup=name, showlegend=legend
    )


def _runs(results: Result | dict[str, Result]) -> dict[str, Result]:
    runs = results if isinstance(results, dict) else {"": results}
    for run in runs.values():
        expect(run, Result, "results", "expected a result of simulate, or a dictionary of results by name")
    runs = {_label(name, run): run for name, run in runs.items()}
    if not 1 <= len(runs) <= len(COLOURS):
        raise InputError(f"{len(runs)} runs: expected 1 to {len(COLOURS)}")
    if len({run.intervals.num_rows for run in runs.values()}) > 1:
        raise InputError("the runs have different numbers of intervals; simulate them with the same rates")
    if not next(iter(runs.values())).intervals.num_rows:
        raise InputError("the run has no intervals")
    return runs


def _label(name: str, run: Result) -> str:
    return ", ".join([name] * bool(name) + ["the backlog grows"] * run.summary.backlog_grows)


def _hours(run: Result) -> Any:
    """Boundaries of the intervals."""
    starts = run.intervals.column("start_s").to_numpy()
    last = 2 * starts[-1] - starts[-2] if starts.size > 1 else starts[-1] + _HOUR_S
    return np.append(starts, last) / _HOUR_S


def _column(run: Result, name: str) -> Any:
    return run.intervals.column(name).to_numpy()


def _changes(run: Result) -> Any:
    """Cumulative reconfigurations: switches, changes of instances, starts and stops of machines."""
    return sum(_column(run, name) for name in ("switches", "instance_changes", "starts", "stops")).cumsum()
