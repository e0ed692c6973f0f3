"""Graph jobs on the Spark cluster of the operator: what it is, how a job is started on it, and what is left behind.

The driver of a job is a worker process of the server, so that a Spark application ends with its worker. With Spark
Connect, the application is that of another server, and jobs have sessions there, which the runner ends.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from goffish.environment import check_private, looks_secret
from goffish.errors import InputError, StoreError
from goffish.gofs.files import open_folder
from goffish.gopher.shared import remove_place
from goffish.gopher.spark.master import REMOTE, Master
from goffish.partial import absolute_place, is_uri
from goffish.services.runners import worker as worker_module
from goffish.services.runners.attempt import Attempt, Ended
from goffish.services.runners.folder import JobFolder, write_whole
from goffish.services.runners.limits import JobLimits
from goffish.services.runners.processes import ProcessRunner, launcher
from goffish.services.store.records import Job, State
from goffish.services.store.spec import GraphJob

_log = logging.getLogger(__name__)
#: Minimum heap of Spark.
_LEAST_HEAP_MB = 512
#: Minimum address space of a Python worker of Spark, most of which is only reserved.
_LEAST_PYTHON_MB = 768
#: Environment of Python workers with limited address space: no large memory pools.
_FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
_DRIVER = "spark.driver.memory"
_HEAP, _PYTHON, _CORES = "spark.executor.memory", "spark.executor.pyspark.memory", "spark.executor.cores"
_MOST_CORES, _EXECUTORS, _GROWS = "spark.cores.max", "spark.executor.instances", "spark.dynamicAllocation.enabled"
#: Partitions of a graph file if the number of cores is unknown.
_PARTS = 8
#: Time limit of the process that checks or ends a session of Spark Connect.
_CONNECT_S = 60.0
_MANIFEST, _MOST_MANIFEST = "checkpoint.json", 64 << 20
#: A line of a properties file: a name, and a value after blanks, "=" or ":".
_LINE = re.compile(r"\s*([^\s=:]+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS_MB = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}


@dataclass(frozen=True)
class SparkCluster:
    """Cluster on which a server runs Spark jobs.

    Attributes
    ----------
    master : Master
    properties : mapping of str
        Spark properties of the operator, which may be secrets.
    file : Path, optional
        Where they are read from.
    storage : str, optional
        Folder or URI that the server and all executors can use.
    """

    master: Master
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    file: Path | None = None
    storage: str | None = None

    @classmethod
    def of(cls, master: str | None, file: Path | None, storage: str | None) -> SparkCluster | None:
        """Return the cluster of the options of a server; ``None`` if it has none.

        Parameters
        ----------
        master : str, optional
        file : Path, optional
            Properties file of Spark, which may also name the master.
        storage : str, optional

        Raises
        ------
        InputError
            Names the option or the line of the file, the problem and what is accepted.
        """
        properties = {} if file is None else read_properties(file)
        named = [name for name in ("spark.master", "spark.remote") if name in properties]
        if master is None and len(named) == 1:
            found = Master.of(properties[named[0]], f"--spark-properties {file}: {named[0]}")
        elif master is None and named:
            raise InputError(f"--spark-properties {file}: has both spark.master and spark.remote; give one of them")
        elif master is None:
            if file is None and storage is None:
                return None
            option = "--spark-storage" if file is None else "--spark-properties"
            raise InputError(f"{option}: requires --spark-master")
        else:
            found = Master.of(master, "--spark-master")
            if found.has_secrets:
                raise InputError(
                    f"--spark-master {found.shown}: other users can read secrets of command lines; give the URL as "
                    "spark.remote in --spark-properties"
                )
            if "spark.remote" in properties:
                raise InputError(f"--spark-master {found.shown}: {file} has spark.remote; give one of them")
        if found.kind != "local" and storage is None:
            raise InputError(
                f"--spark-master {found.shown}: requires --spark-storage, a folder or URI that the server and all "
                "executors can read and write"
            )
        return cls(found, properties, file, None if storage is None else _checked_place(storage))

    def check(self, limits: JobLimits, environment: Mapping[str, str]) -> None:
        """Check that jobs can start: programs are installed, the bounds fit, and the cluster answers.

        Parameters
        ----------
        limits : JobLimits
        environment : mapping
            Of the jobs.

        Raises
        ------
        InputError
        """
        if self.master.kind == "connect":
            self.master.check()
            self._in_session((), environment)
            return
        launcher("spark-submit", "pip install 'goffish[spark]'")
        if self.properties.get(_GROWS) == "true" and self.master.kind != "local":
            raise InputError(f"{self.file}: {_GROWS}: the Spark engine requires a fixed number of executors; remove it")
        self._cores(limits)
        for name in (_DRIVER, _HEAP, _PYTHON):
            self._megabytes(name)
        if self.master.kind == "yarn":
            folders = [environment.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")]
            if not any(one and Path(one).is_dir() for one in folders):
                raise InputError(
                    "--spark-master yarn: set HADOOP_CONF_DIR or YARN_CONF_DIR to the files of the cluster"
                )
        self.master.check()

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of workers, which alone get the URL of a server of Spark Connect."""
        return {**given, **({REMOTE: self.master.url} if self.master.kind == "connect" else {})}

    def command(self, limits: JobLimits) -> Callable[[list[str], GraphJob], list[str]]:
        """Return a function that wraps the command of a worker in ``spark-submit``, except for Spark Connect.

        Parameters
        ----------
        limits : JobLimits
            Half of the memory limit is the heap of each Java process, half is for its Python workers.
        """

        def command(worker: list[str], graph: GraphJob) -> list[str]:
            if self.master.kind == "connect":
                return worker
            submit = launcher("spark-submit", "pip install 'goffish[spark]'")
            settings = self._settings(graph, limits)
            given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
            file = [] if self.file is None else ["--properties-file", str(self.file.absolute())]
            start = [submit, "--master", self.master.url, "--deploy-mode", "client", *file, *given]
            return [*start, worker_module.__file__, *worker[-2:]]

        return command

    def order(self, job: str, before: Mapping[str, Any], limits: JobLimits) -> dict[str, Any]:
        """Return what the order of a worker has beside that of other runners.

        Parameters
        ----------
        job : str
        before : mapping
            Order of the attempt before, whose partitions are kept, as checkpoints are of these.
        limits : JobLimits
        """
        more: dict[str, Any] = {}
        if self.storage is not None:
            place = self.place(job)
            parts = before.get("parts") or self._cores(limits) or _PARTS
            more |= {"checkpoints": f"{place}/checkpoints", "shared": f"{place}/shared", "parts": parts}
        if self.master.kind == "connect":
            more["session"] = str(uuid4())
        return more

    def place(self, job: str) -> str:
        """Return the folder of a job in storage."""
        return f"{self.storage}/{job}"

    def forget(self, job: Job) -> None:
        """Remove what a job that has ended has left in storage."""
        if self.storage is not None and job.spec.runner == "spark":
            remove_place(self.place(job.id))

    def end_session(self, number: str, environment: Mapping[str, str]) -> None:
        """End a session of Spark Connect and all that it runs.

        Raises
        ------
        InputError
            The server does not answer.
        """
        self._in_session((number,), environment)

    def _in_session(self, given: tuple[str, ...], environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "goffish.services.runners.connect", *given]
        try:
            done = subprocess.run(
                command, env=self.environment(environment), capture_output=True, text=True, check=False,
                stdin=subprocess.DEVNULL, timeout=_CONNECT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InputError(f"Spark Connect {self.master.shown}: no answer within {_CONNECT_S:g} s") from None
        if done.returncode:
            errors = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
            raise InputError(errors[-1] if errors else f"Spark Connect {self.master.shown}: cannot open a session")

    def _settings(self, graph: GraphJob, limits: JobLimits) -> dict[str, str]:
        """Return the Spark properties that a job has whatever the properties file says."""
        settings = {"spark.pyspark.driver.python": sys.executable}
        # The pages listen on all addresses, and clients read the log.
        defaults = {"spark.ui.enabled": "false", "spark.log.level": "WARN"}
        settings |= {name: value for name, value in defaults.items() if name not in self.properties}
        if "spark.pyspark.python" not in self.properties and "PYSPARK_PYTHON" not in os.environ:
            settings["spark.pyspark.python"] = sys.executable
        settings |= self._core_settings(limits) | self._memory_settings(graph, limits)
        return settings

    def _core_settings(self, limits: JobLimits) -> dict[str, str]:
        if self.master.kind == "local":
            return {}
        cores, each = self._cores(limits), int(self.properties.get(_CORES, 1))
        settings = {_GROWS: "false", _CORES: str(each)}
        if cores is not None:
            settings |= (
                {_MOST_CORES: str(cores)} if self.master.kind == "standalone" else {_EXECUTORS: str(cores // each)}
            )
        return settings

    def _cores(self, limits: JobLimits) -> int | None:
        """Return how many cores a job may use; ``None`` if all, or as many as the server of Spark Connect has.

        Raises
        ------
        InputError
            They are fewer than those of one executor, or a property is not a number.
        """
        each, cores, executors = self._whole(_CORES) or 1, self._whole(_MOST_CORES), self._whole(_EXECUTORS)
        if self.master.kind not in ("standalone", "yarn", "kubernetes"):
            return None
        if self.master.kind != "standalone":
            cores = None if executors is None else executors * each
        most = min((one for one in (cores, limits.cores) if one is not None), default=None)
        if most is not None and most < each:
            raise InputError(f"{_CORES}={each}: a job may use {most} cores only (--max-cores, {_MOST_CORES})")
        return most

    def _whole(self, name: str) -> int | None:
        value = self.properties.get(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) < 1:
            raise InputError(f"--spark-properties {self.file}: {name}: {value!r} is not a whole number of at least 1")
        return int(value)

    def _memory_settings(self, graph: GraphJob, limits: JobLimits) -> dict[str, str]:
        """Return properties that enforce the memory limit, on a cluster per executor."""
        memory = limits.memory_of(graph)
        if memory is None:
            return {}
        heap = max(_LEAST_HEAP_MB, memory // 2)
        driver, python, least = heap, memory - heap, _LEAST_PYTHON_MB
        if self.master.kind == "local":
            # Spark applies the limit to each Python worker.
            if found := re.match(r"local(?:\[(\*|[0-9]+))?", self.master.url):
                python //= (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
        else:
            least *= int(self.properties.get(_CORES, 1))
            given, shared = self._megabytes(_HEAP), self._megabytes(_PYTHON)
            if given is not None:  # the operator's bound, which a job can only lower
                asked = given if graph.memory_mb is None else max(_LEAST_HEAP_MB, graph.memory_mb // 2)
                heap, python = min(given, asked), min(given, asked)
            if shared is not None:
                asked = shared if graph.memory_mb is None else graph.memory_mb // 2
                python, least = min(shared, asked), min(shared, least)
        if (most := self._megabytes(_DRIVER)) is not None:
            driver = min(driver, most)
        return {
            _DRIVER: f"{driver}m",
            _HEAP: f"{heap}m",
            _PYTHON: f"{max(least, python)}m",
            **{f"spark.executorEnv.{name}": value for name, value in _FRUGAL.items()},
        }

    def _megabytes(self, name: str) -> int | None:
        value = self.properties.get(name)
        if value is None:
            return None
        found = _SIZE.fullmatch(value)
        if found is None or not (size := int(int(found[1]) * _UNITS_MB[found[2].lower()])):
            raise InputError(f"--spark-properties {self.file}: {name}: {value!r} is not a size, such as 4g or 512m")
        return size


@dataclass(frozen=True)
class SparkRunner(ProcessRunner):
    """Runner of attempts on the Spark cluster of the operator.

    Attributes
    ----------
    cluster : SparkCluster
    """

    cluster: SparkCluster = field(default_factory=lambda: SparkCluster(Master.of("local[*]")))
    #: Sessions of Spark Connect that have ended.
    _ended: set[str] = field(default_factory=set, repr=False, compare=False)

    def run(self, attempt: Attempt) -> Ended:
        """Start a driver, or reattach to that of an earlier server, and monitor it."""
        if not attempt.folder.busy:
            try:
                self.cluster.master.check()
            except InputError as error:  # no loss of the job
                return Ended(State.QUEUED, str(error), pause=True)
            self._release(attempt.folder)  # what a killed worker of a killed server has left
            self._catch_up(attempt)
        ended = super().run(attempt)
        if ended.state != State.DONE:
            self._release(attempt.folder)
        return ended

    def _order(self, attempt: Attempt, graph: GraphJob) -> dict[str, Any]:
        before = _order_before(attempt.folder)
        return super()._order(attempt, graph) | self.cluster.order(attempt.job.id, before, self.limits)

    def _catch_up(self, attempt: Attempt) -> None:
        """Keep the manifest of the newest checkpoint in storage here, too, where progress is read from."""
        if self.cluster.storage is None:
            return
        target = attempt.folder.checkpoints / _MANIFEST
        with suppress(StoreError):  # there is none yet, or storage does not answer
            place = open_folder(f"{self.cluster.place(attempt.job.id)}/checkpoints")
            found = place.read(_MANIFEST, _MOST_MANIFEST).to_pybytes()
            target.parent.mkdir(exist_ok=True)
            if not target.exists() or target.read_bytes() != found:
                write_whole(target, found, durable=False)

    def _release(self, folder: JobFolder) -> None:
        number = _order_before(folder).get("session")
        if self.cluster.master.kind != "connect" or number is None or number in self._ended:
            return
        try:
            self.cluster.end_session(number, self.environment)
        except InputError as error:
            _log.warning("job %s: its session may run on until Spark Connect ends it: %s", folder.path.name, error)
        else:
            self._ended.add(number)


def _order_before(folder: JobFolder) -> dict[str, Any]:
    with suppress(FileNotFoundError, ValueError):
        found: dict[str, Any] = json.loads(folder.order.read_text())
        return found
    return {}


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file of Spark, such as ``spark-defaults.conf``.

    Raises
    ------
    InputError
        It cannot be read, has a name that is not one of Spark, or has secrets that other users can read.
    """
    option = f"--spark-properties {path}"
    try:
        lines = re.sub(r"\\\r?\n\s*", "", path.read_text("utf-8")).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option}: cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        match = _LINE.fullmatch(line)
        if match is None or not match[1].startswith("spark."):
            raise InputError(f"{option}, line {number}: accepted are names that begin with spark., and their values")
        found[match[1]] = re.sub(r"\\(.)", r"\1", match[2].strip())
    remote = Master.of(found["spark.remote"], option) if "spark.remote" in found else None
    if any(looks_secret(name) for name in found) or (remote is not None and remote.has_secrets):
        check_private(path)
    return found


def _checked_place(storage: str) -> str:
    """Return storage as workers name it.

    Raises
    ------
    InputError
        It is not a folder that can be written, or a URI.
    """
    option = f"--spark-storage {storage}"
    place = absolute_place(storage).rstrip("/")
    if not is_uri(storage) and not (Path(place).is_dir() and os.access(place, os.W_OK)):
        raise InputError(f"{option}: not a folder that the server can write; create it, or give a URI")
    try:
        open_folder(place)
    except StoreError as error:
        raise InputError(f"{option}: {error}") from None
    return place
