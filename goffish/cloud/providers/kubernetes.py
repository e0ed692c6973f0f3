"""Machines that are pods of a Kubernetes cluster, on nodes on demand or on spot nodes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from goffish.cloud.billing import rent
from goffish.cloud.catalogue import Catalogue, MachineType, NotNegative, Positive
from goffish.cloud.providers.protocol import CapacityError, Machine, Offer, Request, State
from goffish.definitions import Definition, read_definition
from goffish.errors import InputError, JobError
from goffish.extras import needed_for

_TolerationField = Literal["key", "operator", "value", "effect", "tolerationSeconds"]
_Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
#: Pauses between repetitions of calls, in seconds.
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
_LATER = frozenset({408, 429, 500, 502, 503, 504})
#: To connect, and for an answer, in seconds.
_TIMEOUTS_S = (10.0, 60.0)
_PAGE = 500
#: Seconds for which a machine type is not offered after no node had space for it.
_REFUSED_S = 300.0
#: Reasons of pods and conditions of pods whose node is taken back, or that make way for others.
_TAKEN = frozenset({
    "DeletionByTaintManager", "EvictionByEvictionAPI", "Evicted", "NodeAffinity", "NodeLost", "NodeShutdown",
    "PreemptionByScheduler", "Preempting", "Shutdown", "Terminated", "TerminationByKubelet",
    "DeletionByPodGC",
})  # fmt: skip
_TAGS, _TOKEN = "goffish/tags", "goffish/token"
_MANAGED, _TYPE, _MARKET = "goffish/managed-by", "goffish/machine-type", "goffish/market"
_TEAM = "goffish/team"
_ZONE = "topology.kubernetes.io/zone"
_CONTAINER = "machine"
_DELETED = "its pod was deleted"


class KubernetesOptions(Definition):
    """Options of the Kubernetes provider.

    Attributes
    ----------
    image : str
        Container image with GoFFish, for a user other than root.
    namespace : str
    context : str, optional
        Of the kubeconfig file; default: its current one, or the service account of the pod that this process runs in.
    service_account : str
        Of the machines. It needs no permission in the cluster; the cloud may bind it to a role for object storage.
    secrets : tuple of str
        Secrets whose entries are environment variables of the machines, such as those for object storage.
    spot_nodes, on_demand_nodes : dict of str
        Labels of nodes of the two markets.
    tolerations : tuple of dict
        Of machines on spot nodes.
    type_label : str, optional
        Label of nodes whose value is the name of the machine type; default: machines run on any node with space.
    zones : tuple of str
        Zones to use; default: any.
    spot_discount : float
        Part of the on-demand price that spot nodes cost less, for machine types without spot prices.
    grace_s : int
        Seconds from SIGTERM until a machine is killed: less than the notice of the cloud.
    pending_s : float
        After which a machine is given up that no node has space for, or whose container its node does not start.
    max_lifetime_h : float
        After which a machine ends, whatever it runs.
    prefix : str
        Of the names of machines. Installations with different prefixes do not touch each other's machines.
    """

    image: Annotated[str, Field(pattern=r"^\S+$")]
    namespace: _Name = "default"
    context: str | None = None
    service_account: _Name = "default"
    secrets: tuple[_Name, ...] = ()
    spot_nodes: dict[str, str] = {}
    on_demand_nodes: dict[str, str] = {}
    tolerations: tuple[dict[_TolerationField, str | int], ...] = ()
    type_label: str | None = None
    zones: tuple[str, ...] = ()
    spot_discount: Annotated[NotNegative, Field(lt=1)] = 0.0
    grace_s: Annotated[int, Field(ge=1, le=3600)] = 100
    pending_s: Positive = 300.0
    max_lifetime_h: Annotated[Positive, Field(le=8760)] = 168.0
    prefix: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "goffish"


def read_kubernetes_options(given: str | Path | Mapping[str, Any] | KubernetesOptions) -> KubernetesOptions:
    """Read options from a YAML or JSON file, or from a mapping.

    Raises
    ------
    InputError
        The options are invalid; names the file, the field and what is accepted.
    """
    return read_definition(KubernetesOptions, given, "Kubernetes options", "image")


class KubernetesProvider:
    """Provider of pods as machines.

    Parameters
    ----------
    catalogue : Catalogue
        Its cores and memory are what machines request; its prices are those of the parts of nodes.
    options : KubernetesOptions

    Raises
    ------
    InputError
        The Kubernetes client is not installed, or no cluster is configured.

    Notes
    -----
    Pods are named by a hash of the token of their request, so that a request that is repeated starts one machine. A pod
    is never restarted. SIGTERM, the notice, comes when a pod is evicted, preempted or its node is drained. Each pod of
    a team owns a network policy that lets the team connect to each other, and nothing else to it.
    """

    def __init__(self, catalogue: Catalogue, options: KubernetesOptions) -> None:
        self._catalogue, self._options = catalogue, options
        self._known: dict[str, Machine] = {}  # of this process, as pods disappear when they have been deleted
        self._refusals: dict[tuple[str, str], float] = {}
        self._core, self._network = _connected(options.context)

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    async def offers(self) -> list[Offer]:
        """Return all machine types on both markets; those for which no node had space lately are not available."""
        found = []
        for one in self._catalogue.classes:
            for market in ("on-demand", "spot"):
                price = one.price_per_hour if market == "on-demand" else self._spot_price(one)
                refused = self.now - self._refusals.get((one.name, market), -_REFUSED_S) < _REFUSED_S
                found += [Offer(one.name, market, zone, price, not refused) for zone in self._options.zones or ("",)]
        return found

    async def request(self, request: Request) -> Machine:
        """Request a machine: create its pod.

        Parameters
        ----------
        request : Request

        Returns
        -------
        Machine

        Raises
        ------
        CapacityError
            A quota of the namespace is reached. A lack of nodes shows later, as a machine that has failed.
        InputError
            The request is not accepted.
        """
        return await asyncio.to_thread(self._request, request)

    async def release(self, ids: Collection[str]) -> None:
        """Delete the pods of machines."""
        await asyncio.to_thread(self._release, list(ids))

    async def machines(self, tags: Mapping[str, str]) -> list[Machine]:
        """Return the machines with these tags, by any process.

        Parameters
        ----------
        tags : mapping

        Returns
        -------
        list of Machine
            Those whose pods have disappeared are known to the process that saw them.
        """
        return await asyncio.to_thread(self._machines, tags)

    async def costs(self, machines: Sequence[Machine]) -> list[float]:
        """Return what machines have cost by the prices of the catalogue.

        Parameters
        ----------
        machines : sequence of Machine

        Returns
        -------
        list of float
        """
        found = []
        for one in machines:
            kind = self._type(one.machine_type)
            price = kind.price_per_hour if one.market == "on-demand" else self._spot_price(kind)
            ran = 0.0 if one.started_s is None else max(0.0, (one.ended_s or self.now) - one.started_s)
            found.append(float(rent(np.array([ran]), np.array([price]), self._catalogue.billing)[0]))
        return found

    async def close(self) -> None:
        """End connections; machines go on."""
        await asyncio.to_thread(self._core.api_client.close)

    def _type(self, name: str) -> MachineType:
        for one in self._catalogue.classes:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self._catalogue.classes)
        raise InputError(f"machine type {name!r}: unknown; the catalogue has {names}")

    def _spot_price(self, one: MachineType) -> float:
        if one.spot_price_per_hour is not None:
            return one.spot_price_per_hour
        return one.price_per_hour * (1.0 - self._options.spot_discount)

    def _request(self, request: Request) -> Machine:
        name = f"{self._options.prefix}-{_digest(request.token, 24)}"
        pod = self._pod(name, request)
        try:
            made = self._call(self._core.create_namespaced_pod, self._options.namespace, pod)
        except _RefusedError as error:
            if error.reason == "AlreadyExists":
                made = self._read(name)
            elif error.status == 403 and "exceeded quota" in str(error):
                raise CapacityError(f"{request.machine_type}: {error}") from None
            else:
                raise
        if request.team:
            try:
                self._connect(made)
            except _RefusedError:
                self._delete(name)
                raise
        return self._seen(made)

    def _connect(self, pod: Any) -> None:
        """Let the team of a pod connect to each other, as long as this pod exists."""
        meta = pod.metadata
        team = {"matchLabels": {_MANAGED: self._options.prefix, _TEAM: meta.labels[_TEAM]}}
        policy = {
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {
                "name": meta.name, "labels": team["matchLabels"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}],
            },
            "spec": {"podSelector": team, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": team}]}]},
        }  # fmt: skip
        try:
            self._call(self._network.create_namespaced_network_policy, self._options.namespace, policy)
        except _RefusedError as error:
            if error.reason != "AlreadyExists":
                raise

    def _read(self, name: str) -> Any:
        return self._call(self._core.read_namespaced_pod, name, self._options.namespace)

    def _delete(self, name: str) -> None:
        """Delete a pod, if it is there."""
        try:
            self._call(self._core.delete_namespaced_pod, name, self._options.namespace)
        except _RefusedError as error:
            if error.status != 404:
                raise

    def _pod(self, name: str, request: Request) -> dict[str, Any]:
        one, options = self._type(request.machine_type), self._options
        if request.zone is not None and options.zones and request.zone not in options.zones:
            raise InputError(f"zone {request.zone!r}: accepted are {', '.join(options.zones)}")
        spot = request.market == "spot"
        size = {"cpu": str(one.cores)} | ({"memory": f"{int(one.memory_mb)}Mi"} if one.memory_mb else {})
        nodes = dict(options.spot_nodes if spot else options.on_demand_nodes)
        if options.type_label is not None:
            nodes[options.type_label] = one.name
        container: dict[str, Any] = {
            "name": _CONTAINER, "image": options.image,
            "resources": {"requests": size, "limits": {key: size[key] for key in size if key == "memory"}},
            "env": [{"name": key, "value": _literal(value)} for key, value in request.environment.items()],
            "envFrom": [{"secretRef": {"name": one}} for one in options.secrets],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }  # fmt: skip
        container["command"] = [_literal(word) for word in request.command] or ["sleep", "infinity"]
        zones = [request.zone] if request.zone else list(options.zones)
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": zones}]},
        ]}}}  # fmt: skip
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {
                    _MANAGED: options.prefix, _TYPE: _digest(one.name, 40), _MARKET: request.market,
                    **({_TEAM: _digest(request.team, 40)} if request.team else {}),
                    **dict(map(_label, request.tags.items())),
                },
                "annotations": {
                    _TAGS: json.dumps(dict(request.tags)), _TOKEN: request.token, _TYPE: one.name,
                    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
                },
            },
            "spec": {
                "restartPolicy": "Never", "serviceAccountName": options.service_account,
                "automountServiceAccountToken": False, "nodeSelector": nodes,
                "tolerations": list(options.tolerations) if spot else [],
                **({"affinity": affinity} if zones else {}),
                "terminationGracePeriodSeconds": options.grace_s,
                "activeDeadlineSeconds": int(options.max_lifetime_h * 3600),
                # What namespaces with the Pod Security Standard "restricted" require.
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [container],
            },
        }  # fmt: skip

    def _release(self, ids: Sequence[str]) -> None:
        for name in ids:
            if name not in self._known:  # of another process; what it was like is lost with its pod
                with suppress(_RefusedError):
                    self._seen(self._read(name))
            self._delete(name)
            machine = self._known.get(name)
            if machine is not None and not machine.ended:
                self._known[name] = replace(machine, state="released", ended_s=self.now, reason="")

    def _machines(self, tags: Mapping[str, str]) -> list[Machine]:
        labels = {_MANAGED: self._options.prefix, **dict(map(_label, tags.items()))}
        pods = list(self._pages(",".join(f"{key}={value}" for key, value in labels.items())))
        listed = {one.id: one for one in map(self._seen, pods)}
        for name, one in list(self._known.items()):
            if name not in listed and tags.items() <= one.tags.items():
                if not one.ended:
                    self._known[name] = replace(one, state="interrupted", ended_s=self.now, reason=_DELETED)
                listed[name] = self._known[name]
        return list(listed.values())

    def _pages(self, selector: str) -> Iterator[Any]:
        given: dict[str, Any] = {"label_selector": selector, "limit": _PAGE}
        while True:
            try:
                page = self._call(self._core.list_namespaced_pod, self._options.namespace, **given)
            except _RefusedError as error:
                if error.status != 410 or "limit" not in given:
                    raise
                given = {"label_selector": selector}  # the pages have become too old: begin again, without pages
                continue
            yield from page.items
            given["_continue"] = page.metadata._continue
            if not given["_continue"]:
                return

    def _seen(self, pod: Any) -> Machine:
        """Return the state of a pod, and give up one that does not start."""
        before = self._known.get(pod.metadata.name)
        if before is not None and before.ended:
            return before
        machine = _machine(pod)
        placed_s = _placed_s(pod)
        if machine.state == "pending" and self.now - (placed_s or machine.requested_s) > self._options.pending_s:
            if placed_s is None:
                self._refusals[machine.machine_type, machine.market] = self.now
            self._delete(machine.id)
            machine = replace(machine, state="failed", ended_s=self.now)
        self._known[machine.id] = machine
        return machine

    def _call(self, method: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """Call a method of the API; repeat what fails for a moment.

        Raises
        ------
        _RefusedError
            The server has refused it.
        JobError
            There was no answer.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        for pause in (*_PAUSES_S, None):
            try:
                return method(*given, _request_timeout=_TIMEOUTS_S, **options)
            except ApiException as error:
                refused = _refused(error)
                # Other conflicts are those of requests at the same time, such as for the same quota.
                conflict = refused.status == 409 and refused.reason != "AlreadyExists"
                if pause is None or not (refused.status in _LATER or conflict):
                    raise refused from None
            except HTTPError as error:
                if pause is None:
                    raise JobError(f"Kubernetes: no answer ({error})") from None
            time.sleep(pause)
        raise AssertionError


def _connected(context: str | None) -> tuple[Any, Any]:
    """Return the APIs of pods and of networks of the cluster that this process runs in, or of the kubeconfig file."""
    with needed_for("machines of Kubernetes"):
        from kubernetes import client, config
        from kubernetes.config import ConfigException
    try:
        if context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config()
            calls = client.ApiClient()
        else:
            # The client reads the variable only once, when it is imported.
            calls = config.new_client_from_config(os.environ.get("KUBECONFIG"), context)
    except ConfigException as error:
        raise InputError(f"Kubernetes: no cluster is configured ({error}); set KUBECONFIG") from None
    return client.CoreV1Api(calls), client.NetworkingV1Api(calls)


class _RefusedError(InputError):
    """The API server has refused a call."""

    def __init__(self, text: str, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(text)


def _refused(error: Any) -> _RefusedError:
    status = int(error.status or 0)
    try:
        given = json.loads(error.body)
        text, reason = str(given["message"]), str(given.get("reason", ""))
    except (TypeError, ValueError, KeyError):
        text, reason = error.reason or f"status {status}", ""
    if status == 401:
        text += "; check the credentials of KUBECONFIG"
    elif status == 403 and " cannot " in text:  # not by an admission controller, which gives its reason
        text += '; see the Role in the guide "Rent machines"'
    return _RefusedError(f"Kubernetes: {text}", status, reason)


def _literal(text: str) -> str:
    """Return a text that Kubernetes does not expand."""
    return text.replace("$", "$$")


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _label(tag: tuple[str, str]) -> tuple[str, str]:
    """Return a tag as a label, whose names and values have few characters; the tag itself is an annotation."""
    return f"goffish.tag/{_digest(tag[0], 40)}", _digest(tag[1], 40)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _machine(pod: Any) -> Machine:
    """Return a pod as a machine."""
    meta, status = pod.metadata, pod.status
    notes = meta.annotations or {}
    conditions = {one.type: one for one in status.conditions or ()}
    container = next(iter(status.container_statuses or ()), None)
    ended = None if container is None else container.state.terminated
    state, reason = _state(status, conditions, ended, meta.deletion_timestamp is not None)
    deleted_s = _seconds(meta.deletion_timestamp)
    ended_s = None
    if state not in ("pending", "running"):
        ended_s = _seconds(ended.finished_at if ended is not None else None)
        if ended_s is None:
            ended_s = max((one.last_transition_time.timestamp() for one in conditions.values()), default=time.time())
    waiting = container.state.waiting if container is not None else None
    if state == "pending" and not reason and waiting is not None:
        reason = ": ".join(part for part in (waiting.reason, waiting.message) if part)
    return Machine(
        id=meta.name, machine_type=notes.get(_TYPE, ""), market=(meta.labels or {}).get(_MARKET, "on-demand"),
        zone="", state=state, reason=reason, tags=json.loads(notes.get(_TAGS, "{}")),
        requested_s=meta.creation_timestamp.timestamp(), started_s=_seconds(status.start_time), ended_s=ended_s,
        notice_s=deleted_s if state in ("pending", "running") else None,
        at_risk="DisruptionTarget" in conditions and state == "running", address=status.pod_ip,
        exit_code=None if ended is None or state == "interrupted" else ended.exit_code,
    )  # fmt: skip


def _placed_s(pod: Any) -> float | None:
    """Return when a pod got a node."""
    for one in pod.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "True":
            return _seconds(one.last_transition_time)
    return None


def _state(status: Any, conditions: Mapping[str, Any], ended: Any, deleted: bool) -> tuple[State, str]:
    scheduled, disrupted = conditions.get("PodScheduled"), conditions.get("DisruptionTarget")
    if status.phase == "Pending":
        return "pending", scheduled.message or "" if scheduled is not None and scheduled.status == "False" else ""
    if status.phase in ("Running", "Unknown"):
        return "running", "the node does not answer" if status.phase == "Unknown" else ""
    if status.reason in _TAKEN or (disrupted is not None and disrupted.status == "True"):
        said = disrupted if disrupted is not None else status
        return "interrupted", ": ".join(part for part in (said.reason, said.message) if part)
    if status.reason == "DeadlineExceeded":
        return "failed", "its maximum lifetime is over"
    if deleted and status.phase == "Failed":  # by the notice
        return "interrupted", _DELETED
    if ended is None:
        return "failed", status.message or status.reason or ""
    return "finished", "" if ended.exit_code == 0 else ended.reason or ""
