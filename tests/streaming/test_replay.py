"""Replays at a multiple of real time: records come when their time has passed, each once, wherever a run resumes."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goffish import stream
from goffish.errors import InputError
from goffish.streaming import replay
from goffish.streaming.flow_file import load_flow
from goffish.streaming.replay import Replay
from goffish.streaming.runtime.cluster import Cluster, run_workers
from goffish.streaming.sources import Position, Source


class Time:
    """Real time that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def write(folder: Path, times: list[float], kind: str = "jsonl", name: str = "0") -> Path:
    """Write a file of records with these times; every seventh line of a text file is no record."""
    rows = [{"at": at, "n": number} for number, at in enumerate(times)]
    file = folder / f"{name}.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=7)
        return file
    lines = ["at,n\n"] if kind == "csv" else []
    for row in rows:
        lines.append(f"{row['at']},{row['n']}\n" if kind == "csv" else json.dumps(row) + "\n")
        lines += ["bad,x,y\n"] if row["n"] % 7 == 6 else []
    file.write_text("".join(lines))
    return file


def source_of(path: Path, speed: float = 10.0, **more: Any) -> Source:
    read = {".csv": stream.read_csv, ".parquet": stream.read_parquet}.get(path.suffix, stream.read_json_lines)
    return Replay(read(path, **more), "at", speed).begin(resumed=False)


def test_records_wait_for_their_time(tmp_path: Path, real: Time) -> None:
    """Of two files, the clock begins with the earlier one, and runs on while nothing is read."""
    write(tmp_path, [1000, 1000.5, 1010, 1005, 1100])
    write(tmp_path, [1010, 1011], name="1")
    source = source_of(tmp_path)
    late, early = (source.open(name, None) for name in reversed(source.partitions()))

    def read() -> tuple[list[int], list[int]]:
        found = [reader.read(100) for reader in (early, late)]
        return tuple([] if one is None else [row["n"] for row in one.values] for one in found)  # type: ignore[return-value]

    assert read() == ([0], [])
    real.now += 0.04
    assert read() == ([], [])
    real.now += 0.02
    assert read() == ([1], [])
    real.now += 0.99  # 1010.5: the order of a file stays as it is
    assert read() == ([2, 3], [0])
    real.now += 100
    assert read() == ([4], [1])
    assert read() == ([], []) and early.done and late.done


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("seed", range(3))
def test_reading_again_from_any_position(tmp_path: Path, real: Time, kind: str, seed: int) -> None:
    """Breaks when batches of other sizes from a position lose or repeat records or lines that are none."""
    rng = random.Random(seed)
    times = [1000 + number / 10 + rng.random() for number in range(100)]
    path = write(tmp_path, times, kind)
    found, bad, position = list[int](), list[str](), None
    reader = source_of(path).open(str(path), position)
    for _ in range(10_000):
        read = reader.read(rng.randrange(1, 30))
        if read is not None:
            rows = read.values.to_pylist() if isinstance(read.values, pa.RecordBatch) else read.values
            assert all(row["at"] <= 1000 + rng.random() + (real.now - 100) * 10 + 1 for row in rows)
            found += [row["n"] for row in rows]
            bad += [one.error for one in read.bad]
        if reader.done:
            break
        real.now += rng.random() / 20
        if rng.random() < 0.1:
            position = json.loads(json.dumps(reader.position))
            reader.close()
            reader = source_of(path).open(str(path), position)
    assert found == list(range(100))
    assert len(bad) == len(set(bad)) == (0 if kind == "parquet" else 14)


def test_a_resumed_replay_goes_on_at_its_time(tmp_path: Path, real: Time) -> None:
    path = write(tmp_path, [1000, 1001, 1050, 1060])
    reader = source_of(path).open(str(path), None)
    real.now += 1
    assert reader.read(9) is not None
    real.now += 0.1
    read = reader.read(9)
    assert read is None or len(read.values) == 1
    position: Position = [*reader.position]
    real.now += 1000  # the flow is stopped
    again = source_of(path).open(str(path), position)
    assert again.read(9) is None
    real.now += 4.95
    read = again.read(9)
    assert read is not None and [row["n"] for row in read.values] == [2]


def test_records_without_a_time_do_not_wait(tmp_path: Path, real: Time) -> None:
    (tmp_path / "0.jsonl").write_text('{"n": 0}\n{"n": 1, "at": 1000}\n{"n": 2}\n{"n": 3, "at": 2000}\n')
    reader = source_of(tmp_path / "0.jsonl").open(str(tmp_path / "0.jsonl"), None)
    found = [read.values for _ in range(3) if (read := reader.read(9)) is not None]
    assert [row["n"] for rows in found for row in rows] == [0, 1, 2]


def make_flow(folder: Path, speed: float | None, **more: Any) -> stream.Flow:
    flow = stream.Flow("replays")
    read = flow.source(stream.read_json_lines(folder / "in", speed=speed, **more), time="at", name="read")
    read.sink(stream.write_json_lines(folder / "out"), name="out")
    return flow


def rows_of(folder: Path) -> list[int]:
    files = sorted((folder / "out").glob("part-*"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]


def test_a_flow_that_is_stopped(tmp_path: Path) -> None:
    """It takes as long as it happened, by the speed, and each record comes once."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", [1000 + number / 50 for number in range(201) if number % 7 != 6])
    number = len((tmp_path / "in" / "0.jsonl").read_text().splitlines()) - 24
    begun = time.monotonic()
    flow = stream.Flow("replays", on_error=stream.print_values())
    read = flow.source(stream.read_json_lines(tmp_path / "in", speed=3), time="at", name="read")
    read.sink(stream.write_json_lines(tmp_path / "out"), name="out")
    first = flow.run(checkpoint=tmp_path / "saved", until=lambda metrics: metrics.records > 0)
    assert first.stopped == "until" and 0 < len(rows_of(tmp_path)) < number
    with pytest.raises(InputError, match=r"0\.jsonl: the checkpoint is of a run with speed; resume it with a speed"):
        make_flow(tmp_path, None).run(checkpoint=tmp_path / "saved")
    assert flow.run(checkpoint=tmp_path / "saved").stopped == "finished"
    assert time.monotonic() > begun + 1.3
    assert rows_of(tmp_path) == list(range(number))


@pytest.mark.slow
def test_workers(tmp_path: Path) -> None:
    """Files of different workers are replayed on one time line, also after a run is resumed."""
    (tmp_path / "in").mkdir()
    for name, begin in (("0", 0), ("1", 50)):
        rows = [{"at": 1000 + (begin + number) / 5, "n": begin + number} for number in range(50)]
        (tmp_path / "in" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flow = make_flow(tmp_path, 4.0)
    cluster = Cluster(flow.check(), 2, checkpoint_s=0.1, checkpoint=tmp_path / "saved")
    try:
        end = time.monotonic() + 30
        while not rows_of(tmp_path) and time.monotonic() < end:
            cluster.poll()
    finally:
        cluster.close()
    assert max(rows_of(tmp_path)) < 50
    metrics = run_workers(flow.check(), 2, 1, tmp_path / "saved", 0.1, None)
    assert metrics.stopped == "finished" and sorted(rows_of(tmp_path)) == list(range(100))


def test_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", [1000])
    text = """
name: replays
operators:
- {{name: read, kind: source, read: {{{read}, speed: 20}}, time: at}}
- {{name: out, kind: sink, input: read, write: {{print: true}}}}
"""
    file = tmp_path / "flow.yaml"
    file.write_text(text.format(read=f"json_lines: {tmp_path}/in"))
    options = load_flow(str(file)).check().operator("read").options
    assert isinstance(options.source, Replay) and options.source.speed == 20  # type: ignore[union-attr]
    file.write_text(text.format(read="generate: 5"))
    with pytest.raises(InputError, match="speed: accepted with json_lines, csv and parquet"):
        load_flow(str(file))


def test_refused(tmp_path: Path) -> None:
    for speed in (0, -1, float("inf"), float("nan")):
        for read in (stream.read_json_lines, stream.read_csv, stream.read_parquet):
            with pytest.raises(InputError, match=r"in: speed = .*: must be a positive number, such as 10"):
                read("in", speed=speed)  # type: ignore[operator]
    with pytest.raises(InputError, match="operator read: speed requires time"):
        stream.Flow("replays").source(stream.read_csv("in", speed=2), name="read")
