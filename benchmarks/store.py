"""The store: save, open, load, verify, and against reading the text again: ``python benchmarks/store.py [--quick]``.

Opening a store of 4 million edges has to take under 50 ms warm. P6 of docs/specs/engine.md, section 6: load time of the
store beside reading an edge list and repartitioning it by hash, on a graph without and one with hubs.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import _graphs
import _harness
import numpy as np

import goffish as gf
from goffish.gofs import open_store, verify_store
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


def main() -> None:
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


if __name__ == "__main__":
    main()
