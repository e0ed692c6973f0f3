"""A pytest plugin: how often networkx's dispatcher called this backend, function by function, as JSON."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from pathlib import Path

import pytest


class _Calls(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("Using backend") and isinstance(record.args, tuple) and record.args[0] == "goffish":
            self.count[str(record.args[1])] += 1


_CALLS = _Calls()


def pytest_configure() -> None:
    logger = logging.getLogger("networkx.utils.backends")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(_CALLS)


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path(os.environ["GOFFISH_DISPATCH_COUNTS"]).write_text(json.dumps(_CALLS.count), encoding="utf-8")
