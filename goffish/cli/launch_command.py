"""``goffish launch``: plan a graph job on rented machines, ask, run it there and follow it."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from goffish.cli.checks import check_choice, check_result_target, name_values
from goffish.cli.inputs import duration, working
from goffish.cli.options import DEADLINE_HELP, TABLE_FILE, Json
from goffish.cli.output import print_facts, print_json, print_table, say
from goffish.cli.providers import (
    JOBS_HELP,
    OPTIONS_DEFAULT,
    OPTIONS_HELP,
    PROVIDER_HELP,
    PROVIDERS,
    ProviderName,
    read_provider_options,
)
from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.partial import absolute_place, is_uri, local_path

if TYPE_CHECKING:
    from goffish.cloud.catalogue import Catalogue
    from goffish.services.launch import Launcher
    from goffish.services.runners.cloud import CloudRunner
    from goffish.services.store.records import Event, Job, State
    from goffish.services.store.spec import JobSpec

_JOB, _MACHINES = "Job", "Machines"
#: Catalogue of simulated machines.
_LOCAL_CLOUD = "ec2-2015-spot"


@dataclass(frozen=True)
class _Given:
    """What was asked for, beside the job: provider, and what happens when."""

    provider: ProviderName
    options: str | None
    jobs: str | None
    cloud: str
    cloud_speed: float
    home: Path
    output: str | None
    yes: bool
    json: bool


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("launch")(_launch)


def _launch(
    algorithm: Annotated[str, typer.Argument(metavar="ALGORITHM", help="Algorithm as in goffish run.")],
    input: Annotated[str, typer.Argument(metavar="INPUT", help="Graph file or store: a path or URI.")],
    provider: Annotated[
        ProviderName,
        typer.Option(
            metavar=PROVIDERS,
            help=PROVIDER_HELP,
            rich_help_panel=_MACHINES,
        ),
    ],
    output: Annotated[str | None, typer.Option("-o", "--output", help=TABLE_FILE, show_default="none")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="Algorithm option; repeatable.",
            rich_help_panel=_JOB,
            show_default="none",
        ),
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(**duration("h"), help=DEADLINE_HELP, show_default="none", rich_help_panel=_JOB)
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0, help="Cost limit, in the currency of the cloud.", show_default="unlimited", rich_help_panel=_JOB
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Scheduler policy.", show_default="rtba", rich_help_panel=_JOB)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of threads on each machine.",
            show_default="cores of the largest machine type",
            rich_help_panel=_JOB,
        ),
    ] = None,
    machines: Annotated[
        int,
        typer.Option(
            min=1,
            max=256,
            help="Number of rented machines, with one MPI rank on each if there are several.",
            rich_help_panel=_JOB,
        ),
    ] = 1,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Supersteps between checkpoints.", rich_help_panel=_JOB)
    ] = 10,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="NAME=VALUE", help="Job label; repeatable.", show_default="none", rich_help_panel=_JOB
        ),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help=JOBS_HELP,
            show_default="required but for local",
            rich_help_panel=_MACHINES,
        ),
    ] = None,
    provider_options: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=OPTIONS_HELP,
            show_default=OPTIONS_DEFAULT,
            rich_help_panel=_MACHINES,
        ),
    ] = None,
    cloud: Annotated[
        str | None,
        typer.Option(
            help="Catalogue of machine types with spot prices: a YAML or JSON file, or a bundled name.",
            show_default=f"{_LOCAL_CLOUD} for local",
            rich_help_panel=_MACHINES,
        ),
    ] = None,
    cloud_speed: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Simulated cloud seconds per real second, for prices and billing.",
            rich_help_panel=_MACHINES,
        ),
    ] = 1.0,
    home: Annotated[str, typer.Option(help="Folder for jobs, uploads and the database.")] = ".goffish",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and exit.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the job that this command has launched, and release its machines.")
    ] = False,
    json: Json = False,
) -> None:
    """Plan a graph job on rented machines, launch it after confirmation, and follow it; repeat to take it up again."""
    with needed_for("goffish launch"):
        from goffish.services.launch import Launcher
        from goffish.services.store.records import State
    given = _Given(
        provider, provider_options, jobs, cloud or _default_cloud(provider), cloud_speed, local_path(home), output,
        yes, json,
    )  # fmt: skip
    if output is not None:
        check_result_target(output, input)
    catalogue, runner = _runner(given)
    _resolve(input)
    spec = _spec(
        {
            "algorithm": algorithm, "input_uri": absolute_place(input), "runner": "cloud",
            "options": name_values(option, "--option"), "checkpoint_every": checkpoint_every, "policy": policy,
            "workers": workers or _most_cores(catalogue, given), "cloud_name": Path(given.cloud).stem[:120],
            "machines": machines,
        },
        deadline, budget, name_values(label, "--label"),
    )  # fmt: skip
    if dry_run:
        _show_plan(given, spec, _planned(given, runner, spec))
        return
    with Launcher(given.home, _identity(given, spec), runner) as launcher:
        job = launcher.unfinished()
        plan = None
        if cancel:
            if job is None:
                raise InputError(f"--cancel: this command has no unfinished job in {home}")
            launcher.cancel(job, _user())
        elif job is None:
            plan = _planned(given, runner, spec)
            _ask(given, spec, plan)
            job = launcher.submit(spec, _user())
        elif job.spec != spec:
            raise InputError(
                f"job {job.id} of {algorithm} on this input is unfinished, with other options; repeat its command, "
                "or add --cancel"
            )
        ended = _follow(given, launcher, job, plan, taken_up=plan is None)
    if ended != State.DONE and not cancel:
        raise typer.Exit(1)


def _default_cloud(provider: ProviderName) -> str:
    if provider != ProviderName.LOCAL:
        raise InputError(f"--provider {provider}: requires --cloud, a catalogue with machine types of market: spot")
    return _LOCAL_CLOUD


def _runner(given: _Given) -> tuple[Catalogue, CloudRunner]:
    """Return the catalogue, and the runner of a job on machines of the provider."""
    from goffish.cloud.catalogue import read_catalogue
    from goffish.gofs.files import open_folder
    from goffish.services.runners.cloud import CloudRunner
    from goffish.services.runners.cloud_planning import spot_classes
    from goffish.services.runners.rental import read_rental

    catalogue = read_catalogue(given.cloud)
    spot_classes(catalogue)
    runner = CloudRunner(_resolve, lambda _: catalogue, given.cloud_speed, dict(os.environ), jobs_at=given.jobs)
    if given.provider == ProviderName.LOCAL:
        read_provider_options(given.provider, given.options)
        if given.jobs is not None:
            open_folder(given.jobs)
        return catalogue, runner
    if given.cloud_speed != 1.0:
        raise InputError(f"--cloud-speed {given.cloud_speed:g} applies to --provider local only")
    if given.jobs is None:
        raise InputError(f"--provider {given.provider}: requires --jobs, a folder in object storage")
    rental = read_rental({"jobs": given.jobs, **_provider_options(given)})
    rental.check()
    return catalogue, rental.applied(runner)


def _provider_options(given: _Given) -> dict[str, Any]:
    key = "ec2" if given.provider == ProviderName.AWS else "kubernetes"
    return {key: read_provider_options(given.provider, given.options)}


def _resolve(uri: str) -> str:
    if is_uri(uri):
        return uri
    path = local_path(uri).resolve()
    if not path.exists():
        raise InputError(f"{uri}: no such file")
    return str(path)


def _most_cores(catalogue: Catalogue, given: _Given) -> int:
    most = max(1, int(max(one.cores for one in catalogue.classes)))
    return min(most, os.cpu_count() or 1) if given.provider == ProviderName.LOCAL else most


def _spec(graph: dict[str, Any], deadline: float | None, budget: float | None, labels: dict[str, str]) -> JobSpec:
    """Return the specification of the job, whose options are checked."""
    from goffish.algorithms.catalogue import ALGORITHMS, make
    from goffish.definitions import read_definition
    from goffish.services.runners.order import Files, check_machines
    from goffish.services.store.spec import JobSpec, SpotPolicy

    if graph["algorithm"] not in ALGORITHMS:
        raise InputError(f"{graph['algorithm']}: unknown algorithm; choose one of {', '.join(ALGORITHMS)}")
    if deadline is not None and deadline <= 0:
        raise InputError(f"--deadline {deadline:g}: must be greater than 0")
    check_choice("policy", graph["policy"], get_args(SpotPolicy))
    limits = {"deadline_s": None if deadline is None else deadline * 3600.0, "budget": budget, "labels": labels}
    spec = read_definition(JobSpec, {"graph": graph} | limits, "job", "graph")
    assert spec.graph is not None
    check_machines(spec.graph, make(spec.graph.algorithm, Files.of(spec.graph, _resolve).options))
    return spec


def _identity(given: _Given, spec: JobSpec) -> str:
    """Return a text that is the same for every launch of a job, whatever its limits."""
    graph = spec.graph
    assert graph is not None
    options = sorted(graph.options.items())
    return repr((graph.algorithm, graph.input_uri, options, given.provider.value, given.jobs))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return "launch"


def _planned(given: _Given, runner: CloudRunner, spec: JobSpec) -> dict[str, Any]:
    from goffish.services.launch import describe
    from goffish.services.runners.order import Files

    assert spec.graph is not None
    with working("planning"):
        planned = runner.plan(spec.graph, Files.of(spec.graph, _resolve), spec.deadline_s)
        return describe(runner, planned, given.home / "machines")


def _show_plan(given: _Given, spec: JobSpec, plan: dict[str, Any]) -> None:
    if given.json:
        print_json({"plan": plan, "job": None})
        return
    machines = spec.graph.machines if spec.graph is not None else 1
    rows = [
        [one["machine_type"], one["market"], one["zone"] or "", _or(one["price_per_hour"], "unavailable"),
         f"{one['hours']:.3g}", _or(one["cost"], ""), _interruptions(one)]
        for one in plan["machine_types"]
    ]  # fmt: skip
    currency = plan["currency"]
    header = ["machine type", "market", "zone", f"{currency}/h now", "hours", currency, "interruption every"]
    job = "the job on each" if machines == 1 else f"the job on {machines} of each type"
    print_table(f"machines of the plan, and {job} without interruptions", header, rows)
    say("")
    print_facts("plan", _plan_facts(given, spec, plan))


def _plan_facts(given: _Given, spec: JobSpec, plan: dict[str, Any]) -> list[tuple[str, str]]:
    assert spec.graph is not None
    currency, risk, speed = plan["currency"], plan["risk"], given.cloud_speed
    dear = plan["on_demand_cost"]
    facts = [
        ("job", f"{spec.graph.algorithm} {spec.graph.input_uri}"),
        ("policy", f"{plan['policy']} on {given.provider}"),
        ("work", f"{plan['core_hours']:.3g} core-hours" + (f" ({plan['remark']})" if plan["remark"] else "")),
        ("expected cost", f"{plan['expected_cost']:.3g} {currency}"
         + (f"; {dear:.3g} on demand" if dear < float("inf") else "")),
    ]  # fmt: skip
    if risk is None:
        facts.append(("risk", "unknown: the price history is too short, or the deadline is not guaranteed"))
    else:
        (low, high), (first, middle, last) = risk["cost"], risk["hours"]
        facts += [
            ("80 % of jobs", f"{low:.3g} to {high:.3g} {currency}, {first:.3g} to {last:.3g} h, median {middle:.3g} h"),
            ("risk", f"{risk['interrupted']:.0%} of jobs interrupted, {risk['on_demand']:.0%} partly on demand "
                     f"({risk['jobs']:,} replays of the price history)"),
        ]  # fmt: skip
    least_h = plan["least_hours"] / speed
    if spec.deadline_s is None:
        text = f"none; on demand if the job is not done within about {plan['hours'] / speed:.3g} h"
    elif plan["deadline_guaranteed"]:
        text = f"in {spec.deadline_s / 3600:.3g} h; on demand from {least_h:.3g} h before it; failed after it"
    else:
        text = f"in {spec.deadline_s / 3600:.3g} h cannot be guaranteed: on demand from the start; failed after it"
    facts.append(("deadline", text))
    if spec.budget is not None:
        facts.append(("budget", f"{spec.budget:g} {currency}; a job that costs more fails"))
    return facts


def _or(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.3g}"


def _interruptions(one: dict[str, Any]) -> str:
    if one["market"] != "spot":
        return "never"
    hours = one["hours_between_interruptions"]
    return "never in the history" if hours is None else f"{hours:.3g} h"


def _ask(given: _Given, spec: JobSpec, plan: dict[str, Any]) -> None:
    """Print the plan, and ask whether to launch the job."""
    if not given.json:
        _show_plan(given, spec, plan)
    if spec.budget is not None and plan["expected_cost"] > spec.budget:
        raise InputError(f"--budget {spec.budget:g}: less than the expected cost of {plan['expected_cost']:.3g}")
    if given.yes:
        return
    if given.json or not sys.stdin.isatty():
        raise InputError("nothing was launched: confirm with --yes")
    if not typer.confirm("Launch it?"):
        say("nothing was launched")
        raise typer.Exit


def _follow(given: _Given, launcher: Launcher, job: Job, plan: dict[str, Any] | None, *, taken_up: bool) -> State:
    """Follow the job to its end, print what came of it, and return how it ended."""
    from goffish.services.store.records import State

    if not given.json:
        say(f"\njob {job.id}: {'taken up again' if taken_up else 'launched'}")
    try:
        for event in launcher.follow(job):
            if not given.json:
                say(_line(event))
                sys.stdout.flush()
    except KeyboardInterrupt:
        launcher.news(job)
        _explain_interrupt(given, job, launcher.machines)
        raise
    job = launcher.job(job.id)
    facts = _job_facts(job)
    if job.state == State.DONE:
        facts["result"] = str(launcher.result(job)) if given.output is None else given.output
        if given.output is not None:
            _write_result(launcher.result(job), given.output)
    if given.json:
        print_json({"plan": plan, "job": facts})
    else:
        say("")
        print_facts(f"job {job.id}", _ending(facts))
    return job.state


def _line(event: Event) -> str:
    moment = datetime.fromtimestamp(event.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{moment}  {event.kind:<10} {event.state:<12} {event.text}"


def _explain_interrupt(given: _Given, job: Job, machines: list[str]) -> None:
    """Print what goes on without the launcher, and how to follow or cancel it."""
    command = shlex.join(["goffish", *(part for part in sys.argv[1:] if part != "--cancel")])
    if given.provider == ProviderName.LOCAL:
        text = "its machines stop; the job resumes from its newest checkpoint"
    else:
        text = "no machine is rented; the job waits"
        if len(machines) == 1:
            text = f"{machines[0]}, continues with the job, and is charged for until it ends"
        elif machines:
            text = f"{'; '.join(machines)} continue with the job, and are charged for until it ends"
    sys.stderr.write(f"\njob {job.id}: {text}\nfollow it: {command}\ncancel it: {command} --cancel\n")
    sys.stderr.flush()


def _job_facts(job: Job) -> dict[str, Any]:
    return {
        "id": job.id, "algorithm": job.spec.what, "state": str(job.state), "error": job.error,
        "seconds": None if job.ended is None else job.ended - job.submitted, "expected_cost": job.expected_cost,
        "cost": job.cost, "currency": job.currency, "summary": job.summary, "result": None,
    }  # fmt: skip


def _ending(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    expected, cost = facts["expected_cost"], facts["cost"]
    share = f" ({cost / expected - 1:+.0%})" if expected else ""
    return [
        ("state", facts["state"]),
        *([("error", facts["error"])] if facts["error"] else []),
        ("seconds", facts["seconds"]),
        ("cost", f"{cost:.4g} {facts['currency']}; {expected:.4g} expected{share}"),
        *((name.replace("_", " "), value) for name, value in (facts["summary"] or {}).items()),
        *([("result", facts["result"])] if facts["result"] else []),
    ]


def _write_result(result: Path, output: str) -> None:
    import pyarrow as pa

    from goffish.gopher.result import write_table

    with pa.ipc.open_stream(result) as reader:
        write_table(reader.read_all(), output)
