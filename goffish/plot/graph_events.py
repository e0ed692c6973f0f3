"""Events of continuous queries on a live graph, as a page: the graph at each event, and what was matched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from goffish.errors import InputError
from goffish.graph.guards import expect
from goffish.partial import check_place, local_path, output_file
from goffish.plot.animation_files import safe, shape
from goffish.plot.canvas import Canvas
from goffish.plot.landscape import as_json, digest
from goffish.plot.layout import fit, place, separate
from goffish.plot.style import COLOURS, INK, NOTHING, count, new_figure, require_matplotlib, settings, shorten

MOST_VERTICES, MOST_EDGES, MOST_EVENTS = 1000, 5000, 5000
_SIZE, _STAGE, _FONT = (9.0, 6.4), (0.015, 0.015, 0.97, 0.97), 8.0
_LABELLED = 100
#: Vertices are placed anew when there are so many times as many.
_GROWTH = 1.5
#: Columns that are not of vertices.
_BESIDE = {
    "offset", "time", "status", "released", "initial", "late", "resolution", "reason", "event_id", "edges", "cluster",
    "parent", "into", "size", "hops", "degree", "rank", "score",
}  # fmt: skip
#: Columns that the text of an event does not show.
_HIDDEN = {"offset", "time", "status", "released", "initial", "late", "resolution", "event_id"}
_CLOSING = ("UNREACHABLE", "LEFT", "UNMATCHED", "CLEARED", "DISAPPEARED", "MERGED", "CLOSED")
_CHANGING = ("GROWN", "JOINED", "PARTED")


_EMPTY = (
    '<svg id="stage" viewBox="0 0 9 6" role="img" aria-label="graph"><g id="edges"></g><g id="vertices"></g>'
    '<g id="labels"></g></svg>'
)


class _Edge(NamedTuple):
    """An edge while it exists: positions of its ends, and seconds."""

    source: int
    target: int
    begin: float
    end: float | None
    id: Any


def graph_events(edges: pa.Table, events: Mapping[str, pa.Table], *, title: str = "Graph events") -> str:
    """Return a page with the events of continuous queries, and the graph at the time of each.

    The page has a list of the events and a time slider; the vertices and edges of an event are framed, and vertices
    have the color of a topic while they are in one of its answers. It is self-contained: its content security policy
    forbids all network access.

    Parameters
    ----------
    edges : pyarrow.Table
        Events of ``DETECT Motif((source)-[edge]->(target))``, which say when edges came and went.
    events : mapping of str to pyarrow.Table
        Events of the topics to be shown, from `LiveGraph.events`.
    title : str

    Returns
    -------
    str
        The HTML page.

    Raises
    ------
    InputError
        There are no edges, or more than 1,000 vertices, 5,000 edges or 5,000 events; or `edges` lacks a column.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> live = gf.stream.LiveGraph(lateness=0)
    >>> _ = live.submit("DETECT Motif((source)-[e]->(target)) AS lines; DETECT Component() AS groups")
    >>> _ = live.feed([{"t": 1, "op": "+e", "src": "ann", "dst": "bob"}])
    >>> plot.graph_events(live.events("lines"), {"groups": live.events("groups")}).startswith("<!DOCTYPE html>")
    True
    """
    expect(edges, pa.Table, "edges", "expected the events of a Motif with the variables source and target")
    for name in ("source", "target", "edges", "time", "status"):
        if name not in edges.column_names:
            raise InputError(f"edges: has no column {name}; submit DETECT Motif((source)-[edge]->(target))")
    published = sum(map(len, events.values()))
    for number, most, noun in ((published, MOST_EVENTS, "event"), (len(edges), MOST_EDGES, "edge")):
        if number > most:
            raise InputError(f"{count(number, noun)}: a page shows at most {most:,}; take a shorter range of time")
    data = events_data(edges, events)
    if not data.places:
        raise InputError("there are no edges, and nothing to be drawn")
    if len(data.places) > MOST_VERTICES:
        raise InputError(f"{count(len(data.places), 'vertex')}: a page shows at most {MOST_VERTICES:,}")
    return events_page(data, title)[0]


class PageData(NamedTuple):
    """What a page shows.

    Attributes
    ----------
    about : str
    topics : list of str
    values : dict
        Edges and events, for the script.
    stage : str
        The picture, as SVG.
    places : dict
        Positions of the vertices in it, by label.
    laid : int
        Number of vertices when all of them were last placed anew.
    """

    about: str
    topics: list[str]
    values: dict[str, Any]
    stage: str
    places: dict[Any, Any]
    laid: int = 0

    def document(self) -> dict[str, Any]:
        """Return what a page needs to show this instead."""
        return {"about": self.about, "topics": self.topics, "values": self.values, "stage": self.stage}


def events_data(
    edges: pa.Table, events: Mapping[str, pa.Table], before: PageData | None = None, *, most: int | None = None
) -> PageData:
    """Return what a page shows.

    Parameters
    ----------
    edges, events
        As of `graph_events`.
    before : PageData, optional
        Vertices stay where they were, until there are half as many more.
    most : int, optional
        Events that are shown, the last ones; of larger graphs, only what is near them is shown.

    Returns
    -------
    PageData
    """
    rows = [(topic, row) for topic, table in events.items() for row in table.to_pylist()]
    rows.sort(key=lambda one: one[1]["released"])
    numbers, lines = _edges(edges)
    if most is not None:
        rows = rows[-most:]
        if len(numbers) > MOST_VERTICES or len(lines) > MOST_EDGES:
            numbers, lines = _near(rows, numbers, lines)
    topics = list(events)
    values: dict[str, Any] = {
        "nothing": NOTHING, "colours": [COLOURS[at % len(COLOURS)] for at in range(len(topics))],
        "edges": [one[:4] for one in lines],
        "events": [_event(topics.index(topic), topic, row, numbers, lines) for topic, row in rows],
    }  # fmt: skip
    about = f"{count(len(numbers), 'vertex')}, {count(len(rows), 'event')}"
    if not numbers or len(numbers) > MOST_VERTICES:
        return PageData(about, topics, values, _EMPTY, dict.fromkeys(numbers))
    stays = before is not None and len(numbers) <= _GROWTH * before.laid
    stage, found = _stage(numbers, lines, before.places if before is not None and stays else {})
    return PageData(about, topics, values, stage, found, before.laid if before is not None and stays else len(numbers))


def events_page(data: PageData, title: str, *, version: str | None = None) -> tuple[str, str]:
    """Return a page, and its content security policy.

    Parameters
    ----------
    data : PageData
    title : str
    version : str, optional
        Of a live page, which asks its server for later versions.

    Returns
    -------
    page, policy : str
    """
    folder = resources.files("goffish.plot")
    style = "".join(
        (folder / part / "page.css").read_text(encoding="utf-8") for part in ("animation_page", "events_page")
    )
    script = (folder / "events_page" / "page.js").read_text(encoding="utf-8").rstrip("\n")
    found = data.values["events"]
    key = [
        f'<li><svg viewBox="-8 -8 16 16" aria-hidden="true"><path d="{shape("o", 6.0)}" fill="{colour}"/></svg>'
        f"<span>{safe(topic)}</span></li>"
        for topic, colour in zip(data.topics, data.values["colours"], strict=True)
    ]
    listed = [f'<li><button type="button">{safe(one["text"])}</button></li>' for one in found]
    live: dict[str, Any] = {} if version is None else {"version": version}
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src '{digest(style)}'; "
        f"script-src '{digest(script)}'" + ("" if version is None else "; connect-src 'self'")
    )
    page = (folder / "events_page" / "page.html").read_text(encoding="utf-8")
    text = Template(page).substitute(
        title=safe(shorten(title, 60)), about=data.about, style=style, script=script, policy=policy, stage=data.stage,
        shape=shape("o", 6.0), key="\n".join(key), events="\n".join(listed), last=str(len(found)),
        status=safe(found[-1]["text"]) if found else "no events", data=as_json(data.values | live),
    )  # fmt: skip
    return text, policy


def require_page() -> None:
    """Raise an error if what draws pages is missing.

    Raises
    ------
    InputError
    """
    require_matplotlib()


def check_graph_events(path: str | Path) -> None:
    """Check that `write_graph_events` can write to a path, before any work is done.

    Parameters
    ----------
    path : str or path-like
        Local file ending in ``.html`` or ``.htm``.

    Raises
    ------
    InputError
        If the suffix is unknown, the folder is missing or not writable, or matplotlib is missing.

    Examples
    --------
    >>> from goffish import plot
    >>> plot.check_graph_events("events.html")
    """
    check_place(path, (".html", ".htm"))
    require_matplotlib()


def write_graph_events(
    edges: pa.Table, events: Mapping[str, pa.Table], path: str | Path, *, title: str = "Graph events"
) -> Path:
    """Write the page that `graph_events` returns.

    Parameters
    ----------
    edges, events, title
        As of `graph_events`.
    path : str or path-like
        Local file ending in ``.html`` or ``.htm``.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        As in `graph_events`, or if the path cannot be written.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish import plot
    >>> live = gf.stream.LiveGraph(lateness=0)
    >>> _ = live.submit("DETECT Motif((source)-[e]->(target)) AS lines; DETECT Component() AS groups")
    >>> _ = live.feed([{"t": 1, "op": "+e", "src": "ann", "dst": "bob"}])
    >>> plot.write_graph_events(live.events("lines"), {"groups": live.events("groups")}, "events.html").name
    'events.html'
    """
    check_graph_events(path)
    body = graph_events(edges, events, title=title).encode()
    target = local_path(path)
    with output_file(target) as temporary:
        temporary.write_bytes(body)
    return target


def _near(
    rows: list[tuple[str, dict[str, Any]]], numbers: dict[Any, int], edges: list[_Edge]
) -> tuple[dict[Any, int], list[_Edge]]:
    """Return the vertices of the last events and the last edges between them, as many as a page shows."""
    named: set[int] = set()
    for _, row in reversed(rows):
        found = {numbers[one] for one in _labels(row) if one in numbers}
        if len(named | found) > MOST_VERTICES:
            break
        named |= found
    kept = [one for one in edges if one.source in named and one.target in named][-MOST_EDGES:]
    order = sorted(named)
    places = {vertex: at for at, vertex in enumerate(order)}
    labels = list(numbers)
    moved = [one._replace(source=places[one.source], target=places[one.target]) for one in kept]
    return {labels[vertex]: at for at, vertex in enumerate(order)}, moved


def _labels(row: Mapping[str, Any]) -> list[Any]:
    """Return what the columns of an event name, beside edges."""
    found: list[Any] = []
    for name, value in row.items():
        if name not in _BESIDE and value is not None:
            found += value if isinstance(value, list) else [value]
    return [one for one in found if _is_key(one)]


def _edges(table: pa.Table) -> tuple[dict[Any, int], list[_Edge]]:
    """Return positions of the vertices, and the edges."""
    numbers: dict[Any, int] = {}
    begun: dict[Any, _Edge] = {}
    found = []
    for row in table.to_pylist():
        if row["status"] not in ("MATCHED", "UNMATCHED"):
            continue
        ends = [numbers.setdefault(row[name], len(numbers)) for name in ("source", "target")]
        [edge] = row["edges"]
        if row["status"] == "MATCHED":
            begun[edge] = _Edge(ends[0], ends[1], _seconds(row["time"]), None, edge)
        elif edge in begun:
            found.append(begun.pop(edge)._replace(end=_seconds(row["time"])))
    return numbers, sorted([*found, *begun.values()], key=lambda one: (one.begin, one.source, one.target))


def _seconds(time: datetime) -> float:
    return time.timestamp()


def _event(at: int, topic: str, row: dict[str, Any], numbers: dict[Any, int], edges: list[_Edge]) -> dict[str, Any]:
    """Return an event for the page: its vertices are those that its columns name."""
    status, time = row["status"], _seconds(row["time"])
    named = set(row.get("edges") or [])
    if "id" in row:
        named.add(row["id"])
    matched = [n for n, one in enumerate(edges) if one.id in named and one.begin <= time]
    matched = [n for n in matched if edges[n].end is None or time < edges[n].end]  # type: ignore[operator]
    vertices = [numbers[one] for one in _labels(row) if one in numbers]
    vertices += [end for n in matched for end in edges[n][:2]]
    key = [
        topic,
        *(f"{row[name]}" for name in row if name not in _BESIDE - {"cluster", "edges"} and row[name] is not None),
    ]
    if row.get("cluster") is not None:
        key = [topic, str(row["cluster"])]
    shown = [f"{name} {_text(value)}" for name, value in row.items() if name not in _HIDDEN and value is not None]
    return {
        "time": time, "topic": at, "text": f"{row['time']:%Y-%m-%d %H:%M:%S} {topic} {status} {', '.join(shown)}",
        "vertices": sorted(set(vertices)), "edges": matched, "key": "\n".join(key),
        "opens": status not in (*_CLOSING, *_CHANGING, "EVOLVED"), "closes": status in _CLOSING,
    }  # fmt: skip


def _is_key(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ", ".join(map(str, value[:12])) + (f" and {len(value) - 12} more" if len(value) > 12 else "") + "}"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _placed(numbers: Mapping[Any, int], ends: Any, known: Mapping[Any, Any], size: tuple[float, float]) -> Any:
    """Return positions in a box; vertices that were there before stay, and new ones are near their neighbors."""
    width, height = size
    old = {vertex: known[label] for label, vertex in numbers.items() if label in known}
    if not old:
        return fit(place(len(numbers), ends[:, 0], ends[:, 1], aspect=width / height), width, height)
    rng = np.random.default_rng(len(numbers))
    places = rng.uniform((0, 0), (width, height), (len(numbers), 2))
    for vertex, at in old.items():
        places[vertex] = at
    placed = np.zeros(len(numbers), bool)
    placed[list(old)] = True
    for source, target in ends.tolist():
        for new, near in ((source, target), (target, source)):
            if placed[near] and not placed[new]:
                places[new] = np.clip(places[near] + rng.normal(0, 0.06 * width, 2), 0, size)
                placed[new] = True
    return places


def _stage(numbers: Mapping[Any, int], edges: Iterable[_Edge], known: Mapping[Any, Any]) -> tuple[str, dict[Any, Any]]:
    """Return the picture, which is of all edges that there were and their vertices, and the positions of these."""
    ends = np.array([one[:2] for one in edges], np.int64).reshape(-1, 2)
    with settings():
        canvas = Canvas(new_figure(*_SIZE), _STAGE)
        radius = float(np.clip(0.16 * np.sqrt(canvas.width * canvas.height / len(numbers)), 2.5, 11.0))
        margin = radius + 6
        box = canvas.width - 2 * margin, canvas.height - 2 * margin
        places = _placed(numbers, ends, known, box) + margin
        places = separate(places, np.full(len(places), radius), canvas.width, canvas.height, 1.5)
        found = dict(zip(numbers, places - margin, strict=True))
        texts: list[tuple[int, Any]] = []
        if len(numbers) <= _LABELLED:
            for at in places:
                canvas.occupy_circle(at, radius)
            for vertex, (at, label) in enumerate(zip(places, numbers, strict=True)):
                drawn = len(canvas.axes.texts)
                if not canvas.text_inside(shorten(str(label), 24), at, radius, _FONT, INK):
                    canvas.text_beside(shorten(str(label), 24), at, radius, _FONT)
                texts += [(vertex, text) for text in canvas.axes.texts[drawn:]]
    places[:, 1] = canvas.height - places[:, 1]
    way = places[ends[:, 1]] - places[ends[:, 0]]
    length = np.maximum(np.hypot(way[:, 0], way[:, 1]), 1e-9)[:, None]
    tips = places[ends[:, 1]] - way * np.minimum((radius + 1) / length, 0.9)
    lines = [
        f'<svg id="stage" viewBox="0 0 {canvas.width:g} {canvas.height:g}" role="img" aria-label="graph">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0,0L8,4L0,8z"/></marker></defs>\n<g id="edges">',
    ]
    for (a, b), (c, d) in zip(places[ends[:, 0]].tolist(), tips.tolist(), strict=True):
        lines.append(f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" marker-end="url(#head)"/>')
    lines.append('</g>\n<g id="vertices">')
    for label, (x, y) in zip(numbers, places.tolist(), strict=True):
        lines.append(
            f'<path transform="translate({x:.1f},{y:.1f})" d="{shape("o", radius)}" fill="{NOTHING}">'
            f"<title>{safe(str(label))}</title></path>"
        )
    lines.append(f'</g>\n<g id="labels" font-size="{_FONT:g}">')
    for vertex, text in texts:
        x, y = map(float, text.get_position())
        lines.append(
            f'<text data-vertex="{vertex}" x="{x:.1f}" y="{canvas.height - y:.1f}">{safe(text.get_text())}</text>'
        )
    return "\n".join([*lines, "</g>\n</svg>"]), found
