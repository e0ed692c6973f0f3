"""Jobs with a deadline on the spot market: E1 to E9 of the specification of RTBA (§7.3), peers, and real traces.

    GOFFISH_DATA=../shared/data python benchmarks/rtba.py [--only E1 E2 …]

The reference model is the specification's "two-class" (§7.2); real prices are those of EC2 from March to August 2015,
availability is that of the SkyPilot spot traces. Published figures are of the paper's own traces of 2012, which are
gone; they stand beside ours and are marked as such.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import _graphs  # noqa: F401  (a checkout works without an installation)
import _harness
import numpy as np

from goffish.services.spot.availability import read_availability
from goffish.services.spot.clairvoyant import lower_bounds
from goffish.services.spot.comparison import cheapest_on_demand, compare
from goffish.services.spot.estimate import most_probable_bids, quantile_bids
from goffish.services.spot.heuristics import Heuristic, lifetime_interval
from goffish.services.spot.job import submitted
from goffish.services.spot.model import Local, Market, chain_of
from goffish.services.spot.peers import peer
from goffish.services.spot.presets import market_from
from goffish.services.spot.prices import in_slots, seconds_of, shared_trace
from goffish.services.spot.replay import replay, simulate_prices
from goffish.services.spot.synthetic import MONTH_S, PriceProcess, synthetic_trace
from goffish.services.spot.table import build_table
from goffish.services.spot.zones import Zones, best_fixed_zone, of_zone, replay_zones

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.services.spot.spot_cases import reference

HOURS = (3, 4, 6, 8, 12)
HISTORIES = ("c3.xlarge", "r3.large")
CORES, ON_DEMAND = (4, 2), (0.21, 0.175)
#: Months of 2015 that are tested, each trained on what came before.
MONTHS = ("05", "06", "07", "08")


def table(title: str, header: list[str], rows: list[list[Any]]) -> None:
    print(f"\n### {title}\n")
    _harness.print_table(header, [[str(cell) for cell in row] for row in rows])


def e1() -> None:
    market = reference()
    strategy = build_table(market, 24, 72)
    rows = []
    for slots in (14, 18, 24, 36, 48, 72):
        prices, starts = simulate_prices(market, slots, 100_000, np.random.default_rng([1, slots]))
        found = replay(strategy, 24, slots, prices, starts)
        expected = strategy.expected_cost(24, slots)
        z = (found.mean_cost - expected) / found.error if found.error > 1e-12 else 0.0
        shown = [f"{slots / 6:.2f}", f"{expected:.5f}", f"{found.mean_cost:.5f} ± {1.96 * found.error:.5f}", f"{z:.2f}"]
        rows.append([*shown, found.missed, f"{found.losses.mean():.2f}", f"{found.checkpoints.mean():.2f}"])
    table("E1: the table against 100,000 simulated runs, 8 core-hours, reference model",
          ["deadline, h", "table", "simulated ± 95 %", "z", "missed", "losses", "checkpoints"], rows)  # fmt: skip


def rules(market: Market, work: int, bid: int = 1) -> dict[str, Heuristic]:
    """H1 to H3 of the reference model on both classes; mean lifetimes from the chain."""
    found = {}
    for kind, one in enumerate(market.classes):
        start = one.stationary[: bid + 1]
        entry = one.stationary[bid + 1 :] @ one.chain[bid + 1 :, : bid + 1]
        lifetime = float(start.sum() / entry.sum()) if entry.sum() > 0 else np.inf
        for name in ("h1", "h2", "h3"):
            interval = lifetime_interval(lifetime, one.speed) if name == "h3" else np.inf
            found[f"{name} {one.name}"] = Heuristic(market, name, work, kind, bid, interval)  # type: ignore[arg-type]
    return found


def e2() -> None:
    market, rows = reference(), []
    strategy = build_table(market, 24, 72)
    policies = rules(market, 24)
    for slots in (13, 16, 18, 20, 25, 30, 36, 48, 72):
        prices, starts = simulate_prices(market, slots, 20_000, np.random.default_rng([2, slots]))
        cells = [f"{slots / 6:.2f}", f"{strategy.expected_cost(24, slots):.4f}"]
        for rule in policies.values():
            if slots < rule.least_slots:
                cells.append("–")
                continue
            ran = replay(rule, 24, slots, prices, starts)
            assert not ran.missed
            cells.append(f"{ran.mean_cost:.4f}")
        rows.append(cells)
    table("E2: expected cost by deadline, 8 core-hours, reference model; on demand 0.52",
          ["deadline, h", "RTBA", *policies], rows)  # fmt: skip


def e3() -> None:
    market, rows = reference(), []
    published = {"RTBA": "72 %", "h1": "43 %", "h2": "53 %", "h3": "67 %"}
    strategy = build_table(market, 24, 72)
    for hours in (2, 4, 6, 8):
        work = 3 * hours
        policies = rules(market, work)
        savings: dict[str, list[float]] = {"RTBA": []} | {name: [] for name in policies}
        for slots in range(1 + work, 9 * hours + 1, 2):
            if not np.isfinite(strategy.expected_cost(work, slots)):
                continue
            price = cheapest_on_demand(market, work, slots)
            savings["RTBA"].append(1 - strategy.expected_cost(work, slots) / price)
            prices, starts = simulate_prices(market, slots, 4000, np.random.default_rng([3, hours, slots]))
            for name, rule in policies.items():
                if slots >= rule.least_slots:
                    savings[name].append(1 - replay(rule, work, slots, prices, starts).mean_cost / price)
        rows.append([hours, *(f"{statistics.mean(values):.1%}" for values in savings.values())])
    header = [f"{n} (published {published[n.split()[0]]})" for n in savings]
    table("E3: mean saving against on demand, deadlines of 1 to 3 times the run time on medium, reference model",
          ["core-hours", *header], rows)  # fmt: skip


def e5() -> None:
    rows = []
    for gigabytes in (None, 1.0, 1.25, 1.5):
        local = None if gigabytes is None else Local(1, 1, 0.12 * gigabytes)
        strategy = build_table(replace(reference(), local=local), 24, 72)
        shown = "none" if gigabytes is None else f"{gigabytes:g} GB"
        rows.append([shown, *(f"{strategy.expected_cost(24, slots):.4f}" for slots in (13, 18, 25, 36, 48, 72))])
    table("E5: with a machine of one's own, 8 core-hours, data to be moved at 0.12 $/GB, reference model",
          ["local", "2:10", "3:00", "4:10", "6:00", "8:00", "12:00"], rows)  # fmt: skip


def e6() -> None:
    strategy = build_table(reference(), 36, 72)
    grey = ~np.isfinite(strategy.values[:, 0, 1:])
    works, slots = np.arange(1, 37), np.arange(73)
    wrong = int((grey != (slots[:, None] < 1 + -(-works // 2)[None, :])).sum())
    print(
        f"\n### E6: one table for 12 h and 12 core-hours\n\nIn {wrong} of {grey.size} cells the deadline can be "
        "promised although the table does not, or the other way round (invariant 1)."
    )


def fresh(work: int, slots: int) -> tuple[float, float, float]:
    """Seconds, peak MB and MB of the table of a build in a process of its own."""
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); import rtba; "
        f"print(*rtba.built({work}, {slots}))"
    )  # fmt: skip
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    seconds, peak, size = (float(x) for x in done.stdout.split()[-3:])
    return seconds, peak, size


def built(work: int, slots: int) -> tuple[float, float, float]:
    """The same, in this process; kernels are loaded before."""
    build_table(reference(), 4, 6)
    begun = time.perf_counter()
    found = build_table(reference(), work, slots)
    seconds = time.perf_counter() - begun
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0, found.bytes / 1e6


def e7() -> None:
    rows = []
    for hours, deadline in ((2, 12), (4, 12), (8, 6), (8, 12), (8, 24), (16, 12), (64, 72)):
        repeats = 1 if hours > 16 else 3
        found = [fresh(3 * hours, 6 * deadline) for _ in range(repeats)]
        note = "24.74 min published; target 3 s" if (hours, deadline) == (8, 12) else ""
        note = "target 2 min, 1 GiB" if hours == 64 else note
        rows.append([hours, deadline, f"{statistics.median(s for s, _, _ in found):.2f}",
                     f"{found[0][2]:.1f}", f"{found[0][1]:.0f}", note])  # fmt: skip
    table("E7: building a table, two threads, reference model (10 choices, 25 joint prices, 6 hour states)",
          ["core-hours", "deadline, h", "seconds", "table, MB", "peak of the process, MB", ""], rows)  # fmt: skip


def e8() -> None:
    strategy = build_table(reference(), 24, 72)
    rng, seconds = np.random.default_rng(8), []
    statuses = [submitted(int(work)) for work in rng.integers(1, 25, 20_000)]
    lefts = rng.integers(30, 73, 20_000).tolist()
    prices = [[0.014, 0.028], [0.06, 0.04]]
    for at, (status, left) in enumerate(zip(statuses, lefts, strict=True)):
        begun = time.perf_counter()
        strategy.decide(left, status, prices[at % 2])
        seconds.append(time.perf_counter() - begun)
    micro = np.quantile(np.array(seconds[1000:]) * 1e6, (0.5, 0.99))
    print(f"\n### E8: a decision\n\nmedian {micro[0]:.1f} µs, 99 % within {micro[1]:.1f} µs (target 20 µs)")


def e9() -> None:
    rows = []
    kinds: dict[str, dict[str, Any]] = {
        "hourly": {}, "hourly, price at the hour's start": {"spot_billing": "hourly_start"},
        "hourly, broken hours charged": {"charge_revoked": True},
        "per second": {"spot_billing": "per_second", "on_demand_billing": "per_second"},
        "first hour free": {"spot_billing": "first_hour_free", "on_demand_billing": "per_second"},
        "first hour free, notice": {
            "spot_billing": "first_hour_free", "on_demand_billing": "per_second", "notice": True,
        },
        "first hour free, notice, start-up billed": {
            "spot_billing": "first_hour_free", "on_demand_billing": "per_second", "notice": True,
            "startup_billed": True,
        },
    }  # fmt: skip
    for name, given in kinds.items():
        strategy = build_table(reference(**given), 24, 72)
        rows.append([name, *(f"{strategy.expected_cost(24, 6 * hours):.4f}" for hours in HOURS)])
    table("E9: rules of billing and notice, 8 core-hours, reference model", ["rule", *(f"{h} h" for h in HOURS)], rows)


def robust() -> None:
    """§7.4 (d): tables built with a wrong probability of change, under the right chain."""
    true, rows = reference(), []
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        classes = []
        for one in true.classes:
            off = np.where(np.eye(one.bins, dtype=bool), 0.0, one.chain)
            leave = float(off.sum(axis=1)[0])
            classes.append(replace(one, chain=chain_of(min(1.0, factor * leave), off)))
        strategy = build_table(replace(true, classes=tuple(classes)), 24, 72)
        cells = []
        for hours in HOURS:
            prices, starts = simulate_prices(true, 6 * hours, 50_000, np.random.default_rng([4, hours]))
            ran = replay(strategy, 24, 6 * hours, prices, starts)
            assert not ran.missed
            cells.append(f"{ran.mean_cost:.4f}")
        rows.append([f"{factor:g}", *cells])
    table(
        "Robustness: alpha wrong by a factor, cost under the right chain", ["factor", *(f"{h} h" for h in HOURS)], rows
    )


def intervals() -> None:
    """§7.4 (j): H3 by its interval between checkpoints; medium, bid level 1, 8 h."""
    market, rows = reference(), []
    prices, starts = simulate_prices(market, 48, 100_000, np.random.default_rng(5))
    for units in (2, 4, 6, 9, 15, 39):
        ran = replay(Heuristic(market, "h3", 24, 0, 1, float(units)), 24, 48, prices, starts)
        rows.append([units, f"{ran.mean_cost:.4f}"])
    table("H3 by its interval, medium, 8 h (Young's formula says 5.4 units, the paper's rule 15)", ["units", "$"], rows)


def months(zone: str) -> list[tuple[list[Any], list[Any]]]:
    """Traces to train on (all before) and to test on, for each month."""
    found = []
    for month in MONTHS:
        begin, end = seconds_of(f"2015-{month}-01"), seconds_of(f"2015-{int(month) + 1:02}-01")
        traces = [shared_trace(f"us-east-1{zone}-Linux-{name}") for name in HISTORIES]
        first = max(t.start for t in traces)
        last = min(end, *(t.end for t in traces))
        found.append(([t.between(first, begin) for t in traces], [t.between(begin, last) for t in traces]))
    return found


def market_of(train: list[Any], bids: str, estimator: str = "", preset: str = "paper-2012") -> Market:
    """With the paper's bids and chains, or with bids at quantiles and semi-Markov chains."""
    estimator = estimator or ("paper" if bids == "paper" else "semi")
    given = [
        most_probable_bids(t) if bids == "paper" else quantile_bids(t, p) for t, p in zip(train, ON_DEMAND, strict=True)
    ]
    return market_from(preset, train, CORES, ON_DEMAND, bids=given, estimator=estimator)  # type: ignore[arg-type]


def real_prices() -> None:
    """E2, E3 and the peers on the prices of 2015, each month trained on what came before."""
    for zone in "ab":
        totals: dict[str, list[list[float]]] = {}
        missed = 0
        for train, test in months(zone):
            prices = in_slots(test, 600.0, test[0].start, test[0].end)
            for bids in ("paper", "quantiles"):
                market = market_of(train, bids)
                work = market.units(8.0)
                strategy = build_table(market, work, 72)
                for at, hours in enumerate(HOURS):
                    starts = np.arange(prices.slots - 6 * hours + 1)
                    names = ["rtba", "clairvoyant"]
                    if bids == "quantiles":
                        names = ["rtba", "greedy", "eager", "uniform-progress", "clairvoyant"]
                    else:
                        names += ["h1", "h2", "h3"]
                    for one in compare(market, strategy, names, work, 6 * hours, prices, starts, train):
                        missed += 0 if one.replay is None else one.replay.missed
                        machines = "" if one.machines == "all" else f", {one.machines.split('-')[-1]}"
                        label = f"{one.policy}{machines}" + (
                            f" ({bids} bids)" if one.policy in ("rtba", "clairvoyant") else ""
                        )
                        totals.setdefault(label, [[] for _ in HOURS])[at].append(float(one.costs.mean()))
        rows = [[name, *(f"{statistics.mean(c):.4f}" if c else "–" for c in cells)] for name, cells in totals.items()]
        table(f"2015, zone {zone}: mean cost of 8 core-hours on c3.xlarge and r3.large, tested on May to August, "
              f"trained on all before; a job every 10 min; on demand 0.42; {missed} deadlines missed",
              ["policy", *(f"{h} h" for h in HOURS)], rows)  # fmt: skip


def e4() -> None:
    """Stale models: August, trained on windows that end earlier and earlier."""
    rows = []
    for zone in "ab":
        traces = [shared_trace(f"us-east-1{zone}-Linux-{name}") for name in HISTORIES]
        begin, end = seconds_of("2015-08-01"), min(t.end for t in traces)
        test = [t.between(begin, end) for t in traces]
        prices = in_slots(test, 600.0, begin, end)
        windows = {"August itself": (begin, end)}
        windows |= {
            f"a month, {age} months old": (begin - (age + 1) * MONTH_S, begin - age * MONTH_S) for age in range(4)
        }
        windows["all before"] = (max(t.start for t in traces), begin)
        for name, (first, last) in windows.items():
            market = market_of([t.between(first, last) for t in traces], "quantiles")
            strategy = build_table(market, market.units(8.0), 72)
            cells = []
            for hours in HOURS:
                starts = np.arange(prices.slots - 6 * hours + 1)
                ran = replay(strategy, strategy.work, 6 * hours, prices, starts)
                assert not ran.missed
                cells.append(f"{ran.mean_cost:.4f}")
            rows.append([zone, name, *cells])
    table("E4: stale models, jobs of August 2015, 8 core-hours, quantile bids; on demand 0.42",
          ["zone", "trained on", *(f"{h} h" for h in HOURS)], rows)  # fmt: skip


def misfit() -> None:
    """Predicted and realised cost by estimator: synthetic months off the model, and 2015."""
    rows = []
    process = [PriceProcess(0.13), PriceProcess(0.26)]
    for estimator in ("paper", "level", "slot", "semi"):
        rng = np.random.default_rng(77)
        traces = [
            synthetic_trace(p, 5 * MONTH_S, rng, name=n) for p, n in zip(process, ("medium", "large"), strict=True)
        ]
        train, test = (
            [t.between(3 * MONTH_S, 4 * MONTH_S) for t in traces],
            [t.between(4 * MONTH_S, 5 * MONTH_S) for t in traces],
        )
        market = market_from("paper-2012", train, (2, 4), (0.13, 0.26), estimator=estimator,  # type: ignore[arg-type]
                             bids=[quantile_bids(t, p) for t, p in zip(train, (0.13, 0.26), strict=True)])  # fmt: skip
        rows.append(["synthetic", estimator, *_predicted(market, test)])
    for zone in "ab":
        train, test = months(zone)[-1]
        rows += [
            [f"2015 {zone}, August", estimator, *_predicted(market_of(train, "quantiles", estimator), test)]
            for estimator in ("paper", "level", "slot", "semi")
        ]
    table(
        "Misfit: predicted / realised cost of 8 core-hours", ["prices", "estimator", *(f"{h} h" for h in HOURS)], rows
    )


def _predicted(market: Market, test: list[Any]) -> list[str]:
    strategy = build_table(market, market.units(8.0), 72)
    prices = in_slots(test, 600.0, test[0].start, test[0].end)
    states = market.joint(prices.prices, market.ages_of(prices.prices))
    cells = []
    for hours in HOURS:
        starts = np.arange(prices.slots - 6 * hours + 1)
        ran = replay(strategy, strategy.work, 6 * hours, prices, starts)
        predicted = float(strategy.values[6 * hours, states[starts], strategy.work].mean())
        cells.append(f"{predicted:.4f} / {ran.mean_cost:.4f}")
    return cells


def availability() -> None:
    """The peers' own setting: a GPU machine that is there or not, a job of a day, charged by the second."""
    folder = Path(os.environ.get("GOFFISH_DATA", "../shared/data")) / "spot-availability"
    rows, wins = [], []
    for path in sorted(folder.glob("availability_1-node_aws-02-15-2023*_v100_1.json.gz")):
        whole = read_availability(path)
        half = (whole.start + whole.end) / 2
        train, test = whole.between(whole.start, half), whole.between(half, whole.end)
        zone = path.name.split("2023_")[1].split("_")[0]
        cells: list[str] = []
        for factor in (1.15, 1.3, 1.5, 2.0):
            slots = round(144 * factor)
            prices = test.in_slots(600.0, 0.918, 6.12)
            starts = np.arange(0, prices.slots - slots + 1, 3)
            costs: dict[str, float] = {}
            for estimator in ("slot", "semi"):
                one = train.spot_class(1, 3.06, 600.0, 0.918, estimator=estimator)
                market = market_from("paper-2012", [one], [1], [3.06])
                market = replace(market, spot_billing="per_second", on_demand_billing="per_second")
                ran = replay(build_table(market, 144, slots), 144, slots, prices, starts)
                assert not ran.missed
                costs[f"RTBA {estimator}"] = ran.mean_cost
            life = lifetime_of(train)
            for name in ("greedy", "uniform-progress"):
                ran = replay(peer(market, name, 144, slots, lifetime=life), 144, slots, prices, starts)  # type: ignore[arg-type]
                assert not ran.missed
                costs[name] = ran.mean_cost
            some = starts[:: max(1, starts.size // 60)]
            costs["known"] = float(lower_bounds(market, 144, slots, prices, some + slots)[:, slots].mean())
            cells.append(" / ".join(f"{cost:.1f}" for cost in costs.values()))
            wins.append(min(costs["RTBA slot"], costs["RTBA semi"]) <= min(costs["greedy"], costs["uniform-progress"]))
        rows.append([zone, f"{whole.share:.2f}", *cells])
    print(
        "\nMean cost by RTBA (slot) / RTBA (semi) / greedy / uniform progress / all known beforehand; trained on the "
        "first half of a trace, tested on the second; no deadline missed."
    )
    header = ["zone", "available", "1.15 x", "1.3 x", "1.5 x", "2 x"]
    table("Availability of V100 machines, February 2023: a job of 24 h; on demand 73.4 $", header, rows)
    print(f"\nRTBA is the cheapest of the three in {sum(wins)} of {len(wins)} cases.")


def lifetime_of(found: Any) -> float:
    """Mean slots of 10 minutes for which machines were to be had."""
    values = found.values
    begins = int(((values == 1) & (np.append(0, values[:-1]) == 0)).sum())
    return float(values.sum()) * found.gap_s / 600.0 / max(1, begins)


def zones() -> None:
    """One job, several zones: c3.xlarge of 2015 in two of them, moves of 1 GB at 0.01 $."""
    rows = []
    names = [f"us-east-1{zone}-Linux-c3.xlarge" for zone in "ab"]
    traces = [shared_trace(name) for name in names]
    for month in MONTHS:
        begin, end = (
            seconds_of(f"2015-{month}-01"),
            min(seconds_of(f"2015-{int(month) + 1:02}-01"), *(t.end for t in traces)),
        )
        train = [t.between(max(x.start for x in traces), begin) for t in traces]
        prices = in_slots([t.between(begin, end) for t in traces], 600.0, begin, end)
        markets = tuple(
            market_from("paper-2012", [t], [4], [0.21], bids=[quantile_bids(t, 0.21)], estimator="semi") for t in train
        )
        work = markets[0].units(8.0)
        for hours in (4, 8):
            slots = 6 * hours
            starts = np.arange(0, prices.slots - slots + 1, 3)
            tables = tuple(build_table(market, work, slots) for market in markets)
            cells = []
            for policies in (tables[:1], tables[1:], tables):
                alone = None if len(policies) > 1 else int(policies[0] is tables[1])
                some = prices if alone is None else of_zone(prices, alone)
                ran, _ = replay_zones(Zones(policies, 1, 0.01, home=-1), work, slots, some, starts)
                assert not ran.missed
                cells.append(f"{ran.mean_cost:.4f}")
            for choice in ("first", "epsilon-greedy", "ucb"):
                greedy = tuple(peer(m, "greedy", work, slots, lifetime=30.0) for m in markets)
                ran, _ = replay_zones(Zones(greedy, 1, 0.01, choice=choice), work, slots, prices, starts,  # type: ignore[arg-type]
                                      rng=np.random.default_rng(1))  # fmt: skip
                assert not ran.missed
                cells.append(f"{ran.mean_cost:.4f}")
            some_starts = starts[:: max(1, starts.size // 100)]
            known, _ = best_fixed_zone(markets, work, slots, prices, some_starts + slots)
            rows.append([f"2015-{month}", hours, *cells, f"{known.mean():.4f}"])
    table("Zones: 8 core-hours on c3.xlarge, moving costs a slot and 0.01 $",
          ["month", "deadline, h", "table, a", "table, b", "a table for each", "greedy, first", "greedy, epsilon",
           "greedy, UCB", "best zone known beforehand"], rows)  # fmt: skip


PARTS: dict[str, Callable[[], None]] = {
    "E1": e1, "E2": e2, "E3": e3, "E4": e4, "E5": e5, "E6": e6, "E7": e7, "E8": e8, "E9": e9, "2015": real_prices,
    "robust": robust, "intervals": intervals, "misfit": misfit, "availability": availability, "zones": zones,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), help="default: all")
    options = parser.parse_args()
    print(_harness.machine_line([]))
    for name in options.only:
        PARTS[name]()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
