"""Versions of a dataflow, their difference, and the numbering of traces.

See docs/specs/updates.md, sections 2.1 to 2.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from goffish.errors import InputError


class Strategy(StrEnum):
    """How a running dataflow is updated."""

    NCL = "ncl"  # naive, consistent, lossy: stop, deploy, resume
    NCH = "nch"  # naive, consistent, high latency: pause inputs, drain, deploy, resume
    HTI = "hti"  # high throughput, inconsistent: switch each element when it is ready
    MVC = "mvc"  # message-versioned, consistent: sources stamp the version
    PVC = "pvc"  # path-versioned, consistent: the path of a message decides


class PartialWindow(StrEnum):
    """What happens to incomplete batches and windows of the old version once it has drained."""

    EMIT = "emit"
    DROP = "drop"
    MERGE = "merge"


def strategy_of(text: str) -> Strategy:
    """Return a strategy by name.

    Raises
    ------
    InputError
        There is none of this name.
    """
    if text not in list(Strategy):
        raise InputError(f"strategy = {text!r}: choose one of {', '.join(Strategy)}")
    return Strategy(text)


def partial_window_of(text: str) -> PartialWindow:
    """Return what becomes of incomplete windows by name.

    Raises
    ------
    InputError
        There is no such choice.
    """
    if text not in list(PartialWindow):
        raise InputError(f"partial_windows = {text!r}: choose one of {', '.join(PartialWindow)}")
    return PartialWindow(text)


class UpdateType(IntEnum):
    """What an update changes (§2.2)."""

    ELEMENT = 1
    CHANNEL = 2
    INDEPENDENT_SUBGRAPH = 3
    CONNECTED_SUBGRAPH = 4


class Element(NamedTuple):
    """A processing element with one version of its logic."""

    id: str
    version: int


class Channel(NamedTuple):
    """A channel between two processing elements; channels have no versions."""

    source: str
    target: str


Part = Element | Channel


@dataclass(frozen=True)
class Version:
    """One version of a dataflow.

    Attributes
    ----------
    number : int
        At least 1; higher than that of every earlier version.
    elements : tuple of Element
        At most one of each id.
    channels : frozenset of Channel
        At most one for each ordered pair; cycles are accepted.
    joins : frozenset of str
        Elements that fire on several messages: joins, windows, batches.

    Raises
    ------
    InputError
        An element is missing or given twice, or the dataflow has no source or no sink.
    """

    number: int
    elements: tuple[Element, ...]
    channels: frozenset[Channel]
    joins: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        where = f"dataflow version {self.number}"
        if self.number < 1:
            raise InputError(f"{where}: numbers begin at 1")
        twice = [id for id, times in Counter(one.id for one in self.elements).items() if times > 1]
        if twice:
            raise InputError(f"{where}: processing element {twice[0]!r} is given twice")
        for channel in sorted(self.channels):
            for id in channel:
                if id not in self.logic:
                    raise InputError(f"{where}: channel {channel.source} -> {channel.target}: no element {id!r}")
        for id in sorted(self.joins - self.logic.keys()):
            raise InputError(f"{where}: join {id!r} is not an element")
        if not self.sources or not self.sinks:
            raise InputError(f"{where}: needs an element without inputs and one without outputs")

    @classmethod
    def of(
        cls,
        number: int,
        elements: Mapping[str, int] | Iterable[str],
        channels: Iterable[tuple[str, str]],
        joins: Iterable[str] = (),
    ) -> Version:
        """Make a version from ids, or a mapping from ids to versions of their logic, and pairs of ids.

        Parameters
        ----------
        number : int
        elements : mapping or iterable of str
            Ids without a version have version 1.
        channels : iterable of (str, str)
        joins : iterable of str

        Returns
        -------
        Version

        Raises
        ------
        InputError
            As of `Version`.

        Examples
        --------
        >>> version = Version.of(1, ["read", "parse", "write"], [("read", "parse"), ("parse", "write")])
        >>> version.sources, version.sinks
        (('read',), ('write',))
        """
        logic = elements if isinstance(elements, Mapping) else dict.fromkeys(elements, 1)
        return cls(
            number,
            tuple(Element(id, version) for id, version in logic.items()),
            frozenset(Channel(*pair) for pair in channels),
            frozenset(joins),
        )

    @cached_property
    def logic(self) -> dict[str, int]:
        """Version of the logic of each element."""
        return {one.id: one.version for one in self.elements}

    @cached_property
    def targets(self) -> dict[str, tuple[str, ...]]:
        """Elements behind the channels that leave each element, in order of their ids."""
        return _neighbors(self.logic, self.channels)

    @cached_property
    def origins(self) -> dict[str, tuple[str, ...]]:
        """Elements in front of the channels that arrive at each element, in order of their ids."""
        return _neighbors(self.logic, (Channel(target, source) for source, target in self.channels))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Elements without inputs."""
        return tuple(id for id in self.logic if not self.origins[id])

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """Elements without outputs."""
        return tuple(id for id in self.logic if not self.targets[id])

    @cached_property
    def parts(self) -> frozenset[Part]:
        """All elements and channels."""
        return frozenset[Part](self.elements) | self.channels

    def to_dict(self) -> dict[str, Any]:
        """Return the version as JSON values."""
        return {
            "number": self.number,
            "elements": dict(self.elements),
            "channels": sorted(self.channels),
            "joins": sorted(self.joins),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Version:
        """Restore what `to_dict` returned."""
        return cls.of(fields["number"], fields["elements"], fields["channels"], fields["joins"])


def _neighbors(ids: Iterable[str], channels: Iterable[Channel]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {id: [] for id in ids}
    for source, target in channels:
        found[source].append(target)
    return {id: tuple(sorted(targets)) for id, targets in found.items()}


class Difference(NamedTuple):
    """Elements and channels by the versions that they belong to.

    An element is unchanged if both versions have it with the same logic; a channel, if both have one between these ids.
    """

    unchanged: frozenset[Part]
    old_only: frozenset[Part]
    new_only: frozenset[Part]


def difference(old: Version, new: Version) -> Difference:
    """Return what two versions have in common, and what only one of them has.

    Parameters
    ----------
    old, new : Version

    Returns
    -------
    Difference

    Raises
    ------
    InputError
        Both are equal, or `new` has the lower number.

    Examples
    --------
    >>> old = Version.of(1, {"read": 1, "write": 1}, [("read", "write")])
    >>> new = Version.of(2, {"read": 1, "write": 2}, [("read", "write")])
    >>> difference(old, new).new_only
    frozenset({Element(id='write', version=2)})
    """
    if new.number <= old.number:
        raise InputError(f"update to dataflow version {new.number}: the number must be above {old.number}")
    if old.parts == new.parts:
        raise InputError(f"update to dataflow version {new.number}: no element or channel differs from {old.number}")
    return Difference(old.parts & new.parts, old.parts - new.parts, new.parts - old.parts)


def classify(old: Version, new: Version) -> UpdateType:
    """Return the type of an update (§2.2).

    Parameters
    ----------
    old, new : Version

    Returns
    -------
    UpdateType

    Raises
    ------
    InputError
        The versions are equal.

    Examples
    --------
    >>> old = Version.of(1, {"read": 1, "write": 1}, [("read", "write")])
    >>> classify(old, Version.of(2, {"read": 1, "write": 2}, [("read", "write")])).name
    'ELEMENT'
    """
    unchanged, old_only, new_only = difference(old, new)
    if old.channels == new.channels and old.logic.keys() == new.logic.keys():
        return UpdateType.ELEMENT
    if old.logic == new.logic:
        return UpdateType.CHANNEL
    sides = ((unchanged, new), (old_only, old), (new_only, new))
    if all(_connected(parts, version.channels) for parts, version in sides):
        return UpdateType.CONNECTED_SUBGRAPH
    return UpdateType.INDEPENDENT_SUBGRAPH


def _connected(parts: Collection[Part], channels: Iterable[Channel]) -> bool:
    """Whether parts are weakly connected by their own channels and by those between two of their elements."""
    ids = {part.id for part in parts if isinstance(part, Element)}
    own = [part for part in parts if isinstance(part, Channel)]
    links = own + [channel for channel in channels if ids.issuperset(channel)]
    waiting = ids.union(*own)
    if not waiting:
        return True
    reached = {waiting.pop()}
    while True:
        near = {id for link in links if not reached.isdisjoint(link) for id in link} - reached
        if not near:
            return waiting <= reached
        reached |= near


@dataclass(frozen=True)
class Numbering:
    """Bits of elements and channels in traces, which are sets of them as integers.

    A part keeps its bit from update to update, so traces of messages in flight stay valid. Bits of retired parts are
    used again: no message in flight has them when an update is complete.

    Attributes
    ----------
    bits : dict
        A power of two for each part.

    Examples
    --------
    >>> version = Version.of(1, ["a", "b"], [("a", "b")])
    >>> numbering = Numbering({}).extended(version)
    >>> numbering.mask(version.elements), numbering.mask(version.parts)
    (3, 7)
    """

    bits: Mapping[Part, int]

    def mask(self, parts: Iterable[Part]) -> int:
        """Return the set of these parts."""
        return sum(self.bits[part] for part in parts)

    def extended(self, version: Version) -> Numbering:
        """Return a numbering that has all parts of a version too, on the lowest free bits."""
        bits, used, bit = dict(self.bits), sum(self.bits.values()), 1
        parts: list[Part] = [*version.elements, *sorted(version.channels)]
        for part in parts:
            if part not in bits:
                while used & bit:
                    bit <<= 1
                bits[part] = bit
                used |= bit
        return Numbering(bits)

    def restricted(self, version: Version) -> Numbering:
        """Return a numbering of the parts of one version only."""
        return Numbering({part: bit for part, bit in self.bits.items() if part in version.parts})

    def to_list(self) -> list[list[Any]]:
        """Return the numbering as JSON values."""
        return [[*part, bit.bit_length() - 1] for part, bit in self.bits.items()]

    @classmethod
    def from_list(cls, rows: Iterable[Iterable[Any]]) -> Numbering:
        """Restore what `to_list` returned."""
        bits: dict[Part, int] = {}
        for first, second, place in rows:
            if isinstance(second, int):
                bits[Element(first, second)] = 1 << place
            else:
                bits[Channel(first, second)] = 1 << place
        return cls(bits)
