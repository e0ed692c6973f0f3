"""Look-ahead provisioning: experiments F1 to F10 of docs/specs/plasticc.md, section 7.3.

    python -m experiments.figures.lookahead [--only F1 F5 …] [--graphs 6] [--seeds 3]

Ten stages of three elements, three streams with a daily wave and noise, machines that vary as measured on EC2, 12
hours, a decision every 5 minutes. All figures are means over graphs and seeds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks import _harness
from experiments.dataflows.generators import layered_dataflow, staged_dataflow
from experiments.figures.provisioning import stepped, timed
from experiments.figures.published import Published, published
from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.errors import InputError
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.control.forecasts import (
    ForecastError,
    Oracle,
    arima,
    exponential_smoothing,
    last_value,
    moving_mean,
)
from goffish.scheduling.control.records import Summary
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import Dataflow
from goffish.scheduling.policies.genetic import Genetic
from goffish.scheduling.policies.observation import Forecast
from goffish.scheduling.simulate.rates import requests, scaled
from goffish.scheduling.simulate.run import simulate
from goffish.scheduling.simulate.scenario import make_forecaster, make_rates, make_variability

M1 = read_catalogue("ec2-2013-m1")
STEPS, INTERVAL_S = 144, 300.0
HORIZONS = {"10 min": 2, "20 min": 4, "30 min": 6, "60 min": 12}
OBSERVING = ("caf", "waaf", "reactive-global", "reactive-local")
PREDICTING = ("wpa", "wpo", "wpp", "plasticc")


def staged(graph: int) -> Dataflow:
    """A graph with costs at the break-even as section 4.5 has them: the worth of money is 0.35 over the ideal cost."""
    dataflow = staged_dataflow(np.random.default_rng([graph, 11]))
    flow = compile_flow(dataflow)
    into, _ = flow.ideal(flow.best, flow.rates)
    hourly = flow.goal.throughput * float(flow.cost[flow.rows(flow.best)] @ into) / 0.85 * 0.06
    gap = (flow.value_of(flow.best) - flow.value_of(flow.worst)) * hourly * 12.0 / 0.35
    goal = dataflow.goal.model_copy(update={"cost_at_best_value": 2 * gap, "cost_at_worst_value": gap})
    return dataflow.model_copy(update={"goal": goal})


def run(
    policy: str, graph: int, seed: int, horizon: int, options: dict[str, Any], error: dict[str, Any],
    cloud: Catalogue, fail: bool,
) -> tuple[Summary, Any, int]:  # fmt: skip
    """One run of 12 hours."""
    flow = compile_flow(staged(graph))
    rates = make_rates("daily", flow, STEPS, INTERVAL_S, seed)
    variability = make_variability("ec2", seed)
    failures = Failures(shares=((STEPS // 2 * INTERVAL_S, 0.1),), seed=seed) if fail else None
    forecaster = None
    if policy in PREDICTING:
        wrong = ForecastError(**({"mean": 0.0} | error | {"seed": seed}))
        forecaster = Oracle(rates, variability, INTERVAL_S, horizon, min(2, horizon), wrong)
        options = options | {"horizon": horizon}
    result = simulate(
        flow, cloud, published(policy, options), rates, variability, forecaster, interval_s=INTERVAL_S,
        failures=failures, network=False,
    )  # fmt: skip
    names = ("omega", "switches", "instance_changes", "starts")
    columns = {name: result.intervals.column(name).to_numpy() for name in names}
    # A machine that is given back empty is no change of what the dataflow does.
    changed = (columns["switches"] + columns["instance_changes"] + columns["starts"])[1:] > 0
    return result.summary, columns["omega"], int(changed.sum())


class Means:
    """Runs over all graphs and seeds, side by side, and means of their figures."""

    def __init__(self, graphs: int, seeds: int) -> None:
        self.cases = [(graph, seed) for graph in range(graphs) for seed in range(seeds)]
        self.pool = ProcessPoolExecutor(2)

    def ask(
        self, policy: str, horizon: int = 4, *, cloud: Catalogue = M1, fail: bool = False,
        error: dict[str, Any] | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Futures of all cases."""
        return [self.pool.submit(run, policy, *case, horizon, options, error or {}, cloud, fail) for case in self.cases]

    @staticmethod
    def take(futures: Iterable[Any]) -> dict[str, float]:
        found = [future.result() for future in futures]
        names = ("omega", "omega_sd", "profit", "cost", "chi", "starts", "switches")
        means = {name: statistics.mean(float(getattr(summary, name)) for summary, _, _ in found) for name in names}
        return means | {"changes": statistics.mean(changes for _, _, changes in found)}


def f1_to_f4(means: Means) -> None:
    asked = {(name, "–"): means.ask(name) for name in OBSERVING}
    asked |= {(name, label): means.ask(name, tau) for name in PREDICTING for label, tau in HORIZONS.items()}
    rows = []
    for (name, label), futures in asked.items():
        m = means.take(futures)
        rows.append([name, label, f"{m['omega']:.3f}", f"{m['omega_sd']:.3f}", f"{m['profit']:.3f}", f"{m['cost']:.0f}",
                     f"{m['chi']:.1f}", f"{m['starts']:.0f}", f"{m['changes']:.0f}"])  # fmt: skip
    print("\n### F1 to F4: perfect oracle\n")
    header = [
        "policy",
        "look-ahead",
        "throughput",
        "its deviation",
        "profit",
        "$",
        "outside the band",
        "starts",
        "with changes",
    ]
    _harness.print_table(header, rows)


def f5_f7(means: Means) -> None:
    rows = []
    for bias in (0.0, -0.05, 0.05):
        for error in (0.0, 0.05, 0.1, 0.15, 0.2):
            asked = {name: means.ask(name, 4, error={"mean": error, "bias": bias}) for name in PREDICTING}
            found = {name: means.take(futures) for name, futures in asked.items()}
            rows.append(
                [f"{bias:+.0%}", f"{error:.0%}", *(f"{m['profit']:.3f} ({m['omega']:.2f})" for m in found.values())]
            )
    print("\n### F5, F7: errors of the forecast, look-ahead of 20 minutes: profit (throughput)\n")
    _harness.print_table(["bias", "error", *PREDICTING], rows)


def f6(means: Means) -> None:
    rows = []
    for error in (0.0, 0.05, 0.1, 0.15, 0.2):
        asked = [means.ask("plasticc", tau, error={"mean": error}) for tau in HORIZONS.values()]
        rows.append([f"{error:.0%}", *(f"{means.take(futures)['profit']:.3f}" for futures in asked)])
    print("\n### F6: profit of PLAStiCC by error and look-ahead\n")
    _harness.print_table(["error", *HORIZONS], rows)


def f8(means: Means) -> None:
    rows = []
    for minutes in (1, 2, 5, 10):
        cloud = M1.model_copy(update={"startup_s": 60.0 * minutes})
        cells = [f"{minutes}"]
        for name in ("caf", "plasticc"):
            m = means.take(means.ask(name, 4, cloud=cloud, carry_over=False))
            cells += [f"{m['omega']:.3f}", f"{m['profit']:.3f}", f"{m['starts']:.0f}"]
        rows.append(cells)
    print("\n### F8: start-up in minutes, nothing carried over\n")
    header = ["minutes", "CAF throughput", "profit", "starts", "PLAStiCC throughput", "profit", "starts"]
    _harness.print_table(header, rows)


def f9(means: Means) -> None:
    rows = []
    for size in (10, 100, 1000):
        flow = compile_flow(layered_dataflow(size, np.random.default_rng(1)))
        cells = [f"{size:,}"]
        for tau in (6, 12):
            policy = published("plasticc", {"horizon": tau})
            observation = stepped(flow, M1, policy, 1.0)
            rates = np.tile(flow.rates * 1.2, (tau, 1))
            object.__setattr__(observation, "forecast", Forecast(3, rates, {}))
            cells.append(f"{1e3 * timed(partial(policy.adapt, observation, None), 5):.2f}")
            plan = policy.plan(observation)
            cells.append("" if plan is None else f"{len(plan.actions)}")
        cells.append(f"{1e3 * timed(partial(Published('central').deploy, flow, M1)):.1f}")
        begun = time.perf_counter()
        if size <= 100:
            Genetic(seed=0).deploy(flow, M1)
        cells.append(f"{time.perf_counter() - begun:.2f}" if size <= 100 else "")
        rows.append(cells)
    print(
        "\n### F9: planning, rate 20 % higher from now on; targets: 10 ms at 100 elements, 1 s at 1,000 over an hour\n"
    )
    header = ["elements", "PLAStiCC 30 min, ms", "actions", "PLAStiCC 60 min, ms", "actions", "CE deploys, ms"]
    _harness.print_table([*header, "GA deploys, s"], rows)


def f10(means: Means) -> None:
    rows = []
    for name in ("plasticc", "caf", "reactive-global"):
        omegas = np.mean([future.result()[1] for future in means.ask(name, 4, fail=True)], axis=0)
        middle = STEPS // 2
        rows.append([name, *(f"{omega:.3f}" for omega in omegas[middle - 1 : middle + 5])])
    print("\n### F10: a tenth of the machines fails at interval 72: throughput of intervals 71 to 76\n")
    _harness.print_table(["policy", "71", "72", "73", "74", "75", "76"], rows)


def forecasts(means: Means) -> None:
    models = {
        "last": last_value(), "mean": moving_mean(), "smoothing": exponential_smoothing(),
        "arima": arima(),
    }  # fmt: skip
    day = round(86_400 / INTERVAL_S)
    try:
        log = requests(1.0, 14 * day, INTERVAL_S, first_s=7 * 86_400.0)
    except InputError as error:
        print(f"\nskipped: {error}")
        return
    speeds = make_variability("ec2", 1).speed.values[0][: 4 * day]
    rows = []
    for name, model in models.items():
        cells = [name]
        for values in (log, speeds):
            errors: dict[int, list[float]] = {1: [], 4: [], 12: []}
            for at in range(day, values.size - 12, 7):
                ahead = model(values[:at], 12)
                for steps, found in errors.items():
                    found.append(abs(ahead[steps - 1] - values[at + steps - 1]) / values.mean())
            cells += [f"{statistics.mean(found):.1%}" for found in errors.values()]
        rows.append(cells)
    print("\n### Forecasts of real request rates (NASA 1995) and machine speeds: mean absolute error over the mean\n")
    ahead_of = [f"{what} {minutes} min" for what in ("rate", "speed") for minutes in (5, 20, 60)]
    _harness.print_table(["model", *ahead_of], rows)

    flow = compile_flow(staged(0))
    variability = make_variability("ec2", 1)
    rows = []
    for first_day in (8, 15):
        shape = requests(1.0, STEPS, INTERVAL_S, first_s=first_day * 86_400.0)
        rates = scaled(flow, shape)
        for name in ("oracle", *models):
            forecaster = make_forecaster(name, flow, rates, variability, interval_s=INTERVAL_S, horizon=4)
            for policy in ("plasticc", "wpa"):
                made = published(policy, {"horizon": 4})
                found = simulate(flow, M1, made, rates, variability, forecaster, interval_s=INTERVAL_S, network=False)
                summary = found.summary
                figures = [f"{summary.omega:.3f}", f"{summary.profit:.3f}", f"{summary.cost:.0f}"]
                rows.append([f"{first_day}", name, policy, *figures])
        made = published("caf")
        summary = simulate(flow, M1, made, rates, variability, interval_s=INTERVAL_S, network=False).summary
        rows.append(
            [f"{first_day}", "–", "caf", f"{summary.omega:.3f}", f"{summary.profit:.3f}", f"{summary.cost:.0f}"]
        )
    print("\n### Policies on real request rates (first 12 hours of a day), by forecast, look-ahead of 20 minutes\n")
    _harness.print_table(["day", "forecast", "policy", "throughput", "profit", "$"], rows)


PARTS: dict[str, Callable[[Means], None]] = {
    "F1": f1_to_f4,
    "F5": f5_f7,
    "F6": f6,
    "F8": f8,
    "F9": f9,
    "F10": f10,
    "forecasts": forecasts,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), help="default: all")
    parser.add_argument("--graphs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    print(_harness.machine_line(["statsmodels"]))
    means = Means(options.graphs, options.seeds)
    for name in options.only:
        PARTS[name](means)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
