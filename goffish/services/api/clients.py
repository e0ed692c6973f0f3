"""Authentication and authorization: tokens, certificates and roles of clients."""

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
from goffish.environment import check_private
from goffish.errors import InputError
from goffish.services.runners.folder import write_whole

_log = logging.getLogger(__name__)
#: Polling interval of the client file, in seconds.
_LOOK_S = 1.0


class Role(IntEnum):
    """Role of a client; each includes the rights of the previous ones."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


class Client(Definition):
    """Client of the service.

    Attributes
    ----------
    name : str
        Owner of jobs and limits.
    role : {"read", "submit", "admin"}
    token_sha256 : str, optional
        SHA-256 of the token, in hexadecimal. The token itself is not stored.
    certificate : str, optional
        Common name of the client certificate (mutual TLS).
    """

    name: Annotated[str, Field(min_length=1, max_length=120)]
    role: Literal["read", "submit", "admin"]
    token_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    certificate: Annotated[str, Field(min_length=1)] | None = None

    @property
    def rank(self) -> Role:
        """Role as a comparable value."""
        return Role[self.role.upper()]


class ClientList(Definition):
    """Content of the client file."""

    clients: tuple[Client, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> ClientList:
        for what in ("name", "token_sha256", "certificate"):
            seen = [getattr(client, what) for client in self.clients if getattr(client, what) is not None]
            if len(set(seen)) < len(seen):
                raise ValueError(f"two clients have the same {what}")
        return self


#: Client of all calls to a server without a client file, which listens on this machine only.
LOCAL_CLIENT = Client(name="local", role="admin")


class Clients:
    """Registry of clients.

    Parameters
    ----------
    known : ClientList, optional
        Default: all callers are `LOCAL_CLIENT`.
    """

    def __init__(self, known: ClientList | None = None) -> None:
        self._open = known is None
        self.replace(ClientList() if known is None else known)

    def replace(self, known: ClientList) -> None:
        """Replace all clients."""
        self._all = known.clients
        self._by_token = {c.token_sha256: c for c in known.clients if c.token_sha256 is not None}
        self._by_certificate = {c.certificate: c for c in known.clients if c.certificate is not None}

    def has(self, client: Client) -> bool:
        """Return whether a client is still registered with the same role and credentials."""
        return client in self._all

    def find(self, authorization: str | None, certificate: str | None) -> Client | None:
        """Return the client of a call by token or certificate, or ``None`` if unknown."""
        if self._open:
            return LOCAL_CLIENT
        if authorization is not None:
            kind, _, token = authorization.partition(" ")
            return self._by_token.get(digest(token.strip())) if kind.lower() == "bearer" else None
        return None if certificate is None else self._by_certificate.get(certificate)


def digest(token: str) -> str:
    """Return the SHA-256 of a token. Tokens are random and long, so no salt is required."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_clients(path: Path) -> ClientList:
    """Read a client file.

    Raises
    ------
    InputError
        The file is invalid, or readable by other users; names the file, the field and the accepted values.
    """
    if path.exists():
        check_private(path)
    return read_definition(ClientList, path, "clients", "clients")


async def follow(path: Path, clients: Clients) -> None:
    """Reload clients when their file changes; log an invalid file and keep the current clients."""
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
            _log.error("client file not reloaded, previous clients remain active: %s", error)
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
    """Add a client to a file; create the file if it does not exist.

    Parameters
    ----------
    path : Path
    name, role : str
    certificate : str, optional
        Common name of the certificate.
    with_token : bool
        Create a token in addition to a certificate. Clients without a certificate always have a token.

    Returns
    -------
    str
        The token, or an empty string if the client has none.

    Raises
    ------
    InputError
        The name exists, or the file is invalid.
    """
    with _changed(path) as clients:
        if any(client.name == name for client in clients):
            raise InputError(f"{path}: client {name!r} already exists")
        token = secrets.token_urlsafe(32) if certificate is None or with_token else ""
        proof = ({"token_sha256": digest(token)} if token else {}) | (
            {"certificate": certificate} if certificate else {}
        )
        clients.append(read_definition(Client, {"name": name, "role": role} | proof, f"client {name}", "name and role"))
    return token


def remove_client(path: Path, name: str) -> None:
    """Remove a client from a file; a running server rejects its calls within two seconds.

    Raises
    ------
    InputError
        The name is unknown, or the file is invalid.
    """
    with _changed(path, make=False) as clients:
        clients.remove(_named(path, clients, name))


def rotate_token(path: Path, name: str) -> str:
    """Replace the token of a client; keep its name, role, certificate and jobs.

    Returns
    -------
    str
        The new token; a running server rejects the old one within two seconds.

    Raises
    ------
    InputError
        The name is unknown, the client has no token, or the file is invalid.
    """
    with _changed(path, make=False) as clients:
        old = _named(path, clients, name)
        if old.token_sha256 is None:
            raise InputError(f"{path}: client {name!r} has a certificate but no token; replace its certificate")
        token = secrets.token_urlsafe(32)
        clients[clients.index(old)] = old.model_copy(update={"token_sha256": digest(token)})
    return token


def _named(path: Path, clients: list[Client], name: str) -> Client:
    found = next((client for client in clients if client.name == name), None)
    if found is None:
        known = ", ".join(client.name for client in clients) or "none"
        raise InputError(f"{path}: unknown client {name!r}; clients: {known}")
    return found


@contextmanager
def _changed(path: Path, *, make: bool = True) -> Iterator[list[Client]]:
    """Edit the clients of a file under an exclusive lock, and rewrite the file at the end."""
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
