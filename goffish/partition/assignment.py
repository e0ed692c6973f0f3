"""`assign`: one function from a graph to the owner of each vertex."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph import Graph
from goffish.graph.guards import expect
from goffish.partition.metis import metis
from goffish.partition.options import check_options
from goffish.partition.predefined import predefined
from goffish.partition.ranges import hash_vertices, range_vertices
from goffish.partition.streaming import fennel, ldg

_METHODS: dict[str, Callable[[Graph, int, Any], NDArray[np.int32]]] = {
    "metis": metis,
    "hash": hash_vertices,
    "range": range_vertices,
    "ldg": ldg,
    "fennel": fennel,
    "predefined": predefined,
}


def assign(graph: Graph, parts: int, method: str = "metis", **options: Any) -> NDArray[np.int32]:
    """Decide which partition owns each vertex.

    Parameters
    ----------
    graph : Graph
    parts : int
        Number of partitions, 1 … 2^31 - 1. It may exceed the number of vertices; some partitions are then
        empty.
    method : {"metis", "hash", "range", "ldg", "fennel", "predefined"}
    **options
        Of the method, see `OPTIONS`.

    Returns
    -------
    int32, shape (n,)
        Owner of each vertex, 0 … parts-1. The same arguments give the same assignment.

    Raises
    ------
    InputError
        Unknown method, unknown or ill-typed option, `parts` out of range.
    """
    expect(graph, Graph, "graph", "expected a goffish Graph; a PartitionedGraph has owner()")
    expect(method, str, "method", f"choose one of {', '.join(_METHODS)}")
    parts = check_parts(parts)
    checked = check_options(method, options)
    return _METHODS[method](graph, parts, checked)


def check_parts(parts: Any) -> int:
    """`parts` as an int; anything but a whole number from 1 to 2^31 - 1 raises `InputError`."""
    try:
        number = operator.index(parts)
    except TypeError:
        number = 0
    if isinstance(parts, bool | np.bool_) or not 1 <= number < 2**31:
        raise InputError(f"parts={parts!r}: must be an integer from 1 to 2147483647")
    return number
