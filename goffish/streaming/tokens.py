"""Secrets that users give as such, or by the name of an environment variable."""

from __future__ import annotations

import os

from goffish.errors import InputError


def given_secret(given: str | None, owner: str) -> str | None:
    """Return a secret, read from the environment if ``env:NAME`` is given.

    Parameters
    ----------
    given : str, optional
    owner : str
        What it belongs to, for messages.

    Raises
    ------
    InputError
        The environment variable is not set.
    """
    if given is None or not given.startswith("env:"):
        return given
    name = given.removeprefix("env:")
    if name not in os.environ:
        raise InputError(f"{owner}: the environment variable {name} is not set")
    return os.environ[name]
