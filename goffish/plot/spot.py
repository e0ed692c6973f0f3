"""Pictures of spot jobs: prices and bids, expected costs, costs of policies, and one job from start to end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE, SlotPrices, Trace
from goffish.errors import InputError
from goffish.plot.style import ALARM, COLOURS, INK, NOTHING, QUIET, SEQUENCE, legend_beside, new_figure, styled
from goffish.scheduling.spot.comparison import Outcome
from goffish.scheduling.spot.job import (
    CHECKPOINT,
    CHECKPOINTING,
    FINISHED,
    RUNNING,
    START,
    STARTUP,
    STATE_NAMES,
    JobRun,
)
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
_MOST = len(COLOURS)
#: Maximum number of points of a price line.
_POINTS = 20_000
#: Quiesced, start-up, running, checkpointing, migrating, local, finished.
_STATES = (NOTHING, COLOURS[1], COLOURS[0], COLOURS[3], COLOURS[5], COLOURS[2], "#e9e9e9")


@styled
def prices(traces: Sequence[Trace], market: Market, *, title: str = "") -> Figure:
    """Draw the price of each machine type over time, with its bids and its on-demand price.

    Parameters
    ----------
    traces : sequence of Trace
        One trace per machine type of the market, in its order.
    market : Market
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        One panel per machine type, with a logarithmic axis. Gaps are times in which it was not available. If all types
        have availability, one panel with a bar for each, and its share of the period.

    Raises
    ------
    InputError
        If there is no machine type, there are more than seven, or matplotlib is missing.
    """
    _expect_classes(market)
    count = len(market.classes)
    if all(one.by_availability for one in market.classes):
        return _availability(traces, market, title)
    figure = new_figure(9.0, 1.2 + 2.0 * count, fitted=True)
    panels = np.atleast_1d(figure.subplots(count, 1, sharex=True))
    for at, (axes, one, trace) in enumerate(zip(panels, market.classes, traces, strict=True)):
        some = np.unique(np.linspace(0, trace.times.size - 1, min(trace.times.size, _POINTS)).astype(np.int64))
        # Times without machines are gaps.
        shown = np.where(trace.prices == UNAVAILABLE, np.nan, trace.prices)
        _dated(axes, np.append(trace.times[some], trace.end), np.append(shown[some], shown[-1]), at)
        for bid in one.bids[one.bids < ANY_PRICE].tolist():
            axes.axhline(bid, color=QUIET, linewidth=0.7, linestyle=(0, (2, 2)), gid=f"bid-{at}")
        axes.axhline(one.on_demand, color=ALARM, linewidth=1.0, gid=f"on-demand-{at}")
        _logarithmic(axes)
        axes.set_ylabel(f"{one.name}\n$/h")
    panels[0].set_title(title or "Spot prices, bids (dashed) and on-demand price (line)")
    return figure


def _availability(traces: Sequence[Trace], market: Market, title: str) -> Figure:
    """Bars of the times in which each machine type was available."""
    figure = new_figure(9.0, 1.2 + 0.6 * len(traces), fitted=True)
    axes, names = figure.subplots(), []
    for at, (one, trace) in enumerate(zip(market.classes, traces, strict=True)):
        there, lasted = trace.prices != UNAVAILABLE, trace.durations()
        days = np.stack((trace.times, lasted), axis=1)[there] / 86_400.0
        axes.broken_barh(days.tolist(), (at - 0.35, 0.7), color=COLOURS[at % _MOST], linewidth=0, gid=f"available-{at}")
        names.append(f"{one.name} ({lasted[there].sum() / lasted.sum():.0%})")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.xaxis_date()
    axes.set_title(title or "Availability of spot machines, and its share of the period")
    return figure


def _logarithmic(axes: Axes) -> None:
    """Use a logarithmic axis with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _dated(axes: Axes, times: Floats, values: Floats, at: int) -> None:
    days = [datetime.fromtimestamp(seconds, UTC) for seconds in times.tolist()]
    axes.step(days, values, where="post", color=COLOURS[at], linewidth=0.9, gid=f"price-{at}")  # type: ignore[arg-type]


@styled
def cost_map(table: Table, now: Sequence[float] | None = None, *, title: str = "") -> Figure:
    """Draw the expected cost of every job within a table, by deadline and work (the paper's Fig. 5).

    Parameters
    ----------
    table : Table
    now : sequence of float, optional
        Current price of each machine type; default: the long-run average.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        A heat map with one cell per slot and unit; grey where the deadline cannot be guaranteed.
    """
    market = table.market
    found = np.stack([table.curve(work, now) for work in range(1, table.work + 1)])
    seen = np.ma.masked_invalid(found[:, 1:])
    figure = new_figure(8.0, 5.2, fitted=True)
    axes = figure.subplots()
    axes.set_facecolor(NOTHING)
    hours = np.arange(table.slots + 1) / market.slots_per_hour
    work = (np.arange(table.work + 1) + 0.5) * market.unit
    mesh = axes.pcolormesh(hours, work, seen, cmap=SEQUENCE, gid="cost")
    figure.colorbar(mesh, ax=axes, label="expected cost, $")
    axes.set_xlabel("hours to the deadline")
    axes.set_ylabel("core-hours")
    axes.set_title(title or "Expected cost (grey: the deadline cannot be guaranteed)")
    return figure


@styled
def cost_curve(
    table: Table,
    work: int,
    slots: int,
    now: Sequence[float] | None = None,
    ages: Sequence[int] | None = None,
    *,
    title: str = "",
) -> Figure:
    """Draw the expected cost of one job by its deadline, and mark the given deadline.

    Parameters
    ----------
    table : Table
    work, slots : int
    now : sequence of float, optional
    ages : sequence of int, optional
        Slots for which each price has been in its bin.
    title : str
    """
    market = table.market
    curve = table.curve(work, now, ages)
    figure = new_figure(7.0, 4.0, fitted=True)
    axes = figure.subplots()
    hours = np.arange(curve.size) / market.slots_per_hour
    can = np.isfinite(curve)
    axes.step(hours[can], curve[can], where="post", color=COLOURS[0], gid="cost")
    if slots < curve.size and can[slots]:
        axes.plot(hours[slots], curve[slots], "o", color=ALARM, gid="now")
        axes.annotate(f"{curve[slots]:.3g} $", (hours[slots], curve[slots]), (6, 6), textcoords="offset points")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("hours to the deadline")
    axes.set_ylabel("expected cost, $")
    axes.set_title(title or f"A job of {work * market.unit:.4g} core-hours")
    return figure


@styled
def outcomes(found: Sequence[Outcome], on_demand: float, slots_per_hour: int = 1, *, title: str = "") -> Figure:
    """Draw the costs of policies for the same jobs, and the states of the first policy's jobs over time.

    Parameters
    ----------
    found : sequence of Outcome
    on_demand : float
        On-demand price of the job, drawn as a line.
    slots_per_hour : int
        For the axis of the states in hours.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        Upper panel: for each policy, the central 90 % and 50 % of its costs, their mean (dot) and maximum (cross).
        Lower panel: the share of the first policy's jobs in each state.
    """
    if not found:
        raise InputError("expected at least one outcome")
    first = next((one for one in found if one.replay is not None and one.replay.states.size), None)
    figure = new_figure(8.5, 1.6 + 0.3 * len(found) + (2.6 if first else 0.0), fitted=True)
    heights = [1.0 + 0.3 * len(found), 2.6] if first else [1.0]
    panels = np.atleast_1d(figure.subplots(len(heights), 1, height_ratios=heights))
    axes = panels[0]
    for at, one in enumerate(found):
        low, left, right, high = np.quantile(one.costs, (0.05, 0.25, 0.75, 0.95)).tolist()
        axes.plot([low, high], [at, at], color=COLOURS[0], linewidth=1.2, gid=f"most-{at}")
        axes.plot([left, right], [at, at], color=COLOURS[0], linewidth=4.0, solid_capstyle="butt", gid=f"half-{at}")
        axes.plot(one.costs.mean(), at, "o", color=INK, markersize=4, gid=f"mean-{at}")
        axes.plot(one.costs.max(), at, "x", color=ALARM, markersize=4, gid=f"worst-{at}")
    axes.axvline(on_demand, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), gid="on-demand")
    names = [one.policy if one.machines == "all" else f"{one.policy}, {one.machines}" for one in found]
    axes.set_yticks(range(len(found)), names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(
        "$ for a job (bar: half of the jobs, line: nine tenths, dot: mean, cross: worst; dashed: on demand)"
    )
    axes.set_title(title or "Costs of the jobs")
    if first is not None and first.replay is not None:
        _shares(panels[1], first.replay.states, first.policy, slots_per_hour)
    return figure


def _shares(axes: Axes, states: Any, policy: str, slots_per_hour: int) -> None:
    share = states / states.sum(axis=1, keepdims=True)
    seen = np.flatnonzero(states.any(axis=0)).tolist()
    axes.stackplot(
        np.arange(len(share)) / slots_per_hour, share.T[seen], labels=[STATE_NAMES[at] for at in seen], linewidth=0,
        step="post", colors=[_STATES[at] for at in seen],
    )  # fmt: skip
    axes.set_ylim(0, 1)
    axes.set_xlim(0, (len(share) - 1) / slots_per_hour)
    axes.set_xlabel("hours since the submission")
    axes.set_ylabel(f"jobs of {policy}")
    legend_beside(axes, axes.get_legend_handles_labels()[0], "state")


@styled
def job(run: JobRun, market: Market, slots: SlotPrices, first: int = 0, *, title: str = "") -> Figure:
    """Draw one job from start to end: prices and bid or availability, its state, and the remaining work.

    Parameters
    ----------
    run : JobRun
        A run with its log.
    market : Market
    slots : SlotPrices
        Prices of the run.
    first : int
        First slot of the run.
    title : str
    """
    _expect_classes(market)
    steps = [entry for entry in run.log if entry.status.state != FINISHED]
    count = max((entry.slot for entry in steps), default=0) + 1
    hours = np.arange(count + 1) / market.slots_per_hour
    figure = new_figure(9.0, 6.0, fitted=True)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1, 2))
    bars = all(one.by_availability for one in market.classes)
    for at, one in enumerate(market.classes):
        if bars:
            there = slots.prices[first : first + count, at] < ANY_PRICE
            spans = np.stack((hours[:-1], np.diff(hours)), axis=1)[there]
            panels[0].broken_barh(
                spans.tolist(), (at - 0.35, 0.7), color=COLOURS[at], linewidth=0, label=one.name, gid=f"available-{at}"
            )
            continue
        panels[0].step(
            hours, np.where(slots.prices == UNAVAILABLE, np.nan, slots.prices)[first : first + count + 1, at],
            where="post", color=COLOURS[at], label=one.name, gid=f"price-{at}",
        )  # fmt: skip
    for entry in steps:
        choice = entry.status.choice
        span = hours[entry.slot : entry.slot + 2]
        # In the first slot of a start-up or checkpoint, the job is still in its previous state.
        state = (
            STARTUP if entry.action >= START else CHECKPOINTING if entry.action == CHECKPOINT else entry.status.state
        )
        panels[1].axvspan(*span, color=_STATES[state], linewidth=0, gid=f"state-{entry.slot}")
        if choice >= 0 and entry.status.state == RUNNING and market.rules.spot[choice]:
            bid, kind = float(market.rules.bid[choice]), int(market.rules.kind[choice])
            if bid < ANY_PRICE:
                panels[0].plot(span, [bid, bid], color=COLOURS[kind], linewidth=1.0, linestyle=(0, (2, 1)), gid="bid")
    if bars:
        panels[0].set_yticks([])
        panels[0].set_ylabel("available")
    else:
        _logarithmic(panels[0])
        panels[0].set_ylabel("$/h (dashed: bid held)")
    legend_beside(panels[0], panels[0].get_legend_handles_labels()[0], "machine type")
    panels[1].set_yticks([])
    panels[1].set_ylabel("state")
    for state, name in enumerate(STATE_NAMES[:FINISHED]):
        panels[1].plot([], [], color=_STATES[state], linewidth=5, label=name)
    legend_beside(panels[1], panels[1].get_legend_handles_labels()[0], "state")
    by_slot = {entry.slot: entry.status for entry in steps}
    labels = {"work": "current", "saved": "from the last checkpoint"}
    for (name, label), colour in zip(labels.items(), COLOURS, strict=False):
        left = [getattr(by_slot[slot], name) * market.unit for slot in sorted(by_slot)]
        panels[2].step(hours[sorted(by_slot)], left, where="post", color=colour, label=label, gid=name)
    panels[2].set_ylabel("remaining core-hours")
    panels[2].set_ylim(bottom=0)
    panels[2].set_xlabel("hours since the submission")
    legend_beside(panels[2], panels[2].get_legend_handles_labels()[0], "remaining")
    ended = f"finished after {run.finished / market.slots_per_hour:.3g} h" if run.finished else "deadline missed"
    panels[0].set_title(title or f"One job: {run.cost:.3g} $, {ended}")
    return figure


def _expect_classes(market: Market) -> None:
    if len(market.classes) > _MOST:
        raise InputError(f"{len(market.classes)} machine types: at most {_MOST} can be drawn")
