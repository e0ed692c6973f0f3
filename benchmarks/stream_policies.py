"""Policies on a live flow against their simulation: ``python benchmarks/stream_policies.py``.

Each policy drives the diamond of the SC 2013 evaluation for ten minutes of a varying rate: on worker processes that
do the work of the elements, and in the event simulation. The output compares messages that were processed, and costs.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import _harness

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.variability import steady
from goffish.scheduling.control.loop import Setting
from goffish.scheduling.control.records import Result
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.policies import default_forecast, make_policy
from goffish.scheduling.simulate.run import simulate
from goffish.scheduling.simulate.scenario import make_forecaster, make_rates
from goffish.streaming.synthetic import run_live

_POLICIES = (
    "reactive-local", "reactive-global", "plasticc", "ds2", "btu", "edrp", "latency-aware", "replicate",
)  # fmt: skip
#: Messages per second; a third of the evaluation's, so that about ten workers do.
_RATE = 1.5
_CLOUD = Catalogue.model_validate({
    "machine_types": [
        {"name": "small", "cores": 1, "price_per_hour": 0.06},
        {"name": "medium", "cores": 2, "price_per_hour": 0.12},
        {"name": "large", "cores": 4, "price_per_hour": 0.24},
    ],
    "billing": {"quantum_s": 60},
    "startup_s": 3,
})  # fmt: skip


def setting(name: str, minutes: float, interval_s: float) -> Setting:
    """Return what a policy has to drive."""
    dataflow = read_dataflow("sc13-diamond")
    goal = dataflow.goal.model_copy(update={"throughput": 0.9, "period_h": minutes / 60, "interval_s": interval_s})
    flow = compile_flow(dataflow.model_copy(update={"goal": goal, "inputs": {"P1": _RATE}}))
    rates = make_rates("walk", flow, round(minutes * 60 / interval_s), interval_s, seed=1)
    forecaster = None
    if (forecast := default_forecast(name)) is not None:
        forecaster = make_forecaster(forecast, flow, rates, steady(), interval_s=interval_s, horizon=10)
    return Setting(
        flow=flow, catalogue=_CLOUD, policy=make_policy(name), rates=rates, interval_s=interval_s, forecaster=forecaster
    )


def processed(result: Result, outputs: set[str], interval_s: float) -> float:
    """Return the messages that the outputs have processed."""
    rows = result.elements.to_pylist()
    return float(interval_s * sum(row["processed"] for row in rows if row["processing_element"] in outputs))


def compare(name: str, minutes: float, interval_s: float, share: float) -> str:
    """Return a line of the table."""
    given = setting(name, minutes, interval_s)
    expected = simulate(
        given.flow, _CLOUD, given.policy, given.rates, forecaster=given.forecaster, engine="events",
        interval_s=interval_s,
    )  # fmt: skip
    found = run_live(given, reference_share=share)
    outputs = {given.flow.names[number] for number in given.flow.outputs.tolist()}
    messages = [processed(one, outputs, interval_s) for one in (found, expected)]
    costs = [one.summary.cost for one in (found, expected)]
    changes = [one.summary.adaptations for one in (found, expected)]
    omegas = [one.summary.omega for one in (found, expected)]
    return (
        f"| {name} | {messages[0]:,.0f} | {messages[0] / messages[1] - 1:+.1%} | {omegas[0]:.3f}, {omegas[1]:.3f} "
        f"| {costs[0]:.3f} | {costs[0] / costs[1] - 1:+.1%} | {changes[0]}, {changes[1]} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=",".join(_POLICIES))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between two decisions")
    parser.add_argument("--share", type=float, default=0.04, help="part of a processor that a reference core is")
    parser.add_argument("--at-once", type=int, default=1, help="policies that run beside each other")
    given = parser.parse_args()
    print(_harness.machine_line(("pyarrow",)))
    print()
    print("| policy | messages | beside the simulation | throughput: live, simulated | cost, $ | beside it | changes |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with ThreadPoolExecutor(given.at_once) as pool:
        names = given.policies.split(",")
        for line in pool.map(lambda name: compare(name, given.minutes, given.interval, given.share), names):
            print(line, flush=True)


if __name__ == "__main__":
    main()
