"""Features of graph jobs, and the terms of the models of work, memory and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from goffish.errors import InputError

ENGINES = ("local", "mpi", "spark")


@dataclass(frozen=True)
class JobShape:
    """A graph job in metrics that are available before it runs.

    Attributes
    ----------
    algorithm : str
        A name of `goffish.algorithms.catalogue.ALGORITHMS` with a program for the engine.
    engine : {"local", "mpi", "spark"}
    vertices, edges : int
    partitions : int
    workers : int
        Number of cores.
    directed, weighted : bool
    boundary : int, optional
        Arcs between partitions, counted at both ends, as in a store; default: as in the calibration.
    sources : int, optional
        Number of searches of betweenness (``pivots``); default: all vertices, for exact betweenness.
    supersteps : int, optional
        Fixed number of supersteps, such as ``pagerank --supersteps``; default: as in the calibration.
    """

    algorithm: str
    engine: str
    vertices: int
    edges: int
    partitions: int
    workers: int = 1
    directed: bool = False
    weighted: bool = False
    boundary: int | None = None
    sources: int | None = None
    supersteps: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"engine = {self.engine!r}: choose one of {', '.join(ENGINES)}")
        from goffish.algorithms.catalogue import ALGORITHMS

        served = [name for name, one in ALGORITHMS.items() if not one.in_memory]
        if self.algorithm not in served:
            raise InputError(f"algorithm = {self.algorithm!r}: choose one that an engine runs: {', '.join(served)}")
        for name, least in (("vertices", 0), ("edges", 0), ("partitions", 1), ("workers", 1)):
            _check_count(name, getattr(self, name), least)
        for name, least in (("boundary", 0), ("sources", 1), ("supersteps", 1)):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), least)

    @property
    def arcs(self) -> int:
        """Number of arcs: two for an undirected edge."""
        return self.edges if self.directed else 2 * self.edges

    @property
    def searches(self) -> int:
        """Number of searches of betweenness."""
        return self.vertices if self.sources is None else min(self.sources, self.vertices)


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} = {value!r}: must be an integer of at least {least}")


@dataclass(frozen=True)
class Usual:
    """Default values of a calibration for properties that a shape leaves open.

    Attributes
    ----------
    supersteps : float
        Median number of supersteps of the runs.
    boundary : float
        Median share of arcs between partitions.
    """

    supersteps: float
    boundary: float

    def steps_of(self, shape: JobShape) -> float:
        """Number of supersteps of a shape."""
        return self.supersteps if shape.supersteps is None else float(shape.supersteps)

    def boundary_of(self, shape: JobShape) -> float:
        """Number of arcs between partitions of a shape."""
        if shape.partitions == 1:
            return 0.0
        return self.boundary * shape.arcs if shape.boundary is None else float(shape.boundary)


Term = Callable[[JobShape, Usual], float]

#: All terms by name; each is 0 or more.
TERMS: Mapping[str, Term] = {
    "run": lambda shape, usual: 1.0,
    "partition": lambda shape, usual: float(shape.partitions),
    "vertex": lambda shape, usual: float(shape.vertices),
    "arc": lambda shape, usual: float(shape.arcs),
    "arc * log2 vertices": lambda shape, usual: shape.arcs * math.log2(max(shape.vertices, 2)),
    "arc * sqrt arcs": lambda shape, usual: shape.arcs * math.sqrt(shape.arcs),
    "boundary arc": lambda shape, usual: usual.boundary_of(shape),
    "superstep * partition": lambda shape, usual: usual.steps_of(shape) * shape.partitions,
    "superstep * vertex": lambda shape, usual: usual.steps_of(shape) * shape.vertices,
    "superstep * arc": lambda shape, usual: usual.steps_of(shape) * shape.arcs,
    "superstep * boundary arc": lambda shape, usual: usual.steps_of(shape) * usual.boundary_of(shape),
    "source * partition": lambda shape, usual: float(shape.searches) * shape.partitions,
    "source * vertex": lambda shape, usual: float(shape.searches) * shape.vertices,
    "source * arc": lambda shape, usual: float(shape.searches) * shape.arcs,
    "source * boundary arc": lambda shape, usual: shape.searches * usual.boundary_of(shape),
}

_ITERATIVE = (
    "vertex", "arc", "superstep * partition", "superstep * vertex", "superstep * arc", "superstep * boundary arc",
)  # fmt: skip
_TRAVERSAL = ("vertex", "arc", "boundary arc", "superstep * partition")
#: Terms of the work of an algorithm beyond the start-up of its engine.
WORK: Mapping[str, tuple[str, ...]] = {
    "components": _TRAVERSAL,
    "strong-components": _ITERATIVE,
    "max-value": _TRAVERSAL,
    "bfs": _TRAVERSAL,
    "hops": _TRAVERSAL,
    "sssp": (*_TRAVERSAL, "arc * log2 vertices"),
    "pagerank": _ITERATIVE,
    "blockrank": _ITERATIVE,
    "louvain": ("vertex", "arc", "arc * log2 vertices", "boundary arc", "superstep * partition"),
    "betweenness": (
        "vertex", "arc", "source * vertex", "source * arc", "source * boundary arc", "source * partition",
    ),
    "triangles": ("vertex", "arc", "arc * sqrt arcs", "boundary arc", "superstep * partition"),
    "clustering": ("vertex", "arc", "arc * sqrt arcs", "boundary arc", "superstep * partition"),
    "cores": (*_TRAVERSAL, "arc * log2 vertices"),
    "independent-set": (*_TRAVERSAL, "arc * log2 vertices"),
    "coloring": (*_TRAVERSAL, "arc * log2 vertices"),
    "spanning-forest": (*_TRAVERSAL, "arc * log2 vertices"),
    "label-propagation": _ITERATIVE,
    "walks": _TRAVERSAL,
    "eigenvector": _ITERATIVE,
    "katz": _ITERATIVE,
    "hits": _ITERATIVE,
    "counts": _TRAVERSAL,
    "quotient": _TRAVERSAL,
}  # fmt: skip
#: Terms of the memory beyond that of a started engine, and of the largest checkpoint.
MEMORY = ("partition", "vertex", "arc", "boundary arc")
CHECKPOINT = ("partition", "vertex", "boundary arc")
#: Terms of the concurrent searches of betweenness.
SEARCHING: Mapping[str, tuple[str, ...]] = {"betweenness": ("source * vertex", "source * boundary arc")}


def terms_of(quantity: str, algorithm: str) -> tuple[str, ...]:
    """Names of the terms of ``work``, ``memory`` or ``checkpoint`` of an algorithm."""
    if quantity == "work":
        return WORK[algorithm]
    return (MEMORY if quantity == "memory" else CHECKPOINT) + SEARCHING.get(algorithm, ())


def values_of(terms: tuple[str, ...], shape: JobShape, usual: Usual) -> list[float]:
    """The terms of a shape."""
    return [TERMS[name](shape, usual) for name in terms]
