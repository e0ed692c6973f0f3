"""Eigenvectors of the normalized Laplacian of a whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.components.in_memory import component_of
from goffish.algorithms.spectral.in_memory import Product
from goffish.errors import InputError, JobError
from goffish.extras import needed_for
from goffish.gopher.result import Result
from goffish.graph import Graph

_Matrix = NDArray[np.float64]

#: Vertices up to which all eigenvectors are computed, in dense matrices.
_DENSE = 256
#: Eigenvalue in place of the trivial ones: below -1, and hardly so, because a wider spectrum takes longer.
_LOWEST = -1.05
#: Entries whose magnitudes differ by this share count as equal where the sign of a vector is chosen.
_EQUAL = 1e-6


@dataclass(frozen=True)
class Embedding:
    """Eigenvectors, with what is proved about them.

    Attributes
    ----------
    vectors : float64, shape (n, dimension)
    values : float64, shape (at most dimension,)
        Eigenvalues, ascending.
    residual : float
        Largest ``‖L x - λ x‖₂``.
    """

    vectors: _Matrix
    values: NDArray[np.float64]
    residual: float


def embedding_of(
    graph: Graph, *, dimension: int = 8, weighted: bool = False, tolerance: float = 1e-6, max_iterations: int = 1000,
    seed: int = 0, threads: int | None = None,
) -> Embedding:  # fmt: skip
    """Orthonormal eigenvectors of ``L = I - S``, where ``S = D⁻¹ᐟ² A D⁻¹ᐟ²``, beside the trivial ones.

    Those are ``D¹ᐟ²`` on a connected component and 0 elsewhere, and the vertices without edges. The operator moves
    their eigenvalues, 1 and 0 of S, below all others, which are at least -1.

    Raises
    ------
    JobError
        A residual is above the tolerance after `max_iterations`.
    """
    graph = _plain(graph, weighted)
    product = Product(graph, weighted, threads)
    n = product.n
    try:
        vectors = np.zeros((n, dimension))
    except MemoryError:
        raise InputError(f"dimension={dimension}: {n:,} vectors do not fit in memory") from None
    if not n:
        return Embedding(vectors, np.empty(0), 0.0)
    sums = np.empty(n)
    product(np.ones(n), sums)
    alone = sums == 0.0
    scale = np.divide(1.0, np.sqrt(sums), out=np.zeros(n), where=~alone)
    _, component = np.unique(component_of(graph), return_inverse=True)
    # Of length 1 on each component.
    trivial = np.sqrt(sums)
    trivial /= np.sqrt(np.bincount(component, sums))[component] + alone
    count = min(dimension, int(np.count_nonzero(~alone)) - np.unique(component[~alone]).size)
    lowered, apart, image = (1.0 - _LOWEST) * trivial, np.flatnonzero(alone), np.empty(n)
    several = bool(component.any())

    def multiply(x: _Matrix) -> _Matrix:
        x = x.ravel()
        product(scale * x, image)
        result: _Matrix = scale * image
        if several:
            result -= lowered * np.bincount(component, trivial * x)[component]
            result[apart] = _LOWEST * x[apart]
        else:
            result -= float((trivial * x).sum()) * lowered
        return result

    if count < 1:
        return Embedding(vectors, np.empty(0), 0.0)
    if n <= max(_DENSE, 4 * count):
        values, found = np.linalg.eigh(np.column_stack([multiply(one) for one in np.eye(n)]))
        found = found[:, : -count - 1 : -1]
    else:
        found = _lanczos(multiply, n, count, tolerance, max_iterations, seed)
    found[alone] = 0.0  # and no rounding errors
    images = np.column_stack([multiply(one) for one in found.T])
    values = np.einsum("ij,ij->j", found, images)
    residual = float(np.linalg.norm(images - found * values, axis=0).max())
    if not residual <= tolerance:
        raise JobError(
            f"spectral-embedding: residual {residual:.2g} after {max_iterations} iterations, tolerance {tolerance:g}; "
            "increase max_iterations or tolerance"
        )
    order = np.argsort(-values, kind="stable")
    vectors[:, :count] = _signed(found[:, order])
    return Embedding(vectors, np.maximum(1.0 - values[order], 0.0), residual)


def spectral_embedding(graph: Graph, **options: Any) -> Result:
    """The table of ``goffish run spectral-embedding``: a column for each dimension."""
    found = embedding_of(graph, **options)
    columns = {f"x{at}": np.ascontiguousarray(found.vectors[:, at]) for at in range(found.vectors.shape[1])}
    summary = {
        "dimension": found.vectors.shape[1], "eigenvectors": found.values.size,
        "largest_eigenvalue": float(found.values.max(initial=0.0)), "residual": found.residual,
    }  # fmt: skip
    return Result("spectral-embedding", pa.table({"vertex": graph.label_column(), **columns}), summary)


def _plain(graph: Graph, weighted: bool) -> Graph:
    """The graph without directions, and without edges that weigh nothing."""
    if not weighted:
        graph = graph.unweighted()
    elif graph.weights is not None and not graph.weights.all():
        _, _, weights, _ = graph.edge_columns()
        assert weights is not None
        graph = graph.filter(edges=weights != 0.0)
    return graph.to_undirected(parallel="sum" if weighted else "first")


def _lanczos(multiply: Any, n: int, count: int, tolerance: float, most: int, seed: int) -> _Matrix:
    with needed_for("spectral_embedding"):
        from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    start = np.random.default_rng(seed).standard_normal(n)
    operator = LinearOperator((n, n), matvec=multiply, dtype=np.float64)
    try:
        _, found = eigsh(
            operator, count, which="LA", v0=start, ncv=min(n, max(4 * count, 40)), maxiter=most, tol=tolerance / 4.0
        )
    except ArpackNoConvergence as error:
        raise JobError(
            f"spectral-embedding: {len(error.eigenvalues)} of {count} eigenvectors found after {most} iterations; "
            "increase max_iterations or tolerance"
        ) from None
    vectors: _Matrix = found
    return vectors


def _signed(vectors: _Matrix) -> _Matrix:
    """Vectors whose largest entry, the first of those as large, is positive."""
    sizes = np.abs(vectors)
    first = (sizes >= (1.0 - _EQUAL) * sizes.max(axis=0)).argmax(axis=0)
    return vectors * np.where(np.take_along_axis(vectors, first[None], axis=0) < 0.0, -1.0, 1.0)
