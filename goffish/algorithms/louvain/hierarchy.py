"""Hierarchies of communities as maps from level to level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.louvain import _refine_kernels as kernels
from goffish.algorithms.louvain.divisions import id_column
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
            raise InputError(f"steps, level {level}: ids must run from 0 without a gap")
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
    below: list[NDArray[np.integer[Any]]] = []
    for step in steps[:-1]:
        below.append(step if not below else step[below[-1]])
    divisions = [membership]
    for labels in reversed(below):
        divisions.append(meet(labels.astype(np.int64, copy=False), divisions[-1]))
    divisions.reverse()
    maps = [divisions[0]]
    for fine, coarse in pairwise(divisions):
        up = np.empty(int(fine.max(initial=-1)) + 1, np.int64)
        up[fine] = coarse
        maps.append(up)
    return tuple(maps)


def meet(labels: Ids, upper: Ids) -> Ids:
    """The division whose communities are the common parts of those of two, numbered in order of their first vertex."""
    n = labels.size
    head = np.full(int(labels.max(initial=-1)) + 1, -1, np.int64)
    out = np.empty(n, np.int64)
    kernels.number_pairs(labels, upper, head, np.empty(n, np.int64), np.empty(n, np.int64), out)
    return out
