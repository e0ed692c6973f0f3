"""Records on a channel: Python values or an Arrow batch, and their event times."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.gofs.times import Times

#: Event times are microseconds since 1970; before any time, and after all.
FIRST, LAST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that travel together.

    Attributes
    ----------
    values : list or pyarrow.RecordBatch
    times : array of int64, optional
        Event time of every record in microseconds since 1970.
    output : str
        Output of the operator that the batch leaves by; the main output has no name.
    """

    values: pa.RecordBatch | list[Any]
    times: Times | None = None
    output: str = ""

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.values
        if isinstance(values, pa.RecordBatch) and values.get_total_buffer_size() > 2 * values.nbytes:
            values = values.take(pa.array(np.arange(len(values))))  # pickles of a slice have the records around it
        return Batch, (values, self.times, self.output)

    def rows(self) -> list[Any]:
        """Return the values as Python objects; the rows of an Arrow batch are mappings.

        Returns
        -------
        list
        """
        if isinstance(self.values, list):
            return self.values
        rows: list[Any] = self.values.to_pylist()
        return rows

    def take(self, kept: NDArray[np.intp] | NDArray[np.bool_], output: str = "") -> Batch:
        """Return some of the records.

        Parameters
        ----------
        kept : array of int or bool
            Places, or a mask.
        output : str
            Output that they leave by.

        Returns
        -------
        Batch
        """
        at = np.flatnonzero(kept) if kept.dtype == np.bool_ else kept
        if len(at) == len(self) and kept.dtype == np.bool_:
            return replace(self, output=output)
        times = None if self.times is None else self.times[at]
        if isinstance(self.values, list):
            values = self.values
            return Batch([values[i] for i in at.tolist()], times, output)
        return Batch(self.values.take(pa.array(at)), times, output)

    @staticmethod
    def join(parts: Sequence[Batch]) -> Batch:
        """Return the records of several batches of one kind.

        Parameters
        ----------
        parts : sequence of Batch
            All with lists of values or all with Arrow batches of the same columns; all with event times or none.

        Returns
        -------
        Batch
        """
        times = [part.times for part in parts if part.times is not None]
        lists = [part.values for part in parts if isinstance(part.values, list)]
        values = list(itertools.chain.from_iterable(lists)) if lists else pa.concat_batches([p.values for p in parts])
        return Batch(values, np.concatenate(times) if times else None, parts[0].output)


def column_of(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return a column.

    Raises
    ------
    InputError
        The batch has no such column.
    """
    if column not in batch.schema.names:
        raise InputError(f"no column {column!r}; the columns are {', '.join(batch.schema.names)}")
    found = batch.column(column)
    return pc.cast(found, found.type.value_type) if pa.types.is_dictionary(found.type) else found


def as_arrow(values: list[Any], operator: str) -> pa.RecordBatch:
    """Return values as an Arrow batch: mappings as columns, other values as the column ``value``.

    Raises
    ------
    JobError
        The values have no common type.
    """
    try:
        if all(isinstance(value, dict) for value in values):
            batch = pa.RecordBatch.from_pylist(values, schema=_schema(values))
        else:
            batch = pa.record_batch({"value": pa.array(values)})
    except (pa.ArrowException, OverflowError) as error:
        raise JobError(
            f"operator {operator}: records cannot be Arrow columns ({' '.join(str(error).split())})"
        ) from None
    return batch


def _schema(values: list[dict[str, Any]]) -> pa.Schema | None:
    """Return the schema with the columns of all records; Arrow takes those of the first one."""
    first = values[0].keys() if values else {}
    names = dict.fromkeys(itertools.chain(first, *(value for value in values if value.keys() != first)))
    if len(names) == len(first):
        return None
    return pa.schema([(name, pa.array([value.get(name) for value in values]).type) for name in names])
