"""Traces of calls for OpenTelemetry, where the operator asks for them; extra ``tracing``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from goffish.errors import InputError


@contextmanager
def tracing(endpoint: str | None) -> Iterator[list[Any]]:
    """Interceptors that send a span for each call to a collector, but for health checks; none without a collector.

    Parameters
    ----------
    endpoint : str, optional
        Where OTLP is understood by gRPC, such as ``http://127.0.0.1:4317``.

    Raises
    ------
    InputError
        The extra is not installed.
    """
    if endpoint is None:
        yield []
        return
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.grpc import aio_server_interceptor, filters
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise InputError(f"--traces: {error.name} is not installed here: pip install 'goffish[tracing]'") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "goffish"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    try:
        yield [aio_server_interceptor(tracer_provider=provider, filter_=filters.negate(filters.health_check()))]
    finally:
        provider.shutdown()
