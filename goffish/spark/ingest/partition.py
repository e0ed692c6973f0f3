"""Who owns which vertex: on the driver while the graph fits there, by Fennel in Spark's tasks beyond.

The distributed partitioner is Fennel in several passes (Tsourakakis et al., WSDM 2014; further passes: Nishimura and
Ugander, KDD 2013), each of which runs in a few waves: a wave places its share of the vertices, in blocks side by side,
by where all neighbors are after the wave before. The blocks are random samples of the vertices, so that a block that
keeps its own balance keeps that of the whole. A block is a file of the working folder, which tasks map: what moves
between Spark and Python in a wave is the owners of its vertices.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.gofs.files import open_folder
from goffish.gofs.slices import distinct
from goffish.gopher.spark.tasks import forget_archives
from goffish.graph import Graph, from_edges
from goffish.graph.labels import vertex_dtype
from goffish.partition import assign, kernels
from goffish.spark.ingest.blocks import Sent, exchange
from goffish.spark.ingest.edges import Edges
from goffish.spark.ingest.labels import Vertices
from goffish.spark.ingest.slices import find_all_pieces
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.stored import Stored
from goffish.spark.ingest.work import Shared, WorkFolder
from goffish.spark.ingest.write import Places, make_places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Arcs of one block, which fixes the number of blocks: the answer must not depend on the cluster.
_BLOCK_ARCS = 1 << 20
_MOST_BLOCKS = 4096
_WAVES = 4
_PASSES = 10
#: The passes end when fewer vertices than this share have moved.
_SETTLED = 0.005
_GAMMA, _IMBALANCE = 1.5, 1.1
#: Edges up to which METIS runs beside another method, to compare the cuts.
_COMPARED = 1 << 20

_BLOCKS = "block int, name string, vertices binary"
_PLACED = pa.schema([("block", pa.int64()), ("owner", pa.binary())])


def choose_method(spec: IngestSpec, edges: int) -> str:
    """``metis`` or ``fennel``; ``auto`` takes METIS up to the limit."""
    rules = spec.partition
    if rules.method != "auto":
        return rules.method
    return "metis" if edges <= rules.metis_limit else "fennel"


def place_vertices(
    work: WorkFolder, edges: Edges, vertices: Vertices, spec: IngestSpec
) -> tuple[Places, dict[str, Any]]:
    """Where every vertex goes, and figures of the partitioning.

    The figures hold the edge cut of METIS where another method was chosen and the graph is small.
    """
    count = edges.size
    parts, method = spec.partition.parts, choose_method(spec, count)
    if method == "metis" or count <= spec.partition.metis_limit:

        def place() -> pa.Table:
            graph, figures = _collect(edges.table, vertices.size, spec), {}
            if method != "metis" and count <= _COMPARED and parts > 1:
                other = assign(graph, parts, "metis", **method_options(spec, "metis"))
                source, target, _, _ = graph.edge_columns()
                figures["metis_edge_cut"] = int(np.count_nonzero(other[source] != other[target]))
            work.values("figures", lambda: figures)
            owner = assign(graph, parts, method, **method_options(spec, method))
            return find_all_pieces(graph, owner, parts)

        return Places.of(work.table("places", place)), work.values("figures", dict)

    def place_there() -> DataFrame:
        owner = work.table("owners", lambda: pa.table({"owner": _fennel(work, edges, vertices.size, spec)}))
        return make_places(work.spark, edges.table, work.share(owner.column("owner").to_numpy()), vertices, parts)

    return Places.of(work.step("places", place_there).collected()), {}


def method_options(spec: IngestSpec, method: str) -> dict[str, Any]:
    """The options that differ from the method's defaults."""
    rules = spec.partition
    options: dict[str, Any] = {"passes": _PASSES} if method == "fennel" else {"seed": rules.seed} if rules.seed else {}
    return options if rules.imbalance is None else {**options, "imbalance": rules.imbalance}


def _collect(edges: Stored, n: int, spec: IngestSpec) -> Graph:
    source, target = (np.empty(edges.size, vertex_dtype(n)) for _ in range(2))
    for number, start in enumerate(edges.starts.tolist()):
        pairs = edges.select("u", "v").table(number)
        for column, name in ((source, "u"), (target, "v")):
            column[start : start + pairs.num_rows] = pairs.column(name).to_numpy()
    return from_edges(source, target, directed=spec.directed, labels=np.arange(n), self_loops="keep", parallel="keep")


def _fennel(work: WorkFolder, edges: Edges, n: int, spec: IngestSpec) -> NDArray[np.int32]:
    parts = spec.partition.parts
    pairs: Stored | DataFrame = edges.table.select("u", "v")
    links = edges.size - edges.loops
    if spec.directed or spec.clean.duplicates == "keep":
        ends = edges.table.select("u", "v").frame(work.spark).where("u <> v")
        pairs = ends.selectExpr("least(u, v) AS u", "greatest(u, v) AS v").distinct()
        links = pairs.count()
    # Neighboring numbers often belong together: labels are sorted, and many come from a crawl or a grid.
    owner = (np.arange(n) * parts // max(n, 1)).astype(np.int32)
    if parts == 1 or not links:
        return owner
    count = max(1, min(_MOST_BLOCKS, 2 * links // _BLOCK_ARCS))
    chosen = _Blocks(count, spec.partition.seed, work.place)
    made = work.step("blocks", lambda: exchange(work.spark, [(pairs, chosen)], count, chosen.gather, _BLOCKS))
    blocks = made.collected()
    numbers = blocks.column("block").to_pylist()
    names = dict(zip(numbers, blocks.column("name").to_pylist(), strict=True))
    own = {
        number: np.frombuffer(value.as_buffer(), np.int64)
        for number, value in zip(numbers, blocks.column("vertices"), strict=True)
    }
    waves = min(_WAVES, count)
    for _ in range(_PASSES):
        moved = 0
        for wave in range(waves):
            shared = work.share(owner)
            place = _Place(work.place, names, shared, n, parts, links, spec.partition.imbalance or _IMBALANCE)
            rows = work.spark.range(wave, count, waves, -(-(count - wave) // waves))
            placed = rows.mapInArrow(place, "block bigint, owner binary").toArrow()
            work.forget(shared)
            for block, value in zip(placed.column("block").to_pylist(), placed.column("owner"), strict=True):
                found = np.frombuffer(value.as_buffer(), np.int32)
                moved += int(np.count_nonzero(owner[own[block]] != found))
                owner[own[block]] = found
        if moved <= _SETTLED * n:
            break
    return owner


@dataclass(frozen=True)
class _Blocks:
    """Sends pairs to the blocks of both ends, and writes the neighbors of the vertices of each block.

    Attributes
    ----------
    place : str
        The working folder.
    """

    count: int
    seed: int
    place: str

    def __call__(self, pairs: pa.Table) -> Sent:
        pairs = pairs.filter(pc.not_equal(pairs.column("u"), pairs.column("v")))
        u, v = (self._of(pairs.column(name).to_numpy()) for name in "uv")
        apart = np.flatnonzero(u != v)
        return Sent(pairs, np.concatenate((np.arange(u.size), apart)), np.concatenate((u, v[apart])))

    def _of(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Block of each vertex, from a hash (the finalizer of SplitMix64)."""
        mixed = vertices.astype(np.uint64) + np.uint64((self.seed + 1) * 0x9E3779B97F4A7C15 % (1 << 64))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(self.count)).astype(np.int64)

    def gather(self, block: int, tables: Sequence[pa.Table | None]) -> pa.Table:
        """Write the rows of one block: local numbers, those of its vertices first, then those of their neighbors."""
        (pairs,) = tables
        assert pairs is not None
        u, v = (pairs.column(name).to_numpy() for name in "uv")
        source, target = np.concatenate((u, v)), np.concatenate((v, u))
        here = self._of(source) == block
        source, target = source[here], target[here]
        order = np.lexsort((target, source))
        source, target = source[order], target[order]
        own, degrees = np.unique(source, return_counts=True)
        inside = self._of(target) == block  # every vertex of the block that is a target is a source as well
        foreign = distinct(target[~inside])
        local = np.empty(target.size, np.int32)
        local[inside] = np.searchsorted(own, target[inside])
        local[~inside] = own.size + np.searchsorted(foreign, target[~inside])
        offsets = np.concatenate(([0], np.cumsum(degrees)))
        arrays = {"offsets": offsets, "targets": local, "known": np.concatenate((own, foreign))}
        sink = pa.BufferOutputStream()
        table = pa.table({name: pa.array([array.tobytes()], pa.large_binary()) for name, array in arrays.items()})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        name = f"fennel.{block}.{uuid.uuid4().hex[:12]}"
        open_folder(self.place).write(name, sink.getvalue())
        return pa.table({
            "block": pa.array([block], pa.int32()), "name": [name], "vertices": pa.array([own.tobytes()], pa.binary())
        })  # fmt: skip


@dataclass(frozen=True)
class _Place:
    """One pass of Fennel over some blocks."""

    place: str
    names: dict[int, str]
    owner: Shared
    vertices: int
    parts: int
    links: int
    imbalance: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            folder = open_folder(self.place)
            for batch in batches:
                for block in batch.column(0).to_pylist():
                    arrays = pa.ipc.open_file(folder.read(self.names[block])).read_all()
                    offsets, known = (
                        np.frombuffer(arrays[name][0].as_buffer(), np.int64) for name in ("offsets", "known")
                    )
                    targets = np.frombuffer(arrays["targets"][0].as_buffer(), np.int32)
                    owner, size = self.owner.value[known], offsets.size - 1
                    _place_block(offsets, targets, owner, size, self.vertices, self.parts, self.links, self.imbalance)
                    columns = [pa.array([block]), pa.array([owner[:size].tobytes()], pa.binary())]
                    yield pa.RecordBatch.from_arrays(columns, schema=_PLACED)
        finally:
            forget_archives()


def _place_block(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    owner: NDArray[np.int32],
    size: int,
    n: int,
    parts: int,
    links: int,
    imbalance: float,
) -> None:
    """One pass of Fennel over a block; loads are those of the block, scaled to the whole graph in the penalty."""
    capacity = max(int(min(imbalance * size / parts, size)), ceil(size / parts), 1)
    alpha = links * float(parts) ** (_GAMMA - 1) / float(n) ** _GAMMA
    load = np.arange(capacity + 1, dtype=np.float64) * (n / size)
    penalty = alpha * _GAMMA * load ** (_GAMMA - 1)
    loads, counts = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    lightest = np.empty(4 << (parts - 1).bit_length(), np.int64)
    kernels.stream(offsets, targets, np.arange(size), False, penalty, capacity, owner, loads, counts, lightest)
