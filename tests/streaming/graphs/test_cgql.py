"""The language of continuous queries: what is accepted, what it means, and where errors are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.checks import check
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.cgql.syntax import CgqlError

ACCEPTED = [
    """DETECT Reach(source:{name = Bob, age = 33}, sink:{age < 30, lives_in = London}) FOR 20h
       WHERE edge:{type = follow}""",
    "Detect Reach(source: {interests = foo}, sink:{interests = bar})",
    """DETECT Reach(source: {name=C1.*}, sink: {name=C2.*}) FOR 24h WHERE edge:{message}
       AND DETECT Cluster( sum(node.usage) < 10 , diameter < 3) FOR (24h) WHERE edge:{type = power} AS C1
       AND DETECT Cluster( sum(node.usage) > 20, diameter < 3) FOR (24h) WHERE edge:{type = power} AS C2;
       DETECT Evolved(C2) WHERE sum(node.usage) < 10 AND SUCCEEDS C2;""",
    "DETECT Motif((a)--(b)--(c)--(a)) AS tri",
    "DETECT Component(contains:{name = Bob}, members: true, grow: 5) WHERE edge:{type = friend} AS circle",
    "DETECT Neighbourhood(center:{name = Bob}, hops: 2) AS n2",
    """DETECT Motif((a)-[x]->(b)-[y]->(c)-[z]->(a), x.amount >= 100, y.amount >= 100, z.amount >= 100) WINDOW 10m
       WHERE edge:{type = pay} AS loop""",
    """DETECT Degree(vertex:{kind = host}, degree >= 3, clear: 2, direction: out, distinct: true) WINDOW 60s
       WHERE edge:{type = flow} AS scan""",
    "DETECT Cluster(node.usage > 10, size >= 2, grow: 4) WHERE edge:{type = power} AS hot",
    "DETECT Centrality(measure: pagerank, top: 2) EMIT EVERY 10s AS top",
    """DETECT Match(edge:{type = alarm}) WHERE SUCCEEDS 2 OF msg[REACHABLE] WITHIN 100s SHARING VERTICES AS late
       AND DETECT Reach(source:{kind = user}, sink:{kind = host}) WHERE edge:{type = msg} AS msg
       AND DETECT Match(edge:{type = login}) WHERE PREDATES msg WITHIN 20s SHARING VERTICES AS early""",
    "DETECT Motif((p:{x > 4})-[m:{type = a}]->(q)<-[n:{type = b}]-(s), p.x != s.x) AS G5",
    'DETECT Reach() FROM "0 8 * * 1-5" TO "0 17 * * 1-5" REPEAT WITH (tz = "Europe/Berlin", initial = false)',
    "DETECT Match(vertex:{a = 1 OR NOT (b IN (1, -2.5e3, 'x') AND has(c)), `from` != true}) SINCE 1h30m",
    "DETECT Match[edge:{pay}] WHERE status = MATCHED AND ORDERED  # a comment",
    "DETECT Match(edge:{}) WHERE SUCCEEDS (DETECT Degree(degree > 2) AS inner) AS outer",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_query_and_its_text(text: str) -> None:
    found = parse(text)
    assert parse(str(found)) == found
    assert check(found)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("DETECT Reach(source:{name = Bob}", 1, 32, "end of the text; expected ) or ,"),
        ("DETECT (x)", 1, 8, "'('; expected a name"),
        ("DETECT Reach() WHERE edge:{type=}", 1, 33, "'}'; expected "),
        ("DETECT R(a:{x=1}) FOR 20", 1, 23, "'20'; expected ( or a duration such as 20h"),
        ("DETECT R() AS", 1, 12, "end of the text; expected a name"),
        ("DETECT R(source:{a=1} sink:{b=2})", 1, 23, "'sink'; expected ) or ,"),
        ("DETECT Match(\n  edge:{a = 5}}", 2, 15, "'}'; expected ) or ,"),
        ("DETECT Match(edge:{a ! 5})", 1, 22, "unexpected character"),
        ("SELECT 1", 1, 1, "expected CANCEL or DETECT"),
        ("  ", 1, 1, "no query; expected DETECT, MATCH or CANCEL"),
        ("DETECT Match(vertex:{a = " + "9" * 30 + "})", 1, 26, "too large"),
        ("DETECT Match(vertex:{a = 1e999})", 1, 26, "too large"),
        ("DETECT Match(vertex:{}) FOR " + "9" * 30 + "w", 1, 29, "too long"),
        ("DETECT Match(vertex:{a = '\\x'})", 1, 26, "text"),
        ("DETECT Match(vertex:{a != T.*})", 1, 24, "T.*: accepted after = only"),
        ("DETECT Match(vertex:{" + "(" * 200, 1, 120, "nested more than 100 deep"),
    ],
)
def test_texts_that_are_not_accepted(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(CgqlError) as error:
        parse(text)
    assert (error.value.line, error.value.column) == (line, column)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DETECT Reached()", "column 8: pattern Reached: unknown; choose from Reach, Cluster"),
        ("DETECT Reach(from_:{})", "column 14: Reach: argument from_:{}: unknown; choose from source, sink, hops"),
        ("DETECT Reach(hops: 2, hops: 3)", "column 23: argument hops: given twice"),
        ("DETECT Reach(hops: 0)", "argument hops = 0: must be an integer of at least 1"),
        ("DETECT Reach(hops: 'x')", 'hops = "x": must be a number'),
        ("DETECT Reach(hops: most)", "column 20: unbound parameter most: hops needs a number"),
        ("DETECT Reach(direction: up)", "argument direction = up: choose from out, in, both"),
        ("DETECT Reach(speed: 3)", "Reach: argument speed: unknown; choose from source, sink, hops, direction"),
        ("DETECT Reach(size > 3)", "Reach: argument size > 3: not accepted"),
        ("DETECT Reach(source:{sum(node.x) > 3})", "sum(node.x): aggregates are of Cluster"),
        ("DETECT Neighbourhood()", "Neighbourhood: argument hops is missing"),
        ("DETECT Cluster(sizes > 3)", "sizes: unknown measure; choose from size, edges, density, diameter"),
        ("DETECT Cluster(median(node.x) > 3)", "median: unknown aggregate; choose from sum, avg, min, max, count"),
        ("DETECT Cluster(sum(x) > 3)", "sum(x): accepted are attributes such as node.usage"),
        ("DETECT Cluster(size > lo)", "unbound parameter lo: size needs a number"),
        ("DETECT Cluster(size IN (1, 2))", "measures are compared with a number"),
        ("DETECT Cluster(size > $lo)", "parameter $lo: has no value"),
        ("DETECT Component(size > 3)", "Component: argument size > 3: not accepted"),
        ("DETECT Component(members: 3)", "argument members = 3: must be true or false"),
        ("DETECT Evolved(a.b)", "topic a.b: unknown"),
        ("DETECT Evolved()", "Evolved: needs one topic of a Cluster or Component"),
        ("DETECT Evolved(R); DETECT Reach() AS R", "topic R: is of Reach; accepted are Cluster and Component"),
        ("DETECT Match(vertex:{a = R.*}); DETECT Reach() AS R", "topic R: is of Reach; accepted are Cluster"),
        ("DETECT Match()", "Match: needs either vertex:{} or edge:{}"),
        ("DETECT Match(vertex:{}, edge:{})", "Match: needs either vertex:{} or edge:{}"),
        ("DETECT Degree()", "Degree: needs one comparison of degree"),
        ("DETECT Degree(degree > x)", "unbound parameter x"),
        ("DETECT Centrality(top: 3)", "Centrality: argument measure is missing"),
        ("DETECT Centrality(measure: pagerank, top: 3)", "Centrality: pagerank needs EMIT EVERY"),
        ("DETECT Motif(x > 3)", "Motif: needs a path"),
        ("DETECT Motif((a)--(b), (c)--(d))", "Motif: the paths are not connected"),
        ("DETECT Motif((a)-[a]-(b))", "variable a: names a vertex and an edge"),
        ("DETECT Motif((a)-[e]-(b)-[e]-(c))", "variable e: names two edges"),
        ("DETECT Motif((a)--(b)--(c)--(d)--(e)--(f))", "Motif: 6 vertices, 5 edges; accepted are at most 5 and 6"),
        ("DETECT Motif((a)--(b), a.x = z.y)", "z.y: no such variable"),
        ("DETECT Motif((a)--(b), z.y = 3)", "column 24: z.y: no such variable"),
        ("DETECT Motif((a)--(b), x > 3)", "column 24: x: accepted are attributes of variables such as a.age"),
        ("DETECT Motif((a)--(b), sum(a.x) > 3)", "sum(a.x): accepted are attributes of variables"),
        ("DETECT Motif((a)--(b), a.x > 3s)", "3s: accepted are numbers, texts, true, false and attributes"),
        ("DETECT Motif((a)--(b)-->(b))", "column 22: variable b: an edge to itself"),
        ("DETECT Motif((a)--(time))", "column 19: variable time: the name of a column of events; rename it"),
        ("DETECT Match(edge:{}) WHERE size > 3", "measures are of Cluster, Component and Evolved"),
        ("DETECT Match(edge:{}) WHERE status = GONE", 'status = "GONE": choose = or != and MATCHED, UNMATCHED'),
        ("DETECT Match(edge:{}) WHERE face:{}", "WHERE face:{}: accepted are edge and node"),
        ("DETECT Match(edge:{}) WHERE SUCCEEDS none", "topic none: unknown"),
        (
            "DETECT Match(edge:{}) WHERE SUCCEEDS a[ENTERED] AS b; DETECT Reach() AS a",
            "a[ENTERED]: choose from REACHABLE",
        ),
        ("DETECT Match(edge:{}) WHERE SUCCEEDS 0 OF a; DETECT Reach() AS a", "SUCCEEDS 0 OF: must be at least 1"),
        ("DETECT Match(edge:{}) WHERE SUCCEEDS a WITHIN 0s; DETECT Reach() AS a", "WITHIN 0s: must be more than 0"),
        ("DETECT Match(edge:{}) AS a; DETECT Match(edge:{}) AS a", "topic a: the name is taken"),
        ("DETECT Match(edge:{}) WHERE SUCCEEDS b AS a; DETECT Match(edge:{}) WHERE SUCCEEDS a AS b", "names itself"),
        ("DETECT Reach() EMIT EVERY 5s AS a; DETECT Match(edge:{}) WHERE SUCCEEDS a EMIT EVERY 6s", "topic a has 5s"),
        ("DETECT Reach() WINDOW 0s", "WINDOW 0s: must be more than 0"),
        ("DETECT Reach() FOR 0h", "FOR 0s: must be more than 0"),
        ("DETECT Reach() WITH (speed = 3)", "WITH speed: unknown; choose from initial"),
    ],
)
def test_queries_that_are_not_accepted(text: str, message: str) -> None:
    with pytest.raises(CgqlError) as error:
        check(parse(text))
    assert message in str(error.value)
    assert str(error.value).startswith(f"line 1, column {error.value.column}: ")


def test_words_and_parameters() -> None:
    """A word with a value is that value, others are texts; ``$name`` is always a parameter."""
    text = "DETECT Match(vertex:{a = lo, b = $lo, c = London, d IN (lo, x)}); DETECT Cluster(size > lo)"
    match, cluster = check(parse(text), {"lo": 2.5})
    assert str(match) == 'DETECT Match(vertex:{a = 2.5, b = 2.5, c = "London", d IN (2.5, "x")}) AS q1'
    assert str(cluster) == "DETECT Cluster(size > 2.5) AS q2"
    for bad in (float("nan"), None, [1]):
        with pytest.raises(CgqlError, match=r"parameter lo = .*: accepted are integers up to 64 bits"):
            check(parse(text), {"lo": bad})
    hostile = {"lo": '1}) AS x; DETECT Match(edge:{a = "'}  # a value, not text of the query
    assert len(check(parse("DETECT Match(vertex:{a = lo})"), hostile)) == 1


def test_the_order_of_queries() -> None:
    """Queries that are named by others come first, wherever they stand."""
    found = check(parse(ACCEPTED[2]))
    assert [one.topic for one in found] == ["C1", "C2", "q1", "q4"]
    assert found[2].after == ("C1", "C2") and found[3].after == ("C2",)
    assert [one.topic for one in check(parse(ACCEPTED[-1]))] == ["inner", "outer"]


def test_topics_that_are_registered() -> None:
    known = {one.topic: one.query for one in check(parse("DETECT Cluster(size > 2) AS c"))}
    assert check(parse("DETECT Evolved(c) WHERE size < 2 AS e"), known=known)[0].after == ("c",)
    with pytest.raises(CgqlError, match="topic c: the name is taken"):
        check(parse("DETECT Reach() AS c"), known=known)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (
            """MATCH (a:Person {name: 'Ann'})-[r:FOLLOWS]->(b:Person)<-[:FOLLOWS]-(c)
               WHERE r.since > 2010 AND a.age < b.age AND NOT b.city = 'Rome' RETURN a, b AS known""",
            """DETECT Motif((a:{label = "Person" OR type = "Person", name = "Ann"})
               -[r:{type = "FOLLOWS", `since` > 2010}]->(b:{label = "Person" OR type = "Person", NOT city = "Rome"})
               <-[:{type = "FOLLOWS"}]-(c), a.age < b.age)
               AS known""",
        ),
        ("match (a)--(b)--(c)--(a);", "DETECT Motif((a)--(b)--(c)--(a))"),
        (
            """// cards that are used twice
               MATCH (c:Card|Token)-[x]->(s), (c)-[y]->(t)
               WHERE (x.sum >= 10 OR y.sum IS NULL) AND 5 < y.sum RETURN DISTINCT * WINDOW 10m EMIT EVERY 5s""",
            None,
        ),
        (
            "MATCH (c)-[x:A|:B]->(s) WHERE (x.n >= 10 OR x.n IS NULL) AND 5 < c.n AND id(s) IN [1, 'y'] AND c:X:Y",
            """DETECT Motif((c:{n > 5, (label = "X" OR type = "X") AND (label = "Y" OR type = "Y")})
               -[x:{type IN ("A", "B"), n >= 10 OR NOT has(n)}]->(s:{id IN (1, "y")}))""",
        ),
        ("MATCH (a)-[x]->(b) WHERE x.n = $least AND type(x) <> 'B' RETURN a WINDOW 10m EMIT EVERY 5s AS t",
         'DETECT Motif((a)-[x:{n = $least, type != "B"}]->(b)) WINDOW 10m EMIT EVERY 5s AS t'),
        ("MATCH (a:Host {up: true}) WHERE exists(a.ip) AS hosts",
         'DETECT Match(vertex:{label = "Host" OR type = "Host", up = true, has(ip)}) AS hosts'),
    ],
)  # fmt: skip
def test_patterns_of_cypher(text: str, query: str | None) -> None:
    """Breaks when a pattern has another meaning than the query that it is documented to be."""
    if query is None:  # conditions on several variables
        with pytest.raises(CgqlError, match="line 3, column 23: conditions on several variables are joined by AND"):
            parse(text)
        return
    assert parse(text) == parse(query)
    assert parse(str(parse(text))) == parse(text)
    assert check(parse(text), {"least": 3})


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("MATCH (a)-[*1..3]->(b)", 12, "paths of variable length are not available"),
        ("OPTIONAL MATCH (a)-->(b)", 1, "optional patterns are not available"),
        ("MATCH p = (a)-->(b)", 7, "paths have no names here"),
        ("MATCH (a)-->(b) RETURN count(*)", 24, "count(…): accepted after RETURN are variables; aggregates are not"),
        ("MATCH (a)-->(b) RETURN a.name", 24, "a.name: accepted after RETURN are variables"),
        ("MATCH (a)-->(b) RETURN c", 24, "variable c: not in the pattern"),
        ("MATCH (a)-->(b) RETURN a ORDER BY a", 26, "only MATCH, WHERE and RETURN are available"),
        ("MATCH (a)-->(b) SET a.x = 3", 17, "a continuous query does not change the graph"),
        ("MATCH (a)-->(b) WHERE a.x STARTS WITH 'x'", 27, "accepted are =, <>, <"),
        ("MATCH (a)-->(b) WHERE a.x + 1 > 2", 27, "arithmetic is not available"),
        ("MATCH (a)-->(b) WHERE c.x > 2", 23, "variable c: not in the pattern"),
        ("MATCH (a)-->(b) WHERE NOT a.x < b.x", 27, "joined by AND, and not negated"),
        ("MATCH (a)-->(b) WHERE 1 = 1", 23, "one side of a comparison must be an attribute such as a.age"),
        ("MATCH (a)-->(b) WHERE size(a) = 3", 23, "function size: unknown; choose from id, elementId and type"),
        ("MATCH (a), (b)", 7, "the vertex is not connected with the others"),
        ("MATCH (a)-->(b), (a:X)", 18, "give the labels of a vertex where it has edges"),
        ("MATCH (a) WHERE a.x = a.y", 17, "attributes of one vertex are compared with values only"),
        ("MATCH (a)-->(b", 14, "end of the text; expected ), : or {"),
        ("MATCH (a)-->(b); MATCH (c)", 18, "'MATCH'; expected the end"),
        ("MATCH (a)-->(b) WHERE a.x = '\\x'", 29, "text"),
    ],
)
def test_patterns_of_cypher_that_are_not_accepted(text: str, column: int, message: str) -> None:
    with pytest.raises(CgqlError) as error:
        parse(text)
    assert message in str(error.value)
    assert (error.value.line, error.value.column) == (1, column)


PIECES = [
    "DETECT", "AND", "Match", "(", ")", "{", "}", "[", "]", ",", ";", ":", "edge", "vertex", "source", "a", "T.*", "=",
    "<", "!=", "5", "-2.5", "'x'", "20h", "$p", "WHERE", "SUCCEEDS", "OF", "WITHIN", "AS", "EMIT", "EVERY", "FROM",
    "TO", "NOT", "OR", "IN", "has", "--", "-[", "]->", "<-[", "#", "\n", "`b c`", "Reach", "Cluster", "sum", "node.x",
    "WITH", "MATCH", "RETURN", "*", "a.x", ":A", "IS", "NULL", "]-",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40) | st.text(max_size=60).map(lambda text: [text]))
def test_any_text_is_read_or_refused(pieces: list[str]) -> None:
    """Breaks when a text ends in another error than one with a position."""
    try:
        check(parse(" ".join(pieces)), {"p": 1})
    except CgqlError as error:
        assert error.line >= 1 and error.column >= 1


names = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,4}", fullmatch=True)
references = st.lists(names, min_size=1, max_size=2).map(lambda parts: syntax.Reference(tuple(parts)))
constants = st.one_of(
    st.integers(-(1 << 62), 1 << 62), st.floats(allow_nan=False, allow_infinity=False), st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5),
).map(syntax.Literal)  # fmt: skip
values = (
    constants
    | references
    | names.map(syntax.Parameter)
    | st.integers(0, 1 << 50).map(lambda millis: syntax.Span(1000 * millis))
)
operands: Any = references | st.builds(syntax.Aggregate, names, references)
leaves = st.one_of(
    st.builds(syntax.Comparison, operands, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), values),
    st.builds(syntax.Member, operands, names), st.builds(syntax.Has, references), st.builds(syntax.Bare, operands),
    st.builds(syntax.OneOf, operands, st.lists(values, min_size=1, max_size=3).map(tuple)),
)  # fmt: skip
parts: Any = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(syntax.Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda found: syntax.All(tuple(found))),
        st.lists(inner, min_size=2, max_size=3).map(lambda found: syntax.Any(tuple(found))),
    ),
    max_leaves=6,
)


@given(st.lists(parts, max_size=3))
def test_predicates_and_their_text(found: list[Any]) -> None:
    """What is printed is read as the same, with all brackets that this needs."""
    query = syntax.Query("Match", (syntax.NamedPredicates("vertex", syntax.Predicates(tuple(found))),))
    script = syntax.Script((syntax.Detects((query,)),))
    assert parse(str(script)) == script
