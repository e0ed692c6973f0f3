"""Traces, as a collector receives them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from goffish.client import ServiceError
from tests.services.api.serving import serving


class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    def __init__(self) -> None:
        self.names: list[str] = []
        self._lock = threading.Lock()

    def Export(self, request: Any, context: Any) -> Any:
        with self._lock:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self.names += [span.name for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.mark.slow
def test_a_span_for_each_call(tmp_path: Path, data: Path) -> None:
    """Breaks when a collector is not told of a call, or a call goes wrong because somebody looks."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        traces = ("--traces", f"http://127.0.0.1:{port}")
        with serving(tmp_path / "home", data, *traces) as served, served.client() as client:
            client.plan("sc13-diamond")
            job = client.wait(client.submit_graph("components", "store").id)
            assert client.result(job.id).num_rows == 400
            with pytest.raises(ServiceError, match="does not exist"):
                client.job("nothing")
    finally:
        server.stop(1).wait()
    names = {name.removeprefix("/") for name in collector.names}
    expected = {
        "PlanningService/Plan",
        "JobService/Submit",
        "JobService/Watch",
        "JobService/FetchResult",
        "JobService/Get",
    }
    assert {f"goffish.v1.{name}" for name in expected} <= names, names
