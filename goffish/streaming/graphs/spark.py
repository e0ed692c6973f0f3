"""Live graphs on streams of Spark: continuous queries and followed algorithms, batch by batch, each exactly once.

A batch is applied by a live graph on the driver, whose log is on the disk before anything else happens. Events are
files that are published by a rename, and a batch counts once `committed.json` names it. What is delivered again after a
crash is in the log, and gives the same files.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from goffish.errors import CheckpointError, GoffishError, InputError, JobError
from goffish.gofs.times import Duration
from goffish.gopher.spark.session import check_classic, first_line
from goffish.partial import local_path
from goffish.streaming.checkpoints import write_file, written
from goffish.streaming.graphs.cgql.checks import Checked, check
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.cgql.syntax import Cancel, CgqlError, Ordered, Script, Temporal
from goffish.streaming.graphs.cgql.vocabulary import expanded, vocabulary_of
from goffish.streaming.graphs.durable import read_log
from goffish.streaming.graphs.engine import Options
from goffish.streaming.graphs.live import LiveGraph
from goffish.streaming.graphs.queries import Query
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.shards import PERIOD, ShardedQueries, Shards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_COMMITTED, _VERSION = "committed.json", 1
#: Patterns whose answers are about one vertex or edge, and depend on its surroundings only.
_LOCAL = ("Degree", "Match")
_MICROSECONDS = pa.timestamp("us", "UTC")
#: Columns of events that have integers, which are no ids.
_NUMBERS = ("offset", "hops", "degree", "cluster", "size", "parent", "into", "rank")


class SparkRun:
    """A streaming query of Spark that feeds a live graph; made by `spark_queries` and `spark_algorithm`.

    Attributes
    ----------
    query : pyspark.sql.streaming.StreamingQuery
    """

    def __init__(self, query: StreamingQuery, batches: _Batches) -> None:
        self.query, self._batches = query, batches

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the streaming query ends.

        Parameters
        ----------
        timeout : float, optional
            Seconds [default: no limit].

        Returns
        -------
        bool
            Whether it has ended.

        Raises
        ------
        GoffishError
            A batch has failed. The same call of `spark_queries` or `spark_algorithm` continues with this batch.
        """
        ended = self._watched(lambda: self.query.awaitTermination(timeout))
        if ended is False:
            return False
        self._batches.close()
        return True

    def process_all(self) -> None:
        """Wait until everything that has arrived so far is processed.

        Raises
        ------
        GoffishError
            A batch has failed.
        """
        self._watched(self.query.processAllAvailable)

    def stop(self) -> None:
        """End the streaming query, and let another process continue from the checkpoint."""
        try:
            self.query.stop()
        finally:
            self._batches.close()

    def _watched(self, wait: Callable[[], Any]) -> Any:
        try:
            return wait()
        except Exception as error:
            failure = self._batches.failure
            self._batches.close()
            if failure is not None:
                raise failure from None
            raise JobError(f"Spark failed: {first_line(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.stop()


class _Logged(LiveGraph):
    """A live graph that lists the entries of its log since a batch began: forms, what was added, and the rest."""

    logged: list[tuple[int, Any, Any]] | None = None

    def _log(self, form: int, tree: Any, updates: int = 0) -> Any:
        added = super()._log(form, tree, updates)
        if self.logged is not None:
            self.logged.append((form, added, tree))
        return added

    @property
    def encoder(self) -> Encoder:
        """Numbers of labels, names and values."""
        return self._engine.encoder

    @property
    def options(self) -> Options:
        """Its options."""
        return self._options

    @property
    def entry(self) -> int:
        """Number of the next entry of the log."""
        assert self._folder is not None
        return self._folder.end


class _Batches(ABC):
    """Takes batches of a stream in turn.

    Parameters
    ----------
    checkpoint : str or Path
    settings : dict
        What must be the same when the stream goes on.
    options : mapping
        Of the live graph.
    """

    def __init__(self, checkpoint: str | Path, settings: dict[str, Any], options: Mapping[str, Any]) -> None:
        self.folder = Path(checkpoint).absolute()
        self._given = checkpoint
        self.committed = self._last_commit(json.loads(json.dumps(settings, default=str)))
        self.failure: GoffishError | None = None
        self._busy, self._closed = Lock(), False
        self._wrong: list[tuple[Any, str]] = []
        self.live = _Logged(
            state=self.folder / "live", on_error=lambda record, error: self._wrong.append((record, error)), **options
        )
        if not (self.folder / _COMMITTED).exists():
            try:
                if self.live.counts["accepted"]:
                    raise CheckpointError(f"{self.folder / _COMMITTED}: is missing; restore it from a copy")
                self._commit()
            except BaseException:
                self.live.close()
                raise

    def _last_commit(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the last batch that is complete, or what comes before the first one."""
        file = self.folder / _COMMITTED
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = file.read_text(encoding="utf-8") if file.exists() else None
        except OSError as error:
            raise InputError(f"{self._given}: cannot be used ({error.strerror or error})") from None
        if text is None:
            if any(one.name not in ("live", f".{_COMMITTED}.partial") for one in self.folder.iterdir()):
                raise InputError(f"{self._given}: is not empty; name a new folder")
            return {
                "version": _VERSION, "batch": -1, "accepted": 0, "entry": 0, "topics": {}, "id": uuid.uuid4().hex,
                "settings": settings,
            }  # fmt: skip
        try:
            found: dict[str, Any] = json.loads(text)
            before, version = found["settings"], found["version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CheckpointError(f"{file}: is damaged; restore it from a copy") from None
        if version != _VERSION:
            raise CheckpointError(f"{file}: has version {version}; this program reads version {_VERSION}")
        for name, value in settings.items():
            if before.get(name) != value:
                raise InputError(
                    f"{self._given}: has {name} = {before.get(name)!r:.200}, and not {value!r:.200}; give the same, "
                    "or name a new folder"
                )
        return found

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Take a batch; one that is complete is left out."""
        try:
            with self._busy:
                if self._closed:
                    raise JobError(f"batch {batch}: the stream was stopped")
                if batch > self.committed["batch"]:
                    self._process(frame, batch)
        except GoffishError as error:
            self.failure = error
            raise
        except OSError as error:
            self.failure = JobError(f"batch {batch}: {error.filename}: cannot be written ({error.strerror or error})")
            raise self.failure from None

    def _process(self, frame: DataFrame, batch: int) -> None:
        # What a process that has ended took of this batch is in the log.
        known = self.live.counts["accepted"] - self.committed["accepted"]
        self._wrong = []
        records = self.records(frame)
        if isinstance(records, pa.Table):
            records = self._with_times(records)
        if known > len(records):
            raise JobError(
                f"batch {batch}: has {len(records):,} records, of which {known:,} were taken before; the source must "
                "return the same records again"
            )
        if known < len(records):
            self.live.feed(records.slice(known) if isinstance(records, pa.Table) else records[known:])
        topics = self.publish(frame, batch)
        self._quarantine(batch)
        self.committed |= {
            "batch": batch, "accepted": self.live.counts["accepted"], "entry": self.live.entry, "topics": topics,
        }  # fmt: skip
        self._commit()
        self.clean(batch)

    def _with_times(self, table: pa.Table) -> pa.Table:
        """Leave out rows without a time, such as those of JSON that Spark could not read."""
        if not table["t"].null_count:
            return table
        missing = pc.is_null(table["t"])
        self._wrong += [(row, "field t: missing; give the event time") for row in table.filter(missing).to_pylist()]
        return table.filter(pc.invert(missing))

    def _commit(self) -> None:
        write_file(self.folder / _COMMITTED, json.dumps(self.committed).encode())

    def _check_output(self, output: Path) -> None:
        """Check that nothing else is in a folder before there is a record."""
        if not self.live.counts["accepted"] and output.exists() and any(output.iterdir()):
            raise InputError(f"output {output}: is not empty; name a new folder")

    @abstractmethod
    def records(self, frame: DataFrame) -> pa.Table | list[Any]:
        """Return the records of a batch."""

    @abstractmethod
    def publish(self, frame: DataFrame, batch: int) -> dict[str, int]:
        """Write what a batch has changed; return the numbers of events of all topics."""

    @abstractmethod
    def clean(self, batch: int) -> None:
        """Remove what a batch that is complete has replaced."""

    def _quarantine(self, batch: int) -> None:
        """Keep the records of a batch that were not applied."""
        if self._wrong:
            rows = [json.dumps({"record": one, "error": error}, default=str) + "\n" for one, error in self._wrong]
            folder = self.folder / "rejected"
            folder.mkdir(exist_ok=True)
            write_file(folder / f"batch={batch}.jsonl", "".join(rows).encode())

    def close(self) -> None:
        """Let another process go on, after the batch that is being processed."""
        with self._busy:
            self._closed = True
            self.live.close()


def _value(text: str | bytes | None) -> Any:
    """Return a JSON value, or a text that is refused as a record."""
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return text.decode(errors="replace") if isinstance(text, bytes) else text


class _Queries(_Batches):
    """Continuous queries.

    Parameters
    ----------
    checkpoint, output : str or Path
    script : Script
    parameters : mapping
    shards : int
    is_json : bool
        Whether records are values of JSON.
    options : mapping
        Of the live graph.
    """

    def __init__(
        self, checkpoint: str | Path, output: str | Path, script: Script, parameters: Mapping[str, Any], shards: int,
        is_json: bool, options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._is_json = is_json
        for part in script.statements:
            if isinstance(part, Cancel):
                raise CgqlError("CANCEL: not accepted here; a stream keeps the queries with which it began", part.at)
        checked = check(script, parameters)
        for one in checked:
            if one.query.wall_span is not None:
                raise CgqlError(
                    "WITH clock = wall: not accepted here; queries on Spark end by event time", one.query.at
                )
        local = [one for one in checked if shards and _is_local(one, checked)]
        rest = [one for one in checked if one not in local]
        self.output = Path(output).absolute()
        settings = {
            "queries": [str(one) for one in checked], "shards": shards, "output": str(self.output), "json": is_json
        }  # fmt: skip
        super().__init__(checkpoint, settings, options)
        try:
            self._start(rest, local, shards)
        except BaseException:
            self.live.close()
            raise

    def _start(self, rest: list[Checked], local: list[Checked], shards: int) -> None:
        topics = self.committed["topics"]
        self._check_output(self.output)
        if not self.live.topics and rest:
            self.live.submit("; ".join(map(str, rest)))
        if [*map(self.live.query, self.live.topics)] != [*map(str, rest)]:
            raise InputError(f"{self._given}: has other queries; give the same, or name a new folder")
        self._tables: dict[str, list[pa.Table]] = {}
        for one in rest:
            self.live.subscribe(
                one.topic, lambda topic, table: self._tables.setdefault(topic, []).append(table),
                after=topics.get(one.topic, 0),
            )  # fmt: skip
        self._sharded: ShardedQueries | None = None
        if local:
            folder = self.folder / "shards"
            queries = tuple(map(str, local))
            shape = Shards(str(folder), self.committed["id"], self.live.options, queries, shards, PERIOD)
            made = [Query(one, self.live.encoder, 1, {}) for one in local]
            for query in made:
                query.topic.count = query.topic.first = topics.get(query.topic.name, 0)
            self._sharded = ShardedQueries(shape, made, self.live.encoder)
            self.live.logged = [
                (form, *held) for _, form, held in read_log(self.folder / "live", self.committed["entry"])
            ]

    def records(self, frame: DataFrame) -> pa.Table | list[Any]:
        if not self._is_json:
            return frame.toArrow()
        return [_value(text) for text in frame.select("value").toArrow()[0].to_pylist()]

    def publish(self, frame: DataFrame, batch: int) -> dict[str, int]:
        counts = dict(self.committed["topics"])
        if self._sharded is not None:
            conflicts = self.live.counts["edge_id_conflict"]
            if conflicts:
                raise JobError(
                    f"batch {batch}: {conflicts:,} edges have the id of one with other ends; with shards, ids of edges "
                    "must be distinct"
                )
            assert self.live.logged is not None
            found = self._sharded.step(frame.sparkSession, batch, self.live.logged)
            self.live.logged = []
            self._tables |= {topic: [table] for topic, table in found.items()}
        for topic, tables in self._tables.items():
            table = pa.concat_tables(map(self._plain, tables), promote_options="default").combine_chunks()
            file = self.output / topic / f"batch={batch}" / "events.parquet"
            self._same_types(topic, table)
            file.parent.mkdir(parents=True, exist_ok=True)
            with written(file) as sink:
                pq.write_table(table, sink)
            counts[topic] = table["offset"][-1].as_py() + 1
        self._tables.clear()
        return counts

    def _plain(self, table: pa.Table) -> pa.Table:
        """Return events with texts as ids if records are JSON, as some of these may have integers and others texts."""
        if not self._is_json:
            return table
        types = {pa.int64(): pa.string(), pa.list_(pa.int64()): pa.list_(pa.string())}
        fields = [
            field if field.name in _NUMBERS else field.with_type(types.get(field.type, field.type))
            for field in table.schema
        ]
        return table.cast(pa.schema(fields))

    def _same_types(self, topic: str, table: pa.Table) -> None:
        """Check that all files of a topic have the same columns, as readers expect."""
        types = {field.name: str(field.type) for field in table.schema}
        kept = self.committed.setdefault("columns", {}).setdefault(topic, {})
        for name, kind in types.items():
            if kept.setdefault(name, kind) != kind:
                raise JobError(
                    f"topic {topic}: column {name} is {kind} now and was {kept[name]} before; ids must be texts only, "
                    "or integers only"
                )

    def clean(self, batch: int) -> None:
        if self._sharded is not None:
            self._sharded.clean(batch)


def _is_local(one: Checked, others: list[Checked]) -> bool:
    """Whether a query can be evaluated in shards: of few vertices at a time, by itself, and after every record."""
    query = one.query
    return (
        query.pattern in _LOCAL and query.every is None and query.duration is None and not one.after
        and not any(isinstance(part, Temporal | Ordered) for part in query.where)
        and not any(one.topic in other.after for other in others)
    )  # fmt: skip


def spark_queries(
    updates: DataFrame, queries: str, *, checkpoint: str | Path, output: str | Path,
    parameters: Mapping[str, Any] | None = None, vocabularies: Mapping[str, Mapping[str, str]] | None = None,
    lateness: Duration = 5.0, events: int = 1_000_000, shards: int = 0, trigger: Mapping[str, Any] | None = None,
) -> SparkRun:  # fmt: skip
    """Evaluate continuous queries on a stream of Spark, such as files or Kafka.

    Parameters
    ----------
    updates : DataFrame
        Streaming DataFrame with the columns of `LiveGraph.feed`, or with a column ``value`` that has a record as JSON
        in each row, as those of Kafka and of text files.
    queries : str
        In CGQL or openCypher; see `LiveGraph.submit`.
    checkpoint : str or Path
        Folder in which the stream goes on where it ended, however it ended. The driver must be able to write to it;
        with `shards`, all executors must mount it alike.
    output : str or Path
        Folder for events: ``topic/batch=<number>/events.parquet``. ``spark.read.parquet`` reads the folder of a topic.
    parameters : mapping, optional
        Values of words and of ``$name`` in the text.
    vocabularies : mapping, optional
        By name, vocabularies as `LiveGraph.add_vocabulary` takes them.
    lateness : str, float or timedelta
        By how much a record may be earlier than the latest one of its stream [default: 5 s].
    events : int
        How many events of each query are kept in memory, at least as many as a batch has.
    shards : int
        In how many parts the state of queries for ``Match`` and ``Degree`` is divided among executors [default: 0, on
        the driver].
    trigger : mapping, optional
        Arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.

    Returns
    -------
    SparkRun
        The streaming query; ``stop()`` ends it.

    Raises
    ------
    InputError
        An argument is not accepted, or the folder has other queries, is in use, or belongs to something else.
    CgqlError
        The text is not accepted; names the line and the column.
    CheckpointError
        The folder is damaged.

    Notes
    -----
    Events, their order, offsets and ids are those of `LiveGraph` on the same records; with records as JSON, ids in them
    are texts. Records wait until their stream
    has reached a time that is `lateness` later.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.spark import session
    >>> from pathlib import Path
    >>> folder = Path.cwd()
    >>> (folder / "updates").mkdir()
    >>> _ = (folder / "updates" / "1.jsonl").write_text('''
    ... {"t": 1, "op": "+e", "src": "ann", "dst": "bob", "attrs": {"type": "pays"}}
    ... {"t": 9, "op": "heartbeat"}
    ... '''.strip())
    >>> with gf.stream.spark_queries(
    ...     session().readStream.text(f"{folder}/updates"), "DETECT Match(edge:{type = pays}) AS paid",
    ...     checkpoint="checkpoint", output="events", trigger={"availableNow": True},
    ... ) as run:
    ...     _ = run.await_termination()
    >>> session().read.parquet(f"{folder}/events/paid").select("status", "id").collect()
    [Row(status='MATCHED', id='ann>bob:pays')]
    """
    checkpoint, output = local_path(checkpoint), local_path(output)
    check_classic(updates.sparkSession)
    _check_stream(updates)
    if shards < 0 or shards > 4096:
        raise InputError(f"shards = {shards}: must be from 0 to 4096")
    is_json = "value" in updates.columns and "op" not in updates.columns
    if not is_json and not {"t", "op"} <= set(updates.columns):
        raise InputError(
            f"updates: has the columns {', '.join(updates.columns)}; accepted are t, op and those that updates need, "
            "or value with records as JSON"
        )
    options = {"lateness": lateness, "events": events}
    words = {name: vocabulary_of(name, one) for name, one in (vocabularies or {}).items()}
    script = expanded(parse(queries), words)
    return _run(
        updates, lambda: _Queries(checkpoint, output, script, parameters or {}, shards, is_json, options), trigger
    )  # fmt: skip


def _check_stream(frame: Any) -> None:
    if not frame.isStreaming:
        raise InputError("the DataFrame is not a stream; make it with spark.readStream")


def _run(frame: DataFrame, make: Callable[[], _Batches], trigger: Mapping[str, Any] | None) -> SparkRun:
    """Start a streaming query."""
    writer = frame.writeStream
    try:
        writer = writer.trigger(**trigger) if trigger else writer
    except Exception as error:
        raise InputError(f"trigger = {trigger}: {first_line(error)}") from None
    batches = make()
    try:
        writer = writer.foreachBatch(batches).option("checkpointLocation", (batches.folder / "spark").as_uri())
        return SparkRun(writer.start(), batches)
    except BaseException as error:
        batches.close()
        if isinstance(error, Exception):
            raise InputError(f"the stream cannot start: {first_line(error)}") from error
        raise


class _Algorithm(_Batches):
    """An algorithm that follows a stream of edges.

    Parameters
    ----------
    checkpoint : str or Path
    algorithm : str
    weight : str, optional
    options : mapping
        Of the algorithm.
    output : str, Path or callable
        Folder, or what takes the rows of each batch.
    mode : {"update", "complete"}
    least_change : float
    lateness : duration, optional
        Of records with a column ``t``.
    """

    def __init__(
        self, checkpoint: str | Path, algorithm: str, weight: str | None, options: Mapping[str, Any], output: Any,
        mode: str, least_change: float, lateness: Duration | None,
    ) -> None:  # fmt: skip
        self.output = output if callable(output) else Path(output).absolute()
        self._mode, self._least, self._timed = mode, least_change, lateness is not None
        settings = {
            "algorithm": algorithm, "weight": weight, "options": dict(options), "mode": mode, "timed": self._timed
        }  # fmt: skip
        super().__init__(checkpoint, settings, {"lateness": lateness or 0})
        try:
            if isinstance(self.output, Path):
                self._check_output(self.output)
            self._followed = self.live.follow(algorithm, weight=weight, **options)
            self._published = self._last_result()
        except BaseException:
            self.live.close()
            raise

    def _result_file(self, batch: int) -> Path:
        return self.folder / f"result-{batch}.parquet"

    def _last_result(self) -> pa.Table | None:
        """Return what readers have been given, up to the last batch."""
        if self.committed["batch"] < 0:
            return None
        file = self._result_file(self.committed["batch"])
        try:
            return pq.read_table(file, partitioning=None)
        except (OSError, pa.ArrowInvalid) as error:
            raise CheckpointError(f"{file}: cannot be read ({error})") from None

    def records(self, frame: DataFrame) -> pa.Table:
        table = frame.toArrow()
        if "op" not in table.column_names:
            table = table.append_column("op", pa.array(["+e"]).take(pa.array(np.zeros(len(table), np.int64))))
        if self._timed:
            return table
        # Records without a time are applied as they arrive.
        first = self.committed["accepted"] + 1
        return table.append_column("t", pa.array(np.arange(first, first + len(table))).cast(_MICROSECONDS))

    def publish(self, frame: DataFrame, batch: int) -> dict[str, int]:
        table = self._followed.result().table
        table = table.rename_columns(["id", *table.column_names[1:]])
        if "component" in table.column_names:
            table = _by_smallest_id(table)
        rows, shown = table, table
        if self._mode == "update" and self._published is not None:
            rows, shown = _changes(self._published, table, self._least)
        with written(self._result_file(batch)) as file:
            pq.write_table(shown, file)
        if callable(self.output):
            self.output(frame.sparkSession.createDataFrame(rows), batch)
        elif len(rows):
            target = self.output / f"batch={batch}" / "result.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            with written(target) as file:
                pq.write_table(rows, file)
        self._published = shown
        return {}

    def clean(self, batch: int) -> None:
        for file in self.folder.glob("result-*.parquet"):
            if file != self._result_file(batch):
                file.unlink(missing_ok=True)


def _by_smallest_id(table: pa.Table) -> pa.Table:
    """Return components by their smallest id, as in GraphFrames, which stays when others are added."""
    least = table.group_by("component").aggregate([("id", "min")])
    places = pc.index_in(table["component"], least["component"].combine_chunks())
    return table.set_column(1, "component", least["id_min"].take(places))


def _changes(before: pa.Table, now: pa.Table, least: float) -> tuple[pa.Table, pa.Table]:
    """Return the rows that have changed, with nulls for those that are gone, and all rows as readers have them then."""
    names = now.column_names[1:]
    places = pc.index_in(now["id"], before["id"].combine_chunks())
    old, new = before.take(places), pc.is_null(places)
    changed = np.asarray(new)
    for name in names:
        column, earlier = now[name], old[name]
        if pa.types.is_floating(column.type):
            differs = pc.greater(pc.abs(pc.subtract(column, earlier)), least)
        else:
            differs = pc.not_equal(column, earlier)
        changed = changed | np.asarray(differs.fill_null(True))
    rows = now.filter(pa.array(changed))
    keeps = pa.array(~changed)
    shown = {"id": now["id"]} | {name: pc.if_else(keeps, old[name], now[name]) for name in names}
    gone = before["id"].filter(pc.invert(pc.is_in(before["id"], now["id"].combine_chunks())))
    lost = {"id": gone} | {name: pa.nulls(len(gone), now[name].type) for name in names}
    return pa.concat_tables([rows, pa.table(lost).cast(rows.schema)]), pa.table(shown)


def spark_algorithm(
    edges: DataFrame, algorithm: str, *, checkpoint: str | Path, output: str | Path | Callable[[DataFrame, int], None],
    weight: str | None = None, mode: Literal["update", "complete"] = "update", least_change: float = 0.0,
    lateness: Duration | None = None, trigger: Mapping[str, Any] | None = None, **options: Any,
) -> SparkRun:  # fmt: skip
    """Keep the result of an algorithm up to date with a stream of edges of Spark.

    Parameters
    ----------
    edges : DataFrame
        Streaming DataFrame with the columns ``src`` and ``dst``, as the edges of a GraphFrame. Optional are ``op``
        (``+e`` adds an edge, ``-e`` removes it [default: ``+e``]), ``id``, ``t``, and attributes such as a weight.
    algorithm : str
        One that `LiveGraph.follow` accepts, such as ``"components"`` or ``"pagerank"``.
    checkpoint : str or Path
        Folder of the driver in which the stream goes on where it ended, however it ended.
    output : str, Path or callable
        Folder for files ``batch=<number>/result.parquet``, or a function of a DataFrame and the number of the batch,
        for a ``MERGE`` by ``id``. After a crash, it is called again with the same number.
    weight : str, optional
        Column of the weights of edges.
    mode : {"update", "complete"}
        Whether a batch has the rows that have changed, with nulls for vertices that are gone, or all rows
        [default: "update"].
    least_change : float
        Floats that differ by no more from what was written before have not changed [default: 0].
    lateness : str, float or timedelta, optional
        By how much ``t`` may be earlier than the latest one [default: there is no column ``t``, and rows are applied
        as they arrive].
    trigger : mapping, optional
        Arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.
    **options
        Options of the algorithm, and ``directed``.

    Returns
    -------
    SparkRun
        The streaming query; ``stop()`` ends it.

    Raises
    ------
    InputError
        An argument is not accepted, or the folder has another algorithm, is in use, or belongs to something else.
    CheckpointError
        The folder is damaged.

    Notes
    -----
    Components are named by their smallest id, as in GraphFrames. After a restart, the result of a full pass takes the
    place of the one that was followed. Both keep the guarantees of `LiveGraph.follow`: components are equal, ranks
    differ by the tolerance at most.

    Examples
    --------
    >>> import goffish as gf
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from goffish.spark import session
    >>> from pathlib import Path
    >>> folder = Path.cwd()
    >>> (folder / "edges").mkdir()
    >>> pq.write_table(pa.table({"src": [1, 2, 7], "dst": [2, 3, 8]}), folder / "edges" / "1.parquet")
    >>> with gf.stream.spark_algorithm(
    ...     session().readStream.schema("src bigint, dst bigint").parquet(f"{folder}/edges"), "components",
    ...     checkpoint="checkpoint-c", output="components", trigger={"availableNow": True},
    ... ) as run:
    ...     _ = run.await_termination()
    >>> found = session().read.parquet(f"{folder}/components").select("id", "component")
    >>> sorted(tuple(row) for row in found.collect())
    [(1, 1), (2, 1), (3, 1), (7, 7), (8, 7)]
    """
    checkpoint, output = local_path(checkpoint), output if callable(output) else local_path(output)
    check_classic(edges.sparkSession)
    _check_stream(edges)
    names = set(edges.columns)
    for name in ("src", "dst", *([] if lateness is None else ["t"]), *([] if weight is None else [weight])):
        if name not in names:
            raise InputError(f"edges: no column {name!r}; available: {', '.join(edges.columns)}")
    if lateness is None and "t" in names:
        raise InputError("edges: has a column t; give the lateness of its times, such as lateness='5s', or drop it")
    if mode not in ("update", "complete"):
        raise InputError(f"mode = {mode!r}: accepted are update and complete")
    if not least_change >= 0:
        raise InputError(f"least_change = {least_change}: must be at least 0")
    return _run(
        edges,
        lambda: _Algorithm(checkpoint, algorithm, weight, options, output, mode, least_change, lateness),
        trigger,
    )
