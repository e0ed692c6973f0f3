"""Pages of the dashboard, downloads, and the endpoints of Prometheus and load balancers."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlencode

import jinja2
from grpc import StatusCode
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from goffish.errors import InputError
from goffish.services.api.calls import Shared, elsewhere
from goffish.services.api.clients import Client, Clients, Role
from goffish.services.api.flow_service import FlowService
from goffish.services.api.guard import Refused, caller, status_of
from goffish.services.api.job_service import JobService
from goffish.services.api.limits import Limits
from goffish.services.api.telemetry import Metrics
from goffish.services.runners.supervisor import Supervisor
from goffish.services.store.records import State
from goffish.services.store.store import Jobs, UnknownJob
from goffish.services.web.access import SESSION_S, Sessions, Shield, from_elsewhere
from goffish.services.web.reading import Asked, Reading, flow_facts
from goffish.services.web.results import KINDS, pieces
from goffish.v1 import flows_pb2, jobs_pb2

_log = logging.getLogger(__name__)
_audit = logging.getLogger("goffish.audit")
_HTTP = {
    StatusCode.UNAUTHENTICATED: 401, StatusCode.PERMISSION_DENIED: 403, StatusCode.NOT_FOUND: 404,
    StatusCode.INVALID_ARGUMENT: 400, StatusCode.FAILED_PRECONDITION: 409, StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNAVAILABLE: 503, StatusCode.ABORTED: 409,
}  # fmt: skip
#: Vega and Vega-Lite draw charts; the interpreter replaces ``eval``, which the security headers forbid.
_SCRIPTS = ("app.js", "charts.js", "vega-6.4.0.min.js", "vega-lite-6.4.3.min.js", "vega-interpreter-2.3.2.js")
_STATIC = {"style.css": "text/css", "icon.svg": "image/svg+xml"} | dict.fromkeys(_SCRIPTS, "text/javascript")
_ID = re.compile(r"[0-9a-z]{1,40}")
#: Maximum bytes of a form, of the log on a page, and of a downloaded log.
_MOST_FORM, _LOG_TAIL, _LOG_BYTES = 16 << 10, 16 << 10, 16 << 20


@dataclass(frozen=True)
class Visit:
    """Client and session of a request."""

    client: Client
    session: str


@dataclass(frozen=True)
class Pages:
    """Handlers of all pages.

    Attributes
    ----------
    jobs : Jobs
    supervisor : Supervisor
    service : JobService
        Service that cancels jobs and checks permissions.
    flows : FlowService
        Service that stops flows.
    clients : Clients
    limits : Limits
    metrics : Metrics
    check : Shared
        Database check of the health endpoint.
    """

    jobs: Jobs
    supervisor: Supervisor
    service: JobService
    flows: FlowService
    clients: Clients
    limits: Limits
    metrics: Metrics
    check: Shared[None]

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/", self._page("list", self._list)),
            Route("/jobs/{job}", self._page("job", self._job)),
            Route("/jobs/{job}/spec.json", self._page("spec", self._spec)),
            Route("/jobs/{job}/log.txt", self._page("log", self._job_log)),
            Route("/jobs/{job}/result.{kind}", self._page("result", self._result)),
            Route("/jobs/{job}/cancel", self._page("cancel", self._cancel), methods=["POST"]),
            Route("/jobs/{job}/stop", self._page("stop", self._stop), methods=["POST"]),
            Route("/login", self._page("login", self._login, known=False), methods=["GET", "POST"]),
            Route("/logout", self._page("logout", self._logout), methods=["POST"]),
            Route("/static/{name}", self._static_file),
            Route("/metrics", self._metrics_text),
            Route("/healthz", self._health),
        ]
        handlers: dict[Any, Any] = {HTTPException: self._no_page}
        return Starlette(routes=routes, middleware=[Middleware(Shield)], exception_handlers=handlers)

    @functools.cached_property
    def _sessions(self) -> Sessions:
        return Sessions(self.clients)

    @functools.cached_property
    def _reading(self) -> Reading:
        return Reading(self.jobs)

    @functools.cached_property
    def _metrics(self) -> Shared[bytes]:
        return Shared(self.metrics.text)

    @functools.cached_property
    def _files(self) -> dict[str, bytes]:
        folder = resources.files(__package__) / "static"
        return {name: (folder / name).read_bytes() for name in _STATIC}

    @functools.cached_property
    def _templates(self) -> jinja2.Environment:
        folder = resources.files(__package__) / "templates"
        made = jinja2.Environment(
            loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
            autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        digests = {name: hashlib.sha256(body).hexdigest()[:12] for name, body in self._files.items()}
        made.globals["static"] = lambda name: f"/static/{name}?v={digests[name]}"
        made.globals["query"] = lambda given, **more: f"/?{urlencode({k: v for k, v in (given | more).items() if v})}"
        return made

    def _page(
        self, name: str, answer: Callable[[Request, Visit], Awaitable[Response]], *, known: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler with authentication, limits, metrics and error pages."""

        async def endpoint(request: Request) -> Response:
            begun, cookie = time.perf_counter(), _cookie_of(request)
            given = request.cookies.get(cookie, "")
            visit = Visit(self._sessions.client(given) or _ANONYMOUS, given or secrets.token_urlsafe(32))
            caller.set(visit.client)
            try:
                if known and visit.client is _ANONYMOUS:
                    response = _to_login(request)
                else:
                    with self.limits.call(visit.client.name):
                        response = await answer(request, visit)
            except Exception as error:
                code, text = status_of(error)
                if code in (StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED):
                    _write_down(request, visit.client, name, code.name, text)
                response = await self._failed(_HTTP.get(code, 500), text, visit)
            if not given and "set-cookie" not in response.headers:
                _remember(request, response, visit.session)
            self.metrics.called(f"web {name}", str(response.status_code), time.perf_counter() - begun)
            return response

        return endpoint

    async def _shown(self, template: str, visit: Visit, status: int = 200, **given: Any) -> Response:
        around = {
            "client": None if visit.client is _ANONYMOUS else visit.client, "open": self._sessions.open,
            "proof": self._sessions.proof(visit.session),
        }  # fmt: skip
        text = await elsewhere(lambda: self._templates.get_template(template).render(around | given))
        return Response(text, status, media_type="text/html; charset=utf-8")

    async def _failed(self, status: int, text: str, visit: Visit) -> Response:
        return await self._shown("error.html", visit, status, number=status, text=text)

    async def _no_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = "Page not found." if status == 404 else f"Method {request.method} is not allowed."
        return await self._failed(status, text, Visit(_ANONYMOUS, ""))

    async def _list(self, request: Request, visit: Visit) -> Response:
        found = await elsewhere(self._reading.listing, _asked(request))
        return await self._shown("jobs.html", visit, running=self.supervisor.running, **found)

    async def _job(self, request: Request, visit: Visit) -> Response:
        name = _job_of(request)
        found = await elsewhere(self._reading.job, name, _before(request))
        log = await elsewhere(self.supervisor.log, name, _LOG_TAIL)
        job = found["job"]
        may_cancel = not job.over and _may_cancel(visit.client, job.client)
        report = await elsewhere(lambda: self.supervisor.folder(job.id).progress) if job.spec.flow is not None else {}
        may_stop = may_cancel and bool(report) and job.state == State.RUNNING
        kinds = list(KINDS) if job.state == State.DONE else []
        return await self._shown(
            "job.html",
            visit,
            log=log,
            may_cancel=may_cancel,
            may_stop=may_stop,
            kinds=kinds,
            flow=flow_facts(report),
            **found,
        )

    async def _spec(self, request: Request, visit: Visit) -> Response:
        job = await elsewhere(self.jobs.get, _job_of(request))
        body = json.dumps(job.spec.as_json(), indent=2) + "\n"
        return _download(Response(body, media_type="application/json"), f"{job.id}.json")

    async def _job_log(self, request: Request, visit: Visit) -> Response:
        job = await elsewhere(self.jobs.get, _job_of(request))
        text = await elsewhere(self.supervisor.log, job.id, _LOG_BYTES)
        return _download(PlainTextResponse(text), f"{job.id}.log")

    async def _result(self, request: Request, visit: Visit) -> Response:
        job, kind = await elsewhere(self.jobs.get, _job_of(request)), request.path_params["kind"]
        if kind not in KINDS:
            raise Refused(StatusCode.NOT_FOUND, f"unknown result format {kind!r}; choose one of {', '.join(KINDS)}")
        if job.state != State.DONE:
            raise Refused(StatusCode.FAILED_PRECONDITION, f"job {job.id} is {job.state} and has no result")
        body = pieces(self.supervisor.folder(job.id).result, kind)
        try:
            first = await anext(body, b"")
        except FileNotFoundError:
            raise Refused(StatusCode.NOT_FOUND, f"the result of job {job.id} was deleted") from None

        async def all_of_it() -> AsyncIterator[bytes]:
            yield first
            async for piece in body:
                yield piece

        return _download(StreamingResponse(all_of_it(), media_type=KINDS[kind]), f"{job.id}.{kind}")

    async def _cancel(self, request: Request, visit: Visit) -> Response:
        name = await self._changed(request, visit)
        await self.service.Cancel(jobs_pb2.CancelRequest(id=name), None)
        _write_down(request, visit.client, "cancel", "OK", f"job {name}")
        return RedirectResponse(f"/jobs/{name}", 303)

    async def _stop(self, request: Request, visit: Visit) -> Response:
        name = await self._changed(request, visit)
        await self.flows.StopFlow(flows_pb2.StopFlowRequest(id=name), None)
        _write_down(request, visit.client, "stop", "OK", f"job {name}")
        return RedirectResponse(f"/jobs/{name}", 303)

    async def _changed(self, request: Request, visit: Visit) -> str:
        """Return the job of a form that changes it, if the client may change jobs."""
        await self._form(request, visit)
        if visit.client.rank < Role.SUBMIT:
            text = f"client {visit.client.name} has the role {visit.client.role}; submit is required"
            raise Refused(StatusCode.PERMISSION_DENIED, text)
        return _job_of(request)

    async def _login(self, request: Request, visit: Visit) -> Response:
        target = _own_path(request.query_params.get("next", "/"))
        if self._sessions.open:
            return RedirectResponse(target, 303)
        if request.method != "POST":
            return await self._shown("login.html", visit, target=target, error="")
        form = await self._form(request, visit)
        begun = self._sessions.begin(form.get("token", "").strip())
        if begun is None:
            _write_down(request, visit.client, "login", "UNAUTHENTICATED", "")
            return await self._shown("login.html", visit, 401, target=target, error="Unknown token.")
        self._sessions.end(visit.session)
        response = RedirectResponse(target, 303)
        _remember(request, response, begun[0])
        _write_down(request, begun[1], "login", "OK", "")
        return response

    async def _logout(self, request: Request, visit: Visit) -> Response:
        await self._form(request, visit)
        self._sessions.end(visit.session)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(_cookie_of(request), httponly=True, samesite="strict")
        return response

    async def _form(self, request: Request, visit: Visit) -> dict[str, str]:
        """Read a form and check its origin.

        Raises
        ------
        Refused
        """
        if from_elsewhere(request.headers):
            raise Refused(StatusCode.PERMISSION_DENIED, "cross-site request rejected")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_FORM:
                raise InputError(f"form too large: at most {_MOST_FORM:,} bytes are accepted")
        fields = {name: values[-1] for name, values in parse_qs(body.decode(errors="replace")).items()}
        if not self._sessions.proves(visit.session, fields.get("proof", "")):
            raise Refused(StatusCode.PERMISSION_DENIED, "the page has expired; reload it")
        return fields

    async def _static_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            raise HTTPException(404)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(self._files[name], media_type=_STATIC[name], headers=headers)

    async def _metrics_text(self, request: Request) -> Response:
        try:
            return Response(await self._metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")
        except Exception as error:
            return PlainTextResponse(status_of(error)[1] + "\n", 503)

    async def _health(self, request: Request) -> Response:
        try:
            await self.check()
        except Exception as error:
            return PlainTextResponse(status_of(error)[1] + "\n", 503)
        return PlainTextResponse("ok\n")


#: Client of a request without a session.
_ANONYMOUS = Client(name="anonymous", role="read")


def _may_cancel(client: Client, owner: str) -> bool:
    return client.rank >= (Role.SUBMIT if client.name == owner else Role.ADMIN)


def _asked(request: Request) -> Asked:
    given = {name: request.query_params.get(name, "").strip() for name in ("state", "algorithm", "client", "label")}
    for name, value in given.items():
        if "\0" in value or len(value) > 400:
            raise InputError(f"{name}: at most 400 characters without NUL are accepted")
    if given["state"] and given["state"] not in set(State):
        raise InputError(f"state: unknown {given['state']!r}; choose one of {', '.join(State)}")
    if given["label"] and "=" not in given["label"]:
        raise InputError(f"label: {given['label']!r}; give NAME=VALUE")
    return Asked(**given, before=_before(request))


def _before(request: Request) -> int | None:
    given = request.query_params.get("before", "")
    if given and not (given.isascii() and given.isdecimal() and len(given) <= 18):
        raise InputError(f"before: {given[:40]!r} is not a number")
    return int(given) if given else None


def _job_of(request: Request) -> str:
    name: str = request.path_params["job"]
    if not _ID.fullmatch(name):
        raise UnknownJob(f"job {name[:80]!r} does not exist")
    return name


def _to_login(request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        raise Refused(StatusCode.UNAUTHENTICATED, "your session has expired; log in again")
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?{urlencode({'next': wanted})}", 303)


def _own_path(path: str) -> str:
    """Return a path of this server, or the start page for anything else."""
    return path if re.fullmatch(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*", path) else "/"


def _cookie_of(request: Request) -> str:
    """Return the cookie name, which includes the port because cookies are shared across ports."""
    server = request.scope.get("server")
    return f"goffish_{server[1] if server else 0}"


def _remember(request: Request, response: Response, session: str) -> None:
    secure = request.headers.get("x-forwarded-proto") == "https"
    name = _cookie_of(request)
    response.set_cookie(name, session, max_age=int(SESSION_S), httponly=True, samesite="strict", secure=secure)


def _download(response: Response, name: str) -> Response:
    response.headers["content-disposition"] = f'attachment; filename="{name}"'
    return response


def _write_down(request: Request, client: Client, what: str, code: str, text: str) -> None:
    peer = f"{request.client.host}:{request.client.port}" if request.client else ""
    body = {"client": client.name, "peer": peer, "method": f"web {what}", "code": code, "text": text}
    _audit.info(json.dumps(body))
