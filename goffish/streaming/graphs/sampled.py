"""Betweenness from random shortest paths that follow a live graph."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.betweenness.sampling import CAP_SHARE, Estimate, Goal, Plan, pilot_samples
from goffish.errors import InputError, JobError
from goffish.gopher.result import Result
from goffish.graph.parallel import run_tasks, thread_count
from goffish.streaming.graphs import row_kernels
from goffish.streaming.graphs import sampling_kernels as kernels
from goffish.streaming.graphs.followed import Followed
from goffish.streaming.graphs.patterns import Numbers
from goffish.streaming.graphs.row_kernels import ABSENT
from goffish.streaming.graphs.rows import Difference, Rows
from goffish.streaming.key_table import longer

#: Samples, and vertices on their paths, that are kept at most.
_MOST_SAMPLES, _MOST_ENTRIES = 50_000_000, 1 << 28
#: A pilot plans anew once so much of the graph has changed.
_CHANGED = 0.25
#: Numbers of pilot samples begin here, so that they are no others.
_PILOT = 1 << 40
#: Samples that a thread draws at a time, at least.
_TASK = 64
#: Tasks of a thread, at most: Ctrl-C waits for the end of one.
_TASKS = 64


class Samples(NamedTuple):
    """Random pairs of vertices, and a random shortest path of each.

    Attributes
    ----------
    sources, targets : int32 arrays
    sizes : int64 array
        Inner vertices of each path, -1 if there is none.
    path : int32 array
        The inner vertices of all paths, one after the other.
    """

    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    sizes: Numbers
    path: NDArray[np.int32]

    @classmethod
    def new(cls, count: int) -> Samples:
        """Return space for samples, whose pairs are still to be chosen."""
        ends = np.zeros((2, count), np.int32)
        return cls(ends[0], ends[1], np.full(count, -1), ends[0, :0])

    def cut(self, count: int) -> Samples:
        """Return the first ones."""
        end = int(np.maximum(self.sizes[:count], 0).sum())
        return Samples(self.sources[:count], self.targets[:count], self.sizes[:count], self.path[:end])


class Draw(NamedTuple):
    """What random numbers depend on: the seed, how often samples were drawn, and the number of the first sample."""

    seed: np.uint64
    round: np.uint64
    first: int


class SampledBetweenness(Followed):
    """Betweenness, estimated from random shortest paths.

    Notes
    -----
    For every result, each sample is a pair of vertices, all of them equally likely, with one of its shortest paths, all
    of them equally likely, and samples are independent of one another. Let a sample have that property before changes:

    * Vertices. Pairs that have lost an end are drawn anew. For each of the others a pair among all vertices is drawn,
      and taken if it has a new vertex: it has with the probability that a pair has one, and pairs of old vertices
      are as likely as each other.
    * Removed edges. A path that uses one is drawn anew. A path that does not was equally likely to be any of those of
      its pair, hence also any of those that are left, which are all shortest paths of the pair then: whether it is kept
      depends on the path, but given that it is, nothing more is known about which of those it is.
    * Added edges. If there is a path by way of one that is as short as the kept path, or shorter, the shortest paths
      of the pair are other ones, and one of them is drawn; otherwise they are the same ones, and the path is
      kept. For an arc (u, v) that is so if d(s, u) + 1 + d(v, t) is at most the length of the path, by distances in
      the graph after all changes. This depends on the graph and the pair only, and not on which path was kept.
    * Both. Removals are followed before additions; all paths are drawn in the graph after all changes.
      A pair whose path is cut gets one of its shortest paths then, all of them equally likely. Of any other pair, the
      kept path is a shortest one without the added edges, so that the rule for these is exact.

    How many samples there are may depend on what they have met, as in `estimate_betweenness`: the bounds hold at all
    sizes at which they are looked at together, because these, and the failure that each vertex may have, come from
    samples of a pilot that are not used again. Whether there is a full pass depends on the graph, not on the samples.
    With so many samples that Hoeffding's bound holds for all vertices, errors are at most epsilon in any case.

    So, for each result by itself, all bounds hold with a probability of at least 1 - delta, if what changes the graph
    does not depend on results before.

    References
    ----------
    Hayashi, T., Akiba, T., Yoshida, Y.: Fully dynamic betweenness centrality maintenance on massive networks. VLDB
    2016. Bergamini, E., Meyerhenke, H.: Approximating betweenness centrality in fully dynamic networks. Internet
    Mathematics 12 (2016).
    """

    has_directions = True
    price = 0.5

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        epsilon = self._options.epsilon
        if epsilon is None:
            raise InputError("betweenness: epsilon is missing, and exact values are not followed; give the error")
        self._samples = Samples.new(0)
        self._found = Estimate(np.zeros(0), np.zeros(0), np.zeros(0), 0, 0, None, True, 0)
        self._round = 0
        #: The plan of the last pilot, by slot of vertices, how many arcs took a sample, and what has changed since.
        self._plan, self._arcs, self._changed = Plan(np.zeros(1), np.zeros(0, np.int64), 0), 0.0, 0

    def _fit(self, size: int) -> None:
        had = len(self._plan.kind)
        if size > had:
            # New vertices are allowed the least failure, which is the first kind.
            self._plan = self._plan._replace(kind=longer(self._plan.kind, had, size))

    def _limit(self) -> float:
        return self.price * self._plan.wanted * self._arcs

    # Changes.

    def _follow(self, difference: Difference, limit: float) -> float:
        self._round += 1
        row_kernels.put_all(self._seen.net, difference.pairs, difference.before, difference.weights)
        samples, vertices = self._samples, self._vertices
        if len(samples.sizes) and len(vertices) > 2:
            stale = self._stale_pairs(difference)
            self._find_cut(difference, stale)
            work = self._find_joined(difference, stale, limit)
            if work > limit:
                return work
            self._samples = self._drawn(samples, stale, self._draw(0))
        else:
            self._samples, work = Samples.new(0), 0.0
        self._changed += len(difference.pairs) + len(difference.gone) + len(difference.come)
        self._complete()
        return work

    def _stale_pairs(self, difference: Difference) -> NDArray[np.bool_]:
        """Choose pairs where vertices have been removed or added, and return which of them are other ones."""
        stale = np.zeros(len(self._samples.sizes), np.bool_)
        if len(difference.gone) or len(difference.come):
            is_gone, is_new = np.zeros((2, len(self._seen.vertices)), np.bool_)
            is_gone[difference.gone] = is_new[difference.come] = True
            kernels.choose_pairs(self._samples, self._vertices, is_gone, is_new, self._draw(0), stale)
        return stale

    def _find_cut(self, difference: Difference, stale: NDArray[np.bool_]) -> None:
        sources, targets = self._changed_ends(difference, difference.weights[difference.pairs] == ABSENT)
        if not len(sources):
            return
        is_end = np.zeros(len(self._seen.vertices), np.bool_)
        is_end[sources] = is_end[targets] = True
        keys = np.sort(sources << 32 | targets)
        kernels.find_cut(self._samples, keys, is_end, self._seen.net.directed, stale)

    def _find_joined(self, difference: Difference, stale: NDArray[np.bool_], limit: float) -> float:
        """Mark the samples of which new edges have changed the shortest paths; return the work."""
        sources, targets = self._changed_ends(difference, difference.before == ABSENT)
        samples, directed, work = self._samples, self._seen.net.directed, 0.0
        forward, backward = self._both_arcs()
        if not directed:
            # Two arcs for each edge, in lanes that are beside each other.
            sources, targets = np.stack((sources, targets), 1).ravel(), np.zeros(0, np.int64)
        ends = (samples.sources, samples.targets)
        places = [self._places(one) for one in (ends if directed else (np.concatenate(ends),))]
        for first in range(0, len(sources), kernels.LANES):
            last = min(first + kernels.LANES, len(sources))
            to = places[0]
            work += kernels.search_lanes(backward, sources[first:last], *to)
            since = to
            if directed:
                since = places[1]
                work += kernels.search_lanes(forward, targets[first:last], *since)
            if work > limit:
                break
            kernels.find_joined(samples, to, since, last - first, int(not directed), stale)
        return work

    def _changed_ends(self, difference: Difference, chosen: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        net, pairs = self._seen.net, difference.pairs[chosen]
        return net.sources[pairs].astype(np.int64), net.targets[pairs].astype(np.int64)

    def _places(self, ends: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return rows of distances for vertices, and space for these."""
        is_end = np.zeros(len(self._seen.vertices), np.bool_)
        is_end[ends] = True
        found = np.flatnonzero(is_end)
        rows = np.full(len(is_end), -1, np.int32)
        rows[found] = np.arange(len(found))
        return rows, np.empty((len(found), kernels.LANES), np.int32)

    # Samples.

    def _draw(self, first: int) -> Draw:
        return Draw(np.uint64(self._options.seed % 2**64), np.uint64(self._round), first)

    def _both_arcs(self) -> tuple[Any, Any]:
        net, size = self._seen.net, len(self._seen.vertices)
        out = _arcs(net.out, size)
        return out, _arcs(net.into, size) if net.directed else out

    def _new(self, count: int, first: int) -> Samples:
        """Draw samples that have numbers from `first` on."""
        samples, stale, draw = Samples.new(count), np.ones(count, np.bool_), self._draw(first)
        nowhere = np.zeros(len(self._seen.vertices), np.bool_)
        kernels.choose_pairs(samples, self._vertices, nowhere, nowhere, draw, stale)
        return self._drawn(samples, stale, draw)

    def _drawn(self, samples: Samples, stale: NDArray[np.bool_], draw: Draw) -> Samples:
        """Draw the paths of stale samples."""
        count, number = len(stale), int(np.count_nonzero(stale))
        if not number:
            return samples
        threads = thread_count()
        step = max(1, math.ceil(count * max(_TASK / number, 1 / (_TASKS * threads))))
        bounds = np.append(np.arange(0, count, step), count)
        places = np.append(0, np.cumsum(np.maximum(samples.sizes, 0)))[bounds]
        arcs = self._both_arcs()
        parts = list[NDArray[np.int32]]()
        tasks = [(*arcs, samples, draw, stale, *part) for part in zip(bounds[:-1], bounds[1:], places, strict=False)]
        entries = 0
        for at in range(0, len(tasks), threads):
            for path, size, work in run_tasks(kernels.draw_stale, tasks[at : at + threads], threads):
                parts.append(path[:size])
                entries += size
                self._figures["work"] += int(work)
            if entries > _MOST_ENTRIES:
                raise JobError(f"limit: more than {_MOST_ENTRIES:,} vertices on sampled paths; give a larger epsilon")
        return samples._replace(path=np.concatenate(parts))

    # Results.

    @property
    def _goal(self) -> Goal:
        return Goal(self._options.epsilon, self._options.how_many(len(self._vertices)))

    @property
    def _most(self) -> int:
        """How many samples are enough in any case, by Hoeffding's bound."""
        failure = CAP_SHARE * self._options.delta / (2 * len(self._vertices))
        return math.ceil(-math.log(failure) / (2 * float(self._options.epsilon) ** 2))

    def _pass(self) -> None:
        self._round += 1
        self._samples = Samples.new(0)
        self._plan = self._plan._replace(wanted=0)
        self._complete()

    def _make_plan(self, vertices: Numbers) -> None:
        """Plan from a pilot, the samples of which are not used again."""
        count, before = pilot_samples(self._most), self._figures["work"]
        self._check_size(count)
        pilot = self._new(count, _PILOT)
        hits = self._hits(pilot)[vertices]
        plan = Plan.of(hits, count, self._goal.allowed(hits / count), self._options.delta)
        kind = np.zeros(len(self._plan.kind), np.int64)
        kind[vertices] = plan.kind
        self._plan, self._changed = plan._replace(kind=kind), 0
        self._arcs = (self._figures["work"] - before) / count

    def _check_size(self, count: int) -> None:
        if count > _MOST_SAMPLES:
            raise InputError(
                f"epsilon={self._options.epsilon:g}: takes {count:,} samples, and at most {_MOST_SAMPLES:,} are kept; "
                "give a larger error"
            )

    def _hits(self, samples: Samples) -> Numbers:
        return np.bincount(samples.path, minlength=len(self._seen.vertices))

    def _complete(self) -> None:
        """Draw more samples until the bounds are those that are asked for."""
        vertices, options = self._vertices, self._options
        n = len(vertices)
        goal = self._goal
        if n < 3:
            nothing = np.zeros(n)
            self._found = goal.verdict(nothing, nothing, nothing, 0, 0)
            return
        if not self._plan.wanted or self._changed > _CHANGED * (self._seen.edges + n):
            self._make_plan(vertices)
        most, kind = self._most, self._plan.kind[vertices]
        # All failures together are as much as before, however many vertices have come and gone.
        failure = self._plan.kinds[kind].sum()
        plan = self._plan._replace(
            kind=kind, kinds=self._plan.kinds * ((1.0 - CAP_SHARE) * options.delta / (2.0 * failure))
        )
        for size, share in plan.looks(most):
            have = len(self._samples.sizes)
            if have > size < most:
                continue
            self._check_size(size)
            if have > size:
                self._samples = self._samples.cut(size)
            elif have < size:
                more = self._new(size - have, have)
                columns: Any = zip(self._samples, more, strict=True)
                self._samples = Samples._make(np.concatenate(both) for both in columns)
            counts = self._hits(self._samples)[vertices]
            below, above = plan.bounds(counts, size, share)
            if size == most:
                below, above = np.minimum(below, options.epsilon), np.minimum(above, options.epsilon)
            score = counts / size
            if goal.reached(score, below, above):
                break
        self._found = goal.verdict(score, below, above, size, most)

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        found: Result = self._options.sampled_result(labels, self._found, directed=self._seen.net.directed)
        return found


def _arcs(rows: Rows, size: int) -> tuple[Any, Any, Any]:
    """Return where the row of each vertex begins and ends, and the neighbors, all unsigned."""
    starts = rows.adjacency.starts[:size]
    ends = starts + rows.adjacency.sizes[:size]
    return starts.view(np.uint64), ends.view(np.uint64), rows.others.view(np.uint32)
