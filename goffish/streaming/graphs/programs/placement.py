"""Which worker has a vertex, decided when the vertex is first seen."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.partition import kernels
from goffish.streaming.graphs.programs.part import Moves
from goffish.streaming.key_table import longer

Numbers = NDArray[np.int64]
#: Vertices that each worker may have before balance matters, and by how much the largest may exceed the mean.
LEAST_CAPACITY, IMBALANCE = 1000, 0.1
GAMMA = 1.5
#: Share of the vertices that move to other workers after a snapshot, at most.
MOVED = 0.01


class Arrivals(NamedTuple):
    """New vertices, and where those that they are adjacent to are.

    Attributes
    ----------
    order : int64 array
        The new vertices 0, 1, ... in the order of their first appearance.
    hashes : uint64 array
        Of their labels.
    offsets, neighbors : int64 arrays
        The neighbors of vertex i, by the edges of its first epoch, are ``neighbors[offsets[i]:offsets[i + 1]]``: other
        new vertices, or ``len(order) + w`` for a vertex of worker w.
    loads : int64 array
        Numbers of vertices that workers have.
    edges : int
        Edges so far, with those of the epoch.
    """

    order: Numbers
    hashes: NDArray[np.uint64]
    offsets: Numbers
    neighbors: Numbers
    loads: Numbers
    edges: int


class Partitioner(Protocol):
    """Places new vertices on workers."""

    def place(self, arrivals: Arrivals) -> NDArray[np.int32]:
        """Return the worker of each new vertex."""


class Hash:
    """By a hash of the label."""

    def place(self, arrivals: Arrivals) -> NDArray[np.int32]:
        """Return the worker of each new vertex."""
        return (arrivals.hashes % np.uint64(len(arrivals.loads))).astype(np.int32)


class Greedy:
    """Where most neighbors are, with a penalty for workers that have many vertices.

    Parameters
    ----------
    linear : bool
        The penalty is a factor (LDG); otherwise it is subtracted (Fennel).
    capacity : int, optional
        Vertices that a worker may have. Default: the larger one of 1,000 and 1.1 times the mean.

    Raises
    ------
    InputError
        The capacity is less than 1.
    """

    def __init__(self, *, linear: bool = True, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise InputError(f"capacity = {capacity}: must be at least 1")
        self._linear, self._capacity = linear, capacity
        self._seen = 0, 0  # vertices and edges of which the penalty of Fennel is
        self._alpha = 0.0

    def space(self, vertices: int, workers: int) -> int:
        """Return how many of the vertices a worker may have."""
        return self._capacity or max(
            LEAST_CAPACITY, int((1 + IMBALANCE) * vertices / workers), ceil(vertices / workers)
        )  # fmt: skip

    def place(self, arrivals: Arrivals) -> NDArray[np.int32]:
        """Return the worker of each new vertex.

        Raises
        ------
        InputError
            The vertices exceed the capacity of all workers.
        """
        loads, parts, new = arrivals.loads, len(arrivals.loads), len(arrivals.order)
        total = int(loads.sum()) + new
        most = self.space(total, parts)
        if total > most * parts:
            raise InputError(f"capacity = {most}: {parts} workers cannot have {total:,} vertices")
        sizes = np.arange(min(most, int(loads.max()) + new) + 1)
        penalty: NDArray[Any]
        if self._linear:
            penalty = 1.0 - sizes / most
        else:
            if total >= 2 * self._seen[0] or arrivals.edges >= 2 * self._seen[1]:
                self._seen = total, arrivals.edges
                self._alpha = sqrt(parts) * arrivals.edges / total**GAMMA
            penalty = self._alpha * GAMMA * sizes ** (GAMMA - 1)
        leaves = 1 << max(parts - 1, 1).bit_length()
        owner = np.concatenate((np.full(new, -1), np.arange(parts))).astype(np.int32)
        kernels.stream(
            arrivals.offsets, arrivals.neighbors, arrivals.order, self._linear, penalty, most, owner, loads.copy(),
            np.zeros(parts, np.int64), np.empty(2 * leaves, np.int64),
        )  # fmt: skip
        return owner[:new]


def partitioner_of(given: str | Partitioner) -> Partitioner:
    """Return a partitioner by its name.

    Raises
    ------
    InputError
        There is no such one.
    """
    if isinstance(given, str):
        if given not in ("hash", "ldg", "fennel"):
            raise InputError(f"partitioner {given!r}: choose hash, ldg, fennel, or an object with a method place")
        return Hash() if given == "hash" else Greedy(linear=given == "ldg")
    if not callable(getattr(given, "place", None)):
        raise InputError(f"partitioner {given!r:.60}: has no method place")
    return given


class Directory:
    """The worker of each vertex.

    Parameters
    ----------
    workers : int
    partitioner : Partitioner

    Attributes
    ----------
    size : int
        Number of vertices that have been placed.
    owner : int32 array
        Of at least as many.
    loads : int64 array
        Vertices of each worker.
    """

    def __init__(self, workers: int, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self.size = 0
        self.owner = np.zeros(1 << 10, np.int32)
        self.loads = np.zeros(workers, np.int64)
        self._edges = 0

    @property
    def most(self) -> int:
        """Vertices that may move at once; none unless vertices are placed where their neighbors are."""
        return ceil(MOVED * self.size) if isinstance(self._partitioner, Greedy) and len(self.loads) > 1 else 0

    def move(self, numbers: Numbers, owners: NDArray[np.int32], gains: Numbers, *, upward: bool) -> Moves:
        """Move vertices with the largest gains, as long as their workers have space.

        Parameters
        ----------
        numbers, owners, gains : arrays
            As of `Part.proposals`, of all workers.
        upward : bool
            Only to workers with larger numbers than theirs, or with smaller ones: no two adjacent vertices change
            places.

        Returns
        -------
        Moves
        """
        assert isinstance(self._partitioner, Greedy)
        chosen = np.flatnonzero((owners > self.owner[numbers]) == upward)
        chosen = chosen[np.lexsort((numbers[chosen], -gains[chosen]))]
        space = self._partitioner.space(int(self.loads.sum()), len(self.loads)) - self.loads
        # Of those that go to one worker, the first ones for which it has space.
        by_worker = np.argsort(owners[chosen], kind="stable")
        sorted_owners = owners[chosen][by_worker]
        turn = np.arange(len(chosen)) - np.searchsorted(sorted_owners, sorted_owners)
        fits = np.zeros(len(chosen), np.bool_)
        fits[by_worker] = turn < space[sorted_owners]
        chosen = np.sort(chosen[fits][: self.most])
        chosen = chosen[np.argsort(numbers[chosen])]
        numbers, owners = numbers[chosen], owners[chosen]
        workers = len(self.loads)
        self.loads += np.bincount(owners, minlength=workers) - np.bincount(self.owner[numbers], minlength=workers)
        self.owner[numbers] = owners
        return Moves(numbers, owners)

    def place(self, order: Numbers, hashes: NDArray[np.uint64], sources: Numbers, targets: Numbers) -> None:
        """Place the vertices that follow those that have been placed.

        Parameters
        ----------
        order : int64 array
            The new vertices 0, 1, ... in the order of their first appearance.
        hashes : uint64 array
            Of their labels.
        sources, targets : int64 arrays
            Numbers of the ends of the edges that are added with them.

        Raises
        ------
        InputError
            A vertex cannot be placed.
        """
        first, new, workers = self.size, len(order), len(self.loads)
        self._edges += len(sources)
        if not new:
            return
        if first + new > len(self.owner):
            self.owner = longer(self.owner, first, 2 * (first + new))
        ends, others = np.concatenate((sources, targets)), np.concatenate((targets, sources))
        others, rows = others[ends >= first], ends[ends >= first] - first
        offsets = np.zeros(new + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=new), out=offsets[1:])
        others = others[np.argsort(rows, kind="stable")]
        neighbors = np.where(others >= first, others - first, new + self.owner[others])
        found = np.asarray(
            self._partitioner.place(Arrivals(order, hashes, offsets, neighbors, self.loads, self._edges))
        )
        if found.shape != (new,) or found.dtype.kind not in "iu" or np.any((found < 0) | (found >= workers)):
            raise InputError(f"partitioner {self._partitioner!r:.60}: place must return the worker of each vertex")
        self.owner[first : first + new] = found
        self.size += new
        self.loads += np.bincount(found, minlength=workers)
