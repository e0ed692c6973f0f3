"""The live page of a flow, and its metrics for Prometheus, on a loopback address."""

from __future__ import annotations

import html
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from string import Template
from typing import Any, NamedTuple

from goffish.addresses import in_digits, is_loopback, split_address
from goffish.errors import InputError, JobError
from goffish.extras import needed_for
from goffish.streaming.control import Controlled, metrics_of
from goffish.streaming.live.layout import BOX, layout
from goffish.streaming.metrics import Histogram, Metrics
from goffish.streaming.topology import Topology

#: Connections at once; others are closed. Seconds that a request may take to arrive, and its answer to be taken.
_MOST_CONNECTIONS, _TIMEOUT_S = 16, 5.0
_HEADERS = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; frame-ancestors 'none'",
}  # fmt: skip
_FILES = {"/live.js": "text/javascript", "/live.css": "text/css"}
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Page:
    """HTTP server of a flow; its threads end with the process.

    Parameters
    ----------
    address : str
        Loopback ``HOST:PORT``; port 0: any free port.

    Attributes
    ----------
    url : str

    Raises
    ------
    InputError
        The address is not accepted, or an extra is missing.
    JobError
        The address cannot be bound.
    """

    def __init__(self, address: str) -> None:
        with needed_for("http"):
            import prometheus_client  # noqa: F401 (before the flow starts)
        self._server = LoopbackServer(f"http {address}", address)
        self.url = self._server.url

    def start(self, flow: Controlled) -> None:
        """Serve a flow."""
        page = _page(flow.topology).encode()

        def answer(path: str) -> Answer | None:
            if path == "/":
                return Answer("text/html; charset=utf-8", page)
            if path == "/status":
                return Answer("application/json", json.dumps(metrics_of(flow)).encode())
            if path == "/metrics":
                return Answer(_PROMETHEUS, prometheus(flow.metrics()))
            if path in _FILES:
                text = resources.files("goffish.streaming.live").joinpath(path[1:]).read_bytes()
                return Answer(f"{_FILES[path]}; charset=utf-8", text)
            return None

        self._server.start(answer, "/, /status and /metrics")

    def close(self) -> None:
        """Close the address."""
        self._server.close()


class Answer(NamedTuple):
    """Content type and body of an answer, and the content security policy of a page that has one."""

    kind: str
    body: bytes
    policy: str | None = None


class LoopbackServer(ThreadingHTTPServer):
    """HTTP server for this machine; its threads end with the process.

    Parameters
    ----------
    name : str
        Option with the address, for messages.
    address : str
        Loopback ``HOST:PORT``; port 0: any free port.

    Attributes
    ----------
    url : str

    Raises
    ------
    InputError
        The address is not accepted.
    JobError
        The address cannot be bound.
    """

    daemon_threads, block_on_close, request_queue_size = True, False, 128
    answer: Callable[[str], Answer | None]
    accepted: str

    def __init__(self, name: str, address: str) -> None:
        found = split_address(in_digits(address))
        if found is None or not is_loopback(found[0]):
            raise InputError(f"{name}: accepted is a loopback HOST:PORT, such as 127.0.0.1:8080")
        host, port = found
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._begun = False
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise JobError(f"{name}: cannot bind the address ({error.strerror})") from None
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.server_address[1]}/"

    def start(self, answer: Callable[[str], Answer | None], accepted: str) -> None:
        """Answer requests.

        Parameters
        ----------
        answer : callable
            Takes a path; returns ``None`` if there is none.
        accepted : str
            The paths, for messages.
        """
        self.answer, self.accepted = answer, accepted
        self._begun = True
        threading.Thread(target=self.serve_forever, args=(0.1,), name="goffish http", daemon=True).start()

    def close(self) -> None:
        """Close the address."""
        if self._begun:
            self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread, or close it if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection."""


class _Handler(BaseHTTPRequestHandler):
    server: LoopbackServer
    server_version, sys_version, timeout = "goffish", "", _TIMEOUT_S

    def do_GET(self) -> None:
        """Answer a request."""
        host = self.headers.get("Host", "")
        named = split_address(host) or (host.strip("[]"), 80)
        if not is_loopback(named[0]):  # a page of another site whose name leads here
            self._send(403, "text/plain", b"The host must be a loopback address.\n")
        elif (found := self.server.answer(self.path)) is not None:
            self._send(200, *found)
        else:
            self._send(404, "text/plain", f"Accepted are {self.server.accepted}.\n".encode())

    def _send(self, status: int, kind: str, body: bytes, policy: str | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}
        if policy is not None:
            headers["Content-Security-Policy"] = policy
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the output is that of the flow."""


def _page(topology: Topology) -> str:
    """Return the page with the drawing of a flow, whose numbers a script fills in."""
    made = layout(topology)
    width, height = BOX
    boxes, channels, rates = [], [], []
    for at, (path, (x, y)) in enumerate(made.paths):
        channel = topology.channels[at]
        title = f"{channel.source}{'.' * bool(channel.output)}{channel.output} → {channel.target}"
        channels.append(
            f'<g class="channel{" back" * channel.feedback}" id="c{at}"><title>{html.escape(title)}</title>'
            f'<path d="{path}" marker-end="url(#tip)"/></g>'
        )
        rates.append(f'<text class="label" id="r{at}" x="{x:.1f}" y="{y:.1f}"></text>')
    for at, one in enumerate(topology.operators):
        x, y = made.boxes[one.name]
        name = one.name if len(one.name) <= 23 else f"{one.name[:22]}…"
        boxes.append(
            f'<g class="box" id="o{at}" transform="translate({x:.1f} {y:.1f})"><title>{html.escape(one.name)}</title>'
            f'<rect class="back" width="{width:g}" height="{height:g}" rx="8"/>'
            f'<text class="name" x="12" y="20">{html.escape(name)}</text>'
            f'<text class="kind" x="12" y="36">{html.escape(one.kind)}</text>'
            f'<text class="rate" x="12" y="53"></text><text class="queue" x="{width - 12:g}" y="36"></text>'
            f'<rect class="scale" x="12" y="60" width="{width - 24:g}" height="4" rx="2"/>'
            f'<rect class="load" x="12" y="60" width="0" height="4" rx="2"/></g>'
        )
    text = resources.files("goffish.streaming.live").joinpath("page.html").read_text(encoding="utf-8")
    size = f"{made.width:.0f} {made.height:.0f}"
    shown = {"flow": html.escape(topology.name), "size": size, "width": f"{made.width:.0f}"}
    return Template(text).substitute(shown, channels="\n".join(channels + rates), boxes="\n".join(boxes))


def prometheus(metrics: Metrics) -> bytes:
    """Return metrics in the text format of Prometheus.

    Parameters
    ----------
    metrics : Metrics

    Returns
    -------
    bytes
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Families(metrics))
    return bytes(generate_latest(registry))


class _Families:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        """Return all metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        metrics = self._metrics
        flow = metrics.flow
        counters = {
            "records_received": "Records received.", "records_sent": "Records sent.", "errors": "Records that failed.",
            "late_records": "Records behind the watermark.", "busy_seconds": "Seconds in the operator.",
        }  # fmt: skip
        attributes = ("received", "sent", "errors", "late", "busy")
        for (name, text), attribute in zip(counters.items(), attributes, strict=True):
            family = CounterMetricFamily(f"goffish_stream_{name}", text, labels=["flow", "operator"])
            for one in metrics.operators:
                family.add_metric([flow, one.operator], getattr(one, attribute))
            yield family
        family = GaugeMetricFamily("goffish_stream_queue", "Records that wait.", labels=["flow", "operator"])
        active = GaugeMetricFamily(
            "goffish_stream_alternate", "1 for the active alternate.", labels=["flow", "operator", "alternate"]
        )
        for one in metrics.operators:
            family.add_metric([flow, one.operator], one.queue)
            if one.alternate is not None:
                active.add_metric([flow, one.operator, one.alternate], 1)
        yield family
        yield active
        family = HistogramMetricFamily(
            "goffish_stream_latency_seconds", "Time from reading a record to writing its results.",
            labels=["flow", "sink"],
        )  # fmt: skip
        for one in metrics.operators:
            if one.latency is not None:
                family.add_metric([flow, one.operator], _buckets(one.latency), one.latency.total)
        yield family
        gauges = {
            "queued": "Records that wait in a worker.", "unsent_bytes": "Bytes that wait to be sent.",
            "blocked": "1 if the worker does not read, as too much is waiting.",
            "checkpoint": "Number of the last checkpoint.", "checkpoint_age": "Seconds since the last checkpoint.",
        }  # fmt: skip
        for name, text in gauges.items():
            unit = "_seconds" if name == "checkpoint_age" else ""
            family = GaugeMetricFamily(f"goffish_stream_worker_{name}{unit}", text, labels=["flow", "worker"])
            for worker in metrics.workers:
                value = getattr(worker, name)
                if value is not None:
                    family.add_metric([flow, str(worker.worker)], value)
            yield family


def _buckets(histogram: Histogram) -> list[tuple[str, int]]:
    """Return cumulative counts at each power of two, whose bounds are the same for all scrapes."""
    found, total = [], 0
    for at, (bound, count) in enumerate(histogram.cells):
        total += count
        if at % 4 == 3:
            found.append((repr(bound), total))
    return [*found, ("+Inf", total)]
