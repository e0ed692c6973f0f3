"""Queries of Nexmark against Pathway and PyFlink: ``python benchmarks/nexmark.py``.

The events are in CSV files of persons, auctions and bids, in the order of event time. PyFlink runs the queries of its
authors in SQL, Pathway its tables with static files, which it processes in one step. The flows are in `_nexmark.py`.
See `stream_peers.py` for how the systems are run and checked.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import _harness
import _nexmark
from _streams import LIMIT_S, add_systems, checked, started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--check-events", type=int, default=6000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--queries", nargs="+", choices=_nexmark.QUERIES, default=list(_nexmark.QUERIES))
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="of the other systems")
    add_systems(parser, ("pathway", "pyflink"))
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)), "\n")
    rows, ratios = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _nexmark.write(folder / "timed", given.events)
        _nexmark.write(folder / "check", given.check_events, per_second=200)
        systems = started(given, folder, ("pathway", "pyflink"), ours=(1,))  # the flows are for one process
        try:
            for query in given.queries:
                measured = checked(query, systems, folder)
                for _ in range(given.repeats):
                    for one in measured:
                        one.measure(query, LIMIT_S, folder=str(folder / "timed"))
                times = {one: one.median(query) for one in measured}
                ours, *others = (times.get(one) for one in systems)
                best = min((time for time in others if time is not None), default=None)
                if ours is not None and best is not None:
                    ratios.append(best / ours)
                cells = [
                    f"{times[one]:.2f} ({one.median_cores(query):.1f})" if one in times else "–" for one in systems
                ]
                rows.append((query, *cells, "–" if best is None or ours is None else f"{best / ours:.2f}"))
                print(" | ".join(rows[-1]), flush=True)
        finally:
            for one in systems:
                one.close()
    print(f"\n{given.events:,} events, median of {given.repeats}: seconds (core-seconds)\n")
    _harness.print_table(("query", *(one.label for one in systems), "best other / GoFFish"), rows)
    print(f"\ngeometric mean: {_harness.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
