"""The instances that a user gives, checked and brought into one form: a nullable Arrow column for every attribute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.series.model import Attribute, InstanceData, SeriesSchema, SparseColumn, Unit, moment, moment_text
from goffish.graph import Graph
from goffish.graph.guards import expect

#: Columns of one instance by attribute, in the order of reading; null where the default holds.
Row = dict[str, pa.Array]


@dataclass
class Reading:
    """Takes instances one after the other.

    Attributes
    ----------
    vertices, edges : int
        Of the whole graph.
    statics : mapping
        Defaults of every element, in the order of reading, for attributes that have such.
    starts, ends : list of int
        Of the instances so far.
    """

    schema: SeriesSchema
    unit: Unit
    vertices: int
    edges: int
    statics: Mapping[str, pa.Array]
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def take(self, data: InstanceData) -> Row:
        """Check an instance and give its columns."""
        number = len(self.starts)
        expect(data, InstanceData, f"instance {number}", "expected InstanceData(start, end, values)")
        expect(data.values, Mapping, f"values of instance {number}", "expected a mapping of attribute to column")
        start, end = (moment(getattr(data, x), self.unit, f"{x} of instance {number}") for x in ("start", "end"))
        if end <= start:
            raise InputError(f"instance {number} ends at {moment_text(end, self.unit)}, which is not after its start")
        if self.ends and start < self.ends[-1]:
            before = f"before instance {number - 1} ends ({moment_text(self.ends[-1], self.unit)})"
            advice = "instances must ascend in time without overlap"
            raise InputError(f"instance {number} begins at {moment_text(start, self.unit)}, {before}: {advice}")
        row: Row = {}
        for name, values in data.values.items():
            if name not in self.schema:
                known = ", ".join(self.schema) or "none"
                raise InputError(f"instance {number}: no attribute {name!r} in this series; available: {known}")
            attribute = self.schema[name]
            count = self.vertices if name.startswith("vertex.") else self.edges
            where = f"instance {number}, {name}"
            if isinstance(values, SparseColumn):
                column = _spread(values, attribute, count, where)
            else:
                column = _as_column(values, attribute, where)
            if len(column) != count:
                what = "vertex" if name.startswith("vertex.") else "edge"
                raise InputError(f"{where} has {len(column)} rows, expected {count:,}: one for each {what}")
            row[name] = without_defaults(column, attribute, self.statics.get(name))
        self.starts.append(start)
        self.ends.append(end)
        return row


def statics_of(schema: SeriesSchema, template: Graph) -> dict[str, pa.Array]:
    """Columns of the template that hold defaults, as the types of the attributes, in the order of reading."""
    found = {}
    for name in schema:
        attribute = schema[name]
        if attribute.default_column is None:
            continue
        place = name.partition(".")[0]
        table = template.vertex_attributes if place == "vertex" else template.edge_attributes
        known = [] if table is None else table.column_names
        if table is None or attribute.default_column not in known:
            problem = f"no {place} attribute {attribute.default_column!r} in the template"
            raise InputError(f"{name}: default_column: {problem}; available: {', '.join(known) or 'none'}")
        column = _as_column(table.column(attribute.default_column), attribute, f"{name}: the default column")
        if column.null_count:
            at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(f"{name}: the default column {attribute.default_column!r} has no value in row {at}")
        found[name] = column
    return found


def _as_column(values: Any, attribute: Attribute, where: str) -> pa.Array:
    kind = attribute.arrow_type
    try:
        if isinstance(values, pa.ChunkedArray):
            whole = values.combine_chunks()
            values = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
        elif hasattr(values, "to_arrow"):  # polars
            values = values.to_arrow()
        elif not isinstance(values, pa.Array):
            # Without a type NumPy's own is kept, so that the cast below finds what does not fit.
            values = pa.array(values) if isinstance(values, np.ndarray) else pa.array(values, kind)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if _is_text(values.type) != (attribute.type == "string") and len(values) > values.null_count:
            raise TypeError(f"it holds {values.type}")
        return values.cast(kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: not a column of type {attribute.type} ({str(error).splitlines()[0]})") from None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _spread(given: SparseColumn, attribute: Attribute, count: int, where: str) -> pa.Array:
    values = _as_column(given.values, attribute, where)
    try:
        elements: NDArray[Any] = np.asarray(given.elements)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: elements must be a column of integers ({error})") from None
    if elements.shape != (len(values),) or (elements.size and elements.dtype.kind not in "iu"):
        raise InputError(f"{where}: expected one integer element per value ({len(values)})")
    bad = np.flatnonzero((elements < 0) | (elements >= count))
    if bad.size:
        raise InputError(f"{where}: element {elements[bad[0]]} does not exist; accepted: 0 to {count - 1:,}")
    elements = elements.astype(np.int64)
    position = np.full(count, -1, np.int64)
    position[elements] = np.arange(elements.size)
    twice = np.flatnonzero(position[elements] != np.arange(elements.size))
    if twice.size:
        raise InputError(f"{where}: element {elements[twice[0]]} occurs twice")
    return values.take(pa.array(position, mask=position < 0))


def without_defaults(column: pa.Array, attribute: Attribute, static: pa.Array | None) -> pa.Array:
    """Null where a value is the default anyway."""
    same: Any
    if attribute.is_list:
        if attribute.default is None:
            return column
        same = pc.equal(pc.list_value_length(column), 0)
    elif static is not None:
        same = pc.equal(column, static)
    elif attribute.default is None:
        return column
    elif attribute.default != attribute.default:  # NaN
        same = pc.is_nan(column)
    else:
        same = pc.equal(column, pa.scalar(attribute.default, attribute.arrow_type))
    if not pc.any(same).as_py():
        return column
    return pc.if_else(same, pa.scalar(None, column.type), column)
