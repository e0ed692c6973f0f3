"""Programs that follow a live graph on several workers: ``python benchmarks/live_workers.py``.

Edges are fed in epochs of 10,000. Three tables: throughput by number of workers, what partitioners cut and send, and an
epoch of 1,000 edges beside the whole graph in one epoch. Seconds of workers are those of the processor, which other
work on the machine changes less than the throughput.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import _harness
import numpy as np
import pyarrow as pa
from _graphs import perforated_grid, rmat

import goffish as gf

_EPOCH = 10_000
_PROGRAMS: dict[str, dict[str, Any]] = {
    "components": {}, "distances": {"source": None, "directed": False}, "triangles": {},
    "reachability": {"sources": range(64), "sinks": range(64, 128)}, "pagerank": {},
}  # fmt: skip


def table(begin: float, u: Any, v: Any) -> pa.Table:
    """Return records of edges."""
    op = pa.DictionaryArray.from_arrays(np.zeros(len(u), np.int32), ["+e"])
    return pa.table(
        {
            "t": begin + np.arange(len(u)) / 1e5,
            "op": op,
            "src": u,
            "dst": v,
            "id": int(begin) * 10**8 + np.arange(len(u)),
        }
    )


class Fed:
    """A live graph with a program that has begun, and its figures since then."""

    def __init__(
        self, program: str, u: Any, workers: int, partitioner: str = "ldg", changes: int = _EPOCH
    ) -> None:  # fmt: skip
        self.live = gf.stream.LiveGraph(lateness=0)
        hub = int(np.bincount(u).argmax())
        options = {key: hub if value is None else value for key, value in _PROGRAMS[program].items()}
        self.run = self.live.run(
            program, workers=workers, partitioner=partitioner, every=None, changes=changes, **options
        )  # fmt: skip
        # Loads all kernels; the edges are beside the graph.
        self.time = 0.0
        self.feed(-1 - np.arange(40), -1 - (np.arange(40) + 1) % 40)
        self.run.result()

    def feed(self, u: Any, v: Any) -> tuple[float, np.ndarray[Any, Any], dict[str, Any]]:
        """Feed edges; return seconds, those of each worker, and figures."""
        before, begun = self.run.statistics, time.perf_counter()
        for at in range(0, len(u), _EPOCH):
            self.time += 1
            self.live.feed(table(self.time, u[at : at + _EPOCH], v[at : at + _EPOCH]))
        self.run.result()
        assert self.live.counts["late"] == 0
        took, after = time.perf_counter() - begun, self.run.statistics
        worked = np.array(after["seconds"]) - before["seconds"]
        return (
            took,
            worked,
            {name: after[name] - before[name] for name in ("supersteps", "remote_messages")}
            | {name: after[name] for name in ("cut", "balance")},
        )


def throughput(programs: list[str], u: Any, v: Any, counts: list[int]) -> list[list[str]]:
    """Return a row for each program and number of workers."""
    rows = []
    for name in programs:
        first = 0.0
        for workers in counts:
            fed = Fed(name, u, workers)
            took, worked, figures = fed.feed(u, v)
            fed.run.close()
            first = first or worked.max()
            rows.append([
                name, str(workers), f"{len(u) / took:,.0f}", f"{worked.sum():.2f}", f"{worked.max():.2f}",
                f"{first / worked.max():.2f}x", f"{first / worked.max() / workers:.0%}", f"{figures['cut']:.2f}",
            ])  # fmt: skip
    return rows


def partitioners(graphs: dict[str, tuple[Any, Any]]) -> list[list[str]]:
    """Return a row for each graph and partitioner."""
    rows = []
    for graph, (u, v) in graphs.items():
        for partitioner in ("hash", "ldg", "fennel"):
            fed = Fed("distances", u, 4, partitioner)
            took, worked, figures = fed.feed(u, v)
            fed.run.close()
            rows.append([
                graph, partitioner, f"{figures['cut']:.3f}", f"{figures['balance']:.3f}",
                f"{figures['remote_messages'] / len(u):.2f}", str(figures["supersteps"]), f"{worked.sum():.2f}",
                f"{took:.2f}",
            ])  # fmt: skip
    return rows


def increments(programs: list[str], scales: list[int]) -> list[list[str]]:
    """Return a row for each program and size: an epoch of 1,000 edges, and everything in one epoch."""
    rows = []
    for name in programs:
        for scale in scales:
            u, v, _ = rmat(scale, 8)
            fed = Fed(name, u, 2, changes=1 << 30)
            fed.feed(u[:-10_000], v[:-10_000])
            worked = [
                fed.feed(u[at : at + 1000], v[at : at + 1000])[1].sum() for at in range(len(u) - 10_000, len(u), 1000)
            ]
            fed.run.close()
            anew = Fed(name, u, 2, changes=1 << 30)
            whole = anew.feed(u, v)[1].sum()
            anew.run.close()
            epoch = float(np.median(worked))
            rows.append(
                [
                    name,
                    f"2^{scale}",
                    f"{len(u):,}",
                    f"{1e3 * epoch:.2f}",
                    f"{1e3 * whole:.1f}",
                    f"{whole / epoch:,.0f}x",
                ]
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=16, help="logarithm of the number of vertices [default: 16]")
    parser.add_argument("--programs", nargs="*", default=list(_PROGRAMS), choices=list(_PROGRAMS))
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)))
    u, v, _ = rmat(given.scale, 8)
    grid = perforated_grid(1 << given.scale // 2, 0.9)[:2]
    order = np.random.default_rng(3).permutation(len(grid[0]))
    print(f"\nThroughput; R-MAT, {len(u):,} edges, 2^{given.scale} vertices\n")
    _harness.print_table(
        ["program", "workers", "edges/s", "workers, s", "slowest, s", "faster", "efficiency", "cut"],
        throughput(given.programs, u, v, given.workers),
    )
    print("\nPartitioners; distances on 4 workers\n")
    _harness.print_table(
        ["graph", "partitioner", "cut", "balance", "remote messages/edge", "supersteps", "workers, s", "total, s"],
        partitioners({"R-MAT": (u, v), "grid": grid, "grid, shuffled": (grid[0][order], grid[1][order])}),
    )
    print("\nAn epoch of 1,000 edges, and the whole graph in one epoch; 2 workers\n")
    _harness.print_table(
        ["program", "vertices", "edges", "epoch, ms", "anew, ms", "ratio"],
        increments(given.programs, [given.scale - 4, given.scale - 2, given.scale]),
    )


if __name__ == "__main__":
    main()
