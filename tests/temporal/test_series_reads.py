"""What is read, and how often: the cost model of docs/specs/time-series.md, sections 5.3, 7."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from goffish.errors import InputError, StoreError
from goffish.gofs import build_layout
from goffish.gofs.files import _LocalFolder
from goffish.gofs.series import Attribute, InstanceData, Series, SeriesSchema, open_series, write_series
from goffish.gofs.series.cache import SliceCache, SliceKey
from goffish.gofs.series.slices import Block
from goffish.graph import Graph, from_edges
from tests.cases import grid, grid_blocks

N, SUBGRAPHS = 50, 200


def pieces() -> Graph:
    """200 components of 2 to 11 vertices."""
    sizes = 2 + np.arange(SUBGRAPHS) * 7 % 10
    first = np.cumsum(sizes) - sizes
    source = np.concatenate([f + np.arange(s - 1) for f, s in zip(first, sizes, strict=True)])
    return from_edges(source, source + 1)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    """The series of the table, written for every p and b in it."""
    graph, folder = pieces(), tmp_path_factory.mktemp("reads")
    found = {}
    for pack, bins in ((1, 5), (1, 20), (10, 5), (10, 20), (50, 20)):
        data = (InstanceData(i, i + 1, {"vertex.x": np.arange(graph.num_vertices) + i}) for i in range(N))
        # the edges have no values, and their slices are there all the same
        edges = (Attribute("y", "int64"),) if pack == 10 else ()
        schema = SeriesSchema(vertex=(Attribute("x", "int64"),), edge=edges)
        write_series(graph, folder / f"{pack}-{bins}", schema, data, pack=pack, bins=bins, unit="1")
        found[pack, bins] = folder / f"{pack}-{bins}"
    return found


def order_of(series: Series, order: str) -> Iterator[tuple[int, int]]:
    """Instances and subgraphs of a scan in the order of time."""
    rng = np.random.default_rng(1)
    by_bin = np.argsort(series.elements(0).bin_of_subgraph, kind="stable")
    for instance in range(N):
        for subgraph in by_bin if order == "bins" else rng.permutation(SUBGRAPHS):
            yield instance, int(subgraph)


def simulated(accesses: list[tuple[int, int]], slots: int) -> int:
    """Misses of a plain LRU cache."""
    kept: OrderedDict[tuple[int, int], None] = OrderedDict()
    misses = 0
    for key in accesses:
        misses += key not in kept
        kept[key] = None
        kept.move_to_end(key)
        if len(kept) > slots:
            kept.popitem(last=False)
    return misses


TABLE = {
    (1, 5): (10_000, 250, 250, 250),
    (1, 20): (10_000, 1000, None, 1000),
    (10, 5): (10_000, 25, 25, 25),
    (10, 20): (10_000, 1000, None, 100),
    (50, 20): (10_000, 1000, None, 20),
}
ABOUT = {(1, 20): 3900, (10, 20): 3500, (50, 20): 3500}


@pytest.mark.slow
@pytest.mark.parametrize(("pack", "bins"), TABLE)
def test_table_of_reads(stores: dict[tuple[int, int], Path], pack: int, bins: int) -> None:
    """The table of §5.3: the numbers exactly; the random order against a simulated cache and the table's estimate."""
    for slots, order, reads in zip(
        (0, 14, 14, 10**6), ("bins", "bins", "random", "random"), TABLE[pack, bins], strict=True
    ):
        series = open_series(stores[pack, bins], cache_slots=slots)
        if slots == 0:
            # every access is a read: two hundred of the ten thousand show it
            for _, subgraph in itertools.islice(order_of(series, order), SUBGRAPHS):
                series.values(0, N - 1, "vertex.x", bins=series.elements(0).bins_of([subgraph]))
            assert series.counters().slices_read * N == reads
            continue
        accesses, bin_of = list(order_of(series, order)), series.elements(0).bin_of_subgraph
        slices = [(i // pack, int(bin_of[s])) for i, s in accesses]
        if order == "bins":
            for instance, subgraph in accesses:
                series.values(0, instance, "vertex.x", bins=[bin_of[subgraph]])
            counters = series.counters()
        else:  # thousands of reads: of the cache alone, without files
            cache = SliceCache(lambda _: Block(np.zeros(1), 1), lambda _: 1, 0, slots)
            for group, number in slices:
                cache.get(SliceKey(0, "vertex.x", group, number))
            counters = cache.counters()
        assert counters.queries == 10_000
        assert counters.slices_read == simulated(slices, slots)
        assert counters.hits == counters.queries - counters.slices_read
        if reads is None:
            assert counters.slices_read == pytest.approx(ABOUT[pack, bins], rel=0.1)
        else:
            assert counters.slices_read == reads


@pytest.mark.parametrize(("pack", "bins"), TABLE)
@pytest.mark.parametrize("prefetch", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_default_cache_reads_every_slice_once(
    stores: dict[tuple[int, int], Path], pack: int, bins: int, prefetch: bool
) -> None:
    """ceil(n/p) * b reads (R4), whatever the bound, forwards and backwards, with prefetch and without."""
    for cache_bytes, backwards in ((0, False), (0, True), (2**28, pack == 10)):
        with open_series(stores[pack, bins], cache_bytes=cache_bytes, prefetch=prefetch) as series:
            for i in reversed(range(N)) if backwards else range(N):
                assert series.values(0, i, "vertex.x")[0] == i
            counters = series.counters()
            assert counters.slices_read == -(-N // pack) * bins
            size = sum(p.stat().st_size for p in stores[pack, bins].glob("p*/series.vertex.x.*"))
            assert counters.bytes_read == size
            series.close()
            most = counters.slices_read - bins if prefetch else 0
            assert series.counters().prefetched_slices <= most, "nothing is brought twice, whatever the bound"


def test_projection_and_laziness(stores: dict[tuple[int, int], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read before a value is asked for, and then only slices of the attribute and the bin."""
    read: list[str] = []
    real = _LocalFolder.read

    def spy(self: _LocalFolder, name: str) -> object:
        read.append(name.split("-", maxsplit=1)[0])
        return real(self, name)

    monkeypatch.setattr(_LocalFolder, "read", spy)
    series = open_series(stores[10, 20], prefetch=False)
    instances = list(series.instances(10, 30))
    assert [n for n in read if n != "manifest.json"] == ["p00000/series"]
    assert [i.number for i in instances] == list(range(10, 30))
    subgraph = 17
    chosen = series.elements(0).bins_of([subgraph])[0]
    read.clear()
    series.values(0, 12, "vertex.x", bins=[chosen])
    series.values(0, 19, "vertex.x", bins=[chosen])
    assert read == [f"p00000/series.vertex.x.g00001.b{chosen:05d}"]
    before = series.counters()
    with pytest.raises(InputError, match=r"has no edge\.y, and the attribute has no default"):
        instances[0].edge("y")
    assert (series.counters() - before).slices_read == 20, "those of edge.y in one group"


def test_prefetch_brings_the_next_group_of_what_was_asked(stores: dict[tuple[int, int], Path]) -> None:
    series = open_series(stores[10, 20])
    series.values(0, 0, "vertex.x", bins=[3, 4])
    series.values(0, 7, "vertex.x", bins=[3])
    assert series.counters().prefetched_slices == 0
    series.values(0, 8, "vertex.x", bins=[3])
    series._cache._pool.shutdown()  # type: ignore[union-attr]
    series._cache._pool = None
    before = series.counters()
    assert (before.prefetched_slices, before.slices_read) == (1, 2)
    series.values(0, 10, "vertex.x", bins=[3])
    after = series.counters() - before
    assert (after.prefetched_slices, after.slices_read, after.hits) == (0, 1, 0)
    assert after.bytes_read == before.prefetched_bytes
    series.close()


def test_damaged_slice_is_told_to_the_caller_not_to_the_background(tmp_path: Path) -> None:
    schema = SeriesSchema(vertex=(Attribute("x", "int64"),))
    data = [InstanceData(i, i + 1, {"vertex.x": np.arange(9) + i}) for i in range(4)]
    write_series(grid(3, 3), tmp_path / "s", schema, data, pack=2, bins=1, unit="1")
    (damaged,) = (tmp_path / "s").glob("p*/series.vertex.x.g00001*")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    series = open_series(tmp_path / "s")
    series.values(0, 0, "vertex.x")
    series.values(0, 1, "vertex.x")
    for _ in range(2):
        with pytest.raises(StoreError, match=damaged.name):
            series.values(0, 2, "vertex.x")
    damaged.write_bytes(whole)
    assert series.values(0, 2, "vertex.x").tolist() == list(range(2, 11)), "the damage is not remembered"
    series.close()


def test_threads_read_every_slice_once(tmp_path: Path) -> None:
    """Eight threads over all partitions and instances: the same values and counts as one thread."""
    graph = grid(40, 30)
    layout = build_layout(graph, grid_blocks(40, 30), 12)
    schema = SeriesSchema(vertex=(Attribute("x", "int64"),), edge=(Attribute("y", "float64"),))
    data = [
        InstanceData(i, i + 1, {"vertex.x": np.arange(1200) * i, "edge.y": np.arange(graph.num_edges) + i / 2})
        for i in range(20)
    ]
    write_series(layout, tmp_path / "s", schema, data, pack=3, bins=1, unit="1")
    series = open_series(tmp_path / "s")
    barrier = threading.Barrier(8)

    def scan(seed: int) -> None:
        barrier.wait()
        tasks = list(itertools.product(range(20), range(12), schema))
        for at in np.random.default_rng(seed).permutation(len(tasks)).tolist():
            instance, partition, name = tasks[at]
            got = series.values(partition, instance, name)
            part = layout.slice(partition)
            rows = part.vertex_ids if name == "vertex.x" else series.elements(partition).edge_id
            assert np.array_equal(got, data[instance].values[name][rows])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(scan, range(8)))
    assert series.counters().slices_read == 12 * 7 * 2
    assert series.counters().queries == 8 * 20 * 12 * 2
    series.close()


def test_cache_is_bounded_in_bytes(tmp_path: Path) -> None:
    """Never more than the bound, except for the current group; a bound for two groups keeps two."""
    schema = SeriesSchema(vertex=(Attribute("x", "int64"),))
    graph = grid(100, 10)
    data = [InstanceData(i, i + 1, {"vertex.x": np.arange(1000) + i}) for i in range(40)]
    write_series(graph, tmp_path / "s", schema, data, pack=4, bins=1, unit="1")
    group = 4 * 1000 * 8
    for bound, again in ((0, 1), (2 * group, 0), (10 * group, 0)):
        series = open_series(tmp_path / "s", cache_bytes=bound, prefetch=False)
        for i in range(40):
            series.values(0, i, "vertex.x")
            assert series._cache._held <= max(bound, group)
        before = series.counters().slices_read
        series.values(0, 35, "vertex.x")
        assert series.counters().slices_read - before == again
    with pytest.raises(InputError, match="cache_bytes=-1: must be an integer of at least 0"):
        open_series(tmp_path / "s", cache_bytes=-1)
    with pytest.raises(InputError, match="cache_slots='x'"):
        open_series(tmp_path / "s", cache_slots="x")  # type: ignore[arg-type]


def test_unknown_places(stores: dict[tuple[int, int], Path]) -> None:
    series = open_series(stores[10, 5])
    with pytest.raises(InputError, match=r"no attribute 'vertex.z' in this series; available: vertex.x, edge.y"):
        series.values(0, 0, "vertex.z")
    with pytest.raises(InputError, match="instance 50 does not exist; the series has 50"):
        series.values(0, 50, "vertex.x")
    with pytest.raises(InputError, match="partition 1 does not exist; the graph has 1"):
        series.values(1, 0, "vertex.x")
