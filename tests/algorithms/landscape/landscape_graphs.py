"""Graphs of the landscape's tests, and what they need to know of any page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import networkx as nx
import numpy as np

import goffish as gf
from goffish.graph import Graph

HOSTILE = ("</script><img src=x onerror=alert(1)>", "<!--<script>", "&amp;\"'`", "a\u2028b\u2029c", "${x} {{y}} $data")


def karate() -> Graph:
    return gf.from_networkx(nx.karate_club_graph()).unweighted()


def cliques(count: int, size: int) -> Graph:
    """Cliques of equal size without an edge between them."""
    pairs = np.array([(a, b) for a in range(size) for b in range(a)]).reshape(-1, 2)
    edges = (np.arange(count)[:, None, None] * size + pairs).reshape(-1, 2)
    return gf.from_edges(edges[:, 0], edges[:, 1], labels=np.arange(count * size))


class Parsed(HTMLParser):
    """What a browser would find in a page: elements, texts of scripts, attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: dict[str, str] = {}
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._inside.append(tag if dict(attrs).get("id") != "data" else "data")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside[-1]] = self.texts.get(self._inside[-1], "") + data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts["data"])
        return found
