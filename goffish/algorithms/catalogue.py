"""Every algorithm by name, with one typed definition of its options.

Python calls, the command line and job messages are all made from these models. Other packages add theirs through the
entry point group ``goffish.algorithms``, by the name that users type.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from goffish.algorithms.algorithm import Algorithm
from goffish.algorithms.betweenness.api import Betweenness, EdgeBetweenness
from goffish.algorithms.bipartite.api import BipartiteCores, BipartiteProjection, Bipartition
from goffish.algorithms.closeness.api import Closeness, Harmonic
from goffish.algorithms.clustering.api import Clustering, Cores, Counts, Graphlets, Motifs, Quotient, Triangles, Trusses
from goffish.algorithms.communities.api import Infomap, Louvain
from goffish.algorithms.components.api import Components, MaxValue, StrongComponents
from goffish.algorithms.extents.api import Diameter, Eccentricity, Neighborhood
from goffish.algorithms.flows.api import FlowBetween
from goffish.algorithms.landscape.api import Landscape
from goffish.algorithms.orders.api import LongestPath, TopologicalOrder
from goffish.algorithms.pagerank.api import BlockRanks, PageRanks
from goffish.algorithms.paths.api import BreadthFirst, Distances, HopCounts, PathBetween, ShortestPaths
from goffish.algorithms.similarity.api import Similarity
from goffish.algorithms.spectral.api import Eigenvector, Hits, Katz, SpectralEmbedding
from goffish.algorithms.structure.api import (
    ArticulationPoints,
    BiconnectedComponents,
    Bridges,
    Coloring,
    IndependentSet,
    LabelPropagation,
    Matching,
    SpanningForest,
)
from goffish.algorithms.walks.api import FastRP, HashGNN, Walks
from goffish.errors import GoffishWarning, InputError

#: Group of the entry points: by the name of an algorithm, its class.
GROUP = "goffish.algorithms"

ALGORITHMS: dict[str, type[Algorithm]] = {
    a.name: a
    for a in (
        Components, StrongComponents, Bipartition, BipartiteProjection, BipartiteCores, BreadthFirst, ShortestPaths,
        PageRanks, BlockRanks, Louvain, Infomap, Betweenness, EdgeBetweenness, Closeness, Harmonic, Eigenvector, Katz,
        Hits, Landscape, Triangles, Clustering, Cores, Trusses, Motifs, Graphlets, Similarity, Walks, FastRP, HashGNN,
        SpectralEmbedding, SpanningForest, BiconnectedComponents, ArticulationPoints, Bridges, LabelPropagation,
        IndependentSet, Matching, Coloring, PathBetween, Distances, Eccentricity, Diameter, Neighborhood,
        TopologicalOrder, LongestPath, FlowBetween, MaxValue, HopCounts, Counts, Quotient,
    )
}  # fmt: skip


def _of_other_packages() -> Iterator[tuple[str, type[Algorithm]]]:
    """The algorithms of other packages; one that cannot be used is a warning, as the others can."""
    for entry in entry_points(group=GROUP):
        try:
            yield entry.name, _loaded(entry)
        except Exception as error:  # whatever the package raises
            what = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            package = "a package" if entry.dist is None else entry.dist.name
            warnings.warn(f"algorithm {entry.name!r} of {package} is left out: {what}", GoffishWarning, stacklevel=2)


def _loaded(entry: EntryPoint) -> type[Algorithm]:
    if entry.name in ALGORITHMS:
        raise InputError("another algorithm has this name")
    if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", entry.name):
        raise InputError("expected a name of small letters, digits and hyphens")
    found = entry.load()
    if not isinstance(found, type) or not issubclass(found, Algorithm):
        raise InputError(f"{entry.value} is not a subclass of goffish.algorithms.Algorithm")
    if (getattr(found, "name", None), isinstance(getattr(found, "title", None), str)) != (entry.name, True):
        raise InputError(f"{entry.value} needs name = {entry.name!r} and a title")
    return found


ALGORITHMS.update(_of_other_packages())


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
