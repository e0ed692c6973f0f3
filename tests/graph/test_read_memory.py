"""Reading must take the arrays and a constant, never the decompressed text."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import re, sys
from pathlib import Path
from goffish.graph import read
read(sys.argv[1])                       # compiled code and library buffers are there before measuring starts
def peak():                             # not ru_maxrss: that one remembers the process which started this one
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
before = peak()
graph = read(sys.argv[2])
print(graph.num_edges, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
def test_peak_memory_is_the_arrays_and_a_constant(tmp_path):
    edges, padding = 500_000, 250
    small, large = tmp_path / "small.txt.gz", tmp_path / "large.txt.gz"
    small.write_bytes(gzip.compress(b"1 2\n2 3\n"))
    with gzip.open(large, "wb", compresslevel=1) as file:
        for start in range(0, edges, 10_000):
            rows = range(start, start + 10_000)
            file.write("".join(f"{i} {i * 7919 % edges}{' ' * padding}\n" for i in rows).encode())
    text_size = edges * padding
    done = subprocess.run([sys.executable, "-c", MEASURE, small, large], capture_output=True, text=True, check=True)
    count, peak = map(int, done.stdout.split())
    assert count > 0.9 * edges
    # per edge: its two ends, arcs in both directions before and after sorting, row pointers
    arrays = 48 * edges
    constant = 45 << 20
    assert arrays + constant < text_size  # else this would prove nothing
    assert 10 * edges < peak < arrays + constant
