"""What members send one another between two supersteps: control, message counts, contributions, messages, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gopher.checkpoint import asked_for
from goffish.gopher.messages import Batch
from goffish.gopher.team.team import Space, Team, status_of
from goffish.gopher.worker import StepOutput


def pack_tables(tables: Sequence[pa.Table]) -> memoryview:
    """Several tables, each with its own columns, as one block of bytes."""
    sink = pa.BufferOutputStream()
    ends: list[int] = []
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        ends.append(sink.tell())
    sink.write(np.array([*ends, len(ends)], np.int64).tobytes())
    return memoryview(sink.getvalue())


def unpack_tables(data: Any) -> list[pa.Table]:
    """The inverse of `pack_tables`; the tables hold on to `data`."""
    buffer = pa.py_buffer(data)
    count = int(np.frombuffer(buffer[buffer.size - 8 :], np.int64)[0])
    ends = np.frombuffer(buffer[buffer.size - 8 * (count + 1) : buffer.size - 8], np.int64).tolist()
    begins = [0, *ends][:count]
    return [pa.ipc.open_stream(buffer[begin:end]).read_all() for begin, end in zip(begins, ends, strict=True)]


#: How it went (0: well), messages sent by programs, the most rows to any one member, and `asked_for`.
_HEAD = 4
#: A contribution of one partition to one aggregator; its value keeps type and shape, so that folding rounds alike.
_CONTRIBUTION = np.dtype([("given", np.int8), ("dimensions", np.int8), ("type", "S6"), ("value", np.uint8, 32)])


@dataclass(frozen=True)
class Control:
    """What this member says after a superstep: for each member the head, the message counts, and its contributions."""

    blocks: list[NDArray[np.uint8]]
    outboxes: list[list[Batch]]


@dataclass(frozen=True)
class Heard:
    """What all said: statuses, messages sent, message counts and contributions of every partition, and `asked_for`."""

    statuses: NDArray[np.int64]
    sent: int
    largest: int
    counts: list[NDArray[np.int64]]
    contributions: list[Mapping[str, Any]]
    asked: int


class Exchange:
    """The barrier of a superstep on a team.

    Parameters
    ----------
    owned : list of lists of int
        Partitions of every member, ascending.
    aggregators : sequence of str
    dtype : dtype
        Of a message.
    """

    def __init__(self, team: Team, owned: list[list[int]], aggregators: Sequence[str], dtype: Any) -> None:
        self._team, self._owned, self._names, self._dtype = team, owned, list(aggregators), dtype
        self._mine = owned[team.rank]
        self._room = Space()

    def prepare(self, outputs: Sequence[StepOutput]) -> Control:
        """Put down what this member's partitions have to say; fails for contributions that cannot be sent."""
        outboxes = [output.outbox for output in outputs]
        sent = sum(output.sent for output in outputs)
        given = np.zeros((len(outputs), len(self._names)), _CONTRIBUTION)
        for row, output in zip(given, outputs, strict=True):
            for cell, name in zip(row, self._names, strict=True):
                if name in output.contributions:
                    _encode(cell, name, output.contributions[name])
        counts = [
            np.array([[box[target].size for target in targets] for box in outboxes], np.int64)
            for targets in self._owned
        ]
        rows = [int(c.sum()) for rank, c in enumerate(counts) if rank != self._team.rank]
        head = np.array([0, sent, max(rows, default=0), asked_for()], np.int64)
        tail = given.view(np.uint8).ravel()
        return Control(
            [np.concatenate((head.view(np.uint8), c.ravel().view(np.uint8), tail)) for c in counts], outboxes
        )

    def failed(self, failure: Exception | None) -> Control:
        """What a member says that has failed or was stopped."""
        head = np.array([status_of(failure), 0, 0, 0], np.int64).view(np.uint8)
        return Control([np.concatenate((head, np.zeros(n - head.size, np.uint8))) for n in self._sizes()[0]], [])

    def _sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bytes of what goes to, and comes from, every member."""
        theirs = np.array([len(partitions) for partitions in self._owned], np.int64)
        mine = len(self._mine)
        said = len(self._names) * _CONTRIBUTION.itemsize
        return 8 * (_HEAD + mine * theirs) + mine * said, 8 * (_HEAD + mine * theirs) + theirs * said

    def agree(self, control: Control) -> Heard:
        """Exchange how the superstep went, in blocks of sizes that depend only on the job."""
        team = self._team
        heads = np.empty((team.size, _HEAD), np.int64)
        counts: list[NDArray[np.int64]] = []
        contributions: list[Mapping[str, Any]] = [{} for _ in range(sum(map(len, self._owned)))]
        for rank, block in enumerate(team.swap(control.blocks, self._sizes()[1].tolist())):
            theirs = len(self._owned[rank])
            numbers = block[: 8 * (_HEAD + theirs * len(self._mine))].copy().view(np.int64)
            heads[rank] = numbers[:_HEAD]
            counts.append(numbers[_HEAD:].reshape(theirs, len(self._mine)))
            if self._names:
                given = block[numbers.nbytes :].copy().view(_CONTRIBUTION).reshape(theirs, len(self._names))
                for partition, row in zip(self._owned[rank], given, strict=True):
                    contributions[partition] = {
                        name: _decode(cell) for name, cell in zip(self._names, row, strict=True) if cell["given"]
                    }
        return Heard(
            heads[:, 0], int(heads[:, 1].sum()), int(heads[:, 2].max()), counts, contributions, int(heads[:, 3].max())
        )

    def deliver(self, control: Control, heard: Heard) -> list[list[Batch]]:
        """Move the messages: for each partition of this member, one batch from every partition in their order."""
        team, unit = self._team, self._dtype.itemsize
        pieces: list[list[NDArray[np.uint8]]] = [
            [] if rank == team.rank else [box[target].view(np.uint8) for box in control.outboxes for target in targets]
            for rank, targets in enumerate(self._owned)
        ]
        rows = np.array([sum(piece.size for piece in block) // unit for block in pieces], np.int64)
        incoming = np.array([int(c.sum()) for c in heard.counts], np.int64)
        incoming[team.rank] = 0
        received = team.move(pieces, rows, incoming, heard.largest, unit, self._room)
        pending: list[list[Batch]] = [[_EMPTY] * len(heard.contributions) for _ in self._mine]
        for box, source in zip(control.outboxes, self._mine, strict=True):
            for row, target in zip(pending, self._mine, strict=True):
                row[source] = box[target]
        for rank, sources in enumerate(self._owned):
            if rank == team.rank:
                continue
            batches = received[rank].view(self._dtype)
            at = 0
            for source, line in zip(sources, heard.counts[rank].tolist(), strict=True):
                for row, count in zip(pending, line, strict=True):
                    row[source] = batches[at : at + count]
                    at += count
        return pending


_EMPTY: Batch = np.empty(0)


def _encode(cell: Any, name: str, value: Any) -> None:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biufc" or array.dtype.itemsize > 32:
        raise ValueError(f"aggregator {name!r}: a contribution is one number, not {array.dtype} {array.shape}")
    cell["given"], cell["dimensions"], cell["type"] = 1, array.ndim, array.dtype.str
    cell["value"][: array.dtype.itemsize] = np.frombuffer(array.tobytes(), np.uint8)


def _decode(cell: Any) -> Any:
    kind = np.dtype(cell["type"].decode())
    value = np.frombuffer(cell["value"][: kind.itemsize].tobytes(), kind)
    return value.reshape((1,) * int(cell["dimensions"]))[()]
