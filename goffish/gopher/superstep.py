"""What a program can do in a superstep: read the inbox and the aggregators, send, aggregate, vote to halt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.gopher.messages import NO_VERTEX, Batch, make_batch

if TYPE_CHECKING:
    from goffish.gopher.views import Subgraph, SubgraphBatch

#: What an aggregator can do with its contributions.
REDUCTIONS: Mapping[str, Any] = {
    "sum": np.add.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "and": np.logical_and.reduce,
    "or": np.logical_or.reduce,
}


@dataclass(frozen=True)
class Totals:
    """Constants of the whole graph (docs/specs/engine.md, section 3.2, graph metadata)."""

    num_vertices: int
    num_edges: int
    num_subgraphs: int
    num_partitions: int


def reduce_values(how: str, values: Any) -> Any:
    """Fold aggregator contributions in their order."""
    return REDUCTIONS[how](np.asarray(values))


class _Step:
    """Common part of `Superstep` and `BatchStep`.

    Attributes
    ----------
    number : int
        Superstep, counted from 1.
    messages : structured array
        The inbox: ``subgraph`` and ``vertex`` (local indices, -1 where a whole subgraph is addressed) and the payload
        columns.
        Ordered by (target subgraph, source subgraph, order of sending) on every engine.
    graph : Totals
    """

    def __init__(
        self,
        number: int,
        messages: Batch,
        graph: Totals,
        aggregates: Mapping[str, Any],
        aggregators: Mapping[str, str],
    ) -> None:
        self.number, self.messages, self.graph = number, messages, graph
        self._aggregates, self._aggregators = aggregates, aggregators
        self.outbox: list[Batch] = []
        self.contributions: dict[str, Any] = {}

    def aggregated(self, name: str) -> Any:
        """Return the value of an aggregator over the previous superstep.

        Parameters
        ----------
        name : str
            A name in `SubgraphProgram.aggregators`.

        Returns
        -------
        scalar or None
            The value; ``None`` if there was no contribution.

        Raises
        ------
        InputError
            If the program does not declare the aggregator.
        """
        self._check_aggregator(name)
        return self._aggregates.get(name)

    def aggregate(self, name: str, value: ArrayLike) -> None:
        """Contribute to an aggregator.

        Parameters
        ----------
        name : str
            A name in `SubgraphProgram.aggregators`.
        value : array-like
            One value, or several to be reduced.

        Raises
        ------
        InputError
            If the program does not declare the aggregator.
        """
        self._check_aggregator(name)
        values = np.atleast_1d(np.asarray(value))
        if not values.size:
            return
        part = reduce_values(self._aggregators[name], values)
        if name in self.contributions:
            part = reduce_values(self._aggregators[name], [self.contributions[name], part])
        self.contributions[name] = part

    def _check_aggregator(self, name: str) -> None:
        if name not in self._aggregators:
            declared = ", ".join(self._aggregators) or "none"
            raise InputError(f"no aggregator {name!r}; declared: {declared}")

    def send_to_subgraph(self, subgraph: ArrayLike, **payload: ArrayLike) -> None:
        """Send a message to one or more subgraphs.

        Parameters
        ----------
        subgraph : array-like of int
            Subgraph numbers; an array sends one message per entry.
        **payload : array-like
            A value for each payload column, or an array of the same length as `subgraph`.

        Raises
        ------
        InputError
            If a subgraph does not exist or the payload does not match `SubgraphProgram.message`.
        """
        self._send(numbers("subgraph", subgraph, self.graph.num_subgraphs), NO_VERTEX, payload)

    def send_to_vertex(self, subgraph: ArrayLike, vertex: ArrayLike, **payload: ArrayLike) -> None:
        """Send a message to one or more vertices.

        Parameters
        ----------
        subgraph : array-like of int
            Number of the subgraph that owns each vertex.
        vertex : array-like of int
            Partitioned vertex numbers, such as ``sg.remote_vertex``.
        **payload : array-like
            A value for each payload column, or an array of the same length as `vertex`.

        Raises
        ------
        InputError
            If a subgraph or vertex does not exist or the payload does not match `SubgraphProgram.message`.
        """
        target = numbers("vertex", vertex, self.graph.num_vertices)
        self._send(numbers("subgraph", subgraph, self.graph.num_subgraphs), target, payload)

    def send_to_partition(self, partition: ArrayLike, **payload: ArrayLike) -> None:
        """Send one message to every subgraph of a partition.

        Parameters
        ----------
        partition : array-like of int
            Partition numbers; an array sends one message per entry.
        **payload : array-like
            A value for each payload column, or an array of the same length as `partition`.

        Raises
        ------
        InputError
            If a partition does not exist or the payload does not match `SubgraphProgram.message`.
        """
        self._send(~numbers("partition", partition, self.graph.num_partitions), NO_VERTEX, payload)

    def send_to_all(self, **payload: ArrayLike) -> None:
        """Send one message to every subgraph of the graph, including the sender, as one message per partition.

        Parameters
        ----------
        **payload : array-like
            A value for each payload column.

        Raises
        ------
        InputError
            If the payload does not match `SubgraphProgram.message`.
        """
        self.send_to_partition(np.arange(self.graph.num_partitions), **payload)

    def _send(self, subgraph: ArrayLike, vertex: ArrayLike, payload: Mapping[str, ArrayLike]) -> None:
        batch = make_batch(self.messages.dtype, subgraph, vertex, payload)
        if batch.size:
            self.outbox.append(batch)


def numbers(what: str, given: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return addresses as int64.

    An address that does not exist fails the job: dropping the message would hide a bug (docs/specs/engine.md, section
    3.3).
    """
    numbers = np.asarray(given)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise InputError(f"message to {what}: addresses must be integers, not {numbers.dtype}")
    if numbers.size and (numbers.min() < 0 or numbers.max() >= count):
        unknown = numbers.ravel()[np.flatnonzero((numbers < 0) | (numbers >= count))[0]]
        raise InputError(f"message to {what} {unknown}, which does not exist; accepted: 0 to {count - 1}")
    return numbers.astype(np.int64, copy=False)


class Superstep(_Step):
    """One superstep of one subgraph: inbox, aggregators, and sending.

    Attributes
    ----------
    number : int
        Number of the superstep, from 1.
    messages : structured array
        Inbox: ``subgraph`` and ``vertex`` (local indices; -1 if the message addresses a whole subgraph) and the payload
        columns, ordered by target subgraph, source subgraph and order of sending on every engine.
    graph : Totals
        ``num_vertices``, ``num_edges``, ``num_subgraphs`` and ``num_partitions`` of the whole graph.
    """

    def __init__(self, sg: Subgraph, *context: Any) -> None:
        super().__init__(*context)
        self._sg = sg
        self.halted = False

    def send_to_neighbors(self, **payload: ArrayLike) -> None:
        """Send one copy of a message to every neighboring subgraph.

        Parameters
        ----------
        **payload : array-like
            A value for each payload column.

        Raises
        ------
        InputError
            If the payload does not match `SubgraphProgram.message`.
        """
        self._send(self._sg.neighbors, NO_VERTEX, payload)

    def vote_to_halt(self) -> None:
        """Make the subgraph inactive after this call, until a message arrives."""
        self.halted = True


class BatchStep(_Step):
    """One superstep of all active subgraphs of a partition: inbox, aggregators, and sending.

    Attributes
    ----------
    number : int
        Number of the superstep, from 1.
    messages : structured array
        Inbox of all subgraphs; see `Superstep`.
    message_offsets : int64, shape (subgraphs + 1,)
        Rows of `messages` for each subgraph of the partition.
    active : int64 array
        Indices of the subgraphs to run, ascending.
    threads : int
        Threads of the job on this machine, for programs in which only one partition has work in this superstep.
    graph : Totals
        ``num_vertices``, ``num_edges``, ``num_subgraphs`` and ``num_partitions`` of the whole graph.
    """

    def __init__(
        self,
        batch: SubgraphBatch,
        active: NDArray[np.int64],
        message_offsets: NDArray[np.int64],
        threads: int,
        *context: Any,
    ) -> None:
        super().__init__(*context)
        self._batch, self.threads = batch, threads
        self.active, self.message_offsets = active, message_offsets
        self.halted = np.zeros(batch.num_subgraphs, np.bool_)

    def send_to_neighbors(self, subgraphs: NDArray[np.int64], **payload: ArrayLike) -> None:
        """Send a message to all neighbors of each listed subgraph.

        Parameters
        ----------
        subgraphs : array of int64
            Indices of the senders in the partition.
        **payload : array-like
            A value for each payload column, or an array of the same length as `subgraphs`.

        Raises
        ------
        InputError
            If the payload does not match `SubgraphProgram.message`.
        """
        offsets = self._batch.neighbor_offsets
        counts = offsets[subgraphs + 1] - offsets[subgraphs]
        before = np.cumsum(counts) - counts
        rows = np.repeat(offsets[subgraphs] - before, counts) + np.arange(int(counts.sum()))
        spread = {name: np.repeat(values, counts) if np.ndim(values) else values for name, values in payload.items()}
        self._send(self._batch.neighbors[rows], NO_VERTEX, spread)

    def vote_to_halt(self, subgraphs: NDArray[np.int64] | None = None) -> None:
        """Make the listed subgraphs inactive until a message arrives.

        Parameters
        ----------
        subgraphs : array of int64, optional
            Indices of subgraphs in the partition [default: all].
        """
        self.halted[slice(None) if subgraphs is None else subgraphs] = True
