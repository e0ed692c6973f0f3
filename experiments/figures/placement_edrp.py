"""EDRP: its scalability table, its one-hour run, and how far local search is from the optimum.

    python -m experiments.figures.placement_edrp [--only scalability hour heuristic simulator] [--hosts 16]

Published figures stand beside ours and are marked as such: CPLEX 12.6.3 on a c4.xlarge (docs/specs/edrp.md, section 5).
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

from benchmarks import _harness
from experiments.edrp.evaluation import CONFIGURATIONS, solve_near
from experiments.edrp.generators import hour_of_rates, reference_problem, scalability_problem
from experiments.edrp.loop import Planner, control, responses
from experiments.edrp.rules import round_robin
from goffish.cloud.catalogue import read_catalogue
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.edrp.candidates import multiset_count
from goffish.scheduling.policies.edrp.heuristic import local_search
from goffish.scheduling.policies.edrp.linear import Solver
from goffish.scheduling.policies.edrp.policy import Edrp
from goffish.scheduling.policies.edrp.problem import Problem, Weights, metrics
from goffish.scheduling.policies.edrp.program import solve
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.simulate.rates import scaled, walk
from goffish.scheduling.simulate.run import simulate

#: Variables in thousands and seconds of EDRP and r-EDRP as published, by hosts and replicas.
PUBLISHED = {
    (8, 2): "9.4, 3.7 / 1.6, 0.8", (8, 3): "113.7, 298.0 / 1.8, 0.7", (8, 4): "994.5, - / 1.8, 1.0",
    (12, 2): "37.3, 30.5 / 2.8, 0.6", (12, 3): "848.7, - / 3.3, 0.9", (12, 4): "-, - / 3.4, 0.8",
    (16, 2): "103.2, 122.6 / 5.5, 1.1", (16, 3): "-, - / 6.1, 1.2", (16, 4): "-, - / 6.3, 1.2",
    (20, 2): "231.6, 415.2 / 8.8, 1.6", (20, 3): "-, - / 10.0, 1.9", (20, 4): "-, - / 9.7, 2.5",
    (24, 2): "453.3, 593.7 / 12.7, 3.1", (24, 3): "-, - / 13.8, 3.9", (24, 4): "-, - / 13.9, 4.2",
}  # fmt: skip
#: Mean response time in ms, price of an hour and downtime in s as published, and of a prototype.
HOUR = {
    "baseline": ("120.8 / 9.6 / 12.0", "94.2 / 9.32 / 10.24"), "steady baseline": ("-", "94.3 / 9.28 / 8.70"),
    "balanced": ("121.7 / 9.9 / 2.4", "99.1 / 9.23 / 1.84"),
    "response time": ("121.5 / 10.3 / 2.4", "97.6 / 10.35 / 3.18"),
    "cost": ("136.0 / 9.2 / 4.9", "125.6 / 8.84 / 7.06"),
}  # fmt: skip


def first(hosts: int) -> tuple[Problem, Any]:
    """The application at 70 messages a second on so many hosts, by local search, one replica each."""
    problem = scalability_problem(hosts, 1, np.random.default_rng(hosts))
    return problem, local_search(problem, np.random.default_rng(0))


def scalability(most_hosts: int) -> None:
    """EDRP's first deployment, and r-EDRP from it at 110 messages a second."""
    rows = []
    for (hosts, most), published in PUBLISHED.items():
        placed = first(hosts)[1]
        whole = scalability_problem(hosts, most, np.random.default_rng(hosts))
        told = "-, -"
        if hosts <= most_hosts and multiset_count(hosts, most) <= 200:
            found, seconds = _timed(lambda p=whole: solve(p, solver=Solver(time_limit_s=600.0)))
            told = f"{found.variables / 1e3:.1f}, {seconds:.1f}" + (
                "" if found.status == "optimal" else f" ({found.gap:.1%})"
            )
        grown = scalability_problem(hosts, most, np.random.default_rng(hosts), rate=110.0)
        grown = grown.change(current=placed, weights=CONFIGURATIONS["balanced"])
        found, seconds = _timed(lambda p=grown: solve_near(p))
        searched, search = _timed(lambda p=whole: local_search(p, np.random.default_rng(0)))
        rows.append(
            [str(hosts), str(most), f"{told} / {found.variables / 1e3:.1f}, {seconds:.1f}", published, f"{search:.2f}",
             f"{metrics(whole, searched).objective:.4f}"]
        )  # fmt: skip
    print("\n### Variables in thousands and seconds, EDRP / r-EDRP\n")
    _harness.print_table(["hosts", "k", "ours (HiGHS)", "published (CPLEX)", "local search, s", "its F"], rows)


def hour() -> None:
    """An hour from 70 to 220 messages a second and back, planned every minute."""
    start = local_search(reference_problem(70, Weights(0.5, 0.5, 0.0), most=1), np.random.default_rng(0))
    rows = []
    plans = [(name, Planner()) for name in CONFIGURATIONS]
    plans += [("balanced", Planner("heuristic")), ("balanced", Planner("never")), ("balanced", Planner("threshold"))]
    for name, planner in plans:
        begun = time.perf_counter()
        run = control((reference_problem(rate, CONFIGURATIONS[name]) for rate in hour_of_rates()), start, planner)
        seconds = (time.perf_counter() - begun) / len(run.periods)
        # Changes hold up 0.05 to 0.3 % of the messages: this percentile tells frequent changes from rare ones.
        all_of = responses(run, hour_of_rates(), 60.0, 0.999)
        kept = sum(period.metrics.feasible for period in run.periods)
        rows.append(
            [name, planner.method, f"{run.response_s * 1e3:.1f} / {run.price:.2f} / {run.downtime_s:.2f}",
             " / ".join(f"{seconds_of * 1e3:.1f}" for seconds_of in all_of),
             str(len(run.changes)), f"{kept} of {len(run.periods)}", f"{seconds:.2f}",
             *(HOUR[name] if planner.method == "near" else ("", ""))]
        )  # fmt: skip
    print("\n### One hour: mean response time in ms / mean price of an hour / downtime in s\n")
    print("Messages: mean ms of those that no change held up / of all / 99.9th percentile of all.\n")
    _harness.print_table(
        ["weights", "plans", "ours", "messages", "changes", "within bounds", "s a plan", "published", "prototype"], rows
    )
    turns = reference_problem(70, Weights(0.5, 0.5, 0.0))
    print(f"\nRound-robin at 70 messages a second: {metrics(turns, round_robin(turns)).response_s * 1e3:.1f} ms.")


def heuristic() -> None:
    """Local search against the optimum, over networks."""
    rows = []
    for hosts, most in ((8, 1), (8, 2), (12, 2)):
        gaps, exact, quick = [], [], []
        for seed in range(3):
            problem = scalability_problem(hosts, most, np.random.default_rng([hosts, seed]))
            found, seconds = _timed(lambda p=problem: solve(p, solver=Solver(time_limit_s=600.0)))
            searched, search = _timed(lambda p=problem: local_search(p, np.random.default_rng(0)))
            gaps.append(metrics(problem, searched).objective / found.metrics.objective - 1)
            exact.append(seconds)
            quick.append(search)
        rows.append(
            [
                str(hosts),
                str(most),
                f"{np.mean(gaps):.2%}",
                f"{max(gaps):.2%}",
                f"{max(exact):.1f}",
                f"{max(quick):.2f}",
            ]
        )
    print("\n### Local search: distance from the optimum, three networks each\n")
    _harness.print_table(["hosts", "k", "mean gap", "worst gap", "program, s", "local search, s"], rows)


def simulator() -> None:
    """The policy beside others in simulated runs of 6 hours."""
    rows, cloud = [], read_catalogue("ec2-2013-m1")
    for name in ("sc13-diamond", "linear-road"):
        flow = compile_flow(read_dataflow(name))
        rates = scaled(flow, walk(1.0, 72, np.random.default_rng([1, 1])))
        policies = {"edrp": Edrp(), "edrp, downtime free": Edrp(0.5, 0.5, 0.0)}
        policies |= {other: make_policy(other) for other in ("ds2", "target-utilisation", "reactive-global")}
        for label, policy in policies.items():
            result, seconds = _timed(lambda p=policy, f=flow, r=rates: simulate(f, cloud, p, r))
            s = result.summary
            rows.append(
                [
                    name,
                    label,
                    f"{s.omega:.3f}",
                    f"{s.cost:.2f}",
                    str(s.instance_changes),
                    str(s.starts),
                    f"{seconds:.1f}",
                ]
            )
    print("\n### In the simulator: 72 intervals of 5 minutes\n")
    _harness.print_table(["dataflow", "policy", "throughput", "$", "instance changes", "starts", "s"], rows)


def _timed(call: Any) -> tuple[Any, float]:
    begun = time.perf_counter()
    found = call()
    return found, time.perf_counter() - begun


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["scalability", "hour", "heuristic", "simulator"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--hosts", type=int, default=16, help="largest network of the whole program")
    given = parser.parse_args(arguments)
    first(8)
    for name in given.only:
        if name == "scalability":
            scalability(given.hosts)
        else:
            {"hour": hour, "heuristic": heuristic, "simulator": simulator}[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
