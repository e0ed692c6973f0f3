"""``goffish stream``: run, check, observe and control continuous dataflows."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_choice, name_values
from goffish.cli.graph_server_commands import add_graph_server
from goffish.cli.groups import Commands
from goffish.cli.inputs import duration
from goffish.cli.options import Json
from goffish.cli.process import INTERRUPTED, TERMINATED, time_for_cleanup
from goffish.cli.query_commands import (
    Outputs,
    check_queries,
    print_answers,
    run_queries,
    tail_topic,
    verify_state,
)
from goffish.cli.query_options import (
    QUERIES,
    SUFFIX,
    DeliverOption,
    GraphOptions,
    LatenessOption,
    LateOption,
    ParamOption,
    QueryFile,
    RetentionOption,
    TombstoneOption,
    VocabularyOption,
)
from goffish.cli.stream_hosts import (
    MACHINES,
    AuthorityOption,
    CertificateOption,
    HereOption,
    KeyOption,
    ListenOption,
    TokenOption,
    machines_of,
    run_agent,
)
from goffish.cli.stream_rented import (
    HourlyBudgetOption,
    JobsOption,
    MachineTypeOption,
    MarketOption,
    MaxMachinesOption,
    ProviderOption,
    ProviderOptionsOption,
    RentalOptions,
    print_bill,
)
from goffish.errors import InputError, JobError
from goffish.extras import needed_for
from goffish.partial import check_new_place, local_path
from goffish.streaming.updates.bounds import Requirement
from goffish.streaming.updates.versions import PartialWindow, Strategy

if TYPE_CHECKING:
    from goffish.scheduling.control.records import Result
    from goffish.streaming.control import Connection
    from goffish.streaming.metrics import Metrics
    from goffish.streaming.scaling import Scaling
    from goffish.streaming.topology import Operator

_Flow = Annotated[
    str, typer.Argument(metavar="FLOW", help="Python file, with :NAME of the flow if it has several; or YAML file.")
]
_FlowOrQueries = Annotated[
    str,
    typer.Argument(
        metavar="FLOW",
        help="Python file, with :NAME of the flow if it has several; or YAML file; or graph queries (.cgql).",
    ),
]
STATE_HELP = "Folder of a live graph and its log; a run resumes where an earlier one ended."
#: Keys of the answer to the request ``predict``.
BOUNDS = ("predictions", "quantities", "recommended", "reason", "note")
WORKERS_HELP = (
    "Number of worker processes; or OPERATOR=NUMBER,… of those for each of some operators and what follows it."
)


#: Intervals of a policy that are printed.
_SHOWN = 20
#: Seconds between two looks at whether a flow that was stopped has ended.
_WAITS_S = 60.0
#: The same for an update.
_LOOKS_S = 0.1
STRATEGY_HELP = "What happens to records in flight: mvc and pvc lose and mix nothing."
#: Heading of the options of scheduling policies.
SCALING = "Scheduling policies"
STRATEGY_DEFAULT = "mvc, or what --require recommends"
REQUIRE_HELP = "What the update must keep or have; repeatable."
WINDOWS_HELP = "What becomes of open windows that depend on the change."


def add_commands(app: typer.Typer) -> None:
    """Add ``goffish stream`` with its commands."""
    stream = typer.Typer(
        cls=Commands, help="Run, check, observe and control continuous dataflows.", no_args_is_help=True
    )
    stream.command("run", help="Run a flow until its sources end; Ctrl-C stops it and saves a checkpoint.")(_run)
    stream.command("worker", help="Run workers of a flow of another machine until it ends.")(run_agent)
    stream.command("check", help="Check a flow, and print its operators and channels.")(_check)
    stream.command("tail", help="Print the events of a graph query, from the state of a run.")(_tail)
    stream.command("answers", help="Print the current answers of a graph query, from the state of a run.")(_answers)
    add_graph_server(stream)
    stream.command("verify", help="Replay the log in the state of a run, and compare it with the checkpoints.")(_verify)
    stream.command("list", help="List running flows.")(_list)
    stream.command("top", help="Show live metrics of a running flow; press Ctrl-C to quit.")(_top)
    stream.command("stop", help="Stop a running flow after a last checkpoint.")(_stop)
    stream.command("update", help="Replace a running flow by another version of it, without stopping it.")(_update)
    stream.command("switch", help="Switch an operator of a running flow to an alternate.")(_switch)
    stream.command("scale", help="Change the number of workers of a running flow, without stopping it.")(_scale)
    app.add_typer(stream, name="stream")


def _run(
    context: typer.Context,
    flow: _FlowOrQueries,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of checkpoints to resume from and to write; must be trusted."),
    ] = None,
    every: Annotated[float, typer.Option(**duration("s"), help="Time between checkpoints; numbers are seconds.")] = 2.0,
    until: Annotated[
        float | None,
        typer.Option(**duration("s"), help="Duration of the run; numbers are seconds.", show_default="unlimited"),
    ] = None,
    workers: Annotated[str, typer.Option(metavar="WORKERS", help=WORKERS_HELP)] = "1",
    replication: Annotated[
        int, typer.Option(min=0, max=8, help="Number of workers that may fail at once without loss.")
    ] = 1,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Loopback address of a live page, with /metrics and /status."),
    ] = None,
    delivery: Annotated[
        str,
        typer.Option(metavar="exactly-once|at-least-once", help="Whether results cross workers after a checkpoint."),
    ] = "exactly-once",
    listen: ListenOption = None,
    here: HereOption = 0,
    lease: Annotated[
        float | None,
        typer.Option(
            **duration("s"),
            help="Silence after which the workers of a machine end; numbers are seconds.",
            show_default="10",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    token: TokenOption = None,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    authority: AuthorityOption = None,
    provider: ProviderOption = None,
    provider_options: ProviderOptionsOption = None,
    jobs: JobsOption = None,
    machine_type: MachineTypeOption = None,
    market: MarketOption = None,
    max_machines: MaxMachinesOption = None,
    hourly_budget: HourlyBudgetOption = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Scheduling policy that chooses machines, workers and alternates; goffish plan --policies lists them.",
            show_default="none",
            rich_help_panel=SCALING,
        ),
    ] = None,
    elements: Annotated[
        str | None,
        typer.Option(
            metavar="OPERATOR,…",
            help="Operators that get separate workers.",
            show_default="those with alternates or a cost",
            rich_help_panel=SCALING,
        ),
    ] = None,
    cloud: Annotated[
        str | None,
        typer.Option(
            help="Catalogue of machine types: a YAML or JSON file, or a bundled name.",
            show_default="cores of this machine",
            rich_help_panel=SCALING,
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            **duration("s"),
            help="Time between two decisions; numbers are seconds.",
            show_default="60",
            rich_help_panel=SCALING,
        ),
    ] = None,
    throughput: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Share of the records to keep up with.", show_default="0.95", rich_help_panel=SCALING
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of the policy; repeatable.", rich_help_panel=SCALING),
    ] = None,
    decisions: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Folder for what was measured and decided, as Parquet files.", rich_help_panel=SCALING
        ),
    ] = None,
    updates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Changes of the graph: .jsonl or .parquet, or - for JSON lines of standard input; repeatable.",
            rich_help_panel=QUERIES,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="New folder for a file of events of each topic.",
            show_default="events are printed",
            rich_help_panel=QUERIES,
        ),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="HTML page of the events, with the graph at the time of each.",
            show_default="no page",
            rich_help_panel=QUERIES,
        ),
    ] = None,
    deliver: DeliverOption = None,
    param: ParamOption = None,
    vocabulary: VocabularyOption = None,
    lateness: LatenessOption = 5.0,
    late: LateOption = "side",
    tombstone_ttl: TombstoneOption = 3600.0,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help=STATE_HELP,
            show_default="in memory",
            rich_help_panel=QUERIES,
        ),
    ] = None,
    retention: RetentionOption = 604_800.0,
    json: Json = False,
) -> None:
    from dataclasses import asdict

    from goffish.cli.output import print_json
    from goffish.streaming.control import read_workers
    from goffish.streaming.embedded import run
    from goffish.streaming.flow_file import load_flow
    from goffish.streaming.live.watch import Watch
    from goffish.streaming.runtime.cluster import run_workers
    from goffish.streaming.sinks import Print
    from goffish.streaming.topology import SinkOptions

    result = None
    for path in (out, state, page):
        if path is not None:
            local_path(path)
    _check_options(context, queries=flow.endswith(SUFFIX))
    if state is None and _is_given(context, "retention"):
        raise InputError("--retention requires --state")
    if flow.endswith(SUFFIX):
        if not updates:
            raise InputError(f"{flow}: graph queries need --updates")
        with _status(flow, quiet=out is None and not deliver) as report:
            run_queries(
                QueryFile(flow, param, vocabulary), updates, out,
                GraphOptions(lateness, late, tombstone_ttl, state, retention), report,
                outputs=Outputs(page, deliver or ()), as_document=json,
            )  # fmt: skip
        return
    number = read_workers(workers)
    check_choice("delivery", delivery, ("exactly-once", "at-least-once"))
    for path in (checkpoint, decisions):
        if path is not None:
            local_path(path)
    access = {"token": token, "certificate": certificate, "key": key, "authority": authority}
    rental = RentalOptions(
        provider=provider, options=provider_options, jobs=jobs, machine_type=machine_type, market=market,
        max_machines=max_machines, hourly_budget=hourly_budget, listen=listen, cloud=cloud,
    )  # fmt: skip
    rental.check(access | {"token": token if _is_given(context, "token") else None})
    topology = load_flow(flow).check()
    scaling = None
    if policy is not None:
        from goffish.streaming.scaling import Scaling

        for name, value, default in (("--workers", workers, "1"), ("--listen", None if provider else listen, None)):
            if value != default:
                raise InputError(f"{name} {value}: not with --policy, which chooses the workers")
        if decisions is not None:
            check_new_place(decisions, folder=True)
        named = [name.strip() for name in (elements or "").split(",") if name.strip()]
        scaling = Scaling(
            policy, named, cloud, 60.0 if interval is None else interval, 0.95 if throughput is None else throughput,
            name_values(option, "--option"), decisions,
        )  # fmt: skip
    else:
        choices = {
            "elements": elements, "cloud": None if provider else cloud, "interval": interval,
            "throughput": throughput, "option": option, "decisions": decisions,
        }  # fmt: skip
        if given := [name for name, value in choices.items() if value is not None]:
            needs = "--policy or --provider" if given[0] == "cloud" else "--policy"
            raise InputError(f"--{given[0]} requires {needs}")
    prints = any(
        isinstance(one.options, SinkOptions) and isinstance(one.options.sink, Print) for one in topology.operators
    )
    terminated = False

    def end(*_: Any) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    if number != 1 or listen is not None or scaling is not None or provider is not None:
        signal.signal(signal.SIGTERM, end)
    try:
        with (
            time_for_cleanup(rental.cleanup_s),
            Watch(http, lambda path: replace(load_flow(path).check(), file=path)) as watch,
            rental.machines(topology, flow, replication, here, lease, checkpoint, planned=scaling is not None)
            or machines_of(topology, listen, here, lease, checkpoint, **access) as machines,
            _status(f"flow {topology.name}", quiet=prints) as report,
        ):
            if watch.url is not None:
                sys.stderr.write(f"live page: {watch.url}\n")
            if machines is not None and provider is None:
                sys.stderr.write(f"agents join at {machines.address}\n")
            if scaling is not None:
                with needed_for("--policy", "simulate"):
                    from goffish.streaming.rented.planned import PlannedMachines
                    from goffish.streaming.scaled_run import run_scaled

                metrics, result = run_scaled(
                    topology, scaling, replication, checkpoint, every, until, report, watch, delivery,
                    machines if isinstance(machines, PlannedMachines) else None,
                )  # fmt: skip
            elif number == 1 and machines is None:
                metrics = run(topology, checkpoint, every, until, report=report, watch=watch)
            else:
                metrics = run_workers(
                    topology, number, replication, checkpoint, every, until, report, watch, delivery, machines
                )
    except KeyboardInterrupt:  # before the flow has started
        sys.stderr.write("terminated\n" if terminated else "interrupted\n")
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from None
    if terminated and metrics.stopped == "interrupted":
        metrics = replace(metrics, stopped="terminated")
    bill = None if machines is None else machines.bill
    if json:
        more = {"scaling": None if result is None else asdict(result.summary), "machines": bill}
        print_json(metrics.to_dict() | {name: value for name, value in more.items() if value is not None})
    elif not prints:  # the output is that of the flow
        _print_metrics(metrics)
        if result is not None and scaling is not None:
            _print_scaling(result, scaling)
        if bill is not None:
            print_bill(bill)
    if metrics.stopped in ("interrupted", "terminated"):
        saved = "" if metrics.checkpoint is None else f"; checkpoint {metrics.checkpoint} saved in {checkpoint}"
        sys.stderr.write(f"{metrics.stopped}{saved}\n")
        raise typer.Exit(INTERRUPTED if metrics.stopped == "interrupted" else TERMINATED)


def _check_options(context: typer.Context, *, queries: bool) -> None:
    """Refuse options of flows for graph queries, and the reverse."""
    of_queries = {
        "updates", "out", "param", "vocabulary", "lateness", "late", "tombstone_ttl", "state", "retention", "page",
        "deliver",
    }  # fmt: skip
    for name in context.params.keys() - {"flow", "json"}:
        if not _is_given(context, name) or queries == (name in of_queries):
            continue
        where = "not with graph queries" if queries else f"only with graph queries, a file that ends in {SUFFIX}"
        raise InputError(f"--{name.replace('_', '-')}: {where}")


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@contextmanager
def _status(title: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a status line on standard error if it is a terminal; yield the callback for its text."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    with console.status(title) as status:
        yield lambda text: status.update(f"{title}{text}")


def _print_metrics(metrics: Metrics) -> None:
    from goffish.cli.output import print_table

    saved = "" if metrics.checkpoint is None else f", checkpoint {metrics.checkpoint}"
    title = f"{metrics.flow}: {metrics.stopped}, {metrics.records:,} records in {metrics.seconds:.3g} s{saved}"
    header = ["operator", "kind", "alternate", "received", "sent", "records/s", "busy, s", "queue", "late", "errors"]
    print_table(title, header, [
        [one.operator, one.kind, one.alternate, one.received, one.sent, round(one.rate), round(one.busy, 3), one.queue,
         one.late, one.errors]
        for one in metrics.operators
    ])  # fmt: skip


def _print_scaling(result: Result, scaling: Scaling) -> None:
    """Print what a policy has reached, and its decisions."""
    from goffish.cli.output import print_table

    rows, elements = result.intervals.to_pylist(), result.elements.to_pylist()
    size = len(elements) // len(rows)
    title = f"{scaling.policy}: throughput {result.summary.omega:.3f} of {scaling.throughput:g}"
    if len(rows) > _SHOWN:
        title += f", last {_SHOWN} of {len(rows):,} intervals"
    names = [one["processing_element"] for one in elements[:size]]
    header = ["second", "records/s", "throughput", "queue", "machines", "cost", *names]
    print_table(title, header, [
        [round(one["start_s"]), round(one["rate"]), round(one["omega"], 3), round(one["queue"]), one["machines"],
         float(f"{one['cost']:.3g}"),
         *(f"{each['instances']} {each['alternate']}" for each in elements[at * size : (at + 1) * size])]
        for at, one in list(enumerate(rows))[-_SHOWN:]
    ])  # fmt: skip


_State = Annotated[str, typer.Option(metavar="DIR", help=STATE_HELP)]
_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of a query.")]


def _tail(
    topic: _Topic,
    state: _State,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Print only events after this number.", show_default="all that are kept"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more events; Ctrl-C ends.")] = False,
    json: Json = False,
) -> None:
    tail_topic(topic, state, after, follow=follow, as_document=json)


def _answers(topic: _Topic, state: _State, json: Json = False) -> None:
    print_answers(topic, state, as_document=json)


def _verify(
    state: Annotated[str, typer.Argument(metavar="DIR", help="Folder that the run had as --state.")], json: Json = False
) -> None:
    verify_state(state, as_document=json)


def _check(
    context: typer.Context, flow: _FlowOrQueries, param: ParamOption = None, vocabulary: VocabularyOption = None,
    json: Json = False,
) -> None:  # fmt: skip
    from goffish.cli.output import print_json, print_table
    from goffish.streaming.flow_file import load_flow

    _check_options(context, queries=flow.endswith(SUFFIX))
    if flow.endswith(SUFFIX):
        check_queries(QueryFile(flow, param, vocabulary), as_document=json)
        return
    topology = load_flow(flow).check()
    rows = [
        [one.name, one.kind, ", ".join(map(str, one.alternates)), ", ".join(_inputs(one)), one.keys]
        for one in topology.operators
    ]
    if json:
        print_json(topology.to_dict())
    else:
        count = len(topology.channels)
        title = f"{topology.name}: {len(rows)} operators, {count} channels"
        print_table(title, ["operator", "kind", "alternates", "receives from", "key"], rows)


def _inputs(operator: Operator) -> Iterator[str]:
    for channel in operator.inputs:
        output = f".{channel.output}" if channel.output else ""
        yield f"{channel.source}{output}{' (feedback)' if channel.feedback else ''}"


_Running = Annotated[str, typer.Argument(metavar="FLOW", help="Name or process id of a running flow.")]


def _list(json: Json = False) -> None:
    from goffish.cli.output import print_json, print_table
    from goffish.streaming.control import running

    rows: list[dict[str, Any]] = []
    for flow in running():
        with closing(flow):
            metrics = None
            with suppress(JobError):  # one that hangs is in the list, too
                metrics = flow.ask("metrics")
            if flow.ended is None:
                names = ("seconds", "records", "recent_rate", "checkpoint")
                found = {name: None if metrics is None else metrics[name] for name in names}
                workers = None if metrics is None else len(metrics["workers"])
                rows.append({"flow": flow.flow, "pid": flow.pid, "workers": workers, **found})
    if json:
        print_json({"flows": rows})
        return
    header = ["flow", "pid", "workers", "running, s", "records", "records/s", "checkpoint"]
    print_table(f"{len(rows)} running flow{'s' * (len(rows) != 1)}", header, [
        [one["flow"], str(one["pid"]), one["workers"], _round(one["seconds"]), one["records"],
         _round(one["recent_rate"]), one["checkpoint"]]
        for one in rows
    ])  # fmt: skip


def _round(value: float | None) -> int | None:
    return None if value is None else round(value)


def _top(
    flow: _Running,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    json: Json = False,
) -> None:
    from goffish.cli.output import print_json, print_table
    from goffish.streaming.control import find

    with closing(find(flow)) as found:
        metrics = _asked(found)
        if json:
            print_json(metrics)
        elif once or not sys.stdout.isatty():
            for title, header, rows in metrics_tables(metrics, str(metrics["pid"])):
                print_table(title, header, rows)
        else:
            _live(found, metrics)


def _asked(flow: Connection) -> dict[str, Any]:
    """Return the metrics of a flow that has not ended."""
    metrics: dict[str, Any] | None = flow.ask("metrics")
    if metrics is None:
        raise JobError(f"{flow.flow}: has ended")
    return metrics


def _live(flow: Connection, metrics: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def picture() -> Group:
        parts: list[Text | Table] = []
        for title, header, rows in metrics_tables(metrics, str(metrics["pid"])):
            table = Table(*header, box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for at, column in enumerate(table.columns):
                if all(isinstance(row[at], int | float | None) for row in rows):
                    column.justify = "right"
            for row in rows:
                table.add_row(*(Text(show(value)) for value in row))
            parts += [Text(title, style="bold"), table, Text("")]
        return Group(*parts)

    from goffish.cli.output import show

    with Live(picture(), screen=True, auto_refresh=False) as live:
        live.refresh()
        while not flow.wait(1.0):
            found = flow.ask("metrics")
            if found is not None:
                metrics = found
                live.update(picture(), refresh=True)
    _print_end(flow)


def _print_end(flow: Connection) -> None:
    """Print how a flow has ended.

    Raises
    ------
    JobError
        It has failed.
    """
    from goffish.cli.output import say

    ended = flow.ended or {}
    if "error" in ended:
        raise JobError(f"{flow.flow}: has failed: {ended['error']}")
    say(f"{flow.flow}: {ended['ended']}")


def metrics_tables(metrics: dict[str, Any], remark: str) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    """Return title, header and rows of the tables of a running flow, whose name the remark follows.

    Parameters
    ----------
    metrics : dict
        As `Metrics.to_dict` returns them.
    remark : str

    Yields
    ------
    tuple
    """
    saved = "" if metrics["checkpoint"] is None else f", checkpoint {metrics['checkpoint']:,}"
    rate = f"{metrics['records']:,} records, {metrics['recent_rate']:,.0f}/s"
    title = f"{metrics['flow']} ({remark}): {rate}, {metrics['seconds']:,.0f} s{saved}"
    header = ["operator", "kind", "alternate", "received", "sent", "records/s", "busy, %", "queue", "late", "errors",
              "median, ms", "99 %, ms"]  # fmt: skip
    rows = []
    for one in metrics["operators"]:
        latency = one["recent_latency"] or {"p50": None, "p99": None}
        times = [None if latency[name] is None else float(f"{1e3 * latency[name]:.2g}") for name in ("p50", "p99")]
        rows.append([
            one["operator"], one["kind"], one["alternate"], one["received"], one["sent"], round(one["recent_rate"]),
            round(100 * one["load"]), one["queue"], one["late"], one["errors"], *times,
        ])  # fmt: skip
    yield title, header, rows
    header = ["worker", "operators", "pid", "queued", "unsent bytes", "blocked", "checkpoint", "age, s"]
    rows = [
        [str(one["worker"]), one["stage"], str(one["pid"]), one["queued"], one["unsent_bytes"], one["blocked"],
         one["checkpoint"], None if one["checkpoint_age"] is None else round(one["checkpoint_age"], 1)]
        for one in metrics["workers"]
    ]  # fmt: skip
    yield "workers", header, rows


def _stop(flow: _Running) -> None:
    from goffish.streaming.control import find

    with closing(find(flow)) as found:
        found.ask("stop")
        while not found.wait(_WAITS_S):
            pass
        _print_end(found)


def _switch(
    flow: _Running,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="Operator with alternates.")],
    alternate: Annotated[str, typer.Argument(metavar="ALTERNATE", help="Alternate; main is the function itself.")],
) -> None:
    from goffish.cli.output import say
    from goffish.streaming.control import find

    with closing(find(flow)) as found:
        found.ask("switch", operator=operator, alternate=alternate)
        if found.ended is not None:
            raise JobError(f"{found.flow}: has ended")
        say(f"{found.flow}: operator {operator} uses {alternate}")


def _scale(
    flow: _Running,
    workers: Annotated[str, typer.Argument(metavar="WORKERS", help=WORKERS_HELP)],
    json: Json = False,
) -> None:
    from goffish.cli.output import print_json, say
    from goffish.streaming.control import find, read_workers

    wanted = read_workers(workers)
    sizes = {None: wanted} if isinstance(wanted, int) else wanted
    with closing(find(flow)) as found:
        found.ask("scale", workers=workers)
        reached = False
        while found.ended is None and not reached:
            found.wait(_LOOKS_S)
            if found.ended is None:
                working = found.ask("metrics")["workers"]
                joined = {stage: [one["joined"] for one in working if one["stage"] == stage] for stage in sizes}
                reached = all(joined[stage] == [True] * size for stage, size in sizes.items())
        if found.ended is not None:
            raise JobError(f"{found.flow}: has ended")
        if json:
            print_json({"flow": found.flow, "workers": wanted})
        else:
            parts = [
                f"{size} worker{'s' * (size != 1)}" + (f" for {one}" if one else "") for one, size in sizes.items()
            ]
            say(f"{found.flow}: {', '.join(parts)}")


def _update(
    flow: _Running,
    new: Annotated[str, typer.Argument(metavar="FILE", help="New version: Python or YAML file of the flow.")],
    strategy: Annotated[
        Strategy | None,
        typer.Option(help=STRATEGY_HELP, show_default=STRATEGY_DEFAULT),
    ] = None,
    require: Annotated[
        list[Requirement] | None,
        typer.Option(help=REQUIRE_HELP, show_default="none"),
    ] = None,
    partial_windows: Annotated[PartialWindow, typer.Option(help=WINDOWS_HELP)] = PartialWindow.EMIT,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, with bounds of the cost, and exit.")
    ] = False,
    json: Json = False,
) -> None:
    from goffish.cli.output import print_facts, print_json
    from goffish.streaming.control import find
    from goffish.streaming.flow_file import load_flow

    load_flow(new).check()  # so that what it prints, and its errors, appear here
    path, _, name = new.partition(":") if ".py:" in new else (new, "", "")
    given = {
        "file": f"{local_path(path).absolute()}{f':{name}' if name else ''}",
        "partial_windows": str(partial_windows),
    }
    with closing(find(flow)) as found:
        bounds: dict[str, Any] | None = None
        if dry_run or require:
            bounds = found.ask("predict", **given, require=",".join(require or ()))
            if strategy is not None and require and bounds and not dry_run:
                check_requirements(strategy, require, bounds)
        chosen = strategy or (bounds or {}).get("recommended") or Strategy.MVC
        given["strategy"] = str(chosen)
        plan = found.ask("plan", **given)
        report: dict[str, Any] | None = None
        if plan is not None and not dry_run:
            before = len((found.ask("updates") or {"reports": []})["reports"])
            found.ask("update", **given)
            while found.ended is None and report is None:
                found.wait(_LOOKS_S)
                state = None if found.ended is not None else found.ask("updates")
                if state is not None and len(state["reports"]) > before:
                    report = state["reports"][before]
        if plan is None or (report is None and not dry_run):
            raise JobError(f"{found.flow}: has ended")
    shown = plan if report is None else report
    if json:
        print_json(shown | bounds if dry_run and bounds is not None else shown)
    else:
        print_facts(f"{found.flow}: {shown['changes']}", plan_facts(shown))
        if dry_run and bounds is not None:
            print_bounds(bounds)
    if report is not None and report["state"] == "aborted":
        raise JobError(f"{found.flow}: the update was aborted, and the flow goes on: {report['reason']}")


def check_requirements(strategy: Strategy, required: Sequence[Requirement], bounds: Mapping[str, Any]) -> None:
    """Check that a strategy, which was chosen, loses and mixes nothing if that is required.

    Parameters
    ----------
    strategy : Strategy
    required : sequence of Requirement
    bounds : mapping
        The answer to the request ``predict``.

    Raises
    ------
    InputError
        It does not; names what it does not meet, and the strategy that is recommended.
    """
    met = next((one["meets"] for one in bounds["predictions"] if one["strategy"] == strategy), None)
    must = [str(one) for one in required if one is not Requirement.LOWEST_LATENCY]
    if met is not None and (missing := [one for one in must if one not in met]):
        raise InputError(
            f"--strategy {strategy}: does not meet {', '.join(missing)}; omit it, to use {bounds['recommended']}"
        )


def plan_facts(plan: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the lines of a plan or report of an update.

    Parameters
    ----------
    plan : dict
        As `UpdatePlan.to_dict` or `UpdateReport.to_dict` returns it.

    Returns
    -------
    list of (str, object)
    """
    predicted = plan.get("predicted") or {}
    return [
        (name.replace("_", " "), _beside(value, predicted.get(name)))
        for name, value in plan.items() if name not in ("changes", "predicted") and value not in ("", [], None)
    ]  # fmt: skip


def _beside(value: Any, bound: float | None) -> Any:
    """Return a value of a report, with what was predicted."""
    from goffish.cli.output import show

    if isinstance(value, list):
        return ", ".join(value)
    return value if bound is None else f"{show(value)} (predicted: at most {show(_rounded(bound))})"


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else float(f"{value:.3g}")


def print_bounds(bounds: dict[str, Any]) -> None:
    """Print bounds of the cost of an update.

    Parameters
    ----------
    bounds : dict
        As the request ``predict`` returns them.
    """
    from goffish.cli.output import print_facts, print_table

    rows = [
        [one["strategy"], one["consistent"], one["delineated"],
         *(_rounded(one[name]) for name in ("refresh_s", "lag_s", "outage_s")), one["lost"],
         ", ".join(one["meets"]) or None]
        for one in bounds["predictions"]
    ]  # fmt: skip
    header = ["strategy", "consistent", "delineated", "refresh, s", "lag, s", "no output, s", "lost", "meets"]
    if rows:
        print_table("at most", header, rows)
    if bounds["quantities"]:
        print_table("from", ["quantity", "value", "unit", "origin"], [
            [one["name"], _rounded(one["value"]), one["unit"], one["origin"]] for one in bounds["quantities"]
        ])  # fmt: skip
    facts = [(name, bounds[name]) for name in ("recommended", "reason", "note") if bounds[name]]
    if facts:
        print_facts("prediction", facts)
