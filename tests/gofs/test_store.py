"""The store: round trips, atomic publication, damage, remote folders (docs/specs/engine.md, sections 5.8, 6)."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import GoffishError, InputError, StoreError
from goffish.gofs import build_layout, open_store, verify_store, write_store
from goffish.gofs import store as store_module
from goffish.gofs.files import open_folder
from goffish.gofs.manifest import NAME, checksum
from goffish.graph import Graph, from_edges
from tests.cases import Case, cases, grid, grid_blocks


def same(a: Graph, b: Graph) -> None:
    assert np.array_equal(a.offsets, b.offsets)
    assert np.array_equal(a.targets, b.targets)
    assert (a.directed, a.num_edges) == (b.directed, b.num_edges)
    assert (a.weights is None) == (b.weights is None)
    if a.weights is not None:
        assert np.array_equal(a.weights, b.weights)
    assert a.label_column().equals(b.label_column())
    assert (a.vertex_attributes is None) == (b.vertex_attributes is None)
    if a.vertex_attributes is not None:
        assert a.vertex_attributes.equals(b.vertex_attributes)
    if a.edge_attributes is not None:
        assert a.edge_attributes.equals(b.edge_attributes)
        assert np.array_equal(a.edge_of_arc, b.edge_of_arc)


def rich_graph(directed: bool = False) -> Graph:
    """Weights, string labels, attributes on both, parallel edges and loops."""
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 40, 150), rng.integers(0, 40, 150)
    names = [f"vertex {i}" for i in range(45)]
    return from_edges(
        src, dst, rng.random(150), directed=directed, labels=names, self_loops="keep", parallel="keep",
        vertex_attributes={"age": rng.integers(0, 99, 45), "na/me é": names},
        edge_attributes={"kind": [f"k{i % 7}" for i in range(150)], "since": np.arange(150)},
    )  # fmt: skip


def rich_store(path: Path, directed: bool = False) -> Graph:
    graph = rich_graph(directed)
    build_layout(graph, np.arange(45, dtype=np.int32) % 3, 4).save(path)
    return graph


@pytest.mark.parametrize("directed", [False, True])
def test_round_trip_with_everything(tmp_path: Path, directed: bool) -> None:
    graph = rich_store(tmp_path / "s", directed)
    same(open_store(tmp_path / "s").to_graph(), graph)
    assert verify_store(tmp_path / "s") > 0


@given(cases())
def test_round_trip_of_random_graphs(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    path = tmp_path_factory.mktemp("store")
    case.layout().save(path)
    same(open_store(path).to_graph(), case.graph)


def test_a_store_in_memory_and_one_on_disk_answer_alike(tmp_path: Path) -> None:
    layout = build_layout(grid(20, 15), grid_blocks(20, 15), 12)
    remote = layout.save("memory://goffish-test/a store")
    local = layout.save(tmp_path / "s")
    assert remote.fingerprint() == local.fingerprint()
    tables = [g.run("components").table for g in (layout, remote, local)]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


def test_writing_the_same_graph_again_changes_nothing(tmp_path: Path) -> None:
    rich_store(tmp_path / "s")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*.arrow")}
    manifest = (tmp_path / "s" / NAME).read_bytes()
    rich_store(tmp_path / "s")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "s").rglob("*.arrow")} == before
    assert (tmp_path / "s" / NAME).read_bytes() == manifest


def test_a_new_graph_replaces_the_old_one_and_leaves_no_litter(tmp_path: Path) -> None:
    rich_store(tmp_path / "s")
    small = from_edges([0], [1])
    build_layout(small, np.zeros(2, np.int32), 1).save(tmp_path / "s")
    same(open_store(tmp_path / "s").to_graph(), small)
    assert len(open_folder(tmp_path / "s").list()) == 2


def test_a_store_opened_before_a_replacement_keeps_what_it_has_loaded(tmp_path: Path) -> None:
    graph = rich_store(tmp_path / "s")
    opened = open_store(tmp_path / "s")
    loaded = [(s, s.column("weight"), s.labels()) for s in opened.slices()]
    build_layout(from_edges([0], [1]), np.zeros(2, np.int32), 1).save(tmp_path / "s")
    assert sum(int(s.num_arcs) for s, *_ in loaded) == graph.num_arcs


def test_reading_one_attribute_touches_only_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rich_store(tmp_path / "s")
    read: list[str] = []
    plain = store_module.read_checked
    monkeypatch.setattr(store_module, "read_checked", lambda f, e, m=None: (read.append(e.name), plain(f, e, m))[1])
    part = open_store(tmp_path / "s").slice(0)
    assert part.column("vertex.age").to_pylist()
    assert [name.split("/")[1].split("-")[0] for name in read] == ["topology", "vertex.age"]
    part.column("vertex.age")
    assert len(read) == 2


def test_attribute_slices_cost_in_proportion(tmp_path: Path) -> None:
    """See docs/specs/engine.md, section 6, P5: one of ten attributes is about a tenth of the bytes."""
    rng = np.random.default_rng(1)
    graph = from_edges(
        np.arange(20_000),
        np.arange(1, 20_001),
        edge_attributes={f"a{i}": rng.random(20_000) for i in range(10)},
    )
    build_layout(graph, np.zeros(20_001, np.int32), 1).save(tmp_path / "s")
    manifest = json.loads((tmp_path / "s" / NAME).read_text())
    sizes = [e["size"] for kind, e in manifest["partitions"][0].items() if kind.startswith("edge.")]
    assert max(sizes) < 0.11 * sum(sizes)


def test_unknown_attribute_names_those_there_are(tmp_path: Path) -> None:
    rich_store(tmp_path / "s")
    with pytest.raises(InputError, match=r"no column 'vertex.size'.*weight"):
        part = open_store(tmp_path / "s").slice(0)
        part.column("weight")
        part.column("vertex.size")


def answer(path: Path) -> object:
    """Everything a user can get out of a store."""
    verify_store(path)
    opened = open_store(path)
    graph = opened.to_graph()
    return (
        graph.offsets.tolist(), graph.targets.tolist(), graph.weights.tolist(), graph.label_column().to_pylist(),
        graph.vertex_attributes.to_pydict(), graph.edge_attributes.to_pydict(), graph.directed, graph.num_edges,
        dict(opened.info.partitioner), opened.run("components").table.to_pydict(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "s"
    rich_store(path)
    return path


@given(st.data())
def test_damage_is_an_error_and_never_a_wrong_answer(
    pristine: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Flip a bit, cut a file, or delete it: one clear error, also without `verify`."""
    copy = tmp_path_factory.mktemp("damaged") / "s"
    shutil.copytree(pristine, copy)
    files = sorted(p for p in copy.rglob("*") if p.is_file())
    victim = files[data.draw(st.integers(0, len(files) - 1))]
    content = bytearray(victim.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(("flip", "cut", "delete", "grow")))
    if how == "flip":
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "cut":
        del content[at:]
    elif how == "grow":
        content += b"\0"
    victim.unlink() if how == "delete" else victim.write_bytes(bytes(content))
    expected = answer(pristine)
    try:
        opened = open_store(copy)
        graph = opened.to_graph()
        table = opened.run("components").table.to_pydict()
    except StoreError as error:
        assert str(copy) in str(error)
        assert "\n" not in str(error)
    else:
        # White space of the manifest may change without harm; nothing else may.
        assert victim.name == NAME
        assert (graph.targets.tolist(), table) == (expected[1], expected[-1])
        return
    with pytest.raises(StoreError):
        verify_store(copy)


def manifest_with(path: Path, **changes: object) -> None:
    body = json.loads((path / NAME).read_text())
    body.pop("checksum")
    body.update(changes)
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    (path / NAME).write_text(json.dumps({**body, "checksum": checksum(text)}))


def test_newer_and_foreign_stores_say_so(tmp_path: Path) -> None:
    rich_store(tmp_path / "s")
    manifest_with(tmp_path / "s", version=99)
    with pytest.raises(StoreError, match="store format 99 is not supported; accepted: up to 2"):
        open_store(tmp_path / "s")
    manifest_with(tmp_path / "s", version=1, format="somebody-else")
    with pytest.raises(StoreError, match="not a GoFFish store"):
        open_store(tmp_path / "s")
    (tmp_path / "s" / NAME).write_text("[1, 2]")
    with pytest.raises(StoreError, match="not a GoFFish store"):
        open_store(tmp_path / "s")
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        open_store(tmp_path)
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        open_store(tmp_path / "nowhere")


def test_a_folder_with_other_things_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="neither empty nor a store"):
        rich_store(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_saving_again_keeps_files_that_are_not_the_stores(tmp_path: Path) -> None:
    rich_store(tmp_path / "s")
    (tmp_path / "s" / "NOTES.txt").write_text("mine")
    (tmp_path / "s" / "results").mkdir()
    (tmp_path / "s" / "results" / "r.parquet").write_text("mine too")
    build_layout(from_edges([0], [1]), np.zeros(2, np.int32), 1).save(tmp_path / "s")
    assert (tmp_path / "s" / "NOTES.txt").read_text() == "mine"
    assert (tmp_path / "s" / "results" / "r.parquet").read_text() == "mine too"
    assert len(open_folder(tmp_path / "s").list()) == 2 + 2


def test_first_manifest_killed_before_its_rename_can_be_repeated(tmp_path: Path) -> None:
    rich_store(tmp_path / "s")
    (tmp_path / "s" / NAME).rename(tmp_path / "s" / f".{NAME}.77.partial")
    rich_store(tmp_path / "s")
    assert not list((tmp_path / "s").rglob(".*.partial"))
    verify_store(tmp_path / "s")


def test_a_job_goes_on_while_the_store_is_replaced(tmp_path: Path) -> None:
    graph = rich_store(tmp_path / "s")
    opened = open_store(tmp_path / "s")
    opened.slices()
    build_layout(from_edges([0], [1]), np.zeros(2, np.int32), 1).save(tmp_path / "s")
    same(opened.to_graph(), graph)
    late = open_store(tmp_path / "s")
    rich_store(tmp_path / "s")
    with pytest.raises(StoreError, match="open it again"):
        late.slice(0)


def test_a_second_writer_is_told_to_wait(tmp_path: Path) -> None:
    rich_store(tmp_path / "s")
    with open_folder(tmp_path / "s").locked(), pytest.raises(StoreError, match="another process is writing"):
        rich_store(tmp_path / "s")
    rich_store(tmp_path / "s")


def test_fingerprint_covers_everything_and_is_that_of_the_store(tmp_path: Path) -> None:
    owner = np.array([0, 0, 1], np.int32)
    graphs = [
        from_edges([0, 1], [1, 2], [1.0, 1.0]), from_edges([0, 1], [1, 2], [1.0, 5.0]), from_edges([0, 1], [1, 2]),
        from_edges([0, 1], [1, 2], directed=True), from_edges([5, 6], [6, 7]), from_edges(["a", "b"], ["b", "c"]),
        from_edges([0, 1], [1, 2], vertex_attributes={"x": [1, 2, 3]}),
        from_edges([0, 1], [1, 2], vertex_attributes={"x": [1, 2, 4]}),
    ]  # fmt: skip
    prints = [build_layout(g, owner, 2).fingerprint() for g in graphs]
    assert len(set(prints)) == len(graphs)
    assert build_layout(graphs[1], owner, 2).save(tmp_path / "s").fingerprint() == prints[1]
    assert build_layout(graphs[1], owner, 2, finder="vertex").fingerprint() != prints[1]


def test_labels_are_found_by_any_integer(tmp_path: Path) -> None:
    layout = build_layout(from_edges([5, 6], [6, 7]), np.zeros(3, np.int32), 1)
    assert layout.find(6) == layout.find(np.int64(6)) == layout.find(np.uint8(6)) == 1
    with pytest.raises(InputError, match="unknown vertex '6'"):
        layout.find("6")


def test_no_permission_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rich_store(tmp_path / "s")

    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pa, "memory_map", denied)
    with pytest.raises(StoreError, match=r"cannot be read \(Permission denied\)"):
        open_store(tmp_path / "s")


def test_describe_says_what_there_is_without_reading_a_slice(tmp_path: Path) -> None:
    rich_store(tmp_path / "s", directed=True)
    for file in (tmp_path / "s").rglob("*.arrow"):
        file.write_bytes(b"x" * file.stat().st_size)  # any read would fail
    told = open_store(tmp_path / "s").describe()
    assert (told["vertices"], told["edges"], told["partitions"]) == (45, 150, 4)
    assert told["vertex_schema"] == {"age": "int64", "na/me é": "string"}
    assert told["edge_schema"] == {"kind": "string", "since": "int64"}
    assert (told["directed"], told["weighted"], told["label_type"]) == (True, True, "string")
    assert sum(told["part_vertices"]) == 45
    assert json.dumps(told)


def test_progress_counts_partitions(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    layout = build_layout(rich_graph(), np.arange(45, dtype=np.int32) % 3, 4)
    write_store(layout, tmp_path / "s", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_unknown_uri_scheme_is_an_input_error() -> None:
    with pytest.raises(GoffishError, match="nosuch"):
        open_store("nosuch://bucket/s")
