"""Pictures of graphs: the right nodes, sizes, colours and keys."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from matplotlib.colors import to_hex

import goffish as gf
from goffish.errors import InputError
from goffish.gofs import build_layout
from goffish.plot import graph, quotient_graph
from goffish.plot.circles import clear_links
from goffish.plot.layout import place
from goffish.plot.style import COLOURS, NOTHING
from tests.cases import grid, grid_blocks
from tests.plot.plot_cases import by_gid, overlapping_texts


def _texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def _legend(figure) -> list[str]:
    legend = figure.axes[0].get_legend()
    return [text.get_text() for text in legend.get_texts()]


def _islands() -> tuple[nx.Graph, gf.Graph]:
    G = nx.disjoint_union_all([nx.karate_club_graph(), nx.path_graph(5), nx.empty_graph(3)])
    return G, gf.from_networkx(G)


def test_quotient_of_a_grid_has_its_blocks_and_cuts() -> None:
    figure = quotient_graph(build_layout(grid(40, 30), grid_blocks(40, 30), 12))
    nodes = by_gid(figure, "node-")
    assert len(nodes) == 12
    blocks = nx.grid_2d_graph(3, 4)
    assert len(by_gid(figure, "links")["links"].get_segments()) == blocks.number_of_edges() == 17
    assert Counter(_texts(figure)) == {"100": 12, "10": 17}
    assert len(_legend(figure)) == 12
    assert "12 subgraphs in 12 partitions, 170 edges" in figure.texts[0].get_text()
    assert overlapping_texts(figure) == []


def test_quotient_areas_follow_the_vertices() -> None:
    g = gf.from_networkx(nx.path_graph(100))
    owner = np.repeat([0, 1], [80, 20]).astype(np.int32)
    nodes = by_gid(quotient_graph(build_layout(g, owner, 2)), "node-")
    assert nodes["node-0"].get_sizes()[0] / nodes["node-1"].get_sizes()[0] == pytest.approx(4.0)


def test_quotient_puts_small_subgraphs_together() -> None:
    # One star per partition, cut apart into its hub's path and many single vertices.
    G = nx.disjoint_union(nx.path_graph(50), nx.empty_graph(300))
    owner = np.concatenate([np.repeat([0, 1], 25), np.repeat([0, 1], [100, 200])]).astype(np.int32)
    figure = quotient_graph(build_layout(gf.from_networkx(G), owner, 2), largest=2)
    assert len(by_gid(figure, "node-")) == 4
    assert {"+100\nsmall", "+200\nsmall", "25", "1"} <= set(_texts(figure))
    assert any("300 small subgraphs" in text.get_text() for text in figure.texts)
    assert overlapping_texts(figure) == []


def test_quotient_of_many_partitions_says_what_is_not_drawn() -> None:
    g = gf.from_networkx(nx.barabasi_albert_graph(400, 2, seed=1))
    cut = gf.partition(g, 40, "hash")
    figure = quotient_graph(cut, largest=30)
    assert len(by_gid(figure, "node-")) == 30
    assert any(f"Not drawn: {cut.num_subgraphs - 30:,} small" in text.get_text() for text in figure.texts)
    assert figure.axes[1].get_ylabel() == "partition"  # a colour bar instead of 40 legend entries
    assert overlapping_texts(figure) == []


@pytest.mark.parametrize("parts", [1, 3])
def test_quotient_without_cut_edges(parts: int) -> None:
    figure = quotient_graph(gf.partition(gf.from_networkx(nx.empty_graph(20)), parts, "hash"))
    assert len(by_gid(figure, "node-")) == 20
    assert by_gid(figure, "links") == {}


def test_quotient_needs_a_positive_limit() -> None:
    with pytest.raises(InputError, match="largest=0"):
        quotient_graph(gf.partition(grid(4, 4), 2), largest=0)


def test_groups_get_one_colour_each_and_a_key() -> None:
    G, g = _islands()
    figure = graph(g, gf.connected_components(g))
    (vertices,) = by_gid(figure, "vertices-").values()
    colours = Counter(to_hex(c) for c in vertices.get_facecolors())
    sizes = sorted((len(c) for c in nx.connected_components(G)), reverse=True)
    assert sorted(colours.values(), reverse=True) == sizes
    assert colours[COLOURS[0].lower()] == 34
    assert [int(text.split("(")[1].rstrip(")")) for text in _legend(figure)] == sizes
    assert sorted(_texts(figure), key=int) == [str(v) for v in range(G.number_of_nodes())]
    assert overlapping_texts(figure) == []


def test_unreachable_vertices_are_grey() -> None:
    G, g = _islands()
    figure = graph(g, gf.bfs(g, source=0), "distance")
    (vertices,) = by_gid(figure, "vertices-").values()
    grey = sum(to_hex(c) == NOTHING for c in vertices.get_facecolors())
    assert grey == G.number_of_nodes() - len(nx.node_connected_component(G, 0)) == 8
    assert _legend(figure)[-1] == "no value (8)"
    levels = Counter(nx.single_source_shortest_path_length(G, 0).values())
    assert _legend(figure)[:-1] == [f"{hops} ({levels[hops]})" for hops in sorted(levels)]


def test_numbers_get_a_colour_bar() -> None:
    g = gf.from_networkx(nx.karate_club_graph())
    ranks = gf.pagerank(g)
    figure = graph(g, ranks)
    bar = figure.axes[1]
    values = ranks.table["rank"].to_numpy()
    assert bar.get_ylabel() == "rank"
    assert bar.get_ylim() == pytest.approx((values.min(), values.max()))
    (vertices,) = by_gid(figure, "vertices-").values()
    assert len(vertices.get_offsets()) == 34
    assert overlapping_texts(figure) == []


def test_many_groups_are_told_apart_by_shape_and_the_rest_is_named() -> None:
    g = gf.from_networkx(nx.empty_graph(40))
    figure = graph(g, pa.table({"vertex": range(40), "community": [v // 2 if v < 36 else v for v in range(40)]}))
    marks = by_gid(figure, "vertices-")
    assert len(marks) == 3
    assert sum(len(mark.get_offsets()) for mark in marks.values()) == 40
    assert len(_legend(figure)) == 21
    assert _legend(figure)[-1] == "2 others (2)"


def test_texts_truth_values_infinities_and_empty_columns() -> None:
    g = gf.from_networkx(nx.path_graph(4))
    table = pa.table({
        "vertex": [0, 1, 2, 3],
        "kind": ["$a_b$", "x", None, "x"],
        "seen": [True, False, True, None],
        "score": [0.5, float("inf"), float("nan"), 2.25],
        "none": pa.nulls(4),
        "blank": pa.array([None] * 4, pa.float64()),
    })  # fmt: skip
    assert _legend(graph(g, table, "kind")) == ["x (2)", "$a_b$ (1)", "no value (1)"]
    assert _legend(graph(g, table, "seen")) == ["true (2)", "false (1)", "no value (1)"]
    assert _legend(graph(g, table, "none")) == _legend(graph(g, table, "blank")) == ["no value (4)"]
    assert graph(g, table, "score").axes[1].get_ylim() == pytest.approx((0.5, 2.25))


def test_values_are_matched_by_label_not_by_row() -> None:
    g = gf.from_edges(["b", "c"], ["a", "a"])
    figure = graph(g, pa.table({"vertex": ["c", "a"], "community": ["left", "right"]}))
    assert _legend(figure) == ["left (1)", "right (1)", "no value (1)"]
    assert set(_texts(figure)) == {"a", "b", "c"}


def test_directed_graphs_have_arrows() -> None:
    g = gf.from_networkx(nx.gnp_random_graph(20, 0.1, seed=1, directed=True))
    figure = graph(g, gf.pagerank(g))
    assert len(figure.axes[0].patches) == g.num_edges


def test_labels_can_be_forced_and_left_out() -> None:
    small, large = grid(4, 4), grid(10, 10)
    table = pa.table({"vertex": range(100), "x": np.linspace(0, 1, 100)})
    assert _texts(graph(small, table.slice(0, 16), labels=False)) == []
    assert _texts(graph(large, table)) == []
    assert len(_texts(graph(large, table, labels=True))) == 100


def test_long_labels_keep_apart() -> None:
    names = [f"station {v * v}" for v in range(45)]
    G = nx.relabel_nodes(nx.gnp_random_graph(45, 0.06, seed=3), dict(enumerate(names)))
    figure = graph(gf.from_networkx(G), pa.table({"vertex": names, "x": np.arange(45.0)}))
    assert len(_texts(figure)) > 35
    assert overlapping_texts(figure) == []


@pytest.mark.parametrize(
    ("table", "column", "told"),
    [
        ({"vertex": [0, 1], "rank": [1.0, 2.0]}, "rnk", "unknown column 'rnk'; available: rank"),
        ({"node": [0, 1], "rank": [1.0, 2.0]}, None, "no column 'vertex'; available: node, rank"),
        ({"vertex": [0, 1]}, None, "the table has only the column 'vertex'; a second column is required for colors"),
        ({"vertex": [0, 99], "rank": [1.0, 2.0]}, None, "vertex 99"),
        ({"vertex": [0, 0], "rank": [1.0, 2.0]}, None, "several rows"),
        ({"vertex": ["a", "b"], "rank": [1.0, 2.0]}, None, "type string"),
        ({"vertex": [0, 1], "rank": [[1], [2]]}, None, "list"),
    ],
)
def test_unusable_tables_are_explained(table: dict[str, list[object]], column: str | None, told: str) -> None:
    with pytest.raises(InputError, match=told):
        graph(grid(3, 3), pa.table(table), column)


def test_too_large_graphs_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match=r"2,001 vertices.*quotient graph.*neighborhood"):
        graph(gf.from_networkx(nx.path_graph(2001)), pa.table({"vertex": [0], "x": [1]}))


def test_layout_keeps_the_distances_of_a_path_and_of_a_grid() -> None:
    path = place(30, np.arange(29), np.arange(1, 30))
    assert np.linalg.norm(path[0] - path[-1]) == pytest.approx(29, rel=0.05)
    g = grid(15, 10)
    src, dst, _, _ = g.edge_columns()
    places = place(150, src, dst)
    lengths = np.linalg.norm(places[src] - places[dst], axis=1)
    assert lengths.min() > 0.5
    assert lengths.max() < 1.6
    assert np.array_equal(places, place(150, src, dst))


def test_layout_of_components_does_not_mix_them() -> None:
    G = nx.disjoint_union_all([nx.cycle_graph(12), nx.complete_graph(6), nx.star_graph(7), nx.empty_graph(2)])
    g = gf.from_networkx(G)
    src, dst, _, _ = g.edge_columns()
    places = place(g.num_vertices, src, dst)
    boxes = [
        (places[list(c)].min(axis=0), places[list(c)].max(axis=0)) for c in nx.connected_components(G)
    ]  # fmt: skip
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[:i]:
            assert (low > other_high).any() or (other_low > high).any()


def test_circles_keep_off_heavy_lines() -> None:
    places = np.array([[50.0, 100.0], [350.0, 100.0], [200.0, 103.0], [120.0, 96.0]])
    radii = np.array([20.0, 20.0, 15.0, 4.0])
    moved = clear_links(places, radii, np.array([[0], [1]]), 400.0, 200.0, 0.0)
    line = moved[1] - moved[0]
    line /= np.hypot(*line)
    away = moved[2:] - moved[0]
    assert (np.abs(away[:, 0] * line[1] - away[:, 1] * line[0]) >= radii[2:]).all()
    assert ((moved >= radii[:, None]) & (moved <= np.array([400.0, 200.0]) - radii[:, None])).all()
