"""Live graphs and continuous queries: ``python benchmarks/live_graphs.py``.

A graph of 20,000 vertices with a power law and 100,000 edges is read, then changed by as many additions as removals, in
tables of 10,000 records; then single records are fed, until the callback has returned. The answers of one query are
followed. The baseline computes them anew with igraph, on its own graph, which is not changed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import _harness
import igraph
import numpy as np
import pyarrow as pa

import goffish as gf

_VERTICES, _EDGES, _TABLE, _SINGLE = 20_000, 100_000, 10_000, 5_000
_QUERIES: dict[str, tuple[str | None, Callable[[Any], Any] | None]] = {
    "none": (None, None),
    "Match": ("DETECT Match(edge:{id < 1000}) AS q", None),
    "Degree": ("DETECT Degree(degree >= 100, direction: out) AS q", lambda graph: graph.degree(mode="out")),
    "Degree, distinct": ("DETECT Degree(degree >= 100, direction: out, distinct: true) AS q", None),
    "Reach": (
        "DETECT Reach(source:{id = 5}, sink:{id < 100}) AS q", lambda graph: graph.distances(5, list(range(100)))
    ),
    "Reach, window": ("DETECT Reach(source:{id = 5}, sink:{id < 100}) WINDOW 60s AS q", None),
    "Neighbourhood": (
        "DETECT Neighbourhood(center:{id = 5}, hops: 2) AS q", lambda graph: graph.neighborhood(5, order=2)
    ),
    "Component": ("DETECT Component() AS q", lambda graph: graph.connected_components(mode="weak")),
    "Cluster": ("DETECT Cluster(size > 10, edges > 20) AS q", None),
}  # fmt: skip


def ends(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Return random ends of edges; the sources follow a power law."""
    return (_VERTICES * rng.power(0.4, count)).astype(np.int64), rng.integers(0, _VERTICES, count)


def table(begin: float, ops: Any, ids: Any, sources: Any, targets: Any) -> pa.Table:
    """Return records of edges, a thousand a second."""
    times = begin + np.arange(len(ids)) / 1000
    return pa.table({"t": times, "op": pa.array(ops).dictionary_encode(), "id": ids, "src": sources, "dst": targets})


def rate(live: gf.stream.LiveGraph, records: pa.Table) -> float:
    """Feed records, and return how many there were a second."""
    begun = time.perf_counter()
    for first in range(0, len(records), _TABLE):
        live.feed(records.slice(first, _TABLE))
    return len(records) / (time.perf_counter() - begun)


def run(query: str | None, seed: int) -> tuple[float, float, list[float]]:
    """Return additions and mixed updates a second, and the seconds of single records."""
    rng = np.random.default_rng(seed)
    live = gf.stream.LiveGraph(lateness=0)
    if query is not None:
        live.submit(query, on_events=lambda topic, events: None)
    sources, targets = ends(rng, _EDGES)
    live.feed(table(0, ["+e"], np.arange(1), sources[:1], targets[:1]))
    added = rate(live, table(1, ["+e"] * _EDGES, np.arange(_EDGES), sources, targets))
    ids, ops = np.empty(_EDGES, np.int64), np.where(np.arange(_EDGES) % 2, "-e", "+e")
    ids[::2], ids[1::2] = _EDGES + np.arange(_EDGES // 2), rng.permutation(_EDGES)[: _EDGES // 2]
    more = ends(rng, _EDGES)
    known = ids < _EDGES
    for column, old in zip(more, (sources, targets), strict=True):
        column[known] = old[ids[known]]
    mixed = rate(live, table(200, ops, ids, *more))
    seconds = []
    for number, (u, v) in enumerate(zip(*(one.tolist() for one in ends(rng, _SINGLE)), strict=True)):
        record: dict[str, Any] = {"t": 1000 + number, "op": "+e", "id": 10**6 + number, "src": u, "dst": v}
        if number % 2:
            record = {"t": 1000 + number, "op": "-e", "id": 10**6 + number - 1}
        begun = time.perf_counter()
        live.feed([record])
        seconds.append(time.perf_counter() - begun)
    return added, mixed, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(_harness.machine_line(("igraph", "pyarrow")))
    print()
    rng = np.random.default_rng(0)
    graph = igraph.Graph(_VERTICES, np.stack(ends(rng, _EDGES), axis=1), directed=True)
    rows = []
    for name, (query, compute) in _QUERIES.items():
        run(query, 0)  # compiles
        found = [run(query, seed) for seed in range(repeats)]
        added, mixed = (float(np.median([one[at] for one in found])) for at in (0, 1))
        median, worst = (1e6 * float(np.median([np.quantile(one[2], part) for one in found])) for part in (0.5, 0.99))
        baseline, ratio = "", ""
        if compute is not None:
            anew = _harness.measure(partial(compute, graph)).median
            baseline, ratio = f"{1e3 * anew:.2f}", f"{anew * mixed:,.0f}x"
        rows.append(
            [name, f"{added / 1e3:,.0f}", f"{mixed / 1e3:,.0f}", f"{median:.0f}", f"{worst:.0f}", baseline, ratio]
        )
    header = ["query", "additions, 1,000/s", "mixed, 1,000/s", "one record, p50, µs", "p99, µs", "igraph anew, ms"]
    _harness.print_table([*header, "beside one mixed update"], rows)


if __name__ == "__main__":
    main()
