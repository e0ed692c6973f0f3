"""Jobs with a deadline on the spot market: every trace, tested on prices that come after those of the fit.

    python -m experiments.holdout.spot [--only availability prices] [--hours 4 8] [--output results.json]

Walk-forward: the second half of a trace is tested; every few days the market is fitted again to all that came before.
A case is a trace, a job size and a deadline; a job starts every half hour. All cases are reported. The configuration of
every policy is fixed here, before the results are known:

* robust: `trials.shares` with its defaults; its cost is the expected one, over the draw of the candidate
* rtba: the table of the market fitted with `recent_class`
* greedy, uniform-progress: `peers.peer`, with the mean time between interruptions of the earlier prices
* on-demand

The traces are those bundled with GoFFish (EC2 prices of 2015) and, in the folder GOFFISH_DATA, spot-availability/.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import _harness
from experiments.holdout.statistics import bootstrap_interval
from goffish.cloud.availability import read_availability
from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE, SlotPrices, bundled_trace, bundled_traces, in_slots
from goffish.scheduling.spot.estimate import recent_class
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.presets import Times, market_from
from goffish.scheduling.spot.trials import Trials, intervals, most_cost, shares, until, walk_forward

FACTORS = (1.15, 1.5, 2.0, 3.0)
RIVALS = ("greedy", "uniform-progress", "on-demand")
LEAST_STARTS = 20
DAY_S = 86_400.0
#: Spot price of the availability traces, in on-demand prices.
SPOT_SHARE = 0.3
#: On-demand prices of 2015, in dollars per hour.
ON_DEMAND = {"m3.medium": 0.067, "r3.large": 0.175, "c3.xlarge": 0.21, "g2.2xlarge": 0.65, "d2.8xlarge": 5.52}


class Suite(NamedTuple):
    """Traces under the rules of one market: slot length, days between fits, half-life of the trials in days."""

    title: str
    slot_s: float
    refit_days: float
    preset: str


#: Availability: today's market, start-up and checkpoint of two minutes, notice of two minutes, billing by the second.
#: Prices: EC2's bid market of 2015, start-up and checkpoint of ten minutes, billed by the second or by the hour.
SUITES = {
    "availability": Suite("availability (today's market)", 120.0, 5.0, "ec2"),
    "prices": Suite("prices of 2015, by the second", 600.0, 7.0, "ec2-linux"),
    "hourly": Suite("prices of 2015, by the hour", 600.0, 7.0, "ec2-suse"),
}


def traces(name: str) -> Iterator[tuple[str, SlotPrices, Market]]:
    """Name, slots and market of every trace of a suite; the market's price chains are not used."""
    suite = SUITES[name]
    if name != "availability":
        for label in bundled_traces():
            history = bundled_trace(label)
            slots = in_slots([history], suite.slot_s, history.start, history.end)
            yield label, slots, _market(suite, slots, ON_DEMAND[label.split("-")[-1]])
        return
    folder = Path(os.environ.get("GOFFISH_DATA", "")) / "spot-availability"
    for path in sorted(folder.glob("*.json.gz")):
        history = read_availability(path).trace(SPOT_SHARE)
        slots = in_slots([history], suite.slot_s, history.start, history.end)
        yield path.name.split(".json")[0], slots, _market(suite, slots, 1.0, bid=ANY_PRICE)


def _market(suite: Suite, slots: SlotPrices, on_demand: float, bid: float | None = None) -> Market:
    """The rules of a suite, with the chain of the first quarter."""
    one = recent_class(until(slots, slots.slots // 4), 0, 1, on_demand, suite.slot_s, bid=bid, name="machine")
    if bid is not None:
        one = replace(one, levels=np.array([SPOT_SHARE, UNAVAILABLE]))
    return market_from(suite.preset, [one], [1], [on_demand], times=Times(suite.slot_s, suite.slot_s, suite.slot_s))


class Case(NamedTuple):
    """Mean costs of a trace, job and deadline.

    `covered`: share of the table's costs within the predicted 80 % interval; `predicted`: expected cost over cost;
    `missed`: missed deadlines of all policies.
    """

    suite: str
    trace: str
    hours: float
    factor: float
    starts: int
    costs: dict[str, float]
    covered: float
    predicted: float
    missed: int

    @property
    def ratio(self) -> float:
        """Cost of robust over that of the cheapest rival."""
        return self.costs["robust"] / min(self.costs[name] for name in RIVALS)


def case_of(suite: str, label: str, market: Market, hours: float, factor: float, found: Trials, tested: int) -> Case:
    """Judge the trials whose jobs start in the tested part."""
    per_day = DAY_S / SUITES[suite].slot_s
    share = shares(found, most_cost(market, found.slots), half_life=10 * per_day)[:, :-1]
    bands = intervals(found, 0, round(10 * per_day))[:, :-1]
    chosen = found.starts >= tested
    costs = {one.policy: float(found.costs[at, chosen].mean()) for at, one in enumerate(found.candidates)}
    costs["robust"] = float((share * found.costs).sum(axis=0)[chosen].mean())
    known = chosen & np.isfinite(bands[1])
    paid, low, high = found.costs[0], *(bands * found.expected)
    slack = 1e-9 * found.expected
    inside = (low - slack <= paid) & (paid <= high + slack)
    covered = float(inside[known].mean()) if known.any() else float("nan")
    predicted = float(found.expected[chosen].mean() / found.costs[0, chosen].mean())
    missed = int((found.finished[:, chosen] == 0).sum())
    return Case(suite, label, hours, factor, int(chosen.sum()), costs, covered, predicted, missed)


def run(suite: str, hours: list[float], *, warm: float = 0.25, part: float = 0.5) -> Iterator[Case]:
    """All cases of a suite; trials begin after a share `warm` of a trace, tests after `part`."""
    rules = SUITES[suite]
    per_hour = 3600.0 / rules.slot_s
    for label, prices, market in traces(suite):
        kinds = [(hour, factor) for hour in hours for factor in FACTORS]
        jobs = [(round(hour * per_hour), round(hour * factor * per_hour)) for hour, factor in kinds]
        fits = [at for at, (work, slots) in enumerate(jobs) if slots >= market.least_slots(work)]
        refit = round(min(rules.refit_days * 24 * per_hour, prices.slots / 4))
        trials = walk_forward(
            market, prices, [jobs[at] for at in fits], first=max(2, round(warm * prices.slots)), refit=refit,
            step=round(per_hour / 2),
        )  # fmt: skip
        for at, found in zip(fits, trials, strict=True):
            tested = round(part * prices.slots)
            if (found.starts >= tested).sum() >= LEAST_STARTS:
                yield case_of(suite, label, market, *kinds[at], found, tested)


def summary(cases: list[Case]) -> dict[str, Any]:
    """The figures over cases, with bootstrap intervals of the means."""
    single = min(RIVALS, key=lambda name: np.mean([c.costs[name] / min(c.costs[r] for r in RIVALS) for c in cases]))
    ratios = np.array([c.ratio for c in cases])
    to_single = np.array([c.costs["robust"] / c.costs[single] for c in cases])
    table = np.array([c.costs["rtba"] / min(c.costs[name] for name in RIVALS) for c in cases])
    covered = np.array([c.covered for c in cases if np.isfinite(c.covered)])
    predicted = np.array([c.predicted for c in cases])
    return {
        "cases": len(cases),
        "missed_deadlines": sum(c.missed for c in cases),
        "worst_ratio": float(ratios.max()),
        "above_1.05": int((ratios > 1.05).sum()),
        "mean_ratio": float(ratios.mean()),
        "mean_ratio_interval": bootstrap_interval(ratios.tolist()),
        "best_single_rival": single,
        "mean_to_single": float(to_single.mean()),
        "mean_to_single_interval": bootstrap_interval(to_single.tolist()),
        "table_alone_worst": float(table.max()),
        "table_alone_mean": float(table.mean()),
        "coverage": float(covered.mean()) if covered.size else None,
        "coverage_low_high": [float(v) for v in np.quantile(covered, (0.1, 0.9))] if covered.size else None,
        "predicted_over_realized": [float(predicted.min()), float(np.median(predicted)), float(predicted.max())],
    }


def main() -> None:
    """Run the suites and print all cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=[*SUITES], default=[*SUITES])
    parser.add_argument("--hours", nargs="*", type=float, default=[4.0, 8.0])
    parser.add_argument("--output", help="JSON file for all cases and the summaries.")
    given = parser.parse_args()
    body: dict[str, Any] = {"cases": [], "summaries": {}}
    everything: list[Case] = []
    for name in given.only:
        begun = time.perf_counter()
        cases = list(run(name, given.hours))
        if not cases:
            print(f"\n{SUITES[name].title}: skipped, no traces (set GOFFISH_DATA)")
            continue
        everything += cases
        print(f"\n### {SUITES[name].title}: cost as a multiple of the cheapest of {', '.join(RIVALS)}\n")
        _harness.print_table(
            ["trace", "hours", "deadline", "starts", "robust", "rtba", *RIVALS, "in 80 %", "expected / cost"],
            [
                [c.trace, f"{c.hours:g}", f"{c.factor:g} x", str(c.starts),
                 *(f"{c.costs[k] / min(c.costs[r] for r in RIVALS):.3f}" for k in ("robust", "rtba", *RIVALS)),
                 f"{c.covered:.2f}", f"{c.predicted:.2f}"]
                for c in cases
            ],
        )  # fmt: skip
        body["summaries"][name] = summary(cases)
        print(json.dumps(body["summaries"][name], indent=1), f"\n{time.perf_counter() - begun:.0f} s")
    if len(body["summaries"]) > 1:
        body["summaries"]["all"] = summary(everything)
        print("\nall", json.dumps(body["summaries"]["all"], indent=1))
    body["cases"] = [c._asdict() | {"ratio": c.ratio} for c in everything]
    if given.output:
        Path(given.output).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
