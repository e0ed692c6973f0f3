"""The part of a Kubernetes API server that keeps pods and network policies, on a port of this machine."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Container
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ADMIN, CLIENT = "admin", "client"
_PATH = re.compile(r"/apis?/(?:([^/]+)/)?v1(?:/namespaces/([^/]+))?/(pods|networkpolicies)(?:/([^/]+))?(?:/([a-z]+))?")
_VERBS = {"POST": "create", "DELETE": "delete", "GET": "get"}


def moment(seconds: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class KubernetesServer:
    """Keeps pods and network policies of all namespaces.

    Attributes
    ----------
    objects : dict
        By resource, namespace and name.
    rights : set of tuple of str
        API group, resource and verb of what the token ``CLIENT`` may do. The token ``ADMIN`` may do everything.
    used : set of tuple of str
        Those that were used.
    requests : Counter
        Methods of requests with the token ``CLIENT``.
    refuses : callable, optional
        Given the method, path and number of such a request; returns the status and message of an error, or None.
    loses : container of int
        Numbers of such requests that are carried out, but never answered.
    """

    def __init__(self, rights: set[tuple[str, str, str]]) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.rights, self.used = rights, set[tuple[str, str, str]]()
        self.requests = Counter[str]()
        self.refuses: Callable[[str, str, int], tuple[int, str] | None] | None = None
        self.loses: Container[int] = ()
        self._lock, self._made = threading.RLock(), 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, method: str, path: str, body: dict[str, Any], token: str) -> tuple[int, dict[str, Any]]:
        url = urlsplit(path)
        query = {key: one for key, [one] in parse_qs(url.query).items()}
        found = _PATH.fullmatch(url.path)
        if found is None:
            return _error(404, "the server could not find the requested resource", "NotFound")
        group, space, kind, name, part = found.groups()
        if token not in (ADMIN, CLIENT):
            return _error(401, "Unauthorized", "Unauthorized")
        if token != ADMIN:
            verb = "list" if method == "GET" and name is None else _VERBS[method]
            needed = (group or "", kind, verb)
            self.used.add(needed)
            if needed not in self.rights:
                return _error(403, f'{kind} is forbidden: User "{token}" cannot {verb} resource "{kind}"', "Forbidden")
        if name is None and method == "GET":
            return self._listed(kind, space, query)
        name = body["metadata"]["name"] if name is None else name
        key = (kind, space or "", name)
        if method == "POST" and part is None:
            return self._create(key, body)
        if key not in self.objects:
            return _error(404, f'{kind} "{name}" not found', "NotFound")
        one = self.objects[key]
        if method == "POST" and part == "binding":
            one["spec"]["nodeName"] = body["target"]["name"]
            placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment()}
            one["status"].setdefault("conditions", []).append(placed)
        elif method == "POST" and part == "eviction":
            condition = {
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastTransitionTime": moment(),
            }  # fmt: skip
            one["status"].setdefault("conditions", []).append(condition)
            self._delete(key, query, body.get("deleteOptions") or {})
        elif method == "PATCH" and part == "status":
            one["status"] |= body["status"]
        elif method == "DELETE":
            self._delete(key, query, body)
        return 200, one

    def _create(self, key: tuple[str, str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if key in self.objects:
            return _error(409, f'{key[0]} "{key[2]}" already exists', "AlreadyExists")
        self._made += 1
        made = body["metadata"] | {"namespace": key[1], "uid": f"uid-{self._made}", "creationTimestamp": moment()}
        self.objects[key] = body | {"metadata": made, "status": {"phase": "Pending"}}
        return 201, self.objects[key]

    def _delete(self, key: tuple[str, str, str], query: dict[str, str], options: dict[str, Any]) -> None:
        """Delete an object; a pod that a node has stays until the node has stopped it."""
        one = self.objects[key]
        usual = one["spec"].get("terminationGracePeriodSeconds", 0)
        grace_s = int(query.get("gracePeriodSeconds", options.get("gracePeriodSeconds", usual)))
        if not one["spec"].get("nodeName") or one["status"]["phase"] in ("Succeeded", "Failed") or not grace_s:
            del self.objects[key]
        else:
            one["metadata"].setdefault("deletionTimestamp", moment(time.time() + grace_s))

    def _listed(self, kind: str, space: str | None, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        wanted = dict(one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
        found = [
            one for (of, at, _), one in sorted(self.objects.items())
            if of == kind and at == (space or at) and wanted.items() <= one["metadata"].get("labels", {}).items()
        ]  # fmt: skip
        first, limit = int(query.get("continue", "0")), int(query.get("limit") or len(found) + 1)
        rest = {"continue": str(first + limit)} if first + limit < len(found) else {}
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": rest, "items": found[first : first + limit]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

            def _do(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                refused, number = None, -1
                with server._lock:
                    if token != ADMIN:
                        server.requests[self.command] += 1
                        number = server.requests.total()
                        refused = None if server.refuses is None else server.refuses(self.command, self.path, number)
                    given = json.loads(data) if data else {}
                    answer = _error(*refused) if refused else server._answer(self.command, self.path, given, token)
                    content = json.dumps(answer[1]).encode()
                if number in server.loses:
                    self.close_connection = True
                    return
                self.send_response(answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_PATCH = _do

            def log_message(self, *_: Any) -> None: ...

        return Handler


def _error(status: int, message: str, reason: str = "") -> tuple[int, dict[str, Any]]:
    return status, {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason,
        "code": status, "metadata": {},
    }  # fmt: skip
