"""A folder of sample files, in which commands run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import Ended, assert_refused, call


@dataclass(frozen=True)
class Place:
    """A folder with the sample files; commands run in it, so that paths stay short."""

    path: Path

    def __call__(self, *args: Any, **more: Any) -> Ended:
        return call(*args, cwd=self.path, **more)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def files(self) -> set[str]:
        return {p.relative_to(self.path).as_posix() for p in self.path.rglob("*")}


def grid_edges(width: int, height: int) -> np.ndarray:
    ids = np.arange(width * height).reshape(height, width)
    src = np.concatenate((ids[:, :-1].ravel(), ids[:-1].ravel()))
    dst = np.concatenate((ids[:, 1:].ravel(), ids[1:].ravel()))
    return np.column_stack((src, dst))


SMALL = "1 2\n2 3\n3 1\n3 4\n7 8\n"


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that no test changes: a small graph, one with text labels and weights, a grid, and stores of them."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "small.txt").write_text(SMALL)
    (folder / "names.csv").write_text("source,target,weight\na,b,1.5\nb,c,2\nc,d,0.5\n")
    np.savetxt(folder / "grid.txt", grid_edges(30, 20), fmt="%d")
    for name, graph in (("small.gofs", "small.txt"), ("names.gofs", "names.csv"), ("grid.gofs", "grid.txt")):
        made = call("partition", graph, "-o", name, "-k", "2", cwd=folder)
        assert made.code == 0, made.err
    return folder


@pytest.fixture
def place(samples: Path, tmp_path: Path) -> Place:
    """A fresh copy of the samples."""
    shutil.copytree(samples, tmp_path / "here")
    return Place(tmp_path / "here")


@pytest.fixture(scope="module")
def shared(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A copy of the samples for all tests of a module that write nothing."""
    folder = tmp_path_factory.mktemp("shared") / "here"
    shutil.copytree(samples, folder)
    return Place(folder)


@pytest.fixture
def refuses(shared: Place) -> Callable[..., str]:
    """Run a command that must end in one line of complaint and leave no file behind; returns the line."""

    def check(*args: Any, code: int = 2, **more: Any) -> str:
        before = shared.files()
        ended = shared(*args, **more)
        assert_refused(ended, code)
        assert shared.files() == before, "something was left behind"
        return ended.err.strip()

    return check
