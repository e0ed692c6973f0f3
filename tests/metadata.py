"""A metadata service of a machine on this computer: IMDSv2 with tokens that expire, and notices."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class MetadataServer:
    """Answers like the metadata service: 401 without a valid token, 404 for documents that do not exist.

    Attributes
    ----------
    documents : dict of str to str
        By path below ``/latest/meta-data/``.
    tokens : set of str
        Valid tokens.
    refused : int
        Number of requests without a valid token.
    recommended : int
        Number of recommendations, each with another time.
    """

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.refused = self.recommended = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                if self.path != "/latest/api/token" or not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                    self._answer(400, "")
                    return
                token = os.urandom(8).hex()
                outer.tokens.add(token)
                self._answer(200, token)

            def do_GET(self) -> None:
                if self.headers.get("X-aws-ec2-metadata-token") not in outer.tokens:
                    outer.refused += 1
                    self._answer(401, "")
                    return
                found = outer.documents.get(self.path.removeprefix("/latest/meta-data/"))
                self._answer(404 if found is None else 200, found or "")

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *given: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def interrupt(self, seconds: float = 120.0) -> None:
        """Announce an interruption."""
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        self.documents["spot/instance-action"] = json.dumps({"action": "terminate", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"})

    def rebalance(self) -> None:
        """Recommend to move the work."""
        self.recommended += 1
        at = datetime.now(UTC) + timedelta(seconds=self.recommended)
        notice = {"noticeTime": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        self.documents["events/recommendations/rebalance"] = json.dumps(notice)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
