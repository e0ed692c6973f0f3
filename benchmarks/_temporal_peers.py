"""Peers for questions about time-stamped edges, each in a process of its own and in the environment it lives in.

As a module: `start` gives a `Peer` that has loaded the events, or says why there is none. As a script it is that
process: it needs NumPy, PyArrow and the one peer only, reads a question per line and answers with a line, both JSON.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What each peer can be asked.
QUESTIONS = {
    "raphtory": ("earliest-arrival", "latest-departure", "fewest-hops", "triangles", "components", "pagerank"),
    "networkx-temporal": ("components", "pagerank"),
}
#: Packages that were looked at and cannot be asked, and why.
OTHERS = {
    "tglib": "the temporal graph library is not on PyPI; the package of that name there is a client for Telegram",
    "pathpy": "its documented functions name no best time-respecting path from one vertex; not tried",
    "teneto": "not tried; a dense array of vertices x vertices x times would take 200 GB for CollegeMsg",
}
#: Events that a peer written in Python is given at most.
MOST_EVENTS = {"networkx-temporal": 1_000_000}
#: Raphtory's triangles in its order, by our names: its i, j, k are a, b, c.
TRIANGLES = ("ab cb ac", "ab cb ca", "ab bc ac", "ab bc ca", "ab ca bc", "ab ca cb", "ab ac bc", "ab ac cb")
#: Updates of PageRank at most, and the change (L1) after which it stops: the same for all.
ITERATIONS, TOLERANCE, DAMPING = 200, 1e-7, 0.85

Answer = dict[str, NDArray[Any]]


class Peer:
    """A peer's process, which has loaded the events."""

    def __init__(self, name: str, python: str, events: Path) -> None:
        self._answer = events.with_name(f"{name}-answer.npz")
        self._log = events.with_name(f"{name}.log")
        self._command = [python, __file__, name, str(events), str(self._answer)]
        self.name = name
        self._start()

    def _start(self) -> None:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        told = self._read(None)
        self.version, self.load_seconds = str(told["version"]), float(told["seconds"])

    def _read(self, limit: float | None) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], limit)[0]:
            raise TimeoutError(f"no answer within {limit:.0f} s")
        line = out.readline()
        if not line:
            self._process.wait()
            said = self._log.read_text().strip().splitlines()
            raise RuntimeError(said[-1] if said else f"ended with code {self._process.returncode}")
        told: dict[str, Any] = json.loads(line)
        return told

    def ask(self, question: str, limit: float, **options: Any) -> dict[str, float]:
        """Wall ``seconds`` and ``cpu`` seconds of one call, and ``prepared``: those of what was made for it once.

        Raises
        ------
        TimeoutError, RuntimeError
            No answer within `limit` seconds, or the process ended; it has been started anew.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"question": question, **options}) + "\n")
        self._process.stdin.flush()
        try:
            return self._read(limit)
        except (TimeoutError, RuntimeError):
            self._process.kill()
            self._process.wait()
            self._start()
            raise

    def answer(self) -> Answer:
        """What the last question was answered with."""
        with np.load(self._answer) as columns:
            return dict(columns)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def start(name: str, python: str, events: Path, count: int) -> Peer | str:
    """A peer that has loaded the events, or why it takes no part."""
    if count > MOST_EVENTS.get(name, count):
        return f"more than {MOST_EVENTS[name]:,} events"
    try:
        return Peer(name, python, events)
    except (RuntimeError, OSError) as error:
        return str(error)


class _Raphtory:
    """One graph of all events; windows are views of it."""

    def __init__(self, events: Answer) -> None:
        self._events, self._backwards = events, None
        self._graph = self._load("source", "target", events["time"])

    def _load(self, source: str, target: str, when: NDArray[np.int64]) -> Any:
        import pyarrow as pa
        from raphtory import Graph

        graph = Graph()
        table = pa.table({"time": when, "src": self._events[source], "dst": self._events[target]})
        graph.load_edges(table, time="time", src="src", dst="dst")
        return graph

    def prepare(self, asked: dict[str, Any]) -> None:
        """Latest departure is earliest arrival with all edges turned round and the time running backwards."""
        if asked["question"] == "latest-departure" and self._backwards is None:
            self._backwards = self._load("target", "source", -self._events["time"])

    def call(self, asked: dict[str, Any]) -> Any:
        from raphtory import algorithms

        question, graph = asked["question"], self._graph
        if question in ("earliest-arrival", "latest-departure", "fewest-hops"):
            last = question == "latest-departure"
            when = self._events["time"]
            before = int(-when.max() if last else when.min()) - 1
            graph, seed = self._backwards if last else graph, [asked["vertex"]]
            if question != "fewest-hops":
                return algorithms.temporally_reachable_nodes(graph, len(when), before, seed)
            # A vertex is as many edges away as it takes to reach it: one call for every number of them.
            steps = range(1, asked["most"] + 1)
            return [algorithms.temporally_reachable_nodes(graph, most, before, seed) for most in steps]
        if question == "triangles":
            return algorithms.global_temporal_three_node_motif(graph, asked["within"])
        borders = asked["borders"]
        views = [graph.window(borders[i], borders[i + 1]) for i in range(len(borders) - 1)]
        if question == "components":
            return [algorithms.weakly_connected_components(view) for view in views]
        return [algorithms.pagerank(view, ITERATIONS, TOLERANCE, False, DAMPING) for view in views]

    def columns(self, asked: dict[str, Any], found: Any) -> Answer:
        question = asked["question"]
        if question == "triangles":
            return {"count": np.array(found[32:40], np.int64)}
        if question in ("earliest-arrival", "latest-departure"):
            return dict(zip(("vertex", "value"), _first_times(found, asked["vertex"]), strict=True))
        if question == "fewest-hops":
            hops: dict[int, int] = {}
            for most, reached in enumerate(found, start=1):
                for vertex in _first_times(reached, asked["vertex"])[0].tolist():
                    hops.setdefault(vertex, most)
            return {"vertex": np.array(list(hops), np.int64), "value": np.array(list(hops.values()), np.int64)}
        name = "component_id" if question == "components" else "pagerank_score"
        rows = [(i, int(node.id), told[name]) for i, state in enumerate(found) for node, told in state.items()]
        window, vertex, value = zip(*rows, strict=True)
        return {"window": np.array(window), "vertex": np.array(vertex), "value": np.array(value)}


def _first_times(found: Any, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The vertices reached but the seed, and when each was reached first, of Raphtory's histories."""
    vertices, times = [], []
    for node, told in found.items():
        if told["reachable_nodes"] and int(node.id) != seed:
            vertices.append(int(node.id))
            times.append(min(moment["0"] for moment in told["reachable_nodes"]))
    return np.array(vertices, np.int64), np.array(times, np.int64)


class _NetworkxTemporal:
    """A temporal multigraph, cut into one snapshot for each window; networkx answers on every snapshot."""

    def __init__(self, events: Answer) -> None:
        import networkx_temporal as tx

        self._events, self._borders, self._snapshots = events, None, []
        self._make = tx.TemporalMultiDiGraph

    def prepare(self, asked: dict[str, Any]) -> None:
        if asked["borders"] == self._borders:
            return
        self._borders = asked["borders"]
        source, target = self._events["source"].tolist(), self._events["target"].tolist()
        window = (np.searchsorted(self._borders, self._events["time"], side="right") - 1).tolist()
        graph = self._make()
        graph.add_edges_from((u, v, {"window": w}) for u, v, w in zip(source, target, window, strict=True))
        self._windows = sorted(set(window))
        self._snapshots = list(graph.slice(attr="window", as_view=False))
        assert len(self._snapshots) == len(self._windows)

    def call(self, asked: dict[str, Any]) -> Any:
        import networkx as nx

        if asked["question"] == "components":
            return [list(nx.weakly_connected_components(graph)) for graph in self._snapshots]
        return [
            # A simple graph, as GoFFish and Raphtory have it: how often an edge occurs in a window does not count.
            nx.pagerank(nx.DiGraph(graph), DAMPING, max_iter=ITERATIONS, tol=TOLERANCE / len(graph), weight=None)
            for graph in self._snapshots
        ]

    def columns(self, asked: dict[str, Any], found: Any) -> Answer:
        if asked["question"] == "components":
            found = [{v: i for i, members in enumerate(sets) for v in members} for sets in found]
        rows = [(w, v, value) for w, of in zip(self._windows, found, strict=True) for v, value in of.items()]
        window, vertex, value = zip(*rows, strict=True)
        return {"window": np.array(window), "vertex": np.array(vertex), "value": np.array(value)}


_CLASSES: dict[str, Callable[[Answer], Any]] = {"raphtory": _Raphtory, "networkx-temporal": _NetworkxTemporal}


def _serve(name: str, events: Path, answer: Path) -> None:
    """Load, say so, and answer until the questions end. What the peer itself prints goes to the log."""
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with np.load(events) as columns:
        loaded = dict(columns)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{name} is not installed in {Path(sys.prefix).name}")
    begun = time.perf_counter()
    peer = _CLASSES[name](loaded)
    told.write(json.dumps({"version": version, "seconds": time.perf_counter() - begun}) + "\n")
    for line in sys.stdin:
        asked = json.loads(line)
        begun = time.perf_counter()
        peer.prepare(asked)
        prepared = time.perf_counter() - begun
        cpu, wall = time.process_time(), time.perf_counter()
        found = peer.call(asked)
        seconds = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "prepared": prepared}
        if asked.get("tell"):
            np.savez(answer, **peer.columns(asked, found))
        told.write(json.dumps(seconds) + "\n")


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
