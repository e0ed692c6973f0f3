"""Catalogues that jobs and plans may name: those that come along, and the operator's own."""

from __future__ import annotations

from pathlib import Path

from goffish.cloud.catalogue import Catalogue, known_catalogues, read_catalogue
from goffish.cloud.spot_market import read_trace
from goffish.errors import InputError

#: Of the operator, by the names of their files.
_own: dict[str, Catalogue] = {}


def add_clouds(folder: Path) -> None:
    """Make the catalogues of a folder known for the life of this process.

    Parameters
    ----------
    folder : Path
        Its ``*.yaml`` and the price files that they name are read now; price files may be relative to the folder.

    Raises
    ------
    InputError
        If a catalogue or one of its price files cannot be used, or its name is taken.
    """
    for path in sorted(folder.glob("*.yaml")):
        if path.stem in known_catalogues():
            raise InputError(f"{path}: there is a catalogue {path.stem} already; rename the file")
        catalogue = _beside(read_catalogue(path), folder)
        for one in catalogue.classes:
            if one.prices is not None:
                read_trace(one.prices)
        _own[path.stem] = catalogue


def cloud_names() -> list[str]:
    """All that may be named."""
    return [*known_catalogues(), *_own]


def cloud_by_name(name: str) -> Catalogue:
    """A catalogue by its name; never a file that is not known.

    Raises
    ------
    InputError
    """
    if name in _own:
        return _own[name]
    if name not in known_catalogues():
        raise InputError(f"nothing called {name[:80]!r}; there are: {', '.join(cloud_names())}")
    return read_catalogue(name)


def _beside(catalogue: Catalogue, folder: Path) -> Catalogue:
    """The same with absolute paths of the files of prices that lie in the folder."""
    classes = []
    for one in catalogue.classes:
        path = None if one.prices is None else folder / one.prices
        if path is not None and path.is_file():
            one = one.model_copy(update={"prices": str(path.absolute())})  # noqa: PLW2901
        classes.append(one)
    return catalogue.with_classes(tuple(classes))
