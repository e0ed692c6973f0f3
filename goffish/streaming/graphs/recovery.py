"""What a folder says about a live graph: checkpoints, and the log that follows them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goffish.errors import CheckpointError, GoffishWarning, InputError
from goffish.partial import local_path
from goffish.streaming.graphs import durable
from goffish.streaming.graphs.cgql.parser import parse
from goffish.streaming.graphs.cgql.syntax import CgqlError
from goffish.streaming.graphs.durable import Folder, Saved, checkpoints, read_log
from goffish.streaming.graphs.engine import (
    CANCEL,
    END,
    EXPIRE,
    FEED,
    INSTANCE,
    SUBMIT,
    Added,
    Arrival,
    Engine,
    Options,
    Replica,
)


def restored(
    path: Path, options: Options, most: int | None = None, before: int | None = None
) -> tuple[Engine, int, list[Saved]]:
    """Return the engine of the newest checkpoint that is valid, or an empty one.

    Parameters
    ----------
    path : Path
    options : Options
    most : int, optional
        Time up to which records may have been applied.
    before : int, optional
        Number of an entry of the log, up to which the checkpoint may be.

    Returns
    -------
    engine : Engine
    entry : int
        Number of the entry of the log that follows.
    damaged : list of Saved
        Newer checkpoints that are not valid.
    """
    damaged = []
    for saved in checkpoints(path):
        if (most is not None and saved.time > most) or (before is not None and saved.entry > before):
            continue
        try:
            engine = Engine(options)
            engine.install(saved.read(), str(saved.path))
        except CheckpointError:
            damaged.append(saved)
        else:
            return engine, saved.entry, damaged
    return Engine(options), 0, damaged


class History:
    """Finds replicas of a live graph as of earlier times.

    Parameters
    ----------
    path : Path
    options : Options
    end : int
        Number of the entry of the log up to which they are replayed.
    """

    def __init__(self, path: Path, options: Options, end: int) -> None:
        self._path, self._options, self._end = path, options, end

    def __call__(self, time: int) -> tuple[Replica, Iterator[tuple[int, Added, Any]]] | None:
        """Return a replica without queries, and the entries of the log that follow; ``None`` if there is none."""
        engine, first, _ = restored(self._path, self._options, time, self._end)
        by_instances = first < durable.first_entry(self._path)
        if by_instances and (not first or self._options.takes_late):
            return None
        engine.leave_queries()
        replica = Replica(engine)
        replica.by_instances = by_instances
        return replica, self._instances(first) if by_instances else self._entries(first)

    def _instances(self, first: int) -> Iterator[tuple[int, Any, Any]]:
        """Return the instances after an entry up to the beginning of the log, and its entries."""
        begin = durable.first_entry(self._path)
        for saved in reversed(checkpoints(self._path)):
            if not first < saved.entry <= self._end:
                continue
            instance = Engine(self._options)
            try:
                instance.install(saved.read(), str(saved.path))
            except CheckpointError:  # the next one will do
                continue
            yield INSTANCE, None, instance
            if saved.entry >= begin:
                yield from self._entries(saved.entry)
                return
        raise CheckpointError(f"{self._path}: no valid checkpoint from which the log goes on, entry {begin:,}")

    def _entries(self, first: int) -> Iterator[tuple[int, Added, Any]]:
        for number, form, held in read_log(self._path, first):
            if number >= self._end:
                return
            with _named(f"{self._path}, entry {number:,} of the log"):
                added, given = held
                # The replica has numbers of its own, so that those of the log cannot be checked here.
                given = Arrival.unpacked(given, None) if form == FEED else given
            yield form, added, given


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name what is damaged."""
    try:
        yield
    except CgqlError as error:  # it was accepted before: a pattern of another package is not there any more
        raise CheckpointError(f"{name}: {error}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, InputError) as error:
        raise CheckpointError(f"{name}: is damaged ({error})") from None


def recovered(folder: Folder, options: Options, needed: Mapping[str, int]) -> Engine:
    """Return the engine of a folder as it was after the last entry of the log.

    Parameters
    ----------
    folder : Folder
    options : Options
    needed : mapping
        By topic, the first event that is kept in any case.

    Returns
    -------
    Engine

    Raises
    ------
    CheckpointError
        Something is damaged that is needed.
    """
    engine, first, damaged = restored(folder.path, options)

    def keep() -> None:
        topics = engine.topics if needed else {}
        for topic in needed.keys() & topics.keys():
            topics[topic].topic.needed = needed[topic]

    try:
        keep()
        folder.open_log(first)
        for number, form, held in read_log(folder.path, first):
            replay(engine, form, held, folder.path, number)
            if form == SUBMIT:
                keep()
    except CheckpointError as error:
        if not damaged:
            raise
        names = ", ".join(one.path.name for one in damaged)
        raise CheckpointError(f"{error}, and it is needed as {names} is damaged") from None
    for one in damaged:
        warnings.warn(f"{one.path}: is damaged; the log was replayed from an earlier one", GoffishWarning, stacklevel=4)
    folder.remove(damaged)
    return engine


def verify(state: str | Path) -> list[dict[str, Any]]:
    """Replay the log of a live graph from each checkpoint to the next one, and compare what it gives with that one.

    Parameters
    ----------
    state : str or Path

    Returns
    -------
    list of dict
        For each checkpoint, the oldest one first: ``checkpoint``, ``entry``, and ``result``, which is ``"same"``,
        ``"first"`` if there is nothing from which it could be replayed, or else what is wrong. Those whose description
        cannot be read come last, and have no ``entry``.

    Raises
    ------
    InputError
        There is no live graph.
    CheckpointError
        The log is damaged.
    """
    path = local_path(state)
    options = durable.options_of(path, state)
    if options is None:
        raise InputError(f"{state}: has no live graph")
    found: list[dict[str, Any]] = []
    engine: Engine | None = Engine(options)
    at = 0
    for saved in reversed(checkpoints(path)):
        result = "same"
        try:
            held = saved.read()
        except CheckpointError as error:
            held, result = None, str(error)
        if engine is not None:
            try:
                at = replay_until(path, engine, at, saved.entry)
            except CheckpointError:
                if at >= durable.first_entry(path):
                    raise
                result, engine = "first" if held is not None else result, None
        if engine is not None and held is not None and durable.checksum(engine.saved()) != saved.sha256:
            # Of instances that a query has compared, some may be gone.
            result = "first" if any(one.by_instances for one in engine.replicas) else "differs from the log"
        if held is not None:
            engine, at = Engine(options), saved.entry
            engine.install(held, str(saved.path))
            if engine.now != saved.time:
                result = f"{saved.path.with_suffix('.json')}: is damaged (another time than the checkpoint)"
        found.append({"checkpoint": saved.path.name, "entry": saved.entry, "result": result})
    if engine is not None:
        replay_until(path, engine, at, None)
    known = {one["checkpoint"] for one in found}
    for name in sorted(path.glob("checkpoint-*.json")):
        if name.with_suffix(".arrow").name not in known:
            result = f"{name}: is damaged (not the description of a checkpoint)"
            found.append({"checkpoint": name.with_suffix(".arrow").name, "entry": None, "result": result})
    return found


def replay_until(path: Path, engine: Engine, first: int, end: int | None) -> int:
    """Replay entries of a log up to a number; return it, or that of the next entry."""
    for number, form, held in read_log(path, first):
        if number == end:
            return number
        replay(engine, form, held, path, number)
        first = number + 1
    if end is not None and first != end:
        raise CheckpointError(f"{path}: the log ends with entry {first - 1:,}; a checkpoint is of entry {end - 1:,}")
    return first


def replay(engine: Engine, form: int, held: Any, path: Path, number: int) -> None:
    """Do what an entry of the log says.

    Raises
    ------
    CheckpointError
        It is damaged.
    """
    with _named(f"{path}, entry {number:,} of the log"):
        added, given = held
        added.add_to(engine.encoder)
        if form == FEED:
            given = Arrival.unpacked(given, engine.encoder)
            engine.take(given)
        elif form == SUBMIT:
            text, parameters, *clock = given
            engine.submit(parse(text), parameters, None, History(path, engine.options, number), *clock)
        elif form == CANCEL:
            engine.cancel(given)
        elif form == EXPIRE:
            engine.expire(given)
        elif form == END:
            engine.end()
        else:
            raise ValueError(f"form {form} is unknown")
        if form != SUBMIT:
            for replica in engine.replicas:
                replica.follow(form, added, given)
