"""networkx's own tests of the routed functions, run by networkx's rules for backends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from goffish.networkx_backend.info import FUNCTIONS

MODULES = [
    "bipartite.tests.test_basic", "bipartite.tests.test_project", "centrality.tests.test_betweenness_centrality",
    "centrality.tests.test_betweenness_centrality_subset", "centrality.tests.test_closeness_centrality",
    "centrality.tests.test_harmonic_centrality", "centrality.tests.test_eigenvector_centrality",
    "centrality.tests.test_katz_centrality", "coloring.tests.test_coloring", "community.tests.test_label_propagation",
    "community.tests.test_leiden", "community.tests.test_louvain", "community.tests.test_quality",
    "components.tests.test_biconnected", "components.tests.test_connected", "components.tests.test_strongly_connected",
    "components.tests.test_weakly_connected", "flow.tests.test_maxflow", "link_analysis.tests.test_hits",
    "link_analysis.tests.test_pagerank", "shortest_paths.tests.test_astar", "shortest_paths.tests.test_generic",
    "shortest_paths.tests.test_unweighted", "shortest_paths.tests.test_weighted", "tests.test_bridges",
    "tests.test_cluster", "tests.test_core", "tests.test_dag", "tests.test_distance_measures",
    "tests.test_link_prediction", "tests.test_matching", "tests.test_mis", "tests.test_simple_paths",
    "traversal.tests.test_bfs", "tree.tests.test_mst",
]  # fmt: skip
#: They assert what one seed leads to in networkx's own code, or in which order it lists communities.
EXCUSED = {
    "test_karate_club_partition", "test_undirected_selfloops", "test_none_weight_param", "test_directed_partition",
    "test_random_seed",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_networkx_tests_pass_with_this_backend(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-rxX", "-c", os.devnull, "--rootdir", tmp_path,
            "-p", "no:cacheprovider", "-p", "dispatch_counter",
            "-k", "not use_bounds_on_off",  # 900 graphs, for an option that is left to networkx
            "--pyargs", *(f"networkx.algorithms.{module}" for module in MODULES),
        ],
        env={
            **os.environ,
            "NETWORKX_TEST_BACKEND": "goffish",
            "NETWORKX_FALLBACK_TO_NX": "True",
            "GOFFISH_DISPATCH_COUNTS": str(counts),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))),
        },
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    excused = re.findall(r"^X(?:FAIL|PASS) .*::(\w+)", done.stdout, re.MULTILINE)
    assert set(excused) <= EXCUSED
    calls = json.loads(counts.read_text())
    assert {name for name in FUNCTIONS if not calls.get(name)} == set(), "networkx's tests ran without this backend"
