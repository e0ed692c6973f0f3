"""Stores for jobs of several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.gofs import open_store
from tests.gopher.mpi_jobs import layouts


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mpi")
    for name, layout in layouts().items():
        layout.save(str(folder / name))
    return folder


@pytest.fixture(scope="session")
def store(stores: Path) -> Path:
    return stores / "grid"


@pytest.fixture(scope="session")
def expected(store: Path) -> Any:
    return gf.run("pagerank", open_store(store), supersteps=30).table
