"""Hierarchies of communities as maps from level to level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.communities import refine_kernels as kernels
from goffish.algorithms.communities.divisions import id_column
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.graph import Graph

Ids = NDArray[np.int64]


def compose(steps: Sequence[NDArray[np.integer[Any]]]) -> Ids:
    """Community on the last level of every vertex, int64, shape (n,)."""
    community = steps[0]
    for up in steps[1:]:
        community = up[community]
    return community.astype(np.int64, copy=False)


def checked_steps(source: Graph | PartitionedGraph, steps: Sequence[ArrayLike]) -> tuple[Ids, ...]:
    """Every level as an int64 column of the right length, with ids from 0 and without a gap.

    Raises
    ------
    InputError
        Naming the level.
    """
    below = source.num_vertices
    checked = []
    for level, given in enumerate(steps, 1):
        column = id_column(given, below, f"steps, level {level}")
        used = np.bincount(column, minlength=0) if not column.size or column.min() >= 0 else np.zeros(1)
        if not used.all():
            raise InputError(f"steps, level {level}: ids must be consecutive, from 0")
        below = used.size
        checked.append(column)
    return tuple(checked)


def nested_maps(steps: Sequence[NDArray[np.integer[Any]]], membership: Ids) -> tuple[Ids, ...]:
    """The hierarchy with `membership` on top: below it, what each level of `steps` shares with the levels above.

    Returns
    -------
    tuple of int64 arrays, one per step
        Communities of every level numbered in order of their first vertex.
    """
    # Levels of `steps` are nested, so what one shares with all above it, it shares with the membership; and what is one
    # community on a level stays one further up, so that each level is found from the communities of the one below.
    maps: list[Ids] = []
    labels, upper = steps[0].astype(np.int64, copy=False), membership
    for step in steps[1:]:
        fine = meet(labels, upper)
        maps.append(fine)
        labels_of, upper_of = np.empty((2, int(fine.max(initial=-1)) + 1), np.int64)
        labels_of[fine], upper_of[fine] = labels, upper
        labels, upper = step[labels_of].astype(np.int64, copy=False), upper_of
    return (*maps, upper)


def meet(labels: Ids, upper: Ids) -> Ids:
    """The division whose communities are the common parts of those of two, numbered in order of their first vertex."""
    n = labels.size
    head = np.full(int(labels.max(initial=-1)) + 1, -1, np.int64)
    out = np.empty(n, np.int64)
    kernels.number_pairs(labels, upper, head, np.empty(n, np.int64), np.empty(n, np.int64), out)
    return out
