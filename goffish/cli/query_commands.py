"""Continuous graph queries on the command line."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from goffish.cli.checks import name_values
from goffish.cli.output import as_json, print_json, print_table, say
from goffish.cli.process import INTERRUPTED
from goffish.errors import InputError, JobError
from goffish.partial import check_new_place

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.streaming.graphs.live import LiveGraph

SUFFIX = ".cgql"
#: Bytes of standard input that are read at a time, if there are so many.
_READS = 1 << 16
#: Rows of a table of events that are not part of a key.
_BESIDE = ("offset", "time", "status", "released", "initial", "reason", "event_id")


def check_queries(path: str, param: Sequence[str] | None, *, as_document: bool) -> None:
    """Print the queries of a file, as they are understood."""
    from goffish.streaming.graphs.live import LiveGraph

    live = LiveGraph()
    topics = _submit(live, path, param)
    rows = [[topic, live.query(topic)] for topic in topics]
    if as_document:
        print_json({"queries": [{"topic": topic, "query": query} for topic, query in rows]})
    else:
        print_table(f"{path}: {len(rows)} queries", ["topic", "query"], rows)


def run_queries(
    path: str, updates: Sequence[str], out: str | None, param: Sequence[str] | None, lateness: float,
    report: Callable[[str], None], *, as_document: bool,
) -> None:  # fmt: skip
    """Follow updates, and print or write the events of queries.

    Parameters
    ----------
    path : str
        File of queries.
    updates : sequence of str
        Files of records, or ``-`` for lines of standard input.
    out : str, optional
        Folder for a file of each topic.
    param : sequence of str, optional
        ``NAME=VALUE``.
    lateness : float
        Seconds.
    report : callable
        Takes the text of a status line.
    as_document : bool
        Whether events are printed as JSON.
    """
    from goffish.streaming.graphs.live import LiveGraph, parts_of

    live = LiveGraph(lateness=lateness)
    counts: dict[str, int] = {}
    for one in updates:
        if one != "-" and not Path(one).is_file():
            raise InputError(f"--updates {one}: no such file")
    with _names_folder(out), ExitStack() as stack:
        files: dict[str, IO[str]] = {}
        folder = None if out is None else check_new_place(out, folder=True)
        if folder is not None and folder.exists() and any(folder.iterdir()):
            raise InputError(f"--out {out}: is not empty; name a new folder")

        def take(topic: str, events: pa.Table) -> None:
            counts[topic] = counts.get(topic, 0) + len(events)
            rows = [_plain(row) for row in events.to_pylist()]
            for row in rows:
                if folder is None:
                    say(as_json({"topic": topic} | row) if as_document else _line(topic, row))
            if folder is None:
                sys.stdout.flush()
                return
            files[topic].writelines(as_json(row) + "\n" for row in rows)
            files[topic].flush()

        topics = _submit(live, path, param, take)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            files |= {topic: stack.enter_context((folder / f"{topic}.jsonl").open("x")) for topic in topics}
        interrupt = stack.enter_context(_Interrupt())
        try:
            for one in updates:
                for part in _lines(interrupt) if one == "-" else parts_of(one):
                    live.feed(part)
                    report(f": {live.counts['accepted']:,} records, {sum(counts.values()):,} events")
                    interrupt.check()
            live.end()
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
            raise typer.Exit(INTERRUPTED) from None
    _report(live, topics, counts, shown=folder is not None, as_document=as_document)


def _report(live: LiveGraph, topics: Sequence[str], counts: dict[str, int], *, shown: bool, as_document: bool) -> None:
    """Say what became of the records, and how many events there were."""
    missing = [f"{live.counts[name]:,} {name}" for name in ("late", "rejected", "duplicate") if live.counts[name]]
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


def _submit(
    live: LiveGraph, path: str, param: Sequence[str] | None, take: Callable[[str, pa.Table], None] | None = None
) -> list[str]:
    """Submit the queries of a file; return their topics."""
    from goffish.streaming.graphs.cgql.syntax import CgqlError

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text in UTF-8") from None
    try:
        return live.submit(text, _parameters(param), on_events=take)
    except CgqlError as error:
        raise InputError(f"{path}, {error}") from None


def _parameters(given: Sequence[str] | None) -> dict[str, Any]:
    """Return parameters: numbers, true and false, or texts."""
    found: dict[str, Any] = {}
    for name, text in name_values(list(given or ()), "--param").items():
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


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

    def read(self) -> bytes:
        """Return what arrives on standard input."""
        self._waits = True
        try:
            self.check()
            return os.read(sys.stdin.fileno(), _READS)
        finally:
            self._waits = False


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
