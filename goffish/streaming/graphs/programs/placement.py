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

#: Workers, at most.
MOST_WORKERS = 256


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
        Numbers of vertices that workers have, which are 0, 1, ... here; how many there are may change.
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
    workers : int64 array
        Numbers of the workers, in order; not all up to the largest one, if some have been removed.
    size : int
        Number of vertices that have been placed.
    owner : int32 array
        Of at least as many.
    loads : int64 array
        Vertices of each worker, by its number.
    """

    def __init__(self, workers: int, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self.workers = np.arange(workers)
        self.size = 0
        self.owner = np.zeros(1 << 10, np.int32)
        self.loads = np.zeros(workers, np.int64)
        self._edges = 0

    @property
    def most(self) -> int:
        """Vertices that may move at once; none unless vertices are placed where their neighbors are."""
        return ceil(MOVED * self.size) if isinstance(self._partitioner, Greedy) and len(self.workers) > 1 else 0

    @property
    def balance(self) -> float:
        """The largest number of vertices of a worker over the mean."""
        return float(self.loads.max() * len(self.workers) / self.size) if self.size else 1.0

    def space(self, workers: int) -> int:
        """Return how many of the vertices each of so many workers may have.

        Raises
        ------
        InputError
            The vertices exceed the capacity of all workers.
        """
        most = (self._partitioner if isinstance(self._partitioner, Greedy) else Greedy()).space(self.size, workers)
        if self.size > most * workers:
            raise InputError(f"capacity = {most}: {workers} workers cannot have {self.size:,} vertices")
        return most

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
        chosen = np.flatnonzero((owners > self.owner[numbers]) == upward)
        chosen = chosen[np.lexsort((numbers[chosen], -gains[chosen]))]
        space = self.space(len(self.workers)) - self.loads
        # Of those that go to one worker, the first ones for which it has space.
        by_worker = np.argsort(owners[chosen], kind="stable")
        sorted_owners = owners[chosen][by_worker]
        turn = np.arange(len(chosen)) - np.searchsorted(sorted_owners, sorted_owners)
        fits = np.zeros(len(chosen), np.bool_)
        fits[by_worker] = turn < space[sorted_owners]
        chosen = np.sort(chosen[fits][: self.most])
        chosen = chosen[np.argsort(numbers[chosen])]
        numbers, owners = numbers[chosen], owners[chosen]
        self.owner[numbers] = owners
        self._count()
        return Moves(numbers, owners)

    def _count(self) -> None:
        self.loads = np.bincount(self.owner[: self.size], minlength=int(self.workers[-1]) + 1)

    def scale(self, workers: int, sources: Numbers, targets: Numbers) -> Moves:
        """Divide the vertices among more or fewer workers.

        Those that are added get what others have above the new mean, first of the one with the most vertices; those
        that are removed have the fewest. The vertices of a worker are divided by LDG, in the order of their numbers.

        Parameters
        ----------
        workers : int
            How many there are then; each may have some `space`.
        sources, targets : int64 arrays
            Numbers of the ends of edges.

        Returns
        -------
        Moves
        """
        had, before, count = self.workers, self.owner[: self.size].copy(), len(self.workers)
        if workers > count:
            for added in np.setdiff1d(np.arange(workers), had)[: workers - count].tolist():
                self.workers = np.sort(np.append(self.workers, added))
                self._fill(added, (sources, targets))
        else:
            most = self.space(workers)
            order = np.lexsort((-had, self.loads[had]))
            self.workers = np.sort(had[order[count - workers :]])
            for worker in had[order[: count - workers]].tolist():
                space = np.maximum(most - self.loads[self.workers], 0)
                self._divide(worker, self.workers, space, (sources, targets))
            self._count()
        numbers = np.flatnonzero(self.owner[: self.size] != before)
        return Moves(numbers, self.owner[numbers])

    def _fill(self, added: int, ends: tuple[Numbers, Numbers]) -> None:
        """Give a new worker the vertices that others have above the mean."""
        self._count()
        mean = ceil(self.size / len(self.workers))
        for worker in self.workers[np.lexsort((self.workers, -self.loads[self.workers]))].tolist():
            load, space = int(self.loads[worker]), mean - int(self.loads[added])
            share = min(load - mean, space)
            if share <= 0:
                return
            # Those that stay are divided into groups of this size as well, lest those that go are what is left over.
            groups = min(round(load / share), MOST_WORKERS)
            most = ceil((1 + IMBALANCE) * load / groups)
            goes = min(most, space + int(IMBALANCE * mean))
            stays = max(most, ceil((load - goes) / (groups - 1)))
            self._divide(
                worker, np.append(np.full(groups - 1, worker), added), np.append(np.full(groups - 1, stays), goes), ends
            )  # fmt: skip

    def _divide(self, worker: int, among: Numbers, space: Numbers, ends: tuple[Numbers, Numbers]) -> None:
        """Place the vertices of a worker anew, in groups for workers that may get so many of them."""
        owner = self.owner[: self.size]
        numbers = np.flatnonzero(owner == worker)
        count = len(numbers)
        if not count:
            return
        row_of = np.full(len(self.loads), -1)
        row_of[among] = count + np.arange(len(among))
        place = row_of[owner]
        place[numbers] = np.arange(count)
        rows, others = place[np.concatenate(ends)], place[np.concatenate(ends[::-1])]
        kept = (rows >= 0) & (rows < count) & (others >= 0)
        largest = int(space.max())
        owner[numbers] = among[Greedy(capacity=largest).place(
            _arrivals(np.arange(count), np.zeros(0, np.uint64), (rows[kept], others[kept]), largest - space, 0)
        )]  # fmt: skip
        self._count()

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
        first, new, workers = self.size, len(order), len(self.workers)
        self._edges += len(sources)
        if not new:
            return
        if first + new > len(self.owner):
            self.owner = longer(self.owner, first, 2 * (first + new))
        ends, others = np.concatenate((sources, targets)), np.concatenate((targets, sources))
        others, rows = others[ends >= first], ends[ends >= first] - first
        row_of = np.zeros(len(self.loads), np.int64)
        row_of[self.workers] = new + np.arange(workers)
        neighbors = np.where(others >= first, others - first, row_of[self.owner[others]])
        arrivals = _arrivals(order, hashes, (rows, neighbors), self.loads[self.workers], self._edges)
        found = np.asarray(self._partitioner.place(arrivals))
        if found.shape != (new,) or found.dtype.kind not in "iu" or np.any((found < 0) | (found >= workers)):
            raise InputError(f"partitioner {self._partitioner!r:.60}: place must return the worker of each vertex")
        self.owner[first : first + new] = self.workers[found]
        self.size += new
        self.loads += np.bincount(self.workers[found], minlength=len(self.loads))


def _arrivals(
    order: Numbers, hashes: NDArray[np.uint64], pairs: tuple[Numbers, Numbers], loads: Numbers, edges: int
) -> Arrivals:  # fmt: skip
    """Return new vertices with the second ones of pairs as the neighbors of the first ones."""
    rows, neighbors = pairs
    offsets = np.zeros(len(order) + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=len(order)), out=offsets[1:])
    return Arrivals(order, hashes, offsets, neighbors[np.argsort(rows, kind="stable")], loads, edges)
