"""Two small real series with a fixed graph and changing values, in the JSON form of PyTorch Geometric Temporal."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from goffish.errors import FormatError, InputError
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, moment
from goffish.graph import Graph, from_edges
from goffish.graph.guards import path_name
from goffish.temporal.building import SeriesBuild, StoreOptions

_HOUR = 3_600_000_000


@dataclass(frozen=True, eq=False)
class SeriesData:
    """A graph and its instances, ready to be written.

    Attributes
    ----------
    graph : Graph
    schema : SeriesSchema
    num_instances : int
    """

    graph: Graph
    schema: SeriesSchema
    num_instances: int
    _make: Callable[[int], InstanceData] = field(repr=False)

    def instances(self) -> Iterator[InstanceData]:
        """The instances in the order of time."""
        return map(self._make, range(self.num_instances))

    def write(
        self,
        path: str | Path,
        *,
        parts: int = 1,
        method: str = "metis",
        pack: int | Literal["all"] = 10,
        bins: int = 5,
    ) -> SeriesBuild:
        """Write a store with the series."""
        options = StoreOptions(parts, method, pack, bins)
        return options.write(self.graph, path, self.schema, self.instances(), "us")


def read_montevideo_bus(path: str | Path, *, start: Any = "2020-10-01") -> SeriesData:
    """Bus stops of Montevideo and how many passengers got on at each in every hour of October 2020.

    Parameters
    ----------
    path
        ``montevideo-bus.json`` of PyTorch Geometric Temporal, perhaps compressed by gzip.
    start : moment
        Beginning of the first hour; the file does not say it. Times are local, told as if they were UTC.

    Returns
    -------
    SeriesData
        Directed; labels are the numbers of the stops, weights the lengths of the links in metres. Static attributes of
        the vertices: ``longitude`` and ``latitude`` as given (projected, in metres); dynamic: ``inflow``, int64.
    """
    name = path_name(path)
    data = _load(name)
    try:
        stops, links = data["nodes"], data["links"]
        ids = np.array([stop["id"] for stop in stops], np.int64)
        order = np.argsort(ids)
        inflow = np.array([stop["y"] for stop in stops], np.int64)[order].T.copy()
        where = {key: np.array([stop[old] for stop in stops], np.int64)[order] for key, old in _PLACES.items()}
        source, target = (np.array([link[end] for link in links], np.int64) for end in ("source", "target"))
        weights = np.array([link["weight"] for link in links], np.float64)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FormatError(name, None, f"not the bus data of Montevideo ({type(error).__name__}: {error})") from None
    graph = from_edges(source, target, weights, directed=True, isolated=ids, vertex_attributes=where)
    begin = moment(start, "us", "start")
    schema = SeriesSchema(vertex=(Attribute("inflow", "int64", 0),))

    def make(i: int) -> InstanceData:
        return InstanceData(begin + i * _HOUR, begin + (i + 1) * _HOUR, {"vertex.inflow": inflow[i]})

    return SeriesData(graph, schema, inflow.shape[0], make)


_PLACES = {"longitude": "lon", "latitude": "lat"}


def read_chickenpox_hungary(path: str | Path, *, start: Any = "2005-01-03") -> SeriesData:
    """Counties of Hungary, which of them are neighbours, and the cases of chickenpox in every week.

    Parameters
    ----------
    path
        ``chickenpox-hungary.json`` of PyTorch Geometric Temporal, perhaps compressed by gzip.
    start : moment
        Beginning of the first week; the file does not say it. The published counts begin in the week of 3 January 2005.

    Returns
    -------
    SeriesData
        Undirected, without the file's loops; labels are the names of the counties. Dynamic: ``cases``, float64, scaled
        by the publishers to mean 0 and variance 1 in every county.
    """
    name = path_name(path)
    data = _load(name)
    try:
        ids = data["node_ids"]
        labels = pa.array(sorted(ids), pa.string())
        position = np.empty(len(ids), np.int64)
        position[[ids[label] for label in labels.to_pylist()]] = np.arange(len(ids))
        cases = np.array(data["FX"], np.float64)
        cases = cases[:, np.argsort(position)]
        edges = position[np.array(data["edges"], np.int64)]
        if cases.shape[1] != len(ids) or edges.shape[1] != 2:
            raise ValueError(f"{len(ids)} counties, {cases.shape[1]} columns of cases")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FormatError(name, None, f"not the chickenpox data of Hungary ({type(error).__name__}: {error})") from None
    graph = from_edges(edges[:, 0], edges[:, 1], labels=labels)
    begin, week = moment(start, "us", "start"), 7 * 24 * _HOUR
    schema = SeriesSchema(vertex=(Attribute("cases", "float64"),))

    def make(i: int) -> InstanceData:
        return InstanceData(begin + i * week, begin + (i + 1) * week, {"vertex.cases": cases[i]})

    return SeriesData(graph, schema, cases.shape[0], make)


def _load(name: str) -> Any:
    try:
        raw = Path(name).read_bytes()
        return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None
    except (ValueError, EOFError) as error:
        raise FormatError(name, None, f"not a JSON file ({error})") from None
