"""Server: assembly, startup and graceful shutdown."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import resource
import secrets
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from goffish.addresses import check_free, in_digits
from goffish.environment import child_environment
from goffish.errors import InputError, JobError
from goffish.services.api.calls import FairThreads, Shared
from goffish.services.api.catalog_service import CatalogService
from goffish.services.api.clients import Clients, follow, read_clients
from goffish.services.api.feeds import Feeds
from goffish.services.api.flow_service import FlowService
from goffish.services.api.guard import Guard
from goffish.services.api.inputs import Inputs
from goffish.services.api.job_service import JobService
from goffish.services.api.limits import Limits
from goffish.services.api.planners import Planners
from goffish.services.api.planning_service import PlanningService
from goffish.services.api.settings import Settings
from goffish.services.api.spot_advice import Markets
from goffish.services.api.telemetry import Metrics, tracing
from goffish.services.api.wire import add_clouds, cloud_by_name
from goffish.services.runners.cloud import CloudRunner
from goffish.services.runners.dataflows import DataflowRunner
from goffish.services.runners.flow_folder import FlowFolder
from goffish.services.runners.flows import FlowRunner
from goffish.services.runners.folder import write_whole
from goffish.services.runners.processes import ProcessRunner, mpi_command
from goffish.services.runners.rental import read_rental
from goffish.services.runners.spark import SparkCluster, SparkRunner
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import AWAY, open_database
from goffish.services.web.dashboard import Dashboard
from goffish.services.web.pages import Pages
from goffish.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    flows_pb2,
    flows_pb2_grpc,
    jobs_pb2,
    jobs_pb2_grpc,
    planning_pb2,
    planning_pb2_grpc,
)


class Symbols:
    """Descriptor pool for gRPC reflection that also finds methods.

    Parameters
    ----------
    pool : DescriptorPool, optional
        Default: the pool of all generated code.
    """

    def __init__(self, pool: Any = None) -> None:
        self._pool = descriptor_pool.Default() if pool is None else pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        """Return the file that defines a symbol.

        Raises
        ------
        KeyError
            The symbol is unknown.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service)
            return found.methods_by_name[method].containing_service.file


_log = logging.getLogger(__name__)
_SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (jobs_pb2, "JobService"),
        (planning_pb2, "PlanningService"),
        (catalog_pb2, "CatalogService"),
        (flows_pb2, "FlowService"),
    )
)
#: Threads for database and disk access, in total and per client.
_THREADS, _THREADS_EACH = 16, 2
#: Requested limit of file descriptors; half of them are for connections.
_FILES = 65_536
#: Calls that gRPC keeps until the server takes them.
_PENDING = 16_384
#: Timeout of TLS and HTTP/2 handshakes, in seconds.
_HANDSHAKE_S = 10
#: Interval of database health checks, in seconds.
_LOOK_S = 1.0


class Server:
    """Scheduling server.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._health = health.aio.HealthServicer()
        self.port = 0

    async def run(self, ready: Callable[[str], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT.

        Parameters
        ----------
        ready : callable, optional
            Called with the address once the server accepts calls; a second line has the address of the dashboard.

        Raises
        ------
        InputError, JobError
        """
        settings = self._settings
        settings.home.mkdir(parents=True, exist_ok=True)
        settings.home.chmod(0o700)
        with _alone(settings.home), tracing(settings.traces) as interceptors:
            await self._serve(ready, interceptors)

    async def _serve(self, ready: Callable[[str], None] | None, interceptors: list[Any]) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        loop.set_default_executor(FairThreads(_THREADS, _THREADS_EACH, "call"))
        feeds, metrics = Feeds(), Metrics()
        feeds.attach(loop)
        engine = open_database(settings.database_url)
        jobs = PatientJobs(engine, server_id(settings.home), heard=feeds.heard)
        metrics.watch(lambda: {str(state): count for state, count in jobs.counts().items()})
        check = Shared(jobs.check)
        inputs = Inputs(settings.data, settings.home / "uploads", settings.max_upload_bytes, settings.max_uploads_bytes)
        most, given = settings.job_limits, child_environment(settings.pass_environment)
        runners: dict[str, Any] = {
            "local": ProcessRunner(inputs.resolve, limits=most, environment=given),
            "mpi": ProcessRunner(inputs.resolve, mpi_command, most, given),
        }
        cluster = SparkCluster.of(settings.spark_master, settings.spark_properties, settings.spark_storage)
        if cluster is not None:
            cluster.check(most, given)
            runners["spark"] = SparkRunner(
                inputs.resolve, cluster.command(most), most, cluster.environment(given), cluster
            )
        if settings.clouds is not None:
            add_clouds(settings.clouds)
        runners["cloud"] = CloudRunner(
            inputs.resolve, cloud_by_name, settings.cloud_speed, limits=most, environment=given
        )
        if settings.rent is not None:
            rental = read_rental(settings.rent)
            rental.check()
            runners["cloud"] = rental.applied(runners["cloud"])
        served = tuple(runners)
        flows = None if settings.flows is None else FlowFolder(settings.flows)
        if flows is not None:
            _log.info("flows in %s: %s", flows.path, ", ".join(flows.files) or "none")
        runners["flow"] = FlowRunner(most, given, flows, inputs.resolve)
        runners["dataflow"] = DataflowRunner(most, given, cloud_by_name)
        keep_s = None if settings.keep_days is None else settings.keep_days * 86_400.0
        supervisor = Supervisor(
            jobs,
            settings.home / "jobs",
            runners,
            slots=settings.slots,
            keep_s=keep_s,
            max_run_s=most.run_s,
            forget=(runners["cloud"].forget,) if cluster is None else (runners["cloud"].forget, cluster.forget),
            tidy=lambda before: inputs.forget(before, jobs.inputs_in_use()),
        )
        clients = Clients(None if settings.clients is None else read_clients(settings.clients))
        limits = Limits(settings.rate, settings.burst, settings.max_calls, streams=settings.max_streams)
        guard = Guard(clients, limits, metrics)
        server = grpc.aio.server(
            interceptors=[*interceptors, guard],
            options=server_options(settings),
        )
        queue = (settings.max_queued, settings.max_queued_per_client)
        service = JobService(jobs, supervisor, inputs, feeds, served, *queue, most, flows)
        flow_service = FlowService(jobs, supervisor, inputs, flows, most)
        jobs_pb2_grpc.add_JobServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        flows_pb2_grpc.add_FlowServiceServicer_to_server(flow_service, server)  # type: ignore[no-untyped-call]
        markets = Markets(settings.markets)
        markets.prepare()
        planners = Planners(settings.slots, settings.max_plan_s, settings.max_plan_mb)
        planning = PlanningService(markets, planners, most.option)
        planning_pb2_grpc.add_PlanningServiceServicer_to_server(planning, server)  # type: ignore[no-untyped-call]
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(CatalogService(markets), server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        described = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(described, server, pool=Symbols())
        self.port = bind(server, settings)
        dashboard = None
        if settings.web is not None:
            pages = Pages(jobs, supervisor, service, flow_service, clients, limits, metrics, check)
            dashboard = Dashboard(settings.web, pages.app(), settings.grace_s)
        stopped = asyncio.Event()
        for kind in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(kind, stopped.set)
        following = None if settings.clients is None else asyncio.create_task(follow(settings.clients, clients))
        await server.start()
        supervisor.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        host = settings.listen.rpartition(":")[0]
        address = settings.listen if settings.listen.startswith("unix:") else f"{host}:{self.port}"
        _log.info("serving on %s", address)
        if dashboard is not None:
            await dashboard.start()
            _log.info("dashboard on %s", dashboard.url)
            address += f"\ndashboard on {dashboard.url}"
        if ready is not None:
            ready(address)
        watching = asyncio.create_task(self._watch(check))
        await stopped.wait()
        watching.cancel()
        # A dedicated thread: all others may be blocked by the database.
        stopping = ThreadPoolExecutor(1, thread_name_prefix="stop")
        _log.info("stopping: no new calls, grace period of %g s for jobs", settings.grace_s)
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(
            server.stop(settings.grace_s), loop.run_in_executor(stopping, supervisor.stop, settings.grace_s),
            *(() if dashboard is None else (dashboard.stop(),)),
        )  # fmt: skip
        if following is not None:
            following.cancel()
        planners.close()
        engine.dispose()
        _log.info("stopped")

    async def _set_health(self, status: Any) -> None:
        for name in ("", *_SERVICES):
            await self._health.set(name, status)

    async def _watch(self, check: Shared[None]) -> None:
        """Check the database periodically; update the health status and log changes."""
        states, well = health_pb2.HealthCheckResponse, True
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await check()
            except AWAY as error:
                if well:
                    problem = getattr(error, "orig", error)
                    _log.error("database unavailable, no jobs are accepted: %s", problem)
                    await self._set_health(states.NOT_SERVING)
                well = False
            else:
                if not well:
                    _log.info("database available again")
                    await self._set_health(states.SERVING)
                well = True


def _open_files() -> int:
    """Raise the soft limit of file descriptors up to `_FILES` if allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(soft, _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def server_options(settings: Settings) -> list[tuple[str, int]]:
    """Return the options of a gRPC server."""
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", max(settings.max_message_bytes, 8 << 20)),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", _open_files() // 2),
        # Subscribers that return together after a restart; gRPC drops calls at random beyond 1,000 that wait.
        ("grpc.server.max_pending_requests", _PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_S * 1000),
        # Detect dead connections, and accept keepalive pings of clients.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def bind(server: Any, settings: Settings) -> int:
    """Bind the address of a server, and return its port.

    Raises
    ------
    InputError, JobError
        The address cannot be bound, or a file cannot be read.
    """
    if not settings.listen.startswith("unix:"):
        check_free(settings.listen, "--listen")
    try:
        if settings.certificate is None:
            port = server.add_insecure_port(in_digits(settings.listen))
        else:
            port = server.add_secure_port(settings.listen, _credentials(settings))
    except RuntimeError:
        port = None
    if not port:
        raise JobError(f"--listen {settings.listen}: cannot bind the address; another program may be using it")
    return int(port)


def _credentials(settings: Settings) -> Any:
    assert settings.certificate is not None and settings.key is not None
    key, certificate = _bytes(settings.key), _bytes(settings.certificate)
    if settings.client_authority is None:
        return grpc.ssl_server_credentials([(key, certificate)])
    return grpc.ssl_server_credentials([(key, certificate)], _bytes(settings.client_authority), True)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Lock a folder against other servers."""
    with (home / "server.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(f"--home {home}: in use by another server") from None
        yield


def server_id(home: Path) -> str:
    """Return the persistent ID of the server of a folder."""
    path = home / "server.id"
    if not path.exists():
        write_whole(path, secrets.token_hex(10))
    return path.read_text().strip()
