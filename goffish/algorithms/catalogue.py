"""Every algorithm by name, with one typed definition of its options.

Python calls, the command line and job messages are all made from these models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goffish.algorithms.algorithm import Algorithm
from goffish.algorithms.betweenness.api import Betweenness
from goffish.algorithms.closeness.api import Closeness, Harmonic
from goffish.algorithms.clustering.api import Cores, Counts, Quotient, Triangles
from goffish.algorithms.communities.api import Louvain
from goffish.algorithms.components.api import Components, MaxValue, StrongComponents
from goffish.algorithms.landscape.api import Landscape
from goffish.algorithms.pagerank.api import BlockRanks, PageRanks
from goffish.algorithms.paths.api import BreadthFirst, HopCounts, ShortestPaths
from goffish.errors import InputError

ALGORITHMS: dict[str, type[Algorithm]] = {
    a.name: a
    for a in (
        Components, StrongComponents, BreadthFirst, ShortestPaths, PageRanks, BlockRanks, Louvain, Betweenness,
        Closeness, Harmonic, Landscape, Triangles, Cores, MaxValue, HopCounts, Counts, Quotient,
    )
}  # fmt: skip


def make(name: str, options: Mapping[str, Any]) -> Algorithm:
    """The algorithm `name` with checked options.

    Raises
    ------
    InputError
        Unknown algorithm or option, or a value out of range; one line that says what is accepted.
    """
    model = ALGORITHMS.get(name)
    if model is None:
        raise InputError(f"unknown algorithm {name!r}: choose one of {', '.join(ALGORITHMS)}")
    return model.checked(**options)


def file_options(name: str) -> list[str]:
    """Options of the algorithm `name` whose texts name files; empty for an unknown algorithm."""
    return ALGORITHMS[name].files() if name in ALGORITHMS else []
