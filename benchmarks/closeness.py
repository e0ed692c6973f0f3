"""Closeness and harmonic centrality of all vertices against the peers: wall and CPU time, and agreement.

Run it with no arguments on a quiet machine; ``--quick`` takes the small graphs, ``--graphs NAME ...`` some. The peers
run in the same process run, round-robin with ours; one that takes longer than the budget runs once.
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

from goffish.algorithms.closeness.in_memory import closeness, harmonic
from goffish.graph import Graph, to_networkx
from goffish.graph.io import read

QUICK = ("power", "PGPgiantcompo")
_NETWORKX_LIMIT = 7_000  # edges


def _from_file(name: str) -> Graph:
    return read(_graphs.data_file(f"graphs/{name}"), directed=False).unweighted()


GRAPHS: dict[str, Callable[[], Graph]] = {
    "power": lambda: _from_file("power.metis.gz"),
    "PGPgiantcompo": lambda: _from_file("pgpgiantcompo.metis.gz"),
    "as-Caida": lambda: _graphs.load("as-Caida"),
    "email-Enron": lambda: _graphs.load("email-Enron"),
    "road-california-major": lambda: _from_file("road-california-major.txt.gz"),
}


@dataclass
class Entry:
    """One way to a centrality."""

    call: Callable[[], Any]
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    error: float = float("nan")


def entries(graph: Graph) -> dict[str, dict[str, Entry]]:
    """Ours and the peers' by centrality, each on its own form of the graph, made beforehand."""
    import networkit as nk

    theirs, kit = igraph_graph(graph), networkit_graph(graph)
    n = graph.num_vertices

    def networkit(make: Callable[[], Any]) -> Any:
        nk.setNumberOfThreads(2)
        found = make()
        found.run()
        return found.scores()

    def generalized() -> Any:
        return nk.centrality.Closeness(kit, True, nk.centrality.ClosenessVariant.GENERALIZED)

    made = {
        "closeness": {
            "goffish 1T": Entry(lambda: closeness(graph, threads=1).scores),
            "goffish 2T": Entry(lambda: closeness(graph, threads=2).scores),
            # igraph divides by the vertices reached: the same where the graph is connected.
            "igraph 1T": Entry(lambda: np.nan_to_num(theirs.closeness(normalized=True))),
            "NetworKit 2T": Entry(lambda: networkit(generalized)),
        },
        "harmonic": {
            "goffish 1T": Entry(lambda: harmonic(graph, threads=1).scores),
            "goffish 2T": Entry(lambda: harmonic(graph, threads=2).scores),
            "igraph 1T": Entry(lambda: np.multiply(theirs.harmonic_centrality(), n - 1)),
            "NetworKit 2T": Entry(lambda: networkit(lambda: nk.centrality.HarmonicCloseness(kit, False))),
        },
    }
    if graph.num_edges <= _NETWORKX_LIMIT:
        import networkx

        slow = to_networkx(graph)
        made["closeness"]["networkx"] = Entry(lambda: list(networkx.closeness_centrality(slow).values()))
        made["harmonic"]["networkx"] = Entry(lambda: list(networkx.harmonic_centrality(slow).values()))
    return made


def run(made: dict[str, Entry], repeats: int, budget: float) -> None:
    """Time every entry round-robin; one that has used up its budget is left out of further rounds."""
    ours = np.asarray(made["goffish 1T"].call())
    made["goffish 2T"].call()
    for _ in range(repeats):
        for entry in made.values():
            if sum(entry.walls) > budget:
                continue
            cpu, wall = time.process_time(), time.perf_counter()
            found = entry.call()
            entry.walls.append(time.perf_counter() - wall)
            entry.cpus.append(time.process_time() - cpu)
            scale = np.where(ours > 0, ours, 1.0)
            entry.error = float(np.max(np.abs(ours - np.asarray(found)) / scale, initial=0.0))


def report(made: dict[str, Entry]) -> dict[str, float]:
    """One table; gives how many times as fast as each peer we are."""
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
    ours = min(made["goffish 2T"].walls)
    ratios = {
        "igraph CPU / 1T CPU": min(made["igraph 1T"].cpus) / min(made["goffish 1T"].cpus),
        "igraph 1T / 2T": min(made["igraph 1T"].walls) / ours,
        "NetworKit 2T / 2T": min(made["NetworKit 2T"].walls) / ours,
    }
    if "networkx" in made:
        ratios["networkx / 2T"] = min(made["networkx"].walls) / ours
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small graphs only")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, help="these graphs only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for one entry on one graph")
    options = parser.parse_args()
    print(machine_line(("networkit", "igraph", "networkx")))
    ratios: dict[str, dict[str, float]] = {}
    for name in options.graphs or (QUICK if options.quick else tuple(GRAPHS)):
        try:
            graph = GRAPHS[name]()
        except FileNotFoundError as error:
            print(f"(skipped {name}: no {error.filename}; set GOFFISH_DATA)")
            continue
        for centrality, made in entries(graph).items():
            print(f"\n### {centrality} of {name}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges\n")
            run(made, options.repeats, options.budget)
            ratios[f"{centrality}, {name}"] = report(made)
    print("\n### Ratios (how many times as fast as the peer)\n")
    columns = ("igraph CPU / 1T CPU", "igraph 1T / 2T", "NetworKit 2T / 2T", "networkx / 2T")
    print_table(
        ["", *columns],
        [[name, *(f"{told[c]:.3g}" if c in told else "" for c in columns)] for name, told in ratios.items()],
    )
    for column in columns[:3]:
        print(f"\nGeometric mean, {column}: {geometric_mean(told[column] for told in ratios.values()):.1f}x")


if __name__ == "__main__":
    main()
