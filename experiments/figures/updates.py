"""Updates of a running dataflow: bounds and simulated costs of docs/specs/updates.md, section 6.

    python -m experiments.figures.updates [--phases 400] [--runs 300] [--seed 1]

Virtual time: the coordinator and the routers of the package, FIFO processing elements, requests at random phases.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from benchmarks import _harness
from experiments.updates.cases import RATES, Case, golden, missing, parallel, simulate
from experiments.updates.report import Cost
from experiments.updates.simulation import Simulation
from goffish.streaming.updates.bounds import Bounds, predict
from goffish.streaming.updates.versions import Strategy

#: Reference values in milliseconds at 5, 10 and 20 messages per second: bounds of refresh and lag.
REFERENCE = {
    Strategy.NCL: ((15050, 15050, 15050), 0),
    Strategy.NCH: ((15115, 15115, 15115), 65),
    Strategy.HTI: ((730, 630, 580), 545),
    Strategy.MVC: ((750, 650, 600), 565),
    Strategy.PVC: ((730, 630, 580), 545),
}
#: Longest Wt' of the golden dataflow: NCH waits for this long.
FULL_TTL = 0.065


class Sweep(NamedTuple):
    """Costs of one update at many phases."""

    bounds: Bounds
    costs: list[Cost]
    lost: list[int]


def sweep(strategy: Strategy, rate: float, phases: int, rng: Random) -> Sweep:
    """Request the golden update at random phases of the input."""
    case = golden(rate)
    full = FULL_TTL if strategy == Strategy.NCH else 0.0
    runs = [simulate(case, strategy, 1.0 + rng.random() / rate, full_ttl=full) for _ in range(phases)]
    bounds = predict(runs[0].updates[-1][1], case.work.model(case.old), case.work.model(case.new), case.times)
    return Sweep(bounds, [run.cost() for run in runs], [missing(run, 3) for run in runs])


def share_mixed(case: Case, strategy: Strategy, runs: int, rng: Random, *, plain: bool = False) -> tuple[int, int]:
    """Return the number of runs with mixed outputs, and the most mixed outputs of a run."""
    rate = case.work.rates["S"]

    def one() -> Simulation:
        return simulate(case, strategy, 1.0 + rng.random() / rate, after=0.3, plain=plain)

    mixed = [one().cost().mixed for _ in range(runs)]
    return sum(number > 0 for number in mixed), max(mixed)


def _range(values: list[float]) -> str:
    return f"{1000 * min(values):,.0f} to {1000 * max(values):,.0f}"


def latencies(phases: int, rng: Random) -> None:
    print("\n## Golden dataflow, milliseconds\n")
    rows = []
    for strategy, (refresh, lag) in REFERENCE.items():
        for rate, expected in zip(RATES, refresh, strict=True):
            found = sweep(strategy, rate, phases, rng)
            assert found.bounds.refresh is not None
            rows.append(
                [
                    strategy.value,
                    f"{rate:g}",
                    f"{expected:,}",
                    f"{1000 * found.bounds.refresh:,.0f}",
                    _range([cost.refresh or 0.0 for cost in found.costs]),
                    str(lag),
                    f"{1000 * found.bounds.lag:,.0f}",
                    _range([cost.lag for cost in found.costs]),
                    f"{min(found.lost)} to {max(found.lost)} (at most {found.bounds.loss})",
                ]
            )
    header = ["strategy", "messages/s", "refresh bound, reference", "ours", "simulated"]
    _harness.print_table([*header, "lag bound, reference", "ours", "simulated", "lost messages"], rows)


def mixing(runs: int, rng: Random) -> None:
    print(f"\n## Runs of {runs} with outputs of both versions\n")
    rows: list[list[str]] = []

    def add(name: str, reference: str, found: tuple[int, int]) -> None:
        rows.append([name, reference, f"{found[0]} ({found[0] / runs:.0%}), at most {found[1]} outputs"])

    for strategy, reference in ((Strategy.HTI, "57 of 300, 2 outputs"), (Strategy.MVC, "0"), (Strategy.PVC, "0")):
        add(f"P, A and C change, 20/s, {strategy}", reference, share_mixed(golden(20.0, "PAC"), strategy, runs, rng))
    for rate, reference in zip(RATES, ("15 %", "31 %", "60 %"), strict=True):
        plain = share_mixed(parallel(rate), Strategy.PVC, runs, rng, plain=True)
        add(f"parallel changes, {rate:g}/s, pvc without pins", reference, plain)
        add(f"parallel changes, {rate:g}/s, pvc", "0", share_mixed(parallel(rate), Strategy.PVC, runs, rng))
    _harness.print_table(["update", "reference", "ours"], rows)


def throughput() -> None:
    print("\n## Throughput while P is replaced, published: NCL stops for about 15 s, MVC has no visible dip\n")
    rows = []
    for rate in RATES[:2]:
        for strategy in (Strategy.NCL, Strategy.MVC):
            cost = simulate(golden(rate), strategy, 5.03, after=20.0).cost()
            assert cost.refresh is not None
            rows.append(
                [
                    f"{rate:g}",
                    strategy.value,
                    f"{cost.outage:.2f}",
                    f"{cost.lowest_throughput:.0%}",
                    f"{1000 * cost.refresh:,.0f}",
                    f"{1000 * cost.lag:,.0f}",
                ]
            )
    header = ["messages/s in", "strategy", "longest gap, s", "lowest second", "refresh, ms", "lag, ms"]
    _harness.print_table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phases", type=int, default=400, help="random phases of the golden update")
    parser.add_argument("--runs", type=int, default=300, help="runs in which outputs may mix")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = Random(options.seed)
    parts: list[Callable[[], None]] = [
        lambda: latencies(options.phases, rng),
        lambda: mixing(options.runs, rng),
        throughput,
    ]
    for part in parts:
        part()


if __name__ == "__main__":
    main()
