"""Measure the times that a processor takes for the parts of a word count.

    python -m experiments.ring.measured [--redis-server PROGRAM]

Times are those of the processor, except for the external store, of which a client has to wait.
"""

from __future__ import annotations

import argparse
import math
import random
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

import goffish as gf
from experiments.ring.baselines import Acker
from experiments.ring.costs import Access, Costs
from experiments.ring.processes import Count
from goffish.streaming.batches import Batch
from goffish.streaming.hashing import positions_of
from goffish.streaming.pipeline import Pipeline
from goffish.streaming.ring.messages import Checkpoint, Marker, Progress, Tuples
from goffish.streaming.ring.node import Node
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import CIRCLE, EVERYTHING, Ranges
from goffish.streaming.ring.view import Member, MemoryRegistry, View
from goffish.streaming.runtime.packing import Records, pack, unpack
from goffish.streaming.sinks import Sink
from goffish.streaming.state import Delta, ValueState


def measure(redis_server: str | None, part: int = 50, repeats: int = 7) -> Costs:
    """Measure the costs on this machine, with the node and the operators of the package.

    Parameters
    ----------
    redis_server : str, optional
        Program of the external store [default: not measured].
    part : int
        Records of a message.
    repeats : int
    """
    random_, words = random.Random(1), [f"word{number}" for number in range(10_000)]
    batches = [[random_.choice(words) for _ in range(part)] for _ in range(20_000 // part)]
    read = statistics.median(_received(batches, owner=True) for _ in range(repeats))
    keep = statistics.median(_received(batches, owner=False) for _ in range(repeats))
    count = statistics.median(_counted(batches) for _ in range(repeats))
    entry = statistics.median(_entries(words) for _ in range(repeats))
    ack = statistics.median(_acknowledged(part) for _ in range(repeats))
    control = statistics.median(_controlled() for _ in range(repeats))
    missing = Access(math.nan, math.nan)
    stores = (missing, missing) if redis_server is None else _stored(redis_server, part)
    return Costs(control, read / part, keep / part, count / part, entry, ack, *stores, part)


def _seconds(call: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    """Return the time of a call: that of the processor, as other processes may run."""
    begun = clock()
    call()
    return clock() - begun


class _Nothing:
    """A state that is never used."""

    def context(self) -> None: ...

    def resume(self) -> None: ...

    def apply(self, tuples: Tuples, context: object) -> None: ...

    def signal(self, mapper: int, content: object) -> None: ...

    def reached(self, lane: int) -> int:
        return 0

    def collect(self) -> tuple[()]:
        return ()

    def extract(self, ranges: Ranges) -> tuple[()]:
        return ()

    def install(self, delta: object, ranges: Ranges) -> None: ...

    def activate(self, ranges: Ranges, lost: object) -> None: ...

    def deactivate(self, ranges: Ranges) -> None: ...

    def discard(self, ranges: Ranges) -> None: ...


def _received(batches: list[list[str]], *, owner: bool) -> float:
    """Return the time of a message: until it is processed without its count, or until a checkpoint contains it."""
    view = View(1, (Member(0, 0), Member(1, CIRCLE - 1)), 1, frozenset((1000,)))
    node = Node(0 if owner else 1, MemoryRegistry(view), _Nothing(), Options(), 0.0)
    node.receive(1000, Marker(1000, 1), 0.0)
    sent, number = [], 0
    for words in batches:
        numbers = np.arange(number + 1, number + len(words) + 1)
        number += len(words)
        records = Records("words", Batch(words))
        sent.append(b"".join(pack(Tuples(1000, 0, 1, numbers, numbers, positions_of(words), records))))
    contained = Progress(EVERYTHING, np.zeros(1, dtype=np.int64), {1000: np.array([number])})

    def take() -> None:
        for data in sent:
            node.receive(1000, unpack(memoryview(data)), 0.0)
            if owner:
                node.work(0, 0.0)
        if not owner:
            node.receive(0, Checkpoint(1, 1, 1, (contained,), ()), 0.0)

    return _seconds(take) / len(batches)


def _counted(batches: list[list[str]]) -> float:
    """Return the time of counting the words of a message: key, state and result."""
    flow = gf.stream.Flow("words")
    flow.source(gf.stream.generate(0)).key_by(lambda record: record[0]).process(Count, name="count").sink(Sink())
    pipeline = Pipeline(flow.check())
    packed = [b"".join(pack(Batch([(word, 1.5) for word in words]))) for words in batches]

    def take() -> None:
        for data in packed:
            pipeline.deliver("count", 0, unpack(memoryview(data)))

    return _seconds(take) / len(batches)


def _entries(words: list[str]) -> float:
    """Return the mean time of an entry at its owner and at a secondary."""
    state, copy = ValueState(dict.fromkeys(words, 1), set(words)), ValueState()

    def take() -> None:
        delta: Delta = unpack(memoryview(b"".join(pack(state.collect()))))
        copy.install(delta)

    return _seconds(take) / len(words) / 2


def _controlled() -> float:
    """Return the time of sending and receiving a message without records."""
    return _seconds(lambda: [unpack(memoryview(b"".join(pack(Marker(1, 1))))) for _ in range(1000)]) / 1000


def _acknowledged(part: int) -> float:
    """Return the time of acknowledging a record, in messages as large as those of records."""
    acker, parts = Acker(), 10_000 // part
    ids = np.random.default_rng(1).integers(1, 1 << 62, (parts, part))

    def take() -> None:
        for some in ids:
            roots, values = unpack(memoryview(b"".join(pack((some // 10, some)))))
            for root, value in zip(roots.tolist(), values.tolist(), strict=True):
                acker.update(root, value)

    return _seconds(take) / parts / part


def _stored(program: str, part: int) -> tuple[Access, Access]:
    """Return the times of Redis, record by record and a message at a time."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        command = [program, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not Path(path).exists():
                time.sleep(0.05)
            store = socket.socket(socket.AF_UNIX)
            store.connect(path)
            answers: IO[bytes] = store.makefile("rb")
            return _accessed(store, answers, 1), _accessed(store, answers, part)
        finally:
            server.kill()
            server.wait()


def _accessed(store: socket.socket, answers: IO[bytes], size: int, parts: int = 30_000) -> Access:
    """Return the times of reading and writing so many values at once."""
    keys = [b"word%d" % number for number in range(size)]
    read = _request(b"MGET", *keys)
    write = _request(b"MSET", *(one for key in keys for one in (key, b"10")))
    lines = 1 + 2 * size  # the number of values, and the length of each before it
    parts //= size

    def one_by_one() -> None:
        for _ in range(parts):
            store.sendall(read)
            for _ in range(lines):
                answers.readline()
            store.sendall(write)
            answers.readline()

    def together() -> None:
        for _ in range(parts // 20):
            store.sendall(20 * (read + write))
            for _ in range(20 * (lines + 1)):
                answers.readline()

    store.sendall(write)
    answers.readline()
    waited, served = (min(_seconds(call, time.perf_counter) for _ in range(9)) for call in (one_by_one, together))
    return Access(waited / parts / size, served / (parts // 20 * 20) / size)


def _request(*words: bytes) -> bytes:
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis-server", help="program of the external store [default: not measured]")
    parser.add_argument("--part", type=int, default=50, help="records of a message")
    given = parser.parse_args()
    for name, found in measure(given.redis_server, given.part)._asdict().items():
        if name != "part":
            values = found if isinstance(found, Access) else (found,)
            print(f"{name} = {', '.join(f'{1e6 * value:.3f}' for value in values)} µs")


if __name__ == "__main__":
    main()
