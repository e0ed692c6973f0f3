"""Delivery, activity and halting of the engine (docs/specs/engine.md, sections 3, 6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.algorithms.catalogue import ALGORITHMS, make
from goffish.gofs import build_layout
from goffish.gopher import SubgraphProgram, per_neighbor, per_remote, per_subgraph, per_vertex, run_program
from goffish.gopher.messages import combine, message_dtype
from goffish.graph import from_edges
from tests.cases import Case, cases, grid, grid_blocks, no_graph_is_small

CHAIN = build_layout(from_edges(np.arange(7), np.arange(1, 8)), np.arange(8, dtype=np.int32) // 2, 4)
"""Path of eight vertices, four partitions of one subgraph each."""


class Probe(SubgraphProgram):
    """Passes messages stamped with the sending superstep around for a while."""

    message = {"stamp": np.int64}
    state = {"calls": per_subgraph(np.int64), "late": per_subgraph(np.int64)}
    rows = "subgraph"

    def compute(self, sg: Any, step: Any) -> None:
        sg["calls"] += 1
        sg["late"] += int((step.messages["stamp"] != step.number - 1).sum())
        if step.number <= 5:
            step.send_to_neighbors(stamp=step.number)
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"calls": sg["calls"], "late": sg["late"]}


@given(cases())
def test_messages_arrive_in_the_next_superstep(case: Case) -> None:
    table = run_program(Probe(), case.layout()).table
    assert sum(table["late"].to_pylist()) == 0


class HalvesTurns(SubgraphProgram):
    """All vote at once; subgraph 0 sends to subgraph 2 in superstep 1 only."""

    message = {"x": np.int64}
    state = {"calls": per_subgraph(np.int64), "last": per_subgraph(np.int64)}
    rows = "subgraph"

    def compute(self, sg: Any, step: Any) -> None:
        sg["calls"] += 1
        sg["last"] = step.number
        if step.number == 1 and sg.id == 0:
            step.vote_to_halt()
            step.send_to_subgraph(2, x=7)  # sent although the vote came first
        if step.number != 2:
            step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"calls": sg["calls"], "last": sg["last"]}


def test_halted_subgraphs_sleep_until_a_message_wakes_them() -> None:
    result = run_program(HalvesTurns(), CHAIN)
    # Subgraph 2 is woken in superstep 2, does not vote, hence is called in 3 again, and votes.
    assert result.table["calls"].to_pylist() == [1, 1, 3, 1]
    assert result.table["last"].to_pylist() == [1, 1, 3, 1]
    assert result.stats is not None
    assert result.stats.supersteps == 3
    assert result.stats.per_superstep("active").tolist() == [4, 1, 1]


class Silent(SubgraphProgram):
    def compute(self, sg: Any, step: Any) -> None:
        step.vote_to_halt()


@given(cases())
def test_all_voting_at_once_ends_after_one_superstep(case: Case) -> None:
    stats = run_program(Silent(), case.layout()).stats
    assert stats is not None
    assert (stats.supersteps, stats.messages) == (1, 0)


class Token(SubgraphProgram):
    """One message goes along the chain and back again, `hops` times."""

    message = {"left": np.int64}

    def __init__(self, hops: int) -> None:
        self.hops = hops

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 1 and sg.id == 0:
            step.send_to_subgraph(1, left=self.hops)
        for left in step.messages["left"]:
            if left > 1:
                step.send_to_subgraph((sg.id + 1) % step.graph.num_subgraphs, left=left - 1)
        step.vote_to_halt()


@pytest.mark.parametrize("hops", [1, 2, 9])
def test_one_message_in_flight_keeps_the_job_running(hops: int) -> None:
    stats = run_program(Token(hops), CHAIN).stats
    assert stats is not None
    assert (stats.supersteps, stats.messages) == (hops + 1, hops)


@given(cases())
def test_remote_messages_equal_the_count_from_the_quotient_graph(case: Case) -> None:
    """See docs/specs/engine.md, section 6, for a program that tells all its neighbours once."""
    layout = case.layout()
    stats = run_program(Tell(), layout).stats
    pairs = sum(int(s.neighbor_subgraph.size) for s in layout.slices())
    assert stats is not None
    assert (stats.total("remote"), stats.messages) == (pairs, pairs)


class Tell(SubgraphProgram):
    message = {"x": np.float64}

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 1:
            step.send_to_neighbors(x=1.0)
        step.vote_to_halt()


class Everything(SubgraphProgram):
    """Uses each kind of address once; keeps what it receives."""

    message = {"what": np.int64}
    state = {"got": per_subgraph(np.int64), "at": per_vertex(np.int64)}

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 1 and sg.id == 1:
            step.send_to_all(what=1)
            step.send_to_partition(3, what=10)
            step.send_to_subgraph([0, 2], what=[100, 200])
            step.send_to_vertex(sg.remote_subgraph, sg.remote_vertex, what=1000)
            step.send_to_neighbors(what=10_000)
        plain = step.messages["vertex"] < 0
        sg["got"] += step.messages["what"][plain].sum()
        np.add.at(sg["at"], step.messages["vertex"][~plain], step.messages["what"][~plain])
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"got": np.repeat(sg["got"], sg.num_vertices), "at": sg["at"]}


def test_every_kind_of_address() -> None:
    result = run_program(Everything(), CHAIN)
    assert result.to_dict("got") == {
        0: 10_101, 1: 10_101, 2: 1, 3: 1, 4: 10_201, 5: 10_201, 6: 11, 7: 11,
    }  # fmt: skip
    assert result.to_dict("at") == {0: 0, 1: 1000, 2: 0, 3: 0, 4: 1000, 5: 0, 6: 0, 7: 0}
    assert result.stats is not None
    # four partitions, one partition, two subgraphs, two vertices, two neighbours
    assert result.stats.messages == 4 + 1 + 2 + 2 + 2


def test_tasks_start_largest_first() -> None:
    """See docs/specs/engine.md, section 5.9. Four stars, the largest in the middle; one thread shows the order."""
    sizes = [5_000, 9_000, 20_000, 7_000]
    hubs = np.concatenate(([0], np.cumsum(np.array(sizes) + 1)[:-1]))
    src = np.repeat(hubs, sizes)
    dst = np.concatenate([np.arange(h + 1, h + 1 + size) for h, size in zip(hubs, sizes, strict=True)])
    graph = from_edges(src, dst)
    owner = np.searchsorted(hubs, np.arange(graph.num_vertices), side="right") - 1
    seen: list[int] = []

    class Watch(SubgraphProgram):
        def compute(self, sg: Any, step: Any) -> None:
            seen.append(sg.id)
            step.vote_to_halt()

    class WatchBatch(SubgraphProgram):
        def compute_batch(self, batch: Any, step: Any) -> None:
            seen.append(batch.partition)
            step.vote_to_halt()

    for program in (Watch(), WatchBatch()):
        seen.clear()
        run_program(program, build_layout(graph, owner, 4), threads=1)
        assert seen == [2, 1, 3, 0]


class Neighbourhood(SubgraphProgram):
    """Adds up, vertex by vertex, what the view says of every edge."""

    state = {"own": per_vertex(np.int64), "far": per_vertex(np.int64)}

    def compute(self, sg: Any, step: Any) -> None:
        for v in range(sg.num_vertices):
            for t in sg.out_edges(v):
                if sg.is_remote(t):
                    assert sg.remote_partition[~t] != sg.partition
                    sg["far"][v] += 1 + 100 * sg.remote_partition[~t]
                else:
                    sg["own"][v] += 1
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"own": sg["own"], "far": sg["far"]}


@given(cases())
def test_views_tell_local_from_remote_edges(case: Case) -> None:
    result = run_program(Neighbourhood(), case.layout())
    for v in range(case.graph.num_vertices):
        near = [w for w in case.nx[v] if case.owner[w] == case.owner[v]]
        far = [w for w in case.nx[v] if case.owner[w] != case.owner[v]]
        assert result.to_dict("own")[v] == len(near)
        assert result.to_dict("far")[v] == sum(1 + 100 * int(case.owner[w]) for w in far)


class Aggregates(SubgraphProgram):
    aggregators = {"s": "sum", "lo": "min", "hi": "max", "all": "and", "any": "or"}
    state = {"seen": per_subgraph(np.float64)}
    rows = "subgraph"

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 1:
            assert step.aggregated("s") is None
            for name in ("s", "lo", "hi"):
                step.aggregate(name, [sg.id, sg.id * 10])
            step.aggregate("all", sg.id < 3)
            step.aggregate("any", sg.id == 3)
        elif step.number == 2:
            assert (step.aggregated("all"), step.aggregated("any")) == (False, True)
            sg["seen"] = step.aggregated("s") * 10_000 + step.aggregated("lo") * 100 + step.aggregated("hi")
        else:
            assert step.aggregated("s") is None
            step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"seen": sg["seen"]}


def test_aggregators_are_seen_in_the_next_superstep_by_all() -> None:
    assert run_program(Aggregates(), CHAIN).table["seen"].to_pylist() == [66 * 10_000 + 30.0] * 4


class Levels(SubgraphProgram):
    """Fills every level of state with its own numbers, and adds attributes to the answer."""

    state = {
        "v": per_vertex(np.int64), "s": per_subgraph(np.int64, 5), "r": per_remote(np.float64, np.inf),
        "n": per_neighbor(np.int64, 2),
    }  # fmt: skip
    attributes = ("vertex.age", "edge.len")
    rows = "subgraph"

    def compute(self, sg: Any, step: Any) -> None:
        assert sg["v"].size == sg.num_vertices
        assert sg["r"].size == sg.remote_vertex.size
        assert sg["n"].size == sg.neighbors.size
        assert np.isinf(sg["r"]).all()
        lengths = sg.attribute("edge.len")
        sg["s"] = sg.attribute("vertex.age").sum() * 1000 + sum(
            lengths[i] for v in range(sg.num_vertices) for i in range(sg.offsets[v], sg.offsets[v + 1])
        )
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"s": sg["s"]}


@given(cases(families=("grid", "random", "directed")))
def test_state_levels_and_attributes(case: Case) -> None:
    edges = np.array(case.nx.edges, np.int64).reshape(-1, 2)
    length = np.arange(len(edges)) + 1
    n = case.graph.num_vertices
    graph = from_edges(
        edges[:, 0], edges[:, 1], labels=np.arange(n), directed=case.nx.is_directed(),
        vertex_attributes={"age": np.arange(n)}, edge_attributes={"len": length},
    )  # fmt: skip
    layout = build_layout(graph, case.owner, case.k)
    got = run_program(Levels(), layout).table["s"].to_pylist()
    ids, bounds = layout.vertex_ids(), []
    for part in layout.slices():
        bounds += (part.subgraph_offsets[:-1] + part.vertex_start).tolist()
    for value, low, high in zip(got, bounds, [*bounds[1:], n], strict=True):
        members = set(ids[low:high].tolist())
        out = sum(
            int(w) for (u, v), w in zip(edges, length, strict=True)
            for end in ((u,) if case.nx.is_directed() else (u, v)) if end in members
        )  # fmt: skip
        assert value == sum(members) * 1000 + out


def jobs(case: Case) -> list[Any]:
    """Every algorithm of the catalogue that suits the graph, with options where some are needed."""
    options: dict[str, dict[str, Any]] = {name: {"source": 0} for name in ("bfs", "sssp", "hops")} | {
        "pagerank": {"supersteps": 12, "weighted": True, "personalization": {0: 2.0}},
        "betweenness": {"weighted": False, "pivots": 4},  # the weights may be 0
    }
    return [
        make(name, options.get(name, {}))
        for name, kind in ALGORITHMS.items()
        # Directed graphs without cycles have no principal eigenvector.
        if not kind.in_memory and not ((kind.undirected or name == "eigenvector") and case.nx.is_directed())
    ]


@given(cases(largest=16), st.sampled_from(("components", "vertex")))
@pytest.mark.slow
def test_result_and_counts_do_not_depend_on_the_number_of_threads(case: Case, finder: str) -> None:
    layout = case.layout(finder)
    for job in jobs(case):
        first = run_program(job.program(layout), layout, threads=1)
        with no_graph_is_small():
            other = run_program(job.program(layout), layout, threads=3)
        assert other.table.equals(first.table), job.name
        names = ["superstep", "partition", "active", "messages", "combined", "remote", "remote_bytes"]
        assert other.stats is not None and first.stats is not None
        assert other.stats.steps.select(names).equals(first.stats.steps.select(names))


def test_combining_keeps_the_best_or_adds_up() -> None:
    dtype = message_dtype({"d": np.float64, "who": np.int64})
    rows = [(1, 5, 3.0, 1), (2, 5, 1.0, 2), (1, 5, 2.0, 3), (1, 5, 2.0, 4), (1, -1, 9.0, 5), (2, 5, 4.0, 6)]
    batch = np.array(rows, dtype)
    assert combine(batch, None) is batch
    assert combine(batch, "min").tolist() == [(1, 5, 2.0, 3), (2, 5, 1.0, 2), (1, -1, 9.0, 5)]
    assert combine(batch, "max").tolist() == [(1, 5, 3.0, 1), (2, 5, 4.0, 6), (1, -1, 9.0, 5)]
    assert combine(batch, "sum").tolist() == [(1, 5, 7.0, 8), (2, 5, 5.0, 8), (1, -1, 9.0, 5)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 8), st.integers(-50, 50)), max_size=200))
def test_combining_against_a_dictionary(rows: list[tuple[int, int, int]]) -> None:
    dtype = message_dtype({"x": np.int64})
    batch = np.array(rows, dtype) if rows else np.empty(0, dtype)
    for how, fold in (("min", min), ("max", max), ("sum", lambda a, b: a + b)):
        wanted: dict[tuple[int, int], int] = {}
        for s, v, x in rows:
            wanted[s, v] = fold(wanted[s, v], x) if (s, v) in wanted else x
        assert [((s, v), x) for s, v, x in combine(batch, how).tolist()] == list(wanted.items())


class Order(SubgraphProgram):
    """Every subgraph sends numbered messages to all; the receiver writes the order down."""

    message = {"sender": np.int64, "number": np.int64}
    state = {"bad": per_subgraph(np.int64)}
    rows = "subgraph"

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 1:
            for number in range(3):
                step.send_to_all(sender=sg.id, number=number)
                step.send_to_subgraph(np.arange(step.graph.num_subgraphs), sender=sg.id, number=number)
        else:
            got = list(zip(step.messages["sender"].tolist(), step.messages["number"].tolist(), strict=True))
            wanted = [(s, n) for s in range(step.graph.num_subgraphs) for n in range(3) for _ in range(2)]
            sg["bad"] = int(got != wanted)
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"bad": sg["bad"]}


@given(cases(largest=15))
def test_inboxes_are_ordered_by_source_and_order_of_sending(case: Case) -> None:
    with no_graph_is_small():
        assert sum(run_program(Order(), case.layout(), threads=3).table["bad"].to_pylist()) == 0


def test_counters_add_up() -> None:
    layout = build_layout(grid(40, 30), grid_blocks(40, 30), 12)
    result = run_program(make("components", {}).program(layout), layout)
    stats = result.stats
    assert stats is not None
    told = stats.to_dict()
    assert told["messages"] == sum(row["messages"] for row in told["steps"]) == 119
    assert Counter(row["superstep"] for row in told["steps"]) == Counter(dict.fromkeys(range(1, 8), 12))
    assert told["remote_bytes"] == told["remote"] * 24
    assert stats.busy_per_partition().sum() == pytest.approx(sum(row["busy"] for row in told["steps"]))
    assert 0 <= stats.idle_share <= 1 <= stats.imbalance
    assert all(row["start"] <= row["end"] for row in told["steps"])


class Alone(SubgraphProgram):
    """Asks how many threads it may use."""

    rows = "subgraph"

    def compute_batch(self, batch: Any, step: Any) -> None:
        batch["threads"][:] = step.threads
        step.vote_to_halt()

    state: Any = {"threads": per_subgraph(np.int64)}

    def result(self, batch: Any) -> Any:
        return {"threads": batch["threads"]}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_knows_the_threads_of_the_job(threads: int) -> None:
    layout = build_layout(grid(4, 4), grid_blocks(4, 4, 2, 2), 4)
    assert run_program(Alone(), layout, threads=threads).table["threads"].to_pylist() == [threads] * 4
