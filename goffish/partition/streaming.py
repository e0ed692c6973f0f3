"""Streaming partitioners: every vertex is placed when it arrives, by where its neighbors are."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.graph import Graph
from goffish.partition import kernels
from goffish.partition.links import Links, links
from goffish.partition.options import FennelOptions, LdgOptions


def ldg(graph: Graph, parts: int, options: LdgOptions | None = None) -> NDArray[np.int32]:
    """Linear deterministic greedy: the part with the largest ``|N(v) ∩ P| · (1 - |P| / C)``.

    ``C`` is the capacity, see `capacity`. Neighbors are those of the undirected simple graph. Ties go to
    the smaller part, then to the lower number.

    Returns
    -------
    int32, shape (n,)

    References
    ----------
    I. Stanton, G. Kliot: Streaming graph partitioning for large distributed graphs. KDD 2012, section 4.
    Further passes: J. Nishimura, J. Ugander: Restreaming graph partitioning. KDD 2013, section 3 (loads
    start at zero in every pass, neighbors count where they are now).
    """
    options = options or LdgOptions()
    n = graph.num_vertices
    room = capacity(n, parts, options.imbalance)
    penalty = 1.0 - np.arange(room + 1) / room
    return _stream(links(graph), parts, options, linear=True, penalty=penalty, room=room)


def place_new(graph: Graph, owner: NDArray[np.int32], load: NDArray[np.int64]) -> NDArray[np.int32]:
    """Place the vertices of a graph that are in no part (-1) by linear deterministic greedy; the others stay.

    Parameters
    ----------
    graph : Graph
        With all edges of these vertices; of the others, as many as there are.
    owner : int32 array, shape (n,)
    load : int64 array, shape (parts,)
        Vertices of each part, also those that are not in the graph.

    Returns
    -------
    int32, shape (n,)
        As of `ldg`; a part may hold 1.1 times the mean, or as much as the largest does.
    """
    found, new, parts = owner.copy(), np.flatnonzero(owner < 0), load.size
    if not new.size:
        return found
    room = max(capacity(int(load.sum()) + new.size, parts, 1.1), int(load.max(initial=0)))
    leaves = 1 << max(parts - 1, 1).bit_length()
    simple = links(graph)
    kernels.stream(
        simple.offsets, simple.targets, new, True, 1.0 - np.arange(room + 1) / room, room, found, load.copy(),
        np.zeros(parts, np.int64), np.empty(2 * leaves, np.int64),
    )  # fmt: skip
    return found


def fennel(graph: Graph, parts: int, options: FennelOptions | None = None) -> NDArray[np.int32]:
    """Fennel: the part with the largest ``|N(v) ∩ P| - α γ |P|^(γ-1)``, ``α = m k^(γ-1) / n^γ``, at most
    `capacity` vertices.

    ``m`` counts the links of the undirected simple graph. Ties go to the smaller part, then to the lower
    number.

    Returns
    -------
    int32, shape (n,)

    References
    ----------
    C. Tsourakakis, C. Gkantsidis, B. Radunovic, M. Vojnovic: FENNEL: streaming graph partitioning for
    massive scale graphs. WSDM 2014, sections 3 and 4 (γ = 3/2, ν = 1.1). Further passes as in `ldg`.
    """
    options = options or FennelOptions()
    n, gamma = graph.num_vertices, options.gamma
    simple = links(graph)
    room = capacity(n, parts, options.imbalance)
    alpha = simple.targets.size / 2 * float(parts) ** (gamma - 1) / float(max(n, 1)) ** gamma
    penalty = alpha * gamma * np.arange(room + 1, dtype=np.float64) ** (gamma - 1)
    return _stream(simple, parts, options, linear=False, penalty=penalty, room=room)


def capacity(n: int, parts: int, imbalance: float) -> int:
    """Vertices that a part may hold: ``imbalance · n / parts`` rounded down, but enough for all vertices to
    fit.
    """
    return max(int(min(imbalance * n / parts, n)), ceil(n / parts), 1)


def _stream(
    simple: Links,
    parts: int,
    options: LdgOptions | FennelOptions,
    *,
    linear: bool,
    penalty: NDArray[np.float64],
    room: int,
) -> NDArray[np.int32]:
    n = simple.offsets.size - 1
    # Of more parts than vertices only the first n can ever be the lightest.
    used = max(min(parts, n), 1)
    order = _arrival(simple, options)
    owner = np.full(n, -1, np.int32)
    leaves = 1 << max(used - 1, 1).bit_length()
    lightest = np.empty(2 * leaves, np.int64)
    for _ in range(options.passes):
        load, count = np.zeros(used, np.int64), np.zeros(used, np.int64)
        kernels.stream(simple.offsets, simple.targets, order, linear, penalty, room, owner, load, count, lightest)
    return owner


def _arrival(simple: Links, options: LdgOptions | FennelOptions) -> NDArray[Any]:
    n = simple.offsets.size - 1
    if options.order == "random":
        # Sorting hashes instead of a generator's permutation: the same on every machine and NumPy version.
        hashes = np.empty(n, np.uint64)
        kernels.hash_numbers(options.seed, hashes)
        return np.argsort(hashes, kind="stable")
    if options.order == "degree":
        return np.argsort(-np.diff(simple.offsets), kind="stable")
    natural = np.arange(n)
    if options.order == "bfs":
        order = np.empty(n, np.int64)
        kernels.bfs_order(simple.offsets, simple.targets, natural, order, np.full(n, -2, np.int64))
        return order
    return natural
