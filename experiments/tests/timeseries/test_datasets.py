"""Readers of two published time series: labels, directions and values are those of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.timeseries.datasets import read_chickenpox_hungary, read_montevideo_bus
from goffish.errors import InputError
from tests.temporal.test_build import edges_of


def test_montevideo(tmp_path: Path) -> None:
    """A file of the published form, made here: labels, directions, lengths and values are those of the file."""
    path = tmp_path / "bus.json"
    path.write_text(
        '{"nodes": [{"id": 7, "lon": 5, "lat": 6, "y": [1, 0, 3]}, {"id": 3, "lon": 8, "lat": 9, "y": [0, 2, 0]}],'
        ' "links": [{"source": 7, "target": 3, "weight": 172.2}]}'
    )
    data = read_montevideo_bus(path)
    assert data.graph.label_column().to_pylist() == [3, 7] and data.graph.directed
    assert data.graph.vertex_attributes.to_pydict() == {"longitude": [8, 5], "latitude": [9, 6]}
    assert data.graph.weights.tolist() == [172.2]
    store = data.write(tmp_path / "s", pack=2).store
    assert [i.vertex("inflow").to_pylist() for i in store.instances()] == [[0, 1], [2, 0], [0, 3]]
    assert [i.number for i in store.instances("2020-10-01T01:00", "2020-10-01T02:00")] == [1]
    (tmp_path / "bad.json").write_text('{"nodes": []}')
    with pytest.raises(InputError, match=r"not the bus data of Montevideo \(KeyError: 'links'\)"):
        read_montevideo_bus(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad.json: not a JSON file"):
        read_montevideo_bus(tmp_path / "bad.json")
    with pytest.raises(InputError, match=r"none.json: cannot be read \(No such file"):
        read_montevideo_bus(tmp_path / "none.json")


def test_chickenpox(tmp_path: Path) -> None:
    path = tmp_path / "pox.json"
    path.write_text(
        '{"edges": [[0, 0], [0, 1], [1, 0], [1, 2]], "node_ids": {"ZALA": 0, "BACS": 1, "PEST": 2},'
        ' "FX": [[0.5, 1.5, 2.5], [-1, -2, -3]]}'
    )
    data = read_chickenpox_hungary(path)
    labels = data.graph.label_column().to_pylist()
    assert labels == ["BACS", "PEST", "ZALA"] and data.graph.num_edges == 2
    store = data.write(tmp_path / "s").store
    assert sorted(tuple(sorted(e)) for e in edges_of(store)) == [("BACS", "PEST"), ("BACS", "ZALA")]
    first, second = store.instances()
    assert dict(zip(labels, first.vertex("cases").to_pylist(), strict=True)) == {"ZALA": 0.5, "BACS": 1.5, "PEST": 2.5}
    assert second.vertex("cases").to_pylist() == [-2.0, -3.0, -1.0]
    with pytest.raises(InputError, match="not the chickenpox data of Hungary"):
        path.write_text("[]")
        read_chickenpox_hungary(path)
