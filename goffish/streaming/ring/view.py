"""The ring that all its users agree on: who owns which positions, who holds copies, which moves are in progress."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.streaming.ring.ranges import CIRCLE, NOTHING, Positions, Ranges


@dataclass(frozen=True)
class Member:
    """A node of the ring.

    Attributes
    ----------
    node : int
        Id of one life of the node: one that failed returns with a new id.
    token : int
        Start of the positions that it owns, which end at the next token clockwise.
    zone : str
        Fault zone.
    """

    node: int
    token: int
    zone: str = ""


@dataclass(frozen=True)
class Move:
    """A planned change of owner that is in progress.

    Attributes
    ----------
    owner, target : int
        Node that gives up the positions, and the node that gets them: one that is next to it, or a new one.
    start, stop : int
        The positions, clockwise: the first or the last ones of the owner, or all.
    shadows : tuple of (int, Ranges)
        Nodes that receive the messages of more positions than they would without the move, so that they hold copies
        before the ring changes.
    leaves : bool
        Whether the owner leaves the ring.
    """

    owner: int
    target: int
    start: int
    stop: int
    shadows: tuple[tuple[int, Ranges], ...] = ()
    leaves: bool = False
    zone: str = ""

    @property
    def ranges(self) -> Ranges:
        """The positions."""
        return Ranges.arc(self.start, self.stop)


@dataclass(frozen=True)
class View:
    """One version of the ring.

    Attributes
    ----------
    epoch : int
        Version; each change increases it by one.
    members : tuple of Member
        Ascending by token.
    replication : int
        Number of secondaries of each position.
    mappers : frozenset of int, optional
        Live senders of messages; by default the members.
    moves : tuple of Move
    """

    epoch: int
    members: tuple[Member, ...]
    replication: int = 1
    mappers: frozenset[int] | None = None
    moves: tuple[Move, ...] = ()

    @cached_property
    def _tokens(self) -> Positions:
        return np.array([member.token for member in self.members], dtype=np.uint64)

    @cached_property
    def _index(self) -> dict[int, int]:
        return {member.node: index for index, member in enumerate(self.members)}

    @cached_property
    def nodes(self) -> NDArray[np.int64]:
        """Ids of the members, by token."""
        return np.array([member.node for member in self.members], dtype=np.int64)

    @cached_property
    def senders(self) -> frozenset[int]:
        """Nodes or mappers that send messages."""
        return frozenset(self._index) if self.mappers is None else self.mappers

    def __contains__(self, node: int) -> bool:
        return node in self._index

    def owners(self, positions: Positions) -> NDArray[np.int64]:
        """Return the node that owns each position: the one with the largest token that is not greater."""
        return self.nodes[np.searchsorted(self._tokens, positions, side="right") - 1]

    def clockwise(self, node: int, steps: int = 1) -> int:
        """Return the node so many steps after another one; negative steps go counter-clockwise."""
        return self.members[(self._index[node] + steps) % len(self.members)].node

    def token(self, node: int) -> int:
        """Return the token of a node."""
        return self.members[self._index[node]].token

    def interval(self, node: int) -> Ranges:
        """Return the positions that a node owns."""
        if node not in self:
            return NOTHING
        return Ranges.arc(self.token(node), self.token(self.clockwise(node)))

    def secondaries(self, node: int) -> list[int]:
        """Return the nodes that hold copies of what a node owns, clockwise."""
        count = min(self.replication, len(self.members) - 1)
        return [self.clockwise(node, step) for step in range(1, count + 1)]

    def replicas(self, position: int) -> list[int]:
        """Return owner and secondaries of a position."""
        owner = int(self.owners(np.array([position], dtype=np.uint64))[0])
        return [owner, *self.secondaries(owner)]

    @cached_property
    def holders(self) -> dict[int, list[int]]:
        """Owner and secondaries of what each node owns."""
        return {member.node: [member.node, *self.secondaries(member.node)] for member in self.members}

    @cached_property
    def shadows(self) -> dict[int, Ranges]:
        """Positions that nodes hold copies of because of moves only."""
        nodes = {node for move in self.moves for node, _ in move.shadows}
        held = {
            node: Ranges.union(self.interval(owner) for owner, others in self.holders.items() if node in others)
            for node in nodes
        }
        return {node: self.covered(node) - ranges for node, ranges in held.items()}

    @cached_property
    def _covered(self) -> dict[int, Ranges]:
        held: dict[int, list[Ranges]] = {}
        for member in self.members:
            for node in (member.node, *self.secondaries(member.node)):
                held.setdefault(node, []).append(self.interval(member.node))
        for move in self.moves:
            for node, ranges in move.shadows:
                held.setdefault(node, []).append(ranges)
        return {node: Ranges.union(sets) for node, sets in held.items()}

    def covered(self, node: int) -> Ranges:
        """Return the positions whose messages a node receives, as owner, secondary or shadow."""
        return self._covered.get(node, NOTHING)

    @property
    def receivers(self) -> Iterable[int]:
        """Nodes that receive messages."""
        return self._covered.keys()

    @property
    def tolerated(self) -> int:
        """Greatest number of nodes that can fail at once without loss, if they are the right ones."""
        n, r = len(self.members), self.replication
        return math.floor(n * r / (r + 1))

    @property
    def zone_violations(self) -> int:
        """Number of members with a secondary in their own fault zone."""
        zones = {member.node: member.zone for member in self.members}
        pairs = ((node, other) for node in zones for other in self.secondaries(node))
        return len({node for node, other in pairs if zones[node] and zones[node] == zones[other]})

    def changed(self, **changes: object) -> View:
        """Return the next version with some attributes replaced."""
        return replace(self, epoch=self.epoch + 1, **changes)  # type: ignore[arg-type]

    def taken_over(self, node: int, token: int, removed: Iterable[int], zone: str = "") -> View:
        """Return the next version, in which a node starts at `token` and others are gone.

        Moves that the node or any of the removed ones takes part in are dropped.
        """
        return self._with({node: token}, set(removed), zone)

    def moved(self, move: Move) -> View:
        """Return the next version, in which a move has ended.

        Moves that the owner or the target takes part in are dropped.
        """
        owner, target = move.owner, move.target
        tokens = {target: move.start}
        if not move.leaves and move.start == self.token(owner):
            tokens[owner] = move.stop
        if target in self and move.start == self.token(owner) and target == self.clockwise(owner, -1):
            tokens[target] = self.token(target)
        return self._with(tokens, {owner} if move.leaves else set(), move.zone)

    def _with(self, tokens: Mapping[int, int], gone: Collection[int], zone: str) -> View:
        """Return the next version with new tokens of some nodes, which may be new, and without others."""
        kept = {member.node: member for member in self.members if member.node not in gone}
        for node, token in tokens.items():
            if node not in gone:
                kept[node] = replace(kept[node], token=token) if node in kept else Member(node, token, zone)
        changed = {*tokens, *gone}
        moves = (
            move for move in self.moves
            if changed.isdisjoint((move.owner, move.target)) and not any(node in gone for node, _ in move.shadows)
        )  # fmt: skip
        return self.changed(members=tuple(sorted(kept.values(), key=lambda m: m.token)), moves=tuple(moves))


def middle(start: int, stop: int) -> int | None:
    """Return the position half-way from `start` clockwise to `stop`, or None if nothing lies between.

    Examples
    --------
    >>> middle(10, 20), middle(CIRCLE - 10, 10), middle(4, 5)
    (15, 0, None)
    """
    half = ((stop - start) % CIRCLE or CIRCLE) // 2
    return (start + half) % CIRCLE if half else None


class Registry(Protocol):
    """Where the current view is agreed on."""

    def read(self) -> View:
        """Return the newest version."""

    def since(self, epoch: int) -> list[View]:
        """Return all versions after one, oldest first."""

    def replace(self, view: View) -> bool:
        """Make a view the newest version if it follows the newest version directly; return whether it did."""

    def claim(self, lane: str, node: int) -> None:
        """Make a node read a lane, if no node does."""

    def adopt(self, lost: Iterable[int], node: int) -> None:
        """Make a node read the lanes of others, each in its next life."""

    def hand(self, lane: str, node: int, target: int, begin: str) -> bool:
        """Make a member of the ring read a lane that a node reads, from a place on; return whether that was done."""

    def handed(self, lane: str) -> str | None:
        """Return the place from which a lane was handed to another node for the last time."""

    def lanes(self, node: int | None = None) -> dict[str, int]:
        """Return the lanes that a node reads, or all, with their lives."""


class MemoryRegistry:
    """A registry within one process.

    Parameters
    ----------
    view : View
        The first version.
    """

    def __init__(self, view: View) -> None:
        self._views = [view]
        self._lanes: dict[str, tuple[int, int]] = {}
        self._handed: dict[str, str] = {}

    def read(self) -> View:
        return self._views[-1]

    def since(self, epoch: int) -> list[View]:
        first = self._views[0].epoch
        return self._views[max(0, epoch + 1 - first) :]

    def replace(self, view: View) -> bool:
        if view.epoch != self._views[-1].epoch + 1:
            return False
        self._views.append(view)
        return True

    def claim(self, lane: str, node: int) -> None:
        self._lanes.setdefault(lane, (node, 0))

    def adopt(self, lost: Iterable[int], node: int) -> None:
        gone = set(lost)
        self._lanes |= {lane: (node, life + 1) for lane, (old, life) in self._lanes.items() if old in gone}

    def hand(self, lane: str, node: int, target: int, begin: str) -> bool:
        reader, life = self._lanes[lane]
        if reader != node or target not in self.read():
            return False
        self._lanes[lane], self._handed[lane] = (target, life + 1), begin
        return True

    def handed(self, lane: str) -> str | None:
        return self._handed.get(lane)

    def lanes(self, node: int | None = None) -> dict[str, int]:
        return {lane: life for lane, (reader, life) in self._lanes.items() if node in (None, reader)}
