"""METIS, Matrix Market, DIMACS, Parquet, Arrow, GraphML, GML: against networkx, SciPy and by round trips."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import fsspec
import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from goffish.errors import InputError
from goffish.graph import from_edges, from_networkx, read, to_scipy, write
from goffish.graph.io import streams
from tests.graph.graph_helpers import DATA, assert_same, edge_set


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 8)
TEXTS = st.sampled_from(["a", "b", "", "#x", "%y", " z ", 'q"q', "c,d", "e;f\tg", "é", "1", "label"])
XML_TEXTS = st.sampled_from(["a", "b", "x y", "é", "1", "<&>"])


@st.composite
def graphs(draw, labels=INTEGERS, whole=False, plain=False):
    """Graphs of every kind; `plain` leaves out what edge lists cannot hold."""
    ids = TEXTS if labels is TEXTS else XML_TEXTS if labels is XML_TEXTS else INTEGERS
    rows = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=20))
    numbers = st.integers(0, 99).map(float) if whole else st.floats(0, 1e300)
    weights = draw(st.none() | st.lists(numbers, min_size=len(rows), max_size=len(rows)))
    times = draw(st.none() | st.lists(st.integers(-(2**62), 2**62), min_size=len(rows), max_size=len(rows)))
    attributes = {} if times is None else {"timestamp": times}
    if not plain and draw(st.booleans()):
        attributes["kind"] = draw(st.lists(XML_TEXTS, min_size=len(rows), max_size=len(rows)))
    isolated = [] if plain else draw(st.lists(ids, max_size=3))
    graph = from_edges(
        [u for u, _ in rows], [v for _, v in rows], weights, directed=draw(st.booleans()),
        self_loops="keep", parallel=draw(st.sampled_from(["min", "keep"])),
        isolated=isolated or None, edge_attributes=attributes or None,
    )  # fmt: skip
    if plain or draw(st.booleans()):
        return graph
    src, dst, weight, table = graph.edge_columns()
    return from_edges(
        src, dst, weight, directed=graph.directed, labels=graph.label_column(), self_loops="keep",
        parallel="keep", edge_attributes=table,
        vertex_attributes={"size": np.arange(graph.num_vertices)},
    )  # fmt: skip


KEEP = {"self_loops": "keep", "parallel": "keep"}


@given(graph=graphs() | graphs(TEXTS), suffix=st.sampled_from(["parquet", "arrow", "csr"]))
def test_columnar_formats_lose_nothing(folder, graph, suffix):
    path = folder / f"g.{suffix}"
    write(graph, path)
    assert_same(read(path, **KEEP), graph)


@given(graph=graphs(plain=True), suffix=st.sampled_from(["csv", "tsv", "txt", "txt.gz", "csv.bz2", "edges.zst"]))
def test_edge_lists_keep_edges(folder, graph, suffix):
    path = folder / f"g.{suffix}"
    write(graph, path)
    says_directed = suffix[:3] not in ("csv", "tsv")
    assert_same(read(path, directed=None if says_directed else graph.directed, **KEEP), graph)


@given(
    graph=graphs(TEXTS, plain=True),
    suffix=st.sampled_from(["csv", "tsv", "txt"]),
    separator=st.sampled_from([None, ";", "|"]),
)
def test_edge_lists_keep_awkward_strings(folder, graph, suffix, separator):
    path = folder / f"g.{suffix}"
    write(graph, path, separator=separator)
    back = read(path, directed=graph.directed, separator=separator or ("," if suffix == "csv" else "\t"), **KEEP)
    if graph.label_column().to_pylist() == ["1"]:  # strings that are all integers come back as integers
        assert back.label_column().to_pylist() == [1]
        return
    assert_same(back, graph)


@given(graph=graphs() | graphs(XML_TEXTS), suffix=st.sampled_from(["graphml", "gml", "gml.gz"]))
def test_graphml_and_gml_keep_everything_but_numbers_in_strings(folder, graph, suffix):
    path = folder / f"g.{suffix}"
    write(graph, path)
    back = read(path, **KEEP)
    if graph.label_column().to_pylist() == ["1"]:
        return
    if graph.num_edges == 0:  # no edge, no type for the columns
        assert back.label_column().to_pylist() == graph.label_column().to_pylist()
        return
    assert back.label_column().to_pylist() == graph.label_column().to_pylist()
    assert sorted(edge_set(back)) == sorted(edge_set(graph))


@given(
    graph=graphs(whole=True),
    suffix=st.sampled_from(["metis", "metis.gz", "graph"]),
    block=st.sampled_from([64, 4 << 20]),
)
def test_metis_keeps_structure_and_whole_weights(folder, graph, suffix, block):
    src, dst, weight, _ = graph.edge_columns()
    graph = from_edges(
        src, dst, weight, labels=np.arange(1, graph.num_vertices + 1),
        vertex_attributes={"weight": np.arange(graph.num_vertices)} if graph.num_vertices % 2 else None,
    )  # fmt: skip
    path = folder / f"g.{suffix}"
    write(graph, path)
    before, streams.BLOCK = streams.BLOCK, block
    try:
        assert_same(read(path), graph)
    finally:
        streams.BLOCK = before


def test_metis_vertex_sizes_and_several_weights(tmp_path):
    path = tmp_path / "a.graph"
    path.write_text("% c\n3 2 111 2\n9 1 2  2 5\n% c\n8 3 4  1 5 3 7\n7 5 6  2 7\n")
    graph = read(path)
    assert edge_set(graph) == [(1, 2, 5.0), (2, 3, 7.0)]
    assert graph.vertex_attributes.to_pydict() == {
        "size": [9, 8, 7], "weight_1": [1, 3, 5], "weight_2": [2, 4, 6]
    }  # fmt: skip


def test_metis_blank_lines_are_isolated_vertices(tmp_path):
    path = tmp_path / "a.metis"
    path.write_text("4 1\n\n4\n\n2\n")
    assert read(path).out_degrees.tolist() == [0, 1, 0, 1]


def test_published_metis_file():
    """The figures are those of Watts and Strogatz."""
    graph = read(DATA / "power.metis.gz")
    assert (graph.num_vertices, graph.num_edges) == (4_941, 6_594)


@pytest.mark.parametrize("text", ["4 4 0\n2 3 \n1 3 4 \n1 2 \n2 \n", "4 4\n 2 3\n 1 3 4\n 1 2\n 2\n"])
def test_metis_lines_with_blanks_at_either_end(tmp_path, text):
    """As in the files of DIMACS and of Walshaw's archive."""
    (tmp_path / "a.metis.gz").write_bytes(gzip.compress(text.encode()))
    assert edge_set(read(tmp_path / "a.metis.gz")) == [(1, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0), (2, 4, 1.0)]


def test_matrix_with_the_head_of_the_sparse_matrix_collection(tmp_path):
    line = f"%{'-' * 79}\n"
    head = f"%%MatrixMarket matrix coordinate pattern symmetric\n{line}% name: Gleich/usroads\n% [US roads]\n{line}"
    (tmp_path / "a.mtx.gz").write_bytes(gzip.compress(f"{head}5 5 4\n2 1\n3 1\n3 2\n4 4\n".encode()))
    graph = read(tmp_path / "a.mtx.gz")
    assert (graph.num_vertices, graph.directed, graph.weights) == (5, False, None)
    assert edge_set(graph) == [(1, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0)]


@pytest.mark.parametrize("field", ["pattern", "real", "integer"])
@pytest.mark.parametrize("symmetry", ["symmetric", "general"])
def test_matrix_market_written_by_scipy(tmp_path, field, symmetry):
    generator = np.random.default_rng(1)
    matrix = scipy.sparse.random_array((40, 40), density=0.1, rng=generator, format="csr")
    matrix.data = np.ceil(matrix.data * 9) if field != "real" else matrix.data
    if symmetry == "symmetric":
        matrix = (matrix + matrix.T).tocsr()
    path = tmp_path / "a.mtx"
    scipy.io.mmwrite(path, matrix.astype(np.int64) if field == "integer" else matrix, field=field, symmetry=symmetry)
    graph = read(path, self_loops="keep")
    assert graph.directed == (symmetry == "general")
    wanted = (matrix != 0).astype(float) if field == "pattern" else matrix
    assert np.allclose(to_scipy(graph).toarray(), wanted.toarray(), rtol=1e-12)
    assert graph.label_column().to_pylist() == list(range(1, 41))
    doubled = read(path, directed=True, self_loops="keep")
    assert np.allclose(to_scipy(doubled).toarray(), wanted.toarray(), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_scipy_reads_the_matrix_that_we_write(folder, graph):
    path = folder / "g.mtx"
    write(graph, path)
    assert np.allclose(scipy.io.mmread(path).toarray(), to_scipy(graph).toarray(), rtol=1e-12)
    back = read(path, **KEEP)
    labels = np.arange(1, graph.num_vertices + 1)
    assert_same(back, from_edges(*graph.edge_columns()[:3], labels=labels, directed=graph.directed, **KEEP))


def test_dimacs(tmp_path):
    (tmp_path / "a.gr").write_text("c hello\np sp 4 3\nc\na 1 2 5\na 2 1 7\na 1 3 2\n")
    graph = read(tmp_path / "a.gr")
    assert graph.directed
    assert edge_set(graph) == [(1, 2, 5.0), (1, 3, 2.0), (2, 1, 7.0)]
    assert graph.num_vertices == 4
    (tmp_path / "a.col").write_text("c hello\np edge 4 2\nn 1 7\ne 1 2\ne 4 2\n")
    graph = read(tmp_path / "a.col")
    assert not graph.directed
    assert edge_set(graph) == [(1, 2, 1.0), (2, 4, 1.0)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.metis", "4 3 1\n2 5 3 6\n1 5\n1 6 4 7\n3 7\n"),
        ("a.mtx", "%%MatrixMarket matrix coordinate real symmetric\n4 4 3\n2 1 5\n3 1 6\n4 3 7\n"),
        ("a.col", "p edge 4 3\ne 1 2\ne 1 3\ne 4 3\n"),
    ],
)
def test_undirected_formats_read_as_directed_have_both_arcs(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    graph, doubled = read(tmp_path / name), read(tmp_path / name, directed=True)
    assert not graph.directed
    assert doubled.directed
    assert np.array_equal(to_scipy(doubled).toarray(), to_scipy(graph).toarray())
    assert doubled.num_edges == 6


def test_parquet_of_other_tools(tmp_path):
    table = pa.table({"when": [7, 8], "dst": ["b", "c"], "src": ["a", "b"], "w": [1.5, 2.5]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    calls = []
    graph = read(tmp_path / "a.parquet", progress=lambda *call: calls.append(call))
    assert edge_set(graph) == [("a", "b", 1.5), ("b", "c", 2.5)]
    assert graph.edge_attributes.to_pydict() == {"when": [7, 8]}
    assert len(calls) == 2
    graph = read(tmp_path / "a.parquet", columns={"weight": "when"}, weighted=True)
    assert edge_set(graph) == [("a", "b", 7.0), ("b", "c", 8.0)]
    assert read(tmp_path / "a.parquet", weighted=False).weights is None


def test_gml_without_labels_goes_by_id(tmp_path):
    (tmp_path / "a.gml").write_text("graph [ node [ id 5 ] node [ id 7 ] edge [ source 5 target 7 value 3 ] ]")
    graph = read(tmp_path / "a.gml")
    assert edge_set(graph) == [(5, 7, 1.0)]
    assert graph.edge_attributes.to_pydict() == {"value": [3]}


def test_networkx_files(tmp_path):
    graph = nx.karate_club_graph()
    nx.write_graphml(graph, tmp_path / "a.graphml")
    nx.write_gml(graph, tmp_path / "a.gml")
    wanted = from_networkx(graph)
    for name in ("a.graphml", "a.gml"):
        assert_same(read(tmp_path / name), wanted)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mm.txt", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n2 1\n"),
        ("gml.txt", 'Creator "x"\ngraph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]'),
        ("gr", "c x\np sp 2 1\na 1 2 1\n"),
        ("edges", "# x\n1 2\n"),
        (
            "graph.xml",
            '<?xml version="1.0"?><graphml><graph edgedefault="directed">'
            '<edge source="1" target="2"/></graph></graphml>',
        ),
    ],
)
def test_content_decides_where_the_name_does_not(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert read(tmp_path / name).num_edges == 1


def test_formats_refuse_what_they_cannot_hold(tmp_path):
    directed = from_edges([1], [2], [0.5], directed=True)
    loops = from_edges([1, 1], [1, 2], self_loops="keep")
    for graph, name, message in [
        (directed, "a.metis", "undirected"),
        (loops, "a.metis", "self-loops"),
        (from_edges([1], [2], [0.5]), "a.metis", "store only integers"),
        (directed, "a.gr", "not written"),
        (directed, "a.xyz", "unknown suffix"),
        (from_edges(["a\nb"], ["c"]), "a.txt", "line break"),
    ]:
        with pytest.raises(InputError, match=message):
            write(graph, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "suffix", ["txt", "csv.gz", "edges.zst", "metis", "mtx.bz2", "parquet", "arrow", "csr", "gml", "graphml"]
)
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"a.{suffix}"
    graph = from_edges([1], [2])
    write(graph, path)
    before = path.read_bytes()

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write(from_edges([1, 3], [2, 4]), path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_a_full_device_in_the_middle(tmp_path, monkeypatch):
    """The first bytes already fail: as on a full disk, but with a real device."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    graph = from_edges(np.arange(10_000), np.arange(10_000) + 1)
    opened = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, *mode: opened(Path("/dev/full"), "wb") if path.suffix == ".partial" else opened(path, *mode),
    )
    with pytest.raises(InputError, match="No space left on device"):
        write(graph, tmp_path / "a.txt")
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path):
    graph = from_edges([1], [2])
    with pytest.raises(InputError, match="No such file or directory"):
        write(graph, tmp_path / "no" / "a.txt")
    with pytest.raises(InputError, match="is a directory"):
        write(graph, tmp_path, "edges")


def test_write_to_a_url():
    graph = from_edges([1, 2], [2, 3])
    write(graph, "memory://out/a.txt.gz")
    assert_same(read("memory://out/a.txt.gz"), graph)


def test_the_same_graph_gives_the_same_bytes(tmp_path):
    graph = from_edges([1, 2], [2, 3])
    for name in ("a.txt.gz", "b.txt.gz"):
        write(graph, tmp_path / name)
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()


def test_many_arcs_are_written_in_pieces(tmp_path, monkeypatch):
    from goffish.graph.io import edge_list, metis

    monkeypatch.setattr(metis, "_ARCS_PER_PIECE", 50)
    monkeypatch.setattr(edge_list, "_ROWS_PER_PIECE", 7)
    generator = np.random.default_rng(0)
    graph = from_edges(
        generator.integers(0, 60, 200), generator.integers(0, 60, 200), generator.integers(1, 9, 200),
        labels=np.arange(1, 71),
    )  # fmt: skip
    for name in ("a.metis", "a.mtx"):
        write(graph, tmp_path / name)
        assert_same(read(tmp_path / name), graph)


@pytest.mark.parametrize("remote", [False, True])
def test_folders_of_parquet(tmp_path, remote):
    """As Spark and Hive write them: columns in names of folders, files with more columns, and files to leave out."""
    place = "memory://lake/calls/" if remote else f"{tmp_path}/calls"
    system, root = fsspec.core.url_to_fs(place)
    tables = {
        "zone=007/part-0.parquet": pa.table({"v": ["a", "b"], "weight": [1.0, 2.0]}),
        "zone=7/part-0.parquet": pa.table({"weight": [3.0], "kind": ["new"], "v": ["c"], "zone": [9]}),
        "_temporary/part-1.parquet": pa.table({"v": ["x"], "weight": [9.0]}),
    }
    for name, table in tables.items():
        system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        with system.open(f"{root}/{name}", "wb") as file:
            parquet.write_table(table, file)
    system.touch(f"{root}/_SUCCESS")
    seen = []
    graph = read(place, columns={"source": "zone", "target": "v"}, progress=lambda *given: seen.append(given))
    edges = sorted(
        zip(*(graph.edges[name].to_pylist() for name in ("source", "target", "weight", "kind")), strict=True)
    )
    assert edges == [("007", "a", 1.0, None), ("007", "b", 2.0, None), ("7", "c", 3.0, "new")]
    assert len(seen) == 2 and seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(InputError, match=r"calls.*: no column 'u' for source; the columns are v, weight, zone, kind"):
        read(place, columns={"source": "u"})
    with system.open(f"{root}/zone=7/part-1.parquet", "wb") as file:
        file.write(b"PAR1 damaged PAR1")
    with pytest.raises(InputError, match=r"zone=7/part-1\.parquet: cannot be read as a Parquet file") as caught:
        read(place)
    assert "\n" not in str(caught.value)
    system.rm(root, recursive=True)
    if not remote:
        (tmp_path / "none").mkdir()
        with pytest.raises(InputError, match=r"none: is a folder without manifest\.json and \.parquet files; give"):
            read(tmp_path / "none")
