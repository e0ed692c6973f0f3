"""The edge-list reader: dialects, header guesses, ids and numbers, against a line-by-line parser."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from goffish.graph import read
from goffish.graph.io import streams
from tests.graph.graph_helpers import DATA, build_by_hand, edge_set, parse_by_hand


def read_text(tmp_path, text, name="edges.txt", **options):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(path, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("edges")


ROW = st.tuples(
    st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20),
    st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20),
    st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 10**22).map(float),
)
BLANKS = [" ", "\t", "  ", " \t "]


@given(
    rows=st.lists(ROW, min_size=1, max_size=30),
    separator=st.sampled_from([None, ",", ";", "|", "\t"]),
    weighted=st.booleans(),
    directed=st.booleans(),
    block=st.sampled_from([256, 1024, 4 << 20]),
    seed=st.integers(0, 99),
)
def test_any_dialect_agrees_with_a_line_by_line_parser(folder, rows, separator, weighted, directed, block, seed):
    chance = random.Random(seed)
    lines = []
    for u, v, w in rows:
        fields = [str(u), str(v)] + ([chance.choice([repr(w), f"{w:.17e}"])] if weighted else [])
        glue = chance.choice(BLANKS) if separator is None else separator + chance.choice(["", " "])
        lines.append(chance.choice(["", " "]) + glue.join(fields) + chance.choice(["", " ", "\r", "\t\r"]))
        if chance.random() < 0.2:
            lines.append(chance.choice(["", "   ", "# a comment, with 1 2", "% 3 4", "\r"]))
    text = "\n".join(lines) + chance.choice(["", "\n", "\n\n"])
    text = text.replace("\t\r", "\r") if separator == "\t" else text
    before, streams.BLOCK = streams.BLOCK, block
    try:
        graph = read_text(folder, text, directed=directed, separator=separator, self_loops="keep", parallel="keep")
    finally:
        streams.BLOCK = before
    wanted = parse_by_hand(text, separator)
    assert edge_set(graph) == build_by_hand(wanted, directed=directed, self_loops="keep", parallel="keep")


@pytest.mark.parametrize("block", [64, 100, 1000])
def test_blocks_of_any_size_give_the_same_graph(tmp_path, monkeypatch, block):
    """Lines and words cut by the end of a block must be put together again."""
    generator = np.random.default_rng(5)
    text = "".join(f"{u}\t{v}\t{w}\n" for u, v, w in zip(*generator.integers(0, 10**6, (3, 500)), strict=True))
    whole = read_text(tmp_path, text, parallel="keep")
    monkeypatch.setattr(streams, "BLOCK", block)
    monkeypatch.setattr(streams, "MARGIN", 64)
    pieces = read_text(tmp_path, text, parallel="keep")
    assert edge_set(whole) == edge_set(pieces) == build_by_hand(
        parse_by_hand(text), directed=False, parallel="keep"
    )  # fmt: skip


LABEL = st.text(st.characters(codec="utf-8", exclude_characters="\n\r", exclude_categories=("Cc", "Cs")), max_size=8)


@given(
    rows=st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=20),
    block=st.sampled_from([512, 4 << 20]),
)
def test_quoted_strings_agree_with_the_csv_module(folder, rows, block):
    import csv

    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("source", "target"), *rows])
    before, streams.BLOCK = streams.BLOCK, block
    try:
        graph = read_text(folder, buffer.getvalue(), "edges.csv", self_loops="keep", parallel="keep")
    finally:
        streams.BLOCK = before
    by_number = sorted({label for row in rows for label in row}, key=str.encode)
    labels = graph.label_column().to_pylist()
    if all(isinstance(label, int) for label in labels):  # ids that are all integers are integers
        assert sorted(map(str, labels)) == sorted({str(int(label)) for label in by_number})
        return
    assert labels == by_number
    u, v, _, _ = graph.edge_columns()
    found = sorted(tuple(sorted((labels[a], labels[b]))) for a, b in zip(u, v, strict=True))
    assert found == sorted(tuple(sorted(row)) for row in rows)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".gz", lambda b: gzip.compress(b[:8]) + gzip.compress(b[8:])),
        (".bz2", bz2.compress),
        (".zst", zstandard.compress),
        (".zst", lambda b: zstandard.compress(b[:8]) + zstandard.compress(b[8:])),
    ],
)
def test_compression_by_content_whatever_the_name(tmp_path, suffix, pack):
    text = b"1 2\n2 3\n3 1\n4 1\n"
    assert edge_set(read_text(tmp_path, pack(text), "a.txt" + suffix)) == edge_set(
        read_text(tmp_path, pack(text), "misnamed.txt")
    )
    assert len(edge_set(read(tmp_path / ("a.txt" + suffix)))) == 4


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("\ufeff1 2\n2 3", [(1, 2, 1.0), (2, 3, 1.0)]),
        ("1 2\r\n2 3\r\n", [(1, 2, 1.0), (2, 3, 1.0)]),
        ("\n\n  1 \t 2  \n\n2\t3", [(1, 2, 1.0), (2, 3, 1.0)]),
        ("source,target,weight\n1,2,0.5\n", [(1, 2, 0.5)]),
        ("weight;to;from\n0.5;2;1\n", [(1, 2, 0.5)]),
        ("id_1,id_2\n1,2\n", [(1, 2, 1.0)]),
        ("one,other\n1,2\n", [(1, 2, 1.0)]),
        ("ann bob\nbob eve\n", [("ann", "bob", 1.0), ("bob", "eve", 1.0)]),
        ("ann,bob,3\nbob,eve,4\n", [("ann", "bob", 3.0), ("bob", "eve", 4.0)]),
        ("person,friend,score\nann,bob,3\n", [("ann", "bob", 3.0)]),
        ("New York\tBoston\nBoston\tRome\n", [("Boston", "New York", 1.0), ("Boston", "Rome", 1.0)]),
        ("1 2\n2 x\n", [("1", "2", 1.0), ("2", "x", 1.0)]),
        ('"1","2"\n"3","4"\n', [(1, 2, 1.0), (3, 4, 1.0)]),
        ("1 2 {}\n2 3 {}\n", [(1, 2, 1.0), (2, 3, 1.0)]),
        ("1,2,\n2,3,\n", [(1, 2, 1.0), (2, 3, 1.0)]),
        ("+1 -2\n007 1\n", [(-2, 1, 1.0), (1, 7, 1.0)]),
        ("# source\ttarget\nNew York\tBoston\n", [("Boston", "New York", 1.0)]),
    ],
)
def test_dialects(tmp_path, text, edges):
    assert edge_set(read_text(tmp_path, text)) == edges


@pytest.mark.parametrize(
    ("text", "directed"),
    [
        ("1 2\n", False),
        ("# Directed graph: x.txt\n# Nodes: 2 Edges: 1\n# FromNodeId\tToNodeId\n1\t2\n", True),
        ("# Undirected graph: x.txt\n1\t2\n", False),
        ("# cit: 3 vertices, 2 edges, directed; ids from 1\n1 2\n", True),
        ("% sym unweighted\n% 1 2 2\n1 2\n", False),
        ("% asym positive\n1 2 3\n", True),
    ],
)
def test_the_header_comment_says_whether_it_is_directed(tmp_path, text, directed):
    assert read_text(tmp_path, text).directed is directed
    assert read_text(tmp_path, text, directed=not directed).directed is not directed


def test_konect_weight_and_time(tmp_path):
    graph = read_text(tmp_path, "% asym weighted\n1 2 3 1000000000\n2 3 1 1000000001\n", "out.friends")
    assert edge_set(graph) == [(1, 2, 3.0), (2, 3, 1.0)]
    assert graph.edge_attributes.to_pydict() == {"timestamp": [1000000000, 1000000001]}


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("1 2 9007199254740993\n2 3 -4\n", [9007199254740993, -4]),
        ("1 2 1.5\n2 3 2\n", [1.5, 2.0]),
        ("1 2 1\n2 3 2.5\n", [1.0, 2.5]),
    ],
)
def test_times_are_integers_where_all_of_them_are(tmp_path, text, times):
    graph = read_text(tmp_path, text, columns={"timestamp": 2})
    assert graph.weights is None
    assert graph.edge_attributes["timestamp"].to_pylist() == times


def test_columns_by_name_and_position(tmp_path):
    text = "a,b,c,d\n1,2,3,4\n"
    assert edge_set(read_text(tmp_path, text, columns={"source": "c", "target": 3, "weight": "a"})) == [(3, 4, 1.0)]
    assert edge_set(read_text(tmp_path, text, columns={"target": "d"})) == [(1, 4, 1.0)]


def test_weights_can_be_ignored(tmp_path):
    assert read_text(tmp_path, "1 2 x\n", weighted=False).weights is None
    assert read_text(tmp_path, "1 2 5\n", weighted=False).weights is None
    assert read_text(tmp_path, "1 2 5\n", weighted=True).weights.tolist() == [5.0, 5.0]


def test_first_row_can_be_forced_to_be_data_or_header(tmp_path):
    assert edge_set(read_text(tmp_path, "a,b\n1,2\n", header=False)) == [("1", "2", 1.0), ("a", "b", 1.0)]
    assert edge_set(read_text(tmp_path, "1,2\n3,4\n", header=True)) == [(3, 4, 1.0)]


def test_comment_characters_can_be_chosen(tmp_path):
    assert edge_set(read_text(tmp_path, "/ 1 2\n1 2\n", comments="/")) == [(1, 2, 1.0)]
    assert edge_set(read_text(tmp_path, "#a b\n", comments=())) == [("#a", "b", 1.0)]


def test_large_ids_after_small_ones(tmp_path):
    """The id columns start narrow and must widen in the middle of a file."""
    text = "".join(f"{i} {i + 1}\n" for i in range(1000)) + f"5 {2**40}\n"
    graph = read_text(tmp_path, text)
    assert graph.label_column().to_pylist() == [*range(1001), 2**40]


def test_numbers_round_as_python_does(tmp_path):
    generator = random.Random(7)
    texts = [repr(generator.uniform(0, 1) * 10.0 ** generator.randint(-300, 300)) for _ in range(3000)]
    texts += [
        "5e-324",
        "1e22",
        "1e23",
        "9007199254740993",
        "0.1",
        ".5",
        "5.",
        "1E+3",
        "0",
        "-0",
        "2.2250738585072011e-308",
    ]
    text = "".join(f"{i} {i + 1} {w}\n" for i, w in enumerate(texts))
    graph = read_text(tmp_path, text)
    assert [w for *_, w in edge_set(graph)] == [float(w) for w in texts]


def test_networkx_writes_what_we_read(tmp_path):
    graph = nx.gnm_random_graph(50, 200, seed=1, directed=True)
    nx.write_edgelist(graph, tmp_path / "nx.txt")
    assert {e[:2] for e in edge_set(read(tmp_path / "nx.txt", directed=True))} == set(graph.edges)


def test_progress_counts_the_stored_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK", 100)
    calls = []
    path = tmp_path / "a.txt"
    path.write_text("1 2\n" * 100)
    read(path, progress=lambda *call: calls.append(call))
    done = [d for d, _ in calls]
    assert done == sorted(done)
    assert calls[-1] == (400, 400)
    assert len(calls) >= 4


def test_a_pipe_can_be_read(tmp_path):
    code = "import sys; from goffish.graph import read; print(read('/dev/stdin', 'edges').num_edges)"
    done = subprocess.run([sys.executable, "-c", code], input="1 2\n2 3\n", capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


def test_urls(tmp_path):
    import fsspec

    with fsspec.open("memory://folder/a.txt.gz", "wb") as file:
        file.write(gzip.compress(b"1 2\n2 3\n"))
    assert read("memory://folder/a.txt.gz").num_edges == 2
    (tmp_path / "b.csv").write_text("1,2\n")
    assert read((tmp_path / "b.csv").as_uri()).num_edges == 1


def test_import_is_light():
    code = (
        "import sys, goffish.graph.io;"
        "heavy = {'networkx', 'pandas', 'polars', 'igraph', 'fsspec', 'scipy.sparse'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "vertices", "edges"),
    [("email-enron.txt.gz", 36_692, 183_831), ("road-california-major.txt.gz", 21_048, 21_693)],
)
def test_published_graphs(name, vertices, edges):
    """The figures are those of the publications, see data/README.md."""
    graph = read(DATA / name)
    assert (graph.num_vertices, graph.num_edges, graph.directed) == (vertices, edges, False)
    assert (graph.weights is not None) == name.startswith("road")


@pytest.mark.parametrize(
    ("name", "header", "rows", "directed"),
    [
        (
            "as-caida.txt",
            "# as-caida: 5 vertices, 4 edges, undirected; vertex ids from 1\n# source\ttarget\n",
            "\t",
            False,
        ),
        (
            "cit-hepph.txt",
            "# cit-hepph: 5 vertices, 4 edges, directed; vertex ids from 1\n# source\ttarget\n",
            "\t",
            True,
        ),
        ("p2p-gnutella31.txt", "# p2p-Gnutella31 (directed): 62586 147892\n", "\t", True),
        ("soc-epinions1.txt", "# soc-Epinions1 75877 405739 10\n", " ", False),
        ("musae-twitch-de.csv", "from,to\n", ",", False),
    ],
)
def test_heads_of_published_graphs(tmp_path, name, header, rows, directed):
    """As they stand in files of SNAP and others, over the same rows: 1 2 twice, 2 1, 2 3, 3 4, and a loop at 9."""
    text = header + "".join(f"{u}{rows}{v}\n" for u, v in [(1, 2), (1, 2), (2, 1), (2, 3), (3, 4), (9, 9)])
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    graph = read(tmp_path / f"{name}.gz")
    assert graph.label_column().to_pylist() == [1, 2, 3, 4, 9]
    assert (graph.directed, graph.weights) == (directed, None)
    once = [(1, 2, 1.0), (2, 3, 1.0), (3, 4, 1.0)]
    assert edge_set(graph) == sorted([*once, (2, 1, 1.0)] if directed else once)


def test_published_events():
    """The comment names the third column: seconds, not a weight."""
    graph = read(DATA / "collegemsg.txt.gz", directed=True, parallel="keep", self_loops="keep")
    assert (graph.num_vertices, graph.num_edges, graph.weights) == (1_899, 59_835, None)
    assert min(graph.edge_attributes["timestamp"].to_pylist()) == 1082040961
