"""Algorithms that follow a live graph: ``python benchmarks/followed_algorithms.py``.

Batches of as many removals as additions, of 1e-5 to 1e-2 of the edges, are fed; then the result of one algorithm is
asked for. The baseline runs the algorithm of the library on `live.graph()`, in the same process; what that copy takes
is listed beside it. Times are of the processor, of all threads together, so that other work on the machine matters
less.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import _harness
import numpy as np
import pyarrow as pa
from _graphs import perforated_grid, rmat

import goffish as gf

_SHARES = (1e-5, 1e-4, 1e-3, 1e-2)
_BATCHES = 5
#: Whether edges have directions, and options.
_ALGORITHMS: dict[str, tuple[bool, dict[str, Any]]] = {
    "degrees": (True, {}), "components": (True, {}), "bfs": (True, {"source": None}),
    "sssp": (True, {"source": None, "weight": "w"}), "cores": (True, {}), "triangles": (True, {}),
    "pagerank": (True, {}), "pagerank, no directions": (False, {}),
    "pagerank of one vertex": (True, {"personalization": None}), "louvain": (False, {}),
    "louvain, leiden": (False, {"refine": "leiden"}), "betweenness": (True, {"epsilon": 0.01, "top": 10}),
    "betweenness, no directions": (False, {"epsilon": 0.01, "top": 10}),
}  # fmt: skip


def table(begin: float, ops: Any, ids: Any, sources: Any, targets: Any) -> pa.Table:
    """Return records of edges with weights."""
    return pa.table({
        "t": begin + np.arange(len(ids)) / 1e6, "op": pa.array(ops).dictionary_encode(), "id": ids,
        "src": sources, "dst": targets, "w": 1.0 + ids % 7,
    })  # fmt: skip


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of the processor, and what was returned."""
    begun = time.process_time()
    found = call()
    return time.process_time() - begun, found


def run(name: str, u: Any, v: Any, *, near: bool) -> list[list[str]]:
    """Return a row for each size of batches; new edges end where others do, or next to that."""
    directed, options = _ALGORITHMS[name]
    hub = int(np.bincount(u).argmax())
    given: dict[str, Any] = {"source": hub, "personalization": {hub: 1}}
    options = {key: given.get(key) if value is None else value for key, value in options.items()}
    algorithm, m, rng = re.split(", | of ", name, maxsplit=1)[0], len(u), np.random.default_rng(5)
    live = gf.stream.LiveGraph(lateness=0)
    live.feed(table(0, ["+e"] * m, np.arange(m), u, v))
    followed = live.follow(
        algorithm, directed=directed or algorithm not in ("pagerank", "louvain", "betweenness"), **options
    )
    given = {key: value for key, value in options.items() if key != "weight"}

    def anew() -> tuple[float, float]:
        copy, graph = seconds(lambda: live.graph(weight=options.get("weight"), directed=directed))
        if algorithm == "degrees":
            return copy, 0.0
        return copy, seconds(lambda: gf.run(algorithm, graph, **given))[0]

    followed.result()
    anew()
    order, at, number, now, rows = rng.permutation(m), 0, m, 100.0, []
    for share in _SHARES:
        half, times, feeding = max(1, int(share * m) // 2), [], []
        passes = followed.statistics["full_passes"]
        for batch in range(_BATCHES + 1):
            gone, like = order[at : at + half], rng.integers(0, m, half)
            at += half
            targets = v[like] + 1 if near else v[rng.integers(0, m, half)]
            ids = np.concatenate((gone, np.arange(number, number + half)))
            number += half
            changes = table(
                now, ["-e"] * half + ["+e"] * half, ids, np.concatenate((u[gone], u[like])),
                np.concatenate((v[gone], targets)),
            )  # fmt: skip
            now += 100
            fed, _ = seconds(partial(live.feed, changes))
            took, _ = seconds(followed.result)
            if batch:  # the first one compiles
                times.append(took)
                feeding.append(fed)
        took, fed = float(np.median(times)), float(np.median(feeding))
        copy, static = (float(np.median(column)) for column in zip(*(anew() for _ in range(3)), strict=True))
        full = followed.statistics["full_passes"] - passes
        rows.append([
            name, f"{share:g}", f"{2 * half:,}", f"{1e3 * fed:.2f}", f"{1e3 * took:.2f}", f"{2 * half / took:,.0f}",
            f"{1e3 * copy:.1f} + {1e3 * static:.1f}", f"{(copy + static) / took:,.1f}x", f"{static / took:,.1f}x",
            str(full),
        ])  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=16, help="logarithm of the number of vertices [default: 16]")
    parser.add_argument("--algorithms", nargs="*", default=list(_ALGORITHMS), choices=list(_ALGORITHMS))
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)))
    header = [
        "algorithm", "share", "changes", "feed, ms", "result, ms", "updates/s", "copy + anew, ms", "ratio",
        "without copy", "full passes",
    ]  # fmt: skip
    one, other, _ = perforated_grid(1 << given.scale // 2, 0.9)
    both = np.concatenate((one, other)), np.concatenate((other, one))
    for name, (u, v) in {"R-MAT": rmat(given.scale, 8)[:2], "grid": both}.items():
        print(f"\n{name}, {len(u):,} edges, 2^{given.scale} vertices\n")
        _harness.print_table(header, [row for one in given.algorithms for row in run(one, u, v, near=name == "grid")])


if __name__ == "__main__":
    main()
