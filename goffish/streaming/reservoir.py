"""A sink that appends records to a pool of an event reservoir."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from goffish.errors import InputError, JobError, StoreError
from goffish.gofs.files import open_folder
from goffish.gofs.reservoir import Pool, Reservoir
from goffish.gofs.reservoir.model import NAME
from goffish.streaming.batches import Batch, as_arrow
from goffish.streaming.sinks import Sink, Writer

#: Names that events of a reservoir have, or its queries add.
_RESERVED = ("t", "id", "pool", "hops")


def write_reservoir(path: str | Path, pool: str, *, time: str = "time", id: str = "event_id") -> Sink:
    """Append records to a pool of an event reservoir.

    Parameters
    ----------
    path : str or Path
        Folder or URI of an event reservoir, which is made with the default settings if there is none.
    pool : str
        Name of the pool.
    time, id : str
        Columns that are the time and the identifier of an event [default: those of events of a live graph].

    Returns
    -------
    Sink

    Raises
    ------
    InputError
        The path is not accepted.

    Notes
    -----
    Each record is in the reservoir once: those that are written again after a crash have the same time and identifier,
    and have no effect. Other columns whose names are reserved (``t``, ``id``, ``pool``, ``hops``) get an underscore:
    ``id_``.

    Examples
    --------
    >>> import goffish as gf
    >>> live = gf.stream.LiveGraph(lateness=0)
    >>> _ = live.submit("DETECT Match(vertex:{kind = host}) AS hosts")
    >>> live.deliver("hosts", gf.stream.write_reservoir("seen.reservoir", "hosts"))
    >>> _ = live.feed([{"t": 1, "op": "+v", "id": "web", "attrs": {"kind": "host"}}])
    >>> live.flush()
    >>> gf.Reservoir("seen.reservoir").query("hosts").select(["status", "id_"]).to_pylist()
    [{'status': 'MATCHED', 'id_': 'web'}]
    """
    open_folder(path)
    return _ReservoirSink(path, pool, time, id)


@dataclass(frozen=True)
class _ReservoirSink(Sink):
    path: str | Path
    pool: str
    time: str
    id: str

    def check(self) -> None:
        """Raise an error if the target is no reservoir and cannot become one."""
        self._opened()

    def writer(self, name: str) -> Writer:
        """Return a writer for the operator of a name."""
        return _Appender(self._opened(), name, {self.time: "t", self.id: "id"})

    def _opened(self) -> Pool:
        is_there = open_folder(self.path).size(NAME) is not None
        return (Reservoir if is_there else Reservoir.create)(self.path).pool(self.pool)


class _Appender(Writer):
    """Appends what it has collected before a checkpoint is complete; after a crash, it is appended again."""

    publishes, columns = True, True

    def __init__(self, pool: Pool, name: str, renamed: dict[str, str]) -> None:
        self._pool, self._name, self._renamed = pool, name, renamed
        self._tables: list[pa.Table] = []

    def write(self, batch: Batch) -> None:
        """Collect records."""
        values = batch.values
        table = pa.Table.from_batches([as_arrow(values, self._name) if isinstance(values, list) else values])
        for name in self._renamed:
            if name not in table.column_names:
                raise JobError(
                    f"operator {self._name}: records have no column {name}; name the time and the identifier of events "
                    "by time= and id="
                )
        names = [self._renamed.get(one) or (f"{one}_" if one in _RESERVED else one) for one in table.column_names]
        self._tables.append(table.rename_columns(names))

    def prepare(self, number: int) -> None:
        """Append what was collected; tables with other types of columns by themselves."""
        while self._tables:
            schema = self._tables[0].schema
            same = [one for one in self._tables if one.schema == schema]
            try:
                self._pool.append(pa.concat_tables(same))
            except (StoreError, InputError) as error:
                raise JobError(f"operator {self._name}: {error}") from None
            self._tables = [one for one in self._tables if one.schema != schema]

    def close(self) -> None:
        """Discard what was not appended."""
        self._tables = []
