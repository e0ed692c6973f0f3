"""Updates of flows in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from tests.streaming.updates.gated import Gated

COUNT, FREE = 4000, 1250  # the last of these are in the middle of a window


def source(folder: Path) -> Gated:
    """Records; all but the first of them wait until the flow was updated."""
    return Gated(gf.stream.read_json_lines(str(folder / "in.jsonl")), FREE, str(folder / "updated"))


def make(folder: Path, factor: int, *, window: str = "10s") -> gf.stream.Flow:
    flow = gf.stream.Flow("numbers")
    read = flow.source(source(folder), time="at", name="read")
    scaled = read.map(lambda row: row | {"n": row["n"] * factor}, name="scale").key_by("key")
    scaled.window(gf.stream.tumbling(window)).sum("n", name="sums").sink(gf.stream.write_json_lines(folder / "sums"))
    scaled.reduce(lambda total, row: total + row["n"], initial=0, name="total").sink(
        gf.stream.write_json_lines(folder / "totals")
    )
    return flow


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [json.dumps({"at": i / 100, "key": i % 3, "n": 1}) + "\n" for i in range(COUNT)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    return tmp_path


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not reached():
        time.sleep(0.005)
        assert time.monotonic() < end


def split(value: int) -> int:
    """Return how many records a sum has, of both versions."""
    return value % 1_000_000 + value // 1_000_000


@pytest.mark.parametrize("partial", ["emit", "drop", "merge"])
def test_windows_and_totals(folder: Path, partial: str) -> None:
    run = make(folder, 1).start(checkpoint=folder / "saved")
    until(lambda: run.metrics["total"].received == FREE)
    report = run.update(make(folder, 1_000_000).check(), "pvc", partial)
    changes = "changed scale" if partial == "merge" else "changed scale, sums"
    assert (report.state, report.changes) == ("complete", changes)
    (folder / "updated").touch()
    metrics = run.wait()
    assert metrics["scale"].received == COUNT
    both = [row for row in rows(folder / "sums") if row["n"] % 1_000_000 > 0 and row["n"] >= 1_000_000]
    if partial == "merge":
        assert both
        assert len(rows(folder / "sums")) == 12
    else:
        assert not both
        assert (report.lost > 0) == (partial == "drop")
    if partial != "drop":
        assert sum(split(row["n"]) for row in rows(folder / "sums")) == COUNT
    last = {row["key"]: row["value"] for row in rows(folder / "totals")}
    assert sum(split(value) for value in last.values()) == COUNT


def test_checkpoints_are_of_the_new_version(folder: Path) -> None:
    run = make(folder, 1).start(checkpoint=folder / "saved")
    until(lambda: run.metrics["total"].received == FREE)
    assert run.update(make(folder, 1, window="20s").check()).changes == "changed sums"
    run.stop()
    (folder / "updated").touch()
    with pytest.raises(InputError, match="checkpoint of another flow"):
        make(folder, 1).run(checkpoint=folder / "saved")
    make(folder, 1, window="20s").run(checkpoint=folder / "saved")
    assert sum(row["n"] for row in rows(folder / "sums")) == COUNT
    assert max(row["value"] for row in rows(folder / "totals")) == -(-COUNT // 3)


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no model")

    def on_value(self, key: int, value: Any, state: Any, timers: Any, emit: Any) -> None:
        """Not called."""


def test_a_version_that_cannot_start(folder: Path) -> None:
    run = make(folder, 1).start()
    flow = gf.stream.Flow("numbers")
    read = flow.source(source(folder), time="at", name="read")
    read.key_by("key").process(Broken, name="model").sink(gf.stream.write_json_lines(folder / "model"))
    report = run.update(flow.check())
    assert report.state == "aborted" and "no model" in report.reason
    assert run.update(make(folder, 2).check(), partial_windows="merge").state == "complete"
    (folder / "updated").touch()
    run.wait()
    with pytest.raises(InputError, match=r"strategy = 'fast': choose one of ncl, nch, hti, mvc, pvc"):
        run.update(make(folder, 3).check(), "fast")


class Reminder:
    def on_value(self, key: int, value: Any, state: Any, timers: Any, emit: Any) -> None:
        timers.set(1e6)

    def on_timer(self, key: int, time: float, state: Any, timers: Any, emit: Any) -> None:
        emit({"key": key})


def test_timers_of_an_operator_that_is_removed(folder: Path) -> None:
    """They do not all fire because their operator goes."""
    flow = make(folder, 1)
    others = Gated(gf.stream.generate(lambda n: {"key": n}, count=4), 3, str(folder / "updated"))
    read = flow.source(others, name="other")
    read.key_by("key").process(Reminder, name="reminder").sink(gf.stream.write_json_lines(folder / "reminders"))
    run = flow.start()
    until(lambda: run.metrics["total"].received == FREE and run.metrics["reminder"].received == 3)
    smaller = make(folder, 1)
    smaller.source(others, name="other").sink(gf.stream.call(print))
    assert "removed reminder" in run.update(smaller.check()).changes
    (folder / "updated").touch()
    run.wait()
    assert rows(folder / "reminders") == []
