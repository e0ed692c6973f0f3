"""Walk-forward evaluation of scheduler policies on request rates that no choice was based on.

    [GOFFISH_DATA=FOLDER] python -m experiments.holdout.rates [--days N] [--flows NAME …] [--output FILE]

Each case is a dataflow and the rates of its goal's period, 10 or 12 hours, on machines whose speeds vary as on EC2.
Rates of logs are scaled so that the mean of the day before is the expected rate of the dataflow: no case uses its own
mean.

The configurations below were fixed before the first run on these cases, one per policy, with the defaults of the
package. They were developed on generated rates with seeds below 200 and on days 2 to 36 of the request log. Evaluated
are days 37 to 57, half a day at a time, generated rates with seeds from 200 on, and the logs in the folder
``request-rates`` of GOFFISH_DATA other than the bundled one: archives (.tar.bz2) of one text file with the requests of
every second.

| label | policy | options | forecast |
|---|---|---|---|
| auto | auto | defaults | quantiles, 60 min |
| plasticc | plasticc | defaults | quantiles, 60 min |
| reactive-global | reactive-global | defaults | none |
| published plasticc | plasticc | constraint=interval, horizon=4 | moving mean, 20 min |
| published reactive-global | reactive-global | alternates=ratio | none |
| oracle plasticc | plasticc | defaults | the actual rates and speeds, 60 min: not available in reality |
| ds2 | ds2 | defaults | none |
| caf | caf | defaults | none |
| static | static-reactive-global | defaults | none |

Every case is reported. The better of two policies is the one with the higher profit among those that met the goal.
Intervals are 95 % bootstrap intervals of the mean over cases. Small cases add the optimum at rated speed: an upper
bound of the profit of any valid run, the same for runs at the goal's throughput, and a receding horizon of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import _harness
from experiments.holdout.optimum import Receding, solve
from experiments.holdout.statistics import bootstrap_interval
from goffish.cloud.catalogue import read_catalogue
from goffish.scheduling.dataflow.flow import Floats, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.observation import Policy
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.simulate.rates import requests, scaled
from goffish.scheduling.simulate.run import simulate
from goffish.scheduling.simulate.scenario import make_forecaster, make_rates, make_variability

CLOUD = "ec2-2013-m1"
DAY_S = 86_400.0
#: Variable that names the folder of larger data.
DATA = "GOFFISH_DATA"
FIRST_DAY, LAST_DAY = 37, 57
SHAPES = ("spikes", "free-walk", "walk", "daily", "on-off")
SEEDS = range(200, 204)
FLOWS = ("linear-road", "text-classifier", "sc13-diamond", "plasticc-10x3")
#: The log that is bundled with the package, in minutes, has this name in the folder of logs.
BUNDLED = "nasa"


class Configured(NamedTuple):
    """The one configuration of a policy; `minutes` is the horizon of its forecast."""

    policy: str
    options: dict[str, Any]
    forecast: str | None = None
    minutes: int = 60


POLICIES = {
    "auto": Configured("auto", {}, "quantiles"),
    "plasticc": Configured("plasticc", {}, "quantiles"),
    "reactive-global": Configured("reactive-global", {}),
    "published plasticc": Configured("plasticc", {"constraint": "interval", "horizon": 4}, "mean", 20),
    "published reactive-global": Configured("reactive-global", {"alternates": "ratio"}),
    "oracle plasticc": Configured("plasticc", {}, "oracle"),
    "ds2": Configured("ds2", {}),
    "caf": Configured("caf", {}),
    "static": Configured("static-reactive-global", {}),
}


class Case(NamedTuple):
    """Rates of a dataflow: a log and the half day in it, or a generated shape and its seed."""

    flow: str
    source: str
    number: int

    @property
    def generated(self) -> bool:
        return self.source in SHAPES


@dataclass(frozen=True)
class Outcome:
    """The figures of a run."""

    flow: str
    source: str
    number: int
    policy: str
    throughput: float
    value: float
    cost: float
    profit: float
    met: bool
    starts: int


def logs() -> dict[str, str]:
    """Names and paths of the logs in GOFFISH_DATA, without the bundled one."""
    folder = os.environ.get(DATA)
    found = sorted(Path(folder).glob("request-rates/*.tar.bz2")) if folder else []
    return {name: str(path) for path in found if (name := path.name.removesuffix(".tar.bz2")) != BUNDLED}


@cache
def read_log(path: str) -> Floats:
    """Requests of every minute of a log in seconds."""
    with tarfile.open(path) as archive:
        member = next(one for one in archive if one.isfile())
        file = archive.extractfile(member)
        assert file is not None
        seconds = np.array(file.read().split(), np.float64)
    return np.asarray(seconds[: seconds.size // 60 * 60].reshape(-1, 60).sum(axis=1), np.float64)


def mean_rates(source: str, steps: int, interval_s: float, first_s: float) -> Floats:
    """Unscaled rates of a log."""
    minutes = _bundled() if source == BUNDLED else read_log(logs()[source])
    part = minutes[int(first_s // 60) :][: steps * int(interval_s // 60)]
    return np.asarray(part.reshape(steps, -1).mean(axis=1), np.float64)


@cache
def _bundled() -> Floats:
    return requests(1.0, int((LAST_DAY + 1) * DAY_S // 60), 60.0)


def cases(flows: Sequence[str], days: int) -> list[Case]:
    """All cases: `days` days of every log, and every shape and seed."""
    found = []
    for flow in flows:
        for source in (BUNDLED, *logs()):
            if source == BUNDLED:
                first, last = FIRST_DAY, LAST_DAY
            else:
                first, last = 1, int(read_log(logs()[source]).size // 1440) - 1
            found += [Case(flow, source, half) for half in range(2 * first, min(2 * last, 2 * (first + days)))]
        found += [Case(flow, shape, seed) for shape in SHAPES for seed in SEEDS]
    return found


def rates_of(case: Case) -> tuple[Any, Floats]:
    """The dataflow of a case, and its rates; zeros for a log that is silent the day before."""
    flow = compile_flow(read_dataflow(case.flow))
    interval_s = flow.goal.interval_s
    steps = round(flow.goal.period_h * 3600.0 / interval_s)
    if case.generated:
        return flow, make_rates(case.source, flow, steps, interval_s, case.number)
    first_s = case.number * DAY_S / 2
    before = mean_rates(case.source, round(DAY_S / 60), 60.0, first_s - DAY_S).mean()
    found = mean_rates(case.source, steps, interval_s, first_s)
    return flow, scaled(flow, found / before if before > 0 else np.zeros(steps))


def run(case: Case, label: str, variability: str = "ec2", policy: Policy | None = None) -> Outcome:
    """Run a policy on a case; by default its configured one."""
    flow, rates = rates_of(case)
    configured, interval_s = POLICIES.get(label, Configured(label, {})), flow.goal.interval_s
    machines = make_variability(variability, case.number)
    forecaster = None
    if configured.forecast is not None:
        forecaster = make_forecaster(
            configured.forecast, flow, rates, machines, interval_s=interval_s,
            horizon=round(configured.minutes * 60 / interval_s),
        )  # fmt: skip
    made = policy or make_policy(configured.policy, configured.options)
    s = simulate(flow, CLOUD, made, rates, machines, forecaster, interval_s=interval_s, network=False).summary
    return Outcome(*case, label, s.omega, s.value, s.cost, s.profit, s.throughput_met, s.starts)


def better_and_worse(one: Outcome, other: Outcome) -> tuple[Outcome, Outcome]:
    """The run with the higher profit among those that met the goal, and the other one."""
    ordered = sorted((one, other), key=lambda found: (found.met, found.profit))
    return ordered[1], ordered[0]


def gain(ours: Outcome, theirs: Outcome) -> float:
    """Relative gain of profit."""
    return (ours.profit - theirs.profit) / abs(theirs.profit)


def summarize(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Gains of `auto` and `plasticc` over all cases, each with its mean, bootstrap interval and worst case."""
    by_case: dict[Case, dict[str, Outcome]] = {}
    for one in outcomes:
        by_case.setdefault(Case(one.flow, one.source, one.number), {})[one.policy] = one
    pairs = [better_and_worse(found["reactive-global"], found["plasticc"]) for found in by_case.values()]
    gains = {
        "auto over the better of reactive-global and plasticc": [
            gain(found["auto"], pair[0]) for found, pair in zip(by_case.values(), pairs, strict=True)
        ],
        "auto over the worse of the two": [
            gain(found["auto"], pair[1]) for found, pair in zip(by_case.values(), pairs, strict=True)
        ],
    }
    for ours, theirs in (
        ("plasticc", "reactive-global"), ("plasticc", "published plasticc"), ("plasticc", "published reactive-global"),
        ("published plasticc", "published reactive-global"), ("reactive-global", "published reactive-global"),
        ("oracle plasticc", "plasticc"), ("plasticc", "ds2"), ("plasticc", "caf"), ("plasticc", "static"),
    ):  # fmt: skip
        gains[f"{ours} over {theirs}"] = [gain(found[ours], found[theirs]) for found in by_case.values()]
    return {
        name: {"mean": float(np.mean(some)), "interval": bootstrap_interval(some), "worst": min(some),
               "won": float(np.mean(np.array(some) > 0))}
        for name, some in gains.items()
    }  # fmt: skip


def gain_cells(one: dict[str, Any]) -> list[str]:
    """Cells of a gain."""
    low, high = one["interval"]
    return [f"{one['mean']:+.1%}", f"{low:+.1%} to {high:+.1%}", f"{one['worst']:+.1%}", f"{one['won']:.0%}"]


def optimum(case: Case) -> dict[str, Any]:
    """Profits of a small case at rated speed, with its upper bounds and the receding horizon."""
    flow, rates = rates_of(case)
    interval_s, goal = flow.goal.interval_s, flow.goal
    cloud = read_catalogue(CLOUD)
    found: dict[str, Any] = {"case": case._asdict()}
    for name, target in (("bound", goal.throughput - goal.tolerance), ("bound at the goal", goal.throughput)):
        found[name] = solve(flow, cloud, rates, interval_s, target, seconds=30.0).bound
    receding = Receding(make_policy("reactive-global"), rates, horizon=round(3600.0 / interval_s))
    found["receding horizon"] = asdict(run(case, "receding horizon", "none", receding))
    for label in ("auto", "plasticc", "reactive-global", "oracle plasticc"):
        found[label] = asdict(run(case, label, "none"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=LAST_DAY - FIRST_DAY, help="days of each log [default: all]")
    parser.add_argument("--flows", nargs="+", default=list(FLOWS), choices=FLOWS)
    parser.add_argument("--optima", type=int, default=2, help="small cases with an optimum [default: 2]")
    parser.add_argument("--output", help="JSON file of all outcomes")
    options = parser.parse_args()
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    print(_harness.machine_line(["scipy"]))
    every = cases(options.flows, options.days)
    with ProcessPoolExecutor(2) as pool:
        runs = [pool.submit(run, case, label) for case in every for label in POLICIES]
        small = [pool.submit(optimum, case) for case in cases(["text-classifier"], 1)[: options.optima]]
        outcomes = [one.result() for one in runs]
        optima = [one.result() for one in small]
    print("\n### Every case: profit (throughput); * goal missed\n")
    rows = []
    for at, case in enumerate(every):
        some = outcomes[at * len(POLICIES) : (at + 1) * len(POLICIES)]
        cells = [f"{one.profit:.3f} ({one.throughput:.2f}){'' if one.met else '*'}" for one in some]
        rows.append([case.flow, case.source, str(case.number), *cells])
    _harness.print_table(["dataflow", "rates", "half day or seed", *POLICIES], rows)
    summary = {"all cases": summarize(outcomes)}
    for flow in options.flows:
        summary[flow] = summarize([one for one in outcomes if one.flow == flow])
    for source in dict.fromkeys(case.source for case in every):
        summary[source] = summarize([one for one in outcomes if one.source == source])
    means = []
    for group in summary:
        kept = [one for one in outcomes if group in ("all cases", one.flow, one.source)]
        cells = []
        for label in POLICIES:
            own = [one for one in kept if one.policy == label]
            missed = sum(not one.met for one in own)
            cells.append(f"{np.mean([one.profit for one in own]):.3f}" + (f" ({missed} missed)" if missed else ""))
        means.append([group, str(len(kept) // len(POLICIES)), *cells])
    print("\n### Mean profit\n")
    _harness.print_table(["cases", "number", *POLICIES], means)
    header = ["mean", "95 % interval", "worst case", "cases with a gain"]
    print("\n### Gain of profit over all cases\n")
    rows = [[name, *gain_cells(one)] for name, one in summary["all cases"].items()]
    _harness.print_table(["gain", *header], rows)
    for name in list(summary["all cases"])[:3]:
        print(f"\n### Gain of profit: {name}\n")
        _harness.print_table(["cases", *header], [[group, *gain_cells(some[name])] for group, some in summary.items()])
    print("\n### Small cases at rated speed: profit (throughput), upper bounds, and a receding horizon of an hour\n")
    labels = ["receding horizon", "auto", "plasticc", "reactive-global", "oracle plasticc"]
    _harness.print_table(
        ["half day", "bound", "bound at the goal", *labels],
        [[str(one["case"]["number"]), f"{one['bound']:.3f}", f"{one['bound at the goal']:.3f}",
          *(f"{one[label]['profit']:.3f} ({one[label]['throughput']:.2f})" for label in labels)] for one in optima],
    )  # fmt: skip
    if options.output:
        everything = {"outcomes": [asdict(one) for one in outcomes], "summary": summary, "optima": optima}
        Path(options.output).write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
