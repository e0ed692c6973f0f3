"""Local moving in blocks of vertices: deterministic on any number of threads.

Every block holds a replica of all labels and community totals and scans its own vertices one after the other, as
sequential Louvain does; after each slice of the scan the blocks exchange their moves. The answer depends on the
blocks and slices, not on which thread works on which block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.arrays import copy_values
from goffish.kernels.barrier import prefetch, wait
from goffish.kernels.compile import kernel

PAD = 8  # float64 slots in a cache line
LINE = 64  # bytes in one
AHEAD = np.uint64(12)  # arcs: far enough for the cache line of a community to arrive


class Weighted(NamedTuple):
    """A level as its kernels see it: see `levels.Level`; `fixed`, uint8, is empty where every vertex may move."""

    arcs: Any
    degree: NDArray[Any]
    in_degree: NDArray[Any]
    fixed: NDArray[np.uint8]


class Replica(NamedTuple):
    """Replicas of all communities in one block, and its memory.

    Attributes
    ----------
    labels : shape (n,)
    state : shape (2 n,)
        ``state[2c]`` collects the weight from a vertex to community c and is zero between vertices; ``state[2c + 1]``
        is the community's total degree.
    in_totals : shape (n,); empty for an undirected graph
    keys : shape (most arcs in one row + 1,)
    """

    labels: NDArray[Any]
    state: NDArray[Any]
    in_totals: NDArray[Any]
    keys: NDArray[Any]


class Block(NamedTuple):
    """The vertices of one block and where it marks others.

    Attributes
    ----------
    low, high : uint64
        Its vertices.
    alone : bool
        Whether it is the only one.
    woken, nowhere : uint64
        A vertex u of another block is woken at ``marks[woken + u]``, where its block finds it in the next pass. No
        block clears a mark that another block may be setting: what needs no mark is written to ``marks[nowhere]``.
    """

    low: Any
    high: Any
    alone: bool
    woken: Any
    nowhere: Any


class Settings(NamedTuple):
    """How local moving on a level goes on, and when it ends.

    Attributes
    ----------
    chunk : uint64
        Consecutive vertices that are visited together.
    scale : float64
        Factor of the null model in the gain of a move, see `levels.Level.scale`.
    least_gain : float64
        A move has to win more than this share of the vertex's degree. Less is chance: on the last levels it joins
        communities that have nothing to do with each other (the resolution limit); rounding could move a vertex again
        and again.
    least_pass, hopeless : float64
        A pass that gains no more is the last; one of which the first slices foretell no more is not finished.
    max_passes, later_slices : int64
        `later_slices` counts the exchanges of a pass after the first.
    """

    chunk: Any
    scale: float
    least_gain: float
    least_pass: float
    hopeless: float
    max_passes: int
    later_slices: int


class Moves(NamedTuple):
    """Vertices that moved, and where to."""

    vertices: NDArray[Any]
    to: NDArray[Any]


@kernel
def move_blocks(level, start_state, blocks, exchange, settings, barrier, parties, first, last):
    """Scan blocks `first` to `last` until a pass gains too little; called once by each of `parties` threads.

    The first block works on the labels themselves, the others on replicas.
    """
    arcs, degree, in_degree, _ = level
    labels, active = start_state
    replicas, state, in_totals, keys, marks, bounds, order, slices = blocks
    moved, moved_to, moved_count, gains, control, progress = exchange
    count = bounds.size - 1
    n = arcs.offsets.size - 1
    finest = slices.shape[1] - 1
    for b in range(first, last):
        if b:
            copy_values(replicas[b - 1], labels)
        state[b] = 0
        in_totals[b] = 0
        for v in range(n):
            state[b, 2 * labels[v] + 1] += degree[v]
        if in_degree.size:
            for v in range(n):
                in_totals[b, labels[v]] += in_degree[v]
        for v in range(bounds[b], bounds[b + 1]):
            marks[v] = active[v] if active.size else 1
            if count > 1:
                marks[n + v] = 0
                marks[2 * n + v] = 0
    wait(barrier, parties)
    turn = 0
    for number in range(settings.max_passes):
        steps = finest if number == 0 else min(settings.later_slices, finest)
        parity = number & 1
        for b in range(first, last):
            if number and count > 1:
                _take_marks(marks, n * (2 - parity), bounds[b], bounds[b + 1])
        gain = 0.0
        for step in range(steps):
            begin, end = step * finest // steps, (step + 1) * finest // steps
            for b in range(first, last):
                replica = Replica(replicas[b - 1] if b else labels, state[b], in_totals[b], keys[b])
                woken, nowhere = np.uint64(n * (1 + parity)), np.uint64(3 * n + b * LINE)
                block = Block(bounds[b], bounds[b + 1], count == 1, woken, nowhere)
                chunks = order[slices[b, begin] : slices[b, end]]
                log = Moves(moved[turn, b], moved_to[turn, b])
                moves, won = _scan(level, replica, marks, block, chunks, settings, log)
                moved_count[turn, b * PAD] = moves
                gains[turn, b * PAD] = won + (gains[1 - turn, b * PAD] if step else 0.0)
            if first == 0:
                control[turn + 1] = control[0]
            wait(barrier, parties)
            if count > 1:
                for b in range(first, last):
                    for other in range(count):
                        if other != b:
                            replica = Replica(replicas[b - 1] if b else labels, state[b], in_totals[b], keys[b])
                            log = Moves(moved[turn, other], moved_to[turn, other])
                            _apply(log, moved_count[turn, other * PAD], replica, degree, in_degree)
            if control[turn + 1]:
                return
            gain = 0.0
            for b in range(count):
                gain += gains[turn, b * PAD]
            turn = 1 - turn
            # Chunks come in random order: the gain of the first slices predicts that of the pass.
            if gain * steps <= settings.hopeless * (step + 1):
                break
        if first == 0:
            progress[0] += 1.0
            progress[1] = gain
            progress[2] += gain
        if gain <= settings.least_pass:
            return


@kernel
def _take_marks(marks, woken, low, high):
    """Vertices that other blocks woke in the pass before become active."""
    for v in range(low, high):
        marks[v] |= marks[woken + v]
        marks[woken + v] = 0


@kernel
def _apply(log, count, replica, degree, in_degree):
    vertices, to = log
    labels, state, in_totals, _ = replica
    for i in range(count):
        v, new = vertices[i], to[i]
        old = labels[v]
        labels[v] = new
        state[2 * old + 1] -= degree[v]
        state[2 * new + 1] += degree[v]
        if in_degree.size:
            in_totals[old] -= in_degree[v]
            in_totals[new] += in_degree[v]


@kernel
def _scan(level, replica, marks, block, chunks, settings, log):
    """Move the active vertices, those with ``marks[v]``, of some chunks; gives the number of moves and their gain."""
    (offsets, targets, weights), degree, in_degree, fixed = level
    labels, state, in_totals, keys = replica
    low, high, alone, woken, nowhere = block
    moved, moved_to = log
    chunk, scale, least_gain = settings.chunk, settings.scale, settings.least_gain
    weighted, directed, some_fixed = weights.size > 0, in_degree.size > 0, fixed.size > 0
    none = state[0] - state[0]
    arcs = np.uint64(targets.size)
    moves, total_gain = 0, 0.0
    for at in chunks:
        for v in range(max(low, at * chunk), min(high, (at + 1) * chunk)):
            if not marks[v]:
                continue
            marks[v] = 0
            begin, end = offsets[v], offsets[v + 1]
            if begin == end or (some_fixed and fixed[v]):
                continue
            met = 0
            if weighted:
                for e in range(begin, end):
                    if e + AHEAD < arcs:
                        prefetch(state, 2 * labels[targets[e + AHEAD]])
                    c = labels[targets[e]]
                    before = state[2 * c]
                    keys[met] = c
                    met += before == none
                    state[2 * c] = before + weights[e]
            else:
                for e in range(begin, end):
                    if e + AHEAD < arcs:
                        prefetch(state, 2 * labels[targets[e + AHEAD]])
                    c = labels[targets[e]]
                    before = state[2 * c]
                    keys[met] = c
                    met += before == none
                    state[2 * c] = before + 1
            old, k = labels[v], degree[v]
            new, best = old, -1e300
            f = scale * k
            if directed:
                k_in = in_degree[v]
                f_in = scale * k_in
                stay = state[2 * old] - (in_totals[old] - k_in) * f - (state[2 * old + 1] - k) * f_in
                state[2 * old] = none
                for i in range(met):
                    c = keys[i]
                    gain = state[2 * c] - in_totals[c] * f - state[2 * c + 1] * f_in
                    state[2 * c] = none
                    if gain > best and c != old:
                        best, new = gain, c
                size = k + k_in
            else:
                stay = state[2 * old] - (state[2 * old + 1] - k) * f
                state[2 * old] = none
                for i in range(met):
                    c = keys[i]
                    gain = state[2 * c] - state[2 * c + 1] * f
                    state[2 * c] = none
                    if gain > best and c != old:
                        best, new = gain, c
                size = k
            if best - stay <= least_gain * size:
                continue
            total_gain += best - stay
            state[2 * old + 1] -= k
            state[2 * new + 1] += k
            if directed:
                in_totals[old] -= in_degree[v]
                in_totals[new] += in_degree[v]
            labels[v] = new
            if alone:
                for e in range(begin, end):
                    u = targets[e]
                    marks[u] |= labels[u] != new
            else:
                moved[moves], moved_to[moves] = v, new
                for e in range(begin, end):
                    u = targets[e]
                    at_mark = u + woken * np.uint64(np.uint64(u) - low >= high - low)
                    marks[at_mark if labels[u] != new else nowhere] = 1
            moves += 1
    return moves, total_gain
