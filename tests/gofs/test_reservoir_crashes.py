"""Event reservoirs while something goes wrong: lost copies, a full disk, a kill, several processes."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError, StoreError
from goffish.gofs.files import _LocalFolder, open_folder


def events(count: int, first: int = 0) -> pa.Table:
    return pa.table({"t": np.arange(first, first + count), "id": np.arange(first, first + count)})


def buckets(folder: Path) -> list[Path]:
    return sorted(folder.glob("p*/*.parquet"))


@pytest.fixture
def res(tmp_path: Path) -> gf.Reservoir:
    """100 events in 10 buckets, at three locations."""
    made = gf.Reservoir.create(tmp_path / "r", bucket=10, replicas=[tmp_path / "b", tmp_path / "c"])
    made.pool("a").append(events(100))
    return made


def truncate(path: Path) -> None:
    os.truncate(path, 10)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [Path.unlink, truncate, flip])
def test_another_copy_is_read_and_repair_restores(
    tmp_path: Path, res: gf.Reservoir, harm: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Two of three copies of every other bucket are harmed."""
    states = {Path.unlink: "missing"}
    expected = set()
    for number in range(0, 10, 2):
        for folder in ("r", "b"):
            path = buckets(tmp_path / "c")[number].relative_to(tmp_path / "c")
            harm(tmp_path / folder / path)
            expected.add((str(path), str(tmp_path / folder), states.get(harm, "damaged")))
    res = gf.Reservoir(tmp_path / "r")
    with caplog.at_level(logging.WARNING):
        assert res.query().column("id").to_pylist() == list(range(100))
    assert sum("reading the copy in" in one.message for one in caplog.records) == 10
    found = [row for row in res.verify().to_pylist() if row["state"] != "ok"]
    assert {(row["bucket"], row["location"], row["state"]) for row in found} == expected
    assert set(res.repair().column("state").to_pylist()) == {"restored"}
    assert set(res.verify().column("state").to_pylist()) == {"ok"}
    assert res.repair().num_rows == 0


@pytest.mark.parametrize("harm", [Path.unlink, truncate, flip])
def test_copies_of_the_index_are_verified_and_repaired(
    tmp_path: Path, res: gf.Reservoir, harm: Callable[[Path], Any]
) -> None:
    """Breaks when a copy of the index is lost without notice, and the last one with the next disk."""
    for folder in "rb":
        harm(next((tmp_path / folder).glob("index-*.parquet")))
    res = gf.Reservoir(tmp_path / "r")
    found = [row for row in res.verify().to_pylist() if row["state"] != "ok"]
    state = "missing" if harm is Path.unlink else "damaged"
    assert [(row["pool"], row["location"], row["state"]) for row in found] == [
        ("", str(tmp_path / folder), state) for folder in "rb"
    ]  # fmt: skip
    assert res.repair().column("state").to_pylist() == ["restored", "restored"]
    for folder in "bc":
        shutil.rmtree(tmp_path / folder)
    assert gf.Reservoir(tmp_path / "r").query().num_rows == 100


def test_buckets_that_no_location_has(tmp_path: Path, res: gf.Reservoir) -> None:
    for folder in "rbc":
        buckets(tmp_path / folder)[3].unlink()
    res = gf.Reservoir(tmp_path / "r")
    with pytest.raises(StoreError, match="no such file"):
        res.query()
    assert res.query(end=30).num_rows == 30
    assert res.repair().column("state").to_pylist() == ["lost"] * 3
    with pytest.raises(StoreError):
        res.query()
    res.repair(forget=True)
    assert res.query().num_rows == 90


def test_a_replica_can_be_read_alone(tmp_path: Path, res: gf.Reservoir) -> None:
    shutil.rmtree(tmp_path / "r")
    shutil.rmtree(tmp_path / "c")
    copy = gf.Reservoir(tmp_path / "b")
    assert copy.query().num_rows == 100
    with pytest.raises(StoreError, match=r"is a replica of .*/r; write there"):
        copy.pool("a").append(events(1, 1000))
    with pytest.raises(StoreError, match="not an event reservoir"):
        gf.Reservoir(tmp_path / "r")


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_location_that_is_gone_while_events_are_appended(tmp_path: Path, allowed: int) -> None:
    """Nothing is written into the folder at which a disk was mounted."""
    res = gf.Reservoir.create(tmp_path / "r", replicas=[tmp_path / "b"], allow_missing=allowed)
    res.pool("a").append(events(5))
    (tmp_path / "b").rename(tmp_path / "gone")
    (tmp_path / "b").mkdir()
    before = open_folder(tmp_path / "r").list()
    if not allowed:
        with pytest.raises(StoreError, match=r"b: not a replica .*; 1 locations cannot be written, allow_missing is 0"):
            res.pool("a").append(events(5, 5))
        assert open_folder(tmp_path / "r").list() == before
        assert res.query().num_rows == 5
    else:
        assert res.pool("a").append(events(5, 5)) == 5
        assert set(res.verify().column("state").to_pylist()) == {"ok", "unreachable"}
    assert list((tmp_path / "b").iterdir()) == []
    (tmp_path / "b").rmdir()
    (tmp_path / "gone").rename(tmp_path / "b")
    res.repair()
    assert set(res.verify().column("state").to_pylist()) == {"ok"}
    assert gf.Reservoir(tmp_path / "b").query() == res.query()
    shutil.rmtree(tmp_path / "b")  # a new disk
    assert set(res.repair().column("state").to_pylist()) == {"restored"}
    assert gf.Reservoir(tmp_path / "b").query() == res.query()


def test_fewer_copies_than_locations(tmp_path: Path) -> None:
    name = f"memory://copies/{uuid.uuid4()}"
    res = gf.Reservoir.create(tmp_path / "r", bucket=1, replicas=[name, tmp_path / "b"], copies=2)
    res.pool("a").append(events(30))
    found = [row for row in res.verify().to_pylist() if row["pool"]]
    assert len(found) == 60
    assert {row["location"] for row in found} == {str(tmp_path / "r"), name, str(tmp_path / "b")}
    assert len({(row["bucket"], row["location"]) for row in found}) == 60
    shutil.rmtree(tmp_path / "b")
    assert res.query().num_rows == 30
    assert set(res.repair().column("state").to_pylist()) == {"restored"}
    res.compact()
    assert set(res.verify().column("state").to_pylist()) == {"ok"}


def test_local_copies_are_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    res = gf.Reservoir.create(f"memory://near/{uuid.uuid4()}", bucket=1, replicas=[tmp_path / "b"])
    res.pool("a").append(events(5))
    read: list[str] = []
    inner = _LocalFolder.read
    monkeypatch.setattr(_LocalFolder, "read", lambda self, name: (read.append(name), inner(self, name))[1])
    assert res.query().num_rows == 5
    assert len(read) == 5


# Writers that end in the middle.


def steps(res: gf.Reservoir) -> list[Callable[[], Any]]:
    return [lambda: res.pool("a").append(events(30, 95)), res.compact, lambda: res.drop(15)]


@pytest.mark.parametrize(
    ("step", "fail_at"), [(0, at) for at in range(1, 9)] + [(1, 1), (1, 3), (1, 22), (2, 1), (2, 4)]
)
@pytest.mark.slow
def test_disk_full_leaves_the_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, fail_at: int
) -> None:
    res = gf.Reservoir.create(tmp_path / "r", bucket=10, replicas=[tmp_path / "b"])
    for first in (0, 1):
        res.pool("a").append(events(100).filter(pa.array(np.arange(100) % 2 == first)))
    before = [open_folder(tmp_path / folder).list() for folder in "rb"]
    expected, calls = res.query(), iter(range(1, 1000))

    def fsync(descriptor: int) -> None:
        if next(calls) >= fail_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreError, match=r"cannot be written \(No space left on device\)"):
        steps(res)[step]()
    monkeypatch.undo()
    assert [open_folder(tmp_path / folder).list() for folder in "rb"] == before
    assert gf.Reservoir(tmp_path / "r").query() == res.query() == expected
    steps(res)[step]()
    assert set(res.verify().column("state").to_pylist()) == {"ok"}
    assert res.query().num_rows == (125, 100, 85)[step]


_DIES = """
import os, sys
import goffish as gf
from goffish.gofs.files import _LocalFolder
sys.path.insert(0, {root!r})
from tests.gofs.test_reservoir_crashes import steps
left = int(sys.argv[2])
for method in ("write", "delete"):
    def call(self, *given, inner=getattr(_LocalFolder, method)):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return inner(self, *given)
    setattr(_LocalFolder, method, call)
steps(gf.Reservoir(sys.argv[1]))[int(sys.argv[3])]()
"""


def check_copies(res: gf.Reservoir, replica: Path) -> None:
    """After a kill, the replica alone may lack the newest index; it has the one before, and is repaired."""
    wrong = [row for row in res.verify().to_pylist() if row["state"] != "ok"]
    assert [(row["location"], row["state"], row["bucket"][:6]) for row in wrong] in (
        [], [(str(replica), "missing", "index-")]
    )  # fmt: skip
    assert [row["state"] for row in res.repair().to_pylist()] == ["restored"] * len(wrong)
    assert set(res.verify().column("state").to_pylist()) <= {"ok"}
    assert gf.Reservoir(replica).query() == res.query()


@pytest.mark.slow
@pytest.mark.parametrize("step", range(3))
def test_kill_before_every_write_and_removal(tmp_path: Path, step: int) -> None:
    """The old content or the new one; the next writer removes what is left."""
    root, seen = str(Path(__file__).parents[2]), set()
    for count in range(100):
        path = tmp_path / f"{count}"
        res = gf.Reservoir.create(path / "r", bucket=10, replicas=[path / "b"])
        for first in (0, 1):
            res.pool("a").append(events(100).filter(pa.array(np.arange(100) % 2 == first)))
        old = res.query()
        command = [sys.executable, "-c", _DIES.format(root=root), str(path / "r"), str(count), str(step)]
        ended = subprocess.run(command, cwd=root, capture_output=True, check=False)
        found = gf.Reservoir(path / "r").query()
        assert gf.Reservoir(path / "b").query() in (old, found)
        check_copies(res, path / "b")
        seen.add(found.num_rows)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert found.num_rows in (100, (125, 100, 85)[step])
        steps(gf.Reservoir(path / "r"))[step]()
        assert res.query().num_rows == (125, 100, 85)[step]
        gf.Reservoir(path / "r").compact()
        names = {row["bucket"] for row in res.verify().to_pylist() if row["pool"]}
        for folder in "rb":
            listed = {one for one in open_folder(path / folder).list() if one.startswith("p")}
            assert listed == names
    else:
        pytest.fail("it never ended")
    assert count > 5
    assert seen == {100, (125, 100, 85)[step]}


_WRITES = """
import random, sys
import goffish as gf
res, rng = gf.Reservoir(sys.argv[1]), random.Random(int(sys.argv[2]))
print("ready", flush=True)
number = res.query().num_rows
while True:
    res.pool("a").append([{"t": i, "id": i} for i in range(number, number + 10)])
    number += 10
    print(number, flush=True)
    if rng.random() < 0.3:
        res.compact()
"""


@pytest.mark.slow
def test_kill_at_random_moments(tmp_path: Path) -> None:
    """No append that has returned is lost, and none is there in part."""
    rng = random.Random(4)
    gf.Reservoir.create(tmp_path / "r", bucket=100, replicas=[tmp_path / "b"])
    confirmed = 0
    for run in range(8):
        command = [sys.executable, "-c", _WRITES, str(tmp_path / "r"), str(run)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.05, 1.0))
        writer.kill()
        lines = writer.stdout.read().split("\n")
        writer.wait()
        writer.stdout.close()
        confirmed = max([confirmed, *(int(line) for line in lines[:-1])])
        res = gf.Reservoir(tmp_path / "r")
        ids = res.query().column("id").to_pylist()
        assert ids == list(range(len(ids)))
        assert len(ids) % 10 == 0
        assert confirmed <= len(ids) <= confirmed + 10
        check_copies(res, tmp_path / "b")
    assert confirmed > 0


# Several at once.


def test_readers_while_buckets_are_replaced(tmp_path: Path) -> None:
    res = gf.Reservoir.create(tmp_path / "r", bucket=50)
    res.pool("a").append(events(100))
    stop, found = threading.Event(), list[Any]()

    def read() -> None:
        reader = gf.Reservoir(tmp_path / "r")
        while not stop.is_set():
            try:
                ids = reader.query().column("id").to_pylist()
                found.append(ids == list(range(len(ids))) and len(ids) % 10 == 0)
            except Exception as error:
                found.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for first in range(100, 400, 10):
            res.pool("a").append(events(10, first))
            if first % 30 == 10:
                res.compact()
    finally:
        stop.set()
        thread.join()
    assert found
    assert set(found) == {True}


@pytest.mark.parametrize("remote", [False, True])
def test_writers_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool) -> None:
    place = f"memory://waiting/{uuid.uuid4()}" if remote else tmp_path / "r"
    res = gf.Reservoir.create(place)
    with open_folder(place).locked():
        monkeypatch.setattr("goffish.gofs.reservoir.reservoir._WAIT_S", 0.01)
        with pytest.raises(StoreError, match="another process is writing this store"):
            res.pool("a").append(events(1))
    monkeypatch.undo()
    threads = [
        threading.Thread(target=lambda n=n: gf.Reservoir(place).pool("a").append(events(10, 10 * n))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert res.query().column("id").to_pylist() == list(range(80))


def test_two_writers_of_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a writer that was halted until its lease ended replaces what another one has written."""
    path = f"memory://two/{uuid.uuid4()}"
    res, other = gf.Reservoir.create(path), gf.Reservoir(path)
    inner = type(res)._write

    def write(self: gf.Reservoir, *given: Any) -> None:
        inner(self, *given)
        if self is res:
            other.pool("a").append(events(5, 100))

    monkeypatch.setattr(type(res), "_write", write)
    monkeypatch.setattr("goffish.gofs.files._RemoteFolder.locked", lambda *_: nullcontext())
    with pytest.raises(StoreError, match="another process has written this reservoir; repeat the call"):
        res.pool("a").append(events(5))
    monkeypatch.undo()
    assert res.pool("a").append(events(5)) == 5
    assert res.query().num_rows == 10
    assert set(res.verify().column("state").to_pylist()) == {"ok"}
    res.compact()
    assert len([name for name in open_folder(path).list() if name.startswith("p")]) == 1


def test_locations_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "note").write_text("x")
    for replica, problem in (
        ("nosuch://x", "nosuch"),
        (tmp_path / "other", "is not empty"),
        (tmp_path / "file", "written"),
    ):
        with pytest.raises(InputError, match=problem):
            gf.Reservoir.create(tmp_path / "r", replicas=[replica])
        assert not (tmp_path / "r").exists()
    for path in ("s3:/bucket/x", Path("s3://bucket/x"), "nosuch://bucket/x"):
        with pytest.raises(InputError, match=r"two slashes|a path object cannot hold a URI|nosuch"):
            gf.Reservoir.create(path)
        with pytest.raises(InputError, match=r"two slashes|a path object cannot hold a URI|nosuch"):
            gf.Reservoir.create(tmp_path / "r", replicas=[path])
    assert not (tmp_path / "r").exists()
    gf.Reservoir.create(tmp_path / "r")
    with pytest.raises(StoreError, match="is an event reservoir"):
        gf.Reservoir.create(tmp_path / "s", replicas=[tmp_path / "r"])
