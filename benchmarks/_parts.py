"""Scripts with parts: an algorithm each, over the named graphs, against baselines whose answers are compared first."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import _graphs
import _harness
import numpy as np

from goffish.graph import Graph

Calls = dict[str, Callable[[], Any]]


class Part(NamedTuple):
    """One algorithm of a script.

    Attributes
    ----------
    title
    make
        Calls on a graph by name: ours begin with "goffish", all others are baselines.
    largest
        Largest difference of two answers.
    left_out
        Graphs on which a baseline takes hours, or finds something else.
    """

    title: str
    make: Callable[[Graph], Calls]
    largest: float = 0.0
    left_out: frozenset[str] = frozenset()


def compare(parts: Sequence[Part], peers: Sequence[str], description: str | None) -> None:
    """Run a script with parts: compare the answers, time the calls and print a table for each part."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small graphs only, fewer repeats")
    parser.add_argument("--only", default="", help="title of a part, or its beginning")
    given = parser.parse_args()
    print(_harness.machine_line(peers))
    print("milliseconds: best wall (median wall; CPU)")
    names = _graphs.QUICK if given.quick else _graphs.UNDIRECTED
    for part in parts:
        if not part.title.startswith(given.only):
            continue
        print(f"\n## {part.title}\n")
        ratios, rows, columns = [], [], []
        for name, graph in _graphs.load_available([one for one in names if one not in part.left_out]):
            calls = part.make(graph)
            _check(calls, part.largest)
            timings = _harness.measure_together(calls, repeats=3 if given.quick else 7, warmup=0)
            columns = list(calls)
            ratio, peer = _harness.best_peer(timings, ["goffish"], [c for c in calls if not c.startswith("goffish")])
            ratios.append(ratio)
            cells = [_harness.milliseconds(timings[column]) for column in columns]
            rows.append([f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})", *cells, f"**{ratio:.1f}** ({peer})"])
        _harness.print_table(["graph (n / m)", *columns, "best baseline / goffish"], rows)
        print(
            f"\ngeometric mean: {_harness.geometric_mean(ratios):.2f}; least: {min(ratios, default=math.nan):.2f}",
            flush=True,
        )


def _check(calls: Calls, largest: float) -> None:
    ours = np.asarray(calls["goffish"]())
    for name, call in calls.items():
        difference = np.abs(np.asarray(call()) - ours).max(initial=0.0)
        assert difference <= largest, f"{name}: {difference}"
