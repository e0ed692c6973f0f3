"""Requests that stores in object storage make: few of them, and only parts of what is not needed whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import goffish as gf
from goffish.errors import StoreError
from goffish.gofs import build_layout, open_store
from goffish.gofs import store as store_module

REQUESTS: list[tuple[str, str]] = []


class Counting(MemoryFileSystem):
    """Object storage, in memory, that notes what is asked of it."""

    protocol = "counting"
    listing = True

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("counting://", "memory://"))

    def info(self, path: str, **given: Any) -> Any:
        REQUESTS.append(("size", path))
        return super().info(path, **given)

    def find(self, path: str, **given: Any) -> Any:
        if not self.listing:
            raise PermissionError("listing is not allowed")
        REQUESTS.append(("list", path))
        before = len(REQUESTS)
        found = super().find(path, **given)
        del REQUESTS[before:]  # one request of object storage
        return found

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **given: Any) -> Any:
        REQUESTS.append(("read", path))
        before = len(REQUESTS)
        found = MemoryFileSystem.cat_file(self, path, start, end, **given)
        del REQUESTS[before:]
        return found

    def _open(self, path: str, mode: str = "rb", **given: Any) -> Any:
        REQUESTS.append(("open", path))
        return super()._open(path, mode, **given)


@pytest.fixture
def stored() -> Iterator[str]:
    """A path of 160 vertices in 16 partitions."""
    fsspec.register_implementation("counting", Counting, clobber=True)
    graph = gf.from_edges(np.arange(159), np.arange(1, 160), np.arange(159.0))
    build_layout(graph, (np.arange(160) // 10).astype(np.int32), 16).save("counting://requests/s")
    REQUESTS.clear()
    yield "counting://requests/s"
    Counting.store.clear()
    Counting.pseudo_dirs.clear()
    Counting.listing = True


def kinds() -> list[str]:
    return [kind for kind, _ in REQUESTS]


def test_opening_is_two_requests(stored: str) -> None:
    """Breaks when opening asks for each file, or a slice costs more requests than it has files."""
    store = open_store(stored)
    assert kinds() == ["read", "list"]
    REQUESTS.clear()
    store.slice(3)
    store.slice(3).column("weight")
    assert kinds() == ["read", "read"]


def test_opening_without_permission_to_list(stored: str) -> None:
    """Breaks when a store whose files can be read, but not listed, cannot be opened."""
    Counting.listing = False
    assert open_store(stored).num_vertices == 160
    assert kinds() == ["read"] + ["size"] * 32


def test_missing_and_short_files_are_found_by_the_listing(stored: str) -> None:
    """Breaks when opening trusts the manifest."""
    name = next(path for path in Counting.store if "p00007/weight" in path)
    whole = Counting.store[name]
    Counting.store[name] = type(whole)(whole.fs, name, whole.getvalue()[:-1])
    with pytest.raises(StoreError, match=r"p00007/weight-.*damaged \(size"):
        open_store(stored)
    del Counting.store[name]
    with pytest.raises(StoreError, match=r"p00007/weight-.*missing; the store is incomplete"):
        open_store(stored)
    with pytest.raises(StoreError, match=r"not a GoFFish store \(no manifest\.json\)"):
        open_store("counting://requests/nothing")


def test_an_ego_graph_reads_few_files(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a vertex is looked for in whole files, or partitions are read that are not reached."""
    monkeypatch.setattr(store_module, "_SMALL", 0)
    store = open_store(stored)
    REQUESTS.clear()
    assert sorted(store.ego(98, radius=3)) == list(range(95, 102))
    assert sorted({path.split("/")[-2] for kind, path in REQUESTS if kind == "open"}) == [f"p{p:05}" for p in range(10)]
    assert sorted(path.split("-")[0] for kind, path in REQUESTS if kind == "read") == [
        f"/requests/s/p{p:05}/{kind}" for p in (9, 10) for kind in ("topology", "weight")
    ]
    REQUESTS.clear()
    store.ego(98, radius=3)
    assert REQUESTS == []
