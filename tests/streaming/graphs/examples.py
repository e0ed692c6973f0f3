"""Worked examples: queries, records, and exactly the events that follow.

Each line has records, and the events of the last one after ``->``; several of either are separated by ``;``. A line
that begins with ``submit`` or ``cancel`` is a command at that time.
"""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    queries: str
    lines: str
    parameters: dict[str, float] = {}


BOB = Example(
    """DETECT Reach(source:{name = Bob, age = 33}, sink:{age < 30, lives_in = London}) FOR 20h
       WHERE edge:{type = follow} AS r""",
    """
1 +v b name=Bob age=33
2 +v c name=Cat age=25 lives_in=London
3 +v d name=Dan age=40 lives_in=Paris
4 +e e1 b d type=follow
5 +e e2 d c type=like
6 +e e3 d c type=follow -> 6 r REACHABLE (b, c) hops=2
7 +av c age=30 -> 7 r UNREACHABLE (b, c) hops=2
8 +av c age=29 -> 8 r REACHABLE (b, c) hops=2
9 -e e1 -> 9 r UNREACHABLE (b, c) hops=2
10 +e e4 b c type=follow -> 10 r REACHABLE (b, c) hops=1
11 +e e5 b c type=follow
12 -e e4
13 +ae e5 type=like -> 13 r UNREACHABLE (b, c) hops=1
14 -ae e5 type
15 +ae e5 type=follow -> 15 r REACHABLE (b, c) hops=1
16 -v c -> 16 r UNREACHABLE (b, c) hops=1
72001 +v z -> 72000 r CLOSED expired
""",
)
INTERESTS = Example(
    "DETECT Reach(source: {interests = foo}, sink:{interests = bar}) AS r",
    """
1 +v a interests=[foo]
2 +v b interests=[bar]
3 +v m interests=[foo|bar]
4 +e e1 a m -> 4 r REACHABLE (a, m) hops=1
5 +e e2 m b -> 5 r REACHABLE (a, b) hops=2 ; 5 r REACHABLE (m, b) hops=1
6 +e e3 a b
7 -e e2 -> 7 r UNREACHABLE (m, b) hops=1
8 -e e2
9 submit DETECT Reach(source: {interests = foo}, sink:{interests = bar}, hops: 1) AS late \
-> 9 late REACHABLE (a, b) hops=1 initial ; 9 late REACHABLE (a, m) hops=1 initial
10 +av b interests=[baz] -> 10 r UNREACHABLE (a, b) hops=1 ; 10 late UNREACHABLE (a, b) hops=1
11 +av b interests=[bar] -> 11 r REACHABLE (a, b) hops=1 ; 11 late REACHABLE (a, b) hops=1
12 -v m -> 12 r UNREACHABLE (a, m) hops=1 ; 12 late UNREACHABLE (a, m) hops=1
13 -av a interests -> 13 r UNREACHABLE (a, b) hops=1 ; 13 late UNREACHABLE (a, b) hops=1
""",
)
TRIANGLES = Example(
    "DETECT Motif((a)--(b)--(c)--(a)) AS tri",
    """
1 +e e1 a b ; 2 +e e2 c b
3 +e e3 a c -> 3 tri MATCHED (a, b, c, [e1 e2 e3])
4 +e e4 a c -> 4 tri MATCHED (a, b, c, [e1 e2 e4])
5 +e e5 a a
6 -e e3 -> 6 tri UNMATCHED (a, b, c, [e1 e2 e3])
7 -v b -> 7 tri UNMATCHED (a, b, c, [e1 e2 e4])
""",
)
CIRCLE = Example(
    "DETECT Component(contains:{name = Bob}, members: true, grow: 5) WHERE edge:{type = friend} AS circle",
    """
1 +v b name=Bob
2 +e f1 b c type=friend -> 2 circle CREATED 1 members={b,c}
3 +e f2 d e type=friend
4 +e f3 c d type=friend -> 4 circle JOINED 1 vertices={d,e}
5 +e g1 e x type=blocks
6 +e f4 e x type=friend -> 6 circle GROWN 1 size=5 ; 6 circle JOINED 1 vertices={x}
7 +e f5 b d type=friend
8 -e f3
9 -e f5 -> 9 circle PARTED 1 vertices={d,e,x}
10 -e f1 -> 10 circle DISAPPEARED 1
""",
)
TWO_HOPS = Example(
    "DETECT Neighbourhood(center:{name = Bob}, hops: 2) AS n2",
    """
1 +v b name=Bob
2 +e e1 b c -> 2 n2 ENTERED (b, c) hops=1
3 +e e2 c d -> 3 n2 ENTERED (b, d) hops=2
4 +e e3 d x
5 +e e4 x b -> 5 n2 ENTERED (b, x) hops=1
6 -e e1 -> 6 n2 LEFT (b, c) hops=1
7 -v x -> 7 n2 LEFT (b, d) hops=2 ; 7 n2 LEFT (b, x) hops=1
""",
)
PAYMENTS = Example(
    """DETECT Motif((a)-[x]->(b)-[y]->(c)-[z]->(a), x.amount >= 100, y.amount >= 100, z.amount >= 100) WINDOW 10m
       WHERE edge:{type = pay} AS loop""",
    """
0 +e p1 ann bob type=pay amount=150
60 +e p2 bob cyd type=pay amount=140
120 +e p3 cyd ann type=pay amount=99
180 +e p4 cyd ann type=pay amount=130 -> 180 loop MATCHED (ann, bob, cyd, [p1 p2 p4])
200 +ae p3 amount=100 -> 200 loop MATCHED (ann, bob, cyd, [p1 p2 p3])
500 +e p1 ann bob type=pay amount=150
700 +v tick -> 660 loop UNMATCHED (ann, bob, cyd, [p1 p2 p3]) ; 660 loop UNMATCHED (ann, bob, cyd, [p1 p2 p4])
""",
)
SCAN = Example(
    """DETECT Degree(vertex:{kind = host}, degree >= 3, clear: 2, direction: out, distinct: true) WINDOW 60s
       WHERE edge:{type = flow} AS scan""",
    """
0 +v h1 kind=host ; 0 +v h2 kind=host
10 +e a1 h1 h2 type=flow ; 20 +e a2 h1 s1 type=flow ; 25 +e a3 h1 s1 type=flow
30 +e a4 h1 s2 type=flow -> 30 scan RAISED h1 degree=3
40 +e a5 h1 s3 type=flow
100 +v tick -> 90 scan CLEARED h1 degree=2
""",
)
HOT = Example(
    "DETECT Cluster(node.usage > 10, size >= 2, grow: 4) WHERE edge:{type = power} AS hot",
    """
0 +e l1 a b type=power ; 0 +e l2 b c type=power ; 0 +e l3 c d type=power ; 0 +e l4 d e type=power
0 +e l5 e f type=power
1 +av a usage=11
2 +av b usage=12 -> 2 hot CREATED 1 members={a,b} size=2
3 +av d usage=20
4 +av e usage=20 -> 4 hot CREATED 2 members={d,e} size=2
5 +av f usage=9
6 +av c usage=15 -> 6 hot MERGED 2 into=1 members={a,b,c,d,e} ; 6 hot GROWN 1 size=5
7 +av f usage=14
8 -e l3 -> 8 hot SPLIT 3 parent=1 members={d,e,f} size=3
9 +av b usage=5 -> 9 hot DISAPPEARED 1
10 +e l6 d f type=power
11 -v e
12 +av d usage=1 -> 12 hot DISAPPEARED 3
""",
)
EVOLVED = Example(
    """DETECT Cluster(size >= 2) WHERE edge:{type = friend} AS C; DETECT Evolved(C) WHERE size >= 2 AS e1;
       DETECT Evolved(C) WHERE size >= 2 AND SUCCEEDS C AS e2;
       DETECT Evolved(C) WHERE size >= 4 AND SUCCEEDS C AS e4""",
    """
1 +e f1 a b type=friend -> 1 C CREATED 1 members={a,b} size=2 ; 1 e1 EVOLVED 1 members={a,b} size=2
2 +e f2 b c type=friend
3 +e f3 c d type=friend -> 3 e4 EVOLVED 1 members={a,b,c,d} size=4
4 -e f3
5 +e f4 a e type=friend -> 5 e4 EVOLVED 1 members={a,b,c,e} size=4
6 -e f2 ; 7 -e f1
8 -e f4 -> 8 C DISAPPEARED 1
9 +e f5 a b type=friend -> 9 C CREATED 2 members={a,b} size=2 ; 9 e1 EVOLVED 2 members={a,b} size=2
""",
)
RANKED = Example(
    "DETECT Centrality(measure: pagerank, top: 2) EMIT EVERY 10s AS top",
    """
1 +e e1 a b ; 2 +e e2 c b ; 3 +e e3 b d
12 +e e4 a d -> 3 top ENTERED b rank=2 score=0.337711 ; 3 top ENTERED d rank=1 score=0.412133
13 +e e5 c d ; 22 -e e3 ; 23 +e e6 d c
35 +v z -> 23 top LEFT d rank=1 score=0.470608 ; 23 top ENTERED c rank=1 score=0.337595
40 +v end
""",
)
TEMPORAL = Example(
    """DETECT Match(edge:{type = alarm}) WHERE SUCCEEDS 2 OF msg[REACHABLE] WITHIN 100s SHARING VERTICES AS late
       AND DETECT Reach(source:{kind = user}, sink:{kind = host}) WHERE edge:{type = msg} AS msg
       AND DETECT Match(edge:{type = login}) WHERE PREDATES msg WITHIN 20s SHARING VERTICES AS early""",
    """
1 +v u1 kind=user ; 1 +v u2 kind=user ; 1 +v h1 kind=host ; 1 +v h2 kind=host
10 +e L1 u1 h1 type=login ; 12 +e L3 u1 x type=login ; 15 +e L2 u2 h2 type=login ; 16 -e L3
20 +e m1 u1 h1 type=msg -> 20 msg REACHABLE (u1, h1) hops=1 ; 10 early MATCHED L1
25 +e A1 h1 x type=alarm
40 +e m2 u2 h1 type=msg -> 40 msg REACHABLE (u2, h1) hops=1
40 +e A2 h1 y type=alarm
45 -e L1 -> 45 early UNMATCHED L1
50 +e A3 h1 z type=alarm -> 50 late MATCHED A3
130 +e A4 h1 w type=alarm
140 -e A3 -> 140 late UNMATCHED A3
141 -e A4
""",
)
NET = Example(
    """DETECT Reach(source:{name = s}, sink:{name = t}) AS each;
       DETECT Reach(source:{name = s}, sink:{name = t}) EMIT EVERY 10s AS net""",
    """
1 +v s name=s ; 1 +v t name=t
2 +e e1 s t -> 2 each REACHABLE (s, t) hops=1
3 -e e1 -> 3 each UNREACHABLE (s, t) hops=1
11 +e e2 s x
12 +e e3 x t -> 12 each REACHABLE (s, t) hops=2
19 +e e4 s t
21 -e e3 -> 19 net REACHABLE (s, t) hops=1
28 -e e4 -> 28 each UNREACHABLE (s, t) hops=1
29 +e e5 x t -> 29 each REACHABLE (s, t) hops=2
31 -v x -> 31 each UNREACHABLE (s, t) hops=2
40 +v q -> 31 net UNREACHABLE (s, t) hops=2
""",
)
LIFE = Example(
    "",
    """
1 +v s name=s ; 2 +e e1 s t1 ; 3 +av t1 kind=t
5 submit DETECT Reach(source:{name = s}, sink:{kind = t}) FOR 10s AS a; \
DETECT Reach(source:{name = s}, sink:{kind = t}) WITH (initial = false) AS b -> 5 a REACHABLE (s, t1) hops=1 initial
6 +e e2 s t2
6 +av t2 kind=t -> 6 a REACHABLE (s, t2) hops=1 ; 6 b REACHABLE (s, t2) hops=1
15 -e e1 -> 15 a CLOSED expired ; 15 b UNREACHABLE (s, t1) hops=1
16 -e e2 -> 16 b UNREACHABLE (s, t2) hops=1
17 submit CANCEL b -> 17 b CLOSED cancelled
18 +e e3 s t1
""",
)
GRID = Example(
    "",
    """
0 +v s1 kind=station ; 0 +v s2 kind=station ; 0 +e w1 s1 a type=power ; 0 +e w2 s1 b type=power
0 +e w3 s1 c type=power ; 0 +e w4 s2 x type=power ; 0 +e w5 s2 y type=power ; 0 +e w6 s2 z type=power
50 +av a usage=4 ; 50 +av b usage=4 ; 50 +av c usage=4 ; 50 +av x usage=6 ; 50 +av y usage=6 ; 50 +av z usage=6
100 submit DETECT Reach(source: {name=C1.*}, sink: {name=C2.*}) FOR 24h WHERE edge:{message} AS infl \
AND DETECT Cluster( sum(node.usage) < lo , diameter < d) FOR (24h) WHERE edge:{type = power} AS C1 \
AND DETECT Cluster( sum(node.usage) > hi , diameter < d) FOR (24h) WHERE edge:{type = power} AS C2; \
DETECT Evolved(C2) WHERE sum(node.usage) < lo AND SUCCEEDS C2 AS dropped; \
DETECT Evolved(C2) WHERE sum(node.usage) < lo AND SUCCEEDS infl WITHIN 24h SHARING VERTICES AS influenced
110 +av x usage=9 -> 110 C2 CREATED 1 members={s2,x,y,z} sum(node.usage)=21 diameter=2
120 +e m1 a x type=message
130 +av a usage=1 -> 130 C1 CREATED 1 members={a,b,c,s1} sum(node.usage)=9 diameter=2 ; 130 infl REACHABLE (1, 1) hops=1
140 +e m2 b u type=message ; 150 +e m3 u y type=message
160 -e m1
170 +av x usage=3 -> 170 C2 DISAPPEARED 1 ; 170 infl UNREACHABLE (1, 1) hops=2
175 +av y usage=3
180 +av z usage=3 -> 180 C1 CREATED 2 members={s2,x,y,z} sum(node.usage)=9 diameter=2 ; \
180 dropped EVOLVED 1 members={s2,x,y,z} sum(node.usage)=9 ; \
180 influenced EVOLVED 1 members={s2,x,y,z} sum(node.usage)=9
190 -e m3
200 +av b usage=9 -> 200 C1 DISAPPEARED 1
210 +e w7 c z type=power -> 210 C1 DISAPPEARED 2
220 +av y usage=16
230 -e w7 -> 230 C2 CREATED 2 members={s2,x,y,z} sum(node.usage)=22 diameter=2
240 +av y usage=4 -> 240 C2 DISAPPEARED 2
245 +av x usage=2 -> 245 C1 CREATED 3 members={s2,x,y,z} sum(node.usage)=9 diameter=2 ; \
245 dropped EVOLVED 2 members={s2,x,y,z} sum(node.usage)=9 ; \
245 influenced EVOLVED 2 members={s2,x,y,z} sum(node.usage)=9
250 +e m4 c x type=message
""",
    {"lo": 10, "hi": 20, "d": 3},
)
NETWORK = Example(
    "",
    """
0 +v a rate=10 ; 0 +v b rate=12 ; 0 +v c rate=9 ; 0 +v d rate=8 ; 0 +v r rate=0
0 +e k1 a b type=packet ; 0 +e k2 c d type=packet
1 submit DETECT Reach(source:{name = bad.*}, sink:{name = good.*}) FOR 1h WHERE edge:{type = route} AND SUCCEEDS bad \
AS threat AND DETECT Cluster(node.rate > 100, size >= 2) FOR 1h WHERE edge:{type = packet} AS bad \
AND DETECT Cluster(node.rate <= 100, size >= 2) FOR 1h WHERE edge:{type = packet} AS good; \
DETECT Match(vertex:{rate > 100}) FOR 1h WHERE SUCCEEDS threat WITHIN 10m AS spread \
-> 1 good CREATED 1 members={a,b} size=2 initial ; 1 good CREATED 2 members={c,d} size=2 initial
10 +av a rate=150 -> 10 good DISAPPEARED 1
20 +av b rate=130 -> 20 bad CREATED 1 members={a,b} size=2
30 +e r1 b r type=route
40 +e r2 r c type=route -> 40 threat REACHABLE (1, 2) hops=2
50 +av c rate=300 -> 50 good DISAPPEARED 2 ; 50 threat UNREACHABLE (1, 2) hops=2 ; 50 spread MATCHED c
60 -e r2
70 +e r3 r d type=route
80 +av d rate=200 -> 80 bad CREATED 2 members={c,d} size=2 ; 80 spread MATCHED d
90 +av c rate=5 -> 90 bad DISAPPEARED 2 ; 90 spread UNMATCHED c
95 +av d rate=5 -> 95 good CREATED 3 members={c,d} size=2 ; 95 threat REACHABLE (1, 3) hops=2 ; 95 spread UNMATCHED d
100 -v b -> 100 bad DISAPPEARED 1 ; 100 threat UNREACHABLE (1, 3) hops=2
""",
)
EXAMPLES = {name: one for name, one in globals().items() if isinstance(one, Example)}
