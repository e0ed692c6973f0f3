"""Vertex labels that come as texts: from a command line, or with a job."""

from __future__ import annotations

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.graph import Graph


def as_label(text: str, graph: Graph | PartitionedGraph) -> int | str:
    """A vertex label given as a text, in the type of the graph's labels."""
    if isinstance(graph, Graph):
        textual = graph.labels is not None and str(graph.labels.type) == "string"
    else:
        textual = graph.info.label_type == "string"
    if textual:
        return text
    try:
        number = int(text)
    except ValueError:
        raise InputError(f"unknown vertex {text!r}: this graph's vertices are integers") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise InputError(f"unknown vertex {text}: this graph's vertices are 64-bit integers")
    return number
