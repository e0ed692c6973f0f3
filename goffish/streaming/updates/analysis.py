"""What an update of a dataflow needs so that no output has two versions.

See docs/specs/updates.md, sections 3.4 and 3.6.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from goffish.streaming.updates.versions import (
    Channel,
    Difference,
    Element,
    Part,
    Strategy,
    UpdateType,
    Version,
    classify,
    difference,
)


@dataclass(frozen=True)
class Change:
    """A change from one version of a dataflow to the next.

    Attributes
    ----------
    strategy : Strategy
    old, new : Version
    ordered : bool
        Whether sinks hold outputs of the new version until the old one has drained.

    Raises
    ------
    InputError
        Nothing differs.
    """

    strategy: Strategy
    old: Version
    new: Version
    ordered: bool = field(default=False, kw_only=True)

    @cached_property
    def parts(self) -> Difference:
        """Elements and channels by version."""
        return difference(self.old, self.new)

    @cached_property
    def kind(self) -> UpdateType:
        """Type of the update."""
        return classify(self.old, self.new)

    @cached_property
    def pins(self) -> frozenset[str]:
        """Elements that decide for all products of a message at once, under PVC."""
        return pin_points(self.old, self.new) if self.strategy == Strategy.PVC else frozenset()


class _Logical:
    """The graph of both versions over ids: reachability and dominators as bitsets."""

    def __init__(self, old: Version, new: Version) -> None:
        self.ids = sorted(old.logic.keys() | new.logic.keys())
        self.place = {id: 1 << number for number, id in enumerate(self.ids)}
        self.origins: dict[str, set[str]] = {id: set() for id in self.ids}
        for source, target in old.channels | new.channels:
            self.origins[target].add(source)
        self.sources = [id for id in self.ids if id in old.sources or id in new.sources]
        self.above = self._fixed_point(dict.fromkeys(self.ids, 0), False)
        dominators = self._fixed_point(dict.fromkeys(self.ids, (1 << len(self.ids)) - 1), True)
        by_depth = sorted(self.ids, key=lambda id: dominators[id].bit_count(), reverse=True)
        #: The nearest other element on all paths to each one.
        self.dominator = {
            id: next((one for one in by_depth if one != id and dominators[id] & self.place[one]), None)
            for id in self.ids
        }

    def _fixed_point(self, sets: dict[str, int], common: bool) -> dict[str, int]:
        """Return ancestors (unions over the origins), or dominators (intersections), both with the element itself."""
        changed = True
        while changed:
            changed = False
            for id in self.ids:
                found = [sets[origin] for origin in self.origins[id]]
                if common:
                    total = 0 if id in self.sources else -1
                    for one in found:
                        total &= one
                else:
                    total = 0
                    for one in found:
                        total |= one
                total |= self.place[id]
                if total != sets[id]:
                    sets[id], changed = total, True
        return sets

    def reaches(self, source: str, target: str) -> bool:
        return bool(self.above[target] & self.place[source])

    def deciding(self, points: Counter[str]) -> set[str]:
        """Return the nearest element on all paths to both decisions of any pair, or the sources that reach both.

        `points` are the elements at which decisions are made, with their number.
        """
        branches: dict[str | None, set[str]] = {}
        for id in points:
            child, parent = id, self.dominator[id]
            while child not in branches.setdefault(parent, set()):
                branches[parent].add(child)
                if parent is not None:
                    child, parent = parent, self.dominator[parent]
        found = {id for id in self.ids if len(branches.get(id, ())) + points[id] >= 2}
        tops = branches.get(None, set())
        for source in self.sources if len(tops) > 1 else ():
            reached = [id for id in points if self.reaches(source, id)]
            if sum(any(self._below(id, top) for id in reached) for top in tops) > 1:
                found.add(source)
        return found

    def _below(self, id: str, top: str) -> bool:
        """Return whether all paths to an element pass another one."""
        one: str | None = id
        while one is not None and one != top:
            one = self.dominator[one]
        return one == top


def pin_points(old: Version, new: Version) -> frozenset[str]:
    """Return the elements that must decide between the versions for all products of a message at once (§3.6).

    Messages that descend from one message may meet in a join. If two changed parts on their ways decide on their own,
    one of them before and one after the activation, no output has a single version. In the same way a message that
    moves from a channel to one of another producer would take both or neither. The nearest element that all ways to
    both decisions have in common decides instead, unless it is changed itself, as the trace then shows its choice.

    Parameters
    ----------
    old, new : Version

    Returns
    -------
    frozenset of str

    Examples
    --------
    >>> ways = [("fork", "a"), ("fork", "b"), ("a", "join"), ("b", "join")]
    >>> old = Version.of(1, {"fork": 1, "a": 1, "b": 1, "join": 1}, ways, joins=["join"])
    >>> pin_points(old, Version.of(2, {"fork": 1, "a": 2, "b": 2, "join": 1}, ways, joins=["join"]))
    frozenset({'fork'})
    """
    graph = _Logical(old, new)
    _, old_only, new_only = difference(old, new)
    parts = old_only | new_only
    changed = {part.id for part in parts if isinstance(part, Element)}
    # Behind a changed element the trace decides.
    channels = [part for part in parts if isinstance(part, Channel) and part.source not in changed]
    pins: set[str] = set()
    for join in old.joins | new.joins:
        points = Counter(id for id in changed if id != join and graph.reaches(id, join))
        # The channels that leave one element are chosen once for a product.
        points.update({one.source for one in channels if graph.reaches(one.target, join)})
        if join in changed:  # decides on the arrival of each parent
            points.update(graph.origins[join])
        pins |= graph.deciding(points)
    left, entered = ({one.source for one in channels if one in side} for side in (old_only, new_only))
    if left and entered:
        pins |= graph.deciding(Counter(left | entered))
    return frozenset(pins - changed)


def can_mix(old: Version, new: Version) -> bool:
    """Return whether HTI may mix versions: changed parts follow each other, or their products may meet in a join.

    Examples
    --------
    >>> old = Version.of(1, {"a": 1, "b": 1}, [("a", "b")])
    >>> can_mix(old, Version.of(2, {"a": 1, "b": 2}, [("a", "b")]))
    False
    >>> can_mix(old, Version.of(2, {"a": 2, "b": 2}, [("a", "b")]))
    True
    """
    graph = _Logical(old, new)
    parts = difference(old, new)
    joins = old.joins | new.joins

    def meet(one: Part, other: Part) -> bool:
        (enter, leave), (enters, leaves) = _ends(one), _ends(other)
        if isinstance(one, Element) and isinstance(other, Element) and one.id == other.id:
            follow = any(graph.reaches(one.id, origin) for origin in graph.origins[one.id])  # it is on a cycle
        else:
            follow = graph.reaches(leave, enters) or graph.reaches(leaves, enter)
        return follow or any(graph.reaches(leave, join) and graph.reaches(leaves, join) for join in joins)

    return any(meet(one, other) for one in parts.old_only for other in parts.new_only)


def _ends(part: Part) -> tuple[str, str]:
    return (part.id, part.id) if isinstance(part, Element) else (part.source, part.target)
