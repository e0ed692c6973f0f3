"""Hosts and networks: what a definition says, what is refused, and plans of instances on them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.dataflows.generators import layered_dataflow
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.infrastructure import infrastructure_of, read_infrastructure
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.host_plan import HostPlan, critical_path
from goffish.scheduling.dataflow.model import read_dataflow

TWO = {"hosts": [{"name": "a", "cores": 2, "memory_mb": 1000}, {"name": "b", "failure": 0.1}], "latency_ms": 5}
FLOW = compile_flow(
    read_dataflow(
        {
            "elements": [
                {"id": "x", "cost": 0.1, "needs": {"memory_mb": 400, "most_instances": 2}},
                {"id": "y", "cost": 0.1, "needs": {"hosts": ["a"], "cores": 0.5, "duration_s": 2}},
            ],
            "edges": [["x", "y"]],
            "inputs": {"x": 1},
        }
    )
)


def test_a_network_as_one_figure_or_as_a_matrix() -> None:
    """Breaks when a host is far from itself, or rows and columns are mixed up."""
    two = read_infrastructure(TWO)
    assert two.latencies_s.tolist() == [[0, 0.005], [0.005, 0]] and np.isinf(two.bandwidths).all()
    assert np.isinf(two.memory_mb).tolist() == [False, True] and two.failures.tolist() == [0, 0.1]
    square = read_infrastructure(TWO | {"latency_ms": [[0, 1], [7, 0]], "bandwidth_mbit_s": [[0, 10], [20, 0]]})
    assert square.latencies_s.tolist() == [[0, 0.001], [0.007, 0]]
    assert square.bandwidths.tolist() == [[np.inf, 10], [20, np.inf]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"latency_ms": [[0, 1]]}, "latency_ms: 2 rows of 2 figures are needed"),
        ({"latency_ms": [[1, 1], [1, 0]]}, "latency_ms: from a host to itself it must be 0"),
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "two hosts are called a"),
        ({"hosts": []}, "hosts"),
        ({"hosts": [{"name": "a", "failure": 1}]}, "failure"),
    ],
)
def test_wrong_definitions_are_refused(change: dict[str, Any], told: str) -> None:
    """Breaks when a wrong definition is taken, or the message does not name the field."""
    with pytest.raises(InputError, match=told):
        read_infrastructure(TWO | change)


def test_machines_of_a_catalogue_are_hosts() -> None:
    """Breaks when a machine loses speed, price or links on the way."""
    catalogue = read_catalogue("ec2-2013-m1")
    found = infrastructure_of(catalogue, [0, 3], [1.0, 0.5])
    assert found.cores.tolist() == [1, 4] and found.speeds.tolist() == [1.0, 1.0]
    assert found.prices.tolist() == [0.06, 0.48] and found.bandwidths[0, 1] == 20


def test_machines_at_sites_are_hosts_at_sites() -> None:
    """Breaks when a host loses its site, or its links to hosts at other sites."""
    link = {"between": ["a", "b"], "latency_ms": 20, "bandwidth_mbit_s": 10}
    classes = [
        {"name": "near", "cores": 1, "price_per_hour": 0.1, "site": "a", "bandwidth_mbit_s": 40},
        {"name": "far", "cores": 1, "price_per_hour": 0.1, "site": "b"},
    ]
    catalogue = read_catalogue({"sites": ["a", "b"], "links": [link], "classes": classes, "latency_ms": 1})
    found = infrastructure_of(catalogue, [0, 0, 1])
    assert [host.site for host in found.hosts] == ["a", "a", "b"]
    assert found.latencies_s.tolist() == [[0, 0.001, 0.02], [0.001, 0, 0.02], [0.02, 0.02, 0]]
    assert found.bandwidths[0].tolist() == [np.inf, 40, 10]
    assert found.allowed(((), ()), (("b",), ())).tolist() == [[False, False, True], [True] * 3]


def test_hosts_at_sites() -> None:
    """Breaks when links do not count between hosts of different sites, or count although every pair is given."""
    link = {"between": ["a", "b"], "latency_ms": 20, "bandwidth_mbit_s": 10}
    hosts = [{"name": "x", "site": "a"}, {"name": "y", "site": "b"}, {"name": "z", "site": "a"}]
    given = {"sites": ["a", "b"], "links": [link], "hosts": hosts, "latency_ms": 1, "bandwidth_mbit_s": 50}
    found = read_infrastructure(given)
    assert found.latencies_s.tolist() == [[0, 0.02, 0.001], [0.02, 0, 0.02], [0.001, 0.02, 0]]
    assert found.bandwidths.tolist() == [[np.inf, 10, 50], [10, np.inf, 10], [50, 10, np.inf]]
    pairs = [[0, 7, 7], [7, 0, 7], [7, 7, 0]]
    measured = read_infrastructure(given | {"latency_ms": pairs, "bandwidth_mbit_s": pairs})
    assert measured.latencies_s[0, 1] == 0.007 and measured.bandwidths[0, 1] == 7
    with pytest.raises(InputError, match=r"hosts\[0\].site: no site 'c'; sites: a, b"):
        read_infrastructure(given | {"hosts": [{"name": "x", "site": "c"}]})


def host_plan(places: dict[str, list[str]]) -> HostPlan:
    """Instances of each element on hosts, by their names."""
    two = read_infrastructure(TWO)
    counts = np.zeros((FLOW.size, two.size), np.int64)
    for element, hosts in places.items():
        for host in hosts:
            counts[FLOW.names.index(element), two.number(host)] += 1
    return HostPlan(two, counts)


def test_plans_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """Breaks when a plan gives a host more than it has, or an element a host that it may not use."""
    good = host_plan({"x": ["a", "b"], "y": ["a"]})
    good.check(FLOW)
    assert good.instances.tolist() == [2, 1] and good.hosts_of(0) == [0, 1] and good.used.tolist() == [True, True]
    assert good.described(FLOW)["hosts"][0] == {"host": "a", "instances": {"x": 1, "y": 1}}
    for places, told in (
        ({"x": ["a"], "y": ["b"]}, "element y may not run on host b"),
        ({"x": ["a", "a", "b"], "y": ["a"]}, "element x: 3 instances; 1 to 2 are allowed"),
        ({"x": ["a"]}, "element y: 0 instances"),
        ({"x": ["a", "a"], "y": ["a"]}, "host a: 2.5 cores are given, it has 2"),
    ):
        with pytest.raises(InputError, match=told):
            host_plan(places).check(FLOW)
    other = host_plan({"x": ["b", "b"], "y": ["a", "a"]})
    assert good.moved(other) == 1 + 1 and good.moved(good) == 0


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
    assert critical_path(flow, node, edge) == pytest.approx(sum(graph[u][v]["weight"] for u, v in pairwise(path)))
