"""Messages between two ends of a link: all arrive, in order, unchanged, whatever their sizes are."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import JobError
from goffish.streaming.runtime.links import Link, connect, pack, unpack

SHARED = 1 << 20


def pair(shared: int = SHARED) -> tuple[Link, Link]:
    """Return both ends of a link."""
    ends = socket.socketpair()
    made: list[Link] = []
    other = threading.Thread(target=lambda: made.append(Link(ends[1], shared)))
    other.start()
    one = Link(ends[0], shared)
    other.join()
    return one, made[0]


@pytest.fixture
def links() -> Iterator[tuple[Link, Link]]:
    one, other = pair()
    yield one, other
    one.close()
    other.close()


def exchange(sender: Link, receiver: Link, until: Callable[[list[Any]], bool]) -> list[Any]:
    got: list[Any] = []
    while not until(got):
        got += receiver.receive()
        sender.flush()
        list(sender.receive())
    return got


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, SHARED * 3 // 2), min_size=1, max_size=12))
def test_sizes(sizes: list[int]) -> None:
    """Inline, through shared memory that wraps around and is full at times, and larger than the shared memory."""
    one, other = pair()
    sent = [np.arange(size, dtype=np.uint8) for size in sizes]
    for array in sent:
        one.send(array)
    got = exchange(one, other, lambda got: len(got) == len(sent))
    for array, arrived in zip(sent, got, strict=True):
        np.testing.assert_array_equal(array, arrived)
    assert one.unsent == 0
    one.close()
    other.close()


def test_both_directions(links: tuple[Link, Link]) -> None:
    one, other = links
    for number in range(50):
        one.send(("one", number, np.full(5000, number)))
        other.send(("other", number))
    got: list[Any] = []
    back: list[Any] = []
    while len(got) < 50 or len(back) < 50:
        got += other.receive()
        back += one.receive()
    assert [number for _, number, _ in got] == [number for _, number in back] == list(range(50))
    assert all((array == number).all() for _, number, array in got)


def test_arrow_columns_are_not_copied() -> None:
    batch = pa.record_batch({"word": ["a", "b", None] * 9000, "count": range(27000)})
    packed = pack({"rows": batch})
    data = b"".join(packed)
    arrived = unpack(memoryview(data))["rows"]
    assert arrived.equals(batch)
    addresses = [buffer.address for buffer in arrived["count"].buffers() if buffer is not None]
    start = pa.py_buffer(data).address
    assert all(start <= address < start + len(data) for address in addresses)


def test_full_memory_holds_messages_back(links: tuple[Link, Link]) -> None:
    one, other = links
    for number in range(8):
        one.send(np.full(SHARED // 3, number, dtype=np.uint8))
    assert one.unsent >= 5
    got = exchange(one, other, lambda got: len(got) == 8)
    assert [int(array[0]) for array in got] == list(range(8))


def test_other_end_closes(links: tuple[Link, Link]) -> None:
    one, other = links
    other.send("last")
    other.close()
    assert list(one.receive()) == ["last"]
    assert one.closed
    one.send("lost")
    assert one.unsent == 0


def test_killed_process() -> None:
    """What a process had sent before it was killed arrives, and its end counts as closed."""
    ends = socket.socketpair()
    child = os.fork()
    if child == 0:
        ends[0].close()
        link = Link(ends[1], SHARED)
        link.send(np.full(50_000, 7))
        os.kill(os.getpid(), signal.SIGKILL)
    ends[1].close()
    link = Link(ends[0], SHARED)
    os.waitpid(child, 0)
    got = []
    while not link.closed:
        select.select([link], [], [], 1)
        got += link.receive()
    assert len(got) == 1
    assert (got[0] == 7).all()
    link.close()


def test_connect(tmp_path: Any) -> None:
    path = str(tmp_path / "w")
    with pytest.raises(JobError, match=r"cannot connect to .*w: No such file"):
        connect(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        made: list[Link] = []
        accepting = threading.Thread(target=lambda: made.append(Link(listener.accept()[0])))
        accepting.start()
        link = connect(path)
        accepting.join()
        link.send({"a": 1})
        while not (got := list(made[0].receive())):
            pass
        assert got == [{"a": 1}]
        link.close()
        made[0].close()
