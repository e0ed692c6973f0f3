"""Searches whose answers do not hang on one seed: what several of them agree on, searched again.

The engine's program uses both ends of it: partitions collapse only what their own searches agree on, and the master
searches the merged graph (Ovelgönne and Geyer-Schulz 2012, core groups of an ensemble).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities.hierarchy import meet
from goffish.algorithms.communities.in_memory import Found, Run, singletons
from goffish.algorithms.communities.levels import Labels, Level, collapse, number_labels
from goffish.algorithms.communities.settings import Refine, Search

# With half as many searches, one run in fifty on soc-Epinions1 ended below the sequential method.
_TRIES, _CORE_TRIES = 6, 3
#: Three searches that differ by less modularity show that it does not depend on chance.
_ALIKE = 1e-3
#: Arcs above which there is only one search: chance evens out on large graphs.
_MOST_TRIED_ARCS = 1 << 20
#: Local movings that have to agree, and the gain of a pass below which one ends.
_SIGHTS, _SIGHT_TOLERANCE = 2, 1e-3


def search_ensemble(level: Level, search: Search) -> Found:
    """Communities of a level graph, each of them connected.

    Six searches from single vertices, or three of the same quality; the parts that they all agree on are searched as
    one graph by Leiden's method, three times, and from the best communities once more the level itself. A graph of more
    than 2^20 arcs, or with ``search.max_levels``, is only searched once by Leiden's method.

    Parameters
    ----------
    level : Level
    search : Search
        Its `refine` does not matter.
    """
    if level.num_arcs > _MOST_TRIED_ARCS or search.max_levels is not None:
        return _found(level, search, 0, "leiden", singletons(level))
    agreed: NDArray[np.int64] | None = None
    reached: list[float] = []
    for number in range(_TRIES):
        found = _found(level, search, number, "vertices", singletons(level))
        agreed = found.membership if agreed is None else meet(agreed, found.membership)
        reached.append(found.modularity)
        if number == 2 and max(reached) - min(reached) < _ALIKE:
            break
    assert agreed is not None
    parts = agreed.astype(level.targets.dtype)
    above = collapse(level, parts, number_labels(parts), 1)
    numbers = range(_TRIES, _TRIES + _CORE_TRIES)
    tried = [_found(above, search, number, "leiden", singletons(above)) for number in numbers]
    start = max(tried, key=lambda found: found.modularity).membership[parts]
    return _found(level, search, _TRIES + _CORE_TRIES, "leiden", start.astype(level.targets.dtype))


def search_from(level: Level, search: Search, start: NDArray[np.int64], held: NDArray[np.uint8]) -> Found:
    """Communities found from given ones, by Louvain's or Leiden's method; those for which `held` is set never move."""
    run = Run(search, None, held if held.any() else None, patient=True)
    begin = start.astype(level.targets.dtype)
    with run.pool:
        return run.leiden(level, begin) if search.refine == "leiden" else run.louvain(level, begin)


def agreed_communities(level: Level, search: Search) -> tuple[NDArray[np.int64], int]:
    """What two local movings from single vertices agree on, and the passes of the longer one.

    Returns
    -------
    labels : int64, shape (n,)
        Numbered 0 … c-1 by first appearance.
    passes : int
    """
    run = Run(search, None, None)
    agreed: NDArray[np.int64] | None = None
    for _ in range(_SIGHTS):
        labels = singletons(level)
        run.move(level, labels, _SIGHT_TOLERANCE, None)
        found = labels.astype(np.int64)
        agreed = found if agreed is None else meet(agreed, found)
    assert agreed is not None
    return agreed, max(run.passes)


def connected_pieces(
    level: Level, labels: NDArray[np.int64], alone: NDArray[np.bool_], search: Search
) -> tuple[NDArray[np.int64], int]:
    """Connected pieces of communities, grown from single vertices where that gains modularity, and their number.

    Parameters
    ----------
    level : Level
    labels : int64, shape (n,)
        Numbers below n.
    alone : bool, shape (n,)
        Vertices that become pieces by themselves.
    search : Search
    """
    n = level.num_vertices
    apart = np.where(alone, n + np.arange(n), labels)
    used = np.zeros(2 * n, np.int64)
    used[apart] = 1
    given = (np.cumsum(used) - 1)[apart].astype(level.targets.dtype)
    pieces = Run(search, None, None).grow_pieces(level, given, number_labels(given))
    count = number_labels(pieces)
    return pieces.astype(np.int64), count


def seed_of(*parts: int) -> int:
    """One seed from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])


def _found(level: Level, search: Search, number: int, refine: Refine, start: Labels) -> Found:
    run = Run(replace(search, seed=seed_of(search.seed or 0, number), refine=refine), None, None)
    return run.leiden(level, start) if refine == "leiden" else run.louvain(level, start)
