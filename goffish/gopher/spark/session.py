"""Spark sessions: building one that suits the engine, and borrowing one for a run without changing it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from goffish.errors import GoffishError, InputError, JobError
from goffish.extras import needed_for
from goffish.gopher.spark.master import Master
from goffish.graph.parallel import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GRAPHFRAMES_VERSION = "0.12.2"
#: The JVM half of GraphFrames; Maven brings the second jar that it needs.
GRAPHFRAMES = f"io.graphframes:graphframes-spark4_2.13:{_GRAPHFRAMES_VERSION}"
#: Names the files of both jars, separated by commas, so that Maven is not asked.
GRAPHFRAMES_JARS = "GOFFISH_GRAPHFRAMES_JARS"
#: What to do about a session without it.
GRAPHFRAMES_ADVICE = (
    "create the session with goffish.spark.session(graphframes=True) before any other, or start it with "
    f"--packages {GRAPHFRAMES}, or with --jars graphframes-spark4_2.13-{_GRAPHFRAMES_VERSION}.jar,"
    f"graphframes-graphx-spark4_2.13-{_GRAPHFRAMES_VERSION}.jar; without access to Maven, list the two jars in "
    f"the environment variable {GRAPHFRAMES_JARS}"
)


#: Seconds from the start of an application in which executors may still be starting, and after which as many as there
#: are seem to be all.
_STARTING_S, _STEADY_S = 30.0, 3.0
_DESCRIPTION = "spark.job.description"
T = TypeVar("T")

#: Without these, Delta refuses to read.
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(
    name: str = "goffish",
    *,
    master: str | None = None,
    packages: Sequence[str] = (),
    graphframes: bool = False,
    memory: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> SparkSession:
    """Create a Spark session with the settings that the engine needs, or return the running session.

    Parameters
    ----------
    name : str
        Name of the application [default: "goffish"].
    master : str, optional
        As for ``spark-submit --master``, or ``sc://HOST:PORT`` of a server of Spark Connect [default: the master given
        to spark-submit, otherwise all processors of this machine].
    packages : sequence of str, optional
        Maven coordinates of JVM packages to load, as ``group:artifact:version`` [default: none]. With those of Delta,
        the session also has the properties that Delta requires.
    graphframes : bool
        Also load the GraphFrames jars, in the version that GoFFish supports: from the comma-separated files in the
        environment variable ``GOFFISH_GRAPHFRAMES_JARS``, otherwise from Maven [default: False].
    memory : str, optional
        Memory of the driver JVM, such as ``"2g"``; a local session has no other memory [default: that of Spark].
    config : mapping of str to value, optional
        Further Spark properties.

    Returns
    -------
    pyspark.sql.SparkSession
        The session.

    Raises
    ------
    InputError
        If PySpark is missing, Spark cannot start (no Java, unknown master, packages not found), a session without
        GraphFrames is running, or an option is that of the server of Spark Connect.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.spark import session
    >>> spark = session()
    >>> graph = gf.from_edges([1, 2], [2, 3])
    >>> gf.run("components", graph, engine="spark", spark=spark, parts=1).summary["components"]
    1
    """
    with needed_for("Spark"):
        from pyspark.sql import SparkSession
    for package in packages:
        if len(package.split(":")) != 3:
            raise InputError(f"packages: {package!r} is not group:artifact:version")
    running = SparkSession.getActiveSession()
    if running is not None and is_connect(running):
        return running
    if master is not None and master.startswith("sc://"):
        for option, given in (("packages", packages), ("graphframes", graphframes), ("memory", memory)):
            if given:
                raise InputError(f"{option}: set by the server of Spark Connect; omit it")
        return _connected(Master.of(master), name, config or {})
    # Under spark-submit the launcher has said already where and with what.
    launched = "PYSPARK_GATEWAY_PORT" in os.environ
    settings: dict[str, Any] = {"spark.sql.execution.arrow.pyspark.enabled": "true"}
    if running is None and not launched:
        # Python workers of a local session need what this Python has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {
            "spark.master": "local[*]",
            "spark.ui.showConsoleProgress": "false",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
        }
        if master is not None and not master.startswith("local"):
            for key in ("spark.driver.host", "spark.driver.bindAddress", "spark.ui.enabled"):
                del settings[key]
    settings |= {} if master is None else {"spark.master": master}
    jars = _graphframes_jars() if graphframes else []
    settings |= {"spark.jars": ",".join(jars)} if jars else {}
    wanted = [*packages, *([GRAPHFRAMES] if graphframes and not jars else [])]
    settings |= {"spark.jars.packages": ",".join(wanted)} if wanted else {}
    settings |= _DELTA if any(package.startswith("io.delta:delta-spark") for package in packages) else {}
    settings |= {} if memory is None else {"spark.driver.memory": memory}
    builder = SparkSession.builder.appName(name)
    for key, value in {**settings, **(config or {})}.items():
        builder = builder.config(key, value)
    try:
        with _interrupts_after_stop():
            made = builder.getOrCreate()
    except Exception as error:
        raise InputError(f"Spark cannot start: {first_line(error)}") from error
    if graphframes and not has_graphframes(made):
        raise InputError(f"the running Spark session has no GraphFrames jar: {GRAPHFRAMES_ADVICE}")
    return made


def _connected(master: Master, name: str, config: Mapping[str, Any]) -> SparkSession:
    """A session of Spark Connect.

    Raises
    ------
    InputError
        A package is missing, or the server does not answer or accept the session; without secrets of the URL.
    """
    from pyspark.sql import SparkSession

    master.check()  # PySpark tries again for minutes
    builder = SparkSession.builder.remote(master.url).appName(name)
    for key, value in config.items():
        builder = builder.config(key, value)
    try:
        made: SparkSession = builder.getOrCreate()
        made.version  # noqa: B018  the first call to the server
    except ImportError as error:
        reason = first_line(error)
        raise InputError(f"Spark Connect: {reason}; run pip install 'pyspark[connect]'") from error
    except Exception as error:
        raise InputError(f"Spark Connect {master.shown}: {master.hide(first_line(error))}") from error
    return made


def _graphframes_jars() -> list[str]:
    """Jars of GraphFrames that the environment names.

    Raises
    ------
    InputError
        One of them does not exist.
    """
    jars = [name.strip() for name in os.environ.get(GRAPHFRAMES_JARS, "").split(",") if name.strip()]
    for name in jars:
        if "://" not in name and not os.path.isfile(name):  # noqa: PTH113
            raise InputError(f"{GRAPHFRAMES_JARS}: {name}: no such file")
    return jars


def has_graphframes(spark: SparkSession) -> bool:
    """Whether the JVM of a session has the classes of GraphFrames."""
    from py4j.protocol import Py4JJavaError

    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass("org.graphframes.GraphFrame")
    except Py4JJavaError:
        return False
    return True


@contextmanager
def _interrupts_after_stop() -> Iterator[None]:
    """Ctrl-C after the session's end works as before it: the handler that PySpark leaves behind fails then."""
    before = signal.getsignal(signal.SIGINT)
    yield
    installed = signal.getsignal(signal.SIGINT)
    if installed is before or not callable(installed):
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        from pyspark import SparkContext

        handler = before if SparkContext._active_spark_context is None else installed
        if callable(handler):  # jobs in the background of a shell ignore Ctrl-C
            handler(number, frame)

    signal.signal(signal.SIGINT, interrupted)


def running_session(spark: SparkSession | None) -> SparkSession:
    """The session of a run: the given one, the running one or a new one, classic or of Spark Connect."""
    return session() if spark is None else spark


def is_connect(spark: SparkSession) -> bool:
    """Whether a session belongs to a server of Spark Connect."""
    return not hasattr(spark, "_jsparkSession")


def check_classic(spark: SparkSession) -> None:
    """Refuse a session of Spark Connect, for work that needs the process of the driver.

    Raises
    ------
    InputError
    """
    if is_connect(spark):
        raise InputError("spark: Spark Connect sessions are not supported here; use a classic SparkSession")


def check_fixed(spark: SparkSession) -> None:
    """Refuse a cluster on which Spark does not run barrier stages.

    Raises
    ------
    InputError
        The number of executors is not fixed.
    """
    grows = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    if grows and not _is_one_process(spark.conf.get("spark.master", "")):  # there Spark ignores it
        raise InputError(
            "the Spark engine requires a fixed number of executors; start Spark with --conf "
            "spark.dynamicAllocation.enabled=false --num-executors N"
        )


def _is_one_process(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def driver_host(spark: SparkSession) -> str:
    """The address of this process for executors."""
    if not is_connect(spark):
        return str(spark.conf.get("spark.driver.host"))
    # Nothing is sent: the system chooses the address of this machine on the way to the server.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((spark.client.host, 1))
        return str(way.getsockname()[0])


def in_background(spark: SparkSession, work: Callable[[], T], beat: Callable[[], None] | None = None) -> T:
    """The answer of blocking work on Spark in another thread, so that Ctrl-C ends the wait at once.

    The thread has the job description, tags and scheduler pool of this one. `beat` is called ten times a second.
    """
    from pyspark.util import inheritable_thread_target

    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    inherited = inheritable_thread_target(spark)
    threading.Thread(target=inherited(run) if inherited is not spark else run, daemon=True).start()
    wait_for([future], beat)
    found: T = future.result()
    return found


@contextmanager
def cancelling(spark: SparkSession, described: str | None = None) -> Iterator[None]:
    """Jobs that are started in the block and still run when it is left by an exception or Ctrl-C are cancelled.

    Spark's own pages show them as `described`.
    """
    tag = f"goffish-{uuid.uuid4().hex}"
    context = None if is_connect(spark) else spark.sparkContext
    before = None
    if context is None:
        spark.addTag(tag)
    else:
        context.addJobTag(tag)
        before = context.getLocalProperty(_DESCRIPTION)
        context.setLocalProperty(_DESCRIPTION, described or before)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            spark.interruptTag(tag) if context is None else context.cancelJobsWithTag(tag)
        raise
    finally:
        with contextlib.suppress(Exception):  # the session may be gone
            if context is None:
                spark.removeTag(tag)
            else:
                context.removeJobTag(tag)
                context.setLocalProperty(_DESCRIPTION, before)


class LostError(JobError):
    """Spark has failed, not the program: its driver, cluster or executors are lost."""


@contextmanager
def named(doing: list[str]) -> Iterator[None]:
    """Turns an error of Spark into one line that says what the job was doing.

    Raises
    ------
    LostError
    """
    try:
        yield
    except GoffishError:
        raise
    except Exception as error:
        raise LostError(f"{doing[0]}: Spark failed: {first_line(error)}") from error


def is_local(spark: SparkSession) -> bool:
    """Whether the executors run on this machine, with its folders."""
    if is_connect(spark) and spark.client.host not in ("localhost", "127.0.0.1", "::1"):
        return False
    return str(spark.conf.get("spark.master", "")).startswith("local")


def slots(spark: SparkSession, wanted: int | None = None) -> int:
    """How many tasks run at the same time.

    Parameters
    ----------
    wanted : int, optional
        More are of no use. In the first seconds of an application, when executors are still starting, wait until there
        are as many, or until their number does not grow any more.
    """
    if is_connect(spark):
        from pyspark.sql.functions import spark_partition_id

        # A server does not say; by default it makes a task for each processor.
        return max(1, int(spark.range(1 << 12).select(spark_partition_id()).distinct().count()))
    context = spark.sparkContext
    found = _slots_now(spark)
    if wanted is None or _is_one_process(str(context.master)):
        return max(1, found)
    deadline, since = context.startTime / 1000 + _STARTING_S, time.monotonic()
    while found < wanted and time.time() < deadline and (not found or time.monotonic() - since < _STEADY_S):
        time.sleep(0.1)
        before, found = found, _slots_now(spark)
        since = since if found == before else time.monotonic()
    return max(1, found)


def wait_for_executors(spark: SparkSession) -> None:
    """Wait until an application has an executor, however long the cluster is busy with others.

    Raises
    ------
    LostError
        The cluster has ended the application.
    """
    with named(["waiting for executors"]):
        while not is_connect(spark) and not _slots_now(spark):
            if spark.sparkContext._jsc.sc().isStopped():
                raise LostError("waiting for executors: the cluster has ended the application")
            time.sleep(0.2)


def _slots_now(spark: SparkSession) -> int:
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


_CALLING = "An error occurred while calling "
_DETAILS = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"


_LOST = "barrier task"
_AFTER_LOST = "finished unsuccessfully."


def loss(error: BaseException) -> str | None:
    """Why a barrier stage lost a task, from Spark's error; ``None`` for another error."""
    _, found, why = str(error).partition(_AFTER_LOST)
    if not found or _LOST not in str(error):
        return None
    return first_line(RuntimeError(why))


def first_line(error: BaseException) -> str:
    """What went wrong, from an error that may hold the stack traces of two languages."""
    text = str(error).splitlines()
    if said := _DETAILS.search(str(error)):  # of gRPC
        text = [said[1]]
    # The bridge to the JVM begins with which of its objects it called; the JVM's own words follow after a colon.
    lines = [line.strip().removeprefix(": ") for line in text if line.strip() and not line.startswith(_CALLING)]
    # A Python error in a worker is inside the message of the JVM's, after its frames, which are indented.
    traced = text[1 + next((at for at, line in enumerate(text) if line.endswith(_TRACEBACK)), len(text)) :]
    own = [line for line in traced if re.match(r"[A-Za-z_][\w.]*: ", line)]
    own += [line for line in lines if re.match(r"[A-Za-z_]\w*(Error|Exception|Interrupt): ", line)]
    reason = (own or [line for line in lines if not line.startswith("at ")] or [type(error).__name__])[0]
    return reason if len(reason) <= 300 else f"{reason[:299]}…"
