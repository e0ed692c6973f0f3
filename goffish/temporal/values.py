"""Values of the instances for programs: what a partition reads while a timestep lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.series import Series
from goffish.gopher import SubgraphBatch

#: Gives an attribute of a partition, of all its subgraphs or (the others may be missing) of some: local numbers.
Read = Callable[..., Any]


class SeriesValues:
    """The instances of a stored series, opened once in every process.

    Parameters
    ----------
    series : Series
    names : sequence of str
        Attributes that may be read.
    """

    def __init__(self, series: Series, names: tuple[str, ...]) -> None:
        self.series, self.names = series, names
        self.starts, self.ends = series.starts, series.ends
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], dict[str, tuple[set[int], Any]]] = {}

    def __reduce__(self) -> tuple[Callable[..., SeriesValues], tuple[Any, ...]]:
        return _reopen, (self.series, self.names)

    def bound(self, batch: SubgraphBatch, instance: int, active: NDArray[np.int64]) -> Read:
        """Attributes of a partition at one instance; slices are read when they are asked for.

        Of bins that hold no active subgraph nothing is read.
        """
        partition = batch.partition
        with self._lock:
            for key in [k for k in self._held if k[0] == partition and k[1] != instance]:
                del self._held[key]
            held = self._held.setdefault((partition, instance), {})

        def read(name: str, subgraphs: NDArray[np.int64] | None = None) -> Any:
            place, incoming = name.removeprefix("in_"), name.startswith("in_edge.")
            if place not in self.names:
                declared = ", ".join(self.names) or "none"
                raise InputError(f"attribute {name!r} was not declared by values (declared: {declared})")
            elements = self.series.elements(partition)
            bins = set(elements.bins_of(active if subgraphs is None else subgraphs))
            have, values = held.get(place, (set(), None))
            if values is None or not bins <= have:
                bins |= have
                values = self.series.values(partition, instance, place, sorted(bins))
                held[place] = (bins, values)
            if place.startswith("vertex."):
                return values
            rows = elements.in_edge_row if incoming else elements.edge_row
            return values[rows] if isinstance(values, np.ndarray) else values.take(rows)

        return read


_opened: dict[str, SeriesValues] = {}


def _reopen(series: Series, names: tuple[str, ...]) -> SeriesValues:
    """The values that this process has open already, if they are of the same version of the store."""
    found = _opened.get(series.path)
    if found is None or found.series.fingerprint() != series.fingerprint() or found.names != names:
        _opened.clear()
        found = _opened[series.path] = SeriesValues(series, names)
    return found
