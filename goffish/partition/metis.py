"""METIS: multilevel k-way partitioning and recursive bisection, through pymetis, and the repair of its parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from heapq import heapify, heappush, heapreplace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.graph import Graph
from goffish.kernels.subgraphs import local_components
from goffish.partition import kernels
from goffish.partition.links import Links, check_numbers, links, whole_numbers
from goffish.partition.options import MetisOptions
from goffish.partition.ranges import balanced_ranges


def fill_empty(simple: Links, owner: NDArray[np.int32], parts: int, *, connected: bool) -> NDArray[np.int32]:
    """Give every empty part about half of the part that is largest at that moment (ties: the lowest number).

    The half is cut off along a breadth-first order, so that it mostly hangs together; with `connected`, the
    donor has to be connected and both halves stay so (and may be unequal). Needs `parts` ≤ n.
    """
    sizes = np.bincount(owner, minlength=parts)
    empty = np.flatnonzero(sizes == 0)
    if empty.size == 0:
        return owner
    n = owner.size
    owner = owner.copy()
    grouped, ends = np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])
    members = {int(p): grouped[ends[p] : ends[p + 1]] for p in np.flatnonzero(sizes)}
    largest = [(-int(sizes[p]), p) for p in members]
    heapify(largest)
    order, moved, weight = (np.empty(n, np.int64) for _ in range(3))
    parent = np.full(n, -3, np.int64)
    for part in empty.tolist():
        donor = largest[0][1]
        count = kernels.split_part(
            simple.offsets, simple.targets, members[donor], connected, order, parent, weight, moved
        )
        gone = np.sort(moved[:count])
        owner[gone] = part
        kept = members[donor][owner[members[donor]] == donor]
        members[donor], members[part] = kept, gone
        heapreplace(largest, (-kept.size, donor))
        heappush(largest, (-gone.size, part))
    return owner


def join_fragments(simple: Links, owner: NDArray[np.int32], parts: int) -> NDArray[np.int32]:
    """Make every part of a connected graph connected.

    The largest piece of each part stays; the vertices of the others join the part that a breadth-first
    search from those pieces reaches them from first.
    """
    piece, count = local_components(simple.offsets, simple.targets, owner, symmetric=True)
    if count == np.count_nonzero(np.bincount(owner, minlength=parts)):
        return owner
    sizes = np.bincount(piece, minlength=count)
    part = np.empty(count, np.int32)
    part[piece] = owner
    best = np.lexsort((np.arange(count), -sizes, part))
    first = best[np.concatenate([[True], np.diff(part[best]) > 0])]
    kept = np.zeros(count, bool)
    kept[first] = True
    seeds = np.flatnonzero(kept[piece])
    owner = np.where(kept[piece], owner, np.int32(-1))
    queue = np.empty(owner.size, np.int64)
    queue[: seeds.size] = seeds
    kernels.grow_parts(simple.offsets, simple.targets, owner, queue, seeds.size)
    return owner


_CHUNK = 1 << 20


def metis(graph: Graph, parts: int, options: MetisOptions | None = None) -> NDArray[np.int32]:
    """Partition by METIS so that few edges are cut and the parts are balanced.

    Directions are forgotten, self-loops dropped and parallel arcs merged first (METIS takes nothing else).
    Edge weights that are not whole numbers are scaled, see `whole_numbers`. From `parts` ≥ n on, every
    vertex is a separate part.

    Parameters
    ----------
    graph : Graph
    parts : int
        At least 1.
    options : MetisOptions, optional

    Returns
    -------
    int32, shape (n,)
        Owner of each vertex. No part is empty while `parts` ≤ n: where METIS leaves parts empty, it is run
        again by recursive bisection, and what is still empty receives half of the largest part.

    Raises
    ------
    InputError
        ``contiguous`` on a disconnected graph (METIS would ignore it silently), weights of the wrong length
        or sign, ``weight`` on a graph without weights.
    JobError
        METIS ended abnormally (most often: no memory).

    References
    ----------
    G. Karypis, V. Kumar: A fast and high quality multilevel scheme for partitioning irregular graphs. SIAM
    J. Sci. Comput. 20 (1998); METIS 5.1 manual, sections 4.1 and 5.
    """
    options = options or MetisOptions()
    n = graph.num_vertices
    vertex_weights = _vertex_weights(graph, options)
    simple = links(graph, _edge_weights(graph, options))
    shares = _shares(parts, options)
    if parts >= n:
        return np.arange(n, dtype=np.int32)
    if options.contiguous:
        _check_connected(simple)
    if parts == 1:
        return np.zeros(n, np.int32)
    if simple.targets.size == 0:
        return balanced_ranges(n, parts, vertex_weights, shares)
    return _partition(simple, parts, vertex_weights, shares, options)


def _partition(
    simple: Links,
    parts: int,
    vertex_weights: NDArray[Any] | None,
    shares: NDArray[np.float64] | None,
    options: MetisOptions,
) -> NDArray[np.int32]:
    attempts = [options]
    if not (options.recursive or options.contiguous):
        # Recursive bisection leaves far fewer parts empty when there are only a few vertices for each.
        attempts.append(options.model_copy(update={"recursive": True, "objective": "cut", "min_connectivity": False}))
    owner, failure = None, None
    for attempt in attempts:
        try:
            found = _call(simple, parts, vertex_weights, shares, attempt)
        except JobError as error:
            failure = failure or error
            continue
        if owner is None or _empty(found, parts) < _empty(owner, parts):
            owner = found
        if _empty(owner, parts) == 0:
            break
    if owner is None:
        assert failure is not None
        raise failure
    if options.contiguous:
        owner = join_fragments(simple, owner, parts)
    return fill_empty(simple, owner, parts, connected=options.contiguous)


def _empty(owner: NDArray[np.int32], parts: int) -> int:
    return parts - int(np.count_nonzero(np.bincount(owner, minlength=parts)))


def _vertex_weights(graph: Graph, options: MetisOptions) -> NDArray[Any] | None:
    given = options.vertex_weights
    if isinstance(given, str):
        return None if given == "one" else _degrees(graph) + 1
    return check_numbers("vertex_weights", given, graph.num_vertices, "vertices")


def _degrees(graph: Graph) -> NDArray[np.int64]:
    if not graph.directed:
        return graph.out_degrees
    return graph.out_degrees + np.bincount(graph.targets, minlength=graph.num_vertices)


def _edge_weights(graph: Graph, options: MetisOptions) -> NDArray[np.float64] | None:
    given = options.edge_weights
    if isinstance(given, str):
        if given == "none":
            return None
        if graph.weights is None:
            raise InputError("edge_weights='weight': the graph has no weights; omit edge_weights")
        return graph.weights
    checked = check_numbers("edge_weights", given, graph.num_arcs, "arcs")
    numbers: NDArray[np.float64] = checked.astype(np.float64)
    return numbers


def _shares(parts: int, options: MetisOptions) -> NDArray[np.float64] | None:
    if options.part_shares is None:
        return None
    shares = check_numbers("part_shares", options.part_shares, parts, "parts").astype(np.float64)
    if not shares.all():
        raise InputError("part_shares: every share must be positive")
    normal: NDArray[np.float64] = shares / shares.sum()
    return normal


def _check_connected(simple: Links) -> None:
    n = simple.offsets.size - 1
    _, count = local_components(simple.offsets, simple.targets, np.zeros(n, np.int8), symmetric=True)
    if count > 1:
        raise InputError(
            f"contiguous=True requires a connected graph; this one has {count:,} components; omit contiguous "
            "(connected components of each part become subgraphs in any case) or keep the largest component"
        )


def _call(
    simple: Links,
    parts: int,
    vertex_weights: NDArray[Any] | None,
    shares: NDArray[np.float64] | None,
    options: MetisOptions,
) -> NDArray[np.int32]:
    """One METIS call in a child process, see `_metis_child`; interrupting the caller ends the child."""
    import pymetis

    index = pymetis.zero_copy_dtype()
    limit = np.iinfo(index).max // 8
    columns: list[NDArray[Any] | None] = [simple.offsets, simple.targets, None, None]
    if vertex_weights is not None:
        columns[2] = whole_numbers(vertex_weights, limit, smallest=0)
    if simple.weights is not None:
        weights = simple.weights.copy()
        arc = kernels.mirror_weights(simple.offsets, simple.targets, weights, 1e-9)
        if arc >= 0:
            raise InputError(
                "edge_weights: the two arcs of an undirected edge have different weights "
                f"({weights[arc]} on one of them)"
            )
        columns[3] = whole_numbers(weights, limit, smallest=1)
    if simple.targets.size > limit:
        raise InputError(f"this build of METIS supports at most {limit:,} arcs; the graph has {simple.targets.size:,}")
    request = {
        "code": "q" if index == np.int64 else "i",
        "sizes": [-1 if column is None else column.size for column in columns],
        "parts": parts,
        "shares": None if shares is None else shares.tolist(),
        "recursive": options.recursive,
        "options": {
            "seed": options.seed,
            "ufactor": max(1, round((options.imbalance - 1) * 1000)),
            "niter": options.iterations,
            "ncuts": options.cuts,
            "contig": int(options.contiguous),
            "minconn": int(options.min_connectivity),
            "objtype": int(options.objective == "volume"),
        },
    }
    answer = _run_child(request, columns, index)
    return np.frombuffer(answer, index, offset=8).astype(np.int32)


def _run_child(request: dict[str, Any], columns: list[NDArray[Any] | None], index: np.dtype[Any]) -> bytes:
    command = [sys.executable, "-S", "-P", str(Path(__file__).with_name("_metis_child.py"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        tempfile.TemporaryFile() as log,
        # In a group of its own a Ctrl-C reaches this process only, which decides what becomes of the child.
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            process_group=0,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        answer = b""
        try:
            _write(child.stdin, request, columns, index)
            answer = child.stdout.read()
        except BrokenPipeError:
            pass  # it ended early: the log says why
        except BaseException:
            child.kill()
            raise
        code = child.wait()
        n = request["sizes"][0] - 1
        if code or len(answer) != 8 + n * index.itemsize:
            log.seek(0)
            said = " ".join(log.read()[-2000:].decode(errors="replace").split())[-300:]
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise JobError(f"METIS failed on {n:,} vertices and {request['parts']:,} parts ({ended}): {said}")
        return answer


def _write(pipe: IO[bytes], request: dict[str, Any], columns: list[NDArray[Any] | None], index: np.dtype[Any]) -> None:
    with pipe:
        pipe.write(json.dumps(request).encode() + b"\n")
        for column in columns:
            if column is None:
                continue
            # Widened piece by piece: only the child holds METIS's wide copy of the graph.
            for at in range(0, column.size, _CHUNK):
                pipe.write(np.ascontiguousarray(column[at : at + _CHUNK], index).data)
