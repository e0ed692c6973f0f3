"""Files of compressed sparse rows, which are mapped: no damage may reach the kernels."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import FormatError, InputError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "g.csr"


def graph(directed: bool = False) -> gf.Graph:
    return gf.from_edges(
        [0, 0, 1, 2, 4, 4], [1, 2, 2, 3, 4, 0], [1.0, 2, 3, 4, 5, 0], directed=directed, self_loops="keep",
        edge_attributes={"kind": list("abcdef")},
    )  # fmt: skip


def test_arrays_are_those_of_the_file(path: Path) -> None:
    """Breaks when arrays are copied, when kernels have to be compiled again for them, or changes reach the file."""
    gf.write(graph(), path)
    before = path.read_bytes()
    found = gf.read(path, self_loops="keep")
    for name in ("offsets", "targets", "weights", "edge_of_arc"):
        array = getattr(found, name)
        assert not array.flags.owndata and array.flags.writeable and array.flags.c_contiguous
        array[:] = 0
    assert path.read_bytes() == before
    assert gf.read(path, self_loops="keep").edges.equals(graph().edges)


def changed(directed: bool, name: str, at: int, value: Any) -> gf.Graph:
    found = graph(directed)
    array = getattr(found, name).copy()
    array[at] = value
    return replace(found, **{name: array})


@pytest.mark.parametrize(("directed", "name", "at", "value", "message"), [
    (False, "offsets", 0, 1, "the row pointers are damaged"),
    (False, "offsets", 2, 1 << 40, "the row pointers are damaged"),
    (False, "offsets", 2, -1, "the row pointers are damaged"),
    (True, "offsets", -1, 5, "the row pointers are damaged"),
    (True, "targets", 1, 5, "row 0 has a target that is no vertex"),
    (True, "targets", 0, -1, "row 0 has a target that is no vertex"),
    (True, "targets", 0, 3, "row 0 is not ascending"),
    (False, "targets", 0, 0, "arcs are not those of 6 edges"),
    (False, "targets", 2, 3, "the two arcs of an edge differ"),
    (False, "weights", 0, 1.5, "the two arcs of an edge differ"),
    (False, "weights", 0, np.nan, "row 0 has a weight"), (True, "weights", 0, -1, "row 0 has a weight"),
    (True, "weights", 5, np.inf, "row 4 has a weight"),
    (True, "edge_of_arc", 0, 6, "row 0 has an arc without a row of edge attributes"),
    (False, "edge_of_arc", 0, -1, "row 0 has an arc without a row of edge attributes"),
    (False, "edge_of_arc", 0, 2, "the two arcs of an edge differ"),
    (True, "num_edges", None, 7, "edge_attributes: 6 values"),
])  # fmt: skip
def test_damage(path: Path, directed: bool, name: str, at: int | None, value: Any, message: str) -> None:
    broken = replace(graph(directed), num_edges=value) if at is None else changed(directed, name, at, value)
    gf.write(broken, path)
    with pytest.raises(FormatError, match=message) as caught:
        gf.read(path, self_loops="keep")
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("column", ["offsets", "targets", "labels"])
@pytest.mark.parametrize("values", [[1.5], [None], ["a"], []])
def test_columns_of_another_type(path: Path, column: str, values: list[Any]) -> None:
    gf.write(gf.from_edges(["a"], ["b"]), path)
    batch = pa.ipc.open_file(path.read_bytes()).get_batch(0)
    at = batch.schema.get_field_index(column)
    lists = pa.array([values], pa.large_list(pa.array(values).type))
    other = pa.record_batch([*batch.columns[:at], lists, *batch.columns[at + 1 :]], names=batch.schema.names)
    other = other.replace_schema_metadata(batch.schema.metadata)
    with pa.ipc.new_file(path, other.schema) as writer:
        writer.write_batch(other)
    with pytest.raises(FormatError, match="not a readable file of compressed sparse rows"):
        gf.read(path)


@pytest.mark.parametrize("column", ["offsets", "targets"])
def test_columns_that_are_missing(path: Path, column: str) -> None:
    gf.write(gf.from_edges(["a"], ["b"]), path)
    batch = pa.ipc.open_file(path.read_bytes()).get_batch(0)
    other = batch.select([name for name in batch.schema.names if name != column])
    with pa.ipc.new_file(path, other.schema) as writer:
        writer.write_batch(other)
    with pytest.raises(FormatError, match="expected the columns offsets and targets"):
        gf.read(path)


def test_files_of_other_programs(path: Path) -> None:
    table = pa.table({"source": [1], "target": [2]})
    for content in (b"", b"ARROW1\0\0", b"1 2\n"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="not a readable file of compressed sparse rows"):
            gf.read(path)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(FormatError, match="not a readable file of compressed sparse rows"):
        gf.read(path)
    gf.write(graph(), path)
    batch = pa.ipc.open_file(path.read_bytes()).get_batch(0)
    with pa.ipc.new_file(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    with pytest.raises(FormatError, match="the arrays are compressed"):
        gf.read(path)
    later = batch.replace_schema_metadata({b"goffish": b'{"version": 2}'})
    with pa.ipc.new_file(path, later.schema) as writer:
        writer.write_batch(later)
    with pytest.raises(FormatError, match="version 2; this version of GoFFish reads 1"):
        gf.read(path)


def test_options(path: Path) -> None:
    """Breaks when an option changes what is read in another way than for a table of the same edges."""
    many = gf.from_edges([0, 0, 1, 1], [1, 1, 1, 2], [3.0, 1, 2, 5], self_loops="keep", parallel="keep")
    gf.write(many, path)
    gf.write(many, table := path.with_suffix(".parquet"))
    for options in (
        {}, {"directed": True}, {"self_loops": "keep"}, {"parallel": "sum"}, {"weighted": False},
        {"self_loops": "keep", "parallel": "keep"}, {"directed": False, "parallel": "keep"},
    ):  # fmt: skip
        found, expected = gf.read(path, **options), gf.read(table, **options)  # type: ignore[arg-type]
        assert found.directed == expected.directed and found.edges.equals(expected.edges), options
    assert gf.read(path, verify=False).edges.equals(many.edges)
    gf.write(gf.from_edges([0], [1]), path)
    with pytest.raises(FormatError, match="weighted=True: the graph has no weights"):
        gf.read(path, weighted=True)
    with pytest.raises(InputError, match="columns does not apply"):
        gf.read(path, columns={"source": 0})


def test_places_that_cannot_be_mapped(path: Path) -> None:
    gf.write(graph(), "memory://folder/g.csr")
    assert gf.read("memory://folder/g.csr", self_loops="keep").edges.equals(graph().edges)
    gf.write(graph(), path)
    pipe = path.with_name("p.csr")
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(path.read_bytes(),))
    writer.start()
    assert gf.read(pipe, self_loops="keep").edges.equals(graph().edges)
    writer.join()


def test_a_file_that_is_replaced(path: Path) -> None:
    gf.write(graph(), path)
    found = gf.read(path, self_loops="keep")
    gf.write(gf.from_edges([7], [8]), path)
    assert found.edges.equals(graph().edges)
    assert gf.read(path).num_edges == 1
