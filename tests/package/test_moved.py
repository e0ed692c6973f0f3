"""Modules under their names of before the move: the same modules, with a warning."""

from __future__ import annotations

import importlib
import sys

import pytest

from goffish.moved import MOVED, current_name


@pytest.mark.parametrize("before", MOVED)
def test_every_moved_name_is_the_module_of_today(before: str) -> None:
    sys.modules.pop(before, None)
    with pytest.warns(DeprecationWarning, match=rf"^{before} is now {MOVED[before]}$"):
        module = importlib.import_module(before)
    assert module is importlib.import_module(MOVED[before])
    assert module.__name__ == MOVED[before] and module.__spec__.name == MOVED[before]


def test_modules_inside_are_not_loaded_twice() -> None:
    with pytest.warns(DeprecationWarning, match=r"goffish\.timeseries\.build is now goffish\.temporal\.build"):
        from goffish.timeseries.build import build_from_events
    from goffish.temporal.build import build_from_events as today

    assert build_from_events is today
    assert current_name("goffish.services.spotless") is None and current_name("goffish.temporal") is None
