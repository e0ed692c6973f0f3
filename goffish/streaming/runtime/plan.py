"""What follows from the description of a flow for all its workers, and what they send to each other."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.streaming.hashing import positions_of
from goffish.streaming.runtime.stages import arc_of
from goffish.streaming.topology import Channel, SourceOptions, Topology
from goffish.streaming.updates.plan import channel_name

#: Watermark by channel; None where the sender is idle.
Marks = dict[str, int | None]
ALL = ""


class Delivery(StrEnum):
    """How often records count that were in flight when a worker failed.

    With `AT_LEAST_ONCE`, operators with a key, and those on workers of their own, send at once, and not after a
    checkpoint.
    """

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Acknowledged(NamedTuple):
    """A node's checkpoints contain the messages of these lanes, up to a number.

    Attributes
    ----------
    epoch : int
        View of the ring in which the checkpoint was made.
    numbers : dict
        By lane.
    received : dict
        Last messages that have been processed, which may be later ones.
    lives : dict
        Lives of the partitions at that time: messages of earlier ones are no longer processed.
    """

    epoch: int
    numbers: dict[int, int]
    received: dict[int, int]
    lives: dict[int, int]


class Full(NamedTuple):
    """Too much waits in the sender: sources are not read for a moment."""


class SaveSoon(NamedTuple):
    """The sender waits for a checkpoint of the receiver."""


class Handed(NamedTuple):
    """The sender has handed partitions of sources to the receiver."""


class Mark(NamedTuple):
    """Progress of a lane.

    Attributes
    ----------
    life, number : int
        Life of the lane, and its last message.
    marks : Marks
    epoch : int
        Of the newest view of which the sender has processed all that came with its positions. Only used for what
        operators with a key send.
    newest : int
        Version of the flow whose channels `marks` has.
    done : int
        Version before which the lane sends nothing any more.
    versions : dict
        The same by channel while an update is in progress, where it is more; `ALL` stands for all channels.
    paths : dict
        Last messages of the lanes of a partition, which has one for each path from the source to a channel.
    """

    life: int
    number: int
    marks: Marks
    epoch: int = 0
    newest: int = 0
    done: int = 0
    versions: Mapping[str, int] | None = None
    paths: Mapping[int, int] | None = None

    def version(self, channel: str) -> int:
        """Return the version before which the lane sends nothing to a channel any more."""
        return max(self.done, (self.versions or {}).get(channel, 0))


class Plan:
    """What follows from the description of a flow for all its workers.

    Parameters
    ----------
    topology : Topology

    Raises
    ------
    InputError
        The flow cannot run on several workers.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.keyed = {channel_name(channel): channel for channel in topology.channels if channel.key is not None}
        self.sources = {one.name: one for one in topology.operators if isinstance(one.options, SourceOptions)}
        #: Sources that are only read on the machine where the run was started, with their stages.
        self.here = {
            name: topology.stages.get(name, 0)
            for name, one in self.sources.items()
            if one.options.source.here  # type: ignore[union-attr]
        }
        self.clocks: dict[str, set[str]] = {}  # operators that set the event time on a channel, by source stage
        self.feeds: dict[str, set[str]] = {}  # operators with a key that send to a channel
        for named, channel in self.keyed.items():
            self.clocks[named], self.feeds[named] = set(), set()
            self._walk(channel, named, None, set())
        self.arcs = {one.name: arc_of(topology, one.name) for one in topology.operators}
        targets = {channel.target for channel in self.keyed.values()}
        for one in topology.operators:
            keys = [channel.key is not None for channel in one.inputs]
            if one.name in targets and not all(keys):
                raise InputError(f"operator {one.name}: all inputs need a key; add key_by()")
        #: Channels with watermarks that lead to an operator with a key; those from the ends of loops have none.
        self.receivers: dict[str, list[str]] = {name: [] for name in targets}
        for named, channel in self.keyed.items():
            if not channel.feedback and (self.clocks[named] or self.feeds[named]):
                self.receivers[channel.target].append(named)
        self.loops = any(channel.feedback for channel in topology.channels)

    def _walk(self, channel: Channel, named: str, timed: str | None, seen: set[tuple[str, str | None]]) -> None:
        """Follow a channel back to what sends its records; each sender once, as the number of paths can be huge."""
        if (channel.source, timed) in seen:
            return
        seen.add((channel.source, timed))
        sender = self.topology.operator(channel.source)
        if sender.kind == "source":
            self.clocks[named].add(timed or sender.name)
            return
        if sender.kind == "loop":  # has no watermark
            if timed is not None:
                raise InputError(f"operator {timed}: set the event time before the loop, or run with --workers 1")
            return
        if any(one.key is not None for one in sender.inputs):
            if timed is not None:
                raise InputError(f"operator {timed}: set the event time before key_by(), or run with --workers 1")
            self.feeds[named].add(sender.name)
            return
        if timed is None and sender.kind == "event_time":
            timed = sender.name
        for one in sender.inputs:
            self._walk(one, named, timed, seen)

    @property
    def lanes(self) -> list[str]:
        """Names of the partitions that exist now."""
        return [
            f"{name}\n{partition}"
            for name, one in self.sources.items()
            for partition in one.options.source.partitions()  # type: ignore[union-attr]
        ]


@cache
def lane_id(name: str) -> int:
    """Return the id of a lane."""
    return int(positions_of([name])[0] >> np.uint64(1))
