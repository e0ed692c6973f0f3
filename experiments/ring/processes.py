"""Checkpoints of a word count in worker processes: their size, and what they do to latencies."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from array import array
from bisect import bisect
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import goffish as gf
from experiments.ring.observed import Step, launcher, steps
from experiments.ring.simulation import zipf
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.runtime.plan import Delivery
from goffish.streaming.topology import Topology

WORKERS, WORDS = 2, 20_000
#: Records per second of each worker: the published 15,000 of 12 nodes.
RATE = 1250.0
#: Time between checkpoints in runs without.
NEVER_S = 1e6
_STARTS_S = 2.0


class Count:
    """Counts words; passes on when each was read."""

    def on_value(
        self, key: str, value: tuple[str, float], state: Any, timers: Any, emit: Callable[[float], None]
    ) -> None:
        state["total"] = state.get("total", 0) + 1
        emit(value[1])


class Latencies:
    """A sink that keeps when records came, and how long they took, in a file of each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = array("d")

    def __call__(self, read_at: float) -> None:
        now = time.monotonic()
        self._kept.extend((now, now - read_at))
        if len(self._kept) >= 1000:
            with (self._folder / str(os.getpid())).open("ab") as file:
                self._kept.tofile(file)
            self._kept = array("d")


@cache
def _bounds() -> list[float]:
    bounds: list[float] = np.cumsum(zipf(WORDS)).tolist()
    return bounds


def _drawn(worker: int, number: int) -> tuple[str, float]:
    """Return a word of a text, and the time."""
    return f"word{bisect(_bounds(), random.Random(number * WORKERS + worker).random(), hi=WORDS - 1)}", time.monotonic()


def word_count(folder: Path, rate: float) -> Topology:
    """Return a flow that counts every word once, and then words of a text at a rate for each worker."""
    flow = gf.stream.Flow("words")
    known = flow.source(gf.stream.generate(lambda number: (f"word{number}", time.monotonic()), count=WORDS), name="all")
    texts = [
        flow.source(gf.stream.generate(partial(_drawn, worker), rate=rate), name=f"text-{worker}")
        for worker in range(WORKERS)
    ]
    counted = known.union(*texts).key_by(lambda record: record[0]).process(Count, name="count")
    counted.sink(gf.stream.call(Latencies(folder)), name="out")
    return flow.check()


class Run(NamedTuple):
    """What a run has left.

    Attributes
    ----------
    steps : list of Step
    latencies : float64 array
        In seconds.
    """

    steps: list[Step]
    latencies: NDArray[np.float64]


def run(rate: float, checkpoint_s: float, seconds: float, *, whole: bool = False) -> Run:
    """Count words for a while, and drop what the first seconds have left."""
    with tempfile.TemporaryDirectory(prefix="goffish-") as name:
        folder = Path(name)
        (folder / "latencies").mkdir()
        cluster = Cluster(
            word_count(folder / "latencies", rate),
            WORKERS,
            checkpoint_s=checkpoint_s,
            delivery=Delivery.AT_LEAST_ONCE,
            launch=launcher(folder, whole=whole),
        )
        try:
            while cluster.metrics()["count"].received < WORDS:
                cluster.poll()
            begun = time.monotonic() + max(_STARTS_S, checkpoint_s + 0.5 if checkpoint_s < NEVER_S else 0.0)
            while time.monotonic() < begun + seconds:
                cluster.poll()
        finally:
            cluster.close()
        found = np.concatenate([np.fromfile(path).reshape(-1, 2) for path in (folder / "latencies").iterdir()])
        return Run([one for one in steps(folder) if one.time > begun], found[found[:, 0] > begun, 1])


class Size(NamedTuple):
    """Mean bytes of an incremental checkpoint and of the whole state of a worker."""

    checkpoint_s: float
    bytes: float
    whole: float

    @property
    def ratio(self) -> float:
        """Part of the state that a checkpoint holds."""
        return self.bytes / self.whole


def size(checkpoint_s: float, checkpoints: int = 2) -> Size:
    """Return the sizes of checkpoints."""
    found = run(RATE, checkpoint_s, (checkpoints + 0.5) * checkpoint_s, whole=True)
    packed = [one for one in found.steps if one.kind == "pack" and one.partial and one.whole]
    return Size(
        checkpoint_s,
        statistics.mean(one.size for one in packed),
        statistics.mean(one.whole for one in packed),
    )


class Effect(NamedTuple):
    """Median latencies without and with checkpoints, and the longest pauses of a worker for one, in seconds.

    Attributes
    ----------
    without_s, with_s : float
    capture_s, pack_s, install_s : float
        Processor time: to capture what has changed, which is the swap of the paper; to pack it; and to install what
        another worker has sent.
    wall_s : float
        Capture by the clock, with what other processes of the machine have taken.
    """

    without_s: float
    with_s: float
    capture_s: float
    pack_s: float
    install_s: float
    wall_s: float

    @property
    def change(self) -> float:
        """Relative change of the median."""
        return self.with_s / self.without_s - 1


def effect(rate: float, checkpoint_s: float, seconds: float, repeats: int) -> Effect:
    """Compare runs with and without checkpoints, which alternate."""
    medians: dict[bool, list[float]] = {False: [], True: []}
    longest = {"capture": 0.0, "pack": 0.0, "install": 0.0}
    wall = 0.0
    for _ in range(repeats):
        for saves in (False, True):
            found = run(rate, checkpoint_s if saves else NEVER_S, seconds)
            medians[saves].append(float(np.median(found.latencies)))
            for one in found.steps if saves else ():
                longest[one.kind] = max(longest[one.kind], one.cpu_s)
                wall = max(wall, one.wall_s) if one.kind == "capture" else wall
    without, saved = (statistics.median(medians[saves]) for saves in (False, True))
    return Effect(without, saved, longest["capture"], longest["pack"], longest["install"], wall)
