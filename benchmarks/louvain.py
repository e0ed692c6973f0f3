"""Louvain and Leiden against the peers: wall and CPU time, modularity, peak memory.

Run it with no arguments on a quiet machine; ``--quick`` takes the small graphs, ``--graphs NAME ...`` some,
``--scaling`` a larger one, ``--least-gain`` compares values of that option without peers. The peers run in the same
process run, round-robin with ours, with as many threads as each row says. Modularity is the mean over the repeats, each
with a seed of its own where the peer takes one.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _harness import geometric_mean, machine_line, print_table

import numpy as np  # isort: skip

import _graphs
from _peers import igraph_graph, networkit_graph, scipy_matrix

from goffish.algorithms.communities.communities import Communities
from goffish.algorithms.communities.divisions import modularity
from goffish.algorithms.communities.in_memory import louvain
from goffish.graph import Graph, to_networkx

GRAPHS = (
    "as-Caida", "email-Enron", "soc-Epinions1", "road-usroads", "perforated-700x700", "lfr-200k", "rmat-18",
)  # fmt: skip
QUICK = GRAPHS[:4]
NETWORKX_LIMIT = 100_000  # edges; above, networkx takes minutes
LEIDENALG_LIMIT = 1_000_000
#: Entries whose memory is measured, each in a process of its own.
MEASURED = ("goffish louvain 2T", "NetworKit PLM 2T", "igraph multilevel", "goffish leiden 2T")
TRUTH_SEEDS = 3
LEAST_GAINS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3)
LEAST_GAIN_GRAPHS = ("email-Enron", "perforated-700x700", "rmat-18")
#: At least so many times as fast as PLM on two threads (issue, figures).
PLM_TARGETS = {"lfr-200k": 2.3, "perforated-700x700": 7.5, "rmat-18": 7.7}


@dataclass
class Entry:
    """One way to find communities: a call with a seed that gives the membership."""

    family: str
    call: Callable[[int], Any]
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    found: list[Any] = field(default_factory=list)
    memory: float = 0.0


def entries(graph: Graph) -> dict[str, Entry]:
    """Ours and the peers', each on its own form of the graph, made beforehand."""
    import igraph
    import networkit as nk
    from sknetwork.clustering import Louvain

    theirs, matrix, kit = igraph_graph(graph), scipy_matrix(graph), networkit_graph(graph)

    def ours(threads: int, refine: str) -> Callable[[int], Any]:
        return lambda seed: louvain(graph, seed=seed, refine=refine, threads=threads).membership

    def networkit(algorithm: Any, threads: int) -> Callable[[int], Any]:
        def call(seed: int) -> Any:
            nk.setNumberOfThreads(threads)
            nk.setSeed(seed, False)
            found = algorithm(kit)
            found.run()
            return found.getPartition()

        return call

    def from_igraph(method: str, **options: Any) -> Callable[[int], Any]:
        def call(seed: int) -> Any:
            import random

            igraph.set_random_number_generator(random.Random(seed))
            return getattr(theirs, method)(**options)

        return call

    made = {
        "goffish louvain 1T": Entry("louvain", ours(1, "vertices")),
        "goffish louvain 2T": Entry("louvain", ours(2, "vertices")),
        "NetworKit PLM 1T": Entry("louvain", networkit(nk.community.PLM, 1)),
        "NetworKit PLM 2T": Entry("louvain", networkit(nk.community.PLM, 2)),
        "igraph multilevel": Entry("louvain", from_igraph("community_multilevel")),
        "scikit-network Louvain": Entry(
            "louvain", lambda seed: Louvain(random_state=seed, shuffle_nodes=True).fit_predict(matrix)
        ),
        "goffish leiden 1T": Entry("leiden", ours(1, "leiden")),
        "goffish leiden 2T": Entry("leiden", ours(2, "leiden")),
        "NetworKit ParallelLeiden 1T": Entry("leiden", networkit(nk.community.ParallelLeiden, 1)),
        "NetworKit ParallelLeiden 2T": Entry("leiden", networkit(nk.community.ParallelLeiden, 2)),
        "igraph leiden": Entry(
            "leiden", from_igraph("community_leiden", objective_function="modularity", n_iterations=2)
        ),
    }
    if graph.num_edges <= LEIDENALG_LIMIT:
        import leidenalg

        made["leidenalg"] = Entry(
            "leiden",
            lambda seed: leidenalg.find_partition(theirs, leidenalg.ModularityVertexPartition, seed=seed),
        )
    if graph.num_edges <= NETWORKX_LIMIT:
        import networkx

        slow = to_networkx(graph)
        made["networkx louvain"] = Entry(
            "louvain", lambda seed: networkx.community.louvain_communities(slow, seed=seed)
        )
    return made


def membership(found: Any, n: int) -> np.ndarray[Any, Any]:
    """The community of every vertex, whatever form a peer gives it in."""
    if isinstance(found, list):
        out = np.empty(n, np.int64)
        for number, members in enumerate(found):
            out[list(members)] = number
        return out
    for name in ("membership", "getVector"):
        if hasattr(found, name):
            value = getattr(found, name)
            return np.asarray(value() if callable(value) else value, np.int64)
    return np.asarray(found, np.int64)


def run(name: str, graph: Graph, repeats: int, budget: float) -> dict[str, Entry]:
    """Time every entry round-robin; a slow one is left out of further rounds when it has used up its budget."""
    made = entries(graph)
    for entry in made.values():
        if entry.call.__qualname__.startswith("entries.<locals>.ours"):
            entry.call(0)
    for seed in range(repeats):
        for entry in made.values():
            if sum(entry.walls) > budget:
                continue
            cpu, wall = time.process_time(), time.perf_counter()
            found = entry.call(seed)
            entry.walls.append(time.perf_counter() - wall)
            entry.cpus.append(time.process_time() - cpu)
            entry.found.append(modularity(graph, membership(found, graph.num_vertices)))
    for label in MEASURED:
        made[label].memory = peak_memory(name, label)
    return made


def peak_memory(name: str, label: str) -> float:
    """Bytes that one call adds to a fresh process which holds the graph, warmed up on a small one."""
    call = [sys.executable, __file__, "--memory", name, label]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _print_memory(name: str, label: str) -> None:
    small = _graphs.load("as-Caida")
    entries(small)[label].call(0)
    call = entries(_graphs.load(name))[label].call
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not serve the call
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    before = _status("VmRSS")
    call(0)
    print(_status("VmHWM") - before)


def _status(name: str) -> float:
    """A figure of this process in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return 1024.0 * float(line.split()[1])
    raise KeyError(name)


def report(name: str, graph: Graph, made: dict[str, Entry], ratios: dict[str, dict[str, float]]) -> None:
    """One table per graph, then the ratios that have a target."""
    print(f"\n### {name}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges\n")
    rows = []
    for label, entry in made.items():
        wall = min(entry.walls)
        rows.append([
            label, f"{wall * 1e3:.1f}", f"{statistics.median(entry.walls) * 1e3:.1f}", f"{min(entry.cpus) * 1e3:.1f}",
            f"{statistics.mean(entry.found):.5f}", f"{min(entry.found):.5f}", f"{max(entry.found):.5f}",
            f"{graph.num_edges / wall / 1e6:.1f}",
            f"{entry.memory / graph.num_edges:.0f}" if entry.memory else "-", str(len(entry.walls)),
        ])  # fmt: skip
    print_table(
        [
            "",
            "best ms",
            "median ms",
            "CPU ms",
            "modularity, mean",
            "least",
            "largest",
            "M edges/s",
            "peak B/edge",
            "runs",
        ],
        rows,
    )
    best = {label: min(entry.walls) for label, entry in made.items()}
    quality = {label: statistics.mean(entry.found) for label, entry in made.items()}
    louvains = [label for label, e in made.items() if e.family == "louvain" and not label.startswith("goffish")]
    leidens = [label for label, e in made.items() if e.family == "leiden" and not label.startswith("goffish")]
    ratio = {
        "PLM 2T": best["NetworKit PLM 2T"] / best["goffish louvain 2T"],
        "PLM 1T": best["NetworKit PLM 1T"] / best["goffish louvain 1T"],
        "igraph": best["igraph multilevel"] / best["goffish louvain 2T"],
        "leiden": min(best[label] for label in leidens) / best["goffish leiden 2T"],
        "2T/1T": best["goffish louvain 1T"] / best["goffish louvain 2T"],
        "dQ louvain": quality["goffish louvain 2T"] - max(quality[label] for label in louvains),
        "dQ leiden": quality["goffish leiden 2T"] - max(quality[label] for label in leidens),
        "B/edge": made["goffish louvain 2T"].memory / graph.num_edges,
    }
    ratios[name] = ratio
    target = f" (target {PLM_TARGETS[name]})" if name in PLM_TARGETS else ""
    print(
        f"\nLouvain on two threads: {ratio['PLM 2T']:.2f}x PLM on two{target}, "
        f"{ratio['igraph']:.1f}x igraph multilevel; Leiden: {ratio['leiden']:.2f}x the fastest Leiden peer.",
        flush=True,
    )


def agreement_with_truth(graph: Graph, truth: np.ndarray[Any, Any], made: dict[str, Entry]) -> None:
    """NMI with the planted communities."""
    from goffish.algorithms.communities.agreement import agreement

    rows = []
    for label, entry in made.items():
        found = [
            agreement(truth, membership(entry.call(seed), graph.num_vertices))["nmi"] for seed in range(TRUTH_SEEDS)
        ]
        rows.append([label, f"{statistics.mean(found):.5f}", f"{min(found):.5f}", f"{max(found):.5f}"])
    print(f"\nAgreement with the planted communities (normalised mutual information), {TRUTH_SEEDS} seeds:\n")
    print_table(["", "mean", "least", "largest"], rows)


def scaling(graph: Graph, repeats: int) -> None:
    """One and two threads on a larger graph, beside NetworKit."""
    made = {label: entry for label, entry in entries(graph).items() if label.startswith(("goffish", "NetworKit"))}
    for repeat in range(repeats):
        for label, entry in made.items():
            if repeat or label.startswith("goffish"):
                begun = time.perf_counter()
                entry.call(repeat)
                entry.walls.append(time.perf_counter() - begun)
    rows = []
    for label, entry in made.items():
        if label.endswith("2T"):
            one, two = min(made[label[:-2] + "1T"].walls), min(entry.walls)
            rate = graph.num_edges / two / 1e6
            rows.append([label[:-3], f"{one:.2f}", f"{two:.2f}", f"{one / two:.2f}", f"{rate:.1f}"])
    print(f"\n### rmat-20: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges\n")
    print_table(["", "1 thread, s", "2 threads, s", "ratio", "M edges/s"], rows)


def least_gains(names: Sequence[str], repeats: int) -> None:
    """Modularity and CPU time with several values of ``least_gain``, on one thread, each seed with all of them."""
    rows = []
    for name, graph in _graphs.load_available(names):
        for refine in ("vertices", "leiden"):
            times: dict[float, list[float]] = {least: [] for least in LEAST_GAINS}
            found: dict[float, list[Communities]] = {least: [] for least in LEAST_GAINS}
            for seed in range(repeats):
                for least in LEAST_GAINS:
                    begun = time.process_time()
                    answer = louvain(graph, seed=seed, refine=refine, threads=1, least_gain=least)
                    times[least].append(time.process_time() - begun)
                    found[least].append(answer)
            for least in LEAST_GAINS:
                quality = statistics.mean(answer.modularity for answer in found[least])
                count = statistics.mean(answer.num_communities for answer in found[least])
                cpu = f"{statistics.median(times[least]) * 1e3:.0f}"
                rows.append([name, refine, f"{least:g}", f"{quality:.5f}", f"{count:,.0f}", cpu])
    print_table(["graph", "refine", "least_gain", "modularity", "communities", "CPU ms"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the four real graphs only")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, help="these graphs only")
    parser.add_argument("--scaling", action="store_true", help="R-MAT of scale 20 only, ours and NetworKit")
    parser.add_argument("--least-gain", action="store_true", help="values of the option least_gain only, ours only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for one entry on one graph")
    parser.add_argument("--memory", nargs=2, metavar=("GRAPH", "ENTRY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        _print_memory(*options.memory)
        return
    if options.least_gain:
        print(machine_line())
        least_gains(options.graphs or LEAST_GAIN_GRAPHS, options.repeats)
        return
    names = options.graphs or (QUICK if options.quick else GRAPHS)
    print(machine_line(("networkit", "igraph", "leidenalg", "scikit-network", "networkx")))
    if options.scaling:
        scaling(_graphs.load("rmat-20"), options.repeats)
        return
    ratios: dict[str, dict[str, float]] = {}
    for name, graph in _graphs.load_available(names):
        made = run(name, graph, options.repeats, options.budget)
        report(name, graph, made, ratios)
        if name == "lfr-200k":
            agreement_with_truth(graph, _graphs.lfr_truth(), made)
    print("\n### Ratios\n")
    columns = list(next(iter(ratios.values())))
    rows = [[name, *(f"{ratio[c]:.4g}" for c in columns)] for name, ratio in ratios.items()]
    print_table(["graph", *columns], rows)
    mean = geometric_mean(ratio["PLM 2T"] for ratio in ratios.values())
    print(f"\nGeometric mean over PLM on two threads: {mean:.2f}x (target 5.5)")


if __name__ == "__main__":
    main()
