"""Edges that a link between machines holds up, in numba."""

from __future__ import annotations

import numba
import numpy as np

from goffish.scheduling.dataflow.kernels import SLACK, carried


@numba.njit(cache=True, nogil=True)
def narrow_edges(
    order, pred_offsets, pred, outputs, sent, host_offsets, host_vm, host_share, bandwidth, message_bits
):  # fmt: skip
    """Edges that carry less than all that their element would send under unlimited resources (`sent`).

    Edges from which no output is reached do not count. Returns how many there are, and sender and receiver of the one
    that carries the least share of its messages; of equal ones the lowest receiver, then the lowest sender.
    """
    leads = np.zeros(order.size, np.bool_)
    for i in outputs:
        leads[i] = True
    for at in range(order.size - 1, -1, -1):
        j = order[at]
        if leads[j]:
            for e in range(pred_offsets[j], pred_offsets[j + 1]):
                leads[pred[e]] = True
    count, sender, receiver, least = 0, -1, -1, 1.0
    for j in range(order.size):
        if not leads[j]:
            continue
        for e in range(pred_offsets[j], pred_offsets[j + 1]):
            i = pred[e]
            if sent[i] <= 0:
                continue
            share = carried(i, j, sent[i], host_offsets, host_vm, host_share, bandwidth, message_bits) / sent[i]
            if share < 1.0 - SLACK:
                count += 1
                if share < least - SLACK:
                    sender, receiver, least = i, j, share
    return count, sender, receiver
