"""Pictures of a timeline as SVG; every text in them is escaped.

Colours come from the style sheet by class, so that light and dark differ there only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from goffish.services.web.timeline import Bar, Points, Timeline, lanes
from goffish.services.web.words import duration, money

_WIDTH, _LEFT, _RIGHT, _TOP = 1000.0, 196.0, 24.0, 10.0
_ROW, _BAR, _AXIS, _HEIGHT = 26.0, 16.0, 26.0, 150.0
#: Rows, machines and points of a picture; more would not be told apart.
MOST_ROWS, MOST_BARS, _MOST_POINTS = 60, 1000, 1000
_STEPS = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
    604800, 2592000,
)  # fmt: skip
_COLOURS = 6
#: A bid or budget so many times higher than what is drawn would flatten it.
_OUT_OF_SIGHT = 12.0


@dataclass(frozen=True)
class Series:
    """A line of a chart: values that hold until the next one (steps), or that are joined."""

    name: str
    points: Points
    steps: bool = True
    #: Until when the last value of a line of steps holds; default: to the end.
    until: float | None = None


@dataclass(frozen=True)
class Level:
    """A dashed line across a chart, or a part of it."""

    name: str
    value: float
    begin: float = 0.0
    end: float | None = None


def gantt(timeline: Timeline, told_by: str = "") -> Markup:
    """Machines and states over time; the newest machines, if there are very many.

    Parameters
    ----------
    timeline : Timeline
    told_by : str, optional
        Id of the element that says where the same stands in words.

    Returns
    -------
    Markup
        An ``<svg>``.
    """
    across = _scale(timeline.end)
    found = lanes(timeline.bars[-MOST_BARS:])
    rows, hidden = found[:MOST_ROWS], len(found) - MOST_ROWS
    states = 1 if timeline.stays else 0
    bottom = _TOP + _ROW * (len(rows) + states)
    parts = [_grid(timeline.end, across, bottom)]
    if states:
        parts.append(_label("state", _TOP))
        parts.extend(
            _rect("stay " + str(stay.state), across(stay.begin), across(stay.end), _TOP, _title(
                f"{stay.state} for {duration(stay.end - stay.begin)}", stay.text))
            for stay in timeline.stays[-MOST_BARS:]
        )  # fmt: skip
    for at, row in enumerate(rows):
        top = _TOP + _ROW * (at + states)
        parts.append(_label(lane_name(row[0].kind, row[0].market), top))
        parts.extend(_machine(bar, timeline, across, top) for bar in row)
        parts.extend(_loss(bar, timeline, across, top) for bar in row if bar.lost)
    parts.append(_ticks(timeline, rows, across, states))
    if timeline.deadline is not None and timeline.deadline <= timeline.end:
        x = across(timeline.deadline)
        parts.append(_part(
            '<g><title>deadline</title><line class="deadline" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/></g>',
            x=x, top=_TOP - 4, bottom=bottom,
        ))  # fmt: skip
    if hidden > 0:
        parts.append(_part('<text class="remark" x="0" y="{y}">{n} more rows</text>', y=bottom + 18, n=str(hidden)))
    return _picture("Machines and states over time", bottom + _AXIS, parts, told_by)


def chart(
    title: str, end: float, series: Sequence[Series], levels: Sequence[Level] = (), unit: str = ""
) -> Markup | None:
    """Values over the same time as `gantt`; ``None`` if there are none.

    Parameters
    ----------
    title : str
    end : float
        Of the axis.
    series : sequence of Series
    levels : sequence of Level
        Those far above everything else are left out.
    unit : str
    """
    highest = max((value for one in series for _, value in one.points), default=None)
    if highest is None:
        return None
    limit = highest * _OUT_OF_SIGHT if highest > 0 else float("inf")
    seen = [one for one in levels if one.value <= limit]
    top_value = max([highest, *(one.value for one in seen)]) * 1.08 or 1.0
    across, bottom = _scale(end), _TOP + _HEIGHT

    def up(value: float) -> float:
        return bottom - _HEIGHT * max(0.0, value) / top_value

    parts = [_grid(end, across, bottom), _values(top_value, up, unit)]
    for one in seen:
        name = f"{one.name}: {money(one.value, unit)}"
        parts.append(_part(
            '<g><title>{name}</title><line class="level" x1="{a}" x2="{b}" y1="{y}" y2="{y}"/></g>',
            name=name, a=across(one.begin), b=across(end if one.end is None else one.end), y=up(one.value),
        ))  # fmt: skip
        if one.end is None:
            parts.append(_part('<text class="level-name" x="{x}" y="{y}">{name}</text>', x=_WIDTH - _RIGHT - 4,
                               y=up(one.value) - 4, name=name))  # fmt: skip
    for at, line in enumerate(series):
        parts.append(_line(line, at % _COLOURS, across, up, end, unit))
    return _picture(title, bottom + _AXIS, parts)


def lane_name(kind: str, market: str) -> str:
    """A class of machines on a market."""
    return kind + {"spot": " · spot", "on-demand": " · on demand"}.get(market, "")


def _told(bar: Bar, timeline: Timeline) -> Markup:
    """What is shown of a machine under the pointer."""
    end, lines = timeline.end_of(bar), [f"{bar.name}: {lane_name(bar.kind, bar.market)}"]
    if bar.price is not None:
        lines.append(f"price {money(bar.price)} per hour" + ("" if bar.bid is None else f", bid {money(bar.bid)}"))
    elif bar.bid is not None:
        lines.append(f"bid {money(bar.bid)}")
    lines.append(f"from {duration(bar.begin)} for {duration(end - bar.begin)}" + (", still there" * (bar.end is None)))
    if bar.cloud_s is not None:
        lines.append(f"{duration(bar.cloud_s)} of the cloud")
    if bar.lost:
        lines.append(f"lost: {bar.lost}")
    return _title(*lines)


def _machine(bar: Bar, timeline: Timeline, across: Callable[[float], float], top: float) -> Markup:
    kinds = f"bar {bar.market or 'other'}" + (" open" if bar.end is None else "") + (" lost" if bar.lost else "")
    return _rect(kinds, across(bar.begin), across(timeline.end_of(bar)), top, _told(bar, timeline))


def _loss(bar: Bar, timeline: Timeline, across: Callable[[float], float], top: float) -> Markup:
    x, y = across(timeline.end_of(bar)), top + _ROW / 2
    return _part(
        '<g class="loss">{title}<circle cx="{x}" cy="{y}" r="6"/><path d="M{a} {c}L{b} {d}M{b} {c}L{a} {d}"/></g>',
        title=_told(bar, timeline), x=x, y=y, a=x - 2.6, b=x + 2.6, c=y - 2.6, d=y + 2.6,
    )  # fmt: skip


def _ticks(timeline: Timeline, rows: list[list[Bar]], across: Callable[[float], float], states: int) -> Markup:
    """Checkpoints, on the machine that wrote them; those that fall on one spot once."""
    made, seen = [], set()
    for at in timeline.checkpoints:
        row = next(
            (
                number + states
                for number, row in enumerate(rows)
                if any(bar.begin <= at <= timeline.end_of(bar) for bar in row)
            ),
            0,
        )
        x = round(across(at), 0)
        if (x, row) in seen:
            continue
        seen.add((x, row))
        top = _TOP + _ROW * row + (_ROW - _BAR) / 2
        made.append(_part(
            '<g><title>checkpoint after {t}</title><line class="checkpoint" x1="{x}" x2="{x}" y1="{a}" y2="{b}"/></g>',
            t=duration(at), x=x, a=top + 2, b=top + _BAR - 2,
        ))  # fmt: skip
    return Markup("").join(made)


def _scale(end: float) -> Callable[[float], float]:
    width = _WIDTH - _LEFT - _RIGHT

    def across(at: float) -> float:
        return _LEFT + width * min(1.0, max(0.0, at / end))

    return across


def _grid(end: float, across: Callable[[float], float], bottom: float) -> Markup:
    """Upright lines at round times, and the times below."""
    step = next((step for step in _STEPS if end / step <= 8), end)
    made, at = [], 0.0
    while at <= end * 1.0001:
        made.append(_part(
            '<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'
            '<text class="tick" x="{x}" y="{y}">{t}</text>',
            x=across(at), top=_TOP - 4, bottom=bottom, y=bottom + 17, t=duration(at) if at else "0",
        ))  # fmt: skip
        at += step
    return Markup("").join(made)


def _values(top: float, up: Callable[[float], float], unit: str) -> Markup:
    """Level lines at round values, and the values beside them; none where all is next to nothing."""
    if not 1e-12 < top < 1e300:
        return Markup("")
    power = 10.0 ** _floor_log(top / 3)
    step = next(power * factor for factor in (1, 2, 5, 10) if top / (power * factor) <= 4.5)
    made, at = [], 0
    while at * step <= top:
        value = at * step
        made.append(_part(
            '<line class="grid" x1="{a}" x2="{b}" y1="{y}" y2="{y}"/>'
            '<text class="value" x="{x}" y="{t}">{value}</text>',
            a=_LEFT, b=_WIDTH - _RIGHT, y=up(value), x=_LEFT - 8, t=up(value) + 4,
            value=money(value, unit) if at else "0",
        ))  # fmt: skip
        at += 1
    return Markup("").join(made)


def _floor_log(value: float) -> int:
    import math

    return math.floor(math.log10(value))


def _line(
    line: Series, colour: int, across: Callable[[float], float], up: Callable[[float], float], end: float, unit: str
) -> Markup:
    points = _thinned(sorted(line.points))
    path, before = [], None
    for at, value in points:
        if before is None:
            path.append(f"M{across(at):.1f} {up(value):.1f}")
        else:
            path.append((f"H{across(at):.1f}" if line.steps else "") + f"L{across(at):.1f} {up(value):.1f}")
        before = value
    if line.steps and points:
        path.append(f"H{across(end if line.until is None else line.until):.1f}")
    made = _part(
        '<path class="line c{c}" d="{d}"><title>{name}</title></path>', c=str(colour), d=" ".join(path), name=line.name
    )
    if len(points) <= 60:
        for at, value in points:
            made += _part(
                '<circle class="dot c{c}" cx="{x}" cy="{y}" r="3"><title>{t}</title></circle>', c=str(colour),
                x=across(at), y=up(value), t=f"{line.name}: {money(value, unit)} after {duration(at)}",
            )  # fmt: skip
    return made


def _thinned(points: Points) -> Points:
    step = -(-len(points) // _MOST_POINTS)
    return points if step <= 1 else [*points[::step], points[-1]]


def _label(text: str, top: float) -> Markup:
    shown = text if len(text) <= 30 else f"{text[:29]}…"
    return _part('<text class="lane" x="0" y="{y}">{shown}<title>{text}</title></text>', y=top + _ROW / 2 + 4,
                 shown=shown, text=text)  # fmt: skip


def _rect(kinds: str, begin: float, end: float, top: float, title: Markup) -> Markup:
    return _part(
        '<rect class="{kinds}" x="{x}" y="{y}" width="{w}" height="{h}" rx="3">{title}</rect>', kinds=kinds, x=begin,
        y=top + (_ROW - _BAR) / 2, w=max(1.5, end - begin), h=_BAR, title=title,
    )  # fmt: skip


def _title(*lines: str) -> Markup:
    return _part("<title>{text}</title>", text="\n".join(line for line in lines if line))


def _picture(title: str, height: float, parts: Sequence[Markup], told_by: str = "") -> Markup:
    described = _part(' aria-describedby="{by}"', by=told_by) if told_by else ""
    return _part(
        '<svg class="chart" role="img" aria-label="{title}"{described} viewBox="0 0 {w} {h}">{parts}</svg>',
        title=title, described=described, w=_WIDTH, h=height, parts=Markup("").join(parts),
    )  # fmt: skip


def _part(form: str, **given: str | float) -> Markup:
    """Markup with texts escaped, and numbers as short as they can be."""
    shown = {name: f"{one:.1f}" if isinstance(one, float) else one for name, one in given.items()}
    return Markup(form).format(**shown)
