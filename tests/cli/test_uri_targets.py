"""No command and no function writes to a local folder that is named like the beginning of a URI."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from typer.main import get_command

import goffish as gf
from goffish.algorithms.components.subgraph import ConnectedComponents
from goffish.cli.app import app
from goffish.client import AsyncClient, Client
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers import LocalMachines, LocalProvider
from goffish.errors import GoffishError, InputError
from goffish.gofs import check_store_place, write_store
from goffish.gofs.series import Attribute, SeriesSchema, append_instances, compact_series, write_series
from goffish.gopher.folder import check_folder
from goffish.gopher.spark.engine import write_spark
from goffish.partial import is_uri, local_path
from goffish.plot.animation import Animation
from goffish.plot.animation_files import check_animation, write_animation
from goffish.plot.files import check_picture, save
from goffish.plot.graph_events import check_graph_events, write_graph_events
from goffish.scheduling.estimate.calibration import Calibration
from goffish.services.api.settings import Settings
from goffish.spark.ingest import ingest
from tests.cli.conftest import Place
from tests.commands import assert_refused, subcommands

#: Texts that name nothing to write: what is read, names, values, addresses. All other texts of commands are targets, so
#: that a new option is tested here until it is listed.
NOT_WRITTEN = """
    active active_column active_time algorithm algorithms alternate around assignment attribute authority
    availability available balance certificate client client_authority client_key clients cloud clouds rent column
    columns common_name compare coordinates dangling data database dataflow delivery distance edge_exists
    edge_weights elements end engine estimator events exists extends fixed flow flows forecast format graph hashtag
    holding http initial input job join key kind label last_seen late latency listen machine machine_type market markets
    master meme memory method metric name name_pattern null_model objective only operator option order pack packages
    parallel param pass_environment paths period plate plates policy preset price rate rates reductions refine require
    result resume_from role run runner seed self_loops semantics separator server since sizes source sources
    spark_master spec spot_since start state store table target time time_format time_unit title token top topic
    traces truth unavailable unit units until updates variability variant vertex vertex_exists vertex_weights vertices
    web weight what window workers zone deliver events_page queries as_type before bucket direction events pool related
    where vocabulary pairs weighting times duration features account options region storage tag provider_options
    spark_properties spark_storage
""".split()  # noqa: SIM905 (one word a line would fill pages)
#: Names that mean something to read in one command and something to write in others.
READ_HERE = {
    ("timeseries plot animate", "timesteps"), ("timeseries plot spread", "timesteps"),
    ("timeseries plot values", "timesteps"), ("timeseries plot wavefront", "timesteps"),
    ("reservoir append", "reservoir"),
}  # fmt: skip
#: What required parameters are given where a plain text would be refused first.
SUITABLE = {
    "since": "2015-01-01",
    "until": "2015-01-02",
    "source": "1",
    "target": "2",
    "sources": "1",
    "meme": "a",
    "provider": "local",
    "account": "aws",
    "store": "small.gofs",
    "reservoir": "made.reservoir",
    "output": "out.csv",
}
#: What refuses a text without its suffix first.
SUFFIXES = {"stats_file": ".json", "html": ".html", "plot": ".png", "plot_job": ".png"}
#: Parameters of public functions that are paths to read, or whose work is done by another function of this list.
READS = """
    AsyncClient.__init__:authority AsyncClient.__init__:certificate AsyncClient.__init__:key AsyncClient.upload:path
    Connection.__init__:authority Connection.__init__:certificate Connection.__init__:key Client.upload:path
    catalogue:path dataflow:path FormatError.__init__:path open_store:path as_series:given open_series:path
    is_store:path verify_store:path read:path read_calibration:path shape_of:graph ingest:spec read_spec:spec
    iterate_instances:series map_instances:series series_frames:series run_series:series
    read_csv:path read_delta:path read_flow:path read_gofs:store read_json_lines:path read_parquet:path
    receive_grpc:tls receive_http:tls Reservoir.__init__:path save_as_table:result to_dataframe:result
""".split()  # noqa: SIM905 (one word a line would fill pages)


def targets() -> Iterator[Any]:
    seen = set()

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[Any]:
        for name, child in subcommands(command):
            yield from walk(child, (*words, name))
        made = words[:-1] if "run" in words[:-1] else words  # the commands of all algorithms are made by one function
        for option in command.params:
            kind = str(option.type_descriptor.annotation)
            if option.name == "help" or not ("str" in kind or "Path" in kind) or option.name in NOT_WRITTEN:
                continue
            if (" ".join(words), option.name) in READ_HERE or (made, option.name) in seen:
                continue
            seen.add((made, option.name))
            yield pytest.param(words, command, option, id=f"{' '.join(words)} {option.opts[0]}")

    yield from walk(get_command(app), ())


def given(param: Any) -> list[str]:
    value = SUITABLE.get(param.name, "1" if param.type_descriptor.annotation in (int, float) else "small.txt")
    return [param.opts[0], value] if param.opts[0].startswith("-") else [value]


def refusal(shared: Place, words: tuple[str, ...], command: Any, target: Any, text: str) -> str:
    """What a command says to a target that it must not write."""
    required = [given(param) for param in command.params if param.required and param is not target]
    named = [target.opts[0], text] if target.opts[0].startswith("-") else [text]
    before = shared.files()
    ended = shared(*words, *(text for one in required for text in one), *named)
    assert_refused(ended)
    assert shared.files() == before
    return ended.err


@pytest.mark.parametrize(("words", "command", "target"), list(targets()))
def test_a_command_refuses_a_uri(shared: Place, words: tuple[str, ...], command: Any, target: Any) -> None:
    suffix = SUFFIXES.get(target.name, ".csv")
    told = refusal(shared, words, command, target, f"s3:/bucket/x{suffix}")
    assert "s3:/bucket/x" in told and "a URI needs two slashes" in told
    # What takes URIs refuses an unknown scheme, and what does not refuses all.
    assert "nosuch://bucket/x" in refusal(shared, words, command, target, f"nosuch://bucket/x{suffix}")


def path_parameters() -> set[str]:
    """All parameters of public functions and methods that take a path, as ``NAME:PARAMETER``."""
    found = set()
    for module in (gf, *(import_module(one.name) for one in walk_packages(gf.__path__, "goffish.") if one.ispkg)):
        for value in (getattr(module, name) for name in getattr(module, "__all__", ())):
            made = [value] if inspect.isfunction(value) else []
            if inspect.isclass(value):
                names = (name for name in dir(value) if name == "__init__" or not name.startswith("_"))
                made = [one for name in names if inspect.isfunction(one := getattr(value, name))]
            for function in made:
                for parameter in inspect.signature(function).parameters.values():
                    if re.search(r"Path(?!Kind)", str(parameter.annotation)):
                        found.add(f"{function.__qualname__}:{parameter.name}")
    return found


def writing_calls() -> dict[str, Callable[[Any], Any]]:
    """A call for each of `path_parameters` that is written to, with the path as its argument."""
    graph = gf.from_edges([0, 1, 2], [1, 2, 0])
    cut = gf.partition(graph, 2, method="range")
    communities = gf.louvain(graph)
    shown: Any = object.__new__(Animation)
    client: Any = object.__new__(Client)
    frame: Any = None  # paths come first
    asynchronous: Any = object.__new__(AsyncClient)
    asynchronous._make_blocking, asynchronous._answered = lambda: nullcontext(client), None
    schema = SeriesSchema(edge=(Attribute("a", "int64"),))
    spec = {"inputs": ["a.csv"], "source": "a", "target": "b"}
    flow = gf.stream.Flow("numbers")
    flow.source(gf.stream.generate(1)).sink(gf.stream.collect())
    return {
        "Communities.write_communities:path": communities.write_communities,
        "Communities.write_hierarchy:path": communities.write_hierarchy,
        "Result.write:path": gf.connected_components(graph).write,
        "AsyncClient.save_result:path": lambda path: asyncio.run(asynchronous.save_result("j", path)),
        "Client.save_result:path": lambda path: client.save_result("j", path),
        "LocalMachines.__init__:folder": lambda path: LocalMachines(read_catalogue("ec2-2013-m1"), folder=path),
        "LocalProvider.__init__:folder": lambda path: LocalProvider(read_catalogue("ec2-2013-m1"), folder=path),
        "PartitionedGraph.save:path": cut.save,
        "write_store:path": lambda path: write_store(cut, path),
        "check_store_place:path": check_store_place,
        "append_instances:path": lambda path: append_instances(path, []),
        "compact_series:path": compact_series,
        "write_series:path": lambda path: write_series(cut, path, schema, []),
        "RunOptions.__init__:checkpoint_dir": lambda path: cut.run("pagerank", engine="local", checkpoint_dir=path),
        "RunOptions.__init__:output": check_folder,
        "write_spark:output": lambda path: write_spark(ConnectedComponents(), cut, path),
        "write:path": lambda path: gf.write(graph, path),
        "check_animation:path": check_animation,
        "check_graph_events:path": check_graph_events,
        "write_graph_events:path": lambda path: write_graph_events(pa.table({}), {}, path),
        "write_animation:path": lambda path: write_animation(shown, path),
        "check_picture:path": check_picture,
        "save:path": lambda path: save(Figure(), path),
        "Calibration.write:path": lambda path: Calibration({}, []).write(path),
        "Flow.run:checkpoint": lambda path: flow.run(checkpoint=path),
        "LiveGraph.__init__:state": lambda path: gf.stream.LiveGraph(state=path),
        "Scaling.__init__:output": lambda path: flow.run(scaling=gf.stream.Scaling(output=path)),
        "Flow.start:checkpoint": lambda path: flow.start(checkpoint=path),
        "receive_grpc:journal": lambda path: gf.stream.receive_grpc("127.0.0.1:8090", journal=path),
        "receive_http:journal": lambda path: gf.stream.receive_http("127.0.0.1:8080", journal=path),
        "spark_queries:checkpoint": lambda path: gf.stream.spark_queries(frame, "", checkpoint=path, output="made"),
        "spark_queries:output": lambda path: gf.stream.spark_queries(frame, "", checkpoint="made", output=path),
        "spark_algorithm:checkpoint": lambda path: gf.stream.spark_algorithm(
            frame, "components", checkpoint=path, output="made"
        ),
        "spark_algorithm:output": lambda path: gf.stream.spark_algorithm(
            frame, "components", checkpoint="made", output=path
        ),
        "write_csv:path": gf.stream.write_csv,
        "write_delta:path": gf.stream.write_delta,
        "write_delta:staging": lambda path: gf.stream.write_delta("table", staging=path),
        "write_json_lines:path": gf.stream.write_json_lines,
        "write_parquet:path": gf.stream.write_parquet,
        "write_reservoir:path": lambda path: gf.stream.write_reservoir(path, "pool"),
        "from_dataframe:output": lambda path: gf.from_dataframe(frame, path),
        "ingest:output": lambda path: ingest(spec, path),
        "ingest:quarantine": lambda path: ingest(spec, "made.gofs", quarantine=path),
        "ingest:work": lambda path: ingest(spec, "made.gofs", work=path),
    }


def test_every_function_with_a_path_is_known() -> None:
    """Breaks when a function takes a path and nobody said whether it writes there."""
    assert path_parameters() == set(READS) | set(writing_calls())


@pytest.mark.parametrize("parameter", sorted(writing_calls()))
def test_a_function_refuses_what_lost_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameter: str) -> None:
    monkeypatch.chdir(tmp_path)
    suffix = {
        "check_animation": ".html",
        "write_animation": ".html",
        "check_graph_events": ".html",
        "write_graph_events": ".html",
        "check_picture": ".png",
        "save": ".png",
    }
    end = suffix.get(parameter.partition(":")[0], ".csv")
    call = writing_calls()[parameter]
    for target in (f"s3:/bucket/x{end}", Path(f"s3://bucket/x{end}")):
        with pytest.raises(InputError, match=r"two slashes after|a path object cannot hold a URI"):
            call(target)
    if not parameter.startswith(("from_dataframe:", "ingest:output")):
        with pytest.raises(GoffishError, match="nosuch"):
            call(f"nosuch://bucket/x{end}")
    assert not list(tmp_path.iterdir())


def test_a_server_refuses_a_uri_as_its_home() -> None:
    with pytest.raises(InputError, match="a path object cannot hold a URI"):
        Settings(home=Path("s3://bucket/home"))


def test_functions_refuse_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = gf.from_edges([0, 1, 2], [1, 2, 0])
    cut = gf.partition(graph, 2, method="range")
    result = gf.connected_components(graph)
    folder: Any
    for folder in ("nosuch://bucket/x", Path("s3://bucket/x")):
        for suffix in (".parquet", ".csv"):
            with pytest.raises(InputError, match="bucket/x"):
                result.write(type(folder)(f"{folder}{suffix}"))
    for call in (partial(cut.run, "pagerank", engine="local"), partial(gf.betweenness, graph)):
        with pytest.raises(InputError, match="a path object cannot hold a URI"):
            call(checkpoint_dir=Path("s3://bucket/x"))
        with pytest.raises(GoffishError, match="nosuch"):
            call(checkpoint_dir="nosuch://bucket/x")
    with pytest.raises(InputError, match="a path object cannot hold a URI"):
        cut.save(Path("s3://bucket/x"))
    with pytest.raises(InputError, match="a path object cannot hold a URI"):
        gf.write(graph, Path("s3://bucket/x.csv"))
    with pytest.raises(GoffishError, match="nosuch"):
        cut.save("nosuch://bucket/x")
    assert not list(tmp_path.iterdir())


def test_file_uris_and_colons_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = gf.from_edges([0, 1, 2], [1, 2, 0])
    result = gf.connected_components(graph)
    assert result.write(f"file://{tmp_path}/a.csv") == tmp_path / "a.csv"
    result.write("12:30.csv")
    gf.partition(graph, 2, method="range").save(f"file://{tmp_path}/store")
    assert {p.name for p in tmp_path.iterdir()} == {"a.csv", "12:30.csv", "store"}
    assert np.array_equal(gf.open(tmp_path / "store").to_graph().edge_columns()[0], graph.edge_columns()[0])
    for flattened in ("s3:/bucket/x", "file:/a", "simplecache::s3:/bucket/x"):
        with pytest.raises(InputError, match="a URI needs two slashes after the colon"):
            local_path(flattened)
    assert local_path("run:1/a") == Path("run:1/a")
    assert is_uri("simplecache::s3://bucket/x")
    assert local_path("./s3:/a") == Path("s3:/a")
    assert local_path("C:/a") == Path("C:/a")
    with pytest.raises(InputError, match=r"file:///folder/name"):
        local_path("file://a.csv")
