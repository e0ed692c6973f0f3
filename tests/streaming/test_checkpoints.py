"""Checkpoints: a flow resumes exactly where it was, whatever ended it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.errors import CheckpointError, InputError, JobError
from goffish.streaming import embedded
from goffish.streaming.checkpoints import CheckpointFolder
from goffish.streaming.flow import Flow
from goffish.streaming.sinks import FolderWriter
from goffish.streaming.state import Delta, KeyedState

stream = gf.stream
COUNT = 1200


class Running:
    """Emits the records of each key in a row, and at the end of event time their number."""

    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Any) -> None:
        state["values"] = [*state.get("values", []), value["n"]]
        timers.set(10.0**6)

    def on_timer(self, key: Any, time: float, state: Any, timers: Any, emit: Any) -> None:
        emit({"key": key, "values": state["values"]})


def everything(folder: Path, *, step: int = 7) -> Flow:
    """A flow with every kind of state, which reads and writes files."""
    flow = stream.Flow("everything", on_error=stream.write_json_lines(folder / "bad"))
    source = flow.source(stream.read_json_lines(folder / "in"), time="t", lateness=20, name="in")
    good = source.filter(lambda one: 1 // (one["n"] % 50) >= 0, name="good")
    keyed = good.key_by("k")
    keyed.window(stream.tumbling(step)).sum("n", name="windows").sink(
        stream.write_parquet(folder / "windows"), name="a"
    )
    keyed.window(stream.session(2)).count(name="sessions").sink(stream.write_json_lines(folder / "sessions"), name="b")
    odd = good.filter(lambda one: one["n"] % 97 == 1, name="odd").key_by("k")
    odd.join(odd, within=20, function=lambda a, b: [a["n"], b["n"]]).sink(
        stream.write_json_lines(folder / "joined"), name="c"
    )
    keyed.process(Running, name="rows").sink(stream.write_json_lines(folder / "rows"), name="d")
    keyed.reduce(lambda total, one: total + one["n"], initial=0, name="total").sink(
        stream.write_json_lines(folder / "totals"), name="e"
    )
    loop = flow.loop("again")
    parts = good.map(lambda one: (one["n"], one["n"] % 5)).union(loop, name="all").branch(
        {"done": lambda one: one[1] == 0, "more": lambda one: True}
    )  # fmt: skip
    loop.close(parts["more"].map(lambda one: (one[0], one[1] - 1)))
    parts["done"].sink(stream.write_csv(folder / "looped"), name="f")
    return flow


def write_input(folder: Path, count: int = COUNT) -> None:
    rng = random.Random(1)
    (folder / "in").mkdir(parents=True)
    for part in range(3):
        lines = [{"n": n, "t": n / 10 + rng.random() * 10, "k": f"k{rng.randrange(20)}"} for n in range(part, count, 3)]
        (folder / "in" / f"{part}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def results(folder: Path) -> dict[str, Any]:
    """What was published, in an order of its own; of the running totals, the last of each key."""
    found: dict[str, Any] = {"windows": sorted(pq.read_table(folder / "windows").to_pylist(), key=repr)}
    for name in ("bad", "sessions", "joined", "rows"):
        lines = [json.loads(line) for file in (folder / name).glob("part-*") for line in file.read_text().splitlines()]
        for line in lines if name == "rows" else ():
            line["values"].sort()  # partitions are read in another order after a restart
        found[name] = sorted(lines, key=repr)
    parts = sorted((folder / "totals").glob("part-*"))
    lasts = [json.loads(line) for file in parts for line in file.read_text().splitlines()]
    found["totals"] = {one["k"]: one["value"] for one in lasts}
    rows = [line for file in (folder / "looped").glob("part-*") for line in file.read_text().splitlines()[1:]]
    found["looped"] = sorted(rows)
    assert list(folder.rglob(".*")) == []
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The input, and the results of a run without interruption."""
    folder = tmp_path_factory.mktemp("expected")
    write_input(folder)
    metrics = everything(folder).run()
    assert metrics.records == COUNT
    found = results(folder)
    # Not our own code: totals of Python over all records.
    records = [json.loads(line) for file in (folder / "in").iterdir() for line in file.read_text().splitlines()]
    good = [one for one in records if one["n"] % 50]
    totals: Counter[str] = Counter()
    for one in good:
        totals[one["k"]] += one["n"]
    assert found["totals"] == totals
    assert len(found["bad"]) == COUNT // 50
    assert sum(row["n"] for row in found["windows"]) == totals.total()
    assert len(found["looped"]) == len(good)
    assert sorted(n for line in found["rows"] for n in line["values"]) == sorted(one["n"] for one in good)
    return folder, found


def copy_input(expected: tuple[Path, dict[str, Any]], folder: Path) -> None:
    shutil.copytree(expected[0] / "in", folder / "in")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_a_stopped_flow_resumes(expected: tuple[Path, dict[str, Any]], tmp_path: Path, seed: int) -> None:
    """Breaks when state, positions, watermarks, loops or files are lost or doubled between two runs."""
    copy_input(expected, tmp_path)
    rng, runs, stopped = random.Random(seed), 0, ""
    while stopped != "finished":
        stopped, runs = run_some(everything(tmp_path), tmp_path / "ck", rng.randint(50, 300)).stopped, runs + 1
    assert runs > 3
    assert results(tmp_path) == expected[1]
    again = everything(tmp_path).run(checkpoint=tmp_path / "ck")
    assert (again.stopped, again.records) == ("finished", COUNT)
    assert results(tmp_path) == expected[1]


def run_some(flow: Flow, checkpoint: Path, records: int) -> Any:
    """Run until about a number of records was read, with small batches."""
    executor = embedded.Executor(flow.check(), checkpoint, 0.001, None)
    begun = executor.metrics().records
    one_batch = executor._one_batch

    def counted(turn: Any, limit: int) -> bool:
        if executor.metrics().records >= begun + records:
            executor.stop("until")
        return one_batch(turn, min(limit, 37))

    executor._one_batch = counted  # type: ignore[method-assign]
    return executor.run()


class Crash(BaseException):
    """The end of a process."""


@pytest.mark.slow
def test_a_crash_between_any_two_writes(
    expected: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a checkpoint and the files of its sinks are not published as one."""
    copy_input(expected, tmp_path)
    rng, left, crashes = random.Random(3), 0, 0
    replace, fsync = Path.replace, os.fsync

    def counted(call: Any) -> Any:
        def one(*given: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash
            return call(*given)

        return one

    monkeypatch.setattr(Path, "replace", counted(replace))
    monkeypatch.setattr(os, "fsync", counted(fsync))
    monkeypatch.setattr(FolderWriter, "close", lambda writer: None)  # nothing is cleaned up
    while True:
        left = rng.randint(1, 90)
        try:
            if run_some(everything(tmp_path), tmp_path / "ck", 200).stopped == "finished":
                break
        except Crash:
            crashes += 1
        assert crashes < 500
    assert crashes > 5
    assert results(tmp_path) == expected[1]


def work(folder: Path) -> None:
    embedded._FIRST = embedded._MOST = 16  # many batches: the flow is killed in the middle
    everything(folder).run(checkpoint=folder / "ck", every=0.01)


def test_kill_9_at_any_moment(expected: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Breaks when a process that is killed leaves a checkpoint or files that do not match."""
    copy_input(expected, tmp_path)
    rng, killed, code = random.Random(5), 0, None
    while code != 0:
        child = multiprocessing.get_context("fork").Process(target=work, args=(tmp_path,))
        child.start()
        child.join(rng.uniform(0.01, 0.05) * (1 + killed / 5))
        if child.is_alive():
            child.kill()
            killed += 1
        child.join()
        code = child.exitcode
        assert code in (0, -signal.SIGKILL)
    assert killed >= 2
    assert results(tmp_path) == expected[1]


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    flow, found = stream.Flow("fills"), stream.collect()
    flow.source(stream.generate(20_000)).key_by(lambda n: f"{n:0200d}").count().sink(found)
    run_some(flow, tmp_path / "ck", 500)
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(
            JobError, match=r"ck: checkpoint \d+ cannot be written \(File too large\); checkpoint \d+ stays valid"
        ):
            flow.run(checkpoint=tmp_path / "ck", every="1h")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list((tmp_path / "ck").glob(".*"))
    metrics = flow.run(checkpoint=tmp_path / "ck")
    assert (metrics.stopped, metrics.records) == ("finished", 20_000)
    assert {one["count"] for one in found.values} == {1}


def test_a_folder_that_cannot_be_synchronized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when what a manifest names is removed as the step after its replacement has failed."""
    flow, found = stream.Flow("fills"), stream.collect()
    flow.source(stream.generate(20_000)).key_by(lambda n: n % 10).count().sink(found)
    run_some(flow, tmp_path / "ck", 500)
    before, calls, fsync = (tmp_path / "ck" / "checkpoint.json").read_text(), [0], os.fsync

    def fails(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == 4:  # after the files of state and the manifest, each with its folder
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(JobError, match=r"cannot be written \(Input/output error\)"):
        flow.run(checkpoint=tmp_path / "ck", every="1h")
    monkeypatch.undo()
    assert (tmp_path / "ck" / "checkpoint.json").read_text() != before
    assert flow.run(checkpoint=tmp_path / "ck").records == 20_000
    assert max(one["count"] for one in found.values) == 2000


def test_a_folder_in_which_sinks_cannot_write(tmp_path: Path) -> None:
    flow = stream.Flow("fills")
    flow.source(stream.generate(20_000)).sink(stream.write_json_lines(tmp_path / "out"), name="out")
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(JobError, match=r"operator out: .*out: cannot be written \(File too large\)"):
            flow.run(checkpoint=tmp_path / "ck")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert flow.run(checkpoint=tmp_path / "ck").stopped == "finished"
    lines = [int(line) for file in sorted((tmp_path / "out").iterdir()) for line in file.read_text().splitlines()]
    assert lines == list(range(20_000))


def simple(key: str = "k", name: str = "count") -> Flow:
    flow = stream.Flow("simple")
    flow.source(stream.from_iterable([{"k": 1, "j": 2}])).key_by(key).count(name=name).sink(stream.collect())
    return flow


def test_checkpoints_of_another_flow_are_refused(tmp_path: Path) -> None:
    simple().run(checkpoint=tmp_path / "ck")
    write_input(tmp_path, 3)
    for other in (simple(key="j"), simple(name="other"), everything(tmp_path)):
        with pytest.raises(
            InputError,
            match=r"ck: checkpoint of another flow.*source, count, sink.*name another folder.*separate workers",
        ):
            other.run(checkpoint=tmp_path / "ck")
    assert simple().run(checkpoint=tmp_path / "ck").stopped == "finished"


def test_a_file_that_is_missing_after_a_checkpoint(tmp_path: Path) -> None:
    write_input(tmp_path)
    assert run_some(everything(tmp_path), tmp_path / "ck", 100).stopped == "until"
    (tmp_path / "in" / "1.jsonl").unlink()
    with pytest.raises(InputError, match=r"operator in: .*1\.jsonl: is missing, but was not read to its end"):
        everything(tmp_path).run(checkpoint=tmp_path / "ck")


def test_state_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    flow = stream.Flow("lambdas")
    counted = flow.source(stream.generate(1)).key_by(str).process(Lambdas, name="counted")
    counted.sink(stream.collect())
    with pytest.raises(JobError, match=r"operator counted: .*pickle"):
        flow.run(checkpoint=tmp_path / "ck")
    assert not (tmp_path / "ck" / "checkpoint.json").exists()


class Lambdas:
    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Any) -> None:
        state["function"] = lambda: value


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    flow = stream.Flow("long")
    flow.source(stream.generate(rate=10.0)).sink(stream.collect())
    running = flow.start(checkpoint=tmp_path / "ck")
    with pytest.raises(InputError, match="ck: in use by another run"):
        flow.run(checkpoint=tmp_path / "ck")
    running.stop()
    flow.run(checkpoint=tmp_path / "ck", until=0.01)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda ck: (ck / "checkpoint.json").write_text("{"), "checkpoint.json: is damaged"),
        (lambda ck: (ck / "checkpoint.json").write_bytes(b"\xff"), "checkpoint.json: cannot be read"),
        (lambda ck: next(ck.glob("state-*")).unlink(), "arrow: cannot be read"),
        (lambda ck: next(ck.glob("state-*")).write_bytes(b"x"), r"arrow: is damaged \(wrong checksum\)"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    simple().run(checkpoint=tmp_path / "ck")
    damage(tmp_path / "ck")
    with pytest.raises(CheckpointError, match=message):
        simple().run(checkpoint=tmp_path / "ck")


def test_changes_are_saved_and_old_files_removed(tmp_path: Path) -> None:
    """Breaks when every checkpoint writes the whole state, or files pile up."""
    folder, state, sizes = CheckpointFolder(tmp_path, "f", "x"), KeyedState(), []
    for number in range(1000):
        state.put(number, 0, "x" * 100)
    for number in range(1, 40):
        whole = folder.whole_is_due
        state.put(number, 0, number)
        changes = state.collect()
        delta = state.extract() if whole else changes
        folder.save(number, {"op": delta}, {"number": number}, whole=whole, operators=["op"])
        sizes.append((tmp_path / f"state-{number:08d}.arrow").stat().st_size)
        assert len(list(tmp_path.glob("state-*"))) <= 11
    assert sum(size > 50_000 for size in sizes) == 4
    folder.close()
    copy, again = KeyedState(), CheckpointFolder(tmp_path, "f", "x")
    for operator, delta in again.state():
        assert operator == "op"
        copy.install(delta)
    assert copy.entries == state.entries
    assert again.latest is not None and (again.latest.number, again.latest.body) == (39, {"number": 39})
    again.close()


def test_plain_values_are_saved_without_pickle() -> None:
    """Breaks when numbers and texts are pickled, which the format promises not to do."""
    state = KeyedState()
    for key, value in ((1, 1.5), (2, 2.5)):
        state.put(key, "a", value)
    batch = state.collect().to_arrow()
    assert [batch.schema.field(name).metadata for name in batch.schema.names] == [None] * 5
    assert batch.column("values").type == pa.float64()
    state.put(3, "a", {"odd"})
    values = state.extract().to_arrow().schema.field("values")
    assert values.metadata == {b"goffish": b"pickle"}
    assert [value for *_, value, _ in Delta.from_arrow(state.extract().to_arrow()).entries()] == [1.5, 2.5, {"odd"}]


def test_the_active_alternate_survives(tmp_path: Path) -> None:
    flow, found = stream.Flow("alternates"), stream.collect()
    alternates = {"b": stream.Alternate(lambda n: "b", cost=1)}
    flow.source(stream.generate(rate=100)).map(lambda n: "a", name="m", alternates=alternates, cost=1).sink(found)
    running = flow.start(checkpoint=tmp_path / "ck")
    running.switch("m", "b")
    while "b" not in found.values:
        time.sleep(0.01)
    running.stop()
    assert flow.run(checkpoint=tmp_path / "ck", until=0.01)["m"].alternate == "b"
