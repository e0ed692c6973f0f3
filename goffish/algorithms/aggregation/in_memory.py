"""Messages along all edges of a graph in memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.aggregation.columns import CHUNK, Combine, Direction, Inbox, Message, concluded
from goffish.graph import Graph
from goffish.graph.parallel import balanced_rows


def aggregate(
    graph: Graph, message: Message | None, combine: Combine, direction: Direction, values: NDArray[np.float64]
) -> pa.Table:
    """As `AggregateMessages`, with the same sums to the last bit."""
    inbox = Inbox(graph.num_vertices, message, combine)
    ways = [graph] if direction != "in" or not graph.directed else []
    if direction != "out" and graph.directed:
        ways.append(graph.reverse)
    for way in ways:
        parts = -(-(way.num_arcs + way.num_vertices) // CHUNK)
        for low, high in pairwise(balanced_rows(way.offsets, max(1, parts)).tolist()):
            arcs = slice(int(way.offsets[low]), int(way.offsets[high]))
            sender = np.repeat(np.arange(low, high), np.diff(way.offsets[low : high + 1]))
            receiver = way.targets[arcs]
            weight = np.ones(receiver.size) if way.weights is None else way.weights[arcs]
            inbox.receive(receiver, values[sender], values[receiver], weight)
    return concluded(graph.label_column(), inbox.total, inbox.count, combine)
