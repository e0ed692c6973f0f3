"""Pages of events on live graphs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish import plot
from goffish.errors import InputError
from tests.algorithms.landscape.chromium import NAMES, Browser, executable

#: Labels that would end the script or an attribute of a page.
HOSTILE = '</script><img src=x onerror="alert(1)">'


def followed(*labels: str) -> gf.stream.LiveGraph:
    """Three vertices in a row, of which the last edge comes and goes."""
    a, b, c = labels
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("""
        DETECT Motif((source)-[edge]->(target)) AS lines;
        DETECT Component(min_size: 3) AS groups;
        DETECT Match(edge:{type = call}) AS calls
    """)
    live.feed([
        {"t": 1, "op": "+e", "id": "e", "src": a, "dst": b},
        {"t": 2, "op": "+e", "id": "f", "src": b, "dst": c, "attrs": {"type": "call"}},
        {"t": 3, "op": "-e", "id": "f"},
    ])  # fmt: skip
    return live


def page_of(live: gf.stream.LiveGraph) -> str:
    return plot.graph_events(live.events("lines"), {t: live.events(t) for t in ("groups", "calls")}, title=HOSTILE)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


@pytest.mark.slow
def test_a_page() -> None:
    """Breaks when an event has other vertices or edges, or a label becomes markup."""
    page = page_of(followed("a", "b", HOSTILE))
    data = data_of(page)
    assert "<img" not in page and page == page_of(followed("a", "b", HOSTILE))
    assert data["edges"] == [[0, 1, 1.0, None], [1, 2, 2.0, 3.0]]
    rows = [(one["time"], one["topic"], one["vertices"], one["edges"], one["opens"]) for one in data["events"]]
    assert rows == [
        (2.0, 0, [0, 1, 2], [], True), (2.0, 1, [1, 2], [1], True), (3.0, 0, [], [], False), (3.0, 1, [], [], False),
    ]  # fmt: skip
    assert data["events"][0]["key"] == data["events"][2]["key"]


def test_what_is_not_drawn(tmp_path: Path) -> None:
    """Breaks when a page that would be too large is drawn, or a file of another kind is written."""
    live = followed("a", "b", "c")
    events = {"groups": live.events("groups")}
    with pytest.raises(InputError, match="edges: has no column source; submit DETECT Motif"):
        plot.graph_events(live.events("groups"), events)
    with pytest.raises(InputError, match="no edges"):
        plot.graph_events(live.events("lines").slice(0, 0), events)
    live.feed([{"t": 10 + n, "op": "+e", "src": "a", "dst": f"v{n}"} for n in range(1001)])
    with pytest.raises(InputError, match=r"1,004 vertices: a page shows at most 1,000"):
        plot.graph_events(live.events("lines"), events)
    with pytest.raises(InputError, match=r"\.html"):
        plot.write_graph_events(live.events("lines"), events, tmp_path / "page.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(executable() is None, reason=f"no browser: none of {', '.join(NAMES)} is on the path")
def test_the_slider(tmp_path: Path) -> None:
    """Breaks when the page shows edges or answers of another time, or its script fails."""
    live = followed("a", "b", "c")
    events = {topic: live.events(topic) for topic in ("groups", "calls")}
    path = plot.write_graph_events(live.events("lines"), events, tmp_path / "page.html")
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(path)
        edges = "Array.from(document.querySelectorAll('#edges line')).map(one => one.getAttribute('class') ?? '')"
        fills = "Array.from(document.querySelectorAll('#vertices path')).map(one => one.getAttribute('fill'))"
        assert browser.evaluate(edges) == ["", "absent"] and len(set(browser.evaluate(fills))) == 1
        browser.evaluate("document.querySelectorAll('#events button')[1].click()")
        assert browser.evaluate(edges) == ["", "matched"]
        first, second, third = browser.evaluate(fills)
        assert first != second == third
        assert browser.evaluate("document.getElementById('status').textContent").endswith("calls MATCHED id f")
        assert not browser.complaints and len(browser.requests) == 1
    finally:
        browser.close()
