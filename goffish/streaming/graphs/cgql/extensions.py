"""Patterns of other packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from goffish.streaming.graphs.cgql.syntax import CgqlError, Position

#: Group of the entry points: by the name of a pattern, its class.
GROUP = "goffish.cgql.patterns"


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """Return the names of the patterns of other packages."""
    return sorted(_entries())


def pattern_class(name: str, at: Position) -> Any:
    """Return the class of a pattern of another package; ``None`` if there is none.

    Parameters
    ----------
    name : str
    at : (int, int)
        Where a query names it.

    Raises
    ------
    CgqlError
        It cannot be loaded.
    """
    entry = _entries().get(name)
    if entry is None:
        return None
    try:
        found = entry.load()
    except Exception as error:  # whatever the package raises
        what = f"{type(error).__name__}: {error}"
        raise CgqlError(f"pattern {name}: {entry.value} cannot be loaded ({what})", at) from error
    if not isinstance(found, type) or not hasattr(found, "arguments") or not hasattr(found, "statuses"):
        raise CgqlError(f"pattern {name}: {entry.value} is not a subclass of goffish.stream.CustomPattern", at)
    return found
