"""The live page of a flow, its numbers for Prometheus, and the drawing."""

from __future__ import annotations

import http.client
import json
import math
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from goffish import stream
from goffish.errors import InputError, JobError
from goffish.streaming.live.layout import BOX, layout
from goffish.streaming.live.page import _Handler, _page, prometheus
from goffish.streaming.topology import Topology


def get(url: str, path: str, **headers: str) -> tuple[int, str]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def eventually(reached: Callable[[], bool]) -> None:
    for _ in range(3000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


@contextmanager
def started(address: str = "127.0.0.1:0") -> Iterator[tuple[stream.Run, str]]:
    flow = stream.Flow("page")
    source = flow.source(stream.generate(lambda n: {"n": n}, rate=5000), name="numbers")
    alternates = {"rough": stream.Alternate(lambda row: row, cost=0.001)}
    source.map(lambda row: row, name="price", alternates=alternates, cost=0.002).sink(stream.collect(), name="out")
    run = flow.start(http=address)
    try:
        assert run.url is not None
        yield run, run.url
    finally:
        run.stop()


def test_status_and_page() -> None:
    with started() as (run, url):
        eventually(lambda: run.metrics["out"].received > 100)
        before = run.metrics
        status, text = get(url, "/status")
        found = json.loads(text)
        after = run.metrics
        assert status == 200
        assert before.records <= found["records"] <= after.records
        assert before["out"].received <= found["operators"][2]["latency"]["count"] <= after["out"].received
        run.switch("price", "rough")
        eventually(lambda: json.loads(get(url, "/status")[1])["operators"][1]["alternate"] == "rough")
        status, page = get(url, "/")
        assert status == 200
        assert page.count('class="box"') == 3
        assert page.count('class="channel"') == 2
        assert "://" not in page  # nothing from elsewhere
        for path in ("/live.js", "/live.css"):
            assert path in page
            status, text = get(url, path)
            assert status == 200
            assert "://" not in text
        assert get(url, "/page.py")[0] == get(url, "/../page.py")[0] == 404
    with pytest.raises(ConnectionRefusedError):
        get(url, "/")


def test_names_of_other_sites_are_refused() -> None:
    with started() as (_, url):
        for host, status in (("evil.example", 403), ("evil.example:80", 403), ("localhost:1", 200), ("[::1]", 200)):
            assert get(url, "/status", Host=host)[0] == status


def test_slow_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that send nothing, or that hang up, take neither the flow nor the memory."""
    monkeypatch.setattr(_Handler, "timeout", 0.5)
    with started() as (run, url), ExitStack() as held:
        where = urlsplit(url)
        for number in range(200):
            client = held.enter_context(socket.create_connection((where.hostname, where.port), 30))
            if number % 3 == 0:
                client.sendall(b"GET / HT")
            elif number % 3 == 1:
                client.sendall(b"\x00" * 1000)
                client.close()
        seen = run.metrics.records
        eventually(lambda: run.metrics.records > seen)
        held.close()

        def answers() -> bool:
            try:
                return get(url, "/status")[0] == 200
            except (http.client.HTTPException, ConnectionError):
                return False

        eventually(answers)
        assert run.running


@pytest.mark.parametrize("address", ["0.0.0.0:0", "8080", "example.org:80", "127.0.0.1:70000", "[::]:0", "10.0.0.1:80"])
def test_addresses(address: str) -> None:
    flow = stream.Flow("page")
    flow.source(stream.generate(1)).sink(stream.collect())
    for run in (flow.run, flow.start, lambda http: flow.run(workers=2, http=http)):
        with pytest.raises(InputError, match=r"^http .*: accepted is a loopback HOST:PORT, such as 127.0.0.1:8080$"):
            run(http=address)


def test_an_address_in_use() -> None:
    with started() as (_, url), pytest.raises(JobError, match="cannot bind the address"):
        stream.Flow.run(one_source(), http=f"127.0.0.1:{urlsplit(url).port}")


def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(
        InputError, match=r"^http: prometheus-client is not installed: pip install 'goffish\[service\]'$"
    ):
        one_source().run(http="127.0.0.1:0")


def one_source() -> stream.Flow:
    flow = stream.Flow("page")
    flow.source(stream.generate(1)).sink(stream.collect())
    return flow


def test_prometheus(tmp_path: Path) -> None:
    """The parser of the Prometheus client reads the same numbers as the results have."""
    flow = stream.Flow("scraped")
    source = flow.source(stream.generate(lambda n: {"n": n}, count=700), name="numbers")
    source.filter(lambda row: row["n"] < 500, name="small").sink(stream.write_json_lines(tmp_path / "out"), name="out")
    metrics = flow.run(checkpoint=tmp_path / "ck")
    families = {one.name: one for one in text_string_to_metric_families(prometheus(metrics).decode())}
    received = {one.labels["operator"]: one.value for one in families["goffish_stream_records_received"].samples}
    assert received == {"numbers": 700, "small": 700, "out": 500}
    latency = families["goffish_stream_latency_seconds"].samples
    buckets = [(float(one.labels["le"]), one.value) for one in latency if one.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == (math.inf, 500)
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)
    assert metrics["out"].latency is not None
    exact = metrics["out"].latency.buckets
    for bound, value in buckets:
        assert value == sum(count for upper, count in exact if upper <= bound)
    (total,) = (one.value for one in latency if one.name.endswith("_sum"))
    assert total == pytest.approx(metrics["out"].latency.total)
    (checkpoint,) = families["goffish_stream_worker_checkpoint"].samples
    assert checkpoint.value == metrics.checkpoint == 1


@st.composite
def flows(draw: Any) -> Topology:
    """Flows in which operators receive from some earlier ones."""
    flow = stream.Flow("drawn")
    streams = [flow.source(stream.generate(1), name=f"s{at}") for at in range(draw(st.integers(1, 3)))]
    for at in range(draw(st.integers(0, 30))):
        first, second = (draw(st.integers(0, len(streams) - 1)) for _ in range(2))
        one = streams[first].map(lambda row: row, name=f"m{at}")
        streams.append(one if first == second else one.union(streams[second], name=f"u{at}"))
    for at, one in enumerate(streams):
        one.sink(stream.Sink(), name=f"k{at}")
    return flow.check()


@given(topology=flows())
def test_boxes_do_not_overlap(topology: Topology) -> None:
    made = layout(topology)
    boxes = made.boxes
    assert set(boxes) == set(topology.names)
    for (ax, ay), (bx, by) in combinations(boxes.values(), 2):
        assert abs(ax - bx) >= BOX[0] or abs(ay - by) >= BOX[1]
    for x, y in boxes.values():
        assert 0 <= x <= made.width - BOX[0]
        assert 0 <= y <= made.height - BOX[1]
    along = 0 if all(boxes[c.target][0] > boxes[c.source][0] for c in topology.channels) else 1
    assert all(boxes[c.target][along] > boxes[c.source][along] for c in topology.channels)
    assert len(made.paths) == len(topology.channels)


def test_the_drawing_is_xml() -> None:
    flow = stream.Flow("loops")
    loop = flow.loop("again")
    parts = flow.source(stream.generate(1)).union(loop).branch({"more": bool, "done": lambda row: True})
    loop.close(parts["more"])
    parts["done"].sink(stream.collect())
    page = _page(flow.check())
    drawing = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    groups = [one.get("class") for one in drawing.findall("g")]
    assert groups.count("channel back") == 1
    assert groups.count("box") == 5
