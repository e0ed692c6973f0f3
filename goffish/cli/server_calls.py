"""What the commands that call the scheduling service share: its address, who calls, and how jobs are shown."""

from __future__ import annotations

import inspect
import json as jsons
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from goffish.cli.options import apply_signature, parameter
from goffish.errors import InputError
from goffish.extras import needed_for

if TYPE_CHECKING:
    from goffish.client import Client

_PANEL = "Server"
COLUMNS = ["id", "what", "state", "client", "submitted", "seconds", "progress", "attempts", "cost", "of"]
#: States of jobs that somebody works at, and of those that are over.
UNDER_WAY = ("planned", "provisioning", "running", "migrating", "checkpointed")
OVER = ("done", "failed", "cancelled")


def calls_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a server, and a client of it as its first argument."""

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
            typer.Option("127.0.0.1:7077", envvar="GOFFISH_SERVER", help="HOST:PORT or unix:PATH.",
                         rich_help_panel=_PANEL),
        ),
        "token": (
            str | None,
            typer.Option(None, envvar="GOFFISH_TOKEN", help="@FILE: read it from there.", rich_help_panel=_PANEL),
        ),
        "authority": (
            Path | None,
            typer.Option(
                None, envvar="GOFFISH_AUTHORITY", rich_help_panel=_PANEL,
                help="TLS, with the certificate authority of this file. Mutual TLS: GOFFISH_CERTIFICATE and "
                "GOFFISH_KEY name the files of the client.",
            ),
        ),
        "tls": (
            bool,
            typer.Option(False, "--tls", help="TLS, with what this computer trusts.", rich_help_panel=_PANEL),
        ),
    }  # fmt: skip
    return [parameter(name, *option) for name, option in options.items()]


def _client(server: str, token: str | None, authority: Path | None, tls: bool) -> Client:
    with needed_for("the service"):
        from goffish.client import Client
    if token is not None and token.startswith("@"):
        try:
            token = Path(token[1:]).read_text().strip()
        except OSError as error:
            raise InputError(f"--token {token}: cannot be read ({error.strerror})") from None
    own = [os.environ.get(f"GOFFISH_{name}") for name in ("CERTIFICATE", "KEY")]
    return Client(server, token, authority=authority, tls=tls, certificate=own[0], key=own[1])


def job_row(job: Any) -> list[str]:
    """A job in the columns of `COLUMNS`."""
    told = job_facts(job)
    seconds = told["seconds"]
    return [
        told["id"], told["what"], told["state"], told["client"], told["submitted"][:19].replace("T", " "),
        "" if seconds is None else f"{seconds:.1f}", str(told["progress"] or ""), str(told["attempts"] or ""),
        f"{job.cost:.4g}" if job.cost else "", f"{job.expected_cost:.4g}" if job.expected_cost else "",
    ]  # fmt: skip


def job_facts(job: Any) -> dict[str, Any]:
    """A job as JSON; the seconds of one that is worked at are those until now."""
    from google.protobuf.json_format import MessageToDict

    state = job_state(job)
    began = job.started.ToMicroseconds() if job.HasField("started") else None
    ended = job.ended.ToMicroseconds() if job.HasField("ended") else None
    until = time.time() * 1e6 if state in UNDER_WAY else ended
    return {
        "id": job.id, "what": job.spec.graph.algorithm or "dataflow", "state": state, "client": job.client,
        "client_key": job.client_key, "spec": MessageToDict(job.spec, preserving_proto_field_name=True),
        "submitted": job.submitted.ToJsonString(), "started": job.started.ToJsonString() if began else None,
        "ended": job.ended.ToJsonString() if ended else None,
        "seconds": max(0.0, until - began) / 1e6 if began and until else None, "attempts": job.attempts,
        "progress": job.progress, "cost": job.cost, "expected_cost": job.expected_cost, "currency": job.currency,
        "error": job.error, "summary": jsons.loads(job.summary) if job.summary else None,
        "cancel_requested": job.cancel_requested,
    }  # fmt: skip


def job_state(job: Any) -> str:
    """The state of a job, or of an event, by the name that people use."""
    from goffish.v1 import jobs_pb2

    return str(jobs_pb2.JobState.Name(job.state)).removeprefix("JOB_STATE_").lower()
