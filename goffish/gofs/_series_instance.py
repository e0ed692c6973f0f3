"""One instance of a time series over the whole graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from goffish.errors import InputError
from goffish.gofs._series_model import Place

if TYPE_CHECKING:
    from goffish.gofs.series import Series


@dataclass(frozen=True, eq=False)
class Instance:
    """One instance of a series over the whole graph; nothing is read before an attribute is asked for.

    Attributes
    ----------
    number : int
    start, end : int
        It covers ``start <= t < end``, on the axis of the series.
    """

    number: int
    start: int
    end: int
    _series: Series = field(repr=False)
    _chosen: frozenset[str] = field(repr=False)

    def vertex(self, name: str) -> pa.Array:
        """The attribute of all vertices, in the order of reading; null where an absent vertex has no value."""
        return self._whole("vertex", name)

    def edge(self, name: str) -> pa.Array:
        """The attribute of all edges, in the order of `Graph.edge_columns` (or of the edge attributes)."""
        return self._whole("edge", name)

    def _whole(self, place: Place, name: str) -> pa.Array:
        full = f"{place}.{name}"
        kind = self._series.schema[full].arrow_type
        if full not in self._chosen:
            raise InputError(f"{full} was not asked for; add it to attributes=[{', '.join(sorted(self._chosen))}]")
        parts, numbers = [pa.array([], kind)], [np.empty(0, np.int64)]
        for partition in range(self._series.num_partitions):
            parts.append(self._series._column(partition, self.number, full, None).to_arrow(kind))
            if place == "vertex":
                numbers.append(self._series.graph.slice(partition).vertex_ids.astype(np.int64))
            else:
                numbers.append(self._series.elements(partition).edge_id)
        number = np.concatenate(numbers)
        order = np.empty(int(number.max(initial=-1)) + 1, np.int64)
        order[number] = np.arange(number.size)
        return cast(pa.Array, pa.concat_arrays(parts).take(pa.array(order)))
