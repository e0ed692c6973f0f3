"""Sockets of flows that run: what other processes see and change, and clients that misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from goffish import stream
from goffish.errors import GoffishWarning, InputError
from goffish.streaming.control import Connection, find, running
from goffish.streaming.metrics import Metrics
from goffish.streaming.runtime.cluster import Cluster
from tests.commands import ENVIRONMENT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sockets for each test, with a path longer than that of a socket may be."""
    path = tmp_path / ("runtime-" + "x" * 120)
    path.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return path / "goffish"


def eventually(reached: Callable[[], bool]) -> None:
    for _ in range(6000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def precise(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"by": "main"}


def rough(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"by": "rough"}


def make_flow(name: str, sink: stream.Sink, count: int | None = None, rate: float = 20_000) -> stream.Flow:
    flow = stream.Flow(name)
    source = flow.source(stream.generate(lambda n: {"n": n}, count=count, rate=rate), name="numbers")
    alternates = {"rough": stream.Alternate(rough, cost=0.001)}
    source.map(precise, name="price", alternates=alternates, cost=0.002).sink(sink, name="out")
    return flow


@contextmanager
def started(name: str = "orders") -> Iterator[tuple[stream.Run, list[Any]]]:
    """A flow that runs, and what it has collected."""
    kept = stream.collect()
    run = make_flow(name, kept).start()
    try:
        yield run, kept.values
    finally:
        run.stop()


def raw(folder: Path) -> socket.socket:
    """Connect to the only socket in the folder."""
    opened = os.open(folder, os.O_DIRECTORY)
    client = socket.socket(socket.AF_UNIX)
    (path,) = folder.iterdir()
    client.connect(f"/proc/self/fd/{opened}/{path.name}")
    client.settimeout(30)
    os.close(opened)
    return client


def test_metrics_and_topology() -> None:
    with started() as (run, values), closing(find("orders")) as flow:
        eventually(lambda: len(values) > 1000)
        assert flow.pid == os.getpid()
        assert [one["name"] for one in flow.ask("topology")["operators"]] == ["numbers", "price", "out"]
        before = len(values)
        metrics = flow.ask("metrics")
        assert metrics["pid"] == metrics["workers"][0]["pid"] == os.getpid()
        assert before <= metrics["records"]
        final = run.stop()
        assert flow.wait(30)
        assert flow.ended == {"ended": "stopped"}
        assert final.records == final["out"].received == len(values)
    assert running() == []


def test_switch_under_load() -> None:
    with started() as (run, values), closing(find("orders")) as flow:
        for alternate in ("rough", "main", "rough"):
            seen = len(values)
            flow.ask("switch", operator="price", alternate=alternate)
            eventually(lambda: len(values) > seen and values[-1]["by"] == alternate)  # noqa: B023
        assert run.metrics["price"].alternate == "rough"
        with pytest.raises(InputError, match=r"^operator price: no alternate 'fine'; choose one of main, rough$"):
            flow.ask("switch", operator="price", alternate="fine")
        with pytest.raises(InputError, match="no operator 'prize'"):
            flow.ask("switch", operator="prize", alternate="main")
        with pytest.raises(InputError, match="request switch: accepted are texts for operator, alternate"):
            flow.ask("switch", operator="price")
        run.stop()
        assert [row["n"] for row in values] == list(range(len(values)))


def test_stop_saves_a_checkpoint(tmp_path: Path) -> None:
    def make() -> stream.Flow:
        return make_flow("stopped", stream.write_json_lines(tmp_path / "out"), count=30_000, rate=40_000)

    run = make().start(checkpoint=tmp_path / "ck", every="1h")
    with closing(find("stopped")) as flow:
        eventually(lambda: run.metrics.records > 1000)
        assert flow.ask("stop") is None
        assert flow.wait(30)
        assert flow.ended == {"ended": "stopped"}
    first = run.wait()
    assert first.checkpoint == 1
    assert first.records < 30_000
    make().run(checkpoint=tmp_path / "ck")
    lines = [line for file in sorted((tmp_path / "out").iterdir()) for line in file.read_text().splitlines()]
    assert [json.loads(line)["n"] for line in lines] == list(range(30_000))


def test_a_flow_that_fails() -> None:
    flow, broken = stream.Flow("failing"), list[bool]()
    source = flow.source(stream.generate(lambda n: n, rate=1000), name="numbers")
    source.map(lambda n: n / 0 if broken else n, name="inverse").sink(stream.collect())
    run = flow.start()
    with closing(find("failing")) as found:
        broken.append(True)
        assert found.wait(60)
        assert found.ended is not None
        assert found.ended["ended"] == "failed"
        assert found.ended["error"].startswith("operator inverse: ZeroDivisionError")
    eventually(lambda: not run.running)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"hello\n", "one line of JSON"),
        (b"\xff\xfe\x00\n", "one line of JSON"),
        (b"[" * 60_000 + b"\n", "one line of JSON"),
        (b"[1, 2]\n", "must be a JSON object"),
        (b"{}\n", "unknown request None; accepted are metrics, topology, switch, stop"),
        (b'{"request": ["metrics"]}\n', "unknown request"),
        (b'{"request": "metrics", "path": "/etc/passwd"}\n', "accepted are texts for no fields"),
        (b'{"request": "switch", "operator": 1, "alternate": {}}\n', "accepted are texts for operator, alternate"),
        (b"x" * 70_000 + b"\n", "less than 65,536 bytes"),
        (b"y" * 200_000, "less than 65,536 bytes"),
    ],
)
def test_garbage(folder: Path, sent: bytes, error: str) -> None:
    with started() as (run, values):
        with closing(raw(folder)) as client:
            try:
                client.sendall(sent)
            except BrokenPipeError:
                assert len(sent) > 1 << 16
            answer = json.loads(client.makefile().readline())
            assert error in answer["error"]
            assert answer["code"] == 2
        with closing(find("orders")) as flow:
            assert flow.ask("metrics")["stopped"] == "running"
        seen = len(values)
        eventually(lambda: len(values) > seen)
        assert run.running


def test_clients_that_never_read(folder: Path) -> None:
    with started() as (_, values), ExitStack() as held:
        for _ in range(3):
            client = held.enter_context(closing(raw(folder)))
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):  # neither side keeps what does not fit
                for _ in range(100_000):
                    client.sendall(b'{"request": "metrics"}\n' * 100)
        seen = len(values)
        with closing(find("orders")) as flow:
            assert flow.ask("metrics")["stopped"] == "running"
        eventually(lambda: len(values) > seen)


def test_a_thousand_connections(folder: Path) -> None:
    with started() as (_, values), closing(find("orders")) as first:
        held: deque[socket.socket] = deque()
        for _ in range(1000):
            held.append(raw(folder))
            if len(held) > 100:
                held.popleft().close()
        assert first.ask("metrics")["stopped"] == "running"  # clients that asked something stay
        with closing(find("orders")) as flow:
            assert flow.ask("metrics")["stopped"] == "running"
        for client in held:
            client.close()
        seen = len(values)
        eventually(lambda: len(values) > seen)


def test_pipelined_requests(folder: Path) -> None:
    with started(), closing(raw(folder)) as client:
        client.sendall(b'{"request": "topology"}\n{"request": "me')
        client.sendall(b'trics"}\n{"request": "topology"}\n')
        lines = client.makefile()
        answers = [json.loads(lines.readline())["answer"] for _ in range(3)]
        assert answers[0] == answers[2]
        assert answers[1]["flow"] == "orders"


def test_names() -> None:
    with pytest.raises(InputError, match=r"^flow orders: does not run; running flows: none$"):
        find("orders")
    with started(), started(), started("a/b:c") as (_, _):
        with pytest.raises(InputError, match=rf"^flow orders: 2 flows match; .*: orders \({os.getpid()}\), orders"):
            find("orders")
        with pytest.raises(InputError, match="flow nothing: does not run; running flows: a/b:c "):
            find("nothing")
        with closing(find("a/b:c")) as flow:
            assert flow.flow == "a/b:c"


def test_folders_that_others_can_enter(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.warns(GoffishWarning, match=r"flow orders: cannot be controlled .* have mode 700"), started() as found:
        eventually(lambda: len(found[1]) > 0)
    with pytest.raises(InputError, match="must belong to this user and have mode 700"):
        running()
    folder.rmdir()
    folder.symlink_to("/")
    with pytest.raises(InputError, match="must be a folder of this user"):
        running()


def test_the_folder_is_private(folder: Path) -> None:
    with started():
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []


FLOW = """
import goffish as gf
from tests.streaming.test_control import make_flow
make_flow("killed", gf.stream.collect(), rate=1000).run()
"""


def test_sockets_of_killed_processes(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", FLOW], env=ENVIRONMENT | {"XDG_RUNTIME_DIR": str(folder.parent)})
    try:
        eventually(lambda: bool(running_names()))
        assert running_names() == ["killed"]
        process.send_signal(signal.SIGSTOP)
        process.kill()
    finally:
        process.kill()
        process.wait()
    assert len(list(folder.iterdir())) == 1
    assert running() == []
    assert list(folder.iterdir()) == []


def running_names() -> list[str]:
    found = running()
    for one in found:
        one.close()
    return [one.flow for one in found]


def group(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "by": row["by"]}


def make_keyed(target: Path) -> stream.Flow:
    flow = stream.Flow("keyed")
    sources = [
        flow.source(stream.generate(lambda n: {"n": n, "k": n % 7}, count=30_000, rate=6_000), name=f"numbers-{i}")
        for i in range(2)
    ]
    alternates = {"rough": stream.Alternate(rough, cost=0.001)}
    priced = sources[0].union(sources[1]).map(precise, name="price", alternates=alternates, cost=0.002)
    kept = priced.key_by("k").reduce(lambda total, row: group(row), initial=None, name="last")
    again = kept.map(lambda row: row | row["value"]).key_by("k").reduce(lambda total, row: total + 1, initial=0)
    priced.sink(stream.write_json_lines(target / "priced"), name="priced")
    again.sink(stream.write_json_lines(target / "counted"), name="counted")
    return flow


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()]


def run_until_stopped(cluster: Cluster) -> Metrics:
    """Switch an operator under load, and stop the flow, both from outside."""
    flow: Connection | None = None
    try:
        while not cluster.finished:
            cluster.poll()
            metrics = cluster.metrics()
            if flow is None and metrics["price"].received:
                flow = find("keyed")
                flow.ask("switch", operator="price", alternate="rough")
            elif flow is not None and metrics["price"].alternate == "rough" and metrics.records > 4_000:
                flow.ask("stop")
        return cluster.metrics()
    finally:
        cluster.close()
        assert flow is not None
        assert flow.wait(30)
        flow.close()


def test_workers(tmp_path: Path) -> None:
    """Workers switch under load, and stop when everything that was read has left them."""
    cluster = Cluster(make_keyed(tmp_path).check(), 2, checkpoint_s=0.2)
    pids = sorted(cluster.pids.values())
    metrics = run_until_stopped(cluster)
    assert sorted(one.pid for one in metrics.workers) == pids
    assert metrics["numbers-0"].sent < 30_000
    rows = rows_of(tmp_path / "priced")
    assert len(rows) == metrics["priced"].received == metrics.records == metrics["last"].received
    assert rows[-1]["by"] == "rough"
    assert set(Counter(row["n"] for row in rows).values()) <= {1, 2}
    counted = rows_of(tmp_path / "counted")
    assert len(counted) == metrics["counted"].received
    totals = {row["k"]: row["value"] for row in counted}  # of results of the first operator with a key
    assert sum(totals.values()) == metrics["last"].sent
    for name in ("priced", "counted"):
        latency = metrics[name].latency
        assert latency is not None
        assert latency.count == metrics[name].received
    assert metrics["last"].queue == 0


@pytest.mark.slow
def test_workers_resume_after_a_stop(tmp_path: Path) -> None:
    run_until_stopped(Cluster(make_keyed(tmp_path).check(), 2, checkpoint_s=0.2, checkpoint=tmp_path / "ck"))
    assert len(rows_of(tmp_path / "priced")) < 60_000
    make_keyed(tmp_path).run(workers=2, checkpoint=tmp_path / "ck")
    counts = Counter(row["n"] for row in rows_of(tmp_path / "priced"))
    assert counts == Counter(dict.fromkeys(range(30_000), 2))


def make_late(target: Path) -> stream.Flow:
    """The operator with alternates runs where the keys are."""
    flow = stream.Flow("late")
    numbers = flow.source(stream.generate(lambda n: {"n": n, "k": n % 50}, rate=5_000), name="numbers")
    last = numbers.key_by("k").reduce(lambda total, row: row["n"], initial=0, name="last")
    alternates = {"rough": stream.Alternate(rough, cost=0.001)}
    last.map(precise, name="price", alternates=alternates, cost=0.002).sink(stream.write_json_lines(target), name="out")
    return flow


@pytest.mark.slow
def test_a_worker_that_joins_uses_the_same_alternates(tmp_path: Path) -> None:
    cluster = Cluster(make_late(tmp_path).check(), 2, checkpoint_s=0.2)
    try:
        while not cluster.metrics()["out"].received:
            cluster.poll()
        cluster.switch("price", "rough")
        while cluster.metrics()["price"].alternate != "rough":
            cluster.poll()
        os.kill(cluster.pids[1], signal.SIGKILL)
        while not list(tmp_path.glob("part-2-*")):
            cluster.poll()
        cluster.stop()
        while not cluster.finished:
            cluster.poll()
    finally:
        cluster.close()
    assert cluster.failures == 1
    rows = [json.loads(line) for file in tmp_path.glob("part-2-*") for line in file.read_text().splitlines()]
    assert {row["by"] for row in rows} == {"rough"}
