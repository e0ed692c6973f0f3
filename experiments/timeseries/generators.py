"""Random series whose every instance can be made alone: latencies of edges, and memes that spread as an epidemic.

See docs/specs/time-series.md, section 7. Nothing is drawn in an order: each number is a hash of the seed and of what it
is for (edge and instance, or arc and timestep), by the finaliser of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood,
"Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, SparseColumn
from goffish.graph import Graph
from goffish.graph.guards import expect, whole_number

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
#: Which sort of numbers is drawn: different ones never share a hash.
_LATENCY, _SEED, _CONTACT, _LENGTH, _BACKGROUND = range(5)
_LARGEST = 2**32 - 1

LATENCY = SeriesSchema(edge=(Attribute("latency", "int64"),))
MEMES = SeriesSchema(vertex=(Attribute("memes", "list<string>", ()),))


def splitmix(state: Any) -> NDArray[np.uint64]:
    """The output of SplitMix64 at each state (unsigned, modulo 2^64)."""
    z = np.atleast_1d(np.asarray(state).astype(np.uint64)) + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def hashed(seed: int, *keys: Any) -> NDArray[np.uint64]:
    """A hash of the seed and of the keys (whole numbers or arrays of one length), uniform over 64 bits."""
    state = splitmix(np.uint64(seed % 2**64))
    for key in keys:
        state = splitmix(state + np.asarray(key).astype(np.uint64))
    return state


def _below(hashes: NDArray[np.uint64], bound: int) -> NDArray[np.int64]:
    """Uniform in 0 … bound - 1; the bias is less than bound / 2^32."""
    return (((hashes >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def _unit(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform in [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def latencies(edges: int | NDArray[np.integer[Any]], instance: int, high: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Latencies of edges in one instance, uniform over the whole numbers from 1 to `high`.

    Parameters
    ----------
    edges : int or int array
        How many edges (numbered from 0), or their numbers.
    instance : int
    high : int
        At most 2^32 - 1.

    Returns
    -------
    int64 array, one for each edge; those of an edge and instance do not depend on which others are asked for.
    """
    numbers = np.arange(edges) if isinstance(edges, int | np.integer) else edges
    return 1 + _below(hashed(seed, _LATENCY, instance, numbers), _bound(high, "high"))


def latency_instances(
    num_edges: int, instances: int, *, high: int, window: int, seed: int = 0, start: int = 0
) -> Iterator[InstanceData]:
    """Instances of length `window` with random latencies (schema `LATENCY`), one after the other."""
    window, instances = whole_number(window, "window"), whole_number(instances, "instances", 0)
    for i in range(instances):
        values = {"edge.latency": latencies(num_edges, i, high, seed=seed)}
        yield InstanceData(start + i * window, start + (i + 1) * window, values)


@dataclass(frozen=True, eq=False)
class Epidemic:
    """Who is infectious when.

    Attributes
    ----------
    infected, recovered : int64, shape (n,)
        Vertex v is infectious in the timesteps ``infected[v] <= t < recovered[v]``; both -1 if it never is.
    """

    infected: NDArray[np.int64]
    recovered: NDArray[np.int64]

    def infectious(self, timestep: int) -> NDArray[np.bool_]:
        """Which vertices are infectious in a timestep."""
        holds: NDArray[np.bool_] = (self.infected >= 0) & (self.infected <= timestep) & (timestep < self.recovered)
        return holds


def spread(
    graph: Graph,
    instances: int,
    *,
    seeds: int = 1,
    probability: float = 0.3,
    duration: float = 3,
    geometric: bool = False,
    seed: int = 0,
) -> Epidemic:
    """Spread an epidemic (susceptible, infectious, recovered) over a graph.

    Parameters
    ----------
    graph : Graph
    instances : int
        Timesteps.
    seeds : int
        Vertices that are infectious from timestep 0 on, chosen at random; at most all.
    probability : float
        That an infectious vertex infects a susceptible out-neighbour in one timestep.
    duration : int or float
        For how many timesteps a vertex is infectious: exactly, or on average where `geometric`.
    geometric : bool
        Geometrically distributed durations, at least 1.

    Returns
    -------
    Epidemic
        Who is infected by a vertex that is infectious in t - 1 is infectious from t on. So tracking the meme colours
        every vertex in the timestep of its infection, and none else (docs/specs/time-series.md, section 7).
    """
    expect(graph, Graph, "graph", "expected a goffish Graph")
    instances, n = whole_number(instances, "instances", 0), graph.num_vertices
    if not 0 <= probability <= 1:
        raise InputError(f"probability={probability}: give a number between 0 and 1")
    if not duration >= 1 or (not geometric and duration != int(duration)):
        raise InputError(
            f"duration={duration}: give a whole number of timesteps, or geometric=True and a mean from 1 on"
        )
    lengths = _durations(n, duration, geometric, seed)
    infected, recovered = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    order = np.argsort(hashed(seed, _SEED, np.arange(n)), kind="stable")
    new = order[: whole_number(seeds, "seeds", 0)]
    threshold = np.uint64(min(int(probability * 2.0**53), 2**53))
    for t in range(instances):
        infected[new], recovered[new] = t, t + lengths[new]
        spreaders = np.flatnonzero((infected >= 0) & (t < recovered))
        widths = graph.out_degrees[spreaders]
        before = np.cumsum(widths) - widths
        arcs = np.repeat(graph.offsets[spreaders] - before, widths) + np.arange(int(widths.sum()))
        arcs = arcs[infected[graph.targets[arcs]] < 0]
        caught = (hashed(seed, _CONTACT, t, arcs) >> np.uint64(11)) < threshold
        new = np.unique(graph.targets[arcs[caught]])
    return Epidemic(infected, recovered)


def _durations(n: int, duration: float, geometric: bool, seed: int) -> NDArray[np.int64]:
    if not geometric or duration == 1:
        return np.full(n, int(duration), np.int64)
    draws = _unit(hashed(seed, _LENGTH, np.arange(n)))
    lengths: NDArray[np.int64] = 1 + np.floor(np.log1p(-draws) / np.log1p(-1 / duration)).astype(np.int64)
    return lengths


def meme_instances(
    epidemic: Epidemic,
    instances: int,
    *,
    meme: str = "mu",
    background: int = 3,
    share: float = 0.02,
    window: int = 1,
    seed: int = 0,
    start: int = 0,
) -> Iterator[InstanceData]:
    """Instances of length `window` with the memes of every vertex (schema `MEMES`), one after the other.

    Parameters
    ----------
    epidemic : Epidemic
        A vertex holds `meme` exactly while it is infectious.
    background, share
        Number of other memes (``background 0`` …), and the share of the vertices that hold each of them in an instance,
        drawn anew every time.
    """
    n = epidemic.infected.size
    window, background = whole_number(window, "window"), whole_number(background, "background", 0)
    names = pa.array([*(f"background {j}" for j in range(background)), meme])
    threshold = np.uint64(min(max(int(share * 2.0**53), 0), 2**53))
    for t in range(whole_number(instances, "instances", 0)):
        holders = [
            np.flatnonzero((hashed(seed, _BACKGROUND, t, j, np.arange(n)) >> np.uint64(11)) < threshold)
            for j in range(background)
        ]
        holders.append(np.flatnonzero(epidemic.infectious(t)))
        vertices = np.concatenate(holders)
        which = np.repeat(np.arange(background + 1), [h.size for h in holders])
        order = np.argsort(vertices, kind="stable")
        some, counts = np.unique(vertices, return_counts=True)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        held = pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(which[order])))
        column = SparseColumn(some, held)
        yield InstanceData(start + t * window, start + (t + 1) * window, {"vertex.memes": column})


def _bound(value: int, name: str) -> int:
    number = whole_number(value, name)
    if number > _LARGEST:
        raise InputError(f"{name}={number}: at most {_LARGEST:,}")
    return number
