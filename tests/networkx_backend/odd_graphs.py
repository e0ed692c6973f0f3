"""Random networkx graphs of all four kinds whose nodes are any hashable objects."""

from __future__ import annotations

import networkx as nx
from hypothesis import strategies as st


class Thing:
    """Hashable by identity, not comparable."""


THINGS = [Thing() for _ in range(4)]

NODES = st.one_of(
    st.integers(-5, 12),
    st.sampled_from("abcdé"),
    st.tuples(st.integers(0, 3), st.sampled_from(["x", None])),
    st.sampled_from([1.5, -0.25, frozenset({1}), b"bytes", *THINGS]),
)
WEIGHTS = {
    "none": st.none(),
    "integers": st.integers(0, 9),
    "floats": st.floats(0.125, 8, allow_nan=False).map(lambda w: round(w, 3)),
    "positive": st.integers(1, 4),
}


@st.composite
def odd_graphs(
    draw: st.DrawFn,
    kinds: tuple[type[nx.Graph], ...] = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph),
    weights: tuple[str, ...] = ("none", "integers", "floats"),
    loops: bool = True,
) -> nx.Graph:
    """Up to 14 nodes; some edges of a weighted graph may lack the weight."""
    graph = draw(st.sampled_from(kinds))()
    plain = draw(st.booleans())
    nodes = list(range(draw(st.integers(0, 14)))) if plain else draw(st.lists(NODES, max_size=14, unique=True))
    graph.add_nodes_from(nodes)
    if not nodes:
        return graph
    weight = WEIGHTS[draw(st.sampled_from(weights))]
    partly = draw(st.booleans())
    for u, v, w, bare in draw(
        st.lists(
            st.tuples(st.sampled_from(nodes), st.sampled_from(nodes), weight, st.booleans()), max_size=3 * len(nodes)
        )
    ):
        if loops or u is not v:
            graph.add_edge(u, v, **({} if w is None or (partly and bare) else {"weight": w}))
    return graph
