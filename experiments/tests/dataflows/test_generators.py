"""Random dataflows."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.dataflows.generators import layered_dataflow, mixed_dataflow, staged_dataflow
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import Goal


def test_staged_dataflows_are_those_of_the_paper() -> None:
    """Breaks when ranges, the number of alternates or the lanes differ, or rates multiply.

    See docs/specs/plasticc.md, section 4.4.
    """
    flows = [staged_dataflow(np.random.default_rng(seed)) for seed in range(40)]
    for dataflow in flows:
        flow = compile_flow(dataflow)
        assert flow.size == 30 and flow.inputs.size == 3 and flow.outputs.size == 3
        edges = set(dataflow.edges)
        assert all((f"s{k}l{j}", f"s{k + 1}l{j}") in edges for k in range(9) for j in range(3))
        assert all(int(v[1:].split("l")[0]) == int(u[1:].split("l")[0]) + 1 for u, v in edges)
        sent = {name: sum(u == name for u, _ in edges) for name in flow.names}
        for element in dataflow.elements:
            best, *others = element.choices
            assert best.value == 1 and 0.05 <= best.cost <= 0.25
            assert 0.9 <= best.selectivity * max(1, sent[element.id]) <= 1.1
            for other in others:
                assert 0.6 <= other.value <= 0.95
                assert 0.4 <= other.cost / best.cost / other.value <= 0.9
                assert min(abs(other.selectivity / best.selectivity - s) for s in (0.8, 1.0, 1.2)) < 1e-9
        into, _ = flow.ideal(flow.best, flow.rates)
        assert into.max() < 10 * 38.5
    assert np.mean([len(flow.edges) for flow in flows]) == pytest.approx(27 * 1.3, rel=0.05)
    assert np.mean([compile_flow(flow).cost.size for flow in flows]) == pytest.approx(45, rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.integers(0, 1000))
def test_layered_dataflows_of_any_size(elements: int, seed: int) -> None:
    """E8: breaks when a size cannot be made, an element gets no input, or rates explode with the depth."""
    dataflow = layered_dataflow(elements, np.random.default_rng(seed))
    flow = compile_flow(dataflow)
    assert flow.size == elements and (flow.rates[flow.inputs] == 5).all()
    into, _ = flow.ideal(flow.best, flow.rates)
    assert into.min() > 0 and into.max() < 5 * (elements + 1)
    assert dataflow == layered_dataflow(elements, np.random.default_rng(seed))


def test_layered_dataflows_are_deep() -> None:
    """Breaks when a large graph is flat: planning it would be too easy."""
    graph = nx.DiGraph(layered_dataflow(1000, np.random.default_rng(0)).edges)
    assert nx.dag_longest_path_length(graph) == 31
    wide = layered_dataflow(100, np.random.default_rng(0), width=50, goal=Goal(throughput=0.5))
    assert len(wide.inputs) == 50 and wide.goal.throughput == 0.5


def test_mixed_dataflows() -> None:
    """§4.4: figures as in the release; breaks when they leave their ranges."""
    dataflow = mixed_dataflow(np.random.default_rng(1))
    flow = compile_flow(dataflow)
    assert flow.size == 100 and set(flow.alternate_counts) == {1, 2, 3}
    assert set(np.round(flow.cost, 9)) == {0.1, 0.2, 0.3, 0.4, 0.5, 0.6} and set(flow.selectivity) == {0.5, 1, 2}
    assert all(0.6 <= a.value <= 1 for e in dataflow.elements for a in e.choices)
    for make in (lambda r: mixed_dataflow(r, elements=0), lambda r: layered_dataflow(3, r, width=0)):
        with pytest.raises(InputError, match="at least 1"):
            make(np.random.default_rng(0))
    with pytest.raises(InputError, match="stages = 0"):
        staged_dataflow(np.random.default_rng(0), stages=0)
