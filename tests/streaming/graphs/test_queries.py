"""Continuous queries against an oracle that computes all answers anew after every record."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import goffish as gf
from goffish.errors import InputError, JobError
from tests.streaming.graphs.examples import EXAMPLES
from tests.streaming.graphs.notation import record
from tests.streaming.graphs.reference import Event, Reference, compares
from tests.streaming.graphs.test_reference import COUNTS, QUERIES, digest, shown, steps, stream


class Followed:
    """Events of all topics of a live graph, as the oracle has them, in the order in which they are published."""

    def __init__(self, live: gf.stream.LiveGraph) -> None:
        self.live = live
        self.events: list[Event] = []

    def submit(self, text: str, parameters: dict[str, float]) -> None:
        self.live.submit(text, parameters, on_events=self.take)

    def take(self, topic: str, table: Any) -> None:
        for row in table.to_pylist():
            if row["status"] == "CLOSED":
                self.events.append(Event(row["time"].timestamp(), topic, "CLOSED", row["reason"], {}))
                continue
            given = {name: value for name, value in row.items() if name not in FIELDS and value is not None}
            if "cluster" in given:
                key, values = given.pop("cluster"), self.of_cluster(topic, row["status"], given)
            else:
                values = {name: given.pop(name) for name in list(given) if name in VALUES}
                parts = [tuple(one) if isinstance(one, list) else one for one in given.values()]
                key = tuple(parts) if len(parts) > 1 else parts[0]
            self.events.append(Event(row["time"].timestamp(), topic, row["status"], key, values, row["initial"]))

    def of_cluster(self, topic: str, status: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return values in the order of the specification: the size only if the query or the status names it."""
        query = self.live.query(topic)
        names = [name for name in ("parent", "into", "members", "vertices") if name in given]
        named = "size" in query.replace("min_size", "") or status == "GROWN"
        places = {name: query.find(name) for name in given if name not in names and (name != "size" or named)}
        values = {name: given[name] for name in [*names, *sorted(places, key=places.__getitem__)]}
        return {
            name: set(map(str, value)) if isinstance(value, list) else int(value) if value == int(value) else value
            for name, value in values.items()
        }  # fmt: skip


VALUES = {"hops", "degree", "rank", "score"}
SCORE = re.compile(r"(?<=score=)\d+\.\d+")
FIELDS = {"offset", "time", "status", "released", "initial", "reason", "event_id"}


#: The least lateness with which records of equal times are accepted, in seconds.
TICK = 1e-6


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    """Breaks when an event differs in its time, status, key, values or order from the specification."""
    example = EXAMPLES[name]
    live = gf.stream.LiveGraph(lateness=TICK)
    followed = Followed(live)
    wanted: list[str] = []
    begin = -1 if example.lines.strip().startswith("0 ") else 0
    live.feed([{"t": begin, "op": "heartbeat"}, {"t": begin + TICK, "op": "heartbeat"}])
    if example.queries:
        followed.submit(example.queries, example.parameters)
    last = 0.0
    for done, command, expected in steps(example.lines):
        wanted += expected
        last = float(done.split()[0])
        if command:
            live.feed([{"t": last + TICK, "op": "heartbeat"}])
            followed.submit(command, example.parameters)
        else:
            live.feed([record(done)])
    live.feed([{"t": last + TICK, "op": "heartbeat"}])
    found = [shown(one) for one in followed.events]
    for topic in {one.topic for one in followed.events}:
        assert [one for one in found if f" {topic} " in one] == [one for one in wanted if f" {topic} " in one]
    assert sorted(found) == sorted(wanted)
    assert live.counts["late"] == live.counts["rejected"] == 0


def some_records(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Random changes of all kinds, which need not have an effect."""
    time = 1

    def values() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in rng.sample(["x", "y", "type", "tags"], rng.randrange(3)):
            if name == "tags":
                found[name] = rng.choices(["a", "b", "c"], k=rng.randrange(1, 3))
            elif name == "type":
                found[name] = rng.choice(["a", "b"])
            else:
                found[name] = rng.choice([rng.randrange(5), rng.randrange(5) / 2, "a", True])
        return found

    def change() -> dict[str, Any]:
        op = rng.choices(["+e", "-e", "+av", "-av", "+ae", "-ae", "+v", "-v"], [50, 15, 12, 4, 8, 3, 4, 3])[0]
        if op == "+e":
            # Some without an id, and some with an id that has other ends.
            ends = {"src": rng.choice(LABELS), "dst": rng.choice(LABELS), "attrs": values()}
            return {"op": op} | ends | ({"id": f"e{rng.randrange(25)}"} if rng.random() < 0.9 else {})
        id = f"e{rng.randrange(25)}" if "e" in op else rng.choice(LABELS)
        more = {"attrs": values()} if op[0] == "+" else {"names": ["x", "type"]} if "a" in op else {}
        return {"op": op, "id": id} | more

    for _ in range(count):
        time += rng.choice([0, 1, 1, 2, 5])
        if rng.random() < 0.1:
            yield {"t": time, "op": "txn", "updates": [change() for _ in range(rng.randrange(1, 5))]}
        else:
            yield {"t": time} | change()


LABELS = [*(f"v{n}" for n in range(8)), 3, 20, "w"]


def some_motif(rng: random.Random, predicates: Callable[[bool], str]) -> str:
    """Return a random pattern: a tree of two to five vertices, with more edges, predicates and comparisons."""
    count = rng.choice([2, 2, 3, 3, 3, 3, 4, 4, 5])
    ends = [(rng.randrange(at), at) for at in range(1, count)]
    ends += [tuple(rng.sample(range(count), 2)) for _ in range(rng.choice([0, 0, 1, 1, 2, 6]))]  # type: ignore[misc]
    alike = rng.random() < 0.5  # so that there are automorphisms
    ends, edges, shown = ends[:6], list[str](), set[int]()
    for number, (a, b) in enumerate(ends):
        parts = []
        for vertex in (a, b):
            given = ":" + predicates(False) if not alike and vertex not in shown and rng.random() < 0.4 else ""
            shown.add(vertex)
            parts.append(f"(n{vertex}{given})")
        named = f"e{number}" + (":" + predicates(True) if not alike and rng.random() < 0.3 else "")
        arrow = rng.choice([f"-[{named}]->", f"<-[{named}]-", f"-[{named}]-"] if not alike else ["-->", "--"])
        edges.append(arrow.join(parts))
    of_vertices = [f"n{at}" for at in range(count)]
    of_edges = [] if alike else [f"e{at}" for at in range(len(ends))]
    for _ in range(rng.choice([0, 0, 1, 2])):
        one, other = rng.choices([*of_vertices, *of_edges], k=2)
        operator = rng.choice(["=", "!=", "<", "<=", ">", ">="])
        name = rng.choice(["x", "y", "tags", "type", "id"])
        if rng.random() < 0.3:
            edges.append(f"{one}.{name} {operator} {rng.choice(['2', 'a', 'true'])}")
        elif rng.random() < 0.2 and len(of_edges) > 1:
            one, other = rng.sample(of_edges, 2)
            edges.append(f"{one}.time {operator} {other}.time")
        else:
            edges.append(f"{one}.{name} {operator} {other}.{rng.choice([name, name, 'x'])}")
    return f"Motif({', '.join(edges)})"


def some_query(rng: random.Random, topic: str, others: dict[str, str]) -> str:
    """Return a random query, which may name another one."""
    other = rng.choice(list(others)) if others and rng.random() < 0.7 else None
    clusters = None
    if other is not None and others[other].split()[1].startswith(("Cluster", "Component")):
        clusters = other
    named = False

    def predicates(edges: bool = False) -> str:
        nonlocal named
        parts = [
            "x < 3", "x >= 1.5", "y != a", "has(y)", "NOT (x = 1)", "type = a OR x = 2", "tags = b", "tags != c",
            "id = v1", "id > v3", "id IN (v1, v2, 3)", "x = true", "type = b", "id >= 3", "a", "y < b",
        ]  # fmt: skip
        chosen = rng.sample(parts, rng.randrange(3))
        if clusters is not None and not edges and rng.random() < 0.5:
            named = True
            members = [f"id = {clusters}.*", f"NOT (id = {clusters}.*)", f"id = {clusters}.* OR x = 2"]
            chosen.append(rng.choices(members, [3, 1, 1])[0])
        return "{" + ", ".join(chosen) + "}"

    direction = rng.choice(["", ", direction: out", ", direction: in", ", direction: both"])
    hops = rng.choice(["", ", hops: 1", ", hops: 2", ", hops: 3"])
    measures = [
        "size >= 3", "edges > 3", "density < 0.9", "diameter <= 2", "sum(node.x) > 2", "avg(node.x) < 3",
        "min(node.x) < 2",
        "max(node.y) >= 1.5", "count(node.y) > 1", "count(node) != 3",
    ]  # fmt: skip
    more = rng.sample(["members: true", "grow: 3", "min_size: 1", f"contains:{predicates()}"], rng.randrange(3))
    conditions = [
        *rng.sample(measures, rng.randrange(1, 3)),
        *rng.sample(["node.x < 3", "node.y != a"], rng.randrange(2)),
    ]
    pattern = rng.choice([
        f"Component({', '.join(more)})", f"Cluster({', '.join([*conditions, *more])})", some_motif(rng, predicates),
        some_motif(rng, predicates), f"Reach(source:{predicates()}, sink:{predicates()}{hops}{direction})",
        f"Reach(source:{predicates()}, sink:{predicates()}{hops}{direction})",
        f"Neighbourhood(center:{predicates()}, hops: {rng.randrange(1, 4)}{direction})",
        f"Match(vertex:{predicates()})", f"Match(edge:{predicates(True)})",
        f"Degree(vertex:{predicates()}, degree {rng.choice(['>', '>=', '=', '!=', '<', '<='])} {rng.randrange(4)}"
        f"{direction}{rng.choice(['', ', clear: 1'])}{rng.choice(['', ', distinct: true'])})",
    ])  # fmt: skip
    if clusters is not None and rng.random() < 0.3:
        pattern, named = f"Evolved({clusters})", True
    elif other is None and rng.random() < 0.2:
        pattern = f"Centrality(measure: {rng.choice(['degree', 'pagerank'])}, top: {rng.randrange(1, 7)})"
    length = rng.choice(["", "", f" FOR {rng.randrange(1, 60)}s"])
    window = rng.choice(["", "", f" WINDOW {rng.randrange(1, 30)}s"])
    constraints = []
    if rng.random() < 0.5:
        constraints.append(f"edge:{predicates(True)}")
    if rng.random() < 0.5:
        constraints.append(f"node:{predicates()}")
    if pattern.startswith("Evolved"):
        constraints += rng.sample(measures, rng.randrange(3))
    every = rng.choice(["", "", f" EMIT EVERY {rng.randrange(2, 15)}s"])
    if "pagerank" in pattern:
        every, other = " EMIT EVERY 7s", None
    if other is not None and rng.random() < 0.4:
        named = True
        constraints.append(
            f"{rng.choice(['SUCCEEDS', 'PREDATES'])} {rng.choice(['', '2 OF '])}{other}"
            f"{rng.choice(['', ' WITHIN 10s', ' WITHIN 40s'])}{rng.choice(['', ' SHARING VERTICES'])}"
        )
    if named:
        every = ""  # which is that of the topic
    where = " WHERE " + " AND ".join(constraints) if constraints else ""
    return f"DETECT {pattern}{length}{window}{where}{every} AS {topic}"


def some_queries(rng: random.Random) -> dict[str, str]:
    """Return random queries by topic."""
    queries: dict[str, str] = {}
    for topic in ("t0", "t1", "t2", "t3"):
        queries[topic] = some_query(rng, topic, queries)
    return queries


@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 400), marks=(pytest.mark.slow, pytest.mark.timeout(3600)))]
)
def test_random_queries(seeds: range) -> None:
    """Breaks when events depend on how records are divided, or differ from answers that are computed anew."""
    for seed in seeds:
        rng = random.Random(seed)
        given = list(some_records(rng, 120))
        live, reference = gf.stream.LiveGraph(lateness=TICK), Reference()
        followed = Followed(live)
        live.feed([{"t": 0, "op": "heartbeat"}, {"t": TICK, "op": "heartbeat"}])
        queries = some_queries(rng)
        texts = "; ".join(queries.values())
        followed.submit(texts, {})
        reference.submit(texts)
        again = rng.randrange(40, 80)
        while given and given[again - 1]["t"] == given[again]["t"]:
            again += 1
        for first, part in ((True, given[:again]), (False, given[again:])):
            reference.feed(part)
            while part:
                size = rng.choice([1, 3, 50])
                live.feed(part[:size])
                part = part[size:]  # noqa: PLW2901
            if first:
                end = given[again - 1]["t"]
                live.feed([{"t": end + TICK, "op": "heartbeat"}])
                reference.advance(end)
                late = some_query(rng, "late", queries)
                followed.submit(late, {})
                reference.submit(late)
        live.feed([{"t": 1000 + TICK, "op": "heartbeat"}])
        reference.advance(1000)
        for topic, text in zip((*queries, "late"), (*queries.values(), late), strict=True):
            found = [shown(plain(one)) for one in followed.events if one.topic == topic]
            expected = [shown(plain(one)) for one in reference.events if one.topic == topic]
            # Scores within 1e-9 of each other may be on both sides of where they are rounded.
            plain_found, plain_expected = ([SCORE.sub("", one) for one in some] for some in (found, expected))
            assert plain_found == plain_expected, f"seed {seed}: {texts}; {late}"
            scores = [[float(score) for one in some for score in SCORE.findall(one)] for some in (found, expected)]
            assert np.allclose(*scores, rtol=0, atol=1.5e-6), f"seed {seed}: {texts}; {late}"
            assert live.events(topic)["offset"].to_pylist() == list(range(len(found)))
            if not any(word in text for word in ("SUCCEEDS", "PREDATES", "Evolved")):
                check_fold(live, topic, found)


@pytest.mark.parametrize("seed", COUNTS)
def test_golden_streams(seed: int) -> None:
    """Breaks when an event of any pattern differs from the specification."""
    live = gf.stream.LiveGraph(lateness=TICK)
    followed = Followed(live)
    live.feed([{"t": 0, "op": "heartbeat"}, {"t": TICK, "op": "heartbeat"}])
    followed.submit(QUERIES, {})
    live.feed(stream(seed))
    live.feed([{"t": 400 + TICK, "op": "heartbeat"}])
    count, expected, some = COUNTS[seed]
    found = Counter(f"{one.topic} {one.status}" for one in followed.events)
    assert {name: found[name] for name in some} == some
    assert len(followed.events) == count and digest(followed.events) == expected


def test_a_pattern_of_cypher() -> None:
    """Breaks when labels, types or properties of a pattern are looked for elsewhere than where they are documented."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("MATCH (a:Person)-[:FOLLOWS]->(b:Person {city: 'Rome'}) WHERE a.age < b.age AND NOT a.x = 1 AS older")
    live.feed([
        {"t": 1, "op": "+v", "id": "ann", "attrs": {"label": ["Person", "Admin"], "age": 30}},
        {"t": 2, "op": "+v", "id": "bob", "attrs": {"type": "Person", "age": 31, "city": "Rome"}},
        {"t": 3, "op": "+v", "id": "cyd", "attrs": {"label": "Person", "age": 29, "city": "Rome"}},
        {"t": 4, "op": "+e", "src": "ann", "dst": "bob", "attrs": {"type": "FOLLOWS"}},
        {"t": 5, "op": "+e", "src": "ann", "dst": "cyd", "attrs": {"type": "FOLLOWS"}},
        {"t": 6, "op": "+e", "src": "bob", "dst": "ann", "attrs": {"type": "FOLLOWS"}},
        {"t": 7, "op": "+av", "id": "cyd", "attrs": {"age": 40}},
        {"t": 8, "op": "+av", "id": "ann", "attrs": {"x": 1}},
    ])  # fmt: skip
    rows = live.events("older").select(["status", "a", "b"]).to_pylist()
    assert [" ".join(row.values()) for row in rows] == [
        "MATCHED ann bob", "MATCHED ann cyd", "UNMATCHED ann bob", "UNMATCHED ann cyd",
    ]  # fmt: skip
    assert live.query("older").startswith('DETECT Motif((a:{label = "Person" OR type = "Person", NOT x = 1})-[')


@pytest.mark.parametrize("measure", ["degree", "pagerank"])
@pytest.mark.slow
def test_scores(measure: str) -> None:
    """Breaks when scores or their order differ from those of NetworkX after edges have come and gone."""
    live, rng, edges = gf.stream.LiveGraph(lateness=0), random.Random(1), dict[int, tuple[int, int]]()
    live.submit(f"DETECT Centrality(measure: {measure}, top: 20) EMIT EVERY 100s AS best")
    for t in range(1, 3000):
        gone = next(iter(edges)) if len(edges) > 700 else None
        if gone is not None:
            del edges[gone]
            live.feed([{"t": t, "op": "-e", "id": gone}])
            continue
        edges[t] = int(rng.paretovariate(0.7)) % 300, rng.randrange(300)
        live.feed([{"t": t, "op": "+e", "id": t, "src": edges[t][0], "dst": edges[t][1]}])
    live.feed([{"t": 3000, "op": "heartbeat"}])
    graph: Any = (nx.MultiDiGraph if measure == "degree" else nx.DiGraph)(list(edges.values()))
    graph.add_nodes_from(live.vertices["id"].to_pylist())
    scores = dict(graph.degree) if measure == "degree" else nx.pagerank(graph, tol=1e-14, max_iter=1000)
    expected = sorted(scores, key=lambda v: (-round(scores[v], 9), v))[:20]
    found = sorted(live.answers("best").to_pylist(), key=lambda row: row["rank"])
    assert [row["vertex"] for row in found] == expected
    assert max(abs(row["score"] - scores[row["vertex"]]) for row in found) < 1e-9


def plain(event: Event) -> Event:
    """Return an event with integers in place of floats that are whole."""
    values = {n: int(v) if isinstance(v, float) and v.is_integer() else v for n, v in event.values.items()}
    return event._replace(values=values)


def check_fold(live: gf.stream.LiveGraph, topic: str, found: list[str]) -> None:
    """The events of a topic, folded, are its answers."""
    if found and "CLOSED" in found[-1]:
        return

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        if "cluster" in row:
            return (str(row["cluster"]),)
        return tuple(str(value) for name, value in row.items() if name not in FIELDS | VALUES)

    opened = set[tuple[str, ...]]()
    for row in live.events(topic).to_pylist():
        if row["status"] in ("GROWN", "JOINED", "PARTED"):
            continue
        opens = row["status"] in ("REACHABLE", "ENTERED", "MATCHED", "RAISED", "CREATED", "SPLIT")
        assert (key(row) in opened) != opens
        opened ^= {key(row)}
    assert sorted(opened) == sorted(map(key, live.answers(topic).to_pylist()))


@pytest.mark.parametrize(
    ("ordered", "expected"),
    [("", [(12, 15), (10, 18), (30, 31)]), (" AND ORDERED", [(10, 18), (12, 18), (30, 41)])],
)
def test_ordered(ordered: str, expected: list[tuple[int, int]]) -> None:
    """Breaks when an event overtakes one that is held, or waits for one that was dropped."""
    live = gf.stream.LiveGraph(lateness=TICK)
    live.submit(f"""
        DETECT Match(edge:{{call}}) AS calls;
        DETECT Match(vertex:{{login = true}}) WHERE PREDATES calls WITHIN 12s SHARING VERTICES{ordered} AS logins
    """)
    logins = [(10, "a"), (12, "b"), (29, "nobody"), (30, "c")]
    calls = [(15, "b"), (18, "a"), (31, "c")]
    live.feed(sorted([
        *({"t": t, "op": "+v", "id": id, "attrs": {"login": True}} for t, id in logins),
        *({"t": t, "op": "+e", "src": id, "dst": "x", "attrs": {"type": "call"}} for t, id in calls),
    ], key=lambda one: one["t"]))  # fmt: skip
    for t in range(40, 50):
        live.feed([{"t": t + TICK, "op": "heartbeat"}])
    rows = live.events("logins").to_pylist()
    found = [(row["time"].timestamp(), row["released"].timestamp()) for row in rows]
    assert found[:2] == expected[:2] and found[2][0] == 30
    assert found[2][1] >= expected[2][1] and len(found) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DETECT Match(edge:{}) SINCE 5h", "SINCE 5h: there are no records yet"),
        ("DETECT Match(edge:{time > soon})", 'time > "soon": accepted are seconds and texts such as'),
        ("DETECT Match(edge:{}) WITH (clock = wall)", "WITH clock = wall: needs FOR"),
        ("DETECT Match(edge:{}) WITH (track = 5s)", "WITH track: only of Evolved"),
        ("DETECT Match(edge:{}) WITH (vocabulary = v)", "WITH vocabulary = v: there is no such vocabulary"),
        ("DETECT Component() WITH (max_members = 0)", "WITH max_members = 0: must be an integer of at least 1"),
        ("DETECT Component() WITH (initial = 1)", "WITH initial = 1: must be true or false"),
        ("DETECT Component() AS c; DETECT Match(edge:{a, NOT (id = c.*)})", "edges are no members of clusters"),
        ("CANCEL nothing", "line 1, column 8: topic nothing: no such query runs"),
        ("DETECT Match(vertex:{id = busy.*})", "topic busy: unknown"),
        ("DETECT Match(edge:{x = $y})", "parameter $y: has no value"),
        ("DETECT Match(vertex:{z = huge})", "accepted are integers up to 64 bits"),
        ("DETECT Component(min_size: huge)", "accepted are integers up to 64 bits"),
        ("DETECT Match(edge:{time > 1e300})", "line 1, column"),
        (
            f"DETECT Cluster({', '.join(f'sum(node.a{n}) > 0' for n in range(17))})",
            "17 attributes are added up; accepted are 16",
        ),
        (
            f"DETECT Motif((a)--(b), {', '.join(f'a.a{n} < b.b{n}' for n in range(17))})",
            "34 attributes are compared with others; accepted are 32",
        ),
        ("DETECT Motif((a)-[e]-(b), e.time > soon)", 'line 1, column 61: time > "soon": accepted are seconds'),
    ],
)
def test_what_is_not_accepted(text: str, message: str) -> None:
    """Breaks when a query of a text is registered although another one is refused, or others cease to run."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("DETECT Match(vertex:{x = 1}) AS first")
    with pytest.raises(gf.stream.CgqlError) as caught:
        live.submit(f"DETECT Match(vertex:{{y = 1}}) AS second; {text}", {"huge": 10**30})
    assert message.split(": ", 1)[-1] in str(caught.value)
    with pytest.raises(InputError, match="topic second: unknown; choose from first"):
        live.events("second")
    live.feed([{"t": 1, "op": "+v", "id": "a", "attrs": {"x": 1}}])
    assert live.answers("first").to_pylist() == [{"id": "a"}]


def test_later_events_of_an_epoch() -> None:
    """Breaks when an event that happened before one of the same epoch waits for another one."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("""
        DETECT Degree(degree = 1) WINDOW 8s EMIT EVERY 10s AS a;
        DETECT Match(vertex:{k = 1}) WHERE PREDATES a WITHIN 20s AS b
    """)
    live.feed([
        {"t": 11, "op": "+e", "src": "x", "dst": "y"}, {"t": 12, "op": "+v", "id": "v", "attrs": {"k": 1}},
        {"t": 14, "op": "+e", "src": "x", "dst": "z"}, {"t": 21, "op": "heartbeat"},
    ])  # fmt: skip
    assert {row["time"].timestamp() for row in live.events("a").to_pylist()} == {19}
    found = [(row["time"].timestamp(), row["released"].timestamp()) for row in live.events("b").to_pylist()]
    assert found == [(14, 20)]


def test_clusters_that_are_gone() -> None:
    """Breaks when members of former clusters are followed for longer than a query says, or come back by their id."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("""
        DETECT Component() WITH (max_members = 2) AS all;
        DETECT Evolved(all) WHERE sum(node.x) > 5 WITH (track = 10s) AS short;
        DETECT Evolved(all) WHERE sum(node.x) > 5 AS long;
        DETECT Evolved(all) WHERE max(node.x) > 20 AND size >= 3 AS larger
    """)
    live.feed([
        {"t": 1, "op": "+e", "id": "e", "src": "a", "dst": "b"},
        {"t": 2, "op": "-e", "id": "e"},
        {"t": 13, "op": "+v", "id": "a", "attrs": {"x": 6}},
        {"t": 20, "op": "+e", "id": "f", "src": "c", "dst": "d"},
        {"t": 21, "op": "+e", "id": "g", "src": "d", "dst": "e"},
        {"t": 22, "op": "txn", "updates": [{"op": "-e", "id": "f"}, {"op": "-e", "id": "g"}]},
        {"t": 23, "op": "-v", "id": "c"},
        {"t": 24, "op": "+v", "id": "c", "attrs": {"x": 30}},
        {"t": 25, "op": "+v", "id": "d", "attrs": {"x": 30}},
        {"t": 26, "op": "heartbeat"},
    ])  # fmt: skip
    found = [(row["status"], row["members"], row["size"]) for row in live.events("all").to_pylist()]
    assert found[0] == ("CREATED", ["a", "b"], 2) and found[2] == ("CREATED", ["c", "d"], 2)
    evolved = {
        topic: [(row["time"].timestamp(), row["cluster"], row["members"]) for row in live.events(topic).to_pylist()]
        for topic in ("short", "long", "larger")
    }
    assert evolved == {
        "short": [(25, 2, ["d", "e"])], "long": [(13, 1, ["a", "b"]), (25, 2, ["d", "e"])], "larger": []
    }  # fmt: skip


def test_many_events_that_wait() -> None:
    """Breaks when events that wait for others take space without a bound."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("DETECT Match(edge:{}) AS a; DETECT Match(vertex:{}) WHERE PREDATES a AS b")
    live.feed({"t": n, "op": "+v", "id": n} for n in range(1, 10_010))
    reason = "failed(limit: 10,000 events wait for later ones; give a shorter WITHIN)"
    assert live.events("b")["reason"].to_pylist() == [reason]


@pytest.mark.parametrize(
    ("name", "most", "reason"),
    [
        ("_MOST_LOOKED", 200, "more than 200 candidates for one change; give more predicates"),
        ("_MOST_BYTES", 10_000, "more than 256 matches at a time; give more predicates"),
    ],
)
def test_limits_of_motifs(monkeypatch: pytest.MonkeyPatch, name: str, most: int, reason: str) -> None:
    """Breaks when a pattern with too many matches takes all time or memory, or another query ends with it."""
    monkeypatch.setattr(f"goffish.streaming.graphs.motifs.{name}", most)
    live, reasons = gf.stream.LiveGraph(lateness=0), list[str | None]()
    live.submit(
        "DETECT Motif((a)--(b)--(c)) AS pairs; DETECT Degree(degree >= 300) AS hubs",
        on_events=lambda topic, events: reasons.append(events["reason"].to_pylist()[-1]),
    )
    live.feed({"t": n, "op": "+e", "src": "hub", "dst": n} for n in range(1, 400))
    assert [one for one in reasons if one] == [f"failed(limit: {reason})"]
    assert live.answers("hubs").to_pylist() == [{"vertex": "hub", "degree": 399}]


def test_answers_between_observations() -> None:
    """Breaks when answers follow changes of an observation that has not ended, or are computed from them."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("DETECT Motif((a)-->(b)-->(c)) EMIT EVERY 10s AS m")
    live.feed([
        {"t": 1, "op": "+e", "id": 1, "src": "x", "dst": "y"}, {"t": 2, "op": "+e", "id": 2, "src": "y", "dst": "z"},
        {"t": 11, "op": "-e", "id": 1}, {"t": 12, "op": "+e", "id": 3, "src": "z", "dst": "x"},
    ])  # fmt: skip
    assert live.answers("m").to_pylist() == [{"a": "x", "b": "y", "c": "z", "edges": [1, 2]}]
    live.feed([{"t": 20, "op": "heartbeat"}])
    assert live.answers("m").to_pylist() == [{"a": "y", "b": "z", "c": "x", "edges": [2, 3]}]


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_integers_and_floats(operator: str) -> None:
    """Breaks when numbers are compared by their types, or rounded, instead of by value."""
    wholes = [-(1 << 63), -2, 1, 2, (1 << 53) + 1, (1 << 63) - 1]
    reals = [1.0, 1.5, -2.5, float(1 << 53), float(1 << 63), -1e30, 1e30]
    live = gf.stream.LiveGraph(lateness=0)
    for at, real in enumerate(reals):
        live.submit(
            f"DETECT Match(vertex:{{id {operator} $real}}) AS id{at};"
            f"DETECT Match(vertex:{{x {operator} $real}}) AS x{at}",
            {"real": real},
        )
    live.submit(
        f"DETECT Motif((a)-->(b), a.x {operator} b.y) AS pairs; DETECT Motif((a)-->(b), b.y {operator} a.x) AS back"
    )
    live.feed([{"t": at, "op": "+v", "id": one, "attrs": {"x": one}} for at, one in enumerate([*wholes, "text"])])
    live.feed([{"t": 10 + at, "op": "+v", "id": f"r{at}", "attrs": {"y": real}} for at, real in enumerate(reals)])
    ends = [(one, f"r{at}") for one in wholes for at in range(len(reals))]
    live.feed([{"t": 20 + at, "op": "+e", "src": src, "dst": dst} for at, (src, dst) in enumerate(ends)])
    live.end()
    for at, real in enumerate(reals):
        expected = [one for one in wholes if compares(one, operator, real)]
        for topic in (f"id{at}", f"x{at}"):
            found = live.answers(topic)["id"].to_pylist() if len(live.answers(topic)) else []
            assert sorted(map(int, set(found) - {"text"})) == expected, (topic, real)
    for topic, turned in (("pairs", False), ("back", True)):
        sides = {
            (one, f"r{at}"): (one, real)[:: -1 if turned else 1] for one in wholes for at, real in enumerate(reals)
        }
        expected = sorted((str(a), b) for (a, b), (left, right) in sides.items() if compares(left, operator, right))
        found = live.events(topic)
        assert sorted(zip(map(str, found["a"].to_pylist()), found["b"].to_pylist(), strict=True)) == expected


def test_topics_that_end() -> None:
    """Breaks when a query that names one that was cancelled goes on, or a limit ends more than one query."""
    live = gf.stream.LiveGraph(lateness=0, events=10)
    live.submit("""
        DETECT Match(vertex:{}) AS all;
        DETECT Match(edge:{}) WHERE SUCCEEDS all AS after;
        DETECT Reach(source:{}, sink:{}) AS pairs
    """)
    for first in (1, 100):
        live.feed({"t": n, "op": "+v", "id": n} for n in range(first, 100 if first == 1 else 5000))
    assert live.events("pairs")["reason"].to_pylist() == ["failed(limit: 4,999 sources; accepted are 4,096)"]
    with pytest.raises(InputError, match=r"after = 0: events of all are kept from \d"):
        live.events("all")
    live.cancel("all")
    assert live.events("after")["reason"].to_pylist() == ["failed(topic all)"]
    with pytest.raises(InputError, match="topic all: no such query runs; running are none"):
        live.cancel("all")
    assert live.submit("DETECT Match(edge:{})") == ["q4"]


@pytest.mark.slow
def test_many_queries() -> None:
    """Breaks when a query takes space for all elements and predicates, or the first answers of others come again."""
    live = gf.stream.LiveGraph(lateness=0)
    live.feed({"t": n, "op": "+e", "id": n, "src": 0, "dst": n, "attrs": {"x": n % 1000}} for n in range(1, 50_000))
    live.submit("; ".join(f"DETECT Match(edge:{{x = {n}}}) WHERE node:{{id < 40000}} AS e{n}" for n in range(100)))
    tracemalloc.start()
    live.submit("DETECT Match(edge:{x = 7}) AS more")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100 << 20  # for all pairs of an element and a predicate, there would be 400 MB
    assert len(live.answers("more")) == 50 and len(live.answers("e7")) == 40
    live.feed([{"t": 60_000, "op": "+ae", "id": 5, "attrs": {"x": 7}}])
    assert live.events("e7")["id"].to_pylist()[-1] == live.events("more")["id"].to_pylist()[-1] == 5
    assert len(live.events("e7")) == 41 and live.events("e5")["status"].to_pylist()[-1] == "UNMATCHED"


def test_a_function_that_fails() -> None:
    """Breaks when a function that takes events leaves other queries behind the graph, or later events are lost."""
    live, taken = gf.stream.LiveGraph(lateness=0), list[str]()

    def take(topic: str, events: Any) -> None:
        taken.append(topic)
        if len(taken) == 1:
            raise OSError("no space")

    live.submit("DETECT Match(edge:{}) AS a; DETECT Reach(source:{}, sink:{}) AS b", on_events=take)
    with pytest.raises(OSError, match="no space"):
        live.feed([{"t": 1, "op": "+e", "id": 1, "src": "x", "dst": "y"}])
    live.feed([{"t": 2, "op": "-e", "id": 1}])
    assert taken == ["a", "b", "a", "b"]
    assert live.events("b")["status"].to_pylist() == ["REACHABLE", "UNREACHABLE"]


def test_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a graph whose queries lack a part of the records goes on."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("DETECT Match(edge:{}) AS a")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("goffish.streaming.graphs.queries.Query.step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            live.feed([{"t": 1, "op": "+e", "id": 1, "src": "x", "dst": "y"}])
    with pytest.raises(JobError, match="interrupted while it applied records; make a new one"):
        live.feed([{"t": 2, "op": "-e", "id": 1}])


def test_events_after_the_end() -> None:
    """Breaks when the end of a query is returned again to those who have read it."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("DETECT Match(vertex:{}) FOR 5s AS a")
    live.feed({"t": n, "op": "+v", "id": n} for n in range(1, 10))
    rows = live.events("a")
    assert rows["offset"].to_pylist() == list(range(len(rows))) and rows["status"].to_pylist()[-1] == "CLOSED"
    assert live.events("a", len(rows) - 1)["status"].to_pylist() == ["CLOSED"]
    assert not len(live.events("a", len(rows)))


def test_plans_register_nothing() -> None:
    """Breaks when a plan changes what runs, or leaves out what the queries depend on."""
    live = gf.stream.LiveGraph(lateness=0)
    live.submit("DETECT Cluster(size > 1) EMIT EVERY 5s AS c")
    plan = live.explain("DETECT Reach(source:{id = c.*}, sink:{x > $low}) WHERE SUCCEEDS c AS r", {"low": 3})["r"]
    assert plan["source"] == "{id = c.*}"
    assert plan["sink"] == "{x > 3}"
    assert plan["constraints"] == "SUCCEEDS c"
    assert plan["evaluated"].startswith("for all records")
    assert live.explain("DETECT Match(vertex:{x > 1}) AS m")["m"]["evaluated"] == "for changes of what it sees"
    assert live.topics == ["c"]
    with pytest.raises(gf.stream.CgqlError, match="topic d: unknown"):
        live.explain("DETECT Evolved(d)")


def test_events_at_once_are_limited(tmp_path: Path) -> None:
    """Breaks when a limit counts events of several times together, or leaves out something without a notice."""
    star = [{"op": "+e", "src": "hub", "dst": f"v{at}"} for at in range(9)]
    given: list[dict[str, Any]] = [
        {"t": 1, "op": "txn", "updates": star}, {"t": 2, "op": "+e", "src": "hub", "dst": "w0"},
        {"t": 3, "op": "txn", "updates": [{"op": "-e", "src": "hub", "dst": f"v{at}"} for at in range(4)]},
    ]  # fmt: skip
    shown = [
        *((1, "MATCHED", None),) * 3, (1, "TRUNCATED", "6 events left out"), (2, "MATCHED", None),
        *((3, "UNMATCHED", None),) * 3, (3, "TRUNCATED", "1 events left out"),
    ]  # fmt: skip
    tables: list[Any] = []
    for size in (1, 3):
        tables.clear()
        with gf.stream.LiveGraph(lateness=0, state=tmp_path / str(size)) as live:
            live.submit("DETECT Match(edge:{}) WITH (limit = 3) AS m", on_events=lambda _, table: tables.append(table))
            for first in range(0, len(given), size):
                live.feed(given[first : first + size])
            rows = live.events("m").to_pylist()
            assert [(row["time"].timestamp(), row["status"], row["reason"]) for row in rows] == shown
            assert [row["offset"] for table in tables for row in table.to_pylist()] == list(range(9))
            assert live.events("m", 2, 3)["status"].to_pylist() == ["MATCHED", "TRUNCATED", "MATCHED"]
            assert live.answers("m").num_rows == 6
        with gf.stream.LiveGraph(lateness=0, state=tmp_path / str(size)) as live:
            assert live.events("m").to_pylist() == rows
    with pytest.raises(gf.stream.CgqlError, match="WITH limit = 0: must be an integer of at least 1"):
        gf.stream.LiveGraph().submit("DETECT Match(edge:{}) WITH (limit = 0)")


WORDS = {"friend": "{type IN (follow, like), weight > 2}", "every": "{x = 1 OR has(y)}"}


def test_words_of_a_vocabulary() -> None:
    """Breaks when a word is not replaced everywhere, in other queries too, or without its grouping."""
    live = gf.stream.LiveGraph(lateness=0)
    live.add_vocabulary("social", WORDS)
    live.submit("""
        DETECT Match(edge:{friend, NOT `every`, other}) WITH (vocabulary = social, limit = 5) AS a;
        DETECT Motif((u:{`every`})-[:{friend}]->(v)) WHERE SUCCEEDS
            (DETECT Match(vertex:{friend}) AS c) AND edge:{friend OR x} WITH (vocabulary = social) AS b
    """)
    friend = 'type IN ("follow", "like") AND weight > 2'
    assert list(map(live.query, live.topics)) == [
        f"DETECT Match(edge:{{{friend}, NOT (x = 1 OR has(y)), other}}) WITH (limit = 5) AS a",
        "DETECT Match(vertex:{friend}) AS c",
        f"DETECT Motif((u:{{x = 1 OR has(y)}})-[:{{{friend}}}]->(v)) WHERE SUCCEEDS c AND edge:{{{friend} OR x}} AS b",
    ]
    live.feed([
        {"t": weight, "op": "+e", "src": "u", "dst": f"v{weight}", "attrs": {"type": "like", "weight": weight}}
        for weight in (2, 3)
    ])  # fmt: skip
    live.submit("DETECT Match(edge:{friend}) WITH (vocabulary = social) AS d; DETECT Match(edge:{friend}) AS e")
    assert [len(live.answers(topic)) for topic in "de"] == [1, 0]
    assert "weight > 2" in live.explain("DETECT Match(vertex:{friend}) WITH (vocabulary = social) AS f")["f"]["vertex"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "accepted are words"), (7, "accepted are words"), ({"a": 5}, "must be"), ({"a": "x = 1"}, "must be"),
        ({"a": "{}"}, "not empty"), ({"a": "{x = $y}"}, "parameter $y: has no value"), ({"a": "{x = T.*}"}, "unknown"),
        ({"a b": "{x = 1}"}, "word 'a b': accepted are letters"), ({"a": "{x = 1"}, "expected"),
        ({"a": "{x=1}) AS b; DETECT Match(vertex:{}"}, "one set"), ({"a": "{x=1}) WHERE node:({y=1}"}, "expected"),
        ({"a": "{x=1}, edge:{y=1}"}, "either"), ({"a": "{x=1}) FOR 5s WHERE edge:{}  AS x #"}, "one set"),
        ({"a": "{sum(node.x) > 1}"}, "aggregates"), ({"a": "{" * 200}, "nested"),
    ],
)  # fmt: skip
def test_vocabularies_that_are_refused(words: Any, message: str) -> None:
    """Breaks when text of a vocabulary becomes more than predicates, or an error does not name the word."""
    live = gf.stream.LiveGraph()
    with pytest.raises(InputError, match=r"^vocabulary v: ") as error:
        live.add_vocabulary("v", words)
    assert message in str(error.value)
    live.add_vocabulary("v", WORDS)
    with pytest.raises(InputError, match="vocabulary v: there is one"):
        live.add_vocabulary("v", WORDS)
    with pytest.raises(gf.stream.CgqlError, match=r"column 31: WITH vocabulary = w: .*choose from v$"):
        live.submit("DETECT Match(vertex:{}) WITH (vocabulary = w)")
