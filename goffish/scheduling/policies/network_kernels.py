"""Edges that a link between machines holds up, in numba."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK, carried


@kernel
def narrow_edges(graph, sent, hosts, message_bits):
    """Edges that carry less than all that their element would send under unlimited resources (`sent`).

    Edges from which no output is reached do not count. Returns how many there are, and sender and receiver of the one
    that carries the least share of its messages; of equal ones the lowest receiver, then the lowest sender.
    """
    leads = np.zeros(sent.size, np.bool_)
    for i in graph.outputs:
        leads[i] = True
    for at in range(sent.size - 1, -1, -1):
        j = graph.order[at]
        if leads[j]:
            for e in range(graph.pred_offsets[j], graph.pred_offsets[j + 1]):
                leads[graph.pred[e]] = True
    count, sender, receiver, least = 0, -1, -1, 1.0
    for j in range(sent.size):
        if not leads[j]:
            continue
        for e in range(graph.pred_offsets[j], graph.pred_offsets[j + 1]):
            i = graph.pred[e]
            if sent[i] <= 0:
                continue
            share = carried(i, j, sent[i], hosts, message_bits) / sent[i]
            if share < 1.0 - SLACK:
                count += 1
                if share < least - SLACK:
                    sender, receiver, least = i, j, share
    return count, sender, receiver
