"""Measurement of the runs of a calibration, one process each, with a journal for resuming."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError, JobError, StoreError
from goffish.extras import needed_for
from goffish.scheduling.estimate.calibration import Calibration, run_from_dict, run_to_dict, this_machine
from goffish.scheduling.estimate.features import ENGINES, WORK, JobShape
from goffish.scheduling.estimate.fitting import MeasuredRun
from goffish.scheduling.estimate.graphs import Sample, samples, source_of

if TYPE_CHECKING:
    from goffish.gofs import PartitionedGraph
    from goffish.graph import Graph

DEFAULT = ("components", "pagerank", "sssp", "louvain", "betweenness")
#: Partitions and sources vary between graphs, so that their costs can be separated.
_PARTITIONS, _SOURCES = (8, 4, 16), (24, 8)
_PROBE = "goffish.scheduling.estimate.probe"
#: Extras that an engine requires.
_NEEDED = {"mpi": "mpi4py", "spark": "pyspark"}

#: Called before each run with the number of measured runs, the total, and the name of the run.
Report = Callable[[int, int, str], None]


@dataclass(frozen=True)
class CalibrationPlan:
    """The runs to measure.

    Attributes
    ----------
    algorithms, engines : sequence of str
    size : str
        One of `graphs.SIZES`.
    seconds : float
        Time limit for the start of runs, once each algorithm has enough runs for fitting and testing.
    """

    algorithms: Sequence[str] = DEFAULT
    engines: Sequence[str] = ("local",)
    size: str = "medium"
    seconds: float = 180.0

    def __post_init__(self) -> None:
        for name in self.algorithms:
            if name not in WORK:
                raise InputError(f"algorithm {name!r}: choose one that an engine runs: {', '.join(WORK)}")
        for engine in self.engines:
            if engine not in ENGINES:
                raise InputError(f"engine {engine!r}: choose one of {', '.join(ENGINES)}")
            with needed_for(f"engine {engine!r}"):
                import_module(_NEEDED.get(engine, "numba"))
            if engine == "mpi":
                launcher()
        if not self.algorithms or not self.engines:
            raise InputError("algorithms, engines: name at least one of each")
        if not self.seconds > 0:
            raise InputError(f"minutes = {self.seconds / 60:g}: must be greater than 0")
        samples(self.size)

    @property
    def keys(self) -> set[tuple[str, str, str]]:
        """Algorithm, engine and graph of every run, if there is time for all of them."""
        graphs = [sample.name for sample in samples(self.size)]
        return {(one, engine, graph) for one in self.algorithms for engine in self.engines for graph in graphs}


def launcher() -> list[str]:
    """Find ``mpirun`` of this environment, or on the path."""
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise InputError("engine 'mpi': mpirun not found; install Open MPI")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    return [found, *(("--allow-run-as-root", "--oversubscribe", "--bind-to", "none") if "Open MPI" in version else ())]


class Journal:
    """The runs measured so far, one line each; incomplete lines are ignored.

    Parameters
    ----------
    path : Path
    resume : bool
        Whether to resume from the existing runs, or to start again.
    earlier : Calibration, optional
        A calibration whose runs also count when resuming.

    Raises
    ------
    InputError
        If the runs to resume from were measured on another machine, or the file cannot be written.
    StoreError
        If the journal is damaged.
    """

    def __init__(self, path: Path, resume: bool, earlier: Calibration | None = None) -> None:
        machine = this_machine()
        self.path = path
        found = self._lines(machine) if resume and path.is_file() else []
        if resume and earlier is not None and earlier.machine == machine:
            newer = {run.key for run in found}
            found = [*(run for run in earlier.runs if run.key not in newer), *found]
        self.runs = found
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = [json.dumps(machine), *(json.dumps(run_to_dict(run)) for run in self.runs)]
            path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None

    def _lines(self, machine: dict[str, Any]) -> list[MeasuredRun]:
        lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]
        try:
            measured_on, *rows = [json.loads(line) for line in lines] or [machine]
        except ValueError:
            raise StoreError(f"{self.path}: damaged journal; leave out --resume") from None
        if measured_on != machine:
            raise InputError(f"{self.path}: was measured on another machine; leave out --resume")
        return [run_from_dict(row, self.path) for row in rows]

    def add(self, run: MeasuredRun) -> None:
        """Store a run at once."""
        self.runs.append(run)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(run_to_dict(run)) + "\n")


def measure(plan: CalibrationPlan, journal: Journal, report: Report = lambda done, total, what: None) -> Calibration:
    """Measure the runs of a plan that the journal does not contain.

    Small graphs come first, with all algorithms, alternating between fitting and testing, so that a short calibration
    covers everything roughly.

    Raises
    ------
    JobError
        If a run failed.
    """
    chosen = samples(plan.size)
    pairs = [(algorithm, engine) for engine in plan.engines for algorithm in plan.algorithms]
    asked, done = plan.keys, {run.key for run in journal.runs}
    ends = time.monotonic() + plan.seconds
    with tempfile.TemporaryDirectory(prefix="goffish-calibrate-") as place:
        for at, sample in enumerate(chosen):
            if time.monotonic() > ends and all(_enough(journal.runs, pair) for pair in pairs):
                break
            missing = [pair for pair in pairs if (*pair, sample.name) not in done]
            for store, graph, pair in _stores(sample, at, missing, Path(place)):
                if time.monotonic() > ends and _enough(journal.runs, pair):
                    continue
                report(
                    len(asked & {run.key for run in journal.runs}), len(asked), f"{pair[0]} on {pair[1]}, {sample.name}"
                )
                journal.add(_probe(sample, at, pair, store, graph, Path(place)))
    return Calibration(this_machine(), [run for run in journal.runs if run.key[:2] in pairs])


def _enough(runs: Sequence[MeasuredRun], pair: tuple[str, str]) -> bool:
    same = [run.fitted for run in runs if run.key[:2] == pair]
    return sum(same) >= 3 and len(same) - sum(same) >= 1


def _stores(
    sample: Sample, at: int, pairs: Sequence[tuple[str, str]], place: Path
) -> Iterator[tuple[Path, tuple[Graph, PartitionedGraph], tuple[str, str]]]:
    """The store of a graph for every algorithm and engine; shortest paths use one with weights."""
    from goffish.gofs import build_layout
    from goffish.partition import partition_graph

    parts = _PARTITIONS[at % len(_PARTITIONS)]
    owner: Any = None
    for weighted in (False, True):
        asked = [pair for pair in pairs if (pair[0] == "sssp") == weighted]
        if not asked:
            continue
        graph = sample.make(weighted)
        if owner is None:
            made = partition_graph(graph, parts)
            owner = made.owner()
        else:
            made = build_layout(graph, owner, parts, finder="components", partitioner=made.info.partitioner)
        store = place / f"{sample.name}{'-weighted' if weighted else ''}"
        made.save(str(store))
        for pair in asked:
            yield store, (graph, made), pair
        shutil.rmtree(store)


def _probe(
    sample: Sample,
    at: int,
    pair: tuple[str, str],
    store: Path,
    graphs: tuple[Graph, PartitionedGraph],
    place: Path,
) -> MeasuredRun:
    (algorithm, engine), (graph, cut) = pair, graphs
    cores, options = int(this_machine()["cores"]), dict[str, Any]()
    if algorithm in ("bfs", "hops", "sssp"):
        options["source"] = source_of(graph)
    if algorithm == "betweenness":
        options |= {"pivots": min(_SOURCES[at % len(_SOURCES)], graph.num_vertices), "seed": 1}
    request = {
        "store": str(store), "algorithm": algorithm, "engine": engine, "workers": cores, "options": options,
        "folder": str(place), "begun": time.monotonic(),
    }  # fmt: skip
    command = [sys.executable, "-m", _PROBE, json.dumps(request)]
    if engine == "mpi":
        command = [*launcher(), "-n", str(cores), *command]
    out, err = place / "out", place / "err"
    # Files, not pipes: a JVM may keep a pipe open after its parent process has ended.
    with (
        out.open("w") as answer, err.open("w") as complaint,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=answer, stderr=complaint) as process,
    ):  # fmt: skip
        try:
            process.wait()
        except BaseException:
            process.terminate()
            raise
    lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        last = (err.read_text().strip().splitlines() or ["no output"])[-1]
        raise JobError(f"{algorithm} on {engine}, {sample.name}: the measured run failed ({last[:300]})")
    shape = JobShape(
        algorithm, engine, graph.num_vertices, graph.num_edges, cut.num_partitions, cores, graph.directed,
        graph.weights is not None, sum(cut.info.remote), options.get("pivots"),
    )  # fmt: skip
    return MeasuredRun(graph=sample.name, fitted=sample.fitted, shape=shape, **json.loads(lines[-1]))
