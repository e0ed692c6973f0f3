"""How the community landscape is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goffish.algorithms.algorithm import Note
from goffish.algorithms.landscape.options import LandscapeOptions

if TYPE_CHECKING:
    from goffish.algorithms.landscape.levels import CommunityLandscape
    from goffish.graph import Graph


class Landscape(LandscapeOptions):
    """The hierarchy of communities, and the members of highest betweenness of each of them."""

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> CommunityLandscape:
        from goffish.algorithms.landscape.in_memory import landscape

        return landscape(graph, self, threads, note)
