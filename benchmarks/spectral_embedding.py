"""Spectral embeddings beside SciPy's `eigsh` on the same matrix and to the same tolerance: wall and CPU time.

Both take the largest component; SciPy finds the trivial eigenvector as well, and its matrix is made beforehand.
"""

from __future__ import annotations

import argparse

from _harness import best_peer, geometric_mean, machine_line, measure_together, milliseconds, print_table

import numpy as np  # isort: skip

import _graphs

import goffish as gf

GRAPHS = ("email-Enron", "soc-Epinions1", "lfr-200k", "rmat-18")
DIMENSION, TOLERANCE = 8, 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(machine_line(["scipy"]) + "\n")
    ratios: list[float] = []
    header = ["graph (n / m)", "goffish 1T", "goffish 2T", "scipy", "baseline / goffish", "largest difference"]
    print_table(header, (row(name, options.repeats, ratios) for name in options.graphs))
    print(f"\nGeometric mean: {geometric_mean(ratios):.2f}")


def row(name: str, repeats: int, ratios: list[float]) -> list[str]:
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import eigsh

    graph = _graphs.load(name).largest_component().unweighted()
    scale = diags_array(1.0 / np.sqrt(graph.out_degrees))
    matrix = (scale @ gf.to_scipy(graph) @ scale).tocsr()
    start = np.random.default_rng(0).standard_normal(graph.num_vertices)
    found = {}

    def ours(threads: int) -> None:
        found["ours"] = gf.spectral_embedding(graph, dimension=DIMENSION, tolerance=TOLERANCE, threads=threads)

    def scipy() -> None:
        found["scipy"] = eigsh(
            matrix, DIMENSION + 1, which="LA", v0=start, ncv=max(4 * DIMENSION, 40), tol=TOLERANCE / 4.0
        )[1]

    calls = {"goffish 1T": lambda: ours(1), "goffish 2T": lambda: ours(2), "scipy": scipy}
    timings = measure_together(calls, repeats)
    ratios.append(best_peer(timings, ("goffish 1T", "goffish 2T"), ("scipy",))[0])
    # Of the subspaces: signs and vectors of close eigenvalues may differ.
    theirs = found["scipy"]
    apart = float(np.linalg.norm(found["ours"] - theirs @ (theirs.T @ found["ours"]), axis=0).max())
    return [
        f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})", *map(milliseconds, timings.values()),
        f"{ratios[-1]:.1f}", f"{apart:.0e}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
