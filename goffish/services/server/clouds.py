"""Catalogues that jobs and plans may name: those that come along, and the operator's own."""

from __future__ import annotations

from pathlib import Path

from goffish.errors import InputError
from goffish.services.cloud.catalogue import Catalogue, known_catalogues, read_catalogue

#: Of the operator, by the names of their files.
_own: dict[str, Catalogue] = {}


def add_clouds(folder: Path) -> None:
    """Make the catalogues of a folder known for the life of this process.

    Parameters
    ----------
    folder : Path
        Its ``*.yaml`` are read now; files of prices that they name may be given relative to it.

    Raises
    ------
    InputError
        A catalogue that cannot be used, or one with a name that is taken.
    """
    for path in sorted(folder.glob("*.yaml")):
        if path.stem in known_catalogues():
            raise InputError(f"{path}: there is a catalogue {path.stem} already; rename the file")
        _own[path.stem] = _beside(read_catalogue(path), folder)


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
