"""Days of host crashes, 64 at a time. See docs/specs/selective-replication.md, section 3.1."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel
def run_days(alive, copy_offsets, copy_hosts, query_offsets, query_operators, weights, up, days):
    """Which queries survive which days.

    Parameters
    ----------
    alive : uint64, shape (hosts, words)
        A bit for each day.
    copy_offsets, copy_hosts : int64
        Hosts of each operator.
    query_offsets, query_operators : int64
    weights : float64, shape (queries,)
    up : int64, shape (queries,)
        Gets the number of days on which each query runs.
    days : float64, shape (64 * words,)
        Gets the weight of the queries that run on each day.
    """
    words = alive.shape[1]
    operators = copy_offsets.size - 1
    living = np.zeros((operators, words), np.uint64)
    for operator in range(operators):
        for at in range(copy_offsets[operator], copy_offsets[operator + 1]):
            host = copy_hosts[at]
            for word in range(words):
                living[operator, word] |= alive[host, word]
    one = np.uint64(1)
    for query in range(query_offsets.size - 1):
        for word in range(words):
            bits = ~np.uint64(0)
            for at in range(query_offsets[query], query_offsets[query + 1]):
                bits &= living[query_operators[at], word]
            for bit in range(64):
                if (bits >> np.uint64(bit)) & one:
                    up[query] += 1
                    days[64 * word + bit] += weights[query]
