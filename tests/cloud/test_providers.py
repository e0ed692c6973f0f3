"""Providers of machines: simulated ones, and real processes of this computer."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.cloud.providers import CapacityError, LocalMachines, LocalProvider, Provider, Request, SimulatedProvider
from goffish.errors import InputError
from tests.cloud.children import child_in

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


def request(machine_type: str = "s", *command: str, token: str = "", **given: Any) -> Request:
    return Request(machine_type=machine_type, command=command, token=token or secrets.token_hex(8), **given)


def test_a_simulated_machine_from_its_start_to_its_end() -> None:
    """Breaks when time, billing or the order of states is wrong."""

    async def run() -> None:
        provider = SimulatedProvider(CATALOGUE, lambda command: float(command[0]))
        kept: Provider = provider

        async def states() -> list[str]:
            return [one.state for one in await kept.machines({})]

        first = await kept.request(request("l", "100", token="a", tags={"job": "1"}))
        assert first.state == "pending" and await kept.request(request("l", "7", token="a")) == first
        provider.advance(60)
        assert await states() == ["running"]
        provider.advance(49)
        assert await states() == ["running"]
        provider.advance(1)  # two reference cores' speed
        assert await states() == ["finished"]
        lost = await kept.request(request("s", "100", tags={"job": "2"}))
        provider.advance(10)
        provider.fail(lost.id)
        provider.advance(7200)
        found = await kept.machines({"job": "2"})
        assert [(one.state, one.ended_s, one.reason) for one in found] == [("failed", 120.0, "simulated")]
        assert await kept.costs(await kept.machines({})) == [pytest.approx(4), pytest.approx(1)]
        stays = [await kept.request(request()) for _ in range(2)]
        with pytest.raises(CapacityError, match="allows 2 machines"):
            await kept.request(request())
        provider.advance(3601)
        await kept.release([stays[0].id])
        assert await kept.costs(stays) == [pytest.approx(2), pytest.approx(2)]
        await kept.close()
        assert await states() == ["finished", "failed", "released", "released"]
        with pytest.raises(InputError, match="machine '7': unknown; 4 were requested"):
            await kept.release(["7"])
        with pytest.raises(InputError, match="machine type 'x': unknown; the catalogue has s, l"):
            await kept.request(request("x"))
        with pytest.raises(InputError, match="machine type s: has no spot market in the catalogue"):
            await kept.request(request("s", market="spot"))
        with pytest.raises(InputError, match="seconds = -1: must be 0 or more"):
            provider.advance(-1)

    asyncio.run(run())


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Callable[..., LocalMachines]]:
    made: list[LocalMachines] = []

    def make(catalogue: Catalogue = CATALOGUE, share: float = 1.0) -> LocalMachines:
        made.append(LocalMachines(catalogue, reference_share=share, folder=tmp_path))
        return made[-1]

    yield make
    for machines in made:
        machines.close()


def test_commands_on_a_local_machine(local: Callable[..., LocalMachines], tmp_path: Path) -> None:
    """Breaks when a command does not run in its machine's folder, or its exit code is lost."""
    machines = local()
    machine = machines.start(0)
    until(lambda: machines.states()[machine] == "running")
    good = machines.submit(machine, [sys.executable, "-c", "print('hello'); open('made', 'w')"])
    bad = machines.submit(machine, [sys.executable, "-c", "raise SystemExit(3)"])
    none = machines.submit(machine, ["/no/such/program"])
    until(lambda: None not in {machines.exit_code(task) for task in (good, bad, none)})
    assert [machines.exit_code(task) for task in (good, bad, none)] == [0, 3, 127]
    home = tmp_path / "machine-0"
    assert (home / "task-0.out").read_text() == "hello\n" and (home / "made").exists()
    machines.stop(machine)
    assert machines.states() == {0: "stopped"}
    with pytest.raises(InputError, match="is stopped"):
        machines.submit(machine, BUSY)


def test_a_machine_takes_no_more_than_its_share(local: Callable[..., LocalMachines]) -> None:
    """Breaks when commands are not held to cores x speed x share of a processor (0.2 here), or never run."""
    machines = local(share=0.05)
    machine = machines.start(1)
    until(lambda: machines.states()[machine] == "running")
    for _ in range(2):
        machines.submit(machine, BUSY)
    until(lambda: machines.cpu_seconds(machine) > 0.1)
    begun, before = time.monotonic(), machines.cpu_seconds(machine)
    time.sleep(4)
    share = (machines.cpu_seconds(machine) - before) / (time.monotonic() - begun)
    assert 0.05 < share < 0.3


@pytest.mark.slow
def test_nothing_survives_a_machine(local: Callable[..., LocalMachines]) -> None:
    """Breaks when commands go on after their machine was stopped, or killed, or its agent was."""
    for end in ("stop", "fail", "agent"):
        machines = local()
        machine = machines.start(0)
        until(lambda: machines.states()[machine] == "running")  # noqa: B023
        task = machines.submit(machine, BUSY)
        agent = machines._agents[machine]._process.pid
        until(lambda: bool(psutil.Process(agent).children()))  # noqa: B023
        child = psutil.Process(agent).children()[0]
        if end == "agent":
            os.kill(agent, signal.SIGKILL)
        else:
            getattr(machines, end)(machine)
        until(lambda: not runs(child))  # noqa: B023
        until(lambda: machines.states()[machine] == ("stopped" if end == "stop" else "failed"))  # noqa: B023
        assert machines.exit_code(task) == -9


def test_machines_end_with_the_process_that_asked_for_them(tmp_path: Path) -> None:
    """Breaks when a killed scheduler leaves machines behind."""
    script = f"""
import sys, time
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import LocalMachines
catalogue = read_catalogue({{"machine_types": [{{"name": "s", "cores": 1, "price_per_hour": 1}}]}})
machines = LocalMachines(catalogue, folder={str(tmp_path)!r})
machine = machines.start(0)
while machines.states()[machine] != "running": time.sleep(0.02)
machines.submit(machine, {BUSY!r})
time.sleep(0.5)
print(machines._agents[0]._process.pid, flush=True)
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
            LocalMachines(CATALOGUE, reference_share=share)


def test_a_local_machine_ends_with_its_command(tmp_path: Path) -> None:
    """Breaks when states, exit codes or the environment of commands are wrong, or a machine stays."""
    code = "import os, sys; print(os.environ['HELLO']); sys.exit(3)"

    async def run() -> None:
        provider: Provider = LocalProvider(CATALOGUE, folder=tmp_path)
        try:
            command = (sys.executable, "-c", code)
            first = await provider.request(request("s", *command, environment={"HELLO": "there"}, tags={"job": "1"}))
            stays = await provider.request(request("l", tags={"job": "2"}))
            while (await provider.machines({"job": "1"}))[0].state != "finished":
                await asyncio.sleep(0.02)
            while (await provider.machines({"job": "2"}))[0].state != "running":
                await asyncio.sleep(0.02)
            assert (await provider.machines({"job": "1"}))[0].exit_code == 3
            assert (tmp_path / "machine-0" / "task-0.out").read_text() == "there\n"
            await provider.release([first.id, stays.id])
            assert [one.state for one in await provider.machines({})] == ["finished", "released"]
        finally:
            await provider.close()

    asyncio.run(run())


def test_a_spot_machine_is_announced_and_taken_back(tmp_path: Path) -> None:
    """Breaks when its command gets no SIGTERM, or lives on."""
    begin = np.datetime64("2015-03-01T00:00:00")
    rows = [f"{begin + np.timedelta64(at, 's')},{price}" for at, price in ((0, 0.02), (3600, 0.5), (90_000, 0.5))]
    (tmp_path / "prices.csv").write_text("timestamp_utc,price_usd_per_hour\n" + "\n".join(rows) + "\n")
    one = {"name": "m", "cores": 1, "price_per_hour": 0.1, "market": "spot", "prices": str(tmp_path / "prices.csv")}
    catalogue = read_catalogue({"machine_types": [one], "startup_s": 0})
    ready = tmp_path / "ready"
    code = f"""
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("warned", flush=True))
open({str(ready)!r}, "w").close()
while True: time.sleep(0.05)
"""

    async def run() -> None:
        provider = LocalProvider(catalogue, folder=tmp_path, pace=1.0, notice_s=120.0)
        offers = [(one.market, one.price_per_hour, one.available) for one in await provider.offers()]
        assert offers == [("on-demand", 0.1, True), ("spot", 0.02, True)]
        try:
            machine = await provider.request(request("m", sys.executable, "-c", code, market="spot"))
            assert machine.notice_s is None
            while not ready.exists():
                await asyncio.sleep(0.02)
            agent = child_in(tmp_path)
            [command] = agent.children()
            provider._began -= 3600 - 60  # a minute before the price rises
            assert (await provider.machines({}))[0].notice_s == 3600.0
            with pytest.raises(CapacityError, match="m on the spot market: is about to be taken back"):
                await provider.request(request("m", market="spot"))
            while "warned" not in (tmp_path / "machine-0" / "task-0.out").read_text():
                await asyncio.sleep(0.02)
            provider._began -= 120
            found = (await provider.machines({}))[0]
            assert (found.state, found.ended_s, found.reason) == (
                "interrupted", 3600.0, "the price exceeds the maximum",
            )  # fmt: skip
            assert not runs(agent) and not runs(command)
            with pytest.raises(CapacityError, match=r"m on the spot market: costs 0\.5 per hour"):
                await provider.request(request("m", market="spot"))
            assert (await provider.request(request("m", market="spot", max_price=0.6))).state == "pending"
        finally:
            await provider.close()

    asyncio.run(run())
