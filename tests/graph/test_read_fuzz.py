"""Damaged files end in a `GoffishError` or a graph, never in another exception or a crash."""

from __future__ import annotations

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import GoffishError
from goffish.graph import Graph, from_edges, read
from goffish.graph.io import streams
from goffish.graph.io.compressed_rows import write_rows_file

SEEDS = {
    "a.txt": b"# source\ttarget\tweight\ttime\n1 2 0.5 7\n"
    b"22\t-3 1e-7 8\n\n% x\n9223372036854775807 4 123456789012345678 9\n",
    "b.csv": b'source,target,weight,timestamp\n"x ""y""",b,1.5,3\nc,"d,e",2,4\n',
    "c.txt.gz": gzip.compress(b"1 2\n2 3\n3 4\n4 5\n"),
    "d.metis": b"% c\n4 3 11\n5 2 1 3 2\n6 1 1\n%x\n7 1 2 4 3\n8 3 3\n",
    "e.mtx": b"%%MatrixMarket matrix coordinate real symmetric\n% c\n4 4 3\n2 1 1.5\n3 1 2e0\n4 4 1\n",
    "f.gr": b"c x\np sp 3 2\na 1 2 5\na 2 3 6\n",
    "g.gml": b'graph [ directed 1 node [ id 1 label "a" ] node [ id 2 label "b" ] edge [ source 1 target 2 ] ]',
    "h.graphml": b'<graphml><graph edgedefault="directed"><node id="a"/>'
    b'<edge source="a" target="b"/></graph></graphml>',
}
for directed, name in ((True, "i.csr"), (False, "j.csr")):
    file = io.BytesIO()
    table = {"size": [1, 2, 3], "name": ["x", "y", None]}
    graph = from_edges(["a", "b", "a"], ["b", "c", "c"], [1.0, 2, 3], directed=directed, edge_attributes=table)
    write_rows_file(graph, file)
    SEEDS[name] = file.getvalue()
MUTATION = st.tuples(
    st.sampled_from(["set", "insert", "delete", "cut", "double"]),
    st.floats(0, 1),
    st.sampled_from(sorted(b'\0 \n\r\t"#%,;.-+e09a\xff\xc3[]<>')) | st.integers(0, 255),
)


def mutate(data: bytes, mutations) -> bytes:
    for kind, place, byte in mutations:
        at = int(place * len(data))
        if kind == "set":
            data = data[:at] + bytes([byte]) + data[at + 1 :]
        elif kind == "insert":
            data = data[:at] + bytes([byte]) + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + 1 :]
        elif kind == "cut":
            data = data[:at]
        else:
            data = data[:at] + data[at // 2 :]
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", SEEDS)
@given(mutations=st.lists(MUTATION, min_size=1, max_size=4), block=st.sampled_from([64, 4 << 20]))
def test_damage_is_reported(folder, name, mutations, block):
    path = folder / name
    path.write_bytes(mutate(SEEDS[name], mutations))
    before, streams.BLOCK = streams.BLOCK, block
    try:
        graph = read(path)
    except GoffishError as error:
        assert str(error).startswith(str(path))
    else:
        assert isinstance(graph, Graph)
        assert graph.offsets[-1] == graph.num_arcs
    finally:
        streams.BLOCK = before
