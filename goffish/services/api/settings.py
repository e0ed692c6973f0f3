"""Settings of the server and their validation."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from goffish.addresses import is_loopback, split_address
from goffish.errors import InputError
from goffish.partial import local_path
from goffish.services.runners.limits import JobLimits

#: Share of RAM available to all jobs together.
_SHARE = 0.8


@dataclass(frozen=True)
class Settings:
    """Settings of a server.

    Attributes
    ----------
    home : Path
        Folder for jobs, uploads and, by default, the database.
    listen : str
        Address to listen on: ``HOST:PORT`` (port 0: any free port) or ``unix:PATH``.
    data : tuple of Path
        Folders that jobs may read from.
    flows : Path, optional
        Folder of flows that clients may run.
    markets : Path, optional
        Folder of spot markets written by ``goffish spot fit``.
    database : str, optional
        Database URL; default: SQLite in `home`.
    clients : Path, optional
        Client file; default: no authentication, for loopback addresses and Unix sockets only.
    certificate, key : Path, optional
        TLS certificate and private key, in PEM format.
    client_authority : Path, optional
        Certificate authority of clients; enables mutual TLS.
    slots : int
        Maximum number of concurrent jobs.
    spark_master : str, optional
        Spark master URL for jobs with the runner ``spark``; default: that of `spark_properties`, if any.
    spark_properties : Path, optional
        Spark properties file of these jobs.
    spark_storage : str, optional
        Folder or URI that the server and all executors can use, for a master that is not local.
    clouds : Path, optional
        Folder of additional cloud catalogues.
    cloud_speed : float
        Simulated cloud seconds per real second.
    rent : Path, optional
        Description of the provider of machines; see `Rental`.
    rate, burst : float
        Average calls per second per client, and maximum burst.
    max_calls : int
        Maximum concurrent calls per client.
    max_queued, max_queued_per_client : int
        Maximum number of queued jobs, in total and per client.
    max_workers, max_cores, max_memory_mb, max_run_s, max_option, max_storage_mb, max_machines
        Limits per job; see `JobLimits`. Default of the memory: 80 % of RAM divided by `slots`.
    max_message_bytes, max_upload_bytes : int
        Maximum size of a message, and of one upload.
    max_uploads_bytes : int
        Maximum total size of stored uploads.
    max_plan_s : float
        Time limit of a planning call, in seconds.
    max_plan_mb : int
        Memory limit of a planning process, in MB.
    max_streams : int
        Maximum concurrent streams per client.
    grace_s : float
        Grace period for running jobs and calls on shutdown, in seconds.
    keep_days : float, optional
        Retention of ended jobs and their results, in days; default: unlimited.
    traces : str, optional
        Address of an OpenTelemetry collector.
    web : str, optional
        Loopback ``HOST:PORT`` of the dashboard and metrics.
    pass_environment : tuple of str
        Environment variables passed to jobs in addition to those of `goffish.environment`.
    """

    home: Path
    listen: str = "127.0.0.1:7077"
    data: tuple[Path, ...] = ()
    flows: Path | None = None
    markets: Path | None = None
    database: str | None = None
    clients: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    slots: int = 2
    spark_master: str | None = None
    spark_properties: Path | None = None
    spark_storage: str | None = None
    clouds: Path | None = None
    cloud_speed: float = 360.0
    rent: Path | None = None
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
    max_storage_mb: int = 10_240
    max_machines: int = 8
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
            raise InputError("TLS requires both --certificate and --key")
        if self.client_authority is not None and self.certificate is None:
            raise InputError("--client-authority requires --certificate and --key")
        if self.client_authority is not None and self.clients is None:
            raise InputError("--client-authority requires --clients, which assigns roles to certificates")
        if not is_local(self.listen):
            if self.certificate is None:
                raise InputError(f"--listen {self.listen}: not a loopback address; requires --certificate and --key")
            if self.clients is None:
                raise InputError(f"--listen {self.listen}: not a loopback address; requires --clients")
        if self.web is not None and not is_local(self.web):
            raise InputError(f"--web {self.web}: not a loopback address; use 127.0.0.1 behind a TLS proxy")
        for option, folder in [("data", one) for one in self.data] + [("markets", self.markets), ("flows", self.flows)]:
            if folder is not None and not folder.is_dir():
                raise InputError(f"--{option} {folder}: the folder does not exist")
        for name in self.pass_environment:
            if name not in os.environ:
                raise InputError(f"--pass-environment {name}: the environment variable is not set")
        if self.clouds is not None and not self.clouds.is_dir():
            raise InputError(f"--clouds {self.clouds}: the folder does not exist")
        if not 0 < self.cloud_speed <= 1e6:
            raise InputError(f"--cloud-speed {self.cloud_speed:g}: must be more than 0 and at most 1,000,000")
        for option, value, least in (
            ("slots", self.slots, 1), ("max-calls", self.max_calls, 1), ("max-queued", self.max_queued, 1),
            ("max-message", self.max_message_bytes, 1024), ("max-upload", self.max_upload_bytes, 1),
            ("max-uploads", self.max_uploads_bytes, 1), ("max-plan-memory", self.max_plan_mb, 512),
            ("max-streams", self.max_streams, 1), ("max-queued-per-client", self.max_queued_per_client, 1),
            ("max-workers", self.max_workers, 1), ("max-option", self.max_option, 1),
            ("max-cores", self.max_cores, 1), ("max-memory", self.max_memory_mb, 512),
            ("max-storage", self.max_storage_mb, 1), ("max-machines", self.max_machines, 1),
        ):  # fmt: skip
            if value is not None and value < least:
                raise InputError(f"--{option} {value}: must be at least {least}")
        if not 1 <= self.max_plan_s <= 86_400:
            raise InputError(f"--max-plan-time {self.max_plan_s:g}: must be 1 to 86,400 seconds")
        if not self.max_run_s > 0:
            raise InputError(f"--max-run-time {self.max_run_s:g}: must be more than 0 seconds")
        if not (self.rate > 0 and self.burst >= 1 and self.grace_s >= 0):
            raise InputError("--max-call-rate must be more than 0, and --grace at least 0")

    @property
    def database_url(self) -> str:
        """URL of the database; by default, SQLite in `home`."""
        return self.database or f"sqlite:///{self.home / 'jobs.sqlite'}"

    @property
    def job_limits(self) -> JobLimits:
        """Limits per job."""
        memory = self.max_memory_mb
        if memory is None:
            memory = max(512, int(psutil.virtual_memory().total * _SHARE / self.slots) >> 20)
        return JobLimits(
            self.max_workers, self.max_cores, memory, self.max_run_s, self.max_option, self.max_storage_mb,
            self.max_machines,
        )  # fmt: skip


def is_local(address: str) -> bool:
    """Return whether an address is a loopback address or a Unix socket.

    Raises
    ------
    InputError
        The address is malformed.
    """
    if address.startswith("unix:"):
        return True
    found = split_address(address)
    if found is None:
        raise InputError(f"{address}: give HOST:PORT or unix:PATH")
    return is_loopback(found[0])
