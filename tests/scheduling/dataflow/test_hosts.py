"""Machines as columns for planners of places, and the longest path of a dataflow."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.dataflows.generators import layered_dataflow
from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.hosts import host_columns, machine_hosts
from goffish.scheduling.dataflow.needs import Needs, need_columns


def test_one_figure_or_one_for_each() -> None:
    """Breaks when a host is far from itself, or rows and columns are mixed up."""
    two = host_columns(["a", "b"], cores=[2, 1], memory_mb=[1000, np.inf], latency_ms=5)
    assert two.latencies_s.tolist() == [[0, 0.005], [0.005, 0]] and two.speeds.tolist() == [1, 1]
    assert np.isinf(two.memory_mb).tolist() == [False, True] and two.cores.tolist() == [2, 1]
    square = host_columns(["a", "b"], latency_ms=[[3, 1], [7, 0]], traffic_prices=2)
    assert square.latency_ms.tolist() == [[0, 1], [7, 0]] and square.traffic_prices.tolist() == [[0, 2], [2, 0]]
    with pytest.raises(InputError, match=r"cores: shape \(3,\) does not fit 2 hosts; give one number, or shape \(2,\)"):
        host_columns(["a", "b"], cores=[1, 2, 3])
    with pytest.raises(
        InputError, match="unknown fields price; accepted: cores, speeds, memory_mb, prices, startup_s,"
    ):
        host_columns(["a", "b"], price=1)


def test_machines_of_a_catalogue_are_hosts() -> None:
    """Breaks when a machine loses speed or price on the way."""
    catalogue = read_catalogue("ec2-2013-m1")
    found = machine_hosts(catalogue, [0, 3], [1.0, 0.5], [0.0, 60.0])
    assert found.cores.tolist() == [1, 4] and found.speeds.tolist() == [1.0, 1.0]
    assert found.prices.tolist() == [0.06, 0.48] and found.startup_s.tolist() == [0, 60]
    assert found.names == ("m1.small", "m1.xlarge")


def test_machines_at_sites_are_hosts_at_sites() -> None:
    """Breaks when a host loses its site, or its delay to hosts at other sites or at its own."""
    link = {"between": ["a", "b"], "latency_ms": 20, "bandwidth_mbit_s": 10}
    classes = [
        {"name": "near", "cores": 1, "price_per_hour": 0.1, "site": "a"},
        {"name": "far", "cores": 1, "price_per_hour": 0.1, "site": "b"},
        {"name": "other", "cores": 1, "price_per_hour": 0.1, "site": "b"},
    ]
    catalogue = read_catalogue({"sites": ["a", "b"], "links": [link], "classes": classes, "latency_ms": 1})
    found = machine_hosts(catalogue, [0, 0, 1, 2], [1.0] * 4)
    assert found.sites == ("a", "a", "b", "b")
    assert found.latency_ms.tolist() == [[0, 1, 20, 20], [1, 0, 20, 20], [20, 20, 0, 1], [20, 20, 1, 0]]
    needs = need_columns(
        [Needs(sites=("b",)), Needs(), Needs(hosts=("near", "other")), Needs(sites=("b",), hosts=("near", "other"))]
    )
    assert found.allowed(needs).astype(int).tolist() == [[0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1]]
    assert needs.tied and not need_columns([Needs()]).tied


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_the_longest_path(seed: int, size: int) -> None:
    """Breaks when the longest path is not the longest of all paths; networkx is the oracle."""
    rng = np.random.default_rng(seed)
    flow = compile_flow(layered_dataflow(size, rng))
    node, edge = rng.random(flow.size), rng.random(flow.pred.size)
    graph = nx.DiGraph()
    for i in range(flow.size):
        graph.add_edge(("in", i), ("out", i), weight=node[i])
        for at in range(flow.pred_offsets[i], flow.pred_offsets[i + 1]):
            graph.add_edge(("out", int(flow.pred[at])), ("in", i), weight=edge[at])
    path = nx.dag_longest_path(graph)
    assert flow.critical_path(node, edge) == pytest.approx(sum(graph[u][v]["weight"] for u, v in pairwise(path)))
