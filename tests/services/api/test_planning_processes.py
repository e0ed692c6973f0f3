"""Plans that take long: nobody waits for them in vain, and they hold up nobody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest

from goffish.client import Client as ServiceClient
from goffish.errors import InputError, JobError
from goffish.services.api.clients import LOCAL_CLIENT, Client
from goffish.services.api.guard import caller
from goffish.services.api.limits import TooMuch
from goffish.services.api.planners import Planners
from goffish.v1 import planning_pb2
from tests.services.api.serving import RealServer, serving

Code = grpc.StatusCode
ENDLESS = {"generations": "1000000", "patience": "1000000"}


def asked(policy: str, **options: str) -> planning_pb2.PlanRequest:
    setting = planning_pb2.Setting(dataflow_name="sc13-diamond", policy=policy, options=options)
    return planning_pb2.PlanRequest(setting=setting)


def planners_of(pid: int) -> list[psutil.Process]:
    """The processes that plan, below another one."""
    found = []
    for process in psutil.Process(pid).children():
        try:
            if "planners" in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def until(true: Callable[[], Any], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[RealServer]:
    """A server that gives a plan four seconds."""
    with serving(tmp_path_factory.mktemp("limited") / "home", data, "--grace", "0.5", "--max-plan-time", "4") as server:
        yield server
        # It ends while it plans, and leaves nothing behind.
        assert server.process is not None
        with ThreadPoolExecutor(1) as threads, server.client() as client:
            last = threads.submit(client.planning.Plan, asked("ga", **ENDLESS))
            pid = server.process.pid
            until(lambda: any(one.cpu_times().user > 0.5 for one in planners_of(pid)) and not last.done())
            below = psutil.Process(pid).children(recursive=True)
            assert server.stop() == 0 and last.exception() is not None
        assert psutil.wait_procs(below, timeout=5)[1] == []
        log = server.log.read_text()
        assert "Traceback" not in log and "leaked" not in log, log


@pytest.fixture
def client(limited: RealServer) -> Iterator[ServiceClient]:
    with limited.client() as found:
        yield found


@pytest.mark.slow
def test_plans_after_abandoned_ones(limited: RealServer, client: ServiceClient) -> None:
    """Breaks when plans that nobody waits for any more keep the processes of those that somebody waits for."""
    assert limited.process is not None
    pid = limited.process.pid

    def abandoned(seed: str) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError) as caught:
            client.planning.Plan(asked("ga", **ENDLESS, seed=seed), timeout=1)
        return caught.value.code()

    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(abandoned, str(at)) for at in range(2)]
        until(lambda: len(planners_of(pid)) == 2)
        taken = planners_of(pid)
        assert [call.result() for call in calls] == [Code.DEADLINE_EXCEEDED] * 2
    assert psutil.wait_procs(taken, timeout=2)[1] == []  # long before they have had their time
    assert client.planning.Plan(asked("btu"), timeout=20).plan.machines
    running = client.planning.Plan.future(asked("ga", **ENDLESS))
    until(lambda: any(one.cpu_times().user > 0 and one not in taken for one in planners_of(pid)))
    running.cancel()
    request = planning_pb2.ExplainRequest(setting=asked("ds2").setting, policies=["btu"])
    explained = client.planning.Explain(request, timeout=20)
    assert explained.alternatives


@pytest.mark.slow
def test_the_operators_limit(client: ServiceClient) -> None:
    """Breaks when a plan takes longer than the operator lets it, or the answer does not say so."""
    with pytest.raises(grpc.RpcError, match="planning exceeded 4 s") as caught:
        client.planning.Plan(asked("ga", **ENDLESS))
    assert caught.value.code() == Code.RESOURCE_EXHAUSTED


@pytest.mark.slow
def test_a_process_that_is_killed(limited: RealServer, client: ServiceClient) -> None:
    """Breaks when a process that is gone is waited for, or holds up who comes next."""
    assert limited.process is not None
    pid = limited.process.pid
    client.planning.Plan(asked("btu"))
    for process in planners_of(pid):
        process.kill()
    assert client.planning.Plan(asked("btu"), timeout=20).plan.machines
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(client.planning.Plan, asked("ga", **ENDLESS))
        time.sleep(0.5)
        for process in planners_of(pid):
            process.kill()
        with pytest.raises(grpc.RpcError, match="the planning process was lost") as caught:
            lost.result()
    assert caught.value.code() == Code.FAILED_PRECONDITION
    assert client.planning.Plan(asked("btu"), timeout=20).plan.machines


@pytest.mark.parametrize("policies", [["ds2", "ds2"], [f"no-{at}" for at in range(21)]])
def test_policies_to_compare_with(client: ServiceClient, policies: list[str]) -> None:
    """Breaks when one request can have the same plan made any number of times."""
    request = planning_pb2.ExplainRequest(setting=asked("ds2").setting, policies=policies)
    with pytest.raises(grpc.RpcError, match=f"policies: {len(policies)}; at most 20 different ones are accepted"):
        client.planning.Explain(request)


def _failing(kind: type[Exception]) -> None:
    raise kind("x")


def _allocated(megabytes: int) -> int:
    return np.ones(megabytes << 17).nbytes


@pytest.mark.slow
def test_memory_of_a_plan() -> None:
    """Breaks when a plan takes any amount of memory, the answer does not name the limit, or it breaks what follows."""

    async def ask() -> None:
        caller.set(LOCAL_CLIENT)
        planners = Planners(1, 30.0, 600)
        with pytest.raises(TooMuch, match=r"planning exceeded 600 MB \(--max-plan-memory\)"):
            await planners.call(_allocated, 700)
        assert await planners.call(_allocated, 100) == 100 << 20
        planners.close()

    asyncio.run(ask())


def _counted(path: str, seconds: float) -> int:
    with Path(path).open("a") as file:
        file.write("x")
    time.sleep(seconds)
    return len(Path(path).read_text())


@pytest.mark.slow
def test_equal_calls_are_shared(tmp_path: Path) -> None:
    """Breaks when equal calls are made twice, one that hangs up ends the others, or nobody's call goes on."""
    told = str(tmp_path / "calls")

    async def ask() -> None:
        caller.set(LOCAL_CLIENT)
        planners = Planners(2, 60.0, 2000)
        first, second, third = (asyncio.create_task(planners.share("a", _counted, told, 1.0)) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.gather(second, third) == [1, 1] and first.cancelled()
        with pytest.raises(ZeroDivisionError):
            await asyncio.gather(*(planners.share("b", _failing, ZeroDivisionError) for _ in range(2)))
        assert await planners.share("a", _counted, told, 0.0) == 2
        last = asyncio.create_task(planners.share("a", time.sleep, 600.0))
        while not planners._busy:
            await asyncio.sleep(0.01)
        last.cancel()
        await asyncio.gather(last, return_exceptions=True)
        while planners._busy:
            await asyncio.sleep(0.01)
        planners.close()

    asyncio.run(asyncio.wait_for(ask(), 60))


@pytest.mark.slow
def test_places_of_a_client() -> None:
    """Breaks when one client can take all processes, or an exception or an end leaves one behind."""

    async def ask() -> None:
        planners = Planners(2, 30.0, 2000)

        def called(client: Client, call: Callable[..., Any], *given: Any) -> asyncio.Task[Any]:
            caller.set(client)
            return asyncio.create_task(planners.call(call, *given))

        ann, bob = Client(name="ann", role="read"), Client(name="bob", role="read")
        await asyncio.gather(*(called(LOCAL_CLIENT, time.sleep, 0.1) for _ in range(2)))  # both have begun
        for kind in (InputError, ZeroDivisionError):
            with pytest.raises(kind):
                await called(ann, _failing, kind)
        first, second = called(ann, time.sleep, 1.0), called(ann, time.sleep, 0.0)
        assert await called(bob, abs, -3) == 3
        assert not first.done() and not second.done()
        await asyncio.gather(first, second)
        assert len(planners_of(psutil.Process().pid)) == 2
        last = called(ann, time.sleep, 60.0)
        await asyncio.sleep(0.2)
        planners.close()
        with pytest.raises(JobError):
            await last
        assert planners_of(psutil.Process().pid) == []

    asyncio.run(ask())
