"""Shared code of the commands that call the scheduling service: server options, and display of jobs."""

from __future__ import annotations

import inspect
import json as jsons
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from goffish.cli.options import TOKEN, apply_signature, parameter, read_token
from goffish.extras import needed_for

if TYPE_CHECKING:
    from goffish.client import Client

_PANEL = "Server"
COLUMNS = [
    "id", "algorithm", "state", "client", "submitted", "seconds", "progress", "attempts", "cost", "expected cost",
]  # fmt: skip
#: States of active jobs, and of ended jobs.
UNDER_WAY = ("planned", "provisioning", "running", "migrating", "checkpointed")
OVER = ("done", "failed", "cancelled")


def calls_server(command: Callable[..., None]) -> Callable[..., None]:
    """Add the server options to a command, which receives a `Client` as its first argument."""

    def called(*, server: str, token: str | None, authority: Path | None, tls: bool, **given: Any) -> None:
        with _client(server, token, authority, tls) as client:
            command(client, **given)

    parameters = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    apply_signature(called, [one.replace(kind=one.KEYWORD_ONLY) for one in parameters] + _access())
    called.__doc__ = command.__doc__
    return called


def _access() -> list[inspect.Parameter]:
    options: dict[str, tuple[Any, Any]] = {
        "server": (
            str,
            typer.Option("127.0.0.1:7077", envvar="GOFFISH_SERVER", help="Server address: HOST:PORT or unix:PATH.",
                         rich_help_panel=_PANEL),
        ),
        "token": (
            str | None,
            typer.Option(
                None, envvar="GOFFISH_TOKEN", help=TOKEN, rich_help_panel=_PANEL
            ),
        ),
        "authority": (
            Path | None,
            typer.Option(
                None, envvar="GOFFISH_AUTHORITY", rich_help_panel=_PANEL,
                help="Certificate authority file; enables TLS. Mutual TLS: set GOFFISH_CERTIFICATE and GOFFISH_KEY.",
            ),
        ),
        "tls": (
            bool,
            typer.Option(
                False, "--tls", help="Use TLS with the system's certificate authorities.", rich_help_panel=_PANEL
            ),
        ),
    }  # fmt: skip
    return [parameter(name, *option) for name, option in options.items()]


def _client(server: str, token: str | None, authority: Path | None, tls: bool) -> Client:
    with needed_for("the service"):
        from goffish.client import Client
    own = [os.environ.get(f"GOFFISH_{name}") for name in ("CERTIFICATE", "KEY")]
    return Client(server, read_token(token), authority=authority, tls=tls, certificate=own[0], key=own[1])


def job_row(job: Any) -> list[str]:
    """Return a job as a table row with the columns `COLUMNS`."""
    facts = job_facts(job)
    seconds = facts["seconds"]
    return [
        facts["id"], facts["what"], facts["state"], facts["client"], facts["submitted"][:19].replace("T", " "),
        "" if seconds is None else f"{seconds:.1f}", str(facts["progress"] or ""), str(facts["attempts"] or ""),
        f"{job.cost:.4g}" if job.cost else "", f"{job.expected_cost:.4g}" if job.expected_cost else "",
    ]  # fmt: skip


def job_facts(job: Any) -> dict[str, Any]:
    """Return a job as JSON fields; ``seconds`` of an active job counts until now.

    The fields ``what`` and ``spec.most_attempts`` are deprecated; use ``algorithm`` and ``spec.max_attempts``.
    """
    from google.protobuf.json_format import MessageToDict

    state = job_state(job)
    began = job.started.ToMicroseconds() if job.HasField("started") else None
    ended = job.ended.ToMicroseconds() if job.HasField("ended") else None
    until = time.time() * 1e6 if state in UNDER_WAY else ended
    spec = MessageToDict(job.spec, preserving_proto_field_name=True)
    if "most_attempts" in spec:
        spec["max_attempts"] = spec["most_attempts"]
    algorithm = job.spec.graph.algorithm or str(job.spec.WhichOneof("work"))
    return {
        "id": job.id, "algorithm": algorithm, "what": algorithm, "state": state, "client": job.client,
        "client_key": job.client_key, "spec": spec,
        "submitted": job.submitted.ToJsonString(), "started": job.started.ToJsonString() if began else None,
        "ended": job.ended.ToJsonString() if ended else None,
        "seconds": max(0.0, until - began) / 1e6 if began and until else None, "attempts": job.attempts,
        "progress": job.progress, "cost": job.cost, "expected_cost": job.expected_cost, "currency": job.currency,
        "provider": job.provider,
        "error": job.error, "summary": jsons.loads(job.summary) if job.summary else None,
        "cancel_requested": job.cancel_requested,
    }  # fmt: skip


def job_state(job: Any) -> str:
    """Return the state of a job or event in lower case, such as ``running``."""
    from goffish.v1 import jobs_pb2

    return str(jobs_pb2.JobState.Name(job.state)).removeprefix("JOB_STATE_").lower()
