"""Windows over event time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.times import Duration, Times, microseconds


@dataclass(frozen=True)
class Window:
    """Intervals of event time in which records are combined; see `tumbling`, `sliding` and `session`.

    Attributes
    ----------
    size, slide : int
        Microseconds. Windows start at the multiples of `slide`.
    gap : int
        Microseconds without a record that end a session; 0 for other windows.
    """

    size: int
    slide: int
    gap: int = 0

    def starts(self, times: Times) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Iterate over the windows of records.

        Parameters
        ----------
        times : array of int64
            Event times in microseconds.

        Yields
        ------
        start : int
        places : array of int
            Records in the window.
        """
        last = times - times % self.slide
        for back in range(-(-self.size // self.slide)):
            starts = last - back * self.slide
            inside = np.flatnonzero(starts + self.size > times)
            if not len(inside):
                continue
            found = starts[inside]
            if found[0] == found[-1] and np.all(found == found[0]):
                yield int(found[0]), inside
                continue
            order = np.argsort(found, kind="stable")
            cuts = np.flatnonzero(np.diff(found[order])) + 1
            for part in np.split(order, cuts):
                yield int(found[part[0]]), inside[part]

    def last_end(self, times: Times) -> Times:
        """Return the end of the last window that holds each record.

        Parameters
        ----------
        times : array of int64
            Event times in microseconds.

        Returns
        -------
        array of int64
        """
        end: Times = times - times % self.slide + self.size
        return end


def tumbling(size: Duration) -> Window:
    """Return windows of one size that follow each other.

    Parameters
    ----------
    size : str, float or timedelta
        Duration such as ``"1min"``, or seconds.

    Returns
    -------
    Window

    Raises
    ------
    InputError
        The size is not positive.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.tumbling("1min")
    Window(size=60000000, slide=60000000, gap=0)
    """
    micros = microseconds(size, "tumbling window: size")
    return Window(micros, micros)


def sliding(size: Duration, slide: Duration) -> Window:
    """Return windows of one size that start every `slide`, so that they overlap.

    Parameters
    ----------
    size, slide : str, float or timedelta
        Durations such as ``"1min"``, or seconds.

    Returns
    -------
    Window

    Raises
    ------
    InputError
        A duration is not positive, or `slide` exceeds `size`.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.sliding("1min", "20s").slide
    20000000
    """
    micros, step = microseconds(size, "sliding window: size"), microseconds(slide, "sliding window: slide")
    if step > micros:
        raise InputError(f"sliding window: slide = {slide!r} exceeds size = {size!r}; records between would be lost")
    return Window(micros, step)


def session(gap: Duration) -> Window:
    """Return windows of every key that end after a gap without records.

    Parameters
    ----------
    gap : str, float or timedelta
        Duration such as ``"30min"``, or seconds.

    Returns
    -------
    Window

    Raises
    ------
    InputError
        The gap is not positive.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.session("30min").gap
    1800000000
    """
    micros = microseconds(gap, "session window: gap")
    return Window(micros, micros, micros)
