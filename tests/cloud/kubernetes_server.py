"""The part of a Kubernetes API server that keeps pods, on a port of this machine, with a node that runs them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


def moment(seconds: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class KubernetesServer:
    """Keeps pods of all namespaces.

    Attributes
    ----------
    pods : dict
        By namespace and name.
    refuses : callable, optional
        Given the method, the path and the number of a request; returns the status and message of an error, or None.
    loses : container of int
        Numbers of requests that are carried out, but never answered.
    runs : bool
        Whether there is a node: the command of each pod runs as a process of this machine.
    """

    def __init__(self, *, runs: bool = False) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.requests = Counter[str]()
        self.refuses: Callable[[str, str, int], tuple[int, str] | None] | None = None
        self.loses: Container[int] = ()
        self.runs = runs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.RLock()
        self._ends = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        if runs:
            threading.Thread(target=self._node, daemon=True).start()

    def kubeconfig(self, path: Path) -> Path:
        url = f"http://127.0.0.1:{self._http.server_port}"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "users": [{"name": "test", "user": {"token": "t"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }))  # fmt: skip
        return path

    def close(self) -> None:
        self._ends.set()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._http.shutdown()
        self._http.server_close()

    def update(self, name: str, status: dict[str, Any], namespace: str = "default") -> None:
        """Change the status of a pod, as its node does."""
        with self._lock:
            self.pods[namespace, name]["status"] |= status

    def evict(self, name: str, grace_s: float, namespace: str = "default") -> None:
        """Let a pod make way, as when its spot node is drained."""
        condition = {
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "the node is taken back", "lastTransitionTime": moment(),
        }  # fmt: skip
        with self._lock:
            pod = self.pods[namespace, name]
            pod["status"].setdefault("conditions", []).append(condition)
            pod["metadata"]["deletionTimestamp"] = moment(time.time() + grace_s)
            process = self._processes.get(name)
        if process is not None:
            process.terminate()

    def remove(self, name: str, namespace: str = "default") -> None:
        """Forget a pod; its process is killed."""
        with self._lock:
            del self.pods[namespace, name]
            process = self._processes.pop(name, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _node(self) -> None:
        while not self._ends.wait(0.05):
            with self._lock:
                for (_, name), pod in list(self.pods.items()):
                    if name not in self._processes and pod["status"]["phase"] == "Pending":
                        self._start(name, pod)
                    process = self._processes.get(name)
                    if process is not None and pod["status"]["phase"] == "Running" and process.poll() is not None:
                        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
                        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": moment()}
                        pod["status"] |= {
                            "phase": "Failed" if code else "Succeeded",
                            "containerStatuses": [_container({"terminated": ended})],
                        }  # fmt: skip

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        [container] = pod["spec"]["containers"]
        given = {one["name"]: one["value"] for one in container.get("env") or ()}
        command = [sys.executable if one == "python" else one for one in container["command"]]
        self._processes[name] = subprocess.Popen(command, env=os.environ | given, start_new_session=True)
        pod["status"] |= {
            "phase": "Running", "startTime": moment(), "podIP": "127.0.0.1",
            "containerStatuses": [_container({"running": {"startedAt": moment()}})],
        }  # fmt: skip

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        url = urlsplit(path)
        parts, query = url.path.strip("/").split("/"), {key: one for key, [one] in parse_qs(url.query).items()}
        assert parts[:3] == ["api", "v1", "namespaces"] and parts[4] == "pods", path
        space, name = parts[3], parts[5] if len(parts) > 5 else None
        if method == "POST":
            name = body["metadata"]["name"]
            if (space, name) in self.pods:
                return _error(409, f'pods "{name}" already exists')
            made = body["metadata"] | {"namespace": space, "uid": name, "creationTimestamp": moment()}
            self.pods[space, name] = body | {"metadata": made, "status": {"phase": "Pending"}}
            return 201, self.pods[space, name]
        if name is None:
            return self._listed(space, query)
        if (space, name) not in self.pods:
            return _error(404, f'pods "{name}" not found')
        found = self.pods[space, name]
        if method == "DELETE":
            self.remove(name, space)
        return 200, found

    def _listed(self, space: str, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        wanted = dict(one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
        found = [
            pod for (at, _), pod in sorted(self.pods.items())
            if at == space and wanted.items() <= pod["metadata"].get("labels", {}).items()
        ]  # fmt: skip
        first, limit = int(query.get("continue", "0")), int(query.get("limit", "1000"))
        rest = {"continue": str(first + limit)} if first + limit < len(found) else {}
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": rest, "items": found[first : first + limit]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with server._lock:
                    server.requests[self.command] += 1
                    number = server.requests.total()
                    refused = None if server.refuses is None else server.refuses(self.command, self.path, number)
                    given = json.loads(data) if data else {}
                    answer = server._answer(self.command, self.path, given) if refused is None else _error(*refused)
                if number in server.loses:
                    self.close_connection = True
                    return
                content = json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _do

            def log_message(self, *_: Any) -> None: ...

        return Handler


def _container(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "machine", "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": state,
    }  # fmt: skip


def _error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
