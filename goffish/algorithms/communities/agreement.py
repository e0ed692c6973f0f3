"""How alike two divisions of the same things are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import community_kernels as kernels
from goffish.algorithms.communities.named import group_codes
from goffish.errors import InputError


def agreement(first: Any, second: Any) -> dict[str, float]:
    """Compare two divisions by normalised and adjusted measures.

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
    The expected mutual information behind ``ami`` is computed by the distinct sizes of groups, because
    scikit-learn's function, which goes through all pairs of groups, takes minutes for ten thousand of them.

    Examples
    --------
    >>> from goffish.algorithms.communities.agreement import agreement
    >>> agreement(["a", "a", "b"], [7, 7, 1])
    {'nmi': 1.0, 'ari': 1.0, 'ami': 1.0}
    """
    from sklearn.metrics import adjusted_rand_score, mutual_info_score, normalized_mutual_info_score

    left, right = _complete(first, "first"), _complete(second, "second")
    if left.size != right.size:
        raise InputError(f"first has {left.size} rows, second has {right.size}: give one group per thing in both")
    if not left.size:
        raise InputError("first and second are empty: there is nothing to compare")
    return {
        "nmi": float(normalized_mutual_info_score(left, right)),
        "ari": float(adjusted_rand_score(left, right)),
        "ami": _adjusted(left, right, float(mutual_info_score(left, right))),
    }


def _adjusted(left: NDArray[np.int64], right: NDArray[np.int64], information: float) -> float:
    sizes = [np.bincount(codes) for codes in (left, right)]
    groups = [size.size for size in sizes]
    # Only one division into one group, or into single things, exists: chance cannot do worse than perfect.
    if groups[0] == groups[1] and groups[0] in (1, left.size):
        return 1.0
    if 1 in groups:
        return 0.0
    if groups[0] == groups[1] == np.unique(left * groups[1] + right).size:
        return 1.0  # equal divisions, which rounding would put a little above 1
    entropy = [float(-(size / left.size) @ np.log(size / left.size)) for size in sizes]
    (first, first_many), (second, second_many) = (np.unique(size, return_counts=True) for size in sizes)
    expected = kernels.expected_mutual_information(first, first_many, second, second_many, left.size)
    return float((information - expected) / (sum(entropy) / 2 - expected))


def _complete(values: Any, name: str) -> NDArray[np.int64]:
    codes = group_codes(values, name)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        raise InputError(f"{name}: row {missing[0]} has no group")
    return codes
