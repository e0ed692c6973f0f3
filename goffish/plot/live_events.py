"""The page of events of a live graph while it runs, on a loopback address."""

from __future__ import annotations

import json
import threading
from typing import Any

from goffish.plot.graph_events import MOST_EVENTS, PageData, events_data, events_page, require_page
from goffish.streaming.graphs.live import LiveGraph
from goffish.streaming.live.page import Answer, LoopbackServer

#: Topic of the edges.
LINES = "edges_of_the_page"
#: Events of a topic, and of the edges, that are read at most.
_READ, _READ_LINES = 1000, 20_000


class EventsPage:
    """HTTP server of the page of events of a live graph. A context manager.

    Parameters
    ----------
    live : LiveGraph
        Gets a query for its edges, if it has none yet.
    address : str
        Loopback ``HOST:PORT``; port 0: any free port.
    title : str

    Attributes
    ----------
    url : str

    Raises
    ------
    InputError
        The address is not accepted, or an extra is missing.
    JobError
        The address cannot be bound.
    """

    def __init__(self, live: LiveGraph, address: str, *, title: str = "Graph events") -> None:
        require_page()
        self._live, self._title = live, title
        self._lock = threading.Lock()
        self._made: tuple[str, PageData] | None = None
        self._server = LoopbackServer(f"--events-page {address}", address)
        self.url = self._server.url
        if LINES not in live.topics:
            live.submit(f"DETECT Motif((source)-[edge]->(target)) AS {LINES}")
        self._server.start(self._answer, "/, /version and /data")

    def __enter__(self) -> EventsPage:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()

    def _answer(self, path: str) -> Answer | None:
        if path == "/version":
            return Answer("application/json", json.dumps({"version": self._version()}).encode())
        if path in ("/", "/data"):
            with self._lock:
                version, data = self._data()
            if path == "/data":
                return Answer("application/json", json.dumps(data.document() | {"version": version}).encode())
            page, policy = events_page(data, self._title, version=version)
            return Answer("text/html; charset=utf-8", page.encode(), f"{policy}; frame-ancestors 'none'")
        return None

    def _version(self) -> str:
        """Return a text that is another one when there are other events."""
        return json.dumps(self._live.ends)

    def _data(self) -> tuple[str, PageData]:
        version = self._version()
        if self._made is None or self._made[0] != version:
            before = None if self._made is None else self._made[1]
            topics = [topic for topic in self._live.topics if topic != LINES]
            events = {topic: self._last(topic, min(_READ, MOST_EVENTS)) for topic in topics}
            self._made = version, events_data(self._last(LINES, _READ_LINES), events, before, most=_READ)
        return self._made

    def _last(self, topic: str, most: int) -> Any:
        with self._live.lock:
            end = self._live.ends[topic]
            return self._live.events(topic, max(self._live.first_event(topic), end - most))
