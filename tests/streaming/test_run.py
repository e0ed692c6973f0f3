"""Plans carried out by real processes."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.control.failures import Failures
from goffish.scheduling.control.loop import Setting
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.reactive import Reactive
from goffish.scheduling.simulate.fluid import run_fluid
from goffish.streaming.run import run_live


def command_of(process: psutil.Process) -> str:
    """Empty for one that has ended and was not waited for yet."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.slow
def test_a_real_run_adapts_and_survives_a_lost_machine() -> None:
    """Breaks when a decision is not carried out, a killed machine is not noticed, or its successor does no work."""
    # A wide band: this computer may have other work, and only the lost machine shall make a difference.
    dataflow = read_dataflow("sc13-diamond")
    goal = dataflow.goal.model_copy(update={"throughput": 0.6, "tolerance": 0.3})
    flow = compile_flow(dataflow.model_copy(update={"goal": goal}))
    rates = np.zeros((5, flow.size))
    rates[:, 0] = 1
    setting = Setting(
        flow=flow, catalogue=read_catalogue("ec2-2013"), policy=Reactive(alternate_every=0, resource_every=1),
        rates=rates, interval_s=4.0, failures=Failures(machines={0: 5.0}),
    )  # fmt: skip
    seen: list[int] = []
    result = run_live(setting, progress=seen.append)
    assert seen == [1, 2, 3, 4, 5]
    omega = result.intervals.column("omega").to_numpy()
    assert omega[0] > 0.3 and omega[1] < omega[0] and max(omega[2:]) > 0.3
    machines = result.machines.to_pylist()
    assert [m["failed"] for m in machines] == [True, False] and machines[0]["stop_s"] == pytest.approx(5, abs=1)
    assert 8 <= machines[1]["ready_s"] < 12  # a process starts faster than the catalogue's minute
    # The same machines as in the simulation, which knows nothing of processes.
    simulated = run_fluid(setting)
    for name in ("machines", "starts", "failures"):
        assert result.intervals.column(name).to_pylist() == simulated.intervals.column(name).to_pylist()
    assert not [p for p in psutil.Process().children(recursive=True) if "goffish.services" in command_of(p)]


def test_messages_too_short_to_be_measured() -> None:
    flow = compile_flow(read_dataflow({"elements": [{"id": "A", "cost": 1e-6}], "inputs": {"A": 5}}))
    setting = Setting(
        flow=flow, catalogue=read_catalogue("ec2-2013"), policy=Reactive(), rates=np.full((1, 1), 5.0), interval_s=1.0
    )
    with pytest.raises(InputError, match=r"takes? .* ms of a processor, which cannot be measured; simulate it"):
        run_live(setting)
