"""The store: save, open, load, verify, and against reading the text again: ``python benchmarks/store.py [--quick]``.

Opening a store of 4 million edges has to take under 50 ms warm. P6 of docs/specs/engine.md, section 6: load time of the
store beside reading an edge list and repartitioning it by hash, on a graph without and one with hubs.

Parts of a store beside those of the graph that is loaded whole: time and peak memory, each in a new process, after a
small store has compiled the kernels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _graphs
import _harness
import numpy as np
import pyarrow.compute as pc

import goffish as gf
from goffish.gofs import build_layout, open_store, verify_store
from goffish.graph import Graph, from_edges


def measure(name: str, graph: Graph, folder: Path) -> list[str]:
    text, path = folder / "edges.tsv", folder / "store"
    gf.write(graph, text)
    cut = gf.partition(graph, 12, method="hash")

    def save() -> None:
        shutil.rmtree(path, ignore_errors=True)
        cut.save(path)

    def reload() -> None:
        gf.partition(gf.read(text), 12, method="hash")

    saved = _harness.measure(save, repeats=3)
    opened = _harness.measure(lambda: open_store(path), repeats=21)
    loaded = _harness.measure(lambda: open_store(path).slices())
    verified = _harness.measure(lambda: verify_store(path))
    text_again = _harness.measure(reload, repeats=3)
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    return [
        f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})", f"{size / graph.num_edges:.1f}",
        f"{saved.median:.3f}", f"{opened.median * 1000:.2f}", f"{loaded.median:.3f}", f"{verified.median:.3f}",
        f"{text_again.median:.3f}", f"{text_again.median / loaded.median:.1f}",
    ]  # fmt: skip


#: What graphs in memory and stores have.
CALLS: dict[str, Callable[[Any], Any]] = {
    "ego, 10 steps": lambda graph: graph.ego("v1", radius=10),
    "degrees": lambda graph: graph.degrees(),
    "filter, 5 % of the vertices": lambda graph: graph.filter(vertices=pc.field("age") < 5),
    "largest component": lambda graph: graph.largest_component(),
    "stream of edges": lambda graph: sum(batch.num_rows for batch in graph.edges.to_reader()),
}


def grid_store(width: int, path: Path) -> str:
    """Write a grid in 16 strips, with labels, weights and columns."""
    src, dst, n = _graphs.grid(width, width)
    rng = np.random.default_rng(1)
    graph = from_edges(
        src, dst, rng.random(src.size), labels=[f"v{v}" for v in range(n)],
        vertex_attributes={"age": np.arange(n) % 100, "score": rng.random(n)},
        edge_attributes={"kind": np.arange(src.size) % 7},
    )  # fmt: skip
    build_layout(graph, (np.arange(n) * 16 // n).astype(np.int32), 16).save(path)
    return f"{graph.num_vertices:,} / {graph.num_edges:,}"


def measure_part(call: str, how: str, small: str, path: str) -> None:
    """Print seconds and peak memory of a call in MB, beyond that of a call on a small store."""

    def run(where: str) -> None:
        store = open_store(where)
        CALLS[call](store if how == "store" else store.to_graph())

    run(small)
    before, begin = _peak(), time.perf_counter()
    run(path)
    print(f"{time.perf_counter() - begin:.3f} {_peak() - before:.0f}")


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def print_parts(width: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        small, path = Path(folder, "small"), Path(folder, "store")
        grid_store(8, small)
        sizes, rows = grid_store(width, path), []
        for call in CALLS:
            row = [call]
            for how in ("store", "whole"):
                given = [sys.executable, __file__, "--part", call, how, str(small), str(path)]
                row += subprocess.run(given, check=True, capture_output=True, text=True).stdout.split()
            rows.append(row)
    _harness.print_table([f"grid ({sizes})", "store s", "store MB", "loaded s", "loaded MB"], rows)


def main() -> None:
    if sys.argv[1:2] == ["--part"]:
        measure_part(*sys.argv[2:])
        return
    print(_harness.machine_line())
    quick = "--quick" in sys.argv
    graphs = {
        "grid": _graphs.grid(300, 300) if quick else _graphs.grid(1500, 1400),
        "R-MAT": _graphs.rmat(14 if quick else 18),
    }
    rows = []
    for name, (src, dst, n) in graphs.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, from_edges(src, dst, labels=np.arange(n)), Path(folder)))
    header = ["graph", "bytes per edge", "save s", "open ms", "load s", "verify s", "read text + hash s", "text / load"]
    _harness.print_table(header, rows)
    print()
    print_parts(300 if quick else 1600)


if __name__ == "__main__":
    main()
