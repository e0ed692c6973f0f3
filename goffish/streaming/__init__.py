"""Data that keeps arriving: continuous dataflows, ingest, and live graph analytics."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goffish.streaming.batches import Batch
    from goffish.streaming.delta import read_delta, write_delta
    from goffish.streaming.embedded import Run
    from goffish.streaming.flow import Combined, Flow, KeyedStream, Loop, Stream, WindowedStream
    from goffish.streaming.flow_file import read_flow
    from goffish.streaming.gofs_source import read_gofs
    from goffish.streaming.graphs.cgql.checks import Arguments
    from goffish.streaming.graphs.cgql.syntax import CgqlError
    from goffish.streaming.graphs.custom import CustomPattern, Seen
    from goffish.streaming.graphs.links import LinkExpiry
    from goffish.streaming.graphs.live import Limits, LiveGraph
    from goffish.streaming.graphs.programs.program import Column, LiveProgram
    from goffish.streaming.graphs.spark import SparkRun, spark_algorithm, spark_queries
    from goffish.streaming.grpc_source import receive_grpc
    from goffish.streaming.http_source import receive_http
    from goffish.streaming.kafka import read_kafka, write_kafka
    from goffish.streaming.metrics import ChannelMetrics, Histogram, Metrics, OperatorMetrics, WorkerMetrics
    from goffish.streaming.operators import KeyState, Timers
    from goffish.streaming.reservoir import write_reservoir
    from goffish.streaming.scaling import Scaling
    from goffish.streaming.sinks import (
        Sink,
        Writer,
        call,
        collect,
        print_values,
        write_csv,
        write_json_lines,
        write_parquet,
    )
    from goffish.streaming.sources import (
        BadLine,
        Read,
        Reader,
        Source,
        from_iterable,
        generate,
        read_csv,
        read_json_lines,
        read_parquet,
    )
    from goffish.streaming.topology import Alternate, Channel, Operator, Topology
    from goffish.streaming.webhook import post_json_lines
    from goffish.streaming.windows import Window, session, sliding, tumbling

_HOMES = {
    "batches": ("Batch",),
    "delta": ("read_delta", "write_delta"),
    "embedded": ("Run",),
    "flow": ("Combined", "Flow", "KeyedStream", "LiveGraph", "Loop", "Stream", "WindowedStream"),
    "flow_file": ("read_flow",),
    "gofs_source": ("read_gofs",),
    "graphs.cgql.checks": ("Arguments",),
    "graphs.cgql.syntax": ("CgqlError",),
    "graphs.custom": ("CustomPattern", "Seen"),
    "graphs.links": ("LinkExpiry",),
    "graphs.live": ("Limits", "LiveGraph"),
    "graphs.spark": ("SparkRun", "spark_algorithm", "spark_queries"),
    "graphs.programs.program": ("Column", "LiveProgram"),
    "grpc_source": ("receive_grpc",),
    "http_source": ("receive_http",),
    "kafka": ("read_kafka", "write_kafka"),
    "metrics": ("ChannelMetrics", "Histogram", "Metrics", "OperatorMetrics", "WorkerMetrics"),
    "operators": ("KeyState", "Timers"),
    "scaling": ("Scaling",),
    "sinks": ("Sink", "Writer", "call", "collect", "print_values", "write_csv", "write_json_lines", "write_parquet"),
    "sources": (
        "BadLine",
        "Read",
        "Reader",
        "Source",
        "from_iterable",
        "generate",
        "read_csv",
        "read_json_lines",
        "read_parquet",
    ),
    "reservoir": ("write_reservoir",),
    "webhook": ("post_json_lines",),
    "topology": ("Alternate", "Channel", "Operator", "Topology"),
    "windows": ("Window", "session", "sliding", "tumbling"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Alternate", "Arguments", "BadLine", "Batch", "CgqlError", "Channel", "ChannelMetrics", "Column", "Combined",
    "CustomPattern", "Flow", "Histogram", "KeyState", "KeyedStream", "Limits", "LinkExpiry", "LiveGraph", "LiveProgram",
    "Loop", "Metrics", "Operator", "OperatorMetrics", "Read", "Reader", "Run", "Scaling", "Seen", "Sink", "Source",
    "SparkRun", "Stream", "Timers", "Topology", "Window", "WindowedStream", "WorkerMetrics", "Writer", "call",
    "collect", "from_iterable", "generate", "post_json_lines", "print_values", "read_csv", "read_delta", "read_flow",
    "read_gofs", "read_json_lines", "read_kafka", "read_parquet", "receive_grpc", "receive_http", "session", "sliding",
    "spark_algorithm", "spark_queries", "tumbling", "write_csv", "write_delta", "write_json_lines", "write_kafka",
    "write_parquet", "write_reservoir",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'goffish.streaming' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"goffish.streaming.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
