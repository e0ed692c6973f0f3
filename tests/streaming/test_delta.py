"""Delta tables as sources and sinks; deltalake, which writes or reads them, is the oracle."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from goffish import stream
from goffish.errors import InputError, JobError
from goffish.streaming import delta
from goffish.streaming.batches import Batch
from goffish.streaming.sources import Source
from tests.streaming.pushing import await_

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")


def append(path: Path, first: int, count: int = 3, **options: Any) -> None:
    table = pa.table({"n": range(first, first + count), "s": [f"s{n % 2}" for n in range(first, first + count)]})
    deltalake.write_deltalake(path, table, mode="append", **options)


def read_all(source: Source, limit: int = 1000) -> list[dict[str, Any]]:
    """The records of a table, each batch of which is read again from its position."""
    (partition,) = source.partitions()
    reader, found = source.open(partition, None), []
    while not reader.done:
        before = list(reader.position)
        read = reader.read(limit)
        if read is not None and len(read.values):
            again = source.open(partition, before)
            assert again.read(limit).values.equals(read.values)  # type: ignore[union-attr]
            again.close()
            found += read.values.to_pylist()  # type: ignore[union-attr]
    reader.close()
    return found


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize("partitioned", [False, True])
def test_versions_in_order(tmp_path: Path, limit: int, partitioned: bool) -> None:
    for version in range(4):
        append(tmp_path / "t", 10 * version, partition_by=["s"] if partitioned else None)
    for version in (0, 2, 3):
        found = read_all(stream.read_delta(tmp_path / "t", version=version), limit)
        assert [row["n"] // 10 for row in found] == [n for n in range(version, 4) for _ in range(3)]
        assert {(row["n"], row["s"]) for row in found} == {
            (10 * v + n, f"s{(10 * v + n) % 2}") for v in range(version, 4) for n in range(3)
        }
    found = read_all(stream.read_delta(tmp_path / "t"), limit)
    expected = deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert read_all(stream.read_delta(tmp_path / "t", version=9)) == []


def test_partition_columns(tmp_path: Path) -> None:
    rows = [
        {"n": n, "s": s, "d": d, "b": b, "x": x}
        for n, (s, d, b, x) in enumerate([
            ("a b%/c=d", date(2026, 1, 2), True, 1), ("\u00e9 %20", None, False, 2),
            (None, date(1969, 1, 2), None, None),
        ])
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    deltalake.write_deltalake(tmp_path / "t", table, partition_by=["s", "d", "b", "x"])
    expected = deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert sorted(expected, key=lambda row: row["n"]) == rows
    for version in (0, None):
        found = read_all(stream.read_delta(tmp_path / "t", version=version))
        assert sorted(found, key=lambda row: row["n"]) == rows


def test_columns_that_are_added(tmp_path: Path) -> None:
    append(tmp_path / "t", 0, 1)
    more = pa.table({"n": [1], "s": ["x"], "d d": pa.array([None], pa.decimal128(5, 2))})
    deltalake.write_deltalake(tmp_path / "t", more, mode="append", schema_mode="merge")
    first, second = read_all(stream.read_delta(tmp_path / "t", version=0))
    assert (first, second) == ({"n": 0, "s": "s0"}, {"n": 1, "s": "x", "d d": None})
    assert [row["d d"] for row in read_all(stream.read_delta(tmp_path / "t"))] == [None, None]


@pytest.mark.parametrize("feed", ["true", "false"])
def test_changes(tmp_path: Path, feed: str) -> None:
    """Breaks when changes are read in another order, or not at all."""
    append(tmp_path / "t", 0, configuration={"delta.enableChangeDataFeed": feed})
    table = deltalake.DeltaTable(tmp_path / "t")
    table.update(updates={"s": "'new'"}, predicate="n = 1")
    table.delete("n = 2")
    found = read_all(stream.read_delta(tmp_path / "t", version=0, changes=True))
    assert [row["_commit_version"] for row in found] == sorted(row["_commit_version"] for row in found)
    state: Counter[tuple[int, str]] = Counter()
    for row in found:
        sign = -1 if row["_change_type"] in ("delete", "update_preimage") else 1
        state[row["n"], row["s"]] += sign
    assert {key for key, count in state.items() if count} == {(0, "s0"), (1, "new")}
    if feed == "true":
        expected = pa.table(table.load_cdf(0)).drop(["_commit_timestamp"]).to_pylist()
        assert sorted(map(str, map(sorted, map(dict.items, found)))) == sorted(
            map(str, map(sorted, map(dict.items, expected)))
        )
    with pytest.raises(InputError, match="version 1 changes or deletes records; read with changes=True"):
        read_all(stream.read_delta(tmp_path / "t", version=0))


def test_compaction_changes_nothing(tmp_path: Path) -> None:
    append(tmp_path / "t", 0)
    append(tmp_path / "t", 3)
    deltalake.DeltaTable(tmp_path / "t").optimize.compact()
    append(tmp_path / "t", 6)
    assert [row["n"] for row in read_all(stream.read_delta(tmp_path / "t", version=0))] == list(range(9))


def test_files_that_were_vacuumed(tmp_path: Path) -> None:
    """Breaks when records are skipped in silence."""
    append(tmp_path / "t", 0)
    append(tmp_path / "t", 3)
    table = deltalake.DeltaTable(tmp_path / "t")
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(InputError, match=r"t: version 0: part-.*parquet was removed \(vacuum\); begin with another"):
        read_all(stream.read_delta(tmp_path / "t", version=0))
    assert sorted(row["n"] for row in read_all(stream.read_delta(tmp_path / "t"))) == list(range(6))
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").unlink()
    reader = stream.read_delta(tmp_path / "t").open("table", [1, 0, 0, 0, 0])
    with pytest.raises(InputError, match="t: version 1 is not in the log any more"):
        reader.read(10)


def test_a_table_that_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_LOOK_S", 0.02)
    append(tmp_path / "t", 0)
    flow, seen = stream.Flow("follows"), stream.collect()
    flow.source(stream.read_delta(tmp_path / "t", follow=True)).sink(seen)
    run = flow.start(checkpoint=tmp_path / "ck", every=0.05)
    for first in (3, 6, 9):
        append(tmp_path / "t", first)
        await_(lambda: len(seen.values) >= first + 3)  # noqa: B023
    run.stop()
    append(tmp_path / "t", 12)
    flow.run(checkpoint=tmp_path / "ck", until=0.3)
    assert sorted(row["n"] for row in seen.values) == list(range(15))


def test_what_is_not_accepted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="version = -1: must be 0 or more"):
        stream.read_delta("t", version=-1)
    with pytest.raises(InputError, match=r"none: not a Delta table \(no such table\)"):
        stream.read_delta(tmp_path / "none").check()
    with pytest.raises(InputError, match="staging is required for a URI"):
        stream.write_delta("s3://bucket/t")
    append(tmp_path / "t", 0)
    log = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    action = {"path": "x.parquet", "partitionValues": {}, "dataChange": True, "deletionVector": {"storageType": "u"}}
    log.write_text(json.dumps({"add": action}))
    with pytest.raises(InputError, match="version 1: deletion vectors are not supported"):
        read_all(stream.read_delta(tmp_path / "t", version=0))


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def written(path: Path, values: list[Any], checkpoint: Path, **options: Any) -> None:
    flow = stream.Flow("writes")
    flow.source(stream.from_iterable(values)).sink(stream.write_delta(path, **options), name="out")
    flow.run(checkpoint=checkpoint)


def test_what_is_written(tmp_path: Path) -> None:
    rows = [{"n": n, "s": f"s{n % 2}", "f": None if n % 3 else n / 2} for n in range(20)]
    written(tmp_path / "t", rows[:10], tmp_path / "ck1", partition_by=["s"])
    written(tmp_path / "t", rows[10:], tmp_path / "ck2")
    written(tmp_path / "t", rows[10:], tmp_path / "ck2")  # is complete
    assert sorted(rows_of(tmp_path / "t"), key=lambda row: row["n"]) == rows
    assert deltalake.DeltaTable(tmp_path / "t").metadata().partition_columns == ["s"]
    assert not list((tmp_path / "t").rglob("*.prepared"))


def test_the_columns_of_a_table(tmp_path: Path) -> None:
    """Breaks when a checkpoint is saved whose records can never be appended."""
    deltalake.write_deltalake(tmp_path / "t", pa.table({"n": pa.array([1], pa.int32()), "s": ["a"]}))
    written(tmp_path / "t", [{"n": 2}, {"n": 3, "s": "b"}], tmp_path / "ck")
    assert sorted(rows_of(tmp_path / "t"), key=str) == [{"n": 1, "s": "a"}, {"n": 2, "s": None}, {"n": 3, "s": "b"}]
    for value, message in (
        ({"n": 1, "x": 2}, "operator out: column 'x' is not in the table .*; its columns are n, s"),
        ({"n": "two"}, "operator out: column 'n' of .* has the type int32"),
        ({"n": 1 << 40}, "operator out: column 'n' of .* has the type int32"),
    ):
        with pytest.raises(JobError, match=message):
            written(tmp_path / "t", [value], tmp_path / "other")
        assert not (tmp_path / "other" / "checkpoint.json").exists()
    assert len(rows_of(tmp_path / "t")) == 3


@pytest.mark.parametrize("committed", [False, True])
def test_a_crash_between_checkpoint_and_commit(tmp_path: Path, committed: bool) -> None:
    """Breaks when records of a saved checkpoint are lost, or appended twice."""
    sink = stream.write_delta(tmp_path / "t", staging=tmp_path / "staging")
    writer = sink.writer("out")
    writer.recover(None)
    for number in (1, 2, 3):
        writer.write(Batch([{"n": number}]))
        writer.prepare(number)
        if number == 1:
            writer.commit(1)
    if committed:
        (prepared,) = (tmp_path / "staging").rglob("*00002.parquet.prepared")
        data = prepared.read_bytes()
        writer.commit(2)
        prepared.write_bytes(data)  # the process ended before it was removed
    writer.close()
    again = sink.writer("out")
    again.recover(2)
    assert sorted(row["n"] for row in rows_of(tmp_path / "t")) == [1, 2]
    again.write(Batch([{"n": 4}]))
    again.prepare(3)
    again.commit(3)
    with pytest.raises(InputError, match="in use by another run"):
        sink.writer("out").recover(3)
    again.close()
    assert sorted(row["n"] for row in rows_of(tmp_path / "t")) == [1, 2, 4]
    assert not list((tmp_path / "staging").rglob("*.prepared"))


def work(folder: Path) -> None:
    (folder / "begun").touch()
    flow = stream.Flow("copies")
    source = stream.generate(lambda n: {"n": n}, count=1000, rate=500)
    flow.source(source).sink(stream.write_delta(folder / "t"))
    flow.run(checkpoint=folder / "ck", every=0.02)


@pytest.mark.slow
def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    rng, killed, code = random.Random(5), 0, None
    while code != 0:
        child = multiprocessing.get_context("spawn").Process(target=work, args=(tmp_path,))
        (tmp_path / "begun").unlink(missing_ok=True)
        child.start()
        await_((tmp_path / "begun").exists)
        child.join(rng.uniform(0.2, 1.5) * (1 + killed / 5))
        child.kill()
        child.join()
        code = child.exitcode
        killed += code != 0
        assert code in (0, -signal.SIGKILL)
    assert killed >= 2
    assert sorted(row["n"] for row in rows_of(tmp_path / "t")) == list(range(1000))


def test_a_flow_file() -> None:
    flow = stream.read_flow({
        "name": "copies", "operators": [
            {"name": "in", "kind": "source", "read": {"delta": {"path": "a", "version": 3, "follow": True}}},
            {"name": "out", "kind": "sink", "input": "in", "write": {"delta": {"path": "b", "partition_by": ["s"]}}},
        ],
    })  # fmt: skip
    source, sink = (one.options for one in flow.operators)
    assert source.source == stream.read_delta("a", version=3, follow=True)  # type: ignore[union-attr]
    assert sink.sink == stream.write_delta("b", partition_by=["s"])  # type: ignore[union-attr]
