"""A file system that is really full ends a flow with one line, and the same command resumes it when there is space."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.commands import assert_refused
from tests.disk import Disk
from tests.streaming.pushing import Answer, free_port, post

KEYS, RECORDS = 2000, 4000
FLOW = """
import goffish as gf

def padded(n):
    return {{"key": f"{{n % {keys}:0100d}}", "n": n}}

flow = gf.stream.Flow("fills")
read = flow.source(gf.stream.generate(padded, count={records}, rate=10_000), name="numbers")
read.sink(gf.stream.write_{kind}({out!r} + "/rows"), name="rows")
counted = read.key_by("key").count(name="counted")
counted.sink(gf.stream.write_json_lines({out!r} + "/counts"), name="counts")
"""
PUSHED = """
import goffish as gf

flow = gf.stream.Flow("pushed")
source = gf.stream.receive_http("127.0.0.1:{port}", journal="disk/journal", max_body=1 << 20)
flow.source(source).key_by("k").sum("n", name="totals").sink(gf.stream.write_json_lines("out"))
"""
slow = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    (tmp_path / "disk").mkdir()
    made = Disk(tmp_path / "disk", 200)
    yield made
    made.close()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    import pyarrow.csv
    import pyarrow.parquet

    readers: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
        ".jsonl": lambda file: [json.loads(line) for line in file.read_text().splitlines()],
        ".csv": lambda file: pyarrow.csv.read_csv(file).to_pylist(),
        ".parquet": lambda file: pyarrow.parquet.read_table(file).to_pylist(),
    }
    return [row for file in sorted(folder.glob("part-*")) for row in readers[file.suffix](file)]


def half_written(folder: Path) -> set[Path]:
    """Return the files of a folder, and of those within, that nothing can use."""
    left = {*folder.rglob("*.partial")}
    for file in folder.rglob("state-*.arrow"):
        manifest = file.parent / "checkpoint.json"
        chain = json.loads(manifest.read_text())["chain"] if manifest.exists() else []
        left |= {file} - {file.parent / one["file"] for one in chain}
    return left


@pytest.mark.parametrize(
    ("full", "workers", "kind"),
    [
        ("saved", 1, "json_lines"),
        pytest.param("out", 2, "json_lines", marks=slow),
        pytest.param("saved", 2, "json_lines", marks=slow),
        pytest.param("out", 1, "json_lines", marks=slow),
        pytest.param("out", 1, "csv", marks=slow),
        pytest.param("out", 2, "csv", marks=slow),
        pytest.param("out", 2, "parquet", marks=slow),
    ],
)
def test_a_full_disk(disk: Disk, tmp_path: Path, full: str, workers: int, kind: str) -> None:
    """Breaks when the message does not name the folder, part of a file is left, or records are lost or repeated."""
    places = {name: str(tmp_path / "disk" / name if name == full else tmp_path / name) for name in ("saved", "out")}
    (tmp_path / "flow.py").write_text(FLOW.format(keys=KEYS, records=RECORDS, kind=kind, out=places["out"]))
    if kind == "parquet":
        disk.resize(40)
    run = ("stream", "run", "flow.py", "--checkpoint", places["saved"], "--every", "50ms", "--workers", workers)
    ended = disk(*run)
    assert_refused(ended, 1)
    folder = re.escape(places[full])
    found = rf"{folder}(/workers/\d)?: checkpoint \d+" if full == "saved" else rf"operator (rows|counts): {folder}/\w+:"
    assert re.match(rf"error: {found} cannot be written \(No space left on device\)", ended.err), ended.err
    assert not half_written(disk.inside) and not half_written(tmp_path / "out")

    disk.resize(100_000)
    ended = disk(*run)
    assert ended.code == 0, ended.err
    out = disk.inside / "out" if full == "out" else tmp_path / "out"
    assert sorted(row["n"] for row in rows_of(out / "rows")) == list(range(RECORDS))
    counts: dict[str, int] = {}
    for row in rows_of(out / "counts"):
        counts[row["key"]] = max(row["count"], counts.get(row["key"], 0))
    assert len(counts) == KEYS and set(counts.values()) == {RECORDS // KEYS}
    assert not [*out.rglob(".*"), *half_written(disk.inside)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(1, marks=slow), 2])
def test_no_space_to_begin(disk: Disk, tmp_path: Path, workers: int) -> None:
    (tmp_path / "flow.py").write_text(FLOW.format(keys=1, records=1, kind="csv", out="out"))
    disk.resize(4)
    (disk.inside / "fills").write_bytes(bytes(4096))
    ended = disk("stream", "run", "flow.py", "--checkpoint", "disk/saved", "--workers", workers)
    assert_refused(ended, ended.code)
    assert re.match(r"error: disk/saved.* cannot be written \(No space left on device\)", ended.err), ended.err
    assert ended.code in (1, 2) and not half_written(disk.inside)


def test_no_space_for_temporary_files(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.format(keys=1, records=1, kind="csv", out="out"))
    disk.resize(32)
    ended = disk("stream", "run", "flow.py", "--workers", 2, TMPDIR=str(disk.path))
    assert_refused(ended, 1)
    assert re.match(
        rf"error: {disk.path}/goffish-\w+/ring: cannot be written \(.*\); free space, or set TMPDIR", ended.err
    )
    assert disk.files() == set()


def pushed(port: int, number: int) -> Answer:
    body = "".join(json.dumps({"k": f"k{n % 7}", "n": number, "pad": "x" * 100}) + "\n" for n in range(100))
    for _ in range(600):
        try:
            return post(port, body.encode(), Idempotency_Key=str(number))
        except (OSError, HTTPException):  # not started yet
            time.sleep(0.05)
    raise AssertionError("no answer")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=slow)])
def test_a_journal_without_space(disk: Disk, tmp_path: Path, workers: int) -> None:
    """Breaks when a flow ends as its journal has no space, or acknowledges what is not in it."""
    pytest.importorskip("uvicorn", reason="goffish[http] is not installed")
    port, sent = free_port(), Counter[str]()
    (tmp_path / "flow.py").write_text(PUSHED.format(port=port))
    disk.resize(60)
    process = disk.start(
        "stream", "run", "flow.py", "--checkpoint", "saved", "--every", "100ms", "--workers", workers
    )  # fmt: skip
    refused = 0
    for number in range(1, 10):
        while (answer := pushed(port, number)).status != 200:
            assert answer.status == 503 and "cannot be written (No space left on device)" in str(answer.body), answer
            assert process.poll() is None
            refused += 1
            if refused == 2:
                disk.resize(10_000)
        for n in range(100):
            sent[f"k{n % 7}"] += number
    assert refused == 2
    end = time.monotonic() + 30
    while (totals := {row["k"]: row["n"] for row in rows_of(tmp_path / "out")}) != sent:
        assert process.poll() is None and time.monotonic() < end, (totals, sent)
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
