"""Pods as machines, against the API server of Kubernetes and an HTTP server that keeps pods as it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import CapacityError, Machine, Provider, Request
from goffish.cloud.providers import kubernetes as module
from goffish.cloud.providers.kubernetes import KubernetesOptions, KubernetesProvider, read_kubernetes_options
from goffish.errors import InputError, JobError
from tests.cloud.kubernetes_cluster import JOBS, Cluster, Kubernetes, StandIn, container_status
from tests.cloud.kubernetes_server import moment

pytest.importorskip("kubernetes")

CATALOGUE = read_catalogue({
    "machine_types": [
        {"name": "m7i.large", "cores": 2, "price_per_hour": 0.1, "memory_mb": 8000},
        {"name": "m7i.xlarge", "cores": 4, "price_per_hour": 0.2},
    ],
    "billing": {"quantum_s": 1},
})  # fmt: skip
OPTIONS: dict[str, Any] = {"image": "registry/goffish:1", "zones": ["a", "b"]}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSES_S", (0.01, 0.01))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    made = StandIn()
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(tmp_path / "kubeconfig")))
    yield made
    made.close()


def provided(cluster: Cluster, use: Callable[[Provider], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        provider = KubernetesProvider(CATALOGUE, read_kubernetes_options(cluster.options | OPTIONS | options))
        try:
            await use(provider)
        finally:
            await provider.close()

    asyncio.run(run())


def request(token: str, *command: str, **given: Any) -> Request:
    return Request(**{"machine_type": "m7i.large", "command": command or ("true",), "token": token} | given)


def test_what_a_pod_asks_for(cluster: Cluster) -> None:
    """Breaks when a machine has other resources, nodes or permissions than requested."""
    tags = {"goffish-job": "ä/ö " + "x" * 200, "team": "one"}
    given = {"environment": {"A": "b c\n'd'"}, "tags": tags, "market": "spot", "zone": "b"}

    async def use(provider: Provider) -> None:
        made = await provider.request(request("1", "python", "-c", "print('ü')", **given))
        [pod] = cluster.pods.values()
        assert (made.id, made.state, made.market, made.tags) == (pod["metadata"]["name"], "pending", "spot", tags)
        spec = pod["spec"]
        [container] = spec["containers"]
        assert container["command"] == ["python", "-c", "print('ü')"] and container["image"] == OPTIONS["image"]
        assert container["env"] == [{"name": "A", "value": "b c\n'd'"}]
        assert container["envFrom"] == [{"secretRef": {"name": "storage"}}]
        assert container["resources"] == {
            "requests": {"cpu": "2", "memory": "8000Mi"}, "limits": {"memory": "8000Mi"},
        }  # fmt: skip
        assert spec["nodeSelector"] == {"capacity": "spot", "type": "m7i.large"}
        assert {"key": "spot", "operator": "Exists"} in spec["tolerations"]  # admission adds others
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
        cluster, use, secrets=["storage"], spot_nodes={"capacity": "spot"}, type_label="type", spot_discount=0.7,
        tolerations=[{"key": "spot", "operator": "Exists"}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({"phase": "Running", "startTime": moment(100)}, ("running", "", None, None)),
        (
            {"phase": "Succeeded", "containerStatuses": [
                container_status(terminated={"exitCode": 0, "finishedAt": moment(200)}),
            ]},
            ("finished", "", 0, 200.0),
        ),
        (
            {"phase": "Failed", "containerStatuses": [
                container_status(terminated={"exitCode": 137, "reason": "OOMKilled", "finishedAt": moment(200)}),
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
                container_status(terminated={"exitCode": 143, "finishedAt": moment(310)}),
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
                container_status(waiting={"reason": "ErrImagePull", "message": "not found"}),
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
def test_states(cluster: Cluster, status: dict[str, Any], found: tuple[Any, ...]) -> None:
    """Breaks when a job would be repeated that has failed by itself, or one is given up that was interrupted."""

    async def use(provider: Provider) -> None:
        made = await provider.request(request("1"))
        cluster.update(made.id, **status)
        [now] = await provider.machines({})
        assert (now.state, now.reason, now.exit_code, now.ended_s) == found

    provided(cluster, use)


def test_requests_that_are_repeated_or_refused(stand_in: StandIn) -> None:
    """Breaks when a lost answer makes two machines, or an error is not explained."""
    server = stand_in.server

    async def use(provider: Provider) -> None:
        server.loses = {1}
        first = await provider.request(request("1"))
        assert (await provider.request(request("1"))).id == first.id and len(stand_in.pods) == 1
        server.refuses = lambda method, path, number: (503, "busy") if number % 2 else None
        assert (await provider.machines({}))[0].id == first.id
        server.refuses = lambda method, path, number: (503, "busy")
        with pytest.raises(InputError, match=r"^Kubernetes: busy$"):
            await provider.machines({})
        server.refuses = lambda method, path, number: (403, "exceeded quota: compute, requested: cpu=2")
        with pytest.raises(CapacityError, match=r"m7i\.large: Kubernetes: exceeded quota: compute, requested: cpu=2$"):
            await provider.request(request("2"))
        # The quota was changed by another request at the same time.
        server.refuses = lambda method, path, number: (409, "the object has been modified") if number % 2 else None
        for token in "23":
            await provider.request(request(token))
        assert len(stand_in.pods) == 3
        server.refuses = lambda method, path, number: (410, "too old") if "continue=" in path else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_PAGE", 1)
            assert len({one.id for one in await provider.machines({})}) == 3
        server.refuses = None
        server.loses = range(1 << 20)
        with pytest.raises(JobError, match="Kubernetes: no answer"):
            await provider.machines({})

    provided(stand_in, use)


def test_machines_that_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a machine disappears with its pod, a notice is not seen, or a full cluster is waited for."""

    async def use(provider: Provider) -> None:
        released, evicted, waits = [(await provider.request(request(token))).id for token in "abc"]
        starts = (await provider.request(request("d", machine_type="m7i.xlarge"))).id
        cluster.update(starts, containerStatuses=[container_status(waiting={"reason": "ImagePullBackOff"})])
        for name in (released, evicted):
            cluster.update(name, phase="Running", startTime=moment(time.time() - 3600))
        await provider.release([released, "unknown"])
        assert "deletionTimestamp" in cluster.pods[released]["metadata"]
        cluster.evict(evicted, 30)
        found = {one.id: one for one in await provider.machines({})}
        assert found[released].state == "released" and found[evicted].state == "running"
        assert found[evicted].at_risk and found[evicted].notice_s == pytest.approx(time.time() + 30, abs=5)
        cluster.remove(evicted)
        found = {one.id: one for one in await provider.machines({})}
        assert (found[evicted].state, found[evicted].reason) == ("interrupted", "its pod was deleted")
        assert await provider.costs([found[evicted]]) == [pytest.approx(0.1, rel=0.02)]
        assert found[waits].state == "pending" and all(one.available for one in await provider.offers())
        monkeypatch.setattr(KubernetesProvider, "now", property(lambda self: time.time() + 301))
        found = {one.id: one for one in await provider.machines({})}
        assert found[waits].state == "failed" and waits not in cluster.pods
        assert (found[starts].state, found[starts].reason) == ("failed", "ImagePullBackOff")
        offers = {(one.machine_type, one.market): one.available for one in await provider.offers()}
        assert not offers["m7i.large", "on-demand"] and offers["m7i.large", "spot"]
        assert offers["m7i.xlarge", "on-demand"]  # there was a node

    provided(cluster, use)


async def ended(provider: Provider, id_: str, seconds: float = 20.0) -> Machine:
    """Wait for the end of a machine."""
    end = time.monotonic() + seconds
    while True:
        [found] = [one for one in await provider.machines({}) if one.id == id_]
        if found.ended:
            return found
        assert time.monotonic() < end, found
        await asyncio.sleep(0.02)


def test_commands_are_not_expanded(pods: Cluster, tmp_path: Path) -> None:
    """Breaks when a command or a variable has another text in its container than in the request."""
    text, into = "$(A) $A $$ $$(A) $", tmp_path / "said"
    code = f"import os, sys; open({str(into)!r}, 'w').write(sys.argv[1] + os.environ['B'])"

    async def use(provider: Provider) -> None:
        made = await provider.request(request("1", "python", "-c", code, text, environment={"A": "a", "B": text}))
        found = await ended(provider, made.id)
        assert (found.state, found.exit_code) == ("finished", 0)
        assert into.read_text() == text * 2

    provided(pods, use)


@pytest.mark.parametrize("how", ["deleted", "evicted"])
def test_interrupted_commands(pods: Cluster, how: str) -> None:
    """Breaks when the end of a command after a notice is taken for its failure."""

    async def use(provider: Provider) -> None:
        made = await provider.request(request("1", "sleep", "60"))
        while (await provider.machines({}))[0].state != "running":
            await asyncio.sleep(0.02)
        if how == "evicted":
            pods.evict(made.id, 100)
        else:
            pods.call("DELETE", f"/api/v1/namespaces/{JOBS}/pods/{made.id}")
        found = await ended(provider, made.id)
        assert (found.state, found.exit_code) == ("interrupted", None)
        assert found.reason == "its pod was deleted" or (how == "evicted" and "evicting" in found.reason)

    provided(pods, use)


def test_rights_of_the_server(stand_in: StandIn) -> None:
    """Breaks when the Role of the manifests has a right too few or too many."""

    async def use(provider: Provider) -> None:
        for _ in range(2):
            made = [await provider.request(request(token, team="1")) for token in "ab"]
        assert len(await provider.machines({})) == 2
        await provider.release([one.id for one in made])

    provided(stand_in, use)
    assert stand_in.server.used == stand_in.server.rights


def test_a_right_that_is_missing(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a lack of permissions is not explained."""
    elsewhere = {"namespace": "default"}  # where the server has no rights
    if isinstance(cluster, StandIn):
        cluster.server.rights = set()

    async def use(provider: Provider) -> None:
        with pytest.raises(
            InputError, match=r"Kubernetes: pods.* cannot create resource .*; see the Role in the guide"
        ):
            await provider.request(request("1"))

    provided(cluster, use, **elsewhere)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "other", "other")))

    async def refused(provider: Provider) -> None:
        with pytest.raises(InputError, match=r"^Kubernetes: .*; check the credentials of KUBECONFIG"):
            await provider.machines({})

    provided(cluster, refused)


def test_what_kubernetes_refuses(kube_apiserver: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a quota is an error of the job, or one of the job is a lack of machines."""
    monkeypatch.setenv("KUBECONFIG", str(kube_apiserver.kubeconfig(tmp_path / "kubeconfig")))
    quota = f"/api/v1/namespaces/{JOBS}/resourcequotas/machines/status"
    most = {"pods": "3", "requests.cpu": "400", "requests.memory": "1600Gi"}
    used = {"pods": "0", "requests.cpu": "0", "requests.memory": "0"}
    kube_apiserver.call("PATCH", quota, {"status": {"hard": most, "used": used}})  # as its controller does

    async def use(provider: Provider) -> None:
        with pytest.raises(InputError, match=r"must specify requests\.memory for: machine$"):
            await provider.request(request("0", machine_type="m7i.xlarge"))
        requests = (provider.request(request(str(number))) for number in range(8))
        found = await asyncio.gather(*requests, return_exceptions=True)
        refused = [one for one in found if not isinstance(one, Machine)]
        assert len(refused) == 5 and all(isinstance(one, CapacityError) for one in refused), refused
        assert "exceeded quota: machines, requested: pods=1, used: pods=3, limited: pods=3" in str(refused[0])

    async def alone(provider: Provider) -> None:
        with pytest.raises(InputError, match=r'serviceaccount "none" not found$'):
            await provider.request(request("2"))

    try:
        provided(kube_apiserver, use)
        provided(kube_apiserver, alone, service_account="none")
    finally:
        kube_apiserver.clear()
        kube_apiserver.call("PATCH", quota, {"status": {"hard": None, "used": None}})


def test_machines_of_a_team(cluster: Cluster) -> None:
    """Breaks when machines of a team cannot connect to each other in a closed namespace, or others can to them."""

    async def use(provider: Provider) -> None:
        first, second, _ = [await provider.request(request(name, team="job/1")) for name in "abb"]
        await provider.request(request("c", team="job/2"))
        await provider.request(request("d"))
        assert len(cluster.pods) == 4 and len(cluster.policies) == 3
        for name in (first.id, second.id):
            policy, pod = cluster.policies[name], cluster.pods[name]
            team = policy["spec"]["podSelector"]["matchLabels"]
            found = cluster.pods.values()
            assert {first.id, second.id} == {
                one["metadata"]["name"] for one in found if team.items() <= one["metadata"]["labels"].items()
            }
            assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": team}}]}]
            assert policy["spec"]["policyTypes"] == ["Ingress"]
            [owner] = policy["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", name, pod["metadata"]["uid"])

    provided(cluster, use)


@pytest.mark.slow
def test_a_thousand_machines_are_found_again(cluster: Cluster) -> None:
    """Breaks when pages are missed, or finding them takes longer than 10 s."""

    async def use(provider: Provider) -> None:
        for number in range(1001):
            await provider.request(request(str(number), tags={"goffish-job": str(number % 2)}))

    provided(cluster, use)

    async def adopt(provider: Provider) -> None:
        begun = time.monotonic()
        found = await provider.machines({})
        assert len({one.id for one in found}) == 1001 and time.monotonic() - begun < 10
        assert len(await provider.machines({"goffish-job": "0"})) == 501

    provided(cluster, adopt)


def test_options_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, error in (
        ({}, "image"), (OPTIONS | {"namespace": "A_b"}, "namespace"), (OPTIONS | {"grace_s": 0}, "grace_s"),
        (OPTIONS | {"unknown": 1}, "unknown"), (OPTIONS | {"tolerations": [{"operater": "Exists"}]}, "operater"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=error):
            read_kubernetes_options(given)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"^Kubernetes: no cluster is configured .*; set KUBECONFIG$"):
        KubernetesProvider(CATALOGUE, KubernetesOptions(image="i"))
