"""Where a search for communities starts: an earlier division, and vertices that must stay where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities.divisions import match_ids
from goffish.algorithms.communities.named import Ids, group_codes, group_names, named_division
from goffish.errors import InputError
from goffish.graph import Graph


def starting_point(graph: Graph, initial: Any, fixed: Any) -> tuple[Ids | None, NDArray[np.bool_] | None]:
    """Starting communities, numbered from 0, and which vertices are fixed.

    Parameters
    ----------
    graph : Graph
    initial
        An earlier division, as `goffish.algorithms.communities.named.named_division` takes it, or a result with a
        ``table``. Vertices that it does not name, and those without a neighbour, start alone.
    fixed
        Labels of vertices that keep their community of `initial`; or a mapping from label to a group: vertices of one
        group stay together, those of different groups apart.

    Raises
    ------
    InputError
        A vertex that the graph does not have; a fixed vertex without a community; an `initial` and a mapping `fixed`
        that contradict each other.
    """
    if initial is None and fixed is None:
        return None, None
    n = graph.num_vertices
    start = np.full(n, -1, np.int64)
    if initial is not None:
        start = named_division(graph, getattr(initial, "table", initial), "initial")
        degree = graph.out_degrees + (np.bincount(graph.targets, minlength=n) if graph.directed else 0)
        start[degree == 0] = -1
    held = None
    if fixed is not None:
        labels = list(fixed)
        vertices = graph.find(labels) if labels else np.empty(0, np.int64)
        held = np.zeros(n, np.bool_)
        held[vertices] = True
        if isinstance(fixed, Mapping):
            groups = group_codes(list(fixed.values()), "fixed")
            if groups.size and groups.min() < 0:
                raise InputError("fixed: a group may not be null")
            # Held vertices form communities of their own: other vertices join them by moving.
            start[vertices] = int(start.max(initial=-1)) + 1 + groups
        elif vertices.size and start[vertices].min() < 0:
            lost = labels[int(np.flatnonzero(start[vertices] < 0)[0])]
            raise InputError(f"fixed: vertex {lost!r} has no community in initial; give a mapping from vertex to group")
    alone = start < 0
    start[alone] = int(start.max(initial=-1)) + 1 + np.arange(int(alone.sum()))
    _, start = np.unique(start, return_inverse=True)
    return start.astype(np.int64), held


def kept_ids(graph: Graph, initial: Any, membership: Ids) -> Ids:
    """What communities are called after a warm start, int64, shape (c,).

    Each takes over the name of the old community with which it shares most vertices (`match_ids`), the others get
    numbers above all old ones. Old names that are not whole numbers of at least 0 are replaced by their order of
    appearance in `initial`.
    """
    given = getattr(initial, "table", initial)
    old, names = named_division(graph, given, "initial"), group_names(given, "initial")
    if names is not None:
        old = np.where(old < 0, -1, names[old]) if names.size else old
    ids = np.empty(int(membership.max(initial=-1)) + 1, np.int64)
    ids[membership] = match_ids(old, membership)
    return ids
