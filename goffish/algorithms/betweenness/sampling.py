"""Betweenness from random shortest paths, with a proved error: KADABRA.

Borassi and Natale, KADABRA is an ADaptive Algorithm for Betweenness via Random Approximation, ESA 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import _sampling_kernels as kernels
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.graph.parallel import thread_count, wait_for

#: Called now and then: samples so far, and the most there can be.
SamplingProgress = Callable[[int, int], None]

_Values = NDArray[np.float64]

#: Share of the samples from which the allowed failure is shared out among the vertices; they are not used again.
_PILOT_SHARE, _LEAST_PILOT = 0.01, 1_000
#: Samples between two looks at the bounds: as a share of those so far, and at least.
_LOOK_SHARE, _LEAST_LOOK = 0.1, 1_000
_TASK = 256  # samples
#: Share of the allowed failure that every vertex gets alike, so that one that no pilot sample met has some.
_EVEN_SHARE = 1e-3
#: The universal constant of the Vapnik-Chervonenkis bound (Löffler and Phillips 2009, by experiment).
_CONSTANT = 0.5


@dataclass(frozen=True, eq=False)
class Estimate:
    """What sampling found.

    Attributes
    ----------
    score : float64, shape (n,)
        Share of all ordered pairs whose random shortest path runs through the vertex: betweenness / (n (n - 1)),
        twice that for an undirected graph.
    below, above : float64, shape (n,)
        With probability 1 - delta, every true value lies within ``[score - below, score + above]``.
    samples, most : int
        Samples used, and how many would have done in any case.
    top : int64, shape (k,) or None
        The k vertices of largest score, ties by smaller number, if asked for.
    certain : bool
        With probability 1 - delta `top` is the true set (or, without `top`, every error is at most epsilon).
    """

    score: _Values
    below: _Values
    above: _Values
    samples: int
    most: int
    top: NDArray[np.int64] | None
    certain: bool


def estimate_betweenness(
    graph: Graph,
    epsilon: float = 0.01,
    delta: float = 0.1,
    *,
    top: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: SamplingProgress | None = None,
) -> Estimate:
    """Estimate the betweenness of all vertices, or of the `top` ones, from sampled shortest paths.

    Sampling ends when every error is at most `epsilon`; with `top`, also when the bounds separate the set of the `top`
    vertices from the others. The answer depends on the seed, not on the number of threads.

    Parameters
    ----------
    graph : Graph
        Weights are not looked at.
    epsilon : float
        Largest error of a score, in (0, 1).
    delta : float
        Largest probability that an error is larger, in (0, 1).
    top : int, optional
    seed : int
    threads : int, optional
    progress : callable, optional

    Raises
    ------
    InputError
        A parameter out of range.
    """
    if not 0.0 < epsilon < 1.0:
        raise InputError(f"epsilon={epsilon!r}: must lie between 0 and 1")
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta={delta!r}: must lie between 0 and 1")
    n = graph.num_vertices
    if n < 3:
        nothing = np.zeros(n)
        return Estimate(nothing, nothing, nothing, 0, 0, None if top is None else np.arange(min(top, n)), True)
    wanted = None if top is None else min(top, n)
    forward = _rows(graph.offsets, graph.targets)
    backward = _rows(*_reverse(graph)) if graph.directed else forward
    most = most_samples(_longest_path(graph), epsilon, delta)
    with _Sampler(forward, backward, seed, thread_count(threads)) as sampler:
        pilot = max(_LEAST_PILOT, int(_PILOT_SHARE * most))
        sampler.draw(pilot)
        failure = _share_out(sampler.counts / pilot, epsilon, delta / 2.0, wanted)
        sampler.forget()
        below, above = np.empty(n), np.empty(n)
        while True:
            left = most - sampler.samples
            sampler.draw(min(left, max(_LEAST_LOOK, int(_LOOK_SHARE * sampler.samples))))
            kernels.error_bounds(sampler.counts, sampler.samples, most, failure, below, above)
            score = sampler.counts / sampler.samples
            if progress is not None:
                progress(sampler.samples, most)
            accurate = max(float(below.max()), float(above.max())) <= epsilon or sampler.samples >= most
            chosen = None if wanted is None else largest(score, wanted)
            certain = accurate if chosen is None else _separated(score - below, score + above, chosen)
            if accurate or certain:
                break
    if sampler.samples >= most:
        # The bound that holds for the full number of samples, whatever the vertex.
        below, above = np.minimum(below, epsilon), np.minimum(above, epsilon)
        certain = certain if chosen is None else _separated(score - below, score + above, chosen)
    return Estimate(score, below, above, sampler.samples, most, chosen, certain)


def most_samples(longest: int, epsilon: float, delta: float) -> int:
    """Samples after which all errors are at most `epsilon` in any case (Riondato and Kornaropoulos 2016, theorem 1).

    Parameters
    ----------
    longest : int
        No shortest path has more edges.
    """
    inner = max(longest - 1, 1)
    dimension = math.floor(math.log2(inner)) + 1
    return math.ceil(_CONSTANT / epsilon**2 * (dimension + math.log(2.0 / delta)))


def largest(score: _Values, k: int) -> NDArray[np.int64]:
    """The k vertices of largest score, in falling order, ties by smaller number."""
    return np.lexsort((np.arange(score.size), -score))[:k]


class _Sampler:
    """Counts of sampled paths, drawn by several threads; sample i is the same whoever draws it."""

    def __init__(self, forward: Any, backward: Any, seed: int, threads: int) -> None:
        n = forward[0].size - 1
        self.arcs, self.seed, self.threads = (forward, backward), seed, threads
        kind = np.int32 if n < 2**31 else np.int64
        self.rooms = [
            (np.zeros(n, np.int64), np.full((2, n), -1, np.int32), np.empty((2, n)), np.empty((2, n), kind))
            for _ in range(threads)
        ]
        self.control = np.zeros(1, np.int64)
        self.drawn = self.samples = 0
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="goffish-sampling")

    def __enter__(self) -> _Sampler:
        return self

    def __exit__(self, *error: object) -> None:
        self.control[0] = 1
        self.pool.shutdown()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples through each vertex so far."""
        return sum((room[0] for room in self.rooms[1:]), self.rooms[0][0])

    def forget(self) -> None:
        """Count from zero; further samples are new ones."""
        for room in self.rooms:
            room[0][:] = 0
        self.samples = 0

    def draw(self, number: int) -> None:
        """Draw so many more samples."""
        first, last = self.drawn, self.drawn + number
        tasks = iter(range(first, last, _TASK))  # next() on a range iterator is atomic under the GIL

        def work(room: Any) -> None:
            for begin in tasks:
                kernels.sample_paths(
                    *self.arcs, self.seed, begin, min(begin + _TASK, last), *room, self.control
                )  # fmt: skip

        done, _ = wait_for([self.pool.submit(work, room) for room in self.rooms])
        for future in done:
            future.result()
        self.drawn, self.samples = last, self.samples + number


def _rows(offsets: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Unsigned, so that kernels index without a test for negative numbers."""
    unsigned = np.uint32 if targets.dtype.itemsize == 4 else np.uint64
    return offsets.view(np.uint64), np.ascontiguousarray(targets).view(unsigned)


def _reverse(graph: Graph) -> tuple[NDArray[Any], NDArray[Any]]:
    order = np.argsort(graph.targets, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(graph.targets, minlength=graph.num_vertices))))
    return offsets, graph.arc_sources()[order].astype(graph.targets.dtype)


def _longest_path(graph: Graph) -> int:
    """No shortest path has more edges than this."""
    n = graph.num_vertices
    if graph.directed:
        return n - 1  # distances in a directed graph are not symmetric; only the logarithm counts
    return int(kernels.two_farthest(*_rows(graph.offsets, graph.targets), np.zeros(n, np.uint8), np.empty(n, np.int64)))


def _share_out(pilot: _Values, epsilon: float, delta: float, top: int | None) -> _Values:
    """Probability of failure that each of a vertex's two bounds may have; 2 Σ is at most `delta` (section 4.3).

    A vertex of large score needs a smaller bound on its logarithm; for `top`, one far from the k-th score may be less
    accurate.
    """
    n = pilot.size
    error = np.full(n, epsilon)
    if top is not None and top < n:
        ranked = np.sort(pilot)[::-1]
        error = np.maximum(error, np.abs(pilot - (ranked[top - 1] + ranked[top]) / 2.0))
    need = error**2 / np.maximum(pilot, epsilon / n)
    free = delta * (1.0 - _EVEN_SHARE) / 2.0
    low, high = 0.0, 1.0
    while np.exp(-high * need).sum() > free:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        if np.exp(-middle * need).sum() > free:
            low = middle
        else:
            high = middle
    return np.exp(-high * need) + delta * _EVEN_SHARE / (2.0 * n)


def _separated(low: _Values, high: _Values, chosen: NDArray[np.int64]) -> bool:
    """Whether every chosen vertex certainly scores at least as much as every other."""
    others = np.ones(low.size, np.bool_)
    others[chosen] = False
    return not others.any() or bool(low[chosen].min(initial=np.inf) >= high[others].max())
