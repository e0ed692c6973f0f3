"""Algorithms whose results are kept up to date with a live graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from goffish.algorithms.algorithm import Options
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.streaming.graphs import row_kernels
from goffish.streaming.graphs.patterns import Numbers
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.rows import Difference, Seen, labels_of
from goffish.streaming.graphs.state import Changes, State


class Followed(ABC):
    """An algorithm that follows a live graph; made by `LiveGraph.follow`.

    Changes are collected while records are applied, and followed when a result is asked for: those that cancel each
    other out take no work.

    Parameters
    ----------
    state : State
    encoder : Encoder
    options : Options
        Of the algorithm.
    weight : str, optional
        Attribute of edges.
    directed : bool
    """

    #: Whether edges have weights and directions, and whether rows of neighbors are used.
    weighted: ClassVar[bool] = False
    has_directions: ClassVar[bool] = False
    has_rows: ClassVar[bool] = True
    #: Work that takes as long as a full pass, for each pair and vertex.
    price: ClassVar[float]

    def __init__(
        self, state: State, encoder: Encoder, options: Options, weight: str | None, directed: bool
    ) -> None:  # fmt: skip
        self._state, self._encoder = state, encoder
        self._options: Any = options
        #: An option, the labels of vertices in it, and their slots.
        self._option, self._names = "", list[int | str]()
        self._needed = np.zeros(0, np.int64)
        self._given = state, encoder, weight, directed and self.has_directions
        self._seen = Seen(*self._given)
        #: Why the next pass is a full one.
        self._reason: str | None = "first result"
        self._figures: dict[str, Any] = {"updates": 0, "full_passes": 0, "work": 0, "reason": None}
        #: How many changes took too long; how many full passes follow until as many are tried again, and are left.
        self._failed, self._pause, self._skips = 0, 0, 0
        self._labels: pa.Array | None = None
        self._check: Callable[[], None] | None = None
        self._end: Callable[[Followed], None] | None = None

    def attach(self, check: Callable[[], None], end: Callable[[Followed], None]) -> None:
        """Note what raises an error when the graph cannot be followed any more, and what ends following it."""
        self._check, self._end = check, end

    def take(self, changes: Changes, times: Numbers, until: int) -> None:
        """Take changes of the graph."""
        self._seen.follow(changes)

    def deliver(self) -> None:
        """Leave changes until a result is asked for."""
        return

    def renumber(self) -> None:
        """Note that vertices and edges may have the numbers of others from now on."""
        self._reason, self._labels = _ANEW, None

    def result(self) -> Result:
        """Return the result for the graph as it is now.

        Returns
        -------
        Result
            As of the algorithm on ``live.graph()``.

        Raises
        ------
        InputError
            It is closed, a vertex among the options does not exist, or a weight is negative.
        JobError
            The live graph was interrupted while it applied records.
        """
        if self._check is None:
            raise InputError("the algorithm is closed: it does not follow the graph any more")
        self._check()
        try:
            return self._made()
        except SystemError as error:
            if isinstance(error.__cause__, KeyboardInterrupt):  # Ctrl-C while numba called a kernel
                raise KeyboardInterrupt from None
            raise

    def _made(self) -> Result:
        self._check_needed()
        if self._reason in (_INTERRUPTED, _ANEW):
            self._seen = Seen(*self._given)
        difference = self._seen.difference()
        reason, self._reason = self._reason, _INTERRUPTED
        if len(difference.gone) or len(difference.come):
            self._labels = None
        count = len(difference.pairs) + len(difference.gone) + len(difference.come)
        self._figures["updates"] += count
        self._fit(len(self._seen.vertices))
        limit = _LEAST + self._limit()
        if reason is None and self._skips and 2 * count >= self._failed:
            reason = f"{count:,} changes: {self._failed:,} took longer than a full pass before"
            self._skips -= 1
        if reason is not None:
            if self.has_rows:
                row_kernels.put_all(self._seen.net, difference.pairs, difference.before, difference.weights)
        elif count:
            work = self._follow(difference, limit)
            self._figures["work"] += int(work)
            reason = self._lost()
            if work > limit:
                reason = f"{count:,} changes: following them took longer than a full pass"
            # The longer changes take too long, the less often are as many tried again.
            failed = work > limit
            self._failed, self._pause = (count, min(2 * self._pause + 1, _LONGEST_PAUSE)) if failed else (0, 0)
            self._skips = self._pause
        if reason is not None:
            self._pass()
            self._figures["full_passes"] += 1
            self._figures["reason"] = reason
        self._reason = None
        vertices = self._vertices
        if self._labels is None:
            self._labels = labels_of(self._encoder, vertices)
        return self._result(vertices, self._labels)

    def close(self) -> None:
        """End following the graph; there are no more results."""
        if self._end is not None:
            self._end(self)
        self._check = self._end = None

    @property
    def statistics(self) -> dict[str, Any]:
        """What was done so far.

        ``updates`` of vertices and pairs of adjacent ones that were followed, ``full_passes`` over the graph, the
        ``work`` of all updates in neighbors that were looked at, and the ``reason`` of the last full pass.
        """
        return dict(self._figures)

    @property
    def _vertices(self) -> Numbers:
        return np.flatnonzero(self._seen.vertices)

    def _need(self, option: str, labels: list[int | str]) -> None:
        """Note that vertices must exist for a result; `_needed` has their slots."""
        self._option, self._names = option, labels
        self._needed = self._encoder.vertices.slots(labels)

    def _check_needed(self) -> None:
        slots = self._encoder.vertices.slots(self._names)  # they may have been given up
        if not np.array_equal(slots, self._needed):
            self._needed, self._reason = slots, _ANEW
        exists = self._state.graph.vertices
        for slot, label in zip(slots.tolist(), self._names, strict=True):
            if slot >= len(exists) or not exists[slot]:
                raise InputError(f"{self._option}: {label} is not a vertex of the graph now")

    @abstractmethod
    def _fit(self, size: int) -> None:
        """Make space for vertices."""

    def _limit(self) -> float:
        """Return how much work takes as long as a full pass, which `_LEAST` is added to."""
        return self.price * (self._seen.edges + np.count_nonzero(self._seen.vertices))

    @abstractmethod
    def _follow(self, difference: Difference, limit: float) -> float:
        """Follow changes, and return the work; once that exceeds a limit, only put the rest into the rows."""

    def _lost(self) -> str | None:
        """Return why a full pass is to be made although changes were followed."""
        return None

    def _rest(self, difference: Difference, done: int) -> None:
        """Put the changes that were not followed into the rows."""
        pairs, before = difference.pairs[done:], difference.before[done:]
        row_kernels.put_all(self._seen.net, pairs, before, difference.weights)

    @abstractmethod
    def _pass(self) -> None:
        """Make a full pass over the graph."""

    @abstractmethod
    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        """Return the result of vertices with their labels."""


_INTERRUPTED, _ANEW = "interrupted", "numbers of vertices are used again"
#: Work that takes as long as a full pass over a graph without edges.
_LEAST = 10_000
#: Full passes, at most, until changes are tried again of which as many took too long.
_LONGEST_PAUSE = 15
