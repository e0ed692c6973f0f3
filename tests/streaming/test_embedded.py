"""Flows that run in this process: sources, sinks, errors, metrics and interrupts."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import FormatError, GoffishError, InputError, JobError
from goffish.streaming import sources
from goffish.streaming.batches import Batch
from goffish.streaming.sources import Source

stream = gf.stream


def read_all(source: Source, **options: Any) -> list[Any]:
    flow, found = stream.Flow("reads"), stream.collect()
    flow.source(source, **options).sink(found)
    flow.run()
    return found.values


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen")


ROWS = [{"id": i, "name": f"n{i}é", "x": i / 4} for i in range(2500)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in ROWS)
    (tmp_path / "a.jsonl").write_text(text.rstrip("\n"))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    pacsv.write_csv(pa.Table.from_pylist(ROWS), tmp_path / "a.csv")
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=700)
    return tmp_path


READERS = {
    ".jsonl": stream.read_json_lines,
    ".jsonl.gz": stream.read_json_lines,
    ".csv": stream.read_csv,
    ".parquet": stream.read_parquet,
}


@pytest.mark.parametrize("suffix", READERS)
def test_files(files: Path, suffix: str) -> None:
    assert read_all(READERS[suffix](files / f"a{suffix}")) == ROWS
    assert read_all(READERS[suffix](f"file://{files}/*{suffix}")) == ROWS


@pytest.mark.parametrize("suffix", READERS)
def test_any_position_can_be_read_again(files: Path, suffix: str) -> None:
    """Breaks when a reader that begins at a position gives other records than the one that was there."""
    source = READERS[suffix](files / f"a{suffix}")
    path = source.partitions()[0]
    reader, seen, places = source.open(path, None), list[Any](), list[tuple[list[int], int]]()
    while not reader.done:
        found = reader.read(333)
        if found is not None:
            seen += found.values if isinstance(found.values, list) else found.values.to_pylist()
        places.append((list(reader.position), len(seen)))
    assert seen == ROWS
    for position, count in places:
        reader, rest = source.open(path, position), []
        while not reader.done:
            found = reader.read(1000)
            if found is not None:
                rest += found.values if isinstance(found.values, list) else found.values.to_pylist()
        assert rest == ROWS[count:]


def test_folders_patterns_and_uris(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", ".hidden.jsonl", "_SUCCESS", "c.txt"):
        (tmp_path / name).write_text(f'"{name}"\n')
    assert sorted(read_all(stream.read_json_lines(tmp_path))) == ["a.jsonl", "b.jsonl"]
    assert read_all(stream.read_json_lines(tmp_path / "b*")) == ["b.jsonl"]
    memory = fsspec.filesystem("memory")
    memory.pipe("/lake/x.jsonl", b"1\n2\n")
    assert read_all(stream.read_json_lines("memory://lake/x.jsonl")) == [1, 2]
    assert read_all(stream.read_json_lines("memory://lake")) == [1, 2]
    with pytest.raises(InputError, match=r"nothing\.jsonl: no such file; accepted: a file, a pattern, or a folder"):
        read_all(stream.read_json_lines(tmp_path / "nothing.jsonl"))
    with pytest.raises(InputError, match="nosuch"):
        read_all(stream.read_json_lines("nosuch://lake/x"))


def test_values_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a":1}\n\n[1,2]\n  3 \n{"b":{}}\r\nnull')
    assert read_all(stream.read_json_lines(tmp_path / "a.jsonl")) == [{"a": 1}, [1, 2], 3, {"b": {}}, None]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"a":1}\n{"a":1},{"a":2}\n', r"a\.jsonl:2: not a JSON value"),
        ("a.jsonl", '{"a":[{}\n{}]}\n', r"a\.jsonl:1: not a JSON value"),
        ("a.jsonl", '{"a":1}\n\n\n{"a"}\n', r"a\.jsonl:4: not a JSON value"),
        ("a.jsonl", b'"\xff"\n', r"a\.jsonl:1: not a JSON value"),
        ("a.csv", "a,b\n1,2\n\n3\n", r"a\.csv:4: .*Expected 2 columns, got 1"),
        ("a.csv", "a,b\n" + "1,2\n" * 1500 + "1,x\n", r"a\.csv:1502: .*invalid value 'x'"),
        ("a.csv", "a,a\n1,2\n", r"a\.csv:1: column 'a' is named twice"),
        ("a.parquet", "no", r"a\.parquet: not a Parquet file"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(GoffishError, match=message) as caught:
        read_all(READERS[f".{name.partition('.')[2]}"](tmp_path / name))
    assert "\n" not in str(caught.value)


def test_bad_lines_go_to_the_sink_for_errors(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n4,5\n")
    bad, found = stream.collect(), stream.collect()
    flow = stream.Flow("reads", on_error=bad)
    flow.source(stream.read_csv(tmp_path / "a.csv"), name="lines").sink(found)
    metrics = flow.run()
    assert found.values == [{"a": 1, "b": 2}, {"a": 4, "b": 5}]
    assert [(row["operator"], row["record"]) for row in bad.values] == [("lines", "'3'")]
    assert "a.csv:3: " in bad.values[0]["error"]
    assert metrics["lines"].errors == 1


def test_types_of_columns_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b\n007;2\n")
    source = stream.read_csv(tmp_path / "a.csv", separator=";", types={"a": "string"})
    assert read_all(source) == [{"a": "007", "b": 2}]
    with pytest.raises(InputError, match=r"types: .*nothing"):
        read_all(stream.read_csv(tmp_path / "a.csv", types={"a": "nothing"}))


_LINES = st.lists(
    st.sampled_from(["1,a", "22,bé", '3,"c,d"', ",", "4,", "", " ", "\t ", " 5,e", "6,f\r", "\r"]), max_size=40
)


@given(_LINES, st.integers(1, 12), st.integers(1, 40), st.booleans())
@pytest.mark.slow
def test_lines_in_any_portion(lines: list[str], limit: int, block: int, ended: bool) -> None:
    """Records, and where reading continues, do not depend on how the file is cut into portions."""
    text = "\n".join(["1,x"] * 1000 + lines) + "\n" * ended
    expected = [
        (int(a) if a.strip() else None, b) for a, b in csv.reader(one for one in text.splitlines() if one.strip())
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_BLOCK", block * 100)
        path = Path(folder, "a.csv")
        path.write_bytes(f"number,text\n{text}".encode())
        source = stream.read_csv(path, types={"number": "int64"})
        found: list[Any] = []
        position = None
        while True:
            reader = source.open(str(path), position)  # as a run that resumes does
            for _ in range(3):
                read = reader.read(limit)
                found += [] if read is None else Batch(read.values).rows()
                assert read is None or not read.bad
                if reader.done:
                    break
            position = reader.position
            reader.close()
            if reader.done:
                break
    assert [(row["number"], row["text"] or "") for row in found] == expected
    assert position == [len(f"number,text\n{text}".encode()), 2 + text.count("\n") + (not text.endswith("\n"))]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\r"])
def test_blank_lines_of_one_column(blank: str, tmp_path: Path) -> None:
    texts = ["x"] * 1001  # the first thousand lines are read apart from the others
    (tmp_path / "a.csv").write_text("\n".join(["text", *texts, blank, "y", blank]), newline="")
    assert [row["text"] for row in read_all(stream.read_csv(tmp_path / "a.csv"))] == [*texts, "y"]


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_some_columns(kind: str, files: Path) -> None:
    path = files / f"a{kind}"
    assert read_all(READERS[kind](path, columns=["x", "id"])) == [{"x": row["x"], "id": row["id"]} for row in ROWS]
    with pytest.raises(InputError, match=r"no column 'y'; the columns are id, name, x"):
        read_all(READERS[kind](path, columns=["id", "y"]))
    for wrong in ("id", [], [1]):
        with pytest.raises(InputError, match="give a list of names"):
            READERS[kind](path, columns=wrong)


@pytest.mark.parametrize("items", [range(7), "abc", (n for n in range(5)), iter([1])])
def test_iterables(items: Any) -> None:
    expected = {range: list(range(7)), str: ["a", "b", "c"]}.get(type(items))
    assert read_all(stream.from_iterable(items)) == (
        expected or [*range(5)] if expected or not hasattr(items, "__length_hint__") else [1]
    )


def test_batches_of_arrow_and_values_mix() -> None:
    table = pa.table({"a": [1, 2]})
    assert read_all(stream.from_iterable(table)) == [{"a": 1}, {"a": 2}]
    assert read_all(stream.from_iterable([1, *table.to_batches(), 2])) == [1, {"a": 1}, {"a": 2}, 2]


def test_files_that_grow(tmp_path: Path) -> None:
    """Breaks when lines or files that are added are missed, or a line is read before it is complete."""
    file = tmp_path / "a.jsonl"
    file.write_text("1\n2\n3")
    flow, found = stream.Flow("follows"), stream.collect()
    flow.source(stream.read_json_lines(tmp_path, follow=True)).sink(found)
    running = flow.start()
    eventually(lambda: found.values == [1, 2])
    with file.open("a") as out:
        out.write("4\n5\n")
    eventually(lambda: found.values == [1, 2, 34, 5])
    (tmp_path / "b.jsonl").write_text("6\n")
    eventually(lambda: found.values == [1, 2, 34, 5, 6])
    assert running.running
    assert running.stop().stopped == "stopped"
    found.values.clear()
    running = flow.start()
    eventually(lambda: len(found.values) == 5)
    file.write_text("")
    with pytest.raises(InputError, match=r"operator source: .*fewer than the .* may only grow"):
        running.wait(60)


def test_a_rate_limits_a_source() -> None:
    flow, found = stream.Flow("slow"), stream.collect()
    flow.source(stream.generate(rate=20.0)).sink(found)
    metrics = flow.run(until=lambda metrics: metrics.seconds > 0.5)
    assert metrics.stopped == "until"
    assert found.values == list(range(len(found.values)))
    assert 1 <= len(found.values) <= 20 * metrics.seconds + 2


SINKS: dict[str, tuple[Callable[[Any], Any], Callable[[Path], list[Any]]]] = {
    "parquet": (stream.write_parquet, lambda path: pq.read_table(path).to_pylist()),
    "jsonl": (stream.write_json_lines, lambda path: [json.loads(line) for line in path.read_text().splitlines()]),
    "csv": (stream.write_csv, lambda path: pacsv.read_csv(path).to_pylist()),
}


@pytest.mark.parametrize("kind", SINKS)
def test_sinks(tmp_path: Path, kind: str) -> None:
    write, read = SINKS[kind]
    flow = stream.Flow("writes")
    flow.source(stream.from_iterable(ROWS[:5] + pa.Table.from_pylist(ROWS[5:9]).to_batches() + ROWS[9:])).sink(
        write(tmp_path / "o")
    )
    flow.run(every="1h")
    assert [path.name for path in (tmp_path / "o").iterdir()] == [f"part-00000001.{kind}"]
    assert read(tmp_path / "o" / f"part-00000001.{kind}") == ROWS
    with pytest.raises(InputError, match=r"o: has part 1, which is newer than a run that begins"):
        flow.run(every="1h")


def test_parquet_files_of_a_run_have_one_schema(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": None, "b": "x"}, {"a": 2.5}]
    flow = stream.Flow("writes")
    flow.source(stream.from_iterable(rows)).sink(stream.write_parquet(tmp_path / "o"))
    flow.run(every="1h")
    assert pq.read_table(tmp_path / "o").to_pylist() == [
        {"a": 1.0, "b": None},
        {"a": None, "b": "x"},
        {"a": 2.5, "b": None},
    ]


@pytest.mark.parametrize("values", [[{"a": 1}, {"a": "x"}], [1, "x"]])
def test_records_that_do_not_fit_columns(tmp_path: Path, values: list[Any]) -> None:
    flow = stream.Flow("writes")
    flow.source(stream.from_iterable(values)).sink(stream.write_parquet(tmp_path / "o"), name="out")
    with pytest.raises(JobError, match="operator out: records cannot be Arrow columns"):
        flow.run()
    assert not list((tmp_path / "o").iterdir())


def test_sinks_refuse_what_they_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    flow, source = stream.Flow("writes"), None
    source = flow.source(stream.generate(1))
    source.sink(stream.write_csv(tmp_path / "file"))
    with pytest.raises(InputError, match="file: is a file; name a folder"):
        flow.run()
    with pytest.raises(InputError, match="s3://bucket/x"):
        stream.write_parquet("s3://bucket/x")


def test_printed_values(capsys: pytest.CaptureFixture[str]) -> None:
    flow = stream.Flow("prints")
    flow.source(stream.from_iterable(["text", {"a": {1}}, 2.5])).sink(stream.print_values())
    flow.run()
    assert capsys.readouterr().out == 'text\n{"a": [1]}\n2.5\n'


def inverse(n: int) -> float:
    return 1 / n


def test_a_poison_record_fails_the_flow() -> None:
    flow, found = stream.Flow("fails"), stream.collect()
    flow.source(stream.from_iterable([1, 0])).map(inverse).sink(found)
    with pytest.raises(JobError) as caught:
        flow.run()
    assert str(caught.value) == "operator inverse: ZeroDivisionError: division by zero (record 0)"
    assert caught.value.exit_code == 1


def test_poison_records_go_to_a_sink() -> None:
    bad, found = stream.collect(), stream.collect()
    flow = stream.Flow("errs", on_error=bad, max_errors=2)
    values = [1, 0, 2, 0]
    flow.source(stream.from_iterable(values)).map(inverse).sink(found)
    metrics = flow.run()
    assert found.values == [1.0, 0.5]
    assert bad.values == [{"operator": "inverse", "error": "ZeroDivisionError: division by zero", "record": "0"}] * 2
    assert metrics["inverse"].errors == 2
    values.append(0)
    with pytest.raises(JobError, match=r"record 0.; 3 errors, max_errors = 2"):
        flow.run()


@pytest.mark.parametrize("where", ["source", "sink", "process"])
def test_other_functions_that_fail_are_named(where: str) -> None:
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no license")

        def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Any) -> None: ...

    flow = stream.Flow("fails")
    source = flow.source(stream.generate(inverse if where == "source" else None, count=3), name="source")
    if where == "process":
        source = source.key_by(str).process(Broken, name="process")
    source.sink(stream.call(inverse) if where == "sink" else stream.collect(), name="sink")
    with pytest.raises(JobError, match=f"operator {where}: (ZeroDivisionError|RuntimeError): "):
        flow.run()


def test_alternates_are_switched_while_the_flow_runs() -> None:
    flow, found = stream.Flow("switches"), stream.collect()
    alternates = {"second": stream.Alternate(lambda n: 2, cost=0.5, value=0.5)}
    flow.source(stream.generate(rate=2000)).map(lambda n: 1, name="m", alternates=alternates, cost=1.0).sink(found)
    running = flow.start()
    eventually(lambda: len(found.values) > 0)
    running.switch("m", "second")
    eventually(lambda: 2 in found.values)
    assert running.metrics["m"].alternate == "second"
    running.switch("m", "main")
    eventually(lambda: found.values[-1] == 1)
    with pytest.raises(InputError, match="operator m: no alternate 'third'; choose one of main, second"):
        running.switch("m", "third")
    with pytest.raises(InputError, match="it has none"):
        running.switch("sink", "x")
    running.stop()
    changes = [after for before, after in zip(found.values, found.values[1:], strict=False) if before != after]
    assert changes == [2, 1]


def test_metrics() -> None:
    flow, found = stream.Flow("counts"), stream.collect()
    source = flow.source(stream.generate(10), name="numbers")
    source.filter(lambda n: n % 2 == 0, name="even").flat_map(lambda n: [n] * n, name="copies").sink(found, name="out")
    metrics = flow.run()
    assert [(one.operator, one.received, one.sent) for one in metrics.operators] == [
        ("numbers", 10, 10), ("even", 10, 5), ("copies", 5, 20), ("out", 20, 0),
    ]  # fmt: skip
    assert (metrics.flow, metrics.stopped, metrics.records, metrics.checkpoint) == ("counts", "finished", 10, None)
    assert metrics.table.column("received").to_pylist() == [10, 10, 5, 20]
    assert json.loads(json.dumps(metrics.to_dict()))["operators"][1]["sent"] == 5
    assert "even" in metrics._repr_html_()


def test_a_loop_ends_with_its_last_record() -> None:
    """Breaks when records of a loop are lost, or the flow does not end."""

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    flow, found = stream.Flow("collatz"), stream.collect()
    loop = flow.loop("again")
    parts = flow.source(stream.from_iterable([(n, n, 0) for n in range(1, 40)])).union(loop).branch(
        {"done": lambda one: one[1] == 1, "more": lambda one: True}
    )  # fmt: skip
    loop.close(parts["more"].map(lambda one: (one[0], one[1] // 2 if one[1] % 2 == 0 else 3 * one[1] + 1, one[2] + 1)))
    parts["done"].sink(found)
    flow.run()
    assert sorted(found.values) == [(n, 1, steps(n)) for n in range(1, 40)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=15), min_size=1, max_size=3))
def test_watermarks_follow_the_slowest_partition(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    """Breaks when a partition with early records finds its windows closed by another partition."""
    folder = tmp_path_factory.mktemp("parts")
    for number, times in enumerate(parts):
        (folder / f"{number}.jsonl").write_text("".join(f'{{"t": {t}, "k": 1}}\n' for t in sorted(times)))
    flow, found = stream.Flow("watermarks"), stream.collect()
    source = flow.source(stream.read_json_lines(folder), time="t")
    counts = source.key_by("k").window(stream.tumbling(10)).count(name="count")
    counts.sink(found)
    metrics = flow.run()
    every = [t for times in parts for t in times]
    expected = [sum(1 for t in every if t // 10 == window) for window in range(4)]
    assert [row["count"] for row in found.values] == [count for count in expected if count]
    assert metrics["count"].late == 0


@pytest.mark.parametrize("idle", [None, 0.05])
def test_idle_partitions_do_not_hold_windows_back(tmp_path: Path, idle: float | None) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"t": {t}, "k": 1}}\n' for t in range(30)))
    (tmp_path / "b.jsonl").write_text('{"t": 1, "k": 1}\n')
    flow, found = stream.Flow("idle"), stream.collect()
    source = flow.source(stream.read_json_lines(tmp_path, follow=True), time="t", idle=idle)
    source.key_by("k").window(stream.tumbling(10)).count().sink(found)
    running = flow.start()

    def done() -> bool:
        with (tmp_path / "a.jsonl").open("a") as out:
            out.write('{"t": 29, "k": 1}\n')
        return len(found.values) == 2 if idle else running.metrics.records > 60

    eventually(done)
    running.stop()
    assert [row["count"] for row in found.values] == ([11, 10] if idle else [])


def test_outputs_that_operators_forward() -> None:
    """Breaks when a record keeps the output of a branch, which an operator that forwards it does not have."""
    flow, kept = stream.Flow("outputs"), stream.collect()
    rows = [{"n": n, "t": n} for n in range(30)]
    loop = flow.loop("again")
    first = flow.source(stream.from_iterable(rows)).union(loop)
    parts = first.branch({"even": lambda row: row["n"] % 2 == 0, "back": lambda row: row["n"] < 0, "odd": bool})
    loop.close(parts["back"])
    together = parts["even"].filter(lambda row: True).union(parts["odd"], name="together")
    together.event_time("t").sink(kept)
    flow.run()
    assert sorted(row["n"] for row in kept.values) == list(range(30))


def test_late_records_leave_by_their_own_stream() -> None:
    flow, found, late = stream.Flow("late"), stream.collect(), stream.collect()
    batches = [pa.RecordBatch.from_pylist([{"t": t, "k": 1}]) for t in (1, 25, 2, 26)]
    counts = (
        flow.source(stream.from_iterable(batches))
        .key_by("k")
        .window(stream.tumbling(10), time="t", lateness=5)
        .count(name="c")
    )
    counts.sink(found)
    counts.late().sink(late)
    metrics = flow.run()
    assert [row["count"] for row in found.values] == [1, 2]
    assert late.values == [{"t": 2, "k": 1}]
    assert metrics["c"].late == 1


@pytest.mark.parametrize(("number", "stopped"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_stops_the_flow_and_saves_a_checkpoint(tmp_path: Path, number: int, stopped: str) -> None:
    """Breaks when the batch in which a signal arrives is lost, or a handler of the program is not restored."""
    flow, found = stream.Flow("stops"), stream.collect()

    def record(n: int) -> int:
        if n == 700 and not found.values:
            os.kill(os.getpid(), number)
        return n

    flow.source(stream.generate(record, count=5000)).key_by(lambda n: 0).reduce(lambda t, n: t + 1, initial=0).sink(
        found
    )
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    metrics = flow.run(checkpoint=tmp_path / "ck", every="1h")
    assert (metrics.stopped, metrics.checkpoint) == (stopped, 1)
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)] == before
    assert found.values[-1]["value"] == metrics.records < 5000
    assert flow.run(checkpoint=tmp_path / "ck").stopped == "finished"
    assert found.values[-1]["value"] == 5000


def test_a_slow_function_is_abandoned(tmp_path: Path) -> None:
    """Breaks when Ctrl-C waits for a function, or its half-processed batch gets into a checkpoint."""

    def sleep(n: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    flow = stream.Flow("stops")
    flow.source(stream.generate()).map(sleep).sink(stream.collect())
    with pytest.raises(KeyboardInterrupt):
        flow.run(checkpoint=tmp_path / "ck", every="1h")
    assert not (tmp_path / "ck" / "checkpoint.json").exists()


def test_unknown_formats_are_format_errors(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("")
    with pytest.raises(FormatError):
        read_all(stream.read_parquet(tmp_path / "a.parquet"))
