"""Which worker owns which positions, and the moves that lead from one layout to another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from goffish.streaming.ring.ranges import CIRCLE
from goffish.streaming.ring.view import View
from goffish.streaming.runtime.stages import Arc

#: First position of every worker.
Layout = Mapping[int, int]


@dataclass(frozen=True)
class Step:
    """A move that is to be asked for.

    Attributes
    ----------
    owner, target : int
        Workers that give up and get positions.
    part : (int, int), optional
        The positions, as the first one and the one after the last; all by default.
    """

    owner: int
    target: int
    part: tuple[int, int] | None = None


def divide(arc: Arc, workers: Sequence[int], weights: Sequence[float] | None = None) -> dict[int, int]:
    """Divide the positions of a stage among workers, in order.

    Parameters
    ----------
    arc : Arc
    workers : sequence of int
    weights : sequence of float, optional
        Positive shares of the workers; equal ones by default.

    Examples
    --------
    >>> divide(Arc(), [7, 9])
    {7: 0, 9: 9223372036854775808}
    """
    shares = [1.0] * len(workers) if weights is None else list(weights)
    size, total = arc.stop - arc.start, sum(shares)
    before = [sum(shares[:at]) / total for at in range(len(shares))]
    return {worker: arc.start + int(size * share) for worker, share in zip(workers, before, strict=True)}


def even_out(counts: Mapping[int, int], workers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return how many partitions workers have to hand to others, so that those of a stage have equally many.

    Parameters
    ----------
    counts : mapping of int to int
        Partitions of all workers.
    workers : sequence of int
        Those of the stage; others are to have none.

    Returns
    -------
    list of (int, int, int)
        Giver, receiver and number.

    Examples
    --------
    >>> even_out({0: 8, 1: 0, 2: 1}, [0, 1, 2])
    [(0, 1, 3), (0, 2, 2)]
    >>> even_out({0: 3, 1: 2}, [0, 1])
    []
    """
    total, size = sum(counts.values()), len(workers)
    fullest = sorted(workers, key=lambda one: -counts.get(one, 0))  # they keep what cannot be divided
    wanted = {one: total // size + (at < total % size) for at, one in enumerate(fullest)}
    surplus = {one: count - wanted.get(one, 0) for one, count in counts.items() if count > wanted.get(one, 0)}
    steps = []
    for target in workers:
        lacks = wanted[target] - counts.get(target, 0)
        for giver, rest in list(surplus.items()):
            count = min(lacks, rest)
            if count > 0:
                steps.append((giver, target, count))
                lacks, surplus[giver] = lacks - count, rest - count
    return steps


def staffed(
    workers: Sequence[int], sizes: Mapping[int, int], readers: Collection[int], stages: Collection[int]
) -> dict[int, list[int]]:
    """Divide workers among stages, so that some stages have a reader each.

    Parameters
    ----------
    workers : sequence of int
        In their order on the ring, which stays if the first worker of another stage can be the first one, as then
        every worker keeps its neighbors. Otherwise, some workers change places.
    sizes : mapping of int to int
        Numbers of workers of all stages.
    readers : collection of int
        Workers; at least as many as `stages`.
    stages : collection of int

    Returns
    -------
    dict of int to list of int
        Workers of all stages.

    Examples
    --------
    >>> staffed([4, 5, 6], {0: 1, 1: 2}, {5}, {0})
    {0: [5], 1: [6, 4]}
    >>> staffed([4, 5, 6], {0: 1, 1: 1, 2: 1}, {4, 5}, {0, 2})
    {0: [5], 1: [6], 2: [4]}
    """

    def missing(staff: Mapping[int, Sequence[int]]) -> list[int]:
        return [stage for stage in stages if not any(one in readers for one in staff[stage])]

    found = []
    for first in range(len(workers)):
        rest = iter([*workers[first:], *workers[:first]])
        found.append({stage: list(islice(rest, size)) for stage, size in sorted(sizes.items())})
    best = min(found, key=lambda staff: len(missing(staff)))
    for stage in missing(best):
        others, reader = next(
            (others, one)
            for other, others in best.items()
            for one in others
            if one in readers and (other not in stages or sum(worker in readers for worker in others) > 1)
        )
        others[others.index(reader)], best[stage][0] = best[stage][0], reader
    return best


def next_step(view: View, wanted: Layout, ready: Collection[int]) -> Step | None:
    """Return the next move towards a layout; None if there is none, or if workers have to become ready first.

    Workers that are not on the ring yet come first, as far as they can; then those that are to leave it; then the
    boundaries. The order of the workers that stay must be the same in both.

    Parameters
    ----------
    view : View
        Without moves.
    wanted : mapping of int to int
    ready : collection of int
        Workers that have started.
    """
    missing = [worker for worker in wanted if worker not in view]
    for worker in missing:
        if worker in ready and (step := _join(view, wanted, worker)) is not None:
            return step
    if not all(worker in ready for worker in missing):
        return None
    for node in view.nodes.tolist():
        if node not in wanted:
            before, after = view.clockwise(node, -1), view.clockwise(node)
            if before != node:
                return Step(node, before if before in wanted else after)
    for worker in view.nodes.tolist():
        if (step := _shift(view, wanted, worker)) is not None:
            return step
    return None


def _join(view: View, wanted: Layout, worker: int) -> Step | None:
    """Return the move by which a new worker gets its first position, and what follows or precedes it."""
    owner, place = view.replicas(wanted[worker])[0], wanted[worker]
    others = [(view.token(one), wanted[one]) for one in view.nodes.tolist() if one in wanted and one != owner]
    if any((token < place) != (later < place) for token, later in others):
        return None  # it would come before a worker that it must follow, or after one that it must precede
    if owner not in wanted:
        return Step(owner, worker)
    first, stop, size = _interval(view, owner)
    begins, stays = (place - first) % CIRCLE, (wanted[owner] - first) % CIRCLE
    if stays < size and begins < stays:
        return Step(owner, worker, (first, wanted[owner]))
    if stays >= size and wanted[owner] > place:
        return None  # the owner has to move first
    return Step(owner, worker, (place, stop)) if begins else None


def _shift(view: View, wanted: Layout, worker: int) -> Step | None:
    """Return the move that puts the first position of a worker right, if its neighbors allow it."""
    first, _, size = _interval(view, worker)
    before = view.clockwise(worker, -1)
    if first == wanted[worker] or before == worker:
        return None
    if (wanted[worker] - first) % CIRCLE < size:
        return Step(worker, before, (first, wanted[worker]))
    start, stop, length = _interval(view, before)
    if wanted[worker] < first and 0 < (wanted[worker] - start) % CIRCLE < length:
        return Step(before, worker, (wanted[worker], stop))
    return None


def _interval(view: View, worker: int) -> tuple[int, int, int]:
    """Return the first position of a worker, the one after its last, and their number."""
    first, stop = view.token(worker), view.token(view.clockwise(worker))
    return first, stop, (stop - first) % CIRCLE or CIRCLE
