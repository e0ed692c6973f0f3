"""The next version of a reservoir: buckets are written first, then the index, and one manifest publishes both."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa

from goffish.errors import InputError, StoreError
from goffish.gofs.encoding import encode_parquet
from goffish.gofs.manifest import FileEntry, checksum
from goffish.gofs.reservoir.events import micros
from goffish.gofs.reservoir.index import Bucket, Index, columns_text, ranges_text
from goffish.gofs.reservoir.model import NAME, Contents, is_ours, read_contents
from goffish.gofs.reservoir.places import Places

_log = logging.getLogger(__name__)


class Draft:
    """Changes of a reservoir that are not published yet.

    Parameters
    ----------
    contents : Contents
    index : Index
        Of the published version.
    places : Places

    Attributes
    ----------
    contents : Contents
        Of the next version.
    """

    def __init__(self, contents: Contents, index: Index, places: Places) -> None:
        self.contents, self.index, self._places = contents, index, places
        self._before = contents
        self._buckets = {one.name: one for one in index.buckets}
        self._written: dict[str, list[int]] = {}

    def _refuse(self, problems: list[str]) -> None:
        if len(problems) > self.contents.allow_missing:
            allowed = self.contents.allow_missing
            raise StoreError(f"{problems[0]}; {len(problems)} locations cannot be written, allow_missing is {allowed}")
        for problem in problems:
            _log.warning("%s; repair adds the copies that are missing", problem)

    def add(self, pool: int, span: int, table: pa.Table, *, group: Iterable[str] = (), part: int = -1,
            settled: bool = False) -> None:  # fmt: skip
        """Write rows of a span as a bucket to all its locations.

        Raises
        ------
        StoreError
            Too few of them can be written.
        InputError
            A column cannot be stored.
        """
        try:
            data = encode_parquet(table)
        except (pa.ArrowException, NotImplementedError) as error:
            raise InputError(f"a column cannot be stored in Parquet ({' '.join(str(error).split()):.200})") from None
        digest = checksum(data)
        name = f"p{pool:05d}/{span}-{digest[:16]}.parquet"
        times = micros(table)
        bucket = Bucket(
            pool, name, span, part, int(times.min()), int(times.max()), len(table), data.size, digest,
            columns_text(table), ranges_text(table, ["id", *group]), settled, (),
        )  # fmt: skip
        self.put(bucket, data)

    def put(self, bucket: Bucket, data: pa.Buffer) -> None:
        """Write a bucket to those of its locations that lack it.

        Raises
        ------
        StoreError
            Too few of them can be written.
        """
        places, problems, present = list(bucket.places), list[str](), self._buckets.get(bucket.name)
        written = self._written.setdefault(bucket.name, [])
        for place in self._places.chosen(bucket.name, self.contents.copies):
            if place in places:
                continue
            try:
                self._places.check(place)
                written.append(place)
                self._places.folder(place).write(bucket.name, data)
                places.append(place)
            except StoreError as error:
                problems.append(str(error))
        if not places:
            raise StoreError(problems[0])
        if present is None:
            self._refuse(problems)
        self._buckets[bucket.name] = bucket._replace(places=tuple(sorted(places)))

    def update(self, bucket: Bucket) -> None:
        """Take note of the locations of a bucket."""
        self._buckets[bucket.name] = bucket

    def drop(self, buckets: Iterable[Bucket]) -> None:
        """Leave out buckets."""
        for one in buckets:
            if one.name not in self._written:
                self._buckets.pop(one.name, None)

    @property
    def is_changed(self) -> bool:
        """Whether there is something to publish."""
        return self.contents != self._before or list(self._buckets.values()) != list(self.index.buckets)

    def publish(self, *, sweep: bool) -> tuple[Contents, Index]:
        """Write the index and the manifest, then remove the files of the last version.

        Parameters
        ----------
        sweep : bool
            Whether to look for files that a killed writer left.

        Raises
        ------
        StoreError
            The manifest cannot be written, or another process has written one.
        """
        home = self._places.folder(0)
        index = self.index
        if list(self._buckets.values()) != list(self.index.buckets):
            index = Index(self._buckets.values())
            data = index.encode()
            digest = checksum(data)
            entry = FileEntry(f"index-{digest[:16]}.parquet", data.size, digest)
            if self.contents.index is None or entry.name != self.contents.index.name:
                self._written[entry.name] = [0]
                home.write(entry.name, data)
            self.contents = self.contents.changed(index=entry)
        contents = self.contents.changed(publication=self._before.publication + 1)
        if self._before.publication and read_contents(home).publication != self._before.publication:
            raise StoreError(f"{home.location}: another process has written this reservoir; repeat the call")
        home.write(NAME, contents.encode())
        self.contents, self._written = contents, {}
        self._finish(index, sweep)
        return contents, index

    def _finish(self, index: Index, sweep: bool) -> None:
        """Copy the index to the replicas, and remove files that no manifest names."""
        gone = {one.name for one in self.index.buckets} - {one.name for one in index.buckets}
        if self._before.index is not None and self._before.index != self.contents.index:
            gone.add(self._before.index.name)
        kept = {one.name for one in index.buckets} | ({self.contents.index.name} if self.contents.index else set())
        for place in range(len(self._places)):
            try:
                folder = self._places.folder(place)
                if place:
                    if self._before.publication:
                        self._places.check(place)
                    mirror(self.contents, self._places, place)
                for name in sorted(gone | ({one for one in folder.list() if is_ours(one)} - kept if sweep else set())):
                    folder.delete(name)
            except (StoreError, OSError) as error:
                _log.warning("%s; the copy of the index there is not up to date", error)

    def discard(self) -> None:
        """Remove what was written, unless it was published by a manifest whose writing was interrupted."""
        if not self._written:
            return
        there: set[str] = set()
        with suppress(StoreError):
            found = read_contents(self._places.folder(0))
            if found.publication != self._before.publication:
                return  # files that nothing names are removed by the next writer
            there = {one.name for one in self.index.buckets} | ({found.index.name} if found.index else set())
        for name, places in self._written.items():
            for place in places if name not in there else ():
                with suppress(StoreError, OSError):
                    self._places.folder(place).delete(name)


def mirror(contents: Contents, places: Places, place: int) -> None:
    """Write the index and the manifest to a replica, from which the reservoir can be read."""
    folder, home = places.folder(place), places.folder(0)
    if contents.index is not None and folder.size(contents.index.name) != contents.index.size:
        folder.write(contents.index.name, home.read(contents.index.name))
    folder.write(NAME, contents.changed(copy_of=places.names[0]).encode())
