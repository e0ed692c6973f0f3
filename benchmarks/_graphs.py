"""The named graphs of the benchmarks: real ones from `GOFFISH_DATA`, generated ones with fixed seeds.

Generated graphs are kept as ``.npz`` in ``$GOFFISH_BENCH_CACHE`` (default: a folder in the temporary directory).
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works without an installation

from goffish.graph import Graph, from_edges
from goffish.graph.io import read

Edges = tuple[NDArray[np.int64], NDArray[np.int64], int]

_ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("GOFFISH_BENCH_CACHE", Path(tempfile.gettempdir()) / "goffish-bench"))


def usroads() -> Edges:
    """US highways (Network Repository), 129,164 vertices."""
    return _file("road-usroads.mtx.gz")


def enron() -> Edges:
    """SNAP email-Enron, 36,692 vertices."""
    return _file("email-enron.txt.gz")


def epinions() -> Edges:
    """SNAP soc-Epinions1, 75,877 vertices."""
    return _file("soc-epinions1.txt.gz")


def caida() -> Edges:
    """SNAP as-Caida of 5 November 2007, 26,475 vertices."""
    return _file("as-caida.txt.gz")


def cit_hepph() -> Edges:
    """SNAP cit-HepPh, 34,546 papers; arcs point from the citing to the cited paper."""
    return _file("cit-hepph.txt.gz", directed=True)


def grid(rows: int = 1000, columns: int = 900) -> Edges:
    """A grid with row-major ids (docs/specs/engine.md, section 6)."""
    ids = np.arange(rows * columns).reshape(rows, columns)
    src = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    dst = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    return src, dst, rows * columns


def perforated_grid(side: int = 700, keep: float = 0.70, seed: int = 7) -> Edges:
    """A square grid in which every edge stays with probability `keep`: a road-like stand-in."""
    src, dst, n = grid(side, side)
    kept = np.random.default_rng(seed).random(src.size) < keep
    return src[kept], dst[kept], n


def one_way_grid() -> Edges:
    """The perforated grid, where half of the edges have one direction."""
    src, dst, n = perforated_grid()
    rng = np.random.default_rng(9)
    turned, both = rng.random(src.size) < 0.5, rng.random(src.size) < 0.5
    src, dst = np.where(turned, dst, src), np.where(turned, src, dst)
    return np.concatenate([src, dst[both]]), np.concatenate([dst, src[both]]), n


def rmat(scale: int = 18, edge_factor: int = 16, seed: int = 11) -> Edges:
    """R-MAT (Chakrabarti et al., SDM 2004) with (0.57, 0.19, 0.19, 0.05) and permuted ids, as in Graph500."""
    rng = np.random.default_rng(seed)
    n, m = 1 << scale, edge_factor << scale
    src, dst = np.zeros(m, np.int64), np.zeros(m, np.int64)
    a, b, c = 0.57, 0.19, 0.19
    for bit in range(scale):
        draw = rng.random(m)
        down, right = draw >= a + b, ((draw >= a) & (draw < a + b)) | (draw >= a + b + c)
        src |= down.astype(np.int64) << bit
        dst |= right.astype(np.int64) << bit
    names = rng.permutation(n)
    return names[src], names[dst], n


def rmat_20() -> Edges:
    """R-MAT with a million vertices, to see how things grow."""
    return rmat(20)


def lfr(n: int = 200_000, seed: int = 5) -> Edges:
    """LFR community graph: degree 20, at most 200 (exponent 2), communities 50 to 1,000 (exponent 1), mixing 0.3."""
    return _lfr_edges(_lfr_generator(n, seed, degrees=(20, 200), communities=(50, 1000), mixing=0.3))


def lfr_truth(n: int = 200_000, seed: int = 5) -> NDArray[np.int64]:
    """The planted community of every vertex of `lfr`."""
    path = CACHE / "lfr_truth.npy"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        generator = _lfr_generator(n, seed, degrees=(20, 200), communities=(50, 1000), mixing=0.3)
        np.save(path, np.asarray(generator.getPartition().getVector(), np.int64))
    truth: NDArray[np.int64] = np.load(path)
    return truth


def lfr_paper(n: int, seed: int = 5) -> Edges:
    """LFR graph with the parameters of the paper's scripts: degree 8, at most 20, communities 20 to 50, mixing 0.1."""
    return _lfr_edges(_lfr_generator(n, seed, degrees=(8, 20), communities=(20, 50), mixing=0.1))


def _lfr_generator(n: int, seed: int, *, degrees: tuple[int, int], communities: tuple[int, int], mixing: float) -> Any:
    """Degrees by average and maximum, communities by smallest and largest size."""
    import networkit as nk

    nk.setSeed(seed, False)
    nk.setNumberOfThreads(1)  # the generator's answer depends on the number of threads
    generator = nk.generators.LFRGenerator(n)
    generator.generatePowerlawDegreeSequence(*degrees, -2.0)
    generator.generatePowerlawCommunitySizeSequence(*communities, -1.0)
    generator.setMu(mixing)
    generator.run()
    return generator


def _lfr_edges(generator: Any) -> Edges:
    graph = generator.getGraph()
    ends = np.fromiter((x for u, v in graph.iterEdges() for x in (u, v)), np.int64)
    return ends[0::2].copy(), ends[1::2].copy(), graph.numberOfNodes()


#: name -> (edge maker, directed, generated)
_MAKERS: dict[str, tuple[Callable[[], Edges], bool, bool]] = {
    "road-usroads": (usroads, False, False),
    "grid-1000x900": (grid, False, False),
    "perforated-700x700": (perforated_grid, False, False),
    "rmat-18": (rmat, False, True),
    "lfr-200k": (lfr, False, True),
    "email-Enron": (enron, False, False),
    "soc-Epinions1": (epinions, False, False),
    "as-Caida": (caida, False, False),
    "rmat-20": (rmat_20, False, True),
    "cit-HepPh": (cit_hepph, True, False),
    "rmat-18-directed": (rmat, True, True),
    "one-way-700x700": (one_way_grid, True, True),
}

UNDIRECTED = tuple(name for name, (_, directed, _) in _MAKERS.items() if not directed)
#: With directions that matter for reachability alone, too.
ONE_WAY = tuple(name for name, (_, directed, _) in _MAKERS.items() if directed)
DIRECTED = ONE_WAY[:-1]
QUICK = ("road-usroads", "perforated-700x700", "email-Enron")


def load(name: str, weighted: bool = False) -> Graph:
    """Build the graph; with `weighted`, edges get integer weights from 1 to 255 (as GAPBS draws them)."""
    maker, directed, generated = _MAKERS[name]
    src, dst, n = cached(maker.__name__, maker) if generated else maker()
    weight = np.random.default_rng(3).integers(1, 256, src.size).astype(np.float64) if weighted else None
    return from_edges(src, dst, weight, labels=np.arange(n), directed=directed)


def load_available(names: Iterable[str], weighted: bool = False) -> Iterator[tuple[str, Graph]]:
    """Graphs one by one; those whose file is not at hand are skipped with a message."""
    for name in names:
        try:
            yield name, load(name, weighted)
        except FileNotFoundError as error:
            print(f"(skipped {name}: no {error.filename}; set GOFFISH_DATA)")


def data_file(name: str) -> Path:
    """A file of the repository's data, or one such as ``graphs/wing.metis.gz`` of the folder `GOFFISH_DATA`.

    Raises
    ------
    FileNotFoundError
    """
    folder = os.environ.get("GOFFISH_DATA")
    for path in (_ROOT / "data" / Path(name).name, *([Path(folder) / name] if folder else [])):
        if path.exists():
            return path
    raise FileNotFoundError(errno.ENOENT, "no such file", name)


def _file(name: str, directed: bool = False) -> Edges:
    graph = read(data_file(f"graphs/{name}"), directed=directed)
    src, dst, _, _ = graph.edge_columns()
    return src.astype(np.int64), dst.astype(np.int64), graph.num_vertices


def cached(name: str, maker: Callable[[], Edges]) -> Edges:
    """The edges of `maker`, kept under `name`."""
    path = CACHE / f"{name}.npz"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        src, dst, n = maker()
        temporary = path.with_name(f".{os.getpid()}-{path.name}")
        np.savez(temporary, src=src, dst=dst, n=n)
        temporary.rename(path)
    with np.load(path) as data:
        return data["src"], data["dst"], int(data["n"])
