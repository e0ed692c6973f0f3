"""Betweenness from random shortest paths, with a proved error.

Paths are sampled as in KADABRA (Borassi and Natale, KADABRA is an ADaptive Algorithm for Betweenness via Random
Approximation, ESA 2016, sections 3 and 4), from what is left when hanging trees are folded, whose share is exact. Where
it stops differs: how often a vertex was met is binomial, so bounds are exact binomial ones, at sizes of the sample that
a separate pilot fixes beforehand, each with its share of the allowed failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness import sampling_kernels as kernels
from goffish.algorithms.betweenness.problem import Problem, measured_problem
from goffish.algorithms.betweenness.reductions import fold_leaves
from goffish.algorithms.betweenness.search_kernels import DijkstraMemory
from goffish.errors import InputError
from goffish.graph import Graph
from goffish.graph.parallel import thread_count, wait_for

#: Called now and then: samples so far, and the most there can be.
SamplingProgress = Callable[[int, int], None]

_Values = NDArray[np.float64]
_Integers = NDArray[np.int64]

#: Share of the most samples from which the allowed failure is shared out among the vertices; they are not used again.
_PILOT_SHARE, _LEAST_PILOT = 0.02, 200
#: The first look at the bounds, as a share of the samples that the pilot foretells, and the growth from look to look.
_FIRST_LOOK, _GROWTH = 0.8, 1.15
#: The pilot's standard deviations by which a vertex's share may be larger than found there.
_DEVIATIONS = 4.0
#: Samples drawn between two words on progress.
_SLICE = 1 << 15
_TASK = 64  # samples
#: Share of the allowed failure that every vertex gets alike, so that one that no pilot sample met has some.
_EVEN_SHARE = 0.2
#: Share of the allowed failure for the bound on the number of samples in any case.
CAP_SHARE = 0.1
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
    members : int
        So many of `top` are members of the true set with probability 1 - delta; 0 without `top`.
    """

    score: _Values
    below: _Values
    above: _Values
    samples: int
    most: int
    top: _Integers | None
    certain: bool
    members: int


def estimate_betweenness(
    graph: Graph,
    epsilon: float = 0.01,
    delta: float = 0.1,
    *,
    top: int | None = None,
    weighted: bool | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: SamplingProgress | None = None,
) -> Estimate:
    """Estimate the betweenness of all vertices, or of the `top` ones, from sampled shortest paths.

    Sampling ends when every error is at most `epsilon`; with `top`, when that holds for all vertices whose place in or
    out of the `top` ones the bounds leave open. The answer depends on the seed, not on the number of threads.

    Parameters
    ----------
    graph : Graph
        Self-loops and all but the lightest of parallel arcs are ignored.
    epsilon : float
        Largest error of a score, in (0, 1).
    delta : float
        Largest probability that an error is larger, in (0, 1).
    top : int, optional
    weighted : bool, optional
        Whether paths are measured by the weights; by default if the graph has weights.
    seed : int
    threads : int, optional
    progress : callable, optional

    Raises
    ------
    InputError
        A parameter out of range, a weight that is not positive and finite, ``weighted=True`` without weights.
    """
    if not 0.0 < epsilon < 1.0:
        raise InputError(f"epsilon={epsilon!r}: must be between 0 and 1")
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta={delta!r}: must be between 0 and 1")
    n = graph.num_vertices
    problem, _ = measured_problem(graph, weighted, None, None)
    if n < 3:
        nothing, few = np.zeros(n), 0 if top is None else min(top, n)
        return Estimate(nothing, nothing, nothing, 0, 0, None if top is None else np.arange(few), True, few)
    folded = _Folded(problem)
    most = most_samples(_longest_path(folded.core), epsilon, CAP_SHARE * delta)
    goal = Goal(epsilon, None if top is None else min(top, n))
    with _Sampler(folded.core, folded.owner, seed, thread_count(threads)) as sampler:
        pilot = pilot_samples(most)
        sampler.draw(pilot)
        hits = sampler.counts
        error = goal.allowed(folded.closed + folded.expand(hits / pilot))[folded.place]
        plan = Plan.of(hits, pilot, error, delta)
        sampler.forget()
        for size, share in plan.looks(most):
            while sampler.samples < size:
                sampler.draw(min(_SLICE, size - sampler.samples))
                if progress is not None:
                    progress(sampler.samples, most)
            below, above = plan.bounds(sampler.counts, size, share)
            if size == most:
                # The bound that holds for the full number of samples, whatever the vertex.
                below, above = np.minimum(below, epsilon), np.minimum(above, epsilon)
            score = folded.closed + folded.expand(sampler.counts / size)
            below, above = folded.expand(below), folded.expand(above)
            if goal.reached(score, below, above):
                break
    return goal.verdict(score, below, above, sampler.samples, most)


#: Smaller errors would take more samples than can be counted.
_LEAST_EPSILON = 1e-8


def most_samples(longest: int, epsilon: float, failure: float) -> int:
    """Samples after which all errors are at most `epsilon` in any case (Riondato and Kornaropoulos 2016, theorem 1).

    Parameters
    ----------
    longest : int
        No shortest path has more edges.
    epsilon, failure : float
        But for this probability.
    """
    if epsilon < _LEAST_EPSILON:
        raise InputError(f"epsilon={epsilon:g}: must be at least {_LEAST_EPSILON:g}")
    inner = max(longest - 1, 1)
    dimension = math.floor(math.log2(inner)) + 1
    return math.ceil(_CONSTANT / epsilon**2 * (dimension - math.log(failure)))


def largest(score: _Values, k: int) -> _Integers:
    """The k vertices of largest score, in falling order, ties by smaller number."""
    return np.lexsort((np.arange(score.size), -score))[:k]


class _Folded:
    """A problem without hanging trees, and how scores of what is left become those of all.

    Attributes
    ----------
    core : Problem
        Breadth-first order, so that a search meets neighbors near one another.
    owner : shape (n,)
        For every vertex, in some order, the one of the core that stands for it.
    closed : float64, shape (n,)
        The exact part of the scores.
    place : int64, shape (core,)
        Vertex of the graph of each of the core.
    """

    def __init__(self, problem: Problem) -> None:
        n = problem.num_vertices
        self.closed, self.place, core = np.zeros(n), np.arange(n), problem
        if not problem.directed:
            step = fold_leaves(problem)
            self.closed, core = step.closed / (n * (n - 1.0)), step.smaller
            self.place = self.place[step.place]
        order, _, _ = core.pieces
        self.place, (self.core, _) = self.place[order], core.keep(order)
        if not problem.directed:
            self.core, _ = self.core.sorted_rows()
        vertices = np.arange(order.size, dtype=np.int32 if n < 2**31 else np.int64)
        self.owner = np.repeat(vertices, np.rint(self.core.out).astype(np.int64))

    def expand(self, values: _Values) -> _Values:
        """Values of the core at its vertices of the graph, 0 elsewhere."""
        everywhere = np.zeros(self.closed.size, np.float64)
        everywhere[self.place] = values
        return everywhere


@dataclass(frozen=True)
class Goal:
    """What the bounds must say before sampling ends."""

    epsilon: float
    top: int | None

    def allowed(self, pilot: _Values) -> _Values:
        """Error that each vertex may have; one far from the border of the `top` ones may have a larger one."""
        error = np.full(pilot.size, self.epsilon)
        if self.top is None or self.top >= pilot.size:
            return error
        ranked = np.sort(pilot)[::-1]
        border = (ranked[self.top - 1] + ranked[self.top]) / 2.0
        # Those near the border may end up to epsilon beyond it, and the pilot may be as wrong.
        distant: _Values = np.maximum(error, np.abs(pilot - border) - 2.0 * self.epsilon)
        return distant

    def reached(self, score: _Values, below: _Values, above: _Values) -> bool:
        error = np.maximum(below, above)
        if self.top is not None and self.top < score.size:
            inside = np.zeros(score.size, np.bool_)
            inside[largest(score, self.top)] = True
            floor = float((score - below)[inside].min())
            ceiling = float((score + above)[~inside].max())
            error = error[np.where(inside, score - below < ceiling, score + above > floor)]
        return bool(np.all(error <= self.epsilon))

    def verdict(self, score: _Values, below: _Values, above: _Values, samples: int, most: int) -> Estimate:
        """What was found: the `top` vertices, whether the goal is certain, and how many members are."""
        if self.top is None:
            certain = self.reached(score, below, above)
            return Estimate(score, below, above, samples, most, None, certain, 0)
        chosen, low, high = largest(score, self.top), score - below, score + above
        # A member for certain: fewer than `top` others may score more.
        rivals = score.size - np.searchsorted(np.sort(high), low[chosen], "right") - (high > low)[chosen]
        members = int(np.count_nonzero(rivals < self.top))
        return Estimate(score, below, above, samples, most, chosen, members == chosen.size, members)


def pilot_samples(most: int) -> int:
    """Size of the pilot where so many samples do in any case."""
    return max(_LEAST_PILOT, int(_PILOT_SHARE * most))


class Plan(NamedTuple):
    """What a pilot foretells; its samples are not used again.

    Attributes
    ----------
    kinds : float64, shape (k,)
        Probabilities of failure that each of a vertex's two bounds may have.
    kind : int64, shape (n,)
        Which of them each vertex has.
    wanted : int
        Samples after which sampling is expected to end.
    """

    kinds: _Values
    kind: _Integers
    wanted: int

    @classmethod
    def of(cls, hits: _Integers, pilot: int, error: _Values, delta: float) -> Plan:
        """Plan from how many samples of a pilot met each vertex, and the error that it may have."""
        failure, wanted = _share_out(hits, pilot, error, (1.0 - CAP_SHARE) * delta)
        return cls(*np.unique(failure, return_inverse=True), wanted)

    def looks(self, most: int) -> Iterator[tuple[int, float]]:
        """Sizes of the sample at which the bounds are looked at, up to `most`, and their shares of the failure."""
        return _looks(self.wanted, most)

    def bounds(self, counts: _Integers, samples: int, share: float) -> tuple[_Values, _Values]:
        """Errors below and above at a look with such a share of the failure."""
        return _bounds(counts, self.kind, samples, np.log(share * self.kinds))


class _Sampler:
    """Counts of sampled paths, drawn by several threads; sample i does not depend on the thread that draws it."""

    def __init__(self, core: Problem, owner: NDArray[Any], seed: int, threads: int) -> None:
        n = core.num_vertices
        self.weighted = core.weighted
        self.given = (core.unsigned_arcs, core.reverse.unsigned_arcs, owner, seed)
        self.memories = [(np.zeros(n, np.int64), *self._scratch(n)) for _ in range(threads)]
        self.control = np.zeros(1, np.int64)
        self.drawn = self.samples = 0
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="goffish-sampling")

    def _scratch(self, n: int) -> tuple[Any, ...]:
        if self.weighted:
            return (DijkstraMemory.make(n),)
        return np.full((2, n), -1, np.int32), np.empty((2, n)), np.empty((2, n), np.int32 if n < 2**31 else np.int64)

    def __enter__(self) -> _Sampler:
        return self

    def __exit__(self, *error: object) -> None:
        self.control[0] = 1
        self.pool.shutdown()

    @property
    def counts(self) -> _Integers:
        """Samples through each vertex so far."""
        total: _Integers = np.sum([memory[0] for memory in self.memories], axis=0)
        return total

    def forget(self) -> None:
        """Count from zero; further samples are new ones."""
        for memory in self.memories:
            memory[0][:] = 0
        self.samples = 0

    def draw(self, number: int) -> None:
        """Draw so many more samples."""
        first, last = self.drawn, self.drawn + number
        tasks = iter(range(first, last, _TASK))  # next() on a range iterator is atomic under the GIL
        kernel = kernels.sample_weighted if self.weighted else kernels.sample_paths

        def work(memory: Any) -> None:
            for begin in tasks:
                kernel(*self.given, begin, min(begin + _TASK, last), *memory, self.control)

        done, _ = wait_for([self.pool.submit(work, memory) for memory in self.memories])
        for future in done:
            future.result()
        self.drawn, self.samples = last, self.samples + number


def _longest_path(core: Problem) -> int:
    """No shortest path has more edges than this."""
    n = core.num_vertices
    if core.directed or core.weighted:
        return n - 1  # distances do not bound numbers of edges there, or not both ways; only the logarithm counts
    return int(kernels.two_farthest(core.unsigned_arcs, np.zeros(n, np.uint8), np.empty(n, np.int64)))


def _share_out(hits: _Integers, pilot: int, error: _Values, delta: float) -> tuple[_Values, int]:
    """Probability of failure that each of a vertex's two bounds may have, and the samples foretold (section 4.3).

    Twice their sum is at most `delta`. A vertex of large variance is the more likely to have a large error: by
    Bernstein's inequality with probability e^(-size · rate) after `size` samples.
    """
    share = np.minimum((hits + _DEVIATIONS * np.sqrt(hits + 1.0) + 1.0) / pilot, 0.5)
    rate = error**2 / (2.0 * (share * (1.0 - share) + error / 3.0))
    free = delta * (1.0 - _EVEN_SHARE) / 2.0
    low, high = 0.0, 1.0
    while np.exp(-high * rate).sum() > free:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        if np.exp(-middle * rate).sum() > free:
            low = middle
        else:
            high = middle
    return np.exp(-high * rate) + delta * _EVEN_SHARE / (2.0 * max(hits.size, 1)), math.ceil(high)


def _looks(wanted: int, most: int) -> Iterator[tuple[int, float]]:
    """`Plan.looks`."""
    size, number = _FIRST_LOOK * wanted, 1
    while size < most:
        yield math.ceil(size), 1.0 / (number * (number + 1))
        size, number = size * _GROWTH, number + 1
    yield most, 1.0 / number


def _bounds(counts: _Integers, kind: _Integers, samples: int, log_failure: _Values) -> tuple[_Values, _Values]:
    """Errors below and above; the same for vertices with the same count and the same kind of allowed failure."""
    _, first, which = np.unique(counts * log_failure.size + kind, return_index=True, return_inverse=True)
    below, above = np.empty(first.size), np.empty(first.size)
    kernels.error_bounds(counts[first], log_failure[kind[first]], samples, below, above)
    return below[which], above[which]
