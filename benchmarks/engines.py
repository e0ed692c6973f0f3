"""The same jobs on every engine, and against vertex-centric peers: ``python benchmarks/engines.py [--quick]``.

Five tables: every job on every engine, with the same answer to the byte or the benchmark ends; two ranks against one on
larger graphs; the peers (networkx, and GraphX in the version of Spark) beside the engines; GraphFrames, whose jars
include another GraphX, beside the Spark engine, if GOFFISH_GRAPHFRAMES_JARS names them; and what a cost model that is
fitted from these runs says of larger graphs and clusters. A time is that of ``goffish.run`` on a store that is
partitioned already (opening slices included), in a process that has run the job once before.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _cost_model as model
import _graphs
import _harness
import numpy as np
from _engine_jobs import JOBS

from goffish.graph import Graph, from_edges
from goffish.graph.io import read
from goffish.partition import partition_graph

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
PARTS = 8
#: Published makespans on California roads, vertex-centric over subgraph-centric (Simmhan et al. 2014).
PUBLISHED = {"components": 81.0, "sssp": 32.0, "pagerank": 4.0}

GRAPHS: dict[str, Callable[[], Graph]] = {
    "email-Enron": lambda: _graphs.load("email-Enron"),
    "road-california": lambda: read(_graphs.data_file("graphs/road-california-major.txt.gz")).unweighted(),
    "usroads": lambda: _graphs.load("road-usroads"),
    "rmat-16": lambda: _from_edges("rmat_16", lambda: _graphs.rmat(16)),
    "lfr-200k": lambda: _graphs.load("lfr-200k"),
    "perforated-700x700": lambda: _graphs.load("perforated-700x700"),
    "rmat-18": lambda: _graphs.load("rmat-18"),
}


def _from_edges(name: str, maker: Callable[[], _graphs.Edges]) -> Graph:
    src, dst, n = _graphs.cached(name, maker)
    return from_edges(src, dst, labels=np.arange(n))


@dataclass(frozen=True)
class Engine:
    """One way to run a job: the launcher, and the engine's name and threads for `_engine_jobs`."""

    name: str
    launcher: tuple[str, ...]
    engine: str
    threads: int


def mpirun(ranks: int) -> tuple[str, ...]:
    """The launcher of this environment, free to put as many ranks on a processor as it likes."""
    program = str(BIN / "mpirun")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    root = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none") if "Open MPI" in version else ()
    return (program, *root, "-n", str(ranks))


def engines(names: Sequence[str]) -> list[Engine]:
    """The engines that are installed, the one that the others are measured against first."""
    found = [Engine(f"local, {t} thread{'s' * (t > 1)}", (), "local", t) for t in (1, 2)]
    if (BIN / "mpirun").exists():
        found += [Engine(f"MPI, {r} rank{'s' * (r > 1)}", mpirun(r), "mpi", 1) for r in (1, 2)]
    found.append(Engine("Spark, local[2]", (), "spark", 2))
    return [engine for engine in found if engine.engine in names]


def run(engine: Engine, store: Path, jobs: Sequence[str], repeats: int) -> dict[str, dict[str, Any]]:
    """Run jobs in one process of an engine; what `_engine_jobs` printed, by job."""
    command = [
        *engine.launcher, sys.executable, str(HERE / "_engine_jobs.py"), engine.engine, str(engine.threads),
        str(repeats), str(store), *jobs,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode:
        sys.exit(f"{engine.name}: {done.stderr.strip()[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["job"]: line for line in lines}


def on_engines(
    graph: str, store: Path, ways: Sequence[Engine], jobs: Sequence[str], repeats: int
) -> dict[tuple[str, str], dict[str, Any]]:
    """A table of median seconds of a graph's jobs; what was measured, by engine and job."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for way in ways:
        for job, measures in run(way, store, jobs, repeats).items():
            found[way.name, job] = {**measures, "engine": way.engine, "graph": graph}
    rows, steps = [], []
    for job in jobs:
        measures = [found[way.name, job] for way in ways]
        if len({t["digest"] for t in measures}) > 1 or len({t["supersteps"] for t in measures}) > 1:
            sys.exit(f"{job} of {graph}: the engines do not agree")
        seconds = {way.name: statistics.median(t["seconds"]) for way, t in zip(ways, measures, strict=True)}
        ranks = [seconds.get(f"MPI, {name}") for name in ("1 rank", "2 ranks")]
        ratio = f"{ranks[0] / ranks[1]:.2f}" if ranks[0] and ranks[1] else "-"
        rows.append([job, str(measures[0]["supersteps"]), *(f"{s:.3f}" for s in seconds.values()), ratio])
        steps.append([job, *(f"{1e3 * per_superstep(t):.2f}" for t in measures)])
    print(f"\n### {graph}: seconds on {PARTS} partitions\n")
    _harness.print_table(["job", "supersteps", *(way.name for way in ways), "1 rank / 2 ranks"], rows)
    print("\nMilliseconds a superstep, compute and exchange, without the start of the job:\n")
    _harness.print_table(["job", *(way.name for way in ways)], steps)
    sys.stdout.flush()
    return found


def per_superstep(measures: dict[str, Any]) -> float:
    """Seconds of a superstep in the last run."""
    return (measures["phases"]["compute"] + measures["phases"]["exchange"]) / max(1, measures["supersteps"])


def networkx_jobs(graph: Graph) -> dict[str, float]:
    """Seconds of networkx, once."""
    import networkx as nx

    from goffish.graph import to_networkx

    peer = to_networkx(graph)
    source = next(iter(peer))
    calls: dict[str, Callable[[], Any]] = {
        "components": lambda: list(nx.connected_components(peer)),
        "sssp": lambda: nx.single_source_shortest_path_length(peer, source),
        "pagerank": lambda: nx.pagerank(peer),
        "label propagation": lambda: list(nx.community.label_propagation_communities(peer)),
    }
    seconds = {}
    for name, call in calls.items():
        begun = time.perf_counter()
        call()
        seconds[name] = time.perf_counter() - begun
    return seconds


def against_peers(graph: str, measured: dict[tuple[str, str], dict[str, Any]], limit: float) -> None:
    """A table of the vertex-centric peers beside the engines."""
    from _graphx import graphx_seconds

    made = GRAPHS[graph]()
    peers = {"networkx": networkx_jobs(made), "GraphX": graphx_seconds(made, limit)}
    ways = [name for name in ("local, 2 threads", "MPI, 2 ranks", "Spark, local[2]") if (name, "sssp") in measured]
    rows = []
    same = [(job, job) for job in PUBLISHED]
    for job, mine in [*same, ("label propagation", "label-propagation"), ("label propagation", "louvain")]:
        slow = peers["GraphX"].get(job)
        ours = [statistics.median(measured[way, mine]["seconds"]) if (way, mine) in measured else None for way in ways]
        cells = [_cell(s, limit, "{:.3f}") for s in (peers["networkx"].get(job), slow, *ours)]
        ratios = [_cell(slow / s, limit / s, "{:.1f}") if slow and s else "-" for s in ours]
        rows.append(
            [
                f"{job}; ours: {mine}" if mine == "louvain" else job,
                *cells,
                *ratios,
                f"{PUBLISHED[job]:g}" if job in PUBLISHED else "-",
            ]
        )
    print(f"\n### {graph}: seconds beside vertex-centric peers\n")
    header = ["job", "networkx", "GraphX, local[2]", *ways, *(f"GraphX / {way}" for way in ways), "published ratio"]
    _harness.print_table(header, rows)
    sys.stdout.flush()


def against_graphframes(graph: str, store: Path, limit: float) -> None:
    """A table of GraphFrames beside the Spark engine."""
    import _graphframes

    if _graphframes.version() is None or importlib.util.find_spec("graphframes") is None:
        print(f"\n(GraphFrames skipped: graphframes-py is missing, or {_graphframes.JARS} does not name its two jars)")
        return
    rows = []
    for job, (ours, theirs) in _graphframes.graphframes_seconds(store, limit, master="local[2]").items():
        ratio = "-" if float("inf") in (ours, theirs) else f"{theirs / ours:.1f}"
        rows.append([job, *(_cell(seconds, limit, "{:.3f}") for seconds in (theirs, ours)), ratio])
    print(f"\n### {graph}: seconds of GraphFrames and of the Spark engine in one session, local[2]\n")
    name = f"GraphFrames {_graphframes.version()}"
    _harness.print_table(["job", name, "Spark engine", f"{name} / Spark engine"], rows)
    sys.stdout.flush()


def _cell(figure: float | None, limit: float, form: str) -> str:
    """A figure; "> limit" for what was given up."""
    if figure is None:
        return "-"
    return f"> {form.format(limit)}" if figure == float("inf") else form.format(figure)


def predictions(runs: Sequence[dict[str, Any]], store_bytes: float) -> None:
    """The fitted costs, and what they make of larger graphs and clusters."""
    print("\n### Cost model\n")
    costs = {}
    rows = []
    for engine in ("local", "mpi", "spark"):
        taken = [r for r in runs if r["engine"] == engine and (engine == "local" or r["workers"] == 2)]
        if not taken:
            continue
        for r in taken:
            r["overhead"] = max(0.0, min(r["seconds"]) - r["busy"] / r["workers"])
        costs[engine] = model.fit(taken)
        errors = [
            abs(costs[engine].latency * r["supersteps"] + costs[engine].per_byte * r["remote_bytes"] - r["overhead"])
            / min(r["seconds"])
            for r in taken
        ]
        rows.append([
            engine, f"{1e3 * costs[engine].latency:.2f}", f"{1e9 * costs[engine].per_byte:.2f}",
            f"{100 * statistics.median(errors):.0f} %", str(len(taken)),
        ])  # fmt: skip
    header = ["engine", "ms a superstep", "ns a remote byte", "median error, of the run", "runs"]
    _harness.print_table(header, rows)
    arcs = {}
    for job in ("pagerank", "components", "louvain"):
        same = [r for r in runs if r["engine"] == "local" and r["job"] == job]
        if same:
            arcs[job] = statistics.median(r["busy"] / (r["arcs"] * r["supersteps"]) for r in same)
    bytes_each = statistics.median(
        r["remote_bytes"] / r["remote"] for r in runs if r["job"] == "pagerank" and r["remote"] > 0
    )
    costs = ", ".join(f"{job} {1e9 * seconds:.1f}" for job, seconds in arcs.items())
    print(f"\nNanoseconds an arc and superstep: {costs}. Bytes a message (PageRank): {bytes_each:.1f}. ")
    print(f"Bytes an arc in a store: {store_bytes:.1f}.\n")
    rows = []
    for graph in model.GRAPHS:
        for workers in model.WORKERS:
            cells = []
            for engine in ("mpi", "spark"):
                if engine in costs and "pagerank" in arcs:
                    parts = model.predict(graph, workers, costs[engine], 20, arcs["pagerank"], bytes_each)
                    cells.append(f"{sum(parts):,.1f} ({', '.join(f'{p:,.1f}' for p in parts)})")
                else:
                    cells.append("-")
            rows.append([graph.name, str(workers), f"{graph.arcs * store_bytes / workers / 2**30:,.2f}", *cells])
    title = "PageRank on {}, seconds (latency, messages, compute)"
    header = ["graph", "workers", "GiB of store each", title.format("MPI"), title.format("Spark")]
    _harness.print_table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one small graph, once, without the peers")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS)[:5], choices=list(GRAPHS))
    parser.add_argument("--engines", nargs="+", default=["local", "mpi", "spark"], choices=["local", "mpi", "spark"])
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--peers", nargs="*", default=["road-california", "email-Enron"], choices=list(GRAPHS))
    parser.add_argument("--peer-limit", type=float, default=600.0, help="seconds after which a peer is given up")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    names, repeats = (["road-california"], 1) if given.quick else (given.graphs, given.repeats)
    print(_harness.machine_line(["pyarrow", "mpi4py", "pyspark", "networkx"]))
    runs: list[dict[str, Any]] = []
    per_arc = []
    with tempfile.TemporaryDirectory(prefix="goffish-bench-") as place:
        for name in names:
            store = Path(place) / name
            # Degrees as weights: ranks with as many arcs each, also where a few vertices have most of them.
            partition_graph(GRAPHS[name](), PARTS, vertex_weights="degree").save(str(store))
            measured = on_engines(name, store, engines(given.engines), given.jobs, repeats)
            for (way, _), measures in measured.items():
                runs.append({**measures, "workers": 1 if way.endswith(("thread", "rank")) else 2})
            size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
            per_arc.append(size / next(iter(measured.values()))["arcs"])
            if name in given.peers and not given.quick:
                against_peers(name, measured, given.peer_limit)
                if "spark" in given.engines:
                    against_graphframes(name, store, given.peer_limit)
    if "pagerank" in given.jobs and "local" in given.engines:
        predictions(runs, statistics.median(per_arc))
    else:
        print("\n(no cost model: it is fitted from PageRank on the local engine and the others)")


if __name__ == "__main__":
    main()
