"""Bad input ends in one line that names the culprit and what is accepted, exit code 2, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Place
from tests.commands import ROOT, assert_refused

BAD_FILES = {
    "empty.txt": ("", "empty.txt: no edges found: the file is empty"),
    "comments.txt": ("# a\n% b\n", "comments.txt: no edges found: the file holds only comments"),
    "one-column.txt": ("1\n2\n", "one-column.txt:1: expected at least two columns"),
    "text-weight.txt": ("1 2 3.0\n2 3 abc\n", "text-weight.txt:2: the weight must be a finite, non-negative number"),
    "too-big.txt": ("1 2\n9223372036854775808 3\n", "too-big.txt:2: the source does not fit in 64 bits"),
    "short-line.txt": ("1 2\n3\n", "short-line.txt:2: expected at least two columns"),
    "negative.txt": ("1 2 1\n2 3 -4\n", "negative.txt:2: the weight must be a finite, non-negative number"),
    "nan.txt": ("1 2 1\n2 3 nan\n", "nan.txt:2: the weight must be a finite, non-negative number"),
    "binary.txt": ("\0\1\2" * 500, "binary.txt: unknown binary format"),
    "what.bin": ("\0\1\2" * 500, "what.bin: unknown format"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file(place: Place, name: str) -> None:
    content, told = BAD_FILES[name]
    (place / name).write_text(content)
    before = place.files()
    ended = place("run", "sssp", name, "--source", "1", "-o", "out.csv", real=name == "empty.txt")
    assert_refused(ended)
    assert told in ended.err
    assert place.files() == before


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("info", "nope.txt"), "nope.txt: no such file"),
        (("info", "."), ".: is a folder without manifest.json and .parquet files; give a graph file, a store, or"),
        (("verify", "small.txt"), "small.txt: not a GoFFish store"),
        (("export", "small.txt", "-o", "x.csv"), "small.txt: is not a store"),
        (("info", "small.txt", "--columns", "source"), "give ROLE=COLUMN pairs, such as source=0,target=1"),
        (("info", "small.txt", "--columns", "from=1"), "accepted: source, target, weight, timestamp"),
        (("info", "small.txt", "--format", "xml"), "choose one of auto, edges"),
        (("info", "small.gofs", "--directed"), "--directed applies to raw files only; small.gofs is a store"),
        (("run", "bfs", "small.txt"), "Missing option '--source' (see goffish run bfs --help)"),
        (("run", "bfs", "small.txt", "--source", "99"), "unknown vertex 99"),
        (("run", "bfs", "small.gofs", "--source", "99"), "unknown vertex 99"),
        (
            ("run", "bfs", "small.txt", "--source", "a"),
            "unknown vertex 'a': the vertex labels of this graph are integers",
        ),
        (("run", "bfs", "small.txt", "--source", "9" * 20), "the vertex labels of this graph are 64-bit integers"),
        (("run", "bfs", "names.csv", "--source", "z"), "unknown vertex 'z'"),
        (("run", "bfs", "names.gofs", "--source", "1"), "unknown vertex '1'"),
        (
            ("run", "small.txt"),
            "unknown algorithm 'small.txt': choose one of components, strong-components, bipartition",
        ),
        (("start",), "unknown command 'start': choose one of run, import"),
        (("run", "components", "small.txt", "--fast"), "No such option: --fast"),
        (("run", "max-value", "small.txt", "--attribute", "age"), "no column 'vertex.age'"),
        (("run", "components", "small.gofs", "--parts", "3"), "parts=3: the graph already has 2"),
        (("run", "components", "small.gofs", "--method", "hash"), "--method applies to raw files only"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_argument(refuses: Callable[..., str], args: tuple[str, ...], told: str) -> None:
    assert told in refuses(*args)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("run", "components", "nope", "-o", "x.xyz"), "x.xyz: the suffix must be one of .parquet, .csv"),
        (("run", "components", "nope", "-o", "no/x.csv"), "no/x.csv: the folder no does not exist"),
        (("run", "components", "nope", "--stats-file", "no/x.json"), "no/x.json: the folder no does not exist"),
        (("run", "components", "nope", "--stats-file", "x.txt"), "x.txt: the suffix must be .json"),
        (("run", "components", "names.csv", "-o", "names.csv"), "names.csv: is the input graph"),
        (("run", "pagerank", "nope", "--damping", "1.5"), "damping=1.5 should be less than 1"),
        (("run", "pagerank", "nope", "--dangling", "x"), "should be 'redistribute' or 'leak'"),
        (("run", "pagerank", "nope", "--tolerance", "x"), "'--tolerance': must be a number"),
        (("run", "components", "nope", "--parts", "x"), "'--parts': must be a whole number"),
        (("run", "components", "nope", "--threads", "0"), "'--threads': must be greater than or equal to 1"),
        (("run", "components", "nope", "--max-supersteps", "0"), "must be greater than or equal to 1"),
        (("run", "components", "nope", "--engine", "abacus"), "--engine 'abacus': choose one of auto, local"),
        (("run", "components", "nope", "--units", "x"), "--units 'x': choose one of components, single, vertex"),
        (("run", "components", "nope", "--method", "x"), "choose one of metis, hash"),
        (("run", "components", "nope", "--resume"), "--resume requires --checkpoint-dir"),
        (("run", "components", "nope", "--checkpoint-every", "2"), "--checkpoint-every requires --checkpoint-dir"),
        (("run", "components", "nope", "--checkpoint-dir", "small.txt"), "small.txt: is a file"),
        (("import", "nope", "-o", "no/x.csv"), "no/x.csv: the folder no does not exist"),
        (("import", "nope", "-o", "x.xyz"), "x.xyz: unknown suffix; use one of .txt"),
        (("import", "nope", "-o", "x.gr"), "DIMACS files can be read, not written"),
        (("partition", "nope", "-o", "small.txt"), "small.txt: is a file; expected a folder"),
        (("partition", "nope", "-o", "."), ".: is neither empty nor a store"),
        (("partition", "nope", "-o", "s", "-k", "0"), "parts=0: must be an integer from 1"),
        (("partition", "nope", "-o", "s", "-k", "-1"), "parts=-1: must be an integer"),
        (("partition", "nope", "-o", "s", "-k", "x"), "'--parts' / '-k': must be a whole number"),
        (("partition", "nope", "-o", "s", "--method", "x"), "choose one of metis, hash"),
        (("partition", "nope", "-o", "s", "--units", "x"), "choose one of components, single, vertex"),
        (("partition", "nope", "-o", "s", "--imbalance", "0.5"), "imbalance=0.5: should be greater than or equal to 1"),
        (("partition", "nope", "-o", "s", "--method", "hash", "--cuts", "2"), "unknown; hash accepts seed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_are_refused_before_the_graph_is_read(
    refuses: Callable[..., str], args: tuple[str, ...], told: str
) -> None:
    """The graph of these commands does not exist: a command that looked for it first would say so instead."""
    assert told in refuses(*args)


def test_output_is_a_folder(place: Place) -> None:
    (place / "x.csv").mkdir()
    for args in (("run", "components", "nope"), ("import", "nope")):
        ended = place(*args, "-o", "x.csv")
        assert_refused(ended)
        assert "x.csv: is a directory; name a file in it" in ended.err


@pytest.fixture
def public(samples: Path) -> Iterator[Place]:
    """The samples where other users may go: pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(samples, Path(folder) / "here")
        (Path(folder) / "here").chmod(0o755)
        yield Place(Path(folder) / "here")


@pytest.mark.slow
def test_no_permission(public: Place) -> None:
    """As another user: this process may be root, who may do everything."""
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("no setpriv to become another user")
        prefix: tuple[str, ...] = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        try:
            subprocess.run([*prefix, "true"], check=True, capture_output=True)
        except subprocess.CalledProcessError:
            pytest.skip("may not become another user here")
    else:
        prefix = ()
    place = public
    (place / "small.txt").chmod(0)
    place.path.chmod(0o555)
    ended = place("info", "small.txt", prefix=prefix, real=True)
    assert_refused(ended)
    assert "small.txt: no permission to read it" in ended.err
    for args in (
        ("run", "components", "names.csv", "-o", "x.csv"),
        ("import", "names.csv", "-o", "x.csv"),
        ("partition", "names.csv", "-o", "s"),
    ):
        ended = place(*args, prefix=prefix, real=True)
        assert_refused(ended)
        assert "no permission to write in" in ended.err
    place.path.chmod(0o755)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("small.txt", "small.txt: is a file; name a folder"),
        ("small.txt/deep/metrics", "small.txt is a file, not a folder"),
        ("/proc/metrics", "/proc/metrics: cannot be written in /proc"),
    ],
)
def test_folders_that_cannot_be_written(public: Place, output: str, told: str) -> None:
    """Breaks when a simulation runs first, and its metrics are lost."""
    ended = public("simulate", "sc13-diamond", "-o", output)
    assert_refused(ended)
    assert told in ended.err


def test_files_that_cannot_be_written(public: Place) -> None:
    """Breaks when minutes of measurements are lost."""
    (public / "folder").mkdir()
    for output, told in (
        ("folder", "folder: is a directory; name a file in it"),
        ("/proc/c.json", "/proc/c.json: cannot be written in /proc"),
        ("small.txt/c.json", "small.txt is a file, not a folder"),
    ):
        ended = public("calibrate", "-o", output)
        assert_refused(ended)
        assert told in ended.err
    ended = public("spot", "table", "none.json", "--work", "1", "--deadline", "2", "-o", "/proc/x.table")
    assert_refused(ended)
    assert "/proc/x.table: cannot be written in /proc (" in ended.err


@pytest.mark.slow
def test_user_without_a_home(public: Place) -> None:
    """A service user on a read-only installation: numba finds no place for its kernels, and refused to work."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become another user")
    temporary = public / "tmp"
    temporary.mkdir()
    temporary.chmod(0o777)
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    ended = public("info", "small.txt", "--json", prefix=prefix, TMPDIR=str(temporary), HOME="/nonexistent")
    if "Permission denied" in ended.err:
        pytest.skip("the other user may not run this interpreter")
    assert ended.json["edges"] == 5
    [cache] = temporary.iterdir()
    assert cache.stat().st_mode & 0o077 == 0, "others could put code in there"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Place]:
    """A file system with room for 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"may not mount here: {made.stderr.decode().strip()}")
    yield Place(disk)
    subprocess.run(["umount", disk], check=True)


def test_disk_full(full_disk: Place, tmp_path: Path) -> None:
    side = 100
    lines = [f"{a} {b}\n" for a in range(side * side) for b in (a + 1, a + side)]
    (tmp_path / "grid.txt").write_text("".join(lines))
    for args in (
        ("partition", tmp_path / "grid.txt", "-o", "store", "-k", "12", "--method", "range"),
        ("import", tmp_path / "grid.txt", "-o", "x.csv"),
        ("import", tmp_path / "grid.txt", "-o", "x.parquet"),
        ("run", "pagerank", tmp_path / "grid.txt", "-o", "x.csv"),
        ("run", "pagerank", tmp_path / "grid.txt", "-o", "x.arrow"),
    ):
        ended = full_disk(*args)
        assert_refused(ended)
        assert "cannot be written" in ended.err
        assert "No space left on device" in ended.err
        assert full_disk.files() == set()


def test_disk_full_keeps_the_store_that_was_there(full_disk: Place, samples: Path, tmp_path: Path) -> None:
    assert full_disk("partition", samples / "small.txt", "-o", "store", "-k", "2").code == 0
    before = full_disk.files()
    (tmp_path / "long.txt").write_text("".join(f"{a} {a + 1}\n" for a in range(20_000)))
    assert_refused(full_disk("partition", tmp_path / "long.txt", "-o", "store", "-k", "5", "--method", "range"))
    assert full_disk.files() == before
    assert full_disk("verify", "store").code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_cannot_be_written(shared: Place) -> None:
    code = "import sys; sys.stdout = open('/dev/full', 'w'); from goffish.cli import main; main()"
    for args in (("--version",), ("info", "small.txt", "--json")):
        ended = shared(*args, code=code)
        assert_refused(ended, code=1)
        assert "standard output cannot be written (No space left on device)" in ended.err


def test_metis_fails(shared: Place, tmp_path: Path) -> None:
    (tmp_path / "pymetis.py").write_text(
        "import os, numpy\n"
        "def zero_copy_dtype(): return numpy.dtype(numpy.int64)\n"
        "class CSRAdjacency:\n    def __init__(self, *arrays): pass\n"
        "class Options:\n    def __init__(self, **options): pass\n"
        "def part_graph(*args, **more): os.write(2, b'out of memory\\n'); os.abort()\n"
    )
    ended = shared("partition", "grid.txt", "-o", "x.gofs", "-k", "3", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert_refused(ended, code=1)
    assert "METIS failed on 600 vertices and 3 parts (signal 6): out of memory" in ended.err
    assert not (shared / "x.gofs").exists()


BROKEN = """
import os, sys
import goffish.graph.graph as graph
def fail(*args, **more): raise ZeroDivisionError("a line\\nand another")
graph.from_edges = None
import goffish.graph.io.reader as reader
reader._reader = fail
from goffish.cli import main
main()
"""


def test_unexpected_exception(shared: Place) -> None:
    ended = shared("info", "small.txt", code=BROKEN)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "error: ZeroDivisionError: a line and another (internal error; set GOFFISH_TRACEBACK=1 for a traceback)\n"
    )
    shown = shared("info", "small.txt", code=BROKEN, GOFFISH_TRACEBACK="1")
    assert shown.code == 1
    assert "Traceback (most recent call last)" in shown.err
    assert "in fail" in shown.err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("components",), "components in memory"), (("bfs", "--source", "1"), "bfs in memory"),
        (("louvain", "--variant", "sequential"), "variant='sequential'"),
    ],
)  # fmt: skip
def test_threads_without_effect_are_pointed_out(place: Place, args: tuple[str, ...], told: str) -> None:
    command, *options = args
    ended = place("run", command, "small.txt", *options, "--threads", "2", "--json", real=command == "components")
    assert ended.json["algorithm"] == command
    assert ended.err == f"warning: threads=2 has no effect: {told} uses one thread; omit threads\n"
    if command != "louvain":
        assert place("run", command, "small.txt", *options, "--threads", "2", "--engine", "local").err == ""
    told = " ".join(place("run", command, "--help").out.replace("│", " ").split())
    assert ("The in-memory kernel uses one thread" if command != "louvain" else "baseline, in one thread") in told
