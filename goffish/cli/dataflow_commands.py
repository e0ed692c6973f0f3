"""``goffish plan`` and ``goffish simulate``: place a dataflow on machines and run it over time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_choice, name_values
from goffish.cli.inputs import duration
from goffish.cli.options import HOURS_HELP, Json, Plot
from goffish.errors import InputError
from goffish.partial import check_new_place, local_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from goffish.cloud.catalogue import Catalogue
    from goffish.scheduling.control.records import Result, Summary
    from goffish.scheduling.dataflow.flow import Floats, Flow
    from goffish.scheduling.policies.observation import Policy

_Dataflow = Annotated[
    str,
    typer.Argument(
        metavar="DATAFLOW",
        help="Dataflow file (YAML or JSON), or a bundled dataflow: linear-road, sc13-diamond, plasticc-10x3, "
        "mixed-100, text-classifier, visp-oee.",
    ),
]
_Cloud = Annotated[str, typer.Option(help="Catalogue of machine types: a YAML or JSON file, or a bundled name.")]
_Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Policy option, such as alternate_every=2 or POLICY.alternate_every=2; repeatable.",
    ),
]
_Rate = Annotated[
    list[str] | None,
    typer.Option("--rate", metavar="PE=RATE", help="Expected messages per second of an input PE; repeatable."),
]
_NoAlternates = Annotated[
    bool, typer.Option("--no-alternates", help="Fix every processing element to its best alternate.")
]
_Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
_DEFAULT_CLOUD = "ec2-2013-m1"
_RATES_HELP = "Input rates: constant, wave, walk, free-walk, spikes, on-off, daily, requests, or a file."
_PANEL_FILES = "Files of rates (CSV, Parquet, web-server logs)"
_Column = Annotated[
    str | None,
    typer.Option(
        "--column", metavar="NAME", help="Column of the total rate, or of timestamps to count.",
        show_default="a column for each input", rich_help_panel=_PANEL_FILES,
    ),
]  # fmt: skip
_Every = Annotated[
    float | None,
    typer.Option(
        "--every", **duration("s", 1e-3), help="Duration of a row; numbers are seconds.",
        show_default="by the column of timestamps, or else one interval", rich_help_panel=_PANEL_FILES,
    ),
]  # fmt: skip
_Scale = Annotated[
    float | None, typer.Option("--scale", min=0, help="Factor of all rates.", rich_help_panel=_PANEL_FILES)
]
_Offset = Annotated[
    float | None,
    typer.Option(
        "--offset", **duration("s"), help="Duration skipped at the beginning; numbers are seconds.",
        rich_help_panel=_PANEL_FILES,
    ),
]  # fmt: skip


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("plan")(_plan)
    app.command("simulate")(_simulate)


def _plan(
    dataflow: _Dataflow,
    policy: Annotated[
        str, typer.Option(help="Scheduler policy; goffish plan --policies lists them.")
    ] = "reactive-global",
    cloud: _Cloud = _DEFAULT_CLOUD,
    rates: Annotated[
        str | None, typer.Option(help=_RATES_HELP, show_default="the expected rates of the dataflow")
    ] = None,
    column: _Column = None,
    every: _Every = None,
    scale: _Scale = None,
    offset: _Offset = None,
    rate: _Rate = None,
    option: _Option = None,
    no_alternates: _NoAlternates = False,
    seed: _Seed = 0,
    policies: Annotated[
        bool,
        typer.Option(
            "--policies", callback=_list_policies, is_eager=True, help="List the scheduler policies and exit."
        ),
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            callback=_print_schemas,
            is_eager=True,
            help="Print the JSON schemas of dataflow and catalogue files and exit.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Compute a deployment of a dataflow: alternates, machines and cost."""
    from goffish.cli.inputs import working
    from goffish.cli.output import print_json
    from goffish.scheduling.policies.feasible import feasible
    from goffish.scheduling.policies.policies import make_policy
    from goffish.scheduling.policies.report import backlog_growth, describe_plan

    flow, catalogue = _setting(dataflow, cloud, rate, no_alternates)
    planner = make_policy(policy, name_values(option, "--option"), own=True)
    reading = _reading(column, every, scale, offset)
    if rates is not None:
        flow = flow.with_rates(_rates(rates, flow, None, flow.goal.interval_s, seed, reading, whole=True).mean(axis=0))
    elif reading:
        raise InputError(f"--{next(iter(reading)).removesuffix('_s')} requires --rates FILE")
    with working(f"planning with {policy}"):
        plan = feasible(planner.deploy(flow, catalogue), flow)
    described = {"dataflow": dataflow, "policy": policy} | describe_plan(flow, plan, flow.rates)
    described["backlog_growth"] = backlog_growth(flow, plan, flow.rates)
    if json:
        print_json(described)
    else:
        _print_plan(described)


def _simulate(
    dataflow: _Dataflow,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Scheduler policy; goffish plan --policies lists them. Repeat to compare.",
            show_default="reactive-global",
        ),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="Scheduler policies to compare, separated by commas; same as repeated --policy.")
    ] = None,
    cloud: _Cloud = _DEFAULT_CLOUD,
    rates: Annotated[str, typer.Option(help=_RATES_HELP)] = "constant",
    column: _Column = None,
    every: _Every = None,
    scale: _Scale = None,
    offset: _Offset = None,
    rate: _Rate = None,
    hours: Annotated[
        float | None, typer.Option(**duration("h"), help=HOURS_HELP, show_default="the period of the goal")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            **duration("s"), help="Scheduling interval; numbers are seconds.", show_default="the interval of the goal"
        ),
    ] = None,
    variability: Annotated[
        str,
        typer.Option(
            help="Variability of machine performance: none, ec2, walk, or a CSV or Parquet file (a column per trace)."
        ),
    ] = "none",
    forecast: Annotated[
        str | None,
        typer.Option(
            help="Forecaster of lookahead policies: oracle, last, mean, quantiles, smoothing or arima.",
            show_default="quantiles for plasticc and auto, else smoothing",
        ),
    ] = None,
    horizon: Annotated[float, typer.Option(**duration("m"), help="Forecast horizon; numbers are minutes.")] = 60.0,
    oracle_error: Annotated[
        float, typer.Option(min=0, help="Mean relative error of the oracle forecaster, such as 0.1.")
    ] = 0.0,
    oracle_bias: Annotated[float, typer.Option(help="Relative bias of the oracle forecaster, such as 0.05.")] = 0.0,
    mean_lifetime: Annotated[
        float | None,
        typer.Option(
            **duration("h"), help="Mean time to failure of a machine; numbers are hours.", show_default="no failures"
        ),
    ] = None,
    spot_since: Annotated[
        str | None,
        typer.Option(
            help="Start of the spot prices, such as 2015-06-01 or 2015-06-01T12:00 (UTC).",
            show_default="start of the traces",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="Simulation engine: fluid (interval estimates), events (queues) or real (worker processes)."),
    ] = "fluid",
    option: _Option = None,
    no_alternates: _NoAlternates = False,
    seed: _Seed = 0,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Folder for the recorded metrics, as Parquet files.")
    ] = None,
    plot: Plot = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write an interactive page: FILE.html.")] = None,
    json: Json = False,
) -> None:
    """Run a dataflow on a simulated cloud or on real processes, and report throughput and cost."""
    from goffish.cli.inputs import moment
    from goffish.cli.output import print_json
    from goffish.scheduling.policies.policies import default_forecast, make_policy
    from goffish.scheduling.simulate.scenario import make_variability

    check_choice("engine", engine, ("fluid", "events", "real"))
    _check_targets(plot, html)
    if output is not None:
        check_new_place(output, folder=True)
    flow, catalogue = _setting(dataflow, cloud, rate, no_alternates)
    length = flow.goal.interval_s if interval is None else interval
    table = _rates(rates, flow, hours, length, seed, _reading(column, every, scale, offset))
    flow = flow if hours is None else replace(flow, goal=flow.goal.for_hours(hours))
    machines = make_variability(variability, seed)
    since = moment(spot_since, "--spot-since")
    names = [*(policy or ()), *(name.strip() for name in (compare or "").split(",") if name.strip())]
    names = list(dict.fromkeys(names)) or ["reactive-global"]
    given = name_values(option, "--option")
    planners = {name: make_policy(name, _options_of(name, names, given), own=True) for name in names}
    ahead = {"horizon": max(1, round(horizon * 60 / length)), "error": oracle_error, "bias": oracle_bias, "seed": seed}
    results = {}
    for name, planner in planners.items():
        default = default_forecast(name)
        foresees = None if default is None else (forecast or default, ahead)
        with _followed(name, len(table)) as report:
            results[name] = _run(
                engine, report, flow, catalogue, planner, table, machines, foresees, length, mean_lifetime, seed, since
            )
        if output is not None:
            results[name].write(local_path(output) / name if len(planners) > 1 else output)
    if plot is not None or html is not None:
        _draw(results, flow, catalogue.currency, plot, html)
    if json:
        print_json({"dataflow": dataflow, "runs": {name: _summary(result) for name, result in results.items()}})
    else:
        _print_runs(dataflow, results, flow, catalogue.currency)


def _run(
    engine: str, report: Callable[[int], None], flow: Flow, catalogue: Catalogue, policy: Policy, rates: Floats,
    variability: Any, foresees: tuple[str, dict[str, Any]] | None, interval_s: float, mean_life: float | None,
    seed: int, spot_since: float | None,
) -> Result:  # fmt: skip
    from goffish.scheduling.control.failures import Failures
    from goffish.scheduling.simulate.run import simulate
    from goffish.scheduling.simulate.scenario import make_forecaster

    forecaster = None
    if foresees is not None:
        name, ahead = foresees
        forecaster = make_forecaster(name, flow, rates, variability, interval_s=interval_s, **ahead)
    failures = Failures(mean_life_s=None if mean_life is None else mean_life * 3600.0, seed=seed)
    if engine == "real":
        from goffish.scheduling.control.loop import Setting
        from goffish.streaming.synthetic import run_live

        setting = Setting(
            flow=flow, catalogue=catalogue, policy=policy, rates=rates, interval_s=interval_s, forecaster=forecaster,
            failures=failures, seed=seed, spot_since=spot_since,
        )  # fmt: skip
        return run_live(setting, progress=report)
    return simulate(
        flow, catalogue, policy, rates, variability, forecaster, engine=engine,  # type: ignore[arg-type]
        interval_s=interval_s, failures=failures, seed=seed, spot_since=spot_since,
    )  # fmt: skip


def _list_policies(wanted: bool) -> None:
    if wanted:
        from goffish.cli.output import print_table
        from goffish.scheduling.policies.policies import POLICIES, STATIC, policy_names

        rows = [[name, known.summary] for name, known in POLICIES.items()]
        rows += [
            [name, f"initial deployment of {name.removeprefix(STATIC)}, never adapted"]
            for name in policy_names() if name.startswith(STATIC)
        ]  # fmt: skip
        print_table("policies", ["name", "description"], rows)
        raise typer.Exit


def _print_schemas(wanted: bool) -> None:
    if wanted:
        from goffish.cli.output import print_json
        from goffish.cloud.catalogue import Catalogue
        from goffish.scheduling.dataflow.model import Dataflow

        print_json({"dataflow": Dataflow.model_json_schema(), "cloud": Catalogue.model_json_schema()})
        raise typer.Exit


def _setting(dataflow: str, cloud: str, rate: list[str] | None, fixed: bool) -> tuple[Flow, Catalogue]:
    from goffish.cloud.catalogue import read_catalogue
    from goffish.scheduling.dataflow.flow import compile_flow, external_rates
    from goffish.scheduling.dataflow.model import read_dataflow
    from goffish.scheduling.policies.feasible import check_places
    from goffish.scheduling.policies.reactive import without_alternates

    flow, catalogue = compile_flow(read_dataflow(dataflow)), read_catalogue(cloud)
    try:
        check_places(flow.names, flow.needs, catalogue)
    except InputError as error:
        raise InputError(f"{dataflow} on {cloud}: {error}") from None
    rates = {}
    for name, text in name_values(rate, "--rate").items():
        try:
            rates[name] = float(text)
        except ValueError:
            raise InputError(f"--rate {name}={text}: the rate must be a number of messages per second") from None
        if not 0 <= rates[name] < float("inf"):
            raise InputError(f"--rate {name}={text}: the rate must be 0 or more messages per second")
    if rates:
        flow = flow.with_rates(external_rates(flow, rates))
    return without_alternates(flow) if fixed else flow, catalogue


def _reading(column: str | None, every: float | None, scale: float | None, offset: float | None) -> dict[str, Any]:
    given = {"column": column, "every_s": every, "scale": scale, "offset_s": offset}
    return {name: value for name, value in given.items() if value is not None}


def _rates(
    name: str, flow: Flow, hours: float | None, interval_s: float, seed: int, reading: dict[str, Any], *,
    whole: bool = False,
) -> Floats:  # fmt: skip
    from goffish.scheduling.simulate.scenario import RATES, make_rates

    if not interval_s > 0:
        raise InputError(f"--interval {interval_s:g}: must be more than 0 seconds")
    steps = round((flow.goal.period_h if hours is None else hours) * 3600.0 / interval_s)
    if not 1 <= steps <= 1_000_000:
        raise InputError(f"--hours: {steps:,} intervals of {interval_s:g} s; 1 to 1,000,000 intervals are accepted")
    if reading and name in RATES:
        given = ", ".join(f"--{option.removesuffix('_s')}" for option in reading)
        raise InputError(f"{given}: requires a file of rates, not --rates {name}")
    return make_rates(name, flow, None if whole and name not in RATES else steps, interval_s, seed, **reading)


def _options_of(name: str, names: list[str], given: dict[str, str]) -> dict[str, str]:
    """Return the options of one policy: the common ones, and those prefixed with its name and a dot."""
    for_one = {option for option in given for other in names if option.startswith(f"{other}.")}
    own = {option.removeprefix(f"{name}."): value for option, value in given.items() if option.startswith(f"{name}.")}
    return {option: value for option, value in given.items() if option not in for_one} | own


def _check_targets(plot: str | None, html: str | None) -> None:
    from goffish.plot import check_picture
    from goffish.plot.simulation import check_page

    if plot is not None:
        check_picture(plot)
    if html is not None:
        check_page(html)


@contextmanager
def _followed(name: str, steps: int) -> Iterator[Callable[[int], None]]:
    from goffish.cli.inputs import progress_bar

    with progress_bar(name) as update:
        yield lambda done: update(done, steps)


def _draw(results: dict[str, Result], flow: Flow, currency: str, plot: str | None, html: str | None) -> None:
    from goffish.plot.files import save
    from goffish.plot.simulation import simulation, simulation_page

    if plot is not None:
        save(simulation(results, flow.goal, currency=currency), plot)
    if html is not None:
        simulation_page(results, flow.goal, html, currency=currency)


def _summary(result: Result) -> dict[str, Any]:
    return asdict(result.summary) | {
        "planning_s_median": float(sorted(result.planning_s)[len(result.planning_s) // 2]),
        "planning_s_max": float(max(result.planning_s)),
        "planning_s_most": float(max(result.planning_s)),  # deprecated
        "intervals": result.intervals.to_pylist(),
    }


def _print_plan(plan: dict[str, Any]) -> None:
    from goffish.cli.output import print_facts, print_table

    money = plan["currency"]
    print_facts(f"{plan['dataflow']}: {plan['policy']}", [
        ("relative throughput", f"{plan['throughput']:.3f} (goal {plan['goal']:g})"),
        *([("backlog", f"grows by {plan['backlog_growth']:.3g} messages/s")] if plan["backlog_growth"] > 1e-9 else []),
        ("value", f"{plan['value']:.4g}"),
        (f"{money} per hour", f"{plan['cost_per_hour']:.4g}"),
        (f"{money} for {plan['period_h']:g} h", f"{plan['cost']:.4g}"),
        ("profit", f"{plan['profit']:.4g}"),
        ("machines", len(plan["machines"])),
        *([("network time on the slowest path", f"{plan['links_s'] * 1000:.4g} ms")] if "links_s" in plan else []),
    ])  # fmt: skip
    header = ["processing element", "alternate", "value", "messages/s", "processed", "instances", "power"]
    print_table("\nprocessing elements", header, [
        [e["processing_element"], e["alternate"], round(e["value"], 4), round(e["input"], 3), round(e["processed"], 3),
         e["instances"], round(e["power"], 3)]
        for e in plan["processing_elements"]
    ])  # fmt: skip
    sites = ["site"] if "links_s" in plan else []
    print_table("\nmachines", ["machine", "machine type", *sites, f"{money}/h", "cores", "used", "instances"], [
        [m["id"], m["machine_type"], *(m[name] for name in sites), m["price_per_hour"], m["cores"], m["used"],
         ", ".join(f"{count} {name}" for name, count in m["instances"].items())]
        for m in plan["machines"]
    ])  # fmt: skip


def _met(summary: Summary) -> str:
    return "yes" if summary.valid else "NO, the backlog grows" if summary.backlog_grows else "NO"


def _print_runs(dataflow: str, results: dict[str, Result], flow: Flow, currency: str) -> None:
    from goffish.cli.output import print_table

    first = next(iter(results.values())).summary
    steps = next(iter(results.values())).intervals.num_rows
    goal = f"{flow.goal.throughput:g} ± {flow.goal.tolerance:g}"
    title = f"{dataflow}: {steps:,} intervals, {first.rate:.4g} messages/s, goal {goal}"
    header = ["policy", "throughput", "met", "compliance", "latency, s", "value", currency, "profit"]
    print_table(title, [*header, "reconfigurations", "starts", "failures", "queued"], [
        [name, f"{s.omega:.4f}", _met(s), f"{s.compliance:.1%}", f"{s.latency_s:.3g}",
         f"{s.value:.4f}", f"{s.cost:.2f}", f"{s.profit:.4f}", s.reconfigurations, s.starts, s.failures, round(s.queue)]
        for name, s in ((name, result.summary) for name, result in results.items())
    ])  # fmt: skip
