"""Fixtures of tests of flows on rented machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.streaming.runtime.hosts import Started

Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command of ``goffish stream``; all end with the test."""
    started: list[Started] = []

    def begin(*arguments: str) -> Started:
        one = Started(arguments, tmp_path / f"log-{len(started)}")
        started.append(one)
        return one

    yield begin
    for one in started:
        one.close()
