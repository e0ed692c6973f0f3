"""Each extra alone, from the wheel in an environment of its own: what it promises runs with nothing else installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from goffish.extras import EXTRAS
from tests.package.test_wheel import CLEAN, ROOT, environment, run
from tests.package.test_wheel import wheel as wheel  # noqa: PLC0414 (a fixture)
from tests.services.store.databases import postgres

_SERVED = """
import asyncio, os, signal, sys
from pathlib import Path
from goffish.services.app import Server
from goffish.services.api.settings import Settings

ready = lambda _: os.kill(os.getpid(), signal.SIGTERM)
asyncio.run(Server(Settings(home=Path("home"), listen="unix:socket", grace_s=0, **eval(sys.argv[1]))).run(ready))
print("served")
"""
_SMOKE = """
import goffish as gf
from goffish.algorithms.catalogue import ALGORITHMS

graph, directed = gf.read("edges.txt"), gf.from_edges([1, 2, 3], [2, 3, 1], directed=True)
for name in ALGORITHMS:
    options = {"source": 1} if name in ("bfs", "sssp", "hops") else {}
    print(name, gf.run(name, graph, **options).summary, gf.run(name, directed, **options).summary)
gf.write(graph, "edges.csv.zst")
assert gf.read("edges.csv.zst").num_edges == 4
print("agreement", gf.agreement([0, 0, 1, 1], [0, 1, 0, 1])["nmi"])
"""
_RECEIVED = """
import http.client, socket
from goffish import stream

with socket.create_server(("127.0.0.1", 0)) as listener:
    port = listener.getsockname()[1]
flow, seen = stream.Flow("received"), stream.collect()
flow.source(stream.receive_http(f"127.0.0.1:{port}", journal="journal")).sink(seen)
running = flow.start(checkpoint="saved")
client = http.client.HTTPConnection("127.0.0.1", port)
client.request("POST", "/", b"7", {"Content-Type": "application/json"})
print("answered", client.getresponse().status)
running.stop()
"""
_TABLE = """
from goffish import stream

written, read, seen = stream.Flow("written"), stream.Flow("read"), stream.collect()
written.source(stream.from_iterable([{"a": 1}, {"a": 2}])).sink(stream.write_delta("table"))
written.run(checkpoint="saved")
read.source(stream.read_delta("table")).sink(seen)
read.run()
print("read", len(seen.values))
"""
_CRON = """
import goffish as gf

live = gf.stream.LiveGraph()
print(live.submit('DETECT Match(edge:{}) FROM "0 8 * * 1-5" TO "0 17 * * 1-5" REPEAT AS work'))
"""
_NETWORKX = "import networkx as nx; print(nx.pagerank(nx.path_graph(3), backend='goffish'))"
_KAFKA = """
from confluent_kafka import Producer
import goffish as gf

cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"})
[broker] = cluster.list_topics(timeout=10).brokers.values()
cluster.produce("numbers", b"1")
cluster.flush()
flow = gf.stream.Flow("numbers")
source = gf.stream.read_kafka("numbers", f"{broker.host}:{broker.port}", follow=False)
flow.source(source).sink(gf.stream.print_values())
flow.run()
"""
#: A command of each extra, and what it prints.
_PODS = """
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.providers.kubernetes import KubernetesOptions, KubernetesProvider
from goffish.errors import InputError
try:
    KubernetesProvider(read_catalogue("ec2-2025"), KubernetesOptions(image="goffish"))
except InputError as error:
    print(error)
"""
COMMANDS = {
    "networkx": (
        ["python", "-c", "import networkx as nx; print(nx.pagerank(nx.path_graph(3), backend='goffish'))"],
        "{",
    ),
    "scipy": (["goffish", "run", "betweenness", "edges.txt", "--epsilon", "0.1", "--compare"], "kendall tau"),
    "plot": (["goffish", "plot", "quotient", "store", "-o", "picture.png"], ""),
    "mpi": (["mpirun", "-n", "2", "goffish", "run", "components", "store", "--engine", "mpi"], "components"),
    "spark": (["goffish", "run", "components", "store", "--engine", "spark"], "components"),
    "kafka": (["python", "-c", _KAFKA], "1"),
    "delta": (["python", "-c", _TABLE], "read 2"),
    "cron": (["python", "-c", _CRON], "['work']"),
    "http": (["python", "-c", _RECEIVED], "answered 200"),
    "kubernetes": (["python", "-c", _PODS], "no cluster is configured"),
    "aws": (["goffish", "cloud", "policy", "aws", "--region", "us-east-1"], "ec2:RunInstances"),
    "service": (["python", "-c", _SERVED, "{}"], "served"),
    "service,postgres": (["python", "-c", _SERVED, "{{'database': '{url}'}}"], "served"),
    "service,tracing": (["python", "-c", _SERVED, "{'traces': 'http://127.0.0.1:9'}"], "served"),
}


def test_every_extra_has_a_command() -> None:
    """Breaks when an extra is added that nothing tries alone, or Spark's lacks what PySpark wants on executors."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {part for name in COMMANDS for part in name.split(",")} == set(extras) - {"dev", "bench"}
    # PySpark itself does not depend on them (`pip install pyspark[sql]` does).
    assert any(re.match(r"pandas>=2\.2", needed) for needed in extras["spark"])


def test_extras_of_the_documentation_exist() -> None:
    """Breaks when a page asks to install an extra that there is not, which pip only warns of."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {
        name
        for page in pages
        for names in re.findall(r"(?:goffish|'\.)\[([a-z,]+)\]", page.read_text())
        for name in names.split(",")
    }
    assert len(found) > 5 and found <= {*EXTRAS, "dev", "bench"}


def test_doctor_lists_every_extra() -> None:
    """Breaks when `goffish doctor` and missing imports do not follow the packages of an extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"dev", "bench"}
    for name, extra in EXTRAS.items():
        packages = {re.split(r"[\[><=!; ]", requirement)[0].lower() for requirement in extras[name]}
        # mpich is a program, typing_extensions is for older versions of Python.
        assert set(extra.modules.values()) == packages - {"mpich", "typing_extensions"}, name


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_no_extra_at_all(version: str, wheel: Path, tmp_path: Path) -> None:
    """On every Python, all algorithms run on the packages of every installation; what needs more names its extra."""
    found = environment(tmp_path / "env", str(wheel), python=interpreter(version))
    (tmp_path / "edges.txt").write_text("1 2\n2 3\n3 1\n7 8\n")
    (tmp_path / "a.graphml").write_text("<graphml/>")
    assert "agreement 0.0" in run(found / "python", "-c", _SMOKE, cwd=tmp_path)
    run(found / "goffish", "partition", "edges.txt", "-o", "store", "-k", "2", cwd=tmp_path)
    assert "components" in run(found / "goffish", "run", "components", "store", cwd=tmp_path)
    assert version in run(found / "goffish", "doctor", cwd=tmp_path)
    for words, told, extra in (
        ("plot quotient store -o a.png", "pictures: matplotlib", "plot"),
        ("import a.graphml -o a.csv", "a.graphml: GraphML files: networkx", "networkx"),
        ("run components store --engine spark", "Spark: pyspark", "spark"),
        ("plan linear-road", "goffish plan: networkx", "service"),
        ("jobs list", "the service: grpcio", "service"),
        ("stream worker flow.py --join 127.0.0.1:7070", "stream --listen and stream worker: grpcio", "service"),
    ):
        ended = subprocess.run(
            [found / "goffish", *words.split()], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, check=False
        )
        line = f"error: {told} is not installed: pip install 'goffish[{extra}]'\n"
        assert (ended.returncode, ended.stderr) == (2, line)


def interpreter(version: str) -> str:
    """A Python of this version: on the path, or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for place in (sys.executable, shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")):
        told = place and subprocess.run([place, "--version"], capture_output=True, text=True, check=False).stdout
        if told and told.startswith(f"Python {version}."):
            return str(place)
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", COMMANDS)
def test_an_extra_alone(extra: str, wheel: Path, tmp_path: Path) -> None:
    """Breaks when an extra lacks a package that development environments have by chance."""
    found = environment(tmp_path / "env", f"{wheel}[{extra}]")
    (tmp_path / "edges.txt").write_text("1 2\n2 3\n7 8\n")
    run(found / "goffish", "partition", "edges.txt", "-o", "store", "-k", "2", cwd=tmp_path)
    command, told = COMMANDS[extra]

    def call(*words: str) -> None:
        environment = CLEAN | {"PATH": f"{found}{os.pathsep}{os.environ['PATH']}"}
        ended = subprocess.run(
            [str(found / words[0]), *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False, timeout=280,
        )  # fmt: skip
        assert ended.returncode == 0 and told in ended.stdout, ended.stdout[-2000:] + ended.stderr[-3000:]

    if "postgres" in extra:
        with postgres() as url:
            call(*command[:-1], command[-1].format(url=url))
    else:
        call(*command)
