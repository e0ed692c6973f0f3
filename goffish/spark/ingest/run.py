"""The ingest job: its steps in order, from raw files to a published store."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import GoffishError, GoffishWarning, InputError, StoreError
from goffish.gofs import check_store_place
from goffish.gofs.files import Folder, open_folder
from goffish.gopher.spark.session import cancelling, is_local, named, session
from goffish.partial import is_uri, local_path
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
    with_order,
)
from goffish.spark.ingest.labels import number_vertices, with_numbers
from goffish.spark.ingest.partition import choose_method, method_options, place_vertices
from goffish.spark.ingest.plan import Plan
from goffish.spark.ingest.sources import check_tables, open_inputs, pinned, unreadable, versions
from goffish.spark.ingest.spec import IngestSpec, read_spec
from goffish.spark.ingest.stats import component_figures, degree_figures
from goffish.spark.ingest.vertices import DUPLICATE, MERGED, VertexRows, mark_rows
from goffish.spark.ingest.work import Announce, Files, WorkFolder, spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Changes when the same specification and inputs would give other steps.
_FORMAT = 6
Splits = set[tuple[int, str, int]]
#: What a quarantine folder may hold: the files that Spark writes.
_QUARANTINE_FILES = (".parquet", ".crc", "_SUCCESS", "_temporary")


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
) -> IngestReport:
    """Clean raw files or tables, number their vertices, partition the graph and write it as a store, on Spark.

    Parameters
    ----------
    spec
        The YAML file that describes inputs, columns and rules, or what it would hold; see ``docs/guides/ingest.md``.
    output
        Folder or URI of the store, which all executors can write. An existing store is replaced in one step.
    spark : SparkSession, optional
        Default: the running one, else all processors of this machine. It stays as it is.
    quarantine
        Parquet folder for the rows that were not used; default: ``<output>.quarantine``. Replaced when it is there.
    work
        Folder for the steps; default: ``<output>.work``. A job that was killed goes on from there; removed in the end.
    progress
        Called with the name of each step when it begins.
    tables : mapping of str to DataFrame, optional
        Inputs by the names in ``table``, before those of the catalog.

    Returns
    -------
    IngestReport

    Raises
    ------
    InputError
        The specification or an input cannot be used, or no row is left. Nothing but the quarantine is published then.
    JobError
        Spark gave up, with the step it was in.

    Notes
    -----
    The same specification and inputs give the same store, byte by byte, however many tasks Spark makes of it: that of
    ``goffish import`` and ``goffish partition`` for the rows that are kept. Rows of tables have no order: where it
    matters, as for ``duplicates: first``, it is that of a hash of their contents.
    """
    check_places(output, quarantine, work)
    checked = read_spec(spec)
    outer = session() if spark is None else spark
    if not hasattr(outer, "_jsparkSession"):
        raise InputError("spark: Spark Connect sessions are not supported; use a classic SparkSession")
    job = _Job(checked, str(output), outer, tables or {}, progress)
    job.report.quarantine = str(quarantine or f"{str(output).rstrip('/')}.quarantine")
    with named(job.doing), cancelling(job.spark):
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
        if place is not None:
            is_uri(place)  # refuses a path object made from a URI, and what lost a slash


def _inner(outer: SparkSession) -> SparkSession:
    """A separate session on the same Spark context: times in UTC, names with their case, the caller's shuffles."""
    inner, context = outer.newSession(), outer.sparkContext
    shuffles = outer.conf.get("spark.sql.shuffle.partitions")
    if is_local(outer) and context.getConf().get("spark.sql.shuffle.partitions") is None and shuffles == "200":
        # Spark's own default is meant for a cluster.
        shuffles = str(max(8, 4 * context.defaultParallelism))
    for key, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        # Labels in names of folders, such as 007, are texts.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": BATCH_ROWS,
        "spark.sql.shuffle.partitions": shuffles,
    }.items():
        inner.conf.set(key, str(value))
    return inner


def _counted(stored: DataFrame) -> tuple[int, Counter[str], Splits]:
    """How many rows are usable and how many each rule stops, and the pieces of files that rows were read from."""
    counts: Counter[str] = Counter()
    kept, splits = 0, set()
    for row in stored.groupBy("input", "file", "block", "rule").count().collect():
        if row["rule"] is None:
            kept += row["count"]
        else:
            counts[row["rule"]] += row["count"]
        splits.add((row["input"], row["file"], row["block"]))
    return kept, counts, splits


class _Job:
    """One run; the steps are methods in the order in which they happen."""

    def __init__(
        self, spec: IngestSpec, output: str, outer: SparkSession, given: Mapping[str, DataFrame],
        progress: Announce | None,
    ) -> None:  # fmt: skip
        self.spec, self.output, self.spark = spec, output, _inner(outer)
        self._outer, self._given = outer, given
        self.report = IngestReport(output, "")
        self.doing = ["ingest"]
        self._progress = progress or (lambda name: None)
        self._bad: list[DataFrame] = []
        self._store = output if is_uri(output) else str(local_path(output).absolute())

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
            self.spec = pinned(self.spark, self.spec)
            check_tables(self.spec, self._given)
            tables = open_inputs(self.spark, self.spec, self._given, self._outer, "")
            described = [
                open_inputs(self.spark, part, self._given, self._outer, f"vertices[{at}].")
                for at, part in enumerate(self.spec.vertices)
            ]
            key = self._key([*tables, *(table for some in described for table in some)])
        work = WorkFolder(self.spark, spark_path(place, self.spark), key, self._announce)
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
        with self._step("rows"):
            stored = self._parsed(work, "rows", lambda: parsed_rows(tables, spec))
            splits = self._count(stored)
            rows = stored.where("rule is null").drop("rule")
        with self._step("vertices"):
            parsed = self._parsed_vertices(work, described)
            windows = self._windows([rows, *(table for table, _ in parsed if "time" in table.columns)])
            describing = self._described(work, parsed, windows)
        with self._step("labels"):
            if spec.clean.duplicates == "drop":
                rows = self._without_duplicates(work, with_order(rows, splits), windows)
            left = report.rows - report.quarantined
            vertices = number_vertices(work, rows, [one.table for one in describing], left + self._vertex_rows)
            report.vertices = vertices.size
        with self._step("edges"):
            links = with_numbers(with_order(rows, splits), vertices)
            if windows is not None:
                links = with_instance(links, windows)
            edges = make_edges(work, links, spec, partial(find_bounds, rows, vertices, spec, left))
            report.edges, report.kept, report.merged = edges.size, edges.kept, left - edges.kept
        with self._step("owners"):
            places, figures = place_vertices(work, edges.table, vertices, edges.size, spec)
        with self._step("slices"):
            plan = write.make_plan(places, vertices, spec, self._store, windows)
            spots = work.share(places.spot)
            written = write.collect_reports(write.write_slices_of(plan, edges.table, spots, vertices, describing))
            reports = write.with_empty_parts(plan, written)
            report.partition = self._cut(reports) | figures
        values: write.Reports = {}
        if edges.entries is not None and windows is not None:
            with self._step("instances"):
                made = write.write_values_of(plan, edges.entries, spots, reports)
                values = write.collect_reports(made)
                for one in describing:
                    if one.of.timestamp is not None:
                        made = write.write_vertex_values_of(plan, one, spots, vertices, reports)
                        for part, bodies in write.collect_reports(made).items():
                            values[part] += bodies
                report.instances = {"start": windows.start, "period": windows.period, "count": windows.size}
        with self._step("publish"):
            self._statistics(plan, reports)
            self._write_quarantine()
            manifest = write.make_manifest(plan, reports, values, report.edges, self._partitioner())
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

    def _key(self, tables: list[DataFrame]) -> str:
        depends = [_FORMAT, self.spec.model_dump(mode="json"), versions(self.spark, self.spec, tables)]
        return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:32]

    def _count(self, stored: DataFrame) -> set[tuple[int, str, int]]:
        """Counts the rows by the rule that stops them; gives the pieces of files that rows were read from."""
        kept, counts, splits = _counted(stored)
        self._bad.append(stored.where("rule is not null"))
        report = self.report
        report.rules = dict(sorted(counts.items()))
        report.quarantined = sum(counts.values())
        report.rows = kept + report.quarantined
        if not report.rows:
            raise InputError("inputs: no rows")
        if not kept:
            reasons = ", ".join(f"{name} {count:,}" for name, count in report.rules.items())
            advice = ""
            if self.spec.labels == "integer" and any(name.endswith("_unreadable") for name in counts):
                advice = "; set labels: text if vertex labels are not integers"
            self._write_quarantine()
            raise InputError(f"all {report.rows:,} rows were rejected: {reasons} (see {report.quarantine}){advice}")
        return splits

    def _parsed(self, work: WorkFolder, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """A step that reads files of the user."""
        try:
            return work.step(name, make)
        except GoffishError:
            raise
        except Exception as error:
            raise (unreadable(error) or error) from None

    def _parsed_vertices(self, work: WorkFolder, described: list[list[DataFrame]]) -> list[tuple[DataFrame, Splits]]:
        """The usable rows of each table of vertices, and the pieces of files that they were read from.

        Raises
        ------
        InputError
            No row of a table is usable.
        """
        spec, total, rules, found = self.spec, 0, Counter[str](), []
        first = len(spec.inputs)
        for at, (part, tables) in enumerate(zip(spec.vertices, described, strict=True)):
            make = partial(parsed_vertices, tables, part, spec, f"vertices[{at}].", first)
            stored = self._parsed(work, f"vertices-{at}", make)
            kept, counts, splits = _counted(stored)
            self._bad.append(stored.where("rule is not null"))
            if counts and not kept:
                self._write_quarantine()
                reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
                raise InputError(f"vertices[{at}]: all {counts.total():,} rows were rejected: {reasons}")
            total, rules, first = total + kept + counts.total(), rules + counts, first + len(part.inputs)
            found.append((stored.where("rule is null").drop("rule"), splits))
        if found:
            self.report.vertex_rows = {"rows": total, "quarantined": rules.total(), "rules": dict(rules)}
        return found

    @property
    def _vertex_rows(self) -> int:
        return 0 if self.report.vertex_rows is None else int(self.report.vertex_rows["rows"])

    def _windows(self, tables: list[DataFrame]) -> Windows | None:
        if self.spec.instances is None:
            return None
        windows = find_windows(tables, self.spec)
        if windows.size == 1:
            text = "all rows are in one instance; check instances.period and the unit of timestamp.format"
            warnings.warn(text, GoffishWarning, stacklevel=2)
        return windows

    def _described(
        self, work: WorkFolder, parsed: list[tuple[DataFrame, Splits]], windows: Windows | None
    ) -> list[VertexRows]:
        """The rows of each table of vertices, with what becomes of them."""
        found, states = [], Counter[str]()
        for at, (part, (rows, splits)) in enumerate(zip(self.spec.vertices, parsed, strict=True)):
            marked = work.step(f"described-{at}", partial(mark_rows, rows, part, splits, windows))
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
        stored = work.step("unique", lambda: split_duplicates(marked, by).drop(*by, "order"))
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

    def _quarantine_place(self) -> str:
        return spark_path(self.report.quarantine, self.spark)

    def _check_quarantine(self) -> None:
        for name in Files(self.spark, self._quarantine_place()).list():
            if not name.endswith(_QUARANTINE_FILES):
                raise InputError(
                    f"{self.report.quarantine}: contains {name}, which no ingest wrote; choose another "
                    "folder (--quarantine)"
                )

    def _write_quarantine(self) -> None:
        columns = ["input", "file", "rule", "row"]
        bad = reduce(lambda one, other: one.unionByName(other), (b.select(*columns, *ORDER[2:]) for b in self._bad))
        count = self.report.quarantined + (self.report.vertex_rows or {}).get("quarantined", 0)
        tasks = max(1, min(1000, count // 1_000_000))
        ordered = bad.repartitionByRange(tasks, *ORDER).sortWithinPartitions(*ORDER).select(*columns)
        ordered.write.mode("overwrite").parquet(self._quarantine_place())
