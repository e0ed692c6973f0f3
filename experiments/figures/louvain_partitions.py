"""Speed-up of the partition-local first level by the number of partitions.

The published experiment (Wickramaarachchi et al., HPEC 2014, figures 3 to 7) on LFR graphs with its parameters. For
each number of partitions: the time measured on this machine, and the critical path that as many processors as
partitions would leave: the slowest partition's first level, the merge, the remaining levels. Partitioning is not
counted, as in the paper. Baselines are the sequential variant in random order (the paper's) and in natural order, whose
caches are kinder (docs/specs/communities.md, section 5), so that the comparison does not flatter the parallel code.
"""

from __future__ import annotations

import argparse
import time

from numpy import arange

import goffish as gf
from benchmarks import _graphs, _harness
from goffish.algorithms.communities.sequential import sequential_louvain
from goffish.graph import Graph, from_edges

PARTS = (1, 2, 4, 8, 16, 32, 64, 128)


def graph_of(n: int) -> Graph:
    src, dst, n = _graphs.cached(f"lfr_paper_{n}", lambda: _graphs.lfr_paper(n))
    return from_edges(src, dst, labels=arange(n))


def measure(graph: Graph, repeats: int) -> None:
    sequential_louvain(graph, order="natural")
    runs = {}
    for order in ("random", "natural"):
        best = min((sequential_louvain(graph, order=order) for _ in range(repeats)), key=lambda run: sum(run.seconds))
        runs[order] = best
        print(
            f"sequential, {order} order: {sum(best.seconds):.2f} s, first level {100 * best.first_level_share:.1f} %, "
            f"{best.passes[0]} passes in it, modularity {best.modularity[-1]:.5f}, levels {len(best.maps)}, "
            f"size {best.sizes[0]:,} to {best.sizes[1]:,}"
        )
    whole = sum(runs["random"].seconds), sum(runs["natural"].seconds)
    share, quality = runs["random"].first_level_share, runs["random"].modularity[-1]
    rows = []
    for parts in PARTS:
        cut = gf.partition(graph, parts=parts)
        cut.run("louvain", variant="partitioned", order="natural")
        best = None
        for _ in range(repeats):
            begun = time.perf_counter()
            found = cut.run("louvain", variant="partitioned")
            wall = time.perf_counter() - begun
            figures = found.stats.aggregates
            path = sum(figures[name] for name in ("level_1_seconds", "merge_seconds", "finish_seconds"))
            if best is None or wall < best[0]:
                best = wall, path, figures, found
        wall, path, figures, found = best
        refined = cut.run("louvain")
        amdahl = 1.0 / ((1.0 - share) + share / parts)
        rows.append([
            str(parts), f"{found.summary.get('cut_fraction', 0.0):.3f}", f"{wall:.2f}", f"{whole[0] / wall:.2f}",
            f"{path:.3f}", f"{whole[0] / path:.2f}", f"{whole[1] / path:.2f}", f"{amdahl:.2f}",
            f"{100 * (figures['merge_seconds']) / path:.1f} %",
            f"{100 * (quality - found.modularity) / quality:+.4f} %",
            f"{100 * (quality - refined.modularity) / quality:+.4f} %",
        ])  # fmt: skip
    _harness.print_table(
        [
            "parts", "cut", "seconds here", "speed-up here", "critical path, s", "speed-up by it",
            "against natural order", "Amdahl", "merge share", "loss, published", "loss, default",
        ],
        rows,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vertices", type=int, nargs="+", default=[250_000], help="the paper goes to 16,000,000")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(_harness.machine_line())
    for n in options.vertices:
        graph = graph_of(n)
        print(f"\n### LFR, {graph.num_vertices:,} vertices, {graph.num_edges:,} edges\n")
        measure(graph, options.repeats)


if __name__ == "__main__":
    main()
