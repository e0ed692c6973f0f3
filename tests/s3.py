"""An S3 server on this machine, which can be slow, busy, or break connections."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import fsspec
import pytest

VARIABLES = {
    "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class S3Server:
    """Answers requests on a port of this machine.

    Attributes
    ----------
    latency_s : float
        Added to each request.
    refuses : callable, optional
        Given the method, the path (with ``?`` and the query, if there is one) and the number of a request; those for
        which it is true are answered with `status`.
    status : str
        Answer to refused requests; ``403 Forbidden`` for wrong credentials.
    requests : Counter of str
        Numbers of requests by method.
    most : int
        Requests that waited for `latency_s` in the same moment.
    """

    def __init__(self) -> None:
        moto = pytest.importorskip("moto.server")
        from werkzeug.serving import make_server

        self.latency_s, self.requests = 0.0, Counter[str]()
        self._waiting, self.most, self._lock = 0, 0, threading.Lock()
        self.status = "503 Slow Down"
        self.refuses: Callable[[str, str, int], bool] | None = None
        self._moto = moto.DomainDispatcherApplication(moto.create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.variables = VARIABLES | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.port}"}

    def _answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path, query = (environment[name] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING"))
        with self._lock:
            self.requests[method] += 1
            self._waiting += 1
            self.most = max(self.most, self._waiting)
        time.sleep(self.latency_s)
        with self._lock:
            self._waiting -= 1
        path = f"{path}?{query}" if query else path
        if self.refuses is not None and self.refuses(method, path, self.requests.total()):
            environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
            start(self.status, [("Content-Type", "application/xml")])
            return [_SLOW_DOWN if self.status.startswith("503") else _DENIED]
        answer: Iterable[bytes] = self._moto(environment, start)
        return answer

    def bucket(self) -> str:
        """Create a bucket and return its URI."""
        name = f"bucket-{os.urandom(4).hex()}"
        fsspec.filesystem("s3").mkdir(name)
        return f"s3://{name}"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def started(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Start a server, which programs find by their environment."""
    pytest.importorskip("s3fs")
    made = S3Server()
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    fsspec.config.conf.clear()
    fsspec.filesystem("s3").clear_instance_cache()
    return made
