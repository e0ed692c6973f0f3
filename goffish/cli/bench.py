"""``goffish bench``: benchmark GoFFish against installed graph libraries on your graph and machine."""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from goffish.cli.output import print_json, print_table, say
from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.graph import Graph

_WIDTH, _HEIGHT = 400, 300


def run_bench(path: str | None, repeats: int, json: bool) -> None:
    """Time components, PageRank and shortest paths with every installed library, and print the medians."""
    # OpenMP threads of the other libraries would otherwise spin while idle and slow down every measurement.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    graph, name = _graph(path)
    rows = []
    for job, ours, peers in _jobs(graph):
        times = {
            "goffish": _median(ours, repeats),
            **{p: _median(call, repeats) for p, call in peers.items()},
        }
        best = min((t for p, t in times.items() if p != "goffish"), default=None)
        for library, seconds in times.items():
            ratio = seconds / times["goffish"]
            rows.append({"job": job, "library": library, "seconds": seconds, "times_goffish": ratio})
        found = None if best is None else best / times["goffish"]
        rows[-len(times)] |= {
            "best_other_over_goffish": found,
            "best_peer_over_goffish": found,
        }  # the latter: deprecated
    if json:
        print_json({"graph": name, "vertices": graph.num_vertices, "edges": graph.num_edges, "rows": rows})
        return
    table = [(r["job"], r["library"], f"{r['seconds']:.4f}", f"{r['times_goffish']:.2f}") for r in rows]
    print_table(
        f"{name}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges",
        ("algorithm", "library", "median seconds", "ratio to goffish"),
        table,
    )
    missing = [p for p in ("igraph", "networkit", "scipy") if importlib.util.find_spec(p) is None]
    if missing:
        say(f"not measured because not installed: {', '.join(missing)}")


def _graph(path: str | None) -> tuple[Graph, str]:
    from goffish.graph import Graph, from_edges

    if path is None:
        ids = np.arange(_WIDTH * _HEIGHT).reshape(_HEIGHT, _WIDTH)
        src = np.concatenate((ids[:, :-1].ravel(), ids[:-1].ravel()))
        dst = np.concatenate((ids[:, 1:].ravel(), ids[1:].ravel()))
        return from_edges(src, dst), f"grid {_WIDTH} x {_HEIGHT}"
    from goffish.cli.inputs import load

    loaded = load(path, {})
    graph = loaded if isinstance(loaded, Graph) else loaded.to_graph()
    if not graph.num_vertices:
        raise InputError(f"{path}: the graph has no vertices; give a graph with at least one")
    return graph, path


def _median(call: Callable[[], Any], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _jobs(graph: Graph) -> list[tuple[str, Callable[[], Any], dict[str, Callable[[], Any]]]]:
    from goffish.algorithms.components.api import connected_components
    from goffish.algorithms.pagerank.api import pagerank
    from goffish.algorithms.paths.api import sssp

    source = int(graph.out_degrees.argmax())
    label = graph.label_column()[source].as_py()
    components: dict[str, Callable[[], Any]] = {}
    ranks: dict[str, Callable[[], Any]] = {}
    paths: dict[str, Callable[[], Any]] = {}
    if importlib.util.find_spec("scipy"):
        from scipy.sparse import csgraph

        from goffish.graph import to_scipy

        matrix: Any = to_scipy(graph)
        components["scipy"] = lambda: csgraph.connected_components(matrix, directed=graph.directed, connection="weak")
        paths["scipy"] = lambda: csgraph.dijkstra(matrix, directed=True, indices=source)
    if importlib.util.find_spec("igraph"):
        from goffish.graph import to_igraph

        other = to_igraph(graph)
        weights = "weight" if graph.weights is not None else None
        components["igraph"] = lambda: other.connected_components(mode="weak")
        ranks["igraph"] = lambda: other.pagerank(weights=None)
        paths["igraph"] = lambda: other.distances(source, weights=weights)
    if importlib.util.find_spec("networkit"):
        import networkit

        src, dst, weight, _ = graph.edge_columns()
        values = np.ones(src.size) if weight is None else np.ascontiguousarray(weight, np.float64)
        columns = (values, (src.astype(np.uint64), dst.astype(np.uint64)))
        peer = networkit.GraphFromCoo(columns, graph.num_vertices, weight is not None, graph.directed)
        kind = (
            networkit.components.WeaklyConnectedComponents
            if graph.directed
            else networkit.components.ConnectedComponents
        )
        components["networkit"] = lambda: kind(peer).run()
        ranks["networkit"] = lambda: networkit.centrality.PageRank(peer, 0.85, 1e-8).run()
    return [
        ("components", lambda: connected_components(graph), components),
        ("pagerank", lambda: pagerank(graph), ranks),
        ("sssp", lambda: sssp(graph, label), paths),
    ]
