"""Exceptions that GoFFish raises on purpose."""

from __future__ import annotations

from os import PathLike


class GoffishError(Exception):
    """Base class of all errors that GoFFish raises on purpose.

    The command line prints the message on one line and exits with `exit_code`.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line: 1, or 2 for invalid input.
    """

    exit_code = 1


class InputError(GoffishError, ValueError):
    """An argument, option, label, weight or array is invalid. Also a `ValueError`."""

    exit_code = 2


class FormatError(InputError):
    """The content of a file does not follow its format.

    Parameters
    ----------
    path : str or path-like
        The file.
    line : int or None
        One-based line number, or ``None`` in a binary format.
    problem : str
        What is wrong and what is accepted, in one sentence.
    text : str, optional
        The invalid line or field; quoted in the message, up to 80 characters.
    """

    def __init__(self, path: str | PathLike[str], line: int | None, problem: str, text: str | None = None) -> None:
        self.path, self.line, self.problem, self.text = str(path), line, problem, text
        where = f"{path}:{line}" if line is not None else f"{path}"
        shown = "" if text is None else f": {text[:80]!r}{'…' if len(text) > 80 else ''}"
        super().__init__(f"{where}: {problem}{shown}")


class StoreError(InputError):
    """A store is missing, damaged, not a GoFFish store, or written by a newer version."""


class CheckpointError(StoreError):
    """A checkpoint is damaged; run the job again from the beginning."""


class JobError(GoffishError):
    """A job failed; the message names the program, subgraph and superstep."""


class GoffishWarning(UserWarning):
    """An argument has no effect. The command line prints the message on one line and continues."""


class DataError(JobError, InputError):
    """A job read invalid data, such as a damaged slice or a value out of range; the message names its place."""
