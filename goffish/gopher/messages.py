"""Messages as columns: one structured array per batch, combined and grouped without touching single messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from goffish.errors import InputError
from goffish.gopher import kernels

#: Value of the ``vertex`` column of a message that is addressed to a whole subgraph.
NO_VERTEX = -1

Batch: TypeAlias = np.ndarray[Any, Any]


def message_dtype(payload: Mapping[str, DTypeLike]) -> np.dtype[np.void]:
    """Structured type of a message: target subgraph, target vertex (or -1), then the payload.

    A negative target subgraph ``~p`` addresses all subgraphs of partition p.
    """
    for name, kind in payload.items():
        if name in ("subgraph", "vertex"):
            raise InputError(f"message column {name!r} is reserved for the address of the message")
        try:
            numeric = np.dtype(kind).kind in "biuf"
        except TypeError:
            numeric = False
        if not numeric:
            raise InputError(f"message column {name!r} has type {kind!r}; use numbers, not Python objects")
    return np.dtype([("subgraph", np.int64), ("vertex", np.int64), *((n, np.dtype(k)) for n, k in payload.items())])


def make_batch(dtype: np.dtype[np.void], subgraph: Any, vertex: Any, payload: Mapping[str, Any]) -> Batch:
    """Broadcast addresses and payload columns into one batch."""
    expected = set(dtype.names or ()) - {"subgraph", "vertex"}
    if set(payload) != expected:
        raise InputError(f"a message requires the payload columns {sorted(expected)}, got {sorted(payload)}")
    shape = np.broadcast_shapes(np.shape(subgraph), np.shape(vertex), *(np.shape(v) for v in payload.values()))
    if len(shape) > 1:
        raise InputError(f"message columns must be scalars or one-dimensional, got shape {shape}")
    batch = np.empty(shape or (1,), dtype)
    batch["subgraph"], batch["vertex"] = subgraph, vertex
    for name, values in payload.items():
        if not np.can_cast(np.asarray(values).dtype, dtype[name], "same_kind"):
            raise InputError(f"message column {name!r} is {dtype[name]}, got {np.asarray(values).dtype}")
        batch[name] = values
    return batch


def concatenate(batches: Sequence[Batch], dtype: np.dtype[np.void]) -> Batch:
    """All batches after one another; a single one itself."""
    filled = [b for b in batches if b.size]
    return filled[0] if len(filled) == 1 else _joined(filled, dtype)


def _joined(batches: Sequence[Batch], dtype: np.dtype[np.void]) -> Batch:
    """A new batch of all rows; copied as bytes, several times as fast as numpy copies structured rows."""
    out = np.empty(sum(b.size for b in batches), dtype)
    into, at = _bytes(out).ravel(), 0
    for batch in batches:
        rows = _bytes(batch).ravel()
        into[at : at + rows.size] = rows
        at += rows.size
    return out


def _bytes(batch: Batch) -> NDArray[np.uint8]:
    """The rows of a batch as bytes, shape (messages, item size)."""
    return np.ascontiguousarray(batch).view(np.uint8).reshape(batch.size, batch.dtype.itemsize)


def combine(batch: Batch, how: str | None) -> Batch:
    """Merge the messages to each target (docs/specs/engine.md, section 4.3: pack and keep the best value per vertex).

    The result is in order of each target's first message, so it depends on the order of `batch` only.
    """
    if how is None or batch.size < 2:
        return batch
    names = [n for n in batch.dtype.names or () if n not in ("subgraph", "vertex")]
    group = np.empty(batch.size, np.int64)
    first = kernels.hash_groups(np.ascontiguousarray(batch["subgraph"]), np.ascontiguousarray(batch["vertex"]), group)
    if first.size == batch.size:
        return batch
    if how != "sum":
        kernels.best_rows(group, np.ascontiguousarray(batch[names[0]]), first, how == "max")
    out: Batch = batch.take(first)
    for name in names if how == "sum" else ():
        if batch[name].dtype == np.float64:
            out[name] = np.bincount(group, batch[name], first.size)
        else:
            total = np.zeros(first.size, batch[name].dtype)
            np.add.at(total, group, batch[name])
            out[name] = total
    return out


def split_by_partition(
    batches: Sequence[Batch], subgraph_starts: NDArray[np.int64], dtype: np.dtype[np.void]
) -> list[Batch]:
    """One batch per target partition, each in the order of `batches`; parts of a single one whose targets ascend."""
    parts = subgraph_starts.size - 1
    filled = [b for b in batches if b.size]
    counts = np.zeros(parts + 1, np.int64)
    keys = [np.empty(b.size, np.int32) for b in filled]
    last = 0
    for batch, found in zip(filled, keys, strict=True):
        last = kernels.partition_keys(batch["subgraph"], subgraph_starts, found, counts, last)
    offsets = np.cumsum(counts)
    sorted_ = concatenate(filled, dtype) if last >= 0 else _scattered(filled, keys, offsets, dtype)
    return [sorted_[offsets[p] : offsets[p + 1]] for p in range(parts)]


def group_by_subgraph(
    batches: Sequence[Batch], first: int, subgraphs: int, dtype: np.dtype[np.void]
) -> tuple[Batch, NDArray[np.int64]]:
    """A new batch of the messages to each subgraph ``first … first + subgraphs - 1``, in their order; its offsets."""
    filled = [b for b in batches if b.size]
    counts = np.zeros(subgraphs + 1, np.int64)
    keys = [np.empty(b.size, np.int32) for b in filled]
    last = 0
    for batch, found in zip(filled, keys, strict=True):
        last = kernels.unit_keys(batch["subgraph"], first, found, counts, last)
        if last == -2:
            return group_by_subgraph([expand_broadcasts(b, first, subgraphs) for b in filled], first, subgraphs, dtype)
    offsets = np.cumsum(counts)
    return (_joined(filled, dtype) if last >= 0 else _scattered(filled, keys, offsets, dtype)), offsets


def _scattered(
    batches: Sequence[Batch], keys: Sequence[NDArray[np.int32]], offsets: NDArray[np.int64], dtype: np.dtype[np.void]
) -> Batch:
    """A new batch of all rows, grouped by their keys."""
    out = np.empty(int(offsets[-1]), dtype)
    cursor = offsets[:-1].copy()
    for batch, own in zip(batches, keys, strict=True):
        kernels.scatter_rows(_bytes(batch), own, cursor, _bytes(out))
    return out


def expand_broadcasts(batch: Batch, first: int, subgraphs: int) -> Batch:
    """Replace each partition-addressed message by one for every local subgraph, in place of the original."""
    broadcast = batch["subgraph"] < 0
    if not broadcast.any():
        return batch
    copies = np.where(broadcast, subgraphs, 1)
    out = np.repeat(batch, copies)
    starts = np.cumsum(copies) - copies
    inside = np.arange(out.size) - np.repeat(starts, copies)
    fanned = np.repeat(broadcast, copies)
    out["subgraph"][fanned] = first + inside[fanned]
    return out
