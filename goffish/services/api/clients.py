"""Who may call: tokens and certificates of clients, and what each of them may do."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from goffish.definitions import Definition, read_definition
from goffish.errors import InputError
from goffish.services.runners.folder import write_whole

_log = logging.getLogger(__name__)
#: Seconds between two looks at the file of clients.
_LOOK_S = 1.0


class Role(IntEnum):
    """What a client may do; each role may do all that those before it may."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


class Client(Definition):
    """One who may call.

    Attributes
    ----------
    name : str
        By which jobs and limits are kept.
    role : {"read", "submit", "admin"}
    token_sha256 : str, optional
        Of the token, hexadecimal. The token itself is not kept.
    certificate : str, optional
        Common name of a certificate of the server's authority for clients (mutual TLS).
    """

    name: Annotated[str, Field(min_length=1, max_length=120)]
    role: Literal["read", "submit", "admin"]
    token_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    certificate: Annotated[str, Field(min_length=1)] | None = None

    @property
    def rank(self) -> Role:
        """The role, so that it can be compared."""
        return Role[self.role.upper()]


class ClientList(Definition):
    """The file of clients."""

    clients: tuple[Client, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> ClientList:
        for what in ("name", "token_sha256", "certificate"):
            seen = [getattr(client, what) for client in self.clients if getattr(client, what) is not None]
            if len(set(seen)) < len(seen):
                raise ValueError(f"two clients have the same {what}")
        return self


#: Who calls a server without any clients, which only listens on this computer.
ANYBODY = Client(name="local", role="admin")


class Clients:
    """All who may call.

    Parameters
    ----------
    known : ClientList, optional
        Default: everybody is `ANYBODY`.
    """

    def __init__(self, known: ClientList | None = None) -> None:
        self._open = known is None
        self.replace(ClientList() if known is None else known)

    def replace(self, known: ClientList) -> None:
        """From now on these may call, and nobody else."""
        self._all = known.clients
        self._by_token = {c.token_sha256: c for c in known.clients if c.token_sha256 is not None}
        self._by_certificate = {c.certificate: c for c in known.clients if c.certificate is not None}

    def has(self, client: Client) -> bool:
        """Whether a client that was found before may still call, with the same role and the same token."""
        return client in self._all

    def find(self, authorization: str | None, certificate: str | None) -> Client | None:
        """Who it is, from what came with the call; ``None``: nobody that is known."""
        if self._open:
            return ANYBODY
        if authorization is not None:
            kind, _, token = authorization.partition(" ")
            return self._by_token.get(digest(token.strip())) if kind.lower() == "bearer" else None
        return None if certificate is None else self._by_certificate.get(certificate)


def digest(token: str) -> str:
    """What is kept of a token. Tokens are long and random, so that nobody finds one for a digest."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_clients(path: Path) -> ClientList:
    """The clients of a file.

    Raises
    ------
    InputError
        In one line: the file, the field and what is accepted; also for a file that others may read.
    """
    if path.exists() and path.stat().st_mode & 0o077:
        raise InputError(f"{path}: others may read it; chmod 600 {path}")
    return read_definition(ClientList, path, "clients", "clients")


async def follow(path: Path, clients: Clients) -> None:
    """Replace the clients whenever their file changes; a file that cannot be used changes nothing, and is logged."""
    seen = _stamp(path)
    while True:
        await asyncio.sleep(_LOOK_S)
        stamp = _stamp(path)
        if stamp == seen:
            continue
        seen = stamp
        try:
            known = read_clients(path)
        except InputError as error:
            _log.error("the clients stay as they were: %s", error)
        else:
            clients.replace(known)
            _log.info("%d clients read from %s", len(known.clients), path)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode


def add_client(path: Path, name: str, role: str, certificate: str | None = None, with_token: bool = False) -> str:
    """Add a client to a file, which is made if there is none.

    Parameters
    ----------
    path : Path
    name, role : str
    certificate : str, optional
        Common name.
    with_token : bool
        A token as well as a certificate. Without a certificate there always is one.

    Returns
    -------
    str
        Its token; empty: it has none.

    Raises
    ------
    InputError
        There is one of that name, or the file cannot be used.
    """
    with _changed(path) as clients:
        if any(client.name == name for client in clients):
            raise InputError(f"{path}: there is a client {name!r} already")
        token = secrets.token_urlsafe(32) if certificate is None or with_token else ""
        proof = ({"token_sha256": digest(token)} if token else {}) | (
            {"certificate": certificate} if certificate else {}
        )
        clients.append(read_definition(Client, {"name": name, "role": role} | proof, f"client {name}", "name and role"))
    return token


def remove_client(path: Path, name: str) -> None:
    """Remove a client from a file; a running server refuses its calls within two seconds.

    Raises
    ------
    InputError
        There is none of that name, or the file cannot be used.
    """
    with _changed(path, make=False) as clients:
        clients.remove(_named(path, clients, name))


def rotate_token(path: Path, name: str) -> str:
    """Replace the token of a client, which keeps its name, role, certificate and jobs.

    Returns
    -------
    str
        The new token; the old one is refused by a running server within two seconds.

    Raises
    ------
    InputError
        There is none of that name, it has no token, or the file cannot be used.
    """
    with _changed(path, make=False) as clients:
        old = _named(path, clients, name)
        if old.token_sha256 is None:
            raise InputError(f"{path}: {name!r} has a certificate and no token; replace its certificate")
        token = secrets.token_urlsafe(32)
        clients[clients.index(old)] = old.model_copy(update={"token_sha256": digest(token)})
    return token


def _named(path: Path, clients: list[Client], name: str) -> Client:
    found = next((client for client in clients if client.name == name), None)
    if found is None:
        known = ", ".join(client.name for client in clients) or "none"
        raise InputError(f"{path}: no client {name!r}; there are: {known}")
    return found


@contextmanager
def _changed(path: Path, *, make: bool = True) -> Iterator[list[Client]]:
    """The clients of a file, which is written anew at the end; two programs that change it take turns."""
    import yaml

    try:
        folder = os.open(path.absolute().parent, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        clients = list(read_clients(path).clients) if path.exists() or not make else []
        yield clients
        body = ClientList(clients=tuple(clients)).model_dump(exclude_none=True, mode="json")
        write_whole(path, yaml.safe_dump(body, sort_keys=False), mode=0o600)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        os.close(folder)
