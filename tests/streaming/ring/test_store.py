"""Messages that a secondary keeps."""

from __future__ import annotations

import numpy as np

from goffish.streaming.batches import Batch
from goffish.streaming.ring.messages import Progress, Tuples
from goffish.streaming.ring.ranges import EVERYTHING
from goffish.streaming.ring.store import BackupStore
from goffish.streaming.runtime.packing import Records


def test_messages_that_a_checkpoint_contains_are_dropped_as_bytes() -> None:
    """Breaks when a secondary unpacks records only to drop them."""
    unpacked: list[int] = []

    class Watched(Records):
        def take(self, rows: np.ndarray) -> Records:
            unpacked.append(len(rows))
            return super().take(rows)

    numbers = np.arange(1, 5)
    store = BackupStore(lambda tuples, progress: tuples.numbers <= progress.vectors[1][0])
    store.add(Tuples(1, 0, 1, numbers, numbers, numbers.astype(np.uint64), Watched("words", Batch(list("abcd")))))

    def progress(number: int) -> Progress:
        return Progress(EVERYTHING, np.zeros(1, dtype=np.int64), {1: np.array([number])})

    store.evict([progress(0)])
    assert len(store) == 4
    store.evict([progress(4)])
    assert not len(store)
    assert not unpacked
