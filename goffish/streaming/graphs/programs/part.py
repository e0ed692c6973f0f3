"""The part of a graph that a worker has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming.graphs.programs import kernels
from goffish.streaming.graphs.row_kernels import ABSENT
from goffish.streaming.graphs.rows import Net, Rows, rows_with_space
from goffish.streaming.graphs.state import no_adjacency
from goffish.streaming.key_table import KeyTable, longer

Numbers = NDArray[np.int64]


class Batch(NamedTuple):
    """Changes of an epoch for one worker, in order.

    Attributes
    ----------
    vertices, present : arrays
        Numbers of vertices of the worker, and whether they are added or removed.
    sources, targets, owners, kinds, places : arrays
        Numbers of the ends of edges; the workers of these, one row for each end; 1 for an edge that is added and -1
        for one that is removed; and places among all edges of the epoch.
    """

    vertices: Numbers
    present: NDArray[np.bool_]
    sources: Numbers
    targets: Numbers
    owners: NDArray[np.int32]
    kinds: NDArray[np.int8]
    places: NDArray[np.int32]


class Change(NamedTuple):
    """How the part of a worker has changed in an epoch; vertices are places in its arrays.

    Attributes
    ----------
    new, gone : int64 arrays
        Vertices of the worker that have been added and removed.
    sources, targets : int64 arrays
        Ends of pairs that have become adjacent; at least one of them is a vertex of the worker.
    lost_sources, lost_targets : int64 arrays
        Ends of pairs that are not adjacent any more.
    added, removed : int64 arrays
        These pairs.
    """

    new: Numbers
    gone: Numbers
    sources: Numbers
    targets: Numbers
    lost_sources: Numbers
    lost_targets: Numbers
    added: Numbers
    removed: Numbers


class Moves(NamedTuple):
    """Vertices that get another worker; in the order of their numbers.

    Attributes
    ----------
    numbers, owners : arrays
    """

    numbers: Numbers
    owners: NDArray[np.int32]


class Record(NamedTuple):
    """Vertices that a worker hands over to another one, with their pairs.

    Attributes
    ----------
    numbers, present : arrays
        Of the vertices.
    state : dict of str to array
        Their rows of the arrays of the program.
    ends, owners : arrays of two rows
        Numbers and workers of the ends of pairs.
    counts, seqs : arrays
        Of pairs.
    """

    numbers: Numbers
    present: NDArray[np.bool_]
    state: dict[str, NDArray[Any]]
    ends: Numbers
    owners: NDArray[np.int32]
    counts: NDArray[np.int32]
    seqs: Numbers


class Pairs(NamedTuple):
    """Pairs of adjacent vertices, and of those that have been; see `kernels.count_edges`."""

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    counts: NDArray[np.int32]
    weights: NDArray[np.float64]
    seqs: Numbers
    places: NDArray[np.int32]
    states: NDArray[np.int8]


class Part:
    """Vertices of a worker with their edges, and the vertices of others at the other ends of these.

    Parameters
    ----------
    worker : int
    directed : bool

    Attributes
    ----------
    names : KeyTable
        By the number of a vertex in the whole graph, its place here.
    owners : int32 array
        Workers of vertices.
    owned : bool array
        Vertices of this worker, also those that have been removed.
    present : bool array
        Vertices of this worker that exist.
    net : Net
        Neighbors.
    pairs : Pairs
    crossing : int
        Pairs with one end in another part.
    edges : int
        Pairs.
    """

    def __init__(self, worker: int, directed: bool) -> None:
        self._worker, self._directed = worker, directed
        nothing = np.zeros(0, np.int32)
        self.names, self.slots = KeyTable(), KeyTable()
        self.owners, self.owned, self.present = nothing, nothing.astype(np.bool_), nothing.astype(np.bool_)
        self.pairs = Pairs(
            nothing, nothing, nothing, np.zeros(0), nothing.astype(np.int64), nothing, nothing.astype(np.int8)
        )  # fmt: skip
        rows = Rows(no_adjacency(), nothing, np.zeros(0))
        into = Rows(no_adjacency(), nothing, np.zeros(0)) if directed else rows
        self.net = Net(nothing, nothing, rows, into, directed)
        self.crossing = self.edges = 0

    @property
    def size(self) -> int:
        """Number of vertices, with those of others."""
        return self.names.count

    @property
    def numbers(self) -> Numbers:
        """Numbers of the vertices in the whole graph."""
        return self.names.by_hash[1]

    def apply(self, batch: Batch, first: int) -> Change:
        """Take the changes of an epoch.

        Parameters
        ----------
        batch : Batch
        first : int
            Sequence number of the first edge of the epoch.
        """
        both = np.concatenate((batch.vertices, batch.sources, batch.targets))
        found = self.names.slots(pa.array(both))
        self._fit()
        count, edges = len(batch.vertices), len(batch.sources)
        vertices, u, v = found[:count], found[count : count + edges], found[count + edges :]
        self.owners[found[count:]] = batch.owners.reshape(-1)
        self.owners[vertices] = self._worker
        self.owned[found] = self.owners[found] == self._worker
        distinct = np.unique(vertices)
        before = self.present[distinct]
        self.present[vertices] = batch.present  # of several changes, the last one counts
        after = self.present[distinct]
        if not self._directed:
            u, v = np.minimum(u, v), np.maximum(u, v)
        changed, weights = self._count(u << 32 | v, batch, first)
        kernels.put_owned(self.net, self.owned, changed, weights)
        is_new = weights == ABSENT
        added, removed = changed[is_new], changed[~is_new]
        (sources, targets), (lost_sources, lost_targets) = self.ends(added), self.ends(removed)
        self.edges += len(added) - len(removed)
        self.crossing += self._crossing(sources, targets) - self._crossing(lost_sources, lost_targets)
        new, gone = distinct[after & ~before], distinct[before & ~after]
        return Change(new, gone, sources, targets, lost_sources, lost_targets, added, removed)

    def ends(self, pairs: Numbers) -> tuple[Numbers, Numbers]:
        """Return the ends of pairs."""
        return self.pairs.sources[pairs].astype(np.int64), self.pairs.targets[pairs].astype(np.int64)

    def _crossing(self, sources: Numbers, targets: Numbers) -> int:
        return int(np.count_nonzero(self.owned[sources] != self.owned[targets]))

    def _count(self, keys: Numbers, batch: Batch, first: int) -> tuple[Numbers, NDArray[np.float64]]:
        """Return the pairs that exist and did not, or the reverse, with their weights before."""
        slots = self._slots(keys)
        touched = np.empty(len(keys), np.int64)
        touched = touched[: kernels.count_edges(self.pairs, slots, keys, batch.kinds, batch.places, touched)]
        changed, before = np.empty(len(touched), np.int64), np.empty(len(touched))
        count = kernels.settle_edges(self.pairs, touched, first, changed, before)
        changed, before = changed[:count], before[:count]
        new = changed[before == ABSENT]
        self._make_space(*self.ends(new))
        return changed, before

    def _slots(self, keys: Numbers) -> Numbers:
        """Return the pairs of keys, with space for those that are new."""
        slots = self.slots.slots(pa.array(keys)) if len(keys) else keys
        size, had = self.slots.capacity, len(self.pairs.counts)
        if size > had:
            self.pairs = Pairs._make(longer(one, had, size) for one in self.pairs)
            self.pairs.weights[had:] = ABSENT
        return slots

    # Moves.

    def proposals(self, workers: int, most: int) -> tuple[Numbers, NDArray[np.int32], Numbers]:
        """Return vertices that have more neighbors in another part than here: numbers, these parts, and how many more.

        Parameters
        ----------
        workers, most : int
            Bound of the numbers of parts, and of vertices at most: those with the largest gains.
        """
        size = self.names.count
        vertices = np.flatnonzero(self.present[:size])
        parts, gains = np.empty(len(vertices), np.int32), np.empty(len(vertices), np.int64)
        kernels.find_gains(self.net, self.owners, vertices, self._worker, np.zeros(workers, np.int64), (parts, gains))
        numbers = self.numbers[vertices]
        order = np.lexsort((numbers, -gains))[:most]
        order = order[gains[order] > 0]
        return numbers[order], parts[order], gains[order]

    def hand_over(self, moves: Moves, state: dict[str, NDArray[Any]]) -> tuple[Numbers, dict[int, Record]]:
        """Give up vertices that get another worker; return them, and what each worker gets.

        Parameters
        ----------
        moves : Moves
        state : dict of str to array
            Arrays of the program.
        """
        places = np.empty(len(moves.numbers), np.int64)
        kernels.find_numbers(self.names.by_hash, moves.numbers, places)
        known = places >= 0
        places, owners = places[known], moves.owners[known]
        went = places[self.owned[places] & (owners != self._worker)]
        self.owners[places] = owners
        records = {}
        leaving = np.zeros(len(self.owned), np.bool_)
        for worker in np.unique(self.owners[went]).tolist():
            here = went[self.owners[went] == worker]
            pairs = self._pairs_of(here)
            ends = np.stack(self.ends(pairs)) if len(pairs) else np.zeros((2, 0), np.int64)
            records[worker] = Record(
                self.numbers[here], self.present[here], {name: one[here] for name, one in state.items()},
                self.numbers[ends], self.owners[ends], self.pairs.counts[pairs], self.pairs.seqs[pairs],
            )  # fmt: skip
        leaving[went] = True
        pairs = self._pairs_of(went)
        kernels.put_owned(self.net, leaving, pairs, np.ones(len(pairs)))
        self.owned[went] = self.present[went] = False
        sources, targets = self.ends(pairs)
        lost = pairs[~(self.owned[sources] | self.owned[targets])]
        self.pairs.counts[lost], self.pairs.weights[lost] = 0, ABSENT
        return went, records

    def take_over(self, records: Sequence[Record]) -> Numbers:
        """Take vertices with their pairs; return their places."""
        found = [self.names.slots(pa.array(one.numbers)) for one in records]
        ends = [self.names.slots(pa.array(one.ends.reshape(-1))).reshape(2, -1) for one in records]
        self._fit()
        came = np.concatenate([np.zeros(0, np.int64), *found])
        arriving = np.zeros(len(self.owned), np.bool_)
        arriving[came] = True
        for one, vertices, (u, v) in zip(records, found, ends, strict=True):
            self.owners[u], self.owners[v] = one.owners
            self.owners[vertices] = self._worker
            self.owned[vertices], self.present[vertices] = True, one.present
        if not records:
            return came
        u, v = np.concatenate(ends, axis=1)
        if not self._directed:
            u, v = np.minimum(u, v), np.maximum(u, v)
        # Pairs of which both ends come are in two records, which agree, if these are of different workers.
        slots = self._slots(u << 32 | v)
        pairs = self.pairs
        pairs.sources[slots], pairs.targets[slots] = u, v
        pairs.counts[slots] = np.concatenate([one.counts for one in records])
        pairs.seqs[slots] = np.concatenate([one.seqs for one in records])
        pairs.weights[slots] = 1.0
        slots = self._distinct([slots])
        self._make_space(*self.ends(slots))
        kernels.put_owned(self.net, arriving, slots, np.full(len(slots), ABSENT))
        return came

    def count_pairs(self) -> None:
        """Count pairs anew, after vertices have been moved."""
        alive = np.flatnonzero(self.pairs.weights != ABSENT)
        self.edges, self.crossing = len(alive), self._crossing(*self.ends(alive))

    def _pairs_of(self, vertices: Numbers) -> Numbers:
        """Return the pairs of vertices of this worker."""
        found: list[Numbers] = []
        for rows in (self.net.out, self.net.into)[: 1 + self._directed]:
            if len(rows.adjacency.sizes):
                starts, sizes = (
                    one[vertices].astype(np.int64) for one in (rows.adjacency.starts, rows.adjacency.sizes)
                )
                at = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
                found.append(rows.adjacency.pool[at].astype(np.int64) >> (not self._directed))
        return self._distinct(found)

    def _distinct(self, pairs: Sequence[Numbers]) -> Numbers:
        """Return pairs in order, each once."""
        chosen = np.zeros(len(self.pairs.counts), np.bool_)
        for one in pairs:
            chosen[one] = True
        return np.flatnonzero(chosen)

    def _fit(self) -> None:
        size, had = self.names.capacity, len(self.owners)
        if size > had:
            self.owners, self.owned, self.present = (
                longer(one, had, size) for one in (self.owners, self.owned, self.present)
            )  # fmt: skip

    def _make_space(self, sources: Numbers, targets: Numbers) -> None:
        """Make space in the rows for new pairs."""
        sources, targets = sources[self.owned[sources]], targets[self.owned[targets]]
        out, into = (sources, targets) if self._directed else (np.concatenate((sources, targets)), targets)
        net, size = self.net, len(self.owners)
        halves = len(self.pairs.counts) * (1 if self._directed else 2)
        rows = rows_with_space(net.out, size, halves, out, False)
        back = rows_with_space(net.into, size, halves, into, False) if self._directed else rows
        self.net = Net(self.pairs.sources, self.pairs.targets, rows, back, self._directed)

    def saved(self) -> tuple[Any, ...]:
        """Return all of it, for `install`."""
        tables = self.names.saved(), self.slots.saved()
        return *tables, self.owners, self.owned, self.present, self.pairs, self.net, self.edges, self.crossing

    def install(self, saved: tuple[Any, ...]) -> None:
        """Take the place of another part."""
        names, slots, self.owners, self.owned, self.present, self.pairs, self.net, self.edges, self.crossing = saved
        self.names.install(names)
        self.slots.install(slots)
