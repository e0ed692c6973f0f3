from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.store.databases import KINDS, new_database, new_file, postgres


@pytest.fixture(scope="package")
def postgres_server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database, once of each kind."""
    if request.param == "sqlite":
        return new_file(tmp_path)
    return new_database(request.getfixturevalue("postgres_server"))
