"""What ``goffish compile`` runs for streams: small flows and live graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_FOLLOWED = ("components", "degrees", "cores", "triangles", "louvain", "pagerank")
_QUERIES = """
    DETECT Reach(source:{kind = guest}, sink:{kind = server}, hops: 3) WHERE edge:{type = flow} AS paths;
    DETECT Degree(degree >= 2, direction: out, distinct: true) WINDOW 60s AS scans;
    DETECT Component(min_size: 2) AS parts;
    DETECT Cluster(node.usage > 10) WHERE sum(node.usage) > 20 AS loads;
    DETECT Match(edge:{amount > 2.5}) AS large
"""
_CHAINS = "MATCH (a {kind: 'guest'})-[:flow]->(b)-[:flow]->(c) RETURN a, b, c AS chains"


def compile_flows() -> None:
    """Run flows with keyed state over Python values and over batches."""
    import pyarrow as pa

    from goffish.streaming.flow import Flow
    from goffish.streaming.sinks import collect
    from goffish.streaming.sources import from_iterable
    from goffish.streaming.windows import tumbling

    for key, name in ((lambda at: f"c{at % 3}", "texts"), (lambda at: at % 3, "integers")):
        rows = [{"key": key(at), "total": at, "share": at / 2, "at": float(at)} for at in range(100)]
        for records in (rows, [pa.Table.from_pylist(rows).combine_chunks().to_batches()[0]]):
            flow = Flow(name)
            keyed = flow.source(from_iterable(records), time="at", lateness=0, name="records").key_by("key")
            for column in ("total", "share"):
                keyed.sum(column, name=column).sink(collect(), name=f"{column}-out")
            keyed.window(tumbling("10s")).sum("total", name="windows").sink(collect(), name="windows-out")
            flow.run()


def compile_live_graphs() -> None:
    """Follow algorithms and queries on live graphs whose ids are texts, and integers."""
    from goffish.streaming.graphs.live import LiveGraph

    for name in (str, int):
        graph = LiveGraph(lateness=0)
        graph.submit(_QUERIES)
        graph.submit(_CHAINS)
        followed = [graph.follow(algorithm) for algorithm in _FOLLOWED]
        followed += [graph.follow("bfs", source=name(0)), graph.follow("sssp", source=name(0), weight="amount")]
        for records in _records(name):
            graph.feed(records)
            for algorithm in followed:
                algorithm.result()
        graph.graph()
        graph.end()


def _records(name: Callable[[int], Any]) -> Iterator[list[dict[str, Any]]]:
    """Iterate over batches of records that add vertices and edges, change and remove them."""
    yield [
        {"t": at, "op": "+v", "id": name(at), "attrs": {"kind": ("guest", "server")[at % 2], "usage": 8 * at}}
        for at in range(8)
    ]
    attrs: dict[str, Any] = {"type": "flow"}
    yield [
        {
            "t": 10 + at,
            "op": "+e",
            "src": name(at % 8),
            "dst": name((3 * at + 1) % 8),
            "attrs": attrs | {"amount": at / 2},
        }
        for at in range(16)
    ]
    yield [
        {"t": 30, "op": "-e", "src": name(0), "dst": name(1), "attrs": {"type": "flow"}},
        {"t": 31, "op": "+av", "id": name(2), "attrs": {"usage": 1}},
        {"t": 32, "op": "-v", "id": name(3)},
        {"t": 99, "op": "heartbeat"},
    ]


STREAMS = {"flows": compile_flows, "live-graphs": compile_live_graphs}
