"""networkx warns whenever it uses a cached conversion; here that is what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx
import pytest


@pytest.fixture(autouse=True, scope="session")
def quiet_cache() -> Iterator[None]:
    nx.config.warnings_to_ignore.add("cache")
    yield
    nx.config.warnings_to_ignore.discard("cache")
