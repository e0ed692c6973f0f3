"""Pictures of time series: what they show against NumPy, what a page holds, and what is refused."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import goffish as gf
from goffish.errors import InputError
from goffish.gofs.series import Attribute, SeriesSchema
from goffish.plot import save
from goffish.plot.animation import MOST_EDGES, animate
from goffish.plot.animation_files import MOST_PICTURES, check_animation, page, still, write_animation
from goffish.plot.series import spread_curve, values_over_time, wavefront
from goffish.plot.series_data import in_windows, largest_groups
from goffish.plot.style import ALARM, COLOURS, NOTHING
from goffish.plot.vertices import around
from goffish.temporal.memes import HashtagAggregation, MemeTracking
from goffish.temporal.run import SeriesResult
from tests.plot.plot_cases import by_gid, overlapping_texts


def _values(vertices: int = 40, timesteps: int = 12) -> tuple[np.ndarray, pa.Table]:
    """A value per vertex and timestep, shape (vertices, timesteps), and its shuffled table."""
    rng = np.random.default_rng(6)
    values = rng.normal(5.0, 2.0, (vertices, timesteps))
    vertex, step = np.indices(values.shape).reshape(2, -1)
    order = rng.permutation(values.size)
    labels = pa.array([f"v{i}" for i in vertex[order]])
    return values, pa.table({"vertex": labels, "timestep": step[order], "delay": values.ravel()[order]})


def _spread(vertices: int = 300, missing: int = 80) -> tuple[np.ndarray, pa.Table]:
    first = np.random.default_rng(6).binomial(20, 0.4, vertices)
    first[:missing] = -1
    return first, pa.table({"vertex": np.arange(vertices), "timestep": pa.array(first, mask=first < 0)})


def _karate() -> tuple[gf.Graph, np.ndarray, pa.Table]:
    """Hop distances from vertex 16, as the timestep in which each vertex is reached; vertices 9 and 14 never are."""
    G = nx.karate_club_graph()
    g = gf.from_networkx(G)
    hops = nx.single_source_shortest_path_length(G, 16)
    first = np.array([hops[v] if v not in (9, 14) else -1 for v in g.label_column().to_pylist()])
    return g, first, pa.table({"vertex": g.label_column(), "timestep": pa.array(first, mask=first < 0)})


def _line(figure: Any, gid: str) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.asarray(part) for part in by_gid(figure, gid)[gid].get_data())


class _Page(HTMLParser):
    """Tags with their attributes, and the text of each element by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self.texts.setdefault(self._open[-1], []).append(data)

    def data(self) -> Any:
        return json.loads(self.texts["script"][0])


# -- value over time


def test_bands_are_the_quantiles_of_every_timestep() -> None:
    values, table = _values()
    figure = values_over_time(table, unit="s")
    for gid, share in (("minimum", 0.0), ("median", 0.5), ("maximum", 1.0)):
        x, y = _line(figure, gid)
        assert x.tolist() == list(range(12))
        np.testing.assert_allclose(y, np.quantile(values, share, axis=0))
    edges = by_gid(figure, "quartiles")["quartiles"].get_paths()[0].vertices
    for step in range(12):
        found = edges[edges[:, 0] == step, 1]
        np.testing.assert_allclose([found.min(), found.max()], np.quantile(values[:, step], [0.25, 0.75]))
    assert figure.axes[0].get_ylabel() == "delay (s)"
    assert overlapping_texts(figure) == []


def test_bands_of_timesteps_with_few_or_no_values() -> None:
    # Timestep 1 has one value, 2 has none, 3 has two of which one is infinite, 5 only nothing.
    table = pa.table({
        "vertex": [0, 1, 2, 0, 0, 1, 0], "timestep": [0, 0, 0, 1, 3, 3, 5],
        "x": [1.0, 2.0, 4.0, 7.0, np.inf, 8.0, None],
    })  # fmt: skip
    figure = values_over_time(table)
    np.testing.assert_array_equal(_line(figure, "median")[1], [2.0, 7.0, np.nan, 8.0, np.nan, np.nan])
    np.testing.assert_array_equal(_line(figure, "minimum")[1], [1.0, 7.0, np.nan, 8.0, np.nan, np.nan])
    assert "2 rows without a finite value left out" in figure.axes[0].get_xlabel()


def test_lines_of_chosen_vertices() -> None:
    values, table = _values()
    gap = table.filter(pa.array(np.asarray(table["timestep"]) != 4))
    late = gap.append_column("at", pa.array(np.asarray(gap["timestep"]) + 100))
    figure = values_over_time(late, "delay", vertices=["v7", "v0"], time="at")
    for gid, vertex in (("line-0", 7), ("line-1", 0)):
        x, y = _line(figure, gid)
        assert x.tolist() == list(range(100, 112))
        np.testing.assert_array_equal(np.isnan(y), np.arange(12) == 4)
        np.testing.assert_array_equal(np.delete(y, 4), np.delete(values[vertex], 4))
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["v7", "v0"]
    assert overlapping_texts(figure) == []


def test_rows_without_a_timestep_do_not_shift_the_others() -> None:
    table = pa.table({
        "vertex": ["a", "b", "a", "b", "c"], "timestep": [None, 0, 0, 1, None], "x": [9.0, 1.0, 2.0, 3.0, 7.0],
    })  # fmt: skip
    figure = values_over_time(table, vertices=["a", "b"])
    np.testing.assert_array_equal(_line(figure, "line-0")[1], [2.0, np.nan])
    np.testing.assert_array_equal(_line(figure, "line-1")[1], [1.0, 3.0])
    np.testing.assert_array_equal(_line(values_over_time(table), "maximum")[1], [2.0, 3.0])
    with pytest.raises(InputError, match="no finite number of these vertices"):
        values_over_time(table, vertices=["c"])


def test_large_spans_are_logarithmic_and_small_ones_are_not() -> None:
    table = pa.table({"vertex": [1, 2], "timestep": [0, 0], "rank": [0.001, 5.0]})
    assert values_over_time(table).axes[0].get_yscale() == "log"
    assert values_over_time(table.set_column(2, "rank", pa.array([1.0, 5.0]))).axes[0].get_yscale() == "linear"


# -- wavefront and spread


def test_wavefront_counts_and_shares() -> None:
    first, table = _spread()
    figure = wavefront(table, timesteps=range(25))
    bars = [patch.get_height() for patch in figure.axes[0].patches]
    assert bars == [int((first == step).sum()) for step in range(25)]
    _, share = _line(figure, "share")
    np.testing.assert_allclose(share, [((first >= 0) & (first <= step)).mean() for step in range(25)])
    assert "220 of 300 vertices reached in 25 timesteps" in figure.axes[0].get_title(loc="left")
    assert overlapping_texts(figure) == []


def test_wavefront_of_emitted_rows_takes_the_first_of_each_vertex_and_the_graphs_size() -> None:
    first, table = _spread()
    later = pa.table({"vertex": np.arange(80, 300), "timestep": first[80:] + 3})
    rows = pa.concat_tables([later, table.slice(80)])
    _, share = _line(wavefront(rows, vertices=1000), "share")
    assert share[-1] == pytest.approx(220 / 1000)
    assert share[0] == pytest.approx((first == first[80:].min()).sum() / 1000)


def test_spread_curve_with_numbers_and_with_rows_of_active_vertices() -> None:
    first, table = _spread()
    counts = pa.table({"at": [0, 2, 3, 24], "count": [3, 9, 40, 1]})
    figure = spread_curve(table, counts, active_time="at")
    x, reached = _line(figure, "reached")
    assert x.tolist() == list(range(25))
    assert reached.tolist() == [int(((first >= 0) & (first <= step)).sum()) for step in range(25)]
    active = _line(figure, "active")[1]
    assert active[[0, 2, 3, 24]].tolist() == [3, 9, 40, 1]
    assert np.isnan(active[[1, 4]]).all()
    assert by_gid(figure, "all")["all"].get_ydata()[0] == 300
    assert overlapping_texts(figure) == []
    rows = pa.table({"vertex": [1, 2, 3, 3], "timestep": [5, 5, 6, 9]})
    assert _line(spread_curve(table, rows, timesteps=range(25)), "active")[1][[5, 6, 7, 9]].tolist() == [2, 1, 0, 1]


def test_results_of_programs_can_be_drawn_as_they_are(tmp_path: Path) -> None:
    """The columns, nulls and timesteps are those that programs give; a path graph is reached vertex by vertex."""
    from goffish.gofs import build_layout
    from goffish.gofs.series import InstanceData, write_series
    from goffish.temporal.run import run_series

    g = gf.from_networkx(nx.path_graph(6))
    layout = build_layout(g, np.repeat([0, 1], 3).astype(np.int32), 2)
    holds = [np.arange(6) <= min(step, 3) for step in range(6)]
    instances = [InstanceData(10 * t, 10 * t + 10, {"vertex.memes": h}) for t, h in enumerate(holds)]
    schema = SeriesSchema(vertex=(Attribute("memes", "bool"),))
    write_series(layout, tmp_path / "store", schema, instances, unit="1")
    memes = run_series(MemeTracking(True), tmp_path / "store")
    tags = run_series(HashtagAggregation(True), tmp_path / "store")
    assert isinstance(memes, SeriesResult)
    figure = wavefront(memes)  # the last two timesteps, in which nothing happens, are those of the run
    assert [patch.get_height() for patch in figure.axes[0].patches] == [1, 1, 1, 1, 0, 0]
    assert _line(spread_curve(memes, tags, active_column="count"), "active")[1].tolist() == [
        1, 2, 3, 4, 4, 4,
    ]  # fmt: skip
    assert _line(values_over_time(tags, "count"), "line-0")[1].tolist() == [1, 2, 3, 4, 4, 4]
    assert animate(g, memes).shown.sum(axis=1).tolist() == [1, 3, 5, 7, 8, 8]  # 1 for now and 2 for before
    below = tags.table.set_column(0, "timestep", pa.array([-1] * tags.table.num_rows))
    with pytest.raises(
        InputError, match=r"column 'timestep' contains -1: timesteps are numbered from 0 \(rows of a merge"
    ):
        values_over_time(below, "count")


# -- what leads to pictures


def _starts(first: str, unit: str, timesteps: int) -> pa.Table:
    start = np.datetime64(first, "us") + np.arange(timesteps) * np.timedelta64(1, unit)
    return pa.table({"timestep": np.arange(timesteps), "start": pa.array(start, pa.timestamp("us", "UTC"))})


def _told(figure: Any) -> list[str]:
    return [tick.get_text() for tick in figure.axes[-1].get_xticklabels() if tick.get_text()]


@pytest.mark.slow
def test_dates_stand_at_the_timesteps_that_they_begin() -> None:
    _, table = _values()
    days = _starts("2024-02-25", "D", 12)
    for figure in (values_over_time(table, timesteps=days), wavefront(table, timesteps=days)):
        axes = figure.axes[-1]
        shown = dict(zip(axes.get_xticks(), [t.get_text() for t in axes.get_xticklabels()], strict=True))
        assert len([text for text in shown.values() if text]) >= 3
        for place, text in shown.items():
            inside = 0 <= place < 12
            assert text == (str(np.datetime64("2024-02-25") + int(place)) if inside else "")
        assert axes.get_xlabel() == "timestep, by its start (UTC)"
        assert overlapping_texts(figure) == []
    hours = spread_curve(table, timesteps=_starts("2024-02-25T06:30", "h", 12))
    assert "2024-02-25\n08:30" in _told(hours)
    assert "2024-02-25\n06:30:10" in _told(wavefront(table, timesteps=_starts("2024-02-25T06:30:10", "m", 12)))
    texts = pa.array([str(day) for day in days["start"].to_pylist()])
    assert "2024-02-27" in _told(wavefront(table, timesteps=days.set_column(1, "start", texts)))
    for other in (days.set_column(1, "start", pa.array(np.arange(12))), days.drop_columns("start")):
        assert "2" in _told(wavefront(table, timesteps=other))
    status = animate(*(_karate()[i] for i in (0, 2)), timesteps=days).status
    assert status[1].startswith("from 2024-02-26: ") and len(status) == 12
    with pytest.raises(InputError, match="rows of timestep 11, the timesteps are 0 to 9"):
        wavefront(_values()[1].filter(pa.array(np.asarray(table["timestep"]) == 11)), timesteps=days.slice(0, 10))


def test_points_in_time_are_counted_in_windows() -> None:
    table = pa.table({"vertex": [1, 2, 3, 4], "arrival": pa.array([107, 99, None, 120], pa.int64())})
    assert in_windows(table, "arrival", 10)["timestep"].to_pylist() == [0, 0, None, 2]
    assert in_windows(table, "arrival", 10, origin=90)["timestep"].to_pylist() == [1, 0, None, 3]
    again = in_windows(in_windows(table, "arrival", 10), "arrival", 1, origin=99)
    assert again["timestep"].to_pylist() == [8, 0, None, 21]
    never = in_windows(table.slice(2, 1), "arrival", 10)
    assert never["timestep"].to_pylist() == [None]
    for options, message in (
        ({"window": 0}, "window=0"),
        ({"window": 10, "origin": 100}, "column 'arrival' contains 99, before origin = 100"),
        ({"window": 1, "origin": -(10**12)}, "more than 100,000 windows"),
    ):
        with pytest.raises(InputError, match=message):
            in_windows(table, "arrival", **options)


def test_largest_groups_are_those_of_numpy() -> None:
    rng = np.random.default_rng(6)
    group, step = rng.integers(0, 5, 400), rng.integers(0, 9, 400) * 2
    missing = rng.random(400) < 0.1
    table = pa.table({"vertex": np.arange(400), "timestep": step, "community": pa.array(group, mask=missing)})
    found = largest_groups(table)
    expected = {int(s): int(np.bincount(group[(step == s) & ~missing]).max()) for s in np.unique(step)}
    assert dict(zip(*(found[name].to_pylist() for name in ("timestep", "largest community")), strict=True)) == expected
    assert _line(values_over_time(found), "line-0")[1][::2].tolist() == list(expected.values())


@pytest.mark.parametrize("directed", [False, True])
def test_what_is_around_a_vertex_is_that_of_networkx(directed: bool) -> None:
    G = nx.gnm_random_graph(60, 90, seed=4, directed=directed)
    g = gf.from_networkx(nx.relabel_nodes(G, {v: f"v{v}" for v in G}))
    for hops in (1, 2, 40):
        part = gf.to_networkx(around(g, "v7", hops))
        near = nx.single_source_shortest_path_length(G.to_undirected(), 7, cutoff=hops)
        expected = nx.relabel_nodes(G.subgraph(near), {v: f"v{v}" for v in G})
        assert set(part) == set(expected)
        assert set(part.edges) == set(expected.edges) or nx.utils.edges_equal(part.edges, expected.edges)
    for wrong in ("v60", 7):
        with pytest.raises(InputError, match="unknown vertex"):
            around(g, wrong)


# -- animation


def test_states_of_reached_vertices() -> None:
    g, first, table = _karate()
    found = animate(g, table, timesteps=range(8))
    for step in range(8):
        expected = [0 if f < 0 or f > step else 1 if f == step else 2 for f in first]
        assert found.shown[step].tolist() == expected
    reached = ((first >= 0) & (first <= 3)).sum()
    assert (
        found.status[3] == f"{(first == 3).sum()} newly reached, {reached} of 34 vertices so far ({reached / 34:.1%})"
    )
    figure = still(found, 3)
    points = by_gid(figure, "vertices-")
    assert len(points["vertices-D"].get_offsets()) == (first == 3).sum()
    assert len(points["vertices-o"].get_offsets()) == (first != 3).sum()
    assert overlapping_texts(figure) == []


def test_values_are_coloured_on_one_scale_and_kept_on_request() -> None:
    g = gf.from_networkx(nx.path_graph(4))
    table = pa.table({
        "vertex": [0, 1, 2, 0, 1, 2], "timestep": [0, 0, 0, 2, 2, 2], "x": [0.5, 1.5, 2.5, 2.5, np.nan, None],
    })  # fmt: skip
    found = animate(g, table, "x")
    texts = np.array([state.text for state in found.states])
    assert texts[found.shown].tolist() == [
        ["0.5", "1.5", "2.5", "no value"], ["no value"] * 4, ["2.5", "no value", "no value", "no value"],
    ]  # fmt: skip
    assert found.status == [
        "3 of 4 vertices with a value",
        "0 of 4 vertices with a value",
        "1 of 4 vertices with a value",
    ]
    assert len({state.colour for state in found.states}) == 4
    kept = animate(g, table, "x", keep=True)
    assert np.array([s.text for s in kept.states])[kept.shown][2].tolist() == ["2.5", "1.5", "2.5", "no value"]
    once = animate(g, pa.table({"vertex": [0, 3], "timestep": [1, 2], "arrival": [3.5, 9.5]}), "arrival")
    assert np.array([s.text for s in once.states])[once.shown][1].tolist() == ["3.5", "no value", "no value", "9.5"]


def test_given_coordinates_are_kept_up_to_scale() -> None:
    g, _, table = _karate()
    rng = np.random.default_rng(6)
    xy, order = rng.random((34, 2)), rng.permutation(34)
    places = pa.table({"vertex": g.label_column().take(pa.array(order)), "x": xy[order, 0], "y": xy[order, 1]})
    found = animate(g, table, coordinates=places).places
    spans = np.ptp(found, axis=0) / np.ptp(xy, axis=0)
    np.testing.assert_allclose(spans[0], spans[1])
    np.testing.assert_allclose((found - found.min(axis=0)) / spans, xy - xy.min(axis=0), atol=1e-9)
    with pytest.raises(InputError, match=r"coordinates: missing for vertex 25 \(1 vertices in total\)"):
        animate(g, table, coordinates=places.slice(1))


def test_page_tells_every_state_of_every_timestep() -> None:
    g, first, table = _karate()
    found = animate(g, table, timesteps=range(8))
    text = page(found)
    read = _Page(text)
    ids = {attributes.get("id"): tag for tag, attributes in read.tags if attributes.get("id")}
    assert (ids["play"], ids["at"], ids["stage"]) == ("button", "input", "svg")
    data = read.data()
    now, shown = np.zeros(34, int), []
    for which, what in data["changes"]:
        now[which] = what
        shown.append(now.tolist())
    assert shown == found.shown.tolist()
    assert [state[1] for state in data["states"]] == [NOTHING, ALARM, COLOURS[0]]
    assert data["timesteps"] == list(range(8)) and len(data["status"]) == 8
    vertices = [a for tag, a in read.tags if tag == "path" and a.get("transform")]
    assert len(vertices) == 34
    assert [a["fill"] == ALARM for a in vertices] == (first == 0).tolist()
    assert sum(a["d"].count("M") for tag, a in read.tags if tag == "path" and a.get("d", "").count("L") > 9) == 78
    assert ("input", "0", "7") in {(tag, a.get("min"), a.get("max")) for tag, a in read.tags}
    assert page(animate(g, table, timesteps=range(8))) == text


def test_page_needs_nothing_else_and_takes_no_label_for_markup() -> None:
    evil = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<b>&amp;", "a\u2028b"]
    g = gf.from_edges(evil[:3], evil[1:], directed=True)
    labels = g.label_column().to_pylist()
    table = pa.table({"vertex": labels, "timestep": [0, 1, 2, 3], "group": labels})
    for found in (animate(g, table, title=evil[0]), animate(g, table, "group", title=evil[1])):
        read = _Page(page(found))
        kinds = [tag for tag, _ in read.tags]
        assert kinds.count("script") == 2 and "img" not in kinds and "b" not in kinds[:5] and kinds.count("b") == 1
        assert not [name for _, attributes in read.tags for name in attributes if name in ("src", "href", "style")]
        assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
        policy = [a["content"] for tag, a in read.tags if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy and policy[0].startswith("default-src 'none'")
        assert read.data()["labels"] == labels
        assert set(labels) <= {text.rsplit(": ", 1)[0] for text in read.texts["title"]}
        assert kinds.count("line") == 3  # directed edges have heads
        assert not re.search(r"https?://(?!www\.w3\.org)", page(found))


def test_gif_has_a_picture_per_timestep_and_is_the_same_again(tmp_path: Path) -> None:
    g, first, table = _karate()
    found = animate(g, table, timesteps=range(8))
    path = write_animation(found, tmp_path / "a.gif", seconds=0.25)
    with Image.open(path) as picture:
        assert (picture.format, picture.n_frames, picture.info["duration"]) == ("GIF", 8, 250)
        orange = []
        for at in range(8):
            picture.seek(at)
            pixels = np.asarray(picture.convert("RGB")).astype(int)
            # The key on the right shows each colour once.
            stage = pixels[:, : int(0.77 * pixels.shape[1])]
            orange.append(int((np.abs(stage - [0xD5, 0x5E, 0x00]).sum(axis=2) < 12).sum()))
    new = [int((first == step).sum()) for step in range(8)]
    assert [count > 0 for count in orange] == [number > 0 for number in new]
    assert np.argmax(orange) == np.argmax(new)
    assert write_animation(found, tmp_path / "b.gif", seconds=0.25).read_bytes() == path.read_bytes()
    assert write_animation(found, tmp_path / "a.html").read_text() == page(found)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.gif", "a.html", "b.gif"]


# -- what is refused


@pytest.mark.parametrize("draw", [values_over_time, wavefront, spread_curve])
def test_tables_that_cannot_be_drawn(draw: Any) -> None:
    _, table = _values()
    with pytest.raises(InputError, match="no rows"):
        draw(table.slice(0, 0))
    with pytest.raises(InputError, match="the table has no column 'timestep'; available: vertex, delay"):
        draw(table.drop_columns("timestep"))
    with pytest.raises(InputError, match=r"values is of type list: expected a Result or a pyarrow\.Table"):
        draw([1, 2])
    with pytest.raises(InputError, match="column 'timestep' has no values"):
        draw(table.set_column(1, "timestep", pa.nulls(table.num_rows, pa.int64())))
    for wrong in (table["delay"], table["vertex"], pa.array(np.arange(table.num_rows), pa.timestamp("s"))):
        with pytest.raises(InputError, match=r"column .timestep. has type .*; expected timesteps as integers from 0"):
            draw(table.set_column(1, "timestep", wrong))
    for labels, message in (
        (pa.array([[1]] * 480), "column 'vertex' has type list<item: int64>; expected integers or strings"),
        (pa.nulls(480, pa.int64()), "no label"),
    ):
        with pytest.raises(InputError, match=message):
            draw(table.set_column(0, "vertex", labels))
    with pytest.raises(InputError, match="timesteps 0 to"):
        draw(table, timesteps=[10**12])


def test_values_that_cannot_be_drawn() -> None:
    _, table = _values()
    for options, message in (
        ({"vertices": ["v1", "nobody"]}, "the table has no vertex 'nobody'"),
        ({"vertices": ["v1", "v1"]}, r"vertices = \['v1', 'v1'\]: list each vertex once"),
        ({"vertices": [f"v{i}" for i in range(22)]}, "vertices: expected 1 to 21 labels, found 22"),
        ({"vertices": "v1"}, "vertices is of type str: expected a list of labels"),
        ({"column": "speed"}, "no column 'speed'"),
        ({"column": "vertex"}, "column 'vertex' has type string; expected numbers"),
    ):
        with pytest.raises(InputError, match=message):
            values_over_time(table, **options)
    twice = pa.concat_tables([table, table.slice(3, 1)])
    with pytest.raises(InputError, match="several rows for vertex"):
        values_over_time(twice, vertices=[twice["vertex"][3].as_py()])
    with pytest.raises(InputError, match="no finite number"):
        values_over_time(table.set_column(2, "delay", pa.nulls(table.num_rows, pa.float64())))
    with pytest.raises(InputError, match="no column 'vertex'"):
        values_over_time(table.drop_columns("vertex"), vertices=["v1"])
    with pytest.raises(InputError, match="no column 'vertex'"):
        wavefront(table.drop_columns("vertex"))
    with pytest.raises(InputError, match="vertices = 3: must be at least 40, the number in the table"):
        wavefront(table, vertices=3)


def test_animations_that_are_refused(tmp_path: Path) -> None:
    g, _, table = _karate()
    valued = table.append_column("x", pa.array(np.arange(34.0)))
    unknown = pa.table({"vertex": [99], "timestep": [0]})
    large = gf.from_networkx(nx.path_graph(2001))
    dense = gf.from_networkx(nx.complete_graph(202))
    assert dense.num_edges > MOST_EDGES
    for call, message in (
        (lambda: animate(large, table), r"2,001 vertices; up to 2,000"),
        (lambda: animate(dense, table), "the graph has 20,301 edges; at most 20,000 can be animated"),
        (lambda: animate(g, table, timesteps=range(20_000)), "400,000 states"),
        (lambda: animate(g, table.slice(0, 0)), "no rows"),
        (lambda: animate(g, table, "rank"), "no column 'rank'"),
        (lambda: animate(g, table.drop_columns("vertex")), "no column 'vertex'"),
        (lambda: animate(g, unknown), "vertex 99 of the table is not in the graph"),
        (
            lambda: animate(g, pa.concat_tables([valued, valued]), "x"),
            "the table has several rows of a vertex with timestep 2",
        ),
        (lambda: still(animate(g, table), 50), "at = 50: the animation has 6 timesteps, counted from 0"),
        (lambda: check_animation(tmp_path / "a.mp4"), r"\.html, \.htm, \.gif"),
        (lambda: write_animation(animate(g, table), tmp_path / "none" / "a.gif"), "none"),
        (lambda: write_animation(animate(g, table), tmp_path / "a.gif", seconds=0), "must be 0.02 to 60"),
        (
            lambda: write_animation(animate(g, table, timesteps=range(MOST_PICTURES + 1)), tmp_path / "a.gif"),
            "a GIF holds up to 300",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []


def test_figures_are_saved_like_all_others(tmp_path: Path) -> None:
    g, _, table = _karate()
    for figure, name in ((wavefront(table), "a"), (spread_curve(table), "b"), (still(animate(g, table)), "c")):
        one, two = save(figure, tmp_path / f"{name}.png"), save(figure, tmp_path / f"{name}2.png")
        assert one.read_bytes() == two.read_bytes()
