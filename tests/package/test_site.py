"""The documentation site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import goffish
from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.model import Dataflow
from goffish.services.store.spec import JobSpec
from goffish.spark.ingest.spec import IngestSpec
from tests.package.pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    # A proxy that refuses connections: the site is built without the network.
    environment = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "reference" / "api").rglob("index.html"))
    headings = set(re.findall(r'<h2 id="goffish[\w.]*?\.(\w+)"', pages))
    assert set(goffish.__all__) - {"__version__"} <= headings


def test_commands_protocol_and_metrics_are_in_the_reference(site: Path) -> None:
    def text(page: str) -> str:
        return (site / "reference" / page / "index.html").read_text(encoding="utf-8")

    assert "goffish run betweenness" in text("cli/run")
    assert "AdviseSpot" in text("protobuf")
    assert "goffish_call_seconds" in text("metrics")
    for page in (site / "reference" / "cli").rglob("index.html"):
        lists = re.findall(r"<li>\s*(?:<p>)?(?:<a[^>]*>)?<code>.*", page.read_text(encoding="utf-8"))
        assert [line for line in lists if "..." in line] == [], "the help of a command is cut"


def test_configuration_is_in_the_reference(site: Path) -> None:
    """Breaks when a field that a file may have, or a variable that is read, is not documented."""
    page = (site / "reference" / "configuration" / "index.html").read_text(encoding="utf-8")
    fields = set(re.findall(r"<td><code>(\w+)</code></td>", page))
    for model in (Dataflow, Catalogue, IngestSpec, JobSpec):
        every = [model.model_json_schema(), *model.model_json_schema()["$defs"].values()]
        assert {name for one in every for name in one.get("properties", {})} <= fields
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "goffish").rglob("*.py"))
    internal = {"GOFFISH_RANK_PAGE", "GOFFISH_"}
    assert set(re.findall(r"GOFFISH_[A-Z_]*", code)) - internal <= fields


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', path.read_text(encoding="utf-8")
        )
        assert [one for one in loaded if "goffish.github.io" not in one] == [], path
