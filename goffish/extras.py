"""Optional packages and the extras that install them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from goffish.errors import InputError


class Extra(NamedTuple):
    """Extra of the package, as in ``pip install 'goffish[plot]'``.

    Attributes
    ----------
    feature : str
        Features that require the extra.
    modules : mapping of str to str
        Modules of the extra, and the distribution of each.
    commands : tuple of str
        Commands that require the extra.
    """

    feature: str
    modules: dict[str, str]
    commands: tuple[str, ...] = ()


EXTRAS = {
    "plot": Extra(
        "Plots and interactive pages: goffish plot, --plot, --html",
        {"matplotlib": "matplotlib", "plotly": "plotly", "scipy": "scipy"},
        ("plot",),
    ),
    "networkx": Extra("NetworkX graphs and backend, GraphML and GML files", {"networkx": "networkx"}),
    "scipy": Extra("SciPy matrices, spectral embeddings, rank correlation of sampled betweenness", {"scipy": "scipy"}),
    "mpi": Extra("The MPI engine: mpirun ... goffish run --engine mpi", {"mpi4py": "mpi4py"}),
    "spark": Extra(
        "The Spark engine, goffish ingest, DataFrames and GraphFrames",
        {"pyspark": "pyspark", "pandas": "pandas", "graphframes": "graphframes-py", "yaml": "pyyaml"},
        ("ingest",),
    ),
    "kafka": Extra("Kafka topics as sources and sinks of flows", {"confluent_kafka": "confluent-kafka"}),
    "delta": Extra("Delta tables as sources and sinks of dataflows", {"deltalake": "deltalake"}),
    "cron": Extra("Cron texts as times of graph queries", {"croniter": "croniter"}),
    "kubernetes": Extra("Pods of Kubernetes as machines", {"kubernetes": "kubernetes", "yaml": "pyyaml"}),
    "http": Extra("Records that clients push to a dataflow over HTTP", {"uvicorn": "uvicorn"}),
    "aws": Extra(
        "Machines of Amazon EC2, and object storage of Amazon S3: goffish cloud",
        {"aiobotocore": "aiobotocore", "boto3": "boto3", "botocore": "boto3", "s3fs": "s3fs", "yaml": "pyyaml"},
        ("cloud",),
    ),
    "service": Extra(
        "Dataflows, spot jobs, the scheduling service and flows on several machines: goffish plan, simulate, spot, "
        "serve, jobs, stream run --http, --listen, --provider and --policy, stream worker",
        {
            "grpc": "grpcio", "grpc_health": "grpcio-health-checking", "grpc_reflection": "grpcio-reflection",
            "grpc_status": "grpcio-status", "google.protobuf": "protobuf", "alembic": "alembic",
            "cachetools": "cachetools", "cryptography": "cryptography", "highspy": "highspy",
            "jinja2": "jinja2", "networkx": "networkx", "prometheus_client": "prometheus-client", "psutil": "psutil",
            "pymoo": "pymoo", "scipy": "scipy", "simpy": "simpy", "sqlalchemy": "sqlalchemy", "starlette": "starlette",
            "statsmodels": "statsmodels", "tenacity": "tenacity", "uvicorn": "uvicorn", "yaml": "pyyaml",
        },
        ("calibrate", "clients", "jobs", "plan", "serve", "simulate", "spot", "top"),
    ),
    "postgres": Extra("PostgreSQL as the database of the service", {"psycopg": "psycopg"}),
    "tracing": Extra(
        "OpenTelemetry traces of the service",
        {
            "opentelemetry.sdk": "opentelemetry-sdk", "opentelemetry.instrumentation.grpc":
            "opentelemetry-instrumentation-grpc", "opentelemetry.exporter.otlp":
            "opentelemetry-exporter-otlp-proto-grpc",
        },
    ),
}  # fmt: skip


@contextmanager
def needed_for(feature: str, command: str = "") -> Iterator[None]:
    """Convert a failed import in the context to an error that names the missing extra.

    Parameters
    ----------
    feature : str
        Feature that requires the import; the message starts with it.
    command : str
        Command with the same requirements; its extra is preferred if several have the package.

    Raises
    ------
    InputError
        A module of `EXTRAS` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        found = missing(error.name or "", command)
        if found is None:
            raise
        raise InputError(f"{feature}: {found}") from None


def missing(module: str, command: str = "") -> str | None:
    """Return the message for a missing module: its package and the command that installs it.

    Parameters
    ----------
    module : str
    command : str
        Command that requires it; its extra is preferred if several have the package.

    Returns
    -------
    str or None
        ``None`` if no extra has the module.
    """
    for name, extra in sorted(EXTRAS.items(), key=lambda item: command not in item[1].commands):
        for known, package in extra.modules.items():
            if module == known or known.startswith(f"{module}.") or module.startswith(f"{known}."):
                return f"{package} is not installed: pip install 'goffish[{name}]'"
    return None
