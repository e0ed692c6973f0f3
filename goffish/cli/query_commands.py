"""Continuous graph queries on the command line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import typer

from goffish.cli.output import as_json, print_json, print_table, say
from goffish.cli.process import INTERRUPTED
from goffish.cli.query_options import GraphOptions, QueryFile
from goffish.errors import InputError, JobError
from goffish.partial import check_new_place, local_path

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.streaming.graphs.live import LiveGraph
    from goffish.streaming.sinks import Sink

#: Bytes of standard input that are read at a time, if there are so many.
_READS = 1 << 16
#: Time between two looks at a log that another process continues.
_POLL_S = 0.3
#: Topic of the edges that a page shows, as of `goffish.plot.live_events`.
_LINES = "edges_of_the_page"
#: Rows of a table of events that are not part of a key.
_BESIDE = ("offset", "time", "status", "released", "initial", "late", "resolution", "reason", "event_id")


def check_queries(file: QueryFile, *, as_document: bool) -> None:
    """Print the queries of a file, as they are understood, and how they are evaluated."""
    from goffish.streaming.graphs.live import LiveGraph

    queries = file.understood()
    plans = LiveGraph().explain("; ".join(queries.values()))
    if as_document:
        rows = [{"topic": topic, "query": query, "plan": plans[topic]} for topic, query in queries.items()]
        print_json({"queries": rows})
        return
    print_table(f"queries of {file.path}", ["topic", "query"], [list(one) for one in queries.items()])
    for topic, plan in plans.items():
        print_table(topic, ["step", "what"], [list(one) for one in plan.items()])


class Outputs(NamedTuple):
    """Where events go, beside the folder of files.

    Attributes
    ----------
    page : str, optional
        HTML file for a page of the events.
    deliver : sequence of str
        Targets, each as ``TARGET`` or ``TOPIC=TARGET``.
    """

    page: str | None = None
    deliver: Sequence[str] = ()


NO_OUTPUTS = Outputs()


def run_queries(
    queries: QueryFile, updates: Sequence[str], out: str | None, graph: GraphOptions, report: Callable[[str], None], *,
    outputs: Outputs = NO_OUTPUTS, as_document: bool,
) -> None:  # fmt: skip
    """Follow updates, and print or write the events of queries.

    Parameters
    ----------
    queries : QueryFile
    updates : sequence of str
        Files of records, or ``-`` for lines of standard input.
    out : str, optional
        Folder for a file of each topic.
    graph : GraphOptions
    report : callable
        Takes the text of a status line.
    outputs : Outputs
    as_document : bool
        Whether events are printed as JSON.
    """
    from goffish.streaming.graphs.parts import parts_of

    page, state = outputs.page, graph.state

    counts: dict[str, int] = {}
    for at, one in enumerate(updates):
        if one != "-" and not Path(one).is_file():
            raise InputError(f"--updates {one}: no such file")
        if one == "-" and state is not None and at < len(updates) - 1:
            raise InputError("--updates -: must come last with --state")
    folder = None if out is None else check_new_place(out, folder=True)
    quiet = folder is not None or bool(outputs.deliver)
    if page is not None:
        from goffish.plot import check_graph_events

        check_graph_events(page)
    with (
        _names_folder(out),
        _Files(folder) as files,
        graph.open() as live,
        _Interrupt() as interrupt,
    ):
        resumes = bool(live.topics)
        if folder is not None and not resumes and folder.exists() and any(folder.iterdir()):
            raise InputError(f"--out {out}: is not empty; name a new folder")
        queries.add_words(live)
        topics = _same(live, queries, state) if resumes else queries.submit(live)

        def take(topic: str, events: pa.Table) -> None:
            counts[topic] = counts.get(topic, 0) + len(events)
            rows = [_plain(row) for row in events.to_pylist()]
            if folder is not None:
                files.write(topic, rows)
            for row in [] if quiet else rows:
                say(as_json({"topic": topic} | row) if as_document else _line(topic, row))
            sys.stdout.flush()

        if page is not None and _LINES not in live.topics:
            live.submit(f"DETECT Motif((source)-[edge]->(target)) AS {_LINES}")
        for topic in topics:
            live.subscribe(topic, take, None if folder is None else files.open(topic))
        if state is not None:
            live.before_checkpoints(files.sync)
        begin_deliveries(live, topics, outputs.deliver, state)
        skipped = live.counts["accepted"]
        try:
            for one in updates:
                for part in _lines(interrupt) if one == "-" else parts_of(one):
                    # What was taken from files is in the log.
                    known = min(skipped, len(part)) if one != "-" else 0
                    skipped -= known
                    live.feed(part[known:])
                    report(f": {live.counts['accepted']:,} records, {sum(counts.values()):,} events")
                    interrupt.check()
            if skipped and "-" not in updates:
                raise InputError(f"--updates: have {skipped:,} records fewer than were read before")
            live.end()
            with interrupt.waiting():
                live.flush()
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
            raise typer.Exit(INTERRUPTED) from None
        if page is not None:
            from goffish.plot import write_graph_events

            write_graph_events(live.events(_LINES), {one: live.events(one) for one in topics}, page, title=queries.path)
        _report(live, topics, counts, shown=quiet, as_document=as_document)


#: Environment variable with the secret of webhooks.
_SECRET = "GOFFISH_WEBHOOK_SECRET"
_TARGETS = (
    "parquet:DIR, json_lines:DIR, csv:DIR, delta:TABLE, reservoir:DIR, kafka:SERVERS/TOPIC, https://HOST/PATH and print"
)
_NAMED = re.compile(r"([^:=/\\]+)=(.+)", re.DOTALL)


def begin_deliveries(live: LiveGraph, topics: Sequence[str], given: Sequence[str], state: str | None) -> None:
    """Begin to deliver events.

    Parameters
    ----------
    live : LiveGraph
    topics : sequence of str
        Of the targets that name none.
    given : sequence of str
        ``TARGET`` or ``TOPIC=TARGET``.
    state : str, optional
        Folder of the live graph.

    Raises
    ------
    InputError
        A topic or a target is not accepted.
    """
    if given and state is None:
        sys.stderr.write(
            "warning: --deliver without --state: events that are not delivered when the run ends are lost, and the "
            "next run delivers all from the beginning\n"
        )
    for one in given:
        named = _NAMED.fullmatch(one)
        target = one if named is None else named[2]
        if named is not None and named[1] not in topics:
            raise InputError(f"--deliver {one}: topic {named[1]} is unknown; choose from {', '.join(topics)}")
        for topic in topics if named is None else [named[1]]:
            name = f"{topic}-{hashlib.blake2b(target.encode(), digest_size=6).hexdigest()}"
            live.deliver(topic, _sink(target, topic, named is not None, name, state), name=name)


def _sink(target: str, topic: str, is_alone: bool, name: str, state: str | None) -> Sink:
    """Return the sink of a target, which is for one topic alone, or for others in tables beside it."""
    from goffish import stream
    from goffish.streaming.graphs.delivery import folder_of

    kind, _, place = target.partition(":")
    folder = place if is_alone else f"{place.rstrip('/')}/{topic}"
    if target == "print":
        return stream.print_values()
    if kind in ("http", "https"):
        return stream.post_json_lines(target, secret=f"env:{_SECRET}" if _SECRET in os.environ else None)
    if kind in ("parquet", "json_lines", "csv") and place:
        writes = {"parquet": stream.write_parquet, "json_lines": stream.write_json_lines, "csv": stream.write_csv}
        return writes[kind](folder)
    if kind == "delta" and place:
        staging = None if state is None else folder_of(local_path(state), name) / "staging"
        return stream.write_delta(folder, staging=staging)
    if kind == "reservoir" and place:
        return stream.write_reservoir(place, topic)
    servers, _, queue = place.rpartition("/")
    if kind == "kafka" and servers and queue:
        return stream.write_kafka(queue, servers, key="topic")
    raise InputError(f"--deliver {target}: accepted are {_TARGETS}")


def _same(live: LiveGraph, queries: QueryFile, state: str | None) -> list[str]:
    """Return the topics of a live graph, which has the queries of a file."""
    found, known = queries.understood(), [topic for topic in live.topics if topic != _LINES]
    if list(found.values()) != list(map(live.query, known)):
        raise InputError(f"--state {state}: has other queries ({', '.join(known)}) than {queries.path}")
    return list(found)


def known_topics(live: LiveGraph, queries: QueryFile, state: str) -> list[str]:
    """Submit the queries of a file, unless the live graph has them already; return their topics.

    Parameters
    ----------
    live : LiveGraph
    queries : QueryFile
    state : str
        Folder of the live graph.

    Returns
    -------
    list of str

    Raises
    ------
    InputError
        The live graph has another query with the topic of one of the file.
    """
    known = live.topics
    if not known:
        return queries.submit(live)
    found = queries.understood()
    for topic, query in found.items():
        if topic not in known or live.query(topic) != query:
            raise InputError(f"--state {state}: has other queries than {queries.path}, which has {topic} = {query}")
    return list(found)


class _Files:
    """Files of events, which hold each event once, also if an earlier run was killed while it wrote one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()

    def open(self, topic: str) -> int:
        """Open the file of a topic; return the number of the first event that it lacks."""
        assert self._folder is not None
        path = self._folder / f"{topic}.jsonl"
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._files[topic] = path.open("ab+")
        end, offset = _last_line(file)
        if end < file.seek(0, os.SEEK_END):
            file.truncate(end)
        if offset is None:
            raise InputError(f"{path}: its last line is not an event; restore it from a copy, or name a new folder")
        return offset + 1

    def write(self, topic: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write events."""
        self._files[topic].write("".join(as_json(row) + "\n" for row in rows).encode())
        self._files[topic].flush()

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        for file in self._files.values():
            os.fsync(file.fileno())


def _last_line(file: IO[bytes]) -> tuple[int, int | None]:
    """Return where the last complete line of a file ends, and the number of its event; -1 if there is none."""
    end = file.seek(0, os.SEEK_END)
    data = b""
    while end and data.count(b"\n") < 2:
        begin = max(0, end - _READS)
        file.seek(begin)
        data, end = file.read(end - begin) + data, begin
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    size = end + data.rfind(b"\n") + 1
    if not lines:
        return size, -1
    try:
        offset = json.loads(lines[-1])["offset"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return size, None
    return size, offset if type(offset) is int and offset >= 0 else None


def tail_topic(topic: str, state: str, after: int | None, *, follow: bool, as_document: bool) -> None:
    """Print the events of a query of a live graph, and those that follow."""
    from goffish.streaming.graphs.live import LiveGraph

    live = LiveGraph.reading(state)
    at = live.first_event(topic) if after is None else after + 1
    with _Interrupt() as interrupt:
        try:
            while True:
                for row in map(_plain, live.events(topic, at).to_pylist()):
                    say(as_json({"topic": topic} | row) if as_document else _line(topic, row))
                    at = row["offset"] + 1
                sys.stdout.flush()
                if not follow:
                    return
                interrupt.wait(_POLL_S)
                live.refresh()
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def print_answers(topic: str, state: str, *, as_document: bool) -> None:
    """Print the answers of a query of a live graph."""
    from goffish.streaming.graphs.live import LiveGraph

    live = LiveGraph.reading(state)
    answers = live.answers(topic)
    if as_document:
        print_json({"topic": topic, "query": live.query(topic), "answers": answers.to_pylist()})
    else:
        rows = [list(row.values()) for row in answers.to_pylist()]
        print_table(f"{topic}: {len(rows):,} answers", answers.column_names, rows)


def verify_state(state: str, *, as_document: bool) -> None:
    """Replay the log of a live graph, and compare it with its checkpoints."""
    from goffish.streaming.graphs.recovery import verify

    found = verify(state)
    if as_document:
        print_json({"checkpoints": found})
    else:
        names = ["checkpoint", "entry", "result"]
        print_table(
            f"{state}: {len(found)} checkpoints",
            names,
            [["–" if one[name] is None else one[name] for name in names] for one in found],
        )
    wrong = [one for one in found if one["result"] not in ("same", "first")]
    if wrong:
        raise JobError(f"{state}: {len(wrong)} of {len(found)} checkpoints are not what the log gives")


def _report(live: LiveGraph, topics: Sequence[str], counts: dict[str, int], *, shown: bool, as_document: bool) -> None:
    """Say what became of the records, and how many events there were."""
    counted = ("late", "rejected", "duplicate", "applied_late")
    missing = [f"{live.counts[name]:,} {name.replace('_', ' ')}" for name in counted if live.counts.get(name)]
    if missing:
        example = f"; the last one: {live.errors[-1][1]}" if live.errors else ""
        sys.stderr.write(f"warning: of {live.counts['accepted']:,} records, {', '.join(missing)}{example}\n")
    if not shown:
        return
    rows = [[topic, counts.get(topic, 0), len(live.answers(topic))] for topic in topics]
    if as_document:
        named = [dict(zip(("topic", "events", "answers"), row, strict=True)) for row in rows]
        print_json({"records": live.counts, "topics": named})
    else:
        print_table(f"{live.counts['applied']:,} records", ["topic", "events", "answers"], rows)


@contextmanager
def _names_folder(out: str | None) -> Iterator[None]:
    """Name the folder if a file in it cannot be written, also at its end."""
    try:
        yield
    except OSError as error:
        if out is None:
            raise
        raise JobError(f"--out {out}: cannot be written ({error.strerror or error})") from None


class _Interrupt:
    """Lets Ctrl-C end the work between two parts of the records, as compiled code cannot be left at any place."""

    def __init__(self) -> None:
        self._given = self._waits = False

    def __enter__(self) -> _Interrupt:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _take(self, *_: object) -> None:
        if self._waits or self._given:
            raise KeyboardInterrupt
        self._given = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was one."""
        if self._given:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let Ctrl-C end what follows at once, or before it begins if there was one."""
        self._waits = True
        try:
            self.check()
            yield
        finally:
            self._waits = False

    def wait(self, seconds: float) -> None:
        """Wait, unless there was one."""
        with self.waiting():
            time.sleep(seconds)

    def read(self) -> bytes:
        """Return what arrives on standard input."""
        with self.waiting():
            return os.read(sys.stdin.fileno(), _READS)


def _lines(interrupt: _Interrupt) -> Iterator[list[Any]]:
    """Return the records of standard input as they arrive."""
    rest, number, ended = b"", 0, False
    while not ended:
        data = interrupt.read()
        ended = not data
        *lines, rest = (rest + data).split(b"\n")
        if ended:
            lines = [rest]
        records = []
        for line in lines:
            number += 1
            if line.strip():
                try:
                    records.append(json.loads(line))
                except (ValueError, RecursionError) as error:
                    raise InputError(f"--updates -, line {number}: not a JSON value ({error})") from None
        if records:
            yield records


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return an event without what it lacks, and with times as texts."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items() if value is not None
    }  # fmt: skip


def _line(topic: str, row: dict[str, Any]) -> str:
    key = ", ".join(f"{name}={value}" for name, value in row.items() if name not in _BESIDE)
    detail = row.get("reason", key)
    return f"{row['time']} {topic} {row['status']} {detail}{' (initial)' * row['initial']}"
