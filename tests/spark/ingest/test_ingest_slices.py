"""What the executors do with the edges of one partition, without Spark around it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from goffish.gofs import build_layout
from goffish.gofs.encoding import encode_slice
from goffish.gofs.files import open_folder
from goffish.gofs.manifest import FileEntry, Manifest
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, SparseColumn, write_series
from goffish.gofs.series.slices import ELEMENTS
from goffish.gofs.store import read_manifest
from goffish.graph import from_edges
from goffish.spark.ingest.partition import _Blocks, _place_block
from goffish.spark.ingest.plan import Plan
from goffish.spark.ingest.series import write_values
from goffish.spark.ingest.slices import SPOT_BITS, find_all_pieces, find_pieces, write_partition
from goffish.spark.ingest.stats import component_figures, degree_figures
from goffish.spark.ingest.write import make_manifest, with_empty_parts
from tests.cases import Case, cases


def _distributed(case: Case, labels: pa.Array | None, store: str, **timed: Any) -> tuple[Plan, dict[int, list[dict]]]:
    """The steps of the job, with NumPy in the place of Spark's joins."""
    graph, owner = case.graph, case.owner
    u, v, weight, _ = graph.edge_columns()
    u, v, numbers = u.astype(np.int64), v.astype(np.int64), np.arange(graph.num_vertices)
    edges = pa.table({"edge": np.arange(u.size), "u": u, "v": v, "weight": weight, "a0": np.arange(u.size) % 3})
    places = []
    for part in range(case.k):
        inside = (owner[u] == part) & (owner[v] == part)
        if (owner == part).any():
            own = pa.table({"number": np.random.default_rng(part).permutation(numbers[owner == part])})
            links = pa.table({"u": u[inside], "v": v[inside]}) if inside.any() else None
            places.append(find_pieces(part, [links, own]))
    place = pa.concat_tables(places).sort_by("number")
    assert find_all_pieces(graph, owner.astype(np.int32), case.k).equals(place)
    spot, piece = (place.column(name).to_numpy() for name in ("spot", "piece"))
    assert np.array_equal(spot >> SPOT_BITS, owner)
    sizes = [np.bincount(piece[owner == part]) for part in range(case.k)]
    counts = np.concatenate(sizes)
    starts = [np.concatenate(([0], np.cumsum(values))) for values in (
        np.bincount(owner, minlength=case.k), [part.size if part.any() else 0 for part in sizes], counts[counts > 0]
    )]  # fmt: skip
    kind = "implicit" if labels is None else "string"
    plan = Plan(
        store, graph.num_vertices, graph.directed, True, kind, {"kind": "int64"}, {"size": "int64"}, *starts, **timed
    )
    edges = pa.table({**{name: edges.column(name) for name in edges.column_names}, "u": spot[u], "v": spot[v]})
    reports = {}
    shuffled = np.random.default_rng(1).permutation(u.size)
    for part in range(case.k):
        if not (owner == part).any():
            continue
        touching = shuffled[(owner[u] == part)[shuffled] | (owner[v] == part)[shuffled]]
        members = place.filter(pa.array(owner == part)).append_column("part", pa.array(owner[owner == part]))
        members = members.append_column("v0", pa.array(members.column("number").to_numpy() * 3))
        if labels is not None:
            members = members.append_column("label", labels.filter(pa.array(owner == part)))
        row = write_partition(plan, part, edges.take(pa.array(touching)), members)
        reports[part] = [pickle.loads(row.column("body")[0].as_py())]
    cut = sum(body[0]["cut"] for body in reports.values())
    assert cut == 2 * np.count_nonzero(owner[u] != owner[v])
    assert sum(body[0]["loops"] for body in reports.values()) == np.count_nonzero(u == v)
    return plan, with_empty_parts(plan, reports)


@given(case=cases(), named=st.booleans())
def test_slices_are_those_of_the_whole_graph_byte_by_byte(case: Case, named: bool, tmp_path_factory) -> None:
    """Breaks when a partition that is built from its own edges differs from the one that `build_layout` cuts."""
    labels = pa.array([f"v{number:04d}" for number in range(case.graph.num_vertices)]) if named else None
    store = tmp_path_factory.mktemp("store")
    plan, reports = _distributed(case, labels, str(store))
    u, v, weight, _ = case.graph.edge_columns()
    kinds = np.arange(u.size) % 3
    whole = from_edges(
        u, v, weight, directed=case.graph.directed, labels=labels or np.arange(case.graph.num_vertices),
        self_loops="keep", vertex_attributes={"size": np.arange(case.graph.num_vertices) * 3},
        edge_attributes={"kind": kinds},
    )  # fmt: skip
    layout = build_layout(whole, case.owner, case.k, partitioner={"method": "given"})
    expected = Manifest(layout.info, tuple(
        {kind: entry for kind, _, entry in encode_slice(layout.info, part)} for part in layout.slices()
    ))  # fmt: skip
    manifest = make_manifest(plan, reports, {}, u.size, {"method": "given"})
    assert manifest == expected
    assert all((Path(store) / entry.name).stat().st_size == entry.size for f in manifest.files for entry in f.values())
    bodies = [reports[part][0] for part in range(case.k)]
    degrees = sorted(d for _, d in (case.nx.out_degree if case.graph.directed else case.nx.degree))
    figures = degree_figures(body["degrees"] for body in bodies)
    assert (figures["smallest"], figures["largest"]) == (degrees[0], degrees[-1])
    assert figures["median"] == degrees[(len(degrees) - 1) // 2] and figures["mean"] == np.mean(degrees)
    assert sum(figures["histogram"].values()) == len(degrees)
    components = [len(c) for c in nx.connected_components(case.nx.to_undirected())]
    found = component_figures([body["sizes"] for body in bodies], (body["links"] for body in bodies))
    assert (found["components"], found["largest"]) == (len(components), max(components))


def test_figures_of_nothing_and_the_bins_of_degrees() -> None:
    assert degree_figures([])["largest"] == 0 and component_figures([], [])["components"] == 0
    counts = (np.array([0, 1, 2, 3, 4, 9]), np.array([1, 1, 1, 1, 1, 1]))
    assert degree_figures([counts])["histogram"] == {"0": 1, "1": 1, "2-3": 2, "4-7": 1, "8-15": 1}


@given(case=cases(), seed=st.integers(0, 99), times=st.integers(1, 7), pack=st.integers(1, 4), bins=st.integers(1, 3))
def test_values_are_those_of_one_machine_byte_by_byte(
    case: Case, seed: int, times: int, pack: int, bins: int, tmp_path_factory: Any
) -> None:
    """Breaks when executors lose a row, give it to another edge, or write another form than `write_series` does."""
    folder, rng = tmp_path_factory.mktemp("store"), np.random.default_rng(seed)
    starts = np.arange(times, dtype=np.int64) * 10
    timed = {"starts": starts, "ends": starts + 10, "pack": pack, "bins": bins}
    plan, reports = _distributed(case, None, str(folder / "a"), **timed)
    u, v, weight, _ = case.graph.edge_columns()
    there = rng.random((times, u.size)) < rng.choice([0.1, 0.9])
    instance, edge = (at.astype(np.int64) for at in np.nonzero(there))
    shuffled = rng.permutation(edge.size)
    instance, edge = instance[shuffled], edge[shuffled]
    values = {"weight": rng.random(edge.size), "a0": rng.integers(0, 3, edge.size)}
    rows = pa.table({"instance": instance, "edge": edge, **values})
    made: dict[int, list[dict]] = {}
    for part in range(case.k):
        own = (case.owner[u[edge]] == part) | (case.owner[v[edge]] == part)
        elements = FileEntry(**reports[part][0]["files"][ELEMENTS])
        for group in range(-(-times // pack)):
            some = own & (instance // pack == group)
            found = write_values(plan, part, group, elements, rows.filter(pa.array(some)) if some.any() else None)
            made.setdefault(part, []).append(pickle.loads(found.column("body")[0].as_py()))
    found = make_manifest(plan, reports, made, u.size, {"method": "given"})

    whole = from_edges(
        u, v, weight, directed=case.graph.directed, labels=np.arange(case.graph.num_vertices), self_loops="keep",
        vertex_attributes={"size": np.arange(case.graph.num_vertices) * 3},
        edge_attributes={"kind": np.arange(u.size) % 3},
    )  # fmt: skip
    own = (Attribute("exists", "bool", False), Attribute("weight", "float64"), Attribute("kind", "int64"))
    names = {"edge.weight": "weight", "edge.kind": "a0"}
    data = []
    for at, start in enumerate(starts.tolist()):
        some = instance == at
        columns = {"edge.exists": SparseColumn(edge[some], np.ones(some.sum(), bool))}
        columns |= {name: SparseColumn(edge[some], values[column][some]) for name, column in names.items()}
        data.append(InstanceData(start, start + 10, columns))
    layout = build_layout(whole, case.owner, case.k, partitioner={"method": "given"})
    write_series(layout, folder / "b", SeriesSchema(edge=own), data, pack=pack, bins=bins)
    assert found == read_manifest(open_folder(folder / "b"))


@given(cases(), st.integers(1, 5))
def test_a_block_of_fennel_keeps_its_balance(case: Case, parts: int) -> None:
    simple = nx.Graph((u, v) for u, v in case.nx.edges if u != v)
    n, blocks = case.graph.num_vertices, _Blocks(2, 0, "memory://blocks-of-fennel")
    pairs = np.array(simple.edges, np.int64).reshape(-1, 2)
    sent = blocks(pa.table({"u": pairs[:, 0], "v": pairs[:, 1]}))
    mine = sent.rows[sent.target == 0]
    if not mine.size:
        return
    made = blocks.gather(0, [sent.table.take(pa.array(mine))])
    own = np.frombuffer(made.column("vertices")[0].as_buffer(), "i8")
    arrays = pa.ipc.open_file(open_folder(blocks.place).read(made.column("name")[0].as_py())).read_all()
    offsets, targets, known = (
        np.frombuffer(arrays[name][0].as_buffer(), kind)
        for name, kind in (("offsets", "i8"), ("targets", "i4"), ("known", "i8"))
    )
    rebuilt = {(int(own[at]), int(known[t])) for at in range(own.size) for t in targets[offsets[at] : offsets[at + 1]]}
    arcs = [pair for u, v in simple.edges for pair in ((u, v), (v, u))]
    assert rebuilt == {(u, v) for u, v in arcs if blocks._of(np.array([u]))[0] == 0}
    assert np.array_equal(known[: own.size], own)
    owner = (known % parts).astype(np.int32)
    before = owner[own.size :].copy()
    _place_block(offsets, targets, owner, own.size, n, parts, simple.number_of_edges(), 1.1)
    assert np.array_equal(owner[own.size :], before)
    assert np.bincount(owner[: own.size], minlength=parts).max() <= max(1.1 * own.size / parts, -(-own.size // parts))
