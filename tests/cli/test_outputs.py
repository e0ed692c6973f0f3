"""Every command gives the right answer, for people and for programs."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest

from goffish.algorithms.catalogue import ALGORITHMS
from tests.cli.conftest import SMALL, Place
from tests.commands import ENVIRONMENT

REQUIRED = {
    "bfs": {"source": 1},
    "sssp": {"source": 1},
    "hops": {"source": 1},
    "path": {"source": 2, "target": 4},
    "maximum-flow": {"source": 1, "target": 4},
}


#: Answers for names.csv with directions, by key.
DIRECTED = {
    "topological-order": {"a": 0, "b": 1, "c": 2, "d": 3},
    "longest-path": {"a": 0.0, "b": 1.5, "c": 3.5, "d": 4.0},
}


#: Algorithms of bipartite graphs, which small.txt is not.
BIPARTITE = dict.fromkeys(("bipartition", "bipartite-projection", "bipartite-cores"))


def oracle() -> nx.Graph:
    return nx.parse_edgelist(SMALL.splitlines(), nodetype=int)


def best_division(graph: nx.Graph) -> dict[int, int]:
    """The communities of highest modularity of all divisions, numbered by their first vertices."""
    vertices = sorted(graph)
    divisions = [[[vertices[0]]]]
    for v in vertices[1:]:
        grown = []
        for division in divisions:
            grown += [[*division[:i], [*group, v], *division[i + 1 :]] for i, group in enumerate(division)]
            grown.append([*division, [v]])
        divisions = grown
    best = max(divisions, key=lambda division: nx.community.modularity(graph, division))
    return {v: number for number, group in enumerate(best) for v in group}


def fiedler(graph: nx.Graph) -> dict[int, Any]:
    """The second eigenvector of the normalized Laplacian of the largest component; 0 elsewhere."""
    part = sorted(max(nx.connected_components(graph), key=len))
    vector = np.linalg.eigh(nx.normalized_laplacian_matrix(graph, part).toarray())[1][:, 1]
    found = dict(zip(part, vector * np.sign(vector[np.abs(vector).argmax()]), strict=True))
    return {v: pytest.approx(found.get(v, 0.0), abs=1e-9) for v in graph}


EXPECTED: dict[str, Any] = {
    "components": lambda g: {v: max(c) for c in nx.connected_components(g) for v in c},
    "strong-components": lambda g: {v: max(c) for c in nx.connected_components(g) for v in c},
    "bfs": lambda g: {v: nx.single_source_shortest_path_length(g, 1).get(v) for v in g},
    "sssp": lambda g: {v: nx.single_source_shortest_path_length(g, 1).get(v) for v in g},
    "pagerank": lambda g: {v: pytest.approx(r, abs=1e-5) for v, r in nx.pagerank(g, tol=1e-10).items()},
    "blockrank": lambda g: {v: pytest.approx(r, abs=1e-5) for v, r in nx.pagerank(g, tol=1e-10).items()},
    "louvain": best_division,
    "infomap": lambda g: {v: i for i, c in enumerate(nx.connected_components(g)) for v in c},
    "betweenness": lambda g: {v: pytest.approx(b) for v, b in nx.betweenness_centrality(g, normalized=False).items()},
    "closeness": lambda g: {v: pytest.approx(c) for v, c in nx.closeness_centrality(g).items()},
    "harmonic": lambda g: {v: pytest.approx(h) for v, h in nx.harmonic_centrality(g).items()},
    "triangles": nx.triangles,
    "clustering": lambda g: {v: pytest.approx(c) for v, c in nx.clustering(g).items()},
    "cores": nx.core_number,
    "eigenvector": lambda g: {v: pytest.approx(x, abs=1e-5) for v, x in nx.eigenvector_centrality(g).items()},
    "katz": lambda g: {v: pytest.approx(x, abs=1e-4) for v, x in nx.katz_centrality(g, 0.25, normalized=False).items()},
    "hits": lambda g: {v: pytest.approx(x, abs=1e-5) for v, x in nx.hits(g)[0].items()},
    "spectral-embedding": fiedler,
    "similarity": lambda g: {(u, v): j for (a, b, j) in nx.jaccard_coefficient(g) for (u, v) in ((a, b), (b, a)) if j},
    "motifs": lambda g: {
        "wedge": 2,
        "triangle": 1,
        "claw": 0,
        "path": 0,
        "paw": 1,
        "cycle": 0,
        "diamond": 0,
        "clique": 0,
    },
    "graphlet-degrees": lambda g: dict(g.degree),
    "trusses": lambda g: {(1, 2): 3, (1, 3): 3, (2, 3): 3, (3, 4): 2, (7, 8): 2},
    "spanning-forest": lambda g: dict.fromkeys(nx.minimum_spanning_edges(g, data=False), 1.0),
    "biconnected-components": lambda g: {
        (min(e), max(e)): i for i, c in enumerate(sorted(nx.biconnected_component_edges(g), key=min)) for e in c
    },
    "articulation-points": lambda g: {
        v: sum(v in c for c in nx.biconnected_components(g)) for v in nx.articulation_points(g)
    },
    "bridges": lambda g: dict.fromkeys(nx.bridges(g), 1),
    "label-propagation": lambda g: {
        v: i for i, c in enumerate(nx.community.label_propagation_communities(g)) for v in c
    },
    "independent-set": lambda g: {1: True, 2: False, 3: False, 4: True, 7: True, 8: False},
    "matching": lambda g: {u: v for pair in nx.maximal_matching(g) for u, v in (pair, pair[::-1])},
    "coloring": nx.greedy_color,
    "max-value": lambda g: {v: max(c) for c in nx.connected_components(g) for v in c},
    "hops": lambda g: {0: 1, 1: 2, 2: 1},
    "eccentricity": lambda g: {v: max(nx.single_source_shortest_path_length(g, v).values()) for v in g},
    "diameter": lambda g: {(1, 4): 2},
    "neighborhood": lambda g: {hops: pytest.approx(pairs, rel=0.3) for hops, pairs in enumerate((6, 16, 20))},
    "maximum-flow": lambda g: {(1, 2): 0.0, (1, 3): 1.0, (2, 3): 0.0, (3, 4): 1.0, (7, 8): 0.0},
    "path": lambda g: {v: hops for hops, v in enumerate(nx.shortest_path(g, 2, 4))},
}


@pytest.mark.parametrize("name", DIRECTED)
def test_algorithms_of_directed_graphs(shared: Place, name: str) -> None:
    body = shared("run", name, "names.csv", "--directed", "--json").json
    first, second = list(body["rows"][0])
    assert {row[first]: row[second] for row in body["rows"]} == DIRECTED[name]
    ended = shared("run", name, "small.txt", "--directed")
    assert (ended.code, ended.err) == (2, "error: graph has a cycle: 1 -> 2 -> 3 -> 1\n")
    assert "graph is undirected" in shared("run", name, "small.txt").err


def test_sides_of_bipartite_graphs(shared: Place) -> None:
    rows = shared("run", "bipartition", "names.csv", "--json").json["rows"]
    assert {row["vertex"]: row["side"] for row in rows} == {"a": 0, "b": 1, "c": 0, "d": 1}
    ended = shared("run", "bipartition", "small.txt")
    assert (ended.code, ended.err) == (
        2, "error: graph is not bipartite: it has a cycle of 3 vertices: 2 - 1 - 3 - 2\n"
    )  # fmt: skip


def test_projections_of_bipartite_graphs(place: Place) -> None:
    """The graph file itself names the side of its first column; the table that is written is a graph."""
    (place / "bought.csv").write_text("source,target\nann,tea\nbob,tea\nbob,rum\neve,rum\njoe,ale\n")
    made = place("run", "bipartite-projection", "bought.csv", "--vertices", "bought.csv", "-o", "alike.csv", "--json")
    assert made.json["summary"] == {"vertices": 4, "edges": 2}
    assert [*csv.reader((place / "alike.csv").open())][1:] == [["ann", "bob", "1"], ["bob", "eve", "1"]]
    assert place("run", "components", "alike.csv", "--json").json["summary"]["components"] == 1
    cores = place("run", "bipartite-cores", "bought.csv", "--vertices", "bought.csv", "--beta", "1", "--json").json
    assert cores["rows"] == [{"vertex": v, "side": v != "bob", "core": 1} for v in ("bob", "rum", "tea")]
    ended = place("run", "bipartite-projection", "bought.csv")
    expected = "error: vertices: the graph is not connected; name the vertices of one side\n"
    assert (ended.code, ended.err) == (2, expected)
    rows = place("run", "bipartite-projection", "names.csv", "--weighting", "newman", "--json").json["rows"]
    assert rows == [{"source": "a", "target": "c", "weight": 1.0}]
    ended = place("run", "bipartite-projection", "small.txt")
    assert (ended.code, ended.err[:44]) == (2, "error: graph is not bipartite: it has a cycl")


@pytest.mark.parametrize("graph", ["small.txt", "small.gofs"])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in DIRECTED | BIPARTITE])
def test_algorithm(shared: Place, name: str, graph: str) -> None:
    required = [text for option, value in REQUIRED.get(name, {}).items() for text in (f"--{option}", str(value))]
    body = shared("run", name, graph, *required, "--json").json
    if name in ("walks", "fastrp", "hashgnn"):
        check_samples(name, body)
        return
    if name == "landscape":
        told = {row["vertex"]: row["betweenness"] for row in body["rows"] if row["level"] == 1}
        assert told == EXPECTED["betweenness"](oracle())
        assert (body["stats"], body["output"], body["input"]) == (None, None, graph)
        return
    assert body["algorithm"] == name
    assert body["input"] == graph
    assert body["output"] is None
    assert body["seconds"] > 0
    in_memory = graph == "small.txt" or ALGORITHMS[name].in_memory
    assert (body["stats"] is None) == (in_memory and not needs_engine(name))
    rows = body["rows"]
    if name == "counts":
        assert sum(row["vertices"] for row in rows) == 6
        assert sum(row["arcs"] + row["remote_arcs"] for row in rows) >= 10
    elif name == "quotient":
        assert sum(row["links"] for row in rows) == 2 * body["summary"]["cut_edges"]
    elif name == "edge-betweenness":
        expected = nx.edge_betweenness_centrality(oracle(), normalized=False)
        assert {frozenset((row["source"], row["target"])): row["betweenness"] for row in rows} == {
            frozenset(ends): pytest.approx(value) for ends, value in expected.items()
        }
    elif name == "distances":
        lengths = dict(nx.all_pairs_shortest_path_length(oracle()))
        assert {(row["source"], row["target"]): row["distance"] for row in rows} == {
            (u, v): length for u, found in lengths.items() for v, length in found.items()
        }
    else:
        first, second, *more = list(rows[0])
        pairs = (first, second) == ("source", "target")
        found = {(row[first], row[second]) if pairs else row[first]: row[more[0] if pairs else second] for row in rows}
        assert found == EXPECTED[name](oracle())


def check_samples(name: str, body: dict[str, Any]) -> None:
    rows, near = body["rows"], oracle()
    if name in ("fastrp", "hashgnn"):
        vectors = {row["vertex"]: [row[f"x{at}"] for at in range(128)] for row in rows}
        assert set(vectors) == set(near)
        assert vectors[1] != vectors[7] and any(vectors[1])
        return
    assert body["summary"].items() >= {"walks": 60, "steps": 4800}.items() and len(rows) == 60 * 81
    for row, after in pairwise(rows):
        if row["walk"] == after["walk"]:
            assert after["step"] == row["step"] + 1 and near.has_edge(row["vertex"], after["vertex"])


def needs_engine(name: str) -> bool:
    return ALGORITHMS[name](**REQUIRED.get(name, {})).needs_engine()


def test_people_read_calm_lines(shared: Place) -> None:
    ended = shared("run", "components", "small.txt", real=True)
    assert (ended.code, ended.err) == (0, "")
    heading, *rest = ended.out.splitlines()
    assert re.fullmatch(r"components of small\.txt: \d+\.\d\d s", heading)
    assert rest == [
        "  components  2",
        "  largest     4",
        "  isolated    0",
        "",
        "all rows",
        "  vertex  component",
        *(f"  {v}       {4 if v < 5 else 8}" for v in (1, 2, 3, 4, 7, 8)),
    ]


@pytest.mark.parametrize(
    "args",
    [
        ("run", "sssp", "grid.gofs", "--source", "0", "--stats"),
        ("run", "blockrank", "grid.txt", "--stats"),
        ("info", "grid.gofs"),
        ("info", "names.csv"),
        ("partition", "grid.txt", "-o", "again.gofs", "-k", "40"),
        ("verify", "grid.gofs"),
        ("export", "grid.gofs", "-o", "out.csv"),
        ("import", "names.csv", "-o", "out.arrow"),
        ("--help",),
        ("run", "sssp", "--help"),
        ("partition", "--help"),
    ],
    ids=" ".join,
)
def test_piped_output_is_plain(place: Place, args: tuple[str, ...]) -> None:
    ended = place(*args)
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    if "--help" not in args:
        assert not [line for line in ended.out.splitlines() if line.endswith(" ")]
    else:
        assert "python -m goffish" not in ended.out
        assert "…" not in ended.out, "a help text is cut off"


def test_long_labels_are_not_broken_in_a_pipe(place: Place) -> None:
    long = "x" * 300
    (place / "long.csv").write_text(f"source,target\n{long},[bold]b[/bold]\n")
    out = place("run", "components", "long.csv").out
    assert long in out
    assert "[bold]b[/bold]" in out, "a label was taken for markup"


@pytest.mark.slow
def test_labels_that_the_terminal_cannot_show(place: Place) -> None:
    (place / "names.txt").write_text("zürich 東京\n", encoding="utf-8")
    ended = place("run", "components", "names.txt", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (ended.code, ended.err) == (0, "")
    assert r"z\xfcrich" in ended.out


def test_on_a_terminal_80_columns_wide(place: Place) -> None:
    """Progress goes to standard error and only to a terminal; tables fit into the terminal."""
    (place / "long.csv").write_text(f"source,target\n{'x' * 300},b\n")
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "goffish", "run", "components", "long.csv"], cwd=place.path, text=True,
        env=ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "80"}, stdout=terminal, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.communicate(timeout=60)[1] == "", "progress on a standard error that is no terminal"
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(controller, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(controller)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).splitlines()
    assert process.returncode == 0
    assert max(map(len, lines)) <= 80
    assert sum(line.count("x") for line in lines) >= 300, "a label was cut off"


def test_files_for_programs(place: Place) -> None:
    """--json prints one document for every command, and what it says was written is there."""
    made = place("partition", "grid.txt", "-o", "new.gofs", "-k", "3", "--json").json
    assert made["store"] == "new.gofs"
    assert made["quality"]["vertices"] == 600
    assert place("info", "new.gofs", "--json").json["quality"] == made["quality"]
    assert place("verify", "new.gofs", "--json").json["ok"] is True
    facts = place("info", "grid.txt", "--json").json
    assert (facts["vertices"], facts["edges"], facts["directed"]) == (600, 30 * 19 + 29 * 20, False)
    assert place("import", "names.csv", "-o", "n.arrow", "--json").json["weighted"] is True
    assert place("export", "new.gofs", "-o", "e.csv", "--json").json["edges"] == facts["edges"]
    edges = {frozenset(line.split()[:2]) for line in (place / "grid.txt").read_text().splitlines()}
    rows = [line for line in csv.reader((place / "e.csv").open()) if line and not line[0].startswith("#")]
    assert {frozenset(row[0].split() if len(row) == 1 else row[:2]) for row in rows} - {
        frozenset(("source", "target"))
    } == edges
    timed = place("bench", "small.txt", "--repeats", "1", "--json").json
    assert {row["library"] for row in timed["rows"]} >= {"goffish", "scipy"}


def test_counters_for_plots(place: Place) -> None:
    ended = place("run", "sssp", "grid.gofs", "--source", "0", "--stats-file", "run.json", "-o", "d.csv", "--json")
    body = json.loads((place / "run.json").read_text())
    assert set(body) == {"algorithm", "input", "summary", "stats"}
    assert body["summary"] == ended.json["summary"]
    assert body["stats"] == ended.json["stats"]
    assert len({row["superstep"] for row in body["stats"]["steps"]}) == body["stats"]["supersteps"]
    raw = place("run", "components", "small.txt", "--stats-file", "raw.json")
    assert "counters written to raw.json" in raw.out
    assert json.loads((place / "raw.json").read_text())["stats"]["engine"] == "local"


def test_a_given_method_is_used(shared: Place) -> None:
    """Naming a partitioning method asks for the engine; it is not ignored in favour of the whole-graph kernel."""
    body = shared("run", "components", "grid.txt", "--method", "hash", "--parts", "2", "--json").json
    assert body["stats"]["edge_cut"] > 0.3
    body = shared("run", "components", "grid.txt", "--method", "range", "--json").json
    assert body["stats"]["edge_cut"] < 0.1


def test_predefined_assignment(place: Place) -> None:
    (place / "owner.csv").write_text("".join(f"{v},{v % 2}\n" for v in (1, 2, 3, 4, 7, 8)))
    args = ("partition", "small.txt", "-o", "s.gofs", "-k", "2", "--method", "predefined", "--assignment", "owner.csv")
    figures = place(*args, "--json").json["quality"]
    expected = sum(u % 2 != v % 2 for u, v in oracle().edges)
    assert figures["edge_cut"] == expected


@pytest.mark.parametrize(
    "args",
    [
        ("run", "components", "grid.gofs", "--json"),
        pytest.param(("info", "grid.gofs"), marks=pytest.mark.slow),
        pytest.param(("--help",), marks=pytest.mark.slow),
    ],
)
def test_broken_pipe(shared: Place, args: tuple[str, ...]) -> None:
    """``goffish … | head -c 10``: the reader has seen enough, and that is no error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "goffish", *args], cwd=shared.path, env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0


def test_communities_and_what_belongs_to_them(place: Place) -> None:
    """All levels, the table of communities, a warm start, fixed vertices and a truth, from files to files."""
    first = place(
        "run", "louvain", "small.txt", "-o", "found.csv", "--hierarchy", "levels.parquet", "--communities", "table.csv"
    )
    assert first.code == 0
    levels = pq.read_table(place / "levels.parquet")
    assert levels.column_names == ["level", "vertex", "community"]
    assert set(levels["vertex"].to_pylist()) == {1, 2, 3, 4, 7, 8}
    header, *rows = (place / "table.csv").read_text().splitlines()
    assert header.startswith('"community","size","internal_weight","cut_weight"')
    assert sum(int(row.split(",")[1]) for row in rows) == 6
    (place / "fixed.csv").write_text("vertex,community\n1,5\n2,6\n")
    body = place("run", "louvain", "small.txt", "--initial", "found.csv", "--truth", "found.csv", "--json").json
    assert (body["summary"]["nmi"], body["summary"]["compared"]) == (1.0, 6)
    held = {
        row["vertex"]: row["community"]
        for row in place("run", "louvain", "small.txt", "--fixed", "fixed.csv", "--json").json["rows"]
    }
    assert held[1] != held[2]
    for options, told in (
        (("--initial", "nowhere.csv"), "existing table file"),
        (("--fixed", "fixed.csv", "--min-size", "3"), "mutually exclusive"),
        (("--hierarchy", "levels.txt"), "suffix"),
        (("--seed", "x"), "random"),
        (("--level", "9"), "must be from 1 to"),
    ):
        ended = place("run", "louvain", "small.txt", *options)
        assert ended.code == 2
        assert told in ended.err
        assert len(ended.err.splitlines()) == 1


def test_landscape_from_file_to_page(place: Place) -> None:
    """Table and page of one run, the same on every run, and refusals before any work."""
    told = place("run", "landscape", "names.csv", "-o", "l.csv", "--html", "l.html", "--members", "1", "--json").json
    assert (told["output"], told["html"]) == ("l.csv", "l.html")
    assert told["summary"]["betweenness"] == "exact"
    header, *rows = (place / "l.csv").read_text().splitlines()
    assert header.startswith('"level","community","size","internal_weight","cut_weight","parent","rank","vertex"')
    assert {row.split(",")[7] for row in rows} <= {'"a"', '"b"', '"c"', '"d"'}
    first = (place / "l.html").read_bytes()
    assert b"<title>Communities of names.csv</title>" in first
    again = place("run", "landscape", "names.csv", "--html", "again.html", "--members", "1", "--threads", "1")
    assert "html written to again.html" in again.out
    assert (place / "again.html").read_bytes() == first
    before = place.files()
    for options, reason in (
        (("--html", "l.pdf"), "l.pdf: the suffix must be one of .html, .htm"),
        (("--html", "nowhere/l.html"), "the folder nowhere does not exist"),
        (("--members", "0"), "members=0"),
        (("--epsilon", "0.1", "--weighted"), "omit weighted"),
        (("--paths", "all"), "'graph' or 'community'"),
        (("--parts", "2"), "No such option: --parts"),
    ):
        ended = place("run", "landscape", "names.csv", "-o", "x.csv", *options)
        assert (ended.code, ended.out) == (2, "")
        assert reason in ended.err
        assert len(ended.err.splitlines()) == 1
    assert place.files() == before
