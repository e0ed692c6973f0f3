"""Questions about time-stamped edges against Raphtory and networkx-temporal: ``python benchmarks/temporal_peers.py``.

Every peer runs in a process of its own, round-robin with ours, on the same events; ``--peer-python`` names the Python
of another environment they are installed in. Answers are checked to be equal before anything is timed; a peer that
gives another answer is named and has no row. Every answer has a limit of its own (`LIMITS`, or ``--limit`` for all):
beyond it the peer's process is killed and started anew, and how often that happened is told below the table ("no answer
in N s (k of m tries)") and in the JSON; the median is over the answers that came, so it flatters the peer then.
Raphtory's temporally_reachable_nodes takes from a fraction of a second to for ever on the same events and source. The
rows ask different things, so there is no mean over them.

What is timed: the peer's question on a graph that it has loaded before, without bringing its answer to Python. Paths
and triangles of GoFFish take the plain columns, so numbering the vertices and sorting the events is in its time;
components and PageRank read the instances from the store
(`goffish.run_series`). What is made beforehand is in the columns ``ready``.
Raphtory has no call for triangles alone: its call counts all 40 motifs of two and three vertices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _harness import machine_line, print_table

import numpy as np  # isort: skip

import _graphs
import pyarrow as pa
from _temporal_peers import DAMPING, ITERATIONS, OTHERS, QUESTIONS, TOLERANCE, TRIANGLES, Answer, Peer, start

from goffish.gofs.series import open_series
from goffish.temporal.api import run_series
from goffish.temporal.event_paths import temporal_paths
from goffish.temporal.events import build_from_events, read_events
from goffish.temporal.motifs import temporal_triangles

DAY = 86_400
ATTEMPTS = 3
PATHS = ("earliest-arrival", "latest-departure", "fewest-hops")
#: Seconds for one answer of a peer.
LIMITS = {"triangles": 300.0, "components": 120.0, "pagerank": 120.0, **dict.fromkeys(PATHS, 20.0)}


@dataclass(frozen=True)
class Events:
    """Time-stamped edges without loops, the window of triangles, and the length of an instance."""

    columns: Answer
    within: int
    window: int

    @property
    def count(self) -> int:
        return int(self.columns["time"].size)

    def borders(self) -> list[int]:
        when = self.columns["time"]
        first = int(when.min()) // self.window * self.window
        return list(range(first, int(when.max()) + self.window + 1, self.window))


def college() -> Events:
    """SNAP CollegeMsg: triangles within a day, instances of a week."""
    path = _graphs.data_file("temporal/collegemsg.txt.gz")
    if not path.exists():
        raise FileNotFoundError(2, "no such file", path.name)
    table = read_events(path)
    names = (("source", "source"), ("target", "target"), ("time", "timestamp"))
    columns = {ours: np.asarray(table.column(theirs)).astype(np.int64) for ours, theirs in names}
    apart = columns["source"] != columns["target"]
    return Events({name: column[apart] for name, column in columns.items()}, within=DAY, window=7 * DAY)


def synthetic(count: int, seed: int = 17) -> Events:
    """Twenty events for each vertex: some vertices busy, two thirds of the events among near numbers; no ties."""
    rng = np.random.default_rng(seed)
    n = count // 20
    source = (n * rng.random(count) ** 1.5).astype(np.int64)
    near = (source + 1 + (40 * rng.random(count) ** 2).astype(np.int64)) % n
    target = np.where(rng.random(count) < 2 / 3, near, (n * rng.random(count) ** 1.5).astype(np.int64))
    target = np.where(target == source, (source + 1) % n, target)
    when = np.cumsum(rng.integers(1, 4, count))
    return Events(
        {"source": source, "target": target, "time": when}, within=count // 50, window=int(when[-1]) // 10 + 1
    )


DATA: dict[str, Callable[[], Events]] = {
    "CollegeMsg": college,
    "synthetic 200 k": lambda: synthetic(200_000),
    "synthetic 1 M": lambda: synthetic(1_000_000),
    "synthetic 5 M": lambda: synthetic(5_000_000),
}
QUICK = ("CollegeMsg", "synthetic 200 k")
ASKED = (*PATHS, "triangles", "components", "pagerank")


class Ours:
    """GoFFish on the same events."""

    def __init__(self, events: Events, folder: Path, threads: int) -> None:
        self.events, self._threads = events, threads
        c = events.columns
        self._columns = (c["source"], c["target"], c["time"])
        self.vertex = int(c["source"][0])
        self._path, self._series = folder / "store", None
        self.prepared = 0.0

    def prepare(self, question: str) -> float:
        """Write the store, once; gives the seconds that took, 0 for questions to plain columns."""
        if question not in ("components", "pagerank"):
            return 0.0
        if self._series is None:
            begun = time.perf_counter()
            build_from_events(
                pa.table(dict(zip(("source", "target", "timestamp"), self._columns, strict=True))), self._path,
                borders=self.events.borders(), time_unit="1", directed=True, parts=self._threads,
            )  # fmt: skip
            self._series = open_series(self._path)
            self.prepared = time.perf_counter() - begun
        return self.prepared

    def options(self, question: str) -> dict[str, Any]:
        """What the peers are asked."""
        if question == "triangles":
            return {"within": self.events.within}
        if question in ("components", "pagerank"):
            return {"borders": self.events.borders()}
        most = self.call("fewest-hops").table.column("hops").to_numpy() if question == "fewest-hops" else 0
        return {"vertex": self.vertex, "most": int(np.nanmax(most))}

    def call(self, question: str) -> Any:
        if question == "triangles":
            return temporal_triangles(*self._columns, self.events.within)
        if question in ("components", "pagerank"):
            updates = {"damping": DAMPING, "iterations": ITERATIONS, "tolerance": TOLERANCE}
            own = updates if question == "pagerank" else {}
            return run_series(question, self._series, threads=self._threads, **own)
        # An edge takes 1, the unit of time: so a path never takes two edges of the same time, as the peers have it.
        return temporal_paths(*self._columns, self.vertex, question, duration=1)

    def check(self, question: str, found: Any, theirs: Answer) -> int:
        """Compare with a peer's answer; gives the number of values compared.

        Raises
        ------
        AssertionError
            They differ.
        """
        if question == "triangles":
            counts = dict(zip(found["motif"].to_pylist(), found["count"].to_pylist(), strict=True))
            same(np.array([counts[name] for name in TRIANGLES]), theirs["count"], question)
            return sum(counts.values())
        if question in ("components", "pagerank"):
            return self._check_windows(question, found.table, theirs)
        column = found.table.column(1)
        there = np.asarray(column.is_valid()) & (np.asarray(found.table.column("vertex")) != self.vertex)
        vertex, value = np.asarray(found.table.column("vertex"))[there], np.asarray(column.fill_null(0))[there]
        if question == "earliest-arrival":
            value = value - 1  # ours arrives when the last edge has been passed, the peer when it is entered
        order, other = np.argsort(vertex), np.argsort(theirs["vertex"])
        same(vertex[order], theirs["vertex"][other], question)
        # Time ran backwards for the peer.
        same(value[order], (-1 if question == "latest-departure" else 1) * theirs["value"][other], question)
        return int(vertex.size)

    def _check_windows(self, question: str, table: Any, theirs: Answer) -> int:
        """Vertices without an edge in a window are in ours only; the other ranks are the same up to a factor."""
        n = int(self.events.columns["source"].max()) + int(self.events.columns["target"].max()) + 1
        key = np.asarray(table.column("timestep")) * n + np.asarray(table.column("vertex"))
        other = theirs["window"] * n + theirs["vertex"]
        order, other_order = np.argsort(key), np.argsort(other)
        at = np.searchsorted(key[order], other[other_order])
        same(key[order][at], other[other_order], question)
        when, who = np.divmod(other[other_order], n)
        values = np.asarray(table.column("component" if question == "components" else "rank"))[order][at]
        told = theirs["value"][other_order]
        if question == "components":
            same(*(first_members(when, who, labels) for labels in (values, told)), question)
        else:
            difference = np.abs(values / np.bincount(when, values)[when] - told / np.bincount(when, told)[when])
            worst = float(np.bincount(when, difference).max())
            assert worst < 20 * TOLERANCE, f"{question}: L1 difference {worst:.1e}"
        return int(told.size)


def same(ours: Any, theirs: Any, question: str) -> None:
    assert np.array_equal(ours, theirs), f"{question}: the answers differ"


def first_members(when: Any, who: Any, labels: Any) -> Any:
    """The least vertex with the same label in the same window: a name for a set that does not depend on labels."""
    _, label = np.unique(labels, return_inverse=True)
    _, group = np.unique(when * (label.max() + 1) + label, return_inverse=True)
    least = np.full(group.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group, who)
    return least[group]


@dataclass
class Row:
    """One question of one peer."""

    data: str
    question: str
    peer: str
    compared: int
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    ours_ready: float = 0.0
    theirs_ready: float = 0.0
    tries: int = 0
    unanswered: int = 0
    limit: float = 0.0

    def told(self) -> str:
        """What is to be said of calls without an answer, nothing if there are none."""
        tries = f"no answer in {self.limit:.0f} s ({self.unanswered} of {self.tries} tries)"
        return f"{self.peer}, {self.question}: {tries}" if self.unanswered else ""

    def figures(self) -> dict[str, Any]:
        if not self.theirs:
            return {"data": self.data, "question": self.question, "peer": self.peer, "tries": self.tries,
                    "unanswered": self.unanswered, "limit_s": self.limit}  # fmt: skip
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        return {
            "data": self.data, "question": self.question, "peer": self.peer, "values": self.compared,
            "goffish_s": ours, "goffish_ready_s": self.ours_ready, "peer_s": theirs, "peer_ready_s": self.theirs_ready,
            "ratio": theirs / ours, "ratio_with_ready": (theirs + self.theirs_ready) / (ours + self.ours_ready),
            "runs": [len(self.ours), len(self.theirs)], "tries": self.tries, "unanswered": self.unanswered,
            "limit_s": self.limit,
        }  # fmt: skip


def ask(data: str, question: str, ours: Ours, peers: list[Peer], repeats: int, limit: float) -> list[Row]:
    """Check, then time in turn; a peer is asked no more once its calls together took the limit, or one found no end."""
    ready = ours.prepare(question)
    options, found = ours.options(question), ours.call(question)
    rows: list[Row] = []
    walls: list[float] = []
    asked: list[tuple[Row, Peer]] = []
    for peer in peers:
        row = Row(data, question, peer.name, 0, walls, limit=limit)
        told = first_answer(row, peer, ours, found, options)
        if row.unanswered or told:
            rows.append(row)
        if told is None:
            continue
        load = 0.0 if question == "latest-departure" else peer.load_seconds  # it has a graph of its own
        row.ours_ready, row.theirs_ready = ready, told["prepared"] + load
        if told["seconds"] > limit / 3 or repeats == 0:
            row.theirs.append(told["seconds"])  # too slow for another call
        asked.append((row, peer))
    for _ in range(max(1, repeats) if asked else 0):
        begun = time.perf_counter()
        ours.call(question)
        walls.append(time.perf_counter() - begun)
        for row, peer in asked:
            if sum(row.theirs) + limit * row.unanswered > limit / 3 and row.theirs:
                continue
            row.tries += 1
            try:
                row.theirs.append(peer.ask(question, limit, **options)["seconds"])
            except (TimeoutError, RuntimeError):
                row.unanswered += 1
    return rows


def first_answer(row: Row, peer: Peer, ours: Ours, found: Any, options: dict[str, Any]) -> dict[str, float] | None:
    """Times of a peer's first answer, the warm-up, if it comes and is ours; the tries are noted in the row."""
    for _ in range(ATTEMPTS):
        row.tries += 1
        try:
            told = peer.ask(row.question, row.limit, tell=True, **options)
        except TimeoutError:
            row.unanswered += 1
            continue
        except RuntimeError as error:
            print(f"({peer.name}, {row.question}: {error})")
            return None
        try:
            row.compared = ours.check(row.question, found, peer.answer())
        except AssertionError as error:
            print(f"({peer.name}, {row.question}: {error})")
            return None
        return told
    return None


@contextmanager
def running(names: list[str], python: str, events: Events, folder: Path) -> Iterator[list[Peer]]:
    """The peers that take part; a line for each that does not."""
    path, peers = folder / "events.npz", []
    np.savez(path, **events.columns)
    try:
        for name in names:
            peer = start(name, python, path, events.count)
            if isinstance(peer, Peer):
                peers.append(peer)
            else:
                print(f"(skipped {name}: {peer})")
        yield peers
    finally:
        for peer in peers:
            peer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small tables of events only")
    parser.add_argument("--data", nargs="+", choices=DATA, help="these tables of events only")
    parser.add_argument("--questions", nargs="+", choices=ASKED, default=ASKED)
    parser.add_argument("--peers", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--peer-python", default=sys.executable, help="Python of the environment with the peers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, help="seconds for one answer of a peer, whatever it is asked")
    parser.add_argument("--threads", type=int, default=2, help="partitions and instances side by side")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    line = machine_line(("pyarrow",))
    print(line)
    for name, reason in OTHERS.items():
        print(f"(not asked: {name}: {reason})")
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for data in options.data or (QUICK if options.quick else tuple(DATA)):
        try:
            events = DATA[data]()
        except FileNotFoundError as error:
            print(f"(skipped {data}: no {error.filename}; set GOFFISH_DATA)")
            continue
        print(f"\n### {data}: {events.count:,} events, instances of {events.window:,}\n")
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            with running(options.peers, options.peer_python, events, folder) as peers:
                versions |= {peer.name: peer.version for peer in peers}
                ours, found = Ours(events, folder, options.threads), []
                for question in options.questions:
                    able = [peer for peer in peers if question in QUESTIONS[peer.name]]
                    if able:
                        found += ask(data, question, ours, able, options.repeats, options.limit or LIMITS[question])
        print()
        if found:
            report(found)
        rows += found
    print("\nPeers: " + (", ".join(f"{name} {version}" for name, version in versions.items()) or "none installed"))
    if options.json:
        told = {"machine": line, "peers": versions, "not_asked": OTHERS, "rows": [row.figures() for row in rows]}
        options.json.write_text(json.dumps(told, indent=2) + "\n")


def report(rows: list[Row]) -> None:
    """Median seconds, and how many times as fast as the peer."""
    header = ["question", "values compared", "goffish s", "ready s", "peer", "peer s", "ready s", "peer / goffish",
              "with ready"]  # fmt: skip
    lines = []
    for row in rows:
        if not row.theirs:
            continue
        f = row.figures()
        lines.append(
            [f["question"], f"{f['values']:,}", f"{f['goffish_s']:.4f}", f"{f['goffish_ready_s']:.2f}", f["peer"],
             f"{f['peer_s']:.4f}", f"{f['peer_ready_s']:.2f}", f"**{f['ratio']:.2f}**", f"{f['ratio_with_ready']:.2f}"]
        )  # fmt: skip
    print_table(header, lines)
    for told in filter(None, (row.told() for row in rows)):
        print(f"\n({told})")


if __name__ == "__main__":
    main()
