"""How a message spreads: where a meme has been seen, when, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.gopher import SubgraphBatch, per_remote, per_vertex
from goffish.temporal import front_kernels as kernels
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.step import BatchTimeStep


class MemeTracking(TimeSeriesProgram):
    """When each vertex is first reached by the contiguous spread of a meme (docs/specs/time-series.md, section 4.2).

    A vertex is reached in an instance in which it holds the meme, if it is a source of the first instance, or connected
    to a vertex that was reached before by edges through vertices which hold the meme in this same instance.

    Parameters
    ----------
    meme : str, int or bool
        What to look for; ``True`` where the attribute says whether the vertex holds the meme.
    memes : str
        Vertex attribute with what a vertex holds: one value, or a list of them.
    sources : sequence of labels, optional
        Holders from which the spread begins. Default: all vertices that hold the meme in the first instance.
    must_hold : bool
        A vertex spreads the meme only in instances in which it holds it, not afterwards.
    """

    pattern = "sequential"
    message = {}
    state = {"reached": per_vertex(np.int64, -1), "open": per_vertex(np.bool_), "probed": per_remote(np.int64, -1)}
    reports: ClassVar[Mapping[str, Any]] = {"reached": "sum"}
    nullable = ("timestep",)

    def __init__(
        self,
        meme: str | int | bool,
        memes: str = "memes",
        sources: Sequence[int | str] | None = None,
        must_hold: bool = False,
    ) -> None:
        self.meme, self.memes, self.must_hold = meme, memes, must_hold
        self.sources = None if sources is None else list(sources)
        self.values = (f"vertex.{memes}",)

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        step.vote_to_halt()
        holds = occurrences(batch.attribute(f"vertex.{self.memes}"), self.meme) > 0
        reached = batch["reached"]
        if step.timestep == step.moment.first:
            if step.number == 1:
                chosen = np.flatnonzero(holds if self.sources is None else holds & self._named(batch))
                reached[chosen], batch["open"][chosen] = step.timestep, True
            return
        if step.number == 1:
            roots = np.flatnonzero((reached >= 0) & batch["open"] & (holds | (not self.must_hold)))
        else:
            probed = np.unique(step.messages["vertex"])
            roots = probed[holds[probed] & (reached[probed] < 0)]
            reached[roots], batch["open"][roots] = step.timestep, True
        if not roots.size:
            return
        fresh = np.empty(batch.remote_vertex.size, np.int64)
        count = kernels.spread(
            batch.subgraph_offsets, batch.remote_offsets, batch.offsets, batch.targets, holds, roots, step.timestep,
            reached, batch["open"], batch["probed"], fresh,
        )  # fmt: skip
        rows = fresh[:count]
        step.send_to_vertex(batch.remote_subgraph[rows], batch.remote_vertex[rows])

    def _named(self, batch: SubgraphBatch) -> NDArray[np.bool_]:
        assert self.sources is not None
        found = np.zeros(batch.num_vertices, np.bool_)
        for label in self.sources:
            at = batch.find(label)
            if at >= 0:
                found[at] = True
        return found

    def end_of_timestep_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        step.report("reached", int((batch["reached"] == step.timestep).sum()))

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"timestep": sg["reached"]}


class HashtagAggregation(TimeSeriesProgram):
    """How often a hashtag occurs in each instance, its rate of change, and the total.

    See docs/specs/time-series.md, section 4.3.

    Subgraph 0 adds up, in two supersteps of the merge.

    Parameters
    ----------
    hashtag : str, int or bool
        What to count.
    memes : str
        Vertex attribute with what a vertex holds: one value, or a list of them, each of which counts.
    """

    pattern = "eventual"
    message = {"at": np.int64, "count": np.int64}
    emits: ClassVar[Mapping[str, Any]] = {"at": np.int64, "count": np.int64, "change": np.int64, "total": np.int64}
    emits_vertices = False

    def __init__(self, hashtag: str | int | bool, memes: str = "memes") -> None:
        self.hashtag, self.memes = hashtag, memes
        self.values = (f"vertex.{memes}",)

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        found = occurrences(batch.attribute(f"vertex.{self.memes}"), self.hashtag)
        counts = np.add.reduceat(found, batch.subgraph_offsets[:-1])
        step.send_to_merge(step.active, at=np.full(step.active.size, step.timestep), count=counts[step.active])
        step.vote_to_halt()

    def merge_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        step.vote_to_halt()
        sent = step.messages
        first, times = step.moment.first, step.moment.last - step.moment.first + 1
        at = sent["at"] - first
        if step.number == 1:
            total = np.bincount(at, sent["count"], times).astype(np.int64)
            seen = np.unique(at)
            step.send_to_subgraph(np.zeros(seen.size, np.int64), at=seen + first, count=total[seen])
        elif sent.size:
            total = np.bincount(at, sent["count"], times).astype(np.int64)
            steps = np.unique(at)
            count = total[steps]
            change = np.diff(count, prepend=count[:1])
            step.emit(at=steps + first, count=count, change=change, total=np.cumsum(count))

    def finish(self, table: pa.Table) -> pa.Table:
        """One row per timestep in which it occurs; the merge itself belongs to none."""
        return table.select(["at", "count", "change", "total"]).rename_columns(["timestep", "count", "change", "total"])


def occurrences(values: Any, wanted: str | int | bool) -> NDArray[np.int64]:
    """How often each vertex holds something: of one value each, or of a list of values each.

    Raises
    ------
    InputError
        The attribute is of a type that cannot hold it.
    """
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biu" or isinstance(wanted, str):
            raise InputError(f"{wanted!r} cannot occur in an attribute of type {values.dtype}")
        return np.asarray(values == wanted, np.int64)
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    listed = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    flat = column.flatten() if listed else column
    try:
        held = pc.fill_null(pc.equal(flat, pa.scalar(wanted)), False).to_numpy(zero_copy_only=False).astype(np.int64)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        raise InputError(f"{wanted!r} cannot occur in an attribute of type {column.type}") from None
    if not listed:
        return np.asarray(held, np.int64)
    owner = pc.list_parent_indices(column).to_numpy()
    return np.asarray(np.bincount(owner, held, len(column)), np.int64)
