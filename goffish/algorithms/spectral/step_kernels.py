"""Kernel of a product with the matrix of a graph inside subgraphs."""

from __future__ import annotations

from goffish.kernels.compile import kernel


@kernel(allocates=False)
def push(rows, weights, scale, x, near, remote):
    """Add the value of each vertex, times the weight of the arc, to the ends of its arcs.

    Parameters
    ----------
    rows : SubgraphRows
    weights : float64
        Empty where all arcs weigh 1; divided by `scale`.
    near : float64, shape (n,)
    remote : float64, shape (rows of the remote table,)
    """
    weighted = weights.size > 0
    for s in range(rows.starts.size - 1):
        low, beyond = rows.starts[s], rows.remote_starts[s]
        for v in range(low, rows.starts[s + 1]):
            for i in range(rows.offsets[v], rows.offsets[v + 1]):
                value = x[v] * (weights[i] / scale) if weighted else x[v]
                t = rows.targets[i]
                if t >= 0:
                    near[low + t] += value
                else:
                    remote[beyond + ~t] += value
