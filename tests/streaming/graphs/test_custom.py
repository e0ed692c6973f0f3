"""Patterns of other packages."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.graphs.cgql import extensions
from goffish.streaming.graphs.recovery import verify
from tests.streaming.graphs.reference import Graph
from tests.streaming.graphs.test_durable import abandon, everything
from tests.streaming.graphs.test_queries import some_records

PACKAGE = '''
import numpy as np
import goffish as gf
from goffish.errors import JobError


class Imbalance(gf.stream.CustomPattern):
    arguments = gf.stream.Arguments(numbers=("least",), required=("least",))
    statuses, value = ("EASED", "OVERLOADED"), "excess"
    columns_of_vertices = {"excess": np.int64}

    def follow(self, seen):
        signs, _, sources, targets = seen.edges
        np.add.at(self.excess, targets, signs)
        np.subtract.at(self.excess, sources, signs)
        return np.concatenate([sources, targets])

    def holds(self, vertices):
        return self.excess[vertices] >= self.argument("least")

    def values(self, vertices):
        return self.excess[vertices]


class Total(gf.stream.CustomPattern):
    """Chosen vertices with more of an attribute on their edges than of another one themselves."""

    arguments = gf.stream.Arguments(sets=("of",), words=("sum", "limit"), flags=("twice",), required=("sum", "limit"))
    statuses, value, dtype = ("BELOW", "ABOVE"), "total", np.float64
    columns_of_vertices = {"total": np.float64, "bound": np.float64, "chosen": np.bool_}
    columns_of_edges = {"amount": np.float64, "ends": np.int64}

    def __init__(self, given):
        super().__init__(given)
        self.measured, self.measured_of_edges = (self.argument("limit"),), (self.argument("sum"),)
        self.factor = 2.0 if self.argument("twice", False) else 1.0

    def follow(self, seen):
        touched = []
        edges, amounts = seen.values_of_edges(self.argument("sum"))
        for edge, amount in zip(edges, np.nan_to_num(amounts)):
            if self.ends[edge]:
                self.total[self.ends[edge] - 1] += amount - self.amount[edge]
                touched.append(self.ends[edge] - 1)
            self.amount[edge] = amount
        for sign, edge, source, target in zip(*seen.edges):
            self.total[source] += sign * self.amount[edge]
            self.ends[edge] = source + 1 if sign > 0 else 0
            touched.append(source)
        signs, vertices = seen.vertices("of")
        self.chosen[vertices] = signs > 0
        changed, bounds = seen.values_of_vertices(self.argument("limit"))
        self.bound[changed] = np.nan_to_num(bounds)
        return np.concatenate([np.array(touched, np.int64), vertices, changed])

    def holds(self, vertices):
        return self.chosen[vertices] & (self.factor * self.total[vertices] > self.bound[vertices])

    def values(self, vertices):
        return self.total[vertices]


class Broken(Imbalance):
    arguments = gf.stream.Arguments(choices={"how": ("raises", "shape", "vertex", "negative", "limit", "values")})

    def follow(self, seen):
        how, found = self.argument("how"), super().follow(seen)
        if how == "raises":
            return 1 / 0
        if how == "limit":
            raise JobError("limit: more than 5 vertices")
        return {"vertex": found + 10**6, "negative": found - 10**6}.get(how, found)

    def holds(self, vertices):
        return self.excess[vertices][:0] if self.argument("how") == "shape" else self.excess[vertices] > 0

    def values(self, vertices):
        return ["x"] if self.argument("how") == "values" else self.excess[vertices]


class Unmade(Imbalance):
    def __init__(self, given):
        raise ValueError("no license")


class Other:
    arguments, statuses = gf.stream.Arguments(), ("A", "B")
'''
NAMES = ("Imbalance", "Total", "Broken", "Unmade", "Other", "Missing")


def install(folder: Path) -> None:
    """Write a package as pip installs it."""
    (folder / "hub_patterns.py").write_text(PACKAGE)
    made = folder / "hub_patterns-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: hub-patterns\nVersion: 1.0\n")
    entries = "".join(f"{name} = hub_patterns:{name}\n" for name in NAMES)
    (made / "entry_points.txt").write_text(f"[{extensions.GROUP}]\n{entries}")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "packages"
    folder.mkdir()
    install(folder)
    monkeypatch.syspath_prepend(str(folder))
    extensions._entries.cache_clear()
    yield
    extensions._entries.cache_clear()
    sys.modules.pop("hub_patterns", None)


def number(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def expected(graph: Graph, now: float, window: float) -> dict[str, dict[Any, float]]:
    """Answers from all vertices and edges."""
    excess, total = (dict[Any, float].fromkeys(graph.vertices, 0) for _ in range(2))
    for edge, (source, target, attributes) in graph.edges.items():
        if graph.seen[edge] > now - window:
            excess[target] += 1
            excess[source] -= 1
            total[source] += number(attributes.get("x"))
    above = {
        id: total[id] for id, attributes in graph.vertices.items()
        if "y" in attributes and 2 * total[id] > number(attributes.get("x"))
    }  # fmt: skip
    return {"busy": {id: one for id, one in excess.items() if one >= 2}, "above": above}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.slow
def test_answers_are_those_of_all_changes(package: None, tmp_path: Path, seed: int, window: int | None) -> None:
    """Breaks when a change is lost or seen twice, or a checkpoint lacks state; the oracle looks at the whole graph."""
    clause = "" if window is None else f" WINDOW {window}s"
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
    live.submit(f"DETECT Imbalance(least: 2){clause} AS busy")
    live.submit(f"DETECT Total(of:{{has(y)}}, sum: x, limit: x, twice: true){clause} AS above")
    held: dict[str, dict[Any, float]] = {"busy": {}, "above": {}}
    counts, at = dict.fromkeys(held, 0), dict.fromkeys(held, 0)
    graph = Graph()
    for now, record in enumerate(some_records(random.Random(seed), 250), 1):
        live.feed([record | {"t": now}])
        graph.apply(now, record)
        found = expected(graph, now, window or math.inf)
        for topic, column in (("busy", "excess"), ("above", "total")):
            for event in live.events(topic, at[topic]).to_pylist():
                opens = event["status"] in ("OVERLOADED", "ABOVE")
                assert opens == (str(event["vertex"]) not in held[topic])
                vertex = str(event["vertex"])
                held[topic].pop(vertex) if not opens else held[topic].update({vertex: event[column]})
                counts[topic], at[topic] = counts[topic] + 1, event["offset"] + 1
            answers = {str(one["vertex"]): one[column] for one in live.answers(topic).to_pylist()}
            assert answers == pytest.approx({str(id): one for id, one in found[topic].items()})
            assert answers.keys() == held[topic].keys()
        if now % 60 == 59:
            seen = everything(live)
            if now % 120 == 59:
                live.checkpoint()
            abandon(live)
            live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
            assert everything(live) == seen
    assert counts["busy"] > 10 and counts["above"] > 2, counts
    live.close()
    assert {one["result"] for one in verify(tmp_path / "s")} == {"same"}


def test_epochs(package: None) -> None:
    """Breaks when what comes and goes within an epoch is an event, or an epoch that goes on is compared."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("DETECT Imbalance(least: 1) EMIT EVERY 10s AS busy")
    live.submit("DETECT Match(edge:{}) WHERE SUCCEEDS busy WITHIN 60s SHARING VERTICES AS later")
    for t, op, target in (
        (1, "+e", "b"),
        (2, "-e", "b"),
        (3, "+e", "c"),
        (11, "+e", "d"),
        (12, "-e", "c"),
        (25, "+e", "c"),
    ):
        live.feed([{"t": t, "op": op, "src": "a", "dst": target}])
    live.feed([{"t": 31, "op": "heartbeat"}])
    events = [(f"{one['released']:%S}", one["status"], one["vertex"]) for one in live.events("busy").to_pylist()]
    assert events == [
        ("10", "OVERLOADED", "c"), ("20", "EASED", "c"), ("20", "OVERLOADED", "d"), ("30", "OVERLOADED", "c")
    ]  # fmt: skip
    assert live.events("later")["id"].to_pylist() == ["a>c:"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raises", "ZeroDivisionError: division by zero"), ("shape", "holds has returned the shape (0,), and not (2,)"),
        ("vertex", "follow has returned what is no vertex"), ("negative", "follow has returned what is no vertex"),
        ("limit", "limit: more than 5 vertices"), ("values", "ValueError"),
    ],
)  # fmt: skip
def test_code_that_fails_ends_its_query(package: None, how: str, reason: str) -> None:
    """Breaks when an exception in a pattern stops the live graph, or the reason is not in the event."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit(f"DETECT Broken(how: {how}) AS broken; DETECT Match(edge:{{}}) AS edges")
    for t in (1, 2):
        live.feed([{"t": t, "op": "+e", "src": "a", "dst": f"b{t}"}])
    [closed] = live.events("broken").to_pylist()
    assert closed["status"] == "CLOSED" and reason in closed["reason"]
    assert len(live.answers("edges")) == 2


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("Imbalance()", "argument least is missing"), ("Imbalance(least: x)", "unbound parameter x"),
        ("Imbalance(least: 2) WHERE status = X", "choose = or != and EASED, OVERLOADED"),
        ("Total(sum: 3, limit: x)", "argument sum = 3: must be a text"), ("Total(sum: x, limit: y, of: z)", "of"),
        ("Broken(how: loudly)", "choose from raises, shape"), ("Unmade(least: 1)", "ValueError: no license"),
        ("Other()", "is not a subclass of goffish.stream.CustomPattern"),
        ("Missing()", "hub_patterns:Missing cannot be loaded (AttributeError"), ("Unknown()", "Match, Broken"),
        ("Imbalance(least: 2) WHERE size > 3", "measures are of Cluster"),
    ],
)  # fmt: skip
def test_queries_that_are_refused(package: None, query: str, message: str) -> None:
    """Breaks when a query is accepted that the pattern does not declare, or a message is not that of CGQL."""
    with pytest.raises(gf.stream.CgqlError, match=r"^line 1, column \d+: ") as error:
        gf.stream.LiveGraph().submit(f"DETECT {query}")
    assert message in str(error.value)


def test_without_the_package(package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a folder whose package is not installed any more is called damaged, or loses something."""
    live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
    live.submit("DETECT Imbalance(least: 1) AS busy")
    live.feed([{"t": 1, "op": "+e", "src": "a", "dst": "b"}])
    seen = everything(live)
    abandon(live)
    for saved in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(extensions, "_entries", dict)
            with pytest.raises(InputError, match="pattern Imbalance: unknown; choose from"):
                gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
        live = gf.stream.LiveGraph(lateness=0, state=tmp_path / "s")
        assert everything(live) == seen
        live.close() if not saved else abandon(live)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"statuses": ("A",)}, "must be two names"), ({"statuses": ("A", "A")}, "must be two names"),
        ({"statuses": ("A", "B c")}, "must be two names"), ({}, "must be two names"),
        ({"statuses": ("A", "B"), "columns_of_vertices": {"value": int}}, "column 'value': the name is in use"),
        ({"statuses": ("A", "B"), "columns_of_vertices": {"a": int}, "columns_of_edges": {"a": int}}, "column 'a'"),
    ],
)  # fmt: skip
def test_classes_that_are_refused(attributes: dict[str, Any], message: str) -> None:
    """Breaks when a mistake in a class is found when a query is submitted at the earliest."""
    with pytest.raises(InputError, match=message):
        type("Mine", (gf.stream.CustomPattern,), attributes)
