"""Matches of patterns in a stream of labeled edges: ``python benchmarks/subgraph_matching.py``.

Vertices have one of some labels, and their numbers of edges follow a power law. A part of the edges is there when the
query begins; the others come one after the other, and with ``--deletions`` some of them go. Patterns are a path, a
triangle, a square, a star and a clique, with labels that are drawn at random. Times are those of `LiveGraph.feed`
without and with the query; its own time is the difference.

With ``--baseline PROGRAM``, a program for continuous subgraph matching with the options of RapidsAtHKUST's (``-q``,
``-d``, ``-u``, ``-a``) gets the same graph, updates and patterns. Its time begins when it has read them, as numbers.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import _harness
import numpy as np
import pyarrow as pa

import goffish as gf

_SHAPES = {
    "path": [(0, 1), (1, 2), (2, 3), (3, 4)], "triangle": [(0, 1), (1, 2), (2, 0)],
    "square": [(0, 1), (1, 2), (2, 3), (3, 0)], "star": [(0, 1), (0, 2), (0, 3)],
    "clique": [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)],
}  # fmt: skip
_TABLE, _SINGLE, _REPEATS = 10_000, 2000, 5


def labels_of(rng: np.random.Generator, shape: str, count: int) -> list[int]:
    """Return a label for each vertex of a pattern."""
    vertices = 1 + max(max(pair) for pair in _SHAPES[shape])
    return list(map(int, rng.integers(0, count, vertices)))


def query_of(shape: str, labels: list[int]) -> str:
    """Return a query of a pattern."""
    seen = set[int]()

    def node(vertex: int) -> str:
        given = "" if vertex in seen else f":{{label = {labels[vertex]}}}"
        seen.add(vertex)
        return f"(n{vertex}{given})"

    return f"DETECT Motif({', '.join(f'{node(a)}--{node(b)}' for a, b in _SHAPES[shape])}) AS found"


def graph_of(rng: np.random.Generator, vertices: int, edges: int, labels: int) -> tuple[Any, Any, Any]:
    """Return labels of vertices, and different edges: ends of low numbers have many."""
    ends = np.unique((vertices * rng.power(0.6, (2 * edges, 2))).astype(np.int64), axis=0)
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    ends = np.unique(ends, axis=0)
    ends = ends[rng.permutation(len(ends))][:edges]
    places = rng.permutation(vertices)
    return rng.integers(0, labels, vertices), places[ends[:, 0]], places[ends[:, 1]]


def table(begin: float, op: Any, ids: Any, sources: Any, targets: Any) -> pa.Table:
    """Return records of edges, a thousand a second."""
    times = begin + np.arange(len(ids)) / 1000
    return pa.table({"t": times, "op": pa.array(op), "id": ids, "src": sources, "dst": targets})


def updates_of(rng: np.random.Generator, first: int, sources: Any, targets: Any, deletions: float) -> pa.Table:
    """Return additions, and in between removals of edges that were there before."""
    order = np.arange(first, len(sources))
    ops, ids = np.full(len(order), "+e"), order.copy()
    gone = rng.random(len(order)) < deletions
    chosen = rng.permutation(first)[: int(gone.sum())]
    gone[np.flatnonzero(gone)[len(chosen) :]] = False
    ops[gone], ids[gone] = "-e", chosen
    return table(1e6, ops.tolist(), ids, sources[ids], targets[ids])


def run(query: str | None, labels: Any, base: pa.Table, updates: pa.Table) -> tuple[float, int, list[float]]:
    """Return the seconds that updates take in tables, the number of events, and those of single updates."""
    live = gf.stream.LiveGraph(lateness=0, events=1000)
    vertices = np.arange(len(labels))
    live.feed(pa.table({
        "t": vertices / 1e6, "op": pa.array(["+v"] * len(labels)), "id": vertices, "label": labels
    }))  # fmt: skip
    live.feed(base)
    before = 0
    if query is not None:
        live.submit(query)
        before = live._query("found").topic.count
    rest = max(len(updates) - _SINGLE, 0)
    begun = time.perf_counter()
    for first in range(0, rest, _TABLE):
        live.feed(updates.slice(first, min(_TABLE, rest - first)))
    took = time.perf_counter() - begun
    single = []
    for row in updates.slice(rest).to_pylist():
        begun = time.perf_counter()
        live.feed([row])
        single.append(time.perf_counter() - begun)
    return took, 0 if query is None else live._query("found").topic.count - before, single


def symmetries(shape: str, labels: list[int]) -> int:
    """Return in how many ways a pattern is mapped to itself."""
    edges = {frozenset(pair) for pair in _SHAPES[shape]}
    orders = itertools.permutations(range(len(labels)))
    return sum(
        [labels[at] for at in order] == labels and {frozenset(order[at] for at in pair) for pair in edges} == edges
        for order in orders
    )


def baseline(program: str, folder: Path, shape: str, algorithm: str) -> tuple[float, int]:
    """Return the seconds in which another program follows the updates, and the matches that come and go."""
    files = ["-q", folder / f"{shape}.txt", "-d", folder / "graph.txt", "-u", folder / "updates.txt"]
    ended = subprocess.run([program, *files, "-a", algorithm], capture_output=True, text=True, check=True, timeout=600)
    took, unit = re.findall(r"Incremental Matching: ([\d.]+)(us|ms|s)", ended.stdout)[0]
    counts = re.findall(r"(\d+) (?:positive|negative) matches", ended.stdout)
    return float(took) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit], sum(map(int, counts))


def main() -> None:
    """Print updates and matches a second, and the times of single updates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vertices", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.4, help="part of the edges that are updates")
    parser.add_argument("--deletions", type=float, default=0.0, help="part of the updates that are removals")
    parser.add_argument("--shapes", default=",".join(_SHAPES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--baseline", help="path of another program to compare with")
    parser.add_argument("--algorithms", default="graphflow,turboflux,symbi", help="algorithms of that program")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    labels, sources, targets = graph_of(rng, given.vertices, given.edges, given.labels)
    first = int(len(sources) * (1 - given.share))
    base = table(1.0, ["+e"] * first, np.arange(first), sources[:first], targets[:first])
    updates = updates_of(rng, first, sources, targets, given.deletions)
    patterns = {shape: labels_of(rng, shape, given.labels) for shape in given.shapes.split(",")}
    run(None, labels[:10], base.slice(0, 0), updates.slice(0, 0))
    alone = statistics.median(run(None, labels, base, updates)[0] for _ in range(_REPEATS))
    rest = max(len(updates) - _SINGLE, 1)
    rows, others = [], []
    algorithms = given.algorithms.split(",")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder, labels, base, updates, patterns)
        for shape, chosen in patterns.items():
            query = query_of(shape, chosen)
            run(query, labels[:10], base.slice(0, 0), updates.slice(0, 0))
            found = [run(query, labels, base, updates) for _ in range(_REPEATS)]
            took, count, single = statistics.median(one[0] for one in found), *found[0][1:]
            own = max(took - alone, 1e-9)
            rows.append([
                shape, f"{rest / took:,.0f}", f"{rest / own:,.0f}", f"{count:,}", f"{count / took:,.0f}",
                f"{1e6 * statistics.median(single):,.0f}", f"{1e3 * max(single):,.1f}",
            ])  # fmt: skip
            if given.baseline is not None:
                runs = {
                    one: [baseline(given.baseline, folder, shape, one) for _ in range(_REPEATS)] for one in algorithms
                }
                counts = {matches for each in runs.values() for _, matches in each}
                if counts != {count * symmetries(shape, chosen)}:
                    raise SystemExit(f"{shape}: {count:,} events x {symmetries(shape, chosen)}, but {counts} matches")
                seconds = {one: statistics.median(took for took, _ in each) for one, each in runs.items()}
                scaled = len(updates) / rest  # as single updates are not among ours
                best = min(seconds.values())
                others.append([
                    shape, *(f"{1e3 * one:.1f}" for one in (took * scaled, own * scaled, *seconds.values())),
                    f"{best / (took * scaled):.2f}x", f"{best / (own * scaled):.2f}x",
                ])  # fmt: skip
    print(_harness.machine_line())
    print(f"{len(labels):,} vertices, {len(sources):,} edges, {given.labels} labels, {rest:,} updates")
    header = ["pattern", "updates/s", "updates/s, query alone", "events", "events/s", "one, median, µs", "slowest, ms"]
    _harness.print_table(header, rows)
    if others:
        print("\nMilliseconds for all updates; as many matches were found by all:\n")
        header = [
            "pattern",
            "goffish",
            "goffish, query alone",
            *algorithms,
            "best beside goffish",
            "beside query alone",
        ]
        _harness.print_table(header, others)


def write(folder: Path, labels: Any, base: pa.Table, updates: pa.Table, patterns: dict[str, list[int]]) -> None:
    """Write files in the format that programs for continuous subgraph matching have in common."""
    vertices = [f"v {at} {label}\n" for at, label in enumerate(labels.tolist())]

    def edges(given: pa.Table, beginning: str) -> list[str]:
        rows = zip(*(given[name].to_pylist() for name in ("op", "src", "dst")), strict=True)
        return [f"{'-' * (op == '-e')}{beginning}{a} {b} 0\n" for op, a, b in rows]

    (folder / "graph.txt").write_text("".join([*vertices, *edges(base, "e ")]))
    (folder / "updates.txt").write_text("".join(edges(updates, "e ")))
    for shape, chosen in patterns.items():
        lines = [f"v {at} {label}\n" for at, label in enumerate(chosen)]
        lines += [f"e {a} {b} 0\n" for a, b in _SHAPES[shape]]
        (folder / f"{shape}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
