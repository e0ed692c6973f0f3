"""The exceptions that GoFFish raises on purpose; each names what the user can do about it."""

from __future__ import annotations

from os import PathLike


class GoffishError(Exception):
    """Base class of every error that GoFFish raises on purpose.

    The command line prints the message on one line and ends with `exit_code`.
    """

    exit_code = 1


class InputError(GoffishError, ValueError):
    """Something that the user gave cannot be used: an option, a label, a weight, an array."""

    exit_code = 2


class FormatError(InputError):
    """A file does not follow its format.

    Parameters
    ----------
    path
        The file.
    line
        One-based line number, or ``None`` where lines mean nothing.
    problem
        What is wrong and what is accepted, in one sentence.
    text
        The offending line or field, quoted (and shortened) in the message.
    """

    def __init__(self, path: str | PathLike[str], line: int | None, problem: str, text: str | None = None) -> None:
        self.path, self.line, self.problem, self.text = str(path), line, problem, text
        where = f"{path}:{line}" if line is not None else f"{path}"
        shown = "" if text is None else f": {text[:80]!r}{'…' if len(text) > 80 else ''}"
        super().__init__(f"{where}: {problem}{shown}")


class StoreError(InputError):
    """A store is missing, damaged, foreign, or written by a newer version."""


class CheckpointError(StoreError):
    """A checkpoint is damaged; what it was of can be done again from the beginning."""


class JobError(GoffishError):
    """A job failed while it ran; the message names program, subgraph and superstep."""


class GoffishWarning(UserWarning):
    """Something that the user gave has no effect; the command line prints the message on one line and goes on."""


class DataError(JobError, InputError):
    """A job met data that it cannot use, such as a damaged slice or a value out of range; the message says where."""
