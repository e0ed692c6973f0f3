"""GraphFrames and its jars: each session that loads other jars is a process of its own, since a JVM loads them once."""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from goffish.errors import InputError
from goffish.gopher.spark.session import GRAPHFRAMES, GRAPHFRAMES_JARS, session

pytest.importorskip("pyspark")

_FOUND = """
from goffish.gopher.spark.session import has_graphframes, session
made = session(master="local[1]", memory="512m", graphframes=True)
assert has_graphframes(made)
print("found")
"""

_AGREE = """
import sys
import networkx as nx
from goffish.gofs import open_store
from goffish.graph.libraries import from_networkx
from goffish.spark import motifs, session, to_graphframe
from tests.spark.test_frames import cut, rows

own = session(master="local[2]", memory="1g", graphframes=True)
own.sparkContext.setCheckpointDir(sys.argv[1] + "/checkpoints")
G = nx.gnm_random_graph(30, 40, seed=1, directed=True)
cut(from_networkx(G)).save(sys.argv[1] + "/store")
store = open_store(sys.argv[1] + "/store")
frame = to_graphframe(store, spark=own)
found = {}
for row in frame.connectedComponents().collect():
    found.setdefault(row["component"], set()).add(row["id"])
assert sorted(map(sorted, found.values())) == sorted(map(sorted, nx.weakly_connected_components(G)))
pattern = "(a)-[e]->(b); (b)-[]->(c); !(c)-[]->(a)"
mine, theirs = motifs(store, pattern, spark=own), frame.find(pattern)
assert mine.columns == theirs.columns
assert rows(mine) == rows(theirs)
print("found")
"""


def run(code: str, jars: str, *given: str) -> None:
    """A session of its own with these jars."""
    root = str(Path(__file__).parents[2])
    environment = os.environ | {GRAPHFRAMES_JARS: jars, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", code, *given], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.stdout.split()[-1:] == ["found"], done.stderr[-3000:]


def real_jars() -> list[str]:
    """Jars of GraphFrames: those that the environment names, or that a session would find without asking Maven."""
    import pyspark

    named = [name for name in os.environ.get(GRAPHFRAMES_JARS, "").split(",") if name]
    folders = [
        Path(pyspark.__file__).parent / "jars",
        *Path.home().glob(".ivy2*/jars"),
        *Path.home().glob(".ivy2*/cache"),
    ]
    return named or [str(jar) for folder in folders for jar in folder.rglob("*graphframes-*spark4*.jar")]


def empty_class(name: str) -> bytes:
    """A Java class without anything in it."""

    def text(value: str) -> bytes:
        return struct.pack(">BH", 1, len(value)) + value.encode()

    pool = text(name) + struct.pack(">BH", 7, 1) + text("java/lang/Object") + struct.pack(">BH", 7, 3)
    return struct.pack(">IHHH", 0xCAFEBABE, 0, 52, 5) + pool + struct.pack(">HHHHHHH", 0x21, 2, 4, 0, 0, 0, 0)


@pytest.mark.slow
def test_jars_that_the_environment_names(tmp_path: Path) -> None:
    """Breaks when a session cannot load the jars of GraphFrames without Maven."""
    jar = tmp_path / "graphframes-spark4.jar"
    with zipfile.ZipFile(jar, "w") as made:
        made.writestr("org/graphframes/GraphFrame.class", empty_class("org/graphframes/GraphFrame"))
    run(_FOUND, str(jar))


def test_jars_that_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a wrong name is a stack trace of the JVM, or falls back to Maven."""
    monkeypatch.setenv(GRAPHFRAMES_JARS, "/nowhere/a.jar, /nowhere/b.jar")
    with pytest.raises(InputError, match=r"GOFFISH_GRAPHFRAMES_JARS: /nowhere/a\.jar: no such file"):
        session(graphframes=True)


@pytest.mark.slow
def test_graphframes_themselves_agree(tmp_path: Path) -> None:
    """GraphFrames' own components, paths and motifs on the DataFrames of a store."""
    if importlib.util.find_spec("graphframes") is None:
        pytest.skip("graphframes-py is not installed")
    jars = real_jars()
    if len(jars) < 2:
        pytest.skip(
            f"{GRAPHFRAMES_JARS} does not name the two jars of GraphFrames ({GRAPHFRAMES} and graphframes-graphx)"
        )
    run(_AGREE, ",".join(jars), str(tmp_path))
