"""The range of weights that algorithms accept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError

#: Sums of up to 10^12 such weights, products of two such sums, and quotients are normal float64 numbers.
LEAST, MOST = 1e-140, 1e140


def check_range(weights: NDArray[np.float64] | None) -> None:
    """Refuse weights that cannot be added up, multiplied and divided without overflow or loss.

    Parameters
    ----------
    weights : float64, shape (arcs,), optional
        Of any part of a graph: each weight is checked by itself, so that partitions do not matter. Of a negative weight
        the magnitude is checked: whether it is accepted at all is up to the algorithm.

    Raises
    ------
    InputError
        If a weight is NaN, or neither 0 nor from `LEAST` to `MOST`.
    """
    if weights is None or not weights.size:
        return
    given = weights
    most, least = float(weights.max()), float(weights.min())
    if least < 0.0:
        weights = np.abs(weights)
        most, least = float(weights.max()), float(weights.min())
    if not least > 0.0:
        least = float(weights.min(where=weights > 0.0, initial=np.inf))
    # A comparison with NaN is false: it is refused as well.
    if not (most <= MOST and least >= LEAST):
        found = given[np.argmax(weights)] if not most <= MOST else given[np.flatnonzero(weights == least)[0]]
        raise InputError(
            f"weight {found:g}: weights must be 0 or from {LEAST:g} to {MOST:g}; scale all weights by the same factor"
        )
