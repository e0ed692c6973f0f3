"""The locations of a reservoir, which hold copies of its buckets: the closest one is read, and the next if it fails."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Literal

import pyarrow as pa

from goffish.errors import StoreError
from goffish.gofs.files import Folder, open_folder
from goffish.gofs.manifest import FileEntry, checksum
from goffish.gofs.reservoir.index import Bucket
from goffish.gofs.reservoir.model import NAME

_log = logging.getLogger(__name__)
State = Literal["ok", "missing", "damaged", "unreachable"]


class Places:
    """The locations of a reservoir.

    Parameters
    ----------
    home : Folder
        Of the manifest; number 0.
    replicas : sequence of str
        Others, from number 1 on.

    Attributes
    ----------
    opened : int
        Buckets that were read.
    """

    def __init__(self, home: Folder, replicas: Sequence[str]) -> None:
        self.names = [home.location, *replicas]
        self.opened = 0
        self._folders: dict[int, Folder] = {0: home}
        self._checked: set[tuple[int, str]] = set()
        self._failed: set[int] = set()

    def __len__(self) -> int:
        return len(self.names)

    def folder(self, place: int) -> Folder:
        """Return the folder of a location.

        Raises
        ------
        StoreError
            It cannot be reached.
        """
        if place not in self._folders:
            self._folders[place] = open_folder(self.names[place])
        return self._folders[place]

    def chosen(self, name: str, copies: int) -> list[int]:
        """Return the locations for the copies of a bucket: all, or as many as wanted, by hash."""
        places = range(len(self))
        if copies >= len(self):
            return [*places]
        return sorted(sorted(places, key=lambda place: checksum(f"{place}/{name}".encode()))[:copies])

    def check(self, place: int) -> None:
        """Refuse a location that is not reachable, or has lost its manifest, as a disk that is not mounted.

        Raises
        ------
        StoreError
        """
        if place and self.folder(place).size(NAME) is None:
            raise StoreError(
                f"{self.names[place]}: not a replica (no {NAME}); mount it, or run repair to fill it again"
            )

    def get(self, bucket: Bucket) -> pa.Buffer:
        """Return the bytes of a bucket from the closest location that has them.

        Raises
        ------
        StoreError
            No location does.
        """
        self.opened += 1
        problem: StoreError | None = None
        for place in self._closest(bucket.places):
            if problem is not None:
                _log.warning("%s; reading the copy in %s", problem, self.names[place])
            try:
                return self._read(bucket, place)
            except StoreError as error:
                problem = error
        raise problem or StoreError(f"{self.names[0]}/{bucket.name}: no location has a copy")

    def _closest(self, places: Collection[int]) -> list[int]:
        """Return locations in the order in which they are read: local ones first, last those that failed."""
        remote = {place for place in places if "://" in self.names[place]}
        return sorted(places, key=lambda place: (place in self._failed, place in remote, place))

    def _read(self, bucket: Bucket | FileEntry, place: int) -> pa.Buffer:
        try:
            data = self.folder(place).read(bucket.name)
        except StoreError:
            if "://" in self.names[place]:
                self._failed.add(place)  # not asked first for a while, as an answer may take long
            raise
        if (place, bucket.name) not in self._checked:
            if data.size != bucket.size or checksum(data) != bucket.sha256:
                raise StoreError(f"{self.names[place]}/{bucket.name}: damaged (its bytes do not match the checksum)")
            self._checked.add((place, bucket.name))
        self._failed.discard(place)
        return data

    def state(self, bucket: Bucket | FileEntry, place: int) -> State:
        """Return whether the copy of a bucket or of the index at a location is as it was written."""
        try:
            folder = self.folder(place)
            if folder.size(bucket.name) is None:
                self.check(place)
                return "missing"
        except StoreError:
            return "unreachable"
        self._checked.discard((place, bucket.name))
        try:
            self._read(bucket, place)
        except StoreError:
            return "damaged"
        return "ok"
