"""Masters of Spark: what their URLs name, and whether they answer."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from goffish.errors import InputError

#: Variable with the URL of a server of Spark Connect, which PySpark reads.
REMOTE = "SPARK_REMOTE"
Kind = Literal["local", "standalone", "yarn", "kubernetes", "connect"]
#: Schemes of masters that listen at an address, and the default ports.
_SCHEMES: dict[str, tuple[Kind, int]] = {
    "spark": ("standalone", 7077), "k8s": ("kubernetes", 443), "sc": ("connect", 15002),
}  # fmt: skip
_ACCEPTED = "local[N], spark://HOST:PORT, yarn, k8s://https://HOST:PORT or sc://HOST:PORT"
#: Seconds in which a master must accept a connection.
_REACH_S = 10.0
#: Parameters of URLs of Spark Connect that are no secrets; all others are sent as headers.
_PLAIN = frozenset({"use_ssl", "user_id", "user_agent", "session_id"})


@dataclass(frozen=True)
class Master:
    """A master of Spark.

    Attributes
    ----------
    url : str
        May hold the token of a server of Spark Connect.
    kind : {"local", "standalone", "yarn", "kubernetes", "connect"}
    addresses : tuple of (str, int)
        Where it listens; any of them is enough.
    """

    url: str = field(repr=False)
    kind: Kind
    addresses: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, url: str, option: str = "master") -> Master:
        """Return what a URL names.

        Raises
        ------
        InputError
            It is not the URL of a master; names the option, and no parameters of the URL.
        """
        if url == "local" or url.startswith(("local[", "local-cluster[")):
            return cls(url, "local")
        if url == "yarn":
            return cls(url, "yarn")
        scheme, found, rest = url.partition("://")
        if found and scheme in _SCHEMES:
            kind, port = _SCHEMES[scheme]
            places = rest.split(",") if kind == "standalone" else [rest.removeprefix("https://")]
            with suppress(ValueError):  # a port that is not a number
                parts = [urlsplit(f"http://{place}") for place in places]
                if all(part.hostname and _is_whole(part, kind) for part in parts):
                    return cls(url, kind, tuple((str(part.hostname), part.port or port) for part in parts))
        raise InputError(f"{option} {url.partition(';')[0]}: not a Spark master; accepted are {_ACCEPTED}")

    @property
    def shown(self) -> str:
        """The URL without parameters, such as tokens."""
        return self.url.partition(";")[0].rstrip("/")

    @property
    def _parameters(self) -> dict[str, str]:
        pairs = (part.partition("=") for part in self.url.split(";")[1:])
        return {name: value for name, _, value in pairs}

    @property
    def has_secrets(self) -> bool:
        """Whether the URL has a token or other headers."""
        return any(name not in _PLAIN for name in self._parameters)

    def hide(self, text: str) -> str:
        """Return a text without the secrets of the URL."""
        for name, value in self._parameters.items():
            if name not in _PLAIN and value:
                text = text.replace(value, "…").replace(unquote(value), "…")
        return text

    def in_session(self, number: str) -> str:
        """Return the URL of a session of Spark Connect, by which another process can end it.

        Parameters
        ----------
        number : str
            UUID of the session.
        """
        address, _, parameters = self.url.partition(";")
        given = ";".join(part for part in parameters.split(";") if part and not part.startswith("session_id="))
        return f"{address.rstrip('/')}/;{given}{';' if given else ''}session_id={number}"

    def check(self) -> None:
        """Check that the master accepts connections; that of YARN is named by files of Hadoop, not by its URL.

        Raises
        ------
        InputError
            It does not.
        """
        problems = []
        for host, port in self.addresses:
            try:
                socket.create_connection((host, port), timeout=_REACH_S).close()
            except OSError as error:
                problems.append(f"{host}:{port} ({error.strerror or error})")
            else:
                return
        if problems:
            raise InputError(f"Spark master {self.shown}: cannot connect to {', '.join(problems)}")


def _is_whole(part: SplitResult, kind: Kind) -> bool:
    """Whether there is nothing but an address, and parameters of Spark Connect."""
    path, _, parameters = part.path.partition(";")
    plain = ";" not in part.netloc and path in ("", "/") and not part.query
    return plain and (kind == "connect" or not parameters)
