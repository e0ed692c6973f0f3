"""Local moving on one level: how vertices are shared out, and the threads that carry it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import move_kernels as kernels
from goffish.algorithms.communities.levels import Labels, Level
from goffish.algorithms.communities.settings import Search
from goffish.graph.parallel import balanced_rows, wait_for
from goffish.kernels.barrier import make_barrier

#: Called while a level is under way: passes so far and modularity gained by the last one.
PassProgress = Callable[[int, float], None]

_CHUNK = 512
_SEQUENTIAL = 1 << 17  # arcs below which a second block costs more than it brings
_FIRST_SLICES, _LATER_SLICES = 16, 4
_HOPELESS = 0.2  # of the tolerance: a pass that will hardly gain so much, by its first slices, ends there
_TELLING = 1 << 13  # vertices of which a slice is a fair sample
_ALONE = 1 << 20  # arcs that are scanned in a moment: the calling thread takes part


@dataclass(frozen=True)
class Effort:
    """How long local moving goes on, and on how many threads.

    Attributes
    ----------
    tolerance : float
        Modularity that a pass has to gain for another one to follow.
    search : Search
    threads : int
        Has no influence on the answer.
    patient : bool
        Finish a pass whatever its first slices gained; for graphs in which only a few vertices have to move.
    """

    tolerance: float
    search: Search
    threads: int
    patient: bool = False


def block_count(arcs: int) -> int:
    """Blocks for a graph of so many arcs: two, and twice as many whenever the graph is four times as big."""
    if arcs < _SEQUENTIAL:
        return 1
    blocks, limit = 2, 1 << 26
    while arcs >= limit:
        blocks, limit = 2 * blocks, 4 * limit
    return blocks


def move(
    level: Level,
    labels: Labels,
    effort: Effort,
    random: np.random.Generator,
    pool: Executor,
    fixed: NDArray[np.uint8] | None = None,
    active: NDArray[np.uint8] | None = None,
    progress: PassProgress | None = None,
) -> tuple[int, float]:
    """Move vertices between communities until a pass gains too little; `labels` change in place.

    Vertices for which `fixed` is set never move, those for which `active` is not set only after a neighbor did.
    Gives the number of passes and the modularity gained (with several blocks, about).
    """
    n, arcs = level.num_vertices, level.num_arcs
    if not arcs or level.total == 0.0:
        return 0, 0.0
    search = effort.search
    wanted = block_count(arcs) if search.blocks is None or arcs < _SEQUENTIAL else search.blocks
    count = min(wanted, n)
    bounds = balanced_rows(level.offsets.view(np.int64), count)
    chunk = max(1, min(_CHUNK, n >> 10))
    order, slices = _plan(level.offsets, bounds, chunk, _FIRST_SLICES if count > 1 else 1, random)
    kind = level.degree.dtype
    replicas = np.empty((count - 1, n), labels.dtype)
    state = np.empty((count, 2 * n), kind)
    in_totals = np.empty((count, n if level.in_degree.size else 0), kind)
    keys = np.empty((count, level.widest + 1 + kernels.LINE), labels.dtype)  # no cache line for two blocks
    marks = np.empty((3 if count > 1 else 1) * n + count * kernels.LINE, np.uint8)
    logged = _most_in_a_slice(slices, chunk) if count > 1 else 0
    control, figures = np.zeros(3, np.int64), np.zeros(3)
    held = np.zeros(0, np.uint8) if fixed is None else fixed
    rows = kernels.Weighted(level.arcs, level.degree, level.in_degree, held)
    start_state = labels, np.zeros(0, np.uint8) if active is None else active
    blocks = (
        replicas, state, in_totals, keys, marks, bounds.astype(np.uint64), order, slices,
    )  # fmt: skip
    exchange = (
        np.empty((2, count, logged), labels.dtype), np.empty((2, count, logged), labels.dtype),
        np.zeros((2, count * kernels.PAD), np.int64), np.zeros((2, count * kernels.PAD)), control, figures,
    )  # fmt: skip
    least = effort.tolerance * level.total / 2.0
    hopeless = -np.inf if effort.patient or n < _TELLING else _HOPELESS * least
    settings = kernels.Settings(
        np.uint64(chunk), level.scale(search.resolution), search.least_gain, least, hopeless, search.max_passes,
        _LATER_SLICES,
    )  # fmt: skip
    parties = min(effort.threads, count)
    shares = [share * count // parties for share in range(parties + 1)]
    given = (rows, start_state, blocks, exchange, settings, make_barrier(), parties)
    calls: list[tuple[Any, ...]] = [(*given, first, last) for first, last in pairwise(shares)]
    # A long scan leaves this thread free for signals.
    here = 1 if arcs < _ALONE else 0
    futures = [pool.submit(kernels.move_blocks, *call) for call in calls[here:]]
    for call in calls[:here]:
        kernels.move_blocks(*call)
    if futures:
        _watch(futures, control, figures, 2.0 / level.total, progress)
    return int(figures[0]), float(figures[2]) * 2.0 / level.total


def shuffled_chunks(level: Level, random: np.random.Generator) -> tuple[int, NDArray[np.uint64]]:
    """Vertices of a chunk, and the chunks of a level in random order."""
    chunk = max(1, min(_CHUNK, level.num_vertices >> 10))
    order, _ = _plan(level.offsets, np.array([0, level.num_vertices]), chunk, 1, random)
    return chunk, order


def _watch(
    futures: Sequence[Future[None]],
    control: NDArray[np.int64],
    figures: NDArray[np.float64],
    unit: float,
    progress: PassProgress | None,
) -> None:
    """Wait for the threads and report their progress; stop them at the next slice when this one is interrupted."""
    reported = 0.0

    def report() -> None:
        nonlocal reported
        if progress is not None and figures[0] > reported:
            reported = float(figures[0])
            progress(int(reported), float(figures[1]) * unit)

    try:
        wait_for(futures, report)
        report()
    except BaseException:
        control[0] = 1
        raise
    for future in futures:
        future.result()


def _plan(
    offsets: NDArray[np.uint64], bounds: NDArray[np.int64], chunk: int, pieces: int, random: np.random.Generator
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Shuffled chunks of each block, and where its slices of about equal work begin."""
    count = bounds.size - 1
    orders, slices, before = [], np.zeros((count, pieces + 1), np.int64), 0
    edges = offsets.view(np.int64)
    for b in range(count):
        low, high = int(bounds[b]), int(bounds[b + 1])
        chunks = np.arange(low // chunk, -(-high // chunk))
        random.shuffle(chunks)
        work = edges[np.clip((chunks + 1) * chunk, low, high)] - edges[np.clip(chunks * chunk, low, high)] + chunk
        done = np.concatenate(([0], np.cumsum(work)))
        cuts = np.searchsorted(done, done[-1] * np.arange(pieces + 1) / pieces)
        cuts[-1] = chunks.size
        slices[b] = before + cuts
        orders.append(chunks)
        before += chunks.size
    return np.concatenate(orders).astype(np.uint64), slices


def _most_in_a_slice(slices: NDArray[np.int64], chunk: int) -> int:
    """Vertices in the largest step of a scan; a later step spans several slices."""
    finest = slices.shape[1] - 1
    most = 0
    for steps in (finest, min(_LATER_SLICES, finest)):
        cuts = np.arange(steps + 1) * finest // steps
        most = max(most, int(np.diff(slices[:, cuts], axis=1).max()))
    return most * chunk
