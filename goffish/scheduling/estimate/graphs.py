"""Graphs for calibration: five kinds of generated graphs, each from a seed, and bundled real graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.examples import bundled_examples

if TYPE_CHECKING:
    from goffish.graph import Graph

Ends = tuple[NDArray[np.int64], NDArray[np.int64], int]

#: Probabilities of an R-MAT graph (Chakrabarti et al., SDM 2004), as in Graph500.
_RMAT = (0.57, 0.19, 0.19)
#: Share of edges that a perforated grid keeps; share of edges within a community.
_KEPT, _INSIDE = 0.7, 0.7
_COMMUNITY, _DEGREE = 50, 16


def rmat(edges: int, rng: np.random.Generator, per_vertex: int = 16) -> Ends:
    """R-MAT with permuted vertex numbers: few vertices have most of the edges."""
    scale = max(round(math.log2(max(edges / per_vertex, 2.0))), 1)
    src, dst = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    a, b, c = _RMAT
    for bit in range(scale):
        draw = rng.random(edges)
        src |= (draw >= a + b).astype(np.int64) << bit
        dst |= (((draw >= a) & (draw < a + b)) | (draw >= a + b + c)).astype(np.int64) << bit
    names = rng.permutation(1 << scale)
    return names[src], names[dst], 1 << scale


def sparse_rmat(edges: int, rng: np.random.Generator) -> Ends:
    """R-MAT with a quarter of the edges per vertex."""
    return rmat(edges, rng, 4)


def road(edges: int, rng: np.random.Generator) -> Ends:
    """A square grid without some of its edges, similar to road networks."""
    side = max(int(np.sqrt(edges / (2 * _KEPT))), 2)
    ids = np.arange(side * side).reshape(side, side)
    src = np.concatenate((ids[:, :-1].ravel(), ids[:-1].ravel()))
    dst = np.concatenate((ids[:, 1:].ravel(), ids[1:].ravel()))
    kept = rng.random(src.size) < _KEPT
    return src[kept], dst[kept], side * side


def communities(edges: int, rng: np.random.Generator) -> Ends:
    """Planted communities of equal size, with some edges between them."""
    n = max(2 * edges // _DEGREE, 2 * _COMMUNITY)
    src = rng.integers(0, n, edges)
    inside = rng.random(edges) < _INSIDE
    near = src - src % _COMMUNITY + rng.integers(0, _COMMUNITY, edges)
    return src, np.where(inside & (near < n), near, rng.integers(0, n, edges)), n


def uniform(edges: int, rng: np.random.Generator) -> Ends:
    """Edges with uniformly random ends."""
    n = max(edges // 5, 2)
    return rng.integers(0, n, edges), rng.integers(0, n, edges), n


KINDS: dict[str, Callable[[int, np.random.Generator], Ends]] = {
    "rmat": rmat, "sparse-rmat": sparse_rmat, "road": road, "communities": communities, "uniform": uniform,
}  # fmt: skip
#: Bundled real graphs; used for testing only.
REAL = ("email-enron.txt.gz", "road-california-major.txt.gz", "power.metis.gz")


@dataclass(frozen=True)
class Sample:
    """A graph of a calibration.

    Attributes
    ----------
    kind : str
        One of `KINDS`, or a file of `REAL`.
    edges : int
        Approximate number of edges; 0 for a file.
    fitted : bool
        Whether the graph is used for fitting, or for testing.
    """

    kind: str
    edges: int
    fitted: bool

    @property
    def name(self) -> str:
        """Name by kind and size."""
        return f"{self.kind}-{self.edges}" if self.edges else self.kind.split(".")[0]

    def make(self, weighted: bool) -> Graph:
        """Create the graph, deterministically. Weights are integers from 1 to 255."""
        from goffish.graph import from_edges
        from goffish.graph.io import read

        if self.kind not in KINDS:
            graph = read(bundled_examples() / "data" / self.kind, directed=False).unweighted()
            src, dst, _, _ = graph.edge_columns()
            n = graph.num_vertices
        else:
            rng = np.random.default_rng([self.edges, list(KINDS).index(self.kind), int(self.fitted)])
            src, dst, n = KINDS[self.kind](self.edges, rng)
        drawn = np.random.default_rng(self.edges).integers(1, 256, src.size).astype(np.float64) if weighted else None
        return from_edges(src, dst, drawn, labels=np.arange(n))


#: Numbers of edges of the graphs for fitting.
SIZES = {
    "tiny": (1_000, 4_000),
    "small": (20_000, 80_000, 320_000),
    "medium": (60_000, 400_000, 2_000_000),
    "large": (200_000, 1_500_000, 10_000_000),
}
_FITTED = ("rmat", "road", "communities")
#: Kinds of the graphs for testing, with sizes below and above those for fitting.
_TESTED = ("sparse-rmat", "uniform", "road", "communities")


def samples(size: str) -> list[Sample]:
    """Graphs of a calibration of one of `SIZES`: for fitting, and others for testing, smaller ones first.

    Graphs for testing have other sizes and seeds; two of their kinds are not used for fitting, one is 1.5 times as
    large as the largest graph for fitting, and ``tiny`` has no bundled real graphs.
    """
    if size not in SIZES:
        raise InputError(f"sizes={size!r}: choose one of {', '.join(SIZES)}")
    edges = SIZES[size]
    between = [int(np.sqrt(low * high)) for low, high in pairwise(edges)]
    tested = (*between, between[-1], int(1.5 * edges[-1]))[-len(_TESTED) :]
    found = [Sample(kind, count, True) for count in edges for kind in _FITTED]
    found += [Sample(kind, count, False) for kind, count in zip(_TESTED, tested, strict=False)]
    found.sort(key=lambda sample: sample.edges)
    if size == "tiny":
        return found
    real = [Sample(name, 0, False) for name in REAL]
    # After the smallest ones, so that a short calibration includes a test.
    return [*found[: len(_FITTED)], *real, *found[len(_FITTED) :]]


def source_of(graph: Graph) -> Any:
    """A start vertex for searches: one with the most neighbors."""
    return graph.label_column()[int(graph.out_degrees.argmax())].as_py()
