"""Continuous graph queries on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goffish.cli.query_commands import run_queries
from goffish.cli.query_options import GraphOptions, QueryFile
from goffish.errors import JobError
from tests.commands import assert_refused, call
from tests.disk import Disk

QUERIES = """
# Paths from guests to servers.
DETECT Reach(source:{kind = guest}, sink:{kind = server}, hops: most) WHERE edge:{type = flow} AS paths;
DETECT Degree(degree >= 2, direction: out) FOR 1h AS busy
"""
RECORDS = [
    {"t": 1, "op": "+v", "id": "g", "attrs": {"kind": "guest"}},
    {"t": 2, "op": "+v", "id": "s", "attrs": {"kind": "server"}},
    {"t": 3, "op": "+e", "src": "g", "dst": "h", "attrs": {"type": "flow"}},
    {"t": 4, "op": "+e", "src": "h", "dst": "s", "attrs": {"type": "flow"}},
    {"t": 5, "op": "+e", "src": "g", "dst": "x", "attrs": {"type": "other"}},
]
EXPECTED = {
    "paths": [{"time": "1970-01-01T00:00:04+00:00", "status": "REACHABLE", "source": "g", "sink": "s", "hops": 2}],
    "busy": [
        {"time": "1970-01-01T00:00:05+00:00", "status": "RAISED", "vertex": "g", "degree": 2},
        {"time": "1970-01-01T01:00:01+00:00", "status": "CLOSED", "reason": "expired"},
    ],
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.cgql").write_text(QUERIES)
    (tmp_path / "u.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    return tmp_path


def essential(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    beside = ("offset", "released", "initial", "event_id", "topic")
    return [{name: value for name, value in row.items() if name not in beside} for row in rows]


def test_check(files: Path) -> None:
    """Breaks when a query is not shown as it is understood."""
    ended = call("stream", "check", "q.cgql", "--param", "most=3", "--json")
    found = json.loads(ended.out)["queries"]
    assert [one["topic"] for one in found] == ["paths", "busy"]
    assert "hops: 3" in found[0]["query"]
    assert [one["plan"]["events"] for one in found] == ["UNREACHABLE, REACHABLE", "CLEARED, RAISED"]
    assert found[0]["plan"]["sink"] == '{kind = "server"}'
    assert "hops: 3" in call("stream", "check", "q.cgql", "--param", "most=3").out.replace("\n", "")
    assert not [path.name for path in files.iterdir() if path.suffix not in (".cgql", ".jsonl")]


def test_events_are_printed(files: Path) -> None:
    """Breaks when events are missing, or their lines are not JSON."""
    ended = call("stream", "run", "q.cgql", "--param", "most=3", "--updates", "u.jsonl", "--json")
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert {t: essential([row for row in rows if row["topic"] == t]) for t in EXPECTED} == EXPECTED
    plain = call("stream", "run", "q.cgql", "--param", "most=3", "--updates", "u.jsonl")
    assert plain.out.splitlines()[0] == "1970-01-01T00:00:04+00:00 paths REACHABLE source=g, sink=s, hops=2"
    assert plain.out.splitlines()[-1] == "1970-01-01T01:00:01+00:00 busy CLOSED expired"


def test_events_are_written(files: Path) -> None:
    """Breaks when a table of records gives other events, or files of an earlier run are changed."""
    columns = {name: [row["attrs"].get(name) for row in RECORDS] for name in ("kind", "type")}  # type: ignore[attr-defined]
    columns |= {name: [row.get(name) for row in RECORDS] for name in ("t", "op", "id", "src", "dst")}
    pq.write_table(pa.table(columns), "u.parquet")
    run = ("stream", "run", "q.cgql", "--param", "most=3", "--updates", "u.parquet", "--out", "made/out")
    ended = call(*run, "--json")
    summary = json.loads(ended.out)
    assert summary["records"]["applied"] == 5
    assert summary["topics"][0] == {"topic": "paths", "events": 1, "answers": 1}
    for topic, expected in EXPECTED.items():
        lines = (files / "made" / "out" / f"{topic}.jsonl").read_text().splitlines()
        assert essential([json.loads(line) for line in lines]) == expected
    again = call(*run)
    assert_refused(again)
    assert again.err == "error: --out made/out: is not empty; name a new folder\n"


def test_standard_input(files: Path) -> None:
    """Breaks when events wait for the end of the input, or Ctrl-C loses what was printed."""
    command = [sys.executable, "-m", "goffish", "stream", "run", "q.cgql", "--param", "most=3", "--updates", "-"]
    process = subprocess.Popen(
        [*command, "--lateness", "0", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    for one in RECORDS[:4]:
        process.stdin.write(json.dumps(one).encode() + b"\n")
        process.stdin.flush()
    assert json.loads(process.stdout.readline())["sink"] == "s"
    process.stdin.write(b'{"t": 6, "op')  # not a whole line yet
    process.stdin.flush()
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130 and errors == b"interrupted\n", errors
    assert time.monotonic() < begun + 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q.cgql"], "q.cgql: graph queries need --updates"),
        (["q.cgql", "--updates", "u.jsonl"], "q.cgql, line 3, column 65: unbound parameter most: hops needs a number"),
        (["q.cgql", "--updates", "no.jsonl", "--param", "most=3"], "--updates no.jsonl: no such file"),
        (["q.cgql", "--updates", "u.jsonl", "--workers", "2"], "--workers: not with graph queries"),
        (["q.py", "--updates", "u.jsonl"], "--updates: only with graph queries, a file that ends in .cgql"),
        (["no.cgql", "--updates", "u.jsonl"], "no.cgql: cannot be read (No such file or directory)"),
        (["q.cgql", "--updates", "u.csv", "--param", "most=3"], "u.csv: accepted are files that end in .jsonl or"),
        (["q.cgql", "--updates", "b.jsonl", "--param", "most=3"], "b.jsonl, line 2: not a JSON value"),
        (["p.cgql", "--updates", "u.jsonl", "--out", "out"], "p.cgql, line 1, column 8: topic ../up: accepted are"),
    ],
)
def test_what_is_refused(files: Path, arguments: list[str], message: str) -> None:
    """Breaks when an error does not say where it is, or a topic names a file elsewhere."""
    (files / "u.csv").write_text("t,op\n")
    (files / "b.jsonl").write_text('{"t": 1, "op": "+v", "id": "a"}\n{"t":\n')
    (files / "p.cgql").write_text("DETECT Match(edge:{}) AS `../up`")
    ended = call("stream", "run", *arguments)
    assert_refused(ended)
    assert ended.err.startswith(f"error: {message}"), ended.err
    assert not (files / "up.jsonl").exists() and not (files / "out").exists()


def test_records_that_are_not_accepted(files: Path) -> None:
    """Breaks when records are left out without a word."""
    with (files / "u.jsonl").open("a") as file:
        file.write('{"t": 6, "op": "nope"}\n{"t": 20, "op": "heartbeat"}\n{"t": 1, "op": "+v", "id": "late"}\n')
    ended = call("stream", "run", "q.cgql", "--param", "most=3", "--updates", "u.jsonl", "--json")
    assert ended.code == 0
    assert ended.err.startswith("warning: of 8 records, 1 late, 1 rejected; the last one: late")


@pytest.mark.parametrize(("late", "report"), [("side", "1 late"), ("apply", "1 applied late"), ("drop", "1 late")])
def test_late_records(files: Path, late: str, report: str) -> None:
    """Breaks when a policy is not passed on, or a folder is opened with another one."""
    rows = [RECORDS[0], {"t": 9, "op": "heartbeat"}, RECORDS[1], *({**one, "t": 7 + one["t"]} for one in RECORDS[2:4])]
    (files / "u.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    command = (
        "stream",
        "run",
        "q.cgql",
        "--param",
        "most=3",
        "--updates",
        "u.jsonl",
        "--lateness",
        "0",
        "--state",
        "k",
    )
    ended = call(*command, "--late", late, "--json")
    assert report in ended.err and ('"REACHABLE"' in ended.out) == (late == "apply")
    other = "drop" if late == "apply" else "apply"
    for given, message in ((other, f"late = {late}, and not {other}"), ("no", "--late 'no': choose one of side")):
        ended = call(*command, "--late", given)
        assert_refused(ended)
        assert message in ended.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which only Linux has")
def test_a_full_disk(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when events that cannot be written end in a traceback, or the file is not named."""
    opened = Path.open

    def full(path: Path, *arguments: Any, **more: Any) -> Any:
        return opened(Path("/dev/full") if path.name == "paths.jsonl" else path, *arguments, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(JobError, match=r"--out out: cannot be written \(No space left on device\)"):
        run_queries(QueryFile("q.cgql", ["most=3"]), ["u.jsonl"], "out", GraphOptions(), print, as_document=True)


RUN = ("stream", "run", "q.cgql", "--param", "most=3", "--updates", "u.jsonl", "--state", "kept")


def test_a_run_that_is_resumed(files: Path) -> None:
    """Breaks when a second run takes records twice, or what is kept cannot be looked at."""
    first = call(*RUN, "--json")
    assert first.code == 0, first.err
    assert call(*RUN, "--out", "made").code == 0
    lines = [json.loads(line) for line in (files / "made" / "busy.jsonl").read_text().splitlines()]
    assert [row["offset"] for row in lines] == [0, 1] and essential(lines) == EXPECTED["busy"]
    seen = call("stream", "tail", "busy", "--state", "kept", "--after", "0", "--json")
    assert essential([json.loads(line) for line in seen.out.splitlines()]) == EXPECTED["busy"][1:]
    whole = call("stream", "tail", "paths", "--state", "kept")
    assert whole.out == "1970-01-01T00:00:04+00:00 paths REACHABLE source=g, sink=s, hops=2\n"
    answers = json.loads(call("stream", "answers", "paths", "--state", "kept", "--json").out)
    assert answers["answers"] == [{"source": "g", "sink": "s", "hops": 2}] and "hops: 3" in answers["query"]
    found = json.loads(call("stream", "verify", "kept", "--json").out)["checkpoints"]
    assert [one["result"] for one in found] == ["same", "same"]
    newest = max((files / "kept").glob("checkpoint-*.arrow"))
    newest.write_bytes(b"no")
    ended = call("stream", "verify", "kept")
    assert ended.code == 1 and ended.err == "error: kept: 1 of 2 checkpoints are not what the log gives\n"


@pytest.mark.parametrize("harm", ["", "{}", "[" * 100_000, "time"])
def test_a_checkpoint_whose_description_is_damaged_is_reported(files: Path, harm: str) -> None:
    """Breaks when a checkpoint that a restart would not use, or would take for another time, is not mentioned."""
    assert call(*RUN).code == 0
    newest = max((files / "kept").glob("checkpoint-*.json"))
    newest.write_text(newest.read_text().replace('"time": ', '"time": 1') if harm == "time" else harm)
    ended = call("stream", "verify", "kept", "--json")
    assert ended.code == 1 and ended.err == "error: kept: 1 of 1 checkpoints are not what the log gives\n"
    [found] = json.loads(ended.out)["checkpoints"]
    assert newest.name in found["result"] and "is damaged" in found["result"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "q.cgql", "--updates", "u.jsonl", "--param", "most=2", "--state", "kept"], "--state kept: has other"),
        ([*RUN[1:], "--lateness", "3"], "kept: has lateness = 5 s, and not 3 s; give the same, or name a new folder"),
        (["run", "q.cgql", "--updates", "few.jsonl", "--param", "most=3", "--state", "kept"], "--updates: have 4 rec"),
        ([*RUN[1:], "--updates", "-", "--updates", "u.jsonl"], "--updates -: must come last with --state"),
        (["run", "q.cgql", "--updates", "u.jsonl", "--param", "most=3", "--retention", "1h"], "--retention requires"),
        (["run", "q.cgql", "--updates", "u.jsonl", "--param", "most=3", "--state", "s3://b/x"], "s3://b/x: URIs are"),
        (["tail", "none", "--state", "kept"], "topic none: unknown; choose from paths, busy"),
        (["tail", "paths", "--state", "nowhere"], "nowhere: has no live graph"),
        (["answers", "paths", "--state", "."], ".: is not the folder of a live graph; name a new folder"),
        (["verify", "u.jsonl"], "u.jsonl: is a file; name a folder"),
    ],
)
def test_what_is_refused_of_a_state(files: Path, arguments: list[str], message: str) -> None:
    """Breaks when a state is continued by something else, or an error does not say what is wrong."""
    assert call(*RUN).code == 0
    (files / "few.jsonl").write_text((files / "u.jsonl").read_text().splitlines()[0] + "\n")
    ended = call("stream", *arguments)
    assert_refused(ended)
    assert ended.err.startswith(f"error: {message}"), ended.err


@pytest.mark.slow
def test_a_topic_is_followed(files: Path) -> None:
    """Breaks when events that another process adds are not printed, or are printed before they are durable."""
    import goffish as gf

    with gf.stream.LiveGraph(lateness=0, state="kept") as live:
        live.submit("DETECT Match(vertex:{}) AS all")
        command = [sys.executable, "-m", "goffish", "stream", "tail", "all", "--state", "kept", "--follow", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        for number in range(3):
            live.feed([{"t": number, "op": "+v", "id": number}])
            assert json.loads(process.stdout.readline())["id"] == number
        live.checkpoint()
        live.feed([{"t": 9, "op": "+v", "id": 9}])
        assert json.loads(process.stdout.readline())["id"] == 9
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
        assert process.returncode == 130 and not errors


@pytest.mark.slow
def test_a_disk_that_is_full(files: Path, tmp_path: Path) -> None:
    """Breaks when a run on a full disk ends in a traceback or loses events, or cannot be resumed."""
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk", 64)
    try:
        rows = [{"t": t, "op": "+v", "id": f"vertex {t:020}", "attrs": {"kind": "guest"}} for t in range(30_000)]
        (files / "u.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
        (files / "q.cgql").write_text("DETECT Match(vertex:{kind = guest}) AS guests")
        run = ("stream", "run", "q.cgql", "--updates", "u.jsonl", "--state", "disk/kept", "--out", "made")
        ended = disk(*run)
        assert ended.code == 1, ended.err
        assert "No space left on device" in ended.err and ended.err.count("\n") == 1, ended.err
        disk.resize(100_000)
        ended = disk(*run)
        assert ended.code == 0, ended.err
        found = [json.loads(line) for line in (files / "made" / "guests.jsonl").read_text().splitlines()]
        assert [(row["offset"], row["id"]) for row in found] == [(at, one["id"]) for at, one in enumerate(rows)]
    finally:
        disk.close()


def test_a_page(files: Path) -> None:
    """Breaks when a page lacks events, a second run has other queries because of it, or a wrong path is found late."""
    run = ("stream", "run", "q.cgql", "--param", "most=3", "--updates", "u.jsonl", "--state", "kept")
    assert call(*run, "--page", "events.html").code == 0
    page = (files / "events.html").read_text()
    assert page.count("<li><button") == 3 and "paths REACHABLE source g, sink s, hops 2" in page
    (files / "events.html").unlink()
    assert call(*run, "--page", "events.html").code == 0
    assert (files / "events.html").read_text() == page
    ended = call(*run, "--page", "events.png")
    assert_refused(ended)
    assert ".html" in ended.err


def test_a_file_of_words(files: Path) -> None:
    """Breaks when words are not read, not passed on to every command, or an error does not name the line."""
    (files / "net.txt").write_text("# Words for flows.\n\nflows: {type = flow}\nothers : {NOT (type = flow)}\n")
    (files / "w.cgql").write_text("DETECT Match(edge:{others}) WITH (vocabulary = net) AS found")
    given = ("w.cgql", "--vocabulary", "net.txt")
    assert "NOT type = " in call("stream", "check", *given, "--json").out
    run = ("stream", "run", *given, "--updates", "u.jsonl", "--state", "s", "--json")
    rows = [json.loads(line) for line in call(*run).out.splitlines()]
    assert [row["id"] for row in rows] == ["g>x:other"]
    assert call(*run).code == 0  # the queries are the same, and the records are known
    lines = (("flows {x = 1}", "accepted are lines"), ("flows: {x = 1}", "is there twice"), ("y: {x}}", "word y"))
    for line, message in lines:
        (files / "net.txt").write_text(f"flows: {{type = flow}}\n{line}\n")
        ended = call("stream", "check", *given)
        assert_refused(ended)
        assert "net.txt" in ended.err and message in ended.err
    for path in ("missing.txt", "."):
        assert_refused(call("stream", "check", "w.cgql", "--vocabulary", path))
    assert "there is no such vocabulary; choose from none" in call("stream", "check", "w.cgql").err


def test_how_late_records_may_be(files: Path) -> None:
    """Breaks when --tombstone-ttl is not passed on, or is accepted for flows."""
    rows = [RECORDS[0], {"t": 9, "op": "heartbeat"}, RECORDS[1]]
    (files / "u.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (files / "m.cgql").write_text("DETECT Match(vertex:{}) AS m")
    command = ("stream", "run", "m.cgql", "--updates", "u.jsonl", "--lateness", "0", "--late", "apply", "--json")
    assert '"s"' in call(*command).out
    assert '"s"' not in call(*command, "--tombstone-ttl", "2s").out
    (files / "flow.py").write_text("")
    assert "--tombstone-ttl: only with graph queries" in call("stream", "run", "flow.py", "--tombstone-ttl", "1h").err
