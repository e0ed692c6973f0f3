"""The manifest of a reservoir: its settings, its pools and relations, and which file is the index."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, ValidationError

from goffish.definitions import Definition
from goffish.errors import StoreError
from goffish.gofs.files import Folder
from goffish.gofs.manifest import FileEntry, seal, unseal

NAME, FORMAT, VERSION = "reservoir.json", "goffish-reservoir", 1
#: Files that a reservoir made, also those that a killed writer left behind; no other file is ever removed.
_OURS = re.compile(r"p\d{5}/-?\d+-[0-9a-f]{16}\.parquet|index-[0-9a-f]{16}\.parquet|(p\d{5}/)?\.[^/]+\.partial")


class PoolInfo(Definition):
    """A pool.

    Attributes
    ----------
    number : int
        Of its folder.
    ids : str
        Type of the ids; empty while there are no events.
    group : tuple of str
        Columns by whose values events are put together.
    """

    number: int = Field(ge=0, lt=100_000)
    ids: Literal["", "int64", "string"] = ""
    group: tuple[str, ...] = ()


class RelationInfo(Definition):
    """A relation between the events of two pools.

    Attributes
    ----------
    number : int
        Of the folder of its pairs by source; those by target are in the next one.
    source, target : str
    on : tuple of (str, str)
        Columns of the source and of the target with equal values; empty if pairs are stored.
    within_us : int, optional
        The most microseconds from the source to the target.
    """

    number: int = Field(ge=0, lt=100_000)
    source: str
    target: str
    on: tuple[tuple[str, str], ...] = ()
    within_us: int | None = Field(default=None, ge=0)


class Contents(Definition):
    """What the manifest says.

    Attributes
    ----------
    publication : int
        How often the manifest was written.
    span_us : int
        Microseconds that a bucket covers.
    rows : int
        Rows after which a bucket is full.
    replicas : tuple of str
        Further locations; the reservoir itself is number 0.
    copies, allow_missing : int
        Locations that hold a bucket, and how many of them may be unreachable while it is written.
    group_related : bool
        Whether compaction puts related events together.
    folders : int
        How many numbers of folders are taken.
    copy_of : str
        Location of the reservoir, in the manifest of a replica.
    """

    publication: int = 0
    span_us: int = Field(gt=0)
    rows: int = Field(gt=0)
    replicas: tuple[str, ...] = ()
    copies: int = Field(default=1, gt=0)
    allow_missing: int = Field(default=0, ge=0)
    group_related: bool = False
    folders: int = Field(default=0, ge=0)
    pools: dict[str, PoolInfo] = Field(default_factory=dict)
    relations: dict[str, RelationInfo] = Field(default_factory=dict)
    index: FileEntry | None = None
    copy_of: str = ""

    def changed(self, **values: Any) -> Contents:
        """Return these contents with other values."""
        return self.model_copy(update=values)

    def encode(self) -> bytes:
        """Return the manifest."""
        return seal({"format": FORMAT, "version": VERSION, "reservoir": self.model_dump(mode="json")})


def is_ours(name: str) -> bool:
    """Return whether a file has the name of one that a reservoir made."""
    return _OURS.fullmatch(name) is not None


def read_contents(folder: Folder) -> Contents:
    """Return what the manifest of a folder says.

    Raises
    ------
    StoreError
        There is none, or it is damaged, foreign or newer.
    """
    if folder.size(NAME) is None:
        raise StoreError(f"{folder.location}: not an event reservoir (no {NAME}); create one with Reservoir.create")
    where = f"{folder.location}/{NAME}"
    body = unseal(folder.read(NAME).to_pybytes(), where, FORMAT, VERSION, "GoFFish event reservoir")
    try:
        found = Contents.model_validate(body.get("reservoir"))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise StoreError(f"{where}: damaged ({field}: {first['msg'].lower()})") from None
    if found.index is not None and not is_ours(found.index.name):
        raise StoreError(f"{where}: damaged (index.name is {found.index.name!r:.80})")
    return found
