"""How a server is set up; what it refuses to be."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from goffish.errors import InputError


@dataclass(frozen=True)
class Settings:
    """Of a server.

    Attributes
    ----------
    home : Path
        Where jobs, uploads and, by default, the database are.
    listen : str
        ``HOST:PORT`` (port 0: any that is free) or ``unix:PATH``.
    data : tuple of Path
        Folders below which jobs may read.
    markets : Path, optional
        Folder of spot markets that ``goffish spot fit`` has written.
    database : str, optional
        URL; default: SQLite below `home`.
    clients : Path, optional
        File of clients; default: everybody may do everything, which only a server on loopback allows.
    certificate, key : Path, optional
        For TLS.
    client_authority : Path, optional
        Certificates of clients must be of this authority (mutual TLS).
    slots : int
        Jobs at a time.
    spark_master : str, optional
        Where ``spark`` jobs go.
    clouds : Path, optional
        Folder of the operator's own catalogues.
    cloud_pace : float
        Seconds that pass in the simulated cloud in a second.
    rate, burst : float
        Calls per second of each client, and at once.
    calls_at_a_time : int
        Of each client.
    most_waiting : int
        Jobs in the queue.
    most_message_bytes, most_upload_bytes : int
        Of one message, and of one upload.
    most_uploads_bytes : int
        Of all uploads that are kept.
    most_plan_s : float
        For a plan that takes a process of its own.
    grace_s : float
        For calls and jobs that run when the server is asked to stop.
    keep_days : float, optional
        After so long jobs that are over are forgotten, with their results; default: never.
    traces : str, optional
        Address of an OpenTelemetry collector.
    web : str, optional
        ``HOST:PORT`` of the dashboard and metrics.
    """

    home: Path
    listen: str = "127.0.0.1:7077"
    data: tuple[Path, ...] = ()
    markets: Path | None = None
    database: str | None = None
    clients: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    slots: int = 2
    spark_master: str | None = None
    clouds: Path | None = None
    cloud_pace: float = 360.0
    rate: float = 5000.0
    burst: float = 5000.0
    calls_at_a_time: int = 2000
    most_waiting: int = 100_000
    most_message_bytes: int = 4 << 20
    most_upload_bytes: int = 1 << 30
    most_uploads_bytes: int = 10 << 30
    most_plan_s: float = 300.0
    grace_s: float = 10.0
    keep_days: float | None = None
    traces: str | None = None
    web: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InputError("TLS: give both --certificate and --key")
        if self.client_authority is not None and self.certificate is None:
            raise InputError("--client-authority: needs --certificate and --key")
        if self.client_authority is not None and self.clients is None:
            raise InputError("--client-authority: give --clients, which says what each of them may do")
        if not is_local(self.listen):
            if self.certificate is None:
                raise InputError(f"--listen {self.listen}: others can reach it; give --certificate and --key")
            if self.clients is None:
                raise InputError(f"--listen {self.listen}: others can reach it; give --clients")
        if self.web is not None and not is_local(self.web):
            raise InputError(f"--web {self.web}: others can reach it; put a proxy with TLS in front of 127.0.0.1")
        for option, folder in [("data", one) for one in self.data] + [("markets", self.markets)]:
            if folder is not None and not folder.is_dir():
                raise InputError(f"--{option} {folder}: no such folder")
        if self.clouds is not None and not self.clouds.is_dir():
            raise InputError(f"--clouds {self.clouds}: no such folder")
        if not 0 < self.cloud_pace <= 1e6:
            raise InputError(f"--cloud-pace {self.cloud_pace:g}: more than 0 and at most 1,000,000")
        for option, value, least in (
            ("slots", self.slots, 1), ("at-a-time", self.calls_at_a_time, 1), ("most-waiting", self.most_waiting, 1),
            ("most-message", self.most_message_bytes, 1024), ("most-upload", self.most_upload_bytes, 1),
            ("most-uploads", self.most_uploads_bytes, 1),
        ):  # fmt: skip
            if value < least:
                raise InputError(f"--{option} {value}: at least {least}")
        if not 1 <= self.most_plan_s <= 86_400:
            raise InputError(f"--most-plan {self.most_plan_s:g}: 1 to 86,400 seconds")
        if not (self.rate > 0 and self.burst >= 1 and self.grace_s >= 0):
            raise InputError("--rate, --burst, --grace: more than 0, at least 1, at least 0")

    @property
    def database_url(self) -> str:
        """The database, or the one below `home`."""
        return self.database or f"sqlite:///{self.home / 'jobs.sqlite'}"


def is_local(address: str) -> bool:
    """Whether only programs of this computer can reach an address.

    Raises
    ------
    InputError
        It is no address.
    """
    if address.startswith("unix:"):
        return True
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or not host:
        raise InputError(f"{address}: give HOST:PORT or unix:PATH")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
