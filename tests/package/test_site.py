"""The documentation site."""

from __future__ import annotations

import importlib.util
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
def pages() -> dict[str, str]:
    """Markdown of the generated pages."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "site" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.pages())


def test_every_public_name_is_in_the_reference(pages: dict[str, str]) -> None:
    api = "".join(text for name, text in pages.items() if name.startswith("reference/api/"))
    assert set(goffish.__all__) - {"__version__"} <= set(re.findall(r"(?m)^::: goffish\.(\w+)$", api))


def test_commands_protocol_and_metrics_are_in_the_reference(pages: dict[str, str]) -> None:
    assert "goffish run betweenness" in pages["reference/cli/run.md"]
    assert "AdviseSpot" in pages["reference/protobuf.md"]
    assert "goffish_call_seconds" in pages["reference/metrics.md"]
    commands = [text for name, text in pages.items() if name.startswith("reference/cli/")]
    lists = [line for text in commands for line in re.findall(r"(?m)^\* .*", text)]
    assert len(lists) > 100
    assert [line for line in lists if "..." in line] == [], "the help of a command is cut"


def test_configuration_is_in_the_reference(pages: dict[str, str]) -> None:
    """Breaks when a field that a file may have, or a variable that is read, is not documented."""
    fields = set(re.findall(r"(?m)^\| `(\w+)` \|", pages["reference/configuration.md"]))
    for model in (Dataflow, Catalogue, IngestSpec, JobSpec):
        every = [model.model_json_schema(), *model.model_json_schema()["$defs"].values()]
        assert {name for one in every for name in one.get("properties", {})} <= fields
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "goffish").rglob("*.py"))
    internal = {"GOFFISH_RANK_PAGE", "GOFFISH_"}
    assert set(re.findall(r"GOFFISH_[A-Z_]*", code)) - internal <= fields


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    """Warnings, as of links to pages that do not exist, are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    # A proxy that refuses connections: the site is built without the network.
    environment = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    api = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "reference" / "api").rglob("index.html"))
    assert set(goffish.__all__) - {"__version__"} <= set(re.findall(r'<h2 id="goffish[\w.]*?\.(\w+)"', api))
    for path in tmp_path.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', text)
        assert [one for one in loaded if "goffish.github.io" not in one] == [], path
