"""Kernels of one PageRank superstep, and of BlockRank's local phase."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def spread_ranks(subgraph_offsets, remote_offsets, offsets, targets, weights, rank, local_sum, remote_sum):
    """Give every vertex's rank to its out-neighbors, in equal parts or by weight (if `weights` is not empty).

    Returns the mass of vertices without out-arcs, or with weight 0 only.
    """
    dangling = 0.0
    weighted = weights.size > 0
    for s in range(subgraph_offsets.size - 1):
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for v in range(low, subgraph_offsets[s + 1]):
            begin, end = offsets[v], offsets[v + 1]
            strength = float(end - begin)
            if weighted:
                strength = 0.0
                for i in range(begin, end):
                    strength += weights[i]
            if strength == 0.0:
                dangling += rank[v]
                continue
            share = rank[v] / strength
            for i in range(begin, end):
                t = targets[i]
                value = share * weights[i] if weighted else share
                if t >= 0:
                    local_sum[low + t] += value
                else:
                    remote_sum[remote + ~t] += value
    return dangling


@kernel
def add_received(vertex, value, total):
    """Add message values to their vertices, in the order of the inbox."""
    for i in range(vertex.size):
        if vertex[i] >= 0:
            total[vertex[i]] += value[i]


@kernel
def update_ranks(total, share, teleport, damping, rank):
    """``rank = share * teleport + damping * total``; returns the L1 change."""
    change = 0.0
    for v in range(rank.size):
        new = share * teleport[v] + damping * total[v]
        change += abs(new - rank[v])
        rank[v] = new
    return change


@kernel
def local_pagerank(subgraph_offsets, offsets, targets, damping, tolerance, max_sweeps, local_rank):
    """PageRank of each subgraph by its own arcs only, normalized to sum 1 (BlockRank, step 1)."""
    for s in range(subgraph_offsets.size - 1):
        low, high = subgraph_offsets[s], subgraph_offsets[s + 1]
        size = high - low
        degree = np.zeros(size, np.int64)
        for v in range(low, high):
            for i in range(offsets[v], offsets[v + 1]):
                if targets[i] < 0:
                    break
                degree[v - low] += 1
        x = np.full(size, 1.0 / size)
        total = np.empty(size, np.float64)
        for _ in range(max_sweeps):
            total[:] = 0.0
            for v in range(size):
                if degree[v]:
                    share = x[v] / degree[v]
                    begin = offsets[low + v]
                    for i in range(begin, begin + degree[v]):
                        total[targets[i]] += share
            change = 0.0
            for v in range(size):
                new = (1.0 - damping) / size + damping * total[v]
                change += abs(new - x[v])
                x[v] = new
            if change < tolerance:
                break
        mass = x.sum()
        for v in range(size):
            local_rank[low + v] = x[v] / mass


@kernel
def block_weights(
    subgraph_offsets, remote_offsets, remote_subgraph, neighbor_offsets, neighbor_subgraph,
    offsets, targets, local_rank, own, out,
):  # fmt: skip
    """Rows of the block matrix: the share of each subgraph's local rank that its arcs carry to itself and to
    each neighbor (BlockRank, step 1)."""
    for s in range(subgraph_offsets.size - 1):
        first, last = neighbor_offsets[s], neighbor_offsets[s + 1]
        for v in range(subgraph_offsets[s], subgraph_offsets[s + 1]):
            begin, end = offsets[v], offsets[v + 1]
            if begin == end:
                continue
            share = local_rank[v] / (end - begin)
            for i in range(begin, end):
                t = targets[i]
                if t >= 0:
                    own[s] += share
                else:
                    block = remote_subgraph[remote_offsets[s] + ~t]
                    out[first + np.searchsorted(neighbor_subgraph[first:last], block)] += share
