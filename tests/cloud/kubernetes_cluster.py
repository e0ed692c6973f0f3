"""Kubernetes clusters of this machine: the API, with the objects of ``containers/service/kubernetes``, and a node.

The API is that of etcd and kube-apiserver, if KUBEBUILDER_ASSETS names the folder with both and with kubectl, or the
part of it that ``kubernetes_server`` has. No controller runs: quotas and owners of objects alone have no effect.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import trustme
import yaml

from tests.cloud.kubernetes_server import ADMIN, CLIENT, KubernetesServer, moment

#: As tools of Kubernetes name it: https://book.kubebuilder.io/reference/envtest.
ASSETS = "KUBEBUILDER_ASSETS"
MANIFESTS = Path(__file__).parents[2] / "containers" / "service" / "kubernetes"
SERVER, JOBS = "goffish", "goffish-jobs"
#: Becomes another program, which ends with its parent.
_BOUND = (
    "import os, sys; from goffish.environment import end_with_parent; end_with_parent();"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_ENDED = ("Succeeded", "Failed")


class ApiError(Exception):
    """The API has refused a call."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


def rights() -> set[tuple[str, str, str]]:
    """Return API group, resource and verb of what the server may do."""
    [role] = (one for one in yaml.safe_load_all((MANIFESTS / "rights.yaml").read_text()) if one["kind"] == "Role")
    return {
        (group, kind, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }


class Cluster:
    """API of a cluster, as its administrator.

    Attributes
    ----------
    options : dict
        Of the provider, for pods in the namespace of jobs.
    node : Node
        That runs the pods, if there is one.
    """

    node: Node

    def __init__(self, address: str, token: str, authority: Path | None = None) -> None:
        self.address, self.authority, self.token = address, authority, token
        self.options: dict[str, Any] = {"image": "goffish", "namespace": JOBS, "service_account": "goffish-worker"}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if authority is not None:
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(authority))))
        self._http = urllib.request.build_opener(*handlers)

    def kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """Write a configuration with the rights of the server, or with those of a token."""
        cluster: dict[str, Any] = {"server": self.address}
        if self.authority is not None:
            cluster["certificate-authority-data"] = base64.b64encode(self.authority.read_bytes()).decode()
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token or self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }))  # fmt: skip
        return path

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        asked = urllib.request.Request(
            f"{self.address}{path}?{urlencode(query)}", None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {ADMIN}", "Content-Type": content}, method=method,
        )  # fmt: skip
        try:
            with self._http.open(asked, timeout=60) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from None

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        return {one["metadata"]["name"]: one for one in self.call("GET", _path("pods"))["items"]}

    @property
    def policies(self) -> dict[str, dict[str, Any]]:
        """Return the network policies, except that of the namespace."""
        found = self.call("GET", _path("networkpolicies"))["items"]
        return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"] != "machines"}

    def update(self, name: str, **status: Any) -> None:
        """Change the status of a pod, as its node does."""
        if "nodeName" not in self.call("GET", _path("pods", name))["spec"]:
            self.bind(name)
        self.call("PATCH", f"{_path('pods', name)}/status", {"status": status})

    def bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": "here"}
        about = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.call("POST", f"{_path('pods', name)}/binding", about)

    def evict(self, name: str, grace_s: int) -> None:
        """Let a pod make way, as when its spot node is drained."""
        self.call("POST", f"{_path('pods', name)}/eviction", {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"gracePeriodSeconds": grace_s},
        })  # fmt: skip

    def remove(self, name: str) -> None:
        """Forget a pod; its node kills it."""
        self.call("DELETE", _path("pods", name), gracePeriodSeconds=0)

    def wait_until_empty(self, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while self.pods:
            assert time.monotonic() < end, self.pods
            time.sleep(0.1)


class StandIn(Cluster):
    """A cluster with the part of the API that the tests have."""

    def __init__(self) -> None:
        self.server = KubernetesServer(rights())
        super().__init__(self.server.address, CLIENT)

    def close(self) -> None:
        self.server.close()


class Kubernetes(Cluster):
    """A cluster with the API server of Kubernetes.

    Parameters
    ----------
    programs : Path
        Folder with etcd, kube-apiserver and kubectl.
    folder : Path
        For their files.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder, self._programs, self._processes = folder, programs, list[subprocess.Popen[bytes]]()
        authority = trustme.CA()
        served = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        served.private_key_pem.write_to_path(folder / "key.pem")
        served.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        (folder / "tokens.csv").write_text(f"{ADMIN},{ADMIN},{ADMIN},system:masters\n")
        store, between, port = (_free_port() for _ in range(3))
        self._start(
            "etcd", f"--data-dir={folder / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{store}",
            f"--advertise-client-urls=http://127.0.0.1:{store}", f"--listen-peer-urls=http://127.0.0.1:{between}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{between}",
            f"--initial-cluster=default=http://127.0.0.1:{between}", "--unsafe-no-fsync",
        )  # fmt: skip
        super().__init__(f"https://127.0.0.1:{port}", "", folder / "ca.pem")
        self.etcd = f"http://127.0.0.1:{store}"
        self._start(
            "kube-apiserver", f"--etcd-servers={self.etcd}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--cert-dir={folder}", f"--tls-cert-file={folder / 'cert.pem'}",
            f"--tls-private-key-file={folder / 'key.pem'}", f"--token-auth-file={folder / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'key.pem'}",
            f"--service-account-signing-key-file={folder / 'key.pem'}", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
        )  # fmt: skip
        self._wait_until_ready()
        self.kubectl("apply", "-f", str(MANIFESTS / "namespaces.yaml"))
        self.kubectl("apply", "-k", str(MANIFESTS))
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 36_000},
        }
        account = f"/api/v1/namespaces/{SERVER}/serviceaccounts/goffish-server"
        self.token = self.call("POST", f"{account}/token", asked)["status"]["token"]

    @property
    def version(self) -> str:
        return str(self.call("GET", "/version")["gitVersion"])

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as the administrator, and return what it prints."""
        config = self.kubeconfig(self.folder / "admin", ADMIN)
        done = subprocess.run(
            [self._programs / "kubectl", f"--kubeconfig={config}", *arguments],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def clear(self) -> None:
        """Remove the pods and network policies of the provider."""
        for kind in ("pods", "networkpolicies"):
            self.call("DELETE", _path(kind), gracePeriodSeconds=0, labelSelector="goffish/managed-by")

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def _start(self, program: str, *options: str) -> None:
        with (self.folder / f"{program}.log").open("wb") as log:
            command = [sys.executable, "-c", _BOUND, str(self._programs / program), *options]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + 120
        while True:
            try:
                with self._http.open(f"{self.address}/readyz", timeout=5):
                    return
            except OSError as error:
                if time.monotonic() > end or any(one.poll() is not None for one in self._processes):
                    logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
                    self.close()
                    raise AssertionError(f"no API server: {error}\n{logs}") from None
                time.sleep(0.2)


class Node:
    """Runs the pods of a cluster as processes of this machine, with notice, grace and final states as of a kubelet."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._ends = cluster, threading.Event()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # by the UID of their pods
        self._warned = set[str]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._cluster.node = self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for process in self._processes.values():
            _kill(process)

    def pid(self, name: str) -> int:
        """Return the process of a pod."""
        return self._processes[self._cluster.pods[name]["metadata"]["uid"]].pid

    def _run(self) -> None:
        while not self._ends.wait(0.05):
            pods = self._cluster.pods
            for name, pod in pods.items():
                with contextlib.suppress(ApiError):  # it was deleted meanwhile
                    self._keep(name, pod)
            for uid in self._processes.keys() - {pod["metadata"]["uid"] for pod in pods.values()}:
                _kill(self._processes.pop(uid))

    def _keep(self, name: str, pod: dict[str, Any]) -> None:
        uid, deleted = pod["metadata"]["uid"], pod["metadata"].get("deletionTimestamp")
        process = self._processes.get(uid)
        if pod["status"]["phase"] in _ENDED:
            if deleted is not None:
                self._cluster.remove(name)
        elif "nodeName" not in pod["spec"]:
            self._cluster.bind(name)
        elif process is None and deleted is None:
            self._start(name, pod)
        elif process is None:
            self._cluster.update(name, phase="Failed")
        elif process.poll() is not None:
            _kill(process)  # and what it has started
            code = process.returncode if process.returncode >= 0 else 128 - process.returncode
            ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": moment()}
            state = [container_status(terminated=ended)]
            self._cluster.update(name, phase="Failed" if code else "Succeeded", containerStatuses=state)
        elif deleted is not None and uid not in self._warned:
            self._warned.add(uid)
            process.terminate()
        elif deleted is not None and moment() > deleted:
            _kill(process)

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        [container] = pod["spec"]["containers"]
        given = dict[str, str]()
        for one in container.get("env") or ():
            given[one["name"]] = _expanded(one.get("value", ""), given)
        command = [_expanded(word, given) for word in container["command"]]
        command = [sys.executable if one == "python" else one for one in command]
        process = subprocess.Popen(command, env=os.environ | given, start_new_session=True)
        self._processes[pod["metadata"]["uid"]] = process
        state = [container_status(running={"startedAt": moment()})]
        address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        self._cluster.update(name, phase="Running", startTime=moment(), containerStatuses=state, **address)


def container_status(**state: Any) -> dict[str, Any]:
    return {"name": "machine", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}


def _path(kind: str, name: str | None = None) -> str:
    group = "/api/v1" if kind == "pods" else "/apis/networking.k8s.io/v1"
    return f"{group}/namespaces/{JOBS}/{kind}" + ("" if name is None else f"/{name}")


def _expanded(text: str, variables: dict[str, str]) -> str:
    """Return a text with its references ``$(NAME)``, where ``$$`` is ``$``, as Kubernetes expands them."""
    return re.sub(
        r"\$(?:\$|\(([^)]*)\))", lambda found: "$" if found[1] is None else variables.get(found[1], found[0]), text
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
