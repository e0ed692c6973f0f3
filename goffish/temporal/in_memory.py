"""Components and ranks of whole instances in memory: the answers of the programs in `instances`, without supersteps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.gofs.series import Series
from goffish.graph.labels import vertex_dtype
from goffish.graph.parallel import thread_count
from goffish.kernels.subgraphs import SubgraphRows
from goffish.temporal import instance_kernels as kernels
from goffish.temporal.run import SeriesResult, moments

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note

#: Arcs of the largest template that is worked on in memory: they take some 20 bytes each.
MOST_ARCS = 50_000_000
#: The components of an instance of so few edges are found before a thread begins.
_FEW_ROWS = 100_000
#: The vertices that kernels number with 32 bits.
_MOST_VERTICES = 2**31 - 1

Flags = NDArray[np.bool_]
Integers = NDArray[np.integer[Any]]
#: From the flags of rows and vertices to a value for each vertex, and a figure of the instance.
Answer = Callable[[Flags, Flags], tuple[NDArray[Any], int]]


def fits(series: Series) -> bool:
    """Whether the template is small enough for the memory of one process."""
    info = series.graph.info
    return sum(info.arcs) <= MOST_ARCS and info.num_vertices <= _MOST_VERTICES


def components_of_instances(
    series: Series, edge_exists: str | None, vertex_exists: str | None, **running: Any
) -> SeriesResult:
    """As `InstanceComponents`; the timesteps report the number of ``components``.

    Parameters
    ----------
    edge_exists, vertex_exists : str, optional
        Boolean attributes; ``None`` if all edges, or vertices, exist in every instance.
    **running
        ``start``, ``end``, ``side_by_side`` (instances at a time; default: all processors) and ``note``.
    """
    template = _Template(series, edge_exists, vertex_exists)
    first, second = template.ends

    def answer(keep: Flags, alive: Flags) -> tuple[NDArray[Any], int]:
        root = np.empty(alive.size, first.dtype)
        kernels.whole_components(first, second, keep, alive, root)
        return root, int(np.count_nonzero(alive & (root == np.arange(root.size, dtype=root.dtype))))

    return _run(template, answer, "component", "components", worth_threads=first.size > _FEW_ROWS, **running)


def ranks_of_instances(
    series: Series,
    damping: float,
    iterations: int,
    tolerance: float,
    edge_exists: str | None,
    vertex_exists: str | None,
    **running: Any,
) -> SeriesResult:
    """As `InstancePageRank`, after the same number of ``updates``, which the timesteps report.

    Every rank is summed in the order of the vertices, so the answer does not depend on threads and partitions.
    See `components_of_instances` for the other parameters.
    """
    template = _Template(series, edge_exists, vertex_exists)
    arcs = template.incoming

    def answer(keep: Flags, alive: Flags) -> tuple[NDArray[Any], int]:
        rank = np.empty(alive.size)
        return rank, kernels.whole_ranks(*arcs, keep, alive, damping, iterations, tolerance, rank)

    return _run(template, answer, "rank", "updates", **running)


@dataclass(frozen=True, eq=False)
class _Template:
    """The topology under the vertex numbers as read, and where the flags of an instance are.

    The rows of flags are those of `goffish.gofs.series.Elements`, partition after partition.
    """

    series: Series
    edge_exists: str | None
    vertex_exists: str | None

    def __post_init__(self) -> None:
        for place, name in (("edge", self.edge_exists), ("vertex", self.vertex_exists)):
            if name is not None:
                self.series.schema[f"{place}.{name}"]

    @cached_property
    def labels(self) -> pa.Array:
        """By number."""
        return self.series.graph.labels_by_number()

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Vertices in the order of their labels."""
        numbers: NDArray[np.int64] = np.asarray(pc.sort_indices(self.labels)).astype(np.int64)
        return numbers

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """First row of each partition, and the number of all."""
        counts = [self.series.elements(p).count("edge") for p in range(self.series.num_partitions)]
        return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))

    @cached_property
    def _arcs(self) -> tuple[NDArray[np.int64], Integers, Integers]:
        """Row pointers, target and row of each arc."""
        graph = self.series.graph
        original, parts = graph.vertex_ids(), graph.slices()
        degrees = np.zeros(graph.num_vertices + 1, np.int64)
        for part in parts:
            degrees[part.vertex_ids.astype(np.int64) + 1] = np.diff(part.out_arcs.offsets)
        offsets = np.cumsum(degrees)
        targets = np.empty(int(offsets[-1]), np.int32)
        rows = np.empty(targets.size, vertex_dtype(int(self.row_starts[-1])))
        for part in parts:
            arcs = part.out_arcs
            kernels.place_arcs(
                SubgraphRows(part.subgraph_offsets, arcs.remote_offsets, arcs.offsets, arcs.targets),
                arcs.remote_vertex, part.vertex_start, original, part.vertex_ids,
                self.series.elements(part.partition).edge_row, self.row_starts[part.partition], offsets, targets, rows,
            )  # fmt: skip
        return offsets, targets, rows

    @cached_property
    def ends(self) -> tuple[Integers, Integers]:
        """Both ends of the edge of each row, -1 where another partition has them."""
        first = np.full(int(self.row_starts[-1]), -1, np.int32)
        second = np.full(first.size, -1, np.int32)
        kernels.ends_of_rows(*self._arcs, first, second)
        return first, second

    @cached_property
    def incoming(self) -> tuple[NDArray[np.int64], Integers, Integers]:
        """Row pointers by target, source and row of each arc."""
        offsets, targets, rows = self._arcs
        found = np.zeros(offsets.size, np.int64), np.empty_like(targets), np.empty_like(rows)
        kernels.reverse_arcs(offsets, targets, rows, *found)
        return found

    def flags(self, instance: int) -> tuple[Flags, Flags]:
        """Which rows, and which vertices, exist in an instance."""
        partitions = range(self.series.num_partitions)
        if self.edge_exists is None:
            keep = np.ones(int(self.row_starts[-1]), np.bool_)
        else:
            name = f"edge.{self.edge_exists}"
            pieces = [np.asarray(self.series.values(p, instance, name), np.bool_) for p in partitions]
            keep = np.concatenate(pieces)
        alive = np.ones(self.series.graph.num_vertices, np.bool_)
        if self.vertex_exists is not None:
            for p in partitions:
                values = np.asarray(self.series.values(p, instance, f"vertex.{self.vertex_exists}"), np.bool_)
                alive[self.series.graph.slice(p).vertex_ids] = values
        return keep, alive


def _run(
    template: _Template,
    answer: Answer,
    name: str,
    figure: str,
    *,
    start: Any = None,
    end: Any = None,
    side_by_side: int | None = None,
    worth_threads: bool = True,
    note: Note | None = None,
) -> SeriesResult:
    """Answer instance by instance, several of them side by side, and put the rows together."""
    series, order = template.series, template.order
    before, numbers, labels = series.counters(), list(series.between(start, end)), template.labels

    threads = thread_count(side_by_side)
    threads = threads if worth_threads else 1

    def one(instance: int) -> tuple[Integers | None, NDArray[Any], int]:
        keep, alive = template.flags(instance)
        values, counted = answer(keep, alive)
        there = None if template.vertex_exists is None else order[alive[order]]
        return there, values[order if there is None else there], counted

    found = []
    with ThreadPoolExecutor(threads) as pool:
        for at, each in enumerate(map(one, numbers) if threads == 1 else pool.map(one, numbers)):
            found.append(each)
            if note is not None:
                note(f"{at + 1:,} of {len(numbers):,} instances")
    values = np.concatenate([each[1] for each in found]) if found else np.empty(0, np.int64)
    sizes = [each[1].size for each in found]
    sorted_labels = labels.take(pa.array(order))
    vertices = [sorted_labels if each[0] is None else labels.take(pa.array(each[0])) for each in found]
    table = pa.table({
        "timestep": np.repeat(np.array(numbers, np.int64), sizes),
        "vertex": pa.chunked_array(vertices, labels.type),
        name: labels.take(pa.array(values)) if name == "component" else pa.array(values, pa.float64()),
    })  # fmt: skip
    timesteps = pa.table({
        "timestep": pa.array(numbers, pa.int64()),
        "start": moments(series.starts[numbers], series.unit),
        "end": moments(series.ends[numbers], series.unit),
        figure: pa.array([each[2] for each in found], pa.int64()),
    })  # fmt: skip
    summary = {"timesteps": len(numbers), figure: sum(each[2] for each in found)}
    return SeriesResult(name, table, summary, None, timesteps, series.counters() - before)
