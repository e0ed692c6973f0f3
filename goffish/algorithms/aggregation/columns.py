"""Messages as columns: what a function of the user makes of the values at both ends, and how they are combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.aggregation import kernels
from goffish.errors import InputError, JobError

Combine = Literal["sum", "min", "max", "mean", "count"]
Direction = Literal["out", "in", "both"]
#: Takes the values of senders and receivers and the weights of the edges, and gives the messages.
Message = Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], Any]

#: Edges that are handed to the function at a time.
CHUNK = 1 << 20

_HOW = {"min": kernels.MIN, "max": kernels.MAX}


class Inbox:
    """What vertices have received.

    Attributes
    ----------
    total : float64, shape (n,)
    count : int64, shape (n,)
    """

    def __init__(self, n: int, message: Message | None, combine: Combine) -> None:
        self.message, self.how = message, _HOW.get(combine, kernels.SUM)
        self.total, self.count = np.zeros(n), np.zeros(n, np.int64)

    def receive(
        self,
        receiver: NDArray[np.integer[Any]],
        sent: NDArray[np.float64],
        there: NDArray[np.float64],
        weight: NDArray[np.float64],
    ) -> None:
        """Take messages in, in their order: of these values, to vertices with those, along edges of these weights."""
        for low in range(0, receiver.size, CHUNK):
            rows = slice(low, low + CHUNK)
            message = _computed(self.message, sent[rows], there[rows], weight[rows])
            kernels.combine(receiver[rows], message, self.how, self.total, self.count)


def _computed(
    message: Message | None, sent: NDArray[np.float64], there: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    if message is None:
        return sent
    try:
        found = message(sent, there, weight)
    except Exception as error:
        raise JobError(f"message failed: {type(error).__name__}: {error}") from error
    if isinstance(found, pa.Array | pa.ChunkedArray):
        found = found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found.to_numpy()
    try:
        values = np.asarray(found)
    except ValueError:
        values = np.empty(0, object)
    if values.dtype.kind not in "biuf" or values.shape not in ((), sent.shape):
        raise InputError(
            f"message returned {values.dtype} of shape {values.shape}: expected one number for each of the "
            f"{sent.size:,} edges of the batch"
        )
    return np.ascontiguousarray(np.broadcast_to(values, sent.shape), np.float64)


def check_names(combine: Any, direction: Any) -> None:
    """Refuse names that mean nothing."""
    for name, given, known in (("combine", combine, Combine), ("direction", direction, Direction)):
        if given not in get_args(known):
            raise InputError(f"{name}={given!r}: choose one of {', '.join(get_args(known))}")


def as_values(values: Any, n: int | None) -> NDArray[np.float64]:
    """Values of vertices as a column; `n`: how many there have to be, if known."""
    column = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else np.asarray(values)
    if column.dtype.kind not in "biuf" or column.ndim != 1 or (n is not None and column.size != n):
        wanted = "one number per vertex, in vertex order" + ("" if n is None else f", shape ({n},)")
        raise InputError(f"values has type {column.dtype} and shape {column.shape}: expected {wanted}")
    return np.ascontiguousarray(column, np.float64)


def concluded(labels: pa.Array, total: NDArray[np.float64], count: NDArray[np.int64], combine: Combine) -> pa.Table:
    """Columns ``vertex`` and ``value``; without messages a sum is 0, and a minimum, maximum or mean null."""
    if combine == "count":
        return pa.table({"vertex": labels, "value": count})
    if combine == "sum":
        return pa.table({"vertex": labels, "value": total})
    value = total / np.maximum(count, 1) if combine == "mean" else total
    return pa.table({"vertex": labels, "value": pa.array(value, mask=count == 0)})
