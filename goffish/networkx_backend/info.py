"""What networkx shows about this backend; it is called whenever networkx is imported and must stay light."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

#: Group of entry points: by the name of a function of networkx, one of another package that answers it.
GROUP = "goffish.networkx"
#: Each answered function, with what differs from networkx or is left to it.
FUNCTIONS = {
    "adamic_adar_index": "Graphs without self-loops, with ``ebunch``.",
    "all_pairs_dijkstra_path_length": "Weights must be non-negative numbers; ``weight`` must not be a function.",
    "all_pairs_shortest_path_length": "",
    "articulation_points": "",
    "astar_path": "No ``heuristic``, ``cutoff``; weights as for ``dijkstra_path``. It may be another shortest path.",
    "astar_path_length": "No ``heuristic``, ``cutoff``; weights must be non-negative numbers.",
    "average_clustering": "Undirected simple graphs without ``weight``.",
    "betweenness_centrality": "Weights must be positive numbers; ``weight`` must not be a function.",
    "betweenness_centrality_subset": "Weights must be positive numbers; ``weight`` must not be a function.",
    "biconnected_components": "",
    "bridges": "No ``root``.",
    "bidirectional_dijkstra": "Weights must be non-negative numbers. Of several shortest paths, it may be another one.",
    "bidirectional_shortest_path": "Of several shortest paths, it may be another one.",
    "center": "No ``weight``.",
    "closeness_centrality": "Distances must be non-negative numbers; ``distance`` must not be a function.",
    "clustering": "Undirected simple graphs without ``weight``.",
    "color": "",
    "connected_components": "",
    "core_number": "Undirected graphs.",
    "dag_longest_path": "Weights must be non-negative numbers. Of several longest paths, it may be another one.",
    "dag_longest_path_length": "Weights must be non-negative numbers; ``weight`` must not be a function.",
    "descendants_at_distance": "",
    "diameter": "No ``weight``.",
    "dijkstra_path": "Weights must be non-negative numbers. Of several shortest paths, it may be another one.",
    "dijkstra_path_length": "Weights must be non-negative numbers; ``weight`` must not be a function.",
    "eccentricity": "No ``weight``.",
    "edge_betweenness_centrality": "Weights must be positive numbers; ``weight`` must not be a function.",
    "edge_betweenness_centrality_subset": "All nodes must be targets, weights positive numbers.",
    "eigenvector_centrality": "No ``nstart``. The relative residual is at most ``min(tol, 1e-9)``.",
    "greedy_color": "Undirected graphs; strategy ``largest_first`` without ``interchange``.",
    "harmonic_centrality": "Distances must be non-negative numbers; ``distance`` must not be a function.",
    "has_bridges": "No ``root``.",
    "has_path": "",
    "hits": "No ``nstart``. The relative residual is at most ``min(tol, 1e-9)``.",
    "is_bipartite": "",
    "is_connected": "",
    "is_directed_acyclic_graph": "",
    "is_strongly_connected": "",
    "is_weakly_connected": "",
    "jaccard_coefficient": "Graphs without self-loops, with ``ebunch``.",
    "k_truss": "",
    "katz_centrality": "No ``nstart``; ``alpha`` and ``beta`` must be positive numbers.",
    "is_biconnected": "",
    "label_propagation_communities": "",
    "leiden_communities": "NetworkX has no implementation.",
    "leiden_partitions": "NetworkX has no implementation.",
    "louvain_communities": "For a given seed the partition differs from that of NetworkX, at equal average quality.",
    "louvain_partitions": "For a given seed the partition differs from that of NetworkX, at equal average quality.",
    "maximal_independent_set": "For a given seed the set differs from that of NetworkX.",
    "maximal_matching": "",
    "maximum_flow": "Capacities must be finite numbers; no ``flow_func``. It may be another maximum flow.",
    "maximum_flow_value": "Capacities must be finite numbers; no ``flow_func``.",
    "minimum_cut": "Capacities must be finite numbers; no ``flow_func``.",
    "minimum_cut_value": "Capacities must be finite numbers; no ``flow_func``.",
    "minimum_spanning_edges": "Algorithm ``kruskal``; weights must be numbers up to 2^53.",
    "modularity": "``weight`` must name real numbers.",
    "node_connected_component": "",
    "number_connected_components": "",
    "number_strongly_connected_components": "",
    "number_weakly_connected_components": "",
    "pagerank": "No ``nstart``, ``dangling``. The L1 error is at most ``min(n * tol, 1e-6)`` if `max_iter` is enough.",
    "resource_allocation_index": "Graphs without self-loops, with ``ebunch``.",
    "periphery": "No ``weight``.",
    "preferential_attachment": "With ``ebunch``.",
    "projected_graph": "Undirected simple graphs; each edge has exactly one end among ``nodes``. No ``multigraph``.",
    "radius": "No ``weight``.",
    "sets": "",
    "shortest_path": "Two nodes; weights that are not negative. Of several shortest paths, it may be another one.",
    "shortest_path_length": "Weights must be non-negative numbers; method ``dijkstra``.",
    "shortest_simple_paths": "Weights must be non-negative numbers. Paths of equal length may be in another order.",
    "single_source_dijkstra_path_length": "Weights must be non-negative numbers; ``weight`` must not be a function.",
    "single_source_shortest_path_length": "",
    "strongly_connected_components": "",
    "transitivity": "Undirected simple graphs.",
    "triangles": "Simple graphs.",
    "weighted_projected_graph": "As for ``projected_graph``, without attributes of nodes.",
    "weakly_connected_components": "",
}


def functions_of_others() -> dict[str, EntryPoint]:
    """What other packages add, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in FUNCTIONS}


def get_info() -> dict[str, Any]:
    """The metadata of the entry point ``networkx.backend_info``."""
    return {
        "backend_name": "goffish",
        "project": "goffish",
        "package": "goffish.networkx_backend",
        "url": "https://github.com/goffish/goffish",
        "short_summary": "Compiled multithreaded kernels on columnar graphs.",
        "functions": {
            name: {"additional_docs": text}
            for name, text in (FUNCTIONS | dict.fromkeys(functions_of_others(), "")).items()
        },
    }
