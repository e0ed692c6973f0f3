"""The page of events of a live graph while it runs."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.plot.live_events import EventsPage
from tests.algorithms.landscape.chromium import NAMES, Browser, executable

QUERIES = "DETECT Component(min_size: 3) AS groups; DETECT Match(edge:{type = call}) AS calls"


def edge(time: float, source: str, target: str, **attributes: str) -> dict[str, Any]:
    return {"t": time, "op": "+e", "src": source, "dst": target, "attrs": attributes}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[gf.stream.LiveGraph]:
    with gf.stream.LiveGraph(lateness=0, state=tmp_path / "state") as made:
        made.submit(QUERIES)
        yield made


def get(page: EventsPage, path: str, host: str | None = None) -> tuple[int, Any, str]:
    where = urlsplit(page.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    is_json = answer.headers["content-type"] == "application/json"
    return answer.status, json.loads(text) if is_json else text, answer.headers["content-security-policy"]


def test_what_the_server_answers(live: gf.stream.LiveGraph) -> None:
    """Breaks when the page has other events than the live graph, or pages of other sites can read it."""
    with EventsPage(live, "127.0.0.1:0", title="<watch>") as page:
        status, text, policy = get(page, "/")
        assert status == 200 and "&lt;watch&gt;" in text and "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy and "connect-src 'self'" in policy
        before = get(page, "/version")[1]
        live.feed([edge(1, "a", "b"), edge(2, "b", "c", type="call")])
        assert get(page, "/version")[1] != before
        found = get(page, "/data")[1]
        assert found["topics"] == ["groups", "calls"] and found["about"] == "3 vertices, 2 events"
        assert [one["vertices"] for one in found["values"]["events"]] == [[0, 1, 2], [1, 2]]
        live.feed([edge(3, "c", "d")])
        again = get(page, "/data")[1]
        where = [one["stage"].count("translate(") for one in (found, again)]
        assert where == [3, 4]
        assert get(page, "/", "example.org")[0] == 403 and get(page, "/nope")[0] == 404
    with pytest.raises(InputError, match=r"--events-page 0.0.0.0:80: accepted is a loopback HOST:PORT"):
        EventsPage(live, "0.0.0.0:80")


def test_a_graph_that_is_too_large_for_a_page(live: gf.stream.LiveGraph) -> None:
    """Breaks when a large graph is drawn as a whole, or its last events are not shown."""
    live.feed([edge(n, f"v{n}", f"w{n}") for n in range(1500)])
    live.feed([edge(2000, "v7", "w8", type="call"), edge(2001, "a", "b", type="call")])
    with EventsPage(live, "127.0.0.1:0") as page:
        found = get(page, "/data")[1]
    assert found["values"]["events"][-1]["text"].endswith("calls MATCHED id a>b:call")
    assert 0 < found["stage"].count("translate(") <= 1000


@pytest.mark.skipif(executable() is None, reason=f"no browser: none of {', '.join(NAMES)} is on the path")
def test_the_page_follows(live: gf.stream.LiveGraph, tmp_path: Path) -> None:
    """Breaks when new events do not appear, or the slider leaves what the user looks at."""
    live.feed([edge(1, "a", "b"), edge(2, "b", "c", type="call")])
    browser = Browser(tmp_path / "profile")
    try:
        with EventsPage(live, "127.0.0.1:0") as page:
            browser.open_url(page.url)
            shown = "document.querySelectorAll('#events button').length"
            number = "Number(document.getElementById('number').textContent)"
            drawn = "document.querySelectorAll('#vertices path').length"
            assert [browser.evaluate(one) for one in (shown, number, drawn)] == [2, 2, 3]
            live.feed([edge(3, "c", "d", type="call"), edge(4, "d", "e", type="call")])
            browser.wait_for(f"{shown} === 4")
            assert [browser.evaluate(one) for one in (number, drawn)] == [4, 5]
            browser.evaluate("document.querySelectorAll('#events button')[1].click()")
            assert browser.evaluate(number) == 2
            live.submit("DETECT Match(vertex:{id = z}) AS last")
            live.feed([edge(5, "e", "z")])
            browser.wait_for(f"{shown} === 5")
            assert browser.evaluate(number) == 2
            keys = "Array.from(document.querySelectorAll('#key span')).map(one => one.textContent)"
            assert browser.evaluate(keys) == ["groups", "calls", "last"]
            browser.screenshot(tmp_path / "page.png")
            assert not browser.complaints
        browser.wait_for("document.getElementById('about').classList.contains('away')")
    finally:
        browser.close()
