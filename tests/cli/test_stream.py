"""``goffish stream``: flows in files, results, errors, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goffish.cli.stream_commands import check_requirements
from goffish.errors import InputError
from goffish.streaming.flow_file import read_flow
from goffish.streaming.updates.bounds import Requirement
from goffish.streaming.updates.versions import Strategy
from tests.cli.conftest import Place
from tests.commands import ENVIRONMENT, Ended, assert_refused

FLOW = """
import goffish as gf
from helpers import parse

flow = gf.stream.Flow("orders")
orders = flow.source(gf.stream.read_json_lines("orders.jsonl"), name="orders")
orders.map(parse).key_by("customer").sum("total").sink(gf.stream.write_csv("out"), name="out")
"""
YAML = """
name: orders
operators:
- {name: orders, kind: source, read: {json_lines: orders.jsonl}}
- {name: parse, kind: map, input: orders, function: "helpers:parse"}
- {name: total, kind: aggregate, input: parse, key: customer, results: {total: [sum, total]}}
- {name: out, kind: sink, input: total, write: {print: true}}
"""


@pytest.fixture
def orders(tmp_path: Path) -> Place:
    rows = [{"customer": f"c{n % 3}", "total": n} for n in range(30)]
    (tmp_path / "orders.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "helpers.py").write_text("def parse(order): return order\n")
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "flow.yaml").write_text(YAML)
    return Place(tmp_path)


def test_run(orders: Place) -> None:
    ended = orders("stream", "run", "flow.py", "--every", "1h")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("orders: finished, 30 records in ")
    assert (orders / "out/part-00000001.csv").read_text() == "customer,total\nc0,135\nc1,145\nc2,155\n"
    assert "c0" not in ended.out and "parse" in ended.out


def test_run_with_checkpoints(orders: Place) -> None:
    for _ in range(2):
        found = orders("stream", "run", "flow.py:flow", "--checkpoint", "ck", "--every", "1h", "--json").json
        assert (found["stopped"], found["checkpoint"]) == ("finished", 1)
        assert [one["received"] for one in found["operators"]] == [30, 30, 30, 3]
    assert [path.name for path in (orders / "out").iterdir()] == ["part-00000001.csv"]


def test_a_flow_that_prints_prints_nothing_else(orders: Place) -> None:
    ended = orders("stream", "run", "flow.yaml")
    assert [json.loads(line)["total"] for line in ended.out.splitlines()] == [135, 145, 155]
    assert ended.err == ""


def test_until(orders: Place) -> None:
    (orders / "flow.py").write_text(FLOW.replace('"orders.jsonl"', '"orders.jsonl", follow=True'))
    found = orders("stream", "run", "flow.py", "--until", "0.3", "--json").json
    assert found["stopped"] == "until"
    assert (orders / "out/part-00000001.csv").exists()


def test_check(orders: Place) -> None:
    lines = orders("stream", "check", "flow.py").out.splitlines()
    assert lines[0] == "orders: 4 operators, 3 channels"
    assert lines[4].split() == ["sum", "aggregate", "parse", "customer"]
    found = orders("stream", "check", "flow.yaml", "--json").json
    assert [one["name"] for one in found["operators"]] == ["orders", "parse", "total", "out"]
    assert found["channels"][1] == {"source": "parse", "output": "", "target": "total", "port": 0, "feedback": False}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.py", None, "missing.py: no such file"),
        ("missing.yaml", None, "missing.yaml: cannot be read"),
        ("flow.txt", "", "flow.txt: the suffix must be one of .py, .yaml"),
        ("flow.py", "import goffish\n", "flow.py: must have one flow at the top level; it has none"),
        ("flow.py", FLOW + 'other = gf.stream.Flow("b")', "it has flow, other; name one, as in flow.py:flow"),
        ("flow.py:other", FLOW, "flow.py: no flow 'other'; it has flow"),
        ("flow.py", "a = 1\nb = (\n", "flow.py:2: '(' was never closed"),
        ("flow.py", "a = 1\nb = 1 / 0\n", "flow.py:2: ZeroDivisionError: division by zero"),
        ("flow.py", FLOW.replace('key_by("customer").', ""), "flow.py:7: operator sum after parse: requires a key"),
        ("flow.py", FLOW.replace("orders.jsonl", "nothing.jsonl"), "nothing.jsonl: no such file"),
        ("flow.py", FLOW.replace("orders.map", "orders.map(id)\norders.map"), "operator id: nothing receives"),
        ("flow.py", FLOW.replace('.sink(gf.stream.write_csv("out"), name="out")', ""), "flow orders: no sink"),
        ("flow.yaml", YAML.replace("kind: map", "kind: mop"), "flow.yaml: operators[1] = "),
        ("flow.yaml", YAML.replace("helpers:parse", "helpers:no"), "operators[1].function = 'helpers:no': cannot be"),
    ],
)
def test_wrong_flows(orders: Place, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (orders / name.partition(":")[0]).write_text(text)
    before = orders.files()
    ended = orders("stream", "run", name)
    assert_refused(ended)
    assert message in ended.err
    assert {path for path in orders.files() - before if "__pycache__" not in path} == set()


def test_a_poison_record_is_a_failed_job(orders: Place) -> None:
    (orders / "helpers.py").write_text("def parse(order): return order['nothing']\n")
    ended = orders("stream", "run", "flow.py")
    assert_refused(ended, 1)
    assert "operator parse: KeyError: 'nothing' (record {'customer': 'c0', 'total': 0})" in ended.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.slow
def test_a_signal_saves_a_checkpoint(orders: Place, number: int, code: int) -> None:
    """Breaks when Ctrl-C loses what was read, or the next run does not continue there."""
    (orders / "flow.py").write_text(FLOW.replace('"orders.jsonl"', '"orders.jsonl", follow=True'))
    command = [sys.executable, "-m", "goffish", "stream", "run", "flow.py", "--checkpoint", "ck", "--every", "0.05"]
    process = subprocess.Popen(command, cwd=orders.path, env=ENVIRONMENT, text=True, stdout=-1, stderr=-1)
    until(process, (orders / "out/part-00000001.csv").exists)
    with (orders / "orders.jsonl").open("a") as out:
        out.write('{"customer": "c0", "total": 1000}\n')
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert errors.startswith(f"{'interrupted' if code == 130 else 'terminated'}; checkpoint ")
    assert orders("stream", "run", "flow.py", "--checkpoint", "ck", "--until", "0.3", "--json").json["checkpoint"] > 1
    rows = [line for part in sorted((orders / "out").iterdir()) for line in part.read_text().splitlines()]
    assert rows == ["customer,total", "c0,135", "c1,145", "c2,155", "customer,total", "c0,1135"]


def until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    for _ in range(6000):
        assert process.poll() is None, process.communicate()
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


RUNNING = """
import goffish as gf

flow = gf.stream.Flow({name!r})
numbers = flow.source(gf.stream.generate(lambda n: {{"n": n}}, rate=2000), name="numbers")
alternates = {{"rough": gf.stream.Alternate(lambda row: row | {{"by": "rough"}}, cost=0.001)}}
numbers.map(lambda row: row, name="price", alternates=alternates, cost=0.002).sink(
    gf.stream.write_json_lines({name!r}), name="out"
)
"""


@contextmanager
def started(orders: Place, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a flow."""
    (orders / f"{name}.py").write_text(RUNNING.format(name=name))
    command = [sys.executable, "-m", "goffish", "stream", "run", f"{name}.py", *options]
    environment = ENVIRONMENT | {"XDG_RUNTIME_DIR": str(orders.path)}
    process = subprocess.Popen(command, cwd=orders.path, env=environment, text=True, stdout=-1, stderr=-1)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_running_flows(orders: Place) -> None:
    where = {"XDG_RUNTIME_DIR": str(orders.path)}

    def stream(*args: str) -> Ended:
        return orders("stream", *args, variables=where)

    assert stream("list").out.splitlines()[0] == "0 running flows"
    assert stream("list", "--json").json == {"flows": []}
    ended = stream("top", "one")
    assert_refused(ended)
    assert ended.err == "error: flow one: does not run; running flows: none\n"
    options = ("--checkpoint", "saved", "--every", "0.2", "--json", "--http", "127.0.0.1:0")
    with started(orders, "one", *options) as one, started(orders, "two") as two:
        until(one, lambda: len(stream("list", "--json").json["flows"]) == 2)
        assert one.stderr is not None
        assert one.stderr.readline().startswith("live page: http://127.0.0.1:")
        listed = stream("list", "--json").json["flows"]
        assert {(found["flow"], found["pid"]) for found in listed} == {("one", one.pid), ("two", two.pid)}
        until(one, lambda: bool(stream("top", "one", "--json").json["checkpoint"]))
        lines = stream("top", str(one.pid)).out.splitlines()
        assert lines[0].startswith(f"one ({one.pid}): ")
        assert lines[3].split()[:3] == ["price", "map", "main"]
        assert lines[5] == "workers"
        assert stream("top", "one", "--once").out.splitlines()[1].split() == lines[1].split()
        assert stream("switch", "one", "price", "rough").out == "one: operator price uses rough\n"
        until(one, lambda: stream("top", "one", "--json").json["operators"][1]["alternate"] == "rough")
        ended = stream("switch", "one", "price", "exact")
        assert_refused(ended)
        assert ended.err == "error: operator price: no alternate 'exact'; choose one of main, rough\n"
        ended = stream("stop", "three")
        assert_refused(ended)
        assert f"running flows: one ({one.pid}), two ({two.pid})" in ended.err
        assert stream("stop", "one").out == "one: stopped\n"
        out, errors = one.communicate(timeout=60)
        assert one.returncode == 0, errors
        metrics = json.loads(out)
        assert metrics["stopped"] == "stopped"
        parts = sorted((orders / "one").iterdir())
        rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
        assert [row["n"] for row in rows] == list(range(metrics["records"]))
        assert rows[-1] == {"n": len(rows) - 1, "by": "rough"}
        assert [found["flow"] for found in stream("list", "--json").json["flows"]] == ["two"]
    assert stream("list", "--json").json == {"flows": []}  # it was killed
    assert list((orders / "goffish").iterdir()) == []


def test_strategies_that_do_not_meet_requirements() -> None:
    predictions = [{"strategy": "hti", "meets": ["no-loss"]}, {"strategy": "mvc", "meets": ["no-loss", "no-mixing"]}]
    bounds = {"predictions": predictions, "recommended": "mvc"}
    check_requirements(Strategy.MVC, list(Requirement), bounds)
    with pytest.raises(InputError, match="--strategy hti: does not meet no-mixing; omit it, to use mvc"):
        check_requirements(Strategy.HTI, list(Requirement), bounds)


def test_yaml_that_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "deep.yaml").write_text("name: " + "[" * 20000 + "]" * 20000)
    with pytest.raises(InputError, match=r"deep\.yaml: nested too deeply"):
        read_flow(tmp_path / "deep.yaml")


def test_updates_of_running_flows(orders: Place) -> None:
    def stream(*args: str) -> Ended:
        return orders("stream", *args, variables={"XDG_RUNTIME_DIR": str(orders.path)})

    text = RUNNING.format(name="one")
    (orders / "new.py").write_text(text.replace("lambda row: row,", 'lambda row: row | {"version": 2},'))
    (orders / "broken.py").write_text(text + "\nraise OSError('no file')\n")
    (orders / "faster.py").write_text(text.replace("rate=2000", "rate=4000"))
    with started(orders, "one", "--json") as one:
        until(one, lambda: len(stream("list", "--json").json["flows"]) == 1)
        ended = stream("update", "one", "one.py")
        assert_refused(ended)
        assert ended.err == "error: flow one: no operator and no channel differs from the running version\n"
        ended = stream("update", "one", "faster.py")
        assert_refused(ended)
        assert ended.err.startswith("error: operator numbers: sources, event times and loops cannot be updated")
        assert_refused(stream("update", "one", "broken.py"))
        assert_refused(stream("update", "one", "none.py"))
        until(one, lambda: stream("top", "one", "--json").json["recent_rate"] > 0)
        shown = stream("update", "one", "new.py", "--dry-run", "--json").json
        assert shown | {
            "version": 1, "kind": "element", "changes": "changed price", "strategy": "mvc", "ends_windows": [],
            "migrates": [], "mixes": False, "loses": False, "recommended": "",
        } == shown  # fmt: skip
        assert sorted(row["strategy"] for row in shown["predictions"]) == ["hti", "mvc", "nch", "ncl", "pvc"]
        assert all(row["lost"] == 0 < row["refresh_s"] for row in shown["predictions"])
        assert {"rate of numbers", "batch in price"} <= {row["name"] for row in shown["quantities"]}
        table = stream("update", "one", "new.py", "--dry-run", "--require", "no-mixing", "--require", "no-loss").out
        assert (
            "\n  recommended  mvc\n" in table
            and table.count("no-loss, no-mixing") + table.count("no-mixing, no-loss") == 5
        )
        ended = stream("update", "one", "new.py", "--require", "speed")
        assert_refused(ended)
        assert "no-loss" in ended.err and "lowest-latency" in ended.err
        report = stream("update", "one", "new.py", "--strategy", "pvc", "--json").json
        assert (report["state"], report["lost"], report["strategy"]) == ("complete", 0, "pvc")
        assert report["predicted"]["refresh_s"] > 0
        assert stream("update", "one", "one.py").out.startswith("one: changed price\n")
        assert stream("stop", "one").out == "one: stopped\n"
        out, _ = one.communicate(timeout=60)
    rows = [json.loads(line) for part in sorted((orders / "one").iterdir()) for line in part.read_text().splitlines()]
    assert [row["n"] for row in rows] == list(range(json.loads(out)["records"]))
    versions = [row.get("version", 1) for row in rows]
    assert versions[0] == versions[-1] == 1
    assert 2 in versions


@pytest.mark.slow
def test_another_number_of_workers(orders: Place) -> None:
    def stream(*args: str) -> Ended:
        return orders("stream", *args, variables={"XDG_RUNTIME_DIR": str(orders.path)})

    with started(orders, "one", "--json"), started(orders, "two", "--workers", "2") as two:
        until(two, lambda: len(stream("list", "--json").json["flows"]) == 2)
        ended = stream("scale", "one", "2")
        assert_refused(ended)
        assert ended.err == (
            "error: flow one: runs in one process; only runs with --workers 2 or more change that number\n"
        )
        assert_refused(stream("scale", "two", "0"))
        assert stream("scale", "two", "1").out == "two: 1 worker\n"
        assert [one["joined"] for one in stream("top", "two", "--json").json["workers"]] == [True]


@pytest.mark.slow
def test_workers_of_operators(orders: Place) -> None:
    def stream(*args: str) -> Ended:
        return orders("stream", *args, variables={"XDG_RUNTIME_DIR": str(orders.path)})

    with started(orders, "one", "--workers", "price=2", "--delivery", "at-least-once") as one:
        until(one, lambda: len(stream("list", "--json").json["flows"]) == 1)
        ended = stream("scale", "one", "3")
        assert_refused(ended)
        assert ended.err == "error: workers = 3: operators have separate workers; give numbers for price\n"
        assert stream("scale", "one", "price=1").out == "one: 1 worker for price\n"
        workers = stream("top", "one", "--json").json["workers"]
        assert [row["stage"] for row in workers if row["joined"]] == [None, "price"]


STAGES = """
import goffish as gf

flow = gf.stream.Flow("one")
numbers = flow.source(gf.stream.generate(lambda n: {"n": n, "key": n % 10}, rate=3000), name="numbers")
priced = numbers.map(lambda row: row, name="parse").map(lambda row: row, name="price")
priced.sink(gf.stream.write_json_lines("priced"), name="priced")
priced.key_by("key").sum("n", name="sums").sink(gf.stream.write_json_lines("sums"), name="out")
"""


@pytest.mark.slow
def test_scale_workers_of_operators(orders: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when workers of operators join and leave, and a record is lost or counts twice."""

    def stream(*args: str) -> Ended:
        return orders("stream", *args, variables={"XDG_RUNTIME_DIR": str(orders.path)})

    monkeypatch.setitem(globals(), "RUNNING", STAGES.replace("{", "{{").replace("}", "}}"))
    options = ("--workers", "price=1,sums=1", "--checkpoint", "saved", "--every", "0.1", "--json")
    with started(orders, "one", *options) as one:
        until(one, lambda: len(stream("list", "--json").json["flows"]) == 1)
        for wrong, message in (("parse=2", "'parse' has no separate workers"), ("price=0", "price = 0: must be 1 to")):
            ended = stream("scale", "one", wrong)
            assert_refused(ended)
            assert message in ended.err
        assert stream("scale", "one", "price=2", "--json").json == {"flow": "one", "workers": {"price": 2}}
        stages = [row["stage"] for row in stream("top", "one", "--json").json["workers"] if row["joined"]]
        assert sorted(map(str, stages)) == ["None", "price", "price", "sums"]
        ended = stream("scale", "one", "price=1,sums=2")
        assert ended.out == "one: 1 worker for price, 2 workers for sums\n"
        stages = [row["stage"] for row in stream("top", "one", "--json").json["workers"] if row["joined"]]
        assert sorted(map(str, stages)) == ["None", "price", "sums", "sums"]
        assert stream("stop", "one").out == "one: stopped\n"
        out, errors = one.communicate(timeout=60)
        assert one.returncode == 0, errors
    count = json.loads(out)["records"]
    rows = {
        name: [json.loads(line) for part in (orders / name).iterdir() for line in part.read_text().splitlines()]
        for name in ("priced", "sums")
    }
    assert sorted(row["n"] for row in rows["priced"]) == list(range(count))
    sums = {key: max(row["n"] for row in rows["sums"] if row["key"] == key) for key in range(10)}
    assert sums == {key: sum(range(key, count, 10)) for key in range(10)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "price"), "workers = 'price': give a number, or one for each operator, as parse=2,score=4"),
        (("--workers", "price=1,price=2"), "workers = 'price=1,price=2': give a number"),
        (("--workers", "0"), "workers = 0: must be 1 to 256"),
        (("--workers", "nothing=1"), "no operator 'nothing'"),
        (("--delivery", "sometimes"), "sometimes"),
    ],
)
def test_workers_that_are_refused(orders: Place, options: tuple[str, ...], message: str) -> None:
    ended = orders("stream", "run", "flow.py", *options)
    assert_refused(ended)
    assert message in ended.err


@pytest.mark.slow
def test_live_table(orders: Place) -> None:
    """In a terminal, the table follows the flow until that ends, or until Ctrl-C."""
    environment = ENVIRONMENT | {"XDG_RUNTIME_DIR": str(orders.path), "TERM": "xterm", "COLUMNS": "150"}

    def shown(stop: Callable[[int], None]) -> tuple[int, str]:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "goffish", "stream", "top", "one"], environment)
        text, stopped = "", False
        while True:
            try:
                text += os.read(terminal, 4096).decode(errors="replace")
            except OSError:
                break
            if not stopped and text.count("numbers") > 1:
                stopped = True
                stop(pid)
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text

    with started(orders, "one") as one:
        until(one, lambda: (orders / "one").exists() and any((orders / "one").iterdir()))
        code, text = shown(lambda pid: os.kill(pid, signal.SIGINT))
        assert code == 130
        assert "Traceback" not in text
        code, text = shown(lambda pid: one.send_signal(signal.SIGINT))
        assert code == 0
        assert text.rstrip().endswith("one: interrupted")


@pytest.mark.parametrize("address", ["0.0.0.0:80", "8080"])
def test_pages_elsewhere_are_refused(orders: Place, address: str) -> None:
    ended = orders("stream", "run", "flow.py", "--http", address)
    assert_refused(ended)
    assert ended.err == f"error: http {address}: accepted is a loopback HOST:PORT, such as 127.0.0.1:8080\n"
    assert not (orders / "out").exists()


SCALED = """
import goffish as gf

flow = gf.stream.Flow("scaled")
numbers = flow.source(gf.stream.generate(lambda n: {"n": n}, count=60, rate=100), name="numbers")
numbers.map(dict, name="copy", cost=0.001).sink(gf.stream.write_json_lines("out"))
"""


def test_a_policy_chooses_the_workers(orders: Place) -> None:
    """Breaks when workers on machines of a provider write into other folders, or decisions are not reported."""
    (orders / "scaled.py").write_text(SCALED)
    command = ("stream", "run", "scaled.py", "--policy", "reactive-global", "--interval", "1")
    found = orders(*command, "--decisions", "decisions", "--json").json
    assert found["stopped"] == "finished" and found["records"] == 60
    assert found["scaling"]["failures"] == 0 and found["scaling"]["cost"] > 0
    lines = [line for part in (orders / "out").glob("part-*") for line in part.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == list(range(60))
    assert (orders / "decisions/intervals.parquet").exists()
    assert_refused(orders(*command, "--decisions", "decisions"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cloud", "ec2-2013"), "--cloud requires --policy"),
        (("--interval", "5"), "--interval requires --policy"),
        (("--policy", "ds2", "--elements", "parse", "--interval", "0"), "interval"),
        (("--policy", "ds2", "--workers", "2"), "--workers 2: not with --policy, which chooses the workers"),
        (("--policy", "ds2"), "no operator has a cost or alternates"),
        (("--policy", "ds2", "--elements", "nothing"), "no operator 'nothing'"),
        (("--policy", "ds2", "--elements", "parse", "--option", "x=1"), "x"),
        (("--policy", "ds2", "--elements", "parse", "--cloud", "nowhere"), "nowhere"),
    ],
)
def test_options_of_policies(orders: Place, options: tuple[str, ...], message: str) -> None:
    ended = orders("stream", "run", "flow.py", *options)
    assert_refused(ended)
    assert message in ended.err


def test_files_that_are_no_flows(orders: Place) -> None:
    """Breaks when a file of a user ends the command, or a field that is no duration is called no text."""
    (orders / "ends.py").write_text("import sys\nsys.exit(3)\n")
    ended = orders("stream", "check", "ends.py")
    assert_refused(ended)
    assert "ends.py:2: ends the program" in ended.err
    (orders / "flow.yaml").write_text(YAML.replace("key: customer,", "key: customer, window: {tumbling: [1]},"))
    ended = orders("stream", "check", "flow.yaml")
    assert_refused(ended)
    assert "operators[2].window.tumbling = [1]: must be a duration, such as 1min" in ended.err
