"""``goffish calibrate``: measure this machine to estimate the cost of graph jobs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.inputs import duration
from goffish.cli.options import Json
from goffish.partial import check_new_place

if TYPE_CHECKING:
    from goffish.scheduling.estimate.calibration import Calibration


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("calibrate")(_calibrate)


def _calibrate(
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="Algorithms to measure, separated by commas.",
            show_default="components,pagerank,sssp,louvain,betweenness",
        ),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="Engine to measure on all cores: local, mpi or spark; repeatable.", show_default="local"),
    ] = None,
    sizes: Annotated[str, typer.Option(help="Size of the largest graphs: tiny, small, medium or large.")] = "medium",
    minutes: Annotated[
        float,
        typer.Option(
            **duration("m"),
            help="Time limit for starting optional runs; required runs always complete; numbers are minutes.",
        ),
    ] = 3.0,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Calibration file.",
            show_default="~/.config/goffish/calibration.json",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume an interrupted or time-limited calibration; keep its measurements."),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the errors of an existing calibration without measuring.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure the work, memory and checkpoint size of graph jobs on this machine, and the error of estimates.

    Each algorithm runs on generated graphs, each run in a separate process. A cost model is fitted to some of the
    runs and tested on the others and on the bundled real graphs. Ctrl-C keeps the measurements; --resume continues.
    """
    from goffish.scheduling.estimate.calibration import SHIPPED, read_calibration, user_path

    if show:
        path = Path(output) if output is not None else user_path() if user_path().is_file() else SHIPPED
        _print(read_calibration(path), path, json)
        return
    from goffish.cli.inputs import progress_bar
    from goffish.cli.output import say
    from goffish.scheduling.estimate.measuring import DEFAULT, CalibrationPlan, Journal, measure

    names = DEFAULT if algorithms is None else tuple(dict.fromkeys(n.strip() for n in algorithms.split(",")))
    plan = CalibrationPlan(names, tuple(dict.fromkeys(engine or ["local"])), sizes, 60.0 * minutes)
    path = check_new_place(user_path() if output is None else output)
    earlier = read_calibration(path) if path.is_file() else None
    journal = Journal(path.with_name(f"{path.name}.runs"), resume, earlier)
    with progress_bar("measuring") as update:
        found = measure(plan, journal, lambda done, total, what: update(done, total))
    missing = len(plan.keys - {run.key for run in found.runs})
    whole = found if earlier is None else found.merged(earlier)
    whole.write(path)
    journal.path.unlink()
    _print(found, path, json)
    if not json:
        rest = f" ({missing} of {len(plan.keys)} runs are missing; continue with --resume)" if missing else ""
        say(f"\nwritten to {path}{rest}")


def _print(calibration: Calibration, path: Path, json: bool) -> None:
    from goffish.cli.output import print_json, print_table

    errors = [asdict(error) for error in calibration.errors()]
    if json:
        models: list[dict[str, Any]] = [
            {"algorithm": algorithm, "engine": engine, **asdict(model)}
            for (algorithm, engine), model in calibration.models.items()
        ]
        body = {"calibration": str(path), "machine": dict(calibration.machine), "errors": errors, "models": models}
        print_json({**body, "runs": len(calibration.runs)})
        return
    by_pair: dict[tuple[str, str], dict[str, Any]] = {}
    for error in errors:
        by_pair.setdefault((error["algorithm"], error["engine"]), {})[error["quantity"]] = error
    header = ["algorithm", "engine", "fitted", "tested", "start-up s"]
    quantities = {"work": "work", "work, file": "work, file", "memory": "memory", "checkpoint": "checkpoint"}
    rows = []
    for (algorithm, engine), found in by_pair.items():
        same = [run for run in calibration.runs if run.key[:2] == (algorithm, engine)]
        fitted = sum(run.fitted for run in same)
        startup = round(calibration.models[algorithm, engine].startup.seconds, 2)
        cells = [f"{found[name]['median']:.2f} ({found[name]['worst']:.2f})" for name in quantities]
        rows.append([algorithm, engine, fitted, len(same) - fitted, startup, *cells])
    title = f"{calibration.describe_machine()}: error factor of estimates on held-out graphs, median (worst)"
    print_table(title, [*header, *quantities.values()], rows)
