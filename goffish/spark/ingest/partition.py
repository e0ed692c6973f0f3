"""Who owns which vertex: METIS on the driver while it fits there, Fennel in Spark's tasks beyond.

The distributed partitioner is Fennel in several passes (Tsourakakis et al., WSDM 2014; further passes: Nishimura and
Ugander, KDD 2013), each of which runs in a few waves: a wave places its share of the vertices, in blocks side by side,
by where all neighbors are after the wave before. The blocks are random samples of the vertices, so that a block that
keeps its own balance keeps that of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.graph import Graph, from_edges
from goffish.graph.labels import vertex_dtype
from goffish.partition import assign, kernels
from goffish.spark.ingest.labels import Vertices
from goffish.spark.ingest.slices import find_all_pieces
from goffish.spark.ingest.spec import IngestSpec
from goffish.spark.ingest.work import WorkFolder
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

_BLOCKS = "block int, vertices binary, offsets binary, targets binary, known binary"
_PLACED = pa.schema([("vertices", pa.binary()), ("owner", pa.binary())])


def choose_method(spec: IngestSpec, edges: int) -> str:
    """``metis`` or ``fennel``; ``auto`` takes METIS up to the limit."""
    rules = spec.partition
    if rules.method != "auto":
        return rules.method
    return "metis" if edges <= rules.metis_limit else "fennel"


def place_vertices(
    work: WorkFolder, edges: DataFrame, vertices: Vertices, count: int, spec: IngestSpec
) -> tuple[Places, dict[str, Any]]:
    """Where every vertex goes, and figures of the partitioning.

    `edges` has the columns ``u`` and ``v``, `count` rows. The figures hold the edge cut of METIS where another method
    was chosen and METIS can be afforded beside it.
    """
    parts, spark = spec.partition.parts, work.spark
    if choose_method(spec, count) == "metis":

        def place() -> DataFrame:
            graph = _collect(edges, vertices.size, spec)
            return spark.createDataFrame(find_all_pieces(graph, _metis(graph, spec), parts))

        return Places.of(work.step("places", place)), {}
    figures: dict[str, Any] = {}

    def decide() -> DataFrame:
        owner = _fennel(work, edges, vertices.size, spec)
        if count <= spec.partition.metis_limit and parts > 1:
            graph = _collect(edges, vertices.size, spec)
            other = _metis(graph, spec)
            source, target, _, _ = graph.edge_columns()
            figures["metis_edge_cut"] = int(np.count_nonzero(other[source] != other[target]))
        return spark.createDataFrame(pa.table({"number": np.arange(owner.size), "owner": owner}))

    owners = work.step("owners", decide)
    kept = work.values("figures", lambda: figures)

    def place_there() -> DataFrame:
        found = owners.toArrow()
        owner = np.empty(found.num_rows, np.int32)
        owner[found.column("number").to_numpy()] = found.column("owner").to_numpy()
        return make_places(edges, work.share(owner), vertices, parts)

    return Places.of(work.step("places", place_there)), kept


def method_options(spec: IngestSpec, method: str) -> dict[str, Any]:
    """The options that differ from the method's defaults."""
    rules = spec.partition
    options: dict[str, Any] = {"seed": rules.seed} if rules.seed and method == "metis" else {}
    return options if rules.imbalance is None else {**options, "imbalance": rules.imbalance}


def _collect(edges: DataFrame, n: int, spec: IngestSpec) -> Graph:
    kind = "int" if vertex_dtype(n) is np.int32 else "bigint"
    pairs = edges.select(edges["u"].cast(kind), edges["v"].cast(kind)).toArrow()
    source, target = (pairs.column(at).to_numpy() for at in (0, 1))
    return from_edges(source, target, directed=spec.directed, labels=np.arange(n), self_loops="keep", parallel="keep")


def _metis(graph: Graph, spec: IngestSpec) -> NDArray[np.int32]:
    return assign(graph, spec.partition.parts, "metis", **method_options(spec, "metis"))


def _fennel(work: WorkFolder, edges: DataFrame, n: int, spec: IngestSpec) -> NDArray[np.int32]:
    from pyspark.sql import functions as F

    parts = spec.partition.parts
    pairs = edges.select("u", "v").where("u <> v")
    if spec.directed or spec.clean.duplicates == "keep":
        pairs = pairs.select(F.least("u", "v").alias("u"), F.greatest("u", "v").alias("v")).distinct()
    links = pairs.count()
    blocks = max(1, min(_MOST_BLOCKS, 2 * links // _BLOCK_ARCS))
    arcs = pairs.union(pairs.select("v", "u"))
    block = F.pmod(F.xxhash64("u", F.lit(spec.partition.seed)), F.lit(blocks)).cast("int")
    gathered = arcs.withColumn("block", block).groupBy("block")
    table = work.step("blocks", lambda: gathered.applyInArrow(_gather, _BLOCKS))
    waves = min(_WAVES, blocks)
    # Neighboring numbers often belong together: labels are sorted, and many come from a crawl or a grid.
    owner = (np.arange(n) * parts // max(n, 1)).astype(np.int32)
    if parts == 1:
        return owner
    context = work.spark.sparkContext
    for _ in range(_PASSES):
        moved = 0
        for wave in range(waves):
            shared = context.broadcast(owner)
            place = _placer(shared, n, parts, links, spec.partition.imbalance or _IMBALANCE)
            chosen = table.where(F.pmod("block", F.lit(waves)) == wave).repartition(-(-blocks // waves), "block")
            placed = chosen.mapInArrow(place, "vertices binary, owner binary").toArrow()
            owner = owner.copy()
            for vertices, found in zip(placed["vertices"], placed["owner"], strict=True):
                at, new = np.frombuffer(vertices.as_buffer(), np.int64), np.frombuffer(found.as_buffer(), np.int32)
                moved += int(np.count_nonzero(owner[at] != new))
                owner[at] = new
            shared.destroy()
        if moved <= _SETTLED * n:
            break
    return owner


def _gather(table: pa.Table) -> pa.Table:
    """The rows of one block as compressed rows over local numbers: its own vertices first, then their neighbors."""
    source, target = (table.column(name).to_numpy() for name in ("u", "v"))
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    own, degrees = np.unique(source, return_counts=True)
    foreign = np.setdiff1d(target, own)
    at = np.searchsorted(own, target)
    inside = own[np.minimum(at, own.size - 1)] == target
    local = np.where(inside, at, own.size + np.searchsorted(foreign, target)).astype(np.int32)
    offsets = np.concatenate(([0], np.cumsum(degrees)))
    known = np.concatenate((own, foreign))
    values = [own.astype(np.int64), offsets.astype(np.int64), local, known.astype(np.int64)]
    columns = [pa.array([value.tobytes()], pa.binary()) for value in values]
    names = ["block", "vertices", "offsets", "targets", "known"]
    return pa.Table.from_arrays([table.column("block").slice(0, 1), *columns], names=names)


def _placer(
    shared: Any, n: int, parts: int, links: int, imbalance: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        everywhere = shared.value
        for batch in batches:
            for row in range(batch.num_rows):
                arrays = [batch.column(name)[row].as_buffer() for name in ("vertices", "offsets", "known")]
                own, offsets, known = (np.frombuffer(array, np.int64) for array in arrays)
                targets = np.frombuffer(batch.column("targets")[row].as_buffer(), np.int32)
                owner = everywhere[known]
                _place_block(offsets, targets, owner, own.size, n, parts, links, imbalance)
                values = [own.tobytes(), owner[: own.size].tobytes()]
                yield pa.RecordBatch.from_arrays([pa.array([v], pa.binary()) for v in values], schema=_PLACED)

    return place


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
