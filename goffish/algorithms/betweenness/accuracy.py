"""How far estimates of betweenness are from the exact values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.betweenness.sampling import largest
from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.graph.guards import whole_number

#: Share of the vertices whose recall is reported by default.
TOP_SHARE = 0.01


def _pair(exact: ArrayLike, estimate: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    true, found = np.asarray(exact, np.float64), np.asarray(estimate, np.float64)
    if true.ndim != 1 or true.shape != found.shape:
        raise InputError(
            f"exact and estimate must each hold one value per vertex, got shapes {true.shape}, {found.shape}"
        )
    return true, found


def _with_ties(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values in which those that differ only by rounding are equal."""
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    rounded: NDArray[np.float64] = np.round(values / scale, 12)
    return rounded


def top_recall(exact: ArrayLike, estimate: ArrayLike, k: int) -> float:
    """Share of the k vertices of largest exact value that are among the k of largest estimate.

    Ties go to the smaller number on both sides; with as many in either list, it is the precision as well.

    Parameters
    ----------
    exact, estimate : array-like of float, shape (n,)
    k : int
        At least 1; more than n means n.

    Raises
    ------
    InputError
        Different lengths, or k below 1.
    """
    true, found = _pair(exact, estimate)
    k = min(whole_number(k, "k"), true.size)
    return float(np.isin(largest(true, k), largest(found, k)).mean()) if k else 1.0


def rank_correlation(exact: ArrayLike, estimate: ArrayLike) -> float:
    """Kendall's tau-b (1945) of the two rankings, in [-1, 1]; nan where all values of either are the same.

    Values that differ by less than 1e-12 of the largest are ties: sums taken in another order differ by as much.

    Parameters
    ----------
    exact, estimate : array-like of float, shape (n,)

    Raises
    ------
    InputError
        Different lengths.
    """
    with needed_for("rank correlation"):
        from scipy.stats import kendalltau

    true, found = _pair(exact, estimate)
    true, found = _with_ties(true), _with_ties(found)
    if true.size < 2 or np.ptp(true) == 0.0 or np.ptp(found) == 0.0:
        return math.nan
    return float(kendalltau(true, found).statistic)


def largest_error(exact: ArrayLike, estimate: ArrayLike) -> float:
    """Largest absolute difference, in the units of the values.

    Parameters
    ----------
    exact, estimate : array-like of float, shape (n,)

    Raises
    ------
    InputError
        Different lengths.
    """
    true, found = _pair(exact, estimate)
    return float(np.abs(true - found).max(initial=0.0))


def compared(
    exact: NDArray[np.float64], estimate: NDArray[np.float64], *, top: int | None, directed: bool
) -> dict[str, Any]:
    """Measures of the agreement for the summary.

    Parameters
    ----------
    exact, estimate : float64, shape (n,)
        Numbers of pairs, not normalized.
    top : int, optional
        Default: a hundredth of the vertices.
    directed : bool
        Whether pairs are ordered.
    """
    n = exact.size
    k = max(1, math.ceil(TOP_SHARE * n)) if top is None else top
    error, tau = largest_error(exact, estimate), rank_correlation(exact, estimate)
    pairs = n * (n - 1) / (1 if directed else 2)
    return {
        "recall": round(top_recall(exact, estimate, k), 4),
        "recall_of": min(k, n),
        "kendall_tau": None if math.isnan(tau) else round(tau, 4),
        "largest_error": error,
        "largest_error_share": error / pairs if pairs else 0.0,
    }
