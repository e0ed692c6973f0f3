"""Infomap beside igraph's: wall and CPU time, and the code length of both under one definition.

``--graphs NAME ...`` takes some graphs, ``--repeats N`` so many seeds. igraph runs one trial for each, as ours does.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from _harness import geometric_mean, machine_line, print_table

import numpy as np  # isort: skip

import _graphs
from _peers import igraph_graph

import goffish as gf

GRAPHS = ("email-Enron", "cit-HepPh", "road-usroads", "lfr-200k", "perforated-700x700", "rmat-18")


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(machine_line(["igraph"]) + "\n")
    small = gf.generators.rmat(8, seed=1)
    for graph in (small, gf.generators.rmat(8, seed=1, directed=True)):
        gf.infomap(graph)  # compiles
    header = [
        "graph", "edges", "goffish, ms (CPU)", "igraph, ms (CPU)", "CPU ratio", "bits, goffish", "bits, igraph",
        "bits, ratio",
    ]  # fmt: skip
    ratios: list[float] = []
    print_table(header, measured(options.graphs, options.repeats, ratios))
    print(f"\nGeometric mean of the CPU ratios: {geometric_mean(ratios):.1f}")


def measured(names: Sequence[str], repeats: int, ratios: list[float]) -> Iterator[list[str]]:
    """Rows of the table, graph by graph; their CPU ratios go to `ratios`."""
    import igraph

    for name, graph in _graphs.load_available(names):
        theirs = igraph_graph(graph)
        runs: dict[str, list[tuple[float, float, float]]] = {"goffish": [], "igraph": []}
        for seed in range(repeats):
            igraph.set_random_number_generator(random.Random(seed))
            for who, call in (
                ("goffish", lambda graph=graph, seed=seed: gf.infomap(graph, seed=seed).membership),
                ("igraph", lambda theirs=theirs: np.array(theirs.community_infomap(trials=1).membership)),
            ):
                wall, cpu, member = timed(call)
                runs[who].append((wall, cpu, gf.codelength(graph, member)))
        best = {who: [min(column) for column in list(zip(*some, strict=True))[:2]] for who, some in runs.items()}
        length = {who: statistics.mean(one[2] for one in some) for who, some in runs.items()}
        ratios.append(best["igraph"][1] / best["goffish"][1])
        yield [
            name, f"{graph.num_edges:,}",
            *(f"{wall * 1e3:,.0f} ({cpu * 1e3:,.0f})" for wall, cpu in (best["goffish"], best["igraph"])),
            f"{ratios[-1]:.1f}", f"{length['goffish']:.4f}", f"{length['igraph']:.4f}",
            f"{length['goffish'] / length['igraph']:.4f}",
        ]  # fmt: skip


if __name__ == "__main__":
    main()
