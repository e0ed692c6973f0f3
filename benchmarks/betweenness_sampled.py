"""Sampled betweenness against NetworKit's KadabraBetweenness at the same guarantee, and against the exact values.

Both get the same epsilon and delta, two threads each, and run round-robin. NetworKit's scores of undirected graphs are
twice the share of ordered pairs, which is what its epsilon bounds, so they are halved. First all vertices at once with
``--epsilon``; then the top hundredth with ``--top-epsilon``, where NetworKit also wants the order within the top.
Run it with no arguments on a quiet machine; ``--graphs NAME ...`` takes some.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _harness import geometric_mean, machine_line, print_table

import numpy as np  # isort: skip

from _peers import networkit_graph
from betweenness import GRAPHS
from numpy.typing import NDArray

from goffish.algorithms.betweenness.accuracy import largest_error, rank_correlation, top_recall
from goffish.algorithms.betweenness.in_memory import betweenness
from goffish.algorithms.betweenness.sampling import estimate_betweenness
from goffish.graph import Graph

NAMES = ("PGPgiantcompo", "as-Caida", "email-Enron", "rmat-13", "lfr-10k", "road-california-major")
DELTA, THREADS = 0.1, 2
#: For the top; a tenth of it would take NetworKit a quarter of an hour, and the sets are found with this.
TOP_EPSILON = {"road-california-major": 0.01}
_RECALL, _SPEED = 0.95, 1.0

HEADER = [
    "graph (epsilon)", "", "median s", "runs", "samples", "certified error", "largest error", "recall of top 1 %",
    "Kendall tau",
]  # fmt: skip


@dataclass
class Runs:
    """Times and figures of one library on one graph."""

    call: Callable[[int], Any]
    walls: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    certified: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    taus: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.walls)

    @property
    def recall(self) -> float:
        return statistics.median(self.recalls)

    def row(self, graph: str, name: str) -> list[str]:
        def shown(values: list[float], pattern: str) -> str:
            return format(statistics.median(values), pattern) if values else "–"

        return [
            graph, name, f"{self.median:.3f}", str(len(self.walls)), f"{statistics.median(self.samples):,.0f}",
            shown(self.certified, ".4f"), f"{max(self.errors):.4f}" if self.errors else "–",
            f"{self.recall:.3f} (least {min(self.recalls):.3f})", shown(self.taus, ".3f"),
        ]  # fmt: skip


def _ours(graph: Graph, epsilon: float, top: int | None, seed: int) -> Any:
    return estimate_betweenness(graph, epsilon, DELTA, top=top, seed=seed, threads=THREADS)


def _theirs(kit: Any, epsilon: float, top: int | None, seed: int) -> Any:
    import networkit as nk

    nk.setSeed(seed, False)
    found = nk.centrality.KadabraBetweenness(kit, epsilon, DELTA, False, top or 0)
    found.run()
    return found


def _scores(found: Any, n: int) -> NDArray[np.float64]:
    """NetworKit's scores by vertex; those that it does not tell are 0."""
    scores = np.zeros(n)
    scores[np.array(found.topkNodesList(), np.int64)] = np.array(found.topkScoresList()) / 2.0
    return scores


def measure(graph: Graph, epsilon: float, *, only_top: bool, repeats: int, budget: float) -> dict[str, Runs]:
    """Run both on one graph; one that has used up its budget has had its last round."""
    n = graph.num_vertices
    k = max(1, round(n / 100))
    top = k if only_top else None
    truth = betweenness(graph, threads=THREADS).scores / (n * (n - 1) / 2.0)
    kit = networkit_graph(graph)
    made = {
        "goffish": Runs(lambda seed: _ours(graph, epsilon, top, seed)),
        "NetworKit": Runs(lambda seed: _theirs(kit, epsilon, top, seed)),
    }
    _ours(graph, 0.1, top, 0)
    for seed in range(1, repeats + 1):
        for name, runs in made.items():
            if sum(runs.walls) > budget:
                continue
            begun = time.perf_counter()
            found = runs.call(seed)
            runs.walls.append(time.perf_counter() - begun)
            if name == "goffish":
                score = found.score
                runs.samples.append(found.samples)
                runs.certified.append(float(max(found.below.max(), found.above.max())))
            else:
                score = _scores(found, n)
                runs.samples.append(found.getNumberOfIterations())
            runs.recalls.append(top_recall(truth, score, k))
            if not only_top or name == "goffish":
                runs.errors.append(largest_error(truth, score))
                runs.taus.append(rank_correlation(truth, score))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--epsilon", type=float, default=0.01)
    parser.add_argument("--top-epsilon", type=float, default=0.001)
    parser.add_argument("--only", choices=("all", "top"), help="one of the two parts")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds after which a library runs no more rounds")
    options = parser.parse_args()
    import networkit as nk

    nk.setNumberOfThreads(THREADS)
    print(machine_line(("networkit",)))
    for only_top, epsilon in ((False, options.epsilon), (True, options.top_epsilon)):
        if options.only == ("all" if only_top else "top"):
            continue
        print(f"\n### {'Top 1 %' if only_top else 'All vertices'}: epsilon {epsilon:g}, delta {DELTA:g}\n")
        found: dict[str, dict[str, Runs]] = {}
        for name in options.graphs:
            try:
                graph = GRAPHS[name]()
            except FileNotFoundError as error:
                print(f"(skipped {name}: no {error.filename}; set GOFFISH_DATA)")
                continue
            wanted = max(epsilon, TOP_EPSILON.get(name, 0.0)) if only_top else epsilon
            found[name] = measure(
                graph, wanted, only_top=only_top, repeats=options.repeats, budget=options.budget
            )  # fmt: skip
            print_table(HEADER, [runs.row(f"{name} ({wanted:g})", label) for label, runs in found[name].items()])
        ratios = {name: runs["NetworKit"].median / runs["goffish"].median for name, runs in found.items()}
        print("\nTimes as fast as NetworKit (target 1): " + ", ".join(f"{k} {v:.2f}" for k, v in ratios.items()))
        print(f"Geometric mean {geometric_mean(ratios.values()):.2f}, slowest {min(ratios.values()):.2f}")
        if only_top:
            least = min(runs["goffish"].recall for runs in found.values())
            print(f"Least median recall of ours: {least:.3f} (target {_RECALL:g})")
        print("All at least as fast" if min(ratios.values()) >= _SPEED else "Slower somewhere")


if __name__ == "__main__":
    main()
