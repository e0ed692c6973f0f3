"""Reading an edge list into a graph: GoFFish against igraph, NetworKit and pandas, in one run.

    python benchmarks/ingest.py [--edges 4000000] [--vertices 1000000] [--repeats 5]
    python benchmarks/ingest.py --spark 1000000,4000000 [--parts 4,64] [--repeats 3] [--cores 2]
                                [--format csv|parquet] [--method auto|fennel]

Every reader takes the same tab-separated file of uniformly random pairs, once to warm up and then `--repeats`
times, in turns; the median counts. GoFFish (also behind pandas) sorts, merges parallel edges and drops
self-loops; the peers are timed without that, and their graphs are simplified afterwards to compare the answers.

With ``--spark`` the whole road from rows to a store is timed instead: the ingest job on Spark beside reading,
partitioning and saving on one machine, in one run, on files of weighted R-MAT rows (duplicates add up). Both make the
same store, which is checked (with Fennel, that both have the same edges). Spark's session is started and warmed up by a
run on the first file before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _harness import machine_line, measure_together, print_table  # first: it sets the peers' wait policy
from pyarrow import csv

from goffish.graph import from_pandas, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=4_000_000)
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--spark", type=_numbers, metavar="ROWS", help="time the ingest job on files of so many rows")
    parser.add_argument("--parts", type=_numbers, default=[4])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv")
    parser.add_argument("--method", choices=["auto", "fennel"], default="auto")
    options = parser.parse_args()
    if options.spark:
        print("Machine:", machine_line(("pyspark", "pyarrow", "pymetis")))
        with tempfile.TemporaryDirectory() as folder:
            report_spark(Path(folder), options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.txt"
        make_file(path, options.vertices, options.edges)
        print("Machine:", machine_line(("pyarrow", "pandas", "igraph", "networkit")))
        print(
            f"File: {options.edges:,} lines, {path.stat().st_size / 1e6:.0f} MB, ids below "
            f"{options.vertices:,}. Median of {options.repeats} after one warm-up.\n"
        )
        report(path, options.repeats)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


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


def make_weighted_file(path: Path, rows: int) -> None:
    """R-MAT pairs, four for each number, with a weight each; a header."""
    from _graphs import rmat

    source, target, _ = rmat(max(6, ceil(log2(rows / 4))), 4, seed=11)
    weight = np.random.default_rng(2).integers(1, 1000, source.size) / 100
    csv.write_csv(pa.table({"u": source[:rows], "v": target[:rows], "w": weight[:rows]}), path)


def report_spark(folder: Path, options: argparse.Namespace) -> None:
    """One line for each number of rows and partitions; stop if the two stores differ."""
    import goffish as gf
    from goffish.spark import session
    from goffish.spark.ingest import ingest

    sizes, parts, repeats, cores = options.spark, options.parts, options.repeats, options.cores
    spark = session(master=f"local[{cores}]", memory="4g", config={"spark.log.level": "OFF"})
    lines, steps = [], []
    warm = False
    for rows in sizes:
        path = folder / f"rows-{rows}.csv"
        make_weighted_file(path, rows)
        item = {"path": str(path), "options": {"header": True}}
        if options.format == "parquet":
            pq.write_table(csv.read_csv(path), path.with_suffix(".parquet"))
            item = {"path": str(path.with_suffix(".parquet")), "format": "parquet"}
        for count in parts:
            spec = {
                "inputs": [item], "source": "u", "target": "v", "weight": "w", "clean": {"duplicates": "sum"},
                "partition": {"parts": count, "method": options.method},
            }  # fmt: skip
            if not warm:
                ingest(spec, folder / "spark", spark)
                gf.partition(gf.read(path, parallel="sum"), parts=count).save(folder / "plain")
                warm = True
            seconds: dict[str, list[float]] = {"spark": [], "plain": []}
            reports = []
            for _ in range(repeats):
                begun = time.perf_counter()
                reports.append(ingest(spec, folder / "spark", spark))
                seconds["spark"].append(time.perf_counter() - begun)
                begun = time.perf_counter()
                plain = gf.partition(gf.read(path, parallel="sum"), parts=count).save(folder / "plain")
                seconds["plain"].append(time.perf_counter() - begun)
            report = reports[0]
            same = plain.info.num_edges == report.edges
            if not same or (options.method == "auto" and plain.fingerprint() != report.fingerprint):
                raise SystemExit("the two stores differ")
            ours, other = (statistics.median(seconds[name]) for name in ("spark", "plain"))
            lines.append(
                (f"{rows:,}", f"{report.edges:,}", f"{count}", f"{ours:.1f}", f"{rows / ours:,.0f}",
                 f"{other:.1f}", f"{rows / other:,.0f}", f"{ours / other:.1f}")
            )  # fmt: skip
            medians = {name: statistics.median(r.seconds[name] for r in reports) for name in report.seconds}
            steps.append((f"{rows:,}", f"{count}", *(f"{value:.1f}" for value in medians.values())))
    spark.stop()
    print(f"\nMedians of {repeats} runs each, in turns, local[{cores}].\n")
    print_table(
        ("rows", "edges", "partitions", "ingest s", "rows/s", "read + partition + save s", "rows/s", "ratio"), lines
    )
    print("\nSteps of the ingest job, seconds:\n")
    print_table(("rows", "partitions", *medians), steps)


if __name__ == "__main__":
    main()
