"""Communities over time: which of one instance is which of the next, and what became of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Evolution:
    """Communities that keep their number from instance to instance.

    Attributes
    ----------
    members : pyarrow.Table
        ``timestep``, ``vertex``, ``community``: one row per vertex that is in a community of the instance.
    events : pyarrow.Table
        ``timestep``, ``event``, ``community``, ``other``, ``size``, ``overlap``. Events: "born"; "died" (size of the
        instance before); "continued", "grown" or "shrunk"; "split" (from `other`, which goes on, or ended in another);
        "merged" (into `other`). Overlap is the Jaccard index, null where there is nothing to compare.
    """

    members: pa.Table
    events: pa.Table


class _Pairs(NamedTuple):
    """Communities of two instances that overlap enough: their indices, and by how much."""

    before: Integers
    after: Integers
    overlap: NDArray[np.float64]


def community_evolution(instances: Iterable[tuple[Any, Any]], *, threshold: float = 0.3) -> Evolution:
    """Match the communities of successive instances by their overlap (Greene, Doyle & Cunningham, ASONAM 2010).

    Two communities match if the Jaccard index of their members reaches the threshold. Those that are each other's best
    match are the same community. A community whose best match before goes on in another one has split from it; one
    whose best match after is another one's has merged into that.

    Parameters
    ----------
    instances : iterable of (vertices, communities)
        Labels and the community of each in one instance, in the order of time; any numbers or texts, for that instance.
    threshold : float
        More than 0, at most 1.

    Raises
    ------
    InputError
        A threshold out of range, columns of different lengths, a vertex that is twice in an instance.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold={threshold}: must be greater than 0 and at most 1")
    members: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    before: tuple[Any, Integers, Integers] | None = None
    names, free = np.empty(0, np.int64), 0
    for timestep, (vertices, communities) in enumerate(instances):
        labels, index, count = _checked(timestep, vertices, communities)
        pairs = _Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        sizes = np.bincount(index, minlength=count)
        earlier = np.empty(0, np.int64)
        if before is not None:
            earlier = before[2]
            pairs = _overlaps(before, (labels, index, sizes), threshold)
        named, free, happened = _step(pairs, earlier, sizes, names, free)
        events += [{"timestep": timestep, **event} for event in happened]
        members.append({"timestep": np.full(index.size, timestep), "vertex": labels, "community": named[index]})
        before, names = (labels, index, sizes), named
    return Evolution(_members(members), pa.Table.from_pylist(events, schema=_EVENTS))


_EVENTS = pa.schema(
    {"timestep": pa.int64(), "event": pa.string(), "community": pa.int64(), "other": pa.int64(), "size": pa.int64(),
     "overlap": pa.float64()}
)  # fmt: skip


def _members(instances: list[dict[str, Any]]) -> pa.Table:
    if not instances:
        return pa.table({"timestep": pa.array([], pa.int64()), "vertex": pa.array([], pa.int64()),
                         "community": pa.array([], pa.int64())})  # fmt: skip
    return pa.concat_tables([pa.table(columns) for columns in instances], promote_options="permissive")


def _checked(timestep: int, vertices: Any, communities: Any) -> tuple[pa.Array, Integers, int]:
    """Labels, the index of each one's community (in the order of their names), and how many there are."""
    labels = vertices if isinstance(vertices, pa.Array) else pa.array(vertices)
    given = np.asarray(communities)
    if len(labels) != given.size:
        raise InputError(
            f"instance {timestep}: {len(labels)} vertices and {given.size} communities; expected one per vertex"
        )
    if len(labels.unique()) < len(labels):
        raise InputError(f"instance {timestep}: a vertex occurs twice")
    found, index = np.unique(given, return_inverse=True)
    return labels, index.astype(np.int64), found.size


def _overlaps(before: Any, after: Any, threshold: float) -> _Pairs:
    """Pairs of communities whose Jaccard index reaches the threshold."""
    import pyarrow.compute as pc

    at = np.full(len(after[0]), -1)
    if len(before[0]) and len(after[0]):
        at = pc.index_in(after[0], before[0].cast(after[0].type)).fill_null(-1).to_numpy(zero_copy_only=False)
    both = np.flatnonzero(at >= 0)
    width = max(1, after[2].size)
    keys, shared = np.unique(before[1][at[both]] * width + after[1][both], return_counts=True)
    one, other = np.divmod(keys, width)
    overlap = shared / (before[2][one] + after[2][other] - shared)
    enough = overlap >= threshold
    return _Pairs(one[enough], other[enough], overlap[enough])


def _best(groups: Integers, others: Integers, overlap: NDArray[np.float64], count: int) -> Integers:
    """Row of the largest overlap in each group, the first of the others on a tie; -1 where there is none."""
    order = np.lexsort((others, -overlap, groups))
    found, first = np.unique(groups[order], return_index=True)
    best = np.full(count, -1)
    best[found] = order[first]
    return best


def _step(
    pairs: _Pairs, earlier: Integers, sizes: Integers, names: Integers, free: int
) -> tuple[Integers, int, list[dict[str, Any]]]:
    """Numbers of the communities of an instance, the next number that is free, and what happened."""
    forward = _best(pairs.before, pairs.after, pairs.overlap, earlier.size)
    backward = _best(pairs.after, pairs.before, pairs.overlap, sizes.size)
    named = np.full(sizes.size, -1)
    same = [row for row in backward.tolist() if row >= 0 and forward[pairs.before[row]] == row]
    named[pairs.after[same]] = names[pairs.before[same]]
    new = np.flatnonzero(named < 0)
    named[new] = free + np.arange(new.size)
    return named, free + new.size, list(_events_of(pairs, forward, backward, earlier, sizes, names, named))


def _events_of(
    pairs: _Pairs, forward: Integers, backward: Integers, earlier: Integers, sizes: Integers, names: Integers,
    named: Integers,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    for community, row in enumerate(backward.tolist()):
        fields: dict[str, Any] = {"community": int(named[community]), "size": int(sizes[community])}
        if row < 0:
            yield {"event": "born", **fields}
            continue
        fields["overlap"] = float(pairs.overlap[row])
        parent = int(pairs.before[row])
        if forward[parent] != row:
            yield {"event": "split", "other": int(names[parent]), **fields}
            continue
        change = int(sizes[community] - earlier[parent])
        yield {"event": "grown" if change > 0 else "shrunk" if change < 0 else "continued", **fields}
    for community, row in enumerate(forward.tolist()):
        fields = {"community": int(names[community]), "size": int(earlier[community])}
        if row < 0:
            yield {"event": "died", **fields}
        elif backward[pairs.after[row]] != row:
            into = int(named[pairs.after[row]])
            yield {"event": "merged", "other": into, "overlap": float(pairs.overlap[row]), **fields}
