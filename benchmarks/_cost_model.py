"""What a superstep costs, fitted from measured runs, and what that makes of graphs and clusters that are not at hand.

The model: a run of S supersteps on W workers of C cores each takes

    S * L * (1 + log2 W)  +  bytes / W / B  +  work / (W * C)

L (seconds) and the part of B that is packing come from a non-negative least-squares fit to the phases of measured runs;
the network's share of B and the growth of L with log2 W are assumptions, as collective operations of MPI have it. Work
is measured as nanoseconds for an arc and superstep. Vertices are taken to be spread by a hash, the worst cut: a vertex
of d neighbours then has W (1 - (1 - 1/W)^d) of the W workers among them, and sends each of them one message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import _graphs  # noqa: F401  (a checkout works without an installation)
import numpy as np

from goffish.scheduling.estimate.fitting import least_squares

#: Bytes a second that a worker's network sends: 10 Gbit/s.
NETWORK = 1.25e9


@dataclass(frozen=True)
class Size:
    """A graph by its figures."""

    name: str
    vertices: float
    arcs: float


#: SNAP com-LiveJournal (undirected) and Twitter-2010 (Kwak et al. 2010; directed) as published; the last is made up.
GRAPHS = (
    Size("LiveJournal", 3_997_962, 2 * 34_681_189),
    Size("Twitter-2010", 41_652_230, 1_468_365_182),
    Size("100 G edges", 3e9, 1e11),
)
WORKERS = (16, 128, 1024)
#: Of a worker.
CORES = 8


@dataclass(frozen=True)
class Exchange:
    """Cost of an engine's exchange: seconds for a superstep, and for a byte that is packed, carried and unpacked."""

    latency: float
    per_byte: float


def fit(runs: Sequence[Mapping[str, float]]) -> Exchange:
    """From runs with ``supersteps``, ``remote_bytes`` and ``overhead`` (seconds that were not computing)."""
    terms = np.array([[run["supersteps"], run["remote_bytes"]] for run in runs], dtype=np.float64)
    # Relative errors: a run of a second and one of a minute count alike.
    latency, per_byte = least_squares(terms, np.array([run["overhead"] for run in runs]), 1e-4)
    return Exchange(float(latency), float(per_byte))


def remote_messages(graph: Size, workers: int) -> float:
    """Messages of a superstep in which every vertex tells all its neighbours, one for each worker among them.

    With the mean degree for all vertices, which is most where degrees are uneven (the expression is concave in them).
    """
    degree = graph.arcs / graph.vertices
    return graph.vertices * (workers - 1) * -math.expm1(degree * math.log1p(-1.0 / workers))


def predict(
    graph: Size, workers: int, exchange: Exchange, supersteps: float, arc_seconds: float, message_bytes: float
) -> tuple[float, float, float]:
    """Seconds of latency, of the exchange of bytes and of computing, of a run in which every superstep tells all."""
    latency = supersteps * exchange.latency * (1.0 + math.log2(workers))
    sent = remote_messages(graph, workers) * message_bytes * supersteps / workers
    carrying = sent * (exchange.per_byte + 1.0 / NETWORK)
    computing = supersteps * arc_seconds * graph.arcs / (workers * CORES)
    return latency, carrying, computing
