"""Against NetworkX; run with ``pip install -e . pytest && pytest``."""

import networkx as nx
import pytest

import goffish as gf


def test_values() -> None:
    graph = nx.barabasi_albert_graph(100, 3, seed=1)
    expected = nx.average_neighbor_degree(graph)
    found = gf.run("neighbor-degree", gf.from_networkx(graph))
    assert found.to_dict() == pytest.approx(expected)
    assert nx.average_neighbor_degree(graph, backend="goffish") == pytest.approx(expected)


def test_options() -> None:
    graph = gf.from_edges([1, 1, 2], [2, 3, 4])
    assert gf.run("neighbor-degree", graph, least=2).to_dict() == {1: 1.5, 2: 1.5}
    with pytest.raises(gf.InputError, match="least"):
        gf.run("neighbor-degree", graph, least=-1)
