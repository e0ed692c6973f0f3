"""The parts of `rtba.py` on real markets: EC2's prices of 2015, and the SkyPilot spot traces."""

from __future__ import annotations

import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _harness
from experiments.spot.synthetic import MONTH_S, PriceProcess, synthetic_trace
from experiments.spot.zones import Zones, best_fixed_zone, of_zone, replay_zones
from goffish.cloud.availability import read_availability
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.prices import ANY_PRICE, bundled_trace, in_slots, seconds_of
from goffish.scheduling.spot.agent import Agent
from goffish.scheduling.spot.availability import availability_class
from goffish.scheduling.spot.bills import bills
from goffish.scheduling.spot.comparison import compare, lower_bounds
from goffish.scheduling.spot.estimate import most_probable_bids, quantile_bids
from goffish.scheduling.spot.heuristics import mean_lifetime
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.peers import peer
from goffish.scheduling.spot.presets import market_from
from goffish.scheduling.spot.replay import replay
from goffish.scheduling.spot.table import build_table
from goffish.services.runners.cloud_planning import HOUR_S, Need, Planner

HOURS = (3, 4, 6, 8, 12)
#: Jobs of `service`.
SERVICE_HOURS = (4.0, 12.0, 24.0)
HISTORIES = ("c3.xlarge", "r3.large")
CORES, ON_DEMAND = (4, 2), (0.21, 0.175)
#: Months of 2015 that are tested, each trained on what came before.
MONTHS = ("05", "06", "07", "08")


def table(title: str, header: list[str], rows: list[list[Any]]) -> None:
    print(f"\n### {title}\n")
    _harness.print_table(header, [[str(cell) for cell in row] for row in rows])


def months(zone: str) -> list[tuple[list[Any], list[Any]]]:
    """Traces to train on (all before) and to test on, for each month."""
    found = []
    for month in MONTHS:
        begin, end = seconds_of(f"2015-{month}-01"), seconds_of(f"2015-{int(month) + 1:02}-01")
        traces = [bundled_trace(f"us-east-1{zone}-Linux-{name}") for name in HISTORIES]
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
        traces = [bundled_trace(f"us-east-1{zone}-Linux-{name}") for name in HISTORIES]
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
    folder = Path(os.environ.get("GOFFISH_DATA", "")) / "spot-availability"
    rows, wins = [], []
    for path in sorted(folder.glob("availability_1-node_aws-02-15-2023*_v100_1.json.gz")):
        whole = read_availability(path)
        trace, half = whole.trace(0.918), (whole.start + whole.end) / 2
        train, test = trace.between(whole.start, half), trace.between(half, whole.end)
        prices = in_slots([test], 600.0, half, whole.end)
        zone = path.name.split("2023_")[1].split("_")[0]
        cells: list[str] = []
        for factor in (1.15, 1.3, 1.5, 2.0):
            slots = round(144 * factor)
            starts = np.arange(0, prices.slots - slots + 1, 3)
            costs: dict[str, float] = {}
            for estimator in ("slot", "semi"):
                one = availability_class(train, 1, 3.06, 600.0, 0.918, estimator=estimator)  # type: ignore[arg-type]
                market = market_from("paper-2012", [one], [1], [3.06])
                market = replace(market, spot_billing="per_second", on_demand_billing="per_second")
                ran = replay(build_table(market, 144, slots), 144, slots, prices, starts)
                assert not ran.missed
                costs[f"RTBA {estimator}"] = ran.mean_cost
            life = mean_lifetime(train, ANY_PRICE, 600.0)
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


def service() -> None:
    """Jobs as the service runs them: plans from the first half of a trace, bills of jobs that begin in the second."""
    folder = Path(os.environ.get("GOFFISH_DATA", "")) / "spot-availability"
    rows: list[list[Any]] = []
    ratios: list[float] = []
    predicted: list[float] = []
    for path in sorted(folder.glob("*.json.gz")):
        whole = read_availability(path)
        half = (whole.start + whole.end) / 2
        one = {"name": "machine", "cores": 1, "price_per_hour": 1.0, "market": "spot", "spot_price_per_hour": 0.3,
               "availability": str(path.absolute())}  # fmt: skip
        billing = {"quantum_s": 1, "minimum_s": 60}
        catalogue, planner = read_catalogue({"machine_types": [one], "billing": billing}), Planner()
        for hours in SERVICE_HOURS:
            cells = []
            for factor in (1.15, 1.3, 1.5, 2.0, 3.0):
                need = Need(hours, 120.0, 30.0, hours * factor * HOUR_S, 60.0, notice=True, between_s=600.0)
                costs, share = {}, 0.0
                for name in ("rtba", "uniform-progress"):
                    plan = planner.plan(catalogue, name, need)
                    rule = plan.policy.table if isinstance(plan.policy, Agent) else plan.policy
                    test = [whole.trace(0.3).between(half, whole.end)]
                    prices = in_slots(test, plan.slot_s, half, whole.end)
                    if not plan.promised or prices.slots <= plan.slots:
                        break
                    starts = np.unique(np.linspace(0, prices.slots - plan.slots, 400).astype(np.int64))
                    ran = bills(rule, plan.course, plan.slots, prices, starts)
                    assert (ran.seconds <= need.left_s).all(), (path, name, factor)  # type: ignore[operator]
                    costs[name] = float(ran.costs.mean())
                    share = share or costs[name] / plan.expected_cost
                if len(costs) < 2:
                    cells.append("–")
                    continue
                ratios.append(costs["rtba"] / costs["uniform-progress"])
                predicted.append(share)
                cells.append(f"{costs['rtba']:.3f} / {costs['uniform-progress']:.3f}")
            rows.append([path.name.split(".json")[0].removeprefix("availability_1-node_"), hours, *cells])
    header = ["trace", "hours", "1.15 x", "1.3 x", "1.5 x", "2 x", "3 x"]
    table("RTBA / uniform progress as the service runs them: mean bills in $, on demand 1 $ an hour", header, rows)
    if ratios:
        found = np.array(ratios)
        print(
            f"\nRTBA costs at most as much as uniform progress in {(found <= 1.0 + 1e-9).mean():.1%} of {found.size} "
            f"cases; mean {found.mean():.3f}, worst {found.max():.3f}, above 1.01 in {(found > 1.01).sum()}. Bill over "
            f"expected cost of RTBA: median {np.median(predicted):.2f}, {np.quantile(predicted, 0.1):.2f} to "
            f"{np.quantile(predicted, 0.9):.2f} in 80 %."
        )


def zones() -> None:
    """One job, several zones: c3.xlarge of 2015 in two of them, moves of 1 GB at 0.01 $."""
    rows = []
    names = [f"us-east-1{zone}-Linux-c3.xlarge" for zone in "ab"]
    traces = [bundled_trace(name) for name in names]
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
