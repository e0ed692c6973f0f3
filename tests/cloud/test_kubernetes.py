"""Pods as machines, against an HTTP server that keeps pods as the API server of Kubernetes does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import CapacityError, Provider, Request
from goffish.cloud.providers import kubernetes as module
from goffish.cloud.providers.kubernetes import KubernetesOptions, KubernetesProvider, read_kubernetes_options
from goffish.errors import InputError, JobError
from tests.cloud.kubernetes_server import KubernetesServer, moment

pytest.importorskip("kubernetes")

CATALOGUE = read_catalogue({
    "machine_types": [
        {"name": "m7i.large", "cores": 2, "price_per_hour": 0.1, "memory_mb": 8192},
        {"name": "m7i.xlarge", "cores": 4, "price_per_hour": 0.2},
    ],
    "billing": {"quantum_s": 1},
})  # fmt: skip
OPTIONS: dict[str, Any] = {"image": "registry/goffish:1", "namespace": "jobs", "zones": ["a", "b"]}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesServer]:
    made = KubernetesServer()
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(tmp_path / "config")))
    monkeypatch.setattr(module, "_PAUSES_S", (0.01, 0.01))
    yield made
    made.close()


def provided(use: Callable[[Provider], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        provider = KubernetesProvider(CATALOGUE, read_kubernetes_options(OPTIONS | options))
        try:
            await use(provider)
        finally:
            await provider.close()

    asyncio.run(run())


def request(token: str, *command: str, **given: Any) -> Request:
    return Request(**{"machine_type": "m7i.large", "command": command or ("true",), "token": token} | given)


def test_what_a_pod_asks_for(server: KubernetesServer) -> None:
    """Breaks when a machine has other resources, nodes or permissions than requested."""
    tags = {"goffish-job": "ä/ö " + "x" * 200, "team": "one"}
    given = {"environment": {"A": "b c\n'd'"}, "tags": tags, "market": "spot", "zone": "b"}

    async def use(provider: Provider) -> None:
        made = await provider.request(request("1", "python", "-c", "print('ü')", **given))
        [pod] = server.pods.values()
        assert (made.id, made.state, made.market, made.tags) == (pod["metadata"]["name"], "pending", "spot", tags)
        spec = pod["spec"]
        [container] = spec["containers"]
        assert container["command"] == ["python", "-c", "print('ü')"] and container["image"] == OPTIONS["image"]
        assert container["env"] == [{"name": "A", "value": "b c\n'd'"}]
        assert container["envFrom"] == [{"secretRef": {"name": "storage"}}]
        assert container["resources"] == {
            "requests": {"cpu": "2", "memory": "8192Mi"}, "limits": {"memory": "8192Mi"},
        }  # fmt: skip
        assert spec["nodeSelector"] == {"capacity": "spot", "type": "m7i.large"}
        assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
        assert not spec["automountServiceAccountToken"] and spec["restartPolicy"] == "Never"
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["b"]
        assert all(len(value) <= 63 for one in pod["metadata"]["labels"].items() for value in one[0].split("/"))
        await provider.request(request("2", tags={"goffish-job": "other"}))
        assert [one.id for one in await provider.machines({"goffish-job": tags["goffish-job"]})] == [made.id]
        assert len(await provider.machines({})) == 2
        offers = [(one.machine_type, one.market, one.zone, one.price_per_hour) for one in await provider.offers()]
        assert offers[0] == ("m7i.large", "on-demand", "a", 0.1) and len(offers) == 8
        assert offers[3] == ("m7i.large", "spot", "b", pytest.approx(0.03))
        with pytest.raises(InputError, match="zone 'c': accepted are a, b"):
            await provider.request(request("3", zone="c"))
        with pytest.raises(InputError, match=r"machine type 'x': unknown; the catalogue has m7i\.large, m7i\.xlarge"):
            await provider.request(request("3", machine_type="x"))

    provided(
        use, secrets=["storage"], spot_nodes={"capacity": "spot"}, tolerations=[{"key": "spot", "operator": "Exists"}],
        type_label="type", spot_discount=0.7,
    )  # fmt: skip


def state(name: str, **status: Any) -> dict[str, Any]:
    return {"name": name, "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": status}


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({"phase": "Running", "startTime": moment(100)}, ("running", "", None, None)),
        (
            {"phase": "Succeeded", "containerStatuses": [
                state("machine", terminated={"exitCode": 0, "finishedAt": moment(200)}),
            ]},
            ("finished", "", 0, 200.0),
        ),
        (
            {"phase": "Failed", "containerStatuses": [
                state("machine", terminated={"exitCode": 137, "reason": "OOMKilled", "finishedAt": moment(200)}),
            ]},
            ("finished", "OOMKilled", 137, 200.0),
        ),
        (
            {"phase": "Failed", "reason": "Terminated", "message": "node shutdown", "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": moment(300)},
            ]},
            ("interrupted", "Terminated: node shutdown", None, 300.0),
        ),
        (
            {"phase": "Failed", "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                 "message": "for another", "lastTransitionTime": moment(300)},
            ], "containerStatuses": [
                state("machine", terminated={"exitCode": 143, "finishedAt": moment(310)}),
            ]},
            ("interrupted", "PreemptionByScheduler: for another", None, 310.0),
        ),
        (
            {"phase": "Failed", "reason": "DeadlineExceeded", "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": moment(300)},
            ]},
            ("failed", "its maximum lifetime is over", None, 300.0),
        ),
        (
            {"phase": "Pending", "containerStatuses": [
                state("machine", waiting={"reason": "ErrImagePull", "message": "not found"}),
            ]},
            ("pending", "ErrImagePull: not found", None, None),
        ),
        (
            {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes",
                 "lastTransitionTime": moment(300)},
            ]},
            ("pending", "0/3 nodes", None, None),
        ),
    ],
)  # fmt: skip
def test_states(server: KubernetesServer, status: dict[str, Any], found: tuple[Any, ...]) -> None:
    """Breaks when a job would be repeated that has failed by itself, or one is given up that was interrupted."""

    async def use(provider: Provider) -> None:
        made = await provider.request(request("1"))
        server.update(made.id, status, "jobs")
        [now] = await provider.machines({})
        assert (now.state, now.reason, now.exit_code, now.ended_s) == found

    provided(use)


def test_requests_that_are_repeated_or_refused(server: KubernetesServer) -> None:
    """Breaks when a lost answer makes two machines, or an error is not explained."""

    async def use(provider: Provider) -> None:
        server.loses = {1}
        first = await provider.request(request("1"))
        assert (await provider.request(request("1"))).id == first.id and len(server.pods) == 1
        server.refuses = lambda method, path, number: (503, "busy") if number % 2 else None
        assert (await provider.machines({}))[0].id == first.id
        server.refuses = lambda method, path, number: (503, "busy")
        with pytest.raises(InputError, match=r"^Kubernetes: busy$"):
            await provider.machines({})
        server.refuses = lambda method, path, number: (403, "exceeded quota: compute, requested: cpu=2")
        with pytest.raises(CapacityError, match=r"m7i\.large: Kubernetes: exceeded quota: compute, requested: cpu=2$"):
            await provider.request(request("2"))
        server.refuses = lambda method, path, number: (403, "pods is forbidden")
        with pytest.raises(InputError, match="pods is forbidden; see goffish cloud policy kubernetes"):
            await provider.request(request("2"))
        server.refuses = None
        server.loses = range(1 << 20)
        with pytest.raises(JobError, match="Kubernetes: no answer"):
            await provider.machines({})

    provided(use)


def test_machines_that_end(server: KubernetesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a machine disappears with its pod, a notice is not seen, or a full cluster is waited for."""

    async def use(provider: Provider) -> None:
        released, evicted, waits = [(await provider.request(request(token))).id for token in "abc"]
        for name in (released, evicted):
            server.update(name, {"phase": "Running", "startTime": moment(time.time() - 3600)}, "jobs")
        await provider.release([released, "unknown"])
        assert ("jobs", released) not in server.pods
        server.evict(evicted, 30, "jobs")
        found = {one.id: one for one in await provider.machines({})}
        assert found[released].state == "released" and found[evicted].state == "running"
        assert found[evicted].at_risk and found[evicted].notice_s == pytest.approx(time.time() + 30, abs=5)
        server.remove(evicted, "jobs")
        found = {one.id: one for one in await provider.machines({})}
        assert (found[evicted].state, found[evicted].reason) == ("interrupted", "its pod was deleted")
        assert await provider.costs([found[evicted]]) == [pytest.approx(0.1, rel=0.02)]
        assert found[waits].state == "pending" and all(one.available for one in await provider.offers())
        monkeypatch.setattr(KubernetesProvider, "now", property(lambda self: time.time() + 301))
        found = {one.id: one for one in await provider.machines({})}
        assert found[waits].state == "failed" and ("jobs", waits) not in server.pods
        offers = {(one.machine_type, one.market): one.available for one in await provider.offers()}
        assert not offers["m7i.large", "on-demand"] and offers["m7i.large", "spot"]

    provided(use)


@pytest.mark.slow
def test_a_thousand_machines_are_found_again(server: KubernetesServer) -> None:
    """Breaks when pages are missed, or finding them takes longer than 10 s."""

    async def use(provider: Provider) -> None:
        for number in range(1001):
            await provider.request(request(str(number), tags={"goffish-job": str(number % 2)}))

    provided(use)

    async def adopt(provider: Provider) -> None:
        begun = time.monotonic()
        found = await provider.machines({})
        assert len({one.id for one in found}) == 1001 and time.monotonic() - begun < 10
        assert len(await provider.machines({"goffish-job": "0"})) == 501

    provided(adopt)


def test_options_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, error in (
        ({}, "image"), (OPTIONS | {"namespace": "A_b"}, "namespace"), (OPTIONS | {"grace_s": 0}, "grace_s"),
        (OPTIONS | {"unknown": 1}, "unknown"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=error):
            read_kubernetes_options(given)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"^Kubernetes: no cluster is configured .*; set KUBECONFIG$"):
        KubernetesProvider(CATALOGUE, KubernetesOptions(image="i"))
