"""The description of flows: names, checks, YAML, and the model for scheduling."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.topology import Topology

stream = gf.stream


def started(name: str = "test") -> tuple[Any, Any]:
    flow = stream.Flow(name)
    return flow, flow.source(stream.from_iterable([1, 2]))


def two_arguments(a: int, b: int) -> int:
    return a + b


class NoValue:
    pass


class WrongTimer:
    def on_value(self, key: Any, value: Any, state: Any, timers: Any, emit: Any) -> None: ...
    def on_timer(self, key: Any) -> None: ...


def sunk(flow: Any, source: Any) -> None:
    source.sink(stream.collect())
    flow.check()


def unclosed(flow: Any, source: Any) -> None:
    source.union(flow.loop("again")).sink(stream.collect())
    flow.check()


def closed_twice(flow: Any, source: Any) -> None:
    loop = flow.loop("again")
    loop.close(source)
    loop.close(source)


def two_sinks_of_a_folder(flow: Any, source: Any) -> None:
    source.sink(stream.write_csv("out")).sink(stream.write_parquet("./out"))
    flow.check()


def mixed_times(flow: Any, source: Any) -> None:
    source.union(source.event_time("t")).sink(stream.collect())
    flow.check()


def applied(build: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    def wrong(flow: Any, source: Any) -> None:
        sunk(flow, build(source))

    return wrong


minute = stream.tumbling("1min")
fast = stream.Alternate(str, cost=0.1)
WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "no source; add one": lambda flow, s: stream.Flow("empty").check(),
    "no sink; add one": lambda flow, s: flow.check(),
    "operator map: nothing receives its records": lambda flow, s: (s.map(str, name="map"), sunk(flow, s)),
    "two operators are named 'a'": lambda flow, s: (s.map(str, name="a"), s.map(str, name="a")),
    "operator '.a': accepted are": lambda flow, s: s.map(str, name=".a"),
    "operator two_arguments: two_arguments.* must accept 1 argument": applied(lambda s: s.map(two_arguments)),
    "operator filter: function.*must accept 1|operator filter: <lambda>.*must accept 1 argument": applied(
        lambda s: s.filter(lambda: True)
    ),
    r"operator reduce: <lambda>.* must accept 2 arguments \(total, record\)": applied(
        lambda s: s.key_by(str).reduce(lambda total: total, initial=0)
    ),
    "operator sum: key or time: two_arguments": applied(lambda s: s.key_by(two_arguments).sum()),
    "operator NoValue: the class has no method on_value": applied(lambda s: s.key_by(str).process(NoValue)),
    "operator WrongTimer: on_timer: on_timer.* must accept 6": applied(lambda s: s.key_by(str).process(WrongTimer)),
    "operator sum after source: requires a key; call key_by": applied(lambda s: s.sum()),
    "operator reduce after source: requires a key": applied(lambda s: s.reduce(two_arguments, initial=0)),
    "operator map after source: key_by.* requires an operator with state": applied(lambda s: s.key_by(str).map(str)),
    "operator sum: requires an event time": applied(lambda s: s.key_by("k").window(minute).sum()),
    "operator join: requires an event time": applied(lambda s: s.key_by("k").join(s.key_by("k"), within=1)),
    "operator again: the loop is not closed": unclosed,
    "operator again: the loop is closed already": closed_twice,
    "operator source: belongs to flow other": lambda flow, s: s.union(started("other")[1]),
    "operator sink-2: ./out is also written by sink": two_sinks_of_a_folder,
    "operator union: some streams have event times": mixed_times,
    "lateness requires time": lambda flow, s: s.key_by("k").window(minute, lateness=1),
    "lateness and idle require time": lambda flow, s: flow.source(stream.generate(1), lateness=1),
    "tumbling window: size = 0: must be a positive duration": lambda flow, s: stream.tumbling(0),
    "size = '5 parsecs': must be a positive duration": lambda flow, s: stream.tumbling("5 parsecs"),
    "slide = 3 exceeds size = 2": lambda flow, s: stream.sliding(2, 3),
    "gap = -1: must be a positive duration": lambda flow, s: stream.session(-1),
    "within = -1: must be a non-negative duration": lambda flow, s: s.key_by("k").join(s.key_by("k"), within=-1),
    "joins accept tumbling windows only": lambda flow, s: s.key_by("k").window(stream.session(1)).join(s.key_by("k")),
    "the other stream requires a key": lambda flow, s: s.key_by("k").join(s, within=1),
    "operator sum: has no late records": lambda flow, s: s.key_by("k").sum().late(),
    "alternates require a cost": lambda flow, s: s.map(str, alternates={"fast": fast}),
    "operator str: alternate main: cost = 0: must be a positive number": lambda flow, s: s.map(str, cost=0),
    "alternate fast: value = 2: must be more than 0 and at most 1": lambda flow, s: s.map(
        str, cost=1, alternates={"fast": stream.Alternate(str, 1, 2)}
    ),
    "alternate 'main' is the function itself": lambda flow, s: s.map(str, cost=1, alternates={"main": fast}),
    "choose one of sum, count, min, max, mean": lambda flow, s: s.key_by("k").aggregate(a="median"),
    "result 'k' has the name of the key": lambda flow, s: s.key_by("k").sum("k"),
    r"key_by\(3\): give a column or a function": lambda flow, s: s.key_by(3),
    "str is not a source": lambda flow, s: flow.source("a.csv"),
    "str is not a sink": lambda flow, s: s.sink("a.csv"),
    "on_error = 'skip': accepted are 'fail' and a sink": lambda flow, s: stream.Flow("a", on_error="skip"),
    "rate = 0: must be a positive number": lambda flow, s: stream.generate(1, rate=0),
    "no outputs; give a mapping": lambda flow, s: s.branch({}),
    "'minute' is not a window": lambda flow, s: s.key_by("k").window("minute"),
    "rates: 'sink' is not a source": lambda flow, s: (s.sink(stream.collect()), flow.to_dataflow({"sink": 1.0})),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_flow_is_refused_in_one_line(message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        WRONG[message](*started())
    assert "\n" not in str(caught.value)


def parse(value: Any) -> Any:
    return value


def test_names_are_unique_and_functions_with_odd_signatures_are_accepted() -> None:
    flow, source = started()
    source.map(parse).map(parse).map(lambda value: value).map(max).map(two_arguments.__get__(1)).sink(stream.collect())
    names = ["source", "parse", "parse-2", "map", "max", "two_arguments", "sink"]
    assert flow.check().names == names


def test_a_checked_flow_does_not_change_and_can_be_pickled() -> None:
    flow = stream.Flow("test")
    source = flow.source(stream.read_json_lines("a.jsonl"))
    source.map(parse).sink(stream.print_values())
    before = flow.check()
    assert pickle.loads(pickle.dumps(before)) == before == flow.check()
    source.map(str).sink(stream.print_values())
    assert before.names == ["source", "parse", "sink"]
    assert before.fingerprint != flow.check().fingerprint
    assert [(c.source, c.target) for c in before.channels] == [("source", "parse"), ("parse", "sink")]
    with pytest.raises(InputError, match="flow test: no operator 'b'; choose one of source, parse, sink"):
        before.operator("b")


def test_the_model_for_scheduling() -> None:
    """Breaks when policies would see other operators, edges, rates or alternates than those of the flow."""
    flow = stream.Flow("orders")
    source = flow.source(stream.generate(rate=100.0), name="orders")
    loop = flow.loop("again")
    alternates = {"fast": stream.Alternate(str, cost=0.2, value=0.8)}
    parsed = source.union(loop, name="all").map(parse, alternates=alternates, cost=1.0)
    parts = parsed.branch({"big": bool, "small": bool}, name="split")
    loop.close(parts["small"])
    parts["big"].filter(bool, name="some", selectivity=0.5).sink(stream.collect(), name="out")
    found = flow.to_dataflow()
    assert found.name == "orders"
    assert [element.id for element in found.elements] == ["orders", "all", "parse", "split", "some", "out"]
    assert [(a.id, a.cost, a.value) for a in found.elements[2].choices] == [("main", 1.0, 1.0), ("fast", 0.2, 0.8)]
    assert found.elements[4].choices[0].selectivity == 0.5
    assert found.inputs["orders"] == 100.0
    assert ("split", "again") not in found.edges and ("parse", "split") in found.edges
    assert flow.to_dataflow({"orders": 7.0}).inputs["orders"] == 7.0


FUNCTIONS = """
def parse(record): return record
def fast(record): return record
def large(record): return record["total"] > 10
def other(record): return True
def add(total, record): return total + record["total"]
class Logic:
    def on_value(self, key, value, state, timers, emit): emit(value)
"""
YAML = """
name: orders
on_error: {json_lines: bad}
max_errors: 5
operators:
- {name: orders, kind: source, read: {json_lines: orders.jsonl, rate: 10}, time: at, lateness: 5s, idle: 10s}
- {name: again, kind: loop, returns: split.rest}
- {name: all, kind: union, inputs: [orders, again]}
- name: parse
  kind: map
  input: all
  function: shop:parse
  cost: 1.0
  alternates: {fast: {function: "shop:fast", cost: 0.2, value: 0.8}}
- {name: split, kind: branch, input: parse, outputs: {large: "shop:large", rest: "shop:other"}}
- name: revenue
  kind: aggregate
  input: split.large
  key: customer
  window: {sliding: 1min, slide: 10s}
  results: {revenue: [sum, total], orders: count}
  migrate: "shop:other"
- {name: totals, kind: reduce, input: split.large, key: "shop:parse", function: "shop:add", initial: 0,
   migrate: "shop:parse"}
- {name: pairs, kind: join, left: totals, right: split.large, left_key: key, right_key: customer, within: 10s}
- {name: logic, kind: process, input: pairs, key: "shop:other", function: "shop:Logic", migrate: "shop:large"}
- {name: out, kind: sink, input: revenue, write: {parquet: out}}
- {name: late, kind: sink, input: revenue.late, write: {csv: late}}
- {name: shown, kind: sink, input: logic, write: {print: true}}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    (tmp_path / "flow.yaml").write_text(YAML)
    return tmp_path / "flow.yaml"


def test_a_file_gives_the_flow_of_python(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stream.read_flow(shop).check()
    shop_module = sys.modules.pop("shop")
    monkeypatch.setitem(sys.modules, "shop", shop_module)
    functions: Any = shop_module
    flow = stream.Flow("orders", on_error=stream.write_json_lines("bad"), max_errors=5)
    orders = flow.source(
        stream.read_json_lines("orders.jsonl", rate=10), time="at", lateness="5s", idle="10s", name="orders"
    )
    loop = flow.loop("again")
    alternates = {"fast": stream.Alternate(functions.fast, cost=0.2, value=0.8)}
    parsed = orders.union(loop, name="all").map(functions.parse, alternates=alternates, cost=1.0, name="parse")
    parts = parsed.branch({"large": functions.large, "rest": functions.other}, name="split")
    loop.close(parts["rest"])
    windows = parts["large"].key_by("customer").window(stream.sliding("1min", "10s"))
    revenue = windows.aggregate(name="revenue", revenue=("sum", "total"), orders="count", migrate=functions.other)
    totals = (
        parts["large"].key_by(functions.parse).reduce(functions.add, initial=0, name="totals", migrate=functions.parse)
    )
    pairs = totals.key_by("key").join(parts["large"].key_by("customer"), within="10s", name="pairs")
    logic = pairs.key_by(functions.other).process(functions.Logic, name="logic", migrate=functions.large)
    revenue.sink(stream.write_parquet("out"), name="out")
    revenue.late().sink(stream.write_csv("late"), name="late")
    logic.sink(stream.print_values(), name="shown")
    assert found == flow.check()
    assert isinstance(found, Topology)


def test_sources_and_sinks_of_modules(tmp_path: Path) -> None:
    text = "import goffish as gf\nnumbers = gf.stream.generate(3)\nout = gf.stream.write_csv({!r})\n"
    (tmp_path / "ends.py").write_text(text.format(str(tmp_path / "out")))
    described = """
name: ends
operators:
- {name: numbers, kind: source, read: {source: "ends:numbers"}}
- {name: out, kind: sink, input: numbers, write: {sink: "ends:out"}}
"""
    (tmp_path / "ends.yaml").write_text(described)
    assert stream.read_flow(tmp_path / "ends.yaml").run().records == 3
    webhook = 'post: {url: "https://alerts.example.org/a", secret: "0123456789abcdef", timeout: 5s}'
    reservoir = f'reservoir: {{path: "{tmp_path}/seen.reservoir", pool: orders, time: at, id: order}}'
    for text, sink in (
        (webhook, stream.post_json_lines("https://alerts.example.org/a", secret="0123456789abcdef", timeout=5)),
        (reservoir, stream.write_reservoir(f"{tmp_path}/seen.reservoir", "orders", time="at", id="order")),
    ):
        (tmp_path / "ends.yaml").write_text(described.replace('sink: "ends:out"', text))
        assert stream.read_flow(tmp_path / "ends.yaml").check().operators[1].options.sink == sink
    for old, new, message in (
        ('sink: "ends:out"', 'post: {url: "http://a.example.org/"}', r"a.example.org/: http is only accepted for loop"),
        ('sink: "ends:out"', 'post: {url: "https://a.org/", secret: short}', r"secret"),
        ('sink: "ends:out"', "reservoir: {path: made}", r"operators\[1\].write.reservoir.pool: is missing"),
        ("ends:numbers", "ends:out", r"operators\[0\].read.source = 'ends:out': FolderSink is not a source"),
        ("ends:out", "ends:none", r"operators\[1\].write.sink = 'ends:none': cannot be imported"),
        ('sink: "ends:out"', "result: true", r"operators\[1\].write: result: only jobs of the service have one"),
    ):
        (tmp_path / "ends.yaml").write_text(described.replace(old, new))
        with pytest.raises(InputError, match=message):
            stream.read_flow(tmp_path / "ends.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: union, inputs", "kind: union, input", r"operators\[2\].inputs: is missing"),
        ("idle: 10s", "idel: 10s", r"operators\[0\].idel: unknown field; choose from name, kind, read"),
        ("input: all", "input: everything", r"operators\[3\].input = 'everything': no such stream .* known: orders"),
        ("shop:parse\n", "shop:nothing\n", r"operators\[3\].function = 'shop:nothing': cannot be imported"),
        ("shop:parse\n", "nothing\n", r"operators\[3\].function = 'nothing': "),
        (
            "{json_lines: orders.jsonl, rate: 10}",
            "{csv: a.csv, parquet: b}",
            r"operators\[0\].read = .*: give exactly one of",
        ),
        ("slide: 10s", "slide: 2min", r"operators\[5\]: sliding window: slide = '2min' exceeds"),
        ("kind: process", "kind: magic", r"operators\[8\] = .*magic"),
        ('key: "shop:other", function', 'keys: "shop:other", function', r"operators\[8\].key: is missing"),
        (
            '"shop:Logic"',
            '"shop:Logic", a: 1',
            r"operators\[8\].a: unknown field; choose from name, kind, input, key, f",
        ),
        ("name: totals", "name: parse", r"operators\[6\]: flow orders: two operators are named 'parse'"),
        ("max_errors: 5", "max_errors: -5", "max_errors = -5"),
        ("returns: split.rest", "returns: split.none", r"operators\[1\].returns = 'split.none'"),
    ],
)
def test_a_wrong_file_is_refused_with_its_field(shop: Path, old: str, new: str, message: str) -> None:
    assert old in YAML
    shop.write_text(YAML.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        stream.read_flow(shop)
    assert str(caught.value).startswith(str(shop))
    assert "\n" not in str(caught.value)


def test_the_public_names() -> None:
    """Breaks when a name is missing, or `gf.stream` shows anything that is not public."""
    assert dir(stream) == sorted(stream.__all__)
    for name in stream.__all__:
        assert getattr(stream, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stream.nothing
    code = "import sys, goffish as gf; gf.stream; print([m for m in ('numpy', 'numba', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
