"""The landscape of a graph in memory: communities, centrality, and the two put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from goffish.algorithms.betweenness.in_memory import betweenness
from goffish.algorithms.betweenness.sampling import estimate_betweenness
from goffish.algorithms.communities.in_memory import louvain
from goffish.algorithms.landscape.levels import Centrality, CommunityLandscape, Ids, make_level, table_of
from goffish.errors import InputError
from goffish.graph import Graph

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note
    from goffish.algorithms.landscape.options import LandscapeOptions

#: Arc visits (vertices times arcs) up to which values are exact by default: seconds to minutes on two cores.
AFFORDABLE = 1e11
#: Error of a sampled value, as a share of all pairs, where exact values would take too long.
DEFAULT_EPSILON = 0.005
#: Largest probability that a sampled value is further off.
DELTA = 0.1


def landscape(
    graph: Graph, options: LandscapeOptions, threads: int | None = None, note: Note | None = None
) -> CommunityLandscape:
    """Communities and central members of a graph in memory; see `goffish.landscape`."""
    if options.weighted and graph.weights is None:
        raise InputError("weighted: the graph has no weights; omit weighted or use a graph with weights")

    def report(text: str) -> None:
        if note is not None:
            note(text)

    found = louvain(
        graph, resolution=options.resolution, seed=options.seed, refine=options.refine, threads=threads,
        progress=lambda stage, passes, gain: report(f"communities: stage {stage}, pass {passes}, +{gain:.5f}"),
    )  # fmt: skip
    first = 1 if options.levels is None else max(1, found.num_levels - options.levels + 1)
    numbers = range(first, found.num_levels + 1)
    figures: dict[str, Any] = {"paths": options.paths}
    if options.paths == "graph":
        centrality, how = _of_graph(graph, options, threads, report)
        figures |= how
        levels = tuple(make_level(found, number, options.members, centrality) for number in numbers)
    else:
        made = []
        for number in numbers:
            inner = inner_graph(graph, found.membership_at(number))
            score = _exact(inner, options, threads, report, f"betweenness, level {number}")
            made.append(make_level(found, number, options.members, score))
        levels = tuple(made)
        figures["betweenness"] = "exact"
    summary = {name: found.summary[name] for name in ("communities", "modularity", "levels")} | figures
    return CommunityLandscape(
        "landscape", table_of(graph, levels), summary, communities=found, levels=levels, options=options
    )


def inner_graph(graph: Graph, community: Ids) -> Graph:
    """The graph without the edges between different communities."""
    source = graph.arc_sources()
    kept = community[source] == community[graph.targets]
    offsets = np.zeros(graph.offsets.size, np.int64)
    np.cumsum(np.bincount(source[kept], minlength=graph.num_vertices), out=offsets[1:])
    inner = int(np.count_nonzero(kept))
    loops = int(np.count_nonzero(source[kept] == graph.targets[kept]))
    return Graph(
        offsets, graph.targets[kept], graph.directed, inner if graph.directed else (inner + loops) // 2,
        None if graph.weights is None else graph.weights[kept], graph.labels,
    )  # fmt: skip


def chosen_epsilon(graph: Graph, options: LandscapeOptions) -> float:
    """Error to sample with; 0 for exact values."""
    if options.epsilon is not None:
        return options.epsilon
    costly = float(graph.num_vertices) * graph.num_arcs > AFFORDABLE
    return DEFAULT_EPSILON if costly and not options.weighted else 0.0


def _of_graph(
    graph: Graph, options: LandscapeOptions, threads: int | None, report: Note
) -> tuple[Centrality, dict[str, Any]]:
    """Betweenness in the whole graph, and how it was found."""
    epsilon = chosen_epsilon(graph, options)
    if not epsilon:
        return _exact(graph, options, threads, report, "betweenness"), {"betweenness": "exact"}
    found = estimate_betweenness(
        graph, epsilon, DELTA, seed=options.seed, threads=threads,
        progress=lambda done, most: report(f"betweenness: {done:,} of at most {most:,} samples"),
    )  # fmt: skip
    n = graph.num_vertices
    pairs = n * (n - 1) / (1.0 if graph.directed else 2.0)
    values = Centrality(
        found.score * pairs, np.maximum(found.score - found.below, 0.0) * pairs, (found.score + found.above) * pairs
    )
    return values, {"betweenness": "sampled", "epsilon": epsilon, "delta": DELTA, "samples": found.samples}


def _exact(graph: Graph, options: LandscapeOptions, threads: int | None, report: Note, title: str) -> Centrality:
    def progress(done: float, todo: float) -> None:
        report(f"{title}: {100.0 * done / todo if todo else 100.0:.1f} % of the arc visits")

    return Centrality(betweenness(graph, weighted=options.weighted, threads=threads, progress=progress).scores)
