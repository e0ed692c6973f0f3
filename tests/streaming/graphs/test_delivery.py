"""Events that are delivered to sinks, also by processes that are killed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import goffish as gf
from goffish.errors import CheckpointError, GoffishWarning, InputError, JobError, StoreError
from goffish.streaming import webhook
from goffish.streaming.batches import Batch
from tests.commands import assert_refused, call

#: Of a server that does not accept a request.
pytestmark = pytest.mark.filterwarnings("ignore:.*trying again:goffish.errors.GoffishWarning")
stream = gf.stream
QUERIES = "DETECT Match(vertex:{kind = host}) AS hosts; DETECT Degree(degree >= 1) AS busy"
SECRET = "a secret of the two"


def records(first: int, count: int) -> list[dict[str, Any]]:
    """Hosts, each with an edge from the one before."""
    found: list[dict[str, Any]] = []
    for n in range(first, first + count):
        found.append({"t": n, "seq": 2 * n, "op": "+v", "id": f"v{n}", "attrs": {"kind": "host"}})
        found.append({"t": n + 0.5, "seq": 2 * n + 1, "op": "+e", "src": f"v{n - 1}", "dst": f"v{n}"})
    return found


class Hook:
    """An HTTP server that keeps the lines of the requests that it accepts.

    Attributes
    ----------
    answers : list of int
        Statuses of the next requests; 0 closes the connection.
    """

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.answers: list[int] = []
        self.down = False
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = 503 if hook.down else hook.answers.pop(0) if hook.answers else 204
                if status == 204:
                    hook.check(self.headers, body)
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("location", "http://127.0.0.2/")
                self.send_header("retry-after", "0")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?x=1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def check(self, headers: Any, body: bytes) -> None:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        wanted = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{wanted}"
        self.headers.append(headers)
        self.lines += [json.loads(line) for line in body.splitlines()]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(webhook, "_FIRST_S", 0.01)
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def arrived(folder: Path) -> dict[str, list[str]]:
    """The ids of the events in each target, in the order of their offsets."""
    found: dict[str, list[str]] = {}
    if (folder / "parquet").exists():
        rows = pq.read_table(folder / "parquet").sort_by("offset")
        found["parquet"] = rows["event_id"].to_pylist()
    lines = [line for file in sorted((folder / "lines").glob("part-*")) for line in file.read_text().splitlines()]
    found["lines"] = [json.loads(line)["event_id"] for line in lines]
    if (folder / "delta" / "_delta_log").exists():
        table = deltalake.DeltaTable(folder / "delta").to_pyarrow_table().sort_by("offset")
        found["delta"] = table["event_id"].to_pylist()
    if (folder / "reservoir" / "reservoir.json").exists():
        found["reservoir"] = gf.Reservoir(folder / "reservoir").query("hosts")["id"].to_pylist()
    return found


def deliver(folder: Path, count: int, url: str | None = None, every: float = 0.01) -> list[str]:
    """Follow records, of which those that were taken are left out; return the ids of the events of a topic."""
    with stream.LiveGraph(lateness=0, state=folder / "state") as live:
        if not live.topics:
            live.submit(QUERIES)
        live.deliver("hosts", stream.write_parquet(folder / "parquet"), every=every)
        live.deliver("hosts", stream.write_json_lines(folder / "lines"), name="lines", every=every)
        live.deliver("hosts", stream.write_delta(folder / "delta"), name="delta", every=every)
        live.deliver("hosts", stream.write_reservoir(folder / "reservoir", "hosts"), name="reservoir", every=every)
        if url is not None:
            live.deliver("busy", stream.post_json_lines(url, secret=SECRET), name="hook")
        for first in range(0, count, 20):
            live.feed(records(first, 20))
            time.sleep(every)
        ids: list[str] = live.events("hosts")["event_id"].to_pylist()
        return ids


def killed_at(moment: int, work: Callable[[], object]) -> bool:
    """Work in another process, which is killed at the n-th call that changes a file; whether it was."""
    process = os.fork()
    if process == 0:
        calls, lock = 0, threading.Lock()

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def instead(*arguments: Any, **more: Any) -> Any:
                nonlocal calls
                with lock:
                    calls += 1
                    if calls == moment:
                        os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **more)

            return instead

        try:
            for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "open")):
                setattr(owner, name, counted(getattr(owner, name)))
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("times", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_runs_that_are_killed(tmp_path: Path, hook: Hook, times: int) -> None:
    """Breaks when an event is lost, is in a file or a table twice, or has another id after a restart."""
    rng, kills, number = random.Random(times), 0, 0
    while kills < times:
        folder = tmp_path / str(number)
        folder.mkdir()
        number += 1
        hook.lines.clear()
        while kills < times and killed_at(rng.randrange(1, 60), lambda: deliver(folder, 100, hook.url)):  # noqa: B023
            kills += 1
        wanted = deliver(folder, 100, hook.url)
        assert len(wanted) == 100
        assert arrived(folder) == dict.fromkeys(("parquet", "lines", "delta", "reservoir"), wanted)
        lines = {line["offset"]: line["event_id"] for line in hook.lines}
        with stream.LiveGraph(lateness=0, state=folder / "state") as live:
            assert len(lines) == 101 and [lines[at] for at in range(101)] == live.events("busy")["event_id"].to_pylist()


def test_a_webhook(hook: Hook) -> None:
    """Breaks when a request that was not accepted is given up, or repeated with another id."""
    hook.answers = [503, 0, 429, 204, 500]
    with stream.LiveGraph(lateness=0) as live:
        live.submit(QUERIES)
        live.deliver("hosts", stream.post_json_lines(hook.url, secret=SECRET))
        with pytest.warns(GoffishWarning, match=r"hook.x=1: status 503 Service Unavailable; trying again"):
            live.feed(records(0, 1200))
            live.flush()
        assert [line["event_id"] for line in hook.lines] == live.events("hosts")["event_id"].to_pylist()
    assert hook.lines[0]["topic"] == "hosts" and hook.lines[0]["id"] == "v0"
    ids = [headers["webhook-id"] for headers in hook.headers]
    assert len(set(ids)) == len(ids) >= 3


def test_a_webhook_that_is_down(tmp_path: Path, hook: Hook) -> None:
    """Breaks when events are given up, or memory grows, while nobody takes them."""
    hook.down = True
    given: dict[str, Any] = {"lateness": 0, "events": 50, "state": tmp_path / "state"}
    live = stream.LiveGraph(**given)
    live.submit(QUERIES)
    live.deliver("hosts", stream.post_json_lines(hook.url, secret=SECRET))
    begun = threading.Event()

    def feed() -> None:
        for first in range(0, 400, 20):
            live.feed(records(first, 20))
            begun.set()

    thread = threading.Thread(target=feed)
    thread.start()
    begun.wait(10)
    thread.join(0.5)
    assert thread.is_alive() and not hook.lines
    with live.lock:
        waiting = live._engine.topics["hosts"].topic
        assert 50 < waiting.count - waiting.first <= 50 + 20
    # Another process, as after kill -9, still has what waits.
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "state", copy)
    hook.down = False
    thread.join(20)
    live.close()
    assert [line["offset"] for line in hook.lines] == list(range(400))
    hook.lines.clear()
    with stream.LiveGraph(**given | {"state": copy}) as again:
        again.deliver("hosts", stream.post_json_lines(hook.url, secret=SECRET))
        again.flush()
        taken = again.counts["applied"] // 2
        assert 50 < taken <= 70 and [line["offset"] for line in hook.lines] == list(range(taken))


def test_a_server_that_never_accepts(tmp_path: Path, hook: Hook) -> None:
    """Breaks when a redirection is followed, or the end of patience is not reported, or what waits is lost."""
    for status, patience, message in ((302, 300, "status 302 Found; redirections"), (400, 300, "status 400"),
                                      (503, 0.2, r"no request was accepted within 0.2 s \(status 503")):  # fmt: skip
        hook.answers = [status] * 1000
        live = stream.LiveGraph(lateness=0, state=tmp_path / str(status))
        live.submit(QUERIES)
        live.deliver("hosts", stream.post_json_lines(hook.url, secret=SECRET, patience=patience))
        with pytest.raises(JobError, match=f"delivery hosts: {hook.url.replace('?', '.')}: {message}"):
            live.feed(records(0, 5))  # which may end after the delivery has failed
            live.flush()
        with pytest.raises(JobError, match="delivery hosts"):
            live.close()
        hook.answers = []
        with stream.LiveGraph(lateness=0, state=tmp_path / str(status)) as again:
            again.deliver("hosts", stream.post_json_lines(hook.url, secret=SECRET))
        assert [line["offset"] for line in hook.lines] == list(range(5))
        hook.lines.clear()


def test_a_server_that_answers_slowly() -> None:
    """Breaks when a server that sends a byte now and then is waited for without end."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip() -> None:
        while not ended.is_set():
            connection, _ = listener.accept()
            try:
                while not ended.wait(0.05):
                    connection.sendall(b"H")
            except OSError:
                connection.close()

    threading.Thread(target=drip, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    live = stream.LiveGraph(lateness=0)
    live.submit(QUERIES)
    live.deliver("hosts", stream.post_json_lines(url, timeout=0.3, patience=0.1))
    live.feed(records(0, 1))
    begun = time.monotonic()
    with pytest.raises(JobError, match="no request was accepted"):
        live.flush()
    assert time.monotonic() < begun + 10
    ended.set()
    listener.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org/", "http is only accepted for loopback addresses; use https"),
        ("ftp://example.org/", "accepted are https"),
        ("https://user:secret@example.org/", "user names and fragments are not accepted"),
        ("https://example.org/a b", "accepted are https"),
        ("https://[::1/", "is not a URL"),
        ("https://example.org:99999/", "is not a URL"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    """Breaks when records could be sent without encryption, or a password is part of a URL."""
    with pytest.raises(InputError, match=message):
        stream.post_json_lines(url)
    with pytest.raises(InputError, match="at least 16 characters"):
        stream.post_json_lines("https://example.org/", secret="short")


def test_a_reservoir(tmp_path: Path) -> None:
    """Breaks when names that are reserved get lost, types are mixed, or records lack what identifies them unnoticed."""
    rows = [
        {"when": 1.5, "number": 1, "hops": 3, "t": "x"}, {"when": 2.5, "number": 2, "hops": None, "t": None},
        {"when": 2.5, "number": 2, "hops": 4, "t": "again"},
    ]  # fmt: skip
    sink = stream.write_reservoir(tmp_path / "r", "some", time="when", id="number")
    for _ in range(2):
        writer = sink.writer("out")
        for batch in (Batch(rows), Batch(pa.RecordBatch.from_pylist([{"when": 3.5, "number": 3, "hops": "many"}]))):
            writer.write(batch)
        writer.prepare(1)
        writer.commit(1)
    found = gf.Reservoir(tmp_path / "r").query("some", types={"hops_": "string"})
    assert found.select(["id", "hops_", "t_"]).to_pylist() == [
        {"id": 1, "hops_": "3", "t_": "x"}, {"id": 2, "hops_": None, "t_": None},
        {"id": 3, "hops_": "many", "t_": None},
    ]  # fmt: skip
    with pytest.raises(JobError, match="operator out: records have no column event_id; name the time"):
        stream.write_reservoir(tmp_path / "r", "some", time="when").writer("out").write(Batch(rows))
    writer.write(Batch([{"when": None, "number": 4}]))
    with pytest.raises(JobError, match="operator out: pool some: "):
        writer.prepare(2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other.txt").write_text("")
    with pytest.raises(StoreError, match="is not empty"):
        stream.write_reservoir(tmp_path / "full", "some").check()
    with pytest.raises(InputError, match="pool ''"):
        stream.write_reservoir(tmp_path / "r", "").check()


def test_what_is_refused(tmp_path: Path) -> None:
    """Breaks when two deliveries share a name, or a target has the records of another run."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "part-00000001.parquet").touch()
    with stream.LiveGraph(lateness=0, events=10, state=tmp_path / "state") as live:
        live.submit(QUERIES)
        live.deliver("hosts", stream.collect())
        with pytest.raises(InputError, match="delivery hosts: is already in use; give another name"):
            live.deliver("hosts", stream.collect())
        with pytest.raises(InputError, match="topic nope: unknown"):
            live.deliver("nope", stream.collect())
        with pytest.raises(InputError, match=r"used: has part-00000001.parquet of another run"):
            live.deliver("hosts", stream.write_parquet(tmp_path / "used"), name="other")
    with stream.LiveGraph(lateness=0, events=10, state=tmp_path / "state") as live:
        with pytest.raises(InputError, match="delivery hosts: is of the topic hosts; give another name"):
            live.deliver("busy", stream.collect(), name="hosts")
        ahead = {"topic": "busy", "number": 1, "next": 7}
        (tmp_path / "state" / "deliveries" / "ahead").mkdir()
        (tmp_path / "state" / "deliveries" / "ahead" / "confirmed.json").write_text(json.dumps(ahead))
        with pytest.raises(InputError, match="delivery ahead: has confirmed 7 events, but busy has 0; restore"):
            live.deliver("busy", stream.collect(), name="ahead")
        live.feed(records(0, 100))  # without the delivery, for which nothing is kept any more
        with pytest.raises(InputError, match="events 0 to 89 of hosts are not kept any more"):
            live.deliver("hosts", stream.collect())
    (tmp_path / "state" / "deliveries" / "ahead" / "confirmed.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"confirmed.json: is damaged; restore it from a copy, or remove"):
        stream.LiveGraph(lateness=0, events=10, state=tmp_path / "state")


def test_a_function_that_fails() -> None:
    """Breaks when an error of a sink is not raised, or is raised before records are applied."""
    live = stream.LiveGraph(lateness=0)
    live.submit(QUERIES)
    fed = threading.Event()
    live.deliver("hosts", stream.call(lambda row: fed.wait(60) and 1 / 0))
    live.feed(records(0, 3))
    fed.set()
    with pytest.raises(JobError, match="delivery hosts: ZeroDivisionError: division by zero"):
        live.flush()
    with pytest.raises(JobError, match="delivery hosts"):
        live.feed(records(3, 3))
    assert live.num_vertices == 7


def test_the_command_line(tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a run that is given again delivers anything twice, or a target is not understood."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.cgql").write_text(QUERIES)
    (tmp_path / "u.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records(0, 30)))
    run = ["stream", "run", "q.cgql", "--updates", "u.jsonl", "--state", "state"]
    targets = ["parquet:out", "hosts=delta:table", "json_lines:lines", f"busy={hook.url}", "reservoir:kept"]
    secret = {"GOFFISH_WEBHOOK_SECRET": SECRET}
    for _ in range(2):
        ended = call(*run, *(part for one in targets for part in ("--deliver", one)), "--json", variables=secret)
        assert ended.code == 0, ended.err
    assert {one["topic"] for one in ended.json["topics"]} == {"hosts", "busy"}
    assert pq.read_table("out/hosts")["id"].to_pylist() == [f"v{n}" for n in range(30)]
    assert deltalake.DeltaTable("table").to_pyarrow_table()["offset"].to_pylist() == list(range(30))
    kept = gf.Reservoir("kept")
    assert kept.query("hosts", columns=["id_"])["id_"].to_pylist() == [f"v{n}" for n in range(30)]
    assert kept.pools == ["busy", "hosts"] and len(kept.query("busy")) == len(pq.read_table("out/busy"))
    assert [line["offset"] for line in hook.lines] == list(range(len(pq.read_table("out/busy"))))
    printed = call(*run[:5], "--deliver", "busy=print")
    assert json.loads(printed.out.splitlines()[0])["topic"] == "busy"
    assert printed.err.startswith("warning: --deliver without --state: events that are not delivered when the run ends")
    for target, message in (
        ("nope=print", "topic nope is unknown; choose from hosts, busy"), ("parquet:", "accepted are parquet:DIR"),
        ("kafka:topic", "accepted are"), ("http://example.org", "http is only accepted for loopback"),
    ):  # fmt: skip
        refused = call(*run, "--deliver", target)
        assert_refused(refused)
        assert message in refused.err
