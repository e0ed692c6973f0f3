"""Distances as networkx asks for them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.graph import Graph
from goffish.networkx_backend.graph import EXACT, BackendGraph, is_real

Verdict = bool | str
Lengths = dict[Any, Any]


def single_source_shortest_path_length(G: BackendGraph, source: Any, cutoff: float | None = None) -> Lengths:
    """As `networkx.single_source_shortest_path_length`: ascending lengths, ties in the order of the nodes."""
    return _lengths(G, G.plain, known(G, source), cutoff, None)


def all_pairs_shortest_path_length(G: BackendGraph, cutoff: float | None = None) -> Iterator[tuple[Any, Lengths]]:
    """As `networkx.all_pairs_shortest_path_length`."""
    graph = G.plain
    return ((v, _lengths(G, graph, i, cutoff, None)) for i, v in enumerate(G.nodes))


def single_source_dijkstra_path_length(
    G: BackendGraph, source: Any, cutoff: float | None = None, weight: Hashable = "weight"
) -> Lengths:
    """As `networkx.single_source_dijkstra_path_length`: ascending lengths, ties in the order of the nodes."""
    return _lengths(G, measured(G, weight), known(G, source), cutoff, weight)


def all_pairs_dijkstra_path_length(
    G: BackendGraph, cutoff: float | None = None, weight: Hashable = "weight"
) -> Iterator[tuple[Any, Lengths]]:
    """As `networkx.all_pairs_dijkstra_path_length`."""
    graph = measured(G, weight)
    return ((v, _lengths(G, graph, i, cutoff, weight)) for i, v in enumerate(G.nodes))


def shortest_path_length(
    G: BackendGraph, source: Any = None, target: Any = None, weight: Hashable = None, method: str = "dijkstra"
) -> Any:
    """As `networkx.shortest_path_length`, with either, both or neither of the ends given."""
    graph = measured(G, weight)
    if source is None and target is None:
        return ((v, _lengths(G, graph, i, None, weight)) for i, v in enumerate(G.nodes))
    if source is None:
        return _lengths(G, graph.reverse, known(G, target), None, weight)
    if target is None:
        return _lengths(G, graph, known(G, source), None, weight)
    if weight is None:
        known(G, source), known(G, target)
    return _length(G, graph, source, target, weight)


def dijkstra_path_length(G: BackendGraph, source: Any, target: Any, weight: Hashable = "weight") -> Any:
    """As `networkx.dijkstra_path_length`."""
    return _length(G, measured(G, weight), source, target, weight)


def shortest_path(
    G: BackendGraph, source: Any = None, target: Any = None, weight: Hashable = None, method: str = "dijkstra"
) -> list[Any]:
    """As `networkx.shortest_path` of two nodes; of several shortest paths it may be another one."""
    return bidirectional_dijkstra(G, source, target, weight)[1]


def dijkstra_path(G: BackendGraph, source: Any, target: Any, weight: Hashable = "weight") -> list[Any]:
    """As `networkx.dijkstra_path`; of several shortest paths it may be another one."""
    return _path(G, measured(G, weight), source, target)[0]


def bidirectional_shortest_path(G: BackendGraph, source: Any, target: Any) -> list[Any]:
    """As `networkx.bidirectional_shortest_path`; of several shortest paths it may be another one."""
    for node, end in ((source, "Source"), (target, "Target")):
        if node not in G:
            import networkx as nx

            raise nx.NodeNotFound(f"{end} {node} is not in G")
    return _path(G, G.plain, source, target)[0]


def bidirectional_dijkstra(
    G: BackendGraph, source: Any, target: Any, weight: Hashable = "weight"
) -> tuple[Any, list[Any]]:
    """As `networkx.bidirectional_dijkstra`; of several shortest paths it may be another one."""
    known(G, source), known(G, target)
    path, length = _path(G, measured(G, weight), source, target)
    return (int(length) if _whole(G, weight) or source == target else length), path


def astar_path(
    G: BackendGraph, source: Any, target: Any, heuristic: Any = None, weight: Hashable = "weight", *, cutoff: Any = None
) -> list[Any]:
    """As `networkx.astar_path` without a heuristic; of several shortest paths it may be another one."""
    known(G, source), known(G, target)
    return _path(G, measured(G, weight), source, target)[0]


def astar_path_length(
    G: BackendGraph, source: Any, target: Any, heuristic: Any = None, weight: Hashable = "weight", *, cutoff: Any = None
) -> Any:
    """As `networkx.astar_path_length` without a heuristic."""
    known(G, source), known(G, target)
    return _length(G, measured(G, weight), source, target, weight)


def shortest_simple_paths(G: BackendGraph, source: Any, target: Any, weight: Hashable = None) -> Iterator[list[Any]]:
    """As `networkx.shortest_simple_paths`; paths of equal lengths may be in another order."""
    # Weights are checked before the first path is asked for: later, networkx could not take over.
    return _by_length(G, measured(G, weight), source, target)


def _by_length(G: BackendGraph, graph: Graph, source: Any, target: Any) -> Iterator[list[Any]]:
    from goffish.algorithms.paths.pairs import shortest_paths

    start, end = known(G, source), known(G, target)
    _path(G, graph, source, target)
    given, most = 0, 8
    while True:
        table = shortest_paths(graph, start, end, most).table
        borders = np.flatnonzero(np.diff(table["path"].to_numpy(), prepend=0))
        rows = [part.tolist() for part in np.split(table["vertex"].to_numpy(), borders[1:])]
        for row in rows[given:]:
            yield [G.nodes[v] for v in row]
        if len(rows) < most:
            return
        given, most = len(rows), 2 * most


def has_path(G: BackendGraph, source: Any, target: Any) -> bool:
    """As `networkx.has_path`."""
    start, end = known(G, source), known(G, target)
    if not G.is_directed():
        return bool(G.component[start] == G.component[end])
    from goffish.algorithms.paths.pairs import path_between

    return bool(path_between(G.plain, start, end).size)


def descendants_at_distance(G: BackendGraph, source: Any, distance: int) -> set[Any]:
    """As `networkx.descendants_at_distance`."""
    if source not in G:
        import networkx as nx

        raise nx.NetworkXError(f"node {source} is not in the graph")
    depth, reached = _search(G.plain, G.position[source])
    members = np.flatnonzero(reached & (depth == distance))
    return set(map(G.nodes.__getitem__, members.tolist()))


def can_search(G: Any, source: Any = None, cutoff: Any = None) -> Verdict:
    """Whether lengths counted in edges are answered."""
    return True if cutoff is None or is_real(cutoff) else "cutoff that is not a real number"


def can_search_all(G: Any, cutoff: Any = None) -> Verdict:
    """Whether all lengths counted in edges are answered."""
    return can_search(G, None, cutoff)


def can_measure(G: Any, source: Any = None, cutoff: Any = None, weight: Any = "weight") -> Verdict:
    """Whether weighted lengths are answered."""
    return "weights given by a function" if callable(weight) else can_search(G, source, cutoff)


def can_measure_all(G: Any, cutoff: Any = None, weight: Any = "weight") -> Verdict:
    """Whether all weighted lengths are answered."""
    return can_measure(G, None, cutoff, weight)


def can_connect(
    G: Any, source: Any = None, target: Any = None, weight: Any = None, method: Any = "dijkstra"
) -> Verdict:
    """Whether a path between two nodes is answered."""
    if source is None or target is None:
        return "paths from or to all nodes"
    return can_choose(G, source, target, weight, method)


def can_connect_by_weight(G: Any, source: Any, target: Any, weight: Any = "weight") -> Verdict:
    """Whether a path between two nodes, or its length, is answered."""
    return can_measure(G, source, None, weight)


def can_guide(
    G: Any, source: Any, target: Any, heuristic: Any = None, weight: Any = "weight", *, cutoff: Any = None
) -> Verdict:
    """Whether a path by A* is answered."""
    if heuristic is not None or cutoff is not None:
        return "heuristic or cutoff"
    return can_measure(G, source, None, weight)


def can_list(G: Any, source: Any, target: Any, weight: Any = None) -> Verdict:
    """Whether all paths between two nodes are answered."""
    return can_measure(G, source, None, weight)


def can_choose(G: Any, source: Any = None, target: Any = None, weight: Any = None, method: Any = "dijkstra") -> Verdict:
    """Whether these lengths are answered."""
    if method != "dijkstra":
        return "methods other than dijkstra"
    return can_measure(G, source, None, weight)


def can_reach(G: Any, source: Any, distance: Any) -> Verdict:
    """Whether the nodes at this distance are answered."""
    return True if is_real(distance) else "distance that is not a real number"


def known(G: BackendGraph, node: Any) -> int:
    """The position of a node; an unknown one raises `networkx.NodeNotFound`."""
    if node not in G:
        import networkx as nx

        raise nx.NodeNotFound(f"node {node} is not in the graph")
    return G.position[node]


def _whole(G: BackendGraph, weight: Hashable) -> bool:
    return weight is None or G.weights(weight).whole


def measured(G: BackendGraph, weight: Hashable) -> Graph:
    """The graph to measure lengths in; sums of its weights are exact where networkx's are."""
    graph = G.weighted(weight, "min")
    if graph.weights is not None and _whole(G, weight) and graph.weights.sum() > EXACT:
        raise NotImplementedError(f"the weights in the edge attribute {weight!r} add up beyond exact numbers")
    return graph


def _search(graph: Graph, start: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Distance of every vertex, shape (n,), and whether it can be reached."""
    from goffish.algorithms.paths.in_memory import distances_from, levels_from

    if graph.weights is None:
        depth, _ = levels_from(graph, start)
        return depth, depth >= 0
    distance, _ = distances_from(graph, start)
    return distance, np.isfinite(distance)


def _path(G: BackendGraph, graph: Graph, source: Any, target: Any) -> tuple[list[Any], float]:
    """Nodes of a shortest path, and its length."""
    from goffish.algorithms.paths.pairs import along, path_between

    start, end = known(G, source), G.position.get(target, -1)
    path = path_between(graph, start, end) if end >= 0 else np.empty(0, np.int64)
    if not path.size:
        import networkx as nx

        raise nx.NetworkXNoPath(f"no path from {source} to {target}")
    return list(map(G.nodes.__getitem__, path.tolist())), float(along(graph, path)[-1])


def _length(G: BackendGraph, graph: Graph, source: Any, target: Any, weight: Hashable) -> Any:
    """Length of a shortest path; networkx notices only in the end that there is no such target."""
    if _whole(G, weight):
        return int(_path(G, graph, source, target)[1])
    # Sums of fractions are rounded as they are in one search from the source.
    start, end = known(G, source), G.position.get(target, -1)
    distance, reached = _search(graph, start)
    if end < 0 or not reached[end]:
        import networkx as nx

        raise nx.NetworkXNoPath(f"no path from {source} to {target}")
    return 0 if start == end else float(distance[end])


def _lengths(G: BackendGraph, graph: Graph, start: int, cutoff: float | None, weight: Hashable) -> Lengths:
    distance, reached = _search(graph, start)
    if cutoff is not None:
        # Counting edges, networkx takes one step more while it is below the cutoff.
        near = distance - 1 < cutoff if weight is None else ~(distance > cutoff)
        reached &= near
        reached[start] = True
    found = np.flatnonzero(reached)
    found = found[np.argsort(distance[found], kind="stable")]
    values = distance[found]
    lengths = dict(
        zip(
            map(G.nodes.__getitem__, found.tolist()),
            (values.astype(np.int64) if _whole(G, weight) else values).tolist(),
            strict=True,
        )
    )
    lengths[G.nodes[start]] = 0  # the integer also among floats, as in networkx
    return lengths
