"""What the checkpoints of a worker in a folder hold beside the states of operators: lanes, and progress."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from goffish.streaming.checkpoints import CheckpointFolder
from goffish.streaming.hashing import positions_of, within
from goffish.streaming.ring.messages import Progress
from goffish.streaming.ring.ranges import Ranges
from goffish.streaming.runtime.outputs import OutputCopy
from goffish.streaming.runtime.partition import PartitionCopy
from goffish.streaming.state import Delta, captured

#: The part of a state that holds lanes; among them are these entries.
LANES, _PIECES, _GIVEN = "", "\n", "\ngiven"
#: Copies of lanes by name: the worker, its token, and what is needed to continue the lane.
Lanes = Mapping[str, tuple[int, int, Any]]


class Given(NamedTuple):
    """Positions that a worker has given away, as they were then.

    Attributes
    ----------
    epoch : int
        Of the last view in which it had them.
    ranges : Ranges
    pieces : list of Progress
    deltas : dict
        By state.
    """

    epoch: int
    ranges: Ranges
    pieces: list[Progress]
    deltas: dict[str, Delta]


class Saved(NamedTuple):
    """What the checkpoint of a worker holds of some positions.

    Attributes
    ----------
    version : list of int
        Run and view.
    forms : mapping or None
        Forms of states.
    pieces : list of Progress
    deltas : list of (str, Delta)
    """

    version: list[int]
    forms: Mapping[str, Any] | None
    pieces: list[Progress]
    deltas: list[tuple[str, Delta]]


def beside_states(serial: int, lanes: Lanes, pieces: list[Progress], given: Sequence[Given]) -> dict[str, Delta]:
    """Return what a checkpoint holds beside the states of operators.

    Parameters
    ----------
    serial : int
        Number of the checkpoint.
    lanes : mapping
        Of outputs what earlier checkpoints do not hold, or everything.
    pieces : list of Progress
    given : sequence of Given
        Positions that are not in checkpoints of their new owners yet.

    Returns
    -------
    dict of str to Delta
    """
    kept: dict[tuple[str, int | None], Any] = {}
    for name, (*_, value) in lanes.items():
        parts = value.entries if isinstance(value, OutputCopy) else {None: value}
        kept |= {(name, part): one for part, one in parts.items()}
    kept[_PIECES, None] = pieces
    kept[_GIVEN, None] = [(one.epoch, one.pieces, serial) for one in given]
    names, places = [name for name, _ in kept], [place for _, place in kept]
    values = [captured(value) for value in kept.values()]
    deltas = {LANES: Delta(positions_of(names), names, places, values, np.zeros(len(names), dtype=np.bool_))}
    for number, one in enumerate(given):
        deltas |= {_part(name, serial, number): delta for name, delta in one.deltas.items()}
    return deltas


def read_saved(folders: Iterable[CheckpointFolder], states: Collection[str]) -> tuple[list[Saved], dict[str, Any]]:
    """Return what the last checkpoints of workers hold, and the copies of lanes.

    Of two workers with the same positions or lanes, the one of the later run or with the newer view has them now: its
    parts come first. Of partitions, it is the one with the later life, as they also move without a change of the ring.
    """
    lanes: dict[str, Any] = {}
    runs: dict[str, int] = {}
    parts: list[Saved] = []
    found = [one for one in folders if one.latest is not None]
    for one in sorted(found, key=lambda one: one.latest.body["version"], reverse=True):  # type: ignore[union-attr]
        body, deltas = one.latest.body, list(one.state())  # type: ignore[union-attr]
        entries: dict[str, dict[int | None, Any]] = {}
        for name, place, value, _ in (entry for name, delta in deltas if name == LANES for entry in delta.entries()):
            entries.setdefault(name, {})[place] = value
        kept: dict[str, Any] = {
            name: OutputCopy.read(found) if name in body["outputs"] else found[None] for name, found in entries.items()
        }
        run, forms = body["version"][0], body.get("forms")
        parts.append(Saved(body["version"], forms, kept.pop(_PIECES), deltas))
        for number, (epoch, pieces, serial) in enumerate(kept.pop(_GIVEN, [])):
            names = {_part(name, serial, number): name for name in states}
            given = [(names[name], delta) for name, delta in deltas if name in names]
            parts.append(Saved([run, epoch], forms, pieces, given))
        for name, value in kept.items():
            known = lanes.get(name)
            later = isinstance(known, PartitionCopy) and runs[name] == run and value.life > known.life
            if known is None or later:
                lanes[name], runs[name] = value, run
    return sorted(parts, key=lambda part: part.version, reverse=True), lanes


def _part(name: str, serial: int, number: int) -> str:
    """Return the name of a state of positions that were given away, in a checkpoint."""
    return f"{name}\n{serial}\n{number}"


def clipped(delta: Delta, ranges: Ranges) -> Delta:
    """Return the entries of a delta that lie within some positions."""
    kept = within(delta.positions, ranges)
    if kept.all():
        return delta
    rows = np.flatnonzero(kept)
    keys, subkeys, values = (
        column.take(pa.array(rows)) if isinstance(column, pa.Array) else [column[row] for row in rows.tolist()]
        for column in (delta.keys, delta.subkeys, delta.values)
    )
    return Delta(delta.positions[rows], keys, subkeys, values, delta.removed[rows])
