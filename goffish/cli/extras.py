"""Parts that are installed on request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goffish.errors import InputError


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say in one line which extra is missing, where an import inside finds nothing.

    Raises
    ------
    InputError
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("goffish.") and "_pb2" not in (error.name or ""):
            raise
        raise InputError(f"{error.name} is not installed here: pip install 'goffish[{extra}]'") from None
