"""A partition of a source, as the worker that reads it sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from goffish.streaming.operators import Clock
from goffish.streaming.ring.sender import Lane
from goffish.streaming.runtime.plan import lane_id
from goffish.streaming.sources import Reader
from goffish.streaming.topology import Operator


class PartitionCopy(NamedTuple):
    """What checkpoints hold of a partition.

    Attributes
    ----------
    life : int
        Of its lanes: of two copies, the one of the later life is newer.
    history : list of dict
        As in `Partition`.
    """

    life: int = -1
    history: Sequence[dict[str, Any]] = ()

    def to_json(self) -> str:
        """Return the copy as JSON."""
        return json.dumps(self, default=int)  # of NumPy

    @classmethod
    def from_json(cls, text: str) -> PartitionCopy:
        """Return the copy that `to_json` has written."""
        life, history = json.loads(text)
        return cls(life, [place | {"versions": tuple(map(tuple, place["versions"]))} for place in history])


@dataclass
class Partition:
    """A partition of a source that this worker reads.

    It has a lane for every path to a channel with a key. On one path, records stay in their order whatever the sizes of
    batches are, so that they have the same numbers when they are read again.

    Attributes
    ----------
    name : str
        Of the lane: the source and the partition.
    source : Operator
    life : int
    lanes : dict
        By path.
    versions : tuple of (int, int)
        Number of the first record, and the version that processes it and later ones.
    clocks : dict
        Of the operators that set event times.
    reader : Reader or None
        None after the last record.
    seen : float
        When the last record was read.
    history : list of dict
        Where to begin again, the earliest first.
    caught_up : bool
        Whether everything has been read that workers before may have read.
    records, published : int
        Records that were read; of these, the first so many have gone to sinks that no key leads to.
    sealed : int
        Number of the checkpoint that was the first to contain the last place of `history`.
    target : int or None
        Worker that is to read the partition; this one reads no more of it.
    """

    name: str
    source: Operator
    life: int
    lanes: dict[str, Lane]
    versions: tuple[tuple[int, int], ...]
    clocks: dict[str, Clock]
    reader: Reader | None
    seen: float
    history: list[dict[str, Any]]
    caught_up: bool
    records: int
    published: int
    sealed: int = 0
    target: int | None = None

    @property
    def now(self) -> dict[str, Any]:
        """Where to begin again if a checkpoint contains everything until now."""
        position = None if self.reader is None else list(self.reader.position)
        clocks = {name: clock.watermark for name, clock in self.clocks.items()}
        done = self.reader is None
        numbers = {path: lane.number for path, lane in self.lanes.items()}
        return {
            "position": position, "numbers": numbers, "records": self.records, "clocks": clocks, "done": done,
            "versions": self.versions,
        }  # fmt: skip

    @property
    def is_repeated(self) -> bool:
        """Whether records are read that have been read before."""
        return bool(self.records < self.history[-1]["records"])

    @property
    def copy(self) -> PartitionCopy:
        """What checkpoints hold."""
        return PartitionCopy(self.life, list(self.history))

    def lane(self, path: str) -> Lane:
        """Return the lane of a path."""
        if path not in self.lanes:
            self.lanes[path] = Lane(lane_id(self.name + path), self.life)
        return self.lanes[path]

    @property
    def version(self) -> tuple[int, int | None]:
        """Version that processes the next records, and how many of them."""
        later = [(first, version) for first, version in self.versions if first > self.records]
        past = [version for first, version in self.versions if first <= self.records]
        return past[-1], later[0][0] - self.records if later else None

    def follow(self, version: int) -> None:
        """Let a version process what has not been read yet, by this worker or by those before it."""
        first = max(self.records, self.history[-1]["records"], self.versions[-1][0])
        self.versions = (*(one for one in self.versions if one[0] < first), (first, version))

    def seal(self, serial: int) -> None:
        """Note where to begin again after a checkpoint."""
        # While records are repeated, the places are behind those that sinks have the records of.
        if not self.is_repeated and self.history[-1] != self.now:
            self.history.append(self.now)
            self.sealed = serial

    def forget(self, known: Callable[[int], int]) -> None:
        """Drop places from which nothing has to be sent again, as all workers have what was sent before the next."""
        while len(self.history) > 1 and all(
            known(self.lane(path).lane) >= number for path, number in self.history[1]["numbers"].items()
        ):
            self.history.pop(0)
