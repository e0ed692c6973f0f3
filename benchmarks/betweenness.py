"""Exact betweenness against the peers: wall and CPU time, agreement, and what each reduction contributes.

Run it with no arguments on a quiet machine; ``--quick`` takes the small graphs, ``--graphs NAME ...`` some. The peers
run in the same process run, round-robin with ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _harness import geometric_mean, machine_line, print_table

import numpy as np  # isort: skip

import _graphs
from _peers import igraph_graph, networkit_graph

from goffish.algorithms.betweenness.in_memory import betweenness
from goffish.algorithms.betweenness.plan import LAYOUTS, REDUCTIONS
from goffish.graph import Graph, from_edges, to_networkx
from goffish.graph.io import read

QUICK = ("power", "PGPgiantcompo", "perforated-100x100", "random-tree")
#: Graphs for which the target over igraph is `_FOLDED`: a third lies outside the 2-core, or the blocks are small.
_SPARSE = ("power", "PGPgiantcompo", "as-Caida")
_IGRAPH_TARGET, _NETWORKIT_TARGET, _FOLDED = 4.0, 8.0, 10.0
_NETWORKX_LIMIT = 7_000  # edges
_ERROR = 1e-9


def _from_file(name: str) -> Graph:
    path = _graphs.data_file(f"graphs/{name}")
    return read(path, directed=False).unweighted()


def _from_edges(edges: _graphs.Edges) -> Graph:
    src, dst, n = edges
    return from_edges(src, dst, labels=np.arange(n))


def random_tree(n: int = 20_000, seed: int = 13) -> _graphs.Edges:
    """A tree in which every vertex hangs on a random earlier one."""
    child = np.arange(1, n)
    return child, (np.random.default_rng(seed).random(n - 1) * child).astype(np.int64), n


GRAPHS: dict[str, Callable[[], Graph]] = {
    "power": lambda: _from_file("power.metis.gz"),
    "PGPgiantcompo": lambda: _from_file("pgpgiantcompo.metis.gz"),
    "as-Caida": lambda: _graphs.load("as-Caida"),
    "email-Enron": lambda: _graphs.load("email-Enron"),
    "road-california-major": lambda: _from_file("road-california-major.txt.gz"),
    "perforated-100x100": lambda: _from_edges(_graphs.perforated_grid(100)),
    "lfr-10k": lambda: _from_edges(_graphs.cached("lfr_10k", lambda: _graphs.lfr(10_000))),
    "rmat-13": lambda: _from_edges(_graphs.cached("rmat_13", lambda: _graphs.rmat(13))),
    "random-tree": lambda: _from_edges(random_tree()),
}


@dataclass
class Entry:
    """One way to betweenness: a call that gives the scores, undirected pairs counted `times` times."""

    call: Callable[[], Any]
    times: float = 1.0
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    error: float = float("nan")


def entries(graph: Graph) -> dict[str, Entry]:
    """Ours and the peers', each on its own form of the graph, made beforehand."""
    import networkit as nk

    theirs, kit = igraph_graph(graph), networkit_graph(graph)

    def networkit() -> Any:
        nk.setNumberOfThreads(2)
        found = nk.centrality.Betweenness(kit)
        found.run()
        return found.scores()

    made = {
        "goffish 1T": Entry(lambda: betweenness(graph, threads=1).scores),
        "goffish 2T": Entry(lambda: betweenness(graph, threads=2).scores),
        "igraph 1T": Entry(lambda: theirs.betweenness(directed=False)),
        "NetworKit 2T": Entry(networkit, 2.0),
    }
    try:
        import rustworkx
    except ImportError:
        pass
    else:
        rusty = rustworkx.PyGraph(multigraph=False)
        rusty.add_nodes_from(range(graph.num_vertices))
        src, dst, _, _ = graph.edge_columns()
        rusty.add_edges_from_no_data(list(zip(src.tolist(), dst.tolist(), strict=True)))
        made["rustworkx"] = Entry(
            lambda: list(rustworkx.betweenness_centrality(rusty, normalized=False, parallel_threshold=1).values())
        )
    if graph.num_edges <= _NETWORKX_LIMIT:
        import networkx

        slow = to_networkx(graph)
        made["networkx"] = Entry(lambda: list(networkx.betweenness_centrality(slow, normalized=False).values()))
    return made


def run(graph: Graph, repeats: int, budget: float) -> dict[str, Entry]:
    """Time every entry round-robin; one that has used up its budget is left out of further rounds."""
    made = entries(graph)
    made["goffish 1T"].call()
    ours = np.asarray(made["goffish 1T"].call())
    for _ in range(repeats):
        for entry in made.values():
            if sum(entry.walls) > budget:
                continue
            cpu, wall = time.process_time(), time.perf_counter()
            found = entry.call()
            entry.walls.append(time.perf_counter() - wall)
            entry.cpus.append(time.process_time() - cpu)
            theirs = np.asarray(found) / entry.times
            scale = np.maximum(np.abs(ours), np.abs(theirs))
            entry.error = float(np.max(np.abs(ours - theirs) / np.where(scale > 0, scale, 1.0), initial=0.0))
    return made


def contributions(graph: Graph, repeats: int = 3, budget: float = 1.0) -> list[list[str]]:
    """Time and work with every step added one after another (one thread)."""
    rows, chosen = [], list[str]()
    for name in ("none", *LAYOUTS, *REDUCTIONS):
        if name != "none":
            chosen.append(name)
        cpus: list[float] = []
        while len(cpus) < repeats and sum(cpus) < budget:
            cpu = time.process_time()
            found = betweenness(graph, reductions=chosen, threads=1)
            cpus.append(time.process_time() - cpu)
        rows.append([name if name == "none" else f"+ {name}", f"{100 * found.share_left:.1f} %", f"{min(cpus):.3f}"])
    rows.append(["saved by each", ", ".join(f"{r.reduction} {100 * r.share:.1f} %" for r in found.removed), ""])
    return rows


def report(name: str, graph: Graph, made: dict[str, Entry]) -> dict[str, float]:
    """One table per graph; gives the ratios that have a target."""
    print(f"\n### {name}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges\n")
    print_table(
        ["", "best s", "median s", "CPU s", "largest relative difference", "runs"],
        [
            [
                label, f"{min(e.walls):.4f}", f"{statistics.median(e.walls):.4f}", f"{min(e.cpus):.4f}",
                f"{e.error:.1e}", str(len(e.walls)),
            ]
            for label, e in made.items()
        ],
    )  # fmt: skip
    print()
    print_table(["steps", "work left", "CPU s, one thread"], contributions(graph))
    best = {label: min(entry.walls) for label, entry in made.items()}
    ours = best["goffish 2T"]
    return {
        "igraph 1T / 2T": best["igraph 1T"] / ours,
        "igraph CPU / 1T CPU": min(made["igraph 1T"].cpus) / min(made["goffish 1T"].cpus),
        "NetworKit 2T / 2T": best["NetworKit 2T"] / ours,
        "2T over 1T": best["goffish 1T"] / ours,
        "error": max(entry.error for entry in made.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small graphs only")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, help="these graphs only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for one entry on one graph")
    options = parser.parse_args()
    print(machine_line(("networkit", "igraph", "networkx")))
    ratios: dict[str, dict[str, float]] = {}
    for name in options.graphs or (QUICK if options.quick else tuple(GRAPHS)):
        try:
            graph = GRAPHS[name]()
        except FileNotFoundError as error:
            print(f"(skipped {name}: no {error.filename}; set GOFFISH_DATA)")
            continue
        ratios[name] = report(name, graph, run(graph, options.repeats, options.budget))
    print("\n### Ratios (how many times as fast as the peer)\n")
    columns = list(next(iter(ratios.values())))
    print_table(["graph", *columns], [[name, *(f"{told[c]:.3g}" for c in columns)] for name, told in ratios.items()])
    for column, target in (("igraph 1T / 2T", _IGRAPH_TARGET), ("NetworKit 2T / 2T", _NETWORKIT_TARGET)):
        mean = geometric_mean(told[column] for told in ratios.values())
        without = geometric_mean(told[column] for name, told in ratios.items() if name != "random-tree")
        print(f"\nGeometric mean, {column}: {mean:.2f}x (target {target:g}); without the tree {without:.2f}x")
    for name in _SPARSE:
        if name in ratios:
            print(f"\n{name}: {ratios[name]['igraph 1T / 2T']:.1f}x igraph (target {_FOLDED:g})")
    largest = max(told["error"] for told in ratios.values())
    print(f"\nLargest relative difference: {largest:.1e} (at most {_ERROR:g})")


if __name__ == "__main__":
    main()
