"""Epochs of changes, beside other libraries: ``python benchmarks/live_epochs.py --baseline-python PYTHON``.

Between two results, as many edges are removed as added: 0.01, 0.1, 1 and 10 percent of them together. Components and
distances follow the live graph; igraph and NetworKit change their graph and compute both anew, the dynamic
algorithms of NetworKit are updated after each edge, and Raphtory computes components of its newest state. Numbers of
components and sums of distances are compared first. Then sampled betweenness, within 0.05 with probability 0.9, follows
a smaller graph, beside that of NetworKit. The baselines run in another process, after ours, with one thread
(Raphtory: all processors); PYTHON has igraph, networkit, pandas and raphtory. Times include changing the graph.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import _harness
import numpy as np
import pyarrow as pa
from _graphs import rmat

import goffish as gf

_SHARES, _EPOCHS = (1e-4, 1e-3, 1e-2, 1e-1), 3
_NAMES = ("igraph", "NetworKit", "NetworKit, dynamic", "Raphtory")


def prepared(scale: int) -> dict[str, Any]:
    """Return a graph without loops and parallel edges, and pairs of vertices that are removed and added."""
    u, v = rmat(scale, 8)[:2]
    pairs = np.unique(np.sort(np.stack((u, v), axis=1), axis=1), axis=0)
    pairs = np.random.default_rng(1).permutation(pairs[pairs[:, 0] != pairs[:, 1]])
    m, n = int(0.8 * len(pairs)), 1 << scale
    found = {"u": pairs[:m, 0], "v": pairs[:m, 1], "n": n, "source": np.bincount(pairs[:m].ravel()).argmax()}
    gone, new, at = 0, m, 0
    for share in _SHARES:
        for _ in range(_EPOCHS):
            half = max(1, int(share * m) // 2)
            found |= {f"share{at}": share, f"gone{at}": pairs[gone : gone + half], f"new{at}": pairs[new : new + half]}
            gone, new, at = gone + half, new + half, at + 1
    return found | {"epochs": at}


def ours(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the seconds and answers of each epoch."""
    rows: list[dict[str, Any]] = []
    n = int(data["n"])
    of_algorithms: dict[str, dict[str, Any]] = {
        "components": {}, "bfs": {"source": int(data["source"]), "directed": False},
    }  # fmt: skip
    for name, options in of_algorithms.items():
        live = gf.stream.LiveGraph(lateness=0)
        live.feed(pa.table({"t": np.arange(n) / 1e6, "op": ["+v"] * n, "id": np.arange(n)}))
        followed = live.follow(name, **options)
        live.feed(records(10, data["v"][:0], data["v"][:0], data["u"], data["v"]))
        followed.result()
        for at in range(data["epochs"]):
            gone, new = data[f"gone{at}"], data[f"new{at}"]
            table = records(100 + 10 * at, gone[:, 0], gone[:, 1], new[:, 0], new[:, 1])
            begun = time.perf_counter()
            live.feed(table)
            fed = time.perf_counter()
            result = followed.result()
            done = time.perf_counter()
            if name == "components":
                rows.append({"share": data[f"share{at}"], "answers": [result.summary["components"]]})
            else:
                distances = result.table["distance"].to_numpy()
                rows[at]["answers"].append(int(distances[np.isfinite(distances)].sum()))
            rows[at][name], rows[at][f"{name} feed"] = done - begun, fed - begun
    return rows


def records(begin: float, *ends: Any) -> pa.Table:
    sources, targets = np.concatenate(ends[::2]), np.concatenate(ends[1::2])
    ops = np.repeat([0, 1], [len(ends[0]), len(ends[2])])
    return pa.table({
        "t": begin + np.arange(len(sources)) / 1e6, "op": pa.DictionaryArray.from_arrays(ops, ["-e", "+e"]),
        "id": sources.astype(np.int64) << 32 | targets, "src": sources, "dst": targets,
    })  # fmt: skip


def baselines(python: str, limit: float, data: dict[str, Any], *question: str) -> list[dict[str, Any]]:
    """Return what the other program prints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "epochs.npz", **data)
        command = [python, str(Path(__file__).with_name("_epoch_baselines.py")), str(folder / "epochs.npz"), *question]
        with (folder / "out").open("w") as out, (folder / "errors").open("w") as errors:
            try:
                subprocess.run(command, stdout=out, stderr=errors, check=True, timeout=limit)
            except subprocess.TimeoutExpired:
                print(f"The baselines were ended after {limit:g} s.\n")
            except subprocess.CalledProcessError:
                raise SystemExit((folder / "errors").read_text()) from None
        return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


def betweenness(python: str, limit: float) -> None:
    """Print the times of sampled betweenness, whose values differ by twice the bound at most."""
    data = prepared(12)
    data["epochs"] = count = 2 * _EPOCHS
    n = int(data["n"])
    live = gf.stream.LiveGraph(lateness=0)
    live.feed(pa.table({"t": np.arange(n) / 1e6, "op": ["+v"] * n, "id": np.arange(n)}))
    followed = live.follow("betweenness", directed=False, epsilon=0.05, delta=0.1)
    live.feed(records(10, data["v"][:0], data["v"][:0], data["u"], data["v"]))
    followed.result()
    took, values = [], []
    for at in range(count):
        gone, new = data[f"gone{at}"], data[f"new{at}"]
        table = records(100 + 10 * at, gone[:, 0], gone[:, 1], new[:, 0], new[:, 1])
        begun = time.perf_counter()
        live.feed(table)
        result = followed.result()
        took.append(time.perf_counter() - begun)
        values.append(2 * result.table["betweenness"].to_numpy() / (n * (n - 1)))
    first, *others = baselines(python, limit, data, "betweenness")
    print(
        f"\nBetweenness of {len(data['u']):,} edges, {n:,} vertices; NetworKit, first: {first['betweenness']:.1f} s\n"
    )
    rows = []
    for begin in range(0, count, _EPOCHS):
        part = slice(begin, begin + _EPOCHS)
        mine, theirs = np.median(took[part]), np.median([one["betweenness"] for one in others[part]])
        pairs = zip(values[part], others[part], strict=True)
        apart = max(float(np.abs(one - np.array(other["answers"])).max()) for one, other in pairs)
        assert apart <= 0.1, apart
        share = f"{data[f'share{begin}']:.2%}"
        rows.append([share, f"{1e3 * mine:.1f}", f"{1e3 * theirs:,.0f} ({theirs / mine:,.0f}x)", f"{apart:.3f}"])
    _harness.print_table(["changed edges", "GoFFish, ms", "NetworKit, dynamic, ms", "apart"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=16, help="logarithm of the number of vertices [default: 16]")
    parser.add_argument("--baseline-python", required=True, help="Python with igraph, networkit and raphtory")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the baselines [default: 600]")
    given = parser.parse_args()
    data = prepared(given.scale)
    print(_harness.machine_line(("pyarrow",)))
    print(f"\n{len(data['u']):,} edges, {data['n']:,} vertices, {_EPOCHS} epochs each, median\n")
    found = ours(data)
    others: dict[str, list[dict[str, Any]]] = {name: [] for name in _NAMES}
    for row in baselines(given.baseline_python, given.limit, data):
        others[row["name"]].append(row)
    table = []
    for question, place in (("components", 0), ("bfs", 1)):
        for first in range(0, len(found), _EPOCHS):
            mine = found[first : first + _EPOCHS]
            took = float(np.median([one[question] for one in mine]))
            feed = float(np.median([one[f"{question} feed"] for one in mine]))
            cells = []
            for name in _NAMES:
                theirs = others[name][first : first + _EPOCHS]
                if len(theirs) < _EPOCHS or theirs[0]["answers"][place] is None:
                    cells.append("no answer")
                elif any(one["answers"][place] != two["answers"][place] for one, two in zip(mine, theirs, strict=True)):
                    cells.append("another answer")
                else:
                    other = float(np.median([one["apply"] + one[question] for one in theirs]))
                    cells.append(f"{1e3 * other:,.1f} ({other / took:.1f}x)")
            table.append([question, f"{mine[0]['share']:.2%}", f"{1e3 * took:.1f} ({1e3 * feed:.1f})", *cells])
    _harness.print_table(["result", "changed edges", "GoFFish, ms (feed)", *(f"{one}, ms" for one in _NAMES)], table)
    betweenness(given.baseline_python, given.limit)


if __name__ == "__main__":
    main()
