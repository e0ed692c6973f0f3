"""What the engine refuses, how it tells who failed, and how it is interrupted."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import networkx as nx
import numpy as np
import pytest

from goffish.algorithms.catalogue import make
from goffish.errors import InputError, JobError
from goffish.gofs import build_layout
from goffish.gopher import SubgraphProgram, per_vertex, run_program
from goffish.graph import from_edges
from tests.cases import no_graph_is_small
from tests.gopher.test_semantics import CHAIN, Silent


def _with(method: str, body: Any) -> SubgraphProgram:
    space = {"message": {"x": np.int64}, method: body}
    if method != "compute":
        space["compute"] = lambda self, sg, step: step.vote_to_halt()
    return type("Faulty", (SubgraphProgram,), space)()


def _boom(*_: Any) -> None:
    raise ZeroDivisionError("no way")


@pytest.mark.parametrize(("method", "where"), [("init", "init"), ("compute", "superstep 1"), ("result", "result")])
def test_an_exception_names_program_subgraph_and_superstep(method: str, where: str) -> None:
    def fail_on_two(self: Any, sg: Any, step: Any = None) -> Any:
        if sg.id == 2:
            _boom()
        if step is not None:
            step.vote_to_halt()
        return {}

    with pytest.raises(
        JobError, match=rf"^Faulty: subgraph 2, partition 2, {where}: ZeroDivisionError: no way$"
    ) as caught:
        run_program(_with(method, fail_on_two), CHAIN)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("send", "problem"),
    [
        (lambda step: step.send_to_subgraph(99, x=1), "subgraph 99, which does not exist"),
        (lambda step: step.send_to_partition(7, x=1), "partition 7, which does not exist"),
        (
            lambda step: step.send_to_vertex(0, 7, x=1),
            "message to vertex 7 in subgraph 0, which does not own it",
        ),
        (lambda step: step.send_to_subgraph(0), r"payload columns \['x'\], got \[\]"),
        (lambda step: step.send_to_subgraph(0, x=1, y=2), r"payload columns \['x'\], got \['x', 'y'\]"),
        (lambda step: step.aggregate("nope", 1), "no aggregator 'nope'"),
        (lambda step: step.aggregated("nope"), "no aggregator 'nope'"),
        (lambda step: step.send_to_subgraph([[0]], x=1), "one-dimensional"),
        (lambda step: step.send_to_subgraph(-1, x=1), "subgraph -1, which does not exist"),
        (lambda step: step.send_to_partition(-1, x=1), "partition -1, which does not exist"),
        (lambda step: step.send_to_vertex(0, -3, x=1), "vertex -3, which does not exist"),
        (lambda step: step.send_to_vertex(0, 8, x=1), "vertex 8, which does not exist"),
        (lambda step: step.send_to_subgraph(1.7, x=1), "addresses must be integers, not float64"),
        (lambda step: step.send_to_subgraph(0, x=2.9), "message column 'x' is int64, got float64"),
    ],
)
def test_misuse_fails_the_job(send: Any, problem: str) -> None:
    def compute(self: Any, sg: Any, step: Any) -> None:
        if step.number == 1:
            send(step)
        step.vote_to_halt()

    with pytest.raises(JobError, match=problem):
        run_program(_with("compute", compute), CHAIN)


def test_undeclared_state_and_attributes_are_errors() -> None:
    def compute(self: Any, sg: Any, step: Any) -> None:
        sg["nothing"]

    with pytest.raises(JobError, match="no state column 'nothing'"):
        run_program(_with("compute", compute), CHAIN)

    def read(self: Any, sg: Any, step: Any) -> None:
        sg.attribute("vertex.age")

    with pytest.raises(JobError, match=r"attribute 'vertex.age' was not declared"):
        run_program(_with("compute", read), CHAIN)


def test_a_program_must_define_compute_and_addresses_are_reserved() -> None:
    with pytest.raises(JobError, match="define compute or compute_batch"):
        run_program(SubgraphProgram(), CHAIN)
    with pytest.raises(InputError, match="'vertex' is reserved"):
        run_program(type("P", (SubgraphProgram,), {"message": {"vertex": np.int64}})(), CHAIN)
    with pytest.raises(InputError, match="use numbers, not Python objects"):
        run_program(type("P", (SubgraphProgram,), {"message": {"x": object}})(), CHAIN)


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        ({"combine": "mean"}, "combine='mean': choose min, max, sum"),
        ({"combine": "min", "message": {}}, "requires a message column"),
        ({"rows": "vertices"}, "rows='vertices': choose vertex, subgraph or free"),
        ({"aggregators": {"x": "avg"}}, "aggregator 'x' is 'avg': choose one of sum, min"),
        ({"state": {"got": np.int64}}, "declare it with per_vertex"),
        ({"state": {"got": per_vertex("U5")}}, "use numbers"),
        ({"message": {"x": "foo"}}, "message column 'x' has type 'foo'"),
    ],
)
def test_meaningless_declarations_are_refused_before_the_job_starts(declaration: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        run_program(type("P", (Silent,), declaration)(), CHAIN)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (lambda self, sg: {"v": np.repeat(sg.vertex_ids, 2)}, r"'v' has shape \(4,\), expected \(2,\)"),
        (lambda self, sg: {"v": sg.id}, r"'v' has shape \(1,\), expected \(2,\)"),
        (lambda self, sg: {"v": np.zeros((2, 2))}, r"'v' has shape \(2, 2\)"),
        (lambda self, sg: {"a" if sg.id else "b": [1, 2]}, r"columns \['b'\] in one partition, \['a'\] in another"),
    ],
)
def test_results_of_the_wrong_shape_name_the_column(result: Any, problem: str) -> None:
    with pytest.raises(JobError, match=problem):
        run_program(_with("result", result), CHAIN)


def test_max_supersteps_fails_an_endless_program() -> None:
    endless = _with("compute", lambda self, sg, step: None)
    with pytest.raises(JobError, match=r"not finished after 5 supersteps \(4 subgraphs still active\)"):
        run_program(endless, CHAIN, max_supersteps=5)


def test_interrupt_reaches_the_caller_while_tasks_are_still_running() -> None:
    """Also with polars, whose signal handler does not wake a waiting thread."""
    import polars  # noqa: F401

    def compute(self: Any, sg: Any, step: Any) -> None:
        time.sleep(3.0)

    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with no_graph_is_small(), pytest.raises(KeyboardInterrupt):
        run_program(_with("compute", compute), CHAIN, threads=2)
    assert time.monotonic() - begun < 2.0


def test_unknown_engine_and_thread_counts() -> None:
    for wrong in ({"engine": "abacus"}, {"threads": 0}, {"checkpoint_every": 0}, {"resume": True}):
        with pytest.raises(InputError):
            run_program(Silent(), CHAIN, **wrong)  # type: ignore[arg-type]


def test_a_program_that_needs_connected_units_refuses_partitions() -> None:
    layout = build_layout(from_edges([0, 2], [1, 3]), np.zeros(4, np.int32), 1, finder="single")
    with pytest.raises(InputError, match="requires connected subgraphs"):
        run_program(make("max-value", {}).program(layout), layout)
    assert nx.number_connected_components(nx.Graph([(0, 1), (2, 3)])) == 2
    assert run_program(make("components", {}).program(layout), layout).to_dict() == {0: 1, 1: 1, 2: 3, 3: 3}
