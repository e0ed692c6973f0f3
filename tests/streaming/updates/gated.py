"""A source that waits, so that tests of updates do not depend on how fast a machine is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from goffish.streaming.sources import Position, Read, Reader, Source


@dataclass(frozen=True)
class Gated(Source):
    """Records of another source; in each partition, all but the first `free` wait until a file exists."""

    source: Source
    free: int
    gate: str

    def partitions(self) -> list[str]:
        """Return the partitions of the other source."""
        return self.source.partitions()

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader that waits."""
        inner, count = (None, 0) if position is None else (position[:-1], position[-1])
        return _Gated(self, self.source.open(partition, inner), count)


class _Gated(Reader):
    def __init__(self, given: Gated, reader: Reader, count: int) -> None:
        self._given, self._reader, self._count = given, reader, count
        self.position = [*reader.position, count]

    def read(self, limit: int) -> Read | None:
        """Return the next records."""
        if not Path(self._given.gate).exists():
            limit = min(limit, self._given.free - self._count)
            if limit <= 0:
                return None
        found = self._reader.read(limit)
        self._count += 0 if found is None else len(found.values)
        self.position, self.done = [*self._reader.position, self._count], self._reader.done
        return found

    def close(self) -> None:
        """Close files."""
        self._reader.close()
