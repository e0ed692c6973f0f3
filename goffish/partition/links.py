"""What the partitioners see of a graph: its links, undirected, simple, with weights or without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph import Graph
from goffish.partition import kernels

_NO_WEIGHTS = np.empty(0, np.float64)


class Links(NamedTuple):
    """Sorted symmetric rows without self-loops and repetitions.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
    targets : int32 or int64, shape (arcs,)
    weights : float64, shape (arcs,), or None
    """

    offsets: NDArray[np.int64]
    targets: NDArray[np.integer[Any]]
    weights: NDArray[np.float64] | None


def links(graph: Graph, weights: NDArray[np.float64] | None = None) -> Links:
    """Forget directions, drop self-loops, merge parallel arcs and add up their `weights` (one per arc of
    `graph`).

    Without weights a link counts once, however many arcs it stands for. A graph that is undirected and simple
    already is not copied.
    """
    bare = replace(graph, weights=weights, labels=None, vertex_attributes=None, edge_attributes=None, edge_of_arc=None)
    if graph.directed:
        bare = bare.to_undirected(parallel="sum")
    arcs = int(kernels.count_simple(bare.offsets, bare.targets))
    if arcs == bare.num_arcs:
        return Links(bare.offsets, bare.targets, bare.weights)
    weighted = bare.weights is not None
    simple = Links(
        np.zeros_like(bare.offsets),
        np.empty(arcs, bare.targets.dtype),
        np.empty(arcs, np.float64) if weighted else None,
    )
    kernels.simple_rows(
        bare.offsets, bare.targets, _NO_WEIGHTS if bare.weights is None else bare.weights, weighted,
        simple.offsets, simple.targets, _NO_WEIGHTS if simple.weights is None else simple.weights,
    )  # fmt: skip
    return simple


def whole_numbers(weights: NDArray[Any], limit: int, smallest: int) -> NDArray[np.int64]:
    """Weights as the integers that METIS requires, the same on every machine.

    Whole numbers between `smallest` and 2^30 stay as they are, provided that their sum fits. Otherwise all
    are scaled so that the largest becomes 2^30 (less if the sum would pass `limit`), rounded, and raised to
    `smallest` where they fall below.
    """
    if weights.size == 0 or not weights.any():
        return np.ones(weights.size, np.int64)
    whole = weights.dtype.kind in "iu" or bool((weights == np.floor(weights)).all())
    if whole and weights.min() >= smallest and weights.max() <= 2**30:
        total = weights.sum(dtype=np.float64)
        if total <= limit:
            return weights.astype(np.int64)
    ratio = weights / weights.max()
    scale = min(2**30, limit / 2 / ratio.sum())
    rounded: NDArray[np.int64] = np.maximum(np.rint(ratio * scale).astype(np.int64), smallest)
    return rounded


def check_numbers(name: str, values: NDArray[Any], size: int, of: str) -> NDArray[Any]:
    """An array option: right length, finite, not negative, not all zero."""
    if values.size != size:
        raise InputError(f"{name}: got {values.size} numbers, expected one for each of the {size} {of}")
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        raise InputError(f"{name}: position {bad[0]} holds {values[bad[0]]}; numbers must be finite and non-negative")
    if size and not values.any():
        raise InputError(f"{name}: all numbers are zero; at least one must be positive")
    return values
