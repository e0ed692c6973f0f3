"""Writing and appending: whole or not at all, whatever happens; one group in memory.

See docs/specs/time-series.md, sections 5.1, 7.
"""

from __future__ import annotations

import itertools
import pickle
import re
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish
from goffish.errors import InputError, StoreError
from goffish.gofs import verify_store
from goffish.gofs.files import _LocalFolder, open_folder
from goffish.gofs.series import (
    Attribute,
    InstanceData,
    SeriesSchema,
    append_instances,
    open_series,
    write_series,
)
from tests.cases import grid
from tests.temporal.fixtures import SeriesCase, check_all_values, random_series, tiny


@pytest.mark.slow
@settings(max_examples=15)
@given(
    case=random_series(largest=12),
    cuts=st.lists(st.integers(0, 13), max_size=3),
    pack=st.sampled_from((1, 3, 10)),
    bins=st.sampled_from((1, 3)),
)
def test_append_gives_what_writing_at_once_gives(case: SeriesCase, cuts: list[int], pack: int, bins: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, other = Path(folder) / "s", Path(folder) / "t"
        limits = sorted({0, *(min(c, len(case.instances)) for c in cuts), len(case.instances)})
        first = SeriesCase(case.graph, case.layout, case.schema, case.instances[: limits[min(1, len(limits) - 1)]])
        first.write(path, pack=pack, bins=bins)
        for low, high in itertools.pairwise(limits[1:]):
            assert append_instances(path, case.instances[low:high]) == high
        case.write(other, pack=pack, bins=bins)
        assert open_folder(path).list() == open_folder(other).list(), "the same content has the same names"


_KILLED = """
import itertools, os, shutil, signal, sys
from goffish.gofs import files
from goffish.gofs.series import append_instances
from tests.temporal.fixtures import tiny
from tests.temporal.test_series_writing import longer

def work(path, how):
    if how == "append":
        append_instances(path, longer().instances[3:5])
    else:
        longer().write(path, pack=2)

def killed_at(step):
    "Every file is there in part, then whole; every old one is removed: at one of these moments the process is killed."
    moments = itertools.count(1)
    def reached():
        if next(moments) == step:
            os.kill(os.getpid(), signal.SIGKILL)
    sync, write, delete = os.fsync, files._LocalFolder.write, files._LocalFolder.delete
    os.fsync = lambda descriptor: (reached(), sync(descriptor))
    files._LocalFolder.write = lambda self, *given: (write(self, *given), reached())
    files._LocalFolder.delete = lambda self, *given: (reached(), delete(self, *given))

old, folder = sys.argv[1:]
shutil.copytree(old, f"{folder}/warm")
work(f"{folder}/warm", "append")  # loads what every child needs
for how in ("append", "rewrite"):
    for step in itertools.count(1):
        path = f"{folder}/{how}/{step:02d}"
        shutil.copytree(old, path)
        child = os.fork()
        if child == 0:
            killed_at(step)
            work(path, how)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            break
"""


def longer() -> SeriesCase:
    """Tiny, and three more instances."""
    case = tiny()
    more = [InstanceData(15 + i, 16 + i, {"edge.latency": np.array([9, 8, 7, 6]) - i}) for i in range(3)]
    return SeriesCase(case.graph, case.layout, case.schema, [*case.instances, *more])


def first(count: int) -> SeriesCase:
    case = longer()
    return SeriesCase(case.graph, case.layout, case.schema, case.instances[:count])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of a store whose writers were killed, one moment later each time; the last ones came to the end."""
    folder = tmp_path_factory.mktemp("killed")
    first(3).write(folder / "old", pack=2)
    done = subprocess.run([sys.executable, "-c", _KILLED, folder / "old", folder], check=False)
    assert done.returncode == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("how", "count"), [("append", 5), ("rewrite", 6)])
def test_killed_at_any_moment_the_series_is_the_old_or_the_new_one(
    killed: Path, tmp_path: Path, how: str, count: int
) -> None:
    """SIGKILL (§7): what is there is whole, and the next append removes what the killed process left."""
    found, whole = [], {}
    last = InstanceData(90, 91, {"edge.latency": np.array([1, 2, 3, 4])})
    for number in (3, count):
        case = first(number)
        both = SeriesCase(case.graph, case.layout, case.schema, [*case.instances, last])
        both.write(tmp_path / f"{number}", pack=2)
        whole[number] = open_folder(tmp_path / f"{number}").list()
    for path in sorted((killed / how).iterdir()):
        series = open_series(path)
        found.append(len(series))
        check_all_values(first(len(series)), series)
        assert verify_store(path) > 0
        append_instances(path, [last])
        assert open_folder(path).list() == whole[len(series)]
    assert found == sorted(found) and set(found) == {3, count}
    # four slices (two of a group that was short), the facts and the manifest twice each, and what is obsolete
    assert len(found) >= 2 * 6 + 3


def test_interrupted_while_the_manifest_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C right after the new manifest is there: none of the files that it names is taken away."""
    real = _LocalFolder.write

    def write(self: _LocalFolder, name: str, data: Any) -> None:
        real(self, name, data)
        if name == "manifest.json":
            raise KeyboardInterrupt

    first(3).write(tmp_path / "s", pack=2)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(_LocalFolder, "write", write)
        with pytest.raises(KeyboardInterrupt):
            append_instances(tmp_path / "s", longer().instances[3:])
    check_all_values(longer(), open_series(tmp_path / "s"))


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damaged_slice_is_named(tmp_path: Path, damage: str) -> None:
    case = tiny()
    case.write(tmp_path / "s")
    name = next(p for p in sorted((tmp_path / "s").glob("p00001/series.edge.latency*")))
    data = bytearray(name.read_bytes())
    data[len(data) // 2] ^= 4
    if damage == "gone":
        name.unlink()
    else:
        name.write_bytes(data if damage == "flip" else data[:-7])
    series = open_series(tmp_path / "s")
    assert series.values(0, 0, "edge.latency").size
    for _ in range(2):
        with pytest.raises(StoreError, match=re.escape(name.name)):
            series.values(1, 0, "edge.latency")


def test_series_onto_its_own_store_and_without(tmp_path: Path) -> None:
    case = tiny()
    plain = case.layout.save(tmp_path / "s")
    with pytest.raises(StoreError, match="the store has no time series"):
        open_series(tmp_path / "s")
    with pytest.raises(StoreError, match="the store has no time series"):
        append_instances(tmp_path / "s", [])
    with pytest.raises(InputError, match="only stores have instances"):
        case.layout.instances()
    template = set(open_folder(tmp_path / "s").list())
    write_series(plain, tmp_path / "s", case.schema, case.instances, unit="1")
    assert template < set(open_folder(tmp_path / "s").list())
    check_all_values(case, open_series(tmp_path / "s"))
    goffish.open(tmp_path / "s").save(tmp_path / "t")
    check_all_values(case, open_series(tmp_path / "t"))
    with pytest.raises(StoreError, match="was replaced after it was opened"):
        write_series(plain, tmp_path / "s", case.schema, case.instances, unit="1")


def test_remote_folder_and_pickle(tmp_path: Path) -> None:
    case = tiny()
    uri = f"memory://{tmp_path.name}"
    write_series(case.layout, uri, case.schema, case.instances[:2], unit="1", pack=2)
    append_instances(uri, case.instances[2:])
    series = pickle.loads(pickle.dumps(open_series(uri, cache_slots=3)))
    check_all_values(case, series)


_PEAKS = """
import sys, tracemalloc
import numpy as np, pyarrow as pa
from goffish.gofs import build_layout
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, open_series, write_series
from tests.cases import grid, grid_blocks

graph = grid(100, 60)
layout = build_layout(graph, grid_blocks(100, 60), 12)
schema = SeriesSchema(edge=(Attribute("w", "int64"),), vertex=(Attribute("s", "string"),))
texts = pa.array([f"some text {i}" for i in range(6000)])

def write(n):
    data = (InstanceData(i, i + 1, {"edge.w": np.arange(graph.num_edges) * i, "vertex.s": texts}) for i in range(n))
    write_series(layout, f"{sys.argv[1]}/{n}", schema, data, pack=5, unit="1")

def read(n):
    series = open_series(f"{sys.argv[1]}/{n}", cache_bytes=0, prefetch=False)
    for i in range(n):
        for p in range(12):
            for name in schema:
                series.values(p, i, name)

write(1)  # what is loaded or compiled once is not counted
read(1)
pools = []
for n in (10, 60):
    for work in (write, read):
        pools.append(pa.proxy_memory_pool(pa.system_memory_pool()))  # kept: they must outlive what they gave
        pa.set_memory_pool(pools[-1])
        tracemalloc.start()
        work(n)
        print(tracemalloc.get_traced_memory()[1] + pools[-1].max_memory())
        tracemalloc.stop()
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_instances(tmp_path: Path) -> None:
    """R5, of Python and of Arrow, in a process where nobody else allocates; the manifest alone grows."""
    done = subprocess.run([sys.executable, "-c", _PEAKS, tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    write_few, read_few, write_many, read_many = map(int, done.stdout.split())
    manifest = 8 * (tmp_path / "60" / "manifest.json").stat().st_size  # text, parsed and copied
    assert write_many < 1.2 * write_few + manifest
    assert read_many < 1.2 * read_few + manifest
    # so a writer or reader that held all of the edges' numbers would be found
    assert 1.2 * max(write_few, read_few) + manifest < 60 * 8 * 11_840


def test_writer_holds_one_group(tmp_path: Path) -> None:
    """When an instance is asked for, those of its group are held and no other."""
    graph = grid(10, 10)
    made: list[weakref.ref[Any]] = []
    held = []

    def instances() -> Iterator[InstanceData]:
        for i in range(23):
            held.append(sum(one() is not None for one in made))
            numbers = np.arange(graph.num_edges)
            made.append(weakref.ref(numbers))
            data = InstanceData(i, i + 1, {"edge.w": numbers})
            del numbers
            yield data
            del data

    schema = SeriesSchema(edge=(Attribute("w", "int64"),))
    write_series(graph, tmp_path / "s", schema, instances(), pack=5, unit="1")
    assert held == [i % 5 for i in range(23)]
