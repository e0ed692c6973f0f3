"""Betweenness on the engine, measured as its paper did and by the checks 15 to 21 of docs/specs/betweenness.md.

Kumbhare, Frincu, Raghavendra, Prasanna, "Efficient Extraction of High Centrality Vertices in Distributed Graphs"
(HPEC 2014): how good the sets found from pivots are, what compression removes, and what each idea (partitions as units,
many sources at a time, compression) saves against a vertex-centric search from one source at a time. Published figures
stand in tables of their own. ``--only PART ...`` runs some of the parts.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from benchmarks._harness import machine_line, print_table

import numpy as np  # isort: skip

import networkx as nx
from numpy.typing import NDArray

from benchmarks import _graphs
from goffish.algorithms.betweenness.accuracy import top_recall
from goffish.algorithms.betweenness.in_memory import betweenness
from goffish.algorithms.betweenness.subgraph.program import PartitionedBetweenness
from goffish.errors import GoffishError
from goffish.gofs import PartitionedGraph
from goffish.gopher import Result, run_program
from goffish.graph import Graph, from_edges
from goffish.graph.io import read
from goffish.partition import partition_graph

K, MAX_CHANGE, WORKERS = 32, 1, 8
BATCHES = (1, 2, 4, 8, 16, 32, 64)
MODES: dict[str, dict[str, Any]] = {
    "MS-BC": {"compression": "none"},
    "MSL-BC as published": {"compression": "drop"},
    "published, pivots of the core": {"compression": "drop", "pivots_from": "core"},
    "MSL-BC, exact": {"compression": "exact"},
}
#: Table II of the paper, Enron: MP in percent of MS-BC, AS-BC and MSL-BC by batch size.
TABLE_II = {
    1: (59.375, 56.25, 56.25), 2: (50, 28.125, 56.25), 4: (43.75, 46.875, 56.25), 8: (68.75, 59.375, 53.125),
    16: (71.875, 75, 71.875), 32: (71.875, 81.25, 68.75), 64: (90.625, 84.375, 75),
}  # fmt: skip


def weighted(src: NDArray[Any], dst: NDArray[Any], n: int, seed: int = 10) -> Graph:
    """Integer weights from 1 to 10, as in the paper."""
    weight = np.random.default_rng(seed).integers(1, 11, src.size).astype(np.float64)
    return from_edges(src, dst, weight, labels=np.arange(n))


def from_file(name: str) -> Graph:
    graph = read(_graphs.DATA / "graphs" / name, directed=False)
    src, dst, _, _ = graph.edge_columns()
    return weighted(src.astype(np.int64), dst.astype(np.int64), graph.num_vertices)


def random_graph(n: int, degree: float, seed: int = 1) -> Graph:
    """G(n, m) with the expected number of edges, loops and parallels left out."""
    ends = np.random.default_rng(seed).integers(0, n, (2, round(n * degree / 2)))
    return weighted(*np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1), n)


def from_networkx(graph: nx.Graph) -> Graph:
    """Weights are drawn; vertices are numbered in the order in which networkx lists them."""
    graph = nx.convert_node_labels_to_integers(graph)
    ends = np.array(graph.edges(), np.int64)
    return weighted(ends[:, 0], ends[:, 1], graph.number_of_nodes())


GRAPHS: dict[str, Callable[[], Graph]] = {
    "email-Enron": lambda: weighted(*_graphs.enron()),
    "road-california-major": lambda: from_file("road-california-major.txt.gz"),
    "PGPgiantcompo": lambda: from_file("pgpgiantcompo.metis.gz"),
    "as-Caida": lambda: weighted(*_graphs.caida()),
    "ER 100K, degree 4": lambda: random_graph(100_000, 4.0),
    "ER 200K, degree 8": lambda: random_graph(200_000, 8.0),
}
#: The small graphs of docs/specs/betweenness.md, section 7, weights 1 to 10.
SMALL: dict[str, Callable[[], Graph]] = {
    "power-law cluster (m=2)": lambda: from_networkx(nx.powerlaw_cluster_graph(2000, 2, 0.1, seed=1)),
    "ER degree 4": lambda: random_graph(2000, 4.0),
    "thinned 40x40 grid": lambda: from_networkx(_thinned_grid()),
}
#: Median MP in percent and mean pivots there, by graph and S, for B = 1, 4, 16, 64 (another draw of the graphs).
EXPECTED = {
    ("power-law cluster (m=2)", 1): ((62.5, 7), (78.1, 41), (84.4, 87), (90.6, 303)),
    ("power-law cluster (m=2)", 3): ((62.5, 20), (81.2, 55), (90.6, 178), (93.8, 572)),
    ("ER degree 4", 1): ((25.0, 12), (43.8, 55), (75.0, 243), (81.2, 593)),
    ("ER degree 4", 3): ((31.2, 29), (65.6, 145), (78.1, 406), (87.5, 1088)),
    ("thinned 40x40 grid", 1): ((62.5, 8), (78.1, 47), (81.2, 102), (90.6, 286)),
    ("thinned 40x40 grid", 3): ((75.0, 24), (78.1, 85), (93.8, 226), (96.9, 495)),
}


def _thinned_grid() -> nx.Graph:
    grid = nx.grid_2d_graph(40, 40)
    edges = list(grid.edges())
    drop = np.random.default_rng(2).random(len(edges)) < 0.15
    grid.remove_edges_from([edge for edge, gone in zip(edges, drop, strict=True) if gone])
    return grid


@cache
def graph_of(name: str) -> Graph:
    return GRAPHS[name]()


def truth_of(graph: Graph, kept_as: str | None = None) -> NDArray[np.float64]:
    """Exact values; those of a large graph are kept, for they take minutes."""
    path = None if kept_as is None else _graphs.CACHE / f"{kept_as}-weighted-betweenness.npy"
    if path is not None and path.exists():
        kept: NDArray[np.float64] = np.load(path)
        return kept
    scores = betweenness(graph).scores
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, scores)
    return scores


def run(layout: PartitionedGraph, threads: int = 2, **options: Any) -> tuple[Result, float]:
    begun = time.perf_counter()
    result = run_program(PartitionedBetweenness(**options), layout, threads=threads)
    return result, time.perf_counter() - begun


def told(result: Result, name: str) -> float:
    assert result.stats is not None
    return float(result.stats.aggregates[name])


def values_of(result: Result) -> NDArray[np.float64]:
    values: NDArray[np.float64] = result.table["betweenness"].to_numpy()
    return values


def extracted(
    layout: PartitionedGraph, truth: NDArray[np.float64], seeds: Iterable[int], batch: int, stable: int, **options: Any
) -> tuple[list[float], list[int]]:
    """MP of the extraction in percent, and pivots used, by order of pivots."""
    precision, used = [], []
    for seed in seeds:
        result, _ = run(
            layout, top=K, batch=batch, max_change=MAX_CHANGE, stable=stable, seed=seed,
            max_concurrent=min(batch, WORKERS), **options,
        )  # fmt: skip
        precision.append(100.0 * top_recall(truth, values_of(result), K))
        used.append(int(told(result, "pivots")))
    return precision, used


def cell(precision: Sequence[float], used: Sequence[int]) -> str:
    return f"{statistics.median(precision):.1f} ({statistics.mean(precision):.1f}) / {statistics.mean(used):.0f}"


def quality(orders: int) -> None:
    """Check 15: the shape of Table II on a real graph."""
    name = "email-Enron"
    graph = graph_of(name)
    truth = truth_of(graph, "enron")
    # The values do not depend on the partitions (check 11), and one partition is the quickest here.
    layout = partition_graph(graph, 1)
    rows, medians = [], dict[str, list[float]]()
    for batch in BATCHES:
        row = [str(batch)]
        for mode, options in {**MODES, "AS-BC": MODES["MS-BC"]}.items():
            # One source at a time finds the same from the same pivots; other orders show how much the order matters.
            seeds = range(100, 100 + orders) if mode == "AS-BC" else range(orders)
            precision, used = extracted(layout, truth, seeds, batch, 1, **options)
            medians.setdefault(mode, []).append(statistics.median(precision))
            row.append(cell(precision, used))
        rows.append(row)
    print(f"\n### Table II's shape: {name}, weights 1 to 10, K = {K}, S = 1, {orders} orders of pivots\n")
    print("MP in percent: median (mean) / mean pivots used.\n")
    print_table(["B", *MODES, "AS-BC, other orders"], rows)
    print("\nPublished (Kumbhare et al. 2014, Table II, Enron with 108,298 edges; pivots not told):\n")
    print_table(
        ["B", "MS-BC", "AS-BC", "MSL-BC"], [[str(b), *(f"{v:g}" for v in values)] for b, values in TABLE_II.items()]
    )
    same = []
    for pivots in (64, 256):
        found = [
            [
                100.0 * top_recall(truth, values_of(run(layout, pivots=pivots, seed=seed, **MODES[mode])[0]), K)
                for seed in range(orders)
            ]
            for mode in ("MS-BC", "MSL-BC, exact", "MSL-BC as published")
        ]  # fmt: skip
        same.append([str(pivots), *(f"{statistics.median(f):.1f} ({statistics.mean(f):.1f})" for f in found)])
    print("\nAt the same pivots, without the stop rule: median (mean) MP in percent.\n")
    print_table(["pivots", "MS-BC", "MSL-BC, exact", "MSL-BC as published"], same)
    rises = np.corrcoef(np.arange(len(BATCHES)), medians["MS-BC"])[0, 1]
    print(f"\nCorrelation of MS-BC's MP with the rank of B: {rises:.2f}")


def expectations(orders: int) -> None:
    """MP and pivots on small graphs, beside the figures expected for graphs of the same kind."""
    rows = []
    for name, maker in SMALL.items():
        graph = maker()
        truth, layout = truth_of(graph), partition_graph(graph, 1)
        for stable in (1, 3):
            cells = [
                cell(*extracted(layout, truth, range(orders), batch, stable, compression="none"))
                for batch in (1, 4, 16, 64)
            ]
            expected = [f"{precision} / {used}" for precision, used in EXPECTED[name, stable]]
            rows += [[name, str(stable), "found", *cells], ["", "", "expected", *expected]]
    print(f"\n### MP in percent, median (mean) / mean pivots, {orders} orders; expected: median / pivots\n")
    print_table(["graph", "S", "", "B = 1", "4", "16", "64"], rows)


def compression() -> None:
    """Checks 16 and 18: edges removed, and the time that this saves with the same answers."""
    rows = []
    for name in GRAPHS:
        layout = partition_graph(graph_of(name), WORKERS)
        pivots = 64 if graph_of(name).num_vertices < 50_000 else 8
        walls: dict[str, list[float]] = {"none": [], "exact": []}
        found: dict[str, Result] = {}
        for _ in range(3):
            for mode, times in walls.items():
                found[mode], seconds = run(layout, pivots=pivots, compression=mode, max_concurrent=WORKERS)
                times.append(seconds)
        plain, short = (statistics.median(times) for times in walls.values())
        removed = told(found["exact"], "removed_edges") / graph_of(name).num_edges
        searches = told(found["exact"], "searches")
        rows.append(
            [
                name, f"{graph_of(name).num_edges:,}", f"{removed:.2%}", str(pivots), f"{searches:.0f}", f"{plain:.2f}",
                f"{short:.2f}", f"{1.0 - short / plain:.1%}",
            ]
        )  # fmt: skip
    print(f"\n### Checks 16, 18: leaf compression ({WORKERS} METIS partitions, median of 3)\n")
    print_table(
        ["graph", "edges", "edges removed", "pivots", "searches left", "s without", "s with", "time saved"], rows
    )
    print("\nPublished: Enron 21.19 %, Pennsylvania roads 13.74 %. Expected for ER: 3.9 % at degree 4, 0.07 % at 8.")


def contributions() -> None:
    """What each idea gives alone and together, against vertex-centric searches from one source at a time."""
    forms: dict[str, tuple[str, int, str]] = {
        "vertex-centric, one source at a time": ("vertex", 1, "none"),
        "the same with leaf compression": ("vertex", 1, "exact"),
        "partitions as units, one source at a time (AS-BC's order)": ("components", 1, "none"),
        "partitions as units, many sources (MS-BC)": ("components", WORKERS, "none"),
        "both (MSL-BC, exact)": ("components", WORKERS, "exact"),
        "both, as published (MSL-BC)": ("components", WORKERS, "drop"),
    }
    for name, pivots in (("email-Enron", 16), ("road-california-major", 2)):
        graph = graph_of(name)
        layouts = {units: partition_graph(graph, WORKERS, units=units) for units in ("vertex", "components")}  # type: ignore[arg-type]
        rows, first = [], None
        for label, (units, concurrent, mode) in forms.items():
            result, seconds = run(layouts[units], pivots=pivots, compression=mode, max_concurrent=concurrent)
            stats = result.stats
            assert stats is not None
            first = first or (stats.supersteps, stats.messages, seconds)
            values = (stats.supersteps, stats.messages, seconds)
            rows.append(
                [
                    label, f"{values[0]:,}", f"{values[1]:,}", f"{values[2]:.2f}",
                    *(f"{a / b:.1f}" for a, b in zip(first, values, strict=True)),
                ]
            )  # fmt: skip
        print(f"\n### Contributions: {name}, weights 1 to 10, {WORKERS} METIS partitions, {pivots} pivots\n")
        print_table(["", "supersteps", "messages", "s", "fewer supersteps", "fewer messages", "times as fast"], rows)


def workers(quick: bool) -> None:
    """Check 17: many sources against one at a time, by number of partitions."""
    name, pivots, rows = "ER 100K, degree 4", 16 if quick else 32, []
    for parts in (1, 2, 4, 8, 16, 32):
        layout = partition_graph(graph_of(name), parts)
        alone, single = run(layout, pivots=pivots, compression="none", max_concurrent=1)
        many, several = run(layout, pivots=pivots, compression="none", max_concurrent=parts)
        assert alone.table.equals(many.table)
        _, both = run(layout, pivots=pivots, compression="exact", max_concurrent=parts)
        rows.append(
            [
                str(parts), f"{told(alone, 'cut_arcs') / told(alone, 'arcs'):.1%}", f"{single:.2f}", f"{several:.2f}",
                f"{both:.2f}", f"{single / several:.2f}", f"{single / both:.2f}",
            ]
        )  # fmt: skip
    print(f"\n### Check 17: {name}, {pivots} pivots, 2 threads whatever the partitions\n")
    print("Published: MS-BC about 1.5x, MSL-BC 2 to 3x on Enron and roads, up to 12x on large random graphs.\n")
    print_table(["partitions", "cut", "one at a time, s", "MS-BC s", "MSL-BC s", "MS-BC gains", "MSL-BC gains"], rows)


def memory() -> None:
    """Check 19: state grows linearly with concurrent sources, and the cap keeps a run within a limit."""
    layout, rows = partition_graph(graph_of("email-Enron"), WORKERS), []
    run(layout, pivots=1, compression="none")
    for concurrent in (1, 2, 4, 8, 16, 32):
        tracemalloc.start()
        run(layout, pivots=concurrent, compression="none", max_concurrent=concurrent)
        rows.append([str(concurrent), f"{tracemalloc.get_traced_memory()[1] / 2**20:.1f}"])
        tracemalloc.stop()
    print(f"\n### Check 19: email-Enron, {WORKERS} partitions: peak of arrays by concurrent sources\n")
    print_table(["sources at a time", "MiB"], rows)
    for concurrent in (256, 8):
        ended = subprocess.run(
            [sys.executable, "-m", "experiments.figures.betweenness_published", "--capped", str(concurrent)],
            capture_output=True,
            text=True,
            check=False,
        )
        last = (ended.stderr.strip().splitlines() or ["?"])[-1]
        said = f"fails ({last[:80]})" if ended.returncode else "finishes"
        print(f"\n256 pivots with 256 MiB more for data, {concurrent} at a time: {said}")


def capped(concurrent: int) -> None:
    layout = partition_graph(graph_of("email-Enron"), WORKERS)
    run(layout, pivots=1, compression="none")
    pages = next(line for line in open("/proc/self/status") if line.startswith("VmData"))  # noqa: PTH123, SIM115
    limit = int(pages.split()[1]) * 1024 + (256 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        run(layout, pivots=256, compression="none", max_concurrent=concurrent)
    except (GoffishError, MemoryError) as error:
        sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])


def report() -> None:
    """Checks 20 and 21: figures of every run, and supersteps of a round against the vertex-centric form."""
    rows, vertex_rows = [], []
    for name in ("email-Enron", "road-california-major", "as-Caida"):
        graph = graph_of(name)
        for label, weights in (("METIS", {}), ("METIS, degree weights", {"vertex_weights": "degree"})):
            begun = time.perf_counter()
            layout = partition_graph(graph, WORKERS, **weights)
            cutting = time.perf_counter() - begun
            result, seconds = run(layout, pivots=64, compression="none", max_concurrent=WORKERS)
            stats = result.stats
            assert stats is not None
            edges = told(result, "arcs") / WORKERS
            rows.append(
                [
                    name, label, f"{told(result, 'cut_arcs') / told(result, 'arcs'):.1%}",
                    f"{told(result, 'most_arcs') / edges:.2f}", f"{stats.imbalance:.2f}",
                    f"{told(result, 'hops_mean'):.1f}, {told(result, 'hops_max'):.0f}",
                    *(f"{told(result, kind):,.0f}" for kind in ("dist", "succ", "paths", "dep")),
                    f"{seconds:.2f}", f"{seconds + cutting:.2f}",
                ]
            )  # fmt: skip
        centric = run(partition_graph(graph, WORKERS), pivots=2, compression="none", max_concurrent=1)[0].stats
        vertex = run(
            partition_graph(graph, WORKERS, units="vertex"), pivots=2, compression="none", max_concurrent=1
        )[0].stats  # fmt: skip
        assert centric is not None
        assert vertex is not None
        vertex_rows.append(
            [
                name, f"{centric.supersteps / 2:,.0f}", f"{vertex.supersteps / 2:,.0f}",
                f"{vertex.supersteps / centric.supersteps:.1f}",
            ]
        )  # fmt: skip
    print(f"\n### Check 21: 64 pivots, {WORKERS} partitions, {WORKERS} sources at a time\n")
    print_table(
        [
            "graph", "partitions", "cut", "edges, largest / mean", "compute time, largest / mean", "x_s mean, max",
            "dist", "succ", "paths", "dep", "s", "s with partitioning",
        ],
        rows,
    )  # fmt: skip
    print("\n### Check 20: supersteps of a source\n")
    print_table(["graph", "partitions as units", "vertex-centric", "times fewer"], vertex_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("compression", "contributions", "workers", "memory", "report", "expectations", "quality")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--orders", type=int, default=3, help="orders of pivots of Table II (the paper: 3)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--capped", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.capped:
        capped(options.capped)
        return
    print(machine_line())
    for part, call in {
        "compression": compression,
        "contributions": contributions,
        "workers": lambda: workers(options.quick),
        "memory": memory,
        "report": report,
        "expectations": lambda: expectations(3 if options.quick else 15),
        "quality": lambda: quality(options.orders),
    }.items():
        if part in options.only:
            begun = time.perf_counter()
            call()
            print(f"\n({part}: {time.perf_counter() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
