"""Spectral embeddings, against all eigenvectors of dense matrices and the definition of residuals."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import goffish as gf
from goffish.algorithms.spectral import embedding
from goffish.errors import InputError, JobError
from tests.algorithms.communities.graphs import planted
from tests.algorithms.test_spectral import EDGES, Case, build, matrix


def laplacian(dense: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = dense.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(sums), out=np.zeros_like(sums), where=sums > 0)
    return np.diag((sums > 0).astype(float)) - scale[:, None] * dense * scale


def check(vectors: NDArray[np.float64], dense: NDArray[np.float64], tolerance: float = 1e-9) -> None:
    """Orthonormal eigenvectors of the smallest eigenvalues but one 0 for each component, and columns of 0 behind."""
    matrix = laplacian(dense)
    linked = dense.any(axis=1)
    trivial = connected_components(dense[linked][:, linked], directed=False)[0] if linked.any() else 0
    values = np.linalg.eigvalsh(matrix[linked][:, linked])[trivial:][: vectors.shape[1]]
    found = vectors[:, : values.size]
    assert np.abs(found.T @ found - np.eye(values.size)).max(initial=0.0) <= 1e-8
    assert np.linalg.norm(matrix @ found - found * values, axis=0).max(initial=0.0) <= 10 * tolerance
    assert not vectors[:, values.size :].any() and not vectors[~linked].any()
    assert (np.abs(found).max(axis=0, initial=0.0) <= found.max(axis=0, initial=0.0) * (1 + 2e-6)).all()


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.booleans(), st.sampled_from([1, 3, 20]))
def test_columns_are_the_smallest_eigenvectors(case: Case, directed: bool, weighted: bool, dimension: int) -> None:
    """Breaks when a component keeps its trivial vector, or a loop, direction or weight of 0 counts otherwise."""
    n, edges = case
    dense = matrix(n, edges, directed, weighted)
    if directed:
        dense = dense + dense.T - np.diag(np.diag(dense))
    if not weighted and directed:
        # Arcs in both directions are one edge, parallel ones as well.
        dense = (dense > 0).astype(float)
    graph = build(n, edges, directed)
    check(gf.spectral_embedding(graph, dimension=dimension, weighted=weighted, threads=1), dense)


@pytest.mark.parametrize("weighted", [False, True])
def test_iteration(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanczos on a graph of several components, isolated vertices among them; threads change no bit."""
    monkeypatch.setattr(embedding, "_DENSE", 32)
    parts = planted(200, groups=4, seed=3, weighted=True)
    src, dst, weight, _ = parts.edge_columns()
    src, dst = np.append(src, [200, 201, 203]), np.append(dst, [201, 202, 204])
    graph = gf.from_edges(src, dst, np.append(weight, [1.0, 2.0, 3.0]), labels=np.arange(208))
    dense = np.asarray(gf.to_scipy(graph if weighted else graph.unweighted()).toarray())
    options = {"dimension": 5, "weighted": weighted, "tolerance": 1e-8}
    found = gf.spectral_embedding(graph, **options, threads=1)
    check(found, dense, 1e-8)
    assert np.abs(found[200:]).max() < 1e-8 and not found[205:].any()
    assert (found == gf.spectral_embedding(graph, **options, threads=3)).all()
    other = gf.spectral_embedding(graph, **options, seed=7)
    assert np.abs(other - found).max() < 1e-6
    # Four planted groups, told apart by three vectors.
    groups = found[:200, :3].reshape(4, 50, 3)
    centers = groups.mean(axis=1)
    nearest = np.linalg.norm(found[:200, None, :3] - centers, axis=2).argmin(axis=1)
    assert (nearest == np.repeat(np.arange(4), 50)).mean() > 0.95
    table = gf.run("spectral-embedding", graph, **options)
    assert table.summary["residual"] <= 1e-8 and table.summary["eigenvectors"] == 5
    assert (np.column_stack([table.table[f"x{at}"] for at in range(5)]) == found).all()


def test_known_values() -> None:
    """The first vector of a path is its cosine; a store gives that of its graph."""
    n = 300
    graph = gf.from_edges(np.arange(n - 1), np.arange(1, n))
    found = gf.spectral_embedding(graph, dimension=2, tolerance=1e-7)
    wanted = np.cos(np.pi * np.arange(n) / (n - 1)) * np.sqrt(graph.out_degrees)
    assert np.abs(found[:, 0] - wanted / np.linalg.norm(wanted)).max() < 1e-3
    small = gf.from_networkx(nx.karate_club_graph())
    assert np.allclose(gf.spectral_embedding(gf.partition(small, 2)), gf.spectral_embedding(small))
    assert gf.spectral_embedding(gf.from_edges([], [])).shape == (0, 8)
    assert not gf.spectral_embedding(gf.from_edges([], [], labels=[3, 4]), dimension=2).any()


def test_refused() -> None:
    graph = gf.from_edges(np.arange(400), np.arange(1, 401))
    with pytest.raises(InputError, match="spectral-embedding: dimension=0"):
        gf.spectral_embedding(graph, dimension=0)
    with pytest.raises(InputError, match="the graph has no weights"):
        gf.spectral_embedding(graph, weighted=True)
    with pytest.raises(JobError, match="of 8 eigenvectors found after 1 iterations"):
        gf.spectral_embedding(graph, max_iterations=1, tolerance=1e-12)
