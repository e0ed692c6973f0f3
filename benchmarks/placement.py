"""All planners on the same dataflow, cloud and request rates.

    python benchmarks/placement.py [--policies btu edrp …] [--hours 6] [--picture FILE.png]

Every policy runs the Linear Road dataflow on the rates of a real web server, first on machines that deliver what they
are rated for, then on machines that vary as those of EC2 did, then on machines that fail. No paper has this table; the
published ones are in experiments/.
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import _harness

from goffish.cloud.catalogue import read_catalogue
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.flow import Flow, compile_flow, external_rates
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.policies import looks_ahead, make_policy, policy_names
from goffish.scheduling.simulate.run import simulate
from goffish.scheduling.simulate.scenario import make_forecaster, make_rates, make_variability

#: What happens to the machines: how their speed varies, and their mean life in hours.
SITUATIONS: dict[str, tuple[str, float | None]] = {
    "steady machines": ("none", None),
    "machines vary as on EC2": ("ec2", None),
    "mean machine lifetime 12 h": ("none", 12.0),
}
#: Searches through all deployments: for a handful of elements only.
LEFT_OUT = ("brute-force",)
#: Takes seconds for each of its plans, so it is run with one seed only.
SLOW = ("edrp",)
_CLOUD, _RATE, _SEEDS = "ec2-2013-m1", 50.0, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=[name for name in policy_names() if name not in LEFT_OUT])
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--picture", help="of the first situation and the first seven policies, over time")
    given = parser.parse_args()
    print(_harness.machine_line())
    compare(given.policies, given.situations, given.hours, given.picture)


def compare(policies: list[str], situations: list[str], hours: float, picture: str | None) -> None:
    """One table for each situation; medians over seeds where the machines differ with them."""
    for situation in situations:
        variability, life = SITUATIONS[situation]
        seeds = range(1 if variability == "none" and life is None else _SEEDS)
        with ProcessPoolExecutor(2) as pool:
            jobs = {
                (name, seed): pool.submit(run, name, hours, variability, life, seed)
                for name in policies
                for seed in (seeds[:1] if name in SLOW else seeds)
            }
            found = {key: job.result() for key, job in jobs.items()}
        print(
            f"\n### {situation}; {hours:g} h, mean of {_RATE:g} messages/s, medians of {len(seeds)} runs (EDRP: one)\n"
        )
        rows = sorted(
            (row(name, [result for (who, _), result in found.items() if who == name]) for name in policies),
            key=lambda figures: (figures[2] != "yes", float(figures[5])),
        )
        header = ["policy", "throughput", "met", "compliance", "latency, s", "dollars", "value", "profit"]
        _harness.print_table([*header, "changes", "starts", "lost", "ms per plan"], rows)
        if picture is not None and life is None and variability == "none":
            from goffish.plot.files import save
            from goffish.plot.simulation import simulation

            save(simulation({name: found[name, 0] for name in policies[:7]}, road(hours).goal), picture)


def row(name: str, results: list[Result]) -> list[str]:
    figures = [result.summary for result in results]
    plans = [statistics.median(result.planning_s) * 1e3 for result in results]

    def middle(field: str, digits: str) -> str:
        return format(statistics.median(getattr(one, field) for one in figures), digits)

    return [
        name, middle("omega", ".3f"), "yes" if all(one.valid for one in figures) else "no", middle("compliance", ".1%"),
        middle("latency_s", ".3g"), middle("cost", ".2f"), middle("value", ".3f"), middle("profit", ".3f"),
        middle("reconfigurations", "g"), middle("starts", "g"), middle("lost", ".0f"),
        f"{statistics.median(plans):.2g}",
    ]  # fmt: skip


def road(hours: float) -> Flow:
    """Linear Road at the mean rate, with its break-even costs for the time."""
    flow = compile_flow(read_dataflow("linear-road"))
    cost = 0.12 * _RATE * hours
    goal = flow.goal.model_copy(update={"cost_at_best_value": cost, "cost_at_worst_value": cost / 2, "period_h": hours})
    flow = replace(flow, goal=goal)
    return flow.with_rates(external_rates(flow, {"reports": _RATE}))


def run(name: str, hours: float, variability: str, life_h: float | None, seed: int) -> Result:
    """A policy for the time, with its own options and, if it looks ahead, forecasts by smoothing."""
    flow = road(hours)
    length = flow.goal.interval_s
    rates = make_rates("requests", flow, round(hours * 3600 / length), length, seed)
    machines = make_variability(variability, seed)
    forecaster = None
    if looks_ahead(name):
        forecaster = make_forecaster("smoothing", flow, rates, machines, interval_s=length, horizon=4, seed=seed)
    failures = Failures(mean_life_s=None if life_h is None else life_h * 3600.0, seed=seed)
    return simulate(
        flow, read_catalogue(_CLOUD), make_policy(name), rates, machines, forecaster, interval_s=length,
        failures=failures, seed=seed,
    )  # fmt: skip


if __name__ == "__main__":
    main()
