"""PageRank of a growing graph: ``python benchmarks/live_pagerank.py --baseline-python PYTHON``.

Edges of an R-MAT graph come in a random order; after every 1,000 of them, the ranks of all vertices are asked for. The
live graph writes its log to a folder; its ranks are within 1e-6 of the exact ones (L1). The baseline is the function
`pagerank` of Pathway, five iterations in integers, in another process after ours; PYTHON has pathway. Then a process
that has fed half of the edges is ended by SIGKILL, and its folder is followed on: the ranks at the end must be the
same.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _harness
import numpy as np
import pyarrow as pa
from _graphs import rmat

import goffish as gf

_BATCH, _TOLERANCE, _DAMPING, _STEPS = 1000, 1e-6, 5 / 6, 5


def follow(folder: str, u: Any, v: Any, begin: int, end: int) -> tuple[list[float], Any, float]:
    """Feed edges from a place to another; return seconds of batches, the ranks, and seconds until the first ones."""
    begun = time.perf_counter()
    live = gf.stream.LiveGraph(lateness=0, state=folder)
    ranks = live.follow("pagerank", tolerance=_TOLERANCE, damping=_DAMPING)
    first, seconds = 0.0, []
    if begin:
        ranks.result()
        first = time.perf_counter() - begun
    for at in range(begin, end, _BATCH):
        begun = time.perf_counter()
        count = len(u[at : at + _BATCH])
        op = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["+e"])
        records = {"t": 1.0 + at + np.arange(count), "op": op, "id": at + np.arange(count)}
        live.feed(pa.table(records | {"src": u[at : at + _BATCH], "dst": v[at : at + _BATCH]}))
        result = ranks.result()
        seconds.append(time.perf_counter() - begun)
    found = result.table
    live.close()
    return seconds, dict(zip(found["vertex"].to_pylist(), found["rank"].to_pylist(), strict=True)), first


def killed(folder: str, u: Any, v: Any, end: int) -> None:
    """Feed edges up to a place, and end the process without notice."""
    gf.stream.LiveGraph.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    follow(folder, u, v, 0, end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=15, help="logarithm of the number of vertices [default: 15]")
    parser.add_argument("--edges", type=int, default=200_000, help="[default: 200,000]")
    parser.add_argument("--baseline-python", required=True, help="Python with pathway")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for the baseline [default: 1200]")
    given = parser.parse_args()
    u, v, _ = rmat(given.scale, -(-given.edges >> given.scale) + 1)
    order = np.random.default_rng(0).permutation(len(u))[: given.edges]
    u, v = u[order].astype(np.int64), v[order].astype(np.int64)
    print(_harness.machine_line(("pyarrow",)))
    vertices = len(np.unique(np.concatenate((u, v))))
    print(f"\n{len(u):,} edges, {vertices:,} vertices, ranks after every {_BATCH:,} edges\n")
    with tempfile.TemporaryDirectory() as folder:
        follow(f"{folder}/warm", u, v, 0, 5 * _BATCH)  # compiles
        seconds, ranks, _ = follow(f"{folder}/whole", u, v, 0, len(u))
        file = Path(folder) / "edges.npz"
        np.savez(file, u=u, v=v, batch=_BATCH, steps=_STEPS)
        program = Path(__file__).with_name("_pathway_pagerank.py")
        taken: dict[str, Any] = {}
        try:
            found = subprocess.run(
                [given.baseline_python, program, file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                timeout=given.limit, text=True,
            )  # fmt: skip
            taken = json.loads(found.stdout)
        except subprocess.TimeoutExpired:
            print(f"The baseline was ended after {given.limit:g} s.\n")
        total, median, worst = sum(seconds), 1e3 * np.median(seconds), 1e3 * max(seconds)
        rows = [
            ["GoFFish", f"{len(seconds):,}", f"{total:.1f}", f"{len(u) / total:,.0f}", f"{median:.1f}", f"{worst:.1f}"]
        ]
        if taken:
            other, results = taken["seconds"], taken["results"]
            rows.append(["Pathway", f"{results:,}", f"{other:.1f}", f"{len(u) / other:,.0f}", "", ""])
        _harness.print_table(["", "results", "seconds", "edges/s", "a batch, p50, ms", "max, ms"], rows)
        if taken:
            print(f"\nRatio: {taken['seconds'] / total:.1f}x")
        half = len(u) // _BATCH // 2 * _BATCH
        process = multiprocessing.get_context("spawn").Process(target=killed, args=(f"{folder}/killed", u, v, half))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, process.exitcode
        _, again, first = follow(f"{folder}/killed", u, v, half, len(u))
        apart = sum(abs(rank - again[vertex]) for vertex, rank in ranks.items())
        print(f"\nAfter SIGKILL at {half:,} edges, the first ranks take {first:.2f} s; at the end, {apart:.1e} apart.")
        if apart > 2 * _TOLERANCE or len(again) != len(ranks):
            sys.exit("the ranks differ")


if __name__ == "__main__":
    main()
