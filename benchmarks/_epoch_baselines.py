"""The side of igraph, NetworKit and Raphtory in ``live_epochs.py``: a program for a Python that has them.

Reads a file of arrays that it is given, and prints a line of JSON for each epoch and baseline.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import igraph
import networkit as nk
import numpy as np
import pandas as pd
from raphtory import PersistentGraph, algorithms

networkit_events = {
    -1: nk.dynamics.GraphEventType.EDGE_REMOVAL, 1: nk.dynamics.GraphEventType.EDGE_ADDITION,
}  # fmt: skip


def answer(found: Any) -> int:
    """Return the sum of the distances of the vertices that are reached."""
    distances = np.asarray(found, float)
    return int(distances[distances < len(distances)].sum())


def igraph_anew(n: int, u: Any, v: Any, source: int, epochs: list[Any]) -> None:
    graph = igraph.Graph(n, np.stack((u, v), axis=1))
    for share, gone, new in epochs:
        begun = time.perf_counter()
        graph.delete_edges(graph.get_eids(pairs=gone.tolist()))
        graph.add_edges(new.tolist())
        applied = time.perf_counter()
        components = len(graph.connected_components())
        done = time.perf_counter()
        distances = graph.distances(source)[0]
        report("igraph", share, applied - begun, done - applied, time.perf_counter() - done, components, distances)


def networkit_anew(n: int, u: Any, v: Any, source: int, epochs: list[Any]) -> None:
    graph = built(n, u, v)
    for share, gone, new in epochs:
        begun = time.perf_counter()
        for one, other in gone.tolist():
            graph.removeEdge(one, other)
        for one, other in new.tolist():
            graph.addEdge(one, other)
        applied = time.perf_counter()
        components = nk.components.ConnectedComponents(graph).run().numberOfComponents()
        done = time.perf_counter()
        distances = nk.distance.BFS(graph, source, storePaths=False).run().getDistances()
        report("NetworKit", share, applied - begun, done - applied, time.perf_counter() - done, components, distances)


def networkit_dynamic(n: int, u: Any, v: Any, source: int, epochs: list[Any]) -> None:
    graph, other_graph = built(n, u, v), built(n, u, v)
    components, distances = nk.components.DynConnectedComponents(graph), nk.distance.DynBFS(other_graph, source)
    components.run()
    distances.run()
    for share, gone, new in epochs:
        seconds = []
        for changed, algorithm in ((graph, components), (other_graph, distances)):
            begun = time.perf_counter()
            for sign, pairs in ((-1, gone), (1, new)):
                for one, other in pairs.tolist():
                    (changed.addEdge if sign > 0 else changed.removeEdge)(one, other)
                    algorithm.update(nk.dynamics.GraphEvent(networkit_events[sign], one, other, 1.0))
            seconds.append(time.perf_counter() - begun)
        report("NetworKit, dynamic", share, 0, *seconds, components.numberOfComponents(), distances.getDistances())


def raphtory_anew(n: int, u: Any, v: Any, source: int, epochs: list[Any]) -> None:
    """Components only: reading the paths that it returns for distances ends in an error of its own."""
    graph = PersistentGraph()
    graph.load_nodes(pd.DataFrame({"t": np.zeros(n, np.int64), "id": np.arange(n)}), time="t", id="id")
    graph.load_edges(edges(0, np.stack((u, v), axis=1)), time="t", src="u", dst="v")
    for at, (share, gone, new) in enumerate(epochs, 1):
        begun = time.perf_counter()
        graph.load_edge_deletions(edges(at, gone), time="t", src="u", dst="v")
        graph.load_edges(edges(at, new), time="t", src="u", dst="v")
        applied = time.perf_counter()
        found = algorithms.weakly_connected_components(graph.latest())
        done = time.perf_counter()
        report("Raphtory", share, applied - begun, done - applied, 0, len(found.groups(["component_id"])), None)


def networkit_betweenness(n: int, u: Any, v: Any, epochs: list[Any]) -> None:
    """One edge is removed, or added, at a time: that is what `update` takes."""
    graph = built(n, u, v)
    begun = time.perf_counter()
    found = nk.centrality.DynApproxBetweenness(graph, 0.05, 0.1)
    found.run()
    print(json.dumps({"name": "first", "betweenness": time.perf_counter() - begun}))
    for share, *changes in epochs:
        begun = time.perf_counter()
        for sign, pairs in zip((-1, 1), changes, strict=True):
            for one, other in pairs.tolist():
                (graph.addEdge if sign > 0 else graph.removeEdge)(one, other)
                found.update(nk.dynamics.GraphEvent(networkit_events[sign], one, other, 1.0))
        row = {"name": "NetworKit", "share": share, "betweenness": time.perf_counter() - begun}
        print(json.dumps(row | {"answers": found.scores()}))


def edges(time: int, pairs: Any) -> pd.DataFrame:
    return pd.DataFrame({"t": np.full(len(pairs), time), "u": pairs[:, 0], "v": pairs[:, 1]})


def built(n: int, u: Any, v: Any) -> Any:
    return nk.GraphFromCoo((np.ones(len(u)), (u, v)), n=n, directed=False)


def report(name: str, share: float, *values: Any) -> None:
    applied, components_s, distances_s, components, distances = values
    row = {"name": name, "share": share, "apply": applied, "components": components_s, "bfs": distances_s}
    print(json.dumps(row | {"answers": [components, None if distances is None else answer(distances)]}), flush=True)


def main() -> None:
    nk.setNumberOfThreads(1)
    data = np.load(sys.argv[1])
    given = data["u"], data["v"], int(data["source"])
    count = int(data["epochs"])
    epochs = [(float(data[f"share{at}"]), data[f"gone{at}"], data[f"new{at}"]) for at in range(count)]
    if "betweenness" in sys.argv:
        networkit_betweenness(int(data["n"]), *given[:2], epochs)
        return
    for run in (igraph_anew, networkit_anew, networkit_dynamic, raphtory_anew):
        run(int(data["n"]), *given, epochs)


if __name__ == "__main__":
    main()
