"""Clients that ask for much leave threads, memory and answers for the others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.services.api.calls import FairThreads, Shared
from goffish.services.api.clients import Client, Clients
from goffish.services.api.guard import _READS, Guard, caller
from goffish.services.api.limits import Limits, TooMuch
from goffish.services.api.telemetry import Metrics
from goffish.services.store.store import Jobs
from goffish.v1 import jobs_pb2, jobs_pb2_grpc
from tests.services.api.serving import Known
from tests.services.api.test_job_service import Room, spec
from tests.services.api.web_site import make_site


def submitted(threads: FairThreads, client: str, call: Callable[[], Any]) -> Future[Any]:
    """A call of a client."""

    def submit() -> Future[Any]:
        caller.set(Client(name=client, role="read"))
        return threads.submit(call)

    return copy_context().run(submit)


def test_one_client_does_not_hold_all_threads() -> None:
    """Breaks when calls of one client that take long keep those of another waiting."""
    threads, gate, begun = FairThreads(4, 2, "t"), threading.Event(), threading.Semaphore(0)

    def held() -> None:
        begun.release()
        gate.wait()

    eve = [submitted(threads, "eve", held) for _ in range(1000)]
    for _ in range(2):
        assert begun.acquire(timeout=20)
    assert submitted(threads, "ann", lambda: "ann's").result(20) == "ann's"
    assert not begun.acquire(blocking=False) and not any(one.done() for one in eve)
    gate.set()
    wait(eve, 20)
    assert all(one.done() for one in eve)
    threads.shutdown()


def test_clients_take_turns_for_threads() -> None:
    """Breaks when the calls of a client wait for all that another one sent before them."""
    threads, gate, order = FairThreads(1, 1, "t"), threading.Event(), list[str]()
    first, clients = submitted(threads, "eve", gate.wait), [*["eve"] * 50, "ann", "bob", "ann"]
    calls = [first, *(submitted(threads, client, partial(order.append, client)) for client in clients)]
    gate.set()
    wait(calls, 20)
    assert sorted(order.index(one) for one in ("ann", "bob", "eve")) == [0, 1, 2]
    assert order[3:6].count("ann") == 1 and len(order) == 53
    threads.shutdown()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.integers(1, 4), st.integers(1, 3))
def test_every_call_is_made_once(calls: list[tuple[str, bool]], count: int, each: int) -> None:
    """Breaks when a call is lost, made twice, or more threads of a client run than it may have."""
    threads, lock, running, most = FairThreads(count, each, "t"), threading.Lock(), Counter[str](), list[bool]()

    def work(client: str, fails: bool) -> str:
        with lock:
            running[client] += 1
            most.append(running[client] <= each and running.total() <= count)
        with lock:
            running[client] -= 1
        if fails:
            raise ZeroDivisionError
        return client

    made = [submitted(threads, client, partial(work, client, fails)) for client, fails in calls]
    for (client, fails), one in zip(calls, made, strict=True):
        if fails:
            assert isinstance(one.exception(20), ZeroDivisionError)
        else:
            assert one.result(20) == client
    assert all(most) and len(most) == len(calls)
    threads.shutdown()


def test_calls_that_nobody_waits_for() -> None:
    """Breaks when a call is made that was given up before its turn."""
    threads, gate, made = FairThreads(1, 1, "t"), threading.Event(), list[int]()
    first = submitted(threads, "ann", gate.wait)
    calls = [submitted(threads, "ann", partial(made.append, at)) for at in range(9)]
    for one in calls[:8]:
        assert one.cancel()
    gate.set()
    wait([first, calls[8]], 20)
    assert made == [8]
    threads.shutdown()


def test_shared_calls() -> None:
    """Breaks when each of many who ask at the same time makes a call of its own, or an error stays."""
    made, gate = list[int](), threading.Event()

    def call() -> int:
        made.append(0)
        gate.wait()
        if len(made) == 1:
            raise ZeroDivisionError
        return len(made)

    async def ask() -> None:
        shared = Shared(call)
        first = [asyncio.create_task(shared()) for _ in range(100)]
        await asyncio.sleep(0)
        first[0].cancel()
        gate.set()
        found = await asyncio.gather(*first, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert all(isinstance(one, ZeroDivisionError) for one in found[1:]) and len(made) == 1
        assert await shared() == 2

    asyncio.run(ask())


class Held(Jobs):
    """Jobs whose lists for a client called ``held`` take as long as the test likes."""

    gate: threading.Event

    def find(self, **given: Any) -> Any:
        if given["client"] == "held":
            self.gate.wait()
        return super().find(**given)


def test_lists_of_one_client(tmp_path: Path) -> None:
    """Breaks when a flood of lists keeps other clients, streams, health and metrics waiting: it took 45 s."""
    (tmp_path / "site").mkdir()
    room, site = Room(tmp_path), make_site(tmp_path / "site", Clients())
    jobs = Held(room.engine, "here", heard=room.service._hub.heard)
    jobs.gate = threading.Event()
    room.service._jobs = jobs
    job, _ = jobs.submit(spec(), "ann")

    async def listed(name: str, asked: str) -> int:
        caller.set(Client(name=name, role="read"))
        return len((await room.service.List(jobs_pb2.ListRequest(client=asked), None)).jobs)

    async def watched() -> int:
        # Of the client whose lists wait: what streams share is read all the same.
        caller.set(Client(name="eve", role="read"))
        async for answer in room.service.Watch(jobs_pb2.WatchRequest(id=job.id, after=job.events), None):
            return int(answer.event.number)
        return 0

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(FairThreads(16, 2, "t"))
        room.service._hub.attach(loop)
        flood = [asyncio.create_task(listed("eve", "held")) for _ in range(1000)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(20):
                assert await listed("ann", "ann") == 1
                watching = asyncio.create_task(watched())
                while not (feeds := room.service._hub._feeds) or not feeds[job.id][0]._waiting:
                    await asyncio.sleep(0.01)
                jobs.cancel(job.id, "ann")
                assert await watching == 2
                for page in (site.pages._health, site.pages._metrics_text):
                    assert (await page(None)).status_code == 200  # type: ignore[arg-type]
            assert not any(one.done() for one in flood)
        finally:
            jobs.gate.set()
        assert sum(await asyncio.gather(*flood)) == 0

    asyncio.run(ask())
    room.engine.dispose()


def test_lists_of_one_client_on_a_server(known: Known) -> None:
    """Breaks when the server does not let clients take turns: a list waited for all those before it."""
    calls = 400

    async def ask() -> float:
        md = {name: (("authorization", f"Bearer {known.tokens[name]}"),) for name in ("eve", "ann")}
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with (
            grpc.aio.insecure_channel(known.server.address, options=options) as eve,
            grpc.aio.insecure_channel(known.server.address, options=options) as ann,
        ):
            lists, own = jobs_pb2_grpc.JobServiceStub(eve), jobs_pb2_grpc.JobServiceStub(ann)  # type: ignore[no-untyped-call]
            await own.List(jobs_pb2.ListRequest(), metadata=md["ann"])
            asked = jobs_pb2.ListRequest(page_size=1000)
            flood = [asyncio.ensure_future(lists.List(asked, metadata=md["eve"])) for _ in range(calls)]
            await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
            waiting = [one for one in flood if not one.done()]
            await own.List(jobs_pb2.ListRequest(page_size=1), metadata=md["ann"])
            passed = sum(one.done() for one in waiting)
            await asyncio.gather(*flood)
            return passed / len(waiting)

    with known.client("ann") as client:
        for _ in range(60):
            client.submit_dataflow("sc13-diamond", hours=1, hours_per_second=0.001)
        try:
            # A busy machine may keep one answer back; without turns every list waits for all before it.
            assert any(asyncio.run(ask()) < 0.5 for _ in range(3))
        finally:
            for job in client.list(client="ann"):
                client.cancel(job.id)


class Call:
    """The context of a call that is sent when the test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def sent(self) -> None:
        while self.callbacks:
            self.callbacks.pop()(self)

    def time_remaining(self) -> None:
        """It has no deadline."""

    def auth_context(self) -> dict[str, Any]:
        return {}


def test_answers_that_are_not_read() -> None:
    """Breaks when a client that reads no answers has the server make and hold any number of them."""
    guard, made = Guard(Clients(), Limits(1e6, 1e6, 1000), Metrics()), list[int]()

    async def call(request: Any, context: Any) -> jobs_pb2.ListResponse:
        made.append(len(made))
        return jobs_pb2.ListResponse(next_page_token="x" * (30 << 20))

    def ask(method: str) -> tuple[Call, asyncio.Task[Any]]:
        context = Call()
        behaviour = guard._answering(method, {}, call, jobs_pb2.ListRequest.FromString)
        return context, asyncio.create_task(behaviour(b"", context))

    async def reads() -> None:
        asked = [ask("/goffish.v1.JobService/List") for _ in range(40)]
        await asyncio.sleep(0.05)
        assert len(made) == 8
        waiting = [task for _, task in asked if not task.done()]
        waiting[0].cancel()
        for context, task in asked:
            if task.done():
                context.sent()
        await asyncio.sleep(0.05)
        assert len(made) == 16
        while pending := [(context, task) for context, task in asked if not task.done() or context.callbacks]:
            for context, task in pending:
                if task.done():
                    context.sent()
            await asyncio.sleep(0)
        assert len(made) == 39
        context, task = ask("/goffish.v1.JobService/Get")
        await task
        context.sent()
        assert guard._limits._account("local").idle

    async def plans() -> None:
        asked = [ask("/goffish.v1.PlanningService/Plan") for _ in range(2)]
        await asyncio.gather(*(task for _, task in asked))
        with pytest.raises(TooMuch, match="unread responses of client local exceed 64 MB"):
            guard._limits.answer("local", 30 << 20)
        asked[0][0].sent()
        guard._limits.answer("local", 30 << 20)()

    asyncio.run(reads())
    asyncio.run(plans())


def test_reads_are_known() -> None:
    """Breaks when a method of the protocol that reads is not bounded."""
    known = {one.rpartition("/")[2] for one in _READS}
    assert {"Get", "List", "Log", "GetPrices", "ListAlgorithms"} <= known
    assert not known & {"Submit", "Watch", "Upload", "FetchResult"}
