"""Clients that load a server, in a process of their own: ``python _service_load.py ADDRESS JSON``; prints JSON.

Requests are made beforehand as bytes and answers are not read into messages, so that this side costs little of the
computer that both share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import grpc

from goffish.client import requests
from goffish.v1 import dataflows_pb2, jobs_pb2, planning_pb2


def ten_elements() -> dataflows_pb2.Dataflow:
    """Ten elements in a diamond of two branches, three of them with alternates."""
    made = dataflows_pb2.Dataflow(name="ten", inputs={"e0": 5.0})
    for at in range(10):
        element = made.elements.add(id=f"e{at}")
        if at % 3 == 1:
            element.alternates.add(id="exact", cost=0.4, value=1.0)
            element.alternates.add(id="rough", cost=0.2, value=0.7)
        else:
            element.cost = 0.1 + 0.05 * at
    for source, target in [(0, 1), (1, 2), (2, 3), (3, 9), (0, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]:
        made.edges.add(**{"from": f"e{source}", "to": f"e{target}"})
    return made


_TEN = ten_elements()


def plan_request(number: int) -> bytes:
    """A plan that nobody has asked for before: every request has rates of its own."""
    setting = requests.setting(_TEN, None, "", None)
    rates = {"e0": 5.0 * (1.0 + (number % 9973) / 10_000.0)}
    return planning_pb2.PlanRequest(setting=setting, rates=rates).SerializeToString()


def submit_request(number: int, key: str) -> bytes:
    """A job that is different every time."""
    spec = requests.graph_spec("components", "store", None, "local", {"labels": {"number": str(number)}}, {})
    return jobs_pb2.SubmitRequest(spec=spec, client_key=f"{key}-{number}").SerializeToString()


async def load(address: str, given: dict[str, Any]) -> dict[str, Any]:
    """Call for some seconds, by so many callers; at a given rate, or as fast as they are answered."""
    channels = [
        grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(given["channels"])
    ]
    calls = [channel.unary_unary(given["method"]) for channel in channels]
    times: list[float] = []
    failed: dict[str, int] = {}
    count, began = 0, time.perf_counter()
    end = began + given["seconds"]
    most = given.get("calls", 1 << 60)

    def body(number: int) -> bytes:
        if given["kind"] == "submit":
            return submit_request(number, given["key"])
        return plan_request(number)

    async def caller(at: int) -> None:
        nonlocal count
        call = calls[at % len(calls)]
        while time.perf_counter() < end and count < most:
            number, count = count, count + 1
            due = None if given["per_second"] is None else began + number / given["per_second"]
            if due is not None and due > time.perf_counter():
                await asyncio.sleep(due - time.perf_counter())
            # Late callers count from when they were due: a server that is behind is not let off.
            start = time.perf_counter() if due is None else due
            try:
                await call(body(number), timeout=30)
                times.append(time.perf_counter() - start)
            except grpc.RpcError as error:
                failed[error.code().name] = failed.get(error.code().name, 0) + 1

    await asyncio.gather(*(caller(at) for at in range(given["callers"])))
    seconds = time.perf_counter() - began
    for channel in channels:
        await channel.close()
    times.sort()
    at = [times[min(len(times) - 1, int(len(times) * share))] * 1e3 for share in (0.5, 0.99)] if times else [0.0, 0.0]
    return {"answered": len(times), "seconds": seconds, "median_ms": at[0], "p99_ms": at[1], "failed": failed}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load(sys.argv[1], json.loads(sys.argv[2])))))
