"""Data of the charts of a job, drawn by ``static/charts.js`` with Vega-Lite and listed as tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from goffish.services.web.timeline import Bar, Points, Timeline, lanes

#: Maximum rows, machines and points of a chart.
MOST_ROWS, MOST_BARS, _MOST_POINTS = 60, 1000, 1000
_STEPS = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
    604800, 2592000,
)  # fmt: skip
_TICKS, _LEAST_APART = 8, 0.09
#: Width of a shortened gap, as a share of the time with machines.
_SHARE_OF_GAP = 0.1
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_MARKETS = ("spot", "on-demand", "process")
#: Bids and budgets above this multiple of the maximum value are not drawn.
_OUT_OF_SIGHT = 12.0
Row = dict[str, Any]


class Series(NamedTuple):
    """Line of a chart; its last value is valid until `until`."""

    name: str
    points: Points
    until: float | None = None


class Level(NamedTuple):
    """Dashed horizontal line across a chart, or a part of it."""

    name: str
    value: float
    begin: float = 0.0
    end: float | None = None


def time_axis(timeline: Timeline) -> Row:
    """Return the time axis: piecewise linear from ``domain`` to ``range``, as shares of the width.

    If machines ran for less than half of the time, long gaps without machines are shortened (``gaps``).
    """
    busy: list[list[float]] = []
    for begin, end in sorted(
        tuple(np.clip([bar.begin, timeline.end_of(bar)], 0.0, timeline.end)) for bar in timeline.bars
    ):
        if busy and begin <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([begin, end])
    work = sum(end - begin for begin, end in busy)
    most = work * _SHARE_OF_GAP if 0 < work < timeline.end / 2 else timeline.end
    edges = [0.0, *(at for one in busy for at in one), timeline.end]
    gaps = [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if end - begin > most]
    domain = np.unique([0.0, *(at for gap in gaps for at in gap), timeline.end])
    cut = np.isin(domain[:-1], [begin for begin, _ in gaps])
    shown = np.concatenate([[0.0], np.cumsum(np.where(cut, most, np.diff(domain)))])
    step = next((step for step in _STEPS if shown[-1] / step <= _TICKS), timeline.end)
    ticks: list[Row] = []
    last = -1.0
    for begin, end in zip(domain[:-1][~cut], domain[1:][~cut], strict=True):
        for at in np.arange(np.ceil(begin / step), np.floor(end / step) + 1) * step:
            share = float(np.interp(at, domain, shown) / shown[-1])
            if share - last >= _LEAST_APART:
                ticks.append({"at": float(at), "text": duration(at) if at else "0"})
                last = share
    return {
        "domain": domain.tolist(), "range": (shown / shown[-1]).tolist(), "ticks": ticks,
        "gaps": [{"begin": a, "end": b, "text": f"{duration(b - a)} without machines, shortened"} for a, b in gaps],
    }  # fmt: skip


def gantt(timeline: Timeline) -> Row:
    """Return the chart of machines and states over time, limited to the newest machines."""
    found = lanes(timeline.bars[-MOST_BARS:])
    rows, first = found[:MOST_ROWS], 1 if timeline.stays else 0
    marks = []
    for at in timeline.checkpoints:
        row = (n for n, row in enumerate(rows, first) if any(bar.begin <= at <= timeline.end_of(bar) for bar in row))
        marks.append({"row": next(row, 0), "at": at, "text": f"checkpoint after {duration(at)}"})
    deadline = timeline.deadline if timeline.deadline is not None and timeline.deadline <= timeline.end else None
    return {
        "kind": "gantt", "title": "Machines and states over time", "hidden": max(0, len(found) - MOST_ROWS),
        "lanes": ["state"] * first + [lane_name(row[0].kind, row[0].market) for row in rows],
        "stays": [
            {"row": 0, "begin": stay.begin, "end": stay.end, "colour": str(stay.state),
             "text": "\n".join(filter(None, [f"{stay.state} for {duration(stay.end - stay.begin)}", stay.text]))}
            for stay in timeline.stays[-MOST_BARS:]
        ],
        "bars": [
            {"row": n, "begin": bar.begin, "end": timeline.end_of(bar), "lost": bool(bar.lost),
             "open": bar.end is None, "colour": bar.market if bar.market in _MARKETS else "machine",
             "text": _tooltip(bar, timeline)}
            for n, row in enumerate(rows, first) for bar in row
        ],
        "checkpoints": _thinned(marks), "deadline": [] if deadline is None else [{"at": deadline, "text": "deadline"}],
    }  # fmt: skip


def chart(
    title: str, timeline: Timeline, series: Sequence[Series], levels: Sequence[Level] = (), unit: str = "", *,
    steps: bool = True,
) -> Row | None:  # fmt: skip
    """Return a chart of values over the time axis of `gantt`, or ``None`` without values.

    Parameters
    ----------
    title : str
    timeline : Timeline
    series : sequence of Series
    levels : sequence of Level
        Levels far above all values are omitted.
    unit : str
    steps : bool
        Whether to draw steps instead of joined points.
    """
    highest = max((value for one in series for _, value in one.points), default=None)
    if highest is None:
        return None
    limit = highest * _OUT_OF_SIGHT if highest > 0 else float("inf")
    return {
        "kind": "lines", "title": title, "unit": unit, "steps": steps, "names": [one.name for one in series],
        "points": [row for at, one in enumerate(series) for row in _points(one, f"c{at % 6}", unit)],
        "levels": [
            {"value": one.value, "begin": one.begin, "end": timeline.end if one.end is None else one.end,
             "name": "" if one.end is not None else f"{one.name}: {money(one.value, unit)}",
             "text": f"{one.name}: {money(one.value, unit)}"}
            for one in levels if one.value <= limit
        ],
    }  # fmt: skip


def lane_name(kind: str, market: str) -> str:
    """Return the label of a machine type on a market."""
    return kind + {"spot": " · spot", "on-demand": " · on demand"}.get(market, "")


def _points(line: Series, colour: str, unit: str) -> Iterator[Row]:
    points = _thinned(sorted(line.points))
    if points and line.until is not None:
        points = [*points, (line.until, points[-1][1])]
    for at, value in points:
        texts = {"after": duration(at), "shown": money(value, unit)}
        yield {"series": line.name, "colour": colour, "at": at, "value": value} | texts


def _tooltip(bar: Bar, timeline: Timeline) -> str:
    """Return the tooltip of a machine."""
    end, lines = timeline.end_of(bar), [f"{bar.name}: {lane_name(bar.kind, bar.market)}"]
    if bar.price is not None:
        lines.append(f"price {money(bar.price)} per hour" + ("" if bar.bid is None else f", bid {money(bar.bid)}"))
    elif bar.bid is not None:
        lines.append(f"bid {money(bar.bid)}")
    lines.append(f"from {duration(bar.begin)} for {duration(end - bar.begin)}" + (", running" * (bar.end is None)))
    if bar.cloud_s is not None:
        lines.append(f"{duration(bar.cloud_s)} simulated")
    if bar.lost:
        lines.append(f"lost: {bar.lost}")
    return "\n".join(lines)


def _thinned(points: list[Any]) -> list[Any]:
    step = -(-len(points) // _MOST_POINTS)
    return points if step <= 1 else [*points[::step], points[-1]]


def duration(seconds: float) -> str:
    """Format seconds in the two largest units."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.0005 else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for unit, name, small, below in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1.0, "s")):
        if whole >= unit:
            rest = int(whole % unit // small)
            return f"{int(whole // unit)} {name}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def moment(seconds: float | None) -> str:
    """Format seconds since 1970 as date and time (UTC)."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def money(amount: float, currency: str = "") -> str:
    """Format an amount with a currency."""
    shown = f"{amount:,.2f}" if amount >= 100 else f"{amount:.4g}"
    return f"{shown} {currency}".rstrip()
