"""Telemetry: Prometheus metrics, OpenTelemetry traces, logs and the audit log."""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from goffish.extras import needed_for

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Prometheus metrics of the server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter("goffish_calls", "Completed calls.", ["method", "code"], registry=self.registry)
        self._seconds = Histogram(
            "goffish_call_seconds", "Duration of calls.", ["method"], buckets=_SECONDS, registry=self.registry
        )
        self._children: dict[tuple[str, str], tuple[Any, Any]] = {}

    def called(self, method: str, code: str, seconds: float) -> None:
        """Record a completed call."""
        found = self._children.get((method, code))
        if found is None:
            found = self._calls.labels(method, code), self._seconds.labels(method)
            self._children[method, code] = found
        found[0].inc()
        found[1].observe(seconds)

    def watch(self, jobs: Callable[[], Mapping[str, int]]) -> None:
        """Export the number of jobs per state, computed on each scrape."""
        self.registry.register(_Jobs(jobs))

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return bytes(generate_latest(self.registry))


class _Jobs:
    def __init__(self, jobs: Callable[[], Mapping[str, int]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges."""
        family = GaugeMetricFamily("goffish_jobs", "Jobs by state.", labels=["state"])
        for state, count in self._jobs().items():
            family.add_metric([state], count)
        yield family

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Describe the gauges without a database query."""
        return [GaugeMetricFamily("goffish_jobs", "Jobs by state.", labels=["state"])]


@contextmanager
def tracing(endpoint: str | None) -> Iterator[list[Any]]:
    """Provide interceptors that export a span per call, except health checks; none without an endpoint.

    Parameters
    ----------
    endpoint : str, optional
        OTLP/gRPC endpoint, such as ``http://127.0.0.1:4317``.

    Raises
    ------
    InputError
        The extra is not installed.
    """
    if endpoint is None:
        yield []
        return
    with needed_for("--traces"):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.grpc import aio_server_interceptor, filters
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider(resource=Resource.create({"service.name": "goffish"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    try:
        yield [aio_server_interceptor(tracer_provider=provider, filter_=filters.negate(filters.health_check()))]
    finally:
        provider.shutdown()


_BYTES, _FILES = 10 << 20, 10


def set_up_logs(home: Path) -> None:
    """Write logs to stderr, and the audit log to ``audit.log`` in a folder, rotated at 10 MiB."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_Lines())
    ours = logging.getLogger("goffish")
    ours.addHandler(lines)
    ours.setLevel(logging.INFO)
    path = home / "audit.log"
    path.touch(mode=0o600)
    file = logging.handlers.RotatingFileHandler(path, maxBytes=_BYTES, backupCount=_FILES)
    file.setFormatter(_Audit())
    audit = logging.getLogger("goffish.audit")
    audit.addHandler(file)
    audit.propagate = False


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        body = {"time": _moment(record), "level": record.levelname.lower(), "text": record.getMessage()}
        if record.exc_info:
            body["exception"] = self.formatException(record.exc_info)
        return json.dumps(body)


class _Audit(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"time": _moment(record)} | json.loads(record.getMessage()))


def _moment(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
