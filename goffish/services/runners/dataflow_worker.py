"""Worker process of dataflow jobs: ``python -m goffish.services.runners.dataflow_worker FOLDER TURN``.

It deploys the dataflow on the simulated cloud and adapts it, interval by interval. Runs are deterministic given the
seed: an interrupted run restarts, and replays reported intervals without delay.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, replace
from typing import Any

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.spot_market import SpotMarket
from goffish.scheduling.control.cluster import Changes
from goffish.scheduling.control.loop import Control, Setting, carry_out
from goffish.scheduling.control.records import Measured
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import Dataflow
from goffish.scheduling.policies.policies import default_forecast, make_policy
from goffish.scheduling.simulate.fluid import FluidController
from goffish.scheduling.simulate.scenario import make_forecaster, make_rates, make_variability
from goffish.services.runners.dataflows import Journal, intervals_of
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import limit_process
from goffish.services.runners.worker import as_worker, check_turn, finish
from goffish.services.store.spec import DataflowJob

#: Minimum time between two reports, and horizon of lookahead policies, in seconds.
_REPORT_S, _HORIZON_S = 0.2, 3600.0
#: Maximum machines listed per event and kind of change; clients accept messages of 4 MB.
_MOST_LISTED = 1000


def setting_of(job: DataflowJob, catalogue: Catalogue) -> Setting:
    """Return the setting of a dataflow job, as for `goffish simulate`.

    Raises
    ------
    InputError
    """
    assert isinstance(job.dataflow, Dataflow)
    flow = compile_flow(job.dataflow)
    interval_s = flow.goal.interval_s
    steps = intervals_of(job, flow.goal)
    flow = flow if job.hours is None else replace(flow, goal=flow.goal.for_hours(job.hours))
    rates, machines = make_rates(job.rates, flow, steps, interval_s, job.seed), make_variability("none")
    forecaster = None
    forecast = default_forecast(job.policy)
    if forecast is not None:
        forecaster = make_forecaster(
            forecast, flow, rates, machines, interval_s=interval_s, horizon=max(1, round(_HORIZON_S / interval_s)),
            seed=job.seed,
        )  # fmt: skip
    return Setting(
        flow=flow, catalogue=catalogue, policy=make_policy(job.policy, job.options), rates=rates,
        interval_s=interval_s, variability=machines, forecaster=forecaster, seed=job.seed,
    )  # fmt: skip


class _Reporter:
    """Reporter of intervals, which also limits the speed of the run."""

    def __init__(self, folder: JobFolder, turn: str, control: Control, known: int, pace: float | None) -> None:
        self._folder, self._turn, self._control = folder, turn, control
        self._known, self._pace = known, pace
        self._journal = Journal(folder, turn).open()
        #: Machines that failed or were interrupted.
        self._lost: set[int] = set()
        self._market = SpotMarket(control.setting.catalogue, control.setting.spot_since)
        self._began, self._reported = time.monotonic(), 0.0

    def __call__(self, step: int, changes: Changes, measured: Measured) -> None:
        setting, cluster = self._control.setting, self._control.cluster
        until_s, kinds = (step + 1) * setting.interval_s, setting.catalogue.classes
        if self._pace is not None:
            due = self._began + (step + 1 - self._known) * setting.interval_s / 3600.0 / self._pace
            time.sleep(min(max(0.0, due - time.monotonic()), threading.TIMEOUT_MAX))
        all_rents = cluster.rents(until_s)
        rents, cost = all_rents.tolist(), float(all_rents.sum())
        lost = [
            number for number, life in cluster.log.items()
            if life.fail_s < until_s and life.fail_s <= life.stop_s and number not in self._lost
        ]  # fmt: skip
        self._lost.update(lost)
        if changes.any or lost or step == 0:
            names = setting.flow.names
            entry = {
                "interval": step, "start_s": step * setting.interval_s,
                "started": [self._started(number) for number in changes.started[:_MOST_LISTED]],
                "stopped": [{"machine": number, "cost": rents[number]} for number in changes.stopped[:_MOST_LISTED]],
                "lost": [self._lost_one(number, rents[number]) for number in lost[:_MOST_LISTED]],
                "switched": [names[element] for element, _ in changes.switched],
                "counts": {"started": len(changes.started), "stopped": len(changes.stopped), "lost": len(lost)},
                "instances_moved": changes.moved, "machines": len(cluster.live.machines),
                "throughput": measured.omega, "cost": cost,
            }  # fmt: skip
            if step == 0:
                hourly = sum(kinds[machine.kind].price_per_hour for machine in cluster.live.machines.values())
                entry["expected_cost"] = hourly * setting.steps * setting.interval_s / 3600.0
            self._journal.write(json.dumps(entry) + "\n")
            self._journal.flush()
        if time.monotonic() - self._reported >= _REPORT_S or step + 1 == setting.steps:
            self._reported = time.monotonic()
            self._folder.report({"turn": self._turn, "intervals": step + 1, "of": setting.steps, "cost": cost})

    def _started(self, number: int) -> dict[str, Any]:
        """Describe a machine started in this interval."""
        cluster, kind = self._control.cluster, self._control.cluster.log[number].kind
        one, listed = cluster.catalogue.classes[kind], self._control.setting.catalogue.classes[kind]
        bid = (listed.price_per_hour if one.bid is None else one.bid) if one.market == "spot" else None
        return {"machine": number, "class": one.name, "market": one.market, "price": one.price_per_hour, "bid": bid}

    def _lost_one(self, number: int, cost: float) -> dict[str, Any]:
        """Describe a machine that failed or was interrupted."""
        life = self._control.cluster.log[number]
        price = self._market.priced(life.fail_s).classes[life.kind].price_per_hour
        return {"machine": number, "end_s": life.fail_s, "price": price, "cost": cost}


def _attempt(folder: JobFolder, turn: str, order: dict[str, Any]) -> None:
    with folder.taken():
        check_turn(folder, turn)
        limit_process(order["limits"])
        if folder.done is not None:
            return
        job = DataflowJob.model_validate(order["job"])
        control = Control(setting_of(job, Catalogue.model_validate(order["cloud"])))
        reporter = _Reporter(folder, turn, control, order["known"], job.hours_per_second)
        result = carry_out(control, FluidController(control), reporter)
        finish(folder, result.intervals, asdict(result.summary))


if __name__ == "__main__":
    as_worker(_attempt)
