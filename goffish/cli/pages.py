"""Pages that a run can write beside its table, and the options that algorithms without an engine do not have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.gopher import Result

#: Help of the option ``--html``, for the algorithms that have a page.
PAGES = {"landscape": "Write a page to zoom from communities to members: FILE.html, needs nothing else."}

#: What algorithms without an engine are given for the options of the engine that they do not offer.
NO_ENGINE: dict[str, Any] = {
    "engine": "auto", "parts": None, "method": None, "units": None, "max_supersteps": None, "checkpoint_dir": None,
    "checkpoint_every": None, "resume": False, "stats": False, "stats_file": None,
}  # fmt: skip


def check_page_target(target: str, path: str) -> None:
    """Refuse a page that could not be written in the end, or would replace the graph."""
    from goffish.plot.landscape import check_page

    check_page(target)
    place = local_path(target)
    if place.exists() and Path(path).exists() and place.samefile(path):
        raise InputError(f"{target}: is the graph itself; write the page to another file")


def write_page(result: Result, target: str, path: str) -> str:
    """Write the page of a result on the graph at `path`."""
    from goffish.algorithms.landscape.levels import CommunityLandscape
    from goffish.plot.landscape import write_page as write

    if not isinstance(result, CommunityLandscape):
        raise InputError(f"{target}: there is no page of {result.algorithm}")
    return str(write(result, target, name=Path(path.rstrip("/")).name or path))
