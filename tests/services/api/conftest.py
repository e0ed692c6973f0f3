from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

import goffish as gf
from goffish.services.api.clients import add_client
from tests.services.api.serving import Known, RealServer, serving

ROLES = {"ann": "submit", "bob": "submit", "eve": "read", "root": "admin"}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph as a file and as a store, and another folder beside it that is not to be read."""
    room = tmp_path_factory.mktemp("inputs")
    folder = room / "data"
    folder.mkdir()
    graph = nx.gnm_random_graph(400, 1600, seed=4)
    (folder / "edges.txt").write_text("".join(f"{u} {v}\n" for u, v in graph.edges))
    gf.partition(gf.from_networkx(graph), parts=2, method="hash").save(folder / "store")
    (room / "secret.txt").write_text("1 2\n")
    (folder / "link.txt").symlink_to(room / "secret.txt")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="package")
def known(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Known]:
    """A server with four clients, and their tokens."""
    room = tmp_path_factory.mktemp("known")
    tokens = {name: add_client(room / "clients.yaml", name, role) for name, role in ROLES.items()}
    options = ("--clients", str(room / "clients.yaml"), "--max-upload", "100000", "--grace", "1")
    with serving(room / "home", data, *options, "--max-uploads", "150000") as server:
        yield Known(server, tokens)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[RealServer]:
    """A server that is open to everybody on this computer."""
    with serving(tmp_path_factory.mktemp("open") / "home", data, "--grace", "1") as found:
        yield found
