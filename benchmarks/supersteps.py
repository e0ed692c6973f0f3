"""Subgraph-centric against vertex-centric on the same worker: ``python benchmarks/supersteps.py [--quick]``.

Supersteps, messages and compute time of components and shortest paths on road graphs, beside the figures published for
the California road network (7 against 554 supersteps); then the experiments P1, P3, P4, P7 and P8 of
docs/specs/engine.md, section 6. The vertex-centric form is the same program with every vertex its own subgraph.
"""

from __future__ import annotations

import sys
from typing import Any

import _graphs
import _harness
import numpy as np

from goffish.algorithms.catalogue import make
from goffish.gofs import PartitionedGraph, build_layout
from goffish.gopher import Result, run_program
from goffish.graph import Graph, from_edges
from goffish.partition import partition_graph


def blocks(width: int, height: int, down: int = 3, across: int = 4) -> np.ndarray[Any, Any]:
    """Equal blocks of a grid with row-major ids."""
    v = np.arange(width * height)
    return ((v // width) * down // height * across + (v % width) * across // width).astype(np.int32)


def grid(width: int, height: int) -> Graph:
    src, dst, n = _graphs.grid(height, width)
    return from_edges(src, dst, labels=np.arange(n))


def run(name: str, graph: PartitionedGraph, **options: Any) -> Result:
    job = make(name, options)
    return run_program(job.program(graph), graph)


def row(label: str, job: str, form: str, result: Result) -> list[str]:
    stats = result.stats
    assert stats is not None
    compute = stats.phases["compute"] + stats.phases["exchange"]
    return [
        label, job, form, f"{stats.subgraphs:,}", f"{stats.supersteps:,}", f"{stats.messages:,}",
        f"{compute:.3f}", f"{stats.imbalance:.2f}", f"{stats.idle_share:.0%}",
    ]  # fmt: skip


HEADER = ["graph", "job", "form", "units", "supersteps", "messages", "compute + exchange s", "imbalance", "idle"]


def road(quick: bool) -> None:
    """Supersteps and messages on road graphs, METIS or equal blocks into 12 (P2, P3)."""
    rows: list[list[str]] = []
    cases: list[tuple[str, Graph, Any]] = []
    try:
        src, dst, n = _graphs.usroads()
        cases.append(("usroads", from_edges(src, dst, labels=np.arange(n)), None))
    except FileNotFoundError as error:
        print(f"skipped usroads: {error}")
    size = (200, 180) if quick else (1000, 900)
    cases.append((f"grid {size[0]} x {size[1]}", grid(*size), blocks(*size)))
    for name, graph, owner in cases:
        source = int(graph.out_degrees.argmax())
        forms = {}
        if owner is None:
            forms["subgraph, METIS 12"] = partition_graph(graph, 12)
            forms["subgraph, hash 12"] = partition_graph(graph, 12, "hash")
            forms["vertex"] = partition_graph(graph, 12, units="vertex")
        else:
            forms["subgraph, blocks 12"] = build_layout(graph, owner, 12)
            forms["vertex"] = build_layout(graph, owner, 12, finder="vertex")
        for job, options in (("components", {}), ("sssp", {"source": source}), ("pagerank", {"supersteps": 30})):
            results = {form: run(job, layout, **options) for form, layout in forms.items()}
            first = next(iter(results.values()))
            for form, result in results.items():
                same = np.allclose(
                    first.table.column(1).to_numpy().astype(float), result.table.column(1).to_numpy().astype(float)
                )
                assert same, (name, job, form)
                rows.append(row(name, job, form, result))
    print("\n### Road graphs (published for the California road network: components 7 against 554 supersteps)\n")
    _harness.print_table(HEADER, rows)


def diameters(quick: bool) -> None:
    """P1: components on grids of growing diameter, k = 12."""
    rows = []
    for side in (25, 50, 100, 200) if quick else (25, 50, 100, 200, 400):
        graph, owner = grid(side, side), blocks(side, side)
        centric = run("components", build_layout(graph, owner, 12)).stats
        vertex = run("components", build_layout(graph, owner, 12, finder="vertex")).stats
        assert centric is not None
        assert vertex is not None
        times = [s.phases["compute"] + s.phases["exchange"] for s in (centric, vertex)]
        rows.append(
            [
                f"{2 * side - 2:,}", f"{centric.supersteps}", f"{vertex.supersteps:,}", f"{centric.messages:,}",
                f"{vertex.messages:,}", f"{times[0]:.4f}", f"{times[1]:.4f}", f"{times[1] / times[0]:.0f}",
            ]
        )  # fmt: skip
    print("\n### P1: components on square grids, 12 blocks\n")
    _harness.print_table(
        ["diameter", "supersteps", "vertex-centric", "messages", "vertex-centric", "s", "vertex-centric", "speed-up"],
        rows,
    )


def small_world(quick: bool) -> None:
    """P4 and P8: a power-law graph, where parity or a loss is expected, and what evens out the load."""
    src, dst, n = _graphs.rmat(14 if quick else 16)
    graph = from_edges(src, dst, labels=np.arange(n))
    source = int(graph.out_degrees.argmax())
    forms = {
        "METIS": partition_graph(graph, 12),
        "METIS, degree weights": partition_graph(graph, 12, vertex_weights="degree"),
        "METIS, split 500": partition_graph(graph, 12, split=500),
        "vertex": partition_graph(graph, 12, units="vertex"),
    }
    rows = [
        row(f"R-MAT {n:,}", job, form, run(job, layout, **options))
        for job, options in (("components", {}), ("sssp", {"source": source}), ("pagerank", {"supersteps": 30}))
        for form, layout in forms.items()
    ]
    print("\n### P4, P8: power-law graph (published: components 1.4x, shortest paths 1x, PageRank slower)\n")
    _harness.print_table(HEADER, rows)


def scaling(quick: bool) -> None:
    """P7: partitions 1 to 12 on a road-like graph."""
    src, dst, n = _graphs.perforated_grid(150 if quick else 700)
    graph = from_edges(src, dst, labels=np.arange(n))
    rows = []
    for k in (1, 2, 4, 8, 12):
        layout = partition_graph(graph, k)
        for job, options in (("components", {}), ("pagerank", {"supersteps": 30})):
            stats = run(job, layout, **options).stats
            assert stats is not None
            rows.append(
                [
                    str(k), job, f"{layout.info.partitioner['edge_cut_share']:.2%}", f"{stats.supersteps}",
                    f"{sum(stats.phases.values()):.3f}", f"{stats.imbalance:.2f}", f"{stats.idle_share:.0%}",
                ]
            )  # fmt: skip
    print("\n### P7: makespan by number of partitions, perforated grid\n")
    _harness.print_table(["k", "job", "edge cut", "supersteps", "makespan s", "imbalance", "idle"], rows)


def main() -> None:
    quick = "--quick" in sys.argv
    print(_harness.machine_line())
    run("components", build_layout(grid(20, 20), blocks(20, 20), 12))  # compile or load the kernels
    run("components", build_layout(grid(20, 20), blocks(20, 20), 12, finder="vertex"))
    for experiment in (road, diameters, small_world, scaling):
        experiment(quick)


if __name__ == "__main__":
    main()
