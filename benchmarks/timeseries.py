"""Programs over 50 instances: R1 to R5, T1 to T7, A1 and E1 of docs/specs/time-series.md, section 7.

    python benchmarks/timeseries.py [--only R1 T3 …] [--repeats 3]

Stores with hash-based latencies and the memes of an epidemic (docs/specs/time-series.md, section 7) are made on a
road-like and on a small-world graph; every figure is a run over a store, slices included, unless its heading says
otherwise. `temporal_peers.py` asks peers the same questions.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import _graphs
import _harness
import numpy as np
import pyarrow as pa
from engines import mpirun

import goffish as gf
from experiments.timeseries.generators import LATENCY, MEMES, latency_instances, meme_instances, spread
from goffish.gofs import build_layout
from goffish.gofs.series import InstanceData, SeriesSchema, compact_series, open_series, write_series
from goffish.graph import Graph, from_edges
from goffish.partition import partition_graph
from goffish.temporal.build import append_from_events, build_from_events
from goffish.temporal.event_paths import PathKind


def _rmat() -> Graph:
    src, dst, n = _graphs.cached("rmat_16", lambda: _graphs.rmat(16))
    return from_edges(src, dst, labels=np.arange(n))


WINDOW = 300
#: Latencies are drawn from 1 to this: the wave over the roads takes most of 50 windows of 300.
HIGHEST = 50
GRAPHS: dict[str, tuple[Callable[[], Graph], float]] = {
    "US roads": (lambda: _graphs.load("road-usroads"), 0.30),
    "R-MAT 16": (_rmat, 0.02),
}
#: For what shows only with more work in a superstep.
LARGE = {"grid 1000 x 900": (lambda: _graphs.load("grid-1000x900"), 0.30), "R-MAT 16": GRAPHS["R-MAT 16"]}
ALL = GRAPHS | LARGE


class Stores:
    """Stores by graph, partitions, instances and packing; made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graphs: dict[str, Graph] = {}

    def graph(self, name: str) -> Graph:
        if name not in self.graphs:
            self.graphs[name] = ALL[name][0]()
        return self.graphs[name]

    def source(self, name: str) -> int:
        """The first vertex of the largest component."""
        found = gf.connected_components(self.graph(name)).table
        component = found["component"].to_numpy()
        labels, counts = np.unique(component, return_counts=True)
        return int(found["vertex"].to_numpy()[component == labels[np.argmax(counts)]][0])

    def store(self, name: str, parts: int = 6, instances: int = 50, pack: int = 10, bins: int = 5) -> Path:
        path = self.folder / f"{name.replace(' ', '-')}-{parts}-{instances}-{pack}-{bins}"
        if path.exists():
            return path
        graph, share = self.graph(name), ALL[name][1]
        infected = spread(graph, instances, seeds=10, probability=share, duration=4)
        roads = latency_instances(graph.num_edges, instances, high=HIGHEST, window=WINDOW)
        memes = meme_instances(infected, instances, window=WINDOW)
        both = (InstanceData(a.start, a.end, {**a.values, **b.values}) for a, b in zip(roads, memes, strict=True))
        schema = SeriesSchema(vertex=MEMES.vertex, edge=LATENCY.edge)
        write_series(partition_graph(graph, parts, "metis"), path, schema, both, pack=pack, bins=bins, unit="1")
        path.with_suffix(".source").write_text(str(self.source(name)))
        return path


JOBS: dict[str, dict[str, Any]] = {
    "tdsp": {},
    "memes": {"meme": "mu"},
    "hashtags": {"hashtag": "mu"},
}


def source_of(path: Path) -> int:
    return int(path.with_suffix(".source").read_text())


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds, after one run that loads kernels, and the last answer."""
    call()
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds), found


def run(job: str, path: Path, **options: Any) -> Any:
    """One application over a store; paths begin at the vertex that a file beside the store names."""
    if job == "tdsp":
        options["source"] = source_of(path)
    prefetch, slots = options.pop("prefetch", True), options.pop("cache_slots", None)
    with open_series(path, prefetch=prefetch, cache_slots=slots) as series:
        return gf.run_series(job, series, engine="local", **{**JOBS[job], **options})


def r1(stores: Stores, repeats: int) -> None:
    """R1 and T2: TDSP over all instances against shortest paths over one, vertex-centric and subgraph-centric."""
    rows = []
    for name in GRAPHS:
        path = stores.store(name)
        seconds, found = timed(partial(run, "tdsp", path), repeats)
        graph = stores.graph(name)
        with open_series(path) as series:
            first = next(iter(series.instances())).edge("latency").to_numpy()
        source, target, _, _ = graph.edge_columns()
        weighted = from_edges(source, target, first.astype(np.float64), labels=graph.label_column())
        units, begin = {}, stores.source(name)
        owner = partition_graph(weighted, 6, "metis").owner()
        for unit in ("components", "vertex"):
            layout = build_layout(weighted, owner, 6, finder=unit)
            units[unit] = timed(partial(gf.run, "sssp", layout, engine="local", source=begin), 1)
        slow = units["vertex"][0]
        rows.append([
            name, f"{seconds:.2f}", str(found.summary["timesteps"]), str(found.summary["supersteps"]),
            f"{slow:.2f}", str(units["vertex"][1].stats.supersteps), f"{units['components'][0]:.3f}",
            str(units["components"][1].stats.supersteps), f"{slow / seconds:.2f}",
        ])  # fmt: skip
    print("\n### R1, R2, T2: TDSP over 50 instances, and shortest paths over the first one\n")
    header = [
        "graph", "TDSP s", "timesteps", "supersteps", "vertex-centric s", "supersteps", "subgraph-centric s",
        "supersteps", "vertex-centric / TDSP (at least 1)",
    ]  # fmt: skip
    _harness.print_table(header, rows)


_ON_RANKS = """
import json, statistics, sys, time
from mpi4py import MPI
import goffish as gf
from goffish.gofs.series import open_series
comm, seconds = MPI.COMM_WORLD, []
for _ in range(1 + int(sys.argv[4])):
    comm.Barrier()
    begun = time.perf_counter()
    with open_series(sys.argv[1]) as series:
        gf.run_series(sys.argv[2], series, engine="mpi", comm=comm, threads=1, **json.loads(sys.argv[3]))
    comm.Barrier()
    seconds.append(time.perf_counter() - begun)
if comm.rank == 0:
    print(statistics.median(seconds[1:]))
"""


def on_ranks(job: str, path: Path, ranks: int, repeats: int, **more: Any) -> float:
    """Median seconds of a job on the ranks of ``mpirun``, one thread each."""
    options = {**JOBS[job], **({"source": source_of(path)} if job == "tdsp" else {}), **more}
    command = [
        *mpirun(ranks), sys.executable, "-m", "mpi4py", "-c", _ON_RANKS, str(path), job, json.dumps(options),
        str(repeats),
    ]  # fmt: skip
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def r3(stores: Stores, repeats: int) -> None:
    """R3 and T1: three applications, two graphs, 3, 6 and 9 partitions, one thread or rank and two."""
    rows = []
    for name in LARGE:
        for parts in (3, 6, 9):
            path = stores.store(name, parts)
            cut = gf.open(str(path)).info.partitioner["edge_cut_share"]
            for job in JOBS:
                one, found = timed(partial(run, job, path, threads=1), repeats)
                two, _ = timed(partial(run, job, path, threads=2), repeats)
                ranks = [on_ranks(job, path, count, repeats) for count in (1, 2)]
                rows.append([
                    name, str(parts), f"{cut:.2%}", job, str(found.summary["timesteps"]),
                    str(found.summary["supersteps"]), f"{one:.2f}", f"{two:.2f}", f"{one / two:.2f}",
                    *(f"{seconds:.2f}" for seconds in ranks), f"{ranks[0] / ranks[1]:.2f}",
                ])  # fmt: skip
    print("\n### R3, T1: seconds of three applications\n")
    header = ["graph", "partitions", "cut", "application", "timesteps", "supersteps", "1 thread", "2 threads", "ratio",
              "1 rank", "2 ranks", "ratio"]  # fmt: skip
    _harness.print_table(header, rows)


def r4(stores: Stores, repeats: int) -> None:
    """R4 and T4: slices that a scan of all instances reads, against the formula, by packing, bins and cache."""
    rows = []
    for pack, bins in ((1, 5), (5, 5), (10, 5), (25, 5), (50, 5), (10, 1), (10, 20), (10, 40)):
        path = stores.store("US roads", 6, 50, pack, bins)
        for slots in (0, 14, bins):
            with open_series(path, cache_slots=slots) as series:
                has = series.elements(0).num_bins
                begun = time.perf_counter()
                # An own slice for every query where nothing is kept: as many as there are bins and instances.
                for i in range(len(series)):
                    for number in range(has):
                        series.values(0, i, "edge.latency", [number])
                seconds = time.perf_counter() - begun
                found = series.counters()
            least = -(-50 // pack) * has
            wanted = 50 * has if slots < has else least
            exact = "yes" if found.slices_read == wanted else "NO"
            rows.append([
                str(pack), str(has), str(slots), f"{found.slices_read:,}", f"{wanted:,}", exact,
                f"{found.bytes_read / 1e6:.1f}", f"{seconds:.2f}",
            ])  # fmt: skip
    print("\n### R4, T4: one partition of the US roads, all 50 instances of one attribute, bin by bin\n")
    header = ["pack", "bins", "cache slots", "slices read", "formula", "exact", "MB read", "seconds"]
    _harness.print_table(header, rows)


_PEAK = """
import json, sys
import goffish as gf
gf.run_series(sys.argv[2], sys.argv[1], engine="local", threads=2, **json.loads(sys.argv[3]))
# Not ru_maxrss: a process inherits that of the one that started it.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def r5(stores: Stores, repeats: int) -> None:
    """R5: the largest memory of a process that goes over 10 and over 200 instances."""
    rows = []
    for job in ("memes", "hashtags"):
        peaks = []
        for instances in (10, 200):
            path = stores.store("US roads", 6, instances)
            command = [sys.executable, "-c", _PEAK, str(path), job, json.dumps(JOBS[job])]
            peaks.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1024)
        rows.append([job, *(f"{peak:.0f}" for peak in peaks), f"{peaks[1] / peaks[0]:.2f}"])
    print("\n### R5: peak memory in MiB, interpreter and libraries included\n")
    _harness.print_table(["application", "10 instances", "200 instances", "ratio"], rows)


def t3(stores: Stores, repeats: int) -> None:
    """T3: seconds of single timesteps, with and without prefetch."""
    rows = []
    path = stores.store("US roads")
    for prefetch in (False, True):
        runs = []
        for _ in range(repeats + 1):
            ended: list[float] = []
            with open_series(path, prefetch=prefetch) as series:
                begun = time.perf_counter()
                for i in range(len(series)):
                    for p in range(series.num_partitions):
                        series.values(p, i, "edge.latency")
                    time.sleep(0.005)  # a program's work on the timestep, in which a prefetch can read
                    ended.append(time.perf_counter())
                stall = series.counters().stall_seconds
            runs.append((np.diff([begun, *ended]) - 0.005, stall))
        each = np.median([r for r, _ in runs[1:]], axis=0) * 1e3
        heads = each[::10]
        others = np.delete(each, np.arange(0, 50, 10))
        rows.append([
            "with" if prefetch else "without", f"{np.median(heads):.2f}", f"{np.max(heads[1:]):.2f}",
            f"{np.median(others):.2f}", f"{statistics.median(s for _, s in runs[1:]) * 1e3:.1f}",
        ])  # fmt: skip
    print("\n### T3: reading the latencies of the US roads, milliseconds a timestep, packs of 10\n")
    header = ["prefetch", "first of a pack, median", "slowest but the very first", "others, median", "waited in all"]
    _harness.print_table(header, rows)


def t5(stores: Stores, repeats: int) -> None:
    """T5: where the wave is: newly reached vertices of every tenth timestep, by partition."""
    for name in GRAPHS:
        path = stores.store(name)
        found = run("tdsp", path)
        store = gf.open(str(path))
        owner = np.empty(store.num_vertices, np.int64)
        owner[store.vertex_ids()] = np.repeat(np.arange(store.num_partitions), store.info.vertices)
        step = found.table["timestep"].to_numpy(zero_copy_only=False)
        rows = []
        last = int(np.nanmax(step))
        for t in sorted({0, *range(0, last + 1, max(1, last // 8)), last}):
            there = np.bincount(owner[step == t], minlength=store.num_partitions)
            rows.append([str(t), *(f"{n:,}" for n in there), f"{there.sum():,}"])
        print(f"\n### T5: vertices of {name} that became final, by timestep and partition\n")
        _harness.print_table(["timestep", *(f"p{p}" for p in range(store.num_partitions)), "all"], rows)


def t6(stores: Stores, repeats: int) -> None:
    """T6: how much of their time threads wait, with as many partitions as threads and four times as many."""
    rows = []
    for name in GRAPHS:
        for parts in (2, 8):
            path = stores.store(name, parts)
            for job in ("tdsp", "hashtags"):
                found = run(job, path, threads=2)
                phases = found.stats.phases
                whole = sum(phases.values())
                rows.append([
                    name, job, str(parts), f"{phases['compute'] / whole:.0%}", f"{phases['exchange'] / whole:.0%}",
                    f"{found.stats.idle_share:.0%}", f"{whole:.2f}",
                ])  # fmt: skip
    print("\n### T6: shares of the time, two threads\n")
    header = ["graph", "application", "partitions", "compute", "messages", "threads idle in compute", "seconds"]
    _harness.print_table(header, rows)


def t7(stores: Stores, repeats: int) -> None:
    """T7: timesteps of hashtag aggregation side by side, on threads and on groups of ranks, one thread each."""
    path = stores.store("grid 1000 x 900")
    rows = []
    base, one_rank = 0.0, 0.0
    for count in (1, 2, 4, 8):
        seconds, _ = timed(partial(run, "hashtags", path, temporal_parallelism=count, threads=count), repeats)
        ranks = on_ranks("hashtags", path, count, repeats, temporal_parallelism=count) if count <= 2 else None
        base, one_rank = base or seconds, one_rank or ranks or 0.0
        rows.append([
            str(count), f"{seconds:.2f}", f"{base / seconds:.2f}",
            *(("", "") if ranks is None else (f"{ranks:.2f}", f"{one_rank / ranks:.2f}")),
        ])  # fmt: skip
    print("\n### T7: hashtag aggregation on the grid of 900,000 vertices, timesteps side by side, one thread each\n")
    _harness.print_table(["side by side", "threads", "speed-up", "ranks", "speed-up"], rows)


def a1(stores: Stores, repeats: int) -> None:
    """A1: one more window, in which 1 % new edges appear, beside building the series anew from all events."""
    for scale, windows in ((16, 50), (17, 10)):
        _append(stores.folder / f"append-{scale}", repeats, scale, windows)


def _append(folder: Path, repeats: int, scale: int, windows: int) -> None:
    src, dst, _ = _graphs.rmat(scale)
    rng = np.random.default_rng(0)
    ends = np.unique(np.sort(np.stack((src, dst), axis=1), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    rng.shuffle(ends)
    old, fresh = np.split(ends, [-(len(ends) // 100)])
    again = old[rng.integers(0, len(old), len(old))]
    first, last = np.concatenate((old, again)), np.concatenate((fresh, old[: len(fresh)]))

    def table(rows: np.ndarray, times: np.ndarray) -> pa.Table:
        return pa.table({"source": rows[:, 0], "target": rows[:, 1], "timestamp": times})

    before = table(first, rng.integers(0, windows, len(first)))
    more = table(last, np.full(len(last), windows))
    every, path = pa.concat_tables([before, more]), folder / "appended"
    options: dict[str, Any] = {"window": 1, "start": 0, "time_unit": "1", "parts": 4}
    build_from_events(before, folder / "before", **options)
    times: dict[str, list[float]] = {"rebuild": [], "append": [], "compact": []}
    cpu: dict[str, list[float]] = {name: [] for name in times}
    for _ in range(repeats + 1):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder / "before", path)
        calls = {
            "rebuild": lambda: build_from_events(every, folder / "rebuilt", **options),
            "append": lambda: append_from_events(path, more, time_unit="1"),
            "compact": lambda: compact_series(path),
        }
        for name, call in calls.items():
            begun, used = time.perf_counter(), sum(os.times()[:4])
            call()
            times[name].append(time.perf_counter() - begun)
            cpu[name].append(sum(os.times()[:4]) - used)
    rows = []
    for name in times:
        row = [name]
        for kind in (times, cpu):
            value, whole = (statistics.median(kind[one][1:]) for one in (name, "rebuild"))
            row += [f"{value:.2f}", f"{value / whole:.1%}"]
        rows.append(row)
    print(f"\n### A1: {len(ends):,} edges of R-MAT {scale}, {windows} windows and one with 1 % new edges\n")
    _harness.print_table(["", "seconds (median)", "of a rebuild", "processor seconds (median)", "of a rebuild"], rows)


def e1(stores: Stores, repeats: int) -> None:
    """E1: temporal paths and triangles of a store in 4 partitions, on the local engine, beside columns in memory."""
    src, dst, _ = _graphs.rmat(15)
    rng = np.random.default_rng(0)
    twice = rng.integers(0, src.size, 2 * src.size)
    u, v, t = src[twice], dst[twice], np.sort(rng.integers(0, 10_000, twice.size))
    table = pa.table({"source": u, "target": v, "timestamp": t})
    rows, start = [], int(np.bincount(u).argmax())
    for windows in (10, 50):
        path = stores.folder / f"events-{windows}"
        build_from_events(
            table, path, window=10_000 // windows, start=0, time_unit="1", directed=True, self_loops="keep", parts=4,
            attributes={"times": ("timestamp", "list")},
        )  # fmt: skip
        kinds: tuple[PathKind, ...] = ("earliest-arrival", "latest-departure", "fastest", "fewest-hops")
        calls: dict[str, tuple[str, dict[str, Any], Callable[[], Any]]] = {
            kind: ("temporal-paths", {"vertex": start, "kind": kind}, partial(gf.temporal_paths, u, v, t, start, kind))
            for kind in kinds
        }
        within = {"within": 10}
        calls["triangles"] = ("temporal-triangles", within, partial(gf.temporal_triangles, u, v, t, **within))
        for name, (application, options, whole) in calls.items():
            there, found = timed(partial(gf.run_series, application, path, engine="local", **options), repeats)
            here, _ = timed(whole, repeats)
            supersteps = int(np.sum(found.timesteps["supersteps"]))
            rows.append([name, str(windows), str(supersteps), f"{there:.2f}", f"{here:.2f}", f"{there / here:.1f}"])
    print(f"\n### E1: {twice.size:,} events on edges of R-MAT 15\n")
    head = ["", "instances", "supersteps", "store, 4 partitions (s, median)", "columns in memory (s, median)", "ratio"]
    _harness.print_table(head, rows)


PARTS: dict[str, Callable[[Stores, int], None]] = {
    "R1": r1, "R3": r3, "R4": r4, "R5": r5, "T3": t3, "T5": t5, "T6": t6, "T7": t7, "A1": a1, "E1": e1,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), help="default: all")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(_harness.machine_line())
    with tempfile.TemporaryDirectory() as folder:
        stores = Stores(Path(folder))
        for name in options.only:
            PARTS[name](stores, options.repeats)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
