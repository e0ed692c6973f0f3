"""Tasks: items of all producers in the order of their numbers, duplicates dropped, state by key.

The number of an item is a list of integers. The first one is its source's; an operator with several inputs adds which
input it came by, as an item may come to it along several ways. Shorter numbers are filled up with -1 before, so all
numbers that an operator sends have one length, and are different.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from experiments.edrp.stateful.definition import Stream

Number = list[int]
#: Number, key and value.
Item = tuple[Number, str, Any]


class _Channel:
    """What came from one producer: the last number, up to where all is there, and items that wait."""

    def __init__(self) -> None:
        self.last: Number = []
        self.complete = -1
        self.items: deque[Item] = deque()


class Task:
    """One task of an operator.

    Parameters
    ----------
    stream : Stream
    operator : str

    Attributes
    ----------
    dropped : int
        Items that were there already.
    """

    def __init__(self, stream: Stream, operator: str) -> None:
        self._kind = stream.of[operator].kind
        self._several = len(stream.of[operator].inputs) > 1
        self._depth = stream.depth[operator]
        self._channels = {producer: (_Channel(), at) for producer, at in stream.producers(operator)}
        self._counts: dict[str, int] = {}
        self.dropped = 0

    def receive(self, producer: str, number: Number, key: str, value: Any) -> None:
        """Take an item; by how many copies it was sent makes no difference."""
        channel, at = self._channels[producer]
        if number <= channel.last:
            self.dropped += 1
            return
        channel.last = number
        if self._several:
            number = [*number, *[-1] * (self._depth - 1 - len(number)), at]
        channel.items.append((number, key, value))

    def mark(self, producer: str, complete: int) -> None:
        """All items of a producer up to a source's number are there."""
        channel, _ = self._channels[producer]
        channel.complete = max(channel.complete, complete)

    def run(self) -> list[Item]:
        """Process all items before which none can come any more; gives what to send."""
        out: list[Item] = []
        while True:
            bound, least = None, None
            for channel, _ in self._channels.values():
                if not channel.items:
                    bound = channel.complete if bound is None else min(bound, channel.complete)
                elif least is None or channel.items[0][0] < least.items[0][0]:
                    least = channel
            if least is None or (bound is not None and least.items[0][0][0] > bound):
                return out
            number, key, value = least.items.popleft()
            if self._kind == "count":
                value = self._counts[key] = self._counts.get(key, 0) + 1
            out.append((number, key, value))

    @property
    def complete(self) -> int:
        """Source's number up to which everything was processed."""
        return min(
            channel.items[0][0][0] - 1 if channel.items else channel.complete for channel, _ in self._channels.values()
        )

    def exported(self) -> dict[str, Any]:
        """State and waiting items, for JSON."""
        channels = {
            producer: {"last": channel.last, "complete": channel.complete, "items": list(channel.items)}
            for producer, (channel, _) in self._channels.items()
        }
        return {"counts": self._counts, "channels": channels}

    def restore(self, exported: dict[str, Any]) -> None:
        """Take over what was exported."""
        self._counts = dict(exported["counts"])
        for producer, found in exported["channels"].items():
            channel, _ = self._channels[producer]
            channel.last, channel.complete = found["last"], found["complete"]
            channel.items = deque((number, key, value) for number, key, value in found["items"])
