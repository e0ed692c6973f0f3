"""Every broken file gives one message that names file, line and text."""

from __future__ import annotations

import bz2
import gzip
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard

from goffish.errors import FormatError, InputError
from goffish.graph import read
from goffish.graph.io import streams

MM = "%%MatrixMarket matrix coordinate "

BROKEN = [
    # name, content, line, part of the message
    ("a.txt", "", None, "the file is empty"),
    ("a.txt.gz", gzip.compress(b"", mtime=0), None, "the file is empty"),
    ("a.txt", "# 1 2\n% 3 4\n\n", None, "holds only comments"),
    ("a.csv", "source,target\n", None, "no edges found"),
    ("a.txt", "# c\n1\n2\n", 2, "expected at least two columns, source and target: '1'"),
    ("a.txt", "# c\n1 2\n\n3\n", 4, "expected at least two columns, source and target: '3'"),
    ("a.txt", "1 2 3\n2 3 heavy\n", 2, "weight must be a finite, non-negative number: 'heavy'"),
    ("a.txt", "1 2 heavy\n", 1, "column 3 is not a number"),
    ("a.txt", "1 2 3\n2 3\n", 2, "this line has no weight"),
    ("a.txt", "1 2\n2 3 4\n", 2, "more columns than the 2 of the first line"),
    ("a.txt", "1 2 3\n2 3 -4\n", 2, "non-negative number: '2 3 -4'"),
    ("a.txt", "1 2 3\n2 3 -1e-320\n", 2, "non-negative"),
    ("a.txt", "1 2 3\n2 3 NaN\n", 2, "'NaN'"),
    ("a.txt", "1 2 3\n2 3 inf\n", 2, "'inf'"),
    ("a.txt", "1 2 3\n2 3 1e999\n", 2, "'1e999'"),
    ("a.txt", "1 2 3\n2 3 1_0\n", 2, "'1_0'"),
    ("a.txt", "1 2\n1 9223372036854775808\n", 2, "the target does not fit in 64 bits"),
    ("a.txt", "1 2\n-9223372036854775809 1\n", 2, "the source does not fit in 64 bits"),
    ("a.txt", "1 2\n123456789012345678901234567890 1\n", 2, "does not fit in 64 bits"),
    ("a.csv", "1,2,3\n1,2,3 4\n", 2, "expected a separator after the weight"),
    ("a.csv", 'a,b\nc,"d\n', 2, "quoted field is not closed"),
    ("a.txt", b"caf\xe9 b\n", None, "not UTF-8"),
    ("a.txt", "1 2\n".encode("utf-16"), None, "UTF-16"),
    ("a.txt", "1 2\r2 3\r", None, "carriage returns only"),
    ("a.csv", '"x"y,b\nc,d\n', 1, "expected a separator after the source"),
    ("a.txt", b"\x7fELF\0\0\0", None, "unknown binary format"),
    ("a.txt.gz", gzip.compress(b"1 2\n" * 9999, mtime=0)[:60], None, "damaged or truncated"),
    ("a.txt.bz2", bz2.compress(b"1 2\n" * 9999)[:40], None, "damaged or truncated"),
    ("a.txt.zst", zstandard.compress(bytes(range(33, 120)) * 99)[:60], None, "damaged or truncated"),
    ("out.x", "% bip unweighted\n1 1\n", None, "bipartite"),
    ("a.unknown", "hello\n", None, "unknown format"),
    ("a.unknown", b"\x89PNG\r\n", None, "unknown format"),
    ("a.metis", "", None, "no header line"),
    ("a.metis", "% c\n3 x\n", 2, "expected the METIS header"),
    ("a.metis", "3 2 7\n", 1, "three digits 0 or 1"),
    ("a.metis", "3 2\n2\n1 4\n2\n", 3, "in the range 1 to 3: '4'"),
    ("a.metis", "% c\n3 2\n% c\n2\n1 0\n2\n", 5, "in the range 1 to 3: '0'"),
    ("a.metis", "3 3\n2\n1 3\n2\n", 1, "declares 3 edges, but the file lists 4 neighbors"),
    ("a.metis", "3 1\n2\n1 3\n2\n", 3, "more neighbors than the 1 edges"),
    ("a.metis", "4 2\n2\n1 3\n2\n", 4, "declares 4 vertices, but only 3"),
    ("a.metis", "2 1\n2\n1\n\n1\n", 5, "more vertex lines than the 2"),
    ("a.metis", "4 2\n2\n1\n4\n1\n", 5, "vertex 4 lists 1, but vertex 1 does not list 4"),
    ("a.metis", "3 2 1\n2 5\n1 5 3 7\n2 8\n", 3, "between 2 and 3 has two different weights"),
    ("a.metis", "3 2 1\n2\n1 5 3 7\n2 7\n", 2, "last neighbor in this line has no edge weight"),
    ("a.metis", "2 1 100\n3 2\n\n", 3, "must begin with 1 numbers"),
    ("a.metis", "3 2\n2\n1 b\n2\n", 3, "expected an integer: 'b'"),
    ("a.metis", "2 1 1\n2 -3\n1 -3\n", 2, "not be negative"),
    ("a.mtx", "", None, "empty or has no size line"),
    ("a.mtx", "1 2 3\n", 1, "expected '%%MatrixMarket"),
    ("a.mtx", MM + "real general\n3 3\n", 2, "size line"),
    ("a.mtx", MM + "real general\n3 4 0\n", 2, "not square"),
    ("a.mtx", MM + "real skew-symmetric\n3 3 0\n", 1, "skew-symmetric"),
    ("a.mtx", MM + "complex hermitian\n3 3 0\n", 1, "complex"),
    ("a.mtx", "%%MatrixMarket matrix array real general\n2 2\n", 1, "only sparse"),
    ("a.mtx", MM + "pattern general\n%\n3 3 2\n1 2\n", 3, "declares 2 entries, the file has 1"),
    ("a.mtx", MM + "pattern general\n3 3 2\n1 2\n\n4 1\n", 5, "in the range 1 to 3"),
    ("a.mtx", MM + "real general\n3 3 1\n1 2\n", 3, "no weight"),
    ("a.mtx", MM + "real general\n3 3 1\n1 b 1\n", 3, "not an integer"),
    ("a.mtx", MM + "real general\n3 3 1\n1 2 -1\n", 3, "non-negative"),
    ("a.gr", "c\n", None, "no problem line"),
    ("a.gr", "c\np max 3 1\n", 2, "expected 'p sp n m'"),
    ("a.gr", "p sp 3 2\na 1 2 5\n", 1, "declares 2 edges, the file has 1"),
    ("a.gr", "p sp 3 1\nc\na 1 4 5\n", 3, "in the range 1 to 3"),
    ("a.gr", "p sp 3 1\nb 1 2 5\n", 2, "begins with 'a'"),
    ("a.parquet", "PAR1", None, "not a readable Parquet file"),
    ("a.arrow", "ARROW1", None, "not a readable Arrow file"),
    ("a.graphml", "<graphml>", 1, "not readable as GraphML"),
    ("a.gml", "graph [\n node [ id 1 ] node [ id 1 ] ]", None, "not readable as GML"),
]


@pytest.mark.parametrize(("name", "content", "line", "message"), BROKEN)
def test_a_broken_file_is_named_with_line_and_text(tmp_path, name, content, line, message):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FormatError) as caught:
        read(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: " if line is not None else f"{path}: ")
    assert "\n" not in str(caught.value)
    assert line is None or caught.value.line == line


def test_the_line_is_right_far_into_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK", 1000)
    path = tmp_path / "a.txt"
    path.write_text("# c\n\n1 2 3\n" * 5000 + "1 2 x\n" + "1 2 3\n" * 5000)
    with pytest.raises(FormatError, match=r"a\.txt:15001: .*'x'"):
        read(path)


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK", 1000)
    monkeypatch.setattr(streams, "MARGIN", 100)
    path = tmp_path / "a.txt"
    path.write_text("1 2 " + "9" * 5000 + "\n")
    with pytest.raises(FormatError, match="exceeds 100 bytes"):
        read(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.txt", "no such file"),
        (".", "is a folder without manifest.json"),
        ("memory://missing.txt", "no such file"),
        ("nonsense://x", "not known"),
    ],
)
def test_places_that_cannot_be_read(tmp_path, path, message):
    with pytest.raises(InputError, match=message):
        read(path if "://" in path else tmp_path / path)


def test_no_permission(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("1 2\n")

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything, so chmod proves nothing
    with pytest.raises(InputError, match="no permission"):
        read(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xls"}, "format='xls'"),
        ({"separator": "ab"}, "separator"),
        ({"comments": ("//",)}, "comments"),
        ({"columns": {"sauce": 1}}, "unknown role 'sauce'"),
        ({"columns": {"source": 2}}, "has 2 columns"),
        ({"columns": {"source": 1, "target": 1}}, "two roles"),
        ({"columns": {"source": "x"}}, "no column 'x'"),
        ({"weighted": True}, "no weight column"),
        ({"weighted": False, "columns": {"weight": 1}}, "mutually exclusive"),
        ({"parallel": "max"}, "parallel='max'"),
        ({"self_loops": "count"}, "self_loops='count'"),
    ],
)
def test_bad_options(tmp_path, options, message):
    path = tmp_path / "a.txt"
    path.write_text("1 2\n")
    with pytest.raises(InputError, match=message):
        read(path, **options)


@pytest.mark.parametrize(
    ("name", "content", "line", "told"),
    [
        ("a.mtx", MM + "pattern general\n2000000000 2000000000 1\n1 2\n", 2, "declares 2,000,000,000 vertices"),
        ("a.mtx", MM + "pattern general\n99999999999 99999999999 1\n1 2\n", 2, "4,194,304, or 128 per edge"),
        ("a.gr", "p sp 2000000000 1\na 1 2 3\n", 1, "declares 2,000,000,000 vertices"),
        ("a.col", "p edge 2000000000 1\ne 1 2\n", 1, "declares 2,000,000,000 vertices"),
        ("a.metis", "2000000000 1\n2\n1\n", 1, "declares 2,000,000,000 vertices; 17 bytes hold 4,194,304 at most"),
        ("a.metis", "2 900000000000\n2\n1\n", 1, "declares 900,000,000,000 edges"),
        ("a.metis", "5000000 1 010 1000\n2\n1\n", 1, "declares 5,000,000 vertices"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, lambda data: gzip.compress(data, mtime=0), bz2.compress])
def test_headers_that_the_file_does_not_bear_out(tmp_path, name, content, line, told, compress):
    """Breaks when memory is taken for what a header declares and a small file cannot hold."""
    path = tmp_path / name
    path.write_bytes(compress(content.encode()))
    with limited_memory(1500), pytest.raises(FormatError) as caught:
        read(path)
    assert caught.value.line == line
    assert told.split(";")[0] in str(caught.value)


@contextmanager
def limited_memory(megabytes):
    """Only so much more than this process has, by the operating system."""
    used = next(int(row.split()[1]) for row in Path("/proc/self/status").read_text().splitlines() if "VmData" in row)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, ((used << 10) + (megabytes << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_isolated_vertices_that_a_header_declares(tmp_path):
    """Breaks when a sparse file with many isolated vertices is refused."""
    many = 1_000_000
    for name, content in (
        ("a.mtx", MM + f"pattern symmetric\n{many} {many} 1\n2 1\n"),
        ("a.col", f"p edge {many} 1\ne 1 2\n"),
        ("a.metis", f"{many} 1\n2\n1\n" + "\n" * (many - 2)),
    ):
        (tmp_path / name).write_text(content)
        graph = read(tmp_path / name)
        assert (graph.num_vertices, graph.num_edges) == (many, 1)
