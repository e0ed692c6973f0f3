"""Display in Jupyter notebooks: HTML tables, and a progress bar for long work."""

from __future__ import annotations

import html
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

#: Rows and cells beyond these are left out.
MOST_ROWS, _MOST_CHARACTERS = 10, 120
#: Seconds before a bar appears, and between two updates.
_QUIET_S, _EVERY_S = 0.5, 0.2
_SHARE = re.compile(r"([\d.]+) %")


def in_notebook() -> bool:
    """Whether this process is the kernel of a Jupyter notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


def show_figures() -> None:
    """Let the notebook display figures of matplotlib that pyplot did not make."""
    from IPython.core.pylabtools import select_figure_formats

    select_figure_formats(sys.modules["IPython"].get_ipython(), {"png"})


def facts_html(title: str, facts: Mapping[str, Any]) -> str:
    """A caption and one line per fact.

    Parameters
    ----------
    title : str
    facts : mapping
        Names and values.

    Returns
    -------
    str
        HTML; everything in it is escaped.
    """
    left = "style='text-align:left'"
    rows = "".join(f"<tr><th {left}>{_text(name)}</th>{_cell(value)}</tr>" for name, value in facts.items())
    return f"<table><caption {left}><b>{_text(title)}</b></caption><tbody>{rows}</tbody></table>"


def rows_html(columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int) -> str:
    """The first rows of a table, with the number of those left out.

    Parameters
    ----------
    columns : sequence of str
    rows : sequence of sequences
        At most `MOST_ROWS` are shown.
    total : int
        Rows of the complete table.

    Returns
    -------
    str
        HTML; everything in it is escaped.
    """
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    shown = rows[:MOST_ROWS]
    # Integers are mostly labels: without separators.
    text = [[str(value) if type(value) is int else value for value in row] for row in shown]
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in text)
    rest = f"<div>{total - len(shown):,} more rows</div>" if total > len(shown) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


@contextmanager
def bar(title: str) -> Iterator[Callable[[str, float | None], None]]:
    """Show a progress bar below the cell while work lasts longer than half a second.

    Parameters
    ----------
    title : str
        What is being done.

    Yields
    ------
    callable
        Takes a line of text, and the share that is done, from 0 to 1, or None where it is not known.
    """
    from IPython.display import HTML, display

    handle: Any = None
    shown = time.monotonic() + _QUIET_S - _EVERY_S

    def update(text: str, share: float | None = None) -> None:
        nonlocal handle, shown
        if time.monotonic() < shown + _EVERY_S:
            return
        shown = time.monotonic()
        value = "" if share is None else f" value='{min(1.0, max(0.0, share)):.4f}'"
        line = HTML(f"<progress max='1'{value} style='width:16em'></progress> {_text(title)}{_text(text)}")
        if handle is None:
            handle = display(line, display_id=True)
        else:
            handle.update(line)

    try:
        yield update
    finally:
        if handle is not None:
            handle.update(HTML(""))


@contextmanager
def following(title: str) -> Iterator[tuple[Callable[[int, int, int, float | None], None], Callable[[str], None]]]:
    """Show a bar for an algorithm; yields callbacks for supersteps of the engine and for lines of text of kernels."""
    with bar(title) as update:

        def superstep(number: int, active: int, messages: int, share: float | None) -> None:
            update(f": superstep {number}, {active:,} subgraphs, {messages:,} messages", share)

        def note(text: str) -> None:
            share = _SHARE.search(text)
            update(f": {text}", None if share is None else float(share[1]) / 100.0)

        yield superstep, note


@contextmanager
def reading(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar for a file; yields a callback that takes the bytes read and their total."""
    with bar(title) as update:
        yield lambda done, total: update(f": {done / 1e6:,.0f} MB", done / total if total else None)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return html.escape(text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…")


def _cell(value: Any) -> str:
    side = "right" if isinstance(value, int | float) and not isinstance(value, bool) else "left"
    return f"<td style='text-align:{side}'>{'' if value is None else _text(value)}</td>"
