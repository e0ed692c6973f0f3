"""Selection and placement of the circles of a landscape."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.landscape.levels import CommunityLandscape
from goffish.plot import pack_kernels as kernels

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

#: #: Maximum number of circles in total, of circles directly in one circle, and of members of one community.
MOST_NODES, MOST_CHILDREN, MOST_MEMBERS = 2000, 100, 10
#: #: Share of a circle's radius for its circles, or the dots of its members.
_FILLED, _DOTTED = 0.95, 0.84
#: #: Largest radius of a dot, as a share of its circle's, and the smallest, as a share of the largest dot in the
#: circle.
_LARGEST_DOT, _SMALLEST_DOT = 0.42, 0.16
_STEPS = 400


@dataclass
class Node:
    """A circle: the graph, a community, or the smaller communities without a separate circle.

    Attributes
    ----------
    parent : int
        Number of the enclosing circle; -1 for the graph.
    level, community : int
        Coarsest level on which these vertices are one community, and its number on that level; 0 and -1 for the graph.
    finest, part : int
        The same for the finest level.
    size : int
        Number of vertices.
    merged : int
        Number of communities that share this circle; 0 for other circles.
    undrawn : int
        Number of parts of this community, if they are not drawn.
    inside, cut : float
        Weights of the edges within, and to other communities of the level.
    members : int64
        Vertex numbers of the most central members.
    scores : float64
        Their betweenness.
    place : (float, float, float)
        Center and radius relative to the enclosing circle, with center 0 and radius 1.
    dots : float64, shape (members, 3)
        The same for the members of a circle without circles in it; otherwise without rows.
    """

    parent: int
    level: int
    community: int
    finest: int
    part: int
    size: int
    merged: int = 0
    undrawn: int = 0
    inside: float = 0.0
    cut: float = 0.0
    members: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    scores: Floats = field(default_factory=lambda: np.empty(0))
    place: tuple[float, float, float] = (0.0, 0.0, 1.0)
    dots: Floats = field(default_factory=lambda: np.empty((0, 3)))


def drawn_tree(found: CommunityLandscape) -> list[Node]:
    """Return the circles of a landscape, each after its enclosing circle; the first is the graph.

    The largest communities are opened first. Of the parts of an opened community, those with its central members are
    drawn, then the largest, so that every named member has a dot.
    """
    tree = _Tree(found)
    waiting = [(-tree.nodes[0].size, 0)]
    while waiting:
        number = heapq.heappop(waiting)[1]
        for child in tree.open(number):
            heapq.heappush(waiting, (-tree.nodes[child].size, child))
    return tree.nodes


def packed(radii: Floats) -> Floats:
    """Pack circles, and return the radius of the enclosing circle around the origin.

    Parameters
    ----------
    radii : float64, shape (circles,)
        Preferably in decreasing order.

    Returns
    -------
    float64, shape (circles, 3)
        Centers and radii, in units of the radius of the enclosing circle.
    """
    # The first circle at the center suits one large and many small circles; touching the second suits two large ones.
    tries = [_tried(radii, first) for first in (0.0, *radii[1:2])]
    return max(tries, key=lambda places: float(places[0, 2]))


def _tried(radii: Floats, first: float) -> Floats:
    x, y = np.zeros(radii.size), np.zeros(radii.size)
    kernels.pack(radii, x, y, first)
    at_x, at_y, reach = kernels.enclose(radii, x, y, _STEPS)
    places: Floats = np.column_stack((x - at_x, y - at_y, radii)) / reach
    return places


def _member_dots(scores: Floats) -> Floats:
    largest = float(scores.max(initial=0.0))
    share = scores / largest if largest > 0 else np.ones(scores.size)
    dots = packed(np.maximum(np.sqrt(share), _SMALLEST_DOT))
    scaled: Floats = dots * min(_DOTTED, _LARGEST_DOT / float(dots[:, 2].max()))
    return scaled


class _Tree:
    """The circles so far, and the parts of each community."""

    def __init__(self, found: CommunityLandscape) -> None:
        self.found = found
        self.levels = {level.number: level for level in found.levels}
        self.top, self.bottom = found.levels[-1].number, found.levels[0].number
        self.order: dict[int, Ids] = {}
        self.starts: dict[int, Ids] = {}
        for number, level in self.levels.items():
            coarsest = number == self.top or level.parent is None
            parent = np.zeros(level.size.size, np.int64) if coarsest else level.parent
            assert parent is not None
            order = np.lexsort((-level.size, parent))
            above = 1 if coarsest else self.levels[number + 1].size.size
            self.order[number], self.starts[number] = order, np.searchsorted(parent[order], np.arange(above + 1))
        graph = Node(-1, 0, -1, self.top + 1, 0, found.graph.num_vertices)
        level = self.levels[self.top]
        first = np.lexsort((level.members, -level.centrality.score))[: self._most()]
        graph.members, graph.scores = level.members[first], level.centrality.score[first]
        self.nodes = [graph]

    def open(self, number: int) -> list[int]:
        """Draw the parts of a circle: circles, whose numbers are returned, or dots."""
        node = self.nodes[number]
        parts = self._parts(node.finest, node.part)
        level = node.finest - 1
        chosen = parts if node.size > 1 or number == 0 else parts[:0]
        if chosen.size > MOST_CHILDREN:
            needed = np.isin(parts, self._communities(node.members, level))
            chosen = parts[np.sort(np.argsort(~needed, kind="stable")[:MOST_CHILDREN])]
        merged = parts.size - chosen.size if chosen.size else 0
        if not chosen.size or len(self.nodes) + chosen.size + (merged > 0) > MOST_NODES:
            node.undrawn = parts.size if node.size > 1 else 0
            if node.scores.size:
                node.dots = _member_dots(node.scores)
            return []
        children = [self._community(number, level, int(part)) for part in chosen]
        largest = max(child.size for child in children)
        if merged:
            rest = node.size - sum(child.size for child in children)
            children.append(Node(number, level, -1, level, -1, rest, merged))
        # To scale, merged communities could leave no space for the others.
        areas = np.minimum([float(child.size) for child in children], largest)
        rows = np.argsort(-areas, kind="stable")
        places = np.empty((rows.size, 3))
        places[rows] = packed(np.sqrt(areas[rows])) * _FILLED
        for child, (x, y, radius) in zip(children, places, strict=True):
            child.place = (float(x), float(y), float(radius))
        self.nodes += children
        return [at for at in range(len(self.nodes) - len(children), len(self.nodes)) if not self.nodes[at].merged]

    def _community(self, parent: int, level: int, community: int) -> Node:
        finest, part = level, community
        while (parts := self._parts(finest, part)).size == 1:
            finest, part = finest - 1, int(parts[0])
        at = self.levels[level]
        rows = slice(int(at.starts[community]), int(at.starts[community]) + self._most())
        rows = slice(rows.start, min(rows.stop, int(at.starts[community + 1])))
        return Node(
            parent, level, community, finest, part, int(at.size[community]), inside=float(at.inside[community]),
            cut=float(at.cut[community]), members=at.members[rows], scores=at.centrality.score[rows],
        )  # fmt: skip

    def _most(self) -> int:
        return min(MOST_MEMBERS, self.found.options.members)

    def _parts(self, level: int, community: int) -> Ids:
        """Communities of the next finer level, the largest first; none on the finest level."""
        if level == self.bottom:
            return np.empty(0, np.int64)
        starts = self.starts[level - 1]
        return self.order[level - 1][starts[community] : starts[community + 1]]

    def _communities(self, vertices: Ids, level: int) -> Ids:
        maps = self.found.communities.maps
        community = maps[0][vertices]
        for up in maps[1:level]:
            community = up[community]
        return community
