"""Programs of each stream system for `stream_peers.py` and `nexmark.py`, in the environment that has the system.

As a module: `start` gives a `System`, a process that runs programs, or the reason why there is none. As a script it is
that process: it reads a request per line and answers with a line, both JSON. A process has run each program before it
is measured; the start of an interpreter or of a JVM does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

PACKAGES = {"goffish": "goffish", "bytewax": "bytewax", "pathway": "pathway", "pyflink": "apache-flink"}
#: Records of Bytewax's and our in-memory sources that are given out together.
_BATCH = 1000
_LINES, _WORDS_IN_LINE, _KEYS = 1000, 10, 10_000

#: Seconds that a program may take.
LIMIT_S = 300.0

Rows = list[tuple[Any, ...]]
Program = Callable[[dict[str, Any]], Rows | float]


@dataclass(eq=False)
class System:
    """A process that runs programs of one system."""

    name: str
    workers: int
    process: subprocess.Popen[str]
    log: Path
    version: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cores: dict[str, list[float]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}, {self.workers} worker{'s' * (self.workers > 1)}"

    def read(self, limit_s: float) -> dict[str, Any]:
        out = self.process.stdout
        assert out is not None
        if not select.select([out], [], [], limit_s)[0]:
            self.close()
            raise TimeoutError(f"no answer in {limit_s:.0f} s")
        line = out.readline()
        if not line:
            self.process.wait()
            lines = self.log.read_text().strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"ended with code {self.process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def run(self, limit_s: float, **request: Any) -> dict[str, Any]:
        """Run a program; the answer has its ``seconds``, and ``rows`` where `check` is given."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read(limit_s)

    def measure(self, task: str, limit_s: float, **request: Any) -> None:
        """Run a program and keep its seconds and core-seconds."""
        before = _core_seconds(self.process.pid)
        self.seconds.setdefault(task, []).append(self.run(limit_s, task=task, **request)["seconds"])
        self.cores.setdefault(task, []).append(_core_seconds(self.process.pid) - before)

    def median(self, task: str) -> float:
        return statistics.median(self.seconds[task])

    def median_cores(self, task: str) -> float:
        return statistics.median(self.cores[task])

    def close(self) -> None:
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.kill()
        self.process.wait()


def _core_seconds(pid: int) -> float:
    """Return the core-seconds of a process and all its children so far."""
    import psutil

    total = 0.0
    first = psutil.Process(pid)
    for one in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(one.cpu_times()[:4])
    return total


def start(name: str, python: str | None, folder: Path, workers: int) -> System | str:
    """Return a process of a system, or the reason why it takes no part."""
    if python is None:
        return f"{name} is skipped: --{name}-python names no interpreter with {PACKAGES[name]}"
    log = folder / f"{name}-{workers}.log"
    path = f"{Path(python).absolute().parent}{os.pathsep}{os.environ['PATH']}"  # PyFlink starts `python`
    with log.open("w") as file:
        process = subprocess.Popen(
            [python, __file__, name, f"{workers}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
            text=True, env=os.environ | {"PATHWAY_THREADS": f"{workers}", "PATH": path},
        )  # fmt: skip
    system = System(name, workers, process, log)
    try:
        system.version = system.read(120.0)["version"]
    except (RuntimeError, TimeoutError) as error:
        return f"{name} is skipped: {error}"
    return system


def add_systems(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> None:
    """Add the options with the interpreters of other systems."""
    for name in names:
        here = sys.executable if importlib.util.find_spec(name) else None
        parser.add_argument(f"--{name}-python", metavar="PYTHON", default=here, help=f"interpreter that has {name}")


def started(given: argparse.Namespace, folder: Path, names: tuple[str, ...], ours: tuple[int, ...]) -> list[System]:
    """Start GoFFish with each of some numbers of workers, and the other systems; print which are skipped."""
    systems: list[System] = []
    for name in ("goffish", *names):
        python = sys.executable if name == "goffish" else getattr(given, f"{name}_python")
        for workers in ours if name == "goffish" else given.workers:
            made = start(name, python, folder, workers)
            if isinstance(made, str):
                print(made, flush=True)
                break
            systems.append(made)
    return systems


def checked(task: str, systems: list[System], folder: Path, **request: Any) -> list[System]:
    """Return the systems whose results are those of GoFFish; print why others are left out."""
    expected, kept = None, []
    for one in systems:
        try:
            rows = one.run(LIMIT_S, task=task, folder=str(folder / "check"), check=True, **request)["rows"]
        except (RuntimeError, TimeoutError) as error:
            print(f"{task}: {one.label}: {error}", flush=True)
            continue
        expected = rows if expected is None else expected
        if rows != expected:
            sys.exit(f"{task}: {one.label} has other results than {systems[0].label}")
        kept.append(one)
    return kept


# What the programs have in common.


def line_of(number: int) -> str:
    """Return a line of ten words."""
    return " ".join(f"word{(number * 7919 + i * 104_729) % _KEYS}" for i in range(_WORDS_IN_LINE))


LINES = [line_of(number) for number in range(_LINES)]


def line(number: int) -> str:
    """Return the line of a number."""
    return LINES[number % _LINES]


def pair(number: int) -> tuple[str, int]:
    """Return the key and the value of a number."""
    return f"k{number * 7919 % _KEYS}", number % 1000


def add(total: int, value: int) -> int:
    """Return the sum."""
    return total + value


# GoFFish.


def _goffish(task: str, workers: int) -> Program:
    import pyarrow.parquet as pq

    import goffish as gf
    from goffish.streaming.sinks import Sink

    def columns(request: dict[str, Any], flow: Any) -> Any:
        file = f"{request['folder']}/{task}-*.csv"
        read = flow.source(gf.stream.read_csv(file))
        return read.key_by("word").count() if task == "words" else read.key_by("key").sum("value")

    def rows(request: dict[str, Any], flow: Any) -> Any:
        if task == "python-words":
            read = flow.source(gf.stream.generate(line, count=request["records"] // _WORDS_IN_LINE))
            return read.flat_map(str.split).key_by(lambda word: word).count()
        read = flow.source(gf.stream.generate(pair, count=request["records"]))
        return read.key_by(lambda one: one[0]).reduce(lambda total, one: total + one[1], initial=0)

    def nexmark(request: dict[str, Any]) -> Rows:
        import _nexmark

        seen = gf.stream.collect() if request.get("check") else Sink()
        _nexmark.flow_of(task, Path(request["folder"]), seen).run(progress=False)
        return [tuple(row[name] for name in _nexmark.QUERIES[task]) for row in getattr(seen, "values", ())]

    def run(request: dict[str, Any]) -> Rows | float:
        if task.startswith("q"):
            return nexmark(request)
        flow = gf.stream.Flow(task)
        made = rows(request, flow) if task.startswith("python") else columns(request, flow)
        check = request.get("check")
        with tempfile.TemporaryDirectory() as folder:
            made.sink(gf.stream.write_parquet(f"{folder}/out") if check else Sink())
            metrics = flow.run(workers=workers, replication=0, progress=False)
            if not check:
                return metrics.seconds if workers > 1 else []
            key, total = pq.read_schema(next(Path(folder).glob("out/*.parquet"))).names
            last = pq.read_table(f"{folder}/out").group_by(key).aggregate([(total, "max")])
            return list(zip(last[key].to_pylist(), last[f"{total}_max"].to_pylist(), strict=True))

    return run


# Bytewax.


def _bytewax(task: str, workers: int) -> Program:
    import bytewax.operators as op
    import pyarrow as pa
    import pyarrow.csv
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import cluster_main, run_main

    class Part(StatefulSourcePartition[Any, None]):
        def __init__(self, batches: Iterable[Any]) -> None:
            self._batches = iter(batches)

        def next_batch(self) -> Any:
            return next(self._batches)

        def snapshot(self) -> None:
            return None

    class Parts(FixedPartitionedSource[Any, None]):
        def __init__(self, parts: dict[str, Callable[[], Iterable[Any]]]) -> None:
            self._parts = parts

        def list_parts(self) -> list[str]:
            return list(self._parts)

        def build_part(self, step_id: str, for_part: str, resume_state: None) -> Part:
            return Part(self._parts[for_part]())

    class Collected(DynamicSink[Any]):
        def __init__(self, found: list[Any] | None) -> None:
            self.found = found

        def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Any]:
            found = self.found

            class Out(StatelessSinkPartition[Any]):
                def write_batch(self, items: list[Any]) -> None:
                    if found is not None:
                        found.extend(items)

            return Out()

    def numbers(part: int, count: int) -> Iterable[list[int]]:
        size = _BATCH * workers
        return (list(range(at, min(at + size, count), workers)) for at in range(part, count, size))

    def partial(batch: pa.RecordBatch) -> list[tuple[str, int]]:
        key = batch.schema.names[0]
        what = (key, "count") if task == "words" else ("value", "sum")
        found = pa.Table.from_batches([batch]).group_by(key).aggregate([what])
        names = found.column(key).cast(pa.string()).to_pylist()
        return list(zip(names, found.column("_".join(what)).to_pylist(), strict=True))

    def made(request: dict[str, Any], sink: Collected) -> Dataflow:
        flow = Dataflow("flow")
        if not task.startswith("python"):
            files = sorted(str(one) for one in Path(request["folder"]).glob(f"{task}-*.csv"))
            parts = {f: (lambda f=f: ([batch] for batch in pyarrow.csv.open_csv(f))) for f in files}
            read = op.flat_map("partial", op.input("in", flow, Parts(parts)), partial)
            op.output("out", op.reduce_final("sum", read, add), sink)
            return flow
        words = task == "python-words"
        count = request["records"] // (_WORDS_IN_LINE if words else 1)
        read = op.input("in", flow, Parts({f"{n}": (lambda n=n: numbers(n, count)) for n in range(workers)}))
        if words:
            split = op.flat_map("split", op.map("line", read, line), str.split)
            result = op.count_final("count", split, lambda word: word)
        else:
            result = op.reduce_final("sum", op.map("pair", read, pair), add)
        op.output("out", result, sink)
        return flow

    def run(request: dict[str, Any]) -> Rows:
        check = request.get("check")
        if workers == 1:
            found: list[Any] = []
            run_main(made(request, Collected(found if check else None)))
            return [tuple(row) for row in found]
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
        with tempfile.TemporaryDirectory() as folder:
            children = []
            for number in range(workers):
                pid = os.fork()
                if not pid:
                    rows: list[Any] = []
                    with contextlib.suppress(BaseException):
                        cluster_main(made(request, Collected(rows if check else None)), addresses, number)
                        Path(folder, f"{number}").write_text(json.dumps(rows))
                    os._exit(0)
                children.append(pid)
            for pid in children:
                os.waitpid(pid, 0)
            return [
                tuple(row) for number in range(workers) for row in json.loads(Path(folder, f"{number}").read_text())
            ]

    return run


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        opened = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]


# Pathway.


def _pathway(task: str, workers: int) -> Program:
    import pathway as pw

    def result(request: dict[str, Any]) -> Any:
        def read(name: str, **columns: type) -> Any:
            schema = pw.schema_from_types(**columns)
            pattern = f"{name}-*.csv"
            return pw.io.csv.read(request["folder"], object_pattern=pattern, schema=schema, mode="static")

        if task.startswith("q"):
            return _pathway_query(task, request["folder"])
        if task == "words":
            table = read("words", word=str)
            return table.groupby(table.word).reduce(table.word, total=pw.reducers.count())
        if task == "sums":
            table = read("sums", key=int, value=int)
            return table.groupby(table.key).reduce(table.key, total=pw.reducers.sum(table.value))
        table = read(task, number=int)
        if task == "python-words":
            lines = table.select(
                words=pw.apply_with_type(lambda n: tuple(line(n).split()), tuple[str, ...], table.number)
            )
            words = lines.flatten(lines.words)
            return words.groupby(words.words).reduce(words.words, total=pw.reducers.count())
        pairs = table.select(
            key=pw.apply_with_type(lambda n: pair(n)[0], str, table.number),
            value=pw.apply_with_type(lambda n: pair(n)[1], int, table.number),
        )
        return pairs.groupby(pairs.key).reduce(pairs.key, total=pw.reducers.sum(pairs.value))

    def run(request: dict[str, Any]) -> Rows:
        pw.internals.parse_graph.G.clear()
        found = result(request)
        rows: dict[Any, tuple[Any, ...]] = {}

        def change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
            if is_addition:
                rows[key] = tuple(row.values())
            elif rows.get(key) == tuple(row.values()):
                del rows[key]

        if request.get("check"):
            pw.io.subscribe(found, on_change=change)
        else:
            pw.io.null.write(found)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return list(rows.values())

    return run


def _pathway_query(task: str, folder: str) -> Any:
    """Return the result of a query of Nexmark."""
    import pathway as pw

    def read(file: str, time: bool = False, **columns: type) -> Any:
        schema = pw.schema_from_types(**columns)
        table = pw.io.csv.read(f"{folder}/numbers/{file}.csv", schema=schema, mode="static")
        return table.with_columns(at=table.dateTime.dt.strptime("%Y-%m-%d %H:%M:%S.%3f")) if time else table

    bid = {"auction": int, "bidder": int, "price": int, "dateTime": str, "extra": str}
    ten, two = timedelta(seconds=10), timedelta(seconds=2)
    if task in ("q0", "q1"):
        bids = read("bid", True, **bid)
        price = bids.price if task == "q0" else bids.price * 0.908
        return bids.select(bids.auction, bids.bidder, price=price, dateTime=bids.at, extra=bids.extra)
    if task == "q2":
        bids = read("bid", auction=int, price=int)
        return bids.filter(bids.auction % 123 == 0)
    if task == "q3":
        people, auctions = (
            read("person", number=int, name=str, city=str, state=str),
            read("auction", number=int, seller=int, category=int),
        )
        people = people.filter((people.state == "OR") | (people.state == "ID") | (people.state == "CA"))
        auctions = auctions.filter(auctions.category == 10)
        return auctions.join(people, auctions.seller == people.number).select(
            people.name, people.city, people.state, auctions.number
        )
    if task == "q5":
        bids = read("bid", True, auction=int, dateTime=str)
        windows = bids.windowby(bids.at, window=pw.temporal.sliding(hop=two, duration=ten), instance=bids.auction)
        counts = windows.reduce(auction=pw.this._pw_instance, start=pw.this._pw_window_start, num=pw.reducers.count())
        most = counts.groupby(counts.start).reduce(counts.start, most=pw.reducers.max(counts.num))
        both = counts.join(most, counts.start == most.start, counts.num == most.most)
        return both.select(counts.auction, counts.num)
    window = pw.temporal.tumbling(duration=ten)
    if task == "q7":
        bids = read("bid", True, **bid).with_columns(start=pw.this.at.dt.floor(ten))
        most = bids.groupby(bids.start).reduce(bids.start, most=pw.reducers.max(bids.price))
        both = bids.join(most, bids.start == most.start, bids.price == most.most)
        return both.select(bids.auction, bids.price, bids.bidder, bids.at)
    people, auctions = (
        read("person", True, number=int, name=str, dateTime=str),
        read("auction", True, seller=int, dateTime=str),
    )
    users = people.windowby(people.at, window=window, instance=people.number).reduce(
        number=pw.this._pw_instance, start=pw.this._pw_window_start, name=pw.reducers.any(pw.this.name)
    )
    sellers = auctions.windowby(auctions.at, window=window, instance=auctions.seller).reduce(
        seller=pw.this._pw_instance, start=pw.this._pw_window_start
    )
    return users.join(sellers, users.number == sellers.seller, users.start == sellers.start).select(
        users.number, users.name, users.start
    )


# PyFlink.

#: Tables and queries of Nexmark, as in the suite of Flink's authors.
_TABLES = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "`dateTime` TIMESTAMP(3), extra STRING, WATERMARK FOR `dateTime` AS `dateTime`",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    "`dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING, "
    "WATERMARK FOR `dateTime` AS `dateTime`",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), "
    "extra STRING, WATERMARK FOR `dateTime` AS `dateTime`",
}
_HOPS = (
    "SELECT auction, COUNT(*) AS num, window_start, window_end FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), "
    "INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end"
)
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))"
_SQL = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": "SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P ON A.seller = P.id "
    "WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')",
    "q5": f"SELECT A.auction, A.num FROM ({_HOPS}) AS A JOIN (SELECT MAX(num) AS most, window_start, window_end "
    f"FROM ({_HOPS}) GROUP BY window_start, window_end) AS M ON A.window_start = M.window_start "
    "AND A.window_end = M.window_end AND A.num >= M.most",
    "q7": "SELECT B.auction, B.price, B.bidder, B.`dateTime` FROM bid AS B JOIN (SELECT MAX(price) AS most, "
    f"window_end AS ended FROM {_TUMBLE.format('bid')} GROUP BY window_start, window_end) AS M ON B.price = M.most "
    "WHERE B.`dateTime` >= M.ended - INTERVAL '10' SECOND AND B.`dateTime` < M.ended",
    "q8": "SELECT P.id, P.name, P.window_start AS starttime FROM (SELECT id, name, window_start, window_end "
    f"FROM {_TUMBLE.format('person')} GROUP BY id, name, window_start, window_end) AS P JOIN (SELECT seller, "
    f"window_start, window_end FROM {_TUMBLE.format('auction')} GROUP BY seller, window_start, window_end) AS A "
    "ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end",
}


def _pyflink(task: str, workers: int) -> Program:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    if task.startswith("python"):
        return _flink_stream(task, workers)
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in (
        ("parallelism.default", f"{workers}"),
        ("pipeline.object-reuse", "true"),
        ("table.exec.mini-batch.enabled", "true"),
        ("table.exec.mini-batch.allow-latency", "500 ms"),
        ("table.exec.mini-batch.size", "50000"),
    ):
        env.get_config().set(name, value)
    aggregates = {"words": ("word", "STRING", "COUNT(*)"), "sums": ("`key`", "BIGINT", "SUM(`value`)")}
    tables, query = _TABLES, _SQL.get(task)
    if query is None:
        key, kind, function = aggregates[task]
        tables = {task: f"{key} {kind}" + ", `value` BIGINT" * (task == "sums")}
        query = f"SELECT {key}, {function} AS total FROM {task} GROUP BY {key}"

    def run(request: dict[str, Any]) -> Rows:
        # Of the files without a header: the CSV format of this system has no option for one.
        for name, columns in tables.items():
            env.execute_sql(f"DROP TABLE IF EXISTS {name}")
            options = f"'connector' = 'filesystem', 'path' = '{request['folder']}/no-header/{name}', 'format' = 'csv'"
            env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")
        return _flink_run(env, query, bool(request.get("check")))

    return run


def _flink_run(env: Any, query: str, check: bool) -> Rows:
    """Run a query; return its rows after all changes."""
    if not check:
        env.execute_sql("DROP TABLE IF EXISTS sink")
        types = env.sql_query(query).get_schema()
        columns = ", ".join(
            f"`{name}` {kind}"
            for name, kind in zip(types.get_field_names(), map(_sql_type, types.get_field_data_types()), strict=True)
        )
        env.execute_sql(f"CREATE TABLE sink ({columns}) WITH ('connector' = 'blackhole')")
        env.execute_sql(f"INSERT INTO sink {query}").wait()
        return []
    from pyflink.common import RowKind

    rows: dict[tuple[Any, ...], int] = {}
    with env.execute_sql(query).collect() as changes:
        for one in changes:
            added = one.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
            rows[tuple(one)] = rows.get(tuple(one), 0) + (1 if added else -1)
    return [row for row, count in rows.items() for _ in range(count)]


def _sql_type(kind: Any) -> str:
    names = {"VarCharType": "STRING", "BigIntType": "BIGINT", "TimestampType": "TIMESTAMP(3)"}
    return names.get(type(kind).__name__) or type(kind).__name__.removesuffix("Type").upper()


def _flink_stream(task: str, workers: int) -> Program:
    from pyflink.common import Configuration, Types, WatermarkStrategy
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.datastream.connectors.base import Sink
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource
    from pyflink.java_gateway import get_gateway

    def run(request: dict[str, Any]) -> Rows:
        config = Configuration()
        config.set_string("python.execution-mode", "thread")
        config.set_string("pipeline.object-reuse", "true")
        env = StreamExecutionEnvironment.get_execution_environment(config)
        env.set_parallelism(workers)
        words = task == "python-words"
        count = request["records"] // (_WORDS_IN_LINE if words else 1)
        numbers = env.from_source(NumberSequenceSource(0, count - 1), WatermarkStrategy.no_watermarks(), "numbers")
        kind = Types.TUPLE([Types.STRING(), Types.LONG()])
        if words:
            keyed = numbers.flat_map(lambda n: [(word, 1) for word in line(n).split()], output_type=kind)
        else:
            keyed = numbers.map(pair, output_type=kind)
        totals = keyed.key_by(lambda one: one[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
        if request.get("check"):
            last = {}
            with totals.execute_and_collect() as found:
                for key, total in found:
                    last[key] = max(total, last.get(key, total))
            return list(last.items())
        sink = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
        totals.sink_to(Sink(sink))
        env.execute(task)
        return []

    return run


_SYSTEMS: dict[str, Callable[[str, int], Program]] = {
    "goffish": _goffish, "bytewax": _bytewax, "pathway": _pathway, "pyflink": _pyflink,
}  # fmt: skip


def _plain(value: Any) -> str:
    """Return a value as the same text for all systems."""
    if isinstance(value, float | Decimal):
        return f"{value:.3f}"
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") if isinstance(value, datetime) else str(value)


def main() -> None:
    """Answer requests."""
    name, workers = sys.argv[1], int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what systems print must not be between the answers
    print(json.dumps({"version": importlib.metadata.version(PACKAGES[name])}), file=out, flush=True)
    programs: dict[str, Program] = {}
    for text in sys.stdin:
        request = json.loads(text)
        try:
            program = programs.setdefault(request["task"], _SYSTEMS[name](request["task"], workers))
            begun = time.perf_counter()
            rows, seconds = program(request), time.perf_counter() - begun
            if isinstance(rows, float):  # without the start of worker processes
                rows, seconds = [], rows
            answer = {"seconds": seconds, "rows": sorted([_plain(value) for value in row] for row in rows)}
        except Exception as error:
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}
            import traceback

            traceback.print_exc()
        print(json.dumps(answer, default=str), file=out, flush=True)


if __name__ == "__main__":
    main()
