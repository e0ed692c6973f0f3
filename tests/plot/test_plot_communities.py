"""Pictures of communities: the right nodes, links and curves, and texts that can be read."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import goffish as gf
from goffish.algorithms.communities.communities import Communities, make_communities, modularity, normalise
from goffish.cli.app import app
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.plot import communities, save
from tests.commands import assert_refused, call
from tests.plot.plot_cases import by_gid, overlapping_texts


def divide(graph: Graph, ids: object) -> Communities:
    membership = normalise(ids)
    return make_communities(graph, [membership], modularity=modularity(graph, membership))


def caption(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def check_texts(figure: Figure) -> None:
    """No text covers another or leaves the picture."""
    assert overlapping_texts(figure) == []
    drawn = figure.get_tightbbox(figure.canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) >= 0
    assert drawn.x1 <= width
    assert drawn.y1 <= height


def cliques() -> tuple[nx.Graph, np.ndarray]:
    """Cliques of 3 to 12 vertices: each linked to the next by as many edges as it has vertices, the last alone."""
    G, ids = nx.Graph(), []
    for c, size in enumerate(range(3, 13)):
        first = len(ids)
        G.add_nodes_from(range(first, first + size))
        G.add_edges_from(combinations(range(first, first + size), 2))
        if 0 < c < 9:
            G.add_edges_from((first - 1 - i, first + i) for i in range(size - 1))
        ids += [c] * size
    return G, np.array(ids)


def test_every_community_is_a_node_and_every_cut_a_line() -> None:
    G, ids = cliques()
    figure = communities(divide(gf.from_networkx(G), ids))
    nodes = by_gid(figure, "community-")
    assert len(nodes) == 10
    areas = [nodes[f"community-{v}"].get_sizes()[0] for v in range(10)]
    assert np.array(areas) / areas[0] == pytest.approx(np.arange(12, 2, -1) / 12)
    lines = by_gid(figure, "links")["links"]
    cuts = Counter(tuple(sorted((ids[u], ids[v]))) for u, v in G.edges if ids[u] != ids[v])
    assert len(lines.get_segments()) == len(cuts) == 8
    widths = np.sort(lines.get_linewidths())
    assert (widths - 0.69) / 7 == pytest.approx(np.sort(np.sqrt(np.array(list(cuts.values())) / max(cuts.values()))))
    assert "10 communities of 75 vertices" in caption(figure)
    assert f"at most {max(cuts.values())}." in caption(figure)
    assert "Not drawn" not in caption(figure)
    check_texts(figure)


def test_nodes_bear_their_most_central_members() -> None:
    G = nx.disjoint_union(nx.star_graph(9), nx.star_graph(4))
    G.add_edge(1, 12)
    names = [f"v{v}" for v in G]
    graph = gf.from_networkx(nx.relabel_nodes(G, dict(enumerate(names))))
    table = pa.table({"vertex": names, "community": [1] * 10 + [0] * 5})
    figure = communities(graph, table)
    assert {text.get_text() for text in figure.axes[0].texts} == {"v0\n10", "v10\n5"}


def test_colours_are_conductances() -> None:
    G = nx.karate_club_graph()
    found = divide(gf.from_networkx(G), [int(G.nodes[v]["club"] == "Officer") for v in G])
    figure = communities(found)
    bar = figure.axes[1]
    colours = [by_gid(figure, "community-")[f"community-{v}"].get_facecolor()[0] for v in (0, 1)]
    by_size = sorted(found.to_sets(), key=len, reverse=True)
    assert bar.get_xlim() == (0.0, 0.5)
    import matplotlib

    expected = [matplotlib.colormaps["viridis"](nx.conductance(G, s, weight="weight") / 0.5) for s in by_size]
    assert np.allclose(colours, expected, atol=0.01)


def test_only_strong_links_of_many_and_the_strongest_of_each_node() -> None:
    rng = np.random.default_rng(1)
    G = nx.planted_partition_graph(40, 10, 0.7, 0.08, seed=1)
    ids = np.arange(400) // 10
    for u, v in G.edges:
        weak = max(ids[u], ids[v]) >= 36
        G.edges[u, v]["weight"] = float(rng.random()) * (0.01 if weak else 1.0)
    figure = communities(divide(gf.from_networkx(G), ids))
    drawn = len(by_gid(figure, "links")["links"].get_segments())
    cut: Counter[tuple[int, int]] = Counter()
    for u, v, w in G.edges(data="weight"):
        if ids[u] != ids[v]:
            cut[min(ids[u], ids[v]), max(ids[u], ids[v])] += w
    strong = sorted(cut, key=lambda pair: -cut[pair])[:100]
    best = {max((pair for pair in cut if c in pair), key=lambda pair: cut[pair]) for c in range(40)}
    assert not best <= set(strong), "without a rule for them, weakly linked nodes would stand alone"
    assert drawn == len({*strong, *best})
    assert f"Left out: {len(cut) - drawn} weaker ones of {len(cut)} links" in caption(figure)
    check_texts(figure)


@pytest.mark.slow
def test_many_equal_communities_say_what_is_not_drawn() -> None:
    graph = gf.from_networkx(nx.connected_caveman_graph(3000, 5))
    found = divide(graph, np.arange(15000) // 5)
    figure = communities(found)
    assert len(by_gid(figure, "community-")) == 40
    assert "Not drawn: 2,960 other communities with 98.7% of the vertices." in caption(figure)
    check_texts(figure)
    assert len(by_gid(communities(found, largest=7), "community-")) == 7


@pytest.mark.parametrize("case", ["one community", "no edges", "one vertex", "loops only", "zero weights"])
@pytest.mark.slow
def test_small_and_empty_cases(case: str) -> None:
    graph, ids = {
        "one community": (gf.from_networkx(nx.complete_graph(30)), [0] * 30),
        "no edges": (gf.from_edges([], [], isolated=range(50)), range(50)),
        "one vertex": (gf.from_edges([], [], isolated=["alone"]), [0]),
        "loops only": (gf.from_edges([0, 1], [0, 1], self_loops="keep"), [0, 1]),
        "zero weights": (gf.from_edges([0, 1], [1, 2], [0.0, 0.0]), [0, 0, 1]),
    }[case]
    figure = communities(divide(graph, list(ids)))
    assert len(by_gid(figure, "community-")) == min(len(set(ids)), 40)
    assert by_gid(figure, "links") == {}
    no_degree = case in ("no edges", "one vertex", "zero weights")
    assert ("no edges" in [text.get_text() for text in figure.axes[-1].texts]) == no_degree
    check_texts(figure)


def test_curves_count_what_is_at_least_as_large() -> None:
    G = nx.barabasi_albert_graph(300, 2, seed=1)
    G.add_nodes_from(range(300, 310))
    ids = np.concatenate([np.arange(300) // 7, np.arange(100, 110)])
    figure = communities(divide(gf.from_networkx(G), ids))
    curves = by_gid(figure, "curve-")
    for gid, values in (
        ("curve-vertices", [d for _, d in G.degree]),
        ("curve-communities", list(Counter(ids).values())),
    ):
        x, y = curves[gid].get_data()
        assert x.tolist() == sorted(set(values) - {0})
        assert y == pytest.approx([np.mean(np.array(values) >= limit) for limit in x])
    assert "1" in [tick.get_text() for tick in figure.axes[2].get_xticklabels()]
    assert "10 without edges" in [text.get_text() for axes in figure.axes for text in axes.texts]


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    rng = np.random.default_rng(1)
    graph = gf.from_edges(rng.integers(0, 5000, 20_000), rng.integers(0, 5000, 20_000), rng.pareto(1, 20_000))
    x, y = by_gid(communities(divide(graph, np.arange(graph.num_vertices) % 9)), "curve-")["curve-vertices"].get_data()
    assert x.size <= 1000
    assert (y[0], y[-1]) == pytest.approx((1.0, 1 / graph.num_vertices))
    assert (np.diff(y) < 0).all()


def test_names_of_any_length_keep_apart() -> None:
    G = nx.planted_partition_graph(45, 8, 0.7, 0.05, seed=2)
    names = {v: f"station {v * v} of the $long$ line" for v in G}
    graph = gf.from_networkx(nx.relabel_nodes(G, names))
    table = pa.table({"vertex": list(names.values()), "community": [v // 8 for v in G]})
    figure = communities(graph, table, largest=45)
    assert len(figure.axes[0].texts) > 25
    check_texts(figure)


def test_directed_graphs() -> None:
    graph = gf.from_edges([0, 1, 2, 3, 2, 3], [1, 0, 3, 2, 0, 1], directed=True)
    figure = communities(divide(graph, [0, 0, 1, 1]))
    assert "at most 2." in caption(figure)
    assert figure.axes[-1].get_xlabel() == "degree (in + out), at least"


@pytest.mark.slow
def test_all_ways_to_give_a_division_draw_the_same(tmp_path: Path) -> None:
    G, ids = cliques()
    graph = gf.from_networkx(G)
    found = divide(graph, ids)
    table = found.table.take(np.arange(74, -1, -1))
    mapping = {v: f"group {c}" for v, c in enumerate(ids.tolist())}
    expected = save(communities(found), tmp_path / "a.png").read_bytes()
    for division in (found, table, table.to_pandas(), mapping, ids, pd.Series(ids)):
        assert save(communities(graph, division), tmp_path / "b.png").read_bytes() == expected


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"vertex": [0, 1, 2], "rank": [0, 0, 1]}, "the table has no column 'community'; available: vertex, rank"),
        ({"node": [0, 1, 2], "community": [0, 0, 1]}, "no column 'vertex'"),
        ({"vertex": [0, 1, 9], "community": [0, 0, 1]}, "vertex 9 is not in the graph"),
        ({"vertex": [0, 1], "community": [0, 0]}, "no community for vertex 2"),
        ({"vertex": [0], "community": [0]}, r"no community for vertex 1 \(nor for 1 other vertices\)"),
        ({"vertex": [0, 1, 1], "community": [0, 0, 1]}, "several rows for vertex 1"),
        ({"vertex": ["a", "b", "c"], "community": [0, 0, 1]}, "vertex labels have type"),
    ],
)
def test_unusable_tables_are_explained(table: dict[str, list[object]], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        communities(gf.from_networkx(nx.path_graph(3)), pa.table(table))
    assert "\n" not in str(caught.value)


def test_what_cannot_be_drawn() -> None:
    graph = gf.from_networkx(nx.path_graph(3))
    with pytest.raises(InputError, match="largest=0"):
        communities(divide(graph, [0, 0, 1]), largest=0)
    with pytest.raises(InputError, match="must be 1 to 500"):
        communities(divide(graph, [0, 0, 1]), largest=501)
    with pytest.raises(InputError, match="no vertices"):
        communities(divide(gf.from_edges([], []), np.empty(0, np.int64)))
    with pytest.raises(InputError, match="expected Communities, or"):
        communities(nx.path_graph(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the table is None"):
        communities(graph)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    G, ids = cliques()
    graph = gf.from_networkx(G)
    gf.write(graph, tmp_path / "g.csv")
    gf.partition(graph, 3).save(tmp_path / "store")
    found = divide(graph, ids)
    for suffix in ("csv", "parquet"):
        found.write(f"c.{suffix}")
    for source, result, picture in (("g.csv", "c.csv", "p.png"), ("store", "c.parquet", "p.svg")):
        done = CliRunner().invoke(app, ["plot", "communities", source, result, "-o", picture, "--largest", "5"])
        assert done.exit_code == 0, done.output
        assert f"plot written to {picture}" in done.output
        assert Path(picture).stat().st_size > 10_000


def test_bad_input_of_the_command_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gf.write(gf.from_networkx(nx.path_graph(3)), tmp_path / "g.csv")
    tables = {
        "unknown.csv": ({"vertex": [0, 1, 2, 77], "community": [0, 0, 1, 1]}, "vertex 77 is not in the graph"),
        "other.csv": ({"vertex": [0, 1, 2], "rank": [0.1, 0.2, 0.3]}, "no column 'community'; available: vertex, rank"),
    }
    for name, (columns, told) in tables.items():
        pd.DataFrame(columns).to_csv(name, index=False)
        words = ("plot", "communities", "g.csv", name, "-o", "p.png")
        done = call(*words)
        assert_refused(done)
        assert told in done.err
    assert not Path("p.png").exists()
