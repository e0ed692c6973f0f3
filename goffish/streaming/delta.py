"""Delta tables as sources and sinks: versions in their order, and appends that a restart neither loses nor doubles."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from goffish.errors import FormatError, InputError, JobError
from goffish.extras import needed_for
from goffish.partial import is_uri, local_path
from goffish.storage import reason_of
from goffish.streaming.checkpoints import lock_folder
from goffish.streaming.sinks import ParquetWriter, Sink, Writer
from goffish.streaming.sources import ParquetReader, Position, Read, Reader, Source, checked_rate, filesystem_of

_LOG, _COMMIT = "_delta_log", re.compile(r"(\d{20})\.json")
#: Seconds between two looks at a table that is followed.
_LOOK_S = 1.0
_CHANGE, _VERSION = "_change_type", "_commit_version"


def read_delta(
    path: str | Path, *, version: int | None = None, changes: bool = False, follow: bool = False,
    rate: float | None = None, storage_options: Mapping[str, str] | None = None,
) -> Source:  # fmt: skip
    """Read a Delta table as Arrow batches: first its records, then those of later versions.

    Parameters
    ----------
    path : str or Path
        Folder or URI of the table.
    version : int, optional
        Read the commits from this version on, and not the records of the latest version first.
    changes : bool
        Read all changes, with the columns ``_change_type`` (``insert``, ``delete``, ``update_preimage`` or
        ``update_postimage``) and ``_commit_version``. By default, a version that changes or deletes records is an
        error.
    follow : bool
        Wait for new versions.
    rate : float, optional
        Records per second [default: as fast as possible].
    storage_options : mapping, optional
        Options of deltalake for the storage.

    Returns
    -------
    Source

    Raises
    ------
    InputError
        The version is negative, or the rate is not positive.

    Notes
    -----
    Updates are recorded as such if the table has ``delta.enableChangeDataFeed``; without it, they are deletions and
    insertions of all records of a file.

    References
    ----------
    .. [1] The Delta transaction log protocol, https://github.com/delta-io/delta/blob/master/PROTOCOL.md

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.read_delta("orders", version=0, follow=True).partitions()
    ['table']
    """
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise InputError(f"{path}: version = {version!r}: must be 0 or more")
    options = None if storage_options is None else tuple(sorted(storage_options.items()))
    return DeltaSource(str(path), version, changes, follow, checked_rate(rate, str(path)), options)


@dataclass(frozen=True)
class DeltaSource(Source):
    """The records of a Delta table, by version.

    Attributes
    ----------
    path : str
    version : int, optional
    changes, follow : bool
    rate : float, optional
    options : tuple of pairs, optional
    """

    path: str
    version: int | None = None
    changes: bool = False
    follow: bool = False
    rate: float | None = None
    options: tuple[tuple[str, str], ...] | None = None

    def partitions(self) -> list[str]:
        """Return the name of the only partition."""
        return ["table"]

    def check(self) -> None:
        """Raise an error if there is no table."""
        _import()
        Log(self.path).latest()

    def open(self, partition: str, position: Position | None) -> Reader:
        """Return a reader from a position, by default from the beginning."""
        return _DeltaReader(self, position)


def _import() -> Any:
    with needed_for("Delta tables"):
        import deltalake
    return deltalake


class _File(NamedTuple):
    """A file of a version: its place in the table, values of partition columns, and kind of change."""

    name: str
    partition: Mapping[str, Any]
    change: str | None


class Log:
    """The transaction log of a table.

    Parameters
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._system, self._root = filesystem_of(path)

    def latest(self) -> int:
        """Return the latest version.

        Raises
        ------
        InputError
            There is no table.
        """
        try:
            self._system.invalidate_cache()
            names = self._system.ls(f"{self._root}/{_LOG}", detail=False)
        except OSError as error:
            reason = "no such table" if isinstance(error, FileNotFoundError) else reason_of(error)
            raise InputError(f"{self.path}: not a Delta table ({reason})") from None
        found = [int(one[1]) for name in names if (one := _COMMIT.fullmatch(str(name).rsplit("/", 1)[-1]))]
        if not found:
            raise InputError(f"{self.path}: not a Delta table (its log has no commit)")
        return max(found)

    def actions(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit.

        Raises
        ------
        InputError
            The log does not have it any more.
        """
        try:
            data = self._system.cat_file(f"{self._root}/{_LOG}/{version:020d}.json")
            return [json.loads(line) for line in data.splitlines() if line.strip()]
        except FileNotFoundError:
            raise InputError(
                f"{self.path}: version {version} is not in the log any more; begin with another checkpoint folder and "
                "without version"
            ) from None
        except (OSError, ValueError) as error:
            raise FormatError(self.path, None, f"version {version}: the log cannot be read ({error})") from None

    def place(self, name: str) -> str:
        """Return the URI or path of a file of the table."""
        if is_uri(name):
            return name
        return f"{self.path.rstrip('/')}/{unquote(name)}"

    def exists(self, name: str) -> bool:
        """Return whether a file of the table exists."""
        system, path = filesystem_of(self.place(name))
        return bool(system.exists(path))


class _DeltaReader(Reader):
    """Reads a table; the position is the version, whether it is read as a whole, the file, its row group and row."""

    def __init__(self, source: DeltaSource, position: Position | None) -> None:
        self._source, self._log = source, Log(source.path)
        self._latest = self._log.latest()
        self._looked = time.monotonic()
        self._files: list[_File] | None = None
        self._schema: pa.Schema | None = None
        self._reader: ParquetReader | None = None
        if position is not None:
            self.position = list(position)
        elif source.version is None:
            self.position = [self._latest, 1, 0, 0, 0]
        else:
            self.position = [source.version, 0, 0, 0, 0]

    def read(self, limit: int) -> Read | None:
        """Return at most about `limit` records, or ``None`` if none is available now."""
        while True:
            version, whole, number, *place = self.position
            if version > self._latest and not self._has_more(version):
                self.done = not self._source.follow
                return None
            if self._files is None:
                self._files = self._whole(version) if whole else self._changed(version)
            if number == len(self._files):
                self.position, self._files = [version + 1, 0, 0, 0, 0], None
                continue
            file = self._files[number]
            if self._reader is None:
                if not self._log.exists(file.name):
                    raise InputError(
                        f"{self._source.path}: version {version}: {file.name} was removed (vacuum); begin with another "
                        "checkpoint folder and without version"
                    )
                self._reader = ParquetReader(self._log.place(file.name), place)
            found = self._reader.read(limit)
            if found is None:
                self._reader.close()
                self.position, self._reader = [version, whole, number + 1, 0, 0], None
                continue
            self.position = [version, whole, number, *self._reader.position]
            return Read(self._complete(found.values, file, version)) if len(found.values) else found

    def _has_more(self, version: int) -> bool:
        if self._source.follow and time.monotonic() > self._looked + _LOOK_S:
            self._looked = time.monotonic()
            self._latest = self._log.latest()
        return version <= self._latest

    def _table(self, version: int) -> Any:
        deltalake = _import()
        options = None if self._source.options is None else dict(self._source.options)
        try:
            return deltalake.DeltaTable(self._source.path, version=version, storage_options=options)
        except (deltalake.exceptions.DeltaError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{self._source.path}: version {version} cannot be read ({reason})") from None

    def _whole(self, version: int) -> list[_File]:
        """Return all files of a version."""
        table = self._table(version)
        self._schema = _arrow_schema(table.schema())
        self._check_mode(version, table.metadata().configuration)
        added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        vectors = pa.table(table.deletion_vectors()).num_rows if hasattr(table, "deletion_vectors") else 0
        if vectors:
            raise self._unsupported(version, "deletion vectors")
        change = "insert" if self._source.changes else None
        files = [_File(one["path"], _partition_of(one), change) for one in added]
        return sorted(files, key=lambda one: one.name)

    def _changed(self, version: int) -> list[_File]:
        """Return the files with the changes of a version."""
        actions = self._log.actions(version)
        for action in actions:
            if "metaData" in action:
                self._check_mode(version, action["metaData"].get("configuration") or {})
                self._schema = _arrow_schema(_import().Schema.from_json(action["metaData"]["schemaString"]))
        if self._schema is None:
            self._schema = _arrow_schema(self._table(version).schema())
        cdc = [action["cdc"] for action in actions if "cdc" in action]
        added, removed = (
            [action[kind] for action in actions if kind in action and action[kind].get("dataChange", True)]
            for kind in ("add", "remove")
        )
        if any(one.get("deletionVector") for one in (*added, *removed)):
            raise self._unsupported(version, "deletion vectors")
        if not self._source.changes:
            if removed or cdc:
                raise InputError(
                    f"{self._source.path}: version {version} changes or deletes records; read with changes=True, or "
                    "begin with another checkpoint folder"
                )
            return [_File(one["path"], one.get("partitionValues") or {}, None) for one in added]
        if cdc:
            return [_File(one["path"], one.get("partitionValues") or {}, None) for one in cdc]
        kinds = [(one, "delete") for one in removed] + [(one, "insert") for one in added]
        return [_File(one["path"], one.get("partitionValues") or {}, change) for one, change in kinds]

    def _check_mode(self, version: int, configuration: Mapping[str, str]) -> None:
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            raise self._unsupported(version, "column mapping")

    def _unsupported(self, version: int, feature: str) -> InputError:
        return InputError(f"{self._source.path}: version {version}: {feature} are not supported; rewrite the table")

    def _complete(self, batch: pa.RecordBatch, file: _File, version: int) -> pa.RecordBatch:
        """Return records with all columns of the table."""
        assert self._schema is not None
        columns: dict[str, pa.Array] = {}
        for field in self._schema:
            if field.name in file.partition:
                value = file.partition[field.name]
                if isinstance(value, str):  # the log has texts, and an empty one for null
                    value = pa.scalar(value or None, pa.string()).cast(field.type)
                columns[field.name] = pa.repeat(pa.scalar(value, field.type), len(batch))
            elif field.name in batch.schema.names:
                columns[field.name] = batch.column(field.name).cast(field.type)
            else:
                columns[field.name] = pa.nulls(len(batch), field.type)
        if self._source.changes:
            change = batch.column(_CHANGE) if file.change is None else pa.repeat(file.change, len(batch))
            columns |= {_CHANGE: change, _VERSION: pa.repeat(pa.scalar(version, pa.int64()), len(batch))}
        return pa.record_batch(columns)

    def close(self) -> None:
        """Close files."""
        if self._reader is not None:
            self._reader.close()


def _partition_of(added: Mapping[str, Any]) -> dict[str, Any]:
    beginning = "partition."
    return {name.removeprefix(beginning): value for name, value in added.items() if name.startswith(beginning)}


def _arrow_schema(schema: Any) -> pa.Schema:
    return pa.schema(schema.to_arrow())


# Sink.


def write_delta(
    path: str | Path, *, staging: str | Path | None = None, partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> Sink:  # fmt: skip
    """Append records to a Delta table; each checkpoint is a version.

    Parameters
    ----------
    path : str or Path
        Folder or URI of the table; made with the columns of the first records if it does not exist.
    staging : str or Path, optional
        Local folder, of this sink alone, for records until their checkpoint is saved [default: ``_goffish`` in the
        folder of the table]. Required for URIs.
    partition_by : sequence of str
        Partition columns of a table that is made.
    storage_options : mapping, optional
        Options of deltalake for the storage.

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        The path is a URI, and there is no staging folder.

    Notes
    -----
    Delivery is exactly-once when the flow has a checkpoint folder: a commit carries a transaction identifier with the
    number of its checkpoint (``txn``), by which a restart finds out whether it was made.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.write_delta("s3://lake/orders", staging="staging").staging
    'staging'
    """
    if staging is None:
        if is_uri(path):
            raise InputError(f"{path}: staging is required for a URI; give a local folder")
        staging = local_path(path) / "_goffish"
    local_path(staging)
    options = None if storage_options is None else tuple(sorted(storage_options.items()))
    return DeltaSink(str(path), str(staging), tuple(partition_by), options)


@dataclass(frozen=True)
class DeltaSink(Sink):
    """A Delta table to which records are appended.

    Attributes
    ----------
    path, staging : str
    partition_by : tuple of str
    options : tuple of pairs, optional
    """

    path: str
    staging: str
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] | None = None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folder in which writers prepare files."""
        return (self.staging,)

    def check(self) -> None:
        """Raise an error if the target cannot be written."""
        _import()
        self.table()

    def table(self) -> Any:
        """Return the table, or ``None`` if it does not exist."""
        deltalake = _import()
        options = None if self.options is None else dict(self.options)
        try:
            return deltalake.DeltaTable(self.path, storage_options=options)
        except deltalake.exceptions.TableNotFoundError:
            return None
        except (deltalake.exceptions.DeltaError, OSError, ValueError) as error:
            raise InputError(f"{self.path}: the table cannot be read ({' '.join(str(error).split())})") from None

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _DeltaWriter(self, name)


class _DeltaWriter(ParquetWriter):
    """Collects records in a Parquet file, which is appended to the table when it is committed."""

    def __init__(self, sink: DeltaSink, name: str) -> None:
        super().__init__(local_path(sink.staging), name)
        self._sink = sink
        self._lock: IO[str] | None = None
        self._id = ""
        self._target: pa.Schema | None = None

    def recover(self, number: int | None) -> None:
        """Append what was prepared for the last checkpoint, and discard what came after it."""
        self.folder = local_path(self._sink.staging) / f"part{self._of}"
        self._lock = lock_folder(self.folder, self._sink.staging)
        identifier = self.folder / "id"
        try:
            if number is None:
                identifier.write_text(f"goffish-{uuid.uuid4()}")
            elif not identifier.exists():
                raise InputError(
                    f"{self.folder}: has no records of checkpoint {number}; restore it, or begin with another "
                    "checkpoint folder"
                )
            self._id = identifier.read_text()
            for earlier in sorted(self.folder.glob(".part-*.prepared")):
                found = int(earlier.name.split("-")[-1].split(".")[0])
                if number is not None and found <= number:
                    self.commit(found)
            for one in self.folder.glob(".part-*"):
                one.unlink()
        except OSError as error:
            raise self._error(error) from None

    def flush(self) -> None:
        """Write a row group, with the columns of the table."""
        self.convert()
        if self.waiting:
            if self._target is None:
                self._target = self._columns()
            self.waiting = [self._fitted(one) for one in self.waiting]
        super().flush()

    def _columns(self) -> pa.Schema:
        """Return the columns of the table, which is made if it does not exist."""
        deltalake = _import()
        table = self._sink.table()
        if table is None:
            schema = pa.unify_schemas([one.schema for one in self.waiting], promote_options="permissive")
            options = None if self._sink.options is None else dict(self._sink.options)
            try:
                table = deltalake.DeltaTable.create(
                    self._sink.path, deltalake.Schema.from_arrow(schema), mode="ignore", storage_options=options,
                    partition_by=list(self._sink.partition_by) or None,
                )  # fmt: skip
            except Exception as error:
                reason = " ".join(str(error).split())
                raise JobError(f"operator {self.name}: {self._sink.path}: cannot be made ({reason})") from None
        return _arrow_schema(table.schema())

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._target is not None
        extra = [name for name in batch.schema.names if name not in self._target.names]
        if extra:
            raise JobError(
                f"operator {self.name}: column {extra[0]!r} is not in the table {self._sink.path}; its columns are "
                f"{', '.join(self._target.names)}"
            )
        columns = []
        for field in self._target:
            try:
                given = batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch))
                if given.null_count and not field.nullable:
                    raise pa.ArrowInvalid("a value is null")
                columns.append(given.cast(field.type))
            except pa.ArrowException as error:
                reason = " ".join(str(error).split())
                column = f"column {field.name!r} of {self._sink.path}"
                raise JobError(f"operator {self.name}: {column} has the type {field.type} ({reason})") from None
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def commit(self, number: int) -> None:
        """Append what was prepared, unless that was done."""
        prepared = self._prepared(number)
        if not prepared.exists():
            return
        deltalake = _import()
        table = self._sink.table()
        try:
            if table is None:
                raise JobError("the table was removed")
            if (table.transaction_version(self._id) or 0) < number:
                file = pq.ParquetFile(prepared)
                properties = deltalake.CommitProperties(
                    app_transactions=[deltalake.Transaction(self._id, number, int(time.time() * 1000))]
                )
                records = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
                deltalake.write_deltalake(table, records, mode="append", commit_properties=properties)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise JobError(
                f"operator {self.name}: {self._sink.path}: checkpoint {number} cannot be appended ({reason}); the next "
                "run does that"
            ) from None
        with suppress(OSError):
            prepared.unlink()

    def close(self) -> None:
        """Discard what was not prepared."""
        super().close()
        if self._lock is not None:
            self._lock.close()
