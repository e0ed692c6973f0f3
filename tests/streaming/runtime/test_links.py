"""Messages between two processes: all arrive, in order, unchanged, whatever their sizes are."""

from __future__ import annotations

import os
import select
import selectors
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import JobError
from goffish.streaming.batches import Batch
from goffish.streaming.runtime.links import Incoming, Outgoing, listen
from goffish.streaming.runtime.packing import Records, pack, unpack

SHARED = 1 << 20


def pair() -> tuple[Outgoing, Incoming]:
    """Return both ends of a connection."""
    with tempfile.TemporaryDirectory() as folder, listen(f"{folder}/w") as listener:
        sender = Outgoing(f"{folder}/w", 7, True, SHARED)
        select.select([listener], [], [], 5)
        return sender, Incoming(listener.accept()[0])


@pytest.fixture
def ends() -> Iterator[tuple[Outgoing, Incoming]]:
    sender, receiver = pair()
    yield sender, receiver
    sender.close()
    receiver.close()


def exchange(sender: Outgoing, receiver: Incoming, count: int) -> list[Any]:
    got: list[Any] = []
    while len(got) < count:
        got += receiver.receive()
        sender.flush()
    return got


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, SHARED * 3 // 2), min_size=1, max_size=12))
def test_sizes(sizes: list[int]) -> None:
    """Inline, through shared memory that wraps around and is full at times, and larger than the shared memory."""
    sender, receiver = pair()
    sent = [np.arange(size, dtype=np.uint8) for size in sizes]
    for array in sent:
        sender.send(array)
    got = exchange(sender, receiver, len(sent))
    for array, arrived in zip(sent, got, strict=True):
        np.testing.assert_array_equal(array, arrived)
    assert sender.unsent == 0
    assert (receiver.sender, receiver.data) == (7, True)
    sender.close()
    receiver.close()


def test_arrow_columns_are_not_copied() -> None:
    batch = pa.record_batch({"word": ["a", "b", None] * 9000, "count": range(27000)})
    data = b"".join(pack({"rows": batch}))
    arrived = unpack(memoryview(data))["rows"]
    assert arrived.equals(batch)
    addresses = [buffer.address for buffer in arrived["count"].buffers() if buffer is not None]
    start = pa.py_buffer(data).address
    assert all(start <= address < start + len(data) for address in addresses)


def test_full_memory_holds_messages_back(ends: tuple[Outgoing, Incoming]) -> None:
    sender, receiver = ends
    for number in range(8):
        sender.send(np.full(SHARED // 3, number, dtype=np.uint8))
    assert sender.unsent >= 5
    assert [int(array[0]) for array in exchange(sender, receiver, 8)] == list(range(8))


def test_messages_outlive_the_memory(ends: tuple[Outgoing, Incoming]) -> None:
    """What was received does not change when the sender writes into the same place again."""
    sender, receiver = ends
    got = []
    for number in range(12):
        sender.send(np.full(SHARED // 3, number, dtype=np.uint8))
        got += exchange(sender, receiver, 1)
    assert [int(array[0]) for array in got] == list(range(12))


def test_receiver_closes(ends: tuple[Outgoing, Incoming]) -> None:
    sender, receiver = ends
    receiver.close()
    sender.send("lost")
    sender.flush()
    assert sender.closed
    assert sender.unsent == 0


def test_stranger(tmp_path: Path) -> None:
    """A process that connects and says something else is turned away."""
    import socket

    with listen(str(tmp_path / "w")) as listener, socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "w"))
        stranger.send(b"GET / HTTP/1.0\r\n\r\n")
        receiver = Incoming(listener.accept()[0])
        assert list(receiver.receive()) == []
        assert receiver.closed
        receiver.close()


def test_killed_process() -> None:
    """What a process had sent before it was killed arrives, and its end counts as closed."""
    with tempfile.TemporaryDirectory() as folder, listen(f"{folder}/w") as listener:
        child = os.fork()
        if child == 0:
            Outgoing(f"{folder}/w", 1, False, SHARED).send(np.full(50_000, 7))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        receiver = Incoming(listener.accept()[0])
    got = []
    while not receiver.closed:
        select.select([receiver], [], [], 1)
        got += receiver.receive()
    assert len(got) == 1
    assert (got[0] == 7).all()
    receiver.close()


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"cannot connect to .*w: No such file"):
        Outgoing(str(tmp_path / "w"), 1, True)


def test_what_waits_for_the_socket(ends: tuple[Outgoing, Incoming]) -> None:
    """It is sent when the receiver has read enough, although nothing else is sent or received."""
    sender, receiver = ends
    count = 0
    while not sender.unsent:
        sender.send(count)
        count += 1
    assert sender.events == selectors.EVENT_READ | selectors.EVENT_WRITE
    got: list[Any] = []
    with selectors.DefaultSelector() as selector:
        while len(got) < count:
            got += receiver.receive()
            if sender.unsent:
                selector.register(sender, sender.events)
                assert selector.select(5)
                selector.unregister(sender)
                sender.flush()
    assert got == list(range(count))
    assert sender.events == selectors.EVENT_READ


@pytest.mark.parametrize("values", [[1, "a", (2.5, None)], pa.record_batch({"n": [1, 2, 3]})])
def test_records_stay_bytes(values: Any) -> None:
    """Records that a worker only keeps, and sends on, are not unpacked."""
    records = Records("channel", Batch(values, np.array([5, 6, 7])), 3, 1.5)
    kept = unpack(memoryview(b"".join(pack(records))))
    again = unpack(memoryview(b"".join(pack(kept))))
    for one in (kept, again):
        assert (one.channel, one.version, one.read_at, len(one), one._batch) == ("channel", 3, 1.5, 3, None)
    taken = again.take(np.array([0, 2]))
    assert taken.batch.rows() == [records.batch.rows()[at] for at in (0, 2)]
    assert (taken.batch.times.tolist(), len(taken)) == ([5, 7], 2)
    assert again.batch.rows() == records.batch.rows() and kept._batch is None
