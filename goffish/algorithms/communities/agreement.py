"""How alike two divisions of the same things are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import community_kernels as kernels
from goffish.algorithms.communities.named import group_codes
from goffish.errors import InputError


def agreement(first: Any, second: Any) -> dict[str, float]:
    """Compare two divisions by normalized and adjusted measures.

    Parameters
    ----------
    first, second : array-like, shape (n,)
        Group of each thing, in the same order: numbers, texts or anything hashable.

    Returns
    -------
    dict
        ``nmi``: mutual information over the arithmetic mean of the entropies (0 … 1). ``ari``: Rand index adjusted
        for chance (L. Hubert, P. Arabie, Journal of Classification 2 (1985); 1 for equal divisions, 0 on average for
        random ones). ``ami``: mutual information adjusted for chance (N. X. Vinh, J. Epps, J. Bailey, JMLR 11 (2010),
        arithmetic mean; likewise). All three are symmetric and 1 for equal divisions.

    Raises
    ------
    InputError
        Columns of different length, empty ones, or a thing without a group.

    Notes
    -----
    The expected mutual information behind ``ami`` is computed by the distinct sizes of groups: a sum over all pairs of
    groups, as in scikit-learn, takes minutes for ten thousand of them.

    Examples
    --------
    >>> from goffish.algorithms.communities.agreement import agreement
    >>> agreement(["a", "a", "b"], [7, 7, 1])
    {'nmi': 1.0, 'ari': 1.0, 'ami': 1.0}
    """
    left, right = _complete(first, "first"), _complete(second, "second")
    if left.size != right.size:
        raise InputError(f"first has {left.size} rows, second has {right.size}: expected one group per item in both")
    if not left.size:
        raise InputError("first and second are empty; expected at least one item")
    sizes = [np.bincount(codes) for codes in (left, right)]
    both = np.unique(left * sizes[1].size + right, return_counts=True)[1]
    if sizes[0].size == sizes[1].size == both.size:
        return {"nmi": 1.0, "ari": 1.0, "ami": 1.0}  # equal divisions, which rounding would put a little off 1
    entropies = [_entropy(size) for size in sizes]
    information = max(0.0, sum(entropies) - _entropy(both))
    return {
        "nmi": information / (sum(entropies) / 2),
        "ari": _adjusted_rand(both, *sizes),
        "ami": _adjusted(sizes, left.size, information, sum(entropies) / 2),
    }


def _entropy(counts: NDArray[np.int64]) -> float:
    share = counts / counts.sum()
    return float(-(share @ np.log(share)))


def _adjusted_rand(both: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    together, first, second = (float(size @ (size - 1)) for size in (both, left, right))
    count = float(left.sum())
    expected = first * second / (count * (count - 1))
    return (together - expected) / ((first + second) / 2 - expected)


def _adjusted(sizes: list[NDArray[np.int64]], count: int, information: float, entropy: float) -> float:
    if 1 in (sizes[0].size, sizes[1].size):
        return 0.0
    (first, first_many), (second, second_many) = (np.unique(size, return_counts=True) for size in sizes)
    expected = kernels.expected_mutual_information(first, first_many, second, second_many, count)
    return float((information - expected) / (entropy - expected))


def _complete(values: Any, name: str) -> NDArray[np.int64]:
    codes = group_codes(values, name)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        raise InputError(f"{name}: row {missing[0]} has no group")
    return codes
