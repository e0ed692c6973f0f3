"""Given assignments: every accepted form, and every refusal with its place."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import FormatError, InputError
from goffish.graph import from_edges
from goffish.partition import assign
from tests.partition.partition_graphs import edgeless

NUMBERS = from_edges([10, 20, 30], [20, 30, 40])
WORDS = from_edges(["ann", "bob"], ["bob", "cy d"])
OWNER = [1, 0, 2, 1]


def use(graph, given_, parts=3):
    return assign(graph, parts, "predefined", assignment=given_).tolist()


@pytest.mark.parametrize(
    "text",
    [
        "10,1\n20,0\n30,2\n40,1\n",
        "label,part\n40,1\n10,1\n30,2\n20,0",
        "# made by hand\n10 1\n\n  20   0\n% more\n30\t2\n40 1\n".replace("\t", " "),
        "vertex\tpart\r\n10\t1\r\n20\t0\r\n30\t2\r\n40\t1\r\n",
        '"label" ; "part"\n"40"; 1\n"30" ;2\n20;0\n10;1\n',
        "\ufeff10, 1\n20, 0\n30, 2\n40, 1\n",
        "1\n0\n2\n1\n",
        "  1\n# comment\n0\n2\n\n1",
    ],
)
def test_text_files(tmp_path, text):
    path = tmp_path / "owner.txt"
    path.write_text(text, newline="")
    assert use(NUMBERS, path) == OWNER
    packed = tmp_path / "owner.txt.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert use(NUMBERS, str(packed)) == OWNER


def test_string_labels(tmp_path):
    path = tmp_path / "owner.csv"
    path.write_text("name,part\ncy d,2\nann,0\nbob,1\n")
    assert use(WORDS, path) == [0, 1, 2]
    assert use(WORDS, {"bob": 1, "ann": 0, "cy d": 2}) == [0, 1, 2]


def test_parquet(tmp_path):
    path = tmp_path / "owner.parquet"
    pq.write_table(pa.table({"id": [40, 10, 20, 30], "part": [1, 1, 0, 2]}), path)
    assert use(NUMBERS, path) == OWNER
    pq.write_table(pa.table({"part": pa.array(OWNER, pa.int16())}), path)
    assert use(NUMBERS, path) == OWNER


def test_arrays_and_mappings():
    for given_ in (OWNER, np.array(OWNER, np.uint8), pa.array(OWNER), pa.chunked_array([OWNER])):
        assert use(NUMBERS, given_) == OWNER
    assert use(NUMBERS, dict(zip([10, 20, 30, 40], OWNER, strict=True))) == OWNER
    assert use(edgeless(0), []) == []
    assert use(edgeless(0), {}) == []
    assert use(edgeless(1), [0]) == [0]


def test_result_is_a_copy():
    given_ = np.array(OWNER, np.int32)
    assign(NUMBERS, 3, "predefined", assignment=given_)[0] = 2
    assert given_.tolist() == OWNER


@given(owner=st.lists(st.integers(0, 9), max_size=40), seed=st.integers(0, 99))
def test_round_trip(tmp_path_factory, owner, seed):
    n = len(owner)
    path = tmp_path_factory.mktemp("owner") / "owner.csv"
    order = np.random.default_rng(seed).permutation(n)
    path.write_text("".join(f"{v},{owner[v]}\n" for v in order))
    assert use(edgeless(n), path, 10) == owner


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("10,1\n20,0\n30,3\n40,1\n", 3, "part 3; part numbers must be integers from 0 to 2"),
        ("# x\n\nlabel,part\n10,1\n20,-1\n", 5, "part -1"),
        ("10,1\n20,zero\n30,2\n40,1\n", 2, "part 'zero'"),
        ("10,1\n20,1.5\n30,2\n40,1\n", 2, "part '1.5'"),
        ("10,1\n20,\n30,2\n40,1\n", 2, "part ''"),
        ("10,1\n20,0\n10,2\n40,1\n", 3, "vertex 10 occurs twice"),
        ("10,1\n20,0\n# x\n31,2\n40,1\n", 4, "vertex 31 is not a vertex of the graph"),
        ("10,1\n20,0\nx,2\n40,1\n", 3, "vertex 'x': the vertex labels of this graph are integers"),
        ("10,1\n20,0\n40,1\n", None, "no part for 1 of 4 vertices, the first is 30"),
        ("10,1\n20,0,5\n", 2, "3 columns, 2 before"),
        ("1 2 3\n", 1, "3 columns; expected two columns"),
        ("1\n0\n2\n", None, "3 part numbers for 4 vertices"),
        ("1\n0\n2\n7\n", 4, "part 7"),
        ("", None, "0 part numbers for 4 vertices"),
        ("label,part\n", None, "no part for 4 of 4 vertices"),
    ],
)
def test_bad_files_name_file_and_line(tmp_path, text, line, said):
    path = tmp_path / "owner.txt"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        use(NUMBERS, path)
    assert str(path) in str(caught.value)
    assert caught.value.line == line
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ([1, 0, 2], "3 part numbers for 4 vertices"),
        ([1, 0, 2, 3], "position 3: part 3"),
        ([1.0, 0.0, 2.0, 0.5], "part numbers of type double"),
        ([1, 0, None, 1], "position 2: no part number"),
        ([[1, 0], [2, 1]], "part numbers of type list"),
        ({10: 1, 20: 0, 30: 2}, "the first is 40"),
        ({10: 1, 20: 0, 30: 2, 41: 0}, "vertex 41 is not"),
        ({"a": 1}, "vertex 'a'"),
        ("nowhere.txt", "nowhere.txt"),
        ("nowhere.parquet", "no such file"),
    ],
)
def test_bad_values_are_named(given_, said):
    with pytest.raises(InputError) as caught:
        use(NUMBERS, given_)
    assert said in str(caught.value)


def test_damaged_parquet(tmp_path):
    path = tmp_path / "owner.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(FormatError, match="not a Parquet file"):
        use(NUMBERS, path)
    pq.write_table(pa.table({"a": [1], "b": [1], "c": [1]}), path)
    with pytest.raises(FormatError, match="3 columns"):
        use(NUMBERS, path)
