"""Providers of machines: simulated ones, and real processes of this computer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.providers import LocalProvider, Provider, SimulatedProvider
from goffish.errors import InputError

CATALOGUE = read_catalogue({
    "machine_types": [
        {"name": "s", "cores": 1, "price_per_hour": 1}, {"name": "l", "cores": 2, "speed": 2, "price_per_hour": 4},
    ],
    "startup_s": 60, "limit": 2,
})  # fmt: skip
BUSY = [sys.executable, "-c", "while True: pass"]


def until(what: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def runs(process: psutil.Process) -> bool:
    """Whether a process still runs; one that nobody waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def test_a_simulated_machine_from_its_start_to_its_end() -> None:
    """Breaks when time, billing or the order of states is wrong."""
    provider: Provider = SimulatedProvider(CATALOGUE, lambda command: float(command[0]))
    simulated = provider
    assert isinstance(simulated, SimulatedProvider)
    machine = simulated.start(1)
    assert simulated.states() == {0: "starting"}
    with pytest.raises(InputError, match="machine 0 is starting: cannot run commands"):
        simulated.submit(machine, ["100"])
    simulated.advance(60)
    task = simulated.submit(machine, ["100"])
    simulated.advance(49)
    assert simulated.exit_code(task) is None
    simulated.advance(1)
    assert simulated.exit_code(task) == 0  # two reference cores' speed
    lost = simulated.submit(machine, ["100"])
    simulated.advance(10)
    simulated.fail(machine)
    simulated.advance(7200)
    assert simulated.exit_code(lost) == -9 and simulated.exit_code(task) == 0
    assert simulated.states() == {0: "failed"} and simulated.spent() == pytest.approx(4)
    simulated.start(0)
    simulated.start(0)
    with pytest.raises(InputError, match="allows 2 machines"):
        simulated.start(0)
    simulated.advance(3601)
    simulated.stop(1)
    assert simulated.spent() == pytest.approx(4 + 2 + 2)
    with pytest.raises(InputError, match="unknown machine 7: 3 were requested"):
        simulated.stop(7)
    with pytest.raises(InputError, match="seconds = -1: must be 0 or more"):
        simulated.advance(-1)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Callable[..., LocalProvider]]:
    made: list[LocalProvider] = []

    def make(catalogue: Catalogue = CATALOGUE, share: float = 1.0) -> LocalProvider:
        made.append(LocalProvider(catalogue, reference_share=share, folder=tmp_path))
        return made[-1]

    yield make
    for provider in made:
        provider.close()


def test_commands_on_a_local_machine(local: Callable[..., LocalProvider], tmp_path: Path) -> None:
    """Breaks when a command does not run in its machine's folder, or its exit code is lost."""
    provider = local()
    machine = provider.start(0)
    until(lambda: provider.states()[machine] == "running")
    good = provider.submit(machine, [sys.executable, "-c", "print('hello'); open('made', 'w')"])
    bad = provider.submit(machine, [sys.executable, "-c", "raise SystemExit(3)"])
    none = provider.submit(machine, ["/no/such/program"])
    until(lambda: None not in {provider.exit_code(task) for task in (good, bad, none)})
    assert [provider.exit_code(task) for task in (good, bad, none)] == [0, 3, 127]
    home = tmp_path / "machine-0"
    assert (home / "task-0.out").read_text() == "hello\n" and (home / "made").exists()
    provider.stop(machine)
    assert provider.states() == {0: "stopped"} and provider.spent() == pytest.approx(1)
    with pytest.raises(InputError, match="is stopped"):
        provider.submit(machine, BUSY)


def test_a_machine_takes_no_more_than_its_share(local: Callable[..., LocalProvider]) -> None:
    """Breaks when commands are not held to cores x speed x share of a processor (0.2 here), or never run."""
    provider = local(share=0.05)
    machine = provider.start(1)
    until(lambda: provider.states()[machine] == "running")
    for _ in range(2):
        provider.submit(machine, BUSY)
    until(lambda: provider.cpu_seconds(machine) > 0.1)
    begun, before = time.monotonic(), provider.cpu_seconds(machine)
    time.sleep(4)
    share = (provider.cpu_seconds(machine) - before) / (time.monotonic() - begun)
    assert 0.05 < share < 0.3


@pytest.mark.slow
def test_nothing_survives_a_machine(local: Callable[..., LocalProvider]) -> None:
    """Breaks when commands go on after their machine was stopped, or killed, or its agent was."""
    for end in ("stop", "fail", "agent"):
        provider = local()
        machine = provider.start(0)
        until(lambda: provider.states()[machine] == "running")  # noqa: B023
        task = provider.submit(machine, BUSY)
        agent = provider._agents[machine]._process.pid
        until(lambda: bool(psutil.Process(agent).children()))  # noqa: B023
        child = psutil.Process(agent).children()[0]
        if end == "agent":
            os.kill(agent, signal.SIGKILL)
        else:
            getattr(provider, end)(machine)
        until(lambda: not runs(child))  # noqa: B023
        until(lambda: provider.states()[machine] == ("stopped" if end == "stop" else "failed"))  # noqa: B023
        assert provider.exit_code(task) == -9


def test_machines_end_with_the_process_that_asked_for_them(tmp_path: Path) -> None:
    """Breaks when a killed scheduler leaves machines behind."""
    script = f"""
import sys, time
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import LocalProvider
catalogue = read_catalogue({{"machine_types": [{{"name": "s", "cores": 1, "price_per_hour": 1}}]}})
provider = LocalProvider(catalogue, folder={str(tmp_path)!r})
machine = provider.start(0)
while provider.states()[machine] != "running": time.sleep(0.02)
provider.submit(machine, {BUSY!r})
time.sleep(0.5)
print(provider._agents[0]._process.pid, flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    agent = psutil.Process(int(process.stdout.readline()))
    children = agent.children()
    assert children
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(runs(p) for p in (agent, *children)))


def test_shares_that_are_none() -> None:
    for share in (0.0, -1.0, 1.5):
        with pytest.raises(InputError, match="must be greater than 0 and at most 1"):
            LocalProvider(CATALOGUE, reference_share=share)
