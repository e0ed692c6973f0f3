"""Bipartite projections against igraph and SciPy, and cores against SciPy: ``python benchmarks/bipartite.py``.

Of the bipartite double cover of each graph: every edge between u and v becomes one between u and a second v, and one
between v and a second u. The projection has the numbers of common neighbors as weights. No library has (alpha,
beta)-cores: vertices are removed by products of the matrix of SciPy with the vector of those that are left.
"""

from __future__ import annotations

from typing import Any

import _graphs
import _harness
import numpy as np
from _peers import igraph_graph, scipy_matrix

import goffish as gf
from goffish.graph import from_edges


def cores(graph: gf.Graph, side: np.ndarray, alpha: int) -> dict[str, Any]:
    """The largest beta of each vertex."""
    matrix = scipy_matrix(graph)

    def removed() -> Any:
        found, left, beta = np.zeros(side.size, np.int64), np.ones(side.size, np.bool_), 0
        while left.any():
            beta += 1
            least = np.where(side, alpha, beta)
            while True:
                stays = left & (matrix @ left.astype(np.float64) >= least)
                if (stays == left).all():
                    break
                left = stays
            found[left] = beta
        return found

    def ours() -> Any:
        return gf.bipartite_cores(graph, alpha, vertices=side).table["core"].to_numpy()

    return {"goffish": ours, "scipy": removed}


def time_cores(name: str, graph: gf.Graph, side: np.ndarray) -> tuple[list[str], float]:
    calls = cores(graph, side, 2)
    ours, other = (call() for call in calls.values())
    assert (ours == other).all()
    timings = _harness.measure_together(calls, repeats=3)
    ratio, best = _harness.best_peer(timings, ["goffish"], ["scipy"])
    times = [_harness.milliseconds(timings[column]) for column in calls]
    return [
        f"{name} ({side.size:,} / {graph.num_edges:,})",
        str(ours.max()),
        *times,
        f"**{ratio:.1f}** ({best})",
    ], ratio


def main() -> None:
    print(_harness.machine_line(("igraph", "scipy")))
    print("milliseconds: best wall (median wall; CPU); number of edges of the projection")
    rows, ratios, core_rows, core_ratios = [], [], [], []
    columns = ["goffish", "igraph", "scipy"]
    for name, graph in _graphs.load_available(("road-usroads", "perforated-700x700")):
        src, dst, _, _ = graph.edge_columns()
        n = graph.num_vertices
        cover = from_edges(np.concatenate([src, dst]), n + np.concatenate([dst, src]), labels=np.arange(2 * n))
        side = np.arange(2 * n) < n
        ig_graph, types = igraph_graph(cover), (~side).tolist()
        matrix = scipy_matrix(cover)[:n, n:].tocsr()
        calls = {
            "goffish": lambda cover=cover, side=side: gf.bipartite_projection(cover, side),
            "igraph": lambda ig=ig_graph, types=types: ig.bipartite_projection(types, which=0, multiplicity=True),
            "scipy": lambda matrix=matrix: matrix @ matrix.T,
        }
        ours, other, square = (calls[column]() for column in columns)
        edges = (square.nnz - np.count_nonzero(square.diagonal())) // 2
        assert ours.num_edges == other.ecount() == edges
        assert ours.weights.sum() == 2 * sum(other.es["weight"]) == square.sum() - square.diagonal().sum()
        timings = _harness.measure_together(calls, repeats=3)
        ratio, best = _harness.best_peer(timings, ["goffish"], columns[1:])
        ratios.append(ratio)
        times = [_harness.milliseconds(timings[column]) for column in columns]
        row, ratio_of_cores = time_cores(name, cover, side)
        core_rows.append(row)
        core_ratios.append(ratio_of_cores)
        rows.append([f"{name} ({2 * n:,} / {cover.num_edges:,})", f"{edges:,}", *times, f"**{ratio:.1f}** ({best})"])
    _harness.print_table(["graph (n / m)", "edges", *columns, "best baseline / goffish"], rows)
    print(f"\ngeometric mean of best baseline / goffish: {_harness.geometric_mean(ratios):.2f}")
    print("\n## (2, beta)-cores\n")
    _harness.print_table(["graph (n / m)", "largest beta", "goffish", "scipy", "best baseline / goffish"], core_rows)
    print(f"\ngeometric mean of best baseline / goffish: {_harness.geometric_mean(core_ratios):.2f}")


if __name__ == "__main__":
    main()
