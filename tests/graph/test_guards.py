"""Whatever a caller gives a constructor, reader or writer, the answer is a graph or one sentence of `InputError`."""

from __future__ import annotations

from pathlib import Path

import igraph
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import goffish as gf
from goffish.errors import InputError

TRIANGLE = gf.from_edges([0, 1, 2], [1, 2, 0])
TEXTS = gf.from_edges(["a", "b"], ["b", "c"])
NOTHING = [None, 5, 1.5, "x", b"x", [1], {"a": 1}, object(), int]


@pytest.mark.parametrize("isolated", [None, ["a", "b"]])
@pytest.mark.parametrize("empty", [[], pa.array([], pa.string()), np.array([], object), pl.Series([], dtype=pl.String)])
def test_columns_of_no_texts_make_a_graph_without_edges(empty, isolated) -> None:
    graph = gf.from_edges(empty, empty, isolated=isolated)
    assert (graph.num_edges, graph.label_column().to_pylist()) == (0, isolated or [])


def test_one_empty_column_among_texts_keeps_the_others_in_place() -> None:
    graph = gf.from_edges(["b"], ["a"], isolated=[])
    assert gf.to_arrow(graph).to_pydict() == {"source": ["a"], "target": ["b"]}


def test_empty_frames_of_texts() -> None:
    frame = pl.DataFrame({"source": [], "target": []}, schema={"source": pl.String, "target": pl.String})
    for make, given in (
        (gf.from_polars, frame),
        (gf.from_pandas, frame.to_pandas()),
        (gf.from_arrow, frame.to_arrow()),
    ):
        assert make(given).num_vertices == 0


@pytest.mark.parametrize(
    "column",
    [None, 1, 1.5, "ab", b"ab", {1: 2}, {1, 2}, (i for i in (1, 2)), [1.5, 2.5], [True, False], [[1], [1, 2]],
     [[1, 2], [3, 4]], [b"\xff", b"a"], ["\udcff", "a"], [1, "a"], [2**70, 1], [None, 1], np.array(5), int,
     np.ones((2, 2), int), pa.array([[1], [2]]), pl.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]})],
)  # fmt: skip
def test_what_is_no_column_of_labels_is_refused_everywhere(column) -> None:
    for make in (
        lambda: gf.from_edges(column, [1, 2]),
        lambda: gf.from_edges([1, 2], column),
        lambda: gf.from_edges([0], [1], labels=column if column is not None else 5),
        lambda: gf.from_edges([0], [1], isolated=column if column is not None else 5),
    ):
        with pytest.raises(InputError):
            make()


@pytest.mark.parametrize("graph", [TRIANGLE, TEXTS])
def test_find_takes_labels_only(graph) -> None:
    assert graph.find([]).tolist() == []
    for label in (1.5, None, True, 2**70, b"\xff", [[0]], {}, "nobody", -1):
        with pytest.raises(InputError):
            graph.find(label)


def test_texts_in_bytes_are_texts() -> None:
    assert gf.from_edges([b"a"], ["ü".encode()]).label_column().to_pylist() == ["a", "ü"]


@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        (np.array([1, 2j]), "real numbers"),
        ([1, 1j], "real numbers"),
        (["1", "2"], "strings"),
        (np.array(["1", 2], object), "strings"),
        ([[1], [1, 2]], "real numbers"),
        ([[1, 2]], "shape"),
        (5, "shape"),
        (np.array(["2020-01-01"] * 2, "M8[D]"), "real numbers"),
        ([1, 2**53 + 1], r"row 1 holds 9007199254740993.*2\^53"),
        (np.array([2**63 - 1, 1]), "row 0"),
        (np.array([1, 2**64 - 1], np.uint64), "row 1"),
    ],
)
def test_weights_that_are_none(weight, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        gf.from_edges([0, 1], [1, 2], weight)


def test_large_whole_weights_that_are_exact_stay() -> None:
    exact = [2**53, 2**60, 2**63]
    assert gf.from_edges([0, 1, 2], [1, 2, 3], np.array(exact, np.uint64)).edge_columns()[2].tolist() == exact


@pytest.mark.parametrize(("ends", "named"), [([7, 9], "7 - 9"), (["u", "v"], "'u' - 'v'"), ([0, 1], "0 - 1")])
def test_a_sum_of_weights_beyond_float64_names_the_edge(ends, named: str) -> None:
    with pytest.raises(InputError, match=named):
        gf.from_edges(ends[:1] * 2, ends[1:] * 2, [1.7e308] * 2, parallel="sum")


def test_attributes_come_from_tables_of_any_kind() -> None:
    columns = {"a": [1, 2], "b": ["x", None]}
    for given in (columns, pa.table(columns), pd.DataFrame(columns), pl.DataFrame(columns)):
        graph = gf.from_edges([0, 1], [1, 2], edge_attributes=given)
        assert graph.edge_columns()[3].to_pydict() == columns


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"a": [1, 2], "b": [1]}, "'b' has 1 rows, expected 2"),
        ({"a": [1, "x"]}, "'a' cannot be stored in one column"),
        ({"a": 5}, "'a' cannot be stored"),
        ({"a": "xy"}, "'a' cannot be stored"),
        ({1: [1, 2]}, "must be a string"),
        ([1, 2], "expected a table"),
        ("xy", "expected a table"),
        (5, "expected a table"),
        (pa.table([[1, 2], [3, 4]], names=["a", "a"]), "two columns are named 'a'"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "two columns have the same name"),
        (pd.DataFrame({"a": [1]}), "1 rows, expected 2"),
    ],
)
def test_attributes_that_do_not_fit(given, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        gf.from_edges([0, 1], [1, 0], edge_attributes=given, parallel="keep")
    with pytest.raises(InputError, match=problem):
        gf.from_edges([0], [1], vertex_attributes=given)


@pytest.mark.parametrize("given", [*NOTHING, np.eye(3), nx.path_graph(2), pd.DataFrame(), igraph.Graph(2)])
@pytest.mark.parametrize("name", ["arrow", "pandas", "polars", "networkx", "igraph", "scipy"])
def test_objects_of_the_wrong_kind(name: str, given) -> None:
    if (name, type(given)) in {("networkx", nx.Graph), ("igraph", igraph.Graph)}:
        return
    with pytest.raises(InputError):
        getattr(gf, f"from_{name}")(given)


def test_frames_and_matrices_of_the_wrong_form() -> None:
    with pytest.raises(InputError, match="two columns have the same name"):
        gf.from_pandas(pd.DataFrame([[1, 2, 3]], columns=["source", "target", "target"]))
    with pytest.raises(InputError, match="two columns are named 'target'"):
        gf.from_arrow(pa.table([[1], [2], [3]], names=["source", "target", "target"]))
    with pytest.raises(InputError, match="vertices"):
        gf.from_pandas(pd.DataFrame({"source": [1], "target": [2]}), vertices=[1, 2])
    with pytest.raises(InputError, match="not square"):
        gf.from_scipy(sparse.coo_array(np.ones(3)))


@pytest.mark.parametrize("path", [None, 5, b"x.txt", "", "a\0b.txt", ["x.txt"]])
def test_what_is_no_path(path) -> None:
    for call in (lambda: gf.read(path), lambda: gf.write(TRIANGLE, path)):
        with pytest.raises(InputError, match="path"):
            call()


def test_writing_what_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"graph is of type str: .*then the path"):
        gf.write(str(tmp_path / "g.txt"), TRIANGLE)
    for given in (None, 5, nx.path_graph(2), gf.partition(TRIANGLE, 1)):
        with pytest.raises(InputError, match="Graph"):
            gf.write(given, tmp_path / "g.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options",
    [{"separator": 5}, {"comments": 5}, {"comments": [5]}, {"columns": "a"}, {"columns": {"source": 1.5}},
     {"progress": 5}, {"format": 5}, {"self_loops": 5}, {"parallel": []}],
)  # fmt: skip
def test_reading_options_of_the_wrong_type(tmp_path: Path, options) -> None:
    path = tmp_path / "g.txt"
    path.write_text("1 2\n2 3\n")
    with pytest.raises(InputError):
        gf.read(path, **options)
    if "separator" in options:
        with pytest.raises(InputError):
            gf.write(TRIANGLE, path, **options)


@pytest.mark.parametrize("name", ["arrow", "pandas", "polars", "networkx", "igraph", "scipy"])
def test_only_graphs_are_converted(name: str) -> None:
    for given in (None, 5, nx.path_graph(2), gf.partition(TRIANGLE, 1)):
        with pytest.raises(InputError, match="to_graph"):
            getattr(gf, f"to_{name}")(given)
