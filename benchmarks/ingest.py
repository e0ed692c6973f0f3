"""Reading an edge list into a graph: GoFFish against igraph, NetworKit and pandas, in one run.

    python benchmarks/ingest.py [--edges 4000000] [--vertices 1000000] [--repeats 5]

Every reader takes the same tab-separated file of uniformly random pairs, once to warm up and then `--repeats`
times, in turns; the median counts. GoFFish (also behind pandas) sorts, merges parallel edges and drops
self-loops; the peers are timed without that, and their graphs are simplified afterwards to compare the answers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _harness import machine_line, measure_together, print_table  # first: it sets the peers' wait policy
from pyarrow import csv

from goffish.graph import from_pandas, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=4_000_000)
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.txt"
        make_file(path, options.vertices, options.edges)
        print("Machine:", machine_line(("pyarrow", "pandas", "igraph", "networkit")))
        print(
            f"File: {options.edges:,} lines, {path.stat().st_size / 1e6:.0f} MB, ids below "
            f"{options.vertices:,}. Median of {options.repeats} after one warm-up.\n"
        )
        report(path, options.repeats)


def make_file(path: Path, vertices: int, edges: int) -> None:
    """Uniform pairs, seed 1, tab-separated."""
    ends = np.random.default_rng(1).integers(0, vertices, (2, edges))
    style = csv.WriteOptions(include_header=False, delimiter="\t")
    csv.write_csv(pa.table({"source": ends[0], "target": ends[1]}), path, style)


def with_goffish(path: str) -> Any:
    return read(path)


def with_pandas(path: str) -> Any:
    import pandas as pd

    return from_pandas(pd.read_csv(path, sep="\t", header=None, names=["source", "target"]))


def with_igraph_edgelist(path: str) -> Any:
    import igraph

    return igraph.Graph.Read_Edgelist(path, directed=False)


def with_igraph_ncol(path: str) -> Any:
    import igraph

    return igraph.Graph.Read_Ncol(path, names=False, weights=False, directed=False)


def with_networkit(path: str) -> Any:
    import networkit

    return networkit.graphio.EdgeListReader("\t", 0, directed=False).read(path)


def size(graph: Any) -> tuple[int, int]:
    """(vertices that some line names, distinct edges without self-loops)."""
    kind = type(graph).__module__.partition(".")[0]
    if kind == "igraph":
        touched = int(np.count_nonzero(graph.degree(loops=True)))
        return touched, graph.simplify().ecount()
    if kind == "networkit":
        touched = sum(graph.degree(v) > 0 for v in graph.iterNodes())
        graph.removeMultiEdges()
        graph.removeSelfLoops()
        return touched, graph.numberOfEdges()
    return graph.num_vertices, graph.num_edges


READERS: dict[str, Callable[[str], Any]] = {
    "GoFFish `read`": with_goffish,
    "pandas `read_csv` + `from_pandas`": with_pandas,
    "igraph `Read_Edgelist`": with_igraph_edgelist,
    "igraph `Read_Ncol`": with_igraph_ncol,
    "NetworKit `EdgeListReader`": with_networkit,
}


def report(path: Path, repeats: int) -> None:
    """Print the table; stop if two readers disagree about the graph."""
    sizes = {name: size(reader(str(path))) for name, reader in READERS.items()}
    if len(set(sizes.values())) != 1:
        raise SystemExit(f"the readers disagree: {sizes}")
    calls = {name: partial(reader, str(path)) for name, reader in READERS.items()}
    timings = measure_together(calls, repeats, budget=120)
    ours, stored = timings["GoFFish `read`"], path.stat().st_size
    print_table(
        ("reader", "median s", "CPU s", "MB/s", "time / GoFFish"),
        [
            (
                name,
                f"{timing.median:.3f}",
                f"{timing.cpu:.3f}",
                f"{stored / timing.median / 1e6:.0f}",
                f"{timing.median / ours.median:.1f}",
            )
            for name, timing in timings.items()
        ],
    )
    vertices, edges = next(iter(sizes.values()))
    print(f"\nAll readers agree: {vertices:,} vertices, {edges:,} distinct edges.")


if __name__ == "__main__":
    main()
