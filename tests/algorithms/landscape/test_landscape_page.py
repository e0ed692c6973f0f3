"""The page: whole circles beside each other, harmless whatever the labels are, the same every time, never large."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.landscape.levels import CommunityLandscape
from goffish.errors import InputError
from goffish.plot.landscape import page, write_page
from goffish.plot.landscape_tree import MOST_CHILDREN, MOST_NODES, drawn_tree, packed
from tests.algorithms.landscape.landscape_graphs import HOSTILE, Parsed, cliques, karate
from tests.cases import Case, cases


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=40))
def test_packed_circles(radii: list[float]) -> None:
    falling = np.sort(np.array(radii))[::-1]
    x, y, r = packed(falling).T
    assert np.allclose(r / r[0], falling / falling[0]), "not to scale"
    assert np.all(np.hypot(x, y) + r <= 1 + 1e-6), "outside"
    apart = np.hypot(x[:, None] - x, y[:, None] - y) - (r[:, None] + r)
    np.fill_diagonal(apart, 0.0)
    assert apart.min() >= -1e-6, "circles overlap"


def test_packed_closely() -> None:
    """Seven equal circles fit into one of radius 3; of 100 the best packing known covers 0.81."""
    assert packed(np.ones(7))[0, 2] == pytest.approx(1 / 3, rel=0.01)
    assert 100 * packed(np.ones(100))[0, 2] ** 2 > 0.7


def check_tree(found: CommunityLandscape) -> None:
    nodes = drawn_tree(found)
    children: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        assert node.parent < at
        children.setdefault(node.parent, []).append(at)
    assert len(nodes) <= MOST_NODES
    table = {(row["level"], row["community"]): [] for row in found.table.to_pylist()}
    for row in found.table.to_pylist():
        table[row["level"], row["community"]].append(row)
    for at, node in enumerate(nodes):
        inner = children.get(at, [])
        assert len(inner) <= MOST_CHILDREN + 1
        if inner:
            assert sum(nodes[child].size for child in inner) == node.size, "vertices are missing, or counted twice"
            assert not len(node.dots)
            # Areas tell sizes; only what is merged may be smaller.
            plain = [nodes[child] for child in inner if not nodes[child].merged]
            areas = np.array([child.place[2] ** 2 / child.size for child in plain])
            assert np.allclose(areas, areas[0])
        if node.community >= 0:
            rows = table[node.level, node.community]
            assert (node.size, node.inside, node.cut) == (
                rows[0]["size"], rows[0]["internal_weight"], rows[0]["cut_weight"],
            )  # fmt: skip
            labels = found.graph.label_column().take(node.members).to_pylist()
            assert labels == [row["vertex"] for row in rows][: len(labels)]
            assert len(labels) == min(len(rows), 10)
    dotted = {v for node in nodes if len(node.dots) for v in node.members.tolist()}
    named = {v for node in nodes for v in node.members.tolist()}
    assert named == dotted, "a member that is named has no dot"


@given(cases(largest=60))
def test_tree(case: Case) -> None:
    check_tree(gf.landscape(case.graph, members=3))


@pytest.mark.parametrize("members", [1, 5, 30])
@pytest.mark.slow
def test_tree_of_a_real_graph(members: int) -> None:
    check_tree(gf.landscape(gf.read("data/power.metis.gz"), members=members))


def test_many_communities_are_merged() -> None:
    found = gf.landscape(cliques(5000, 6))
    check_tree(found)
    root, *others = drawn_tree(found)
    assert len(others) == MOST_CHILDREN + 1
    [rest] = [node for node in others if node.merged]
    assert (rest.merged, rest.size) == (4900, 4900 * 6)
    assert rest.place[2] <= max(node.place[2] for node in others if not node.merged)
    text = page(found)
    assert "4,900 small communities" in " ".join(Parsed(text).data["left_out"])
    assert root.size == 30_000


@pytest.mark.parametrize(("filling", "length"), [("頂点", 40), ("<", 16)])
def test_page_stays_small_with_long_labels(filling: str, length: int) -> None:
    """As many circles as there may be, ten members in each, and long labels that take several bytes a character."""
    graph = gf.read("data/power.metis.gz")
    labels = [f"{v:05d}{filling * 150}" for v in range(graph.num_vertices)]
    found = gf.landscape(replace(graph, labels=pa.array(labels)), members=10)
    text = page(found)
    assert 500_000 < len(text.encode()) < 3_000_000
    data = Parsed(text).data
    assert len(data["nodes"]["size"]) > 0.9 * MOST_NODES
    assert any(f"Labels are cut to {length} " in line for line in data["left_out"])


def parsed(found: CommunityLandscape, name: str = "graph") -> Parsed:
    text = page(found, name=name)
    told = Parsed(text)
    assert told.tags.count("script") == 2
    assert text.count("<script") == 2, "markup from the data"
    assert "img" not in told.tags
    for tag, attribute, value in told.attributes:
        assert attribute not in ("src", "href", "action", "onclick", "onerror", "srcset"), (tag, attribute)
        assert not re.match(r"(https?:)?//", value or "") or (tag, attribute) == ("svg", "xmlns")
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[\w/.-]+", text.replace(told.texts["data"], "")))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    for needle in ("@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML", "eval("):
        assert needle not in text.replace(told.texts["data"], "")
    return told


@pytest.mark.parametrize("size", [0, 1, 3])
def test_page_without_edges(size: int) -> None:
    data = parsed(gf.landscape(gf.from_edges([], [], labels=np.arange(size)))).data
    assert data["nodes"]["size"] == [size] + [1] * size
    assert data["facts"][0] == ["vertices", str(size)]


def test_page_says_what_was_done() -> None:
    found = gf.landscape(karate(), seed=4, resolution=1.2, members=12, levels=1)
    data = parsed(found, "clubs & friends").data
    assert data["title"] == "Communities of clubs & friends"
    assert dict(data["facts"]) == {
        "vertices": "34", "edges": "78 (undirected)", "communities": str(found.communities.num_communities),
        "levels": str(found.communities.num_levels), "modularity": f"{found.communities.modularity:.4f}",
    }  # fmt: skip
    told = dict(data["options"])
    assert (told["seed"], told["created by"]) == ("4", f"GoFFish {gf.__version__}")
    assert "resolution 1.2" in told["communities"]
    assert any("the first 10 are shown" in line for line in data["left_out"])
    assert any("left out by the option levels" in line for line in data["left_out"])
    sampled = dict(parsed(gf.landscape(karate(), epsilon=0.1)).data["options"])
    assert "sampled shortest paths" in sampled["betweenness"]
    assert (
        "within the community" in dict(parsed(gf.landscape(karate(), paths="community")).data["options"])["betweenness"]
    )


def test_hostile_labels_are_only_texts() -> None:
    src, dst = [HOSTILE[0], HOSTILE[0], HOSTILE[1], HOSTILE[3]], [HOSTILE[1], HOSTILE[2], HOSTILE[2], HOSTILE[4]]
    found = gf.landscape(gf.from_edges(src, dst))
    told = parsed(found, "</title><script>alert(1)</script>")
    assert set(told.data["labels"]) == set(HOSTILE), "labels do not come back as they were"
    assert told.data["title"] == "Communities of </title><script>alert(1)</script>"
    assert parsed(found, "caf\udce9.txt").data["title"] == "Communities of caf?.txt", (
        "a file's name in another encoding"
    )


def test_same_bytes(tmp_path: Path) -> None:
    pages = [page(gf.landscape(karate(), threads=threads)) for threads in (1, 2)]
    assert pages[0] == pages[1]
    written = write_page(gf.landscape(karate()), tmp_path / "a.html")
    assert written.read_bytes() == pages[0].encode()
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    before = written.read_bytes()
    with pytest.raises(InputError, match=r"suffix must be one of \.html"):
        write_page(gf.landscape(karate()), tmp_path / "a.png")
    assert written.read_bytes() == before


@pytest.mark.parametrize("make", [karate, int, lambda: gf.louvain(karate())], ids=["graph", "number", "communities"])
def test_page_of_something_else(make: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=r"goffish\.landscape"):
        page(make())
