"""The journal of received records: what is acknowledged is there after any end of the process."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import CheckpointError, InputError, JobError
from goffish.streaming import journal as journals
from goffish.streaming.journal import (
    ARRAY,
    ARROW,
    LINES,
    Entry,
    Journal,
    Refused,
    read_array,
    read_arrow,
    read_lines,
)
from tests.streaming.pushing import arrow_stream

LIMIT = 16 * 1024  # sixteen files of 1 KB


def entry(number: int, size: int = 10) -> Entry:
    return Entry(
        LINES, 1, json.dumps(f"{number:0{size}d}").encode(), number.to_bytes(16, "big"), bytes(8), 1e9 + number
    )


def contents(folder: Path, first: int = 0) -> list[str]:
    journal = Journal(folder, LIMIT)
    try:
        return [entry.values()[0] for entry in journal.replay(first)]
    finally:
        journal.close()


def written(folder: Path, numbers: range, size: int = 10) -> None:
    journal = Journal(folder, LIMIT)
    for number in numbers:
        journal.append([entry(number, size)])
    journal.close()


def test_every_torn_end(tmp_path: Path) -> None:
    """Breaks when a part of an entry is read, or one before it is lost."""
    written(tmp_path, range(3))
    (file,) = tmp_path.glob("*.journal")
    whole = file.read_bytes()
    ends = [end for end, _ in journals._frames(whole)]
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        found = contents(tmp_path)
        assert len(found) == max(0, sum(end <= cut for end in ends) - 1), cut
        file.write_bytes(whole[:cut] + bytes(300))  # a file system may have made it longer
        assert contents(tmp_path) == found
        if found:
            written(tmp_path, range(10, 11))
            assert contents(tmp_path) == [*found, f"{10:010d}"]


def test_files_that_are_not_needed_are_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LIMIT)
    for number in range(100):
        journal.append([entry(number, 100)])
    assert len(list(tmp_path.glob("*.journal"))) > 5
    assert [one.values()[0] for one in journal.replay(42)] == [f"{number:0100d}" for number in range(42, 100)]
    journal.trim(50)
    assert 0 < journal.begin <= 50
    journal.check([50, 0])
    with pytest.raises(CheckpointError, match=r"has entries [\d]+ to 99, but the checkpoint resumes at 3; restore"):
        journal.check([3, 0])
    with pytest.raises(CheckpointError, match="but the checkpoint resumes at 101"):
        journal.check([101, 0])
    journal.trim(100)
    assert journal.size < LIMIT / 8
    journal.close()
    assert contents(tmp_path, 100) == []


def test_keys_outlive_the_files_of_their_records(tmp_path: Path) -> None:
    """Breaks when a request is accepted twice because its records were processed in between."""
    written(tmp_path, range(100), 100)
    journal = Journal(tmp_path, 1 << 20)
    journal.trim(100)
    journal.close()
    again = Journal(tmp_path, 1 << 20)
    assert again.begin > 90
    known = [number for number in range(100) if again.keys.find(number.to_bytes(16, "big"))]
    first = again.begin
    assert known == list(range(first - 8, 100)), "a file of 1 KB begins with 8 keys"
    again.close()


def test_keys_are_kept_for_a_day() -> None:
    keys = journals.Keys(3)
    for number in (1, 2, 3, 4):
        keys.add(entry(number))
    assert [bool(keys.find(entry(number).key)) for number in (1, 2, 3, 4)] == [False, True, True, True]
    keys.add(entry(86_403))
    assert [bool(keys.find(entry(number).key)) for number in (2, 3, 4, 86_403)] == [False, True, True, True]


@pytest.mark.parametrize("at", [10, 500])
def test_a_damaged_file_is_named(tmp_path: Path, at: int) -> None:
    written(tmp_path, range(100), 100)
    first = min(tmp_path.glob("*.journal"))
    data = bytearray(first.read_bytes())
    data[at] ^= 1
    first.write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{first.name}: is damaged at byte \d+; restore it from a copy"):
        Journal(tmp_path, LIMIT)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    written(tmp_path, range(100), 100)
    sorted(tmp_path.glob("*.journal"))[1].unlink()
    with pytest.raises(CheckpointError, match=r"journal: entries \d+ to \d+ before it are missing"):
        Journal(tmp_path, LIMIT)


def test_one_run_uses_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_RELEASED_S", 0)
    journal = Journal(tmp_path, LIMIT)
    with pytest.raises(InputError, match="in use by another run"):
        Journal(tmp_path, LIMIT)
    journal.close()


@pytest.mark.parametrize("begins", [True, False])
def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, begins: bool) -> None:
    journal = Journal(tmp_path, 1 << 24)
    if not begins:
        journal.append([entry(0)])
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(Refused, match=r"the journal cannot be written \(File too large\)") as refused:
            journal.append([entry(1, 20_000)])
        assert refused.value.status == 503
        journal.append([entry(2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    journal.close()
    assert contents(tmp_path) == [f"{number:010d}" for number in ([2] if begins else [0, 2])]


def test_a_failed_fsync_ends_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a second fsync is trusted, which reports success for pages that are lost."""

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal(tmp_path, LIMIT)
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(JobError, match=r"cannot be written \(Input/output error\)"):
        journal.append([entry(0)])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(VALUES, max_size=6), st.sampled_from(["\n", "\r\n", " \n\n\t"]), st.booleans())
def test_lines_are_those_of_json(values: list[object], end: str, ascii_only: bool) -> None:
    lines = [json.dumps(value, ensure_ascii=ascii_only) for value in values]
    body = end.join(lines).encode(errors="surrogatepass")
    assert read_lines(body) == values
    assert read_array(f"[{','.join(lines)}]".encode()) == values


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"1\n2\n{", "line 3: not a JSON value"),
        (b'{"a":1},{"b":2}\n{"a":[{}\n{}]}', "line 1: not a JSON value (Extra data: column 8)"),
        (b"1\n\xff\n", "line 2: not UTF-8 text"),
        (b"1\n" + b"[" * 100_000, "line 2: not a JSON value (nested too deeply)"),
        (b"9" * 5000, "line 1: not a JSON value (Exceeds the limit"),
        (b"\xef\xbb\xbf1", "line 1: not a JSON value"),
        ("\u00a01".encode(), "line 1: not a JSON value"),
    ],
)
def test_malformed_lines(body: bytes, message: str) -> None:
    with pytest.raises(Refused) as refused:
        read_lines(body)
    assert refused.value.status == 400
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[1,\n2,,]", "line 2: not a JSON value"),
        (b"[1, \xff]", "not UTF-8 text"),
        (b"[" * 100_000, "not a JSON value (nested too deeply)"),
        (b"", "line 1: not a JSON value"),
    ],
)
def test_malformed_arrays(body: bytes, message: str) -> None:
    with pytest.raises(Refused) as refused:
        read_array(body)
    assert str(refused.value).startswith(message)


def test_too_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST_RECORDS", 3)
    assert read_lines(b"1\n2\n3\n") == read_array(b"[1,2,3]") == [1, 2, 3]
    for read, body in (
        (read_lines, b"1\n2\n3\n4\n"),
        (read_array, b"[1,2,3,4]"),
        (read_arrow, arrow_stream(pa.table({"a": range(4)}))),
        (read_arrow, arrow_stream(pa.table({"a": pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])}))),
    ):
        with pytest.raises(Refused, match="more than 3 ") as refused:
            read(body)
        assert refused.value.status == 413


TABLE = pa.table({
    "n": [1, 2, 3, 4], "s": ["a", None, "c", "d"], "l": [[1], [], None, [2, 3]],
    "d": pa.array(["x", "y", "x", None]).dictionary_encode(),
})  # fmt: skip


@pytest.mark.parametrize("rows", [4, 3, 1])
def test_arrow_streams(rows: int) -> None:
    table = pa.Table.from_batches(TABLE.to_batches(max_chunksize=rows))
    batch = read_arrow(arrow_stream(table))
    assert batch.to_pylist() == TABLE.to_pylist()
    assert len(read_arrow(arrow_stream(TABLE.slice(0, 0)))) == 0
    assert read_arrow(arrow_stream(TABLE, metadata_version=pa.ipc.MetadataVersion.V4)).to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("columns", [["n"], ["d"], ["s", "l"]])
def test_compressed_streams_are_refused(codec: str, columns: list[str]) -> None:
    with pytest.raises(Refused, match="compressed Arrow buffers are not accepted") as refused:
        read_arrow(arrow_stream(TABLE.select(columns), compression=codec))
    assert refused.value.status == 415


def test_damaged_arrow_streams() -> None:
    """Breaks when what a client sends ends the process, or passes unseen."""
    whole = arrow_stream(TABLE)
    rng = np.random.default_rng(1)
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 3).tolist():
            data[at] = int(rng.integers(0, 256))
        cut = int(rng.integers(0, len(data) + 1))
        for body in (bytes(data), whole[:cut]):
            try:
                batch = read_arrow(body)
                batch.validate(full=True)
            except Refused as error:
                assert error.status in (400, 415)
    with pytest.raises(Refused, match="two columns have the same name"):
        read_arrow(arrow_stream(pa.table([[1], [2]], names=["a", "a"])))


@pytest.mark.parametrize(
    ("form", "payload"), [(LINES, b'{"a": 1}\n2\n'), (ARRAY, b'[{"a": 1}, 2]'), (ARROW, arrow_stream(TABLE))]
)
def test_entries_give_what_was_sent(tmp_path: Path, form: int, payload: bytes) -> None:
    journal = Journal(tmp_path, LIMIT)
    journal.append([Entry(form, 2, payload)])
    journal.close()
    journal = Journal(tmp_path, LIMIT)
    (found,) = journal.replay(0)
    journal.close()
    assert (found.form, found.records, found.payload) == (form, 2, payload)
    values = found.values()
    assert values == [{"a": 1}, 2] if form != ARROW else values.to_pylist() == TABLE.to_pylist()
