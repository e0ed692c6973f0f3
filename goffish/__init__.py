"""GoFFish: subgraph-centric graph analytics on partitioned graphs.

Everything a user needs is reached from here::

    import goffish as gf

    g = gf.read("edges.txt.gz")
    gf.connected_components(g).to_pandas()
    gf.partition(g, parts=8).save("store/")
    gf.open("store/").run("pagerank")
    flow = gf.stream.Flow("orders")

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from goffish import hooks
from goffish.kernels.cache import choose_kernel_cache
from goffish.moved import install
from goffish.version import __version__

choose_kernel_cache()
install()

if TYPE_CHECKING:
    from goffish import streaming as stream  # noqa: F401 (a module, as is goffish.plot)
    from goffish.algorithms.aggregation.api import aggregate_messages
    from goffish.algorithms.betweenness.api import betweenness, edge_betweenness
    from goffish.algorithms.bipartite.api import bipartite_cores, bipartite_projection, bipartition
    from goffish.algorithms.closeness.api import closeness, harmonic
    from goffish.algorithms.clustering.api import (
        clustering,
        core_numbers,
        graphlet_degrees,
        motif_counts,
        triangles,
        truss_numbers,
    )
    from goffish.algorithms.communities.api import agreement, codelength, conductance, infomap, louvain, modularity
    from goffish.algorithms.communities.communities import Communities
    from goffish.algorithms.components.api import condensation, connected_components, strongly_connected_components
    from goffish.algorithms.extents.api import diameter, eccentricity, neighborhood_function
    from goffish.algorithms.flows.api import maximum_flow
    from goffish.algorithms.flows.in_memory import MaximumFlow
    from goffish.algorithms.landscape.api import landscape
    from goffish.algorithms.landscape.levels import CommunityLandscape
    from goffish.algorithms.orders.api import longest_path, topological_order
    from goffish.algorithms.pagerank.api import blockrank, pagerank
    from goffish.algorithms.paths.api import bfs, coordinate_bounds, distances, shortest_path, sssp
    from goffish.algorithms.run import run
    from goffish.algorithms.similarity.api import similarity
    from goffish.algorithms.spectral.api import eigenvector, hits, katz, spectral_embedding
    from goffish.algorithms.structure.api import (
        articulation_points,
        biconnected_components,
        bridges,
        greedy_coloring,
        label_propagation,
        maximal_independent_set,
        maximal_matching,
        minimum_spanning_forest,
    )
    from goffish.algorithms.walks.api import fastrp, hashgnn, random_walks
    from goffish.errors import DataError, FormatError, GoffishError, InputError, JobError, StoreError
    from goffish.gofs import PartitionedGraph
    from goffish.gofs import open_store as open
    from goffish.gofs import verify_store as verify
    from goffish.gofs.reservoir import Reservoir
    from goffish.gofs.series import open_series
    from goffish.gopher import (
        BatchStep,
        Result,
        RunStats,
        Subgraph,
        SubgraphBatch,
        SubgraphProgram,
        Superstep,
        per_neighbor,
        per_remote,
        per_subgraph,
        per_vertex,
    )
    from goffish.graph import (
        Graph,
        contract,
        difference,
        from_arrow,
        from_edges,
        from_igraph,
        from_networkx,
        from_pandas,
        from_polars,
        from_scipy,
        generators,  # noqa: F401
        intersection,
        join_edges,
        join_vertices,
        relabel,
        sample,
        to_arrow,
        to_igraph,
        to_networkx,
        to_pandas,
        to_polars,
        to_scipy,
        union,
        vertices_to_arrow,
    )
    from goffish.graph.io import read, write
    from goffish.partition.cut import partition_graph as partition
    from goffish.partition.figures import quality
    from goffish.spark.frames import from_dataframe
    from goffish.temporal.api import run_series
    from goffish.temporal.event_paths import temporal_paths
    from goffish.temporal.motifs import temporal_triangles
    from goffish.temporal.program import TimeSeriesProgram

_HOMES = {
    "goffish.algorithms.aggregation.api": ("aggregate_messages",),
    "goffish.algorithms.betweenness.api": ("betweenness", "edge_betweenness"),
    "goffish.algorithms.closeness.api": ("closeness", "harmonic"),
    "goffish.algorithms.bipartite.api": ("bipartite_cores", "bipartite_projection", "bipartition"),
    "goffish.algorithms.clustering.api": (
        "clustering", "core_numbers", "graphlet_degrees", "motif_counts", "triangles", "truss_numbers",
    ),
    "goffish.algorithms.communities.api": (
        "agreement", "codelength", "conductance", "infomap", "louvain", "modularity",
    ),
    "goffish.algorithms.components.api": (
        "condensation", "connected_components", "strongly_connected_components",
    ),
    "goffish.algorithms.flows.api": ("maximum_flow",),
    "goffish.algorithms.flows.in_memory": ("MaximumFlow",),
    "goffish.algorithms.landscape.api": ("landscape",),
    "goffish.algorithms.pagerank.api": ("blockrank", "pagerank"),
    "goffish.algorithms.extents.api": ("diameter", "eccentricity", "neighborhood_function"),
    "goffish.algorithms.orders.api": ("longest_path", "topological_order"),
    "goffish.algorithms.paths.api": ("bfs", "coordinate_bounds", "distances", "shortest_path", "sssp"),
    "goffish.algorithms.landscape.levels": ("CommunityLandscape",),
    "goffish.algorithms.communities.communities": ("Communities",),
    "goffish.algorithms.run": ("run",),
    "goffish.algorithms.similarity.api": ("similarity",),
    "goffish.algorithms.spectral.api": ("eigenvector", "hits", "katz", "spectral_embedding"),
    "goffish.algorithms.walks.api": ("fastrp", "hashgnn", "random_walks"),
    "goffish.algorithms.structure.api": (
        "articulation_points", "biconnected_components", "bridges", "greedy_coloring", "label_propagation",
        "maximal_independent_set", "maximal_matching", "minimum_spanning_forest",
    ),
    "goffish.temporal.event_paths": ("temporal_paths",),
    "goffish.temporal.motifs": ("temporal_triangles",),
    "goffish.temporal.api": ("run_series",),
    "goffish.errors": ("DataError", "FormatError", "GoffishError", "InputError", "JobError", "StoreError"),
    "goffish.gofs": ("PartitionedGraph",),
    "goffish.gofs.reservoir": ("Reservoir",),
    "goffish.gofs.series": ("open_series",),
    "goffish.gopher": (
        "BatchStep", "Result", "RunStats", "Subgraph", "SubgraphBatch", "SubgraphProgram", "Superstep",
        "per_neighbor", "per_remote", "per_subgraph", "per_vertex",
    ),
    "goffish.graph": (
        "Graph", "contract", "difference", "from_arrow", "from_edges", "from_igraph", "from_networkx", "from_pandas",
        "from_polars", "from_scipy", "intersection", "join_edges", "join_vertices", "relabel", "sample", "to_arrow",
        "to_igraph", "to_networkx", "to_pandas", "to_polars", "to_scipy", "union", "vertices_to_arrow",
    ),
    "goffish.graph.io": ("read", "write"),
    "goffish.partition.figures": ("quality",),
    "goffish.spark.frames": ("from_dataframe",),
    "goffish.temporal.program": ("TimeSeriesProgram",),
}  # fmt: skip
_HOME_OF = {name: (module, name) for module, names in _HOMES.items() for name in names}
_HOME_OF |= {"open": ("goffish.gofs", "open_store"), "verify": ("goffish.gofs", "verify_store")}

__all__ = [
    "BatchStep", "Communities", "CommunityLandscape", "DataError", "FormatError", "GoffishError", "Graph", "InputError",
    "JobError", "MaximumFlow", "PartitionedGraph", "Reservoir", "Result", "RunStats", "StoreError", "Subgraph",
    "SubgraphBatch", "SubgraphProgram", "Superstep", "TimeSeriesProgram", "__version__", "aggregate_messages",
    "agreement", "articulation_points", "betweenness", "bfs", "biconnected_components", "bipartite_cores",
    "bipartite_projection", "bipartition", "blockrank", "bridges", "closeness", "clustering", "codelength",
    "condensation", "conductance", "connected_components", "contract", "coordinate_bounds", "core_numbers", "diameter",
    "difference", "distances", "eccentricity", "edge_betweenness", "eigenvector", "fastrp", "from_arrow",
    "from_dataframe", "from_edges", "from_igraph", "from_networkx", "from_pandas", "from_polars", "from_scipy",
    "graphlet_degrees", "greedy_coloring", "harmonic", "hashgnn", "hits", "infomap", "intersection", "join_edges",
    "join_vertices", "katz", "label_propagation", "landscape", "longest_path", "louvain", "maximal_independent_set",
    "maximal_matching", "maximum_flow", "minimum_spanning_forest", "modularity", "motif_counts",
    "neighborhood_function", "open", "open_series", "pagerank", "partition", "per_neighbor", "per_remote",
    "per_subgraph", "per_vertex", "quality", "random_walks", "read", "relabel", "run", "run_series", "sample",
    "shortest_path", "similarity", "spectral_embedding", "sssp", "strongly_connected_components", "temporal_paths",
    "temporal_triangles", "to_arrow", "to_igraph", "to_networkx", "to_pandas", "to_polars", "to_scipy",
    "topological_order", "triangles", "truss_numbers", "union", "verify", "vertices_to_arrow", "write",
]  # fmt: skip


#: Modules under names that are shorter than theirs.
_MODULES = {"generators": "goffish.graph.generators", "stream": "goffish.streaming"}


def __getattr__(name: str) -> Any:
    if name == "partition":
        # The package of this name is callable: see its __init__.
        return importlib.import_module("goffish.partition")
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME_OF:
        raise AttributeError(f"module 'goffish' has no attribute {name!r}")
    module, attribute = _HOME_OF[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function that is loaded when it is first called."""

    def call(*given: Any, **named: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*given, **named)

    return call


hooks.run = _late("goffish.algorithms.run", "run")
hooks.open_series = _late("goffish.gofs.series", "open_series")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "plot"})
