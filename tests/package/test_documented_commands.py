"""Every shell command of the documentation runs in an environment made from the wheel."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import networkx as nx
import pytest

from tests.package.pages import PAGES, ROOT, blocks, commands, fenced
from tests.package.test_wheel import CLEAN, environment
from tests.package.test_wheel import wheel as wheel  # noqa: PLC0414 (a fixture)

#: Commands that are not run, and why.
NOT_RUN = {
    r"^make |python benchmarks/": "needs a checkout",
    r"^podman ": "needs Podman or Docker",
    r"/var/lib/|/srv/": "needs root",
    r"node1|^#|^module load|^srun": "needs a cluster",
    r"db\.example|^psql ": "needs a PostgreSQL server",
    r"grpcurl": "needs the internet (grpcurl)",
    r"grpcio-tools|generate\.sh|^cd examples/service/go|go run": "needs the internet (Go modules)",
    r"^goffish calibrate(?! --show)": "takes minutes",
    r"^goffish stream (top|stop|switch|scale|update orders) ": "needs a flow that runs",
    r"^goffish jobs (scale|update|stop) |^goffish jobs submit flow ": "needs a server with flows",
    r"kafka-topics|stream run examples/kafka": "needs a Kafka broker",
}
#: Blocks of ``py`` that are not run, and why; those of this page run in tests/services/api/test_examples.py.
PROGRAMS_NOT_RUN = {
    "graphframes=True": "needs the internet (GraphFrames jar)",
    "spark.readStream": "needs a stream that goes on; see tests/streaming/graphs/test_spark.py and test_spark_kafka.py",
}
TESTED_WITH_A_SERVER = "service-clients.md"
#: What a page takes for granted, beside the bundled data and the files of :func:`folder`.
BEFORE = {
    "service-clients.md": """
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \
            -addext subjectAltName=DNS:localhost -keyout server.key -out authority.pem 2> openssl.log
        (umask 077; goffish clients add ann --role submit --file clients.yaml > ann.token)
        goffish serve --data data --certificate authority.pem --key server.key --clients clients.yaml
    """,
    "service-policies.md": "goffish partition edges.txt.gz -o web.store && goffish serve --data .",
    "timeseries-college.md": "goffish timeseries build data/collegemsg.txt.gz -o college --window 7d --directed",
}
#: A cluster of one machine takes the place of the one that a page names. What executors are said to have there is
#: installed already: here all but GoFFish, which they are sent.
PLACED = {
    "--master spark://head:7077": "--master 'local-cluster[1,1,1024]'",
    "spark-submit --master spark://head:7077 --py-files": "bare=$(without_goffish); PYSPARK_DRIVER_PYTHON=python "
    "PYSPARK_PYTHON=$bare spark-submit --master 'local-cluster[1,1,1024]' --py-files",
}
#: ``goffish serve`` and ``goffish stream serve`` run in the background until the next one, or the end of the page.
#: ``newest`` is the id of a job.
SHELL = r"""
set -eEuo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
goffish() {
    if [[ "$*" != serve* && "$*" != "stream serve "* ]]; then command goffish "$@"; return; fi
    if [ -n "${server-}" ]; then kill "$server" 2> /dev/null || true; wait "$server" || true; fi
    command goffish "$@" > serving.log &
    server=$!
    until grep -q '^serving on' serving.log; do kill -0 "$server" 2> /dev/null || return 1; sleep 0.1; done
}
without_goffish() {
    local packages=$(python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
    python -m venv --without-pip bare &&
    find "$packages" -mindepth 1 -maxdepth 1 ! -name 'goffish*' -exec ln -s -t bare/lib/python3*/site-packages {} + &&
    bare/bin/python -c "import numba, importlib.util as modules; assert modules.find_spec('goffish') is None" &&
    echo "$PWD/bare/bin/python"
}
newest() { goffish jobs list --json | grep -oE '\b[0-9a-f]{20}\b' | sed -n 1p; }
"""


def wanted(page: Path) -> tuple[list[str], dict[str, str]]:
    """Return the commands of a page that run, and those that do not with their reasons."""
    kept, left = [], {}
    for command in commands(page):
        reason = next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command)), None)
        if reason is None:
            kept.append(command)
        else:
            left[command] = reason
    return kept, left


def program(page: Path) -> str:
    """Return the blocks of ``py`` of a page that run, one after the other: those that need Spark, MPI or a session."""
    found = [text for language, text in fenced(page) if language == "py" and page.name != TESTED_WITH_A_SERVER]
    return "\n".join(text for text in found if not any(part in text for part in PROGRAMS_NOT_RUN))


def test_every_exception_is_documented() -> None:
    """Breaks when a command that is not run has left the documentation."""
    every = [command for page in PAGES for command in commands(page)]
    assert not [pattern for pattern in NOT_RUN if not any(re.search(pattern, command) for command in every)]
    assert set(BEFORE) | {TESTED_WITH_A_SERVER} <= {page.name for page in PAGES}
    programs = [text for page in PAGES for language, text in fenced(page) if language == "py"]
    assert not [part for part in PROGRAMS_NOT_RUN if not any(part in text for text in programs)]
    assert not [text for text in PLACED if not any(text in command for command in every)]


@pytest.fixture(scope="module")
def variables(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with every extra that the documentation asks for; pip finds the same wheel for ``goffish``."""
    place = tmp_path_factory.mktemp("documented")
    asked = [c for page in PAGES for c in wanted(page)[0] if c.startswith("pip ")]
    # The page with moto installs what it needs into an environment of that page, as do all readers.
    found = [names for c in asked if "moto" not in c for names in re.findall(r"(?:goffish|\.)\[(.*?)\]", c)]
    extras = sorted({extra for names in found for extra in names.split(",")})
    (place / "constraints.txt").write_text(f"goffish=={wheel.name.split('-')[1]}\n")
    settings = {
        "PIP_CONSTRAINT": str(place / "constraints.txt"),
        "PIP_FIND_LINKS": f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}",
        "PIP_NO_COMPILE": "1",
        "HOME": str(place),
    }
    programs = environment(place / "env", f"{wheel}[{','.join(extras)}]", **settings)
    return CLEAN | settings | {"PATH": f"{programs}{os.pathsep}{CLEAN['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder but for the files that readers bring: a graph, a program, an analysis, a week of messages."""
    graph = "".join(f"{u} {v}\n" for u, v in nx.gnm_random_graph(300, 900, seed=1).edges)
    (tmp_path / "shared").mkdir()
    (tmp_path / "edges.txt.gz").write_bytes(gzip.compress(graph.encode()))
    nx.write_graphml(nx.karate_club_graph(), tmp_path / "karate.graphml")
    (tmp_path / "next-weeks.csv").write_text("source,target,time\n1,2,1099000000\n")
    flow = next(text for language, text in fenced(ROOT / "docs" / "guides" / "scheduling.md") if language == "yaml")
    (tmp_path / "mine.yaml").write_text(flow)
    streams = [one for kind in ("guides", "tutorials") for one in fenced(ROOT / "docs" / kind / "streams.md")]
    parts = {text.partition("\n")[0].removeprefix("# "): text for _, text in streams if text.startswith("# ")}
    for name in ("flow.py", "ingest.py", "orders.yaml", "meters.py", "kilowatts.py"):
        (tmp_path / name).write_text(parts[name])
    (tmp_path / "shop.py").write_text(parts["flow.py"].partition("flow = ")[0])
    orders = [{"customer": f"c{n % 3}", "total": n % 50, "at": 1735689600 + n} for n in range(600)]
    (tmp_path / "orders.jsonl").write_text("".join(f"{json.dumps(order)}\n" for order in orders))
    (tmp_path / "keep_headroom.py").write_text(blocks(ROOT / "docs" / "guides" / "own-policy.md", "python"))
    (tmp_path / "analysis.py").write_text("import networkx as nx\nprint(nx.pagerank(nx.karate_club_graph()))\n")
    program = "import goffish as gf\n\ngf.run('components', gf.open('web.store'), engine='mpi')\n"
    (tmp_path / "my_job.py").write_text(program)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", [page for page in PAGES if wanted(page)[0]], ids=lambda page: page.name)
def test_commands_of_a_page(page: Path, variables: dict[str, str], wheel: Path, folder: Path) -> None:
    """Breaks when a command is documented that fails where only the wheel is installed."""
    kept, left = wanted(page)
    for command, reason in left.items():
        print(f"{page.name}: not run ({reason}): {command}")
    lines = [SHELL, "goffish examples > examples.log", BEFORE.get(page.name, "")]
    for command in kept:
        line = re.sub(r"^(goffish serve .*?)&$", r"\1", command.replace("/shared/", f"{folder}/shared/"))
        line = re.sub(r"^(pip install '?)\.", rf"\g<1>{wheel}", line)
        for printed_one, here in reversed(PLACED.items()):
            line = line.replace(printed_one, here)
        if line.startswith("! "):
            line = f"if {line[2:]}; then echo 'did not fail: {line[2:]}' >&2; exit 1; fi"
        # A job is named by its number, which is another one on every server.
        lines.append(
            re.sub(r"\b[0-9a-f]{20}\b", "$(goffish jobs list --json | grep -oE '[0-9a-f]{20}' | head -1)", line)
        )
    if code := program(page):
        (folder / "blocks.py").write_text(re.sub("/shared/|/fast/disk", f"{folder}/shared/", code))
        lines.append("python blocks.py")
    printed = folder / "printed.log"
    with printed.open("w") as log:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(lines)], cwd=folder, env=variables, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            ended = shell.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
    assert ended == 0, printed.read_text()[-4000:]
