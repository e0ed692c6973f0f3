"""Requests that once made a server deaf, full or faulty: each is refused in one line, and others are answered."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf import json_format

from goffish.client import Client
from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.model import Dataflow
from goffish.v1 import dataflows_pb2, jobs_pb2, planning_pb2
from tests.services.api.serving import RealServer, serving, settle


@pytest.fixture(scope="module")
def client(server: RealServer) -> Iterator[Client]:
    with server.client() as found:
        yield found


def chain(length: int, **more: Any) -> dict[str, Any]:
    """A dataflow of elements one behind the other, each with a stream of its own."""
    names = [f"e{i}" for i in range(length)]
    return {
        "elements": [{"id": name, "cost": 1.0} for name in names],
        "edges": list(pairwise(names)),
        "inputs": dict.fromkeys(names, 1.0),
    } | more


def test_the_largest_seed(client: Client) -> None:
    """Breaks when a job is kept that cannot be listed: no page with it was answered any more."""
    seed = 2**64 - 1
    job = client.submit_dataflow("sc13-diamond", hours=1, hours_per_second=0.01, seed=seed)
    assert job.spec.dataflow.seed == seed
    assert next(one for one in client.list() if one.id == job.id).spec.dataflow.seed == seed
    client.cancel(job.id)


def refused(call: Callable[[], object]) -> str:
    """What a client reads that asks for what is not accepted."""
    with pytest.raises(grpc.RpcError) as found:
        call()
    error: Any = found.value
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    return str(error.details())


def test_filters_of_lists(client: Client) -> None:
    """Breaks when the time for a list grows with the square of its filters."""
    labels = {f"l{i}": "x" for i in range(33)}
    told = refused(lambda: client.jobs.List(jobs_pb2.ListRequest(labels=labels)))
    assert told == "labels: 33; at most 32 are accepted"
    client.jobs.List(jobs_pb2.ListRequest(states=[jobs_pb2.JOB_STATE_DONE] * 200_000))


@pytest.mark.timeout(60)
def test_dataflows_of_many_streams() -> None:
    """Breaks when every stream is followed by itself: 20,000 of them took an hour."""
    assert len(Dataflow.model_validate(chain(20_000)).elements) == 20_000


def test_jobs_that_take_much_room(client: Client) -> None:
    """Breaks when a job may be of any size: all jobs of a page are read at once."""

    def submit(dataflow: dict[str, Any]) -> str:
        message = json_format.ParseDict(dataflow, dataflows_pb2.Dataflow())
        job = jobs_pb2.JobSpec(dataflow=jobs_pb2.DataflowJob(dataflow_definition=message))
        return refused(lambda: client.jobs.Submit(jobs_pb2.SubmitRequest(spec=job)))

    large = {"elements": [{"id": f"e{i}", "cost": 1.0} for i in range(20_000)], "inputs": {"e0": 1.0}}
    assert re.fullmatch(r"spec: [\d,]+ bytes; at most 262,144 are accepted", submit(large))
    small = {"elements": [{"id": "e", "cost": 1.0}], "inputs": {"e": 1.0}}
    assert "1000 characters" in submit(small | {"source": "x" * 1001})
    assert "1000 characters" in submit(small | {"name": "x" * 1001})


def test_long_names_in_errors(client: Client) -> None:
    """Breaks when an error is too long for a header: clients then see another error, and not what is wrong."""
    for text in ("x" * 50_000, "\N{PILE OF POO}" * 20_000):
        asked = planning_pb2.Setting(dataflow_name="sc13-diamond", policy=text)
        told = refused(lambda: client.planning.Plan(planning_pb2.PlanRequest(setting=asked)))  # noqa: B023
        assert "policy" in told and told.endswith(" …") and len(told) < 1100


def test_prices_beyond_numbers() -> None:
    """Breaks when a cost that is no number any more is a fault of the server."""
    with pytest.raises(InputError, match=r"price_per_hour = 1e\+300: should be less than 1000000000"):
        read_catalogue({"classes": [{"name": "m", "cores": 1, "price_per_hour": 1e300}]})


@pytest.mark.slow
def test_idle_connections(tmp_path: Path, data: Path) -> None:
    """Breaks when they use all file descriptors: no call was answered, and jobs stood still, until they were closed."""
    within = ("prlimit", "--nofile=256:256")
    with serving(tmp_path / "home", data, listen="127.0.0.1:0", within=within) as server, server.client() as known:
        assert not list(known.list())  # connected before the others
        with ExitStack() as held:
            for _ in range(300):
                held.enter_context(idle(server))
            job = known.submit_graph("components", "edges.txt")
            settle(known, [job.id], 60)
            assert server.process is not None and psutil.Process(server.process.pid).num_fds() < 200


@pytest.mark.slow
def test_idle_connections_are_closed(tmp_path: Path, data: Path) -> None:
    """Breaks when it is kept for two minutes: a few strangers held all connections of a server."""
    with serving(tmp_path / "home", data, listen="127.0.0.1:0") as server, idle(server) as held:
        held.settimeout(60)
        with suppress(ConnectionError):
            while held.recv(1 << 16):
                pass


def idle(server: RealServer) -> socket.socket:
    """A connection without a handshake."""
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)))
