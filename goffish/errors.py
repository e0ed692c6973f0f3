"""Exceptions of GoFFish; each message states the problem and its solution in one line."""

from __future__ import annotations

from os import PathLike


class GoffishError(Exception):
    """Base class of all errors of GoFFish.

    The command line prints the message on one line and exits with `exit_code`.
    """

    exit_code = 1


class InputError(GoffishError, ValueError):
    """Invalid input, such as an option, a label, a weight or an array."""

    exit_code = 2


class FormatError(InputError):
    """A file does not follow its format.

    Parameters
    ----------
    path
        The file.
    line
        One-based line number, or ``None`` for binary files.
    problem
        The problem and the accepted values, in one sentence.
    text
        Invalid line or field, quoted and shortened in the message.
    """

    def __init__(self, path: str | PathLike[str], line: int | None, problem: str, text: str | None = None) -> None:
        self.path, self.line, self.problem, self.text = str(path), line, problem, text
        where = f"{path}:{line}" if line is not None else f"{path}"
        shown = "" if text is None else f": {text[:80]!r}{'…' if len(text) > 80 else ''}"
        super().__init__(f"{where}: {problem}{shown}")


class StoreError(InputError):
    """A store is missing, damaged, or written by a newer version or another program."""


class CheckpointError(StoreError):
    """A checkpoint is damaged; the job can be restarted from the beginning."""


class JobError(GoffishError):
    """A job failed; the message names the program, subgraph and superstep."""


class GoffishWarning(UserWarning):
    """An input has no effect; the command line prints the message on one line and continues."""


class DataError(JobError, InputError):
    """Data of a job are invalid, such as a damaged slice or a value out of range; the message names the location."""
