"""Experiments E8, E9, E10, E11, E13 and E15 of the ring of keyed state, in Markdown.

    python -m experiments.ring [--quick] [--parts E8 E9 …]

E8 and E9 run worker processes; the others run the nodes of the package in virtual time, with the processor times of
`experiments.ring.costs`. Published values: Kumbhare, Frincu, Simmhan, Prasanna, ICDCS 2015, and its Figures 5 to 8.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks import _harness
from experiments.ring import losses, processes, scaling, takeover, throughput
from experiments.ring.costs import COSTS, LARGE, NODE, PUBLISHED_RATE, Costs
from experiments.ring.throughput import System


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print()
    _harness.print_table(list(header), [list(row) for row in rows])


def _checks(rows: Iterable[tuple[str, str, str, bool]]) -> None:
    verdicts = ((what, published, ours, "pass" if passes else "FAIL") for what, published, ours, passes in rows)
    _table(("check", "published", "ours", ""), verdicts)


def sizes(quick: bool) -> None:
    """E8."""
    print("\n## E8: size of incremental checkpoints\n")
    print(
        f"{processes.WORKERS} worker processes, each with {processes.RATE:,.0f} words/s of a text with "
        f"{processes.WORDS:,} different words, all of which have a count."
    )
    found = [processes.size(seconds) for seconds in ((0.5, 1.0, 2.0) if quick else (1.0, 2.0, 5.0, 10.0))]
    _table(
        ("seconds between checkpoints", "KiB of a checkpoint", "KiB of the state", "ratio"),
        (
            (f"{one.checkpoint_s:g}", f"{one.bytes / 1024:,.1f}", f"{one.whole / 1024:,.1f}", f"{one.ratio:.1%}")
            for one in found
        ),
    )
    ratios = {one.checkpoint_s: one.ratio for one in found}
    least, most = min(ratios), max(ratios)
    grows = sorted(ratios.values()) == [ratios[one] for one in sorted(ratios)]
    _checks(
        [
            ("ratio at 2 s", "about 7 % (Fig. 7)", f"{ratios[2.0]:.1%}", 0.0 < ratios[2.0] < 1.0),
            ("ratio grows with the interval", "yes (Fig. 7)", " < ".join(f"{r:.1%}" for r in ratios.values()), grows),
            (
                f"{least:g} s is much less than {most:g} s", "2 s against 10 s, no value",
                f"{ratios[most] / ratios[least]:.1f} times", ratios[most] > 1.5 * ratios[least],
            ),
        ]
    )  # fmt: skip


def pauses(quick: bool) -> None:
    """E9."""
    print("\n## E9: latency with and without checkpoints\n")
    rates = (processes.RATE,) if quick else (processes.RATE, 10_000.0)
    print(
        f"{processes.WORKERS} worker processes, `process` class, checkpoints every 2 s or never; time from reading a "
        "word until the sink has its result. Pauses are processor time."
    )
    found = [processes.effect(rate, 2.0, 3.0 if quick else 5.0, 1 if quick else 3) for rate in rates]
    _table(
        ("words/s of a worker", "median without, ms", "with, ms", "change", "capture, ms", "by the clock", "pack, ms",
         "install, ms"),
        (
            (f"{rate:,.0f}", *(f"{1e3 * value:.2f}" for value in (one.without_s, one.with_s)), f"{one.change:+.1%}",
             *(f"{1e3 * value:.1f}" for value in (one.capture_s, one.wall_s, one.pack_s, one.install_s)))
            for rate, one in zip(rates, found, strict=True)
        ),
    )  # fmt: skip
    _checks(
        check
        for rate, one in zip(rates, found, strict=True)
        for check in (
            (f"median changes by less than 10 %, {rate:,.0f}/s", "no value", f"{one.change:+.1%}", one.change < 0.1),
            (f"no pause to capture above 5 ms, {rate:,.0f}/s", "a pointer swap", f"{1e3 * one.capture_s:.1f} ms",
             one.capture_s < 0.005),
        )
    )  # fmt: skip


def takeovers(quick: bool) -> None:
    """E10."""
    print("\n## E10: takeover by rate and time between checkpoints\n")
    print(
        f"{takeover.NODES} nodes, r = 1, {1 / NODE.count_s:,.0f} records/s for each node ({takeover.REDUCERS} reducers "
        f"of {PUBLISHED_RATE:,.0f}). From the declared failure until all is replayed, milliseconds; failures at "
        f"{', '.join(f'{100 * phase:.0f}' for phase in takeover.PHASES)} % of the interval."
    )
    cells = takeover.grid(NODE, intervals=(1.0, 2.0) if quick else takeover.INTERVALS)
    _table(
        ("records/s", "seconds between checkpoints", "mean", "longest", "bound by (11), (13)", "off by at most",
         "detected after, s"),
        (
            (f"{cell.rate:,}", f"{cell.checkpoint_s:g}", f"{1e3 * cell.mean_s:.0f}", f"{1e3 * cell.worst_s:.0f}",
             f"{1e3 * statistics.mean(run.bound_s for run in cell.runs):.0f}", f"{cell.error:.0%}",
             f"{statistics.mean(run.detected_s for run in cell.runs):.2f}")
            for cell in cells
        ),
    )  # fmt: skip
    times = [run.recovered_s for cell in cells if cell.rate <= 10_000 for run in cell.runs]
    everything = [run for cell in cells for run in cell.runs]
    stamps = takeover.take_over(10_000, cells[0].checkpoint_s, 0.5, NODE, vectors=False)
    _checks(
        [
            ("grows with both", "yes (Fig. 6c)", "yes" if takeover.grows(cells) else "no", takeover.grows(cells)),
            ("below 500 ms up to 10,000/s", "10 to 500 ms (Fig. 6c)",
             f"{1e3 * min(times):.0f} to {1e3 * max(times):.0f} ms", max(times) < 0.5),
            ("fits (11) and (13) within 30 %", "–", f"off by at most {max(cell.error for cell in cells):.0%}",
             max(cell.error for cell in cells) <= 0.3),
            ("never more than 110 % of the bound", "–", f"{max(cell.fill for cell in cells):.0%}",
             max(cell.fill for cell in cells) <= 1.1),
            ("records missing or counted twice", "0 missing", f"{sum(run.missing for run in everything)}",
             not any(run.missing for run in everything)),
            ("time stamps in place of vectors, 10,000/s", "as paper",
             f"{1e3 * stamps.recovered_s:.0f} ms, predicted {1e3 * stamps.predicted_s:.0f} ms",
             abs(stamps.recovered_s / stamps.predicted_s - 1) <= 0.3),
        ]
    )  # fmt: skip


def peaks(quick: bool) -> None:
    """E11."""
    print("\n## E11: peak throughput by the number of reducers\n")
    print(
        f"Thousand records/s. Processor times are measured with the package and Redis on the same host, and scaled "
        f"so that a reducer without copies processes {PUBLISHED_RATE:,.0f} records/s. The external store has "
        f"{throughput.STORE_HOSTS} hosts and {throughput.STORE_COPIES} copies of each value."
    )
    counts = (4, 20) if quick else (4, 12, 24, 40)
    for costs in (COSTS, LARGE):
        print(f"\n### Messages of {costs.part} records")
        _peaks(costs.scaled(), counts, 1.5 if quick else 2.0)


def _peaks(costs: Costs, counts: Sequence[int], seconds: float) -> None:
    found = {s: [throughput.peak(s, count, costs, seconds=seconds) for count in counts] for s in System}
    _table(
        ("system", *(f"{count} reducers" for count in counts), "linearity"),
        (
            (system, *(f"{one.rate / 1e3:.1f}" for one in some), f"{throughput.linearity(some):.0%}")
            for system, some in found.items()
        ),
    )
    rates = {system: [one.rate for one in some] for system, some in found.items()}
    none, one, two, backup, parts, store = (rates[system] for system in System)
    drops = [[1 - b / a for a, b in zip(*pair, strict=True)] for pair in ((none, one), (one, two))]
    straight = {system: throughput.linearity(some) for system, some in found.items()}
    ordered = all(a > b > c for a, b, c in zip(none, one, two, strict=True))
    shown = [f"{min(drop):.0%} to {max(drop):.0%}" for drop in drops]
    _checks(
        [
            ("r = 0 above 1 above 2 everywhere", "yes (Fig. 5)", "yes" if ordered else "no", ordered),
            ("drop from r = 0 to 1, 5 to 25 %", "about 15 %", shown[0], all(0.05 <= drop <= 0.25 for drop in drops[0])),
            ("drop from r = 1 to 2, 5 to 25 %", "about 15 %", shown[1], all(0.05 <= drop <= 0.25 for drop in drops[1])),
            ("almost linear", "yes (Fig. 5)", f"r = 1: {straight[System.ONE]:.0%}", straight[System.ONE] >= 0.8),
            ("r = 1 above upstream backup", "yes (Fig. 5)", _times(one, backup),
             all(a > b for a, b in zip(one, backup, strict=True))),
            ("r = 1 at least 2 times the store, record by record", "2.8 times", _times(one, store),
             all(a >= 2 * b for a, b in zip(one, store, strict=True))),
            ("r = 1 at least 2 times the store, a message at a time", "–", _times(one, parts),
             all(a >= 2 * b for a, b in zip(one, parts, strict=True))),
            *(
                (f"the store flattens first, {name}", "yes (Fig. 5)", f"{straight[system]:.0%}",
                 straight[system] < min(0.95, straight[System.BACKUP], straight[System.ONE]))
                for name, system in (("record by record", System.STORE), ("a message at a time", System.STORE_PARTS))
            ),
        ]
    )  # fmt: skip


def _times(ours: Sequence[float], others: Sequence[float]) -> str:
    ratios = [a / b for a, b in zip(ours, others, strict=True)]
    return f"{min(ratios):.1f} to {max(ratios):.1f} times"


def reliefs(quick: bool) -> None:
    """E13."""
    print("\n## E13: scale-out with a warm spare\n")
    print(
        "Three nodes, a rate that rises to 110 % of their capacity within 10 s, spares that run already, thresholds "
        "and times of section 2.8; seconds since the first sample of overload."
    )
    runs = [scaling.scale_out(NODE, seed=seed) for seed in range(2 if quick else 6)]
    found = [(seed, one) for seed, (some, _) in enumerate(runs) for one in some]
    _table(
        ("seed", "node", "spare asked for", "spare has the positions", "queue below the threshold"),
        ((f"{seed}", f"{one.node}", *(f"{value:.2f}" for value in one[1:])) for seed, one in found),
    )
    first = [min(one.moved_s for one in some) for some, _ in runs]
    every = [one.moved_s for _, one in found]
    _checks(
        [
            ("first scale-out of a run within 3 s", "1.5 to 3 s (body)", f"{min(first):.1f} to {max(first):.1f} s",
             max(first) <= 3.0),
            ("all scale-outs, median", "1.5 to 3 s (body)", f"{statistics.median(every):.1f} s",
             1.5 <= statistics.median(every) <= 3.0),
            ("all scale-outs within 3 s", "–", f"{min(every):.1f} to {max(every):.1f} s", max(every) <= 3.0),
            ("records missing or counted twice", "0", f"{sum(wrong for _, wrong in runs)}",
             not any(wrong for _, wrong in runs)),
        ]
    )  # fmt: skip


def failures(quick: bool) -> None:
    """E15."""
    print("\n## E15: a node fails\n")
    print("Three nodes or reducers, 500 records/s; one fails after 10 s, and the source sends for 20 s.")
    costs = COSTS.scaled()
    found = {
        "ring, r = 1": losses.ring(costs),
        "ring, r = 0": losses.ring(costs, replication=0),
        "upstream backup, local state": losses.upstream_backup(costs, external=False),
        "upstream backup, external store": losses.upstream_backup(costs, external=True),
    }
    _table(
        ("system", "records", "never processed", "missing in the state", "counted twice"),
        ((name, *(f"{value:,}" for value in one)) for name, one in found.items()),
    )
    local, external = (found[f"upstream backup, {kind}"] for kind in ("local state", "external store"))
    ours = found["ring, r = 1"]
    _checks(
        [
            ("upstream backup loses no record", "yes (section 3.15)", f"{local.unprocessed}", not local.unprocessed),
            ("upstream backup loses state", "yes", f"{local.missing:,} records", local.missing > 0),
            ("an external store keeps it", "yes", f"{external.missing} missing, {external.repeated} twice",
             not external.missing),
            ("the ring keeps both", "yes", f"{ours.missing} missing, {ours.repeated} twice", not any(ours[1:])),
        ]
    )  # fmt: skip


PARTS: dict[str, Callable[[bool], None]] = {
    "E8": sizes, "E9": pauses, "E10": takeovers, "E11": peaks, "E13": reliefs, "E15": failures,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)))
    for part in given.parts:
        PARTS[part](given.quick)


if __name__ == "__main__":
    main()
