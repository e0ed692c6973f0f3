"""The ingest job: its steps in order, from raw files to a published store."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from goffish.errors import GoffishError, GoffishWarning, InputError, StoreError
from goffish.gofs import check_store_place
from goffish.gofs.files import Folder, open_folder
from goffish.gofs.manifest import Manifest
from goffish.gopher.folder import MANIFEST, Part, folder_parts, folder_writer
from goffish.gopher.spark.session import cancelling, is_connect, is_local, named, running_session, slots
from goffish.partial import absolute_place, check_storage, is_uri
from goffish.spark.ingest import write
from goffish.spark.ingest.blocks import BATCH_ROWS
from goffish.spark.ingest.clean import ORDER, parsed_rows, parsed_vertices
from goffish.spark.ingest.edges import (
    Windows,
    find_bounds,
    find_windows,
    make_edges,
    split_duplicates,
    with_instance,
)
from goffish.spark.ingest.labels import number_vertices, with_numbers
from goffish.spark.ingest.loads import STORE_INPUT, Earlier, find_news, find_versions
from goffish.spark.ingest.partition import choose_method, method_options, place_vertices
from goffish.spark.ingest.plan import Plan
from goffish.spark.ingest.rows import Rows, keep_rows, ordered
from goffish.spark.ingest.sources import check_tables, open_inputs, pinned, unreadable, versions
from goffish.spark.ingest.spec import IngestSpec, read_spec
from goffish.spark.ingest.stats import component_figures, degree_figures
from goffish.spark.ingest.stored import Stored
from goffish.spark.ingest.vertices import DUPLICATE, MERGED, VertexRows, mark_rows
from goffish.spark.ingest.work import Announce, WorkFolder
from goffish.spark.parts import write_result_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Changes when the same specification and inputs would give other steps.
_FORMAT = 8
#: What a quarantine folder may hold: what this job writes, and what Spark once wrote.
_QUARANTINE_FILES = (".parquet", ".crc", "_SUCCESS", "_temporary", "_partial", MANIFEST)


@dataclass
class IngestReport:
    """What an ingest job did.

    Attributes
    ----------
    rows : int
        Rows of all inputs of edges: ``kept + merged + quarantined``.
    kept : int
        Rows that are an edge of the store (with instances: an edge of one instance).
    merged : int
        Rows that were merged into one of those by the rule for duplicates.
    quarantined : int
        Rows in the quarantine table.
    rules : mapping
        How many rows each rule stopped.
    vertex_rows : mapping, optional
        ``rows``, ``kept``, ``merged``, ``quarantined`` and ``rules`` of the tables of vertices. The rows that are kept
        describe a vertex (with a timestamp: in one instance).
    degrees, components, partition, instances : mapping
        Figures of the graph: degrees (of out-arcs; with ``in_…`` for a directed graph), weakly connected components,
        the edge cut (beside that of METIS where another method was used and METIS is affordable), windows.
    continued : bool
        Whether steps of an earlier run that did not reach its end were used.
    seconds : mapping
        Time of each step.
    """

    store: str
    quarantine: str
    rows: int = 0
    kept: int = 0
    merged: int = 0
    quarantined: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    vertex_rows: dict[str, Any] | None = None
    vertices: int = 0
    edges: int = 0
    degrees: dict[str, Any] = field(default_factory=dict)
    components: dict[str, Any] = field(default_factory=dict)
    partition: dict[str, Any] = field(default_factory=dict)
    instances: dict[str, Any] | None = None
    fingerprint: str = ""
    continued: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values, ready for JSON."""
        return asdict(self)


def ingest(
    spec: str | Path | Mapping[str, Any] | IngestSpec,
    output: str | Path,
    spark: SparkSession | None = None,
    *,
    quarantine: str | Path | None = None,
    work: str | Path | None = None,
    progress: Announce | None = None,
    tables: Mapping[str, DataFrame] | None = None,
    incremental: bool = False,
) -> IngestReport:
    """Clean raw files or tables, number their vertices, partition the graph and write it as a store, on Spark.

    Parameters
    ----------
    spec
        The YAML file that describes inputs, columns and rules, or what it would hold; see ``docs/guides/ingest.md``.
    output
        Folder or URI of the store, which all executors can write. An existing store is replaced in one step.
    spark : SparkSession, optional
        Classic or of Spark Connect; default: the running one, else all processors of this machine. It stays as it is,
        apart from properties of a Connect session while the job runs.
    quarantine
        Parquet folder or URI for the rows that were not used; default: ``<output>.quarantine``. Replaced when it is
        there, in one step.
    work
        Folder or URI for the steps; default: ``<output>.work``. A job that was killed goes on from there; removed in
        the end.
    progress
        Called with the name of each step when it begins.
    tables : mapping of str to DataFrame, optional
        Inputs by the names in ``table``, before those of the catalog.
    incremental : bool
        Record in the store what was loaded, and add the rows of new files and of newer versions of Delta and Iceberg
        tables to a store that was written this way, instead of replacing it.

    Returns
    -------
    IngestReport

    Raises
    ------
    InputError
        The specification or an input cannot be used, or no row is left. Nothing but the quarantine is published then.
        Also if `incremental` cannot add to the store: another specification, an input without versions, files or tables
        that have changed other than by new rows, values of vertices over time.
    JobError
        Spark gave up, with the step it was in.

    Notes
    -----
    The same specification and inputs give the same store, byte by byte, however many tasks Spark makes of it: that of
    ``goffish import`` and ``goffish partition`` for the rows that are kept. Rows of tables have no order: where it
    matters, as for ``duplicates: first``, it is that of a hash of their contents.

    An incremental load reads the new rows and the edges of the store, numbers and partitions the whole graph again, and
    replaces the store in one step. The store is that of one load of all rows with those of earlier loads first. The
    report counts the new rows; the quarantine keeps those of earlier loads.
    """
    check_places(output, quarantine, work)
    checked = read_spec(spec)
    outer = running_session(spark)
    with _inner(outer) as own:
        job = _Job(checked, str(output), (own, outer), tables or {}, progress)
        job.incremental = incremental
        job.report.quarantine = str(quarantine or f"{str(output).rstrip('/')}.quarantine")
        with named(job.doing), cancelling(own):
            job.run(str(work or f"{str(output).rstrip('/')}.work"))
    return job.report


def check_places(output: str | Path, quarantine: str | Path | None, work: str | Path | None) -> None:
    """Refuse folders that a job could not write.

    Raises
    ------
    InputError
    StoreError
    """
    check_store_place(output)
    for place in (quarantine, work):
        # `is_uri` refuses a path object made from a URI, and what lost a slash.
        if place is not None and is_uri(place):
            check_storage(str(place))


@contextmanager
def _inner(outer: SparkSession) -> Iterator[SparkSession]:
    """A separate session on the same Spark context: times in UTC, names with their case, the caller's shuffles.

    Sessions of Spark Connect do not share tables: the caller's has these properties for a while.
    """
    inner = outer if is_connect(outer) else outer.newSession()
    shuffles = outer.conf.get("spark.sql.shuffle.partitions")
    if is_local(outer) and shuffles == "200":
        # Spark's own default is meant for a cluster.
        shuffles = str(max(8, 4 * slots(outer)))
    before = {}
    for key, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        # Labels in names of folders, such as 007, are texts.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": BATCH_ROWS,
        "spark.sql.shuffle.partitions": shuffles,
    }.items():
        before[key] = inner.conf.get(key, None)
        inner.conf.set(key, str(value))
    try:
        yield inner
    finally:
        if inner is outer:
            for key, old in before.items():
                inner.conf.unset(key) if old is None else inner.conf.set(key, old)


#: A quarantine without rows.
_NONE = pa.schema([("input", pa.int32()), *((name, pa.string()) for name in ("file", "rule", "row"))]).empty_table()


class _Job:
    """One run; the steps are methods in the order in which they happen."""

    def __init__(
        self, spec: IngestSpec, output: str, sessions: tuple[SparkSession, SparkSession],
        given: Mapping[str, DataFrame], progress: Announce | None,
    ) -> None:  # fmt: skip
        self.spec, self.output = spec, output
        self.spark, self._outer = sessions
        self._given = given
        self.report = IngestReport(output, "")
        self.doing = ["ingest"]
        self._progress = progress or (lambda name: None)
        self._bad: list[DataFrame] = []
        self._store = absolute_place(output)
        self.incremental = False
        self._earlier: Earlier | None = None
        self._loads: Mapping[str, Any] = {}
        self._moments: Sequence[int] = ()

    def run(self, work: str) -> None:
        folder = open_folder(self._store)
        with folder.locked():
            before = set(folder.list())
            try:
                self._run(folder, work)
            except BaseException:
                write.remove(folder, set(folder.list()) - before)
                raise

    def _run(self, folder: Folder, place: str) -> None:
        report = self.report
        with self._step("inputs"):
            self._check_quarantine()
            if self.incremental:
                self._earlier = Earlier.at(self._store)
            before = None if self._earlier is None else self._earlier.manifest
            if self.spec.by_version:
                self.spec, self._moments = find_versions(self.spark, self.spec, before)
            self.spec = pinned(self.spark, self.spec, {} if before is None else before.loads.get("tables", {}))
            check_tables(self.spec, self._given)
            skipped: frozenset[str] = frozenset()
            if self.incremental:
                news = find_news(self.spark, self.spec, before, self.output, self._moments)
                if before is not None and news.none:
                    self._nothing_new(before)
                    return
                self.spec, skipped, self._loads = news
            tables = open_inputs(self.spark, self.spec, self._given, self._outer, "", skipped)
            described = [
                open_inputs(self.spark, part, self._given, self._outer, f"vertices[{at}].", skipped)
                for at, part in enumerate(self.spec.vertices)
            ]
            key = self._key()
        work = WorkFolder(self.spark, place, key, self._announce)
        report.continued = work.continued
        try:
            self._made(folder, work, tables, described)
        except StoreError:
            raise
        except InputError:
            work.remove()  # the same would happen again
            raise
        finally:
            work.release()

    def _made(
        self, folder: Folder, work: WorkFolder, tables: list[DataFrame], described: list[list[DataFrame]]
    ) -> None:
        spec, report = self.spec, self.report
        every_row = spec.clean.duplicates == "drop"
        with self._step("rows"):
            parsed = self._parsed(work, "rows", lambda: parsed_rows(tables, spec), every_row=every_row)
            self._count(parsed)
            sources, old, old_rows = [parsed], 0, 0
            if self._earlier is not None:
                made = partial(self._earlier.links, self.spark, spec)
                sources.append(keep_rows(work, "earlier", made, every_row=every_row))
                old, old_rows = self._earlier.manifest.info.num_edges, sources[1].kept.size
                old = old if spec.instances is None else old_rows - old
            rows = ordered(sources, None if spec.instances is None else STORE_INPUT)
        with self._step("vertices"):
            described_rows = self._parsed_vertices(work, described)
            timed = [one for one in (rows, *described_rows) if "time" in one.schema.names]
            windows = self._windows([one.select("time").frame(self.spark) for one in timed])
            describing = self._described(work, described_rows, windows)
        links: Stored | DataFrame = rows
        with self._step("labels"):
            if every_row:
                links = self._without_duplicates(work, rows.frame(self.spark), windows)
            left, count = report.rows - report.quarantined, report.rows - report.quarantined + old_rows
            more: list[Stored | DataFrame] = [one.table for one in describing]
            if self._earlier is not None:
                more.append(self._earlier.labels(self.spark, spec))
            sample = pa.concat_tables(one.sample for one in sources)
            vertices = number_vertices(work, links, more, sample, count + self._vertex_rows)
            report.vertices = vertices.size
        with self._step("edges"):
            ends = vertices.ends(directed=spec.directed)
            bounds = partial(find_bounds, sample, vertices, windows, ends, count, self.spark)
            edges = make_edges(work, partial(with_numbers, links, vertices, self.spark), spec, bounds)
            report.edges, report.kept = edges.size, edges.kept - old
            report.merged = left - report.kept
        with self._step("owners"):
            places, figures = place_vertices(work, edges, vertices, spec)
        with self._step("slices"):
            plan = write.make_plan(places, vertices, spec, self._store, windows)
            spots = work.share(places.spot)
            made_slices = write.write_slices_of(self.spark, plan, edges.table, spots, vertices, describing)
            reports = write.with_empty_parts(plan, write.collect_reports(made_slices))
            report.partition = self._cut(reports) | figures
        values: write.Reports = {}
        if edges.entries is not None and windows is not None:
            with self._step("instances"):
                made_values = write.write_values_of(self.spark, plan, edges.entries, spots, reports)
                values = write.collect_reports(made_values)
                for one in describing:
                    if one.of.timestamp is not None:
                        made_values = write.write_vertex_values_of(self.spark, plan, one, spots, vertices, reports)
                        for part, bodies in write.collect_reports(made_values).items():
                            values[part] += bodies
                report.instances = {"start": int(windows.starts[0]), "count": windows.size}
                report.instances |= {} if self.spec.by_version else {"period": windows.period}
        with self._step("publish"):
            self._statistics(plan, reports)
            self._write_quarantine()
            manifest = write.make_manifest(plan, reports, values, report.edges, self._partitioner(), self._loads)
            write.publish(folder, manifest)
            report.fingerprint = manifest.fingerprint()
        work.remove()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self._announce(name)
        begun = time.perf_counter()
        yield
        self.report.seconds[name] = time.perf_counter() - begun

    def _announce(self, name: str) -> None:
        step = f"ingest, step {name}"
        if step != self.doing[0]:
            self.doing[0] = step
            self._progress(name)

    def _nothing_new(self, store: Manifest) -> None:
        self.report.vertices, self.report.edges = store.info.num_vertices, store.info.num_edges
        self.report.fingerprint = store.fingerprint()

    def _key(self) -> str:
        depends = [_FORMAT, self.spec.model_dump(mode="json"), versions(self.spark, self.spec), self._loads]
        if self._earlier is not None:
            depends.append(self._earlier.manifest.fingerprint())
        return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:32]

    def _count(self, parsed: Rows) -> None:
        """Counts the rows by the rule that stops them."""
        kept, counts = parsed.kept.size, parsed.rules
        self._reject(parsed)
        report = self.report
        report.rules = dict(sorted(counts.items()))
        report.quarantined = sum(counts.values())
        report.rows = kept + report.quarantined
        if self._earlier is not None:
            return
        if not report.rows:
            raise InputError("inputs: no rows")
        if not kept:
            reasons = ", ".join(f"{name} {count:,}" for name, count in report.rules.items())
            advice = ""
            if self.spec.labels == "integer" and any(name.endswith("_unreadable") for name in counts):
                advice = "; set labels: text if vertex labels are not integers"
            self._write_quarantine()
            raise InputError(f"all {report.rows:,} rows were rejected: {reasons} (see {report.quarantine}){advice}")

    def _reject(self, parsed: Rows) -> None:
        if parsed.rules:
            self._bad.append(parsed.rejected.frame(self.spark))

    def _parsed(self, work: WorkFolder, name: str, make: Callable[[], DataFrame], *, every_row: bool) -> Rows:
        """A step that reads files of the user."""
        try:
            return keep_rows(work, name, make, every_row=every_row)
        except GoffishError:
            raise
        except Exception as error:
            raise (unreadable(error) or error) from None

    def _parsed_vertices(self, work: WorkFolder, described: list[list[DataFrame]]) -> list[Stored]:
        """The usable rows of each table of vertices, beside those of a store that rows are added to, in their order.

        Raises
        ------
        InputError
            No row of a table is usable.
        """
        spec, total, rules, found = self.spec, 0, Counter[str](), []
        first = len(spec.inputs)
        for at, (part, tables) in enumerate(zip(spec.vertices, described, strict=True)):
            make = partial(parsed_vertices, tables, part, spec, f"vertices[{at}].", first)
            parsed = self._parsed(work, f"vertices-{at}", make, every_row=True)
            kept, counts, sources = parsed.kept.size, parsed.rules, [parsed]
            self._reject(parsed)
            if counts and not kept and self._earlier is None:
                self._write_quarantine()
                reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
                raise InputError(f"vertices[{at}]: all {counts.total():,} rows were rejected: {reasons}")
            total, rules, first = total + kept + counts.total(), rules + counts, first + len(part.inputs)
            if self._earlier is not None:
                earlier = partial(self._earlier.described, self.spark, spec, part)
                sources.append(keep_rows(work, f"earlier-{at}", earlier, every_row=True))
            found.append(ordered(sources))
        if found:
            self.report.vertex_rows = {"rows": total, "quarantined": rules.total(), "rules": dict(rules)}
        return found

    @property
    def _vertex_rows(self) -> int:
        return 0 if self.report.vertex_rows is None else int(self.report.vertex_rows["rows"])

    def _windows(self, tables: list[DataFrame]) -> Windows | None:
        if self.spec.instances is None:
            return None
        if self.spec.by_version:
            return Windows(0, 1, len(self._moments), self._moments)
        windows = find_windows(tables, self.spec)
        if windows.size == 1:
            text = "all rows are in one instance; check instances.period and the unit of timestamp.format"
            warnings.warn(text, GoffishWarning, stacklevel=2)
        return windows

    def _described(self, work: WorkFolder, parsed: list[Stored], windows: Windows | None) -> list[VertexRows]:
        """The rows of each table of vertices, with what becomes of them."""
        found, states = [], Counter[str]()
        for at, (part, rows) in enumerate(zip(self.spec.vertices, parsed, strict=True)):
            stored = work.step(f"described-{at}", partial(mark_rows, rows.frame(self.spark), part, windows))
            marked = stored.frame(self.spark)
            states.update({row["state"]: row["count"] for row in marked.groupBy("state").count().collect()})
            self._bad.append(marked.where(marked["state"] == DUPLICATE).withColumnRenamed("state", "rule"))
            found.append(VertexRows(part, marked))
        if self.report.vertex_rows is not None:
            again, merged = states[DUPLICATE], states[MERGED]
            counts = self.report.vertex_rows
            counts["quarantined"] += again
            counts["rules"] = dict(sorted({**counts["rules"], **({DUPLICATE: again} if again else {})}.items()))
            counts |= {"merged": merged, "kept": counts["rows"] - merged - counts["quarantined"]}
        return found

    def _without_duplicates(self, work: WorkFolder, rows: DataFrame, windows: Windows | None) -> DataFrame:
        """The rows without those that the rule puts aside."""
        from pyspark.sql import functions as F

        spec, by = self.spec, ["first_end", "second_end"]
        ends = (F.col("source"), F.col("target"))
        if not spec.directed:
            ends = (F.least(*ends), F.greatest(*ends))
        marked = rows.withColumns(dict(zip(by, ends, strict=True)))
        if windows is not None:
            marked = with_instance(marked, windows)
            by = [*by, "instance"]
        stored = work.step("unique", lambda: split_duplicates(marked, by).drop(*by)).frame(self.spark)
        again = stored.where("again").drop("again")
        count = again.count()
        if count:
            self.report.rules[DUPLICATE] = count
        self.report.quarantined += count
        self._bad.append(again.withColumn("rule", F.lit(DUPLICATE)))
        return stored.where("not again").drop("again")

    def _cut(self, reports: write.Reports) -> dict[str, Any]:
        """Method, parts and edge cut; every cut edge is reported by two partitions."""
        spec, edges = self.spec, self.report.edges
        bodies = [reports[part][0] for part in range(spec.partition.parts)]
        far = sum(body["cut"] for body in bodies) // 2
        arcs = edges if spec.directed else 2 * edges - sum(body["loops"] for body in bodies)
        return {
            "method": choose_method(spec, edges),
            "parts": spec.partition.parts,
            "edge_cut": far,
            "edge_cut_share": (far if spec.directed else 2 * far) / arcs,
        }

    def _partitioner(self) -> dict[str, Any]:
        """As `goffish.partition.partition_graph` describes it."""
        found = self.report.partition
        options = method_options(self.spec, found["method"])
        return {"method": found["method"], "options": options} | {
            name: found[name] for name in ("edge_cut", "edge_cut_share")
        }

    def _statistics(self, plan: Plan, reports: write.Reports) -> None:
        bodies = [reports[part][0] for part in range(plan.parts)]
        degrees = degree_figures(body["degrees"] for body in bodies)
        if plan.directed:
            incoming = degree_figures(body["in_degrees"] for body in bodies)
            degrees |= {f"in_{name}": value for name, value in incoming.items()}
        self.report.degrees = degrees
        sizes = [body["sizes"] for body in bodies]
        self.report.components = component_figures(sizes, (body["links"] for body in bodies))

    def _check_quarantine(self) -> None:
        for name in open_folder(self.report.quarantine).list():
            if not name.partition("/")[0].endswith(_QUARANTINE_FILES):
                raise InputError(
                    f"{self.report.quarantine}: contains {name}, which no ingest wrote; choose another "
                    "folder (--quarantine)"
                )

    def _quarantined_before(self, number: int) -> list[Part]:
        """What earlier loads have put aside, and not what a run of this load has that was killed."""
        place = self.report.quarantine
        there = folder_parts(place) if MANIFEST in open_folder(place).list() else []
        return [part for part in there if part.name < f"load-{number:05d}"]

    def _write_quarantine(self) -> None:
        columns = ["input", "file", "rule", "row"]
        count = self.report.quarantined + (self.report.vertex_rows or {}).get("quarantined", 0)
        tasks = max(1, min(1000, count // 1_000_000))
        writer = folder_writer(absolute_place(self.report.quarantine))
        try:
            writer.begin()
            number = self._loads.get("number", 0)
            of, parts = f"load-{number:05d}" if self.incremental else "part", []
            if count:
                bad = reduce(
                    lambda one, other: one.unionByName(other), (b.select(*columns, *ORDER[2:]) for b in self._bad)
                )
                placed = bad.repartitionByRange(tasks, *ORDER).sortWithinPartitions(*ORDER).select(*columns)
                parts = write_result_parts(placed, writer.target, of)
            # Readers find the columns in a file without rows.
            parts = parts or [writer.write(0, _NONE, of)]
            kept = [] if self._earlier is None else self._quarantined_before(number)
            writer.publish("quarantine", parts, kept)
        except BaseException:
            writer.discard()
            raise
