"""Clients whose server, or the way to it, is away for a time: killed, started again, cut off in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest

from goffish.cli.app import app
from goffish.client import AsyncClient, Client, ServiceError, calls, channels
from goffish.services.runners.folder import JobFolder
from goffish.v1 import jobs_pb2
from tests.services.api.serving import RealServer, serving

Code = grpc.StatusCode
#: The blocker of the only slot: a dataflow that sleeps.
SLEEPING: dict[str, Any] = {"hours_per_second": 1e-5}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the clients, which can be put forward, and short pauses."""
    made = SimpleNamespace(ahead=0.0)
    shown = SimpleNamespace(monotonic=lambda: time.monotonic() + made.ahead, sleep=time.sleep)
    monkeypatch.setattr(calls, "time", shown)
    monkeypatch.setattr(calls, "PAUSE_S", 0.1)
    monkeypatch.setattr(channels, "_RECONNECT_MS", 500)
    monkeypatch.setitem(channels._RETRIED["methodConfig"][0]["retryPolicy"], "initialBackoff", "0.02s")
    return made


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[RealServer]:
    """A server that is killed and started again; it does one thing at a time."""
    with serving(tmp_path_factory.mktemp("mortal") / "home", data, "--slots", "1", "--grace", "1") as found:
        yield found


@pytest.mark.slow
def test_quiet_jobs_are_waited_for(mortal: RealServer, clock: SimpleNamespace) -> None:
    """Breaks when silence counts as absence, when who heard nothing yet gives up, or patience is not renewed."""

    async def wait(job: str) -> jobs_pb2.Job:
        async with AsyncClient(mortal.address, patience_s=60) as client:
            return await client.wait(job)

    def watch(job: str) -> list[int]:
        with Client(mortal.address, patience_s=60) as client:
            return [event.number for event in client.watch(job, after=1)]

    with mortal.client() as client, ThreadPoolExecutor() as pool:
        first = client.submit_dataflow("sc13-diamond", **SLEEPING).id
        job = client.submit_graph("components", "store").id
        watching, waiting = pool.submit(watch, job), pool.submit(asyncio.run, wait(job))
        time.sleep(1)
        given_up = False
        for end in (mortal.kill, mortal.stop):
            clock.ahead += 10_000  # as after hours without an event
            end()
            time.sleep(1)
            given_up = given_up or watching.done() or waiting.done()
            mortal.start()
            _answering(client, first)
            time.sleep(0.5)
        client.cancel(first)
        assert not given_up
        told = watching.result(20)
        assert told == list(range(2, 2 + len(told))) and len(told) > 3
        assert waiting.result(20).state == jobs_pb2.JOB_STATE_DONE


def _answering(client: Client, job: str) -> None:
    """Wait until a client has found the server again."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with contextlib.suppress(ServiceError):
            client.job(job)
            return


@pytest.mark.slow
def test_patience_ends(mortal: RealServer, clock: SimpleNamespace) -> None:
    """Breaks when a server that does not come back is waited for longer than was said, or one that never was at all."""
    with Client(mortal.address, patience_s=1) as client, ThreadPoolExecutor() as pool:
        first = client.submit_dataflow("sc13-diamond", **SLEEPING).id
        job = client.submit_graph("components", "store").id
        waiting = pool.submit(client.wait, job)
        time.sleep(1)
        mortal.kill()
        began = time.monotonic()
        try:
            with pytest.raises(ServiceError, match="cannot connect to the server"):
                waiting.result(60)
            assert 1 <= time.monotonic() - began < 20
            with Client(mortal.address, patience_s=600) as other, pytest.raises(ServiceError):
                other.wait(job)
            assert time.monotonic() - began < 30
        finally:
            mortal.start()
            _answering(client, job)
            client.cancel(job)
            client.cancel(first)


class Wire:
    """A way to a server on a socket file, which can be cut, or carry no more answers."""

    def __init__(self, server: RealServer) -> None:
        self._path = server.address.removeprefix("unix:")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self.mute, self.connections = False, 0
        #: Bytes of answers after which it is cut.
        self.left: int | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._path)
                self._ends += [near, far]
                self.connections += 1
                for ends in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if answers and self.left is not None:
                    self.left -= len(data)
                    if self.left < 0:
                        self.left = None
                        self.cut()
                        return
                if not (answers and self.mute):
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()


@pytest.fixture
def wire(server: RealServer) -> Iterator[Wire]:
    made = Wire(server)
    yield made
    made.close()


@pytest.fixture(scope="module")
def large(server: RealServer) -> tuple[str, Path, pa.Table]:
    """A job whose result has been made 8 MB large, and that."""
    with server.client() as client:
        job = client.wait(client.submit_graph("components", "store").id).id
    table = pa.table({"vertex": np.arange(500_000), "rank": np.random.default_rng(3).random(500_000)})
    path = JobFolder(server.home / "jobs" / job).result
    _write(path, table)
    return job, path, table


def _write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=10_000)


def _saved(path: Path) -> pa.Table:
    return pa.ipc.open_stream(path.read_bytes()).read_all()


@pytest.mark.slow
def test_results_go_on_where_they_broke_off(
    wire: Wire, large: tuple[str, Path, pa.Table], tmp_path: Path, clock: SimpleNamespace
) -> None:
    """Breaks when a transfer that is cut off fails, begins anew, or loses or repeats a part."""
    job, _, table = large

    async def each(get: Callable[[AsyncClient], Any]) -> Any:
        async with AsyncClient(wire.address) as client:
            await client.job(job)
            return await get(client)

    async def batches(client: AsyncClient) -> pa.Table:
        return pa.Table.from_batches([batch async for batch in client.result_batches(job)])

    def command(client: Client) -> pa.Table:
        app(["jobs", "result", job, "-o", str(tmp_path / "c.arrow"), "--server", wire.address], standalone_mode=False)
        return pa.feather.read_table(tmp_path / "c.arrow")

    ways: list[Callable[[Client], pa.Table]] = [
        lambda client: client.result(job),
        lambda client: pa.Table.from_batches(client.result_batches(job)),
        lambda client: _saved(client.save_result(job, tmp_path / "a")),
        lambda _: asyncio.run(each(lambda client: client.result(job))),
        lambda _: asyncio.run(each(batches)),
        lambda _: _saved(asyncio.run(each(lambda client: client.save_result(job, tmp_path / "b")))),
        command,
    ]
    for way in ways:
        with Client(wire.address) as client:
            client.job(job)
            before, wire.left = wire.connections, 3_000_000
            assert way(client).equals(table)
            assert wire.left is None and wire.connections > before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c.arrow"]


def test_results_that_are_not_whole(server: RealServer, large: tuple[str, Path, pa.Table], tmp_path: Path) -> None:
    """Breaks when a part of a result is taken for all of it."""
    job, path, table = large
    kept = path.read_bytes()
    try:
        _write(path, pa.concat_tables([table] * 8))
        with server.client() as client:
            batches = client.result_batches(job)
            next(batches)
            with path.open("r+b") as file:
                file.truncate(1)
            with pytest.raises(ServiceError, match=r"is incomplete: [\d,]+ of 6[\d,]+ bytes") as caught:
                list(batches)
            assert caught.value.code == Code.DATA_LOSS
            path.write_bytes(b"")
            with pytest.raises(ServiceError, match="is incomplete: 0 of 0"):
                client.save_result(job, tmp_path / "x")
            with pytest.raises(ServiceError, match="is incomplete: 0 of 0"):
                client.result(job)
        assert list(tmp_path.iterdir()) == []
    finally:
        path.write_bytes(kept)


@pytest.mark.parametrize("way", ["blocking", "async", "stub"])
def test_submissions_are_tried_again_with_their_key_only(server: RealServer, wire: Wire, way: str) -> None:
    """Breaks when an answer that was lost makes a second job, or a submission with a key is not tried again."""
    spec = jobs_pb2.JobSpec(graph={"algorithm": "components", "input_uri": "store"}, labels={"lost": way})

    async def submit() -> str:
        async with AsyncClient(wire.address) as client:
            await client.job(known)
            await asyncio.to_thread(wire_muted)
            return (await client.submit(spec)).id

    def wire_muted() -> None:
        wire.mute = True

    def blocking() -> str:
        with Client(wire.address) as client:
            client.job(known)
            wire_muted()
            if way == "stub":
                return str(client.jobs.Submit(jobs_pb2.SubmitRequest(spec=spec)).job.id)
            return client.submit(spec).id

    with server.client() as client, ThreadPoolExecutor() as pool:
        known = client.submit_graph("components", "store", key="known").id
        made = pool.submit(blocking if way != "async" else lambda: asyncio.run(submit()))
        end = time.monotonic() + 20
        while not list(client.list(labels={"lost": way})):
            assert time.monotonic() < end
            time.sleep(0.05)
        wire.mute = False
        wire.cut()
        if way == "stub":
            with pytest.raises(grpc.RpcError) as caught:
                made.result(30)
            assert caught.value.code() == Code.UNAVAILABLE
        found = [job.id for job in client.list(labels={"lost": way})]
        assert found == ([made.result(30)] if way != "stub" else found[:1])
