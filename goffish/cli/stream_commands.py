"""``goffish stream``: run and check continuous dataflows."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.inputs import duration
from goffish.cli.options import Json
from goffish.cli.process import INTERRUPTED, TERMINATED
from goffish.errors import GoffishError, InputError
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.streaming.flow import Flow
    from goffish.streaming.metrics import Metrics
    from goffish.streaming.topology import Operator

_Flow = Annotated[
    str, typer.Argument(metavar="FLOW", help="Python file, with :NAME of the flow if it has several; or YAML file.")
]


def add_stream_commands(app: typer.Typer, group: Any) -> None:
    """Add ``goffish stream`` with its commands."""
    stream = typer.Typer(cls=group, help="Run and check continuous dataflows.", no_args_is_help=True)
    stream.command("run", help="Run a flow until its sources end; Ctrl-C stops it and saves a checkpoint.")(_run)
    stream.command("check", help="Check a flow, and print its operators and channels.")(_check)
    app.add_typer(stream, name="stream")


def _run(
    flow: _Flow,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of checkpoints to resume from and to write; must be trusted."),
    ] = None,
    every: Annotated[float, typer.Option(**duration("s"), help="Time between checkpoints; numbers are seconds.")] = 2.0,
    until: Annotated[
        float | None,
        typer.Option(**duration("s"), help="Duration of the run; numbers are seconds.", show_default="unlimited"),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Number of worker processes.")] = 1,
    replication: Annotated[
        int, typer.Option(min=0, max=8, help="Number of workers that may fail at once without loss.")
    ] = 1,
    json: Json = False,
) -> None:
    from goffish.cli.output import print_json
    from goffish.streaming.embedded import run
    from goffish.streaming.runtime.cluster import run_workers
    from goffish.streaming.sinks import Print
    from goffish.streaming.topology import SinkOptions

    if checkpoint is not None:
        local_path(checkpoint)
    topology = load_flow(flow).check()
    prints = any(
        isinstance(one.options, SinkOptions) and isinstance(one.options.sink, Print) for one in topology.operators
    )
    try:
        with _status(f"flow {topology.name}", quiet=prints) as report:
            if workers == 1:
                metrics = run(topology, checkpoint, every, until, report=report)
            else:
                metrics = run_workers(topology, workers, replication, checkpoint, every, until, report)
    except KeyboardInterrupt:  # before the flow has started
        sys.stderr.write("interrupted\n")
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print_json(metrics.to_dict())
    elif not prints:  # the output is that of the flow
        _print_metrics(metrics)
    if metrics.stopped in ("interrupted", "terminated"):
        saved = "" if metrics.checkpoint is None else f"; checkpoint {metrics.checkpoint} saved in {checkpoint}"
        sys.stderr.write(f"{metrics.stopped}{saved}\n")
        raise typer.Exit(INTERRUPTED if metrics.stopped == "interrupted" else TERMINATED)


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


def _check(flow: _Flow, json: Json = False) -> None:
    from goffish.cli.output import print_json, print_table

    topology = load_flow(flow).check()
    rows = [
        [one.name, one.kind, ", ".join(map(str, one.alternates)), ", ".join(_inputs(one)), _key(one)]
        for one in topology.operators
    ]
    if json:
        print_json({
            "flow": topology.name, "fingerprint": topology.fingerprint,
            "operators": [
                {"name": one.name, "kind": one.kind, "alternates": list(one.alternates), "key": _key(one)}
                for one in topology.operators
            ],
            "channels": [
                {"source": c.source, "output": c.output, "target": c.target, "port": c.port, "feedback": c.feedback}
                for c in topology.channels
            ],
        })  # fmt: skip
    else:
        count = len(topology.channels)
        title = f"{topology.name}: {len(rows)} operators, {count} channels"
        print_table(title, ["operator", "kind", "alternates", "receives from", "key"], rows)


def _inputs(operator: Operator) -> Iterator[str]:
    for channel in operator.inputs:
        output = f".{channel.output}" if channel.output else ""
        yield f"{channel.source}{output}{' (feedback)' if channel.feedback else ''}"


def _key(operator: Operator) -> str | None:
    keys = [channel.key for channel in operator.inputs if channel.key is not None]
    return ", ".join(one if isinstance(one, str) else getattr(one, "__name__", "function") for one in keys) or None


def load_flow(given: str) -> Flow:
    """Return the flow of a Python or YAML file.

    Parameters
    ----------
    given : str
        Path of the file; for Python, with ``:name`` if it has several flows.

    Raises
    ------
    InputError
        The file cannot be read or run, or has no such flow.
    """
    path, _, name = given.rpartition(":") if ".py:" in given else (given, "", "")
    if local_path(path).suffix in (".yaml", ".yml", ".json"):
        from goffish.streaming.flow_file import read_flow

        return read_flow(path)
    file = local_path(path)
    if file.suffix != ".py":
        raise InputError(f"{path}: the suffix must be one of .py, .yaml, .yml, .json")
    if not file.is_file():
        raise InputError(f"{path}: no such file")
    from goffish.streaming.flow import Flow

    flows = {key: value for key, value in vars(_module(file)).items() if isinstance(value, Flow)}
    if name:
        if name not in flows:
            raise InputError(f"{path}: no flow {name!r}; it has {', '.join(flows) or 'none'}")
        return flows[name]
    if len(flows) != 1:
        found = f"it has {', '.join(flows)}; name one, as in {path}:{next(iter(flows))}" if flows else "it has none"
        raise InputError(f"{path}: must have one flow at the top level; {found}")
    return next(iter(flows.values()))


def _module(file: Path) -> Any:
    """Run a Python file as a module, beside which other modules are found."""
    spec = importlib.util.spec_from_file_location(file.stem, file.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.absolute().parent))
    sys.modules.setdefault(file.stem, module)
    try:
        spec.loader.exec_module(module)
    except GoffishError as error:
        raise type(error)(f"{file}:{_line(file, error)}: {error}") if type(error) is InputError else error from None
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        raise InputError(f"{file}:{_line(file, error)}: {type(error).__name__}: {error}") from None
    return module


def _line(file: Path, error: BaseException) -> int | None:
    """Return the line of a file in which an error was raised."""
    name = str(file.absolute())
    lines = [at for frame, at in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == name]
    return lines[-1] if lines else None
