"""How a server is set up; what it refuses to be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from goffish.addresses import is_loopback, split_address
from goffish.errors import InputError
from goffish.partial import local_path
from goffish.services.runners.limits import JobLimits

#: Part of the memory of this computer that jobs may take together.
_SHARE = 0.8


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
    cloud_speed : float
        Seconds that pass in the simulated cloud in a second.
    rate, burst : float
        Calls per second of each client, and at once.
    max_calls : int
        Of each client.
    max_queued, max_queued_per_client : int
        Jobs in the queue, and of each client.
    max_workers, max_cores, max_memory_mb, max_run_s, max_option
        Of a job; see `JobLimits`. Default of the memory: 80 % of this computer's, shared among all slots.
    max_message_bytes, max_upload_bytes : int
        Of one message, and of one upload.
    max_uploads_bytes : int
        Of all uploads that are kept.
    max_plan_s : float
        For a plan that takes a process of its own.
    max_plan_mb : int
        Memory of such a process.
    max_streams : int
        Calls of each client at a time whose answers are streams.
    grace_s : float
        For calls and jobs that run when the server is asked to stop.
    keep_days : float, optional
        After so long jobs that are over are forgotten, with their results; default: never.
    traces : str, optional
        Address of an OpenTelemetry collector.
    web : str, optional
        ``HOST:PORT`` of the dashboard and metrics.
    pass_environment : tuple of str
        Environment variables that jobs get besides those of `goffish.environment`.
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
    cloud_speed: float = 360.0
    rate: float = 5000.0
    burst: float = 5000.0
    max_calls: int = 2000
    max_queued: int = 100_000
    max_queued_per_client: int = 10_000
    max_workers: int = field(default_factory=lambda: max(8, os.cpu_count() or 1))
    max_cores: int | None = None
    max_memory_mb: int | None = None
    max_run_s: float = 86_400.0
    max_option: int = 10_000_000
    max_message_bytes: int = 4 << 20
    max_upload_bytes: int = 1 << 30
    max_uploads_bytes: int = 10 << 30
    max_plan_s: float = 300.0
    max_plan_mb: int = 2048
    max_streams: int = 100
    grace_s: float = 10.0
    keep_days: float | None = None
    traces: str | None = None
    web: str | None = None
    pass_environment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        local_path(self.home)
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
        for name in self.pass_environment:
            if name not in os.environ:
                raise InputError(f"--pass-environment {name}: no such environment variable is set")
        if self.clouds is not None and not self.clouds.is_dir():
            raise InputError(f"--clouds {self.clouds}: no such folder")
        if not 0 < self.cloud_speed <= 1e6:
            raise InputError(f"--cloud-speed {self.cloud_speed:g}: more than 0 and at most 1,000,000")
        for option, value, least in (
            ("slots", self.slots, 1), ("at-a-time", self.max_calls, 1), ("most-waiting", self.max_queued, 1),
            ("most-message", self.max_message_bytes, 1024), ("most-upload", self.max_upload_bytes, 1),
            ("most-uploads", self.max_uploads_bytes, 1), ("most-plan-memory", self.max_plan_mb, 512),
            ("most-streams", self.max_streams, 1), ("most-queued", self.max_queued_per_client, 1),
            ("most-workers", self.max_workers, 1), ("most-option", self.max_option, 1),
            ("most-cores", self.max_cores, 1), ("most-memory", self.max_memory_mb, 512),
        ):  # fmt: skip
            if value is not None and value < least:
                raise InputError(f"--{option} {value}: at least {least}")
        if not 1 <= self.max_plan_s <= 86_400:
            raise InputError(f"--max-plan-time {self.max_plan_s:g}: 1 to 86,400 seconds")
        if not self.max_run_s > 0:
            raise InputError(f"--max-run-time {self.max_run_s:g}: more than 0 seconds")
        if not (self.rate > 0 and self.burst >= 1 and self.grace_s >= 0):
            raise InputError("--rate, --burst, --grace: more than 0, at least 1, at least 0")

    @property
    def database_url(self) -> str:
        """The database, or the one below `home`."""
        return self.database or f"sqlite:///{self.home / 'jobs.sqlite'}"

    @property
    def job_limits(self) -> JobLimits:
        """What a job may take."""
        memory = self.max_memory_mb
        if memory is None:
            memory = max(512, int(psutil.virtual_memory().total * _SHARE / self.slots) >> 20)
        return JobLimits(self.max_workers, self.max_cores, memory, self.max_run_s, self.max_option)


def is_local(address: str) -> bool:
    """Whether only programs of this computer can reach an address.

    Raises
    ------
    InputError
        It is no address.
    """
    if address.startswith("unix:"):
        return True
    found = split_address(address)
    if found is None:
        raise InputError(f"{address}: give HOST:PORT or unix:PATH")
    return is_loopback(found[0])
