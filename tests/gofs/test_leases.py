"""One writer at a time in object storage: on a real S3 server, and in memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import fsspec
import pytest

import goffish as gf
from goffish.errors import StoreError
from goffish.gofs.files import open_folder
from goffish.gofs.leases import FOLDER, Lease
from goffish.storage import open_filesystem
from tests.commands import ENVIRONMENT
from tests.s3 import S3Server


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://{os.urandom(4).hex()}"
    uri: str = request.getfixturevalue("s3").bucket()
    return f"{uri}/folder"


def lease(place: str, lasts_s: float = 15.0) -> Lease:
    return Lease(*open_filesystem(place), place, lasts_s)


def files(place: str) -> list[str]:
    system, root = fsspec.core.url_to_fs(place)
    system.invalidate_cache()
    return sorted(one.rpartition("/")[2] for one in system.ls(f"{root}/{FOLDER}", detail=False))


def test_one_holder_at_a_time(place: str) -> None:
    first, second = lease(place, 1.0), lease(place)
    first.acquire()
    begun = time.monotonic()
    with pytest.raises(StoreError, match=rf"^{re.escape(place)}: another process is writing this store; retry later$"):
        second.acquire()
    assert time.monotonic() - begun < 5  # as soon as the first one has renewed it
    first.release()
    second.acquire()
    second.check()
    second.release()
    assert files(place) == ["000000000001"]  # the newest one stays


def test_a_holder_that_died(place: str) -> None:
    """Breaks when a lease is taken from a holder that renews it, or never from one that does not."""
    dead, waiting = lease(place, 1.0), lease(place, 1.0)
    dead.acquire()
    taken = threading.Event()
    thread = threading.Thread(target=lambda: (waiting.acquire(60), taken.set()))
    thread.start()
    assert not taken.wait(2.5)
    dead._ends.set()  # its thread ends, as by a kill
    thread.join()
    waiting.check()
    time.sleep(max(0.0, 1.1 - (time.monotonic() - dead._renewed_s)))
    with pytest.raises(StoreError, match="was not reached for 1 s, so that another process may write here"):
        dead.check()
    waiting.release()
    dead.release()
    assert files(place)[-1] == "000000000001"


def test_a_holder_that_was_halted(place: str) -> None:
    """Breaks when a holder that comes back believes that the lease is its."""
    halted, other = lease(place, 0.6), lease(place)
    halted.acquire()
    halted._system = _Halted(halted._system)
    other.acquire(30)
    halted._system.halted = False
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with suppress(StoreError):
            halted.check()
            time.sleep(0.05)
            continue
        break
    with pytest.raises(StoreError):
        halted.check()
    time.sleep(0.5)
    halted.release()
    other.check()
    assert lease(place)._newest() == other._mine  # nothing has replaced it
    other.release()


class _Halted:
    """A file system that does not answer for now."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.halted = inner, True

    def __getattr__(self, name: str) -> Any:
        if self.halted:
            raise OSError("no answer")
        return getattr(self._inner, name)


def test_many_at_once(place: str) -> None:
    """Breaks when two of many threads have the lease in the same moment."""
    holders, most, turns = 0, 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal holders, most, turns
        for _ in range(3):
            one = lease(place)
            one.acquire(120)
            with lock:
                holders, turns = holders + 1, turns + 1
                most = max(most, holders)
            time.sleep(0.01)
            one.check()
            with lock:
                holders -= 1
            one.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (most, turns) == (1, 12)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"holder": 1}', b"\xff", b"[" * 100_000])
def test_damaged_files(content: bytes) -> None:
    """Breaks when a file that is no lease ends a program, or keeps it out for good."""
    place = f"memory://{os.urandom(4).hex()}"
    system, root = fsspec.core.url_to_fs(place)
    system.pipe_file(f"{root}/{FOLDER}/{7:012d}", content)
    system.pipe_file(f"{root}/{FOLDER}/readme", content)
    assert lease(place)._newest() is not None
    one = lease(place)
    system.pipe_file(f"{root}/{FOLDER}/{7:012d}", b'{"holder": "", "beat": 0, "lasts_s": 0.2, "ended": 1}')
    one.acquire()
    assert one._mine.number == 8
    one.release()


def test_stores_are_written_by_one(place: str) -> None:
    """Breaks when a store is written while another process writes it, or its files have those of the lease."""
    graph = gf.from_edges([0, 1, 2], [1, 2, 3])
    layout = gf.partition(graph, parts=2, method="hash")
    layout.save(place)
    folder = open_folder(place)
    assert not [one for one in [*folder.list(), *folder.listed_sizes()] if FOLDER in one]
    with folder.locked(), pytest.raises(StoreError, match="another process is writing this store"):
        layout.save(place)
    layout.save(place)
    assert gf.open(place).run("components").summary["components"] == 1


@pytest.mark.slow
def test_storage_that_is_busy(s3: S3Server) -> None:
    """Breaks when requests that the server refuses for a moment end a program."""
    place = f"{s3.bucket()}/folder"
    s3.refuses = lambda method, path, number: number % 3 == 0
    graph = gf.from_edges([0, 1, 2], [1, 2, 3])
    gf.partition(graph, parts=2, method="hash").save(place)
    assert gf.open(place).run("components").summary["components"] == 1


_WRITER = """
import sys, time
import goffish as gf
from goffish.gofs.files import open_folder
folder = open_folder(sys.argv[1])
with folder.locked():
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_files_that_others_write_after_a_listing(s3: S3Server) -> None:
    """Breaks when a listing of an inner folder is kept, so that a file of another program is not seen or deleted."""
    boto3 = pytest.importorskip("boto3")
    place = s3.bucket()
    folder = open_folder(f"{place}/run")
    folder.write("inner/one", b"1")
    assert folder.list() == ["inner/one"]
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    client.put_object(Bucket=place.removeprefix("s3://"), Key="run/inner/two", Body=b"22")
    assert folder.size("inner/two") == 2
    folder.delete("inner/two")
    assert folder.list() == ["inner/one"]


@pytest.mark.slow
def test_a_writer_that_was_killed(s3: S3Server) -> None:
    """Breaks when a store cannot be written after `kill -9` of a writer, or while that one is halted."""
    place = f"{s3.bucket()}/folder"
    command = [sys.executable, "-c", _WRITER, place]
    writer = subprocess.Popen(command, env=ENVIRONMENT | s3.variables, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stdout.readline() == "locked\n"
    layout = gf.partition(gf.from_edges([0, 1, 2], [1, 2, 3]), parts=2, method="hash")
    with pytest.raises(StoreError, match="another process is writing this store"):
        layout.save(place)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    begun = time.monotonic()
    layout.save(place)
    assert time.monotonic() - begun > 5
    assert gf.open(place).run("components").summary["components"] == 1


@pytest.mark.slow
def test_files_are_read_and_written_side_by_side(s3: S3Server) -> None:
    """Breaks when a store of many partitions waits for each file, or asks for files that it has never written."""
    place = f"{s3.bucket()}/folder"
    layout = gf.partition(gf.from_edges(list(range(64)), list(range(1, 65))), parts=48, method="hash")
    open_folder(place).list()  # the connection
    s3.requests.clear()
    s3.latency_s = 0.1
    for call in (lambda: layout.save(place), lambda: gf.open(place).slices()):
        s3.most = 0
        call()
        assert s3.most >= 4
    assert s3.requests.total() < 48 * 2 + 30, s3.requests


@pytest.mark.parametrize("lasts_s", ["NaN", "Infinity", "-1", "1e9"])
def test_times_that_cannot_be(lasts_s: str) -> None:
    """Breaks when a file can keep others out for longer than the accepted maximum, or for no time at all."""
    place = f"memory://{os.urandom(4).hex()}"
    system, root = fsspec.core.url_to_fs(place)
    text = f'{{"holder": "x", "beat": 0, "lasts_s": {lasts_s}, "ended": false}}'
    system.pipe_file(f"{root}/{FOLDER}/{0:012d}", text.encode())
    found = lease(place)._newest()
    assert found is not None and found.lasts_s == 300


def test_storage_that_answers_from_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a lease that can never be confirmed is tried for good."""
    one = lease(f"memory://{os.urandom(4).hex()}")
    monkeypatch.setattr(Lease, "_newest", lambda _: None)
    with pytest.raises(StoreError, match="other processes are writing this store; retry later"):
        one.acquire()


def test_two_that_found_it_free(place: str) -> None:
    """Breaks when the second one replaces the file of the first one, which both found to be missing."""
    first, second = lease(place), lease(place)
    assert first._take(0)
    assert not second._take(0)
    assert second._newest() == first._mine
    first.release()
